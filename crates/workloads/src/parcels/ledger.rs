//! The clients' record of acknowledged and unanswered inserts, and of what their reads have shown.

use std::{
    sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed, Ordering::SeqCst},
    time::{Duration, Instant},
};

use acidtest_engine::Part;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    scan::{MOST, Scan, ScanNumber},
    stream::{Ids, Loading, Stream},
};
use crate::{
    epochs::{self, Boundary, Damage, Epoch, Epochs, Seen},
    moments::Moments,
    pieces::Pieces,
    shared_count::SharedCount,
    trial::{TrialLedger, WrittenLedger, read_ledger, written_ledger},
};

/// How far the insert of a scan has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InsertState {
    /// Never sent.
    Not,
    /// Sent, and not ended; or never answered.
    Unknown,
    /// Proved to have had no effect.
    Undone,
    /// Refused, because the parcel is said to have seven scans.
    Refused,
    /// Acknowledged, with its id and count; the count is 0 if it is none from 1 to 7.
    Inserted { id: u64, count: u8 },
}

/// The bits of all counts.
const ALL_COUNTS: u8 = (1 << MOST) - 1;

/// The bit of a count, in a byte that has one for each; 0 if it is none from 1 to 7.
pub(super) fn count_bit(count: u64) -> u8 {
    if (1..=u64::from(MOST)).contains(&count) { 1 << (count - 1) } else { 0 }
}

impl InsertState {
    /// The highest id that is kept; a store that gives higher ones is not to be had.
    const MOST_ID: u64 = u64::MAX >> 4;
    const INSERTED: u64 = 8;

    /// As a number: the id above four bits that say the rest.
    fn bits(self) -> u64 {
        match self {
            Self::Not => 0,
            Self::Unknown => 1,
            Self::Undone => 2,
            Self::Refused => 3,
            Self::Inserted { id, count } => {
                let count = if count > MOST { 0 } else { count };
                id.min(Self::MOST_ID) << 4 | (Self::INSERTED + u64::from(count))
            }
        }
    }

    fn of(bits: u64) -> Self {
        match bits & 15 {
            0 => Self::Not,
            2 => Self::Undone,
            3 => Self::Refused,
            inserted @ Self::INSERTED.. => Self::Inserted {
                id: bits >> 4,
                count: u8::try_from(inserted - Self::INSERTED).unwrap_or_default(),
            },
            _ => Self::Unknown,
        }
    }
}

/// The ledger of one trial, shared by its clients: eight bytes for each scan that was sent, and one for each parcel.
/// Nothing else in it grows.
///
/// Where several processes drive the clients, each has a ledger of its own, and the numbers of scans are dealt to them in
/// turn. A process reads what was loaded and what it has inserted itself.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) loading: Loading,
    part: Part,
    /// Whether scans are sent in the order in which they are drawn.
    in_order: bool,
    epochs: Epochs,
    moments: Moments,
    regular: ScanSequence,
    eighths: ScanSequence,
    /// The counts of each parcel that were acknowledged, a bit each, from the first parcel on whose scans were not all
    /// loaded.
    taken: Pieces<AtomicU8>,
    counts: Counts,
}

/// Scans of one sort, whose numbers are dealt in order.
#[derive(Debug)]
struct ScanSequence {
    part: Part,
    /// How each insert has ended, by index.
    states: Pieces<AtomicU64>,
    /// How many this process has drawn.
    drawn: AtomicU64,
    /// One more than the highest index that other processes have drawn.
    elsewhere: AtomicU64,
}

impl ScanSequence {
    fn new(part: Part) -> Self {
        Self { part, states: Pieces::new(), drawn: AtomicU64::new(0), elsewhere: AtomicU64::new(0) }
    }

    /// The index among all that is this one of the process's own.
    fn index(&self, own: u64) -> u64 {
        own * self.part.of as u64 + self.part.index as u64
    }

    /// Draws the next index.
    fn draw(&self) -> u64 {
        self.index(self.drawn.fetch_add(1, Relaxed))
    }

    fn set(&self, index: u64, state: InsertState) {
        if let Some(kept) = self.states.at(index) {
            kept.store(state.bits(), SeqCst);
        }
    }

    fn get(&self, index: u64) -> InsertState {
        self.states.made(index).map_or(InsertState::Not, |state| InsertState::of(state.load(SeqCst)))
    }

    /// One more than the highest index that was drawn, or 0.
    fn known(&self) -> u64 {
        let own = self.drawn.load(Relaxed).checked_sub(1).map_or(0, |last| self.index(last) + 1);
        own.max(self.elsewhere.load(Relaxed))
    }

