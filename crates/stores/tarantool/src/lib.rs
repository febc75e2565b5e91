//! Tarantool: one server, one IPROTO connection a client.
//!
//! # Guarantees
//!
//! Checked on Tarantool 2.6.0, memtx without its MVCC engine. The procedure is a persistent Lua function
//! (2.2 and later), one a trial, called with the name of an operation (`lua/inventory.lua`,
//! `lua/records.lua`, `lua/queue.lua`).
//!
//! ## Inventory
//!
//! | guarantee | requests |
//! | --- | --- |
//! | lock none | SELECT of the group, then an UPDATE `=` to the computed count per tuple |
//! | lock soft | SELECT of the group, then one call that checks every version and updates count and version between `box.begin` and `box.commit`; a changed version means stale |
//! | lock hard | one call takes the group's latch (`fiber.cond`; owner token, lease of 10 s) and reads; another writes in one transaction and gives the latch up, if the token still holds it: else stale. A latch that another holds is waited for in the server, for 5 s |
//! | lock native | one call that reads and updates between `box.begin` and `box.commit` |
//! | release | one UPDATE `+`; soft: and of the version; hard: one call that takes the latch, writes and gives it up |
//!
//! ## Records
//!
//! A record is a tuple of key, version and fields, in a space of its trial with a tree over the keys.
//!
//! | guarantee | requests |
//! | --- | --- |
//! | lock none | SELECT of the record, then a REPLACE with the computed version |
//! | lock soft | SELECT of the record, then one call that checks the version and replaces between `box.begin` and `box.commit`; a changed version means stale |
//! | lock hard | the inventory's latch, on each record: one call takes it and reads, another replaces and gives it up |
//! | lock native | update: one UPDATE, `+` of the version and `=` of the fields. Modify: one call that reads and replaces between `box.begin` and `box.commit` |
//! | read, scan | SELECT, EQ or GE with a limit, in every lock mode |
//! | insert | INSERT in every lock mode, since it has nothing to decide; a duplicate key is refused |
//! | transaction, native | one call that does all its operations between `box.begin` and `box.commit`, or rolls them back |
//! | transaction, none, soft, hard | none: before the streams of 2.10 a transaction ends with its request |
//! | isolation | no levels: transactions run one after the other |
//!
//! ## Queue
//!
//! A message is a tuple of id, status, how often it was taken, and body, in a space of its trial. The procedure
//! (`lua/queue.lua`) does what the fifo tube of the `queue` rock does (<https://github.com/tarantool/queue>), for
//! several messages at once; the rock itself is not part of the server.
//!
//! | guarantee | requests |
//! | --- | --- |
//! | ack none | none: IPROTO answers every request |
//! | ack confirm | one call of `put` a message, so many under way as may be in flight |
//! | ack transaction | one call of `put_many`, which inserts the batch between `box.begin` and `box.commit` |
//! | consume auto | one call of `take`, which waits (`fiber.cond`) for messages and deletes up to `prefetch` of the oldest in one transaction |
//! | consume ack | the same, but marks them taken (status, and how often) in one transaction; one call of `ack` deletes the whole batch |
//! | consume transaction | the same: `ack` is one transaction, all of the batch or nothing of it, and only of what the session has taken |
//! | a consumer that is lost | what its session had taken is ready again with the next `take` of another, at most 0.1 s later; after a restart of the server, with the first call |
//! | redelivered | true of what was taken before, by the tuple's counter |
//! | order | kept where a producer has one request in flight: the lowest id is taken first; of several requests under way the server promises no order |
//! | depth | `count` of the ready and of the taken in the index on the status |
//! | persistence | the server's, by `wal_mode`; a mark as taken is written to the log too |
//!
//! ## Durability
//!
//! | guarantee | settings |
//! | --- | --- |
//! | durability none | `wal_mode=none` |
//! | durability process | `wal_mode=write`: written to the page cache before the answer |
//! | durability disk | `wal_mode=fsync`: the log is open with `O_SYNC` |
//!
//! Transactions do not yield before `box.commit`, and so run one after the other. The commit itself
//! waits for the log, and without MVCC others see what it wrote meanwhile: they may decide on data that
//! is not yet durable. Their own commit follows it into the log, so what is *acknowledged* never
//! rests on something lost; a refusal, or what was only read, may.
//!
//! # Errors
//!
//! An answered error, such as that of a server out of memory, is proof that nothing changed, because the
//! transaction is rolled back; except that of the log itself (`ER_WAL_IO`), after which the outcome is
//! unknown.

