//! When numbers were given to what clients write, so that it can be told how old a lost write was.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::epochs::Boundary;

/// The name of the evidence that says how long before a crash the oldest of what was lost was sent, at most, in
/// milliseconds.
pub const OLDEST_LOST: &str = "oldest_lost_ms";

/// How many numbers had been given at some moments, and at each crash. Numbers are given in order.
#[derive(Debug, Default)]
pub(crate) struct Moments(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    looks: Vec<(Instant, u64)>,
    /// When the server had ended, each time, and how many numbers had been given by then.
    crashes: Vec<(Instant, u64)>,
    /// Whether it is being ended, and nobody knows yet when it has.
    is_ending: bool,
    /// Whether it was ended again without anybody knowing when it had ended before.
    is_unknown: bool,
}

impl Moments {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that so many numbers had been given by now.
    pub(crate) fn note(&self, now: Instant, given: u64) {
        let looks = &mut self.noted().looks;
        // of moments at which nothing was given, the last one counts
        match looks.as_mut_slice() {
            [.., (_, before), (last, same)] if *before == given && *same == given => *last = now,
            _ => looks.push((now, given)),
        }
    }

    /// Notes what happens to the server, when so many numbers have been given.
    pub(crate) fn note_boundary(&self, now: Instant, boundary: Boundary, given: u64) {
        let noted = &mut *self.noted();
        match boundary {
            Boundary::Before => {
                noted.is_unknown |= noted.is_ending;
                noted.is_ending = true;
            }
            Boundary::During => {}
            Boundary::After => {
                noted.is_ending = false;
                noted.crashes.push((now, given));
            }
        }
    }

    /// How long before the next crash each of these was given, at most: the longest of these times. None if there was no
    /// crash after any of them, or if it is not known which one that was.
    pub(crate) fn oldest(&self, numbers: impl Iterator<Item = u64>) -> Option<Duration> {
        let noted = self.noted();
        if noted.is_unknown || noted.is_ending {
            return None;
        }
        let age = |number: u64| {
            let (crash, _) = noted.crashes.iter().find(|(_, given)| *given > number)?;
            let earlier = noted.looks.partition_point(|(at, given)| *given <= number && at <= crash);
            let (last, _) = noted.looks.get(earlier.checked_sub(1)?)?;
            Some(crash.saturating_duration_since(*last))
        };
        numbers.filter_map(age).max()
    }
}

/// The evidence of this age; none if it is not known.
pub(crate) fn oldest_lost(age: Option<Duration>) -> Option<(&'static str, u64)> {
    Some((OLDEST_LOST, u64::try_from(age?.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is said to be at most so old is no older, and no younger by more than the time between two looks.
        #[test]
        fn an_age_is_what_it_was_but_for_the_time_between_two_looks(
            steps in prop::collection::vec((1..50_u64, 0..5_u64, any::<bool>(), prop::bool::weighted(0.1)), 1..100),
            lost: prop::sample::Index,
        ) {
            let begun = Instant::now();
            let at = |millis| begun + Duration::from_millis(millis);
            let moments = Moments::default();
            moments.note(begun, 0);
            let (mut now, mut given, mut crashes, mut last, mut longest) = (0, Vec::new(), Vec::new(), 0, 0);
            for (wait, more, looks, crashed) in steps {
                now += wait;
                if looks {
                    moments.note(at(now), given.len() as u64);
                    (longest, last) = (longest.max(now - last), now);
                }
                given.extend((0..more).map(|_| now));
                if crashed {
                    moments.note_boundary(at(now), Boundary::Before, given.len() as u64);
                    // what is sent until it is over may go with it
                    given.extend((0..more).map(|_| now));
                    moments.note_boundary(at(now), Boundary::After, given.len() as u64);
                    crashes.push((now, given.len()));
                }
            }
            longest = longest.max(now - last);
            if !given.is_empty() {
                let number = lost.index(given.len());
                let crash = crashes.iter().find(|(_, count)| *count > number);
                let age = crash.map(|(crash, _)| Duration::from_millis(crash - given[number]));
                let said = moments.oldest(std::iter::once(number as u64));
                prop_assert_eq!(said.is_some(), age.is_some());
                if let (Some(said), Some(age)) = (said, age) {
                    let most = age + Duration::from_millis(longest);
                    prop_assert!((age..=most).contains(&said), "{:?} for {:?}, at most {:?}", said, age, most);
                }
            }
        }
    }
}
