//! A kind of store and its abilities, stated once by its adapter and shown by `acidtest stores`.

use std::fmt;

use serde_json::{Map, Value};

use crate::{Durability, Isolation, Lock, Replication};

/// Whether a store has an ability: how it provides it, or why it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// The store has it; the text names the statements or settings that provide it.
    Yes(&'static str),
    /// The store does not have it; the text says why.
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
    /// Whether the store has the ability.
    #[must_use]
    pub fn is_yes(self) -> bool {
        matches!(self, Self::Yes(_))
    }
}

/// Whether a store runs inside acidtest's own process or as a server program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosting {
    /// Inside acidtest's own process, with its data in a private directory on disk.
    Embedded,
    /// Inside acidtest's own process, with nothing on disk.
    InMemory,
    /// A server program, which the lab can start from an installed binary.
    Program,
}

/// A kind of store: its names, its address, and its row of the matrix that `acidtest stores` shows.
#[derive(Clone, Copy, Debug)]
pub struct StoreKind {
    /// The name on the command line and in results.
    pub name: &'static str,
    /// The name as its makers write it.
    pub title: &'static str,
    /// URL schemes of this kind's addresses.
    pub schemes: &'static [&'static str],
    /// An example of this kind's address; empty if it has none.
    pub address: &'static str,
    /// Whether it runs inside acidtest's own process or as a server program.
    pub hosting: Hosting,
    /// TCP port that a server of this kind listens on by default.
    pub default_port: u16,
    /// The lock modes, each with how the store provides it.
    pub locks: &'static [(Lock, Support)],
    /// The durability levels, each with the settings that amount to it.
    pub durability: &'static [(Durability, Support)],
    /// The isolation levels that a run can ask for, each with how it is set.
    pub isolation: &'static [(Isolation, Support)],
    /// Whether several operations can be one transaction.
    pub transactions: Support,
    /// Whether a run can choose when a written document becomes visible to searches, or why not.
    pub refresh: Support,
    /// How a private server of it speaks TLS, or why it does not.
    pub tls: Support,
    /// The replication levels of private clusters, each with the settings that amount to it; empty where acidtest starts one node of
    /// it only.
    pub replication: &'static [(Replication, Support)],
    /// What replicas of private clusters answer; none where they are not read.
    pub replica_reads: Option<&'static ReplicaReads>,
    /// Whether its hard lock is kept in another store, by a lock service.
    pub lock_service: bool,
    /// Whether clients in several processes can use it, or why not.
    pub processes: Support,
    /// Whether the durability level is decided by the data of each trial, as by a broker's queue and its messages,
    /// and not by the server's settings. A run then does not ask for a durability level; it is read back from the trial's data.
    pub durability_of_data: bool,
    /// Whether a private server of it keeps all of its data in memory, so that they must fit there.
    pub in_memory: bool,
    /// Kilobytes (of 1,024 bytes) of memory that each client takes of a private server of it, or of acidtest where it is embedded. Of
    /// the memory with 550 clients of the inventory, or 500 of a queue, less that with 50, on the versions in `GUARANTEES.md`.
    pub client_kib: u16,
    /// The workloads that have an adapter for it, by name.
    pub workloads: &'static [(&'static str, Support)],
    /// Why it cannot run a cell that the rest of its row allows; [`never()`] for most stores.
    pub refuses: fn(&CellRequest<'_>) -> Option<&'static str>,
    /// The options and parameters of a plan that have no effect on a cell; [`all_has_effect()`] for most stores.
    pub idle: fn(&CellRequest<'_>) -> &'static [IdleOption],
}

/// What the replicas of a store answer, and how they are promised to see what was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaReads {
    /// The isolation levels that a replica has, besides the store's own default.
    pub isolation: &'static [Isolation],
    /// From which replication level on reads can be strong, and by which setting; or why they cannot.
    pub strong: Result<(Replication, &'static str), &'static str>,
}

/// An option or a parameter that has no effect on a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleOption {
    /// Its key in a plan.
    pub name: &'static str,
    /// Why it has no effect.
    pub why: &'static str,
}

/// For the workload logs, of a store that the gateway cannot store entries in.
pub const NO_SINK: Support = Support::No("a gateway stores in SQLite, PostgreSQL, MariaDB or MySQL");

/// For stores in which a write is visible to every search at once.
pub const NO_REFRESH: Support = Support::No("what is written is found at once");

/// For stores whose servers speak TLS themselves.
pub const OWN_TLS: Support = Support::Yes("the server's own");

/// The name of the setting that says what speaks TLS in a private server's place, where it is not the server.
pub const TLS_HOW: &str = "TLS by";

/// For embedded stores, which have no network to protect.
pub const NO_NETWORK: Support = Support::No("it runs in the process of its clients");

/// For stores that are servers: clients of any process connect to them.
pub const EACH_CONNECTS: Support = Support::Yes("each connects to the server");

/// The demands of one cell on a store, besides its durability level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellRequest<'a> {
    /// The workload's name.
    pub workload: &'a str,
    /// The workload's operations that the cell really performs.
    pub operations: Vec<&'a str>,
    /// The lock mode, which protects read-decide-writes.
    pub lock: Lock,
    /// The isolation level; `None` for the store's own default.
    pub isolation: Option<Isolation>,
    /// Operations in one transaction.
    pub transaction: u32,
    /// Every parameter of the workload, by name.
    pub parameters: Map<String, Value>,
}

impl CellRequest<'_> {
    /// Whether the cell performs at least one of these operations.
    #[must_use]
    pub fn does(&self, operations: &[&str]) -> bool {
        self.operations.iter().any(|each| operations.contains(each))
    }
}

/// For a store that refuses no combination of its abilities.
#[must_use]
pub fn never(_: &CellRequest<'_>) -> Option<&'static str> {
    None
}

/// For a store on which every option and parameter of a plan has an effect.
#[must_use]
pub fn all_has_effect(_: &CellRequest<'_>) -> &'static [IdleOption] {
    &[]
}

impl StoreKind {
    /// How the kind provides a lock mode, or why it does not.
    #[must_use]
    pub fn lock(&self, lock: Lock) -> Support {
        find(self.locks, lock)
    }

    /// How the kind reaches a durability level, or why not.
    #[must_use]
    pub fn durability(&self, durability: Durability) -> Support {
        find(self.durability, durability)
    }

    /// How a private cluster of the kind reaches a replication level, or why not.
    #[must_use]
    pub fn replication(&self, level: Replication) -> Support {
        if level == Replication::None {
            return Support::Yes("one node");
        }
        self.replication
            .iter()
            .find(|(each, _)| *each == level)
            .map_or(Support::No("acidtest starts one node of it only"), |(_, support)| *support)
    }

    /// How the kind sets an isolation level, or why not.
    #[must_use]
    pub fn isolation(&self, level: Isolation) -> Support {
        find(self.isolation, level)
    }

    /// The name of the server program in the lab: the part of the name before the `/`, because engines of one
    /// server share it.
    #[must_use]
    pub fn program(&self) -> &'static str {
        self.name.split_once('/').map_or(self.name, |(program, _)| program)
    }

    /// Whether the kind has an adapter for a workload, or why not.
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
