//! PostgreSQL: one connection per client, over TCP, statements prepared once.
//!
//! A client's operations go by [`protocol`], all that is not timed by the driver.
//!
#![doc = include_str!("../GUARANTEES.md")]

mod connection;
mod driver;
pub mod fault;
mod interactive;
mod inventory;
mod join;
mod leader;
mod lock_service;
mod logs;
mod parcels;
mod point;
mod product;
pub mod protocol;
mod queue;
mod records;
mod replica;
mod session;
mod sessions;
mod transactions;
mod value;

use std::{collections::BTreeMap, time::Duration};

use acidtest_model::{
    Address, Durability, EffectiveDurability, EffectiveSettings, Hosting, Isolation, Lock, NO_REFRESH,
    NegotiatedTls, Replication, StoreError, StoreKind, Support, Task,
};
use acidtest_workloads::{
    Identity, Owner, Replica, Store,
    interactive::InteractiveStore,
    inventory::InventoryStore,
    join::JoinStore,
    logs::LogsStore,
    parcels::{ParcelsStore, beyond_a_table},
    queue::{Delivery, QueueStore, idle_on_tables},
    records::RecordsStore,
    time_opening,
    transactions::TransactionsStore,
};
use tokio_postgres::{Client, Error, error::SqlState};

use crate::driver::Driver;
pub use crate::{
    connection::ConnectOptions,
    driver::{Connector, Exchange},
    fault::ConnectError,
    point::Point,
    value::Value,
};

const DEFAULT_PORT: u16 = 5432;

/// The store's entry in the list of stores: its names, and which lock modes, durability levels, isolation levels
/// and workloads it supports, each with the means or the reason.
pub const KIND: StoreKind = StoreKind {
    name: "postgres",
    title: "PostgreSQL",
    schemes: &["postgres", "postgresql"],
    address: "postgres://USER:PASSWORD@HOST:5432/DATABASE",
    hosting: Hosting::Program,
    default_port: DEFAULT_PORT,
    locks: &[
        (Lock::None, Support::Yes("SELECT, then UPDATE to the computed value")),
        (Lock::Soft, Support::Yes("version column in the UPDATE's WHERE")),
        (Lock::Hard, Support::Yes("SELECT … FOR UPDATE, UPDATE, COMMIT")),
        (Lock::Native, Support::Yes("one statement with UPDATE … RETURNING")),
    ],
    durability: &[
        (Durability::None, Support::Yes("synchronous_commit=off")),
        (Durability::Process, Support::Yes("fsync=off, synchronous_commit=on: not for production")),
        (Durability::Disk, Support::Yes("fsync=on, synchronous_commit=on")),
    ],
    isolation: &[
        (
            Isolation::ReadUncommitted,
            Support::Yes("set for the session; PostgreSQL treats it as read committed"),
        ),
        (Isolation::ReadCommitted, Support::Yes("set for the session")),
        (Isolation::RepeatableRead, Support::Yes("set for the session: snapshot isolation")),
        (Isolation::Serializable, Support::Yes("set for the session: serializable snapshot isolation")),
    ],
    transactions: Support::Yes("BEGIN … COMMIT"),
    refresh: NO_REFRESH,
    tls: acidtest_model::OWN_TLS,
    replication: &[
        (Replication::Async, Support::Yes("synchronous_standby_names=''")),
        (Replication::Semi, Support::No(replica::NO_SEMI)),
        (Replication::Quorum, Support::Yes("ANY k of the replicas: with the leader, a majority")),
        (Replication::All, Support::Yes("ANY k of k replicas: each node but the leader")),
    ],
    replica_reads: Some(&replica::READS),
    lock_service: false,
    processes: acidtest_model::EACH_CONNECTS,
    durability_of_data: false,
    in_memory: false,
    client_kib: 1_641,
    workloads: &[
        ("inventory", Support::Yes("capture and release")),
        ("records", Support::Yes("usertable, a column a field")),
        ("join", Support::Yes("SELECT … JOIN, EXPLAIN (ANALYZE, BUFFERS)")),
        ("queue", Support::Yes("a table: INSERT, SELECT … FOR UPDATE SKIP LOCKED, DELETE")),
        ("logs", Support::Yes("a gateway in front of it: COPY")),
        ("parcels", Support::Yes("the table SCANS")),
        ("transactions", Support::Yes("BEGIN, a statement for each step, COMMIT; lists are bigint[]")),
    ],
    refuses: |request| beyond_a_table(request).or_else(|| Delivery::of(request)?.beyond_a_table()),
    idle: idle_on_tables,
};

