//! Conditions under which a comparison fails: a gate for continuous integration.
//!
//! A condition is on the ratio B / A of a cell. It is *shown* where the ratio is shown to lie beyond the bound, *excluded* where it
//! is shown not to, and *inconclusive* where the data tell neither: a gate that takes silence for consent protects nothing, and
//! one that takes it for guilt accuses the innocent.
//!
//! **Errors.** Each of the two is a one-sided test at [`CHANCE`]. Several conditions and cells are one family: what is shown is
//! shown by Holm's procedure (Holm 1979), so that a comparison in which nothing lies beyond its bound fails at most so often. What is
//! excluded needs no such correction, because a comparison passes only if *every* condition is excluded, and so passes in spite of
//! one that is met at most as often as that one is excluded (an intersection–union test: Berger 1982).

use std::{fmt, str::FromStr};

use acidtest_model::count;
use acidtest_results::statistics::{Difference, RESOLUTION};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::{Assessment, Design, Figure, FigureComparison, Pair};

/// How often a condition may be shown, or excluded, by chance where the true ratio is its bound.
const CHANCE: f64 = 0.025;

/// A condition on a figure's ratio B / A, as the command line takes it: `throughput<0.95`, `capture:p99>1.2`.
#[derive(Clone, Debug, PartialEq, JsonSchema)]
#[schemars(with = "String")]
pub struct Condition {
    operation: Option<String>,
    figure: Figure,
    pub(super) above: bool,
    bound: f64,
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!(
                "\"{text}\": {why}\n  write [OPERATION:]FIGURE<BOUND or >BOUND, such as throughput<0.95 or capture:p99>1.2"
            )
        };
        let place = text.find(['<', '>']).ok_or_else(|| wrong("it has no < or >"))?;
        let (what, bound) = (text[..place].trim(), text[place + 1..].trim());
        let (operation, figure) = match what.rsplit_once(':') {
            Some((operation, figure)) if !operation.trim().is_empty() => (Some(operation.trim()), figure),
            Some(_) => return Err(wrong("no operation before the colon")),
            None => (None, what),
        };
        let figure: Figure = figure.trim().parse().map_err(|error: String| wrong(&error))?;
        let bound = bound.parse::<f64>().ok().filter(|bound| bound.is_finite() && *bound > 0.0);
        let bound = bound.ok_or_else(|| wrong("the bound must be a number above 0"))?;
        if operation.is_some() && figure.is_of_all() {
            return Err(wrong("CPU and errors are known only for all operations together"));
        }
        Ok(Self {
            operation: operation.map(str::to_owned),
            figure,
            above: text[place..].starts_with('>'),
            bound,
        })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operation) = &self.operation {
            write!(f, "{operation}:")?;
        }
        write!(f, "{}{}{}", self.figure, if self.above { '>' } else { '<' }, self.bound)
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A condition as applied to one pair of cells, with its ruling.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Judgement {
    /// The condition, as given on the command line.
    pub condition: Condition,
    /// The cell of B, named by the dimensions that vary.
    pub cell: String,
    /// Whether the condition is shown, excluded, or neither.
    pub ruling: Ruling,
    /// The ratio B / A with its 95 % interval; none where the pair has none, or it is void.
    pub ratio: Option<acidtest_results::Ratio>,
    /// The ratio nearest to the bound that these data would have shown to lie beyond it, beside all other conditions and cells; none
    /// where the condition was not tested.
    pub could_show: Option<f64>,
}

/// What the data say of a condition on a pair of cells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ruling {
    /// The ratio is shown to lie beyond the bound: the comparison fails.
    Shown,
    /// The ratio is shown not to lie beyond the bound.
    Excluded,
    /// Neither, for the reason given here: the comparison does not pass.
    Inconclusive(String),
}

/// What is known of a condition on a pair of cells before all of them are looked at together.
enum Question {
    Settled(Ruling),
    Open(Difference),
}

pub(super) fn judge(pairs: &[Pair], conditions: &[Condition], design: Design) -> Vec<Judgement> {
    let each = || pairs.iter().flat_map(|pair| conditions.iter().map(move |condition| (pair, condition)));
    let questions: Vec<Question> =
        each().map(|(pair, condition)| question(pair, condition, design)).collect();
    let open = questions.iter().zip(each()).filter_map(|(question, (_, condition))| match question {
        Question::Open(difference) => Some((condition, *difference)),
        Question::Settled(_) => None,
    });
    let mut tests = test(&open.collect::<Vec<_>>(), design).into_iter();
    let judged = each().zip(questions).map(|((pair, condition), question)| {
        let (ruling, could_show) = match question {
            Question::Settled(ruling) => (ruling, None),
            // there is a test for each open question
            Question::Open(_) => tests.next().unwrap_or((unsettled(design), None)),
        };
        let figure = condition.of(pair).filter(|figure| figure.assessment != Assessment::Void);
        let ratio = figure.and_then(|figure| figure.ratio);
        Judgement { condition: condition.clone(), cell: pair.b.clone(), ruling, ratio, could_show }
    });
    judged.collect()
}

