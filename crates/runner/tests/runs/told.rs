//! A store that fails as it is told: the reference store, with a step at which an error, or no answer, comes.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use acidtest_lab::Lab;
use acidtest_model::{Address, Durability, EffectiveSettings, Lock, Span, StoreError, StoreKind, Task};
use acidtest_results::{Plan, RunResult};
use acidtest_runner::{
    Environment, Failure, Finished, Grid, Interrupt, Observer, OpenOptions, Opener, Order, Target, Watcher,
    run,
};
use acidtest_store_memory::{Faults, KIND, Memory, Null};
use acidtest_workloads::{
    Attempt, ClientTask, Identity, Owner, Place, Store,
    inventory::{
        self, Capture, Connector, InventoryStore, Operations, Release, Scenario, Stock, StockRow, Withdrawal,
    },
    records::RecordsStore,
};
use tempfile::TempDir;

/// A step in which the store can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Open,
    Effective,
    Owner,
    Create,
    Load,
    ReadBack,
    Unload,
    Remove,
}

/// What a store has been told, and what it was asked.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The steps that fail, each from which time on that it is taken, counted from 1.
    fails: Mutex<BTreeMap<Step, u32>>,
    taken: Mutex<BTreeMap<Step, u32>>,
    /// The version that the server says it has; it changes with each step of this kind.
    pub(crate) version: AtomicU32,
    /// The time for a connection that it was last opened with.
    pub(crate) given: Mutex<Option<Duration>>,
    /// Whether its clients share sessions.
    pub(crate) shares: AtomicBool,
    /// Whether it takes connections and never answers.
    pub(crate) hangs: AtomicBool,
    /// What is said of who made any namespace; none for the truth.
    pub(crate) owner: Mutex<Option<Owner>>,
    /// The server that all its addresses are of; each opening has one of its own where there is none.
    pub(crate) server: Mutex<Option<Arc<Memory>>>,
    /// In which life that says it is, and the durability level that its settings amount to.
    pub(crate) identity: Mutex<Option<Identity>>,
    pub(crate) durability: Mutex<Option<Durability>>,
}

impl Told {
    /// From now on, the step fails from this time on that it is taken.
    pub(crate) fn fail(&self, step: Step, from: u32) {
        self.fails.lock().unwrap().insert(step, from);
    }

    /// From now on, nothing fails.
    pub(crate) fn recover(&self) {
        self.fails.lock().unwrap().clear();
    }

    /// How often the step was taken.
    pub(crate) fn taken(&self, step: Step) -> u32 {
        self.taken.lock().unwrap().get(&step).copied().unwrap_or(0)
    }

    fn take(&self, step: Step) -> Result<(), StoreError> {
        let time = {
            let mut taken = self.taken.lock().unwrap();
            let time = taken.entry(step).or_default();
            *time += 1;
            *time
        };
        match self.fails.lock().unwrap().get(&step) {
            Some(from) if time >= *from => Err(StoreError::Server {
                doing: format!("{step:?}"),
                address: "the told store".to_owned(),
                cause: "it was told to fail".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

/// Opens stores that fail as told.
pub(crate) struct Teller {
    kind: StoreKind,
    pub(crate) told: Arc<Told>,
}

impl Teller {
    /// A store of this name. It lives as long as the test program, as the list of stores does.
    pub(crate) fn new(name: &'static str) -> &'static Self {
        Self::of(StoreKind { name, schemes: Box::leak(Box::new([name])), ..KIND })
    }

    /// The same with this row of the matrix.
    pub(crate) fn of(kind: StoreKind) -> &'static Self {
        Box::leak(Box::new(Self { kind, told: Arc::default() }))
    }

    pub(crate) fn target(&'static self) -> Target {
        Target { opener: self, address: None }
    }

    /// Has all its addresses be of one server with these faults.
    pub(crate) fn serve(&self, faults: Faults) -> Arc<Memory> {
        let memory = Arc::new(Memory::with(faults));
        *self.told.server.lock().unwrap() = Some(Arc::clone(&memory));
        memory
    }

    /// The store as a server of the user's own.
    pub(crate) fn at(&'static self, host: &str) -> Target {
        let address = Address { host: host.to_owned(), ..Address::loopback(self.kind.name, None, 1, "") };
        Target { opener: self, address: Some(address) }
    }
}

impl Opener for Teller {
    fn kind(&self) -> &StoreKind {
        &self.kind
    }

    fn open<'a>(
        &'a self,
        address: &'a Address,
        _: OpenOptions<'a>,
    ) -> Task<'a, Result<Box<dyn Store>, StoreError>> {
        Box::pin(async move {
            self.told.take(Step::Open)?;
            *self.told.given.lock().unwrap() = Some(address.connect_timeout);
            if self.told.hangs.load(SeqCst) {
                std::future::pending::<()>().await;
            }
            let memory = self.told.server.lock().unwrap().clone().unwrap_or_default();
            let opened = ToldStore { told: Arc::clone(&self.told), memory };
            Ok(Box::new(opened) as Box<dyn Store>)
        })
    }
}

struct ToldStore {
    told: Arc<Told>,
    memory: Arc<Memory>,
}

impl Store for ToldStore {
    fn effective(&self) -> Task<'_, Result<EffectiveSettings, StoreError>> {
        Box::pin(async move {
            self.told.take(Step::Effective)?;
            let version = self.told.version.load(SeqCst).to_string();
            let read = self.memory.effective().await?;
            let durability = self.told.durability.lock().unwrap().map_or(read.durability, Into::into);
            Ok(EffectiveSettings { version, durability, ..read })
        })
    }

    fn identity(&self) -> Task<'_, Result<Option<Identity>, StoreError>> {
        Box::pin(async { Ok(self.told.identity.lock().unwrap().clone()) })
    }

    fn owner<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<Owner, StoreError>> {
        Box::pin(async move {
            self.told.take(Step::Owner)?;
            let said = self.told.owner.lock().unwrap().clone();
            match said {
                Some(owner) => Ok(owner),
                None => self.memory.owner(namespace).await,
            }
        })
    }

    fn create<'a>(&'a self, namespace: &'a str, run: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.told.take(Step::Create)?;
            self.memory.create(namespace, run).await
        })
    }

    fn remove<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.told.take(Step::Remove)?;
            self.memory.remove(namespace).await
        })
    }

    fn inventory(&self) -> Option<&dyn InventoryStore> {
        Some(self)
    }

    fn records(&self) -> Option<&dyn RecordsStore> {
        self.memory.records()
    }
}

