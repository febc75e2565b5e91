//! Ending a trial early: why, and how abruptly.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU8, AtomicU32, Ordering},
};

use serde::{Deserialize, Serialize};

/// Why a trial ended early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stop {
    /// The user interrupted it.
    Interrupted,
    /// A client's first connection could not be opened; carries the store's message.
    NoConnection(String),
    /// The server was lost and did not come back within [`Load::patience`](crate::Load::patience); carries the
    /// store's message.
    ServerGone(String),
    /// A client panicked: a defect of acidtest.
    Defect(String),
    /// A process that drove some of the clients ended before they did; carries how.
    PartLost(String),
}

const RUNNING: u8 = 0;
/// No operation is started any more; those in flight may finish.
const STOPPING: u8 = 1;
/// Operations in flight are given up as well: their outcome is unknown.
const ABANDONED: u8 = 2;

#[derive(Debug, Default)]
pub(crate) struct Control {
    state: AtomicU8,
    /// How many times all connections were to be closed.
    disconnects: AtomicU32,
    reason: Mutex<Option<Stop>>,
}

impl Control {
    /// Keeps the first reason that is given; later ones are ignored.
    pub(crate) fn stop(&self, reason: Stop) {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.state.fetch_max(STOPPING, Ordering::Relaxed);
    }

    pub(crate) fn abandon(&self) {
        self.state.fetch_max(ABANDONED, Ordering::Relaxed);
    }

    pub(crate) fn disconnect(&self) {
        self.disconnects.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn disconnects(&self) -> u32 {
        self.disconnects.load(Ordering::Relaxed)
    }

    pub(crate) fn stopping(&self) -> bool {
        self.state.load(Ordering::Relaxed) != RUNNING
    }

    pub(crate) fn abandoned(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ABANDONED
    }

    pub(crate) fn reason(&self) -> Option<Stop> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
