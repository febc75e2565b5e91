//! The traits that a client implements for the engine to drive it.

use std::{future::Future, pin::Pin, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Attempt, ClientDriver, Fault, Outcome};

/// One logical user: one connection, at most one operation in flight.
///
/// The engine calls [`draw`](Client::draw) before the clock starts, then
/// [`attempt`](Client::attempt) as often as the operation is tried, then
/// [`account`](Client::account) after the clock has stopped: once for each operation that was drawn. What failed or was
/// not answered is not tried again.
pub trait Client {
    /// An operation that is ready to be sent.
    type Operation;

    /// The next operation, or `None` when there is nothing left to do. The operation counts as
    /// invoked from here on.
    fn draw(&mut self) -> Option<Self::Operation>;

    /// The operation's index in [`Load::operations`](crate::Load::operations).
    fn kind(operation: &Self::Operation) -> usize;

    /// Whether the store has changed something that it is to keep, once it has acknowledged the operation: a read changes
    /// nothing.
    fn changes(&self, operation: &Self::Operation) -> bool;

    /// Tries the operation once. Dropped when the operation's time is up; the engine then counts it
    /// as unknown and calls [`connect`](Client::connect) before anything else.
    fn attempt(&mut self, operation: &Self::Operation) -> impl Future<Output = Attempt>;

    /// Records in the client's own ledger how the operation ended. Called after the clock has stopped.
    fn account(&mut self, operation: Self::Operation, outcome: Outcome);

    /// A time that ended with the last operation and belongs to no single operation: its index in
    /// [`Load::spans`](crate::Load::spans), and nanoseconds. Called after [`account`](Client::account).
    fn span(&mut self) -> Option<(usize, u64)> {
        None
    }

    /// How long the last operation waited for locks that other clients held, as far as the client knows. Called
    /// after [`account`](Client::account).
    fn lock_wait(&mut self) -> Duration {
        Duration::ZERO
    }

    /// Releases everything that other clients may be waiting for, because this client is about to wait for them at
    /// the gate. Called once, after the warm-up, unless the connection was given up.
    fn pause(&mut self) -> impl Future<Output = ()> {
        async {}
    }

    /// Completes everything that the last operation left open. Called once, when nothing more is drawn, unless the
    /// connection was given up: whatever was not answered on it stays unknown.
    fn finish(&mut self) -> impl Future<Output = ()> {
        async {}
    }

    /// Looks whether the connection still is what the trial takes it for. Called once, after [`finish`](Client::finish), if the
    /// client has a connection then; nothing is timed any more.
    ///
    /// # Errors
    /// What is not, in words: whatever the trial found may have come from that. A connection that does not answer proves
    /// nothing, and is no error.
    fn check(&mut self) -> impl Future<Output = Result<(), String>> {
        async { Ok(()) }
    }

    /// Opens a connection, in place of an earlier one if there was any.
    ///
    /// # Errors
    /// Why it could not be opened, in the store's words.
    fn connect(&mut self) -> impl Future<Output = Result<(), String>>;
}

/// A client that sends its next operation before the earlier ones are answered, and so has several operations in
/// flight on its one connection. Each of them changes something that the store is to keep.
///
/// The engine calls [`draw`](Pipeline::draw) and [`send`](Pipeline::send) until [`depth`](Pipeline::depth)
/// runs from before it is sent until it is known to have ended.
pub trait Pipeline {
    /// An operation that is ready to be sent.
    type Operation;

    /// The highest number of operations that may be in flight, at least 1.
    fn depth(&self) -> usize;

    /// Whether operations are to be settled whenever no operation is due, and not only once
    /// [`depth`](Pipeline::depth) of them are in flight. The future of [`settle`](Pipeline::settle) may then be
    /// dropped while it waits, and nothing may be lost by that.
    fn settles_early(&self) -> bool;

    /// The next operation, or `None` when there is nothing left to do.
    fn draw(&mut self) -> Option<Self::Operation>;

    /// The operation's index in [`Load::operations`](crate::Load::operations).
    fn kind(operation: &Self::Operation) -> usize;

    /// Starts the operation. The operations sent on a connection are numbered from 0.
    ///
    /// # Errors
    /// The connection is lost: every operation in flight is then unknown.
    fn send(&mut self, operation: &Self::Operation) -> impl Future<Output = Result<(), Fault>>;

    /// Makes sure that everything sent is on its way, and waits until at least one more operation has ended.
    ///
    /// # Errors
    /// The connection is lost. The operations in `ended` have ended; the others in flight are unknown.
    fn settle(&mut self, ended: &mut Vec<Completion>) -> impl Future<Output = Result<(), Fault>>;

    /// Records in the client's own ledger how the operation ended.
    fn account(&mut self, operation: Self::Operation, outcome: Outcome);

    /// Opens a connection, in place of an earlier one if there was any.
    ///
    /// # Errors
    /// Why it could not be opened, in the store's words.
    fn connect(&mut self) -> impl Future<Output = Result<(), String>>;

    /// Closes the connection in an orderly way. Called once, when nothing more is drawn and nothing is in flight,
    /// unless the connection was given up.
    fn finish(&mut self) -> impl Future<Output = ()> {
        async {}
    }

    /// Looks whether the connection still is what the trial takes it for. Called once, after [`finish`](Pipeline::finish), if the
    /// client has a connection then; nothing is timed any more.
    ///
    /// # Errors
    /// What is not, in words: whatever the trial found may have come from that. A connection that does not answer proves
    /// nothing, and is no error.
    fn check(&mut self) -> impl Future<Output = Result<(), String>> {
        async { Ok(()) }
    }
}

/// An operation of a [`Pipeline`] that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// The operation's number on its connection, counted from 0.
    pub number: u64,
    /// How the operation ended. There is no second attempt; an unknown outcome costs the connection only if the
    /// pipeline says so.
    pub attempt: Attempt,
}

/// A client that is ready to be seated in a thread: builds its future there, so that neither the
/// client nor its connection need cross threads. Static dispatch is inside, dynamic at this edge.
pub type ClientTask = Box<dyn FnOnce(ClientDriver) -> Pin<Box<dyn Future<Output = ()>>> + Send>;
