//! Entries in a file of SQLite. A commit is synced; only one connection writes at a time.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use rusqlite::{ErrorCode, OptionalExtension, params};

use super::{CONFLICT, OnConflict, Refused, SinkError, Stored, Tables};
use crate::{
    Error, blocking,
    entry::{Entry, Level},
    folder,
    queue::Queued,
};

/// Bytes of room for the index of SQLite's log: enough for a log of half a GiB.
const INDEX: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct SqliteSink {
    file: String,
    tables: Tables,
    index: Arc<Index>,
    /// Whether the tables were made, and found to be the gateway's.
    has_tables: AtomicBool,
}

/// The index of SQLite's log, the file `FILE-shm`, which has room on the disk.
///
/// SQLite maps it into memory, and before writes a byte of each 4 KiB of it. On a disk with smaller blocks the rest has no
/// room then, and where the disk is full, writing there ends the process (SIGBUS).
#[derive(Debug)]
struct Index {
    path: PathBuf,
    /// A file that is made and removed again, to see whether there is room.
    scratch: PathBuf,
    /// The file. It is not closed while a connection is open: with any descriptor of it that this process closes, the locks
    /// that SQLite has on it would be gone.
    file: Mutex<Option<File>>,
}

impl Index {
    fn of(file: &str) -> Self {
        let beside = |end| PathBuf::from(format!("{file}-{end}"));
        Self { path: beside("shm"), scratch: beside("room"), file: Mutex::default() }
    }

    /// Fails as a full disk does if there is no room for it. It is made when the database is opened, and used at once: too
    /// early for room that is only taken then.
    fn try_room(&self) -> io::Result<()> {
        if self.held().is_some() {
            return Ok(());
        }
        let taken = folder::private_file(&self.scratch).and_then(|file| folder::take_room(&file, INDEX));
        let _ = fs::remove_file(&self.scratch);
        taken
    }

    /// Takes room for it, if there is one.
    fn take_room(&self) -> io::Result<()> {
        let mut held = self.held();
        if held.is_none() && self.path.exists() {
            *held = Some(File::options().read(true).write(true).open(&self.path)?);
        }
        held.as_ref().map_or(Ok(()), |file| folder::take_room(file, INDEX))
    }

    /// The file, unless it was removed: then nobody has locks on it, and its room is given back.
    fn held(&self) -> MutexGuard<'_, Option<File>> {
        let mut held = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let which = |of: fs::Metadata| (of.dev(), of.ino());
        let there = fs::metadata(&self.path).map(which).ok();
        if held.as_ref().and_then(|file| file.metadata().map(which).ok()) != there {
            *held = None;
        }
        held
    }
}

/// None while a thread uses the connection, and if it was lost there.
#[derive(Debug)]
pub(crate) struct SqliteConnection(Option<Open>);

#[derive(Debug)]
struct Open {
    connection: rusqlite::Connection,
    /// Closed after the connection.
    _index: Arc<Index>,
    insert: String,
    stored: String,
    refuse: String,
}

/// An entry of its own, to be taken to another thread.
struct Owned {
    user: String,
    received: i64,
    entry: Entry<'static>,
    attributes: Option<String>,
}

/// Why it could not be opened.
enum Unopened {
    /// The disk is full, or a limit of what may be on it is reached.
    NoRoom(String),
    Other(String),
}

fn is_for_want_of_room(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let of_disk = error.downcast_ref::<io::Error>().map(io::Error::kind);
    let of_sqlite = error.downcast_ref().and_then(rusqlite::Error::sqlite_error_code);
    matches!(of_disk, Some(StorageFull | QuotaExceeded | FileTooLarge))
        || of_sqlite == Some(ErrorCode::DiskFull)
}

fn schema(Tables { entries, refused }: &Tables) -> String {
    format!(
        "BEGIN IMMEDIATE;
        CREATE TABLE IF NOT EXISTS {entries} (
            user_name TEXT NOT NULL, id TEXT NOT NULL, received_at INTEGER NOT NULL, logged_at INTEGER NOT NULL,
            level TEXT NOT NULL, application TEXT NOT NULL, message TEXT NOT NULL, attributes TEXT,
            PRIMARY KEY (user_name, id));
        CREATE TABLE IF NOT EXISTS {refused} (
            user_name TEXT NOT NULL, id TEXT NOT NULL, content TEXT NOT NULL, received_at INTEGER NOT NULL,
            reason TEXT NOT NULL, entry TEXT NOT NULL, PRIMARY KEY (user_name, id, content));
        COMMIT;"
    )
}

