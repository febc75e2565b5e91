//! The folder of a database, which only one process may have open at a time, in one of two modes.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
};

use acidtest_model::{Durability, Lock};
use acidtest_workloads::Attempt;
use fjall::{
    Database, Iter, Keyspace, KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace,
    OptimisticWriteTx, PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace,
    SingleWriterWriteTx, Snapshot, UserValue,
};

use crate::error::{Error, in_doubt};

/// The file by which fjall recognizes its own folders.
const VERSION_FILE: &str = "version";

/// The longest name of a keyspace, in bytes.
const NAME_MAX: usize = 255;

/// How transactions that write are isolated from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// They run side by side; one that has read a key that another has written since is refused.
    Optimistic,
    /// They run one after the other.
    SingleWriter,
}

impl From<Lock> for Mode {
    fn from(lock: Lock) -> Self {
        if lock == Lock::Hard { Self::SingleWriter } else { Self::Optimistic }
    }
}

#[derive(Clone)]
enum FileState {
    Optimistic(OptimisticTxDatabase),
    SingleWriter(SingleWriterTxDatabase),
}

impl FileState {
    fn database(&self) -> &Database {
        match self {
            Self::Optimistic(database) => database.inner(),
            Self::SingleWriter(database) => database.inner(),
        }
    }

    fn is(&self, mode: Mode) -> bool {
        matches!(
            (self, mode),
            (Self::Optimistic(_), Mode::Optimistic) | (Self::SingleWriter(_), Mode::SingleWriter)
        )
    }
}

/// The folder of a database, and the database while it is open.
pub(crate) struct Files {
    pub(crate) path: PathBuf,
    /// Where each commit is written before it is acknowledged; none if it may stay in the process.
    pub(crate) persist: Option<PersistMode>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Option<FileState>,
    /// Whether acidtest made the folder, and so may remove it.
    made: bool,
    /// The next number of each counter, by its keyspace.
    counters: BTreeMap<String, Arc<AtomicU64>>,
}

/// Where a commit is written at a durability level; without a level, where fjall writes it by default.
fn persist(durability: Option<Durability>) -> Option<PersistMode> {
    match durability {
        Some(Durability::None) => None,
        None | Some(Durability::Process) => Some(PersistMode::Buffer),
        // the journal is only appended to, so that syncing its data is enough
        Some(Durability::Disk) => Some(PersistMode::SyncData),
    }
}

