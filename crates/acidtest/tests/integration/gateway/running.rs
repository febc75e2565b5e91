//! A gateway as a process, the database and the broker behind it, and a collector between the two.

use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use acidtest_model::{Address, Durability};
use acidtest_testbed::{Private, Shared};
use tempfile::TempDir;

use super::{broker, database};
use crate::common::http::Http;

const ACIDTEST: &str = env!("CARGO_BIN_EXE_acidtest");

/// A database for entries: a file, or on a private server.
pub struct Sink {
    folder: TempDir,
    pub server: Option<Private>,
    /// The server that it is on otherwise.
    shared: Option<Shared>,
    pub name: &'static str,
}

impl Sink {
    /// A database on a server of its own.
    pub fn start(name: &'static str) -> Self {
        let mut server = None;
        if name != "sqlite" {
            let mut started = Private::start(name, Durability::Disk).unwrap();
            started.open(async |address: &Address| database::answers(address).await);
            database::order(started.address(), "CREATE DATABASE logs");
            server = Some(started);
        }
        Self { folder: TempDir::new().unwrap(), server, shared: None, name }
    }

    /// Every database that entries can be stored in and that is not left out, one after the other: a file, and one on each
    /// server, which other tests use too.
    pub fn each() -> impl Iterator<Item = Self> {
        ["sqlite", "postgres", "mariadb", "mysql"].into_iter().filter_map(Self::share)
    }

    /// A file, or a database on a server that other tests use too; none if its server is left out.
    pub fn share(name: &'static str) -> Option<Self> {
        if name == "sqlite" {
            return Some(Self::start(name));
        }
        let answers = async |address: &Address| database::answers(address).await;
        let shared = Shared::wait(name, Durability::Disk, answers)?;
        database::order(shared.address(), "CREATE DATABASE logs");
        Some(Self { folder: TempDir::new().unwrap(), server: None, shared: Some(shared), name })
    }

    pub fn address(&self) -> Address {
        let own = self.server.as_ref().map(Private::address);
        match own.or(self.shared.as_ref().map(Shared::address)) {
            None => Address::file("sqlite", &self.folder.path().join("logs.sqlite").to_string_lossy()),
            Some(server) => Address { path: "logs".to_owned(), ..server.clone() },
        }
    }

    pub fn text(&self) -> String {
        self.address().to_string()
    }

    pub fn end(&mut self) {
        self.server = None;
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let Some(shared) = self.shared.as_ref().filter(|_| !thread::panicking()) else { return };
        // PostgreSQL would wait for connections to end that a gateway has just left
        let force = if self.name == "postgres" { " WITH (FORCE)" } else { "" };
        database::order(shared.address(), &format!("DROP DATABASE logs{force}"));
    }
}

/// A private server that keeps a queue.
pub struct Broker {
    pub server: Private,
}

impl Broker {
    /// `rabbitmq` or `nats`; none if it is left out of the tests.
    pub fn start(name: &'static str) -> Option<Self> {
        let mut server = Private::start(name, Durability::Disk)?;
        server.open(broker::answers);
        Some(Self { server })
    }

    pub fn text(&self) -> String {
        self.server.address().to_string()
    }

    /// Starts it again after a kill.
    pub fn restart(&mut self) {
        self.server.restart();
        self.server.open(broker::answers);
    }
}

/// A collector that runs.
pub struct Collector {
    words: Vec<String>,
    child: Child,
    /// What it has told, read as it comes.
    told: Arc<Mutex<String>>,
}

impl Collector {
    pub fn start(words: &[&str]) -> Self {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        Self::begin(words).unwrap_or_else(|said| panic!("{said:?}"))
    }

    /// The exit status and the words of a collector that does not start.
    pub fn refused(words: &[&str]) -> (Option<i32>, String) {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        Self::begin(words).err().unwrap()
    }

