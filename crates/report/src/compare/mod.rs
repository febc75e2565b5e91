//! Compares two cells, or two grids of cells, with each other.
//!
//! Cells are compared in pairs that are equal in everything that no selector names. Trials of one run were
//! interleaved, so their ratios are taken round by round; trials of two runs are two groups, and whatever changed
//! between the runs is in the ratio.

mod condition;
mod figures;
mod select;
mod show;

use acidtest_workloads::Verdict;
use schemars::JsonSchema;
use serde::Serialize;

pub use condition::{Condition, Judge, Judgement, Ruling};
pub use figures::Figure;
pub use select::{Choice, SelectionError, Selector, selectors};

use self::figures::TrialFigures;
use crate::{
    CellResult, Ratio, RunResult, UnreadableHistogram,
    dimensions::{DURABILITY, Dimensions, Names},
    distinct,
    result::Turn,
    tables,
};

/// The version of a comparison's JSON: raised when a reader of the last one would misread the next.
const FORMAT: u32 = 1;

/// The reason why two results could not be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// A selector fits no cell, or does not fit one cell alone.
    #[error("{0}")]
    SelectionError(#[from] SelectionError),
    /// A histogram in one of the results cannot be read.
    #[error("{0}")]
    Unreadable(#[from] UnreadableHistogram),
}

/// One side of a comparison: a result, the file it came from, and which of its cells are compared.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The result whose cells are compared.
    pub result: &'a RunResult,
    /// The name of the result's file, for messages.
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
    /// The file and the run of side A, which B is compared with.
    pub a: Source,
    /// The file and the run of side B.
    pub b: Source,
    /// Whether A and B come from one run, whose trials are then compared round by round.
    pub paired: bool,
    /// The pairs of cells that were compared, one of A and one of B each.
    pub pairs: Vec<Pair>,
    /// Names of the cells of A that have no partner in B.
    pub only_a: Vec<String>,
    /// Names of the cells of B that have no partner in A.
    pub only_b: Vec<String>,
    /// Differences between the two runs, besides those selected, that bear on their figures.
    pub differences: Vec<String>,
    /// The ruling on each condition for each pair.
    pub judged: Vec<Judgement>,
    /// Whether the comparison failed: a pair is void, a condition was met or could not be judged, or, where there
    /// are conditions, a cell of A has no partner.
    pub failed: bool,
}

/// The file, the run and the selector of one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Source {
    /// The name of the result's file.
    pub file: String,
    /// The run's id.
    pub run: String,
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
    /// The worst verdict of A's trials.
    pub a_verdict: Verdict,
    /// The worst verdict of B's trials.
    pub b_verdict: Verdict,
    /// The reason why the comparison is void; none if it is not.
    pub void: Option<String>,
    /// Figure by figure: first over all operations together, then operation by operation and span by span.
    pub figures: Vec<FigureComparison>,
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
    /// Geometric mean over the trials of A: 0 where a trial has 0, none where no trial has the figure.
    pub a: Option<f64>,
    /// Geometric mean over the trials of B, with 0 and none as in `a`.
    pub b: Option<f64>,
    /// The ratio B / A; none where a trial of either side has the value 0, or none can be compared.
    pub ratio: Option<Ratio>,
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
    /// The pair is void, because a guarantee did not hold or a cell was not run.
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
            Self::Void => "void",
        }
    }
}

/// Compares the cells of B with those of A, and judges the conditions on each pair.
///
/// # Errors
/// A selector that fits no cell, or more than one where it must fit one; a histogram that cannot be read.
pub fn compare(
    a: Side<'_>,
    b: Side<'_>,
    conditions: &[Condition],
    judge: Judge,
) -> Result<Comparison, CompareError> {
    let matched = select::pairs(a, b)?;
    let paired = a.result.run == b.result.run;
    let names = Names::in_full(a.result.cells.iter().chain(&b.result.cells));
    let name = |cell: &&CellResult| names.cell(cell);
    let pairs = matched
        .pairs
        .iter()
        .map(|(one, other)| pair(one, other, &names, paired))
        .collect::<Result<Vec<_>, _>>()?;
    let judged = condition::judge(&pairs, conditions, judge);
    let only_a: Vec<String> = matched.only_a.iter().map(name).collect();
    let failed = pairs.iter().any(|pair| pair.void.is_some())
        || judged.iter().any(|judged| judged.ruling.fails())
        || (!conditions.is_empty() && !only_a.is_empty());
    let source = |side: Side<'_>| Source {
        file: side.name.to_owned(),
        run: side.result.run.clone(),
        selected: side.selector.words(),
    };
    Ok(Comparison {
        format: FORMAT,
        a: source(a),
        b: source(b),
        paired,
        pairs,
        only_a,
        only_b: matched.only_b.iter().map(name).collect(),
        differences: differences(a.result, b.result)
            .into_iter()
            .chain(threads(&matched.pairs, a.result, b.result))
            .chain(matched.pairs.iter().flat_map(|(one, other)| unlike(one, other, &names)))
            .collect(),
        judged,
        failed,
    })
}