impl Files {
    pub(crate) fn at(path: &Path, durability: Option<Durability>) -> Self {
        Self { path: path.to_owned(), persist: persist(durability), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // a panic cannot leave the state half changed
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the database in a mode, and creates it if it does not exist.
    fn open(&self, mode: Mode, state: &mut State) -> Result<FileState, Error> {
        if !self.path.try_exists()? {
            state.made = true;
        } else if self.path.is_dir()
            && !self.path.join(VERSION_FILE).try_exists()?
            && fs::read_dir(&self.path)?.next().is_some()
        {
            return Err(Error::NoDatabase);
        }
        // a journal that is persisted by hand is written only when its buffer is full
        let by_hand = self.persist.is_none();
        let open = match mode {
            Mode::Optimistic => FileState::Optimistic(
                OptimisticTxDatabase::builder(&self.path).manual_journal_persist(by_hand).open()?,
            ),
            Mode::SingleWriter => FileState::SingleWriter(
                SingleWriterTxDatabase::builder(&self.path).manual_journal_persist(by_hand).open()?,
            ),
        };
        state.open = Some(open.clone());
        Ok(open)
    }

    /// The database, in the mode in which it is open.
    pub(crate) fn database(&self) -> Result<Database, Error> {
        let mut state = self.state();
        match &state.open {
            Some(open) => Ok(open.database().clone()),
            None => self.open(Mode::Optimistic, &mut state).map(|open| open.database().clone()),
        }
    }

    /// The database in a mode. If it is open in the other mode, it is closed and opened again, and no client of an
    /// earlier trial may hold it then.
    fn in_mode(&self, mode: Mode) -> Result<FileState, Error> {
        let mut state = self.state();
        match state.open.take() {
            Some(open) if open.is(mode) => Ok(state.open.insert(open).clone()),
            held => {
                drop(held);
                self.open(mode, &mut state)
            }
        }
    }

    /// The database whose transactions run side by side, opened as by [`Self::table`].
    pub(crate) fn optimistic(&self) -> Result<OptimisticTxDatabase, Error> {
        match self.in_mode(Mode::Optimistic)? {
            FileState::Optimistic(database) => Ok(database),
            FileState::SingleWriter(_) => unreachable!("it was opened in the other mode"),
        }
    }

    /// A keyspace for a client, in the mode that the lock mode needs. If the database is open in the other mode, it
    /// is closed and opened again, and no client of an earlier trial may hold it then.
    pub(crate) fn table(&self, name: &str, lock: Lock) -> Result<Table, Error> {
        self.indexed(name, None, lock)
    }

    /// The same with a second keyspace that is its index, if there is one.
    pub(crate) fn indexed(&self, name: &str, index: Option<&str>, lock: Lock) -> Result<Table, Error> {
        let open = self.in_mode(lock.into())?;
        for name in [Some(name), index].into_iter().flatten() {
            if !open.database().keyspace_exists(name) {
                return Err(Error::Missing(name.to_owned()));
            }
        }
        let handle = match open {
            FileState::Optimistic(database) => {
                let of = |name: &str| database.keyspace(name, KeyspaceCreateOptions::default);
                let (keyspace, index) = (of(name)?, index.map(of).transpose()?);
                Handle::Optimistic(database, keyspace, index)
            }
            FileState::SingleWriter(database) => {
                let of = |name: &str| database.keyspace(name, KeyspaceCreateOptions::default);
                let (keyspace, index) = (of(name)?, index.map(of).transpose()?);
                Handle::SingleWriter(database, keyspace, index)
            }
        };
        Ok(Table { handle, persist: self.persist })
    }

    /// The counter of a keyspace, which all its clients in this process share: the next number that it gives.
    pub(crate) fn counter(&self, name: &str) -> Arc<AtomicU64> {
        Arc::clone(self.state().counters.entry(name.to_owned()).or_default())
    }

    /// Forgets the counter of a keyspace.
    pub(crate) fn forget_counter(&self, name: &str) {
        self.state().counters.remove(name);
    }

    /// Whether acidtest made the folder.
    pub(crate) fn made(&self) -> bool {
        self.state().made
    }

    /// Closes the database and removes its folder, ignoring errors, as it may be gone already.
    pub(crate) fn remove(&self) {
        let mut state = self.state();
        state.open = None;
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A keyspace that exists, or an error.
pub(crate) fn keyspace(database: &Database, name: &str) -> Result<Keyspace, Error> {
    if !database.keyspace_exists(name) {
        return Err(Error::Missing(name.to_owned()));
    }
    Ok(database.keyspace(name, KeyspaceCreateOptions::default)?)
}

/// The keyspace of this name, which is created with fjall's defaults if it does not exist.
pub(crate) fn make_keyspace(database: &Database, name: &str) -> Result<Keyspace, Error> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Error::Name(name.to_owned()));
    }
    Ok(database.keyspace(name, KeyspaceCreateOptions::default)?)
}

/// Removes a keyspace, if it exists.
pub(crate) fn drop_keyspace(database: &Database, name: &str) -> Result<(), Error> {
    match keyspace(database, name) {
        Ok(keyspace) => Ok(database.delete_keyspace(keyspace)?),
        Err(Error::Missing(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A keyspace that a client reads and writes, with the mode and the durability of its transactions; and a second one
/// that is its index, if there is one.
pub(crate) struct Table {
    handle: Handle,
    persist: Option<PersistMode>,
}

enum Handle {
    Optimistic(OptimisticTxDatabase, OptimisticTxKeyspace, Option<OptimisticTxKeyspace>),
    SingleWriter(SingleWriterTxDatabase, SingleWriterTxKeyspace, Option<SingleWriterTxKeyspace>),
}

impl Table {
    /// The current value of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<UserValue>, Error> {
        Ok(match &self.handle {
            Handle::Optimistic(_, keyspace, _) => keyspace.get(key),
            Handle::SingleWriter(_, keyspace, _) => keyspace.get(key),
        }?)
    }

    /// The keyspace as it is now, for several consistent reads.
    pub(crate) fn snapshot(&self) -> View<'_> {
        match &self.handle {
            Handle::Optimistic(database, keyspace, index) => View {
                snapshot: database.read_tx(),
                keyspace: keyspace.as_ref(),
                index: index.as_ref().map(AsRef::as_ref),
            },
            Handle::SingleWriter(database, keyspace, index) => View {
                snapshot: database.read_tx(),
                keyspace: keyspace.as_ref(),
                index: index.as_ref().map(AsRef::as_ref),
            },
        }
    }

    /// Begins a transaction that may write. With a single writer, waits until the others have ended.
    pub(crate) fn begin(&self) -> Result<Transaction<'_>, Error> {
        Ok(match &self.handle {
            Handle::Optimistic(database, keyspace, index) => Transaction::Optimistic(
                database.write_tx()?.durability(self.persist),
                keyspace,
                index.as_ref(),
            ),
            Handle::SingleWriter(database, keyspace, index) => Transaction::SingleWriter(
                database.write_tx().durability(self.persist),
                keyspace,
                index.as_ref(),
            ),
        })
    }

    /// Changes a value by fjall's own atomic step. `change` makes the new value from the old one, or returns none
    /// where there is nothing to change; fjall calls it again if other writes come between. Returns the value before.
    pub(crate) fn fetch_update(
        &self,
        key: &[u8],
        change: impl FnMut(Option<&UserValue>) -> Option<UserValue>,
    ) -> fjall::Result<Option<UserValue>> {
        let before = match &self.handle {
            Handle::Optimistic(_, keyspace, _) => keyspace.fetch_update(key, change),
            Handle::SingleWriter(_, keyspace, _) => keyspace.fetch_update(key, change),
        }?;
        // fjall has written the change to the kernel, unless that is left until the buffer is full
        if self.persist == Some(PersistMode::SyncData) && before.is_some() {
            match &self.handle {
                Handle::Optimistic(database, ..) => database.persist(PersistMode::SyncData),
                Handle::SingleWriter(database, ..) => database.persist(PersistMode::SyncData),
            }?;
        }
        Ok(before)
    }
}

/// A keyspace as it was at one moment.
pub(crate) struct View<'a> {
    snapshot: Snapshot,
    keyspace: &'a Keyspace,
    index: Option<&'a Keyspace>,
}

impl View<'_> {
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<UserValue>, Error> {
        Ok(self.snapshot.get(self.keyspace, key)?)
    }

