//! The records in memory.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    slice,
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use acidtest_model::{Isolation, Lock, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, Fault, Loaded, Place,
    records::{
        self, Action, Answer, Connector, Each, Fields, Layout, Operations, RecordsStore, Request, Scenario,
        Wanted, key_name, tag_of,
    },
};
use rand::RngExt;

use crate::{Bug, Faults, LATER, Memory, Plant, answered, locked};

/// Latches that the records share.
const LATCHES: usize = 256;

/// One trial's records.
#[derive(Debug)]
pub(crate) struct Table {
    layout: Layout,
    state: Mutex<State>,
    latches: Vec<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<String, Row>,
    /// Rows that a bug has inserted once more.
    doubles: Vec<(String, Row)>,
    /// Operations that are done later.
    later: VecDeque<(Instant, Vec<Request>)>,
    /// Commits, of which scans must have missed none.
    commits: u64,
    seeds: u64,
}

#[derive(Clone, Debug)]
struct Row {
    version: u64,
    bytes: Arc<[u8]>,
    /// What was there before: what bugs read.
    before: Option<(u64, Arc<[u8]>)>,
}

impl Row {
    fn new(fields: &Fields) -> Self {
        Self { version: 0, bytes: bytes(fields.iter()), before: None }
    }

    /// The row after an update.
    fn updated(&self, fields: &Fields) -> Self {
        let before = Some((self.version, Arc::clone(&self.bytes)));
        Self { version: self.version + 1, bytes: bytes(fields.iter()), before }
    }
}

fn bytes<'a>(fields: impl Iterator<Item = &'a str>) -> Arc<[u8]> {
    fields.flat_map(str::bytes).collect()
}

/// The first half of one row's fields, and the other half of another's.
fn torn(first: &[u8], second: &[u8], layout: &Layout) -> Arc<[u8]> {
    let half = usize::from(layout.fields / 2) * layout.field_bytes as usize;
    first[..half].iter().chain(&second[half..]).copied().collect()
}

/// What an operation has read and is to write.
#[derive(Debug, Default)]
struct Staged {
    /// Of each key that was looked at: the version that was there.
    read: Vec<(String, Option<u64>)>,
    /// Commits that a scan has seen.
    scanned: Option<u64>,
    written: BTreeMap<String, Row>,
    inserted: Vec<String>,
    doubles: Vec<(String, Row)>,
}

impl Staged {
    fn row<'a>(&'a self, state: &'a State, key: &str) -> Option<&'a Row> {
        self.written.get(key).or_else(|| state.rows.get(key))
    }

    /// The row as this operation sees it, which it notes.
    fn look(&mut self, state: &State, key: &str) -> Option<Row> {
        self.read.push((key.to_owned(), state.rows.get(key).map(|row| row.version)));
        self.row(state, key).cloned()
    }

    /// Whether nothing that was looked at has changed since.
    fn is_current(&self, state: &State) -> bool {
        self.read.iter().all(|(key, version)| state.rows.get(key).map(|row| row.version) == *version)
            && self.scanned.is_none_or(|commits| commits == state.commits)
    }
}

impl Table {
    /// The state, with all done that is due.
    fn settled(&self) -> MutexGuard<'_, State> {
        let mut state = locked(&self.state);
        state.settle(&self.layout);
        state
    }
}

impl State {
    /// Does what is due.
    fn settle(&mut self, layout: &Layout) {
        while self.later.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            let Some((_, requests)) = self.later.pop_front() else { return };
            let mut staged = Staged::default();
            let mut plant = Plant::new(Faults::default(), 0);
            let done = requests.iter().try_for_each(|request| {
                step(layout, self, &mut staged, &mut plant, request, &mut Answer::default())
            });
            if done.is_ok() {
                self.commit(staged);
            }
        }
    }

    /// Writes all that is staged. Refused, with nothing changed, if a key that is to be inserted is there.
    fn commit(&mut self, staged: Staged) -> Attempt {
        if staged.inserted.iter().any(|key| self.rows.contains_key(key)) {
            return Attempt::Refused;
        }
        self.commits += u64::from(!staged.written.is_empty());
        self.rows.extend(staged.written);
        self.doubles.extend(staged.doubles);
        Attempt::Ok
    }
}

/// One request against the state, staged. An error is how the operation ends then, rolled back.
fn step(
    layout: &Layout,
    state: &State,
    staged: &mut Staged,
    plant: &mut Plant,
    request: &Request,
    answer: &mut Answer,
) -> Result<(), Attempt> {
    if request.action == Action::Scan {
        staged.scanned = Some(state.commits);
        let length = request.length as usize;
        let mut found: BTreeMap<&String, &Row> =
            state.rows.range(request.key.clone()..).take(length).collect();
        found.extend(staged.written.range(request.key.clone()..));
        for row in found.into_values().take(length) {
            tell(layout, answer, row.version, &row.bytes);
        }
        return Ok(());
    }
    let row = staged.look(state, &request.key);
    match (request.action, row) {
        (Action::Insert, None) => insert(staged, plant, request),
        (Action::Insert, Some(_)) | (_, None) => return Err(Attempt::Refused),
        (Action::Read, Some(row)) => return read(layout, plant, &row, answer),
        (Action::Modify, Some(row)) => {
            tell(layout, answer, row.version, &row.bytes);
            update(layout, staged, plant, request, &row, answer);
        }
        (_, Some(row)) => update(layout, staged, plant, request, &row, answer),
    }
    Ok(())
}

