//! A result as CSV (RFC 4180): one row for each trial and operation, one for each of its spans, and one for each
//! trial as a whole.

use std::fmt::Display;

use acidtest_observe::ProcessUse;

use crate::{
    CellResult, LatencyFigures, OperationFigures, RunResult, SpanFigures, TrialResult, UnreadableHistogram,
    figure::total,
};

/// The columns that every result has; units stand in the names.
const HEADER: [&str; 58] = [
    "run",
    "workload",
    "store",
    "version",
    "address",
    "lock",
    "durability_asked",
    "durability_effective",
    "clients",
    "offered_per_second",
    "round",
    "verdict",
    "findings",
    "seconds",
    "operation",
    "acknowledged_per_second",
    "ok",
    "refused",
    "conflict",
    "failed",
    "unknown",
    "conflicting_attempts",
    "refused_attempts",
    "retries",
    "service_mean_ns",
    "service_p50_ns",
    "service_p95_ns",
    "service_p99_ns",
    "service_p999_ns",
    "service_max_ns",
    "response_mean_ns",
    "response_p50_ns",
    "response_p95_ns",
    "response_p99_ns",
    "response_p999_ns",
    "response_max_ns",
    "first_ns",
    "offered",
    "started",
    "completed",
    "late",
    "dropped",
    "reconnects",
    "faults",
    "rows_at_start",
    "load_seconds",
    "client_cpu_seconds",
    "client_cpu_max_cores",
    "client_memory_max_bytes",
    "server_cpu_seconds",
    "server_cpu_max_cores",
    "server_memory_max_bytes",
    "server_read_bytes",
    "server_written_bytes",
    "machine_cpu_mean_cores",
    "machine_pressure_cpu_percent",
    "machine_pressure_io_percent",
    "stopped",
];

/// The results as one table. Parameters of the workloads have a column each, `parameter_NAME`. The row of a trial as a
/// whole has the operation `(all)`; figures that are of the trial stand in it alone.
///
/// # Errors
/// A histogram that cannot be read.
pub fn csv<'a>(results: impl IntoIterator<Item = &'a RunResult>) -> Result<String, UnreadableHistogram> {
    let results: Vec<&RunResult> = results.into_iter().collect();
    let mut parameters: Vec<&str> = Vec::new();
    for name in results.iter().flat_map(|result| &result.cells).flat_map(|cell| cell.parameters.keys()) {
        if !parameters.contains(&name.as_str()) {
            parameters.push(name);
        }
    }
    let named = parameters.iter().map(|name| format!("parameter_{name}"));
    let mut text = line(HEADER.map(str::to_owned).into_iter().chain(named));
    for result in results {
        for cell in &result.cells {
            for trial in &cell.trials {
                let values = parameters.iter().map(|name| {
                    if cell.parameters.contains_key(*name) { cell.dimension(name) } else { String::new() }
                });
                let values: Vec<String> = values.collect();
                let head = head(result, cell, trial);
                let rows = std::iter::once(Ok(whole(trial)?))
                    .chain(trial.operations.iter().map(|operation| Ok(of_operation(trial, operation))))
                    .chain(trial.spans.iter().map(|span| Ok(of_span(span))));
                for row in rows {
                    text += &line(head.iter().cloned().chain(row?).chain(values.iter().cloned()));
                }
            }
        }
    }
    Ok(text)
}

fn head(result: &RunResult, cell: &CellResult, trial: &TrialResult) -> Vec<String> {
    let effective = cell.effective.as_ref();
    let found = trial.audit.findings.iter().filter(|finding| finding.count > 0);
    let found: Vec<String> = found.map(|finding| format!("{} {}", finding.name, finding.count)).collect();
    vec![
        result.run.clone(),
        result.plan.workload.clone(),
        cell.store.clone(),
        effective.map_or_else(String::new, |effective| effective.version.clone()),
        cell.address.clone().unwrap_or_default(),
        cell.lock.to_string(),
        or_empty(cell.durability_asked),
        or_empty(effective.map(|effective| effective.durability)),
        cell.clients.to_string(),
        or_empty(cell.rate),
        trial.round.to_string(),
        trial.audit.verdict.to_string(),
        found.join("; "),
        trial.seconds.to_string(),
    ]
}

