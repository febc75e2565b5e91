//! Notes that a reader needs to interpret the figures, one line each.

use std::collections::{BTreeMap, BTreeSet};

use acidtest_model::{
    Consistency, EffectiveDurability, Lock, PerSecond, Reads, Replication, Role, TLS_HOW, count,
    figure::{nanoseconds, percent, rate},
};
use acidtest_results::{
    CellResult, CellStaleness, ENOUGH, FEWEST, InjectionFigures, OperationFigures, Priceable,
    PromotionFigures, RestartFigures, RunResult, SEEN, SHORTEST, Sweep, TrialResult,
    dimensions::{CLIENTS, CONSISTENCY, LOCK, NODES, Names, READS, REPLICATION, ROUTE, TLS, spoken},
    distinct, disturbing, enough, is_enough, is_kept_by, sweeps, total,
};
use acidtest_workloads::{
    Finding, OLDEST_LOST, Verdict,
    queue::{DOUBTFUL, HOLES, IN_HAND},
    workload,
};

use crate::{
    capacity,
    conclusion::{at_replicas, breaks_order, excuses, permitted_to_go_back},
    histories,
    tables::{MANY, demand, ratio, stale},
};

/// Notes of one sort that a terminal shows before it counts the rest.
const SHOWN: usize = 6;

/// Cells that a note names before it counts the rest.
const NAMED: usize = 4;

/// The sorts of notes, in the order in which they are shown, and whether they say something of a search, too, whose trials have
/// different rates and go beyond what a store carries.
const SORTS: [(&str, bool); 21] = [
    ("cells not run", true),
    ("limits", true),
    ("settings", true),
    ("TLS", true),
    ("price of TLS", true),
    ("trials cut short", true),
    ("sessions", false),
    ("injected faults", true),
    ("unrequested restarts", true),
    ("crashes", true),
    ("outages", false),
    ("price of faults", false),
    ("verdicts", true),
    ("faults", false),
    ("overload", false),
    ("nothing acknowledged", false),
    ("drift", false),
    ("dependent seconds", false),
    ("the bench's limit", false),
    ("server logs", true),
    ("plans", true),
];

/// A note on some cells or trials: its sort, its text, and the cells or trials that it is about.
struct Note {
    sort: &'static str,
    text: String,
    about: String,
}

/// Every note, the general ones first; with `all` every one, otherwise as many as a terminal shows.
pub(crate) fn notes(result: &RunResult, names: &Names, all: bool) -> Vec<String> {
    let searched = result.plan.capacity.is_some();
    let mut notes = meanings(result, names);
    notes.extend(if searched { capacity::notes(result) } else { statistics(result, names) });
    notes.extend(histories::notes(result, names));
    notes.extend(data(result, names));
    notes.extend(if searched { Vec::new() } else { sizes(result, names) });
    notes.extend(busy(result, names));
    notes.extend(gathered(result, names, all));
    notes.extend(result.left_out.iter().map(|what| format!("left out: {what}")));
    if !all && result.cells.len() > MANY {
        notes.push(format!(
            "resource usage and the times of operations that were not acknowledged are left out for {} cells; `acidtest \
             report FILE` shows them.",
            result.cells.len()
        ));
    }
    if ["tmpfs", "ramfs"].contains(&result.machine.filesystem.as_str()) {
        notes.push(
            "the data is in memory (tmpfs), where a sync costs nothing and protects nothing. Set TMPDIR or ACIDTEST_LAB to \
             a folder on a disk."
                .to_owned(),
        );
    }
    notes.push(harness(result));
    notes.extend(hosts(result));
    if let Some(processes) = result.plan.client_processes() {
        notes.push(apart(result, processes));
    }
    notes
}

/// Explanations of the words in the tables: lock modes, durability levels, broken guarantees that were not promised.
fn meanings(result: &RunResult, names: &Names) -> Vec<String> {
    let mut notes = Vec::new();
    let deciding = result.cells.iter().filter(|cell| cell.decides);
    let locks: BTreeSet<Lock> = deciding.map(|cell| cell.lock).collect();
    notes.extend(locks.into_iter().map(|lock| format!("lock {lock}: {}.", lock.meaning())));
    let levels: BTreeSet<EffectiveDurability> =
        result.cells.iter().filter_map(|cell| Some(cell.effective.as_ref()?.durability)).collect();
    notes.extend(levels.into_iter().map(|durability| {
        let cells = result.cells.iter().filter(|cell| {
            cell.effective.as_ref().is_some_and(|effective| effective.durability == durability)
        });
        let crashes: Vec<_> = cells
            .flat_map(|cell| &cell.trials)
            .flat_map(TrialResult::crashes)
            .map(|crash| &*crash.member)
            .collect();
        let whose: BTreeSet<String> =
            crashes.iter().map(|member| format!("{}'s", in_words(member))).collect();
        let whose = whose.into_iter().collect::<Vec<_>>().join(" or ");
        let tested = match crashes.len() {
            0 => "no crash was tested in this run".to_owned(),
            1 => format!("tested by one crash of {whose} process, not by a loss of power"),
            several => format!("tested by {several} crashes of {whose} process, not by a loss of power"),
        };
        let told = durability.level().map_or("", |_| ", according to the settings read back");
        format!("durability {durability}: {}{told}; {tested}.", durability.meaning())
    }));
    notes.extend(replication(result));
    notes.extend(reads_at_members(result, names));
    notes.extend(excuses(result));
    notes.extend(terms(result));
    notes
}

/// What the replication levels of clusters promise, and by what that was tested in this run.
fn replication(result: &RunResult) -> Vec<String> {
    let levels: BTreeSet<Replication> =
        result.cells.iter().filter_map(|cell| Some(cell.replication_read.as_ref()?.level)).collect();
    let of = |level: Replication| {
        let is_of =
            |cell: &&CellResult| cell.replication_read.as_ref().is_some_and(|read| read.level == level);
        let trials = result.cells.iter().filter(is_of).flat_map(|cell| &cell.trials);
        let tested = match trials.flat_map(TrialResult::promotions).count() {
            0 => "no replica was promoted in this run".to_owned(),
            1 => "tested by one promotion".to_owned(),
            several => format!("tested by {several} promotions"),
        };
        let meaning = level.meaning();
        format!("replication {level}: {meaning}, according to the settings read back; {tested}.")
    };
    levels.into_iter().map(of).collect()
}

/// What was measured of reads that replicas may answer, what is promised of them, and what was tried of that in this run.
fn reads_at_members(result: &RunResult, names: &Names) -> Vec<String> {
    let compared: Vec<(&CellResult, CellStaleness)> = stale(result).collect();
    if compared.is_empty() {
        return Vec::new();
    }
    let mut notes: Vec<String> = read_policies(&compared, names).into_iter().collect();
    let led = compared.iter().any(|(_, seen)| seen.at_leader > 0);
    let led = if led { ", also one that the leader answers," } else { "" };
    notes.push(format!(
        "reads at members: each read of a record{led} is compared with what the clients know to have been acknowledged before \
         it began. It is stale if it missed some of that, and as far behind as the oldest acknowledged write that it missed was \
         old when it began. It missed an own write if the same client had made it, and went back if the same client had read a \
         newer version before. Counts are sums over the trials; p50 and p99 are medians of the trials', of those with at least \
         10 stale reads beyond them: p50 needs {} stale reads, p99 {}.",
        count(enough(50.0)),
        count(enough(99.0))
    ));
    let levels: BTreeSet<Consistency> =
        compared.iter().filter_map(|(cell, _)| cell.consistency_of_reads()).collect();
    notes.extend(levels.into_iter().map(|level| match level {
        Consistency::Eventual => "consistency eventual: a read may miss recent writes; they appear later. What reads missed is \
                                  counted, and breaks no promise."
            .to_owned(),
        Consistency::Strong => strong_reads(&compared),
    }));
    notes
}

/// What consistency strong promises, and what was tried of that in this run.
fn strong_reads(compared: &[(&CellResult, CellStaleness)]) -> String {
    let strong = compared.iter().filter(|(cell, _)| cell.consistency_of_reads() == Some(Consistency::Strong));
    let (faulted, plain): (Vec<_>, Vec<_>) = strong.partition(|(cell, _)| !cell.faults.is_none());
    let sum = |of: fn(&CellStaleness) -> u64| total(plain.iter().map(|(_, seen)| of(seen)));
    let (reads, missed) = (sum(|seen| seen.reads), sum(CellStaleness::missed));
    let back = |is_promised: bool| {
        let cells = plain.iter().filter(|(cell, seen)| breaks_order(cell, seen) == is_promised);
        total(cells.map(|(_, seen)| seen.went_back))
    };
    let broke = match back(true) {
        0 => String::new(),
        reads => format!("; {} went back at one member, which it rules out", count(reads)),
    };
    let at = at_replicas(sum(CellStaleness::at_replicas), reads);
    let tried = match missed {
        _ if reads == 0 => "no read without a fault tried it in this run".to_owned(),
        0 => format!(
            "{} reads{at} tried it, and none missed what was acknowledged before; other reads may still miss something",
            count(reads)
        ),
        missed => {
            format!("{} reads{at} tried it, and {} missed something", count(reads), count(missed))
        }
    };
    let permitted = permitted_to_go_back(back(false));
    let excused = if faulted.is_empty() { "" } else { "; in a cell with a fault it is not promised" };
    format!(
        "consistency strong: a read sees all that was acknowledged before it began, according to the settings read back; \
         {tried}{broke}{permitted}{excused}."
    )
}

