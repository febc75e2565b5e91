//! Formats a comparison for a terminal, or for a page.

use acidtest_model::figure::percent;
use acidtest_results::distinct;
use acidtest_workloads::Verdict;
use maud::{Markup, html};

use super::{Assessment, Comparison, Design, Figure, FigureComparison, Judgement, Outcome, Pair, Ruling};
use crate::{
    Style,
    notes::{LEFT_OUT, REFUSED_MORE},
    page,
    table::{Entry, Priority, Table, Tone, numbered, wrapped},
    tables::{bound, ratio},
};

/// Up to this many pairs every figure is shown; above it, one row a pair.
const DETAILED: usize = 6;

impl Comparison {
    /// The comparison as text: figure by figure for few pairs, one row a pair for many, then what to know, and how
    /// the conditions turned out.
    #[must_use]
    pub fn render(&self, style: Style) -> String {
        let mut sections = vec![wrapped(&self.headline(), style)];
        if self.pairs.len() <= DETAILED {
            for pair in &self.pairs {
                sections.push(format!(
                    "{}\n{}",
                    wrapped(&heading(pair), style),
                    detailed(pair).terminal(style)
                ));
            }
        } else {
            let names = self.pairs.iter().map(heading).collect();
            sections.push(named(names, style, |by| summary(&self.pairs, by)));
        }
        if !self.judged.is_empty() {
            let cells = distinct(self.judged.iter().map(|judged| judged.cell.clone()));
            sections.push(named(cells.clone(), style, |by| self.conditions(&cells, by)));
        }
        let mut notes = self.notes();
        if self.pairs.len() > DETAILED {
            notes.push(format!("{} pairs: all figures of each are in --output json.", self.pairs.len()));
        }
        sections.push(wrapped(&notes.join("\n"), style));
        let mut text = String::new();
        for section in sections {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(section.trim_end());
            text.push('\n');
        }
        text
    }

    /// The comparison for a page: one row a pair, each pair figure by figure, and what to know.
    #[must_use]
    pub fn html(&self) -> Markup {
        html! {
            @for line in self.headline().lines() { p { (line) } }
            @if self.pairs.len() > 1 { (page::table(&summary(&self.pairs, By::Name), false)) }
            @for pair in &self.pairs {
                details open[self.pairs.len() <= DETAILED] {
                    summary { (heading(pair)) }
                    (page::table(&detailed(pair), false))
                }
            }
            ul { @for note in self.notes() { li { (note) } } }
        }
    }

    fn headline(&self) -> String {
        let side = |name: &str, source: &super::Source| {
            let selected =
                if source.selected.is_empty() { "all cells".to_owned() } else { source.selected.join(", ") };
            let runs = match &source.runs[..] {
                [run] => format!("run {run}"),
                several => format!("{} runs", several.len()),
            };
            format!("{name}: {} · {selected} · {runs}", source.file)
        };
        format!("{}\n{}", side("A", &self.a), side("B", &self.b))
    }

