//! The records workload in memory.

mod replicas;

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    mem, slice,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use acidtest_model::{Isolation, Lock, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, Fault, LoadProgress, Place,
    records::{
        self, Action, Answer, Connector, Fields, Layout, Operations, Reader, RecordVisitor, RecordsStore,
        Request, Requirements, Scenario, key_name, tag_of,
    },
};
use rand::RngExt;
use tokio::time::Instant;

use crate::{
    Bug, Faults, LATER, Memory, answered,
    crash::{Forgotten, Journal},
    faults::Plant,
    gone,
    sides::{Replicated, Side, Sides},
    witness::{self, Asked, KnownStaleness, RecordVersion, Records as Witness, Stage},
    world::{Link, SERVERS, World, locked},
};

use replicas::Log;

/// Number of latches for the hard lock mode. Each guards the records whose keys hash to it.
const LATCHES: usize = 256;

/// The records of one trial, or of several in turn that reuse them.
#[derive(Debug)]
pub(crate) struct Table {
    layout: Layout,
    state: Sides<State>,
    latches: Vec<tokio::sync::Mutex<()>>,
    witness: Mutex<Witness>,
    /// How many clients there were.
    clients: AtomicU64,
    /// Violations that an audit must see in the last trial over these records, counted when its final state was read.
    shown: AtomicU64,
    /// How old the reads of that trial were, as the witness knows.
    staleness: Mutex<KnownStaleness>,
}

#[derive(Clone, Debug, Default)]
struct State {
    rows: BTreeMap<String, Row>,
    /// Rows that [`Bug::DoubleInsert`] has inserted a second time.
    doubles: Vec<(String, Row)>,
    /// Operations that are applied at a later time, earliest first.
    later: VecDeque<(Instant, Vec<Request>)>,
    /// Number of commits that wrote something. A transaction with a scan conflicts if it has changed since the scan.
    commits: u64,
    /// What was written since the last kill.
    journal: Option<Journal<Vec<RowChange>>>,
    /// What replicas have of it; none where they are not read.
    log: Log,
    has_replicas: bool,
}

/// What a trial that begins now comes from.
fn stage(world: &World) -> Stage {
    let Faults { replicas, outages, conflicts, .. } = world.faults;
    // the store cannot tell a read that is tried again from the next one of the same record
    let is_plain = !outages && conflicts == 0.0;
    Stage { exact: world.exact, promised: replicas, epoch: world.situation().begun, is_plain }
}

/// A row that was written: its key, its version, and the row before, if there was one.
#[derive(Clone, Debug)]
struct RowChange {
    key: String,
    version: u64,
    before: Option<Row>,
}

#[derive(Clone, Debug)]
struct Row {
    version: u64,
    bytes: Arc<[u8]>,
    /// The version and the fields before the last update, for bugs that read them.
    before: Option<(u64, Arc<[u8]>)>,
    /// The client that wrote it, where that is known.
    writer: Option<u64>,
}

impl Row {
    fn new(fields: &Fields) -> Self {
        Self { version: 0, bytes: bytes(fields.iter()), before: None, writer: None }
    }

    /// The row after an update: with these fields, the next version, and the present ones kept as `before`.
    fn updated(&self, fields: &Fields) -> Self {
        let before = Some((self.version, Arc::clone(&self.bytes)));
        Self { version: self.version + 1, bytes: bytes(fields.iter()), before, writer: None }
    }

    /// The row before the last update; none if there was none.
    fn earlier(&self) -> Option<Self> {
        let (version, bytes) = self.before.clone()?;
        Some(Self { version, bytes, before: None, writer: None })
    }
}

fn bytes<'a>(fields: impl Iterator<Item = &'a str>) -> Arc<[u8]> {
    fields.flat_map(str::bytes).collect()
}

/// The first half of the fields from `first` and the other half from `second`.
fn torn(first: &[u8], second: &[u8], layout: &Layout) -> Arc<[u8]> {
    let half = usize::from(layout.fields / 2) * layout.field_bytes as usize;
    first[..half].iter().chain(&second[half..]).copied().collect()
}

