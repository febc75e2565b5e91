//! Entries in PostgreSQL.
//!
//! A batch is copied into the table by `COPY`, the fastest way there is. `COPY` fails as a whole where an id is there
//! already: then the batch is inserted by one statement that leaves such entries out, and what differs is looked for.
//! So repeats cost a batch both ways, and none costs nothing.

use std::error::Error as _;

use acidtest_model::Address;
use acidtest_store_postgres::Connector;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::SinkExt;
use postgres_types::{IsNull, ToSql, Type, accepts, to_sql_checked};
use tokio_postgres::error::SqlState;

use super::{CONFLICT, OnConflict, Refused, SinkError, Stored, Tables};
use crate::{
    Error,
    postgres::{self, Session, words},
    queue::Queued,
};

/// Microseconds from 1970 to 2000, from which PostgreSQL counts.
const EPOCH: i64 = 946_684_800_000_000;

#[derive(Debug)]
pub(super) struct PostgresSink {
    connector: Connector,
    statements: Statements,
}

#[derive(Clone, Debug)]
struct Statements {
    copy: String,
    insert: String,
    conflicts: String,
    refuse: String,
}

#[derive(Debug)]
pub(crate) struct PostgresConnection {
    session: Session,
    statements: Statements,
}

impl Statements {
    fn new(tables: &Tables) -> Self {
        let Tables { entries, refused } = tables;
        let columns = "user_name, id, received_at, logged_at, level, application, message, attributes";
        let given = "unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::text[], $6::text[], \
                     $7::text[], $8::text[])";
        Self {
            copy: format!("COPY {entries} ({columns}) FROM STDIN (FORMAT binary)"),
            insert: format!(
                "INSERT INTO {entries} ({columns})
                 SELECT u, i, r, t, l, a, m, j::json FROM {given} AS n (u, i, r, t, l, a, m, j)
                 ON CONFLICT (user_name, id) DO NOTHING"
            ),
            conflicts: format!(
                "SELECT n.place FROM {given} WITH ORDINALITY AS n (u, i, r, t, l, a, m, j, place)
                 JOIN {entries} AS e ON e.user_name = n.u AND e.id = n.i
                 WHERE (e.logged_at, e.level, e.application, e.message, e.attributes::text)
                    IS DISTINCT FROM (n.t, n.l, n.a, n.m, n.j)
                 ORDER BY n.place"
            ),
            refuse: format!(
                "INSERT INTO {refused} (user_name, id, content, received_at, reason, entry)
                 VALUES ($1, $2, $3, timestamptz 'epoch' + $4::bigint * interval '1 microsecond', $5, $6::text::json)
                 ON CONFLICT DO NOTHING"
            ),
        }
    }
}

impl PostgresSink {
    pub(super) async fn open(address: &Address, tables: Tables) -> Result<(Self, String), Error> {
        let statements = Statements::new(&tables);
        let Tables { entries, refused } = tables;
        // the names of users and entries are compared by their bytes
        let schema = format!(
            "BEGIN;
            SELECT pg_advisory_xact_lock(4242004902);
            CREATE TABLE IF NOT EXISTS {entries} (
                user_name text COLLATE \"C\" NOT NULL, id text COLLATE \"C\" NOT NULL,
                received_at timestamptz NOT NULL, logged_at timestamptz NOT NULL, level text NOT NULL,
                application text NOT NULL, message text NOT NULL, attributes json, PRIMARY KEY (user_name, id));
            CREATE TABLE IF NOT EXISTS {refused} (
                user_name text NOT NULL, id text NOT NULL, content text NOT NULL, received_at timestamptz NOT NULL,
                reason text NOT NULL, entry json NOT NULL, PRIMARY KEY (user_name, id, content));
            COMMIT;"
        );
        let cannot = |why: String| {
            Error::Unreached(format!("entries cannot be stored in PostgreSQL at {address}: {why}"))
        };
        let unreached = |error: tokio_postgres::Error| cannot(words(&error));
        let connector = postgres::connector(address)?;
        let opened = Session::open(&connector).await;
        let session = opened.map_err(|error| cannot(postgres::unreached(&error, address)))?;
        session.batch_execute(&schema).await.map_err(unreached)?;
        for statement in [&statements.copy, &statements.insert, &statements.conflicts, &statements.refuse] {
            session.prepare(statement).await.map_err(|error| {
                Error::Unreached(format!(
                    "the table {entries} in PostgreSQL at {address} is not the gateway's: {}\n  remedy: choose another \
                     by --table",
                    words(&error)
                ))
            })?;
        }
        // a statement is planned, and its key looked for, only when it is run
        session.execute(&statements.insert, &Columns::of(&[]).parameters()).await.map_err(|error| {
            Error::Unreached(format!(
                "the table {entries} in PostgreSQL at {address} has no key (user_name, id), by which repeats are \
                 known: {}\n  remedy: choose another by --table, or give it that key",
                words(&error)
            ))
        })?;
        let settings = session
            .query_one("SELECT current_setting('server_version'), current_setting('fsync')", &[])
            .await
            .map_err(unreached)?;
        let setting = |at: usize| settings.try_get::<_, String>(at).map_err(unreached);
        let (version, fsync) = (setting(0)?, setting(1)?);
        // what survives depends on more settings, and on whether it is PostgreSQL: this says no more than these two do
        let synced = if fsync == "on" {
            "the log is synced at each commit"
        } else {
            "the log is written at each commit, and never synced"
        };
        let about = format!("PostgreSQL {version}, synchronous_commit on, fsync {fsync}: {synced}");
        Ok((Self { connector, statements }, about))
    }

