//! The clients' record of acknowledged and unanswered operations.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use acidtest_engine::Part;
use acidtest_model::ReadPolicy;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Layout, times::ReadTimes};
use crate::{
    ReusableData,
    epochs::{self, Boundary, Damage, Epoch, Epochs, Seen},
    moments::Moments,
    pieces::Pieces,
    shared_count::SharedCount,
    trial::{TrialLedger, WrittenLedger, read_ledger, written_ledger},
};

/// The first tag that clients write: above every record's number, which is the tag that the record is loaded with.
const FIRST_TAG: u64 = 1 << 40;

/// Tags that a client is given at a time.
const TAGS: u64 = 1 << 12;

/// Updates and modifies of one record, counted.
#[derive(Debug, Default)]
struct Account {
    ok: AtomicU32,
    unknown: AtomicU32,
    /// The newest [`WrittenVersion`] that was acknowledged.
    newest: AtomicU64,
}

/// A version that is known to have been written, with the epoch of the server that it was written in, and 24 bits that
/// mark its fields; 0 where the fields are not known. Ordered by epoch, and then by version: after a crash that lost
/// some, a store gives the same versions again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct WrittenVersion(u64);

impl WrittenVersion {
    pub(crate) fn new(version: u64, tag: u64) -> Self {
        Self::written_in(Epoch::FIRST, version, tag)
    }

    pub(crate) fn written_in(epoch: Epoch, version: u64, tag: u64) -> Self {
        let version = u32::try_from(version).unwrap_or(u32::MAX);
        Self(epoch.bits() | u64::from(version) << 24 | u64::from(mark(tag)))
    }

    /// The same from its [`bits`](Self::bits).
    pub(crate) fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The same as a number, which is higher for a newer one.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn epoch(self) -> Epoch {
        Epoch::of_bits(self.0)
    }

    pub(crate) fn version(self) -> u64 {
        self.0 >> 24 & u64::from(u32::MAX)
    }

    /// Whether a record of this version cannot have this tag, because the version was written with other fields.
    pub(crate) fn contradicts(self, version: u64, tag: u64) -> bool {
        let is_known = self != Self(self.epoch().bits() | self.version() << 24);
        is_known && self.version() == version && Self::written_in(self.epoch(), version, tag) != self
    }
}

/// 24 bits of a tag's hash, never 0.
fn mark(tag: u64) -> u32 {
    let mixed = (tag ^ tag >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    u32::try_from(mixed).unwrap_or_default().max(1)
}

/// How far an insert has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum InsertState {
    /// Never sent.
    Not = 0,
    /// Sent and not yet ended.
    Sent = 1,
    Acknowledged = 2,
    /// Proved to have had no effect.
    Undone = 3,
    /// Never answered.
    Unknown = 4,
}

impl InsertState {
    fn of(state: u8) -> Self {
        match state {
            1 => Self::Sent,
            2 => Self::Acknowledged,
            3 => Self::Undone,
            4 => Self::Unknown,
            _ => Self::Not,
        }
    }

    fn has_ended(self) -> bool {
        !matches!(self, Self::Not | Self::Sent)
    }
}

/// The ledger of one trial, shared by its clients: sixteen bytes for each record, in pieces that are allocated when a client
/// first comes to one of their records, and one for each insert. Nothing else in it grows.
///
/// Where several processes drive the clients, each has a ledger of its own. The numbers of inserted records are dealt
/// to them in turn, and so are tags; a process draws among the records that were loaded and those that it inserted.
#[derive(Debug)]
pub struct Ledger {
    layout: Layout,
    /// The clients that it is of.
    part: Part,
    epochs: Epochs,
    moments: Moments,
    /// Versions of the records taken over from an earlier trial; empty where records are as they were loaded.
    first: Arc<Vec<WrittenVersion>>,
    /// The first tag that has not been given to a client.
    tags: AtomicU64,
    /// By record number: those that are loaded, and then those that are inserted.
    accounts: Pieces<Account>,
    inserts: Pieces<AtomicU8>,
    /// Inserts that clients of this process have drawn.
    drawn: AtomicU64,
    /// How many of those, from the first one on, have all ended.
    ended: AtomicU64,
    /// The highest number of inserts that clients of all processes may have drawn, where that is known.
    drawn_elsewhere: AtomicU64,
    counts: Counts,
    /// How old reads are; none where only the leader answers them.
    reads: Option<ReadTimes>,
}

