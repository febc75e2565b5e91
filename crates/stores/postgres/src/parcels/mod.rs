//! The parcels workload on PostgreSQL.

mod arrays;
mod connection;
mod statements;
mod table;

use crate::{ConnectOptions, Postgres, protocol, session::Session};
use acidtest_model::{StoreError, Task};
use acidtest_workloads::{
    ClientTask, LoadProgress, Place, TableSize,
    parcels::{self, Connector, Loading, ParcelsStore, Requirements, ScanVisitor, Scenario},
};
use connection::Connection;
use statements::Statements;
use table::Names;

impl ParcelsStore for Postgres {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        loading: &'a Loading,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("loading the scans", async move |client| {
            table::load(client, &Names::of(place), wanted, loading, loaded).await
        }))
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        let connector =
            ScansConnector { server: self.server.clone(), names: Names::of(place), wanted: *wanted };
        parcels::task(connector, scenario)
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        each: &'a mut ScanVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("reading the final scans", async move |client| {
            table::state(client, &Names::of(place), each).await
        }))
    }

    fn size<'a>(&'a self, place: &'a Place) -> Task<'a, Result<TableSize, StoreError>> {
        Box::pin(self.on_server("asking for the table's size", async move |client| {
            table::size(client, &Names::of(place)).await
        }))
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("removing the scans", async move |client| {
            client.batch_execute(&Names::of(place).drop()).await
        }))
    }
}

struct ScansConnector {
    server: ConnectOptions,
    names: Names,
    wanted: Requirements,
}

/// Each statement must see what was committed before it began, whatever the server's default isolation level: under
/// a lock it counts what the lock's last holder has inserted.
///
/// A plan that is made once, perhaps of an empty table, must find rows by an index where there is one, and join the
/// scans of a batch to rows by a hash. Where there is no index the whole table is read all the same, and a plan that
/// is so dear would be compiled each time.
const SETTINGS: &str = "SET default_transaction_isolation = 'read committed'; SET enable_seqscan = off;
                        SET enable_nestloop = off; SET enable_mergejoin = off; SET jit = off";

impl Connector for ScansConnector {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        let prepare = async |connection: &mut protocol::Connection| {
            connection.command(SETTINGS).await?;
            Statements::prepare(connection, &self.names, &self.wanted).await
        };
        let (session, statements) = Session::open(&self.server, prepare).await?;
        Ok(Connection::new(session, statements))
    }
}

#[cfg(test)]
mod tests {
    use acidtest_model::{Durability, Lock};
    use acidtest_testbed::{NAMESPACE, Private, parcels as checks, wait};
    use acidtest_workloads::{Store, parcels::Parcel};
    use tokio_postgres::Client;

    use super::*;

    fn with_store(check: impl AsyncFnOnce(&Postgres)) {
        let Some(mut private) = Private::start("postgres", Durability::None) else { return };
        let store = private.open(Postgres::open);
        wait(store.create(NAMESPACE, "run 1")).unwrap();
        wait(check(&store));
    }

    fn connector(store: &Postgres, place: &Place, wanted: Requirements) -> ScansConnector {
        ScansConnector { server: store.server.clone(), names: Names::of(place), wanted }
    }

    /// Inserts rows of a parcel behind the store's back.
    async fn plant(store: &Postgres, place: &Place, parcel: &Parcel, counts: &[Option<i32>]) {
        let plant = format!(
            "INSERT INTO {} (scan_hash, scan_type, scan_count, machine_type, sequence_code)
             SELECT $1, 'ACC', count, '0000000000', '00000' FROM unnest($2::int[]) AS count",
            Names::of(place).table
        );
        let plant = async |client: &Client| client.execute(&plant, &[&parcel.hash(), &counts]).await;
        store.on_server("planting", plant).await.unwrap();
    }

    #[test]
    fn scans_are_counted_and_refused_and_what_others_have_put_there_is_handed_on() {
        with_store(async |store| {
            let connect = |place: &Place, wanted| connector(store, place, wanted);
            checks::singles(store, &Lock::ALL, connect).await;
            let spoil = async |place: &Place, parcel: &Parcel| {
                plant(store, place, parcel, &[Some(9), Some(-1)]).await;
            };
            checks::spoiled(store, &Lock::ALL, connect, spoil).await;
        });
    }

    #[test]
    fn a_parcel_with_too_many_rows_or_rows_without_a_count_is_full() {
        with_store(async |store| {
            let connect = |place: &Place, wanted| connector(store, place, wanted);
            let overfill = async |place: &Place, parcel: &Parcel, counts: [Option<i32>; 4]| {
                plant(store, place, parcel, &counts).await;
            };
            checks::overfull(store, &Lock::ALL, connect, overfill).await;
        });
    }
}