/// Server settings that bear on a guarantee or on speed, reported with every run.
const SETTINGS: &[&str] = &[
    "default_table_access_method",
    "default_transaction_isolation",
    "fsync",
    "full_page_writes",
    "max_connections",
    "server_version",
    "shared_buffers",
    "synchronous_commit",
    "synchronous_standby_names",
    "wal_level",
    "wal_sync_method",
];

/// The longest name, in bytes, that PostgreSQL does not cut off.
const NAME_MAX: usize = 63;

/// A PostgreSQL server, as a store.
#[derive(Debug)]
pub struct Postgres {
    server: ConnectOptions,
}

impl Postgres {
    /// Opens the store at an address, connecting to see that it is there, and that connections have sessions of their own.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] where nobody answers, the login fails, or connections share sessions behind a pooler.
    pub async fn open(address: &Address) -> Result<Self, StoreError> {
        Self::open_among(address, &[]).await
    }

    /// Opens the store on whichever of these servers takes writes: each connection is to the one that does when it is opened. With an
    /// address alone, its server is used whatever it takes.
    ///
    /// # Errors
    /// As [`open`](Self::open); or none of several takes writes.
    pub async fn open_among(address: &Address, peers: &[Address]) -> Result<Self, StoreError> {
        let mut store = Self { server: ConnectOptions::among(address, peers)? };
        store.driver().await?;
        let usual = store.own_sessions().await?;
        store.server.expect(usual);
        Ok(store)
    }

    /// The server's address; of several, that of the one that took writes last.
    #[must_use]
    pub fn address(&self) -> &Address {
        self.server.address()
    }

    /// Opens a connection as each client has one.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] where nobody answers or the login fails.
    pub async fn connection(&self) -> Result<protocol::Connection, StoreError> {
        self.server.connect().await.map_err(|error| self.unreachable(&error))
    }

    async fn driver(&self) -> Result<Driver, StoreError> {
        self.server.connect_driver().await.map_err(|error| self.unreachable(&error))
    }

    fn unreachable(&self, error: &ConnectError) -> StoreError {
        let address = self.address();
        let (cause, remedy) = fault::unreachable(error, address);
        StoreError::Unreachable { address: address.to_string(), cause, remedy }
    }

    /// Runs work that is not timed, on a connection of its own.
    pub async fn on_server<T>(
        &self,
        doing: &str,
        work: impl AsyncFnOnce(&Client) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        let mut driver = self.driver().await?;
        match driver.ask(work).await {
            Err(error) if error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => {
                let failed = self.failed(doing, driver.words(&error));
                Err(self.read_only().await?.unwrap_or(failed))
            }
            done => done.map_err(|error| self.failed(doing, driver.words(&error))),
        }
    }

    /// What a server is that takes no writes; none where it does not say.
    async fn read_only(&self) -> Result<Option<StoreError>, StoreError> {
        let address = self.address().to_string();
        // asked on a connection of its own: the transaction that met the refusal answers nothing more
        let answer = self.driver().await?.ask(read_only).await;
        Ok(match answer {
            Ok(ReadOnly::Replica(primary)) => Some(StoreError::replica(address, primary)),
            Ok(ReadOnly::Setting) => Some(StoreError::ReadOnly {
                address,
                is: "read-only (default_transaction_read_only=on)".to_owned(),
                remedy: "set default_transaction_read_only=off for the server, the database or the user"
                    .to_owned(),
            }),
            Ok(ReadOnly::Unknown) | Err(_) => None,
        })
    }