fn pair(a: &CellResult, b: &CellResult, names: &Names, paired: bool) -> Result<Pair, UnreadableHistogram> {
    let void = void(a, b);
    let (mut of_a, mut of_b) = (figures::trials(a)?, figures::trials(b)?);
    let is_in =
        |one: &TrialFigures, others: &[TrialFigures]| others.iter().any(|other| other.turn == one.turn);
    if paired && of_a.iter().any(|one| is_in(one, &of_b)) {
        // the figures beside a ratio are those of its trials
        of_a.retain(|one| is_in(one, &of_b));
        of_b.retain(|one| is_in(one, &of_a));
    }
    let mut operations: Vec<Option<String>> = vec![None];
    let of_operations = tables::operations(a).into_iter().chain(tables::operations(b));
    for name in of_operations.chain(tables::spans(a)).chain(tables::spans(b)) {
        if !operations.iter().any(|known| known.as_deref() == Some(name)) {
            operations.push(Some(name.to_owned()));
        }
    }
    let mut compared = Vec::new();
    for operation in operations {
        for figure in Figure::ALL {
            if operation.is_none() || !figure.is_of_all() {
                let of = (&of_a[..], &of_b[..]);
                compared.extend(one(of, operation.as_deref(), figure, paired, void.is_some()));
            }
        }
    }
    Ok(Pair {
        a: names.cell(a),
        b: names.cell(b),
        a_dimensions: a.dimensions(),
        b_dimensions: b.dimensions(),
        a_verdict: a.verdict(),
        b_verdict: b.verdict(),
        void,
        figures: compared,
    })
}

/// Why a pair is void: B's guarantee did not hold, or A's was broken although it was promised. A cell of A that
/// promised nothing may be broken.
fn void(a: &CellResult, b: &CellResult) -> Option<String> {
    match (a.verdict(), b.verdict()) {
        _ if a.trials.is_empty() || b.trials.is_empty() => {
            let which = if b.trials.is_empty() { "B" } else { "A" };
            Some(format!("{which} was not run"))
        }
        _ if b.whole_trials().next().is_none() => Some("every trial of B was cut short".to_owned()),
        _ if a.whole_trials().next().is_none() => Some("every trial of A was cut short".to_owned()),
        (_, verdict) if verdict != Verdict::Holds => Some(format!("B's verdict is {verdict}")),
        _ if !(a.is_serving() && b.is_serving()) => {
            let of = |name: &str, cell: &CellResult| Some(format!("{name} had {}", cell.too_many_errors()?));
            Some([of("A", a), of("B", b)].into_iter().flatten().collect::<Vec<_>>().join(", "))
        }
        (verdict, _) if a.breaks_promise() || (verdict != Verdict::Holds && a.is_promised()) => {
            Some(format!("A promised to hold and its verdict is {verdict}"))
        }
        _ => None,
    }
}

