//! Compares two cells, or two grids of cells, with each other.
//!
//! Cells are compared in pairs that are equal in everything that no selector names. Trials of one run were
//! interleaved, so their ratios are taken round by round; between runs the run is the unit ([`Design`]).

mod condition;
mod design;
mod figures;
mod select;
mod show;

use acidtest_model::{Consistency, figure::percent};
use acidtest_results::{
    Answers, CellResult, CellStaleness, PlanOption, Ratio, RunResult, UnreadableHistogram, conditions,
    dimensions::{CONSISTENCY, DURABILITY, Dimensions, Names},
    distinct, disturbing,
    statistics::Difference,
    total,
};
use acidtest_workloads::{Finding, Verdict};
use schemars::JsonSchema;
use serde::Serialize;

pub use condition::{Condition, Judgement, Ruling};
pub use design::Design;
pub use figures::Figure;
pub use select::{Choice, SelectionError, Selector, selectors};

use self::figures::TrialFigures;
use crate::{NamedResult, not_served::not_served, tables};

/// The version of a comparison's JSON: raised when a reader of the last one would misread the next.
const FORMAT: u32 = 2;

/// The reason why two results could not be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// A selector fits no cell, or does not fit one cell alone; or runs that cannot be compared.
    #[error("{0}")]
    SelectionError(#[from] SelectionError),
    /// A histogram in one of the results cannot be read.
    #[error("{0}")]
    Unreadable(#[from] UnreadableHistogram),
}

/// One side of a comparison: its runs, all of the same plan, and which of their cells are compared.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The results whose cells are compared, each with the name of its file; at least one.
    pub runs: &'a [NamedResult<'a>],
    /// The name of the file or of the folder of files, for messages.
    pub name: &'a str,
    /// What comes before `NAME=VALUE` where a cell is chosen, for messages: an option and a blank, or a key and `=`.
    pub choose: &'a str,
    /// Selects the cells to compare; an empty selector takes all of them.
    pub selector: &'a Selector,
}

/// A comparison of B with A.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Comparison {
    /// The version of this JSON format, from 1.
    pub format: u32,
    /// The files and the runs of side A, which B is compared with.
    pub a: Source,
    /// The files and the runs of side B.
    pub b: Source,
    /// The units whose variation the intervals are made of.
    pub design: Design,
    /// The standard deviation that runs of the same were said to have, as a share; none where nothing was said.
    pub between_runs: Option<f64>,
    /// The pairs of cells that were compared, one of A and one of B each.
    pub pairs: Vec<Pair>,
    /// Names of the cells of A that have no partner in B.
    pub only_a: Vec<String>,
    /// Names of the cells of B that have no partner in A.
    pub only_b: Vec<String>,
    /// Differences between the runs, besides those selected, that bear on their figures.
    pub differences: Vec<String>,
    /// The ruling on each condition for each pair.
    pub judged: Vec<Judgement>,
    /// What follows from pairs and conditions together.
    pub outcome: Outcome,
}

/// What follows from a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// No pair is void, and every condition is excluded.
    Passed,
    /// Not shown to have failed, but a pair is void, a condition is inconclusive, or, where there are conditions, a cell of A
    /// has no partner.
    Inconclusive,
    /// A condition is shown, or a cell of B did not hold what it was to hold.
    Failed,
}

/// The files, the runs and the selector of one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Source {
    /// The name of the result's file, or of the folder of the results' files.
    pub file: String,
    /// The ids of the runs, in the order of their times.
    pub runs: Vec<String>,
    /// The selector's choices, as `NAME=VALUE`; empty if all cells were taken.
    pub selected: Vec<String>,
}

/// A cell of A and the cell of B that it is compared with.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Pair {
    /// The cell of A, named by the dimensions that vary.
    pub a: String,
    /// The cell of B, named by the dimensions that vary.
    pub b: String,
    /// All dimensions of A's cell, by name.
    pub a_dimensions: Dimensions,
    /// All dimensions of B's cell, by name.
    pub b_dimensions: Dimensions,
    /// The worst verdict of A's trials, over all its runs.
    pub a_verdict: Verdict,
    /// The worst verdict of B's trials, over all its runs.
    pub b_verdict: Verdict,
    /// Why the comparison is void; none if it is not.
    pub void: Option<Void>,
    /// That other programs kept the machine busy, so that nothing is shown; none if they did not.
    pub disturbed: Option<String>,
    /// Figure by figure: first over all operations together, then operation by operation and span by span.
    pub figures: Vec<FigureComparison>,
}

/// The reason why a pair of cells is not compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Void {
    /// The reason.
    pub why: String,
    /// Whether B is known not to have held what it was to hold, so that the comparison fails; else nothing is known.
    pub fails: bool,
}

/// One figure of both cells, with their ratio.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FigureComparison {
    /// The operation or the span; none for all operations together.
    pub operation: Option<String>,
    /// The figure that is compared.
    pub figure: Figure,
    /// The unit of `a` and `b`.
    pub unit: &'static str,
    /// Geometric mean over the trials of A (of errors the mean): 0 where a trial has 0, none where no trial has the figure. A
    /// percentile is of the trials that have enough operations for it.
    pub a: Option<f64>,
    /// Geometric mean over the trials of B, with 0 and none as in `a`.
    pub b: Option<f64>,
    /// The ratio B / A; none where a trial of either side has the value 0, or none can be compared. Its interval is of the design's
    /// units; of one run a side it is of their trials, and says nothing of how runs differ.
    pub ratio: Option<Ratio>,
    /// Why this figure is void in a pair that is not; none if it is not, or the whole pair is.
    pub void: Option<String>,
    /// What conditions are tested by; none where the units do not say how much they vary.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) difference: Option<Difference>,
    /// Whether B is better or worse, and if that cannot be said, the reason.
    #[serde(rename = "says")]
    pub assessment: Assessment,
}

/// Whether a ratio shows that B is better or worse than A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Assessment {
    /// B is better: the interval excludes 1.
    Better,
    /// B is worse: the interval excludes 1.
    Worse,
    /// The interval contains 1, or lies too near to it for histograms of three digits to tell.
    NoDifferenceShown,
    /// There is no interval: the trials are too few, or one of them acknowledged nothing.
    TooFewTrials,
    /// There is no interval: a trial has too few operations for the percentile.
    TooFewOperations,
    /// There is one run a side, and nothing says how much runs of the same differ.
    OneRunASide,
    /// Other programs kept the machine busy.
    Disturbed,
    /// The pair is void, because a guarantee did not hold or a cell was not run; or the figure is, because the two cells refused
    /// such different shares that they did different work.
    Void,
}

impl Assessment {
    /// The assessment in a reader's words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoDifferenceShown => "no difference shown",
            Self::TooFewTrials => "too few trials",
            Self::TooFewOperations => "too few operations",
            Self::OneRunASide => "one run a side",
            Self::Disturbed => "disturbed",
            Self::Void => "void",
        }
    }
}

