//! The format of a result file.

use std::collections::{BTreeMap, BTreeSet};

use acidtest_engine::{ArrivalCounts, Measurement, Outcome, Second, SecondCounts, Stop};
use acidtest_model::{
    Consistency, Disruption, Durability, EffectiveReplication, EffectiveSettings, Encryption, Faults, Lock,
    MemberId, Reads, Replication, Role, Route,
};
use acidtest_observe::{Machine, Resources};
use acidtest_workloads::{Audit, Preparation, Staleness, TableSize, Values, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Capacity, LatencyFigures, Mean, Plan, Price, Steadiness, UnreadableHistogram, dimensions::NOT_THERE,
    latency::is_enough, steadiness::thinned, total,
};

/// The version of the result format: raised when a reader of the last one would misread the next. No other one is read.
pub const FORMAT: u32 = 3;

/// The JSON Schema of [`RunResult`], made from its types.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(RunResult).to_value()
}

/// The result of a run: every figure, and the conditions that it was measured under.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// The version of the result format that the file has.
    pub format: u32,
    /// The run's id: when it began, and its process.
    pub run: String,
    /// The version of acidtest that made the run.
    pub acidtest: String,
    /// When the run began: RFC 3339, UTC.
    pub started: String,
    /// When the run ended: RFC 3339, UTC.
    pub finished: String,
    /// Whether the run was interrupted: then some cells or trials are missing.
    pub interrupted: bool,
    /// The plan that was asked for, seed included; passwords are left out.
    pub plan: Plan,
    /// The machine that the clients ran on.
    pub machine: Machine,
    /// The bench's own cost for an operation.
    pub harness: Harness,
    /// The cells of the grid, with their trials.
    pub cells: Vec<CellResult>,
    /// The combinations that were asked for and left out because the store cannot do them, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// The bench's own cost, measured at the start of the run on a store that does nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Harness {
    /// CPU time for an operation on one core, in nanoseconds: to draw, time, record and account for it. The median of
    /// the less disturbed half of several windows; 0 where there were too few for a figure.
    pub nanoseconds_per_operation: f64,
    /// Number of operations that the cost was measured on.
    pub operations: u64,
    /// Number of cores that the clients could use.
    pub cores: u32,
    /// The operation that the cost is of, in the workload's words.
    pub unit: String,
    /// The spread of the cost over the windows; none where there were too few operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Windows>,
}

/// The spread of a figure that was measured in several windows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Windows {
    /// Number of windows.
    pub count: u64,
    /// The lowest cost of a window, in nanoseconds for each operation.
    pub least_nanoseconds: f64,
    /// The highest cost of a window, in nanoseconds for each operation.
    pub most_nanoseconds: f64,
}

