//! The lab's root folder, and the private folders in it, each with a journal of the process that made it and of its
//! purpose.
//!
//! A journal is complete before its folder has its final name, and is removed after the folder has given up that
//! name, so that a bench killed at any moment leaves nothing that [`crate::Lab::down`] could not find. In between,
//! the folder's name says which process is at work on it. Folders with neither are never touched.

use std::{
    env,
    fs::{self, File, TryLockError},
    hash::{BuildHasher, RandomState},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use acidtest_model::{Durability, MemberId};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    error::LabError,
    process::{Owner, Tree},
    size::ServerSize,
    user::User,
};

const JOURNAL: &str = "lab.json";
const HOME: &str = "data";
/// The beginning of the name of a folder or note while it is being made or removed. The process that does so and the
/// final name follow.
const UNFINISHED: &str = ".unfinished-";

/// The content of a private folder's journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Journal {
    /// The store that the folder is named after.
    #[serde(rename = "deployment")]
    pub(crate) store: String,
    /// The process that made the folder.
    pub(crate) owner: Owner,
    /// Whether the folder is meant to outlive that process.
    pub(crate) kept: bool,
    /// When the folder was made, in seconds since 1970.
    created: u64,
    /// The servers in the folder; none for an embedded store.
    pub(crate) members: Vec<MemberRecord>,
}

/// The data by which a server is found and stopped again, also by another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MemberRecord {
    #[serde(rename = "role")]
    pub(crate) id: MemberId,
    pub(crate) store: String,
    pub(crate) program: PathBuf,
    pub(crate) binary: PathBuf,
    pub(crate) port: u16,
    pub(crate) durability: Durability,
    pub(crate) size: ServerSize,
    /// What a service of acidtest's own is told on its command line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) arguments: Vec<String>,
    /// Whether it speaks TLS.
    pub(crate) tls: bool,
    /// Whether it is a copy of another member, which it follows.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) replicates: bool,
    /// The host and the port at which clients reach it, where that is not where it listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) advertised: Option<(String, u16)>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Journal {
    pub(crate) fn new(store: &str, kept: bool, members: Vec<MemberRecord>) -> Self {
        Self { store: store.to_owned(), owner: Owner::me(), kept, created: now(), members }
    }

    pub(crate) fn age(&self) -> Duration {
        age(self.created)
    }

    /// Whether the member is one of several servers that replicate the same data.
    pub(crate) fn is_in_cluster(&self, member: &MemberRecord) -> bool {
        let is_beside = |other: &MemberRecord| other.id.role == member.id.role && other.store == member.store;
        self.members.iter().any(|other| other.replicates && is_beside(other))
    }
}

/// The folder in which all private folders lie.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub(crate) path: PathBuf,
    /// Whether the root is removed when it is empty: only one that the user did not choose.
    ephemeral: bool,
}

impl Root {
    /// The root in `ACIDTEST_LAB`, or in a folder of this user's own in the system's temporary folder.
    pub(crate) fn usual() -> Result<Self, LabError> {
        let (path, ephemeral) = Self::usual_path();
        Self::at(&path, ephemeral)
    }

    /// Where that is, and whether the user did not choose it.
    pub(crate) fn usual_path() -> (PathBuf, bool) {
        match env::var_os("ACIDTEST_LAB").filter(|value| !value.is_empty()) {
            Some(chosen) => (PathBuf::from(chosen), false),
            None => (env::temp_dir().join(format!("acidtest-{}", geteuid().as_raw())), true),
        }
    }

