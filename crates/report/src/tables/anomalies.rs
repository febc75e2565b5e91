//! A table of the anomalies that were found in the histories of transactions.

use acidtest_model::count;
use acidtest_results::{RunResult, dimensions::NOT_THERE};
use acidtest_workloads::Verdict;

use super::Columns;
use crate::{
    histories::{History, Seen, histories, interval},
    table::{Entry, Priority, Table, Tone},
};

/// A row for each anomaly of a cell, or one that says that there was none.
pub(crate) fn anomalies(result: &RunResult, columns: &Columns<'_>) -> Table {
    let mut table = columns.table([
        ("verdict", Priority::Middle),
        ("anomaly", Priority::Needed),
        ("found", Priority::Needed),
        ("95 % interval", Priority::High),
        ("in commits", Priority::Needed),
        ("level", Priority::Needed),
    ]);
    for history in &histories(result) {
        let mut push = |seen: Option<&Seen<'_>>| {
            table.push(columns.entries(history.cell).into_iter().chain(row(history, seen)));
        };
        if history.seen.is_empty() {
            push(None);
        }
        history.seen.iter().for_each(|seen| push(Some(seen)));
    }
    table
}

fn row(history: &History<'_>, seen: Option<&Seen<'_>>) -> [Entry; 6] {
    let (judged, tone) = match seen {
        None => (NOT_THERE, Tone::Plain),
        Some(_) if !history.is_documented() => ("says nothing", Tone::Plain),
        Some(each) if each.broken > 0 => ("rules it out", Tone::Bad),
        Some(each) if each.is_loss => ("rules it out; a loss may explain it", Tone::Doubtful),
        Some(each) if each.anomaly.is_ruled_out => ("rules it out; in doubt", Tone::Doubtful),
        Some(_) => ("permits it", Tone::Plain),
    };
    let of_level = seen.map_or_else(|| judged.to_owned(), |_| format!("{} {judged}", history.level()));
    let verdict: Verdict = history.cell.verdict();
    [
        Entry::verdict(verdict.to_string(), verdict),
        Entry::left(seen.map_or_else(|| "none".to_owned(), Seen::title)),
        Entry::right(seen.map_or_else(|| count(0), Seen::times)),
        Entry::right(
            seen.map_or_else(|| Some(interval(0)), |seen| seen.interval(seen.count))
                .unwrap_or_else(|| NOT_THERE.to_owned()),
        ),
        Entry::right(count(history.committed)),
        Entry::toned(of_level, tone).or(judged),
    ]
}