/// The versions that an operation has read, and the rows that it is to write when it commits.
#[derive(Debug, Default)]
struct PendingWrite {
    /// Each key that was read, with the version found; none if there was no such record.
    read: Vec<(String, Option<u64>)>,
    /// The number of commits at the time of a scan.
    scanned: Option<u64>,
    written: BTreeMap<String, Row>,
    inserted: Vec<String>,
    doubles: Vec<(String, Row)>,
}

impl PendingWrite {
    fn row<'a>(&'a self, state: &'a State, key: &str) -> Option<&'a Row> {
        self.written.get(key).or_else(|| state.rows.get(key))
    }

    /// The row as this operation sees it, with its own writes. Notes the committed version as read.
    fn look(&mut self, state: &State, key: &str) -> Option<Row> {
        self.read.push((key.to_owned(), state.rows.get(key).map(|row| row.version)));
        self.row(state, key).cloned()
    }

    /// Whether no record that was read, and none at all after a scan, has changed since.
    fn is_current(&self, state: &State) -> bool {
        self.read.iter().all(|(key, version)| state.rows.get(key).map(|row| row.version) == *version)
            && self.scanned.is_none_or(|commits| commits == state.commits)
    }
}

impl Table {
    /// The locked state, after all delayed operations that are due by now.
    fn settled(&self, world: &Arc<World>) -> Side<'_, State> {
        self.settled_at(world, u64::MAX)
    }

    /// The same as the leader of this number has it.
    fn settled_at(&self, world: &Arc<World>, leader: u64) -> Side<'_, State> {
        let mut state = self.state.at(leader);
        state.settle(&self.layout, world);
        state
    }

    /// The number of violations that an audit must see in the trial whose final state was read last.
    pub(crate) fn shown(&self) -> u64 {
        self.shown.load(Relaxed)
    }

    /// How old the reads were in the trial whose final state was read last.
    pub(crate) fn staleness(&self) -> KnownStaleness {
        *locked(&self.staleness)
    }

    /// Counts the violations of the trial that is over, and starts a new witness from the records that it left, as
    /// another trial may reuse them.
    fn turn(&self, state: &State, world: &World) {
        let mut witness = locked(&self.witness);
        let shown = witness.shown(state.told(&self.layout), world.situation().begun);
        self.shown.store(shown, Relaxed);
        *locked(&self.staleness) = witness.staleness();
        *witness = Witness::over(state.told(&self.layout), stage(world));
    }
}

impl Replicated for State {
    type Write = Vec<RowChange>;

    fn journal(&mut self) -> Option<&mut Journal<Vec<RowChange>>> {
        self.journal.as_mut()
    }

    /// A write stays that later ones were made upon.
    fn forget(&mut self) {
        let forgotten = self.journal.as_mut().map(|journal| journal.forgotten(Vec::len));
        if forgotten.as_ref().is_some_and(|forgotten| !forgotten.is_empty()) {
            self.log.restart();
        }
        for forgotten in forgotten.into_iter().flatten() {
            let whole = matches!(forgotten, Forgotten::Whole(_));
            let (Forgotten::Whole(changes) | Forgotten::Half(changes)) = forgotten;
            let parts = if whole { changes.len() } else { changes.len() / 2 };
            for RowChange { key, version, before } in changes.into_iter().take(parts) {
                if self.rows.get(&key).is_some_and(|row| row.version == version) {
                    self.commits += 1;
                    match before {
                        Some(before) => drop(self.rows.insert(key, before)),
                        None => drop(self.rows.remove(&key)),
                    }
                }
            }
        }
    }

    fn promote(&mut self) {
        self.log.promote();
    }
}

impl State {
    /// Every record with its version and its tag, also those that were inserted twice.
    fn told(&self, layout: &Layout) -> impl Iterator<Item = (&str, RecordVersion)> {
        let doubles = self.doubles.iter().map(|(key, row)| (key, row));
        let each = layout.field_bytes as usize;
        let rows = self.rows.iter().chain(doubles);
        rows.map(move |(key, row)| (key.as_str(), (row.version, tag_of(row.bytes.chunks(each)))))
    }

