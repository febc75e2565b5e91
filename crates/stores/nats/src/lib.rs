//! NATS `JetStream`: one server, and for each client one connection, which the client's own task drives
//! ([`protocol`]).
//!
#![doc = include_str!("../GUARANTEES.md")]

pub mod protocol;

mod jetstream;
mod queue;
mod server;

use std::{collections::BTreeMap, time::Duration};

use acidtest_model::{
    Address, Durability, EffectiveSettings, NO_REFRESH, StoreError, StoreKind, Support, Task,
};
use acidtest_workloads::{
    Identity, Owner, Store,
    queue::{LOCKS_OF_QUEUES, NO_CONFLICTS, QueueStore},
    time_opening,
};
use serde_json::Value;

pub use self::{jetstream::Api, server::ConnectOptions};
use crate::jetstream::{AccountInfo, Retention, Storage, StreamConfig};

/// The store's row of the matrix: its lock modes, durability levels and workloads.
pub const KIND: StoreKind = StoreKind {
    name: "nats",
    title: "NATS JetStream",
    schemes: &["nats", "tls"],
    address: "nats://USER:PASSWORD@HOST:4222",
    hosting: acidtest_model::Hosting::Program,
    default_port: 4222,
    locks: LOCKS_OF_QUEUES,
    durability: &[
        (Durability::None, Support::Yes("storage memory, or no acknowledgement")),
        (Durability::Process, Support::Yes("storage file, written before the acknowledgement")),
        (
            Durability::Disk,
            Support::No(
                "2.9 syncs every two minutes and cannot be told otherwise; newer servers accept sync_interval: always but \
                 do not tell clients whether it is set",
            ),
        ),
    ],
    isolation: &[],
    transactions: Support::No("a publish is a message; 2.12's batches are not used here"),
    refresh: NO_REFRESH,
    tls: acidtest_model::OWN_TLS,
    replication: &[],
    replica_reads: None,
    lock_service: false,
    processes: acidtest_model::EACH_CONNECTS,
    durability_of_data: true,
    in_memory: false,
    client_kib: 48,
    workloads: &[
        ("queue", Support::Yes("a stream with one durable consumer, which all consumers pull from")),
        ("inventory", Support::No("it has streams of messages, not records to decide on")),
        ("records", Support::No("it has streams of messages, not records to decide on")),
        ("join", Support::No("it has streams of messages, not tables")),
        ("logs", acidtest_model::NO_SINK),
        ("parcels", Support::No("it has streams of messages, not rows to count")),
        ("transactions", Support::No("it has streams of messages, not records to read and write")),
    ],
    refuses: queue::refuses,
    idle: |_| &[NO_CONFLICTS],
};

/// The beginning of the description of the stream that marks a namespace; the run's id follows.
const MARK: &str = "acidtest run ";
/// The time between two syncs of a stream in files, on servers on which it cannot be set.
const SYNC_INTERVAL: &str = "2m (default)";

/// A NATS server with `JetStream`.
#[derive(Debug)]
pub struct Nats {
    server: ConnectOptions,
}

impl Nats {
    /// Opens the server: connects once, to check that it can be reached and its `JetStream` used.
    ///
    /// # Errors
    /// If the server does not answer, refuses this user and password, or has no `JetStream`.
    pub async fn open(address: &Address) -> Result<Self, StoreError> {
        let mut server = ConnectOptions::new(address, KIND.default_port)?;
        server.check().await?;
        Ok(Self { server })
    }
}

/// The beginning of the names of a namespace's streams, except for the stream that marks the namespace.
fn prefix(namespace: &str) -> String {
    format!("{namespace}-")
}

/// The stream that marks a namespace: its description says which run made it.
fn marker(namespace: &str, run: &str) -> StreamConfig {
    StreamConfig {
        name: namespace.to_owned(),
        description: format!("{MARK}{run}"),
        subjects: vec![format!("{namespace}.mark")],
        retention: Retention::Limits,
        storage: Storage::File,
        num_replicas: 1,
        duplicate_window: 0,
    }
}

/// Whether the server has the setting `sync_interval`: version 2.10 and later.
#[must_use]
pub fn takes_sync_interval(version: &str) -> bool {
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(2), Some(10))
}

