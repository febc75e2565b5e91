//! How fast trials are made.

use std::time::{Duration, Instant};

/// How fast trials are made, and how many are left.
pub(crate) struct Pace {
    begun: Instant,
    /// The time that a trial should take, where the plan says it.
    expected: Option<Duration>,
    /// At least and at most so many trials are made.
    pub(crate) trials: (u64, u64),
    pub(crate) done: u64,
    skipped: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { begun: Instant::now(), expected: None, trials: (0, 0), done: 0, skipped: 0 }
    }
}

impl Pace {
    pub(crate) fn start(&mut self, least: u64, most: u64, each: Option<Duration>) {
        *self = Self { trials: (least, most), expected: each, ..Self::default() };
    }

    pub(crate) fn skip(&mut self) {
        self.done += 1;
        self.skipped += 1;
    }

    /// The seconds left, at least and at most, when this share of a trial is over; estimated from the trials so far, or
    /// else from the plan.
    pub(crate) fn left(&self, share: f64) -> Option<(f64, f64)> {
        // trials that were skipped took no time
        let each = match self.done - self.skipped {
            0 => self.expected.map(|expected| expected.as_secs_f64()),
            done => Some(self.begun.elapsed().as_secs_f64() / (done as f64 + share)),
        };
        let left = |trials: u64| {
            let trials = (trials - self.done.min(trials)) as f64 - share;
            each.map(|each| each * trials.max(0.0))
        };
        let (least, most) = self.trials;
        left(least).zip(left(most))
    }
}
