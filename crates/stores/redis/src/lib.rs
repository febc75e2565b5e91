//! Redis: one server, one connection per client.
//!
#![doc = include_str!("../GUARANTEES.md")]

#[cfg(test)]
mod behind_a_proxy;
mod interactive;
mod inventory;
mod keys;
mod lock;
mod lock_service;
#[cfg(test)]
mod made_up;
mod parcels;
mod point;
mod product;
mod protocol;
mod queue;
mod records;
mod refusal;
mod server;
mod session;
mod settings;

use std::time::Duration;

use acidtest_model::{
    Address, CellRequest, Durability, EffectiveSettings, IdleOption, Isolation, Lock, NO_REFRESH, StoreError,
    StoreKind, Support, Task,
};
use acidtest_workloads::{
    Evictions, Identity, Owner, Store,
    interactive::InteractiveStore,
    inventory::InventoryStore,
    parcels::{ParcelsStore, lacks_index},
    queue::{Delivery, QueueStore},
    records::RecordsStore,
    time_opening,
};
use redis::cmd;

pub use crate::{
    point::Point,
    protocol::{Error, Replies, Reply, ServerError},
    session::{Script, Session},
};
use crate::{protocol::Connection, server::ConnectOptions};

/// The store's entry in the list of stores: its names, and which lock modes, durability levels, isolation levels
/// and workloads it supports, each with the means or the reason.
pub const KIND: StoreKind = StoreKind {
    name: "redis",
    title: "Redis",
    schemes: &["redis", "rediss"],
    address: "redis://USER:PASSWORD@HOST:6379/NUMBER",
    hosting: acidtest_model::Hosting::Program,
    default_port: 6379,
    locks: &[
        (Lock::None, Support::Yes("read, then HSET to the computed values")),
        (Lock::Soft, Support::Yes("WATCH, then MULTI … EXEC")),
        (Lock::Hard, Support::Yes("lock key with lease, owner token and fencing")),
        (Lock::Native, Support::Yes("one Lua script")),
    ],
    durability: &[
        (Durability::None, Support::Yes("appendonly no, or appendfsync everysec")),
        (Durability::Process, Support::Yes("appendonly yes, appendfsync no")),
        (Durability::Disk, Support::Yes("appendonly yes, appendfsync always, no-appendfsync-on-rewrite no")),
    ],
    isolation: &[
        (Isolation::ReadUncommitted, ONE_BY_ONE),
        (Isolation::ReadCommitted, ONE_BY_ONE),
        (Isolation::RepeatableRead, ONE_BY_ONE),
        (Isolation::Serializable, ONE_BY_ONE),
    ],
    transactions: Support::Yes("MULTI … EXEC, after WATCH under soft locks; native: one Lua script"),
    refresh: NO_REFRESH,
    tls: acidtest_model::OWN_TLS,
    replication: &[],
    replica_reads: None,
    lock_service: false,
    processes: acidtest_model::EACH_CONNECTS,
    durability_of_data: false,
    in_memory: true,
    client_kib: 24,
    workloads: &[
        ("inventory", Support::Yes("capture and release")),
        ("records", Support::Yes("a hash each; ranges by a sorted set of keys")),
        ("join", Support::No("it has no joins")),
        ("queue", Support::Yes("a stream with a group of consumers")),
        ("logs", acidtest_model::NO_SINK),
        ("parcels", Support::Yes("a hash for each scan, and a list of the scans of each parcel")),
        (
            "transactions",
            Support::No(
                "it has no interactive transactions: what is queued after MULTI is answered only at EXEC",
            ),
        ),
    ],
    refuses,
    idle,
};

const ONE_BY_ONE: Support =
    Support::No("it has no levels: commands, scripts and transactions run one after the other");

