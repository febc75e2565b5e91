//! One private server, a member of its deployment: its start, its end, its pauses, and its log.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Child,
    thread,
    time::{Duration, Instant},
};

use acidtest_model::{Address, MemberId, Secret};

use crate::{
    certificates::ServerFiles,
    error::LabError,
    folder::{MemberRecord, PrivateFolder, home_of, refurnish_home},
    kinds::{self, Kind, Site},
    launch::{Launcher, describe, log_tail},
    process::Tree,
    user::User,
};

/// How long a server may take to stop in order before it is killed.
pub(crate) const GRACE: Duration = Duration::from_secs(10);
/// The same where nobody asked to stop this server in particular, and its data is removed anyway.
pub(crate) const SHORT_GRACE: Duration = Duration::from_secs(3);
/// How long `setpriv` and start scripts may take to become the server.
const EXEC: Duration = Duration::from_secs(10);
/// Most lines of its log that an error shows.
const SHOWN: usize = 12;
/// Lines at the end of its log that are searched for the error.
const SEARCHED: usize = 60;
/// The words of the servers for a full disk.
const DISK_FULL: [&str; 3] = ["No space left on device", "failed with error 28", "rrcode: 28 "];

/// A private server of a deployment.
#[derive(Debug)]
pub struct Member {
    place: PrivateFolder,
    record: MemberRecord,
    folder: PathBuf,
    /// Where it listens, and where clients reach it.
    bound: Address,
    address: Address,
    /// For the environment of its process.
    secrets: Vec<(&'static str, Secret)>,
    child: Child,
}

impl Member {
    /// Prepares and starts the server that is journaled so, empty or as a copy of that leader.
    pub(crate) fn start(
        place: &PrivateFolder,
        record: &MemberRecord,
        user: Option<User>,
        secrets: &[(&'static str, Secret)],
        leader: Option<&Address>,
    ) -> Result<Self, LabError> {
        let (place, record) = (place.clone(), record.clone());
        let folder = place.member(&record);
        let running = Running::of(&place, &record)?;
        if let Some(files) = &running.site.tls {
            files.make(user)?;
        }
        running.prepare(user, secrets, leader)?;
        let (child, bound) = (running.spawn(user, secrets)?, running.bound());
        let address = running.address();
        let mut member = Self { place, record, folder, bound, address, secrets: secrets.to_vec(), child };
        let started = member.await_exec();
        if started.is_err() {
            // the first error is the one that is reported
            if member.end(SHORT_GRACE).is_ok() {
                member.sweep();
            }
        }
        started.map(|()| member)
    }

    #[must_use]
    pub fn id(&self) -> MemberId {
        self.record.id
    }

    /// The address at which clients reach the server.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The address at which it listens.
    #[must_use]
    pub fn bound(&self) -> &Address {
        &self.bound
    }

    /// The id of the root of the server's process tree.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The server's own folder, with its data and its log.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The exit status or signal that the server ended with, in words ("exited with status 1", "was killed by signal
    /// 9"); none while it runs.
    pub fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(describe)
    }

    /// The status that it has exited with; none while it runs, or if a signal has ended it.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.child.try_wait().ok().flatten()?.code()
    }

    /// An error with the last lines of the server's log if it ended: for a caller that waits for its first answer.
    pub fn check(&mut self) -> Result<(), LabError> {
        self.ended().map_or(Ok(()), |how| {
            Err(self.running()?.failure(|store, log| LabError::Died { store, how, log }))
        })
    }

    /// The file or folder of an embedded store that it is the host of.
    #[must_use]
    pub fn hosted(&self) -> PathBuf {
        home_of(&self.folder).join(kinds::HOSTED)
    }

    /// The token by which a service of acidtest's own knows its clients; none for one that has no clients.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn token(&self) -> Result<Option<String>, LabError> {
        let file = home_of(&self.folder).join(kinds::TOKEN);
        match fs::read_to_string(&file) {
            Ok(token) => Ok(Some(token.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LabError::at("reading", &file)(error)),
        }
    }

    /// The last lines that the server, or the preparation of its data, wrote.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> Vec<String> {
        log_tail(&self.folder, lines)
    }

