//! The inventory workload in memory.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use acidtest_model::{Lock, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, Fault, Place,
    inventory::{
        self, Capture, Connector, InventoryStore, Operations, Release, Scenario, Stock, StockRow, Withdrawal,
        plan_capture,
    },
};
use rand::RngExt;
use tokio::time::Instant;

use crate::{
    Bug, LATER, Memory, answered,
    crash::{Forgotten, Journal},
    faults::Plant,
    gone,
    sides::{Replicated, Sides},
    witness::Inventory as Witness,
    world::{Link, World, locked},
};

type Group = (u32, u8, u8);

#[derive(Debug)]
pub(crate) struct Table {
    state: Sides<State>,
    latches: BTreeMap<Group, tokio::sync::Mutex<()>>,
    witness: Mutex<Witness>,
    /// Violations that an audit must see, counted when the final stock was read last: a kill since then has nothing to do with them.
    shown: AtomicU64,
}

#[derive(Clone, Debug, Default)]
struct State {
    bins: BTreeMap<Group, Bin>,
    /// Changes that become visible at a later time, earliest first.
    later: VecDeque<DelayedWrite>,
    /// What was added to tuples since the last kill.
    journal: Option<Journal<Vec<(Withdrawal, i64)>>>,
}

#[derive(Clone, Debug)]
struct DelayedWrite {
    due: Instant,
    withdrawals: Vec<Withdrawal>,
    sign: i64,
    /// Whether a capture is applied only if the units are still there when it is due, as a correct store does. A
    /// bug applies it regardless.
    decided_then: bool,
}

/// The tuples of one (sku, condition, source), ascending by warehouse.
#[derive(Clone, Debug, Default)]
struct Bin {
    version: u64,
    counts: Vec<(u8, i64)>,
}

fn group(withdrawal: &Withdrawal) -> Group {
    (withdrawal.sku, withdrawal.condition, withdrawal.source)
}

impl Replicated for State {
    type Write = Vec<(Withdrawal, i64)>;

    fn journal(&mut self) -> Option<&mut Journal<Vec<(Withdrawal, i64)>>> {
        self.journal.as_mut()
    }

    fn forget(&mut self) {
        let forgotten = self.journal.as_mut().map(|journal| journal.forgotten(Vec::len));
        for forgotten in forgotten.into_iter().flatten() {
            let whole = matches!(forgotten, Forgotten::Whole(_));
            let (Forgotten::Whole(added) | Forgotten::Half(added)) = forgotten;
            let parts = if whole { added.len() } else { added.len() / 2 };
            for (tuple, units) in &added[..parts] {
                self.change(tuple, -units);
            }
        }
    }
}

impl State {
    /// Adds units to a tuple.
    fn change(&mut self, tuple: &Withdrawal, units: i64) {
        let bin = self.bins.entry(group(tuple)).or_default();
        bin.version += 1;
        let count = bin.counts.iter_mut().find(|(warehouse, _)| *warehouse == tuple.warehouse);
        if let Some((_, count)) = count {
            *count += units;
        }
    }

    /// Keeps in mind what a connection has added.
    fn note(&mut self, connection: u64, added: impl Iterator<Item = (Withdrawal, i64)>) {
        if let Some(journal) = &mut self.journal {
            journal.note(connection, added.collect());
        }
    }

    /// Applies the delayed changes that are due by now, and forgets what a kill has cost.
    fn settle(&mut self) {
        self.forget();
        while self.later.front().is_some_and(|change| change.due <= Instant::now()) {
            if let Some(change) = self.later.pop_front()
                && (!change.decided_then || change.sign > 0 || self.has(&change.withdrawals))
            {
                self.add(&change.withdrawals, change.sign, 0);
            }
        }
    }

    /// A copy of the group's tuples, after the changes that are due by now; empty if there is no such group.
    fn bin(&mut self, key: Group) -> Bin {
        self.settle();
        self.bins.get(&key).cloned().unwrap_or_default()
    }

