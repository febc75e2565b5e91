//! Starts, stops, kills and clears away private servers from installed binaries.
//!
//! Every server is on loopback, on a free port, in a private folder of the lab's root. A journal in
//! each folder says who made it, so that whatever a killed bench leaves behind can be found and
//! cleared away, and nothing else ever is.
//!
//! Invariants: a process is ended only if it carries, in its environment, the mark of a private folder; or if it has
//! written over its environment, runs the journaled binary *and* works in the journaled folder. A folder is removed only
//! if it holds a journal of ours and none of these processes is left.

mod error;
mod folder;
mod installed;
mod kinds;
mod launch;
mod note;
mod port;
mod process;
mod server;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use acidtest_model::{Address, Durability};

pub use crate::{
    error::LabError,
    folder::Folder,
    installed::{Installation, Missing, Source},
    note::{NamespaceEntry, Note},
    server::Server,
};
use crate::{
    folder::{Found, Record, Root},
    note::Remark,
    server::Running,
};

/// How long a private server or folder is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// It ends with this process, however this process ends.
    Run,
    /// It outlives this process, until [`Lab::down`].
    Kept,
}

/// The private servers and folders of this user on this machine.
#[derive(Clone, Debug)]
pub struct Lab {
    root: Root,
}

impl Lab {
    /// Opens the lab in `$ACIDTEST_LAB`, or else in a folder of this user's own among the temporary ones.
    pub fn open() -> Result<Self, LabError> {
        Ok(Self { root: Root::usual()? })
    }

    /// Opens a lab in another folder, which is made if it is not there.
    pub fn at(folder: &Path) -> Result<Self, LabError> {
        Ok(Self { root: Root::at(folder, false)? })
    }

    /// The folder under which every private server and folder lies.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The program that [`Lab::start`] would start for a store: the one that `ACIDTEST_<STORE>` names,
    /// or the first one installed.
    pub fn locate(store: &str) -> Result<Installation, LabError> {
        installed::locate(kinds::find(store)?)
    }

    /// Prepares and starts a private server. It does not wait for the server's first answer: whoever
    /// does so asks [`Server::check`] meanwhile.
    ///
    /// Call it from a thread that lives as long as the server is needed, best the main one: a server of
    /// [`Lifetime::Run`] is stopped by the kernel when the *thread* that started it ends.
    pub fn start(
        &self,
        store: &str,
        durability: Durability,
        lifetime: Lifetime,
        port: Option<u16>,
    ) -> Result<Server, LabError> {
        Server::start(&self.root, kinds::find(store)?, durability, lifetime, port)
    }

    /// A private folder for an embedded store.
    pub fn folder(&self, store: &str, lifetime: Lifetime) -> Result<Folder, LabError> {
        let kept = lifetime == Lifetime::Kept;
        let mut folder = self.root.create(Record::new(store, kept, None), None)?;
        if kept {
            folder.leave();
        }
        Ok(folder)
    }

    /// Every private server and folder, of any bench.
    pub fn list(&self) -> Result<Vec<Entry>, LabError> {
        Ok(self.root.folders()?.0.iter().map(Entry::of).collect())
    }

    /// The root of the process tree of the kept server that listens on this port of this machine; none where it is no
    /// server of this lab's, or does not run.
    pub fn serving(&self, host: &str, port: u16) -> Result<Option<u32>, LabError> {
        // a private server listens on loopback only, and no two that run have one port
        let same =
            |theirs: &Address| theirs.port == Some(port) && [&theirs.host, "localhost"].contains(&host);
        let kept = self.list()?.into_iter().filter(|entry| entry.holder == Holder::Kept);
        Ok(kept.filter(|entry| entry.address.as_ref().is_some_and(same)).find_map(|entry| entry.pid))
    }

    /// Stops and removes every kept server, and whatever benches that are dead have left. What belongs
    /// to a living bench stays.
    pub fn down(&self) -> Result<Cleared, LabError> {
        self.root.clear_unfinished()?;
        let (folders, unreadable) = self.root.folders()?;
        let why = "its lab.json cannot be read; look at it and remove it by hand".to_owned();
        let left = unreadable.into_iter().map(|folder| Left { folder, why: why.clone() }).collect();
        let mut cleared = Cleared { removed: Vec::new(), left };
        for found in folders {
            let entry = Entry::of(&found);
            match clear(&found, entry.holder) {
                Ok(()) => cleared.removed.push(entry),
                Err(why) => cleared.left.push(Left { folder: entry.folder, why }),
            }
        }
        self.root.tidy();
        Ok(cleared)
    }

    /// Notes that a namespace is about to be created on a user's server, so that it can be found if
    /// this process is killed. The password is not written.
    pub fn note_namespace(
        &self,
        address: &Address,
        store: &str,
        namespace: &str,
        run: &str,
    ) -> Result<Note, LabError> {
        Note::write(&self.root, &Remark::new(address.to_string(), store, namespace, run))
    }

    /// The namespaces that benches that are dead have left on users' servers.
    pub fn namespaces(&self) -> Result<Vec<NamespaceEntry>, LabError> {
        note::left_behind(&self.root)
    }
}

/// For whom a private server or folder is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// For whoever wants it, until [`Lab::down`].
    Kept,
    /// For one bench.
    Bench {
        /// Its process.
        pid: u32,
        /// Whether that still runs.
        alive: bool,
    },
}

/// One private server or folder.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The store.
    pub store: String,
    /// The root of the server's process tree, or of what prepares it, if that runs.
    pub pid: Option<u32>,
    /// Where the server is reached; none for an embedded store.
    pub address: Option<Address>,
    /// What the server was started for; none for an embedded store.
    pub durability: Option<Durability>,
    /// For whom it is there.
    pub holder: Holder,
    /// The private folder.
    pub folder: PathBuf,
    /// How long ago it was made.
    pub age: Duration,
}

impl Entry {
    fn of(found: &Found) -> Self {
        let Found { path, record } = found;
        let running = Running::of(found).ok();
        Self {
            store: record.store.clone(),
            pid: running.as_ref().and_then(Running::pid),
            address: running.as_ref().map(Running::address),
            durability: record.server.as_ref().map(|server| server.durability),
            holder: if record.kept {
                Holder::Kept
            } else {
                Holder::Bench { pid: record.owner.pid, alive: record.owner.alive() }
            },
            folder: path.clone(),
            age: record.age(),
        }
    }
}

/// What [`Lab::down`] has done.
#[derive(Clone, Debug, Default)]
pub struct Cleared {
    /// What is gone; a `pid` in it was running and has been stopped.
    pub removed: Vec<Entry>,
    /// What is still there.
    pub left: Vec<Left>,
}

/// A private folder that was not removed.
#[derive(Clone, Debug)]
pub struct Left {
    /// The folder.
    pub folder: PathBuf,
    /// Why it is still there.
    pub why: String,
}

/// Stops what runs in a folder and removes it; or says why not.
fn clear(found: &Found, holder: Holder) -> Result<(), String> {
    if let Holder::Bench { pid, alive: true } = holder {
        return Err(format!("the bench that uses it still runs (process {pid})"));
    }
    let stopped = match found.record.server {
        Some(_) => Running::of(found).and_then(|running| running.clear()),
        None => Ok(()),
    };
    stopped.and_then(|()| found.remove()).map_err(|error| error.to_string())
}
