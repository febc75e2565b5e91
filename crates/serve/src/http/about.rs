//! What is told about runs, stores and workloads.

use acidtest_results::Plan;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    WorkloadAbout,
    app::{App, StoreAbout},
    runs::{Other, Record, State},
};

/// A run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RunAbout {
    /// The run's id.
    id: String,
    /// The workload.
    workload: String,
    /// The stores, addresses without passwords.
    stores: Vec<String>,
    /// How many cells it has.
    cells: usize,
    /// How far it is.
    state: State,
    /// How many runs come before it, while it waits.
    before: Option<usize>,
    /// Whether it has ended and every trial of its plan is in its result.
    complete: bool,
    /// What was found, once it has ended: `holds`, `broken` or `unknown`.
    verdict: Option<String>,
    /// The exit status that the command line would have had: see `acidtest --help`.
    exit_status: Option<u8>,
    /// What went wrong, where something did.
    error: Option<String>,
    /// What would spoil its figures, as it was found on the machine before its trials, with the remedies; empty where all is well.
    notes: Vec<String>,
    /// How long its trials are driven, in seconds, at least and at most, where the plan says it.
    expected_seconds: Option<(f64, f64)>,
    /// When it was asked for (RFC 3339).
    submitted: String,
    /// When it began.
    started: Option<String>,
    /// When it ended.
    ended: Option<String>,
    /// Paths of what belongs to it.
    pub(super) links: Links,
}

/// Paths of what belongs to a run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Links {
    /// The run.
    pub(super) run: String,
    /// What happens in it, as server-sent events.
    events: String,
    /// Its result, once there is one; of a run that is under way, as far as it has come.
    result: String,
    /// The report of its result.
    report: String,
}

/// A run with its plan.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RunDetail {
    #[serde(flatten)]
    pub(super) run: RunAbout,
    /// The plan.
    pub(super) plan: Plan,
    /// The command line that runs the same.
    pub(super) command: String,
    /// Whether there is a result: perhaps one of a part of its trials.
    pub(super) has_result: bool,
}

/// Runs, the latest first.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RunList {
    /// The runs.
    pub(super) runs: Vec<RunAbout>,
    /// Whether there are earlier ones: ask for those before the last one of these.
    pub(super) more: bool,
    /// Results in the folder that no run of this server has, such as those of the command line, the latest first; with the
    /// latest runs only. What belongs to a run can be asked for of them, too.
    pub(super) others: Vec<Other>,
}

impl RunAbout {
    pub(super) fn of(app: &App, record: &Record) -> Self {
        let path = format!("/api/runs/{}", record.id);
        Self {
            id: record.id.clone(),
            workload: record.plan.workload.clone(),
            stores: record.plan.stores.clone(),
            cells: record.cells,
            state: record.state,
            before: app.runs.before(record),
            complete: record.is_complete,
            verdict: record.verdict().map(str::to_owned),
            exit_status: record.exit_status,
            error: record.error.clone(),
            notes: record.notes.clone(),
            expected_seconds: record.seconds,
            submitted: record.submitted.to_string(),
            started: record.started.map(|time| time.to_string()),
            ended: record.ended.map(|time| time.to_string()),
            links: Links {
                events: format!("{path}/events"),
                result: format!("{path}/result"),
                report: format!("{path}/report.html"),
                run: path,
            },
        }
    }
}

/// Stores.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct StoreList {
    /// The stores.
    pub(super) stores: Vec<StoreAbout>,
}

/// Workloads.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct WorkloadList {
    /// The workloads.
    pub(super) workloads: Vec<WorkloadAbout>,
}
