//! A reference store in this process's memory: correct, unless told to plant a bug; and a store that
//! does nothing, to measure the bench itself.
//!
#![doc = include_str!("../GUARANTEES.md")]

mod crash;
mod faults;
mod interactive;
mod inventory;
mod join;
mod logs;
mod null;
mod parcels;
mod queue;
mod records;
pub mod selftest;
mod sides;
mod transactions;
mod witness;
mod world;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use acidtest_model::{
    CellRequest, Durability, EffectiveSettings, Hosting, IdleOption, Isolation, Lock, NO_REFRESH, StoreError,
    StoreKind, Support, Task,
};
use acidtest_workloads::{
    Attempt, Identity, Owner, Place, Store, WorkloadTrial,
    interactive::InteractiveStore,
    inventory::InventoryStore,
    join::JoinStore,
    logs::LogsStore,
    parcels::ParcelsStore,
    queue::{Delivery, QueueKind, QueueStore},
    records::RecordsStore,
    transactions::TransactionsStore,
};

pub use faults::{Bug, Faults};
pub use interactive::Anomaly;
pub use null::Null;
pub use witness::KnownStaleness;
use world::{World, locked};

const NOTHING_KEPT: Support = Support::No("nothing is kept on disk");

/// The reference store's row of the matrix: its lock modes, durability levels, isolation levels and workloads.
pub const KIND: StoreKind = StoreKind {
    name: "memory",
    title: "memory (reference)",
    schemes: &[],
    address: "",
    hosting: Hosting::InMemory,
    default_port: 0,
    locks: &[
        (Lock::None, Support::Yes("read, give way, write the computed value")),
        (Lock::Soft, Support::Yes("version compared when writing")),
        (Lock::Hard, Support::Yes("mutex held from read to write")),
        (Lock::Native, Support::Yes("one critical section")),
    ],
    durability: &[
        (Durability::None, Support::Yes("this process's memory")),
        (Durability::Process, NOTHING_KEPT),
        (Durability::Disk, NOTHING_KEPT),
    ],
    isolation: &[
        (
            Isolation::ReadCommitted,
            Support::Yes("each step sees what is committed; what is written is locked"),
        ),
        (Isolation::RepeatableRead, Support::Yes("a snapshot; the first to commit wins")),
        (Isolation::Serializable, Support::Yes("what was read is compared when committing")),
    ],
    transactions: Support::Yes("staged, and committed in one critical section"),
    refresh: NO_REFRESH,
    tls: acidtest_model::NO_NETWORK,
    replication: &[],
    replica_reads: None,
    lock_service: false,
    processes: Support::No("it is the memory of one process"),
    durability_of_data: false,
    in_memory: true,
    client_kib: 7,
    workloads: &[
        ("inventory", Support::Yes("capture and release")),
        ("records", Support::Yes("records in a tree, by key")),
        ("join", Support::Yes("two trees, one looked up for each row of the other")),
        ("queue", Support::Yes("messages in a tree, by arrival")),
        ("logs", Support::Yes("rows in memory, without a gateway")),
        ("parcels", Support::Yes("rows of each parcel in a tree")),
        (
            "transactions",
            Support::Yes("versions of each object; staged, and committed in one critical section"),
        ),
    ],
    refuses,
    idle,
};

