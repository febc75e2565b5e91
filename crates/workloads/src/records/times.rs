//! How old the reads of a trial are that other members than the leader may answer: the ledger's part of it.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use acidtest_engine::{Histogram, histogram};
use acidtest_model::ReadPolicy;
use tokio::time::Instant;

use super::WrittenVersion;
use crate::{Spread, Staleness, epochs::Epoch, pieces::Pieces};

/// How many parts the times are in, so that clients do not wait for each other.
const PARTS: u64 = 64;

/// How many versions more than the last known one an acknowledged version can be: so many clients may be under way.
const AHEAD: usize = 1 << 16;

/// When each version of each record was acknowledged, and what reads missed of that. Eight bytes for each acknowledged write.
#[derive(Debug)]
pub(crate) struct ReadTimes {
    policy: ReadPolicy,
    origin: Instant,
    acknowledged: Vec<Mutex<HashMap<u64, Times>>>,
    /// The newest [`WrittenVersion`] of each record that was read.
    newest_read: Pieces<AtomicU64>,
    reads: AtomicU64,
    at_leader: AtomicU64,
    stale: AtomicU64,
    own_writes_missed: AtomicU64,
    went_back: AtomicU64,
    /// How many of the last three prove nothing.
    in_doubt: [AtomicU64; 3],
    /// How many reads did one of these.
    reads_in_doubt: AtomicU64,
    missed: Mutex<Missed>,
}

/// When the versions of a record were acknowledged, from the first one on that was: nanoseconds from the origin, and 0 for one that was
/// not.
#[derive(Debug, Default)]
struct Times {
    first: u64,
    at: Vec<u64>,
}

impl Times {
    fn note(&mut self, version: u64, at: u64) {
        if self.at.is_empty() {
            self.first = version;
        }
        if let Some(more) = self.first.checked_sub(version).and_then(|more| usize::try_from(more).ok()) {
            if more > AHEAD {
                return;
            }
            self.at.splice(0..0, std::iter::repeat_n(0, more));
            self.first = version;
        }
        let Ok(index) = usize::try_from(version - self.first) else { return };
        // a store may answer with any number
        if index > self.at.len() + AHEAD {
            return;
        }
        if index >= self.at.len() {
            self.at.resize(index + 1, 0);
        }
        self.at[index] = at;
    }

    /// The earliest time at which one of these versions was acknowledged.
    fn earliest(&self, from: u64, to: u64) -> Option<u64> {
        let index = |version: u64| usize::try_from(version.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let range = index(from).min(self.at.len())..(index(to.saturating_add(1))).min(self.at.len());
        self.at.get(range)?.iter().copied().filter(|at| *at > 0).min()
    }
}

/// How much stale reads missed.
#[derive(Debug)]
struct Missed {
    versions: Histogram,
    nanoseconds: Histogram,
}

/// The newest version of a record that a client has written itself, and the newest that it has read: each one more than the version, and 0
/// for none.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    written: u32,
    read: u32,
}

/// A version as [`Own`] has it.
fn own(version: Option<u64>) -> u32 {
    version.map_or(0, |version| u32::try_from(version.saturating_add(1)).unwrap_or(u32::MAX))
}

/// How many records a client remembers at most: what it misses of others is not told. A few megabytes.
const REMEMBERED: usize = 1 << 17;

/// What one client has seen, whatever connections it had: its session. It begins anew with each epoch of the server, as versions may.
#[derive(Debug, Default)]
pub(crate) struct Session {
    records: HashMap<u64, Own>,
    epoch: Epoch,
    /// Whether a connection to a member was lost. One that has restarted shows less than it did, until it has caught up.
    is_in_doubt: bool,
}

impl Session {
    /// Notes a version that was acknowledged to the client.
    pub(crate) fn wrote(&mut self, number: u64, version: u64) {
        self.note(number, |of_record| of_record.written = of_record.written.max(own(Some(version))));
    }

    /// Notes that a connection to a member was lost: what it reads from now on proves nothing against a promise.
    pub(crate) fn doubt(&mut self) {
        self.is_in_doubt = true;
    }

    /// Notes a version that the client has read where it writes.
    pub(crate) fn read_at_leader(&mut self, number: u64, version: u64) {
        self.read(number, Some(version));
    }

    /// Notes a version that the client has found; none if it found no record. Returns what it knew before.
    fn read(&mut self, number: u64, found: Option<u64>) -> Own {
        self.note(number, |of_record| of_record.read = of_record.read.max(own(found)))
    }

    /// Changes what is known of a record, and returns what was known before.
    fn note(&mut self, number: u64, change: impl FnOnce(&mut Own)) -> Own {
        let is_full = self.records.len() >= REMEMBERED;
        match self.records.entry(number) {
            Entry::Occupied(mut of_record) => {
                let before = *of_record.get();
                change(of_record.get_mut());
                before
            }
            Entry::Vacant(room) if !is_full => {
                change(room.insert(Own::default()));
                Own::default()
            }
            Entry::Vacant(_) => Own::default(),
        }
    }

