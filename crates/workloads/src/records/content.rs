//! The content of a record: its key, and fields that carry the tag of their writer.

use std::{cell::Cell, ops::Range, sync::LazyLock};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::workload::in_range;

/// Length of the tag at the start of each field, in hexadecimal digits.
pub(crate) const TAG: usize = 16;

/// The text that fields are filled from: letters, digits, `-` and `_` only, so that no store has to escape any.
static POOL: LazyLock<String> = LazyLock::new(|| {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(0x5EED);
    (0..POOL_BYTES).map(|_| char::from(LETTERS[rng.random_range(0..LETTERS.len())])).collect()
});
const POOL_BYTES: usize = 1 << 20;

/// The layout of records, and how many are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Records that are loaded, numbered from 0.
    pub records: u64,
    /// Fields per record.
    pub fields: u16,
    /// Length of a field in bytes.
    pub field_bytes: u32,
    /// Whether ranges of keys are scanned, for stores that need an index for that.
    pub scans: bool,
}

impl Layout {
    /// Checks that the layout describes possible records.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub(crate) fn check(&self) -> Result<(), String> {
        in_range(&[
            ((1..=1_000_000_000).contains(&self.records), "records", "between 1 and 1,000,000,000"),
            ((1..=100).contains(&self.fields), "fields", "between 1 and 100"),
            ((16..=65_536).contains(&self.field_bytes), "field_bytes", "between 16 (its tag) and 65,536"),
        ])
    }

    /// How many records one request may hold: about `bytes` bytes of fields, and at most `most` records.
    #[must_use]
    pub fn batch(&self, bytes: u64, most: u64) -> u64 {
        let record = u64::from(self.fields) * u64::from(self.field_bytes);
        (bytes / record.max(1)).clamp(1, most)
    }

    /// Fills the fields that record `number` is loaded with: their tag is its number; its version is 0.
    pub fn fill(&self, number: u64, fields: &mut Fields) {
        fields.fill(self, number);
    }
}

/// Distributes the records to be loaded, in batches, to connections that load at the same time.
#[derive(Debug)]
pub struct Batches {
    next: Cell<u64>,
    records: u64,
    size: u64,
}

impl Batches {
    /// All records of a layout, in batches of `size`.
    #[must_use]
    pub fn of(layout: &Layout, size: u64) -> Self {
        Self { next: Cell::new(0), records: layout.records, size }
    }

    /// The numbers of the next batch; `None` when all have been taken.
    #[must_use]
    pub fn take(&self) -> Option<Range<u64>> {
        let first = self.next.get();
        let end = self.records.min(first.saturating_add(self.size));
        self.next.set(end);
        (first < end).then_some(first..end)
    }
}

/// The key of a record: `user` and a hash of its number, as in YCSB's hashed insert order
/// (`CoreWorkload.buildKeyName`), so that records with neighbouring numbers have distant keys.
#[must_use]
pub fn key_name(number: u64) -> String {
    format!("user{}", hash(number))
}

/// YCSB's `Utils.fnvhash64`: FNV-1 of the number's eight bytes, lowest first, without its sign.
#[must_use]
pub(crate) fn hash(number: u64) -> u64 {
    const OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
    const PRIME: u64 = 1_099_511_628_211;
    let hash = number
        .to_le_bytes()
        .into_iter()
        .fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    hash.cast_signed().unsigned_abs()
}

/// The fields of one record, built before the clock starts; their memory is reused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    text: String,
    each: usize,
    tag: u64,
}

impl Fields {
    /// Fills all fields, each beginning with the tag.
    pub fn fill(&mut self, layout: &Layout, tag: u64) {
        self.text.clear();
        self.each = layout.field_bytes as usize;
        self.tag = tag;
        for field in 0..layout.fields {
            push_hex(&mut self.text, tag);
            self.text.push_str(filler(tag, field, self.each));
        }
    }

    /// The tag, which identifies the write.
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Each field in turn.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        let count = self.text.len().checked_div(self.each).unwrap_or(0);
        (0..count).map(|field| &self.text[field * self.each..(field + 1) * self.each])
    }
}

