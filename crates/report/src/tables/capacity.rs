//! Tables of searches for a capacity: what was found, what it costs, the curve of latency over rate, and what ran out.

use acidtest_model::figure::{bytes, nanoseconds, offered, percent, rate, three_digits};
use acidtest_results::{
    Capacity, CellResult, Limit, OTHERS, OperationTimes, Priceable, RateFigures, RateInterval, RunResult,
    Used, dimensions::NOT_THERE, distinct,
};
use acidtest_workloads::Verdict;

use super::{Columns, ratio, resources::cores};
use crate::table::{Entry, Priority, Table};

/// Every search with what it found.
pub(crate) fn found(result: &RunResult) -> impl Iterator<Item = (&CellResult, &Capacity)> {
    result.cells.iter().filter_map(|cell| Some((cell, cell.capacity.as_ref()?)))
}

fn or_none(text: Option<String>) -> Entry {
    Entry::right(text.unwrap_or_else(|| NOT_THERE.to_owned()))
}

/// One row for each search: the capacity with its verdict, why it is no higher, and what is left over the demand.
pub(crate) fn capacities(result: &RunResult, columns: &Columns<'_>) -> Table {
    let demand = found(result).any(|(_, found)| found.headroom.is_some());
    let growth =
        found(result).any(|(_, found)| found.headroom.as_ref().is_some_and(|room| room.days.is_some()));
    let mut titles = vec![
        ("verdict", Priority::Needed),
        ("capacity", Priority::Needed),
        ("fresh probes", Priority::High),
        ("interval (95 %)", Priority::Middle),
        ("even odds (95 %)", Priority::High),
        ("knee", Priority::Middle),
        ("stopped by", Priority::Needed),
    ];
    titles.extend(demand.then_some(("of demand", Priority::Needed)));
    titles.extend(growth.then_some(("reached in", Priority::High)));
    titles.extend([("closed loop", Priority::Low), ("probes", Priority::Low)]);
    let mut table = columns.table(titles);
    for (cell, found) in found(result) {
        let mut row = columns.entries(cell);
        row.push(Entry::verdict(found.verdict(), found.verdict()));
        row.push(or_none(found.carried.map(|capacity| offered(capacity) + "/s")));
        row.push(or_none(found.carried.map(|_| format!("{} of {} held", found.fresh_held, found.fresh))));
        row.push(or_none(
            found.expected.map(|RateInterval { low, high }| format!("{}–{}/s", rate(low), rate(high))),
        ));
        row.push(or_none(
            found
                .even_odds
                .map(|odds| format!("{}/s ({}–{})", rate(odds.per_second), rate(odds.low), rate(odds.high))),
        ));
        row.push(or_none(found.knee.map(|knee| offered(knee.per_second) + "/s")));
        row.push(Entry::left(stopped_by(&found.limit, cell.error.is_some())));
        let headroom = found.headroom.as_ref();
        row.extend(demand.then(|| or_none(headroom.map(|room| format!("×{}", three_digits(room.times))))));
        row.extend(growth.then(|| or_none(headroom.and_then(|room| room.days).map(days))));
        let closed = cell.made_trials().find(|trial| trial.rate.is_none());
        row.push(or_none(closed.map(|trial| rate(trial.ended_per_second()) + "/s")));
        row.push(Entry::right(found.probes));
        table.push(row);
    }
    table
}

/// A number of days: `37 days`, `3.1 years`.
pub(crate) fn days(days: f64) -> String {
    if days < 1000.0 {
        format!("{} days", three_digits(days))
    } else {
        format!("{} years", three_digits(days / 365.2425))
    }
}

