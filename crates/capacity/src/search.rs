//! The search itself.
//!
//! 1. *Bracket*: from the first rate, twice as much while met, half as much while missed.
//! 2. *Bisect* on the geometric scale down to neighbours of the grid. As soon as outcomes contradict each other (a miss
//!    below a pass), or when both neighbours are confirmed by a second probe, it goes on with
//! 3. *Estimate*: all probes are fitted (`fit`), and further ones are made around the estimate until its interval is
//!    narrow enough. On a machine that is always equally fast, it is from the start.
//! 4. *Settle*: the highest rate at or below the estimate that passed twice is the capacity; probes are made until
//!    there is one.
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
    /// The store died.
    Gone,
}

/// What a probe answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// The rate that was asked for (operations a second).
    pub rate: f64,
    /// How it ended.
    pub ended: Ended,
    /// Measured over allowed, of each objective: above 1 where it was missed. May be empty if it is not known.
    pub margins: Vec<f64>,
    /// Latency for the curve (seconds), such as the 99th percentile, if it was measured.
    pub latency: Option<f64>,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Probe this rate (operations a second), and tell what it answered.
    Probe(f64),
    /// The search is over.
    Done(Box<Conclusion>),
}

/// A search for a capacity. It only keeps what it was told: a search that is told the same observations again goes on
/// as if it had never stopped.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    settings: Settings,
    observations: Vec<Observation>,
}

/// Passes that confirm a rate.
const CONFIRMED: usize = 2;
/// Times that the bench or the audit has to fail to tell at a rate, to be believed.
const WALLED: usize = 2;
/// Probes of the budget that are left for the capacity's confirmation.
const RESERVE: usize = 8;
/// Misses after which a rate that did not pass twice is given up, although the estimate says that it should.
const REFUSED: usize = 4;
/// Every other probe for the estimate lies this many standard deviations from it.
const AROUND: f64 = 0.5;
/// Up to so many probes, they lie this far off (natural log of the rate) or further. Near the estimate alone, a noisy
/// machine looks quiet by chance too often, and the search stops too early.
const EXPLORED: usize = 40;
const EXPLORE: f64 = 0.1;
/// Probes about that far off without which no estimate is believed to be narrow.
const ENOUGH: usize = 6;

/// Outcomes at one rate of the grid.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    met: usize,
    missed: usize,
    broke: usize,
    unknown: usize,
    bench: usize,
}

