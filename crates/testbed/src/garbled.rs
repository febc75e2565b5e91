//! Bytes that a fault on their way has changed, for the property tests of decoders.

use proptest::{
    collection::{SizeRange, vec},
    prelude::{Strategy, any},
    sample::Index,
};

/// One change: where, to which byte, and how. The place and the way are taken modulo what there is.
pub type Change = (Index, u8, u8);

/// Ways in which bytes are changed.
const WAYS: u8 = 4;

/// So many changes of any kind.
pub fn changes(count: impl Into<SizeRange>) -> impl Strategy<Value = Vec<Change>> {
    vec((any::<Index>(), any::<u8>(), 0..WAYS), count)
}

/// Changes bytes one after the other: one is replaced, put in or flipped in a bit, or all from it on are cut off.
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
