//! Means and ratios over trials, with confidence intervals that are worth their name for few trials.
//!
//! **Method.** From [`ENOUGH`] trials on: the studentised bootstrap (bootstrap-t: Efron and Tibshirani, *An
//! Introduction to the Bootstrap*, 1993, chapter 12), 95 %, equal tails, 999 resamples, always from the same
//! seed, so that a result shows the same interval whenever it is read. Below that: Student's interval.
//!
//! **Why not the bootstrap always.** Every percentile interval, `BCa` among them, lies within the trials that
//! were seen. All `n` of them lie on one side of the true median with probability `2^(1-n)`, so the widest
//! possible one covers it in 75 % of cases with 3 trials and in 93.75 % with 5; only from 6 on can it be a
//! 95 % interval at all. Studentised, it can leave that range, but below 6 trials so many resamples repeat
//! one value that its tails are arbitrary. Student's interval needs trials that are about normal (ratios:
//! log-normal) and is exact then. The tests measure the coverage of each.
//!
//! **One trial has no interval**, and two have a very wide one (Student's t is 12.7).

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Fewest trials for which the interval comes from the bootstrap; below that it is Student's.
pub const ENOUGH: usize = 6;

/// Number of resamples of a bootstrap.
const RESAMPLES: usize = 999;

/// Relative resolution of figures from histograms, which keep three digits: two times nearer than this may be one.
pub const RESOLUTION: f64 = 0.002;

/// Seed of every bootstrap: fixed, so that the same trials have the same interval.
pub const SEED: u64 = 0x00ac_1d7e_5700;

/// The method by which an interval was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Student's interval, for fewer than six trials.
    Student,
    /// Studentised bootstrap over the trials, for six trials or more.
    BootstrapT,
}

impl Method {
    /// The method's name for readers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Student => "Student's t",
            Self::BootstrapT => "bootstrap-t",
        }
    }
}

/// A mean over trials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mean {
    /// The arithmetic mean.
    pub estimate: f64,
    /// Bounds of the 95 % confidence interval; none from a single trial.
    pub interval: Option<(f64, f64)>,
    /// The method of the interval; none where there is no interval.
    pub method: Option<Method>,
    /// Coefficient of variation: the trials' standard deviation over their mean; none from a single trial, or
    /// where the mean is 0.
    pub variation: Option<f64>,
    /// Number of trials that the mean is taken over.
    pub trials: usize,
}

impl Mean {
    /// The mean of figures, one for each trial, none of them negative; `None` if there are no figures.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let Moments { mean, variance, n } = Moments::of(values)?;
        let interval = centred(values);
        Some(Self {
            estimate: mean,
            // rates and times are never below 0, although the normal distribution allows it
            interval: interval.map(|(low, high)| (low.max(0.0), high)),
            method: interval.map(|_| method(values.len())),
            variation: (n > 1.0 && mean > 0.0).then(|| variance.sqrt() / mean),
            trials: values.len(),
        })
    }
}

/// A ratio of two measurements, with a 95 % confidence interval where there are trials enough.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ratio {
    /// The ratio of the geometric means.
    pub estimate: f64,
    /// Bounds of the 95 % confidence interval; none from a single trial.
    pub interval: Option<(f64, f64)>,
    /// The method of the interval; none where there is no interval.
    pub method: Option<Method>,
    /// Whether trials of the same round of one run were compared with each other.
    pub paired: bool,
    /// Number of pairs of trials; if unpaired, number of trials of the side that has fewer.
    pub trials: usize,
}

