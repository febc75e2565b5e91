//! What other programs used of the machine meanwhile.

use crate::{CellResult, RunResult, TrialResult};

/// Share of the machine's cores from which others that use them are told. What the kernel does for a store (writing
/// back, interrupts) is in no process and counts as others', so it is not small.
pub const OTHERS: f64 = 0.25;

/// Cores that other programs used during the trials of a cell, where that is enough to disturb them.
#[must_use]
pub fn disturbing(result: &RunResult, cell: &CellResult) -> Option<f64> {
    others(cell).filter(|used| *used >= OTHERS * result.machine.cores as f64)
}

/// Cores that were used by neither the clients nor the run's servers, on average; none where the server's processes are not
/// known, as it may be on this machine.
fn others(cell: &CellResult) -> Option<f64> {
    let whole: Vec<f64> =
        cell.trials.iter().map(|trial| others_during(trial, cell)).collect::<Option<_>>()?;
    (!whole.is_empty()).then(|| whole.iter().sum::<f64>() / whole.len() as f64)
}

/// The same, during one trial.
#[must_use]
pub(crate) fn others_during(trial: &TrialResult, cell: &CellResult) -> Option<f64> {
    let used = &trial.resources;
    let server = match &used.server {
        Some(server) => server.cpu_mean,
        None if cell.embedded => 0.0,
        None => return None,
    };
    let others: f64 = used.others.values().map(|other| other.cpu_mean).sum();
    Some(used.machine.cpu_mean - used.client.cpu_mean - server - others)
}
