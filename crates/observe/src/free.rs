//! How much memory and disk there is left to take.

use std::{fs, path::Path};

use procfs::{FromRead, Meminfo};

use crate::machine::nearest;

/// Bytes of memory that programs can still take without swapping: what the kernel says is available, or less where a control
/// group of this process has a limit. None where neither is told.
#[must_use]
pub fn free_memory() -> Option<u64> {
    let available = Meminfo::from_file("/proc/meminfo").ok().and_then(|memory| memory.mem_available);
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    [available, free_in_group(Path::new("/sys/fs/cgroup"), &own)].into_iter().flatten().min()
}

/// The least that any group from this process's own upwards has left; `own` is what the kernel says of a process's groups.
fn free_in_group(root: &Path, own: &str) -> Option<u64> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let number =
        |path: &Path, name: &str| fs::read_to_string(path.join(name)).ok()?.trim().parse::<u64>().ok();
    let left =
        |group: &Path| Some(number(group, "memory.max")?.saturating_sub(number(group, "memory.current")?));
    let group = root.join(own);
    group.ancestors().take_while(|group| group.starts_with(root)).filter_map(left).min()
}

/// Bytes of disk that this user can still write where `folder` is, or would be. None where that is not told.
#[must_use]
pub fn free_disk(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(&nearest(folder)?).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_s_limit_holds_for_the_groups_in_it() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("outer/inner");
        fs::create_dir_all(&inner).unwrap();
        let write = |group: &Path, max: &str, current: &str| {
            fs::write(group.join("memory.max"), max).unwrap();
            fs::write(group.join("memory.current"), current).unwrap();
        };
        let free = |own: &str| free_in_group(root.path(), own);
        write(&inner, "max\n", "10\n");
        assert_eq!(free("0::/outer/inner\n"), None);
        write(inner.parent().unwrap(), "1000\n", "400\n");
        assert_eq!(free("0::/outer/inner\n"), Some(600));
        write(&inner, "100\n", "150\n");
        assert_eq!(free("1:cpu:/\n0::/outer/inner\n"), Some(0));
        assert_eq!(free("0::/outer\n"), Some(600));
        assert_eq!(free(""), None);
    }

    #[test]
    fn there_is_memory_and_a_folder_that_is_not_there_yet_has_the_disk_of_the_one_above() {
        assert!(free_memory().is_some_and(|bytes| bytes > 0));
        let folder = tempfile::tempdir().unwrap();
        let disk = |path: &Path| free_disk(path).is_some_and(|bytes| bytes > 0);
        assert!(disk(&folder.path().join("not/yet")) && disk(folder.path()));
    }
}
