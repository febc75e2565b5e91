//! Locks that the bench keeps in the server: a key with a lease, an owner's token and fencing.

use std::{mem, ops::RangeInclusive, sync::LazyLock, time::Duration};

use acidtest_engine::Attempt;
use rand::{RngExt, SeedableRng, rngs::SysRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use redis::Cmd;
use tokio::time::Instant;

use crate::{
    protocol::Reply,
    server::{Request, ended},
    session::{Script, Session, Step},
};

/// How long a lock is kept for a holder that has fallen silent.
pub(crate) const LEASE: Duration = Duration::from_secs(10);

/// How long to wait for a lock that another client holds, before the wait counts as a conflict.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bounds of the wait between two attempts at a lock that another client holds, in microseconds. The runtime
/// rounds it up to whole milliseconds.
const POLL: RangeInclusive<u64> = 200..=2_000;

static ACQUIRE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lock/acquire.lua")));
static SETTLE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lock/settle.lua")));

/// The scripts that take locks and give them up.
pub(crate) fn scripts() -> [&'static Script; 2] {
    [&ACQUIRE, &SETTLE]
}

/// The key of a hash, and the key of the lock that protects it.
#[derive(Clone, Copy)]
pub(crate) struct Locked<'a> {
    pub(crate) hash: &'a str,
    pub(crate) lock: &'a str,
}

/// One client's access to the locks of a trial.
pub(crate) struct Locks {
    /// The key of the counter that numbers the tokens.
    fence: String,
    rng: Xoshiro256PlusPlus,
    /// Time spent waiting for locks that others held, since it was last taken.
    waited: Duration,
}

impl Locks {
    pub(crate) fn new(fence: String) -> Self {
        // the numbers only spread out the waits, so any seed will do
        let rng = Xoshiro256PlusPlus::try_from_rng(&mut SysRng)
            .unwrap_or_else(|_| Xoshiro256PlusPlus::seed_from_u64(0));
        Self { fence, rng, waited: Duration::ZERO }
    }

    /// Time spent waiting for locks that others held, since the last call.
    pub(crate) fn take_waited(&mut self) -> Duration {
        mem::take(&mut self.waited)
    }

    /// Takes a lock, waiting while another client holds it, and reads the named `fields` of the hash, or all
    /// fields with their names if none is named. Returns the lock's token and the values.
    pub(crate) async fn acquire<'s>(
        &mut self,
        session: &'s mut Session,
        locked: Locked<'_>,
        fields: &[String],
    ) -> Step<(i64, Reply<'s>)> {
        let arguments = |acquire: &mut Cmd, fence: &str| {
            acquire.arg(3).arg(locked.hash).arg(locked.lock).arg(fence);
            acquire.arg(LEASE.as_millis()).arg(fields);
        };
        self.take(session, &ACQUIRE, arguments).await
    }

    /// Takes locks by a script that returns nil, with none taken, while another client holds one of them: it is then
    /// run again. `arguments` adds the number of keys, the keys and the arguments, and is handed the key of the counter
    /// that numbers the tokens.
    ///
    /// Returns the token and what was read with it.
    pub(crate) async fn take<'s>(
        &mut self,
        session: &'s mut Session,
        script: &Script,
        arguments: impl Fn(&mut Cmd, &str),
    ) -> Step<(i64, Reply<'s>)> {
        let harmless = ended(Request::Harmless);
        let mut since: Option<Instant> = None;
        loop {
            let asked = session.run(script, |acquire| arguments(acquire, &self.fence));
            if asked.await.map_err(&harmless)? != Reply::Nil {
                self.waited += since.map_or(Duration::ZERO, |since| since.elapsed());
                let held = session.answer().and_then(Reply::exactly);
                let [token, read] = held.map_err(&harmless)?;
                return Ok((token.integer().map_err(&harmless)?, read));
            }
            if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return Err(Attempt::Conflict);
            }
            tokio::time::sleep(Duration::from_micros(self.rng.random_range(POLL))).await;
        }
    }
}

/// Gives up a lock without changing the hash.
pub(crate) async fn give_up(session: &mut Session, locked: Locked<'_>, token: i64) -> Step<Attempt> {
    settle(session, locked, token, Request::Harmless, |_| ()).await
}

/// Writes to the hash and gives up the lock; `change` adds `HSET` or `HINCRBY` and its arguments.
pub(crate) async fn write(
    session: &mut Session,
    locked: Locked<'_>,
    token: i64,
    change: impl Fn(&mut Cmd),
) -> Step<Attempt> {
    settle(session, locked, token, Request::Script, change).await
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
    let ours = asked.await.and_then(Reply::flag).map_err(ended(request))?;
    Ok(if ours { Attempt::Ok } else { Attempt::Conflict })
}
