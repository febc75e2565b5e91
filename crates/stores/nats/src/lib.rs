//! NATS `JetStream`: one server, one connection a client, driven by its own task ([`protocol`]).
//!
//! # Guarantees
//!
//! Checked on 2.9.10. Each trial has a stream with one subject and one durable consumer, from which all
//! consumers pull.
//!
//! | guarantee | requests and settings |
//! | --- | --- |
//! | ack none | PUB to the stream's subject: done once written to the connection |
//! | ack confirm | PUB with a reply subject that bears the message's number: done once answered with the stream's sequence |
//! | ack transaction | none: 2.12's batches are not used |
//! | consume auto | `ack_policy` none, `retention` limits: a stream that drops what is consumed is not handed out without acknowledgements, so that it keeps everything until the trial ends |
//! | consume ack | `ack_policy` explicit, `ack_wait` 5 s, `max_ack_pending` unlimited, `retention` workqueue; `+ACK` to each message, those of a batch written at once. The server does not answer it |
//! | consume transaction | none |
//! | prefetch | the batches of pull requests: asked for again once half are dealt with, and no more at once than 8 MiB of messages or a single one: the server closes the connection of a slow reader; a request expires after 500 ms |
//! | persistent | `storage` file, else memory |
//! | replicas | `num_replicas`; a server alone refuses more than one |
//! | deduplicate | the message's id as `Nats-Msg-Id`, known for the stream's `duplicate_window` (2 min) |
//! | mandatory | always: a publish that no stream takes is answered 503, and has failed |
//! | redelivered | the delivery count above 1; of messages older than a restart of the server: always |
//! | order | one stream, one order: a producer's messages come to each consumer as published |
//!
//! # Durability
//!
//! Seen with strace on 2.9.10: a message of a stream in files is written (`pwrite64`) before it is acknowledged,
//! and synced (`fsync`) by a timer of two minutes.
//!
//! | rung | settings |
//! | --- | --- |
//! | none | `storage` memory; or any storage with ack none |
//! | process | `storage` file with ack confirm |
//! | disk | none that can be read back: 2.9 refuses `sync_interval: always`; 2.10 and later take it, and do not tell clients |
//!
//! A stream in memory goes with its server, its settings included; nobody makes it anew in mid-trial.
//!
//! # What a killed server forgets
//!
//! 2.9.10 writes what its consumers have been handed and have acknowledged behind time. After `kill -9` it hands
//! out again messages that had been acknowledged, with a delivery count of 1, as if they were new: none is lost,
//! some come twice. A server started anew is known by its name for itself (`server_id` in INFO); what was in the
//! stream before a consumer connects to it counts as perhaps delivered before.
//!
//! Servers may also hand out a message twice as a new one in ordinary work (nats-server #4460, seen there from
//! 2.8.4 to 2.9.22): where others are handed out again just as a request for messages expires. The audit then finds it *duplicated*.
//! Consumers that stop give messages back only after their own and each other's requests are gone.
//!
//! # Errors
//!
//! | error | outcome |
//! | --- | --- |
//! | the connection breaks before a byte of the message was handed to the network | failed |
//! | the connection breaks after that | unknown |
//! | a message over `max_payload`: not sent | failed |
//! | 503, no stream takes the message | failed |
//! | an error of `JetStream`'s, such as 10023 (insufficient resources) | failed |
//! | 10077 (the store failed), unless it is that of a stream's own limit | unknown |
//! | the connection breaks while a message is asked for: with acknowledgements | failed: it comes again |
//! | without | unknown: it may be gone |
//!
//! Any `-ERR` ends the connection, with the server's words. After that nothing more is sent on it.
//!
//! # Namespaces
//!
//! A stream named as the namespace bears the run's mark in its description. All others are named
//! `NAMESPACE-OBJECT`, their subjects `NAMESPACE.OBJECT`: no namespace has a dash in its name.

pub mod protocol;

mod jetstream;
mod queue;
mod server;

use std::collections::BTreeMap;

