//! Runs the audit against lock services with planted bugs, and against a correct one in memory.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::common::{Drill, Locking};
use acidtest_locks::{
    Grant, LockError,
    audit::{Fencing, GuardedCounter, Watch, audit},
};
use acidtest_workloads::{Audit, Fault, Verdict};

/// A mistake that a lock service can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// Grants a lock that another holds.
    GrantTwice,
    /// Ends a lease at half of its length.
    EndEarly,
    /// Releases a lock whoever holds it.
    ReleaseAnyone,
    /// Renews a lock whoever holds it, and answers that the asker did.
    RenewAnyone,
    /// Gives every grant the same token.
    TokensStandStill,
    /// Forgets the token when the lock is released.
    TokensBeginAnew,
}

#[derive(Default)]
struct Reference {
    bug: Option<Bug>,
    /// One request in this many is carried out and not answered; 0: all are answered.
    unanswered: u64,
    requests: AtomicU64,
    owners: AtomicU64,
    locks: Mutex<HashMap<String, Lock>>,
}

#[derive(Default)]
struct Lock {
    owner: String,
    token: u64,
    until: Option<Instant>,
}

impl Lock {
    fn holds(&self, owner: &str) -> bool {
        self.owner == owner && self.is_held()
    }

    fn is_held(&self) -> bool {
        self.until.is_some_and(|until| until > Instant::now())
    }
}

impl Reference {
    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn answer<T>(&self, answer: T) -> Result<T, LockError> {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        if self.unanswered > 0 && request % self.unanswered == self.unanswered - 1 {
            return Err(LockError::Unknown(Fault::lost("no answer")));
        }
        Ok(answer)
    }
}

impl Locking for &Reference {
    async fn acquire(&mut self, name: &str, lease: Duration) -> Result<Option<Grant>, LockError> {
        let sent = Instant::now();
        let owner = self.owners.fetch_add(1, Ordering::Relaxed).to_string();
        let mut locks = self.locks.lock().unwrap();
        let lock = locks.entry(name.to_owned()).or_default();
        if lock.is_held() && !self.has(Bug::GrantTwice) {
            return self.answer(None);
        }
        if self.has(Bug::TokensBeginAnew) && lock.until.is_none() {
            lock.token = 0;
        }
        if !self.has(Bug::TokensStandStill) || lock.token == 0 {
            lock.token += 1;
        }
        lock.owner.clone_from(&owner);
        let served = if self.has(Bug::EndEarly) { lease / 2 } else { lease };
        lock.until = Some(Instant::now() + served);
        self.answer(Some(Grant::new(name, &owner, lock.token, sent + lease)))
    }

    async fn renew(&mut self, grant: &mut Grant, lease: Duration) -> Result<bool, LockError> {
        let sent = Instant::now();
        let mut locks = self.locks.lock().unwrap();
        let Some(lock) = locks.get_mut(grant.name()) else { return self.answer(false) };
        if !lock.holds(grant.owner()) && !self.has(Bug::RenewAnyone) {
            return self.answer(false);
        }
        lock.until = lock.until.max(Some(Instant::now() + lease));
        *grant = Grant::new(grant.name(), grant.owner(), grant.token(), grant.until().max(sent + lease));
        self.answer(true)
    }

    async fn release(&mut self, grant: Grant) -> Result<bool, LockError> {
        let mut locks = self.locks.lock().unwrap();
        let Some(lock) = locks.get_mut(grant.name()) else { return self.answer(false) };
        if !lock.holds(grant.owner()) && !self.has(Bug::ReleaseAnyone) {
            return self.answer(false);
        }
        lock.until = None;
        self.answer(true)
    }
}

fn catches(bug: Bug, finding: &str) {
    let found =
        until(|| Reference { bug: Some(bug), ..Reference::default() }, |found| found.count(finding) > 0);
    assert_eq!(found.verdict, Verdict::Broken, "{bug:?}: {found:?}");
}

/// Runs the drill on one service after another until the audit finds it: which requests come late is chance.
fn until(service: impl Fn() -> Reference, is_found: impl Fn(&Audit) -> bool) -> Audit {
    let begun = Instant::now();
    loop {
        let service = service();
        let found = Drill::SLOW.run(async || &service);
        if is_found(&found) {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_mins(2), "{:?}: {found:?}", service.bug);
    }
}

#[test]
fn a_lock_granted_twice_is_caught() {
    catches(Bug::GrantTwice, "overlap");
}

#[test]
fn a_lease_that_ends_early_is_caught() {
    catches(Bug::EndEarly, "overlap");
}

#[test]
fn a_release_by_someone_else_is_caught() {
    catches(Bug::ReleaseAnyone, "overlap");
}

#[test]
fn a_renewal_by_someone_else_is_caught() {
    catches(Bug::RenewAnyone, "overlap");
}

#[test]
fn tokens_that_stand_still_are_caught() {
    catches(Bug::TokensStandStill, "token");
}

#[test]
fn tokens_that_begin_anew_are_caught() {
    catches(Bug::TokensBeginAnew, "token");
}

#[test]
fn a_correct_service_raises_no_alarm_however_slow_its_clients() {
    // a request that came too late, or a false alarm
    let too_late = |found: &Audit| found.evidence["refused"] > 0 || found.verdict != Verdict::Holds;
    let found = until(Reference::default, too_late);
    assert_eq!(found.verdict, Verdict::Holds, "{found:?}");
}

#[test]
fn a_correct_service_that_leaves_requests_unanswered_raises_no_alarm() {
    let service = Reference { unanswered: 7, ..Reference::default() };
    let found = Drill::SLOW.run(async || &service);
    assert_eq!(found.verdict, Verdict::Holds, "{found:?}");
}

#[test]
fn an_overwritten_increment_is_caught() {
    let watch = Watch::new(1);
    let grant = Grant::new("a", "1", 1, Instant::now() + Duration::from_mins(1));
    assert!(watch.granted(0, 0, &grant));
    let counter = GuardedCounter::new(Fencing::Off);
    let read = counter.read(1).unwrap();
    counter.write(2, read + 1).unwrap();
    counter.write(1, read + 1).unwrap();
    let found = audit(&watch, &[counter]);
    assert_eq!((found.verdict, found.count("lost")), (Verdict::Broken, 1));
}

#[test]
fn nothing_granted_proves_nothing() {
    assert_eq!(audit(&Watch::new(1), &[]).verdict, Verdict::Unknown);
}
