//! What every store offers, whatever the workload.

use acidtest_model::{Effective, StoreError, Task};

use crate::{inventory::InventoryStore, join::JoinStore, queue::QueueStore, records::RecordsStore};

/// Where one trial keeps its data: inside the run's namespace, under names that no other trial has,
/// so that an operation that arrives late finds nothing of the next trial's to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// acidtest's own schema, database or prefix.
    pub namespace: String,
    /// The trial's number in the run.
    pub trial: u32,
}

impl Place {
    /// The trial's name for one of its objects.
    #[must_use]
    pub fn object(&self, name: &str) -> String {
        format!("{name}_{}", self.trial)
    }
}

/// Who made a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// There is no such namespace.
    Nobody,
    /// A run of acidtest made it; the run's id.
    Run(String),
    /// It is there with nothing in it but, perhaps, the place for a mark: what a run leaves that is killed
    /// while it makes it, on a store that cannot make and mark in one step.
    Empty,
    /// It is there, and no run of acidtest left its mark in it.
    Stranger,
}

/// A store that was opened at an address: the untimed edge of a trial.
pub trait Store: Send + Sync {
    /// Version and settings, read back from the server.
    fn effective(&self) -> Task<'_, Result<Effective, StoreError>>;

    /// Who made the namespace, if it exists.
    fn owner<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<Owner, StoreError>>;

    /// Makes the namespace and leaves the run's mark in it.
    fn create<'a>(&'a self, namespace: &'a str, run: &'a str) -> Task<'a, Result<(), StoreError>>;

    /// Removes the namespace with all that is in it.
    fn remove<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<(), StoreError>>;

    /// Whether an operation holds its thread until it is done, as an embedded store's does: then
    /// every client needs a thread of its own.
    fn blocking(&self) -> bool {
        false
    }

    /// The inventory workload's operations, if the store has them.
    fn inventory(&self) -> Option<&dyn InventoryStore> {
        None
    }

    /// The records workload's operations, if the store has them.
    fn records(&self) -> Option<&dyn RecordsStore> {
        None
    }

    /// The join workload's operations, if the store has them.
    fn join(&self) -> Option<&dyn JoinStore> {
        None
    }

    /// The queue workload's operations, if the store has them.
    fn queue(&self) -> Option<&dyn QueueStore> {
        None
    }
}
