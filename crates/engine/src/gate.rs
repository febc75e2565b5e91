//! The line between warm-up and measurement.

use std::sync::OnceLock;

use tokio::sync::Barrier;

/// A part of a trial. The measured part is recorded, the warm-up is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    WarmUp,
    Measured,
}

/// Every client passes here before each phase, with nothing in flight; the first one through starts
/// the phase's clock.
#[derive(Debug)]
pub(crate) struct Gate {
    barrier: Barrier,
    begun: [OnceLock<u64>; 2],
}

impl Gate {
    pub(crate) fn new(clients: usize) -> Self {
        Self { barrier: Barrier::new(clients), begun: [const { OnceLock::new() }; 2] }
    }

    pub(crate) async fn wait(&self) {
        self.barrier.wait().await;
    }

    /// When the phase began; `now` if this is the first to ask.
    pub(crate) fn enter(&self, phase: Phase, now: u64) -> u64 {
        *self.begun[phase as usize].get_or_init(|| now)
    }

    /// When the measured part began, if it has.
    pub(crate) fn measured(&self) -> Option<u64> {
        self.begun[Phase::Measured as usize].get().copied()
    }
}
