//! What one trial at a rate tells a search: whether its objectives were met, and what was used.

use std::collections::BTreeMap;

use acidtest_capacity::{Ended, Observation};
use acidtest_model::{Measure, Objective};
use acidtest_workloads::Verdict;

use super::{OperationTimes, Used};
use crate::{
    CellResult, LatencyFigures, OTHERS, OperationFigures, RunResult, TrialResult, UnreadableHistogram,
    others_during,
};

/// Share of the cores that clients can use from which on they, and not the store, may be why an objective was missed.
const SATURATED: f64 = 0.85;

/// Reasons for which a trial ends early that are the store's.
const LOST: [&str; 2] = ["server gone", "no connection"];

/// Operations that have to be slower than a percentile for it to be judged: of fewer it is hardly more than the slowest of them.
const BEYOND: f64 = 10.0;

/// Outcomes of an operation that was not served. Refused is an answer.
const NOT_SERVED: [&str; 3] = ["conflict", "failed", "unknown"];

/// What a trial at a rate told.
pub(super) struct Probe {
    pub(super) verdict: Verdict,
    pub(super) errors: f64,
    pub(super) times: BTreeMap<String, OperationTimes>,
    pub(super) used: Used,
    /// Response times by operation, or times by span.
    served: BTreeMap<String, Served>,
    /// Operations that were offered.
    offered: f64,
    /// How it ended, whatever was measured: a broken promise, a store that was lost, a bench that was.
    settled: Option<Ended>,
    bench: bool,
    /// Whether other programs used so much of the machine that nothing can be said of the store.
    disturbed: bool,
    /// Whether the user ended it early: its figures are then not those of the rate.
    pub(super) was_interrupted: bool,
    seconds: f64,
}

/// The times of what was acknowledged of an operation, and how many were not served.
struct Served {
    times: Option<LatencyFigures>,
    /// Not served, with the operation's share of those that were never started.
    missing: f64,
    /// Share of its operations that were not served; none where there were none.
    errors: Option<f64>,
    /// Whether an objective that names no operation is about it.
    on_schedule: bool,
}

impl Served {
    /// How many there were, served or not.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it saturates, and no number is negative
    fn operations(&self) -> u64 {
        self.times.as_ref().map_or(0, |times| times.count).saturating_add(self.missing as u64)
    }

    /// The time that so many percent are not slower than, in nanoseconds; infinite where more were not served. `None` where there
    /// was nothing to be served.
    fn percentile(&self, percent: f64) -> Result<Option<f64>, UnreadableHistogram> {
        let acknowledged = self.times.as_ref().map_or(0.0, |times| times.count as f64);
        let all = acknowledged + self.missing;
        if all <= 0.0 {
            return Ok(None);
        }
        let rank = all * percent / 100.0;
        match &self.times {
            // half a operation is none: shares of what was never started are no whole numbers
            Some(times) if rank <= acknowledged + 1e-9 => {
                let quantile = (rank / acknowledged).min(1.0);
                Ok(Some(times.histogram()?.value_at_quantile(quantile) as f64))
            }
            _ => Ok(Some(f64::INFINITY)),
        }
    }

    /// Whether it had enough operations for the figure; whatever it is where it had none.
    fn is_enough(&self, measure: Measure) -> bool {
        let all = self.times.as_ref().map_or(0.0, |times| times.count as f64) + self.missing;
        match measure {
            Measure::Percentile(percent) => all <= 0.0 || all * (1.0 - percent / 100.0) >= BEYOND - 1e-6,
            Measure::Longest | Measure::Errors => true,
        }
    }

    fn figure(&self, measure: Measure) -> Result<Option<f64>, UnreadableHistogram> {
        match measure {
            Measure::Percentile(_) if !self.is_enough(measure) => Ok(None),
            Measure::Percentile(percent) => self.percentile(percent),
            Measure::Longest if self.missing > 0.0 => Ok(Some(f64::INFINITY)),
            Measure::Longest => Ok(self.times.as_ref().map(|times| times.max_ns as f64)),
            Measure::Errors => Ok(self.errors),
        }
    }
}

fn counted(operation: &OperationFigures, outcomes: &[&str]) -> f64 {
    // operations off the schedule have no response times
    let ended = if operation.response.is_empty() { &operation.service } else { &operation.response };
    outcomes.iter().filter_map(|outcome| ended.get(*outcome)).map(|times| times.count as f64).sum()
}

