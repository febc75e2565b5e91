//! How operations are distributed over keys.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use rand::{Rng, RngExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How operations are distributed over keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Skew {
    /// Every key is equally likely.
    Uniform,
    /// Zipfian with the given theta, between 0 and 1 (YCSB's is 0.99): the lower the rank of a key, the more often
    /// it is drawn.
    Zipf(f64),
}

/// A text that is not a skew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown skew \"{0}\": write uniform, or zipf:THETA with THETA above 0 and below 1 (YCSB's is zipf:0.99)"
)]
pub struct SkewError(String);

impl FromStr for Skew {
    type Err = SkewError;

    fn from_str(text: &str) -> Result<Self, SkewError> {
        if text == "uniform" {
            return Ok(Self::Uniform);
        }
        text.strip_prefix("zipf:")
            .and_then(|theta| theta.parse().ok())
            .filter(|theta| *theta > 0.0 && *theta < 1.0)
            .map(Self::Zipf)
            .ok_or_else(|| SkewError(text.to_owned()))
    }
}

acidtest_model::written!(Skew);

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(theta) => write!(f, "zipf:{theta}"),
        }
    }
}

/// Draws ranks from 0 (the hottest) to `count - 1`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ranks {
    Uniform { count: u64 },
    Zipf(Zipf),
}

impl Ranks {
    pub(crate) fn new(skew: Skew, count: u64) -> Self {
        match skew {
            Skew::Uniform => Self::Uniform { count },
            Skew::Zipf(theta) => Self::Zipf(Zipf::new(theta, count)),
        }
    }

    pub(crate) fn draw(&self, rng: &mut impl Rng) -> u64 {
        match self {
            Self::Uniform { count } => rng.random_range(0..*count),
            Self::Zipf(zipf) => zipf.draw(rng),
        }
    }
}

/// A zipfian distribution by the rejection-free formula of Gray et al., "Quickly Generating
/// Billion-Record Synthetic Databases" (SIGMOD 1994), as YCSB's `ZipfianGenerator` uses it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zipf {
    count: f64,
    alpha: f64,
    eta: f64,
    zeta: f64,
    /// End of the second rank's share, as a sum over 1/rank^theta.
    second: f64,
}

impl Zipf {
    pub(crate) fn new(theta: f64, count: u64) -> Self {
        Self::with_zeta(theta, count, zeta(theta, 1..=count))
    }

    /// For a given sum over 1/rank^theta of all ranks, which takes long to compute where there are many.
    pub(crate) fn with_zeta(theta: f64, count: u64, all: f64) -> Self {
        let n = count as f64;
        Self {
            count: n,
            alpha: 1.0 / (1.0 - theta),
            eta: (1.0 - (2.0 / n).powf(1.0 - theta)) / (1.0 - zeta(theta, 1..=2) / all),
            zeta: all,
            second: 1.0 + 0.5_f64.powf(theta),
        }
    }

    /// Extends the distribution to more ranks; a smaller count changes nothing.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it was a number of ranks
    pub(crate) fn grow(&mut self, theta: f64, count: u64) {
        let before = self.count as u64;
        if count > before {
            *self = Self::with_zeta(theta, count, self.zeta + zeta(theta, before + 1..=count));
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and count
    pub(crate) fn draw(&self, rng: &mut impl Rng) -> u64 {
        let uniform: f64 = rng.random();
        let share = uniform * self.zeta;
        if share < 1.0 || self.count < 2.0 {
            return 0;
        }
        if share < self.second {
            return 1;
        }
        let rank = self.count * (self.eta * uniform - self.eta + 1.0).powf(self.alpha);
        rank.min(self.count - 1.0) as u64
    }
}

fn zeta(theta: f64, ranks: RangeInclusive<u64>) -> f64 {
    ranks.map(|rank| (rank as f64).powf(-theta)).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn a_skew_reads_back_as_written() {
        for text in ["uniform", "zipf:0.99", "zipf:0.5"] {
            assert_eq!(text.parse::<Skew>().unwrap().to_string(), text);
        }
        for text in ["zipf", "zipf:1", "zipf:0", "zipf:x", "hot"] {
            assert!(text.parse::<Skew>().is_err(), "{text}");
        }
    }

    fn shares(skew: Skew, count: u64, draws: u64, seed: u64) -> Vec<f64> {
        let ranks = Ranks::new(skew, count);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut hits = vec![0_u32; usize::try_from(count).unwrap()];
        for _ in 0..draws {
            hits[usize::try_from(ranks.draw(&mut rng)).unwrap()] += 1;
        }
        hits.into_iter().map(|hit| f64::from(hit) / draws as f64).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Rank r has the share 1/r^theta / zeta; the formula is exact for the first two ranks and close for the
        /// rest.
        #[test]
        fn zipf_shares_follow_the_law(theta in 0.2..0.99_f64, count in 5u64..2_000, seed: u64) {
            let shares = shares(Skew::Zipf(theta), count, 40_000, seed);
            let zeta: f64 = (1..=count).map(|rank| (rank as f64).powf(-theta)).sum();
            for rank in [1_u32, 2] {
                let law = f64::from(rank).powf(-theta) / zeta;
                let noise = 6.0 * (law / 40_000.0).sqrt();
                let share = shares[rank as usize - 1];
                prop_assert!((share - law).abs() < noise, "rank {}: {} for {}", rank, share, law);
            }
            // where ranks are few and nearly equally likely, the half without the middle one need not have half of
            // the draws
            let first_half: f64 = shares[..shares.len().div_ceil(2)].iter().sum();
            prop_assert!(first_half > 0.5);
        }

        #[test]
        fn uniform_shares_are_alike(count in 2u64..200, seed: u64) {
            let shares = shares(Skew::Uniform, count, 40_000, seed);
            let law = 1.0 / count as f64;
            let noise = 6.0 * (law / 40_000.0).sqrt();
            prop_assert!(shares.iter().all(|share| (share - law).abs() < noise));
        }

        #[test]
        fn every_rank_is_in_range(theta in 0.01..0.999_f64, count in 1u64..50, seed: u64) {
            // a rank out of range would panic when `shares` is indexed
            let total: f64 = shares(Skew::Zipf(theta), count, 2_000, seed).iter().sum();
            prop_assert!((total - 1.0).abs() < 1e-9);
        }
    }
}
