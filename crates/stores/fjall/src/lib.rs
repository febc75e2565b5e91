//! fjall, embedded: a log-structured merge tree in a folder, with one thread for each client.
//!
#![doc = include_str!("../GUARANTEES.md")]

mod error;
mod files;
mod interactive;
mod inventory;
mod parcels;
mod records;
mod transactions;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use acidtest_model::{
    Address, Durability, EffectiveSettings, Hosting, Isolation, Lock, NO_REFRESH, StoreError, StoreKind,
    Support, Task, all_has_effect, never,
};
use acidtest_workloads::{
    Owner, Place, Store, interactive::InteractiveStore, inventory::InventoryStore, parcels::ParcelsStore,
    records::RecordsStore, transactions::TransactionsStore,
};
use fjall::{Database, PersistMode};

use crate::{
    error::Error,
    files::{Files, drop_keyspace, keyspace, make_keyspace},
};

/// The version of the crate that is built in, as the crate itself does not tell it.
const VERSION: &str = "3.1.13";

/// The store's row of the matrix: its lock modes, durability levels and workloads.
pub const KIND: StoreKind = StoreKind {
    name: "fjall",
    title: "fjall",
    schemes: &["fjall"],
    address: "fjall:FOLDER",
    hosting: Hosting::Embedded,
    default_port: 0,
    locks: &[
        (Lock::None, Support::Yes("get, then insert")),
        (Lock::Soft, Support::Yes("optimistic transaction: get, insert, commit")),
        (Lock::Hard, Support::Yes("single-writer transaction: the whole database")),
        (Lock::Native, Support::Yes("fetch_update; captures and parcels: a transaction")),
    ],
    durability: &[
        (Durability::None, Support::Yes("durability(None): buffered in the process")),
        (Durability::Process, Support::Yes("PersistMode::Buffer at every commit")),
        (Durability::Disk, Support::Yes("PersistMode::SyncData at every commit")),
    ],
    isolation: &[
        (Isolation::ReadUncommitted, Support::No("every transaction is serializable")),
        (Isolation::ReadCommitted, Support::No("every transaction is serializable")),
        (Isolation::RepeatableRead, Support::No("every transaction is serializable")),
        (Isolation::Serializable, Support::Yes("always: there is no other level")),
    ],
    transactions: Support::Yes("write transaction: optimistic, under a hard lock of the single writer"),
    refresh: NO_REFRESH,
    tls: acidtest_model::NO_NETWORK,
    replication: &[],
    replica_reads: None,
    lock_service: false,
    processes: Support::No("it locks its folder for the one process that has it open"),
    durability_of_data: false,
    in_memory: false,
    client_kib: 336,
    workloads: &[
        ("inventory", Support::Yes("capture and release")),
        ("records", Support::Yes("a keyspace of values under their keys")),
        ("parcels", Support::Yes("a keyspace of scans under their ids, and one that is the index")),
        ("transactions", Support::Yes("optimistic transaction: get, insert, commit; lists are text")),
        ("join", Support::No("a key-value store has no joins")),
        ("logs", acidtest_model::NO_SINK),
    ],
    refuses: never,
    idle: all_has_effect,
};

/// A fjall database in a folder.
pub struct Fjall {
    files: Arc<Files>,
}

impl Fjall {
    /// Opens the folder, and creates it if it does not exist. Commits are made durable at the durability level, or
    /// without one as fjall does it by default.
    ///
    /// # Errors
    /// If the folder cannot be created, holds something else, or is open in another process.
    pub fn open(address: &Address, durability: Option<Durability>) -> Result<Self, StoreError> {
        let store = Self { files: Arc::new(Files::at(Path::new(&address.path), durability)) };
        store.files.database().map_err(|error| StoreError::Unreachable {
            address: address.to_string(),
            cause: error.to_string(),
            remedy:
                "name a folder that acidtest may create or that is a fjall database which nobody has open"
                    .to_owned(),
        })?;
        Ok(store)
    }

    /// Runs `work` on the database, and turns its error into the store's, with what acidtest was doing.
    fn on_files<T>(
        &self,
        doing: &str,
        work: impl FnOnce(&Database) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        self.files.database().and_then(|database| work(&database)).map_err(|error| StoreError::Server {
            doing: doing.to_owned(),
            address: self.address(),
            cause: error.to_string(),
        })
    }

    fn address(&self) -> String {
        format!("fjall:{}", self.files.path.display())
    }
}

/// The name of a trial's keyspace.
fn named(place: &Place, object: &str) -> String {
    format!("{}:{}", place.namespace, place.object(object))
}

/// The name of the keyspace that marks a namespace and says which run made it.
fn marker(namespace: &str) -> String {
    format!("{namespace}:marker")
}

