//! `acidtest stores`.

use std::fmt::Write;

use acidtest_lab::Lab;
use acidtest_model::{Durability, Hosting, Lock, ReplicaReads, Replication, StoreKind, Support};
use acidtest_report::{Entry, Table};
use acidtest_runner::Failure;
use acidtest_workloads::WORKLOADS;

use crate::{
    exit::Status,
    output::{self, wrapped},
    registry::{self, STORES},
};

/// Columns before what is said of a store.
const OF_STORE: usize = 14;

/// Columns before how the store has something, or why not.
const OF_SUPPORT: usize = 25;

/// Lists all stores, or one of them.
pub(crate) fn stores(only: Option<&str>) -> Result<Status, Failure> {
    let kinds: Vec<&StoreKind> = STORES
        .iter()
        .map(|store| &store.kind)
        .filter(|kind| only.is_none_or(|name| kind.name == name))
        .collect();
    if kinds.is_empty() {
        let word = only.unwrap_or_default();
        if let Some(failure) = registry::missing(word) {
            return Err(failure);
        }
        let known: Vec<&str> = registry::names().collect();
        let hint = acidtest_model::hint(word, known.iter().copied());
        return Err(Failure::Usage(format!(
            "unknown store \"{word}\"{hint}\n  known are {}",
            known.join(", ")
        )));
    }
    let mut blocks = if only.is_none() { vec![table(&kinds)] } else { Vec::new() };
    blocks.extend(kinds.into_iter().map(describe));
    if only.is_none() {
        blocks.extend(
            registry::left_out()
                .map(|feature| format!("{}\n  {:<11} {}\n", feature.name, "here", feature.remedy())),
        );
    }
    output::print_text(&blocks.join("\n"))?;
    Ok(Status::Held)
}

/// Which store carries which workload.
fn table(kinds: &[&StoreKind]) -> String {
    let workloads = || WORKLOADS.iter().map(|workload| workload.name);
    let titles: Vec<&str> = std::iter::once("store").chain(workloads()).collect();
    let mut table = Table::of(&titles);
    for kind in kinds {
        let carries = workloads().map(|name| if kind.workload(name).is_yes() { "yes" } else { "no" });
        table.push(std::iter::once(kind.name).chain(carries).map(Entry::left));
    }
    table.terminal(output::style())
}

fn describe(kind: &StoreKind) -> String {
    let mut text = format!("{} ({})\n", kind.name, kind.title);
    let mut row = |label: &str, word: &str, support: Support| {
        // writing into a string cannot fail
        let _ = writeln!(text, "  {label:<11} {word:<10} {}", wrapped(&support.to_string(), OF_SUPPORT));
    };
    for (name, support) in kind.workloads {
        row("workload", name, *support);
    }
    for lock in Lock::ALL {
        row("lock", lock.name(), kind.lock(lock));
    }
    for durability in Durability::ALL {
        row("durability", durability.name(), kind.durability(durability));
    }
    row("tls", "", kind.tls);
    for (level, support) in kind.replication {
        row("replication", level.name(), *support);
    }
    if kind.replication.is_empty() {
        row("replication", "", kind.replication(Replication::Async));
    }
    text += &kind.replica_reads.map_or_else(String::new, replica_reads);
    let _ = writeln!(text, "  {:<11} {}", "here", here(kind));
    if !kind.address.is_empty() {
        let _ = writeln!(text, "  {:<11} --store {}", "your own", kind.address);
    }
    text
}

/// What the replicas of a store's clusters answer, and what is promised of that.
fn replica_reads(reads: &ReplicaReads) -> String {
    let levels: Vec<&str> = reads.isolation.iter().map(|level| level.name()).collect();
    let levels = format!(
        "replicas answer reads of the workload records only; isolation default, {}",
        levels.join(", ")
    );
    let strong = match reads.strong {
        Ok((level, setting)) => format!("{setting}; needs replication {level}"),
        Err(why) => format!("no: {why}"),
    };
    let rows = [("reads", "replica", levels), ("consistency", "strong", strong)];
    rows.map(|(label, word, said)| format!("  {label:<11} {word:<10} {}\n", wrapped(&said, OF_SUPPORT)))
        .concat()
}

/// The store's version and path on this machine, or how to install it.
fn here(kind: &StoreKind) -> String {
    match kind.hosting {
        Hosting::Embedded => "built in: nothing to install".to_owned(),
        Hosting::InMemory => "built in, and keeps nothing on disk: nothing to install".to_owned(),
        Hosting::Program => match Lab::locate(kind.program()) {
            Ok(found) => wrapped(&format!("{} ({})", found.program.display(), found.version), OF_STORE),
            Err(error) => error.to_string().replace('\n', &format!("\n{:OF_STORE$}", "")),
        },
    }
}
