//! The interfaces by which the runner takes any workload through a trial.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use acidtest_engine::{ClientTask, Part};
use acidtest_model::{
    Address, Disruption, EffectiveDurability, EffectiveSettings, IdleOption, Lock, Role, Secret, StoreError,
    Task,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};

use crate::{
    Audit, Crash, Guarantee, Parameter, Place, Served, Store, WorkloadSpec, records::WrittenVersion,
};

/// The values of a workload's parameters, by name.
pub type Values = serde_json::Map<String, serde_json::Value>;

/// A kind of workload, as `acidtest workloads` lists it.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadKind {
    /// The name on the command line, in plans and in results.
    pub name: &'static str,
    /// The workload in a line or two, with its origin.
    pub summary: &'static str,
    /// Names of its operations, in the order of their kinds.
    pub operations: &'static [&'static str],
    /// The property that its audit proves, in a line or two.
    pub audit: &'static str,
    /// Its guarantees, in the order of reports: those that its findings can break, and those that have a price.
    pub guarantees: &'static [Guarantee],
    /// Evidence of its audit that has a column in tables, by name, and how the trials of a cell are taken together.
    pub counts: &'static [(&'static str, Over)],
    /// Shares of that evidence that have a column: the column's title, and the names of part and whole. A terminal that is
    /// narrow shows the first one longest, and of the counts those that come first.
    pub shares: &'static [(&'static str, &'static str, &'static str)],
    /// The operations and spans that tables explain, by name, each with a sentence that follows `name: `.
    pub terms: &'static [(&'static str, &'static str)],
    /// The operation of which it is told where most are refused, and what that comes from and what mends it, as the end of a
    /// sentence; none where refusals are as they should be.
    pub refused: Option<(&'static str, &'static str)>,
    /// What a refusal is, in a word for the column that counts them; empty where it is the store's plain no.
    pub refusal: &'static str,
    /// What its audit does not prove where clients are in several processes, as a part of a sentence; empty if it
    /// proves the same.
    pub apart: &'static str,
    /// The rows a second that the study behind it asks for; none where it asks for none.
    pub demand: Option<f64>,
    /// Its parameters, with defaults and meanings.
    pub parameters: fn() -> Vec<Parameter>,
    /// Makes the workload with these values in place of the defaults. The error names the first value that is
    /// wrong.
    pub with: fn(&Values) -> Result<Box<dyn Workload>, String>,
    /// The options and parameters of a plan that have no effect, given these values of the workload's parameters.
    pub idle: fn(&Values) -> Vec<IdleOption>,
}

/// Keeps the entries without effect, from a list of name, whether it has an effect, and why not.
pub(crate) fn idle(listed: &[(&'static str, bool, &'static str)]) -> Vec<IdleOption> {
    listed.iter().filter(|(_, has, _)| !has).map(|&(name, _, why)| IdleOption { name, why }).collect()
}

/// Why the number of retries has no effect where nothing is written.
pub(crate) const NOTHING_WRITTEN: &str = "nothing is written: no operation conflicts with another";

/// A workload with a value for each of its parameters.
pub trait Workload: Send + Sync {
    /// What it says of itself.
    fn spec(&self) -> &WorkloadSpec;

    /// How much data there is before its clients begin, or that they will make in any case; `trace` is the length of the
    /// sequence that is replayed.
    fn size(&self, clients: u32, trace: Option<u64>) -> DataSize;

    /// Makes one trial.
    fn trial(&self, setup: TrialSetup) -> Box<dyn WorkloadTrial>;
}

/// How much data a trial has, as far as it is known before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSize {
    /// Rows, documents or messages.
    pub rows: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Bytes of memory that each process which drives clients takes for them: ledger, stock, and what is to be replayed.
    pub ledger_bytes: u64,
    /// Bytes of memory that the audit takes besides.
    pub audit_bytes: u64,
}

impl DataSize {
    /// So many rows of `bytes` each. `kept` is how many bytes of memory the ledger and the audit take for each of them.
    pub(crate) fn of(rows: u64, bytes: u64, kept: [u64; 2]) -> Self {
        let [ledger_bytes, audit_bytes] = kept.map(|kept| rows.saturating_mul(kept));
        Self { rows, bytes: rows.saturating_mul(bytes), ledger_bytes, audit_bytes }
    }
}

