//! One trial of a workload: what it begins with, its steps, and its result.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use acidtest_engine::{ClientTask, Part};
use acidtest_model::{EffectiveSettings, Lock, ReadPolicy, StoreError, Task};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};

use crate::{Audit, Boundary, Place, Served, Services, Staleness, Store, records::WrittenVersion};

/// The setup of one trial, besides its workload's parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TrialSetup {
    /// The lock mode, which protects read-decide-writes.
    pub lock: Lock,
    /// The seed of every random number of the trial.
    pub seed: u64,
    /// How many clients take part.
    pub clients: u32,
    /// Which members of a cluster answer reads.
    #[serde(default)]
    pub reads: ReadPolicy,
    /// The length of the generated sequence to replay; `None` to draw operations at random.
    pub trace: Option<u64>,
    /// The data that an earlier trial left in the store; `None` where data is loaded anew.
    pub reusable: Option<ReusableData>,
    /// What tells the trial from every other one, also of other runs.
    pub mark: String,
    /// The clients that this process drives; all of them, or none, where it judges the trial.
    pub part: Part,
    /// The moment from which the trial's own times count, by this process's clock: it is the same in all processes,
    /// and not part of what is written.
    #[serde(skip, default = "Instant::now")]
    pub origin: Instant,
}

impl TrialSetup {
    /// A trial of operations that are drawn at random, over data of its own, that one process drives.
    #[must_use]
    pub fn new(lock: Lock, seed: u64, clients: u32) -> Self {
        let (part, origin) = (Part::WHOLE, Instant::now());
        let reads = ReadPolicy::default();
        Self { lock, seed, clients, reads, trace: None, reusable: None, mark: String::new(), part, origin }
    }
}

/// Data that a trial left and the next one may begin with: its state was proved by the audit, which read all of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReusableData {
    /// The version and tag mark of each record, by its number; empty where nothing was changed.
    #[serde(with = "shared")]
    pub(crate) records: Arc<Vec<WrittenVersion>>,
    /// The first tag that no trial has written; `None` where nothing is written.
    pub(crate) tag: Option<u64>,
}

/// Writes what is shared as what it is.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(shared: &Arc<T>, to: S) -> Result<S::Ok, S::Error> {
        shared.as_ref().serialize(to)
    }

    pub(super) fn deserialize<'a, T: Deserialize<'a>, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(from).map(Arc::new)
    }
}

#[derive(Clone, Debug)]
pub struct AuditResult {
    /// The verdict, with its findings and evidence.
    pub audit: Audit,
    /// The data that the next trial may begin with; only where nothing is in doubt.
    pub reusable: Option<ReusableData>,
    /// The reasons for which the store limited its clients, in its own words, and how often it gave each.
    pub limits: BTreeMap<String, u64>,
    /// How large the table was that was read back; none where nobody asked, or the store does not tell.
    pub size: Option<TableSize>,
    /// How old the reads were; none where only the leader answers them.
    pub staleness: Option<Staleness>,
}

/// Where a store keeps a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Medium {
    /// In memory; it must fit there.
    Memory,
    /// On disk.
    Disk,
}

/// How large a table is, as its store says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TableSize {
    /// Number of rows.
    pub rows: u64,
    /// Bytes of the rows; of rows and indexes together where the store does not tell them apart; none where what it tells
    /// says nothing of the rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_bytes: Option<u64>,
    /// Bytes of the indexes; none where the store does not tell them apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_bytes: Option<u64>,
    /// Where they are.
    pub medium: Medium,
    /// Where the store says so: a statement or a command; or why it does not.
    pub source: String,
}

impl AuditResult {
    /// An audit without limits, and the data that the next trial may begin with.
    #[must_use]
    pub fn new(audit: Audit, reusable: Option<ReusableData>) -> Self {
        Self { audit, reusable, limits: BTreeMap::new(), size: None, staleness: None }
    }
}

/// How many rows have been loaded; shared between the loader and the progress display.
#[derive(Debug, Default)]
pub struct LoadProgress(AtomicU64);

impl LoadProgress {
    /// Counts more rows as loaded.
    pub fn add(&self, rows: u64) {
        self.0.fetch_add(rows, Relaxed);
    }

    /// How many rows have been loaded.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Facts that a trial found out besides times and verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Preparation {
    /// Nanoseconds of the first execution of an operation after loading, on a connection of its own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub first_ns: BTreeMap<String, u64>,
    /// The store's plan for an operation, in its own words (EXPLAIN).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plans: BTreeMap<String, String>,
}

impl Preparation {
    /// Whether there are no such facts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a client's connection to a host is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Any operation.
    Client,
    /// Publishing messages.
    Publisher,
    /// Consuming them.
    Subscriber,
}

/// The ledger of the clients of one process, as another process reads it.
pub type WrittenLedger = Box<RawValue>;

/// What the clients of a trial note of their operations. Where several processes drive them, each has a ledger, and that of the
/// process which judges the trial takes in the others.
pub trait TrialLedger: Send + Sync {
    /// What it holds, for the process that judges the trial. To be called once every operation has ended.
    ///
    /// # Errors
    /// It cannot be written.
    fn written(&self) -> Result<WrittenLedger, String>;

