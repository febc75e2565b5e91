//! MariaDB, and MySQL: one connection a client, over TCP without TLS, statements prepared once.
//!
//! # Guarantees
//!
//! Checked on MariaDB 10.11.19 with InnoDB, at its default isolation, REPEATABLE READ. Every decision
//! rests on a locking read or on one statement, so a weaker level gives the same results. `…` is the
//! tuple's primary key, `group` its first three columns.
//!
//! | guarantee | statements and settings |
//! | --- | --- |
//! | lock none | `SELECT warehouse, count … WHERE group ORDER BY warehouse`, then `UPDATE … SET count = <computed>`, each its own transaction |
//! | lock soft | `SELECT …, version`, then `UPDATE … SET count = count - n, version = version + 1 WHERE … AND version = <read>` (several: in one transaction); no row found means stale |
//! | lock hard | `START TRANSACTION`, `SELECT … WHERE group ORDER BY warehouse FOR UPDATE`, the `UPDATE`s, `COMMIT` |
//! | lock native | one `CALL` of a stored procedure that does the same; there is no `UPDATE … RETURNING` |
//! | release | one `UPDATE … SET count = count + n` in every mode (soft: and `version = version + 1`) |
//! | durability none | `innodb_flush_log_at_trx_commit=0`: the log is written once a second |
//! | durability process | `=2`: written to the page cache before the answer, synced once a second |
//! | durability disk | `=1`, and `sync_binlog=1` where there is a binary log |
//!
//! With a binary log InnoDB leaves the last sync of a commit to it: after a loss of power a transaction
//! that the binary log has lost is rolled back, whatever `innodb_flush_log_at_trx_commit` is.
//!
//! Deadlock, lock wait timeout and a tuple changed since the snapshot (1213, 1205, 1020, and state
//! 40001) are conflicts. Any other error that the server reports for a statement is a failure without
//! effect; not so one of a `COMMIT`, nor one that may come when a statement has committed. Those, and a
//! connection that ends after a write outside a transaction, a `CALL` or a `COMMIT` was sent, leave the
//! outcome unknown.
//!
//! Connections set `CLIENT_FOUND_ROWS`, so that a row found counts even where its values do not change,
//! and `autocommit=1`, whatever the server's default.

mod fault;
mod inventory;

use std::{collections::BTreeMap, io, time::Duration};

use acidtest_model::{
    Address, Durability, Effective, Lock, Secret, Server, StoreError, StoreKind, Support, Task,
};
use acidtest_workloads::{Owner, Store, inventory::InventoryStore};
use mysql_async::{Conn, Error, Opts, OptsBuilder, Params, Row, prelude::Queryable, prelude::StatementLike};

const DEFAULT_PORT: u16 = 3306;

/// How long the network may take to connect, before a host counts as unreachable.
const CONNECT: Duration = Duration::from_secs(5);

/// The database to be made exists.
const DATABASE_EXISTS: u16 = 1007;

/// The store's row of the matrix.
pub const KIND: StoreKind = StoreKind {
    name: "mariadb",
    title: "MariaDB",
    schemes: &["mysql", "mariadb"],
    address: "mysql://USER:PASSWORD@HOST:3306",
    server: Server::Program,
    default_port: DEFAULT_PORT,
    locks: &[
        (Lock::None, Support::Yes("SELECT, then UPDATE to the computed value")),
        (Lock::Soft, Support::Yes("version column in the UPDATE's WHERE")),
        (Lock::Hard, Support::Yes("SELECT … FOR UPDATE, UPDATE, COMMIT")),
        (Lock::Native, Support::Yes("a stored procedure, in one CALL")),
    ],
    durability: &[
        (Durability::None, Support::Yes("innodb_flush_log_at_trx_commit=0")),
        (Durability::Process, Support::Yes("innodb_flush_log_at_trx_commit=2")),
        (Durability::Disk, Support::Yes("innodb_flush_log_at_trx_commit=1, sync_binlog=1 if log_bin")),
    ],
    workloads: &[("inventory", Support::Yes("capture and release"))],
};

/// The settings that bear on a guarantee or on speed; a version has one of the isolations' names.
const SETTINGS: &[&str] = &[
    "autocommit",
    "default_storage_engine",
    "innodb_buffer_pool_size",
    "innodb_doublewrite",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "innodb_snapshot_isolation",
    "log_bin",
    "max_connections",
    "sync_binlog",
    "transaction_isolation",
    "tx_isolation",
    "version",
];

/// A MariaDB or MySQL server.
#[derive(Debug)]
pub struct MariaDb {
    address: Address,
}