fn refuses(request: &CellRequest<'_>) -> Option<&'static str> {
    if let Some(delivery) = Delivery::of(request) {
        return queue::refuses(&delivery);
    }
    if lacks_index(request) {
        return Some(parcels::NO_SEARCH);
    }
    (request.transaction > 1 && request.lock == Lock::Hard).then_some(records::ONE_LOCK)
}

fn idle(request: &CellRequest<'_>) -> &'static [IdleOption] {
    const ONE_AFTER_THE_OTHER: &[IdleOption] = &[IdleOption {
        name: "max_retries",
        why: "commands and scripts run one after the other: none conflicts with another",
    }];
    match request.lock {
        Lock::None | Lock::Native => ONE_AFTER_THE_OTHER,
        Lock::Soft | Lock::Hard => &[],
    }
}

/// Why no run is made on a node of a Redis Cluster.
const CLUSTER: &str =
    "it is a node of a Redis Cluster, which refuses what an operation does on keys of several slots";

#[derive(Debug)]
pub struct Redis {
    server: ConnectOptions,
}

impl Redis {
    /// Opens the server, connecting once to see that it can be reached.
    ///
    /// # Errors
    /// The server does not answer, or not to this user and password.
    pub async fn open(address: &Address) -> Result<Self, StoreError> {
        let server = ConnectOptions::new(address, KIND.default_port)?;
        server.reach().await?;
        Ok(Self { server })
    }

    /// Opens a connection for work outside the workloads.
    ///
    /// # Errors
    /// The server does not answer, or not to this user and password.
    pub async fn session(&self) -> Result<Session, StoreError> {
        Ok(Session::new(self.server.reach().await?))
    }

    /// Loads scripts into the server, so that not even their first call takes two round trips.
    async fn keep(&self, scripts: &[&Script]) -> Result<(), StoreError> {
        let mut connection = self.server.reach().await?;
        for script in scripts {
            script.keep(&mut connection).await.map_err(self.server.failed("loading the scripts"))?;
        }
        Ok(())
    }

    /// Removes every key whose name has the prefix.
    async fn remove_keys(&self, prefix: &str) -> Result<(), StoreError> {
        let mut connection = self.server.reach().await?;
        let removed = keys::remove(&mut connection, prefix, None).await;
        removed.map_err(self.server.failed("removing keys"))
    }

    /// What a write has come to. A server that takes none is asked what it is.
    async fn written<T>(
        &self,
        doing: &str,
        connection: &mut Connection,
        written: Result<T, Error>,
    ) -> Result<T, StoreError> {
        let is_refused = matches!(&written, Err(Error::Answered(error)) if error.code() == "READONLY");
        if is_refused && let Ok(info) = settings::info(connection).await {
            return Err(StoreError::replica(self.server.address(), settings::primary(&info)));
        }
        written.map_err(self.server.failed(doing))
    }
}

impl Store for Redis {
    fn effective(&self) -> Task<'_, Result<EffectiveSettings, StoreError>> {
        Box::pin(async {
            let failed = self.server.failed("reading the settings");
            let mut connection = self.server.reach().await?;
            let info = settings::info(&mut connection).await.map_err(&failed)?;
            if settings::is_clustered(&info) {
                return Err(StoreError::Unreachable {
                    address: self.server.address(),
                    cause: CLUSTER.to_owned(),
                    remedy: "give the address of a Redis without cluster mode (cluster-enabled no)"
                        .to_owned(),
                });
            }
            let settings = settings::read(&mut connection, &info).await.map_err(failed)?;
            Ok(EffectiveSettings { tls: connection.negotiated(), ..settings })
        })
    }

    fn evictions(&self) -> Task<'_, Result<Option<Evictions>, StoreError>> {
        Box::pin(async {
            let mut connection = self.server.reach().await?;
            match settings::info(&mut connection).await {
                Ok(info) => Ok(settings::evictions(&info)),
                // a proxy, or a user, without INFO
                Err(Error::Answered(_)) => Ok(None),
                Err(error) => Err(self.server.failed("asking what was evicted")(error)),
            }
        })
    }

    fn identity(&self) -> Task<'_, Result<Option<Identity>, StoreError>> {
        Box::pin(async {
            let mut connection = self.server.reach().await?;
            match settings::life(&mut connection).await {
                Ok(run) => Ok(run.map(|life| Identity { life, data: None, is_exact: true })),
                // a proxy, or a user, without INFO
                Err(Error::Answered(_)) => Ok(None),
                Err(error) => Err(self.server.failed("asking which server answers")(error)),
            }
        })
    }

    fn connecting(&self) -> Task<'_, Result<Option<Duration>, StoreError>> {
        Box::pin(time_opening(self.server.reach()))
    }

    fn owner<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<Owner, StoreError>> {
        Box::pin(async move {
            let failed = self.server.failed("looking for the namespace");
            let mut connection = self.server.reach().await?;
            let marker = connection.ask(cmd("GET").arg(keys::marker(namespace))).await;
            match keys::held(marker).map_err(&failed)? {
                // a key of that name that is no string was not made by acidtest
                None => return Ok(Owner::Stranger),
                Some(Reply::Nil) => {}
                Some(run) => return run.string().map(Owner::Run).map_err(&failed),
            }
            let any = keys::any(&mut connection, &keys::prefix(namespace)).await.map_err(failed)?;
            Ok(if any { Owner::Stranger } else { Owner::Nobody })
        })
    }

    fn create<'a>(&'a self, namespace: &'a str, run: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            let mut mark = cmd("SET");
            mark.arg(keys::marker(namespace)).arg(run).arg("NX");
            let made = connection.ask(&mark).await.map(|made| made == Reply::Nil);
            let is_there = self.written("making the namespace", &mut connection, made).await?;
            if is_there {
                return Err(StoreError::Occupied {
                    namespace: format!("key prefix \"{}\"", keys::prefix(namespace)),
                    address: self.server.address(),
                });
            }
            Ok(())
        })
    }

    fn remove<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            let removed = keys::remove_namespace(&mut connection, namespace).await;
            self.written("removing the namespace", &mut connection, removed).await
        })
    }

    fn inventory(&self) -> Option<&dyn InventoryStore> {
        Some(self)
    }

    fn records(&self) -> Option<&dyn RecordsStore> {
        Some(self)
    }

    fn queue(&self) -> Option<&dyn QueueStore> {
        Some(self)
    }

    fn parcels(&self) -> Option<&dyn ParcelsStore> {
        Some(self)
    }

    fn interactive(&self) -> Option<&dyn InteractiveStore> {
        Some(self)
    }
}
