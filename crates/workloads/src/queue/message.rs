//! The content of a message: an id, the time at which it was sent, and a checksum over all of it.

use serde::{Deserialize, Serialize};

/// Bytes at the start of every message: checksum (4), producer (4), sequence (8), nanoseconds (8), little-endian.
pub const HEADER: usize = 24;

/// The identity of a message: its producer and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// The producer's index; [`LOADED`] for a message of the backlog.
    pub producer: u32,
    /// The message's number, counted from 0 by each producer.
    pub sequence: u64,
}

/// The producer index of the backlog, which is loaded before any client starts.
pub const LOADED: u32 = u32::MAX;

/// Bytes as text, where a message goes to another process.
pub(crate) mod as_base64 {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// A message to be published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The bytes that are sent; the first [`HEADER`] of them hold checksum, id and time.
    #[serde(with = "as_base64")]
    pub body: Vec<u8>,
}

impl Message {
    /// Replaces the message by the one of this id: `bytes` long, sent `stamp` nanoseconds after the trial's clock
    /// began.
    pub(crate) fn write(&mut self, id: Id, stamp: u64, bytes: usize) {
        let body = &mut self.body;
        body.clear();
        body.extend_from_slice(&[0; 4]);
        body.extend_from_slice(&id.producer.to_le_bytes());
        body.extend_from_slice(&id.sequence.to_le_bytes());
        body.extend_from_slice(&stamp.to_le_bytes());
        // no two messages are alike, and a store cannot compress them
        let mut word = id.sequence ^ u64::from(id.producer) << 32;
        while body.len() < bytes {
            word = word.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_add(1);
            let rest = (bytes - body.len()).min(8);
            body.extend_from_slice(&word.to_le_bytes()[..rest]);
        }
        let sum = crc32fast::hash(&body[4..]);
        body[..4].copy_from_slice(&sum.to_le_bytes());
    }

    /// A message of the backlog, for stores that only pretend to hold one.
    #[must_use]
    pub fn loaded(sequence: u64, bytes: u32) -> Self {
        let mut message = Self::default();
        message.write(Id { producer: LOADED, sequence }, 0, bytes as usize);
        message
    }

    /// The id as text, `producer-sequence`, by which a store can recognise a duplicate.
    #[must_use]
    pub fn name(&self) -> String {
        read(&self.body, self.body.len())
            .map_or_else(String::new, |(id, _)| format!("{}-{}", id.producer, id.sequence))
    }
}

/// The id and the time stamp of a message; `None` unless it is whole and `bytes` long.
pub(crate) fn read(body: &[u8], bytes: usize) -> Option<(Id, u64)> {
    if body.len() != bytes {
        return None;
    }
    let (sum, rest) = body.split_first_chunk()?;
    let (producer, tail) = rest.split_first_chunk()?;
    let (sequence, tail) = tail.split_first_chunk()?;
    let (stamp, _) = tail.split_first_chunk()?;
    let id = Id { producer: u32::from_le_bytes(*producer), sequence: u64::from_le_bytes(*sequence) };
    (crc32fast::hash(rest) == u32::from_le_bytes(*sum)).then(|| (id, u64::from_le_bytes(*stamp)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_message_reads_back_as_written(producer: u32, sequence: u64, stamp: u64, bytes in HEADER..300) {
            let id = Id { producer, sequence };
            let mut message = Message::default();
            message.write(id, stamp, bytes);
            prop_assert_eq!(message.body.len(), bytes);
            prop_assert_eq!(read(&message.body, bytes), Some((id, stamp)));
            prop_assert_eq!(message.name(), format!("{producer}-{sequence}"));
        }

        #[test]
        fn no_damage_goes_unseen(bytes in HEADER..200, at: prop::sample::Index, bit in 0_u8..8, cut: prop::sample::Index) {
            let mut message = Message::default();
            message.write(Id { producer: 3, sequence: 9 }, 77, bytes);
            let mut flipped = message.body.clone();
            flipped[at.index(bytes)] ^= 1 << bit;
            prop_assert_eq!(read(&flipped, bytes), None);
            prop_assert_eq!(read(&message.body[..cut.index(bytes)], bytes), None);
        }
    }
}
