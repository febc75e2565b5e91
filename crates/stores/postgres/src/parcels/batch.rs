//! The scans of one insert, in the order in which their parcels are locked, and what is known of each.

use std::fmt;

use acidtest_workloads::parcels::{Inserted, MOST, Scan};
use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{IsNull, Kind, ToSql, Type, to_sql_checked};

type BoxedError = Box<dyn std::error::Error + Sync + Send>;

/// What is known of the scans of an insert. Its memory is reused.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Places of the scans that are to be inserted, sorted by `SCAN_HASH`: no two clients then wait for each other's
    /// parcels for ever.
    order: Vec<usize>,
    /// Each scan's `SCAN_COUNT`, by its place.
    counts: Vec<i32>,
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

    /// The place of the scan that is still to be inserted and has this hash.
    fn place(&self, scans: &[Scan], hash: &str) -> Option<usize> {
        let found = self.order.binary_search_by(|place| scans[*place].hash().cmp(hash)).ok()?;
        self.order.get(found).copied()
    }

    /// Notes how many scans the parcel of this hash has. `None` if there is no such scan.
    pub(crate) fn counted(&mut self, scans: &[Scan], hash: &str, rows: i64) -> Option<()> {
        let place = self.place(scans, hash)?;
        // whatever is above the most is refused, however much it is
        self.counts[place] = i32::try_from(rows.clamp(0, i64::from(MOST))).ok()? + 1;
        Some(())
    }

    /// Leaves out the scans whose parcels have all that they may have. Whether any is left.
    pub(crate) fn refuse_full(&mut self) -> bool {
        let counts = &self.counts;
        self.order.retain(|place| counts[*place] <= i32::from(MOST));
        !self.order.is_empty()
    }

    /// How many scans are to be inserted.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The only scan that is to be inserted and its `SCAN_COUNT`; `None` if there are several.
    pub(crate) fn only<'a>(&self, scans: &'a [Scan]) -> Option<(&'a Scan, i32)> {
        match *self.order {
            [place] => Some((&scans[place], self.counts[place])),
            _ => None,
        }
    }

    /// Notes the `SCAN_ID` of a scan that was inserted with the count that was noted before.
    pub(crate) fn took(&mut self, scans: &[Scan], hash: &str, id: u64) -> Option<()> {
        let place = self.place(scans, hash)?;
        self.give(place, id, self.counts[place])
    }

    /// Notes the `SCAN_ID` and `SCAN_COUNT` of a scan that was inserted.
    pub(crate) fn took_with(&mut self, scans: &[Scan], hash: &str, id: u64, count: i32) -> Option<()> {
        let place = self.place(scans, hash)?;
        self.give(place, id, count)
    }

    /// `None` if the scan was given something already, or a count that there is not.
    fn give(&mut self, place: usize, id: u64, count: i32) -> Option<()> {
        let count = u8::try_from(count).ok()?;
        self.given[place].replace((id, count)).is_none().then_some(())
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

    /// A column of the scans that are to be inserted, as an array.
    pub(crate) fn column<'a>(&'a self, scans: &'a [Scan], of: fn(&Scan) -> &str) -> Column<'a> {
        Column { scans, order: &self.order, of }
    }

    /// The counts of the scans that are to be inserted, as an array.
    pub(crate) fn counts(&self) -> Counts<'_> {
        Counts { counts: &self.counts, order: &self.order }
    }
}

/// A column of texts, which is sent as an array without a list being made of it.
pub(crate) struct Column<'a> {
    scans: &'a [Scan],
    order: &'a [usize],
    of: fn(&Scan) -> &str,
}

impl fmt::Debug for Column<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.order.iter().map(|place| (self.of)(&self.scans[*place]))).finish()
    }
}

impl ToSql for Column<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, BoxedError> {
        begin_array(kind, self.order.len(), out)?;
        for place in self.order {
            let text = (self.of)(&self.scans[*place]);
            out.put_i32(i32::try_from(text.len())?);
            out.put_slice(text.as_bytes());
        }
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        matches!(kind.kind(), Kind::Array(member) if <&str as ToSql>::accepts(member))
    }

    to_sql_checked!();
}

/// The column of counts, which is sent as an array without a list being made of it.
#[derive(Debug)]
pub(crate) struct Counts<'a> {
    counts: &'a [i32],
    order: &'a [usize],
}

impl ToSql for Counts<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, BoxedError> {
        begin_array(kind, self.order.len(), out)?;
        for place in self.order {
            out.put_i32(4);
            out.put_i32(self.counts[*place]);
        }
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        matches!(kind.kind(), Kind::Array(member) if <i32 as ToSql>::accepts(member))
    }

    to_sql_checked!();
}

/// Writes the head of an array of one dimension: dimensions, whether any value is null, type, length, first index.
fn begin_array(kind: &Type, length: usize, out: &mut BytesMut) -> Result<(), BoxedError> {
    let Kind::Array(member) = kind.kind() else { return Err("it is no array".into()) };
    out.put_i32(1);
    out.put_i32(0);
    out.put_u32(member.oid());
    out.put_i32(i32::try_from(length)?);
    out.put_i32(1);
    Ok(())
}
