//! The port: what a store must be able to do to carry a queue.

use std::{future::Future, time::Duration};

use acidtest_engine::{Attempt, ClientTask, Completion, Fault};
use acidtest_model::{Effective, StoreError, Task};

use super::{Ack, Consume, Delivery, Message, Scenario, client, drain};
use crate::{LoadProgress, Place};

/// What a trial asks of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// How messages are to be delivered.
    pub delivery: Delivery,
    /// Bytes of a message.
    pub message_bytes: u32,
}

/// A message as a consumer received it. Its room is used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// Its body.
    pub body: Vec<u8>,
    /// The store's word on whether it may have been delivered before; none where a store has no such word.
    pub redelivered: Option<bool>,
}

/// How many messages a queue holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// That can be delivered.
    pub ready: u64,
    /// That were delivered and not acknowledged, those on their way to a consumer among them; where the store
    /// does not count these, consumers that may hold some.
    pub unacknowledged: u64,
}

/// Whether a store answers a consumer's acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckAnswer {
    /// It has answered: none of them must come again.
    Answered,
    /// It does not: an acknowledgement may be lost with the connection.
    Sent,
}

/// One producer's connection: the timed operations.
pub trait Publisher {
    /// Starts publishing a message. Messages are numbered from 0 on each connection. Need not write it yet.
    ///
    /// # Errors
    /// The connection is gone.
    fn send(&mut self, message: &Message) -> impl Future<Output = Result<(), Fault>>;

    /// Writes what has not been written, commits the transaction if there is one, and waits until at least one
    /// message has ended. With [`Ack::None`] all of them have once they are written. A message that the store
    /// says it could not route or keep has failed; one that it refuses to answer for is unknown.
    ///
    /// Its future may be dropped while it waits, where more than one message may be in flight, and nothing
    /// that it has received may be lost by that.
    ///
    /// # Errors
    /// The connection is gone. `ended` holds what has ended; the rest is unknown.
    fn settle(&mut self, ended: &mut Vec<Completion>) -> impl Future<Output = Result<(), Fault>>;

    /// Closes the connection in order, nothing being in flight: what was written without being acknowledged must
    /// not be lost by that.
    fn close(&mut self) -> impl Future<Output = ()> {
        async {}
    }

    /// What has limited this producer since it was last asked, in the store's words: a memory or disk alarm by
    /// which it blocks its publishers.
    fn limit(&mut self) -> Option<String> {
        None
    }
}

/// One consumer's connection: the timed operations.
pub trait Subscriber {
    /// Takes the next message, waiting so long for one: [`Attempt::Refused`] if none came. Messages are in the
    /// consumer's hands, unacknowledged, until [`settle`](Subscriber::settle); with [`Consume::Auto`] they are
    /// gone.
    fn take(&mut self, patience: Duration, received: &mut ReceivedMessage) -> impl Future<Output = Attempt>;

    /// Acknowledges every message that was taken since the last time, and commits that if it is part of a
    /// transaction. Not called with [`Consume::Auto`].
    ///
    /// # Errors
    /// They may be delivered again.
    fn settle(&mut self) -> impl Future<Output = Result<AckAnswer, Fault>>;

    /// Asks for no more messages. What has been handed out already is still taken, where it would be lost
    /// otherwise.
    fn stop(&mut self) -> impl Future<Output = Result<(), Fault>> {
        async { Ok(()) }
    }

    /// Closes the connection in order, where the store would only later notice that it is gone, and until then
    /// keep from others what it holds.
    fn close(&mut self) -> impl Future<Output = ()> {
        async {}
    }
}

/// Opens connections.
pub trait Connector: Send + 'static {
    /// A producer's.
    type Publisher: Publisher;
    /// A consumer's.
    type Subscriber: Subscriber;

    /// Opens a producer's connection.
    ///
    /// # Errors
    /// Why it could not, in the store's words.
    fn publisher(&self) -> impl Future<Output = Result<Self::Publisher, String>>;

    /// Opens a consumer's connection.
    ///
    /// # Errors
    /// Why it could not, in the store's words.
    fn subscriber(&self) -> impl Future<Output = Result<Self::Subscriber, String>>;
}

/// What a store's crate implements; [`QueueStore`] follows from it.
pub trait QueueAdapter: Send + Sync {
    /// Opens its connections.
    type Connector: Connector;

    /// Opens connections to the trial's queue.
    fn connector(&self, place: &Place, wanted: &Requirements) -> Self::Connector;

    /// Makes the trial's queue.
    ///
    /// # Errors
    /// One of that name that is there already, and what the store will not have.
    fn declare<'a>(&'a self, place: &'a Place, wanted: &'a Requirements) -> Task<'a, Result<(), StoreError>>;

    /// Version, settings and rung, read back from the queue where they are the queue's own; `server` is what
    /// was read back from the server.
    fn settings<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        server: &'a Effective,
    ) -> Task<'a, Result<Effective, StoreError>> {
        let _ = (place, wanted);
        Box::pin(async { Ok(server.clone()) })
    }

    /// How many messages the queue holds, as the store says once no connection of ours is open; none where the
    /// store says that there is no such queue, as of one that went with its server. A store that cannot tell is
    /// an error.
    fn depth<'a>(&'a self, place: &'a Place, wanted: &'a Requirements)
    -> Task<'a, Result<Depth, StoreError>>;

    /// Removes the queue.
    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>>;

    /// Whether each consumer is promised the messages of one producer in the order of their publishing, but for
    /// what is delivered again.
    fn keeps_order(&self, wanted: &Requirements) -> bool;

    /// How the backlog is laid in fastest.
    fn filling(&self, wanted: &Requirements) -> Requirements {
        let delivery = Delivery { ack: Ack::Confirm, in_flight: 1000, ..wanted.delivery };
        Requirements { delivery, ..*wanted }
    }

    /// How what is left is read fastest, without losing any.
    fn draining(&self, wanted: &Requirements) -> Requirements {
        let wanted = wanted.in_bulk();
        Requirements { delivery: Delivery { consume: Consume::Ack, ..wanted.delivery }, ..wanted }
    }
}

/// The untimed edge: what is done before and after a trial.
pub trait QueueStore: Send + Sync {
    /// Makes the queue and lays the scenario's backlog in it, counting it in `loaded`.
    fn load<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        scenario: &'a Scenario,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>>;

    /// See [`QueueAdapter::settings`].
    fn settings<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        server: &'a Effective,
    ) -> Task<'a, Result<Effective, StoreError>>;

    /// One client of the trial: a producer or a consumer, by its index.
    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask;

    /// Consumes what is left, into the scenario's ledger, and says what the queue still holds then: nothing, but
    /// for messages that the store does not hand out.
    fn drain<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        scenario: &'a Scenario,
    ) -> Task<'a, Result<Depth, StoreError>>;

    /// Removes the queue.
    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>>;
}

// the clients' loops are compiled where a store's crate makes a `&dyn QueueStore` of itself
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
        server: &'a Effective,
    ) -> Task<'a, Result<Effective, StoreError>> {
        QueueAdapter::settings(self, place, wanted, server)
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        client::task(self.connector(place, wanted), scenario, *wanted, self.keeps_order(wanted))
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

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        QueueAdapter::unload(self, place)
    }
}
