//! Changes to bytes as by a fault on their way, for the property tests of decoders.

use proptest::{
    collection::{SizeRange, vec},
    prelude::{Strategy, any},
    sample::Index,
};

/// One change for [`garble`]: its index in the bytes, the byte to write, and the way in which the bytes are changed,
/// modulo the number of ways, 4.
pub type Change = (Index, u8, u8);

/// Number of ways in which [`garble`] changes bytes.
const WAYS: u8 = 4;

/// Draws this number of changes, of any kind.
pub fn changes(count: impl Into<SizeRange>) -> impl Strategy<Value = Vec<Change>> {
    vec((any::<Index>(), any::<u8>(), 0..WAYS), count)
}

/// Applies the changes one after the other: each replaces a byte, inserts one, flips a bit of one, or cuts the bytes
/// off there.
pub fn garble(bytes: &mut Vec<u8>, changes: &[Change]) {
    for (at, byte, how) in changes {
        if bytes.is_empty() {
            return;
        }
        let at = at.index(bytes.len());
        match how % WAYS {
            0 => bytes[at] = *byte,
            1 => bytes.insert(at, *byte),
            2 => bytes.truncate(at),
            _ => bytes[at] ^= 1 << (byte % 8),
        }
    }
}
