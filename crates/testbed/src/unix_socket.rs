//! Servers that listen on a Unix socket and nowhere else, and stores that are reached by one.

use std::{
    fs,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use acidtest_lab::Lab;
use acidtest_model::{Address, Durability, Lock};
use acidtest_workloads::{Store, Verdict};
use tempfile::TempDir;

use crate::{InventoryRun, Private, Subject, for_operations, private::CONNECT, until, wait, wanted};

/// How long a server may take to start or to stop, on a busy machine.
const READY: Duration = Duration::from_mins(2);

/// A server of the test's own that listens on a Unix socket and nowhere else. Dropping it ends the server and removes its data.
#[derive(Debug)]
pub struct OnSocket {
    server: Child,
    address: Address,
    _data: Data,
}

/// Where the data are.
#[derive(Debug)]
#[expect(dead_code, reason = "what is removed when it is dropped")]
enum Data {
    Folder(TempDir),
    OfPrivate(Box<Private>),
}

impl OnSocket {
    /// Starts Redis; none if it is left out of the tests.
    #[must_use]
    pub fn redis() -> Option<Self> {
        if !wanted("redis") {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("redis.sock");
        let mut command = Command::new(Lab::locate("redis").unwrap().program);
        command
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(folder.path());
        let address = Address::parse(&format!("redis+unix://{}", socket.display())).unwrap();
        Some(Self::start(command, address, Data::Folder(folder)))
    }

    /// Starts PostgreSQL, on the data of a private one that has stopped; none if it is left out of the tests.
    #[must_use]
    pub fn postgres() -> Option<Self> {
        let mut private = Private::start("postgres", Durability::None)?;
        let data = private.folder().join("data");
        let pid = data.join("postmaster.pid");
        private.open(async |_| if pid.exists() { Ok(()) } else { Err("it has not started") });
        // the last line of the file, once it takes connections
        let is_ready = || fs::read_to_string(&pid).is_ok_and(|lines| lines.trim_end().ends_with("ready"));
        until("the private server is ready", READY, is_ready);
        let lines = fs::read_to_string(&pid).unwrap();
        let stopped = Command::new("kill").args(["-INT", lines.lines().next().unwrap()]).status();
        assert!(stopped.unwrap().success());
        until("the private server has stopped", READY, || !pid.exists());

        let owner = fs::metadata(&data).unwrap();
        let mut command = Command::new(Lab::locate("postgres").unwrap().program);
        command.uid(owner.uid()).gid(owner.gid()).current_dir(&data).arg("-D").arg(&data);
        command.args(["-p", "5999", "-c", "listen_addresses=", "-c", "unix_socket_directories=."]);
        let user = private.address().user.clone().unwrap();
        let address = format!("postgres://{user}@:5999/postgres?host={}", data.display());
        Some(Self::start(command, Address::parse(&address).unwrap(), Data::OfPrivate(Box::new(private))))
    }

    fn start(mut command: Command, address: Address, data: Data) -> Self {
        let server =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let socket = address.socket_file(0).unwrap();
        let address = Address { connect_timeout: CONNECT, ..address };
        let mut started = Self { server, address, _data: data };
        until("the server listens on its socket", READY, || {
            assert!(started.server.try_wait().unwrap().is_none(), "the server has ended");
            socket.exists()
        });
        started
    }

    /// The address of its socket.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for OnSocket {
    fn drop(&mut self) {
        // in order, so that nothing is left of it in memory
        let _ = Command::new("kill").args(["-INT", &self.server.id().to_string()]).status();
        let _ = self.server.wait();
    }
}

/// A store that is reached by a Unix socket is whole, and one that is not there is told with a remedy.
///
/// # Panics
/// It is not.
pub fn is_whole_by_a_socket<S: Store>(subject: &Subject<S>, address: &Address) {
    let begun = Instant::now();
    let store = loop {
        match wait((subject.open)(address, Durability::None)) {
            Ok(store) => break store,
            Err(error) => assert!(begun.elapsed() < READY, "{error}"),
        }
        thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(wait(store.effective()).unwrap().tls, None);
    wait(store.create(crate::NAMESPACE, "run 1")).unwrap();
    let case = InventoryRun::random(Lock::Native, 1);
    case.load(&store);
    let measurement = case.drive(&store, &for_operations(200), 4);
    assert_eq!(measurement.stopped, None);
    let audit = case.audit(&store, false);
    assert_eq!(audit.verdict, Verdict::Holds, "{audit:?}");
    wait(store.remove(crate::NAMESPACE)).unwrap();

    let socket = Path::new(address.socket.as_ref().unwrap()).join("nowhere").display().to_string();
    let nowhere = Address { socket: Some(socket), ..address.clone() };
    subject.refuses(&nowhere, &["check the path of its Unix socket"]);
}
