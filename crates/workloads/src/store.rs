//! The operations that every store offers, whatever the workload.

#![warn(missing_docs)]

use std::time::{Duration, Instant};

use acidtest_model::{EffectiveSettings, StoreError, Task};
use serde::{Deserialize, Serialize};

use crate::{
    interactive::InteractiveStore, inventory::InventoryStore, join::JoinStore, logs::LogsStore,
    parcels::ParcelsStore, queue::QueueStore, records::RecordsStore, replica::Replica,
    transactions::TransactionsStore,
};

/// Where one trial keeps its data: inside the run's namespace, under names that no other trial has, so that an
/// operation that arrives late cannot change the next trial's data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The name of the schema, database or key prefix that belongs to acidtest.
    pub namespace: String,
    /// The trial's number in the run.
    pub trial: u32,
}

impl Place {
    /// The trial's name for one of its tables, keys or queues: `name` and the trial's number.
    #[must_use]
    pub fn object(&self, name: &str) -> String {
        format!("{name}_{}", self.trial)
    }
}

/// The namespace for the locks of a namespace: it differs, so that one server may be both a store and the keeper of
/// another store's locks.
#[must_use]
pub fn lock_namespace(of: &str) -> String {
    format!("{of}_locks")
}

/// Whether a namespace exists, and who created it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The namespace does not exist.
    Nobody,
    /// A run of acidtest created it; carries the run's id.
    Run(String),
    /// It exists and is empty but, perhaps, for the place of a mark. A run that is killed while it creates the
    /// namespace leaves it so, on a store that cannot create and mark it in one step.
    Empty,
    /// It exists and holds nothing at all: somebody has prepared it for this. It is used, and stays when it is empty again.
    Prepared,
    /// It exists, and no run of acidtest has left its mark in it.
    Stranger,
}

/// Which server answers, and in which of its lives, by what it says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Another one in each of its lives: since when it runs, or a name that it was given when it started.
    pub life: String,
    /// The same in each of its lives as long as it serves the same data, and another one on a server that took its place;
    /// none where it says nothing of that.
    pub data: Option<String>,
    /// Whether each crash begins another life. Where it need not, a server in the same life may have crashed and recovered.
    pub is_exact: bool,
}

/// What a server has evicted: data that it drops of its own accord, because it was configured to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evictions {
    /// The life of the server in which it counts them; in another one it begins anew.
    pub life: String,
    /// How many keys it has evicted, whosever they were.
    pub keys: u64,
    /// The settings by which it may evict any key at all, with the remedy; none where it evicts no key that is to stay.
    pub by: Option<String>,
}

/// A store that was opened at an address, with the untimed operations around a trial.
pub trait Store: Send + Sync + 'static {
    /// The store's version and settings, read back from the server.
    fn effective(&self) -> Task<'_, Result<EffectiveSettings, StoreError>>;

    /// Who created the namespace, if it exists.
    fn owner<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<Owner, StoreError>>;

    /// Creates the namespace, or takes one that is [prepared](Owner::Prepared), and leaves the run's mark in it.
    fn create<'a>(&'a self, namespace: &'a str, run: &'a str) -> Task<'a, Result<(), StoreError>>;

    /// Removes the namespace and everything in it; of one that was prepared only what is in it.
    fn remove<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<(), StoreError>>;

    /// Which server answers on a new connection; `None` for one that does not say, to this user, in which life it is, and
    /// for a store without a server.
    ///
    /// # Errors
    /// Nobody answers.
    fn identity(&self) -> Task<'_, Result<Option<Identity>, StoreError>> {
        Box::pin(async { Ok(None) })
    }

    /// What the server has evicted so far; `None` for one that evicts nothing, or does not count it.
    ///
    /// # Errors
    /// Nobody answers.
    fn evictions(&self) -> Task<'_, Result<Option<Evictions>, StoreError>> {
        Box::pin(async { Ok(None) })
    }

    /// Opens a connection as clients do, with its login, and closes it. Returns how long the opening took; `None` for a store
    /// without connections.
    fn connecting(&self) -> Task<'_, Result<Option<Duration>, StoreError>> {
        Box::pin(async { Ok(None) })
    }

    /// Whether an operation blocks its thread until it is done, as in an embedded store: every client then needs a
    /// thread of its own.
    fn blocking(&self) -> bool {
        false
    }

    /// The inventory workload's port; `None` if the store does not have it.
    fn inventory(&self) -> Option<&dyn InventoryStore> {
        None
    }

    /// The records workload's port; `None` if the store does not have it.
    fn records(&self) -> Option<&dyn RecordsStore> {
        None
    }

    /// The join workload's port; `None` if the store does not have it.
    fn join(&self) -> Option<&dyn JoinStore> {
        None
    }

    /// The queue workload's port; `None` if the store does not have it.
    fn queue(&self) -> Option<&dyn QueueStore> {
        None
    }

    /// The logs workload's port; `None` if the store does not have it.
    fn logs(&self) -> Option<&dyn LogsStore> {
        None
    }

    /// The parcels workload's port; `None` if the store does not have it.
    fn parcels(&self) -> Option<&dyn ParcelsStore> {
        None
    }

    /// The transactions workload's port; `None` if the store does not have it.
    fn transactions(&self) -> Option<&dyn TransactionsStore> {
        None
    }

    /// The store as a member of a cluster; `None` if acidtest does not operate clusters of it.
    fn replica(&self) -> Option<&dyn Replica> {
        None
    }

    /// Sessions with interactive transactions; `None` if the store does not have them.
    fn interactive(&self) -> Option<&dyn InteractiveStore> {
        None
    }
}

/// Opens a connection, and drops it. Returns how long the opening took.
///
/// # Errors
/// It cannot be opened.
pub async fn time_opening<C>(
    open: impl Future<Output = Result<C, StoreError>>,
) -> Result<Option<Duration>, StoreError> {
    let begun = Instant::now();
    let opened = open.await?;
    let took = begun.elapsed();
    drop(opened);
    Ok(Some(took))
}
