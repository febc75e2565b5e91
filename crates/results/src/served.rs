//! In how much of a trial somebody was served, and at which rate.
//!
//! `ok/s` is of the whole measured part, outages included. `served/s` is of the time in which somebody was served: what prices
//! and the law over clients rest on, so that they do not depend on how long an outage is beside `--duration`.

use crate::{
    CellResult, InjectionFigures, Mean, RestartFigures, RunResult, TrialResult, result::SEEN, total,
};

/// The share of the measured part in which somebody must have been served, at least, so that a trial is priced: with less,
/// what is left is mostly a store that comes back.
const ENOUGH: f64 = 0.5;

/// From when to when nobody was served, in seconds of the measured part; to its end where there is no second moment.
pub type Outage = (f64, Option<f64>);

impl InjectionFigures {
    /// The longest time, in seconds, in which nobody was served because of the fault; none where nothing is known of
    /// it, and where it lasted to the end.
    #[must_use]
    pub fn outage(&self) -> Option<f64> {
        let (from, until) = self.unserved()?;
        Some((until? - from).max(0.0))
    }

    /// When nobody was served because of the fault.
    #[must_use]
    pub fn unserved(&self) -> Option<Outage> {
        match self.unserved_from_seconds {
            Some(from) => Some((from, self.unserved_until_seconds)),
            None => Some((self.last_ok_seconds?, self.next_ok_seconds)),
        }
    }

    /// The moment of the fault, if it was brought about.
    fn hit(&self) -> Option<f64> {
        self.at_seconds.filter(|_| !self.missed)
    }
}

impl RestartFigures {
    /// When nobody was served because of the restart; none where nothing is known of it.
    #[must_use]
    pub fn unserved(&self) -> Option<Outage> {
        Some((self.unserved_from_seconds?, self.unserved_until_seconds))
    }
}

impl TrialResult {
    /// Notes the faults that were brought about and the restarts that nobody asked for, and for how long somebody was
    /// served. On a schedule that counts as all the time, because what was due meanwhile is done afterwards.
    pub fn note_outages(
        &mut self,
        injections: Vec<InjectionFigures>,
        restarts: Vec<RestartFigures>,
        is_scheduled: bool,
    ) {
        (self.injections, self.restarts) = (injections, restarts);
        let is_disturbed = !self.injections.is_empty() || !self.restarts.is_empty();
        let away = if is_scheduled { 0.0 } else { self.seconds_away() };
        self.served_seconds = is_disturbed.then(|| (self.seconds - away).max(0.0));
    }

    /// The longest outage of each fault and of each restart that nobody asked for.
    pub fn outages(&self) -> impl Iterator<Item = Outage> {
        let of_faults = self.injections.iter().filter_map(|injected| {
            let at = injected.hit()?;
            Some(injected.unserved().unwrap_or((at, injected.next_ok_seconds)))
        });
        of_faults.chain(self.restarts.iter().filter_map(RestartFigures::unserved))
    }

    /// How many seconds of the measured part lie in outages.
    fn seconds_away(&self) -> f64 {
        let end = self.seconds;
        let spans = self.outages().map(|(from, until)| (from.min(end), until.unwrap_or(end).min(end)));
        // in ordinary work, too, there are moments in which nothing ends
        let mut spans: Vec<(f64, f64)> = spans.filter(|(from, until)| until - from > SEEN).collect();
        spans.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let mut covered = 0.0_f64;
        let mut away = 0.0;
        for (from, until) in spans {
            away += (until - from.max(covered)).max(0.0);
            covered = covered.max(until);
        }
        away
    }

    /// The share of the measured part in which somebody was served: all of it where nothing disturbed the trial.
    #[must_use]
    pub fn share_served(&self) -> f64 {
        let share =
            |served: f64| if self.seconds > 0.0 { (served / self.seconds).clamp(0.0, 1.0) } else { 1.0 };
        self.served_seconds.map_or(1.0, share)
    }

    /// Acknowledged operations a second of the time in which somebody was served; none where nobody was.
    #[must_use]
    pub fn served_per_second(&self) -> Option<f64> {
        let share = self.share_served();
        (share > 0.0).then(|| self.throughput / share)
    }

    /// Mean rates of acknowledged operations that throughput counts, of the trial and of one of the same cell without faults, in
    /// the same whole seconds of their measured parts: those that began once somebody was served again after the last fault of
    /// the one. `None` if no such second is left, or nobody was served again.
    pub(crate) fn rates_after_faults(&self, without: &Self) -> Option<(f64, f64)> {
        let from = self.over()?.max(without.over()?).ceil();
        let until = (self.seconds.min(without.seconds) + 1e-6).floor();
        let of = |trial: &Self| {
            let is_in = |second: u64| second as f64 >= from && (second as f64) < until;
            let seconds = trial.series.iter().filter(|second| is_in(second.second));
            total(seconds.map(|second| second.ok_of(&trial.counted))) as f64 / (until - from)
        };
        (from < until).then(|| (of(self), of(without)))
    }