    /// The TLS of a client's connection, with what the server says of its side; none without TLS.
    async fn negotiated(&self) -> Result<Option<NegotiatedTls>, StoreError> {
        if self.address().tls.is_none() {
            return Ok(None);
        }
        let mut connection = self.connection().await?;
        let Some(tls) = connection.negotiated() else { return Ok(None) };
        let sql = "SELECT coalesce(version, 'none'), coalesce(cipher, 'none') FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        // another product need not have a word for it
        let said = connection.ask(sql).await.unwrap_or_default();
        Ok(Some(match said.as_slice() {
            [version, cipher] => tls.beside(version, cipher),
            _ => tls,
        }))
    }

    fn failed(&self, doing: &str, cause: String) -> StoreError {
        StoreError::Server { doing: doing.to_owned(), address: self.address().to_string(), cause }
    }

    fn occupied(&self, namespace: &str) -> StoreError {
        StoreError::Occupied {
            namespace: format!("schema \"{namespace}\""),
            address: self.address().to_string(),
        }
    }
}

/// A quoted SQL name, which may hold any characters.
#[must_use]
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn marker(namespace: &str) -> String {
    format!("{}.marker", quoted(namespace))
}

impl Store for Postgres {
    fn identity(&self) -> Task<'_, Result<Option<Identity>, StoreError>> {
        Box::pin(async {
            let mut driver = self.driver().await?;
            match driver.ask(identity).await {
                Ok(identity) => Ok(Some(identity)),
                // of its cousins, not all know these functions
                Err(error) if error.as_db_error().is_some() => Ok(None),
                Err(error) => Err(self.failed("asking which server answers", driver.words(&error))),
            }
        })
    }

    fn effective(&self) -> Task<'_, Result<EffectiveSettings, StoreError>> {
        Box::pin(async {
            let doing = "reading the settings";
            let version = self.on_server(doing, version).await?;
            let other = product::other(&version);
            let Server { mut settings, signs } = match self.on_server(doing, server).await {
                // another product need not have all that PostgreSQL has
                Err(_) if other.is_some() => Server::default(),
                read => read?,
            };
            settings.insert("version".to_owned(), version.clone());
            let tls = self.negotiated().await?;
            let value = |name: &str| settings.get(name).map_or("", String::as_str);
            let (durability, because) = durability(&version, value);
            let number = value("server_version").to_owned();
            let other = other.or_else(|| Some(product::named(signs.first()?, &version)));
            let read = EffectiveSettings { version: number, durability, because, settings, tls };
            Ok(match other {
                None => read,
                Some(server) => read.of_another(&server, KIND.title),
            })
        })
    }

    fn connecting(&self) -> Task<'_, Result<Option<Duration>, StoreError>> {
        Box::pin(time_opening(self.connection()))
    }

    fn owner<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<Owner, StoreError>> {
        Box::pin(
            self.on_server("looking for the namespace", async move |client| owner(client, namespace).await),
        )
    }

    fn create<'a>(&'a self, namespace: &'a str, run: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            const DOING: &str = "making the namespace";
            if namespace.len() > NAME_MAX {
                return Err(self.failed(DOING, format!("a name has at most {NAME_MAX} bytes: {namespace}")));
            }
            let there = async |client: &Client| match create(client, namespace, run).await {
                Err(error)
                    if [Some(&SqlState::DUPLICATE_SCHEMA), Some(&SqlState::DUPLICATE_TABLE)]
                        .contains(&error.code()) =>
                {
                    Ok(true)
                }
                made => made.map(|()| false),
            };
            if self.on_server(DOING, there).await? { Err(self.occupied(namespace)) } else { Ok(()) }
        })
    }

    fn remove<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(
            self.on_server("removing the namespace", async move |client| remove(client, namespace).await),
        )
    }

    fn inventory(&self) -> Option<&dyn InventoryStore> {
        Some(self)
    }

    fn records(&self) -> Option<&dyn RecordsStore> {
        Some(self)
    }

    fn join(&self) -> Option<&dyn JoinStore> {
        Some(self)
    }

    fn queue(&self) -> Option<&dyn QueueStore> {
        Some(self)
    }

    fn logs(&self) -> Option<&dyn LogsStore> {
        Some(self)
    }

    fn parcels(&self) -> Option<&dyn ParcelsStore> {
        Some(self)
    }

    fn transactions(&self) -> Option<&dyn TransactionsStore> {
        Some(self)
    }

    fn replica(&self) -> Option<&dyn Replica> {
        Some(self)
    }

    fn interactive(&self) -> Option<&dyn InteractiveStore> {
        Some(self)
    }
}

