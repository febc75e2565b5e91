//! The logs workload in memory: what takes the entries and what stores them is one.

use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use acidtest_model::{StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, Fault, Place,
    logs::{self, Entry, EntryVisitor, Id, LogsStore, Request, Rows, Sink, StoredEntry},
};
use rand::RngExt;
use tokio::time::{Instant, sleep};

use crate::{
    Bug, LATER, Memory, answered,
    crash::{Forgotten, Journal},
    faults::Plant,
    sides::{Replicated, Side, Sides},
    world::{Link, World, locked},
};

#[derive(Debug)]
pub(crate) struct Table {
    state: Sides<State>,
    witness: Mutex<Witness>,
    /// Violations that an audit must see, counted when the final entries were read last: a kill since then has nothing to do with
    /// them.
    shown: AtomicU64,
}

#[derive(Clone, Debug)]
struct State {
    rows: Vec<Row>,
    /// Rows on their way, with the time at which they come.
    later: Vec<(Instant, Vec<Row>)>,
    /// The ids that came together, since the last kill.
    journal: Journal<Vec<Id>>,
}

/// A row of the table: its id as text, and the entry as it is stored.
type Row = (String, Entry);

/// What is known of each entry beyond doubt: as it was sent, and whether its client was told that it is kept, or that it
/// is not.
#[derive(Debug, Default)]
struct Witness(BTreeMap<Id, (Entry, Option<bool>)>);

impl Table {
    fn new(world: &Arc<World>) -> Self {
        let state = State { rows: Vec::new(), later: Vec::new(), journal: Journal::new(world) };
        Self { state: Sides::new(world, state), witness: Mutex::default(), shown: AtomicU64::new(0) }
    }

    /// The locked state, after all rows have come that are due by now.
    fn settled(&self) -> Side<'_, State> {
        self.settled_at(u64::MAX)
    }

    /// The same as the leader of this number has it.
    fn settled_at(&self, leader: u64) -> Side<'_, State> {
        let mut state = self.state.at(leader);
        state.forget();
        let now = Instant::now();
        for (due, rows) in mem::take(&mut state.later) {
            if due <= now {
                state.store(rows, 0);
            } else {
                state.later.push((due, rows));
            }
        }
        state
    }

    /// The number of violations that an audit of this trial must see.
    pub(crate) fn shown(&self) -> u64 {
        self.shown.load(Relaxed)
    }

    /// Counts the violations in the final entries.
    fn look(&self, state: &State) {
        let Witness(accounts) = &*locked(&self.witness);
        let mut stored: BTreeMap<Id, u64> = BTreeMap::new();
        let mut seen = 0;
        for (id, entry) in &state.rows {
            match accounts.get(&entry.id).filter(|(sent, _)| sent.id.to_string() == *id) {
                None => seen += 1,
                Some((sent, _)) => {
                    *stored.entry(entry.id).or_default() += 1;
                    seen += u64::from(sent != entry);
                }
            }
        }
        let wrong = |(id, (_, kept)): &(&Id, &(Entry, Option<bool>))| {
            let count = stored.get(id).copied().unwrap_or(0);
            count > 1 || (*kept == Some(true) && count == 0) || (*kept == Some(false) && count > 0)
        };
        self.shown.store(seen + accounts.iter().filter(wrong).count() as u64, Relaxed);
    }
}

impl Replicated for State {
    type Write = Vec<Id>;

    fn journal(&mut self) -> Option<&mut Journal<Vec<Id>>> {
        Some(&mut self.journal)
    }

    fn forget(&mut self) {
        for forgotten in self.journal.forgotten(Vec::len) {
            let ids = match forgotten {
                Forgotten::Whole(ids) => ids,
                Forgotten::Half(mut ids) => ids.split_off(ids.len() / 2),
            };
            self.rows.retain(|(_, entry)| !ids.contains(&entry.id));
        }
    }
}

impl State {
    /// Stores what is not there yet: ids are unique.
    fn store(&mut self, rows: Vec<Row>, connection: u64) {
        let mut stored = Vec::new();
        for row in rows {
            if !self.rows.iter().rev().any(|(id, _)| *id == row.0) {
                stored.push(row.1.id);
                self.rows.push(row);
            }
        }
        self.journal.note(connection, stored);
    }
}

impl Memory {
    pub(crate) fn logs_of(&self, place: &Place) -> Option<Arc<Table>> {
        locked(&self.logs).get(&name(place)).cloned()
    }

    /// The trial's table, which is made when it is first asked for.
    fn table(&self, name: &str) -> Arc<Table> {
        let mut tables = locked(&self.logs);
        let new = || Arc::new(Table::new(&self.world));
        Arc::clone(tables.entry(name.to_owned()).or_insert_with(new))
    }
}

