//! The messages between the process that judges a trial and those that drive its clients: a line of JSON each, over
//! the standard streams or any other connection. Nothing in them is a path, a descriptor or a moment of one machine.

use std::io::{self, BufRead, Write};

use acidtest_engine::{Instruction, Report};
use acidtest_workloads::{Crash, MessageCounts, WrittenLedger};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::description::TrialDescription;

/// The version of these messages; processes of different versions do not work together.
pub(crate) const VERSION: u32 = 1;

/// What a worker is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToWorker {
    /// The first message, with the version of those that follow.
    Hello { version: u32 },
    /// Asks for the worker's clock.
    Time,
    /// What it is to drive.
    Drive(Box<TrialDescription>),
    /// Keeps it in step with the others.
    Instruction(Instruction),
    /// How far the clients of all other workers have come.
    Elsewhere(MessageCounts),
    /// What happens to the store's server, to be noted and answered with the same number.
    Crash { number: u64, crash: Crash },
}

/// What a worker tells.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromWorker {
    /// The first message, with the version of those that it understands.
    Hello { version: u32 },
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

/// Writes a message, and everything that was written before.
pub(crate) fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, message)?;
    to.write_all(b"\n")?;
    to.flush()
}

/// Reads the next message; none at the end of the stream.
pub(crate) fn read<M: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<M>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    serde_json::from_str(&line).map(Some).map_err(io::Error::from)
}
