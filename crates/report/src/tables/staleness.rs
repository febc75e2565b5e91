//! A table of what reads at replicas missed.

use acidtest_model::{count, figure::nanoseconds};
use acidtest_results::{
    Behind, CellResult, CellStaleness, RunResult,
    dimensions::{LOCK, NOT_THERE, STORE},
};

use super::Columns;
use crate::table::{Entry, Priority, Table};

/// Every cell whose reads were compared with the ledger, and how old they were.
pub(crate) fn stale(result: &RunResult) -> impl Iterator<Item = (&CellResult, CellStaleness)> {
    result.cells.iter().filter_map(|cell| Some((cell, cell.staleness()?)))
}

/// One row for each cell whose members need not lead to answer reads: the share of its reads that were stale, how far these were
/// behind, and how often a client missed what it had itself written or read.
pub(crate) fn staleness(result: &RunResult, columns: &Columns<'_>) -> Table {
    use Priority::{High, Low, Middle, Needed};
    let led = stale(result).any(|(_, seen)| seen.at_leader > 0);
    let mut titles = vec![("verdict", Low), ("reads compared", High)];
    titles.extend(led.then_some(("at replicas", Middle)));
    titles.extend([
        ("stale", Needed),
        ("p50 behind", High),
        ("p99 behind", Middle),
        ("at most", Needed),
        ("p99 versions", Low),
        ("own missed", High),
        ("went back", High),
    ]);
    let mut table = columns.table(titles);
    for (cell, seen) in stale(result) {
        let of = |part: u64| Entry::right(share_of(part, seen.reads));
        let counted =
            |number: u64| Entry::right(if seen.reads > 0 { count(number) } else { NOT_THERE.to_owned() });
        let behind = |of: fn(&Behind) -> Option<f64>| {
            let milliseconds = seen.milliseconds.as_ref().and_then(of);
            Entry::right(milliseconds.map_or_else(|| NOT_THERE.to_owned(), behind))
        };
        let mut row = columns.entries(cell);
        row.extend([Entry::verdict(cell.verdict(), cell.verdict()), Entry::right(count(seen.reads))]);
        row.extend(led.then(|| of(seen.at_replicas())));
        row.extend([
            of(seen.stale),
            behind(|each| each.p50),
            behind(|each| each.p99),
            behind(|each| Some(each.max)),
        ]);
        let missed = seen.versions.and_then(|each| each.p99);
        row.push(Entry::right(missed.map_or_else(|| NOT_THERE.to_owned(), versions)));
        row.extend([counted(seen.own_writes_missed), counted(seen.went_back)]);
        table.push(row);
    }
    table.demote_same(&[STORE, LOCK]);
    table
}

/// How old what a read missed was when the read began.
pub(crate) fn behind(milliseconds: f64) -> String {
    nanoseconds(milliseconds * 1e6)
}

/// A number of versions, which a median may halve.
fn versions(number: f64) -> String {
    if number.fract() > 0.0 { format!("{number:.1}") } else { format!("{number:.0}") }
}

/// A share of reads: one that is not 0 is not shown as if it were, nor one that is not all as if it were all.
pub(crate) fn share_of(part: u64, whole: u64) -> String {
    match part as f64 / whole as f64 * 100.0 {
        _ if whole == 0 => NOT_THERE.to_owned(),
        _ if part == 0 => "0 %".to_owned(),
        share if share < 0.005 => "< 0.01 %".to_owned(),
        share if share < 9.995 => format!("{share:.2} %"),
        share if share >= 99.95 && part < whole => "> 99.9 %".to_owned(),
        share => format!("{share:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use acidtest_results::{dimensions::Names, sample};

    fn shown(result: &RunResult) -> String {
        let names = Names::of(&result.cells);
        staleness(result, &Columns::of(result, &names)).markdown()
    }

    #[test]
    fn what_reads_at_replicas_missed_has_a_row_for_each_cell_that_has_some() {
        assert_eq!(shown(&sample::Grid::default().result()).lines().count(), 2, "nobody reads at replicas");
        let mut result = sample::reads_at_replicas();
        let text = shown(&result);
        assert_eq!(text.lines().count(), 2 + 3, "{text}");
        let row = "| any | spread | eventual | holds | 150,000 | 66.0 % | 2.00 % | 1.50 ms | 10.5 ms | 90.0 ms | 7 | 24 | 6 |";
        assert!(text.contains(row), "{text}");
        let row = "| any | spread | strong | holds | 150,000 | 66.0 % | 0 % | – | – | – | – | 0 | 0 |";
        assert!(text.contains(row), "{text}");
        // a percentile is shown only if ten stale reads lie beyond it, the worst always
        for trial in &mut result.cells[2].trials {
            trial.staleness.as_mut().unwrap().stale = 20;
        }
        let row = "| 150,000 | 66.0 % | 0.04 % | 1.50 ms | – | 90.0 ms | – | 24 | 6 |";
        assert!(shown(&result).contains(row), "{}", shown(&result));
        // a cell that read nothing says nothing
        let none = acidtest_workloads::Staleness::default();
        result.cells[3].trials.iter_mut().for_each(|trial| trial.staleness = Some(none));
        assert!(
            shown(&result).contains("| strong | holds | 0 | – | – | – | – | – | – | – | – |"),
            "{}",
            shown(&result)
        );
    }

    #[test]
    fn a_share_is_not_shown_as_what_it_is_not() {
        let shares = [(0, 9, "0 %"), (0, 0, "–"), (1, 1_000_000, "< 0.01 %"), (1, 10_000, "0.01 %")];
        let others = [(1, 80, "1.25 %"), (1, 8, "12.5 %"), (99_999, 100_000, "> 99.9 %"), (7, 7, "100.0 %")];
        for (part, whole, shown) in shares.into_iter().chain(others) {
            assert_eq!(share_of(part, whole), shown, "{part} of {whole}");
        }
    }
}
