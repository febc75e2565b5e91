//! Maps whose keys are numbers: nobody chooses them to do harm, so a multiplication spreads them well enough.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasherDefault, Hasher},
};

pub(crate) type Map<V> = HashMap<u64, V, BuildHasherDefault<Mix>>;
pub(crate) type Set = HashSet<u64, BuildHasherDefault<Mix>>;

#[derive(Clone, Copy, Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        // tables use the lowest bits and the highest; the product mixes only the upper ones well
        self.0.rotate_left(32)
    }
}
