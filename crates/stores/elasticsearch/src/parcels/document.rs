//! Scans as documents: `{"hash": …, "type": …, "count": …, "machine": …, "code": …, "date": …}`, whose id is the scan's.

use std::io::Write;

use acidtest_workloads::parcels::{Scan, StoredScan};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    document::Text,
    fault::{Error, Refusal, kind},
};

/// Appends a scan's document.
pub(super) fn push(body: &mut Vec<u8>, scan: &Scan, count: u8, date: u64) {
    // writing to a vector cannot fail, and the texts are letters and digits
    let _ = write!(
        body,
        "{{\"hash\":\"{}\",\"type\":\"{}\",\"count\":{count},\"machine\":\"{}\",\"code\":\"{}\",\"date\":{date}}}",
        scan.hash(),
        scan.kind(),
        scan.machine(),
        scan.code(),
    );
}

/// Appends the two lines of a bulk request that write a scan.
pub(super) fn push_line(body: &mut Vec<u8>, action: &str, id: u64, scan: &Scan, count: u8, date: u64) {
    let _ = writeln!(body, "{{\"{action}\":{{\"_id\":\"{id}\"}}}}");
    push(body, scan, count, date);
    body.push(b'\n');
}

/// The body of a request for the documents with these ids.
pub(super) fn ids(ids: impl Iterator<Item = u64>) -> Bytes {
    let mut body = Vec::with_capacity(128);
    body.extend_from_slice(b"{\"ids\":");
    for (index, id) in ids.enumerate() {
        let _ = write!(body, "{}\"{id}\"", if index == 0 { '[' } else { ',' });
    }
    body.extend_from_slice(b"]}");
    body.into()
}

/// A scan's document, in which each value may be anything.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Document<'a> {
    #[serde(borrow)]
    hash: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    count: Option<&'a RawValue>,
    #[serde(borrow)]
    machine: Option<&'a RawValue>,
    #[serde(borrow)]
    code: Option<&'a RawValue>,
    #[serde(borrow)]
    date: Option<&'a RawValue>,
}

/// The scan with this document, whatever that is.
pub(super) fn decode(id: &Text<'_>, source: &str) -> StoredScan {
    let document: Document<'_> = serde_json::from_str(source).unwrap_or_default();
    let number = |value: Option<&RawValue>| serde_json::from_str::<u64>(value?.get()).ok();
    let texts = [document.hash, document.kind, document.machine, document.code].map(text);
    let texts = texts.each_ref().map(|text| text.as_ref().map_or(&b""[..], |Text(text)| text.as_bytes()));
    let is_dated = number(document.date).is_some_and(|date| date > 0);
    StoredScan::new(id_of(&id.0), number(document.count), is_dated, texts)
}

fn text(value: Option<&RawValue>) -> Option<Text<'_>> {
    serde_json::from_str(value?.get()).ok()
}

/// The number that is an id; none if it is no scan's.
fn id_of(id: &str) -> Option<u64> {
    // another way to write a number is another id
    id.starts_with(|first: char| first.is_ascii_digit() && first != '0').then(|| id.parse().ok())?
}

/// The answer to a request for several documents.
#[derive(Debug, Deserialize)]
pub(super) struct Documents<'a> {
    #[serde(borrow)]
    docs: Vec<Asked<'a>>,
}

/// A document that was asked for by its id.
#[derive(Debug, Deserialize)]
struct Asked<'a> {
    #[serde(rename = "_id", borrow)]
    id: Text<'a>,
    found: Option<bool>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(rename = "_source", borrow, default)]
    source: Option<&'a RawValue>,
}

impl Documents<'_> {
    /// Hands each document that is there to `each`: which of these ids it is, as it is written, and the document. An error
    /// if the answer is not about these ids, or one could not be looked for.
    pub(super) fn found(
        self,
        ids: impl Iterator<Item = u64>,
        mut each: impl FnMut(usize, &Text<'_>, &str),
    ) -> Result<(), Error> {
        let nonsense = |words: String| Err(Error::Nonsense(words));
        let mut docs = self.docs.into_iter();
        for (place, id) in ids.enumerate() {
            let Some(Asked { id: answered, found, error, source }) = docs.next() else {
                return nonsense(format!("no answer for the document {id}"));
            };
            if id_of(&answered.0) != Some(id) {
                return nonsense(format!("the document {} where {id} was asked for", answered.0));
            }
            match (found, error) {
                (_, Some(error)) => return Err(unread(error)),
                (Some(true), None) => each(place, &answered, source.map_or("", RawValue::get)),
                (Some(false), None) => {}
                (None, None) => return nonsense(format!("the document {id} is neither there nor not")),
            }
        }
        match docs.next() {
            Some(_) => nonsense("more documents than were asked for".to_owned()),
            None => Ok(()),
        }
    }
}

