//! Locks on Redis: a key for each lock that is held, and one counter of tokens for each trial, because the key of a
//! lock is gone once its lease ends.

use std::sync::LazyLock;

use acidtest_model::StoreError;
use acidtest_store_redis::{
    Error, Redis, Reply, Request as Effect, Script, Session as RedisSession, attempt,
};
use acidtest_workloads::Place;

use crate::{
    LockError,
    grant::{Grant, Request},
};

static ACQUIRE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("redis/acquire.lua")));
static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("redis/renew.lua")));
static RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("redis/release.lua")));

pub(crate) struct Session {
    connection: RedisSession,
    locks: String,
    tokens: String,
}

/// Keeps the scripts on the server. Keys need no preparation: a key is made by its first use.
pub(crate) async fn prepare(store: &Redis) -> Result<(), StoreError> {
    store.keep(&[&ACQUIRE, &RENEW, &RELEASE]).await
}

pub(crate) async fn clear(store: &Redis, place: &Place) -> Result<(), StoreError> {
    store.remove_keys(&prefix(place)).await
}

/// The prefix of the names of all of a trial's keys.
fn prefix(place: &Place) -> String {
    format!("{}{}:", acidtest_store_redis::prefix(&place.namespace), place.object("locks"))
}

impl Session {
    pub(crate) async fn open(store: &Redis, place: &Place) -> Result<Self, StoreError> {
        let prefix = prefix(place);
        let connection = store.session().await?;
        Ok(Self { connection, locks: format!("{prefix}lock:"), tokens: format!("{prefix}tokens") })
    }

    pub(crate) async fn acquire(&mut self, name: &str, request: &Request) -> Result<Option<u64>, LockError> {
        let keys = [self.key(name), self.tokens.clone()];
        let asked = self.connection.run(&ACQUIRE, |script| {
            script.arg(keys.len()).arg(&keys).arg(&request.owner).arg(request.lease);
        });
        asked.await.and_then(Reply::optional).map_err(failed)
    }

    pub(crate) async fn renew(&mut self, grant: &Grant, request: &Request) -> Result<bool, LockError> {
        let key = self.key(grant.name());
        let asked = self.connection.run(&RENEW, |script| {
            script.arg(1).arg(&key).arg(grant.owner()).arg(request.lease);
        });
        asked.await.and_then(Reply::flag).map_err(failed)
    }

    pub(crate) async fn release(&mut self, grant: &Grant) -> Result<bool, LockError> {
        let key = self.key(grant.name());
        let asked = self.connection.run(&RELEASE, |script| {
            script.arg(1).arg(&key).arg(grant.owner());
        });
        asked.await.and_then(Reply::flag).map_err(failed)
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.locks)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn failed(error: Error) -> LockError {
    LockError::of(attempt(&error, Effect::Script))
}
