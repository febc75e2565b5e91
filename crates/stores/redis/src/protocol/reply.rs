//! An answer, where it has arrived.

use std::iter;

use super::{Error, ServerError, error::nonsense};

/// What ends a line, and a text.
pub(super) const END: &[u8; 2] = b"\r\n";
/// The longest line of words, which are an error's, in bytes.
const LONGEST_LINE: usize = 64 * 1024;
/// The longest number, in bytes: `i64::MIN`.
const LONGEST_NUMBER: usize = 20;
/// Numbers of so many digits fit into 64 bits.
const SURE_DIGITS: usize = 18;
/// The longest text, which is a server's default limit for one, in bytes.
const LONGEST_TEXT: usize = 512 * 1024 * 1024;

/// What a server sends that follows no protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Garbled;

/// A value that the server has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// Nothing: there is no such value.
    Nil,
    Integer(i64),
    /// A word of the protocol, such as `OK`.
    Status(&'a [u8]),
    /// A value that was stored, or a text that the server made.
    Text(&'a [u8]),
    /// An error, in an array.
    Error(&'a [u8]),
    /// Several values.
    Array(Replies<'a>),
}

/// Values of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replies<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Reply<'a> {
    /// The value at the beginning of what has arrived, and how many bytes it takes; of an array, those before its values.
    /// `None` if there is none.
    pub(super) fn first(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let (head, length) = Head::read(bytes).ok()??;
        let rest = bytes.get(length..)?;
        Some(match head {
            Head::Nil => (Self::Nil, length),
            Head::Integer(number) => (Self::Integer(number), length),
            Head::Status(word) => (Self::Status(word), length),
            Head::Error(words) => (Self::Error(words), length),
            Head::Text(size) => (Self::Text(rest.get(..size)?), length + size + END.len()),
            Head::Array(count) => (Self::Array(Replies { bytes: rest, count }), length),
        })
    }

    /// A test's answer.
    #[cfg(test)]
    pub(crate) fn whole(bytes: &'a [u8]) -> Self {
        Self::first(bytes).unwrap().0
    }

    /// A number.
    ///
    /// # Errors
    /// It is anything else.
    pub fn integer<T: TryFrom<i64>>(self) -> Result<T, Error> {
        match self {
            Self::Integer(number) => T::try_from(number).map_err(|_| nonsense()),
            _ => Err(nonsense()),
        }
    }

    /// A number, or `None` for nil.
    ///
    /// # Errors
    /// It is anything else.
    pub fn optional<T: TryFrom<i64>>(self) -> Result<Option<T>, Error> {
        match self {
            Self::Nil => Ok(None),
            _ => self.integer().map(Some),
        }
    }

    /// Whether it is 1 rather than 0.
    ///
    /// # Errors
    /// It is anything else.
    pub fn flag(self) -> Result<bool, Error> {
        match self {
            Self::Integer(0) => Ok(false),
            Self::Integer(1) => Ok(true),
            _ => Err(nonsense()),
        }
    }

    /// The bytes of a text.
    ///
    /// # Errors
    /// It is anything else.
    pub fn text(self) -> Result<&'a [u8], Error> {
        match self {
            Self::Text(bytes) => Ok(bytes),
            _ => Err(nonsense()),
        }
    }

    /// A text.
    ///
    /// # Errors
    /// It is anything else, or no UTF-8.
    pub fn string(self) -> Result<String, Error> {
        String::from_utf8(self.text()?.to_vec()).map_err(|_| nonsense())
    }

    /// The values of an array.
    ///
    /// # Errors
    /// It is anything else.
    pub fn array(self) -> Result<Replies<'a>, Error> {
        match self {
            Self::Array(values) => Ok(values),
            _ => Err(nonsense()),
        }
    }

    /// The values of an array of so many.
    ///
    /// # Errors
    /// It is anything else.
    pub fn exactly<const N: usize>(self) -> Result<[Reply<'a>; N], Error> {
        let mut values = self.array()?;
        let mut found = [const { Reply::Nil }; N];
        if values.len() != N {
            return Err(nonsense());
        }
        for place in &mut found {
            *place = values.next().ok_or_else(nonsense)?;
        }
        Ok(found)
    }

    pub(crate) fn error(self) -> Option<ServerError> {
        match self {
            Self::Error(words) => Some(ServerError::new(words)),
            _ => None,
        }
    }
}

/// The values of an array, by twos.
///
/// # Errors
/// It is anything else.
pub(crate) fn pairs(reply: Reply<'_>) -> Result<impl Iterator<Item = [Reply<'_>; 2]>, Error> {
    let mut values = reply.array()?;
    if !values.len().is_multiple_of(2) {
        return Err(nonsense());
    }
    Ok(iter::from_fn(move || Some([values.next()?, values.next()?])))
}

impl<'a> Iterator for Replies<'a> {
    type Item = Reply<'a>;

