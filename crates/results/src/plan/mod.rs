//! The plan of a run: a grid of cells, and how each of them is driven.

mod options;
mod typed;

use std::{collections::BTreeMap, time::Duration};

use acidtest_model::{
    Bytes, Commands, Consistency, Durability, Encryption, Faults, Growth, Lock, Objective, PerSecond,
    Promotion, Reads, Replication, Route, Share, Span, words,
};
use acidtest_workloads::Values;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::options::{is_usual, usual};
pub use self::{
    options::{Group, InSearch, OPTIONS, PlanOption, conditions, option_of},
    typed::{LONGEST_RANGE, Takes, no_group, number_range},
};

/// The spacing of an open loop's arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ArrivalKind {
    /// At equal intervals.
    Constant,
    /// At random intervals, as independent users would come.
    #[default]
    Poisson,
}

impl ArrivalKind {
    pub const ALL: [Self; 2] = [Self::Constant, Self::Poisson];

    /// The word that names it on the command line, in plans and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Poisson => "poisson",
        }
    }

    /// What it means, for the help.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Constant => "Evenly spaced",
            Self::Poisson => "At random, as from independent users",
        }
    }
}

words!(ArrivalKind, "spacing of arrivals");

/// How a client goes on after an operation was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RefusedKind {
    /// The refusal counts as the operation's outcome; it is not tried again.
    #[default]
    Count,
    /// Waits 5 ms and tries again, as the inventory study did.
    Retry,
}

/// The stores that can keep hard locks for others.
pub const LOCK_SERVICES: [&str; 2] = ["redis", "postgres"];

/// Most cells of a run; it is bounded because cells are compared with each other.
pub const CELLS: usize = 10_000;

/// Most trials of a cell.
pub const TRIALS: u32 = 10_000;

