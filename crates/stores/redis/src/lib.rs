//! Redis: one server, one TCP connection a client.
//!
//! # Guarantees
//!
//! Checked on Redis 7.0.15.
//!
//! ## Inventory
//!
//! `group` is a hash of warehouse → count, the tuples that a capture decides on: a key each, so
//! that one key's atomicity covers it.
//!
//! | guarantee | commands |
//! | --- | --- |
//! | lock none | `HGETALL group`, then `HSET group warehouse <computed> …` |
//! | lock soft | `WATCH group` and `HGETALL group` in one round trip, then `MULTI`, `HINCRBY group warehouse -n` …, `EXEC` in another; a nil reply means stale |
//! | lock hard | a script takes `lock` (`SET … PX 10000`) under a token from the fencing counter and reads the group; a second one writes and gives `lock` up, if it still holds our token: else stale. While another holds it: asked again every 1 to 3 ms, for 5 s |
//! | lock native | one script, by `EVALSHA` |
//! | release | one `HINCRBY group warehouse n`; hard: under the lock, by the same two scripts |
//!
//! ## Records
//!
//! `record` is a hash of version and fields; `index`, a sorted set of all keys with equal scores,
//! is kept only where ranges are read. `columns` is the version alone for an update, and all fields too
//! where they are read.
//!
//! | guarantee | commands |
//! | --- | --- |
//! | lock none | `HMGET record columns`, then `HSET record version <computed> field …` |
//! | lock soft | `WATCH record` and `HMGET record columns` in one round trip, then `MULTI`, `HSET record version <computed> field …`, `EXEC` in another; a nil reply means stale |
//! | lock hard | the two scripts of the inventory, on a lock for each record |
//! | lock native | one script, by `EVALSHA`, that adds one to the version and, for a modify, returns the old record |
//! | read | `HMGET record columns`, in every lock mode: one command sees no half of another's write |
//! | insert | one script in every lock mode, since it has nothing to decide: refused if the record is there, else `HSET` and, where there is an index, `ZADD`. (YCSB's plain `HSET` would overwrite.) |
//! | scan | one script in every lock mode: `ZRANGE index … BYLEX LIMIT`, then `HMGET` of each |
//! | transaction, none | the reads in one round trip, then all writes between `MULTI` and `EXEC`: atomic, on what may have changed since. Of reads alone: `MULTI`, `HMGET` …, `EXEC` |
//! | transaction, soft | the same with `WATCH` of all its records before the reads |
//! | transaction, hard | none: a lock is on one record |
//! | transaction, native | one script, which looks whether every record is there before it writes any |
//! | isolation | no levels: commands, scripts and transactions run one after the other |
//!
//! ## Queue
//!
//! A stream a trial, with one group of consumers; needs Redis 6.2.
//!
//! | guarantee | commands |
//! | --- | --- |
//! | ack none | `XADD key NOMKSTREAM * m <message>` on a socket with `CLIENT REPLY OFF`: a message counts as published once it is handed to the kernel |
//! | ack confirm | the same, each with its answer; so many under way as may be in flight, written as they come |
//! | ack transaction | `MULTI`, a batch of `XADD`, `EXEC` in one round trip |
//! | consume auto | `XREADGROUP … COUNT prefetch BLOCK patience NOACK STREAMS key >`; the next read takes along the `XDEL` of what the last one handed out |
//! | consume ack | the same without `NOACK`; `XACK` and `XDEL` of the whole batch in one round trip, so that the stream holds what is not acknowledged and no more |
//! | consume transaction | the same two between `MULTI` and `EXEC` |
//! | a consumer that is lost | what it held is claimed by others (`XAUTOCLAIM`) 2 s after it was last heard of: whenever there is nothing new, and every 2 s. A consumer at work claims its own again (`XCLAIM … JUSTID`, in a script that passes by what others have claimed) after 1 s, and forgets what is not its own any more and it has not taken; one that stops gives back (`XCLAIM … IDLE`) what it has not taken. An acknowledgement of which fewer were pending than were held proves nothing |
//! | redelivered | true of what was claimed, false of what was read as new |
//! | order | kept: entries of a connection are added in the order in which they are sent, and handed out by their ids, but for what is claimed |
//! | depth | ready: entries after the group's `last-delivered-id`, counted by `XRANGE`, because `lag` is unknown or wrong once entries were deleted; unacknowledged: `pending` |
//! | persistence | the server's: there are no transient messages on a durable server |
//!
//! Without acknowledgements, entries that a dying consumer was handed last stay in the stream until the trial is
//! over; nobody is handed them again, and they do not count as ready.
//!
//! ## Durability
//!
//! | guarantee | settings |
//! | --- | --- |
//! | durability none | `appendonly no`, whatever `save` says; also `appendfsync everysec` |
//! | durability process | `appendonly yes, appendfsync no`: written to the page cache before the reply |
//! | durability disk | `appendonly yes, appendfsync always` and `no-appendfsync-on-rewrite no` |
//!
//! `everysec` is no rung of its own: while a sync is under way the server postpones the write by up to
//! 2 s and yet replies (`flushAppendOnlyFile` in aof.c), so that kill -9 can lose what it acknowledged.
//!
//! # Errors
//!
//! An error reply, such as that of a server out of memory, is proof that nothing changed: a command is
//! refused before it starts, and the scripts write last, where Redis itself fails no script any more: once
//! one has written, not even for want of memory. The one exception, an error inside
//! `EXEC`, counts as unknown. A connection that breaks leaves a change unknown and a read failed. A
//! cluster is not supported: it redirects, which counts as failed.

