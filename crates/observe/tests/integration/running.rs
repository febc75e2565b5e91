//! A process tree for tests, killed when its test ends.

use std::{
    env,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

/// Waits until a condition holds, for up to two minutes, because a busy machine may take long.
#[track_caller]
pub(crate) fn wait_until(what: &str, so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_mins(2), "{what}: not within {:?}", begun.elapsed());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Runs one of these tests, which is ignored otherwise, in a process of its own.
#[track_caller]
pub(crate) fn alone(test: &str) {
    let program = env::current_exe().unwrap();
    let ran = Command::new(program).args(["--exact", test, "--ignored", "--nocapture"]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{ran:?}");
}

/// A shell in a process group of its own, killed with all its children when dropped.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn sh(script: &str) -> Self {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        Self(command.spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Kills the group and waits for its leader.
    pub(crate) fn end(&mut self) {
        let id = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        if let (Some(id), Ok(None)) = (id, self.0.try_wait()) {
            let _ = kill_process_group(id, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}
