//! The database in which entries are stored.
//!
//! The table has no foreign key to users, who are elsewhere; its key is `(user_name, id)`, by which repeats are known.
//! What cannot be stored is kept in a second table, with the reason: an entry whose id is stored with other content, or
//! that the database refuses. So nothing that was acknowledged is lost without a trace.

#[cfg(feature = "mariadb")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod sqlite;

use std::{fmt::Write, time::Duration};

use acidtest_model::Address;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use crate::{Error, entry::Moment, queue::Queued};

/// What became of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Entries that are stored now, and were not before.
    pub(crate) new: u64,
    /// Entries that were stored before, just as they are: suppressed.
    pub(crate) repeated: u64,
    /// The places of entries whose ids are stored with other content.
    pub(crate) conflicts: Vec<usize>,
}

/// What is done about an entry whose id is stored with other content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnConflict {
    /// Nothing: whoever sent it is told.
    Tell,
    /// It is kept with those that were refused, because it was acknowledged.
    Keep,
}

/// Why entries were not stored, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SinkError {
    /// The database is away, full, or does not answer: they may have been stored, and can be stored again. The
    /// connection is of no use any more.
    #[error("{0}")]
    Away(String),
    /// The database does not take one of the entries. None was stored.
    #[error("{0}")]
    Refused(String),
    /// The database does not take so much at once, or is not done with it in the time that it gives a statement. None
    /// was stored, and fewer may be.
    #[error("{0}")]
    #[cfg_attr(
        not(any(feature = "mariadb", feature = "postgres")),
        allow(dead_code, reason = "SQLite has no such limit")
    )]
    TooMuch(String),
}

/// How long it may take to open the database at the start, and to connect to it.
const OPEN: Duration = Duration::from_mins(1);
const CONNECT: Duration = Duration::from_secs(5);

/// A database for entries, its table made.
#[derive(Debug)]
pub(crate) struct Sink {
    kind: Kind,
    /// What it is, and what its settings make of a commit.
    pub(crate) about: String,
}

#[derive(Debug)]
enum Kind {
    Sqlite(sqlite::SqliteSink),
    #[cfg(feature = "postgres")]
    Postgres(postgres::PostgresSink),
    #[cfg(feature = "mariadb")]
    MySql(mysql::MySqlSink),
}

/// A connection: one collector or one request uses it at a time.
#[derive(Debug)]
pub(crate) enum Connection {
    Sqlite(sqlite::SqliteConnection),
    #[cfg(feature = "postgres")]
    Postgres(postgres::PostgresConnection),
    #[cfg(feature = "mariadb")]
    MySql(Box<mysql::MySqlConnection>),
}

impl Sink {
    /// Opens the database at an address, makes its tables where there are none, and checks them where there are.
    pub(crate) async fn open(address: &Address, table: &str) -> Result<Self, Error> {
        let late = |_| Error::Unreached(format!("{address} does not answer within {} s", OPEN.as_secs()));
        let (kind, about) =
            timeout(OPEN, Kind::open(address, Tables::named(table)?)).await.map_err(late)??;
        Ok(Self { kind, about })
    }

    pub(crate) async fn connect(&self) -> Result<Connection, SinkError> {
        let connected = timeout(CONNECT, self.kind.connect()).await;
        connected
            .unwrap_or_else(|_| Err(SinkError::Away(format!("no answer within {} s", CONNECT.as_secs()))))
    }

    /// Why nothing can be stored yet, where the database was not opened because there is no room for it.
    pub(crate) fn trouble(&self) -> Option<String> {
        match &self.kind {
            Kind::Sqlite(sink) => sink.trouble(),
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => None,
            #[cfg(feature = "mariadb")]
            Kind::MySql(_) => None,
        }
    }

    /// Whether only one connection can write at a time.
    pub(crate) fn has_one_writer(&self) -> bool {
        matches!(self.kind, Kind::Sqlite(_))
    }
}

impl Kind {
    async fn open(address: &Address, tables: Tables) -> Result<(Self, String), Error> {
        Ok(match address.scheme.as_str() {
            "sqlite" => {
                let (sink, about) = sqlite::SqliteSink::open(&address.path, tables).await?;
                (Self::Sqlite(sink), about)
            }
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => {
                let (sink, about) = postgres::PostgresSink::open(address, tables).await?;
                (Self::Postgres(sink), about)
            }
            #[cfg(feature = "mariadb")]
            "mysql" | "mariadb" => {
                let (sink, about) = mysql::MySqlSink::open(address, tables).await?;
                (Self::MySql(sink), about)
            }
            other => {
                return Err(Error::Usage(format!(
                    "entries are stored in SQLite, PostgreSQL, MariaDB or MySQL, not at an address that begins with \
                     {other}:\n  remedy: --sink sqlite:FILE, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE"
                )));
            }
        })
    }