/// The highest durability level that a stream can have on this server, and the reason why it is no higher.
fn durability(version: &str) -> (Durability, String) {
    let synced = if takes_sync_interval(version) {
        "synced as often as sync_interval says, which the server does not tell"
    } else {
        "synced every two minutes, which cannot be changed in 2.9"
    };
    (Durability::Process, format!("streams in files are written before the acknowledgement and {synced}"))
}

/// The server's version, and its settings as it tells them.
async fn settings(api: &mut Api<'_>) -> Result<(String, BTreeMap<String, String>), StoreError> {
    let account: AccountInfo = api.run("reading the settings", "INFO", &Value::Null).await?;
    let info = api.connection().info();
    let mut settings = BTreeMap::from([("max_payload".to_owned(), info.max_payload.to_string())]);
    for (name, limit) in &account.limits {
        let shown = if *limit == -1 { "unlimited".to_owned() } else { limit.to_string() };
        settings.insert(format!("jetstream.{name}"), shown);
    }
    if !takes_sync_interval(&info.version) {
        settings.insert("jetstream.sync_interval".to_owned(), SYNC_INTERVAL.to_owned());
    }
    Ok((info.version.clone(), settings))
}

impl Store for Nats {
    /// It takes another id each time that it starts. Which server of a cluster has the data, its ids do not say.
    fn identity(&self) -> Task<'_, Result<Option<Identity>, StoreError>> {
        Box::pin(async {
            let api = self.server.reach().await?;
            let info = api.connection().info();
            let alone = info.cluster.is_empty().then(|| info.server_id.clone());
            Ok(alone.map(|life| Identity { life, data: None, is_exact: true }))
        })
    }

    fn effective(&self) -> Task<'_, Result<EffectiveSettings, StoreError>> {
        Box::pin(async {
            let mut api = self.server.reach().await?;
            let (version, settings) = settings(&mut api).await?;
            let (durability, because) = durability(&version);
            Ok(EffectiveSettings {
                version,
                durability: durability.into(),
                because,
                settings,
                tls: api.connection().tls(),
            })
        })
    }

    fn connecting(&self) -> Task<'_, Result<Option<Duration>, StoreError>> {
        Box::pin(time_opening(self.server.reach()))
    }

    fn owner<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<Owner, StoreError>> {
        Box::pin(async move {
            let doing = "looking for the namespace";
            let mut api = self.server.reach().await?;
            if let Some(stream) = api.stream(doing, namespace).await? {
                let run = stream.config.description.strip_prefix(MARK);
                return Ok(run.map_or(Owner::Stranger, |run| Owner::Run(run.to_owned())));
            }
            let others = api.names(doing, &prefix(namespace)).await?;
            Ok(if others.is_empty() { Owner::Nobody } else { Owner::Stranger })
        })
    }

    fn create<'a>(&'a self, namespace: &'a str, run: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut api = self.server.reach().await?;
            api.make("making the namespace", &marker(namespace, run)).await
        })
    }

    fn remove<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let doing = "removing the namespace";
            let mut api = self.server.reach().await?;
            for name in api.names(doing, &prefix(namespace)).await? {
                api.remove(doing, &name).await?;
            }
            // the mark goes last, so that the rest of an interrupted removal is still known to be acidtest's
            api.remove(doing, namespace).await
        })
    }

    fn queue(&self) -> Option<&dyn QueueStore> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_version_is_taken_to_sync_what_it_does_not_say() {
        for (version, takes) in
            [("2.9.10", false), ("2.10.0", true), ("2.15.1", true), ("3.0.0", true), ("x", false)]
        {
            assert_eq!(takes_sync_interval(version), takes, "{version}");
            assert_eq!(durability(version).0, Durability::Process);
        }
    }

    #[test]
    fn no_namespace_begins_as_another_ones_streams_do() {
        assert!(!"acidtest_1".starts_with(&prefix("acidtest")));
        assert!(!"acidtest_1-queue_0".starts_with(&prefix("acidtest")));
        assert!("acidtest-queue_0".starts_with(&prefix("acidtest")));
    }
}
