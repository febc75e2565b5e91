//! Loading the scans.

use std::cell::RefCell;

use acidtest_workloads::{
    LoadProgress,
    parcels::{Batches, Ids, LoadMethod, LoadedScan, Loading},
};
use hyper::Method;
use serde::de::IgnoredAny;
use serde_json::json;

use super::{document, now};
use crate::{
    fault::Error,
    http::Connection,
    load::{finish, insert, make},
    names::Table,
    server::{ConnectOptions, insist},
};

/// Scans in one bulk request.
const BATCH: usize = 10_000;

/// Creates a trial's index, loads the scans, and makes them visible and durable.
pub(super) async fn load(
    server: &ConnectOptions,
    table: &Table,
    translog: &str,
    loading: &Loading,
    loaded: &LoadProgress,
) -> Result<(), Error> {
    let mut connection = server.connect().await?;
    // they are found by their ids alone
    make(&mut connection, table, translog, &json!({})).await?;
    match loading.method {
        LoadMethod::Bulk => {
            let batches = RefCell::new(loading.batches(BATCH));
            // two connections: one bulk request is encoded while the server carries out the other
            let (one, other) = (fill(server, table, &batches, loaded), fill(server, table, &batches, loaded));
            tokio::try_join!(one, other)?;
        }
        LoadMethod::Single => create_each(&mut connection, table, loading, loaded).await?,
    }
    finish(&mut connection, table).await
}

/// Loads batches of scans until all are taken, by this connection or another.
async fn fill(
    server: &ConnectOptions,
    table: &Table,
    batches: &RefCell<Batches>,
    loaded: &LoadProgress,
) -> Result<(), Error> {
    let mut connection = None;
    loop {
        let Some(batch) = batches.borrow_mut().next() else { return Ok(()) };
        let connection = match &mut connection {
            Some(connection) => connection,
            none => none.insert(server.connect().await?),
        };
        let numbers = (0..batch.len() as u64).collect();
        insert(connection, table, numbers, |numbers| {
            let date = now();
            let mut body = Vec::with_capacity(numbers.len() * 160);
            let places = numbers.iter().filter_map(|number| usize::try_from(*number).ok());
            for row in places.filter_map(|place| batch.get(place)) {
                let LoadedScan { scan, count, .. } = row;
                document::push_line(&mut body, "create", Ids::Made.of(row), scan, *count, date);
            }
            body.into()
        })
        .await?;
        loaded.add(batch.len() as u64);
    }
}

/// Loads one scan after the other.
async fn create_each(
    connection: &mut Connection,
    table: &Table,
    loading: &Loading,
    loaded: &LoadProgress,
) -> Result<(), Error> {
    for row in loading.rows() {
        let path = format!("/{}/_create/{}?require_alias=true", table.alias, Ids::Made.of(&row));
        let mut body = Vec::with_capacity(160);
        document::push(&mut body, &row.scan, row.count, now());
        insist::<IgnoredAny>(connection, Method::PUT, &path, body.into()).await?;
        loaded.add(1);
    }
    Ok(())
}
