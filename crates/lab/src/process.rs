//! Finds and ends processes, by what the kernel says of them and never by name.

use std::{
    fs,
    os::unix::ffi::OsStrExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::kinds::Stop;

/// How long processes may take to vanish after SIGKILL.
const KILLED: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    /// When it started, in the kernel's ticks.
    started: u64,
}

impl Owner {
    /// This process.
    pub(crate) fn me() -> Self {
        let pid = std::process::id();
        Self { pid, started: Stat::of(pid).map_or(0, |stat| stat.started) }
    }

    pub(crate) fn alive(self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.started == self.started)
    }
}

/// The processes of one private server: those that run its binary, or a helper beside it, and either work in
/// its folder or were told of it. A user's shell in the folder runs another binary; a server of the system's works
/// elsewhere.
pub(crate) struct Tree<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) binary: &'a Path,
    /// The names of the helpers.
    pub(crate) helpers: &'static [&'static str],
}

impl Tree<'_> {
    /// Every living process: those that no other one started come first.
    pub(crate) fn alive(&self) -> Vec<u32> {
        let found = self.found();
        let (roots, others): (Vec<&_>, Vec<&_>) =
            found.iter().partition(|(_, parent)| !found.iter().any(|(pid, _)| pid == parent));
        roots.into_iter().chain(others).map(|(pid, _)| *pid).collect()
    }

    /// Asks the server to stop, then kills what is left of it. The error names what outlived even that.
    pub(crate) fn stop(&self, stop: Stop, grace: Duration) -> Result<(), Vec<u32>> {
        // only the first: a server tells its own children, who may take the signal for something else
        if let Some(pid) = self.alive().first() {
            signal(*pid, stop.signal());
        }
        if self.vanished(grace, || ()) { Ok(()) } else { self.kill() }
    }

    /// Kills every process at once. The error names what outlived that.
    pub(crate) fn kill(&self) -> Result<(), Vec<u32>> {
        let strike = || self.alive().into_iter().for_each(|pid| signal(pid, Signal::KILL));
        if self.vanished(KILLED, strike) { Ok(()) } else { Err(self.alive()) }
    }

    fn vanished(&self, within: Duration, meanwhile: impl Fn()) -> bool {
        let start = Instant::now();
        loop {
            meanwhile();
            if self.found().is_empty() {
                return true;
            }
            if start.elapsed() > within {
                return false;
            }
            thread::sleep(POLL);
        }
    }

    fn found(&self) -> Vec<(u32, u32)> {
        let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
        numbers
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| (self.runs_binary(*pid) || self.helps(*pid)) && self.concerns_folder(*pid))
            .filter_map(|pid| Some((pid, Stat::of(pid)?.parent)))
            .collect()
    }

    pub(crate) fn runs_binary(&self, pid: u32) -> bool {
        runs(pid, self.binary)
    }

    fn helps(&self, pid: u32) -> bool {
        self.helpers.iter().any(|name| runs(pid, &self.binary.with_file_name(name)))
    }

    fn concerns_folder(&self, pid: u32) -> bool {
        let works_in =
            fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(self.folder));
        works_in || fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| names(&line, self.folder))
    }
}

/// How a started process is doing, for one that is a child of this one or not.
struct Stat {
    parent: u32,
    started: u64,
}

impl Stat {
    /// `None` for a process that is gone, or is dead and only waits to be reaped.
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(line: &str) -> Option<Self> {
        // the program's name stands in parentheses and may hold any character
        let (_, rest) = line.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let dead = matches!(*fields.first()?, "Z" | "X" | "x");
        (!dead).then_some(())?;
        Some(Self { parent: fields.get(1)?.parse().ok()?, started: fields.get(19)?.parse().ok()? })
    }
}

fn runs(pid: u32, binary: &Path) -> bool {
    let Ok(exe) = fs::read_link(format!("/proc/{pid}/exe")) else { return false };
    // an upgrade replaces the file under a running server
    let exe = exe.as_os_str().as_bytes();
    exe.strip_suffix(b" (deleted)").unwrap_or(exe) == binary.as_os_str().as_bytes()
}

/// Whether a command line (words that end in NUL) names the folder or something in it.
fn names(line: &[u8], folder: &Path) -> bool {
    let folder = folder.as_os_str().as_bytes();
    let starts = line.windows(folder.len()).enumerate().filter(|(_, part)| *part == folder);
    starts.map(|(at, _)| line.get(at + folder.len())).any(|next| matches!(next, None | Some(b'/' | 0)))
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // it may have ended since it was found, which is what is wanted
    let _ = pid.map(|pid| kill_process(pid, signal));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_a_later_namesake_does_not() {
        let me = Owner::me();
        assert!(me.alive());
        assert!(!Owner { started: me.started + 1, ..me }.alive());
    }

    #[test]
    fn a_stat_line_is_read_past_any_name_and_a_zombie_is_dead() {
        let line = "7 (a) b) S 3 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 9 9";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.parent, stat.started), (3, 4242));
        assert!(Stat::parse(&line.replace(" S ", " Z ")).is_none());
    }

    #[test]
    fn only_the_folder_itself_is_named() {
        let folder = Path::new("/t/redis-ab");
        assert!(names(b"redis\0--dir=/t/redis-ab/data\0", folder));
        assert!(names(b"redis\0/t/redis-ab\0", folder));
        assert!(!names(b"redis\0/t/redis-abc\0", folder));
    }
}
