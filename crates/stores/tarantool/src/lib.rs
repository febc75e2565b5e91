//! Tarantool: one server, one IPROTO connection per client.
//!
#![doc = include_str!("../GUARANTEES.md")]

pub mod iproto;

mod interactive;
mod inventory;
mod parcels;
mod queue;
mod records;
mod server;
mod trial;

use std::{collections::BTreeMap, time::Duration};

use acidtest_model::{
    Address, CellRequest, Durability, EffectiveDurability, EffectiveSettings, Isolation, Lock, NO_REFRESH,
    StoreError, StoreKind, Support, Task, all_has_effect,
};
use acidtest_workloads::{
    Identity, Owner, Store,
    interactive::InteractiveStore,
    inventory::InventoryStore,
    parcels::ParcelsStore,
    queue::{Delivery, QueueStore},
    records::RecordsStore,
    time_opening,
};

use crate::{
    iproto::{Encoder, Error, Reader},
    server::{ConnectOptions, code},
};

/// The store's entry in the list of stores: its names, and which lock modes, durability levels, isolation levels
/// and workloads it supports, each with the means or the reason.
pub const KIND: StoreKind = StoreKind {
    name: "tarantool",
    title: "Tarantool",
    schemes: &["tarantool"],
    address: "tarantool://USER:PASSWORD@HOST:3301",
    hosting: acidtest_model::Hosting::Program,
    default_port: 3301,
    locks: &[
        (Lock::None, Support::Yes("SELECT, then a write of the computed value")),
        (Lock::Soft, Support::Yes("version check inside one stored procedure")),
        (Lock::Hard, Support::Yes("latch in the server with lease, owner token and fencing")),
        (Lock::Native, Support::Yes("one request: an UPDATE, or a stored procedure")),
    ],
    durability: &[
        (Durability::None, Support::Yes("wal_mode=none")),
        (Durability::Process, Support::Yes("wal_mode=write")),
        (Durability::Disk, Support::Yes("wal_mode=fsync")),
    ],
    isolation: &[
        (Isolation::ReadUncommitted, ONE_BY_ONE),
        (Isolation::ReadCommitted, ONE_BY_ONE),
        (Isolation::RepeatableRead, ONE_BY_ONE),
        (Isolation::Serializable, ONE_BY_ONE),
    ],
    transactions: Support::Yes("native: one stored procedure, between box.begin and box.commit"),
    refresh: NO_REFRESH,
    tls: Support::No("only Tarantool Enterprise speaks TLS; the open server and its clients do not"),
    replication: &[],
    replica_reads: None,
    lock_service: false,
    processes: acidtest_model::EACH_CONNECTS,
    durability_of_data: false,
    in_memory: true,
    client_kib: 14,
    workloads: &[
        ("inventory", Support::Yes("capture and release")),
        ("records", Support::Yes("a tuple each, by a tree of keys")),
        ("join", Support::No("it has no joins outside its SQL, which the procedures here do not use")),
        ("queue", Support::Yes("a space and a stored procedure, as the fifo tube of the queue rock")),
        ("logs", acidtest_model::NO_SINK),
        ("parcels", Support::Yes("a tuple each; ids by a sequence, counts by a stored procedure")),
        (
            "transactions",
            Support::No(
                "it has no interactive transactions over its protocol: before the streams of 2.10 a transaction ends with its request",
            ),
        ),
    ],
    refuses,
    idle: all_has_effect,
};

const ONE_BY_ONE: Support =
    Support::No("it has no levels to set: memtx runs transactions one after the other");

