//! SQLite, embedded: a database file, one connection and one thread per client.
//!
#![doc = include_str!("../GUARANTEES.md")]

mod interactive;
mod inventory;
mod join;
mod logs;
mod parcels;
mod queue;
mod records;
mod transaction;
mod transactions;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use acidtest_model::{
    Address, Durability, EffectiveSettings, Hosting, Isolation, Lock, NO_REFRESH, StoreError, StoreKind,
    Support, Task,
};
use acidtest_workloads::{
    Attempt, Fault, Owner, Place, Store,
    interactive::InteractiveStore,
    inventory::InventoryStore,
    join::JoinStore,
    logs::LogsStore,
    parcels::{ParcelsStore, beyond_a_table},
    queue::{Ack, Delivery, QueueStore, idle_on_tables},
    records::RecordsStore,
    transactions::TransactionsStore,
};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};

/// The store's entry in the list of stores: its names, and which lock modes, durability levels, isolation levels
/// and workloads it supports, each with the means or the reason.
pub const KIND: StoreKind = StoreKind {
    name: "sqlite",
    title: "SQLite",
    schemes: &["sqlite"],
    address: "sqlite:FILE",
    hosting: Hosting::Embedded,
    default_port: 0,
    locks: &[
        (Lock::None, Support::Yes("SELECT, then UPDATE to the computed value")),
        (Lock::Soft, Support::Yes("version column in the UPDATE's WHERE")),
        (Lock::Hard, Support::Yes("BEGIN IMMEDIATE: the whole database")),
        (Lock::Native, Support::Yes("one UPDATE … RETURNING")),
    ],
    durability: &[
        (Durability::None, Support::Yes(settings(Durability::None))),
        (Durability::Process, Support::Yes(settings(Durability::Process))),
        (Durability::Disk, Support::Yes(settings(Durability::Disk))),
    ],
    isolation: &[
        (
            Isolation::ReadUncommitted,
            Support::No("only connections that share one cache can read what is not committed"),
        ),
        (Isolation::ReadCommitted, Support::No("every transaction is serializable")),
        (Isolation::RepeatableRead, Support::No("every transaction is serializable")),
        (Isolation::Serializable, Support::Yes("always: there is no other level")),
    ],
    transactions: Support::Yes("BEGIN … COMMIT; IMMEDIATE if it writes under a hard or native lock"),
    refresh: NO_REFRESH,
    tls: acidtest_model::NO_NETWORK,
    replication: &[],
    replica_reads: None,
    lock_service: false,
    processes: Support::Yes("each opens the file; SQLite locks it between processes"),
    durability_of_data: false,
    in_memory: false,
    client_kib: 228,
    workloads: &[
        ("inventory", Support::Yes("capture and release")),
        ("records", Support::Yes("a table with a unique index on the key")),
        ("join", Support::Yes("both orders, planned after ANALYZE")),
        ("queue", Support::Yes("a table: INSERT, and SELECT and DELETE in one BEGIN IMMEDIATE")),
        ("logs", Support::Yes("a gateway in front of it, which has the file open")),
        ("parcels", Support::Yes("a table with an index on the hash; SCAN_ID is the rowid")),
        ("transactions", Support::Yes("BEGIN DEFERRED, a statement for each step, COMMIT; lists are text")),
    ],
    refuses: |request| beyond_a_table(request).or_else(|| refuses(&Delivery::of(request)?)),
    idle: idle_on_tables,
};

/// The pragmas that put a file on a durability level.
const fn settings(durability: Durability) -> &'static str {
    match durability {
        Durability::None => "journal_mode=MEMORY, synchronous=OFF",
        Durability::Process => "journal_mode=WAL, synchronous=OFF",
        Durability::Disk => "journal_mode=WAL, synchronous=FULL",
    }
}

fn refuses(delivery: &Delivery) -> Option<&'static str> {
    const ONE_BY_ONE: &str =
        "a call returns when it is done: --in-flight 1, or --ack transaction with a --batch";
    let several = delivery.producers > 0 && delivery.ack == Ack::Confirm && delivery.in_flight > 1;
    delivery.beyond_a_table().or(several.then_some(ONE_BY_ONE))
}

/// A SQLite database file, as a store.
#[derive(Debug)]
pub struct Sqlite {
    file: File,
    /// Whether acidtest created the file, and so may remove it.
    made: bool,
}