    fn written(&self) -> Vec<(u64, u64)> {
        let own = (0..self.drawn.load(Relaxed)).map(|own| self.index(own));
        own.map(|index| (index, self.get(index).bits())).collect()
    }

    fn merge(&self, written: &[(u64, u64)]) {
        for (index, bits) in written {
            self.set(*index, InsertState::of(*bits));
            self.elsewhere.fetch_max(index.saturating_add(1), Relaxed);
        }
    }
}

/// Counts that do not belong to a single scan.
#[derive(Debug, Default)]
struct Counts {
    acknowledged: SharedCount,
    unknown: AtomicU64,
    missing: Damage,
    misread: Damage,
    replaced: Damage,
    early: Damage,
}

/// What a ledger holds, for the process that judges the trial.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    regular: Vec<(u64, u64)>,
    eighths: Vec<(u64, u64)>,
    acknowledged: u64,
    unknown: u64,
    damage: [epochs::Counts; 4],
}

/// The counts that the ledger proves without the final state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProvedCounts {
    /// Acknowledged operations of every kind.
    pub(super) acknowledged: u64,
    /// Unanswered operations of every kind.
    pub(super) unknown: u64,
    pub(super) missing: epochs::Counts,
    pub(super) misread: epochs::Counts,
    pub(super) replaced: epochs::Counts,
    pub(super) early: epochs::Counts,
}

impl Ledger {
    /// An empty ledger of the clients of one process, over the scans that are loaded. `in_order`: whether scans are sent
    /// in the order in which they are drawn.
    pub(super) fn of(part: Part, loading: Loading, in_order: bool) -> Self {
        Self {
            loading,
            part,
            in_order,
            epochs: Epochs::default(),
            moments: Moments::default(),
            regular: ScanSequence::new(part),
            eighths: ScanSequence::new(part),
            taken: Pieces::new(),
            counts: Counts::default(),
        }
    }

    /// The stream that scans are drawn from.
    pub(super) fn stream(&self) -> &Stream {
        &self.loading.stream
    }

    /// The next scan of the stream.
    pub(super) fn draw(&self) -> Scan {
        self.stream().scan(ScanNumber::Regular(self.loading.scans + self.regular.draw()))
    }

    /// The eighth scan of the next parcel that has had one; none if all that have had seven have had it.
    pub(super) fn draw_eighth(&self) -> Option<Scan> {
        let complete = self.stream().complete(self.loading.scans + self.regular.known());
        let next = self.eighths.index(self.eighths.drawn.load(Relaxed));
        // another client may be first: then it is the parcel after it, which is complete as well, or nearly so
        (next < complete).then(|| self.stream().scan(ScanNumber::Eighth(self.eighths.draw())))
    }

    /// How many scans a client may choose from to read one.
    pub(super) fn readable(&self) -> u64 {
        self.loading.scans + self.regular.drawn.load(Relaxed)
    }

    /// The number of a scan, counted among those that may be read.
    pub(super) fn number(&self, readable: u64) -> u64 {
        match readable.checked_sub(self.loading.scans) {
            None => readable,
            Some(own) => self.loading.scans + self.regular.index(own),
        }
    }

    /// How far the insert of a scan has come that was not loaded.
    pub(super) fn state(&self, number: ScanNumber) -> InsertState {
        match number {
            ScanNumber::Eighth(parcel) => self.eighths.get(parcel),
            ScanNumber::Regular(number) => match number.checked_sub(self.loading.scans) {
                None => InsertState::Not,
                Some(index) => self.regular.get(index),
            },
        }
    }