/// What a server says of itself, besides its version.
#[derive(Default)]
struct Server {
    settings: BTreeMap<String, String>,
    /// The products whose settings or functions it has.
    signs: Vec<&'static str>,
}

/// What a server is that takes no writes.
enum ReadOnly {
    /// A standby, with `HOST:PORT` of its primary, which it does not tell everybody.
    Replica(Option<String>),
    /// Its transactions only read unless they ask for more.
    Setting,
    Unknown,
}

async fn read_only(client: &Client) -> Result<ReadOnly, Error> {
    const SQL: &str = "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on',
                              (SELECT setting FROM pg_settings WHERE name = 'primary_conninfo')";
    let row = client.query_one(SQL, &[]).await?;
    Ok(if row.try_get(0)? {
        let conninfo: Option<&str> = row.try_get(2)?;
        ReadOnly::Replica(conninfo.and_then(primary))
    } else if row.try_get(1)? {
        ReadOnly::Setting
    } else {
        ReadOnly::Unknown
    })
}

/// `HOST:PORT` in a connection string of libpq: names and values, which are quoted where they have spaces. Nothing else of it is shown: it
/// may hold a password.
fn primary(conninfo: &str) -> Option<String> {
    let mut words: Vec<(String, String)> = Vec::new();
    let mut rest = conninfo.trim_start();
    while let Some((name, behind)) = rest.split_once('=') {
        let mut letters = behind.trim_start().chars();
        let is_quoted = letters.as_str().starts_with('\'');
        letters.by_ref().take(usize::from(is_quoted)).for_each(drop);
        let mut value = String::new();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => value.extend(letters.next()),
                '\'' if is_quoted => break,
                space if space.is_whitespace() && !is_quoted => break,
                letter => value.push(letter),
            }
        }
        words.push((name.trim().to_owned(), value));
        rest = letters.as_str().trim_start();
    }
    let of = |name: &str| words.iter().find(|(each, _)| each == name).map(|(_, value)| value.as_str());
    let host = of("host").or_else(|| of("hostaddr"))?;
    Some(format!("{host}:{}", of("port").unwrap_or("5432")))
}

async fn version(client: &Client) -> Result<String, Error> {
    client.query_one("SELECT version()", &[]).await?.try_get(0)
}

async fn server(client: &Client) -> Result<Server, Error> {
    let sql = "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY($1)";
    let rows = client.query(sql, &[&SETTINGS]).await?;
    let settings: Result<_, Error> = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect();
    let mut signs = Vec::new();
    for (pattern, product) in product::SETTINGS {
        let sql = "SELECT FROM pg_settings WHERE name LIKE $1 LIMIT 1";
        signs.extend(client.query_opt(sql, &[&pattern]).await?.map(|_| product));
    }
    for (function, product) in product::FUNCTIONS {
        let sql = "SELECT FROM pg_catalog.pg_proc WHERE proname = $1 LIMIT 1";
        signs.extend(client.query_opt(sql, &[&function]).await?.map(|_| product));
    }
    Ok(Server { settings: settings?, signs })
}

