//! The format of a result.

use std::collections::{BTreeMap, BTreeSet};

use acidtest_engine::{Arrived, Measurement, Outcome, Stop};
use acidtest_model::{Durability, Effective, Lock};
use acidtest_observe::{Machine, Resources};
use acidtest_workloads::{Audit, Remarks, Values, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    LatencyFigures, Mean, Plan, Price, Steadiness, UnreadableHistogram, dimensions::NOT_THERE, figure::total,
    steadiness::thinned,
};

/// The format's version: raised when a reader of the last one would misread the next, with a step that makes of the last
/// one the next.
pub const FORMAT: u32 = 3;

/// The JSON Schema of [`RunResult`].
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(RunResult).to_value()
}

/// All that a run measured, and on what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// The format's version.
    pub format: u32,
    /// The run's id.
    pub run: String,
    /// acidtest's version.
    pub acidtest: String,
    /// When it began, RFC 3339, UTC.
    pub started: String,
    /// When it ended.
    pub finished: String,
    /// Whether it was interrupted: then some cells or trials are missing.
    pub interrupted: bool,
    /// What was asked for, seed included; passwords left out.
    pub plan: Plan,
    /// What it ran on.
    pub machine: Machine,
    /// What the bench itself costs.
    pub harness: Harness,
    /// What was measured.
    pub cells: Vec<CellResult>,
    /// What was asked for and left out, as the store cannot do it; and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// The bench's own cost, measured at the start of the run on a store that does nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Harness {
    /// Nanoseconds of CPU per operation on one core, drawing, timing, recording and accounting: the median of the less
    /// disturbed half of several windows; 0 where there were too few for a figure.
    pub nanoseconds_per_operation: f64,
    /// Operations that it was measured on.
    pub operations: u64,
    /// What counts as an operation, in the workload's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// How far the windows lie apart; none of earlier results, and where there were too few operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Windows>,
}

/// The spread of a figure that was measured in several windows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Windows {
    /// How many there were.
    pub count: u64,
    /// The least of them.
    pub least_nanoseconds: f64,
    /// The most of them.
    pub most_nanoseconds: f64,
}

/// One cell of the grid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellResult {
    /// The kind of store.
    pub store: String,
    /// Its name as its makers write it.
    pub title: String,
    /// Where it is, without a password; none for a private server.
    pub address: Option<String>,
    /// Whether it runs inside the client's own process, so that the client's CPU is also its own.
    pub embedded: bool,
    /// How read-decide-writes are protected.
    pub lock: Lock,
    /// The statements or settings that do it.
    pub lock_how: String,
    /// Whether the workload decides anything from what it read, so that there is something to protect by a lock.
    #[serde(default = "yes")]
    pub decides: bool,
    /// The guarantees that the cell does without, by name: what only they prevent breaks no promise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
    /// The rung asked for; none on a user's own server, which keeps its settings.
    pub durability_asked: Option<Durability>,
    /// Clients.
    pub clients: u32,
    /// How many of them the rate is for, where it is not for all: the others do what there is to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<u32>,
    /// Operations a second that were offered; none in a closed loop.
    pub rate: Option<f64>,
    /// Every parameter of the workload, with its value.
    pub parameters: Values,
    /// What the workload does with them, in a line.
    pub headline: String,
    /// What the server said of itself; none if it was never reached.
    pub effective: Option<Effective>,
    /// Its trials, in the order of their rounds.
    pub trials: Vec<TrialResult>,
    /// Throughput over the trials: acknowledged operations a second. Figured when the run ends.
    #[serde(default)]
    pub mean: Option<Mean>,
    /// What the seconds of its trials are worth, and whether they still drift; none where the measured part
    /// is too short for that. Figured when the run ends.
    #[serde(default)]
    pub steadiness: Option<Steadiness>,
    /// What its guarantees cost, where the grid has the same cell without them. Figured when the run ends.
    #[serde(default)]
    pub prices: Vec<Price>,
    /// Why trials are missing, if any are.
    pub error: Option<String>,
}

/// Results that do not say so are of workloads that decide.
fn yes() -> bool {
    true
}

/// Results that name no session have one.
fn first() -> u32 {
    1
}

/// What trials of different cells have in common that ran one after the other, and are compared with each other: a
/// round, within one session of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    round: u32,
    session: u32,
}