/// One cell of the grid: a combination of values, its trials and their summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellResult {
    /// The kind of store, as `acidtest stores` names it.
    pub store: String,
    /// The store's name as its makers write it.
    pub title: String,
    /// The address of the user's own server, without a password; none for a private server.
    pub address: Option<String>,
    /// Whether the store runs inside the client's own process, so that the client's CPU time is also the store's.
    pub embedded: bool,
    /// The lock mode: how operations that read, decide and write are protected.
    pub lock: Lock,
    /// The statements or settings by which the store applies the lock mode.
    pub lock_how: String,
    /// Nanoseconds that a message to the host of an embedded store and its answer take, the median of 1,000: the store
    /// was kept in a process of its own, so that it could be killed. None for a store without a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_round_trip_ns: Option<f64>,
    /// Whether the workload decides anything from what it read, so that there is something to protect by a lock.
    pub decides: bool,
    /// Names of the guarantees that the cell does without: a finding that only they prevent breaks no promise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
    /// The durability level asked for; none on a user's own server, which keeps its settings.
    pub durability_asked: Option<Durability>,
    /// Whether the connections are encrypted by TLS: as asked for, or, to a user's own server, as its address says.
    #[serde(default, skip_serializing_if = "Encryption::is_off")]
    pub tls: Encryption,
    /// How many nodes of the store there are; of a user's own server, of which nobody knows, 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub nodes: u32,
    /// The replication level of a cluster.
    #[serde(default, skip_serializing_if = "Replication::is_none")]
    pub replication: Replication,
    /// What the leader's settings were found to amount to; none for a single server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication_read: Option<EffectiveReplication>,
    /// Which of its members answer reads; the leader alone where nothing is said.
    #[serde(default, skip_serializing_if = "Reads::is_leader")]
    pub reads: Reads,
    /// Which of those members a client asks; of no meaning where the leader alone answers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub route: Route,
    /// What reads at replicas were asked to be promised; of no meaning where the leader alone answers. `replication_read` has what the
    /// settings amount to.
    #[serde(default, skip_serializing_if = "is_default")]
    pub consistency: Consistency,
    /// The faults that each of its trials has.
    #[serde(default, skip_serializing_if = "Faults::is_none")]
    pub faults: Faults,
    /// Number of clients.
    pub clients: u32,
    /// Number of threads that drove its clients, over all processes; none before its first trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Number of clients that the rate is for, where it is not for all: the others take work as it comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<u32>,
    /// Offered operations a second; none in a closed loop.
    pub rate: Option<f64>,
    /// Every parameter of the workload, with its value.
    pub parameters: Values,
    /// A line on the workload with these parameters.
    pub headline: String,
    /// The settings that the server reported; none if it was never reached.
    pub effective: Option<EffectiveSettings>,
    /// The cell's trials, in the order of their rounds. One that broke a promise before it was interrupted stands before the one that
    /// was made in its place.
    pub trials: Vec<TrialResult>,
    /// Throughput over the trials: acknowledged operations a second. Computed when the run ends.
    pub mean: Option<Mean>,
    /// The number of independent seconds that the trials' seconds are worth, and their drift; none where the measured
    /// part is too short for that. Computed when the run ends.
    pub steadiness: Option<Steadiness>,
    /// What a search found on the cell; none where there was none. Computed after each of its probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// The prices of the cell's guarantees, where the grid has the same cell without them. Computed when the run
    /// ends. Those of a search are ratios of capacities.
    pub prices: Vec<Price>,
    /// The reason why trials are missing; none if all were run.
    pub error: Option<String>,
}

/// The round and the session of a trial. Trials of different cells that have both in common ran shortly after one
/// another and are compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoundId {
    round: u32,
    session: u32,
}

/// One trial of a cell: its figures, its audit, and the resources that were used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialResult {
    /// The round of the run that the trial belongs to, from 1.
    pub round: u32,
    /// The session of the run, from 1: each `--resume` begins another, perhaps hours later.
    pub session: u32,
    /// Offered operations a second of a search's probe; none where the trial has the rate of its cell, and in a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// The origin of the trial's data.
    pub data: DataFigures,
    /// How long the trial took in all, with what came before and after the measured part, in seconds.
    pub took_seconds: f64,
    /// Length of the measured part, in seconds.
    pub seconds: f64,
    /// Seconds of the measured part in which somebody was served: without the longest outage of each fault and of each
    /// restart that nobody asked for; on a schedule all of them. None where there were no such events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_seconds: Option<f64>,
    /// Acknowledged operations a second of the whole measured part, outages included, of all kinds that `counted` names;
    /// each operation of a transaction counts.
    pub throughput: f64,
    /// The kinds of operation that throughput counts; empty if it counts all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<String>,
    /// Figures for each kind of operation that was tried.
    pub operations: Vec<OperationFigures>,
    /// Figures for each second of the measured part.
    pub series: Vec<SecondFigures>,
    /// Times that are no operation's own, such as a message's from its publishing to its being taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<SpanFigures>,
    /// A quantity that rose and fell during the trial, such as messages in the queue; none where the workload has
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gauge: Option<GaugeFigures>,
    /// How often the store said that it limited its clients, by the reason in its own words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, u64>,
    /// How large the table was at the end, as the store says; none where the workload does not ask, or the store does
    /// not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<TableSize>,
    /// How old its reads were; none where only the leader answers them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staleness: Option<Staleness>,
    /// Number of operations that the schedule asked for, and how many of them were started and completed.
    pub arrived: ArrivalFigures,
    /// Number of connections that were opened in place of retired ones.
    pub reconnects: u64,
    /// How long opening a connection took before the clients came, login included, in nanoseconds: the median of 15, one after
    /// the other. None for a store without connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_ns: Option<f64>,
    /// How often each fault occurred, by the store's words.
    pub faults: BTreeMap<String, u64>,
    /// The audit: the ledger held against the final state.
    pub audit: Audit,
    /// Facts that the workload found besides times and verdict, such as query plans and first executions.
    #[serde(default, skip_serializing_if = "Preparation::is_empty")]
    pub remarks: Preparation,
    /// CPU time, memory and I/O of client, server and machine.
    pub resources: Resources,
    /// The reason why the trial ended before its time; none if it did not.
    pub stopped: Option<StopFigures>,
    /// The faults that were brought about, in the order in which they began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injections: Vec<InjectionFigures>,
    /// The lives of servers that nobody asked for, as far as they were noticed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarts: Vec<RestartFigures>,
    /// The last lines of the log of the server that was lost; empty if none was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_log: Vec<String>,
}

