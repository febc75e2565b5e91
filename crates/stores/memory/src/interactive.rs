//! Interactive transactions in memory: correct at each isolation level, and with one protection left out for each anomaly, so
//! that scripts of interleavings can be tested on what they are to catch.
//!
//! Rows have versions, numbered by the commits that made them. A write is pending until its transaction commits, and others
//! that would write the row wait until then. A transaction is refused that would write what was changed since it began, or,
//! when it commits, that has read such a thing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use acidtest_model::{Isolation, StoreError, Task};
use acidtest_workloads::{
    Place,
    interactive::{
        Condition, InteractiveSession, InteractiveStore, LockMonitor, Mode, Reply, Select, Statement, Table,
    },
};
use tokio::sync::Notify;

use crate::{Memory, world::locked};

/// An anomaly that a mode is planted with: it has one protection less than its level promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anomaly {
    /// Writes do not wait for another's pending write of the row, and a commit commits what is written last, whoever did.
    DirtyWrite,
    /// Statements see what others have not committed.
    DirtyRead,
    /// A rollback keeps the writes.
    AbortedRead,
    /// Of several writes of a row, the commit keeps the first.
    IntermediateRead,
    /// A row that was changed since the transaction began is written over.
    LostUpdate,
    /// Rows that are named by their ids are read as they are, and not as they were when the transaction began.
    ReadSkew,
    /// What was read by ids may have changed until the commit.
    WriteSkew,
    /// Rows that are found by a condition are read as they are, and may have changed until the commit.
    Phantom,
}

impl Anomaly {
    /// Every anomaly, in the order of the levels that promise to prevent it.
    pub const ALL: [Self; 8] = [
        Self::DirtyWrite,
        Self::DirtyRead,
        Self::AbortedRead,
        Self::IntermediateRead,
        Self::LostUpdate,
        Self::ReadSkew,
        Self::WriteSkew,
        Self::Phantom,
    ];

    /// The name of the mode that has it.
    #[must_use]
    pub fn mode(self) -> &'static str {
        match self {
            Self::DirtyWrite => "read uncommitted, planted dirty write",
            Self::DirtyRead => "read committed, planted dirty read",
            Self::AbortedRead => "read committed, planted aborted read",
            Self::IntermediateRead => "read committed, planted intermediate read",
            Self::LostUpdate => "repeatable read, planted lost update",
            Self::ReadSkew => "repeatable read, planted read skew",
            Self::WriteSkew => "serializable, planted write skew",
            Self::Phantom => "serializable, planted phantom",
        }
    }

    /// The modes that have one each, which the store itself does not offer.
    #[must_use]
    pub fn modes() -> Vec<Mode> {
        let mode = |anomaly: Self| Mode {
            name: anomaly.mode().to_owned(),
            level: Some(anomaly.level()),
            how: "that of the level with one protection less",
            is_default: false,
        };
        Self::ALL.map(mode).to_vec()
    }

    fn level(self) -> Isolation {
        match self {
            Self::DirtyWrite => Isolation::ReadUncommitted,
            Self::DirtyRead | Self::AbortedRead | Self::IntermediateRead => Isolation::ReadCommitted,
            Self::LostUpdate | Self::ReadSkew => Isolation::RepeatableRead,
            Self::WriteSkew | Self::Phantom => Isolation::Serializable,
        }
    }
}

/// What protects a session's transactions.
#[derive(Clone, Copy, Debug)]
struct Protection {
    level: Isolation,
    without: Option<Anomaly>,
}

/// Which version of a row others have written is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Pending,
    Committed,
    /// As it was when the transaction began.
    Snapshot,
}

impl Protection {
    fn of(mode: &Mode) -> Self {
        let without = Anomaly::ALL.into_iter().find(|anomaly| anomaly.mode() == mode.name);
        Self { level: mode.level.unwrap_or(Isolation::Serializable), without }
    }