    /// Applies the delayed operations that are due by now, after a kill's damage.
    fn settle(&mut self, layout: &Layout, world: &Arc<World>) {
        self.forget();
        while self.later.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            let Some((_, requests)) = self.later.pop_front() else { return };
            let mut staged = PendingWrite::default();
            let mut plant = Plant::new(world, Faults::default());
            let done = requests.iter().try_for_each(|request| {
                step(layout, self, &mut staged, &mut plant, request, &mut Found::default())
            });
            if done.is_ok() {
                self.commit(staged, 0);
            }
        }
    }

    /// Writes all that is staged. Refused, with nothing changed, if a key that is to be inserted exists already.
    fn commit(&mut self, staged: PendingWrite, connection: u64) -> Attempt {
        if staged.inserted.iter().any(|key| self.rows.contains_key(key)) {
            return Attempt::Refused;
        }
        if !staged.written.is_empty() {
            self.commits += 1;
            let change = |(key, row): (&String, &Row)| RowChange {
                key: key.clone(),
                version: row.version,
                before: self.rows.get(key).cloned(),
            };
            let changes = || staged.written.iter().map(change).collect();
            if self.has_replicas {
                self.log.note(changes());
            }
            if let Some(journal) = &mut self.journal {
                journal.note(connection, changes());
            }
        }
        self.rows.extend(staged.written);
        self.doubles.extend(staged.doubles);
        Attempt::Ok
    }
}

/// What a request has found and written.
#[derive(Clone, Debug, Default)]
struct Found {
    records: Vec<(u64, Arc<[u8]>)>,
    written: Option<u64>,
}

impl Found {
    fn record(&mut self, version: u64, bytes: &Arc<[u8]>) {
        self.records.push((version, Arc::clone(bytes)));
    }

    fn answer(&self, layout: &Layout, answer: &mut Answer) {
        for (version, bytes) in &self.records {
            answer.record(*version, bytes.chunks(layout.field_bytes as usize));
        }
        if let Some(version) = self.written {
            answer.wrote(version);
        }
    }

    /// The records for the witness, which must not learn them from the check that the audit judges by.
    fn versions(&self, layout: &Layout) -> Vec<RecordVersion> {
        let each = layout.field_bytes as usize;
        self.records.iter().map(|(version, bytes)| (*version, tag_of(bytes.chunks(each)))).collect()
    }
}

/// Performs one request against the state: finds records and stages writes.
///
/// # Errors
/// How the operation ends without being committed.
fn step(
    layout: &Layout,
    state: &State,
    staged: &mut PendingWrite,
    plant: &mut Plant,
    request: &Request,
    found: &mut Found,
) -> Result<(), Attempt> {
    if request.action == Action::Scan {
        staged.scanned = Some(state.commits);
        let length = request.length as usize;
        let mut rows: BTreeMap<&String, &Row> =
            state.rows.range(request.key.clone()..).take(length).collect();
        rows.extend(staged.written.range(request.key.clone()..));
        for row in rows.into_values().take(length) {
            found.record(row.version, &row.bytes);
        }
        return Ok(());
    }
    let row = staged.look(state, &request.key);
    match (request.action, row) {
        (Action::Insert, None) => insert(staged, plant, request),
        (Action::Insert, Some(_)) | (_, None) => return Err(Attempt::Refused),
        (Action::Read, Some(row)) => return read(layout, plant, &row, found),
        (action, Some(row)) => {
            if action == Action::Modify {
                found.record(row.version, &row.bytes);
            }
            update(layout, staged, plant, request, &row, found);
            if plant.strikes(Bug::StrayFields) {
                stray(state, staged, request);
            }
        }
    }
    Ok(())
}

/// Stages the fields of the update also for the next record, or for the first one if there is no next.
fn stray(state: &State, staged: &mut PendingWrite, request: &Request) {
    let others = state.rows.range(request.key.clone()..).chain(&state.rows);
    if let Some((key, row)) = others.skip(1).find(|(key, _)| **key != request.key) {
        let other = Row { bytes: bytes(request.fields.iter()), ..row.clone() };
        staged.written.insert(key.clone(), other);
    }
}

fn read(layout: &Layout, plant: &mut Plant, row: &Row, found: &mut Found) -> Result<(), Attempt> {
    if plant.strikes(Bug::MissRead) {
        return Err(Attempt::Refused);
    }
    match &row.before {
        Some((version, bytes)) if plant.strikes(Bug::StaleRead) => found.record(*version, bytes),
        Some((_, bytes)) if plant.strikes(Bug::TearRead) => {
            found.record(row.version, &torn(bytes, &row.bytes, layout));
        }
        _ => found.record(row.version, &row.bytes),
    }
    Ok(())
}

