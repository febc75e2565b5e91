//! Values that are given to statements, and read from rows.

use bytes::BytesMut;
use tokio_postgres::{
    Row,
    types::{FromSql, IsNull, ToSql, Type, to_sql_checked},
};

use crate::protocol;

type BoxedError = Box<dyn std::error::Error + Sync + Send>;

/// The value of one parameter of a statement.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// Of a parameter that is a text of any kind.
    Text(&'a str),
    /// Of a parameter of the type `bytea`.
    Bytes(&'a [u8]),
    /// Of a parameter that is a whole number, whatever its size.
    Number(i64),
    /// Of any other, such as an array.
    Other(&'a (dyn ToSql + Sync)),
}

impl ToSql for Value<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, BoxedError> {
        match *self {
            // for other kinds of text, the library compares names of types
            Self::Text(text) if *kind == Type::TEXT => {
                out.extend_from_slice(text.as_bytes());
                Ok(IsNull::No)
            }
            Self::Text(text) if <&str as ToSql>::accepts(kind) => text.to_sql(kind, out),
            Self::Bytes(bytes) if *kind == Type::BYTEA => bytes.to_sql(kind, out),
            Self::Number(number) if *kind == Type::INT8 => number.to_sql(kind, out),
            Self::Number(number) if *kind == Type::INT4 => i32::try_from(number)?.to_sql(kind, out),
            Self::Number(number) if *kind == Type::INT2 => i16::try_from(number)?.to_sql(kind, out),
            Self::Other(value) => value.to_sql_checked(kind, out),
            Self::Text(_) | Self::Bytes(_) | Self::Number(_) => {
                Err(format!("{self:?} for a parameter of the type {kind}").into())
            }
        }
    }

    /// Whether it does depends on the value, too, and is looked at when that is written.
    fn accepts(_: &Type) -> bool {
        true
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

/// A row, on the connection of a client or that of the driver.
pub(crate) trait Columns {
    /// The value in a column; none where the column holds anything else.
    fn read<'a, T: FromSql<'a>>(&'a self, column: usize) -> Option<T>;
}

impl Columns for Row {
    fn read<'a, T: FromSql<'a>>(&'a self, column: usize) -> Option<T> {
        self.try_get(column).ok()
    }
}

impl Columns for protocol::Row<'_> {
    fn read<'a, T: FromSql<'a>>(&'a self, column: usize) -> Option<T> {
        self.get(column).ok()
    }
}

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
pub(crate) fn version(row: &impl Columns, column: usize) -> Option<u64> {
    row.read(column).map(|Version(version)| version)
}