    fn view(self, rows: &Condition) -> View {
        let is_by_id = rows.ids().is_some();
        match (self.without, self.level) {
            (Some(Anomaly::DirtyRead), _) | (_, Isolation::ReadUncommitted) => View::Pending,
            (Some(Anomaly::ReadSkew), _) if is_by_id => View::Committed,
            (Some(Anomaly::Phantom), _) if !is_by_id => View::Committed,
            (_, Isolation::ReadCommitted) => View::Committed,
            (_, Isolation::RepeatableRead | Isolation::Serializable) => View::Snapshot,
        }
    }

    fn waits_for_writers(self) -> bool {
        self.without != Some(Anomaly::DirtyWrite)
    }

    fn refuses_to_write_over(self) -> bool {
        self.level >= Isolation::RepeatableRead && self.without != Some(Anomaly::LostUpdate)
    }

    /// Whether what was read so must be the same at the commit.
    fn compares(self, rows: &Condition) -> bool {
        self.level == Isolation::Serializable
            && match self.without {
                Some(Anomaly::WriteSkew) => rows.ids().is_none(),
                Some(Anomaly::Phantom) => rows.ids().is_some(),
                _ => true,
            }
    }
}

/// The value that a row has from a commit on; none if it was deleted.
#[derive(Clone, Copy, Debug)]
struct Version {
    commit: u64,
    value: Option<i64>,
}

/// A value that a session has written and not committed; none if it deleted the row.
#[derive(Clone, Copy, Debug)]
struct Pending {
    by: u64,
    value: Option<i64>,
}

#[derive(Debug, Default)]
struct Row {
    versions: Vec<Version>,
    /// By one session only, where writes wait for each other. The last is what the row has now.
    pending: Vec<Pending>,
}

impl Row {
    fn last_commit(&self) -> u64 {
        self.versions.last().map_or(0, |version| version.commit)
    }

    fn as_of(&self, commit: u64) -> Option<i64> {
        self.versions.iter().rfind(|version| version.commit <= commit)?.value
    }

    /// The value that a session sees: its own, or what its view of the others' is.
    fn seen(&self, by: u64, view: View, began: u64) -> Option<i64> {
        if let Some(own) = self.pending.iter().rfind(|pending| pending.by == by || view == View::Pending) {
            return own.value;
        }
        self.as_of(if view == View::Snapshot { began } else { u64::MAX })
    }

    /// Another session whose write is pending.
    fn other_writer(&self, by: u64) -> Option<u64> {
        self.pending.iter().map(|pending| pending.by).find(|writer| *writer != by)
    }
}

/// A session's transaction.
#[derive(Debug)]
struct Transaction {
    protection: Protection,
    /// The last commit when it began.
    began: u64,
    /// What it has read, by table.
    reads: Vec<(String, Condition)>,
    wrote: BTreeSet<(String, i64)>,
}

/// Why a statement is not done.
#[derive(Debug)]
enum Stop {
    /// Another session's write must end first.
    Wait(u64),
    Refused(String),
    Failed(String),
}

type Step<T> = Result<T, Stop>;

/// All tables and transactions, by the sessions' numbers.
#[derive(Debug, Default)]
struct State {
    commits: u64,
    sessions: u64,
    tables: BTreeMap<String, BTreeMap<i64, Row>>,
    transactions: BTreeMap<u64, Transaction>,
    /// Which session waits for which.
    waiting: BTreeMap<u64, u64>,
}

impl State {
    fn run(&mut self, by: u64, protection: Protection, statement: &Statement) -> Step<Reply> {
        match statement {
            Statement::Begin if self.transactions.contains_key(&by) => {
                Err(Stop::Failed("there is a transaction already".to_owned()))
            }
            Statement::Begin => {
                self.begin(by, protection);
                Ok(Reply::Done(None))
            }
            Statement::Commit => self.commit(by).map(|()| Reply::Done(None)),
            Statement::Rollback => {
                self.roll_back(by);
                Ok(Reply::Done(None))
            }
            statement if self.transactions.contains_key(&by) => self.apply(by, statement),
            statement => {
                self.begin(by, protection);
                let reply = self.apply(by, statement).and_then(|reply| self.commit(by).map(|()| reply));
                self.forget(by);
                reply
            }
        }
    }