fn unsettled(design: Design) -> Ruling {
    Ruling::Inconclusive(format!("neither shown nor excluded: {}", design.remedy()))
}

/// Rules on conditions that are of one comparison, each with what it could have shown.
fn test(open: &[(&Condition, Difference)], design: Design) -> Vec<(Ruling, Option<f64>)> {
    let chances: Vec<f64> = open.iter().map(|(condition, seen)| condition.chance_beyond(seen)).collect();
    let rule = |((condition, seen), (is_shown, level)): (&(&Condition, Difference), (bool, f64))| {
        let ruling = if is_shown {
            Ruling::Shown
        } else if condition.chance_within(seen) <= CHANCE {
            Ruling::Excluded
        } else {
            unsettled(design)
        };
        (ruling, condition.could_show(seen, level))
    };
    open.iter().zip(holm(&chances)).map(rule).collect()
}

/// Holm's procedure: which of these hypotheses are rejected, and at which level each was, or would have been.
fn holm(chances: &[f64]) -> Vec<(bool, f64)> {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_by(|one, other| chances[*one].total_cmp(&chances[*other]));
    let mut ruled = vec![(false, CHANCE); chances.len()];
    let mut stopped_at = None;
    for (rank, place) in order.into_iter().enumerate() {
        let level = stopped_at.unwrap_or(CHANCE / (chances.len() - rank) as f64);
        let is_rejected = stopped_at.is_none() && chances[place] <= level;
        if !is_rejected {
            stopped_at = Some(level);
        }
        ruled[place] = (is_rejected, level);
    }
    ruled
}

fn question(pair: &Pair, condition: &Condition, design: Design) -> Question {
    let not = |why: String| Question::Settled(Ruling::Inconclusive(why));
    if let Some(void) = &pair.void {
        return not(format!("void: {}", void.why));
    }
    if let Some(disturbed) = &pair.disturbed {
        return not(disturbed.clone());
    }
    let figure = condition.of(pair);
    if let Some(void) = figure.and_then(|figure| figure.void.as_ref()) {
        return not(format!("void: {void}"));
    }
    if condition.figure == Figure::Errors && figure.is_none_or(|figure| figure.b == Some(0.0)) {
        // a share of nothing is no worse than any other
        return match (condition.above, figure) {
            (true, _) => Question::Settled(Ruling::Excluded),
            (false, None) => not("neither A nor B had errors".to_owned()),
            (false, Some(figure)) => open(figure, design),
        };
    }
    match figure {
        Some(figure) if figure.ratio.is_some() => open(figure, design),
        _ => not(condition.lacking(pair)),
    }
}

fn open(figure: &FigureComparison, design: Design) -> Question {
    match figure.difference {
        Some(difference) if difference.has_error() => Question::Open(difference),
        None if design == Design::Single => Question::Settled(Ruling::Inconclusive(
            "one run a side does not show how much two runs of the same plan differ: compare several runs a side, have \
             them run in turn (compare --run), or say how much they differ (--between-runs)"
                .to_owned(),
        )),
        _ => Question::Settled(Ruling::Inconclusive(format!("there is no interval: {}", design.remedy()))),
    }
}