impl Ratio {
    /// The ratio of paired measurements: `(with, without)` of one round each. Rounds are interleaved, so a
    /// disturbance of the machine that lasts a while affects both of a pair.
    ///
    /// Its interval is that of the mean of the logarithms, whose spread is alike whichever way round the ratio
    /// is taken. `None` without a pair, and where a figure is not positive: such a round must not vanish from the ratio.
    #[must_use]
    pub fn of_pairs(pairs: &[(f64, f64)]) -> Option<Self> {
        if !pairs.iter().all(|(with, without)| *with > 0.0 && *without > 0.0) {
            return None;
        }
        let logs: Vec<f64> = pairs.iter().map(|(with, without)| (with / without).ln()).collect();
        let mean = Moments::of(&logs)?.mean;
        let interval = centred(&logs);
        Some(Self {
            estimate: mean.exp(),
            interval: interval.map(|(low, high)| (low.exp(), high.exp())),
            method: interval.map(|_| method(logs.len())),
            paired: true,
            trials: logs.len(),
        })
    }

    /// Whether the interval excludes 1 by more than two histograms can tell apart: only then is a difference shown.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low > 1.0 + RESOLUTION || high < 1.0 - RESOLUTION)
    }
}

/// Of a figure that is no count.
/// The median; none of no values.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let (low, high) = (values[last / 2], values[last.div_ceil(2)]);
    Some(f64::midpoint(low, high))
}

#[cfg(test)]
const NO_FLOOR: f64 = 0.0;

/// Most degrees of freedom that are told from the normal distribution.
const NORMAL: f64 = 1e6;

/// The difference of two means of logarithms, B − A, over units that are independent of each other: pairs of trials of one
/// round, or whole runs. Student's t and Welch's are exact for units that are about log-normal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The logarithm of the ratio B / A.
    pub log: f64,
    /// The squared standard error and its degrees of freedom; none where the units are too few to know it.
    error: Option<(f64, f64)>,
    is_paired: bool,
    units: usize,
}

impl Difference {
    /// The mean of differences, one for each pair of units. Its squared error is at least `floor`: what is counted varies at
    /// least as counts do, even where the few that were seen are alike. `None` without a pair.
    #[must_use]
    pub fn of_pairs(pairs: &[f64], floor: f64) -> Option<Self> {
        let seen = Moments::of(pairs)?;
        let error = (pairs.len() > 1).then(|| (seen.error().max(floor), seen.n - 1.0));
        Some(Self { log: seen.mean, error, is_paired: true, units: pairs.len() })
    }

    /// The difference of the means of two groups of units (Welch). One unit against several is taken to vary as the several do
    /// (Crawford and Howell 1998); one against one has no error. `None` without a unit on either side.
    #[must_use]
    pub fn of_groups(b: &[f64], a: &[f64], floor: f64) -> Option<Self> {
        let (of_b, of_a) = (Moments::of(b)?, Moments::of(a)?);
        let alone = |several: Moments| (several.variance * (1.0 / several.n + 1.0), several.n - 1.0);
        let error = match (b.len(), a.len()) {
            (1, 1) => None,
            (1, _) => Some(alone(of_a)),
            (_, 1) => Some(alone(of_b)),
            _ => {
                let variance = of_b.error() + of_a.error();
                let parts = of_b.error().powi(2) / (of_b.n - 1.0) + of_a.error().powi(2) / (of_a.n - 1.0);
                // groups that do not vary at all have the freedom of both
                let freedom = if parts > 0.0 { variance.powi(2) / parts } else { of_b.n + of_a.n - 2.0 };
                Some((variance, freedom))
            }
        };
        Some(Self {
            log: of_b.mean - of_a.mean,
            error: error.map(|(variance, freedom)| (variance.max(floor), freedom)),
            is_paired: false,
            units: b.len().min(a.len()),
        })
    }

    /// The same with what A and B, one run each, differ by as runs: `deviation` is the standard deviation of the logarithms of
    /// runs that are alike, and known beforehand (Satterthwaite).
    #[must_use]
    pub fn between_runs(self, deviation: f64) -> Self {
        let known = 2.0 * deviation.powi(2);
        let error = self.error.map(|(seen, freedom)| {
            let all = seen + known;
            (all, if seen > 0.0 { freedom * (all / seen).powi(2) } else { NORMAL })
        });
        Self { error, ..self }
    }