    fn conditions(&self, cells: &[String], by: By) -> Table {
        let mut table = Table::new([
            ("fails if", Priority::Needed),
            ("cell of B", Priority::Needed),
            ("B / A", Priority::Needed),
            ("ruling", Priority::Needed),
            ("could show", Priority::High),
        ]);
        for judged in &self.judged {
            let (word, tone) = match &judged.ruling {
                Ruling::Excluded => ("excluded", Tone::Good),
                Ruling::Shown => ("shown", Tone::Bad),
                Ruling::Inconclusive(_) => ("inconclusive", Tone::Doubtful),
            };
            table.push([
                Entry::left(&judged.condition),
                match (by, cells.iter().position(|cell| *cell == judged.cell)) {
                    (By::Number, Some(place)) => Entry::right(place + 1),
                    _ => Entry::left(&judged.cell),
                },
                Entry::right(judged.ratio.as_ref().map_or_else(|| "–".to_owned(), ratio)),
                Entry::toned(word, tone),
                Entry::right(
                    judged.could_show.map_or_else(|| "–".to_owned(), |from| could_show(judged, from)),
                ),
            ]);
        }
        table
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let reasons = self.judged.iter().filter_map(|judged| match &judged.ruling {
            Ruling::Inconclusive(why) => Some(why.clone()),
            Ruling::Shown | Ruling::Excluded => None,
        });
        notes.extend(distinct(reasons).into_iter().map(|why| format!("inconclusive: {why}.")));
        if self.judged.iter().any(|judged| judged.could_show.is_some()) {
            notes.push(
                "could show: the smallest change beyond the bound that these data would have shown."
                    .to_owned(),
            );
        }
        let tested = self.judged.iter().filter(|judged| judged.could_show.is_some()).count();
        if tested > 1 {
            notes.push(format!(
                "{tested} conditions and cells are tested together (Holm): noise alone makes any of them fail in at most \
                 2.5 % of comparisons."
            ));
        }
        let known = || {
            let figures = self.pairs.iter().flat_map(|pair| &pair.figures);
            figures
                .filter(|figure| !matches!(figure.assessment, Assessment::OneRunASide | Assessment::Void))
                .filter_map(|figure| figure.ratio)
        };
        notes.push(format!("{}; figures are geometric means over the trials, where the tables of a run have arithmetic ones.", self.units()));
        if let Some(method) = known().find_map(|ratio| ratio.method) {
            notes.push(format!("intervals: 95 %, {}; ≈ marks one inside the noise.", method.name()));
        }
        let tested = known().filter(|ratio| ratio.interval.is_some()).count();
        if tested >= 20 {
            notes.push(format!(
                "{tested} ratios, each with an interval that misses the truth in 1 of 20: about {} may be called different \
                 by chance.",
                (tested + 10) / 20
            ));
        }
        for (what, cells) in [("A", &self.only_a), ("B", &self.only_b)] {
            if !cells.is_empty() {
                notes.push(format!("only in {what}: {}", cells.join("; ")));
            }
        }
        if !self.differences.is_empty() {
            notes.push(format!("A and B differ otherwise (A / B): {}", self.differences.join("; ")));
        }
        for pair in self.pairs.iter().filter(|pair| pair.void.is_some()) {
            notes.push(format!("{}: void, {}", pair.b, pair.void.as_ref().map_or("", |void| &void.why)));
        }
        for pair in &self.pairs {
            let reasons = distinct(pair.figures.iter().filter_map(|figure| figure.void.as_deref()));
            notes.extend(reasons.into_iter().map(|why| format!("{}: figures are void, {why}.", pair.b)));
        }
        if self.pairs.iter().flat_map(|pair| &pair.figures).any(|figure| figure.void.is_some()) {
            notes.push(format!(
                "rates, times and CPU are void where {REFUSED_MORE}. To compare A and B, make them refuse alike."
            ));
        }
        if self.pairs.iter().any(is_percentile_left_out) {
            notes.push(format!("{LEFT_OUT}, in each trial."));
        }
        for (what, pair) in self.pairs.iter().filter_map(|pair| Some((pair.disturbed.as_ref()?, pair))) {
            notes.push(format!("{}: disturbed, {what}: it shows nothing.", pair.b));
        }
        if self.pairs.iter().any(|pair| pair.disturbed.is_some()) {
            notes.push(
                "figures measured beside other programs may be due to them: end them, or wait for a quiet machine \
                 (--quiet-machine=wait), and run again."
                    .to_owned(),
            );
        }
        match self.outcome {
            Outcome::Failed => notes.push("the comparison failed.".to_owned()),
            Outcome::Inconclusive => notes.push("the comparison is inconclusive.".to_owned()),
            Outcome::Passed => {}
        }
        notes
    }

    /// What was compared with what.
    fn units(&self) -> String {
        match (self.design, self.between_runs) {
            (Design::Rounds, _) => {
                "one run: ratios are taken round by round, within one session of the run".to_owned()
            }
            (Design::Pairs, _) if self.a.runs == self.b.runs => {
                format!("{} runs: each is one pair", self.a.runs.len())
            }
            (Design::Pairs, _) => {
                format!("{} pairs of runs that took turns: each is one pair", self.a.runs.len())
            }
            (Design::Groups, _) => format!(
                "{} and {} runs: each is one measurement, and whatever changed between A and B, other load on the machine included, is \
                 in the ratios",
                self.a.runs.len(),
                self.b.runs.len()
            ),
            (Design::Single, None) => {
                "one run a side: the intervals cover the trials within each; two runs of the same plan differ by more, and \
                 nothing here shows by how much"
                    .to_owned()
            }
            (Design::Single, Some(between)) => format!(
                "one run a side: two runs of the same plan were said to differ by {}, which the intervals include",
                percent(between)
            ),
        }
    }
}

/// Whether a trial of either side has too few of some operation for one of the percentiles.
fn is_percentile_left_out(pair: &Pair) -> bool {
    let figures = |figure: Figure| pair.figures.iter().filter(move |each| each.figure == figure);
    figures(Figure::Max).any(|max| {
        let highest = figures(Figure::P999).find(|each| each.operation == max.operation);
        highest.is_none_or(|each| each.assessment == Assessment::TooFewOperations)
    })
}

