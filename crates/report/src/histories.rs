//! Histories that were searched for anomalies of isolation, and what was found in them.

use acidtest_model::count;
use acidtest_results::{CellResult, RunResult, dimensions::Names, total};
use acidtest_workloads::{
    Audit, DURABILITY, Finding, PromisedLevel, SeenAnomaly, Verdict,
    transactions::{self, CHECKED, LEFT_OUT},
};

/// Examples that a terminal shows.
const SHOWN: usize = 3;

/// An anomaly in all trials of a cell.
pub(crate) struct Seen<'a> {
    /// As one trial has it, with the example of fewest transactions.
    pub(crate) anomaly: &'a SeenAnomaly,
    /// How often it was seen.
    pub(crate) count: u64,
    /// Whether there may be more in some trial.
    is_at_least: bool,
    /// How often it breaks a promise of the level: so not where it is permitted, nor where a loss may explain it.
    pub(crate) broken: u64,
    /// Whether a loss may explain some of it.
    pub(crate) is_loss: bool,
}

/// How often a trial's audit holds the anomaly against the level, and how often against durability, after a crash.
fn held_against(audit: &Audit, seen: &SeenAnomaly) -> [u64; 2] {
    let named = audit.findings.iter().filter(|finding| finding.name == seen.finding);
    let (durability, level): (Vec<&Finding>, Vec<&Finding>) =
        named.partition(|finding| finding.guarantee == DURABILITY.name);
    [level, durability].map(|findings| findings.iter().map(|finding| finding.count).sum())
}

/// The history of a cell, all trials together.
pub(crate) struct History<'a> {
    /// The cell.
    pub(crate) cell: &'a CellResult,
    promised: &'a PromisedLevel,
    /// How many committed transactions it has.
    pub(crate) committed: u64,
    left_out: u64,
    /// The anomalies that were found in it, those that break a promise first.
    pub(crate) seen: Vec<Seen<'a>>,
}

/// The histories of the cells that have one.
pub(crate) fn histories(result: &RunResult) -> Vec<History<'_>> {
    result.cells.iter().filter_map(History::of).collect()
}

impl Seen<'_> {
    /// Its name in words, and in papers where that is another one: `write skew (G2-item)`.
    pub(crate) fn title(&self) -> String {
        self.anomaly.title.clone()
    }

    /// How often it was seen: `14`, or `at least 14`.
    pub(crate) fn times(&self) -> String {
        self.at_least(self.count)
    }

    fn at_least(&self, seen: u64) -> String {
        format!("{}{}", if self.is_at_least { "at least " } else { "" }, count(seen))
    }

    /// The interval of so many of them, or its lower end if that is a lower bound; none if occurrences may have one cause.
    pub(crate) fn interval(&self, seen: u64) -> Option<String> {
        self.anomaly.interval?;
        let [low, _] = transactions::interval(seen);
        Some(if self.is_at_least { format!("{} or more", count(low)) } else { interval(seen) })
    }
}

/// The 95 % interval of a count: `8–23`.
pub(crate) fn interval(seen: u64) -> String {
    transactions::interval(seen).map(count).join("–")
}

impl<'a> History<'a> {
    fn of(cell: &'a CellResult) -> Option<Self> {
        let promised = cell.trials.iter().find_map(|trial| trial.audit.promised_level.as_ref())?;
        let evidence = |name: &str| {
            let of_trial = |value: &i64| u64::try_from(*value).unwrap_or_default();
            total(cell.trials.iter().filter_map(|trial| trial.audit.evidence.get(name)).map(of_trial))
        };
        let mut seen: Vec<Seen<'a>> = Vec::new();
        for (audit, each) in
            cell.trials.iter().flat_map(|trial| trial.audit.anomalies.iter().map(|each| (&trial.audit, each)))
        {
            let [broken, lost] = held_against(audit, each);
            let is_loss = lost > 0;
            match seen.iter_mut().find(|known| known.anomaly.name == each.name) {
                None => seen.push(Seen {
                    anomaly: each,
                    count: each.count,
                    is_at_least: each.is_at_least,
                    broken,
                    is_loss,
                }),
                Some(known) => {
                    known.count = known.count.saturating_add(each.count);
                    known.is_at_least |= each.is_at_least;
                    known.broken = known.broken.saturating_add(broken);
                    known.is_loss |= is_loss;
                    if each.example.transactions.len() < known.anomaly.example.transactions.len() {
                        known.anomaly = each;
                    }
                }
            }
        }
        seen.sort_by_key(|each| each.broken == 0);
        Some(Self { cell, promised, committed: evidence(CHECKED), left_out: evidence(LEFT_OUT), seen })
    }