/// Why a search went no higher, in a few words. `has_failed` is whether a probe could not be made.
fn stopped_by(limit: &Limit, has_failed: bool) -> String {
    let at = |what: &str, at: &f64| format!("{what} at {}/s", offered(*at));
    match limit {
        Limit::Objective { objective, at, ratio: Some(ratio) } => {
            format!("{objective}: ×{} at {}/s", three_digits(*ratio), offered(*at))
        }
        Limit::Objective { objective, at: rate, ratio: None } => {
            at(&format!("{objective}: not all served"), rate)
        }
        Limit::Bench { at: rate } => at("the bench itself", rate),
        Limit::Broke { at: rate } => at("a broken promise", rate),
        Limit::Unknown { at: rate } => at("an inconclusive probe", rate),
        Limit::Gone { .. } if has_failed => "a probe that could not be made".to_owned(),
        Limit::Gone { at: Some(rate) } => at("the store, which was lost,", rate),
        Limit::Gone { at: None } => "the store, which was lost".to_owned(),
        Limit::NoRate { objective, .. } => format!("{objective}, at every rate"),
        Limit::Budget => "the budget".to_owned(),
        Limit::Machine => "other programs on the machine".to_owned(),
        Limit::Highest => "the highest rate that can be requested".to_owned(),
        Limit::Unfinished => "not finished".to_owned(),
    }
}

/// What guarantees cost in capacity: a row for each guarantee of a search whose grid has the search without it.
pub(crate) fn capacity_prices(result: &RunResult, columns: &Columns<'_>) -> Table {
    let mut table = columns.table([
        ("price of", Priority::Needed),
        ("against", Priority::Low),
        ("even odds", Priority::Needed),
    ]);
    for (cell, _) in found(result) {
        for guarantee in Priceable::of(result).filter(|guarantee| result.has_baseline(*guarantee, cell)) {
            let price = guarantee.price(cell);
            let mut row = columns.entries(cell);
            row.push(Entry::left(guarantee.priced(cell, price)).or(guarantee.name()));
            row.push(Entry::left(price.map_or(NOT_THERE, |price| price.against.as_str())));
            row.push(Entry::right(price.map_or_else(
                || "not known".to_owned(),
                |price| match price.throughput.interval {
                    Some(_) => ratio(&price.throughput),
                    None => format!("×{} (of the capacities)", three_digits(price.throughput.estimate)),
                },
            )));
            table.push(row);
        }
    }
    table
}

/// The curve of each search: one row for each rate.
pub(crate) fn curves(result: &RunResult, columns: &Columns<'_>) -> Table {
    let operations = distinct(
        found(result).flat_map(|(_, found)| &found.curve).flat_map(|figures| figures.times.keys().cloned()),
    );
    let p99 = operations.iter().map(|name| (format!("{name} p99"), Priority::Needed));
    let p50 = operations.iter().map(|name| (format!("{name} p50"), Priority::Low));
    let mut titles = vec![("offered".to_owned(), Priority::Needed), ("held".to_owned(), Priority::Needed)];
    titles.extend(p99);
    titles.push(("errors".to_owned(), Priority::High));
    titles.extend(p50);
    titles.extend([
        ("verdict".to_owned(), Priority::High),
        ("client CPU".to_owned(), Priority::Middle),
        ("server CPU".to_owned(), Priority::Middle),
    ]);
    let mut table = columns.table(titles.iter().map(|(title, worth)| (title.as_str(), *worth)));
    for (cell, found) in found(result) {
        for figures in &found.curve {
            let mut row = columns.entries(cell);
            row.push(Entry::right(offered(figures.per_second) + "/s"));
            // those in which a promise broke were judged, too: by the audit
            let is_judged = figures.verdict == Verdict::Broken;
            let others = if is_judged { figures.other } else { 0 };
            let judged = figures.met.saturating_add(figures.missed).saturating_add(others);
            let verdict = if figures.met == judged { Verdict::Holds } else { Verdict::Unknown };
            let unjudged = match figures.other {
                other if other > 0 && !is_judged => format!(", {other} not judged"),
                _ => String::new(),
            };
            row.push(Entry::verdict(format!("{} of {judged}{unjudged}", figures.met), verdict));
            let time =
                |time: Option<f64>| Entry::right(time.map_or_else(|| "not served".to_owned(), nanoseconds));
            let each = |percent: f64, of: fn(&OperationTimes) -> Option<f64>| {
                let entry = move |name| {
                    let times = figures.times.get(name).filter(|times| times.is_enough(percent));
                    times.map_or_else(|| or_none(None), |times| time(of(times)))
                };
                operations.iter().map(entry)
            };
            row.extend(each(99.0, |times| times.p99_ns));
            row.push(Entry::right(percent(figures.errors)));
            row.extend(each(50.0, |times| times.p50_ns));
            row.push(Entry::verdict(figures.verdict, figures.verdict));
            row.push(Entry::right(cores(figures.used.client_cores)));
            row.push(or_none(figures.used.server_cores.map(cores)));
            table.push(row);
        }
    }
    table
}