    /// The count of every tuple in units, after the changes that are due by now.
    fn held(&mut self) -> Vec<StockRow> {
        self.settle();
        let tuples = |(&(sku, condition, source), bin): (&Group, &Bin)| {
            let held = |&(warehouse, count): &(u8, i64)| StockRow {
                key: (sku, condition, source, warehouse),
                count,
            };
            bin.counts.iter().map(held).collect::<Vec<_>>()
        };
        self.bins.iter().flat_map(tuples).collect()
    }

    fn has(&self, withdrawals: &[Withdrawal]) -> bool {
        withdrawals.iter().all(|withdrawal| {
            self.bins.get(&group(withdrawal)).is_some_and(|bin| {
                bin.counts.iter().any(|&(warehouse, count)| {
                    warehouse == withdrawal.warehouse && count >= i64::from(withdrawal.count)
                })
            })
        })
    }

    /// Adds each withdrawal's count times `sign`: -1 to capture, 1 to release, twice that for a write applied twice.
    fn add(&mut self, withdrawals: &[Withdrawal], sign: i64, connection: u64) {
        let units = |withdrawal: &Withdrawal| sign * i64::from(withdrawal.count);
        for withdrawal in withdrawals {
            self.change(withdrawal, units(withdrawal));
        }
        self.note(connection, withdrawals.iter().map(|withdrawal| (*withdrawal, units(withdrawal))));
    }

    /// Sets each withdrawal's tuple to the count in an earlier reading less the units taken, whatever the count is by
    /// now: without a lock, another client's write in between is lost.
    fn set(&mut self, withdrawals: &[Withdrawal], read: &Bin, connection: u64) {
        let of = |bin: &Bin, tuple: &Withdrawal| {
            let count = bin.counts.iter().find(|(warehouse, _)| *warehouse == tuple.warehouse);
            count.map_or(0, |(_, count)| *count)
        };
        let mut added = Vec::new();
        for withdrawal in withdrawals {
            let now = self.bins.get(&group(withdrawal)).map_or(0, |bin| of(bin, withdrawal));
            let units = of(read, withdrawal) - i64::from(withdrawal.count) - now;
            self.change(withdrawal, units);
            added.push((*withdrawal, units));
        }
        self.note(connection, added.into_iter());
    }
}

impl InventoryStore for Memory {
    fn load<'a>(&'a self, place: &'a Place, _: Lock, stock: &'a Stock) -> Task<'a, Result<(), StoreError>> {
        let mut state = State { journal: Some(Journal::new(&self.world)), ..State::default() };
        for item in &stock.items {
            let bin = state.bins.entry((item.sku, item.condition, item.source)).or_default();
            bin.counts.push((item.warehouse, item.initial.into()));
        }
        let latches = state.bins.keys().map(|key| (*key, tokio::sync::Mutex::default())).collect();
        let witness = Mutex::new(Witness::new(stock, self.world.exact));
        let table = Arc::new(Table {
            state: Sides::new(&self.world, state),
            latches,
            witness,
            shown: AtomicU64::new(0),
        });
        locked(&self.tables).insert(place.object("stock"), table);
        Box::pin(async { Ok(()) })
    }

    fn client(&self, place: &Place, lock: Lock, scenario: Scenario) -> ClientTask {
        let table = locked(&self.tables).get(&place.object("stock")).cloned();
        inventory::task(MemoryConnector { table, lock, world: Arc::clone(&self.world) }, scenario)
    }

    fn stock<'a>(&'a self, place: &'a Place) -> Task<'a, Result<Vec<StockRow>, StoreError>> {
        let table = locked(&self.tables).get(&place.object("stock")).cloned();
        Box::pin(async move {
            let doing = "reading the final stock";
            let table = table.ok_or_else(|| gone(doing, "it was never loaded"))?;
            self.is_there(doing)?;
            let held = table.state.newest().held();
            table.look(&held);
            Ok(held)
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        locked(&self.tables).remove(&place.object("stock"));
        Box::pin(async { Ok(()) })
    }
}

impl Table {
    /// The number of violations that an audit of this trial must see.
    pub(crate) fn shown(&self) -> u64 {
        self.shown.load(Relaxed)
    }

    /// Counts the violations in the final stock.
    fn look(&self, held: &[StockRow]) {
        let shown = locked(&self.witness).shown(held.iter().map(|StockRow { key, count }| (*key, *count)));
        self.shown.store(shown, Relaxed);
    }
}

struct MemoryConnector {
    table: Option<Arc<Table>>,
    lock: Lock,
    world: Arc<World>,
}

/// A client's connection: the simulated network and the store behind it.
struct Connection {
    link: Link,
    store: Client,
}

/// The store's side of one client's connection.
struct Client {
    table: Arc<Table>,
    lock: Lock,
    plant: Plant,
    /// The connection's number.
    connection: u64,
    /// The number of the leader that answers.
    leader: u64,
}

/// An operation whose answer has not come. Dropped without one, it may or may not have been applied, so that the
/// witness makes no more claims about its group.
struct Pending {
    table: Arc<Table>,
    group: Group,
    ended: bool,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.ended {
            let (sku, condition, source) = self.group;
            locked(&self.table.witness).doubt(sku, condition, source);
        }
    }
}

