//! What is compared with what: trials of one run, round by round, or runs, each of which is one unit.
//!
//! Two runs of the same differ by more than their trials say: a server starts anew, files lie elsewhere, the machine has another
//! hour. So between runs the run is the unit, and how much runs differ is seen in several of them, or not at all.

use std::collections::BTreeSet;

use acidtest_results::statistics::Difference;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::figures::{Figure, TrialFigures};
use crate::NamedResult;

/// The units whose variation the intervals of a comparison are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    /// Cells of one run: trials, compared round by round.
    Rounds,
    /// Pairs of runs: cells of the same runs, or runs of A and B that took turns.
    Pairs,
    /// Runs in no order, several on at least one side.
    Groups,
    /// One run a side: the trials of each, which do not say how much runs differ.
    Single,
}

impl Design {
    /// The design of two sides whose runs are in the order of their times.
    pub(super) fn of(a: &[NamedResult<'_>], b: &[NamedResult<'_>]) -> Self {
        let ids = |side: &[NamedResult<'_>]| -> BTreeSet<String> {
            side.iter().map(|each| each.result.run.clone()).collect()
        };
        match (ids(a) == ids(b), a.len(), b.len()) {
            (true, 1, _) => Self::Rounds,
            (true, ..) => Self::Pairs,
            (false, 1, 1) => Self::Single,
            _ if took_turns(a, b) => Self::Pairs,
            _ => Self::Groups,
        }
    }

    /// What a reader is told to do about too wide an interval.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::Rounds => "run more --trials",
            Self::Pairs | Self::Groups => "compare more runs a side",
            Self::Single => "compare several runs a side",
        }
    }

    /// The difference B − A of the logarithms of a figure, each side run by run, with its error; none where a trial lacks the
    /// figure, or a value is not positive.
    pub(super) fn difference(
        self,
        (a, b): (&[Vec<TrialFigures>], &[Vec<TrialFigures>]),
        operation: Option<&str>,
        figure: Figure,
    ) -> Option<Difference> {
        let runs = |side: &[Vec<TrialFigures>]| -> Option<Vec<Unit>> {
            side.iter().map(|trials| Unit::of(trials, operation, figure)).collect()
        };
        let trials = |side: &[Vec<TrialFigures>]| -> Option<Vec<Unit>> {
            let all = side.iter().flatten();
            all.map(|trial| Unit::of(std::slice::from_ref(trial), operation, figure)).collect()
        };
        let logs = |units: &[Unit]| units.iter().map(|unit| unit.log).collect::<Vec<_>>();
        let floor = |units: &[Unit]| {
            units.iter().map(|unit| unit.floor).sum::<f64>() / (units.len().max(1) as f64).powi(2)
        };
        let (units_a, units_b) = match self {
            Self::Rounds | Self::Single => (trials(a)?, trials(b)?),
            Self::Pairs | Self::Groups => (runs(a)?, runs(b)?),
        };
        let least = floor(&units_a) + floor(&units_b);
        if self == Self::Pairs {
            let pairs: Vec<f64> = units_b.iter().zip(&units_a).map(|(b, a)| b.log - a.log).collect();
            return Difference::of_pairs(&pairs, least);
        }
        if self == Self::Rounds {
            let trials = |side: &[Vec<TrialFigures>]| -> Vec<_> {
                side.iter().flatten().map(|trial| trial.turn).collect()
            };
            let (turns_a, turns_b) = (trials(a), trials(b));
            let twin = |turn| turns_a.iter().position(|other| other == turn);
            let pairs: Vec<f64> = turns_b
                .iter()
                .zip(&units_b)
                .filter_map(|(turn, unit)| Some(unit.log - units_a[twin(turn)?].log))
                .collect();
            return Difference::of_pairs(&pairs, least);
        }
        Difference::of_groups(&logs(&units_b), &logs(&units_a), least)
    }
}

/// A figure of a run, or of a trial.
struct Unit {
    log: f64,
    /// The variance that it has at least.
    floor: f64,
}

impl Unit {
    /// The geometric mean over the trials. Of errors it is the share of all operations, with half an error more, so that there is a
    /// ratio where one side had none (Haldane 1956), and with the variance of a count at least.
    fn of(trials: &[TrialFigures], operation: Option<&str>, figure: Figure) -> Option<Self> {
        if trials.is_empty() {
            return None;
        }
        if figure == Figure::Errors {
            let counts = trials.iter().map(TrialFigures::counts_of_errors);
            let (mut errors, mut all) = (0.5, 1.0);
            for count in counts {
                let (more, of) = count?;
                (errors, all) = (errors + more, all + of);
            }
            return Some(Self { log: (errors / all).ln(), floor: 1.0 / errors });
        }
        let logs =
            trials.iter().map(|trial| Some(trial.get(operation, figure)?).filter(|value| *value > 0.0));
        let logs: Option<Vec<f64>> = logs.map(|value| value.map(f64::ln)).collect();
        let logs = logs?;
        Some(Self { log: logs.iter().sum::<f64>() / logs.len() as f64, floor: 0.0 })
    }
}

/// Whether A and B were run alternately, so that what drifts is in both of a pair.
fn took_turns(a: &[NamedResult<'_>], b: &[NamedResult<'_>]) -> bool {
    let begun = |side: &[NamedResult<'_>], is_a: bool| -> Option<Vec<(Timestamp, bool)>> {
        side.iter().map(|each| Some((started(each)?, is_a))).collect()
    };
    let (Some(mut all), Some(of_b)) = (begun(a, true), begun(b, false)) else { return false };
    all.extend(of_b);
    all.sort();
    a.len() == b.len() && all.chunks(2).all(|pair| matches!(pair, [one, other] if one.1 != other.1))
}

/// When a run was begun; none where its result does not say it in a way that is understood.
pub(super) fn started(run: &NamedResult<'_>) -> Option<Timestamp> {
    run.result.started.parse().ok()
}
