//! A private server: its start, its end, and its log.

use std::{
    path::Path,
    process::Child,
    thread,
    time::{Duration, Instant},
};

use acidtest_model::{Address, Durability};

use crate::{
    Lifetime,
    error::LabError,
    folder::{Folder, Found, Record, Root, Served},
    installed,
    kinds::{self, Kind, Site},
    launch::{Launcher, User, describe, log_tail},
    port,
    process::Tree,
};

/// How long a server may take to stop in order before it is killed.
const GRACE: Duration = Duration::from_secs(10);
/// The same where nobody asked to stop this server in particular, and its data is removed anyway.
const SHORT_GRACE: Duration = Duration::from_secs(3);
/// How long `setpriv` and start scripts may take to become the server.
const EXEC: Duration = Duration::from_secs(10);
/// Most lines of its log that an error shows.
const SHOWN: usize = 12;
/// Lines at the end of its log that are searched for the error.
const SEARCHED: usize = 60;
/// The words of the servers for a full disk.
const DISK_FULL: [&str; 3] = ["No space left on device", "failed with error 28", "rrcode: 28 "];

/// A private server. When this value is dropped, the server ends and its folder is removed, unless it is kept.
#[derive(Debug)]
pub struct Server {
    address: Address,
    child: Child,
    folder: Folder,
}

impl Server {
    pub(crate) fn start(
        root: &Root,
        kind: &'static Kind,
        durability: Durability,
        lifetime: Lifetime,
        port: Option<u16>,
    ) -> Result<Self, LabError> {
        let program = installed::program(kind)?;
        let port = port::choose(port)?;
        let user = User::for_servers()?;
        user.map_or(Ok(()), |user| user.check_reaches(&root.path))?;
        let kept = lifetime == Lifetime::Kept;
        // never none here: a script that is not known to turn into the server is not taken for its program
        let binary = installed::process_of(kind, &program).unwrap_or_else(|| program.clone());
        let plan = Served { program, binary, port, durability };
        let folder = root.create(Record::new(kind.store, kept, Some(plan)), user)?;
        let running = Running::of(&folder.found)?;
        running.init(user)?;
        let child = running.spawn(user)?;
        let mut server = Self { address: (kind.address)(port), child, folder };
        server.await_exec()?;
        if kept {
            server.folder.leave();
        }
        Ok(server)
    }

