//! Folders for what a gateway keeps: for its user alone, and there after a loss of power.

use std::{
    fs::{DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt,
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