/// Opens connections to the file, in the same way for clients and for reading settings back.
#[derive(Clone, Debug)]
struct File {
    path: PathBuf,
    /// The durability level to set on a file of acidtest's own; `None` for a user's file, which keeps its settings.
    durability: Option<Durability>,
}

impl Sqlite {
    /// Opens the file, creating it if it does not exist. With a durability level, its settings are set to that.
    ///
    /// # Errors
    /// The file cannot be created or is no SQLite database.
    pub fn open(address: &Address, durability: Option<Durability>) -> Result<Self, StoreError> {
        let path = PathBuf::from(&address.path);
        let made = !path.exists();
        let store = Self { file: File { path, durability }, made };
        let unreachable = |error: rusqlite::Error| StoreError::Unreachable {
            address: address.to_string(),
            cause: error.to_string(),
            remedy: "name a file that acidtest may create or that is an SQLite database".to_owned(),
        };
        let connection = store.file.connect().map_err(unreachable)?;
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).map_err(unreachable)?;
        Ok(store)
    }

    fn address(&self) -> String {
        format!("sqlite:{}", self.file.path.display())
    }

    /// Runs work that is not timed, on a connection of its own.
    fn on_file<T>(
        &self,
        doing: &str,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.told(doing, self.file.connect().and_then(|mut connection| work(&mut connection)))
    }

    /// Turns SQLite's error into the store's, which names the work that failed.
    fn told<T>(&self, doing: &str, done: rusqlite::Result<T>) -> Result<T, StoreError> {
        done.map_err(|error| StoreError::Server {
            doing: doing.to_owned(),
            address: self.address(),
            cause: error.to_string(),
        })
    }

    /// Removes the trial's tables; one that does not exist is no error.
    fn drop_tables(&self, doing: &str, place: &Place, objects: &[&str]) -> Result<(), StoreError> {
        self.on_file(doing, |connection| {
            for object in objects {
                connection.execute_batch(&format!("DROP TABLE IF EXISTS {}", named(place, object)))?;
            }
            forget_statistics(connection)
        })
    }
}

impl File {
    fn connect(&self) -> rusqlite::Result<Connection> {
        self.connect_as(OpenFlags::default())
    }

    fn connect_as(&self, flags: OpenFlags) -> rusqlite::Result<Connection> {
        let mut connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_handler(Some(wait_for_writer))?;
        if let Some(durability) = self.durability {
            for setting in settings(durability).split(", ") {
                connection.execute_batch(&format!("PRAGMA {setting}"))?;
            }
        }
        Ok(connection)
    }
}

/// Waits a little for the connection that is writing, for five seconds in all: short waits of even length keep
/// clients' turns fair, where SQLite's own handler grows to 100 ms.
fn wait_for_writer(tries: i32) -> bool {
    let micros = if tries < 5 { 100 } else { 1000 };
    thread::sleep(Duration::from_micros(micros));
    tries < 5_000
}

/// How an error ends the operation that met it.
fn attempt(error: &rusqlite::Error) -> Attempt {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Attempt::Conflict,
        Some(ErrorCode::SystemIoFailure) => Attempt::Unknown(Fault::lost(error.to_string())),
        _ => Attempt::Failed(Fault::answered(error.to_string())),
    }
}

/// The quoted name of one of the trial's tables.
fn named(place: &Place, object: &str) -> String {
    quoted(&format!("{}:{}", place.namespace, place.object(object)))
}

fn marker(namespace: &str) -> String {
    quoted(&format!("{namespace}:marker"))
}

/// A quoted SQL name, which may hold any characters.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Names of the namespace's tables.
fn tables(connection: &Connection, namespace: &str) -> rusqlite::Result<Vec<String>> {
    let prefix = format!("{namespace}:");
    let mut tables = connection.prepare(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND substr(name, 1, length(?1)) = ?1",
    )?;
    tables.query_map([prefix], |row| row.get(0))?.collect()
}

/// Names of the tables that gateways of the namespace's trials have made.
fn gateway_tables(connection: &Connection, namespace: &str) -> rusqlite::Result<Vec<String>> {
    let mut tables = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
    let names = tables.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    Ok(names.into_iter().filter(|name| logs::is_table(namespace, name)).collect())
}

