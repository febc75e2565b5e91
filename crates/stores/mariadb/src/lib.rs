//! `MariaDB` and `MySQL`, each with its engines as stores of their own ([`Variant`]): one connection per client, over
//! TCP, statements prepared once.
//!
#![doc = include_str!("../GUARANTEES.md")]

mod columns;
mod durability;
mod engine;
mod fault;
mod interactive;
mod inventory;
mod join;
mod load;
mod lock_monitor;
mod logs;
mod parcels;
mod product;
mod protocol;
mod queue;
mod records;
mod session;
mod sessions;
mod transactions;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use acidtest_model::{Address, EffectiveSettings, NegotiatedTls, Secret, StoreError, Task};
use acidtest_transport::Transport;
use acidtest_workloads::{
    Identity, Owner, Place, Store, interactive::InteractiveStore, inventory::InventoryStore, join::JoinStore,
    logs::LogsStore, parcels::ParcelsStore, queue::QueueStore, records::RecordsStore, time_opening,
    transactions::TransactionsStore,
};
use mysql_async::{Conn, Error, Opts, OptsBuilder, Row, prelude::Queryable};

use crate::{
    columns::{Columns, rows, text},
    engine::DEFAULT_PORT,
    protocol::{Connection, Login, OpenError},
    sessions::Settings,
};

pub use engine::{Engine, Variant};
pub use product::Product;

/// Error 1007: the database to be created is there already.
const DATABASE_EXISTS: u16 = 1007;

/// Error 1050: the table to be created is there already.
const TABLE_EXISTS: u16 = 1050;

/// What the comment of a run's database begins with, before the run's id: it is made in one step with the database, and the mark is
/// not. `MySQL` has no comments.
const COMMENT: &str = "made by acidtest run ";

/// The character set of a namespace.
const CHARACTER_SET: &str = "utf8mb4";

/// Settings that bear on a guarantee or on speed on every engine. A version of the server has one of the two
/// names of the isolation level.
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
    "wsrep_on",
];

/// The settings by which a server takes no writes, the strictest first.
const READ_ONLY: [&str; 3] = ["super_read_only", "read_only", "innodb_read_only"];

