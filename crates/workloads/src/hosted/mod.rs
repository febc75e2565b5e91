//! An embedded store in a process of its own, its host, so that it can be killed while those who know what was
//! acknowledged live on. Clients send each operation to the host over a connection and wait for its answer: what was
//! not answered when the host died is unknown, as it is with any server.
//!
//! Only the operations of clients go this way. Data is loaded, and read back, by a process that opens the store itself;
//! the host opens it when the first client comes, and closes it when it is told to.

pub(crate) mod inventory;
pub(crate) mod join;
mod line;
pub(crate) mod parcels;
mod queue;
pub(crate) mod records;

use std::time::{Duration, Instant};

use acidtest_model::{Address, EffectiveSettings, StoreError, Task};
use serde::{Deserialize, Serialize};

pub(crate) use line::HostLine;
pub use line::{Served, ServedLine, loopback};
pub(crate) use queue::{serve_publisher, serve_subscriber};

use crate::{
    Owner, Place, Store, TrialSetup, Values, inventory::InventoryStore, join::JoinStore,
    parcels::ParcelsStore, queue::QueueStore, records::RecordsStore,
};

/// The trial that clients of a host take part in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostedTrial {
    /// The workload's name.
    pub workload: String,
    /// The values of its parameters.
    pub parameters: Values,
    /// The lock mode.
    pub lock: acidtest_model::Lock,
    /// Where the trial keeps its data.
    pub place: Place,
}

impl HostedTrial {
    /// The setup of the trial as far as a host needs it: it draws no operation and keeps no ledger.
    #[must_use]
    pub fn setup(&self) -> TrialSetup {
        TrialSetup::new(self.lock, 0, 1)
    }
}

/// What a connection to a host is for: its first message.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
        remedy: "it is the process that acidtest keeps the store in: see whether it still runs".to_owned(),
    }
}

impl Hosted {
    /// Reaches the store in the host at this address, for clients of a trial if one is given.
    ///
    /// # Errors
    /// The host does not answer, or cannot open its store.
    pub async fn open(address: &Address, trial: Option<HostedTrial>) -> Result<Self, StoreError> {
        let mut line = HostLine::open(address, &Purpose::Ping(trial.clone())).await;
        let pong = match &mut line {
            Ok(line) => line.ask::<_, Pong>(&()).await.map_err(|fault| fault.message),
            Err(why) => Err(why.clone()),
        };
        match pong {
            Ok(Pong { failed: None, ordered }) => Ok(Self { address: address.clone(), trial, ordered }),
            Ok(Pong { failed: Some(why), .. }) | Err(why) => Err(unreachable(address, why)),
        }
    }

    /// Lets the host close the store, so that another process can open it.
    ///
    /// # Errors
    /// The host does not answer, or clients are still connected.
    pub async fn close(&self) -> Result<(), StoreError> {
        let failed = |why| unreachable(&self.address, why);
        let mut line = HostLine::open(&self.address, &Purpose::Close).await.map_err(failed)?;
        let closed = line.ask::<_, Result<(), String>>(&()).await.map_err(|fault| failed(fault.message))?;
        closed.map_err(failed)
    }

    /// How long it takes to ask the host for nothing and to be answered, the median of so many times.
    ///
    /// # Errors
    /// The host does not answer.
    pub async fn round_trip(&self, times: usize) -> Result<Duration, StoreError> {
        let failed = |why| unreachable(&self.address, why);
        let mut line = HostLine::open(&self.address, &Purpose::Ping(None)).await.map_err(failed)?;
        let mut took = Vec::with_capacity(times);
        for _ in 0..times.max(1) {
            let begun = Instant::now();
            line.ask::<_, Pong>(&()).await.map_err(|fault| failed(fault.message))?;
            took.push(begun.elapsed());
        }
        took.sort_unstable();
        Ok(took[took.len() / 2])
    }

    /// The way of one client to the host.
    fn way(&self, purpose: fn(HostedTrial) -> Purpose) -> HostWay {
        HostWay { address: self.address.clone(), purpose: self.trial.clone().map(purpose) }
    }
}

/// How one client reaches the host.
#[derive(Clone, Debug)]
pub(crate) struct HostWay {
    address: Address,
    purpose: Option<Purpose>,
}

impl HostWay {
    async fn open(&self) -> Result<HostLine, String> {
        let purpose = self.purpose.as_ref().ok_or("the host was reached for no trial")?;
        let mut line = HostLine::open(&self.address, purpose).await?;
        line.receive::<Result<(), String>>().await.map_err(|fault| fault.message)??;
        Ok(line)
    }
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
}