    /// Whether its error is known.
    #[must_use]
    pub fn has_error(&self) -> bool {
        self.error.is_some()
    }

    /// The probability of a mean as high as this or higher if the true one is `bound`; none where no error is known.
    #[must_use]
    pub fn chance_above(&self, bound: f64) -> Option<f64> {
        self.chance(self.log - bound)
    }

    /// The probability of a mean as low as this or lower if the true one is `bound`; none where no error is known.
    #[must_use]
    pub fn chance_below(&self, bound: f64) -> Option<f64> {
        self.chance(bound - self.log)
    }

    /// The probability of lying so far on one side of the truth, or farther.
    fn chance(&self, away: f64) -> Option<f64> {
        let (variance, freedom) = self.error?;
        if variance <= 0.0 {
            return Some(if away > 0.0 { 0.0 } else { 1.0 });
        }
        // the lower tail keeps its digits where it is small
        Some(student(freedom).map_or(1.0, |t| t.cdf(-away / variance.sqrt())))
    }

    /// How far from a bound the mean must lie to be shown, at this probability of being there by chance.
    #[must_use]
    pub fn reach(&self, chance: f64) -> Option<f64> {
        let (variance, freedom) = self.error?;
        Some(student(freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(1.0 - chance)) * variance.sqrt())
    }

    /// The ratio B / A with its 95 % interval.
    #[must_use]
    pub fn ratio(&self) -> Ratio {
        let reach = self.reach(0.025);
        Ratio {
            estimate: self.log.exp(),
            interval: reach.map(|reach| ((self.log - reach).exp(), (self.log + reach).exp())),
            method: reach.map(|_| Method::Student),
            paired: self.is_paired,
            trials: self.units,
        }
    }
}

fn student(freedom: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, freedom.min(NORMAL)).ok()
}

fn method(trials: usize) -> Method {
    if trials < ENOUGH { Method::Student } else { Method::BootstrapT }
}

#[derive(Clone, Copy)]
struct Moments {
    mean: f64,
    /// The sample's variance, with n − 1 as divisor; 0 of a single value.
    variance: f64,
    n: f64,
}

impl Moments {
    fn of(values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Self { mean, variance: squares / (n - 1.0).max(1.0), n })
    }

    /// The moments of as many values, drawn from these with replacement; there must be at least one.
    fn drawn(values: &[f64], rng: &mut Xoshiro256PlusPlus) -> Self {
        let n = values.len() as f64;
        // sums are taken relative to a value near all others, because the squares would cancel otherwise
        let near = values[0];
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in values {
            let away = values[rng.random_range(0..values.len())] - near;
            sum += away;
            squares += away * away;
        }
        let variance = (squares - sum * sum / n) / (n - 1.0).max(1.0);
        // a variance this small is the rounding error of equal values
        let equal = variance <= 1e-24 * near * near;
        Self { mean: near + sum / n, variance: if equal { 0.0 } else { variance }, n }
    }

    /// The squared standard error of the mean.
    fn error(self) -> f64 {
        self.variance / self.n
    }
}

/// The 95 % interval of a mean; none for fewer than two values.
fn centred(values: &[f64]) -> Option<(f64, f64)> {
    let seen = Moments::of(values).filter(|seen| seen.n > 1.0)?;
    let error = seen.error().sqrt();
    if values.len() < ENOUGH {
        let reach = students_t(seen.n - 1.0) * error;
        return Some((seen.mean - reach, seen.mean + reach));
    }
    let tails = studentised(|rng| {
        let drawn = Moments::drawn(values, rng);
        (drawn.mean - seen.mean, drawn.error())
    });
    Some(
        tails.map_or((seen.mean, seen.mean), |(low, high)| {
            (seen.mean - high * error, seen.mean - low * error)
        }),
    )
}