    /// When all that disturbed the trial was over, and somebody was served; none if nobody was any more.
    fn over(&self) -> Option<f64> {
        let answered = |injected: &InjectionFigures| match injected.hit() {
            Some(at) if injected.overtaken => Some(at),
            Some(_) => injected.answered_seconds,
            None => Some(0.0),
        };
        let answers = self.injections.iter().map(answered);
        let mut ends = answers.chain(self.outages().map(|(_, until)| until));
        ends.try_fold(0.0, |over: f64, end| Some(over.max(end?)))
    }
}

impl CellResult {
    /// The longest time, in seconds, in which nobody was served because of a fault, or of a restart that nobody asked for;
    /// infinite where that lasted to the end of a trial, none where there was neither.
    pub fn longest_outage(&self) -> Option<f64> {
        let outages = self.trials.iter().flat_map(TrialResult::outages);
        let lengths =
            outages.map(|(from, until)| until.map_or(f64::INFINITY, |until| (until - from).max(0.0)));
        lengths.max_by(f64::total_cmp)
    }

    /// Acknowledged operations a second of the time in which somebody was served, over the trials, with its interval; none
    /// where nobody was.
    pub fn mean_served(&self) -> Option<Mean> {
        let rates = self.measured_trials().into_iter().filter_map(TrialResult::served_per_second);
        Mean::of(&rates.collect::<Vec<_>>())
    }

    /// The trial in which somebody was served for less time than a price can rest on: the one with the least.
    #[must_use]
    pub fn hardly_served(&self) -> Option<&TrialResult> {
        let hardly = self.whole_trials().filter(|trial| trial.share_served() < ENOUGH);
        hardly.min_by(|one, other| one.share_served().total_cmp(&other.share_served()))
    }
}

impl RunResult {
    /// Whether a trial of the run had a fault, or a restart that nobody asked for.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.cells.iter().flat_map(|cell| &cell.trials).any(|trial| trial.served_seconds.is_some())
    }
}

#[cfg(test)]
mod tests {
    use acidtest_model::Lock;
    use serde_json::json;

    use super::*;
    use crate::sample::Grid;

    /// A kill in a trial of ten seconds, with the acknowledgements before and after it.
    fn kill(at: f64, last_ok: Option<f64>, next_ok: Option<f64>) -> InjectionFigures {
        serde_json::from_value(json!({
            "fault": "kill", "member": "server", "due_seconds": at, "at_seconds": at, "back_seconds": at,
            "answered_seconds": at, "last_ok_seconds": last_ok, "next_ok_seconds": next_ok,
        }))
        .unwrap()
    }

    fn restart(from: Option<f64>, until: Option<f64>) -> RestartFigures {
        serde_json::from_value(json!({
            "member": "server", "found_seconds": 1.0, "same_data": true, "servers": 1,
            "unserved_from_seconds": from, "unserved_until_seconds": until,
        }))
        .unwrap()
    }

    fn trial() -> TrialResult {
        Grid { seconds: 10, ..Grid::default() }.result().cells.remove(0).trials.remove(0)
    }

    /// Where work comes by a schedule, a longer outage leaves no less to do: it makes no rate, and so no price, higher.
    #[test]
    fn on_a_schedule_an_outage_changes_no_rate() {
        let mut trial = trial();
        let throughput = trial.throughput;
        trial.note_outages(vec![kill(1.0, Some(1.0), Some(7.0))], Vec::new(), true);
        assert_eq!((trial.served_seconds, trial.served_per_second()), (Some(10.0), Some(throughput)));
        assert!((trial.share_served() - 1.0).abs() < 1e-9);
    }

