//! Loading the records.

use acidtest_workloads::{
    LoadProgress,
    records::{Batches, Fields, Layout, key_name},
};
use bytes::Bytes;
use hyper::Method;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json, value::RawValue};

use crate::{
    document,
    fault::{Error, Refusal},
    http::{Connection, Content},
    names::Table,
    server::{ATTEMPTS, ConnectOptions, FIRST_WAIT, LONGEST_WAIT, insist, on_shards},
};

/// Bytes of fields in one bulk request.
const CHUNK: u64 = 5 << 20;
/// Records in one bulk request at most.
const MOST: u64 = 100_000;

/// Creates a trial's index, loads the records, and makes them visible and durable.
pub(crate) async fn load(
    server: &ConnectOptions,
    table: &Table,
    translog: &str,
    layout: &Layout,
    loaded: &LoadProgress,
) -> Result<(), Error> {
    let mut connection = server.connect().await?;
    let properties = json!({"key": {"type": "keyword", "index": layout.scans, "doc_values": true}});
    make(&mut connection, table, translog, &properties).await?;
    let batches = Batches::of(layout, layout.batch(CHUNK, MOST));
    // two connections: one bulk request is encoded while the server carries out the other
    let (one, other) =
        (fill(server, table, layout, &batches, loaded), fill(server, table, layout, &batches, loaded));
    tokio::try_join!(one, other)?;
    finish(&mut connection, table).await
}

/// Makes what was loaded visible and durable.
pub(crate) async fn finish(connection: &mut Connection, table: &Table) -> Result<(), Error> {
    // restore the server's default, which loading has turned off
    let settings = json!({"index": {"refresh_interval": null}});
    let path = format!("/{}/_settings", table.index);
    insist::<IgnoredAny>(connection, Method::PUT, &path, settings.to_string().into()).await?;
    for step in ["_refresh", "_flush"] {
        if !on_shards(connection, &format!("/{}/{step}", table.index)).await? {
            return Err(Error::Nonsense(format!("{step} of {} is not done on its shard", table.index)));
        }
    }
    Ok(())
}

/// Makes a trial's index, in which these fields are mapped, and no other is.
pub(crate) async fn make(
    connection: &mut Connection,
    table: &Table,
    translog: &str,
    properties: &Value,
) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct Made {
        shards_acknowledged: bool,
    }
    let body = json!({
        "settings": {"index": {
            "number_of_shards": 1,
            "number_of_replicas": 0,
            "refresh_interval": "-1",
            "translog": {"durability": translog},
            // otherwise it may tell a size of ten seconds ago
            "store": {"stats_refresh_interval": "0s"},
        }},
        "aliases": {&table.alias: {}},
        "mappings": {"dynamic": false, "properties": properties},
    });
    let path = format!("/{}", table.index);
    let made: Made = insist(connection, Method::PUT, &path, body.to_string().into()).await?;
    if !made.shards_acknowledged {
        return Err(Error::Nonsense(format!("the shard of {} does not start", table.index)));
    }
    let read = translog_of(connection, &table.index).await?;
    if read != translog {
        return Err(Error::Nonsense(format!(
            "index.translog.durability of {} is {read:?}, where {translog:?} was set",
            table.index
        )));
    }
    Ok(())
}

/// Reads back `index.translog.durability` of an index.
async fn translog_of(connection: &mut Connection, index: &str) -> Result<String, Error> {
    const NAME: &str = "index.translog.durability";
    let path = format!("/{index}/_settings/{NAME}?flat_settings=true&include_defaults=true");
    let said: Value = connection.get(&path).await?.read()?;
    let of = |group: &str| said.get(index)?.get(group)?.get(NAME)?.as_str().map(str::to_owned);
    of("settings")
        .or_else(|| of("defaults"))
        .ok_or_else(|| Error::Nonsense(format!("{NAME} is not among the settings of {index}")))
}

/// Loads batches of records until all are taken, by this connection or another.
async fn fill(
    server: &ConnectOptions,
    table: &Table,
    layout: &Layout,
    batches: &Batches,
    loaded: &LoadProgress,
) -> Result<(), Error> {
    let mut connection = None;
    while let Some(numbers) = batches.take() {
        let count = numbers.end - numbers.start;
        let connection = match &mut connection {
            Some(connection) => connection,
            none => none.insert(server.connect().await?),
        };
        insert(connection, table, numbers.collect(), |numbers| bulk(layout, numbers)).await?;
        loaded.add(count);
    }
    Ok(())
}

