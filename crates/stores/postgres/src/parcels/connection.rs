//! One client's operations on parcels.

use acidtest_workloads::{
    Attempt,
    parcels::{Batch, Found, Inserted, Operations, Parcel, Scan},
};
use tokio_postgres::{Client, Error, Row, Statement, error::SqlState};

use super::{
    statements::{BatchStatement, InsertStatements, Statements, insert_in_one},
    table::stored,
};
use crate::{
    fault::{self, SendState},
    session::{Answered, Part, Session},
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
        which: impl AsyncFnOnce(&Client, &Statements) -> Result<Vec<Row>, Error>,
        found: &mut Found,
    ) -> Result<usize, Attempt> {
        let Self { session, statements, .. } = self;
        session.ready().await?;
        let rows = session.ask(async |client| which(client, statements).await).await;
        let rows = rows.map_err(|error| session.failed(&error, SendState::Nothing))?;
        for row in &rows {
            found.take(stored(row));
        }
        Ok(rows.len())
    }
}

impl Operations for Connection {
    async fn insert(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Attempt {
        let Self { session, statements, batch } = self;
        if let Err(lost) = session.ready().await {
            return lost;
        }
        batch.begin(scans);
        let done = match &statements.how {
            InsertStatements::InSteps { count, insert } => {
                in_steps(session, count, insert, scans, batch).await
            }
            InsertStatements::Locked { lock, count, insert } => {
                locked(session, (lock, count, insert), scans, batch).await
            }
            InsertStatements::InOne { call } => in_one(session, call, scans, batch).await,
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
        let which = async |client: &Client, statements: &Statements| {
            client.query(&statements.by_hash, &[&parcel.hash()]).await
        };
        self.read(which, found).await.err().unwrap_or(Attempt::Ok)
    }

    async fn by_id(&mut self, id: u64, found: &mut Found) -> Attempt {
        // the store gives no id above the greatest signed number
        let Ok(id) = i64::try_from(id) else { return Attempt::Refused };
        let which =
            async |client: &Client, statements: &Statements| client.query(&statements.by_id, &[&id]).await;
        match self.read(which, found).await {
            Ok(0) => Attempt::Refused,
            Ok(_) => Attempt::Ok,
            Err(trouble) => trouble,
        }
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
    let counted = session.ask(async |client| count.ask(client, scans, batch).await).await;
    let counted = counted.map_err(|error| session.failed(&error, SendState::Nothing))?;
    take_counts(&counted, scans, batch)?;
    if !batch.refuse_full() {
        return Ok(());
    }
    let rows = session.ask(async |client| insert.insert(client, scans, batch).await).await;
    let rows = rows.map_err(|error| failed(session, &error, SendState::Commit))?;
    take_ids(&rows, scans, batch)
}

/// Locks the parcels and counts their scans; then inserts and commits. What of it needs no answer to go on is sent at
/// once.
async fn locked(
    session: &mut Session,
    (lock, count, insert): (&BatchStatement, &BatchStatement, &BatchStatement),
    scans: &[Scan],
    batch: &mut Batch,
) -> Result<(), Attempt> {
    let first = async |client: &Client| tokio::join!(biased; lock.ask(client, scans, batch), count.ask(client, scans, batch));
    let Answered { begun, came: (locked, counted), .. } = session.part(Part::First, first).await;
    let counted = begun.and(locked).and(counted);
    let counted = counted.map_err(|error| session.failed(&error, SendState::Nothing));
    if let Err(trouble) = counted.and_then(|counted| take_counts(&counted, scans, batch)) {
        return Err(session.roll_back(trouble).await);
    }
    if !batch.refuse_full() {
        return match session.roll_back(Attempt::Ok).await {
            Attempt::Ok => Ok(()),
            trouble => Err(trouble),
        };
    }
    let last = async |client: &Client| insert.insert(client, scans, batch).await;
    let Answered { came, committed, .. } = session.part(Part::Last, last).await;
    let rows = came.map_err(|error| failed(session, &error, Part::Last.sent(&error)))?;
    session.committed(committed)?;
    take_ids(&rows, scans, batch)
}

/// Has the server's function do all, as one transaction. It answers nothing for a scan that it refuses.
async fn in_one(
    session: &mut Session,
    call: &Statement,
    scans: &[Scan],
    batch: &mut Batch,
) -> Result<(), Attempt> {
    let rows = session.ask(async |client| insert_in_one(client, call, scans, batch).await).await;
    let rows = rows.map_err(|error| failed(session, &error, SendState::Commit))?;
    rows.iter()
        .try_for_each(|row| {
            let count: i32 = row.try_get(2).ok()?;
            batch.took_with(batch.rank(scans, hash(row)?)?, version(row, 1)?, count.try_into().ok()?)
        })
        .ok_or_else(unreadable)
}

/// How an error ends an insert. A count that is there already is no fault; an id that is there already is one.
fn failed(session: &Session, error: &Error, sent: SendState) -> Attempt {
    let is_taken = error.as_db_error().is_some_and(|answer| {
        let is_id = answer.constraint().is_some_and(|name| name.ends_with("_pkey"));
        *answer.code() == SqlState::UNIQUE_VIOLATION && !is_id
    });
    if is_taken { Attempt::Conflict } else { session.failed(error, sent) }
}

fn take_counts(rows: &[Row], scans: &[Scan], batch: &mut Batch) -> Result<(), Attempt> {
    let unreadable = || fault::lost(SendState::Nothing, "a count that it has answered is none".to_owned());
    rows.iter().try_for_each(|row| batch.counted(scans, hash(row)?, version(row, 1)?)).ok_or_else(unreadable)
}

/// Takes the ids of the scans that were inserted, each of which must have been given one.
fn take_ids(rows: &[Row], scans: &[Scan], batch: &mut Batch) -> Result<(), Attempt> {
    let taken = rows.iter().try_for_each(|row| batch.took(batch.rank(scans, hash(row)?)?, version(row, 1)?));
    taken.filter(|()| rows.len() == batch.len()).ok_or_else(unreadable)
}

/// The scans have been inserted, but an answer that cannot be read is as good as no answer.
fn unreadable() -> Attempt {
    fault::lost(SendState::Commit, "an id or count that it has given is none".to_owned())
}

fn hash(row: &Row) -> Option<&[u8]> {
    row.try_get(0).ok().map(str::as_bytes)
}
