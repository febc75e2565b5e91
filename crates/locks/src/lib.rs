//! Locks for stores that have none: taken by name, held for a lease, each grant with a fencing token. They are kept
//! on a Redis or a PostgreSQL server.
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
//! This crate knows no server. Redis and PostgreSQL each implement [`LockService`] in their own crate, beside their
//! connections, scripts and statements, and what their errors mean: a lock's request is classified like any other
//! of that server's. A store that wants locks takes a [`LockService`], and knows nothing else of the server.

#![warn(missing_docs)]

pub mod audit;
mod grant;

use std::{fmt, time::Duration};

use acidtest_model::{StoreError, Task};
use acidtest_workloads::{Attempt, Fault, Place, Store};

pub use crate::grant::Grant;
use crate::grant::Requests;

/// A server that keeps locks. As a store it makes the namespace, which must exist before
/// [`prepare`](Self::prepare).
pub trait LockService: Store + fmt::Debug {
    /// Prepares the trial's namespace for its locks.
    fn prepare<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>>;

    /// Removes the locks of a trial, with everything that [`prepare`](Self::prepare) created for them.
    fn clear<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>>;

    /// Opens one client's connection to the locks of a trial.
    fn connect<'a>(&'a self, place: &'a Place) -> Task<'a, Result<Locker, StoreError>>;
}

/// How a server carries out the requests of one client for the locks of a trial. A lease is in whole milliseconds, at
/// least one.
pub trait LockSession {
    /// Takes a lock for an owner whom no other request has, and returns its token; `None` if another holds it.
    fn acquire<'a>(
        &'a mut self,
        name: &'a str,
        owner: &'a str,
        lease_ms: i64,
    ) -> Task<'a, Result<Option<u64>, LockError>>;

    /// Extends the lease to that long from now, unless it lasts longer already; `false` if it had ended.
    fn renew<'a>(&'a mut self, grant: &'a Grant, lease_ms: i64) -> Task<'a, Result<bool, LockError>>;

    /// Ends the lease; `false` if it had ended.
    fn release<'a>(&'a mut self, grant: &'a Grant) -> Task<'a, Result<bool, LockError>>;
}

/// One client's connection to the lock service. It neither waits for a lock nor retries nor reconnects.
///
/// If a future of this type is dropped, its request is in doubt, as with [`LockError::Unknown`]; the locker must then
/// be dropped too.
pub struct Locker {
    session: Box<dyn LockSession>,
    requests: Requests,
}

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locker").field("requests", &self.requests).finish_non_exhaustive()
    }
}

impl Locker {
    /// A client whose requests go by that session.
    #[must_use]
    pub fn new(session: impl LockSession + 'static) -> Self {
        Self { session: Box::new(session), requests: Requests::new() }
    }

    /// Takes a lock for the length of a lease (whole milliseconds, at least one); `None` if another holds it.
    ///
    /// # Errors
    /// [`LockError::Unknown`] where the lock may have been taken, and is then held by nobody until its lease
    /// ends.
    pub async fn acquire(&mut self, name: &str, lease: Duration) -> Result<Option<Grant>, LockError> {
        let request = self.requests.next(lease);
        let token = self.session.acquire(name, &request.owner, request.lease).await?;
        Ok(token.map(|token| request.granted(name, token)))
    }

    /// Extends a grant to a lease from now, unless it lasts longer already; `false` if it had ended.
    ///
    /// # Errors
    /// Whichever error it is, the grant lasts as long as it says.
    pub async fn renew(&mut self, grant: &mut Grant, lease: Duration) -> Result<bool, LockError> {
        let request = self.requests.next(lease);
        let ours = self.session.renew(grant, request.lease).await?;
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
        self.session.release(&grant).await
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
    #[must_use]
    pub fn of(attempt: Attempt) -> Self {
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
