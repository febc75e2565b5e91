//! What the engine asks of a client.

use std::{future::Future, pin::Pin, time::Duration};

use crate::{Attempt, Fault, Outcome, Seat};

/// One logical user: one connection, at most one operation in flight.
///
/// The engine calls [`draw`](Client::draw) before the clock starts, then
/// [`attempt`](Client::attempt) as often as the operation is tried, then
/// [`account`](Client::account) after the clock has stopped.
pub trait Client {
    /// One operation, ready to be sent.
    type Operation;

    /// The next operation, or `None` when there is nothing left to do. The operation counts as
    /// invoked from here on.
    fn draw(&mut self) -> Option<Self::Operation>;

    /// Which of [`Load::operations`](crate::Load::operations) the operation is.
    fn kind(operation: &Self::Operation) -> usize;

    /// Tries the operation once. Dropped when the operation's time is up; the engine then counts it
    /// as unknown and calls [`connect`](Client::connect) before anything else.
    fn attempt(&mut self, operation: &Self::Operation) -> impl Future<Output = Attempt>;

    /// Takes note of how the operation ended.
    fn account(&mut self, operation: Self::Operation, outcome: Outcome);

    /// A time that ended with the last operation and is not its own: which of
    /// [`Load::spans`](crate::Load::spans), and its nanoseconds. Asked for after
    /// [`account`](Client::account).
    fn span(&mut self) -> Option<(usize, u64)> {
        None
    }

    /// How long the last operation waited for locks that other clients held, as far as the client knows. Asked for
    /// after [`account`](Client::account).
    fn lock_wait(&mut self) -> Duration {
        Duration::ZERO
    }

    /// Lets go of what others may wait for, as this client is about to wait for them. Called once, after the
    /// warm-up, unless the connection was given up.
    fn pause(&mut self) -> impl Future<Output = ()> {
        async {}
    }

    /// Brings to its end what the last operation left open. Called once, when nothing more is drawn, unless the
    /// connection was given up: what was not answered on it stays unknown.
    fn finish(&mut self) -> impl Future<Output = ()> {
        async {}
    }

    /// Opens a connection, in place of an earlier one if there was any.
    ///
    /// # Errors
    /// Why it could not be opened, in the store's words.
    fn connect(&mut self) -> impl Future<Output = Result<(), String>>;
}

/// A client with several operations in flight on its one connection: one that does not wait for each answer
/// before it sends the next.
///
/// The engine calls [`draw`](Pipeline::draw) and [`send`](Pipeline::send) until [`depth`](Pipeline::depth)
/// operations are in flight, then [`settle`](Pipeline::settle) until one of them has ended. The time of each
/// runs from before it is sent until it is known to have ended.
pub trait Pipeline {
    /// One operation, ready to be sent.
    type Operation;

    /// The most operations that may be in flight, at least 1.
    fn depth(&self) -> usize;

    /// Whether operations are to be settled whenever nothing more is due, and not only once all are in flight
    /// that may be. The future of [`settle`](Pipeline::settle) may then be dropped while it waits, and nothing
    /// may be lost by that.
    fn settles_early(&self) -> bool;

    /// The next operation, or `None` when there is nothing left to do.
    fn draw(&mut self) -> Option<Self::Operation>;

    /// Which of [`Load::operations`](crate::Load::operations) the operation is.
    fn kind(operation: &Self::Operation) -> usize;

    /// Starts the operation. What is sent on a connection is numbered from 0.
    ///
    /// # Errors
    /// The connection is gone: all that is in flight is unknown then.
    fn send(&mut self, operation: &Self::Operation) -> impl Future<Output = Result<(), Fault>>;

    /// Sees that all that was sent is on its way, and waits until at least one more operation has ended.
    ///
    /// # Errors
    /// The connection is gone. What is in `ended` has ended; the rest of what is in flight is unknown.
    fn settle(&mut self, ended: &mut Vec<Completion>) -> impl Future<Output = Result<(), Fault>>;

    /// Takes note of how the operation ended.
    fn account(&mut self, operation: Self::Operation, outcome: Outcome);

    /// Opens a connection, in place of an earlier one if there was any.
    ///
    /// # Errors
    /// Why it could not be opened, in the store's words.
    fn connect(&mut self) -> impl Future<Output = Result<(), String>>;

    /// Closes the connection in order. Called once, when nothing more is drawn and nothing is in flight, unless the
    /// connection was given up.
    fn finish(&mut self) -> impl Future<Output = ()> {
        async {}
    }
}

/// An operation of a [`Pipeline`] that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Its number on its connection, from 0.
    pub number: u64,
    /// How it ended. There is no second attempt; an unknown one costs the connection only if the pipeline says
    /// so.
    pub attempt: Attempt,
}

/// A client that is ready to be seated in a thread: builds its future there, so that neither the
/// client nor its connection need cross threads. Static dispatch is inside, dynamic at this edge.
pub type ClientTask = Box<dyn FnOnce(Seat) -> Pin<Box<dyn Future<Output = ()>>> + Send>;
