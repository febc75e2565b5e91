//! The port: how clients reach what takes their entries, and how a store says what it holds.

#![warn(missing_docs)]

use std::future::Future;

use acidtest_engine::{Attempt, ClientTask};
use acidtest_model::{Address, EffectiveSettings, StoreError, Task};

use super::{Entry, Id, Scenario, StoredEntry};
use crate::Place;

/// Entries that are sent together, as a line of JSON each.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The entries, in the order of their lines in [`body`](Self::body).
    pub entries: Vec<Entry>,
    /// The same as the body of an HTTP request.
    pub body: String,
}

impl Request {
    /// Makes it the request with these entries; their memory is reused.
    pub(super) fn fill(
        &mut self,
        prefix: &str,
        ids: impl Iterator<Item = Id>,
        timestamp: i64,
        message_bytes: usize,
    ) {
        self.entries.clear();
        self.body.clear();
        for id in ids {
            let entry = Entry::new(prefix, id, timestamp, message_bytes);
            entry.write(&mut self.body);
            self.entries.push(entry);
        }
    }
}

/// One client's connection: the timed operation.
pub trait Operations {
    /// Sends entries, and waits until they are acknowledged: all of them but those that [`refused`](Self::refused) then
    /// names. Refused says that none was taken, because too many wait; failed that none was for another reason. Anything
    /// else leaves open which of them were.
    fn send(&mut self, request: &Request) -> impl Future<Output = Attempt>;

    /// The places of those entries of the last acknowledged request that were not taken, in ascending order.
    fn refused(&self) -> &[usize] {
        &[]
    }
}

/// Opens connections.
pub trait Connector {
    /// One client's connection, whose operations follow each other.
    type Connection: Operations;

    /// Opens a connection.
    ///
    /// # Errors
    /// Why it could not be opened.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, String>>;
}

/// Is shown the entries that a store holds, one after the other.
pub type EntryVisitor<'a> = dyn FnMut(&StoredEntry<'_>) + Send + 'a;

/// Where a gateway stores the entries of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sink {
    /// The database.
    pub address: Address,
    /// The table in it, which the gateway makes.
    pub table: String,
    /// The schema in it where a gateway can keep its users; none where it keeps them beside.
    pub users: Option<String>,
}

/// The rows of a trial's entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The schema of `PostgreSQL` or the database of `MariaDB` that their table is in; none for the one that is used where
    /// none is named.
    pub schema: Option<String>,
    /// Their table, without the schema.
    pub table: String,
    /// What their ids begin with, where the table has others.
    pub prefix: String,
}

impl Rows {
    /// All rows of a table of the trial's own.
    #[must_use]
    pub fn own(schema: Option<String>, table: String) -> Self {
        Self { schema, table, prefix: String::new() }
    }

    /// The rows whose ids have this prefix in a table of somebody else's, `TABLE` or `SCHEMA.TABLE`.
    pub(super) fn among_others(table: &str, prefix: &str) -> Self {
        let (schema, table) =
            table.split_once('.').map_or((None, table), |(schema, name)| (Some(schema), name));
        Self { schema: schema.map(str::to_owned), table: table.to_owned(), prefix: prefix.to_owned() }
    }

    /// Whether the table has no others, and is the trial's own.
    #[must_use]
    pub fn has_no_others(&self) -> bool {
        self.prefix.is_empty()
    }
}

/// A database that a gateway can store entries in.
pub trait LogsStore: Send + Sync {
    /// Where the gateway is to store the trial's entries; none where clients give them to the store itself, by
    /// [`client`](Self::client).
    fn sink(&self, place: &Place) -> Option<Sink>;

    /// The rows of the trial's own table.
    fn rows(&self, place: &Place) -> Rows;

    /// Version, settings and durability level of what a gateway has stored; `server` is what was read back from the
    /// server.
    fn settings(&self, server: &EffectiveSettings) -> EffectiveSettings {
        server.clone()
    }

    /// A task for the engine that runs one client of a store that needs no gateway.
    fn client(&self, _place: &Place, _scenario: Scenario) -> Option<ClientTask> {
        None
    }

    /// Shows every entry that is stored in these rows, as often as it is.
    fn entries<'a>(
        &'a self,
        rows: &'a Rows,
        visit: &'a mut EntryVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>>;

    /// Removes these rows; their table, too, if it is the trial's own.
    fn unload<'a>(&'a self, rows: &'a Rows) -> Task<'a, Result<(), StoreError>>;
}
