//! What a run does: a grid of cells and how each is driven.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use acidtest_model::{Durability, Lock};
use acidtest_workloads::Values;
use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A length of time, written `10s`, `500ms`, `1m 30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let length = text.parse::<SignedDuration>().ok().and_then(|span| Duration::try_from(span).ok());
        length.map(Self).ok_or_else(|| format!("\"{text}\" is no length of time: write 10s, 500ms or 1m 30s"))
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        span.to_string()
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SignedDuration::try_from(self.0) {
            Ok(span) => write!(f, "{span:#}"),
            Err(_) => write!(f, "{}s", self.0.as_secs()),
        }
    }
}

/// How an open loop's arrivals are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ArrivalKind {
    /// Evenly.
    Constant,
    /// As independent users would come.
    #[default]
    Poisson,
}

/// What a refused operation does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RefusedKind {
    /// The refusal is the answer.
    #[default]
    Count,
    /// Wait 5 ms and try again, as the inventory study did.
    Retry,
}

/// The most cells of a run: they are compared with each other.
pub const CELLS: usize = 10_000;

/// The most trials of a cell.
pub const TRIALS: u32 = 10_000;

/// What a run does: a grid of cells, each driven alike for a number of trials. Every list is an axis of the
/// grid: stores, locks, durability, clients, rates, and each parameter of the workload that has a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The workload's name.
    pub workload: String,
    /// Names of stores, to be started privately, or addresses, without passwords.
    #[serde(default = "defaults::stores")]
    pub stores: Vec<String>,
    /// Lock modes.
    #[serde(default = "defaults::locks")]
    pub locks: Vec<Lock>,
    /// Rungs that private servers are set to; a user's own server keeps its settings.
    #[serde(default = "defaults::durability")]
    pub durability: Vec<Durability>,
    /// Numbers of clients.
    #[serde(default = "defaults::clients")]
    pub clients: Vec<u32>,
    /// Trials of each cell; those of different cells are interleaved.
    #[serde(default = "defaults::trials")]
    pub trials: u32,
    /// Length of the measured part, unless `ops` is given.
    #[serde(default = "defaults::duration")]
    pub duration: Span,
    /// Length of the measured part in operations over all clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ops: Option<u64>,
    /// Driven but not recorded, before the measured part.
    #[serde(default = "defaults::warmup")]
    pub warmup: Span,
    /// Operations a second over all clients, in an open loop; a closed loop if none is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<f64>,
    /// How an open loop's arrivals are spaced.
    #[serde(default)]
    pub arrivals: ArrivalKind,
    /// An operation that takes longer, with all its attempts, ends: unknown if it is in flight.
    #[serde(default = "defaults::timeout")]
    pub timeout: Span,
    /// How often an operation is tried again after a conflict.
    #[serde(default = "defaults::max_retries")]
    pub max_retries: u32,
    /// What a refused operation does. It is tried again where a sequence is replayed, and only there: clients that wait
    /// for what is drawn at random may all come to wait.
    #[serde(default)]
    pub on_refused: RefusedKind,
    /// Replay a generated sequence of this many operations, whose every capture succeeds in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<u64>,
    /// Threads that drive the clients, one a core if none is given; a store that holds the thread of its client
    /// has one for each client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Seeds every random number of the run.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
    /// acidtest's own schema, database or prefix.
    #[serde(default = "defaults::namespace")]
    pub namespace: String,
    /// Replace the namespace if it is there already.
    #[serde(default)]
    pub replace: bool,
    /// Leave the namespace there at the end.
    #[serde(default)]
    pub keep: bool,
    /// Where a store without locks of its own has them kept: `redis` or `postgres`, started privately, or an
    /// address.
    #[serde(default = "defaults::lock_service")]
    pub lock_service: String,
    /// Leave out what a store cannot do, instead of refusing the plan.
    #[serde(default)]
    pub skip_unsupported: bool,
    /// The workload's parameters, by name: a value, or a list of values as an axis. What is not given has its
    /// default.
    #[serde(default)]
    pub parameters: BTreeMap<String, serde_json::Value>,
}

impl Plan {
    /// The plan of a workload with every default.
    #[must_use]
    pub fn of(workload: &str) -> Self {
        Self {
            workload: workload.to_owned(),
            stores: defaults::stores(),
            locks: defaults::locks(),
            durability: defaults::durability(),
            clients: defaults::clients(),
            trials: defaults::trials(),
            duration: defaults::duration(),
            ops: None,
            warmup: defaults::warmup(),
            rates: Vec::new(),
            arrivals: ArrivalKind::default(),
            timeout: defaults::timeout(),
            max_retries: defaults::max_retries(),
            on_refused: RefusedKind::default(),
            trace: None,
            threads: None,
            seed: defaults::seed(),
            namespace: defaults::namespace(),
            replace: false,
            keep: false,
            lock_service: defaults::lock_service(),
            skip_unsupported: false,
            parameters: BTreeMap::new(),
        }
    }

    /// How many cells its lists make at most; `None` of more than can be counted.
    #[must_use]
    pub fn most_cells(&self) -> Option<usize> {
        let Self { stores, locks, durability, clients, rates, parameters, .. } = self;
        let lists = [stores.len(), locks.len(), durability.len(), clients.len(), rates.len().max(1)];
        let values = parameters.values().map(|value| value.as_array().map_or(1, Vec::len));
        lists.into_iter().chain(values).try_fold(1, usize::checked_mul)
    }

    /// Every combination of the parameters' values, the last named varying fastest.
    #[must_use]
    pub fn combinations(&self) -> Vec<Values> {
        let mut all = vec![Values::new()];
        for (name, value) in &self.parameters {
            let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            all = all
                .iter()
                .flat_map(|values_so_far| {
                    values.iter().map(|value| {
                        let mut values = values_so_far.clone();
                        values.insert(name.clone(), value.clone());
                        values
                    })
                })
                .collect();
        }
        all
    }
}

/// The defaults of the command line and of plan files.
mod defaults {
    use std::time::Duration;

    use acidtest_model::{Durability, Lock};

    use super::Span;

    pub(super) fn stores() -> Vec<String> {
        vec!["sqlite".to_owned()]
    }

    pub(super) fn locks() -> Vec<Lock> {
        vec![Lock::Native]
    }

    pub(super) fn durability() -> Vec<Durability> {
        vec![Durability::Disk]
    }

    /// The inventory study's.
    pub(super) fn clients() -> Vec<u32> {
        vec![16]
    }

    pub(super) fn trials() -> u32 {
        1
    }

    pub(super) fn duration() -> Span {
        Span(Duration::from_secs(10))
    }

    pub(super) fn warmup() -> Span {
        Span(Duration::from_secs(2))
    }

    pub(super) fn timeout() -> Span {
        Span(Duration::from_secs(10))
    }

    pub(super) fn max_retries() -> u32 {
        100
    }

    pub(super) fn seed() -> u64 {
        42
    }

    pub(super) fn lock_service() -> String {
        "redis".to_owned()
    }

    pub(super) fn namespace() -> String {
        "acidtest".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_parameters_are_axes() {
        let parameters = BTreeMap::from([
            ("items".to_owned(), serde_json::json!([10, 20])),
            ("skew".to_owned(), serde_json::json!("uniform")),
            ("units_max".to_owned(), serde_json::json!([1, 2, 3])),
        ]);
        let plan = Plan { parameters, ..Plan::of("inventory") };
        let shown: Vec<String> = plan
            .combinations()
            .iter()
            .map(|values| format!("{}/{}", values["items"], values["units_max"]))
            .collect();
        assert_eq!(shown, ["10/1", "10/2", "10/3", "20/1", "20/2", "20/3"]);
        assert_eq!(Plan::of("inventory").combinations(), [Values::new()]);
        assert_eq!((plan.most_cells(), Plan::of("inventory").most_cells()), (Some(6), Some(1)));
        let plan = Plan { rates: vec![1.0; 7], clients: vec![1; 3], ..plan };
        assert_eq!(plan.most_cells(), Some(6 * 7 * 3));
        let long = |name: u32| (name.to_string(), serde_json::json!(vec![0; 1 << 16]));
        assert_eq!(Plan { parameters: (0..4).map(long).collect(), ..plan }.most_cells(), None);
    }

    #[test]
    fn spans_read_back_as_written() {
        for text in ["10s", "500ms", "1m 30s", "2h"] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.to_string(), text);
            assert_eq!(span.to_string().parse::<Span>(), Ok(span));
        }
        for text in ["", "10", "-3s", "soon"] {
            assert!(text.parse::<Span>().unwrap_err().contains("write 10s"), "{text}");
        }
    }
}