/// Removes the tables that ANALYZE made, once all of them are empty: when a table is dropped its rows in them go
/// with it, and they must stay while they describe other tables.
fn forget_statistics(connection: &Connection) -> rusqlite::Result<()> {
    let mut made = connection
        .prepare("SELECT name FROM sqlite_schema WHERE name IN ('sqlite_stat1', 'sqlite_stat4')")?;
    let made = made.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    for table in &made {
        let used = format!("SELECT EXISTS (SELECT 1 FROM {table})");
        if connection.query_row(&used, [], |row| row.get(0))? {
            return Ok(());
        }
    }
    made.iter().try_for_each(|table| connection.execute_batch(&format!("DROP TABLE {table}")))
}

impl Store for Sqlite {
    fn effective(&self) -> Task<'_, Result<EffectiveSettings, StoreError>> {
        Box::pin(async {
            self.on_file("reading the settings", |connection| {
                let pragma = |name: &str| {
                    connection.query_row(&format!("PRAGMA {name}"), [], |row| {
                        let value: rusqlite::types::Value = row.get(0)?;
                        Ok(match value {
                            rusqlite::types::Value::Integer(number) => number.to_string(),
                            rusqlite::types::Value::Text(text) => text,
                            other => format!("{other:?}"),
                        })
                    })
                };
                let mut settings = BTreeMap::new();
                for name in ["journal_mode", "synchronous", "page_size", "cache_size", "wal_autocheckpoint"] {
                    settings.insert(name.to_owned(), pragma(name)?);
                }
                let (durability, because) = durability(&settings["journal_mode"], &settings["synchronous"]);
                Ok(EffectiveSettings {
                    version: rusqlite::version().to_owned(),
                    durability: durability.into(),
                    because: because.to_owned(),
                    settings,
                    tls: None,
                })
            })
        })
    }

    fn owner<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<Owner, StoreError>> {
        Box::pin(async move {
            self.on_file("looking for the namespace", |connection| {
                let names = tables(connection, namespace)?;
                if names.is_empty() {
                    // a gateway's tables have plain names, which somebody else may have used
                    let is_used = !gateway_tables(connection, namespace)?.is_empty();
                    return Ok(if is_used { Owner::Stranger } else { Owner::Nobody });
                }
                if !names.contains(&format!("{namespace}:marker")) {
                    return Ok(Owner::Stranger);
                }
                let run: Option<String> = connection
                    .query_row(&format!("SELECT run FROM {}", marker(namespace)), [], |row| row.get(0))
                    .optional()?;
                Ok(run.map_or(Owner::Stranger, Owner::Run))
            })
        })
    }

    fn create<'a>(&'a self, namespace: &'a str, run: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            if self.owner(namespace).await? != Owner::Nobody {
                return Err(StoreError::Occupied {
                    namespace: format!("namespace \"{namespace}\""),
                    address: self.address(),
                });
            }
            self.on_file("making the namespace", |connection| {
                let marker = marker(namespace);
                let transaction = connection.transaction()?;
                transaction.execute_batch(&format!(
                    "CREATE TABLE {marker} (run TEXT NOT NULL, made INTEGER NOT NULL)"
                ))?;
                transaction
                    .execute(&format!("INSERT INTO {marker} VALUES (?1, ?2)"), params![run, self.made])?;
                transaction.commit()
            })
        })
    }

    fn remove<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let ours = self.on_file("removing the namespace", |connection| {
                let transaction = connection.transaction()?;
                let made = format!("SELECT made FROM {}", marker(namespace));
                // a namespace without a mark is removed only when the user asks for it, and its file never
                let made = transaction.query_row(&made, [], |row| row.get(0)).unwrap_or(false);
                let mut names = tables(&transaction, namespace)?;
                if names.contains(&format!("{namespace}:marker")) {
                    names.extend(gateway_tables(&transaction, namespace)?);
                }
                for name in names {
                    transaction.execute_batch(&format!("DROP TABLE {}", quoted(&name)))?;
                }
                forget_statistics(&transaction)?;
                let empty: bool =
                    transaction.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))?;
                transaction.commit()?;
                Ok(made && empty)
            })?;
            if ours {
                remove_file(&self.file.path);
            }
            Ok(())
        })
    }

    fn blocking(&self) -> bool {
        true
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

    fn interactive(&self) -> Option<&dyn InteractiveStore> {
        Some(self)
    }
}

/// Removes a database file of acidtest's own with its log files. A file that is gone already is no error.
fn remove_file(path: &Path) {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let _ = fs::remove_file(name);
    }
}

