//! How many operations ended in errors, and from which share of them on the rate of the others says nothing.

use crate::{CellResult, OperationFigures, SecondFigures, TrialResult, figure::total, tables::percent};

/// The outcomes that are errors. A refusal is an answer; and an operation is given up after conflicts only where the plan says
/// so, or because the trial is over.
const ERRORS: [&str; 2] = ["failed", "unknown"];

/// All others.
const OTHERS: [&str; 3] = ["ok", "refused", "conflict"];

/// The share of errors (1 %) above which a cell's rate is void. What fails is often far quicker, or slower, than what succeeds,
/// and takes its clients' time: beyond a few of them, the rate of the others is not that of the store at work. One in a hundred
/// is ten times what [the default objective](crate::Plan) of a search for a capacity allows, and far more than a healthy
/// store shows.
const MOST: f64 = 0.01;

impl TrialResult {
    /// Share of the operations that ended in errors in the measured part or, where it is more, of the whole seconds in which
    /// nothing but errors ended: clients that a server turns away come back ever more slowly, and so meet few errors. What
    /// ended while a fault of the plan was under way is left out: it was to be expected. `None` where nothing is left.
    pub(crate) fn errors(&self) -> Option<f64> {
        Some(self.errors_of_all()?.0)
    }

    /// The same, and of how many operations it is the share.
    pub(crate) fn errors_of_all(&self) -> Option<(f64, u64)> {
        let faults: Vec<(f64, f64)> = self.times_of_faults().collect();
        let count = |outcomes: &[&str]| {
            if faults.is_empty() {
                return total(self.operations.iter().map(|operation| ended(operation, outcomes)));
            }
            let apart = self.series.iter().filter(|second| is_apart(second, &faults));
            total(apart.map(|second| ended_in(second, outcomes)))
        };
        let (errors, others) = (count(&ERRORS), count(&OTHERS));
        let all = errors.saturating_add(others);
        if all == 0 {
            return None;
        }
        Some(((errors as f64 / all as f64).max(self.seconds_of_errors(&faults)), all))
    }

    /// Share of the whole seconds, apart from faults, in which operations ended, and all of them in errors.
    fn seconds_of_errors(&self, faults: &[(f64, f64)]) -> f64 {
        let is_whole = |second: &&SecondFigures| second.second as f64 + 1.0 <= self.seconds + 1e-6;
        let whole = self.series.iter().filter(is_whole).filter(|second| is_apart(second, faults));
        let (mut all, mut of_errors) = (0_u32, 0_u32);
        for second in whole {
            all += 1;
            let ended = |outcomes: &[&str]| ended_in(second, outcomes);
            of_errors += u32::from(ended(&ERRORS) > 0 && ended(&OTHERS) == 0);
        }
        if all > 0 { f64::from(of_errors) / f64::from(all) } else { 0.0 }
    }

    /// From when to when faults were under way, in seconds of the measured part.
    fn times_of_faults(&self) -> impl Iterator<Item = (f64, f64)> {
        self.injections.iter().filter(|injected| !injected.missed).filter_map(|injected| {
            let served_again = injected.unserved().map_or(injected.next_ok_seconds, |(_, until)| until);
            // it goes on where nobody was served again
            let until = served_again.map(|until| injected.answered_seconds.map_or(until, |on| on.max(until)));
            Some((injected.at_seconds?, until.unwrap_or(f64::INFINITY)))
        })
    }
}

fn ended(operation: &OperationFigures, outcomes: &[&str]) -> u64 {
    total(outcomes.iter().filter_map(|outcome| operation.service.get(*outcome)).map(|times| times.count))
}

fn ended_in(second: &SecondFigures, outcomes: &[&str]) -> u64 {
    let ended = second.ended.values().flatten();
    total(ended.filter(|(outcome, _)| outcomes.contains(&outcome.as_str())).map(|(_, count)| *count))
}

fn is_apart(second: &SecondFigures, faults: &[(f64, f64)]) -> bool {
    let (from, until) = (second.second as f64, second.second as f64 + 1.0);
    faults.iter().all(|(begun, over)| until <= *begun || from >= *over)
}

impl CellResult {
    /// The largest share of errors of those trials that its rate is the mean of; none where there is none.
    pub(crate) fn errors(&self) -> Option<f64> {
        self.measured_trials().into_iter().filter_map(TrialResult::errors).reduce(f64::max)
    }

