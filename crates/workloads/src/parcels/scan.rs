//! Scans and parcels: what is drawn, and how its texts are made.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Most scans of a parcel.
pub const MOST: u8 = 7;

/// Letters of the columns, in the order in which [`Scan`] keeps them: `SCAN_HASH`, `SCAN_TYPE`, `MACHINE_TYPE` and
/// `SEQUENCE_CODE`, as the published table has them.
const WIDTHS: [usize; 4] = [11, 3, 10, 5];

/// Letters of all texts of a scan.
const WIDTH: usize = 29;

/// The kinds of scans on a parcel's way.
const KINDS: [&[u8; 3]; 7] = [b"ACC", b"SRT", b"DEP", b"ARR", b"OUT", b"DLV", b"POD"];

/// The texts of a scan, one after the other.
pub(super) type Texts = [u8; WIDTH];

/// A scan by its number: one of the seven that a parcel gets, or an eighth, which is to be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScanNumber {
    /// The scan with this place in the stream of scans.
    Regular(u64),
    /// The eighth scan of the parcel with this number.
    Eighth(u64),
}

impl ScanNumber {
    /// As one number.
    fn code(self) -> u64 {
        match self {
            Self::Regular(number) => number * 2,
            Self::Eighth(parcel) => parcel * 2 + 1,
        }
    }

    fn of(code: u64) -> Self {
        if code.is_multiple_of(2) { Self::Regular(code / 2) } else { Self::Eighth(code / 2) }
    }
}

/// A parcel: its number, and its `SCAN_HASH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// Its number, from 0.
    pub number: u64,
    hash: [u8; WIDTHS[0]],
}

impl Parcel {
    #[must_use]
    pub fn of(number: u64) -> Self {
        let mut hash = [0; WIDTHS[0]];
        // 56 bits are fewer than 36^11, so that no two parcels share a hash
        write_base36(&mut hash, mixed(number) & ((1 << 56) - 1));
        Self { number, hash }
    }

    /// Its `SCAN_HASH`: 11 letters and digits.
    #[must_use]
    pub fn hash(&self) -> &str {
        text(&self.hash)
    }
}

/// A scan as it is sent: the columns that the client gives. The store gives `SCAN_ID`, `SCAN_COUNT` and `LOAD_DATE`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(ScanNumber, u64)", into = "(ScanNumber, u64)")]
pub struct Scan {
    number: ScanNumber,
    parcel: u64,
    texts: Texts,
}

impl Scan {
    pub(super) fn of(number: ScanNumber, parcel: u64) -> Self {
        let mut texts = [0; WIDTH];
        let [hash, kind, machine, code] = columns_mut(&mut texts);
        hash.copy_from_slice(&Parcel::of(parcel).hash);
        let mark = mixed(number.code() ^ parcel.rotate_left(32));
        kind.copy_from_slice(KINDS[usize::try_from(mark % 7).unwrap_or_default()]);
        write_base36(machine, number.code());
        write_base36(code, mark >> 8);
        Self { number, parcel, texts }
    }

    /// A scan of the same parcel that no client ever sends, for a store with a planted bug.
    #[must_use]
    pub fn as_nobody_sent(&self) -> Self {
        let (ScanNumber::Regular(number) | ScanNumber::Eighth(number)) = self.number;
        Self::of(ScanNumber::Regular(number | 1 << 40), self.parcel)
    }

    #[must_use]
    pub fn number(&self) -> ScanNumber {
        self.number
    }

    /// The number of its parcel.
    #[must_use]
    pub fn parcel(&self) -> u64 {
        self.parcel
    }

    /// `SCAN_HASH`, 11 letters and digits.
    #[must_use]
    pub fn hash(&self) -> &str {
        self.column(0)
    }

    /// `SCAN_TYPE`, 3 letters.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.column(1)
    }

    /// `MACHINE_TYPE`, 10 letters and digits: they tell the scan from every other one.
    #[must_use]
    pub fn machine(&self) -> &str {
        self.column(2)
    }

    /// `SEQUENCE_CODE`, 5 letters and digits: a checksum.
    #[must_use]
    pub fn code(&self) -> &str {
        self.column(3)
    }

    fn column(&self, column: usize) -> &str {
        let start = WIDTHS[..column].iter().sum::<usize>();
        text(&self.texts[start..start + WIDTHS[column]])
    }
}

impl From<(ScanNumber, u64)> for Scan {
    fn from((number, parcel): (ScanNumber, u64)) -> Self {
        Self::of(number, parcel)
    }
}

impl From<Scan> for (ScanNumber, u64) {
    fn from(scan: Scan) -> Self {
        (scan.number, scan.parcel)
    }
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of parcel {} ({})", self.number, self.parcel, text(&self.texts))
    }
}

