//! A table of the scalability law of each sweep over clients.

use super::Columns;
use crate::table::{Entry, Priority, Table};
use acidtest_model::figure::{percent, rate};
use acidtest_results::{Coefficient, RunResult, dimensions::CLIENTS, sweeps};

/// One row for each sweep over clients that has a fitted law.
pub(crate) fn scalability(result: &RunResult, columns: &Columns<'_>) -> Table {
    let columns = columns.without(CLIENTS);
    let mut table = columns.table([
        ("clients", Priority::Needed),
        ("verdict", Priority::Needed),
        ("λ (ok/s of one)", Priority::Middle),
        ("σ contention", Priority::High),
        ("κ coherency", Priority::High),
        ("peak at", Priority::Needed),
        ("ok/s there", Priority::High),
        ("prediction error", Priority::Low),
    ]);
    for sweep in sweeps(result) {
        let (Some(law), Some((&fewest, cell)), Some((&most, _))) =
            (sweep.law, sweep.cells.first_key_value(), sweep.cells.last_key_value())
        else {
            continue;
        };
        let mut row = columns.entries(cell);
        row.push(Entry::left(format!("{fewest}–{most}")));
        row.push(Entry::verdict(sweep.verdict().to_string(), sweep.verdict()));
        row.push(Entry::right(fitted(&law.lambda, rate)));
        row.push(Entry::right(fitted(&law.sigma, parameter)));
        row.push(Entry::right(fitted(&law.kappa, parameter)));
        row.push(Entry::right(
            law.peak.map_or_else(|| "none shown".to_owned(), |peak| fitted(&peak, |n| format!("{n:.0}"))),
        ));
        row.push(Entry::right(law.peak.map_or_else(|| "–".to_owned(), |peak| rate(law.at(peak.estimate)))));
        row.push(Entry::right(percent(law.prediction_error)));
        table.push(row);
    }
    table
}

/// A parameter of the law with its interval, if it has one; ∞ for a missing upper bound.
fn fitted(figure: &Coefficient, shown: impl Fn(f64) -> String) -> String {
    let estimate = shown(figure.estimate);
    match figure.interval {
        None => estimate,
        Some((low, high)) => {
            let high = high.map_or_else(|| "∞".to_owned(), &shown);
            format!("{estimate} ({}–{high})", shown(low))
        }
    }
}

/// σ or κ in three digits.
fn parameter(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value < 0.001 => format!("{value:.1e}"),
        value => format!("{value:.4}"),
    }
}