    /// For example `write skew (G2-item) 14 in 1,000,000 commits (8–23)`.
    pub(crate) fn counted(&self, each: &Seen<'_>, seen: u64) -> String {
        let interval = each.interval(seen).map_or_else(String::new, |interval| format!(" ({interval})"));
        format!("{} {} in {} commits{interval}", each.title(), each.at_least(seen), count(self.committed))
    }

    /// The level, as the documentation calls it.
    pub(crate) fn level(&self) -> &str {
        &self.promised.level
    }

    /// Whether anything is known to be promised of the level.
    pub(crate) fn is_documented(&self) -> bool {
        !self.promised.said.is_empty()
    }

    /// What was found that the level rules out: none if nothing was.
    pub(crate) fn broken(&self) -> Option<String> {
        let broken = self.seen.iter().filter(|each| each.broken > 0);
        let broken: Vec<String> = broken.map(|each| self.counted(each, each.broken)).collect();
        (!broken.is_empty()).then(|| broken.join(", "))
    }

    /// The anomalies that the documentation permits, and that Adya's definition of the level of that name does not.
    fn permitted_beyond_adya(&self) -> Vec<String> {
        let forbids = |each: &&Seen<'_>| each.anomaly.adya_forbids;
        let beyond = self.seen.iter().filter(|each| !each.anomaly.is_ruled_out).filter(forbids);
        beyond.map(Seen::title).collect()
    }

    /// Why hardly any anomaly could occur, where that is so.
    fn is_tame(&self) -> Option<&'static str> {
        let writes = self.cell.parameters.get("write_share").and_then(serde_json::Value::as_f64);
        if writes == Some(0.0) {
            return Some("nothing was written, so that no anomaly could occur");
        }
        (self.cell.clients < 2).then_some("there was one client, so that hardly any anomaly could occur")
    }

    /// Sentences for the notes.
    fn notes(&self, names: &Names) -> Vec<String> {
        let Self { promised: PromisedLevel { level, said, source }, .. } = self;
        let name = names.cell(self.cell);
        let mut notes = vec![if self.is_documented() {
            format!("{name}: {level} is held to this: {said} ({source}).")
        } else {
            format!("{name}: nothing is known to be promised of {level}, so that no anomaly is a failure.")
        }];
        let beyond = self.permitted_beyond_adya();
        if self.is_documented() && !beyond.is_empty() {
            notes.push(format!(
                "{name}: no failure, because the documentation does not rule it out, but forbidden by the textbook definition of {level} \
                 (Adya 1999): {}.",
                beyond.join(", ")
            ));
        }
        notes.extend(self.is_tame().map(|why| format!("{name}: {why}.")));
        if self.left_out > 0 {
            let left_out = count(self.left_out);
            notes.push(format!(
                "{name}: {left_out} more transactions were not searched, because the history had reached its limit."
            ));
        }
        notes
    }
}

/// What is to be said of all of them.
pub(crate) fn notes(result: &RunResult, names: &Names) -> Vec<String> {
    let histories = histories(result);
    let mut notes: Vec<String> = histories.iter().flat_map(|history| history.notes(names)).collect();
    if !notes.is_empty() {
        notes.push(
            "anomalies: independent occurrences are counted, warm-up included, with the 95 % interval for as many commits (Poisson). \
             Predicates (PMP, G2) are not tested at random; `acidtest anomalies` tests them."
                .to_owned(),
        );
    }
    if histories.iter().flat_map(|history| &history.seen).any(|each| each.is_at_least) {
        notes.push("at least: the search for more of them was cut short, so there may be more.".to_owned());
    }
    notes
}