/// A member was found in a life that nobody had asked for: it had been started again, or another server had taken its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RestartFigures {
    /// The role of the member.
    pub member: String,
    /// When it was found so, in seconds from the beginning of the measured part; none if that was before or after it.
    pub found_seconds: Option<f64>,
    /// Whether it serves the same data as before; none if it does not say.
    pub same_data: Option<bool>,
    /// How many servers had answered at its address before.
    pub servers: u32,
    /// The longest time in which nobody was served since clients lost their connections by it, up to the next fault or restart:
    /// its beginning; none if clients lost none in the measured part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unserved_from_seconds: Option<f64>,
    /// Its end; none if nobody was served again within the measured part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unserved_until_seconds: Option<f64>,
}

/// Within how many seconds it is seen that somebody is served again.
pub const SEEN: f64 = 0.03;

/// A fault that was brought about in a trial. Times are in seconds from the beginning of the measured part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[allow(clippy::struct_excessive_bools, reason = "each says a thing of its own of what happened")]
pub struct InjectionFigures {
    /// What was done: kill, restart, pause, lose, cut, disconnect or stall.
    pub fault: String,
    /// The member that it was done to: its role, with its number in a cluster (`server-2`), or `clients`.
    pub member: String,
    /// When it was to be done.
    pub due_seconds: f64,
    /// When it was done; none if the trial ended before.
    pub at_seconds: Option<f64>,
    /// When the member was started again, or went on, or the cut was over; none if it never was.
    pub back_seconds: Option<f64>,
    /// When the member first answered after that, or, after a cut, followed the leader again; none if it never did.
    pub answered_seconds: Option<f64>,
    /// How many operations had been acknowledged before it; none if the trial ended before.
    pub acknowledged: Option<u64>,
    /// How many acknowledged messages of a queue had not been consumed when the store's own server was ended: a crash with
    /// none of them says nothing of what the store keeps. None for other workloads and faults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outstanding: Option<u64>,
    /// How many operations ended with their connection since it, up to the next fault: those that it interrupted. None if
    /// there were none because clients talk to another member, in front of it, or it was a gateway with a queue of its own, which
    /// was killed between two requests.
    pub interrupted: Option<u64>,
    /// Whether it was a crash that tested the durability level of the cell: it killed the member whose level that is, after
    /// changes had been acknowledged that no end of its processes had tested before, and interrupted operations.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub crash: bool,
    /// Whether the member was in the same life afterwards, so that the command that was to end it has not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same_life: bool,
    /// Whether another server answered in the member's place afterwards, which need not have all that was acknowledged: no level
    /// was tested by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub another_server: bool,
    /// The longest time in which nobody was served since it, up to the next fault or restart, or that this fell into: its
    /// beginning; none if it was not looked at long enough.
    pub unserved_from_seconds: Option<f64>,
    /// Its end; none if nobody was served again within the measured part.
    pub unserved_until_seconds: Option<f64>,
    /// Whether there was nothing to do it to, because the member was down, or about to stop, already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missed: bool,
    /// Whether the next fault hit the member before it had answered again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overtaken: bool,
    /// Whether the member was killed because it had not stopped in order within 10 s.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// The last acknowledgement before it; none if nothing had been acknowledged since the fault before it, so that
    /// it proves nothing.
    pub last_ok_seconds: Option<f64>,
    /// The first acknowledgement after it within the measured part, as seen every 20 ms; none if there was none.
    pub next_ok_seconds: Option<f64>,
    /// Who took over from the leader of a cluster that it was done to; none if nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotion: Option<PromotionFigures>,
    /// Why nobody could be promoted, although the leader was lost or cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_promoted: Option<String>,
}

/// A replica that was made the leader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PromotionFigures {
    /// The member that was promoted: `server-2`.
    pub member: String,
    /// The rule by which it was chosen: `most-advanced` or `first`.
    pub rule: String,
    /// When it took writes.
    pub at_seconds: f64,
    /// How many bytes of the log each replica was then behind the one that had received most; none for one that did not answer.
    pub behind: BTreeMap<String, Option<u64>>,
}

