//! Searches for a capacity on a store that is made up.

use std::collections::BTreeMap;

use acidtest_engine::Histogram;
use acidtest_model::Lock;

use super::Grid;
use crate::{
    ArrivalFigures, Capacity, CapacityPlan, CellResult, LatencyFigures, Next, OperationFigures, RunResult,
    StopFigures, TrialResult,
};

/// A result of searches that have not begun.
pub fn begun(locks: &[Lock], slo: &[&str]) -> RunResult {
    let mut result = Grid { locks, trials: 1, ..Grid::default() }.result();
    let slo = slo.iter().map(|text| text.parse().unwrap()).collect();
    result.plan.capacity = Some(CapacityPlan { slo, ..CapacityPlan::default() });
    for cell in &mut result.cells {
        cell.prices.clear();
    }
    result
}

fn times(milliseconds: f64, count: u64) -> LatencyFigures {
    let mut histogram = Histogram::new(3).unwrap();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a positive time
    histogram.record_n((milliseconds * 1e6) as u64, count).unwrap();
    LatencyFigures::of(&histogram)
}

/// An operation with these outcomes, each with its time in milliseconds and its count.
pub fn operation(like: &OperationFigures, name: &str, ended: &[(&str, f64, u64)]) -> OperationFigures {
    let all: BTreeMap<String, LatencyFigures> = ended
        .iter()
        .map(|(outcome, milliseconds, count)| ((*outcome).to_owned(), times(*milliseconds, *count)))
        .collect();
    OperationFigures { name: name.to_owned(), service: all.clone(), response: all, ..like.clone() }
}

/// What a trial at a rate measures on a store that holds 1,000 a second: response times of 5 ms that grow as a queue's do.
pub fn at_rate(like: &TrialResult, rate: f64, round: u32) -> TrialResult {
    let milliseconds = 5.0 / (1.0 - (rate / 1000.0).min(0.999));
    let operation = |name, milliseconds| operation(&like.operations[0], name, &[("ok", milliseconds, 1000)]);
    let mut trial = TrialResult {
        rate: Some(rate),
        round,
        operations: vec![operation("capture", milliseconds), operation("release", milliseconds / 2.0)],
        arrived: ArrivalFigures { offered: 2000, started: 2000, completed: 2000, late: 0, dropped: 0 },
        ..like.clone()
    };
    trial.resources.machine.cpu_mean = trial.resources.client.cpu_mean + 3.5 * (rate / 1000.0).min(1.0);
    trial.took_seconds = 7.5;
    trial
}

/// A trial in a closed loop of 900 operations a second.
pub fn closed_loop(like: &TrialResult) -> TrialResult {
    let arrived = ArrivalFigures { offered: 9000, started: 9000, completed: 9000, late: 0, dropped: 0 };
    TrialResult { arrived, ..like.clone() }
}

/// Takes every search to its end, with trials that `change` makes others of.
pub fn searched(mut result: RunResult, change: impl Fn(f64, &mut CellResult, &mut TrialResult)) -> RunResult {
    for index in 0..result.cells.len() {
        let like = result.cells[index].trials.remove(0);
        loop {
            let cell = &result.cells[index];
            let round = u32::try_from(cell.trials.len()).unwrap() + 1;
            let trial = match result.next_probe(cell).unwrap() {
                Next::ClosedLoop => closed_loop(&like),
                Next::Probe { rate, .. } => {
                    let mut trial = at_rate(&like, rate, round);
                    change(rate, &mut result.cells[index], &mut trial);
                    trial
                }
                Next::Nothing => break,
            };
            result.cells[index].trials.push(trial);
        }
    }
    result.find_capacities().unwrap();
    result
}

/// A search for the highest rate that meets these objectives, to its end.
pub fn plain(slo: &[&str]) -> RunResult {
    searched(begun(&[Lock::Native], slo), |_, _, _| {})
}

/// What the search on the first cell found.
pub fn found(result: &RunResult) -> &Capacity {
    result.cells[0].capacity.as_ref().unwrap()
}

/// The user ended it early.
pub fn interrupted(trial: TrialResult) -> TrialResult {
    let stopped = StopFigures { reason: "interrupted".to_owned(), detail: String::new() };
    TrialResult { stopped: Some(stopped), ..trial }
}
