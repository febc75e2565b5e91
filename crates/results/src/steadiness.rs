//! Within a trial: how many independent seconds its seconds are worth, and whether they drift.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};

/// Fewest whole seconds of a series that is judged.
pub const SHORTEST: usize = 8;

/// A drift is reported where chance alone would show one as clear in less than this share of cells …
const ERROR: f64 = 0.01;

/// … and where it changes the figure by at least this share over the measured part.
const MATERIAL: f64 = 0.05;

/// The steadiness of a cell's trials, from their values for each second: in a closed loop acknowledged operations a
/// second; in an open loop, whose rate is the schedule's, median service times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Steadiness {
    /// Number of whole seconds of a trial's measured part, mean over the trials.
    pub seconds: f64,
    /// Number of independent seconds that they are worth, mean over the trials.
    pub effective_seconds: f64,
    /// The trend of the values over the measured part.
    pub drift: Drift,
}

/// A trend over the measured part of a cell's trials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drift {
    /// Relative change from the first second to the last, as a share of the median value: median over the trials.
    pub change: f64,
    /// Probability, 0 to 1, that chance alone shows a trend as clear as this one.
    pub p: f64,
}

impl Drift {
    /// Whether the drift is worth reporting: beyond chance (1 %) and at least 5 %.
    #[must_use]
    pub fn shown(&self) -> bool {
        self.p < ERROR && self.change.abs() >= MATERIAL
    }
}

impl Steadiness {
    /// Judges the series of a cell's trials, with one value for each second. `None` where none has [`SHORTEST`]
    /// seconds.
    #[must_use]
    pub fn of(series: &[Vec<f64>]) -> Option<Self> {
        let series: Vec<&Vec<f64>> = series.iter().filter(|each| each.len() >= SHORTEST).collect();
        let n = series.len() as f64;
        let drift = drift(&series)?;
        Some(Self {
            seconds: series.iter().map(|each| each.len() as f64).sum::<f64>() / n,
            effective_seconds: series.iter().map(|each| effective_size(each)).sum::<f64>() / n,
            drift,
        })
    }

    /// Whether the seconds depend on each other so much that they are worth less than a third of their number.
    #[must_use]
    pub fn dependent(&self) -> bool {
        self.effective_seconds < self.seconds / 3.0
    }
}

/// Number of independent values that a series is worth: `n / (1 + 2 Σ ρ_k)`, the sum of the autocorrelations ended by
/// the initial positive sequence (pairs of neighbouring lags, while their sum is positive: Geyer, *Practical Markov
/// Chain Monte Carlo*, Statistical Science 7, 1992). Never above `n`: a series that swings to and fro is not trusted
/// to be worth more.
fn effective_size(series: &[f64]) -> f64 {
    let n = series.len();
    let mean = series.iter().sum::<f64>() / n as f64;
    let covariance = |lag: usize| -> f64 {
        series.iter().zip(series.iter().skip(lag)).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>()
            / n as f64
    };
    let variance = covariance(0);
    if variance <= 0.0 {
        return n as f64;
    }
    let pairs = (0..n / 2).map(|k| (covariance(2 * k) + covariance(2 * k + 1)) / variance);
    let time = 2.0 * pairs.take_while(|pair| *pair > 0.0).sum::<f64>() - 1.0;
    n as f64 / time.max(1.0)
}

/// The seasonal Kendall test (Hirsch and Slack, 1984; a trial is a season): Mann and Kendall's count of rises less
/// falls between all pairs of seconds of a trial, summed over the trials. Its variance is that of independent values,
/// times a factor for the dependence of the detrended seconds. No distribution is assumed.
fn drift(series: &[&Vec<f64>]) -> Option<Drift> {
    let (mut rises, mut variance) = (0.0, 0.0);
    let mut changes = Vec::new();
    for values in series {
        let n = values.len() as f64;
        let (count, slope) = pairwise(values);
        let trendless: Vec<f64> =
            values.iter().enumerate().map(|(i, value)| value - slope * i as f64).collect();
        rises += count;
        variance += kendall_variance(values) * n / effective_size(&trendless);
        let middle = median(&mut (*values).clone());
        changes.push(if middle > 0.0 { slope * (n - 1.0) / middle } else { 0.0 });
    }
    let z = if variance > 0.0 { (rises.abs() - 1.0).max(0.0) / variance.sqrt() } else { 0.0 };
    (!changes.is_empty()).then(|| Drift { change: median(&mut changes), p: 2.0 * Normal::standard().sf(z) })
}

/// Number of rises less falls over all pairs, and the median of all slopes per second (Theil and Sen).
fn pairwise(values: &[f64]) -> (f64, f64) {
    let mut count = 0.0;
    let mut slopes = Vec::with_capacity(values.len() * (values.len() - 1) / 2);
    for (i, early) in values.iter().enumerate() {
        for (j, late) in values.iter().enumerate().skip(i + 1) {
            let rise = late - early;
            if rise != 0.0 {
                count += rise.signum();
            }
            slopes.push(rise / (j - i) as f64);
        }
    }
    (count, median(&mut slopes))
}

