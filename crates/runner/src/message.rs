//! The messages between the process that judges a trial, which greets first, and those that drive its clients, over the
//! standard streams or any other connection. Nothing in them is a path, a descriptor or a moment of one machine.

use acidtest_engine::{Instruction, Report};
use acidtest_protocol::Protocol;
use acidtest_workloads::{Boundary, MessageCounts, WrittenLedger};
use serde::{Deserialize, Serialize};

use crate::description::TrialDescription;

pub(crate) const PROTOCOL: Protocol = Protocol { name: "worker", version: 1 };

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToWorker {
    /// Asks for the worker's clock.
    Time,
    /// What it is to drive.
    Drive(Box<TrialDescription>),
    /// Keeps it in step with the others.
    Instruction(Instruction),
    /// How far the clients of all other workers have come.
    Elsewhere(MessageCounts),
    /// What happens to the store's server, to be noted and answered with the same number.
    Boundary { number: u64, boundary: Boundary },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromWorker {
    /// Its clock, in nanoseconds.
    Time { nanoseconds: i64 },
    /// What its clients did.
    Report(Report),
    /// How far they have come, where others have to know.
    Counts(MessageCounts),
    /// It has noted what happens to the store's server.
    Noted { number: u64 },
    /// Its ledger: the last message of one that went to the end.
    Ledger(WrittenLedger),
    /// Why it could not go to the end: the last message otherwise.
    Failed(String),
}
