//! Time as the engine counts it.

use std::time::Duration;

use tokio::time::Instant;

/// Nanoseconds since the trial was set up. Monotonic; 64 bits last for 584 years.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: Instant,
    simulated: bool,
}

impl Clock {
    /// The system's clock.
    pub(crate) fn start() -> Self {
        Self { epoch: Instant::now(), simulated: false }
    }

    /// The clock of the runtime that this is called on, which may be paused.
    pub(crate) fn simulated() -> Self {
        Self { epoch: Instant::now(), simulated: true }
    }

    pub(crate) fn is_simulated(self) -> bool {
        self.simulated
    }

    pub(crate) fn now(self) -> u64 {
        // the runtime's own reading costs more, on the path of every operation
        nanos(if self.simulated { self.epoch.elapsed() } else { self.epoch.into_std().elapsed() })
    }

    pub(crate) fn instant(self, at: u64) -> Instant {
        self.epoch + Duration::from_nanos(at)
    }
}

/// A duration in nanoseconds; one beyond 584 years counts as that.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