    /// The session in this epoch of the server.
    pub(crate) fn in_epoch(&mut self, epoch: Epoch) -> &mut Self {
        if self.epoch != epoch {
            self.records.clear();
            self.epoch = epoch;
        }
        self
    }
}

/// A read of one record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordRead {
    pub(crate) number: u64,
    /// The version that was found, with the tag of its fields if they are those of one writer; none if no record was found.
    pub(crate) found: Option<(u64, Option<u64>)>,
    /// The newest version that was acknowledged before it began, if everything of that is of the epoch that there is now.
    pub(crate) newest: Option<WrittenVersion>,
    pub(crate) begun: Instant,
    /// Whether the member led.
    pub(crate) leads: bool,
}

impl ReadTimes {
    pub(crate) fn new(policy: ReadPolicy) -> Self {
        Self {
            policy,
            origin: Instant::now(),
            acknowledged: (0..PARTS).map(|_| Mutex::default()).collect(),
            newest_read: Pieces::new(),
            reads: AtomicU64::new(0),
            at_leader: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            own_writes_missed: AtomicU64::new(0),
            went_back: AtomicU64::new(0),
            in_doubt: Default::default(),
            reads_in_doubt: AtomicU64::new(0),
            missed: Mutex::new(Missed { versions: histogram(), nanoseconds: histogram() }),
        }
    }

    pub(crate) fn policy(&self) -> ReadPolicy {
        self.policy
    }

    /// Notes that a version was acknowledged now. To be called before others are told that it is the newest.
    pub(crate) fn acknowledged(&self, number: u64, version: u64) {
        let now = self.since_origin(Instant::now()).max(1);
        locked(self.part(number)).entry(number).or_default().note(version, now);
    }

    /// Notes what a read at a member has found, which began when `newest` was known, and compares it with what the same client has
    /// written and read before.
    pub(crate) fn read(&self, session: &mut Session, read: RecordRead) {
        let RecordRead { number, found, newest, begun, leads } = read;
        let version = found.map(|(version, _)| version);
        let before = session.read(number, version);
        if let (Some((version, tag)), Some(entry)) = (found, self.newest_read.at(number)) {
            entry.fetch_max(WrittenVersion::new(version, tag.unwrap_or_default()).bits(), Relaxed);
        }
        // nothing is older than the first version
        let missed =
            newest.map(WrittenVersion::version).filter(|newest| version.is_none_or(|found| found < *newest));
        let is_so = [missed.is_some(), own(version) < before.written, own(version) < before.read];
        let kinds = [&self.stale, &self.own_writes_missed, &self.went_back].into_iter().zip(&self.in_doubt);
        for ((of, in_doubt), is_so) in kinds.zip(is_so) {
            count(of, is_so);
            count(in_doubt, is_so && session.is_in_doubt);
        }
        count(&self.reads_in_doubt, session.is_in_doubt && is_so.contains(&true));
        count(&self.reads, newest.is_some());
        count(&self.at_leader, newest.is_some() && leads);
        if let Some(newest) = missed {
            self.note_age(number, version.map_or(0, |version| version.saturating_add(1)), newest, begun);
        }
    }

    /// Records how far behind a read was that began then, and missed these versions.
    fn note_age(&self, number: u64, first_missed: u64, newest: u64, begun: Instant) {
        let begun = self.since_origin(begun);
        let since =
            locked(self.part(number)).get(&number).and_then(|times| times.earliest(first_missed, newest));
        let mut missed = locked(&self.missed);
        // they grow as they need to
        let _ = missed.versions.record(newest + 1 - first_missed);
        if let Some(since) = since {
            let _ = missed.nanoseconds.record(begun.saturating_sub(since).max(1));
        }
    }

    /// How many reads were stale, missed a write of their own client, and went back, by clients that had lost no connection to a member
    /// before; and how many more did one of that.
    pub(crate) fn proved(&self) -> ([u64; 3], u64) {
        let all = [&self.stale, &self.own_writes_missed, &self.went_back].map(|of| of.load(Relaxed));
        let in_doubt = [0, 1, 2].map(|kind| self.in_doubt[kind].load(Relaxed));
        ([0, 1, 2].map(|kind| all[kind].saturating_sub(in_doubt[kind])), self.reads_in_doubt.load(Relaxed))
    }

    /// The newest version of a record that was read, if any was.
    pub(crate) fn newest_read(&self, number: u64) -> Option<WrittenVersion> {
        let bits = self.newest_read.made(number)?.load(Relaxed);
        (bits > 0).then(|| WrittenVersion::of_bits(bits))
    }

    /// All of it, once every operation has ended.
    pub(crate) fn staleness(&self) -> Staleness {
        let missed = locked(&self.missed);
        let count = |of: &AtomicU64| of.load(Relaxed);
        Staleness {
            reads: count(&self.reads),
            at_leader: count(&self.at_leader),
            stale: count(&self.stale),
            versions: Spread::of(&missed.versions, 1.0),
            milliseconds: Spread::of(&missed.nanoseconds, 1e6),
            own_writes_missed: count(&self.own_writes_missed),
            went_back: count(&self.went_back),
        }
    }