/// That in the cells that hold nothing was found that their levels rule out, and in how many transactions; and where what they permit
/// occurred most often.
pub(crate) fn found(result: &RunResult, names: &Names) -> Vec<String> {
    let histories = histories(result);
    let held = |history: &&History<'_>| history.cell.verdict() == Verdict::Holds && history.is_documented();
    let held: Vec<&History<'_>> = histories.iter().filter(held).collect();
    let commits = || held.iter().map(|history| history.committed);
    let none = match (held.as_slice(), commits().min(), commits().max()) {
        ([one], Some(commits), _) => Some(format!(
            "No anomaly that {} rules out was found in {} commits.",
            one.level(),
            count(commits)
        )),
        (_, Some(fewest), Some(most)) => Some(format!(
            "No anomaly that the level rules out was found in {} to {} commits of each cell that holds.",
            count(fewest),
            count(most)
        )),
        _ => None,
    };
    none.into_iter().chain(permitted(&histories, names)).collect()
}

/// In which cell anomalies occurred most often that its level permits, and which of them most.
fn permitted(histories: &[History<'_>], names: &Names) -> Option<String> {
    let of = |history: &History<'_>| {
        history.seen.iter().filter(|each| !each.anomaly.is_ruled_out).map(|each| each.count).sum::<u64>()
    };
    let share = |history: &&History<'_>| of(history) as f64 / history.committed.max(1) as f64;
    let some: Vec<&History<'_>> = histories.iter().filter(|history| of(history) > 0).collect();
    let most = *some.iter().max_by(|one, other| share(one).total_cmp(&share(other)))?;
    let permitted = most.seen.iter().filter(|each| !each.anomaly.is_ruled_out);
    let worst = permitted.max_by_key(|each| each.count)?;
    let found = most.counted(worst, worst.count);
    let show = "`acidtest report` shows an example of each";
    Some(match (histories.len(), some.len()) {
        (1, _) => {
            format!("Anomalies that the level permits occurred: {found}, and others in the table; {show}.")
        }
        (_, cells) => format!(
            "Anomalies that the level permits occurred in {cells} of the cells, most in {}: {found}; {show}.",
            names.cell(most.cell)
        ),
    })
}

/// Examples as text for a terminal: those that break a promise, at most a few.
pub(crate) fn examples(result: &RunResult, names: &Names) -> Vec<String> {
    let text = |history: &History<'_>, each: &Seen<'_>| {
        format!(
            "{}: {}\n{}",
            names.cell(history.cell),
            history.counted(each, each.broken),
            each.anomaly.example.text()
        )
    };
    let histories = histories(result);
    let all = histories.iter().flat_map(|history| history.seen.iter().map(move |each| (history, each)));
    let broken = all.filter(|(_, each)| each.broken > 0).take(SHOWN);
    broken.map(|(history, each)| text(history, each)).collect()
}

#[cfg(test)]
mod tests {
    use acidtest_history::{Example, Shown as Transaction};
    use acidtest_results::sample::Grid;

    use super::*;
    use crate::{Style, golden::golden};

    fn result(count: u64, is_ruled_out: bool) -> RunResult {
        let mut result = Grid::default().result();
        result.cells.truncate(1);
        let cell = &mut result.cells[0];
        cell.trials.truncate(2);
        for (place, trial) in cell.trials.iter_mut().enumerate() {
            trial.audit.promised_level = Some(PromisedLevel {
                level: "repeatable read".to_owned(),
                said: "sees only what was committed before".to_owned(),
                source: "the manual".to_owned(),
            });
            trial.audit.evidence.insert(CHECKED.to_owned(), 500_000);
            let transaction = |name: &str| Transaction {
                name: name.to_owned(),
                about: "session 1".to_owned(),
                operations: vec!["read list 1: <empty>".to_owned()],
            };
            let example = Example {
                title: "write skew (G2-item)".to_owned(),
                transactions: ["T1", "T2", "T3"][place..].iter().map(|name| transaction(name)).collect(),
                arrows: Vec::new(),
                conclusion: "So it is.".to_owned(),
            };
            let seen = SeenAnomaly {
                finding: "write_skew".to_owned(),
                name: "G2-item".to_owned(),
                title: "write skew (G2-item)".to_owned(),
                count,
                unit: "cycles".to_owned(),
                is_at_least: false,
                interval: Some([0, 9]),
                is_ruled_out,
                forbidden_from: "repeatable read".to_owned(),
                adya_forbids: true,
                example,
            };
            trial.audit.anomalies = if count > 0 { vec![seen] } else { Vec::new() };
            trial.audit.verdict = if is_ruled_out && count > 0 { Verdict::Broken } else { Verdict::Holds };
            trial.audit.findings = vec![Finding {
                guarantee: "isolation".to_owned(),
                ..Finding::new("write_skew", if is_ruled_out { count } else { 0 }, "cycles", DURABILITY)
            }];
        }
        result
    }

