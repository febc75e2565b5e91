//! Results as one HTML page that needs no server and no network.
//!
//! Everything that came from a store, an address or a log is escaped by the templates; the figures of the charts are
//! JSON in which `<` is written `\u003c`. The page's own policy (CSP) forbids it to load anything.

mod charts;

use acidtest_anomalies::AnomaliesResult;
use acidtest_model::{
    count,
    figure::{bytes, nanoseconds, offered, rate},
};
use acidtest_results::{
    CellResult, RunResult, SoFar, TrialResult, UnreadableHistogram, dimensions::Names, distinct, sweeps,
    total,
};
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use self::charts::Chart;
use crate::{
    anomalies,
    conclusion::{conclusion, how_old},
    headline::{driving, workload},
    histories::histories,
    notes::{answers_are, notes},
    table::{Entry, Table, Tone},
    tables::{
        self, Columns, capacities, capacity_prices, cells, limits, locks, prices, resources, scalability,
        sizes, staleness, times,
    },
    waiting::waiting,
};

const SCRIPT: &str = include_str!("page.js");

/// Stores that a title names before it counts the rest.
const STORES: usize = 6;

/// The style sheet of a page, which other pages that show results share.
pub const STYLE: &str = include_str!("page.css");

/// A result with the name of its file.
#[derive(Clone, Copy, Debug)]
pub struct NamedResult<'a> {
    /// The file's name, which heads the result on the page.
    pub name: &'a str,
    pub result: &'a RunResult,
}

/// A result of `acidtest anomalies` with the name of its file.
#[derive(Clone, Copy, Debug)]
pub struct NamedAnomalies<'a> {
    /// The file's name.
    pub name: &'a str,
    pub result: &'a AnomaliesResult,
}