    /// Numbers of all scans that were loaded or drawn.
    pub(super) fn known(&self) -> impl Iterator<Item = ScanNumber> + '_ {
        let regular = (0..self.loading.scans + self.regular.known()).map(ScanNumber::Regular);
        regular.chain((0..self.eighths.known()).map(ScanNumber::Eighth))
    }

    /// One more than the highest number of a scan of the stream, and of an eighth, that was loaded or drawn.
    pub(super) fn ends(&self) -> [u64; 2] {
        [self.loading.scans + self.regular.known(), self.eighths.known()]
    }

    /// The counts of a parcel that were acknowledged or loaded, a [bit](count_bit) each.
    pub(super) fn taken(&self, parcel: u64) -> u8 {
        let Some(place) = self.place(parcel) else { return ALL_COUNTS };
        self.taken.made(place).map_or(0, |taken| taken.load(SeqCst))
    }

    /// A parcel's place among those whose scans were not all loaded.
    fn place(&self, parcel: u64) -> Option<u64> {
        parcel.checked_sub(self.stream().complete(self.loading.scans))
    }

    fn took(&self, parcel: u64, count: u8) {
        if let Some(taken) = self.place(parcel).and_then(|place| self.taken.at(place)) {
            taken.fetch_or(count_bit(count.into()), SeqCst);
        }
    }

    /// Notes the scans of the last block that were loaded.
    pub(super) fn note_loaded(&self) {
        let stream = self.stream();
        let whole = self.loading.scans / stream.block() * stream.block();
        for loaded in (whole..self.loading.scans).map(|number| stream.loaded(number)) {
            self.took(loaded.scan.parcel(), loaded.count);
        }
    }

    /// Notes that a scan is about to be sent.
    pub(super) fn sends(&self, scan: &Scan) {
        self.ended(scan, InsertState::Unknown);
    }

    /// Records how the insert of a scan has ended.
    pub(super) fn ended(&self, scan: &Scan, how: InsertState) {
        match scan.number() {
            ScanNumber::Eighth(parcel) => self.eighths.set(parcel, how),
            ScanNumber::Regular(number) => {
                if let Some(index) = number.checked_sub(self.loading.scans) {
                    self.regular.set(index, how);
                }
            }
        }
        if let InsertState::Inserted { count, .. } = how {
            self.took(scan.parcel(), count);
        }
    }

    /// Counts an acknowledged operation of the client with this index.
    pub(super) fn acknowledged(&self, client: usize) {
        self.counts.acknowledged.add_one(client);
    }

    /// Counts an unanswered operation.
    pub(super) fn doubtful(&self) {
        self.counts.unknown.fetch_add(1, Relaxed);
    }

    /// Counts reads that did not find what must be there.
    pub(super) fn missing(&self, seen: Seen) {
        self.counts.missing.add(seen);
    }

    /// Counts reads that found what is not so.
    pub(super) fn misread(&self, seen: Seen) {
        self.counts.misread.add(seen);
    }

    /// Counts reads that found another scan in the place of the one that was acknowledged with its id and count.
    pub(super) fn replaced(&self, seen: Seen) {
        self.counts.replaced.add(seen);
    }

    /// Notes that a scan was refused. That was too early if its parcel could not have seven others yet: fewer of them have
    /// been sent by now, and are not proved to have had no effect. Of several processes none knows what all have sent.
    pub(super) fn refused(&self, scan: &Scan, begun: Epoch) {
        if self.part.of > 1 {
            return;
        }
        let may_be_there = |number: &ScanNumber| {
            let is_loaded = matches!(number, ScanNumber::Regular(number) if *number < self.loading.scans);
            let state = self.state(*number);
            *number != scan.number()
                && (is_loaded || matches!(state, InsertState::Unknown | InsertState::Inserted { .. }))
        };
        let regular = self.stream().of_parcel(scan.parcel()).map(ScanNumber::Regular);
        let others = regular.chain([ScanNumber::Eighth(scan.parcel())]).filter(may_be_there).count();
        if others < usize::from(MOST) {
            self.counts.early.add(self.seen(begun));
        }
    }

    /// Whether a row may be of this scan, with this id and count, by what is known by now.
    pub(super) fn may_be(&self, number: ScanNumber, id: u64, count: u64, ids: Ids) -> bool {
        if let ScanNumber::Regular(place) = number
            && place < self.loading.scans
        {
            let made = |count| ids.loaded(place, self.stream().parcel(number), count);
            return u8::try_from(count).is_ok_and(|count| made(count) == id);
        }
        match self.state(number) {
            InsertState::Inserted { count: 0, .. } | InsertState::Unknown => true,
            InsertState::Inserted { id: given, count: of } => (given, u64::from(of)) == (id, count),
            // another process may have inserted it
            InsertState::Not => self.part.of > 1,
            InsertState::Undone | InsertState::Refused => false,
        }
    }

    /// The epoch of the server at this moment.
    pub(super) fn epoch(&self) -> Epoch {
        self.epochs.now()
    }

    /// When that was seen which an operation has found that began in this epoch and has ended. All that was acknowledged until now was
    /// so within one epoch only if that is the first, and goes on.
    pub(super) fn seen(&self, begun: Epoch) -> Seen {
        let now = self.epoch();
        Seen::of(begun, now, now == Epoch::FIRST)
    }

    /// How long before the next crash the oldest of these scans was inserted, at most; none if that is not known, as of
    /// scans that were loaded, or were sent in another order or by several processes.
    pub(super) fn oldest(&self, lost: &[ScanNumber]) -> Option<Duration> {
        let index = |number: &ScanNumber| match number {
            ScanNumber::Regular(number) if self.part.of == 1 && self.in_order => {
                number.checked_sub(self.loading.scans)
            }
            _ => None,
        };
        let lost: Option<Vec<u64>> = lost.iter().map(index).collect();
        self.moments.oldest(lost?.into_iter())
    }

    pub(super) fn proved(&self) -> ProvedCounts {
        let Counts { acknowledged, unknown, missing, misread, replaced, early } = &self.counts;
        ProvedCounts {
            acknowledged: acknowledged.sum(),
            unknown: unknown.load(Relaxed),
            missing: missing.counts(),
            misread: misread.counts(),
            replaced: replaced.counts(),
            early: early.counts(),
        }
    }
}