/// Further settings that bear on a guarantee or on speed on one engine.
fn settings_of(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::InnoDb => &[
            "innodb_buffer_pool_size",
            "innodb_checksum_algorithm",
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

/// A `MariaDB` or `MySQL` server, with the engine in which tables are created.
#[derive(Debug)]
pub struct MariaDb {
    server: ConnectOptions,
    product: Product,
    engine: Engine,
}

/// Address and login of the server. Connections are opened alike for clients and for work that is not timed.
#[derive(Clone)]
pub(crate) struct ConnectOptions {
    transport: Transport,
    options: Opts,
    login: Login,
    /// The settings of a session in which nobody has set any, as they were read when the store was opened.
    usual: Option<Arc<Settings>>,
}

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// A client's reason.
    #[error(transparent)]
    Client(#[from] OpenError),
    /// The driver's reason.
    #[error("{}", fault::words(.0))]
    Driver(#[from] Error),
}

impl ConnectError {
    /// The number of the server's error, if it is one.
    fn code(&self) -> Option<u16> {
        match self {
            Self::Client(OpenError::Other(error)) => error.answer().map(|answer| answer.code),
            Self::Driver(Error::Server(answer)) => Some(answer.code),
            Self::Client(OpenError::Login(_)) | Self::Driver(_) => None,
        }
    }
}

impl Variant {
    /// Opens the store at an address, connecting to see that it is there, that it is the product, that it has the engine, and
    /// that connections have sessions of their own.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] where nobody answers, the login fails, it is another server, or connections share sessions
    /// behind a proxy.
    pub async fn open(self, address: &Address) -> Result<MariaDb, StoreError> {
        let Self { product, engine, .. } = self;
        let mut store = MariaDb { server: ConnectOptions::new(address)?, product, engine };
        // asked first, because the driver does not survive what our client refuses
        if let Err(error @ ConnectError::Client(OpenError::Login(_))) = store.server.connect().await {
            return Err(store.unreachable(&error));
        }
        let (variables, has) = store.on_server("looking at the server", server(engine)).await?;
        let version = variables.get("version").map_or("", String::as_str);
        let unfit = |cause: String, remedy: String| StoreError::Unreachable {
            address: address.to_string(),
            cause,
            remedy,
        };
        let is = Product::of(version);
        let named = product::other(is, &variables).unwrap_or_else(|| format!("{is} {version}"));
        if is != product {
            let scheme = address.scheme.replace(product.scheme(), is.scheme());
            return Err(unfit(
                format!("it is {named}, not {product}"),
                format!("write {scheme}:// (the store {}) where {}:// stands", is.scheme(), address.scheme),
            ));
        }
        if !has {
            let cause = format!("{named} has no engine {} there", engine.name());
            return Err(unfit(cause, engine.remedy().to_owned()));
        }
        store.server.usual = Some(store.own_sessions().await?.into());
        Ok(store)
    }
}

/// The variables by which a server's product is told, and whether it has an engine.
fn server(engine: Engine) -> impl AsyncFnOnce(&mut Conn) -> Result<(BTreeMap<String, String>, bool), Error> {
    async move |conn| {
        let variables = variables(conn, &product::VARIABLES).await?;
        let has =
            "SELECT 1 FROM information_schema.engines WHERE engine = ? AND support IN ('YES', 'DEFAULT')";
        Ok((variables, !rows(conn, has, (engine.name(),)).await?.is_empty()))
    }
}

impl MariaDb {
    /// Opens a connection as each client has one.
    async fn connection(&self) -> Result<Connection, StoreError> {
        self.server.connect().await.map_err(|error| self.unreachable(&error))
    }

    fn unreachable(&self, error: &ConnectError) -> StoreError {
        let (cause, remedy) = fault::unreachable(error, self.product, self.server.address());
        StoreError::Unreachable { address: self.server.address().to_string(), cause, remedy }
    }

    /// Runs work that is not timed, on a connection of its own.
    async fn on_server<T>(
        &self,
        doing: &str,
        work: impl AsyncFnOnce(&mut Conn) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        let mut conn = self.server.connect_driver().await.map_err(|error| self.unreachable(&error))?;
        let done = match work(&mut conn).await {
            Err(error) if fault::is_read_only(&error) => {
                let is = read_only(&mut conn, self.server.address()).await;
                return Err(is.ok().flatten().unwrap_or_else(|| self.failed(doing, &error)));
            }
            done => done.map_err(|error| self.failed(doing, &error))?,
        };
        // the work is done; how the connection ends does not matter
        let _ = conn.disconnect().await;
        Ok(done)
    }

    /// The TLS of a client's connection, with what the server says of its side; none without TLS.
    async fn negotiated(&self) -> Result<Option<NegotiatedTls>, StoreError> {
        if self.server.address().tls.is_none() {
            return Ok(None);
        }
        let mut connection = self.connection().await?;
        let Some(tls) = connection.negotiated() else { return Ok(None) };
        let shown = "SHOW SESSION STATUS WHERE Variable_name IN ('Ssl_version', 'Ssl_cipher')";
        let rows = connection.query(shown).await.map_err(|error| StoreError::Server {
            doing: "reading the settings of TLS".to_owned(),
            address: self.server.address().to_string(),
            cause: error.to_string(),
        })?;
        let said = |name: &str| {
            let row = rows.iter().find(|row| text(row, 0) == name);
            row.map_or_else(|| "unknown".to_owned(), |row| text(&row, 1).to_owned())
        };
        // empty without TLS
        let version = said("Ssl_version");
        let version = if version.is_empty() { "none" } else { &version };
        Ok(Some(tls.beside(version, &said("Ssl_cipher"))))
    }

    fn failed(&self, doing: &str, error: &Error) -> StoreError {
        StoreError::Server {
            doing: doing.to_owned(),
            address: self.server.address().to_string(),
            cause: fault::words(error),
        }
    }

    fn occupied(&self, namespace: &str) -> StoreError {
        StoreError::Occupied {
            namespace: format!("database `{namespace}`"),
            address: self.server.address().to_string(),
        }
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // left out: the driver's options hold the password
        f.debug_struct("ConnectOptions").field("address", self.address()).finish_non_exhaustive()
    }
}

impl ConnectOptions {
    /// For the server at an address.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`]: a certificate that it names cannot be used.
    fn new(address: &Address) -> Result<Self, StoreError> {
        let transport = Transport::new(address, DEFAULT_PORT)?;
        let database = (!address.path.is_empty()).then_some(&address.path);
        let options = OptsBuilder::default()
            .ip_or_hostname(&address.host)
            .socket(address.socket.as_ref())
            .tcp_port(address.port.unwrap_or(DEFAULT_PORT))
            .user(address.user.as_ref())
            .pass(address.password.as_ref().map(Secret::reveal))
            .db_name(database)
            .tcp_nodelay(true)
            // otherwise the driver switches from the address to a socket file that the server names
            .prefer_socket(false)
            .client_found_rows(true)
            .init(vec!["SET autocommit=1"]);
        let login = Login {
            user: address.user.clone(),
            password: address.password.clone(),
            database: database.cloned(),
        };
        Ok(Self { options: options.into(), transport, login, usual: None })
    }

    /// The settings that clients expect of a session that they are given.
    pub(crate) fn usual(&self) -> Option<&Settings> {
        self.usual.as_deref()
    }

    fn address(&self) -> &Address {
        self.transport.address()
    }

    /// Connects and logs in, for a client.
    async fn connect(&self) -> Result<Connection, ConnectError> {
        let opened = self.transport.in_time(Connection::open(&self.transport, &self.login)).await;
        Ok(opened.unwrap_or_else(|late| Err(protocol::Error::NotSent(late.to_string()).into()))?)
    }

    /// Connects and logs in by the driver, for work that is not timed.
    async fn connect_driver(&self) -> Result<Conn, ConnectError> {
        let options = self.options.clone();
        // made anew, so that the driver does not resume the session of another connection
        #[cfg(feature = "tls")]
        let options = match self.transport.security() {
            Some(security) => OptsBuilder::from_opts(options).ssl_opts(security.mysql()).into(),
            None => options,
        };
        Ok(self.transport.in_time(Conn::new(options)).await.map_err(Error::from)??)
    }
}

/// A quoted SQL name, which may hold any characters.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// The quoted name of a trial's table or procedure, with its database.
fn object(place: &Place, name: &str) -> String {
    format!("{}.{}", quoted(&place.namespace), quoted(&place.object(name)))
}

fn marker(namespace: &str) -> String {
    format!("{}.marker", quoted(namespace))
}

impl Store for MariaDb {
    fn identity(&self) -> Task<'_, Result<Option<Identity>, StoreError>> {
        Box::pin(async {
            let asked = async |conn: &mut Conn| match identity(conn, self.product).await {
                // a proxy or a cousin that does not know these tables
                Err(Error::Server(_)) => Ok(None),
                answered => answered.map(Some),
            };
            self.on_server("asking which server answers", asked).await
        })
    }

    fn effective(&self) -> Task<'_, Result<EffectiveSettings, StoreError>> {
        Box::pin(async {
            let read = async |conn: &mut Conn| settings(conn, self.engine).await;
            let settings = self.on_server("reading the settings", read).await?;
            let value = |name: &str| settings.get(name).map_or("", String::as_str);
            let (durability, because) = durability::durability(self.engine, value);
            let tls = self.negotiated().await?;
            let other = product::other(self.product, &settings);
            let version = value("version").to_owned();
            let read = EffectiveSettings { version, durability, because, settings, tls };
            Ok(match other {
                None => read,
                Some(server) => read.of_another(&server, &self.product.to_string()),
            })
        })
    }

    fn connecting(&self) -> Task<'_, Result<Option<Duration>, StoreError>> {
        Box::pin(time_opening(self.connection()))
    }

    fn owner<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<Owner, StoreError>> {
        Box::pin(self.on_server("looking for the namespace", async move |conn| owner(conn, namespace).await))
    }

    fn create<'a>(&'a self, namespace: &'a str, run: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            const DOING: &str = "making the namespace";
            let look = async |conn: &mut Conn| {
                let is_prepared = owner(conn, namespace).await? == Owner::Prepared;
                Ok((is_prepared, if is_prepared { unfit(conn, namespace).await? } else { None }))
            };
            let (is_prepared, unfit) = self.on_server(DOING, look).await?;
            if let Some(cause) = unfit {
                let address = self.server.address().to_string();
                return Err(StoreError::Server { doing: DOING.to_owned(), address, cause });
            }
            let there = async |conn: &mut Conn| match create(conn, namespace, run, is_prepared).await {
                Err(Error::Server(answer)) if [DATABASE_EXISTS, TABLE_EXISTS].contains(&answer.code) => {
                    Ok(true)
                }
                made => made.map(|()| false),
            };
            let there = self.on_server(DOING, there).await?;
            if there { Err(self.occupied(namespace)) } else { Ok(()) }
        })
    }

    fn remove<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("removing the namespace", async move |conn| remove(conn, namespace).await))
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

    fn logs(&self) -> Option<&dyn LogsStore> {
        self.engine.is_transactional().then_some(self as &dyn LogsStore)
    }

    fn parcels(&self) -> Option<&dyn ParcelsStore> {
        self.engine.counts_scans().then_some(self as &dyn ParcelsStore)
    }

    fn transactions(&self) -> Option<&dyn TransactionsStore> {
        self.engine.is_transactional().then_some(self as &dyn TransactionsStore)
    }

    fn interactive(&self) -> Option<&dyn InteractiveStore> {
        self.engine.is_transactional().then_some(self as &dyn InteractiveStore)
    }
}