/// A service that a trial has in front of the store: the gateway that its clients talk to, or one that has a part in what
/// becomes of their requests.
#[derive(Clone, Debug)]
pub struct Front {
    /// Its role.
    pub role: Role,
    /// The store whose server it is; none for a service of acidtest's own, whose role says what it is.
    pub server: Option<&'static str>,
    /// Its arguments, without a password.
    pub arguments: Vec<String>,
    /// Passwords that it needs, by the environment variables that it takes them from.
    pub secrets: Vec<(&'static str, Secret)>,
}

/// How a figure of several trials is made of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The greatest of them.
    Most,
}

/// The setup of one trial, besides its workload's parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TrialSetup {
    /// The lock mode, which protects read-decide-writes.
    pub lock: Lock,
    /// The seed of every random number of the trial.
    pub seed: u64,
    /// How many clients take part.
    pub clients: u32,
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
    pub epoch: Instant,
}

impl TrialSetup {
    /// A trial of operations that are drawn at random, over data of its own, that one process drives.
    #[must_use]
    pub fn new(lock: Lock, seed: u64, clients: u32) -> Self {
        let (part, epoch) = (Part::WHOLE, Instant::now());
        Self { lock, seed, clients, trace: None, reusable: None, mark: String::new(), part, epoch }
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

/// The result of a trial's audit.
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
        Self { audit, reusable, limits: BTreeMap::new(), size: None }
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
pub struct Remarks {
    /// Nanoseconds of the first execution of an operation after loading, on a connection of its own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub first_ns: BTreeMap<String, u64>,
    /// The store's plan for an operation, in its own words (EXPLAIN).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plans: BTreeMap<String, String>,
}

impl Remarks {
    /// Whether there are no such facts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How many messages were published and consumed, where clients in several processes have to know of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Messages that were published.
    pub published: u64,
    /// Messages that were delivered at least once.
    pub delivered: u64,
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

/// One trial of a workload, with its data, its clients, their ledger and its audit.
pub trait WorkloadTrial: Send + Sync {
    /// How many rows [`load`](WorkloadTrial::load) loads.
    fn rows(&self) -> u64;

    /// How many rows the audit will have to read, once the clients are done.
    fn rows_left(&self) -> u64 {
        self.rows()
    }

    /// How many acknowledged writes the store must still hand out, so that a crash puts them to the test: the messages of a
    /// queue. `None` where nothing that was acknowledged is ever taken out again.
    fn outstanding(&self) -> Option<u64> {
        None
    }

    /// How long what was acknowledged may be on its way into the store, before the audit can read it there.
    fn settles(&self) -> Duration {
        Duration::ZERO
    }

    /// Loads the data under the trial's own names.
    fn load<'a>(
        &'a self,
        store: &'a dyn Store,
        place: &'a Place,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>>;

    /// The next service to start in front of the store, given those that are there; `None` where there are all.
    ///
    /// # Errors
    /// The store has no adapter for the workload.
    fn front(
        &self,
        _store: &dyn Store,
        _place: &Place,
        _started: &[(Role, Address)],
    ) -> Result<Option<Front>, StoreError> {
        Ok(None)
    }

    /// Whether clients that are at work are sure to notice at once what is done to the member with this role.
    fn is_noticed(&self, _member: Role, _disruption: &Disruption) -> bool {
        true
    }

    /// The gateway that the trial's clients talk to, if it runs already.
    fn running_gateway(&self) -> Option<Address> {
        None
    }

    /// Sends something through that gateway, and finds it in the store. It is removed with the trial's data. Returns why it
    /// is not known whether it comes there, if it is not.
    ///
    /// # Errors
    /// The gateway does not take it, or stores it elsewhere.
    fn try_gateway<'a>(&'a self, _store: &'a dyn Store) -> Task<'a, Result<Option<String>, StoreError>> {
        Box::pin(async { Ok(None) })
    }

    /// The durability level of what the member with this role keeps, given the trial's own settings.
    fn kept_by(&self, _member: Role, settings: &EffectiveSettings) -> EffectiveDurability {
        settings.durability
    }

    /// Whether the durability level of these settings is that of what the member with this role keeps.
    fn keeps(&self, member: Role, _settings: &EffectiveSettings) -> bool {
        member == Role::Server
    }

    /// Tells where the service with this role is, and the token by which it knows the trial's clients, if it has clients.
    ///
    /// # Errors
    /// A certificate that the address names cannot be used.
    fn reach(&self, _role: Role, _address: &Address, _token: Option<&str>) -> Result<(), StoreError> {
        Ok(())
    }

    /// Opens a connection as the trial's clients do, and closes it. Returns how long the opening took; `None` where there are no
    /// connections.
    fn connecting<'a>(&'a self, store: &'a dyn Store) -> Task<'a, Result<Option<Duration>, StoreError>> {
        store.connecting()
    }

    /// Collects facts that are needed once, after loading and before the clients start.
    fn prepare<'a>(
        &'a self,
        _store: &'a dyn Store,
        _place: &'a Place,
    ) -> Task<'a, Result<Remarks, StoreError>> {
        Box::pin(async { Ok(Remarks::default()) })
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

    /// The name and the level of a figure that rises and falls while the clients run; `None` if there is none.
    fn gauge(&self) -> Option<(&'static str, u64)> {
        None
    }

    /// A task for the engine that runs one client of the trial.
    ///
    /// # Errors
    /// The store has no adapter for the workload.
    fn client(&self, store: &dyn Store, place: &Place) -> Result<ClientTask, StoreError>;

    /// The ledger of this process's clients, for the process that judges the trial.
    ///
    /// # Errors
    /// It cannot be written.
    fn ledger(&self) -> Result<WrittenLedger, String>;

    /// Notes, now and then while the clients run, how far they have come, where that says how old a lost write was.
    fn note_moment(&self) {}

    /// Notes what happens to the server that the trial's data is on, while its clients run.
    fn note_crash(&self, crash: Crash);

    /// Adds the ledger of another process's clients to this one's. `knows_crashes` is whether that process was told of
    /// each crash in time; if it was not, nothing that it saw is known to have been within one life of the server.
    ///
    /// # Errors
    /// It is not a ledger of this trial.
    fn merge(&self, ledger: &RawValue, knows_crashes: bool) -> Result<(), String>;

    /// How far this process's clients have come, where clients of other processes have to know of it.
    fn tally(&self) -> Option<Tally> {
        None
    }

    /// Notes how far the clients of all other processes have come.
    fn note_elsewhere(&self, _tally: Tally) {}

    /// Serves a client of the trial in a process of the store's own, for what its connection is opened for.
    ///
    /// # Errors
    /// The store has no host, or no adapter for the workload.
    fn serve(&self, store: &dyn Store, place: &Place, side: Side) -> Result<Served, StoreError>;

    /// Whether the store keeps the order that the trial's audit looks at.
    fn is_ordered(&self, _store: &dyn Store) -> bool {
        false
    }

    /// Reads the final state back, if the store can still be reached, and compares the ledger with it.
    fn audit<'a>(
        &'a self,
        store: Result<&'a dyn Store, StoreError>,
        place: &'a Place,
    ) -> Task<'a, AuditResult>;

    /// Removes the trial's data.
    fn unload<'a>(&'a self, store: &'a dyn Store, place: &'a Place) -> Task<'a, Result<(), StoreError>>;
}

