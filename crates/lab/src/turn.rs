//! The turn to make a run, for those that do not want to disturb each other.

use std::fs::File;

use crate::{error::LabError, folder::Root};

/// The turn to make a run on this lab: one process has it, until this is dropped or the process ends.
#[derive(Debug)]
pub struct Turn {
    folder: File,
    root: Root,
}

impl Turn {
    /// None if another has it.
    pub(crate) fn take(root: &Root) -> Result<Option<Self>, LabError> {
        root.ensure()?;
        let locked = root.lock().map_err(LabError::at("locking", root.path()))?;
        Ok(locked.map(|folder| Self { folder, root: root.clone() }))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // closing the file would do it, but only after this
        let _ = self.folder.unlock();
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
        assert!(root.lock().unwrap().is_none(), "there is nothing to lock, which is no failure");
        assert!(Turn::take(&root).unwrap().is_some());
    }
}