impl Condition {
    fn of<'a>(&self, pair: &'a Pair) -> Option<&'a FigureComparison> {
        self.figure(pair, self.figure)
    }

    /// A figure of the condition's operation.
    fn figure<'a>(&self, pair: &'a Pair, figure: Figure) -> Option<&'a FigureComparison> {
        pair.figures.iter().find(|each| each.operation == self.operation && each.figure == figure)
    }

    /// Why there is no ratio of its figure.
    fn lacking(&self, pair: &Pair) -> String {
        let has_times = self.figure(pair, Figure::Max).is_some();
        let has_too_few = self.of(pair).is_none_or(|each| each.assessment == Assessment::TooFewOperations);
        match self.figure.takes().filter(|_| has_times && has_too_few) {
            Some(enough) => {
                let of = self.operation.as_ref().map_or_else(String::new, |name| format!("{name}:"));
                format!(
                    "a trial of A or B has no {of}{}, which needs {} acknowledged operations: run longer trials",
                    self.figure,
                    count(enough)
                )
            }
            None => "A or B has no such figure, or not in every trial".to_owned(),
        }
    }

    /// The probability of what was seen, or of a ratio further beyond the bound, if the true ratio is the bound. Histograms of three
    /// digits do not tell what is nearer to it than their resolution.
    fn chance_beyond(&self, seen: &Difference) -> f64 {
        let bound = self.bound.ln() + if self.above { RESOLUTION } else { -RESOLUTION };
        if self.above { seen.chance_above(bound) } else { seen.chance_below(bound) }.unwrap_or(1.0)
    }

    /// The same of a ratio further within it.
    fn chance_within(&self, seen: &Difference) -> f64 {
        let bound = self.bound.ln() + if self.above { -RESOLUTION } else { RESOLUTION };
        if self.above { seen.chance_below(bound) } else { seen.chance_above(bound) }.unwrap_or(1.0)
    }

    /// The ratio nearest to the bound that would have been shown at this level.
    fn could_show(&self, seen: &Difference, level: f64) -> Option<f64> {
        let away = seen.reach(level)? + RESOLUTION;
        Some((self.bound.ln() + if self.above { away } else { -away }).exp())
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// Of a figure that is no count.
    const NO_FLOOR: f64 = 0.0;

    /// Simulated runs of two grids whose true ratio is known.
    #[derive(Clone, Copy)]
    struct Simulated {
        design: Design,
        /// Runs of A and of B.
        runs: (usize, usize),
        cells: usize,
        /// Standard deviation of runs that are alike; half of its square is common to all cells of a run.
        between: f64,
        trials: usize,
        /// By how much each run is slower than the one before it.
        drift: f64,
    }

    /// Simulated comparisons, of one cell; of more cells fewer.
    const EXPERIMENTS: usize = 4000;

    /// Coefficient of variation of trials within a run.
    const WITHIN: f64 = 0.03;

    fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
        // Box and Muller
        let (one, other): (f64, f64) = (rng.random_range(1e-300..1.0), rng.random_range(0.0..TAU));
        (-2.0 * one.ln()).sqrt() * other.cos()
    }

    impl Simulated {
        /// The differences of cells whose ratios B / A are these.
        fn differences(self, rng: &mut Xoshiro256PlusPlus, ratios: &[f64]) -> Vec<Difference> {
            let half = self.between / 2.0_f64.sqrt();
            let common = |count: usize, rng: &mut Xoshiro256PlusPlus| -> Vec<f64> {
                (0..count).map(|_| half * normal(rng)).collect()
            };
            let (of_a, of_b) = (common(self.runs.0, rng), common(self.runs.1, rng));
            let trials = |rng: &mut Xoshiro256PlusPlus, run: f64| -> Vec<f64> {
                let own = run + half * normal(rng);
                (0..self.trials).map(|_| own + WITHIN * normal(rng)).collect()
            };
            // A B, B A, A B, …
            let place = |run: usize, is_b: bool| (2 * run + usize::from((run % 2 == 1) != is_b)) as f64;
            let of_cell = |rng: &mut Xoshiro256PlusPlus, ratio: f64| {
                if self.design == Design::Single {
                    let (a, b) = (trials(rng, of_a[0]), trials(rng, of_b[0] + ratio.ln()));
                    let seen = Difference::of_groups(&b, &a, NO_FLOOR).unwrap();
                    return seen.between_runs(self.between);
                }
                // the mean of a run's trials
                let own = half.hypot(WITHIN / (self.trials as f64).sqrt());
                let mut runs = |of: &[f64], ratio: f64, is_b: bool| -> Vec<f64> {
                    let each = of.iter().enumerate();
                    each.map(|(run, common)| {
                        common + own * normal(rng) - self.drift * place(run, is_b) + ratio.ln()
                    })
                    .collect()
                };
                let (a, b) = (runs(&of_a, 1.0, false), runs(&of_b, ratio, true));
                if self.design == Design::Pairs {
                    let pairs: Vec<f64> = b.iter().zip(&a).map(|(b, a)| b - a).collect();
                    return Difference::of_pairs(&pairs, NO_FLOOR).unwrap();
                }
                Difference::of_groups(&b, &a, NO_FLOOR).unwrap()
            };
            ratios.iter().map(|ratio| of_cell(rng, *ratio)).collect()
        }

        /// How often one of the cells is shown to be below 0.95 of A, and how often all are shown not to be.
        fn failed_and_passed(self, ratio: &dyn Fn(usize) -> f64) -> (f64, f64) {
            let experiments = EXPERIMENTS / self.cells;
            let condition: Condition = "throughput<0.95".parse().unwrap();
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
            let ratios: Vec<f64> = (0..self.cells).map(ratio).collect();
            let (mut failed, mut passed) = (0, 0);
            for _ in 0..experiments {
                let differences = self.differences(&mut rng, &ratios);
                let open: Vec<_> = differences.into_iter().map(|each| (&condition, each)).collect();
                let ruled = test(&open, self.design);
                failed += usize::from(ruled.iter().any(|(ruling, _)| *ruling == Ruling::Shown));
                passed += usize::from(ruled.iter().all(|(ruling, _)| *ruling == Ruling::Excluded));
            }
            (failed as f64 / experiments as f64, passed as f64 / experiments as f64)
        }
    }

    const PAIRS: Simulated =
        Simulated { design: Design::Pairs, runs: (5, 5), cells: 1, between: 0.03, trials: 5, drift: 0.0 };

    /// Within three standard errors of the 2.5 % that are claimed, or below.
    #[track_caller]
    fn is_as_claimed(share: f64, simulated: Simulated) {
        let experiments = (EXPERIMENTS / simulated.cells) as f64;
        assert!(share <= CHANCE + 3.0 * (CHANCE / experiments).sqrt(), "{share}");
    }

    #[test]
    fn a_gate_fails_and_passes_by_chance_as_seldom_as_it_says() {
        let designs = [
            PAIRS,
            Simulated { drift: 0.01, ..PAIRS },
            Simulated { design: Design::Groups, ..PAIRS },
            Simulated { design: Design::Groups, runs: (5, 1), ..PAIRS },
            Simulated { design: Design::Groups, runs: (3, 7), ..PAIRS },
            Simulated { design: Design::Single, runs: (1, 1), ..PAIRS },
        ];
        for design in designs {
            for (between, trials) in [(0.03, 5), (0.06, 10)] {
                let one = Simulated { between, trials, ..design };
                // the true ratio is the bound itself
                let (failed, passed) = one.failed_and_passed(&|_| 0.95);
                println!(
                    "{:?} {:?} between {between}: {failed:.4} fail, {passed:.4} pass",
                    one.design, one.runs
                );
                is_as_claimed(failed, one);
                is_as_claimed(passed, one);
                let grid = Simulated { cells: 12, ..one };
                let (failed, _) = grid.failed_and_passed(&|_| 0.95);
                // one cell of many is at the bound, and all others are far from it
                let (_, passed) = grid.failed_and_passed(&|cell| if cell == 0 { 0.95 } else { 2.0 });
                println!("  12 cells: {failed:.4} fail, {passed:.4} pass");
                is_as_claimed(failed, grid);
                is_as_claimed(passed, grid);
            }
        }
    }

    /// Why the run is the unit: trials of one run a side, taken for all that varies, fail a gate at its own bound far more often.
    #[test]
    fn trials_of_one_run_a_side_do_not_say_how_runs_differ() {
        let condition: Condition = "throughput<0.95".parse().unwrap();
        for (between, trials, said) in [(0.03, 5, 0.18), (0.06, 10, 0.36)] {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
            let run = Simulated { design: Design::Groups, runs: (1, 1), between, trials, ..PAIRS };
            let failed = (0..2000).filter(|_| {
                let (a, b) = (run.between * normal(&mut rng), run.between * normal(&mut rng) + 0.95_f64.ln());
                let mut trials =
                    |of: f64| (0..run.trials).map(|_| of + WITHIN * normal(&mut rng)).collect::<Vec<_>>();
                let (a, b) = (trials(a), trials(b));
                let seen = Difference::of_groups(&b, &a, NO_FLOOR).unwrap();
                condition.chance_beyond(&seen) <= CHANCE
            });
            let share = failed.count() as f64 / 2000.0;
            println!("one run a side, between {between}: {share:.3} fail");
            assert!((share - said).abs() < 0.02, "{share}");
        }
    }

    /// The table of docs/comparing.md: how often a gate at 0.95 fails or passes.
    #[test]
    fn so_many_rounds_rule_so_often() {
        for (rounds, between, passes_if_equal, fails_at_085) in [
            (5, 0.03, 0.43, 0.97),
            (10, 0.03, 0.84, 1.0),
            (20, 0.03, 1.0, 1.0),
            (5, 0.06, 0.17, 0.56),
            (10, 0.06, 0.37, 0.94),
            (20, 0.06, 0.67, 1.0),
        ] {
            let simulated = Simulated { runs: (rounds, rounds), between, ..PAIRS };
            let (_, passed) = simulated.failed_and_passed(&|_| 1.0);
            let (failed, _) = simulated.failed_and_passed(&|_| 0.85);
            println!("{rounds} rounds, {between}: {passed:.3} pass, {failed:.3} fail");
            assert!((passed - passes_if_equal).abs() < 0.03, "{rounds} rounds, {between}: {passed} pass");
            assert!((failed - fails_at_085).abs() < 0.03, "{rounds} rounds, {between}: {failed} fail");
        }
    }
}