/// Loads rows by their numbers, of which `bulk` makes the body of a request. Rows that the server turns away are sent
/// again, [`ATTEMPTS`] times in all.
pub(crate) async fn insert(
    connection: &mut Connection,
    table: &Table,
    mut numbers: Vec<u64>,
    bulk: impl Fn(&[u64]) -> Bytes,
) -> Result<(), Error> {
    let path =
        format!("/{}/_bulk?require_alias=true&filter_path=errors,items.*.status,items.*.error", table.alias);
    let mut wait = FIRST_WAIT;
    for attempt in 1.. {
        let answer = connection.ask(Method::POST, &path, Content::Lines, bulk(&numbers)).await?;
        let rejected = match answer.read::<Bulk<'_>>() {
            Ok(bulk) => bulk.rejected(&mut numbers)?,
            Err(Error::Refused(refusal)) if refusal.is_rejection() => Some(refusal),
            Err(error) => return Err(error),
        };
        let Some(mut refusal) = rejected else { return Ok(()) };
        if attempt == ATTEMPTS {
            refusal.reason = format!("turned away {ATTEMPTS} times: {}", refusal.reason);
            return Err(Error::Refused(refusal));
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
    Ok(())
}

fn bulk(layout: &Layout, numbers: &[u64]) -> Bytes {
    let mut body = Vec::new();
    let mut fields = Fields::default();
    for &number in numbers {
        let key = key_name(number);
        layout.fill(number, &mut fields);
        body.extend_from_slice(b"{\"create\":{\"_id\":");
        document::push_text(&mut body, &key);
        body.extend_from_slice(b"}}\n");
        document::push(&mut body, &key, 0, &fields);
        body.push(b'\n');
    }
    body.into()
}

/// The answer to a bulk request.
#[derive(Debug, Deserialize)]
pub(crate) struct Bulk<'a> {
    errors: bool,
    #[serde(borrow)]
    pub(crate) items: Vec<Item<'a>>,
}

/// The answer to one of its writes.
#[derive(Debug, Deserialize)]
pub(crate) struct Item<'a> {
    #[serde(borrow, alias = "index")]
    pub(crate) create: Created<'a>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Created<'a> {
    pub(crate) status: u16,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl Created<'_> {
    /// The reason why this one was not written.
    pub(crate) fn refusal(&self) -> Refusal {
        let error = self.error.map(RawValue::get).unwrap_or_default();
        Refusal::of(self.status, error).unwrap_or_else(|| Refusal {
            status: self.status,
            kind: "unknown".to_owned(),
            reason: "a document was not written".to_owned(),
        })
    }
}

impl Bulk<'_> {
    /// Keeps only the numbers that were turned away, to be sent again. Returns one of the reasons; `None` if all
    /// records were created.
    fn rejected(self, numbers: &mut Vec<u64>) -> Result<Option<Refusal>, Error> {
        if self.items.len() != numbers.len() {
            let said = format!("{} records were sent, {} answered", numbers.len(), self.items.len());
            return Err(Error::Nonsense(said));
        }
        let mut last = None;
        let mut left = Vec::new();
        for (Item { create }, &number) in self.items.into_iter().zip(&*numbers) {
            if create.status < 300 {
                continue;
            }
            let refusal = create.refusal();
            if !refusal.is_rejection() {
                return Err(Error::Refused(refusal));
            }
            left.push(number);
            last = Some(refusal);
        }
        if self.errors != last.is_some() {
            return Err(Error::Nonsense(format!("errors is {}, the records say otherwise", self.errors)));
        }
        *numbers = left;
        Ok(last)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::document::tests::{changes, garbled};

    proptest! {
        /// Numbers that remain are among those sent, and remain only with a reason; or the answer is an error.
        #[test]
        fn what_was_garbled_does_no_harm(changes in changes()) {
            let bulk = r#"{"errors":true,"items":[{"create":{"status":201}},{"create":{"status":429,"error":{"type":"es_rejected_execution_exception","reason":"full"}}}]}"#;
            if let Ok(bulk) = serde_json::from_slice::<Bulk<'_>>(&garbled(bulk, &changes)) {
                let mut numbers = vec![7, 9];
                if let Ok(rejected) = bulk.rejected(&mut numbers) {
                    prop_assert_eq!(rejected.is_none(), numbers.is_empty());
                    prop_assert!(numbers.iter().all(|number| [7, 9].contains(number)));
                }
            }
        }
    }
}
