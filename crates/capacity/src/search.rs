//! The search itself.
//!
//! 1. *Bracket*: from the first rate, twice as much while met, half as much while missed.
//! 2. *Bisect* on the geometric scale down to neighbours of the grid. As soon as outcomes contradict each other (a miss
//!    below a pass), or when both neighbours are confirmed by a second probe, it goes on with
//! 3. *Estimate*: all probes are fitted (`fit`), and further ones are made around the even odds until their interval is narrow
//!    enough, the demand lies clearly on one side of what most probes meet, or the budget leaves no more than the next step takes.
//! 4. *Confirm*: the rate that 95 % of fresh probes are expected to meet becomes the candidate, and fresh probes are made at it. If
//!    too many of them miss, it is given up, and a lower one is confirmed anew.
//! 5. *Fill* the curve up to enough different rates.
//!
//! What stands above all this is the *wall*: the lowest rate at which the audit broke (once is enough), it could not
//! tell, or the bench could not offer the rate (each twice). Nothing at or above it is probed or given any more.

use std::collections::BTreeMap;

use crate::{
    conclusion::{Best, Conclusion, Estimate, Point, Why},
    fit::{Fit, Sample, fit},
    knee::knee,
    settings::{Settings, SettingsError},
};

/// How a probe ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ended {
    /// Every objective held, and so did the audit.
    Met,
    /// An objective was missed; the audit held.
    Missed {
        /// Index of the objective that was missed by most.
        objective: usize,
        /// By how much: measured over allowed, above 1.
        ratio: f64,
    },
    /// The audit found a broken promise. Such a rate, and any above it, is never given as the capacity.
    Broke,
    /// The audit could not tell.
    Unknown,
    /// The bench could not offer the rate.
    BenchLimited,
    /// Other programs took so much of the machine that nothing can be said of the store, whatever was measured.
    MachineLimited,
    /// The store died.
    Gone,
}

/// What a probe answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// The rate that was asked for (operations a second).
    pub rate: f64,
    pub ended: Ended,
    /// Measured over allowed, of each objective: above 1 where it was missed. May be empty if it is not known.
    pub margins: Vec<f64>,
    /// Latency for the curve (seconds), such as the 99th percentile, if it was measured.
    pub latency: Option<f64>,
    /// Seconds that it took in all, with what came before and after it: what it costs the budget.
    pub seconds: f64,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Probe this rate (operations a second), and tell what it answered.
    Probe(f64),
    Done(Box<Conclusion>),
}

/// A search for a capacity. It only keeps what it was told: a search that is told the same observations again goes on
/// as if it had never stopped.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    settings: Settings,
    observations: Vec<Observation>,
    /// What is confirmed, or has been; it follows from the observations.
    candidate: Option<Candidate>,
    /// Lowest candidate that was given up.
    refused: Option<i32>,
}

/// A rate that most probes are expected to meet, with what fresh ones said.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Candidate {
    index: i32,
    met: usize,
    missed: usize,
}

/// Fresh probes that have to meet at a candidate, and how many more for each one that missed.
const FRESH: usize = 20;
const FRESH_AFTER_MISS: usize = 14;

impl Candidate {
    /// A sequential test (Wald, 1945) of a rate that 98 % meet against one that 85 % meet, in whole probes: a miss weighs as much as
    /// 14 that met.
    fn is_confirmed(self) -> bool {
        self.met >= FRESH + FRESH_AFTER_MISS * self.missed
    }

    fn is_refused(self) -> bool {
        self.missed > 0 && self.met <= FRESH_AFTER_MISS * (self.missed - 1)
    }

    /// Half of the fresh probes met, and as many more as for its misses: what a search gives that ends before its time.
    fn is_half_confirmed(self) -> bool {
        self.met >= FRESH / 2 + FRESH_AFTER_MISS * self.missed
    }
}

