//! The port: the operations that a store must offer to run a queue.

#![warn(missing_docs)]

use std::{future::Future, time::Duration};

use acidtest_engine::{Attempt, ClientTask, Completion, Fault};
use acidtest_model::{EffectiveSettings, StoreError, Task};

use serde::{Deserialize, Serialize};

use super::{Ack, Consume, Delivery, Message, Scenario, as_base64, client, drain};
use crate::{LoadProgress, Place, Reply, Served, hosted};

/// The demands of a trial on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// How messages are to be delivered.
    pub delivery: Delivery,
    /// Length of a message in bytes.
    pub message_bytes: u32,
}

/// A message as a consumer received it. Its memory is reused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedMessage {
    /// The bytes that were received.
    #[serde(with = "as_base64")]
    pub body: Vec<u8>,
    /// The store's flag that the message may have been delivered before; `None` where a store has no such flag.
    pub redelivered: Option<bool>,
}

/// How many messages a queue holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Messages that can be delivered.
    pub ready: u64,
    /// Messages that were delivered and not acknowledged, including those on their way to a consumer; where the
    /// store does not count these, the number of consumers that may hold some.
    pub unacknowledged: u64,
}

/// How far a consumer's acknowledgement has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AckAnswer {
    /// It was handed to the connection, and may be lost with it: whether the store has it, [`Subscriber::progress`] tells.
    Sent,
    /// The store has read it, and need not hand out the messages again; it does not say that it will not.
    Read,
    /// The store has answered it: none of the messages may come again.
    Answered,
}

/// How far the acknowledgements of a connection have come, as numbers of messages, in the order in which these were taken on
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckProgress {
    /// The acknowledgements of so many may have reached the store. Those of all others were not handed to the network, or
    /// would have been once the connection was seen to have ended.
    pub handed: u64,
    /// Those of so many are known to have been read by the store.
    pub read: u64,
}

impl Default for AckProgress {
    /// Nothing is known: each of them may have reached the store.
    fn default() -> Self {
        Self { handed: u64::MAX, read: 0 }
    }
}

/// One producer's connection: the timed operations.
pub trait Publisher {
    /// Starts publishing a message. Messages are numbered from 0 on each connection. The message need not be
    /// written before [`settle`](Publisher::settle).
    ///
    /// # Errors
    /// The connection is lost.
    fn send(&mut self, message: &Message) -> impl Future<Output = Result<(), Fault>>;

    /// Writes the messages that are not yet written, commits the transaction if there is one, and waits until at
    /// least one message has ended. With [`Ack::None`] messages have ended once they are written. A message that
    /// the store says it could not route or keep has failed; one that it refuses to answer for is unknown.
    ///
    /// Its future may be dropped while it waits, where more than one message may be in flight, and no answer
    /// received until then may be lost by that.
    ///
    /// # Errors
    /// The connection is lost. The messages in `ended` have ended; the others are unknown.
    fn settle(&mut self, ended: &mut Vec<Completion>) -> impl Future<Output = Result<(), Fault>>;

    /// Closes the connection in an orderly way, with nothing in flight: messages that were written and not
    /// acknowledged must not be lost by closing it.
    fn close(&mut self) -> impl Future<Output = ()> {
        async {}
    }

    /// The store's reason for limiting this producer since this was last called, in its words, such as a memory or
    /// disk alarm during which it blocks its publishers.
    fn limit(&mut self) -> Option<String> {
        None
    }

    /// Looks whether the server still answers on the session that was opened, at the settings that were made then: not so
    /// behind a pooler that hands sessions on. Called at the end of a trial, after its last messages were settled.
    ///
    /// # Errors
    /// What has changed, in words. A connection that does not answer proves nothing.
    fn check(&mut self) -> impl Future<Output = Result<(), String>> {
        async { Ok(()) }
    }
}

/// One consumer's connection: the timed operations.
pub trait Subscriber {
    /// Takes the next message, and waits at most `patience` for it: [`Attempt::Refused`] if none came. Messages are
    /// in the consumer's hands, unacknowledged, until [`settle`](Subscriber::settle); with [`Consume::Auto`] they
    /// are gone from the queue.
    fn take(&mut self, patience: Duration, received: &mut ReceivedMessage) -> impl Future<Output = Attempt>;

    /// Acknowledges every message that was taken since the last call, and commits that if it is part of a
    /// transaction. Not called with [`Consume::Auto`].
    ///
    /// # Errors
    /// [`Attempt::Unknown`] if the messages may be delivered again or not, as after an acknowledgement without an answer; else
    /// the store cannot have acknowledged any of them. The connection is then not used any more.
    fn settle(&mut self) -> impl Future<Output = Result<AckAnswer, Attempt>>;

    /// How far those acknowledgements have come that were no more than [sent](AckAnswer::Sent), also after the connection has
    /// ended.
    fn progress(&mut self) -> AckProgress {
        AckProgress::default()
    }

