//! The parcels workload in memory.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use acidtest_model::{Lock, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, Fault, LoadProgress, Medium, Place, TableSize,
    parcels::{
        self, Connector, Found, Inserted, Loading, MOST, Operations, Parcel, ParcelsStore, Requirements,
        Scan, ScanVisitor, Scenario, StoredScan,
    },
};
use rand::RngExt;
use tokio::time::Instant;

use crate::{
    Bug, LATER, Memory, answered,
    crash::{Forgotten, Journal},
    faults::Plant,
    gone,
    sides::{Replicated, Side, Sides},
    witness::{Known, Parcels as Witness},
    world::{Link, World, locked},
};

/// Number of latches for the hard lock mode. Each guards the parcels whose numbers fall on it.
const LATCHES: u64 = 64;

/// The scans of one trial, or of several in turn that only read them.
#[derive(Debug)]
pub(crate) struct Table {
    state: Sides<State>,
    latches: Vec<tokio::sync::Mutex<()>>,
    witness: Mutex<Witness>,
    /// Violations that an audit must see, counted when the final scans were read last: a kill since then has nothing to do with them.
    shown: AtomicU64,
}

#[derive(Clone, Debug)]
struct State {
    /// The rows of each parcel, in the order of their coming.
    parcels: BTreeMap<u64, Vec<Row>>,
    /// The parcel of each id.
    ids: BTreeMap<u64, u64>,
    last_id: u64,
    later: VecDeque<(Instant, Later)>,
    /// The ids of what was written since the last kill.
    journal: Journal<Vec<u64>>,
}

/// What is done at a later time.
#[derive(Clone, Debug)]
enum Later {
    /// These rows come to be seen.
    Rows(Vec<Row>),
    /// These scans are counted and inserted.
    Scans(Vec<Scan>),
}

/// A row: its scan, and whether a planted bug has torn it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) scan: Scan,
    pub(crate) id: u64,
    pub(crate) count: u64,
    pub(crate) is_torn: bool,
}

impl Row {
    fn stored(&self) -> StoredScan {
        let Self { scan, id, count, is_torn } = self;
        let code = if *is_torn { "?????" } else { scan.code() };
        let texts = [scan.hash(), scan.kind(), scan.machine(), code].map(str::as_bytes);
        StoredScan::new(Some(*id), Some(*count), true, texts)
    }
}

impl Table {
    /// The locked state, after all delayed operations that are due by now, and a kill's damage.
    fn settled(&self) -> Side<'_, State> {
        self.settled_at(u64::MAX)
    }

    /// The same as the leader of this number has it.
    fn settled_at(&self, leader: u64) -> Side<'_, State> {
        let mut side = self.state.at(leader);
        let state = &mut *side;
        state.forget();
        while state.later.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            let Some((_, later)) = state.later.pop_front() else { break };
            let mut ids = Vec::new();
            match later {
                Later::Rows(rows) => {
                    for row in rows {
                        ids.push(row.id);
                        state.store(row);
                    }
                }
                Later::Scans(scans) => {
                    for scan in scans {
                        if let Some(count) = state.next(&scan) {
                            let row = state.row(scan, count);
                            ids.push(row.id);
                            state.store(row);
                        }
                    }
                }
            }
            state.journal.note(0, ids);
        }
        side
    }

    /// The number of violations that an audit of this trial must see.
    pub(crate) fn shown(&self) -> u64 {
        self.shown.load(Relaxed)
    }

    /// Counts the violations in the final scans.
    fn look(&self, state: &State) {
        let shown = locked(&self.witness).shown(state.parcels.values().flatten());
        self.shown.store(shown, Relaxed);
    }
}

impl Replicated for State {
    type Write = Vec<u64>;

    fn journal(&mut self) -> Option<&mut Journal<Vec<u64>>> {
        Some(&mut self.journal)
    }

    fn forget(&mut self) {
        for forgotten in self.journal.forgotten(Vec::len) {
            let ids = match forgotten {
                Forgotten::Whole(ids) => ids,
                Forgotten::Half(mut ids) => ids.split_off(ids.len() / 2),
            };
            for id in ids {
                let Some(parcel) = self.ids.remove(&id) else { continue };
                if let Some(rows) = self.parcels.get_mut(&parcel) {
                    rows.retain(|row| row.id != id);
                }
            }
            // as a counter does that is begun from what is there: what was lost leaves its ids to others
            self.last_id = self.ids.keys().next_back().copied().unwrap_or(0);
        }
    }
}

