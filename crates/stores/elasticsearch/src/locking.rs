//! Locks of the lock service, which the hard lock takes.

use std::time::{Duration, Instant};

use acidtest_engine::{Attempt, Fault};
use acidtest_locks::{Grant, LockError, LockService, Locker};
use acidtest_model::StoreError;
use acidtest_workloads::{Place, lock_namespace};
use rand::{RngExt, SeedableRng, rngs::SysRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::fault::Step;

/// How long a lock is kept for a holder that has fallen silent.
const LEASE: Duration = Duration::from_secs(10);

/// How long an operation waits for locks that other clients hold, before the wait counts as a conflict.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Bounds of the wait between two attempts at a lock that another client holds, in microseconds. The runtime
/// rounds it up to whole milliseconds.
const POLL: std::ops::RangeInclusive<u64> = 200..=2_000;

/// The namespace and trial of a trial's locks, on the lock service's server.
fn locked(place: &Place) -> Place {
    Place { namespace: lock_namespace(&place.namespace), ..place.clone() }
}

/// Prepares the locks of a trial, where there is a lock service.
pub(crate) async fn prepare(service: Option<&dyn LockService>, place: &Place) -> Result<(), StoreError> {
    match service {
        Some(service) => service.prepare(&locked(place)).await,
        None => Ok(()),
    }
}

/// Removes the locks of a trial, where there is a lock service.
pub(crate) async fn clear(service: Option<&dyn LockService>, place: &Place) -> Result<(), StoreError> {
    match service {
        Some(service) => service.clear(&locked(place)).await,
        None => Ok(()),
    }
}

/// One client's connection to the locks of a trial.
pub(crate) struct Locks {
    locker: Locker,
    rng: Xoshiro256PlusPlus,
    /// Time spent waiting for locks that others held, since it was last taken.
    waited: Duration,
}

/// The patience of one operation, for all its locks together: when it began to wait, if it has.
#[derive(Debug, Default)]
pub(crate) struct Patience(Option<Instant>);

impl Locks {
    pub(crate) async fn connect(service: Option<&dyn LockService>, place: &Place) -> Result<Self, String> {
        let service =
            service.ok_or("the hard lock is kept by a lock service: name one with --lock-service")?;
        Ok(Self {
            locker: service.connect(&locked(place)).await.map_err(|error| error.to_string())?,
            rng: Xoshiro256PlusPlus::try_from_rng(&mut SysRng).map_err(|error| error.to_string())?,
            waited: Duration::ZERO,
        })
    }

    /// Takes a lock; a conflict if other clients held this one and those before for longer than [`PATIENCE`].
    pub(crate) async fn acquire(&mut self, key: &str, patience: &mut Patience) -> Step<Grant> {
        let mut since: Option<Instant> = None;
        loop {
            let asked = self.locker.acquire(key, LEASE).await;
            if let Some(grant) = asked.map_err(|error| unlocked(&error))? {
                self.waited += since.map_or(Duration::ZERO, |since| since.elapsed());
                return Ok(grant);
            }
            let now = *since.get_or_insert_with(Instant::now);
            if patience.0.get_or_insert(now).elapsed() > PATIENCE {
                return Err(Attempt::Conflict);
            }
            tokio::time::sleep(Duration::from_micros(self.rng.random_range(POLL))).await;
        }
    }

    pub(crate) async fn release(&mut self, grant: Grant) {
        // if giving up fails, the lock ends with its lease; the next request reports the connection's error
        let _ = self.locker.release(grant).await;
    }

    /// Time spent waiting for locks that others held, since this was last called.
    pub(crate) fn take_waited(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }
}

/// The outcome of an operation that needs a lock where there is no lock service.
pub(crate) fn none() -> Attempt {
    Attempt::Failed(Fault::answered("there is no lock service"))
}

/// The outcome when the lock service did not answer a request for a lock: nothing has been written under the
/// lock.
fn unlocked(error: &LockError) -> Attempt {
    let words = error.to_string();
    match error {
        LockError::Failed(fault) if !fault.connection_lost => Attempt::Failed(Fault::answered(words)),
        LockError::Failed(_) | LockError::Unknown(_) => Attempt::Failed(Fault::lost(words)),
    }
}
