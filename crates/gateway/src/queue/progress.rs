//! How far the entries of a queue are stored, where several collectors store batches side by side.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

/// Moments are noted no more often than this.
const STEP: Duration = Duration::from_millis(50);
/// So many moments are noted at most; then every second one is forgotten.
const MOMENTS: usize = 4096;

/// Entries have numbers in the order in which they came. All before `stored` are stored, and some behind it may be.
#[derive(Debug)]
pub(super) struct Progress {
    stored: u64,
    /// Batches that are stored before those ahead of them: end by begin.
    ahead: BTreeMap<u64, u64>,
    /// The number behind the last entry that was acknowledged.
    end: u64,
    /// When entries were acknowledged: the number behind the last of them, at this moment.
    moments: VecDeque<(u64, Instant)>,
}

impl Progress {
    /// A queue in which the entries from `stored` to before `end` wait, the oldest of them for so long.
    pub(super) fn new(stored: u64, end: u64, oldest: Duration) -> Self {
        let mut progress = Self { stored, ahead: BTreeMap::new(), end: stored, moments: VecDeque::new() };
        progress.acknowledged(end);
        if let Some((_, moment)) = progress.moments.back_mut() {
            // where the clock was set, it may be before the machine's start, and then it is as old as can be said
            *moment = moment.checked_sub(oldest).unwrap_or(*moment);
        }
        progress
    }

    /// All entries before `end` are acknowledged.
    pub(super) fn acknowledged(&mut self, end: u64) {
        if end <= self.end {
            return;
        }
        self.end = end;
        let now = Instant::now();
        match self.moments.back_mut() {
            // they belong to a moment a little earlier, and so look a little older than they are
            Some((last, moment)) if now.duration_since(*moment) < STEP => *last = end,
            _ => self.moments.push_back((end, now)),
        }
        if self.moments.len() > MOMENTS {
            let mut place = 0;
            // the earlier of two is kept for both, as above
            let ends: Vec<u64> = self.moments.iter().map(|(end, _)| *end).collect();
            self.moments.retain_mut(|(end, _)| {
                *end = *ends.get(place + 1).unwrap_or(end);
                place += 1;
                place % 2 == 1
            });
        }
    }

    /// The entries from `begin` to before `end` are stored.
    pub(super) fn stored(&mut self, begin: u64, end: u64) {
        self.ahead.insert(begin, end);
        while let Some((&begin, &end)) = self.ahead.first_key_value() {
            if begin > self.stored {
                break;
            }
            self.stored = self.stored.max(end);
            self.ahead.remove(&begin);
        }
        while self.moments.front().is_some_and(|(end, _)| *end <= self.stored) {
            self.moments.pop_front();
        }
    }

    /// All entries before this number are stored.
    pub(super) fn up_to(&self) -> u64 {
        self.stored
    }

    /// How many entries were acknowledged and are not yet stored.
    pub(super) fn waiting(&self) -> u64 {
        let ahead: u64 = self.ahead.iter().map(|(begin, end)| end.saturating_sub(*begin)).sum();
        self.end.saturating_sub(self.stored).saturating_sub(ahead)
    }

    /// The age of the oldest entry that is not yet stored.
    pub(super) fn oldest(&self) -> Option<Duration> {
        self.moments.front().map(|(_, moment)| moment.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_done_only_when_all_before_them_are() {
        let mut progress = Progress::new(5, 5, Duration::ZERO);
        assert_eq!((progress.waiting(), progress.oldest()), (0, None));
        progress.acknowledged(35);
        progress.stored(15, 25);
        assert_eq!((progress.up_to(), progress.waiting()), (5, 20));
        assert!(progress.oldest().is_some());
        progress.stored(5, 15);
        assert_eq!((progress.up_to(), progress.waiting()), (25, 10));
        progress.stored(25, 35);
        assert_eq!((progress.up_to(), progress.waiting(), progress.oldest()), (35, 0, None));
    }

    #[test]
    fn moments_stay_few_and_in_order_however_long_nothing_is_stored() {
        let mut progress = Progress::new(0, 0, Duration::ZERO);
        for end in 1..=20_000 {
            progress.acknowledged(end);
            // as if they came slowly
            if let Some((_, moment)) = progress.moments.back_mut() {
                *moment -= STEP;
            }
        }
        assert!(progress.moments.len() <= MOMENTS + 1);
        let ends: Vec<u64> = progress.moments.iter().map(|(end, _)| *end).collect();
        assert!(ends.is_sorted() && ends.last() == Some(&20_000));
        progress.stored(0, 20_000);
        assert_eq!(progress.oldest(), None);
    }
}
