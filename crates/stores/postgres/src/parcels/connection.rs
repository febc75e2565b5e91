//! One client's operations on parcels.

use acidtest_workloads::{
    Attempt,
    parcels::{Batch, Found, Inserted, Operations, Parcel, Scan},
};
use tokio_postgres::error::SqlState;

use super::{
    statements::{BatchStatement, InsertStatements, Statements, insert_in_one},
    table::stored,
};
use crate::{
    Value,
    fault::{self, SendState},
    protocol::{Error, Row, Rows, Statement},
    session::{Part, Session},
    value::version,
};

pub(crate) struct Connection {
    session: Session,
    statements: Statements,
    batch: Batch,
}

impl Connection {
    pub(crate) fn new(session: Session, statements: Statements) -> Self {
        Self { session, statements, batch: Batch::default() }
    }

    async fn read(
        &mut self,
        statement: Statement,
        key: Value<'_>,
        found: &mut Found,
    ) -> Result<usize, Attempt> {
        let rows = self.session.run(statement, [key], SendState::Nothing).await?;
        for row in rows {
            found.take(stored(&row));
        }
        Ok(rows.len())
    }
}

impl Operations for Connection {
    async fn insert(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Attempt {
        let Self { session, statements, batch } = self;
        batch.begin(scans);
        let done = match &statements.how {
            InsertStatements::InSteps { count, insert } => {
                in_steps(session, count, insert, scans, batch).await
            }
            InsertStatements::Locked { lock, count, insert } => {
                locked(session, (lock, count, insert), scans, batch).await
            }
            InsertStatements::InOne { call } => in_one(session, *call, scans, batch).await,
        };
        match done {
            Ok(()) => {
                batch.answer(inserted);
                Attempt::Ok
            }
            Err(trouble) => trouble,
        }
    }

    async fn by_hash(&mut self, parcel: &Parcel, found: &mut Found) -> Attempt {
        let read = self.read(self.statements.by_hash, Value::Text(parcel.hash()), found);
        read.await.err().unwrap_or(Attempt::Ok)
    }

    async fn by_id(&mut self, id: u64, found: &mut Found) -> Attempt {
        // the store gives no id above the greatest signed number
        let Ok(id) = i64::try_from(id) else { return Attempt::Refused };
        match self.read(self.statements.by_id, Value::Number(id), found).await {
            Ok(0) => Attempt::Refused,
            Ok(_) => Attempt::Ok,
            Err(trouble) => trouble,
        }
    }

    async fn check(&mut self) -> Result<(), String> {
        self.session.check().await
    }
}

/// Counts and then inserts, each as a transaction by itself. Under a soft lock a unique index refuses a count that
/// somebody else was faster to insert.
async fn in_steps(
    session: &mut Session,
    count: &BatchStatement,
    insert: &BatchStatement,
    scans: &[Scan],
    batch: &mut Batch,
) -> Result<(), Attempt> {
    let counted = session.at_once(|pipeline| count.ask(pipeline, scans, batch)).await?;
    let counted = counted.get(0).map_err(|error| fault::attempt(error, SendState::Nothing))?;
    take_counts(counted, scans, batch)?;
    if !batch.refuse_full() {
        return Ok(());
    }
    let inserted = session.at_once(|pipeline| insert.insert(pipeline, scans, batch)).await?;
    let rows = inserted.get(0).map_err(|error| failed(error, SendState::Commit))?;
    take_ids(rows, scans, batch)
}

/// Locks the parcels and counts their scans; then inserts and commits. What of it needs no answer to go on is sent at
/// once.
async fn locked(
    session: &mut Session,
    (lock, count, insert): (&BatchStatement, &BatchStatement, &BatchStatement),
    scans: &[Scan],
    batch: &mut Batch,
) -> Result<(), Attempt> {
    let first = session.part(Part::First, |pipeline| {
        lock.ask(pipeline, scans, batch)?;
        count.ask(pipeline, scans, batch)
    });
    let counted = first.await.and_then(|first| {
        first.begun(false)?;
        let failed = |error: &Error| fault::attempt(error, SendState::Nothing);
        first.came().get(0).map_err(failed)?;
        take_counts(first.came().get(1).map_err(failed)?, scans, batch)
    });
    if let Err(trouble) = counted {
        return Err(session.roll_back(trouble).await);
    }
    if !batch.refuse_full() {
        return match session.roll_back(Attempt::Ok).await {
            Attempt::Ok => Ok(()),
            trouble => Err(trouble),
        };
    }
    let last = session.part(Part::Last, |pipeline| insert.insert(pipeline, scans, batch)).await?;
    let rows = last.came().get(0).map_err(|error| failed(error, last.sent()))?;
    last.committed()?;
    take_ids(rows, scans, batch)
}

/// Has the server's function do all, as one transaction. It answers nothing for a scan that it refuses.
async fn in_one(
    session: &mut Session,
    call: Statement,
    scans: &[Scan],
    batch: &mut Batch,
) -> Result<(), Attempt> {
    let answers = session.at_once(|pipeline| insert_in_one(pipeline, call, scans, batch)).await?;
    let rows = answers.get(0).map_err(|error| failed(error, SendState::Commit))?;
    let mut each = rows.into_iter();
    each.try_for_each(|row| {
        let count: i32 = row.get(2).ok()?;
        batch.took_with(batch.rank(scans, hash(&row)?)?, version(&row, 1)?, count.try_into().ok()?)
    })
    .ok_or_else(unreadable)
}

/// How an error ends an insert. A count that is there already is no fault; an id that is there already is one.
fn failed(error: &Error, sent: SendState) -> Attempt {
    let is_taken = error.answer().is_some_and(|answer| {
        let is_id = answer.constraint.as_ref().is_some_and(|name| name.ends_with("_pkey"));
        answer.code == SqlState::UNIQUE_VIOLATION && !is_id
    });
    if is_taken { Attempt::Conflict } else { fault::attempt(error, sent) }
}

fn take_counts(rows: Rows<'_>, scans: &[Scan], batch: &mut Batch) -> Result<(), Attempt> {
    let unreadable = || fault::lost(SendState::Nothing, "a count in its answer is invalid".to_owned());
    let mut each = rows.into_iter();
    each.try_for_each(|row| batch.counted(scans, hash(&row)?, version(&row, 1)?)).ok_or_else(unreadable)
}

/// Takes the ids of the scans that were inserted, each of which must have been given one.
fn take_ids(rows: Rows<'_>, scans: &[Scan], batch: &mut Batch) -> Result<(), Attempt> {
    let mut each = rows.into_iter();
    let taken = each.try_for_each(|row| batch.took(batch.rank(scans, hash(&row)?)?, version(&row, 1)?));
    taken.filter(|()| rows.len() == batch.len()).ok_or_else(unreadable)
}

/// The scans have been inserted, but an answer that cannot be read is as good as no answer.
fn unreadable() -> Attempt {
    fault::lost(SendState::Commit, "an id or count in its answer is invalid".to_owned())
}

fn hash<'a>(row: &Row<'a>) -> Option<&'a [u8]> {
    row.get(0).ok().map(str::as_bytes)
}
