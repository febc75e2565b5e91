//! What happens in a run, as its process tells it.

use acidtest_observe::LatelyUsed;
use acidtest_protocol::Protocol;
use acidtest_results::{SecondFigures, SoFar};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The protocol between a server, which greets first, and the process that makes a run for it. The server says in one
/// message what is to be run; the process tells [events](Event) until its input ends, or the run has.
pub const PROTOCOL: Protocol = Protocol { name: "run", version: 1 };

/// Something that happened in a run. The name of a server-sent event is the value of `event` in its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The run begins to make trials.
    Begun {
        /// At least so many trials will be made.
        least: u64,
        /// At most so many.
        most: u64,
        /// What the trials show that are in the result already, if the run goes on.
        so_far: SoFarEvent,
    },
    /// Something on the machine would spoil the figures: told before the first trial.
    Note {
        /// What, with its remedy.
        said: String,
    },
    /// An activity whose progress cannot be measured.
    Doing {
        /// What is done.
        what: String,
        /// For how long, so far.
        seconds: f64,
    },
    /// Data are loaded.
    Loading {
        /// Rows that are loaded.
        rows: u64,
        /// All rows that will be.
        all: u64,
        /// For how long, so far.
        seconds: f64,
    },
    /// A trial begins.
    Trial {
        /// Its number in this session of the run, from 1, trials that are left out included.
        number: u64,
        /// The name of its cell: what tells it from others of the run.
        cell: String,
    },
    /// A second of the measured part is over.
    Second(SecondEvent),
    /// A fault was brought about, or goes on.
    Fault(FaultEvent),
    /// A trial has ended, with its verdict.
    Verdict(VerdictEvent),
    /// A trial has ended without one, and is not in the result.
    NotRun {
        /// Its cell.
        cell: String,
        /// Why.
        why: String,
    },
    /// The run has ended: the last event of its process.
    Ended {
        /// How.
        how: Ending,
        /// The exit status that `acidtest run` would have.
        exit_status: u8,
        /// What went wrong, where something did: a store that could not be reached, a disk that is full.
        error: Option<String>,
    },
    /// The run is in another state than before. This comes from the server, and first of all that a reader gets.
    State {
        /// The state: `waiting`, `running`, `stopping`, `done`, `stopped`, `cut_off` or `failed`.
        state: String,
    },
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Every trial of its plan is in its result.
    Complete,
    /// It went to its end, and trials are missing, because a store could not be reached or started.
    Incomplete,
    /// It was told to stop.
    Interrupted,
    /// acidtest itself failed, or the plan is refused.
    Failed,
}

/// A second of the measured part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecondEvent {
    /// The number of the trial.
    pub trial: u64,
    /// How long the measured part has lasted, in seconds.
    pub passed_seconds: f64,
    /// The share of the measured part that is over, from 0 to 1.
    pub share: f64,
    /// How long the rest of the run takes, at least and at most, in seconds; none where nothing tells it.
    pub left_seconds: Option<(f64, f64)>,
    /// The seconds that have become complete: none while all clients wait for an answer, and several afterwards.
    pub seconds: Vec<SecondFigures>,
    /// What clients, servers and machine have used; empty at the end of the trial.
    pub used: Vec<LatelyUsed>,
    /// The name and the level of a quantity that rises and falls, such as messages in a queue.
    pub gauge: Option<(String, u64)>,
}

/// A fault of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FaultEvent {
    /// The number of the trial.
    pub trial: u64,
    /// What is done: `kill`, `restart`, `pause`, `lose`, `cut`, `disconnect`, `stall`.
    pub fault: String,
    /// To whom: `server`, `server-2` (of a cluster), `locks`, `gateway`, `clients` and the like.
    pub member: String,
    /// How far it is: `begun`, `back` (started again, or going on), `answers`, or `missed` (there was nothing to do it to).
    pub stage: String,
    /// When, in seconds from the beginning of the measured part.
    pub at_seconds: f64,
}

/// What a trial found. A throughput is void where its verdict is not `holds`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VerdictEvent {
    /// The number of the trial.
    pub trial: u64,
    /// The index of its cell in the result.
    pub cell: usize,
    /// The name of its cell.
    pub name: String,
    /// The round, in which every cell has one trial.
    pub round: u32,
    /// `holds`, `broken` or `unknown`.
    pub verdict: String,
    /// The verdict with what was found.
    pub said: String,
    /// Whether what was found breaks a promise of the cell.
    pub breaks_promise: bool,
    /// Acknowledged operations a second, those that throughput counts.
    pub per_second: f64,
    /// The median of the service times of acknowledged operations, in nanoseconds; none where fewer than ten lie beyond it.
    pub p50_ns: Option<u64>,
    /// The 99th percentile of the same, in nanoseconds; none where fewer than ten lie beyond it.
    pub p99_ns: Option<u64>,
    /// What all trials in the result show.
    pub so_far: SoFarEvent,
}

/// What all trials in the result show, those of earlier sessions of the run included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SoFarEvent {
    /// The trials by what was found.
    pub counts: SoFar,
    /// What follows, in words.
    pub said: String,
    /// What follows for what was promised: `holds`, `broken` or `unknown`; none where that cannot be said yet.
    pub verdict: Option<String>,
}

impl From<SoFar> for SoFarEvent {
    fn from(counts: SoFar) -> Self {
        Self {
            counts,
            said: counts.to_string(),
            verdict: counts.verdict().map(|verdict| verdict.to_string()),
        }
    }
}

impl Event {
    /// The name of the server-sent event.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Begun { .. } => "begun",
            Self::Note { .. } => "note",
            Self::Doing { .. } => "doing",
            Self::Loading { .. } => "loading",
            Self::Trial { .. } => "trial",
            Self::Second(_) => "second",
            Self::Fault(_) => "fault",
            Self::Verdict(_) => "verdict",
            Self::NotRun { .. } => "not_run",
            Self::Ended { .. } => "ended",
            Self::State { .. } => "state",
        }
    }

    /// Whether the event that comes after it, of the same name, says all that it says.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Doing { .. } | Self::Loading { .. })
    }
}