fn push_hex(text: &mut String, tag: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in tag.to_be_bytes() {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

fn filler(tag: u64, field: u16, field_bytes: usize) -> &'static str {
    let length = field_bytes.saturating_sub(TAG);
    let room = (POOL_BYTES - length) as u64;
    let mixed = (tag ^ (u64::from(field) << 56)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    #[allow(clippy::cast_possible_truncation)] // below the pool's size
    let start = ((u128::from(mixed) * u128::from(room)) >> 64) as usize;
    &POOL[start..start + length]
}

/// The tag that all of a record's fields begin with; `None` where they disagree or were not written by acidtest.
/// The first 16 letters of each field are enough, but they must be exactly those that [`Fields::fill`] writes,
/// because other letters may be read as the same number.
#[must_use]
pub fn tag_of<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Option<u64> {
    let mut fields = fields.into_iter();
    let first = fields.next()?.get(..TAG)?;
    let ours = first.iter().all(|letter| matches!(letter, b'0'..=b'9' | b'a'..=b'f'));
    if !ours || !fields.all(|field| field.get(..TAG) == Some(first)) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(first).ok()?, 16).ok()
}

/// The tag of a record that was read in full; `None` unless its fields are letter for letter those that are written
/// with the tag.
#[must_use]
pub(crate) fn whole<'a>(layout: &Layout, fields: impl Iterator<Item = &'a [u8]> + Clone) -> Option<u64> {
    let tag = tag_of(fields.clone())?;
    let each = layout.field_bytes as usize;
    let as_many = fields.clone().count() == usize::from(layout.fields);
    let mut numbered = (0..layout.fields).zip(fields);
    let same = |(number, field): (u16, &[u8])| {
        field.len() == each && field.get(TAG..) == Some(filler(tag, number, each).as_bytes())
    };
    (as_many && numbered.all(same)).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { records: 10, fields: 10, field_bytes: 100, scans: false };

    #[test]
    fn keys_are_ycsb_s() {
        // the key of the first record in YCSB's documents and dumps
        assert_eq!(key_name(0), "user6284781860667377211");
    }

    #[test]
    fn a_batch_is_bounded_in_bytes_and_in_records() {
        let of = |fields, field_bytes| Layout { fields, field_bytes, ..LAYOUT }.batch(1 << 20, 1_000);
        assert_eq!([of(10, 100), of(100, 1_000), of(100, 65_536)], [1_000, 10, 1]);
    }

    #[test]
    fn every_record_is_handed_out_once() {
        let batches = Batches::of(&LAYOUT, 4);
        let taken: Vec<_> = std::iter::from_fn(|| batches.take()).collect();
        assert_eq!((taken, batches.take()), (vec![0..4, 4..8, 8..10], None));
    }

    #[test]
    fn fields_carry_their_tag_and_show_when_they_were_torn() {
        let (mut one, mut two) = (Fields::default(), Fields::default());
        one.fill(&LAYOUT, 0xABCD);
        two.fill(&LAYOUT, u64::MAX);
        let bytes =
            |fields: &Fields| fields.iter().map(|field| field.as_bytes().to_vec()).collect::<Vec<_>>();
        let read = |fields: &[Vec<u8>]| whole(&LAYOUT, fields.iter().map(Vec::as_slice));
        assert_eq!(one.iter().map(str::len).collect::<Vec<_>>(), [100; 10]);
        assert_eq!((read(&bytes(&one)), read(&bytes(&two))), (Some(0xABCD), Some(u64::MAX)));

        let mut mixed = bytes(&one);
        mixed[7] = bytes(&two)[7].clone();
        assert_eq!((read(&mixed), tag_of(mixed.iter().map(Vec::as_slice))), (None, None));
        let mut bent = bytes(&one);
        bent[3][99] ^= 1;
        assert_eq!(read(&bent), None);
        assert_eq!(read(&bytes(&one)[..9]), None);
        assert_eq!(read(&[]), None);
        let mut more = bytes(&one);
        more.push(more[9].clone());
        assert_eq!(read(&more), None);
    }

    #[test]
    fn a_tag_is_as_it_was_written_letter_by_letter() {
        let mut fields = Fields::default();
        fields.fill(&LAYOUT, 0xABCD);
        let with = |tag: &str| {
            let changed: Vec<String> = fields.iter().map(|field| format!("{tag}{}", &field[TAG..])).collect();
            let bytes = || changed.iter().map(String::as_bytes);
            (tag_of(bytes()), whole(&LAYOUT, bytes()))
        };
        assert_eq!(with("000000000000abcd"), (Some(0xABCD), Some(0xABCD)));
        for other in ["000000000000ABCD", "+00000000000abcd", " 00000000000abcd", "00000000000abcdé"] {
            assert_eq!(with(other), (None, None), "{other}");
        }
    }
}