/// The origin of a trial's data: loaded, or left by an earlier trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DataFigures {
    /// Number of rows that were there when the trial began.
    pub rows: u64,
    /// Time that loading them took, in seconds; none where the data of an earlier trial were taken over.
    pub load_seconds: Option<f64>,
    /// The number of the trial that left the data behind, counted from 1 over the run in the order in which trials
    /// ran; its audit had read all of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_by: Option<u32>,
}

/// Figures of one kind of operation in a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OperationFigures {
    /// The operation's name, such as `capture`.
    pub name: String,
    /// Acknowledged operations a second of the whole measured part, outages included.
    pub ok_per_second: f64,
    /// Number of attempts that lost against another client.
    pub conflicts: u64,
    /// Number of attempts that the store refused.
    pub refusals: u64,
    /// Number of attempts after the first one of an operation.
    pub retries: u64,
    /// Time of acknowledged operations before their last attempt that went to attempts lost against another client,
    /// with the waits after them; in nanoseconds, summed over all clients.
    pub conflict_ns: u64,
    /// The same for attempts that the store refused.
    pub refusal_ns: u64,
    /// Time in which acknowledged operations waited for locks that other clients held, in nanoseconds, summed over
    /// all clients; only where the lock is not the server's own, so that the client waits for it.
    pub lock_wait_ns: u64,
    /// Service time: from sending to the answer, over all attempts, by outcome (ok, refused, conflict, failed,
    /// unknown). Its counts are the operations with that outcome.
    pub service: BTreeMap<String, LatencyFigures>,
    /// Response time: from the intended start to the answer, by outcome; in a closed loop it is equal to `service`
    /// and left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub response: BTreeMap<String, LatencyFigures>,
}

/// Times from one event to another, such as from a message's publishing to its being taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpanFigures {
    /// The span's name, in the workload's words.
    pub name: String,
    /// The distribution of the times.
    pub times: LatencyFigures,
}

/// A quantity that rose and fell during the measured part of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GaugeFigures {
    /// The name of the quantity, in the workload's words.
    pub name: String,
    /// Its value at the beginning of each second.
    pub each_second: Vec<u64>,
}

/// One second of the measured part, or the last part of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecondFigures {
    /// Number of the second, from 0.
    pub second: u64,
    /// Operations that ended in the second: by kind, then by outcome; counts of 0 are left out.
    pub ended: BTreeMap<String, BTreeMap<String, u64>>,
    /// Median service time of acknowledged operations, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile of the same service times, in nanoseconds.
    pub p99_ns: u64,
    /// Longest of the same service times, in nanoseconds.
    pub max_ns: u64,
}

/// Counts of the operations that the schedule asked for, and of those started and completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArrivalFigures {
    /// Operations that were due in the measured part.
    pub offered: u64,
    /// Operations that were sent.
    pub started: u64,
    /// Operations that ended, with any outcome.
    pub completed: u64,
    /// Started operations that were sent after they were due, because every client was busy.
    pub late: u64,
    /// Operations that were due and never started.
    pub dropped: u64,
}

/// The reason why a trial ended before its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StopFigures {
    /// `interrupted`, `no connection`, `server gone`, `defect` or `client process gone`.
    pub reason: String,
    /// The details, in the store's or the system's own words; may be empty.
    pub detail: String,
}

impl StopFigures {
    /// Whether clients gave up the server.
    #[must_use]
    pub fn is_server_gone(&self) -> bool {
        self.reason == "server gone"
    }

    /// Notes that the server answered when the trial was over, although clients had given it up.
    pub fn answers_after_all(&mut self) {
        self.detail += "; the server answered when the trial was over";
    }
}

impl From<Stop> for StopFigures {
    fn from(stop: Stop) -> Self {
        let (reason, detail) = match stop {
            Stop::Interrupted => ("interrupted", String::new()),
            Stop::NoConnection(detail) => ("no connection", detail),
            Stop::ServerGone(detail) => ("server gone", detail),
            Stop::Defect(detail) => ("defect", detail),
            Stop::PartLost(detail) => ("client process gone", detail),
        };
        Self { reason: reason.to_owned(), detail }
    }
}