/// The plan of a run: a grid of cells, each driven alike for a number of trials. Every list is an axis of the grid:
/// stores, locks, durability, TLS, faults, clients, rates, and each parameter of the workload that has a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The workload's name, as `acidtest workloads` lists it.
    pub workload: String,
    /// Names of stores, to be started privately, or addresses, without passwords.
    #[serde(default = "usual::stores")]
    pub stores: Vec<String>,
    /// Lock modes, an axis of the grid.
    #[serde(default = "usual::locks")]
    pub locks: Vec<Lock>,
    /// Durability levels that private servers are set to; a user's own server keeps its settings.
    #[serde(default = "usual::durability")]
    pub durability: Vec<Durability>,
    /// Whether the connections to private servers are encrypted by TLS, an axis of the grid: `off`, `on`; to a user's own
    /// server they are if its address says so.
    #[serde(default = "usual::tls", skip_serializing_if = "is_usual::tls")]
    pub tls: Vec<Encryption>,
    /// Numbers of nodes of private servers, an axis of the grid: 1 is a single server, 3 a cluster of three.
    #[serde(default = "usual::nodes", skip_serializing_if = "is_usual::nodes")]
    pub nodes: Vec<u32>,
    /// Replication levels of clusters, an axis of the grid: `async`, `semi`, `quorum`, `all`; a single server has `none`.
    #[serde(default = "usual::replication", skip_serializing_if = "is_usual::replication")]
    pub replication: Vec<Replication>,
    /// Which members of clusters answer reads, an axis of the grid: `leader`, `replica`, `any`.
    #[serde(default = "usual::reads", skip_serializing_if = "is_usual::reads")]
    pub reads: Vec<Reads>,
    /// Which of the members that answer reads a client asks, an axis of the grid: `pinned`, `spread`.
    #[serde(default = "usual::route", skip_serializing_if = "is_usual::route")]
    pub route: Vec<Route>,
    /// What reads at replicas are promised to see, an axis of the grid: `eventual`, `strong`.
    #[serde(default = "usual::consistency", skip_serializing_if = "is_usual::consistency")]
    pub consistency: Vec<Consistency>,
    /// Which replica is promoted when the leader is lost, by acidtest as a cluster's operator.
    #[serde(default, skip_serializing_if = "is_usual::promote")]
    pub promote: Promotion,
    /// Faults that are brought about in each trial, an axis of the grid: `none`, `kill@3s`, `kill*5`,
    /// `kill@3s+pause@6s:1s` and the like; empty for none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Faults>,
    /// Commands for a shell that bring faults about on the user's own server: `kill`, `stop`, `start`, `pause` and
    /// `resume`.
    #[serde(default, skip_serializing_if = "Commands::is_empty")]
    pub commands: Commands,
    /// Numbers of clients, an axis of the grid.
    #[serde(default = "usual::clients")]
    pub clients: Vec<u32>,
    /// Number of trials of each cell; trials of different cells are interleaved.
    #[serde(default = "usual::trials")]
    pub trials: u32,
    /// Length of the measured part; without effect if `ops` is given.
    #[serde(default = "usual::duration")]
    pub duration: Span,
    /// Length of the measured part as a number of operations over all clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ops: Option<u64>,
    /// Length of the warm-up: driven but not recorded, before the measured part.
    #[serde(default = "usual::warmup")]
    pub warmup: Span,
    /// Offered operations a second over all clients, in an open loop; empty for a closed loop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<f64>,
    /// The spacing of an open loop's arrivals.
    #[serde(default)]
    pub arrivals: ArrivalKind,
    /// Longest time of an operation with all its attempts; one that is still in flight then has the outcome unknown.
    #[serde(default = "usual::timeout")]
    pub timeout: Span,
    /// Longest time that opening a connection takes, with its handshake of TLS and its login.
    #[serde(default = "usual::connect_timeout", skip_serializing_if = "is_usual::connect_timeout")]
    pub connect_timeout: Span,
    /// Most attempts of an operation after a conflict.
    #[serde(default = "usual::max_retries")]
    pub max_retries: u32,
    /// How a client goes on after an operation was refused, which follows from `trace`: it tries again where a sequence is
    /// replayed, and only there, as clients that wait for items drawn at random may all come to wait.
    #[serde(default)]
    pub on_refused: RefusedKind,
    /// The share of the time in which each client works, above 0 to 1; in between it rests, in a closed loop.
    #[serde(default = "usual::duty", skip_serializing_if = "is_usual::duty")]
    pub duty: f64,
    /// Number of operations of a generated sequence to replay, whose every capture succeeds in order; none to draw at
    /// random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<u64>,
    /// Number of threads that drive the clients. If none is given: one for each core, or fewer in a closed loop with many clients
    /// on the store's own machine. A store that holds its client's thread has one for each client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Number of processes over which the clients are spread; none for acidtest's own process, or for two where a
    /// fault stops one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// Seed of every random number of the run.
    #[serde(default = "usual::seed")]
    pub seed: u64,
    /// Name of acidtest's own schema, database or prefix in the store.
    #[serde(default = "usual::namespace")]
    pub namespace: String,
    /// Whether to replace the namespace if it is there already.
    #[serde(default)]
    pub replace: bool,
    /// Whether to leave the namespace in the store at the end.
    #[serde(default)]
    pub keep: bool,
    /// The server that keeps hard locks for a store without locks of its own: `redis` or `postgres`, started
    /// privately, or an address.
    #[serde(default = "usual::lock_service")]
    pub lock_service: String,
    /// An amount of memory or disk: the report says how many rows fit into it, where the workload's table grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fits: Option<Bytes>,
    /// Rows that come in a second, against which the report holds the rows that fit; none for the demand of the
    /// workload's study. Of a search: operations that come in a second, against which its capacity is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demand: Option<PerSecond>,
    /// A search for the capacity of each cell, whose rates are chosen as it goes on; each probe is measured for
    /// `duration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityPlan>,
    /// Whether to leave out cells that a store cannot do, instead of refusing the plan.
    #[serde(default)]
    pub skip_unsupported: bool,
    /// The workload's parameters, by name: a value, or a list of values as an axis. A parameter that is not given has
    /// its default.
    #[serde(default)]
    pub parameters: BTreeMap<String, serde_json::Value>,
}

