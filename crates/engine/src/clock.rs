//! Time as the engine counts it.

use std::time::{Duration, Instant};

/// Nanoseconds since the trial was set up. Monotonic; 64 bits last for 584 years.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { epoch: Instant::now() }
    }

    pub(crate) fn now(self) -> u64 {
        nanos(self.epoch.elapsed())
    }

    pub(crate) fn instant(self, at: u64) -> Instant {
        self.epoch + Duration::from_nanos(at)
    }
}

/// A duration in nanoseconds; one beyond 584 years counts as that.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