/// One trial of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialResult {
    /// Which round of the run, from 1.
    pub round: u32,
    /// Which session of the run, from 1: each `--resume` begins another, perhaps hours later. Results that do not say
    /// so have one.
    #[serde(default = "first")]
    pub session: u32,
    /// Where its data came from.
    pub data: DataFigures,
    /// Length of the measured part in seconds.
    pub seconds: f64,
    /// Acknowledged operations a second, of all kinds that `counted` names; each operation of a transaction
    /// counts.
    pub throughput: f64,
    /// The kinds of operation that throughput counts; all of them where it names none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<String>,
    /// What happened, by kind of operation.
    pub operations: Vec<OperationFigures>,
    /// Second by second.
    pub series: Vec<SecondFigures>,
    /// Times that are no operation's own, such as a message's from its publishing to its being taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<SpanFigures>,
    /// What rose and fell meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gauge: Option<GaugeFigures>,
    /// What the store limited its clients by, in its own words, and how often it said so.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, u64>,
    /// What was due and what became of it.
    pub arrived: ArrivedFigures,
    /// Connections opened in place of retired ones.
    pub reconnects: u64,
    /// What went wrong, in the store's words, and how often.
    pub faults: BTreeMap<String, u64>,
    /// The ledger against the final state.
    pub audit: Audit,
    /// What it found out besides times and verdict.
    #[serde(default, skip_serializing_if = "Remarks::is_empty")]
    pub remarks: Remarks,
    /// CPU, memory and I/O of client, server and machine.
    pub resources: Resources,
    /// Why it ended before its time, if it did.
    pub stopped: Option<StopFigures>,
    /// The server's last log lines, where it died.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_log: Vec<String>,
}

/// Where a trial's data came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DataFigures {
    /// Rows that were there when it began.
    pub rows: u64,
    /// Seconds that laying them in took; none where an earlier trial's were taken over.
    pub load_seconds: Option<f64>,
    /// The trial of the run, counted from 1 in the order in which they ran, that left the data behind; its audit
    /// had read all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_by: Option<u32>,
}

/// What happened to one kind of operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OperationFigures {
    /// Its name.
    pub name: String,
    /// Acknowledged a second.
    pub ok_per_second: f64,
    /// Attempts that lost against another client.
    pub conflicts: u64,
    /// Attempts that the store refused.
    pub refusals: u64,
    /// Attempts after the first one.
    pub retries: u64,
    /// Nanoseconds of acknowledged operations before their last attempt, over all clients: attempts that lost against
    /// another client, with the waits after them.
    #[serde(default)]
    pub conflict_ns: u64,
    /// The same, of attempts that the store refused.
    #[serde(default)]
    pub refusal_ns: u64,
    /// Nanoseconds in which acknowledged operations waited for locks that other clients held, over all clients; only
    /// where the lock is not the server's own, so that the client waits for it.
    #[serde(default)]
    pub lock_wait_ns: u64,
    /// From sending to the answer, over all attempts, by outcome (ok, refused, conflict, failed,
    /// unknown). Its counts are the operations that ended so.
    pub service: BTreeMap<String, LatencyFigures>,
    /// From the intended start to the answer, by outcome; equal to `service`, and left out, in a
    /// closed loop.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub response: BTreeMap<String, LatencyFigures>,
}

/// Times from one event to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpanFigures {
    /// Its name.
    pub name: String,
    /// The times.
    pub times: LatencyFigures,
}

/// Something that rose and fell while the trial was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GaugeFigures {
    /// What it was.
    pub name: String,
    /// How high it was at the beginning of each second.
    pub each_second: Vec<u64>,
}

/// One second of the measured part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecondFigures {
    /// Which second, from 0.
    pub second: u64,
    /// Operations that ended in it: by kind, then by outcome; what is zero is left out.
    pub ended: BTreeMap<String, BTreeMap<String, u64>>,
    /// Median service time of acknowledged operations, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile of the same.
    pub p99_ns: u64,
    /// The largest.
    pub max_ns: u64,
}

