//! Log entries that show by themselves whether they are whole.

use std::fmt::{self, Write};

/// Which entry it is: the client that sends it, and its place among that client's entries, both from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// The client's index in the trial.
    pub client: u32,
    /// The entry's place among the client's.
    pub sequence: u64,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.client, self.sequence)
    }
}

impl Id {
    /// The id that was written so, behind what the ids of the trial begin with; none if it is nobody's here.
    fn read(text: &str, prefix: &str) -> Option<Self> {
        let text = text.strip_prefix(prefix)?;
        let (client, sequence) = text.split_once('-')?;
        let id = Self { client: client.parse().ok()?, sequence: sequence.parse().ok()? };
        // one entry has one id: others that read the same are not ours
        (id.to_string() == text).then_some(id)
    }
}

const LEVELS: [&str; 4] = ["debug", "info", "warn", "error"];
const APPLICATION: &str = "acidtest";
/// Between the text of a message and its checksum.
const SUM: &str = " #";
/// Fills messages up to their length.
const WORDS: &str = "was paid by card and handed over to the parcel service ";

/// An entry as a client sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub id: Id,
    /// Its id as it is sent.
    pub key: String,
    /// When it happened: microseconds since 1970.
    pub timestamp: i64,
    /// How grave it is.
    pub level: &'static str,
    /// What it tells, with the checksum at its end.
    pub message: String,
}

impl Entry {
    /// The entry with this id and moment, whose message has this many bytes, or as many as it needs. Its id is sent with
    /// this prefix.
    #[must_use]
    pub fn new(prefix: &str, id: Id, timestamp: i64, message_bytes: usize) -> Self {
        let key = format!("{prefix}{id}");
        let turn = usize::try_from(id.sequence % LEVELS.len() as u64).unwrap_or_default();
        let level = LEVELS[turn];
        let mut message = format!("order {key} ");
        let text = message_bytes.saturating_sub(SUM.len() + 8);
        while message.len() < text {
            let left = text - message.len();
            message.push_str(&WORDS[..left.min(WORDS.len())]);
        }
        let sum = sum(&key, timestamp, level, APPLICATION, &message);
        // writing into a string cannot fail
        let _ = write!(message, "{SUM}{sum:08x}");
        Self { id, key, timestamp, level, message }
    }

    /// Appends the entry as a line of JSON.
    pub(super) fn write(&self, body: &mut String) {
        let Self { key, timestamp, level, message, .. } = self;
        let moment = jiff::Timestamp::from_microsecond(*timestamp).unwrap_or_default();
        // writing into a string cannot fail; nothing here has to be escaped
        let _ = writeln!(
            body,
            r#"{{"id":"{key}","timestamp":"{moment}","level":"{level}","application":"{APPLICATION}","message":"{message}"}}"#
        );
    }

    /// The entry as a store gives it back, if it is kept as it was sent.
    #[must_use]
    pub fn stored(&self) -> StoredEntry<'_> {
        StoredEntry {
            id: &self.key,
            timestamp: self.timestamp,
            level: self.level,
            application: APPLICATION,
            message: &self.message,
            attributes: None,
        }
    }
}

fn sum(id: &str, timestamp: i64, level: &str, application: &str, text: &str) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    for part in [id, level, application, text] {
        sum.update(part.as_bytes());
        sum.update(&[0]);
    }
    sum.update(&timestamp.to_le_bytes());
    sum.finalize()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredEntry<'a> {
    pub id: &'a str,
    /// When it happened: microseconds since 1970.
    pub timestamp: i64,
    /// How grave it is.
    pub level: &'a str,
    /// Who has written it.
    pub application: &'a str,
    pub message: &'a str,
    /// What else it has, as JSON.
    pub attributes: Option<&'a str>,
}

impl StoredEntry<'_> {
    /// Which entry it is; none if it is no entry of a client of a trial whose ids have this prefix.
    #[must_use]
    pub fn id(&self, prefix: &str) -> Option<Id> {
        Id::read(self.id, prefix)
    }

    /// Whether it is as it was sent, by its checksum.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let Some((text, written)) = self.message.rsplit_once(SUM) else { return false };
        let right = sum(self.id, self.timestamp, self.level, self.application, text);
        written == format!("{right:08x}") && self.attributes.is_none()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// An entry that comes back as it was sent is whole, and none is that differs from it anywhere.
        #[test]
        fn a_change_is_seen(
            prefix in "[a-z0-9-]{0,12}", client: u32, sequence: u64, timestamp in 0..1_i64 << 50, bytes in 0_usize..400, at: usize, to in b' '..b'~',
        ) {
            let entry = Entry::new(&prefix, Id { client, sequence }, timestamp, bytes);
            prop_assert!(entry.message.len() >= bytes && entry.message.len() <= bytes.max(72));
            let stored = entry.stored();
            prop_assert!(stored.is_whole());
            prop_assert_eq!(stored.id(&prefix), Some(entry.id));
            let changed = |text: &str| {
                let mut bytes = text.as_bytes().to_vec();
                let place = at % bytes.len();
                bytes[place] = if bytes[place] == to { b'~' } else { to };
                String::from_utf8(bytes).unwrap()
            };
            let others = [changed(&entry.key), changed(entry.level), changed(APPLICATION), changed(&entry.message)];
            let [id, level, application, message] = &others;
            let shorter = &entry.message[..entry.message.len() - 1];
            let changed = [
                StoredEntry { id, ..stored },
                StoredEntry { level, ..stored },
                StoredEntry { application, ..stored },
                StoredEntry { message, ..stored },
                StoredEntry { message: shorter, ..stored },
                StoredEntry { timestamp: timestamp + 1, ..stored },
                StoredEntry { attributes: Some("{}"), ..stored },
            ];
            for changed in changed {
                prop_assert!(!changed.is_whole(), "{:?}", changed);
            }
        }
    }

    #[test]
    fn an_entry_has_one_id() {
        for text in ["", "1", "-", "1-", "01-2", "1-02", "+1-2", "1-2 ", "a-1", "1-2-3", "4294967296-1"] {
            assert_eq!(Id::read(text, ""), None, "{text}");
        }
        let id = Some(Id { client: 7, sequence: 12 });
        assert_eq!(Id::read("7-12", ""), id);
        assert_eq!(Id::read("run-1-7-12", "run-1-"), id);
        for text in ["7-12", "run-2-7-12", "run-1-7", "run-1-run-1-7-12"] {
            assert_eq!(Id::read(text, "run-1-"), None, "{text}");
        }
    }

    #[test]
    fn an_entry_is_a_line_of_json() {
        let entry = Entry::new("", Id { client: 3, sequence: 1 }, 1_790_000_000_123_456, 100);
        let mut body = String::new();
        entry.write(&mut body);
        let read: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(read["message"], entry.message);
        assert_eq!(read["id"], "3-1");
        assert_eq!(read["timestamp"], "2026-09-21T14:13:20.123456Z");
        assert!(body.ends_with("}\n"));
    }
}
