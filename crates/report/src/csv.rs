//! A result as CSV (RFC 4180): one row for each trial and operation, one for each span of a trial, and one for each
//! trial as a whole. Columns are named after the fields, in their order; the names hold the units.

use std::{fmt::Display, io};

use acidtest_model::{
    Consistency, Durability, EffectiveDurability, Encryption, Lock, Reads, Replication, Route,
};
use acidtest_results::{
    Behind, CellResult, LatencyFigures, OperationFigures, RunResult, SpanFigures, TrialResult,
    UnreadableHistogram,
    dimensions::{
        ADDRESS, CLIENTS, CONSISTENCY, DURABILITY, FAULT, LOCK, NODES, RATE, READS, REPLICATION, ROUTE,
        STORE, TLS, dimension_names,
    },
    distinct, total,
};
use acidtest_workloads::{Spread, Staleness, Verdict};
use csv::{Terminator, Writer, WriterBuilder};
use serde::{Serialize, Serializer};

/// The reason why a result could not be written as CSV.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    /// A histogram in the result cannot be read.
    #[error(transparent)]
    Histogram(#[from] UnreadableHistogram),
    /// The CSV writer refused a row.
    #[error("cannot write CSV: {0}")]
    Row(#[from] csv::Error),
}

/// Dimensions that have a column in every result.
const OF_EVERY_RESULT: [&str; 13] = [
    STORE,
    ADDRESS,
    LOCK,
    DURABILITY,
    TLS,
    NODES,
    REPLICATION,
    READS,
    ROUTE,
    CONSISTENCY,
    FAULT,
    CLIENTS,
    RATE,
];

/// Writes the results as one table. Each parameter of the workloads has its own column, `parameter_NAME`, after all
/// others. The row of a trial as a whole has the operation `(all)`; figures of the whole trial stand in that row
/// alone.
///
/// # Errors
/// A histogram that cannot be read, or a row that the CSV writer refuses.
pub fn csv<'a>(results: impl IntoIterator<Item = &'a RunResult>) -> Result<String, CsvError> {
    let results: Vec<&RunResult> = results.into_iter().collect();
    let cells = results.iter().flat_map(|result| &result.cells);
    let parameters: Vec<&String> = distinct(cells.flat_map(|cell| cell.parameters.keys()));
    let mut table = table();
    let axes: Vec<&str> = dimension_names().filter(|name| !OF_EVERY_RESULT.contains(name)).collect();
    let named = axes.iter().map(|name| (*name).to_owned());
    let named = named.chain(parameters.iter().map(|name| format!("parameter_{name}")));
    table.write_record(columns()?.into_iter().chain(named))?;
    for result in results {
        for cell in &result.cells {
            let value =
                |name: &&String| cell.parameters.contains_key(*name).then(|| text(cell.dimension(name)));
            let on_axes = axes.iter().map(|name| Some(text(cell.dimension(name))));
            let values: Vec<Option<Text>> = on_axes.chain(parameters.iter().map(value)).collect();
            for trial in &cell.trials {
                let about = About::of(result, cell, trial);
                table.serialize((&about, Figures::of_all(trial)?, OfTrial::of(trial), &values))?;
                let operations = trial.operations.iter().map(|each| Figures::of_operation(trial, each));
                for figures in operations.chain(trial.spans.iter().map(Figures::of_span)) {
                    table.serialize((&about, figures, OfTrial::default(), &values))?;
                }
            }
        }
    }
    written(table)
}

/// Names of the columns that every result has.
fn columns() -> Result<Vec<String>, CsvError> {
    let mut table = WriterBuilder::new().from_writer(Vec::new());
    table.serialize((About::default(), Figures::default(), OfTrial::default()))?;
    let text = written(table)?;
    Ok(text.lines().next().unwrap_or_default().split(',').map(str::to_owned).collect())
}