fn tell(layout: &Layout, answer: &mut Answer, version: u64, bytes: &[u8]) {
    answer.record(version, bytes.chunks(layout.field_bytes as usize));
}

fn read(layout: &Layout, plant: &mut Plant, row: &Row, answer: &mut Answer) -> Result<(), Attempt> {
    if plant.strikes(Bug::MissRead) {
        return Err(Attempt::Refused);
    }
    match &row.before {
        Some((version, bytes)) if plant.strikes(Bug::StaleRead) => tell(layout, answer, *version, bytes),
        Some((_, bytes)) if plant.strikes(Bug::TearRead) => {
            tell(layout, answer, row.version, &torn(bytes, &row.bytes, layout));
        }
        _ => tell(layout, answer, row.version, &row.bytes),
    }
    Ok(())
}

fn insert(staged: &mut Staged, plant: &mut Plant, request: &Request) {
    if plant.strikes(Bug::LoseInsert) {
        return;
    }
    let row = Row::new(&request.fields);
    if plant.strikes(Bug::DoubleInsert) {
        staged.doubles.push((request.key.clone(), row.clone()));
    }
    staged.written.insert(request.key.clone(), row);
    staged.inserted.push(request.key.clone());
}

fn update(
    layout: &Layout,
    staged: &mut Staged,
    plant: &mut Plant,
    request: &Request,
    row: &Row,
    answer: &mut Answer,
) {
    let mut updated = row.updated(&request.fields);
    answer.wrote(if plant.strikes(Bug::OldVersion) { row.version } else { updated.version });
    if plant.strikes(Bug::DropWrite) {
        return;
    }
    if plant.strikes(Bug::ApplyTwice) {
        updated.version += 1;
    }
    if plant.strikes(Bug::Tear) {
        updated.bytes = torn(&updated.bytes, &row.bytes, layout);
    }
    if plant.strikes(Bug::KeepFields) {
        updated.bytes = Arc::clone(&row.bytes);
    }
    staged.written.insert(request.key.clone(), updated);
}

impl Memory {
    fn records_of(&self, place: &Place) -> Option<Arc<Table>> {
        locked(&self.records).get(&place.object("records")).cloned()
    }
}

impl RecordsStore for Memory {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        loaded: &'a Loaded,
    ) -> Task<'a, Result<(), StoreError>> {
        let mut state = State::default();
        let mut fields = Fields::default();
        for number in 0..layout.records {
            layout.fill(number, &mut fields);
            state.rows.insert(key_name(number), Row::new(&fields));
            loaded.add(1);
        }
        let latches = (0..LATCHES).map(|_| tokio::sync::Mutex::default()).collect();
        let table = Arc::new(Table { layout: *layout, state: Mutex::new(state), latches });
        locked(&self.records).insert(place.object("records"), table);
        Box::pin(async { Ok(()) })
    }

    fn client(&self, place: &Place, wanted: &Wanted, scenario: Scenario) -> ClientTask {
        let table = self.records_of(place);
        records::task(MemoryConnector { table, wanted: *wanted, faults: self.faults }, scenario)
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        each: &'a mut Each<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let Some(table) = self.records_of(place) else {
                return Err(StoreError::Server {
                    doing: "reading the final records".to_owned(),
                    address: "memory".to_owned(),
                    cause: "they were never loaded".to_owned(),
                });
            };
            let state = table.settled();
            let doubles = state.doubles.iter().map(|(key, row)| (key, row));
            for (key, row) in state.rows.iter().chain(doubles) {
                each(key, row.version, tag_of(row.bytes.chunks(layout.field_bytes as usize)));
            }
            Ok(())
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        locked(&self.records).remove(&place.object("records"));
        Box::pin(async { Ok(()) })
    }
}

struct MemoryConnector {
    table: Option<Arc<Table>>,
    wanted: Wanted,
    faults: Faults,
}

struct Connection {
    table: Arc<Table>,
    wanted: Wanted,
    plant: Plant,
}

impl Connector for MemoryConnector {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        let table = self.table.clone().ok_or("the records were never loaded")?;
        let mut state = locked(&table.state);
        state.seeds += 1;
        let plant = Plant::new(self.faults, state.seeds);
        drop(state);
        Ok(Connection { table, wanted: self.wanted, plant })
    }
}