    fn since_origin(&self, moment: Instant) -> u64 {
        u64::try_from(moment.duration_since(self.origin).as_nanos()).unwrap_or(u64::MAX)
    }

    fn part(&self, number: u64) -> &Mutex<HashMap<u64, Times>> {
        // there are as many parts as this, so that the index is one of them
        &self.acknowledged[usize::try_from(number % PARTS).unwrap_or_default()]
    }
}

fn count(of: &AtomicU64, is_so: bool) {
    if is_so {
        of.fetch_add(1, Relaxed);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn times() -> ReadTimes {
        ReadTimes::new(ReadPolicy::default())
    }

    fn read(number: u64, found: Option<u64>, newest: u64) -> RecordRead {
        let found = found.map(|version| (version, Some(7)));
        let newest = Some(WrittenVersion::new(newest, 7));
        RecordRead { number, found, newest, begun: Instant::now(), leads: false }
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_is_as_old_as_the_oldest_write_that_it_missed() {
        let (times, mut session) = (times(), Session::default());
        for version in 5..=8 {
            times.acknowledged(3, version);
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        times.read(&mut session, read(3, Some(8), 8));
        assert_eq!(times.staleness(), Staleness { reads: 1, ..Staleness::default() });
        // 6, 7 and 8 were missed, and 6 was acknowledged 30 ms ago
        times.read(&mut session, RecordRead { leads: true, ..read(3, Some(5), 8) });
        let staleness = times.staleness();
        assert_eq!((staleness.reads, staleness.at_leader, staleness.stale), (2, 1, 1));
        assert_eq!(staleness.versions.map(|spread| spread.max), Some(3.0));
        let milliseconds = staleness.milliseconds.unwrap();
        assert!(
            (milliseconds.p50 - 30.0).abs() < 0.1 && (milliseconds.max - 30.0).abs() < 0.1,
            "{milliseconds:?}"
        );
        assert_eq!(staleness.went_back, 1);
        // what was acknowledged in another epoch is not compared, but a client knows what it has seen
        times.read(&mut session, RecordRead { newest: None, ..read(3, Some(6), 8) });
        assert_eq!((times.staleness().reads, times.staleness().went_back), (2, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn an_insert_that_is_not_found_is_a_version_that_was_missed() {
        let (times, mut session) = (times(), Session::default());
        times.acknowledged(9, 0);
        session.wrote(9, 0);
        tokio::time::advance(Duration::from_millis(2)).await;
        times.read(&mut session, read(9, None, 0));
        let staleness = times.staleness();
        assert_eq!((staleness.stale, staleness.own_writes_missed, staleness.went_back), (1, 1, 0));
        assert_eq!(staleness.versions.map(|spread| spread.max), Some(1.0));
        times.read(&mut session, read(9, Some(0), 0));
        times.read(&mut session, read(9, None, 0));
        assert_eq!(times.staleness().went_back, 1);
    }

    #[test]
    fn each_client_has_a_session_of_its_own() {
        let (times, mut one, mut other) = (times(), Session::default(), Session::default());
        one.wrote(1, 4);
        times.read(&mut other, read(1, Some(3), 3));
        assert_eq!(times.staleness().own_writes_missed, 0);
        times.read(&mut one, read(1, Some(3), 3));
        assert_eq!(times.staleness().own_writes_missed, 1);
        other.read_at_leader(1, 5);
        times.read(&mut other, read(1, Some(4), 4));
        assert_eq!((times.staleness().went_back, times.staleness().own_writes_missed), (1, 1));
    }

    #[test]
    fn a_version_of_any_size_is_survived() {
        let times = times();
        for version in [7, u64::MAX, 3, 0, u64::from(u32::MAX)] {
            times.acknowledged(0, version);
        }
        let mut session = Session::default();
        times.read(&mut session, read(0, Some(u64::MAX), 7));
        times.read(&mut session, read(0, None, u64::from(u32::MAX)));
        assert_eq!(times.staleness().stale, 1);
    }

    proptest! {
        /// The earliest of the times of the versions asked for, in whatever order they were noted.
        #[test]
        fn the_earliest_is_found(
            noted in prop::collection::btree_map(0..40_u64, 1..1000_u64, 1..20),
            order in any::<prop::sample::Index>(),
            from in 0..42_u64,
            more in 0..42_u64,
        ) {
            let mut times = Times::default();
            let mut entries: Vec<_> = noted.iter().collect();
            let middle = order.index(entries.len());
            entries.rotate_left(middle);
            for (version, at) in entries {
                times.note(*version, *at);
            }
            let expected = noted.range(from..=from + more).map(|(_, at)| *at).min();
            prop_assert_eq!(times.earliest(from, from + more), expected);
        }
    }
}
