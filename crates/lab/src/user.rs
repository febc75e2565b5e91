//! The user that servers run as.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use rustix::process::geteuid;

use crate::error::LabError;

/// The user that servers run as under root: it owns nothing and exists on every system.
const UNPRIVILEGED: &str = "nobody";

/// The user that servers run as when we are root, because most of them refuse to run as root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl User {
    /// The user for servers; `None` if we are not root, and they run as ourselves.
    pub(crate) fn for_servers() -> Result<Option<Self>, LabError> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        match Self::find(&users) {
            None => Err(LabError::NoUser { user: UNPRIVILEGED }),
            found => Ok(found),
        }
    }

    fn find(users: &str) -> Option<Self> {
        let line = users.lines().find_map(|line| line.strip_prefix(UNPRIVILEGED)?.strip_prefix(':'))?;
        let mut fields = line.split(':').skip(1);
        Some(Self { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
    }

    /// Refuses a folder that this user could not reach.
    pub(crate) fn check_reaches(self, folder: &Path) -> Result<(), LabError> {
        let enters = |place: &&Path| {
            fs::metadata(place).is_ok_and(|data| {
                let bit = if data.uid() == self.uid { 0o100 } else { 0o001 };
                data.mode() & bit != 0
            })
        };
        folder.ancestors().find(|place| !enters(place)).map_or(Ok(()), |blocked| {
            Err(LabError::Impassable { user: UNPRIVILEGED, blocked: blocked.to_owned() })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unprivileged_user_is_found_by_its_whole_name() {
        let users = "root:x:0:0::/root:/bin/sh\nnobody2:x:7:7::/:\nnobody:x:65534:65533:n:/:/bin/false\n";
        let user = User::find(users).unwrap();
        assert_eq!((user.uid, user.gid), (65534, 65533));
        assert!(User::find("root:x:0:0::/root:/bin/sh\n").is_none());
    }
}