mod inventory;
mod keys;
mod lock;
#[cfg(test)]
mod made_up;
mod point;
mod queue;
mod records;
mod server;
mod session;
mod settings;

use acidtest_model::{
    Address, Durability, Effective, Idle, Isolation, Lock, NO_REFRESH, StoreError, StoreKind, Support, Task,
    Wish,
};
use acidtest_workloads::{
    Owner, Store,
    inventory::InventoryStore,
    queue::{Delivery, QueueStore},
    records::RecordsStore,
};
use redis::{RedisResult, Value, cmd};

use crate::server::Server;
pub use crate::{
    point::Point,
    server::{Request, attempt},
    session::{Script, Session},
};

/// The store's row of the matrix.
pub const KIND: StoreKind = StoreKind {
    name: "redis",
    title: "Redis",
    schemes: &["redis"],
    address: "redis://USER:PASSWORD@HOST:6379/NUMBER",
    server: acidtest_model::Server::Program,
    default_port: 6379,
    locks: &[
        (Lock::None, Support::Yes("HGETALL, then HSET to the computed values")),
        (Lock::Soft, Support::Yes("WATCH, then MULTI … EXEC")),
        (Lock::Hard, Support::Yes("lock key with lease, owner token and fencing")),
        (Lock::Native, Support::Yes("one Lua script")),
    ],
    durability: &[
        (Durability::None, Support::Yes("appendonly no, or appendfsync everysec")),
        (Durability::Process, Support::Yes("appendonly yes, appendfsync no")),
        (Durability::Disk, Support::Yes("appendonly yes, appendfsync always")),
    ],
    isolation: &[
        (Isolation::ReadUncommitted, ONE_BY_ONE),
        (Isolation::ReadCommitted, ONE_BY_ONE),
        (Isolation::RepeatableRead, ONE_BY_ONE),
        (Isolation::Serializable, ONE_BY_ONE),
    ],
    transactions: Support::Yes("MULTI … EXEC, after WATCH under soft locks; native: one Lua script"),
    refresh: NO_REFRESH,
    lock_service: false,
    rung_of_data: false,
    workloads: &[
        ("inventory", Support::Yes("capture and release")),
        ("records", Support::Yes("a hash each; ranges by a sorted set of keys")),
        ("join", Support::No("it has no joins")),
        ("queue", Support::Yes("a stream with a group of consumers")),
    ],
    refuses,
    idle,
};

const ONE_BY_ONE: Support =
    Support::No("it has no levels: commands, scripts and transactions run one after the other");