/// The trial as a whole: all of its operations, and what is known of nothing smaller.
fn whole(trial: &TrialResult) -> Result<Vec<String>, UnreadableHistogram> {
    let sum = |of: &dyn Fn(&OperationFigures) -> u64| total(trial.operations.iter().map(of)).to_string();
    let counted = || trial.counted_operations();
    let service = LatencyFigures::merged(counted().filter_map(|each| each.service.get("ok")))?;
    let response = LatencyFigures::merged(counted().filter_map(|each| each.response.get("ok")))?;
    let mut row = vec!["(all)".to_owned(), trial.throughput.to_string()];
    row.extend(OUTCOMES.map(|outcome| sum(&|each| ended(each, outcome))));
    row.extend([sum(&|each| each.conflicts), sum(&|each| each.refusals), sum(&|each| each.retries)]);
    row.extend(times(service.as_ref()));
    row.extend(times(response.as_ref()));
    let arrived = trial.arrived;
    row.push(String::new());
    row.extend(
        [arrived.offered, arrived.started, arrived.completed, arrived.late, arrived.dropped]
            .map(|n| n.to_string()),
    );
    let faults = total(trial.faults.values().copied());
    row.extend([trial.reconnects, faults, trial.data.rows].map(|n| n.to_string()));
    row.push(or_empty(trial.data.load_seconds));
    let used = &trial.resources;
    row.extend(process(Some(&used.client)));
    row.extend(process(used.server.as_ref()));
    let server = used.server.as_ref();
    row.push(or_empty(server.and_then(|server| server.read_bytes)));
    row.push(or_empty(server.and_then(|server| server.written_bytes)));
    row.push(used.machine.cpu_mean.to_string());
    row.push(or_empty(used.machine.pressure_cpu_some));
    row.push(or_empty(used.machine.pressure_io_some));
    row.push(trial.stopped.as_ref().map_or_else(String::new, |stopped| stopped.reason.clone()));
    Ok(row)
}

fn of_operation(trial: &TrialResult, operation: &OperationFigures) -> Vec<String> {
    let mut row = vec![operation.name.clone(), operation.ok_per_second.to_string()];
    row.extend(OUTCOMES.map(|outcome| ended(operation, outcome).to_string()));
    row.extend([operation.conflicts, operation.refusals, operation.retries].map(|n| n.to_string()));
    row.extend(times(operation.service.get("ok")));
    row.extend(times(operation.response.get("ok")));
    row.push(or_empty(trial.remarks.first_ns.get(&operation.name)));
    // the others are of the trial
    row.resize(HEADER.len() - HEAD, String::new());
    row
}

/// Times that are no operation's own.
fn of_span(span: &SpanFigures) -> Vec<String> {
    let mut row = vec![span.name.clone(), String::new()];
    row.resize(row.len() + OUTCOMES.len() + EFFORTS, String::new());
    row.extend(times(Some(&span.times)));
    row.resize(HEADER.len() - HEAD, String::new());
    row
}

/// Columns of attempts: conflicting, refused, again.
const EFFORTS: usize = 3;

/// Columns that a row has whatever it is about.
const HEAD: usize = 14;

const OUTCOMES: [&str; 5] = ["ok", "refused", "conflict", "failed", "unknown"];

fn ended(operation: &OperationFigures, outcome: &str) -> u64 {
    operation.service.get(outcome).map_or(0, |figures| figures.count)
}

fn times(figures: Option<&LatencyFigures>) -> [String; 6] {
    let Some(figures) = figures else { return std::array::from_fn(|_| String::new()) };
    let LatencyFigures { mean_ns, p50_ns, p95_ns, p99_ns, p999_ns, max_ns, .. } = figures;
    [
        format!("{mean_ns:.0}"),
        p50_ns.to_string(),
        p95_ns.to_string(),
        p99_ns.to_string(),
        p999_ns.to_string(),
        max_ns.to_string(),
    ]
}

fn process(used: Option<&ProcessUse>) -> [String; 3] {
    [
        or_empty(used.map(|used| used.cpu_seconds)),
        or_empty(used.map(|used| used.cpu_max)),
        or_empty(used.map(|used| used.memory_max_bytes)),
    ]
}

fn or_empty(value: Option<impl Display>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// A line; what could be taken for a separator, or by a spreadsheet for a formula, is quoted or led by an apostrophe.
fn line(fields: impl Iterator<Item = String>) -> String {
    let quoted = fields.map(|field| {
        let formula = field.starts_with(['=', '+', '@', '\t', '\r'])
            || (field.starts_with('-') && field.parse::<f64>().is_err());
        let field = if formula { format!("'{field}") } else { field };
        if field.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            field
        }
    });
    quoted.collect::<Vec<_>>().join(",") + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Grid, golden};

    #[test]
    fn the_csv_is_the_golden_one() {
        let result = Grid { trials: 1, ..Grid::default() }.result();
        let text = csv([&result]).unwrap();
        let widths: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert!(widths.iter().all(|width| *width == HEADER.len() + 2), "{widths:?}");
        // two cells of one trial: all and two operations each
        assert_eq!(widths.len(), 1 + 2 * 3);
        golden("report.csv", &text);
    }

    #[test]
    fn fields_are_quoted_and_no_formulas() {
        let fields = ["a,b", "say \"hi\"", "=1+1", "-5", "-x", ""].map(str::to_owned);
        assert_eq!(line(fields.into_iter()), "\"a,b\",\"say \"\"hi\"\"\",'=1+1,-5,'-x,\r\n");
    }
}
