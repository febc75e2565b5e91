//! The format of a result.

use std::collections::BTreeMap;

use acidtest_engine::{Arrived, Measurement, Outcome, Stop};
use acidtest_model::{Durability, Effective, Lock};
use acidtest_observe::{Machine, Resources};
use acidtest_workloads::{Audit, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{LatencyFigures, Plan, Price, Ratio, UnreadableHistogram};

/// The format's version: raised when a reader of the last one would misread the next.
pub const FORMAT: u32 = 1;

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
}

/// The bench's own cost, measured at the start of the run on a store that does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Harness {
    /// Nanoseconds per operation on one core, drawing, timing, recording and accounting: the least of
    /// several windows.
    pub nanoseconds_per_operation: f64,
    /// Operations that it was measured on.
    pub operations: u64,
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
    /// Whether the cell promises that the workload's invariants hold.
    pub promised: bool,
    /// The rung asked for; none on a user's own server, which keeps its settings.
    pub durability_asked: Option<Durability>,
    /// Clients.
    pub clients: u32,
    /// What the server said of itself; none if it was never reached.
    pub effective: Option<Effective>,
    /// Its trials, in the order of their rounds.
    pub trials: Vec<TrialResult>,
    /// What the guarantee costs, where the grid has the same cell without it.
    pub price: Option<Price>,
    /// Why trials are missing, if any are.
    pub error: Option<String>,
}

/// One trial of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialResult {
    /// Which round of the run, from 1.
    pub round: u32,
    /// Length of the measured part in seconds.
    pub seconds: f64,
    /// Acknowledged operations a second, all kinds together.
    pub throughput: f64,
    /// What happened, by kind of operation.
    pub operations: Vec<OperationFigures>,
    /// Second by second.
    pub series: Vec<SecondFigures>,
    /// What was due and what became of it.
    pub arrived: ArrivedFigures,
    /// Connections opened in place of retired ones.
    pub reconnects: u64,
    /// What went wrong, in the store's words, and how often.
    pub faults: BTreeMap<String, u64>,
    /// The ledger against the final state.
    pub audit: Audit,
    /// CPU, memory and I/O of client, server and machine.
    pub resources: Resources,
    /// Why it ended before its time, if it did.
    pub stopped: Option<StopFigures>,
    /// The server's last log lines, where it died.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_log: Vec<String>,
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
    /// From sending to the answer, over all attempts, by outcome (ok, refused, conflict, failed,
    /// unknown). Its counts are the operations that ended so.
    pub service: BTreeMap<String, LatencyFigures>,
    /// From the intended start to the answer, by outcome; equal to `service`, and left out, in a
    /// closed loop.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub response: BTreeMap<String, LatencyFigures>,
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

impl TrialResult {
    /// The trial as results carry it.
    #[must_use]
    pub fn of(round: u32, measurement: Measurement, audit: Audit, resources: Resources) -> Self {
        let names: Vec<&str> = measurement.operations.iter().map(|operation| operation.name).collect();
        Self {
            round,
            seconds: measurement.window.as_secs_f64(),
            throughput: measurement.throughput(),
            operations: measurement
                .operations
                .iter()
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

    /// 99th percentile of the response time of all acknowledged operations, in nanoseconds.
    fn p99(&self) -> Result<Option<f64>, UnreadableHistogram> {
        let operations = self.operations.iter();
        let ok = operations.filter_map(|each| each.response.get("ok").or_else(|| each.service.get("ok")));
        Ok(LatencyFigures::merged(ok)?.map(|figures| figures.p99_ns as f64))
    }
}

impl CellResult {
    /// The worst verdict of its trials; unknown if there are none.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.trials.iter().map(|trial| trial.audit.verdict).max().unwrap_or(Verdict::Unknown)
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

    /// Whether the other cell is the same but for the lock.
    fn same_but_lock(&self, other: &Self) -> bool {
        let key =
            |cell: &Self| (cell.store.clone(), cell.address.clone(), cell.durability_asked, cell.clients);
        key(self) == key(other)
    }

    /// Trials to compare: one that was cut short has the time it waited for its server in it.
    fn whole_trials(&self) -> impl Iterator<Item = &TrialResult> {
        self.trials.iter().filter(|trial| trial.stopped.is_none())
    }

    /// What this cell's lock costs against the unprotected one, round by round.
    fn price_against(&self, without: &Self) -> Result<Option<Price>, UnreadableHistogram> {
        let mut throughput = Vec::new();
        let mut p99 = Vec::new();
        for with in self.whole_trials() {
            let same_round = without.whole_trials().find(|trial| trial.round == with.round);
            let Some(without) = same_round else { continue };
            throughput.push((with.throughput, without.throughput));
            if let (Some(with), Some(without)) = (with.p99()?, without.p99()?) {
                p99.push((with, without));
            }
        }
        Ok(Ratio::of_pairs(&throughput).map(|throughput| Price {
            against: format!("lock {}", without.lock),
            throughput,
            p99: Ratio::of_pairs(&p99),
        }))
    }
}

impl RunResult {
    /// Prices every cell that held and has an unprotected twin in the grid: the number of one that broke
    /// is void.
    ///
    /// # Errors
    /// A histogram that cannot be read.
    pub fn price(&mut self) -> Result<(), UnreadableHistogram> {
        let bare: Vec<CellResult> =
            self.cells.iter().filter(|cell| cell.lock == Lock::None).cloned().collect();
        let held = |cell: &&mut CellResult| cell.lock != Lock::None && cell.verdict() == Verdict::Holds;
        for cell in self.cells.iter_mut().filter(held) {
            if let Some(without) = bare.iter().find(|other| other.same_but_lock(cell)) {
                cell.price = cell.price_against(without)?;
            }
        }
        Ok(())
    }
}
