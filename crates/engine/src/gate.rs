//! The gate between warm-up and measurement.

use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Semaphore;

use crate::{
    load::Phase,
    message::{Report, ReportSender},
};

/// Every client passes here before each phase, with nothing in flight; the first one to pass starts the phase's
/// clock.
#[derive(Debug)]
pub(crate) struct Gate {
    clients: usize,
    /// Clients that have arrived at the gate of each phase.
    come: [AtomicUsize; 2],
    /// One permit for each client once all have arrived. A semaphore wakes them in the order in which they arrived,
    /// as a barrier does not: on a simulated clock a trial must replay exactly.
    open: [Semaphore; 2],
    begun: [OnceLock<u64>; 2],
    /// Who opens the gate once every client of this process is there, where others are waited for too.
    told: ReportSender,
}

impl Gate {
    pub(crate) fn new(clients: usize, told: ReportSender) -> Self {
        Self {
            told,
            clients,
            come: [const { AtomicUsize::new(0) }; 2],
            open: [const { Semaphore::const_new(0) }; 2],
            begun: [const { OnceLock::new() }; 2],
        }
    }

    /// Waits until every client has arrived at the gate of the phase.
    pub(crate) async fn wait(&self, phase: Phase) {
        if self.come[phase as usize].fetch_add(1, Ordering::AcqRel) + 1 == self.clients {
            match &self.told {
                None => self.open(phase),
                // nobody to tell: the process that judges the trial has ended, and this one ends too
                Some(told) => _ = told.send(Report::Arrived(phase)),
            }
        }
        if let Ok(permit) = self.open[phase as usize].acquire().await {
            permit.forget();
        }
    }

    /// Lets the clients pass.
    pub(crate) fn open(&self, phase: Phase) {
        self.open[phase as usize].add_permits(self.clients);
    }

    /// When the phase began, in nanoseconds of the trial's clock; it begins at `now` if this client is the first to
    /// ask.
    pub(crate) fn enter(&self, phase: Phase, now: u64) -> u64 {
        *self.begun[phase as usize].get_or_init(|| now)
    }

    /// When the measured part began, in nanoseconds of the trial's clock; `None` if it has not begun.
    pub(crate) fn measured(&self) -> Option<u64> {
        self.begun[Phase::Measured as usize].get().copied()
    }
}
