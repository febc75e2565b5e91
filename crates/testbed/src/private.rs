//! Private servers for tests, and the rule for servers that are not installed.

use std::{
    env,
    fmt::Display,
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, Instant},
};

use acidtest_lab::{Deployment, Lab, Lifetime, Member, MemberSpec};
use acidtest_model::{Address, Durability, MemberId, Role};
use tempfile::TempDir;

use crate::wait;

/// The environment variable that names the stores whose tests are left out, separated by commas.
const WITHOUT: &str = "ACIDTEST_TEST_WITHOUT";
/// How long a server may take to answer after its start, on a busy machine.
const READY: Duration = Duration::from_mins(10);

/// How long opening a connection to it may take, on a busy machine that stands still now and then.
pub(crate) const CONNECT: Duration = Duration::from_secs(30);

/// Whether tests of this store are to be run. Prints that they are left out if the environment says so; panics with
/// the lab's error if the server is not installed.
#[must_use = "return early from a test without its server"]
pub fn wanted(store: &str) -> bool {
    if left_out(store) {
        return false;
    }
    if let Err(error) = Lab::locate(store) {
        panic!("{error}; or leave its tests out with {WITHOUT}={store}");
    }
    true
}

/// Whether the user leaves out the tests that need a program: a store, or a browser.
#[must_use]
pub fn left_out(name: &str) -> bool {
    let is_left_out = is_named(&env::var(WITHOUT).unwrap_or_default(), name);
    if is_left_out {
        eprintln!("left out: {name}, as {WITHOUT} names it");
    }
    is_left_out
}

fn is_named(list: &str, store: &str) -> bool {
    list.split(',').any(|name| name.trim() == store)
}

/// A private server in a lab of the test's own. Dropping it ends the server and removes all its files.
#[derive(Debug)]
pub struct Private {
    deployment: Deployment,
    id: MemberId,
    /// Where clients reach it, also after a restart.
    address: Address,
    lab: TempDir,
}

impl Private {
    /// Starts a server at this durability level; none if the store is left out of the tests, see [`wanted`].
    #[must_use]
    pub fn start(store: &str, durability: Durability) -> Option<Self> {
        Self::start_as(MemberSpec::server(Role::Server, store, durability), None)
    }

    /// Starts a copy of a server, which follows it, and which it knows as `server-2` or the like. It waits for no disk.
    ///
    /// # Panics
    /// If the server cannot be copied.
    #[must_use]
    pub fn replica_of(leader: &Self, number: u16) -> Self {
        let id = MemberId::numbered(Role::Server, number);
        let (scheme, durability) = (&*leader.address.scheme, Durability::Process);
        let spec = MemberSpec { replicates: true, ..MemberSpec::server(id, scheme, durability) };
        // its leader is not left out of the tests
        Self::start_as(spec, Some(leader)).unwrap()
    }

    /// Starts a server that speaks TLS, and nothing else, with certificates of its own.
    #[must_use]
    pub fn start_with_tls(store: &str) -> Option<Self> {
        let spec = MemberSpec { tls: true, ..MemberSpec::server(Role::Server, store, Durability::Process) };
        Self::start_as(spec, None)
    }

    fn start_as(spec: MemberSpec<'_>, leader: Option<&Self>) -> Option<Self> {
        let MemberSpec { store, id, .. } = spec;
        if !wanted(store) {
            return None;
        }
        // a server that runs as another user must be able to pass through
        let passable = Permissions::from_mode(0o711);
        let folder = tempfile::Builder::new().prefix("lab-").permissions(passable).tempdir().unwrap();
        let lab = Lab::at(folder.path()).unwrap();
        let started = lab.deploy(store, &[spec], Lifetime::Run);
        let mut deployment = started.unwrap_or_else(|error| panic!("{error}"));
        if let Some(leader) = leader {
            deployment.start_replica(id, leader.address()).unwrap_or_else(|error| panic!("{error}"));
        }
        let address = deployment.member(id).unwrap().address().clone();
        let address = Address { connect_timeout: CONNECT, ..address };
        Some(Self { deployment, id, address, lab: folder })
    }

    fn server(&self) -> &Member {
        self.deployment.member(self.id).unwrap()
    }

    fn server_mut(&mut self) -> &mut Member {
        self.deployment.member_mut(self.id).unwrap()
    }

    /// Opens a store on the server, trying again until the server answers.
    ///
    /// # Panics
    /// If the server has ended, or does not answer within ten minutes.
    pub fn open<T, E: Display>(&mut self, open: impl AsyncFn(&Address) -> Result<T, E>) -> T {
        wait(self.answer(open))
    }

    /// [`Self::open`] for callers inside a runtime.
    pub async fn answer<T, E: Display>(&mut self, open: impl AsyncFn(&Address) -> Result<T, E>) -> T {
        let start = Instant::now();
        loop {
            self.server_mut().check().unwrap_or_else(|error| panic!("{error}"));
            match open(self.address()).await {
                Ok(opened) => return opened,
                Err(error) if start.elapsed() > READY => {
                    panic!("{error}\n{}", self.server().log_tail(20).join("\n"));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    /// The address at which clients reach the server.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The server's folder in the lab. Its data are in the folder `data` there.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.server().folder()
    }

    /// The folder of its lab, which goes with it.
    pub(crate) fn lab(&self) -> &Path {
        self.lab.path()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server().pid()
    }

    /// Kills the server without letting it shut down, as a crash would.
    pub fn kill(&mut self) {
        self.server_mut().kill().unwrap();
    }

    /// Starts the server again on the same data and port, without waiting until it answers.
    pub fn restart(&mut self) {
        self.server_mut().restart().unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_leave_a_store_out() {
        assert!(is_named("redis, tarantool", "tarantool"));
        for list in ["", "redis2", "red", "Redis"] {
            assert!(!is_named(list, "redis"), "{list}");
        }
    }

    #[test]
    #[should_panic(expected = "the lab cannot start \"oracle\"")]
    fn what_cannot_be_started_fails_the_test() {
        let _ = Private::start("oracle", Durability::None);
    }
}
