//! What an audit found.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether the guarantee held. Ordered by how much it says against a number: the worst of several
/// trials is their maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every invariant held, against a final state that was read back.
    Holds,
    /// It could not be told.
    Unknown,
    /// An invariant was broken, and the counts prove it.
    Broken,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Holds => "holds",
            Self::Unknown => "unknown",
            Self::Broken => "broken",
        })
    }
}

/// The ledger held against the store's final state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Audit {
    /// What it comes to.
    pub verdict: Verdict,
    /// Why it is unknown, or what the proof of a break is short of.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// What was broken, by name, each in the unit that the workload's documentation gives; all zero
    /// where it holds.
    pub counts: BTreeMap<String, u64>,
    /// What the verdict was drawn from: totals of the ledger, of the final state, and the bounds that
    /// it had to lie in.
    pub evidence: BTreeMap<String, i64>,
}

impl Audit {
    /// An audit that could not be made.
    #[must_use]
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Unknown,
            reason: Some(reason.into()),
            counts: BTreeMap::new(),
            evidence: BTreeMap::new(),
        }
    }
}

impl fmt::Display for Audit {
    /// `holds`, `broken: oversold 12, torn 1`, or `unknown: why`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verdict)?;
        let mut separator = ": ";
        if self.verdict == Verdict::Broken {
            for (name, count) in self.counts.iter().filter(|(_, count)| **count > 0) {
                write!(f, "{separator}{name} {count}")?;
                separator = ", ";
            }
        }
        if let (Verdict::Unknown, Some(reason)) = (self.verdict, &self.reason) {
            write!(f, ": {reason}")?;
        }
        Ok(())
    }
}
