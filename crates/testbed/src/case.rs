//! A trial of the inventory workload that a test runs step by step.

use std::{sync::Arc, time::Duration};

use acidtest_engine::{Extent, Load, Measurement, OnRefused};
use acidtest_model::{Lock, StoreError};
use acidtest_workloads::{
    Audit, ClientTask, Place, Store,
    inventory::{self, InventoryStore, OPERATIONS, Parameters, Replay, Scenario, Sequence, Stock, StockRow},
};

use crate::{private::CONNECT, steps, steps::Steps, wait};

/// The seed of every random draw in the checks, so that a failure can be repeated.
pub const SEED: u64 = 7;
/// The namespace that trials are loaded into, unless a test names another.
pub const NAMESPACE: &str = "acidtest";

/// One trial of the inventory, which a test loads, drives and audits.
#[derive(Clone, Debug)]
pub struct InventoryRun {
    /// The lock mode that the stock is loaded for and the clients work in.
    pub lock: Lock,
    /// The namespace and the number of the trial.
    pub place: Place,
    /// The initial stock: few tuples, so that captures take units from several.
    pub stock: Arc<Stock>,
    /// The clients' operations, and the ledger that they keep.
    pub scenario: Scenario,
}

impl InventoryRun {
    /// A trial of operations that are drawn from [`SEED`].
    #[must_use]
    pub fn random(lock: Lock, trial: u32) -> Self {
        Self::new(lock, trial, None)
    }

    /// A trial that replays a sequence of `length` operations.
    #[must_use]
    pub fn replay(lock: Lock, trial: u32, length: usize) -> Self {
        Self::new(lock, trial, Some(length))
    }

    fn new(lock: Lock, trial: u32, length: Option<usize>) -> Self {
        let parameters = Parameters { items: 24, skus: 2, ..Parameters::default() };
        let stock = Arc::new(Stock::draw(&parameters, SEED));
        let sequence = length.map(|length| Arc::new(Sequence::draw(&parameters, &stock, length, SEED)));
        let scenario = Scenario::new(&parameters, Arc::clone(&stock), sequence, SEED);
        Self { lock, place: Place { namespace: NAMESPACE.to_owned(), trial }, stock, scenario }
    }

    /// The same trial in another namespace.
    #[must_use]
    pub fn within(self, namespace: &str) -> Self {
        Self { place: Place { namespace: namespace.to_owned(), ..self.place }, ..self }
    }

    /// Loads the stock. Panics if the store fails.
    pub fn load(&self, store: &impl Store) {
        wait(port(store).load(&self.place, self.lock, &self.stock)).unwrap();
    }

    /// Runs this number of clients until the load's end. A blocking store's clients have a thread each.
    pub fn drive(&self, store: &impl Store, load: &Load, clients: usize) -> Measurement {
        steps::run(store, load, self.tasks(store, clients))
    }

    fn tasks(&self, store: &impl Store, clients: usize) -> Vec<ClientTask> {
        let client = |_| port(store).client(&self.place, self.lock, self.scenario.clone());
        (0..clients).map(client).collect()
    }

    /// The stock as it is read back, sorted by key.
    pub fn held(&self, store: &impl Store) -> Result<Vec<StockRow>, StoreError> {
        let mut held = wait(port(store).stock(&self.place))?;
        held.sort_unstable_by_key(|tuple| tuple.key);
        Ok(held)
    }

    /// The stock as it was loaded, sorted by key.
    #[must_use]
    pub fn initial(&self) -> Vec<StockRow> {
        self.stock.items.iter().map(|item| StockRow { key: item.key(), count: item.initial.into() }).collect()
    }

    /// Audits the acknowledged operations against the stock that is read back. `in_order`: whether a single client
    /// did all operations, so that they took effect in the order of the sequence.
    pub fn audit(&self, store: &impl Store, in_order: bool) -> Audit {
        let replay = self.scenario.sequence.as_deref().map(|sequence| Replay { sequence, in_order });
        inventory::audit(&self.stock, &self.scenario.ledger, self.held(store), replay)
    }

    /// Removes the trial's data.
    pub fn unload(&self, store: &impl Store) {
        wait(port(store).unload(&self.place)).unwrap();
    }
}

impl Steps for InventoryRun {
    type State = Vec<StockRow>;

    fn lock(&self) -> Lock {
        self.lock
    }

    fn load(&self, store: &impl Store) {
        Self::load(self, store);
    }

    fn drive(&self, store: &impl Store, load: &Load, clients: usize) -> Measurement {
        Self::drive(self, store, load, clients)
    }

    fn state(&self, store: &impl Store) -> Result<Vec<StockRow>, StoreError> {
        self.held(store)
    }

    fn initial(&self) -> Vec<StockRow> {
        Self::initial(self)
    }
}

fn port(store: &impl Store) -> &dyn InventoryStore {
    store.inventory().unwrap()
}

/// A closed loop for this many milliseconds. Clients give up a lost server after one second, but wait five minutes
/// for a late answer.
#[must_use]
pub fn for_time(millis: u64) -> Load {
    let extent = Extent::Time(Duration::from_millis(millis));
    let (patience, timeout) = (Duration::from_secs(1), Duration::from_mins(5));
    let closed = Load::closed(OPERATIONS, extent);
    Load { patience, timeout, connect_timeout: CONNECT, seed: SEED, ..closed }
}

/// A closed loop of `count` operations, however long they take.
#[must_use]
pub fn for_operations(count: u64) -> Load {
    Load { extent: Extent::Operations(count), ..for_time(0) }
}

/// A closed loop to the end of a sequence. An operation that is refused is retried after 1 ms until it succeeds.
#[must_use]
pub fn to_the_end() -> Load {
    let on_refused = OnRefused::Retry(Duration::from_millis(1));
    Load { on_refused, ..for_operations(u64::MAX) }
}
