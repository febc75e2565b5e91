//! Reads result files.

use serde::Deserialize;
use serde_json::Value;

use crate::{FORMAT, RunResult};

/// The reason why a file cannot be read as a result.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableResult {
    #[error("it is not JSON: {0}")]
    NoJson(serde_json::Error),
    /// The JSON has no version of a result format.
    #[error("it is not a result of acidtest: it names no format")]
    NoFormat,
    /// The result is of another format than [`FORMAT`].
    #[error("its format is {0} and this acidtest reads {FORMAT}; use the acidtest that wrote it")]
    OtherFormat(u64),
    /// A member is missing or has a value of another type.
    #[error("it is not a result of acidtest: {0}")]
    NoResult(#[from] serde_json::Error),
}

/// Reads a result.
///
/// # Errors
/// A text that is no result, or a result of another format.
pub fn read(text: &str) -> Result<RunResult, UnreadableResult> {
    /// The member that every result has, whatever its format.
    #[derive(Deserialize)]
    struct Head {
        format: Value,
    }
    let format = match serde_json::from_str::<Head>(text) {
        Err(error) if !error.is_data() => return Err(UnreadableResult::NoJson(error)),
        head => head.ok().and_then(|Head { format }| format.as_u64()).ok_or(UnreadableResult::NoFormat)?,
    };
    if format != u64::from(FORMAT) {
        return Err(UnreadableResult::OtherFormat(format));
    }
    Ok(serde_json::from_str(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Grid;

    #[test]
    fn a_result_is_read_as_it_was_written() {
        let result = Grid::default().result();
        assert_eq!(read(&serde_json::to_string(&result).unwrap()).unwrap(), result);
    }

    #[test]
    fn what_is_no_result_is_refused_with_the_reason() {
        for (text, said) in [
            ("{\"format\": 1", "it is not JSON: "),
            ("[]", "it names no format"),
            ("{\"format\": \"3\"}", "it names no format"),
            ("{\"format\": 2}", "its format is 2 and this acidtest reads 3; use the acidtest that wrote it"),
            ("{\"format\": 4}", "its format is 4 and this acidtest reads 3; use the acidtest that wrote it"),
            ("{\"format\": 3}", "it is not a result of acidtest: missing field"),
            ("{\"format\": 3, \"run\": 1}", "it is not a result of acidtest: invalid type"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