    pub(crate) fn at(path: &Path, ephemeral: bool) -> Result<Self, LabError> {
        let path = std::path::absolute(path).map_err(LabError::at("finding", path))?;
        // a slash at the end is dropped: with it, a link would pass for the folder that it leads to
        let path: PathBuf = path.components().collect();
        ensure(&path)?;
        let path = path.canonicalize().map_err(LabError::at("finding", &path))?;
        Ok(Self { path, ephemeral })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a private folder with its journal. Its home may be written by `user`, if there is one.
    pub(crate) fn create(&self, journal: Journal, user: Option<User>) -> Result<Folder, LabError> {
        // another bench may have just removed the empty root
        self.ensure()?;
        // servers that run as another user need a folder that this user may enter
        user.map_or(Ok(()), |user| user.check_reaches(&self.path))?;
        let path = self.path.join(format!("{}-{}", journal.store, suffix()));
        let unfinished = unfinished(&path);
        let made = furnish(&unfinished, &journal, user)
            .and_then(|()| fs::rename(&unfinished, &path).map_err(LabError::at("naming", &path)));
        if made.is_err() {
            discard(&unfinished);
        }
        made.map(|()| Folder { place: PrivateFolder { path, journal }, root: self.clone(), left: false })
    }

    /// Every private folder of this lab, and the paths of those whose journal cannot be read.
    pub(crate) fn folders(&self) -> Result<(Vec<PrivateFolder>, Vec<PathBuf>), LabError> {
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        for path in self.finished()?.into_iter().filter(|path| path.join(JOURNAL).exists()) {
            match read_json(&path.join(JOURNAL)) {
                Some(journal) => found.push(PrivateFolder { path, journal }),
                None => unreadable.push(path),
            }
        }
        Ok((found, unreadable))
    }

    /// Every folder and file of this lab that has its final name, sorted by name.
    pub(crate) fn finished(&self) -> Result<Vec<PathBuf>, LabError> {
        let mut entries = self.entries()?;
        entries.retain(|path| at_work(path).is_none());
        entries.sort();
        Ok(entries)
    }

    /// Removes folders that a killed bench had not finished making or removing.
    pub(crate) fn clear_unfinished(&self) -> Result<(), LabError> {
        let abandoned = |path: &&PathBuf| at_work(path).is_some_and(|owner| !owner.alive());
        self.entries()?.iter().filter(abandoned).for_each(|path| discard(path));
        Ok(())
    }

    /// Makes the root if it is not there, and refuses one in which others could interfere.
    pub(crate) fn ensure(&self) -> Result<(), LabError> {
        ensure(&self.path)
    }

    /// Locks the folder itself, so that nothing is left of the lock. None if another has it locked, or has removed it.
    pub(crate) fn lock(&self) -> io::Result<Option<File>> {
        let folder = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        match folder.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // it may have been removed, and made anew, since it was opened
        let locked = folder.metadata()?.ino();
        let is_there = fs::metadata(&self.path).is_ok_and(|there| there.ino() == locked);
        Ok(is_there.then_some(folder))
    }

    /// Removes the root if it is empty, the user did not choose it, and nobody has its [turn](crate::Turn); the system
    /// refuses to remove a folder that holds anything.
    pub(crate) fn tidy(&self) {
        if self.ephemeral
            && let Ok(Some(_locked)) = self.lock()
        {
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

    /// Writes a journal as a file of its own, as a whole or not at all.
    pub(crate) fn write_note(&self, content: &impl Serialize) -> Result<PathBuf, LabError> {
        self.ensure()?;
        let path = self.path.join(format!("namespace-{}.json", suffix()));
        let unfinished = unfinished(&path);
        write_json(&unfinished, content)?;
        fs::rename(&unfinished, &path).map_err(LabError::at("naming", &path))?;
        Ok(path)
    }
}

/// A private folder as its journal describes it.
#[derive(Clone, Debug)]
pub(crate) struct PrivateFolder {
    pub(crate) path: PathBuf,
    pub(crate) journal: Journal,
}

impl PrivateFolder {
    /// The folder of a member: its log is in it, and its [home](home_of).
    pub(crate) fn member(&self, member: &MemberRecord) -> PathBuf {
        self.path.join(member.id.to_string())
    }

    /// Removes the folder, unless a process of the lab still works in it. The journal is removed last, so that an
    /// interrupted removal can be resumed.
    pub(crate) fn remove(&self) -> Result<(), LabError> {
        for member in &self.journal.members {
            let pids = Tree { folder: &self.member(member), binary: &member.binary }.alive();
            if !pids.is_empty() {
                let (store, folder) = (member.store.clone(), self.path.clone());
                return Err(LabError::Undead { store, pids, folder });
            }
        }
        match self.empty().and_then(|()| self.vanish()) {
            // another process has removed it
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.map_err(LabError::at("removing", &self.path)),
        }
    }

    /// Removes everything in the folder but the journal.
    fn empty(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            match entry.file_type()? {
                _ if entry.file_name() == JOURNAL => (),
                kind if kind.is_dir() => remove(&entry.path())?,
                _ => fs::remove_file(entry.path())?,
            }
        }
        Ok(())
    }

    fn vanish(&self) -> io::Result<()> {
        let unfinished = unfinished(&self.path);
        fs::rename(&self.path, &unfinished)?;
        fs::remove_dir_all(&unfinished)
    }
}

/// A private folder that is removed when this value is dropped, unless it is to be kept.
#[derive(Debug)]
pub struct Folder {
    pub(crate) place: PrivateFolder,
    root: Root,
    /// Whether dropping leaves the folder alone, because it is kept or is removed already.
    left: bool,
}

impl Folder {
    /// The path of the empty folder in which a store may write.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        home_of(&self.place.path)
    }

    /// Leaves the folder in place: from now on only [`crate::Lab::down`] removes it.
    pub(crate) fn leave(&mut self) {
        self.left = true;
    }

    pub(crate) fn is_left(&self) -> bool {
        self.left
    }

    /// Removes the folder now, instead of on drop.
    pub(crate) fn remove(&mut self) -> Result<(), LabError> {
        self.place.remove()?;
        self.left = true;
        self.root.tidy();
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.left {
            // a destructor has nobody to report an error to; `lab down` finds the folder
            let _ = self.remove();
        }
    }
}

/// Makes the root if it does not exist, and refuses one in which others could interfere.
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
    // set explicitly, because our umask may have removed the permission that the servers' user needs to pass through
    made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o711)))
        .map_err(LabError::at("making", path))
}

