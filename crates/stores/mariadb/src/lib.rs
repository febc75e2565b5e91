//! `MariaDB` and `MySQL`, each with its engines as stores of their own ([`Variant`]): one connection a client, over
//! TCP without TLS, statements prepared once.
//!
//! # Guarantees
//!
//! Checked on `MariaDB` 10.11.19, and `InnoDB` and `MyISAM` on `MySQL` 9.7.4 as well.
//!
//! ## Inventory
//!
//! `InnoDB` only, at its default isolation, REPEATABLE READ. Every decision rests on a locking read or on
//! one statement, so a weaker level gives the same results. `…` is the tuple's primary key, `group` its
//! first three columns.
//!
//! | guarantee | statements |
//! | --- | --- |
//! | lock none | `SELECT warehouse, count … WHERE group ORDER BY warehouse`, then `UPDATE … SET count = <computed>`, each its own transaction |
//! | lock soft | `SELECT …, version`, then `UPDATE … SET count = count - n, version = version + 1 WHERE … AND version = <read>` (several: in one transaction); no row found means stale |
//! | lock hard | `START TRANSACTION`, `SELECT … WHERE group ORDER BY warehouse FOR UPDATE`, the `UPDATE`s, `COMMIT` |
//! | lock native | one `CALL` of a stored procedure that does the same; there is no `UPDATE … RETURNING` |
//! | release | one `UPDATE … SET count = count + n` in every mode (soft: and `version = version + 1`) |
//!
//! ## Records
//!
//! Records are rows of `usertable`: `id VARCHAR(32)` (ASCII, by its bytes) as primary key where there is one, `version
//! BIGINT`, a `VARCHAR` for each field (`MEDIUMTEXT` where a row would be above 65,000 bytes). `columns` is the version
//! alone for an update, and all fields too where they are read; `…` is `WHERE id = <key>`. They are laid in by key:
//! `LOAD DATA LOCAL INFILE`, streamed, where `local_infile` (in the result's settings) is ON, else `INSERT`s of many
//! rows; 20,000 records a statement or transaction. A MEMORY table may grow to four times what is laid in
//! (`max_heap_table_size` of the session that makes it), its key is a hash, or a tree where the mix scans.
//!
//! | guarantee | statements |
//! | --- | --- |
//! | lock none | `SELECT columns …`, then `UPDATE … SET version = <read + 1>, <fields>`, each its own transaction |
//! | lock soft | the same, with `AND version = <read>` in the `UPDATE`; no row found means stale |
//! | lock hard, InnoDB | `START TRANSACTION`, `SELECT columns … FOR UPDATE`, the `UPDATE`, `COMMIT` |
//! | lock hard, elsewhere | `LOCK TABLES … WRITE`, `SELECT columns …`, the `UPDATE`, `UNLOCK TABLES` |
//! | lock native, update | one `UPDATE … SET version = LAST_INSERT_ID(version + 1), <fields>`, whose answer carries the version |
//! | lock native, rmw, InnoDB | one `CALL` of a stored procedure: `SELECT … FOR UPDATE`, `UPDATE`, in a transaction |
//! | lock native, rmw, elsewhere | one `CALL` of a stored procedure: one `UPDATE`, which locks the table and notes in variables of the session what it overwrites; then `SELECT` of these |
//! | read, insert, scan | one `SELECT`, one `INSERT` (1062 means refused), one `SELECT … WHERE id >= <key> ORDER BY id LIMIT n`, in every mode |
//! | transaction | InnoDB: `START TRANSACTION`, the same statements, `COMMIT`; a record that is not there, a stale version or a conflict ends it with `ROLLBACK` |
//! | isolation | InnoDB: `SET SESSION TRANSACTION ISOLATION LEVEL …`, read back as `transaction_isolation` or `tx_isolation`; a difference fails the connection |
//!
//! ## Queue
//!
//! `InnoDB` only. A table of `id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY` and `body LONGBLOB`. A message is a row,
//! and is deleted when it is consumed.
//!
//! | guarantee | statements |
//! | --- | --- |
//! | ack confirm | one `INSERT` a message, its own transaction; one at a time |
//! | ack transaction | `autocommit=0`: one `INSERT` of the batch (above 8 MiB: several), `COMMIT` |
//! | consume ack, transaction | the same, at `autocommit=0`: `SELECT … WHERE id > <last> ORDER BY id LIMIT batch FOR UPDATE SKIP LOCKED`; when the batch is acknowledged, `DELETE … WHERE id = <taken>`, or of several `DELETE … FROM JSON_TABLE(<taken>) STRAIGHT_JOIN …`, and `COMMIT`. With `id IN (…)` the server reads a small table whole, and waits for what other consumers have locked. A consumer that dies gives back what it had locked, as its transaction is rolled back; there is no flag that says so |
//! | consume auto | the same for one message, committed before it is handed out: `DELETE … RETURNING` is `MariaDB`'s alone, and cannot pass by what others have locked |
//! | nothing there | the same `SELECT` every 2 ms |
//! | order | none promised: a search that locks sees what is committed while it goes on, and may pass by a message that is not yet to find its producer's next; and what a consumer gives back comes after what others have taken |
//!
//! Consumers run at READ COMMITTED: at REPEATABLE READ a search also locks the gaps in which producers insert. Needs
//! `MariaDB` 10.6 or `MySQL` 8.0.4. Deleted rows stay where consumers begin to look until `InnoDB` purges them, which a
//! transaction that is left open keeps it from. Transient messages, copies, dropping duplicates and several messages in
//! flight are refused.
//!
//! ## Engines and durability
//!
//! | engine | rungs | why | what it cannot |
//! | --- | --- | --- | --- |
//! | InnoDB | none, process, disk | `innodb_flush_log_at_trx_commit` 0, 2, 1 (and `sync_binlog=1` where there is a binary log) | |
//! | MyISAM | none, process | a statement writes row, keys and header to their files before the answer, and syncs nothing. A kill between them leaves a table that must be made whole from its rows: by itself with `myisam_recover_options=BACKUP,QUICK` (MariaDB's default), when it is next opened; until that is done a read by key may not find a record that is there (seen: 4 of 22,638 operations around a kill); with `OFF` (MySQL's), a killed server was seen to lose 555 acknowledged records of 610. `flush=ON` syncs each statement, but rows are overwritten in place and without a log, so it is no *disk* | transactions, isolation levels, the inventory |
//! | Aria | process, disk | `aria_group_commit=soft`: the log is written before the answer; `none` (its default) or `hard`: and synced | the same |
//! | MEMORY | none | nothing is on disk | the same; a row above 65,535 bytes |
//! | CSV | process | an inserted row is written to the file and never synced; an update rewrites the file, syncs and renames it | the same; an index, so that every operation scans the file and no key is refused as a duplicate |
//! | ARCHIVE | none | a row waits in memory until the table is next read, by anyone | the same; `UPDATE`, an index on a key of text |
//! | BLACKHOLE | none | nothing is kept | all but inserts, of which the audit finds every one lost: it shows what SQL costs without an engine |
//!
//! What survives a killed server was seen on servers that were killed (`tests/records.rs`, `tests/mysql.rs`),
//! and what is synced by tracing the server's system calls. A write of `MyISAM`'s or CSV's that the kill cuts in
//! two may tear a record that was acknowledged before: they have no log to mend it from.
//!
//! With a binary log `InnoDB` leaves the last sync of a commit to it: after a loss of power a transaction
//! that the binary log has lost is rolled back, whatever `innodb_flush_log_at_trx_commit` is.
//!
//! # Errors
//!
//! Deadlock, lock wait timeout and a record changed since the snapshot (1213, 1205, 1020, and state
//! 40001) are conflicts. Any other error that the server reports for a statement is a failure without
//! effect; not so one of a `COMMIT` or an `UNLOCK TABLES`, nor one that may come when a statement has
//! committed. On engines without transactions only errors that come before the record is touched are
//! failures: of values, keys, rights and syntax (states 22, 23, 42), of a table that is full or does not
//! change (1031, 1036, 1114, 1118, 1290). All others, and a connection that ends after a write outside a
//! transaction, a `CALL` or a `COMMIT` was sent, leave the outcome unknown.
//!
//! # Connections
//!
//! They set `CLIENT_FOUND_ROWS`, so that a row found counts even where its values do not change, and
//! `autocommit=1`, whatever the server's default, but for a queue's transactions. Users log in by
//! `mysql_native_password`, or by `caching_sha2_password` with the server's public key, as the connection is
//! not encrypted. A server of the other product is refused, and so is one that has not the engine.

