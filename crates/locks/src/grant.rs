//! Requests for a lock, and grants.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

use rand::{TryRng, rngs::SysRng};

/// A lock that is held, until its lease ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    name: String,
    owner: String,
    token: u64,
    until: Instant,
}

impl Grant {
    /// A grant of the lock `name` that its holder may use until that moment.
    #[must_use]
    pub fn new(name: &str, owner: &str, token: u64, until: Instant) -> Self {
        Self { name: name.to_owned(), owner: owner.to_owned(), token, until }
    }

    /// The name of the lock, as it was asked for.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The owner's id, drawn for this request alone: no other request in the world has it.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The fencing token, higher than that of every earlier grant of this lock.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token
    }

    /// The moment at which the lease ends for the holder, which is not later than for the service.
    #[must_use]
    pub fn until(&self) -> Instant {
        self.until
    }

    /// The time that is left of the lease; zero once it has ended.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    pub(crate) fn extend(&mut self, request: &Request) {
        self.until = self.until.max(request.until());
    }
}

/// Numbers the requests of one client, so that no two requests in the world have the same owner.
pub(crate) struct Requests {
    client: u64,
    made: u64,
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.made)
    }
}

/// One request for a lock, about to be sent.
pub(crate) struct Request {
    pub(crate) owner: String,
    /// The length of the lease in whole milliseconds, the unit of every service.
    pub(crate) lease: i64,
    sent: Instant,
}

impl Requests {
    pub(crate) fn new() -> Self {
        let client = SysRng.try_next_u64().unwrap_or_else(|_| RandomState::new().hash_one(Instant::now()));
        Self { client, made: 0 }
    }

    pub(crate) fn next(&mut self, lease: Duration) -> Request {
        self.made += 1;
        let lease = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX).max(1);
        Request { owner: format!("{:016x}-{}", self.client, self.made), lease, sent: Instant::now() }
    }
}

impl Request {
    pub(crate) fn granted(self, name: &str, token: u64) -> Grant {
        let until = self.until();
        Grant { name: name.to_owned(), owner: self.owner, token, until }
    }

    /// The end of the lease as the holder counts it, from before the request was sent: the service starts its clock
    /// when the request arrives, which is later.
    fn until(&self) -> Instant {
        self.sent + Duration::from_millis(self.lease.unsigned_abs())
    }
}
