//! Names of indices, and their encoding in paths.
//!
//! An index' name is of lower case, holds none of `\ / * ? " < > |`, space, comma, `#` and `:`, begins with none
//! of `- _ +`, and is of at most 255 bytes. All names of a namespace begin with its own and `--`. Characters that
//! an index' name may not hold, and `-` itself, are written as `-` and two hexadecimal digits for each byte, so
//! that no namespace's names hold another `--` and no two namespaces share a name.

use std::fmt::Write;

use acidtest_workloads::Place;

pub(crate) fn prefix(namespace: &str) -> String {
    format!("{}--", encoded(namespace))
}

/// The name of the index that says which run made the namespace.
pub(crate) fn mark(namespace: &str) -> String {
    format!("{}mark", prefix(namespace))
}

/// A trial's index, and the alias by which its clients write. A write to an index that does not exist creates it;
/// one to an alias can be told not to, so that a write that arrives after the trial's end finds no index and
/// leaves nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) index: String,
    pub(crate) alias: String,
}

impl Table {
    /// The one of the records.
    pub(crate) fn of(place: &Place) -> Self {
        Self::named(place, "usertable")
    }

    pub(crate) fn of_scans(place: &Place) -> Self {
        Self::named(place, "scans")
    }

    fn named(place: &Place, object: &str) -> Self {
        let index = format!("{}{}", prefix(&place.namespace), encoded(&place.object(object)));
        Self { alias: format!("{index}.w"), index }
    }
}

fn encoded(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 2);
    if !name.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit()) {
        // no index may begin with the next character; a dot occurs in no other name
        text.push_str("0.");
    }
    for &byte in name.as_bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'_' => text.push(char::from(byte)),
            // writing to a string cannot fail
            _ => drop(write!(text, "-{byte:02x}")),
        }
    }
    text
}

/// Appends a document's id, percent-encoded for a path.
pub(crate) fn push_id(path: &mut String, id: &str) {
    for &byte in id.as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                path.push(char::from(byte));
            }
            _ => drop(write!(path, "%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_command_line_lets_through_is_read_as_it_is() {
        let place = Place { namespace: "acidtest_2".to_owned(), trial: 7 };
        let table = Table::of(&place);
        assert_eq!(table.index, "acidtest_2--usertable_7");
        assert_eq!(table.alias, "acidtest_2--usertable_7.w");
        assert_eq!(mark("acidtest"), "acidtest--mark");
    }

    #[test]
    fn every_name_is_an_index_s_and_no_two_are_alike() {
        let names = [
            "acidtest",
            "acidtest-",
            "acidtest--",
            "Acidtest",
            "aCidtest",
            "é",
            "0é",
            "_a",
            "0._a",
            ".",
            "..",
            "",
            "0.",
            "a b",
            "a*",
            "-2d",
            "-",
            "100%_a]]b$$",
            "it's \"ours\"; -- é",
            "a/b\\c,d#e:f|g<h>i?",
        ];
        let all: Vec<String> = names.iter().map(|name| prefix(name)).collect();
        for (name, prefix) in names.iter().zip(&all) {
            let legal = |letter: char| {
                letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-_.".contains(letter)
            };
            assert!(prefix.chars().all(legal), "{name}: {prefix}");
            assert!(prefix.starts_with(|first: char| first.is_ascii_alphanumeric()), "{name}: {prefix}");
            let alike = all.iter().filter(|other| other.starts_with(prefix.as_str())).count();
            assert_eq!(alike, 1, "{name}: {prefix}");
        }
    }

    #[test]
    fn an_id_stays_one_part_of_its_path() {
        let mut path = "/t/_doc/".to_owned();
        push_id(&mut path, "user12/../?é");
        assert_eq!(path, "/t/_doc/user12%2F..%2F%3F%C3%A9");
    }
}
