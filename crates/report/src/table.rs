//! A result on a terminal.

use std::{collections::BTreeSet, fmt::Write};

use acidtest_model::{Durability, Lock};
use acidtest_observe::{MachineUse, ProcessUse};
use acidtest_workloads::Verdict;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle};

use crate::{
    CellResult, LatencyFigures, Plan, Ratio, RefusedKind, RunResult, TrialResult, UnreadableHistogram,
    figure::{bytes, count, nanoseconds, rate},
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
    let tables = [cells(result, style), times(result, style)?, resources(result, style)];
    let tables = tables.iter().filter(|table| !table.is_empty()).map(ToString::to_string);
    let sections = std::iter::once(headline(result)).chain(tables).chain([notes(result).join("\n")]);
    for section in sections {
        // a line at a time, as tables pad theirs
        for line in section.lines() {
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text.push('\n');
    }
    Ok(text.trim_end().to_owned() + "\n")
}

fn headline(result: &RunResult) -> String {
    let plan = &result.plan;
    let machine = &result.machine;
    format!(
        "{} · {}\n{}\n{} · {} cores, {} memory, {} · Linux {} · acidtest {}",
        plan.workload,
        workload(plan),
        driving(plan),
        machine.cpu,
        machine.cores,
        bytes(machine.memory_bytes as f64),
        machine.filesystem,
        machine.kernel,
        result.acidtest,
    )
}

fn workload(plan: &Plan) -> String {
    let inventory = &plan.inventory;
    format!(
        "{} items, {:.0} % captures, 1–{} units, {}",
        count(inventory.items.into()),
        inventory.capture_share * 100.0,
        inventory.units_max,
        inventory.skew
    )
}

fn driving(plan: &Plan) -> String {
    let arrivals = match plan.rate {
        None => "closed loop".to_owned(),
        Some(offered) => {
            let spaced = match plan.arrivals {
                crate::ArrivalKind::Constant => "evenly spaced",
                crate::ArrivalKind::Poisson => "Poisson",
            };
            format!("open loop, {} ops/s offered, {spaced}", rate(offered))
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
    format!("{}, {arrivals} · {extent} · {trials}{refused} · seed {}", clients(&plan.clients), plan.seed)
}

fn clients(numbers: &[u32]) -> String {
    let shown: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    format!("{} {}", shown.join(", "), if numbers == [1] { "client" } else { "clients" })
}

/// How every table is ruled: one line under the header and one at the end, as rows are short.
pub const RULED: TableStyle = {
    let line = LineStyle::none().fill('─').junction('─');
    TableStyle::new().header_separator(line).bottom_border(line)
};

fn table(style: Style, header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(RULED).set_header(header.iter().map(|title| {
        let cell = Cell::new(title);
        if style.color { cell.add_attribute(Attribute::Bold) } else { cell }
    }));
    if style.color {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    if let Some(width) = style.width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width.max(60));
    }
    table
}

fn right(text: impl ToString) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// A verdict is never without its word; the colour only helps to find it.
fn verdict_cell(text: String, verdict: Verdict, style: Style) -> Cell {
    let cell = Cell::new(text);
    if !style.color {
        return cell;
    }
    cell.fg(match verdict {
        Verdict::Holds => Color::Green,
        Verdict::Unknown => Color::Yellow,
        Verdict::Broken => Color::Red,
    })
}

/// The store's name, with what else tells its cells apart.
fn name(cell: &CellResult, result: &RunResult) -> String {
    let mut name = cell.address.as_ref().unwrap_or(&cell.store).clone();
    if result.plan.clients.len() > 1 {
        let _ = write!(name, ", {}", clients(&[cell.clients]));
    }
    if let (true, Some(rung)) = (result.plan.durability.len() > 1, cell.durability_asked) {
        let _ = write!(name, ", {rung}");
    }
    name
}

fn rung(cell: &CellResult) -> String {
    cell.effective.as_ref().map_or_else(|| "–".to_owned(), |effective| effective.durability.to_string())
}

/// One row a cell: does it hold, how fast, at what price.
fn cells(result: &RunResult, style: Style) -> Table {
    let header =
        ["store", "lock", "durability", "verdict", "ok/s", "price", "refused", "conflicts", "retries"];
    let mut table = table(style, &header);
    for cell in &result.cells {
        let totals = |of: &dyn Fn(&crate::OperationFigures) -> u64| {
            let all: u64 = cell.trials.iter().flat_map(|trial| trial.operations.iter().map(of)).sum();
            count(all)
        };
        table.add_row([
            Cell::new(name(cell, result)),
            Cell::new(cell.lock),
            Cell::new(rung(cell)),
            verdict_cell(verdict(cell), cell.verdict(), style),
            right(if cell.trials.is_empty() { "–".to_owned() } else { rate(cell.throughput()) }),
            right(price(cell, result)),
            right(totals(&|operation| operation.refusals)),
            right(totals(&|operation| operation.conflicts)),
            right(totals(&|operation| operation.retries)),
        ]);
    }
    table
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

/// Up to three rows a cell: what clients, server and the whole machine used.
fn resources(result: &RunResult, style: Style) -> Table {
    let header = [
        "store",
        "lock",
        "used by",
        "CPU mean",
        "CPU max",
        "memory mean",
        "memory max",
        "disk read",
        "disk written",
        "stalled (PSI)",
    ];
    let mut table = table(style, &header);
    for cell in result.cells.iter().filter(|cell| !cell.trials.is_empty()) {
        let client = cell.trials.iter().map(|trial| (trial.resources.seconds, &trial.resources.client));
        let clients = if cell.embedded { "clients and store" } else { "clients" };
        for (user, used) in [(clients, Use::of(client)), ("server", server_use(cell))] {
            let Some(used) = used else { continue };
            let mut row = vec![Cell::new(name(cell, result)), Cell::new(cell.lock), Cell::new(user)];
            row.extend(used.row().map(right));
            table.add_row(row);
        }
        let mut row = vec![Cell::new(name(cell, result)), Cell::new(cell.lock), Cell::new("machine")];
        row.push(right(cores(cell.mean(|trial| trial.resources.machine.cpu_mean))));
        let most = cell.trials.iter().map(|trial| trial.resources.machine.cpu_max).fold(0.0, f64::max);
        row.push(right(cores(most)));
        row.extend(["–"; 4].map(right));
        row.push(Cell::new(stalled(cell)));
        table.add_row(row);
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
fn verdict(cell: &CellResult) -> String {
    let worst = cell.trials.iter().max_by_key(|trial| {
        (trial.audit.verdict, trial.audit.findings.iter().map(|finding| finding.count).sum::<u64>())
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
            format!("{shown} (worst of {such} in {all})")
        }
    }
}

fn price(cell: &CellResult, result: &RunResult) -> String {
    match &cell.price {
        None if cell.lock == Lock::None => "1 (baseline)".to_owned(),
        // a number whose guarantee broke is void
        None if !cell.trials.is_empty() && cell.verdict() != Verdict::Holds => "void".to_owned(),
        None => "–".to_owned(),
        // an open loop's throughput is what was offered
        Some(price) if result.plan.rate.is_some() => price.p99.as_ref().map_or_else(|| "–".to_owned(), ratio),
        Some(price) => ratio(&price.throughput),
    }
}

fn ratio(ratio: &Ratio) -> String {
    match ratio.interval {
        None => format!("×{:.2} (1 trial)", ratio.estimate),
        Some((low, high)) if ratio.differs() => format!("×{:.2} ({low:.2}–{high:.2})", ratio.estimate),
        Some((low, high)) => format!("×{:.2} ({low:.2}–{high:.2}) ≈", ratio.estimate),
    }
}

/// One row a cell and operation: how fast, and how long it took. An open loop has the response times
/// too, from when an operation was due.
fn times(result: &RunResult, style: Style) -> Result<Table, UnreadableHistogram> {
    let header =
        ["store", "lock", "verdict", "operation", "ok/s", "time", "p50", "p95", "p99", "p99.9", "max"];
    let mut table = table(style, &header);
    for cell in &result.cells {
        let kinds = cell.trials.first().map_or(0, |trial| trial.operations.len());
        for kind in 0..kinds {
            let operations = || cell.trials.iter().filter_map(move |trial| trial.operations.get(kind));
            let Some(first) = operations().next() else { continue };
            let service = LatencyFigures::merged(operations().filter_map(|each| each.service.get("ok")))?;
            let response = LatencyFigures::merged(operations().filter_map(|each| each.response.get("ok")))?;
            let per_second =
                operations().map(|each| each.ok_per_second).sum::<f64>() / cell.trials.len() as f64;
            for (times, figures) in [("service", service), ("response", response)] {
                if times == "response" && figures.is_none() {
                    continue;
                }
                let mut row = vec![
                    Cell::new(name(cell, result)),
                    Cell::new(cell.lock),
                    verdict_cell(cell.verdict().to_string(), cell.verdict(), style),
                    Cell::new(&first.name),
                    right(rate(per_second)),
                    Cell::new(times),
                ];
                row.extend(percentiles(figures.as_ref()).map(right));
                table.add_row(row);
            }
        }
    }
    Ok(table)
}

fn percentiles(figures: Option<&LatencyFigures>) -> [String; 5] {
    let Some(figures) = figures else { return ["–"; 5].map(str::to_owned) };
    [figures.p50_ns, figures.p95_ns, figures.p99_ns, figures.p999_ns, figures.max_ns]
        .map(|value| nanoseconds(value as f64))
}

/// What the reader must know about the figures.
fn notes(result: &RunResult) -> Vec<String> {
    let mut notes = Vec::new();
    let locks: BTreeSet<Lock> = result.cells.iter().map(|cell| cell.lock).collect();
    notes.extend(locks.into_iter().map(|lock| format!("lock {lock}: {}.", lock.meaning())));
    let rungs: BTreeSet<Durability> =
        result.cells.iter().filter_map(|cell| Some(cell.effective.as_ref()?.durability)).collect();
    notes.extend(rungs.into_iter().map(|rung| {
        format!(
            "durability {rung}: {}, by the settings read back; no crash was tested in this run.",
            rung.meaning()
        )
    }));
    if result.cells.iter().any(|cell| cell.price.is_some()) {
        let what = match result.plan.rate {
            None => "throughput",
            Some(_) => "99th percentile of the response time (higher is worse)",
        };
        notes.push(format!(
            "price: {what} against lock none of the same store, with a 95 % interval over paired trials; ≈ marks one \
             inside the noise."
        ));
    }
    let pairs =
        result.cells.iter().filter_map(|cell| cell.price.as_ref()).map(|price| price.throughput.pairs);
    if pairs.min().is_some_and(|pairs| pairs < 3) {
        notes
            .push("with fewer than 3 trials an interval says little: ask for more with --trials.".to_owned());
    }
    if result.cells.iter().any(|cell| cell.lock == Lock::None && cell.verdict() == Verdict::Broken) {
        notes.push("lock none promises nothing: that it breaks under contention is no failure.".to_owned());
    }
    for cell in &result.cells {
        notes.extend(
            cell_notes(cell, result)
                .into_iter()
                .map(|note| format!("{} {}: {note}", name(cell, result), cell.lock)),
        );
    }
    if ["tmpfs", "ramfs"].contains(&result.machine.filesystem.as_str()) {
        notes.push(
            "the data lies in memory (tmpfs): syncing it costs nothing there, and survives nothing. Set TMPDIR \
             or ACIDTEST_LAB to a folder on a disk."
                .to_owned(),
        );
    }
    notes.push(harness(result));
    if result.interrupted {
        notes.push("interrupted: cells and trials are missing.".to_owned());
    }
    notes
}

fn cell_notes(cell: &CellResult, result: &RunResult) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(cell.error.clone());
    if let Some(effective) = &cell.effective
        && cell.durability_asked.is_some_and(|asked| asked != effective.durability)
    {
        notes.push(format!(
            "the settings amount to durability {}: {}",
            effective.durability, effective.because
        ));
    }
    if let (Some(effective), Some(_)) = (&cell.effective, &cell.address) {
        notes.push(format!(
            "its settings, as they are, amount to durability {}: {}",
            effective.durability, effective.because
        ));
    }
    for trial in &cell.trials {
        notes.extend(trial_notes(trial).into_iter().map(|note| format!("trial {}: {note}", trial.round)));
    }
    let client = cell.mean(|trial| trial.resources.client.cpu_mean);
    let share = result.harness.nanoseconds_per_operation * cell.throughput() / 1e9;
    if !cell.embedded && client > 0.85 * result.machine.cores as f64 {
        notes.push(format!(
            "the clients used {client:.2} of {} cores: the bench, not the store, may have set the limit",
            result.machine.cores
        ));
    } else if share > 0.5 {
        notes.push(format!("the bench itself used {share:.2} cores: it may have set the limit"));
    }
    notes
}

fn trial_notes(trial: &TrialResult) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(stopped) = &trial.stopped {
        let detail = if stopped.detail.is_empty() { String::new() } else { format!(": {}", stopped.detail) };
        notes.push(format!("ended after {:.1} s: {}{detail}", trial.seconds, stopped.reason));
    }
    if trial.audit.verdict != Verdict::Holds {
        notes.push(trial.audit.to_string());
    }
    if trial.audit.verdict == Verdict::Broken
        && let Some(reason) = &trial.audit.reason
    {
        notes.push(reason.clone());
    }
    if !trial.faults.is_empty() {
        let faults: u64 = trial.faults.values().sum();
        let most = trial.faults.iter().max_by_key(|(_, count)| **count);
        let most = most.map_or_else(String::new, |(fault, _)| format!(", mostly \"{fault}\""));
        notes.push(format!("{} faults{most}; {} reconnects", count(faults), trial.reconnects));
    }
    let arrived = trial.arrived;
    if arrived.late + arrived.dropped > 0 {
        notes.push(format!(
            "offered {}, started {}, completed {}, late {}, dropped {}",
            count(arrived.offered),
            count(arrived.started),
            count(arrived.completed),
            count(arrived.late),
            count(arrived.dropped)
        ));
    }
    if !trial.server_log.is_empty() {
        let lines = trial.server_log.iter().map(|line| format!("\n  | {}", shortened(line)));
        notes.push(format!("the server's log ends:{}", lines.collect::<String>()));
    }
    notes
}

/// A log line at a length that a terminal shows.
fn shortened(line: &str) -> String {
    const MOST: usize = 160;
    if line.chars().count() <= MOST {
        return line.to_owned();
    }
    line.chars().take(MOST).chain(['…']).collect()
}

/// The bench's own cost beside the fastest cell.
fn harness(result: &RunResult) -> String {
    let cost = result.harness.nanoseconds_per_operation;
    let fastest = result.cells.iter().map(CellResult::throughput).fold(0.0, f64::max);
    format!(
        "the bench itself: {} of one core an operation (on a store that does nothing), {:.2} % of a core at \
         the fastest cell's rate.",
        nanoseconds(cost),
        cost * fastest / 1e9 * 100.0
    )
}
