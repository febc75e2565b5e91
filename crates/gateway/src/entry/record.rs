//! Entries as bytes, as they lie in a queue: those of one request together, with their user.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | when they were received: microseconds since 1970, little-endian as every number here |
//! | 1, n | the user's name with its length |
//! | then, of each entry: | |
//! | 1 | level: its place among the levels |
//! | 8 | timestamp: microseconds since 1970 |
//! | 1, 1, 4, 4 | lengths of id, application, message and attributes, 0 where there are none |
//! | n | these four |

use std::{borrow::Cow, str};

use super::{Entry, Level};

/// Bytes of an entry without its texts.
const HEAD: usize = 1 + 8 + 1 + 1 + 4 + 4;

/// What a record says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decoded<'a> {
    pub(crate) user: &'a str,
    /// Microseconds since 1970.
    pub(crate) received: i64,
    pub(crate) entries: Vec<Entry<'a>>,
}

/// Writes the entries of one request. Texts are within the limits of entries, and the user's name within 255 bytes.
pub(crate) fn encode<'a, 'b: 'a>(
    user: &str,
    received: i64,
    entries: impl Iterator<Item = &'a Entry<'b>> + Clone,
) -> Vec<u8> {
    // just as much as it needs: many may wait
    let size = entries.clone().map(size).sum::<usize>();
    let mut record = Vec::with_capacity(8 + 1 + user.len() + size);
    record.extend(received.to_le_bytes());
    record.push(short(user.len()));
    record.extend(user.as_bytes());
    for entry in entries {
        let attributes = entry.attributes.unwrap_or_default();
        record.push(entry.level as u8);
        record.extend(entry.timestamp.to_le_bytes());
        record.push(short(entry.id.len()));
        record.push(short(entry.application.len()));
        record.extend(long(entry.message.len()).to_le_bytes());
        record.extend(long(attributes.len()).to_le_bytes());
        for text in [&*entry.id, &*entry.application, &*entry.message, attributes] {
            record.extend(text.as_bytes());
        }
    }
    record
}

/// How many entries each record has, one behind the other, where none may have more bytes than `most`. An entry that is
/// larger has one of its own.
pub(crate) fn stretches_within<'a, 'b: 'a>(
    user: &str,
    entries: impl ExactSizeIterator<Item = &'a Entry<'b>>,
    most: usize,
) -> Vec<usize> {
    if most == usize::MAX {
        return vec![entries.len()];
    }
    let empty = 8 + 1 + user.len();
    let (mut counts, mut bytes) = (Vec::new(), usize::MAX);
    for entry in entries {
        let size = size(entry);
        bytes = bytes.saturating_add(size);
        match counts.last_mut() {
            Some(count) if bytes <= most => *count += 1,
            _ => {
                counts.push(1);
                bytes = empty + size;
            }
        }
    }
    counts
}

/// The bytes of an entry in a record.
fn size(entry: &Entry<'_>) -> usize {
    let texts = [&*entry.id, &*entry.application, &*entry.message, entry.attributes.unwrap_or_default()];
    HEAD + texts.iter().map(|text| text.len()).sum::<usize>()
}

// a length beyond its limit makes a record that cannot be read, not one that says something else
fn short(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}

fn long(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Reads a record. `None` if it is not one.
pub(crate) fn decode(record: &[u8]) -> Option<Decoded<'_>> {
    let mut rest = Rest(record);
    let received = i64::from_le_bytes(rest.array()?);
    let length = rest.byte()?;
    let user = rest.text(length.into())?;
    let mut entries = Vec::new();
    while !rest.0.is_empty() {
        let level = *Level::ALL.get(usize::from(rest.byte()?))?;
        let timestamp = i64::from_le_bytes(rest.array()?);
        let (id, application) = (rest.byte()?, rest.byte()?);
        let (message, attributes) = (rest.length()?, rest.length()?);
        entries.push(Entry {
            level,
            timestamp,
            id: Cow::Borrowed(rest.text(id.into())?),
            application: Cow::Borrowed(rest.text(application.into())?),
            message: Cow::Borrowed(rest.text(message)?),
            attributes: Some(rest.text(attributes)?).filter(|text| !text.is_empty()),
        });
    }
    Some(Decoded { user, received, entries })
}

/// When the entries of a record were received, in microseconds since 1970. `None` if it is not a record.
pub(crate) fn received(record: &[u8]) -> Option<i64> {
    record.first_chunk().map(|bytes| i64::from_le_bytes(*bytes))
}

/// What is left to read of a record.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn length(&mut self) -> Option<usize> {
        usize::try_from(u32::from_le_bytes(self.array()?)).ok()
    }

    fn text(&mut self, length: usize) -> Option<&'a str> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        str::from_utf8(taken).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry() -> impl Strategy<Value = Entry<'static>> {
        let texts = ("[a-z0-9]{1,64}", "\\PC{1,30}", "\\PC{0,300}", any::<bool>());
        (texts, any::<i64>(), 0..Level::ALL.len()).prop_map(
            |((id, application, message, has_attributes), timestamp, level)| Entry {
                id: id.into(),
                timestamp,
                level: Level::ALL[level],
                application: application.into(),
                message: message.into(),
                attributes: has_attributes.then_some(r#"{"a":1}"#),
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            user in "[a-z]{1,64}",
            received in any::<i64>(),
            entries in proptest::collection::vec(entry(), 1..5),
        ) {
            let record = encode(&user, received, entries.iter());
            prop_assert_eq!(record.len(), record.capacity());
            prop_assert_eq!(decode(&record), Some(Decoded { user: &user, received, entries: entries.clone() }));
            // a record that was cut is not read as another one, but for a cut between two entries
            for end in 0..record.len() {
                if let Some(cut) = decode(&record[..end]) {
                    prop_assert!(cut.entries.len() < entries.len() && entries.starts_with(&cut.entries));
                }
            }
        }

        #[test]
        fn no_record_is_larger_than_it_may_be(
            entries in proptest::collection::vec(entry(), 1..30),
            most in 200_usize..2000,
        ) {
            let counts = stretches_within("ann", entries.iter(), most);
            let mut rest = &entries[..];
            for count in &counts {
                let some;
                (some, rest) = rest.split_at(*count);
                prop_assert!(*count == 1 || encode("ann", 7, some.iter()).len() <= most);
            }
            prop_assert!(rest.is_empty());
            // neighbours would not have fitted into one
            let mut at = 0;
            for pair in counts.windows(2) {
                prop_assert!(encode("ann", 7, entries[at..=at + pair[0]].iter()).len() > most);
                at += pair[0];
            }
            prop_assert_eq!(stretches_within("ann", entries.iter(), usize::MAX), vec![entries.len()]);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }
}
