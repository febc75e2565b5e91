//! The resources that clients, server and machine used.

use std::collections::BTreeSet;

use acidtest_model::figure::bytes;
use acidtest_observe::{MachineUse, ProcessUse, Resources};
use acidtest_results::{CellResult, RunResult};

use super::Columns;
use crate::table::{Entry, Priority, Table};

/// Cores that were kept busy.
pub(super) fn cores(mean: f64) -> String {
    // a mean of no values may be a negative zero
    format!("{:.2} cores", mean.max(0.0))
}

/// The resources of a process over the trials: means of the means, the largest of the maxima.
struct Use {
    cpu_mean: f64,
    cpu_max: f64,
    memory_mean: f64,
    memory_max: f64,
    /// Bytes read a second; none where they could not be determined.
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

/// The resources of a server's processes; none where they run on another machine or inside the client.
fn server_use(cell: &CellResult, server: impl Fn(&Resources) -> Option<&ProcessUse>) -> Option<Use> {
    let seen = cell.measured_trials().into_iter();
    Use::of(seen.filter_map(|trial| Some((trial.resources.seconds, server(&trial.resources)?))))
}

/// The roles of the servers beside a cell's own.
fn other_roles(cell: &CellResult) -> BTreeSet<&str> {
    let trials = cell.measured_trials().into_iter();
    trials.flat_map(|trial| trial.resources.others.keys().map(String::as_str)).collect()
}

/// Up to three rows for each cell: the resources of clients, server and the whole machine; and one for each server
/// beside the cell's own.
pub(crate) fn resources(result: &RunResult, columns: &Columns<'_>) -> Table {
    let mut table = columns.table([
        ("used by", Priority::Needed),
        ("CPU mean", Priority::Needed),
        ("CPU max", Priority::Low),
        ("memory mean", Priority::Low),
        ("memory max", Priority::High),
        ("disk read", Priority::Middle),
        ("disk written", Priority::High),
        ("stalled (PSI)", Priority::Middle),
    ]);
    for cell in result.cells.iter().filter(|cell| !cell.trials.is_empty()) {
        let measured = cell.measured_trials();
        let client = measured.iter().map(|trial| (trial.resources.seconds, &trial.resources.client));
        let clients = if cell.is_within_clients() { "clients and store" } else { "clients" };
        let server = ("server", server_use(cell, |used| used.server.as_ref()));
        let others = other_roles(cell).into_iter();
        let others = others.map(|role| (role, server_use(cell, |used| used.others.get(role))));
        for (user, used) in [(clients, Use::of(client)), server].into_iter().chain(others) {
            let Some(used) = used else { continue };
            let mut row = columns.entries(cell);
            row.push(Entry::left(user));
            row.extend(used.row().map(Entry::right));
            row.push(Entry::left(""));
            table.push(row);
        }
        let mut row = columns.entries(cell);
        row.push(Entry::left("machine"));
        row.push(Entry::right(cores(cell.mean(|trial| trial.resources.machine.cpu_mean))));
        let most = measured.iter().map(|trial| trial.resources.machine.cpu_max).fold(0.0, f64::max);
        row.push(Entry::right(cores(most)));
        row.extend(["–"; 4].map(Entry::right));
        row.push(stalled(cell));
        table.push(row);
    }
    table
}

/// Shares of the time in which some task of the machine waited for a resource.
fn stalled(cell: &CellResult) -> Entry {
    let share = |what: &'static str, figure: fn(&MachineUse) -> Option<f64>| {
        let seen: Option<Vec<f64>> =
            cell.measured_trials().iter().map(|trial| figure(&trial.resources.machine)).collect();
        seen.map(|seen| (what, seen.iter().sum::<f64>() / seen.len() as f64))
    };
    let shares = [
        share("CPU", |machine| machine.pressure_cpu_some),
        share("disk", |machine| machine.pressure_io_some),
        share("memory", |machine| machine.pressure_memory_some),
    ];
    let shares: Vec<(&str, f64)> = shares.into_iter().flatten().collect();
    let said = |(what, share): &(&str, f64)| format!("{what} {share:.0} %");
    let Some(most) = shares.iter().max_by(|one, other| one.1.total_cmp(&other.1)) else {
        return Entry::left("not known");
    };
    Entry::left(shares.iter().map(said).collect::<Vec<_>>().join(", ")).or(said(most))
}