/// One figure of both cells; none where neither has it.
fn one(
    (a, b): (&[TrialFigures], &[TrialFigures]),
    operation: Option<&str>,
    figure: Figure,
    paired: bool,
    void: bool,
) -> Option<FigureComparison> {
    // a trial that acknowledged none of an operation has no row of it
    let absent = (figure == Figure::Throughput).then_some(0.0);
    let of = |trials: &[TrialFigures]| -> Vec<(Turn, f64)> {
        let seen = |trial: &TrialFigures| Some((trial.turn, trial.get(operation, figure).or(absent)?));
        trials.iter().filter_map(seen).collect()
    };
    let all = a.len() + b.len();
    let (a, b) = (of(a), of(b));
    // trials that have no such time must not vanish from the ratio
    let is_missing = !figure.is_of_all() && a.len() + b.len() < all;
    if a.iter().chain(&b).all(|(_, value)| *value <= 0.0) {
        return None;
    }
    let values = |side: &[(Turn, f64)]| side.iter().map(|(_, value)| *value).collect::<Vec<f64>>();
    let ratio = if is_missing {
        None
    } else if paired {
        let of_turn = |turn| a.iter().find(|(other, _)| *other == turn).map(|(_, value)| *value);
        let pairs: Vec<_> = b.iter().filter_map(|(turn, value)| Some((*value, of_turn(*turn)?))).collect();
        Ratio::of_pairs(&pairs)
    } else {
        Ratio::of_groups(&values(&b), &values(&a))
    };
    let assessment = match ratio {
        _ if void => Assessment::Void,
        Some(ratio) if ratio.interval.is_some() && !ratio.differs() => Assessment::NoDifferenceShown,
        Some(ratio) if ratio.differs() => {
            if (ratio.estimate > 1.0) == figure.more_is_better() {
                Assessment::Better
            } else {
                Assessment::Worse
            }
        }
        _ => Assessment::TooFewTrials,
    };
    Some(FigureComparison {
        operation: operation.map(str::to_owned),
        figure,
        unit: figure.unit(),
        a: geometric_mean(&values(&a)),
        b: geometric_mean(&values(&b)),
        ratio,
        assessment,
    })
}

