//! The store under test and direct access to its server, shared by the tests of all workloads.

use std::time::Duration;

use acidtest_model::Address;
use acidtest_store_postgres::{KIND, Postgres};
use acidtest_testbed::{AfterRemoval, Subject, until, wait};
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

/// How often the server has read a table whole, and how often by an index, as far as its sessions have told.
pub(crate) fn scans_of(address: &Address, table: &str) -> (i64, i64) {
    let sql = "SELECT seq_scan, idx_scan FROM pg_stat_user_tables WHERE relname = $1";
    let row = on_server(address, async |client| client.query_one(sql, &[&table]).await).unwrap();
    (row.get(0), row.get(1))
}

/// Waits until nobody else is connected: a session tells its scans, at the latest, when it goes.
pub(crate) fn until_alone(address: &Address) {
    let others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    until("a session of loading is still there", Duration::from_mins(2), || {
        let row = on_server(address, async |client| client.query_one(others, &[]).await);
        row.unwrap().get::<_, i64>(0) == 0
    });
}