mod engine;
mod fault;
mod inventory;
mod join;
mod load;
mod queue;
mod records;
mod rung;
mod session;

use std::{collections::BTreeMap, io, time::Duration};

use acidtest_model::{Address, Effective, Secret, StoreError, Task};
use acidtest_workloads::{
    Owner, Place, Store, inventory::InventoryStore, join::JoinStore, queue::QueueStore, records::RecordsStore,
};
use mysql_async::{Conn, Error, Opts, OptsBuilder, prelude::Queryable};

use crate::{
    engine::DEFAULT_PORT,
    session::{rows, text},
};

pub use engine::{Engine, Product, Variant};

/// How long the network may take to connect, before a host counts as unreachable.
const CONNECT: Duration = Duration::from_secs(5);

/// The database to be made exists.
const DATABASE_EXISTS: u16 = 1007;

/// The settings that bear on a guarantee or on speed, on every engine; a version has one of the isolations'
/// names.
const SETTINGS: &[&str] = &[
    "autocommit",
    "default_storage_engine",
    "local_infile",
    "log_bin",
    "max_connections",
    "query_cache_type",
    "sync_binlog",
    "transaction_isolation",
    "tx_isolation",
    "version",
];

/// Those of one engine.
fn settings_of(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::InnoDb => &[
            "innodb_buffer_pool_size",
            "innodb_doublewrite",
            "innodb_flush_log_at_trx_commit",
            "innodb_flush_method",
            "innodb_lock_wait_timeout",
            "innodb_snapshot_isolation",
        ],
        Engine::MyIsam => &["concurrent_insert", "flush", "key_buffer_size", "myisam_recover_options"],
        Engine::Aria => &["aria_group_commit", "aria_group_commit_interval", "aria_pagecache_buffer_size"],
        Engine::Memory => &["max_heap_table_size"],
        Engine::Csv | Engine::Archive | Engine::Blackhole => &[],
    }
}