/// What a ledger holds, for the process that judges the trial.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    /// The first tag that no client has been given.
    tag: u64,
    /// How many inserts all processes may have drawn, as far as this one knows.
    drawn: u64,
    /// Records with anything to tell: number, acknowledged and unanswered updates, and newest version.
    accounts: Vec<(u64, u32, u32, u64)>,
    /// Inserts that were drawn: index and state.
    inserts: Vec<(u64, u8)>,
    acknowledged: u64,
    counts: [u64; 2],
    damage: [epochs::Counts; 4],
}

/// Counts that do not belong to a single record.
#[derive(Debug, Default)]
struct Counts {
    acknowledged: SharedCount,
    unknown: AtomicU64,
    torn: AtomicU64,
    mismatched: Damage,
    missing: Damage,
    stale: Damage,
    overwritten: Damage,
}

/// The ledger's figures of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) first: u64,
    pub(crate) ok: u64,
    pub(crate) unknown: u64,
    pub(crate) newest: WrittenVersion,
}

/// The counts that the ledger proves without the final state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProvedCounts {
    pub(crate) acknowledged: u64,
    pub(crate) unknown: u64,
    pub(crate) torn: u64,
    pub(crate) mismatched: epochs::Counts,
    pub(crate) missing: epochs::Counts,
    pub(crate) stale: epochs::Counts,
    pub(crate) overwritten: epochs::Counts,
}

impl Ledger {
    /// An empty ledger over the records that are loaded, or over those that an earlier trial left.
    #[must_use]
    pub fn new(layout: Layout, reusable: ReusableData) -> Self {
        Self::of(Part::WHOLE, layout, reusable)
    }

    /// The same for the clients of one process.
    pub(crate) fn of(part: Part, layout: Layout, reusable: ReusableData) -> Self {
        Self {
            part,
            epochs: Epochs::default(),
            moments: Moments::default(),
            drawn_elsewhere: AtomicU64::new(0),
            layout,
            first: reusable.records,
            tags: AtomicU64::new(reusable.tag.unwrap_or(FIRST_TAG) + TAGS * part.index as u64),
            accounts: Pieces::new(),
            inserts: Pieces::new(),
            drawn: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            counts: Counts::default(),
            reads: None,
        }
    }

    /// The same, for clients that read so.
    #[must_use]
    pub fn reading(self, policy: ReadPolicy) -> Self {
        Self { reads: (!policy.is_leader()).then(|| ReadTimes::new(policy)), ..self }
    }

    /// How old reads are; none where only the leader answers them.
    pub(crate) fn reads(&self) -> Option<&ReadTimes> {
        self.reads.as_ref()
    }

    /// Tags that no other client of the trial, nor any client of an earlier trial over the same records, writes.
    pub(crate) fn deal_tags(&self) -> Range<u64> {
        let first = self.tags.fetch_add(TAGS * self.part.of as u64, Relaxed);
        first..first + TAGS
    }

    /// The first tag that has not been given to a client.
    pub(crate) fn next_tag(&self) -> u64 {
        self.tags.load(Relaxed)
    }

    /// How many records may be drawn: those loaded, and those whose insert and every insert before it have ended.
    pub(crate) fn drawable(&self) -> u64 {
        self.layout.records + self.ended.load(Relaxed)
    }

    /// The number of a record, counted among those that this process may draw.
    pub(crate) fn number(&self, drawable: u64) -> u64 {
        match drawable.checked_sub(self.layout.records) {
            None => drawable,
            Some(own) => self.layout.records + self.index(own),
        }
    }

    /// The index among all inserts of the insert that is this one of the process's own.
    fn index(&self, own: u64) -> u64 {
        own * self.part.of as u64 + self.part.index as u64
    }

    /// How many records were loaded or may have been drawn to be inserted.
    pub(crate) fn known(&self) -> u64 {
        self.layout.records + self.inserts_drawn()
    }

    /// One more than the highest index of an insert that was drawn, or 0.
    fn inserts_drawn(&self) -> u64 {
        let own = self.drawn.load(Relaxed).checked_sub(1).map_or(0, |last| self.index(last) + 1);
        own.max(self.drawn_elsewhere.load(Relaxed))
    }

