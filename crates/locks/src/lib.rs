//! Locks for stores that have none: taken by name, held for a lease, each grant with a fencing token. They are kept
//! on a Redis or a PostgreSQL server, whichever the address names.
//!
//! `docs/locks.md` says what a lease promises and what it does not, each claim with its test.
//!
//! | | Redis | PostgreSQL |
//! | --- | --- | --- |
//! | a lock | a key that expires; its value is the owner | a row: owner, token, expiry |
//! | acquire | a script: unless the key is there, `INCR` the place's counter, `SET lock owner PX lease` | `INSERT … SELECT … WHERE NOT EXISTS (<held>) ON CONFLICT (name) DO UPDATE SET … token = token + 1 WHERE expires <= clock_timestamp() RETURNING token` |
//! | renew | a script: if the value is the owner, `PEXPIRE`, never to less | `UPDATE … WHERE owner = … AND expires > clock_timestamp()` |
//! | release | a script: if the value is the owner, `DEL` | the same `UPDATE`, to `-infinity`: the row keeps the token |
//!
//! The owner is drawn anew for every request: not even a former grant of the same client releases a later one.
//! The server's clock ends a lease; the holder counts from before it asked, and so ends first.
//!
//! This crate depends on the two stores' crates for their connections, statements and scripts, and for what
//! their errors mean: a lock's request must be classified like any other of that server's, and a copy of
//! that would drift. A store that wants locks depends on this crate and knows of the server only the
//! address.
//!
//! Each of the two is a feature, on by default. With neither, there is no service to open.

// without either feature there is no service, so much of the code is unused
#![cfg_attr(
    not(any(feature = "postgres", feature = "redis")),
    allow(dead_code, unreachable_code, unused_variables, clippy::unused_async)
)]

pub mod audit;
mod grant;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;

#[cfg(any(feature = "postgres", feature = "redis"))]
use std::sync::Arc;
use std::{fmt, time::Duration};

use acidtest_model::{Address, StoreError};
#[cfg(feature = "postgres")]
use acidtest_store_postgres::Postgres;
#[cfg(feature = "redis")]
use acidtest_store_redis::Redis;
use acidtest_workloads::{Attempt, Fault, Place, Store};

pub use crate::grant::Grant;
use crate::grant::Requests;

/// A connection to a server that keeps locks.
#[derive(Clone, Debug)]
pub struct LockService {
    server: Backend,
}

#[derive(Clone, Debug)]
enum Backend {
    #[cfg(feature = "postgres")]
    Postgres(Arc<Postgres>),
    #[cfg(feature = "redis")]
    Redis(Arc<Redis>),
}

impl LockService {
    /// Opens the service at an address of Redis or PostgreSQL, with one connection to check that it answers.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] where nobody answers, the login fails, or the address has another scheme.
    pub async fn open(address: &Address) -> Result<Self, StoreError> {
        let is = |schemes: &[&str]| schemes.contains(&address.scheme.as_str());
        #[cfg(feature = "redis")]
        if is(acidtest_store_redis::KIND.schemes) {
            return Ok(Self { server: Backend::Redis(Arc::new(Redis::open(address).await?)) });
        }
        #[cfg(feature = "postgres")]
        if is(acidtest_store_postgres::KIND.schemes) {
            return Ok(Self { server: Backend::Postgres(Arc::new(Postgres::open(address).await?)) });
        }
        Err(StoreError::Unreachable {
            address: address.to_string(),
            cause: "locks are kept on Redis or PostgreSQL".to_owned(),
            remedy: "name one: redis://HOST:PORT or postgres://USER@HOST:PORT/DATABASE".to_owned(),
        })
    }

