//! What stands between clients and a server's sessions: a private `PgBouncer`, and a proxy that shares one session among all.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use acidtest_lab::free_port;
use acidtest_model::Address;
use tempfile::TempDir;

use crate::{left_out, until};

/// Where Debian has the program.
const PROGRAM: &str = "/usr/sbin/pgbouncer";
/// The user and the group `nobody`: the program refuses to be root.
const NOBODY: u32 = 65534;

/// A private `PgBouncer` in front of a private server. Dropping it ends it.
#[derive(Debug)]
pub struct PgBouncer {
    address: Address,
    process: Child,
    folder: TempDir,
}

impl PgBouncer {
    /// Starts one in front of the server at this address, with these lines in its configuration; none if it is left out of the
    /// tests.
    #[must_use]
    pub fn before(server: &Address, settings: &[&str]) -> Option<Self> {
        if left_out("pgbouncer") {
            return None;
        }
        assert!(Path::new(PROGRAM).exists(), "{PROGRAM} is not there: install pgbouncer, or leave it out");
        let passable = fs::Permissions::from_mode(0o755);
        let folder = tempfile::Builder::new().prefix("pooler-").permissions(passable).tempdir().unwrap();
        let (user, endpoint) = (server.user.as_deref().unwrap_or_default(), server.port.unwrap());
        // a port that is taken meanwhile ends the program at once
        (0..20).find_map(|_| {
            let port = free_port().unwrap();
            let configuration = format!(
                "[databases]\n* = host=127.0.0.1 port={endpoint} user={user}\n\
                 [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n{}\n",
                settings.join("\n")
            );
            let file = folder.path().join("pgbouncer.ini");
            fs::write(&file, configuration).unwrap();
            let mut process = start(&file);
            until("PgBouncer neither listens nor ends", Duration::from_mins(2), || {
                process.try_wait().unwrap().is_some() || TcpStream::connect(("127.0.0.1", port)).is_ok()
            });
            let listens = process.try_wait().unwrap().is_none();
            listens.then_some((port, process))
        })
        .map(|(port, process)| Self {
            address: Address { port: Some(port), ..server.clone() },
            process,
            folder,
        })
        .or_else(|| panic!("PgBouncer does not start"))
    }

    /// The address at which clients reach the server through it.
    #[must_use]
    pub fn address(&self) -> &Address {
        assert!(self.folder.path().exists());
        &self.address
    }
}

/// Starts the program, which ends with us, as a user who is not root.
fn start(configuration: &Path) -> Child {
    let is_root = fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t0")));
    let mut command = Command::new("setpriv");
    if is_root {
        command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()]);
    }
    command.args(["--pdeathsig=KILL", PROGRAM]).arg(configuration);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        // one that has ended cannot be killed, and nobody else takes its exit status
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What clients of PostgreSQL, and of MariaDB and MySQL, say last.
const GOODBYES: [[u8; 5]; 2] = [*b"X\0\0\0\x04", *b"\x01\0\0\0\x01"];

/// A proxy that logs each client in by a connection of its own, and then has all of them answered on the first of these, as one
/// with a single session does. It knows no protocol, and so serves one request at a time: the answer goes to whoever asked last.
#[derive(Debug)]
pub struct Multiplexer {
    address: Address,
}

impl Multiplexer {
    /// One in front of the server at this address, where a client writes so often until it is logged in.
    #[must_use]
    pub fn before(server: &Address, login: u32) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (endpoint, shared) = (server.endpoint(0), Arc::<Mutex<Shared>>::default());
        thread::spawn(move || {
            // the listener ends with the test's process
            for client in listener.incoming().map_while(Result::ok) {
                let (endpoint, shared) = (endpoint.clone(), Arc::clone(&shared));
                thread::spawn(move || multiplex(&client, &endpoint, login, &shared));
            }
        });
        Self { address: Address { host: "127.0.0.1".to_owned(), port: Some(port), ..server.clone() } }
    }

    /// The address at which clients reach the server through it.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }
}

/// The session that all share, and who asked on it last.
#[derive(Debug, Default)]
struct Shared {
    session: Option<TcpStream>,
    asked: Option<TcpStream>,
}

fn multiplex(client: &TcpStream, server: &str, login: u32, shared: &Mutex<Shared>) {
    let own = TcpStream::connect(server).unwrap();
    let (mut from_server, answered) = (own.try_clone().unwrap(), client.try_clone().unwrap());
    let is_first = {
        let mut shared = shared.lock().unwrap();
        let is_first = shared.session.is_none();
        if is_first {
            (shared.session, shared.asked) =
                (Some(own.try_clone().unwrap()), Some(answered.try_clone().unwrap()));
        }
        is_first
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut piece = [0; 16 * 1024];
            while let Ok(count @ 1..) = from_server.read(&mut piece) {
                let asked = shared.lock().unwrap().asked.as_ref().map(|asked| asked.try_clone().unwrap());
                let mut to = asked.filter(|_| is_first).unwrap_or_else(|| answered.try_clone().unwrap());
                // a client that has gone wants no answer
                let _ = to.write_all(&piece[..count]);
            }
        });
        let (mut client, mut own) = (client.try_clone().unwrap(), own);
        let (mut piece, mut written) = ([0; 16 * 1024], 0);
        while let Ok(count @ 1..) = client.read(&mut piece) {
            written += 1;
            if written <= login {
                own.write_all(&piece[..count]).unwrap();
                continue;
            }
            // one that goes must not end the session of all
            if GOODBYES.iter().any(|goodbye| piece.starts_with(goodbye)) {
                break;
            }
            let mut shared = shared.lock().unwrap();
            shared.asked = Some(client.try_clone().unwrap());
            if shared.session.as_mut().is_none_or(|session| session.write_all(&piece[..count]).is_err()) {
                break;
            }
        }
        // the first one's session goes on without it
        if !is_first {
            let _ = own.shutdown(Shutdown::Both);
        }
    });
}
