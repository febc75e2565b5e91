//! The queue workload on NATS: each trial has a stream with one durable consumer, from which all of the trial's
//! consumers pull.

mod publisher;
mod subscriber;

use std::time::Duration;

use acidtest_model::{CellRequest, Durability, EffectiveSettings, StoreError, Task};
use acidtest_workloads::{
    Place,
    queue::{Ack, Connector, Consume, Delivery, Depth, QueueAdapter, QueueKind, Requirements},
};

use self::{publisher::Producer, subscriber::Consumer};
use crate::{
    Nats, durability,
    jetstream::{AckPolicy, Api, ConsumerConfig, ConsumerInfo, Retention, Storage, StreamConfig},
    prefix,
    protocol::{ApiError, Error},
    server::{ConnectOptions, client_words},
};

const NAME: &str = "queue";
/// The name of a stream's durable consumer.
const CONSUMER: &str = "consumers";
/// How long a consumer may hold a message before another one gets it. Shorter than NATS' default of half a minute, so
/// that messages of a dead consumer come again while the audit waits for them.
const ACK_WAIT: Duration = Duration::from_secs(5);
/// Requests for messages that may wait at the server: NATS' default. Four more are added for each consumer.
const WAITING: u32 = 512;

/// The reason why the store cannot deliver messages as the cell asks, if there is one.
pub(crate) fn refuses(request: &CellRequest<'_>) -> Option<&'static str> {
    let Delivery { ack, consume, queue, .. } = Delivery::of(request)?;
    match (ack, consume, queue) {
        (Ack::Transaction, ..) => Some(
            "it publishes each message by itself (batches of 2.12 and later are not used): choose --ack none or confirm",
        ),
        (_, Consume::Transaction, _) => {
            Some("its consumers acknowledge each message by itself: choose --consume auto or ack")
        }
        (.., QueueKind::Classic | QueueKind::Quorum) => {
            Some("it keeps a stream in one way, in files or in memory; --replicas says on how many servers")
        }
        _ => None,
    }
}

fn name(place: &Place) -> String {
    format!("{}{}", prefix(&place.namespace), place.object(NAME))
}

fn subject(place: &Place) -> String {
    format!("{}.{}", place.namespace, place.object(NAME))
}

/// The settings of a trial's stream. A work queue drops acknowledged messages, but nobody can pull from it without
/// acknowledging ("consumer in pull mode requires ack policy"). Without acknowledgements the stream therefore keeps
/// all messages.
fn stream(place: &Place, delivery: &Delivery) -> StreamConfig {
    StreamConfig {
        name: name(place),
        description: String::new(),
        subjects: vec![subject(place)],
        retention: match delivery.consume {
            Consume::Auto => Retention::Limits,
            Consume::Ack | Consume::Transaction => Retention::WorkQueue,
        },
        storage: if delivery.persistent { Storage::File } else { Storage::Memory },
        num_replicas: delivery.replicas,
        duplicate_window: 0,
    }
}

/// The settings of the durable consumer from which all of a trial's consumers pull.
fn consumer(delivery: &Delivery) -> ConsumerConfig {
    let ack_policy = match delivery.consume {
        Consume::Auto => AckPolicy::None,
        Consume::Ack | Consume::Transaction => AckPolicy::Explicit,
    };
    let waiting = WAITING.saturating_add(delivery.consumers.saturating_mul(4));
    ConsumerConfig::new(CONSUMER, ack_policy, ACK_WAIT, waiting)
}

/// Opens connections to one trial's queue.
pub struct Connections {
    server: ConnectOptions,
    stream: String,
    subject: String,
    wanted: Requirements,
}

impl Connector for Connections {
    type Publisher = Producer;
    type Subscriber = Consumer;

    async fn publisher(&self) -> Result<Producer, String> {
        let connection = self.open().await.map_err(|error| client_words(&error))?.into_connection();
        Ok(Producer::new(connection, self.subject.clone(), &self.wanted.delivery))
    }

    async fn subscriber(&self) -> Result<Consumer, String> {
        let words = |error: Error| client_words(&error);
        let mut api = self.open().await.map_err(words)?;
        // a server that was killed forgets which messages it had handed out, and flags them as new
        let doubtful = if self.server.restarted(api.connection()) {
            api.stream_info(&self.stream).await.map_err(words)?.state.last_seq
        } else {
            0
        };
        Ok(Consumer::new(api.into_connection(), &self.stream, CONSUMER, doubtful, &self.wanted))
    }
}

impl Connections {
    async fn open(&self) -> Result<Api<'_>, Error> {
        let mut api = Api::new(self.server.connect().await?, &self.server);
        // a queue that is gone must be noticed now: later requests to it are never answered
        api.consumer(&self.stream, CONSUMER).await?;
        Ok(api)
    }
}

impl QueueAdapter for Nats {
    type Connector = Connections;

    fn connector(&self, place: &Place, wanted: &Requirements) -> Connections {
        Connections {
            server: self.server.clone(),
            stream: name(place),
            subject: subject(place),
            wanted: *wanted,
        }
    }

