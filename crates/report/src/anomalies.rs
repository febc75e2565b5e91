//! Which anomalies isolation levels allow: as tables for a terminal and for Markdown, and as a page.

use std::fmt::Write;

use acidtest_anomalies::{
    AnomaliesResult, Anomaly, AnomalyCell, How, ModeResult, Outcome, Says, StoreResult, Transcript,
};
use acidtest_model::Isolation;
use maud::{Markup, html};

use crate::{
    page::{self, NamedAnomalies},
    table::{Entry, Priority, Style, Table, Tone, escaped, wrapped},
};

const LEGEND: &str = "✓ prevented, and how; ✗ occurs; ? could not be told; – the store cannot run the script. In brackets, what is \
                      published: [✓] prevented, [✗] occurs, [~] possible; ≠ differs from that. ★ is what new sessions have; ! breaks a \
                      promise of the store's documentation";

/// The tables for a terminal, with what is to be said of each store.
#[must_use]
pub fn terminal(result: &AnomaliesResult, style: Style) -> String {
    let mut text = wrapped(&headline(result), style);
    text.push_str("\n\n");
    for store in &result.stores {
        let _ = writeln!(text, "{}", wrapped(&title(store), style));
        for line in conclusions(result, store) {
            let _ = writeln!(text, "{}", wrapped(&line, style));
        }
        if !store.modes.is_empty() {
            text.push('\n');
            text += &table(result, store).terminal(style);
        }
        for line in remarks(store) {
            let _ = writeln!(text, "{}", wrapped(&line, style));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{}", wrapped(LEGEND, style));
    text
}

/// The same as Markdown, which pastes into a page.
#[must_use]
pub fn markdown(result: &AnomaliesResult) -> String {
    let mut text = format!("{}\n\n", escaped(&headline(result)));
    for store in &result.stores {
        let _ = writeln!(text, "### {}\n", escaped(&title(store)));
        for line in conclusions(result, store) {
            let _ = writeln!(text, "{}\n", escaped(&line));
        }
        if !store.modes.is_empty() {
            text += &table(result, store).markdown();
            text.push('\n');
        }
        for line in remarks(store) {
            let _ = writeln!(text, "- {}", escaped(line.trim()));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{}", escaped(LEGEND));
    text
}

/// The transcripts of one anomaly: on each store, at each level.
#[must_use]
pub fn transcripts(result: &AnomaliesResult, anomaly: &str, style: Style) -> String {
    let mut text = String::new();
    for store in &result.stores {
        for line in conclusions(result, store) {
            let _ = writeln!(text, "{}", wrapped(&format!("{}: {line}", title(store)), style));
        }
    }
    text.push('\n');
    for (store, mode, cell) in cells(result).filter(|(.., cell)| cell.anomaly == anomaly) {
        let heading = format!("{} · {} · {}: {}", title(store), mode.name, cell.anomaly, said(result, cell));
        let _ = writeln!(text, "{}", wrapped(&heading, style));
        if let Some(transcript) = &cell.transcript {
            let _ = writeln!(text, "{}", transcript_text(transcript));
        }
        text.push('\n');
    }
    text
}

/// What a page says of a result.
pub(crate) fn section(NamedAnomalies { name, result }: &NamedAnomalies<'_>, id: &str) -> Markup {
    html! {
        main id=(id) {
            header {
                h1 { "Which anomalies isolation levels allow" }
                p { (headline(result)) }
                p.quiet { (page::moment(&result.started)) " · " (name) }
            }
            p { (LEGEND) "." }
            @for store in &result.stores { (of_store(result, store)) }
            section { h2 { "Anomalies" } ul { @for anomaly in &result.anomalies {
                li { strong { (anomaly.name) } ", " (anomaly.title) ": " (anomaly.means) }
            } } }
            p.quiet { "How it is found: docs/anomalies.md." }
        }
    }
}

fn of_store(result: &AnomaliesResult, store: &StoreResult) -> Markup {
    html! {
        section {
            h2 { (title(store)) }
            @for line in conclusions(result, store) { p { (line) } }
            @if !store.modes.is_empty() {
                (page::table(&table(result, store), false))
                details {
                    summary { "Beside what is published" }
                    (page::table(&beside_published(store), false))
                }
            }
            ul { @for line in remarks(store) { li { (line.trim()) } } }
            @for mode in &store.modes {
                details.cell {
                    summary { "What happened at " (mode.name) }
                    p.quiet { (mode.how) @if !mode.told.is_empty() { " · read back: " (mode.told) } }
                    @for cell in &mode.cells { @if let Some(transcript) = &cell.transcript {
                        p { strong { (cell.anomaly) } ": " (said(result, cell)) }
                        pre { (transcript_text(transcript)) }
                    } }
                }
            }
        }
    }
}

fn headline(result: &AnomaliesResult) -> String {
    let orders: u32 = result.anomalies.iter().map(|anomaly| anomaly.orders).sum();
    let interrupted = if result.interrupted { " · interrupted: not all was run" } else { "" };
    let times = match result.repeat {
        1 => "once".to_owned(),
        times => format!("{times} times"),
    };
    let anomalies = match result.anomalies.as_slice() {
        [one] => one.name.clone(),
        all => format!("{} anomalies", all.len()),
    };
    format!(
        "{anomalies} · {orders} orders of steps, each {times} at each level · {:.0} s · acidtest {}{interrupted}",
        result.seconds, result.acidtest
    )
}

fn title(store: &StoreResult) -> String {
    let address = if store.store.contains(':') { format!(" at {}", store.store) } else { String::new() };
    let version = if store.version.is_empty() { String::new() } else { format!(" {}", store.version) };
    format!("{}{version}{address}", store.title)
}

fn cells(result: &AnomaliesResult) -> impl Iterator<Item = (&StoreResult, &ModeResult, &AnomalyCell)> {
    result.stores.iter().flat_map(|store| {
        store.modes.iter().flat_map(move |mode| mode.cells.iter().map(move |cell| (store, mode, cell)))
    })
}

/// A row for each anomaly, a column for each mode.
fn table(result: &AnomaliesResult, store: &StoreResult) -> Table {
    let mut titles = vec!["anomaly".to_owned()];
    for (index, mode) in store.modes.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| store.modes.get(before));
        let of_before = before.and_then(|before| mode.name.strip_prefix(&format!("{}, ", before.name)));
        let name = of_before.map_or_else(|| mode.name.clone(), |rest| format!("… {rest}"));
        titles.push(if mode.is_default { format!("{name} ★") } else { name });
    }
    let mut table = Table::new(titles.iter().map(|title| (title.as_str(), Priority::Needed)));
    for (place, anomaly) in result.anomalies.iter().enumerate() {
        let name = Entry::left(named(anomaly)).or(anomaly.name.clone());
        let found =
            store.modes.iter().map(|mode| mode.cells.get(place).map_or_else(|| Entry::left(""), entry));
        table.push(std::iter::once(name).chain(found));
    }
    table
}

/// The anomaly's short name and its title, unless that is the same.
fn named(anomaly: &Anomaly) -> String {
    let is_said = anomaly.title.starts_with(&anomaly.name) || anomaly.title == anomaly.name.replace('-', " ");
    if is_said { anomaly.title.clone() } else { format!("{} {}", anomaly.name, anomaly.title) }
}

fn entry(cell: &AnomalyCell) -> Entry {
    // before the words, of which a narrow terminal may show only the beginning
    let mut marks = String::new();
    if cell.breaks_promise() {
        marks += "! ";
    }
    if cell.differing().next().is_some() {
        marks += "≠ ";
    }
    // the first is of the same product, where there is one
    let published = cell.published.first().map_or("", |published| match published.says {
        Says::Prevented => " [✓]",
        Says::Occurs => " [✗]",
        Says::Possible => " [~]",
    });
    let (forms, tone): (&[&str], _) = match cell.outcome {
        Outcome::Prevented => (cell.how.unwrap_or(How::OldVersion).forms(), Tone::Good),
        Outcome::Occurs if cell.breaks_promise() => (&["✗ occurs"], Tone::Bad),
        Outcome::Occurs => (&["✗ occurs"], Tone::Doubtful),
        Outcome::Unknown => (&["? unknown"], Tone::Doubtful),
        Outcome::NotApplicable => (&["–"], Tone::Plain),
    };
    let mut forms = forms.iter().map(|form| format!("{marks}{form}{published}"));
    let longest = Entry::toned(forms.next().unwrap_or_default(), tone);
    forms.fold(longest, Entry::or)
}

/// What was measured beside what is published, where something is.
fn beside_published(store: &StoreResult) -> Table {
    let mut table = Table::of(&["level", "anomaly", "measured", "published", "by", "differs"]);
    for mode in &store.modes {
        for cell in &mode.cells {
            for published in &cell.published {
                let differs = cell.differing().any(|differing| differing == published);
                table.push([
                    Entry::left(&mode.name),
                    Entry::left(&cell.anomaly),
                    Entry::left(outcome(cell)),
                    Entry::left(published.says.word()),
                    Entry::left(&published.source),
                    if differs { Entry::toned("≠", Tone::Doubtful) } else { Entry::left("") },
                ]);
            }
        }
    }
    table
}

fn outcome(cell: &AnomalyCell) -> &'static str {
    match cell.outcome {
        Outcome::Prevented => "prevented",
        Outcome::Occurs => "occurs",
        Outcome::Unknown => "unknown",
        Outcome::NotApplicable => "cannot be run",
    }
}

/// What was found in a cell, with its counts.
fn said(result: &AnomaliesResult, cell: &AnomalyCell) -> String {
    let anomaly = result.anomalies.iter().find(|anomaly| anomaly.name == cell.anomaly);
    let orders = anomaly.map_or(0, |anomaly| anomaly.orders);
    match cell.outcome {
        Outcome::Occurs => format!(
            "occurs in {} of {orders} orders ({} of {} times): {}",
            cell.orders_occurred,
            cell.occurred,
            cell.plays,
            cell.values.as_deref().unwrap_or_default()
        ),
        Outcome::Prevented => {
            let how: Vec<String> =
                cell.prevented.iter().map(|(how, times)| format!("{times} times {}", how.words())).collect();
            format!("prevented in all {orders} orders: {}", how.join(", "))
        }
        Outcome::Unknown | Outcome::NotApplicable => {
            format!("{}: {}", outcome(cell), cell.why.as_deref().unwrap_or_default())
        }
    }
}

/// What is to be known of a store before its table: broken promises, and why it was not tried.
fn conclusions(result: &AnomaliesResult, store: &StoreResult) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(error) = &store.error {
        lines.push(format!("error: {error}"));
    }
    let mut promised = 0;
    for mode in &store.modes {
        for cell in mode.cells.iter().filter(|cell| cell.breaks_promise()) {
            let promise = cell.promise.as_ref().map_or("", |promise| promise.said.as_str());
            let source = cell.promise.as_ref().map_or("", |promise| promise.source.as_str());
            lines.push(format!(
                "Broken: at {}, {}. The documentation rules it out: {promise} ({source}).",
                mode.name,
                format_args!("{} {}", cell.anomaly, said(result, cell))
            ));
        }
        promised += mode
            .cells
            .iter()
            .filter(|cell| cell.promise.is_some() && cell.outcome == Outcome::Prevented)
            .count();
    }
    if lines.is_empty() && promised > 0 {
        lines.push(format!(
            "Holds: of {promised} anomalies that the documentation rules out, at all these levels together, none was found."
        ));
    }
    lines
}