/// Compares the cells of B with those of A, and judges the conditions on each pair. `between_runs` is the standard deviation of
/// runs that are alike, as a share, where there is one run a side and it is known otherwise.
///
/// # Errors
/// A selector that fits no cell, or more than one where it must fit one; runs that are given twice or are not of one plan; a
/// histogram that cannot be read.
pub fn compare(
    a: Side<'_>,
    b: Side<'_>,
    conditions: &[Condition],
    between_runs: Option<f64>,
) -> Result<Comparison, CompareError> {
    let (runs_a, runs_b) = (in_order(a.runs), in_order(b.runs));
    let (a, b) = (Side { runs: &runs_a, ..a }, Side { runs: &runs_b, ..b });
    let matched = select::pairs(a, b)?;
    let design = Design::of(a.runs, b.runs);
    if design != Design::Single && between_runs.is_some() {
        return Err(SelectionError::of(
            "how much runs differ can be given only with one run a side: several show it themselves",
        )
        .into());
    }
    let (one, other) = (select::first(a)?.result, select::first(b)?.result);
    let names = Names::in_full(one.cells.iter().chain(&other.cells));
    let name = |cell: &&CellResult| names.cell(cell);
    let mut pairs = Vec::new();
    let mut unlike_cells = Vec::new();
    for (one, other) in &matched.pairs {
        let (of_a, of_b) = (select::in_each_run(a, one)?, select::in_each_run(b, other)?);
        unlike_cells.extend(unlike(&of_a, &of_b, &names));
        pairs.push(pair((a, &of_a), (b, &of_b), &names, design, between_runs)?);
    }
    let judged = condition::judge(&pairs, conditions, design);
    let only_a: Vec<String> = matched.only_a.iter().map(name).collect();
    let source = |side: Side<'_>| Source {
        file: side.name.to_owned(),
        runs: side.runs.iter().map(|each| each.result.run.clone()).collect(),
        selected: side.selector.words(),
    };
    let is_alone = !conditions.is_empty() && !only_a.is_empty();
    Ok(Comparison {
        format: FORMAT,
        a: source(a),
        b: source(b),
        design,
        between_runs,
        outcome: outcome(&pairs, &judged, is_alone),
        pairs,
        only_a,
        only_b: matched.only_b.iter().map(name).collect(),
        differences: between(a, b, &matched.pairs).into_iter().chain(unlike_cells).collect(),
        judged,
    })
}

fn in_order<'a>(runs: &[NamedResult<'a>]) -> Vec<NamedResult<'a>> {
    let mut runs = runs.to_vec();
    runs.sort_by_key(design::started);
    runs
}

fn outcome(pairs: &[Pair], judged: &[Judgement], is_alone: bool) -> Outcome {
    let of_void = |void: &Void| if void.fails { Outcome::Failed } else { Outcome::Inconclusive };
    let of_pairs = pairs.iter().filter_map(|pair| pair.void.as_ref()).map(of_void);
    let of_conditions = judged.iter().map(|judged| match judged.ruling {
        Ruling::Shown => Outcome::Failed,
        Ruling::Excluded => Outcome::Passed,
        Ruling::Inconclusive(_) => Outcome::Inconclusive,
    });
    let alone = is_alone.then_some(Outcome::Inconclusive);
    of_pairs.chain(of_conditions).chain(alone).max().unwrap_or(Outcome::Passed)
}

/// Compares a cell of A with one of B, each as it is in every run of its side.
fn pair(
    (side_a, a): (Side<'_>, &[&CellResult]),
    (side_b, b): (Side<'_>, &[&CellResult]),
    names: &Names,
    design: Design,
    between_runs: Option<f64>,
) -> Result<Pair, UnreadableHistogram> {
    let trials =
        |side: Side<'_>, cells: &[&CellResult]| -> Result<Vec<Vec<TrialFigures>>, UnreadableHistogram> {
            side.runs.iter().zip(cells).map(|(run, cell)| figures::trials(run.result, cell)).collect()
        };
    let disturbed = disturbed((side_a, a), (side_b, b));
    let void = void(a, b, disturbed.is_some());
    let (mut of_a, mut of_b) = (trials(side_a, a)?, trials(side_b, b)?);
    let is_in =
        |one: &TrialFigures, others: &[TrialFigures]| others.iter().any(|other| other.turn == one.turn);
    // a run of both sides is compared round by round, and the figures beside a ratio are those of its trials
    let of_same = side_a.runs.iter().zip(side_b.runs).map(|(one, other)| one.result.run == other.result.run);
    for ((of_a, of_b), is_same) in of_a.iter_mut().zip(&mut of_b).zip(of_same) {
        if is_same && of_a.iter().any(|one| is_in(one, of_b)) {
            of_a.retain(|one| is_in(one, of_b));
            of_b.retain(|one| is_in(one, of_a));
        }
    }
    let mut operations: Vec<Option<String>> = vec![None];
    let cells = || a.iter().chain(b).copied();
    for name in cells().flat_map(tables::operations).chain(cells().flat_map(tables::spans)) {
        if !operations.iter().any(|known| known.as_deref() == Some(name)) {
            operations.push(Some(name.to_owned()));
        }
    }
    let unsaid = match (&void, &disturbed) {
        (Some(_), _) => Some(Assessment::Void),
        (None, Some(_)) => Some(Assessment::Disturbed),
        (None, None) => None,
    };
    let mut compared = Vec::new();
    for operation in operations {
        for figure in Figure::ALL {
            if operation.is_none() || !figure.is_of_all() {
                let of = (&of_a[..], &of_b[..]);
                let operation = operation.as_deref();
                let of_figure = void.is_none().then(|| other_work(of, operation, figure)).flatten();
                compared.extend(one(of, operation, figure, design, between_runs, unsaid, of_figure));
            }
        }
    }
    // of runs of one plan these are the same in each
    let (one, other) = (a[0], b[0]);
    let worst =
        |cells: &[&CellResult]| cells.iter().map(|cell| cell.verdict()).max().unwrap_or(Verdict::Unknown);
    Ok(Pair {
        a: names.cell(one),
        b: names.cell(other),
        a_dimensions: one.dimensions(),
        b_dimensions: other.dimensions(),
        a_verdict: worst(a),
        b_verdict: worst(b),
        void,
        disturbed,
        figures: compared,
    })
}

/// The runs of a side, and a cell as it is in each of them.
type InRuns<'a> = (Side<'a>, &'a [&'a CellResult]);

/// What is said where other programs kept the machine busy in the trials of a cell of either side: of each, in the run in which
/// they did so most.
fn disturbed(a: InRuns<'_>, b: InRuns<'_>) -> Option<String> {
    let said = [("A", a), ("B", b)].into_iter().filter_map(|(name, (side, cells))| {
        let used = side
            .runs
            .iter()
            .zip(cells)
            .filter_map(|(run, cell)| Some((disturbing(run.result, cell)?, run.result.machine.cores)));
        let (used, cores) = used.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
        Some(format!("{used:.2} of the machine's {cores} cores while {name} was measured"))
    });
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| format!("other programs used {}", said.join(", and ")))
}

/// Why a pair is void. A cell keeps what it promises, or goes without it: what it goes without may be broken, and says nothing
/// against it beside a cell that goes without the same.
fn void(a: &[&CellResult], b: &[&CellResult], is_disturbed: bool) -> Option<Void> {
    let is_missing = |cells: &[&CellResult]| cells.iter().any(|cell| cell.trials.is_empty());
    let is_cut = |cells: &[&CellResult]| cells.iter().any(|cell| cell.whole_trials().next().is_none());
    let unknown = |why: String| Some(Void { why, fails: false });
    let of_several = |cells: &[&CellResult]| if cells.len() > 1 { " in every run" } else { "" };
    let pairs = || b.iter().map(|b| (a[0], *b));
    if pairs().any(|(a, b)| b.verdict() == Verdict::Broken && !is_excused(b) && !goes_without(a, b)) {
        return Some(Void { why: format!("B's verdict is {}", Verdict::Broken), fails: true });
    }
    for (name, cells) in [("B", b), ("A", a)] {
        if is_missing(cells) {
            return unknown(format!("{name} was not run{}", of_several(cells)));
        }
        if is_cut(cells) {
            return unknown(match cells {
                [_] => format!("every trial of {name} was cut short"),
                _ => format!("every trial of a run of {name} was cut short"),
            });
        }
    }
    let too_many = |cells: &[&CellResult]| cells.iter().find_map(|cell| not_served(cell));
    if let Some(errors) = too_many(b) {
        let of_a = too_many(a).map(|errors| format!("A had {errors}, "));
        // two sides that are about as near to the bound differ by chance, and so do those on a busy machine
        let is_clear = a.iter().all(|cell| cell.is_serving_well()) && !b.iter().any(|cell| cell.is_serving());
        let fails = is_clear && !is_disturbed;
        return Some(Void { why: format!("{}B had {errors}", of_a.unwrap_or_default()), fails });
    }
    if let Some(errors) = too_many(a) {
        return unknown(format!("A had {errors}"));
    }
    if b.iter().any(|cell| is_excused(cell)) {
        return unknown("a server of B had an unrequested restart, or another one took its place".to_owned());
    }
    if let Some((_, cell)) = pairs().find(|(a, b)| b.verdict() != Verdict::Holds && !goes_without(a, b)) {
        return unknown(format!("B's verdict is {}", cell.verdict()));
    }
    let broken = |cell: &&&CellResult| {
        cell.breaks_promise() || (cell.verdict() != Verdict::Holds && cell.is_promised())
    };
    let cell = a.iter().find(broken)?;
    unknown(format!("A promised to hold and its verdict is {}", cell.verdict()))
}