    /// The rate of the whole measured part stays as it is, and that of the time in which somebody was served follows one rule,
    /// however long nobody was.
    #[test]
    fn an_outage_changes_the_served_rate_alone() {
        let whole = trial();
        let served = |injections: &[InjectionFigures], restarts: &[RestartFigures]| {
            let mut trial = whole.clone();
            trial.note_outages(injections.to_vec(), restarts.to_vec(), false);
            assert_eq!((trial.throughput, &trial.operations), (whole.throughput, &whole.operations));
            (trial.served_seconds, trial.served_per_second().map(|served| served / whole.throughput))
        };
        let near = |found: (Option<f64>, Option<f64>), seconds: f64| {
            let (of, times) = (found.0.unwrap(), found.1.unwrap());
            assert!((of - seconds).abs() < 1e-9 && (times - 10.0 / seconds).abs() < 1e-9, "{found:?}");
        };
        assert_eq!(served(&[], &[]), (None, Some(1.0)));
        near(served(&[kill(3.0, Some(2.9), Some(4.9))], &[]), 8.0);
        // just below half of the time, and just above
        near(served(&[kill(3.0, Some(3.0), Some(7.9))], &[]), 5.1);
        near(served(&[kill(3.0, Some(3.0), Some(8.1))], &[]), 4.9);
        near(served(&[kill(3.0, Some(3.0), Some(5.0)), kill(4.0, None, Some(5.0))], &[]), 8.0);
        near(served(&[kill(9.0, Some(9.0), None)], &[]), 9.0);
        near(served(&[kill(9.0, Some(9.0), Some(12.0))], &[]), 9.0);
        near(served(&[InjectionFigures { at_seconds: None, ..kill(9.0, None, None) }], &[]), 10.0);
        near(served(&[InjectionFigures { missed: true, ..kill(9.0, None, None) }], &[]), 10.0);
        // a restart that nobody asked for is treated alike, and counts once where it overlaps a fault
        near(served(&[], &[restart(Some(6.0), Some(7.5))]), 8.5);
        near(served(&[], &[restart(Some(6.0), None)]), 6.0);
        near(served(&[], &[restart(None, None)]), 10.0);
        near(served(&[kill(3.0, Some(3.0), Some(5.0))], &[restart(Some(2.0), Some(4.0))]), 7.0);
        assert_eq!(served(&[kill(0.0, None, None)], &[]), (Some(0.0), None));
    }

    /// The trials of the second of two cells are disturbed by outages of this length; both do the same while they are served.
    fn priced(outage: f64) -> Option<f64> {
        let mut result = Grid { locks: &[Lock::Soft, Lock::Native], seconds: 10, ..Grid::default() }.result();
        result.cells[0].lock = Lock::None;
        let base = result.cells[0].clone();
        result.cells[1].trials = base.trials;
        for trial in &mut result.cells[1].trials {
            trial.throughput *= (10.0 - outage) / 10.0;
            trial.resources.client.cpu_seconds *= (10.0 - outage) / 10.0;
            trial.note_outages(vec![kill(1.0, Some(1.0), Some(1.0 + outage))], Vec::new(), false);
        }
        result.price().unwrap();
        let price = result.cells[1].prices.iter().find(|price| price.guarantee == "lock");
        if let Some(price) = price {
            let cpu = price.client_cpu.as_ref().unwrap().estimate;
            assert!((cpu - 1.0).abs() < 1e-9, "each operation took as much CPU: {cpu}");
        }
        price.map(|price| price.throughput.estimate)
    }

    #[test]
    fn a_price_does_not_depend_on_the_length_of_an_outage() {
        for outage in [0.5, 2.0, 4.9] {
            let price = priced(outage).unwrap();
            assert!((price - 1.0).abs() < 1e-9, "{outage}: {price}");
        }
        assert_eq!(priced(5.1), None);
    }

    /// The base is not looked at before the faults are over, either.
    #[test]
    fn a_trial_with_faults_is_compared_in_the_same_seconds() {
        let (mut with, mut without) = (trial(), trial());
        let name = with.operations[0].name.clone();
        let ok = |trial: &mut TrialResult, of: &dyn Fn(u64) -> u64| {
            for second in &mut trial.series {
                second.ended = [(name.clone(), [("ok".to_owned(), of(second.second))].into())].into();
            }
        };
        ok(&mut with, &|second| if second < 5 { 0 } else { 60 });
        ok(&mut without, &|second| if second < 5 { 1_000 } else { 80 });
        with.note_outages(vec![kill(3.0, Some(3.0), Some(4.2))], Vec::new(), false);
        assert_eq!(with.rates_after_faults(&without), Some((60.0, 80.0)));
        // nor where it was itself disturbed, by nobody's wish
        without.note_outages(Vec::new(), vec![restart(Some(6.0), Some(8.5))], false);
        ok(&mut without, &|second| if second < 9 { 1_000 } else { 80 });
        assert_eq!(with.rates_after_faults(&without), Some((60.0, 80.0)));
        with.note_outages(vec![kill(3.0, Some(3.0), None)], Vec::new(), false);
        assert_eq!(with.rates_after_faults(&without), None);
    }
}
