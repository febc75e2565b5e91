//! Folders and files for what a gateway keeps: for its user alone, and there after a loss of power.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

/// Makes a folder, and those above it, where they do not exist, and syncs that they are there.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    // the working directory, and the root, are there
    let Some(above) = folder.parent() else { return Ok(()) };
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    if !folder.is_dir() {
        if !above.is_dir() {
            make(above)?;
        }
        match DirBuilder::new().mode(0o700).create(folder) {
            // another has just made it
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            made => made?,
        }
    }
    // also where it is there already: who made it may have been killed before this
    File::open(above)?.sync_all()
}

/// Makes the file of a database for its user alone, if it is not there. One that is there is not opened: with the closing of
/// any descriptor of a file, the locks that SQLite has on it in this process would be gone.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}

/// Takes room for so many bytes of a file on its disk, or fails because that is full. Not every file system can.
pub(crate) fn take_room(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens a file to be read and written, which is made for its user alone if it is not there; also in a folder that others may
/// read. One that is there is left as it is.
pub(crate) fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_made_is_for_its_user_alone_and_what_is_there_is_left() {
        let there = tempfile::TempDir::new().unwrap();
        std::fs::set_permissions(there.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let mode = |folder: &Path| std::fs::metadata(folder).unwrap().permissions().mode() & 0o777;
        let deep = there.path().join("a/b");
        make(&deep).unwrap();
        make(&deep).unwrap();
        assert_eq!((mode(there.path()), mode(&there.path().join("a")), mode(&deep)), (0o755, 0o700, 0o700));
        std::fs::write(there.path().join("file"), "").unwrap();
        assert!(make(&there.path().join("file")).is_err() && make(&there.path().join("file/x")).is_err());
    }
}
