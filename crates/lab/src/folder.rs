//! The lab's root folder, and the private folders in it, each with a journal of who made it and why.
//!
//! A journal is complete before its folder has its final name, so that a bench killed at any moment
//! leaves nothing that [`crate::Lab::down`] could not find. Folders without a journal are never touched.

use std::{
    env, fs,
    hash::{BuildHasher, RandomState},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use acidtest_model::Durability;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    error::LabError,
    launch::User,
    process::{Owner, Tree},
};

const JOURNAL: &str = "lab.json";
const HOME: &str = "data";
/// How the name of a folder or note begins while it is being made.
const UNFINISHED: &str = ".new-";
/// Past this age nobody can still be making it.
const ABANDONED: Duration = Duration::from_mins(1);

/// What a folder's journal says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) store: String,
    /// The process that made it.
    pub(crate) owner: Owner,
    /// Whether it is meant to outlive that process.
    pub(crate) kept: bool,
    /// Seconds since 1970.
    created: u64,
    /// The server in it; none for an embedded store.
    pub(crate) server: Option<Served>,
}

/// What is needed to find and to stop a server again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Served {
    pub(crate) program: PathBuf,
    pub(crate) binary: PathBuf,
    pub(crate) port: u16,
    pub(crate) durability: Durability,
}

impl Record {
    pub(crate) fn new(store: &str, kept: bool, server: Option<Served>) -> Self {
        Self { store: store.to_owned(), owner: Owner::me(), kept, created: now(), server }
    }

    pub(crate) fn age(&self) -> Duration {
        age(self.created)
    }
}

/// The folder that holds every private folder.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub(crate) path: PathBuf,
    /// Whether the folder itself goes when it is empty: only one that the user did not choose.
    ephemeral: bool,
}

impl Root {
    /// `ACIDTEST_LAB`, or a folder of this user's own among the temporary ones.
    pub(crate) fn usual() -> Result<Self, LabError> {
        let chosen = env::var_os("ACIDTEST_LAB").filter(|value| !value.is_empty());
        let ephemeral = chosen.is_none();
        let path = chosen
            .map_or_else(|| env::temp_dir().join(format!("acidtest-{}", geteuid().as_raw())), PathBuf::from);
        Self::at(&path, ephemeral)
    }

    pub(crate) fn at(path: &Path, ephemeral: bool) -> Result<Self, LabError> {
        let path = std::path::absolute(path).map_err(LabError::at("finding", path))?;
        // without a slash at the end, which would make a link pass for the folder it leads to
        let path: PathBuf = path.components().collect();
        ensure(&path)?;
        let path = path.canonicalize().map_err(LabError::at("finding", &path))?;
        Ok(Self { path, ephemeral })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a private folder with its journal. `user` is who may write in its home.
    pub(crate) fn create(&self, record: Record, user: Option<User>) -> Result<Folder, LabError> {
        // another bench may just have taken the empty root away
        ensure(&self.path)?;
        let name = format!("{}-{}", record.store, suffix());
        let unfinished = self.path.join(format!("{UNFINISHED}{name}"));
        let path = self.path.join(name);
        let made = furnish(&unfinished, &record, user)
            .and_then(|()| fs::rename(&unfinished, &path).map_err(LabError::at("naming", &path)));
        if made.is_err() {
            discard(&unfinished);
        }
        made.map(|()| Folder { found: Found { path, record }, root: self.clone(), left: false })
    }

    /// Every private folder of ours, and those whose journal cannot be read.
    pub(crate) fn folders(&self) -> Result<(Vec<Found>, Vec<PathBuf>), LabError> {
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        for path in self.finished()?.into_iter().filter(|path| path.join(JOURNAL).exists()) {
            match read_json(&path.join(JOURNAL)) {
                Some(record) => found.push(Found { path, record }),
                None => unreadable.push(path),
            }
        }
        Ok((found, unreadable))
    }

    /// Every folder and file of ours that has its final name, by name.
    pub(crate) fn finished(&self) -> Result<Vec<PathBuf>, LabError> {
        let mut entries = self.entries()?;
        entries.retain(|path| !is_unfinished(path));
        entries.sort();
        Ok(entries)
    }

    /// Takes away what a bench that was killed in the middle of making it has left.
    pub(crate) fn clear_unfinished(&self) -> Result<(), LabError> {
        let old = |path: &PathBuf| {
            let changed = fs::symlink_metadata(path).and_then(|data| data.modified());
            changed.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > ABANDONED))
        };
        for path in self.entries()?.iter().filter(|path| is_unfinished(path) && old(path)) {
            discard(path);
        }
        Ok(())
    }

    /// Leaves no empty root behind. It can only go when nobody has anything in it.
    pub(crate) fn tidy(&self) {
        if self.ephemeral {
            let _ = fs::remove_dir(&self.path);
        }
    }

    fn entries(&self) -> Result<Vec<PathBuf>, LabError> {
        let ours = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|data| is_ours(&data));
        match fs::read_dir(&self.path) {
            Ok(all) => Ok(all.flatten().map(|entry| entry.path()).filter(ours).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(LabError::at("listing", &self.path)(error)),
        }
    }

    /// Writes a journal file of its own, whole or not at all.
    pub(crate) fn write_note(&self, content: &impl Serialize) -> Result<PathBuf, LabError> {
        ensure(&self.path)?;
        let name = format!("namespace-{}.json", suffix());
        let unfinished = self.path.join(format!("{UNFINISHED}{name}"));
        let path = self.path.join(name);
        write_json(&unfinished, content)?;
        fs::rename(&unfinished, &path).map_err(LabError::at("naming", &path))?;
        Ok(path)
    }
}

