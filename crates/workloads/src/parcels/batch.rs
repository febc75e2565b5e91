//! The scans of one insert, in the order in which their parcels are locked, and what is known of each.

use super::{
    port::Inserted,
    scan::{MOST, Scan},
};

/// What a store that counts and inserts in steps of its own knows of the scans of an insert. Its memory is reused.
///
/// The scans that are to be inserted have a rank: their place among them, sorted by `SCAN_HASH`. Whoever locks parcels
/// in this order never waits for another who does, and waits for the first, for ever.
#[derive(Debug, Default)]
pub struct Batch {
    /// Places of the scans that are to be inserted, by their rank.
    order: Vec<usize>,
    /// Each scan's `SCAN_COUNT`, by its place.
    counts: Vec<u8>,
    /// What each scan was given, by its place.
    given: Vec<Option<(u64, u8)>>,
}

impl Batch {
    /// Begins with these scans, whose parcels have no scans as far as is known.
    pub fn begin(&mut self, scans: &[Scan]) {
        let Self { order, counts, given } = self;
        order.clear();
        order.extend(0..scans.len());
        order.sort_unstable_by(|one, other| scans[*one].hash().cmp(scans[*other].hash()));
        counts.clear();
        counts.resize(scans.len(), 1);
        given.clear();
        given.resize(scans.len(), None);
    }

    /// The scans that are to be inserted, each with its count, by their rank.
    pub fn each<'a>(&'a self, scans: &'a [Scan]) -> impl Iterator<Item = (&'a Scan, u8)> {
        self.order.iter().map(|place| (&scans[*place], self.counts[*place]))
    }

    /// The only scan that is to be inserted, and its count; `None` if there are several.
    #[must_use]
    pub fn only<'a>(&self, scans: &'a [Scan]) -> Option<(&'a Scan, u8)> {
        match *self.order {
            [place] => Some((&scans[place], self.counts[place])),
            _ => None,
        }
    }

    /// How many scans are to be inserted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether none is to be inserted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The rank of the scan that is to be inserted and has this hash; `None` if there is none.
    #[must_use]
    pub fn rank(&self, scans: &[Scan], hash: &[u8]) -> Option<usize> {
        self.order.binary_search_by(|place| scans[*place].hash().as_bytes().cmp(hash)).ok()
    }

    /// Notes how many scans the parcel of this hash has. `None` if there is no such scan.
    pub fn counted(&mut self, scans: &[Scan], hash: &[u8], rows: u64) -> Option<()> {
        let rank = self.rank(scans, hash)?;
        // whatever is above the most is refused, however much it is
        self.counts[self.order[rank]] = u8::try_from(rows.min(MOST.into())).ok()? + 1;
        Some(())
    }

    /// Leaves out the scans whose parcels have all that they may have. Whether any is left.
    pub fn refuse_full(&mut self) -> bool {
        let counts = &self.counts;
        self.order.retain(|place| counts[*place] <= MOST);
        !self.order.is_empty()
    }

    /// Notes the `SCAN_ID` of the scan of this rank, which was inserted with the count that was noted before. `None` if
    /// there is none, or it was given one already.
    pub fn took(&mut self, rank: usize, id: u64) -> Option<()> {
        let count = self.counts[*self.order.get(rank)?];
        self.took_with(rank, id, count)
    }

    /// Notes the `SCAN_ID` and `SCAN_COUNT` that the scan of this rank was inserted with. `None` as of [`Batch::took`].
    pub fn took_with(&mut self, rank: usize, id: u64, count: u8) -> Option<()> {
        let place = *self.order.get(rank)?;
        let given = &mut self.given[place];
        if given.is_some() {
            return None;
        }
        *given = Some((id, count));
        Some(())
    }

    /// Says of each scan, in their own order, what it was given. One that was given nothing was refused.
    pub fn answer(&self, inserted: &mut Inserted) {
        for given in &self.given {
            match given {
                Some((id, count)) => inserted.took(*id, *count),
                None => inserted.refused(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parcels::{ScanNumber, Stream};

    #[test]
    fn each_scan_is_told_what_it_was_given_in_its_own_order() {
        let stream = Stream::new(1, 7);
        // a scan of each of five parcels, whose hashes are not in order
        let scans: Vec<Scan> =
            (0..5).map(|parcel| stream.scan(ScanNumber::Regular(parcel * u64::from(MOST)))).collect();
        let mut batch = Batch::default();
        batch.begin(&scans);
        let hashes: Vec<&str> = batch.each(&scans).map(|(scan, _)| scan.hash()).collect();
        assert!(hashes.is_sorted() && hashes.len() == 5, "{hashes:?}");
        assert_eq!(batch.only(&scans).map(|(scan, _)| scan.hash()), None);

        for (scan, rows) in scans.iter().zip([0, 6, 7, u64::MAX]) {
            assert_eq!(batch.counted(&scans, scan.hash().as_bytes(), rows), Some(()));
        }
        assert_eq!(batch.counted(&scans, b"another", 1), None);
        assert!(batch.refuse_full());
        assert_eq!(batch.rank(&scans, scans[2].hash().as_bytes()), None, "it was refused");
        let rank = |batch: &Batch, of: usize| batch.rank(&scans, scans[of].hash().as_bytes()).unwrap();
        let [first, second, last] = [0, 1, 4].map(|of| rank(&batch, of));
        assert_eq!(batch.took(second, 20), Some(()));
        assert_eq!(batch.took_with(first, 10, 3), Some(()));
        assert_eq!((batch.took(first, 11), batch.took(3, 11)), (None, None), "it has an id; there is none");
        let mut inserted = Inserted::default();
        batch.answer(&mut inserted);
        assert_eq!(inserted.each(), [Some((10, 3)), Some((20, 7)), None, None, None]);
        assert_eq!(batch.took(last, 50), Some(()));

        batch.begin(&scans[..1]);
        assert_eq!(
            batch.only(&scans[..1]).map(|(scan, count)| (scan.hash(), count)),
            Some((scans[0].hash(), 1))
        );
        let mut inserted = Inserted::default();
        batch.answer(&mut inserted);
        assert_eq!(inserted.each(), [None], "nothing is left of the scans before");
    }
}
