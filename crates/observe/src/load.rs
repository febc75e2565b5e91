//! The interval with the highest CPU use.

use std::time::Duration;

/// Shortest interval that is divided by: in a shorter one the kernel's clock tick (10 ms) is too large a part.
const SHORTEST: Duration = Duration::from_millis(100);

/// Finds the interval with the highest CPU use, in cores.
pub(crate) struct Peak {
    shortest: f64,
    busy: f64,
    seconds: f64,
    max: f64,
}

impl Peak {
    /// `every` is the intended length of an interval.
    pub(crate) fn new(every: Duration) -> Self {
        Self { shortest: SHORTEST.max(every / 2).as_secs_f64(), busy: 0.0, seconds: 0.0, max: 0.0 }
    }

    /// Adds `busy` seconds of CPU spent in the `seconds` since the last call. Intervals too short to be told from a
    /// clock tick are joined to the next.
    pub(crate) fn add(&mut self, busy: f64, seconds: f64) {
        self.busy += busy;
        self.seconds += seconds;
        if self.seconds >= self.shortest {
            self.max = self.max.max(self.busy / self.seconds);
            (self.busy, self.seconds) = (0.0, 0.0);
        }
    }

    /// Cores busy in the busiest interval; never below the `mean` over all of them.
    pub(crate) fn max(&self, mean: f64) -> f64 {
        self.max.max(mean)
    }
}

/// `amount` spread over `seconds`; 0 over no time at all.
pub(crate) fn rate(amount: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { amount / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_interval_is_joined_to_the_next() {
        let mut peak = Peak::new(Duration::from_millis(250));
        peak.add(0.01, 0.001);
        assert!(peak.max(0.0).abs() < f64::EPSILON, "ten cores in one millisecond is a clock tick");
        peak.add(0.24, 0.249);
        assert!((peak.max(0.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_busiest_is_never_below_the_mean() {
        assert!((Peak::new(Duration::from_millis(250)).max(0.7) - 0.7).abs() < f64::EPSILON);
        assert!(rate(1.0, 0.0).abs() < f64::EPSILON);
    }
}
