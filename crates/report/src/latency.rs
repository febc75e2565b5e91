//! Distributions of times, as results carry them.

use acidtest_engine::Histogram;
use base64::{Engine, engine::general_purpose::STANDARD};
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A distribution of times: its usual figures, and the whole of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyFigures {
    /// How many.
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
    /// The largest, in nanoseconds, to 3 digits.
    pub max_ns: u64,
    /// The histogram: `HdrHistogram` V2, uncompressed, in base64; 3 significant digits, values in
    /// nanoseconds.
    pub hdr_v2_base64: String,
}

/// A histogram in a result that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a histogram in the result cannot be read: {0}")]
pub struct UnreadableHistogram(String);

impl LatencyFigures {
    /// The figures of a histogram of nanoseconds.
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

    /// The whole distribution.
    ///
    /// # Errors
    /// A text that is no histogram.
    pub fn histogram(&self) -> Result<Histogram, UnreadableHistogram> {
        let unreadable = |error: &dyn std::fmt::Display| UnreadableHistogram(error.to_string());
        let encoded = STANDARD.decode(&self.hdr_v2_base64).map_err(|error| unreadable(&error))?;
        Deserializer::new().deserialize(&mut encoded.as_slice()).map_err(|error| unreadable(&error))
    }

    /// Several distributions as one; `None` of none.
    ///
    /// # Errors
    /// A text that is no histogram.
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
            let merged = LatencyFigures::merged([&figures, &of(&two)]).unwrap().unwrap();
            let direct = of(&both);
            prop_assert_eq!((merged.count, merged.p50_ns, merged.p999_ns), (direct.count, direct.p50_ns, direct.p999_ns));
        }
    }

    #[test]
    fn what_is_no_histogram_is_an_error() {
        for text in ["", "!", "AAAA"] {
            let figures = LatencyFigures { hdr_v2_base64: text.to_owned(), ..of(&[1]) };
            assert!(figures.histogram().is_err(), "{text:?}");
        }
    }
}