/// What a server is that takes no writes; none where it does not say.
async fn read_only(conn: &mut Conn, address: &Address) -> Result<Option<StoreError>, Error> {
    let address = address.to_string();
    // a user need not have the right to ask
    let replica = rows(conn, "SHOW REPLICA STATUS", ()).await.unwrap_or_default();
    if let Some(of) = replica.first() {
        return Ok(Some(StoreError::replica(address, primary(of))));
    }
    let values = variables(conn, &READ_ONLY).await?;
    let is_on = |name: &&str| values.get(*name).is_some_and(|value| value != "OFF");
    Ok(READ_ONLY.into_iter().find(is_on).map(|name| StoreError::ReadOnly {
        address,
        is: format!("read-only ({name}={})", values[name]),
        remedy: "give the address of a server that takes writes, or SET GLOBAL read_only = OFF".to_owned(),
    }))
}

/// `HOST:PORT` of the server whose replica has this state. `MariaDB` and `MySQL` have their own names for it.
fn primary(state: &Row) -> Option<String> {
    let of = |what: &str| {
        column(state, |name| ["Source_", "Master_"].iter().any(|role| name == format!("{role}{what}")))
    };
    Some(format!("{}:{}", text(state, of("Host")?), state.whole(of("Port")?)?))
}

/// The place of the first column with such a name, which not every version of a server has.
fn column(row: &Row, is_named: impl Fn(&str) -> bool) -> Option<usize> {
    row.columns_ref().iter().position(|column| is_named(&column.name_str()))
}

