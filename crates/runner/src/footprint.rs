//! How much memory and disk a run takes, estimated before anything is started.

use std::collections::BTreeMap;

use acidtest_lab::ServerSize;
use acidtest_model::Hosting;
use acidtest_report::Plan;
use acidtest_workloads::{DataSize, Workload};

use crate::{Cell, Grid, Target, grid::Setting};

/// Bytes of memory that a store in memory takes for each byte of a row's values: see "What a plan needs" in `docs/measuring.md`.
const OF_MEMORY: u64 = 2;
/// The same of disk, with indexes and logs, of any store.
const OF_DISK: u64 = 3;
/// Bytes of either for each row, besides.
const FOR_A_ROW: u64 = 100;

/// What a run takes on this machine, in bytes, as far as it is known before: the data that are loaded, and what acidtest keeps to
/// judge them by. What is written while clients are driven, and what a server takes when it is empty, come on top; so does
/// all data on servers of the user's own, which may be anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Memory.
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
        let mut stores: BTreeMap<Setting, Held> = BTreeMap::new();
        for cell in &grid.cells {
            let workload = &grid.workloads[cell.workload];
            let size = workload.size(cell.clients, plan.trace);
            judging =
                judging.max(size.ledger_bytes.saturating_mul(processes).saturating_add(size.audit_bytes));
            if targets[cell.target].address.is_none() {
                stores.entry(cell.setting()).or_default().add(workload.data(), &size);
            }
        }
        let mut footprint = Self { memory_bytes: judging, disk_bytes: 0 };
        for (setting, held) in &stores {
            let kind = targets[setting.target].kind();
            if kind.in_memory {
                footprint.memory_bytes = footprint.memory_bytes.saturating_add(held.taken(OF_MEMORY));
            }
            if kind.hosting != Hosting::InMemory {
                footprint.disk_bytes = footprint.disk_bytes.saturating_add(held.taken(OF_DISK));
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
    let (mut clients, mut held) = (0, Held::default());
    for cell in cells.iter().filter(|cell| cell.setting() == setting) {
        let workload = &workloads[cell.workload];
        clients = clients.max(cell.clients);
        held.add(workload.data(), &workload.size(cell.clients, plan.trace));
    }
    ServerSize { clients, data_bytes: held.taken(OF_MEMORY) }
}

/// The rows and the bytes of values that one private store holds at a time.
#[derive(Default)]
struct Held {
    /// Data that trials leave to later ones, by its description.
    left: BTreeMap<String, [u64; 2]>,
    /// The most that a trial has for itself.
    own: [u64; 2],
}

impl Held {
    fn add(&mut self, description: Option<String>, size: &DataSize) {
        let added = [size.rows, size.bytes];
        match description {
            Some(data) => _ = self.left.insert(data, added),
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