impl Connector for MemoryConnector {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        let table = self.table.clone().ok_or("the stock was never loaded")?;
        let plant = || Plant::new(&self.world, self.world.faults);
        let link = Link::open(plant())?;
        let (lock, connection, leader) = (self.lock, link.number, link.leader());
        Ok(Connection { link, store: Client { table, lock, plant: plant(), connection, leader } })
    }
}

impl Connection {
    fn pending(&self, group: Group) -> Pending {
        Pending { table: Arc::clone(&self.store.table), group, ended: false }
    }
}

impl Operations for Connection {
    async fn capture(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Attempt {
        let mut pending = self.pending((capture.sku, capture.condition, capture.source));
        let attempt = match self.link.send_change().await {
            Ok(()) => {
                self.store.leader = self.link.leader();
                let attempt = self.store.capture(capture, taken).await;
                self.link.answer_attempt(attempt).await
            }
            Err(attempt) => attempt,
        };
        self.link.note(|| format!("{capture:?}: {attempt:?}, {taken:?}"));
        pending.ended = !matches!(attempt, Attempt::Unknown(_));
        if attempt == Attempt::Ok {
            locked(&pending.table.witness).captured(capture, taken);
        }
        attempt
    }

    async fn release(&mut self, release: &Release) -> Attempt {
        let mut pending = self.pending((release.sku, release.condition, release.source));
        locked(&pending.table.witness).sent(release);
        let attempt = match self.link.send_change().await {
            Ok(()) => {
                self.store.leader = self.link.leader();
                let attempt = self.store.release(release).await;
                self.link.answer_attempt(attempt).await
            }
            Err(attempt) => attempt,
        };
        self.link.note(|| format!("{release:?}: {attempt:?}"));
        pending.ended = !matches!(attempt, Attempt::Unknown(_));
        if attempt == Attempt::Ok {
            locked(&pending.table.witness).released(release);
        }
        attempt
    }
}

impl Client {
    /// Applies a change, with the planted faults. `None` means that the client gets no answer.
    fn apply(&mut self, state: &mut State, withdrawals: &[Withdrawal], sign: i64) -> Option<Attempt> {
        let plant = &mut self.plant;
        let unanswered = plant.is_unanswered();
        let (drops, hides) = (plant.strikes(Bug::DropWrite), plant.strikes(Bug::HideCommit));
        let (twice, late) = (plant.strikes(Bug::ApplyTwice), plant.strikes(Bug::LateApply));
        let later = |decided_then| DelayedWrite {
            due: Instant::now() + LATER,
            withdrawals: withdrawals.to_vec(),
            sign,
            decided_then,
        };
        if unanswered {
            // as with a slow network: applied, applied later, or not applied, and no client is told which
            match plant.rng.random_range(0..3) {
                0 => state.add(withdrawals, sign, self.connection),
                1 => state.later.push_back(later(true)),
                _ => {}
            }
            return None;
        }
        if hides || late {
            state.later.push_back(later(false));
        } else if !drops {
            state.add(withdrawals, if twice { 2 * sign } else { sign }, self.connection);
        }
        Some(if late { Attempt::Failed(Fault::answered("planted: late")) } else { Attempt::Ok })
    }