/// A CSV writer without an automatic header: parameters are columns but no fields, so the header is written by hand.
fn table() -> Writer<Vec<u8>> {
    WriterBuilder::new().has_headers(false).terminator(Terminator::CRLF).from_writer(Vec::new())
}

fn written(table: Writer<Vec<u8>>) -> Result<String, CsvError> {
    let bytes = table.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    // every field is text, so the bytes are UTF-8
    Ok(String::from_utf8(bytes).map_err(|error| csv::Error::from(io::Error::other(error)))?)
}

/// The columns that say which cell and trial a row belongs to.
#[derive(Default, Serialize)]
struct About {
    run: Text,
    workload: Text,
    store: Text,
    version: Text,
    address: Text,
    lock: Option<Lock>,
    durability_asked: Option<Durability>,
    durability_effective: Option<EffectiveDurability>,
    tls: Encryption,
    nodes: u32,
    replication: Replication,
    replication_effective: Option<Replication>,
    reads: Reads,
    route: Option<Route>,
    consistency: Option<Consistency>,
    consistency_effective: Option<Consistency>,
    fault: Text,
    clients: u32,
    offered_per_second: Option<Decimal>,
    round: u32,
    verdict: Option<Verdict>,
    findings: Text,
    seconds: Decimal,
}

impl About {
    fn of(result: &RunResult, cell: &CellResult, trial: &TrialResult) -> Self {
        let (effective, read) = (cell.effective.as_ref(), cell.replication_read.as_ref());
        let at_replicas = !cell.reads.is_leader();
        let found = trial.audit.findings.iter().filter(|finding| finding.count > 0);
        let found: Vec<String> = found.map(|finding| format!("{} {}", finding.name, finding.count)).collect();
        Self {
            run: text(&result.run),
            workload: text(&result.plan.workload),
            store: text(&cell.store),
            version: effective.map(|effective| text(&effective.version)).unwrap_or_default(),
            address: cell.address.as_ref().map(text).unwrap_or_default(),
            lock: Some(cell.lock),
            durability_asked: cell.durability_asked,
            durability_effective: effective.map(|effective| effective.durability),
            tls: cell.tls,
            nodes: cell.nodes,
            replication: cell.replication,
            replication_effective: read.map(|read| read.level),
            reads: cell.reads,
            route: at_replicas.then_some(cell.route),
            consistency: at_replicas.then_some(cell.consistency),
            consistency_effective: read.filter(|_| at_replicas).map(|read| read.consistency),
            fault: text(cell.faults.to_string()),
            clients: cell.clients,
            offered_per_second: trial.rate.or(cell.rate).map(Decimal),
            round: trial.round,
            verdict: Some(trial.audit.verdict),
            findings: text(found.join("; ")),
            seconds: Decimal(trial.seconds),
        }
    }
}

/// The columns of one operation, one span, or all operations together.
#[derive(Default, Serialize)]
struct Figures {
    operation: Text,
    acknowledged_per_second: Option<Decimal>,
    ok: Option<u64>,
    refused: Option<u64>,
    conflict: Option<u64>,
    failed: Option<u64>,
    unknown: Option<u64>,
    conflicting_attempts: Option<u64>,
    refused_attempts: Option<u64>,
    retries: Option<u64>,
    service_mean_ns: Option<Decimal>,
    service_p50_ns: Option<u64>,
    service_p95_ns: Option<u64>,
    service_p99_ns: Option<u64>,
    service_p999_ns: Option<u64>,
    service_max_ns: Option<u64>,
    response_mean_ns: Option<Decimal>,
    response_p50_ns: Option<u64>,
    response_p95_ns: Option<u64>,
    response_p99_ns: Option<u64>,
    response_p999_ns: Option<u64>,
    response_max_ns: Option<u64>,
    first_ns: Option<u64>,
}