    /// The address at which clients reach the server.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The id of the root of the server's process tree.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The server's private folder, with its data and its log.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder.found.path
    }

    /// The exit status or signal that the server ended with, in words ("exited with status 1", "was killed by signal
    /// 9"); none while it runs.
    pub fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(describe)
    }

    /// An error with the last lines of the server's log if it ended: for a caller that waits for its first answer.
    pub fn check(&mut self) -> Result<(), LabError> {
        self.ended().map_or(Ok(()), |how| {
            Err(failure(&self.folder.found, |store, log| LabError::Died { store, how, log }))
        })
    }

    /// The last lines that the server, or the preparation of its data, wrote.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> Vec<String> {
        log_tail(self.folder(), lines)
    }

    /// Kills every process of the server at once, as a crash would. Its data stays.
    pub fn kill(&mut self) -> Result<(), LabError> {
        // first the process that would start others again; it may have ended already
        let _ = self.child.kill();
        Running::of(&self.folder.found)?.kill()?;
        self.reap();
        Ok(())
    }

    /// Starts the server again on the same data and port; if it still runs, it is stopped first.
    pub fn restart(&mut self) -> Result<(), LabError> {
        self.end(GRACE)?;
        self.child = Running::of(&self.folder.found)?.spawn(User::for_servers()?)?;
        self.await_exec()
    }

    /// Stops the server in order, or kills it where it does not stop, and removes its folder.
    pub fn stop(&mut self) -> Result<(), LabError> {
        self.end(GRACE)?;
        Running::of(&self.folder.found)?.sweep();
        self.folder.remove()
    }

    fn end(&mut self, grace: Duration) -> Result<(), LabError> {
        Running::of(&self.folder.found)?.stop(grace)?;
        self.reap();
        Ok(())
    }

    /// Takes the exit status after the end of every process, so that no zombie is left.
    fn reap(&mut self) {
        // a process that never became the server was not among those found
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until the process is the server itself, no longer `setpriv` or a script that turns into it, and can be
    /// found.
    fn await_exec(&mut self) -> Result<(), LabError> {
        let start = Instant::now();
        loop {
            self.check()?;
            let running = Running::of(&self.folder.found)?;
            if running.tree.is_server(self.child.id()) {
                return Ok(());
            }
            if start.elapsed() > EXEC {
                return Err(LabError::Unusable {
                    program: running.site.program,
                    why: "it runs another program in its place, or clears its environment".to_owned(),
                    variable: running.kind.variable(),
                });
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.folder.is_left() {
            return;
        }
        // a destructor has nobody to report an error to; the folder is removed next, if no process is left in it
        if self.end(SHORT_GRACE).is_ok()
            && let Ok(running) = Running::of(&self.folder.found)
        {
            running.sweep();
        }
    }
}

/// The server of a private folder, whoever started it.
pub(crate) struct Running<'a> {
    found: &'a Found,
    kind: &'static Kind,
    site: Site,
    tree: Tree<'a>,
}

impl<'a> Running<'a> {
    /// Fails for a folder that holds no server, or the server of a store that this version does not know.
    pub(crate) fn of(found: &'a Found) -> Result<Self, LabError> {
        let kind = kinds::find(&found.record.store)?;
        let (Some(served), Some(tree)) = (found.record.server.clone(), found.tree()) else {
            return Err(kinds::unknown(&found.record.store));
        };
        let Served { program, binary, port, durability } = served;
        Ok(Self { found, kind, site: Site { program, binary, home: found.home(), port, durability }, tree })
    }

    pub(crate) fn address(&self) -> Address {
        (self.kind.address)(self.site.port)
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.tree.alive().first().copied()
    }

    /// Ends the server, by force if need be, and frees what it held.
    pub(crate) fn clear(&self) -> Result<(), LabError> {
        self.stop(GRACE)?;
        self.sweep();
        Ok(())
    }

    fn stop(&self, grace: Duration) -> Result<(), LabError> {
        self.tree.stop(self.kind.stop, grace).map_err(|pids| self.undead(pids))
    }

    fn kill(&self) -> Result<(), LabError> {
        self.tree.kill().map_err(|pids| self.undead(pids))
    }

    fn init(&self, user: Option<User>) -> Result<(), LabError> {
        let Some(step) = (self.kind.init)(&self.site)? else { return Ok(()) };
        let status = Launcher { found: self.found, user }.run(&step);
        // kills whatever the preparation has left running: from here on the folder is the server's, or is removed
        self.kill()?;
        let status = status?;
        if status.success() {
            return Ok(());
        }
        let (program, how) = (step.program.display().to_string(), describe(status));
        Err(failure(self.found, |store, log| LabError::InitFailed { store, program, how, log }))
    }

    fn spawn(&self, user: Option<User>) -> Result<Child, LabError> {
        let dies_with_us = (!self.found.record.kept).then(|| self.kind.orphaned());
        Launcher { found: self.found, user }.spawn(&(self.kind.run)(&self.site), dies_with_us)
    }

    /// Frees what a killed server left in the kernel. Errors are ignored: it is little, and gone with the next boot.
    fn sweep(&self) {
        let step = self.kind.sweep.and_then(|sweep| sweep(&self.site));
        if let (Some(step), Ok(user)) = (step, User::for_servers()) {
            let _ = Launcher { found: self.found, user }.run(&step);
        }
    }

    fn undead(&self, pids: Vec<u32>) -> LabError {
        LabError::Undead { store: self.kind.store.to_owned(), pids, folder: self.found.path.clone() }
    }
}

/// The error for a server that ended, with the last lines of its log; a full disk has an error of its own.
fn failure(found: &Found, error: impl FnOnce(&'static str, String) -> LabError) -> LabError {
    let mut lines = log_tail(&found.path, SEARCHED);
    lines.retain(|line| !line.trim().is_empty());
    if lines.iter().any(|line| DISK_FULL.iter().any(|words| line.contains(words))) {
        return LabError::DiskFull { folder: found.path.parent().unwrap_or(&found.path).to_owned() };
    }
    let store = kinds::find(&found.record.store).map_or("unknown", |kind| kind.store);
    let shown: Vec<String> = telling(&lines).iter().map(|line| format!("  {line}")).collect();
    error(store, shown.join("\n"))
}

/// The last lines; or, where they are only advice on what to do about an error, the lines from that error on.
fn telling(lines: &[String]) -> &[String] {
    let is_error = |line: &String| {
        let line = line.to_lowercase();
        ["error", "fatal"].iter().any(|word| line.contains(word))
    };
    let last = lines.len().saturating_sub(SHOWN);
    let first_error = lines.iter().position(is_error).unwrap_or(last);
    let from = if lines[last..].iter().any(is_error) { last } else { first_error.min(last) };
    &lines[from..lines.len().min(from + SHOWN)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_does_not_hide_the_error_it_is_about() {
        let line = |text: &str, number: usize| format!("{text} {number}");
        let mut lines: Vec<String> = (0..5).map(|number| line("note", number)).collect();
        assert_eq!(telling(&lines), lines);
        lines.push(line("[ERROR] no", 0));
        lines.extend((0..30).map(|number| line("advice", number)));
        assert_eq!((telling(&lines)[0].as_str(), telling(&lines).len()), ("[ERROR] no 0", SHOWN));
        lines.push(line("FATAL", 1));
        assert_eq!(telling(&lines)[SHOWN - 1], "FATAL 1");
        assert!(telling(&[]).is_empty());
    }
}