/// What is for gateways has no effect: it takes log entries by itself. Nor has what is for tables with indexes.
fn idle(request: &CellRequest<'_>) -> &'static [IdleOption] {
    const TREE: [IdleOption; 2] = [
        IdleOption { name: "index", why: "it keeps the rows of each parcel together" },
        IdleOption { name: "load", why: "it has one way to put rows in" },
    ];
    const WHY: &str = "it takes entries without a gateway";
    const IDLE: [IdleOption; 5] = [
        IdleOption { name: "architecture", why: WHY },
        IdleOption { name: "queue", why: WHY },
        IdleOption { name: "collectors", why: WHY },
        IdleOption { name: "batch", why: WHY },
        IdleOption { name: "sink_connections", why: WHY },
    ];
    match request.workload {
        "logs" => &IDLE,
        "parcels" => &TREE,
        _ => &[],
    }
}

/// The reason why a queue in memory, or a level, cannot be had as the cell asks, if there is one.
fn refuses(request: &CellRequest<'_>) -> Option<&'static str> {
    let is_lower = matches!(request.isolation, Some(Isolation::ReadCommitted | Isolation::RepeatableRead));
    if is_lower && request.workload != "transactions" {
        return Some("it has this level for the workload transactions only");
    }
    let delivery = Delivery::of(request)?;
    let refused = [
        (!delivery.persistent, "no message outlives this process: there is nothing weaker to ask for"),
        (delivery.queue != QueueKind::Default, "it has one kind of queue"),
        (delivery.replicas > 1, "it is in one process"),
        (delivery.deduplicate, "it does not recognise a message by its id: leave --deduplicate false"),
    ];
    refused.into_iter().find_map(|(is, why)| is.then_some(why))
}

/// How long after its answer a hidden commit becomes visible and a late operation is applied.
const LATER: Duration = Duration::from_millis(20);

/// The reference store: every workload in this process's memory, with the faults it was given.
#[derive(Debug)]
pub struct Memory {
    world: Arc<World>,
    namespaces: Mutex<HashMap<String, String>>,
    tables: Mutex<HashMap<String, Arc<inventory::Table>>>,
    records: Mutex<HashMap<String, Arc<records::Table>>>,
    joins: Mutex<HashMap<String, Arc<join::Tables>>>,
    queues: Mutex<HashMap<String, Arc<queue::Queue>>>,
    logs: Mutex<HashMap<String, Arc<logs::Table>>>,
    parcels: Mutex<HashMap<String, Arc<parcels::Table>>>,
    transactions: Mutex<HashMap<String, Arc<transactions::Table>>>,
    interactive: Arc<interactive::Tables>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::with(Faults::default())
    }
}

impl Memory {
    /// A store with planted faults; [`Faults::default`] has none.
    #[must_use]
    pub fn with(faults: Faults) -> Self {
        Self::watched(faults, 1, Watch::default())
    }

    /// A store with planted faults that are drawn from this seed, and whose clients' answers are watched as told.
    #[must_use]
    pub fn watched(faults: Faults, seed: u64, watch: Watch) -> Self {
        Self {
            world: Arc::new(World::new(faults, seed, watch)),
            namespaces: Mutex::default(),
            tables: Mutex::default(),
            records: Mutex::default(),
            joins: Mutex::default(),
            queues: Mutex::default(),
            logs: Mutex::default(),
            parcels: Mutex::default(),
            transactions: Mutex::default(),
            interactive: Arc::default(),
        }
    }

    /// Turns the planted bug on or off from now on. It is on in a new store.
    pub fn plant(&self, does: bool) {
        self.world.plant(does);
    }

    /// Makes room anew in a store that is [full](Faults::full) after some changes.
    pub fn make_room(&self) {
        self.world.make_room();
    }

    /// Waits until the simulated outage, if there is one, is over; looks every millisecond.
    pub async fn come_back(&self) {
        while !self.world.is_there() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// How often the bug has struck since the store was made, whether or not a client could notice.
    #[must_use]
    pub fn strikes(&self) -> u64 {
        self.world.strikes()
    }

    /// How often the store has gone away since it was made, as by a kill: no connection outlives that.
    #[must_use]
    pub fn kills(&self) -> u64 {
        self.world.kills()
    }

    /// Whether nobody is told of its outages.
    pub(crate) fn is_unasked(&self) -> bool {
        self.world.faults.unasked
    }

    /// Whether another server answers after an outage.
    pub(crate) fn fails_over(&self) -> bool {
        self.world.faults.fails_over
    }

    /// Whether it is a cluster, and a replica has been promoted in it.
    pub(crate) fn promotes(&self) -> bool {
        self.world.faults.is_cluster()
    }

    /// Waits until a cluster is whole, and keeps it so until [`Memory::let_go`].
    pub(crate) async fn calm(&self) {
        self.world.calm().await;
    }

    /// Lets leaders of a cluster be lost again.
    pub(crate) fn let_go(&self) {
        self.world.let_go();
    }

    /// Tells this trial, or none, of outages from now on, as a run tells its trials of crashes.
    pub fn tell_of_crashes(&self, trial: Option<Arc<dyn WorkloadTrial>>) {
        self.world.tell(trial);
    }

    /// The number of violations in a trial that an audit must see: those that are beyond doubt in the answers that
    /// clients had and in the data as they were when the trial's audit read them. Ask before another trial reuses the data.
    #[must_use]
    pub fn shown(&self, place: &Place) -> u64 {
        let tables = locked(&self.tables).get(&place.object("stock")).cloned();
        let records = self.records_of(place);
        let (queue, joins) = (self.queue_of(place), self.tables_of(place).ok());
        let (logs, parcels) = (self.logs_of(place), self.parcels_of(place));
        let transactions = self.transactions_of(place);
        tables.map_or(0, |table| table.shown())
            + records.map_or(0, |table| table.shown())
            + queue.map_or(0, |queue| queue.shown())
            + joins.map_or(0, |tables| tables.shown())
            + logs.map_or(0, |table| table.shown())
            + parcels.map_or(0, |table| table.shown())
            + transactions.map_or(0, |table| table.shown())
    }

    /// How old the reads of a trial of the records were, as far as it is known beyond doubt; to be asked like [`Memory::shown`].
    #[must_use]
    pub fn staleness(&self, place: &Place) -> KnownStaleness {
        self.records_of(place).map_or_else(KnownStaleness::default, |table| table.staleness())
    }

    /// The last events on all connections, at most 20,000, oldest first; empty unless [`Watch::recorded`] is set.
    #[must_use]
    pub fn history(&self) -> Vec<String> {
        self.world.history()
    }

    /// Fails about one read-back in three where outages or lost connections are to go on during the audit.
    fn is_there(&self, doing: &str) -> Result<(), StoreError> {
        let faults = self.world.faults;
        let is_away = faults.to_the_end
            && (faults.outages || faults.cuts > 0.0)
            && self.world.next_seed().is_multiple_of(3);
        if is_away { Err(gone(doing, "planted: the store is away")) } else { Ok(()) }
    }
}

/// How closely the store watches the answers that it gives to clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    /// Whether clients run one after the other, as in a simulated trial. Only then does an answer that a client had
    /// tell what all clients knew when they began their next operation.
    pub exact: bool,
    /// Whether to keep the events that [`Memory::history`] lists.
    pub recorded: bool,
}

fn gone(doing: &str, cause: &str) -> StoreError {
    StoreError::Server { doing: doing.to_owned(), address: "memory".to_owned(), cause: cause.to_owned() }
}

/// Gives the answer; without one never returns, so that the client runs into its timeout.
async fn answered(done: Option<Attempt>) -> Attempt {
    match done {
        Some(attempt) => attempt,
        None => std::future::pending().await,
    }
}

impl Store for Memory {
    fn effective(&self) -> Task<'_, Result<EffectiveSettings, StoreError>> {
        Box::pin(async {
            Ok(EffectiveSettings {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                durability: Durability::None.into(),
                because: "nothing is kept on disk".to_owned(),
                settings: BTreeMap::from([("faults".to_owned(), self.world.faults.to_string())]),
                tls: None,
            })
        })
    }

    /// Each outage ends a life, which nothing outlives but the data.
    fn identity(&self) -> Task<'_, Result<Option<Identity>, StoreError>> {
        let life = self.world.kills().to_string();
        let data = if self.world.faults.fails_over { &life } else { "this process's memory" }.to_owned();
        Box::pin(async { Ok(Some(Identity { life, data: Some(data), is_exact: true })) })
    }

    fn owner<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<Owner, StoreError>> {
        let owner = locked(&self.namespaces).get(namespace).cloned();
        Box::pin(async { Ok(owner.map_or(Owner::Nobody, Owner::Run)) })
    }

    fn create<'a>(&'a self, namespace: &'a str, run: &'a str) -> Task<'a, Result<(), StoreError>> {
        locked(&self.namespaces).insert(namespace.to_owned(), run.to_owned());
        Box::pin(async { Ok(()) })
    }

    fn remove<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<(), StoreError>> {
        locked(&self.namespaces).remove(namespace);
        locked(&self.tables).clear();
        locked(&self.records).clear();
        locked(&self.joins).clear();
        locked(&self.queues).clear();
        locked(&self.logs).clear();
        locked(&self.parcels).clear();
        locked(&self.transactions).clear();
        self.clear_interactive();
        Box::pin(async { Ok(()) })
    }

    fn inventory(&self) -> Option<&dyn InventoryStore> {
        Some(self)
    }

    fn records(&self) -> Option<&dyn RecordsStore> {
        Some(self)
    }

    fn join(&self) -> Option<&dyn JoinStore> {
        Some(self)
    }

    fn queue(&self) -> Option<&dyn QueueStore> {
        Some(self)
    }

    fn logs(&self) -> Option<&dyn LogsStore> {
        Some(self)
    }

    fn parcels(&self) -> Option<&dyn ParcelsStore> {
        Some(self)
    }

    fn transactions(&self) -> Option<&dyn TransactionsStore> {
        Some(self)
    }

    fn interactive(&self) -> Option<&dyn InteractiveStore> {
        Some(self)
    }
}
