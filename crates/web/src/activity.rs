//! What a connection does, and whether its time is over.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use crate::Limits;

/// How often it is looked at what a connection does, and how long it may wait for another request before its buffers are
/// given back.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It waits for a request.
    Idle = 0,
    /// Some of a request's head has come.
    Head = 1,
    /// A request is served, which has times of its own, or its answer is sent.
    Request = 2,
}

/// What a connection does, and since when. Times are in milliseconds since it was born.
pub(crate) struct Activity {
    born: Instant,
    /// When the phase began, four times, and the phase.
    state: AtomicU64,
    /// Whether it is idle and to be left so.
    has_parked: AtomicBool,
    /// Since when the client has taken nothing of what was written; 0 while it takes all.
    deaf_since: AtomicU64,
}

/// Whether a connection's time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    No,
    /// No request follows the last one soon.
    Idle,
    /// The head of a request takes too long to come, or an answer to be taken.
    TooSlow,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self {
            born: Instant::now(),
            state: AtomicU64::new(Phase::Head as u64),
            has_parked: AtomicBool::new(false),
            deaf_since: AtomicU64::new(0),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX >> 2)
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.state.store(self.now() << 2 | phase as u64, Relaxed);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.state.load(Relaxed) & 3 == Phase::Idle as u64
    }

    /// Leaves it idle: what is read next looks like the end of the stream, and so ends the connection of HTTP in order.
    pub(crate) fn park(&self) {
        self.has_parked.store(true, Relaxed);
    }

    pub(crate) fn has_parked(&self) -> bool {
        self.has_parked.load(Relaxed)
    }

    /// Some bytes of the client have come.
    pub(crate) fn came(&self) {
        // a request that comes at the moment of parking is served as any other
        self.has_parked.store(false, Relaxed);
        if self.is_idle() {
            self.enter(Phase::Head);
        }
    }

    /// The client has taken something of what is written, or not yet.
    pub(crate) fn wrote(&self, is_taken: bool) {
        if is_taken {
            self.deaf_since.store(0, Relaxed);
        } else if self.deaf_since.load(Relaxed) == 0 {
            self.deaf_since.store(self.now().max(1), Relaxed);
        }
    }

    pub(crate) fn is_over(&self, limits: &Limits) -> Over {
        let (now, state, deaf) = (self.now(), self.state.load(Relaxed), self.deaf_since.load(Relaxed));
        let since = |then: u64| Duration::from_millis(now.saturating_sub(then));
        if deaf > 0 && since(deaf) >= limits.deaf_time {
            return Over::TooSlow;
        }
        match state & 3 {
            0 if deaf == 0 && since(state >> 2) >= LOOK => Over::Idle,
            1 if since(state >> 2) >= limits.head_time => Over::TooSlow,
            // a request that is served has times of its own
            _ => Over::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Beyond;

    const LIMITS: Limits = Limits {
        connections: 1,
        beyond: Beyond::Wait,
        head: 1,
        head_time: Duration::from_secs(10),
        idle_time: Duration::from_mins(1),
        deaf_time: Duration::from_secs(30),
        ending_time: Duration::ZERO,
    };

    /// As if it had begun so long ago.
    fn born_before(millis: u64) -> Activity {
        let born = Instant::now().checked_sub(Duration::from_millis(millis)).unwrap();
        Activity { born, ..Activity::new() }
    }

    #[test]
    fn each_phase_has_its_time() {
        let after = |millis: u64, phase: Phase| {
            let activity = born_before(millis);
            activity.state.store(phase as u64, Relaxed);
            activity.is_over(&LIMITS)
        };
        assert_eq!((after(900, Phase::Idle), after(1100, Phase::Idle)), (Over::No, Over::Idle));
        assert_eq!((after(9_000, Phase::Head), after(10_100, Phase::Head)), (Over::No, Over::TooSlow));
        assert_eq!(after(100_000, Phase::Request), Over::No);
    }

    /// It is not idle before its last answer was taken, and one that takes nothing has its time in every phase.
    #[test]
    fn a_client_that_takes_nothing_has_its_time() {
        for phase in [Phase::Idle, Phase::Request] {
            let deaf_for = |millis: u64| {
                let activity = born_before(100_000);
                activity.enter(phase);
                activity.deaf_since.store(100_000 - millis, Relaxed);
                activity
            };
            assert_eq!(deaf_for(29_000).is_over(&LIMITS), Over::No, "{phase:?}");
            let deaf = deaf_for(30_100);
            // that there is still something to write says nothing new
            deaf.wrote(false);
            assert_eq!(deaf.is_over(&LIMITS), Over::TooSlow, "{phase:?}");
            deaf.wrote(true);
            assert_eq!(deaf.is_over(&LIMITS), Over::No, "{phase:?}");
        }
    }

    #[test]
    fn what_comes_ends_what_is_idle() {
        let activity = Activity::new();
        activity.enter(Phase::Request);
        activity.came();
        assert_eq!(activity.state.load(Relaxed) & 3, Phase::Request as u64);
        activity.enter(Phase::Idle);
        activity.park();
        activity.came();
        assert_eq!(activity.state.load(Relaxed) & 3, Phase::Head as u64);
        assert!(!activity.has_parked());
    }
}
