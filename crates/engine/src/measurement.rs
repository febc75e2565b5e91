//! The measurement of a trial: times, counts and rates.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Histogram, Outcome, Stop};

/// Service and response times of one operation and outcome, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latency {
    /// From sending the operation to its answer, with all its attempts and the waits between them.
    pub service: Histogram,
    /// From the moment at which the schedule meant the operation to start, to its answer. `None` in a closed loop,
    /// where it equals the service time.
    pub response: Option<Histogram>,
}

impl Latency {
    /// The response times; in a closed loop the service times, which equal them.
    #[must_use]
    pub fn response(&self) -> &Histogram {
        self.response.as_ref().unwrap_or(&self.service)
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        add(&mut self.service, &other.service);
        match (&mut self.response, &other.response) {
            (Some(mine), Some(theirs)) => add(mine, theirs),
            (None, Some(theirs)) => self.response = Some(theirs.clone()),
            (_, None) => {}
        }
    }
}

/// Adds one histogram to another. Both resize themselves and have the same precision, so no value can be out of
/// range.
pub(crate) fn add(into: &mut Histogram, from: &Histogram) {
    let added = into.add(from);
    debug_assert!(added.is_ok(), "{added:?}");
}

/// Counts and times of one kind of operation.
#[derive(Clone, Debug, Default)]
pub struct OperationStats {
    /// The operation's name, from [`Load::operations`](crate::Load::operations).
    pub name: &'static str,
    /// Service and response times of every operation that began in the measured part, by outcome.
    pub latency: BTreeMap<Outcome, Latency>,
    /// Operations acknowledged before the measured part ended: those that throughput counts.
    pub ok_in_time: u64,
    /// The time over which the operation's rate is taken: the measured part. Where the extent is a number of
    /// operations and clients on the schedule do this kind, it ends when the last scheduled operation has ended.
    pub lasted: Duration,
    /// Whether clients on the schedule do this kind of operation.
    pub(crate) is_scheduled: bool,
    /// Attempts that lost a conflict with another client.
    pub conflicts: u64,
    /// Attempts that the store refused.
    pub refusals: u64,
    /// Attempts after an operation's first one, whatever the reason.
    pub retries: u64,
    /// Nanoseconds that acknowledged operations spent on attempts that lost a conflict, with the waits after them.
    pub conflict_time: u64,
    /// Nanoseconds that acknowledged operations spent on attempts that the store refused, with the waits after
    /// them.
    pub refusal_time: u64,
    /// Nanoseconds that acknowledged operations waited for locks that other clients held, as far as clients know.
    pub lock_time: u64,
}

impl OperationStats {
    /// Whether there was at least one operation of this kind.
    #[must_use]
    pub fn was_tried(&self) -> bool {
        !self.latency.is_empty() || self.retries > 0
    }

    /// How many operations of this kind had the outcome.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.latency.get(&outcome).map_or(0, |latency| latency.service.len())
    }

    /// Service and response times of acknowledged operations; `None` if there were none.
    #[must_use]
    pub fn ok(&self) -> Option<&Latency> {
        self.latency.get(&Outcome::Ok)
    }
}

/// Times from one event to another that belong to no single operation.
#[derive(Clone, Debug)]
pub struct SpanStats {
    /// The span's name, from [`Load::spans`](crate::Load::spans).
    pub name: &'static str,
    /// The times, in nanoseconds.
    pub times: Histogram,
}

/// How many of one kind of operation ended in one second, by outcome.
pub type SecondCounts = [u64; Outcome::ALL.len()];

/// One second of the measured part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Second {
    /// Number of the second within the measured part, from 0. An operation is counted in the second in which it
    /// ended.
    pub second: u64,
    /// Counts by operation, in the order of [`Load::operations`](crate::Load::operations).
    pub counts: Vec<SecondCounts>,
    /// Median service time of acknowledged operations, in nanoseconds; 0 if there were none.
    pub p50: u64,
    /// 99th percentile of the same service times, in nanoseconds; 0 if there were none.
    pub p99: u64,
    /// Longest of the same service times, in nanoseconds; 0 if there were none.
    pub max: u64,
}

impl Second {
    /// A second in which no operation ended.
    pub(crate) fn empty(second: u64, operations: usize) -> Self {
        Self { second, counts: vec![SecondCounts::default(); operations], p50: 0, p99: 0, max: 0 }
    }
}

/// How many operations were due, and how many of those were started and ended, over all kinds of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrivalCounts {
    /// Operations that were due in the measured part.
    pub offered: u64,
    /// Operations that were sent.
    pub started: u64,
    /// Operations that ended, whatever their outcome.
    pub completed: u64,
    /// Of those started: operations that a client took up only after they were due, because every client was busy.
    pub late: u64,
    /// Operations that were due and never started, because every client was busy until the end.
    pub dropped: u64,
}

/// The measurement of a trial, without its warm-up.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Counts and times by operation, in the order of [`Load::operations`](crate::Load::operations).
    pub operations: Vec<OperationStats>,
    /// Times by span, in the order of [`Load::spans`](crate::Load::spans).
    pub spans: Vec<SpanStats>,
    /// How long the measured part lasted: as long as asked for, or until it was stopped.
    pub window: Duration,
    /// Counts and percentiles of each second, without gaps.
    pub series: Vec<Second>,
    /// How many operations were due, started, late and dropped.
    pub arrived: ArrivalCounts,
    /// Connections opened in place of retired ones.
    pub reconnects: u64,
    /// The store's error messages, and how often each occurred. Beyond 20 different messages the rest are counted
    /// in one line.
    pub faults: BTreeMap<String, u64>,
    /// What was not as it should be with clients' connections at the end ([`Client::check`](crate::Client::check)), and with how
    /// many. Then nothing that was measured or found is known to be of what the trial was to be about.
    pub doubts: BTreeMap<String, u64>,
    /// Why the trial ended early, if it did.
    pub stopped: Option<Stop>,
}

impl Measurement {
    /// Acknowledged operations of one kind per second.
    #[must_use]
    pub fn rate(&self, operation: &OperationStats) -> f64 {
        operation.ok_in_time as f64 / operation.lasted.as_secs_f64().max(1e-9)
    }

    /// Acknowledged operations of all kinds per second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.operations.iter().map(|operation| self.rate(operation)).sum()
    }
}
