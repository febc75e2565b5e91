//! Starts, stops, kills and removes private servers from installed binaries.
//!
//! Every server is on loopback, on a free port, in a private folder of the lab's root. A journal in each folder names
//! the process that made it, so that everything that a killed bench leaves behind can be found and removed, and
//! nothing else ever is.
//!
//! Invariants: a process is ended only if it carries, in its environment, the mark of a private folder; or if it has
//! written over its environment, runs the journaled binary *and* works in the journaled folder. A folder is removed
//! only if it holds a journal of this lab and none of these processes is left.

mod certificates;
mod deployment;
mod error;
mod folder;
mod installed;
mod invocation;
mod kinds;
mod launch;
mod links;
mod member;
mod note;
mod port;
mod process;
mod search;
mod size;
mod source;
mod turn;
mod user;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use acidtest_model::{Address, Durability, MemberId, Role};

#[cfg(feature = "tls")]
pub use crate::certificates::{Issued, Issuer};
pub use crate::{
    deployment::{Deployment, MemberSpec},
    error::LabError,
    folder::Folder,
    installed::Installation,
    links::Links,
    member::Member,
    note::{NamespaceEntry, Note, run_of},
    port::free_port,
    size::ServerSize,
    source::{MissingProgram, Source},
    turn::Turn,
};
use crate::{
    folder::{Journal, PrivateFolder, Root},
    member::Running,
    note::Remark,
};

