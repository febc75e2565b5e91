//! Objectives as they are written in plans and on the command line, and how a demand grows.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hint;

/// What must hold at a rate, written as `p99<20ms`, `errors<0.1%` or, of one operation, `capture:p99<5ms`. Times are response
/// times, from when an operation was due to its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Objective {
    /// The operation, or span, that it is about; none for each operation apart.
    pub operation: Option<String>,
    /// The figure that is compared with the limit.
    pub measure: Measure,
    /// What it must be below: nanoseconds, or a share from 0 to 1 of errors.
    pub limit: f64,
    /// Whether the limit itself is allowed (`<=`).
    pub inclusive: bool,
    /// As it was written, without blanks.
    text: String,
}

/// The figure that an objective limits: one of the response times, or a share of errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// The time that so many percent of the operations (above 0 and below 100) are not slower than.
    Percentile(f64),
    /// The longest of the response times.
    Longest,
    /// The share of the operations that were offered and not served.
    Errors,
}

/// Names of what can be measured, for those who mistype one.
const MEASURES: [&str; 7] = ["p50", "p90", "p95", "p99", "p99.9", "max", "errors"];

/// Units of time, in nanoseconds.
const TIMES: [(&str, f64); 7] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("μs", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9)];

impl Objective {
    /// Whether a figure, in the unit of the limit, meets it.
    #[must_use]
    pub fn is_met_by(&self, figure: f64) -> bool {
        figure < self.limit || (self.inclusive && figure <= self.limit)
    }

    /// A figure over what is allowed: above 1 where it is missed. Infinite where nothing is allowed and something was seen.
    #[must_use]
    pub fn ratio(&self, figure: f64) -> f64 {
        match (figure <= 0.0, self.limit <= 0.0) {
            (true, _) => 0.0,
            (false, true) => f64::INFINITY,
            (false, false) => figure / self.limit,
        }
    }

    /// The name of what is measured: `p99`, `max`, `errors`, with the operation where one is named.
    #[must_use]
    pub fn measured(&self) -> &str {
        self.text.split_once('<').map_or(&*self.text, |(measured, _)| measured)
    }
}

/// A message that points at a part of a text.
fn pointed(text: &str, part: &str, why: &str, remedy: &str) -> String {
    // the part is a slice of the text wherever there is one
    let at = (part.as_ptr() as usize).checked_sub(text.as_ptr() as usize).filter(|at| *at <= text.len());
    let before = at.and_then(|at| text.get(..at)).map_or(0, |before| before.chars().count());
    let carets = "^".repeat(part.trim().chars().count().max(1));
    format!("{why}\n  {text}\n  {:before$}{carets}\n  remedy: {remedy}", "")
}

impl FromStr for Objective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let usual = "write p99<20ms, errors<0.1% or, of one operation, capture:p99<5ms";
        let Some((left, right)) = text.split_once('<') else {
            let end = &text[text.len()..];
            return Err(match text.find('>') {
                Some(at) => pointed(text, &text[at..=at], "an objective is what stays below a limit", usual),
                None => pointed(text, end, "an objective needs a limit", usual),
            });
        };
        let (operation, measure) = match left.split_once(':') {
            Some((operation, measure)) if operation.trim().is_empty() => {
                return Err(pointed(text, measure, "there is no operation before the colon", usual));
            }
            Some((operation, measure)) => (Some(operation.trim().to_owned()), measure.trim()),
            None => (None, left.trim()),
        };
        let measure = measure_of(measure).ok_or_else(|| {
            let why = format!("\"{measure}\" is not measured{}", hint(measure, MEASURES));
            pointed(text, measure, &why, &format!("one of {}", MEASURES.join(", ")))
        })?;
        let (inclusive, limit) = match right.strip_prefix('=') {
            Some(limit) => (true, limit.trim()),
            None => (false, right.trim()),
        };
        let limit = limit_of(text, limit, measure)?;
        if limit <= 0.0 && !inclusive {
            return Err(pointed(
                text,
                right.trim(),
                "nothing is below 0",
                "write errors<=0% for none at all",
            ));
        }
        let text = text.split_whitespace().collect();
        Ok(Self { operation, measure, limit, inclusive, text })
    }
}