impl MariaDb {
    /// Opens the store at an address, connecting once to see that it is there.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] where nobody answers or the login fails.
    pub async fn open(address: &Address) -> Result<Self, StoreError> {
        let store = Self { address: address.clone() };
        let conn = store.conn().await?;
        conn.disconnect().await.map_err(|error| store.failed("leaving", &error))?;
        Ok(store)
    }

    async fn conn(&self) -> Result<Conn, StoreError> {
        connect(&self.address).await.map_err(|error| StoreError::Unreachable {
            address: self.address.to_string(),
            cause: fault::words(&error),
            remedy: fault::remedy(&error).to_owned(),
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
        self.odd(doing, fault::words(error))
    }

    fn odd(&self, doing: &str, cause: String) -> StoreError {
        StoreError::Server { doing: doing.to_owned(), address: self.address.to_string(), cause }
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

/// All rows of all results of a statement, and the end of the last result, which may be an error.
async fn rows(
    conn: &mut Conn,
    statement: impl StatementLike,
    values: impl Into<Params>,
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    let mut result = conn.exec_iter(statement, values).await?;
    while !result.is_empty() {
        result.for_each(|row| rows.push(row)).await?;
    }
    result.drop_result().await?;
    Ok(rows)
}

/// A column as text; empty where it is none.
fn text(row: &Row, column: usize) -> String {
    row.get_opt(column).and_then(Result::ok).unwrap_or_default()
}

/// A name as SQL takes it, whatever it is made of.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn marker(namespace: &str) -> String {
    format!("{}.marker", quoted(namespace))
}

impl Store for MariaDb {
    fn effective(&self) -> Task<'_, Result<Effective, StoreError>> {
        Box::pin(async {
            let settings = self.on_server("reading the settings", settings).await?;
            let value = |name: &str| settings.get(name).map_or("", String::as_str);
            let (durability, because) = rung(value);
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
        Some(self)
    }
}

async fn settings(conn: &mut Conn) -> Result<BTreeMap<String, String>, Error> {
    let names = SETTINGS.join("', '");
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

/// What the settings amount to, and why.
fn rung<'a>(value: impl Fn(&str) -> &'a str) -> (Durability, String) {
    let flush = value("innodb_flush_log_at_trx_commit");
    let (binlog, sync) = (value("log_bin") == "ON", value("sync_binlog"));
    let mut because = format!("innodb_flush_log_at_trx_commit={flush}, log_bin={}", value("log_bin"));
    if binlog {
        because = format!("{because}, sync_binlog={sync}");
    }
    let (durability, why) = match flush {
        "1" | "3" if binlog && sync != "1" => (
            Durability::Process,
            "a commit that the unsynced binary log loses with the power is rolled back on recovery",
        ),
        "1" | "3" if value("innodb_flush_method") == "nosync" => {
            (Durability::Process, "innodb_flush_method=nosync: nothing is ever synced")
        }
        "1" | "3" => (Durability::Disk, "the log is synced before the answer"),
        "2" => (Durability::Process, "the log is written before the answer, and synced once a second"),
        _ => (Durability::None, "the log is written once a second"),
    };
    because = format!("{because}: {why}");
    if value("innodb_doublewrite") == "OFF" {
        because.push_str("; innodb_doublewrite=OFF: a page torn by losing power is not recovered");
    }
    (durability, because)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rung_of(flush: &str, binlog: &str, sync: &str) -> Durability {
        let value = |name: &str| match name {
            "innodb_flush_log_at_trx_commit" => flush.to_owned(),
            "log_bin" => binlog.to_owned(),
            "sync_binlog" => sync.to_owned(),
            _ => String::new(),
        };
        let values: BTreeMap<&str, String> = SETTINGS.iter().map(|name| (*name, value(name))).collect();
        rung(|name| values[name].as_str()).0
    }

    #[test]
    fn each_rung_has_its_settings() {
        assert_eq!(rung_of("1", "OFF", "0"), Durability::Disk);
        assert_eq!(rung_of("1", "ON", "1"), Durability::Disk);
        assert_eq!(rung_of("1", "ON", "0"), Durability::Process);
        assert_eq!(rung_of("1", "ON", "100"), Durability::Process);
        assert_eq!(rung_of("2", "ON", "1"), Durability::Process);
        assert_eq!(rung_of("0", "OFF", "0"), Durability::None);
        assert_eq!(rung_of("", "", ""), Durability::None);
    }

    #[test]
    fn names_cannot_break_out_of_their_quotes() {
        assert_eq!(quoted("a`; DROP TABLE b; --"), "`a``; DROP TABLE b; --`");
    }

    #[test]
    fn a_store_does_not_show_its_password() {
        let mut address = Address::loopback("mysql", Some("ann"), 1, "");
        address.password = Some(Secret::new("hunter2"));
        assert!(!format!("{:?}", MariaDb { address }).contains("hunter2"));
    }
}