/// Whether A goes without everything that B goes without, and B breaks no promise.
fn goes_without(a: &CellResult, b: &CellResult) -> bool {
    !b.is_promised() && !b.breaks_promise() && b.without.iter().all(|name| a.without.contains(name))
}

/// Whether a cell has findings that are against what it promised, and none that breaks the promise: a server restarted
/// unasked, or another one took its place.
fn is_excused(cell: &CellResult) -> bool {
    let promised = |finding: &Finding| finding.count > 0 && !cell.without.contains(&finding.guarantee);
    !cell.breaks_promise() && cell.trials.iter().flat_map(|trial| &trial.audit.findings).any(promised)
}

/// Why one figure is void in a pair that is not: the two cells refused such different shares of what they were asked for, over all
/// runs of their sides, that they did different work. A cell that refuses more has more of its clients' time for the rest, and finds
/// its store less busy, so that all rates, times and CPU are void; if only one operation is so, its rate is. Errors are of all
/// operations, whatever else came of them.
fn other_work(
    (a, b): (&[Vec<TrialFigures>], &[Vec<TrialFigures>]),
    operation: Option<&str>,
    figure: Figure,
) -> Option<String> {
    if figure == Figure::Errors {
        return None;
    }
    let said = |operation: Option<&str>| {
        let answers = |side: &[Vec<TrialFigures>]| {
            Answers::sum(side.iter().flatten().map(|trial| trial.answers(operation)))
        };
        let (of_a, of_b) = answers(a).other_refusals(answers(b))?;
        let of = operation.map_or_else(String::new, |name| format!(" of {name}"));
        Some(format!("A refused {}{of}, B {}", percent(of_a), percent(of_b)))
    };
    said(None).or_else(|| said(Some(operation.filter(|_| figure == Figure::Throughput)?)))
}

/// One figure of both cells; none where neither has it.
fn one(
    (a, b): (&[Vec<TrialFigures>], &[Vec<TrialFigures>]),
    operation: Option<&str>,
    figure: Figure,
    design: Design,
    between_runs: Option<f64>,
    unsaid: Option<Assessment>,
    void: Option<String>,
) -> Option<FigureComparison> {
    // a trial that acknowledged none of an operation has no row of it
    let absent = (figure == Figure::Throughput).then_some(0.0);
    let values = |side: &[Vec<TrialFigures>]| -> Vec<f64> {
        side.iter().flatten().filter_map(|trial| trial.get(operation, figure).or(absent)).collect()
    };
    let (of_a, of_b) = (values(a), values(b));
    if of_a.iter().chain(&of_b).all(|value| *value <= 0.0) {
        return None;
    }
    let seen = design.difference((a, b), operation, figure);
    let known = match (design, between_runs) {
        (Design::Single, None) => None,
        (Design::Single, Some(deviation)) => seen.map(|seen| seen.between_runs(deviation)),
        _ => seen,
    };
    let ratio = known.or(seen).map(|difference| difference.ratio());
    let has_too_few = |side: &[Vec<TrialFigures>]| {
        figure.takes().is_some() && side.iter().flatten().any(|trial| trial.get(operation, figure).is_none())
    };
    let unsaid = unsaid.or_else(|| void.as_ref().map(|_| Assessment::Void));
    let assessment = unsaid.unwrap_or(match ratio {
        Some(ratio) if ratio.interval.is_some() => match known {
            None => Assessment::OneRunASide,
            Some(_) if !ratio.differs() => Assessment::NoDifferenceShown,
            Some(_) if (ratio.estimate > 1.0) == figure.more_is_better() => Assessment::Better,
            Some(_) => Assessment::Worse,
        },
        _ if has_too_few(a) || has_too_few(b) => Assessment::TooFewOperations,
        _ => Assessment::TooFewTrials,
    });
    let mean = |values: &[f64]| match figure {
        Figure::Errors => (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64),
        _ => geometric_mean(values),
    };
    Some(FigureComparison {
        operation: operation.map(str::to_owned),
        figure,
        unit: figure.unit(),
        a: mean(&of_a),
        b: mean(&of_b),
        ratio,
        void,
        difference: known,
        assessment,
    })
}

