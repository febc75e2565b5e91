//! What the server asks of the program that it belongs to.

use std::{path::Path, process::Command};

use acidtest_results::{Plan, RunResult};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

#[derive(Clone, Debug, PartialEq)]
pub struct CheckedPlan {
    /// The plan, its addresses without passwords.
    pub plan: Plan,
    /// How many cells it has.
    pub cells: usize,
    /// How long its trials will be driven, in seconds, at least and at most; none where it asks for a number of operations.
    /// Loading, audits and starting servers come on top.
    pub seconds: Option<(f64, f64)>,
    /// How much memory it needs on this machine, in bytes, by an estimate.
    pub memory_bytes: u64,
    /// How much disk it needs on this machine, in bytes, by an estimate.
    pub disk_bytes: u64,
    /// The command line that runs it.
    pub command: String,
    /// What it asks for that no store of it can do, with the reasons, where it says to leave that out.
    pub left_out: Vec<String>,
}

/// Why a plan is not run: what is wrong, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong, where, and the remedy.
    pub detail: String,
    /// The key of the plan that is at fault, as a JSON Pointer; empty if no single one is.
    pub pointer: String,
}

impl Refusal {
    /// A refusal of the whole.
    #[must_use]
    pub fn of(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), pointer: String::new() }
    }

    /// A refusal of this key.
    #[must_use]
    pub fn at(key: &str, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), pointer: format!("/{key}") }
    }
}

/// A run that a process is to make.
#[derive(Clone, Copy, Debug)]
pub struct Assignment<'a> {
    /// The run's id.
    pub id: &'a str,
    /// Its plan, as it was checked.
    pub plan: &'a Plan,
    /// The file of its result. If it is there, the run goes on in it.
    pub file: &'a Path,
    /// The file that a process locks while it makes a run, so that runs are made one at a time.
    pub turn: &'a Path,
}

/// Whether a store has an ability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Supported {
    /// The name of the workload, the lock mode, the durability level, the isolation level.
    pub name: String,
    /// Whether the store has it.
    pub supported: bool,
    /// How it provides it, or why it does not.
    pub why: String,
}

/// What a store can do, as `acidtest stores` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StoreAbilities {
    /// The name in plans.
    pub name: String,
    /// The name as its makers write it.
    pub title: String,
    /// What an address of a server of one's own looks like; empty if it has none.
    pub address: String,
    /// The workloads.
    pub workloads: Vec<Supported>,
    /// The lock modes.
    pub locks: Vec<Supported>,
    /// The durability levels.
    pub durability: Vec<Supported>,
    /// The isolation levels.
    pub isolation: Vec<Supported>,
    /// TLS to a private server.
    pub tls: Supported,
    /// The replication levels of private clusters.
    pub replication: Vec<Supported>,
    /// What reads at replicas of private clusters can be promised to see; empty where replicas are not read.
    pub consistency: Vec<Supported>,
}

/// A parameter of a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WorkloadParameter {
    /// The name, in a plan's `parameters`.
    pub name: String,
    /// The default, in words.
    pub default: String,
    /// The meaning.
    pub meaning: String,
    /// Its values, where they are a few words; empty where they are not.
    pub choices: Vec<String>,
}

/// A workload, as `acidtest workloads` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WorkloadAbout {
    /// The name in plans.
    pub name: String,
    /// What it does, and where it comes from.
    pub summary: String,
    /// Its operations.
    pub operations: Vec<String>,
    /// What its audit proves.
    pub audit: String,
    /// The stores that can carry it.
    pub stores: Vec<String>,
    /// Its parameters.
    pub parameters: Vec<WorkloadParameter>,
}

/// The program that the server belongs to: it has the stores, checks plans and makes runs.
pub trait Program: Send + Sync + 'static {
    /// Checks a plan as the command line would, and whether it may be asked for from elsewhere.
    ///
    /// # Errors
    /// The first thing that is wrong.
    fn check(&self, plan: &Plan) -> Result<CheckedPlan, Refusal>;

    /// The plan that options of the command line describe, as it reads them; nothing else is checked yet. An option is its
    /// name without dashes, and its value, which may be a list. Those of a `search` are those of `acidtest capacity`.
    ///
    /// # Errors
    /// A value that cannot be read, with what would do.
    fn typed(&self, workload: &str, search: bool, options: &[(&str, String)]) -> Result<Plan, String>;

    /// The id of a run that is about to be made.
    fn new_id(&self) -> String;

    /// The exit status that the command line would have with a result.
    fn exit_status(&self, result: &RunResult) -> u8;

    /// The servers of the user's own that plans may name: their addresses without passwords, and the names of their stores.
    fn addresses(&self) -> Vec<(String, String)>;

    /// What the stores that are built in can do.
    fn stores(&self) -> Vec<StoreAbilities>;

    /// Whether a private instance of a store can be started here: where it is and in which version, or how to get it. May
    /// start programs, and take a second.
    fn here(&self, store: &str) -> (bool, String);

    fn workloads(&self) -> Vec<WorkloadAbout>;

    /// The command that makes a run: it reads one line from its standard input, and ends tidily when its input ends. It
    /// writes [`Event`](crate::Event)s to its standard output, a line of JSON each.
    fn runner(&self) -> Command;

    /// The message that the command reads. It may hold passwords.
    ///
    /// # Errors
    /// The plan may not be run any more, because an address is no longer allowed.
    fn assign(&self, assignment: &Assignment<'_>) -> Result<Box<RawValue>, Refusal>;
}
