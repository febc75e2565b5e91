//! Clients that contend for locks and raise guarded counters under them, on any lock service.

use std::{thread, time::Duration};

use acidtest_locks::{
    Grant, LockError, Locker,
    audit::{Fencing, GuardedCounter, Watch, audit},
};
use acidtest_testbed::wait;
use acidtest_workloads::Audit;

/// The requests of a lock service's client that the drill makes.
#[allow(async_fn_in_trait)] // driven where it is made
pub trait Locking {
    async fn acquire(&mut self, name: &str, lease: Duration) -> Result<Option<Grant>, LockError>;
    async fn renew(&mut self, grant: &mut Grant, lease: Duration) -> Result<bool, LockError>;
    async fn release(&mut self, grant: Grant) -> Result<bool, LockError>;
}

impl Locking for Locker {
    async fn acquire(&mut self, name: &str, lease: Duration) -> Result<Option<Grant>, LockError> {
        Locker::acquire(self, name, lease).await
    }

    async fn renew(&mut self, grant: &mut Grant, lease: Duration) -> Result<bool, LockError> {
        Locker::renew(self, grant, lease).await
    }

    async fn release(&mut self, grant: Grant) -> Result<bool, LockError> {
        Locker::release(self, grant).await
    }
}

/// Time that a client waits before it asks again for a lock that another holds.
const BACK_OFF: Duration = Duration::from_millis(1);

/// A number of clients that contend for locks, and how they behave.
#[derive(Clone, Copy)]
pub struct Drill {
    pub clients: u32,
    /// Number of times that each client holds a lock.
    pub turns: u32,
    pub locks: usize,
    pub lease: Duration,
    /// Whether clients dawdle: some for a part of their lease, some past its end, some with a renewal.
    pub dawdle: bool,
}

impl Drill {
    /// Clients that hold every lock for as short as they can.
    pub const BRISK: Self =
        Self { clients: 8, turns: 40, locks: 2, lease: Duration::from_secs(30), dawdle: false };
    /// Clients that outlive their leases, and whose writes, renewals and releases come too late.
    pub const SLOW: Self =
        Self { clients: 4, turns: 16, locks: 1, lease: Duration::from_millis(30), dawdle: true };

    /// Runs every client in a thread of its own, and audits what they saw.
    pub fn run<L: Locking>(self, connect: impl AsyncFn() -> L + Sync) -> Audit {
        let watch = Watch::new(self.locks);
        let counters: Vec<GuardedCounter> =
            (0..self.locks).map(|_| GuardedCounter::new(Fencing::Full)).collect();
        thread::scope(|scope| {
            for client in 0..self.clients {
                let (watch, counters, connect) = (&watch, &counters, &connect);
                scope.spawn(move || {
                    wait(async {
                        let mut locks = connect().await;
                        for turn in 0..self.turns {
                            self.turn(&mut locks, client, client + turn, watch, counters).await;
                        }
                    });
                });
            }
        });
        audit(&watch, &counters)
    }

    async fn turn<L: Locking>(
        self,
        locks: &mut L,
        client: u32,
        turn: u32,
        watch: &Watch,
        counters: &[GuardedCounter],
    ) {
        let lock = turn as usize % self.locks;
        let Some(mut grant) = self.take(locks, lock).await else { return };
        if watch.granted(lock, client, &grant) {
            let read = counters[lock].read(grant.token());
            if self.dawdle {
                // waits for a part of the lease, past its end, for a part with a renewal, or not at all
                tokio::time::sleep(self.lease * [2, 4, 2, 0][turn as usize % 4] / 3).await;
                let renews = [false, true, true, false][turn as usize % 4];
                if renews && matches!(locks.renew(&mut grant, self.lease).await, Ok(true)) {
                    watch.renewed(lock, client, &grant);
                    tokio::time::sleep(self.lease * 2 / 3).await;
                }
            }
            // a stale write is refused, and the counter counts it
            let _ = read.and_then(|value| counters[lock].write(grant.token(), value + 1));
            watch.releasing(lock, client);
        }
        // a release that failed leaves the lock held until its lease ends
        let _ = locks.release(grant).await;
    }

    /// Asks until it has the lock; `None` where a request is in doubt.
    async fn take<L: Locking>(self, locks: &mut L, lock: usize) -> Option<Grant> {
        loop {
            match locks.acquire(&format!("lock {lock}"), self.lease).await {
                Ok(None) => tokio::time::sleep(BACK_OFF).await,
                answer => return answer.ok().flatten(),
            }
        }
    }
}
