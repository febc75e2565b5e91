//! A result on a terminal.

use std::{collections::BTreeSet, fmt::Write};

use acidtest_engine::Outcome;
use acidtest_model::Lock;
use acidtest_observe::{MachineUse, ProcessUse};
use acidtest_workloads::Verdict;

use crate::{
    CellResult, Guarantee, LatencyFigures, OperationFigures, Ratio, RefusedKind, RunResult, TrialResult,
    UnreadableHistogram,
    dimensions::{ADDRESS, CLIENTS, DURABILITY, LOCK, NOT_THERE, RATE, STORE, spoken, varying},
    figure::{bytes, count, nanoseconds, rate, three_digits, total},
    notes::notes,
    scalability::Fitted,
    sheet::{Entry, Sheet},
    sweeps,
    waiting::waiting,
};

/// How a result is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Colours and weights, where the terminal has them and the user wants them.
    pub color: bool,
    /// Columns of the terminal; unlimited if not known.
    pub width: Option<u16>,
}

/// The result as text: what was run, a table of cells, a table of times, and what to know about them.
///
/// # Errors
/// A histogram that cannot be read.
pub fn render(result: &RunResult, style: Style) -> Result<String, UnreadableHistogram> {
    let mut text = String::new();
    // a table of which nothing was run is left out
    let columns = Columns::of(result);
    let many = result.cells.len() > MANY;
    let used = if many { Sheet::default() } else { resources(result, &columns) };
    let tables = [
        cells(result, &columns),
        prices(result, &columns),
        scalability(result, &columns),
        times(result, &columns, !many)?,
        used,
    ];
    let tables = tables.iter().filter(|table| !table.rows.is_empty()).map(|table| table.terminal(style));
    let before = [Some(headline(result)), waiting(result)];
    let sections = before.into_iter().flatten().chain(tables).chain([notes(result, false).join("\n")]);
    for section in sections {
        // a line at a time, as tables pad theirs
        for line in section.lines() {
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text.push('\n');
    }
    Ok(text.trim_end().to_owned() + "\n")
}

pub(crate) fn headline(result: &RunResult) -> String {
    let plan = &result.plan;
    let machine = &result.machine;
    format!(
        "{} · {}\n{}\n{} · {} cores, {} memory, {} · Linux {} · acidtest {}",
        plan.workload,
        workload(result),
        driving(result),
        machine.cpu,
        machine.cores,
        bytes(machine.memory_bytes as f64),
        machine.filesystem,
        machine.kernel,
        result.acidtest,
    )
}

/// What the workload does, for each choice of its parameters.
pub(crate) fn workload(result: &RunResult) -> String {
    let mut lines: Vec<&str> = result.cells.iter().map(|cell| cell.headline.as_str()).collect();
    lines.sort_unstable();
    lines.dedup();
    match lines.as_slice() {
        [one] => (*one).to_owned(),
        several => format!("{} choices of its parameters", several.len()),
    }
}

pub(crate) fn driving(result: &RunResult) -> String {
    let plan = &result.plan;
    let arrivals = match plan.rates.as_slice() {
        [] => "closed loop".to_owned(),
        offered => {
            let spaced = match plan.arrivals {
                crate::ArrivalKind::Constant => "evenly spaced",
                crate::ArrivalKind::Poisson => "Poisson",
            };
            let offered: Vec<String> = offered.iter().map(|each| rate(*each)).collect();
            format!("open loop, {} ops/s offered, {spaced}", offered.join(" | "))
        }
    };
    let extent = match (plan.trace, plan.ops) {
        (Some(length), _) => format!("a replayed sequence of {} operations", count(length)),
        (None, Some(ops)) => format!("{} operations after {} warm-up", count(ops), plan.warmup),
        (None, None) => format!("{} after {} warm-up", plan.duration, plan.warmup),
    };
    let trials = match plan.trials {
        1 => "1 trial a cell".to_owned(),
        trials => format!("{trials} trials a cell, interleaved"),
    };
    let refused = match plan.on_refused {
        RefusedKind::Count if plan.trace.is_none() => "",
        RefusedKind::Count | RefusedKind::Retry => " · refused captures wait 5 ms and try again",
    };
    let mut numbers: Vec<u32> = Vec::new();
    for cell in &result.cells {
        if !numbers.contains(&cell.clients) {
            numbers.push(cell.clients);
        }
    }
    format!("{}, {arrivals} · {extent} · {trials}{refused} · seed {}", clients(&numbers), plan.seed)
}

pub(crate) fn clients(numbers: &[u32]) -> String {
    let shown: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    format!("{} {}", shown.join(", "), if numbers == [1] { "client" } else { "clients" })
}

/// What tells the rows of a result apart: the store, the lock, and whatever else differs between its cells.
pub(crate) struct Columns {
    /// Whether any cell has something to protect by a lock.
    lock: bool,
    others: Vec<String>,
}

impl Columns {
    pub(crate) fn of(result: &RunResult) -> Self {
        let mut others = varying(&result.cells);
        others.retain(|name| ![STORE, ADDRESS, LOCK].contains(&name.as_str()));
        Self { lock: result.cells.iter().any(|cell| cell.decides), others }
    }

    /// The same, but for one of them.
    pub(crate) fn without(&self, name: &str) -> Self {
        Self { lock: self.lock, others: self.others.iter().filter(|other| *other != name).cloned().collect() }
    }

    pub(crate) fn header(&self) -> Vec<&str> {
        let own = [Some(STORE), self.lock.then_some(LOCK)];
        own.into_iter().flatten().chain(self.others.iter().map(String::as_str)).collect()
    }

    pub(crate) fn values(&self, cell: &CellResult) -> Vec<String> {
        let own = [Some(spoken(cell, STORE)), self.lock.then(|| cell.lock.to_string())];
        let others = self.others.iter().map(|name| match (name.as_str(), cell.rate) {
            (RATE, Some(offered)) => rate(offered) + "/s",
            _ => cell.dimension(name),
        });
        own.into_iter().flatten().chain(others).collect()
    }

    pub(crate) fn entries(&self, cell: &CellResult) -> Vec<Entry> {
        let number = |text: &String| text.parse::<f64>().is_ok();
        self.values(cell)
            .into_iter()
            .map(|text| if number(&text) { Entry::right(text) } else { Entry::left(text) })
            .collect()
    }

    pub(crate) fn sheet(&self, rest: &[&str]) -> Sheet {
        Sheet::of(&[&self.header(), rest].concat())
    }
}

/// The rung that the settings amount to; where another one was asked for, that too.
pub(crate) fn rung(cell: &CellResult) -> String {
    let Some(effective) = &cell.effective else { return "–".to_owned() };
    match cell.durability_asked.filter(|asked| *asked != effective.durability) {
        Some(asked) => format!("{} ({asked} asked)", effective.durability),
        None => effective.durability.to_string(),
    }
}

/// One row a cell: does it hold, how fast, at what price of its lock.
pub(crate) fn cells(result: &RunResult, columns: &Columns) -> Sheet {
    let several = result.cells.iter().any(|cell| cell.trials.len() > 1);
    let priced = result.prices(Guarantee::Lock);
    // the rung that was read back has a column in any case
    let columns = columns.without(DURABILITY);
    let mut header = vec![DURABILITY, "verdict", "ok/s"];
    header.extend(several.then_some(["95 % interval", "CV"]).into_iter().flatten());
    header.extend(priced.then_some("price of lock"));
    let own = OwnRates::of(result);
    let titles = own.titles();
    header.extend(titles.iter().map(String::as_str));
    header.extend(["refused", "conflicts", "retries"]);
    let mut table = columns.sheet(&header);
    for cell in &result.cells {
        let totals = |of: &dyn Fn(&OperationFigures) -> u64| {
            let all = cell.trials.iter().flat_map(|trial| trial.operations.iter().map(of));
            Entry::right(count(total(all)))
        };
        let mut row = columns.entries(cell);
        row.push(Entry::left(rung(cell)));
        row.push(Entry::verdict(verdict(cell), cell.verdict()));
        row.extend(throughput(cell, several).into_iter().map(Entry::right));
        row.extend(priced.then(|| Entry::right(price(result, cell, Guarantee::Lock))));
        row.extend(own.of_cell(cell).into_iter().map(Entry::right));
        row.push(totals(&|operation| operation.refusals));
        row.push(totals(&|operation| operation.conflicts));
        row.push(totals(&|operation| operation.retries));
        table.push(row);
    }
    table
}

/// Columns that only some workloads have: rates of operations that throughput does not count, how high a gauge
/// rose, and what the audit took note of.
struct OwnRates {
    operations: Vec<String>,
    gauge: Option<String>,
    redelivered: bool,
}

/// The audit's evidence that has a column where there is any.
const REDELIVERED: &str = "redelivered";

impl OwnRates {
    fn of(result: &RunResult) -> Self {
        let trials = || result.cells.iter().flat_map(|cell| &cell.trials);
        let mut operations: Vec<String> = Vec::new();
        for operation in trials().flat_map(TrialResult::other_operations) {
            if !operations.contains(&operation.name) {
                operations.push(operation.name.clone());
            }
        }
        let gauge = trials().find_map(|trial| Some(trial.gauge.as_ref()?.name.clone()));
        let redelivered = trials().any(|trial| trial.audit.evidence.contains_key(REDELIVERED));
        Self { operations, gauge, redelivered }
    }

    fn titles(&self) -> Vec<String> {
        let rates = self.operations.iter().map(|name| format!("{name}/s"));
        let gauge = self.gauge.iter().map(|name| format!("most {name}"));
        rates.chain(gauge).chain(self.redelivered.then(|| REDELIVERED.to_owned())).collect()
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
        let again = || {
            let seen = cell.trials.iter().filter_map(|trial| trial.audit.evidence.get(REDELIVERED));
            count(total(seen.filter_map(|count| u64::try_from(*count).ok())))
        };
        let rates = self.operations.iter().map(own);
        rates.chain(self.gauge.iter().map(|_| most())).chain(self.redelivered.then(again)).collect()
    }
}

/// The mean; where some cell has several trials, its interval and the coefficient of variation.
fn throughput(cell: &CellResult, several: bool) -> Vec<String> {
    let none = || "–".to_owned();
    let mean = cell.mean_throughput();
    let mut shown = vec![mean.map_or_else(none, |mean| rate(mean.estimate))];
    if several {
        let interval = mean.and_then(|mean| mean.interval);
        shown.push(interval.map_or_else(none, |(low, high)| format!("{}–{}", rate(low), rate(high))));
        shown.push(mean.and_then(|mean| mean.variation).map_or_else(none, percent));
    }
    shown
}

/// A share as a percentage: `1.2 %`, `34 %`.
pub(crate) fn percent(share: f64) -> String {
    let shown = share * 100.0;
    if shown.abs() < 9.95 { format!("{shown:.1} %") } else { format!("{shown:.0} %") }
}

/// Prices of the other guarantees: a row for each guarantee of a cell that has a cell without it.
pub(crate) fn prices(result: &RunResult, columns: &Columns) -> Sheet {
    let mut table = columns.sheet(&["verdict", "price of", "against", "ok/s", "p99"]);
    for cell in &result.cells {
        for guarantee in Guarantee::ALL.into_iter().filter(|guarantee| *guarantee != Guarantee::Lock) {
            if !result.baseline(guarantee, cell) {
                continue;
            }
            let price = cell.prices.iter().find(|price| price.guarantee == guarantee);
            let mut row = columns.entries(cell);
            row.push(Entry::verdict(cell.verdict().to_string(), cell.verdict()));
            row.push(Entry::left(guarantee.priced(cell, price)));
            row.push(Entry::left(price.map_or("–", |price| price.against.as_str())));
            row.push(Entry::right(price.map_or_else(|| unpriced(cell), |price| ratio(&price.throughput))));
            let p99 = price.and_then(|price| price.p99.as_ref());
            row.push(Entry::right(p99.map_or_else(|| unpriced(cell), ratio)));
            table.push(row);
        }
    }
    table
}

/// The law of each sweep over clients that has one.
pub(crate) fn scalability(result: &RunResult, columns: &Columns) -> Sheet {
    let columns = columns.without(CLIENTS);
    let header = [
        "clients",
        "verdict",
        "λ (ok/s of one)",
        "σ contention",
        "κ coherency",
        "peak at",
        "ok/s there",
        "R²",
    ];
    let mut table = columns.sheet(&header);
    for sweep in sweeps(result) {
        let (Some(law), Some((&fewest, cell)), Some((&most, _))) =
            (sweep.law, sweep.cells.first_key_value(), sweep.cells.last_key_value())
        else {
            continue;
        };
        let mut row = columns.entries(cell);
        row.push(Entry::left(format!("{fewest}–{most}")));
        row.push(Entry::verdict(sweep.verdict().to_string(), sweep.verdict()));
        row.push(Entry::right(fitted(&law.lambda, rate)));
        row.push(Entry::right(fitted(&law.sigma, parameter)));
        row.push(Entry::right(fitted(&law.kappa, parameter)));
        row.push(Entry::right(
            law.peak.map_or_else(|| "no peak".to_owned(), |peak| fitted(&peak, |n| format!("{n:.0}"))),
        ));
        row.push(Entry::right(law.peak.map_or_else(|| "–".to_owned(), |peak| rate(law.at(peak.estimate)))));
        row.push(Entry::right(format!("{:.3}", law.r_squared)));
        table.push(row);
    }
    table
}

/// A figure of the law with its interval, if it has one; ∞ where that has no upper end.
pub(crate) fn fitted(figure: &Fitted, shown: impl Fn(f64) -> String) -> String {
    let estimate = shown(figure.estimate);
    match figure.interval {
        None => estimate,
        Some((low, high)) => {
            let high = high.map_or_else(|| "∞".to_owned(), &shown);
            format!("{estimate} ({}–{high})", shown(low))
        }
    }
}

/// σ or κ in three digits.
pub(crate) fn parameter(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value < 0.001 => format!("{value:.1e}"),
        value => format!("{value:.4}"),
    }
}