    /// Whether so few operations ended in errors that the rate of the others says something.
    pub(crate) fn is_serving(&self) -> bool {
        self.errors().is_none_or(|errors| errors <= MOST)
    }

    /// What is said of a cell whose rate is void for its errors: `12 % errors`.
    pub(crate) fn too_many_errors(&self) -> Option<String> {
        let errors = self.errors().filter(|errors| *errors > MOST)?;
        Some(format!("{} errors", percent(errors)))
    }
}

#[cfg(test)]
mod tests {
    use crate::{InjectionFigures, conclusion::conclusion, dimensions::Names, sample::Grid};

    /// Has each trial end so many operations in errors for 1,000 others, of which some were given up when it was over.
    fn with_errors(errors: u64) -> crate::RunResult {
        let mut result = Grid::default().result();
        for trial in &mut result.cells[1].trials {
            let operation = &mut trial.operations[0];
            let mut ok = operation.service["ok"].clone();
            ok.count = 900;
            let ended = |count| crate::LatencyFigures { count, ..ok.clone() };
            let (failed, given_up) = (ended(errors), ended(100));
            let ended = [("ok", ok), ("unknown", failed), ("conflict", given_up)];
            operation.service = ended.map(|(outcome, times)| (outcome.to_owned(), times)).into();
            trial.operations.truncate(1);
        }
        result.price().unwrap();
        result
    }

    #[test]
    fn a_cell_of_errors_has_no_rate_that_is_said() {
        let serving = with_errors(10);
        assert!(serving.cells[1].is_serving() && !serving.cells[1].prices.is_empty());
        let failing = with_errors(12);
        let cell = &failing.cells[1];
        assert_eq!(cell.too_many_errors().as_deref(), Some("1.2 % errors"));
        assert!(!cell.is_serving() && cell.prices.is_empty());
        let said = |result: &crate::RunResult| conclusion(result, &Names::of(&result.cells));
        let void = "Void, because too many operations ended in errors: sqlite native, 1.2 % errors.";
        assert!(said(&failing).contains(void) && !said(&serving).contains("Void"), "{}", said(&failing));
        assert!(said(&serving).contains(" ok/s") && !said(&failing).contains(" ok/s"), "{}", said(&failing));
    }

    #[test]
    fn what_ended_while_a_fault_was_under_way_is_no_error() {
        let mut trial = Grid { seconds: 10, ..Grid::default() }.result().cells.remove(0).trials.remove(0);
        let name = trial.operations[0].name.clone();
        let second = trial.series[0].clone();
        trial.series = (0..10)
            .map(|number| {
                let failed = if number == 3 { 50 } else { 0 };
                let ended = [("ok".to_owned(), 50), ("failed".to_owned(), failed)].into();
                crate::SecondFigures {
                    second: number,
                    ended: [(name.clone(), ended)].into(),
                    ..second.clone()
                }
            })
            .collect();
        let kill: InjectionFigures = serde_json::from_value(serde_json::json!({
            "fault": "kill", "member": "server", "due_seconds": 3.0, "at_seconds": 3.1, "back_seconds": 3.2,
            "answered_seconds": 3.5, "last_ok_seconds": 3.1, "next_ok_seconds": 3.6,
        }))
        .unwrap();
        trial.injections = vec![kill.clone()];
        assert_eq!(trial.errors(), Some(0.0));
        // clients were turned away, and hardly asked again
        let mut turned_away = trial.clone();
        for second in &mut turned_away.series[5..] {
            second.ended = [(name.clone(), [("failed".to_owned(), 1)].into())].into();
        }
        assert_eq!(turned_away.errors(), Some(5.0 / 9.0));
        // where nobody was served again, all of that is the fault's
        turned_away.injections = vec![InjectionFigures { next_ok_seconds: None, ..kill.clone() }];
        assert_eq!(turned_away.errors(), Some(0.0));
        // it was over before
        trial.injections = vec![InjectionFigures {
            at_seconds: Some(1.1),
            answered_seconds: Some(1.5),
            next_ok_seconds: Some(1.6),
            last_ok_seconds: Some(1.1),
            ..kill
        }];
        assert_eq!(trial.errors(), Some(0.1));
    }
}