    fn begin(words: Vec<String>) -> Result<Self, (Option<i32>, String)> {
        let mut command = Command::new(ACIDTEST);
        command.arg("collector").args(&words);
        let (mut child, line) = spawn(command);
        if !line.contains("stores") {
            return Err(ended(child));
        }
        let told = Arc::new(Mutex::new(String::new()));
        let (lines, to) = (BufReader::new(child.stderr.take().unwrap()).lines(), Arc::clone(&told));
        // ends with the collector
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                *to.lock().unwrap() += &(line + "\n");
            }
        });
        Ok(Self { words, child, told })
    }

    /// What it has told since it was started last.
    pub fn said(&self) -> String {
        self.told.lock().unwrap().clone()
    }

    pub fn has_said(&self, words: &str) -> bool {
        self.said().contains(words)
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again after a kill.
    pub fn restart(&mut self) {
        let words = std::mem::take(&mut self.words);
        *self = Self::begin(words).unwrap_or_else(|said| panic!("{said:?}"));
    }

    /// Stops it in order: its exit status, and what it told.
    pub fn stop(mut self) -> (Option<i32>, String) {
        terminate(&self.child);
        let code = self.child.wait().unwrap().code();
        until("all is read", || Arc::strong_count(&self.told) == 1);
        (code, self.told.lock().unwrap().clone())
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // it may have ended by itself
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn terminate(child: &Child) {
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
}

/// Starts a command, and waits for the first line that it prints; it is empty if the command has ended.
fn spawn(mut command: Command) -> (Child, String) {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line)
}

/// Waits until it has ended: its exit status, and what it told.
fn ended(mut child: Child) -> (Option<i32>, String) {
    let code = child.wait().unwrap().code();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (code, said)
}

/// A gateway that runs, with a user.
pub struct Gateway {
    folder: PathBuf,
    _folder: Option<TempDir>,
    words: Vec<String>,
    child: Child,
    pub address: String,
    pub token: String,
}

impl Gateway {
    pub fn start(words: &[&str]) -> Self {
        Self::start_in(&[], words)
    }

    /// Starts one with these variables in its environment.
    pub fn start_in(environment: &[(&str, String)], words: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let token = add_user(folder.path(), "ann", &[]);
        let path = folder.path().to_owned();
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let mut command = command(&path, &words);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        let (child, address) = begin(command).unwrap_or_else(|said| panic!("{said:?}"));
        Self { folder: path, _folder: Some(folder), words, child, address, token }
    }

    /// Starts one whose data are on a small disk of its own, which only it sees.
    pub fn start_on_a_disk(disk: &Path, size: &str, words: &[&str]) -> Self {
        let folder = disk.join("data");
        let script = format!(
            "mount -t tmpfs -o size={size} none {0} && mkdir {1} && {ACIDTEST} gateway user add ann --data {1} >{0}/token \
             2>/dev/null && exec {ACIDTEST} gateway --data {1} --listen 127.0.0.1:0 {2}",
            disk.display(),
            folder.display(),
            words.join(" ")
        );
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", &script]);
        let (child, address) = begin(command).unwrap_or_else(|said| panic!("{said:?}"));
        let token = format!("/proc/{}/root{}/token", child.id(), disk.display());
        let token = std::fs::read_to_string(token).unwrap().trim().to_owned();
        Self { folder, _folder: None, words: Vec::new(), child, address, token }
    }

    /// The exit status and the words of a gateway that does not start.
    pub fn refused(words: &[&str]) -> (Option<i32>, String) {
        let folder = TempDir::new().unwrap();
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        match launch(folder.path(), &words) {
            Ok((mut child, address)) => {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("it runs at {address}");
            }
            Err(refused) => refused,
        }
    }

    /// Its folder for data.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn add_user(&self, name: &str, words: &[&str]) -> String {
        add_user(&self.folder, name, words)
    }

    pub fn http(&self) -> Http {
        Http::open(&self.address).unwrap()
    }

    pub fn metrics(&self) -> String {
        self.http().get("/metrics", "").unwrap().expect(200).body
    }

    /// A figure of the metrics.
    pub fn metric(&self, name: &str) -> u64 {
        let metrics = self.metrics();
        let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("acidtest_gateway_{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().unwrap()
    }

    pub fn wait_until_stored(&self) {
        until("all is stored", || self.metric("queue_entries") == 0);
    }

    /// Kills it, as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again after a kill, on the same port.
    pub fn restart(&mut self) {
        let mut words = self.words.clone();
        words.extend(["--listen".to_owned(), self.address.clone()]);
        let (child, address) = launch(&self.folder, &words).unwrap_or_else(|said| panic!("{said:?}"));
        self.child = child;
        assert_eq!(self.address, address);
    }

    /// Starts it again by a command that runs what is given to it.
    pub fn restart_by(&mut self, mut by: Command) {
        let command = command(&self.folder, &self.words);
        by.arg(command.get_program()).args(command.get_args());
        (self.child, self.address) = begin(by).unwrap_or_else(|said| panic!("{said:?}"));
    }

    /// Leaves it without a reader of what it tells.
    pub fn close_log(&mut self) {
        drop(self.child.stderr.take());
    }

    /// Stops it in order, and returns what it told.
    pub fn stop_and_keep(&mut self) -> String {
        self.terminate();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }

    /// Stops it in order, and starts it again.
    pub fn again(mut self) -> Self {
        self.terminate();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        self.restart();
        self
    }

    fn terminate(&self) {
        terminate(&self.child);
    }

    /// Stops it in order: its exit status, and what it told.
    pub fn stop(mut self) -> (Option<i32>, String) {
        self.terminate();
        let code = self.child.wait().unwrap().code();
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (code, said)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // it may have ended by itself
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a gateway, and waits until it says where it listens; or until it ends.
fn launch(folder: &Path, words: &[String]) -> Result<(Child, String), (Option<i32>, String)> {
    begin(command(folder, words))
}

fn command(folder: &Path, words: &[String]) -> Command {
    let mut command = Command::new(ACIDTEST);
    command.args(["gateway", "--data"]).arg(folder);
    if !words.iter().any(|word| word == "--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command.args(words);
    command
}

fn begin(command: Command) -> Result<(Child, String), (Option<i32>, String)> {
    let (child, line) = spawn(command);
    match line.split_once("://") {
        Some((_, rest)) => Ok((child, rest.trim().trim_end_matches("/logs").to_owned())),
        None => Err(ended(child)),
    }
}

pub fn add_user(folder: &Path, name: &str, words: &[&str]) -> String {
    let mut command = Command::new(ACIDTEST);
    command.args(["gateway", "user", "add", name, "--data"]).arg(folder).args(words);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

/// `acidtest gateway user` with these words: exit status, and what it printed and told.
pub fn user(folder: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(ACIDTEST);
    command.args(["gateway", "user"]).args(words).arg("--data").arg(folder);
    let done = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

pub fn entry(id: &str, message: &str) -> String {
    format!(
        r#"{{"id":"{id}","timestamp":"2026-11-23T10:15:00Z","level":"info","application":"shop","message":"{message}"}}"#
    )
}

/// Waits until it is so, at most a minute.
#[track_caller]
pub fn until(what: &str, so: impl FnMut() -> bool) {
    until_within(Duration::from_mins(1), what, so);
}

/// Waits until it is so, at most so long.
#[track_caller]
pub fn until_within(most: Duration, what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + most;
    while !so() {
        assert!(Instant::now() < end, "not within {most:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