impl InventoryStore for ToldStore {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        lock: Lock,
        stock: &'a Stock,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.told.take(Step::Load)?;
            InventoryStore::load(&*self.memory, place, lock, stock).await
        })
    }

    fn client(&self, place: &Place, lock: Lock, scenario: Scenario) -> ClientTask {
        if self.told.shares.load(SeqCst) {
            return inventory::task(SharedSession, scenario);
        }
        InventoryStore::client(&*self.memory, place, lock, scenario)
    }

    fn stock<'a>(&'a self, place: &'a Place) -> Task<'a, Result<Vec<StockRow>, StoreError>> {
        Box::pin(async move {
            self.told.take(Step::ReadBack)?;
            self.memory.stock(place).await
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.told.take(Step::Unload)?;
            InventoryStore::unload(&*self.memory, place).await
        })
    }
}

/// A session that a pooler shares: it takes nothing from anywhere, says that it did, and at the end is another.
struct SharedSession;

impl Connector for SharedSession {
    type Connection = Self;

    async fn connect(&self) -> Result<Self, String> {
        Ok(Self)
    }
}

impl Operations for SharedSession {
    async fn capture(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Attempt {
        tokio::time::sleep(Duration::from_millis(1)).await;
        taken.clear();
        taken.push(capture.withdrawal(0, capture.units));
        Attempt::Ok
    }

    async fn release(&mut self, _: &Release) -> Attempt {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Attempt::Ok
    }

    async fn check(&mut self) -> Result<(), String> {
        Err("another session of the server answers".to_owned())
    }
}

/// A plan of short trials of the inventory, with lock native at durability none.
pub(crate) fn plan(trials: u32) -> Plan {
    Plan {
        locks: vec![Lock::Native],
        durability: vec![Durability::None],
        clients: vec![2],
        duration: Span(Duration::from_millis(60)),
        warmup: Span(Duration::ZERO),
        trials,
        ..Plan::of("inventory")
    }
}

/// A lab of the test's own, and what was last written of its runs.
pub(crate) struct Bench {
    folder: TempDir,
    pub(crate) written: Mutex<Option<RunResult>>,
    /// Whether the result can be written.
    pub(crate) full: bool,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, written: Mutex::default(), full: false }
    }

    pub(crate) fn lab(&self) -> Lab {
        Lab::at(self.folder.path()).unwrap()
    }

    /// Runs a plan on these stores, or goes on with the run that has begun.
    pub(crate) fn run(
        &self,
        plan: &Plan,
        targets: Vec<Target>,
        begun: Option<RunResult>,
        observer: &mut dyn Observer,
        interrupt: &Interrupt,
    ) -> Result<Finished, Failure> {
        let grid = Grid::of(plan, &targets)?;
        let id = begun.as_ref().map_or_else(|| "run-1".to_owned(), |begun| begun.run.clone());
        let order = Order { id, plan: plan.clone(), targets, lock_service: None, grid, begun };
        let write = |result: &RunResult| {
            if self.full {
                return Err(Failure::Other("the disk is full".to_owned()));
            }
            *self.written.lock().unwrap() = Some(result.clone());
            Ok(())
        };
        let watcher = Watcher { observer, interrupt };
        let environment = Environment {
            lab: self.lab(),
            null: &Null,
            watcher,
            worker: &no_worker,
            host: std::path::Path::new("false"),
            token: None,
            write: &write,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(order, environment))
    }
}

/// Nothing here drives clients in processes of their own.
fn no_worker() -> std::process::Command {
    std::process::Command::new("false")
}
