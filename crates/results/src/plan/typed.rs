//! How the value of an option is typed.

use std::fmt::Display;

use acidtest_model::{
    Bytes, Consistency, Durability, Encryption, Faults, Growth, Lock, Objective, PerSecond, Promotion, Reads,
    Replication, Route, Share, Span,
};

use super::ArrivalKind;

/// How many words an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// None: it is a flag.
    Nothing,
    /// One.
    Word,
    /// Several, with commas between them.
    List,
}

/// A value that an option can have.
pub(super) trait Typed: Sized {
    /// How many words are typed for it.
    const TAKES: Takes;

    /// The words that are typed for it; none for a flag, and for what is not there.
    fn typed(&self) -> Vec<String>;

    /// Reads it from the words that were typed. The error says what is wrong with one of them.
    fn read(words: &[String]) -> Result<Self, String>;
}

/// What a word says that stands for one value.
fn one<T, E: Display>(words: &[String], read: impl Fn(&str) -> Result<T, E>) -> Result<T, String> {
    let [word] = words else { return Err("takes one value".to_owned()) };
    read(word).map_err(|error| error.to_string())
}

/// Types that are typed as one word, as they are shown.
macro_rules! typed_as_shown {
    ($($type:ty: $read:expr),*) => {$(
        impl Typed for $type {
            const TAKES: Takes = Takes::Word;

            fn typed(&self) -> Vec<String> {
                vec![self.to_string()]
            }

            fn read(words: &[String]) -> Result<Self, String> {
                one(words, $read)
            }
        }
    )*};
}

typed_as_shown!(
    u32: whole,
    u64: str::parse::<u64>,
    f64: str::parse::<f64>,
    String: str::parse::<String>,
    Span: str::parse::<Span>,
    Bytes: str::parse::<Bytes>,
    PerSecond: str::parse::<PerSecond>,
    Share: str::parse::<Share>,
    Growth: str::parse::<Growth>,
    Promotion: str::parse::<Promotion>,
    ArrivalKind: str::parse::<ArrivalKind>
);

fn whole(word: &str) -> Result<u32, String> {
    let number: i64 = word.parse().map_err(|error: std::num::ParseIntError| error.to_string())?;
    u32::try_from(number).map_err(|_| beyond(number))
}

fn beyond(number: impl Display) -> String {
    format!("{number} is not in 0..={}", u32::MAX)
}

impl Typed for bool {
    const TAKES: Takes = Takes::Nothing;

    fn typed(&self) -> Vec<String> {
        Vec::new()
    }

    fn read(_: &[String]) -> Result<Self, String> {
        Ok(true)
    }
}

impl<T: Typed> Typed for Option<T> {
    const TAKES: Takes = T::TAKES;

    fn typed(&self) -> Vec<String> {
        self.as_ref().map_or_else(Vec::new, Typed::typed)
    }

    fn read(words: &[String]) -> Result<Self, String> {
        T::read(words).map(Some)
    }
}

impl<T: Listed> Typed for Vec<T> {
    const TAKES: Takes = Takes::List;

    fn typed(&self) -> Vec<String> {
        self.iter().map(ToString::to_string).collect()
    }

    fn read(words: &[String]) -> Result<Self, String> {
        let values: Result<Vec<Vec<T>>, String> = words.iter().map(|word| T::listed(word)).collect();
        Ok(values?.concat())
    }
}

/// A value of a list.
pub(super) trait Listed: Clone + Display {
    /// What a word of a list stands for, which may be several values.
    fn listed(word: &str) -> Result<Vec<Self>, String>;
}

macro_rules! listed {
    ($($type:ty),*) => {$(
        impl Listed for $type {
            fn listed(word: &str) -> Result<Vec<Self>, String> {
                word.parse().map(|value| vec![value]).map_err(|error: <$type as std::str::FromStr>::Err| error.to_string())
            }
        }
    )*};
}

listed!(String, Lock, Durability, Encryption, Replication, Reads, Route, Consistency, Faults, Objective);

/// Numbers of clients: each, or a range of them.
impl Listed for u32 {
    fn listed(word: &str) -> Result<Vec<Self>, String> {
        no_group(word)?;
        let numbers = match number_range(word) {
            Some(range) => range?,
            None => vec![word.parse().map_err(|_| "write a number, or FIRST..LAST:STEP".to_owned())?],
        };
        let narrow = |number| Self::try_from(number).map_err(|_| beyond(number));
        numbers.into_iter().map(narrow).collect()
    }
}

/// Rates as demands are written (`8000`, `350M/day`), in operations a second.
impl Listed for f64 {
    fn listed(word: &str) -> Result<Vec<Self>, String> {
        no_group(word)?;
        let rate = word.parse().ok().or_else(|| word.parse().ok().map(|PerSecond(rate)| rate));
        match rate {
            Some(rate) if rate > 0.0 && rate.is_finite() => Ok(vec![rate]),
            _ => {
                Err("must be a number above 0, such as 8000 or 8000/s; a comma separates several".to_owned())
            }
        }
    }
}

/// Most numbers that a range may stand for.
pub const LONGEST_RANGE: usize = 10_000;

/// The numbers that a range like `3..66:9` stands for, the last included; none if the text is no range.
#[must_use]
pub fn number_range(text: &str) -> Option<Result<Vec<u64>, String>> {
    let (first, rest) = text.split_once("..")?;
    let (last, step) = rest.split_once(':').unwrap_or((rest, "1"));
    let [first, last, step] = [first, last, step].map(|part| part.parse::<u64>().ok());
    let (first, last, step) = (first?, last?, step?);
    if step == 0 || last < first {
        return Some(Err(format!("\"{text}\" is empty: write FIRST..LAST:STEP, as in 3..66:9")));
    }
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    let numbers: Vec<u64> = (first..=last).step_by(step).take(LONGEST_RANGE + 1).collect();
    Some(if numbers.len() > LONGEST_RANGE {
        Err(format!("\"{text}\" holds more than {LONGEST_RANGE} numbers"))
    } else {
        Ok(numbers)
    })
}

/// Refuses a number that begins with zeros that mean nothing: whoever writes 70,000 has written 70 and 000.
///
/// # Errors
/// It is one.
pub fn no_group(text: &str) -> Result<(), String> {
    let is_number = text.bytes().all(|letter| letter.is_ascii_digit());
    if text.len() > 1 && text.starts_with('0') && is_number {
        return Err("a comma separates values, and no number begins with 0: write 8,000 as 8000".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_its_ends() {
        assert_eq!(u32::listed("3..66:9"), Ok(vec![3, 12, 21, 30, 39, 48, 57, 66]));
        assert_eq!(u32::listed("2..4"), Ok(vec![2, 3, 4]));
        assert_eq!(u32::listed("16"), Ok(vec![16]));
        for (text, said) in [
            ("5..3", "is empty"),
            ("1..9:0", "is empty"),
            ("4294967296", "4294967296 is not in 0..=4294967295"),
            ("00", "no number begins with 0"),
            ("1..1000000", "more than"),
            ("x", "write a number"),
            ("1..x", "write a number"),
        ] {
            let error = u32::listed(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
