//! Records as documents: `{"key": …, "version": …, "field0": …}`.

use std::{borrow::Cow, fmt, io::Write};

use acidtest_workloads::records::{Answer, Fields, Lookup};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

/// Appends a text as a JSON string.
pub(crate) fn push_text(body: &mut Vec<u8>, text: &str) {
    // neither serializing a string nor writing to a vector can fail
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

/// Appends a record's fields alone, as an object.
pub(crate) fn push_fields(body: &mut Vec<u8>, fields: &Fields) {
    for (number, field) in fields.iter().enumerate() {
        let _ = write!(body, "{}\"field{number}\":", if number == 0 { '{' } else { ',' });
        push_text(body, field);
    }
    body.push(b'}');
}

/// A string borrowed from the answer, unless it holds escapes.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// A record as it was read; without fields where only the version was asked for.
#[derive(Debug)]
pub(crate) struct Document<'a> {
    pub(crate) version: u64,
    /// Number and value of each field, ascending by number.
    fields: Vec<(u16, Cow<'a, str>)>,
}

impl Document<'_> {
    /// Values of the fields, ascending by the fields' numbers.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &[u8]> {
        self.fields.iter().map(|(_, field)| field.as_bytes())
    }
}

/// The JSON found under a document's id, which need not be a record.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct StoredDocument<'a>(#[serde(borrow)] &'a RawValue);

impl<'a> StoredDocument<'a> {
    /// The document as it is.
    pub(crate) fn json(&self) -> &'a str {
        self.0.get()
    }

    /// The record; `None` if the document is no record.
    pub(crate) fn document(&self) -> Option<Document<'a>> {
        serde_json::from_str(self.0.get()).ok()
    }

    /// Looks up the record's version. The answer gets the record if `whole`, and is marked torn in any case if
    /// the document is no record.
    pub(crate) fn found(&self, whole: bool, answer: &mut Answer) -> Lookup {
        let Some(document) = self.document() else {
            answer.torn();
            return Lookup::Torn;
        };
        if whole {
            answer.record(document.version, document.fields());
        }
        Lookup::Record(document.version)
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

/// The answer to a get of a document that exists.
#[derive(Debug, Deserialize)]
pub(crate) struct GetAnswer<'a> {
    #[serde(rename = "_seq_no")]
    pub(crate) seq_no: u64,
    #[serde(rename = "_primary_term")]
    pub(crate) primary_term: u64,
    #[serde(rename = "_source", borrow)]
    pub(crate) kept: StoredDocument<'a>,
}

/// The answer to a search: one page of documents.
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
    hits: Vec<SearchHit<'a>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SearchHit<'a> {
    #[serde(rename = "_id", borrow)]
    pub(crate) id: Text<'a>,
    #[serde(rename = "_source", borrow)]
    pub(crate) kept: StoredDocument<'a>,
    /// The document's sort values, after which the next page can begin.
    #[serde(borrow)]
    sort: &'a RawValue,
}

impl SearchHit<'_> {
    /// The value of `search_after` for the page after this document.
    pub(crate) fn place(&self) -> Value {
        // cannot fail, as it was parsed as JSON before
        serde_json::from_str(self.sort.get()).unwrap_or_default()
    }
}

impl<'a> Page<'a> {
    /// The documents of the page, or an error if a shard failed or timed out, so that some may be missing.
    pub(crate) fn whole(self) -> Result<Vec<SearchHit<'a>>, String> {
        match (self.timed_out, self.shards.failed) {
            (false, 0) => Ok(self.hits.hits),
            (timed_out, failed) => {
                Err(format!("a part of the records alone: timed out: {timed_out}, shards failed: {failed}"))
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use acidtest_testbed::{Change, garble};
    use acidtest_workloads::records::{Layout, tag_of};
    use proptest::{prelude::*, sample::Index};

    use super::*;
    use crate::fault::Refusal;

    /// Random changes to the bytes of an answer.
    pub(crate) fn changes() -> impl Strategy<Value = Vec<Change>> {
        let byte = prop_oneof![any::<u8>(), prop::sample::select(b"{}[]\",:\\0-9.eEtn".to_vec())];
        prop::collection::vec((any::<Index>(), byte, any::<u8>()), 1..6)
    }

    /// An answer whose bytes were changed, as by a fault in transit.
    pub(crate) fn garbled(text: &str, changes: &[Change]) -> Vec<u8> {
        let mut bytes = text.as_bytes().to_vec();
        garble(&mut bytes, changes);
        bytes
    }

    proptest! {
        #[test]
        fn what_was_garbled_does_no_harm(changes in changes()) {
            let got = r#"{"_id":"u1","found":true,"_seq_no":1,"_primary_term":1,"_source":{"key":"u1","version":7,"field0":"a\u0063"}}"#;
            if let Ok(GetAnswer { kept, .. }) = serde_json::from_slice(&garbled(got, &changes)) {
                let mut answer = Answer::default();
                let found = kept.found(true, &mut answer);
                prop_assert_eq!(found == Lookup::Torn, kept.document().is_none());
            }
            let page = r#"{"timed_out":false,"_shards":{"failed":0},"hits":{"hits":[{"_id":"u1","_source":{"version":3},"sort":["u1"]}]}}"#;
            if let Ok(Ok(hits)) = serde_json::from_slice(&garbled(page, &changes)).map(Page::whole) {
                for hit in hits {
                    let _ = (hit.place(), hit.kept.document());
                }
            }
            let refused = r#"{"error":{"type":"x","reason":"y","caused_by":{"reason":"z"},"failed_shards":[{"reason":{}}]},"status":400}"#;
            let _ = Refusal::read(400, &garbled(refused, &changes)).to_string();
        }
    }

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

    #[test]
    fn what_is_kept_and_no_record_is_torn() {
        let found = |source: &str| {
            let text = format!(r#"{{"found":true,"_seq_no":1,"_primary_term":1,"_source":{source}}}"#);
            let got: GetAnswer<'_> = serde_json::from_str(&text).unwrap();
            let mut answer = Answer::default();
            (got.kept.found(true, &mut answer), format!("{answer:?}"))
        };
        let mut record = Answer::default();
        record.record(7, [&b"a"[..]]);
        assert_eq!(found(r#"{"version":7,"field0":"a"}"#), (Lookup::Record(7), format!("{record:?}")));
        let mut torn = Answer::default();
        torn.torn();
        for source in ["null", "7", "[]", "{}", r#"{"version":"x"}"#, r#"{"version":7,"field0":[]}"#] {
            assert_eq!(found(source), (Lookup::Torn, format!("{torn:?}")), "{source}");
        }
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
        assert_eq!((hits[0].id.0.as_ref(), hits[0].kept.document().unwrap().version), ("u1", 3));
        assert_eq!(hits[0].place(), serde_json::json!(["u1"]));
        for part in [page(true, 0), page(false, 1)] {
            assert!(page_of(&part).whole().is_err(), "{part}");
        }
    }
}