impl Figures {
    /// All operations of a trial together.
    fn of_all(trial: &TrialResult) -> Result<Self, UnreadableHistogram> {
        let counted = || trial.counted_operations();
        let service = LatencyFigures::merged(counted().filter_map(|each| each.service.get("ok")))?;
        let response = LatencyFigures::merged(counted().filter_map(|each| each.response.get("ok")))?;
        Ok(Self {
            operation: text("(all)"),
            acknowledged_per_second: Some(Decimal(trial.throughput)),
            ..Self::counts(&trial.operations).with_times(service.as_ref(), response.as_ref())
        })
    }

    fn of_operation(trial: &TrialResult, operation: &OperationFigures) -> Self {
        Self {
            operation: text(&operation.name),
            acknowledged_per_second: Some(Decimal(operation.ok_per_second)),
            first_ns: trial.remarks.first_ns.get(&operation.name).copied(),
            ..Self::counts(std::slice::from_ref(operation))
                .with_times(operation.service.get("ok"), operation.response.get("ok"))
        }
    }

    /// Times of a span, which has no outcomes and no counts of attempts.
    fn of_span(span: &SpanFigures) -> Self {
        Self { operation: text(&span.name), ..Self::default().with_times(Some(&span.times), None) }
    }

    fn counts(operations: &[OperationFigures]) -> Self {
        let sum = |of: &dyn Fn(&OperationFigures) -> u64| Some(total(operations.iter().map(of)));
        let ended = |outcome| sum(&|each| each.service.get(outcome).map_or(0, |figures| figures.count));
        Self {
            ok: ended("ok"),
            refused: ended("refused"),
            conflict: ended("conflict"),
            failed: ended("failed"),
            unknown: ended("unknown"),
            conflicting_attempts: sum(&|each| each.conflicts),
            refused_attempts: sum(&|each| each.refusals),
            retries: sum(&|each| each.retries),
            ..Self::default()
        }
    }

    fn with_times(self, service: Option<&LatencyFigures>, response: Option<&LatencyFigures>) -> Self {
        // rounded to whole nanoseconds, like the other times
        let mean = |figures: &LatencyFigures| Decimal(figures.mean_ns.round_ties_even());
        Self {
            service_mean_ns: service.map(mean),
            service_p50_ns: service.and_then(LatencyFigures::p50),
            service_p95_ns: service.and_then(LatencyFigures::p95),
            service_p99_ns: service.and_then(LatencyFigures::p99),
            service_p999_ns: service.and_then(LatencyFigures::p999),
            service_max_ns: service.map(|figures| figures.max_ns),
            response_mean_ns: response.map(mean),
            response_p50_ns: response.and_then(LatencyFigures::p50),
            response_p95_ns: response.and_then(LatencyFigures::p95),
            response_p99_ns: response.and_then(LatencyFigures::p99),
            response_p999_ns: response.and_then(LatencyFigures::p999),
            response_max_ns: response.map(|figures| figures.max_ns),
            ..self
        }
    }
}

/// The columns that are known of a trial as a whole only; empty in the rows of operations and spans.
#[derive(Default, Serialize)]
struct OfTrial {
    offered: Option<u64>,
    started: Option<u64>,
    completed: Option<u64>,
    late: Option<u64>,
    dropped: Option<u64>,
    reconnects: Option<u64>,
    connect_ns: Option<Decimal>,
    faults: Option<u64>,
    served_seconds: Option<Decimal>,
    rows_at_start: Option<u64>,
    load_seconds: Option<Decimal>,
    rows_at_end: Option<u64>,
    data_bytes: Option<u64>,
    index_bytes: Option<u64>,
    reads_compared: Option<u64>,
    reads_at_leader: Option<u64>,
    stale_reads: Option<u64>,
    stale_versions_p50: Option<Decimal>,
    stale_versions_p99: Option<Decimal>,
    stale_versions_max: Option<Decimal>,
    stale_ms_p50: Option<Decimal>,
    stale_ms_p99: Option<Decimal>,
    stale_ms_max: Option<Decimal>,
    own_writes_missed: Option<u64>,
    went_back: Option<u64>,
    client_cpu_seconds: Option<Decimal>,
    client_cpu_max_cores: Option<Decimal>,
    client_memory_max_bytes: Option<u64>,
    server_cpu_seconds: Option<Decimal>,
    server_cpu_max_cores: Option<Decimal>,
    server_memory_max_bytes: Option<u64>,
    server_read_bytes: Option<u64>,
    server_written_bytes: Option<u64>,
    machine_cpu_mean_cores: Option<Decimal>,
    machine_pressure_cpu_percent: Option<Decimal>,
    machine_pressure_io_percent: Option<Decimal>,
    stopped: Text,
}

