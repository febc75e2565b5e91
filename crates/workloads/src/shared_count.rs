//! A count that many clients add to.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Places that are added to, each in a cache line of its own.
const SLOTS: usize = 16;

/// A count that clients of several threads add to, each in a place of its own, so that they do not take the cache line from
/// each other, nor that of what stands beside it.
#[derive(Debug, Default)]
pub(crate) struct SharedCount([Slot; SLOTS]);

/// Processors fetch lines of 64 bytes in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(AtomicU64);

impl SharedCount {
    /// Adds one, in the name of the client with this index.
    pub(crate) fn add_one(&self, client: usize) {
        self.0[client % SLOTS].0.fetch_add(1, Relaxed);
    }

    /// Adds what was counted elsewhere.
    pub(crate) fn add(&self, count: u64) {
        self.0[0].0.fetch_add(count, Relaxed);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(|place| place.0.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn nothing_is_lost_however_many_clients_add() {
        let count = SharedCount::default();
        thread::scope(|scope| {
            for client in 0..3 * SLOTS {
                let count = &count;
                scope.spawn(move || (0..1_000).for_each(|_| count.add_one(client)));
            }
        });
        count.add(7);
        assert_eq!(count.sum(), 3 * SLOTS as u64 * 1_000 + 7);
    }
}
