//! The conclusion of a result, shown before its tables: how many cells hold, which broke and whether that was to be
//! expected, and which is the fastest of those that hold.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use acidtest_model::{
    Consistency, EffectiveDurability, Route, count,
    figure::{nanoseconds, percent, rate},
};
use acidtest_results::{
    CellResult, CellStaleness, LatencyFigures, Priceable, Ratio, RunResult, SEEN, TrialResult,
    dimensions::{CLIENTS, CONSISTENCY, Names, REPLICATION, TLS, spoken},
    distinct, disturbing, guarantees, total,
};
use acidtest_workloads::{
    Finding, Guarantee, Verdict,
    guarantee::{MONOTONIC_READS, READ_YOUR_WRITES},
    workload,
};

use crate::{
    capacity,
    histories::{found, histories},
    not_served::not_served,
    tables::{behind, is_too_wide, share_of, stale},
};

/// Cells that a sentence names before it counts the rest.
const NAMED: usize = 4;

/// Most groups of equal work for which a sentence names the fastest cell: beyond that the table is easier to read.
const GROUPS: usize = 6;

/// The conclusion's sentences, each on a line of its own, and what the rates in it count.
pub(crate) fn conclusion(result: &RunResult, names: &Names) -> String {
    let count = |cell: &CellResult| {
        let kind = workload(&result.plan.workload)?;
        (kind.with)(&cell.parameters).ok()?.spec().rates_count.clone()
    };
    let driven = result.cells.iter().filter(|cell| !cell.trials.is_empty());
    let counted = distinct(driven.filter_map(count));
    let counted = counted.into_iter().take(NAMED);
    [concluded(result, names)].into_iter().chain(counted).collect::<Vec<_>>().join("\n")
}

/// What came out, in sentences.
fn concluded(result: &RunResult, names: &Names) -> String {
    let interrupted = interrupted(result).map(|said| format!("\n{said}")).unwrap_or_default();
    if result.plan.capacity.is_some() {
        let found = capacity::conclusion(result, names);
        let all: Vec<String> = [found].into_iter().chain(unlike_durability(result, names)).collect();
        return all.join("\n") + &interrupted;
    }
    let mut lines = vec![verdicts(result, names)];
    lines.extend(found(result, names));
    lines.extend(unlike_durability(result, names));
    lines.extend(failing(result, names));
    lines.extend(missed(result, names));
    lines.extend(outage(result, names));
    lines.extend(refusing(result, names));
    lines.extend(fastest(result, names));
    lines.join("\n") + &interrupted
}

/// Says that the run was interrupted, and how much of it there is.
fn interrupted(result: &RunResult) -> Option<String> {
    if !result.interrupted {
        return None;
    }
    if result.plan.capacity.is_some() {
        return Some("The run was interrupted: searches may be unfinished.".to_owned());
    }
    let asked = u64::from(result.plan.trials).saturating_mul(result.cells.len() as u64);
    let rounds = |trials: &mut dyn Iterator<Item = &TrialResult>| -> BTreeSet<u32> {
        trials.map(|trial| trial.round).collect()
    };
    // one that was interrupted may have been made again since
    let (mut made, mut short) = (0, 0);
    for cell in &result.cells {
        let begun = rounds(&mut cell.trials.iter()).len() as u64;
        made += begun;
        short += begun - rounds(&mut cell.made_trials()).len() as u64;
    }
    let short = if short > 0 { format!(", {} of them cut short", count(short)) } else { String::new() };
    let were = if made == 1 { "was" } else { "were" };
    let (made, asked) = (count(made), count(asked));
    Some(format!("The run was interrupted: {made} of its {asked} trials {were} made{short}."))
}

/// That the stores differ in the durability levels that were read back, although each was asked for the same ones or has what it
/// has: some of them do less than others.
fn unlike_durability(result: &RunResult, names: &Names) -> Option<String> {
    let mut of_stores: BTreeMap<String, BTreeSet<EffectiveDurability>> = BTreeMap::new();
    for cell in &result.cells {
        if let Some(effective) = &cell.effective {
            of_stores.entry(names.store(cell)).or_default().insert(effective.durability);
        }
    }
    let mut by_levels: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (store, levels) in of_stores {
        let levels: Vec<String> = levels.iter().map(ToString::to_string).collect();
        by_levels.entry(levels.join(" and ")).or_default().push(store);
    }
    let said = by_levels.iter().map(|(levels, stores)| format!("{levels} ({})", stores.join(", ")));
    let said: Vec<String> = said.collect();
    (said.len() > 1).then(|| {
        format!(
            "Durability differs between the stores: {}. A weaker level is less work: compare at one level (--durability, \
             for private servers).",
            said.join(", ")
        )
    })
}

