//! The conclusion of a result, shown before its tables: how many cells hold, which broke and whether that was to be
//! expected, and which is the fastest of those that hold.

use std::collections::BTreeMap;

use acidtest_workloads::{Guarantee, Verdict};

use crate::{
    CellResult, Ratio, RunResult, TrialResult, count,
    dimensions::{CLIENTS, Names},
    figure::{nanoseconds, rate},
    price::{Priceable, guarantees},
};

/// Cells that a sentence names before it counts the rest.
const NAMED: usize = 4;

/// Most groups of equal work for which a sentence names the fastest cell: beyond that the table is easier to read.
const LOADS: usize = 6;

/// The conclusion's sentences, each on a line of its own.
pub(crate) fn conclusion(result: &RunResult, names: &Names) -> String {
    let mut lines = vec![verdicts(result, names)];
    lines.extend(fastest(result, names));
    lines.join("\n")
}

/// How many cells hold, and the verdicts of the others.
fn verdicts(result: &RunResult, names: &Names) -> String {
    let of = |wanted: &dyn Fn(&&CellResult) -> bool| result.cells.iter().filter(wanted).collect::<Vec<_>>();
    let run = of(&|cell| !cell.trials.is_empty());
    let holds = of(&|cell| cell.verdict() == Verdict::Holds);
    let mut said = vec![match (run.len(), holds.len()) {
        (0, _) => "No cell was run.".to_owned(),
        (1, 1) => "The cell holds.".to_owned(),
        (1, 0) => "The cell does not hold.".to_owned(),
        (all, each) if all == each => format!("All {all} cells hold."),
        (all, each) => format!("{} of {} cells hold.", count(each as u64), count(all as u64)),
    }];
    let broken = of(&|cell| cell.breaks_promise());
    if !broken.is_empty() {
        said.push(format!("Broken, against what was promised: {}.", listed(&broken, names)));
    }
    let excused = of(&|cell| cell.verdict() == Verdict::Broken && !cell.breaks_promise());
    if !excused.is_empty() {
        said.push(format!(
            "Broken, as expected where no {} is promised: {}.",
            missing(&excused).join(" and no "),
            listed(&excused, names)
        ));
    }
    let unknown = of(&|cell| cell.verdict() == Verdict::Unknown && !cell.trials.is_empty());
    if !unknown.is_empty() {
        said.push(format!("It could not be told of {}.", listed(&unknown, names)));
    }
    let never = of(&|cell| cell.trials.is_empty());
    if !never.is_empty() && !run.is_empty() {
        said.push(format!("Not run: {}.", listed(&never, names)));
    }
    let lucky = holds.iter().filter(|cell| !cell.is_promised()).count();
    if lucky > 0 {
        let without: Vec<&CellResult> = holds.iter().filter(|cell| !cell.is_promised()).copied().collect();
        said.push(format!("No {} was promised of {lucky} of them.", missing(&without).join(" and no ")));
    }
    said.join(" ")
}