/// When it was started; and, where a backend's crash has ended all the others, when it recovered from that, which resets all of
/// its statistics: somebody may have reset some of them. Before PostgreSQL 15 it does not say the latter. Its data are known by the
/// system's identifier and the timeline: a standby that is promoted begins another one.
async fn identity(client: &Client) -> Result<Identity, Error> {
    const SQL: &str = "SELECT concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()),
                                        CASE WHEN current_setting('server_version_num')::int >= 150000
                                             THEN extract(epoch FROM least((SELECT stats_reset FROM pg_stat_bgwriter),
                                                                           (SELECT stats_reset FROM pg_stat_archiver))) END),
                              CASE WHEN NOT pg_is_in_recovery()
                                   THEN (SELECT system_identifier FROM pg_control_system())
                                        || ' ' || left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
                              current_setting('server_version_num')::int >= 150000";
    let row = client.query_one(SQL, &[]).await?;
    Ok(Identity { life: row.try_get(0)?, data: row.try_get(1)?, is_exact: row.try_get(2)? })
}

async fn owner(client: &Client, namespace: &str) -> Result<Owner, Error> {
    let there = "SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1";
    if client.query_opt(there, &[&namespace]).await?.is_none() {
        return Ok(Owner::Nobody);
    }
    if !has_marker(client, namespace, "run").await? {
        return Ok(if is_empty(client, namespace).await? { Owner::Prepared } else { Owner::Stranger });
    }
    let run = format!("SELECT run::text FROM {} WHERE run IS NOT NULL LIMIT 1", marker(namespace));
    let row = client.query_opt(&run, &[]).await?;
    row.map_or(Ok(Owner::Stranger), |row| Ok(Owner::Run(row.try_get(0)?)))
}

/// Whether the namespace has a table for the mark, with this column.
async fn has_marker(client: &Client, namespace: &str, column: &str) -> Result<bool, Error> {
    let marked = "SELECT FROM information_schema.columns
                  WHERE table_schema = $1 AND table_name = 'marker' AND column_name = $2";
    Ok(client.query_opt(marked, &[&namespace, &column]).await?.is_some())
}

/// Whether a schema holds nothing. Rights that are given in advance to what will be in it are not in it.
async fn is_empty(client: &Client, namespace: &str) -> Result<bool, Error> {
    const SQL: &str = "SELECT FROM pg_catalog.pg_namespace n WHERE nspname = $1
                       AND NOT EXISTS (SELECT FROM pg_catalog.pg_class WHERE relnamespace = n.oid)
                       AND NOT EXISTS (SELECT FROM pg_catalog.pg_proc WHERE pronamespace = n.oid)
                       AND NOT EXISTS (SELECT FROM pg_catalog.pg_type WHERE typnamespace = n.oid)
                       AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend
                                       WHERE refclassid = 'pg_catalog.pg_namespace'::regclass AND refobjid = n.oid
                                         AND classid <> 'pg_catalog.pg_default_acl'::regclass)";
    Ok(client.query_opt(SQL, &[&namespace]).await?.is_some())
}

/// All in one transaction: a namespace without its mark would pass for somebody else's. The mark in a schema that was prepared
/// has a column more.
async fn create(client: &Client, namespace: &str, run: &str) -> Result<(), Error> {
    let marker = marker(namespace);
    let make = if owner(client, namespace).await? == Owner::Prepared {
        format!("CREATE TABLE {marker} (run text NOT NULL, prepared boolean)")
    } else {
        format!("CREATE SCHEMA {}; CREATE TABLE {marker} (run text NOT NULL)", quoted(namespace))
    };
    client.batch_execute(&format!("BEGIN; {make}")).await?;
    client.execute(&format!("INSERT INTO {marker} VALUES ($1)"), &[&run]).await?;
    client.batch_execute("COMMIT").await
}