/// A private folder as its journal describes it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) record: Record,
}

impl Found {
    pub(crate) fn home(&self) -> PathBuf {
        self.path.join(HOME)
    }

    /// The processes of the server in it; none for an embedded store.
    pub(crate) fn tree(&self) -> Option<Tree<'_>> {
        let served = self.record.server.as_ref()?;
        Some(Tree { folder: &self.path, binary: &served.binary })
    }

    /// Removes the folder: its journal last, so that a removal cut short can be resumed.
    pub(crate) fn remove(&self) -> Result<(), LabError> {
        remove(&self.home()).and_then(|()| remove(&self.path)).map_err(LabError::at("removing", &self.path))
    }
}

/// A private folder that goes with this value, unless it is to be kept.
#[derive(Debug)]
pub struct Folder {
    pub(crate) found: Found,
    root: Root,
    /// Whether it stays: because it is kept, or because it is gone already.
    left: bool,
}

impl Folder {
    /// The empty folder in which a store may write.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.found.home()
    }

    /// Leaves the folder in place: from now on only [`crate::Lab::down`] removes it.
    pub(crate) fn leave(&mut self) {
        self.left = true;
    }

    pub(crate) fn is_left(&self) -> bool {
        self.left
    }

    /// Removes the folder now.
    pub(crate) fn remove(&mut self) -> Result<(), LabError> {
        self.found.remove()?;
        self.left = true;
        self.root.tidy();
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.left {
            // nobody could be told; `lab down` finds what is left
            let _ = self.remove();
        }
    }
}

/// Makes the root if it is not there, and refuses one in which others could interfere.
fn ensure(path: &Path) -> Result<(), LabError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(path)?,
        _ => (),
    }
    let data = fs::symlink_metadata(path).map_err(LabError::at("finding", path))?;
    let open_to_all = data.mode() & 0o1002 == 0o0002;
    let why = match () {
        () if data.is_symlink() => "it is a symbolic link",
        () if !data.is_dir() => "it is not a folder",
        () if !is_ours(&data) => "it belongs to another user",
        () if open_to_all => "every user may write in it",
        () => return Ok(()),
    };
    Err(LabError::NotOurs { folder: path.to_owned(), why: why.to_owned() })
}

fn make(path: &Path) -> Result<(), LabError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o711).create(path);
    // by name, as our umask may have taken away what the servers' user needs to pass through
    made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o711)))
        .map_err(LabError::at("making", path))
}

/// A folder of ours with the journal and an empty home that belongs to `user`.
fn furnish(path: &Path, record: &Record, user: Option<User>) -> Result<(), LabError> {
    make(path)?;
    write_json(&path.join(JOURNAL), record)?;
    let home = path.join(HOME);
    fs::DirBuilder::new().mode(0o700).create(&home).map_err(LabError::at("making", &home))?;
    let given = user.map_or(Ok(()), |user| chown(&home, Some(user.uid), Some(user.gid)));
    given.map_err(LabError::at("handing over", &home))
}

/// Removes what [`furnish`] or [`write_json`] made, and nothing else that might be there.
fn discard(unfinished: &Path) {
    let _ = fs::remove_file(unfinished.join(JOURNAL));
    let _ = fs::remove_dir(unfinished.join(HOME));
    let _ = fs::remove_dir(unfinished).or_else(|_| fs::remove_file(unfinished));
}

/// Again for a while, as processes that just ended may still have been adding files.
fn remove(path: &Path) -> io::Result<()> {
    let mut last = Ok(());
    for _ in 0..20 {
        last = fs::remove_dir_all(path);
        match &last {
            Err(error) if error.kind() != io::ErrorKind::NotFound => thread::sleep(Duration::from_millis(50)),
            _ => return Ok(()),
        }
    }
    last
}

fn write_json(path: &Path, content: &impl Serialize) -> Result<(), LabError> {
    let text = serde_json::to_vec_pretty(content).map_err(io::Error::from);
    let file = || fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    text.and_then(|text| file()?.write_all(&text)).map_err(LabError::at("writing", path))
}

pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn is_ours(data: &fs::Metadata) -> bool {
    data.uid() == geteuid().as_raw()
}

fn is_unfinished(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(UNFINISHED))
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

pub(crate) fn age(created: u64) -> Duration {
    Duration::from_secs(now().saturating_sub(created))
}

/// A number nobody can foresee: the standard library's hasher is seeded by the system, anew each time.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// Six letters and digits that tell folders apart.
fn suffix() -> String {
    let digit = |shift: u32| char::from_digit(u32::try_from((random() >> shift) % 36).unwrap_or(0), 36);
    (0..6).filter_map(|place| digit(place * 5)).collect()
}
