//! The content of a record: its key, and fields that carry the tag of their writer.

use std::{cell::Cell, iter, ops::Range, sync::LazyLock};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::workload::in_range;

/// Length of the tag at the start of each field, in hexadecimal digits.
pub(crate) const TAG: usize = 16;

/// The text that fields are slices of: letters, digits, `-` and `_` only, so that no store has to escape any.
static BLOCK: LazyLock<String> = LazyLock::new(|| {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(0x5EED);
    (0..STARTS + LONGEST as usize).map(|_| char::from(LETTERS[rng.random_range(0..LETTERS.len())])).collect()
});
/// Places of the block at which a slice may begin: so many that what a store compresses at once seldom holds one twice, and
/// a prime, so that no two fields of a record begin at the same.
const STARTS: usize = 1_048_573;
/// The longest field.
const LONGEST: u32 = 65_536;

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
            ((16..=LONGEST).contains(&self.field_bytes), "field_bytes", "between 16 (its tag) and 65,536"),
        ])
    }

    /// How many records one request may hold: about `bytes` bytes of fields, and at most `most` records.
    #[must_use]
    pub fn batch(&self, bytes: u64, most: u64) -> u64 {
        let record = u64::from(self.fields) * u64::from(self.field_bytes);
        (bytes / record.max(1)).clamp(1, most)
    }

    /// Bytes of a record: its key, `user` and up to 19 digits, and its fields.
    pub(crate) fn record_bytes(&self) -> u64 {
        23 + u64::from(self.fields) * u64::from(self.field_bytes)
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
    let mut key = String::new();
    put_key(&mut key, number);
    key
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
    count: usize,
    tag: u64,
}

impl Fields {
    /// Fills all fields, each beginning with the tag.
    pub fn fill(&mut self, layout: &Layout, tag: u64) {
        self.text.clear();
        self.each = layout.field_bytes as usize;
        self.count = layout.fields.into();
        self.tag = tag;
        let tag_digits = digits(tag);
        let block = BLOCK.as_str();
        // digits are text
        let header = str::from_utf8(&tag_digits).unwrap_or_default();
        for place in places(tag, self.each).take(layout.fields.into()) {
            self.text.push_str(header);
            self.text.push_str(&block[place]);
        }
    }

    /// The tag, which identifies the write.
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.tag
    }

    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        (0..self.count).map(|field| &self.text[field * self.each..(field + 1) * self.each])
    }
}

/// Where the block has what follows the tag in each field of a record, in turn. These slices follow each other, so that they
/// are read from the memory as one.
fn places(tag: u64, field_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let length = field_bytes.saturating_sub(TAG).min(LONGEST as usize);
    let mixed = tag.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    #[allow(clippy::cast_possible_truncation)] // below STARTS
    let mut start = ((u128::from(mixed) * STARTS as u128) >> 64) as usize;
    iter::repeat_with(move || {
        let place = start..start + length;
        start = if place.end < STARTS { place.end } else { place.end - STARTS };
        place
    })
}

fn digits(tag: u64) -> [u8; TAG] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; TAG];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(tag.to_be_bytes()) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    digits
}

/// The tag with exactly these digits.
fn tag_with(header: &[u8; TAG]) -> Option<u64> {
    let mut tag = 0;
    for digit in header {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        tag = tag << 4 | u64::from(digit);
    }
    Some(tag)
}

/// The tag that all of a record's fields begin with; `None` where they disagree or were not written by acidtest.
/// The first 16 letters of each field are enough, but they must be exactly those that [`Fields::fill`] writes,
/// because other letters may be read as the same number.
#[must_use]
pub fn tag_of<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Option<u64> {
    let mut fields = fields.into_iter();
    let header = fields.next()?.first_chunk()?;
    let tag = tag_with(header)?;
    fields.all(|field| field.first_chunk() == Some(header)).then_some(tag)
}

/// What the fields of a record that was read are, letter for letter: those that are written with a tag, so many and so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Content {
    pub(crate) tag: u64,
    fields: usize,
    field_bytes: usize,
}

impl Content {
    /// Compares the fields with the block, where they are. `None` unless all are as they are written with one tag.
    pub(crate) fn read<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let mut fields = fields.into_iter();
        let first = fields.next()?;
        let field_bytes = first.len();
        let header: &[u8; TAG] = first.first_chunk()?;
        let tag = tag_with(header)?;
        let block = BLOCK.as_bytes();
        let mut count = 0;
        for (field, place) in iter::once(first).chain(fields).zip(places(tag, field_bytes)) {
            let (own, rest) = field.split_first_chunk()?;
            if own != header || Some(rest) != block.get(place) {
                return None;
            }
            count += 1;
        }
        Some(Self { tag, fields: count, field_bytes })
    }

    /// Whether it is a whole record of this layout.
    pub(crate) fn fits(&self, layout: &Layout) -> bool {
        self.fields == usize::from(layout.fields) && self.field_bytes == layout.field_bytes as usize
    }
}