async fn settings(conn: &mut Conn, engine: Engine) -> Result<BTreeMap<String, String>, Error> {
    let mut settings =
        variables(conn, &[&product::VARIABLES, SETTINGS, settings_of(engine)].concat()).await?;
    // no variable: it is switched off and on by a statement, on MySQL
    let logged = "SHOW GLOBAL STATUS WHERE Variable_name = 'Innodb_redo_log_enabled'";
    settings.extend(pairs(&rows(conn, logged, ()).await?));
    Ok(settings)
}

async fn variables(conn: &mut Conn, names: &[&str]) -> Result<BTreeMap<String, String>, Error> {
    Ok(pairs(&rows(conn, show(names), ()).await?).collect())
}

/// The statement that shows a session's values of these variables, of those that there are.
fn show(names: &[&str]) -> String {
    format!("SHOW SESSION VARIABLES WHERE Variable_name IN ('{}')", names.join("', '"))
}

/// Names and values in the answer to a SHOW.
fn pairs(rows: &[Row]) -> impl Iterator<Item = (String, String)> + '_ {
    rows.iter().map(|row| (text(row, 0).to_owned(), text(row, 1).to_owned()))
}

/// Where it is, and when it was started, in whole seconds: its clock and how long it has been up, both as of the same statement. `MariaDB`
/// has no name for its data.
async fn identity(conn: &mut Conn, product: Product) -> Result<Identity, Error> {
    let (data, status) = match product {
        Product::MariaDb => ("NULL", "information_schema.global_status"),
        Product::MySql => ("@@server_uuid", "performance_schema.global_status"),
    };
    let sql = format!(
        "SELECT CONCAT(UNIX_TIMESTAMP() - CAST(variable_value AS SIGNED), ' ', @@hostname, ' ', @@port), {data}
         FROM {status} WHERE variable_name = 'Uptime'"
    );
    let rows = rows(conn, sql, ()).await?;
    let row = rows.first().ok_or_else(|| Error::Other("it has no Uptime".into()))?;
    let data = Some(text(row, 1)).filter(|data| !data.is_empty());
    Ok(Identity { life: text(row, 0).to_owned(), data: data.map(str::to_owned), is_exact: true })
}

async fn owner(conn: &mut Conn, namespace: &str) -> Result<Owner, Error> {
    // compared byte by byte: whether names differ by case depends on the server's files
    let there = "SELECT * FROM information_schema.schemata WHERE BINARY schema_name = BINARY ?";
    let databases = rows(conn, there, (namespace,)).await?;
    let Some(database) = databases.first() else { return Ok(Owner::Nobody) };
    if !has_marker(conn, namespace, "run").await? {
        let comment = column(database, |name| name.eq_ignore_ascii_case("schema_comment"));
        let run = comment.and_then(|comment| text(database, comment).strip_prefix(COMMENT));
        return Ok(match (is_empty(conn, namespace, "").await?, run) {
            (true, Some(run)) => Owner::Run(run.to_owned()),
            (true, None) => Owner::Prepared,
            (false, _) => Owner::Stranger,
        });
    }
    let run = format!("SELECT run FROM {} WHERE run IS NOT NULL LIMIT 1", marker(namespace));
    if let Some(row) = rows(conn, run, ()).await?.first() {
        return Ok(Owner::Run(text(row, 0).to_owned()));
    }
    // the place of a mark, without one, is left only by a run killed while making the database
    Ok(if is_empty(conn, namespace, "marker").await? { Owner::Empty } else { Owner::Stranger })
}

