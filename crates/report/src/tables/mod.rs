//! The tables of a result, whichever format shows them.

mod anomalies;
mod capacity;
mod cells;
mod prices;
mod resources;
mod scalability;
mod sizes;
mod staleness;
mod times;

use std::collections::BTreeSet;

pub(crate) use self::{
    anomalies::anomalies,
    capacity::{capacities, capacity_prices, curves, days, found, limits, ran_out},
    cells::{cells, unpriced},
    prices::{locks, prices},
    resources::resources,
    scalability::scalability,
    sizes::{demand, sizes},
    staleness::{behind, share_of, stale, staleness},
    times::times,
};
use crate::table::{Entry, Priority, Table};
use acidtest_model::figure::{offered, three_digits};
use acidtest_results::{
    CellResult, OperationFigures, Ratio, RunResult,
    dimensions::{CONSISTENCY, DURABILITY, LOCK, NOT_THERE, Names, RATE, REPLICATION, STORE},
    distinct,
};

/// Number of cells above which a terminal does not show the resources that each of them used.
pub(crate) const MANY: usize = 24;

/// The first columns of every table, which tell the rows apart: the store, the lock, and whatever else differs
/// between the cells.
pub(crate) struct Columns<'a> {
    names: &'a Names,
    /// Whether any cell has something to protect by a lock, so that the lock has a column.
    lock: bool,
    others: Vec<String>,
    cells: &'a [CellResult],
    /// Whether a cell's number, from 1, stands for all of these columns.
    numbered: bool,
}

impl<'a> Columns<'a> {
    pub(crate) fn of(result: &'a RunResult, names: &'a Names) -> Self {
        let lock = result.cells.iter().any(|cell| cell.decides);
        let others = names.others().map(str::to_owned).collect();
        Self { names, lock, others, cells: &result.cells, numbered: false }
    }

    /// One column with the cell's number instead.
    pub(crate) fn numbered(&self) -> Self {
        Self { others: Vec::new(), numbered: true, ..*self }
    }

    /// The same columns without the dimension of this name.
    pub(crate) fn without(&self, name: &str) -> Self {
        let others = self.others.iter().filter(|other| *other != name).cloned().collect();
        Self { others, ..*self }
    }

    fn header(&self) -> Vec<&str> {
        if self.numbered {
            return vec!["cell"];
        }
        let own = [Some(STORE), self.lock.then_some(LOCK)];
        own.into_iter().flatten().chain(self.others.iter().map(String::as_str)).collect()
    }

    fn values(&self, cell: &CellResult) -> Vec<String> {
        if self.numbered {
            let place = self.cells.iter().position(|each| std::ptr::eq(each, cell));
            return vec![place.map_or_else(|| NOT_THERE.to_owned(), |place| (place + 1).to_string())];
        }
        let own = [Some(self.names.store(cell)), self.lock.then(|| cell.lock.to_string())];
        let others = self.others.iter().map(|name| match (name.as_str(), cell.rate) {
            (RATE, Some(rate)) => offered(rate) + "/s",
            (DURABILITY, _) => cell.durability_in_name(),
            (REPLICATION, _) => cell.replication_in_name(),
            (CONSISTENCY, _) => cell.consistency_in_name(),
            _ => cell.dimension(name),
        });
        own.into_iter().flatten().chain(others).collect()
    }

    pub(crate) fn entries(&self, cell: &CellResult) -> Vec<Entry> {
        let number = |text: &String| text.parse::<f64>().is_ok();
        self.values(cell)
            .into_iter()
            .map(|text| if number(&text) { Entry::right(text) } else { Entry::left(text) })
            .collect()
    }

    /// A table that begins with these columns and goes on with `rest`.
    pub(crate) fn table<'b>(&'b self, rest: impl IntoIterator<Item = (&'b str, Priority)>) -> Table {
        let own = self.header().into_iter().map(|title| (title, Priority::Needed));
        Table::new(own.chain(rest))
    }
}

/// A ratio with its interval, or with the remark that it has none; ≈ marks a ratio inside the noise.
pub(crate) fn ratio(ratio: &Ratio) -> String {
    let estimate = three_digits(ratio.estimate);
    let Some((low, high)) = ratio.interval else {
        return format!("×{estimate} ({})", if ratio.paired { "1 pair" } else { "1 trial" });
    };
    if !ratio.differs() && is_too_wide((low, high)) {
        return format!("×{estimate} (too few trials)");
    }
    let inside = if ratio.differs() { "" } else { " ≈" };
    // an interval without 1 shows on which side of it it lies
    let shown = |value: f64| match bound(value) {
        near if near == "1.00" && ratio.differs() => format!("{value:.3}"),
        other => other,
    };
    format!("×{estimate} ({}–{}){inside}", shown(low), shown(high))
}

/// Whether an interval says hardly anything: its upper bound is more than ten times the lower one.
pub(crate) fn is_too_wide((low, high): (f64, f64)) -> bool {
    high > 10.0 * low
}

/// A bound of an interval. Few trials make some so wide that their digits say nothing.
pub(crate) fn bound(value: f64) -> String {
    match value {
        value if value < 0.001 => "<0.001".to_owned(),
        value if value > 1000.0 => ">1,000".to_owned(),
        value => three_digits(value),
    }
}

/// Names of the operations that some trial of the cell tried, in the order in which they first occur.
pub(crate) fn operations(cell: &CellResult) -> Vec<&str> {
    distinct(cell.trials.iter().flat_map(|trial| &trial.operations).map(|operation| operation.name.as_str()))
}