/// How long a private server or folder exists.
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
    /// Opens the lab in `$ACIDTEST_LAB`, or else in a folder of this user's own in the system's temporary folder.
    pub fn open() -> Result<Self, LabError> {
        Ok(Self { root: Root::usual()? })
    }

    /// The folder in which [`Lab::open`] opens the lab; it need not be there.
    #[must_use]
    pub fn usual_place() -> PathBuf {
        Root::usual_path().0
    }

    /// Opens a lab in another folder, which is made if it does not exist.
    pub fn at(folder: &Path) -> Result<Self, LabError> {
        Ok(Self { root: Root::at(folder, false)? })
    }

    /// The folder in which every private server and folder lies.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The program that [`Lab::deploy`] would start for a store: the one that `ACIDTEST_<STORE>` names,
    /// or the first one installed.
    pub fn locate(store: &str) -> Result<Installation, LabError> {
        installed::locate(kinds::find(store)?)
    }

    /// Prepares and starts private servers that belong together, one after the other, in one folder that is named
    /// after `store`. It does not wait for a server's first answer: a caller that does so calls [`Member::check`]
    /// meanwhile. Replicas come after that, each by [`Deployment::start_replica`].
    ///
    /// Call it from a thread that lives as long as the servers are needed, best the main one: a server of
    /// [`Lifetime::Run`] is stopped by the kernel when the *thread* that started it ends.
    ///
    /// # Errors
    /// A server that cannot be started; those before it have ended then.
    pub fn deploy(
        &self,
        store: &str,
        members: &[MemberSpec<'_>],
        lifetime: Lifetime,
    ) -> Result<Deployment, LabError> {
        Deployment::start(&self.root, store, members, lifetime)
    }

    /// Makes a private folder for an embedded store.
    pub fn folder(&self, store: &str, lifetime: Lifetime) -> Result<Folder, LabError> {
        let kept = lifetime == Lifetime::Kept;
        let mut folder = self.root.create(Journal::new(store, kept, Vec::new()), None)?;
        if kept {
            folder.leave();
        }
        Ok(folder)
    }

    /// Takes the turn to make a run on this lab; none if another process has it.
    pub fn turn(&self) -> Result<Option<Turn>, LabError> {
        Turn::take(&self.root)
    }

    /// Every private server and folder of this lab, of any bench.
    pub fn list(&self) -> Result<Vec<Entry>, LabError> {
        Ok(self.root.folders()?.0.iter().map(Entry::of).collect())
    }

    /// The root of the process tree of the kept server that is reached at this address, with `default` where that gives no port;
    /// none if the server is not of this lab, or does not run.
    pub fn serving(&self, address: &Address, default: u16) -> Result<Option<u32>, LabError> {
        let kept = self.list()?.into_iter().filter(|entry| entry.holder == Holder::Kept);
        if let Some(socket) = address.socket_file(default) {
            // in a folder of its own, the only server of its store
            let mut own = kept.filter(|entry| socket.starts_with(&entry.folder));
            let server = own
                .next()
                .and_then(|entry| entry.members.into_iter().find(|member| member.id.role == Role::Server));
            return Ok(server.and_then(|member| member.pid));
        }
        // a private server listens on loopback only, and no two running servers share a port
        let (host, port) = (address.host.as_str(), address.port.unwrap_or(default));
        let same =
            |theirs: &Address| theirs.port == Some(port) && [&theirs.host, "localhost"].contains(&host);
        let mut members = kept.flat_map(|entry| entry.members).filter(|member| same(&member.address));
        Ok(members.find_map(|member| member.pid))
    }

    /// Stops and removes every kept server, and everything that dead benches have left. Servers and folders of a
    /// living bench stay.
    pub fn down(&self) -> Result<Cleared, LabError> {
        self.root.clear_unfinished()?;
        let (folders, unreadable) = self.root.folders()?;
        let why = "its lab.json cannot be read; look at it and remove the folder by hand".to_owned();
        let leftovers = unreadable.into_iter().map(|folder| Leftover { folder, why: why.clone() }).collect();
        let mut cleared = Cleared { removed: Vec::new(), leftovers };
        for found in folders {
            let entry = Entry::of(&found);
            match clear(&found, entry.holder) {
                Ok(()) => cleared.removed.push(entry),
                Err(why) => cleared.leftovers.push(Leftover { folder: entry.folder, why }),
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

    /// The process of another bench that has made a namespace for this run on a user's server, and still goes on. `run` is the run's
    /// id, or any mark of it: the id with a dot and more behind it.
    ///
    /// # Errors
    /// The lab's folder cannot be read.
    pub fn bench_of(&self, run: &str) -> Result<Option<u32>, LabError> {
        note::bench_of(&self.root, run)
    }

    /// The namespaces that dead benches have left on users' servers.
    pub fn namespaces(&self) -> Result<Vec<NamespaceEntry>, LabError> {
        note::left_behind(&self.root)
    }
}

/// Who uses a private server or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Everybody, until [`Lab::down`] removes it.
    Kept,
    /// One bench, which removes it at its end.
    Bench {
        /// The id of the bench's process.
        pid: u32,
        /// Whether that process still runs.
        alive: bool,
    },
}

/// A private folder with its servers, as the lab lists it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub store: String,
    /// Its servers; none for an embedded store.
    pub members: Vec<MemberEntry>,
    /// Who uses it: one bench, or everybody.
    pub holder: Holder,
    /// The path of the private folder.
    pub folder: PathBuf,
    /// The time since it was made.
    pub age: Duration,
}

/// A private server, as the lab lists it.
#[derive(Clone, Debug)]
pub struct MemberEntry {
    pub id: MemberId,
    /// The store that it serves.
    pub store: String,
    /// The id of the root of its process tree, or of the process that prepares it; none if neither runs.
    pub pid: Option<u32>,
    pub address: Address,
    /// The durability level that it was started for.
    pub durability: Durability,
}

impl Entry {
    fn of(place: &PrivateFolder) -> Self {
        let PrivateFolder { path, journal } = place;
        let members = journal.members.iter().filter_map(|record| {
            let running = Running::of(place, record).ok()?;
            Some(MemberEntry {
                id: record.id,
                store: record.store.clone(),
                pid: running.pid(),
                address: running.address(),
                durability: record.durability,
            })
        });
        Self {
            store: journal.store.clone(),
            members: members.collect(),
            holder: if journal.kept {
                Holder::Kept
            } else {
                Holder::Bench { pid: journal.owner.pid, alive: journal.owner.alive() }
            },
            folder: path.clone(),
            age: journal.age(),
        }
    }
}

/// The servers and folders that [`Lab::down`] removed, and those that it could not remove.
#[derive(Clone, Debug, Default)]
pub struct Cleared {
    /// The servers and folders that were removed; the `pid` of a member was running and has been stopped.
    pub removed: Vec<Entry>,
    /// The private folders that are still there.
    pub leftovers: Vec<Leftover>,
}

/// A private folder that was not removed.
#[derive(Clone, Debug)]
pub struct Leftover {
    pub folder: PathBuf,
    /// The reason why it is still there.
    pub why: String,
}

/// Stops the servers in a folder and removes the folder; the error is the reason why not.
fn clear(place: &PrivateFolder, holder: Holder) -> Result<(), String> {
    if let Holder::Bench { pid, alive: true } = holder {
        return Err(format!("the bench that uses it still runs (process {pid})"));
    }
    let stopped = place.journal.members.iter().map(|record| Running::of(place, record)?.clear());
    // all are stopped, also where one could not be
    let stopped = stopped.fold(Ok(()), Result::and);
    stopped.and_then(|()| place.remove()).map_err(|error| error.to_string())
}
