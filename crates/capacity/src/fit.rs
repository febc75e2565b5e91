//! The rate that the median machine holds, with its interval, from all probes at once.
//!
//! A probe at log rate `x` meets with a machine that is momentarily faster or slower. It meets if the log rate that
//! this machine would hold, `k + e`, is not below `x`; `e` has a median of 0 and the standard deviation `s`. What is
//! sought is `k`: the rate at which half of the probes meet. What the mean machine would hold lies above that if speeds
//! are skewed (by 2 % if they are lognormal with a coefficient of variation of 20 %).
//!
//! *The spread* `s` comes from the order of the margins. Of two probes, the one at the higher rate has the worse margin,
//! unless noise turned them round, and the chance of that depends on nothing but their distance over `s`: no shape of
//! latency over rate is assumed. Each pair near the knee is one observation of a logistic regression through the origin
//! (a composite likelihood of pairs; Varin, Reid and Firth, *An overview of composite likelihood methods*, 2011).
//! Outcomes alone would tell the spread as well, but not with the dozen probes after which a search has to know
//! whether it may stop: then chance makes a noisy machine look like a quiet one too often.
//!
//! *The centre* `k` then comes from the outcomes: logistic regression of them on `x` with the slope given. Both log
//! likelihoods are concave in their one parameter, so that bisection of the derivative finds the maximum. The
//! logistic distribution stands for the normal one (it is within 1 % of it at 1.702 times the argument) because its
//! tails are heavier: a stall far from the knee does not widen everything.
//!
//! *Drift*: a machine that is slow now is probably slow in the next probe, too, and then many probes tell no more than a few
//! independent ones. The speeds are taken as an autoregression of the first order. Its coefficient comes from how much the
//! outcomes of neighbours in time agree beyond what their rates explain, raised by its small-sample bias (Kendall, *Note on bias
//! in the estimation of autocorrelation*, 1954) and by its standard error. The intervals are those of the number of independent
//! probes that the probes are worth.

/// What one probe tells the fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    /// Natural log of the rate (operations a second).
    pub(crate) x: f64,
    /// Whether every objective held.
    pub(crate) met: bool,
    /// Natural log of the worst margin (measured over allowed), if it is known: below 0 where it was met.
    pub(crate) margin: Option<f64>,
}

/// The fitted threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fit {
    /// Natural log of the rate at which half of the probes meet.
    pub(crate) centre: f64,
    /// Standard deviation between probes (natural log of the rate that a probe would have held).
    pub(crate) spread: f64,
    /// Standard error of the centre, drift included.
    pub(crate) error: f64,
    /// The number of independent probes at the centre that those which were made are worth.
    pub(crate) worth: f64,
    /// Whether all probes met up to a rate, and missed above it.
    pub(crate) in_order: bool,
}

/// The 95 % quantile of the logistic distribution that stands for a normal one with a deviation of 1: ln(0.95 / 0.05) over
/// [`NORMAL`], where a normal one has 1.645.
const MOST: f64 = 1.73;

/// The same of 99 %: what is aimed at. A rate that only just 95 % meet seldom passes its confirmation, and below the knee, where
/// latency hardly rises, what varies by chance has a longer tail than the fit knows.
const AIM: f64 = 2.70;

impl Fit {
    /// How many standard errors lie on either side of an estimate in its 95 % interval: Student's t with as many degrees of freedom
    /// as independent probes but one, to two terms of its expansion (Abramowitz and Stegun, 26.7.5).
    fn errors(&self) -> f64 {
        let freedom = (self.worth - 1.0).max(1.0);
        1.96 + 2.37 / freedom + 2.82 / freedom.powi(2)
    }

    /// The 95 % interval of the centre.
    pub(crate) fn interval(&self) -> (f64, f64) {
        let half = self.errors() * self.error;
        (self.centre - half, self.centre + half)
    }

    /// Standard error of the spread. Outcomes tell it half as well as the speeds themselves would.
    fn spread_error(&self) -> f64 {
        self.spread / self.worth.sqrt()
    }

    /// The 95 % interval of the log rate at which 95 % of the probes meet. Where no outcomes contradict each other, nothing says that
    /// probes differ at all, and it reaches as high as that of the centre.
    pub(crate) fn most_interval(&self) -> (f64, f64) {
        let middle = self.centre - MOST * self.spread;
        let half = self.errors() * self.error.hypot(MOST * self.spread_error());
        (middle - half, if self.in_order { self.interval().1 } else { middle + half })
    }

