//! Samples the client, the server's whole process tree and the machine from `/proc` while a trial runs, so that a
//! result can say which resource ran out.
//!
//! Invariant: this crate records and draws no conclusion. A figure that the kernel refuses or lacks is `None` or
//! labelled (see [`MemoryKind`]); it is never guessed, and nothing here fails a trial.

#![warn(missing_docs)]

mod free;
mod frequency;
mod load;
mod machine;
mod process;
mod resources;
mod sampler;

pub use free::{free_disk, free_memory};
pub use frequency::{Frequency, frequency};
pub use machine::{CpuReading, FileSystem, Machine, filesystem, machine, usable_cores, writes_to_disks};
pub use resources::{LatelyUsed, MachineUse, MemoryKind, ProcessUse, Resources};
pub use sampler::Sampler;
