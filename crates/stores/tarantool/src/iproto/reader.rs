use rmp::Marker;
use rmp::decode;

use super::Error;

/// Reads `MessagePack` values one after the other, checking each for its type and length.
///
/// A value that is not of the wanted type is [`Error::Protocol`], and is not consumed.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether every value was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The number of elements of the array that starts here; read them one by one after it. Never more than there
    /// are bytes left, so that it can size an allocation.
    pub fn array_len(&mut self) -> Result<usize, Error> {
        self.read("an array", |rest| {
            let len = decode::read_array_len(rest).ok()? as usize;
            (len <= rest.len()).then_some(len)
        })
    }

    /// The header of an array that must have at least `fields` elements, such as a tuple. Returns the number of
    /// elements beyond these, which the caller skips.
    pub fn tuple(&mut self, fields: usize) -> Result<usize, Error> {
        let before = *self;
        let len = self.array_len()?;
        len.checked_sub(fields).ok_or_else(|| {
            *self = before;
            Error::Protocol(format!("a tuple of {len} fields instead of {fields}"))
        })
    }

    /// The number of pairs of the map that starts here; keys and values follow in turn.
    pub fn map_len(&mut self) -> Result<usize, Error> {
        self.read("a map", |rest| {
            let len = decode::read_map_len(rest).ok()? as usize;
            (len <= rest.len() / 2).then_some(len)
        })
    }

    /// Reads an integer that is not negative.
    pub fn u64(&mut self) -> Result<u64, Error> {
        self.read("an unsigned integer", |rest| decode::read_int(rest).ok())
    }

    /// Reads an integer of either sign.
    pub fn i64(&mut self) -> Result<i64, Error> {
        self.read("an integer", |rest| decode::read_int(rest).ok())
    }

    /// Reads a number. Lua sends whole numbers as integers, which are accepted too.
    pub fn f64(&mut self) -> Result<f64, Error> {
        self.read("a number", |rest| match marker(rest)? {
            Marker::F64 => decode::read_f64(rest).ok(),
            Marker::F32 => decode::read_f32(rest).ok().map(f64::from),
            Marker::U64 => decode::read_u64(rest).ok().map(|value| value as f64),
            _ => decode::read_int::<i64, _>(rest).ok().map(|value| value as f64),
        })
    }

    pub fn bool(&mut self) -> Result<bool, Error> {
        self.read("a boolean", |rest| decode::read_bool(rest).ok())
    }

    /// Reads a string, which must be UTF-8.
    pub fn str(&mut self) -> Result<&'a str, Error> {
        self.read("a string", |rest| {
            let len = decode::read_str_len(rest).ok()?;
            std::str::from_utf8(take(rest, len)?).ok()
        })
    }

    /// Reads the bytes of a string, UTF-8 or not, or of a binary value.
    pub fn bytes(&mut self) -> Result<&'a [u8], Error> {
        self.read("a string or bytes", |rest| {
            let len = match marker(rest)? {
                Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => decode::read_bin_len(rest).ok()?,
                _ => decode::read_str_len(rest).ok()?,
            };
            take(rest, len)
        })
    }

    /// Reads a nil; any other value is an error.
    pub fn nil(&mut self) -> Result<(), Error> {
        self.read("nil", |rest| decode::read_nil(rest).ok())
    }

    /// Consumes a nil if one is next, and returns whether it was.
    pub fn take_nil(&mut self) -> bool {
        marker(self.rest) == Some(Marker::Null) && self.nil().is_ok()
    }

    /// Consumes one value of any type, with all values inside it.
    pub fn skip(&mut self) -> Result<(), Error> {
        self.read("a value", skip)
    }

    /// Consumes one value of any type, and returns a reader of that value alone.
    pub fn value(&mut self) -> Result<Self, Error> {
        let value = self.rest;
        self.skip()?;
        let (value, _) = value.split_at_checked(value.len() - self.rest.len()).unwrap_or_default();
        Ok(Self { rest: value })
    }

    fn read<T>(&mut self, what: &str, parse: impl FnOnce(&mut &'a [u8]) -> Option<T>) -> Result<T, Error> {
        let mut rest = self.rest;
        match parse(&mut rest) {
            Some(value) => {
                self.rest = rest;
                Ok(value)
            }
            None => Err(self.mismatch(what)),
        }
    }

    #[cold]
    fn mismatch(&self, what: &str) -> Error {
        let found = match marker(self.rest) {
            Some(marker) => format!("{marker:?} with {} bytes left", self.rest.len()),
            None => "the end".to_owned(),
        };
        Error::Protocol(format!("{what} expected, found {found}"))
    }
}

fn marker(rest: &[u8]) -> Option<Marker> {
    rest.first().map(|byte| Marker::from_u8(*byte))
}

fn take<'a>(rest: &mut &'a [u8], len: u32) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(len as usize)?;
    *rest = tail;
    Some(head)
}

/// Counts the values still to skip instead of recursing: a frame of deeply nested values cannot exhaust the
/// stack, and each iteration consumes at least a byte, so that a false length cannot prolong the loop.
fn skip(rest: &mut &[u8]) -> Option<()> {
    let mut values: u64 = 1;
    while values > 0 {
        values -= 1;
        let (payload, nested) = match decode::read_marker(rest).ok()? {
            Marker::Null | Marker::True | Marker::False | Marker::FixPos(_) | Marker::FixNeg(_) => (0, 0),
            Marker::U8 | Marker::I8 => (1, 0),
            // an extension has one byte for its type before its payload
            Marker::U16 | Marker::I16 | Marker::FixExt1 => (2, 0),
            Marker::U32 | Marker::I32 | Marker::F32 => (4, 0),
            Marker::U64 | Marker::I64 | Marker::F64 => (8, 0),
            Marker::FixStr(len) => (u32::from(len), 0),
            Marker::Str8 | Marker::Bin8 => (length(rest, 1)?, 0),
            Marker::Str16 | Marker::Bin16 => (length(rest, 2)?, 0),
            Marker::Str32 | Marker::Bin32 => (length(rest, 4)?, 0),
            Marker::FixExt2 => (3, 0),
            Marker::FixExt4 => (5, 0),
            Marker::FixExt8 => (9, 0),
            Marker::FixExt16 => (17, 0),
            Marker::Ext8 => (length(rest, 1)?.checked_add(1)?, 0),
            Marker::Ext16 => (length(rest, 2)?.checked_add(1)?, 0),
            Marker::Ext32 => (length(rest, 4)?.checked_add(1)?, 0),
            Marker::FixArray(len) => (0, u64::from(len)),
            Marker::Array16 => (0, u64::from(length(rest, 2)?)),
            Marker::Array32 => (0, u64::from(length(rest, 4)?)),
            Marker::FixMap(len) => (0, 2 * u64::from(len)),
            Marker::Map16 => (0, 2 * u64::from(length(rest, 2)?)),
            Marker::Map32 => (0, 2 * u64::from(length(rest, 4)?)),
            Marker::Reserved => return None,
        };
        take(rest, payload)?;
        values = values.checked_add(nested)?;
    }
    Some(())
}

fn length(rest: &mut &[u8], bytes: u32) -> Option<u32> {
    Some(take(rest, bytes)?.iter().fold(0, |length, byte| length << 8 | u32::from(*byte)))
}
