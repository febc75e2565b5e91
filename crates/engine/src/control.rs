//! Ending a trial before its time.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU8, Ordering},
};

/// Why a trial ended before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The user asked for it.
    Interrupted,
    /// A first connection could not be opened; the store's words.
    NoConnection(String),
    /// The server was lost and did not come back; the store's words.
    ServerGone(String),
    /// A client panicked: a defect of acidtest.
    Defect(String),
}

const RUNNING: u8 = 0;
/// Start nothing more; let what is in flight finish.
const STOPPING: u8 = 1;
/// Also give up what is in flight: its outcome is unknown.
const ABANDONED: u8 = 2;

#[derive(Debug, Default)]
pub(crate) struct Control {
    state: AtomicU8,
    reason: Mutex<Option<Stop>>,
}

impl Control {
    /// The first reason given is kept.
    pub(crate) fn stop(&self, reason: Stop) {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.state.fetch_max(STOPPING, Ordering::Relaxed);
    }

    pub(crate) fn abandon(&self) {
        self.state.fetch_max(ABANDONED, Ordering::Relaxed);
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
