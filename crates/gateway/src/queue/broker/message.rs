//! Records as a message of a broker.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8, 4 | `acidlog1`; a checksum of all that follows |
//! | then, of each record: | |
//! | 4, 4 | how many entries it holds, and the length of its content, little-endian |
//! | n | its content (`entry::record`) |

use bytes::Bytes;

use crate::queue::Record;

const NAME: &[u8; 8] = b"acidlog1";
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

/// The records in a message. `None` if no gateway has made the message, or it is not as it was made.
pub(super) fn decode(message: Vec<u8>) -> Option<Vec<Record>> {
    let message = Bytes::from(message);
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
        records.push(Record { entries: u32::from_le_bytes(*entries), bytes: message.slice(at..at + length) });
        at += length;
    }
    Some(records)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(contents: &[Vec<u8>]) -> (Vec<u8>, Vec<Record>) {
        let mut message = begin();
        let mut records = Vec::new();
        for content in contents {
            let record = Record { entries: 7, bytes: content.clone().into() };
            add(&mut message, &record);
            records.push(record);
        }
        end(&mut message);
        (message, records)
    }

    proptest! {
        #[test]
        fn a_message_that_was_changed_is_none(
            contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..5),
            place in any::<prop::sample::Index>(),
            change in 1..=255_u8,
            cut in any::<prop::sample::Index>(),
        ) {
            let (mut message, records) = message(&contents);
            prop_assert_eq!(decode(message.clone()), Some(records));
            prop_assert_eq!(decode(message[..cut.index(message.len())].to_vec()), None);
            let place = place.index(message.len());
            message[place] ^= change;
            prop_assert_eq!(decode(message), None);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut message = begin();
            message.extend(&bytes);
            end(&mut message);
            let _ = (decode(message), decode(bytes));
        }
    }
}
