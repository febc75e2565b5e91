//! The schedule: when the next operation is due.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::Arrivals;

/// One thread's share of the schedule. Its clients claim operations from it in order of their due
/// times, so an operation waits only while every one of them is busy.
#[derive(Debug)]
pub(crate) struct Pacer {
    arrivals: Arrivals,
    /// Mean nanoseconds between two operations of this thread.
    gap: f64,
    /// At which part of the first gap this thread begins, so that threads take turns (0 to 1).
    phase: f64,
    /// When the next operation is due, in nanoseconds of the trial's clock.
    next: f64,
    end: f64,
    rng: Xoshiro256PlusPlus,
}

impl Pacer {
    /// A pacer for a share of `share` (0 to 1) of the arrivals, beginning at `phase` (0 to 1) of a gap. With a
    /// share of 0 nothing is ever due.
    pub(crate) fn new(arrivals: Arrivals, share: f64, phase: f64, seed: u64) -> Self {
        let arrivals = if share > 0.0 { arrivals } else { Arrivals::Closed };
        let gap = match arrivals {
            Arrivals::Closed => 0.0,
            Arrivals::Constant(rate) | Arrivals::Poisson(rate) => 1e9 / (rate * share),
        };
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { arrivals, gap, phase, next: f64::INFINITY, end: 0.0, rng }
    }

    /// Starts a phase of the trial. Operations that the last phase left undone are forgotten, so that the backlog
    /// of a warm-up never reaches the measurement.
    pub(crate) fn begin(&mut self, start: u64, end: u64) {
        self.end = end as f64;
        let lead = match self.arrivals {
            Arrivals::Closed => 0.0,
            Arrivals::Constant(_) => self.gap * self.phase,
            Arrivals::Poisson(_) => self.step(),
        };
        self.next = start as f64 + lead;
    }

    /// When the operation that starts next is due, in nanoseconds of the trial's clock: `now` in a closed loop.
    /// `None` once the phase is over.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive, below 2^53 ns = 104 days
    pub(crate) fn claim(&mut self, now: u64) -> Option<u64> {
        if now as f64 >= self.end {
            return None;
        }
        if self.arrivals == Arrivals::Closed {
            return Some(now);
        }
        if self.next >= self.end {
            return None;
        }
        let due = self.next;
        self.next += self.step();
        Some(due as u64)
    }

    /// How many operations were due before `until` and were never claimed.
    pub(crate) fn dropped(&mut self, until: u64) -> u64 {
        if self.arrivals == Arrivals::Closed {
            return 0;
        }
        let until = self.end.min(until as f64);
        let mut count = 0;
        while self.next < until {
            self.next += self.step();
            count += 1;
        }
        count
    }

    fn step(&mut self) -> f64 {
        match self.arrivals {
            Arrivals::Poisson(_) => -self.gap * (1.0 - self.rng.random::<f64>()).ln(),
            Arrivals::Constant(_) | Arrivals::Closed => self.gap,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn claimed(pacer: &mut Pacer) -> Vec<u64> {
        std::iter::from_fn(|| pacer.claim(0)).collect()
    }

    #[test]
    fn a_closed_loop_is_due_at_once_until_the_end() {
        let mut pacer = Pacer::new(Arrivals::Closed, 1.0, 0.0, 1);
        pacer.begin(5, 10);
        assert_eq!([pacer.claim(5), pacer.claim(9), pacer.claim(10)], [Some(5), Some(9), None]);
        assert_eq!(pacer.dropped(10), 0);
    }

    #[test]
    fn threads_share_a_constant_rate_in_turn() {
        let mut all: Vec<u64> = (0..4)
            .flat_map(|thread| {
                let mut pacer = Pacer::new(Arrivals::Constant(1000.0), 0.25, f64::from(thread) / 4.0, 1);
                pacer.begin(0, SECOND);
                claimed(&mut pacer)
            })
            .collect();
        all.sort_unstable();
        assert_eq!(all.len(), 1000);
        assert!(all.windows(2).all(|pair| pair[1] - pair[0] == 1_000_000));
    }

    #[test]
    fn a_backlog_is_forgotten_when_the_next_phase_begins() {
        let mut pacer = Pacer::new(Arrivals::Constant(1000.0), 1.0, 0.0, 1);
        pacer.begin(0, SECOND);
        assert_eq!(pacer.claim(SECOND / 2), Some(0), "500 operations late");
        pacer.begin(SECOND, 2 * SECOND);
        assert_eq!(pacer.claim(SECOND), Some(SECOND));
    }

    proptest! {
        #[test]
        fn poisson_arrivals_keep_their_rate_and_their_spread(rate in 2_000.0..50_000.0_f64, seed: u64) {
            let mut pacer = Pacer::new(Arrivals::Poisson(rate), 1.0, 0.0, seed);
            pacer.begin(0, SECOND);
            let due = claimed(&mut pacer);
            // six standard deviations of a Poisson count
            prop_assert!((due.len() as f64 - rate).abs() < 6.0 * rate.sqrt());
            prop_assert!(due.is_sorted());
            let gaps: Vec<f64> = due.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            let variation = variance.sqrt() / mean;
            prop_assert!((0.8..1.2).contains(&variation), "an exponential's is 1, this is {variation}");
        }

        #[test]
        fn nothing_offered_goes_missing(rate in 1.0..5_000.0_f64, taken in 0usize..3_000, seed: u64) {
            let offered = {
                let mut pacer = Pacer::new(Arrivals::Poisson(rate), 1.0, 0.0, seed);
                pacer.begin(0, SECOND);
                claimed(&mut pacer).len()
            };
            let mut pacer = Pacer::new(Arrivals::Poisson(rate), 1.0, 0.0, seed);
            pacer.begin(0, SECOND);
            let started = (0..taken).map_while(|_| pacer.claim(0)).count();
            prop_assert_eq!(started as u64 + pacer.dropped(SECOND), offered as u64);
        }
    }
}
