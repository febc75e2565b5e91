//! The capacity that a search found: its figures in a result, made from the probes that the result has.
//!
//! A cell of a search has one trial for each probe, in the order in which they were made: first one in a closed loop, which says
//! where to begin, then those at a rate. All that is known of the search follows from them, so that a result that is read
//! again, and a run that is resumed, stand where the run stood.

mod probe;

use std::{collections::BTreeMap, time::Duration};

use acidtest_capacity::{Conclusion, Ended, Observation, Search, Settings, Step, Why};
use acidtest_model::{
    Measure, Objective, PerSecond, Share, Span,
    figure::{DAY, four_digits, offered, rate, three_digits},
};
use acidtest_workloads::Verdict;
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::probe::Probe;
use crate::{
    CapacityPlan, CellResult, OperationFigures, Plan, RunResult, TrialResult, UnreadableHistogram,
    latency::is_enough, statistics::median,
};

/// What a search found on a cell. Rates are operations a second that were offered over all clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Capacity {
    /// The capacity: the rate that 95 % of fresh probes are expected to hold, confirmed by fresh probes at that very rate, below
    /// the even odds, and below every rate at which the audit broke or could not tell. None if there is none, or the bench or
    /// the machine was the limit.
    pub carried: Option<f64>,
    /// Number of fresh probes at the capacity, made after it had been chosen, in which everything held.
    pub fresh_held: usize,
    /// Number of fresh probes at the capacity that told.
    pub fresh: usize,
    /// The rate that 95 % of probes hold, by a fit of all of them; none if none held or none missed.
    pub expected: Option<RateInterval>,
    /// The highest rate that passed twice or more, whether or not it is the capacity: what is known where a search did not come
    /// to its end.
    pub passed: Option<f64>,
    /// Number of probes at that rate in which everything held.
    pub passes: usize,
    /// Number of probes at that rate that told.
    pub told: usize,
    /// The even odds: the rate at which half of the probes hold, by the same fit.
    pub even_odds: Option<RateEstimate>,
    /// Why it is no higher.
    pub limit: Limit,
    /// Where latency begins to rise: the bend of its curve over the rate; none if it does not bend.
    pub knee: Option<KneeFigures>,
    /// Number of probes that were made at a rate.
    pub probes: usize,
    /// Whether the search came to its end.
    pub finished: bool,
    /// What was measured at each rate, ascending.
    pub curve: Vec<RateFigures>,
    /// The capacity beside the demand; none where no demand or no capacity is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headroom: Option<Headroom>,
}

/// The 95 % interval of a rate, in operations a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateInterval {
    /// Its lower bound.
    pub low: f64,
    /// Its upper bound.
    pub high: f64,
}

/// A rate with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateEstimate {
    /// The rate, in operations a second.
    pub per_second: f64,
    /// Lower bound of its 95 % interval.
    pub low: f64,
    /// Upper bound of its 95 % interval.
    pub high: f64,
    /// Standard deviation of what single probes would have held, as a share of the rate.
    pub spread: f64,
}

/// Where a curve of latency over rate bends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KneeFigures {
    /// The rate at the bend, in operations a second.
    pub per_second: f64,
    /// The 99th percentile there, of the slowest operation, in nanoseconds.
    pub p99_ns: f64,
}