/// The 2.5 % and 97.5 % quantiles of a resampled deviation over its own standard error; `draw` gives the
/// deviation and the square of the error. `None` where the values do not vary.
fn studentised(draw: impl Fn(&mut Xoshiro256PlusPlus) -> (f64, f64)) -> Option<(f64, f64)> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let mut all: Vec<f64> = (0..RESAMPLES)
        .map(|_| draw(&mut rng))
        .filter(|(_, square)| *square > 0.0)
        .map(|(deviation, square)| deviation / square.sqrt())
        .collect();
    all.sort_unstable_by(f64::total_cmp);
    Some((quantile(&all, 0.025)?, quantile(&all, 0.975)?))
}

/// A quantile of sorted values: the one at rank `(n + 1) q`; `None` if there are no values.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a rank within the values
#[must_use]
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = ((sorted.len() as f64 + 1.0) * share).round() as usize;
    sorted.get(rank.max(1).min(sorted.len()).checked_sub(1)?).copied()
}

/// The two-sided 95 % quantile of Student's distribution with this many degrees of freedom.
fn students_t(freedom: f64) -> f64 {
    student(freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(0.975))
}

#[cfg(test)]
mod tests {
    use statrs::distribution::Normal;

    use super::*;

    #[test]
    fn one_pair_has_no_interval() {
        let ratio = Ratio::of_pairs(&[(50.0, 100.0)]).unwrap();
        assert!((ratio.estimate - 0.5).abs() < 1e-12 && ratio.interval.is_none() && !ratio.differs());
        assert_eq!(Ratio::of_pairs(&[]), None);
        assert_eq!(Ratio::of_pairs(&[(0.0, 10.0)]), None);
        assert_eq!(Ratio::of_pairs(&[(50.0, 100.0), (0.0, 10.0)]), None);
        assert_eq!(Difference::of_groups(&[1.0], &[], NO_FLOOR), None);
        assert_eq!(Difference::of_groups(&[2.0], &[1.0], NO_FLOOR).unwrap().ratio().interval, None);
        assert_eq!(Mean::of(&[7.0]).unwrap().interval, None);
        assert_eq!(Mean::of(&[]), None);
    }

    #[test]
    fn inside_the_noise_there_is_no_difference() {
        let noisy = Ratio::of_pairs(&[(90.0, 100.0), (110.0, 100.0), (100.0, 97.0)]).unwrap();
        assert!(!noisy.differs(), "{noisy:?}");
        let clear = Ratio::of_pairs(&[(50.0, 100.0), (51.0, 100.0), (49.0, 100.0)]).unwrap();
        assert!(clear.differs(), "{clear:?}");
        let (low, high) = clear.interval.unwrap();
        assert!(low > 0.45 && high < 0.55, "{clear:?}");
    }

    #[test]
    fn the_interval_of_few_is_the_textbook_one() {
        // three logs -0.1, 0, 0.1: mean 0, s = 0.1, t(2, 0.975) = 4.3027, reach = 0.24842
        let pairs = [(-0.1_f64).exp(), 1.0, 0.1_f64.exp()].map(|with| (with, 1.0));
        let ratio = Ratio::of_pairs(&pairs).unwrap();
        let (low, high) = ratio.interval.unwrap();
        assert!((high.ln() - 0.24842).abs() < 1e-4 && (low.ln() + 0.24842).abs() < 1e-4);
        assert_eq!((ratio.method, ratio.trials), (Some(Method::Student), 3));
    }