/// The variance of Kendall's count for independent values, ties accounted for.
fn kendall_variance(values: &[f64]) -> f64 {
    let term = |n: f64| n * (n - 1.0) * (2.0 * n + 5.0);
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let ties = sorted.chunk_by(|a, b| a.total_cmp(b).is_eq()).map(|group| term(group.len() as f64));
    (term(values.len() as f64) - ties.sum::<f64>()) / 18.0
}

/// The median; 0 if there are no values.
fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        _ => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// Most values of a series that are compared pairwise; the number of pairs grows with the square.
const MOST: usize = 600;

/// The series with at most [`MOST`] values: a longer one has neighbours averaged.
pub(crate) fn thinned(series: Vec<f64>) -> Vec<f64> {
    let step = series.len().div_ceil(MOST).max(1);
    if step == 1 {
        return series;
    }
    series.chunks(step).map(|some| some.iter().sum::<f64>() / some.len() as f64).collect()
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
        Normal::standard().inverse_cdf(rng.random_range(1e-12..1.0))
    }

    /// A made-up series around 1,000 a second with 5 % noise; each value takes over a share of the deviation of the
    /// last one, and the series rises by the share `rise` over its length.
    fn series(n: usize, taken_over: f64, rise: f64, rng: &mut Xoshiro256PlusPlus) -> Vec<f64> {
        let mut noise = normal(rng);
        (0..n)
            .map(|second| {
                noise = taken_over * noise + (1.0 - taken_over * taken_over).sqrt() * normal(rng);
                1_000.0 * (1.0 + 0.05 * noise + rise * second as f64 / (n - 1) as f64)
            })
            .collect()
    }

    /// The share of cells, each with this many trials, of which a drift is reported.
    fn told(trials: usize, n: usize, taken_over: f64, rise: f64) -> f64 {
        const CELLS: u32 = 600;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
        let alarms = (0..CELLS).filter(|_| {
            let cell: Vec<_> = (0..trials).map(|_| series(n, taken_over, rise, &mut rng)).collect();
            Steadiness::of(&cell).unwrap().drift.shown()
        });
        alarms.count() as f64 / f64::from(CELLS)
    }

    #[test]
    fn without_a_drift_alarms_are_rare() {
        for (trials, n, taken_over, most) in [
            (1, 10, 0.0, 0.015),
            (3, 10, 0.0, 0.015),
            (1, 30, 0.0, 0.015),
            (1, 10, 0.5, 0.08),
            (3, 30, 0.5, 0.05),
        ] {
            let rate = told(trials, n, taken_over, 0.0);
            println!("{trials} trials of {n} s, {taken_over} taken over: {rate}");
            assert!(rate <= most, "{trials} trials of {n} s, {taken_over} taken over: {rate}");
        }
    }

    #[test]
    fn a_drift_is_told() {
        for (trials, n, rise, least) in
            [(1, 10, 0.3, 0.7), (3, 10, 0.2, 0.9), (1, 30, 0.2, 0.95), (3, 10, -0.2, 0.9)]
        {
            let rate = told(trials, n, 0.0, rise);
            println!("{trials} trials of {n} s, rise {rise}: {rate}");
            assert!(rate >= least, "{trials} trials of {n} s, rise {rise}: {rate}");
        }
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let warming = Steadiness::of(&[series(60, 0.0, 0.3, &mut rng)]).unwrap().drift;
        assert!((0.2..0.35).contains(&warming.change), "{warming:?}");
    }

    #[test]
    fn dependent_seconds_are_worth_fewer() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let independent = effective_size(&series(2_000, 0.0, 0.0, &mut rng));
        assert!(independent > 1_800.0, "{independent}");
        // AR(1): n (1 - φ) / (1 + φ) = 2,000 × 0.2 / 1.8 = 222
        let dependent = effective_size(&series(2_000, 0.8, 0.0, &mut rng));
        assert!((150.0..320.0).contains(&dependent), "{dependent}");
        assert!((effective_size(&[3.0; 12]) - 12.0).abs() < 1e-9);
        let mut alarms = 0;
        for _ in 0..500 {
            alarms += u32::from(Steadiness::of(&[series(10, 0.0, 0.0, &mut rng)]).unwrap().dependent());
        }
        println!("{alarms} in 500 independent series of 10 s are called dependent");
        assert!(alarms <= 15, "{alarms}");
    }

    #[test]
    fn too_short_a_series_says_nothing() {
        assert_eq!(Steadiness::of(&[vec![1.0; SHORTEST - 1]]), None);
        assert_eq!(Steadiness::of(&[]), None);
        let still = Steadiness::of(&[vec![0.0; SHORTEST]]).unwrap();
        assert!(!still.drift.shown() && !still.dependent());
        assert_eq!(thinned(vec![1.0; 1_500]).len(), 500);
    }
}
