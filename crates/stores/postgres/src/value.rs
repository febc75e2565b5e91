//! Values of records, sent to the server and read from it without a list being allocated for them.

use bytes::BytesMut;
use tokio_postgres::{
    Row,
    types::{FromSql, IsNull, ToSql, Type, to_sql_checked},
};

type BoxedError = Box<dyn std::error::Error + Sync + Send>;

/// One parameter of a statement: `text` or `bigint`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Text(&'a str),
    Number(i64),
}

impl ToSql for Value<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, BoxedError> {
        match self {
            Self::Text(text) => text.to_sql(kind, out),
            Self::Number(number) => number.to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        <&str as ToSql>::accepts(kind) || <i64 as ToSql>::accepts(kind)
    }

    to_sql_checked!();
}

/// Parameters whose number is known in advance, as the driver's `ExactSizeIterator` bound demands.
pub(crate) struct ValueList<I> {
    values: I,
    left: usize,
}

impl<I: Iterator> ValueList<I> {
    pub(crate) fn new(values: I, count: usize) -> Self {
        Self { values, left: count }
    }
}

impl<I: Iterator> Iterator for ValueList<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let value = self.values.next()?;
        self.left = self.left.saturating_sub(1);
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<I: Iterator> ExactSizeIterator for ValueList<I> {}

/// A record's version: a `bigint` that is not negative.
struct Version(u64);

impl<'a> FromSql<'a> for Version {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, BoxedError> {
        Ok(Self(u64::try_from(i64::from_sql(kind, raw)?)?))
    }

    fn accepts(kind: &Type) -> bool {
        <i64 as FromSql>::accepts(kind)
    }
}

/// The version in a column; `None` where the column holds anything else.
pub(crate) fn version(row: &Row, column: usize) -> Option<u64> {
    row.try_get(column).ok().map(|Version(version)| version)
}

/// The texts in the columns from `first` on. One that cannot be read counts as empty, which no field of a record
/// is.
pub(crate) fn texts(row: &Row, first: usize) -> impl Iterator<Item = &[u8]> {
    let text = |column| row.try_get(column).map_or(&[][..], str::as_bytes);
    (first..row.len()).map(text)
}