fn measure_of(word: &str) -> Option<Measure> {
    match word {
        "max" => Some(Measure::Longest),
        "errors" => Some(Measure::Errors),
        _ => {
            let digits =
                word.strip_prefix('p').filter(|digits| digits.starts_with(|c: char| c.is_ascii_digit()))?;
            let percent = digits.parse::<f64>().ok()?;
            (percent > 0.0 && percent < 100.0).then_some(Measure::Percentile(percent))
        }
    }
}

/// The limit, in nanoseconds or as a share.
fn limit_of(text: &str, limit: &str, measure: Measure) -> Result<f64, String> {
    let end = limit.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(limit.len());
    let (digits, unit) = (&limit[..end], limit[end..].trim());
    let (kind, example) = match measure {
        Measure::Errors => ("errors are a share, in %", "0.1%"),
        _ => ("it is a time, in ns, us, ms, s or min", "20ms"),
    };
    let remedy = format!("{kind}, as in {example}");
    let Ok(number) = digits.parse::<f64>() else {
        return Err(pointed(text, limit, &format!("\"{limit}\" is not a number with a unit"), &remedy));
    };
    if unit.is_empty() {
        return Err(pointed(text, digits, &format!("{digits} has no unit"), &remedy));
    }
    let per_unit = match measure {
        Measure::Errors => (unit == "%").then_some(0.01),
        _ => TIMES.iter().find(|(name, _)| *name == unit).map(|(_, each)| *each),
    };
    let Some(per_unit) = per_unit else {
        let names = TIMES.iter().map(|(name, _)| *name).filter(|_| measure != Measure::Errors);
        let why = format!("\"{unit}\" is not its unit{}", hint(unit, names));
        return Err(pointed(text, unit, &why, &remedy));
    };
    let limit = number * per_unit;
    let most = if measure == Measure::Errors { 1.0 } else { 86_400e9 };
    let is_time = measure != Measure::Errors;
    if !limit.is_finite() || limit > most || (is_time && limit <= 0.0) {
        let allowed = if is_time { "above 0 and at most a day" } else { "from 0 to 100%" };
        return Err(pointed(text, digits, &format!("{digits}{unit} is out of range: {allowed}"), &remedy));
    }
    Ok(limit)
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

written!(Objective);

/// How a demand grows, written as `3%/month`; it compounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Growth {
    percent: f64,
    period: &'static (&'static str, f64),
}

/// Names of periods, and how many days each has: a mean month and year of the Gregorian calendar.
const PERIODS: [(&str, f64); 4] =
    [("day", 1.0), ("week", 7.0), ("month", 365.2425 / 12.0), ("year", 365.2425)];

impl Growth {
    /// The natural logarithm of what a demand is multiplied by in a day.
    #[must_use]
    pub fn log_per_day(self) -> f64 {
        (self.percent / 100.0).ln_1p() / self.period.1
    }
}

impl FromStr for Growth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("\"{text}\" is not a growth above 0: write 3%/month, or per day, week or year");
        let (percent, period) = text.trim().split_once('/').ok_or_else(wrong)?;
        let period = PERIODS.iter().find(|(name, _)| *name == period.trim()).ok_or_else(wrong)?;
        let Share(share) = percent.parse().map_err(|_| wrong())?;
        if share >= 1e-6 { Ok(Self { percent: share * 100.0, period }) } else { Err(wrong()) }
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Share(self.percent / 100.0), self.period.0)
    }
}

written!(Growth);

/// A share, written as `3.5%`: at most 1,000 of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is not a share: write 3.5%");
        let digits = text.trim().strip_suffix('%').ok_or_else(wrong)?.trim();
        let is_plain = digits.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
        let percent =
            digits.parse::<f64>().ok().filter(|percent| is_plain && *percent <= 1000.0).ok_or_else(wrong)?;
        // as many digits as are written
        Ok(Self((percent * 1e6).round() / 1e8))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // a hundredth that is no binary fraction is not shown with all its digits
        write!(f, "{}%", (self.0 * 1e8).round() / 1e6)
    }
}

