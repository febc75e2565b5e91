//! The runs that there are, and two of them compared.

use axum::{extract::State as Of, http::Uri};
use maud::{Markup, html};

use super::{Asked, Page, Wrong, layout};
use crate::{
    app::{App, Compared},
    http::Problem,
    runs::Record,
};

/// Runs of a page.
const LISTED: usize = 100;

/// Cells that are offered one by one.
const OFFERED: usize = 1_000;

/// The runs, the latest first, and results that none of them has.
pub(super) async fn list(Of(app): Of<App>, uri: Uri) -> Result<Page, Wrong> {
    let asked = Asked::read(uri.query().unwrap_or_default().as_bytes());
    let before = app.runs.get(asked.one("before")).map_or(u64::MAX, |record| record.number);
    let (records, more) = app.runs.list(before, LISTED);
    let others = if before == u64::MAX { app.others().await? } else { Vec::new() };
    // the latest ones change by themselves
    let is_moving = before == u64::MAX && records.iter().any(|record| !record.state.has_ended());
    let content = html! {
        h1 { "Runs" }
        @if records.is_empty() && others.is_empty() {
            p { "There are no runs yet. " a href="/" { "Start one" } "." }
        } @else {
            form id="list" action="/compare" method="get" hx-get=[is_moving.then_some("/runs")] hx-trigger="every 3s" hx-target="this"
                hx-select="#list" hx-swap="outerMorph" {
                (table(&records))
                @if more {
                    @if let Some(last) = records.last() { p { a href={ "/runs?before=" (last.id) } { "Earlier runs" } } }
                }
                @if !others.is_empty() {
                    h2 { "Results of the command line" }
                    p.quiet { "Results in the folder of results that this server did not make." }
                    div.scroll tabindex="0" role="region" aria-label="Results of the command line" { table {
                        thead { tr { th scope="col" { "compare" } th scope="col" { "run" } th scope="col" { "workload" } } }
                        tbody { @for other in &others { tr {
                            td { (pick(&other.id)) }
                            td { a href={ "/runs/" (other.id) } { (other.id) } }
                            td { (other.workload) }
                        } } }
                    } }
                }
                p { button type="submit" { "Compare two" } " " span.quiet { "Choose two; the earlier one is A." } }
            }
        }
    };
    Ok(Page::ok(layout("Runs", "/runs", &["htmx.js"], &content)))
}

fn pick(id: &str) -> Markup {
    html! { input type="checkbox" name="run" value=(id) aria-label={ "compare " (id) }; }
}

fn table(records: &[Record]) -> Markup {
    html! {
        @if !records.is_empty() {
            div.scroll tabindex="0" role="region" aria-label="Runs" { table {
                thead { tr {
                    @for title in ["compare", "run", "state", "promises", "what"] {
                        th scope="col" { (title) }
                    }
                } }
                tbody { @for record in records { tr {
                    td { @if record.state.has_ended() { (pick(&record.id)) } }
                    td { a href={ "/runs/" (record.id) } { (record.id) } }
                    td { (record.state.words()) }
                    td { (promises(record)) }
                    td.long { (what(record)) }
                } } }
            } }
        }
    }
}

/// What a run is of, as the words of its command line.
fn what(record: &Record) -> &str {
    record.command.trim_start_matches("acidtest ").trim_start_matches("run ")
}

/// What became of the promises of a run that has ended, in the colour of verdicts. One that promised nothing has broken none.
pub(super) fn promises(record: &Record) -> Markup {
    let (verdict, said) = match record.verdict() {
        Some("holds") => ("holds", "none broken"),
        Some(verdict) => (verdict, verdict),
        None => ("", "–"),
    };
    html! { span.verdict.(verdict) { (said) } }
}

/// Two runs, or cells of one, compared.
pub(super) async fn compare(Of(app): Of<App>, uri: Uri) -> Result<Page, Wrong> {
    let asked = Asked::read(uri.query().unwrap_or_default().as_bytes());
    let mut picked: Vec<String> = asked.all("run").map(str::to_owned).collect();
    // an id begins with its time
    picked.sort();
    let of = |name: &str| Some(asked.one(name).to_owned()).filter(|text| !text.is_empty());
    let (a, b) = match &*picked {
        [] => (of("a"), of("b")),
        [a, b] => (Some(a.clone()), Some(b.clone())),
        [a] => (Some(a.clone()), None),
        _ => {
            let detail = format!("{} runs are chosen; choose two", picked.len());
            return Err(Problem::uncompared(detail).into());
        }
    };
    let Some(a) = a else { return Err(Problem::uncompared("no run is chosen; choose two").into()) };
    let query = Compared { a, b, a_cells: of("a_cells"), b_cells: of("b_cells") };
    let b = query.b.clone().unwrap_or_else(|| query.a.clone());
    let cells = (app.cells(&query.a).await?, app.cells(&b).await?);
    let needs_cells = b == query.a && query.a_cells.is_none() && query.b_cells.is_none();
    let compared = if needs_cells { None } else { Some(app.compare(query.clone()).await) };
    let content = html! {
        h1 { "Comparison" }
        p { "B " a href={ "/runs/" (b) } { (b) } " against A " a href={ "/runs/" (query.a) } { (query.a) } "." }
        form.fields action="/compare" method="get" {
            input type="hidden" name="a" value=(query.a);
            input type="hidden" name="b" value=(b);
            (of_cells("a_cells", "Cells of A", &cells.0, query.a_cells.as_deref()))
            (of_cells("b_cells", "Cells of B", &cells.1, query.b_cells.as_deref()))
            p { button type="submit" { "Compare" } }
        }
        @match &compared {
            None => p { "Choose a cell for A, and another for B." },
            Some(Ok(comparison)) => (comparison.html()),
            Some(Err(problem)) => p.bad role="alert" { (problem.detail()) },
        }
    };
    Ok(Page::ok(layout("Comparison", "/runs", &[], &content)))
}

/// Cells that can be chosen one by one, or all; what was asked for otherwise stays as it is.
fn of_cells(name: &str, label: &str, cells: &[(String, String)], asked: Option<&str>) -> Markup {
    let other = asked.filter(|asked| cells.iter().all(|(_, choices)| choices != asked));
    html! {
        div.field {
            label for=(name) { (label) }
            select id=(name) name=(name) {
                option value="" { "all" }
                @if let Some(other) = other { option value=(other) selected { (other) } }
                @for (cell, choices) in cells.iter().take(OFFERED) {
                    option value=(choices) selected[asked == Some(choices)] { (cell) }
                }
            }
        }
    }
}