/// How many cells hold, and the verdicts of the others.
fn verdicts(result: &RunResult, names: &Names) -> String {
    let of = |wanted: &dyn Fn(&&CellResult) -> bool| result.cells.iter().filter(wanted).collect::<Vec<_>>();
    let run = of(&|cell| !cell.trials.is_empty());
    let holds = of(&|cell| cell.verdict() == Verdict::Holds);
    let broken = of(&|cell| cell.breaks_promise());
    let excused = of(&|cell| cell.verdict() == Verdict::Broken && !cell.breaks_promise());
    let void = holds.iter().filter(|cell| cell.not_served().is_some()).count();
    let rates = match (void, run.len()) {
        (0, _) => String::new(),
        (1, 1) => ", and its rate is void".to_owned(),
        (1, _) => ", and the rate of 1 is void".to_owned(),
        (some, _) => format!(", and the rates of {} are void", count(some as u64)),
    };
    let mut said = vec![match (run.len(), holds.len()) {
        (0, _) => "No cell was run.".to_owned(),
        (1, 1) => format!("The cell holds{rates}."),
        (1, 0) if broken.is_empty() && excused.is_empty() => "Whether the cell holds is unknown.".to_owned(),
        (1, 0) => "The cell does not hold.".to_owned(),
        (all, each) if all == each => format!("All {all} cells hold{rates}."),
        (all, each) => format!("{} of {} cells hold{rates}.", count(each as u64), count(all as u64)),
    }];
    if !broken.is_empty() {
        let histories = histories(result);
        let found = |cell: &CellResult| {
            let history = histories.iter().find(|history| std::ptr::eq(cell, history.cell))?;
            Some(format!("{}: {}", names.cell(cell), history.broken()?))
        };
        let lost = |cell: &CellResult| {
            let breaks = |trial: &TrialResult| trial.audit.breaks_promise(&cell.without);
            let lost = worst_of(cell, &[REPLICATION], &breaks)?;
            Some(format!(
                "{}: {lost}, which replication {} promises to keep",
                names.cell(cell),
                cell.replication_in_name()
            ))
        };
        let unseen = |cell: &CellResult| {
            let unseen = worst_of(cell, &OF_READS, &|trial| trial.audit.breaks_promise(&cell.without))?;
            Some(format!("{}: {unseen}, which consistency strong rules out", names.cell(cell)))
        };
        let shown = |cell: &CellResult| {
            found(cell).or_else(|| lost(cell)).or_else(|| unseen(cell)).unwrap_or_else(|| names.cell(cell))
        };
        said.push(format!("Broken despite a promise: {}.", listed_as(&broken, shown)));
    }
    if !excused.is_empty() {
        said.push(format!(
            "Broken, as expected where no {} is promised: {}.",
            missing(&excused).join(" and no "),
            listed_as(&excused, |cell| {
                let worst = [&[REPLICATION][..], &OF_READS].map(|names| worst_of(cell, names, &|_| true));
                let worst: Vec<String> = worst.into_iter().flatten().collect();
                let worst = if worst.is_empty() { String::new() } else { format!(" ({})", worst.join("; ")) };
                names.cell(cell) + &worst
            })
        ));
    }
    let unknown = of(&|cell| cell.verdict() == Verdict::Unknown && !cell.trials.is_empty());
    if !unknown.is_empty() && run.len() > 1 {
        said.push(format!("Unknown: {}.", listed(&unknown, names)));
    }
    let never = of(&|cell| cell.trials.is_empty());
    if !never.is_empty() && !run.is_empty() {
        said.push(format!("Not run: {}.", listed(&never, names)));
    }
    let unpromised = holds.iter().filter(|cell| !cell.is_promised()).copied();
    let (faulted, unpromised): (Vec<&CellResult>, Vec<&CellResult>) =
        unpromised.partition(|cell| cell.without.iter().any(|name| name == CONSISTENCY));
    if !faulted.is_empty() {
        said.push(format!(
            "Not ranked, because with a fault strong reads are not promised: {}.",
            listed(&faulted, names)
        ));
    }
    if !unpromised.is_empty() {
        let missing = missing(&unpromised).join(", no ");
        said.push(format!("{} of them without a promise (no {missing}).", count(unpromised.len() as u64)));
    }
    said.join(" ")
}

/// The guarantees that reads at replicas are held to.
const OF_READS: [&str; 3] = [CONSISTENCY, READ_YOUR_WRITES.name, MONOTONIC_READS.name];

/// What was found in a cell that these guarantees prevent: of those trials, the one that had most of it.
fn worst_of(cell: &CellResult, guarantees: &[&str], of: &dyn Fn(&TrialResult) -> bool) -> Option<String> {
    let worst = |trial: &TrialResult| {
        let findings = trial.audit.findings.iter().filter(|each| guarantees.contains(&&*each.guarantee));
        findings.max_by_key(|each| each.count).filter(|each| each.count > 0).cloned()
    };
    let all: Vec<Finding> = cell.trials.iter().filter(|trial| of(trial)).filter_map(worst).collect();
    let worst = all.iter().max_by_key(|each| each.count)?;
    Some(if all.len() > 1 { format!("at worst {worst}") } else { worst.to_string() })
}

/// A guarantee in the words of a sentence that says that it is not promised.
fn in_words(guarantee: &str) -> String {
    match guarantee {
        REPLICATION => "survival of a lost leader".to_owned(),
        CONSISTENCY => "consistency of reads".to_owned(),
        other => other.to_owned(),
    }
}

/// Names of the guarantees that these cells do without, in words.
fn missing(cells: &[&CellResult]) -> Vec<String> {
    let in_trials = |cell: &&CellResult| {
        cell.trials.iter().flat_map(|trial| trial.audit.excused.clone()).collect::<Vec<_>>()
    };
    let without = cells.iter().flat_map(|cell| &cell.without).cloned();
    let all = distinct(without.chain(cells.iter().flat_map(in_trials)));
    // a cell that does without consistency does without what follows from it
    let is_said = |name: &&String| {
        let follows = [READ_YOUR_WRITES, MONOTONIC_READS].iter().any(|each| each.name == **name);
        !(follows && all.iter().any(|other| other == CONSISTENCY))
    };
    all.iter().filter(is_said).map(|name| in_words(name)).collect()
}

fn listed(cells: &[&CellResult], names: &Names) -> String {
    listed_as(cells, |cell| names.cell(cell))
}

fn listed_as(cells: &[&CellResult], named: impl Fn(&CellResult) -> String) -> String {
    // the name of one more is no longer than saying that there is one
    let most = if cells.len() == NAMED + 1 { cells.len() } else { NAMED };
    let shown: Vec<String> = cells.iter().take(most).map(|cell| named(cell)).collect();
    let rest = cells.len().saturating_sub(most);
    let more = if rest > 0 { format!("; and {} more", count(rest as u64)) } else { String::new() };
    shown.join("; ") + &more
}

