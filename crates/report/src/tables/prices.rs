//! Tables of prices: a row for each guarantee of a cell whose grid has the cell without it.

use acidtest_results::{
    CellResult, Price, Priceable, Ratio, RunResult,
    dimensions::{LOCK, NOT_THERE, STORE},
};

use super::{Columns, ratio, unpriced};
use crate::table::{Entry, Priority, Table};

/// Prices of all guarantees except the lock, whose price stands beside the verdict.
pub(crate) fn prices(result: &RunResult, columns: &Columns<'_>) -> Table {
    of(result, columns, |guarantee| guarantee.name() != LOCK)
}

/// Prices of the lock alone.
pub(crate) fn locks(result: &RunResult, columns: &Columns<'_>) -> Table {
    of(result, columns, |guarantee| guarantee.name() == LOCK)
}

fn of(result: &RunResult, columns: &Columns<'_>, wanted: impl Fn(Priceable) -> bool) -> Table {
    let mut table = columns.table([
        ("verdict", Priority::Needed),
        ("price of", Priority::Needed),
        ("against", Priority::High),
        ("answered/s", Priority::Needed),
        ("p99", Priority::Middle),
        ("CPU of clients", Priority::Low),
        ("CPU of server", Priority::Low),
    ]);
    for cell in &result.cells {
        let guarantees = Priceable::of(result).filter(|guarantee| wanted(*guarantee));
        for guarantee in guarantees.filter(|guarantee| result.has_baseline(*guarantee, cell)) {
            table.push(columns.entries(cell).into_iter().chain(row(result, cell, guarantee)));
        }
    }
    // how much of it a cell has stands beside its price, too
    let priced = Priceable::of(result).map(Priceable::name);
    table.demote_same(&[STORE, LOCK].into_iter().chain(priced).collect::<Vec<_>>());
    table
}

fn row(result: &RunResult, cell: &CellResult, guarantee: Priceable) -> [Entry; 7] {
    let price = guarantee.price(cell);
    // why there is none is said once
    let unpriced = unpriced(result, cell, guarantee);
    let short = unpriced.shortest().to_owned();
    let of = |figure: fn(&Price) -> Option<&Ratio>| {
        Entry::right(
            price.map_or_else(|| short.clone(), |price| figure(price).map_or(NOT_THERE.to_owned(), ratio)),
        )
    };
    [
        Entry::verdict(cell.verdict(), cell.verdict()),
        Entry::left(guarantee.priced(cell, price)).or(guarantee.name()),
        Entry::left(price.map_or(NOT_THERE, |price| price.against.as_str())),
        price.map_or(unpriced, |price| Entry::right(ratio(&price.throughput))),
        of(|price| price.p99.as_ref()),
        of(|price| price.client_cpu.as_ref()),
        of(|price| price.server_cpu.as_ref()),
    ]
}
