//! The stream of scans: in which order parcels are scanned, and which of it is loaded before a trial.

use super::scan::{MOST, Scan, ScanNumber};

/// Rounds of the permutation that shuffles a block.
const ROUNDS: u64 = 4;

/// The stream of scans of one trial. So many parcels at a time are on their way: each gets its seven scans, in an order
/// that is shuffled over all of them; then come as many others. The parcel of a scan follows from its number, so that
/// nothing has to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Parcels on their way at a time.
    parcels: u64,
    seed: u64,
}

impl Stream {
    pub(super) fn new(parcels: u64, seed: u64) -> Self {
        Self { parcels: parcels.max(1), seed }
    }

    /// Scans of the parcels that are on their way at a time.
    pub(super) fn block(&self) -> u64 {
        self.parcels * u64::from(MOST)
    }

    /// Parcels that have had all their scans once so many scans have been drawn.
    pub(super) fn complete(&self, scans: u64) -> u64 {
        scans / self.block() * self.parcels
    }

    pub(super) fn parcel(&self, number: ScanNumber) -> u64 {
        match number {
            ScanNumber::Eighth(parcel) => parcel,
            ScanNumber::Regular(number) => {
                let (block, place) = (number / self.block(), number % self.block());
                block * self.parcels + self.shuffled(block, place) / u64::from(MOST)
            }
        }
    }

    #[must_use]
    pub fn scan(&self, number: ScanNumber) -> Scan {
        Scan::of(number, self.parcel(number))
    }

    /// The `SCAN_COUNT` of a scan if its parcel's scans are inserted in the order of the stream, from 1.
    fn count(&self, number: u64) -> u8 {
        let parcel = self.parcel(ScanNumber::Regular(number));
        u8::try_from(self.of_parcel(parcel).filter(|other| *other <= number).count()).unwrap_or(MOST)
    }

    /// The numbers of a parcel's scans in the stream, in no order.
    pub(super) fn of_parcel(&self, parcel: u64) -> impl Iterator<Item = u64> + '_ {
        let (block, place) = (parcel / self.parcels, parcel % self.parcels);
        let first = place * u64::from(MOST);
        let places = (first..first + u64::from(MOST)).map(move |shuffled| self.unshuffled(block, shuffled));
        places.map(move |place| block * self.block() + place)
    }

    /// A scan of the stream as it is loaded.
    #[must_use]
    pub fn loaded(&self, number: u64) -> LoadedScan {
        let scan = self.scan(ScanNumber::Regular(number));
        LoadedScan { scan, id: number + 1, count: self.count(number) }
    }

    /// The place within its block to which a place is moved: a permutation of the block.
    fn shuffled(&self, block: u64, place: u64) -> u64 {
        let square = FeistelDomain::around(self.block());
        let mut place = place;
        loop {
            let mut halves = square.halves(place);
            for round in 0..ROUNDS {
                halves = (halves.1, halves.0 ^ self.noise(block, round, halves.1) & square.mask());
            }
            place = square.place(halves);
            if place < self.block() {
                return place;
            }
        }
    }

    /// The place that is moved to this one.
    fn unshuffled(&self, block: u64, place: u64) -> u64 {
        let square = FeistelDomain::around(self.block());
        let mut place = place;
        loop {
            let mut halves = square.halves(place);
            for round in (0..ROUNDS).rev() {
                halves = (halves.1 ^ self.noise(block, round, halves.0) & square.mask(), halves.0);
            }
            place = square.place(halves);
            if place < self.block() {
                return place;
            }
        }
    }

    fn noise(&self, block: u64, round: u64, half: u64) -> u64 {
        let key = self.seed ^ (block * ROUNDS + round).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (half ^ key).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ mixed >> 29) >> 16
    }
}

/// The places of a Feistel network: a square that is a little larger than a block. Whoever leaves the block goes on until
/// back in it.
#[derive(Clone, Copy)]
struct FeistelDomain {
    /// Bits of half a place.
    half: u32,
}

impl FeistelDomain {
    fn around(block: u64) -> Self {
        Self { half: (u64::BITS - (block - 1).leading_zeros()).div_ceil(2).max(1) }
    }

    fn mask(self) -> u64 {
        (1 << self.half) - 1
    }

    fn halves(self, place: u64) -> (u64, u64) {
        (place >> self.half, place & self.mask())
    }

    fn place(self, (left, right): (u64, u64)) -> u64 {
        left << self.half | right
    }
}

/// How a trial's first scans are put into the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadMethod {
    /// By the store's own way to load many rows.
    #[default]
    Bulk,
    /// Row by row, each by itself, on one connection.
    Single,
}

/// The scans that are there when a trial begins: the first ones of its stream.
#[derive(Clone, Copy, Debug)]
pub struct Loading {
    pub stream: Stream,
    /// How many they are.
    pub scans: u64,
    /// How they are put into the store.
    pub method: LoadMethod,
}

/// A scan that is loaded, with what the store would have given it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedScan {
    pub scan: Scan,
    /// Its `SCAN_ID`: from 1 on in the order of loading.
    pub id: u64,
    /// Its `SCAN_COUNT`.
    pub count: u8,
}

