//! A reference store in this process's memory: correct, unless told to plant a bug; and a store that
//! does nothing, to measure the bench itself.
//!
//! # Guarantees
//!
//! | guarantee | how |
//! | --- | --- |
//! | lock none | read under the mutex, give way, write the computed value |
//! | lock soft | a version for each (sku, condition, source), compared when writing |
//! | lock hard | an asynchronous mutex for each (sku, condition, source), held from read to write |
//! | lock native | one critical section |
//! | durability | none: nothing is kept |

mod bugs;
mod inventory;
mod null;
pub mod selftest;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use acidtest_model::{Durability, Effective, Lock, Server, StoreError, StoreKind, Support, Task};
use acidtest_workloads::{Owner, Store, inventory::InventoryStore};

pub use bugs::{Bug, Faults};
pub use null::null_client;

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
    workloads: &[("inventory", Support::Yes("capture and release"))],
};

/// The reference store.
#[derive(Debug, Default)]
pub struct Memory {
    faults: Faults,
    namespaces: Mutex<HashMap<String, String>>,
    tables: Mutex<HashMap<String, Arc<inventory::Table>>>,
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
        Box::pin(async { Ok(()) })
    }

    fn inventory(&self) -> Option<&dyn InventoryStore> {
        Some(self)
    }
}
