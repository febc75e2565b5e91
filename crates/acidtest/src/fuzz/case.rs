//! A case: a plan with a store, a clock and a seed, kept as a small file.

use std::path::Path;

use acidtest_model::ReadPolicy;
use acidtest_results::Plan;
use acidtest_store_memory::{Faults, selftest::Clock};
use serde::{Deserialize, Serialize};

use super::drive;
use acidtest_runner::Failure;

use crate::files;

/// Length of the longest case that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// Everything that a case is driven with, so that it can be replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FuzzCase {
    /// Seed of all faults in the store; the plan has a seed of its own.
    pub(crate) seed: u64,
    pub(crate) clock: Clock,
    /// Number of trials before the planted bug takes effect, so that it works on data that a sound trial has left.
    #[serde(default)]
    pub(crate) sound: u32,
    /// Time after which each trial is interrupted, in milliseconds; only by a simulated clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) halt: Option<u64>,
    /// How clients read in each cell whose reads replicas may answer, where the store has replicas that do.
    #[serde(default, skip_serializing_if = "ReadPolicy::is_leader")]
    pub(crate) reads: ReadPolicy,
    /// The faults and the planted bug of the store.
    pub(crate) store: Faults,
    pub(crate) plan: Plan,
}

impl FuzzCase {
    pub(crate) fn to_text(&self) -> String {
        // all values are plain, and in an order in which TOML can hold them
        toml::to_string(self).unwrap_or_else(|error| format!("# {error}\n"))
    }

    /// Reads a case from a file.
    ///
    /// # Errors
    /// A file that cannot be read or is no case, and a case that cannot be driven.
    pub(crate) fn load(path: &Path) -> Result<Self, Failure> {
        let unusable = |why: String| Failure::Usage(format!("cannot replay {}: {why}", path.display()));
        let text = files::read(path, LONGEST).map_err(|error| unusable(error.to_string()))?;
        let case: Self = toml::from_str(&text).map_err(|error| unusable(error.to_string()))?;
        case.check().map_err(unusable)?;
        drive::grid(&case).map_err(|failure| failure.of(&format!("cannot replay {}", path.display())))?;
        Ok(case)
    }

    /// Checks the parts of a case that a plan's own check does not cover.
    fn check(&self) -> Result<(), String> {
        if self.plan.stores != ["memory"] {
            return Err("a case is driven on the reference store: stores must be [\"memory\"]".to_owned());
        }
        if self.halt.is_some() && self.clock != Clock::Simulated {
            return Err("halt has no effect but by the simulated clock".to_owned());
        }
        let is_kept = self.store.replicas == Some(self.reads.consistency);
        if !self.reads.is_leader() && !is_kept {
            return Err(
                "the consistency of reads must be what the store's replicas are told to keep".to_owned()
            );
        }
        self.store.check()
    }
}