use acidtest_model::{Address, Durability, Effective, NO_REFRESH, StoreError, StoreKind, Support, Task};
use acidtest_workloads::{
    Owner, Store,
    queue::{LOCKS_OF_QUEUES, NO_CONFLICTS, QueueStore},
};
use serde_json::Value;

use crate::{
    jetstream::{AccountInfo, Api, Retention, Storage, StreamConfig},
    server::Server,
};

/// The store's row of the matrix.
pub const KIND: StoreKind = StoreKind {
    name: "nats",
    title: "NATS JetStream",
    schemes: &["nats"],
    address: "nats://USER:PASSWORD@HOST:4222",
    server: acidtest_model::Server::Program,
    default_port: 4222,
    locks: LOCKS_OF_QUEUES,
    durability: &[
        (Durability::None, Support::Yes("storage memory, or no acknowledgement")),
        (Durability::Process, Support::Yes("storage file, written before the acknowledgement")),
        (
            Durability::Disk,
            Support::No(
                "2.9 syncs every two minutes and takes no other order; newer servers take sync_interval: always \
                 and do not tell clients whether they were given it",
            ),
        ),
    ],
    isolation: &[],
    transactions: Support::No("a publish is a message; 2.12's batches are not used here"),
    refresh: NO_REFRESH,
    lock_service: false,
    rung_of_data: true,
    workloads: &[
        ("queue", Support::Yes("a stream with one durable consumer, which all consumers pull from")),
        ("inventory", Support::No("it has streams of messages, not records to decide on")),
        ("records", Support::No("it has streams of messages, not records to decide on")),
        ("join", Support::No("it has streams of messages, not tables")),
    ],
    refuses: queue::refuses,
    idle: |_| &[NO_CONFLICTS],
};

/// What the mark's stream says before the run's id.
const MARK: &str = "acidtest run ";
/// The time between two syncs of a stream in files, where it cannot be set.
const SYNC_INTERVAL: &str = "2m (default)";

/// A NATS server.
#[derive(Debug)]
pub struct Nats {
    server: Server,
}

impl Nats {
    /// Opens the server, connecting once to see that it can be reached and its `JetStream` used.
    ///
    /// # Errors
    /// A server that does not answer, or not to this user and password, or has no `JetStream`.
    pub async fn open(address: &Address) -> Result<Self, StoreError> {
        let mut server = Server::new(address, KIND.default_port)?;
        server.check().await?;
        Ok(Self { server })
    }
}

/// What the names of a namespace's streams begin with, but for that of its mark.
fn prefix(namespace: &str) -> String {
    format!("{namespace}-")
}

/// The stream that says which run made the namespace.
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

/// Whether the server can be told how often to sync: 2.10 and later.
fn takes_sync_interval(version: &str) -> bool {
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(2), Some(10))
}

/// The best rung of a stream on this server, and why it is no better.
fn rung(version: &str) -> (Durability, String) {
    let synced = if takes_sync_interval(version) {
        "synced as often as sync_interval says, which the server does not tell"
    } else {
        "synced every two minutes, which 2.9 cannot be told otherwise"
    };
    (Durability::Process, format!("streams in files are written before the acknowledgement and {synced}"))
}

/// What the server says that it is set to.
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
    fn effective(&self) -> Task<'_, Result<Effective, StoreError>> {
        Box::pin(async {
            let (version, settings) = settings(&mut self.server.reach().await?).await?;
            let (durability, because) = rung(&version);
            Ok(Effective { version, durability, because, settings })
        })
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
            // the mark goes last: what is left of an interrupted removal is still known as ours
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
            assert_eq!(rung(version).0, Durability::Process);
        }
    }

    #[test]
    fn no_namespace_begins_as_another_ones_streams_do() {
        assert!(!"acidtest_1".starts_with(&prefix("acidtest")));
        assert!(!"acidtest_1-queue_0".starts_with(&prefix("acidtest")));
        assert!("acidtest-queue_0".starts_with(&prefix("acidtest")));
    }
}
