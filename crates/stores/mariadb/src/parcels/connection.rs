//! One client's operations on parcels.

use acidtest_workloads::{
    Attempt,
    parcels::{Batch, Found, Inserted, Operations, Parcel, Scan},
};
use mysql_async::{Error, Row, Statement, Value, prelude::Queryable};

use super::{
    statements::{Guard, InsertStatements, RELEASE, Statements, told},
    table::{bytes, stored},
};
use crate::{
    fault::{self, DUPLICATE, SendState},
    session::{Bracket, OperationResult, Session, number, rows, text},
};

/// Error 1644: a procedure says by itself that it has failed.
const SIGNALLED: u16 = 1644;

pub(crate) struct Connection {
    session: Session,
    statements: Statements,
    batch: Batch,
    /// A statement of several scans, or what a single one is told. Its memory is reused.
    sql: String,
}

impl Connection {
    pub(crate) fn new(session: Session, statements: Statements) -> Self {
        Self { session, statements, batch: Batch::default(), sql: String::new() }
    }
}

impl Operations for Connection {
    async fn insert(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Attempt {
        let Self { session, statements, batch, sql } = self;
        batch.begin(scans);
        let mut insert = Insert { session, statements, scans, batch, sql };
        let done = match &statements.how {
            InsertStatements::InOne { call } => insert.in_one(call).await,
            InsertStatements::InSteps { count, insert: write, guard } => match guard {
                Guard::None => insert.in_steps(count, write, false).await,
                Guard::Unique => insert.in_steps(count, write, true).await,
                Guard::Named(lock) => insert.locked(lock, count, write).await,
                Guard::Table(bracket) => insert.bracketed(bracket, count, write).await,
            },
        };
        let done = done.unwrap_or_else(|trouble| trouble);
        if done == Attempt::Ok {
            batch.answer(inserted);
        }
        done
    }

    async fn by_hash(&mut self, parcel: &Parcel, found: &mut Found) -> Attempt {
        let Self { session, statements, .. } = self;
        let read = session.read(&statements.by_hash, (parcel.hash(),)).await;
        take(read, found).map_or_else(|trouble| trouble, |_| Attempt::Ok)
    }

    async fn by_id(&mut self, id: u64, found: &mut Found) -> Attempt {
        let Self { session, statements, .. } = self;
        let read = session.read(&statements.by_id, (id,)).await;
        match take(read, found) {
            Ok(0) => Attempt::Refused,
            Ok(_) => Attempt::Ok,
            Err(trouble) => trouble,
        }
    }
}

/// Takes the rows that were read, and returns how many they are.
fn take(read: Result<Vec<Row>, Attempt>, found: &mut Found) -> Result<usize, Attempt> {
    let read = read?;
    for row in &read {
        found.take(stored(row));
    }
    Ok(read.len())
}

/// An insert under way.
struct Insert<'a> {
    session: &'a mut Session,
    statements: &'a Statements,
    scans: &'a [Scan],
    batch: &'a mut Batch,
    sql: &'a mut String,
}