    /// The log rate at which 95 % of fresh probes are expected to meet, with all that is not known of centre and spread: a bound
    /// of prediction, below the middle of [`Fit::most_interval`].
    pub(crate) fn most(&self) -> f64 {
        self.centre - AIM * self.spread.hypot(self.error).hypot(self.spread_error())
    }
}

/// The logistic distribution at this many times its argument is nearest to the normal one.
const NORMAL: f64 = 1.702;

/// What is assumed of the spread before a probe (standard deviation of the natural log), with the weight of one probe.
const ASSUMED: f64 = 0.05;

/// How far from the centre pairs tell the spread: this many times the spread, within these bounds (natural log).
/// Further below, latency is that of an idle store, and noise turns pairs round that are far from the knee.
const NEAR: f64 = 2.0;
const NEAREST: f64 = 0.06;
const FURTHEST: f64 = 0.5;

/// Width of the bins of distances between pairs, which are so many that each would take too long.
const BIN: f64 = 0.002;

/// Fits the threshold to the samples. `None` if they are all met or all missed, when there is none to be seen.
pub(crate) fn fit(samples: &[Sample]) -> Option<Fit> {
    if samples.iter().all(|s| s.met) || samples.iter().all(|s| !s.met) {
        return None;
    }
    let mut spread = 0.3;
    let mut near = Vec::new();
    for _ in 0..4 {
        let centre = centre(samples, spread);
        let window = (NEAR * spread).clamp(NEAREST, FURTHEST);
        near.clear();
        near.extend(samples.iter().copied().filter(|s| (s.x - centre).abs() <= window));
        spread = spread_of(&near);
    }
    let centre = centre(samples, spread);
    let slope = NORMAL / spread;
    let information: f64 =
        samples.iter().map(|s| logistic(slope * (s.x - centre))).map(|p| p * (1.0 - p)).sum();
    let drift = inflation(dependence(&near, centre, slope), near.len() as f64);
    Some(Fit {
        centre,
        spread,
        error: (drift / information).sqrt() / slope,
        // a probe at the centre tells the most, a quarter
        worth: (4.0 * information / drift).max(1.0),
        in_order: {
            let highest = samples.iter().filter(|s| s.met).map(|s| s.x).fold(f64::NEG_INFINITY, f64::max);
            samples.iter().all(|s| s.met || s.x > highest)
        },
    })
}

/// How much the speeds of neighbours in time depend on each other, 0 to below 1: the upper end of what outcomes and margins say.
fn dependence(near: &[Sample], centre: f64, slope: f64) -> f64 {
    if near.len() < FEW {
        return UNKNOWN;
    }
    let count = near.len() as f64;
    let outcomes = near.iter().map(|s| {
        let expected = logistic(slope * (centre - s.x));
        (f64::from(u8::from(s.met)) - expected) / (expected * (1.0 - expected)).sqrt().max(0.1)
    });
    let seen = agreement(&outcomes.collect::<Vec<_>>()).max(agreement(&beside_line(near)));
    let most = seen + (1.0 + 3.0 * seen) / count + ((1.0 - seen * seen) / count).sqrt();
    // two outcomes agree less than the speeds behind them: they correlate by 2/pi arcsin of what those do
    (most.min(1.0) * std::f64::consts::FRAC_PI_2).sin().min(MOST_DEPENDENT)
}

/// How far the log margins lie beside a straight line over the log rate.
fn beside_line(near: &[Sample]) -> Vec<f64> {
    let known = near.iter().filter_map(|s| Some((s.x, s.margin.filter(|m| m.is_finite())?.clamp(-1.0, 1.0))));
    let points: Vec<(f64, f64)> = known.collect();
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let across: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let along: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let slope = if across > 0.0 { along / across } else { 0.0 };
    points.iter().map(|point| point.1 - y - slope * (point.0 - x)).collect()
}

/// The correlation of neighbours, 0 where it is negative or there is nothing to be seen.
fn agreement(left: &[f64]) -> f64 {
    let all: f64 = left.iter().map(|each| each * each).sum();
    let neighbours: f64 = left.windows(2).map(|pair| pair[0] * pair[1]).sum();
    if all > 0.0 { (neighbours / all).clamp(0.0, 1.0) } else { 0.0 }
}

