//! Samples the client, the server's whole process tree and the machine while a trial runs, from
//! `/proc`, so that a result can say what ran out.
//!
//! Invariant: this crate records and draws no conclusion. A figure the kernel refuses or lacks is
//! `None` or labelled (see [`MemoryKind`]); it is never guessed, and nothing here fails a trial.

mod load;
mod machine;
mod process;
mod resources;
mod sampler;

pub use machine::{Machine, machine};
pub use resources::{MachineUse, MemoryKind, ProcessUse, Resources};
pub use sampler::Sampler;
