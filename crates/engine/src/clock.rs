//! The trial's clock: nanoseconds since the trial was set up.

use std::time::Duration;

use tokio::time::Instant;

/// Nanoseconds since the trial was set up. Monotonic; 64 bits last for 584 years.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: Instant,
    simulated: bool,
}

impl Clock {
    /// Reads the operating system's monotonic clock.
    pub(crate) fn start() -> Self {
        Self { epoch: Instant::now(), simulated: false }
    }

    /// Reads the clock of the Tokio runtime that this is called on, which may be paused.
    pub(crate) fn simulated() -> Self {
        Self { epoch: Instant::now(), simulated: true }
    }

    pub(crate) fn is_simulated(self) -> bool {
        self.simulated
    }

    pub(crate) fn now(self) -> u64 {
        // reading the runtime's clock costs more than reading the system's, and this is on the path of every
        // operation
        nanos(if self.simulated { self.epoch.elapsed() } else { self.epoch.into_std().elapsed() })
    }

    /// A moment by the system's clock, which has no meaning for one that is simulated.
    pub(crate) fn system_instant(self, at: u64) -> std::time::Instant {
        self.epoch.into_std() + Duration::from_nanos(at)
    }

    pub(crate) fn instant(self, at: u64) -> Instant {
        self.epoch + Duration::from_nanos(at)
    }
}

/// A duration in nanoseconds; one longer than 584 years is cut to the largest value.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
