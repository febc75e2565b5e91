//! What may happen at any rate, and is told in the log only now and then.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How far apart two lines of the log are at least.
const APART: Duration = Duration::from_secs(10);

/// Tells at once what happens first, and then no more often than every 10 s.
#[derive(Debug, Default)]
pub(crate) struct Sparingly(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    at: Option<Instant>,
    untold: u64,
}

impl Sparingly {
    /// Whether this is to be told; then how many times it happened and was not told since the last time.
    pub(crate) fn tell(&self) -> Option<u64> {
        self.tell_at(Instant::now())
    }

    fn tell_at(&self, now: Instant) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.at.is_some_and(|at| now.saturating_duration_since(at) < APART) {
            told.untold += 1;
            return None;
        }
        let Told { untold, .. } = std::mem::replace(&mut *told, Told { at: Some(now), untold: 0 });
        Some(untold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_those_that_follow_are_counted() {
        let (begin, sparingly) = (Instant::now(), Sparingly::default());
        let told: Vec<_> =
            [0, 1, 9, 10, 19, 40].map(|at| sparingly.tell_at(begin + Duration::from_secs(at))).into();
        assert_eq!(told, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