impl From<ArrivalCounts> for ArrivalFigures {
    fn from(arrived: ArrivalCounts) -> Self {
        let ArrivalCounts { offered, started, completed, late, dropped } = arrived;
        Self { offered, started, completed, late, dropped }
    }
}

/// Facts of a trial that are known besides its measurement.
#[derive(Clone, Debug)]
pub struct TrialFacts {
    /// The round of the run, from 1.
    pub round: u32,
    /// The session of the run, from 1.
    pub session: u32,
    /// Offered operations a second of a search's probe.
    pub rate: Option<f64>,
    /// Names of the operations that throughput counts, each with how many of what it counts an acknowledged one stands
    /// for.
    pub counted: Vec<(&'static str, u32)>,
    /// The origin of the trial's data.
    pub data: DataFigures,
    /// Facts that were found before the trial was driven, such as query plans and first executions.
    pub remarks: Preparation,
}

impl TrialResult {
    /// Makes the trial's entry in a result.
    #[must_use]
    pub fn of(about: TrialFacts, measurement: Measurement, audit: Audit, resources: Resources) -> Self {
        let names: Vec<&str> = measurement.operations.iter().map(|operation| operation.name).collect();
        Self {
            round: about.round,
            session: about.session,
            rate: about.rate,
            data: about.data,
            remarks: about.remarks,
            took_seconds: measurement.window.as_secs_f64(),
            seconds: measurement.window.as_secs_f64(),
            served_seconds: None,
            throughput: measurement
                .operations
                .iter()
                .filter_map(|operation| {
                    let (_, units) = about.counted.iter().find(|(name, _)| *name == operation.name)?;
                    Some(measurement.rate(operation) * f64::from(*units))
                })
                .sum(),
            counted: if about.counted.len() == names.len() {
                Vec::new()
            } else {
                about.counted.iter().map(|(name, _)| (*name).to_owned()).collect()
            },
            spans: measurement
                .spans
                .iter()
                .filter(|span| !span.times.is_empty())
                .map(|span| SpanFigures {
                    name: span.name.to_owned(),
                    times: LatencyFigures::of(&span.times),
                })
                .collect(),
            gauge: None,
            limits: BTreeMap::new(),
            size: None,
            staleness: None,
            operations: measurement
                .operations
                .iter()
                .filter(|operation| operation.was_tried())
                .map(|operation| {
                    let by_outcome = |of: &dyn Fn(&acidtest_engine::Latency) -> Option<LatencyFigures>| {
                        let each = operation.latency.iter();
                        each.filter_map(|(outcome, latency)| Some((outcome.name().to_owned(), of(latency)?)))
                            .collect()
                    };
                    OperationFigures {
                        name: operation.name.to_owned(),
                        ok_per_second: measurement.rate(operation),
                        conflicts: operation.conflicts,
                        refusals: operation.refusals,
                        retries: operation.retries,
                        conflict_ns: operation.conflict_time,
                        refusal_ns: operation.refusal_time,
                        lock_wait_ns: operation.lock_time,
                        service: by_outcome(&|latency| Some(LatencyFigures::of(&latency.service))),
                        response: by_outcome(&|latency| latency.response.as_ref().map(LatencyFigures::of)),
                    }
                })
                .collect(),
            series: measurement.series.iter().map(|second| SecondFigures::of(second, &names)).collect(),
            arrived: measurement.arrived.into(),
            reconnects: measurement.reconnects,
            connect_ns: None,
            faults: measurement.faults,
            audit,
            resources,
            stopped: measurement.stopped.map(StopFigures::from),
            injections: Vec::new(),
            restarts: Vec::new(),
            server_log: Vec::new(),
        }
    }

    /// Whether the user ended the trial early.
    #[must_use]
    pub fn was_interrupted(&self) -> bool {
        self.stopped.as_ref().is_some_and(|stop| stop.reason == "interrupted")
    }

    /// How the trial is told from the cell's others: its round, and whether it was interrupted, as another may have been made of the
    /// same round.
    #[must_use]
    pub fn label(&self) -> String {
        let interrupted = if self.was_interrupted() { ", interrupted" } else { "" };
        format!("{}{interrupted}", self.round)
    }

    /// Operations that ended in a second, with any outcome: what clients reached in a closed loop.
    #[must_use]
    pub fn ended_per_second(&self) -> f64 {
        self.arrived.completed as f64 / self.seconds.max(1e-9)
    }