impl Probe {
    pub(super) fn of(
        trial: &TrialResult,
        cell: &CellResult,
        result: &RunResult,
    ) -> Result<Self, UnreadableHistogram> {
        // what was due so shortly before the end that it is not late by any objective, is not known to have been missed
        let waiting = trial.rate.unwrap_or(0.0) * patience(result);
        let dropped = trial.arrived.dropped as f64;
        let waiting = dropped.min(waiting);
        let (offered, dropped) = (trial.arrived.offered as f64 - waiting, dropped - waiting);
        let others = others_during(trial, cell).unwrap_or(0.0);
        // of what was never started nobody knows which operation it would have been: each has its share
        let dropped = if offered > 0.0 { (dropped / offered).min(1.0) } else { 0.0 };
        let mut served = BTreeMap::new();
        let (mut failed, mut all) = (0.0, 0.0);
        for operation in &trial.operations {
            let on_schedule = !operation.response.is_empty();
            let not_served = counted(operation, &NOT_SERVED);
            let started = not_served + counted(operation, &["ok", "refused"]);
            let never = if on_schedule && dropped < 1.0 { started * dropped / (1.0 - dropped) } else { 0.0 };
            if on_schedule {
                (failed, all) = (failed + not_served, all + started);
            }
            let missing = not_served + never;
            let errors = if dropped < 1.0 {
                (started + never > 0.0).then(|| missing / (started + never))
            } else {
                Some(1.0)
            };
            let times = operation.ok().cloned();
            served.insert(operation.name.clone(), Served { times, missing, errors, on_schedule });
        }
        for span in &trial.spans {
            let times = Some(span.times.clone());
            let of_span = Served { times, missing: 0.0, errors: None, on_schedule: false };
            served.entry(span.name.clone()).or_insert(of_span);
        }
        let errors = dropped + (1.0 - dropped) * if all > 0.0 { failed / all } else { 0.0 };
        let mut times = BTreeMap::new();
        for (name, each) in served.iter().filter(|(_, each)| each.on_schedule) {
            let of = |percent| Ok(each.percentile(percent)?.filter(|time: &f64| time.is_finite()));
            let operations = each.operations();
            times.insert(name.clone(), OperationTimes { p50_ns: of(50.0)?, p99_ns: of(99.0)?, operations });
        }
        let settled = match trial.stopped.as_ref().map(|stopped| &*stopped.reason) {
            _ if trial.audit.breaks_promise(&cell.without) => Some(Ended::Broke),
            Some(reason) if LOST.contains(&reason) => Some(Ended::Gone),
            // the bench itself ended it before its time
            Some(_) => Some(Ended::Unknown),
            None => None,
        };
        let is_shared = result.plan.capacity.as_ref().is_some_and(|search| search.shared_machine);
        Ok(Self {
            verdict: trial.audit.verdict,
            errors,
            times,
            used: used(trial, cell),
            served,
            offered,
            settled,
            bench: is_bench_limited(trial, cell, result),
            disturbed: !is_shared && others >= OTHERS * result.machine.cores as f64,
            was_interrupted: trial.was_interrupted(),
            seconds: trial.took_seconds,
        })
    }

    /// What it tells of the rate.
    pub(super) fn observation(&self, rate: f64, objectives: &[Objective]) -> Observation {
        // an operation of which there was none has missed nothing
        let figure = |objective| self.figure(objective).unwrap_or(0.0);
        let figures: Vec<(f64, &Objective)> = objectives.iter().map(|each| (figure(each), each)).collect();
        let margins: Vec<f64> = figures.iter().map(|(figure, objective)| objective.ratio(*figure)).collect();
        let missed = figures
            .iter()
            .zip(&margins)
            .enumerate()
            .filter(|(_, ((figure, each), _))| !each.is_met_by(*figure));
        let worst = missed.max_by(|(_, (_, one)), (_, (_, other))| one.total_cmp(other));
        let is_judged = objectives.iter().all(|each| self.is_judged(each));
        let is_settled = matches!(self.settled, Some(Ended::Broke | Ended::Gone));
        let disturbed = Some(Ended::MachineLimited).filter(|_| self.disturbed && !is_settled);
        let ended = disturbed.or(self.settled).unwrap_or_else(|| match worst {
            Some(_) if self.bench => Ended::BenchLimited,
            Some((objective, (_, ratio))) => Ended::Missed { objective, ratio: *ratio },
            // a verdict that is broken without breaking a promise is as it was to be expected
            None if self.offered <= 0.0 || self.verdict == Verdict::Unknown || !is_judged => Ended::Unknown,
            None => Ended::Met,
        });
        let slowest = self.times.values().map(|times| times.p99_ns);
        let latency = slowest.collect::<Option<Vec<f64>>>().and_then(|all| all.into_iter().reduce(f64::max));
        let latency = latency.map(|nanoseconds| nanoseconds / 1e9);
        let (margins, latency) = if self.was_interrupted { (Vec::new(), None) } else { (margins, latency) };
        Observation { rate, ended, margins, latency, seconds: self.seconds }
    }

