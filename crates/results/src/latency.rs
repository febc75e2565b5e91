//! Distributions of times, in the form that results store them in.

use acidtest_engine::Histogram;
use base64::{Engine, engine::general_purpose::STANDARD};
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A distribution of times: its usual figures, and its whole histogram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyFigures {
    /// Number of times in the distribution.
    pub count: u64,
    /// Mean, in nanoseconds.
    pub mean_ns: f64,
    /// Median, in nanoseconds.
    pub p50_ns: u64,
    /// 95th percentile, in nanoseconds.
    pub p95_ns: u64,
    /// 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// 99.9th percentile, in nanoseconds.
    pub p999_ns: u64,
    /// The longest time, in nanoseconds, to 3 significant digits.
    pub max_ns: u64,
    /// The histogram: `HdrHistogram` V2, uncompressed, in base64; 3 significant digits, values in
    /// nanoseconds.
    pub hdr_v2_base64: String,
}

/// Fewest times beyond a percentile with which it is shown: p50 of 20 times or more, p95 of 200, p99 of 1,000, p99.9 of 10,000.
/// With fewer of them it is about the maximum, and another trial would show another one: beyond the true percentile there are
/// 10 ± 3 times by chance.
const BEYOND: f64 = 10.0;

/// How many times a percentile takes to be shown.
#[must_use]
pub fn enough(percent: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a small number
    let times = (BEYOND * 100.0 / (100.0 - percent)).round() as u64;
    times
}

/// Whether so many times are enough to show a percentile of them.
#[must_use]
pub fn is_enough(times: u64, percent: f64) -> bool {
    // a share such as 1 - 0.999 is not exact
    times as f64 * (100.0 - percent) / 100.0 > BEYOND - 1e-6
}

/// A histogram in a result that cannot be decoded; the text says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a histogram in the result cannot be read: {0}")]
pub struct UnreadableHistogram(String);

impl LatencyFigures {
    /// The figures of a histogram whose values are nanoseconds.
    #[must_use]
    pub fn of(histogram: &Histogram) -> Self {
        let mut encoded = Vec::new();
        // writing into memory cannot fail; an empty text would be refused when it is read
        let _ = V2Serializer::new().serialize(histogram, &mut encoded);
        Self {
            count: histogram.len(),
            mean_ns: histogram.mean(),
            p50_ns: histogram.value_at_quantile(0.50),
            p95_ns: histogram.value_at_quantile(0.95),
            p99_ns: histogram.value_at_quantile(0.99),
            p999_ns: histogram.value_at_quantile(0.999),
            max_ns: histogram.max(),
            hdr_v2_base64: STANDARD.encode(encoded),
        }
    }

    /// The median in nanoseconds, as it is shown: `None` where there are too few times for it.
    #[must_use]
    pub fn p50(&self) -> Option<u64> {
        is_enough(self.count, 50.0).then_some(self.p50_ns)
    }

    /// The same of the 95th percentile.
    #[must_use]
    pub fn p95(&self) -> Option<u64> {
        is_enough(self.count, 95.0).then_some(self.p95_ns)
    }

    /// The same of the 99th percentile.
    #[must_use]
    pub fn p99(&self) -> Option<u64> {
        is_enough(self.count, 99.0).then_some(self.p99_ns)
    }

    /// The same of the 99.9th percentile.
    #[must_use]
    pub fn p999(&self) -> Option<u64> {
        is_enough(self.count, 99.9).then_some(self.p999_ns)
    }

    /// Decodes the whole distribution.
    ///
    /// # Errors
    /// A text that is no histogram of this form.
    pub fn histogram(&self) -> Result<Histogram, UnreadableHistogram> {
        let unreadable = |error: &dyn std::fmt::Display| UnreadableHistogram(error.to_string());
        let encoded = STANDARD.decode(&self.hdr_v2_base64).map_err(|error| unreadable(&error))?;
        if !is_ours(&encoded) {
            return Err(unreadable(&"it is not of the form that is written here"));
        }
        Deserializer::new().deserialize(&mut encoded.as_slice()).map_err(|error| unreadable(&error))
    }

    /// Several distributions merged into one; `None` if there are none.
    ///
    /// # Errors
    /// A text that is no histogram of this form.
    pub fn merged<'a>(
        several: impl IntoIterator<Item = &'a Self>,
    ) -> Result<Option<Self>, UnreadableHistogram> {
        let mut all: Option<Histogram> = None;
        for one in several {
            let histogram = one.histogram()?;
            match &mut all {
                None => all = Some(histogram),
                Some(all) => {
                    all.auto(true);
                    all.add(&histogram).map_err(|error| UnreadableHistogram(error.to_string()))?;
                }
            }
        }
        Ok(all.as_ref().map(Self::of))
    }
}

/// The fixed parts of the head of every histogram that is written here: `HdrHistogram` V2, uncompressed, not shifted,
/// of three digits, from 1 on. The length of its counts, the highest value and a ratio vary.
const COOKIE: u32 = 0x1c84_9313;
const DIGITS: u32 = 3;
const LOWEST: u64 = 1;

/// Most values of a histogram that is read: more than the operations of any run.
const MOST: u64 = 1 << 53;

/// Whether bytes are a histogram as it is written here. Checked first because the decoder reserves memory for as many
/// counts as the bytes claim, and adds counts and negates runs of zeroes without a check of their size.
fn is_ours(encoded: &[u8]) -> bool {
    let read = || {
        let (cookie, rest) = encoded.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (shift, rest) = rest.split_first_chunk()?;
        let (digits, rest) = rest.split_first_chunk()?;
        let (lowest, rest) = rest.split_first_chunk()?;
        // skips the highest value and a ratio, 16 bytes together
        let (_, counts) = rest.split_first_chunk::<16>()?;
        let head = [cookie, shift, digits].map(|each| u32::from_be_bytes(*each));
        let fits = head == [COOKIE, 0, DIGITS] && u64::from_be_bytes(*lowest) == LOWEST;
        let whole = usize::try_from(u32::from_be_bytes(*length)).ok()? == counts.len();
        (fits && whole).then_some(())?;
        sum(counts)
    };
    read().is_some_and(|all| all <= MOST)
}

