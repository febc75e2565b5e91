//! The first table: for each cell whether it holds, how fast it is, and the price of its lock.

use std::cmp::Reverse;

use acidtest_model::{
    Lock, count,
    figure::{nanoseconds, percent, rate},
};
use acidtest_results::{
    CellResult, OperationFigures, Priceable, RunResult, SEEN, TrialResult,
    dimensions::{DURABILITY, LOCK, NOT_THERE},
    distinct, disturbing, total,
};
use acidtest_workloads::{Combine, Finding, Verdict, workload};

use super::{Columns, is_too_wide, ratio, share_of, stale};
use crate::{
    headline::common_durability,
    notes::DISTURBED,
    table::{Entry, Priority, Table},
};

/// A table with one row for each cell: verdict, throughput and the price of the lock.
pub(crate) fn cells(result: &RunResult, columns: &Columns<'_>) -> Table {
    use Priority::{High, Low, Middle, Needed};
    let several = result.cells.iter().any(|cell| cell.trials.len() > 1);
    let lock = Priceable::of(result).find(|guarantee| guarantee.name() == LOCK);
    let lock = lock.filter(|lock| result.cells.iter().any(|cell| result.has_baseline(*lock, cell)));
    // the durability level read back has a column where cells differ in it; otherwise the headline shows it
    let is_tested = |cell: &CellResult| cell.trials.iter().any(|trial| trial.crashes().next().is_some());
    let levels = common_durability(result).is_none() || result.cells.iter().any(is_tested);
    let columns = columns.without(DURABILITY);
    let own = OwnCounts::of(result);
    let titles = own.titles();
    let mut others: Vec<(&str, Priority)> = Vec::new();
    others.extend(levels.then_some((DURABILITY, Needed)));
    others.extend([("verdict", Needed), ("ok/s", Needed)]);
    others.extend(several.then_some([("95 % interval", Middle), ("CV", Low)]).into_iter().flatten());
    let is_disturbed = result.is_disturbed();
    others.extend(is_disturbed.then_some(("served/s", High)));
    others.extend(lock.map(|_| ("price of lock", High)));
    others.extend(titles.iter().map(|(title, worth)| (title.as_str(), *worth)));
    let reads = stale(result).next().is_some();
    others.extend(reads.then_some(("stale reads", High)));
    others.extend(is_disturbed.then_some(("longest outage", High)));
    let voids = result.cells.iter().any(|cell| !cell.is_serving());
    let fail = result.cells.iter().any(|cell| cell.errors().is_some_and(|errors| errors > 0.0));
    others.extend(fail.then_some(("errors", if voids { Needed } else { Middle })));
    let drop = result.cells.iter().any(|cell| cell.dropped() > 0.0);
    others.extend(drop.then_some(("dropped", if voids { Needed } else { Middle })));
    let refused = refused(result);
    others.extend([(&*refused, Low), ("conflicts", Low), ("retries", Low)]);
    let mut table = columns.table(others);
    for cell in &result.cells {
        let totals = |of: &dyn Fn(&OperationFigures) -> u64| {
            let all = cell.trials.iter().flat_map(|trial| trial.operations.iter().map(of));
            Entry::right(count(total(all)))
        };
        let mut row = columns.entries(cell);
        row.extend(levels.then(|| durability(cell)));
        row.push(verdict(cell));
        let mut shown = throughput(cell, several);
        if disturbing(result, cell).is_some() {
            // the legend is the note of other programs
            shown[0] = format!("{} {DISTURBED}", shown[0]);
        }
        row.extend(shown.into_iter().map(Entry::right));
        row.extend(is_disturbed.then(|| Entry::right(served(cell))));
        row.extend(lock.map(|lock| price(result, cell, lock)));
        row.extend(own.of_cell(cell).into_iter().map(Entry::right));
        row.extend(reads.then(|| Entry::right(stale_reads(cell))));
        row.extend(is_disturbed.then(|| Entry::right(longest_outage(cell))));
        row.extend(fail.then(|| Entry::right(cell.errors().map_or_else(|| NOT_THERE.to_owned(), errors))));
        row.extend(drop.then(|| Entry::right(errors(cell.dropped()))));
        row.push(totals(&|operation| operation.refusals));
        row.push(totals(&|operation| operation.conflicts));
        row.push(totals(&|operation| operation.retries));
        table.push(row);
    }
    table
}

