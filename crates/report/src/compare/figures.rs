//! The figures that are compared, trial by trial.

use std::{fmt, str::FromStr};

use acidtest_model::figure::percent;
use acidtest_results::{
    Answers, CellResult, LatencyFigures, OperationFigures, RoundId, RunResult, SpanFigures, TrialResult,
    UnreadableHistogram, enough, seconds_seen, server_cpu,
};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// A figure of a trial that two cells are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub enum Figure {
    /// Acknowledged operations a second.
    Throughput,
    /// Median response time of acknowledged operations, in nanoseconds. It takes 20 of them in each trial.
    P50,
    /// 95th percentile of the response time of acknowledged operations, in nanoseconds. It takes 200 of them in each trial.
    P95,
    /// 99th percentile of the response time of acknowledged operations, in nanoseconds. It takes 1,000 of them in each trial.
    P99,
    /// 99.9th percentile of the response time of acknowledged operations, in nanoseconds. It takes 10,000 of them in each trial.
    P999,
    /// Longest response time of an acknowledged operation, in nanoseconds.
    Max,
    /// CPU time of the client process for each acknowledged operation, in nanoseconds.
    ClientCpu,
    /// CPU time of the server, and of those beside it (gateway, broker, lock service), for each acknowledged operation, in
    /// nanoseconds.
    ServerCpu,
    /// Share of operations that failed or were not answered, from 0 to 1.
    Errors,
}

impl Figure {
    /// All figures, in the order in which reports show them.
    pub const ALL: [Self; 9] = [
        Self::Throughput,
        Self::P50,
        Self::P95,
        Self::P99,
        Self::P999,
        Self::Max,
        Self::ClientCpu,
        Self::ServerCpu,
        Self::Errors,
    ];

    /// The figure's name, in conditions and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::P50 => "p50",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Max => "max",
            Self::ClientCpu => "client_cpu",
            Self::ServerCpu => "server_cpu",
            Self::Errors => "errors",
        }
    }

    /// The unit of the figure's values: `operations/s`, `ns`, `ns of CPU/operation`, or `of all operations`.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Throughput => "operations/s",
            Self::ClientCpu | Self::ServerCpu => "ns of CPU/operation",
            Self::Errors => "of all operations",
            _ => "ns",
        }
    }

    pub(super) fn more_is_better(self) -> bool {
        self == Self::Throughput
    }

    /// Whether it is known of all operations together only.
    pub(super) fn is_of_all(self) -> bool {
        matches!(self, Self::ClientCpu | Self::ServerCpu | Self::Errors)
    }

    /// How many acknowledged operations a percentile takes in each trial; none of other figures.
    pub(super) fn takes(self) -> Option<u64> {
        let percent = match self {
            Self::P50 => 50.0,
            Self::P95 => 95.0,
            Self::P99 => 99.0,
            Self::P999 => 99.9,
            _ => return None,
        };
        Some(enough(percent))
    }

    /// The value with its unit, rounded for readers.
    pub(super) fn shown(self, value: f64) -> String {
        match self {
            Self::Throughput => acidtest_model::figure::rate(value),
            Self::Errors => percent(value),
            _ => acidtest_model::figure::nanoseconds(value),
        }
    }

    fn of_times(self, times: &LatencyFigures) -> Option<f64> {
        let value = match self {
            Self::P50 => times.p50(),
            Self::P95 => times.p95(),
            Self::P99 => times.p99(),
            Self::P999 => times.p999(),
            Self::Max => Some(times.max_ns),
            _ => None,
        };
        value.map(|value| value as f64)
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl FromStr for Figure {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.map(Self::name);
        Self::ALL.into_iter().find(|each| each.name() == word).ok_or_else(|| {
            let hint = acidtest_model::hint(word, known);
            format!("unknown figure \"{word}\"{hint} (known are {})", known.join(", "))
        })
    }
}

/// The figures of one trial, of all operations together and of each.
pub(super) struct TrialFigures {
    pub(super) turn: RoundId,
    /// Acknowledged operations a second, over all operations.
    throughput: f64,
    times: Option<LatencyFigures>,
    client: Option<f64>,
    server: Option<f64>,
    /// The share of errors, and of how many operations.
    errors: Option<(f64, u64)>,
    operations: Vec<OperationFigures>,
    spans: Vec<SpanFigures>,
    /// The answers to all that throughput counts, and to each operation.
    answers: Answers,
    answers_to_each: Vec<Answers>,
}

impl TrialFigures {
    /// The number of operations that ended in errors, and of all; none of a trial in which nothing ended.
    pub(super) fn counts_of_errors(&self) -> Option<(f64, f64)> {
        let (share, all) = self.errors?;
        Some((share * all as f64, all as f64))
    }

    /// The answers to all operations that throughput counts, or to one operation; none of what is no operation.
    pub(super) fn answers(&self, operation: Option<&str>) -> Answers {
        let Some(name) = operation else { return self.answers };
        let mut each = self.operations.iter().zip(&self.answers_to_each);
        each.find(|(operation, _)| operation.name == name)
            .map_or_else(Answers::default, |(_, answers)| *answers)
    }

    /// A figure of all operations together, of one of them, or of a span, which has times only. A percentile of too few times is
    /// none.
    pub(super) fn get(&self, operation: Option<&str>, figure: Figure) -> Option<f64> {
        match operation {
            None => match figure {
                Figure::Throughput => Some(self.throughput),
                Figure::ClientCpu => self.client,
                Figure::ServerCpu => self.server,
                Figure::Errors => self.errors.map(|(share, _)| share),
                _ => figure.of_times(self.times.as_ref()?),
            },
            Some(name) => match self.operations.iter().find(|operation| operation.name == name) {
                Some(operation) if figure == Figure::Throughput => Some(operation.ok_per_second),
                Some(operation) => figure.of_times(operation.ok()?),
                None => figure.of_times(&self.spans.iter().find(|span| span.name == name)?.times),
            },
        }
    }
}

/// The figures of a cell's trials that were not cut short.
pub(super) fn trials(run: &RunResult, cell: &CellResult) -> Result<Vec<TrialFigures>, UnreadableHistogram> {
    cell.whole_trials().map(|trial| of_trial(run, cell, trial)).collect()
}

fn of_trial(
    run: &RunResult,
    cell: &CellResult,
    trial: &TrialResult,
) -> Result<TrialFigures, UnreadableHistogram> {
    let acknowledged = trial.throughput * trial.seconds;
    let in_measured_part = trial.seconds / seconds_seen(trial);
    let each = |seconds: f64| (acknowledged > 0.0).then(|| seconds * in_measured_part * 1e9 / acknowledged);
    Ok(TrialFigures {
        turn: trial.turn(),
        throughput: trial.throughput,
        times: LatencyFigures::merged(trial.counted_operations().filter_map(OperationFigures::ok))?,
        client: each(trial.resources.client.cpu_seconds),
        server: server_cpu(cell, &trial.resources).and_then(each),
        errors: trial.errors_of_all(),
        operations: trial.operations.clone(),
        spans: trial.spans.clone(),
        answers: run.answered(trial.answers(None)),
        answers_to_each: trial.operations.iter().map(|each| run.answered(Answers::of([each]))).collect(),
    })
}
