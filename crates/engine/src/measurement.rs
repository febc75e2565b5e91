//! What a trial measured.

use std::{collections::BTreeMap, time::Duration};

use crate::{Histogram, Outcome, Stop};

/// Service and response times of one operation and outcome, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latency {
    /// From sending the operation to its answer, over all its attempts and waits.
    pub service: Histogram,
    /// From when the schedule meant it to start, to its answer. `None` in a closed loop, where it
    /// equals the service time.
    pub response: Option<Histogram>,
}

impl Latency {
    /// From when the schedule meant it to start, to its answer.
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

/// Adds one histogram into another. Both resize themselves and have the same precision, so nothing
/// can be out of range.
pub(crate) fn add(into: &mut Histogram, from: &Histogram) {
    let added = into.add(from);
    debug_assert!(added.is_ok(), "{added:?}");
}

/// What happened to one kind of operation.
#[derive(Clone, Debug, Default)]
pub struct OperationStats {
    /// Its name.
    pub name: &'static str,
    /// Times, by outcome, of every operation that began in the measured part.
    pub latency: BTreeMap<Outcome, Latency>,
    /// Acknowledged before the measured part ended: what throughput is made of.
    pub ok_in_time: u64,
    /// How long there was any to do: the measured part, but where a number of operations was asked for and clients on
    /// the schedule do these, no longer than until the last of them had ended.
    pub lasted: Duration,
    /// Whether clients on the schedule do these.
    pub(crate) is_scheduled: bool,
    /// Attempts that lost against another client.
    pub conflicts: u64,
    /// Attempts that the store refused.
    pub refusals: u64,
    /// Attempts after the first one, for whatever reason.
    pub retries: u64,
    /// Nanoseconds of acknowledged operations before their last attempt: attempts that lost against another client,
    /// with the waits after them.
    pub conflict_time: u64,
    /// The same, of attempts that the store refused.
    pub refusal_time: u64,
    /// Nanoseconds in which acknowledged operations waited for locks that other clients held, as far as clients know.
    pub lock_time: u64,
}

impl OperationStats {
    /// Whether there was any such operation.
    #[must_use]
    pub fn was_tried(&self) -> bool {
        !self.latency.is_empty() || self.retries > 0
    }

    /// How many ended so.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.latency.get(&outcome).map_or(0, |latency| latency.service.len())
    }

    /// Times of acknowledged operations, if there were any.
    #[must_use]
    pub fn ok(&self) -> Option<&Latency> {
        self.latency.get(&Outcome::Ok)
    }
}

/// Times that are no operation's own: from one event to another.
#[derive(Clone, Debug)]
pub struct SpanStats {
    /// Its name.
    pub name: &'static str,
    /// The times in nanoseconds.
    pub times: Histogram,
}

/// How many of one kind of operation ended in one second, by outcome.
pub type SecondCounts = [u64; Outcome::ALL.len()];

/// One second of the measured part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Second {
    /// Which second, from 0. Operations are counted in the second in which they ended.
    pub second: u64,
    /// By operation, in the order of [`Load::operations`](crate::Load::operations).
    pub counts: Vec<SecondCounts>,
    /// Median service time of acknowledged operations, in nanoseconds; 0 if there were none.
    pub p50: u64,
    /// 99th percentile of the same.
    pub p99: u64,
    /// The largest.
    pub max: u64,
}

impl Second {
    /// A second in which nothing ended.
    pub(crate) fn empty(second: u64, operations: usize) -> Self {
        Self { second, counts: vec![SecondCounts::default(); operations], p50: 0, p99: 0, max: 0 }
    }
}

/// What the schedule asked for and what became of it, over all operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// Due in the measured part.
    pub offered: u64,
    /// Sent.
    pub started: u64,
    /// Ended, however.
    pub completed: u64,
    /// Of those started: claimed after they were due, because every client was busy.
    pub late: u64,
    /// Due, but never started, because every client was busy until the end.
    pub dropped: u64,
}

/// What a trial measured, after its warm-up.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// By operation, in the order of [`Load::operations`](crate::Load::operations).
    pub operations: Vec<OperationStats>,
    /// In the order of [`Load::spans`](crate::Load::spans).
    pub spans: Vec<SpanStats>,
    /// How long the measured part lasted: as asked for, or until it was stopped.
    pub window: Duration,
    /// Second by second.
    pub series: Vec<Second>,
    /// What was due and what became of it.
    pub arrived: Arrived,
    /// Connections opened in place of retired ones.
    pub reconnects: u64,
    /// What went wrong, in the store's words, and how often; the most varied faults share one line.
    pub faults: BTreeMap<String, u64>,
    /// Why it ended before its time, if it did.
    pub stopped: Option<Stop>,
}

impl Measurement {
    /// Acknowledged operations of one kind a second.
    #[must_use]
    pub fn rate(&self, operation: &OperationStats) -> f64 {
        operation.ok_in_time as f64 / operation.lasted.as_secs_f64().max(1e-9)
    }

    /// Acknowledged operations a second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.operations.iter().map(|operation| self.rate(operation)).sum()
    }
}