    /// Adds what the ledger of another process holds. `knows_boundaries` is whether that process was told of each crash in time;
    /// if it was not, nothing that it saw is known to have been within one epoch of the server.
    ///
    /// # Errors
    /// It is not a ledger of this trial.
    fn merge(&self, written: &RawValue, knows_boundaries: bool) -> Result<(), String>;

    /// Notes, now and then while the clients run, how far they have come, where that says how old a lost write was.
    fn note_moment(&self) {}

    /// Notes what happens to the server that the trial's data is on, while its clients run.
    fn note_boundary(&self, boundary: Boundary);
}

/// One trial of a workload, with its data, its clients, their ledger and its audit, as the runner takes it through its steps.
pub trait WorkloadTrial: Send + Sync {
    /// How many rows [`load`](WorkloadTrial::load) loads.
    fn rows(&self) -> u64;

    /// How many rows the audit will have to read, once the clients are done.
    fn rows_left(&self) -> u64 {
        self.rows()
    }

    /// Loads the data under the trial's own names.
    fn load<'a>(
        &'a self,
        store: &'a dyn Store,
        place: &'a Place,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>>;

    /// Collects facts that are needed once, after loading and before the clients start.
    fn prepare<'a>(
        &'a self,
        _store: &'a dyn Store,
        _place: &'a Place,
    ) -> Task<'a, Result<Preparation, StoreError>> {
        Box::pin(async { Ok(Preparation::default()) })
    }

    /// The version, settings and durability level of the trial, read back once its data is there; `server` is what
    /// the server reported of itself.
    fn settings<'a>(
        &'a self,
        _store: &'a dyn Store,
        _place: &'a Place,
        server: &'a EffectiveSettings,
    ) -> Task<'a, Result<EffectiveSettings, StoreError>> {
        Box::pin(async { Ok(server.clone()) })
    }

    /// The services in front of the store, if the trial can have some.
    fn services(&self) -> Option<&dyn Services> {
        None
    }

    /// What is to be known of clients that take out again what was acknowledged; `None` where none do.
    fn consuming(&self) -> Option<&dyn Consuming> {
        None
    }

    /// A task for the engine that runs one client of the trial.
    ///
    /// # Errors
    /// The store has no adapter for the workload.
    fn client(&self, store: &dyn Store, place: &Place) -> Result<ClientTask, StoreError>;

    /// Serves a client of the trial in a process of the store's own, for what its connection is opened for.
    ///
    /// # Errors
    /// The store has no host, or no adapter for the workload.
    fn serve(&self, store: &dyn Store, place: &Place, side: Side) -> Result<Served, StoreError>;

    /// The ledger of this process's clients.
    fn ledger(&self) -> &dyn TrialLedger;

    /// Reads the final state back, if the store can still be reached, and compares the ledger with it.
    fn audit<'a>(
        &'a self,
        store: Result<&'a dyn Store, StoreError>,
        place: &'a Place,
    ) -> Task<'a, AuditResult>;

    /// Removes the trial's data.
    fn unload<'a>(&'a self, store: &'a dyn Store, place: &'a Place) -> Task<'a, Result<(), StoreError>>;
}

/// How many messages were published and consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageCounts {
    /// Messages that were published.
    pub published: u64,
    /// Messages that were delivered at least once.
    pub delivered: u64,
}

/// A trial some of whose clients consume what was acknowledged to others, as the messages of a queue.
pub trait Consuming: Send + Sync {
    /// How many acknowledged writes the store must still hand out, so that a crash puts them to the test.
    fn outstanding(&self) -> u64;

    /// The name and the level of the figure that rises and falls while the clients run.
    fn gauge(&self) -> (&'static str, u64);

    /// How far this process's clients have come.
    fn counts(&self) -> MessageCounts;

    /// Notes how far the clients of all other processes have come.
    fn note_elsewhere(&self, counts: MessageCounts);

    /// Whether the store keeps the order that the trial's audit looks at.
    fn is_ordered(&self, store: &dyn Store) -> bool;
}

pub(crate) fn written_ledger(ledger: &impl Serialize) -> Result<WrittenLedger, String> {
    to_raw_value(ledger).map_err(|error| error.to_string())
}

pub(crate) fn read_ledger<L: DeserializeOwned>(ledger: &RawValue) -> Result<L, String> {
    serde_json::from_str(ledger.get()).map_err(|error| error.to_string())
}

/// The error of a store whose clients need no host.
pub(crate) fn no_host() -> StoreError {
    StoreError::Server {
        doing: "serving a client".to_owned(),
        address: "the store".to_owned(),
        cause: "it is not an embedded store, or the workload has no such clients".to_owned(),
    }
}

/// The error of a store that lacks a workload's port. The plan's check finds this long before.
pub(crate) fn no_port(workload: &str) -> StoreError {
    StoreError::Server {
        doing: format!("running {workload}"),
        address: "the store".to_owned(),
        cause: "it has no adapter for this workload".to_owned(),
    }
}
