//! Notes of the namespaces that a bench has created on users' own servers.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    error::LabError,
    folder::{Root, age, now, read_json},
    process::Owner,
};

/// The content of a note. The address was formatted before, so it holds no password.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Remark {
    pub(crate) address: String,
    pub(crate) store: String,
    pub(crate) namespace: String,
    pub(crate) run: String,
    pub(crate) owner: Owner,
    created: u64,
}

/// A note that a namespace exists on a user's server. It stays until it is cleared, even when this value is dropped:
/// a bench that dies must leave it.
#[derive(Debug)]
#[must_use = "clear the note when the namespace is gone"]
pub struct Note {
    path: PathBuf,
    root: Root,
}

impl Note {
    pub(crate) fn write(root: &Root, remark: &Remark) -> Result<Self, LabError> {
        Ok(Self { path: root.write_note(remark)?, root: root.clone() })
    }

    /// Removes the note, once the namespace is gone.
    pub fn clear(self) -> Result<(), LabError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LabError::at("removing", &self.path)(error))
            }
            _ => {
                self.root.tidy();
                Ok(())
            }
        }
    }
}

/// A namespace that a dead bench left on a user's server.
#[derive(Debug)]
pub struct NamespaceEntry {
    /// The address of the server, without a password.
    pub address: String,
    pub store: String,
    pub namespace: String,
    /// The id of the run that created it.
    pub run: String,
    /// The id of the process that created it.
    pub bench: u32,
    /// The time since it was created.
    pub age: Duration,
    note: Note,
}

impl NamespaceEntry {
    /// Removes the note, once the namespace is gone.
    pub fn clear(self) -> Result<(), LabError> {
        self.note.clear()
    }
}

/// The notes whose benches are dead.
pub(crate) fn left_behind(root: &Root) -> Result<Vec<NamespaceEntry>, LabError> {
    let orphans = remarks(root)?.filter(|(remark, _)| !remark.owner.alive());
    Ok(orphans.map(|(remark, path)| entry(root, remark, path)).collect())
}

/// The process of another living bench that has left a note of this run.
pub(crate) fn bench_of(root: &Root, run: &str) -> Result<Option<u32>, LabError> {
    let me = Owner::me().pid;
    let is_its = |remark: &Remark| {
        run_of(&remark.run) == run_of(run) && remark.owner.pid != me && remark.owner.alive()
    };
    Ok(remarks(root)?.find(|(remark, _)| is_its(remark)).map(|(remark, _)| remark.owner.pid))
}

/// The id of the run that leaves this mark: it stands before the first dot.
#[must_use]
pub fn run_of(mark: &str) -> &str {
    mark.split('.').next().unwrap_or_default()
}

fn remarks(root: &Root) -> Result<impl Iterator<Item = (Remark, PathBuf)>, LabError> {
    let notes = root.finished()?.into_iter().filter(|path| is_note(path));
    Ok(notes.filter_map(|path| Some((read_json::<Remark>(&path)?, path))))
}

fn entry(root: &Root, remark: Remark, path: PathBuf) -> NamespaceEntry {
    NamespaceEntry {
        age: age(remark.created),
        address: remark.address,
        store: remark.store,
        namespace: remark.namespace,
        run: remark.run,
        bench: remark.owner.pid,
        note: Note { path, root: root.clone() },
    }
}

impl Remark {
    pub(crate) fn new(address: String, store: &str, namespace: &str, run: &str) -> Self {
        Self {
            address,
            store: store.to_owned(),
            namespace: namespace.to_owned(),
            run: run.to_owned(),
            owner: Owner::me(),
            created: now(),
        }
    }
}

fn is_note(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    path.is_file()
        && name.is_some_and(|name| name.starts_with("namespace-"))
        && path.extension().is_some_and(|extension| extension == "json")
}