    /// The line of its log in which the server says that it cannot read its own data; none if it does not, or if its disk was
    /// full, which leaves files unfinished that were whole.
    #[must_use]
    pub fn damage(&self) -> Option<String> {
        let kind = kinds::find_member(&self.record.store).ok()?;
        let log = self.log_tail(usize::MAX);
        let says = |words: &[&str]| log.iter().find(|line| words.iter().any(|each| line.contains(each)));
        says(kind.damaged).filter(|_| says(&DISK_FULL).is_none()).cloned()
    }

    /// Kills every process of the server at once, as a crash would. Its data stays.
    pub fn kill(&mut self) -> Result<(), LabError> {
        // first the process that would start others again; it may have ended already
        let _ = self.child.kill();
        self.running()?.kill()?;
        self.reap();
        Ok(())
    }

    /// Asks the server to stop in order, and returns at once; [`ended`](Self::ended) says when it has.
    pub fn ask_to_stop(&mut self) -> Result<(), LabError> {
        let running = self.running()?;
        running.tree().ask_to_stop(running.kind.stop);
        Ok(())
    }

    /// Starts the server again on the same data and port; if it still runs, it is stopped first.
    pub fn restart(&mut self) -> Result<(), LabError> {
        self.end(GRACE)?;
        let running = self.running()?;
        let child = running.spawn(running.kind.user()?, &self.secrets)?;
        self.child = child;
        self.await_exec()
    }

    /// Makes the server a new copy of the one that it reaches at `leader`, and starts it: for a replica that can no longer follow,
    /// or a leader of former times. If it still runs, it is killed; its data are gone. Blocks until it is copied, which takes a
    /// second or more. As after a [`restart`](Self::restart), the server may end with the thread that calls this.
    ///
    /// # Errors
    /// It cannot be copied or started; it can be copied anew then.
    pub fn copy_anew(&mut self, leader: &Address) -> Result<(), LabError> {
        let kind = kinds::find_member(&self.record.store)?;
        kind.copy_step()?;
        self.kill()?;
        self.sweep();
        let user = kind.user()?;
        refurnish_home(&self.folder, user)?;
        let running = self.running()?;
        running.prepare(user, &self.secrets, Some(leader))?;
        let child = running.spawn(user, &self.secrets)?;
        self.child = child;
        self.await_exec()
    }

    /// Stops every process of the server where it is (SIGSTOP), until it is told to [`resume`](Self::resume).
    pub fn pause(&mut self) -> Result<(), LabError> {
        let running = self.running()?;
        if running.tree().pause() {
            return Ok(());
        }
        running.tree().resume();
        Err(LabError::Restless { store: running.kind.store })
    }

    /// Lets every process of the server go on (SIGCONT).
    pub fn resume(&mut self) -> Result<(), LabError> {
        self.running()?.tree().resume();
        Ok(())
    }