impl OfTrial {
    fn of(trial: &TrialResult) -> Self {
        let (arrived, used) = (trial.arrived, &trial.resources);
        let seen = trial.staleness.as_ref();
        let behind = |of: fn(&Staleness) -> Option<Spread>| {
            seen.and_then(|seen| Some(Behind::of(of(seen)?, seen.stale)))
        };
        let (versions, milliseconds) = (behind(|seen| seen.versions), behind(|seen| seen.milliseconds));
        let (client, server, machine) = (&used.client, used.server.as_ref(), &used.machine);
        Self {
            offered: Some(arrived.offered),
            started: Some(arrived.started),
            completed: Some(arrived.completed),
            late: Some(arrived.late),
            dropped: Some(arrived.dropped),
            reconnects: Some(trial.reconnects),
            connect_ns: trial.connect_ns.map(Decimal),
            faults: Some(total(trial.faults.values().copied())),
            served_seconds: trial.served_seconds.map(Decimal),
            rows_at_start: Some(trial.data.rows),
            load_seconds: trial.data.load_seconds.map(Decimal),
            rows_at_end: trial.size.as_ref().map(|size| size.rows),
            data_bytes: trial.size.as_ref().and_then(|size| size.data_bytes),
            index_bytes: trial.size.as_ref().and_then(|size| size.index_bytes),
            reads_compared: seen.map(|seen| seen.reads),
            reads_at_leader: seen.map(|seen| seen.at_leader),
            stale_reads: seen.map(|seen| seen.stale),
            stale_versions_p50: versions.and_then(|behind| behind.p50).map(Decimal),
            stale_versions_p99: versions.and_then(|behind| behind.p99).map(Decimal),
            stale_versions_max: versions.map(|behind| Decimal(behind.max)),
            stale_ms_p50: milliseconds.and_then(|behind| behind.p50).map(Decimal),
            stale_ms_p99: milliseconds.and_then(|behind| behind.p99).map(Decimal),
            stale_ms_max: milliseconds.map(|behind| Decimal(behind.max)),
            own_writes_missed: seen.map(|seen| seen.own_writes_missed),
            went_back: seen.map(|seen| seen.went_back),
            client_cpu_seconds: Some(Decimal(client.cpu_seconds)),
            client_cpu_max_cores: Some(Decimal(client.cpu_max)),
            client_memory_max_bytes: Some(client.memory_max_bytes),
            server_cpu_seconds: server.map(|server| Decimal(server.cpu_seconds)),
            server_cpu_max_cores: server.map(|server| Decimal(server.cpu_max)),
            server_memory_max_bytes: server.map(|server| server.memory_max_bytes),
            server_read_bytes: server.and_then(|server| server.read_bytes),
            server_written_bytes: server.and_then(|server| server.written_bytes),
            machine_cpu_mean_cores: Some(Decimal(machine.cpu_mean)),
            machine_pressure_cpu_percent: machine.pressure_cpu_some.map(Decimal),
            machine_pressure_io_percent: machine.pressure_io_some.map(Decimal),
            stopped: trial.stopped.as_ref().map(|stopped| text(&stopped.reason)).unwrap_or_default(),
        }
    }
}

