//! The lines above the tables: the workload, the machine and how the clients were driven.

use std::collections::BTreeSet;

use acidtest_model::{
    count,
    figure::{bytes, offered, percent},
};
use acidtest_results::{ArrivalKind, CellResult, RunResult, conditions, dimensions::Names, distinct};
use acidtest_workloads::Ramp;

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

/// The workload in a line; where cells differ in its parameters, what they have in common, and how many choices there are
/// of the others.
pub(crate) fn workload(result: &RunResult) -> String {
    let mut lines: Vec<&str> = result.cells.iter().map(|cell| cell.headline.as_str()).collect();
    lines.sort_unstable();
    lines.dedup();
    match lines.as_slice() {
        [one] => (*one).to_owned(),
        several => {
            let mut lines = several.iter().map(|line| parts(line));
            let first = lines.next().unwrap_or_default();
            let common = lines.fold(first, |mut common, line| {
                common.retain(|part| line.contains(part));
                common
            });
            let (count, common) = (several.len(), common.join(", "));
            match &*common {
                "" => format!("{count} combinations of its parameters"),
                common => format!("{common}; {count} combinations of its other parameters"),
            }
        }
    }
}

/// The parts of a line, which are set off by commas outside of parentheses.
fn parts(line: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, letter) in line.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            // not those of a number
            ',' if depth == 0 && line[at..].starts_with(", ") => {
                parts.push(&line[begin..at]);
                begin = at + 2;
            }
            _ => {}
        }
    }
    parts.push(&line[begin..]);
    parts
}

/// Conditions of which the line says by itself what they are.
const IN_WORDS: [&str; 5] = ["warmup", "arrivals", "duty", "trace", "seed"];

pub(crate) fn driving(result: &RunResult) -> String {
    let plan = &result.plan;
    let ramp = ramp(result);
    let spaced = match plan.arrivals {
        ArrivalKind::Constant => "evenly spaced",
        ArrivalKind::Poisson => "Poisson",
    };
    let arrivals = match plan.rates.as_slice() {
        _ if plan.capacity.is_some() => format!("open loop at rates that were searched, {spaced}"),
        [] if ramp.is_some_and(|ramp| ramp.stay) => "open loop, evenly spaced".to_owned(),
        [] if ramp.is_some() => "which come and go".to_owned(),
        [] => "closed loop".to_owned(),
        rates => {
            let rates: Vec<String> = rates.iter().map(|each| offered(*each)).collect();
            format!("open loop, {} ops/s offered, {spaced}", rates.join(" | "))
        }
    };
    let extent = match (ramp, plan.trace, plan.ops) {
        (Some(_), ..) => String::new(),
        (None, Some(length), _) => format!(" · a replayed sequence of {} operations", count(length)),
        (None, None, Some(ops)) => format!(" · {} operations after {} warm-up", count(ops), plan.warmup),
        (None, None, None) => {
            let measured = plan.capacity.as_ref().map(|search| search.measured(plan));
            format!(
                " · {} after {} warm-up",
                measured.unwrap_or_else(|| plan.duration.to_string()),
                plan.warmup
            )
        }
    };
    let trials = match plan.trials {
        _ if plan.capacity.is_some() => "probes of all searches in turn".to_owned(),
        1 => "1 trial a cell".to_owned(),
        trials => format!("{trials} trials a cell, interleaved"),
    };
    let refused = if plan.trace.is_some() { " · refused operations are retried after 5 ms" } else { "" };
    let duty = if plan.duty < 1.0 {
        format!(" · each client works for {} of the time", percent(plan.duty))
    } else {
        String::new()
    };
    let others: Vec<String> = conditions()
        .filter(|option| !IN_WORDS.contains(&option.key) && !option.is_usual(plan))
        .map(|option| format!(" · {} {}", option.long.replace('-', " "), option.typed(plan).join(",")))
        .collect();
    let all = clients(&distinct(result.cells.iter().map(|cell| cell.clients)));
    let scheduled = distinct(result.cells.iter().filter_map(|cell| cell.scheduled));
    let who = if plan.rates.is_empty() || scheduled.is_empty() {
        all
    } else {
        let scheduled: Vec<String> = scheduled.iter().map(ToString::to_string).collect();
        format!("{all}, {} of them on the schedule", scheduled.join(", "))
    };
    let durability = common_durability(result)
        .map_or_else(String::new, |durability| format!(" · durability {durability}"));
    format!(
        "{who}, {arrivals}{durability}{extent} · {trials}{refused}{duty}{} · seed {}",
        others.concat(),
        plan.seed
    )
}