/// A search for a capacity: the rate at which 95 % of fresh probes meet every objective, and the audit holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CapacityPlan {
    /// The objectives: `p99<20ms`, `errors<0.1%`, `capture:p99<5ms`.
    #[serde(default = "usual::slo")]
    pub slo: Vec<Objective>,
    /// Most time that the search on a cell takes: its trials with the loading of their data, warm-up and audit.
    #[serde(default = "usual::budget")]
    pub budget: Span,
    /// Most probes of a search, whatever they take.
    #[serde(default = "usual::probes")]
    pub probes: u32,
    /// Whether a probe is measured only for as long as its objectives need to be judged, at least 5 s and at most `duration`;
    /// otherwise each is measured for `duration`.
    #[serde(default)]
    pub adaptive: bool,
    /// How near the even odds are to be before a rate is confirmed: half of their 95 % interval, as a share of the rate.
    #[serde(default = "usual::within")]
    pub within: Share,
    /// How the demand grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<Growth>,
    /// Whether the machine is always shared with other programs: what they use is then no reason not to judge a probe.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared_machine: bool,
}

impl Default for CapacityPlan {
    fn default() -> Self {
        Self {
            slo: usual::slo(),
            budget: usual::budget(),
            probes: usual::probes(),
            adaptive: true,
            within: usual::within(),
            growth: usual::growth(),
            shared_machine: usual::shared_machine(),
        }
    }
}

impl CapacityPlan {
    /// Length of the measured part of a probe, at most, if none is asked for.
    pub const HOLD: Span = Span(Duration::from_secs(30));

    /// Length of the measured part of a probe that needs no longer one.
    pub const SHORTEST: Duration = Duration::from_secs(5);

    /// Length of the measured part of the trial in a closed loop that a search begins with, at most.
    pub const CLOSED_LOOP: Duration = Duration::from_secs(5);
}

impl Plan {
    /// Makes it that of a search for a capacity. If it is said for how long a probe is measured, each is measured for that;
    /// otherwise each is for as long as its objectives need, and [`CapacityPlan::HOLD`] at most.
    pub fn search(&mut self, duration_is_said: bool) {
        self.capacity.get_or_insert_default().adaptive = !duration_is_said;
        if !duration_is_said {
            self.duration = CapacityPlan::HOLD;
        }
    }

    /// The number of processes of their own that drive the clients; none if acidtest's own process does. All cells
    /// have as many, so that their figures can be compared.
    #[must_use]
    pub fn client_processes(&self) -> Option<u32> {
        match self.processes {
            Some(processes) => Some(processes).filter(|processes| *processes > 1),
            None => self.faults.iter().any(Faults::stall).then_some(2),
        }
    }

    /// The number of cells that its lists make at most; `None` if that is too large to count.
    #[must_use]
    pub fn most_cells(&self) -> Option<usize> {
        let lists =
            OPTIONS.iter().filter(|option| option.is_axis()).map(|option| option.typed(self).len().max(1));
        let values = self.parameters.values().map(|value| value.as_array().map_or(1, Vec::len));
        lists.chain(values).try_fold(1, usize::checked_mul)
    }

    /// Every combination of the parameters' values; the last named parameter varies fastest.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_measures_for_as_long_as_is_said_or_needed() {
        let searched = |duration_is_said| {
            let mut plan = Plan { duration: Span(Duration::from_secs(7)), ..Plan::of("inventory") };
            plan.search(duration_is_said);
            (plan.duration.to_string(), plan.capacity.unwrap().adaptive)
        };
        assert_eq!(searched(true), ("7s".to_owned(), false));
        assert_eq!(searched(false), ("30s".to_owned(), true));
    }

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
}
