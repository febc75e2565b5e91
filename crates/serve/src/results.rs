//! The files of results: found by the run they belong to, never by a name that somebody asks for.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use acidtest_model::figure::bytes;
use acidtest_results::RunResult;
use rustix::fs::OFlags;

/// Length of the longest result that is read here, in bytes.
const LONGEST: u64 = 256 << 20;

/// Why a result cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It is not there: it was not written yet, or somebody has removed it.
    Missing,
    /// It cannot be read, or what is there is no result.
    Other(String),
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            _ => Self::Other(error.to_string()),
        }
    }
}

/// The name of the file of a run's result.
pub(crate) fn file_name(id: &str, workload: &str) -> String {
    format!("{id}-{workload}.json")
}

/// Whether a word can be the name of a workload in the name of a file.
pub(crate) fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// The ids and workloads that names of files in the folder say, as those of results do.
pub(crate) fn named(folder: &Path) -> Vec<(String, String)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let of = |name: &str| {
        let (id, workload) = name.strip_suffix(".json")?.rsplit_once('-')?;
        is_plain(workload).then(|| (id.to_owned(), workload.to_owned()))
    };
    names.filter_map(|entry| of(entry.file_name().to_str()?)).collect()
}

/// Opens a file of the folder, and nothing that a link leads to. With it comes its length in bytes.
pub(crate) fn open(path: &Path) -> io::Result<(File, u64)> {
    let flags = flags(OFlags::NOFOLLOW.union(OFlags::NONBLOCK));
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let about = file.metadata()?;
    if about.is_file() {
        Ok((file, about.len()))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"))
    }
}

/// The text of a file of the folder.
pub(crate) fn text(path: &Path, longest: u64) -> Result<String, Unreadable> {
    let mut text = Vec::new();
    open(path)?.0.take(longest + 1).read_to_end(&mut text)?;
    if text.len() as u64 > longest {
        return Err(Unreadable::Other(format!(
            "it is longer than {}: read it with acidtest show, or acidtest report",
            bytes(longest as f64)
        )));
    }
    String::from_utf8(text).map_err(|_| Unreadable::Other("it is not text".to_owned()))
}

pub(crate) fn result(path: &Path) -> Result<RunResult, Unreadable> {
    acidtest_results::read(&text(path, LONGEST)?).map_err(|error| Unreadable::Other(error.to_string()))
}

/// What tells a file from the one that was there before: its length, and when it was written.
pub(crate) type Version = (u64, SystemTime);

/// The version of a file; none if it is not there.
pub(crate) fn version(path: &Path) -> Option<Version> {
    let about = fs::symlink_metadata(path).ok()?;
    Some((about.len(), about.modified().ok()?))
}

/// Whether the file is there, and is a file.
pub(crate) fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.is_file())
}

/// A file that is there to be locked; nothing is written to it.
pub(crate) fn lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).custom_flags(flags(OFlags::NOFOLLOW)).open(path)
}

#[expect(clippy::cast_possible_wrap, reason = "the bits are handed on as they are")]
fn flags(flags: OFlags) -> i32 {
    flags.bits() as i32
}

/// Writes a file as a whole: a reader sees the earlier one or this one, also after a loss of power.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    let partial: PathBuf = path.with_extension("partial");
    let written = (|| {
        let mut new = OpenOptions::new();
        new.write(true).create(true).truncate(true).custom_flags(flags(OFlags::NOFOLLOW));
        let mut file = new.open(&partial)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&partial, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_files_of_the_folder_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        write(&path("a.json"), "{}").unwrap();
        assert_eq!(text(&path("a.json"), 10), Ok("{}".to_owned()));
        assert_eq!(text(&path("b.json"), 10), Err(Unreadable::Missing));
        symlink("/etc/passwd", path("link.json")).unwrap();
        fs::create_dir(path("folder.json")).unwrap();
        for name in ["link.json", "folder.json", "a.json"] {
            assert!(matches!(text(&path(name), 1), Err(Unreadable::Other(_))), "{name}");
        }
        assert!(is_there(&path("a.json")) && !is_there(&path("link.json")));
        assert!(matches!(result(&path("a.json")), Err(Unreadable::Other(_))));
    }
}
