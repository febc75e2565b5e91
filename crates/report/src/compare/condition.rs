//! Conditions under which a comparison fails: a gate for continuous integration.
//!
//! A condition is on the ratio B / A. By default it is met only where the 95 % interval lies beyond the bound as a
//! whole, so that a gate does not flap on noise: a change whose true ratio is the bound itself meets it in 2.5 % of
//! comparisons, one that costs nothing far more rarely. The price: with few or noisy trials a real loss may stay
//! unshown; ask for more trials then. Judged by the estimate, a change whose true ratio is the bound meets it every
//! other time.
//!
//! What cannot be judged fails: a gate that never closes is none.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};

use super::{Figure, Pair};

/// A condition: `throughput<0.95`, `capture:p99>1.2`.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    operation: Option<String>,
    figure: Figure,
    above: bool,
    bound: f64,
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!(
                "\"{text}\": {why}\n  write [OPERATION:]FIGURE<BOUND or >BOUND, such as throughput<0.95 or capture:p99>1.2"
            )
        };
        let place = text.find(['<', '>']).ok_or_else(|| wrong("no < or > in it"))?;
        let (what, bound) = (text[..place].trim(), text[place + 1..].trim());
        let (operation, figure) = match what.rsplit_once(':') {
            Some((operation, figure)) if !operation.trim().is_empty() => (Some(operation.trim()), figure),
            Some(_) => return Err(wrong("no operation before the colon")),
            None => (None, what),
        };
        let figure: Figure = figure.trim().parse().map_err(|error: String| wrong(&error))?;
        let bound = bound.parse::<f64>().ok().filter(|bound| bound.is_finite() && *bound > 0.0);
        let bound = bound.ok_or_else(|| wrong("the bound must be a number above 0"))?;
        if operation.is_some() && figure.is_cost() {
            return Err(wrong("CPU is known of all operations together only"));
        }
        Ok(Self {
            operation: operation.map(str::to_owned),
            figure,
            above: text[place..].starts_with('>'),
            bound,
        })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operation) = &self.operation {
            write!(f, "{operation}:")?;
        }
        write!(f, "{}{}{}", self.figure, if self.above { '>' } else { '<' }, self.bound)
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// By what a condition is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Judge {
    /// The whole interval must lie beyond the bound.
    #[default]
    Interval,
    /// The estimate must.
    Estimate,
}

/// A condition on a pair, judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The condition.
    pub condition: Condition,
    /// By what it was judged.
    pub by: Judge,
    /// The cell of B, by what varies.
    pub cell: String,
    /// How it turned out.
    pub ruling: Ruling,
    /// The ratio, with its interval.
    pub ratio: Option<crate::Ratio>,
}

/// How a condition turned out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ruling {
    /// The ratio is not shown to lie beyond the bound.
    Passed,
    /// It lies beyond the bound.
    Failed,
    /// It could not be judged: that fails too.
    NotJudged(String),
}

impl Ruling {
    /// Whether the comparison fails by it.
    #[must_use]
    pub fn fails(&self) -> bool {
        *self != Self::Passed
    }
}

pub(super) fn judge(pairs: &[Pair], conditions: &[Condition], by: Judge) -> Vec<Judged> {
    let of_pair = |pair: &Pair| {
        let judged = |condition: &Condition| {
            let (ruling, ratio) = ruling(pair, condition, by);
            Judged { condition: condition.clone(), by, cell: pair.b.clone(), ruling, ratio }
        };
        conditions.iter().map(judged).collect::<Vec<_>>()
    };
    pairs.iter().flat_map(of_pair).collect()
}

fn ruling(pair: &Pair, condition: &Condition, by: Judge) -> (Ruling, Option<crate::Ratio>) {
    let not = |why: &str| Ruling::NotJudged(why.to_owned());
    if let Some(void) = &pair.void {
        return (not(&format!("void: {void}")), None);
    }
    let figure = pair
        .figures
        .iter()
        .find(|each| each.operation == condition.operation && each.figure == condition.figure);
    let Some(ratio) = figure.and_then(|figure| figure.ratio) else {
        return (not("A or B has no such figure"), None);
    };
    let beyond = match by {
        Judge::Estimate => Some(if condition.above {
            ratio.estimate > condition.bound
        } else {
            ratio.estimate < condition.bound
        }),
        Judge::Interval => ratio
            .interval
            .map(|(low, high)| if condition.above { low > condition.bound } else { high < condition.bound }),
    };
    let ruling = match beyond {
        None => not("one trial has no interval: run more with --trials, or judge the estimate"),
        Some(true) => Ruling::Failed,
        Some(false) => Ruling::Passed,
    };
    (ruling, Some(ratio))
}
