//! Finds and ends processes by the kernel's data on them, never by name.

use std::{
    collections::BTreeMap,
    fmt, fs,
    os::unix::ffi::OsStrExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};
use serde::{Deserialize, Serialize};

use crate::invocation::Stop;

/// How long processes may take to vanish after SIGKILL.
const KILLED: Duration = Duration::from_secs(10);
/// How long processes may take to act on SIGSTOP or SIGCONT: one that waits for a disk acts later.
const SIGNALLED: Duration = Duration::from_secs(5);
/// How long a process may take to turn into another program by `exec`.
const TURNING: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(10);
/// The variable in the environment of every process that is started for a private folder; its value is the folder's
/// path.
pub(crate) const MARK: &str = "ACIDTEST_FOLDER";

/// A process, told apart by its start time from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    /// When it started, in the kernel's ticks.
    started: u64,
}

impl Owner {
    /// The process that this code runs in.
    pub(crate) fn me() -> Self {
        let pid = std::process::id();
        Self { pid, started: Stat::of(pid).map_or(0, |stat| stat.started) }
    }

    pub(crate) fn alive(self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.started == self.started)
    }

    /// Parses the text that [`fmt::Display`] writes, at the beginning of a text with more parts.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        Some(Self { pid: parts.next()?.parse().ok()?, started: parts.next()?.parse().ok()? })
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.pid, self.started)
    }
}

/// The processes of one server's folder: those that carry its mark, whatever they run and wherever they work; and
/// those that have written over their environment, run the server's binary and work in the folder. A user's shell or
/// tool in the folder carries no mark, and a server that the system started works elsewhere.
pub(crate) struct Tree<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) binary: &'a Path,
}

impl Tree<'_> {
    /// Every living process; those that no other one of them started come first.
    pub(crate) fn alive(&self) -> Vec<u32> {
        let (roots, others) = self.found();
        roots.into_iter().chain(others).collect()
    }

    /// Asks the server to stop and kills the processes that are left after `grace`; a program that prepares a server
    /// is killed at once. The error holds the ids of processes that outlived even that.
    pub(crate) fn stop(&self, stop: Stop, grace: Duration) -> Result<(), Vec<u32>> {
        if self.ask_to_stop(stop) {
            within(grace, || self.alive().is_empty());
        }
        self.kill()
    }

    /// Asks the server to stop, and returns whether there is one. A paused one goes on first, because it would not
    /// act on what it is asked.
    pub(crate) fn ask_to_stop(&self, stop: Stop) -> bool {
        self.resume();
        // only the first one: a server tells its own children, who may take the signal for something else
        let server = self.found().0.into_iter().find(|pid| runs(*pid, self.binary));
        server.is_some_and(|server| {
            signal(server, stop.signal());
            true
        })
    }

    /// Stops every process where it is. Looks again until none runs, because one may have started another meanwhile;
    /// returns whether that is so.
    pub(crate) fn pause(&self) -> bool {
        let mut paused = false;
        within(SIGNALLED, || {
            let running: Vec<u32> = self.alive().into_iter().filter(|pid| !is_paused(*pid)).collect();
            for pid in &running {
                signal(*pid, Signal::STOP);
            }
            // a process that turns into another program shows no mark for a moment
            paused = running.is_empty() && !self.any_unknown();
            paused
        });
        paused
    }

    /// Lets every process go on that was paused.
    pub(crate) fn resume(&self) {
        within(SIGNALLED, || {
            let paused: Vec<u32> = self.alive().into_iter().filter(|pid| is_paused(*pid)).collect();
            for pid in &paused {
                signal(*pid, Signal::CONT);
            }
            paused.is_empty()
        });
    }

    /// Kills every process at once. The error holds the ids of processes that outlived that.
    pub(crate) fn kill(&self) -> Result<(), Vec<u32>> {
        let strike = || {
            let alive = self.alive();
            for pid in &alive {
                signal(*pid, Signal::KILL);
            }
            alive.is_empty()
        };
        within(KILLED, strike);
        within(TURNING, || strike() && !self.any_unknown());
        let left = self.alive();
        if left.is_empty() { Ok(()) } else { Err(left) }
    }

    /// Whether the process is the server, so that it will be found again.
    pub(crate) fn is_server(&self, pid: u32) -> bool {
        runs(pid, self.binary) && self.owns(pid)
    }

    /// The processes that no other one of them has started, and the others.
    fn found(&self) -> (Vec<u32>, Vec<u32>) {
        let ours = numbers().filter(|pid| self.owns(*pid));
        let found: BTreeMap<u32, u32> = ours.filter_map(|pid| Some((pid, Stat::of(pid)?.parent))).collect();
        found.keys().partition(|pid| !found.contains_key(&found[*pid]))
    }

    fn owns(&self, pid: u32) -> bool {
        match Environment::of(pid, self.folder) {
            Environment::Marked => true,
            Environment::Overwritten => runs(pid, self.binary) && self.is_home_of(pid),
            // whoever started it, the process has ended, and still holds what is in the folder
            Environment::Gone => self.is_home_of(pid),
            Environment::Empty | Environment::Another => false,
        }
    }

    /// Whether a process may be of this folder and does not show it: while it turns into another program, it has no
    /// environment for a moment.
    fn any_unknown(&self) -> bool {
        numbers().any(|pid| {
            self.is_home_of(pid) && matches!(Environment::of(pid, self.folder), Environment::Empty)
        })
    }

    fn is_home_of(&self, pid: u32) -> bool {
        fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(self.folder))
    }
}

