//! Lengths of time, as they are written in plans and on the command line.

use std::{fmt, str::FromStr, time::Duration};

use jiff::{SignedDuration, SpanRelativeTo};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A length of time, written as `10s`, `500ms`, `1m 30s` or `30d`, of days of 24 hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // which has no days, but hours beyond the years of a calendar
        let of_hours = || text.parse::<SignedDuration>().ok();
        let of_days = || {
            let span: jiff::Span = text.parse().ok()?;
            span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()
        };
        let length = || Duration::try_from(of_hours().or_else(of_days)?).ok();
        length()
            .map(Self)
            .ok_or_else(|| format!("\"{text}\" is not a length of time: write 10s, 500ms, 1m 30s or 30d"))
    }
}

written!(Span);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SignedDuration::try_from(self.0) {
            Ok(span) => write!(f, "{span:#}"),
            Err(_) => write!(f, "{}s", self.0.as_secs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_back_as_written() {
        for text in ["10s", "500ms", "1m 30s", "2h"] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.to_string(), text);
            assert_eq!(span.to_string().parse::<Span>(), Ok(span));
        }
        for (text, hours) in [("30d", 720), ("1d 12h", 36), ("2w", 336)] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span, Span(Duration::from_secs(hours * 3600)));
            assert_eq!(span.to_string().parse::<Span>(), Ok(span));
        }
        assert_eq!("2000000000000h".parse(), Ok(Span(Duration::from_hours(2_000_000_000_000))));
        for text in ["", "10", "-3s", "-1d", "3 months", "soon"] {
            assert!(text.parse::<Span>().unwrap_err().contains("write 10s"), "{text}");
        }
    }
}
