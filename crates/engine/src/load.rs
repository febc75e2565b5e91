//! The load of a trial: schedule, length, retries and timeouts.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A part of a trial. The measured part is recorded, the warm-up is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// What comes before the measured part.
    WarmUp,
    /// What is recorded, for as long as [`Extent`] says.
    Measured,
}

/// When operations are due.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Arrivals {
    /// Closed loop: a client starts its next operation when the last one has ended. Response time
    /// equals service time.
    Closed,
    /// Open loop: operations at even distances, this many per second over all clients.
    Constant(f64),
    /// Open loop: a Poisson process, this many operations per second on average over all clients.
    Poisson(f64),
}

/// How long the measured part lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extent {
    /// For this long; operations in flight at the end are waited for and recorded.
    Time(Duration),
    /// Until all clients on the schedule have done this many operations, or have nothing left to draw.
    Operations(u64),
}

/// The way to go on when the store refuses an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnRefused {
    /// The refusal is the operation's outcome.
    Count,
    /// The client waits this long and tries again, until the operation's timeout.
    Retry(Duration),
}

/// The load of a trial: when operations are due, how long it lasts, and what happens to an operation that does not
/// succeed at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Load {
    /// Names of the operations, indexed by [`Client::kind`](crate::Client::kind). Not part of what is written: they
    /// are the workload's.
    #[serde(skip)]
    pub operations: &'static [&'static str],
    /// Names of the spans, indexed by [`Client::span`](crate::Client::span): times that belong to no single
    /// operation. Not part of what is written either.
    #[serde(skip)]
    pub spans: &'static [&'static str],
    /// When operations are due.
    pub arrivals: Arrivals,
    /// How many clients are on the schedule: the first of them, in order of index; all if `None`. The arrival rate
    /// and the number of operations are for these clients only. Every other client begins its next operation as
    /// soon as its last one has ended: until the end of the measured part or, where the extent is a number of
    /// operations, until the scheduled clients have ended and an operation of its own is not acknowledged.
    pub scheduled: Option<usize>,
    /// Clients that come and go. Each has a moment at which it comes, at even distances over this time from the beginning
    /// of the measured part; then it opens its connection, does its share of [`Extent::Operations`], one after the other,
    /// and leaves. A connection is opened in the time of the operation that needs it: an operation for which there is
    /// none in time has failed. No lost connection ends the trial, and there is no warm-up. `None`: every client is
    /// connected before the trial begins, and stays.
    pub ramp: Option<Duration>,
    /// How long clients are driven without recording before the measured part.
    pub warmup: Duration,
    /// How long the measured part lasts.
    pub extent: Extent,
    /// The time limit of an operation, all its attempts included. An operation in flight at its limit is unknown.
    pub timeout: Duration,
    /// How long opening a connection may take, from a client's turn to open its own.
    pub connect_timeout: Duration,
    /// How many times at most an operation is tried again after conflicts.
    pub max_retries: u32,
    /// The way to go on when the store refuses an operation.
    pub on_refused: OnRefused,
    /// The share of the time in which each client works, above 0 to 1; in between it rests. Below 1 only in a closed loop.
    pub duty: f64,
    /// Operating-system threads; clients are distributed over them in turn.
    pub threads: usize,
    /// Seeds the random numbers of the schedule and of the back-offs.
    pub seed: u64,
    /// How long a client keeps trying to reach a lost server before the trial ends.
    pub patience: Duration,
}

impl Load {
    /// A closed loop of the given length, with the defaults of the command line: no warm-up, 10 s timeout, 5 s to connect, 100
    /// retries, refusals counted; and one thread for each core.
    #[must_use]
    pub fn closed(operations: &'static [&'static str], extent: Extent) -> Self {
        Self {
            operations,
            spans: &[],
            arrivals: Arrivals::Closed,
            scheduled: None,
            ramp: None,
            warmup: Duration::ZERO,
            extent,
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            max_retries: 100,
            on_refused: OnRefused::Count,
            duty: 1.0,
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            seed: 1,
            patience: Duration::from_secs(10),
        }
    }
}