    pub(super) async fn connect(&self) -> Result<PostgresConnection, SinkError> {
        let away =
            |why: String| SinkError::Away(format!("PostgreSQL at {}: {why}", self.connector.address()));
        let session = Session::open(&self.connector).await.map_err(|error| away(error.to_string()))?;
        // what is stored leaves the queue, and so must be synced
        let set = session.batch_execute("SET synchronous_commit = on").await;
        set.map_err(|error| away(words(&error)))?;
        Ok(PostgresConnection { session, statements: self.statements.clone() })
    }
}

impl PostgresConnection {
    pub(super) async fn store(
        &mut self,
        entries: &[Queued<'_>],
        on_conflict: OnConflict,
    ) -> Result<Stored, SinkError> {
        if entries.len() > 1 {
            match self.copy(entries).await {
                Ok(new) => return Ok(Stored { new, ..Stored::default() }),
                Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        self.insert(entries, on_conflict).await.map_err(|error| failed(&error))
    }

    async fn copy(&self, entries: &[Queued<'_>]) -> Result<u64, tokio_postgres::Error> {
        let copy = self.session.prepared(&self.statements.copy).await?;
        let rows = copied(entries);
        let mut rows_in = Box::pin(self.session.copy_in::<_, Bytes>(&copy).await?);
        rows_in.send(rows).await?;
        rows_in.as_mut().finish().await
    }

    /// Inserts what is not there yet, and looks for what is there with other content.
    async fn insert(
        &mut self,
        entries: &[Queued<'_>],
        on_conflict: OnConflict,
    ) -> Result<Stored, tokio_postgres::Error> {
        let columns = Columns::of(entries);
        let insert = self.session.prepared(&self.statements.insert).await?;
        if entries.len() == 1 {
            // by itself it is a transaction
            let new = self.session.execute(&insert, &columns.parameters()).await?;
            if new == 1 {
                return Ok(Stored { new, ..Stored::default() });
            }
        }
        let looked_for = self.session.prepared(&self.statements.conflicts).await?;
        let refuse = self.session.prepared(&self.statements.refuse).await?;
        self.session.batch_execute("BEGIN").await?;
        let stored = async {
            let new = self.session.execute(&insert, &columns.parameters()).await?;
            let rows = self.session.query(&looked_for, &columns.parameters()).await?;
            let mut conflicts = Vec::with_capacity(rows.len());
            for row in rows {
                let place: i64 = row.try_get(0)?;
                conflicts.push(usize::try_from(place - 1).unwrap_or(0));
            }
            if on_conflict == OnConflict::Keep {
                for place in &conflicts {
                    if let Some(entry) = entries.get(*place) {
                        self.session.execute(&refuse, &parameters(&Refused::new(entry, CONFLICT))).await?;
                    }
                }
            }
            self.session.batch_execute("COMMIT").await?;
            let repeated = (entries.len() as u64).saturating_sub(new + conflicts.len() as u64);
            Ok(Stored { new, repeated, conflicts })
        };
        let stored = stored.await;
        if stored.is_err() {
            // the connection may be lost, and then there is nothing to roll back
            let _ = self.session.batch_execute("ROLLBACK").await;
        }
        stored
    }

    pub(super) async fn keep_refused(&mut self, refused: &Refused) -> Result<(), SinkError> {
        let kept = async {
            let refuse = self.session.prepared(&self.statements.refuse).await?;
            self.session.execute(&refuse, &parameters(refused)).await
        };
        kept.await.map(|_| ()).map_err(|error| failed(&error))
    }
}

/// Whether the data is at fault, or the server.
fn failed(error: &tokio_postgres::Error) -> SinkError {
    let text = words(error);
    let class = error.code().map(|code| code.code().get(..2).unwrap_or_default().to_owned());
    if error.code() == Some(&SqlState::QUERY_CANCELED) {
        // by statement_timeout
        return SinkError::TooMuch(text);
    }
    match class.as_deref() {
        // data exceptions, violated constraints, limits such as that of an index row; what a trigger says; a view's check
        Some("22" | "23" | "54" | "09" | "P0" | "44") => SinkError::Refused(text),
        // a value that the driver cannot write is the entry's fault as well
        None if error.source().is_some_and(|cause| cause.to_string().contains("value too large")) => {
            SinkError::Refused(text)
        }
        _ => SinkError::Away(text),
    }
}

/// Entries as rows of a binary `COPY`.
fn copied(entries: &[Queued<'_>]) -> Bytes {
    let size: usize = entries.iter().map(|queued| 120 + queued.entry.message.len()).sum();
    let mut rows = BytesMut::with_capacity(size + 64);
    rows.put_slice(b"PGCOPY\n\xff\r\n\0");
    rows.put_i32(0);
    rows.put_i32(0);
    for Queued { user, received, entry } in entries {
        rows.put_i16(8);
        put_text(&mut rows, user);
        put_text(&mut rows, &entry.id);
        put_moment(&mut rows, *received);
        put_moment(&mut rows, entry.timestamp);
        put_text(&mut rows, entry.level.name());
        put_text(&mut rows, &entry.application);
        put_text(&mut rows, &entry.message);
        match entry.attributes {
            Some(attributes) => put_text(&mut rows, attributes),
            None => rows.put_i32(-1),
        }
    }
    rows.put_i16(-1);
    rows.freeze()
}

fn put_text(rows: &mut BytesMut, text: &str) {
    // texts of entries are far shorter
    rows.put_i32(i32::try_from(text.len()).unwrap_or(i32::MAX));
    rows.put_slice(text.as_bytes());
}

fn put_moment(rows: &mut BytesMut, micros: i64) {
    rows.put_i32(8);
    rows.put_i64(micros.saturating_sub(EPOCH));
}

/// Microseconds since 1970 as PostgreSQL's moment.
#[derive(Debug)]
struct Micros(i64);

impl ToSql for Micros {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.put_i64(self.0.saturating_sub(EPOCH));
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

/// Entries as arrays, one for each column.
struct Columns<'a> {
    texts: [Vec<&'a str>; 5],
    moments: [Vec<Micros>; 2],
    attributes: Vec<Option<&'a str>>,
}

impl<'a> Columns<'a> {
    fn of(entries: &'a [Queued<'a>]) -> Self {
        let texts = |of: fn(&'a Queued<'a>) -> &'a str| entries.iter().map(of).collect();
        Self {
            texts: [
                texts(|queued| queued.user),
                texts(|queued| &queued.entry.id),
                texts(|queued| queued.entry.level.name()),
                texts(|queued| &queued.entry.application),
                texts(|queued| &queued.entry.message),
            ],
            moments: [
                entries.iter().map(|queued| Micros(queued.received)).collect(),
                entries.iter().map(|queued| Micros(queued.entry.timestamp)).collect(),
            ],
            attributes: entries.iter().map(|queued| queued.entry.attributes).collect(),
        }
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 8] {
        let Self { texts: [user, id, level, application, message], moments: [received, logged], attributes } =
            self;
        [user, id, received, logged, level, application, message, attributes]
    }
}

fn parameters(refused: &Refused) -> [&(dyn ToSql + Sync); 6] {
    let Refused { user, id, content, received, reason, entry } = refused;
    [user, id, content, received, reason, entry]
}