    fn running(&self) -> Result<Running<'_>, LabError> {
        Running::of(&self.place, &self.record)
    }

    /// Ends the server in order, or kills it where it does not stop within `grace`.
    pub(crate) fn end(&mut self, grace: Duration) -> Result<(), LabError> {
        self.running()?.stop(grace)?;
        self.reap();
        Ok(())
    }

    /// Frees what the server left in the kernel.
    pub(crate) fn sweep(&self) {
        if let Ok(running) = self.running() {
            running.sweep();
        }
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
            let running = self.running()?;
            if running.tree().is_server(self.child.id()) {
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

/// The server of a private folder, whoever started it.
pub(crate) struct Running<'a> {
    place: &'a PrivateFolder,
    folder: PathBuf,
    kind: &'static Kind,
    site: Site,
    /// The host and the port at which clients reach it, where that is not where it listens.
    advertised: Option<(String, u16)>,
}

impl<'a> Running<'a> {
    /// Fails for the server of a store that this version does not know.
    pub(crate) fn of(place: &'a PrivateFolder, record: &MemberRecord) -> Result<Self, LabError> {
        let kind = kinds::find_member(&record.store)?;
        let folder = place.member(record);
        let MemberRecord { program, binary, port, durability, size, arguments, .. } = record.clone();
        let (home, tls) = (home_of(&folder), record.tls.then(|| ServerFiles::of(&folder)));
        let (user, advertised) = (kind.user()?, record.advertised.clone());
        let in_cluster = place.journal.is_in_cluster(record).then_some(record.id);
        let site = Site { in_cluster, program, binary, home, port, durability, size, arguments, tls, user };
        Ok(Self { place, folder, kind, site, advertised })
    }

    /// Where it listens.
    fn bound(&self) -> Address {
        let tls = self.site.tls.as_ref().map(|files| Box::new(files.tls()));
        Address { tls, ..(self.kind.address)(self.site.port) }
    }

    /// Where clients reach it.
    pub(crate) fn address(&self) -> Address {
        match self.advertised.clone() {
            Some((host, port)) => Address { host, port: Some(port), ..self.bound() },
            None => self.bound(),
        }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.tree().alive().first().copied()
    }

    /// Ends the server, by force if need be, and frees what it held.
    pub(crate) fn clear(&self) -> Result<(), LabError> {
        self.stop(GRACE)?;
        self.sweep();
        Ok(())
    }

    fn tree(&self) -> Tree<'_> {
        Tree { folder: &self.folder, binary: &self.site.binary }
    }

    fn launcher(&self, user: Option<User>) -> Launcher<'_> {
        Launcher { folder: &self.folder, home: &self.site.home, user }
    }

    fn stop(&self, grace: Duration) -> Result<(), LabError> {
        self.tree().stop(self.kind.stop, grace).map_err(|pids| self.undead(pids))
    }

    fn kill(&self) -> Result<(), LabError> {
        self.tree().kill().map_err(|pids| self.undead(pids))
    }

    /// Prepares an empty home: for an empty server, or for a copy of the one that it reaches at `leader`.
    fn prepare(
        &self,
        user: Option<User>,
        secrets: &[(&'static str, Secret)],
        leader: Option<&Address>,
    ) -> Result<(), LabError> {
        let step = match leader {
            None => (self.kind.init)(&self.site)?,
            Some(leader) => Some(self.kind.copy_step()?(&self.site, leader)?),
        };
        let Some(step) = step else { return Ok(()) };
        let step = step.secrets(secrets);
        let status = self.launcher(user).run(&step);
        // kills whatever the preparation has left running: from here on the folder is the server's, or is removed
        self.kill()?;
        let status = status?;
        if status.success() {
            return Ok(());
        }
        let (program, how) = (step.program.display().to_string(), describe(status));
        Err(self.failure(|store, log| LabError::InitFailed { store, program, how, log }))
    }

    fn spawn(&self, user: Option<User>, secrets: &[(&'static str, Secret)]) -> Result<Child, LabError> {
        let dies_with_us = (!self.place.journal.kept).then(|| self.kind.orphaned());
        let run = (self.kind.run)(&self.site).secrets(secrets);
        self.launcher(user).spawn(&run, dies_with_us)
    }

    /// Frees what a killed server left in the kernel. Errors are ignored: it is little, and gone with the next boot.
    fn sweep(&self) {
        let step = self.kind.sweep.and_then(|sweep| sweep(&self.site));
        if let (Some(step), Ok(user)) = (step, self.kind.user()) {
            let _ = self.launcher(user).run(&step);
        }
    }

    fn undead(&self, pids: Vec<u32>) -> LabError {
        LabError::Undead { store: self.kind.store.to_owned(), pids, folder: self.place.path.clone() }
    }

    /// The error for a server that ended, with the last lines of its log; a full disk has an error of its own.
    fn failure(&self, error: impl FnOnce(&'static str, String) -> LabError) -> LabError {
        let mut lines = log_tail(&self.folder, SEARCHED);
        lines.retain(|line| !line.trim().is_empty());
        if lines.iter().any(|line| DISK_FULL.iter().any(|words| line.contains(words))) {
            let path = &self.place.path;
            return LabError::DiskFull { folder: path.parent().unwrap_or(path).to_owned() };
        }
        let shown: Vec<String> = telling(&lines).iter().map(|line| format!("  {line}")).collect();
        error(self.kind.store, shown.join("\n"))
    }
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