impl Tally {
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
enum Wall {
    Broke,
    Unknown,
    Bench,
    /// The settings' ceiling.
    Limit,
}

/// All that follows from the observations.
struct View {
    tallies: BTreeMap<i32, Tally>,
    /// Lowest rate of the grid that may not be probed, and why.
    wall: (i32, Wall),
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
    Gone(f64),
}

impl Search {
    /// A search that knows nothing yet. Errors: [`Settings::check`].
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(Self { settings, observations: Vec::new() })
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
        let mut tallies: BTreeMap<i32, Tally> = BTreeMap::new();
        let mut wall = (self.highest() + 1, Wall::Limit);
        let mut lower = |at: i32, kind: Wall| {
            if at < wall.0 {
                wall = (at, kind);
            }
        };
        for observation in &self.observations {
            if observation.ended == Ended::Broke {
                lower(self.from(observation.rate), Wall::Broke);
            }
            let Some(index) = self.index(observation.rate) else {
                // it was not asked for: only a miss counts, and for the next rate above
                let above = self.from(observation.rate);
                if matches!(observation.ended, Ended::Missed { .. }) && above <= self.highest() {
                    tallies.entry(above).or_default().missed += 1;
                }
                continue;
            };
            let tally = tallies.entry(index).or_default();
            match observation.ended {
                Ended::Met => tally.met += 1,
                Ended::Missed { .. } => tally.missed += 1,
                Ended::Broke => tally.broke += 1,
                Ended::Unknown => tally.unknown += 1,
                Ended::BenchLimited => tally.bench += 1,
                Ended::Gone => {}
            }
        }
        for (index, tally) in &tallies {
            if tally.unknown >= WALLED {
                lower(*index, Wall::Unknown);
            }
            // of as many misses nobody knows whose they are
            let doubtful = tally.bench > 0 && tally.missed > 0 && tally.bench >= tally.missed;
            if tally.bench >= WALLED || doubtful {
                lower(*index, Wall::Bench);
            }
        }
        View { fit: fit(&self.samples(wall.0)), tallies, wall }
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
        if self.observations.len() >= self.settings.budget {
            return Plan::Done(self.spent(view));
        }
        let below = || view.tallies.range(..=top);
        if let Some((index, _)) = below().find(|(_, tally)| tally.undecided()) {
            return Plan::Probe(*index);
        }
        let met = below().filter(|(_, tally)| tally.met > 0).map(|(index, _)| *index).max();
        let missed = below().filter(|(_, tally)| tally.missed > 0).map(|(index, _)| *index).min();
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
            return if view.at(top).confirmed() {
                self.fill(view, Outcome::Walled, top)
            } else {
                Plan::Probe(top)
            };
        }
        let twice = met + self.settings.steps_per_octave();
        Plan::Probe(if twice < wall {
            twice
        } else if kind == Wall::Limit {
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

    /// Some met and some missed: probes around the estimate until it is narrow enough.
    fn estimate(&self, view: &View) -> Plan {
        let Some(fit) = view.fit else {
            // cannot be fitted: the neighbours are all that is known
            return self.settle(view);
        };
        if self.narrow(view) {
            return self.settle(view);
        }
        if self.observations.len() + RESERVE >= self.settings.budget
            && let Plan::Probe(index) = self.settle(view)
        {
            return Plan::Probe(index);
        }
        let count = self.observations.len();
        // half of them at the estimate, the others on either side of it; far enough at first to see how wide they spread
        let least = if count < EXPLORED || !self.explored(view, fit.centre) { EXPLORE } else { 0.0 };
        let offset = [0.0, -1.0, 0.0, 1.0][count % 4] * (AROUND * fit.spread).max(least);
        let seen = || view.tallies.iter().filter(|(_, tally)| tally.told() > 0).map(|(index, _)| *index);
        let octave = self.settings.steps_per_octave();
        let lowest = seen().min().map_or(self.lowest(), |index| (index - octave).max(self.lowest()));
        let highest = seen().max().map_or(0, |index| index + octave).min(view.wall.0 - 1);
        let wanted = self.at_or_below((fit.centre + offset).exp() * (0.25 * self.settings.resolution).exp());
        Plan::Probe(wanted.min(highest).max(lowest.min(highest)))
    }

    /// Whether the estimate can be believed to be narrow, as far as it lies below the wall.
    fn narrow(&self, view: &View) -> bool {
        let Some(Fit { centre, half, .. }) = view.fit else { return false };
        let (low, high) = (centre - half, centre + half);
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
        let beyond = view.fit.is_some_and(|fit| fit.centre >= self.rate(wall).ln());
        index == wall - 1 || (kind != Wall::Limit && beyond)
    }

    /// The highest rate that may be the capacity.
    fn target(&self, view: &View) -> i32 {
        let top = view.wall.0 - 1;
        view.fit.map_or(top, |fit| self.at_or_below(fit.centre.exp()).min(top))
    }

    /// The estimate stands: finds the rate at or below it that passed twice.
    fn settle(&self, view: &View) -> Plan {
        for index in (self.lowest()..=self.target(view)).rev() {
            let tally = view.at(index);
            if tally.confirmed() {
                return self.fill(view, Outcome::Found(index), index);
            }
            if tally.missed < REFUSED {
                return Plan::Probe(index);
            }
        }
        Plan::Done(Outcome::NoRateMeets)
    }

    /// The budget is spent: what is known.
    fn spent(&self, view: &View) -> Outcome {
        let target = self.target(view);
        let confirmed = view.confirmed_up_to(target);
        let any = |what: fn(&Tally) -> bool| view.tallies.range(..view.wall.0).any(|(_, tally)| what(tally));
        let (met, missed) = (any(|tally| tally.met > 0), any(|tally| tally.missed > 0));
        if met && !missed && confirmed == Some(view.wall.0 - 1) {
            return Outcome::Walled;
        }
        if !met && view.at(self.lowest()).failed() {
            return Outcome::NoRateMeets;
        }
        match confirmed {
            Some(index) if met && missed && self.narrow(view) => Outcome::Found(index),
            found => Outcome::Budget(found.filter(|_| missed)),
        }
    }

    /// Ends so, unless the curve has too few rates yet.
    fn fill(&self, view: &View, outcome: Outcome, capacity: i32) -> Plan {
        let mut rates: Vec<i32> = view.tallies.keys().copied().collect();
        // beside what a limit does stands what half of it does
        let half = (capacity - self.settings.steps_per_octave()).max(self.lowest());
        if !view.tallies.contains_key(&half) {
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
        let missed = view.tallies.values().any(|tally| tally.missed > 0);
        let (capacity, why) = match outcome {
            Outcome::Found(index) if self.walled_off(view, *index) => (Some(*index), walled),
            Outcome::Found(index) => (Some(*index), self.why_missed(*index, view).unwrap_or(walled)),
            Outcome::Walled => (passed, walled),
            Outcome::NoRateMeets => (None, Why::NoRateMeets { best: self.best() }),
            Outcome::Budget(found) => (*found, Why::Budget),
            Outcome::Gone(rate) => {
                let known = view.confirmed_up_to(self.target(view).min(top)).filter(|_| missed);
                (known, Why::Gone { rate: *rate })
            }
        };
        // what the bench could not offer is no limit of the store
        let capacity = capacity.filter(offered).filter(|_| !matches!(why, Why::Bench { .. }));
        let tally = capacity.or(passed).map(|index| view.at(index));
        let curve = self.curve();
        let latencies: Vec<(f64, f64)> =
            curve.iter().filter_map(|point| Some((point.rate, point.latency?))).collect();
        Conclusion {
            capacity: capacity.map(|index| self.rate(index)),
            passed: passed.map(|index| self.rate(index)),
            passes: tally.map_or((0, 0), |tally| (tally.met, tally.told())),
            estimate: view.interval().zip(view.fit).map(|((low, high), fit)| Estimate {
                rate: fit.centre.exp(),
                low: low.exp(),
                high: high.exp(),
                spread: fit.spread,
            }),
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
            Wall::Broke => Why::Broke { rate: lowest(Ended::Broke) },
            Wall::Unknown => Why::Unknown { rate },
            Wall::Bench => Why::Bench { rate },
            Wall::Limit => Why::AtLimit { rate: self.settings.ceiling },
        }
    }

    /// The objective that was missed above the capacity, and below the wall.
    fn why_missed(&self, capacity: i32, view: &View) -> Option<Why> {
        let missed = |from: i32| view.tallies.range(from..view.wall.0).filter(|(_, tally)| tally.missed > 0);
        let mostly = missed(capacity + 1).find(|(_, tally)| tally.missed > tally.met);
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
    fn at(&self, index: i32) -> Tally {
        self.tallies.get(&index).copied().unwrap_or_default()
    }

    /// Ends of the 95 % interval (natural log of the rate).
    fn interval(&self) -> Option<(f64, f64)> {
        self.fit.map(|fit| (fit.centre - fit.half, fit.centre + fit.half))
    }

    /// Highest index up to this one, and below the wall, that passed twice.
    fn confirmed_up_to(&self, index: i32) -> Option<i32> {
        let mut below = self.tallies.iter().rev().filter(|(at, _)| **at <= index && **at < self.wall.0);
        below.find(|(_, tally)| tally.confirmed()).map(|(at, _)| *at)
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