impl State {
    fn rows(&self, parcel: u64) -> &[Row] {
        self.parcels.get(&parcel).map_or(&[], Vec::as_slice)
    }

    /// The next count of the scan's parcel; none if it has seven scans.
    fn next(&self, scan: &Scan) -> Option<u64> {
        let there = self.rows(scan.parcel()).len() as u64;
        (there < u64::from(MOST)).then_some(there + 1)
    }

    /// The row of a scan, with the next id.
    fn row(&mut self, scan: Scan, count: u64) -> Row {
        self.last_id += 1;
        Row { scan, id: self.last_id, count, is_torn: false }
    }

    fn store(&mut self, row: Row) {
        self.ids.insert(row.id, row.scan.parcel());
        self.parcels.entry(row.scan.parcel()).or_default().push(row);
    }
}

impl Memory {
    pub(crate) fn parcels_of(&self, place: &Place) -> Option<Arc<Table>> {
        locked(&self.parcels).get(&place.object("scans")).cloned()
    }
}

impl ParcelsStore for Memory {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        _: &'a Requirements,
        loading: &'a Loading,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        let mut state = State {
            parcels: BTreeMap::new(),
            ids: BTreeMap::new(),
            last_id: 0,
            later: VecDeque::new(),
            journal: Journal::new(&self.world),
        };
        for row in loading.rows() {
            let row = state.row(row.scan, row.count.into());
            state.store(row);
            loaded.add(1);
        }
        let witness = Mutex::new(Witness::over(state.parcels.values().flatten(), self.world.exact));
        let latches = (0..LATCHES).map(|_| tokio::sync::Mutex::default()).collect();
        let table = Arc::new(Table {
            state: Sides::new(&self.world, state),
            latches,
            witness,
            shown: AtomicU64::new(0),
        });
        locked(&self.parcels).insert(place.object("scans"), table);
        Box::pin(async { Ok(()) })
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        let connector = MemoryConnector {
            table: self.parcels_of(place),
            lock: wanted.lock,
            world: Arc::clone(&self.world),
        };
        parcels::task(connector, scenario)
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        each: &'a mut ScanVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let doing = "reading the final scans";
            let table = self.parcels_of(place).ok_or_else(|| gone(doing, "they were never loaded"))?;
            self.is_there(doing)?;
            let state = table.settled();
            table.look(&state);
            state.parcels.values().flatten().for_each(|row| each(row.stored()));
            Ok(())
        })
    }

    fn size<'a>(&'a self, place: &'a Place) -> Task<'a, Result<TableSize, StoreError>> {
        Box::pin(async move {
            let doing = "asking how large the table is";
            let table = self.parcels_of(place).ok_or_else(|| gone(doing, "they were never loaded"))?;
            let state = table.settled();
            let rows = state.parcels.values().map(Vec::len).sum::<usize>() as u64;
            let of = |bytes: usize| bytes as u64 * rows;
            Ok(TableSize {
                rows,
                data_bytes: Some(of(size_of::<Row>())),
                index_bytes: Some(of(size_of::<(u64, u64)>())),
                medium: Medium::Memory,
                source: "the sizes of its types".to_owned(),
            })
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        locked(&self.parcels).remove(&place.object("scans"));
        Box::pin(async { Ok(()) })
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
    table: Arc<Table>,
    lock: Lock,
    plant: Plant,
}

impl Connector for MemoryConnector {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        let table = self.table.clone().ok_or("the scans were never loaded")?;
        let plant = || Plant::new(&self.world, self.world.faults);
        Ok(Connection { link: Link::open(plant())?, table, lock: self.lock, plant: plant() })
    }
}

impl Connection {
    /// Counts and inserts. Under the native lock all in one critical section; in the other modes other clients may run in
    /// between.
    async fn count_and_insert(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Attempt {
        let table = Arc::clone(&self.table);
        let mut held = Vec::new();
        if self.lock == Lock::Hard {
            let mut latches: Vec<usize> =
                scans.iter().filter_map(|scan| usize::try_from(scan.parcel() % LATCHES).ok()).collect();
            latches.sort_unstable();
            latches.dedup();
            for latch in latches {
                held.push(table.latches[latch].lock().await);
            }
        }
        let count = |state: &State| scans.iter().map(|scan| state.next(scan)).collect::<Vec<_>>();
        let leader = self.link.leader();
        let mut counts = count(&table.settled_at(leader));
        if self.lock != Lock::Native {
            self.plant.give_way().await;
        }
        let done = {
            let mut state = table.settled_at(leader);
            if !self.plant.world.commits_at(leader) {
                // its connection is lost, and nobody is told
                return Attempt::Conflict;
            }
            match self.lock {
                Lock::Native => counts = count(&state),
                Lock::Soft if counts != count(&state) => return Attempt::Conflict,
                _ => {}
            }
            self.insert_counted(&mut state, scans, counts, inserted)
        };
        answered(done).await
    }

    /// Inserts scans with their counts, or refuses those that have none, with the planted faults. `None` means that the
    /// client gets no answer.
    fn insert_counted(
        &mut self,
        state: &mut State,
        scans: &[Scan],
        counts: Vec<Option<u64>>,
        inserted: &mut Inserted,
    ) -> Option<Attempt> {
        let plant = &mut self.plant;
        let due = Instant::now() + LATER;
        if plant.is_unanswered() {
            // as with a slow network: applied, applied later, or not applied, and no client is told which; one that is
            // applied later holds no latch, so that under the hard lock it would break in on one that does
            match plant.rng.random_range(0..3) {
                0 => _ = self.apply(state, scans, counts, inserted),
                1 if self.lock != Lock::Hard => state.later.push_back((due, Later::Scans(scans.to_vec()))),
                _ => {}
            }
            return None;
        }
        let failed = |why: &str| Some(Attempt::Failed(Fault::answered(why)));
        if plant.strikes(Bug::LateApply) {
            state.later.push_back((due, Later::Scans(scans.to_vec())));
            return failed("planted: late");
        }
        let keeps = plant.strikes(Bug::KeepInsert);
        let hidden = self.apply(state, scans, counts, inserted);
        if !hidden.is_empty() {
            state.later.push_back((due, Later::Rows(hidden)));
        }
        if keeps { failed("planted: kept") } else { Some(Attempt::Ok) }
    }

    /// Applies an insert, with the bug that strikes one of its scans. Returns the rows that are to be seen later.
    fn apply(
        &mut self,
        state: &mut State,
        scans: &[Scan],
        counts: Vec<Option<u64>>,
        inserted: &mut Inserted,
    ) -> Vec<Row> {
        let (mut hidden, mut ids) = (Vec::new(), Vec::new());
        for (scan, count) in scans.iter().zip(counts) {
            let plant = &mut self.plant;
            let given = match count {
                Some(_) if plant.strikes(Bug::RefuseEarly) => None,
                None if plant.strikes(Bug::EighthScan) => Some(u64::from(MOST) + 1),
                Some(count @ 2..) if plant.strikes(Bug::RepeatCount) => Some(count - 1),
                Some(count) if count < u64::from(MOST) && plant.strikes(Bug::SkipCount) => Some(count + 1),
                count => count,
            };
            let Some(given) = given else {
                inserted.refused();
                continue;
            };
            let mut row = state.row(scan.clone(), given);
            if plant.has(Bug::RepeatId) && row.id > 1 && plant.strikes(Bug::RepeatId) {
                row.id -= 1;
            }
            row.is_torn = plant.strikes(Bug::Tear);
            let last = state.parcels.get_mut(&scan.parcel()).and_then(|rows| rows.last_mut());
            if let Some(last) = last
                && plant.has(Bug::Overwrite)
                && plant.strikes(Bug::Overwrite)
            {
                (row.id, row.count) = (last.id, last.count);
                *last = row.clone();
                inserted.took(row.id, u8::try_from(row.count).unwrap_or(u8::MAX));
                continue;
            }
            inserted.took(row.id, u8::try_from(row.count).unwrap_or(u8::MAX));
            if plant.strikes(Bug::DropWrite) {
                continue;
            }
            if plant.strikes(Bug::OtherId) {
                state.last_id += 1;
                row.id = state.last_id;
            }
            if plant.strikes(Bug::HideCommit) {
                hidden.push(row);
                continue;
            }
            if plant.strikes(Bug::ApplyTwice) {
                let again = state.row(scan.clone(), given);
                state.store(again);
            }
            if plant.strikes(Bug::MakeUp) {
                let mut made_up = state.row(scan.clone(), given);
                made_up.scan = made_up.scan.as_nobody_sent();
                state.store(made_up);
            }
            ids.push(row.id);
            state.store(row);
        }
        state.journal.note(self.link.number, ids);
        hidden
    }

    /// The rows that a read of these finds, with the planted faults.
    fn read(&mut self, state: &State, rows: impl Iterator<Item = Row>, found: &mut Found) {
        let mut rows: Vec<Row> = rows.collect();
        if !rows.is_empty() && self.plant.strikes(Bug::MissRead) {
            rows.pop();
        }
        if let Some(row) = rows.first_mut()
            && self.plant.strikes(Bug::OtherRow)
        {
            let mut others = state.parcels.values().flatten();
            if let Some(other) = others.find(|other| other.scan.parcel() != row.scan.parcel()) {
                *row = other.clone();
            }
        }
        for row in rows {
            found.take(row.stored());
        }
    }
}

/// An insert whose answer has not come. Dropped without one, it may or may not have been applied.
struct Pending<'a> {
    table: Arc<Table>,
    scans: &'a [Scan],
}

impl Pending<'_> {
    /// Tells the witness the outcome that the client is told.
    fn end(self, attempt: &Attempt, inserted: &Inserted) {
        let mut witness = locked(&self.table.witness);
        match attempt {
            Attempt::Ok => {
                for (scan, given) in self.scans.iter().zip(inserted.each()) {
                    match given {
                        Some((id, count)) => witness.given(scan, *id, (*count).into()),
                        None => witness.refused(scan),
                    }
                }
            }
            Attempt::Refused | Attempt::Conflict | Attempt::Failed(_) => {
                self.scans.iter().for_each(|scan| witness.failed(scan));
            }
            Attempt::Unknown(_) => {}
        }
    }
}