fn cores(mean: f64) -> String {
    // a mean of nothing may be a negative zero
    format!("{:.2} cores", mean.max(0.0))
}

/// A process's use over the trials: means of the means, the largest of the maxima.
struct Use {
    cpu_mean: f64,
    cpu_max: f64,
    memory_mean: f64,
    memory_max: f64,
    /// Bytes a second; none where they could not be read.
    read: Option<f64>,
    written: Option<f64>,
}

impl Use {
    fn of<'a>(seen: impl Iterator<Item = (f64, &'a ProcessUse)>) -> Option<Self> {
        let seen: Vec<(f64, &ProcessUse)> = seen.collect();
        let n = seen.len() as f64;
        let mean =
            |figure: fn(&ProcessUse) -> f64| seen.iter().map(|(_, each)| figure(each)).sum::<f64>() / n;
        let most =
            |figure: fn(&ProcessUse) -> f64| seen.iter().map(|(_, each)| figure(each)).fold(0.0, f64::max);
        let per_second = |figure: fn(&ProcessUse) -> Option<u64>| {
            let rates: Option<Vec<f64>> =
                seen.iter().map(|(seconds, each)| Some(figure(each)? as f64 / seconds.max(1e-9))).collect();
            rates.map(|rates| rates.iter().sum::<f64>() / n)
        };
        (!seen.is_empty()).then(|| Self {
            cpu_mean: mean(|each| each.cpu_mean),
            cpu_max: most(|each| each.cpu_max),
            memory_mean: mean(|each| each.memory_mean_bytes as f64),
            memory_max: most(|each| each.memory_max_bytes as f64),
            read: per_second(|each| each.read_bytes),
            written: per_second(|each| each.written_bytes),
        })
    }

    fn row(&self) -> [String; 6] {
        let per_second =
            |figure: Option<f64>| figure.map_or_else(|| "–".to_owned(), |each| bytes(each) + "/s");
        [
            cores(self.cpu_mean),
            cores(self.cpu_max),
            bytes(self.memory_mean),
            bytes(self.memory_max),
            per_second(self.read),
            per_second(self.written),
        ]
    }
}