fn refuses(wish: &Wish<'_>) -> Option<&'static str> {
    if let Some(delivery) = Delivery::of(wish) {
        return queue::refuses(&delivery);
    }
    (wish.transaction > 1 && wish.lock == Lock::Hard).then_some(records::ONE_LOCK)
}

fn idle(wish: &Wish<'_>) -> &'static [Idle] {
    const ONE_AFTER_THE_OTHER: &[Idle] = &[Idle {
        name: "max_retries",
        why: "commands and scripts run one after the other: none conflicts with another",
    }];
    match wish.lock {
        Lock::None | Lock::Native => ONE_AFTER_THE_OTHER,
        Lock::Soft | Lock::Hard => &[],
    }
}

/// A Redis server.
#[derive(Debug)]
pub struct Redis {
    server: Server,
}

impl Redis {
    /// Opens the server, connecting once to see that it can be reached.
    ///
    /// # Errors
    /// A server that does not answer, or not to this user and password.
    pub async fn open(address: &Address) -> Result<Self, StoreError> {
        let server = Server::new(address, KIND.default_port)?;
        server.reach().await?;
        Ok(Self { server })
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// A server that does not answer, or not to this user and password.
    pub async fn session(&self) -> Result<Session, StoreError> {
        Ok(Session::new(self.server.reach().await?))
    }

    /// Lets the server know scripts, so that not even their first call takes two round trips.
    pub async fn keep(&self, scripts: &[&Script]) -> Result<(), StoreError> {
        let mut connection = self.server.reach().await?;
        for script in scripts {
            script.keep(&mut connection).await.map_err(self.server.failed("loading the scripts"))?;
        }
        Ok(())
    }

    /// What the names of a namespace's keys begin with.
    #[must_use]
    pub fn prefix(namespace: &str) -> String {
        keys::prefix(namespace)
    }

    /// Removes every key whose name begins with the prefix.
    pub async fn remove_keys(&self, prefix: &str) -> Result<(), StoreError> {
        let mut connection = self.server.reach().await?;
        let removed = keys::remove(&mut connection, prefix, None).await;
        removed.map_err(self.server.failed("removing keys"))
    }
}

impl Store for Redis {
    fn effective(&self) -> Task<'_, Result<Effective, StoreError>> {
        Box::pin(async {
            let mut connection = self.server.reach().await?;
            settings::read(&mut connection).await.map_err(self.server.failed("reading the settings"))
        })
    }

    fn owner<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<Owner, StoreError>> {
        Box::pin(async move {
            let failed = self.server.failed("looking for the namespace");
            let mut connection = self.server.reach().await?;
            let marker: RedisResult<Option<String>> =
                cmd("GET").arg(keys::marker(namespace)).query_async(&mut connection).await;
            match marker {
                Ok(Some(run)) => return Ok(Owner::Run(run)),
                Ok(None) => {}
                // a key of that name that is no string was not made here
                Err(error) if error.code() == Some("WRONGTYPE") => return Ok(Owner::Stranger),
                Err(error) => return Err(failed(error)),
            }
            let any = keys::any(&mut connection, &keys::prefix(namespace)).await.map_err(failed)?;
            Ok(if any { Owner::Stranger } else { Owner::Nobody })
        })
    }

    fn create<'a>(&'a self, namespace: &'a str, run: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            let mut mark = cmd("SET");
            mark.arg(keys::marker(namespace)).arg(run).arg("NX");
            let made: Value = mark
                .query_async(&mut connection)
                .await
                .map_err(self.server.failed("making the namespace"))?;
            if made == Value::Nil {
                return Err(StoreError::Occupied {
                    namespace: format!("key prefix \"{}\"", keys::prefix(namespace)),
                    address: self.server.address().to_owned(),
                });
            }
            Ok(())
        })
    }

    fn remove<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let failed = self.server.failed("removing the namespace");
            let mut connection = self.server.reach().await?;
            let marker = keys::marker(namespace);
            // the mark goes last: what is left of an interrupted removal is still known as ours
            keys::remove(&mut connection, &keys::prefix(namespace), Some(&marker)).await.map_err(&failed)?;
            cmd("UNLINK").arg(marker).exec_async(&mut connection).await.map_err(failed)
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
