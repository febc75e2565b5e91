//! The turn to make a run, for those that do not want to disturb each other.

use std::{fs::File, io, os::unix::fs::MetadataExt};

use rustix::fs::{FlockOperation, flock};

use crate::{error::LabError, folder::Root};

/// The turn to make a run on this lab: one process has it, until this is dropped or the process ends.
#[derive(Debug)]
pub struct Turn {
    folder: File,
    root: Root,
}

impl Turn {
    /// None if another has it. It is the lock of the root folder itself, so that it leaves nothing.
    pub(crate) fn take(root: &Root) -> Result<Option<Self>, LabError> {
        root.ensure()?;
        let cannot = |error: io::Error| LabError::at("locking", root.path())(error);
        let folder = File::open(root.path()).map_err(cannot)?;
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            locked => locked.map_err(|error| cannot(error.into()))?,
        }
        // an empty root may have been removed, and made anew, since it was opened
        let locked = folder.metadata().map_err(cannot)?;
        let is_there = std::fs::metadata(root.path()).is_ok_and(|there| there.ino() == locked.ino());
        Ok(is_there.then(|| Self { folder, root: root.clone() }))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // closing the file would do it, but only after this
        let _ = flock(&self.folder, FlockOperation::Unlock);
        self.root.tidy();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_the_turn_and_the_root_stays_as_long() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(&folder.path().join("lab"), true).unwrap();
        let turn = Turn::take(&root).unwrap().unwrap();
        assert!(Turn::take(&root).unwrap().is_none());
        root.tidy();
        assert!(root.path().exists(), "another one would have the turn of a new root");
        assert!(Turn::take(&root).unwrap().is_none());
        drop(turn);
        assert!(!root.path().exists(), "nothing is left");
        assert!(Turn::take(&root).unwrap().is_some());
    }
}