/// What the server's processes used; none where they are not on this machine or inside the client.
fn server_use(cell: &CellResult) -> Option<Use> {
    let seen = cell.trials.iter();
    Use::of(seen.filter_map(|trial| Some((trial.resources.seconds, trial.resources.server.as_ref()?))))
}

/// Cells above which a terminal is spared what each of them used.
pub(crate) const MANY: usize = 24;

/// Up to three rows a cell: what clients, server and the whole machine used.
pub(crate) fn resources(result: &RunResult, columns: &Columns) -> Sheet {
    let header = [
        "used by",
        "CPU mean",
        "CPU max",
        "memory mean",
        "memory max",
        "disk read",
        "disk written",
        "stalled (PSI)",
    ];
    let mut table = columns.sheet(&header);
    for cell in result.cells.iter().filter(|cell| !cell.trials.is_empty()) {
        let client = cell.trials.iter().map(|trial| (trial.resources.seconds, &trial.resources.client));
        let clients = if cell.embedded { "clients and store" } else { "clients" };
        for (user, used) in [(clients, Use::of(client)), ("server", server_use(cell))] {
            let Some(used) = used else { continue };
            let mut row = columns.entries(cell);
            row.push(Entry::left(user));
            row.extend(used.row().map(Entry::right));
            table.push(row);
        }
        let mut row = columns.entries(cell);
        row.push(Entry::left("machine"));
        row.push(Entry::right(cores(cell.mean(|trial| trial.resources.machine.cpu_mean))));
        let most = cell.trials.iter().map(|trial| trial.resources.machine.cpu_max).fold(0.0, f64::max);
        row.push(Entry::right(cores(most)));
        row.extend(["–"; 4].map(Entry::right));
        row.push(Entry::left(stalled(cell)));
        table.push(row);
    }
    table
}