/// Why a search went no higher. Rates are in operations a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Limit {
    /// An objective was missed above the capacity.
    Objective {
        /// The objective, as it was written.
        objective: String,
        /// The lowest rate above the capacity at which most probes missed it.
        at: f64,
        /// What was measured there over what is allowed; none where too many operations were not served at all.
        ratio: Option<f64>,
    },
    /// The bench could not offer the rate: there is no capacity.
    Bench {
        /// The lowest rate that it could not offer.
        at: f64,
    },
    /// The audit found a broken promise.
    Broke {
        /// The lowest rate at which it did.
        at: f64,
    },
    /// It could not be told, twice: by the audit, or for want of operations that an objective is judged by.
    Unknown {
        /// The lowest rate of those.
        at: f64,
    },
    /// The store was lost, or a probe could not be made: then the cell has an error.
    Gone {
        /// The rate at which it was; none in the closed loop before.
        at: Option<f64>,
    },
    /// An objective was missed down to the lowest rate that was tried.
    NoRate {
        /// The objective that was missed by most in the probe that came nearest.
        objective: String,
        /// The rate of that probe.
        at: f64,
        /// What was measured there over what is allowed; none where too many operations were not served at all.
        ratio: Option<f64>,
    },
    /// The budget of time or probes was spent before a rate was confirmed.
    Budget,
    /// Other programs used a quarter of the machine or more, for so many probes that nothing more could be said of the store.
    Machine,
    /// The highest rate that can be asked for was met.
    Highest,
    /// The search did not come to its end.
    Unfinished,
}

/// What was measured at one rate of a search: medians over its probes, without those that were interrupted where there are others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateFigures {
    /// The rate, in operations a second.
    pub per_second: f64,
    /// Number of probes in which every objective and the audit held.
    pub met: usize,
    /// Number of probes in which an objective was missed.
    pub missed: usize,
    /// Number of probes that told nothing of the objectives, or in which the audit broke.
    pub other: usize,
    /// The worst verdict.
    pub verdict: Verdict,
    /// Share of the offered operations that were not served: failed, given up, unknown or never started.
    pub errors: f64,
    /// Response times of each operation on the schedule, by name.
    pub times: BTreeMap<String, OperationTimes>,
    /// What was used meanwhile.
    pub used: Used,
}

/// Response times of an operation, in nanoseconds. Those that were not served count as slower than any that were.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OperationTimes {
    /// The median; none where more were not served.
    pub p50_ns: Option<f64>,
    /// The 99th percentile; none where more were not served.
    pub p99_ns: Option<f64>,
    /// Of how many operations they are: of the probe that has fewest.
    pub operations: u64,
}

impl OperationTimes {
    /// Whether they are of so many operations that this percentile of them is shown.
    #[must_use]
    pub fn is_enough(&self, percent: f64) -> bool {
        is_enough(self.operations, percent)
    }
}

/// What client, server, disk and locks did at a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Used {
    /// Cores that the clients kept busy; the store's with them, where it runs in their process.
    pub client_cores: f64,
    /// Cores that the server's processes kept busy; none where they are not seen.
    pub server_cores: Option<f64>,
    /// Busy cores of the whole machine.
    pub machine_cores: f64,
    /// Bytes a second that the server's processes, or those of an embedded store, sent towards the disk; none where the kernel
    /// does not say.
    pub written_per_second: Option<f64>,
    /// Share of the time in which some task waited for the disk; none where the kernel does not say.
    pub disk_stalled: Option<f64>,
    /// Share of the clients' time that went to attempts which lost to other clients, and to waits for locks that the clients
    /// themselves wait for.
    pub conflicts: f64,
    /// Share of the clients' time in which an operation was in flight.
    pub busy: f64,
}

/// A capacity beside the demand. What is computed and not measured is told with its assumptions wherever it is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Headroom {
    /// The demand, in operations a second.
    pub demand: f64,
    /// Capacity over demand.
    pub times: f64,
    /// Computed: days until the demand has grown to the capacity; none without growth. 0 where it is above it already.
    pub days: Option<f64>,
    /// Computed: the day on which it has, if the run's day is the first; none where that is beyond the calendar.
    pub date: Option<String>,
    /// Computed: when the table no longer fits into the room that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<SpaceForecast>,
}

/// Computed: when a growing table no longer fits into some memory or disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpaceForecast {
    /// Bytes that a row takes, measured at the highest rate that held.
    pub bytes_a_row: f64,
    /// Rows that an operation adds, measured at the same rate.
    pub rows_an_operation: f64,
    /// Days from an empty table until it is full, at the demand with its growth.
    pub days: f64,
    /// The day on which it is, if the run's day is the first; none where that is beyond the calendar.
    pub date: Option<String>,
}

