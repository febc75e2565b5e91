//! Whether a store served: how many operations ended in errors or were never started, and since when none succeeded. Beyond
//! some, the rate of the others says nothing.

use crate::{CellResult, OperationFigures, SecondFigures, TrialResult, total};

/// The outcomes that are errors. A refusal is an answer; and an operation is given up after conflicts only where the plan says
/// so, or because the trial is over.
const ERRORS: [&str; 2] = ["failed", UNKNOWN];
const UNKNOWN: &str = "unknown";

const OTHERS: [&str; 3] = ["ok", "refused", "conflict"];

/// The share of errors (1 %) above which a cell's rate is void. What fails is often far quicker, or slower, than what succeeds,
/// and takes its clients' time: beyond a few of them, the rate of the others is not that of the store at work. One in a hundred
/// is ten times what [the default objective](crate::Plan) of a search for a capacity allows, and far more than a healthy
/// store shows.
const MOST: f64 = 0.01;

/// The share of arrivals (5 %) above which, if they were never started, a cell's rate is void: it is not the rate that was asked for,
/// and the times of the others are not those that users would have had.
const MOST_DROPPED: f64 = 0.05;

/// Fewest whole seconds without an answer, at the end of a trial, of which it is told.
const SILENT: u64 = 2;

/// Since which second of the measured part, of so many seconds, no operation of these kinds (of any, if none is named) had one of these
/// outcomes, to its end. `None` where that is shorter than two whole seconds, at most twice as long as a silence before, or what
/// chance would show in one of a thousand such trials: where `k` operations may end at any time, all of them end in the first `t` of
/// `T` seconds with the probability `(t / T)^k`.
#[must_use]
pub fn silent_from(
    series: &[SecondFigures],
    seconds: f64,
    outcomes: &[&str],
    counted: &[String],
) -> Option<u64> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // it saturates, and no length is negative
    let whole = (seconds + 1e-6).floor() as u64;
    let of = |second: &SecondFigures| {
        let named = second.ended.iter().filter(|(name, _)| counted.is_empty() || counted.contains(name));
        let ended = named.flat_map(|(_, ended)| ended);
        total(ended.filter(|(outcome, _)| outcomes.contains(&outcome.as_str())).map(|(_, count)| *count))
    };
    let served: Vec<(u64, u64)> = series
        .iter()
        .filter(|second| second.second < whole)
        .map(|second| (second.second, of(second)))
        .filter(|(_, count)| *count > 0)
        .collect();
    let begun = served.last()?.0.saturating_add(1);
    let silent = whole.saturating_sub(begun);
    let between = served.windows(2).map(|two| two[1].0.saturating_sub(two[0].0).saturating_sub(1));
    let longest = between.chain([served[0].0]).max().unwrap_or(0);
    let by_chance = (begun as f64 / whole as f64).powf(total(served.iter().map(|(_, count)| *count)) as f64);
    (silent >= SILENT && silent > longest.saturating_mul(2) && by_chance < 0.001).then_some(begun)
}

impl TrialResult {
    /// Since which second nothing was acknowledged, to the end of the measured part; none where something was. Of a trial with faults,
    /// or one that was cut short, that is told of these.
    #[must_use]
    pub fn unsuccessful_from(&self) -> Option<u64> {
        self.silent(&["ok"])
    }

    /// The same of answers, acknowledged or refused.
    fn unanswered_from(&self) -> Option<u64> {
        self.silent(&["ok", "refused"])
    }

    fn silent(&self, outcomes: &[&str]) -> Option<u64> {
        if self.stopped.is_some() || self.times_of_faults().next().is_some() {
            return None;
        }
        silent_from(&self.series, self.seconds, outcomes, &self.counted)
    }

    /// Share of the arrivals that were never started; 0 in a closed loop.
    fn dropped(&self) -> f64 {
        let of = self.arrived.offered;
        if of > 0 { (self.arrived.dropped as f64 / of as f64).min(1.0) } else { 0.0 }
    }

    /// Share of the operations that ended in errors in the measured part or, where it is more, of the whole seconds in which
    /// nothing but errors ended: clients that a server turns away come back ever more slowly, and so meet few errors. What
    /// ended while a fault of the plan was under way is left out: it was to be expected. So are, for as long as an unanswered operation
    /// took at most, those that were unanswered after it: they may have begun within it. `None` where nothing is left.
    #[must_use]
    pub fn errors(&self) -> Option<f64> {
        Some(self.errors_of_all()?.0)
    }

    /// The same, and of how many operations it is the share.
    #[must_use]
    pub fn errors_of_all(&self) -> Option<(f64, u64)> {
        let faults: Vec<(f64, f64)> = self.times_of_faults().collect();
        let (errors, others) = if faults.is_empty() {
            let count = |outcomes: &[&str]| total(self.operations.iter().map(|each| ended(each, outcomes)));
            (count(&ERRORS), count(&OTHERS))
        } else {
            let apart = || self.series.iter().filter(|second| is_apart(second, &faults));
            let errors = apart().map(|second| self.errors_in(second, &faults));
            (total(errors), total(apart().map(|second| ended_in(second, &OTHERS))))
        };
        let all = errors.saturating_add(others);
        if all == 0 {
            return None;
        }
        Some(((errors as f64 / all as f64).max(self.seconds_of_errors(&faults)), all))
    }

    /// How many operations ended in errors in a second apart from faults, without those that may have begun within one.
    fn errors_in(&self, second: &SecondFigures, faults: &[(f64, f64)]) -> u64 {
        let unanswered = self.operations.iter().filter_map(|each| each.service.get(UNKNOWN));
        let longest = unanswered.map(|times| times.max_ns).max().unwrap_or(0) as f64 / 1e9;
        let is_late = |(begun, over): &(f64, f64)| {
            let from = second.second as f64;
            from + 1.0 > *begun && from < over + longest
        };
        let outcomes = if faults.iter().any(is_late) { &ERRORS[..1] } else { &ERRORS[..] };
        ended_in(second, outcomes)
    }