    /// Whether the record must be there.
    pub(crate) fn is_there(&self, number: u64) -> bool {
        number < self.layout.records || self.inserted(number) == InsertState::Acknowledged
    }

    /// How far a record's insert has come; a loaded record counts as acknowledged.
    pub(crate) fn inserted(&self, number: u64) -> InsertState {
        match number.checked_sub(self.layout.records) {
            None => InsertState::Acknowledged,
            Some(index) => InsertState::of(self.inserts.made(index).map_or(0, |state| state.load(SeqCst))),
        }
    }

    /// Draws the number of a record that is about to be inserted.
    pub(crate) fn draw_insert(&self) -> u64 {
        let index = self.index(self.drawn.fetch_add(1, Relaxed));
        if let Some(state) = self.inserts.at(index) {
            state.store(InsertState::Sent as u8, SeqCst);
        }
        self.layout.records + index
    }

    /// The epoch of the server at this moment.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epochs.now()
    }

    /// How long before the next crash the oldest of these records was inserted, at most; none if that is not known, as
    /// of records that were loaded.
    pub(crate) fn oldest_insert(&self, records: &[u64]) -> Option<Duration> {
        let index = |number: &u64| number.checked_sub(self.layout.records);
        let inserted: Option<Vec<u64>> = records.iter().map(index).collect();
        self.moments.oldest(inserted?.into_iter())
    }

    /// Records an acknowledged insert, with the tag that it wrote, and the epoch in which it did.
    pub(crate) fn was_inserted(&self, number: u64, tag: u64, epoch: Epoch) {
        self.reads.iter().for_each(|reads| reads.acknowledged(number, 0));
        if let Some(account) = self.accounts.at(number) {
            account.newest.fetch_max(WrittenVersion::written_in(epoch, 0, tag).0, Relaxed);
        }
        self.insert_ended(number, InsertState::Acknowledged);
    }

    pub(crate) fn insert_ended(&self, number: u64, how: InsertState) {
        let Some(index) = number.checked_sub(self.layout.records) else { return };
        if let Some(state) = self.inserts.at(index) {
            state.store(how as u8, SeqCst);
        }
        if how == InsertState::Unknown {
            self.doubtful();
        }
        // the client that ends the first open insert moves `ended` on, over all that have ended meanwhile
        loop {
            let edge = self.ended.load(SeqCst);
            let state = self.inserts.made(self.index(edge));
            let ended = state.is_some_and(|state| InsertState::of(state.load(SeqCst)).has_ended());
            if !ended || self.ended.compare_exchange(edge, edge + 1, SeqCst, SeqCst).is_err() {
                break;
            }
        }
    }

    /// The newest version of a record that is known to have been written, with the mark of its fields.
    pub(crate) fn newest(&self, number: u64) -> WrittenVersion {
        self.newest_of(number, self.accounts.at(number))
    }

    /// The same for a given account; before anything was acknowledged, the version loaded or taken over.
    fn newest_of(&self, number: u64, account: Option<&Account>) -> WrittenVersion {
        let newest = WrittenVersion(account.map_or(0, |account| account.newest.load(Relaxed)));
        newest.max(self.first(number))
    }

    /// The version that the trial began with; the default, which nothing contradicts, for a record that is added in
    /// it.
    fn first(&self, number: u64) -> WrittenVersion {
        if number >= self.layout.records {
            return WrittenVersion::default();
        }
        let taken_over = usize::try_from(number).ok().and_then(|number| self.first.get(number));
        taken_over.copied().unwrap_or_else(|| WrittenVersion::new(0, number))
    }

    /// Records an acknowledged update or modify: the tag that it wrote, the version if the store reported it, the
    /// newest version that was known before it was sent, and the epoch in which it was done.
    pub(crate) fn updated(
        &self,
        number: u64,
        tag: u64,
        version: Option<u64>,
        before: WrittenVersion,
        epoch: Epoch,
    ) {
        let Some(account) = self.accounts.at(number) else { return };
        account.ok.fetch_add(1, Relaxed);
        if let Some(version) = version {
            self.reads.iter().for_each(|reads| reads.acknowledged(number, version));
            account.newest.fetch_max(WrittenVersion::written_in(epoch, version, tag).0, Relaxed);
            if version <= before.version() {
                // a write of a leader that was cut off counts: it is there, or it is lost
                let is_within = before.epoch().lasts(epoch);
                self.counts.overwritten.add(if is_within { Seen::WithinEpoch } else { Seen::Across });
            }
        }
    }

    pub(crate) fn update_unknown(&self, number: u64) {
        self.doubtful();
        if let Some(account) = self.accounts.at(number) {
            account.unknown.fetch_add(1, Relaxed);
        }
    }

    /// Counts an acknowledged operation of the client with this index.
    pub(crate) fn acknowledged(&self, client: usize) {
        self.counts.acknowledged.add_one(client);
    }

    /// Counts an unanswered operation.
    pub(crate) fn doubtful(&self) {
        self.counts.unknown.fetch_add(1, Relaxed);
    }

    /// Counts records that were read with fields of several writers, or that are no records at all.
    pub(crate) fn torn(&self, records: u64) {
        if records > 0 {
            self.counts.torn.fetch_add(records, Relaxed);
        }
    }

    /// Counts a record that was read with other fields than those written with its version.
    pub(crate) fn mismatched(&self, seen: Seen) {
        self.counts.mismatched.add(seen);
    }

    /// Counts a record that had to be there and was not found.
    pub(crate) fn missing(&self, seen: Seen) {
        self.counts.missing.add(seen);
    }

    /// Counts a read that returned an older version than one acknowledged before it was sent.
    pub(crate) fn stale(&self, seen: Seen) {
        self.counts.stale.add(seen);
    }

    /// The ledger's figures of one record. To be called once every operation has ended.
    pub(crate) fn entry(&self, number: u64) -> Entry {
        let account = self.accounts.made(number);
        let count =
            |of: fn(&Account) -> &AtomicU32| account.map_or(0, |account| of(account).load(Relaxed).into());
        Entry {
            first: self.first(number).version(),
            ok: count(|account| &account.ok),
            unknown: count(|account| &account.unknown),
            newest: self.newest_of(number, account),
        }
    }

    pub(crate) fn proved(&self) -> ProvedCounts {
        let count = |of: &AtomicU64| of.load(Relaxed);
        let Counts { acknowledged, unknown, torn, mismatched, missing, stale, overwritten } = &self.counts;
        ProvedCounts {
            acknowledged: acknowledged.sum(),
            unknown: count(unknown),
            torn: count(torn),
            mismatched: mismatched.counts(),
            missing: missing.counts(),
            stale: stale.counts(),
            overwritten: overwritten.counts(),
        }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether any insert was drawn.
    pub(crate) fn has_inserts(&self) -> bool {
        self.inserts_drawn() > 0
    }
}