/// The reason why a document could not be looked for.
fn unread(error: &RawValue) -> Error {
    let unknown =
        || Refusal { status: 503, kind: "unknown".to_owned(), reason: "a document was not read".to_owned() };
    let mut refusal = Refusal::of(503, error.get()).unwrap_or_else(unknown);
    if refusal.kind == kind::NO_INDEX {
        refusal.status = 404;
    }
    Error::Refused(refusal)
}

/// The answer to a get of a document that exists.
#[derive(Debug, Deserialize)]
pub(super) struct Single<'a> {
    #[serde(rename = "_id", borrow)]
    id: Text<'a>,
    #[serde(rename = "_source", borrow)]
    source: &'a RawValue,
}

impl Single<'_> {
    pub(super) fn scan(&self) -> StoredScan {
        decode(&self.id, self.source.get())
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use proptest::prelude::*;

    use super::*;
    use crate::document::tests::{changes, garbled};

    fn found(documents: Documents<'_>, ids: &[u64]) -> Result<Vec<(usize, StoredScan)>, Error> {
        let mut scans = Vec::new();
        let each = |place: usize, id: &Text<'_>, source: &str| scans.push((place, decode(id, source)));
        documents.found(ids.iter().copied(), each).map(|()| scans)
    }

    fn documents(text: &str, ids: &[u64]) -> Result<Vec<(usize, StoredScan)>, Error> {
        found(serde_json::from_str(text).unwrap(), ids)
    }

    #[test]
    fn only_the_documents_that_were_asked_for_are_an_answer() {
        let answer =
            r#"{"docs":[{"_id":"10","found":false},{"_id":"9","found":true,"_source":{"count":1}}]}"#;
        let scans = documents(answer, &[10, 9]).unwrap();
        assert_eq!(scans, [(1, StoredScan::new(Some(9), Some(1), false, [b""; 4]))]);
        for ids in [&[10][..], &[9, 10], &[10, 9, 11], &[]] {
            assert!(matches!(documents(answer, ids), Err(Error::Nonsense(_))), "{ids:?}");
        }
        for odd in [r#"{"docs":[{"_id":"9"}]}"#, r#"{"docs":[{"_id":"09","found":true}]}"#] {
            assert!(matches!(documents(odd, &[9]), Err(Error::Nonsense(_))), "{odd}");
        }
        let gone = r#"{"docs":[{"_id":"9","error":{"type":"index_not_found_exception","reason":"none"}}]}"#;
        assert!(documents(gone, &[9]).unwrap_err().refusal().unwrap().status == 404);
        let shard = r#"{"docs":[{"_id":"9","error":{"type":"no_shard_available_action_exception"}}]}"#;
        assert!(documents(shard, &[9]).unwrap_err().refusal().unwrap().status == 503);
    }

    #[test]
    fn what_is_no_scan_is_handed_on_value_by_value() {
        let decoded = |id: &'static str, source: &str| decode(&Text(Cow::Borrowed(id)), source);
        let none = StoredScan::new(None, None, false, [b""; 4]);
        for source in
            ["", "7", "null", "[]", "{}", r#"{"count":-1,"date":null,"hash":7}"#, r#"{"count":"1"}"#]
        {
            assert_eq!(decoded("theirs", source), none, "{source}");
        }
        for (id, number) in
            [("7", Some(7)), ("07", None), ("+7", None), ("", None), ("99999999999999999999", None)]
        {
            assert_eq!(decoded(id, "{}").id, number, "{id}");
        }
        assert!(decoded("7", r#"{"date":1}"#).is_dated);
        assert_eq!(decoded("7", r#"{"count":9}"#).count, Some(9));
    }

    proptest! {
        #[test]
        fn what_was_garbled_does_no_harm(changes in changes()) {
            let answer = r#"{"docs":[{"_id":"9","found":true,"_source":{"hash":"A","count":1}},{"_id":"10","found":false}]}"#;
            if let Ok(documents) = serde_json::from_slice::<Documents<'_>>(&garbled(answer, &changes))
                && let Ok(scans) = found(documents, &[9, 10])
            {
                prop_assert!(scans.len() <= 2);
            }
        }
    }
}