impl Operations for Connection {
    async fn single(&mut self, request: &Request, answer: &mut Answer) -> Attempt {
        self.perform(slice::from_ref(request), slice::from_mut(answer)).await
    }

    async fn several(&mut self, requests: &[Request], answers: &mut [Answer]) -> Attempt {
        self.perform(requests, answers).await
    }
}

impl Connection {
    /// Reads and stages, then commits: at once, or giving way in between, as the lock mode has it.
    async fn perform(&mut self, requests: &[Request], answers: &mut [Answer]) -> Attempt {
        let table = Arc::clone(&self.table);
        let mut held = Vec::new();
        if self.wanted.lock == Lock::Hard && !reads_once(requests) {
            for latch in latches(requests) {
                held.push(table.latches[latch].lock().await);
            }
        }
        let gives_way = self.wanted.lock != Lock::Native && !reads_once(requests);
        let mut staged = Staged::default();
        if gives_way {
            for (request, answer) in requests.iter().zip(answers.iter_mut()) {
                if let Err(end) = self.step(&table.settled(), &mut staged, request, answer) {
                    return end;
                }
                tokio::task::yield_now().await;
            }
        }
        let done = {
            let mut state = table.settled();
            if !gives_way {
                for (request, answer) in requests.iter().zip(answers) {
                    if let Err(end) = self.step(&state, &mut staged, request, answer) {
                        return end;
                    }
                }
            }
            if self.is_validated() && !staged.is_current(&state) {
                return Attempt::Conflict;
            }
            self.commit(&mut state, staged, requests)
        };
        answered(done).await
    }

    fn step(
        &mut self,
        state: &State,
        staged: &mut Staged,
        request: &Request,
        answer: &mut Answer,
    ) -> Result<(), Attempt> {
        step(&self.table.layout, state, staged, &mut self.plant, request, answer)
    }

    /// Whether what was read must be unchanged when it is committed.
    fn is_validated(&self) -> bool {
        let serializable = self.wanted.isolation == Some(Isolation::Serializable);
        self.wanted.lock == Lock::Soft || (self.wanted.transaction > 1 && serializable)
    }

    /// Commits what is staged, with whatever was planted. None is never answered.
    fn commit(&mut self, state: &mut State, staged: Staged, requests: &[Request]) -> Option<Attempt> {
        let plant = &mut self.plant;
        let later = |state: &mut State| state.later.push_back((Instant::now() + LATER, requests.to_vec()));
        if plant.is_unanswered() {
            // as a slow network would: done, done later, or not done, and nobody is told; what waits on the
            // way holds no latch yet, so that under the hard lock it would get in the way of one who does
            match plant.rng.random_range(0..3) {
                0 => _ = state.commit(staged),
                1 if self.wanted.lock != Lock::Hard => later(state),
                _ => {}
            }
            return None;
        }
        let writes = !staged.written.is_empty();
        if writes && plant.strikes(Bug::LateApply) {
            later(state);
            return Some(Attempt::Failed(Fault::answered("planted: late")));
        }
        if writes && plant.strikes(Bug::HideCommit) {
            later(state);
            return Some(Attempt::Ok);
        }
        let failed = !staged.inserted.is_empty() && plant.strikes(Bug::KeepInsert);
        let done = state.commit(staged);
        Some(if failed { Attempt::Failed(Fault::answered("planted: kept")) } else { done })
    }
}

/// Whether it is one reading, which is whole by itself.
fn reads_once(requests: &[Request]) -> bool {
    matches!(requests, [Request { action: Action::Read | Action::Scan, .. }])
}

/// The latches of all that is touched, each once and in order; all of them where a range is read.
fn latches(requests: &[Request]) -> Vec<usize> {
    if requests.iter().any(|request| request.action == Action::Scan) {
        return (0..LATCHES).collect();
    }
    let latch = |request: &Request| {
        let mut hasher = DefaultHasher::new();
        request.key.hash(&mut hasher);
        usize::try_from(hasher.finish() % LATCHES as u64).unwrap_or_default()
    };
    let mut latches: Vec<usize> = requests.iter().map(latch).collect();
    latches.sort_unstable();
    latches.dedup();
    latches
}

#[cfg(test)]
mod tests {
    use acidtest_testbed::{operations, wait};

    use super::*;

    fn connector(store: &Memory) -> impl Fn(&Place, Wanted) -> MemoryConnector {
        |place, wanted| MemoryConnector { table: store.records_of(place), wanted, faults: store.faults }
    }

    #[test]
    fn what_must_be_there_and_is_not_is_refused() {
        let store = Memory::default();
        wait(operations::singles(&store, &Lock::ALL, connector(&store)));
    }

    #[test]
    fn several_operations_are_done_in_their_order_or_not_at_all() {
        let store = Memory::default();
        wait(operations::transactions(&store, &Lock::ALL, connector(&store)));
    }
}