    fn begin(&mut self, by: u64, protection: Protection) {
        let began = self.commits;
        let transaction = Transaction { protection, began, reads: Vec::new(), wrote: BTreeSet::default() };
        self.transactions.insert(by, transaction);
    }

    fn apply(&mut self, by: u64, statement: &Statement) -> Step<Reply> {
        match statement {
            Statement::Begin | Statement::Commit | Statement::Rollback => Ok(Reply::Done(None)),
            Statement::Select(Select { table, rows }) => {
                let found = self.read(by, table, rows)?;
                Ok(Reply::pairs(found))
            }
            Statement::Update(update) => {
                let found = self.read(by, &update.table, &update.rows)?;
                let changed = found.into_iter().map(|(id, value)| (id, Some(update.of(value))));
                self.write(by, &update.table, &changed.collect())
            }
            Statement::Delete(Select { table, rows }) => {
                let found = self.read(by, table, rows)?;
                self.write(by, table, &found.into_iter().map(|(id, _)| (id, None)).collect())
            }
            Statement::Insert { table, id, value } => {
                self.read(by, table, &Condition::Ids(vec![*id]))?;
                self.can_write(by, table, *id)?;
                let row = self.table(table)?.get(id);
                if row.is_some_and(|row| row.seen(by, View::Committed, 0).is_some()) {
                    return Err(Stop::Refused(format!("there is a row with id {id} already")));
                }
                self.write(by, table, &BTreeMap::from([(*id, Some(*value))]))
            }
        }
    }

    fn table(&mut self, name: &str) -> Step<&mut BTreeMap<i64, Row>> {
        self.tables.get_mut(name).ok_or_else(|| Stop::Failed(format!("there is no table {name}")))
    }

    fn transaction(&mut self, by: u64) -> Step<&mut Transaction> {
        self.transactions.get_mut(&by).ok_or_else(|| Stop::Failed("there is no transaction".to_owned()))
    }

    /// The rows that fulfil a condition, as the session sees them.
    fn read(&mut self, by: u64, table: &str, rows: &Condition) -> Step<Vec<(i64, i64)>> {
        let transaction = self.transaction(by)?;
        let (view, began) = (transaction.protection.view(rows), transaction.began);
        transaction.reads.push((table.to_owned(), rows.clone()));
        let seen = self.table(table)?.iter().filter_map(|(id, row)| Some((*id, row.seen(by, view, began)?)));
        Ok(seen.filter(|(id, value)| rows.holds(*id, *value)).collect())
    }

    /// Whether the session may write the row.
    fn can_write(&mut self, by: u64, table: &str, id: i64) -> Step<()> {
        let Transaction { protection, began, .. } = *self.transaction(by)?;
        let Some(row) = self.table(table)?.get(&id) else { return Ok(()) };
        match row.other_writer(by) {
            Some(other) if protection.waits_for_writers() => Err(Stop::Wait(other)),
            _ if protection.refuses_to_write_over() && row.last_commit() > began => {
                Err(Stop::Refused(format!("row {id} was changed since the transaction began")))
            }
            _ => Ok(()),
        }
    }

    /// Gives rows new values, or none of them.
    fn write(&mut self, by: u64, table: &str, values: &BTreeMap<i64, Option<i64>>) -> Step<Reply> {
        for id in values.keys() {
            self.can_write(by, table, *id)?;
        }
        for (id, value) in values {
            let pending = Pending { by, value: *value };
            self.table(table)?.entry(*id).or_default().pending.push(pending);
            self.transaction(by)?.wrote.insert((table.to_owned(), *id));
        }
        Ok(Reply::Done(Some(values.len() as u64)))
    }