    /// All entries from a key on, in order of keys.
    pub(crate) fn from(&self, key: &[u8]) -> Iter {
        self.snapshot.range(self.keyspace, key..)
    }

    pub(crate) fn prefix(&self, key: &[u8]) -> Iter {
        self.snapshot.prefix(self.keyspace, key)
    }
}

/// Reads of a keyspace and of its index that see the same moment.
pub(crate) trait IndexedReads {
    /// All entries of the keyspace, in order of keys.
    fn all(&self) -> Iter;

    /// The entries of the index whose keys begin so; none where there is no index.
    fn indexed(&self, prefix: &[u8]) -> Option<Iter>;
}

impl IndexedReads for View<'_> {
    fn all(&self) -> Iter {
        self.snapshot.iter(self.keyspace)
    }

    fn indexed(&self, prefix: &[u8]) -> Option<Iter> {
        self.index.map(|index| self.snapshot.prefix(index, prefix))
    }
}

/// A transaction that may write. Dropped without a commit, it has no effect.
pub(crate) enum Transaction<'a> {
    Optimistic(OptimisticWriteTx, &'a OptimisticTxKeyspace, Option<&'a OptimisticTxKeyspace>),
    SingleWriter(SingleWriterWriteTx<'a>, &'a SingleWriterTxKeyspace, Option<&'a SingleWriterTxKeyspace>),
}

impl IndexedReads for Transaction<'_> {
    fn all(&self) -> Iter {
        match self {
            Self::Optimistic(transaction, keyspace, _) => transaction.iter(keyspace),
            Self::SingleWriter(transaction, keyspace, _) => transaction.iter(keyspace),
        }
    }

    fn indexed(&self, prefix: &[u8]) -> Option<Iter> {
        match self {
            Self::Optimistic(transaction, _, index) => index.map(|index| transaction.prefix(index, prefix)),
            Self::SingleWriter(transaction, _, index) => index.map(|index| transaction.prefix(index, prefix)),
        }
    }
}

impl Transaction<'_> {
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<UserValue>, Error> {
        Ok(match self {
            Self::Optimistic(transaction, keyspace, _) => transaction.get(keyspace, key),
            Self::SingleWriter(transaction, keyspace, _) => transaction.get(keyspace, key),
        }?)
    }

    /// All entries from a key on, in order of keys.
    pub(crate) fn from(&self, key: &[u8]) -> Iter {
        match self {
            Self::Optimistic(transaction, keyspace, _) => transaction.range(keyspace, key..),
            Self::SingleWriter(transaction, keyspace, _) => transaction.range(keyspace, key..),
        }
    }

    pub(crate) fn prefix(&self, key: &[u8]) -> Iter {
        match self {
            Self::Optimistic(transaction, keyspace, _) => transaction.prefix(keyspace, key),
            Self::SingleWriter(transaction, keyspace, _) => transaction.prefix(keyspace, key),
        }
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        match self {
            Self::Optimistic(transaction, keyspace, _) => transaction.insert(keyspace, key, value),
            Self::SingleWriter(transaction, keyspace, _) => transaction.insert(keyspace, key, value),
        }
    }

    /// Writes an entry of the index, if there is one.
    pub(crate) fn put_index(&mut self, key: &[u8]) {
        match self {
            Self::Optimistic(transaction, _, Some(index)) => transaction.insert(index, key, []),
            Self::SingleWriter(transaction, _, Some(index)) => transaction.insert(index, key, []),
            Self::Optimistic(_, _, None) | Self::SingleWriter(_, _, None) => {}
        }
    }

    pub(crate) fn commit(self) -> Attempt {
        let committed = match self {
            Self::Optimistic(transaction, ..) => transaction.commit(),
            Self::SingleWriter(transaction, ..) => transaction.commit().map(Ok),
        };
        match committed {
            Ok(Ok(())) => Attempt::Ok,
            Ok(Err(fjall::Conflict)) => Attempt::Conflict,
            Err(error) => in_doubt(error),
        }
    }
}