/// What the schedule asked for and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArrivedFigures {
    /// Due in the measured part.
    pub offered: u64,
    /// Sent.
    pub started: u64,
    /// Ended, however.
    pub completed: u64,
    /// Of those started: after they were due, because every client was busy.
    pub late: u64,
    /// Due, but never started.
    pub dropped: u64,
}

/// Why a trial ended before its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StopFigures {
    /// `interrupted`, `no connection`, `server gone` or `defect`.
    pub reason: String,
    /// The store's words, or the system's.
    pub detail: String,
}

impl From<Stop> for StopFigures {
    fn from(stop: Stop) -> Self {
        let (reason, detail) = match stop {
            Stop::Interrupted => ("interrupted", String::new()),
            Stop::NoConnection(detail) => ("no connection", detail),
            Stop::ServerGone(detail) => ("server gone", detail),
            Stop::Defect(detail) => ("defect", detail),
        };
        Self { reason: reason.to_owned(), detail }
    }
}

impl From<Arrived> for ArrivedFigures {
    fn from(arrived: Arrived) -> Self {
        let Arrived { offered, started, completed, late, dropped } = arrived;
        Self { offered, started, completed, late, dropped }
    }
}

/// What is known of a trial besides what was measured.
#[derive(Clone, Debug)]
pub struct TrialFacts {
    /// Which round of the run, from 1.
    pub round: u32,
    /// Which session of the run, from 1.
    pub session: u32,
    /// Operations that one acknowledgement stands for.
    pub transaction: u32,
    /// The operations that throughput counts.
    pub counted: Vec<&'static str>,
    /// Where its data came from.
    pub data: DataFigures,
    /// What it found out before it was driven.
    pub remarks: Remarks,
}

impl TrialResult {
    /// The trial as results carry it.
    #[must_use]
    pub fn of(about: TrialFacts, measurement: Measurement, audit: Audit, resources: Resources) -> Self {
        let names: Vec<&str> = measurement.operations.iter().map(|operation| operation.name).collect();
        Self {
            round: about.round,
            session: about.session,
            data: about.data,
            remarks: about.remarks,
            seconds: measurement.window.as_secs_f64(),
            throughput: measurement
                .operations
                .iter()
                .filter(|operation| about.counted.contains(&operation.name))
                .map(|operation| measurement.rate(operation))
                .sum::<f64>()
                * f64::from(about.transaction.max(1)),
            counted: if about.counted.len() == names.len() {
                Vec::new()
            } else {
                about.counted.iter().map(|name| (*name).to_owned()).collect()
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
            series: measurement
                .series
                .iter()
                .map(|second| SecondFigures {
                    second: second.second,
                    ended: names
                        .iter()
                        .zip(&second.counts)
                        .filter(|(_, counts)| counts.iter().any(|count| *count > 0))
                        .map(|(name, counts)| {
                            let ended = Outcome::ALL
                                .iter()
                                .zip(counts)
                                .filter(|(_, count)| **count > 0)
                                .map(|(outcome, count)| (outcome.name().to_owned(), *count))
                                .collect();
                            ((*name).to_owned(), ended)
                        })
                        .collect(),
                    p50_ns: second.p50,
                    p99_ns: second.p99,
                    max_ns: second.max,
                })
                .collect(),
            arrived: measurement.arrived.into(),
            reconnects: measurement.reconnects,
            faults: measurement.faults,
            audit,
            resources,
            stopped: measurement.stopped.map(StopFigures::from),
            server_log: Vec::new(),
        }
    }

    /// With which trials of other cells it is compared.
    pub(crate) fn turn(&self) -> Turn {
        Turn { round: self.round, session: self.session }
    }

    /// The operations that throughput counts.
    pub(crate) fn counted_operations(&self) -> impl Iterator<Item = &OperationFigures> {
        self.operations.iter().filter(|each| self.counted.is_empty() || self.counted.contains(&each.name))
    }

    /// The operations that it does not.
    pub(crate) fn other_operations(&self) -> impl Iterator<Item = &OperationFigures> {
        self.operations.iter().filter(|each| !self.counted.is_empty() && !self.counted.contains(&each.name))
    }

    /// 99th percentile of the response time of all acknowledged operations, in nanoseconds.
    pub(crate) fn p99(&self) -> Result<Option<f64>, UnreadableHistogram> {
        let ok = self.counted_operations().filter_map(OperationFigures::ok);
        Ok(LatencyFigures::merged(ok)?.map(|figures| figures.p99_ns as f64))
    }

    /// What happened to one kind of operation; none if it was never tried.
    #[must_use]
    pub fn operation(&self, name: &str) -> Option<&OperationFigures> {
        self.operations.iter().find(|operation| operation.name == name)
    }

    /// The whole seconds of the measured part: acknowledged operations, or the median service time.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a number of seconds
    fn whole_seconds(&self, times: bool) -> Vec<f64> {
        let whole = self.seconds.floor() as u64;
        let seconds = self.series.iter().filter(|second| second.second < whole);
        let ok = |second: &SecondFigures| second.ok_of(&self.counted);
        thinned(seconds.map(|second| if times { second.p50_ns } else { ok(second) } as f64).collect())
    }
}

impl SecondFigures {
    /// Operations of these kinds that were acknowledged in it; of all kinds if none is named.
    #[must_use]
    pub fn ok_of(&self, counted: &[String]) -> u64 {
        let named = self.ended.iter().filter(|(name, _)| counted.is_empty() || counted.contains(name));
        total(named.filter_map(|(_, ended)| ended.get("ok").copied()))
    }
}

impl OperationFigures {
    /// Response times of those that were acknowledged; service times in a closed loop, where they are equal.
    #[must_use]
    pub fn ok(&self) -> Option<&LatencyFigures> {
        self.response.get("ok").or_else(|| self.service.get("ok"))
    }
}

impl RunResult {
    /// Rounds that an interruption divided between two sessions: what ran hours apart is not compared.
    pub(crate) fn divided_rounds(&self) -> usize {
        let turns = self.cells.iter().flat_map(|cell| &cell.trials).map(TrialResult::turn);
        let turns: BTreeSet<Turn> = turns.collect();
        let rounds: Vec<u32> = turns.iter().map(|turn| turn.round).collect();
        rounds.chunk_by(|one, next| one == next).filter(|turns| turns.len() > 1).count()
    }
}

impl CellResult {
    /// The worst verdict of its trials; unknown if there are none.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.trials.iter().map(|trial| trial.audit.verdict).max().unwrap_or(Verdict::Unknown)
    }

