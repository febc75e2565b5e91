//! How operations choose their records: YCSB's distributions, with its constants.

use std::{fmt, str::FromStr};

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use super::content::hash;
use crate::keys::Zipf;

/// YCSB's `ZipfianGenerator.ZIPFIAN_CONSTANT`.
const ZIPFIAN: f64 = 0.99;
/// YCSB's `ScrambledZipfianGenerator`: the number of items that it draws from before it scrambles, and their zeta.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;
/// YCSB's `hotspotdatafraction` and `hotspotopnfraction`.
const HOTSPOT: (f64, f64) = (0.2, 0.8);

/// How operations are distributed over records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Choice {
    /// The distribution that belongs to the mix.
    #[default]
    Own,
    /// YCSB's scrambled zipfian: hot records are spread over all numbers.
    Zipfian,
    /// Zipfian by age: the newest records are drawn most.
    Latest,
    /// Every record is equally likely.
    Uniform,
    /// Hot records: a share of the records (the first number) gets a share of the operations (the second).
    Hotspot(f64, f64),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "unknown choice of keys \"{text}\": known are own, zipfian, latest, uniform, hotspot, and \
                 hotspot:RECORDS:OPERATIONS with shares between 0 and 1"
            )
        };
        Ok(match text {
            "own" => Self::Own,
            "zipfian" => Self::Zipfian,
            "latest" => Self::Latest,
            "uniform" => Self::Uniform,
            "hotspot" => Self::Hotspot(HOTSPOT.0, HOTSPOT.1),
            _ => {
                let shares = text.strip_prefix("hotspot:").and_then(|shares| shares.split_once(':'));
                let (records, operations) = shares.ok_or_else(unknown)?;
                let share = |text: &str| {
                    text.parse::<f64>().ok().filter(|share| *share > 0.0 && *share <= 1.0).ok_or_else(unknown)
                };
                Self::Hotspot(share(records)?, share(operations)?)
            }
        })
    }
}

acidtest_model::written!(Choice);

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("own"),
            Self::Zipfian => f.write_str("zipfian"),
            Self::Latest => f.write_str("latest"),
            Self::Uniform => f.write_str("uniform"),
            Self::Hotspot(records, operations) => write!(f, "hotspot:{records}:{operations}"),
        }
    }
}

/// Draws numbers of records for one client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyChooser {
    Zipfian(Zipf),
    Latest(Zipf),
    Uniform,
    Hotspot { records: f64, operations: f64 },
}

impl KeyChooser {
    pub(crate) fn new(choice: Choice, records: u64) -> Self {
        match choice {
            Choice::Own | Choice::Zipfian => {
                Self::Zipfian(Zipf::with_zeta(ZIPFIAN, SCRAMBLED_ITEMS, SCRAMBLED_ZETA))
            }
            Choice::Latest => Self::Latest(Zipf::new(ZIPFIAN, records)),
            Choice::Uniform => Self::Uniform,
            Choice::Hotspot(records, operations) => Self::Hotspot { records, operations },
        }
    }