/// By how much the variance of a mean of so many outcomes is larger than that of independent ones.
fn inflation(dependence: f64, count: f64) -> f64 {
    let (mut sum, mut behind, mut speeds) = (0.0, 1.0, dependence);
    while behind < count && speeds > 1e-3 {
        sum += (1.0 - behind / count) * speeds.asin() / std::f64::consts::FRAC_PI_2;
        (behind, speeds) = (behind + 1.0, speeds * dependence);
    }
    1.0 + 2.0 * sum
}

/// Fewer outcomes than these tell nothing of drift.
const FEW: usize = 6;
/// What is assumed of neighbours where too few tell, and the most that is believed.
const UNKNOWN: f64 = 0.5;
const MOST_DEPENDENT: f64 = 0.97;

/// The centre with the highest likelihood, given the spread.
fn centre(samples: &[Sample], spread: f64) -> f64 {
    let slope = NORMAL / spread;
    let lowest = samples.iter().map(|s| s.x).fold(f64::INFINITY, f64::min);
    let highest = samples.iter().map(|s| s.x).fold(f64::NEG_INFINITY, f64::max);
    // as many would be met there as were
    let met = samples.iter().filter(|s| s.met).count() as f64;
    let expected = |centre: f64| samples.iter().map(|s| logistic(slope * (centre - s.x))).sum::<f64>();
    let reach = spread * (2.0 + (samples.len() as f64).ln());
    root(lowest - reach, highest + reach, |centre| expected(centre) - met)
}

/// The spread with the highest likelihood, given samples near the knee.
fn spread_of(near: &[Sample]) -> f64 {
    let pairs = pairs(near);
    // every sample is in many pairs, and they do not tell more than the samples do
    let weight = 2.0 / (near.len() as f64 - 1.0).max(1.0);
    let assumed = NORMAL / (ASSUMED * std::f64::consts::SQRT_2);
    let slope = root(1e-3_f64.ln(), 1e5_f64.ln(), |log| {
        let slope = log.exp();
        let likelihood: f64 = pairs
            .iter()
            .map(|&(d, right, wrong)| d * (right * logistic(-slope * d) - wrong * logistic(slope * d)))
            .sum();
        // it falls with the slope, so that its negative rises
        -(weight * likelihood + 1.0 / slope - slope / (assumed * assumed))
    })
    .exp();
    NORMAL / (slope * std::f64::consts::SQRT_2)
}