/// How the cells read whose replicas may answer, unless each cell's name says all of that.
fn read_policies(compared: &[(&CellResult, CellStaleness)], names: &Names) -> Option<String> {
    let are_named = [READS, ROUTE, CONSISTENCY].iter().all(|name| names.others().any(|other| other == *name));
    let policies = distinct(compared.iter().map(|(cell, _)| {
        let from = if cell.reads == Reads::Any { "any member" } else { "replicas" };
        format!(
            "{from}, route {}, {} ({}, {})",
            cell.route,
            spoken(cell, CONSISTENCY),
            spoken(cell, REPLICATION),
            spoken(cell, NODES)
        )
    }));
    let more = policies.len().saturating_sub(NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let shown = policies.into_iter().take(NAMED).collect::<Vec<_>>().join("; ");
    (!are_named).then(|| format!("reads: {shown}{more}."))
}

/// Explanations of the workload's own terms, for those that occur in the tables.
fn terms(result: &RunResult) -> Vec<String> {
    let trials = || result.cells.iter().flat_map(|cell| &cell.trials);
    let is_there = |name: &str| {
        let is_span = |trial: &TrialResult| trial.spans.iter().any(|span| span.name == name);
        trials().any(|trial| trial.operation(name).is_some() || is_span(trial))
    };
    let mut notes = Vec::new();
    if let Some(some) = trials().find(|trial| trial.other_operations().next().is_some()) {
        let counted = some.counted.join(" and ");
        notes.push(format!("ok/s counts {counted}; other operations have their own columns."));
    }
    let terms = workload(&result.plan.workload).map_or(&[] as &[_], |kind| kind.terms);
    let shown = terms.iter().filter(|(name, _)| is_there(name));
    notes.extend(shown.map(|(name, meaning)| format!("{name}: {meaning}")));
    notes
}

/// A member in a sentence: `the server`, `the gateway`, or, of a cluster, `server-2`.
fn in_words(member: &str) -> String {
    let has_number = !Role::ALL.iter().any(|role| role.name() == member);
    if has_number { member.to_owned() } else { format!("the {member}") }
}

/// How prices and intervals were computed, and how far they can be trusted in this result.
fn statistics(result: &RunResult, names: &Names) -> Vec<String> {
    let mut notes = Vec::new();
    let prices = || result.cells.iter().flat_map(|cell| &cell.prices);
    let is_priced = |name: &str| prices().any(|price| price.guarantee == name);
    if is_priced(LOCK) {
        let what = if result.plan.rates.is_empty() {
            "answers a second (acknowledged or refused)"
        } else {
            "99th percentile of the response time (higher is worse)"
        };
        notes.push(format!(
            "price of lock: {what} relative to lock none in the same cell, with a 95 % interval over paired trials; ≈ \
             marks a price inside the noise."
        ));
    }
    if is_priced(CONSISTENCY) {
        notes.push(format!(
            "price of consistency: relative to the same cell with consistency eventual; answers are {}; for p99 and CPU time \
             per answer, higher is worse.",
            answers_are(result)
        ));
    }
    let is_other = |name: &str| ![LOCK, CONSISTENCY].contains(&name) && is_priced(name);
    let others: Vec<Priceable> = Priceable::of(result).filter(|each| is_other(each.name())).collect();
    if !others.is_empty() {
        let shown = others.iter().map(|each| match each.paid_by() {
            Some(operation) => format!("{} (by {operation})", each.name()),
            None => each.name().to_owned(),
        });
        notes.push(format!(
            "price of {}: relative to the otherwise identical cell with the least of it in the grid; answers are {}; for \
             p99 and CPU time per answer, higher is worse.",
            shown.collect::<Vec<_>>().join(", "),
            answers_are(result)
        ));
    }
    if prices().any(|price| price.guarantee == REPLICATION && price.against == Replication::None.name()) {
        notes.push(
            "price of replication against none: several nodes against one, all on the same machine, so that it holds what the \
             other nodes take of it."
                .to_owned(),
        );
    }
    let sweeps = sweeps(result);
    let has_law = sweeps.iter().any(|sweep| sweep.law.is_some());
    if result.is_disturbed() {
        let resting = [("prices", prices().next().is_some()), ("the law of scaling", has_law)];
        let resting: Vec<&str> =
            resting.into_iter().filter(|(_, is_there)| *is_there).map(|(what, _)| what).collect();
        let resting = match &resting[..] {
            [] => String::new(),
            resting => format!("; based on served/s: {}", resting.join(", ")),
        };
        notes.push(format!(
            "ok/s covers the whole measured part, outages included; served/s leaves out the longest outage after each \
             fault and each unrequested restart{resting}."
        ));
    }
    let mut guarantees = Priceable::of(result);
    if guarantees.any(|each| result.cells.iter().any(|cell| result.other_refusals(each, cell).is_some())) {
        notes.push(format!(
            "a price is void where {REFUSED_MORE}, so neither ratio is what the guarantee costs."
        ));
    }
    if is_percentile_left_out(result) {
        notes.push(format!("{LEFT_OUT}; for a price, in each trial."));
    }
    let divided = result.divided_rounds();
    if divided > 0 && prices().next().is_some() {
        notes.push(format!(
            "the run was interrupted and resumed: prices pair trials of the same session only, which leaves {divided} of \
             {} rounds out.",
            result.plan.trials
        ));
    }
    if has_law {
        notes.push(
            "scalability: X(N) = λN / (1 + σ(N − 1) + κN(N − 1)) (Gunther), least squares, intervals by bootstrap; \
             prediction error: each number of clients predicted from the others; a peak is shown if that is at most 5 % \
             and the peak's interval has an upper bound, and is an extrapolation beyond the numbers of clients that were \
             run."
                .to_owned(),
        );
    }
    notes.extend(unfitted(&sweeps, result, names));
    notes.extend(over_trials(result));
    let unchecked =
        result.cells.iter().any(|cell| !cell.trials.is_empty() && cell.steadiness_of_trials().is_none());
    if unchecked {
        notes.push(format!(
            "measured parts shorter than {SHORTEST} whole seconds were not checked for drift."
        ));
    }
    notes
}

/// Why sweeps have no law of scaling.
fn unfitted(sweeps: &[Sweep<'_>], result: &RunResult, names: &Names) -> Option<String> {
    if !result.plan.rates.is_empty() {
        return None;
    }
    let most = sweeps.iter().map(|sweep| sweep.points().len()).max()?;
    if most < FEWEST {
        let needs =
            format!("scalability: a law with three parameters needs at least {FEWEST} numbers of clients.");
        return (most > 2).then_some(needs);
    }
    let names = names.without(CLIENTS);
    let said = sweeps.iter().filter_map(|sweep| {
        let why = sweep.unfit.as_ref().filter(|_| sweep.cells.len() >= FEWEST)?;
        Some(format!("{}, because {why}", names.cell(sweep.cells.values().next()?)))
    });
    let said: Vec<String> = said.collect();
    let rest = said.len().saturating_sub(NAMED);
    let more = if rest > 0 { format!("; and of {rest} more") } else { String::new() };
    let shown = said.into_iter().take(NAMED).collect::<Vec<_>>().join("; of ");
    (!shown.is_empty()).then(|| {
        format!("scalability: no law was fitted to the figures of {shown}{more}: this would bend the curve as contention \
                 does.")
    })
}

/// What means over trials and their intervals are, and what a few trials do not tell.
fn over_trials(result: &RunResult) -> Vec<String> {
    let mut notes = Vec::new();
    let measured = || result.cells.iter().map(|cell| cell.measured_trials().len());
    if measured().any(|trials| trials > 1) {
        notes.push(
            "ok/s is the arithmetic mean over the trials; `acidtest compare` shows geometric means."
                .to_owned(),
        );
    }
    let has_prices = result.cells.iter().any(|cell| !cell.prices.is_empty());
    let fewest = measured().filter(|trials| *trials > 0).min();
    notes.extend(match fewest {
        Some(1) if has_prices => Some("one trial gives no interval: use more --trials.".to_owned()),
        Some(2) => Some("with 2 trials an interval says little: use more --trials.".to_owned()),
        Some(few) if few > 1 && few < ENOUGH => Some(format!(
            "intervals: 95 %, Student's t over {few} trials, which assumes roughly (log-)normal trials; with {ENOUGH} or \
             more they are bootstrapped."
        )),
        Some(many) if many > 1 => Some("intervals: 95 %, bootstrap-t over the trials.".to_owned()),
        _ => None,
    });
    notes
}

/// Whether the table of times has an operation or span that was acknowledged too seldom for one of its percentiles.
fn is_percentile_left_out(result: &RunResult) -> bool {
    result.cells.iter().any(|cell| {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for trial in cell.measured_trials() {
            let operations =
                trial.operations.iter().filter_map(|each| Some((&each.name, each.service.get("ok")?)));
            let spans = trial.spans.iter().map(|span| (&span.name, &span.times));
            for (name, times) in operations.chain(spans) {
                let count = counts.entry(name).or_default();
                *count = count.saturating_add(times.count);
            }
        }
        counts.values().any(|count| !is_enough(*count, 99.9))
    })
}

/// The origin of the data, for each store and size of data that was loaded.
fn data(result: &RunResult, names: &Names) -> Vec<String> {
    let mut groups: BTreeMap<(String, u64), (Vec<f64>, usize)> = BTreeMap::new();
    // how fast a cell was loaded stands in its row of sizes, where it has one
    let is_listed = |cell: &&CellResult| cell.trials.iter().all(|trial| trial.size.is_none());
    for cell in result.cells.iter().filter(is_listed) {
        for trial in &cell.trials {
            let group = groups.entry((names.store(cell), trial.data.rows)).or_default();
            match trial.data.load_seconds {
                Some(seconds) => group.0.push(seconds),
                None => group.1 += usize::from(trial.data.left_by.is_some()),
            }
        }
    }
    let shown = |((store, rows), (loads, taken)): ((String, u64), (Vec<f64>, usize))| {
        let mean = loads.iter().sum::<f64>() / loads.len().max(1) as f64;
        let loaded = match loads.len() {
            0 => String::new(),
            n => {
                let each = if n == 1 { "once".to_owned() } else { format!("{n} times, on average") };
                let speed = if mean > 0.0 { rows as f64 / mean } else { 0.0 };
                format!(" loaded {each} in {}, {} rows/s", nanoseconds(mean * 1e9), rate(speed))
            }
        };
        let taken = match taken {
            0 => String::new(),
            n => format!(
                "; {n} {} reused what an earlier one had left",
                if n == 1 { "trial" } else { "trials" }
            ),
        };
        format!("data of {store}: {} rows{loaded}{taken}.", count(rows))
    };
    groups.into_iter().filter(|((_, rows), _)| *rows > 0).map(shown).collect()
}

/// What the figures of tables' sizes rest on.
fn sizes(result: &RunResult, names: &Names) -> Vec<String> {
    let mut sources: Vec<(String, &str)> = Vec::new();
    for cell in &result.cells {
        let Some(size) = cell.trials.iter().find_map(|trial| trial.size.as_ref()) else { continue };
        let store = names.store(cell);
        // one of a store's is enough: they differ in figures alone
        if sources.iter().all(|(other, _)| *other != store) {
            sources.push((store, &size.source));
        }
    }
    let mut notes = Vec::new();
    if !sources.is_empty() {
        let sources: Vec<String> =
            sources.iter().map(|(store, source)| format!("{store}: {source}")).collect();
        notes.push(format!(
            "bytes per row at the end of the trials, as reported by the stores. {}.",
            sources.join("; ")
        ));
    }
    if let (Some(fits), false) = (result.plan.fits, sources.is_empty()) {
        let days = demand(result).map_or_else(String::new, |PerSecond(of)| {
            format!(
                ". Days: the time in which {} rows a second fill it, if that rate does not grow",
                rate(of)
            )
        });
        notes.push(format!(
            "rows in {fits}: computed, not measured, assuming that every row takes as much as these did and nothing else \
             takes space{days}. Small tables do not fill their pages: the more rows are loaded (--scans), the better the \
             estimate."
        ));
    }
    notes
}

/// The notes on cells and trials: equal ones are shown once, and many of one sort are counted.
fn gathered(result: &RunResult, names: &Names, all: bool) -> Vec<String> {
    let mut groups: Vec<(&'static str, String, Vec<String>)> = Vec::new();
    for note in result.cells.iter().flat_map(|cell| cell_notes(cell, result, &names.cell(cell))) {
        match groups.iter_mut().find(|(sort, text, _)| *sort == note.sort && *text == note.text) {
            // trials with the same plan are named once
            Some((.., about)) if about.contains(&note.about) => {}
            Some((.., about)) => about.push(note.about),
            None => groups.push((note.sort, note.text, vec![note.about])),
        }
    }
    let mut lines = Vec::new();
    let (most, cells) = if all { (usize::MAX, usize::MAX) } else { (SHOWN, NAMED) };
    let searched = result.plan.capacity.is_some();
    for (sort, _) in SORTS.into_iter().filter(|(_, of_searches)| !searched || *of_searches) {
        let of_sort: Vec<_> = groups.iter().filter(|(each, ..)| each == &sort).collect();
        lines.extend(
            of_sort.iter().take(most).map(|(_, text, about)| format!("{}: {text}", listed(about, cells))),
        );
        if of_sort.len() > most {
            let rest = of_sort.len() - most;
            lines.push(format!(
                "… and {rest} more on {sort}; `acidtest report FILE` writes a page with all of them."
            ));
        }
    }
    lines
}

fn listed(about: &[String], most: usize) -> String {
    let named = about.iter().take(most).cloned().collect::<Vec<_>>().join("; ");
    if about.len() > most { format!("{named}; and {} more", about.len() - most) } else { named }
}

/// What TLS costs in a cell besides throughput and response times: opening a connection, and the CPU of both sides.
fn price_of_tls(cell: &CellResult, result: &RunResult) -> Option<String> {
    let tls = Priceable::of(result).find(|guarantee| guarantee.name() == TLS)?;
    let price = tls.price(cell)?;
    let mut parts = Vec::new();
    if let Some(times) = &price.connecting {
        let took: Vec<f64> = cell.measured_trials().iter().filter_map(|trial| trial.connect_ns).collect();
        let mean = took.iter().sum::<f64>() / took.len().max(1) as f64;
        parts.push(format!(
            "opening a connection takes {}, {} as long as without",
            nanoseconds(mean),
            ratio(times)
        ));
    }
    let sides = [("clients", &price.client_cpu), ("the server", &price.server_cpu)];
    parts.extend(sides.into_iter().filter_map(|(side, times)| {
        Some(format!("CPU of {side} for an operation {}", ratio(times.as_ref()?)))
    }));
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn cell_notes(cell: &CellResult, result: &RunResult, name: &str) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut note = |sort, text: String| notes.push(Note { sort, text, about: name.to_owned() });
    if let Some(error) = &cell.error {
        note("cells not run", error.clone());
    }
    if let Some(effective) = &cell.effective {
        let because = || format!("durability {}: {}", effective.durability, effective.because);
        if effective.durability.level().is_none() {
            note("settings", because());
        } else if cell.durability_asked.is_some_and(|asked| effective.durability != asked) {
            note("settings", format!("the settings amount to {}", because()));
        } else if cell.address.is_some() {
            note("settings", format!("its settings, as they are, amount to {}", because()));
        }
        if let Some(read) = cell.replication_read.as_ref().filter(|read| read.level != cell.replication) {
            note("settings", format!("the settings amount to replication {}: {}", read.level, read.because));
        }
        let level = cell.consistency_of_reads().filter(|level| *level != cell.consistency);
        if let Some((level, read)) = level.zip(cell.replication_read.as_ref()) {
            note("settings", format!("the settings amount to consistency {level}: {}", read.because));
        }
        if let Some(tls) = &effective.tls {
            let how = effective.settings.get(TLS_HOW).map_or_else(String::new, |how| format!(", by {how}"));
            note("TLS", format!("connections with {tls}{how}"));
        }
    }
    if let Some(what) = price_of_tls(cell, result) {
        note("price of TLS", what);
    }
    if let Some(steadiness) = cell.steadiness_of_trials() {
        let drift = steadiness.drift;
        let what = if cell.rate.is_some() { "the median service time" } else { "throughput" };
        if drift.shown() {
            let way = if drift.change > 0.0 { "rises" } else { "falls" };
            let change = percent(drift.change.abs());
            note(
                "drift",
                format!(
                    "{what} still {way} by {change} within the measured part: it is not steady; a longer --warmup, or a longer --duration, may help"
                ),
            );
        } else if steadiness.dependent() {
            let (worth, seconds) = (steadiness.effective_seconds, steadiness.seconds);
            note(
                "dependent seconds",
                format!(
                    "{what} swings slowly: {seconds:.0} seconds are worth {worth:.1} independent ones; a longer --duration \
                     would give a more precise figure"
                ),
            );
        }
    }
    if let Some(trial) = cell.hardly_served() {
        let unserved = trial.seconds * (1.0 - trial.share_served());
        note(
            "outages",
            format!(
                "nobody was served for {unserved:.2} of the {:.2} s of trial {}: too little is left to price it, or to \
                 price others against it; a longer --duration would leave more",
                trial.seconds, trial.round
            ),
        );
    }
    if let Some(sessions) = sessions(cell) {
        note("sessions", sessions);
    }
    if let Some(price) = result.price_of_faults(cell) {
        note(
            "price of faults",
            format!(
                "in the seconds after its faults {} of the throughput without them in the same seconds",
                ratio(&price)
            ),
        );
    }
    if let Some(limit) = limit_of_the_bench(cell, result) {
        note("the bench's limit", limit);
    }
    for trial in &cell.trials {
        notes.extend(trial_notes(trial).into_iter().map(|(sort, text)| Note {
            sort,
            text,
            about: format!("{name}, trial {}", trial.label()),
        }));
        notes.extend(plans(trial).into_iter().map(|text| Note {
            sort: "plans",
            text,
            about: name.to_owned(),
        }));
    }
    notes
}

/// Of a cell whose clients, or whose part of the bench itself, may have been what ran out.
fn limit_of_the_bench(cell: &CellResult, result: &RunResult) -> Option<String> {
    let client = cell.mean(|trial| trial.resources.client.cpu_mean);
    let share = result.harness.nanoseconds_per_operation * cell.throughput() / 1e9;
    let (cores, usable) = (f64::from(result.harness.cores), f64::from(result.cores_for(cell)));
    // threads that are busy leave the store its time as long as they do not have all cores
    if !cell.is_within_clients() && client > (0.85 * cores).min(0.95 * usable) {
        let remedy = match cell.threads.unwrap_or(cell.clients) {
            threads if threads >= result.harness.cores => "a machine with more cores",
            threads if threads >= cell.clients => "more clients",
            _ => "more --threads",
        };
        return Some(format!(
            "the clients used {client:.2} of the {usable} cores that their threads can use: the bench, not the store, may have set \
             the limit; {remedy} would show it"
        ));
    }
    (share > 0.5).then(|| format!("the bench itself used {share:.2} cores: it may have set the limit"))
}

/// Of a cell whose trials were run in several sessions, what each of them measured: its mean and interval are of all of them.
fn sessions(cell: &CellResult) -> Option<String> {
    let mut sessions: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for trial in cell.measured_trials() {
        sessions.entry(trial.session).or_default().push(trial.throughput);
    }
    let said = sessions.iter().map(|(session, rates)| {
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let trials = if rates.len() == 1 { "1 trial".to_owned() } else { format!("{} trials", rates.len()) };
        format!("{} ok/s in session {session} ({trials})", rate(mean))
    });
    let said: Vec<String> = said.collect();
    (said.len() > 1).then(|| {
        format!(
            "its mean and interval span several sessions of a resumed run, perhaps hours apart: {}",
            said.join(", ")
        )
    })
}

/// Says that other programs kept the machine busy, if they did during the trials of some cells.
fn busy(result: &RunResult, names: &Names) -> Option<String> {
    let cores = result.machine.cores;
    let busy: Vec<(f64, &CellResult)> =
        result.cells.iter().filter_map(|cell| Some((disturbing(result, cell)?, cell))).collect();
    let (least, _) = busy.iter().min_by(|(one, _), (other, _)| one.total_cmp(other))?;
    let (most, busiest) = busy.iter().max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    let (used, during) = match busy.as_slice() {
        [_] => (format!("{most:.2}"), names.cell(busiest)),
        several => (
            distinct([least, most].map(|used| format!("{used:.2}"))).join(" to "),
            format!("{} of {} cells, most during {}", several.len(), result.cells.len(), names.cell(busiest)),
        ),
    };
    let mark = if result.plan.capacity.is_some() { String::new() } else { format!("{DISTURBED} ") };
    Some(format!(
        "{mark}other programs used {used} of the machine's {cores} cores during {during}: on a quiet machine the figures may \
         differ."
    ))
}

/// When figures of two cells are void for their refusals, and why, as the end of a sentence.
pub(crate) const REFUSED_MORE: &str = "one of two cells refused so much more that counting refusals or not makes a \
                                       difference of more than 5 % (a refusal is usually less work)";

/// Which percentiles are not shown, and why.
pub(crate) const LEFT_OUT: &str = "a percentile is shown only if at least 10 measurements lie beyond it: p99 needs 1,000 \
                                   operations, p99.9 needs 10,000";

/// What answers are, in words that stand after them.
pub(crate) fn answers_are(result: &RunResult) -> &'static str {
    if result.refusals_are_answers() {
        "acknowledged or refused"
    } else {
        "acknowledged, without empty polls"
    }
}

/// Marks the figures of a cell during which other programs used that share or more.
pub(crate) const DISTURBED: &str = "†";

/// Which stores were kept in a process of their own, and what that cost each operation.
fn hosts(result: &RunResult) -> Vec<String> {
    let of = |cell: &CellResult| Some((cell.store.clone(), cell.host_round_trip_ns?));
    let mut slowest: std::collections::BTreeMap<String, f64> = std::collections::BTreeMap::new();
    for (store, took) in result.cells.iter().filter_map(of) {
        slowest.entry(store).and_modify(|known| *known = known.max(took)).or_insert(took);
    }
    let told = |(store, took): (String, f64)| {
        format!(
            "{store} ran in a process of its own, so that it could be killed: each operation made a round trip to it, \
             which takes {} (median of 1,000); without --fault it runs in the clients' process.",
            nanoseconds(took)
        )
    };
    slowest.into_iter().map(told).collect()
}

/// Over how many processes the clients were spread, and what is not proved because of that.
fn apart(result: &RunResult, processes: u32) -> String {
    let what = acidtest_workloads::workload(&result.plan.workload).map_or("", |kind| kind.apart);
    let what = if what.is_empty() { String::new() } else { format!("; {what}") };
    let up_to = if processes > 1 { format!("up to {processes} processes") } else { "a process".to_owned() };
    format!("clients ran in {up_to} of their own, whose ledgers are merged at the end{what}.")
}

/// What was done to a server or to the clients, when, and how long nobody was served.
fn injection(injected: &InjectionFigures) -> String {
    let InjectionFigures { fault, member, due_seconds, at_seconds, answered_seconds, .. } = injected;
    let is_of_clients = member == Role::Clients.name();
    let whom =
        if is_of_clients || member == Role::Server.name() { String::new() } else { format!(" of {member}") };
    let Some(at_seconds) = at_seconds else {
        let what = if fault == LOSE { "loss" } else { fault };
        return format!("{what}{whom} was due at {due_seconds:.2} s: the trial ended first");
    };
    let late =
        if at_seconds - due_seconds > 0.1 { format!(" (due at {due_seconds:.2} s)") } else { String::new() };
    let is_of_cluster = [LOSE, CUT].contains(&fault.as_str());
    let was_down =
        injected.back_seconds.or(injected.last_ok_seconds).is_none() && !injected.overtaken && !is_of_cluster;
    let what = if fault == LOSE { "loss" } else { fault };
    if injected.missed || was_down {
        return format!(
            "{what}{whom} at {at_seconds:.2} s{late}: it was already down, about to stop, paused or cut off"
        );
    }
    let answered = match answered_seconds {
        _ if is_of_cluster => of_cluster(injected, *at_seconds),
        Some(_) if fault == "disconnect" => "all client connections were closed".to_owned(),
        Some(on) if is_of_clients => {
            format!("one of the processes that drive the clients stalled for {:.2} s", on - at_seconds)
        }
        Some(answered) => format!("it answered {:.2} s later", answered - at_seconds),
        None if injected.overtaken => "the next fault came before it answered again".to_owned(),
        None => "it did not answer again".to_owned(),
    };
    let answered = if injected.same_life {
        format!("the same life answered afterwards, so it had not ended; {answered}")
    } else if injected.another_server {
        format!(
            "another server answered in its place afterwards, or the same one after a promotion, and need not have \
             everything that was acknowledged; {answered}"
        )
    } else if injected.forced {
        format!("it did not stop cleanly within 10 s and was killed; {answered}")
    } else {
        answered
    };
    let counts = match (injected.acknowledged, injected.interrupted) {
        (Some(acknowledged), _) if injected.outstanding == Some(0) && fault == "kill" => {
            format!(
                "; {} acknowledged before it, none of them known to be left in the queue, so it does not count",
                count(acknowledged)
            )
        }
        (Some(acknowledged), Some(0)) if fault == "kill" && is_kept_by(member) => {
            format!(
                "; {} acknowledged before it, none interrupted, so it does not count",
                count(acknowledged)
            )
        }
        (Some(acknowledged), Some(interrupted)) => {
            let left =
                injected.outstanding.map(|left| format!(" ({} messages not yet consumed)", count(left)));
            format!(
                "; {} acknowledged before it{}, {} interrupted",
                count(acknowledged),
                left.unwrap_or_default(),
                count(interrupted)
            )
        }
        (Some(acknowledged), None) => format!("; {} acknowledged before it", count(acknowledged)),
        _ => String::new(),
    };
    let served = match (injected.last_ok_seconds, injected.outage()) {
        (None, _) if injected.acknowledged.unwrap_or_default() > 0 => {
            "nothing was acknowledged between the previous fault and it, so it shows nothing".to_owned()
        }
        (None, _) => "nothing was acknowledged before it, so it shows nothing".to_owned(),
        (Some(_), None) => match injected.unserved_from_seconds.filter(|from| *from > at_seconds + 1.0) {
            Some(from) => format!("from {from:.2} s on nobody was served again within the run"),
            None => "nobody was served again within the run".to_owned(),
        },
        (Some(_), Some(outage)) if outage < SEEN => {
            format!("clients were served throughout, or again within {:.0} ms", SEEN * 1e3)
        }
        // what begins much later need not be of its making
        (Some(_), Some(outage)) => {
            match injected.unserved_from_seconds.filter(|from| *from > at_seconds + 1.0) {
                Some(from) => format!("nobody was served for {outage:.2} s from {from:.2} s on"),
                None => format!("nobody was served for {outage:.2} s"),
            }
        }
    };
    format!("{what}{whom} at {at_seconds:.2} s{late}: {answered}; {served}{counts}")
}

/// The names of the faults that take a cluster.
const LOSE: &str = "lose";
const CUT: &str = "cut";

/// What came of a member of a cluster that was lost or cut off at this moment, and who took over from it.
fn of_cluster(injected: &InjectionFigures, at: f64) -> String {
    let InjectionFigures { fault, member, back_seconds, answered_seconds, promotion, not_promoted, .. } =
        injected;
    let mut said = Vec::new();
    if let Some(promotion) = promotion {
        let (who, by) = (&promotion.member, chosen_by(promotion));
        said.push(format!(
            "{who} was promoted ({by}) and took writes after {:.2} s",
            promotion.at_seconds - at
        ));
    } else if let Some(why) = not_promoted {
        said.push(format!("nobody was promoted: {why}"));
    }
    if fault == LOSE {
        if said.is_empty() {
            said.push("it never came back, and acknowledgements wait for it no more".to_owned());
        }
        return said.join("; ");
    }
    let cut = back_seconds.map_or_else(String::new, |back| format!(" for {:.2} s", back - at));
    let reached = if promotion.is_some() { ", while clients reached it" } else { "" };
    said.push(format!("{member} was cut off from the other members{cut}{reached}"));
    said.push(match (promotion, answered_seconds) {
        (Some(_), Some(_)) => "it was then ended, and copied anew after the measured part".to_owned(),
        (None, Some(on)) => format!("it answered as a member {:.2} s after the cut began", on - at),
        (_, None) if injected.overtaken => "the next fault came before it was a member again".to_owned(),
        (_, None) => "it did not become a member again".to_owned(),
    });
    said.join("; ")
}

/// The rule by which a replica was promoted, and how far the replicas were behind the one that had received most.
fn chosen_by(promotion: &PromotionFigures) -> String {
    let PromotionFigures { member: chosen, rule, behind, .. } = promotion;
    let missed = behind.get(chosen).copied().flatten().filter(|bytes| *bytes > 0);
    let most = behind.iter().find(|(_, bytes)| **bytes == Some(0)).map(|(member, _)| member);
    let although = missed.zip(most);
    let although = although.map(|(bytes, most)| format!("although {most} had {} bytes more", count(bytes)));
    let others = behind.iter().filter(|(member, _)| *member != chosen).filter_map(|(member, bytes)| {
        Some(match bytes {
            Some(0) => return None,
            Some(bytes) => format!("{member} was {} bytes behind", count(*bytes)),
            None => format!("{member} did not answer"),
        })
    });
    [rule.clone()].into_iter().chain(although).chain(others).collect::<Vec<_>>().join("; ")
}

/// What ended processes in a trial: crashes that tested its durability level, and what did not.
fn ended(trial: &TrialResult) -> String {
    let mut times: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for end in trial.ends().filter(|end| !end.crash || end.promotion.is_some()) {
        *times.entry((&end.fault, &end.member)).or_default() += 1;
    }
    // one after which another leads is told by its name
    let crashes = trial.crashes().filter(|crash| crash.promotion.is_none()).count();
    let crashes = [crashes].into_iter().filter(|count| *count > 0);
    let crashes =
        crashes.map(|count| if count == 1 { "one crash".to_owned() } else { format!("{count} crashes") });
    let others = times.into_iter().map(|((fault, member), count)| {
        let of =
            if member == Role::Server.name() { String::new() } else { format!(" of {}", in_words(member)) };
        match (count, fault) {
            (1, LOSE) => format!("the loss{of}"),
            (_, LOSE) => format!("{count} losses{of}"),
            (1, _) => format!("one {fault}{of}"),
            _ => format!("{count} {fault}s{of}"),
        }
    });
    crashes.chain(others).collect::<Vec<_>>().join(" and ")
}

/// What the audit says of a trial whose server was ended: what was acknowledged, and what of it was lost.
fn survived(trial: &TrialResult) -> String {
    let ok = |operation: &OperationFigures| operation.service.get("ok").map_or(0, |ok| ok.count);
    let unknown =
        |operation: &OperationFigures| operation.service.get("unknown").map_or(0, |each| each.count);
    let sum = |of: &dyn Fn(&OperationFigures) -> u64| count(total(trial.operations.iter().map(of)));
    let ended = ended(trial);
    let of = format!("{} acknowledged operations, {} unanswered", sum(&ok), sum(&unknown));
    let found = |is: &dyn Fn(&Finding) -> bool| -> Vec<String> {
        let found = trial.audit.findings.iter().filter(|finding| finding.count > 0 && is(finding));
        found.map(ToString::to_string).collect()
    };
    // what was published without an acknowledgement is lost, too, although no durability was promised for it
    let lost = found(&|finding| finding.is_loss() || finding.name == "lost");
    let unprotected = found(&|finding| finding.guarantee == LOCK);
    match (trial.audit.verdict, &lost[..]) {
        (Verdict::Unknown, _) => format!("{ended}, {of}: what survived is unknown"),
        (_, []) if !unprotected.is_empty() => {
            format!("{ended}, {of}: {}, which may include a loss", unprotected.join(", "))
        }
        (_, []) => {
            let all: Vec<String> = ["no loss seen".to_owned()].into_iter().chain(doubtful(trial)).collect();
            format!("{ended}, {of}: {}", all.join("; "))
        }
        (_, lost) => {
            let lost = [lost.join(", ")].into_iter();
            let all: Vec<String> = lost.chain(of_the_lost(trial)).chain(doubtful(trial)).collect();
            format!("{ended}, {of}: {}", all.join("; "))
        }
    }
}

/// Of how many messages a consumer's acknowledgement may have been the last that happened to them.
fn doubtful(trial: &TrialResult) -> Option<String> {
    let messages = trial.audit.evidence.get(DOUBTFUL).filter(|messages| **messages > 0)?;
    Some(format!(
        "{} more may have been lost: they were not redelivered after an acknowledgement that may have reached the store",
        count(messages.unsigned_abs())
    ))
}

/// Which of what was written was lost, and how old it was, where the ledger can tell.
fn of_the_lost(trial: &TrialResult) -> Vec<String> {
    let (evidence, findings) = (&trial.audit.evidence, &trial.audit.findings);
    let Some(lost) = findings.iter().find(|finding| finding.name == "lost") else { return Vec::new() };
    let unit = &lost.unit;
    let which = evidence.get(HOLES).map(|holes| match holes {
        0 => format!("the lost {unit} are the last that each producer sent before the crash"),
        holes => {
            format!("{} of the lost {unit} were sent before one that was kept", count(holes.unsigned_abs()))
        }
    });
    let in_hand = evidence.get(IN_HAND).filter(|handed| **handed > 0).map(|handed| {
        let handed = count(handed.unsigned_abs());
        format!("{handed} of the lost {unit} had been delivered to consumers, were not acknowledged, and were never \
                 redelivered")
    });
    let age = evidence.get(OLDEST_LOST).map(|millis| {
        format!(
            "the oldest of the lost {unit} was sent at most {} ms before the next crash",
            count(millis.unsigned_abs())
        )
    });
    which.into_iter().chain(in_hand).chain(age).collect()
}

/// A life of a server that nobody asked for.
fn restart(restart: &RestartFigures) -> String {
    let RestartFigures { member, found_seconds, same_data, servers, .. } = restart;
    let whom = match Role::ALL.into_iter().find(|role| role.name() == member) {
        Some(Role::Locks) => "the lock service".to_owned(),
        _ => in_words(member),
    };
    let what = match (servers, same_data) {
        (2.., _) => format!(
            "{servers} servers answered at the address of {whom}, and another one later: it may be one of them after a restart"
        ),
        (_, Some(true)) => format!("{whom} restarted"),
        (_, Some(false)) => format!("another server answered in place of {whom}"),
        (_, None) => format!("{whom} restarted, or another one took its place"),
    };
    let found = match found_seconds {
        Some(at) => format!("found at {at:.2} s"),
        None => "found outside of the measured part".to_owned(),
    };
    let served = match restart.unserved() {
        Some((from, Some(until))) if until - from >= SEEN => {
            format!("; nobody was served for {:.2} s from {from:.2} s on", until - from)
        }
        Some((from, None)) => format!("; from {from:.2} s on nobody was served again within the run"),
        _ => String::new(),
    };
    format!("{what}, {found}: nobody requested it, and how the previous life ended is unknown{served}")
}

/// `once`, `3 times`.
fn times_over(times: u64) -> String {
    if times == 1 { "once".to_owned() } else { format!("{} times", count(times)) }
}

/// How the store executes each operation, by the first line of its query plan.
fn plans(trial: &TrialResult) -> Vec<String> {
    let first = |plan: &String| plan.lines().map(str::trim).find(|line| !line.is_empty()).map(shortened);
    let shown = trial.remarks.plans.iter().filter_map(|(operation, plan)| Some((operation, first(plan)?)));
    let shown: Vec<String> = shown.map(|(operation, plan)| format!("{operation}: {plan}")).collect();
    if shown.is_empty() { Vec::new() } else { vec![format!("planned as\n  | {}", shown.join("\n  | "))] }
}

fn trial_notes(trial: &TrialResult) -> Vec<(&'static str, String)> {
    let mut notes = Vec::new();
    for (limit, times) in &trial.limits {
        notes.push(("limits", format!("the store set the limit, {}: {limit}", times_over(*times))));
    }
    if let Some(stopped) = &trial.stopped {
        let detail = if stopped.detail.is_empty() { String::new() } else { format!(": {}", stopped.detail) };
        notes.push((
            "trials cut short",
            format!("ended after {:.1} s: {}{detail}", trial.seconds, stopped.reason),
        ));
    }
    notes.extend(trial.injections.iter().map(|injected| ("injected faults", injection(injected))));
    notes.extend(trial.restarts.iter().map(|each| ("unrequested restarts", restart(each))));
    if trial.ends().next().is_some() {
        notes.push(("crashes", survived(trial)));
    }
    if trial.audit.verdict != Verdict::Holds {
        notes.push(("verdicts", trial.audit.to_string()));
    }
    if trial.audit.verdict == Verdict::Broken
        && let Some(reason) = &trial.audit.reason
    {
        notes.push(("verdicts", reason.clone()));
    }
    if !trial.faults.is_empty() {
        let faults = total(trial.faults.values().copied());
        let most = trial.faults.iter().max_by_key(|(_, count)| **count);
        let most = most.map_or_else(String::new, |(fault, _)| format!(", mostly \"{fault}\""));
        let times = |number: u64, what: &str| {
            let plural = if number == 1 { "" } else { "s" };
            format!("{} {what}{plural}", count(number))
        };
        let (errors, reconnects) = (times(faults, "error"), times(trial.reconnects, "reconnect"));
        notes.push(("faults", format!("{errors}{most}; {reconnects}")));
    }
    let arrived = trial.arrived;
    if arrived.late > 0 || arrived.dropped > 0 {
        let text = format!(
            "offered {}, started {}, completed {}, late {}, dropped {}",
            count(arrived.offered),
            count(arrived.started),
            count(arrived.completed),
            count(arrived.late),
            count(arrived.dropped)
        );
        notes.push(("overload", text));
    }
    if let Some(from) = trial.unsuccessful_from() {
        notes.push(("nothing acknowledged", unsuccessful(trial, from)));
    }
    if !trial.server_log.is_empty() {
        let lines = trial.server_log.iter().map(|line| format!("\n  | {}", shortened(line)));
        notes.push((
            "server logs",
            format!("the log of the server that was lost ends:{}", lines.collect::<String>()),
        ));
    }
    notes
}

/// Since when nothing was acknowledged in a trial, and how operations ended instead.
fn unsuccessful(trial: &TrialResult, from: u64) -> String {
    let mut ended: BTreeMap<&str, u64> = BTreeMap::new();
    let later = trial.series.iter().filter(|second| second.second >= from);
    for (outcome, times) in
        later.flat_map(|second| second.ended.values()).flatten().filter(|(name, _)| *name != "ok")
    {
        let all = ended.entry(outcome).or_default();
        *all = all.saturating_add(*times);
    }
    let ended: Vec<String> =
        ended.into_iter().map(|(outcome, times)| format!("{} {outcome}", count(times))).collect();
    let instead = if ended.is_empty() { "nothing ended".to_owned() } else { ended.join(", ") };
    format!("nothing was acknowledged from {from} s on, to the end at {:.1} s: {instead}", trial.seconds)
}

/// A line cut to a length that a terminal shows.
fn shortened(line: &str) -> String {
    const MOST: usize = 160;
    if line.chars().count() <= MOST {
        return line.to_owned();
    }
    line.chars().take(MOST).chain(['…']).collect()
}

/// The bench's own cost beside the fastest cell.
pub(crate) fn harness(result: &RunResult) -> String {
    let cost = result.harness.nanoseconds_per_operation;
    let searched = result.plan.capacity.is_some();
    let trials = result.cells.iter().flat_map(|cell| &cell.trials).filter(|_| searched);
    let fastest = result.cells.iter().filter(|_| !searched).map(CellResult::throughput);
    let fastest = fastest.chain(trials.map(|trial| trial.throughput)).fold(0.0, f64::max);
    if result.harness.operations == 0 {
        return "the bench itself: too few operations for a figure.".to_owned();
    }
    let varies = result.cells.windows(2).any(|two| two[0].headline != two[1].headline);
    let spread = result.harness.windows.map_or_else(String::new, |windows| {
        let (least, most) = (nanoseconds(windows.least_nanoseconds), nanoseconds(windows.most_nanoseconds));
        let choice = if varies { "with the first choice of its parameters, " } else { "" };
        format!("{least} to {most} in {} windows, {choice}", count(windows.count))
    });
    format!(
        "the bench itself: {} of one core for {} ({spread}on a store that does nothing), {:.2} % of a core at \
         the fastest {}'s rate.",
        nanoseconds(cost),
        result.harness.unit,
        cost * fastest / 1e9 * 100.0,
        if searched { "probe" } else { "cell" }
    )
}

#[cfg(test)]
mod tests {
    use acidtest_observe::ProcessUse;

    use super::*;
    use acidtest_engine::Stop;
    use acidtest_results::{StopFigures, sample::Grid};
    use acidtest_workloads::DURABILITY;

    #[test]
    fn client_threads_that_were_busy_all_the_time_may_have_set_the_limit() {
        let mut result = Grid { stores: &["redis"], locks: &[Lock::Native], ..Grid::default() }.result();
        let mut noted = |threads, busy| {
            result.cells[0].threads = threads;
            result.cells[0].trials.iter_mut().for_each(|trial| trial.resources.client.cpu_mean = busy);
            let all = notes(&result, &Names::of(&result.cells), true);
            all.into_iter().find(|note| note.contains("the bench, not the store, may have set the limit"))
        };
        for (threads, busy, used, remedy) in [
            (Some(2), 1.95, "1.95 of the 2 cores", "more --threads"),
            (None, 7.7, "7.70 of the 8 cores", "more clients"),
        ] {
            let note = noted(threads, busy).unwrap();
            assert!(note.contains(used) && note.contains(&format!("{remedy} would show it")), "{note}");
        }
        assert_eq!(noted(Some(2), 1.85), None);
        assert_eq!(noted(None, 7.5), None);
        let mut many =
            Grid { stores: &["redis"], clients: &[64], locks: &[Lock::Native], ..Grid::default() }.result();
        many.cells[0].trials.iter_mut().for_each(|trial| trial.resources.client.cpu_mean = 13.7);
        let all = notes(&many, &Names::of(&many.cells), true).join("\n");
        assert!(
            all.contains("the clients used 13.70 of the 16 cores")
                && all.contains("more cores would show it"),
            "{all}"
        );
    }

    #[test]
    fn a_mean_over_sessions_is_told_with_those_of_each() {
        let mut result = Grid { locks: &[Lock::Native], ..Grid::default() }.result();
        let said = |result: &RunResult| notes(result, &Names::of(&result.cells), true).join("\n");
        assert!(!said(&result).contains("sessions of a resumed run"));
        for (trial, (session, rate)) in
            result.cells[0].trials.iter_mut().zip([(1, 1_000.0), (1, 1_200.0), (2, 9_000.0)])
        {
            (trial.session, trial.throughput) = (session, rate);
        }
        let each = "1,100 ok/s in session 1 (2 trials), 9,000 ok/s in session 2 (1 trial)";
        assert!(said(&result).contains(each), "{}", said(&result));
    }

    fn is_busy(result: &RunResult) -> bool {
        let all = notes(result, &Names::of(&result.cells), true);
        all.iter().any(|note| note.contains("other programs used 4.50 of the machine's 16 cores"))
    }

    #[test]
    fn a_server_that_is_another_product_is_named_and_promises_nothing() {
        let mut result = Grid::default().result();
        for cell in &mut result.cells {
            cell.address = Some("postgres://db.example/".to_owned());
            cell.durability_asked = None;
            let effective = cell.effective.take().unwrap();
            cell.effective = Some(effective.of_another("CockroachDB v23.2", "PostgreSQL"));
        }
        let all = notes(&result, &Names::of(&result.cells), true).join("\n");
        assert!(all.contains("durability unknown: the server says that it is CockroachDB v23.2"), "{all}");
        assert!(all.contains("which crash an acknowledged write survives is unknown"), "{all}");
        assert!(
            !all.contains("durability disk") && !all.contains("according to the settings read back"),
            "{all}"
        );
        assert_eq!(result.cells[0].durability(), "unknown");
    }

    #[test]
    fn what_a_crash_left_is_said_with_what_was_acknowledged() {
        let mut result = Grid::default().result();
        let holds = result.cells[1].trials[0].audit.clone();
        result.cells[0].trials.iter_mut().for_each(|trial| trial.audit = holds.clone());
        let kill = InjectionFigures {
            fault: "kill".to_owned(),
            member: "server".to_owned(),
            due_seconds: 3.0,
            at_seconds: Some(3.25),
            back_seconds: Some(3.3),
            answered_seconds: Some(4.0),
            acknowledged: Some(1234),
            outstanding: None,
            interrupted: Some(7),
            crash: true,
            same_life: false,
            another_server: false,
            unserved_from_seconds: None,
            unserved_until_seconds: None,
            missed: false,
            overtaken: false,
            forced: false,
            last_ok_seconds: Some(3.2),
            next_ok_seconds: Some(4.2),
            promotion: None,
            not_promoted: None,
        };
        let queue = |outstanding| injection(&InjectionFigures { outstanding, ..kill.clone() });
        assert!(
            queue(Some(50))
                .ends_with("; 1,234 acknowledged before it (50 messages not yet consumed), 7 interrupted")
        );
        assert!(queue(Some(0)).ends_with("none of them known to be left in the queue, so it does not count"));
        let other = InjectionFigures { crash: false, ..kill.clone() };
        let locks = InjectionFigures { member: "locks".to_owned(), next_ok_seconds: None, ..other.clone() };
        let (unserved_from_seconds, unserved_until_seconds) = (Some(6.5), Some(7.0));
        let later = InjectionFigures { unserved_from_seconds, unserved_until_seconds, ..kill.clone() };
        assert!(injection(&later).contains("nobody was served for 0.50 s from 6.50 s on"), "{later:?}");
        let forced = InjectionFigures { fault: "restart".to_owned(), forced: true, ..kill.clone() };
        assert!(injection(&forced).contains("did not stop cleanly within 10 s and was killed; it answered"));
        let said = |result: &RunResult| notes(result, &Names::of(&result.cells), true).join("\n");
        assert!(said(&result).contains("no crash was tested in this run"));
        result.cells[0].trials[0].injections = vec![kill, locks];
        let text = said(&result);
        for words in [
            "kill at 3.25 s (due at 3.00 s): it answered 0.75 s later; nobody was served for 1.00 s; 1,234 acknowledged before it, 7 interrupted",
            "kill of locks at 3.25 s (due at 3.00 s): it answered 0.75 s later; nobody was served again within the run",
            "one crash, ",
            " unanswered: no loss seen",
            "tested by one crash of the server's process, not by a loss of power",
        ] {
            assert!(text.contains(words), "no {words:?} in {text}");
        }
        // the same cell without a fault is there to compare with, and the seconds before the end of the fault count for neither
        let mut compared = result.clone();
        for trial in &mut compared.cells[0].trials {
            let second = trial.series[0].clone();
            let alike =
                (0..10).map(|number| acidtest_results::SecondFigures { second: number, ..second.clone() });
            (trial.series, trial.seconds) = (alike.collect(), 10.0);
        }
        let mut base = compared.cells[0].clone();
        base.trials.iter_mut().for_each(|trial| trial.injections.clear());
        compared.cells[0].faults = "kill@3s".parse().unwrap();
        let injected = compared.cells[0].trials[0].injections.clone();
        for trial in &mut compared.cells[0].trials {
            trial.injections = injected.clone();
            trial.injections.iter_mut().for_each(|injected| injected.next_ok_seconds = Some(4.2));
            let before = trial.series.iter_mut().filter(|second| second.second < 5);
            before.for_each(|second| second.ended.clear());
        }
        compared.cells.insert(1, base);
        let priced = "in the seconds after its faults ×1.00";
        let told = said(&compared);
        assert!(told.contains(priced) && !said(&result).contains("in the seconds after"), "{told}");
        // what tested nothing of the level is told as what it was
        let gateway = InjectionFigures { member: "gateway".to_owned(), ..other.clone() };
        let restart = InjectionFigures { fault: "restart".to_owned(), ..other.clone() };
        let mut untested = result.clone();
        untested.cells[0].trials[0].injections = vec![gateway.clone(), restart, gateway];
        let told = said(&untested);
        assert!(told.contains("2 kills of the gateway and one restart, "), "{told}");
        assert!(told.contains("no crash was tested in this run"), "{told}");
        let audit = &mut result.cells[0].trials[0].audit;
        audit.verdict = Verdict::Broken;
        audit.findings.push(acidtest_workloads::Finding::new("lost", 7, "records", DURABILITY));
        assert!(said(&result).contains("one crash, ") && said(&result).contains(": lost 7 records"));
        // without a lock, a loss cannot be told from what the missing lock did
        let audit = &mut result.cells[0].trials[0].audit;
        audit.findings.retain(|finding| finding.guarantee == LOCK);
        audit.findings.iter_mut().for_each(|finding| finding.count = 5);
        assert!(
            said(&result).contains("which may include a loss") && !said(&result).contains("no loss seen")
        );
        audit_of_a_publisher_that_asked_for_nothing(&mut result);
        let told = ": lost 3 messages; 2 of the lost messages were sent before one that was kept; 1 of the lost messages \
                    had been delivered to consumers, were not acknowledged, and were never redelivered; the oldest of the \
                    lost messages was sent at most 1,180 ms before the next crash; 4 more may have been lost";
        assert!(said(&result).contains(told), "{}", said(&result));
        result.cells[0].trials[0].audit = acidtest_workloads::Audit::unknown("gone");
        assert!(said(&result).contains("what survived is unknown"));
    }

    fn of_leader(fault: &str, answered: Option<f64>) -> InjectionFigures {
        serde_json::from_value(serde_json::json!({
            "fault": fault, "member": "server-1", "due_seconds": 3.0, "at_seconds": 3.0,
            "back_seconds": answered.map(|_| 7.0), "answered_seconds": answered, "acknowledged": 5000, "interrupted": 8,
            "last_ok_seconds": 2.99, "next_ok_seconds": 4.4, "unserved_from_seconds": 2.99, "unserved_until_seconds": 4.4,
            "promotion": {
                "member": "server-2", "rule": "most-advanced", "at_seconds": 4.32,
                "behind": { "server-2": 0, "server-3": 16384 },
            },
        }))
        .unwrap()
    }

    #[test]
    fn who_took_over_from_a_leader_is_told() {
        let lost = of_leader("lose", None);
        assert_eq!(
            injection(&lost),
            "loss of server-1 at 3.00 s: server-2 was promoted (most-advanced; server-3 was 16,384 bytes behind) and took writes \
             after 1.32 s; nobody was served for 1.41 s; 5,000 acknowledged before it, 8 interrupted"
        );
        let cut = injection(&of_leader("cut", Some(9.5)));
        let told = "cut of server-1 at 3.00 s: server-2 was promoted (most-advanced; server-3 was 16,384 bytes behind) and took \
                    writes after 1.32 s; server-1 was cut off from the other members for 4.00 s, while clients reached it; it was then \
                    ended, and copied anew after the measured part; nobody was served for 1.41 s";
        assert!(cut.starts_with(told), "{cut}");
        let replica =
            |fault, answered| injection(&InjectionFigures { promotion: None, ..of_leader(fault, answered) });
        assert!(
            replica("lose", None).contains("it never came back, and acknowledgements wait for it no more; "),
            "{}",
            replica("lose", None)
        );
        let cut = replica("cut", Some(7.2));
        assert!(cut.contains("for 4.00 s; it answered as a member 4.20 s after"), "{cut}");
        // nothing was acknowledged before it
        let early = InjectionFigures { last_ok_seconds: None, ..lost.clone() };
        assert!(injection(&early).contains("server-2 was promoted"), "{}", injection(&early));
        let why = Some("no replica answered".to_owned());
        let nobody = InjectionFigures { promotion: None, not_promoted: why, ..lost.clone() };
        let nobody = injection(&nobody);
        assert!(nobody.contains("3.00 s: nobody was promoted: no replica answered; "), "{nobody}");
        let mut first = lost;
        let promotion = first.promotion.as_mut().unwrap();
        promotion.rule = "first".to_owned();
        promotion.behind = [("server-2".to_owned(), Some(9)), ("server-3".to_owned(), Some(0))].into();
        let first = injection(&first);
        assert!(first.contains("(first; although server-3 had 9 bytes more) and"), "{first}");
    }

    #[test]
    fn what_a_promotion_left_is_said_with_what_was_acknowledged() {
        let mut result = Grid { locks: &[Lock::Native], ..Grid::default() }.result();
        let cell = &mut result.cells[0];
        (cell.nodes, cell.replication) = (3, Replication::Quorum);
        let because = "synchronous_standby_names = ANY 1 (…)".to_owned();
        cell.replication_read = Some(acidtest_model::EffectiveReplication {
            level: Replication::Quorum,
            because,
            following: 2,
            consistency: acidtest_model::Consistency::Eventual,
        });
        cell.trials[0].injections = vec![of_leader("lose", None)];
        cell.trials[1].injections = vec![of_leader("cut", Some(9.5))];
        let said = |result: &RunResult| notes(result, &Names::of(&result.cells), true).join("\n");
        let text = said(&result);
        for words in [
            "replication quorum: an acknowledged write is on a majority, and survives the loss of a minority if the most advanced \
             replica takes over, according to the settings \
             read back; tested by 2 promotions.",
            "the loss of server-1, ",
            "one cut of server-1, ",
            " unanswered: no loss seen",
        ] {
            assert!(text.contains(words), "no {words:?} in {text}");
        }
        assert!(!text.contains("amount to replication"), "{text}");
        result.cells[0].replication = Replication::All;
        let audit = &mut result.cells[0].trials[1].audit;
        audit.verdict = Verdict::Broken;
        let guarantee = acidtest_workloads::guarantee::REPLICATION;
        audit.findings.push(acidtest_workloads::Finding::new("lost_updates", 12, "updates", guarantee));
        let text = said(&result);
        assert!(text.contains("one cut of server-1, ") && text.contains(": lost 12 updates"), "{text}");
        let settings = "the settings amount to replication quorum: synchronous_standby_names = ANY 1 (…)";
        assert!(text.contains(settings), "{text}");
        // a member of a cluster that was killed is named by its number
        let mut kill = InjectionFigures { promotion: None, crash: true, ..of_leader("kill", Some(4.2)) };
        "server-2".clone_into(&mut kill.member);
        result.cells[0].trials[1].injections = vec![kill];
        let text = said(&result);
        assert!(text.contains("tested by one crash of server-2's process"), "{text}");
    }

    #[test]
    fn what_is_promised_of_reads_at_replicas_is_said_with_what_was_tried() {
        let mut result = acidtest_results::sample::reads_at_replicas();
        let said = |result: &RunResult| notes(result, &Names::of(&result.cells), true).join("\n");
        let text = said(&result);
        for words in [
            "reads at members: each read of a record, also one that the leader answers, is compared",
            "as far behind as the oldest acknowledged write that it missed was old when it began.",
            "p50 needs 20 stale reads, p99 1,000.",
            "consistency eventual: a read may miss recent writes; they appear later. ",
            "according to the settings read back; 150,000 reads (66.0 % of them at replicas) tried it, and none missed what was \
             acknowledged before; other reads may still miss something.",
            "price of consistency: relative to the same cell with consistency eventual; ",
        ] {
            assert!(text.contains(words), "no {words:?} in {text}");
        }
        let unsaid = ["amount to consistency", "\nreads: ", "with the least of it"];
        assert!(unsaid.iter().all(|words| !text.contains(words)), "{text}");
        // one member may show what is not acknowledged yet, and the next one not
        result.cells[3].trials[0].staleness.as_mut().unwrap().went_back = 1;
        let back = "other reads may still miss something; 1 went back, which route spread permits.";
        assert!(said(&result).contains(back), "{}", said(&result));
        result.cells[3].route = acidtest_model::Route::Pinned;
        let back = "other reads may still miss something; 1 went back at one member, which it rules out.";
        assert!(said(&result).contains(back), "{}", said(&result));
        result.cells[3].route = acidtest_model::Route::Spread;
        result.cells[3].trials[0].staleness.as_mut().unwrap().stale = 2;
        let missed = "tried it, and 2 missed something; 1 went back";
        assert!(said(&result).contains(missed), "{}", said(&result));
        result.cells[3].faults = "pause:replica-1@3s:1s".parse().unwrap();
        let faulted =
            "no read without a fault tried it in this run; in a cell with a fault it is not promised.";
        assert!(said(&result).contains(faulted), "{}", said(&result));
        // how the only cell reads is in no name
        let alone = RunResult { cells: vec![result.cells[3].clone()], ..result.clone() };
        let how = "reads: any member, route spread, consistency strong (replication all, 3 nodes).";
        assert!(said(&alone).contains(how), "{}", said(&alone));
        result.cells[3].replication_read.as_mut().unwrap().consistency = Consistency::Eventual;
        let text = said(&result);
        let amounts = "the settings amount to consistency eventual: synchronous_standby_names";
        assert!(text.contains(amounts) && !text.contains("consistency strong: a read"), "{text}");
        result.cells.truncate(1);
        assert!(!said(&result).contains("reads at members"), "{}", said(&result));
    }

    /// A kill that another one overtakes has its outage, too.
    #[test]
    fn a_kill_that_another_one_overtakes_is_not_said_to_have_stopped_nobody() {
        let told = |until: f64| {
            let kill = serde_json::json!({
                "fault": "kill", "member": "server", "due_seconds": 3.25, "at_seconds": 3.25, "back_seconds": 3.3,
                "answered_seconds": null, "overtaken": true, "last_ok_seconds": 3.24, "next_ok_seconds": null,
                "unserved_from_seconds": 3.24, "unserved_until_seconds": until,
            });
            injection(&serde_json::from_value(kill).unwrap())
        };
        let said =
            "kill at 3.25 s: the next fault came before it answered again; nobody was served for 0.76 s";
        assert_eq!(told(4.0), said);
    }

    /// A life that nobody asked for is told as what is known of it, and what was lost then as no broken promise.
    #[test]
    fn a_restart_that_nobody_asked_for_is_told() {
        let of = |same_data, servers| RestartFigures {
            member: "server".to_owned(),
            found_seconds: Some(1.25),
            same_data,
            servers,
            unserved_from_seconds: None,
            unserved_until_seconds: None,
        };
        let from = Some(0.5);
        let mut result = Grid { locks: &[Lock::Native], ..Grid::default() }.result();
        for (figures, words) in [
            (
                of(None, 1),
                "the server restarted, or another one took its place, found at 1.25 s: nobody requested it",
            ),
            (of(Some(true), 1), "the server restarted, found at 1.25 s"),
            (
                RestartFigures {
                    unserved_from_seconds: from,
                    unserved_until_seconds: Some(1.3),
                    ..of(Some(true), 1)
                },
                "is unknown; nobody was served for 0.80 s from 0.50 s on",
            ),
            (
                RestartFigures { unserved_from_seconds: from, ..of(Some(true), 1) },
                "is unknown; from 0.50 s on nobody was served again within the run",
            ),
            (of(Some(false), 1), "another server answered in place of the server, found at 1.25 s"),
            (of(None, 3), "3 servers answered at the address of the server, and another one later"),
            (
                RestartFigures { member: "locks".to_owned(), ..of(Some(true), 1) },
                "the lock service restarted, found",
            ),
            (
                RestartFigures { found_seconds: None, ..of(Some(true), 1) },
                "restarted, found outside of the measured part",
            ),
        ] {
            result.cells[0].trials[0].restarts = vec![figures];
            let told = notes(&result, &Names::of(&result.cells), true).join("\n");
            assert!(
                told.contains(words) && told.contains("no crash was tested in this run"),
                "{words}: {told}"
            );
        }
        let audit = &mut result.cells[0].trials[0].audit;
        audit.verdict = Verdict::Broken;
        audit.findings = vec![Finding::new("deficit", 9, "units", DURABILITY)];
        let said = |result: &RunResult| crate::conclusion::conclusion(result, &Names::of(&result.cells));
        assert!(said(&result).contains("Broken despite a promise"), "{}", said(&result));
        result.cells[0].trials[0].audit.excused = vec![DURABILITY.name.to_owned()];
        assert!(said(&result).contains("as expected where no durability is promised"), "{}", said(&result));
        assert!(result.cells[0].lost_acknowledged() && !result.cells[0].breaks_promise());
    }

    /// Its messages are lost with no promise of durability broken.
    fn audit_of_a_publisher_that_asked_for_nothing(result: &mut RunResult) {
        let audit = &mut result.cells[0].trials[0].audit;
        let lost =
            Finding { guarantee: "delivery".to_owned(), ..Finding::new("lost", 3, "messages", DURABILITY) };
        audit.findings = vec![lost];
        audit.evidence.insert(HOLES.to_owned(), 2);
        audit.evidence.insert(IN_HAND.to_owned(), 1);
        audit.evidence.insert(DOUBTFUL.to_owned(), 4);
        audit.evidence.insert(OLDEST_LOST.to_owned(), 1180);
    }

    /// Clients use 0.5 cores and the server 1.5.
    #[test]
    fn a_machine_that_was_busy_with_something_else_is_told() {
        let mut result = Grid::default().result();
        assert!(!is_busy(&result));
        for trial in &mut result.cells[0].trials {
            trial.resources.machine.cpu_mean = 6.5;
        }
        // a lock service is the run's own
        let mut with_locks = result.clone();
        for trial in &mut with_locks.cells[0].trials {
            let used = ProcessUse { cpu_mean: 4.5, ..trial.resources.client.clone() };
            trial.resources.others.insert("locks".to_owned(), used);
        }
        assert!(is_busy(&result) && !is_busy(&with_locks));
        for trial in result.cells.iter_mut().flat_map(|cell| &mut cell.trials) {
            trial.resources.machine.cpu_mean = 7.0;
        }
        let text = notes(&result, &Names::of(&result.cells), true).join("\n");
        assert_eq!(text.matches("other programs used 5.00 of").count(), 1, "{text}");
        for trial in result.cells.iter_mut().skip(1).flat_map(|cell| &mut cell.trials) {
            trial.resources.machine.cpu_mean = 2.0;
        }
        // a server whose processes are not known may be what used them
        for trial in &mut result.cells[0].trials {
            trial.resources.server = None;
        }
        result.cells[0].embedded = false;
        assert!(!is_busy(&result));
    }

    fn shown(result: &RunResult) -> String {
        crate::render(result, crate::Style { color: false, width: None }).unwrap()
    }

    #[test]
    fn a_server_that_came_again_is_not_left_as_gone() {
        let mut stopped = StopFigures::from(Stop::ServerGone("it was killed by signal 9".to_owned()));
        assert!(stopped.is_server_gone() && !StopFigures::from(Stop::Interrupted).is_server_gone());
        stopped.answers_after_all();
        let mut result = Grid::default().result();
        result.cells[0].trials[0].stopped = Some(stopped);
        let said = shown(&result);
        let told = "server gone: it was killed by signal 9; the server answered when the trial was over";
        assert!(said.contains(told), "{said}");
    }

    #[test]
    fn why_there_is_no_law_is_noted() {
        let mut result =
            Grid { clients: &[1, 2, 4, 8, 16, 32], locks: &[Lock::Native], ..Grid::default() }.result();
        for trial in
            result.cells.iter_mut().filter(|cell| cell.clients >= 16).flat_map(|cell| &mut cell.trials)
        {
            trial.resources.machine.cpu_mean += 8.0;
        }
        let text = shown(&result);
        let note = "no law was fitted to the figures of sqlite native, because other programs used the machine at 16 and 32 clients";
        assert!(text.contains(note), "{text}");
    }

    #[test]
    fn an_outage_is_noted_with_what_it_makes_void() {
        let said = |until: f64| {
            let mut result =
                Grid { locks: &[Lock::Soft, Lock::Native], seconds: 10, ..Grid::default() }.result();
            result.cells[0].lock = Lock::None;
            result.cells[1].trials = result.cells[0].trials.clone();
            for trial in &mut result.cells[1].trials {
                let kill = serde_json::from_value(serde_json::json!({
                    "fault": "kill", "member": "server", "due_seconds": 1.0, "at_seconds": 1.0, "back_seconds": 1.0,
                    "answered_seconds": 1.0, "last_ok_seconds": 1.0, "next_ok_seconds": until,
                }));
                trial.note_outages(vec![kill.unwrap()], Vec::new(), false);
            }
            result.price().unwrap();
            shown(&result)
        };
        let long = said(6.1);
        assert!(long.contains("nobody was served for 5.10 of the 10.00 s of trial 1: too little"), "{long}");
        assert!(long.contains(" void "), "{long}");
        let short = said(3.0);
        assert!(short.contains("based on served/s: prices") && !short.contains("too little"), "{short}");
    }
}
