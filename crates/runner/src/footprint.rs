//! How much memory and disk a run takes, estimated before anything is started.

use std::collections::BTreeMap;

use acidtest_lab::ServerSize;
use acidtest_model::Hosting;
use acidtest_results::Plan;
use acidtest_workloads::{DataSize, Workload};

use crate::{Cell, Grid, Target, grid::Setting};

/// Bytes of memory that a store in memory takes for each byte of a row's values: see "What a plan needs" in `docs/reference.md`.
const OF_MEMORY: u64 = 2;
/// The same of disk, with indexes and logs, of any store.
const OF_DISK: u64 = 3;
/// Bytes of either for each row, besides.
const FOR_A_ROW: u64 = 100;

/// Bytes of memory that acidtest itself takes for each client of a server: 25 KiB, measured likewise.
const OF_CLIENT: u64 = 25 << 10;

/// What a run takes on this machine, in bytes, as far as it is known before: the data that are loaded, and what acidtest keeps to
/// judge them by. What is written while clients are driven, and what a server takes when it is empty, come on top; so does
/// all data on servers of the user's own, which may be anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    pub memory_bytes: u64,
    /// Disk, in the lab's folder.
    pub disk_bytes: u64,
}

impl Footprint {
    /// That of the cells of a plan. Each private store stays until the run ends, with the data that later trials use again.
    #[must_use]
    pub fn of(plan: &Plan, grid: &Grid, targets: &[Target]) -> Self {
        let processes = u64::from(plan.client_processes().unwrap_or(1).max(1));
        let mut judging = 0;
        let mut stores: BTreeMap<Setting, StoreNeeds> = BTreeMap::new();
        for cell in &grid.cells {
            let workload = &grid.workloads[cell.workload];
            let size = workload.size(cell.clients, plan.trace);
            let driving = u64::from(cell.clients).saturating_mul(OF_CLIENT);
            let keeping = size.ledger_bytes.saturating_mul(processes).saturating_add(size.audit_bytes);
            judging = judging.max(driving.saturating_add(keeping));
            if targets[cell.target].address.is_none() {
                let spec = workload.spec();
                // nothing stands in front of a store in memory
                let connections = match targets[cell.target].kind().hosting {
                    Hosting::InMemory => cell.clients,
                    Hosting::Embedded | Hosting::Program => spec.connections_of(cell.clients),
                };
                stores.entry(cell.setting()).or_default().add(connections, spec.data.as_deref(), &size);
            }
        }
        let mut footprint = Self { memory_bytes: judging, disk_bytes: 0 };
        for (setting, held) in &stores {
            let kind = targets[setting.target].kind();
            let connections = u64::from(held.connections).saturating_mul(u64::from(kind.client_kib) << 10);
            footprint.memory_bytes = footprint.memory_bytes.saturating_add(connections);
            // each node has all data
            let nodes = setting.cluster.map_or(1, |cluster| u64::from(cluster.nodes));
            if kind.in_memory {
                let taken = held.taken(OF_MEMORY).saturating_mul(nodes);
                footprint.memory_bytes = footprint.memory_bytes.saturating_add(taken);
            }
            if kind.hosting != Hosting::InMemory {
                let taken = held.taken(OF_DISK).saturating_mul(nodes);
                footprint.disk_bytes = footprint.disk_bytes.saturating_add(taken);
            }
        }
        footprint
    }
}

/// What the server of these cells must have room for.
pub(crate) fn server_size(
    plan: &Plan,
    cells: &[Cell],
    workloads: &[Box<dyn Workload>],
    setting: Setting,
) -> ServerSize {
    let mut held = StoreNeeds::default();
    for cell in cells.iter().filter(|cell| cell.setting() == setting) {
        let workload = &workloads[cell.workload];
        let (spec, size) = (workload.spec(), workload.size(cell.clients, plan.trace));
        // whoever reads elsewhere has a connection for that to each member, the leader included
        let own = if cell.reads.is_leader() { 1 } else { 2 };
        held.add(own * spec.connections_of(cell.clients), spec.data.as_deref(), &size);
    }
    ServerSize { clients: held.connections, data_bytes: held.taken(OF_MEMORY) }
}

/// The connections to one private store, and the rows and the bytes of values that it holds, at a time.
#[derive(Default)]
struct StoreNeeds {
    /// The most connections.
    connections: u32,
    /// Data that trials leave to later ones, by its description.
    left: BTreeMap<String, [u64; 2]>,
    /// The most that a trial has for itself.
    own: [u64; 2],
}

impl StoreNeeds {
    fn add(&mut self, connections: u32, description: Option<&str>, size: &DataSize) {
        self.connections = self.connections.max(connections);
        let added = [size.rows, size.bytes];
        match description {
            Some(data) => _ = self.left.insert(data.to_owned(), added),
            None => self.own = [0, 1].map(|which| self.own[which].max(added[which])),
        }
    }

    /// What they take, at so many bytes for each byte of a value.
    fn taken(&self, for_a_byte: u64) -> u64 {
        let all = self.left.values().chain([&self.own]);
        all.fold(0, |sum: u64, [rows, bytes]| {
            let values = bytes.saturating_mul(for_a_byte);
            sum.saturating_add(values).saturating_add(rows.saturating_mul(FOR_A_ROW))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server keeps what each description of data has, once, and beside it the most that a trial has for itself.
    #[test]
    fn a_server_has_room_for_what_trials_leave_and_for_the_largest_of_their_own() {
        let size = |rows, bytes| DataSize { rows, bytes, ..DataSize::default() };
        let mut held = StoreNeeds::default();
        held.add(4, Some("a"), &size(10, 1_000));
        held.add(8, Some("a"), &size(10, 1_000));
        held.add(2, Some("b"), &size(1, 50));
        held.add(1, None, &size(5, 200_000));
        held.add(1, None, &size(7, 100));
        assert_eq!(held.connections, 8);
        assert_eq!(held.taken(OF_MEMORY), (2 * 1_000 + 1_000) + (2 * 50 + 100) + (2 * 200_000 + 700));
    }
}