written!(Share);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn objective(text: &str) -> Objective {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn objectives_say_what_is_measured_and_what_is_allowed() {
        let of = |text| {
            let Objective { operation, measure, limit, .. } = objective(text);
            (operation, measure, limit)
        };
        assert_eq!(of("p99<20ms"), (None, Measure::Percentile(99.0), 20e6));
        assert_eq!(
            of(" capture : p99.9 < 500 us "),
            (Some("capture".to_owned()), Measure::Percentile(99.9), 500e3)
        );
        assert_eq!(of("max<=1.5s"), (None, Measure::Longest, 1.5e9));
        assert_eq!(of("errors<0.1%"), (None, Measure::Errors, 0.001));
        assert_eq!(objective("capture : p99 < 5 ms").to_string(), "capture:p99<5ms");
        assert_eq!(objective("capture:p99<=5ms").measured(), "capture:p99");
    }

    #[test]
    fn a_limit_is_allowed_only_where_it_is_said_to_be() {
        assert!(!objective("p99<20ms").is_met_by(20e6) && objective("p99<=20ms").is_met_by(20e6));
        let none = objective("errors<=0%");
        assert!(none.is_met_by(0.0) && !none.is_met_by(1e-9));
        assert_eq!(
            (none.ratio(0.0), none.ratio(0.1), objective("p99<20ms").ratio(30e6)),
            (0.0, f64::INFINITY, 1.5)
        );
    }

    /// The message has the text, and below the part that is wrong a mark.
    #[test]
    fn what_is_wrong_is_pointed_at() {
        for (text, part, why) in [
            ("p99<20mz", "mz", "did you mean"),
            ("p99<20", "20", "no unit"),
            ("p99<20%", "%", "a time"),
            ("errors<5ms", "ms", "a share"),
            ("error<5%", "error", "did you mean \"errors\"?"),
            ("capture:p9x<5ms", "p9x", "p99"),
            ("p100<5ms", "p100", "is not measured"),
            ("p-5<5ms", "p-5", "is not measured"),
            ("p99>20ms", ">", "stays below"),
            ("p99<-20ms", "-20ms", "not a number"),
            ("p99<twenty", "twenty", "not a number"),
            ("p99<0ms", "0", "above 0"),
            ("errors<0%", "0%", "errors<=0%"),
            ("errors<101%", "101", "100%"),
            ("p99<1e9s", "e9s", "unit"),
            ("p99", "", "needs a limit"),
            (":p99<5ms", "p99", "no operation"),
        ] {
            let said = text.parse::<Objective>().unwrap_err();
            let lines: Vec<&str> = said.lines().collect();
            let [first, shown, marks, remedy] = lines[..] else { panic!("{said}") };
            assert!(said.contains(why), "{text}: {said}");
            assert!(!first.is_empty() && remedy.starts_with("  remedy: "), "{said}");
            assert_eq!(shown.trim(), text);
            let at = marks.find('^').unwrap() - 2;
            assert_eq!(&text[at..(at + part.len()).min(text.len())], part, "{said}");
            assert_eq!(marks.trim().len(), part.len().max(1), "{said}");
        }
    }

    #[test]
    fn growth_compounds() {
        let of = |text: &str| text.parse::<Growth>().unwrap();
        let year = of("100%/year").log_per_day() * 365.2425;
        assert!((year.exp() - 2.0).abs() < 1e-9);
        let months = of("3%/month").log_per_day() * 365.2425;
        assert!((months.exp() - 1.03_f64.powi(12)).abs() < 1e-9);
        for text in ["3%", "3/month", "0%/month", "0.00001%/day", "-3%/month", "3%/fortnight", "2000%/day"] {
            assert!(text.parse::<Growth>().is_err(), "{text}");
        }
        for text in ["3%/month", "0.5%/day", "33.3%/year"] {
            assert_eq!(of(text).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn what_was_read_is_read_again(percent in 0.0001..99.9_f64, limit in 0.001..5000.0_f64) {
            let text = format!("p{percent}<{limit}ms");
            let read = objective(&text);
            prop_assert_eq!(&objective(&read.to_string()), &read);
        }

        #[test]
        fn nothing_that_is_written_is_a_panic(text in "\\PC{0,20}|[a-z]{0,3}:?p?[0-9.]{0,4}[<>=]{0,2}[0-9.]{0,4}[µa-z% ]{0,3}") {
            let _ = (text.parse::<Objective>(), text.parse::<Growth>(), text.parse::<Share>());
        }
    }
}