/// What a search asks for next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// A trial in a closed loop, which says where to begin.
    ClosedLoop,
    Probe {
        /// Its rate, in operations a second.
        rate: f64,
        /// How long it is measured.
        length: Duration,
    },
    Nothing,
}

/// A search as far as a cell's trials tell it.
struct SearchProgress<'a> {
    search: Option<Search>,
    probes: Vec<(Probe, Observation)>,
    /// Whether the store was lost before the first probe.
    is_lost: bool,
    /// How long a probe of how many operations a second is to be.
    lengths: Lengths,
    cell: &'a CellResult,
}

/// The lowest and the highest rate that an open loop can have.
const LOWEST: f64 = 0.001;
const HIGHEST: f64 = 10_000_000.0;

/// A search begins at this share of what the closed loop reached.
const BEGINNING: f64 = 0.5;

/// A rate is searched for down to this share of where it begins: a store that misses an objective there misses it alone.
const DEEPEST: f64 = 1.0 / 256.0;

/// But to no rate at which a probe is offered fewer operations.
const FEWEST: f64 = 20.0;

/// Operations that are wanted beyond a percentile: half as many again as have to be, as arrivals are random.
const WANTED: f64 = 15.0;

/// How long a probe has to be for its objectives to be judged.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    /// Operations that a probe needs for every operation that an objective is about.
    all: f64,
    /// Operations without which an objective cannot be judged at all.
    least: f64,
    shortest: Duration,
    longest: Duration,
}

impl Lengths {
    /// By the shares of the operations in a closed loop.
    fn of(result: &RunResult, plan: &CapacityPlan, closed: &TrialResult) -> Self {
        let count =
            |each: &OperationFigures| each.service.values().map(|times| times.count as f64).sum::<f64>();
        let all: f64 = closed.operations.iter().map(count).sum();
        let share = |each: &OperationFigures| count(each) / all.max(1.0);
        let of = |objective: &Objective| -> Vec<f64> {
            let named =
                |each: &&OperationFigures| objective.operation.as_ref().is_none_or(|name| each.name == *name);
            let shares = closed.operations.iter().filter(named).map(share).filter(|share| *share > 0.0);
            let wanted = match objective.measure {
                Measure::Percentile(percent) => WANTED / (1.0 - percent / 100.0),
                // one that fails is then no more than is allowed
                Measure::Errors if objective.limit > 0.0 => objective.limit.recip(),
                Measure::Errors | Measure::Longest => return Vec::new(),
            };
            match (objective.measure, &objective.operation) {
                (Measure::Errors, None) => vec![wanted],
                _ => shares.map(|share| wanted / share).collect(),
            }
        };
        let each: Vec<Vec<f64>> = plan.slo.iter().map(of).collect();
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(FEWEST, f64::max);
        let longest = result.plan.duration.0;
        Self {
            all: most(&mut each.iter().flatten().copied()),
            least: most(&mut each.iter().filter_map(|all| all.iter().copied().reduce(f64::min))),
            shortest: plan.shortest(&result.plan).0,
            longest,
        }
    }

    fn at(&self, rate: f64) -> Duration {
        let needed = Duration::try_from_secs_f64(self.all / rate).unwrap_or(self.longest);
        needed.clamp(self.shortest, self.longest)
    }

    /// The lowest rate (operations a second) at which a probe tells anything.
    fn lowest_rate(&self) -> f64 {
        self.least / self.longest.as_secs_f64().max(1e-3)
    }
}

impl CapacityPlan {
    /// The settings of a search after a closed loop that reached so many operations a second and took so many seconds.
    fn settings(&self, closed: f64, took: f64, lowest: f64, demand: Option<PerSecond>) -> Settings {
        let first = four_digits((closed * BEGINNING).clamp(LOWEST / DEEPEST, HIGHEST));
        let floor = four_digits((first * DEEPEST).max(lowest).clamp(LOWEST, first));
        let Share(tolerance) = self.within;
        Settings {
            first,
            floor,
            ceiling: HIGHEST,
            tolerance,
            // what a closed loop takes is the budget's, too, but never all of it
            seconds: (self.budget.0.as_secs_f64() - took).max(1e-3),
            probes: self.probes as usize,
            demand: demand.map(|PerSecond(demand)| demand),
            ..Settings::default()
        }
    }

