//! Redis: one server, one TCP connection a client.
//!
//! # Guarantees
//!
//! Checked on Redis 7.0.15. `group` is a hash of warehouse → count, the tuples that a capture decides
//! on: a key each, so that one key's atomicity covers it.
//!
//! | guarantee | commands and settings |
//! | --- | --- |
//! | lock none | `HGETALL group`, then `HSET group warehouse <computed> …` |
//! | lock soft | `WATCH group` and `HGETALL group` in one round trip, then `MULTI`, `HINCRBY group warehouse -n` …, `EXEC` in another; a nil reply means stale |
//! | lock hard | a script takes `lock` (`SET … PX 10000`) under a token from the fencing counter and reads the group; a second one writes and gives `lock` up, if it still holds our token: else stale. While another holds it: asked again every 1 to 3 ms, for 5 s |
//! | lock native | one script, by `EVALSHA` |
//! | release | one `HINCRBY group warehouse n`; hard: under the lock, by the same two scripts |
//! | durability none | `appendonly no`, whatever `save` says; also `appendfsync everysec` |
//! | durability process | `appendonly yes, appendfsync no`: written to the page cache before the reply |
//! | durability disk | `appendonly yes, appendfsync always` and `no-appendfsync-on-rewrite no` |
//!
//! `everysec` is no rung of its own: while a sync is under way the server postpones the write by up to
//! 2 s and yet replies (`flushAppendOnlyFile` in aof.c), so that kill -9 can lose what it acknowledged.
//!
//! An error reply is proof that nothing changed: a command is refused before it starts, and the
//! scripts write last, where Redis itself fails no script any more. The one exception, an error inside
//! `EXEC`, counts as unknown. A connection that breaks leaves a change unknown and a read failed. A
//! cluster is not supported: it redirects, which counts as failed.

mod inventory;
mod keys;
mod point;
mod server;
mod settings;

use acidtest_model::{Address, Durability, Effective, Lock, StoreError, StoreKind, Support, Task};
use acidtest_workloads::{Owner, Store, inventory::InventoryStore};
use redis::{RedisResult, Value, cmd};

pub use crate::point::Point;
use crate::server::Server;

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
    workloads: &[("inventory", Support::Yes("capture and release"))],
};

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
}
