//! What the engine asks of a client.

use std::{future::Future, pin::Pin};

use crate::{Attempt, Outcome, Seat};

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

    /// Opens a connection, in place of an earlier one if there was any.
    ///
    /// # Errors
    /// Why it could not be opened, in the store's words.
    fn connect(&mut self) -> impl Future<Output = Result<(), String>>;
}

/// A client that is ready to be seated in a thread: builds its future there, so that neither the
/// client nor its connection need cross threads. Static dispatch is inside, dynamic at this edge.
pub type ClientTask = Box<dyn FnOnce(Seat) -> Pin<Box<dyn Future<Output = ()>>> + Send>;