impl TrialLedger for Ledger {
    fn written(&self) -> Result<WrittenLedger, String> {
        let Counts { acknowledged, unknown, missing, misread, replaced, early } = &self.counts;
        written_ledger(&Written {
            regular: self.regular.written(),
            eighths: self.eighths.written(),
            acknowledged: acknowledged.sum(),
            unknown: unknown.load(Relaxed),
            damage: [missing, misread, replaced, early].map(Damage::counts),
        })
    }

    fn merge(&self, written: &RawValue, knows_boundaries: bool) -> Result<(), String> {
        let written: Written = read_ledger(written)?;
        let most = 1 << 40;
        if written.regular.iter().chain(&written.eighths).any(|(index, _)| *index >= most) {
            return Err("it has scans that nobody drew".to_owned());
        }
        self.regular.merge(&written.regular);
        self.eighths.merge(&written.eighths);
        let Counts { acknowledged, unknown, missing, misread, replaced, early } = &self.counts;
        acknowledged.add(written.acknowledged);
        unknown.fetch_add(written.unknown, Relaxed);
        for (damage, more) in [missing, misread, replaced, early].into_iter().zip(written.damage) {
            damage.merge(more, knows_boundaries);
        }
        Ok(())
    }

    /// Notes how many scans were to be inserted by now.
    fn note_moment(&self) {
        self.moments.note(Instant::now(), self.regular.drawn.load(SeqCst));
    }

    fn note_boundary(&self, boundary: Boundary) {
        self.moments.note_boundary(Instant::now(), boundary, self.regular.drawn.load(SeqCst));
        self.epochs.note(boundary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parcels::stream::LoadMethod;

    fn ledger(part: Part, scans: u64) -> Ledger {
        let ledger =
            Ledger::of(part, Loading { stream: Stream::new(4, 1), scans, method: LoadMethod::Bulk }, true);
        ledger.note_loaded();
        ledger
    }

    #[test]
    fn a_state_reads_back() {
        for state in [
            InsertState::Not,
            InsertState::Unknown,
            InsertState::Undone,
            InsertState::Refused,
            InsertState::Inserted { id: 0, count: 1 },
            InsertState::Inserted { id: InsertState::MOST_ID, count: 7 },
        ] {
            assert_eq!(InsertState::of(state.bits()), state);
        }
    }

    /// What two processes have drawn is theirs alone, and all of it is known to the one that judges.
    #[test]
    fn processes_share_a_stream() {
        let parts = [Part { index: 0, of: 2, threads: 2 }, Part { index: 1, of: 2, threads: 2 }];
        let [one, other] = parts.map(|part| ledger(part, 10));
        let judge = ledger(Part::WHOLE, 10);
        let mut numbers = Vec::new();
        for ledger in [&one, &other] {
            for _ in 0..30 {
                let scan = ledger.draw();
                ledger.ended(&scan, InsertState::Inserted { id: 3, count: 1 });
                ledger.acknowledged(0);
                numbers.push(scan.number());
            }
            assert!(ledger.draw_eighth().is_some());
            judge.merge(&ledger.written().unwrap(), true).unwrap();
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (10..70).map(ScanNumber::Regular).collect::<Vec<_>>());
        assert_eq!((judge.ends(), judge.proved().acknowledged), ([70, 2], 60));
        assert!(
            numbers.iter().all(|number| judge.state(*number) == InsertState::Inserted { id: 3, count: 1 })
        );
        assert!(one.number(one.readable() - 1) < 70 && one.number(3) == 3);
    }

    /// There is an eighth scan only of parcels that have had seven, one of each.
    #[test]
    fn an_eighth_comes_after_seven() {
        let ledger = ledger(Part::WHOLE, 27);
        assert_eq!(ledger.draw_eighth(), None);
        assert_eq!((0..4).map(|parcel| ledger.taken(parcel).count_ones()).sum::<u32>(), 27);
        ledger.draw();
        let eighths: Vec<_> = std::iter::from_fn(|| ledger.draw_eighth()).map(|scan| scan.parcel()).collect();
        assert_eq!(eighths, [0, 1, 2, 3]);
    }
}
