//! An embedded store in a process of its own, its host, so that it can be killed while those who know what was
//! acknowledged live on. Clients send each operation to the host over a connection and wait for its answer: what was
//! not answered when the host died is unknown, as it is with any server. docs/protocol.md describes what they say.
//!
//! Only the operations of clients go this way. Data is loaded, and read back, by a process that opens the store itself;
//! the host opens it when the first client comes, and closes it when it is told to.

pub(crate) mod inventory;
pub(crate) mod join;
mod line;
pub(crate) mod parcels;
mod queue;
pub(crate) mod records;
pub(crate) mod transactions;

use std::time::{Duration, Instant};

use acidtest_engine::{Attempt, Fault};
use acidtest_model::{Address, EffectiveSettings, StoreError, Task};
use acidtest_protocol::{Error, Protocol};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use line::HostLine;
pub(crate) use line::serve;
pub use line::{Served, ServedLine, loopback};
pub(crate) use queue::{serve_publisher, serve_subscriber};

use crate::{
    Owner, Place, Store, TrialSetup, Values, inventory::InventoryStore, join::JoinStore,
    parcels::ParcelsStore, queue::QueueStore, records::RecordsStore, transactions::TransactionsStore,
};

/// The protocol of a host, to which its clients greet first.
pub const PROTOCOL: Protocol = Protocol { name: "host", version: 1 };

/// The trial that clients of a host take part in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostedTrial {
    /// The workload's name.
    pub workload: String,
    pub parameters: Values,
    pub lock: acidtest_model::Lock,
    pub place: Place,
}

impl HostedTrial {
    /// The setup of the trial as far as a host needs it: it draws no operation and keeps no ledger.
    #[must_use]
    pub fn setup(&self) -> TrialSetup {
        TrialSetup::new(self.lock, 0, 1)
    }
}

/// What a connection to a host is for: its first message after the greeting.
///
/// Connections for operations are answered with an empty result, or why there are none; from then on each operation of
/// the workload's port is answered with a [`Reply`], one after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// To see whether the store is open, and whether it keeps the order of a queue; answered with a [`Pong`] as often
    /// as anything is sent.
    Ping(Option<HostedTrial>),
    /// To close the store, once the last client has gone; answered with an empty result.
    Close,
    /// To do the operations of a client.
    Client(HostedTrial),
    /// To publish messages.
    Publisher(HostedTrial),
    /// To consume messages.
    Subscriber(HostedTrial),
}

/// A host's answer to a ping.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pong {
    /// Whether the trial's queue keeps its order.
    pub ordered: bool,
    /// Why the store cannot be used.
    pub failed: Option<String>,
}

/// A host's answer to an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply<T> {
    /// How the operation ended.
    pub attempt: Attempt,
    /// What it took, found or was given.
    pub found: T,
    /// How long it waited for locks that other clients held, in nanoseconds, where the port asks for that.
    pub lock_wait_ns: u64,
}

impl<T> Reply<T> {
    pub(crate) fn new(attempt: Attempt, found: T, lock_wait: Duration) -> Self {
        Self { attempt, found, lock_wait_ns: u64::try_from(lock_wait.as_nanos()).unwrap_or(u64::MAX) }
    }
}

/// Opens a connection that is not a client's.
async fn open(address: &Address, purpose: &Purpose) -> Result<HostLine, StoreError> {
    HostLine::open(address, purpose).await.map_err(|error| match error {
        Error::Connection(error) => unreachable(address, error.to_string()),
        error if error.is_mismatch() => StoreError::Server {
            doing: "greeting the store's host".to_owned(),
            address: address.to_string(),
            cause: format!("it {error}"),
        },
        error => unreachable(address, format!("it {error}")),
    })
}

/// An embedded store, as clients reach it in its host.
#[derive(Clone, Debug)]
pub struct Hosted {
    address: Address,
    trial: Option<HostedTrial>,
    ordered: bool,
}

fn unreachable(address: &Address, cause: String) -> StoreError {
    StoreError::Unreachable {
        address: address.to_string(),
        cause,
        remedy: "it is the process in which acidtest keeps the store: check whether it still runs".to_owned(),
    }
}

impl Hosted {
    /// Reaches the store in the host at this address, for clients of a trial if one is given.
    ///
    /// # Errors
    /// The host does not answer, or cannot open its store.
    pub async fn open(address: &Address, trial: Option<HostedTrial>) -> Result<Self, StoreError> {
        let failed = |why| unreachable(address, why);
        let mut line = open(address, &Purpose::Ping(trial.clone())).await?;
        match line.ask(&()).await.map_err(|fault| failed(fault.message))? {
            Pong { failed: None, ordered } => Ok(Self { address: address.clone(), trial, ordered }),
            Pong { failed: Some(why), .. } => Err(failed(why)),
        }
    }