    /// Share of the whole seconds, apart from faults, in which operations ended, and all of them in errors.
    fn seconds_of_errors(&self, faults: &[(f64, f64)]) -> f64 {
        let is_whole = |second: &&SecondFigures| second.second as f64 + 1.0 <= self.seconds + 1e-6;
        let whole = self.series.iter().filter(is_whole).filter(|second| is_apart(second, faults));
        let (mut all, mut of_errors) = (0_u32, 0_u32);
        for second in whole {
            all += 1;
            of_errors += u32::from(self.errors_in(second, faults) > 0 && ended_in(second, &OTHERS) == 0);
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
    pub fn errors(&self) -> Option<f64> {
        self.measured_trials().into_iter().filter_map(TrialResult::errors).reduce(f64::max)
    }

    /// The largest share of arrivals that were never started, of the same trials.
    pub fn dropped(&self) -> f64 {
        self.measured_trials().into_iter().map(TrialResult::dropped).fold(0.0, f64::max)
    }

    /// Whether the store served so much of what it was asked for, and for so long, that its rate says something.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.not_served().is_none()
    }

    /// Whether it was far from serving too little: at most half of what is too much.
    #[must_use]
    pub fn is_serving_well(&self) -> bool {
        let errors = self.errors().unwrap_or_default();
        self.is_serving() && errors <= MOST / 2.0 && self.dropped() <= MOST_DROPPED / 2.0
    }

    /// Why the cell's rate is void, where too little was served; none where it stands.
    #[must_use]
    pub fn not_served(&self) -> Option<NotServed> {
        let errors = self.errors().filter(|errors| *errors > MOST);
        let dropped = Some(self.dropped()).filter(|dropped| *dropped > MOST_DROPPED);
        let silent_from = self.measured_trials().into_iter().filter_map(TrialResult::unanswered_from).min();
        let why = NotServed { errors, dropped, silent_from };
        (why != NotServed::default()).then_some(why)
    }
}

/// Why a rate is void: too little of what was asked for was served.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NotServed {
    /// The share of operations that ended in errors, where that was too large.
    pub errors: Option<f64>,
    /// The share of arrivals that were never started, where that was too large.
    pub dropped: Option<f64>,
    /// The second of the measured part since which nothing was answered, where there was such a second.
    pub silent_from: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ArrivalFigures, InjectionFigures,
        sample::{Grid, series},
    };

    #[test]
    fn it_is_told_since_when_nothing_succeeded() {
        let from = |counts: &[u64]| {
            let counts: Vec<(&str, u64)> = counts.iter().map(|count| ("ok", *count)).collect();
            silent_from(&series(&counts), counts.len() as f64, &["ok"], &[])
        };
        assert_eq!(from(&[900, 800, 900, 700, 0, 0, 0, 0, 0, 0, 0, 0]), Some(4));
        assert_eq!(from(&[900, 0, 0, 0]), Some(1));
        // a store that stood still before may do so again
        assert_eq!(from(&[900, 0, 0, 900, 0, 0, 0]), None);
        assert_eq!(from(&[900, 900, 900, 900, 0]), None, "one second is short");
        // of few operations the last ones come early now and then
        assert_eq!(from(&[1, 0, 1, 1, 1, 0, 1, 0, 0, 0]), None);
        assert_eq!(from(&[0, 0, 0, 0]), None);
        assert_eq!(from(&[]), None);
    }

    #[test]
    fn a_cell_that_drops_arrivals_has_no_price() {
        let mut result = Grid::default().result();
        for cell in &mut result.cells {
            cell.rate = Some(10.0);
            cell.trials[0].arrived =
                ArrivalFigures { offered: 100, started: 31, completed: 31, late: 30, dropped: 69 };
        }
        result.price().unwrap();
        let cell = &result.cells[1];
        assert_eq!(
            (cell.not_served(), cell.prices.len()),
            (Some(NotServed { dropped: Some(0.69), ..NotServed::default() }), 0)
        );
        result.cells[1].trials[0].arrived.dropped = 5;
        assert!(result.cells[1].is_serving());
    }

    /// What was sent within an outage is given up a timeout after it.
    #[test]
    fn what_is_unanswered_a_timeout_after_a_fault_is_no_error() {
        let mut trial = Grid { seconds: 10, ..Grid::default() }.result().cells.remove(0).trials.remove(0);
        trial.operations[0].name = "capture".to_owned();
        trial.series = series(&[("ok", 50); 10]);
        let late = trial.series[5].ended.get_mut("capture").unwrap();
        late.insert("unknown".to_owned(), 8);
        let kill: InjectionFigures = serde_json::from_value(serde_json::json!({
            "fault": "kill", "member": "server", "due_seconds": 3.0, "at_seconds": 3.1, "back_seconds": 3.2,
            "answered_seconds": 3.5, "last_ok_seconds": 3.1, "next_ok_seconds": 3.6,
        }))
        .unwrap();
        trial.injections = vec![kill];
        let mut given_up = |seconds: u64| {
            let times = crate::LatencyFigures {
                max_ns: seconds * 1_000_000_000,
                ..trial.operations[0].service["ok"].clone()
            };
            trial.operations[0].service.insert("unknown".to_owned(), times);
            trial.errors()
        };
        assert_eq!(given_up(1), Some(8.0 / 458.0));
        assert_eq!(given_up(2), Some(0.0));
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
