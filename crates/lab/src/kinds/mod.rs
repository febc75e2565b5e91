//! The servers that the lab can start: one file each, and one entry in [`KINDS`].

mod collector;
mod elasticsearch;
mod gateway;
mod host;
mod mariadb;
mod mysql;
mod nats;
mod postgres;
mod rabbitmq;
mod redis;
mod tarantool;

use std::{
    env,
    path::{Path, PathBuf},
};

use acidtest_model::{Address, Durability, MemberId};
use rustix::process::geteuid;

use crate::{
    certificates::ServerFiles,
    error::LabError,
    invocation::{Invocation, Stop},
    size::ServerSize,
    source::Source,
    user::User,
};

static KINDS: [&Kind; 8] = [
    &postgres::KIND,
    &mariadb::KIND,
    &mysql::KIND,
    &redis::KIND,
    &tarantool::KIND,
    &elasticsearch::KIND,
    &rabbitmq::KIND,
    &nats::KIND,
];

/// acidtest itself as a member: the hosts of embedded stores, and the services in front of a store. They are no servers
/// that anybody could ask the lab for.
static OURS: [&Kind; 4] = [&host::SQLITE, &host::FJALL, &gateway::KIND, &collector::KIND];

/// The name of an embedded store's file or folder, in the home of its host.
pub(crate) const HOSTED: &str = "acidtest.db";

/// The name of the file, in the home of a gateway, with the token of a trial's clients.
pub(crate) const TOKEN: &str = "token";

/// How one kind of server is found, prepared, started and stopped.
pub(crate) struct Kind {
    /// The store's name, as on the command line.
    pub(crate) store: &'static str,
    /// The name of the server's program.
    pub(crate) program: &'static str,
    /// A word that the `--version` of another server contains whose program has the same name; none if there is no
    /// such server.
    pub(crate) unlike: Option<&'static str>,
    /// How to treat the makers' start script; none where their program is no script.
    pub(crate) script: Option<&'static Script>,
    /// The package or tool that installs the program.
    pub(crate) source: Source,
    /// Folders to search besides those of `PATH`, best first.
    pub(crate) places: fn() -> Vec<PathBuf>,
    /// The signal that makes the server stop at once and in order.
    pub(crate) stop: Stop,
    /// The address at which clients reach the server on this port.
    pub(crate) address: fn(u16) -> Address,
    /// Whether it can be started with TLS, or why not. What an address says of TLS is added to the one above.
    pub(crate) tls: Result<(), &'static str>,
    /// Prepares an empty home: writes files, or returns the program that prepares it.
    pub(crate) init: fn(&Site) -> Result<Option<Invocation>, LabError>,
    /// The command that runs the server, in the foreground.
    pub(crate) run: fn(&Site) -> Invocation,
    /// The program that fills an empty home with a copy of the server at an address, which follows that server once it is
    /// started; none where the lab cannot make replicas.
    pub(crate) copy: Option<CopyStep>,
    /// The command that frees what a killed server leaves in the kernel, outside its folder; none for a server that
    /// leaves nothing.
    pub(crate) sweep: Option<fn(&Site) -> Option<Invocation>>,
    /// Words in its log by which a server that does not come up says that it cannot read its own data: each was seen when
    /// its files were damaged by hand, on the version of this machine's package.
    pub(crate) damaged: &'static [&'static str],
}

/// Prepares a home as a copy of the server at an address.
pub(crate) type CopyStep = fn(&Site, &Address) -> Result<Invocation, LabError>;

/// How to treat a server that its makers start by a script.
pub(crate) struct Script {
    /// The program that the script turns into; `None` for another script that only has the same name.
    pub(crate) process: fn(&Path) -> Option<PathBuf>,
    /// Finds the version without running the script.
    pub(crate) version: fn(&Path) -> Result<String, String>,
}

impl Kind {
    /// The environment variable that names another program for this kind.
    pub(crate) fn variable(&self) -> String {
        format!("ACIDTEST_{}", self.store.to_uppercase())
    }

    /// Whether it is acidtest itself: it runs as the user that runs acidtest.
    pub(crate) fn is_host(&self) -> bool {
        self.source == Source::Acidtest
    }