    /// The round and session, which say with which trials of other cells this one is compared.
    #[must_use]
    pub fn turn(&self) -> RoundId {
        RoundId { round: self.round, session: self.session }
    }

    /// Figures of the operations that throughput counts.
    pub fn counted_operations(&self) -> impl Iterator<Item = &OperationFigures> {
        self.operations.iter().filter(|each| self.counted.is_empty() || self.counted.contains(&each.name))
    }

    /// Figures of the operations that throughput does not count.
    pub fn other_operations(&self) -> impl Iterator<Item = &OperationFigures> {
        self.operations.iter().filter(|each| !self.counted.is_empty() && !self.counted.contains(&each.name))
    }

    /// Response times of all acknowledged operations that throughput counts; none if there were none.
    ///
    /// # Errors
    /// A histogram of the result cannot be read.
    pub fn times(&self) -> Result<Option<LatencyFigures>, UnreadableHistogram> {
        LatencyFigures::merged(self.counted_operations().filter_map(OperationFigures::ok))
    }

    /// 99th percentile of the same, in nanoseconds; none where there are too few of them for it.
    pub fn p99(&self) -> Result<Option<f64>, UnreadableHistogram> {
        Ok(self.times()?.and_then(|figures| figures.p99()).map(|p99| p99 as f64))
    }

    /// Figures of one kind of operation; none if it was never tried.
    #[must_use]
    pub fn operation(&self, name: &str) -> Option<&OperationFigures> {
        self.operations.iter().find(|operation| operation.name == name)
    }

    /// One value for each whole second of the measured part: acknowledged operations, or, with `times`, the median
    /// service time in nanoseconds. Long series are thinned.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a number of seconds
    fn whole_seconds(&self, times: bool) -> Vec<f64> {
        let whole = self.seconds.floor() as u64;
        let seconds = self.series.iter().filter(|second| second.second < whole);
        let ok = |second: &SecondFigures| second.ok_of(&self.counted);
        thinned(seconds.map(|second| if times { second.p50_ns } else { ok(second) } as f64).collect())
    }
}

impl TrialResult {
    /// The faults that tested the durability level of the cell.
    pub fn crashes(&self) -> impl Iterator<Item = &InjectionFigures> {
        self.injections.iter().filter(|injected| injected.crash)
    }

    /// The faults that ended the processes of the store's own server, or of a service before it, or after which another member of
    /// a cluster leads, after something had been acknowledged: those after which something may be lost.
    pub fn ends(&self) -> impl Iterator<Item = &InjectionFigures> {
        self.injections.iter().filter(|injected| {
            let has_ended = !injected.same_life
                && Disruption::is_end(&injected.fault)
                // a fault that interrupts nobody says little of what it does to those whom it does interrupt
                && injected.interrupted.is_none_or(|interrupted| interrupted > 0);
            is_kept_by(&injected.member)
                && injected.last_ok_seconds.is_some()
                && (has_ended || injected.promotion.is_some())
        })
    }

    /// The faults after which another member of a cluster leads, after something had been acknowledged.
    pub fn promotions(&self) -> impl Iterator<Item = &InjectionFigures> {
        self.ends().filter(|injected| injected.promotion.is_some())
    }
}

/// Whether what was acknowledged is kept by the member with this role, or passes through it.
#[must_use]
pub fn is_kept_by(member: &str) -> bool {
    let keep = [Role::Server, Role::Gateway, Role::Queue, Role::Collector];
    member.parse::<MemberId>().is_ok_and(|member| keep.contains(&member.role))
}

impl SecondFigures {
    /// A second, given the names of the operations in the order of its counts.
    #[must_use]
    pub fn of(second: &Second, names: &[&str]) -> Self {
        let by_outcome = |counts: &SecondCounts| -> BTreeMap<String, u64> {
            let counted = Outcome::ALL.into_iter().zip(counts).filter(|(_, count)| **count > 0);
            counted.map(|(outcome, count)| (outcome.name().to_owned(), *count)).collect()
        };
        let ended =
            names.iter().zip(&second.counts).map(|(name, counts)| ((*name).to_owned(), by_outcome(counts)));
        Self {
            second: second.second,
            ended: ended.filter(|(_, counts)| !counts.is_empty()).collect(),
            p50_ns: second.p50,
            p99_ns: second.p99,
            max_ns: second.max,
        }
    }

