//! Locks for other stores: a key for each lock that is held, and one counter of tokens for each trial, because the key of a
//! lock is gone once its lease ends.

use std::sync::LazyLock;

use acidtest_locks::{Grant, LockError, LockService, LockSession, Locker};
use acidtest_model::{StoreError, Task};
use acidtest_workloads::Place;

use crate::{
    Redis, keys,
    protocol::{Error, Reply},
    server::{Request, attempt},
    session::{Script, Session},
};

static ACQUIRE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lock_service/acquire.lua")));
static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lock_service/renew.lua")));
static RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lock_service/release.lua")));

impl LockService for Redis {
    /// Keeps the scripts on the server. Keys need no preparation: a key is made by its first use.
    fn prepare<'a>(&'a self, _: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { self.keep(&[&ACQUIRE, &RENEW, &RELEASE]).await })
    }

    fn clear<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { self.remove_keys(&prefix(place)).await })
    }

    fn connect<'a>(&'a self, place: &'a Place) -> Task<'a, Result<Locker, StoreError>> {
        Box::pin(async {
            let prefix = prefix(place);
            let session = self.session().await?;
            Ok(Locker::new(LockClient {
                session,
                locks: format!("{prefix}lock:"),
                tokens: format!("{prefix}tokens"),
            }))
        })
    }
}

/// The prefix of the names of all of a trial's keys.
fn prefix(place: &Place) -> String {
    format!("{}{}:", keys::prefix(&place.namespace), place.object("locks"))
}

/// One client's connection to the locks of a trial.
struct LockClient {
    session: Session,
    locks: String,
    tokens: String,
}

impl LockClient {
    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.locks)
    }
}

impl LockSession for LockClient {
    fn acquire<'a>(
        &'a mut self,
        name: &'a str,
        owner: &'a str,
        lease_ms: i64,
    ) -> Task<'a, Result<Option<u64>, LockError>> {
        Box::pin(async move {
            let keys = [self.key(name), self.tokens.clone()];
            let asked = self.session.run(&ACQUIRE, |script| {
                script.arg(keys.len()).arg(&keys).arg(owner).arg(lease_ms);
            });
            asked.await.and_then(Reply::optional).map_err(failed)
        })
    }

    fn renew<'a>(&'a mut self, grant: &'a Grant, lease_ms: i64) -> Task<'a, Result<bool, LockError>> {
        Box::pin(async move {
            let key = self.key(grant.name());
            let asked = self.session.run(&RENEW, |script| {
                script.arg(1).arg(&key).arg(grant.owner()).arg(lease_ms);
            });
            asked.await.and_then(Reply::flag).map_err(failed)
        })
    }

    fn release<'a>(&'a mut self, grant: &'a Grant) -> Task<'a, Result<bool, LockError>> {
        Box::pin(async {
            let key = self.key(grant.name());
            let asked = self.session.run(&RELEASE, |script| {
                script.arg(1).arg(&key).arg(grant.owner());
            });
            asked.await.and_then(Reply::flag).map_err(failed)
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn failed(error: Error) -> LockError {
    LockError::of(attempt(&error, Request::Script))
}