    /// How long a probe is measured that needs no longer: one of many operations a second.
    #[must_use]
    pub fn shortest(&self, plan: &Plan) -> Span {
        if self.adaptive { Span(Self::SHORTEST.min(plan.duration.0)) } else { plan.duration }
    }

    /// How long probes are measured, in words: `5s to 30s`.
    #[must_use]
    pub fn measured(&self, plan: &Plan) -> String {
        let (shortest, longest) = (self.shortest(plan), plan.duration);
        if shortest == longest { longest.to_string() } else { format!("{shortest} to {longest}") }
    }

    /// How many probes a search takes, from and to, besides the trial in a closed loop, if their warm-up and their measured part
    /// take as long as the plan says: from those of a store whose speed hardly varies to all that the budget has room for.
    #[must_use]
    pub fn expected_probes(&self, plan: &Plan) -> (u32, u32) {
        let each = (plan.warmup.0 + self.shortest(plan).0).as_secs_f64().max(1e-3);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
        let most = ((self.budget.0.as_secs_f64() / each) as u32).clamp(1, self.probes);
        (QUIET.min(most), most)
    }

    /// How many probes the budget has room for, and how many a search takes on a store whose speed hardly varies, if these are
    /// more.
    #[must_use]
    pub fn too_few_probes(&self, plan: &Plan) -> Option<(u32, u32)> {
        let (_, room) = self.expected_probes(plan);
        (room < QUIET).then_some((room, QUIET))
    }
}

/// Probes of a search on a store whose speed hardly varies.
const QUIET: u32 = 40;

impl<'a> SearchProgress<'a> {
    /// What the cell's trials tell; `None` if the result is of no search.
    fn by(result: &'a RunResult, cell: &'a CellResult) -> Result<Option<Self>, UnreadableHistogram> {
        let Some(plan) = &result.plan.capacity else { return Ok(None) };
        let longest = result.plan.duration.0;
        let lengths = Lengths { all: FEWEST, least: FEWEST, shortest: longest, longest };
        let mut told = Self { search: None, probes: Vec::new(), is_lost: false, lengths, cell };
        // the clock of an interrupted trial did not run to its end: it tells of nothing but the promise that it broke
        let breaks = |trial: &TrialResult| trial.audit.breaks_promise(&cell.without);
        // what closed loops that were interrupted had reached when they broke one
        let mut broke = Vec::new();
        for trial in cell.trials.iter().filter(|trial| !trial.was_interrupted() || breaks(trial)) {
            match (trial.rate, &mut told.search) {
                (None, None) if trial.was_interrupted() => broke.push(trial.ended_per_second()),
                (None, None) if trial.stopped.is_some() => told.is_lost = true,
                (None, None) => {
                    let closed = trial.ended_per_second();
                    told.lengths = Lengths::of(result, plan, trial);
                    let lowest = told.lengths.lowest_rate();
                    let took = trial.took_seconds;
                    told.search = Search::new(plan.settings(closed, took, lowest, result.plan.demand)).ok();
                    let Some(search) = &mut told.search else { continue };
                    for reached in broke.drain(..).chain(breaks(trial).then_some(closed)) {
                        // one in which nothing had ended yet was under the same load as this one
                        let rate = if reached > 0.0 { reached.min(closed) } else { closed };
                        search.told(without_figures(rate, Ended::Broke));
                    }
                }
                (Some(rate), Some(search)) => {
                    let probe = Probe::of(trial, cell, result)?;
                    let observation = probe.observation(rate, &plan.slo);
                    search.told(observation.clone());
                    told.probes.push((probe, observation));
                }
                _ => {}
            }
        }
        // the probe that was asked for could not be made
        if let (Some(search), true) = (&mut told.search, cell.error.is_some())
            && let Step::Probe(rate) = search.next()
        {
            search.told(without_figures(rate, Ended::Gone));
        }
        told.is_lost |= told.search.is_none() && cell.error.is_some();
        Ok(Some(told))
    }