/// The title of the column of refusals, with what these are where they are no plain no.
fn refused(result: &RunResult) -> String {
    match workload(&result.plan.workload).map_or("", |kind| kind.refusal) {
        "" => "refused".to_owned(),
        what => format!("refused ({what})"),
    }
}

/// The durability level that was read back, and by how many crashes it was tested.
fn durability(cell: &CellResult) -> Entry {
    let crashes: usize = cell.trials.iter().map(|trial| trial.crashes().count()).sum();
    match crashes {
        0 => Entry::left(cell.durability()),
        1 => Entry::left(format!("{} · 1 crash", cell.durability())).or(cell.durability()),
        several => Entry::left(format!("{} · {several} crashes", cell.durability())).or(cell.durability()),
    }
}

/// The share of reads that were stale, of a cell whose members need not lead to answer them.
fn stale_reads(cell: &CellResult) -> String {
    cell.staleness().map_or_else(|| NOT_THERE.to_owned(), |seen| share_of(seen.stale, seen.reads))
}

/// Mean rate of the time in which somebody was served.
fn served(cell: &CellResult) -> String {
    cell.mean_served().map_or_else(|| NOT_THERE.to_owned(), |mean| rate(mean.estimate))
}

/// The longest time for which nobody was served because of a fault, or of a restart that nobody asked for.
fn longest_outage(cell: &CellResult) -> String {
    match cell.longest_outage() {
        None => NOT_THERE.to_owned(),
        Some(outage) if outage.is_infinite() => "to the end".to_owned(),
        Some(outage) if outage < SEEN => format!("< {}", nanoseconds(SEEN * 1e9)),
        Some(outage) => nanoseconds(outage * 1e9),
    }
}