    /// Whether all that the workload's audit looks for is promised not to be there.
    #[must_use]
    pub fn is_promised(&self) -> bool {
        self.without.is_empty()
    }

    /// Whether a trial proved that a promise was broken: something that a guarantee prevents which the cell has.
    #[must_use]
    pub fn breaks_promise(&self) -> bool {
        self.trials.iter().any(|trial| trial.audit.breaks_promise(&self.without))
    }

    /// The rung that the settings read back amount to; where another one was asked for, that too.
    pub(crate) fn rung(&self) -> String {
        let Some(effective) = &self.effective else { return NOT_THERE.to_owned() };
        match self.durability_asked.filter(|asked| *asked != effective.durability) {
            Some(asked) => format!("{} ({asked} asked)", effective.durability),
            None => effective.durability.to_string(),
        }
    }

    /// Mean of the trials' throughput, in acknowledged operations a second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.mean(|trial| trial.throughput)
    }

    /// Mean of a figure over the trials; 0 without trials.
    pub(crate) fn mean(&self, figure: impl Fn(&TrialResult) -> f64) -> f64 {
        self.trials.iter().map(figure).sum::<f64>() / (self.trials.len().max(1) as f64)
    }

    /// Trials to compare: one that was cut short has the time it waited for its server in it.
    pub(crate) fn whole_trials(&self) -> impl Iterator<Item = &TrialResult> {
        self.trials.iter().filter(|trial| trial.stopped.is_none())
    }

    /// The trials' throughput with its interval; none without trials.
    pub(crate) fn mean_throughput(&self) -> Option<Mean> {
        let trials: Vec<f64> = self.trials.iter().map(|trial| trial.throughput).collect();
        Mean::of(&trials)
    }

    /// What the trials' seconds say; none where they are too few.
    pub(crate) fn steadiness_of_trials(&self) -> Option<Steadiness> {
        let series: Vec<Vec<f64>> =
            self.whole_trials().map(|trial| trial.whole_seconds(self.rate.is_some())).collect();
        Steadiness::of(&series)
    }
}