/// What is to be known of a store after its table.
fn remarks(store: &StoreResult) -> Vec<String> {
    let mut lines = Vec::new();
    // one line for the same values at several levels
    let mut shown: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for mode in &store.modes {
        for cell in mode.cells.iter().filter(|cell| cell.outcome == Outcome::Occurs) {
            let values = cell.values.as_deref().unwrap_or_default();
            match shown.iter_mut().find(|(anomaly, other, _)| *anomaly == cell.anomaly && *other == values) {
                Some((.., modes)) => modes.push(&mode.name),
                None => shown.push((&cell.anomaly, values, vec![&mode.name])),
            }
        }
    }
    for (anomaly, values, modes) in shown {
        lines.push(format!(" ✗ {anomaly} ({}): {values}", modes.join("; ")));
    }
    for mode in &store.modes {
        for cell in &mode.cells {
            for published in cell.differing() {
                lines.push(format!(
                    " ≠ {} at {}: {} here, published as {} ({})",
                    cell.anomaly,
                    mode.name,
                    outcome(cell),
                    published.says.word(),
                    published.source
                ));
            }
        }
    }
    let mut reasons: Vec<(&str, &str, Vec<String>)> = Vec::new();
    for mode in &store.modes {
        for cell in &mode.cells {
            let mark = match cell.outcome {
                Outcome::Unknown => "?",
                Outcome::NotApplicable => "–",
                Outcome::Prevented | Outcome::Occurs => continue,
            };
            let why = cell.why.as_deref().unwrap_or_default();
            match reasons.iter_mut().find(|(of, other, _)| *of == mark && *other == why) {
                Some((.., cells)) if cells.contains(&cell.anomaly) => {}
                Some((.., cells)) => cells.push(cell.anomaly.clone()),
                None => reasons.push((mark, why, vec![cell.anomaly.clone()])),
            }
        }
    }
    for (mark, why, cells) in reasons {
        lines.push(format!(" {mark} {}: {why}", cells.join(", ")));
    }
    for refused in &store.refused {
        let level = refused.level.map_or_else(|| "isolation levels".to_owned(), Isolation::words);
        lines.push(format!(" not here: {level}: {}", refused.why));
    }
    lines
}

/// A transcript as aligned text.
fn transcript_text(transcript: &Transcript) -> String {
    let width = transcript.steps.iter().map(|step| step.statement.chars().count()).max().unwrap_or(0);
    let names = transcript.steps.iter().map(|step| step.session.chars().count()).max().unwrap_or(0);
    let mut lines: Vec<String> = transcript
        .steps
        .iter()
        .map(|step| {
            let goes_on = if step.waited { "goes on: " } else { "" };
            let (session, statement) = (&step.session, &step.statement);
            format!("  {session:names$}  {statement:width$}  {goes_on}{}", step.came)
        })
        .collect();
    lines.extend(transcript.last.iter().map(|last| format!("  in the end: {last}")));
    lines.join("\n")
}