    /// Median and 99th percentile of the service time, in nanoseconds, as they are shown: each none where too few operations were
    /// acknowledged in the second.
    #[must_use]
    pub fn percentiles(&self) -> (Option<u64>, Option<u64>) {
        let times = self.ok_of(&[]);
        let shown = |percent, value| is_enough(times, percent).then_some(value);
        (shown(50.0, self.p50_ns), shown(99.0, self.p99_ns))
    }

    /// Number of operations of these kinds that were acknowledged in the second; of all kinds if none is named.
    #[must_use]
    pub fn ok_of(&self, counted: &[String]) -> u64 {
        let named = self.ended.iter().filter(|(name, _)| counted.is_empty() || counted.contains(name));
        total(named.filter_map(|(_, ended)| ended.get("ok").copied()))
    }
}

impl OperationFigures {
    /// Response times of acknowledged operations; in a closed loop the service times, which are equal to them.
    #[must_use]
    pub fn ok(&self) -> Option<&LatencyFigures> {
        self.response.get("ok").or_else(|| self.service.get("ok"))
    }
}

impl RunResult {
    /// Number of cores that a cell's clients could use by their threads.
    #[must_use]
    pub fn cores_for(&self, cell: &CellResult) -> u32 {
        cell.threads.unwrap_or(cell.clients).min(self.harness.cores)
    }

    /// Number of rounds that an interruption divided between two sessions: their trials ran hours apart and are not
    /// compared.
    pub fn divided_rounds(&self) -> usize {
        let turns = self.cells.iter().flat_map(CellResult::whole_trials).map(TrialResult::turn);
        let turns: BTreeSet<RoundId> = turns.collect();
        let rounds: Vec<u32> = turns.iter().map(|turn| turn.round).collect();
        rounds.chunk_by(|one, next| one == next).filter(|turns| turns.len() > 1).count()
    }
}

impl CellResult {
    /// Whether the store is in the clients' own process; an embedded store that can be killed has one for itself.
    #[must_use]
    pub fn is_within_clients(&self) -> bool {
        self.embedded && self.host_round_trip_ns.is_none()
    }

    /// The worst verdict of the cell's trials; unknown if there are none.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.trials.iter().map(|trial| trial.audit.verdict).max().unwrap_or(Verdict::Unknown)
    }

    /// Whether the cell has every guarantee, so that any finding of the audit breaks a promise.
    #[must_use]
    pub fn is_promised(&self) -> bool {
        self.without.is_empty()
    }

    /// Whether a trial lost what was acknowledged when its server was ended, or another came to lead.
    #[must_use]
    pub fn lost_acknowledged(&self) -> bool {
        let lost = |trial: &TrialResult| {
            let findings = &trial.audit.findings;
            (trial.ends().next().is_some() || !trial.restarts.is_empty())
                && findings.iter().any(|each| each.count > 0 && each.is_loss())
        };
        self.trials.iter().any(lost)
    }

    /// Whether a trial proved that a promise was broken: a finding that a guarantee of the cell prevents.
    #[must_use]
    pub fn breaks_promise(&self) -> bool {
        self.trials.iter().any(|trial| trial.audit.breaks_promise(&self.without))
    }

    /// The durability level that the settings read back amount to, followed by the one asked for if that is another.
    #[must_use]
    pub fn durability(&self) -> String {
        let Some(effective) = &self.effective else { return NOT_THERE.to_owned() };
        match self.durability_asked.filter(|asked| effective.durability != *asked) {
            Some(asked) => format!("{} ({asked} asked)", effective.durability),
            None => effective.durability.to_string(),
        }
    }