/// How the clients of the first cell come and go, where they do.
fn ramp(result: &RunResult) -> Option<Ramp> {
    let kind = acidtest_workloads::workload(&result.plan.workload)?;
    (kind.with)(&result.cells.first()?.parameters).ok()?.spec().ramp
}

/// The durability level that was read back of all cells that were run; none where they differ.
pub(crate) fn common_durability(result: &RunResult) -> Option<String> {
    let run = result.cells.iter().filter(|cell| cell.effective.is_some());
    let levels: BTreeSet<String> = run.map(CellResult::durability).collect();
    let mut levels = levels.into_iter();
    levels.next().filter(|_| levels.next().is_none())
}

/// Numbers of clients: `1 client`, `4, 8 clients`.
#[must_use]
pub fn clients(numbers: &[u32]) -> String {
    let shown: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    format!("{} {}", shown.join(", "), if numbers == [1] { "client" } else { "clients" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cells_have_in_common_is_said() {
        let mut result = acidtest_results::sample::Grid::default().result();
        let said = |result: &mut RunResult, lines: [&str; 2]| {
            result.cells.truncate(2);
            for (cell, line) in result.cells.iter_mut().zip(lines) {
                line.clone_into(&mut cell.headline);
            }
            workload(result)
        };
        assert_eq!(said(&mut result, ["1,000 entries, direct"; 2]), "1,000 entries, direct");
        assert_eq!(
            said(&mut result, ["1,000 entries, direct", "1,000 entries, queue on disk"]),
            "1,000 entries; 2 combinations of its other parameters"
        );
        assert_eq!(
            said(&mut result, ["5 entries, direct", "10 entries, queued"]),
            "2 combinations of its parameters"
        );
        let lines = [
            "100 B, 1 producer (ack none, 2 at once), drained",
            "100 B, 1 producer (ack confirm, 2 at once), drained",
        ];
        assert_eq!(said(&mut result, lines), "100 B, drained; 2 combinations of its other parameters");
        result.cells.clear();
        assert_eq!(workload(&result), "0 combinations of its parameters");
    }

    #[test]
    fn what_was_not_left_at_its_default_is_said() {
        let mut result = acidtest_results::sample::Grid::default().result();
        let usual = driving(&result);
        result.plan.max_retries = 3;
        result.plan.connect_timeout = "9s".parse().unwrap();
        result.plan.lock_service = "postgres".to_owned();
        let said = " · lock service postgres · connect timeout 9s · max retries 3 · seed";
        assert_eq!(driving(&result), usual.replace(" · seed", said));
    }

    /// The rate of a queue applies to its producers: consumers take messages as they come.
    #[test]
    fn who_is_on_the_schedule_is_said() {
        let mut result = acidtest_results::sample::queue([("confirm", true, 1000.0); 6]);
        result.cells.iter_mut().for_each(|cell| cell.scheduled = Some(4));
        assert!(driving(&result).starts_with("8 clients, closed loop · "), "{}", driving(&result));
        result.plan.rates = vec![2000.0];
        let said = "8 clients, 4 of them on the schedule, open loop, 2,000 ops/s offered, Poisson · ";
        assert!(driving(&result).starts_with(said), "{}", driving(&result));
    }
}