/// A `MariaDB` or `MySQL` server, with the engine that keeps the tables.
#[derive(Debug)]
pub struct MariaDb {
    address: Address,
    product: Product,
    engine: Engine,
}

impl Variant {
    /// Opens the store at an address, connecting once to see that it is there, that it is the product and
    /// that it has the engine.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] where nobody answers, the login fails, or it is another server.
    pub async fn open(self, address: &Address) -> Result<MariaDb, StoreError> {
        let Self { product, engine, .. } = self;
        let store = MariaDb { address: address.clone(), product, engine };
        let (version, has) = store.on_server("looking at the server", server(engine)).await?;
        let unfit = |cause: String, remedy: String| StoreError::Unreachable {
            address: address.to_string(),
            cause,
            remedy,
        };
        let is = Product::of(&version);
        if is != product {
            let scheme = address.scheme.replace(product.scheme(), is.scheme());
            return Err(unfit(
                format!("it is {is} {version}, not {product}"),
                format!("write {scheme}:// (the store {}) where {}:// stands", is.scheme(), address.scheme),
            ));
        }
        if !has {
            let cause = format!("{is} {version} has no engine {} there", engine.name());
            return Err(unfit(cause, engine.remedy().to_owned()));
        }
        Ok(store)
    }
}

/// The server's version, and whether it has an engine.
fn server(engine: Engine) -> impl AsyncFnOnce(&mut Conn) -> Result<(String, bool), Error> {
    async move |conn| {
        let version = conn.query_first("SELECT VERSION()").await?.unwrap_or_default();
        let has =
            "SELECT 1 FROM information_schema.engines WHERE engine = ? AND support IN ('YES', 'DEFAULT')";
        Ok((version, !rows(conn, has, (engine.name(),)).await?.is_empty()))
    }
}