/// The key of a record, in the place of another.
pub(crate) fn put_key(key: &mut String, number: u64) {
    let mut digits = itoa::Buffer::new();
    key.clear();
    key.push_str("user");
    key.push_str(digits.format(hash(number)));
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const LAYOUT: Layout = Layout { records: 10, fields: 10, field_bytes: 100, scans: false };

    fn whole<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Option<u64> {
        Content::read(fields).filter(|content| content.fits(&LAYOUT)).map(|content| content.tag)
    }

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
        let read = |fields: &[Vec<u8>]| whole(fields.iter().map(Vec::as_slice));
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
        // as many as there were, but one of them a letter shorter, or all
        let mut short = bytes(&one);
        short[4].pop();
        assert_eq!(read(&short), None);
        for field in &mut short {
            field.truncate(50);
        }
        assert_eq!(read(&short), None);
    }

    /// Whatever becomes of a record's fields, or of their letters, it is found: that a record is whole is said of no other.
    #[test]
    fn nothing_but_a_whole_record_passes_for_one() {
        proptest!(|(
            tag in prop_oneof![0_u64..1000, any::<u64>()],
            other in any::<u64>(),
            fields in 1_u16..30,
            field_bytes in prop_oneof![17_u32..40, 17_u32..2_000, Just(32_784), Just(65_536)],
            place in any::<prop::sample::Index>(),
            second in any::<prop::sample::Index>(),
            letter in any::<prop::sample::Index>(),
            bits in 1_u8..,
        )| {
            let layout = Layout { fields, field_bytes, ..LAYOUT };
            let written = |tag| {
                let mut filled = Fields::default();
                filled.fill(&layout, tag);
                filled.iter().map(|field| field.as_bytes().to_vec()).collect::<Vec<_>>()
            };
            let read = |fields: &[Vec<u8>]| {
                let content = Content::read(fields.iter().map(Vec::as_slice));
                content.filter(|content| content.fits(&layout)).map(|content| content.tag)
            };
            let ours = written(tag);
            prop_assert_eq!(read(&ours), Some(tag));
            prop_assert_eq!(tag_of(ours.iter().map(Vec::as_slice)), Some(tag));
            let (place, second) = (place.index(ours.len()), second.index(ours.len()));
            let letter = letter.index(ours[place].len());
            let mut bent = ours.clone();
            bent[place][letter] ^= bits;
            let mut missing = ours.clone();
            missing.remove(place);
            let mut swapped = ours.clone();
            swapped.swap(place, second);
            // in part another writer's: from a letter of a field on, or a whole field
            let theirs = written(other);
            let mut torn = ours.clone();
            torn[place].truncate(letter);
            torn[place].extend_from_slice(&theirs[place][letter..]);
            let mut mixed = ours.clone();
            mixed[place].clone_from(&theirs[place]);
            for (changed, what) in [(bent, "bent"), (missing, "missing"), (swapped, "swapped"), (torn, "torn"), (mixed, "mixed")] {
                // fields of few letters may be, letter for letter, what is written with a third tag
                prop_assert!(read(&changed).is_none_or(|tag| changed == written(tag)), "{}", what);
            }
        });
    }

    #[test]
    fn what_follows_the_tag_differs_from_tag_to_tag() {
        let follows = |tag| {
            let mut fields = Fields::default();
            fields.fill(&LAYOUT, tag);
            fields.iter().map(|field| field[TAG..].to_owned()).collect::<Vec<_>>()
        };
        // whether the tags follow each other or differ in their first letters, as those of several clients do
        let tags = (1..=1_000).flat_map(|number| [number, number << 48 | 7]);
        let different: HashSet<_> = tags.map(follows).collect();
        // there are about a million slices, so of two thousand a few are the same
        assert!(different.len() > 1_980, "{}", different.len());
    }

    #[test]
    fn a_tag_is_as_it_was_written_letter_by_letter() {
        let mut fields = Fields::default();
        fields.fill(&LAYOUT, 0xABCD);
        let with = |tag: &str| {
            let changed: Vec<String> = fields.iter().map(|field| format!("{tag}{}", &field[TAG..])).collect();
            let bytes = || changed.iter().map(String::as_bytes);
            (tag_of(bytes()), whole(bytes()))
        };
        assert_eq!(with("000000000000abcd"), (Some(0xABCD), Some(0xABCD)));
        for other in ["000000000000ABCD", "+00000000000abcd", " 00000000000abcd", "00000000000abcdé"] {
            assert_eq!(with(other), (None, None), "{other}");
        }
    }
}
