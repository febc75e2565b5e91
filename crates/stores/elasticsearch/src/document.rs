//! Records as documents: `{"key": …, "version": …, "field0": …}`.

use std::{borrow::Cow, fmt, io::Write};

use acidtest_workloads::records::{Answer, Fields};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};

/// Appends a string as JSON.
pub(crate) fn push_text(body: &mut Vec<u8>, text: &str) {
    // neither a string nor a vector fails to take it
    let _ = serde_json::to_writer(body, text);
}

/// Appends a record's document.
pub(crate) fn push(body: &mut Vec<u8>, key: &str, version: u64, fields: &Fields) {
    body.extend_from_slice(b"{\"key\":");
    push_text(body, key);
    let _ = write!(body, ",\"version\":{version}");
    for (number, field) in fields.iter().enumerate() {
        let _ = write!(body, ",\"field{number}\":");
        push_text(body, field);
    }
    body.push(b'}');
}

/// Appends its fields alone, as an object.
pub(crate) fn push_fields(body: &mut Vec<u8>, fields: &Fields) {
    for (number, field) in fields.iter().enumerate() {
        let _ = write!(body, "{}\"field{number}\":", if number == 0 { '{' } else { ',' });
        push_text(body, field);
    }
    body.push(b'}');
}

/// A string that stays where it was read, unless it holds escapes.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// A record as it was found; of a part of it, its version alone.
#[derive(Debug)]
pub(crate) struct Document<'a> {
    pub(crate) version: u64,
    /// By their numbers, from the lowest.
    fields: Vec<(u16, Cow<'a, str>)>,
}

impl Document<'_> {
    /// Its fields in their order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &[u8]> {
        self.fields.iter().map(|(_, field)| field.as_bytes())
    }

    /// Hands it to whoever asked.
    pub(crate) fn answer(&self, answer: &mut Answer) {
        answer.record(self.version, self.fields());
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Document<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Document<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a record's document")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Document<'de>, A::Error> {
                let mut version = None;
                let mut fields = Vec::with_capacity(10);
                while let Some(Text(name)) = members.next_key()? {
                    if name == "version" {
                        version = Some(members.next_value()?);
                    } else if let Some(number) =
                        name.strip_prefix("field").and_then(|digits| digits.parse().ok())
                    {
                        let Text(field) = members.next_value()?;
                        fields.push((number, field));
                    } else {
                        members.next_value::<IgnoredAny>()?;
                    }
                }
                let version = version.ok_or_else(|| A::Error::missing_field("version"))?;
                if !fields.is_sorted_by_key(|(number, _)| *number) {
                    fields.sort_by_key(|(number, _)| *number);
                }
                Ok(Document { version, fields })
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// The answer to a get.
#[derive(Debug, Deserialize)]
pub(crate) struct Found<'a> {
    #[serde(rename = "_seq_no")]
    pub(crate) seq_no: u64,
    #[serde(rename = "_primary_term")]
    pub(crate) primary_term: u64,
    #[serde(rename = "_source", borrow)]
    pub(crate) document: Document<'a>,
}

/// The answer to a search.
#[derive(Debug, Deserialize)]
pub(crate) struct Page<'a> {
    timed_out: bool,
    #[serde(rename = "_shards")]
    shards: Shards,
    #[serde(borrow)]
    hits: Hits<'a>,
}

#[derive(Debug, Deserialize)]
struct Shards {
    failed: u32,
}

#[derive(Debug, Deserialize)]
struct Hits<'a> {
    #[serde(borrow)]
    hits: Vec<Hit<'a>>,
}

/// A document that a search found.
#[derive(Debug, Deserialize)]
pub(crate) struct Hit<'a> {
    #[serde(rename = "_id", borrow)]
    pub(crate) id: Text<'a>,
    #[serde(rename = "_source", borrow)]
    pub(crate) document: Document<'a>,
}

impl<'a> Page<'a> {
    /// What it found, if that is all that there is to be found.
    pub(crate) fn whole(self) -> Result<Vec<Hit<'a>>, String> {
        match (self.timed_out, self.shards.failed) {
            (false, 0) => Ok(self.hits.hits),
            (timed_out, failed) => {
                Err(format!("a part of the records alone: timed out: {timed_out}, shards failed: {failed}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use acidtest_workloads::records::{Layout, tag_of};

    use super::*;

    const LAYOUT: Layout = Layout { records: 1, fields: 12, field_bytes: 20, scans: false };

    fn fields() -> Fields {
        let mut fields = Fields::default();
        fields.fill(&LAYOUT, 0xAB);
        fields
    }

    #[test]
    fn a_document_reads_back_as_it_was_written() {
        let mut body = Vec::new();
        push(&mut body, "user\"1\"", 7, &fields());
        let document: Document<'_> = serde_json::from_slice(&body).unwrap();
        assert_eq!(document.version, 7);
        let read: Vec<&[u8]> = document.fields().collect();
        assert_eq!(read, fields().iter().map(str::as_bytes).collect::<Vec<_>>());
        assert_eq!(tag_of(document.fields()), Some(0xAB));
        assert!(document.fields.iter().all(|(_, field)| matches!(field, Cow::Borrowed(_))));

        let mut body = Vec::new();
        push_fields(&mut body, &fields());
        assert!(serde_json::from_slice::<serde_json::Value>(&body).unwrap().get("field11").is_some());
    }

    #[test]
    fn fields_come_in_any_order_and_with_escapes() {
        let text = r#"{"field10":"k","x":{"y":[1]},"field2":"\u0063","version":1,"field0":"a","fieldx":3}"#;
        let document: Document<'_> = serde_json::from_str(text).unwrap();
        assert_eq!(document.fields().collect::<Vec<_>>(), [b"a", b"c", b"k"]);
    }

    #[test]
    fn what_is_no_record_is_an_error() {
        for text in
            ["", "1", "[]", "{}", r#"{"version":-1}"#, r#"{"version":"1"}"#, r#"{"version":1,"field0":2}"#]
        {
            assert!(serde_json::from_str::<Document<'_>>(text).is_err(), "{text}");
        }
        let deep = "[".repeat(1 << 20);
        assert!(serde_json::from_str::<Document<'_>>(&format!(r#"{{"version":1,"x":{deep}"#)).is_err());
    }

    fn page_of(text: &str) -> Page<'_> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_page_that_is_not_whole_is_refused() {
        let page = |timed_out: bool, failed: u32| {
            format!(
                r#"{{"timed_out":{timed_out},"_shards":{{"failed":{failed}}},
                     "hits":{{"hits":[{{"_id":"u1","_source":{{"version":3}},"sort":["u1"]}}]}}}}"#
            )
        };
        let whole = page(false, 0);
        let hits = page_of(&whole).whole().unwrap();
        assert_eq!((hits[0].id.0.as_ref(), hits[0].document.version), ("u1", 3));
        for part in [page(true, 0), page(false, 1)] {
            assert!(page_of(&part).whole().is_err(), "{part}");
        }
    }
}