    #[test]
    fn the_interval_of_groups_is_the_textbook_one() {
        let few = [-0.1, 0.0, 0.1];
        let reach = |difference: Option<Difference>| difference.unwrap().reach(0.025).unwrap();
        // Welch: both s = 0.1 of three: freedom 4, t 2.7764, reach 2.7764 × 0.1 × √(2/3)
        let both = reach(Difference::of_groups(&few, &[0.4, 0.5, 0.6], NO_FLOOR));
        assert!((both - 2.7764 * 0.1 * (2.0_f64 / 3.0).sqrt()).abs() < 1e-4);
        // one against three: freedom 2, t 4.3027, reach 4.3027 × 0.1 × √(4/3), whichever side it is on
        for one in
            [Difference::of_groups(&[0.5], &few, NO_FLOOR), Difference::of_groups(&few, &[0.5], NO_FLOOR)]
        {
            assert!((reach(one) - 4.3027 * 0.1 * (4.0_f64 / 3.0).sqrt()).abs() < 1e-4);
        }
        // of runs that differ by 3 %, and not otherwise: normal, 1.96 × 0.03 × √2
        let alike = Difference::of_groups(&[0.0; 3], &[0.5; 3], NO_FLOOR).unwrap();
        assert_eq!(alike.ratio().interval, Some(((-0.5_f64).exp(), (-0.5_f64).exp())));
        assert!((reach(Some(alike.between_runs(0.03))) - 1.95996 * 0.03 * 2.0_f64.sqrt()).abs() < 1e-4);
        // what is counted varies at least as counts do
        assert!((reach(Difference::of_pairs(&[0.0; 3], 0.01)) - 4.3027 * 0.1).abs() < 1e-4);
    }

    #[test]
    fn the_chance_and_the_reach_of_a_difference_agree() {
        let seen = Difference::of_pairs(&[-0.1, 0.0, 0.1, 0.3], NO_FLOOR).unwrap();
        for chance in [0.025, 0.001, 0.4] {
            let bound = seen.log - seen.reach(chance).unwrap();
            assert!((seen.chance_above(bound).unwrap() - chance).abs() < 1e-6);
        }
    }

    #[test]
    fn trials_that_do_not_vary_have_a_point() {
        for n in [2, 3, 6, 9] {
            let mean = Mean::of(&vec![5.0; n]).unwrap();
            assert_eq!((mean.interval, mean.variation), (Some((5.0, 5.0)), Some(0.0)));
        }
    }

    fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
        Normal::standard().inverse_cdf(rng.random_range(1e-12..1.0))
    }

    /// The share of synthetic experiments in which an interval contains the true ratio.
    fn coverage(n: usize, interval: impl Fn(&[f64]) -> Option<(f64, f64)>) -> f64 {
        const EXPERIMENTS: u32 = 800;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let held = (0..EXPERIMENTS)
            .filter(|_| {
                // log-normal throughput, 10 % apart from trial to trial, the true ratio is 1
                let pairs: Vec<f64> = (0..n).map(|_| 0.1 * normal(&mut rng)).collect();
                interval(&pairs).is_some_and(|(low, high)| low <= 0.0 && 0.0 <= high)
            })
            .count();
        held as f64 / f64::from(EXPERIMENTS)
    }

    fn percentile_bootstrap(values: &[f64]) -> Option<(f64, f64)> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let mut means: Vec<f64> = (0..199).map(|_| Moments::drawn(values, &mut rng).mean).collect();
        means.sort_unstable_by(f64::total_cmp);
        Some((quantile(&means, 0.025)?, quantile(&means, 0.975)?))
    }

    /// Measures the coverage that the choice of method rests on.
    #[test]
    fn intervals_cover_the_truth_about_as_often_as_they_say() {
        for n in [3, 5, 6, 10] {
            let chosen = coverage(n, centred);
            let percentile = coverage(n, percentile_bootstrap);
            println!("{n} trials: {chosen:.3} as chosen, {percentile:.3} by percentile bootstrap");
            assert!((0.93..=0.975).contains(&chosen), "{n} trials: {chosen}");
            if n <= 5 {
                assert!(percentile < 0.88, "{n} trials: {percentile}");
            }
        }
        for n in [3, 5, 6, 10] {
            let both = coverage(2 * n, |values| {
                let seen = Difference::of_groups(&values[..n], &values[n..], NO_FLOOR)?;
                Some((seen.log - seen.reach(0.025)?, seen.log + seen.reach(0.025)?))
            });
            println!("{n} runs a side: {both:.3}");
            assert!((0.93..=0.985).contains(&both), "{n} runs a side: {both}");
        }
    }
}