/// The folder in a server's folder, or in that of an embedded store, in which it may write.
pub(crate) fn home_of(folder: &Path) -> PathBuf {
    folder.join(HOME)
}

/// Makes a folder with the journal, and in it an empty home for each member, or for the embedded store, that belongs
/// to `user`.
fn furnish(path: &Path, journal: &Journal, user: Option<User>) -> Result<(), LabError> {
    make(path)?;
    write_json(&path.join(JOURNAL), journal)?;
    for member in &journal.members {
        let folder = path.join(member.id.to_string());
        make(&folder)?;
        furnish_home(&folder, user)?;
    }
    if journal.members.is_empty() { furnish_home(path, user) } else { Ok(()) }
}

/// Empties the home of a server that does not run.
pub(crate) fn refurnish_home(folder: &Path, user: Option<User>) -> Result<(), LabError> {
    let home = home_of(folder);
    remove(&home).map_err(LabError::at("removing", &home))?;
    furnish_home(folder, user)
}

fn furnish_home(folder: &Path, user: Option<User>) -> Result<(), LabError> {
    let home = home_of(folder);
    fs::DirBuilder::new().mode(0o700).create(&home).map_err(LabError::at("making", &home))?;
    let given = user.map_or(Ok(()), |user| chown(&home, Some(user.uid), Some(user.gid)));
    given.map_err(LabError::at("handing over", &home))
}

/// Removes the files that [`furnish`] or [`write_json`] made, and nothing else that might be there.
fn discard(unfinished: &Path) {
    let _ = fs::remove_file(unfinished.join(JOURNAL));
    for entry in fs::read_dir(unfinished).into_iter().flatten().flatten() {
        let is_member = entry.file_name().to_str().is_some_and(|name| name.parse::<MemberId>().is_ok());
        // never through a link, which may lead anywhere
        if is_member && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let _ = fs::remove_dir(home_of(&entry.path()));
            let _ = fs::remove_dir(entry.path());
        }
    }
    let _ = fs::remove_dir(home_of(unfinished));
    let _ = fs::remove_dir(unfinished).or_else(|_| fs::remove_file(unfinished));
}

/// Removes a folder, with further attempts for a while: processes that just ended may still have been adding files.
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

/// The name of a folder or note while this process makes or removes it.
fn unfinished(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{UNFINISHED}{}-{name}", Owner::me()))
}

/// The process that makes or removes a folder or note; none for one that has its final name.
fn at_work(path: &Path) -> Option<Owner> {
    path.file_name()?.to_str()?.strip_prefix(UNFINISHED).and_then(Owner::parse)
}

/// The current time in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

pub(crate) fn age(created: u64) -> Duration {
    Duration::from_secs(now().saturating_sub(created))
}

