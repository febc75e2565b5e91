//! Time that clients wasted: on lost and refused attempts, on waits for locks, and on operations that were never
//! acknowledged.

use acidtest_model::figure::percent;
use acidtest_results::{CellResult, OperationFigures, RunResult, dimensions::Names};

/// The share of the clients' time above which wasted time is reported before anything else.
const MOSTLY: f64 = 0.5;

/// Cells that are named before the rest is counted.
const NAMED: usize = 4;

/// Shares of the clients' time in the measured part, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct WastedTime {
    /// Attempts that lost against other clients, with the waits before the next.
    conflicts: f64,
    /// Waits for locks that other clients held.
    locks: f64,
    /// Operations and attempts that the store refused: too little stock, no message.
    refusals: f64,
    /// Operations that were not answered in time, whose outcome is unknown.
    unanswered: f64,
    /// Operations that failed.
    failures: f64,
}

impl WastedTime {
    /// The shares of a cell's clients; none where nothing was measured.
    fn of(cell: &CellResult) -> Option<Self> {
        let time: f64 = cell.trials.iter().map(|trial| trial.seconds * 1e9 * f64::from(cell.clients)).sum();
        let operations = || cell.trials.iter().flat_map(|trial| &trial.operations);
        let share = |of: &dyn Fn(&OperationFigures) -> f64| operations().map(of).sum::<f64>() / time;
        let ended = |operation: &OperationFigures, outcome: &str| {
            operation.service.get(outcome).map_or(0.0, |times| times.mean_ns * times.count as f64)
        };
        // consumers that a schedule supplies wait for the schedule, which is no wasted time
        let is_brought = |each: &OperationFigures| cell.rate.is_some() && each.response.is_empty();
        (time > 0.0).then(|| Self {
            conflicts: share(&|each| each.conflict_ns as f64 + ended(each, "conflict")),
            locks: share(&|each| each.lock_wait_ns as f64),
            refusals: share(&|each| {
                if is_brought(each) { 0.0 } else { each.refusal_ns as f64 + ended(each, "refused") }
            }),
            unanswered: share(&|each| ended(each, "unknown")),
            failures: share(&|each| ended(each, "failed")),
        })
    }

    /// The share of all wasted time; 1 at most, because several operations of one client may have been in flight at
    /// once.
    fn share(&self) -> f64 {
        (self.conflicts + self.locks + self.refusals + self.unanswered + self.failures).min(1.0)
    }

    /// The share with its parts: `71 % of the time (conflicts 69 %, refusals 2.0 %)`.
    fn shown(&self) -> String {
        let parts = [
            ("conflicts", self.conflicts),
            ("locks", self.locks),
            ("refusals", self.refusals),
            ("no answer", self.unanswered),
            ("failures", self.failures),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(_, share)| *share >= 0.01)
            .map(|(what, share)| format!("{what} {}", percent(share.min(1.0))))
            .collect();
        format!("{} of the time ({})", percent(self.share()), parts.join(", "))
    }
}

/// A line naming the cells whose clients wasted most of their time; none if there are no such cells.
pub(crate) fn waiting(result: &RunResult, names: &Names) -> Option<String> {
    // a search goes beyond what a store carries, and says what was lost there
    if result.plan.capacity.is_some() {
        return None;
    }
    let mostly = |cell: &CellResult| {
        let waiting = WastedTime::of(cell).filter(|waiting| waiting.share() > MOSTLY)?;
        Some(format!("{}, {}", names.cell(cell), waiting.shown()))
    };
    let all: Vec<String> = result.cells.iter().filter_map(mostly).collect();
    if all.is_empty() {
        return None;
    }
    let rest = all.len().saturating_sub(NAMED);
    let more = if rest > 0 { format!("; and {rest} more cells") } else { String::new() };
    let shown = all[..all.len() - rest].join("; ");
    Some(format!("Clients wasted most of their time: {shown}{more}."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use acidtest_results::{LatencyFigures, sample::Grid};

    #[test]
    fn clients_that_mostly_waited_are_told_with_their_share() {
        let mut result = Grid::default().result();
        let names = Names::of(&result.cells);
        assert_eq!(waiting(&result, &names), None, "the sample's clients work");
        let cell = &mut result.cells[1];
        let clients = u64::from(cell.clients);
        for trial in &mut cell.trials {
            // of ten seconds each client lost six to conflicts, and one to refusals
            trial.operations[0].conflict_ns = 6_000_000_000 * clients;
            let mut histogram = acidtest_engine::Histogram::new(3).unwrap();
            histogram.record_n(100_000_000, 10 * clients).unwrap();
            trial.operations[0].service.insert("refused".to_owned(), LatencyFigures::of(&histogram));
        }
        let said = waiting(&result, &names).unwrap();
        assert_eq!(
            said,
            "Clients wasted most of their time: sqlite native, 70 % of the time (conflicts 60 %, refusals 10 %)."
        );
    }

    /// Consumers have no schedule of their own and so no response times: the messages that they wait for come at the
    /// schedule's rate.
    #[test]
    fn who_waits_for_what_a_schedule_brings_does_not_wait_in_vain() {
        let mut cell = Grid::default().result().cells.remove(0);
        let clients = u64::from(cell.clients);
        let mut histogram = acidtest_engine::Histogram::new(3).unwrap();
        histogram.record_n(100_000_000, 10 * clients).unwrap();
        let times = LatencyFigures::of(&histogram);
        for trial in &mut cell.trials {
            trial.operations[0].response.clear();
            trial.operations[0].service.insert("refused".to_owned(), times.clone());
        }
        let refusals = |cell: &CellResult| WastedTime::of(cell).unwrap().refusals;
        assert!(refusals(&cell) > 0.0);
        cell.rate = Some(20.0);
        assert!(refusals(&cell).abs() < f64::EPSILON);
        // a client with a schedule of its own wastes its time
        for trial in &mut cell.trials {
            trial.operations[0].response.insert("refused".to_owned(), times.clone());
        }
        assert!(refusals(&cell) > 0.0);
    }

    #[test]
    fn what_was_in_flight_side_by_side_is_no_more_than_all_the_time() {
        let waiting = WastedTime { unanswered: 40.0, ..WastedTime::default() };
        assert_eq!(waiting.shown(), "100 % of the time (no answer 100 %)");
    }
}