    fn next(&self) -> Next {
        match self.search.as_ref().map(Search::next) {
            None if self.is_lost => Next::Nothing,
            None => Next::ClosedLoop,
            Some(Step::Probe(rate)) => Next::Probe { rate, length: self.lengths.at(rate) },
            Some(Step::Done(_)) => Next::Nothing,
        }
    }

    /// What is known so far, in words; none before some probes held and others missed.
    fn so_far(&self) -> Option<String> {
        let search = self.search.as_ref()?;
        let Some((candidate, held, told)) = search.confirming() else {
            let (low, high) = search.so_far().expected?;
            return Some(format!("so far 95 % hold at {} to {}/s", rate(low), rate(high)));
        };
        Some(format!("confirming {}/s: {held} of {told} fresh probes held", offered(candidate)))
    }

    fn capacity(&self, result: &RunResult) -> Option<Capacity> {
        let plan = result.plan.capacity.as_ref()?;
        let (conclusion, finished) = match &self.search {
            None => (None, self.is_lost),
            Some(search) => match search.next() {
                Step::Done(conclusion) => (Some(*conclusion), true),
                Step::Probe(_) => (Some(search.so_far()), false),
            },
        };
        let limit = match &conclusion {
            None if finished => Limit::Gone { at: None },
            Some(conclusion) if finished => limit(&conclusion.why, plan),
            _ => Limit::Unfinished,
        };
        let curve = self.curve();
        let carried = conclusion.as_ref().and_then(|found| found.capacity).filter(|_| finished);
        let fresh = conclusion.as_ref().filter(|_| carried.is_some()).map_or((0, 0), |found| found.fresh);
        let knee = conclusion.as_ref().and_then(|found| found.knee);
        let mut capacity = Capacity {
            carried,
            fresh_held: fresh.0,
            fresh: fresh.1,
            expected: conclusion.as_ref().and_then(expected),
            passed: conclusion.as_ref().and_then(|found| found.passed),
            passes: conclusion.as_ref().map_or(0, |found| found.passes.0),
            told: conclusion.as_ref().map_or(0, |found| found.passes.1),
            even_odds: conclusion.as_ref().and_then(even_odds),
            limit,
            knee: knee.map(|knee| KneeFigures { per_second: knee.rate, p99_ns: knee.latency * 1e9 }),
            probes: self.probes.len(),
            finished,
            curve,
            headroom: None,
        };
        capacity.headroom = headroom(&capacity, self.cell, result);
        Some(capacity)
    }

    /// What was measured at each rate, ascending.
    fn curve(&self) -> Vec<RateFigures> {
        let mut probes: Vec<&(Probe, Observation)> = self.probes.iter().collect();
        probes.sort_by(|(_, one), (_, other)| one.rate.total_cmp(&other.rate));
        let same =
            |one: &&(Probe, Observation), other: &&(Probe, Observation)| is_same(one.1.rate, other.1.rate);
        probes.chunk_by(same).map(at_one_rate).collect()
    }
}

/// How something ended that was not measured at a rate, or not at all.
fn without_figures(rate: f64, ended: Ended) -> Observation {
    Observation { rate, ended, margins: Vec::new(), latency: None, seconds: 0.0 }
}