impl TrialLedger for Ledger {
    fn written(&self) -> Result<WrittenLedger, String> {
        let drawn = self.inserts_drawn();
        let states = (0..drawn).filter_map(|index| Some((index, self.inserts.made(index)?.load(Relaxed))));
        let accounts = (0..self.known()).filter_map(|number| {
            let Account { ok, unknown, newest } = self.accounts.made(number)?;
            Some((number, ok.load(Relaxed), unknown.load(Relaxed), newest.load(Relaxed)))
        });
        written_ledger(&Written {
            tag: self.next_tag(),
            drawn,
            accounts: accounts
                .filter(|(_, ok, unknown, newest)| (*ok, *unknown, *newest) != (0, 0, 0))
                .collect(),
            inserts: states.filter(|(_, state)| InsertState::of(*state) != InsertState::Not).collect(),
            acknowledged: self.counts.acknowledged.sum(),
            counts: self.counts.all().map(|count| count.load(Relaxed)),
            damage: self.counts.damage().map(Damage::counts),
        })
    }

    fn merge(&self, written: &RawValue, knows_boundaries: bool) -> Result<(), String> {
        let written: Written = read_ledger(written)?;
        self.tags.fetch_max(written.tag, Relaxed);
        self.drawn_elsewhere.fetch_max(written.drawn, Relaxed);
        for &(number, ok, unknown, newest) in &written.accounts {
            let account = self.accounts.at(number).ok_or_else(|| format!("there is no record {number}"))?;
            account.ok.fetch_add(ok, Relaxed);
            account.unknown.fetch_add(unknown, Relaxed);
            account.newest.fetch_max(newest, Relaxed);
        }
        for &(index, state) in &written.inserts {
            let entry = self.inserts.at(index).ok_or_else(|| format!("there is no insert {index}"))?;
            entry.store(state, SeqCst);
        }
        self.counts.acknowledged.add(written.acknowledged);
        for (mine, theirs) in self.counts.all().into_iter().zip(written.counts) {
            mine.fetch_add(theirs, Relaxed);
        }
        for (mine, theirs) in self.counts.damage().into_iter().zip(written.damage) {
            mine.merge(theirs, knows_boundaries);
        }
        Ok(())
    }