    /// The user that it runs as; none for ourselves.
    pub(crate) fn user(&self) -> Result<Option<User>, LabError> {
        if self.is_host() { Ok(None) } else { User::for_servers() }
    }

    /// How to make a copy of a server; the error is for a kind whose replicas the lab cannot make.
    pub(crate) fn copy_step(&self) -> Result<CopyStep, LabError> {
        self.copy.ok_or(LabError::NoReplicas { store: self.store })
    }

    /// The signal by which the kernel ends a server whose bench is gone. While they start, some servers hear no other
    /// signal than SIGKILL: `RabbitMQ` may come up all the same, and stay. A server that would leave something
    /// outside its folder has to stop in order.
    pub(crate) fn orphaned(&self) -> Stop {
        if self.sweep.is_some() { self.stop } else { Stop::Kill }
    }
}

/// acidtest itself, as a member of this name.
const fn ours(
    store: &'static str,
    address: fn(u16) -> Address,
    init: fn(&Site) -> Result<Option<Invocation>, LabError>,
    run: fn(&Site) -> Invocation,
) -> Kind {
    Kind {
        store,
        program: "acidtest",
        unlike: None,
        script: None,
        source: Source::Acidtest,
        places: nowhere_else,
        stop: Stop::Terminate,
        address,
        tls: Err("acidtest starts it without TLS"),
        init,
        run,
        copy: None,
        sweep: None,
        damaged: &[],
    }
}

pub(crate) fn find(store: &str) -> Result<&'static Kind, LabError> {
    KINDS.into_iter().find(|kind| kind.store == store).ok_or_else(|| unknown(store))
}

/// The same, or acidtest itself.
pub(crate) fn find_member(store: &str) -> Result<&'static Kind, LabError> {
    OURS.into_iter().find(|kind| kind.store == store).map_or_else(|| find(store), Ok)
}

/// The error for a store that the lab has no recipe for.
pub(crate) fn unknown(store: &str) -> LabError {
    LabError::Unknown { store: store.to_owned(), known: KINDS.map(|kind| kind.store).to_vec() }
}

/// The place and settings that a kind's functions prepare and start a server with.
pub(crate) struct Site {
    /// The name by which the other servers of a cluster know it; none for a server that nobody follows, and that follows
    /// nobody.
    pub(crate) in_cluster: Option<MemberId>,
    /// The server's program, under the name that it is called by.
    pub(crate) program: PathBuf,
    /// The same program as the kernel names it, with every link resolved.
    pub(crate) binary: PathBuf,
    /// The folder in which the server may write, and its working directory.
    pub(crate) home: PathBuf,
    /// The server's port on loopback.
    pub(crate) port: u16,
    /// The durability level that the server's settings must provide.
    pub(crate) durability: Durability,
    /// What the server must have room for.
    pub(crate) size: ServerSize,
    /// What a service of acidtest's own is told on its command line.
    pub(crate) arguments: Vec<String>,
    /// Its certificates, if it is to speak TLS, and nothing else.
    pub(crate) tls: Option<ServerFiles>,
    /// The user that it runs as, if that is another than ours.
    pub(crate) user: Option<User>,
}

/// For kinds that are installed in the usual places only.
fn nowhere_else() -> Vec<PathBuf> {
    Vec::new()
}

/// The folders in which the tools (`begin` in `tools/kit.sh`) install a server. With root it is not in the home:
/// root's servers run as another user, who could not pass through root's home.
fn kit(store: &str) -> Vec<PathBuf> {
    let named = |variable| env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let usual = || {
        if geteuid().is_root() {
            return Some(PathBuf::from("/var/cache"));
        }
        named("HOME").map(|home| home.join(".cache"))
    };
    let cache = named("XDG_CACHE_HOME").or_else(usual);
    cache.into_iter().map(|cache| cache.join("acidtest").join(store)).collect()
}

/// For kinds whose home needs no preparation.
#[expect(clippy::unnecessary_wraps, reason = "the signature of a recipe's step that may fail")]
fn no_init(_: &Site) -> Result<Option<Invocation>, LabError> {
    Ok(None)
}