    /// Mean of the trials' throughput, in acknowledged operations a second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.mean(|trial| trial.throughput)
    }

    /// Mean of a figure over the [measured trials](Self::measured_trials); 0 without trials.
    pub fn mean(&self, figure: impl Fn(&TrialResult) -> f64) -> f64 {
        let trials = self.measured_trials();
        trials.iter().map(|trial| figure(trial)).sum::<f64>() / (trials.len().max(1) as f64)
    }

    /// The trials that means are of: the whole ones, or all where none is whole.
    #[must_use]
    pub fn measured_trials(&self) -> Vec<&TrialResult> {
        let whole: Vec<&TrialResult> = self.whole_trials().collect();
        if whole.is_empty() { self.trials.iter().collect() } else { whole }
    }

    /// The trials that were not interrupted: those that a run which goes on does not make again.
    pub fn made_trials(&self) -> impl Iterator<Item = &TrialResult> {
        self.trials.iter().filter(|trial| !trial.was_interrupted())
    }

    /// The trials that can be compared: one that was cut short has the time it waited for its server in it.
    pub fn whole_trials(&self) -> impl Iterator<Item = &TrialResult> {
        self.trials.iter().filter(|trial| trial.stopped.is_none())
    }

    /// The trials' throughput with its interval; none without trials.
    #[must_use]
    pub fn mean_throughput(&self) -> Option<Mean> {
        let trials: Vec<f64> = self.measured_trials().iter().map(|trial| trial.throughput).collect();
        Mean::of(&trials)
    }

    /// The steadiness of the trials' seconds; none where they are too few.
    #[must_use]
    pub fn steadiness_of_trials(&self) -> Option<Steadiness> {
        let series: Vec<Vec<f64>> =
            // a fault is no drift
            self.whole_trials()
                .filter(|trial| trial.served_seconds.is_none())
                .map(|trial| trial.whole_seconds(self.rate.is_some()))
                .collect();
        Steadiness::of(&series)
    }
}

/// Whether it is what a result means that says nothing of it.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The number of nodes of a result that says nothing of it.
fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde asks for it")]
fn is_one(count: &u32) -> bool {
    *count == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Grid;

    /// What was written before there were clusters is read, and what has none is written as it was then.
    #[test]
    fn a_cell_that_says_nothing_of_nodes_is_a_single_server() {
        let cell = Grid::default().result().cells.remove(0);
        let written = serde_json::to_value(&cell).unwrap();
        let names = ["nodes", "replication", "replication_read", "reads", "route", "consistency"];
        assert!(names.iter().all(|name| written.get(name).is_none()), "{written}");
        let read: CellResult = serde_json::from_value(written).unwrap();
        assert_eq!((read.nodes, read.replication, read.replication_read), (1, Replication::None, None));
        assert!(read.reads.is_leader() && read.trials.iter().all(|trial| trial.staleness.is_none()));
        let kill = serde_json::to_value(injected(3.0, None, None)).unwrap();
        assert!(kill.get("promotion").is_none() && kill.get("not_promoted").is_none(), "{kill}");
    }

    #[test]
    fn a_figure_is_read_as_it_was_written() {
        for number in 1..1000 {
            let figure = f64::from(number) * 96.398_021_843_004_56;
            let written = serde_json::to_string(&figure).unwrap();
            assert_eq!(
                serde_json::from_str::<f64>(&written).unwrap().to_bits(),
                figure.to_bits(),
                "{written}"
            );
        }
    }

    /// A fault of a trial of ten seconds, with the acknowledgements before and after it.
    fn injected(at: f64, last_ok: Option<f64>, next_ok: Option<f64>) -> InjectionFigures {
        InjectionFigures {
            fault: "kill".to_owned(),
            member: Role::Server.to_string(),
            due_seconds: at,
            at_seconds: Some(at),
            back_seconds: None,
            answered_seconds: None,
            acknowledged: Some(9),
            outstanding: None,
            interrupted: Some(3),
            crash: false,
            same_life: false,
            another_server: false,
            unserved_from_seconds: None,
            unserved_until_seconds: None,
            missed: false,
            overtaken: false,
            forced: false,
            last_ok_seconds: last_ok,
            next_ok_seconds: next_ok,
            promotion: None,
            not_promoted: None,
        }
    }

    #[test]
    fn only_a_fault_after_an_acknowledgement_says_something_of_durability() {
        let mut trial = Grid::default().result().cells.remove(0).trials.remove(0);
        let kill = injected(3.0, Some(2.9), Some(4.9));
        trial.injections = vec![
            kill.clone(),
            injected(5.0, None, Some(6.0)),
            InjectionFigures { fault: "pause".to_owned(), ..kill.clone() },
            // nobody was interrupted
            InjectionFigures { interrupted: Some(0), ..kill.clone() },
            InjectionFigures { member: Role::Locks.to_string(), ..kill.clone() },
            InjectionFigures { fault: "restart".to_owned(), ..kill },
        ];
        assert_eq!((trial.ends().count(), trial.crashes().count()), (2, 0));
        trial.injections[0].crash = true;
        assert_eq!(trial.crashes().count(), 1);
        assert_eq!(trial.injections[0].outage().map(|outage| (outage * 10.0).round()), Some(20.0));
        assert_eq!(trial.injections[1].outage(), None);
    }
}