/// Those cells that hold and whose rate is void, because too little of what they were asked for was served.
fn failing(result: &RunResult, names: &Names) -> Option<String> {
    let held = result.cells.iter().filter(|cell| cell.verdict() == Verdict::Holds);
    let of_cell = |cell: &CellResult| Some(format!("{}, {}", names.cell(cell), not_served(cell)?));
    let all: Vec<String> = held.filter_map(of_cell).collect();
    let shown = all.get(..NAMED).unwrap_or(&all).join("; ");
    let more = all.len().saturating_sub(NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    (!all.is_empty()).then(|| format!("Void, because too little was served: {shown}{more}."))
}

/// What reads at members missed where nothing is promised of them; that those with consistency strong missed nothing; and what it is
/// not known of whether they were promised it. What breaks a promise is a finding, and is told with the verdicts.
fn missed(result: &RunResult, names: &Names) -> Vec<String> {
    let compared = stale(result).filter(|(_, seen)| seen.reads > 0);
    let (strong, eventual): (Vec<Read<'_>>, Vec<Read<'_>>) =
        compared.partition(|(cell, _)| cell.consistency_of_reads() == Some(Consistency::Strong));
    let old: Vec<&Read<'_>> =
        eventual.iter().filter(|(_, seen)| seen.missed() > 0 || seen.went_back > 0).collect();
    let mut said = Vec::new();
    if old.is_empty() {
        let fresh: Vec<&Read<'_>> = eventual.iter().collect();
        said.extend(none_missed(&fresh, "reads", ", which consistency eventual does not promise"));
    } else {
        let what = if old.iter().any(|(_, seen)| seen.missed() > 0) {
            "missed what had been acknowledged"
        } else {
            "went back"
        };
        said.push(format!("Reads {what}, as consistency eventual permits: {}.", listed_by_age(&old, names)));
    }
    let (fresh, old): (Vec<&Read<'_>>, Vec<&Read<'_>>) =
        strong.iter().partition(|(cell, seen)| seen.missed() == 0 && !breaks_order(cell, seen));
    said.extend(none_missed(&fresh, "reads with consistency strong", ""));
    let unclear: Vec<&Read<'_>> =
        old.into_iter().filter(|(cell, _)| cell.verdict() == Verdict::Unknown).collect();
    if !unclear.is_empty() {
        said.push(format!(
            "Reads with consistency strong missed what had been acknowledged, and whether they were promised it is unknown: {}.",
            listed_by_age(&unclear, names)
        ));
    }
    said
}

/// A cell with what its reads at members missed.
type Read<'a> = (&'a CellResult, CellStaleness);

/// Whether reads with consistency strong went back that must not: where a client reads at one member alone.
pub(crate) fn breaks_order(cell: &CellResult, seen: &CellStaleness) -> bool {
    seen.went_back > 0 && cell.route == Route::Pinned
}

