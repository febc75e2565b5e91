//! A run, live or past.

use axum::{extract::State as Of, response::Redirect};
use maud::{Markup, html};

use super::{Page, Sent, Which, Wrong, layout, past::promises, plan::query, to_run};
use crate::{
    app::App,
    results,
    runs::{Record, State},
};

pub(super) async fn show(Of(app): Of<App>, Which(id): Which) -> Result<Page, Wrong> {
    let record = app.find(&id).await?;
    let is_ours = app.runs.get(&id).is_some();
    let found = found(&app, &record).await;
    let stores = record.plan.stores.join(", ");
    let content = html! {
        h1 { (record.plan.workload) " on " (stores) }
        (about(&app, &record, is_ours))
        @if is_ours { (live()) noscript { p { "Without scripts this page shows the state when it was loaded; reload it for a newer one." } } }
        section aria-label="Findings" {
            h2 { "Findings" }
            div id="findings" hx-get={ "/runs/" (record.id) "/findings" } hx-trigger="findings" hx-target="this" hx-swap="innerHTML" {
                (found)
            }
        }
        details { summary { "Plan" } pre tabindex="0" { (format!("{:#}", serde_json::json!(record.plan))) } }
    };
    let scripts: &[&str] = if is_ours { &["htmx.js", "uplot.js", "figures.js", "run.js"] } else { &[] };
    Ok(Page::ok(layout(&format!("Run {}", record.id), "/runs", scripts, &content)))
}

/// What a run's result says so far, as a piece of its page.
pub(super) async fn findings(Of(app): Of<App>, Which(id): Which) -> Result<Page, Wrong> {
    let record = app.find(&id).await?;
    Ok(Page::ok(found(&app, &record).await))
}

async fn found(app: &App, record: &Record) -> Markup {
    match app.findings(record).await {
        Ok(markup) => markup,
        Err(_) if record.is_under_way() && !results::is_there(&app.runs.file(record)) => {
            html! { p.quiet { "No trial has ended yet." } }
        }
        Err(problem) => html! { p.quiet { (problem.detail()) } },
    }
}

/// How far the run is, and what can be done with it. Its script asks for it again when that changes.
fn about(app: &App, record: &Record, is_ours: bool) -> Markup {
    let state = record.state;
    let api = format!("/api/runs/{}", record.id);
    let has_result = results::is_there(&app.runs.file(record));
    html! {
        div id="about" data-run=(record.id) data-state=(state.name()) {
            p {
                strong id="state" { (state.words()) }
                @if let Some(before) = app.runs.before(record).filter(|_| is_ours) {
                    @match before { 0 => " · next", 1 => " · 1 run is ahead of it", before => { " · " (before) " runs are ahead of it" } }
                }
                @if record.verdict().is_some() { " · promises: " (promises(record)) }
            }
            @if let Some(error) = &record.error { p.bad { (error) } }
            @for note in &record.notes { p { "Note: " (note) } }
            @if !record.command.is_empty() { pre.command aria-label="The same on the command line" { (record.command) } }
            p.quiet {
                (record.cells) @if record.cells == 1 { " cell" } @else { " cells" }
                @if let Some(seconds) = record.seconds { " · driven for " (acidtest_model::figure::lasting(seconds)) }
                " · requested " (record.submitted.strftime("%Y-%m-%d %H:%M:%S UTC"))
            }
            div.actions {
                @if is_ours && matches!(state, State::Waiting | State::Running) {
                    form method="post" action={ "/runs/" (record.id) "/stop" } { button.danger type="submit" { "Stop" } }
                }
                @if is_ours && state.has_ended() && !record.is_complete {
                    form method="post" action={ "/runs/" (record.id) "/resume" } { button type="submit" { "Resume" } }
                }
                @if let Some(query) = query(&record.plan).filter(|_| state.has_ended()) {
                    a href={ "/?" (query) } { "Change and run again" }
                }
                @if has_result {
                    a href={ (api) "/report.html" } { "Report" }
                    a href={ (api) "/result" } { "Result file" }
                    @if record.cells > 1 { a href={ "/compare?run=" (record.id) } { "Compare its cells" } }
                }
            }
        }
    }
}

/// What happens now. The script fills it in.
fn live() -> Markup {
    let chart = |id: &str, title: &str| {
        html! { figure id=(id) hidden { figcaption { (title) } div.plot role="img" aria-label=(title) {} } }
    };
    html! {
        section id="live" aria-label="Live" hidden {
            h2 id="heading" { "Live" }
            p id="doing" role="status" {}
            p.quiet id="passing" {}
            progress id="progress" max="1" value="0" aria-label="Trials done" {}
            dl.figures id="figures" {
                div { dt { "acknowledged/s" } dd id="f-rate" { "–" } }
                div { dt { "p50" } dd id="f-p50" { "–" } }
                div { dt { "p99" } dd id="f-p99" { "–" } }
                div { dt { "verdict so far" } dd id="f-verdict" { "–" } }
                div { dt { "left" } dd id="f-left" { "–" } }
            }
            p.quiet id="outcomes" {}
            p.quiet id="used" {}
            div.charts {
                (chart("c-rate", "acknowledged operations a second"))
                (chart("c-times", "service times of acknowledged operations"))
                (chart("c-cores", "cores in use"))
                (chart("c-gauge", "level"))
            }
            p.quiet { "The measured seconds, trial after trial, with trials and faults marked." }
        }
    }
}

pub(super) async fn stop(Of(app): Of<App>, Which(id): Which, _: Sent) -> Result<Redirect, Wrong> {
    Ok(to_run(&app.stop(&id).await?))
}

pub(super) async fn resume(Of(app): Of<App>, Which(id): Which, _: Sent) -> Result<Redirect, Wrong> {
    Ok(to_run(&app.resume(&id).await?))
}
