//! What is wrong with a value that could not be read, in plain words instead of those of the reader.

use crate::{count, hint};

/// A key or a word that is not known where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// Whether it is a key; otherwise it is the value of one.
    pub is_key: bool,
    /// The name that is not known.
    pub name: String,
    /// The names that are known there.
    pub known: Vec<String>,
}

impl UnknownName {
    /// What a message of serde's names; none if it is about something else.
    #[must_use]
    pub fn of(message: &str) -> Option<Self> {
        let (is_key, rest) = [(true, "unknown field `"), (false, "unknown variant `")]
            .into_iter()
            .find_map(|(is_key, head)| Some((is_key, message.strip_prefix(head)?)))?;
        // the name may contain any text
        let (name, expected) =
            rest.rsplit_once("`, expected ").or_else(|| rest.rsplit_once("`, there are no "))?;
        let known = expected.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Some(Self { is_key, name: name.to_owned(), known })
    }

    /// The text `; did you mean "…"?` with the nearest known name, or an empty text.
    #[must_use]
    pub fn hint(&self) -> String {
        hint(&self.name, self.known.iter().map(String::as_str))
    }
}

/// The type that a value must have, in plain words instead of type names; none if the error is not about a type.
#[must_use]
pub fn expected(message: &str) -> Option<String> {
    let rest =
        ["invalid type: ", "invalid value: "].into_iter().find_map(|head| message.strip_prefix(head))?;
    // the value that was found may contain any text
    let (_, expected) = rest.rsplit_once(", expected ")?;
    // of a value of another type the range is not what is wrong; the plan's own check says what a number may be
    let is_number = message.starts_with("invalid value: ");
    let to = |most: u64| {
        if is_number {
            format!("a whole number from 0 to {}", count(most))
        } else {
            "a whole number".to_owned()
        }
    };
    Some(match expected.lines().next().unwrap_or_default() {
        "u8" => to(u8::MAX.into()),
        "u16" => to(u16::MAX.into()),
        "u32" => to(u32::MAX.into()),
        "u64" => "a whole number, 0 or above".to_owned(),
        "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a table of values by name".to_owned(),
        // a type that is read from words has a name of its own in the message
        _ => "a word".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_found_whatever_it_contains() {
        let of = |message| {
            let UnknownName { is_key, name, known } = UnknownName::of(message)?;
            Some((is_key, name, known.join(" ")))
        };
        for (message, is_key, name, known) in [
            ("unknown variant `sof`, t`, expected `soft` or `hard`", false, "sof`, t", "soft hard"),
            ("unknown field `a`, expected one of `b`, `c`, `d`", true, "a", "b c d"),
            ("unknown field `a`, there are no fields", true, "a", ""),
        ] {
            assert_eq!(of(message), Some((is_key, name.to_owned(), known.to_owned())));
        }
        assert_eq!(of("invalid type: string, expected u8"), None);
    }
}