impl MariaDb {
    async fn conn(&self) -> Result<Conn, StoreError> {
        connect(&self.address).await.map_err(|error| StoreError::Unreachable {
            address: self.address.to_string(),
            cause: fault::words(&error),
            remedy: fault::remedy(&error, self.product),
        })
    }

    /// Does something on a connection of its own.
    async fn on_server<T>(
        &self,
        doing: &str,
        work: impl AsyncFnOnce(&mut Conn) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        let mut conn = self.conn().await?;
        let done = work(&mut conn).await.map_err(|error| self.failed(doing, &error))?;
        // what was asked for is done; how the connection ends is of no matter
        let _ = conn.disconnect().await;
        Ok(done)
    }

    fn failed(&self, doing: &str, error: &Error) -> StoreError {
        StoreError::Server {
            doing: doing.to_owned(),
            address: self.address.to_string(),
            cause: fault::words(error),
        }
    }

    fn occupied(&self, namespace: &str) -> StoreError {
        StoreError::Occupied {
            namespace: format!("database `{namespace}`"),
            address: self.address.to_string(),
        }
    }
}

async fn connect(address: &Address) -> Result<Conn, Error> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {CONNECT:?}"));
    tokio::time::timeout(CONNECT, Conn::new(options(address))).await.map_err(late)?
}

fn options(address: &Address) -> Opts {
    let database = (!address.path.is_empty()).then_some(&address.path);
    OptsBuilder::default()
        .ip_or_hostname(&address.host)
        .tcp_port(address.port.unwrap_or(DEFAULT_PORT))
        .user(address.user.as_ref())
        .pass(address.password.as_ref().map(Secret::reveal))
        .db_name(database)
        .tcp_nodelay(true)
        // else the driver leaves the address for a socket file that the server names
        .prefer_socket(false)
        .client_found_rows(true)
        .init(vec!["SET autocommit=1"])
        .into()
}

/// A name as SQL takes it, whatever it is made of.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A trial's object, with its database.
fn object(place: &Place, name: &str) -> String {
    format!("{}.{}", quoted(&place.namespace), quoted(&place.object(name)))
}

fn marker(namespace: &str) -> String {
    format!("{}.marker", quoted(namespace))
}

impl Store for MariaDb {
    fn effective(&self) -> Task<'_, Result<Effective, StoreError>> {
        Box::pin(async {
            let read = async |conn: &mut Conn| settings(conn, self.engine).await;
            let settings = self.on_server("reading the settings", read).await?;
            let value = |name: &str| settings.get(name).map_or("", String::as_str);
            let (durability, because) = rung::rung(self.engine, value);
            Ok(Effective { version: value("version").to_owned(), durability, because, settings })
        })
    }

    fn owner<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<Owner, StoreError>> {
        Box::pin(self.on_server("looking for the namespace", async move |conn| owner(conn, namespace).await))
    }

    fn create<'a>(&'a self, namespace: &'a str, run: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let there = async |conn: &mut Conn| match create(conn, namespace, run).await {
                Err(Error::Server(answer)) if answer.code == DATABASE_EXISTS => Ok(true),
                made => made.map(|()| false),
            };
            let there = self.on_server("making the namespace", there).await?;
            if there { Err(self.occupied(namespace)) } else { Ok(()) }
        })
    }

    fn remove<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("removing the namespace", async move |conn| {
            conn.query_drop(format!("DROP DATABASE IF EXISTS {}", quoted(namespace))).await
        }))
    }

    fn inventory(&self) -> Option<&dyn InventoryStore> {
        self.engine.is_transactional().then_some(self as &dyn InventoryStore)
    }

    fn records(&self) -> Option<&dyn RecordsStore> {
        Some(self)
    }

    fn join(&self) -> Option<&dyn JoinStore> {
        (self.engine != Engine::Blackhole).then_some(self as &dyn JoinStore)
    }

    fn queue(&self) -> Option<&dyn QueueStore> {
        self.engine.is_transactional().then_some(self as &dyn QueueStore)
    }
}

