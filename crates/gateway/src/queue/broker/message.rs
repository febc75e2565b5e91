//! Records as a message of a broker.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8, 4 | `acidlog1`; a checksum of all that follows |
//! | then, of each record: | |
//! | 4, 4 | how many entries it holds, and the length of its content, little-endian |
//! | n | its content (`entry::record`) |

use bytes::Bytes;

use super::MESSAGE;
use crate::{entry, queue::Record};

const NAME: &[u8; 8] = b"acidlog1";
/// How messages of all versions begin.
const FAMILY: &[u8] = b"acidlog";
/// Bytes of a message without its records, and of a record without its content.
pub(super) const HEAD: usize = 12;
pub(super) const RECORD_HEAD: usize = 8;

/// A message without records.
pub(super) fn begin() -> Vec<u8> {
    let mut message = Vec::with_capacity(1024);
    message.extend(NAME);
    message.extend([0; HEAD - NAME.len()]);
    message
}

pub(super) fn add(message: &mut Vec<u8>, record: &Record) {
    message.extend(record.entries.to_le_bytes());
    // a record is far smaller
    message.extend(u32::try_from(record.bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    message.extend(&record.bytes[..]);
}

/// Writes the checksum, when all records are there.
pub(super) fn end(message: &mut [u8]) {
    if let Some((head, rest)) = message.split_at_mut_checked(HEAD)
        && let Some(crc) = head.last_chunk_mut()
    {
        *crc = crc32fast::hash(rest).to_le_bytes();
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Records(Vec<Record>),
    /// A gateway of another version has made it.
    OfAnotherVersion,
    /// No gateway has made it, or it is not as it was made.
    Nonsense,
}

pub(super) fn decode(message: &Bytes) -> Content {
    if message.starts_with(FAMILY) && !message.starts_with(NAME) && message.len() >= HEAD {
        return Content::OfAnotherVersion;
    }
    records(message).map_or(Content::Nonsense, Content::Records)
}

fn records(message: &Bytes) -> Option<Vec<Record>> {
    if message.len() > MESSAGE {
        return None;
    }
    let (crc, rest) = message.strip_prefix(NAME)?.split_first_chunk()?;
    if u32::from_le_bytes(*crc) != crc32fast::hash(rest) {
        return None;
    }
    let (mut records, mut at) = (Vec::new(), HEAD);
    while at < message.len() {
        let (entries, rest) = message.get(at..)?.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let length =
            usize::try_from(u32::from_le_bytes(*length)).ok().filter(|length| *length <= rest.len())?;
        at += RECORD_HEAD;
        let record = Record { entries: u32::from_le_bytes(*entries), bytes: message.slice(at..at + length) };
        // what is in it is stored later, and what is not understood then would be lost
        let holds = entry::decode(&record.bytes)?.entries.len();
        if holds == 0 || holds != usize::try_from(record.entries).ok()? {
            return None;
        }
        records.push(record);
        at += length;
    }
    (!records.is_empty()).then_some(records)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::entry::{Entry, Level};

    /// A record of entries with these messages.
    fn record(messages: &[String]) -> Record {
        let entry = |message: &String| Entry {
            id: "1".into(),
            timestamp: 7,
            level: Level::Info,
            application: "a".into(),
            message: message.clone().into(),
            attributes: None,
        };
        let entries: Vec<Entry<'_>> = messages.iter().map(entry).collect();
        let count = u32::try_from(entries.len()).unwrap();
        Record { entries: count, bytes: entry::encode("ann", 7, entries.iter()).into() }
    }

    fn of(records: &[Record]) -> Vec<u8> {
        let mut message = begin();
        for record in records {
            add(&mut message, record);
        }
        end(&mut message);
        message
    }

    proptest! {
        #[test]
        fn a_message_that_was_changed_is_none(
            messages in prop::collection::vec(prop::collection::vec("[a-z]{0,20}", 1..4), 1..5),
            place in any::<prop::sample::Index>(),
            change in 1..=255_u8,
            cut in any::<prop::sample::Index>(),
        ) {
            let records: Vec<Record> = messages.iter().map(|messages| record(messages)).collect();
            let mut message = of(&records);
            prop_assert_eq!(decode(&message.clone().into()), Content::Records(records));
            prop_assert_eq!(decode(&message[..cut.index(message.len())].to_vec().into()), Content::Nonsense);
            let place = place.index(message.len());
            message[place] ^= change;
            let wanted = if place == 7 { Content::OfAnotherVersion } else { Content::Nonsense };
            prop_assert_eq!(decode(&message.into()), wanted);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut message = begin();
            message.extend(&bytes);
            end(&mut message);
            let _ = (decode(&message.into()), decode(&bytes.into()));
        }
    }

    /// What could not be stored, or would be held without being seen, is none.
    #[test]
    fn a_message_of_records_that_are_none_is_none() {
        let good = record(&["a".to_owned(), "b".to_owned()]);
        let empty = record(&[]);
        for bad in [
            Record { entries: 1, ..good.clone() },
            Record { entries: 3, ..good.clone() },
            Record { entries: 1, bytes: b"no record".to_vec().into() },
            Record { entries: 0, ..empty.clone() },
        ] {
            assert_eq!(decode(&of(&[good.clone(), bad]).into()), Content::Nonsense);
        }
        assert_eq!(decode(&of(&[]).into()), Content::Nonsense);
        let large = record(&vec!["x".repeat(60 << 10); 3]);
        assert_eq!(decode(&of(&[large]).into()), Content::Nonsense);
    }
}