/// Makes one page of one result or several: those of runs, and after them which anomalies isolation levels allow.
///
/// # Errors
/// A histogram that cannot be read.
pub fn page(
    results: &[NamedResult<'_>],
    of_anomalies: &[NamedAnomalies<'_>],
) -> Result<String, UnreadableHistogram> {
    let mut charts = Vec::new();
    let mut sections = Vec::new();
    for (place, named) in results.iter().enumerate() {
        sections.push(section(*named, &format!("r{place}"), &mut charts)?);
    }
    for (place, named) in of_anomalies.iter().enumerate() {
        sections.push(anomalies::section(named, &format!("a{place}")));
    }
    let runs = results.iter().enumerate().map(|(place, named)| (format!("#r{place}"), named.name));
    let others = of_anomalies.iter().enumerate().map(|(place, named)| (format!("#a{place}"), named.name));
    let files: Vec<(String, &str)> = runs.chain(others).collect();
    let data = serde_json::to_string(&charts).unwrap_or_else(|_| "[]".to_owned()).replace('<', "\\u003c");
    let title = match results {
        [] if of_anomalies.is_empty() => "no result".to_owned(),
        [] => "anomalies".to_owned(),
        [one] if files.len() == 1 => format!("{} · {}", title(one.result), moment(&one.result.started)),
        [first, ..] => format!("{}, and {} more", title(first.result), files.len() - 1),
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
                title { (title) " · acidtest" }
                style { (PreEscaped(acidtest_charts::STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                @if files.len() > 1 {
                    nav.files { @for (anchor, name) in &files { a href=(anchor) { (name) } } }
                }
                @for section in &sections { (section) }
                footer {
                    p { "acidtest " (env!("CARGO_PKG_VERSION")) ". Figures: docs/measuring.md. Charts: uPlot." }
                    details { summary { "uPlot's licence" } pre { (acidtest_charts::LICENSE) } }
                }
                script type="application/json" id="charts" { (PreEscaped(data)) }
                script { (PreEscaped(acidtest_charts::SCRIPT)) }
                script { (PreEscaped(acidtest_charts::FIGURES)) (PreEscaped(SCRIPT)) }
            }
        }
    };
    Ok(page.into_string())
}

/// The anomalies that were found, and the smallest example of each, as a picture and as text; nothing where none was looked for.
fn found_in_histories(result: &RunResult, names: &Names, columns: &Columns<'_>, id: &str) -> Markup {
    let histories = histories(result);
    html! {
        @if !histories.is_empty() {
            section id={ (id) "-anomalies" } {
                h2 { "Anomalies of isolation" }
                (table(&tables::anomalies(result, columns), true))
                @for history in &histories {
                    @for each in &history.seen {
                        @let is_broken = each.broken > 0;
                        details open[is_broken] {
                            summary class=[is_broken.then_some("bad")] {
                                (names.cell(history.cell)) ": " (history.counted(each, each.count))
                                @if !each.anomaly.is_ruled_out { ", which the level permits" }
                            }
                            // the picture escapes what it shows
                            div.picture { (PreEscaped(each.anomaly.example.picture())) }
                            pre { (each.anomaly.example.text()) }
                        }
                    }
                }
            }
        }
    }
}

/// The workload and the stores; of a search, that it was one.
fn title(result: &RunResult) -> String {
    let stores = distinct(result.cells.iter().map(|cell| cell.title.as_str()));
    let shown = stores.iter().take(STORES).copied().collect::<Vec<_>>().join(", ");
    let more = stores.len().saturating_sub(STORES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let search = if result.plan.capacity.is_some() { "capacity of " } else { "" };
    format!("{search}{} on {shown}{more}", result.plan.workload)
}

/// When a run was begun, to the second.
pub(crate) fn moment(started: &str) -> String {
    let parsed = started.parse::<Timestamp>();
    parsed.map_or_else(|_| started.to_owned(), |at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

fn section(file: NamedResult<'_>, id: &str, charts: &mut Vec<Chart>) -> Result<Markup, UnreadableHistogram> {
    let result = file.result;
    let names = Names::of(&result.cells);
    let columns = Columns::of(result, &names);
    let searched = result.plan.capacity.is_some();
    let sweeps = sweeps(result);
    let swept =
        if searched { charts::capacities(result, &names, id) } else { charts::sweeps(&sweeps, &names, id) };
    // those of a search would mix all of its rates
    let percentiles = if searched { Vec::new() } else { charts::percentiles(result, &names, id)? };
    let machine = &result.machine;
    let markup = html! {
        main id=(id) {
            header {
                h1 { (title(result)) }
                p { (workload(result)) }
                p { (driving(result)) }
                p.quiet {
                    (machine.cpu) " · " (machine.cores) " cores, " (bytes(machine.memory_bytes as f64)) " memory, "
                    (machine.filesystem) " · Linux " (machine.kernel) " · " (moment(&result.started)) " · " (file.name)
                }
                @for address in names.addresses() { p { (address) } }
                @for line in conclusion(result, &names).lines() { p.conclusion { (line) } }
                @if let Some(waiting) = waiting(result, &names) { p.bad { (waiting) } }
            }
            nav {
                @for (anchor, word) in [("cells", if searched { "Capacity" } else { "Cells" }), ("prices", "Prices"), ("sweeps", if searched { "Curves" } else { "Scaling" }), ("latency", if searched { "" } else { "Latency" }),
                    ("anomalies", if histories(result).is_empty() { "" } else { "Anomalies" }), ("each", "Each cell"), ("settings", "Settings"), ("plan", "Plan"), ("notes", "Notes")] {
                    @if !word.is_empty() { a href={ "#" (id) "-" (anchor) } { (word) } }
                }
            }
            @if searched { (capacity(result, &columns, &swept, id)) } @else {
                section id={ (id) "-cells" } {
                    h2 { "Cells" }
                    (table(&cells(result, &columns), true))
                    (table(&staleness(result, &columns), true))
                    (table(&sizes(result, &columns), true))
                }
                section id={ (id) "-prices" } {
                    h2 { "Prices of guarantees" }
                    (priced(result, &columns))
                }
                section id={ (id) "-sweeps" } {
                    h2 { "Scaling with clients" }
                    @if swept.is_empty() {
                        p.quiet { "The grid has one number of clients." }
                    } @else {
                        p.quiet { "Points: means over the trials, with 95 % intervals where there are several. Dashed: the Universal
                            Scalability Law, X(N) = λN / (1 + σ(N − 1) + κN(N − 1)), where six numbers of clients or more were run." }
                        (drawn(&swept))
                        (table(&scalability(result, &columns), false))
                    }
                }
            }
            @if !searched {
            section id={ (id) "-latency" } {
                h2 { "Latency" }
                p.quiet { "Response times of acknowledged operations, all trials of a cell together; in a closed loop they are the
                    service times. Both axes are logarithmic." }
                (drawn(&percentiles))
                details {
                    summary { "Percentiles as a table" }
                    (table(&times(result, &columns, true)?, true))
                }
            }
            }
            (found_in_histories(result, &names, &columns, id))
            section id={ (id) "-each" } {
                h2 { "Each cell" }
                @for (place, cell) in result.cells.iter().enumerate() {
                    (each(cell, &names.cell(cell), &format!("{id}-c{place}"), charts))
                }
                @if !searched {
                    details {
                        summary { "What clients, servers and machine used" }
                        (table(&resources(result, &columns), true))
                    }
                }
            }
            section id={ (id) "-settings" } { h2 { "Settings reported by the stores" } (settings(result)) }
            section id={ (id) "-plan" } {
                h2 { "Plan" }
                details { summary { "as it was run" } pre { (pretty(&serde_json::to_value(&result.plan).unwrap_or_default())) } }
            }
            section id={ (id) "-notes" } {
                h2 { "Notes" }
                ul { @for note in notes(result, &names, true) { li { (note) } } }
            }
        }
    };
    charts.extend(swept);
    charts.extend(percentiles);
    Ok(markup)
}

/// What a result says: conclusion, cells and prices. Of a run that is under way it is what is known by then: prices are those
/// of the trials so far, and it is no finding that other cells' turn has not come.
///
/// # Errors
/// A histogram that cannot be read.
pub fn findings(mut result: RunResult, is_under_way: bool) -> Result<Markup, UnreadableHistogram> {
    let all = result.cells.len();
    let searched = result.plan.capacity.is_some();
    if is_under_way {
        result.interrupted = false;
        result.cells.retain(|cell| !cell.trials.is_empty() || cell.error.is_some());
        if !searched {
            result.price()?;
        }
    }
    let missing = all - result.cells.len();
    let trials = SoFar::of(&result).trials;
    let names = Names::of(&result.cells);
    let columns = Columns::of(&result, &names);
    let notes = notes(&result, &names, true);
    Ok(html! {
        @if is_under_way { p.quiet data-trials=(trials) { "As of " (count(trials)) @if trials == 1 { " trial." } @else { " trials." } } }
        // what a search says of itself before its end is that it has not come there
        @if !searched || !is_under_way {
            @for line in conclusion(&result, &names).lines() { p.conclusion { (line) } }
        }
        @if let Some(waiting) = waiting(&result, &names) { p.bad { (waiting) } }
        @if missing > 0 { p.quiet { (count(missing as u64)) " of " (count(all as u64)) " cells have no trial yet." } }
        h3 { @if searched { "Capacity" @if is_under_way { " so far" } } @else { "Verdicts" } }
        @if searched { (table(&capacities(&result, &columns), false)) } @else { (table(&cells(&result, &columns), false)) }
        // of a search that has not come to its end nothing has a price
        @if !searched || !is_under_way { h3 { "Prices of guarantees" } }
        @if !searched { (priced(&result, &columns)) } @else if !is_under_way { (capacity_priced(&result, &columns)) }
        @if !notes.is_empty() {
            details { summary { "Notes" } ul { @for note in &notes { li { (note) } } } }
        }
    })
}

/// What the searches found, and the curves of latency over rate.
fn capacity(result: &RunResult, columns: &Columns<'_>, curves: &[Chart], id: &str) -> Markup {
    html! {
        section id={ (id) "-cells" } {
            h2 { "Capacity" }
            (table(&capacities(result, columns), true))
            p.quiet { "What client, server, disk and locks did where each search stopped, and at about half of that rate." }
            (table(&limits(result, columns), false))
        }
        section id={ (id) "-prices" } {
            h2 { "Prices of guarantees" }
            (capacity_priced(result, columns))
        }
        section id={ (id) "-sweeps" } {
            h2 { "Latency over rate" }
            p.quiet { "99th percentile of the response time of each operation: medians over the probes at a rate. The axis of times is
                logarithmic. Marked: the capacity." }
            (drawn(curves))
            details { summary { "As a table" } (table(&tables::curves(result, columns), true)) }
        }
    }
}

/// Every price of every search.
fn capacity_priced(result: &RunResult, columns: &Columns<'_>) -> Markup {
    let prices = capacity_prices(result, columns);
    html! {
        @if prices.rows.is_empty() {
            (no_prices())
        } @else {
            p.quiet { "Capacity with the guarantee over capacity without it. ≈ marks a ratio inside the noise." }
            (table(&prices, true))
        }
    }
}

/// Where no two cells differ in a guarantee alone.
fn no_prices() -> Markup {
    html! {
        p.quiet { "None: a guarantee is priced where the same cell was run without it, as with lock none beside lock native." }
    }
}

/// A table that scrolls within the page; large tables can be filtered.
pub(crate) fn table(table: &Table, filtered: bool) -> Markup {
    html! {
        @if !table.rows.is_empty() {
            @if filtered && table.rows.len() > 12 {
                input type="search" class="filter" placeholder={ "filter " (table.rows.len()) " rows" } aria-label="filter rows";
            }
            div.scroll tabindex="0" {
                table {
                    thead { tr { @for (place, column) in table.columns.iter().enumerate() {
                        th.n[table.is_right(place)] scope="col" { (column.title) }
                    } } }
                    tbody { @for row in &table.rows { tr { @for entry in row {
                        td.n[entry.right].long[entry.text.chars().count() > 48].good[entry.tone == Tone::Good].doubtful[entry.tone == Tone::Doubtful].bad[entry.tone == Tone::Bad] {
                            (entry.text)
                        }
                    } } } }
                }
            }
        }
    }
}

fn drawn(charts: &[Chart]) -> Markup {
    html! {
        div.charts {
            @for chart in charts {
                figure { figcaption { (chart.title) } div.chart id=(chart.id) {} }
            }
        }
    }
}

/// Every price of every cell, the price of the lock included.
fn priced(result: &RunResult, columns: &Columns<'_>) -> Markup {
    let (locks, others) = (locks(result, columns), prices(result, columns));
    html! {
        @if locks.rows.is_empty() && others.rows.is_empty() {
            (no_prices())
        } @else {
            p.quiet { "With the guarantee over without it, 95 % intervals over paired trials. Answers a second (" (answers_are(result)) ")
                below 1, and p99 and the CPU of an answer above 1, is what it costs; ≈ marks a ratio inside the noise. A cell whose verdict
                is not “holds” has no price, and neither has one that refused much more or less than the other." }
            (table(&locks, true))
            (table(&others, true))
        }
    }
}

/// One cell: its trials, the findings of its audit, its charts over seconds, and the messages of its store.
fn each(cell: &CellResult, name: &str, id: &str, charts: &mut Vec<Chart>) -> Markup {
    let verdict = cell.verdict();
    let over_time = charts::seconds(cell, id);
    let mean = cell.mean_throughput().filter(|_| cell.capacity.is_none());
    let markup = html! {
        details.cell {
            summary {
                span.verdict.(verdict.to_string()) { (verdict) } " " (name)
                @if let Some(mean) = mean { span.quiet { " · " (rate(mean.estimate)) " ok/s" } }
            }
            @if let Some(error) = &cell.error { pre.bad { (error) } }
            p.quiet { (cell.headline) @if cell.decides { " · lock " (cell.lock) ": " (cell.lock_how) } }
            @if !cell.trials.is_empty() {
                (drawn(&over_time))
                (table(&trials(cell), false))
            }
            @for trial in &cell.trials { (said(trial)) }
            @for (operation, plan) in plans(cell) {
                details { summary { "Plan of " (operation) } pre { (plan) } }
            }
        }
    };
    if !cell.trials.is_empty() {
        charts.extend(over_time);
    }
    markup
}

/// A table with a row for each trial.
fn trials(cell: &CellResult) -> Table {
    let is_disturbed = cell.trials.iter().any(|trial| trial.served_seconds.is_some());
    let mut titles = vec![
        "trial",
        "verdict",
        "offered",
        "ok/s",
        "length",
        "data",
        "first (cold)",
        "late",
        "dropped",
        "errors",
        "client CPU",
        "server CPU",
    ];
    if is_disturbed {
        titles.insert(4, "served/s");
    }
    let mut table = Table::of(&titles);
    for trial in &cell.trials {
        let verdict = trial.audit.verdict;
        let used = &trial.resources;
        let firsts: Vec<String> = trial
            .remarks
            .first_ns
            .iter()
            .map(|(operation, first)| format!("{operation} {}", nanoseconds(*first as f64)))
            .collect();
        let mut row = vec![
            Entry::right(trial.label()),
            Entry::verdict(trial.audit.to_string(), verdict),
            Entry::right(
                trial
                    .rate
                    .or(cell.rate)
                    .map_or_else(|| "closed loop".to_owned(), |rate| offered(rate) + "/s"),
            ),
            Entry::right(rate(trial.throughput)),
            Entry::right(format!("{:.1} s", trial.seconds)),
            Entry::left(data(trial)),
            Entry::left(if firsts.is_empty() { "–".to_owned() } else { firsts.join(", ") }),
            Entry::right(count(trial.arrived.late)),
            Entry::right(count(trial.arrived.dropped)),
            Entry::right(count(total(trial.faults.values().copied()))),
            Entry::right(format!("{:.2} cores", used.client.cpu_mean)),
            Entry::right(
                used.server
                    .as_ref()
                    .map_or_else(|| "–".to_owned(), |server| format!("{:.2} cores", server.cpu_mean)),
            ),
        ];
        if is_disturbed {
            let served = trial.served_per_second().map_or_else(|| "–".to_owned(), rate);
            row.insert(4, Entry::right(served));
        }
        table.push(row);
    }
    table
}

/// The origin of a trial's data: loaded, or left by an earlier trial.
fn data(trial: &TrialResult) -> String {
    let rows = count(trial.data.rows);
    match (trial.data.load_seconds, trial.data.left_by) {
        (Some(seconds), _) => {
            let speed = if seconds > 0.0 { trial.data.rows as f64 / seconds } else { 0.0 };
            format!("{rows} rows in {}, {} rows/s", nanoseconds(seconds * 1e9), rate(speed))
        }
        (None, Some(by)) => format!("{rows} rows, left by trial {by} of the run"),
        (None, None) => format!("{rows} rows"),
    }
}

/// The messages of a trial's audit, store and server.
fn said(trial: &TrialResult) -> Markup {
    let findings: Vec<String> = trial.audit.findings.iter().map(ToString::to_string).collect();
    let evidence: Vec<String> =
        trial.audit.evidence.iter().map(|(name, value)| format!("{name} {value}")).collect();
    html! {
        details {
            summary { "Trial " (trial.label()) ": audit" @if !trial.faults.is_empty() { ", errors" } @if !trial.server_log.is_empty() { ", log" } }
            p { "Looked for: " (findings.join(", ")) "." }
            p { "Evidence: " (evidence.join(", ")) "." }
            @if let Some(seen) = &trial.staleness { p { "Reads at members: " (how_old(&seen.into())) "." } }
            @if let Some(reason) = &trial.audit.reason { p { (reason) } }
            @if let Some(stopped) = &trial.stopped { p.bad { "Ended early: " (stopped.reason) " " (stopped.detail) } }
            @if !trial.faults.is_empty() {
                ul { @for (fault, times) in &trial.faults { li { (count(*times)) " × " (fault) } } }
            }
            @if !trial.server_log.is_empty() { pre { (trial.server_log.join("\n")) } }
        }
    }
}

/// The query plans of a cell's operations, each distinct plan once.
fn plans(cell: &CellResult) -> Vec<(&String, &String)> {
    distinct(cell.trials.iter().flat_map(|trial| &trial.remarks.plans))
}

/// The settings that each store reported, each distinct answer once.
fn settings(result: &RunResult) -> Markup {
    let seen = distinct(result.cells.iter().filter_map(|cell| {
        let store = cell.address.as_ref().unwrap_or(&cell.title);
        Some((store, cell.effective.as_ref()?, cell.replication_read.as_ref()))
    }));
    html! {
        @for (store, effective, replication) in seen {
            details {
                summary { (store) " " (effective.version) " · durability " (effective.durability) }
                p { (effective.because) }
                @if let Some(tls) = &effective.tls { p { "TLS: " (tls) } }
                @if let Some(read) = replication {
                    p {
                        "replication " (read.level) ", consistency " (read.consistency) " of reads at replicas: " (read.because)
                        "; replicas that follow: " (read.following)
                    }
                }
                div.scroll tabindex="0" { table { tbody {
                    @for (name, value) in &effective.settings { tr { th scope="row" { (name) } td { (value) } } }
                } } }
            }
        }
    }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}")
}

#[cfg(test)]
mod tests {
    use acidtest_model::{Durability, Lock};

    use super::*;
    use acidtest_results::sample::Grid;

    fn of(result: &RunResult) -> String {
        page(&[NamedResult { name: "result.json", result }], &[]).unwrap()
    }

    #[test]
    fn what_is_known_of_a_run_under_way_has_prices_and_no_blame() {
        let grid = Grid { locks: &[Lock::None, Lock::Native], ..Grid::default() };
        let mut result = grid.result();
        result.interrupted = true;
        for cell in &mut result.cells {
            cell.prices.clear();
        }
        let last = result.cells.len() - 1;
        result.cells[last].trials.clear();
        let of =
            |result: &RunResult, is_under_way| findings(result.clone(), is_under_way).unwrap().into_string();
        let said = of(&result, true);
        assert!(
            !said.contains("nterrupted") && !said.contains("Not run") && said.contains("1 of "),
            "{said}"
        );
        let after = of(&result, false);
        assert!(
            after.contains("The run was interrupted: 3 of its 6 trials") && after.contains("Not run"),
            "{after}"
        );
        let whole = of(&grid.result(), true);
        assert!(whole.contains("×") && !whole.contains("no trial yet"), "{whole}");
    }

    /// Pages of several plans lie side by side in a browser.
    #[test]
    fn a_title_says_what_was_run_where_and_when() {
        let titled = |result: &RunResult| {
            let page = of(result);
            let (_, rest) = page.split_once("<title>").unwrap();
            rest.split_once(" · acidtest</title>").unwrap().0.to_owned()
        };
        let mut result = Grid { stores: &["redis", "sqlite"], ..Grid::default() }.result();
        "2026-11-22T10:15:00.123456789Z".clone_into(&mut result.started);
        assert_eq!(titled(&result), "inventory on REDIS, SQLITE · 2026-11-22 10:15:00 UTC");
        assert!(!of(&result).contains("00.123456789"));
        result.plan.capacity = Some(acidtest_results::CapacityPlan::default());
        assert!(titled(&result).starts_with("capacity of inventory on REDIS, SQLITE"), "{}", titled(&result));
        let named = NamedResult { name: "result.json", result: &result };
        assert!(page(&[named, named], &[]).unwrap().contains(", and 1 more · acidtest</title>"));
    }

    #[test]
    fn faults_are_marked_over_the_seconds_of_their_trial() {
        let mut result = Grid::default().result();
        assert!(!of(&result).contains("\"marks\""));
        let kill = acidtest_results::InjectionFigures {
            fault: "kill".to_owned(),
            member: "server".to_owned(),
            due_seconds: 3.0,
            at_seconds: Some(3.25),
            back_seconds: None,
            answered_seconds: None,
            acknowledged: None,
            outstanding: None,
            interrupted: None,
            crash: true,
            same_life: false,
            another_server: false,
            unserved_from_seconds: None,
            unserved_until_seconds: None,
            missed: false,
            overtaken: false,
            forced: false,
            last_ok_seconds: None,
            next_ok_seconds: None,
            promotion: None,
            not_promoted: None,
        };
        let late = acidtest_results::InjectionFigures { at_seconds: None, ..kill.clone() };
        result.cells[1].trials[0].injections = vec![kill, late];
        let page = of(&result);
        let marks = r#""marks":[{"x":3.25,"text":"kill","color":0}]"#;
        assert_eq!(page.matches(marks).count(), 2, "over throughput and over times");
        assert_eq!(page.matches("\"marks\"").count(), 2);
    }

    #[test]
    fn the_page_loads_nothing_and_runs_nothing_that_a_store_said() {
        let mut result = Grid::default().result();
        let evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'";
        let cell = &mut result.cells[1];
        cell.address = Some(evil.to_owned());
        cell.error = Some(evil.to_owned());
        cell.trials[0].faults.insert(evil.to_owned(), 3);
        cell.trials[0].server_log.push(evil.to_owned());
        cell.trials[0].operations[0].name = evil.to_owned();
        let page = of(&result);
        assert!(
            page.contains("&lt;/script&gt;&lt;script&gt;alert(1)") && !page.contains("<script>alert"),
            "escaped"
        );
        assert!(!page.contains("<img") && !page.contains("1.0 <beta>"));
        assert_eq!(page.matches("<script").count(), 3, "data, uPlot and the page's own");
        for loaded in [
            "<link",
            "<iframe",
            "<script src",
            "href=\"http",
            "url(",
            "@import",
            "fetch(",
            "XMLHttpRequest",
            "import(",
        ] {
            assert!(!page.contains(loaded), "{loaded}");
        }
    }

    #[test]
    fn every_part_is_there() {
        let grid = Grid {
            clients: &[1, 2, 4, 8, 16, 32],
            locks: &Lock::ALL,
            durability: &[Durability::None, Durability::Disk],
            ..Grid::default()
        };
        let page = of(&grid.result());
        for part in [
            "Universal",
            "broken: oversold",
            "1 (baseline)",
            "×0.8",
            "Index Scan &lt;on&gt; stock",
            "sync",
            "σ contention",
            "r0-sweep-0",
            "r0-p-0-0-0",
            "r0-c0-rate",
            "durability disk",
            "p99.9",
            "left by trial",
            "the bench itself",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }

    /// A result of 480 trials of 30 seconds each.
    #[test]
    fn a_large_result_makes_a_page_of_a_reasonable_size() {
        let size = of(&Grid { seconds: 30, ..Grid::LARGE }.result()).len();
        println!("{} KiB", size / 1024);
        assert!(size < 3 << 20, "{size}");
    }
}