/// Passes at a rate after which it is said that it passed.
const CONFIRMED: usize = 2;
/// Probes in a row on a machine that others use, after which the search ends.
const DISTURBED: usize = 10;
/// Probes without which an early answer to the demand is not believed.
const EARLIEST: usize = 15;
/// Times that the bench or the audit has to fail to tell at a rate, to be believed.
const WALLED: usize = 2;
/// Probes of a large budget that are left for the candidate's confirmation, and for the half of a second one.
const RESERVE: usize = FRESH + FRESH / 2;
/// Every other probe for the estimate lies this many standard deviations from it.
const AROUND: f64 = 0.5;
/// By how much more the upper end of an interval may be than the lower one, so that it is told.
const TELLING: f64 = 10.0;

/// Up to so many probes, they lie this far off (natural log of the rate) or further. Near the estimate alone, a noisy
/// machine looks quiet by chance too often, and the search stops too early.
const EXPLORED: usize = 24;
const EXPLORE: f64 = 0.1;
/// Probes about that far off without which no estimate is believed to be narrow.
const ENOUGH: usize = 6;

/// Outcomes at one rate of the grid.
#[derive(Debug, Clone, Copy, Default)]
struct ProbeCounts {
    met: usize,
    missed: usize,
    broke: usize,
    unknown: usize,
    bench: usize,
}

impl ProbeCounts {
    fn told(self) -> usize {
        self.met + self.missed
    }

    /// Passed twice or more, unless it failed more often by more than a standard deviation of so many even chances.
    fn confirmed(self) -> bool {
        let surplus = self.missed.saturating_sub(self.met) as f64;
        self.met >= CONFIRMED && surplus <= (self.told() as f64).sqrt()
    }

    /// Most of up to three probes missed.
    fn failed(self) -> bool {
        !self.confirmed() && self.missed >= 2
    }

    /// Told nothing as yet, though it was probed.
    fn undecided(self) -> bool {
        self.told() == 0 && self.unknown + self.bench > 0
    }
}

/// What stands above the rates that may be probed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum UpperBound {
    Broke,
    Unknown,
    Bench,
    /// The settings' ceiling.
    Limit,
}

/// All that follows from the observations.
struct View {
    counts_by_rate: BTreeMap<i32, ProbeCounts>,
    /// Lowest rate of the grid that may not be probed, and why.
    wall: (i32, UpperBound),
    fit: Option<Fit>,
}

/// Where the search stands.
enum Plan {
    Probe(i32),
    Done(Outcome),
}

/// How it ends, with the rate of the grid that is the capacity, if any.
enum Outcome {
    Found(i32),
    Walled,
    NoRateMeets,
    Budget(Option<i32>),
    Machine(Option<i32>),
    Gone(f64),
}