/// Tries again until the condition holds or the time is over.
fn within(time: Duration, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() && start.elapsed() < time {
        thread::sleep(POLL);
    }
}

/// The ids of all processes of the machine.
fn numbers() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether the environment that a process was started with names a folder. A program hands its environment on to
/// every process that it starts, and no other process has it, so it is a proof that needs no number and no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Environment {
    /// The process was started for the folder.
    Marked,
    /// The process has written a title over it, as servers of PostgreSQL, Redis and Tarantool do.
    Overwritten,
    /// The process has memory, but no environment.
    Empty,
    /// The process has given up its memory, and is about to give up everything else.
    Gone,
    /// The process was started by somebody else, or we may not read its environment.
    Another,
}

impl Environment {
    fn of(pid: u32, folder: &Path) -> Self {
        match fs::read(format!("/proc/{pid}/environ")) {
            Ok(text) if !text.is_empty() => Self::parse(&text, folder),
            // newer kernels answer that there is no such process
            Err(error) if Errno::from_io_error(&error) != Some(Errno::SRCH) => Self::Another,
            _ if has_memory(pid) => Self::Empty,
            _ => Self::Gone,
        }
    }

    fn parse(text: &[u8], folder: &Path) -> Self {
        let mut entries = text.split(|byte| *byte == 0);
        let marks = |entry: &[u8]| {
            let value = entry.strip_prefix(MARK.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
            value == Some(folder.as_os_str().as_bytes())
        };
        match () {
            () if entries.clone().any(marks) => Self::Marked,
            () if entries.next().is_some_and(|first| first.contains(&b'=')) => Self::Another,
            () => Self::Overwritten,
        }
    }
}

/// The state of a process, which need not be a child of this one.
struct Stat {
    parent: u32,
    started: u64,
    paused: bool,
}

impl Stat {
    /// `None` for a process that is gone, or is dead and waits to be reaped.
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(line: &str) -> Option<Self> {
        // the program's name stands in parentheses and may contain any character
        let (_, rest) = line.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let state = *fields.first()?;
        let dead = matches!(state, "Z" | "X" | "x");
        (!dead).then_some(())?;
        let (parent, started) = (fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?);
        Some(Self { parent, started, paused: state == "T" })
    }
}

fn is_paused(pid: u32) -> bool {
    // one that has ended meanwhile does not run either
    Stat::of(pid).is_none_or(|stat| stat.paused)
}

fn has_memory(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/statm")).is_ok_and(|pages| !pages.starts_with("0 "))
}

fn runs(pid: u32, binary: &Path) -> bool {
    let Ok(exe) = fs::read_link(format!("/proc/{pid}/exe")) else { return false };
    // an upgrade may have replaced the file under a running server
    let exe = exe.as_os_str().as_bytes();
    exe.strip_suffix(b" (deleted)").unwrap_or(exe) == binary.as_os_str().as_bytes()
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // the process may have ended since it was found, which is what is wanted
    let _ = pid.map(|pid| kill_process(pid, signal));
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn this_process_lives_and_a_later_namesake_does_not() {
        let me = Owner::me();
        assert!(me.alive());
        assert!(!Owner { started: me.started + 1, ..me }.alive());
    }

    #[test]
    fn an_owner_is_read_as_it_was_written() {
        let me = Owner::me();
        assert_eq!(Owner::parse(&format!("{me}-redis-ab12cd")), Some(me));
        assert_eq!(Owner::parse("redis-ab12cd"), None);
    }

    #[test]
    fn a_stat_line_is_read_past_any_name_and_a_zombie_is_dead() {
        let line = "7 (a) b) S 3 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 9 9";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.parent, stat.started), (3, 4242));
        assert!(Stat::parse(&line.replace(" S ", " Z ")).is_none());
    }

    /// The kernel needs some time to free so much memory, during which the process still holds what it shares.
    #[test]
    fn what_is_killed_is_gone_and_not_just_ending() {
        let folder = tempfile::tempdir().unwrap();
        let mut large = Command::new("tail");
        large.env(MARK, folder.path()).current_dir(folder.path()).stdin(Stdio::piped());
        let mut large = large.spawn().unwrap();
        // the process keeps all of the input, as no line ends
        let mut input = large.stdin.take().unwrap();
        let zeros = vec![0; 1 << 20];
        (0..300).for_each(|_| input.write_all(&zeros).unwrap());
        Tree { folder: folder.path(), binary: Path::new("/nowhere") }.kill().unwrap();
        assert!(Stat::of(large.id()).is_none());
        large.wait().unwrap();
    }

    #[test]
    fn a_mark_names_its_folder_and_no_other() {
        let of = |text: &[u8]| Environment::parse(text, Path::new("/t/redis-ab"));
        assert_eq!(of(b"PATH=/bin\0ACIDTEST_FOLDER=/t/redis-ab\0HOME=/\0"), Environment::Marked);
        for other in ["/t/redis-abc", "/t/redis-a", "/t/redis-ab/data", ""] {
            assert_eq!(of(format!("A=b\0ACIDTEST_FOLDER={other}\0").as_bytes()), Environment::Another);
        }
        assert_eq!(of(b"MY_ACIDTEST_FOLDER=/t/redis-ab\0"), Environment::Another);
        assert_eq!(of(b"redis-server\0\0\0"), Environment::Overwritten);
        assert_eq!(of(b"\0\0\0"), Environment::Overwritten);
    }
}
