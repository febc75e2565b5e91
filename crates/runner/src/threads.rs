//! How many threads drive a run's clients.

/// The fewest and the most clients of a thread where the threads are fewer than the cores.
const CLIENTS_A_THREAD: (u32, u32) = (4, 16);

/// How many threads suit this many clients: one for each core, as long as there are clients for them.
///
/// Beside a server on the same machine (`is_beside_server`) half of the cores are the server's, if each thread then has at
/// least 4 clients, and no thread has more than 16 as long as there is a core for another one. A thread with several clients
/// finds several answers each time it asks for them, and what it does not use the server can. A thread with two or three seldom
/// does, and a single one gets too little of the cores beside the processes that a server has for many clients. Both are measured
/// in docs/performance.md, "Fewer threads than cores".
pub(crate) fn suitable(clients: u32, cores: u32, is_beside_server: bool) -> u32 {
    let (fewest, most) = CLIENTS_A_THREAD;
    let half = cores.div_ceil(2);
    if is_beside_server && clients / fewest >= half {
        half.max(clients.div_ceil(most)).min(cores)
    } else {
        cores
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_the_same_machine_has_half_of_the_cores_unless_there_are_few_clients_or_many() {
        let beside = |cores| [1, 3, 4, 8, 16, 17, 64, 65, 200].map(|clients| suitable(clients, cores, true));
        assert_eq!(beside(1), [1; 9]);
        assert_eq!(beside(2), [2, 2, 1, 1, 1, 2, 2, 2, 2]);
        assert_eq!(beside(3), [3, 3, 3, 2, 2, 2, 3, 3, 3]);
        assert_eq!(beside(8), [8, 8, 8, 8, 4, 4, 4, 5, 8]);
        assert_eq!(beside(32), [32, 32, 32, 32, 32, 32, 16, 16, 16]);
    }

    #[test]
    fn each_core_has_a_thread_otherwise() {
        assert_eq!([1, 8, 1000].map(|clients| suitable(clients, 4, false)), [4; 3]);
    }
}
