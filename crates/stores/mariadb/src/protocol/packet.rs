//! Packets: pieces of at most 16 MB, which have a length and a number in front.

use acidtest_transport::Wire;
use bytes::{BufMut, BytesMut};

/// Bytes of a packet before its payload: the payload's length in three, and the packet's number.
pub(super) const HEADER: usize = 4;

/// The length of a packet's payload that goes on in the next packet.
pub(super) const SPLIT: usize = 0xFF_FFFF;

/// Appends what `write` appends as the payload of a packet with this number, or of more than one. Returns the number of the
/// next one.
pub(super) fn put(out: &mut BytesMut, number: u8, write: impl FnOnce(&mut BytesMut)) -> u8 {
    let start = out.len();
    out.put_bytes(0, HEADER);
    write(out);
    let length = out.len() - start - HEADER;
    if length < SPLIT {
        set_header(out, start, length, number);
        return number.wrapping_add(1);
    }
    let payload = out.split_off(start + HEADER);
    out.truncate(start);
    let mut number = number;
    // one that fills its last packet ends with an empty one
    let end = length.is_multiple_of(SPLIT).then_some(&[][..]);
    for part in payload.chunks(SPLIT).chain(end) {
        let start = out.len();
        out.put_bytes(0, HEADER);
        out.put_slice(part);
        set_header(out, start, part.len(), number);
        number = number.wrapping_add(1);
    }
    number
}

fn set_header(out: &mut BytesMut, start: usize, length: usize, number: u8) {
    let [first, second, third, ..] = length.to_le_bytes();
    if let Some(header) = out.get_mut(start..start + HEADER) {
        header.copy_from_slice(&[first, second, third, number]);
    }
}

/// Finds payloads among what has arrived.
#[derive(Debug, Default)]
pub(super) struct Packets {
    /// How much of a payload in several packets is in one piece behind the first one's header.
    joined: Option<usize>,
    /// The number that the next packet has.
    pub(super) number: u8,
}

/// The next payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// So many bytes are missing, as far as that is known.
    Missing(usize),
    /// All of it has come, and stands behind a header; whether its packets had the numbers that they should have.
    Whole { length: usize, in_order: bool },
}

impl Packets {
    /// Whether a part of the next payload was found.
    pub(super) fn is_within(&self) -> bool {
        self.joined.is_some()
    }

    pub(super) fn next(&mut self, wire: &mut Wire) -> Next {
        loop {
            let joined = self.joined.unwrap_or(0);
            let at = self.joined.map_or(0, |joined| HEADER + joined);
            let unread = wire.unread();
            let Some(&[first, second, third, number]) = unread.get(at..).and_then(<[u8]>::first_chunk) else {
                return Next::Missing(at + HEADER - unread.len());
            };
            let length = usize::from(first) | usize::from(second) << 8 | usize::from(third) << 16;
            if unread.len() < at + HEADER + length {
                return Next::Missing(at + HEADER + length - unread.len());
            }
            let in_order = number == self.number;
            self.number = number.wrapping_add(1);
            if at > 0 {
                wire.cut(at, HEADER);
            }
            if length < SPLIT {
                self.joined = None;
                return Next::Whole { length: joined + length, in_order };
            }
            self.joined = Some(joined + length);
            if !in_order {
                return Next::Whole { length: joined + length, in_order };
            }
        }
    }
}