pub mod iproto;

mod inventory;
mod queue;
mod records;
mod server;
mod trial;

use std::collections::BTreeMap;

use acidtest_model::{
    Address, Durability, Effective, Isolation, Lock, NO_REFRESH, StoreError, StoreKind, Support, Task, Wish,
    all_has_effect,
};
use acidtest_workloads::{
    Owner, Store,
    inventory::InventoryStore,
    queue::{Delivery, QueueStore},
    records::RecordsStore,
};

use crate::{
    iproto::{Encoder, Error, Reader},
    server::{Server, code},
};

/// The store's row of the matrix.
pub const KIND: StoreKind = StoreKind {
    name: "tarantool",
    title: "Tarantool",
    schemes: &["tarantool"],
    address: "tarantool://USER:PASSWORD@HOST:3301",
    server: acidtest_model::Server::Program,
    default_port: 3301,
    locks: &[
        (Lock::None, Support::Yes("SELECT, then UPDATE to the computed value")),
        (Lock::Soft, Support::Yes("version check inside one stored procedure")),
        (Lock::Hard, Support::Yes("latch in the server with lease, owner token and fencing")),
        (Lock::Native, Support::Yes("one stored procedure")),
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
    lock_service: false,
    rung_of_data: false,
    workloads: &[
        ("inventory", Support::Yes("capture and release")),
        ("records", Support::Yes("a tuple each, by a tree of keys")),
        ("join", Support::No("it has no joins outside its SQL, which the procedures here do not use")),
        ("queue", Support::Yes("a space and a stored procedure, as the fifo tube of the queue rock")),
    ],
    refuses,
    idle: all_has_effect,
};

const ONE_BY_ONE: Support =
    Support::No("it has no levels to set: memtx runs transactions one after the other");

fn refuses(wish: &Wish<'_>) -> Option<&'static str> {
    if let Some(delivery) = Delivery::of(wish) {
        return delivery.beyond_a_table();
    }
    (wish.transaction > 1 && wish.lock != Lock::Native).then_some(records::ONE_CALL)
}

/// A Tarantool server.
#[derive(Debug)]
pub struct Tarantool {
    server: Server,
}

impl Tarantool {
    /// Opens the server, connecting once to see that it can be reached and lets the user run Lua.
    ///
    /// # Errors
    /// A server that does not answer, or not to this user and password.
    pub async fn open(address: &Address) -> Result<Self, StoreError> {
        let server = Server::new(address, KIND.default_port)?;
        let mut connection = server.reach().await?;
        connection.eval("return", nothing).await.map_err(|error| server.unreachable(&error))?;
        drop(connection);
        Ok(Self { server })
    }
}

/// No arguments.
fn nothing(args: &mut Encoder) {
    args.array(0);
}

/// What every object of the namespace is called first. A colon, which no namespace ends in: so one
/// namespace is never the beginning of another's.
fn prefix(namespace: &str) -> String {
    format!("{namespace}:")
}

/// The space that says which run made the namespace.
fn marker(namespace: &str) -> String {
    format!("{namespace}:marker")
}

/// Version and settings, as `lua/settings.lua` returns them.
fn read_settings(values: &mut Reader<'_>) -> Result<(String, BTreeMap<String, String>), Error> {
    values.tuple(2)?;
    let version = values.str()?.to_owned();
    let mut settings = BTreeMap::new();
    for _ in 0..values.map_len()? {
        let name = values.str()?.to_owned();
        settings.insert(name, values.str()?.to_owned());
    }
    Ok((version, settings))
}

fn rung(wal_mode: &str) -> (Durability, String) {
    match wal_mode {
        "fsync" => (Durability::Disk, "wal_mode is fsync: the log is synced before the answer".to_owned()),
        "write" => (
            Durability::Process,
            "wal_mode is write: the log is written, not synced, before the answer".to_owned(),
        ),
        "none" => (Durability::None, "wal_mode is none: there is no log".to_owned()),
        other => (Durability::None, format!("wal_mode is {other:?}, which says nothing here")),
    }
}

impl Store for Tarantool {
    fn effective(&self) -> Task<'_, Result<Effective, StoreError>> {
        Box::pin(async {
            let code = include_str!("lua/settings.lua");
            let read = self.server.run("reading the settings", code, nothing, read_settings);
            let (version, settings) = read.await?;
            let (durability, because) = rung(settings.get("wal_mode").map_or("", String::as_str));
            Ok(Effective { version, durability, because, settings })
        })
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
                    address: self.server.address().to_owned(),
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
}