    /// The server as a store: to read its settings, and to make the namespace, which must exist before
    /// [`prepare`](Self::prepare).
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        match self.server {
            #[cfg(feature = "postgres")]
            Backend::Postgres(ref store) => &**store,
            #[cfg(feature = "redis")]
            Backend::Redis(ref store) => &**store,
        }
    }

    /// Prepares the trial's namespace for its locks: PostgreSQL needs a table, Redis only the scripts.
    pub async fn prepare(&self, place: &Place) -> Result<(), StoreError> {
        match self.server {
            #[cfg(feature = "postgres")]
            Backend::Postgres(ref store) => postgres::prepare(store, place).await,
            #[cfg(feature = "redis")]
            Backend::Redis(ref store) => redis::prepare(store).await,
        }
    }

    /// Removes the locks of a trial, with everything that [`prepare`](Self::prepare) created for them.
    pub async fn clear(&self, place: &Place) -> Result<(), StoreError> {
        match self.server {
            #[cfg(feature = "postgres")]
            Backend::Postgres(ref store) => postgres::clear(store, place).await,
            #[cfg(feature = "redis")]
            Backend::Redis(ref store) => redis::clear(store, place).await,
        }
    }

    /// Opens one client's connection to the locks of a trial.
    pub async fn connect(&self, place: &Place) -> Result<Locker, StoreError> {
        let connection = match self.server {
            #[cfg(feature = "postgres")]
            Backend::Postgres(ref store) => {
                Connection::Postgres(Box::new(postgres::Session::open(store, place).await?))
            }
            #[cfg(feature = "redis")]
            Backend::Redis(ref store) => {
                Connection::Redis(Box::new(redis::Session::open(store, place).await?))
            }
        };
        Ok(Locker { connection, requests: Requests::new() })
    }
}

/// One client's connection to the lock service. It neither waits for a lock nor retries nor reconnects.
///
/// If a future of this type is dropped, its request is in doubt, as with [`LockError::Unknown`]; the locker must then
/// be dropped too.
pub struct Locker {
    connection: Connection,
    requests: Requests,
}

enum Connection {
    #[cfg(feature = "postgres")]
    Postgres(Box<postgres::Session>),
    #[cfg(feature = "redis")]
    Redis(Box<redis::Session>),
}

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locker").field("requests", &self.requests).finish_non_exhaustive()
    }
}

impl Locker {
    /// Takes a lock for the length of a lease (whole milliseconds, at least one); `None` if another holds it.
    ///
    /// # Errors
    /// [`LockError::Unknown`] where the lock may have been taken, and is then held by nobody until its lease
    /// ends.
    pub async fn acquire(&mut self, name: &str, lease: Duration) -> Result<Option<Grant>, LockError> {
        let request = self.requests.next(lease);
        let token: Option<u64> = match self.connection {
            #[cfg(feature = "postgres")]
            Connection::Postgres(ref mut session) => session.acquire(name, &request).await?,
            #[cfg(feature = "redis")]
            Connection::Redis(ref mut session) => session.acquire(name, &request).await?,
        };
        Ok(token.map(|token| request.granted(name, token)))
    }

    /// Extends a grant to a lease from now, unless it lasts longer already; `false` if it had ended.
    ///
    /// # Errors
    /// Whichever error it is, the grant lasts as long as it says.
    pub async fn renew(&mut self, grant: &mut Grant, lease: Duration) -> Result<bool, LockError> {
        let request = self.requests.next(lease);
        let ours: bool = match self.connection {
            #[cfg(feature = "postgres")]
            Connection::Postgres(ref mut session) => session.renew(grant, &request).await?,
            #[cfg(feature = "redis")]
            Connection::Redis(ref mut session) => session.renew(grant, &request).await?,
        };
        if ours {
            grant.extend(&request);
        }
        Ok(ours)
    }

    /// Releases a lock before its lease ends; `false` if the lease had ended.
    ///
    /// # Errors
    /// Whichever error it is, nobody may hold the lock until its lease ends.
    pub async fn release(&mut self, grant: Grant) -> Result<bool, LockError> {
        match self.connection {
            #[cfg(feature = "postgres")]
            Connection::Postgres(ref mut session) => session.release(&grant).await,
            #[cfg(feature = "redis")]
            Connection::Redis(ref mut session) => session.release(&grant).await,
        }
    }
}

/// A request to the lock service that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// The request is proved to have had no effect.
    #[error("the lock service refused: {}", _0.message)]
    Failed(Fault),
    /// The request was sent, and no answer came: it may or may not have taken effect.
    #[error("the lock service did not answer: {}", _0.message)]
    Unknown(Fault),
}

impl LockError {
    /// The cause, in the service's words.
    #[must_use]
    pub fn fault(&self) -> &Fault {
        match self {
            Self::Failed(fault) | Self::Unknown(fault) => fault,
        }
    }

    /// The error for an attempt that was not acknowledged.
    fn of(attempt: Attempt) -> Self {
        match attempt {
            Attempt::Unknown(fault) => Self::Unknown(fault),
            Attempt::Failed(fault) => Self::Failed(fault),
            // a deadlock or a lock timeout of the server itself: the request was rolled back
            Attempt::Conflict | Attempt::Refused | Attempt::Ok => {
                Self::Failed(Fault::answered("the server asks to try again"))
            }
        }
    }
}