impl Loading {
    /// The scans in the order of their ids.
    #[must_use]
    pub fn rows(&self) -> LoadedScans {
        LoadedScans { stream: self.stream, next: 0, end: self.scans, counts: Vec::new() }
    }

    /// The same in batches of at most so many.
    #[must_use]
    pub fn batches(&self, most: usize) -> Batches {
        Batches { rows: self.rows(), most: most.max(1) }
    }

    /// The id that the store gives next, if it goes on where loading has ended.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        self.scans + 1
    }
}

/// What gives a scan its `SCAN_ID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// A counter of the store's; loaded scans have ids from 1 on.
    Counted,
    /// They are made of the parcel's number and the `SCAN_COUNT`, by a store without such a counter.
    Made,
}

impl Ids {
    /// The id of a scan that is made of its parcel's number and its `SCAN_COUNT`, 1 to 7.
    #[must_use]
    pub fn made(parcel: u64, count: u8) -> u64 {
        parcel << 3 | u64::from(count)
    }

    /// The id of a scan that was loaded.
    #[must_use]
    pub fn of(self, loaded: &LoadedScan) -> u64 {
        self.loaded(loaded.id - 1, loaded.scan.parcel(), loaded.count)
    }

    /// The same by its number in the stream, its parcel and its count.
    pub(super) fn loaded(self, number: u64, parcel: u64, count: u8) -> u64 {
        match self {
            Self::Counted => number + 1,
            Self::Made => Self::made(parcel, count),
        }
    }
}

/// See [`Loading::rows`].
#[derive(Clone, Debug)]
pub struct LoadedScans {
    stream: Stream,
    next: u64,
    end: u64,
    /// How many scans each parcel of the current block has had.
    counts: Vec<u8>,
}

impl Iterator for LoadedScans {
    type Item = LoadedScan;

    fn next(&mut self) -> Option<LoadedScan> {
        let number = self.next;
        if number >= self.end {
            return None;
        }
        self.next += 1;
        let parcels = usize::try_from(self.stream.parcels).ok()?;
        if number.is_multiple_of(self.stream.block()) {
            self.counts.clear();
            self.counts.resize(parcels, 0);
        }
        let scan = self.stream.scan(ScanNumber::Regular(number));
        let place = usize::try_from(scan.parcel() % self.stream.parcels).ok()?;
        let count = self.counts.get_mut(place)?;
        *count += 1;
        Some(LoadedScan { scan, id: number + 1, count: *count })
    }
}

/// See [`Loading::batches`].
#[derive(Clone, Debug)]
pub struct Batches {
    rows: LoadedScans,
    most: usize,
}

impl Iterator for Batches {
    type Item = Vec<LoadedScan>;

    fn next(&mut self) -> Option<Vec<LoadedScan>> {
        let batch: Vec<LoadedScan> = self.rows.by_ref().take(self.most).collect();
        (!batch.is_empty()).then_some(batch)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Of every block each parcel gets seven scans; and the counts of what is loaded are 1 to k.
        #[test]
        fn each_parcel_gets_seven_scans(parcels in 1..60_u64, seed: u64, blocks in 1..3_u64, cut in 0..50_u64) {
            let stream = Stream::new(parcels, seed);
            let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
            for number in 0..stream.block() * blocks {
                *seen.entry(stream.parcel(ScanNumber::Regular(number))).or_default() += 1;
            }
            prop_assert_eq!(seen.keys().copied().collect::<Vec<_>>(), (0..parcels * blocks).collect::<Vec<_>>());
            prop_assert!(seen.values().all(|scans| *scans == u64::from(MOST)));
            prop_assert_eq!(stream.complete(stream.block() * blocks), parcels * blocks);

            let scans = (stream.block() * blocks).saturating_sub(cut);
            let loading = Loading { stream, scans, method: LoadMethod::Bulk };
            let mut counts: BTreeMap<u64, u8> = BTreeMap::new();
            for (number, LoadedScan { scan, id, count }) in (0..).zip(loading.rows()) {
                prop_assert_eq!(&stream.loaded(number), &LoadedScan { scan: scan.clone(), id, count });
                let last = counts.entry(scan.parcel()).or_default();
                *last += 1;
                prop_assert_eq!(count, *last);
            }
            let batched: Vec<LoadedScan> = loading.batches(5).flatten().collect();
            prop_assert_eq!(batched, loading.rows().collect::<Vec<_>>());
            prop_assert_eq!(counts.values().map(|count| u64::from(*count)).sum::<u64>(), scans);
        }
    }

    /// The scans of a parcel are apart from each other, and differ with the seed.
    #[test]
    fn scans_are_shuffled() {
        let order = |seed| {
            let stream = Stream::new(100, seed);
            (0..stream.block()).map(|number| stream.parcel(ScanNumber::Regular(number))).collect::<Vec<_>>()
        };
        let (one, other) = (order(1), order(2));
        assert_ne!(one, other);
        let together = one.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!(together < 30, "{together}");
    }
}
