//! Conditions under which a comparison fails: a gate for continuous integration.
//!
//! A condition is on the ratio B / A. By default it is met only where the 95 % interval lies beyond the bound as a
//! whole, so that a gate does not flap on noise: a change whose true ratio is the bound itself meets it in 2.5 % of
//! comparisons, one that costs nothing far more rarely. The price: with few or noisy trials a real loss may stay
//! unshown; ask for more trials then. Judged by the estimate, a change whose true ratio is the bound meets it every
//! other time.
//!
//! A condition that cannot be judged fails too: a gate that stays open whenever data is missing protects nothing.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::{Figure, Pair};

/// A condition on a figure's ratio B / A, as the command line takes it: `throughput<0.95`, `capture:p99>1.2`.
#[derive(Clone, Debug, PartialEq, JsonSchema)]
#[schemars(with = "String")]
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
        if operation.is_some() && figure.is_of_all() {
            return Err(wrong("CPU and errors are known of all operations together only"));
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

/// Which value of a ratio must lie beyond a condition's bound for the condition to be met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Judge {
    /// The whole 95 % interval, so that noise alone fails no comparison.
    #[default]
    Interval,
    /// The estimate alone, which noise can push beyond the bound.
    Estimate,
}

/// A condition as applied to one pair of cells, with its ruling.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Judgement {
    /// The condition, as given on the command line.
    pub condition: Condition,
    /// Whether the interval or the estimate was held against the bound.
    pub by: Judge,
    /// The cell of B, named by the dimensions that vary.
    pub cell: String,
    /// Whether the condition passed, failed, or could not be judged.
    pub ruling: Ruling,
    /// The ratio B / A with its 95 % interval; none where the pair has none.
    pub ratio: Option<crate::Ratio>,
}

/// The result of judging a condition on a pair of cells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ruling {
    /// The ratio is not shown to lie beyond the bound.
    Passed,
    /// The ratio lies beyond the bound: the comparison fails.
    Failed,
    /// It could not be judged, for the reason given here: the comparison fails by that too.
    NotJudged(String),
}

impl Ruling {
    /// Whether the comparison fails by it: so does a condition that could not be judged.
    #[must_use]
    pub fn fails(&self) -> bool {
        *self != Self::Passed
    }
}

pub(super) fn judge(pairs: &[Pair], conditions: &[Condition], by: Judge) -> Vec<Judgement> {
    let of_pair = |pair: &Pair| {
        let judged = |condition: &Condition| {
            let (ruling, ratio) = ruling(pair, condition, by);
            Judgement { condition: condition.clone(), by, cell: pair.b.clone(), ruling, ratio }
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
    if condition.figure == Figure::Errors && figure.is_none() {
        // a figure of which neither side has any
        return (if condition.above { Ruling::Passed } else { not("neither A nor B had errors") }, None);
    }
    if condition.figure == Figure::Errors && figure.is_some_and(|figure| figure.ratio.is_none()) {
        return (not("A or B had no errors in some trial, so that there is no ratio of them"), None);
    }
    let Some(ratio) = figure.and_then(|figure| figure.ratio) else {
        return (not("A or B has no such figure, or not in every trial"), None);
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
