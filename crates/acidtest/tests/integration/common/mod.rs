//! Shared by the tests of the command line: runs it in a lab and a working folder of its own.

pub mod certificate;
pub mod http;

use std::{
    fs, hint,
    os::unix::fs::PermissionsExt,
    panic,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

pub use acidtest_testbed::wanted;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longest time for any event that must happen, on a machine that has other things to do.
const SOON: Duration = Duration::from_mins(3);

/// Does this while other threads use every core of the machine.
pub fn busy<T>(work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    let worked = thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            });
        }
        let worked = panic::catch_unwind(panic::AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        worked
    });
    worked.unwrap_or_else(|panicked| panic::resume_unwind(panicked))
}

/// Makes of the last trial of a result's first cell one that sold what was not there, and was interrupted then.
pub fn break_and_interrupt(result: &mut Value) {
    let trial = result["cells"][0]["trials"].as_array_mut().unwrap().last_mut().unwrap();
    trial["stopped"] = json!({"reason": "interrupted", "detail": ""});
    trial["audit"]["verdict"] = "broken".into();
    let findings = trial["audit"]["findings"].as_array_mut().unwrap();
    let lock = findings.iter_mut().find(|finding| finding["guarantee"] == "lock").unwrap();
    lock["count"] = 5.into();
    result["interrupted"] = true.into();
}

/// A working folder and a lab for one test. The lab must be empty at the test's end.
pub struct Bench {
    folder: TempDir,
}

/// The exit code and output of a command.
pub struct CommandResult {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl CommandResult {
    fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap()
    }
}

impl Bench {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("acidtest-test-").tempdir().unwrap();
        // under root, servers run as another user, who must be able to pass through
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_acidtest"));
        command
            .args(words)
            .current_dir(self.folder.path())
            .env("ACIDTEST_LAB", self.path("lab"))
            .env_remove("ACIDTEST_PASSWORD")
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, words: &[&str]) -> CommandResult {
        CommandResult::of(&self.command(words).output().unwrap())
    }

    pub fn spawn(&self, words: &[&str]) -> Child {
        self.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The result files that were written, oldest first.
    pub fn results(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path("results")) else { return Vec::new() };
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    pub fn result(&self) -> Value {
        let file = self.results().pop().unwrap();
        serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
    }

    /// The files in the lab; none once everything has been removed.
    pub fn leftovers(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path("lab")) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Processes that work in the lab or name it in their arguments or environment.
    pub fn processes(&self) -> Vec<String> {
        let lab = self.path("lab").display().to_string();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let path = entry.path();
            let cwd =
                fs::read_link(path.join("cwd")).map(|cwd| cwd.display().to_string()).unwrap_or_default();
            let words = fs::read(path.join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            if cwd.starts_with(&lab) || words.contains(&lab) {
                found.push(format!("{}: {words}", path.display()));
            }
        }
        found
    }

    #[track_caller]
    pub fn assert_clean(&self) {
        let begun = Instant::now();
        while !(self.processes().is_empty() && self.leftovers().is_empty()) {
            assert!(begun.elapsed() < SOON, "left behind: {:?} {:?}", self.processes(), self.leftovers());
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Bench {
    /// A test that failed half-way leaves nothing running.
    fn drop(&mut self) {
        if !self.leftovers().is_empty() {
            let _ = self.command(&["lab", "down"]).output();
        }
    }
}

/// Waits for a child to end, and kills it if it does not.
pub fn wait(mut child: Child) -> CommandResult {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > SOON {
            child.kill().unwrap();
            let ended = CommandResult::of(&child.wait_with_output().unwrap());
            panic!("still running after {SOON:?}: {} {}", ended.stdout, ended.stderr);
        }
        thread::sleep(Duration::from_millis(20));
    }
    CommandResult::of(&child.wait_with_output().unwrap())
}

/// Sends a signal by name to a process that the test started.
pub fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success());
}

/// Waits until a condition holds.
#[track_caller]
pub fn until(what: &str, so: impl FnMut() -> bool) {
    acidtest_testbed::until(what, SOON, so);
}

/// The servers to test: all except those that the user left out.
pub fn servers() -> Vec<&'static str> {
    ["postgres", "mariadb", "redis", "tarantool"].into_iter().filter(|store| wanted(store)).collect()
}