fn geometric_mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty())
        .then(|| (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

/// Differences between the runs of both sides, and among those of each.
fn between(a: Side<'_>, b: Side<'_>, pairs: &[(&CellResult, &CellResult)]) -> Vec<String> {
    let ([one, of_a @ ..], [other, of_b @ ..]) = (a.runs, b.runs) else { return Vec::new() };
    let mut said = differences(one.result, other.result);
    said.extend(threads(pairs));
    for (name, first, others) in [("A", one, of_a), ("B", other, of_b)] {
        let among = others.iter().flat_map(|each| differences(first.result, each.result));
        said.extend(distinct(among).into_iter().map(|differ| format!("among the runs of {name}: {differ}")));
    }
    said
}

/// What two cells differ in that nobody asked for, over all runs of their sides: whole trials, the levels of durability and of
/// consistency read back, and how many of their reads were stale.
fn unlike(a: &[&CellResult], b: &[&CellResult], names: &Names) -> Vec<String> {
    let whole = |cells: &[&CellResult]| {
        cells.iter().map(|cell| cell.whole_trials().count()).sum::<usize>().to_string()
    };
    // what is not known of two servers is not the same
    let level = |cell: &&CellResult| {
        let effective = cell.effective.as_ref()?;
        let level = effective.durability.level().map(|level| level.to_string());
        Some(level.unwrap_or_else(|| format!("unknown of {}", effective.version)))
    };
    let levels = |cells: &[&CellResult]| {
        let levels = distinct(cells.iter().filter_map(level));
        (!levels.is_empty()).then(|| levels.join(" and "))
    };
    let mut sides = Vec::new();
    if a.len() == b.len() {
        sides.push(("whole trials", Some(whole(a)), Some(whole(b))));
    }
    if a[0].dimension(DURABILITY) == b[0].dimension(DURABILITY) {
        sides.push(("durability read back", levels(a), levels(b)));
    }
    if a[0].dimension(CONSISTENCY) == b[0].dimension(CONSISTENCY) {
        let levels = |cells: &[&CellResult]| {
            let levels = distinct(cells.iter().filter_map(|cell| cell.consistency_of_reads()));
            let levels: Vec<&str> = levels.into_iter().map(Consistency::name).collect();
            (!levels.is_empty()).then(|| levels.join(" and "))
        };
        sides.push(("consistency read back", levels(a), levels(b)));
    }
    let stale = |cells: &[&CellResult]| {
        let seen: Vec<_> = cells.iter().filter_map(|cell| cell.staleness()).collect();
        let sum = |of: fn(&CellStaleness) -> u64| total(seen.iter().map(of));
        if seen.is_empty() {
            return "none at replicas".to_owned();
        }
        tables::share_of(sum(|each| each.stale), sum(|each| each.reads))
    };
    sides.push(("stale reads", Some(stale(a)), Some(stale(b))));
    let differ = sides.into_iter().filter_map(|(what, one, other)| {
        let (one, other) = (one?, other?);
        (one != other).then(|| format!("{what} of {}: {one} / {other}", names.cell(b[0])))
    });
    differ.collect()
}

/// The numbers of threads that drove the clients of cells that are compared, where they differ and not each client had its own,
/// as those of an embedded store have.
fn threads(pairs: &[(&CellResult, &CellResult)]) -> Vec<String> {
    let sides = pairs.iter().filter_map(|(one, other)| {
        let (threads, others) = (one.threads?, other.threads?);
        let are_driven = !one.trials.is_empty() && !other.trials.is_empty();
        let are_embedded = one.is_within_clients() && other.is_within_clients();
        let are_alone = are_embedded || (threads == one.clients && others == other.clients);
        (are_driven && threads != others && !are_alone)
            .then(|| format!("client threads: {threads} / {others}"))
    });
    distinct(sides)
}

/// Differences between two runs that bear on their figures: in machine, plan and versions.
fn differences(a: &RunResult, b: &RunResult) -> Vec<String> {
    let extent = |plan: &acidtest_results::Plan| {
        plan.ops.map_or_else(|| plan.duration.to_string(), |ops| format!("{ops} operations"))
    };
    let facts = |result: &RunResult| {
        let (machine, plan) = (&result.machine, &result.plan);
        [
            ("CPU", machine.cpu.clone()),
            ("cores", machine.cores.to_string()),
            ("memory", acidtest_model::figure::bytes(machine.memory_bytes as f64)),
            ("kernel", machine.kernel.clone()),
            ("filesystem", machine.filesystem.clone()),
            ("acidtest", result.acidtest.clone()),
            ("measured part", extent(plan)),
            ("client processes", plan.client_processes().unwrap_or(1).to_string()),
        ]
    };
    let typed = |option: &PlanOption, result: &RunResult| match option.typed(&result.plan) {
        words if words.is_empty() => "none".to_owned(),
        words => words.join(","),
    };
    let conditions = conditions().map(|option| (option.long, typed(option, a), typed(option, b)));
    let sides = facts(a).into_iter().zip(facts(b)).map(|((what, one), (_, other))| (what, one, other));
    let sides = sides.chain(conditions);
    let differ = sides.filter(|(_, one, other)| one != other);
    let mut differ: Vec<String> =
        differ.map(|(what, one, other)| format!("{what}: {one} / {other}")).collect();
    let version = |result: &RunResult, store: &str| {
        let cell = result.cells.iter().find(|cell| cell.store == store && cell.effective.is_some());
        cell.and_then(|cell| Some(cell.effective.as_ref()?.version.clone()))
    };
    for store in distinct(a.cells.iter().map(|cell| cell.store.as_str())) {
        if let (Some(one), Some(other)) = (version(a, store), version(b, store))
            && one != other
        {
            differ.push(format!("{store}: {one} / {other}"));
        }
    }
    differ
}

#[cfg(test)]
mod tests {
    use acidtest_model::{Durability, Lock};
    use unicode_width::UnicodeWidthStr;

    use super::*;
    use crate::{Style, golden::golden};
    use acidtest_results::sample::{Grid, queue};

    const PLAIN: Style = Style { color: false, width: None };

    fn selector(words: &[&str]) -> Selector {
        words.iter().map(|word| word.parse().unwrap()).collect()
    }

    fn within(
        result: &RunResult,
        a: &[&str],
        b: &[&str],
        fail_if: &[&str],
    ) -> Result<Comparison, CompareError> {
        sides((&[result], a), (&[result], b), fail_if, None)
    }

    /// Runs of A against runs of B, each side with what selects its cells.
    fn sides(
        (a, of_a): (&[&RunResult], &[&str]),
        (b, of_b): (&[&RunResult], &[&str]),
        fail_if: &[&str],
        between_runs: Option<f64>,
    ) -> Result<Comparison, CompareError> {
        let conditions: Vec<Condition> = fail_if.iter().map(|text| text.parse().unwrap()).collect();
        let [runs_a, runs_b] = [a, b].map(|side| {
            side.iter().map(|result| NamedResult { name: "result.json", result }).collect::<Vec<_>>()
        });
        let (of_a, of_b) = (selector(of_a), selector(of_b));
        let a = Side { runs: &runs_a, name: "result.json", choose: "--a ", selector: &of_a };
        let b = Side { runs: &runs_b, name: "result.json", choose: "--b ", selector: &of_b };
        compare(a, b, &conditions, between_runs)
    }

    fn sample() -> RunResult {
        Grid { locks: &Lock::ALL, clients: &[4, 8], ..Grid::default() }.result()
    }

    #[test]
    fn the_comparison_is_the_golden_one() {
        let result = sample();
        let compared = within(
            &result,
            &["lock=none"],
            &["lock=native"],
            &["throughput<0.95", "capture:p99>1.2", "p50>0.5"],
        )
        .unwrap();
        golden("compare.txt", &compared.render(PLAIN));
        let json = serde_json::to_string_pretty(&compared).unwrap() + "\n";
        golden("compare.json", &json);
    }

    #[test]
    fn pairs_are_equal_in_all_that_no_selector_names() {
        let result = sample();
        let compared = within(&result, &["lock=none"], &["lock=soft"], &[]).unwrap();
        let pairs: Vec<_> = compared.pairs.iter().map(|pair| (pair.a.as_str(), pair.b.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("sqlite none, 4 clients", "sqlite soft, 4 clients"),
                ("sqlite none, 8 clients", "sqlite soft, 8 clients")
            ]
        );
        assert_eq!((compared.design, compared.outcome), (Design::Rounds, Outcome::Passed));
        let throughput = &compared.pairs[0].figures[0];
        let (low, high) = throughput.ratio.unwrap().interval.unwrap();
        assert!(low < 0.7 && 0.7 < high && throughput.assessment == Assessment::Worse, "{throughput:?}");
        // a choice that one side names holds for both sides where it is needed to tell cells apart
        let eight = within(&result, &["lock=none"], &["lock=soft", "clients=8"], &[]).unwrap();
        assert_eq!((eight.pairs.len(), eight.pairs[0].a.as_str()), (1, "sqlite none, 8 clients"));
        let across = within(&result, &["lock=none", "clients=4"], &["lock=soft", "clients=8"], &[]).unwrap();
        assert_eq!((across.pairs.len(), across.pairs[0].a.as_str()), (1, "sqlite none, 4 clients"));
        // one against all others
        let others = within(&result, &["lock=none", "clients=8"], &["clients=8"], &[]).unwrap();
        assert_eq!(others.pairs.len(), 3, "{:?}", others.pairs);
    }

    #[test]
    fn what_selects_nothing_or_too_much_is_said() {
        let result = sample();
        let error = |a: &[&str], b: &[&str]| within(&result, a, b, &[]).unwrap_err().to_string();
        let unknown = error(&["lokc=none"], &["lock=soft"]);
        assert!(unknown.contains("lokc") && unknown.contains("did you mean \"lock\"?"), "{unknown}");
        let nothing = error(&["lock=none"], &["clients=9"]);
        assert!(nothing.contains("no cell has clients=9") && nothing.contains("4, 8"), "{nothing}");
        let alone = error(&["lock=hard"], &["lock=hard", "clients=8"]);
        assert!(alone.contains("name what differs"), "{alone}");
        let itself = error(&[], &[]);
        assert!(itself.contains("--a") && itself.contains("--b"), "{itself}");
    }

    #[test]
    fn a_cell_that_did_not_hold_voids_the_comparison() {
        let result = sample();
        let void = within(&result, &["lock=native"], &["lock=none"], &[]).unwrap();
        let why = Void { why: "B's verdict is broken".to_owned(), fails: true };
        assert_eq!((void.outcome, &void.pairs[0].void), (Outcome::Failed, &Some(why)));
        assert!(void.pairs[0].figures.iter().all(|figure| figure.assessment == Assessment::Void));
    }

    /// Spans, which are no operation's own times, are compared and judged by their names too.
    #[test]
    fn spans_are_compared_by_their_times() {
        let result = queue([("confirm", false, 900.0); 6]);
        let slower = {
            let mut slower = RunResult { run: "another".to_owned(), ..result.clone() };
            for trial in slower.cells.iter_mut().flat_map(|cell| &mut cell.trials) {
                let times = &mut trial.spans[0].times;
                times.p99_ns *= 2;
            }
            slower
        };
        let first = |result: &RunResult| RunResult { cells: vec![result.cells[0].clone()], ..result.clone() };
        let conditions = ["delivery:p99>1.5", "delivery:p50>1.1", "delivery:throughput<1"];
        let (a, b) = (first(&result), first(&slower));
        let compared = sides((&[&a], &[]), (&[&b], &[]), &conditions, Some(0.0)).unwrap();
        let of_delivery = |figure: &&FigureComparison| figure.operation.as_deref() == Some("delivery");
        let figures: Vec<Figure> =
            compared.pairs[0].figures.iter().filter(of_delivery).map(|figure| figure.figure).collect();
        assert_eq!(figures, [Figure::P50, Figure::P95, Figure::P99, Figure::Max]);
        let rulings: Vec<&Ruling> = compared.judged.iter().map(|judged| &judged.ruling).collect();
        assert!(
            matches!(rulings[..], [Ruling::Shown, Ruling::Excluded, Ruling::Inconclusive(_)]),
            "{rulings:?}"
        );
    }

    /// Ends so many captures of each trial of a cell in a refusal, beside 1,000 captures and 1,000 releases that were acknowledged.
    fn refuse(cell: &mut CellResult, refused: u64) {
        for trial in &mut cell.trials {
            let captures = &mut trial.operations[0];
            let times = acidtest_results::LatencyFigures { count: refused, ..captures.service["ok"].clone() };
            captures.service.insert("refused".to_owned(), times);
        }
    }

    /// A run has no price of what did other work, and neither better nor worse is said of it here.
    #[test]
    fn cells_that_refused_other_shares_are_not_compared() {
        let conditions = [
            "throughput<0.95",
            "throughput<0.5",
            "client_cpu>1.05",
            "capture:p99>1.2",
            "release:throughput<0.95",
            "errors>2",
        ];
        for (of_a, of_b, said) in
            [(0, 500, "A refused 0.0 %, B 20 %"), (98_000, 48_000, "A refused 98 %, B 96 %")]
        {
            let mut result = Grid { locks: &[Lock::Soft, Lock::Native], ..Grid::default() }.result();
            refuse(&mut result.cells[0], of_a);
            refuse(&mut result.cells[1], of_b);
            let compared = within(&result, &["lock=soft"], &["lock=native"], &conditions).unwrap();
            let (errors, others) = compared.judged.split_last().unwrap();
            assert_eq!((&errors.ruling, compared.outcome), (&Ruling::Excluded, Outcome::Inconclusive));
            for judged in others {
                let why = Ruling::Inconclusive(format!("void: {said}"));
                assert_eq!((&judged.ruling, judged.ratio), (&why, None), "{}", judged.condition);
            }
            let pair = &compared.pairs[0];
            assert_eq!(pair.void, None);
            for figure in &pair.figures {
                assert_eq!((figure.assessment, figure.void.as_deref()), (Assessment::Void, Some(said)));
            }
            for shown in [compared.render(PLAIN), compared.html().into_string()] {
                for part in [&format!("sqlite native: figures are void, {said}"), "more than 5 %"] {
                    assert!(shown.contains(part), "{part}: {shown}");
                }
                assert!(!shown.contains("worse") && !shown.contains("better"), "{shown}");
            }
            let json = serde_json::to_value(&compared).unwrap();
            assert_eq!(json["pairs"][0]["figures"][0]["void"], said);
        }
    }

    /// 5 % of all operations is what matters; of one operation it makes the rate of that one void.
    #[test]
    fn cells_that_refused_about_as_much_are_compared() {
        let compared = |of_a, of_b| {
            let mut result = Grid { locks: &[Lock::Soft, Lock::Native], ..Grid::default() }.result();
            refuse(&mut result.cells[0], of_a);
            refuse(&mut result.cells[1], of_b);
            within(&result, &["lock=soft"], &["lock=native"], &["throughput<0.95", "capture:throughput<0.95"])
                .unwrap()
        };
        let rulings = |compared: &Comparison| -> Vec<Ruling> {
            compared.judged.iter().map(|judged| judged.ruling.clone()).collect()
        };
        assert_eq!(rulings(&compared(500, 500)), [Ruling::Excluded, Ruling::Excluded]);
        let of_captures = compared(0, 80);
        let why = Ruling::Inconclusive("void: A refused 0.0 % of capture, B 7.4 %".to_owned());
        assert_eq!(rulings(&of_captures), [Ruling::Excluded, why]);
        let void: Vec<_> = of_captures.pairs[0].figures.iter().filter(|each| each.void.is_some()).collect();
        assert!(matches!(void[..], [rate] if rate.figure == Figure::Throughput), "{void:?}");
    }

    /// A stock that was sold out in one of several runs is noise; in all of them it is other work.
    #[test]
    fn refusals_of_several_runs_are_taken_together() {
        let one = Grid { locks: &[Lock::Native], ..Grid::default() }.result();
        let void = |refusing: usize| {
            let (a, mut b) = (runs(&one, &[1.0; 3], &[0, 3, 4]), runs(&one, &[1.0; 3], &[1, 2, 5]));
            b.iter_mut().take(refusing).for_each(|run| refuse(&mut run.cells[0], 240));
            of_runs(&a, &b, &[]).unwrap().pairs[0].figures[0].void.clone()
        };
        assert_eq!((void(1), void(3)), (None, Some("A refused 0.0 %, B 11 %".to_owned())));
    }

    /// A queue that carries less has its consumers find nothing more often: that is the same work, and slower.
    #[test]
    fn empty_polls_void_no_comparison() {
        let mut result = queue([("confirm", false, 900.0); 6]);
        result.cells.truncate(1);
        let slower = |result: &mut RunResult| {
            for trial in &mut result.cells[0].trials {
                trial.throughput *= 0.5;
                let consume = &mut trial.operations[1];
                let times =
                    acidtest_results::LatencyFigures { count: 5_000, ..consume.service["ok"].clone() };
                consume.service.insert("refused".to_owned(), times);
            }
        };
        let mut after = RunResult { run: "another".to_owned(), ..result.clone() };
        slower(&mut after);
        let compared = sides((&[&result], &[]), (&[&after], &[]), &["throughput<0.95"], Some(0.01)).unwrap();
        assert_eq!(compared.judged[0].ruling, Ruling::Shown);
        assert!(compared.pairs[0].figures.iter().all(|figure| figure.void.is_none()));
    }

    /// Gives each operation of each trial so many times, those of a tail among them.
    fn so_many(result: &mut RunResult, count: u64) {
        let mut histogram = acidtest_engine::Histogram::new(3).unwrap();
        (1..=count).for_each(|place| histogram.record(1_000_000 + 10_000 * place).unwrap());
        let times = acidtest_results::LatencyFigures::of(&histogram);
        for trial in result.cells.iter_mut().flat_map(|cell| &mut cell.trials) {
            for operation in &mut trial.operations {
                operation.service.insert("ok".to_owned(), times.clone());
            }
        }
    }

    /// The p99 of 200 operations is about their maximum.
    #[test]
    fn percentiles_of_a_few_operations_are_neither_shown_nor_judged() {
        let conditions =
            ["capture:p99>1.2", "p99>1.2", "p99.9>0.5", "delete:p99>1", "capture:p95>1.2", "p50>1.2"];
        let lacks = |what: &str| {
            Ruling::Inconclusive(format!(
                "a trial of A or B has no {what} acknowledged operations: run longer trials"
            ))
        };
        let expected = [
            lacks("capture:p99, which needs 1,000"),
            lacks("p99, which needs 1,000"),
            lacks("p99.9, which needs 10,000"),
            Ruling::Inconclusive("A or B has no such figure, or not in every trial".to_owned()),
            Ruling::Excluded,
            Ruling::Excluded,
        ];
        let mut result = Grid { locks: &[Lock::Soft, Lock::Native], ..Grid::default() }.result();
        so_many(&mut result, 200);
        let compared = within(&result, &["lock=soft"], &["lock=native"], &conditions).unwrap();
        let rulings: Vec<_> = compared.judged.iter().map(|judged| judged.ruling.clone()).collect();
        assert_eq!(rulings, expected);
        let of_captures = |compared: &Comparison| -> Vec<(Figure, Assessment)> {
            let figures = compared.pairs[0].figures.iter();
            let of = figures.filter(|each| each.operation.as_deref() == Some("capture"));
            of.map(|each| (each.figure, each.assessment)).collect()
        };
        let figures: Vec<Figure> = of_captures(&compared).into_iter().map(|(figure, _)| figure).collect();
        assert_eq!(figures, [Figure::Throughput, Figure::P50, Figure::P95, Figure::Max]);
        let why = "a percentile is shown only if at least 10 measurements lie beyond it";
        for shown in [compared.render(PLAIN), compared.html().into_string()] {
            assert!(shown.contains(why) && shown.contains("p95"), "{shown}");
        }
        // one trial of B has too few of them
        let mut result = Grid { locks: &[Lock::Soft, Lock::Native], ..Grid::default() }.result();
        result.cells[1].trials[2].operations[0].service.get_mut("ok").unwrap().count = 999;
        let compared = within(&result, &["lock=soft"], &["lock=native"], &["capture:p99>1.2"]).unwrap();
        assert_eq!(compared.judged[0].ruling, expected[0]);
        assert!(of_captures(&compared).contains(&(Figure::P99, Assessment::TooFewOperations)));
        assert!(compared.render(PLAIN).contains("too few operations"), "{}", compared.render(PLAIN));
    }

    /// Cells with lock none are broken on both sides, which neither promised to prevent.
    #[test]
    fn one_run_a_side_shows_nothing() {
        let same = after(&sample(), |again| "0.2.0".clone_into(&mut again.acidtest), &[]);
        assert_eq!((same.pairs.len(), same.design, same.outcome), (8, Design::Single, Outcome::Passed));
        assert_eq!(same.differences, ["acidtest: 0.1.0 / 0.2.0"]);
        for figure in same.pairs.iter().flat_map(|pair| &pair.figures) {
            assert!(
                (figure.ratio.unwrap().estimate - 1.0).abs() < 1e-9
                    && figure.assessment == Assessment::OneRunASide
            );
        }
        let halved = cell_after(
            |cell| cell.trials.iter_mut().for_each(|trial| trial.throughput *= 0.5),
            &["throughput<0.95", "throughput<0.2"],
        );
        let unknown =
            |judged: &Judgement| matches!(&judged.ruling, Ruling::Inconclusive(why) if why.contains("--run"));
        assert!(halved.judged.iter().all(unknown), "{:?}", halved.judged);
        assert_eq!(halved.outcome, Outcome::Inconclusive);
    }

    #[test]
    fn one_run_a_side_is_judged_by_what_runs_are_said_to_differ_by() {
        let before = Grid { locks: &[Lock::Native], ..Grid::default() }.result();
        let judged = |times: f64, between: f64| {
            let mut after = RunResult { run: "another".to_owned(), ..before.clone() };
            after.cells[0].trials.iter_mut().for_each(|trial| trial.throughput *= times);
            let compared =
                sides((&[&before], &[]), (&[&after], &[]), &["throughput<0.8"], Some(between)).unwrap();
            compared.judged[0].ruling.clone()
        };
        assert_eq!((judged(0.5, 0.03), judged(1.0, 0.03)), (Ruling::Shown, Ruling::Excluded));
        assert!(matches!(judged(0.5, 0.3), Ruling::Inconclusive(_)));
        assert!(matches!(judged(1.0, 0.3), Ruling::Inconclusive(_)));
    }

    /// The same run made anew so often, each time as many times as fast, so many minutes after the first.
    fn runs(of: &RunResult, speeds: &[f64], minutes: &[u32]) -> Vec<RunResult> {
        let each = speeds.iter().zip(minutes).map(|(speed, minute)| {
            let mut run = RunResult {
                run: format!("run-{minute}"),
                started: format!("2026-11-22T00:{minute:02}:00Z"),
                ..of.clone()
            };
            let trials = run.cells.iter_mut().flat_map(|cell| &mut cell.trials);
            trials.for_each(|trial| trial.throughput *= speed);
            run
        });
        each.collect()
    }

    fn of_runs(a: &[RunResult], b: &[RunResult], fail_if: &[&str]) -> Result<Comparison, CompareError> {
        let (a, b): (Vec<&RunResult>, Vec<&RunResult>) = (a.iter().collect(), b.iter().collect());
        sides((&a, &[]), (&b, &[]), fail_if, None)
    }

    #[test]
    fn runs_that_took_turns_are_paired_and_others_are_groups() {
        let one = Grid { locks: &[Lock::Native], ..Grid::default() }.result();
        // the machine becomes slower, and B has always nine tenths of A
        let drifting = [1.0, 0.8, 0.6, 0.4];
        let slower = drifting.map(|speed| speed * 0.9);
        let in_turn = of_runs(
            &runs(&one, &drifting, &[0, 3, 4, 7]),
            &runs(&one, &slower, &[1, 2, 5, 6]),
            &["throughput<0.95", "throughput<0.85"],
        )
        .unwrap();
        let rulings: Vec<&Ruling> = in_turn.judged.iter().map(|judged| &judged.ruling).collect();
        assert_eq!((in_turn.design, &rulings[..]), (Design::Pairs, &[&Ruling::Shown, &Ruling::Excluded][..]));
        let ratio = in_turn.pairs[0].figures[0].ratio.unwrap();
        assert!((ratio.estimate - 0.9).abs() < 1e-9 && ratio.trials == 4, "{ratio:?}");
        let apart = of_runs(
            &runs(&one, &drifting, &[0, 1, 2, 3]),
            &runs(&one, &slower, &[4, 5, 6, 7]),
            &["throughput<0.95"],
        )
        .unwrap();
        assert_eq!(apart.design, Design::Groups);
        let known = &apart.judged[0];
        assert!(matches!(known.ruling, Ruling::Inconclusive(_)), "{known:?}");
        // what could have been shown lies beyond the bound, by as much as the interval is wide
        let (low, _) = known.ratio.unwrap().interval.unwrap();
        let needed = 0.95 * low / known.ratio.unwrap().estimate;
        assert!((known.could_show.unwrap() / needed - 1.0).abs() < 0.003, "{known:?}");
        // one new run against several old ones
        let one_of_many =
            of_runs(&runs(&one, &drifting, &[0, 1, 2, 3]), &runs(&one, &[0.1], &[9]), &["throughput<0.95"]);
        assert_eq!(one_of_many.unwrap().design, Design::Groups);
    }

    #[test]
    fn runs_that_are_given_twice_or_are_of_other_plans_are_refused() {
        let one = Grid { locks: &[Lock::Native], ..Grid::default() }.result();
        let two = runs(&one, &[1.0, 1.0], &[0, 1]);
        let error = |a: &[RunResult], b: &[RunResult]| of_runs(a, b, &[]).unwrap_err().to_string();
        assert!(error(&two, &two[..1]).contains("are the same run, run-0"), "{}", error(&two, &two[..1]));
        let other = Grid { locks: &[Lock::Native, Lock::Soft], ..Grid::default() }.result();
        let mixed = [runs(&one, &[1.0], &[2]), runs(&other, &[1.0], &[3])].concat();
        assert!(error(&two, &mixed).contains("runs of one plan"), "{}", error(&two, &mixed));
        assert!(error(&two, &[]).contains("no result"), "{}", error(&two, &[]));
    }

    /// Cells of the same runs: each run is a pair.
    #[test]
    fn cells_of_several_runs_are_paired_run_by_run() {
        let grid = Grid { locks: &[Lock::Soft, Lock::Native], ..Grid::default() }.result();
        let all = runs(&grid, &[1.0, 0.5, 2.0], &[0, 1, 2]);
        let all: Vec<&RunResult> = all.iter().collect();
        let compared = sides((&all, &["lock=soft"]), (&all, &["lock=native"]), &[], None).unwrap();
        let ratio = compared.pairs[0].figures[0].ratio.unwrap();
        assert_eq!((compared.design, ratio.trials), (Design::Pairs, 3));
        assert!((ratio.estimate - 0.8 / 0.7).abs() < 0.05, "{ratio:?}");
    }

    #[test]
    fn what_other_programs_disturbed_is_never_shown() {
        let busy = |cell: &mut CellResult| {
            for trial in &mut cell.trials {
                trial.throughput *= 0.1;
                trial.resources.machine.cpu_mean += 8.0;
            }
        };
        let one = Grid { locks: &[Lock::Native], ..Grid::default() }.result();
        let mut after = runs(&one, &[1.0, 1.01, 0.99], &[10, 11, 12]);
        let before = runs(&one, &[1.0, 1.01, 0.99], &[0, 1, 2]);
        busy(&mut after[1].cells[0]);
        let compared = of_runs(&before, &after, &["throughput<0.95", "throughput<0.01"]).unwrap();
        assert_eq!(compared.outcome, Outcome::Inconclusive);
        let said = compared.pairs[0].disturbed.as_deref().unwrap();
        assert!(
            said.starts_with("other programs used 8.")
                && said.ends_with("of the machine's 16 cores while B was measured"),
            "{said}"
        );
        assert!(compared.pairs[0].figures.iter().all(|figure| figure.assessment == Assessment::Disturbed));
        let text = compared.render(PLAIN);
        assert!(text.contains(said) && text.contains("inconclusive"), "{text}");
        assert_eq!(text.matches("wait for a quiet machine (--quiet-machine=wait)").count(), 1, "{text}");
        let mut before = before;
        busy(&mut before[0].cells[0]);
        let both = of_runs(&before, &after, &[]).unwrap();
        let said = both.pairs[0].disturbed.as_deref().unwrap();
        assert!(
            said.contains("while A was measured, and ") && said.ends_with("while B was measured"),
            "{said}"
        );
    }

    /// The share of errors of a side that had none is no ratio's denominator.
    #[test]
    fn errors_are_judged_where_a_side_had_none() {
        let judged = |of_a: u64, of_b: u64, fail_if: &str| {
            let with = |errors: u64, minutes: &[u32]| {
                let mut one = Grid { locks: &[Lock::Native], ..Grid::default() }.result();
                for trial in &mut one.cells[0].trials {
                    let mut ok = trial.operations[0].service["ok"].clone();
                    ok.count = 100_000;
                    let failed = acidtest_results::LatencyFigures { count: errors, ..ok.clone() };
                    trial.operations[0].service =
                        [("ok".to_owned(), ok), ("failed".to_owned(), failed)].into();
                    trial.operations.truncate(1);
                }
                runs(&one, &[1.0; 3], minutes)
            };
            let compared = of_runs(&with(of_a, &[0, 1, 2]), &with(of_b, &[3, 4, 5]), &[fail_if]).unwrap();
            compared.judged[0].ruling.clone()
        };
        assert_eq!(judged(0, 0, "errors>2"), Ruling::Excluded);
        assert_eq!(judged(200, 0, "errors>2"), Ruling::Excluded);
        assert_eq!(judged(0, 500, "errors>2"), Ruling::Shown);
        // one error in a run is no doubling of none
        let few = judged(0, 1, "errors>2");
        assert!(matches!(few, Ruling::Inconclusive(_)), "{few:?}");
        assert_eq!(judged(500, 0, "errors<0.5"), Ruling::Shown);
        assert!(matches!(judged(0, 0, "errors<0.5"), Ruling::Inconclusive(_)));
    }

    /// What stands beside a server serves, too: a lock service, a gateway, a broker.
    #[test]
    fn cpu_of_the_server_is_that_of_all_who_serve() {
        let beside = |cell: &mut CellResult| {
            for trial in &mut cell.trials {
                let server = trial.resources.server.clone().unwrap();
                trial.resources.others.insert("locks".to_owned(), server);
            }
        };
        let compared = cell_after(beside, &[]);
        let figures = &compared.pairs[0].figures;
        let cpu = figures.iter().find(|figure| figure.figure == Figure::ServerCpu).unwrap();
        assert!((cpu.ratio.unwrap().estimate - 2.0).abs() < 1e-9, "{cpu:?}");
    }

    /// What a run excuses is no failure here: a finding that a cell of A does without preventing as much as B's, or one after a
    /// restart that nobody asked for.
    #[test]
    fn what_a_run_excuses_fails_no_comparison() {
        let none = Grid { locks: &[Lock::None], ..Grid::default() }.result();
        let twin = after(&none, |_| {}, &[]);
        assert_eq!((twin.pairs[0].b_verdict, twin.outcome), (Verdict::Broken, Outcome::Passed));
        let excused = |cell: &mut CellResult| {
            let audit = &mut cell.trials[0].audit;
            audit.verdict = Verdict::Broken;
            audit.findings =
                vec![Finding::new("lost", 3, "units", acidtest_workloads::guarantee::DURABILITY)];
            audit.excused = vec![DURABILITY.to_owned()];
        };
        let restarted = cell_after(excused, &["throughput<0.95"]);
        assert_eq!(restarted.outcome, Outcome::Inconclusive);
        let why = "a server of B had an unrequested restart, or another one took its place";
        assert_eq!(restarted.pairs[0].void.as_ref().unwrap().why, why);
    }

    #[test]
    fn a_gate_fails_on_what_is_shown_and_passes_on_what_is_excluded() {
        let result = sample();
        let ruled = |fail_if: &str| {
            let compared =
                within(&result, &["lock=none"], &["lock=native", "clients=8"], &[fail_if]).unwrap();
            (compared.judged[0].ruling.clone(), compared.outcome)
        };
        // native costs a fifth
        assert_eq!(ruled("throughput<0.9"), (Ruling::Shown, Outcome::Failed));
        assert_eq!(ruled("throughput<0.7"), (Ruling::Excluded, Outcome::Passed));
        let (neither, outcome) = ruled("throughput<0.8");
        assert!(matches!(&neither, Ruling::Inconclusive(why) if why.contains("--trials")), "{neither:?}");
        assert_eq!(outcome, Outcome::Inconclusive);
        assert!(matches!(ruled("delete:p99>1").0, Ruling::Inconclusive(_)));
        let single = Grid { trials: 1, ..Grid::default() }.result();
        let unjudged = within(&single, &["lock=none"], &["lock=native"], &["throughput<0.1"]).unwrap();
        assert_eq!(unjudged.outcome, Outcome::Inconclusive);
        for text in ["throughput", "speed<1", "p99>x", "p99>-1", ":p99>1"] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
    }

    /// All cells of a run against those of the same run made again and changed as told.
    fn after(before: &RunResult, change: impl Fn(&mut RunResult), fail_if: &[&str]) -> Comparison {
        let mut after = RunResult { run: "another".to_owned(), ..before.clone() };
        change(&mut after);
        sides((&[before], &[]), (&[&after], &[]), fail_if, None).unwrap()
    }

    /// The same of a single cell.
    fn cell_after(change: impl Fn(&mut CellResult), fail_if: &[&str]) -> Comparison {
        let before = Grid { locks: &[Lock::Native], ..Grid::default() }.result();
        after(&before, |result| change(&mut result.cells[0]), fail_if)
    }

    fn cut_short(trial: &mut acidtest_results::TrialResult) {
        trial.stopped =
            Some(acidtest_results::StopFigures { reason: "server gone".to_owned(), detail: String::new() });
    }

    #[test]
    fn trials_that_were_cut_short_are_said_and_pass_no_gate() {
        let some = cell_after(|cell| cut_short(&mut cell.trials[0]), &[]);
        assert_eq!(some.differences, ["whole trials of sqlite native: 3 / 2"]);
        let none = cell_after(|cell| cell.trials.iter_mut().for_each(cut_short), &["throughput<0.5"]);
        let broken = cell_after(
            |cell| {
                cut_short(&mut cell.trials[0]);
                cell.trials.truncate(1);
                let audit = &mut cell.trials[0].audit;
                audit.verdict = Verdict::Broken;
                audit.findings =
                    vec![Finding::new("oversold", 3, "units", acidtest_workloads::guarantee::LOCK)];
            },
            &[],
        );
        assert_eq!(broken.outcome, Outcome::Failed);
        let why = Void { why: "every trial of B was cut short".to_owned(), fails: false };
        assert_eq!((none.outcome, &none.pairs[0].void), (Outcome::Inconclusive, &Some(why)));
        assert!(matches!(none.judged[0].ruling, Ruling::Inconclusive(_)));
    }

    /// A bound that both sides are near is crossed by chance, and on a busy machine by whoever makes it busy.
    #[test]
    fn who_serves_too_little_fails_only_beside_one_that_is_far_from_it() {
        let outcome = |[of_a, of_b]: [u64; 2], busy: f64| {
            let dropping = |cell: &mut CellResult, dropped: u64| {
                for trial in &mut cell.trials {
                    trial.arrived = acidtest_results::ArrivalFigures {
                        offered: 10_000,
                        started: 10_000 - dropped,
                        completed: 10_000 - dropped,
                        late: 0,
                        dropped,
                    };
                    trial.resources.machine.cpu_mean += busy;
                }
            };
            let mut before = Grid { locks: &[Lock::Native], ..Grid::default() }.result();
            dropping(&mut before.cells[0], of_a);
            after(&before, |result| dropping(&mut result.cells[0], of_b), &[]).outcome
        };
        assert_eq!(outcome([497, 507], 0.0), Outcome::Inconclusive);
        assert_eq!(outcome([0, 507], 0.0), Outcome::Failed);
        assert_eq!(outcome([0, 507], 6.0), Outcome::Inconclusive);
    }

    #[test]
    fn a_durability_level_that_was_lost_is_said() {
        let lost =
            cell_after(|cell| cell.effective.as_mut().unwrap().durability = Durability::None.into(), &[]);
        assert_eq!(lost.differences, ["durability read back of sqlite native: disk / none"]);
        let other = |cell: &mut CellResult| {
            cell.effective = cell.effective.take().map(|read| read.of_another("KeyDB 6.3", "Redis"));
        };
        let said = cell_after(other, &[]).differences.join("\n");
        let unknown =
            "durability read back of sqlite native: disk / unknown of KeyDB 6.3, over the protocol of Redis";
        assert!(said.contains(unknown), "{said}");
    }

    /// A rate that is higher because reads may miss something is shown with how many did.
    #[test]
    fn reads_that_were_stale_are_said_beside_what_they_gain() {
        let result = acidtest_results::sample::reads_at_replicas();
        let said = |a, b| within(&result, a, b, &[]).unwrap().differences.join("\n");
        let (leader, replica) =
            (&["reads=leader"][..], &["reads=replica", "route=pinned", "consistency=eventual"][..]);
        let told = said(leader, replica);
        let stale = "stale reads of postgres native, reads replica, route pinned, consistency eventual: none at replicas / 2.00 %";
        assert!(told.contains(stale) && !told.contains("read back"), "{told}");
        let mut weaker = result.clone();
        weaker.cells.drain(..3);
        let read = |result: &mut RunResult| {
            let read = result.cells[0].replication_read.as_mut().unwrap();
            read.consistency = Consistency::Eventual;
        };
        let told = after(&weaker, read, &[]).differences.join("\n");
        assert!(
            told.contains("consistency read back of postgres native") && told.contains(": strong / eventual"),
            "{told}"
        );
    }

    #[test]
    fn other_numbers_of_client_threads_are_said_once_unless_each_client_has_its_own() {
        let (stores, locks) = (&["redis"][..], &[Lock::Native, Lock::Hard][..]);
        let grid = |clients| Grid { stores, locks, clients, ..Grid::default() };
        let on = |threads| {
            move |result: &mut RunResult| result.cells.iter_mut().for_each(|cell| cell.threads = threads)
        };
        let fewer = after(&grid(&[8]).result(), on(Some(4)), &[]);
        assert_eq!(fewer.differences, ["client threads: 8 / 4"]);
        assert!(after(&grid(&[8]).result(), on(Some(8)), &[]).differences.is_empty());
        let embedded = Grid { stores: &["sqlite"], ..grid(&[8]) }.result();
        assert!(after(&embedded, on(Some(1)), &[]).differences.is_empty());
        let mut both = Grid { stores: &["sqlite", "redis"], ..grid(&[8]) }.result();
        both.cells.iter_mut().for_each(|cell| cell.threads = Some(if cell.embedded { 8 } else { 2 }));
        let compared = within(&both, &["store=sqlite"], &["store=redis"], &[]).unwrap();
        assert_eq!(compared.differences, ["client threads: 8 / 2"]);
        let failed = after(
            &grid(&[8]).result(),
            |result| result.cells.iter_mut().for_each(|cell| cell.trials.clear()),
            &[],
        );
        let said = failed.differences.iter().find(|said| said.contains("client threads"));
        assert_eq!(said, None);
        let mut result = grid(&[2, 4]).result();
        on(Some(2))(&mut result);
        let compared =
            |result: &RunResult| within(result, &["clients=2"], &["clients=4"], &[]).unwrap().differences;
        assert!(compared(&result).is_empty());
        result.cells.iter_mut().for_each(|cell| cell.threads = Some(cell.clients));
        assert!(compared(&result).is_empty());
        result.cells.iter_mut().for_each(|cell| cell.threads = Some(4 / cell.clients));
        assert_eq!(compared(&result), ["client threads: 2 / 1"]);
    }

    /// Of its times nothing is left in the trials in which no capture was acknowledged.
    #[test]
    fn an_operation_that_some_trials_never_did_passes_no_gate() {
        let one = Grid { locks: &[Lock::Native], ..Grid::default() }.result();
        let mut b = runs(&one, &[1.0, 1.0], &[2, 3]);
        b[1].cells[0].trials[0].operations.remove(0);
        let conditions = ["capture:p99>1.2", "release:p99>1.2"];
        let compared = of_runs(&runs(&one, &[1.0, 1.0], &[0, 1]), &b, &conditions).unwrap();
        let rulings: Vec<&Ruling> = compared.judged.iter().map(|judged| &judged.ruling).collect();
        assert!(matches!(rulings[..], [Ruling::Inconclusive(_), Ruling::Excluded]), "{rulings:?}");
    }

    /// The columns beside a ratio are of the same trials.
    #[test]
    fn figures_and_ratio_of_a_run_are_of_the_same_trials() {
        let mut result = Grid { locks: &[Lock::None, Lock::Native], ..Grid::default() }.result();
        cut_short(&mut result.cells[0].trials[2]);
        result.cells[1].trials[2].throughput *= 10.0;
        let pair = within(&result, &["lock=none"], &["lock=native"], &[]).unwrap().pairs.remove(0);
        let of = &pair.figures[0];
        assert!((of.b.unwrap() / of.a.unwrap() - of.ratio.unwrap().estimate).abs() < 1e-9);
    }

    #[test]
    fn a_comparison_fits_the_terminal() {
        let result = sample();
        let conditions = ["throughput<0.95", "capture:p99.9>1.25"];
        for b in [&["lock=native", "clients=8"][..], &["lock=native"], &[]] {
            let compared = if b.is_empty() {
                after(&result, |_| {}, &conditions)
            } else {
                within(&result, &["lock=none"], b, &conditions).unwrap()
            };
            for width in 60..200 {
                let text = compared.render(Style { width: Some(width), ..PLAIN });
                let widest = text.lines().max_by_key(|line| line.width()).unwrap_or_default();
                assert!(widest.width() <= usize::from(width), "{width}: {widest}\n{text}");
                assert!(!text.contains("hol…") && !text.contains("bro…"), "{width}: {text}");
            }
        }
    }

    /// What two runs were driven with is compared option by option, as it is typed.
    #[test]
    fn runs_that_were_driven_otherwise_are_told_of() {
        let otherwise = |result: &mut RunResult| {
            result.plan.timeout = "3s".parse().unwrap();
            result.plan.max_retries = 3;
            result.plan.trace = Some(500);
            result.plan.ops = Some(70);
            result.plan.lock_service = "postgres".to_owned();
        };
        let compared = after(&Grid::default().result(), otherwise, &[]);
        assert_eq!(
            compared.differences,
            [
                "measured part: 10s / 70 operations",
                "lock-service: redis / postgres",
                "timeout: 10s / 3s",
                "max-retries: 100 / 3",
                "trace: none / 500"
            ]
        );
    }
}
