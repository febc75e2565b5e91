//! Values that are given to statements.

use bytes::{BufMut, BytesMut};
use mysql_common::{constants::ColumnType, io::BufMutExt};

/// The value of one parameter of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    /// A text, or bytes.
    Bytes(&'a [u8]),
    /// A whole number.
    Signed(i64),
    /// A whole number that may be beyond the others.
    Unsigned(u64),
}

/// Marks a number without a sign in the second byte of a parameter's type.
const UNSIGNED: u8 = 0x80;

impl Value<'_> {
    pub(super) fn kind(self) -> [u8; 2] {
        match self {
            Self::Bytes(_) => [ColumnType::MYSQL_TYPE_VAR_STRING as u8, 0],
            Self::Signed(_) => [ColumnType::MYSQL_TYPE_LONGLONG as u8, 0],
            Self::Unsigned(_) => [ColumnType::MYSQL_TYPE_LONGLONG as u8, UNSIGNED],
        }
    }

    pub(super) fn put(self, out: &mut BytesMut) {
        match self {
            Self::Bytes(bytes) => out.put_lenenc_str(bytes),
            Self::Signed(number) => out.put_i64_le(number),
            Self::Unsigned(number) => out.put_u64_le(number),
        }
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Bytes(text.as_bytes())
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Signed(number)
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Unsigned(number)
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Signed(number.into())
    }
}

impl From<u8> for Value<'_> {
    fn from(number: u8) -> Self {
        Self::Signed(number.into())
    }
}
