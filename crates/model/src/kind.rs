//! What a kind of store is and has, said by its adapter once and shown by `acidtest stores`.

use std::fmt;

use serde_json::{Map, Value};

use crate::{Durability, Isolation, Lock};

/// Whether a store has a thing: how it does it, or why it cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It has it; the statements or settings that do it.
    Yes(&'static str),
    /// It has it not, and why.
    No(&'static str),
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes(how) => f.write_str(how),
            Self::No(why) => write!(f, "no: {why}"),
        }
    }
}

impl Support {
    /// Whether the store has it.
    #[must_use]
    pub fn is_yes(self) -> bool {
        matches!(self, Self::Yes(_))
    }
}

/// What runs a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosting {
    /// It runs inside acidtest's own process; on disk, in a private directory.
    Embedded,
    /// It runs inside acidtest's own process and keeps nothing on disk.
    InMemory,
    /// A server program, which the lab can start from an installed binary.
    Program,
}

/// A kind of store: its name, where its address begins, and its row of the matrix.
#[derive(Clone, Copy, Debug)]
pub struct StoreKind {
    /// The name on the command line and in results.
    pub name: &'static str,
    /// The name as its makers write it.
    pub title: &'static str,
    /// Schemes of an address of this kind.
    pub schemes: &'static [&'static str],
    /// What an address of this kind looks like; empty if it has none.
    pub address: &'static str,
    /// What runs it.
    pub server: Hosting,
    /// The port that a server of this kind usually listens on.
    pub default_port: u16,
    /// The lock modes, each with how it is done.
    pub locks: &'static [(Lock, Support)],
    /// The durability rungs, each with the settings that amount to it.
    pub durability: &'static [(Durability, Support)],
    /// The isolation levels that a run can ask for, each with how it is set.
    pub isolation: &'static [(Isolation, Support)],
    /// Whether several operations can be one transaction.
    pub transactions: Support,
    /// Whether a run can say when what is written is found by searches, or why not.
    pub refresh: Support,
    /// Whether its hard lock is kept in another store, by a lock service.
    pub lock_service: bool,
    /// Whether the rung is not that of the server's settings but of what each trial lays in, as of a broker's queue
    /// and its messages: then a run does not ask for one, and it is read back from there.
    pub rung_of_data: bool,
    /// The workloads that it can carry, by name.
    pub workloads: &'static [(&'static str, Support)],
    /// What it cannot do of what the rest of its row allows by itself, and why; [`never()`] for most.
    pub refuses: fn(&CellRequest<'_>) -> Option<&'static str>,
    /// What of a plan has no effect on what a cell asks of it; [`all_has_effect()`] for most.
    pub idle: fn(&CellRequest<'_>) -> &'static [Idle],
}

/// An option or a parameter that has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Its key in a plan.
    pub name: &'static str,
    /// Why it has none.
    pub why: &'static str,
}

/// Of a store in which what is written is found by whoever searches next.
pub const NO_REFRESH: Support = Support::No("what is written is found at once");

/// What one cell asks of a store besides its rung.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellRequest<'a> {
    /// The workload's name.
    pub workload: &'a str,
    /// Those of its operations that the cell really does.
    pub operations: Vec<&'a str>,
    /// How read-decide-writes are protected.
    pub lock: Lock,
    /// The isolation level, where one is asked for.
    pub isolation: Option<Isolation>,
    /// Operations in one transaction.
    pub transaction: u32,
    /// Every parameter of the workload, by name.
    pub parameters: Map<String, Value>,
}

impl CellRequest<'_> {
    /// Whether the cell does one of these operations.
    #[must_use]
    pub fn does(&self, operations: &[&str]) -> bool {
        self.operations.iter().any(|each| operations.contains(each))
    }
}

/// Refuses no combination of what a store has.
#[must_use]
pub fn never(_: &CellRequest<'_>) -> Option<&'static str> {
    None
}

/// Of a store on which whatever a plan says has an effect.
#[must_use]
pub fn all_has_effect(_: &CellRequest<'_>) -> &'static [Idle] {
    &[]
}

impl StoreKind {
    /// How the kind does a lock mode, or why not.
    #[must_use]
    pub fn lock(&self, lock: Lock) -> Support {
        find(self.locks, lock)
    }

    /// How the kind reaches a rung, or why not.
    #[must_use]
    pub fn rung(&self, rung: Durability) -> Support {
        find(self.durability, rung)
    }

    /// How the kind sets an isolation level, or why not.
    #[must_use]
    pub fn isolation(&self, level: Isolation) -> Support {
        find(self.isolation, level)
    }

    /// The program that runs it, by the lab's name: engines of one server share it.
    #[must_use]
    pub fn program(&self) -> &'static str {
        self.name.split_once('/').map_or(self.name, |(program, _)| program)
    }

    /// Whether the kind can carry a workload, or why not.
    #[must_use]
    pub fn workload(&self, name: &str) -> Support {
        self.workloads
            .iter()
            .find(|(each, _)| *each == name)
            .map_or(Support::No("no adapter for this workload has been written"), |(_, support)| *support)
    }
}

fn find<T: Copy + PartialEq>(row: &[(T, Support)], key: T) -> Support {
    row.iter()
        .find(|(each, _)| *each == key)
        .map_or(Support::No("its adapter does not say"), |(_, support)| *support)
}