/// Whether the namespace has a table for the mark, with this column.
async fn has_marker(conn: &mut Conn, namespace: &str, column: &str) -> Result<bool, Error> {
    let marked = "SELECT 1 FROM information_schema.columns WHERE BINARY table_schema = BINARY ?
                  AND table_name = 'marker' AND column_name = ?";
    Ok(!rows(conn, marked, (namespace, column)).await?.is_empty())
}

/// Whether a database holds nothing but at most a table of this name. Creating the database, creating the table
/// for the mark and inserting the mark are three steps, and a run may be killed between them.
async fn is_empty(conn: &mut Conn, namespace: &str, but: &str) -> Result<bool, Error> {
    let objects = "SELECT 1 FROM information_schema.tables
                   WHERE BINARY table_schema = BINARY ? AND table_name <> ?
                   UNION ALL SELECT 1 FROM information_schema.routines WHERE BINARY routine_schema = BINARY ?
                   UNION ALL SELECT 1 FROM information_schema.events WHERE BINARY event_schema = BINARY ?";
    Ok(rows(conn, objects, (namespace, but, namespace, namespace)).await?.is_empty())
}

/// Why a prepared database cannot be used, if it cannot: texts are to be what they are in a database of acidtest's own.
async fn unfit(conn: &mut Conn, namespace: &str) -> Result<Option<String>, Error> {
    let sql = "SELECT default_character_set_name FROM information_schema.schemata
               WHERE BINARY schema_name = BINARY ?";
    let rows = rows(conn, sql, (namespace,)).await?;
    let set = rows.first().map_or("", |row| text(row, 0));
    let remedy = format!("ALTER DATABASE {} CHARACTER SET {CHARACTER_SET}", quoted(namespace));
    Ok((set != CHARACTER_SET).then(|| format!("its character set is {set}: {remedy}")))
}

/// The mark in a database that was prepared has a column more.
async fn create(conn: &mut Conn, namespace: &str, run: &str, is_prepared: bool) -> Result<(), Error> {
    let marker = marker(namespace);
    if !is_prepared {
        let (name, comment) = (quoted(namespace), format!("{COMMENT}{run}").replace(['\'', '\\'], ""));
        // read by MariaDB from 10.5 on alone
        let comment = format!("/*M!100500 COMMENT '{comment}' */");
        conn.query_drop(format!("CREATE DATABASE {name} CHARACTER SET {CHARACTER_SET} {comment}")).await?;
    }
    let prepared = if is_prepared { ", prepared BOOL" } else { "" };
    conn.query_drop(format!("CREATE TABLE {marker} (run TEXT NOT NULL{prepared}) ENGINE=InnoDB")).await?;
    conn.exec_drop(format!("INSERT INTO {marker} (run) VALUES (?)"), (run,)).await
}

/// Drops the database, or what is in it where it was prepared. The mark goes last, so that the rest of an interrupted removal
/// is still known as acidtest's.
async fn remove(conn: &mut Conn, namespace: &str) -> Result<(), Error> {
    let drops = "SELECT 'TABLE', table_name FROM information_schema.tables
                 WHERE BINARY table_schema = BINARY ? AND table_type = 'BASE TABLE' AND table_name <> 'marker'
                 UNION ALL SELECT routine_type, routine_name FROM information_schema.routines
                 WHERE BINARY routine_schema = BINARY ?";
    if !has_marker(conn, namespace, "prepared").await? {
        return conn.query_drop(format!("DROP DATABASE IF EXISTS {}", quoted(namespace))).await;
    }
    for row in rows(conn, drops, (namespace, namespace)).await? {
        let (kind, name) = (text(&row, 0), text(&row, 1));
        conn.query_drop(format!("DROP {kind} {}.{}", quoted(namespace), quoted(name))).await?;
    }
    conn.query_drop(format!("DROP TABLE {}", marker(namespace))).await
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
        let server = ConnectOptions::new(&address).unwrap();
        let store = MariaDb { server, product: Product::MySql, engine: Engine::InnoDb };
        assert!(!format!("{store:?}").contains("hunter2"));
    }
}
