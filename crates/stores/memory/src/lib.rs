//! A reference store in this process's memory: correct, unless told to plant a bug; and a store that
//! does nothing, to measure the bench itself.
//!
//! # Guarantees
//!
//! | guarantee | how |
//! | --- | --- |
//! | lock none | read under the mutex, give way, write the computed value |
//! | lock soft | a version for each (sku, condition, source) or record, compared when writing |
//! | lock hard | an asynchronous mutex for each (sku, condition, source), and for the records that share one, held from read to write |
//! | lock native | one critical section |
//! | transaction | all is staged and committed in one critical section; soft compares all that was read, hard holds all that is touched |
//! | isolation serializable | in every lock mode a transaction's commit compares all that it read, scans by the number of commits |
//! | ack | answered once it is in the queue; a transaction's messages come in one critical section |
//! | consume | what is handed out stays the queue's until it is acknowledged; what a lost consumer held is put back in its old place and flagged as redelivered |
//! | order | of each producer's connection kept, but for what is delivered again |
//! | durability | none: nothing is kept |

mod bugs;
mod inventory;
mod join;
mod null;
mod queue;
mod records;
pub mod selftest;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use acidtest_model::{
    Durability, Effective, Isolation, Lock, NO_REFRESH, Server, StoreError, StoreKind, Support, Task, never,
};
use acidtest_workloads::{
    Attempt, Owner, Store, inventory::InventoryStore, join::JoinStore, queue::QueueStore,
    records::RecordsStore,
};

use bugs::Plant;
pub use bugs::{Bug, Faults};
pub use null::Null;

const NOTHING_KEPT: Support = Support::No("nothing is kept on disk");

/// The store's row of the matrix.
pub const KIND: StoreKind = StoreKind {
    name: "memory",
    title: "memory (reference)",
    schemes: &[],
    address: "",
    server: Server::InMemory,
    default_port: 0,
    locks: &[
        (Lock::None, Support::Yes("read, give way, write the computed value")),
        (Lock::Soft, Support::Yes("version compared when writing")),
        (Lock::Hard, Support::Yes("mutex held from read to write")),
        (Lock::Native, Support::Yes("one critical section")),
    ],
    durability: &[
        (Durability::None, Support::Yes("this process's memory")),
        (Durability::Process, NOTHING_KEPT),
        (Durability::Disk, NOTHING_KEPT),
    ],
    isolation: &[(Isolation::Serializable, Support::Yes("what was read is compared when committing"))],
    transactions: Support::Yes("staged, and committed in one critical section"),
    refresh: NO_REFRESH,
    lock_service: false,
    rung_of_queue: false,
    workloads: &[
        ("inventory", Support::Yes("capture and release")),
        ("records", Support::Yes("records in a tree, by key")),
        ("join", Support::Yes("two trees, one looked up for each row of the other")),
        ("queue", Support::Yes("messages in a tree, by arrival")),
    ],
    refuses: never,
};

/// How long a hidden commit stays hidden, and a late operation comes late.
const LATER: Duration = Duration::from_millis(20);

/// The reference store.
#[derive(Debug, Default)]
pub struct Memory {
    faults: Faults,
    namespaces: Mutex<HashMap<String, String>>,
    tables: Mutex<HashMap<String, Arc<inventory::Table>>>,
    records: Mutex<HashMap<String, Arc<records::Table>>>,
    joins: Mutex<HashMap<String, Arc<join::Tables>>>,
    queues: Mutex<HashMap<String, Arc<queue::Queue>>>,
}

impl Memory {
    /// A store with planted faults; [`Faults::default`] has none.
    #[must_use]
    pub fn with(faults: Faults) -> Self {
        Self { faults, ..Self::default() }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the answer, or keeps the client waiting until its time is up.
async fn answered(done: Option<Attempt>) -> Attempt {
    match done {
        Some(attempt) => attempt,
        None => std::future::pending().await,
    }
}

impl Store for Memory {
    fn effective(&self) -> Task<'_, Result<Effective, StoreError>> {
        Box::pin(async {
            Ok(Effective {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                durability: Durability::None,
                because: "nothing is kept on disk".to_owned(),
                settings: BTreeMap::from([("faults".to_owned(), self.faults.to_string())]),
            })
        })
    }

    fn owner<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<Owner, StoreError>> {
        let owner = locked(&self.namespaces).get(namespace).cloned();
        Box::pin(async { Ok(owner.map_or(Owner::Nobody, Owner::Run)) })
    }

    fn create<'a>(&'a self, namespace: &'a str, run: &'a str) -> Task<'a, Result<(), StoreError>> {
        locked(&self.namespaces).insert(namespace.to_owned(), run.to_owned());
        Box::pin(async { Ok(()) })
    }

    fn remove<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<(), StoreError>> {
        locked(&self.namespaces).remove(namespace);
        locked(&self.tables).clear();
        locked(&self.records).clear();
        locked(&self.joins).clear();
        locked(&self.queues).clear();
        Box::pin(async { Ok(()) })
    }

    fn inventory(&self) -> Option<&dyn InventoryStore> {
        Some(self)
    }

    fn records(&self) -> Option<&dyn RecordsStore> {
        Some(self)
    }

    fn join(&self) -> Option<&dyn JoinStore> {
        Some(self)
    }

    fn queue(&self) -> Option<&dyn QueueStore> {
        Some(self)
    }
}
