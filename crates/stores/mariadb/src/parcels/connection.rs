//! One client's operations on parcels.

use acidtest_workloads::{
    Attempt,
    parcels::{Batch, Found, Inserted, Operations, Parcel, Scan},
};

use super::{
    statements::{Guard, InsertStatements, RELEASE, Statements, told},
    table::stored,
};
use crate::{
    columns::{Columns, number, text},
    fault::{self, DUPLICATE, SendState},
    protocol::{Error, Rows, Statement, Value},
    session::{OperationResult, Session, UnitOfWork, is_lost},
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
        let read = session.read(statements.by_hash, [parcel.hash().into()]).await;
        take(read, found).map_or_else(|trouble| trouble, |_| Attempt::Ok)
    }

    async fn by_id(&mut self, id: u64, found: &mut Found) -> Attempt {
        let Self { session, statements, .. } = self;
        let read = session.read(statements.by_id, [id.into()]).await;
        match take(read, found) {
            Ok(0) => Attempt::Refused,
            Ok(_) => Attempt::Ok,
            Err(trouble) => trouble,
        }
    }

    async fn check(&mut self) -> Result<(), String> {
        self.session.check().await
    }
}

/// Takes the rows that were read, and returns how many they are.
fn take(read: Result<Rows<'_>, Attempt>, found: &mut Found) -> Result<usize, Attempt> {
    let read = read?;
    for row in read.iter() {
        found.take(stored(&row));
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
        bracket: &UnitOfWork,
        count: &Statement,
        insert: &Statement,
    ) -> OperationResult {
        self.session.begin(bracket);
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
                let released = self.session.connection().query(RELEASE).await;
                // a client that may still hold its locks must go
                let lost = |error: Error| fault::lost(SendState::Commit, error.to_string());
                released.map(|_| Attempt::Ok).map_err(lost)
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
            session.read(*lock, [sql.as_str().into()]).await?
        } else {
            statements.lock_several(sql, scans, batch);
            session.read_text(sql).await?
        };
        // 0 is a lock that was not got in time
        let is_got = read.first().is_some_and(|row| number(&row, 0) == Ok(1_u64));
        if is_got { Ok(()) } else { Err(Attempt::Conflict) }
    }

    /// Gives back all locks after an insert without effect, unless the connection is gone and the locks with it.
    async fn release_after(&mut self, trouble: Attempt) -> Attempt {
        if is_lost(&trouble) {
            return trouble;
        }
        let released = self.session.connection().query(RELEASE).await;
        released.map_or_else(|error| fault::lost(SendState::Nothing, error.to_string()), |_| trouble)
    }

    async fn count(&mut self, count: &Statement) -> Result<(), Attempt> {
        let Self { session, statements, scans, batch, sql } = self;
        let unreadable = || fault::lost(SendState::Nothing, "a count in its answer is invalid".to_owned());
        if let Some((scan, _)) = batch.only(scans) {
            let read = session.read(*count, [scan.hash().into()]).await?;
            let had = read.first().and_then(|row| number(&row, 0).ok());
            let noted = had.and_then(|had| batch.counted(scans, scan.hash().as_bytes(), had));
            return noted.ok_or_else(unreadable);
        }
        sql.clear();
        statements.count_several(sql, scans, batch);
        let read = session.read_text(sql).await?;
        read.iter()
            .try_for_each(|row| batch.counted(scans, row.bytes(0), number(&row, 1).ok()?))
            .ok_or_else(unreadable)
    }

    async fn write(&mut self, insert: &Statement, is_unique: bool) -> Result<(), Attempt> {
        let Self { session, statements, scans, batch, sql } = self;
        let several = batch.len() > 1;
        let failed = |error: &Error| match error.answer() {
            // an id that is there already is no count
            Some(answer)
                if is_unique && answer.code == DUPLICATE && !answer.message.ends_with("PRIMARY'") =>
            {
                Attempt::Conflict
            }
            _ => ended(error, statements.sent, several),
        };
        let done = if let Some((scan, count)) = batch.only(scans) {
            let [hash, kind, machine, code] =
                [scan.hash(), scan.kind(), scan.machine(), scan.code()].map(Value::from);
            let values = [hash, kind, count.into(), machine, code];
            session.send(|pipeline| pipeline.run(*insert, values), failed).await?
        } else {
            sql.clear();
            statements.insert_several(sql, scans, batch);
            session.send(|pipeline| pipeline.query(sql), failed).await?
        };
        // the rows of such a statement have ids one after the other on every engine
        let first = done.last_insert_id().filter(|first| *first > 0);
        let is_all = done.count() == batch.len() as u64;
        let taken = first.filter(|_| is_all).and_then(|first| take_ids(batch, first, statements.step));
        taken.ok_or_else(unreadable)
    }

    /// Has the server's procedure do all.
    async fn in_one(&mut self, call: &Statement) -> OperationResult {
        let Self { session, statements, scans, batch, sql } = self;
        sql.clear();
        told(sql, scans, batch);
        let several = batch.len() > 1;
        let failed = |error: &Error| match error.answer() {
            // a lock was not got, before anything was inserted
            Some(answer) if answer.code == SIGNALLED => Attempt::Conflict,
            _ => ended(error, statements.sent, several),
        };
        match session.send(|pipeline| pipeline.run(*call, [sql.as_str().into()]), failed).await {
            Ok(answer) => {
                let row = answer.first();
                let answer = row.as_ref().map_or("", |row| text(row, 0));
                take_answer(batch, answer).ok_or_else(unreadable)?;
                Ok(Attempt::Ok)
            }
            Err(ended) => {
                // the procedure rolls back and unlocks by itself, except after errors that end it at once
                let ended = session.give_up(&UnitOfWork::Transaction, ended).await;
                Err(self.release_after(ended).await)
            }
        }
    }
}

/// How an error of a write ends the insert. On an engine without transactions some of `several` scans may be there.
fn ended(error: &Error, sent: SendState, several: bool) -> Attempt {
    let ended = fault::attempt(error, sent);
    if sent == SendState::InPlace && several { ended.after_a_part() } else { ended }
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
    fault::lost(SendState::Write, "an id or count in its answer is invalid".to_owned())
}
