//! Quantities as they are written in plans and on the command line: amounts of memory or disk, and rates.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An amount of memory or disk, written as `30.7GB` (of 1000 × 1000 × 1000 bytes) or `16GiB` (of 1024 × 1024 × 1024).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Bytes(pub u64);

/// Units, the largest first among those of a kind.
const UNITS: [(&str, u64); 9] = [
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// Splits a number from its unit.
fn split(text: &str) -> (&str, &str) {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim())
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "\"{text}\" is not an amount of memory or disk: write a number and TB, GB, MB, kB, TiB, GiB, MiB or KiB, \
                 as in 30.7GB"
            )
        };
        let (number, unit) = split(text.trim());
        let unit = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?;
        let bytes = number.parse::<f64>().map_err(|_| wrong())? * unit.1 as f64;
        // up to 1000 TB a floating-point number is exact to the byte
        if !(1.0..=1e15).contains(&bytes) {
            return Err(wrong());
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // in range, as was checked
        Ok(Self(bytes.round() as u64))
    }
}

impl fmt::Display for Bytes {
    /// In the unit in which it is shortest, with no more than three digits behind the point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_exact = |(_, unit): &&(&str, u64)| (u128::from(self.0) * 1000).is_multiple_of((*unit).into());
        let in_unit = |(name, unit): &(&str, u64)| format!("{}{name}", self.0 as f64 / *unit as f64);
        let shortest = UNITS.iter().filter(is_exact).map(in_unit).min_by_key(String::len);
        f.write_str(&shortest.unwrap_or_default())
    }
}

written!(Bytes);

/// A rate, written as `4051/s`, `250k/min` or `350M/day`; a number alone is of a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct PerSecond(pub f64);

impl FromStr for PerSecond {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is not a rate: write 4051/s, 250k/min or 350M/day");
        let (count, per) = match text.trim().split_once('/') {
            Some((count, per)) => (count, per.trim()),
            // of 350M nobody knows in what time
            None if text.contains(char::is_alphabetic) => return Err(wrong()),
            None => (text.trim(), "s"),
        };
        let (number, times) = split(count);
        let times = match times {
            "" => 1.0,
            "k" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            _ => return Err(wrong()),
        };
        let seconds = match per {
            "s" | "sec" | "second" => 1.0,
            "min" | "minute" => 60.0,
            "h" | "hour" => 3_600.0,
            "d" | "day" => 86_400.0,
            _ => return Err(wrong()),
        };
        let rate = number.parse::<f64>().map_err(|_| wrong())? * times / seconds;
        if (1e-6..=1e12).contains(&rate) { Ok(Self(rate)) } else { Err(wrong()) }
    }
}

impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", self.0)
    }
}

written!(PerSecond);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_back_as_written() {
        for (text, bytes) in [
            ("30.7GB", 30_700_000_000),
            ("16GiB", 16 << 30),
            ("512MB", 512_000_000),
            ("1.5kB", 1_500),
            ("7B", 7),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        for bytes in [1, 1_234_567, 16 << 30, 999_999_999_999_999, 1_000_000_000_000_000] {
            assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
        }
        assert_eq!("30.7 gb".parse(), Ok(Bytes(30_700_000_000)));
        for text in ["", "GB", "30", "30.7", "-1GB", "0GB", "1e9GB", "1001TB", "30GBs"] {
            assert!(text.parse::<Bytes>().unwrap_err().contains("as in 30.7GB"), "{text}");
        }
    }

    #[test]
    fn rates_are_of_a_second() {
        for (text, rate) in
            [("4051/s", 4051.0), ("4051", 4051.0), ("350M/day", 350e6 / 86_400.0), ("6k/min", 100.0)]
        {
            assert_eq!(text.parse(), Ok(PerSecond(rate)));
            assert_eq!(PerSecond(rate).to_string().parse(), Ok(PerSecond(rate)));
        }
        for text in ["", "/s", "4051/", "4051/x", "-3/s", "0/s", "0", "8k", "350M", "1e3", "inf", "many"] {
            assert!(text.parse::<PerSecond>().unwrap_err().contains("write 4051/s"), "{text}");
        }
    }
}
