//! Locks that the bench keeps in the server: a key with a lease, an owner's token and fencing.

use std::{mem, ops::RangeInclusive, sync::LazyLock, time::Duration};

use acidtest_engine::Attempt;
use rand::{RngExt, SeedableRng, rngs::SysRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use redis::{Cmd, FromRedisValue, RedisResult};
use tokio::time::Instant;

use crate::{
    server::{Request, ended},
    session::{Script, Session, Step},
};

/// How long a lock is kept for a holder that is not heard of any more.
const LEASE: Duration = Duration::from_secs(10);

/// How long a lock that another holds is waited for, before the wait counts as a conflict.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bounds of the wait between two looks at a lock that another holds, in microseconds. The runtime
/// rounds it up to whole milliseconds.
const POLL: RangeInclusive<u64> = 200..=2_000;

static ACQUIRE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lock/acquire.lua")));
static SETTLE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lock/settle.lua")));

/// The scripts that locks need.
pub(crate) fn scripts() -> [&'static Script; 2] {
    [&ACQUIRE, &SETTLE]
}

/// A hash and the key of the lock on it.
#[derive(Clone, Copy)]
pub(crate) struct Locked<'a> {
    pub(crate) hash: &'a str,
    pub(crate) lock: &'a str,
}

/// One client's way to the locks of a trial.
pub(crate) struct Locks {
    /// The counter that tokens are drawn from.
    fence: String,
    rng: Xoshiro256PlusPlus,
    /// How long locks were waited for that others held, since it was last asked.
    waited: Duration,
}

impl Locks {
    pub(crate) fn new(fence: String) -> Self {
        // only spreads out waits: any seed will do
        let rng = Xoshiro256PlusPlus::try_from_rng(&mut SysRng)
            .unwrap_or_else(|_| Xoshiro256PlusPlus::seed_from_u64(0));
        Self { fence, rng, waited: Duration::ZERO }
    }

    /// How long locks were waited for that others held, since it was last asked.
    pub(crate) fn take_waited(&mut self) -> Duration {
        mem::take(&mut self.waited)
    }

    /// Takes a lock and reads fields of the hash, all with their names if none is named; waits while
    /// another holds it. Returns the token and what was read.
    pub(crate) async fn acquire<T: FromRedisValue>(
        &mut self,
        session: &mut Session,
        locked: Locked<'_>,
        fields: &[String],
    ) -> Step<(i64, T)> {
        let mut since: Option<Instant> = None;
        loop {
            let asked = session.run(&ACQUIRE, |acquire| {
                acquire.arg(3).arg(locked.hash).arg(locked.lock).arg(&self.fence);
                acquire.arg(LEASE.as_millis()).arg(fields);
            });
            let held: RedisResult<Option<(i64, T)>> = asked.await;
            if let Some(held) = held.map_err(ended(Request::Harmless))? {
                self.waited += since.map_or(Duration::ZERO, |since| since.elapsed());
                return Ok(held);
            }
            if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return Err(Attempt::Conflict);
            }
            tokio::time::sleep(Duration::from_micros(self.rng.random_range(POLL))).await;
        }
    }
}

/// Gives a lock up, with nothing changed.
pub(crate) async fn give_up(session: &mut Session, locked: Locked<'_>, token: i64) -> Step<Attempt> {
    settle(session, locked, token, Request::Harmless, |_| ()).await
}

/// Writes and gives the lock up; `change` adds `HSET` or `HINCRBY` and what belongs to it.
pub(crate) async fn write(
    session: &mut Session,
    locked: Locked<'_>,
    token: i64,
    change: impl Fn(&mut Cmd),
) -> Step<Attempt> {
    settle(session, locked, token, Request::Change, change).await
}

async fn settle(
    session: &mut Session,
    locked: Locked<'_>,
    token: i64,
    request: Request,
    change: impl Fn(&mut Cmd),
) -> Step<Attempt> {
    let asked = session.run(&SETTLE, |settle| {
        settle.arg(2).arg(locked.hash).arg(locked.lock).arg(token);
        change(settle);
    });
    let ours: bool = asked.await.map_err(ended(request))?;
    Ok(if ours { Attempt::Ok } else { Attempt::Conflict })
}