impl Operations for Connection {
    async fn insert(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Attempt {
        // until it is answered
        for scan in scans {
            locked(&self.table.witness).doubt(scan);
        }
        let pending = Pending { table: Arc::clone(&self.table), scans };
        let attempt = match self.link.send_change().await {
            Ok(()) => {
                let attempt = self.count_and_insert(scans, inserted).await;
                self.link.answer_attempt(attempt).await
            }
            Err(attempt) => attempt,
        };
        self.link.note(|| format!("{attempt:?}: {scans:?} {:?}", inserted.each()));
        pending.end(&attempt, inserted);
        attempt
    }

    async fn by_hash(&mut self, parcel: &Parcel, found: &mut Found) -> Attempt {
        let known = locked(&self.table.witness).known_of(parcel.number);
        let find = |state: &State| state.rows(parcel.number).to_vec();
        self.find(known, find, found).await
    }

    async fn by_id(&mut self, id: u64, found: &mut Found) -> Attempt {
        let known = locked(&self.table.witness).known_as(id);
        let find = |state: &State| {
            let parcel = state.ids.get(&id).map_or(&[][..], |parcel| state.rows(*parcel));
            parcel.iter().filter(|row| row.id == id).take(1).cloned().collect()
        };
        match self.find(known, find, found).await {
            Attempt::Ok if found.each().is_empty() => Attempt::Refused,
            ended => ended,
        }
    }
}

impl Connection {
    async fn find(
        &mut self,
        known: Known,
        rows: impl FnOnce(&State) -> Vec<Row>,
        found: &mut Found,
    ) -> Attempt {
        if let Err(attempt) = self.link.send().await {
            return attempt;
        }
        {
            let table = Arc::clone(&self.table);
            let state = table.settled_at(self.link.leader());
            let rows = rows(&state);
            self.read(&state, rows.into_iter(), found);
        }
        let done = (!self.plant.is_unanswered()).then_some(Attempt::Ok);
        let attempt = answered(done).await;
        let attempt = self.link.answer_attempt(attempt).await;
        self.link.note(|| format!("{attempt:?}: found {:?}", found.each()));
        if attempt == Attempt::Ok && !self.link.is_doubtful() {
            locked(&self.table.witness).read(&known, found.each());
        }
        attempt
    }
}

#[cfg(test)]
mod tests {
    use acidtest_testbed::{parcels::singles, wait};

    use super::*;
    use crate::Faults;

    #[test]
    fn a_parcel_s_scans_get_its_next_counts_and_an_eighth_is_refused() {
        let store = Memory::with(Faults::default());
        let connect = |place: &Place, wanted: Requirements| MemoryConnector {
            table: store.parcels_of(place),
            lock: wanted.lock,
            world: Arc::clone(&store.world),
        };
        wait(singles(&store, &Lock::ALL, connect));
    }
}