/// Columns that only some workloads have: rates of operations that throughput does not count, the highest value of a
/// gauge, and evidence of the audit that the workload shows.
struct OwnCounts {
    operations: Vec<String>,
    gauge: Option<String>,
    evidence: Vec<(&'static str, Combine)>,
    /// Shares of evidence: title, part and whole.
    shares: Vec<(&'static str, &'static str, &'static str)>,
}

impl OwnCounts {
    fn of(result: &RunResult) -> Self {
        let trials = || result.cells.iter().flat_map(|cell| &cell.trials);
        let operations =
            distinct(trials().flat_map(TrialResult::other_operations).map(|other| other.name.clone()));
        let gauge = trials().find_map(|trial| Some(trial.gauge.as_ref()?.name.clone()));
        let kind = workload(&result.plan.workload);
        let counts = kind.map_or(&[] as &[_], |kind| kind.counts);
        let shares = kind.map_or(&[] as &[_], |kind| kind.shares);
        let is_there = |name: &str| trials().any(|trial| trial.audit.evidence.contains_key(name));
        let has_parts =
            |(_, part, whole): &&(&str, &'static str, &'static str)| is_there(part) && is_there(whole);
        Self {
            operations,
            gauge,
            evidence: counts.iter().filter(|(name, _)| is_there(name)).copied().collect(),
            shares: shares.iter().filter(has_parts).copied().collect(),
        }
    }

    fn titles(&self) -> Vec<(String, Priority)> {
        let rates = self.operations.iter().map(|name| (format!("{name}/s"), Priority::High));
        let gauge = self.gauge.iter().map(|name| (format!("most {name}"), Priority::Middle));
        let evidence = self.evidence.iter().map(|(name, _)| (name.replace('_', " "), Priority::Middle));
        // the first share is what the workload is about
        let worths = std::iter::once(Priority::High).chain(std::iter::repeat(Priority::Middle));
        let shares = self.shares.iter().zip(worths).map(|((title, ..), worth)| ((*title).to_owned(), worth));
        rates.chain(gauge).chain(evidence).chain(shares).collect()
    }

    fn of_cell(&self, cell: &CellResult) -> Vec<String> {
        let own = |name: &String| {
            let mean = cell.mean(|trial| {
                let others = trial.other_operations();
                others.filter(|each| each.name == *name).map(|each| each.ok_per_second).sum()
            });
            if mean > 0.0 { rate(mean) } else { NOT_THERE.to_owned() }
        };
        let most = || {
            let seen = cell.trials.iter().filter_map(|trial| trial.gauge.as_ref());
            let most = seen.flat_map(|gauge| &gauge.each_second).max();
            most.map_or_else(|| NOT_THERE.to_owned(), |most| count(*most))
        };
        let seen = |name: &str| -> Vec<u64> {
            let seen = cell.trials.iter().filter_map(|trial| trial.audit.evidence.get(name));
            seen.filter_map(|count| u64::try_from(*count).ok()).collect()
        };
        let sum = |name: &str| total(seen(name));
        let noted = |(name, combine): &(&str, Combine)| {
            if seen(name).is_empty() {
                return NOT_THERE.to_owned();
            }
            count(match combine {
                Combine::Sum => sum(name),
                // an average over trials of whole numbers: what is behind the point is noise
                Combine::Mean => sum(name) / seen(name).len() as u64,
                Combine::Most => seen(name).into_iter().max().unwrap_or_default(),
            })
        };
        let share = |(_, part, whole): &(&str, &str, &str)| {
            // of trials in which both are known
            let known = cell.trials.iter().filter_map(|trial| {
                let evidence = &trial.audit.evidence;
                Some((*evidence.get(*part)? as f64, *evidence.get(*whole)? as f64))
            });
            let (part, whole) = known.fold((0.0, 0.0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
            if whole > 0.0 { format!("{:.2} %", part / whole * 100.0) } else { NOT_THERE.to_owned() }
        };
        let rates = self.operations.iter().map(own);
        let gauge = self.gauge.iter().map(|_| most());
        rates
            .chain(gauge)
            .chain(self.evidence.iter().map(noted))
            .chain(self.shares.iter().map(share))
            .collect()
    }
}

/// Mean throughput; where some cell has several trials, also its interval and the coefficient of variation.
fn throughput(cell: &CellResult, several: bool) -> Vec<String> {
    let none = || "–".to_owned();
    let mean = cell.mean_throughput();
    let mut shown = vec![mean.map_or_else(none, |mean| rate(mean.estimate))];
    if several {
        let interval = mean.and_then(|mean| mean.interval);
        shown.push(interval.map_or_else(none, |(low, high)| {
            if low < high && is_too_wide((low, high)) {
                return "too few trials".to_owned();
            }
            format!("{}–{}", rate(low), rate(high))
        }));
        shown.push(mean.and_then(|mean| mean.variation).map_or_else(none, percent));
    }
    shown
}

/// The verdict over all trials, with the gravest finding and the most that a trial had of it.
fn verdict(cell: &CellResult) -> Entry {
    if cell.trials.is_empty() {
        return Entry::verdict("unknown: not run", Verdict::Unknown);
    }
    let verdict = cell.verdict();
    let gravest = gravest(cell);
    let shown = gravest.map_or_else(|| verdict.to_string(), |gravest| format!("{verdict}: {gravest}"));
    let has_it = |trial: &&TrialResult| match gravest {
        Some(gravest) => trial.audit.findings.iter().any(|each| each.name == gravest.name && each.count > 0),
        None => trial.audit.verdict == verdict,
    };
    let such = cell.trials.iter().filter(has_it).count();
    let entry = match (verdict, cell.trials.len()) {
        (Verdict::Holds, _) | (_, 1) => Entry::verdict(&shown, verdict),
        (_, all) => {
            let worst = if gravest.is_some() { " at worst" } else { "" };
            Entry::verdict(format!("{shown}{worst} ({such} of {all} trials)"), verdict)
        }
    };
    entry.or(shown).or(verdict.to_string())
}

/// The gravest finding of a cell, from the trial that had the most of it. What breaks a promise is graver than what does
/// not; otherwise findings stand in the order of their gravity.
fn gravest(cell: &CellResult) -> Option<&Finding> {
    let verdict = cell.verdict();
    let worst = cell.trials.iter().filter(|trial| trial.audit.verdict == verdict);
    let found = worst.flat_map(|trial| trial.audit.findings.iter().enumerate());
    let found = found.filter(|(_, finding)| finding.count > 0);
    let gravest = found.min_by_key(|(place, finding)| {
        (cell.without.contains(&finding.guarantee), *place, Reverse(finding.count))
    });
    gravest.map(|(_, finding)| finding)
}

fn price(result: &RunResult, cell: &CellResult, lock: Priceable) -> Entry {
    Entry::right(match lock.price(cell) {
        None if cell.lock == Lock::None && !cell.trials.is_empty() => "1 (baseline)".to_owned(),
        None if !result.has_baseline(lock, cell) => NOT_THERE.to_owned(),
        None => return unpriced(result, cell, lock),
        // an open loop's throughput is the rate that was offered, so its price is that of the response time
        Some(price) if cell.rate.is_some() => price.p99.as_ref().map_or_else(|| NOT_THERE.to_owned(), ratio),
        Some(price) => ratio(&price.throughput),
    })
}

/// A share of errors, or of what was dropped: one that is not 0 is not shown as if it were.
fn errors(share: f64) -> String {
    if share > 0.0 && share < 0.0005 { "< 0.1 %".to_owned() } else { percent(share) }
}

/// The reason why there is no price although there is a baseline: a cell whose guarantee broke, whose store did not serve, or in
/// which somebody was served for too little time, has no valid figures; and one that refused much more or less than its baseline
/// did other work.
pub(crate) fn unpriced(result: &RunResult, cell: &CellResult, guarantee: Priceable) -> Entry {
    let is_valid = cell.verdict() == Verdict::Holds && cell.is_serving() && cell.hardly_served().is_none();
    let void = !cell.trials.is_empty() && !is_valid;
    match result.other_refusals(guarantee, cell).filter(|_| !void) {
        Some((with, without)) => {
            let shares = format!("void: {} refused, {} without", percent(with), percent(without));
            Entry::right(shares).or("void")
        }
        None => Entry::right(if void { "void" } else { NOT_THERE }),
    }
}

#[cfg(test)]
mod tests {
    use acidtest_workloads::guarantee::{ATOMICITY, LOCK};

    use super::*;
    use acidtest_results::{InjectionFigures, dimensions::Names, sample::Grid};

    fn with_findings(findings: [Vec<Finding>; 3]) -> CellResult {
        let mut cell = Grid::default().result().cells.remove(0);
        for (trial, findings) in cell.trials.iter_mut().zip(findings) {
            trial.audit.findings = findings;
        }
        cell
    }

    #[test]
    fn the_worst_of_a_finding_is_that_of_the_trial_with_most_of_it() {
        let both = |oversold, surplus| {
            vec![
                Finding::new("oversold", oversold, "units", LOCK),
                Finding::new("surplus", surplus, "units", LOCK),
            ]
        };
        let cell = with_findings([both(22, 148), both(45, 83), both(3, 0)]);
        assert_eq!(verdict(&cell).text, "broken: oversold 45 units at worst (3 of 3 trials)");
    }

    /// Cells whose servers were ended say how often, and for how long nobody was served at worst.
    #[test]
    fn a_crash_is_evidence_of_durability() {
        let mut result = Grid::default().result();
        let shown = |result: &RunResult| {
            let names = Names::of(&result.cells);
            cells(result, &Columns::of(result, &names)).markdown()
        };
        let before = shown(&result);
        assert!(!before.contains("longest outage") && !before.contains("crash"), "{before}");
        let injected = |last_ok: Option<f64>, next_ok: Option<f64>| InjectionFigures {
            fault: "kill".to_owned(),
            member: "server".to_owned(),
            due_seconds: 3.0,
            at_seconds: Some(3.0),
            back_seconds: Some(3.1),
            answered_seconds: Some(3.2),
            acknowledged: Some(9),
            outstanding: None,
            interrupted: Some(3),
            crash: last_ok.is_some(),
            same_life: false,
            another_server: false,
            unserved_from_seconds: None,
            unserved_until_seconds: None,
            missed: false,
            overtaken: false,
            forced: false,
            last_ok_seconds: last_ok,
            next_ok_seconds: next_ok,
            promotion: None,
            not_promoted: None,
        };
        let [first, second] = &mut result.cells[..2] else { panic!("there are two cells") };
        first.trials[0].injections = vec![injected(Some(2.9), Some(3.4)), injected(None, Some(4.0))];
        first.trials[1].injections = vec![injected(Some(2.9), Some(4.1))];
        second.trials[0].injections = vec![injected(Some(2.9), None)];
        for trial in result.cells.iter_mut().flat_map(|cell| &mut cell.trials) {
            trial.note_outages(trial.injections.clone(), Vec::new(), false);
        }
        let concluded = |result: &RunResult| crate::conclusion::conclusion(result, &Names::of(&result.cells));
        let said = concluded(&result);
        assert!(
            said.contains("After a fault nobody was served until the end of a trial (sqlite native)."),
            "{said}"
        );
        let mut away = result.clone();
        away.cells.truncate(1);
        assert!(concluded(&away).contains("After a fault nobody was served for up to 1.20 s."), "{said}");
        let after = shown(&result);
        let rows: Vec<&str> = after.lines().skip(2).collect();
        assert!(rows[0].contains(" · 2 crashes |") && rows[0].contains("| 1.20 s |"), "{after}");
        assert!(rows[1].contains(" · 1 crash |") && rows[1].contains("| to the end |"), "{after}");
        // what the cell did, outages included, and what it did while somebody was served
        let trials = &result.cells[1].trials;
        let whole = trials.iter().map(|trial| trial.throughput).sum::<f64>() / 3.0;
        let served = (trials[0].throughput / 0.29 + trials[1].throughput + trials[2].throughput) / 3.0;
        assert!(after.contains("| served/s |") && !before.contains("served/s"), "{after}");
        assert!(rows[1].contains(&format!("| {} |", rate(whole))), "{after}");
        assert!(rows[1].contains(&format!("| {} |", rate(served))), "{after}");
    }

    /// A rate is the mean over trials, and the most of something the most of any; what is counted adds up.
    #[test]
    fn evidence_of_several_trials_is_taken_together() {
        let mut result = Grid::default().result();
        "logs".clone_into(&mut result.plan.workload);
        for (trial, [saved, rate, most]) in
            result.cells[0].trials.iter_mut().zip([[400, 90, 7], [500, 95, 3], [600, 100, 5]])
        {
            let evidence = [("saved", saved), ("saved_per_second", rate), ("most_clients", most)];
            trial.audit.evidence = evidence.map(|(name, count)| (name.to_owned(), count)).into();
        }
        let names = Names::of(&result.cells);
        let shown = cells(&result, &Columns::of(&result, &names)).markdown();
        assert!(shown.contains("| saved | saved per second | most clients |"), "{shown}");
        assert!(shown.contains("| 1,500 | 95 | 7 |"), "{shown}");
    }

    #[test]
    fn an_interval_that_says_nothing_is_said_in_words() {
        let mut cell = Grid { trials: 2, ..Grid::default() }.result().cells.remove(1);
        let mut shown = |rates: [f64; 2]| {
            cell.trials.iter_mut().zip(rates).for_each(|(trial, rate)| trial.throughput = rate);
            throughput(&cell, true)
        };
        assert_eq!(shown([1_000.0, 1_010.0])[1], "941–1,069");
        assert_eq!(shown([1_000.0, 1_800.0]), ["1,400", "too few trials", "40 %"]);
    }

    /// With lock none an oversell is to be expected, and a torn record is not.
    #[test]
    fn what_breaks_a_promise_is_said_first() {
        let found = |torn| {
            vec![
                Finding::new("oversold", 45, "units", LOCK),
                Finding::new("torn", torn, "records", ATOMICITY),
            ]
        };
        let cell = with_findings([found(0), found(2), found(1)]);
        assert!(cell.breaks_promise());
        assert_eq!(verdict(&cell).text, "broken: torn 2 records at worst (2 of 3 trials)");
    }
}