impl Search {
    /// A search that knows nothing yet. Errors: [`Settings::check`].
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(Self { settings, observations: Vec::new(), candidate: None, refused: None })
    }

    /// All that the search was told, in order: to resume it, tell a new one with the same settings the same.
    #[must_use]
    pub fn observations(&self) -> &[Observation] {
        &self.observations
    }

    /// Adds what a probe answered. It should be one at the rate that [`Search::next`] asked for. Any other counts for
    /// the estimate, the wall and the curve, but cannot become the capacity.
    pub fn told(&mut self, observation: Observation) {
        self.observations.push(observation);
        self.judge_candidate();
    }

    /// Counts the last probe for the candidate, gives up one that cannot be the capacity, and chooses the next one when it is time.
    fn judge_candidate(&mut self) {
        let view = self.view();
        if let (Some(last), Some(candidate)) = (self.observations.last(), self.candidate) {
            let (ended, is_there) = (last.ended, self.index(last.rate) == Some(candidate.index));
            let counted = |ended: bool| usize::from(ended && is_there);
            let candidate = Candidate {
                met: candidate.met + counted(ended == Ended::Met),
                missed: candidate.missed + counted(matches!(ended, Ended::Missed { .. })),
                ..candidate
            };
            let is_above = view.fit.is_some_and(|fit| candidate.index > self.at_or_below(fit.centre.exp()));
            self.candidate = Some(candidate);
            if candidate.is_refused() || candidate.index >= view.wall.0 || is_above {
                self.refused = Some(self.refused.map_or(candidate.index, |least| least.min(candidate.index)));
                self.candidate = None;
            }
        }
        if self.candidate.is_none() && self.is_ready(&view) {
            self.candidate = self.most(&view).map(|index| Candidate { index, met: 0, missed: 0 });
        }
    }

    /// Highest index that 95 % of fresh probes are expected to meet; none where even the lowest was given up.
    fn most(&self, view: &View) -> Option<i32> {
        // a fit of few probes knows little, and its bound may lie orders of magnitude below all that met
        let octave_below = || {
            let met = view.counts_by_rate.range(..view.wall.0).rfind(|(_, counts)| counts.met > 0);
            met.map_or(self.lowest(), |(index, _)| index - self.settings.steps_per_octave())
        };
        let fitted = view.fit.map_or(i32::MAX, |fit| {
            let least = if fit.in_order { octave_below() } else { self.lowest() };
            self.at_or_below(fit.most().exp()).max(least).max(self.lowest())
        });
        #[allow(clippy::cast_possible_truncation)] // a share of an octave's steps
        let step = view.fit.map_or(2, |fit| {
            (fit.spread / 2.0_f64.ln() * f64::from(self.settings.steps_per_octave())) as i32
        });
        let lower = self.refused.map_or(i32::MAX, |refused| refused - step.max(2));
        let index = fitted.min(lower).min(view.wall.0 - 1);
        if index >= self.lowest() {
            return Some(index);
        }
        // a refused rate just above the lowest leaves that one
        Some(self.lowest())
            .filter(|lowest| *lowest < view.wall.0 && self.refused.is_none_or(|refused| refused > *lowest))
    }

    /// How many more probes the budget allows, if they take as long as the last few.
    fn left(&self) -> usize {
        let count = self.observations.len();
        let spent: f64 = self.observations.iter().map(|o| o.seconds.max(0.0)).sum();
        let last = &self.observations[count.saturating_sub(5)..];
        let each = last.iter().map(|o| o.seconds.max(0.0)).sum::<f64>() / last.len().max(1) as f64;
        let by_number = self.settings.probes.saturating_sub(count);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
        let by_time = ((self.settings.seconds - spent) / each).max(0.0) as usize;
        if each > 0.0 { by_number.min(by_time) } else { by_number }
    }

    /// Probes of the budget that are left for confirming: of a small budget, half.
    fn reserve(&self) -> usize {
        RESERVE.min(usize::midpoint(self.observations.len(), self.left()))
    }

    /// Whether it is time to confirm a rate.
    fn is_ready(&self, view: &View) -> bool {
        let below = || view.counts_by_rate.range(..view.wall.0);
        let met = below().filter(|(_, counts)| counts.met > 0).map(|(index, _)| *index).max();
        let missed = below().filter(|(_, counts)| counts.missed > 0).map(|(index, _)| *index).min();
        match (met, missed) {
            // nothing was missed up to the wall; of a bench's own wall there is nothing to confirm
            (Some(met), None) => met + 1 >= view.wall.0 && view.wall.1 != UpperBound::Bench,
            (Some(met), Some(missed)) => {
                let is_bracketed = missed < met
                    || missed - met <= 2 && view.at(met).met >= CONFIRMED && view.at(missed).missed >= 2;
                is_bracketed
                    && (self.narrow(view) || self.is_demand_clear(view) || self.left() <= self.reserve())
            }
            _ => false,
        }
    }

    /// Whether the demand is surely met by most probes, or surely not.
    fn is_demand_clear(&self, view: &View) -> bool {
        let (Some(demand), Some(fit)) = (self.settings.demand, view.fit) else { return false };
        let demand = demand.ln();
        self.samples(view.wall.0).len() >= EARLIEST
            && (fit.most() >= demand || fit.most_interval().1 < demand)
    }

    /// What to do next. The same until the search is told more.
    #[must_use]
    pub fn next(&self) -> Step {
        let view = self.view();
        match self.plan(&view) {
            Plan::Probe(index) => Step::Probe(self.rate(index)),
            Plan::Done(outcome) => Step::Done(Box::new(self.conclude(&view, &outcome))),
        }
    }

    /// The rate that is being confirmed (operations a second), with the fresh probes at it that met, and all that told.
    #[must_use]
    pub fn confirming(&self) -> Option<(f64, usize, usize)> {
        self.candidate.map(|each| (self.rate(each.index), each.met, each.met + each.missed))
    }

    /// What is known so far of a search that did not come to its end, as if its probes were spent.
    #[must_use]
    pub fn so_far(&self) -> Conclusion {
        let view = self.view();
        self.conclude(&view, &self.spent(&view))
    }

    /// Rate of the grid (operations a second), to four digits. Its ends are the floor and the ceiling themselves.
    fn rate(&self, index: i32) -> f64 {
        let Settings { first, floor, ceiling, .. } = self.settings;
        let exact = first * (f64::from(index) / f64::from(self.settings.steps_per_octave())).exp2();
        let digits = 3.0 - exact.log10().floor();
        // a power of ten with a positive exponent is exact, and its reciprocal is not
        let shift = 10.0_f64.powf(digits.abs());
        let rounded =
            if digits > 0.0 { (exact * shift).round() / shift } else { (exact / shift).round() * shift };
        rounded.clamp(floor, ceiling)
    }

    /// Index of the grid, with a fraction.
    fn place(&self, rate: f64) -> f64 {
        (rate / self.settings.first).log2() * f64::from(self.settings.steps_per_octave())
    }

    /// Highest index whose rate is not above this one; one below the lowest if there is none.
    fn at_or_below(&self, rate: f64) -> i32 {
        #[allow(clippy::cast_possible_truncation)] // saturates, and is then cut to the grid
        let near = (self.place(rate).floor() as i32).clamp(self.lowest(), self.highest());
        // the ends of the grid lie closer to their neighbours than the others do
        let found = [near + 1, near, near - 1].into_iter().filter(|index| *index <= self.highest());
        let mut found = found.filter(|index| self.rate(*index) <= rate * (1.0 + 1e-9));
        found.next().map_or(self.lowest() - 1, |index| index.max(self.lowest() - 1))
    }

    #[allow(clippy::cast_possible_truncation)] // rates are finite and positive
    fn lowest(&self) -> i32 {
        let lowest = (self.place(self.settings.floor) + 1e-6).floor() as i32;
        // the next one may be rounded to the floor, too
        if lowest < 0 && self.rate(lowest + 1) <= self.settings.floor { lowest + 1 } else { lowest }
    }

    #[allow(clippy::cast_possible_truncation)] // rates are finite and positive
    fn highest(&self) -> i32 {
        let highest = (self.place(self.settings.ceiling) - 1e-6).ceil() as i32;
        if highest > 0 && self.rate(highest - 1) >= self.settings.ceiling { highest - 1 } else { highest }
    }

    /// Index of the grid's rate that this one is, if it is one.
    fn index(&self, rate: f64) -> Option<i32> {
        let near = self.at_or_below(rate);
        (near - 1..=near + 1)
            .filter(|index| (self.lowest()..=self.highest()).contains(index))
            .find(|index| (self.rate(*index) / rate - 1.0).abs() < 1e-9)
    }

    /// Lowest index whose rate is not below this one. A rate that is none counts as 0.
    fn from(&self, rate: f64) -> i32 {
        if rate.is_nan() || rate <= 0.0 {
            return self.lowest();
        }
        let near = self.at_or_below(rate);
        (near - 1..=near + 1)
            .find(|index| *index >= self.lowest() && self.rate(*index) >= rate * (1.0 - 1e-9))
            .unwrap_or(self.highest() + 1)
    }

    fn view(&self) -> View {
        let mut counts_by_rate: BTreeMap<i32, ProbeCounts> = BTreeMap::new();
        let mut wall = (self.highest() + 1, UpperBound::Limit);
        let mut lower = |at: i32, kind: UpperBound| {
            if at < wall.0 {
                wall = (at, kind);
            }
        };
        for observation in &self.observations {
            if observation.ended == Ended::Broke {
                lower(self.from(observation.rate), UpperBound::Broke);
            }
            let Some(index) = self.index(observation.rate) else {
                // it was not asked for: only a miss counts, and for the next rate above
                let above = self.from(observation.rate);
                if matches!(observation.ended, Ended::Missed { .. }) && above <= self.highest() {
                    counts_by_rate.entry(above).or_default().missed += 1;
                }
                continue;
            };
            let counts = counts_by_rate.entry(index).or_default();
            match observation.ended {
                Ended::Met => counts.met += 1,
                Ended::Missed { .. } => counts.missed += 1,
                Ended::Broke => counts.broke += 1,
                Ended::Unknown => counts.unknown += 1,
                Ended::BenchLimited => counts.bench += 1,
                Ended::MachineLimited | Ended::Gone => {}
            }
        }
        for (index, counts) in &counts_by_rate {
            if counts.unknown >= WALLED {
                lower(*index, UpperBound::Unknown);
            }
            // of as many misses nobody knows whose they are
            let doubtful = counts.bench > 0 && counts.missed > 0 && counts.bench >= counts.missed;
            if counts.bench >= WALLED || doubtful {
                lower(*index, UpperBound::Bench);
            }
        }
        View { fit: fit(&self.samples(wall.0)), counts_by_rate, wall }
    }

    /// What the probes below this index of the grid tell: a store that broke, or a bench that fell behind, may have
    /// missed the objectives for that reason.
    fn samples(&self, wall: i32) -> Vec<Sample> {
        let below = if wall > self.highest() {
            self.settings.ceiling * (1.0 + 1e-9)
        } else {
            self.rate(wall) * (1.0 - 1e-9)
        };
        let told = self.observations.iter().filter(|o| o.rate > 0.0 && o.rate < below);
        told.filter_map(|observation| {
            let met = match observation.ended {
                Ended::Met => true,
                Ended::Missed { .. } => false,
                _ => return None,
            };
            // beyond a factor of 150 it does not matter by how much
            let margin = worst(observation).map(|ratio| ratio.ln().clamp(-5.0, 5.0));
            Some(Sample { x: observation.rate.ln(), met, margin })
        })
        .collect()
    }

    fn plan(&self, view: &View) -> Plan {
        if let Some(gone) = self.observations.iter().find(|o| o.ended == Ended::Gone) {
            return Plan::Done(Outcome::Gone(gone.rate));
        }
        let top = view.wall.0 - 1;
        if top < self.lowest() {
            return Plan::Done(Outcome::Walled);
        }
        if self.left() == 0 {
            return Plan::Done(self.spent(view));
        }
        let disturbed = self.observations.iter().rev().take_while(|o| o.ended == Ended::MachineLimited);
        if disturbed.count() >= DISTURBED {
            return Plan::Done(Outcome::Machine(self.half_confirmed()));
        }
        let below = || view.counts_by_rate.range(..=top);
        if let Some((index, _)) = below().find(|(_, counts)| counts.undecided()) {
            return Plan::Probe(*index);
        }
        if let Some(candidate) = self.candidate {
            return if candidate.is_confirmed() {
                self.fill(view, Outcome::Found(candidate.index), candidate.index)
            } else {
                Plan::Probe(candidate.index)
            };
        }
        let met = below().filter(|(_, counts)| counts.met > 0).map(|(index, _)| *index).max();
        let missed = below().filter(|(_, counts)| counts.missed > 0).map(|(index, _)| *index).min();
        match (met, missed) {
            (None, None) => self.start(view),
            (Some(met), None) => self.upwards(view, met),
            (None, Some(missed)) => self.downwards(view, missed),
            (Some(met), Some(missed)) if missed - met > 2 => Plan::Probe(i32::midpoint(met, missed)),
            (Some(met), Some(missed)) if met < missed && view.at(met).met < CONFIRMED => Plan::Probe(met),
            (Some(met), Some(missed)) if met < missed && view.at(missed).missed < 2 => Plan::Probe(missed),
            (Some(_), Some(_)) => self.estimate(view),
        }
    }

    /// The first rate that told nothing that could stop it, going down.
    fn start(&self, view: &View) -> Plan {
        let octave = self.settings.steps_per_octave();
        let mut index = 0;
        while index >= view.wall.0 && index > self.lowest() {
            index = (index - octave).max(self.lowest());
        }
        Plan::Probe(index)
    }

    /// All that was probed below the wall met, up to this index.
    fn upwards(&self, view: &View, met: i32) -> Plan {
        let (wall, kind) = view.wall;
        let top = wall - 1;
        if met >= top {
            return if view.at(top).confirmed() { Plan::Done(Outcome::Walled) } else { Plan::Probe(top) };
        }
        let twice = met + self.settings.steps_per_octave();
        Plan::Probe(if twice < wall {
            twice
        } else if kind == UpperBound::Limit {
            top
        } else {
            i32::midpoint(met, wall)
        })
    }

    /// All that was probed below the wall missed, down to this index.
    fn downwards(&self, view: &View, missed: i32) -> Plan {
        let lowest = self.lowest();
        if missed > lowest {
            Plan::Probe((missed - self.settings.steps_per_octave()).max(lowest))
        } else if view.at(lowest).failed() {
            Plan::Done(Outcome::NoRateMeets)
        } else {
            Plan::Probe(lowest)
        }
    }

    /// Some met and some missed, and it is not yet time to confirm: a probe around the even odds.
    fn estimate(&self, view: &View) -> Plan {
        let Some(fit) = view.fit else { return Plan::Done(self.spent(view)) };
        if self.most(view).is_none() {
            return Plan::Done(Outcome::NoRateMeets);
        }
        let count = self.observations.len();
        // half of them at the estimate, the others on either side of it; far enough at first to see how wide they spread
        let least = if count < EXPLORED || !self.explored(view, fit.centre) { EXPLORE } else { 0.0 };
        let offset = [0.0, -1.0, 0.0, 1.0][count % 4] * (AROUND * fit.spread).max(least);
        let seen =
            || view.counts_by_rate.iter().filter(|(_, counts)| counts.told() > 0).map(|(index, _)| *index);
        let octave = self.settings.steps_per_octave();
        let lowest = seen().min().map_or(self.lowest(), |index| (index - octave).max(self.lowest()));
        let highest = seen().max().map_or(0, |index| index + octave).min(view.wall.0 - 1);
        let wanted = self.at_or_below((fit.centre + offset).exp() * (0.25 * self.settings.resolution).exp());
        Plan::Probe(wanted.min(highest).max(lowest.min(highest)))
    }

    /// Whether the estimate can be believed to be narrow, as far as it lies below the wall.
    fn narrow(&self, view: &View) -> bool {
        let Some(fit) = view.fit else { return false };
        let (centre, (low, high)) = (fit.centre, fit.interval());
        let ceiling = self.rate(view.wall.0).ln();
        let width = high.min(ceiling) - low.min(ceiling);
        width <= 2.0 * self.settings.tolerance && (low >= ceiling || self.explored(view, centre))
    }

    /// Whether there are enough probes off the centre, or so many that it does not matter.
    fn explored(&self, view: &View, centre: f64) -> bool {
        let samples = self.samples(view.wall.0);
        let around = |s: &&Sample| (0.5 * EXPLORE..=2.0 * EXPLORE).contains(&(s.x - centre).abs());
        samples.len() >= EXPLORED || samples.iter().filter(around).count() >= ENOUGH
    }

    /// Whether it is the wall, rather than an objective, that keeps the search from going above this index.
    fn walled_off(&self, view: &View, index: i32) -> bool {
        let (wall, kind) = view.wall;
        let beyond = view.fit.is_some_and(|fit| fit.most() >= self.rate(wall).ln());
        index == wall - 1 || (kind != UpperBound::Limit && beyond)
    }

    /// The candidate, if it is confirmed.
    fn confirmed(&self) -> Option<i32> {
        self.candidate.filter(|candidate| candidate.is_confirmed()).map(|candidate| candidate.index)
    }

    /// The candidate, if half of its probes were made and say that it is one.
    fn half_confirmed(&self) -> Option<i32> {
        self.candidate.filter(|candidate| candidate.is_half_confirmed()).map(|candidate| candidate.index)
    }

    /// The budget is spent: what is known.
    fn spent(&self, view: &View) -> Outcome {
        if let Some(index) = self.confirmed() {
            return Outcome::Found(index);
        }
        let any = |what: fn(&ProbeCounts) -> bool| {
            view.counts_by_rate.range(..view.wall.0).any(|(_, counts)| what(counts))
        };
        if !any(|counts| counts.met > 0) && view.at(self.lowest()).failed() {
            return Outcome::NoRateMeets;
        }
        let known = self.half_confirmed();
        let disturbed = self.observations.iter().filter(|o| o.ended == Ended::MachineLimited).count();
        if 2 * disturbed > self.observations.len() { Outcome::Machine(known) } else { Outcome::Budget(known) }
    }

    /// Ends so, unless the curve has too few rates yet.
    fn fill(&self, view: &View, outcome: Outcome, capacity: i32) -> Plan {
        let mut rates: Vec<i32> = view.counts_by_rate.keys().copied().collect();
        // beside what a limit does stands what half of it does
        let half = (capacity - self.settings.steps_per_octave()).max(self.lowest());
        if !view.counts_by_rate.contains_key(&half) {
            return Plan::Probe(half);
        }
        if rates.len() >= self.settings.points {
            return Plan::Done(outcome);
        }
        let below = (capacity - 3 * self.settings.steps_per_octave()).max(self.lowest());
        rates.retain(|index| (below..=capacity).contains(index));
        if rates.first().is_none_or(|first| *first > below) {
            return Plan::Probe(below);
        }
        let widest = rates.windows(2).max_by_key(|pair| pair[1] - pair[0]);
        match widest {
            Some(pair) if pair[1] - pair[0] > 1 => Plan::Probe(i32::midpoint(pair[0], pair[1])),
            _ => Plan::Done(outcome),
        }
    }

    fn conclude(&self, view: &View, outcome: &Outcome) -> Conclusion {
        // nothing is given at or above a rate at which the store was lost
        let below_loss = |outcome: &Outcome| match outcome {
            Outcome::Gone(rate) => self.from(*rate) - 1,
            _ => i32::MAX,
        };
        let top = below_loss(outcome).min(view.wall.0 - 1);
        let passed = view.confirmed_up_to(top);
        let walled = self.why_walled(view);
        let bench = matches!(walled, Why::Bench { .. });
        let offered = |index: &i32| !(bench && self.walled_off(view, *index));
        let (capacity, why) = match outcome {
            Outcome::Found(index) if self.walled_off(view, *index) => (Some(*index), walled),
            Outcome::Found(index) => (Some(*index), self.why_missed(*index, view).unwrap_or(walled)),
            Outcome::Walled => (passed, walled),
            Outcome::NoRateMeets => (None, Why::NoRateMeets { best: self.best() }),
            Outcome::Budget(found) => (*found, Why::Budget),
            Outcome::Machine(found) => (*found, Why::Machine),
            // whatever was confirmed, it was lost at that rate or below
            Outcome::Gone(rate) => (None, Why::Gone { rate: *rate }),
        };
        // what the bench could not offer is no limit of the store
        let capacity = capacity.filter(offered).filter(|_| !matches!(why, Why::Bench { .. }));
        let counts = passed.map(|index| view.at(index));
        let candidate = self.candidate.filter(|candidate| Some(candidate.index) == capacity);
        let curve = self.curve();
        let latencies: Vec<(f64, f64)> =
            curve.iter().filter_map(|point| Some((point.rate, point.latency?))).collect();
        Conclusion {
            capacity: capacity.map(|index| self.rate(index)),
            passed: passed.map(|index| self.rate(index)),
            passes: counts.map_or((0, 0), |counts| (counts.met, counts.told())),
            fresh: candidate.map_or((0, 0), |fresh| (fresh.met, fresh.met + fresh.missed)),
            even_odds: view.fit.and_then(|fit| {
                let (low, high) = telling(fit.interval())?;
                Some(Estimate { rate: fit.centre.exp(), low, high, spread: fit.spread })
            }),
            expected: view.fit.and_then(|fit| telling(fit.most_interval())),
            why,
            probes: self.observations.len(),
            curve,
            knee: knee(&latencies),
        }
    }

    fn why_walled(&self, view: &View) -> Why {
        let lowest = |ended: Ended| {
            let rates = self.observations.iter().filter(|o| o.ended == ended).map(|o| o.rate);
            rates.fold(f64::INFINITY, f64::min)
        };
        let rate = self.rate(view.wall.0);
        match view.wall.1 {
            UpperBound::Broke => Why::Broke { rate: lowest(Ended::Broke) },
            UpperBound::Unknown => Why::Unknown { rate },
            UpperBound::Bench => Why::Bench { rate },
            UpperBound::Limit => Why::AtLimit { rate: self.settings.ceiling },
        }
    }

    /// The objective that was missed above the capacity, and below the wall.
    fn why_missed(&self, capacity: i32, view: &View) -> Option<Why> {
        let missed =
            |from: i32| view.counts_by_rate.range(from..view.wall.0).filter(|(_, counts)| counts.missed > 0);
        let mostly = missed(capacity + 1).find(|(_, counts)| counts.missed > counts.met);
        let (index, _) =
            mostly.or_else(|| missed(capacity).next()).or_else(|| missed(self.lowest()).next())?;
        let mut ratios = Vec::new();
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for observation in &self.observations {
            let Ended::Missed { objective, ratio } = observation.ended else { continue };
            if self.index(observation.rate) == Some(*index) {
                ratios.push(ratio);
                *counts.entry(objective).or_default() += 1;
            }
        }
        let objective = counts.iter().max_by_key(|(_, count)| **count).map(|(objective, _)| *objective)?;
        Some(Why::Objective { objective, rate: self.rate(*index), ratio: median(&mut ratios)? })
    }

    /// The miss that came nearest to meeting.
    fn best(&self) -> Best {
        let misses = self.observations.iter().filter_map(|observation| match observation.ended {
            Ended::Missed { objective, ratio } => Some(Best { rate: observation.rate, objective, ratio }),
            _ => None,
        });
        misses.min_by(|a, b| a.ratio.total_cmp(&b.ratio)).unwrap_or(Best {
            rate: self.settings.floor,
            objective: 0,
            ratio: f64::INFINITY,
        })
    }

    fn curve(&self) -> Vec<Point> {
        let mut sorted: Vec<&Observation> = self.observations.iter().collect();
        sorted.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        let same = |a: &&Observation, b: &&Observation| (a.rate / b.rate - 1.0).abs() < 1e-9;
        sorted
            .chunk_by(same)
            .map(|probes| {
                let met = probes.iter().filter(|o| o.ended == Ended::Met).count();
                let missed = probes.iter().filter(|o| matches!(o.ended, Ended::Missed { .. })).count();
                let mut margins: Vec<f64> = probes.iter().filter_map(|o| worst(o)).collect();
                let mut latencies: Vec<f64> =
                    probes.iter().filter_map(|o| o.latency).filter(|l| l.is_finite()).collect();
                Point {
                    rate: probes[0].rate,
                    met,
                    missed,
                    other: probes.len() - met - missed,
                    margin: median(&mut margins),
                    latency: median(&mut latencies),
                }
            })
            .collect()
    }
}

impl View {
    fn at(&self, index: i32) -> ProbeCounts {
        self.counts_by_rate.get(&index).copied().unwrap_or_default()
    }

    /// Highest index up to this one, and below the wall, that passed twice.
    fn confirmed_up_to(&self, index: i32) -> Option<i32> {
        let mut below =
            self.counts_by_rate.iter().rev().filter(|(at, _)| **at <= index && **at < self.wall.0);
        below.find(|(_, counts)| counts.confirmed()).map(|(at, _)| *at)
    }
}

/// The worst margin of a probe, if it is known.
fn worst(observation: &Observation) -> Option<f64> {
    observation.margins.iter().copied().filter(|margin| *margin >= 0.0).reduce(f64::max)
}

fn median(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    values.sort_by(f64::total_cmp);
    Some(f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]))
}

/// The rates between two logarithms; none if they are so far apart that they tell nothing: those of two or three probes may be.
fn telling((low, high): (f64, f64)) -> Option<(f64, f64)> {
    (high - low <= TELLING.ln()).then(|| (low.exp(), high.exp()))
}