fn at_one_rate(probes: &[&(Probe, Observation)]) -> RateFigures {
    let whole: Vec<&(Probe, Observation)> =
        probes.iter().copied().filter(|(probe, _)| !probe.was_interrupted).collect();
    let measured = if whole.is_empty() { probes } else { &whole };
    let ended = |wanted: fn(&Ended) -> bool| probes.iter().filter(|(_, told)| wanted(&told.ended)).count();
    let met = ended(|ended| *ended == Ended::Met);
    let missed = ended(|ended| matches!(ended, Ended::Missed { .. }));
    let mut names: Vec<&String> = measured.iter().flat_map(|(probe, _)| probe.times.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let times = names.into_iter().map(|name| {
        let of = |figure: fn(&OperationTimes) -> Option<f64>| {
            // what was not served is slower than any other
            let seen = measured.iter().filter_map(|(probe, _)| probe.times.get(name));
            median(seen.map(|times| figure(times).unwrap_or(f64::INFINITY))).filter(|time| time.is_finite())
        };
        let seen = measured.iter().filter_map(|(probe, _)| Some(probe.times.get(name)?.operations));
        let operations = seen.min().unwrap_or(0);
        let (p50_ns, p99_ns) = (of(|times| times.p50_ns), of(|times| times.p99_ns));
        (name.clone(), OperationTimes { p50_ns, p99_ns, operations })
    });
    let used = |figure: fn(&Used) -> Option<f64>| {
        median(measured.iter().filter_map(|(probe, _)| figure(&probe.used)))
    };
    RateFigures {
        per_second: probes.first().map_or(0.0, |(_, told)| told.rate),
        met,
        missed,
        other: probes.len() - met - missed,
        verdict: probes.iter().map(|(probe, _)| probe.verdict).max().unwrap_or(Verdict::Unknown),
        errors: median(measured.iter().map(|(probe, _)| probe.errors)).unwrap_or(0.0),
        times: times.collect(),
        used: Used {
            client_cores: used(|used| Some(used.client_cores)).unwrap_or(0.0),
            server_cores: used(|used| used.server_cores),
            machine_cores: used(|used| Some(used.machine_cores)).unwrap_or(0.0),
            written_per_second: used(|used| used.written_per_second),
            disk_stalled: used(|used| used.disk_stalled),
            conflicts: used(|used| Some(used.conflicts)).unwrap_or(0.0),
            busy: used(|used| Some(used.busy)).unwrap_or(0.0),
        },
    }
}

/// Whether two rates are one: a number that was read back may differ in its last bit.
fn is_same(one: f64, other: f64) -> bool {
    (one / other - 1.0).abs() < 1e-9
}

/// A ratio, unless it is so large because operations were not served at all.
fn finite(ratio: f64) -> Option<f64> {
    Some(ratio).filter(|ratio| ratio.is_finite())
}

fn limit(why: &Why, plan: &CapacityPlan) -> Limit {
    let named = |objective: usize| plan.slo.get(objective).map(ToString::to_string).unwrap_or_default();
    match *why {
        Why::Objective { objective, rate, ratio } => {
            Limit::Objective { objective: named(objective), at: rate, ratio: finite(ratio) }
        }
        Why::Bench { rate } => Limit::Bench { at: rate },
        Why::Broke { rate } => Limit::Broke { at: rate },
        Why::Unknown { rate } => Limit::Unknown { at: rate },
        Why::Gone { rate } => Limit::Gone { at: Some(rate) },
        Why::NoRateMeets { best } => {
            Limit::NoRate { objective: named(best.objective), at: best.rate, ratio: finite(best.ratio) }
        }
        Why::Budget => Limit::Budget,
        Why::Machine => Limit::Machine,
        Why::AtLimit { .. } => Limit::Highest,
    }
}

fn expected(found: &Conclusion) -> Option<RateInterval> {
    let (low, high) = found.expected?;
    (low.is_finite() && high.is_finite()).then_some(RateInterval { low, high })
}

fn even_odds(found: &Conclusion) -> Option<RateEstimate> {
    let estimate = found.even_odds?;
    let rates = [estimate.rate, estimate.low, estimate.high, estimate.spread];
    rates.iter().all(|rate| rate.is_finite()).then_some(RateEstimate {
        per_second: estimate.rate,
        low: estimate.low,
        high: estimate.high,
        spread: estimate.spread,
    })
}

/// Days after which nothing is computed any more: a thousand years.
const FAR: f64 = 365_242.5;

fn headroom(capacity: &Capacity, cell: &CellResult, result: &RunResult) -> Option<Headroom> {
    let PerSecond(demand) = result.plan.demand?;
    let times = capacity.carried? / demand;
    let growth = result.plan.capacity.as_ref()?.growth.map(acidtest_model::Growth::log_per_day);
    let days = growth.map(|growth| (times.ln() / growth).max(0.0));
    let date = |days: f64| date(&result.started, days);
    Some(Headroom {
        demand,
        times,
        days,
        date: days.and_then(date),
        room: room(capacity, cell, result, demand),
    })
}

/// When the rows that come at the demand, with its growth, fill the room that was asked for.
fn room(capacity: &Capacity, cell: &CellResult, result: &RunResult, demand: f64) -> Option<SpaceForecast> {
    let acidtest_model::Bytes(room) = result.plan.fits?;
    let rate = capacity.carried?;
    let at = |trial: &&TrialResult| trial.rate.is_some_and(|at| is_same(at, rate)) && trial.size.is_some();
    let trials: Vec<&TrialResult> = cell.trials.iter().filter(at).collect();
    let bytes_a_row = median(trials.iter().filter_map(|trial| {
        let size = trial.size.as_ref()?;
        let all = size.data_bytes?.saturating_add(size.index_bytes.unwrap_or(0));
        (size.rows > 0).then(|| all as f64 / size.rows as f64)
    }))?;
    let rows_an_operation = median(trials.iter().filter_map(|trial| {
        let rows = trial.size.as_ref()?.rows.saturating_sub(trial.data.rows);
        // those of the warm-up are not counted, and came at the same rate
        let driven = 1.0 + result.plan.warmup.0.as_secs_f64() / trial.seconds.max(1e-9);
        let done = trial.arrived.completed as f64 * driven;
        (done > 0.0).then(|| rows as f64 / done)
    }))?;
    let (rows, a_day) = (room as f64 / bytes_a_row, demand * rows_an_operation * DAY);
    let growth = result.plan.capacity.as_ref()?.growth.map_or(0.0, acidtest_model::Growth::log_per_day);
    // the rows of a demand that grows by e^(growth t): a_day (e^(growth t) - 1) / growth
    let days = if growth > 0.0 { (rows / a_day * growth).ln_1p() / growth } else { rows / a_day };
    (a_day > 0.0 && bytes_a_row > 0.0 && days.is_finite()).then(|| SpaceForecast {
        bytes_a_row,
        rows_an_operation,
        days,
        date: date(&result.started, days),
    })
}

/// The day so many days after a moment, in UTC; none where the moment is none, or the day is far away.
fn date(from: &str, days: f64) -> Option<String> {
    let from: Timestamp = from.parse().ok()?;
    #[allow(clippy::cast_possible_truncation)] // a number of days below FAR
    let days = (0.0..FAR).contains(&days).then(|| days.floor() as i64)?;
    let day = from.to_zoned(TimeZone::UTC).date().checked_add(days.days()).ok()?;
    Some(day.to_string())
}

impl RunResult {
    /// What the search on a cell asks for next; nothing where the result is of no search.
    ///
    /// # Errors
    /// A histogram that cannot be read.
    pub fn next_probe(&self, cell: &CellResult) -> Result<Next, UnreadableHistogram> {
        Ok(SearchProgress::by(self, cell)?.map_or(Next::Nothing, |told| told.next()))
    }

    /// What the last trial of a search on a cell told, in words; none where it was no probe, or was interrupted.
    ///
    /// # Errors
    /// A histogram that cannot be read.
    pub fn last_probe(&self, cell: &CellResult) -> Result<Option<String>, UnreadableHistogram> {
        let last = cell.trials.last().filter(|trial| !trial.was_interrupted());
        let (Some(plan), Some((trial, rate))) =
            (&self.plan.capacity, last.and_then(|trial| Some((trial, trial.rate?))))
        else {
            return Ok(None);
        };
        let ended = match Probe::of(trial, cell, self)?.observation(rate, &plan.slo).ended {
            Ended::Met => "every objective met".to_owned(),
            Ended::Missed { objective: at, ratio } => {
                let named = plan.slo.get(at).map(ToString::to_string).unwrap_or_default();
                match finite(ratio) {
                    Some(ratio) => format!("{named} missed: ×{}", three_digits(ratio)),
                    None => format!("{named} missed: not all were served"),
                }
            }
            Ended::Broke => "a promise is broken".to_owned(),
            Ended::Unknown => "inconclusive".to_owned(),
            Ended::BenchLimited => "the bench could not offer it".to_owned(),
            Ended::MachineLimited => {
                "machine-limited: other programs used a quarter of it or more".to_owned()
            }
            Ended::Gone => "the store was lost".to_owned(),
        };
        let so_far = SearchProgress::by(self, cell)?.and_then(|told| told.so_far());
        Ok(Some(so_far.map_or(ended.clone(), |so_far| format!("{ended} · {so_far}"))))
    }

    /// Sets what the searches found, as far as the trials tell it, and the prices that follow from it.
    ///
    /// # Errors
    /// A histogram that cannot be read.
    pub fn find_capacities(&mut self) -> Result<(), UnreadableHistogram> {
        let found = self
            .cells
            .iter()
            .map(|cell| Ok(SearchProgress::by(self, cell)?.and_then(|told| told.capacity(self))))
            .collect::<Result<Vec<_>, UnreadableHistogram>>()?;
        for (cell, found) in self.cells.iter_mut().zip(found) {
            cell.capacity = found;
        }
        self.price_capacities();
        Ok(())
    }
}

impl Capacity {
    /// What was measured at the rate above the capacity that shows its limit, and at the rate nearest to half of that; none where
    /// no rate missed more often than it held, or half was not run.
    #[must_use]
    pub fn at_limit_and_half(&self) -> Option<(&RateFigures, &RateFigures)> {
        let above = self.carried.or(self.passed).unwrap_or(0.0);
        let at = match self.limit {
            Limit::Objective { at, .. }
            | Limit::Bench { at }
            | Limit::Broke { at }
            | Limit::Unknown { at }
            | Limit::NoRate { at, .. }
            | Limit::Gone { at: Some(at) } => at,
            _ => {
                self.curve
                    .iter()
                    .find(|figures| figures.per_second > above && figures.missed > figures.met)?
                    .per_second
            }
        };
        let limit = self.curve.iter().find(|figures| is_same(figures.per_second, at))?;
        let off = |figures: &&RateFigures| (figures.per_second / (at / 2.0)).ln().abs();
        let half = self.curve.iter().min_by(|one, other| off(one).total_cmp(&off(other)))?;
        // within a third of it: nothing else is half
        (off(&half) < 0.3).then_some((limit, half))
    }

    /// Whether the store carries this demand (operations a second): up to the capacity it does. It does not carry one at or above a rate
    /// at which a promise was broken, or above the whole interval of the rate that 95 % of probes hold; nor any where no rate meets
    /// the objectives. None where that is not known.
    #[must_use]
    pub fn carries(&self, demand: f64) -> Option<bool> {
        if self.carried.is_some_and(|carried| demand <= carried) {
            return Some(true);
        }
        let is_too_much = match self.limit {
            Limit::NoRate { .. } => true,
            Limit::Broke { at } if demand >= at => true,
            // a fit of what was seen below a wall says nothing of the store above it
            Limit::Bench { .. } | Limit::Unknown { .. } | Limit::Gone { .. } => false,
            _ => self.expected.is_some_and(|expected| demand > expected.high),
        };
        is_too_much.then_some(false)
    }

    /// The worst verdict at or below the capacity; of all probes where there is none.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let up_to = self.carried.unwrap_or(f64::INFINITY);
        let below = self.curve.iter().filter(|figures| figures.per_second <= up_to * (1.0 + 1e-9));
        below.map(|figures| figures.verdict).max().unwrap_or(Verdict::Unknown)
    }
}

#[cfg(test)]
mod tests;
