//! The errors of the lab; every message says what failed, where, and the remedy.

use std::{
    io,
    path::{Path, PathBuf},
};

use acidtest_model::MemberId;

use crate::source::MissingProgram;

/// The reason why a private server or folder could not be started or made, or could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The lab has no recipe for this store.
    #[error("the lab cannot start \"{store}\": it can start {}", known.join(", "))]
    Unknown {
        /// The store as asked for.
        store: String,
        /// The stores that the lab can start.
        known: Vec<&'static str>,
    },
    /// The lab cannot start this one with TLS.
    #[error("no private server with TLS: {why}")]
    NoTls { why: &'static str },
    /// The lab cannot make replicas of this one.
    #[error("the lab cannot make replicas of a private {store} server")]
    NoReplicas { store: &'static str },
    /// No replica with this name waits for its start.
    #[error("{member} is no replica of this deployment that is still to be started")]
    NotToCome { member: MemberId },
    #[error(transparent)]
    MissingProgram(#[from] MissingProgram),
    /// A program is there and cannot be used.
    #[error("cannot use {}: {why}\n  remedy: name the server's own binary in {variable}", program.display())]
    Unusable {
        program: PathBuf,
        /// The reason why it cannot be used.
        why: String,
        /// The environment variable that can name another program.
        variable: String,
    },
    /// Another process listens on the port asked for.
    #[error("port {port} is taken on 127.0.0.1; choose another with --port or leave it out")]
    PortTaken { port: u16 },
    #[error("port {port} cannot be used on 127.0.0.1: {cause}; choose another with --port or leave it out")]
    PortRefused { port: u16, cause: io::Error },
    /// The program that prepares a data folder ended with an error.
    #[error("preparing the data of a private {store} server failed: {program} {how}; its last lines:\n{log}")]
    InitFailed {
        store: &'static str,
        /// The program that prepares the folder.
        program: String,
        /// The exit status or signal that it ended with, in words.
        how: String,
        /// The last lines of its output, indented.
        log: String,
    },
    /// The server ended without being told to.
    #[error("the private {store} server {how}; the last lines of its log:\n{log}")]
    Died {
        store: &'static str,
        /// The exit status or signal that it ended with, in words.
        how: String,
        /// The last lines of its log, indented.
        log: String,
    },
    #[error("no space left on {}; free some or set ACIDTEST_LAB to another folder", folder.display())]
    DiskFull {
        /// The folder that the disk has no room for.
        folder: PathBuf,
    },
    /// The lab may not write in its root folder, or others could interfere there.
    #[error("will not use {}: {why}\n  remedy: set ACIDTEST_LAB to a folder of your own", folder.display())]
    NotOurs {
        /// The path of the root folder.
        folder: PathBuf,
        /// The reason why the lab does not use it.
        why: String,
    },
    /// The unprivileged user that runs the servers cannot reach the folder.
    #[error(
        "servers run as the user {user}, who cannot enter {}\n  remedy: set ACIDTEST_LAB to a folder below folders that \
         everybody may enter, such as one in /var/tmp",
        blocked.display()
    )]
    Impassable {
        /// The unprivileged user that servers run as.
        user: &'static str,
        /// The folder that only its owner may enter.
        blocked: PathBuf,
    },
    /// Root may not run the servers, and there is no unprivileged user who could.
    #[error(
        "servers refuse to run as root, and /etc/passwd has no user {user} to run them as\n  \
         remedy: start acidtest as an ordinary user"
    )]
    NoUser {
        /// The name of the unprivileged user that is missing.
        user: &'static str,
    },
    /// Processes of a server that are still there after SIGKILL.
    #[error(
        "processes of the private {store} server outlived SIGKILL: {pids:?}; its folder {} is left\n  remedy: they wait \
         for a disk; remove them later with `acidtest lab down`",
        folder.display()
    )]
    Undead {
        store: String,
        pids: Vec<u32>,
        /// The server's private folder, which is left in place.
        folder: PathBuf,
    },
    /// Processes of a server that went on after SIGSTOP.
    #[error(
        "the private {store} server could not be paused: its processes go on after SIGSTOP\n  \
         remedy: they wait for a disk; try again when it is less busy"
    )]
    Restless { store: &'static str },
    /// The system refused an operation on a file or process.
    #[error("{doing} {} failed: {cause}", path.display())]
    Io {
        /// The operation that the lab tried (`writing`).
        doing: &'static str,
        /// The path that the operation was on.
        path: PathBuf,
        cause: io::Error,
    },
}

impl LabError {
    /// Makes the error for `map_err`: the operation `doing` failed at `path`; a full disk has an error of its own.
    pub(crate) fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |cause| match cause.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { folder: path.to_owned() }
            }
            _ => Self::Io { doing, path: path.to_owned(), cause },
        }
    }
}
