//! Searches the folders in which programs are.

use std::{
    env, fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{
    error::LabError,
    source::{MissingProgram, Source},
};

/// A program that belongs to a server: it is searched for beside the server, in its installation, and on `PATH`.
pub(crate) fn companion(server: &Path, name: &'static str, source: Source) -> Result<PathBuf, LabError> {
    let beside = server.parent().map(Path::to_owned);
    let base = server.ancestors().nth(2);
    let within = base.into_iter().flat_map(|base| ["bin", "scripts"].map(|folder| base.join(folder)));
    let places = beside.into_iter().chain(within).chain(search_path());
    let looked: Vec<PathBuf> = places.map(|place| place.join(name)).collect();
    looked
        .iter()
        .find(|file| is_program(file))
        .cloned()
        .ok_or_else(|| MissingProgram { name, looked, others: Vec::new(), source, variable: None }.into())
}

/// The first program of that name on `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    search_path().map(|place| place.join(name)).find(|file| is_program(file))
}

/// The folders of `PATH`, and those that an ordinary user's `PATH` does not have.
pub(crate) fn search_path() -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
    for folder in ["/usr/local/sbin", "/usr/sbin"].map(PathBuf::from) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders.into_iter()
}

pub(crate) fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

pub(crate) fn is_script(file: &Path) -> bool {
    let mut start = [0; 2];
    fs::File::open(file).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"#!"
}