/// Text, with an apostrophe put before it where a spreadsheet would take it for a formula.
#[derive(Default)]
struct Text(String);

fn text(shown: impl Display) -> Text {
    Text(shown.to_string())
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(text) = self;
        let formula = text.starts_with(['=', '+', '@', '\t', '\r'])
            || (text.starts_with('-') && text.parse::<f64>().is_err());
        if formula {
            serializer.collect_str(&format_args!("'{text}"))
        } else {
            serializer.serialize_str(text)
        }
    }
}

/// A number written with all of its digits and without an exponent; without a fraction where it is whole.
#[derive(Default)]
struct Decimal(f64);

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::golden;
    use acidtest_results::sample::Grid;

    #[test]
    fn the_csv_is_the_golden_one() {
        let result = Grid { trials: 1, ..Grid::default() }.result();
        let text = csv([&result]).unwrap();
        let widths: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert!(widths.iter().all(|width| *width == columns().unwrap().len() + 2), "{widths:?}");
        // two cells of one trial: all and two operations each
        assert_eq!(widths.len(), 1 + 2 * 3);
        golden("report.csv", &text);
    }

    #[test]
    fn reads_at_replicas_have_columns_of_their_own() {
        let text = csv([&acidtest_results::sample::reads_at_replicas()]).unwrap();
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        let [header, rows @ ..] = &rows[..] else { panic!("{text}") };
        let of = |row: &[&str], name: &str| {
            row[header.iter().position(|column| *column == name).unwrap()].to_owned()
        };
        let whole: Vec<_> = rows.iter().filter(|row| of(row, "operation") == "(all)").collect();
        let shown = |row: &[&str], names: &[&str]| {
            names.iter().map(|name| of(row, name)).collect::<Vec<_>>().join(" ")
        };
        let names = [
            "reads",
            "route",
            "consistency",
            "consistency_effective",
            "stale_reads",
            "stale_ms_max",
            "went_back",
        ];
        // three trials of each cell
        assert_eq!(shown(whole[0], &names).trim_end(), "leader");
        assert_eq!(shown(whole[3], &names), "replica pinned eventual eventual 1001 30 1");
        assert_eq!(shown(whole[8], &names), "any spread eventual eventual 1003 90 3");
        assert_eq!(shown(whole[9], &names), "any spread strong strong 0  0");
        // 1,001 stale reads have ten beyond their p99, 999 have not
        let mut result = acidtest_results::sample::reads_at_replicas();
        result.cells[1].trials[0].staleness.as_mut().unwrap().stale = 999;
        let few = csv([&result]).unwrap();
        let few: Vec<&str> = few.lines().find(|line| line.contains(",999,")).unwrap().split(',').collect();
        let names = ["stale_ms_p50", "stale_ms_p99", "stale_ms_max"];
        assert_eq!((shown(whole[3], &names), shown(&few, &names)), ("1.5 10.5 30".into(), "1.5  30".into()));
        assert_eq!(shown(&rows[10], &["operation", "stale_reads"]), "read ");
    }

    /// A result without any trial still has its columns.
    #[test]
    fn nothing_is_a_header() {
        let header = columns().unwrap();
        assert_eq!(csv([]).unwrap(), header.join(",") + "\r\n");
        assert_eq!((header[0].as_str(), header.len()), ("run", 83));
    }

    #[test]
    fn fields_are_quoted_and_no_formulas() {
        let fields = ["a,b", "say \"hi\"", "=1+1", "-5", "-x", "a\nb", "", "it's # 1"].map(text);
        let mut table = table();
        table.serialize((fields, [1e21, 0.5, -3.0, 1e-7].map(Decimal))).unwrap();
        assert_eq!(
            written(table).unwrap(),
            "\"a,b\",\"say \"\"hi\"\"\",'=1+1,-5,'-x,\"a\nb\",,it's # 1,\
             1000000000000000000000,0.5,-3,0.0000001\r\n"
        );
    }
}