    /// Whether there were enough operations for an objective: of the one that it names, or of any that is on the schedule.
    fn is_judged(&self, objective: &Objective) -> bool {
        let enough = |served: &Served| served.is_enough(objective.measure);
        if let Some(name) = &objective.operation {
            return self.served.get(name).is_none_or(enough);
        }
        let mut there = self.served.values().filter(|each| each.on_schedule).peekable();
        there.peek().is_none() || there.any(enough)
    }

    /// The figure that an objective is about: the worst of all operations on the schedule where it names none. `None` where there
    /// was none of what it is about.
    fn figure(&self, objective: &Objective) -> Option<f64> {
        // a histogram that cannot be read has been noticed when the times were taken
        let of = |served: &Served| served.figure(objective.measure).ok().flatten();
        let seen = match (&objective.operation, objective.measure) {
            (Some(name), _) => self.served.get(name).and_then(of),
            (None, Measure::Errors) => Some(self.errors),
            (None, _) => self.served.values().filter(|each| each.on_schedule).filter_map(of).reduce(f64::max),
        };
        // where so many were never started, there was none for that reason
        let allowed = match objective.measure {
            Measure::Percentile(percent) => 1.0 - percent / 100.0,
            Measure::Longest | Measure::Errors => 0.0,
        };
        match (seen, objective.measure) {
            (None, Measure::Errors) => (self.errors > 0.0).then_some(self.errors),
            (None, _) if self.errors > allowed => Some(f64::INFINITY),
            (seen, _) => seen,
        }
    }
}

/// The shortest time that an objective allows, in seconds; 0 where none is about times.
fn patience(result: &RunResult) -> f64 {
    let objectives = result.plan.capacity.iter().flat_map(|search| &search.slo);
    let times = objectives.filter(|each| each.measure != Measure::Errors).map(|each| each.limit / 1e9);
    times.reduce(f64::min).unwrap_or(0.0)
}

/// Whether the clients used so much of the cores that they can use that they may be what could not keep up. Of a store in the
/// clients' own process, their CPU time is the store's too: there the bench's own cost decides.
fn is_bench_limited(trial: &TrialResult, cell: &CellResult, result: &RunResult) -> bool {
    let most = f64::from(result.cores_for(cell)) * SATURATED;
    let client = trial.resources.client.cpu_mean;
    let own = result.harness.nanoseconds_per_operation * trial.throughput / 1e9;
    client > most && (!cell.is_within_clients() || own > client / 2.0)
}

fn used(trial: &TrialResult, cell: &CellResult) -> Used {
    let resources = &trial.resources;
    let time = trial.seconds * 1e9 * f64::from(cell.scheduled.unwrap_or(cell.clients));
    let share = |of: &dyn Fn(&OperationFigures) -> f64| {
        // clients off the schedule wait for what it brings
        let scheduled = trial.operations.iter().filter(|operation| !operation.response.is_empty());
        if time > 0.0 { (scheduled.map(of).sum::<f64>() / time).min(1.0) } else { 0.0 }
    };
    let ended = |times: &LatencyFigures| times.mean_ns * times.count as f64;
    let keeper = resources.server.as_ref().or(cell.embedded.then_some(&resources.client));
    let written = keeper.and_then(|keeper| keeper.written_bytes);
    Used {
        client_cores: resources.client.cpu_mean,
        server_cores: resources.server.as_ref().map(|server| server.cpu_mean),
        machine_cores: resources.machine.cpu_mean,
        written_per_second: written.map(|bytes| bytes as f64 / resources.seconds.max(1e-9)),
        disk_stalled: resources.machine.pressure_io_some.map(|percent| percent / 100.0),
        conflicts: share(&|each| {
            let lost = each.service.get("conflict").map_or(0.0, ended);
            each.conflict_ns as f64 + each.lock_wait_ns as f64 + lost
        }),
        busy: share(&|each| each.service.values().map(ended).sum()),
    }
}
