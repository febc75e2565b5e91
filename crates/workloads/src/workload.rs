//! What the runner takes through a trial, whatever the workload.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use acidtest_engine::ClientTask;
use acidtest_model::{CellRequest, Effective, Idle, Isolation, Lock, StoreError, Task};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Audit, Guarantee, Parameter, Place, Store, guarantee::LOCK, records::WrittenVersion};

/// Values of a workload's parameters, by name.
pub type Values = serde_json::Map<String, serde_json::Value>;

/// A kind of workload, as `acidtest workloads` lists it.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadKind {
    /// The name on the command line, in plans and in results.
    pub name: &'static str,
    /// What it is, and where it comes from: a line or two.
    pub summary: &'static str,
    /// Its operations.
    pub operations: &'static [&'static str],
    /// What its audit proves: a line or two.
    pub audit: &'static str,
    /// Its guarantees, in the order of reports: those that its findings break, and those that have a price.
    pub guarantees: &'static [Guarantee],
    /// Counts of its audit's evidence that have a column in tables.
    pub counts: &'static [&'static str],
    /// Names of its operations and spans that tables explain, each with a sentence that goes on from `name: `.
    pub terms: &'static [(&'static str, &'static str)],
    /// Its parameters, with defaults and meanings.
    pub parameters: fn() -> Vec<Parameter>,
    /// The workload with these values in place of the defaults.
    pub with: fn(&Values) -> Result<Box<dyn Workload>, String>,
    /// What of a plan has no effect beside these values of its parameters: others of them, and options.
    pub idle: fn(&Values) -> Vec<Idle>,
}

/// Those without effect, of what is listed with whether it has one, and why not.
pub(crate) fn idle(listed: &[(&'static str, bool, &'static str)]) -> Vec<Idle> {
    listed.iter().filter(|(_, has, _)| !has).map(|&(name, _, why)| Idle { name, why }).collect()
}

/// Why a number of retries has no effect where nothing is written.
pub(crate) const NOTHING_WRITTEN: &str = "nothing is written: no operation conflicts with another";

/// A workload with one value for each of its parameters.
pub trait Workload: Send + Sync {
    /// Names of its operations, in the order of their kinds.
    fn operations(&self) -> &'static [&'static str];

    /// Those of them that these parameters really ask for.
    fn does(&self) -> Vec<&'static str> {
        self.operations().to_vec()
    }

    /// Times that it takes note of and that are no operation's own.
    fn spans(&self) -> &'static [&'static str] {
        &[]
    }

    /// The operations that throughput counts.
    fn counted(&self) -> Vec<&'static str> {
        self.operations().to_vec()
    }

    /// One of what throughput counts, in words.
    fn unit(&self) -> String;

    /// Every parameter with its value.
    fn values(&self) -> Values;

    /// What it does, in a line.
    fn headline(&self) -> String;

    /// The only lock mode that these parameters make sense with, if there is one.
    fn lock(&self) -> Option<Lock> {
        None
    }

    /// The isolation level that is asked for; the store's own default if none is.
    fn isolation(&self) -> Option<Isolation> {
        None
    }

    /// How many operations one acknowledgement stands for: those of a transaction.
    fn transaction(&self) -> u32 {
        1
    }

    /// What is to be laid in, where several trials may share it one after the other: equal texts, equal
    /// data. `None` where every trial must begin with its own.
    fn data(&self) -> Option<String> {
        None
    }

    /// Whether it has anything to decide, and with it something to protect by a lock.
    fn decides(&self) -> bool {
        true
    }

    /// The guarantees that a trial in this lock mode does without: what only they prevent breaks no promise.
    fn without(&self, lock: Lock) -> &'static [Guarantee] {
        if lock.promises() || !self.decides() { &[] } else { &[LOCK] }
    }

    /// How many clients its own parameters ask for, if they do.
    fn clients(&self) -> Option<u32> {
        None
    }

    /// How many of its clients the rate and the number of operations are for, the first so many, where they are not
    /// for all of them.
    fn scheduled(&self) -> Option<u32> {
        None
    }

    /// Whether a rate or a number of operations can be set for it.
    fn is_paced(&self) -> bool {
        true
    }

    /// Whether it asks for what is written to be searchable at some moment.
    fn refreshes(&self) -> bool {
        false
    }

    /// Whether a trial may be driven for a while before it is measured.
    fn warms_up(&self) -> bool {
        true
    }

    /// Whether it can replay a generated sequence.
    fn replays(&self) -> bool {
        false
    }

    /// What a cell asks of a store besides its rung, under the workload's name.
    fn wish<'a>(&self, name: &'a str, lock: Lock) -> CellRequest<'a> {
        CellRequest {
            workload: name,
            operations: self.does(),
            lock,
            isolation: self.isolation(),
            transaction: self.transaction(),
            parameters: self.values(),
        }
    }

    /// One trial.
    fn trial(&self, terms: TrialSetup) -> Box<dyn WorkloadTrial>;
}

