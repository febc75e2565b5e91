//! What a guarantee costs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// A ratio of two measurements, with a 95 % confidence interval where there are trials enough.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ratio {
    /// Geometric mean of the trials' ratios.
    pub estimate: f64,
    /// Bounds of the interval; none from a single trial.
    pub interval: Option<(f64, f64)>,
    /// Pairs of trials that it comes from.
    pub pairs: usize,
}

impl Ratio {
    /// The ratio of paired measurements: `(with, without)` of one round each. Rounds are interleaved,
    /// so what disturbs the machine for a while disturbs both of a pair.
    ///
    /// The interval is Student's for the mean of the logarithms, whose spread is alike whichever way
    /// round the ratio is taken. `None` without a pair of positive figures.
    #[must_use]
    pub fn of_pairs(pairs: &[(f64, f64)]) -> Option<Self> {
        let logs: Vec<f64> = pairs
            .iter()
            .filter(|(with, without)| *with > 0.0 && *without > 0.0)
            .map(|(with, without)| (with / without).ln())
            .collect();
        if logs.is_empty() {
            return None;
        }
        let n = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / n;
        let interval = (logs.len() > 1).then(|| {
            let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
            let reach = students_t(n - 1.0) * (variance / n).sqrt();
            ((mean - reach).exp(), (mean + reach).exp())
        });
        Some(Self { estimate: mean.exp(), interval, pairs: logs.len() })
    }

    /// Whether the interval excludes 1: only then is there a difference to speak of.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low > 1.0 || high < 1.0)
    }
}

/// The two-sided 95 % quantile of Student's distribution.
fn students_t(freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(0.975))
}

/// What a cell's guarantee costs, against the same cell without it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Price {
    /// What it is measured against (`lock none`).
    pub against: String,
    /// Acknowledged operations a second, with over without.
    pub throughput: Ratio,
    /// 99th percentile of the response time of acknowledged operations, with over without. In an open
    /// loop this is the price: its throughput is what was offered.
    pub p99: Option<Ratio>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pair_has_no_interval() {
        let ratio = Ratio::of_pairs(&[(50.0, 100.0)]).unwrap();
        assert!((ratio.estimate - 0.5).abs() < 1e-12 && ratio.interval.is_none() && !ratio.differs());
        assert_eq!(Ratio::of_pairs(&[]), None);
        assert_eq!(Ratio::of_pairs(&[(0.0, 10.0)]), None);
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
    fn the_interval_is_the_textbook_one() {
        // three logs -0.1, 0, 0.1: mean 0, s = 0.1, t(2, 0.975) = 4.3027, reach = 0.24842
        let pairs = [(-0.1_f64).exp(), 1.0, 0.1_f64.exp()].map(|with| (with, 1.0));
        let (low, high) = Ratio::of_pairs(&pairs).unwrap().interval.unwrap();
        assert!((high.ln() - 0.24842).abs() < 1e-4 && (low.ln() + 0.24842).abs() < 1e-4);
    }
}