/// A number that nobody can foresee: the standard library's hasher is seeded by the system, anew each time.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// Six random letters and digits that tell folders apart.
fn suffix() -> String {
    let digit = |shift: u32| char::from_digit(u32::try_from((random() >> shift) % 36).unwrap_or(0), 36);
    (0..6).filter_map(|place| digit(place * 5)).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Command, Stdio},
        time::Instant,
    };

    use acidtest_model::Role;

    use super::*;
    use crate::process::MARK;

    fn root() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path(), false).unwrap();
        (folder, root)
    }

    /// A root that is removed when it is empty, as between two servers of a run, is there again for the next one.
    #[test]
    fn a_root_that_was_removed_is_made_again_and_can_be_passed_through() {
        let folder = tempfile::tempdir().unwrap();
        // its user must get so far
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let root = Root::at(&folder.path().join("lab"), true).unwrap();
        for _ in 0..2 {
            let mut made = root.create(with_servers(), User::for_servers().unwrap()).unwrap();
            made.remove().unwrap();
            assert!(!root.path().exists());
        }
    }

    fn with_servers() -> Journal {
        let program = PathBuf::from("/usr/bin/redis-server");
        let member = |role: Role| MemberRecord {
            id: role.into(),
            store: "redis".to_owned(),
            binary: program.clone(),
            program: program.clone(),
            port: 1,
            durability: Durability::None,
            size: ServerSize::default(),
            arguments: Vec::new(),
            tls: false,
            replicates: false,
            advertised: None,
        };
        Journal::new("redis", false, vec![member(Role::Server), member(Role::Locks)])
    }

    #[test]
    fn what_the_dead_left_unfinished_goes_at_once_and_what_the_living_make_stays() {
        let (_folder, root) = root();
        let mut gone = Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let dead = |name: &str| root.path.join(format!("{UNFINISHED}{}-1-{name}", gone.id()));
        furnish(&dead("redis-aaaaaa"), &with_servers(), None).unwrap();
        make(&dead("redis-bbbbbb")).unwrap();
        fs::write(dead("namespace-cccccc.json"), "{").unwrap();
        let mine = unfinished(&root.path.join("redis-dddddd"));
        furnish(&mine, &with_servers(), None).unwrap();
        assert!(root.finished().unwrap().is_empty());
        root.clear_unfinished().unwrap();
        assert_eq!(root.entries().unwrap(), [mine]);
    }

    #[test]
    fn what_is_foreign_to_an_unfinished_folder_stays() {
        let (_folder, root) = root();
        let mut gone = Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let dead = root.path.join(format!("{UNFINISHED}{}-1-redis-aaaaaa", gone.id()));
        let victim = tempfile::tempdir().unwrap();
        fs::create_dir_all(victim.path().join(HOME)).unwrap();
        furnish(&dead, &with_servers(), None).unwrap();
        make(&dead.join("notes")).unwrap();
        fs::remove_dir_all(dead.join("locks")).unwrap();
        std::os::unix::fs::symlink(victim.path(), dead.join("locks")).unwrap();
        root.clear_unfinished().unwrap();
        assert!(victim.path().join(HOME).exists() && dead.join("notes").exists());
        assert!(!dead.join("server").exists());
    }

    #[test]
    fn a_removal_cut_short_leaves_the_journal() {
        let (_folder, root) = root();
        let folder = root.create(with_servers(), None).unwrap();
        let path = folder.place.path.clone();
        fs::write(path.join("locks").join(HOME).join("rows"), "x").unwrap();
        fs::write(path.join("server").join("server.log"), "x").unwrap();
        folder.place.empty().unwrap();
        let left: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [JOURNAL]);
        assert_eq!(root.folders().unwrap().0.len(), 1);
        drop(folder);
        assert!(root.entries().unwrap().is_empty());
    }

    /// A living process that carries a mark.
    struct Marked(std::process::Child);

    impl Marked {
        fn with(mark: &Path, place: &PrivateFolder) -> Self {
            let mut child = Command::new("sleep");
            let child = Self(child.arg("600").env(MARK, mark).stdin(Stdio::null()).spawn().unwrap());
            // the process exists for a moment before it shows its environment
            let started = Instant::now();
            let shows =
                |member| !Tree { folder: &place.member(member), binary: &member.binary }.alive().is_empty();
            while !place.journal.members.iter().any(shows) && started.elapsed() < Duration::from_mins(1) {
                thread::sleep(Duration::from_millis(1));
            }
            child
        }

        fn end(&mut self) {
            // it may have ended
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    impl Drop for Marked {
        fn drop(&mut self) {
            self.end();
        }
    }

    #[test]
    fn a_folder_stays_while_something_of_ours_works_in_it() {
        for role in ["server", "locks"] {
            let (_folder, root) = root();
            let mut folder = root.create(with_servers(), None).unwrap();
            let mut child = Marked::with(&folder.place.path.join(role), &folder.place);
            let refused = folder.remove();
            assert!(folder.place.path.join(JOURNAL).exists());
            let told = refused.unwrap_err();
            assert!(matches!(&told, LabError::Undead { pids, .. } if *pids == [child.0.id()]), "{told}");
            child.end();
            folder.remove().unwrap();
            assert!(root.entries().unwrap().is_empty());
        }
    }

    #[test]
    fn a_journal_that_does_not_say_which_servers_there_are_is_not_read() {
        let (_folder, root) = root();
        let folder = root.create(with_servers(), None).unwrap();
        let journal = folder.place.path.join(JOURNAL);
        let sound = fs::read_to_string(&journal).unwrap();
        for (words, other) in [
            ("\"members\"", "\"membres\""),
            ("\"locks\"", "\"../locks\""),
            ("\"locks\"", "\"\""),
            ("\"port\"", "\"prot\""),
            ("\"deployment\"", "\"deploy\""),
        ] {
            let garbled = sound.replace(words, other);
            assert_ne!(garbled, sound);
            fs::write(&journal, garbled).unwrap();
            let (found, unreadable) = root.folders().unwrap();
            assert!(found.is_empty() && unreadable.len() == 1, "{words}");
        }
    }
}