    fn commit(&mut self, by: u64) -> Step<()> {
        self.transaction(by)?;
        let Some(transaction) = self.transactions.remove(&by) else { return Ok(()) };
        let outdated = self.outdated(&transaction);
        if outdated.is_none() {
            self.keep(by, &transaction);
        }
        self.forget(by);
        match outdated {
            None => Ok(()),
            Some(id) => {
                let why = format!("row {id}, which the transaction read, was changed since it began");
                Err(Stop::Refused(why))
            }
        }
    }

    /// A row that the transaction has read and that must not, but did change since. One that only reads takes place when it
    /// began.
    fn outdated(&self, Transaction { protection, began, reads, wrote }: &Transaction) -> Option<i64> {
        let mut compared = reads.iter().filter(|(_, rows)| !wrote.is_empty() && protection.compares(rows));
        compared.find_map(|(table, rows)| self.changed_since(*began, table, rows))
    }

    /// Makes a transaction's writes the newest versions of their rows.
    fn keep(&mut self, by: u64, Transaction { protection, wrote, .. }: &Transaction) {
        self.commits += 1;
        for (table, id) in wrote {
            let row = self.tables.get_mut(table).and_then(|table| table.get_mut(id));
            let Some(row) = row else { continue };
            let mut own = row.pending.iter().filter(|pending| pending.by == by);
            let kept = match protection.without {
                // whoever has written it
                Some(Anomaly::DirtyWrite) => row.pending.last(),
                Some(Anomaly::IntermediateRead) => own.next(),
                _ => own.next_back(),
            };
            row.versions.extend(kept.map(|kept| Version { commit: self.commits, value: kept.value }));
            row.pending.retain(|pending| pending.by != by && protection.waits_for_writers());
        }
    }

    /// A row in which what a condition finds was changed by a commit since then.
    fn changed_since(&self, began: u64, table: &str, rows: &Condition) -> Option<i64> {
        let mut table = self.tables.get(table)?.iter();
        let found = table.find(|(id, row)| {
            let is_found = |value: Option<i64>| value.is_some_and(|value| rows.holds(**id, value));
            let mut later = row.versions.iter().filter(|version| version.commit > began).peekable();
            later.peek().is_some()
                && (is_found(row.as_of(began)) || later.any(|version| is_found(version.value)))
        });
        found.map(|(id, _)| *id)
    }

    fn roll_back(&mut self, by: u64) {
        if let Some(transaction) = self.transactions.remove(&by)
            && transaction.protection.without == Some(Anomaly::AbortedRead)
        {
            self.keep(by, &transaction);
        }
        self.forget(by);
    }

    /// Forgets a session's transaction, and what it has written and not committed.
    fn forget(&mut self, by: u64) {
        self.transactions.remove(&by);
        for row in self.tables.values_mut().flat_map(BTreeMap::values_mut) {
            row.pending.retain(|pending| pending.by != by);
        }
    }

    /// Whether the session to be waited for waits for this one, be it by way of others.
    fn is_deadlock(&self, by: u64, other: u64) -> bool {
        let mut next = Some(other);
        while let Some(session) = next {
            if session == by {
                return true;
            }
            next = self.waiting.get(&session).copied();
        }
        false
    }
}

/// The tables, and the news that a transaction has ended.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    state: Mutex<State>,
    ended: Notify,
}

impl Memory {
    /// Removes all tables.
    pub(crate) fn clear_interactive(&self) {
        locked(&self.interactive.state).tables.clear();
    }
}