    fn next(&mut self) -> Option<Reply<'a>> {
        self.count = self.count.checked_sub(1)?;
        let (value, mut length) = Reply::first(self.bytes)?;
        if let Reply::Array(_) = value {
            let Ok(Arrival::Whole(whole)) = Arriving::default().take(self.bytes) else { return None };
            length = whole;
        }
        self.bytes = self.bytes.get(length..)?;
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

// it was seen that so many have arrived
impl ExactSizeIterator for Replies<'_> {}

/// What a value begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head<'a> {
    Nil,
    Integer(i64),
    Status(&'a [u8]),
    Error(&'a [u8]),
    /// A text of so many bytes follows, and a line's end.
    Text(usize),
    /// So many values follow.
    Array(usize),
}

impl<'a> Head<'a> {
    /// Reads the line at the beginning, and says how long it is with its end; `None` if it has not arrived in full.
    #[inline]
    fn read(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Garbled> {
        let Some((kind, rest)) = bytes.split_first() else { return Ok(None) };
        match kind {
            b'$' | b'*' | b':' => {
                let Some((number, length)) = number(rest)? else { return Ok(None) };
                let head = match (kind, usize::try_from(number)) {
                    (b':', _) => Self::Integer(number),
                    (b'*', Ok(count)) => Self::Array(count),
                    (_, Ok(size)) if size <= LONGEST_TEXT => Self::Text(size),
                    (_, Err(_)) if number == -1 => Self::Nil,
                    _ => return Err(Garbled),
                };
                Ok(Some((head, 1 + length)))
            }
            b'+' | b'-' => {
                let Some(words) = words(rest)? else { return Ok(None) };
                let head = if *kind == b'+' { Self::Status(words) } else { Self::Error(words) };
                Ok(Some((head, 1 + words.len() + END.len())))
            }
            _ => Err(Garbled),
        }
    }
}

/// The words of a line.
fn words(bytes: &[u8]) -> Result<Option<&[u8]>, Garbled> {
    match bytes.iter().take(LONGEST_LINE).position(|byte| *byte == END[0]) {
        Some(length) => Ok(is_ended(bytes, length)?.then(|| &bytes[..length])),
        None if bytes.len() < LONGEST_LINE => Ok(None),
        None => Err(Garbled),
    }
}

/// The number of a line, and how long it is with its end.
#[inline]
fn number(bytes: &[u8]) -> Result<Option<(i64, usize)>, Garbled> {
    let is_negative = bytes.first() == Some(&b'-');
    let digits = bytes.get(usize::from(is_negative)..).unwrap_or_default();
    let mut number = 0_i64;
    let count = digits.iter().take(SURE_DIGITS).take_while(|digit| digit.is_ascii_digit());
    let count = count.map(|digit| number = 10 * number + i64::from(digit - b'0')).count();
    let end = usize::from(is_negative) + count;
    match digits.get(count) {
        None => Ok(None),
        Some(byte) if *byte == END[0] && count > 0 => {
            let number = if is_negative { -number } else { number };
            Ok(is_ended(bytes, end)?.then_some((number, end + END.len())))
        }
        Some(_) if count == SURE_DIGITS => long_number(bytes),
        Some(_) => Err(Garbled),
    }
}

/// A number of more digits than such as fit in any case.
#[cold]
fn long_number(bytes: &[u8]) -> Result<Option<(i64, usize)>, Garbled> {
    match bytes.iter().take(LONGEST_NUMBER + 1).position(|byte| *byte == END[0]) {
        Some(length) if is_ended(bytes, length)? => {
            let digits = str::from_utf8(&bytes[..length]).map_err(|_| Garbled)?;
            Ok(Some((digits.parse().map_err(|_| Garbled)?, length + END.len())))
        }
        Some(_) => Ok(None),
        None if bytes.len() <= LONGEST_NUMBER => Ok(None),
        None => Err(Garbled),
    }
}

/// Whether the end of the line of this length has arrived, whose first byte has.
fn is_ended(bytes: &[u8], length: usize) -> Result<bool, Garbled> {
    match bytes.get(length + 1) {
        None => Ok(false),
        Some(byte) if *byte == END[1] => Ok(true),
        Some(_) => Err(Garbled),
    }
}

/// An answer that is on its way: how much of it was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arriving {
    /// Bytes of the values that were seen in full.
    seen: usize,
    /// Values that are still to come, as far as is known.
    left: usize,
}

/// How much of an answer has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// All of it, and it takes so many bytes.
    Whole(usize),
    /// Not all: so many bytes are missing at least.
    Missing(usize),
}

impl Default for Arriving {
    fn default() -> Self {
        Self { seen: 0, left: 1 }
    }
}

impl Arriving {
    /// Looks at what has arrived of the answer, from its beginning on. What was seen before is not looked at again. After a
    /// whole answer, the next one is on its way.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Arrival, Garbled> {
        while self.left > 0 {
            let unseen = bytes.get(self.seen..).unwrap_or_default();
            let Some((head, mut length)) = Head::read(unseen)? else { return Ok(Arrival::Missing(1)) };
            match head {
                Head::Text(size) => {
                    let text = length + size;
                    length = text + END.len();
                    match unseen.get(text..length) {
                        Some(end) if end != END => return Err(Garbled),
                        Some(_) => {}
                        None => return Ok(Arrival::Missing(length - unseen.len())),
                    }
                }
                Head::Array(count) => self.left = self.left.checked_add(count).ok_or(Garbled)?,
                _ => {}
            }
            self.seen += length;
            self.left -= 1;
        }
        let whole = self.seen;
        *self = Self::default();
        Ok(Arrival::Whole(whole))
    }
}