/// The smallest change that would have been shown: `≤ ×0.81`.
fn could_show(judged: &Judgement, from: f64) -> String {
    match bound(from) {
        beyond if beyond.starts_with(['<', '>']) => "nothing".to_owned(),
        from => format!("{} ×{from}", if judged.condition.above { "≥" } else { "≤" }),
    }
}

/// The names of both cells with their verdicts: no throughput is shown without them.
fn heading(pair: &Pair) -> String {
    let side = |name: &str, verdict: Verdict| format!("{name} ({verdict})");
    format!("A {} → B {}", side(&pair.a, pair.a_verdict), side(&pair.b, pair.b_verdict))
}

fn detailed(pair: &Pair) -> Table {
    let mut table = Table::new([
        ("operation", Priority::Needed),
        ("figure", Priority::Needed),
        ("A", Priority::High),
        ("B", Priority::High),
        ("B / A", Priority::Needed),
        ("B is", Priority::Needed),
    ]);
    for figure in &pair.figures {
        let value =
            |side: Option<f64>| side.map_or_else(|| "–".to_owned(), |value| figure.figure.shown(value));
        table.push([
            Entry::left(figure.operation.as_deref().unwrap_or("together")),
            Entry::left(match figure.figure {
                Figure::Throughput => "ok/s",
                Figure::ClientCpu => "client CPU/op",
                Figure::ServerCpu => "server CPU/op",
                other => other.name(),
            }),
            Entry::right(value(figure.a)),
            Entry::right(value(figure.b)),
            Entry::right(against(figure)),
            assessment(figure.assessment),
        ]);
    }
    table
}

fn against(figure: &FigureComparison) -> String {
    match (figure.assessment, &figure.ratio) {
        (Assessment::Void, _) => "void".to_owned(),
        (_, None) => "–".to_owned(),
        (_, Some(each)) => ratio(each),
    }
}

fn assessment(assessment: Assessment) -> Entry {
    let tone = match assessment {
        Assessment::Better => Tone::Good,
        Assessment::Worse => Tone::Bad,
        Assessment::Void | Assessment::Disturbed => Tone::Doubtful,
        Assessment::NoDifferenceShown
        | Assessment::TooFewTrials
        | Assessment::TooFewOperations
        | Assessment::OneRunASide => Tone::Plain,
    };
    Entry::toned(assessment.name(), tone)
}

/// What a row says of the cells that it is about.
#[derive(Clone, Copy)]
enum By {
    Name,
    /// Their number in a list above the table, from 1.
    Number,
}

/// A table that names cells. Where the names leave no room for the rest, they stand in a list above it.
fn named(names: Vec<String>, style: Style, table: impl Fn(By) -> Table) -> String {
    let whole = table(By::Name);
    if whole.fits(style) {
        return whole.terminal(style);
    }
    format!("{}\n\n{}", numbered(names, style), table(By::Number).terminal(style))
}

/// One row for each pair, with the figures that matter most for a decision.
fn summary(pairs: &[Pair], by: By) -> Table {
    const FIGURES: [Figure; 3] = [Figure::Throughput, Figure::P50, Figure::P99];
    let cells: &[(&str, Priority)] = match by {
        By::Name => &[
            ("A", Priority::Needed),
            ("verdict", Priority::Needed),
            ("B", Priority::Needed),
            ("verdict", Priority::Needed),
        ],
        By::Number => &[("pair", Priority::Needed), ("A", Priority::Needed), ("B", Priority::Needed)],
    };
    let figures = [
        ("ok/s B / A", Priority::Needed),
        ("is", Priority::High),
        ("p50 B / A", Priority::Low),
        ("p99 B / A", Priority::Middle),
    ];
    let mut table = Table::new(cells.iter().copied().chain(figures));
    for (place, pair) in pairs.iter().enumerate() {
        let together = |figure: Figure| {
            pair.figures.iter().find(|each| each.operation.is_none() && each.figure == figure)
        };
        let [throughput, p50, p99] = FIGURES.map(together);
        let shown =
            |figure: Option<&FigureComparison>| Entry::right(figure.map_or_else(|| "–".to_owned(), against));
        let [a, b] = [pair.a_verdict, pair.b_verdict].map(|verdict| Entry::verdict(verdict, verdict));
        let cells = match by {
            By::Name => vec![Entry::left(&pair.a), a, Entry::left(&pair.b), b],
            By::Number => vec![Entry::right(place + 1), a, b],
        };
        table.push(cells.into_iter().chain([
            shown(throughput),
            assessment(throughput.map_or(Assessment::TooFewTrials, |figure| figure.assessment)),
            shown(p50),
            shown(p99),
        ]));
    }
    table
}
