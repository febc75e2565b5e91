//! The store under test and direct access to its server, shared by the tests of all workloads.

#![allow(dead_code, clippy::unwrap_used, reason = "helpers of tests, of which not every one uses all")]

use acidtest_model::Address;
use acidtest_store_postgres::{KIND, Postgres};
use acidtest_testbed::{AfterRemoval, Subject, wait};
use tokio_postgres::Client;

/// PostgreSQL as the common checks open it.
pub(crate) static POSTGRES: Subject<Postgres> =
    Subject { kind: KIND, open: |address, _| Box::pin(Postgres::open(address)), gone: AfterRemoval::Error };

/// Runs work as the server's superuser, bypassing the store.
pub(crate) fn on_server<T>(address: &Address, work: impl AsyncFnOnce(&Client) -> T) -> T {
    wait(async {
        let (user, port) = (address.user.clone().unwrap(), address.port.unwrap());
        let options = format!("host=127.0.0.1 port={port} user={user} dbname={}", address.path);
        let (client, connection) = tokio_postgres::connect(&options, tokio_postgres::NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        let done = work(&client).await;
        drop(client);
        driver.await.unwrap().unwrap();
        done
    })
}

/// Executes statements as the server's superuser, bypassing the store.
pub(crate) fn execute(address: &Address, sql: &str) {
    on_server(address, async |client| client.batch_execute(sql).await).unwrap();
}