/// Shares of the time in which some task of the machine waited for a resource.
fn stalled(cell: &CellResult) -> String {
    let share = |what: &str, figure: fn(&MachineUse) -> Option<f64>| {
        let seen: Option<Vec<f64>> =
            cell.trials.iter().map(|trial| figure(&trial.resources.machine)).collect();
        seen.map(|seen| format!("{what} {:.0} %", seen.iter().sum::<f64>() / seen.len() as f64))
    };
    let shares = [
        share("CPU", |machine| machine.pressure_cpu_some),
        share("disk", |machine| machine.pressure_io_some),
        share("memory", |machine| machine.pressure_memory_some),
    ];
    let shares: Vec<String> = shares.into_iter().flatten().collect();
    if shares.is_empty() { "not known".to_owned() } else { shares.join(", ") }
}

/// The verdict over all trials, with the gravest finding of the worst of them.
pub(crate) fn verdict(cell: &CellResult) -> String {
    let worst = cell.trials.iter().max_by_key(|trial| {
        (trial.audit.verdict, total(trial.audit.findings.iter().map(|finding| finding.count)))
    });
    let Some(worst) = worst else { return "unknown: not run".to_owned() };
    let shown = match worst.audit.findings.iter().find(|finding| finding.count > 0) {
        Some(gravest) => {
            format!("{}: {} {} {}", worst.audit.verdict, gravest.name, count(gravest.count), gravest.unit)
        }
        None => worst.audit.verdict.to_string(),
    };
    match (worst.audit.verdict, cell.trials.len()) {
        (Verdict::Holds, _) | (_, 1) => shown,
        (verdict, all) => {
            let such = cell.trials.iter().filter(|trial| trial.audit.verdict == verdict).count();
            format!("{shown} ({such} of {all} trials)")
        }
    }
}

