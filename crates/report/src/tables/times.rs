//! A table of the times that operations took.

use acidtest_engine::Outcome;

use super::{Columns, each, operations, spans};
use crate::table::{Entry, Priority, Table};
use acidtest_model::figure::{nanoseconds, rate};
use acidtest_results::{CellResult, LatencyFigures, RunResult, UnreadableHistogram, dimensions::NOT_THERE};

/// One row for each cell and operation: throughput and times. An open loop also has the response times, counted from
/// when an operation was due. The first, cold execution has its own row where it was measured; so has every outcome
/// other than ok, unless only acknowledged operations are wanted.
pub(crate) fn times(
    result: &RunResult,
    columns: &Columns<'_>,
    all: bool,
) -> Result<Table, UnreadableHistogram> {
    let mut table = columns.table([
        ("verdict", Priority::Needed),
        ("operation", Priority::Needed),
        ("ok/s", Priority::Middle),
        ("time", Priority::Needed),
        ("p50", Priority::High),
        ("p95", Priority::Low),
        ("p99", Priority::Needed),
        ("p99.9", Priority::Low),
        ("max", Priority::Middle),
    ]);
    for cell in &result.cells {
        for name in operations(cell) {
            let service = LatencyFigures::merged(each(cell, name).filter_map(|each| each.service.get("ok")))?;
            let response =
                LatencyFigures::merged(each(cell, name).filter_map(|each| each.response.get("ok")))?;
            let first = first(cell, name);
            let shown = [
                Some(("service", percentiles(service.as_ref()))),
                response.map(|figures| ("response", percentiles(Some(&figures)))),
                first.map(|figures| ("first", figures)),
            ];
            let per_second = cell.mean(|trial| trial.operation(name).map_or(0.0, |each| each.ok_per_second));
            for (times, figures) in shown.into_iter().flatten() {
                let mut row = columns.entries(cell);
                row.push(Entry::verdict(cell.verdict().to_string(), cell.verdict()));
                row.push(Entry::left(name));
                row.push(Entry::right(if times == "first" { "–".to_owned() } else { rate(per_second) }));
                row.push(Entry::left(times));
                row.extend(figures.map(Entry::right));
                table.push(row);
            }
            for outcome in Outcome::ALL.into_iter().filter(|outcome| all && *outcome != Outcome::Ok) {
                let ended = each(cell, name).filter_map(|each| each.service.get(outcome.name()));
                let Some(figures) = LatencyFigures::merged(ended)? else { continue };
                let mut row = columns.entries(cell);
                row.push(Entry::verdict(cell.verdict().to_string(), cell.verdict()));
                row.push(Entry::left(format!("{name}, {}", outcome.name())));
                row.push(Entry::right(NOT_THERE));
                row.push(Entry::left("service"));
                row.extend(percentiles(Some(&figures)).map(Entry::right));
                table.push(row);
            }
        }
        for span in spans(cell) {
            let figures = LatencyFigures::merged(each_span(cell, span))?;
            let mut row = columns.entries(cell);
            row.push(Entry::verdict(cell.verdict().to_string(), cell.verdict()));
            row.push(Entry::left(span));
            row.push(Entry::right(NOT_THERE));
            row.push(Entry::left("end to end"));
            row.extend(percentiles(figures.as_ref()).map(Entry::right));
            table.push(row);
        }
    }
    Ok(table)
}

fn each_span<'a>(cell: &'a CellResult, name: &str) -> impl Iterator<Item = &'a LatencyFigures> {
    let all = cell.measured_trials().into_iter().flat_map(|trial| &trial.spans);
    all.filter(move |span| span.name == name).map(|span| &span.times)
}

/// The first execution after loading: median and longest over the trials.
fn first(cell: &CellResult, name: &str) -> Option<[String; 5]> {
    let mut seen: Vec<u64> =
        cell.measured_trials().iter().filter_map(|trial| trial.remarks.first_ns.get(name).copied()).collect();
    seen.sort_unstable();
    let shown =
        |value: Option<&u64>| value.map_or_else(|| "–".to_owned(), |value| nanoseconds(*value as f64));
    let none = || "–".to_owned();
    (!seen.is_empty()).then(|| [shown(seen.get(seen.len() / 2)), none(), none(), none(), shown(seen.last())])
}

fn percentiles(figures: Option<&LatencyFigures>) -> [String; 5] {
    let Some(figures) = figures else { return ["–"; 5].map(str::to_owned) };
    [figures.p50(), figures.p95(), figures.p99(), figures.p999(), Some(figures.max_ns)]
        .map(|shown| shown.map_or_else(|| NOT_THERE.to_owned(), |value| nanoseconds(value as f64)))
}