/// Writes a ledger.
pub(crate) fn written_ledger(ledger: &impl Serialize) -> Result<WrittenLedger, String> {
    to_raw_value(ledger).map_err(|error| error.to_string())
}

/// Reads a ledger.
pub(crate) fn read_ledger<L: DeserializeOwned>(ledger: &RawValue) -> Result<L, String> {
    serde_json::from_str(ledger.get()).map_err(|error| error.to_string())
}

/// The error of a store whose clients need no host.
pub(crate) fn no_host() -> StoreError {
    StoreError::Server {
        doing: "serving a client".to_owned(),
        address: "the store".to_owned(),
        cause: "it is no embedded store, or the workload has no such clients".to_owned(),
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

/// Makes parameters from values: one that is not given has its default, one that is not known is an error.
pub(crate) fn read<P: DeserializeOwned>(values: &Values) -> Result<P, String> {
    serde_json::from_value(serde_json::Value::Object(values.clone())).map_err(|error| error.to_string())
}

/// Every parameter with its value, as a map.
pub(crate) fn written<P: Serialize>(parameters: &P) -> Values {
    match serde_json::to_value(parameters) {
        Ok(serde_json::Value::Object(values)) => values,
        // parameters are structures of plain values
        _ => Values::new(),
    }
}

/// Checks parameters, each given as whether it is in range, its name, and the range that it must be in.
pub(crate) fn in_range(checks: &[(bool, &str, &str)]) -> Result<(), String> {
    match checks.iter().find(|(fits, ..)| !fits) {
        Some((_, name, must)) => Err(format!("{name} must be {must}")),
        None => Ok(()),
    }
}
