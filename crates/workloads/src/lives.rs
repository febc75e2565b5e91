//! Lives of the server that a trial's data is on. What is seen to be wrong within one of them is no loss that a crash
//! explains.

use std::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use serde::{Deserialize, Serialize};

/// What happens to the server that a trial's data is on, as its ledger is told.
///
/// Where clients are in several processes, each stage is told to all of them before the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Crash {
    /// It is about to be ended: what was taken from it until now is noted first, and what was given back after that.
    Nears,
    /// It is ended now: from here on, nobody knows which life of it answers.
    Comes,
    /// It has ended: whoever is answered from now on is answered by its next life.
    IsOver,
}

/// Counts the lives of the server: even numbers are lives, odd ones the time between two of them.
#[derive(Debug, Default)]
pub(crate) struct Lives(AtomicU8);

impl Lives {
    pub(crate) fn now(&self) -> Life {
        Life(self.0.load(SeqCst))
    }

    /// Notes the end of a life, or the beginning of the next. The 128th crash is never over: nothing is proved after it.
    pub(crate) fn note(&self, crash: Crash) {
        let next = |now: u8| match (crash, now % 2) {
            (Crash::Comes, 0) => Some(now + 1),
            (Crash::IsOver, 1) => now.checked_add(1),
            _ => None,
        };
        // nothing to note: it is in that state already
        let _ = self.0.fetch_update(SeqCst, Relaxed, next);
    }
}

/// A life of the server, or the time between two of them. Ordered by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Life(u8);

impl Life {
    pub(crate) const FIRST: Self = Self(0);

    /// As the highest eight bits of a number.
    pub(crate) fn bits(self) -> u64 {
        u64::from(self.0) << 56
    }

    /// The life whose [`bits`](Self::bits) the number has.
    pub(crate) fn of_bits(number: u64) -> Self {
        Self(number.to_be_bytes()[0])
    }

    /// Whether an operation that began in this one and ended `now` was all within one life.
    pub(crate) fn lasts(self, now: Self) -> bool {
        self == now && self.0.is_multiple_of(2)
    }

    /// Where an operation belongs that began in this one and ended `now`: between lives, if it is not known in which.
    pub(crate) fn until(self, now: Self) -> Self {
        if self == now { self } else { Self(self.0 | 1) }
    }
}

/// Damage of one kind, counted as it is seen.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    all: AtomicU64,
    within_life: AtomicU64,
}

impl Damage {
    pub(crate) fn add(&self, is_within_life: bool) {
        self.all.fetch_add(1, Relaxed);
        if is_within_life {
            self.within_life.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn all(&self) -> u64 {
        self.all.load(Relaxed)
    }

    /// What was seen within one life of the server, so that no crash explains it.
    pub(crate) fn within_life(&self) -> u64 {
        self.within_life.load(Relaxed)
    }

    /// Both counts, to be written.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [self.all(), self.within_life()]
    }

    /// Adds what another process has counted; `knows_crashes` is whether it was told of each crash in time.
    pub(crate) fn merge(&self, [all, within_life]: [u64; 2], knows_crashes: bool) {
        self.all.fetch_add(all, Relaxed);
        self.within_life.fetch_add(if knows_crashes { within_life } else { 0 }, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_crosses_a_crash_is_of_no_life() {
        let lives = Lives::default();
        let first = lives.now();
        assert!(first == Life::FIRST && first.lasts(lives.now()));
        lives.note(Crash::Nears);
        assert!(first.lasts(lives.now()));
        lives.note(Crash::Comes);
        lives.note(Crash::Comes);
        let between = lives.now();
        assert!(!first.lasts(between) && !between.lasts(between));
        assert_eq!(first.until(between), between);
        lives.note(Crash::IsOver);
        lives.note(Crash::IsOver);
        let second = lives.now();
        assert!(second.lasts(lives.now()) && second > between && between > first);
        assert_eq!((first.until(second), second.until(second)), (between, second));
    }

    #[test]
    fn after_very_many_crashes_nothing_is_proved() {
        let lives = Lives::default();
        for _ in 0..300 {
            lives.note(Crash::Comes);
            lives.note(Crash::IsOver);
        }
        let last = lives.now();
        assert!(!last.lasts(last));
    }
}