/// Names of the guarantees that these cells do without.
fn missing(cells: &[&CellResult]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in cells.iter().flat_map(|cell| &cell.without) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn listed(cells: &[&CellResult], names: &Names) -> String {
    // the name of one more is no longer than saying that there is one
    let most = if cells.len() == NAMED + 1 { cells.len() } else { NAMED };
    let shown: Vec<String> = cells.iter().take(most).map(|cell| names.cell(cell)).collect();
    let rest = cells.len().saturating_sub(most);
    let more = if rest > 0 { format!("; and {} more", count(rest as u64)) } else { String::new() };
    shown.join("; ") + &more
}

/// For each group of cells that do the same work, the fastest one that promised to hold and did. Cells of different
/// durability levels, rates and parameters do different work and are not compared with each other.
fn fastest(result: &RunResult, names: &Names) -> Vec<String> {
    let mut loads: BTreeMap<String, Vec<&CellResult>> = BTreeMap::new();
    let held = result.cells.iter().filter(|cell| cell.is_promised() && cell.verdict() == Verdict::Holds);
    for cell in held {
        loads.entry(load(result, cell, names)).or_default().push(cell);
    }
    if loads.len() > LOADS {
        return Vec::new();
    }
    let alone = loads.len() == 1;
    let said = loads.iter().filter_map(|(load, cells)| {
        let place = if alone || load.is_empty() { String::new() } else { format!(" ({load})") };
        leader(cells, names).map(|said| format!("{said}{place}."))
    });
    said.collect()
}

/// The group that a cell belongs to: two cells are compared only if they have the same durability level, the same
/// rate, and the same value of every parameter that is no guarantee.
fn load(result: &RunResult, cell: &CellResult, names: &Names) -> String {
    let asked: Vec<&str> = Priceable::of(result).map(Priceable::name).collect();
    let alike = names.others().filter(|name| *name != CLIENTS && !asked.contains(name));
    let mut parts: Vec<String> = alike.map(|name| names.value(cell, name)).collect();
    let levels: Vec<String> = result.cells.iter().map(CellResult::durability).collect();
    if levels.iter().any(|durability| *durability != levels[0]) {
        parts.insert(0, format!("durability {}", cell.durability()));
    }
    parts.join(", ")
}

/// The fastest of several cells, and the cells that noise does not tell it apart from; of a single cell its own
/// figure.
fn leader(cells: &[&CellResult], names: &Names) -> Option<String> {
    let open = cells.iter().any(|cell| cell.rate.is_some());
    let figure = |cell: &CellResult| if open { p99(cell) } else { Some(cell.throughput()) };
    let mut ranked: Vec<(&CellResult, f64)> =
        cells.iter().filter_map(|cell| Some((*cell, figure(cell)?))).collect();
    ranked.sort_by(|one, other| if open { one.1.total_cmp(&other.1) } else { other.1.total_cmp(&one.1) });
    let ((best, value), others) = ranked.split_first()?;
    let shown = if open { format!("p99 {}", nanoseconds(*value)) } else { format!("{} ok/s", rate(*value)) };
    if others.is_empty() {
        return Some(format!("{} holds: {shown}", names.cell(best)));
    }
    let alike = |other: &&(&CellResult, f64)| ratio(best, other.0, open).is_none_or(|ratio| !ratio.differs());
    let alike: Vec<&CellResult> = others.iter().filter(alike).map(|(cell, _)| *cell).collect();
    let noise = match alike.len() {
        0 => String::new(),
        _ if best.trials.len() < 2 => "; one trial does not tell it from others".to_owned(),
        _ => format!("; the noise does not tell it from {}", listed(&alike, names)),
    };
    Some(format!("Fastest of those that hold: {}, {shown}{noise}", names.cell(best)))
}

/// The ratio of the best cell to another one, over trials of the same rounds; none where it has no interval.
fn ratio(best: &CellResult, other: &CellResult, open: bool) -> Option<Ratio> {
    let figure = |trial: &TrialResult| {
        if open { trial.p99().ok().flatten() } else { Some(trial.throughput) }
    };
    let pair = |one: &TrialResult| {
        let other = other.whole_trials().find(|other| other.turn() == one.turn())?;
        Some((figure(one)?, figure(other)?))
    };
    let pairs: Vec<(f64, f64)> = best.whole_trials().filter_map(pair).collect();
    Ratio::of_pairs(&pairs).filter(|ratio| ratio.interval.is_some())
}

/// Mean over the trials of the 99th percentile of the response time, in nanoseconds.
fn p99(cell: &CellResult) -> Option<f64> {
    let all: Option<Vec<f64>> = cell.trials.iter().map(|trial| trial.p99().ok().flatten()).collect();
    let all = all.filter(|all| !all.is_empty())?;
    Some(all.iter().sum::<f64>() / all.len() as f64)
}

/// A sentence for each guarantee that some broken cell did without.
pub(crate) fn excuses(result: &RunResult) -> Vec<String> {
    let excused = |guarantee: &&Guarantee| {
        let without = |cell: &&CellResult| cell.without.iter().any(|name| name == guarantee.name);
        let mut cells = result.cells.iter().filter(without);
        cells.any(|cell| cell.verdict() == Verdict::Broken && !cell.breaks_promise())
    };
    guarantees(result).iter().filter(excused).map(|guarantee| guarantee.without.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use acidtest_model::{Durability, Lock};

    use super::*;
    use crate::sample::Grid;

    fn said(result: &RunResult) -> String {
        conclusion(result, &Names::of(&result.cells))
    }

    #[test]
    fn what_broke_as_expected_is_told_from_what_broke_a_promise() {
        let mut result = Grid { locks: &Lock::ALL, ..Grid::default() }.result();
        assert_eq!(
            said(&result),
            "3 of 4 cells hold. Broken, as expected where no lock is promised: sqlite none.\n\
             Fastest of those that hold: sqlite native, 1,144 ok/s."
        );
        // the hard lock lets an oversell through
        let broken = result.cells[0].trials[0].audit.clone();
        for trial in &mut result.cells[2].trials {
            trial.audit = broken.clone();
        }
        let text = said(&result);
        assert!(
            text.starts_with("2 of 4 cells hold. Broken, against what was promised: sqlite hard."),
            "{text}"
        );
    }

    #[test]
    fn no_winner_inside_the_noise() {
        let result =
            Grid { stores: &["redis", "sqlite"], locks: &[Lock::Native], ..Grid::default() }.result();
        let text = said(&result);
        assert!(text.starts_with("All 2 cells hold.\nFastest of those that hold: "), "{text}");
        assert!(text.contains("; the noise does not tell it from "), "{text}");
        let once =
            Grid { stores: &["redis", "sqlite"], locks: &[Lock::Native], trials: 1, ..Grid::default() };
        let text = said(&once.result());
        assert!(text.contains("one trial does not tell it from others"), "{text}");
    }

    /// A cell of a weaker durability level is faster because it does less.
    #[test]
    fn durability_levels_are_not_compared_with_each_other() {
        let result = Grid {
            stores: &["sqlite", "postgres"],
            locks: &[Lock::Soft, Lock::Native],
            durability: &[Durability::None, Durability::Disk],
            ..Grid::default()
        }
        .result();
        let text = said(&result);
        assert!(text.contains("(durability none)") && text.contains("(durability disk)"), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    /// A cell that promised nothing and held by luck cannot be the fastest.
    #[test]
    fn without_a_promise_nothing_is_the_fastest() {
        let mut result = Grid::default().result();
        let held = result.cells[1].trials[0].audit.clone();
        for trial in &mut result.cells[0].trials {
            trial.audit = held.clone();
        }
        assert_eq!(
            said(&result),
            "All 2 cells hold. No lock was promised of 1 of them.\nsqlite native holds: 1,144 ok/s."
        );
    }

    #[test]
    fn nothing_run_is_said() {
        let mut result = Grid::default().result();
        result.cells.iter_mut().for_each(|cell| cell.trials.clear());
        assert_eq!(said(&result), "No cell was run.");
    }
}