    async fn connect(&self) -> Result<Connection, SinkError> {
        match self {
            Self::Sqlite(sink) => sink.connect().await.map(Connection::Sqlite),
            #[cfg(feature = "postgres")]
            Self::Postgres(sink) => sink.connect().await.map(Connection::Postgres),
            #[cfg(feature = "mariadb")]
            Self::MySql(sink) => sink.connect().await.map(Box::new).map(Connection::MySql),
        }
    }
}

impl Connection {
    /// Stores entries in one transaction: all of them, or none.
    pub(crate) async fn store(
        &mut self,
        entries: &[Queued<'_>],
        on_conflict: OnConflict,
    ) -> Result<Stored, SinkError> {
        match self {
            Self::Sqlite(connection) => connection.store(entries, on_conflict).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(connection) => connection.store(entries, on_conflict).await,
            #[cfg(feature = "mariadb")]
            Self::MySql(connection) => connection.store(entries, on_conflict).await,
        }
    }

    /// Keeps an entry that cannot be stored, with the reason.
    pub(crate) async fn keep_refused(&mut self, entry: &Queued<'_>, reason: &str) -> Result<(), SinkError> {
        let refused = Refused::new(entry, reason);
        match self {
            Self::Sqlite(connection) => connection.keep_refused(refused).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(connection) => connection.keep_refused(&refused).await,
            #[cfg(feature = "mariadb")]
            Self::MySql(connection) => connection.keep_refused(&refused).await,
        }
    }
}

/// The reason that is kept with an entry whose id is stored with other content.
const CONFLICT: &str = "its id is stored with other content";

/// The names of the tables: that of entries, and that of those which were refused.
#[derive(Clone, Debug)]
struct Tables {
    entries: String,
    refused: String,
}

impl Tables {
    fn named(table: &str) -> Result<Self, Error> {
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let is_name = |name: &str| {
            let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
            begins && name.len() <= 48 && name.bytes().all(is_letter)
        };
        let (schema, name) =
            table.split_once('.').map_or((None, table), |(schema, name)| (Some(schema), name));
        if !is_name(name) || schema.is_some_and(|schema| !is_name(schema)) {
            return Err(Error::Usage(format!(
                "\"{table}\" is not a valid name for a table: use up to 48 lower-case letters, digits and _, no digit \
                 first, and with PostgreSQL optionally a schema and a dot before"
            )));
        }
        Ok(Self { entries: table.to_owned(), refused: format!("{table}_refused") })
    }
}

/// An entry that cannot be stored, as it is kept.
#[derive(Clone, Debug)]
struct Refused {
    user: String,
    id: String,
    /// A hash of what it says: the same entry is kept once.
    content: String,
    /// Microseconds since 1970.
    received: i64,
    reason: String,
    /// All of it, as JSON in ASCII, with its attributes as they were written.
    entry: String,
}

impl Refused {
    fn new(queued: &Queued<'_>, reason: &str) -> Self {
        #[derive(Serialize)]
        struct Json<'a> {
            id: &'a str,
            timestamp: String,
            level: &'a str,
            application: &'a str,
            message: &'a str,
            attributes: Option<&'a RawValue>,
        }
        let entry = &queued.entry;
        let json = Json {
            id: &entry.id,
            timestamp: Moment(entry.timestamp).to_string(),
            level: entry.level.name(),
            application: &entry.application,
            message: &entry.message,
            attributes: entry.attributes.and_then(|text| serde_json::from_str(text).ok()),
        };
        let text = serde_json::to_string(&json).unwrap_or_default();
        let content = Sha256::digest(&text);
        Self {
            user: queued.user.to_owned(),
            id: entry.id.clone().into_owned(),
            content: BASE64_URL_SAFE_NO_PAD.encode(content.iter().copied().take(24).collect::<Vec<u8>>()),
            received: queued.received,
            reason: ascii(&reason.chars().take(400).collect::<String>()),
            entry: ascii(&text),
        }
    }
}

/// JSON, or another text, with what is not ASCII escaped as in JSON.
fn ascii(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii() {
            plain.push(letter);
        } else {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                // writing into a string cannot fail
                let _ = write!(plain, "\\u{unit:04x}");
            }
        }
    }
    plain
}