    /// Lets the host close the store, so that another process can open it.
    ///
    /// # Errors
    /// The host does not answer, or clients are still connected.
    pub async fn close(&self) -> Result<(), StoreError> {
        let failed = |why| unreachable(&self.address, why);
        let mut line = open(&self.address, &Purpose::Close).await?;
        let closed: Result<(), String> = line.ask(&()).await.map_err(|fault| failed(fault.message))?;
        closed.map_err(failed)
    }

    /// How long it takes to ask the host for nothing and to be answered, the median of so many times.
    ///
    /// # Errors
    /// The host does not answer.
    pub async fn round_trip(&self, times: usize) -> Result<Duration, StoreError> {
        let failed = |why| unreachable(&self.address, why);
        let mut line = open(&self.address, &Purpose::Ping(None)).await?;
        let mut took = Vec::with_capacity(times);
        for _ in 0..times.max(1) {
            let begun = Instant::now();
            line.ask::<Pong>(&()).await.map_err(|fault| failed(fault.message))?;
            took.push(begun.elapsed());
        }
        took.sort_unstable();
        Ok(took[took.len() / 2])
    }

    /// The way of one client to the host.
    fn route(&self, purpose: fn(HostedTrial) -> Purpose) -> HostRoute {
        HostRoute { address: self.address.clone(), purpose: self.trial.clone().map(purpose) }
    }
}

/// How one client reaches the host: the connector of every workload.
#[derive(Clone, Debug)]
pub(crate) struct HostRoute {
    address: Address,
    purpose: Option<Purpose>,
}

impl HostRoute {
    async fn open(&self) -> Result<HostedConnection, String> {
        let purpose = self.purpose.as_ref().ok_or("the host was reached for no trial")?;
        let opened = HostLine::open(&self.address, purpose).await;
        let mut line = opened.map_err(|error| match error {
            Error::Connection(error) => error.to_string(),
            error => format!("the store's host {error}"),
        })?;
        line.receive::<Result<(), String>>().await.map_err(|fault| fault.message)??;
        Ok(HostedConnection { line, lock_wait: Duration::ZERO })
    }
}

/// A client's connection to the host: that of every workload.
#[derive(Debug)]
pub(crate) struct HostedConnection {
    line: HostLine,
    lock_wait: Duration,
}

impl HostedConnection {
    /// Has the host do an operation. What it does not answer is unknown.
    async fn perform<T: DeserializeOwned + Default>(&mut self, operation: &impl Serialize) -> (Attempt, T) {
        match self.line.send(operation).await {
            Ok(()) => self.reply().await,
            Err(fault) => (Attempt::Unknown(fault), T::default()),
        }
    }

    /// The answer to the operation that was sent. What has come of it is kept if the future is dropped.
    async fn reply<T: DeserializeOwned + Default>(&mut self) -> (Attempt, T) {
        match self.line.receive().await {
            Ok(Reply { attempt, found, lock_wait_ns }) => {
                self.lock_wait += Duration::from_nanos(lock_wait_ns);
                (attempt, found)
            }
            Err(fault) => (Attempt::Unknown(fault), T::default()),
        }
    }

    /// How long operations have waited for locks since this was last called.
    fn take_lock_wait(&mut self) -> Duration {
        std::mem::take(&mut self.lock_wait)
    }
}

/// An answer that makes no sense costs the connection.
fn unasked() -> Fault {
    Fault::lost("the store's host answered another question")
}

/// The error of what goes another way than over a host.
fn not_here<T>(doing: &str) -> Result<T, StoreError> {
    Err(StoreError::Server {
        doing: doing.to_owned(),
        address: "the store".to_owned(),
        cause: "it is open in its host, for clients only".to_owned(),
    })
}

impl Store for Hosted {
    fn effective(&self) -> Task<'_, Result<EffectiveSettings, StoreError>> {
        Box::pin(async { not_here("reading the settings") })
    }

    fn owner<'a>(&'a self, _: &'a str) -> Task<'a, Result<Owner, StoreError>> {
        Box::pin(async { not_here("looking for the namespace") })
    }

    fn create<'a>(&'a self, _: &'a str, _: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("making the namespace") })
    }

    fn remove<'a>(&'a self, _: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("removing the namespace") })
    }

    fn inventory(&self) -> Option<&dyn InventoryStore> {
        Some(self)
    }

    fn records(&self) -> Option<&dyn RecordsStore> {
        Some(self)
    }

    fn join(&self) -> Option<&dyn JoinStore> {
        Some(self)
    }

    fn queue(&self) -> Option<&dyn QueueStore> {
        Some(self)
    }

    fn parcels(&self) -> Option<&dyn ParcelsStore> {
        Some(self)
    }

    fn transactions(&self) -> Option<&dyn TransactionsStore> {
        Some(self)
    }
}
