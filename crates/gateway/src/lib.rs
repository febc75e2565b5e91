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
//! The queue may be in a broker, RabbitMQ or NATS: then gateways and collectors may be on several machines.
//!
//! docs/gateway.md says how it is used, what is promised, and what it costs.

mod collector;
mod depth;
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
mod sparingly;
mod users;

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, time::Duration};

use acidtest_model::{Address, OwnCertificate};

pub use self::{
    service::{Ended, Left, Running, start, start_collector},
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

/// What is taken of a request of which some entries are refused for what they say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partial {
    /// The others, and the answer is a success that names those that were refused.
    #[default]
    Accept,
    /// Nothing. Only the queued architecture can: the other stores one entry after the other.
    Reject,
}

/// How the gateway makes the id of an entry without one, where the request has no `Idempotency-Key`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ids {
    /// Another one each time: an entry that is sent again is another entry.
    #[default]
    Random,
    /// From what the entry says: an entry that is sent again has the id that it had.
    Content,
}

/// Where acknowledged entries wait to be stored.
#[derive(Clone, Debug)]
pub enum QueueKind {
    /// In files, synced before they are acknowledged.
    Disk,
    /// In this process: what waits is lost with it.
    Memory,
    /// In a broker at this address, RabbitMQ or NATS.
    Broker(Address),
}

/// How collectors store entries.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The database of entries.
    pub sink: Address,
    /// The table of entries.
    pub table: String,
    /// How many collectors store entries side by side. By default two, and one for a sink with one writer.
    pub collectors: Option<NonZeroUsize>,
    /// The most entries of a transaction.
    pub batch: NonZeroUsize,
    /// How long a batch may wait for more entries.
    pub linger: Duration,
}

/// What a gateway is started with.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    /// Its certificate, by which it speaks TLS, and nothing else; none for HTTP without TLS.
    pub certificate: Option<OwnCertificate>,
    /// How entries come into the database.
    pub architecture: Architecture,
    /// Where acknowledged entries wait.
    pub queue: QueueKind,
    /// The folder of a queue on disk.
    pub queue_folder: PathBuf,
    /// The name of a queue in a broker.
    pub queue_name: String,
    /// The most bytes that a queue takes.
    pub queue_size: u64,
    /// The database of users.
    pub users: Address,
    /// The schema of `PostgreSQL` that its tables are in; none for the first of the search path.
    pub users_schema: Option<String>,
    /// How entries are stored; none if collectors elsewhere do so, out of a broker.
    pub storage: Option<Storage>,
    /// The most connections to the sink of the direct architecture.
    pub sink_connections: NonZeroUsize,
    /// How long a user is remembered after being looked up.
    pub remember: Duration,
    /// Threads that serve requests.
    pub threads: NonZeroUsize,
    /// The most connections at once.
    pub connections: usize,
    /// The most bytes of a request's body.
    pub body: usize,
    /// What is taken of a request of which some entries are refused.
    pub partial: Partial,
    pub ids: Ids,
    /// How long the head of a request may take.
    pub head_time: Duration,
    /// How long the body of a request may take.
    pub body_time: Duration,
    /// How long a connection may be without a request.
    pub idle_time: Duration,
    /// How long a shutdown may wait for entries to be stored.
    pub drain: Duration,
}

/// What a collector is started with, which takes entries out of a broker and stores them.
#[derive(Clone, Debug)]
pub struct CollectorConfig {
    /// The broker.
    pub queue: Address,
    pub queue_name: String,
    /// How entries are stored.
    pub storage: Storage,
    /// Where its page and its metrics are, if anywhere: on loopback.
    pub listen: Option<SocketAddr>,
    /// How long a shutdown may wait for what has been taken out to be stored.
    pub drain: Duration,
}

/// Does something that may wait for a disk, here: what else this thread has to do is done by others meanwhile.
fn in_place<T>(work: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // there is nobody else
        _ => work(),
    }
}

/// Does something that may wait for a disk, on a thread for such.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Error::Other("a thread ended before its work: a defect of acidtest".to_owned()))
}
