//! Figures of a sampler, as a result stores them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Resources used between a sampler's start and its stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// Length of the observed span, in seconds.
    pub seconds: f64,
    /// How many samples were taken, the first and the last among them.
    pub samples: u64,
    /// This process (the client); `processes` is 0 where `/proc` does not show it.
    pub client: ProcessUse,
    /// The server's process tree; `None` where it is embedded in the client, is not on this machine, or no process
    /// had the given id.
    pub server: Option<ProcessUse>,
    /// The process trees of the servers beside it, by their roles, such as a lock service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, ProcessUse>,
    /// The whole machine, whichever process used it.
    pub machine: MachineUse,
}

impl Resources {
    /// Lets no process have written more than the whole machine has sent to its disks, where data lies on disks. A kernel whose page
    /// cache has large folios counts the whole folio for a small write into it, and that once for each sync: a log of small
    /// records seemed to write some hundred times as much as any disk was given (Linux 6.18, ext4).
    pub fn limit_written(&mut self) {
        let Some(most) = self.machine.written_bytes else { return };
        let processes =
            std::iter::once(&mut self.client).chain(&mut self.server).chain(self.others.values_mut());
        for written in processes.filter_map(|process| process.written_bytes.as_mut()) {
            *written = (*written).min(most);
        }
    }
}

/// Resources that were used in a short while, told while it goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatelyUsed {
    /// Who used them: `clients`, `server`, the role of a server beside it, or `machine`.
    pub who: String,
    /// Cores kept busy: 1.0 is one core, all the time.
    pub cores: f64,
    /// The memory in use, in bytes; none of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// Resources that a process, or a tree of processes taken as one, used over the whole span.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessUse {
    /// Highest number of processes seen alive at once.
    pub processes: u64,
    /// User and system time, in seconds, including that of processes which ended within the span.
    pub cpu_seconds: f64,
    /// Cores kept busy over the span: 1.0 is one core, all the time.
    pub cpu_mean: f64,
    /// Cores kept busy in the busiest interval between two samples.
    pub cpu_max: f64,
    /// Mean of the memory readings, in bytes.
    pub memory_mean_bytes: u64,
    /// Largest of the memory readings, in bytes.
    pub memory_max_bytes: u64,
    /// How memory that several processes share was counted.
    pub memory_kind: MemoryKind,
    /// Bytes read from storage (not from the page cache); `None` where the kernel does not let us look at every
    /// process.
    pub read_bytes: Option<u64>,
    /// Bytes sent towards storage. They are counted when a page is first dirtied, so those still in the page cache
    /// are included; `None` where the kernel does not let us look at every process. On the file systems of disks never more
    /// than the whole machine's.
    pub written_bytes: Option<u64>,
}

impl ProcessUse {
    /// The figures of a process that `/proc` does not show.
    pub(crate) const UNSEEN: Self = Self {
        processes: 0,
        cpu_seconds: 0.0,
        cpu_mean: 0.0,
        cpu_max: 0.0,
        memory_mean_bytes: 0,
        memory_max_bytes: 0,
        memory_kind: MemoryKind::Resident,
        read_bytes: None,
        written_bytes: None,
    };
}

/// How memory that several processes share is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Proportional set size: a shared page counts once over all the processes that map it.
    Proportional,
    /// Resident set size for at least one process, whose proportional set size cannot be read: a shared page counts
    /// once in every process that maps it.
    Resident,
}

/// Resources used on the machine as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineUse {
    /// Mean number of busy cores over the span, out of `cores`.
    pub cpu_mean: f64,
    /// Busy cores in the busiest interval between two samples, out of `cores`.
    pub cpu_max: f64,
    /// Logical CPUs online.
    pub cores: u64,
    /// Cores that the hypervisor gave to others while they were wanted here, mean over the span; `None` where the
    /// kernel does not report it.
    pub steal_mean: Option<f64>,
    /// Percentage of the span in which at least one task waited for a CPU; this and the following
    /// are `None` where the kernel keeps no pressure stall information.
    pub pressure_cpu_some: Option<f64>,
    /// Percentage of the span in which at least one task waited for storage.
    pub pressure_io_some: Option<f64>,
    /// Percentage of the span in which every task that had something to do waited for storage.
    pub pressure_io_full: Option<f64>,
    /// Percentage of the span in which at least one task waited for memory.
    pub pressure_memory_some: Option<f64>,
    /// Percentage of the span in which every task that had something to do waited for memory.
    pub pressure_memory_full: Option<f64>,
    /// Bytes that all processes sent to disks, with what more of them waited in the page cache at the end than at the start; `None`
    /// where the kernel does not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
}
