//! A table of how large tables are, and how many rows fit into what there is.

use acidtest_model::{
    Bytes, PerSecond, count,
    figure::{DAY, bytes, rate, three_digits},
};
use acidtest_results::{CellResult, RunResult, dimensions::NOT_THERE, total};
use acidtest_workloads::{Medium, TableSize, workload};

use super::Columns;
use crate::table::{Entry, Priority, Table};

/// One row for each cell whose store said how large its table was at the end: how fast it was loaded, its rows, and bytes
/// for each; and if that is
/// asked for, how many rows fit into an amount of memory or disk, and for how many days of the demand.
pub(crate) fn sizes(result: &RunResult, columns: &Columns<'_>) -> Table {
    let fits = result.plan.fits;
    let demand = demand(result);
    let mut titles = vec![
        ("loaded/s".to_owned(), Priority::High),
        ("rows".to_owned(), Priority::Middle),
        ("data a row".to_owned(), Priority::Middle),
        ("indexes a row".to_owned(), Priority::Middle),
        ("all of a row".to_owned(), Priority::Needed),
        ("kept".to_owned(), Priority::High),
    ];
    if let Some(fits) = fits {
        titles.push((format!("rows in {fits}"), Priority::Needed));
        titles.extend(
            demand.map(|PerSecond(rate)| (format!("days of {}/s", three_digits(rate)), Priority::Needed)),
        );
    }
    let none = || NOT_THERE.to_owned();
    let mut table = columns.table(titles.iter().map(|(title, worth)| (title.as_str(), *worth)));
    for cell in &result.cells {
        let Some(size) = Size::of(cell) else { continue };
        let mut row = columns.entries(cell);
        row.push(Entry::right(loaded(cell).map_or_else(none, rate)));
        row.push(Entry::right(count(size.rows)));
        row.extend(
            [size.data, size.indexes, size.all].map(|each| Entry::right(each.map_or_else(none, of_row))),
        );
        row.push(Entry::left(match size.medium {
            Medium::Memory => "in memory",
            Medium::Disk => "on disk",
        }));
        if let Some(fits) = fits {
            let rows = size.rows_in(fits);
            row.push(Entry::right(rows.map_or_else(none, three_digits_of_many)));
            row.extend(demand.map(|PerSecond(rate)| {
                Entry::right(rows.map_or_else(none, |rows| three_digits(rows / rate / DAY)))
            }));
        }
        table.push(row);
    }
    table
}

/// Rows that were loaded in a second before trials; none where the trials took over what others had left.
fn loaded(cell: &CellResult) -> Option<f64> {
    let loads =
        cell.trials.iter().filter_map(|trial| Some((trial.data.rows as f64, trial.data.load_seconds?)));
    let (rows, seconds) = loads.fold((0.0, 0.0), |all, each| (all.0 + each.0, all.1 + each.1));
    (rows > 0.0 && seconds > 0.0).then(|| rows / seconds)
}

/// The demand that rows are held against: the one asked for, or that of the workload's study.
pub(crate) fn demand(result: &RunResult) -> Option<PerSecond> {
    let of_study = || workload(&result.plan.workload)?.demand.map(PerSecond);
    result.plan.demand.or_else(of_study)
}

/// Bytes of a row, with a digit behind the point.
fn of_row(value: f64) -> String {
    if value < 1000.0 { format!("{value:.1} B") } else { bytes(value) }
}

/// A number of rows, which is no more exact than the bytes of a row.
fn three_digits_of_many(rows: f64) -> String {
    let unit = 10_f64.powf(rows.log10().floor().clamp(4.0, 300.0) - 4.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // it saturates, and no number of rows is negative
    count(((rows / unit).round() * unit) as u64)
}

/// The size of a cell's table over its trials, in bytes for each row.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Rows at the end of a trial, on average.
    rows: u64,
    /// Bytes of the row; none where the store does not tell rows from indexes.
    data: Option<f64>,
    /// Bytes that indexes take for it.
    indexes: Option<f64>,
    /// Both together; none where the store does not tell.
    all: Option<f64>,
    medium: Medium,
}

impl Size {
    /// None where no trial has a size, or a table without rows.
    fn of(cell: &CellResult) -> Option<Self> {
        let sizes: Vec<&TableSize> = cell.trials.iter().filter_map(|trial| trial.size.as_ref()).collect();
        let rows = total(sizes.iter().map(|size| size.rows));
        let each = |of: fn(&TableSize) -> Option<u64>| {
            let all: Option<Vec<u64>> = sizes.iter().map(|size| of(size)).collect();
            all.map(|all| total(all) as f64 / rows as f64)
        };
        let (data, indexes) = (each(|size| size.data_bytes), each(|size| size.index_bytes));
        let medium = sizes.first()?.medium;
        (rows > 0).then_some(Self {
            rows: rows / sizes.len() as u64,
            data: data.filter(|_| indexes.is_some()),
            indexes,
            all: data.map(|data| data + indexes.unwrap_or(0.0)),
            medium,
        })
    }

    /// How many rows fit into that much, if each takes as much as these do.
    fn rows_in(self, Bytes(room): Bytes) -> Option<f64> {
        self.all.filter(|all| *all > 0.0).map(|all| room as f64 / all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use acidtest_results::{dimensions::Names, sample::Grid};

    fn shown(result: &RunResult) -> String {
        let names = Names::of(&result.cells);
        sizes(result, &Columns::of(result, &names)).markdown()
    }

    /// The study's table: 474,601,526 rows in 30.7 GB, for 1.36 days of its demand.
    #[test]
    fn rows_that_fit_are_held_against_the_demand() {
        let mut result = Grid { trials: 2, ..Grid::default() }.result();
        "parcels".clone_into(&mut result.plan.workload);
        assert_eq!(shown(&result).lines().count(), 2, "no store has told anything");
        let size = |rows, data_bytes, index_bytes| TableSize {
            rows,
            data_bytes: Some(data_bytes),
            index_bytes,
            medium: Medium::Memory,
            source: "made up".to_owned(),
        };
        result.cells[0].trials[0].size = Some(size(1_000, 50_000, Some(14_686)));
        result.cells[0].trials[1].size = Some(size(3_000, 150_000, Some(44_058)));
        result.cells[1].trials[0].size = Some(size(1_000, 100_000, None));
        let text = shown(&result);
        assert!(text.contains("| 2,000 | 50.0 B | 14.7 B | 64.7 B | in memory |"), "{text}");
        assert!(text.contains("| 1,000 | – | – | 100.0 B | in memory |"), "{text}");
        result.plan.fits = Some("30.7GB".parse().unwrap());
        let text = shown(&result);
        assert!(text.contains("| rows in 30.7GB | days of 4,051/s |"), "{text}");
        assert!(text.contains("| 474,600,000 | 1.36 |"), "{text}");
        result.cells[1].trials[0].size.as_mut().unwrap().data_bytes = None;
        assert!(shown(&result).contains("| 1,000 | – | – | – | in memory | – | – |"), "{}", shown(&result));
        result.plan.demand = Some("1M/s".parse().unwrap());
        assert!(shown(&result).contains("days of 1,000,000/s"), "{}", shown(&result));
    }

    #[test]
    fn a_table_without_rows_says_nothing() {
        let mut result = Grid::default().result();
        let size = TableSize {
            rows: 0,
            data_bytes: Some(8_192),
            index_bytes: None,
            medium: Medium::Disk,
            source: "made up".to_owned(),
        };
        result.cells[0].trials[0].size = Some(size);
        assert_eq!(shown(&result).lines().count(), 2);
    }
}
