//! A standby of a private PostgreSQL server.

use std::{
    fs,
    net::TcpStream,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use acidtest_lab::{Lab, free_port};
use acidtest_model::Address;
use tempfile::TempDir;

use crate::{Private, until};

/// How long it may take to start, on a busy machine.
const READY: Duration = Duration::from_mins(2);

/// A copy of a private server of PostgreSQL that follows it. Dropping it ends it and removes its data.
#[derive(Debug)]
pub struct Standby {
    address: Address,
    process: Child,
    data: PathBuf,
    owner: (u32, u32),
    folder: TempDir,
}

impl Standby {
    /// Copies the server, which knows its standby by this name from then on, and starts the copy.
    #[must_use]
    pub fn of(leader: &Private, name: &str) -> Self {
        let passable = fs::Permissions::from_mode(0o711);
        let folder = tempfile::Builder::new().prefix("standby-").permissions(passable).tempdir().unwrap();
        let metadata = fs::metadata(leader.folder().join("data")).unwrap();
        let owner = (metadata.uid(), metadata.gid());
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&data, Some(owner.0), Some(owner.1)).unwrap();

        let Address { host, port, user, .. } = leader.address();
        let (port, user) = (port.unwrap(), user.as_deref().unwrap());
        let source = format!("host={host} port={port} user={user} application_name={name}");
        let mut copy = as_owner(owner, "pg_basebackup");
        copy.arg("-D").arg(&data).args([
            "-d",
            &source,
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
            "--no-sync",
            "--no-password",
        ]);
        let copied = copy.output().unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));

        let address = Address { port: Some(free_port().unwrap()), ..leader.address().clone() };
        let process = start(&address, &data, owner);
        let started = Self { address, process, data, owner, folder };
        started.listening();
        started
    }

    /// The address at which clients reach it.
    #[must_use]
    pub fn address(&self) -> &Address {
        assert!(self.folder.path().exists());
        &self.address
    }

    /// Shuts it down at once, without waiting for its clients.
    pub fn stop(&mut self) {
        signal(&self.process, "-INT");
        self.process.wait().unwrap();
    }

    /// Starts it again, on its data and its port.
    pub fn restart(&mut self) {
        self.process = start(&self.address, &self.data, self.owner);
        self.listening();
    }

    /// Waits until it listens.
    fn listening(&self) {
        let port = self.address.port.unwrap();
        until("the standby listens", READY, || TcpStream::connect(("127.0.0.1", port)).is_ok());
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        // in order, so that nothing is left of it in memory
        signal(&self.process, "-INT");
        let _ = self.process.wait();
    }
}

/// Sends a signal. One that has ended gets none, and nobody else takes its exit status.
fn signal(process: &Child, signal: &str) {
    let _ = Command::new("kill").args([signal, &process.id().to_string()]).stderr(Stdio::null()).status();
}

fn start(address: &Address, data: &PathBuf, owner: (u32, u32)) -> Child {
    let mut command = as_owner(owner, "postgres");
    command.arg("-D").arg(data);
    // as a private server has it
    let port = format!("port={}", address.port.unwrap());
    for setting in [
        &*port,
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "max_connections=1000",
        "shared_buffers=128MB",
        "fsync=off",
    ] {
        command.args(["-c", setting]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// A program of PostgreSQL's, which ends with us, as this user.
fn as_owner((uid, gid): (u32, u32), program: &str) -> Command {
    // what is on the PATH may be a link to where all of its programs are
    let server = fs::canonicalize(Lab::locate("postgres").unwrap().program).unwrap();
    let program = server.with_file_name(program);
    let mut command = Command::new("setpriv");
    if fs::metadata("/proc/self").is_ok_and(|own| own.uid() != uid) {
        command.args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()]);
    }
    command.arg("--pdeathsig=INT").arg(program).current_dir("/");
    command
}
