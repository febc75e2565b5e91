//! Lengths of time, as they are written in plans and on the command line.

use std::{fmt, str::FromStr, time::Duration};

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A length of time, written as `10s`, `500ms` or `1m 30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let length = text.parse::<SignedDuration>().ok().and_then(|span| Duration::try_from(span).ok());
        length.map(Self).ok_or_else(|| format!("\"{text}\" is no length of time: write 10s, 500ms or 1m 30s"))
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
        for text in ["", "10", "-3s", "soon"] {
            assert!(text.parse::<Span>().unwrap_err().contains("write 10s"), "{text}");
        }
    }
}