    /// Asks for no more messages. Those that have been handed out already can still be taken, where they would
    /// otherwise be lost.
    fn stop(&mut self) -> impl Future<Output = Result<(), Fault>> {
        async { Ok(()) }
    }

    /// Closes the connection in an orderly way, where the store would otherwise notice only later that it is gone,
    /// and withhold the messages that it holds from others until then.
    fn close(&mut self) -> impl Future<Output = ()> {
        async {}
    }

    /// Looks whether the server still answers on the session that was opened, at the settings that were made then: not so
    /// behind a pooler that hands sessions on. Called at the end of a trial, after its last messages were settled.
    ///
    /// # Errors
    /// What has changed, in words. A connection that does not answer proves nothing.
    fn check(&mut self) -> impl Future<Output = Result<(), String>> {
        async { Ok(()) }
    }
}

/// A producer's operation as data, for a store in another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PublisherOperation {
    /// [`Publisher::send`].
    Send(Message),
    /// [`Publisher::settle`].
    Settle,
    /// [`Publisher::close`].
    Close,
}

/// What is said of a producer's messages after an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// The messages that have ended.
    pub ended: Vec<Completion>,
    /// The same as [`Publisher::limit`].
    pub limit: Option<String>,
}

impl PublisherOperation {
    /// Does it on this connection. The attempt is unknown if the connection is lost.
    pub(crate) async fn perform(self, connection: &mut impl Publisher) -> Reply<Published> {
        let mut ended = Vec::new();
        let done = match self {
            Self::Send(message) => connection.send(&message).await,
            Self::Settle => connection.settle(&mut ended).await,
            Self::Close => {
                connection.close().await;
                Ok(())
            }
        };
        let published = Published { ended, limit: connection.limit() };
        Reply::new(attempt(done), published, Duration::ZERO)
    }
}

/// A consumer's operation as data, for a store in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubscriberOperation {
    /// [`Subscriber::take`].
    Take {
        /// How long to wait for a message at most, in nanoseconds.
        patience_ns: u64,
    },
    /// [`Subscriber::settle`].
    Settle,
    /// [`Subscriber::stop`].
    Stop,
    /// [`Subscriber::close`].
    Close,
}

/// What a consumer's operation has brought.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consumed {
    /// The message that was taken.
    pub message: Option<ReceivedMessage>,
    /// How far the acknowledgement has come that was asked for.
    pub acknowledged: Option<AckAnswer>,
}

impl SubscriberOperation {
    /// Does it on this connection. The attempt is unknown if the connection is lost.
    pub(crate) async fn perform(self, connection: &mut impl Subscriber) -> Reply<Consumed> {
        let mut consumed = Consumed::default();
        let attempt = match self {
            Self::Take { patience_ns } => {
                let mut received = ReceivedMessage::default();
                let attempt = connection.take(Duration::from_nanos(patience_ns), &mut received).await;
                consumed.message = Some(received).filter(|_| attempt == Attempt::Ok);
                attempt
            }
            Self::Settle => match connection.settle().await {
                Ok(acknowledged) => {
                    consumed.acknowledged = Some(acknowledged);
                    Attempt::Ok
                }
                Err(attempt) => attempt,
            },
            Self::Stop => attempt(connection.stop().await),
            Self::Close => {
                connection.close().await;
                Attempt::Ok
            }
        };
        Reply::new(attempt, consumed, Duration::ZERO)
    }
}

fn attempt(done: Result<(), Fault>) -> Attempt {
    done.map_or_else(Attempt::Unknown, |()| Attempt::Ok)
}

/// Opens connections of producers and consumers.
pub trait Connector: Send + 'static {
    /// A producer's connection.
    type Publisher: Publisher;
    /// A consumer's connection.
    type Subscriber: Subscriber;

    /// Opens a producer's connection.
    ///
    /// # Errors
    /// Why the connection could not be opened, in the store's words.
    fn publisher(&self) -> impl Future<Output = Result<Self::Publisher, String>>;

    /// Opens a consumer's connection.
    ///
    /// # Errors
    /// Why the connection could not be opened, in the store's words.
    fn subscriber(&self) -> impl Future<Output = Result<Self::Subscriber, String>>;
}

/// The operations that a store's crate implements; [`QueueStore`] follows from them.
pub trait QueueAdapter: Send + Sync {
    /// The type that opens its connections.
    type Connector: Connector;

    /// A connector to the trial's queue.
    fn connector(&self, place: &Place, wanted: &Requirements) -> Self::Connector;