fn refuses(request: &CellRequest<'_>) -> Option<&'static str> {
    if let Some(delivery) = Delivery::of(request) {
        return delivery.beyond_a_table();
    }
    (request.transaction > 1 && request.lock != Lock::Native).then_some(records::ONE_CALL)
}

#[derive(Debug)]
pub struct Tarantool {
    server: ConnectOptions,
}

impl Tarantool {
    /// Opens the server, connecting once to see that it can be reached and lets the user run Lua.
    ///
    /// # Errors
    /// The server does not answer, or not to this user and password.
    pub async fn open(address: &Address) -> Result<Self, StoreError> {
        let server = ConnectOptions::new(address, KIND.default_port)?;
        let mut connection = server.reach().await?;
        connection.eval("return", nothing).await.map_err(|error| server.unreachable(&error))?;
        drop(connection);
        Ok(Self { server })
    }
}

/// Writes an empty array of arguments.
fn nothing(args: &mut Encoder) {
    args.array(0);
}

/// The beginning of the names of all of a namespace's objects. It ends in a colon, in which no namespace ends, so
/// that one namespace's objects never match another's prefix.
fn prefix(namespace: &str) -> String {
    format!("{namespace}:")
}

/// The name of the space that says which run made the namespace.
fn marker(namespace: &str) -> String {
    format!("{namespace}:marker")
}

/// Reads product, version and settings as `lua/settings.lua` returns them.
fn read_settings(values: &mut Reader<'_>) -> Result<(String, String, BTreeMap<String, String>), Error> {
    values.tuple(3)?;
    let (product, version) = (values.str()?.to_owned(), values.str()?.to_owned());
    let mut settings = BTreeMap::new();
    for _ in 0..values.map_len()? {
        let name = values.str()?.to_owned();
        settings.insert(name, values.str()?.to_owned());
    }
    Ok((product, version, settings))
}

fn durability(wal_mode: &str) -> (EffectiveDurability, String) {
    let (durability, because) = match wal_mode {
        "fsync" => (EffectiveDurability::Disk, "the log is synced before the answer"),
        "write" => (EffectiveDurability::Process, "the log is written, not synced, before the answer"),
        "none" => (EffectiveDurability::None, "there is no log"),
        other => {
            return (EffectiveDurability::Unknown, format!("wal_mode is {other:?}, which says nothing here"));
        }
    };
    (durability, format!("wal_mode is {wal_mode}: {because}"))
}

/// Whether a server that names this product is Tarantool, in one of its editions.
fn is_own(product: &str) -> bool {
    matches!(product, "Tarantool" | "Tarantool Enterprise")
}

impl Store for Tarantool {
    fn identity(&self) -> Task<'_, Result<Option<Identity>, StoreError>> {
        Box::pin(async {
            let names = |values: &mut Reader<'_>| {
                values.tuple(2)?;
                let (life, data) = (values.str()?.to_owned(), values.str()?.to_owned());
                Ok(Some(Identity { life, data: Some(data), is_exact: true }))
            };
            let code = include_str!("lua/identity.lua");
            self.server.run("asking which server answers", code, nothing, names).await
        })
    }

    fn effective(&self) -> Task<'_, Result<EffectiveSettings, StoreError>> {
        Box::pin(async {
            let code = include_str!("lua/settings.lua");
            let read = self.server.run("reading the settings", code, nothing, read_settings);
            let (product, version, settings) = read.await?;
            let (durability, because) = durability(settings.get("wal_mode").map_or("", String::as_str));
            let own = is_own(&product);
            let server = format!("{product} {version}");
            let read = EffectiveSettings { version, durability, because, settings, tls: None };
            Ok(if own { read } else { read.of_another(&server, "Tarantool") })
        })
    }

    fn connecting(&self) -> Task<'_, Result<Option<Duration>, StoreError>> {
        Box::pin(time_opening(self.server.reach()))
    }

    fn owner<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<Owner, StoreError>> {
        Box::pin(async move {
            let names = |args: &mut Encoder| {
                args.array(2).str(&prefix(namespace)).str(&marker(namespace));
            };
            let owner = |values: &mut Reader<'_>| {
                values.tuple(3)?;
                let found = values.bool()?;
                if !values.take_nil() {
                    return Ok(Owner::Run(values.str()?.to_owned()));
                }
                Ok(match (found, values.bool()?) {
                    (false, _) => Owner::Nobody,
                    (true, true) => Owner::Empty,
                    (true, false) => Owner::Stranger,
                })
            };
            let code = include_str!("lua/owner.lua");
            self.server.run("looking for the namespace", code, names, owner).await
        })
    }

    fn create<'a>(&'a self, namespace: &'a str, run: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            let mark = |args: &mut Encoder| {
                args.array(2).str(&marker(namespace)).str(run);
            };
            match connection.eval(include_str!("lua/create.lua"), mark).await {
                Ok(_) => Ok(()),
                Err(error) if error.code() == Some(code::SPACE_EXISTS) => Err(StoreError::Occupied {
                    namespace: format!("space prefix \"{}\"", prefix(namespace)),
                    address: self.server.address(),
                }),
                Err(error) => Err(self.server.failed("making the namespace")(error)),
            }
        })
    }

    fn remove<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let names = |args: &mut Encoder| {
                args.array(2).str(&prefix(namespace)).str(&marker(namespace));
            };
            let code = include_str!("lua/remove.lua");
            self.server.run("removing the namespace", code, names, |_| Ok(())).await
        })
    }

    fn inventory(&self) -> Option<&dyn InventoryStore> {
        Some(self)
    }

    fn records(&self) -> Option<&dyn RecordsStore> {
        Some(self)
    }

    fn queue(&self) -> Option<&dyn QueueStore> {
        Some(self)
    }

    fn parcels(&self) -> Option<&dyn ParcelsStore> {
        Some(self)
    }

    fn interactive(&self) -> Option<&dyn InteractiveStore> {
        Some(self)
    }
}