impl SqliteSink {
    /// Opens it, also where there is no room for it at present: then what comes waits until there is.
    pub(super) async fn open(file: &str, tables: Tables) -> Result<(Self, String), Error> {
        let sink = Self {
            file: file.to_owned(),
            tables,
            index: Arc::new(Index::of(file)),
            has_tables: AtomicBool::new(false),
        };
        if let Some(above) = Path::new(file).parent() {
            // the files beside it have the permissions that SQLite finds on it
            let made = folder::make(above).and_then(|()| folder::make_private(Path::new(file)));
            made.map_err(|error| Error::Unreached(format!("entries cannot be stored in {file}: {error}")))?;
        }
        let mut connection = match sink.try_connect().await {
            Ok(connection) => connection,
            Err(Unopened::NoRoom(why)) => {
                tracing::warn!("{why}: nothing is stored until there is room");
                return Ok((sink, format!("SQLite {}: {why}", rusqlite::version())));
            }
            Err(Unopened::Other(why)) => return Err(Error::Unreached(why)),
        };
        let journal = connection
            .with(|open| open.connection.pragma_query_value(None, "journal_mode", |row| row.get(0)));
        let journal: String = journal.await.map_err(|error| Error::Unreached(error.to_string()))?;
        let synced = match journal.as_str() {
            "wal" => "each commit is synced",
            // where the file cannot have a log, SQLite keeps the mode that it was in
            _ => "a commit may not be synced",
        };
        let about = format!("SQLite {}, {journal}, synchronous full: {synced}", rusqlite::version());
        Ok((sink, about))
    }

    /// Why nothing can be stored yet, if it could not be opened for want of room.
    pub(super) fn trouble(&self) -> Option<String> {
        (!self.has_tables.load(Relaxed)).then(|| format!("there is no room for SQLite in {}", self.file))
    }

    pub(super) async fn connect(&self) -> Result<SqliteConnection, SinkError> {
        let why = |(Unopened::NoRoom(why) | Unopened::Other(why))| SinkError::Away(why);
        self.try_connect().await.map_err(why)
    }

    /// Opens a connection; the first that can be opened makes the tables.
    async fn try_connect(&self) -> Result<SqliteConnection, Unopened> {
        let (file, index) = (self.file.clone(), Arc::clone(&self.index));
        let Tables { entries, refused } = self.tables.clone();
        let schema = (!self.has_tables.load(Relaxed)).then(|| schema(&self.tables));
        let opened = blocking(move || {
            index.try_room()?;
            let connection = rusqlite::Connection::open(&file)?;
            connection.busy_timeout(Duration::from_secs(5))?;
            connection.pragma_update(None, "journal_mode", "wal")?;
            connection.pragma_update(None, "synchronous", "full")?;
            index.take_room()?;
            let open = Open {
                connection,
                _index: index,
                insert: format!(
                    "INSERT INTO {entries} (user_name, id, received_at, logged_at, level, application, message, attributes)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (user_name, id) DO NOTHING"
                ),
                stored: format!(
                    "SELECT logged_at IS ?3 AND level IS ?4 AND application IS ?5 AND message IS ?6 AND attributes IS ?7
                     FROM {entries} WHERE user_name = ?1 AND id = ?2"
                ),
                refuse: format!(
                    "INSERT INTO {refused} (user_name, id, content, received_at, reason, entry)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (user_name, id, content) DO NOTHING"
                ),
            };
            if let Some(schema) = schema {
                open.make_tables(&schema).map_err(|error| {
                    format!("{error}\n  remedy: if its table {entries} is not the gateway's, choose another by --table")
                })?;
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(open)
        });
        let opened = opened.await.map_err(|error| Unopened::Other(error.to_string()))?;
        let open = opened.map_err(|error| {
            let why = format!("SQLite in {}: {error}", self.file);
            if is_for_want_of_room(&*error) { Unopened::NoRoom(why) } else { Unopened::Other(why) }
        })?;
        self.has_tables.store(true, Relaxed);
        Ok(SqliteConnection(Some(open)))
    }
}

impl SqliteConnection {
    async fn with<T: Send + 'static>(
        &mut self,
        ask: impl FnOnce(&mut Open) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, SinkError> {
        let lost = || SinkError::Away("the connection was lost".to_owned());
        let mut open = self.0.take().ok_or_else(lost)?;
        let done = blocking(move || {
            let answer = ask(&mut open);
            (open, answer)
        });
        let (open, answer) = done.await.map_err(|_| lost())?;
        self.0 = Some(open);
        answer.map_err(|error| match error.sqlite_error_code() {
            Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig) => {
                SinkError::Refused(error.to_string())
            }
            _ => SinkError::Away(error.to_string()),
        })
    }