/// The figures that each of the trials that count has of an operation; trials that never tried it are skipped.
pub(crate) fn each<'a>(cell: &'a CellResult, name: &str) -> impl Iterator<Item = &'a OperationFigures> {
    cell.measured_trials().into_iter().filter_map(move |trial| trial.operation(name))
}

/// Names of the spans that some trial of the cell has, sorted.
pub(crate) fn spans(cell: &CellResult) -> BTreeSet<&str> {
    cell.trials.iter().flat_map(|trial| &trial.spans).map(|span| span.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use acidtest_observe::ProcessUse;

    use super::*;
    use acidtest_results::{LatencyFigures, dimensions::Names, sample::Grid};

    #[test]
    fn bounds_that_say_nothing_have_no_digits() {
        let two_trials = Ratio::of_pairs(&[(1.0, 40.0), (1.0, 1.0)]).unwrap();
        assert_eq!(ratio(&two_trials), "×0.16 (too few trials)");
        let wide = Ratio { interval: Some((0.3, 3.1)), ..two_trials };
        assert_eq!(ratio(&wide), "×0.16 (too few trials)");
        // that it costs something is shown all the same
        let slower = Ratio { interval: Some((0.000_4, 0.9)), ..two_trials };
        assert_eq!(ratio(&slower), "×0.16 (<0.001–0.90)");
    }

    /// A ratio that differs from 1 does not look as if its interval had 1 in it.
    #[test]
    fn a_bound_near_1_says_on_which_side_it_lies() {
        let some = Ratio::of_pairs(&[(1.0, 40.0), (1.0, 1.0)]).unwrap();
        let beside = Ratio { estimate: 1.4, interval: Some((1.003, 1.96)), ..some };
        assert_eq!(ratio(&beside), "×1.40 (1.003–1.96)");
        let around = Ratio { estimate: 1.4, interval: Some((0.998, 1.96)), ..some };
        assert_eq!(ratio(&around), "×1.40 (1.00–1.96) ≈");
    }

    #[test]
    fn operations_are_found_by_name() {
        let mut result = Grid::default().result();
        let cell = &mut result.cells[1];
        cell.trials[0].operations.remove(0);
        cell.trials[1].operations.reverse();
        assert_eq!(operations(cell), ["release", "capture"]);
        assert_eq!(each(cell, "capture").count(), 2);
    }

    /// Neither times nor resources are of a trial that was cut short.
    #[test]
    fn a_trial_that_was_cut_short_is_in_no_mean() {
        let mut cut = acidtest_results::sample::queue([("confirm", true, 900.0); 6]);
        let mut without = cut.clone();
        for (cell, other) in cut.cells.iter_mut().zip(&mut without.cells) {
            let trial = cell.trials.last_mut().unwrap();
            trial.stopped = Some(acidtest_results::StopFigures {
                reason: "server gone".to_owned(),
                detail: String::new(),
            });
            trial.resources.client.cpu_mean = 9.0;
            trial.resources.machine.cpu_max = 9.0;
            other.trials.pop();
        }
        let shown = |result: &RunResult| {
            let names = Names::of(&result.cells);
            let columns = Columns::of(result, &names);
            times(result, &columns, true).unwrap().markdown() + &resources(result, &columns).markdown()
        };
        assert_eq!(shown(&cut), shown(&without));
    }

    #[test]
    fn a_server_beside_the_store_s_own_has_a_row_of_its_own() {
        let mut result = Grid::default().result();
        let rows = |result: &RunResult| {
            let names = Names::of(&result.cells);
            resources(result, &Columns::of(result, &names)).markdown()
        };
        assert!(!rows(&result).contains("| locks |"));
        for trial in &mut result.cells[1].trials {
            let used = ProcessUse { cpu_mean: 0.25, ..trial.resources.client.clone() };
            trial.resources.others.insert("locks".to_owned(), used);
        }
        let rows = rows(&result);
        let of_locks: Vec<&str> = rows.lines().filter(|row| row.contains("| locks |")).collect();
        let [row] = of_locks[..] else { panic!("{rows}") };
        assert!(row.contains("| 0.25 cores |"), "{row}");
    }

    /// Operations with another outcome than ok have their times shown too: clients may have spent most of their time
    /// on them.
    #[test]
    fn what_was_refused_has_a_row_of_its_own() {
        let mut result = Grid::default().result();
        let rows = |result: &RunResult, all| {
            let names = Names::of(&result.cells);
            let table = times(result, &Columns::of(result, &names), all).unwrap();
            let shown =
                |row: &Vec<Entry>| row.iter().map(|entry| entry.text.clone()).collect::<Vec<_>>().join(" | ");
            table.rows.iter().map(shown).filter(|row| row.contains("capture")).collect::<Vec<_>>()
        };
        let before = rows(&result, true);
        for trial in &mut result.cells[1].trials {
            let mut refused = acidtest_engine::Histogram::new(3).unwrap();
            refused.record_n(5_000_000, 100).unwrap();
            trial.operations[0].service.insert("refused".to_owned(), LatencyFigures::of(&refused));
        }
        let after = rows(&result, true);
        let new: Vec<&String> = after.iter().filter(|row| !before.contains(row)).collect();
        let [row] = new.as_slice() else { panic!("{after:#?}") };
        assert!(row.contains("native | holds | capture, refused | – | service | 5.00 ms"), "{row}");
        assert_eq!(rows(&result, false), before);
    }
}