    /// Creates the trial's queue.
    ///
    /// # Errors
    /// A queue of that name exists already, or the store refuses these requirements.
    fn declare<'a>(&'a self, place: &'a Place, wanted: &'a Requirements) -> Task<'a, Result<(), StoreError>>;

    /// Version, settings and durability level: read back from the queue where they belong to the queue; otherwise as
    /// `server`, which was read back from the server.
    fn settings<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        server: &'a EffectiveSettings,
    ) -> Task<'a, Result<EffectiveSettings, StoreError>> {
        let _ = (place, wanted);
        Box::pin(async { Ok(server.clone()) })
    }

    /// How many messages the queue holds, as the store reports it while we have no connection open. Zero where the
    /// store reports that there is no such queue, because it was lost with its server. A store that cannot tell
    /// returns an error.
    fn depth<'a>(&'a self, place: &'a Place, wanted: &'a Requirements)
    -> Task<'a, Result<Depth, StoreError>>;

    /// What shows, once the queue is empty, that the store itself has taken messages out of it, because its administrator has it do
    /// so: in words, with the remedy. None where nothing shows that.
    fn dropped<'a>(&'a self, place: &'a Place) -> Task<'a, Option<String>> {
        let _ = place;
        Box::pin(async { None })
    }

    /// Removes the trial's queue.
    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>>;

    /// Whether each consumer is promised the messages of one producer in the order in which they were published,
    /// except for repeated deliveries.
    fn keeps_order(&self, wanted: &Requirements) -> bool;

    /// The requirements with which the backlog is loaded fastest.
    fn filling(&self, wanted: &Requirements) -> Requirements {
        let delivery = Delivery { ack: Ack::Confirm, in_flight: 1000, ..wanted.delivery };
        Requirements { delivery, ..*wanted }
    }

    /// The requirements with which the rest of the queue is read fastest, without losing any message.
    fn draining(&self, wanted: &Requirements) -> Requirements {
        let wanted = wanted.in_bulk();
        Requirements { delivery: Delivery { consume: Consume::Ack, ..wanted.delivery }, ..wanted }
    }
}

/// The untimed steps before and after a trial.
pub trait QueueStore: Send + Sync {
    /// Creates the queue and loads the scenario's backlog into it, counting its messages in `loaded`.
    fn load<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        scenario: &'a Scenario,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>>;

    /// The same as [`QueueAdapter::settings`].
    fn settings<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        server: &'a EffectiveSettings,
    ) -> Task<'a, Result<EffectiveSettings, StoreError>>;

    /// A task for the engine that runs one client of the trial: a producer or a consumer, by its index.
    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask;

    /// Serves one producer of the trial in a process of the store's own; none where the store is there already.
    fn serve_publisher(&self, _place: &Place, _wanted: &Requirements) -> Option<Served> {
        None
    }

    /// The same for a consumer.
    fn serve_subscriber(&self, _place: &Place, _wanted: &Requirements) -> Option<Served> {
        None
    }

    /// The same as [`QueueAdapter::keeps_order`].
    fn is_ordered(&self, wanted: &Requirements) -> bool;

    /// Consumes the rest of the queue, into the scenario's ledger, and returns how many messages it still holds
    /// then: none, except for messages that the store does not hand out.
    fn drain<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        scenario: &'a Scenario,
    ) -> Task<'a, Result<Depth, StoreError>>;

    /// The same as [`QueueAdapter::dropped`].
    fn dropped<'a>(&'a self, place: &'a Place) -> Task<'a, Option<String>> {
        let _ = place;
        Box::pin(async { None })
    }

    /// Removes the trial's queue.
    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>>;
}

// the clients' loops are compiled in the store's crate, where it makes a `&dyn QueueStore` of itself
impl<T: QueueAdapter> QueueStore for T {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        scenario: &'a Scenario,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.declare(place, wanted).await?;
            if scenario.ledger.backlog() == 0 {
                return Ok(());
            }
            let wanted = self.filling(wanted);
            drain::fill(&self.connector(place, &wanted), &wanted, scenario, loaded).await
        })
    }

    fn settings<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        server: &'a EffectiveSettings,
    ) -> Task<'a, Result<EffectiveSettings, StoreError>> {
        QueueAdapter::settings(self, place, wanted, server)
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        client::task(self.connector(place, wanted), scenario, *wanted, self.keeps_order(wanted))
    }

    fn serve_publisher(&self, place: &Place, wanted: &Requirements) -> Option<Served> {
        Some(hosted::serve_publisher(self.connector(place, wanted)))
    }

    fn serve_subscriber(&self, place: &Place, wanted: &Requirements) -> Option<Served> {
        Some(hosted::serve_subscriber(self.connector(place, wanted)))
    }

    fn is_ordered(&self, wanted: &Requirements) -> bool {
        self.keeps_order(wanted)
    }

    fn drain<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        scenario: &'a Scenario,
    ) -> Task<'a, Result<Depth, StoreError>> {
        Box::pin(async move {
            let wanted = self.draining(wanted);
            let depth = || self.depth(place, &wanted);
            drain::drain(&self.connector(place, &wanted), &wanted, scenario, depth).await
        })
    }

    fn dropped<'a>(&'a self, place: &'a Place) -> Task<'a, Option<String>> {
        QueueAdapter::dropped(self, place)
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        QueueAdapter::unload(self, place)
    }
}
