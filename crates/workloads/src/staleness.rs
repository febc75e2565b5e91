//! How old the reads of a trial were whose members need not be the leader: told from the ledger alone, without asking the store.

#![warn(missing_docs)]

use acidtest_engine::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How old a trial's reads were, measured against what was acknowledged before each of them began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Staleness {
    /// Reads of single records that were compared with the ledger.
    pub reads: u64,
    /// Of those, how many a member answered that led when the client connected to it.
    pub at_leader: u64,
    /// Reads that missed something that was acknowledged before they began.
    pub stale: u64,
    /// Acknowledged versions of the record that a stale read missed. An insert that was not found counts as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Spread>,
    /// How old, in milliseconds, when a stale read began, the oldest acknowledged version was that it missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub milliseconds: Option<Spread>,
    /// Reads that missed an acknowledged write of the same client.
    pub own_writes_missed: u64,
    /// Reads that found an older version than the same client had read before.
    pub went_back: u64,
}

/// What stale reads missed: half of them no more than the median, 99 of a hundred no more than the 99th percentile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The highest.
    pub max: f64,
}

impl Spread {
    /// That of what was recorded, in units of so many; none of nothing.
    #[allow(clippy::cast_precision_loss)] // three digits are recorded
    pub(crate) fn of(recorded: &Histogram, unit: f64) -> Option<Self> {
        let at = |value: u64| value as f64 / unit;
        let quantile = |share: f64| at(recorded.value_at_quantile(share));
        (!recorded.is_empty()).then(|| Self {
            p50: quantile(0.5),
            p99: quantile(0.99),
            max: at(recorded.max()),
        })
    }
}