    /// Puts the withdrawals that are needed into `taken`, from the counts that were read. Returns false if they do not
    /// suffice, so that the capture is refused.
    fn decide(&mut self, capture: &Capture, bin: &Bin, taken: &mut Vec<Withdrawal>) -> bool {
        let enough = plan_capture(capture, bin.counts.iter().copied(), taken);
        if !enough && self.plant.strikes(Bug::Oversell) {
            let warehouse = bin.counts.first().map_or(1, |(warehouse, _)| *warehouse);
            taken.push(capture.withdrawal(warehouse, capture.units));
            return true;
        }
        if enough && self.plant.strikes(Bug::Tear) {
            // takes one unit less than it acknowledges
            if let Some(withdrawal) = taken.last_mut() {
                withdrawal.count -= 1;
            }
        }
        enough
    }

    fn read(&self, key: Group) -> Bin {
        self.table.state.at(self.leader).bin(key)
    }

    /// Reads, decides and writes in one critical section. A conflict if a version is given and the group has
    /// another one by now.
    fn capture_at_once(
        &mut self,
        capture: &Capture,
        taken: &mut Vec<Withdrawal>,
        version: Option<u64>,
    ) -> Option<Attempt> {
        let table = Arc::clone(&self.table);
        let mut state = table.state.at(self.leader);
        if !self.plant.world.commits_at(self.leader) {
            // its connection is lost, and nobody is told
            return Some(Attempt::Conflict);
        }
        let bin = state.bin((capture.sku, capture.condition, capture.source));
        if version.is_some_and(|version| version != bin.version) {
            return Some(Attempt::Conflict);
        }
        if !self.decide(capture, &bin, taken) {
            return Some(Attempt::Refused);
        }
        self.apply(&mut state, taken, -1)
    }
}

impl Client {
    async fn capture(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Attempt {
        let key = (capture.sku, capture.condition, capture.source);
        match self.lock {
            Lock::None => {
                let bin = self.read(key);
                if !self.decide(capture, &bin, taken) {
                    return Attempt::Refused;
                }
                self.plant.give_way().await;
                if !self.plant.world.commits_at(self.leader) {
                    return Attempt::Conflict;
                }
                self.table.state.at(self.leader).set(taken, &bin, self.connection);
                Attempt::Ok
            }
            Lock::Soft => {
                let bin = self.read(key);
                self.plant.give_way().await;
                answered(self.capture_at_once(capture, taken, Some(bin.version))).await
            }
            Lock::Hard => {
                let table = Arc::clone(&self.table);
                let Some(latch) = table.latches.get(&key) else { return Attempt::Refused };
                let _held = latch.lock().await;
                self.plant.give_way().await;
                answered(self.capture_at_once(capture, taken, None)).await
            }
            Lock::Native => answered(self.capture_at_once(capture, taken, None)).await,
        }
    }

    async fn release(&mut self, release: &Release) -> Attempt {
        let Release { sku, warehouse, condition, source, units } = *release;
        let withdrawal = Withdrawal { sku, warehouse, condition, source, count: units };
        let done = {
            let table = Arc::clone(&self.table);
            let mut state = table.state.at(self.leader);
            // applies the delayed changes that are due, as every operation does
            state.bin((sku, condition, source));
            self.apply(&mut state, &[withdrawal], 1)
        };
        answered(done).await
    }
}