fn price(result: &RunResult, cell: &CellResult, guarantee: Guarantee) -> String {
    match cell.prices.iter().find(|price| price.guarantee == guarantee) {
        None if guarantee == Guarantee::Lock && cell.lock == Lock::None => "1 (baseline)".to_owned(),
        None if !result.baseline(guarantee, cell) => "–".to_owned(),
        None => unpriced(cell),
        // an open loop's throughput is what was offered
        Some(price) if cell.rate.is_some() => price.p99.as_ref().map_or_else(|| "–".to_owned(), ratio),
        Some(price) => ratio(&price.throughput),
    }
}

/// Why there is no price although there is a baseline: a number whose guarantee broke is void.
fn unpriced(cell: &CellResult) -> String {
    let void = !cell.trials.is_empty() && cell.verdict() != Verdict::Holds;
    if void { "void" } else { "–" }.to_owned()
}

/// A ratio with its interval, or the word that it has none; ≈ marks one inside the noise.
pub(crate) fn ratio(ratio: &Ratio) -> String {
    let estimate = three_digits(ratio.estimate);
    let Some((low, high)) = ratio.interval else { return format!("×{estimate} (1 trial)") };
    let inside = if ratio.differs() { "" } else { " ≈" };
    format!("×{estimate} ({}–{}){inside}", three_digits(low), three_digits(high))
}

