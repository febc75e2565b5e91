//! The business workloads: for each its parameters, its generator, its port (the operations that a
//! store must offer), the client that ties generator, port and ledger together, and the audit.
//!
//! Invariants: a workload knows no store. Its audit sees only the ledger, which the clients keep in
//! fixed memory, and the store's final state; it never asks the store what it should have done.

pub mod inventory;
mod keys;
mod store;
mod verdict;

pub use acidtest_engine::{Attempt, ClientTask, Fault};
pub use keys::{Skew, SkewError};
pub use store::{Owner, Place, Store};
pub use verdict::{Audit, Finding, Verdict};

/// One parameter of a workload, as `acidtest workloads` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in plans; on the command line with `--` before it and dashes for underscores.
    pub name: &'static str,
    /// Its default.
    pub default: String,
    /// What it means, with its unit.
    pub meaning: &'static str,
}
