//! Reading an index back.

use std::time::Duration;

use hyper::Method;
use serde_json::json;

use crate::{
    document::{Page, SearchHit},
    fault::Error,
    http::Connection,
    names::Table,
    server::{on_shards, ready, send, settled},
};

/// How long work that is not timed may wait for an index that the server is recovering.
const RECOVERED: Duration = Duration::from_secs(30);

/// Bytes of fields on one page.
const PAGE: u64 = 4 << 20;

/// Makes all documents visible to searches.
pub(crate) async fn refresh(connection: &mut Connection, Table { index, .. }: &Table) -> Result<(), Error> {
    settled(connection).await?;
    let refresh = format!("/{index}/_refresh");
    // a shard that is still being recovered cannot be refreshed
    if !on_shards(connection, &refresh).await? {
        ready(connection, index, RECOVERED).await?;
        if !on_shards(connection, &refresh).await? {
            return Err(Error::Nonsense(format!("{index} cannot be refreshed")));
        }
    }
    Ok(())
}

/// Reads all documents, which have about so many bytes, page by page, in the order of a field.
pub(crate) async fn read_back(
    connection: &mut Connection,
    table: &Table,
    bytes: u64,
    order: &str,
    each: &mut dyn FnMut(&SearchHit<'_>),
) -> Result<(), Error> {
    refresh(connection, table).await?;
    // an index returns at most 10,000 documents at once by default
    let size = (PAGE / bytes.max(1)).clamp(1, 5_000);
    let path = format!("/{}/_search?allow_partial_search_results=false", table.index);
    let mut body = json!({"size": size, "track_total_hits": false, "sort": [order]});
    loop {
        let page: Page<'_> = send(connection, Method::POST, &path, &body).await?.read()?;
        let hits = page.whole().map_err(Error::Nonsense)?;
        let Some(last) = hits.last() else { return Ok(()) };
        let place = last.place();
        if body.get("search_after") == Some(&place) {
            return Err(Error::Nonsense("a page that ends where the last one did".to_owned()));
        }
        hits.iter().for_each(&mut *each);
        body["search_after"] = place;
    }
}
