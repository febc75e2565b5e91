//! What the parts of a trial tell the process that judges it, and what that process tells them.
//!
//! Nothing that is told depends on the clock of a process: all moments are counted from the beginning of the measured
//! part, which each process is told of. They differ by the time that such a message takes.

use std::{collections::BTreeMap, sync::mpsc::Sender};

use serde::{Deserialize, Serialize};

use crate::{
    ArrivalCounts, Stop,
    batch::{EndTimes, RecordedBatch},
    load::Phase,
};

/// What a part tells of its clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Report {
    /// Every client of the part has come to the gate of a phase.
    Arrived(Phase),
    /// What a thread recorded in one second.
    Recorded(RecordedBatch),
    /// A thread has ended.
    ThreadEnded {
        /// What was due there, and what became of it.
        arrived: ArrivalCounts,
        /// When its last operations ended, in nanoseconds from the beginning of the measured part.
        ends: EndTimes,
    },
    /// Every client of the part that is on the schedule has ended.
    ScheduleEnded,
    /// The part goes on.
    Beat {
        /// The last acknowledgement, in nanoseconds from the beginning of the measured part; none if there was none.
        last: Option<u64>,
        /// The same of operations that changed something.
        last_change: Option<u64>,
        /// Operations that were acknowledged so far.
        acknowledged: u64,
        /// Operations that ended with their connection so far.
        interrupted: u64,
        /// Connections that were lost and opened again so far.
        reconnects: u64,
    },
    /// The part stops, and the others are to stop too.
    Stopped(Stop),
    /// All clients of the part have ended.
    Over {
        /// How many clients had nothing left to draw.
        done: usize,
        /// Connections that were lost and opened again.
        reconnects: u64,
        /// The store's error messages, and how often each occurred.
        faults: BTreeMap<String, u64>,
        /// What was not as it should be with clients' connections at the end, and with how many.
        doubts: BTreeMap<String, u64>,
    },
}

/// What a part is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Instruction {
    /// All clients of all parts have come to the gate of this phase: it begins.
    Begin(Phase),
    /// Every client on the schedule has ended, in all parts.
    ScheduleOver,
    /// All connections are to be closed, whatever is in flight on them.
    Disconnect,
    /// No operation is to be started any more.
    Stop,
    /// The operations in flight are to be given up as well.
    GiveUp,
}

/// News of a part, for the whole.
#[derive(Clone, Debug)]
pub enum News {
    /// What it tells of its clients.
    Report(Report),
    /// Its process has ended before it was over; carries how, in words that follow `a client process`.
    Gone(String),
}

/// What a part reports to; none in a trial that one process drives.
pub(crate) type ReportSender = Option<Sender<Report>>;
