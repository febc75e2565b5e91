//! A gateway for log entries: it takes them over HTTP, keeps what it has acknowledged, and stores it in a database.
//!
//! ```text
//!  POST /logs ──▶ authenticate ──▶ validate ──▶ queue ──▶ collectors ──▶ sink       architecture queued
//!                 (users: cached)              (synced)  (batches)      (one transaction a batch)
//!
//!  POST /logs ──▶ authenticate ──▶ validate ──▶ sink                                architecture direct
//!                 (in the database)            (one transaction an entry)
//! ```
//!
//! docs/gateway.md says how it is used, what is promised, and what it costs.

mod collector;
mod direct;
mod entry;
mod folder;
mod http;
mod limit;
mod metrics;
#[cfg(feature = "postgres")]
mod postgres;
mod queue;
mod recent;
mod service;
mod sink;
mod users;

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, time::Duration};

use acidtest_model::Address;

pub use self::{
    service::{Ended, Running, start},
    users::{Token, User, Users},
};

/// Why a gateway cannot start, or a database of users not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for makes no sense; the message says what would.
    #[error("{0}")]
    Usage(String),
    /// A database cannot be reached or used.
    #[error("{0}")]
    Unreached(String),
    /// Something of this machine failed: a port that is taken, a full disk.
    #[error("{0}")]
    Other(String),
}

/// How entries come from a request into the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// Each request authenticates in the database, and stores each of its entries in a transaction of its own.
    Direct,
    /// Users are remembered; entries are put into a queue, and stored by collectors, many in a transaction.
    Queued,
}

/// Where acknowledged entries wait to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// In files, synced before they are acknowledged.
    Disk,
    /// In this process: what waits is lost with it.
    Memory,
}

/// What a gateway is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens.
    pub listen: SocketAddr,
    /// How entries come into the database.
    pub architecture: Architecture,
    /// Where acknowledged entries wait.
    pub queue: QueueKind,
    /// The folder of a queue on disk.
    pub queue_folder: PathBuf,
    /// The most bytes that a queue takes, of disk or memory.
    pub queue_size: u64,
    /// The database of users.
    pub users: Address,
    /// The database of entries, and its table.
    pub sink: Address,
    /// The table of entries.
    pub table: String,
    /// The most connections to the sink of the direct architecture.
    pub sink_connections: NonZeroUsize,
    /// How many collectors store entries side by side. By default two, and one for a sink with one writer.
    pub collectors: Option<NonZeroUsize>,
    /// The most entries of a transaction.
    pub batch: NonZeroUsize,
    /// How long a batch may wait for more entries.
    pub linger: Duration,
    /// How long a user is remembered after being looked up.
    pub remember: Duration,
    /// Threads that serve requests.
    pub threads: NonZeroUsize,
    /// The most connections at once.
    pub connections: usize,
    /// The most bytes of a request's body.
    pub body: usize,
    /// How long the head of a request may take.
    pub head_time: Duration,
    /// How long the body of a request may take.
    pub body_time: Duration,
    /// How long a connection may be without a request.
    pub idle_time: Duration,
    /// How long a shutdown may wait for entries to be stored.
    pub drain: Duration,
}

/// Does something that may wait for a disk, on a thread for such.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Error::Other("a thread ended before its work: a defect of acidtest".to_owned()))
}