    /// Draws a number below `count`, which may have grown since the last draw but not shrunk.
    pub(crate) fn draw(&mut self, count: u64, rng: &mut impl Rng) -> u64 {
        match self {
            Self::Zipfian(zipf) => hash(zipf.draw(rng)) % count,
            Self::Latest(zipf) => {
                zipf.grow(ZIPFIAN, count);
                count - 1 - zipf.draw(rng)
            }
            Self::Uniform => rng.random_range(0..count),
            Self::Hotspot { records, operations } => {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of the count
                let hot = ((count as f64 * *records) as u64).clamp(1, count);
                if hot == count || rng.random::<f64>() < *operations {
                    rng.random_range(0..hot)
                } else {
                    rng.random_range(hot..count)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const DRAWS: u64 = 400_000;

    fn shares(choice: Choice, count: u64) -> Vec<f64> {
        let mut numbers = KeyChooser::new(choice, count);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut hits = vec![0_u32; usize::try_from(count).unwrap()];
        for _ in 0..DRAWS {
            hits[usize::try_from(numbers.draw(count, &mut rng)).unwrap()] += 1;
        }
        hits.into_iter().map(|hit| f64::from(hit) / DRAWS as f64).collect()
    }

    #[track_caller]
    fn near(share: f64, law: f64) {
        assert!((share - law).abs() < 6.0 * (law / DRAWS as f64).sqrt(), "{share} for {law}");
    }

    #[test]
    fn a_choice_reads_back_as_written() {
        for text in ["own", "zipfian", "latest", "uniform", "hotspot:0.1:0.9"] {
            assert_eq!(text.parse::<Choice>().unwrap().to_string(), text);
        }
        assert_eq!("hotspot".parse(), Ok(Choice::Hotspot(0.2, 0.8)));
        for text in ["zipf", "hotspot:2:1", "hotspot:0.1", "hotspot:0:0.5"] {
            assert!(text.parse::<Choice>().unwrap_err().contains("known are own"), "{text}");
        }
    }

    /// YCSB's constant is the zeta of its other constants: the sum over 1/rank^0.99, computed here exactly up to a
    /// point and from there by the integral (Euler and Maclaurin).
    #[test]
    fn the_scrambled_zeta_is_the_published_formula_s() {
        let (theta, exact) = (ZIPFIAN, 1_000_000_u32);
        let head: f64 = (1..=exact).map(|rank| f64::from(rank).powf(-theta)).sum();
        let (from, to) = (f64::from(exact), SCRAMBLED_ITEMS as f64);
        let tail = (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta)
            + (to.powf(-theta) - from.powf(-theta)) / 2.0;
        assert!((head + tail - SCRAMBLED_ZETA).abs() < 1e-6, "{}", head + tail);
    }

    #[test]
    fn scrambled_zipfian_shares_follow_the_law() {
        let count = 1000;
        let shares = shares(Choice::Zipfian, count);
        // the two hottest ranks, at the numbers that they hash to; other ranks that fall there are spread evenly
        for rank in [0_u64, 1] {
            let law = ((rank + 1) as f64).powf(-ZIPFIAN) / SCRAMBLED_ZETA;
            let place = usize::try_from(hash(rank) % count).unwrap();
            let others = (1.0 - law) / count as f64;
            assert!((shares[place] - law - others).abs() < 0.004, "{} for {law}", shares[place]);
        }
    }

    #[test]
    fn the_latest_is_the_hottest() {
        let shares = shares(Choice::Latest, 500);
        let zeta: f64 = (1..=500_u32).map(|rank| f64::from(rank).powf(-ZIPFIAN)).sum();
        near(shares[499], 1.0 / zeta);
        near(shares[498], 2_f64.powf(-ZIPFIAN) / zeta);
        assert!(shares[499] > shares[400] && shares[400] > shares[0]);
    }

    #[test]
    fn what_is_added_later_is_drawn_as_if_it_had_been_there() {
        let mut grown = KeyChooser::new(Choice::Latest, 10);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        grown.draw(10, &mut rng);
        grown.draw(300, &mut rng);
        let mut fresh = KeyChooser::new(Choice::Latest, 300);
        let draws = |numbers: &mut KeyChooser| {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
            (0..100).map(|_| numbers.draw(300, &mut rng)).collect::<Vec<_>>()
        };
        assert_eq!(draws(&mut grown), draws(&mut fresh));
    }

    #[test]
    fn a_hotspot_has_its_share() {
        let shares = shares(Choice::Hotspot(0.2, 0.8), 100);
        near(shares[..20].iter().sum(), 0.8);
        near(shares[99], 0.2 / 80.0);
        assert!(self::shares(Choice::Uniform, 50).iter().all(|share| (share - 0.02).abs() < 0.002));
    }

    #[test]
    fn every_number_is_in_range() {
        for choice in [Choice::Zipfian, Choice::Latest, Choice::Uniform, Choice::Hotspot(0.2, 0.8)] {
            for count in [1, 2, 3] {
                // a number out of range would panic when `shares` is indexed
                assert!(shares(choice, count).iter().sum::<f64>() > 0.999, "{choice} {count}");
            }
        }
    }
}