/// That none of so many reads missed anything, and how many of them went back, which is no miss; nothing where there are no reads.
fn none_missed(cells: &[&Read<'_>], of: &str, but: &str) -> Option<String> {
    let sum = |of: fn(&CellStaleness) -> u64| total(cells.iter().map(|(_, seen)| of(seen)));
    let reads = sum(|seen| seen.reads);
    let back = permitted_to_go_back(sum(|seen| seen.went_back));
    let at = at_replicas(sum(CellStaleness::at_replicas), reads);
    let reads = (reads > 0).then(|| count(reads))?;
    Some(format!("None of {reads} {of} missed what had been acknowledged before{but}{back}{at}."))
}

/// That so many reads with consistency strong went back at several members, which is no miss: `; 1 went back, which route spread
/// permits`.
pub(crate) fn permitted_to_go_back(reads: u64) -> String {
    if reads == 0 {
        String::new()
    } else {
        format!("; {} went back, which route spread permits", count(reads))
    }
}

/// The share of reads that replicas answered, where the leader answered some: ` (66.0 % of them at replicas)`.
pub(crate) fn at_replicas(part: u64, reads: u64) -> String {
    if part == reads { String::new() } else { format!(" ({} of them at replicas)", share_of(part, reads)) }
}

fn listed_by_age(cells: &[&Read<'_>], names: &Names) -> String {
    let shown =
        cells.iter().take(NAMED).map(|(cell, seen)| format!("{}: {}", names.cell(cell), how_old(seen)));
    let shown: Vec<String> = shown.collect();
    let more = cells.len().saturating_sub(NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    shown.join("; ") + &more
}

/// How old reads were: `4.21 % of 60,000 reads (66.0 % of them at replicas) stale, by up to 31.0 ms, 12 missed a write of their own
/// client, 3 went back`.
pub(crate) fn how_old(seen: &CellStaleness) -> String {
    let by = seen.milliseconds.map_or_else(String::new, |by| format!(", by up to {}", behind(by.max)));
    let at = at_replicas(seen.at_replicas(), seen.reads);
    let mut said =
        vec![format!("{} of {} reads{at} stale{by}", share_of(seen.stale, seen.reads), count(seen.reads))];
    let counted =
        [(seen.own_writes_missed, "missed a write of their own client"), (seen.went_back, "went back")];
    let counted = counted.into_iter().filter(|(times, _)| *times > 0);
    said.extend(counted.map(|(times, what)| format!("{} {what}", count(times))));
    said.join(", ")
}

/// For how long nobody was served because of a fault, or of a restart that nobody asked for: the cell with the longest outage.
fn outage(result: &RunResult, names: &Names) -> Option<String> {
    let longest = result.cells.iter().filter_map(|cell| Some((cell, cell.longest_outage()?)));
    let (cell, away) = longest.max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let place = if result.cells.len() > 1 { format!(" ({})", names.cell(cell)) } else { String::new() };
    Some(match away {
        away if away.is_infinite() => {
            format!("After a fault nobody was served until the end of a trial{place}.")
        }
        away if away < SEEN => return None,
        away => format!("After a fault nobody was served for up to {}{place}.", nanoseconds(away * 1e9)),
    })
}

/// Share of the answers to an operation above which, if they are refusals, it is told what they come from.
const MOSTLY: f64 = 0.5;

/// Those cells that refused most of what they were asked for, where the workload says what that comes from and what mends it.
fn refusing(result: &RunResult, names: &Names) -> Option<String> {
    let (operation, why) = workload(&result.plan.workload)?.refused?;
    let of_cell = |cell: &CellResult| {
        let refused = cell.answers_to(operation).refused_share();
        let from_the_first = cell.measured_trials().into_iter().all(|trial| {
            let first = trial.series.first().and_then(|second| second.ended.get(operation));
            first.is_some_and(|ended| ended.get("refused") > ended.get("ok"))
        });
        let begun = if from_the_first { ", from the first second on" } else { "" };
        (refused > MOSTLY).then(|| format!("{}, {}{begun}", names.cell(cell), percent(refused)))
    };
    let all: Vec<String> = result.cells.iter().filter_map(of_cell).collect();
    let shown = all.get(..NAMED).unwrap_or(&all).join("; ");
    let more = all.len().saturating_sub(NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    (!all.is_empty()).then(|| format!("Most {operation}s were refused: {shown}{more}: {why}."))
}

/// For each group of cells that do the same work, the fastest one that promised to hold and did. Cells of different
/// durability levels, rates and parameters do different work and are not compared with each other.
fn fastest(result: &RunResult, names: &Names) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<&CellResult>> = BTreeMap::new();
    let holds = |cell: &&CellResult| cell.is_promised() && cell.verdict() == Verdict::Holds;
    let held = result.cells.iter().filter(holds).filter(|cell| cell.is_serving());
    for cell in held {
        groups.entry(group(result, cell, names)).or_default().push(cell);
    }
    if groups.len() > GROUPS {
        return Vec::new();
    }
    let alone = groups.len() == 1;
    let is_lucky = |cell: &CellResult| !cell.is_promised() && cell.verdict() == Verdict::Holds;
    let those = if result.cells.iter().any(is_lucky) { "that hold by promise" } else { "that hold" };
    let said = groups.iter().filter_map(|(group, cells)| {
        let of = if alone || group.is_empty() { String::new() } else { format!(" of {group}") };
        let disturbed: Vec<&CellResult> =
            cells.iter().filter(|cell| disturbing(result, cell).is_some()).copied().collect();
        let said = leader(result, cells, &disturbed, those, &of, names)?;
        // most of a group's name stands in the cell's name
        let unsaid: Vec<&str> = group.split(", ").filter(|part| !said.contains(part)).collect();
        let place =
            if alone || unsaid.is_empty() { String::new() } else { format!(" ({})", unsaid.join(", ")) };
        Some(format!("{said}{place}."))
    });
    said.collect()
}

/// The name of the group that a cell belongs to: two cells are compared only if they have the same durability level, replication,
/// number of nodes, members that answer reads, consistency of these, TLS or not, the same rate, and the same value of every parameter that is no guarantee.
fn group(result: &RunResult, cell: &CellResult, names: &Names) -> String {
    let asked: Vec<&str> = Priceable::of(result).map(Priceable::name).collect();
    // like a weaker durability level, a connection without TLS is faster because it does less, and so is weaker replication
    // and reads that need not see everything
    let does_less = |name: &str| [TLS, REPLICATION, CONSISTENCY].contains(&name) || !asked.contains(&name);
    let alike = names.others_of(cell).filter(|name| *name != CLIENTS && does_less(name));
    let mut parts: Vec<String> = alike.map(|name| spoken(cell, name)).collect();
    let levels: Vec<String> = result.cells.iter().map(level).collect();
    if levels.iter().any(|durability| *durability != levels[0]) {
        parts.insert(0, format!("durability {}", level(cell)));
    }
    parts.join(", ")
}

/// The durability level by which cells are compared. What is not known of two servers is not the same: each has a level
/// of its own.
fn level(cell: &CellResult) -> String {
    match &cell.effective {
        Some(effective) if effective.durability.level().is_none() => {
            format!("{} of {}", effective.durability, cell.address.as_deref().unwrap_or(&cell.store))
        }
        _ => cell.durability(),
    }
}

/// The fastest of several cells, and the cells from which the noise does not tell it apart; of a single cell its figure.
/// Only whole trials count: one that was cut short has the time in it that it waited for its server. In an open loop,
/// whose throughput is the offered rate, the 99th percentile of the response time decides among the cells that keep up.
/// Where other programs disturbed one of the cells, the order may be theirs: then no cell is called the fastest.
fn leader(
    result: &RunResult,
    cells: &[&CellResult],
    disturbed: &[&CellResult],
    those: &str,
    of_group: &str,
    names: &Names,
) -> Option<String> {
    let open = cells.iter().any(|cell| cell.rate.is_some());
    let (able, behind): (Vec<&CellResult>, Vec<&CellResult>) =
        cells.iter().partition(|cell| !open || keeps_up(cell));
    let of: Figure = if open { p99 } else { |trial| Some(trial.throughput) };
    let (told, untold): (Vec<&CellResult>, Vec<&CellResult>) =
        able.into_iter().partition(|cell| mean(cell, of).is_some());
    let mut ranked: Vec<(&CellResult, f64)> =
        told.iter().filter_map(|cell| Some((*cell, mean(cell, of)?))).collect();
    ranked.sort_by(|one, other| if open { one.1.total_cmp(&other.1) } else { other.1.total_cmp(&one.1) });
    let mut late = String::new();
    if !behind.is_empty() {
        let _ = write!(late, "; did not keep up with the rate: {}", listed(&behind, names));
    }
    if open && !untold.is_empty() {
        let _ = write!(late, "; too few operations for a p99: {}", listed(&untold, names));
    }
    let Some(((best, value), others)) = ranked.split_first() else {
        let enough = if untold.is_empty() { "" } else { " with enough operations for a p99" };
        let none = format!("No cell{of_group} that holds kept up with its rate{enough}");
        let all: Vec<&CellResult> = behind.into_iter().chain(untold).collect();
        return open.then(|| format!("{none}: {}", listed(&all, names)));
    };
    let shown = if open { format!("p99 {}", nanoseconds(*value)) } else { format!("{} ok/s", rate(*value)) };
    if others.is_empty() && late.is_empty() {
        return Some(format!("{} holds: {shown}", names.cell(best)));
    }
    if !disturbed.is_empty() && !others.is_empty() {
        let (which, most) =
            if open { ("has the lowest p99", "lowest") } else { ("is the fastest", "highest") };
        return Some(format!(
            "Which of those {those} {which} is unclear, because other programs used a quarter of the machine or more \
             during {}; {most} beside them: {}, {shown}{late}",
            listed(disturbed, names),
            names.cell(best)
        ));
    }
    // a ratio that differs to the other's advantage does not make the best one faster
    let is_faster = |other: &CellResult, figure: Figure| {
        ratio(best, other, figure).is_some_and(|ratio| ratio.differs() && (ratio.estimate < 1.0) == open)
    };
    let (faster, alike): (Vec<&CellResult>, Vec<&CellResult>) =
        others.iter().map(|(cell, _)| *cell).partition(|other| is_faster(other, of));
    // an interval that is so wide does not say that they are alike
    let is_unclear = |other: &&CellResult| {
        ratio(best, other, of).and_then(|ratio| ratio.interval).is_some_and(is_too_wide)
    };
    let (unclear, alike): (Vec<&CellResult>, Vec<&CellResult>) = alike.into_iter().partition(is_unclear);
    let mut noise = match alike.len() {
        0 => String::new(),
        _ if best.whole_trials().count() < 2 => "; one trial cannot tell it from others".to_owned(),
        _ => format!("; within the noise of it: {}", listed(&alike, names)),
    };
    if !unclear.is_empty() {
        let _ = write!(noise, "; too few trials to tell it from {}", listed(&unclear, names));
    }
    // whoever refuses more acknowledges fewer, and need not be slower
    let refused_more: Vec<&CellResult> = faster
        .into_iter()
        .filter(|_| !open && result.refusals_are_answers())
        .filter(|other| !is_faster(other, |trial| Some(trial.answered_per_second())))
        .collect();
    let refusals = match refused_more.len() {
        0 => String::new(),
        _ => format!(
            "; as many or more were answered, with more refusals, by {}",
            listed(&refused_more, names)
        ),
    };
    let which = if open { "Lowest p99" } else { "Fastest" };
    Some(format!("{which} of those {those}: {}, {shown}{noise}{refusals}{late}", names.cell(best)))
}

type Figure = fn(&TrialResult) -> Option<f64>;

/// Share of the offered operations that a cell has to answer to keep up with its rate.
const ALL_OF_IT: f64 = 0.95;

/// Whether nearly all that was offered was acknowledged or refused. Operations outside the schedule, such as those of
/// consumers, have no response times and do not count.
fn keeps_up(cell: &CellResult) -> bool {
    let offered = total(cell.whole_trials().map(|trial| trial.arrived.offered));
    let scheduled = cell.whole_trials().flat_map(|trial| &trial.operations);
    let answers = scheduled.flat_map(|operation| {
        ["ok", "refused"].into_iter().filter_map(|outcome| Some(operation.response.get(outcome)?.count))
    });
    total(answers) as f64 >= ALL_OF_IT * offered as f64
}

/// The 99th percentile, in nanoseconds, of the response time of a trial's operations on the schedule; none where they are too
/// few for it.
fn p99(trial: &TrialResult) -> Option<f64> {
    let responses = trial.operations.iter().filter_map(|operation| operation.response.get("ok"));
    LatencyFigures::merged(responses).ok().flatten()?.p99().map(|p99| p99 as f64)
}

/// The mean of the figure over the whole trials; none where a trial has none, or none is whole.
fn mean(cell: &CellResult, figure: Figure) -> Option<f64> {
    let all: Vec<f64> = cell.whole_trials().map(figure).collect::<Option<_>>()?;
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

/// The best cell against another, over the trials of the same turns; none where it has no interval.
fn ratio(best: &CellResult, other: &CellResult, figure: Figure) -> Option<Ratio> {
    let pair = |one: &TrialResult| {
        let other = other.whole_trials().find(|other| other.turn() == one.turn())?;
        Some((figure(one)?, figure(other)?))
    };
    let pairs: Vec<(f64, f64)> = best.whole_trials().filter_map(pair).collect();
    Ratio::of_pairs(&pairs).filter(|ratio| ratio.interval.is_some())
}

/// A sentence for each guarantee that some broken cell did without.
pub(crate) fn excuses(result: &RunResult) -> Vec<String> {
    let excused = |guarantee: &&Guarantee| {
        let in_trials = |cell: &CellResult| {
            cell.trials.iter().any(|trial| trial.audit.excused.iter().any(|name| name == guarantee.name))
        };
        let without =
            |cell: &&CellResult| cell.without.iter().any(|name| name == guarantee.name) || in_trials(cell);
        let mut cells = result.cells.iter().filter(without);
        cells.any(|cell| cell.verdict() == Verdict::Broken && !cell.breaks_promise())
    };
    let said = guarantees(result).iter().filter(excused).map(|guarantee| guarantee.without);
    said.filter(|said| !said.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use acidtest_model::{Durability, Lock, Replication};

    use super::*;
    use acidtest_results::sample::{self, Grid};

    fn said(result: &RunResult) -> String {
        concluded(result, &Names::of(&result.cells))
    }

    /// Whoever wants so many orders a second learns which rate that is.
    #[test]
    fn what_the_rates_count_is_said() {
        let mut result = Grid::default().result();
        let share = |result: &mut RunResult, share: f64| {
            for cell in &mut result.cells {
                cell.parameters = [("capture_share".to_owned(), share.into())].into_iter().collect();
            }
        };
        share(&mut result, 0.5);
        let last = |result: &RunResult| {
            let said = conclusion(result, &Names::of(&result.cells));
            said.lines().last().unwrap().to_owned()
        };
        let half = "Rates count captures (orders) and releases alike: at a capture share of 0.5, 8,000 orders a second are an \
                    offered rate of 16,000; those that are refused are not in ok/s.";
        assert_eq!(last(&result), half);
        result.plan.capacity = Some(acidtest_results::CapacityPlan::default());
        assert_eq!(last(&result), half);
        share(&mut result, 0.8);
        assert!(
            last(&result)
                .contains("at a capture share of 0.8, 8,000 orders a second are an offered rate of 10,000;"),
            "{}",
            last(&result)
        );
        share(&mut result, 1.0);
        assert!(!last(&result).contains("orders"), "{}", last(&result));
        let queue = acidtest_results::sample::queue([("confirm", true, 1000.0); 6]);
        assert!(!last(&queue).contains("orders"), "{}", last(&queue));
    }

    #[test]
    fn stores_of_different_durability_are_told_first() {
        let mut result = Grid { stores: &["redis", "nats", "sqlite"], ..Grid::default() }.result();
        assert!(!said(&result).contains("Durability differs"));
        for cell in result.cells.iter_mut().filter(|cell| cell.store == "nats") {
            cell.effective.as_mut().unwrap().durability = EffectiveDurability::Process;
        }
        let text = said(&result);
        let line = "Durability differs between the stores: disk (redis, sqlite), process (nats). A weaker level is less";
        assert!(text.lines().nth(1).is_some_and(|second| second.starts_with(line)), "{text}");
        // levels that were asked for are an axis of every store
        let both = [Durability::None, Durability::Disk];
        let axis = Grid { stores: &["redis", "sqlite"], durability: &both, ..Grid::default() }.result();
        assert!(!said(&axis).contains("Durability differs"), "{}", said(&axis));
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
        assert!(text.starts_with("2 of 4 cells hold. Broken despite a promise: sqlite hard."), "{text}");
    }

    #[test]
    fn no_winner_inside_the_noise() {
        let result =
            Grid { stores: &["redis", "sqlite"], locks: &[Lock::Native], ..Grid::default() }.result();
        let text = said(&result);
        assert!(text.starts_with("All 2 cells hold.\nFastest of those that hold: "), "{text}");
        assert!(text.contains("; within the noise of it: "), "{text}");
        let once =
            Grid { stores: &["redis", "sqlite"], locks: &[Lock::Native], trials: 1, ..Grid::default() };
        let text = said(&once.result());
        assert!(text.contains("one trial cannot tell it from others"), "{text}");
        // twice as fast, and a half more: what two pairs say of that is nothing
        let mut twice = Grid { trials: 2, ..once }.result();
        for (cell, throughputs) in twice.cells.iter_mut().zip([[10_000.0, 9_000.0], [5_000.0, 8_000.0]]) {
            cell.trials.iter_mut().zip(throughputs).for_each(|(trial, each)| trial.throughput = each);
        }
        let text = said(&twice);
        assert!(
            text.contains("; too few trials to tell it from sqlite") && !text.contains("noise"),
            "{text}"
        );
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
        assert!(
            text.contains("native, durability none, ") && text.contains("native, durability disk, "),
            "{text}"
        );
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    /// What is not known of two servers is not the same.
    #[test]
    fn servers_of_which_nothing_is_known_are_not_compared_with_each_other() {
        let grid =
            Grid { stores: &["redis", "postgres"], locks: &[Lock::Soft, Lock::Native], ..Grid::default() };
        let mut result = grid.result();
        for cell in &mut result.cells {
            let effective = cell.effective.take().unwrap();
            cell.effective = Some(effective.of_another("CockroachDB v23.2", "PostgreSQL"));
        }
        let text = said(&result);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains("redis native") && text.contains("postgres native"), "{text}");
        assert!(!text.contains("disk"), "{text}");
    }

    #[test]
    fn a_connection_without_tls_is_not_compared_with_one_that_has_it() {
        let mut result = Grid { locks: &[Lock::Soft, Lock::Native], ..Grid::default() }.result();
        result.cells[0].tls = acidtest_model::Encryption::On;
        let text = said(&result);
        assert!(text.contains("soft, TLS on holds") && text.contains("native, TLS off holds"), "{text}");
    }

    /// Three cells of lock native: a single server, and clusters of two levels.
    fn clusters() -> RunResult {
        let mut result = Grid { locks: &[Lock::Native], ..Grid::default() }.result();
        let cluster = |replication| CellResult { nodes: 3, replication, ..result.cells[0].clone() };
        let clusters = [Replication::Async, Replication::Quorum].map(cluster);
        result.cells.extend(clusters);
        result
    }

    #[test]
    fn levels_of_replication_are_not_compared_with_each_other() {
        let text = said(&clusters());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        for words in ["1 node, replication none", "3 nodes, replication async", "3 nodes, replication quorum"]
        {
            let holds = format!("sqlite native, {words} holds: ");
            assert!(lines.iter().any(|line| line.starts_with(&holds)), "no {holds} in {text}");
        }
    }

    #[test]
    fn what_reads_at_replicas_missed_is_told_and_is_no_work_to_compare() {
        let mut result = sample::reads_at_replicas();
        let text = said(&result);
        let lines: Vec<&str> = text.lines().collect();
        let missed = "Reads missed what had been acknowledged, as consistency eventual permits: postgres native, reads replica, \
                      route pinned, consistency eventual: 2.00 % of 150,000 reads stale, by up to 90.0 ms, 24 missed a write of \
                      their own client, 6 went back; postgres native, reads any, route spread, consistency eventual: 2.00 % of \
                      150,000 reads (66.0 % of them at replicas) stale, by up to ";
        assert!(lines[0] == "All 4 cells hold." && lines[1].starts_with(missed), "{text}");
        let none = "None of 150,000 reads with consistency strong missed what had been acknowledged before (66.0 % of them at \
                    replicas).";
        assert_eq!(lines[2], none, "{text}");
        assert_eq!(lines.len(), 3 + 4, "each cell is one of its own kind: {text}");
        assert!(lines.iter().any(|line| line.starts_with("postgres native, reads leader holds: ")), "{text}");
        // one member may show what is not acknowledged yet, and the next one not
        let back = |result: &mut RunResult, cell: usize| {
            result.cells[cell].trials[0].staleness.as_mut().unwrap().went_back = 1;
        };
        result.cells.drain(1..3);
        back(&mut result, 1);
        let none = "None of 150,000 reads with consistency strong missed what had been acknowledged before; 1 went back, which \
                    route spread permits (66.0 % of them at replicas).";
        assert_eq!(said(&result).lines().nth(1), Some(none), "{}", said(&result));
        result.cells[1].consistency = Consistency::Eventual;
        result.cells[1].replication_read = None;
        let went_back = "Reads went back, as consistency eventual permits: postgres native, reads any, route spread, consistency \
                         eventual: 0 % of 150,000 reads (66.0 % of them at replicas) stale, 1 went back.";
        assert_eq!(said(&result).lines().nth(1), Some(went_back), "{}", said(&result));
        result.cells[1].trials[0].staleness.as_mut().unwrap().went_back = 0;
        let luck = "None of 150,000 reads missed what had been acknowledged before, which consistency eventual does not promise (";
        assert!(said(&result).lines().nth(1).is_some_and(|line| line.starts_with(luck)), "{}", said(&result));
    }

    #[test]
    fn a_read_that_consistency_strong_rules_out_is_told_by_what_was_promised() {
        let mut result = sample::reads_at_replicas();
        result.cells.drain(..3);
        let miss = |trial: &mut TrialResult, count| {
            trial.audit.verdict = Verdict::Broken;
            trial.audit.findings = vec![
                Finding::new("stale", count, "reads", acidtest_workloads::guarantee::CONSISTENCY),
                Finding::new("own_writes_missed", 1, "reads", READ_YOUR_WRITES),
            ];
            trial.staleness.as_mut().unwrap().stale = count;
        };
        miss(&mut result.cells[0].trials[0], 3);
        miss(&mut result.cells[0].trials[2], 7);
        let text = said(&result);
        let broken = "The cell does not hold. Broken despite a promise: postgres native: at worst stale 7 reads, which consistency \
                      strong rules out.";
        assert!(text.starts_with(broken) && !text.contains("permits"), "{text}");
        result.cells[0].faults = "pause:replica-1@3s:1s".parse().unwrap();
        result.cells[0].without =
            [CONSISTENCY, READ_YOUR_WRITES.name, MONOTONIC_READS.name].map(str::to_owned).to_vec();
        let text = said(&result);
        let excused = "Broken, as expected where no consistency of reads is promised: postgres native (at worst stale 7 reads).";
        assert!(text.contains(excused), "{text}");
        let why = excuses(&result);
        assert!(why.len() == 1 && why[0].starts_with("only consistency strong without"), "{why:?}");
        // of what nobody knows whether it was promised, the verdict alone does not say how much it was
        result.cells[0]
            .trials
            .iter_mut()
            .for_each(|trial| trial.audit = acidtest_workloads::Audit::unknown("a connection was lost"));
        let unclear = "Reads with consistency strong missed what had been acknowledged, and whether they were promised it is \
                       unknown: postgres native: 0.01 % of 150,000 reads (";
        assert!(said(&result).contains(unclear), "{}", said(&result));
        // one that holds all the same is not ranked, and the conclusion says why
        let mut held = sample::reads_at_replicas();
        held.cells[3].without = result.cells[0].without.clone();
        let unranked = "All 4 cells hold. Not ranked, because with a fault strong reads are not promised: postgres native, reads any, \
                        route spread, consistency strong.\n";
        assert!(said(&held).starts_with(unranked), "{}", said(&held));
    }

    #[test]
    fn what_was_lost_with_a_leader_is_told_by_what_was_promised() {
        let mut result = clusters();
        for (cell, replication) in result.cells[1..].iter_mut().zip(["async", "quorum"]) {
            cell.without = if replication == "async" { vec![REPLICATION.to_owned()] } else { Vec::new() };
        }
        let lose = |trial: &mut TrialResult, count| {
            trial.audit.verdict = Verdict::Broken;
            let guarantee = acidtest_workloads::guarantee::REPLICATION;
            trial.audit.findings = vec![Finding::new("lost_updates", count, "updates", guarantee)];
        };
        lose(&mut result.cells[1].trials[0], 40);
        lose(&mut result.cells[1].trials[1], 3_302);
        let text = said(&result);
        let expected = "2 of 3 cells hold. Broken, as expected where no survival of a lost leader is promised: sqlite native, 3 \
                        nodes, replication async (at worst lost 3,302 updates).";
        assert!(text.starts_with(expected), "{text}");
        let excuse = excuses(&result);
        assert!(
            excuse.len() == 1 && excuse[0].contains("promises nothing about a leader that is lost"),
            "{excuse:?}"
        );
        lose(&mut result.cells[2].trials[2], 1);
        let text = said(&result);
        let broken = "1 of 3 cells hold. Broken despite a promise: sqlite native, 3 nodes, replication quorum: lost 1 update, which \
                      replication quorum promises to keep. Broken, as expected";
        assert!(text.starts_with(broken), "{text}");
    }

    /// What other programs did to one cell may be the whole difference: no cell is called the fastest, and the row is marked.
    #[test]
    fn beside_other_programs_no_cell_is_the_fastest() {
        let mut result = Grid { locks: &[Lock::Soft, Lock::Native], ..Grid::default() }.result();
        let shown = |result: &RunResult| crate::markdown(result);
        assert!(said(&result).contains("Fastest") && !shown(&result).contains('†'));
        for trial in &mut result.cells[0].trials {
            trial.resources.machine.cpu_mean += 8.0;
        }
        let text = said(&result);
        assert!(!text.contains("Fastest"), "{text}");
        assert!(
            text.ends_with(
                "is unclear, because other programs used a quarter of the machine or more during sqlite soft; highest \
                 beside them: sqlite native, 1,144 ok/s."
            ),
            "{text}"
        );
        let page = shown(&result);
        let marked: Vec<&str> = page.lines().filter(|line| line.contains('†')).collect();
        assert_eq!(marked.len(), 2, "one row and one legend: {marked:?}");
        assert!(marked[0].contains("soft") && marked[1].contains("† other programs used"), "{marked:?}");
        // a single cell has nobody to be held against
        result.cells.truncate(1);
        assert!(said(&result).contains("sqlite soft holds: "), "{}", said(&result));
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
            "All 2 cells hold. 1 of them without a promise (no lock).\nsqlite native holds: 1,144 ok/s."
        );
    }

    /// A trial that was cut short has waited for its server: it makes no cell slower, and no other one faster.
    #[test]
    fn a_trial_that_was_cut_short_decides_nothing() {
        let mut result = Grid { locks: &[Lock::Soft, Lock::Native], trials: 4, ..Grid::default() }.result();
        let native = &mut result.cells[1].trials[3];
        native.throughput = 1.0;
        native.stopped =
            Some(acidtest_results::StopFigures { reason: "no connection".to_owned(), detail: String::new() });
        let text = said(&result);
        assert!(
            text.contains("Fastest of those that hold: sqlite native") && !text.contains("noise"),
            "{text}"
        );
        // the table's figure is that of the sentence
        assert!(text.contains(&format!("{} ok/s", rate(result.cells[1].throughput()))), "{text}");
    }

    #[test]
    fn a_cell_whose_verdict_is_unknown_is_not_said_to_break() {
        let mut result = Grid { locks: &[Lock::Native], ..Grid::default() }.result();
        result.cells[0].trials[0].audit.verdict = Verdict::Unknown;
        assert_eq!(said(&result), "Whether the cell holds is unknown.");
    }

    /// The fewer of the offered operations a cell does, the easier it is to be quick with them.
    #[test]
    fn in_an_open_loop_only_cells_that_keep_up_are_ranked() {
        let mut result = Grid { locks: &[Lock::Soft, Lock::Native], ..Grid::default() }.result();
        result.plan.rates = vec![100.0];
        for (cell, offered) in result.cells.iter_mut().zip([10_000, 2_000]) {
            cell.rate = Some(100.0);
            for trial in &mut cell.trials {
                trial.arrived.offered = offered;
                for operation in &mut trial.operations {
                    operation.response = operation.service.clone();
                }
            }
        }
        let text = said(&result);
        assert!(text.contains("Lowest p99 of those that hold: sqlite native, p99 "), "{text}");
        assert!(text.ends_with("; did not keep up with the rate: sqlite soft."), "{text}");
    }

    /// Who refuses more acknowledges fewer: by its price it may be faster.
    #[test]
    fn a_cell_that_refused_more_is_not_called_slower() {
        let mut result = Grid { locks: &[Lock::Soft, Lock::Native], ..Grid::default() }.result();
        assert!(said(&result).ends_with("Fastest of those that hold: sqlite native, 1,144 ok/s."));
        for trial in &mut result.cells[0].trials {
            let captures = &mut trial.operations[0];
            let times = LatencyFigures { count: 1_000, ..captures.service["ok"].clone() };
            captures.service.insert("refused".to_owned(), times);
        }
        let text = said(&result);
        assert!(
            text.ends_with("; as many or more were answered, with more refusals, by sqlite soft."),
            "{text}"
        );
        // what finds a queue empty was not answered
        "queue".clone_into(&mut result.plan.workload);
        let text = said(&result);
        assert!(text.contains("sqlite native, 1,144 ok/s") && !text.contains("answered"), "{text}");
    }

    /// The p99 of a few operations is their maximum.
    #[test]
    fn a_cell_with_few_operations_has_no_p99_to_be_ranked_by() {
        let mut result = Grid { locks: &[Lock::Soft, Lock::Native], ..Grid::default() }.result();
        result.plan.rates = vec![5.0];
        let mut histogram = acidtest_engine::Histogram::new(3).unwrap();
        histogram.record_n(1_000_000, 40).unwrap();
        for trial in result.cells.iter_mut().flat_map(|cell| {
            cell.rate = Some(5.0);
            &mut cell.trials
        }) {
            trial.arrived.offered = 80;
            for operation in &mut trial.operations {
                operation.response = [("ok".to_owned(), LatencyFigures::of(&histogram))].into();
            }
        }
        let text = said(&result);
        let none = "No cell that holds kept up with its rate with enough operations for a p99: sqlite soft";
        assert!(text.contains(none), "{text}");
    }

    /// Stock that was sold out before the measured part leaves nothing to measure.
    #[test]
    fn refusals_of_most_captures_are_told_with_what_mends_them() {
        let mut result = Grid { locks: &[Lock::Native], ..Grid::default() }.result();
        assert!(!said(&result).contains("refused"));
        for trial in &mut result.cells[0].trials {
            let captures = &mut trial.operations[0];
            let times = LatencyFigures { count: 49_000, ..captures.service["ok"].clone() };
            captures.service.insert("refused".to_owned(), times);
            trial.series[0].ended.get_mut("capture").unwrap().insert("refused".to_owned(), 49_000);
        }
        let text = said(&result);
        let sold_out = "Most captures were refused: sqlite native, 98 %, from the first second on: the stock was sold out; a larger --initial-max";
        assert!(text.contains(sold_out), "{text}");
    }

    #[test]
    fn an_interruption_is_said() {
        let mut result = Grid { locks: &[Lock::Soft, Lock::Native], ..Grid::default() }.result();
        assert!(!said(&result).contains("interrupted"));
        result.interrupted = true;
        result.cells[1].trials.truncate(1);
        let told = |result: &RunResult| said(result).lines().last().unwrap().to_owned();
        assert_eq!(told(&result), "The run was interrupted: 4 of its 6 trials were made.");
        result.cells[1].trials[0].stopped =
            Some(acidtest_results::StopFigures { reason: "interrupted".to_owned(), detail: String::new() });
        assert_eq!(
            told(&result),
            "The run was interrupted: 4 of its 6 trials were made, 1 of them cut short."
        );
        // it was made again since
        let again = acidtest_results::TrialResult { stopped: None, ..result.cells[1].trials[0].clone() };
        result.cells[1].trials.push(again);
        assert_eq!(told(&result), "The run was interrupted: 4 of its 6 trials were made.");
        result.plan.capacity = Some(acidtest_results::CapacityPlan::default());
        assert!(told(&result).starts_with("The run was interrupted: searches may be"), "{}", told(&result));
    }

    #[test]
    fn nothing_run_is_said() {
        let mut result = Grid::default().result();
        result.cells.iter_mut().for_each(|cell| cell.trials.clear());
        assert_eq!(said(&result), "No cell was run.");
    }
}