    fn told(result: &RunResult) -> String {
        let names = Names::of(&result.cells);
        notes(result, &names).into_iter().chain(found(result, &names)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_was_found_is_said_with_its_interval_and_whether_it_is_a_failure() {
        let trials = result(7, true).cells[0].trials.len() as u64;
        let (found, commits) = (7 * trials, count(500_000 * trials));
        let (permitted, broken, none) = (result(7, false), result(7, true), result(0, true));
        let all = format!("write skew (G2-item) {found} in {commits} commits ({})", interval(found));
        assert_eq!(histories(&broken)[0].broken(), Some(all));
        assert_eq!(histories(&permitted)[0].broken(), None);
        let beyond =
            "forbidden by the textbook definition of repeatable read (Adya 1999): write skew (G2-item).";
        assert!(told(&permitted).contains(beyond), "{}", told(&permitted));
        assert!(!told(&broken).contains(beyond));
        assert!(told(&none).contains(&format!("was found in {commits} commits")), "{}", told(&none));
        assert!(told(&none).contains("(the manual)"));
        assert!(told(&Grid::default().result()).is_empty());
    }

    #[test]
    fn the_table_has_a_row_for_each_anomaly_or_one_that_says_none() {
        let rows = |result: &RunResult| {
            let names = Names::of(&result.cells);
            let table = crate::tables::anomalies(result, &crate::tables::Columns::of(result, &names));
            table.rows.iter().map(|row| row.iter().map(|entry| entry.text.clone()).collect()).collect()
        };
        let ends = |rows: Vec<Vec<String>>| rows[0][rows[0].len() - 5..].join("|");
        assert_eq!(
            ends(rows(&result(7, true))),
            "write skew (G2-item)|14|8–23|1,000,000|repeatable read rules it out"
        );
        assert_eq!(
            ends(rows(&result(7, false))),
            "write skew (G2-item)|14|8–23|1,000,000|repeatable read permits it"
        );
        assert_eq!(ends(rows(&result(0, false))), "none|0|0–4|1,000,000|–");
        let mut crashed = result(7, true);
        for trial in &mut crashed.cells[0].trials {
            trial.audit.findings[0].guarantee = "durability".to_owned();
        }
        assert!(ends(rows(&crashed)).ends_with("|repeatable read rules it out; a loss may explain it"));
        assert_eq!(histories(&crashed)[0].broken(), None);
        let none: Vec<Vec<String>> = rows(&Grid::default().result());
        assert!(none.is_empty());
    }

    #[test]
    fn the_report_of_what_was_found_is_the_golden_one() {
        let mut result = result(7, true);
        result.plan.workload = "transactions".to_owned();
        let style = Style { color: false, width: Some(100) };
        golden("transactions-100.txt", &crate::render(&result, style).unwrap());
    }

    #[test]
    fn only_what_breaks_a_promise_is_shown_in_full_on_a_terminal() {
        let examples = |result: &RunResult| super::examples(result, &Names::of(&result.cells));
        assert!(examples(&result(7, false)).is_empty());
        let broken = examples(&result(7, true));
        assert!(broken[0].contains("So it is."), "{broken:?}");
        // the smaller one of two
        assert!(!broken[0].contains("T1:"), "{broken:?}");
    }
}
