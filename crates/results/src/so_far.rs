//! What the trials of a run have shown so far.

use std::fmt;

use acidtest_workloads::Verdict;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::RunResult;

/// The verdicts of all trials that are in a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SoFar {
    /// The trials.
    pub trials: u64,
    /// Those in which a promise was broken.
    pub broken: u64,
    /// Those of which it could not be told whether a promise was broken. Probes of a search are none of these: a rate that is
    /// not given is no doubt of the capacity.
    pub unknown: u64,
    /// Those in which only what nothing promised was broken, or could not be told.
    pub excused: u64,
    /// Cells that could not be run.
    pub not_run: u64,
}

impl SoFar {
    #[must_use]
    pub fn of(result: &RunResult) -> Self {
        let mut so_far = Self::default();
        let searched = result.plan.capacity.is_some();
        for cell in &result.cells {
            so_far.not_run += u64::from(cell.error.is_some());
            for trial in &cell.trials {
                so_far.trials += 1;
                let is_doubt = cell.is_promised() && !searched;
                match trial.audit.verdict {
                    _ if trial.audit.breaks_promise(&cell.without) => so_far.broken += 1,
                    Verdict::Unknown if is_doubt => so_far.unknown += 1,
                    Verdict::Unknown | Verdict::Broken if !cell.is_promised() => so_far.excused += 1,
                    _ => {}
                }
            }
        }
        so_far
    }

    /// The verdict on what was promised, as the exit status would give it; none before the first trial has ended, where
    /// nothing that was promised was tested, and where cells could not be run.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        match self {
            Self { broken: 1.., .. } => Some(Verdict::Broken),
            Self { unknown: 1.., .. } => Some(Verdict::Unknown),
            Self { not_run: 1.., .. } => None,
            Self { trials, excused, .. } if trials == excused => None,
            _ => Some(Verdict::Holds),
        }
    }
}

impl fmt::Display for SoFar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trials, broken, unknown, excused, not_run } = self;
        match (self.verdict(), not_run, excused) {
            (Some(Verdict::Broken), ..) => write!(f, "broken in {broken} of {trials} trials"),
            (Some(Verdict::Unknown), ..) => write!(f, "unknown in {unknown} of {trials} trials"),
            (Some(Verdict::Holds), _, 0) => f.write_str("holds"),
            (Some(Verdict::Holds), ..) => f.write_str("holds where promised"),
            (None, 1, _) => f.write_str("1 cell could not be run"),
            (None, 2.., _) => write!(f, "{not_run} cells could not be run"),
            (None, 0, 0) => f.write_str("none yet"),
            (None, 0, _) => f.write_str("nothing promised was tested"),
        }
    }
}

#[cfg(test)]
mod tests {
    use acidtest_model::Lock;

    use super::*;
    use crate::sample::Grid;

    #[test]
    fn a_promise_that_was_broken_counts_before_all_else() {
        // without a lock the sample breaks
        let mut result = Grid { locks: &[Lock::None, Lock::Native], trials: 2, ..Grid::default() }.result();
        let none = result.cells.iter().position(|cell| cell.lock == Lock::None).unwrap();
        let promised = result.cells.iter().position(|cell| cell.lock == Lock::Native).unwrap();
        let said = |result: &RunResult| SoFar::of(result).to_string();
        assert_eq!(said(&result), "holds where promised");
        let mut first = result.clone();
        first.cells.retain(|cell| cell.lock == Lock::None);
        assert_eq!(
            (said(&first), SoFar::of(&first).verdict()),
            ("nothing promised was tested".to_owned(), None)
        );
        first.cells[0].trials[0].audit.verdict = Verdict::Unknown;
        assert_eq!(said(&first), "nothing promised was tested", "as the exit status has it");
        first.cells.clear();
        assert_eq!(said(&first), "none yet");
        let mut away = result.clone();
        away.cells[none].error = Some("it is gone".to_owned());
        assert_eq!((said(&away), SoFar::of(&away).verdict()), ("1 cell could not be run".to_owned(), None));
        let trials = SoFar::of(&result).trials;
        result.cells[promised].trials[0].audit.verdict = Verdict::Unknown;
        assert_eq!(said(&result), format!("unknown in 1 of {trials} trials"));
        let broken = result.cells[none].trials[0].audit.clone();
        result.cells[promised].trials[1].audit = broken;
        assert_eq!(said(&result), format!("broken in 1 of {trials} trials"));
    }
}