/// What a trial is to be, besides its workload's parameters.
#[derive(Clone, Debug)]
pub struct TrialSetup {
    /// How read-decide-writes are protected.
    pub lock: Lock,
    /// Seeds every draw of the trial.
    pub seed: u64,
    /// Clients that will take part.
    pub clients: u32,
    /// Replay a generated sequence of so many operations, where the workload has one.
    pub trace: Option<u64>,
    /// What an earlier trial left in the store; `None` where data is laid in anew.
    pub left: Option<ReusableData>,
}

/// What a trial left behind that the next one may begin with: proved by its audit, which read it all.
#[derive(Clone, Debug, Default)]
pub struct ReusableData {
    /// Of records: what was written of each, by its number; empty where nothing was changed.
    pub(crate) records: Arc<Vec<WrittenVersion>>,
    /// The first tag that no trial has written.
    pub(crate) tag: Option<u64>,
}

/// What a trial's audit came to.
#[derive(Clone, Debug)]
pub struct AuditResult {
    /// The verdict.
    pub audit: Audit,
    /// What may serve the next trial: only where nothing is in doubt.
    pub left: Option<ReusableData>,
    /// What the store limited its clients by, in its own words, and how often it said so.
    pub limits: BTreeMap<String, u64>,
}

impl AuditResult {
    /// An audit, and what may serve the next trial.
    #[must_use]
    pub fn new(audit: Audit, left: Option<ReusableData>) -> Self {
        Self { audit, left, limits: BTreeMap::new() }
    }
}

/// How far loading is; shared with whoever shows it.
#[derive(Debug, Default)]
pub struct LoadProgress(AtomicU64);

impl LoadProgress {
    /// More rows are in.
    pub fn add(&self, rows: u64) {
        self.0.fetch_add(rows, Relaxed);
    }

    /// Rows that are in.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What a trial found out besides times and verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Remarks {
    /// Nanoseconds of the first execution of an operation after loading, on a connection of its own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub first_ns: BTreeMap<String, u64>,
    /// How the store goes about an operation, in its own words (EXPLAIN).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plans: BTreeMap<String, String>,
}

impl Remarks {
    /// Whether there is nothing to say.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One trial of a workload: its data, its clients with their ledger, its audit.
pub trait WorkloadTrial: Send + Sync {
    /// Rows that [`load`](WorkloadTrial::load) lays in.
    fn rows(&self) -> u64;

    /// Rows that the audit will have to read, once the clients are done.
    fn rows_left(&self) -> u64 {
        self.rows()
    }

    /// Lays the data in under the trial's own names.
    fn load<'a>(
        &'a self,
        store: &'a dyn Store,
        place: &'a Place,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>>;

    /// What is to be found out once, after loading and before the clients.
    fn prepare<'a>(
        &'a self,
        _store: &'a dyn Store,
        _place: &'a Place,
    ) -> Task<'a, Result<Remarks, StoreError>> {
        Box::pin(async { Ok(Remarks::default()) })
    }

    /// Version, settings and rung that the trial is driven at, read back once its data is there; `server` is
    /// what the server said of itself.
    fn settings<'a>(
        &'a self,
        _store: &'a dyn Store,
        _place: &'a Place,
        server: &'a Effective,
    ) -> Task<'a, Result<Effective, StoreError>> {
        Box::pin(async { Ok(server.clone()) })
    }

    /// Something that rises and falls while the clients are at work: its name, and how high it is.
    fn gauge(&self) -> Option<(&'static str, u64)> {
        None
    }

    /// One of its clients.
    ///
    /// # Errors
    /// A store that has no adapter for the workload.
    fn client(&self, store: &dyn Store, place: &Place) -> Result<ClientTask, StoreError>;

    /// Reads the final state back, where the store is still there, and holds the ledger against it.
    fn audit<'a>(
        &'a self,
        store: Result<&'a dyn Store, StoreError>,
        place: &'a Place,
    ) -> Task<'a, AuditResult>;

    /// Removes the data.
    fn unload<'a>(&'a self, store: &'a dyn Store, place: &'a Place) -> Task<'a, Result<(), StoreError>>;
}

/// A port that the store has not: found by the plan's check long before.
pub(crate) fn no_port(workload: &str) -> StoreError {
    StoreError::Server {
        doing: format!("running {workload}"),
        address: "the store".to_owned(),
        cause: "it has no adapter for this workload".to_owned(),
    }
}

/// Parameters from values: what is not given has its default, what is not known is an error.
pub(crate) fn read<P: DeserializeOwned>(values: &Values) -> Result<P, String> {
    serde_json::from_value(serde_json::Value::Object(values.clone())).map_err(|error| error.to_string())
}

/// Every parameter with its value.
pub(crate) fn written<P: Serialize>(parameters: &P) -> Values {
    match serde_json::to_value(parameters) {
        Ok(serde_json::Value::Object(values)) => values,
        // parameters are structures of plain values
        _ => Values::new(),
    }
}

/// Checks parameters: of each whether it fits, its name, and what it must be.
pub(crate) fn in_range(checks: &[(bool, &str, &str)]) -> Result<(), String> {
    match checks.iter().find(|(fits, ..)| !fits) {
        Some((_, name, must)) => Err(format!("{name} must be {must}")),
        None => Ok(()),
    }
}