/// A scan as the store has it, with what the store has given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredScan {
    /// `SCAN_ID`; none where it is no number from 0 up.
    pub id: Option<u64>,
    /// `SCAN_COUNT`; none where it is no number from 0 up.
    pub count: Option<u64>,
    /// Whether it has a `LOAD_DATE`.
    pub is_dated: bool,
    /// The texts; none where one of them has another length than any that was sent.
    pub(super) texts: Option<Texts>,
}

impl StoredScan {
    /// A row with these values of `SCAN_HASH`, `SCAN_TYPE`, `MACHINE_TYPE` and `SEQUENCE_CODE`, in this order.
    #[must_use]
    pub fn new(id: Option<u64>, count: Option<u64>, is_dated: bool, texts: [&[u8]; 4]) -> Self {
        let fits = texts.iter().zip(WIDTHS).all(|(text, width)| text.len() == width);
        let texts = fits.then(|| {
            let mut all = [0; WIDTH];
            let mut start = 0;
            for text in texts {
                all[start..start + text.len()].copy_from_slice(text);
                start += text.len();
            }
            all
        });
        Self { id, count, is_dated, texts }
    }

    /// The row of this scan, with this `SCAN_ID` and `SCAN_COUNT`.
    #[must_use]
    pub fn with(scan: &Scan, id: u64, count: u64) -> Self {
        Self { id: Some(id), count: Some(count), is_dated: true, texts: Some(scan.texts) }
    }

    /// The number of the scan that it says it is; none if that is no number.
    pub(super) fn number(&self) -> Option<ScanNumber> {
        let mut texts = self.texts?;
        let [_, _, machine, _] = columns_mut(&mut texts);
        read_base36(machine).map(ScanNumber::of)
    }

    /// Whether its texts are those of the scan.
    pub(super) fn is(&self, scan: &Scan) -> bool {
        self.texts == Some(scan.texts)
    }
}

/// Text of letters and digits.
fn text(bytes: &[u8]) -> &str {
    // they are of ASCII, as they were written here
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// The columns of a scan's texts.
fn columns_mut(texts: &mut Texts) -> [&mut [u8]; 4] {
    let (hash, rest) = texts.split_at_mut(WIDTHS[0]);
    let (kind, rest) = rest.split_at_mut(WIDTHS[1]);
    let (machine, code) = rest.split_at_mut(WIDTHS[2]);
    [hash, kind, machine, code]
}

const DIGITS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Fills a text with the last digits of a number to the base of 36.
fn write_base36(text: &mut [u8], mut number: u64) {
    for letter in text.iter_mut().rev() {
        *letter = DIGITS[usize::try_from(number % 36).unwrap_or_default()];
        number /= 36;
    }
}

fn read_base36(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0_u64, |number, letter| {
        let digit = DIGITS.iter().position(|digit| digit == letter)?;
        number.checked_mul(36)?.checked_add(digit as u64)
    })
}

/// Mixes the bits of a number, so that its neighbours look unlike it. Of numbers below 2^56 the last 56 bits are all
/// different.
fn mixed(number: u64) -> u64 {
    const MASK: u64 = (1 << 56) - 1;
    let low = number & MASK;
    let low = (low ^ low >> 28).wrapping_mul(0xBF_5847_6D1C_E4B9) & MASK;
    let low = (low ^ low >> 27).wrapping_mul(0x94_D049_BB13_3111) & MASK;
    (low ^ low >> 29) | (number ^ low << 8) & !MASK
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_stored_scan_is_known_by_its_texts(number in 0..1_u64 << 40, parcel in 0..1_u64 << 40, eighth: bool) {
            let number = if eighth { ScanNumber::Eighth(number) } else { ScanNumber::Regular(number) };
            let scan = Scan::of(number, parcel);
            let texts = [scan.hash(), scan.kind(), scan.machine(), scan.code()].map(str::as_bytes);
            prop_assert_eq!(texts.map(<[u8]>::len), WIDTHS);
            let stored = StoredScan::new(Some(7), Some(1), true, texts);
            prop_assert_eq!(stored, StoredScan::with(&scan, 7, 1));
            prop_assert_eq!(stored.number(), Some(number));
            prop_assert!(stored.is(&scan) && !stored.is(&Scan::of(number, parcel + 1)));
            let parcel = Parcel::of(parcel);
            prop_assert_eq!(scan.hash(), parcel.hash());
        }
    }

    #[test]
    fn a_row_of_other_lengths_is_no_scan() {
        let scan = Scan::of(ScanNumber::Regular(1), 2);
        let texts = [scan.hash(), "AC", scan.machine(), scan.code()].map(str::as_bytes);
        let stored = StoredScan::new(Some(1), Some(1), true, texts);
        assert!(stored.number().is_none() && !stored.is(&scan));
    }

    #[test]
    fn no_two_parcels_share_a_hash() {
        let hashes: HashSet<String> =
            (0..100_000).map(|parcel| Parcel::of(parcel).hash().to_owned()).collect();
        assert_eq!(hashes.len(), 100_000);
    }
}
