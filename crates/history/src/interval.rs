//! How sure a count is.

use statrs::distribution::{ChiSquared, ContinuousCDF};

/// Exact 95 % interval of the expected number of events, given that `count` were seen and that they come independently of each
/// other (Poisson). Garwood 1936: half of the chi-square quantiles at 2.5 % with 2·count degrees of freedom, and at 97.5 %
/// with 2·count + 2.
#[must_use]
pub fn poisson_interval(count: u64) -> (f64, f64) {
    let half_quantile = |degrees: f64, p: f64| {
        // more than 0 degrees of freedom always make a distribution
        ChiSquared::new(degrees).map_or(f64::NAN, |distribution| distribution.inverse_cdf(p) / 2.0)
    };
    let degrees = 2.0 * count as f64;
    let low = if count == 0 { 0.0 } else { half_quantile(degrees, 0.025) };
    (low, half_quantile(degrees + 2.0, 0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_tables() {
        for (count, low, high) in
            [(0, 0.0, 3.6889), (1, 0.0253, 5.5716), (14, 7.6539, 23.4896), (100, 81.3639, 121.6270)]
        {
            let (found_low, found_high) = poisson_interval(count);
            assert!((found_low - low).abs() < 1e-3, "{count}: {found_low}");
            assert!((found_high - high).abs() < 1e-3, "{count}: {found_high}");
        }
    }

    #[test]
    fn large_counts_approach_the_normal_interval() {
        let (low, high) = poisson_interval(1_000_000);
        assert!((low - 998_040.9).abs() < 5.0, "{low}");
        assert!((high - 1_001_963.0).abs() < 5.0, "{high}");
    }
}
