//! The scans of one insert as arrays, a column each.

use std::fmt;

use acidtest_workloads::parcels::{Batch, Scan};
use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{IsNull, Kind, ToSql, Type, to_sql_checked};

type BoxedError = Box<dyn std::error::Error + Sync + Send>;

/// A column of texts, which is sent as an array without a list being made of it.
pub(crate) struct Column<'a> {
    pub(crate) scans: &'a [Scan],
    pub(crate) batch: &'a Batch,
    pub(crate) of: fn(&Scan) -> &str,
}

impl fmt::Debug for Column<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.batch.each(self.scans).map(|(scan, _)| (self.of)(scan))).finish()
    }
}

impl ToSql for Column<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, BoxedError> {
        begin_array(kind, self.batch.len(), out)?;
        for (scan, _) in self.batch.each(self.scans) {
            let text = (self.of)(scan);
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
    pub(crate) scans: &'a [Scan],
    pub(crate) batch: &'a Batch,
}

impl ToSql for Counts<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, BoxedError> {
        begin_array(kind, self.batch.len(), out)?;
        for (_, count) in self.batch.each(self.scans) {
            out.put_i32(4);
            out.put_i32(count.into());
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
    let Kind::Array(member) = kind.kind() else { return Err("it is not an array".into()) };
    out.put_i32(1);
    out.put_i32(0);
    out.put_u32(member.oid());
    out.put_i32(i32::try_from(length)?);
    out.put_i32(1);
    Ok(())
}