/// Names of the operations that some trial of the cell tried, in the order in which they turn up.
pub(crate) fn operations(cell: &CellResult) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for operation in cell.trials.iter().flat_map(|trial| &trial.operations) {
        if !names.contains(&operation.name.as_str()) {
            names.push(&operation.name);
        }
    }
    names
}

/// What each trial has of an operation; trials that never tried it have nothing.
pub(crate) fn each<'a>(cell: &'a CellResult, name: &str) -> impl Iterator<Item = &'a OperationFigures> {
    cell.trials.iter().filter_map(move |trial| trial.operation(name))
}

/// One row a cell and operation: how fast, and how long it took. An open loop has the response times
/// too, from when an operation was due; where there was one, the first, cold execution has its own row, and so has,
/// unless only what was acknowledged is wanted, what ended in any other way.
pub(crate) fn times(result: &RunResult, columns: &Columns, all: bool) -> Result<Sheet, UnreadableHistogram> {
    let header = ["verdict", "operation", "ok/s", "time", "p50", "p95", "p99", "p99.9", "max"];
    let mut table = columns.sheet(&header);
    for cell in &result.cells {
        for name in operations(cell) {
            let service = LatencyFigures::merged(each(cell, name).filter_map(|each| each.service.get("ok")))?;
            let response =
                LatencyFigures::merged(each(cell, name).filter_map(|each| each.response.get("ok")))?;
            let first = first(cell, name);
            let shown = [
                Some(("service", percentiles(service.as_ref()))),
                response.map(|figures| ("response", percentiles(Some(&figures)))),
                first.map(|figures| ("first", figures)),
            ];
            let per_second = cell.mean(|trial| trial.operation(name).map_or(0.0, |each| each.ok_per_second));
            for (times, figures) in shown.into_iter().flatten() {
                let mut row = columns.entries(cell);
                row.push(Entry::verdict(cell.verdict().to_string(), cell.verdict()));
                row.push(Entry::left(name));
                row.push(Entry::right(if times == "first" { "–".to_owned() } else { rate(per_second) }));
                row.push(Entry::left(times));
                row.extend(figures.map(Entry::right));
                table.push(row);
            }
            for outcome in Outcome::ALL.into_iter().filter(|outcome| all && *outcome != Outcome::Ok) {
                let ended = each(cell, name).filter_map(|each| each.service.get(outcome.name()));
                let Some(figures) = LatencyFigures::merged(ended)? else { continue };
                let mut row = columns.entries(cell);
                row.push(Entry::verdict(cell.verdict().to_string(), cell.verdict()));
                row.push(Entry::left(format!("{name}, {}", outcome.name())));
                row.push(Entry::right(NOT_THERE));
                row.push(Entry::left("service"));
                row.extend(percentiles(Some(&figures)).map(Entry::right));
                table.push(row);
            }
        }
        for span in spans(cell) {
            let figures = LatencyFigures::merged(each_span(cell, span))?;
            let mut row = columns.entries(cell);
            row.push(Entry::verdict(cell.verdict().to_string(), cell.verdict()));
            row.push(Entry::left(span));
            row.push(Entry::right(NOT_THERE));
            row.push(Entry::left("end to end"));
            row.extend(percentiles(figures.as_ref()).map(Entry::right));
            table.push(row);
        }
    }
    Ok(table)
}

/// Names of the spans that some trial of the cell has.
pub(crate) fn spans(cell: &CellResult) -> BTreeSet<&str> {
    cell.trials.iter().flat_map(|trial| &trial.spans).map(|span| span.name.as_str()).collect()
}

fn each_span<'a>(cell: &'a CellResult, name: &str) -> impl Iterator<Item = &'a LatencyFigures> {
    let all = cell.trials.iter().flat_map(|trial| &trial.spans);
    all.filter(move |span| span.name == name).map(|span| &span.times)
}

/// The first execution after loading: median and largest over the trials.
fn first(cell: &CellResult, name: &str) -> Option<[String; 5]> {
    let mut seen: Vec<u64> =
        cell.trials.iter().filter_map(|trial| trial.remarks.first_ns.get(name).copied()).collect();
    seen.sort_unstable();
    let shown =
        |value: Option<&u64>| value.map_or_else(|| "–".to_owned(), |value| nanoseconds(*value as f64));
    let none = || "–".to_owned();
    (!seen.is_empty()).then(|| [shown(seen.get(seen.len() / 2)), none(), none(), none(), shown(seen.last())])
}