impl Insert<'_> {
    /// Counts, and inserts with the counts. `is_unique`: whether a count that is there already is refused.
    async fn in_steps(&mut self, count: &Statement, insert: &Statement, is_unique: bool) -> OperationResult {
        self.count(count).await?;
        if self.batch.refuse_full() {
            self.write(insert, is_unique).await?;
        }
        Ok(Attempt::Ok)
    }

    async fn bracketed(
        &mut self,
        bracket: &Bracket,
        count: &Statement,
        insert: &Statement,
    ) -> OperationResult {
        self.session.begin(bracket).await?;
        let done = self.in_steps(count, insert, false).await;
        self.session.end(bracket, done).await
    }

    async fn locked(&mut self, lock: &Statement, count: &Statement, insert: &Statement) -> OperationResult {
        let done = match self.lock(lock).await {
            Ok(()) => self.in_steps(count, insert, false).await,
            Err(trouble) => Err(trouble),
        };
        match done {
            Ok(Attempt::Ok) => {
                let released = self.session.conn.query_drop(RELEASE).await;
                // a client that may still hold its locks must go
                let lost = |error: Error| fault::lost(SendState::Commit, fault::words(&error));
                released.map(|()| Attempt::Ok).map_err(lost)
            }
            Ok(trouble) | Err(trouble) => Err(self.release_after(trouble).await),
        }
    }

    /// Takes the locks of all parcels. Some of them may be held where it fails.
    async fn lock(&mut self, lock: &Statement) -> Result<(), Attempt> {
        let Self { session, statements, scans, batch, sql } = self;
        sql.clear();
        let read = if let Some((scan, _)) = batch.only(scans) {
            statements.lock_name(sql, scan);
            session.read(lock, (sql.as_str(),)).await?
        } else {
            statements.lock_several(sql, scans, batch);
            let read = session.conn.query(sql.as_str()).await;
            read.map_err(|error| fault::attempt(&error, SendState::Nothing))?
        };
        // 0 is a lock that was not got in time
        let is_got = read.first().is_some_and(|row| number(row, 0) == Ok(1_u64));
        if is_got { Ok(()) } else { Err(Attempt::Conflict) }
    }

    /// Gives back all locks after an insert without effect, unless the connection is gone and the locks with it.
    async fn release_after(&mut self, trouble: Attempt) -> Attempt {
        if let Attempt::Failed(fault) | Attempt::Unknown(fault) = &trouble
            && fault.connection_lost
        {
            return trouble;
        }
        let released = self.session.conn.query_drop(RELEASE).await;
        released.map_or_else(|error| fault::lost(SendState::Nothing, fault::words(&error)), |()| trouble)
    }

    async fn count(&mut self, count: &Statement) -> Result<(), Attempt> {
        let Self { session, statements, scans, batch, sql } = self;
        let unreadable =
            || fault::lost(SendState::Nothing, "a count that it has answered is none".to_owned());
        if let Some((scan, _)) = batch.only(scans) {
            let read = session.read(count, (scan.hash(),)).await?;
            let had = read.first().and_then(|row| number(row, 0).ok());
            let noted = had.and_then(|had| batch.counted(scans, scan.hash().as_bytes(), had));
            return noted.ok_or_else(unreadable);
        }
        sql.clear();
        statements.count_several(sql, scans, batch);
        let read: Result<Vec<Row>, Error> = session.conn.query(sql.as_str()).await;
        let read = read.map_err(|error| fault::attempt(&error, SendState::Nothing))?;
        read.iter()
            .try_for_each(|row| batch.counted(scans, bytes(row, 0), number(row, 1).ok()?))
            .ok_or_else(unreadable)
    }

    async fn write(&mut self, insert: &Statement, is_unique: bool) -> Result<(), Attempt> {
        let Self { session, statements, scans, batch, sql } = self;
        let conn = &mut session.conn;
        let done = if let Some((scan, count)) = batch.only(scans) {
            let texts = [scan.hash(), scan.kind(), scan.machine(), scan.code()].map(Value::from);
            let [hash, kind, machine, code] = texts;
            conn.exec_drop(insert, (hash, kind, count, machine, code)).await
        } else {
            sql.clear();
            statements.insert_several(sql, scans, batch);
            conn.query_drop(sql.as_str()).await
        };
        done.map_err(|error| match &error {
            // an id that is there already is no count
            Error::Server(answer)
                if is_unique && answer.code == DUPLICATE && !answer.message.ends_with("PRIMARY'") =>
            {
                Attempt::Conflict
            }
            error => self.failed(error),
        })?;
        let Self { session, statements, batch, .. } = self;
        // the rows of such a statement have ids one after the other on every engine
        let first = session.conn.last_insert_id().filter(|first| *first > 0);
        let is_all = session.conn.affected_rows() == batch.len() as u64;
        let taken = first.filter(|_| is_all).and_then(|first| take_ids(batch, first, statements.step));
        taken.ok_or_else(unreadable)
    }

    /// How an error of a write ends the insert. On an engine without transactions the scans before it may be there.
    fn failed(&self, error: &Error) -> Attempt {
        let ended = fault::attempt(error, self.statements.sent);
        let may_be_half = self.statements.sent == SendState::InPlace && self.batch.len() > 1;
        if may_be_half { ended.after_a_part() } else { ended }
    }

    /// Has the server's procedure do all.
    async fn in_one(&mut self, call: &Statement) -> OperationResult {
        let Self { session, scans, batch, sql, .. } = self;
        sql.clear();
        told(sql, scans, batch);
        match rows(&mut session.conn, call, (sql.as_str(),)).await {
            Ok(answer) => {
                let answer = answer.first().map(|row| text(row, 0)).unwrap_or_default();
                take_answer(batch, &answer).ok_or_else(unreadable)?;
                Ok(Attempt::Ok)
            }
            Err(error) => {
                let ended = match &error {
                    // a lock was not got, before anything was inserted
                    Error::Server(answer) if answer.code == SIGNALLED => Attempt::Conflict,
                    error => self.failed(error),
                };
                // the procedure rolls back and unlocks by itself, except after errors that end it at once
                let ended = self.session.give_up(&Bracket::Transaction, ended).await;
                Err(self.release_after(ended).await)
            }
        }
    }
}

/// Notes that all scans were inserted, with ids from `first` on, in steps of `step`. `None` if there are no such ids.
fn take_ids(batch: &mut Batch, first: u64, step: u64) -> Option<()> {
    (0..batch.len()).zip(0..).try_for_each(|(rank, steps)| {
        let id = step.checked_mul(steps).and_then(|above| first.checked_add(above))?;
        batch.took(rank, id)
    })
}

/// Takes what a procedure has answered of each scan: its id and count, or nothing, and a semicolon. `None` if it is not
/// that.
fn take_answer(batch: &mut Batch, answer: &str) -> Option<()> {
    let mut each = answer.split_terminator(';');
    for rank in 0..batch.len() {
        let given = each.next()?;
        if !given.is_empty() {
            let (id, count) = given.split_once(' ')?;
            batch.took_with(rank, id.parse().ok()?, count.parse().ok()?)?;
        }
    }
    each.next().is_none().then_some(())
}

/// The scans have been inserted, but an answer that cannot be read is as good as no answer.
fn unreadable() -> Attempt {
    fault::lost(SendState::Write, "an id or count that it has given is none".to_owned())
}
