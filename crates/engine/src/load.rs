//! How a trial is driven.

use std::time::Duration;

/// When operations are due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Closed loop: a client starts its next operation when the last one has ended. Response time
    /// equals service time.
    Closed,
    /// Open loop: evenly spaced, so many a second over all clients.
    Constant(f64),
    /// Open loop: a Poisson process, so many a second on average over all clients.
    Poisson(f64),
}

/// How long the measured part lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// So long; what is in flight at the end is waited for and recorded.
    Time(Duration),
    /// So many operations over all clients on the schedule, or until they have nothing left to draw.
    Operations(u64),
}

/// What happens when the store refuses an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRefused {
    /// The refusal is the answer.
    Count,
    /// Wait so long and try again, until the operation's time is up.
    Retry(Duration),
}

/// How a trial is driven: schedule, length, patience.
#[derive(Clone, Debug)]
pub struct Load {
    /// Names of the operations, indexed by [`Client::kind`](crate::Client::kind).
    pub operations: &'static [&'static str],
    /// Names of the spans, indexed by [`Client::span`](crate::Client::span): times that are no operation's own.
    pub spans: &'static [&'static str],
    /// When operations are due.
    pub arrivals: Arrivals,
    /// How many clients are on the schedule: the first so many; all if none. It is to them that arrivals and a number
    /// of operations are dealt out. The others begin their next operation whenever the last one has ended: to the
    /// end of the measured part, or, where that is a number of operations, until those are done and the others' own
    /// come to nothing.
    pub scheduled: Option<usize>,
    /// Driven but not recorded, before the measured part.
    pub warmup: Duration,
    /// The measured part.
    pub extent: Extent,
    /// An operation that takes longer, with all its attempts, ends: unknown if it is in flight.
    pub timeout: Duration,
    /// How often an operation is tried again after a conflict.
    pub max_retries: u32,
    /// What a refusal means.
    pub on_refused: OnRefused,
    /// Operating-system threads; clients are dealt out over them in turn.
    pub threads: usize,
    /// Seeds the schedule's and the back-offs' random numbers.
    pub seed: u64,
    /// How long a client tries to reach a server again before the trial ends.
    pub patience: Duration,
}

impl Load {
    /// A closed loop of the given length, with the defaults of the command line: no warm-up, 10 s
    /// timeout, 100 retries, refusals counted, one thread a core.
    #[must_use]
    pub fn closed(operations: &'static [&'static str], extent: Extent) -> Self {
        Self {
            operations,
            spans: &[],
            arrivals: Arrivals::Closed,
            scheduled: None,
            warmup: Duration::ZERO,
            extent,
            timeout: Duration::from_secs(10),
            max_retries: 100,
            on_refused: OnRefused::Count,
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            seed: 1,
            patience: Duration::from_secs(10),
        }
    }
}