/// The durability level that journal mode and synchronous level amount to, and the reason in words.
fn durability(journal: &str, synchronous: &str) -> (Durability, &'static str) {
    match (journal, synchronous) {
        ("off" | "memory", _) => (Durability::None, "the rollback journal is not on disk"),
        ("delete", "2") => (
            Durability::Process,
            "a commit is the removal of the rollback journal, and synchronous=FULL does not sync its folder: a journal \
             that is there again after a loss of power takes the commit back",
        ),
        ("delete", "3") => {
            (Durability::Disk, "synchronous is EXTRA: the removal of the journal is synced, too")
        }
        ("wal" | "truncate" | "persist", "2" | "3") => {
            (Durability::Disk, "synchronous is FULL or EXTRA: every commit is synced")
        }
        _ => (Durability::Process, "synchronous is below FULL: commits are not synced"),
    }
}

/// A database of a test's own, in its folder.
#[cfg(test)]
fn opened(folder: &tempfile::TempDir) -> Sqlite {
    let path = folder.path().join("db");
    Sqlite::open(&Address::file("sqlite", path.to_str().unwrap()), Some(Durability::None)).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_durability_is_set_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for asked in Durability::ALL {
            let path = folder.path().join(asked.name());
            let address = Address::file("sqlite", path.to_str().unwrap());
            let store = Sqlite::open(&address, Some(asked)).unwrap();
            let effective = runtime.block_on(store.effective()).unwrap();
            assert_eq!(effective.durability, asked, "{:?}", effective.settings);
        }
    }

    /// What is synced at a commit was seen with strace: in each of these modes.
    #[test]
    fn a_durability_is_never_better_than_what_is_synced() {
        for (journal, [off, normal, full, extra]) in [
            ("delete", [Durability::Process, Durability::Process, Durability::Process, Durability::Disk]),
            ("truncate", [Durability::Process, Durability::Process, Durability::Disk, Durability::Disk]),
            ("persist", [Durability::Process, Durability::Process, Durability::Disk, Durability::Disk]),
            ("wal", [Durability::Process, Durability::Process, Durability::Disk, Durability::Disk]),
            ("memory", [Durability::None; 4]),
            ("off", [Durability::None; 4]),
        ] {
            for (synchronous, expected) in [("0", off), ("1", normal), ("2", full), ("3", extra)] {
                assert_eq!(durability(journal, synchronous).0, expected, "{journal}, {synchronous}");
            }
        }
    }

    /// A file of the user's, as SQLite makes it by itself: journal DELETE, synchronous FULL.
    #[test]
    fn sqlite_s_own_default_does_not_survive_a_loss_of_power() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("theirs.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE orders (a)").unwrap();
        let store = Sqlite::open(&Address::file("sqlite", path.to_str().unwrap()), None).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let effective = runtime.block_on(store.effective()).unwrap();
        assert_eq!(
            (&*effective.settings["journal_mode"], &*effective.settings["synchronous"]),
            ("delete", "2")
        );
        assert_eq!(effective.durability, Durability::Process);
        assert!(effective.because.contains("FULL does not sync its folder"), "{}", effective.because);
    }

    #[test]
    fn a_user_s_file_keeps_its_settings_and_its_tables() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("theirs.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE \"acidtest:orders\" (a)").unwrap();
        let address = Address::file("sqlite", path.to_str().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let store = Sqlite::open(&address, None).unwrap();
        let effective = runtime.block_on(store.effective()).unwrap();
        assert_eq!(effective.settings["journal_mode"], "delete");
        assert_eq!(runtime.block_on(store.owner("acidtest")).unwrap(), Owner::Stranger);
        runtime.block_on(store.create("mine", "run 1")).unwrap();
        assert_eq!(runtime.block_on(store.owner("mine")).unwrap(), Owner::Run("run 1".to_owned()));
        runtime.block_on(store.remove("mine")).unwrap();
        assert_eq!(runtime.block_on(store.owner("mine")).unwrap(), Owner::Nobody);
        assert!(path.exists(), "a file that was there stays");
    }

    #[test]
    fn what_is_no_database_is_said_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        fs::write(&path, "this is no database, whatever its length may be".repeat(50)).unwrap();
        let address = Address::file("sqlite", path.to_str().unwrap());
        let error = Sqlite::open(&address, None).unwrap_err().to_string();
        assert!(error.contains("file is not a database") && error.contains("remedy"), "{error}");
    }
}