/// The sum of all counts; `None` of bytes that are no counts. Each count is a number in groups of seven bits, the
/// lowest group first, a ninth group of eight bits; an even number is twice a count, an odd one stands for zeroes.
fn sum(counts: &[u8]) -> Option<u64> {
    let mut bytes = counts.iter().copied().peekable();
    let mut all = 0_u64;
    while bytes.peek().is_some() {
        let mut number = 0;
        for place in 0..9 {
            let byte = bytes.next()?;
            let is_last = place == 8 || byte < 0x80;
            let bits = if place == 8 { byte } else { byte & 0x7f };
            number |= u64::from(bits) << (7 * place);
            if is_last {
                break;
            }
        }
        match number {
            u64::MAX => return None,
            number if number % 2 == 0 => all = all.checked_add(number / 2)?,
            _ => {}
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> LatencyFigures {
        let mut histogram = Histogram::new_with_bounds(1, 1 << 20, 3).unwrap();
        histogram.auto(true);
        for &value in values {
            histogram.record(value).unwrap();
        }
        LatencyFigures::of(&histogram)
    }

    proptest! {
        #[test]
        fn a_distribution_reads_back_and_merges(
            one in prop::collection::vec(1u64..100_000_000_000, 1..50),
            two in prop::collection::vec(1u64..100_000_000_000, 1..50),
        ) {
            let figures = of(&one);
            prop_assert_eq!(LatencyFigures::of(&figures.histogram().unwrap()), figures.clone());
            let both: Vec<u64> = one.iter().chain(&two).copied().collect();
            prop_assert_eq!(sum(&STANDARD.decode(&figures.hdr_v2_base64).unwrap()[40..]), Some(one.len() as u64));
            let merged = LatencyFigures::merged([&figures, &of(&two)]).unwrap().unwrap();
            let direct = of(&both);
            prop_assert_eq!((merged.count, merged.p50_ns, merged.p999_ns), (direct.count, direct.p50_ns, direct.p999_ns));
        }
    }

    #[test]
    fn a_percentile_needs_ten_times_beyond_it() {
        let shown = |count| {
            let times = LatencyFigures { count, ..of(&[7]) };
            [times.p50(), times.p95(), times.p99(), times.p999()].map(|shown| shown.is_some())
        };
        assert_eq!(shown(19), [false; 4]);
        assert_eq!(shown(40), [true, false, false, false]);
        assert_eq!([shown(199), shown(200)].map(|shown| shown[1]), [false, true]);
        assert_eq!([shown(999), shown(1_000)].map(|shown| shown[2]), [false, true]);
        assert_eq!([shown(9_999), shown(10_000)].map(|shown| shown[3]), [false, true]);
        assert_eq!([50.0, 95.0, 99.0, 99.9].map(enough), [20, 200, 1_000, 10_000]);
    }

    #[test]
    fn what_is_no_histogram_is_an_error() {
        for text in ["", "!", "AAAA"] {
            let figures = LatencyFigures { hdr_v2_base64: text.to_owned(), ..of(&[1]) };
            assert!(figures.histogram().is_err(), "{text:?}");
        }
    }

    /// The bytes of a histogram with this head and these counts.
    fn encoded(cookie: u32, length: u32, shift: u32, digits: u32, lowest: u64, counts: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for each in [cookie, length, shift, digits] {
            bytes.extend(each.to_be_bytes());
        }
        bytes.extend(lowest.to_be_bytes());
        bytes.extend(u64::MAX.to_be_bytes());
        bytes.extend(1.0_f64.to_be_bytes());
        bytes.extend(counts);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Histogram, UnreadableHistogram> {
        LatencyFigures { hdr_v2_base64: STANDARD.encode(bytes), ..of(&[1]) }.histogram()
    }

    #[test]
    fn what_a_histogram_claims_is_looked_at_before_it_is_believed() {
        let counts = [4, 2];
        let sound = encoded(COOKIE, 2, 0, DIGITS, LOWEST, &counts);
        assert_eq!(read(&sound).unwrap().len(), 3);
        let wrong = [
            // claims four GiB of counts, and has two bytes of them
            encoded(COOKIE, u32::MAX, 0, DIGITS, LOWEST, &counts),
            encoded(COOKIE, 3, 0, DIGITS, LOWEST, &counts),
            encoded(COOKIE, 1, 0, DIGITS, LOWEST, &counts),
            // the compressed form, which may expand to any size
            encoded(0x1c84_9314, 2, 0, DIGITS, LOWEST, &counts),
            encoded(COOKIE, 2, 7, DIGITS, LOWEST, &counts),
            encoded(COOKIE, 2, 0, 5, LOWEST, &counts),
            encoded(COOKIE, 2, 0, DIGITS, u64::MAX, &counts),
            // more zeroes than a number can count, and more counts than any run has
            encoded(COOKIE, 9, 0, DIGITS, LOWEST, &[0xff; 9]),
            encoded(COOKIE, 9, 0, DIGITS, LOWEST, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            encoded(COOKIE, 2, 0, DIGITS, LOWEST, &[4, 0x80]),
        ];
        for bytes in wrong {
            assert!(read(&bytes).is_err(), "{bytes:x?}");
            assert!((0..sound.len()).all(|end| read(&sound[..end]).is_err()));
        }
    }
}
