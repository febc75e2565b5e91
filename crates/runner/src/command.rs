//! A user's own command, run on a thread while clients are driven.

use std::{
    io::Read,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::Failure;

/// How long a command may take.
const LIMIT: Duration = Duration::from_mins(1);

/// Bytes of its output that an error shows.
const SHOWN: usize = 2000;

/// A command that runs.
pub(crate) struct UserCommand(JoinHandle<Result<(), String>>);

impl UserCommand {
    /// Starts the command of this name in a shell.
    pub(crate) fn start(name: &'static str, command: &str) -> Result<Self, Failure> {
        let command = command.to_owned();
        let run = move || run(name, &command);
        let started = thread::Builder::new().name("command".to_owned()).spawn(run);
        started.map(Self).map_err(|error| Failure::Other(format!("cannot start a thread: {error}")))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.is_finished()
    }

    /// How it ended; blocks until it has.
    pub(crate) fn end(self) -> Result<(), Failure> {
        let ended =
            self.0.join().unwrap_or_else(|_| Err("its thread panicked: a defect of acidtest".to_owned()));
        ended.map_err(Failure::Store)
    }
}

fn run(name: &str, command: &str) -> Result<(), String> {
    let failed = |how: &str| format!("--on-{name} \"{command}\" {how}");
    let mut child = Command::new("/bin/sh")
        // its output comes by one stream, in its order
        .args(["-c", &format!("exec 2>&1\n{command}")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| failed(&format!("cannot be started: {error}")))?;
    let output = child.stdout.take().map(|mut stream| {
        thread::spawn(move || {
            let mut said = Vec::new();
            // a server that it starts may keep the stream open: what is read until then is what it said
            let _ = stream.by_ref().take(SHOWN as u64).read_to_end(&mut said);
            // whoever writes more must not be ended by that
            let rest = thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
            drop(rest);
            String::from_utf8_lossy(&said).trim().to_owned()
        })
    });
    let begun = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if begun.elapsed() < LIMIT => thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    // it is ours: it was not waited for yet
                    let _ = kill_process_group(group, Signal::KILL);
                }
                let _ = child.wait();
                return Err(failed(&format!("did not end within {} s", LIMIT.as_secs())));
            }
            Err(error) => return Err(failed(&format!("cannot be waited for: {error}"))),
        }
    };
    if status.success() {
        return Ok(());
    }
    // the shell has ended; what it left running may still hold the stream
    thread::sleep(Duration::from_millis(50));
    let said = output.filter(JoinHandle::is_finished).and_then(|said| said.join().ok()).unwrap_or_default();
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, signal) => format!("was killed by signal {}", signal.unwrap_or_default()),
    };
    Err(failed(&if said.is_empty() {
        how
    } else {
        format!("{how}, and said:\n  {}", said.replace('\n', "\n  "))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_says_how_with_what_it_said() {
        let ended = |command: &str| UserCommand::start("kill", command).unwrap().end();
        assert!(ended("true").is_ok());
        let said = ended("echo no such unit; echo really >&2; exit 5").unwrap_err().to_string();
        assert!(said.starts_with("--on-kill \"echo no such unit"), "{said}");
        assert!(said.ends_with("ended with exit code 5, and said:\n  no such unit\n  really"), "{said}");
        assert!(ended("kill -9 $$").unwrap_err().to_string().contains("killed by signal 9"));
        assert!(ended("seq 1 100000").is_ok(), "it says more than anybody reads");
        // what it leaves running is not waited for
        let begun = Instant::now();
        assert!(ended("sleep 30 &").is_ok() && ended("sleep 30 & exit 1").is_err());
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