/// Drops the schema, or what is in it where it was prepared. What goes with a table is not there any more at its own turn.
async fn remove(client: &Client, namespace: &str) -> Result<(), Error> {
    const DROPS: &str = "SELECT format('DROP TABLE IF EXISTS %s CASCADE', c.oid::regclass)
                         FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace
                         WHERE nspname = $1 AND relkind IN ('r', 'p')
                         UNION ALL
                         SELECT format('DROP ROUTINE IF EXISTS %s CASCADE', p.oid::regprocedure)
                         FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = pronamespace
                         WHERE nspname = $1";
    if !has_marker(client, namespace, "prepared").await? {
        return client.batch_execute(&format!("DROP SCHEMA IF EXISTS {} CASCADE", quoted(namespace))).await;
    }
    let rows = client.query(DROPS, &[&namespace]).await?;
    let drops: Result<Vec<String>, Error> = rows.iter().map(|row| row.try_get(0)).collect();
    // in one transaction, as the server takes statements that are sent together
    client.batch_execute(&drops?.join("; ")).await
}

/// The durability level that the settings amount to on a server of this `version()`, and the reason in words.
fn durability<'a>(version: &str, value: impl Fn(&str) -> &'a str) -> (EffectiveDurability, String) {
    let (fsync, commit, method) = (value("fsync"), value("synchronous_commit"), value("wal_sync_method"));
    let settings = format!("fsync={fsync}, synchronous_commit={commit}");
    let is_passed_on = passes_caches(version, method);
    let (durability, because) = match (fsync, commit, value("full_page_writes")) {
        ("", ..) | (_, "", _) | (.., "") => {
            (EffectiveDurability::Unknown, "the server does not tell all of these")
        }
        // servers before 12 have no choice
        _ if !matches!(value("default_table_access_method"), "" | "heap") => (
            EffectiveDurability::Unknown,
            "default_table_access_method is not heap: an extension keeps the tables, by rules of its own",
        ),
        (_, "off", _) => (EffectiveDurability::None, "acknowledged before the log is written"),
        (.., "off") => (
            EffectiveDurability::None,
            "full_page_writes=off: of a page that a kill or a loss of power leaves half written, the log has no copy to \
             recover it from; whether any is left so depends on the file system (on ZFS none is), which is not read back",
        ),
        ("on", ..) if is_passed_on => (EffectiveDurability::Disk, "the log is synced before the answer"),
        ("on", ..) => (
            EffectiveDurability::Process,
            "on this system, this way to sync the log may leave it in the drive's cache",
        ),
        _ => (
            EffectiveDurability::Process,
            "the log is written but never synced; losing power may ruin the whole database: nobody should run this in \
             production",
        ),
    };
    let method = if fsync == "on" { format!(", wal_sync_method={method}") } else { String::new() };
    (durability, format!("{settings}{method}: {because}"))
}