fn percentiles(figures: Option<&LatencyFigures>) -> [String; 5] {
    let Some(figures) = figures else { return ["–"; 5].map(str::to_owned) };
    [figures.p50_ns, figures.p95_ns, figures.p99_ns, figures.p999_ns, figures.max_ns]
        .map(|value| nanoseconds(value as f64))
}

#[cfg(test)]
mod tests {
    use acidtest_model::Durability;

    use super::*;
    use crate::sample::{Grid, golden};

    const PLAIN: Style = Style { color: false, width: None };

    fn shown(grid: &Grid) -> String {
        render(&grid.result(), PLAIN).unwrap()
    }

    #[test]
    fn the_table_is_the_golden_one() {
        let grid = Grid {
            durability: &[Durability::None, Durability::Disk],
            transactions: &[1, 10],
            ..Grid::default()
        };
        golden("table.txt", &shown(&grid));
    }

    /// The four write cases of the locks study, and confirms between them, at its rates.
    #[test]
    fn a_queue_s_table_is_the_golden_one() {
        let result = crate::sample::queue([
            ("none", false, 31_922.0),
            ("confirm", false, 10_000.0),
            ("transaction", false, 1_794.0),
            ("none", true, 15_518.0),
            ("confirm", true, 5_000.0),
            ("transaction", true, 37.0),
        ]);
        golden("queue.txt", &render(&result, PLAIN).unwrap());
    }

    /// Only what varies has a column.
    #[test]
    fn a_grid_over_any_parameter_says_what_varies() {
        let header = |grid: &Grid| shown(grid).lines().find(|line| line.contains("ok/s")).unwrap().to_owned();
        let plain = header(&Grid::default());
        assert!(
            !plain.contains("clients") && !plain.contains("transaction") && !plain.contains("items"),
            "{plain}"
        );
        let swept = header(&Grid { clients: &[1, 8], transactions: &[1, 10], ..Grid::default() });
        assert!(
            swept.contains("clients") && swept.contains("transaction") && !swept.contains("items"),
            "{swept}"
        );
    }

    #[test]
    fn one_trial_has_no_interval() {
        let text = shown(&Grid { trials: 1, ..Grid::default() });
        assert!(!text.contains("CV") && text.contains("(1 trial)") && text.contains("--trials"), "{text}");
    }

    /// 480 measurements.
    #[test]
    fn a_large_grid_stays_readable() {
        let text = shown(&Grid::LARGE);
        let lines = text.lines().count();
        let notes = text.rsplit("\n\n").next().unwrap().lines().count();
        assert!(lines < 600 && notes < 40, "{lines} lines, {notes} of notes:\n{text}");
        let widest = text.lines().take(200).map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 185, "{widest}");
    }

    #[test]
    fn operations_are_found_by_name() {
        let mut result = Grid::default().result();
        let cell = &mut result.cells[1];
        cell.trials[0].operations.remove(0);
        cell.trials[1].operations.reverse();
        assert_eq!(operations(cell), ["release", "capture"]);
        assert_eq!(each(cell, "capture").count(), 2);
    }

    /// What ended in another way than acknowledged has its times, too: they may be most of what clients waited for.
    #[test]
    fn what_was_refused_has_a_row_of_its_own() {
        let mut result = Grid::default().result();
        let rows = |result: &RunResult, all| {
            let sheet = times(result, &Columns::of(result), all).unwrap();
            let shown =
                |row: &Vec<Entry>| row.iter().map(|entry| entry.text.clone()).collect::<Vec<_>>().join(" | ");
            sheet.rows.iter().map(shown).filter(|row| row.contains("capture")).collect::<Vec<_>>()
        };
        let before = rows(&result, true);
        for trial in &mut result.cells[1].trials {
            let mut refused = acidtest_engine::Histogram::new(3).unwrap();
            refused.record_n(5_000_000, 100).unwrap();
            trial.operations[0].service.insert("refused".to_owned(), LatencyFigures::of(&refused));
        }
        let after = rows(&result, true);
        let new: Vec<&String> = after.iter().filter(|row| !before.contains(row)).collect();
        let [row] = new.as_slice() else { panic!("{after:#?}") };
        assert!(row.contains("native | holds | capture, refused | – | service | 5.00 ms"), "{row}");
        assert_eq!(rows(&result, false), before);
    }
}