/// Distances between samples (natural log of the rate, in bins of [`BIN`]), each with how many pairs are in the order
/// of their rates, and how many are not.
fn pairs(near: &[Sample]) -> Vec<(f64, f64, f64)> {
    let rank = |s: &Sample| s.margin.unwrap_or(if s.met { f64::NEG_INFINITY } else { f64::INFINITY });
    let mut bins: Vec<(f64, f64, f64)> = Vec::new();
    for (index, one) in near.iter().enumerate() {
        for other in &near[index + 1..] {
            let distance = one.x - other.x;
            let order = rank(one).total_cmp(&rank(other));
            if distance.abs() < 1e-9 || order.is_eq() {
                continue;
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // at most 2 * FURTHEST / BIN
            let bin = (distance.abs() / BIN) as usize;
            if bins.len() <= bin {
                bins.resize(bin + 1, (0.0, 0.0, 0.0));
            }
            let counts = &mut bins[bin];
            counts.0 += distance.abs();
            if (distance > 0.0) == order.is_gt() {
                counts.1 += 1.0;
            } else {
                counts.2 += 1.0;
            }
        }
    }
    bins.retain(|counts| counts.0 > 0.0);
    for counts in &mut bins {
        counts.0 /= counts.1 + counts.2;
    }
    bins
}

/// Where the rising function crosses 0, to 1e-9. Regula falsi with the Illinois rule: an end that stays counts half.
fn root(mut low: f64, mut high: f64, rising: impl Fn(f64) -> f64) -> f64 {
    let (mut below, mut above) = (rising(low), rising(high));
    let mut last = 0;
    for _ in 0..60 {
        if below >= 0.0 {
            return low;
        }
        if above <= 0.0 {
            return high;
        }
        let middle = low + (high - low) * below / (below - above);
        let value = rising(middle);
        let side = if value < 0.0 { -1 } else { 1 };
        let held = if side == last { 0.5 } else { 1.0 };
        if side < 0 {
            (low, below, above) = (middle, value, above * held);
        } else {
            (high, above, below) = (middle, value, below * held);
        }
        last = side;
        if high - low < 1e-9 || value.abs() < 1e-12 {
            return middle;
        }
    }
    f64::midpoint(low, high)
}

fn logistic(z: f64) -> f64 {
    1.0 / (1.0 + (-z).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(x: f64, margin: f64) -> Sample {
        Sample { x, met: margin <= 0.0, margin: Some(margin) }
    }

    /// 99 probes at rates around 5, with speeds at the quantiles of a distribution of this deviation.
    fn noisy(deviation: f64, at: &[f64]) -> Vec<Sample> {
        let offsets = at.iter().copied().cycle();
        (0..99_u32)
            .zip(offsets)
            .map(|(n, offset)| {
                let p = (f64::from((n * 37) % 99) + 0.5) / 99.0;
                let speed = deviation / NORMAL * (p / (1.0 - p)).ln();
                sample(5.0 + offset, 12.0 * (offset - speed))
            })
            .collect()
    }

    #[test]
    fn one_outcome_has_no_threshold() {
        assert_eq!(fit(&[sample(0.0, -1.0), sample(1.0, -0.5)]), None);
        assert_eq!(fit(&[]), None);
    }

    #[test]
    fn threshold_lies_between_what_held_and_what_did_not() {
        let fit = fit(&[sample(6.9, -2.0), sample(7.6, -1.0), sample(8.3, 2.0), sample(8.0, 1.5)]).unwrap();
        assert!((7.6..8.0).contains(&fit.centre), "{fit:?}");
    }

    #[test]
    fn threshold_of_noisy_probes_is_that_of_the_median_machine() {
        let fit = fit(&noisy(0.2, &[-0.2, -0.1, 0.0, 0.1, 0.2])).unwrap();
        assert!((fit.centre - 5.0).abs() < 0.02, "{fit:?}");
        assert!((0.15..0.25).contains(&fit.spread), "{fit:?}");
        // 0.2 * sqrt(pi / 2) / sqrt(99) = 2.5 %, a little for the distances, and for a drift that may be there
        assert!((0.023..0.040).contains(&fit.error), "{fit:?}");
    }

    #[test]
    fn quiet_machine_is_seen_to_be_quiet() {
        let fit = fit(&noisy(0.02, &[-0.1, -0.05, 0.0, 0.05, 0.1])).unwrap();
        assert!(fit.spread < 0.04 && fit.error < 0.01, "{fit:?}");
    }

    #[test]
    fn a_stall_far_below_does_not_move_the_threshold() {
        let mut samples = noisy(0.1, &[-0.1, 0.0, 0.1]);
        let before = fit(&samples).unwrap();
        samples.push(sample(3.0, 4.0));
        let after = fit(&samples).unwrap();
        assert!((before.centre - after.centre).abs() < 0.01, "{before:?} {after:?}");
        assert!(after.spread < before.spread * 1.1, "{before:?} {after:?}");
    }

    #[test]
    fn margins_that_are_unknown_leave_the_outcomes() {
        let mut samples = noisy(0.2, &[-0.2, 0.0, 0.2]);
        for sample in &mut samples {
            sample.margin = None;
        }
        let fit = fit(&samples).unwrap();
        assert!((fit.centre - 5.0).abs() < 0.03, "{fit:?}");
        assert!((0.1..0.4).contains(&fit.spread), "{fit:?}");
    }

    #[test]
    fn odd_margins_are_survived() {
        let odd = [f64::NEG_INFINITY, f64::INFINITY, f64::NAN, 0.0, 1e300];
        let samples: Vec<Sample> = odd
            .iter()
            .enumerate()
            .map(|(n, m)| Sample { x: n as f64, met: n < 3, margin: Some(*m) })
            .collect();
        let fit = fit(&samples).unwrap();
        assert!(fit.centre.is_finite() && fit.spread.is_finite() && fit.error > 0.0, "{fit:?}");
    }
}