/// The key in the marker under which the run stands. [`MADE`] is there if acidtest made the folder.
const RUN: &str = "run";
const MADE: &str = "made";

/// Names of the namespace's keyspaces.
fn keyspaces(database: &Database, namespace: &str) -> Vec<String> {
    let prefix = format!("{namespace}:");
    let names = database.list_keyspace_names();
    names.iter().filter(|name| name.starts_with(&prefix)).map(ToString::to_string).collect()
}

/// fjall's name for where commits are written.
fn persist_name(persist: Option<PersistMode>) -> &'static str {
    match persist {
        None => "none",
        Some(PersistMode::Buffer) => "Buffer",
        Some(PersistMode::SyncData) => "SyncData",
        Some(PersistMode::SyncAll) => "SyncAll",
    }
}

/// The durability level that follows from where commits are written, and the reason for it.
fn durability(persist: Option<PersistMode>) -> (Durability, &'static str) {
    match persist {
        None => (Durability::None, "commits stay in the process until the journal's buffer is full"),
        Some(PersistMode::Buffer) => (Durability::Process, "each commit is written to the page cache"),
        Some(_) => (Durability::Disk, "each commit is synced"),
    }
}

impl Store for Fjall {
    fn effective(&self) -> Task<'_, Result<EffectiveSettings, StoreError>> {
        Box::pin(async {
            self.on_files("reading the settings", |database| {
                let persist = self.files.persist;
                let (durability, because) = durability(persist);
                let settings = [
                    ("persist", persist_name(persist).to_owned()),
                    ("cache_capacity", database.cache_capacity().to_string()),
                ];
                Ok(EffectiveSettings {
                    version: VERSION.to_owned(),
                    durability: durability.into(),
                    because: because.to_owned(),
                    settings: BTreeMap::from(settings.map(|(name, value)| (name.to_owned(), value))),
                    tls: None,
                })
            })
        })
    }

    fn owner<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<Owner, StoreError>> {
        Box::pin(async move {
            self.on_files("looking for the namespace", |database| {
                let names = keyspaces(database, namespace);
                let marker = marker(namespace);
                if names.is_empty() {
                    return Ok(Owner::Nobody);
                }
                if !names.contains(&marker) {
                    return Ok(Owner::Stranger);
                }
                let run = keyspace(database, &marker)?.get(RUN)?;
                Ok(match run {
                    Some(run) => Owner::Run(String::from_utf8_lossy(&run).into_owned()),
                    None if names.len() == 1 => Owner::Empty,
                    None => Owner::Stranger,
                })
            })
        })
    }

    fn create<'a>(&'a self, namespace: &'a str, run: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            if self.owner(namespace).await? != Owner::Nobody {
                return Err(StoreError::Occupied {
                    namespace: format!("namespace \"{namespace}\""),
                    address: self.address(),
                });
            }
            self.on_files("making the namespace", |database| {
                let marker = make_keyspace(database, &marker(namespace))?;
                let mut batch = database.batch().durability(Some(PersistMode::SyncAll));
                batch.insert(&marker, RUN, run);
                if self.files.made() {
                    batch.insert(&marker, MADE, "");
                }
                Ok(batch.commit()?)
            })
        })
    }

    fn remove<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let ours = self.on_files("removing the namespace", |database| {
                let marker = marker(namespace);
                // a namespace without a mark is removed only if the user asks for it, and its folder never
                let made = match keyspace(database, &marker) {
                    Ok(marker) => marker.contains_key(MADE)?,
                    Err(_) => false,
                };
                let names = keyspaces(database, namespace);
                if made && names.len() == database.keyspace_count() {
                    return Ok(true);
                }
                for name in names.iter().filter(|name| **name != marker) {
                    drop_keyspace(database, name)?;
                }
                // the mark goes last, so that the rest of an interrupted removal is still known to be acidtest's
                drop_keyspace(database, &marker)?;
                Ok(false)
            })?;
            // the whole folder, because that needs no room on a full disk
            if ours {
                self.files.remove();
            }
            Ok(())
        })
    }

    fn blocking(&self) -> bool {
        true
    }

    fn inventory(&self) -> Option<&dyn InventoryStore> {
        Some(self)
    }

    fn records(&self) -> Option<&dyn RecordsStore> {
        Some(self)
    }

    fn parcels(&self) -> Option<&dyn ParcelsStore> {
        Some(self)
    }

    fn transactions(&self) -> Option<&dyn TransactionsStore> {
        Some(self)
    }

    fn interactive(&self) -> Option<&dyn InteractiveStore> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_that_is_built_in() {
        let lock = include_str!("../../../../Cargo.lock");
        assert!(lock.contains(&format!("name = \"fjall\"\nversion = \"{VERSION}\"\n")), "not {VERSION}");
    }
}