/// Whether a sync by this method reaches the drive past its cache, by PostgreSQL's own word on each system.
fn passes_caches(version: &str, method: &str) -> bool {
    let is_on = |systems: &[&str]| systems.iter().any(|system| version.contains(system));
    if is_on(&["-darwin"]) {
        method == "fsync_writethrough"
    } else if is_on(&["Visual C++", "-windows", "mingw"]) {
        matches!(method, "fsync" | "fsync_writethrough")
    } else {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primary_is_named_by_its_host_and_port_alone() {
        for (conninfo, named) in [
            ("user=ann password=secret host=db.example port=5433 sslmode=prefer", Some("db.example:5433")),
            ("user = 'ann' host = 'db.example'", Some("db.example:5432")),
            ("password='hun-host=secret' hostaddr=192.0.2.1", Some("192.0.2.1:5432")),
            (r"password='it\'s host=secret port=1' host=db.example", Some("db.example:5432")),
            ("user=ann password=secret", None),
            ("", None),
        ] {
            assert_eq!(primary(conninfo).as_deref(), named, "{conninfo}");
        }
    }

    const LINUX: &str = "PostgreSQL 15.14 on x86_64-pc-linux-gnu, compiled by gcc 12.2.0, 64-bit";

    /// The durability level on a server with these settings, where others have their defaults.
    fn durability_of(version: &str, changed: &[(&str, &'static str)]) -> (EffectiveDurability, String) {
        durability(version, |name| {
            changed.iter().find(|(changed, _)| *changed == name).map_or_else(
                || match name {
                    "fsync" | "synchronous_commit" | "full_page_writes" => "on",
                    "wal_sync_method" => "fdatasync",
                    _ => "",
                },
                |(_, value)| *value,
            )
        })
    }

    #[test]
    fn each_durability_has_its_settings() {
        for commit in ["on", "local", "remote_write", "remote_apply"] {
            for (fsync, pages, expected) in [
                ("on", "on", EffectiveDurability::Disk),
                ("off", "on", EffectiveDurability::Process),
                ("on", "off", EffectiveDurability::None),
                ("off", "off", EffectiveDurability::None),
            ] {
                let changed = [("fsync", fsync), ("synchronous_commit", commit), ("full_page_writes", pages)];
                assert_eq!(durability_of(LINUX, &changed).0, expected, "{changed:?}");
            }
        }
        for fsync in ["on", "off"] {
            let changed = [("fsync", fsync), ("synchronous_commit", "off")];
            assert_eq!(durability_of(LINUX, &changed).0, EffectiveDurability::None);
        }
        assert!(durability_of(LINUX, &[("fsync", "off")]).1.contains("production"));
        let (_, because) = durability_of(LINUX, &[("full_page_writes", "off")]);
        assert!(
            because.contains("half written") && because.contains("depends on the file system"),
            "{because}"
        );
    }

    #[test]
    fn a_sync_that_ends_in_the_drive_s_cache_is_none() {
        let method = |version, method| durability_of(version, &[("wal_sync_method", method)]).0;
        for on_linux in ["fdatasync", "fsync", "open_datasync", "open_sync"] {
            assert_eq!(method(LINUX, on_linux), EffectiveDurability::Disk);
        }
        let mac = "PostgreSQL 14.9 (Homebrew) on aarch64-apple-darwin22.4.0, compiled by clang, 64-bit";
        assert_eq!(method(mac, "open_datasync"), EffectiveDurability::Process);
        assert_eq!(method(mac, "fsync"), EffectiveDurability::Process);
        assert_eq!(method(mac, "fsync_writethrough"), EffectiveDurability::Disk);
        for windows in [
            "PostgreSQL 15.3, compiled by Visual C++ build 1914, 64-bit",
            "PostgreSQL 17.0 on x86_64-windows, compiled by msvc-19.41, 64-bit",
        ] {
            assert_eq!(method(windows, "open_datasync"), EffectiveDurability::Process);
            assert_eq!(method(windows, "fsync"), EffectiveDurability::Disk);
        }
    }

    #[test]
    fn what_an_extension_or_nobody_tells_is_not_known() {
        for (method, expected) in
            [("heap", EffectiveDurability::Disk), ("columnar", EffectiveDurability::Unknown)]
        {
            assert_eq!(
                durability_of(LINUX, &[("default_table_access_method", method)]).0,
                expected,
                "{method}"
            );
        }
        for unread in ["fsync", "synchronous_commit", "full_page_writes"] {
            assert_eq!(durability_of(LINUX, &[(unread, "")]).0, EffectiveDurability::Unknown, "{unread}");
        }
        assert_eq!(durability(LINUX, |_| "").0, EffectiveDurability::Unknown);
    }

    #[test]
    fn names_cannot_break_out_of_their_quotes() {
        assert_eq!(quoted("a\"; DROP TABLE b; --"), "\"a\"\"; DROP TABLE b; --\"");
    }
}