fn name(place: &Place) -> String {
    format!("{}/{}", place.namespace, place.object("logs"))
}

impl LogsStore for Memory {
    fn sink(&self, _: &Place) -> Option<Sink> {
        None
    }

    fn rows(&self, place: &Place) -> Rows {
        Rows::own(None, name(place))
    }

    fn client(&self, place: &Place, scenario: logs::Scenario) -> Option<ClientTask> {
        let connector = Connector { table: self.table(&name(place)), world: Arc::clone(&self.world) };
        Some(logs::task(connector, scenario))
    }

    fn entries<'a>(
        &'a self,
        rows: &'a Rows,
        visit: &'a mut EntryVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.is_there("reading the entries")?;
            let table = self.table(&rows.table);
            // as a gateway's queue is empty before its table is read
            while !table.settled().later.is_empty() {
                sleep(Duration::from_millis(1)).await;
            }
            let state = table.settled();
            table.look(&state);
            for (id, entry) in &state.rows {
                visit(&StoredEntry { id, ..entry.stored() });
            }
            Ok(())
        })
    }

    fn unload<'a>(&'a self, rows: &'a Rows) -> Task<'a, Result<(), StoreError>> {
        locked(&self.logs).remove(&rows.table);
        Box::pin(async { Ok(()) })
    }
}

struct Connector {
    table: Arc<Table>,
    world: Arc<World>,
}

struct Connection {
    table: Arc<Table>,
    link: Link,
    plant: Plant,
}

impl logs::Connector for Connector {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        let plant = || Plant::new(&self.world, self.world.faults);
        Ok(Connection { table: Arc::clone(&self.table), link: Link::open(plant())?, plant: plant() })
    }
}

impl Connection {
    /// The rows of a request, with what a planted bug makes of them.
    fn rows(&mut self, request: &Request) -> Vec<Row> {
        let mut rows: Vec<Row> =
            request.entries.iter().map(|entry| (entry.key.clone(), entry.clone())).collect();
        if self.plant.strikes(Bug::DropWrite) {
            rows.pop();
        }
        if self.plant.strikes(Bug::Tear)
            && let Some((_, entry)) = rows.last_mut()
        {
            entry.message.insert(6, '0');
        }
        if self.plant.strikes(Bug::MakeUp)
            && let Some((id, mut entry)) = rows.last().cloned()
        {
            entry.id.sequence += 1 << 40;
            rows.push((format!("{id}0000000000"), entry));
        }
        rows
    }

    /// Does what the request asks for, and says how it ended; none if nobody is told.
    fn take(&mut self, request: &Request) -> Option<Attempt> {
        let rows = self.rows(request);
        let due = Instant::now() + LATER;
        let is_refused = self.plant.strikes(Bug::LateApply);
        let is_unanswered = self.plant.is_unanswered();
        let fate = if is_unanswered { self.plant.rng.random_range(0..3) } else { 0 };
        let is_twice = self.plant.strikes(Bug::ApplyTwice);
        let mut state = self.table.settled_at(self.link.leader());
        match fate {
            _ if is_refused => state.later.push((due, rows)),
            0 => {
                let again = rows.last().cloned().filter(|_| is_twice);
                state.store(rows, self.link.number);
                // as a table does that lacks its unique index
                state.rows.extend(again);
            }
            1 => state.later.push((due, rows)),
            _ => {}
        }
        let failed = || Attempt::Failed(Fault::answered("planted: it says that it failed"));
        let attempt = if is_refused { failed() } else { Attempt::Ok };
        (!is_unanswered).then_some(attempt)
    }

    fn witness(&self, request: &Request, attempt: &Attempt) {
        let kept = match attempt {
            Attempt::Ok => Some(true),
            Attempt::Unknown(_) => None,
            Attempt::Refused | Attempt::Conflict | Attempt::Failed(_) => Some(false),
        };
        let Witness(accounts) = &mut *locked(&self.table.witness);
        for entry in &request.entries {
            accounts.insert(entry.id, (entry.clone(), kept));
        }
    }
}

impl logs::Operations for Connection {
    async fn send(&mut self, request: &Request) -> Attempt {
        // until it is answered
        self.witness(request, &Attempt::Unknown(Fault::lost("not answered")));
        let attempt = match self.link.send_change().await {
            // entries conflict with nobody: a gateway whose queue is full refuses them
            Err(Attempt::Conflict) => Attempt::Refused,
            Err(attempt) => attempt,
            Ok(()) => {
                let done = answered(self.take(request)).await;
                self.link.answer_attempt(done).await
            }
        };
        self.witness(request, &attempt);
        self.link.note(|| format!("{} entries: {attempt:?}", request.entries.len()));
        attempt
    }
}
