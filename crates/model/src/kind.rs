//! What a kind of store is and has, said by its adapter once and shown by `acidtest stores`.

use crate::{Durability, Lock};

/// Whether a store has a thing: how it does it, or why it cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It has it; the statements or settings that do it.
    Yes(&'static str),
    /// It has it not, and why.
    No(&'static str),
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
pub enum Server {
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
    pub server: Server,
    /// The port that a server of this kind usually listens on.
    pub default_port: u16,
    /// The lock modes, each with how it is done.
    pub locks: &'static [(Lock, Support)],
    /// The durability rungs, each with the settings that amount to it.
    pub durability: &'static [(Durability, Support)],
    /// The workloads that it can carry, by name.
    pub workloads: &'static [(&'static str, Support)],
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