fn insert(staged: &mut PendingWrite, plant: &mut Plant, request: &Request) {
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
    staged: &mut PendingWrite,
    plant: &mut Plant,
    request: &Request,
    row: &Row,
    found: &mut Found,
) {
    let mut updated = row.updated(&request.fields);
    found.written = Some(if plant.strikes(Bug::OldVersion) { row.version } else { updated.version });
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
    pub(crate) fn records_of(&self, place: &Place) -> Option<Arc<Table>> {
        locked(&self.records).get(&place.object("records")).cloned()
    }
}

impl RecordsStore for Memory {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        let mut state = State {
            journal: Some(Journal::new(&self.world)),
            has_replicas: self.world.faults.replicas.is_some(),
            ..State::default()
        };
        let mut fields = Fields::default();
        for number in 0..layout.records {
            layout.fill(number, &mut fields);
            state.rows.insert(key_name(number), Row::new(&fields));
            loaded.add(1);
        }
        let latches = (0..LATCHES).map(|_| tokio::sync::Mutex::default()).collect();
        let witness = Mutex::new(Witness::over(state.told(layout), stage(&self.world)));
        let (state, clients) = (Sides::new(&self.world, state), AtomicU64::new(0));
        let (shown, staleness) = (AtomicU64::new(0), Mutex::default());
        let table = Arc::new(Table { layout: *layout, state, latches, witness, clients, shown, staleness });
        locked(&self.records).insert(place.object("records"), table);
        Box::pin(async { Ok(()) })
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        let table = self.records_of(place);
        records::task(MemoryConnector::new(table, *wanted, &self.world), scenario)
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        each: &'a mut RecordVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let doing = "reading the final records";
            let table = self.records_of(place).ok_or_else(|| gone(doing, "they were never loaded"))?;
            let mut state = table.settled(&self.world);
            table.turn(&state, &self.world);
            state.log.restart();
            self.is_there(doing)?;
            for (key, (version, tag)) in state.told(layout) {
                each(key, version, tag);
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
    wanted: Requirements,
    world: Arc<World>,
    /// The client's number.
    client: u64,
    begun: Arc<Mutex<Begun>>,
}

/// The last operation's requests with what was known when it was first tried, and the epoch of that, if it conflicted and may be tried again: on another
/// connection, if its client reads from several servers.
type Begun = Option<(Vec<witness::Request>, Option<u64>)>;

impl MemoryConnector {
    fn new(table: Option<Arc<Table>>, wanted: Requirements, world: &Arc<World>) -> Self {
        let client = table.as_ref().map_or(0, |table| table.clients.fetch_add(1, Relaxed));
        Self { table, wanted, world: Arc::clone(world), client, begun: Arc::default() }
    }

    fn connection(&self, open: impl FnOnce(Plant) -> Result<Link, String>) -> Result<Connection, String> {
        let table = self.table.clone().ok_or("the records were never loaded")?;
        let plant = || Plant::new(&self.world, self.world.faults);
        let link = open(plant())?;
        let (wanted, connection, leader) = (self.wanted, link.number, link.leader());
        let (owner, begun) = (self.client, Arc::clone(&self.begun));
        let store = Client { table, wanted, plant: plant(), connection, owner, leader };
        Ok(Connection { link, store, begun, leads: None })
    }
}

/// A client's connection: the simulated network and the store behind it.
struct Connection {
    link: Link,
    store: Client,
    begun: Arc<Mutex<Begun>>,
    /// Of one for reads at any server, whether that led when it was opened.
    leads: Option<bool>,
}

/// The store's side of one client's connection.
struct Client {
    table: Arc<Table>,
    wanted: Requirements,
    plant: Plant,
    /// The connection's number.
    connection: u64,
    /// The client's.
    owner: u64,
    /// The number of the leader that answers.
    leader: u64,
}

/// An operation whose answer has not come. Dropped without one, it may or may not have been applied, so that the
/// witness makes no more claims about the records that it writes.
struct Pending {
    table: Arc<Table>,
    requests: Vec<witness::Request>,
    asked: Asked,
    world: Arc<World>,
    ended: bool,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.ended {
            locked(&self.table.witness).doubt(&self.requests);
        }
    }
}

