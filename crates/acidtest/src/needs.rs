//! What a plan needs before it is run: how long it takes, how much memory and disk, and whether there is as much.

use std::fmt::Write;

use acidtest_lab::Lab;
use acidtest_model::{
    count,
    figure::{bytes, lasting},
};
use acidtest_observe::{free_disk, free_memory};
use acidtest_report::clients;
use acidtest_results::distinct;
use acidtest_runner::{Failure, Footprint, Order};

use crate::order::driven_seconds;

/// Share of the free memory above which little is left for the caches of stores and kernel, if a plan needs so much.
const MUCH: f64 = 0.75;

/// The time, the memory and the disk that a plan needs, and what is free.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Needs {
    /// For how many seconds its trials are driven, at least and at most, where the plan says it.
    pub(crate) seconds: Option<(f64, f64)>,
    /// Whether they are trials of searches, whose budget has loading and audits in it.
    searches: bool,
    /// The memory and the disk, by an estimate.
    pub(crate) footprint: Footprint,
    memory_free: Option<u64>,
    disk_free: Option<u64>,
}

impl Needs {
    /// Those of an order, on this machine as it is now.
    pub(crate) fn of(order: &Order) -> Self {
        Self {
            seconds: driven_seconds(&order.plan, &order.grid),
            searches: order.plan.capacity.is_some(),
            footprint: Footprint::of(&order.plan, &order.grid, &order.targets),
            memory_free: free_memory(),
            disk_free: free_disk(&Lab::usual_place()),
        }
    }

    /// Refuses what does not fit; `anyway` says how it is run nevertheless. Where nobody tells what is free, everything does.
    pub(crate) fn check(&self, anyway: &str) -> Result<(), Failure> {
        let Footprint { memory_bytes, disk_bytes } = self.footprint;
        let is_more = |needed: u64, free: Option<u64>| free.filter(|free| needed > *free);
        let memory = is_more(memory_bytes, self.memory_free)
            .map(|free| format!("{} of memory ({} free)", shown(memory_bytes), shown(free)));
        let disk = is_more(disk_bytes, self.disk_free).map(|free| {
            let place = Lab::usual_place();
            format!("{} of disk in {} ({} free)", shown(disk_bytes), place.display(), shown(free))
        });
        let elsewhere = if disk.is_some() { ", another folder (ACIDTEST_LAB)" } else { "" };
        let needed: Vec<String> = [memory, disk].into_iter().flatten().collect();
        if needed.is_empty() {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "the plan needs about {}\n  remedy: less data (--dry-run says how much each plan needs), fewer clients, fewer stores at \
             once{elsewhere}, or {anyway} to run it anyway",
            needed.join(" and ")
        )))
    }

    /// What is said where the memory that is free is hardly more than what is needed, or less (`--insist`).
    pub(crate) fn little_memory(&self) -> Option<String> {
        let (needed, free) = (self.footprint.memory_bytes, self.memory_free?);
        (needed as f64 > MUCH * free as f64).then(|| {
            format!(
                "the plan needs about {} of memory, and {} are free, so little is left for caches: use less data or fewer \
                 clients, or end other programs",
                shown(needed),
                shown(free)
            )
        })
    }

    /// What `--dry-run` says of them.
    pub(crate) fn told(&self) -> String {
        let free = |free: Option<u64>| free.map_or_else(|| "unknown".to_owned(), shown);
        let time = self.seconds.map_or_else(
            || "as long as its operations take".to_owned(),
            |seconds| {
                let time = lasting(seconds);
                if self.searches {
                    format!("{time}, with loading and auditing; starting stores comes on top")
                } else {
                    format!("driven for {time}; starting, loading and auditing come on top")
                }
            },
        );
        let Footprint { memory_bytes, disk_bytes } = self.footprint;
        format!(
            "time    {time}\nmemory  about {} for data, clients and audit, {} free\ndisk    about {} for data, {} free\n",
            shown(memory_bytes),
            free(self.memory_free),
            shown(disk_bytes),
            free(self.disk_free)
        )
    }
}

/// How the clients of an order are driven, as `--dry-run` says it.
pub(crate) fn load(order: &Order) -> String {
    let Order { plan, grid, .. } = order;
    let comes_and_goes = grid.workloads.iter().any(|workload| workload.spec().ramp.is_some());
    let who = clients(&distinct(grid.cells.iter().map(|cell| cell.clients)));
    let driven = match (&plan.capacity, plan.rates.as_slice()) {
        (Some(search), _) => {
            let objectives: Vec<String> = search.slo.iter().map(ToString::to_string).collect();
            format!(", for the highest rate that meets {}", objectives.join(" and "))
        }
        _ if comes_and_goes => ", which come and go".to_owned(),
        (None, []) => ", closed loop".to_owned(),
        (None, rates) => {
            let rates: Vec<String> = rates.iter().map(ToString::to_string).collect();
            format!(", open loop at {} operations/s", rates.join(", "))
        }
    };
    format!("load    {who}{driven}\n")
}

/// A size as readers see it.
fn shown(size: u64) -> String {
    bytes(size as f64)
}

/// The cells of an order, a line each, as far as a reader would read them.
pub(crate) fn cells(order: &Order) -> String {
    const SHOWN: usize = 50;
    let cells = &order.grid.cells;
    let trials = u64::from(order.plan.trials) * cells.len() as u64;
    let mut text = match (&order.plan.capacity, cells.len()) {
        (Some(_), 1) => "1 search\n".to_owned(),
        (Some(_), many) => format!("{many} searches\n"),
        (None, many) => {
            let of = |number: u64, one: &str, several: &str| {
                format!("{} {}", count(number), if number == 1 { one } else { several })
            };
            format!("{}, {}\n", of(many as u64, "cell", "cells"), of(trials, "trial", "trials"))
        }
    };
    for cell in cells.iter().take(SHOWN) {
        let _ = writeln!(text, "  {}", order.name(cell));
    }
    if cells.len() > SHOWN {
        let _ = writeln!(text, "  and {} more", cells.len() - SHOWN);
    }
    for left_out in &order.grid.left_out {
        let _ = writeln!(text, "  left out: {left_out}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_nearly_all_needed_is_little() {
        let of = |memory_bytes: u64, memory_free: Option<u64>| {
            let footprint = Footprint { memory_bytes, disk_bytes: 0 };
            Needs { seconds: None, searches: false, footprint, memory_free, disk_free: None }.little_memory()
        };
        let said = of(800 << 20, Some(1 << 30)).unwrap();
        assert!(
            said.contains("800 MiB") && said.contains("1.00 GiB") && said.contains("use less data"),
            "{said}"
        );
        assert_eq!((of(700 << 20, Some(1 << 30)), of(u64::MAX, None)), (None, None));
    }
}