async fn settings(conn: &mut Conn, engine: Engine) -> Result<BTreeMap<String, String>, Error> {
    let names = [SETTINGS, settings_of(engine)].concat().join("', '");
    let sql = format!("SHOW SESSION VARIABLES WHERE Variable_name IN ('{names}')");
    let rows = rows(conn, sql, ()).await?;
    Ok(rows.iter().map(|row| (text(row, 0), text(row, 1))).collect())
}

async fn owner(conn: &mut Conn, namespace: &str) -> Result<Owner, Error> {
    // names differ by case where the server's files do
    let there = "SELECT 1 FROM information_schema.schemata WHERE BINARY schema_name = BINARY ?";
    if rows(conn, there, (namespace,)).await?.is_empty() {
        return Ok(Owner::Nobody);
    }
    let marked = "SELECT 1 FROM information_schema.columns WHERE BINARY table_schema = BINARY ?
                  AND table_name = 'marker' AND column_name = 'run'";
    if rows(conn, marked, (namespace,)).await?.is_empty() {
        return Ok(if is_empty(conn, namespace, "").await? { Owner::Empty } else { Owner::Stranger });
    }
    let run = format!("SELECT run FROM {} WHERE run IS NOT NULL LIMIT 1", marker(namespace));
    if let Some(row) = rows(conn, run, ()).await?.first() {
        return Ok(Owner::Run(text(row, 0)));
    }
    // no mark in the place for it, which only a killed run leaves so
    Ok(if is_empty(conn, namespace, "marker").await? { Owner::Empty } else { Owner::Stranger })
}

/// Whether a database holds nothing but a table of this name: making a database, a table for the mark and
/// the mark are three steps.
async fn is_empty(conn: &mut Conn, namespace: &str, but: &str) -> Result<bool, Error> {
    let objects = "SELECT 1 FROM information_schema.tables
                   WHERE BINARY table_schema = BINARY ? AND table_name <> ?
                   UNION ALL SELECT 1 FROM information_schema.routines WHERE BINARY routine_schema = BINARY ?";
    Ok(rows(conn, objects, (namespace, but, namespace)).await?.is_empty())
}

async fn create(conn: &mut Conn, namespace: &str, run: &str) -> Result<(), Error> {
    let marker = marker(namespace);
    conn.query_drop(format!("CREATE DATABASE {} CHARACTER SET utf8mb4", quoted(namespace))).await?;
    conn.query_drop(format!("CREATE TABLE {marker} (run TEXT NOT NULL) ENGINE=InnoDB")).await?;
    conn.exec_drop(format!("INSERT INTO {marker} VALUES (?)"), (run,)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out_of_their_quotes() {
        assert_eq!(quoted("a`; DROP TABLE b; --"), "`a``; DROP TABLE b; --`");
    }

    #[test]
    fn a_store_does_not_show_its_password() {
        let mut address = Address::loopback("mysql", Some("ann"), 1, "");
        address.password = Some(Secret::new("hunter2"));
        let store = MariaDb { address, product: Product::MySql, engine: Engine::InnoDb };
        assert!(!format!("{store:?}").contains("hunter2"));
    }
}
