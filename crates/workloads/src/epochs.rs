//! Epochs of the server that a trial's data is on. Another one begins with whatever is done to the server after which its answers
//! prove nothing of those before ([`Disruption::begins_epoch`](acidtest_model::Disruption::begins_epoch)): its end, by a fault.
//! What is seen to be wrong within one epoch is no loss that a crash explains.

use std::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use serde::{Deserialize, Serialize};

/// The boundary between two epochs of the server that a trial's data is on, as its ledger is told of it.
///
/// Where clients are in several processes, each stage is told to all of them before the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Boundary {
    /// It is about to come: what was taken from the server until now is noted first, and what was given back after that.
    Before,
    /// It comes now: from here on, nobody knows in which epoch an answer is given.
    During,
    /// It is over: whoever is answered from now on is answered in the next epoch.
    After,
}

/// Counts the epochs of the server: even numbers are epochs, odd ones the time between two of them.
#[derive(Debug, Default)]
pub(crate) struct Epochs(AtomicU8);

impl Epochs {
    pub(crate) fn now(&self) -> Epoch {
        Epoch(self.0.load(SeqCst))
    }

    /// Notes the end of an epoch, or the beginning of the next. The 128th boundary is never over: nothing is proved after it.
    pub(crate) fn note(&self, boundary: Boundary) {
        let next = |now: u8| match (boundary, now % 2) {
            (Boundary::During, 0) => Some(now + 1),
            (Boundary::After, 1) => now.checked_add(1),
            _ => None,
        };
        // nothing to note: it is in that state already
        let _ = self.0.fetch_update(SeqCst, Relaxed, next);
    }
}

/// An epoch of the server, or the time between two of them. Ordered by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Epoch(u8);

impl Epoch {
    pub(crate) const FIRST: Self = Self(0);

    /// As the highest eight bits of a number.
    pub(crate) fn bits(self) -> u64 {
        u64::from(self.0) << 56
    }

    /// The epoch whose [`bits`](Self::bits) the number has.
    pub(crate) fn of_bits(number: u64) -> Self {
        Self(number.to_be_bytes()[0])
    }

    /// Whether an operation that began in this one and ended `now` was all within one epoch.
    pub(crate) fn lasts(self, now: Self) -> bool {
        self == now && self.0.is_multiple_of(2)
    }

    /// Where an operation belongs that began in this one and ended `now`: between epochs, if it is not known in which.
    pub(crate) fn until(self, now: Self) -> Self {
        if self == now { self } else { Self(self.0 | 1) }
    }
}

/// When damage was seen, which decides what it proves: the first most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Seen {
    /// All that is known of it, and the operation itself, was within one epoch of the server: no crash explains it.
    WithinEpoch,
    /// Within an epoch, of what was acknowledged in an earlier one.
    Across,
    /// By an operation that a boundary overlaps. Where two servers led meanwhile, either of them may have answered.
    Between,
}

impl Seen {
    /// By an operation that began in the one epoch and ended `now`; `is_known_now` is whether all that is known is of the epoch
    /// that there is now.
    pub(crate) fn of(begun: Epoch, now: Epoch, is_known_now: bool) -> Self {
        match (begun.lasts(now), is_known_now) {
            (false, _) => Self::Between,
            (true, true) => Self::WithinEpoch,
            (true, false) => Self::Across,
        }
    }
}

/// Damage of one kind, counted as it is seen.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    all: AtomicU64,
    within_epoch: AtomicU64,
    between: AtomicU64,
}

/// How much damage was seen in all, within one epoch of the server, and by operations that a boundary overlaps.
pub(crate) type Counts = [u64; 3];

impl Damage {
    pub(crate) fn add(&self, seen: Seen) {
        self.all.fetch_add(1, Relaxed);
        match seen {
            Seen::WithinEpoch => self.within_epoch.fetch_add(1, Relaxed),
            Seen::Between => self.between.fetch_add(1, Relaxed),
            Seen::Across => 0,
        };
    }

    pub(crate) fn all(&self) -> u64 {
        self.all.load(Relaxed)
    }

    /// What was seen within one epoch of the server, so that no crash explains it.
    pub(crate) fn within_epoch(&self) -> u64 {
        self.within_epoch.load(Relaxed)
    }

    /// What was seen by operations that a boundary overlaps.
    pub(crate) fn between(&self) -> u64 {
        self.between.load(Relaxed)
    }

    /// All counts, to be written.
    pub(crate) fn counts(&self) -> Counts {
        [self.all(), self.within_epoch(), self.between()]
    }

    /// Adds what another process has counted; `knows_boundaries` is whether it was told of each crash in time. If not, a boundary
    /// may overlap any of its operations.
    pub(crate) fn merge(&self, [all, within_epoch, between]: Counts, knows_boundaries: bool) {
        let (within_epoch, between) = if knows_boundaries { (within_epoch, between) } else { (0, all) };
        self.all.fetch_add(all, Relaxed);
        self.within_epoch.fetch_add(within_epoch, Relaxed);
        self.between.fetch_add(between, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_crosses_a_crash_is_of_no_epoch() {
        let epochs = Epochs::default();
        let first = epochs.now();
        assert!(first == Epoch::FIRST && first.lasts(epochs.now()));
        epochs.note(Boundary::Before);
        assert!(first.lasts(epochs.now()));
        epochs.note(Boundary::During);
        epochs.note(Boundary::During);
        let between = epochs.now();
        assert!(!first.lasts(between) && !between.lasts(between));
        assert_eq!(first.until(between), between);
        epochs.note(Boundary::After);
        epochs.note(Boundary::After);
        let second = epochs.now();
        assert!(second.lasts(epochs.now()) && second > between && between > first);
        assert_eq!((first.until(second), second.until(second)), (between, second));
    }

    #[test]
    fn after_very_many_crashes_nothing_is_proved() {
        let epochs = Epochs::default();
        for _ in 0..300 {
            epochs.note(Boundary::During);
            epochs.note(Boundary::After);
        }
        let last = epochs.now();
        assert!(!last.lasts(last));
    }
}