impl InteractiveStore for Memory {
    fn modes(&self) -> Task<'_, Result<Vec<Mode>, StoreError>> {
        let levels = Isolation::ALL.map(|level| Mode {
            name: level.words(),
            level: Some(level),
            how: "a mutex over versions of rows; writes wait for each other",
            is_default: level == Isolation::Serializable,
        });
        Box::pin(async move { Ok(levels.to_vec()) })
    }

    fn refuses(&self, _: &Mode, statement: &str) -> Option<String> {
        Statement::parse(statement).err().map(|error| error.to_string())
    }

    fn is_concurrent(&self) -> bool {
        true
    }

    fn make_table<'a>(&'a self, place: &'a Place, table: &'a Table) -> Task<'a, Result<String, StoreError>> {
        Box::pin(async move {
            let rows = table.pairs().map_err(|why| crate::gone("making a table", &why))?;
            let row = |value| Row {
                versions: vec![Version { commit: 0, value: Some(value) }],
                pending: Vec::new(),
            };
            let rows = rows.into_iter().map(|(id, value)| (id, row(value))).collect();
            let name = place.object(&table.name);
            locked(&self.interactive.state).tables.insert(name.clone(), rows);
            Ok(name)
        })
    }

    fn drop_table<'a>(&'a self, _: &'a Place, name: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            locked(&self.interactive.state).tables.remove(name);
            Ok(())
        })
    }

    fn session<'a>(
        &'a self,
        _: &'a Place,
        mode: &'a Mode,
    ) -> Task<'a, Result<Box<dyn InteractiveSession>, StoreError>> {
        Box::pin(async move {
            let mut state = locked(&self.interactive.state);
            state.sessions += 1;
            let protection = Protection::of(mode);
            Ok(Box::new(Session { tables: Arc::clone(&self.interactive), id: state.sessions, protection })
                as Box<dyn InteractiveSession>)
        })
    }

    fn lock_monitor(&self) -> Task<'_, Result<Option<Box<dyn LockMonitor>>, StoreError>> {
        Box::pin(async { Ok(Some(Box::new(Monitor(Arc::clone(&self.interactive))) as Box<dyn LockMonitor>)) })
    }
}

struct Session {
    tables: Arc<Tables>,
    id: u64,
    protection: Protection,
}

impl InteractiveSession for Session {
    fn id(&self) -> u64 {
        self.id
    }

    fn level(&self) -> &'static str {
        self.protection.level.sql()
    }

    fn run<'a>(&'a mut self, statement: &'a str) -> Task<'a, Reply> {
        Box::pin(async move {
            match Statement::parse(statement) {
                Ok(statement) => self.execute(&statement).await,
                Err(error) => Reply::Failed(error.to_string()),
            }
        })
    }
}

impl Session {
    /// Tries until the statement need not wait.
    async fn execute(&self, statement: &Statement) -> Reply {
        loop {
            // made before the look, so that no end is missed
            let ended = self.tables.ended.notified();
            if let Some(reply) = self.attempt(statement) {
                return reply;
            }
            let waits = Waits(self);
            ended.await;
            drop(waits);
        }
    }

    /// The statement's reply; none if it must wait for another session.
    fn attempt(&self, statement: &Statement) -> Option<Reply> {
        let mut state = locked(&self.tables.state);
        let done = state.run(self.id, self.protection, statement);
        let reply = match done {
            Ok(reply) => reply,
            Err(Stop::Wait(other)) if !state.is_deadlock(self.id, other) => {
                state.waiting.insert(self.id, other);
                return None;
            }
            Err(Stop::Wait(_)) => Reply::Refused("deadlock: the other waits for this transaction".to_owned()),
            Err(Stop::Refused(why)) => Reply::Refused(why),
            Err(Stop::Failed(why)) => Reply::Failed(why),
        };
        if matches!(reply, Reply::Refused(_)) {
            state.roll_back(self.id);
        }
        if !state.transactions.contains_key(&self.id) {
            self.tables.ended.notify_waiters();
        }
        Some(reply)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        locked(&self.tables.state).roll_back(self.id);
        self.tables.ended.notify_waiters();
    }
}

/// A session that waits, until this is dropped.
struct Waits<'a>(&'a Session);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        locked(&self.0.tables.state).waiting.remove(&self.0.id);
    }
}

struct Monitor(Arc<Tables>);

impl LockMonitor for Monitor {
    fn interval(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn waiting(&mut self) -> Task<'_, Result<BTreeSet<u64>, String>> {
        Box::pin(async { Ok(locked(&self.0.state).waiting.keys().copied().collect()) })
    }
}
