//! The part of a trial's clients that one process drives.

use serde::{Deserialize, Serialize};

use crate::{Extent, Load};

/// A part of a trial's clients. Threads belong to the parts in turn, and clients to the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its index among the parts, from 0.
    pub index: usize,
    /// How many parts there are, at least 1.
    pub of: usize,
    /// How many threads drive all parts; without a meaning where there is only one part.
    pub threads: usize,
}

impl Part {
    /// All clients, driven by one process: the only part.
    pub const WHOLE: Self = Self { index: 0, of: 1, threads: usize::MAX };

    /// Deals this many clients to so many processes, which have as many threads as asked for, but at least one each,
    /// and not more than there are clients.
    #[must_use]
    pub fn deal(clients: usize, processes: usize, threads: usize) -> Vec<Self> {
        let of = processes.clamp(1, clients.max(1));
        let threads = threads.clamp(of, clients.max(of));
        (0..of).map(|index| Self { index, of, threads }).collect()
    }

    /// Whether the client with this index belongs to it.
    #[must_use]
    pub fn has(self, client: usize) -> bool {
        client % self.threads % self.of == self.index
    }

    /// Whether it is all clients.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self == Self::WHOLE
    }

    /// Its share of a number of operations, by the clients on the schedule: the parts' shares add up to the number.
    fn share(self, count: u64, scheduled: usize) -> u64 {
        let before =
            |part: usize| (0..scheduled).filter(|client| client % self.threads % self.of < part).count();
        let up_to = |part: usize| u128::from(count) * before(part) as u128 / scheduled.max(1) as u128;
        u64::try_from(up_to(self.index + 1) - up_to(self.index)).unwrap_or(u64::MAX)
    }
}

/// The operations that are left to a part of this load's clients; none where their number is not limited.
pub(crate) fn budget(load: &Load, part: Part, scheduled: usize) -> Option<u64> {
    match load.extent {
        Extent::Time(_) => None,
        Extent::Operations(count) => Some(part.share(count, scheduled)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every client belongs to one part, every part has one, and no operation is asked for twice or left out.
        #[test]
        fn clients_and_operations_are_dealt_out(
            clients in 1_usize..40,
            processes in 1_usize..10,
            threads in 1_usize..10,
            scheduled in 1_usize..40,
            count in 0_u64..1_000_000,
        ) {
            let parts = Part::deal(clients, processes, threads);
            prop_assert_eq!(parts.len(), processes.min(clients));
            for client in 0..clients {
                prop_assert_eq!(parts.iter().filter(|part| part.has(client)).count(), 1);
            }
            for part in &parts {
                prop_assert!((0..clients).any(|client| part.has(client)), "{:?}", part);
            }
            let scheduled = scheduled.min(clients);
            let shares: Vec<u64> = parts.iter().map(|part| part.share(count, scheduled)).collect();
            prop_assert_eq!(shares.iter().sum::<u64>(), count);
            for (part, share) in parts.iter().zip(shares) {
                let has_some = (0..scheduled).any(|client| part.has(client));
                prop_assert!(has_some || share == 0, "{:?} has {} operations and nobody to do them", part, share);
            }
        }
    }
}