impl Pending {
    /// Tells the witness the outcome that the client is told.
    fn end(&mut self, attempt: &Attempt, found: &[Found]) {
        let now = self.world.epoch();
        let mut witness = locked(&self.table.witness);
        let asked = Asked { epoch: self.asked.epoch.filter(|epoch| now == Some(*epoch)), ..self.asked };
        match attempt {
            Attempt::Ok => {
                for (request, found) in self.requests.iter().zip(found) {
                    witness.acknowledged(request, asked, &found.versions(&self.table.layout), found.written);
                }
            }
            Attempt::Refused => {
                witness.refused(&self.requests, asked);
                witness.failed(&self.requests);
            }
            Attempt::Conflict | Attempt::Failed(_) => witness.failed(&self.requests),
            Attempt::Unknown(_) => return,
        }
        self.ended = true;
    }
}

impl Connector for MemoryConnector {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        self.connection(Link::open)
    }

    fn servers(&self) -> usize {
        if self.world.faults.replicas.is_some() { SERVERS } else { 1 }
    }

    async fn reader(&self, server: usize) -> Result<Reader<Connection>, String> {
        let mut connection = self.connection(|plant| Link::reader(plant, server))?;
        let leads = connection.link.replica().is_none();
        connection.leads = Some(leads);
        Ok(Reader { connection, leads })
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
    async fn perform(&mut self, requests: &[Request], answers: &mut [Answer]) -> Attempt {
        let table = Arc::clone(&self.store.table);
        let layout = table.layout;
        let (requests_begun, epoch) = self.begin(requests);
        let asked = Asked { client: self.store.owner, leads: self.leads, epoch };
        let world = Arc::clone(&self.store.plant.world);
        let mut pending = Pending { requests: requests_begun, table, asked, world, ended: false };
        let mut found = vec![Found::default(); requests.len()];
        let changes = requests.iter().any(|each| !matches!(each.action, Action::Read | Action::Scan));
        let sent = if changes { self.link.send_change().await } else { self.link.send().await };
        let attempt = match sent {
            Ok(()) => {
                self.store.leader = self.link.leader();
                let attempt = match self.link.replica() {
                    None => self.store.perform(requests, &mut found).await,
                    Some(server) => self.store.look_at_replica(server, requests, &mut found).await,
                };
                self.link.answer_attempt(attempt).await
            }
            Err(attempt) => attempt,
        };
        for (found, answer) in found.iter().zip(answers) {
            found.answer(&layout, answer);
        }
        self.link.note(|| shown(requests, &found, &layout, &attempt));
        pending.end(&attempt, &found);
        if attempt == Attempt::Conflict {
            *locked(&self.begun) = Some((mem::take(&mut pending.requests), epoch));
        }
        attempt
    }

    /// The requests with what is known of their records. For an operation that is tried again after a conflict, this
    /// is what was known when it was first tried. And the epoch of the store that clients were told of then.
    fn begin(&mut self, requests: &[Request]) -> (Vec<witness::Request>, Option<u64>) {
        let same = |(begun, _): &(Vec<witness::Request>, Option<u64>)| {
            let each = |(one, other): (&Request, &witness::Request)| {
                (one.action, &one.key, one.fields.tag()) == (other.action, &other.key, other.tag)
            };
            begun.len() == requests.len() && requests.iter().zip(begun).all(each)
        };
        let begun = locked(&self.begun).take();
        if let Some(begun) = begun.filter(same) {
            return begun;
        }
        let witness = locked(&self.store.table.witness);
        let request = |request: &Request| witness::Request {
            action: request.action,
            key: request.key.clone(),
            tag: request.fields.tag(),
            known: witness.known(&request.key),
        };
        (requests.iter().map(request).collect(), self.store.plant.world.told_epoch())
    }
}

/// The operation and its outcome as a line of the history.
fn shown(requests: &[Request], found: &[Found], layout: &Layout, attempt: &Attempt) -> String {
    let one = |(request, found): (&Request, &Found)| {
        let (tag, read, wrote) = (request.fields.tag(), found.versions(layout), found.written);
        format!("{:?} {} tag {tag:x}: read {read:x?}, wrote {wrote:?}", request.action, request.number)
    };
    let all: Vec<String> = requests.iter().zip(found).map(one).collect();
    format!("{attempt:?}: {}", all.join("; "))
}

