//! What was run, on what, and how: the lines above the tables.

use std::collections::BTreeSet;

use crate::{
    ArrivalKind, CellResult, RefusedKind, RunResult, count,
    dimensions::Names,
    figure::{bytes, rate},
};

pub(crate) fn headline(result: &RunResult, names: &Names) -> String {
    let plan = &result.plan;
    let machine = &result.machine;
    let mut lines = vec![
        format!("{} · {}", plan.workload, workload(result)),
        driving(result),
        format!(
            "{} · {} cores, {} memory, {} · Linux {} · acidtest {}",
            machine.cpu,
            machine.cores,
            bytes(machine.memory_bytes as f64),
            machine.filesystem,
            machine.kernel,
            result.acidtest,
        ),
    ];
    lines.extend(names.addresses());
    lines.join("\n")
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
                ArrivalKind::Constant => "evenly spaced",
                ArrivalKind::Poisson => "Poisson",
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
        RefusedKind::Count | RefusedKind::Retry => " · refused operations wait 5 ms and try again",
    };
    let mut numbers: Vec<u32> = Vec::new();
    for cell in &result.cells {
        if !numbers.contains(&cell.clients) {
            numbers.push(cell.clients);
        }
    }
    let rung = common_rung(result).map_or_else(String::new, |rung| format!(" · durability {rung}"));
    format!("{}, {arrivals}{rung} · {extent} · {trials}{refused} · seed {}", clients(&numbers), plan.seed)
}

/// The rung of all cells, as they were read back; none where they differ.
pub(crate) fn common_rung(result: &RunResult) -> Option<String> {
    let rungs: BTreeSet<String> = result.cells.iter().map(CellResult::rung).collect();
    let mut rungs = rungs.into_iter();
    rungs.next().filter(|_| rungs.next().is_none())
}

pub(crate) fn clients(numbers: &[u32]) -> String {
    let shown: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    format!("{} {}", shown.join(", "), if numbers == [1] { "client" } else { "clients" })
}
