//! Starts programs in a private folder: unprivileged, with a clean environment, and such that they die with the
//! bench.

use std::{
    fs,
    io::{self, Read, Seek, SeekFrom},
    os::unix::{
        fs::OpenOptionsExt,
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{self, Child, Command, ExitStatus, Output, Stdio},
};

use crate::{
    error::LabError,
    invocation::{Invocation, Stop},
    process::MARK,
    source::{MissingProgram, Source},
    user::User,
};

const LOG: &str = "server.log";
const SHELL: &str = "/bin/sh";
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The script of the shell that every program begins as: it becomes the program, if its parent is still the process
/// `$0` that started it.
///
/// When that process dies, the kernel signals the processes that `setpriv` has registered. A process that dies
/// between its fork and the registration signals nobody; but then the shell, which begins after the registration, has
/// another parent. (Not one with the same number: the process that adopts an orphan was alive when its parent was.)
/// So no program ever begins that would not end with its starter, and none begins once the starter is known to be
/// dead.
const BECOME: &str = r#"[ "$PPID" = "$0" ] && exec "$@""#;

/// The same for a program that starts others, which the kernel would not signal: the shell stays, waits for the
/// program, and kills its whole process group when it is told to end.
const ATTEND: &str = r#"[ "$PPID" = "$0" ] || exit
trap 'kill -KILL 0' TERM
"$@" &
wait $!"#;

/// Starts programs in the folder of one server.
pub(crate) struct Launcher<'a> {
    /// The folder, which is the mark of its processes.
    pub(crate) folder: &'a Path,
    /// The folder in it where they may write, and work.
    pub(crate) home: &'a Path,
    pub(crate) user: Option<User>,
}

impl Launcher<'_> {
    /// Starts a program and returns its process: no other process stands between it and us.
    ///
    /// With `dies_with_us`, the kernel sends it that signal when the *thread* that called this ends. That thread must
    /// wait until the process is the program: before that there may be no process to signal.
    pub(crate) fn spawn(&self, what: &Invocation, dies_with_us: Option<Stop>) -> Result<Child, LabError> {
        self.begin(what, dies_with_us, BECOME)
    }

    /// Runs a program and waits for its end; it, and every process that it started, ends with us.
    pub(crate) fn run(&self, what: &Invocation) -> Result<ExitStatus, LabError> {
        let mut child = self.begin(what, Some(Stop::Terminate), ATTEND)?;
        child.wait().map_err(LabError::at("waiting for", &what.program))
    }

    fn begin(
        &self,
        what: &Invocation,
        dies_with_us: Option<Stop>,
        shell: &'static str,
    ) -> Result<Child, LabError> {
        let log = log_of(self.folder);
        let output =
            || fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&log).map(Stdio::from);
        let (stdout, stderr) =
            output().and_then(|out| Ok((out, output()?))).map_err(LabError::at("opening", &log))?;
        command(what, self.user, dies_with_us, shell)
            .current_dir(self.home)
            .env_clear()
            .envs([("PATH", PATH), ("LC_ALL", "C.UTF-8")])
            .env("HOME", self.home)
            .env(MARK, self.folder)
            .envs(what.secrets.iter().map(|(name, secret)| (name, secret.reveal())))
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            // Ctrl-C in a terminal is for the bench alone, which then stops its servers in order
            .process_group(0)
            .spawn()
            .map_err(|cause| refusal(what, cause))
    }
}

/// The output of a program that ends by itself, or else with us. It has our rights and our environment.
pub(crate) fn output(what: &Invocation) -> Result<Output, LabError> {
    command(what, None, Some(Stop::Kill), BECOME)
        .stdin(Stdio::null())
        .output()
        .map_err(|cause| refusal(what, cause))
}

/// A command that begins as `setpriv`, which changes itself into a shell, and that into the program or into the shell
/// that attends to it: the process stays the one that we started.
fn command(
    what: &Invocation,
    user: Option<User>,
    dies_with_us: Option<Stop>,
    shell: &'static str,
) -> Command {
    let mut prefix = Vec::new();
    if let Some(User { uid, gid }) = user {
        prefix.extend([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()]);
    }
    prefix.extend(dies_with_us.map(|stop| format!("--pdeathsig={}", stop.name())));
    let mut command = if prefix.is_empty() {
        Command::new(SHELL)
    } else {
        // not searched on the user's own PATH, which a program that is asked for its version has
        let mut command = Command::new(setpriv().find(|file| file.exists()).unwrap_or("setpriv".into()));
        command.args(prefix).args(["--", SHELL]);
        command
    };
    command.args(["-c", shell, &process::id().to_string()]).arg(&what.program).args(&what.arguments);
    command
}

/// The paths at which `setpriv` may be.
fn setpriv() -> impl Iterator<Item = PathBuf> {
    PATH.split(':').map(|folder| Path::new(folder).join("setpriv"))
}

fn refusal(what: &Invocation, cause: io::Error) -> LabError {
    if cause.kind() == io::ErrorKind::NotFound && !setpriv().any(|file| file.exists()) {
        let looked = setpriv().collect();
        let source = Source::Package("util-linux");
        return MissingProgram { name: "setpriv", looked, others: Vec::new(), source, variable: None }.into();
    }
    LabError::at("starting", &what.program)(cause)
}

/// The exit status or signal that a process ended with, in words.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

fn log_of(folder: &Path) -> PathBuf {
    folder.join(LOG)
}

/// The last lines of the log in a server's folder.
pub(crate) fn log_tail(folder: &Path, lines: usize) -> Vec<String> {
    let text = last_bytes(&log_of(folder)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all.iter().skip(all.len().saturating_sub(lines)).map(|line| (*line).to_owned()).collect()
}

fn last_bytes(file: &Path) -> io::Result<Vec<u8>> {
    const ENOUGH: u64 = 64 * 1024;
    let mut file = fs::File::open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(ENOUGH)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_begins_and_says_how_it_ended() {
        let starter = process::id().to_string();
        for script in [BECOME, ATTEND] {
            let status = Command::new(SHELL).args(["-c", script, &starter, SHELL, "-c", "exit 7"]).status();
            assert_eq!(status.unwrap().code(), Some(7), "{script}");
        }
    }

    /// A script that slowly does what happens when a starter is killed between its fork and the program's first step.
    const ORPHAN: &str = r#"(
        while read -r _ _ _ parent _ </proc/self/stat && [ "$parent" = $$ ]; do sleep 0.01; done
        exec /bin/sh -c "$0" $$ echo begun
    ) &"#;

    #[test]
    fn a_program_whose_starter_is_gone_never_begins() {
        for script in [BECOME, ATTEND] {
            // the output ends when the orphan ends
            let said = Command::new(SHELL).args(["-c", ORPHAN, script]).output().unwrap();
            assert!(said.status.success());
            assert_eq!(String::from_utf8_lossy(&said.stdout), "", "{script}");
        }
    }

    #[test]
    fn an_end_is_put_into_words() {
        assert_eq!(describe(ExitStatus::from_raw(9)), "was killed by signal 9");
        assert_eq!(describe(ExitStatus::from_raw(256)), "exited with status 1");
    }
}
