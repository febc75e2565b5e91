//! From a history to a report.

use std::collections::hash_map::Entry;

use crate::{
    Anomaly, Error, Example, Outcome, Source,
    cycles::{self, Cycles, Found},
    example,
    graph::Graph,
    hash::Map,
    observed::{NONE, Observed, Windows},
    witness::Witness,
};

/// A time in which the store may have lost what it had acknowledged, such as from a kill to the first answer after it
/// (nanoseconds on the clock of the history). What is before and what is after are checked apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disruption {
    /// The last moment at which the store was certainly undisturbed.
    pub from: u64,
    /// The first moment at which it certainly was so again.
    pub until: u64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Committed transactions.
    pub committed: u64,
    /// Aborted transactions.
    pub aborted: u64,
    /// Transactions of unknown outcome, including those that count as committed.
    pub unknown: u64,
    /// Transactions of unknown outcome of which a committed one saw a write, so that they count as committed.
    pub recovered: u64,
    /// Committed transactions that span a disruption, and so prove nothing.
    pub spanning: u64,
    /// Transactions that the history lacks, because it had reached its limit.
    pub left_out: u64,
    /// Values that were read and whose writer the history lacks.
    pub unattributed: u64,
    /// Whether every search for further cycles came to its end. If not, there may be more cycles than were counted; whether
    /// there are any is always certain.
    pub exhaustive: bool,
    /// What is wrong, the worst first.
    pub findings: Vec<Finding>,
}

/// An anomaly that occurred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The anomaly.
    pub anomaly: Anomaly,
    /// How often it occurred: [`Anomaly::unit`] says what was counted. Cycles of an anomaly share no transaction with each other,
    /// nor with a cycle that says more.
    pub count: u64,
    /// Whether the search for more was cut short, so that there may be more.
    pub is_at_least: bool,
    /// The smallest occurrence that was found.
    pub example: Example,
}

impl Report {
    /// The finding of this anomaly, if it occurred.
    #[must_use]
    pub fn finding(&self, anomaly: Anomaly) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.anomaly == anomaly)
    }
}

/// Checks a history. The disruptions of the store may come in any order.
///
/// # Errors
/// The history cannot be read, a value was written twice, or the transactions of a session did not start
/// in the order of their numbers.
pub fn check(source: &mut dyn Source, disruptions: &[Disruption]) -> Result<Report, Error> {
    let windows = disruptions.iter().map(|disruption| (disruption.from, disruption.until)).collect();
    let observed = Observed::new(source, Windows::new(windows))?;
    let after = next_in_session(&observed)?;
    let Found { cycles, exhaustive } = cycles::find(&Graph::of(&observed, &after));

    let direct = observed
        .direct
        .iter()
        .map(|(&anomaly, direct)| (anomaly, direct.count(), false, direct.witness.clone()));
    let cyclic = cycles.into_iter().map(|((order, shape), Cycles { count, is_at_least, shortest })| {
        (Anomaly::Cycle(shape, order), count, is_at_least, Witness::Cycle(shortest))
    });
    let found: Vec<_> = direct.chain(cyclic).collect();
    let witnesses: Vec<_> = found.iter().map(|(anomaly, .., witness)| (*anomaly, witness)).collect();
    let examples = example::examples(source, &observed, &witnesses)?;
    let findings = found.iter().zip(examples).map(|(&(anomaly, count, is_at_least, _), example)| Finding {
        anomaly,
        count,
        is_at_least,
        example,
    });
    let findings = findings.collect();

    let headers = &observed.headers;
    let count = |outcome| headers.iter().filter(|header| header.outcome == outcome).count() as u64;
    let committed = count(Outcome::Committed);
    Ok(Report {
        committed,
        aborted: count(Outcome::Aborted),
        unknown: count(Outcome::Unknown),
        recovered: headers.iter().filter(|header| header.recovered).count() as u64,
        spanning: committed - headers.iter().filter(|header| header.is_sure()).count() as u64,
        left_out: observed.left_out,
        unattributed: observed.unattributed.len() as u64,
        exhaustive,
        findings,
    })
}

/// Of each acknowledged transaction the next one of its session, or `NONE`. A session is over with a transaction of unknown
/// outcome, because its connection is, and with a disruption.
fn next_in_session(observed: &Observed) -> Result<Vec<u32>, Error> {
    let mut after = vec![NONE; observed.headers.len()];
    // of each session the last number, and the last transaction that comes before the next
    let mut sessions: Map<(u32, u32)> = Map::default();
    for (header, node) in observed.headers.iter().zip(0..) {
        let (sequence, last) = match sessions.entry(header.session.into()) {
            Entry::Occupied(entry) => {
                let entry = entry.into_mut();
                if header.sequence <= entry.0 {
                    return Err(Error::Sequence { session: header.session, sequence: header.sequence });
                }
                (&mut entry.0, &mut entry.1)
            }
            Entry::Vacant(entry) => {
                let entry = entry.insert((header.sequence, NONE));
                (&mut entry.0, &mut entry.1)
            }
        };
        *sequence = header.sequence;
        if *last != NONE && header.counts() && observed.headers[*last as usize].epoch == header.epoch {
            after[*last as usize] = node;
        }
        match header.outcome {
            Outcome::Committed if header.is_sure() => *last = node,
            Outcome::Committed | Outcome::Unknown => *last = NONE,
            Outcome::Aborted => {}
        }
    }
    Ok(after)
}
