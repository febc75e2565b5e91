//! A workload: its kind, as it is listed, and one choice of its parameters.

use acidtest_model::IdleOption;
use serde::{Serialize, de::DeserializeOwned};

use crate::{Guarantee, Parameter, TrialSetup, WorkloadSpec, WorkloadTrial};

/// The values of a workload's parameters, by name.
pub type Values = serde_json::Map<String, serde_json::Value>;

/// A kind of workload, as `acidtest workloads` lists it.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadKind {
    /// The name on the command line, in plans and in results.
    pub name: &'static str,
    /// The workload in a line or two, with its origin.
    pub summary: &'static str,
    /// Names of its operations, in the order of their kinds.
    pub operations: &'static [&'static str],
    /// The property that its audit proves, in a line or two.
    pub audit: &'static str,
    /// Its guarantees, in the order of reports: those that its findings can break, and those that have a price.
    pub guarantees: &'static [Guarantee],
    /// Evidence of its audit that has a column in tables, by name, and how the trials of a cell are taken together.
    pub counts: &'static [(&'static str, Combine)],
    /// Shares of that evidence that have a column: the column's title, and the names of part and whole. A terminal that is
    /// narrow shows the first one longest, and of the counts those that come first.
    pub shares: &'static [(&'static str, &'static str, &'static str)],
    /// The operations and spans that tables explain, by name, each with a sentence that follows `name: `.
    pub terms: &'static [(&'static str, &'static str)],
    /// The operation of which it is told where most are refused, and what that comes from and what mends it, as the end of a
    /// sentence; none where refusals are as they should be.
    pub refused: Option<(&'static str, &'static str)>,
    /// What a refusal is, in a word for the column that counts them; empty where it is the store's plain no.
    pub refusal: &'static str,
    /// What its audit does not prove where clients are in several processes, as a part of a sentence; empty if it
    /// proves the same.
    pub apart: &'static str,
    /// The rows a second that the study behind it asks for; none where it asks for none.
    pub demand: Option<f64>,
    /// Its parameters, with defaults and meanings.
    pub parameters: fn() -> Vec<Parameter>,
    /// Makes the workload with these values in place of the defaults. The error names the first value that is
    /// wrong.
    pub with: fn(&Values) -> Result<Box<dyn Workload>, String>,
    /// The options and parameters of a plan that have no effect, given these values of the workload's parameters.
    pub idle: fn(&Values) -> Vec<IdleOption>,
}

/// Keeps the entries without effect, from a list of name, whether it has an effect, and why not.
pub(crate) fn idle(listed: &[(&'static str, bool, &'static str)]) -> Vec<IdleOption> {
    listed.iter().filter(|(_, has, _)| !has).map(|&(name, _, why)| IdleOption { name, why }).collect()
}

/// Why the number of retries has no effect where nothing is written.
pub(crate) const NOTHING_WRITTEN: &str = "nothing is written: no operation conflicts with another";

/// A workload with a value for each of its parameters.
pub trait Workload: Send + Sync {
    /// What it says of itself.
    fn spec(&self) -> &WorkloadSpec;

    /// How much data there is before its clients begin, or that they will make in any case; `trace` is the length of the
    /// sequence that is replayed.
    fn size(&self, clients: u32, trace: Option<u64>) -> DataSize;

    /// Makes one trial.
    fn trial(&self, setup: TrialSetup) -> Box<dyn WorkloadTrial>;
}

/// How much data a trial has, as far as it is known before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSize {
    /// Rows, documents or messages.
    pub rows: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Bytes of memory that each process which drives clients takes for them: ledger, stock, and what is to be replayed.
    pub ledger_bytes: u64,
    /// Bytes of memory that the audit takes besides.
    pub audit_bytes: u64,
}

impl DataSize {
    /// So many rows of `bytes` each. `kept` is how many bytes of memory the ledger and the audit take for each of them.
    pub(crate) fn of(rows: u64, bytes: u64, kept: [u64; 2]) -> Self {
        let [ledger_bytes, audit_bytes] = kept.map(|kept| rows.saturating_mul(kept));
        Self { rows, bytes: rows.saturating_mul(bytes), ledger_bytes, audit_bytes }
    }
}

/// How a figure of several trials is made of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    Sum,
    Mean,
    /// The greatest of them.
    Most,
}

/// Makes parameters from values: one that is not given has its default, one that is not known is an error.
pub(crate) fn read<P: DeserializeOwned>(values: &Values) -> Result<P, String> {
    serde_json::from_value(serde_json::Value::Object(values.clone())).map_err(|error| error.to_string())
}

/// Every parameter with its value, as a map.
pub(crate) fn written<P: Serialize>(parameters: &P) -> Values {
    match serde_json::to_value(parameters) {
        Ok(serde_json::Value::Object(values)) => values,
        // parameters are structures of plain values
        _ => Values::new(),
    }
}

/// Checks parameters, each given as whether it is in range, its name, and the range that it must be in.
pub(crate) fn in_range(checks: &[(bool, &str, &str)]) -> Result<(), String> {
    match checks.iter().find(|(fits, ..)| !fits) {
        Some((_, name, must)) => Err(format!("{name} must be {must}")),
        None => Ok(()),
    }
}