    pub(super) async fn store(
        &mut self,
        entries: &[Queued<'_>],
        on_conflict: OnConflict,
    ) -> Result<Stored, SinkError> {
        let owned: Vec<Owned> = entries.iter().map(owned).collect();
        let mut stored = self.with(move |open| open.store(&owned)).await?;
        if on_conflict == OnConflict::Keep {
            for place in &stored.conflicts {
                if let Some(entry) = entries.get(*place) {
                    self.keep_refused(Refused::new(entry, CONFLICT)).await?;
                }
            }
        }
        stored.repeated = entries.len() as u64 - stored.new - stored.conflicts.len() as u64;
        Ok(stored)
    }

    pub(super) async fn keep_refused(&mut self, refused: Refused) -> Result<(), SinkError> {
        self.with(move |open| {
            let Refused { user, id, content, received, reason, entry } = refused;
            let mut insert = open.connection.prepare_cached(&open.refuse)?;
            insert.execute(params![user, id, content, received, reason, entry])
        })
        .await
        .map(|_| ())
    }
}

impl Open {
    fn make_tables(&self, schema: &str) -> rusqlite::Result<()> {
        self.connection.execute_batch(schema)?;
        // fails where a table of this name lacks a column, or its key
        self.connection.prepare(&self.insert)?;
        self.connection.prepare(&self.refuse)?;
        Ok(())
    }

    fn store(&mut self, entries: &[Owned]) -> rusqlite::Result<Stored> {
        let mut stored = Stored::default();
        let transaction =
            self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        {
            let mut insert = transaction.prepare_cached(&self.insert)?;
            let mut compare = transaction.prepare_cached(&self.stored)?;
            for (place, owned) in entries.iter().enumerate() {
                let Owned { user, received, entry, attributes } = owned;
                let level = entry.level.name();
                let (id, application, message) = (&*entry.id, &*entry.application, &*entry.message);
                let new = insert.execute(params![
                    user,
                    id,
                    received,
                    entry.timestamp,
                    level,
                    application,
                    message,
                    attributes
                ])?;
                stored.new += new as u64;
                if new == 0 {
                    let same: Option<bool> = compare
                        .query_row(
                            params![user, id, entry.timestamp, level, application, message, attributes],
                            |row| row.get(0),
                        )
                        .optional()?;
                    if same != Some(true) {
                        stored.conflicts.push(place);
                    }
                }
            }
        }
        transaction.commit()?;
        Ok(stored)
    }
}

fn owned(queued: &Queued<'_>) -> Owned {
    let Entry { id, timestamp, level, application, message, attributes } = &queued.entry;
    let own = |text: &str| std::borrow::Cow::Owned(text.to_owned());
    let level: Level = *level;
    Owned {
        user: queued.user.to_owned(),
        received: queued.received,
        entry: Entry {
            id: own(id),
            timestamp: *timestamp,
            level,
            application: own(application),
            message: own(message),
            attributes: None,
        },
        attributes: attributes.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// All of what SQLite maps into memory has its room from the start, also when it was made anew.
    #[tokio::test]
    async fn the_index_of_the_log_has_room_on_the_disk() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("logs.sqlite");
        let tables = Tables::named("logs").unwrap();
        let (sink, _) = SqliteSink::open(&file.to_string_lossy(), tables).await.unwrap();
        for _ in 0..2 {
            let first = sink.connect().await.unwrap();
            let second = sink.connect().await.unwrap();
            let index = fs::metadata(&sink.index.path).unwrap();
            assert!(index.blocks() * 512 >= INDEX, "{} blocks", index.blocks());
            drop(first);
            assert!(sink.index.path.exists());
            drop(second);
            assert!(!sink.index.path.exists(), "the last connection removes it");
        }
        assert!(!sink.index.scratch.exists());
    }
}
