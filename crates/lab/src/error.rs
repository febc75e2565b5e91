//! What can go wrong in the lab; every message says what, where and the remedy.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::installed::Missing;

/// A private server or folder that could not be had, or could not be cleared away.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The lab has no recipe for this store.
    #[error("the lab cannot start \"{store}\": it can start {}", known.join(", "))]
    Unknown {
        /// The store as asked for.
        store: String,
        /// The stores it can start.
        known: Vec<&'static str>,
    },
    /// A program is not installed.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A program is there and cannot be used.
    #[error("cannot use {}: {why}\n  remedy: name the server's own binary in {variable}", program.display())]
    Unusable {
        /// The program.
        program: PathBuf,
        /// What is wrong with it.
        why: String,
        /// The environment variable that names another.
        variable: String,
    },
    /// Somebody else listens on the port asked for.
    #[error("port {port} is taken on 127.0.0.1; choose another with --port or leave it out")]
    PortTaken {
        /// The port.
        port: u16,
    },
    /// The system refuses the port asked for.
    #[error("port {port} cannot be used on 127.0.0.1: {cause}; choose another with --port or leave it out")]
    PortRefused {
        /// The port.
        port: u16,
        /// The system's own words.
        cause: io::Error,
    },
    /// The server's own preparation of a data folder failed.
    #[error("preparing the data of a private {store} server failed: {program} {how}; its last lines:\n{log}")]
    InitFailed {
        /// The store.
        store: &'static str,
        /// The program that prepares.
        program: String,
        /// How it ended.
        how: String,
        /// The last lines that it wrote, indented.
        log: String,
    },
    /// The server ended by itself.
    #[error("the private {store} server {how}; the last lines of its log:\n{log}")]
    Died {
        /// The store.
        store: &'static str,
        /// How it ended.
        how: String,
        /// The last lines of its log, indented.
        log: String,
    },
    /// The disk is full.
    #[error("no space left on {}; free some or set ACIDTEST_LAB to another folder", folder.display())]
    DiskFull {
        /// The folder that could not grow.
        folder: PathBuf,
    },
    /// The root folder is not ours to write in.
    #[error("will not use {}: {why}\n  remedy: set ACIDTEST_LAB to a folder of your own", folder.display())]
    NotOurs {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The unprivileged user that runs the servers cannot reach the folder.
    #[error(
        "servers run as the user {user}, who cannot pass through {}\n  \
         remedy: set ACIDTEST_LAB to a folder below ones that everybody may enter, such as one in /var/tmp",
        blocked.display()
    )]
    Impassable {
        /// The unprivileged user.
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
        /// The unprivileged user.
        user: &'static str,
    },
    /// Processes that do not end even when killed.
    #[error(
        "processes of the private {store} server outlived SIGKILL: {pids:?}; its folder {} is left\n  \
         remedy: they wait for a disk; clear them away later with `acidtest lab down`",
        folder.display()
    )]
    Undead {
        /// The store.
        store: String,
        /// The processes.
        pids: Vec<u32>,
        /// The server's folder.
        folder: PathBuf,
    },
    /// The system refused something.
    #[error("{doing} {} failed: {cause}", path.display())]
    Io {
        /// What the lab was doing (`writing`).
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's own words.
        cause: io::Error,
    },
}

impl LabError {
    /// For `map_err`: a failure of `doing` at `path`, with a full disk told apart.
    pub(crate) fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |cause| match cause.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { folder: path.to_owned() }
            }
            _ => Self::Io { doing, path: path.to_owned(), cause },
        }
    }
}
