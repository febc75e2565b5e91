//! The scans of one insert, in the order in which their parcels are locked, and what is known of each.

use acidtest_workloads::parcels::{Inserted, MOST, Scan};

/// What is known of the scans of an insert. Its memory is reused.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Places of the scans that are to be inserted, sorted by `SCAN_HASH`: no two clients then wait for each other's
    /// parcels for ever.
    order: Vec<usize>,
    /// Each scan's `SCAN_COUNT`, by its place.
    counts: Vec<u8>,
    /// What each scan was given, by its place.
    given: Vec<Option<(u64, u8)>>,
}

impl Batch {
    /// Begins with these scans, whose parcels have no scans as far as is known.
    pub(crate) fn begin(&mut self, scans: &[Scan]) {
        let Self { order, counts, given } = self;
        order.clear();
        order.extend(0..scans.len());
        order.sort_unstable_by(|one, other| scans[*one].hash().cmp(scans[*other].hash()));
        counts.clear();
        counts.resize(scans.len(), 1);
        given.clear();
        given.resize(scans.len(), None);
    }

    /// The scans that are to be inserted, each with its count, in their order.
    pub(crate) fn each<'a>(&'a self, scans: &'a [Scan]) -> impl Iterator<Item = (&'a Scan, u8)> {
        self.order.iter().map(|place| (&scans[*place], self.counts[*place]))
    }

    /// The only scan that is to be inserted, and its count; `None` if there are several.
    pub(crate) fn only<'a>(&self, scans: &'a [Scan]) -> Option<(&'a Scan, u8)> {
        match *self.order {
            [place] => Some((&scans[place], self.counts[place])),
            _ => None,
        }
    }

    /// How many scans are to be inserted.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Notes how many scans the parcel of this hash has. `None` if there is no such scan.
    pub(crate) fn counted(&mut self, scans: &[Scan], hash: &[u8], rows: u64) -> Option<()> {
        let found = self.order.binary_search_by(|place| scans[*place].hash().as_bytes().cmp(hash)).ok()?;
        // whatever is above the most is refused, however much it is
        self.counts[self.order[found]] = u8::try_from(rows.min(MOST.into())).ok()? + 1;
        Some(())
    }

    /// Leaves out the scans whose parcels have all that they may have. Whether any is left.
    pub(crate) fn refuse_full(&mut self) -> bool {
        let counts = &self.counts;
        self.order.retain(|place| counts[*place] <= MOST);
        !self.order.is_empty()
    }

    /// Notes that the scans were inserted with their counts and with ids from `first` on, in steps of `step`. `None` if
    /// there are no such ids.
    pub(crate) fn took(&mut self, first: u64, step: u64) -> Option<()> {
        for (index, place) in (0..).zip(&self.order) {
            let id = step.checked_mul(index).and_then(|above| first.checked_add(above))?;
            self.given[*place] = Some((id, self.counts[*place]));
        }
        Some(())
    }

    /// Takes what a procedure has answered of each scan, in their order: its id and count, or nothing, and a semicolon.
    /// `None` if it is not that.
    pub(crate) fn answered(&mut self, answer: &str) -> Option<()> {
        let mut each = answer.split_terminator(';');
        for place in &self.order {
            let given = each.next()?;
            if !given.is_empty() {
                let (id, count) = given.split_once(' ')?;
                self.given[*place] = Some((id.parse().ok()?, count.parse().ok()?));
            }
        }
        each.next().is_none().then_some(())
    }

    /// Says of each scan, in their own order, what it was given. One that was given nothing was refused.
    pub(crate) fn answer(&self, inserted: &mut Inserted) {
        for given in &self.given {
            match given {
                Some((id, count)) => inserted.took(*id, *count),
                None => inserted.refused(),
            }
        }
    }
}