    fn declare<'a>(&'a self, place: &'a Place, wanted: &'a Requirements) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let doing = "making the queue";
            let mut api = self.server.reach().await?;
            let (bytes, limit) = (wanted.message_bytes as usize, api.connection().info().max_payload);
            if bytes > limit {
                return Err(self.server.failed(doing)(Error::TooLong { bytes, limit }));
            }
            api.make(doing, &stream(place, &wanted.delivery)).await?;
            let consumer = consumer(&wanted.delivery);
            api.make_consumer(&name(place), &consumer).await.map_err(self.server.failed(doing))
        })
    }

    fn settings<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        server: &'a EffectiveSettings,
    ) -> Task<'a, Result<EffectiveSettings, StoreError>> {
        Box::pin(async move {
            let doing = "reading the queue's settings";
            let mut api = self.server.reach().await?;
            let failed = self.server.failed(doing);
            let name = name(place);
            let stream = api.stream_info(&name).await.map_err(&failed)?.config;
            let consumer = api.consumer(&name, CONSUMER).await.map_err(failed)?.config;
            Ok(effective(server, &stream, &consumer, wanted.delivery.ack))
        })
    }

    fn depth<'a>(&'a self, place: &'a Place, _: &'a Requirements) -> Task<'a, Result<Depth, StoreError>> {
        Box::pin(async move {
            let mut api = self.server.reach().await?;
            match api.consumer(&name(place), CONSUMER).await {
                Ok(ConsumerInfo { num_pending, num_ack_pending, .. }) => {
                    Ok(Depth { ready: num_pending, unacknowledged: num_ack_pending })
                }
                Err(Error::Api(error)) if error.err_code == ApiError::STREAM_NOT_FOUND => {
                    Ok(Depth::default())
                }
                Err(error) => Err(self.server.failed("reading the queue's depth")(error)),
            }
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut api = self.server.reach().await?;
            api.remove("removing the queue", &name(place)).await
        })
    }

    /// True: a stream is ordered, and its consumer hands messages out in that order.
    fn keeps_order(&self, _: &Requirements) -> bool {
        true
    }

    /// Keeps the way of acknowledging, which a durable consumer cannot change.
    fn draining(&self, wanted: &Requirements) -> Requirements {
        wanted.in_bulk()
    }
}

/// The durability level that a queue's settings give, with the settings as they are shown.
fn effective(
    server: &EffectiveSettings,
    stream: &StreamConfig,
    consumer: &ConsumerConfig,
    ack: Ack,
) -> EffectiveSettings {
    let (durability, because) = match (stream.storage, ack) {
        (Storage::Memory, _) => (Durability::None, "the stream is in memory".to_owned()),
        (Storage::File, Ack::None) => {
            (Durability::None, "nobody says whether a message has reached the stream in files".to_owned())
        }
        (Storage::File, Ack::Confirm | Ack::Transaction) => durability(&server.version),
    };
    let mut settings = server.settings.clone();
    let window = Duration::from_nanos(stream.duplicate_window);
    settings.extend(
        [
            ("stream.storage", stream.storage.name().to_owned()),
            ("stream.retention", stream.retention.name().to_owned()),
            ("stream.num_replicas", stream.num_replicas.to_string()),
            ("stream.duplicate_window", format!("{window:?}")),
            ("consumer.ack_policy", consumer.ack_policy.name().to_owned()),
            ("consumer.ack_wait", format!("{:?}", Duration::from_nanos(consumer.ack_wait))),
            ("consumer.max_ack_pending", consumer.max_ack_pending.unwrap_or_default().to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    EffectiveSettings { settings, ..server.at(durability, because) }
}

#[cfg(test)]
mod tests {
    use acidtest_workloads::{
        Workload,
        queue::{Parameters, Queue},
    };

    use super::*;

    #[test]
    fn what_it_does_not_have_is_refused_with_a_reason() {
        let refused = |ack, consume, queue| {
            let parameters = Parameters { ack, consume, queue, ..Parameters::default() };
            refuses(&Queue::new(parameters).unwrap().spec().request(acidtest_model::Lock::None))
        };
        for ack in [Ack::None, Ack::Confirm] {
            for consume in [Consume::Auto, Consume::Ack] {
                assert_eq!(refused(ack, consume, QueueKind::Default), None);
            }
        }
        for (ack, consume, queue) in [
            (Ack::Transaction, Consume::Ack, QueueKind::Default),
            (Ack::Confirm, Consume::Transaction, QueueKind::Default),
            (Ack::Confirm, Consume::Ack, QueueKind::Classic),
            (Ack::Confirm, Consume::Ack, QueueKind::Quorum),
        ] {
            assert!(refused(ack, consume, queue).is_some());
        }
    }

    #[test]
    fn only_an_acknowledged_message_in_files_outlives_the_server() {
        let server = EffectiveSettings {
            version: "2.9.10".to_owned(),
            durability: Durability::Process.into(),
            because: String::new(),
            settings: std::collections::BTreeMap::new(),
            tls: None,
        };
        let place = Place { namespace: "acidtest".to_owned(), trial: 3 };
        let of = |ack, persistent| {
            let delivery = Parameters { ack, persistent, ..Parameters::default() }.delivery();
            let stream = stream(&place, &delivery);
            assert_eq!(
                (stream.name.as_str(), &stream.subjects[..]),
                ("acidtest-queue_3", &["acidtest.queue_3".to_owned()][..])
            );
            effective(&server, &stream, &consumer(&delivery), ack).durability
        };
        assert_eq!(of(Ack::Confirm, true), Durability::Process);
        assert_eq!(of(Ack::None, true), Durability::None);
        assert_eq!(of(Ack::Confirm, false), Durability::None);
    }
}