    /// Notes how many records were to be inserted by now.
    fn note_moment(&self) {
        self.moments.note(Instant::now(), self.drawn.load(SeqCst));
    }

    fn note_boundary(&self, boundary: Boundary) {
        self.moments.note_boundary(Instant::now(), boundary, self.drawn.load(SeqCst));
        self.epochs.note(boundary);
    }
}

impl Counts {
    fn all(&self) -> [&AtomicU64; 2] {
        [&self.unknown, &self.torn]
    }

    fn damage(&self) -> [&Damage; 4] {
        [&self.mismatched, &self.missing, &self.stale, &self.overwritten]
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    /// Fields that do not belong to their version go unnoticed once in 2^24 times, not once in a few hundred.
    #[test]
    fn tags_that_follow_each_other_have_marks_of_their_own() {
        let marks: std::collections::BTreeSet<u32> =
            (FIRST_TAG..).take(100_000).chain(0..100_000).map(mark).collect();
        assert!(marks.len() > 198_000, "{}", marks.len());
    }

    const LAYOUT: Layout = Layout { records: 6, fields: 2, field_bytes: 20, scans: false };

    const ENDED: [InsertState; 3] = [InsertState::Acknowledged, InsertState::Undone, InsertState::Unknown];

    proptest! {
        /// In whatever order inserts end, a record is drawn only once its insert and all before it have ended.
        #[test]
        fn only_what_has_ended_is_drawn(
            order in Just((0..40_u64).collect::<Vec<_>>()).prop_shuffle(),
            how in prop::collection::vec(prop::sample::select(&ENDED[..]), 40),
        ) {
            let ledger = Ledger::new(LAYOUT, ReusableData::default());
            let first = ledger.drawable();
            for number in first..first + 40 {
                prop_assert_eq!(ledger.draw_insert(), number);
            }
            let mut ended = [false; 40];
            for (index, how) in order.into_iter().zip(how) {
                ledger.insert_ended(first + index, how);
                ended[usize::try_from(index).unwrap()] = true;
                let edge = ended.iter().take_while(|ended| **ended).count() as u64;
                prop_assert_eq!(ledger.drawable(), first + edge);
                prop_assert_eq!(ledger.is_there(first + index), how == InsertState::Acknowledged);
            }
            prop_assert_eq!(ledger.drawable(), ledger.known());
        }
    }

    proptest! {
        /// Records that two processes insert have different numbers and tags, each process draws only among those that
        /// it knows, and their ledgers say together what each did.
        #[test]
        fn ledgers_of_several_processes_say_together_what_each_did(
            events in prop::collection::vec((0..2_usize, 0..4_u8, 0..LAYOUT.records), 0..100),
        ) {
            let whole = Ledger::new(LAYOUT, ReusableData::default());
            let parts = Part::deal(4, 2, 2);
            let apart: Vec<Ledger> =
                parts.iter().map(|part| Ledger::of(*part, LAYOUT, ReusableData::default())).collect();
            let mut tags = std::collections::BTreeSet::new();
            let (mut updates, mut inserts) = ([0; 6], std::collections::BTreeMap::new());
            for &(process, event, number) in &events {
                let ledger = &apart[process];
                let range = ledger.deal_tags();
                for tag in [range.start, range.end - 1] {
                    prop_assert!(tags.insert(tag), "tag {} was dealt twice", tag);
                }
                match event {
                    0 => {
                        updates[usize::try_from(number).unwrap()] += 1;
                        ledger.updated(number, range.start, None, ledger.newest(number), ledger.epoch());
                        ledger.acknowledged(process);
                    }
                    1 => ledger.update_unknown(number),
                    event => {
                        let inserted = ledger.draw_insert();
                        prop_assert!(inserts.insert(inserted, event).is_none(), "{} was dealt twice", inserted);
                        let how = if event == 2 { InsertState::Acknowledged } else { InsertState::Undone };
                        ledger.insert_ended(inserted, how);
                    }
                }
                for index in 0..ledger.drawable() {
                    let drawn = ledger.number(index);
                    let own = ledger.inserted(drawn) != InsertState::Not;
                    prop_assert!(own, "{} is not known in its process", drawn);
                }
            }
            for ledger in &apart {
                whole.merge(&ledger.written().unwrap(), true).unwrap();
            }
            for (number, updates) in (0..).zip(updates) {
                prop_assert_eq!(whole.entry(number).ok, updates);
            }
            for number in LAYOUT.records..whole.known() {
                let state = match inserts.get(&number) {
                    None => InsertState::Not,
                    Some(2) => InsertState::Acknowledged,
                    Some(_) => InsertState::Undone,
                };
                prop_assert_eq!(whole.inserted(number), state, "record {}", number);
            }
            prop_assert!(inserts.keys().all(|number| *number < whole.known()));
            prop_assert!(tags.iter().all(|tag| *tag < whole.next_tag()));
            prop_assert_eq!(whole.proved().acknowledged, apart.iter().map(|ledger| ledger.proved().acknowledged).sum::<u64>());
        }
    }

    /// An update that another one of the same epoch of the server overwrites is the lock's fault; of one from before a
    /// crash nobody knows whether it was lost.
    #[test]
    fn a_crash_explains_what_is_older_than_before_it() {
        let ledger = Ledger::new(LAYOUT, ReusableData::default());
        let overwritten = |version, tag, before: WrittenVersion, begun: Epoch| {
            ledger.updated(1, tag, Some(version), before, begun.until(ledger.epoch()));
            let [all, within, _] = ledger.proved().overwritten;
            [all, within]
        };
        let (loaded, first) = (ledger.newest(1), ledger.epoch());
        assert_eq!(overwritten(1, 51, loaded, first), [0, 0]);
        let once = ledger.newest(1);
        assert_eq!(overwritten(1, 52, once, first), [1, 1]);
        ledger.note_boundary(Boundary::During);
        assert_eq!(overwritten(1, 53, once, first), [2, 1], "it may have been answered by the next epoch");
        assert_eq!(overwritten(1, 54, ledger.newest(1), ledger.epoch()), [3, 1], "or both by different ones");
        ledger.note_boundary(Boundary::After);
        let second = ledger.epoch();
        assert_eq!(overwritten(1, 55, ledger.newest(1), second), [4, 1], "what it overwrites may be lost");
        let again = ledger.newest(1);
        assert_eq!((again.epoch(), again.version()), (second, 1));
        assert!(again.contradicts(1, 54) && !again.contradicts(1, 55));
        assert_eq!(overwritten(1, 56, again, second), [5, 2]);
        // what a process saw that was not told in time is no proof
        for (knows_boundaries, counts) in [(true, [5, 2, 0]), (false, [5, 0, 5])] {
            let whole = Ledger::new(LAYOUT, ReusableData::default());
            whole.merge(&ledger.written().unwrap(), knows_boundaries).unwrap();
            assert_eq!(whole.proved().overwritten, counts);
        }
    }

    /// `ended` moves on over inserts that end at the same time in several threads, and never too far, nor back.
    /// Each thread has an insert open at all times, so that one step too many is noticed whenever it was made.
    #[test]
    fn the_edge_of_inserts_is_never_ahead_nor_left_behind() {
        let ledger = Ledger::new(LAYOUT, ReusableData::default());
        let insert = || {
            let (mut open, mut last) = (ledger.draw_insert(), 0);
            for _ in 0..200_000 {
                let next = ledger.draw_insert();
                let edge = ledger.drawable();
                assert!((last..=open).contains(&edge), "{edge} comes after {last}, and {open} has not ended");
                assert!(ledger.is_there(edge - 1));
                last = edge;
                ledger.insert_ended(open, InsertState::Acknowledged);
                open = next;
            }
            ledger.insert_ended(open, InsertState::Acknowledged);
        };
        thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(insert)));
        assert_eq!(ledger.drawable(), ledger.known());
    }
}