fn geometric_mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty())
        .then(|| (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

/// What two cells differ in that nobody asked for: whole trials, and the durability level read back.
fn unlike(a: &CellResult, b: &CellResult, names: &Names) -> Vec<String> {
    let whole = |cell: &CellResult| cell.whole_trials().count().to_string();
    // what is not known of two servers is not the same
    let level = |cell: &CellResult| {
        let effective = cell.effective.as_ref()?;
        let level = effective.durability.level().map(|level| level.to_string());
        Some(level.unwrap_or_else(|| format!("unknown of {}", effective.version)))
    };
    let mut sides = vec![("whole trials", Some(whole(a)), Some(whole(b)))];
    if a.dimension(DURABILITY) == b.dimension(DURABILITY) {
        sides.push(("durability read back", level(a), level(b)));
    }
    let differ = sides.into_iter().filter_map(|(what, one, other)| {
        let (one, other) = (one?, other?);
        (one != other).then(|| format!("{what} of {}: {one} / {other}", names.cell(b)))
    });
    differ.collect()
}

/// The numbers of threads that drove the clients of cells that are compared, where they differ and not each client had its own,
/// as those of an embedded store have.
fn threads(pairs: &[(&CellResult, &CellResult)], a: &RunResult, b: &RunResult) -> Vec<String> {
    let sides = pairs.iter().map(|(one, other)| {
        let (threads, others) = (a.client_threads(one), b.client_threads(other));
        let are_driven = !one.trials.is_empty() && !other.trials.is_empty();
        let are_embedded = one.is_within_clients() && other.is_within_clients();
        let are_alone = are_embedded || (threads == one.clients && others == other.clients);
        (are_driven && threads != others && !are_alone)
            .then(|| format!("client threads: {threads} / {others}"))
    });
    distinct(sides.flatten())
}

/// Differences between two runs that bear on their figures: in machine, plan and versions.
fn differences(a: &RunResult, b: &RunResult) -> Vec<String> {
    let extent = |plan: &crate::Plan| {
        plan.ops.map_or_else(|| plan.duration.to_string(), |ops| format!("{ops} operations"))
    };
    let facts = |result: &RunResult| {
        let (machine, plan) = (&result.machine, &result.plan);
        [
            ("CPU", machine.cpu.clone()),
            ("cores", machine.cores.to_string()),
            ("memory", crate::bytes(machine.memory_bytes as f64)),
            ("kernel", machine.kernel.clone()),
            ("filesystem", machine.filesystem.clone()),
            ("acidtest", result.acidtest.clone()),
            ("measured part", extent(plan)),
            ("warm-up", plan.warmup.to_string()),
            ("client processes", plan.client_processes().unwrap_or(1).to_string()),
            ("arrivals", format!("{:?}", plan.arrivals)),
            ("duty", crate::tables::percent(plan.duty)),
            ("on refused", format!("{:?}", plan.on_refused)),
            ("seed", plan.seed.to_string()),
        ]
    };
    let sides = facts(a).into_iter().zip(facts(b)).map(|((what, one), (_, other))| (what, one, other));
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
    use crate::{
        Style,
        sample::{Grid, golden, queue},
    };

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
        let (a, b) = (selector(a), selector(b));
        let conditions: Vec<Condition> = fail_if.iter().map(|text| text.parse().unwrap()).collect();
        let side = |choose, selector| Side { result, name: "result.json", choose, selector };
        compare(side("--a ", &a), side("--b ", &b), &conditions, Judge::Interval)
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
        assert!(compared.paired && !compared.failed);
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
        assert!(
            void.failed && void.pairs[0].void.as_deref() == Some("B's verdict is broken"),
            "{:?}",
            void.pairs[0]
        );
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
        let (all, first) = (Selector::default(), |result: &RunResult| RunResult {
            cells: vec![result.cells[0].clone()],
            ..result.clone()
        });
        let (a, b) = (first(&result), first(&slower));
        let side = |result, name| Side { result, name, choose: "--a ", selector: &all };
        let conditions = ["delivery:p99>1.5", "delivery:p50>1.1", "delivery:throughput<1"]
            .map(|text| text.parse::<Condition>().unwrap());
        let compared = compare(side(&a, "a.json"), side(&b, "b.json"), &conditions, Judge::Estimate).unwrap();
        let of_delivery = |figure: &&FigureComparison| figure.operation.as_deref() == Some("delivery");
        let figures: Vec<Figure> =
            compared.pairs[0].figures.iter().filter(of_delivery).map(|figure| figure.figure).collect();
        assert_eq!(figures, [Figure::P50, Figure::P95, Figure::P99, Figure::P999, Figure::Max]);
        let rulings: Vec<&Ruling> = compared.judged.iter().map(|judged| &judged.ruling).collect();
        assert!(matches!(rulings[..], [Ruling::Failed, Ruling::Passed, Ruling::NotJudged(_)]), "{rulings:?}");
    }

    #[test]
    fn two_runs_are_not_paired() {
        let same = after(&sample(), |again| "0.2.0".clone_into(&mut again.acidtest), &[]);
        // the cells with lock none are broken on both sides
        assert_eq!((same.pairs.len(), same.paired, same.failed), (8, false, true));
        assert_eq!(same.differences, ["acidtest: 0.1.0 / 0.2.0"]);
        for figure in same.pairs.iter().filter(|pair| pair.void.is_none()).flat_map(|pair| &pair.figures) {
            assert!(
                (figure.ratio.unwrap().estimate - 1.0).abs() < 1e-9
                    && figure.assessment == Assessment::NoDifferenceShown
            );
        }
    }

    #[test]
    fn a_gate_fails_on_what_is_shown_and_not_on_noise() {
        let result = sample();
        let ruled = |fail_if: &str| {
            let compared =
                within(&result, &["lock=none"], &["lock=native", "clients=8"], &[fail_if]).unwrap();
            (compared.judged[0].ruling.clone(), compared.failed)
        };
        // native costs a fifth: shown to be below 0.9, not to be below 0.8
        assert_eq!(ruled("throughput<0.9"), (Ruling::Failed, true));
        assert_eq!(ruled("throughput<0.8"), (Ruling::Passed, false));
        assert!(matches!(ruled("delete:p99>1").0, Ruling::NotJudged(_)));
        let single = Grid { trials: 1, ..Grid::default() }.result();
        let unjudged = within(&single, &["lock=none"], &["lock=native"], &["throughput<0.1"]).unwrap();
        assert!(unjudged.failed && matches!(unjudged.judged[0].ruling, Ruling::NotJudged(_)));
        for text in ["throughput", "speed<1", "p99>x", "p99>-1", ":p99>1"] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
    }

    /// All cells of a run against those of the same run made again and changed as told.
    fn after(before: &RunResult, change: impl Fn(&mut RunResult), fail_if: &[&str]) -> Comparison {
        let mut after = RunResult { run: "another".to_owned(), ..before.clone() };
        change(&mut after);
        let all = Selector::default();
        let side = |result, name| Side { result, name, choose: "--a ", selector: &all };
        let conditions: Vec<Condition> = fail_if.iter().map(|text| text.parse().unwrap()).collect();
        compare(side(before, "a.json"), side(&after, "b.json"), &conditions, Judge::Interval).unwrap()
    }

    /// The same of a single cell.
    fn cell_after(change: impl Fn(&mut CellResult), fail_if: &[&str]) -> Comparison {
        let before = Grid { locks: &[Lock::Native], ..Grid::default() }.result();
        after(&before, |result| change(&mut result.cells[0]), fail_if)
    }

    fn cut_short(trial: &mut crate::TrialResult) {
        trial.stopped = Some(crate::StopFigures { reason: "server gone".to_owned(), detail: String::new() });
    }

    #[test]
    fn trials_that_were_cut_short_are_said_and_pass_no_gate() {
        let some = cell_after(|cell| cut_short(&mut cell.trials[0]), &[]);
        assert_eq!(some.differences, ["whole trials of sqlite native: 3 / 2"]);
        let none = cell_after(|cell| cell.trials.iter_mut().for_each(cut_short), &["throughput<0.5"]);
        assert_eq!(none.pairs[0].void.as_deref(), Some("every trial of B was cut short"));
        assert!(none.failed && matches!(none.judged[0].ruling, Ruling::NotJudged(_)));
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

    #[test]
    fn other_numbers_of_client_threads_are_said_once_unless_each_client_has_its_own() {
        let (stores, locks) = (&["redis"][..], &[Lock::Native, Lock::Hard][..]);
        let grid = |clients| Grid { stores, locks, clients, ..Grid::default() };
        let on = |threads| {
            move |result: &mut RunResult| result.cells.iter_mut().for_each(|cell| cell.threads = threads)
        };
        // a result that does not say so had a thread for each of its 16 cores that there was a client for
        let fewer = after(&grid(&[8]).result(), on(Some(4)), &[]);
        assert_eq!(fewer.differences, ["client threads: 8 / 4"]);
        assert!(after(&grid(&[8]).result(), on(Some(8)), &[]).differences.is_empty());
        let mut asked = grid(&[64]).result();
        assert_eq!(after(&asked, on(Some(8)), &[]).differences, ["client threads: 16 / 8"]);
        asked.plan.threads = Some(8);
        assert!(after(&asked, on(Some(8)), &[]).differences.is_empty());
        asked.plan.processes = Some(12);
        assert_eq!(after(&asked, on(Some(8)), &[]).differences, ["client threads: 12 / 8"]);
        let embedded = Grid { stores: &["sqlite"], ..grid(&[8]) }.result();
        assert!(after(&embedded, on(Some(1)), &[]).differences.is_empty());
        let mut both = Grid { stores: &["sqlite", "redis"], ..grid(&[8]) }.result();
        both.cells.iter_mut().for_each(|cell| cell.threads = Some(if cell.embedded { 8 } else { 2 }));
        let (sqlite, redis) = (selector(&["store=sqlite"]), selector(&["store=redis"]));
        let [a, b] = [&sqlite, &redis].map(|selector| Side {
            result: &both,
            name: "r.json",
            choose: "--a ",
            selector,
        });
        assert_eq!(compare(a, b, &[], Judge::Interval).unwrap().differences, ["client threads: 8 / 2"]);
        let failed = after(
            &grid(&[8]).result(),
            |result| result.cells.iter_mut().for_each(|cell| cell.trials.clear()),
            &[],
        );
        let said = failed.differences.iter().find(|said| said.contains("client threads"));
        assert_eq!(said, None);
        let mut result = grid(&[2, 4]).result();
        on(Some(2))(&mut result);
        let (two, four) = (selector(&["clients=2"]), selector(&["clients=4"]));
        let compared = |result: &RunResult| {
            let [a, b] =
                [&two, &four].map(|selector| Side { result, name: "r.json", choose: "--a ", selector });
            compare(a, b, &[], Judge::Interval).unwrap().differences
        };
        assert!(compared(&result).is_empty());
        result.cells.iter_mut().for_each(|cell| cell.threads = Some(cell.clients));
        assert!(compared(&result).is_empty());
        result.cells.iter_mut().for_each(|cell| cell.threads = Some(4 / cell.clients));
        assert_eq!(compared(&result), ["client threads: 2 / 1"]);
    }

    /// Of its times nothing is left in the trials in which no capture was acknowledged.
    #[test]
    fn an_operation_that_some_trials_never_did_passes_no_gate() {
        let without = |cell: &mut CellResult| drop(cell.trials[0].operations.remove(0));
        let compared = cell_after(without, &["capture:p99>1.2", "release:p99>1.2"]);
        let rulings: Vec<&Ruling> = compared.judged.iter().map(|judged| &judged.ruling).collect();
        assert!(matches!(rulings[..], [Ruling::NotJudged(_), Ruling::Passed]), "{rulings:?}");
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
}