/// What client, server, disk and locks did where each search stopped, below what they did at about half of that rate.
pub(crate) fn limits(result: &RunResult, columns: &Columns<'_>) -> Table {
    let mut table = columns.table([
        ("", Priority::Needed),
        ("offered", Priority::Needed),
        ("client CPU", Priority::Needed),
        ("server CPU", Priority::Needed),
        ("machine CPU", Priority::High),
        ("disk written", Priority::High),
        ("stalled by disk", Priority::Middle),
        ("lost to conflicts", Priority::High),
        ("clients busy", Priority::High),
    ]);
    for (cell, found) in found(result) {
        let Some((limit, half)) = found.at_limit_and_half() else { continue };
        let below = format!("{} of the limit", percent(half.per_second / limit.per_second));
        for (name, figures) in [(below.as_str(), half), ("limit", limit)] {
            let RateFigures { per_second, used, .. } = figures;
            let mut row = columns.entries(cell);
            row.push(Entry::left(name));
            row.push(Entry::right(offered(*per_second) + "/s"));
            row.push(Entry::right(cores(used.client_cores)));
            row.push(or_none(used.server_cores.map(cores)));
            row.push(Entry::right(cores(used.machine_cores)));
            row.push(or_none(used.written_per_second.map(|written| bytes(written) + "/s")));
            row.push(or_none(used.disk_stalled.map(percent)));
            row.push(Entry::right(percent(used.conflicts)));
            row.push(Entry::right(percent(used.busy)));
            table.push(row);
        }
    }
    table
}

/// Shares from which on something is said to have run out.
const BUSY_CORES: f64 = 0.9;
const CONFLICTING: f64 = 0.25;
const STALLED: f64 = 0.5;
const BUSY_CLIENTS: f64 = 0.75;

/// The share of busy cores from which on more clients find little CPU.
const LITTLE_CPU_LEFT: f64 = 0.75;

/// What probably ran out at the limit, by what was used there.
pub(crate) fn ran_out(used: &Used, cell: &CellResult, result: &RunResult) -> String {
    let all = result.machine.cores as f64;
    if used.machine_cores >= BUSY_CORES * all {
        let server = used.server_cores.map_or_else(String::new, |server| format!(", the server {server:.2}"));
        let rest = used.machine_cores - used.client_cores - used.server_cores.unwrap_or(0.0);
        // what is not seen of the run's own servers, or serves its locks, is in the rest
        let is_all_seen = (cell.embedded || used.server_cores.is_some())
            && cell.trials.iter().all(|trial| trial.resources.others.is_empty());
        // an embedded store has the clients' cores
        let more = if !cell.embedded && used.client_cores > used.machine_cores / 2.0 {
            "; with cores of their own for the clients the store may carry more"
        } else if is_all_seen && rest > OTHERS * all {
            "; on a machine with nothing else to do the store may carry more"
        } else {
            ""
        };
        return format!(
            "CPU ran out: {:.2} of {all} cores were busy (the clients used {:.2}{server}, everything else {:.2}){more}",
            used.machine_cores,
            used.client_cores,
            rest.max(0.0)
        );
    }
    if used.conflicts >= CONFLICTING {
        return format!(
            "locks held it up: {} of the clients' time went to conflicts and waits for locks",
            percent(used.conflicts)
        );
    }
    if let Some(stalled) = used.disk_stalled.filter(|stalled| *stalled >= STALLED) {
        return format!("the disk held it up: some task waited for it for {} of the time", percent(stalled));
    }
    if used.busy >= BUSY_CLIENTS {
        let more = if used.machine_cores >= LITTLE_CPU_LEFT * all {
            "little CPU is left for more of them".to_owned()
        } else {
            // each has a connection, and one operation at a time
            format!(
                "more of them may carry more (--clients {}), unless the store's own locks or syncs hold them up",
                cell.clients.saturating_mul(4)
            )
        };
        return format!(
            "clients ran short: all {} waited for the store for {} of their time, and {:.2} of {all} cores were busy; \
             {more}",
            cell.clients,
            percent(used.busy),
            used.machine_cores
        );
    }
    "none of the observed resources ran out".to_owned()
}