impl Client {
    /// Does operations that change nothing at a server that follows.
    async fn look_at_replica(&mut self, server: usize, requests: &[Request], found: &mut [Found]) -> Attempt {
        let done = {
            let table = &self.table;
            let mut state = table.state.followed();
            state.settle(&table.layout, &self.plant.world);
            let asked = (server, self.owner);
            let looked = state.look_at_replica(asked, &table.layout, &mut self.plant, requests, found);
            let answers = !self.plant.is_unanswered();
            answers.then(|| looked.map_or_else(|end| end, |()| Attempt::Ok))
        };
        answered(done).await
    }

    /// Reads and stages, then commits. Under the native lock, and for a single read, all in one critical section; in
    /// the other modes other clients may run in between.
    async fn perform(&mut self, requests: &[Request], found: &mut [Found]) -> Attempt {
        let table = Arc::clone(&self.table);
        let mut held = Vec::new();
        if self.wanted.lock == Lock::Hard && !reads_once(requests) {
            for latch in latches(requests) {
                held.push(table.latches[latch].lock().await);
            }
        }
        let gives_way = self.wanted.lock != Lock::Native && !reads_once(requests);
        let mut staged = PendingWrite::default();
        if gives_way {
            for (request, found) in requests.iter().zip(found.iter_mut()) {
                if let Err(end) =
                    self.step(&table.settled_at(&self.plant.world, self.leader), &mut staged, request, found)
                {
                    return end;
                }
                self.plant.give_way().await;
            }
        }
        let done = {
            let mut state = table.settled_at(&self.plant.world, self.leader);
            if !gives_way {
                for (request, found) in requests.iter().zip(found) {
                    if let Err(end) = self.step(&state, &mut staged, request, found) {
                        return end;
                    }
                }
            }
            if !staged.written.is_empty() && !self.plant.world.commits_at(self.leader) {
                // its connection is lost, and nobody is told
                return Attempt::Conflict;
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
        staged: &mut PendingWrite,
        request: &Request,
        found: &mut Found,
    ) -> Result<(), Attempt> {
        step(&self.table.layout, state, staged, &mut self.plant, request, found)
    }

    /// Whether a commit is a conflict if what was read has changed: under the soft lock, and in serializable
    /// transactions.
    fn is_validated(&self) -> bool {
        let serializable = self.wanted.isolation == Some(Isolation::Serializable);
        self.wanted.lock == Lock::Soft || (self.wanted.transaction > 1 && serializable)
    }

    /// Commits the staged writes, with the planted faults. `None` means that the client gets no answer.
    fn commit(
        &mut self,
        state: &mut State,
        mut staged: PendingWrite,
        requests: &[Request],
    ) -> Option<Attempt> {
        let plant = &mut self.plant;
        staged.written.values_mut().for_each(|row| row.writer = Some(self.owner));
        let later = |state: &mut State| state.later.push_back((Instant::now() + LATER, requests.to_vec()));
        if plant.is_unanswered() {
            // as with a slow network: applied, applied later, or not applied, and no client is told which; one that
            // is applied later holds no latch, so that under the hard lock it would break in on one that does
            match plant.rng.random_range(0..3) {
                0 => _ = state.commit(staged, self.connection),
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
        if writes && staged.inserted.is_empty() && plant.strikes(Bug::ShowUncommitted) {
            state.log.show_uncommitted(staged.written);
            return Some(Attempt::Failed(Fault::answered("planted: not committed")));
        }
        let failed = !staged.inserted.is_empty() && plant.strikes(Bug::KeepInsert);
        let done = state.commit(staged, self.connection);
        Some(if failed { Attempt::Failed(Fault::answered("planted: kept")) } else { done })
    }
}

/// Whether the operation is a single read or scan, which needs no lock.
fn reads_once(requests: &[Request]) -> bool {
    matches!(requests, [Request { action: Action::Read | Action::Scan, .. }])
}

/// The latches of the keys that are touched, each once and in ascending order, so that no two clients wait for each
/// other; all latches if a range is scanned.
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

    fn connector(store: &Memory) -> impl Fn(&Place, Requirements) -> MemoryConnector {
        |place, wanted| MemoryConnector::new(store.records_of(place), wanted, &store.world)
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
