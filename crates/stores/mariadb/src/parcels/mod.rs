//! The parcels workload on `MariaDB` and `MySQL`, on the engines that can count scans.

mod connection;
mod statements;
mod table;

use acidtest_model::{CellRequest, Lock, StoreError, Task};
use acidtest_workloads::{
    ClientTask, LoadProgress, Place, TableSize,
    parcels::{self, Connector, Loading, ParcelsStore, Requirements, ScanVisitor, Scenario},
};
use mysql_async::prelude::Queryable;

use crate::{
    ConnectOptions, MariaDb, engine::Engine, load, object, product::Product, protocol, session::Session,
};
use connection::Connection;
use statements::{Statements, procedure};

/// The reason why an engine that locks whole tables cannot do what a cell of the parcels asks for; `None` if it can.
pub(crate) fn refuses_on_locked_tables(request: &CellRequest<'_>) -> Option<&'static str> {
    let is_batch = request.parameters.get("insert_batch").is_some_and(|batch| *batch != 1);
    let is_soft = request.workload == "parcels" && request.lock == Lock::Soft;
    let halves = is_soft && is_batch;
    parcels::beyond_a_table(request).or(halves.then_some(
        "this engine cannot take back what it has inserted of a batch when a later scan is refused: \
         --insert-batch 1, or another lock mode",
    ))
}

impl ParcelsStore for MariaDb {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        loading: &'a Loading,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("loading the scans", async move |conn| {
            let names = Names::of(place);
            table::load(conn, &names.table, self.engine, wanted, loading, loaded).await?;
            match wanted.lock {
                Lock::Native => conn.query_drop(procedure(&names, self.engine, wanted.index)).await,
                _ => Ok(()),
            }
        }))
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        parcels::task(self.connector(place, *wanted), scenario)
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        each: &'a mut ScanVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("reading the final scans", async move |conn| {
            table::state(conn, &Names::of(place).table, each).await
        }))
    }

    fn size<'a>(&'a self, place: &'a Place) -> Task<'a, Result<TableSize, StoreError>> {
        Box::pin(self.on_server("asking for the table's size", async move |conn| {
            table::size(conn, place, self.engine, self.product).await
        }))
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("removing the scans", async move |conn| {
            let Names { table, procedure, .. } = Names::of(place);
            conn.query_drop(format!("DROP PROCEDURE IF EXISTS {procedure}")).await?;
            load::drop_tables(conn, &[table]).await
        }))
    }
}

impl MariaDb {
    fn connector(&self, place: &Place, wanted: Requirements) -> ScansConnector {
        ScansConnector {
            server: self.server.clone(),
            product: self.product,
            engine: self.engine,
            names: Names::of(place),
            wanted,
        }
    }
}

/// Names of what a trial has on the server.
pub(crate) struct Names {
    /// The quoted name of the table.
    pub(crate) table: String,
    /// The quoted name of the procedure that inserts scans under the native lock.
    pub(crate) procedure: String,
    /// The beginning of a parcel's name among the server's locks, which all databases share and which have at most 64
    /// letters, in either case: letters and digits that stand for the table.
    pub(crate) lock: String,
}

impl Names {
    pub(crate) fn of(place: &Place) -> Self {
        let table = object(place, "scans");
        // FNV-1a, of 64 bits
        let number = table.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |number, byte| {
            (number ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
        Self { table, procedure: object(place, "insert_scans"), lock: format!("acidtest.{number:016x}.") }
    }
}

struct ScansConnector {
    server: ConnectOptions,
    product: Product,
    engine: Engine,
    names: Names,
    wanted: Requirements,
}

/// Has `MariaDB` look up a long list of hashes as it does a short one. It would otherwise make a table of it, and not
/// find its rows by an index.
const LISTED: &str = "SET SESSION in_predicate_conversion_threshold = 0";

impl Connector for ScansConnector {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        let Self { product, engine, names, wanted, .. } = self;
        let prepare = async |connection: &mut protocol::Connection| {
            if *product == Product::MariaDb && wanted.batch > 1 {
                connection.query(LISTED).await?;
            }
            Statements::prepare(connection, names, *engine, wanted).await
        };
        let (session, statements) = Session::open(&self.server, prepare).await?;
        Ok(Connection::new(session, statements))
    }
}

#[cfg(test)]
mod tests {
    use acidtest_model::Durability;
    use acidtest_testbed::{NAMESPACE, Private, parcels as checks, wait};
    use acidtest_workloads::{
        Attempt, Store,
        parcels::{Inserted, MOST, Operations, Parcel},
    };

    use super::*;
    use crate::Variant;

    /// Runs a check on both kinds of engines, with the lock modes that take batches of two.
    fn on_engines(check: &impl AsyncFn(&MariaDb, &[Lock])) {
        let Some(mut private) = Private::start("mariadb", Durability::None) else { return };
        let without_soft = [Lock::None, Lock::Hard, Lock::Native];
        for (variant, locks) in [
            (Variant::MARIADB, &Lock::ALL[..]),
            (Variant::MARIADB_MYISAM, &without_soft),
            (Variant::MARIADB_MEMORY, &without_soft),
        ] {
            let store = private.open(async |address| variant.open(address).await);
            wait(store.create(NAMESPACE, "run 1")).unwrap();
            wait(check(&store, locks));
            wait(store.remove(NAMESPACE)).unwrap();
        }
    }

    /// Inserts rows of a parcel behind the store's back.
    async fn plant(store: &MariaDb, place: &Place, parcel: &Parcel, counts: &[Option<i32>]) {
        let (table, hash) = (Names::of(place).table, parcel.hash());
        let row = |count: &Option<i32>| {
            let count = count.map_or_else(|| "NULL".to_owned(), |count| count.to_string());
            format!("('{hash}', 'ACC', {count}, '0000000000', '00000')")
        };
        let plant = format!(
            "INSERT INTO {table} (scan_hash, scan_type, scan_count, machine_type, sequence_code) VALUES {}",
            load::list(counts.iter().map(row))
        );
        store.on_server("planting", async |conn| conn.query_drop(&plant).await).await.unwrap();
    }

    #[test]
    fn scans_are_counted_and_refused_and_what_others_have_put_there_is_handed_on() {
        on_engines(&async |store: &MariaDb, locks: &[Lock]| {
            let connect = |place: &Place, wanted| store.connector(place, wanted);
            checks::singles(store, locks, connect).await;
            let spoil = async |place: &Place, parcel: &Parcel| {
                plant(store, place, parcel, &[Some(9), Some(-1)]).await;
            };
            checks::spoiled(store, locks, connect, spoil).await;
        });
    }

    #[test]
    fn a_parcel_with_too_many_rows_or_rows_without_a_count_is_full() {
        on_engines(&async |store: &MariaDb, locks: &[Lock]| {
            let connect = |place: &Place, wanted| store.connector(place, wanted);
            let overfill = async |place: &Place, parcel: &Parcel, counts: [Option<i32>; 4]| {
                plant(store, place, parcel, &counts).await;
            };
            checks::overfull(store, locks, connect, overfill).await;
        });
    }

    /// An insert that fails under its locks gives them back, so that another client gets them.
    #[test]
    fn locks_are_given_back_after_errors() {
        on_engines(&async |store: &MariaDb, _: &[Lock]| {
            for (trial, lock) in (1..).zip([Lock::Hard, Lock::Native]) {
                let single = checks::Single::loaded(store, trial, lock).await;
                let table = Names::of(&single.place).table;
                let alter = async |sql: &str| {
                    store.on_server("changing", async |conn| conn.query_drop(sql).await).await.unwrap();
                };
                let connector = store.connector(&single.place, single.wanted);
                let mut one = connector.connect().await.unwrap();
                let mut other = connector.connect().await.unwrap();
                alter(&format!("ALTER TABLE {table} ADD CONSTRAINT none CHECK (scan_count < 6)")).await;
                let mut inserted = Inserted::default();
                let failed = one.insert(&[single.scan(5)], &mut inserted).await;
                assert!(matches!(failed, Attempt::Failed(_)), "{lock}: {failed:?}");
                assert_eq!(single.rows(store).await.len(), 5, "{lock}");
                let several = [single.scan(5), single.scan(u64::from(MOST))];
                let failed = one.insert(&several, &mut inserted).await;
                let may_be_half = matches!(&failed, Attempt::Unknown(fault) if fault.connection_lost);
                if store.engine.is_transactional() {
                    assert!(matches!(failed, Attempt::Failed(_)), "{lock}: {failed:?}");
                    assert_eq!(single.rows(store).await.len(), 5, "{lock}");
                } else {
                    assert!(may_be_half, "{lock}: {failed:?}");
                    // as the engine does, whose locks go with the connection
                    drop(one);
                }
                alter(&format!("ALTER TABLE {table} DROP CONSTRAINT none")).await;
                assert_eq!(other.insert(&several[..1], &mut inserted).await, Attempt::Ok, "{lock}");
                assert!(matches!(inserted.each(), [Some((_, 6))]), "{lock}: {inserted:?}");
            }
        });
    }

    /// Whoever waits too long for a parcel has inserted nothing of its batch.
    #[test]
    fn a_parcel_that_stays_locked_is_a_conflict() {
        on_engines(&async |store: &MariaDb, _: &[Lock]| {
            // the hard lock of other engines is one on the table, and MEMORY's procedure takes none
            let locks = match store.engine {
                Engine::InnoDb => &[Lock::Hard, Lock::Native][..],
                Engine::MyIsam => &[Lock::Native],
                _ => &[],
            };
            for (trial, lock) in (1..).zip(locks) {
                let single = checks::Single::loaded(store, trial, *lock).await;
                let scans = [single.scan(5), single.scan(u64::from(MOST))];
                let last = scans.iter().map(acidtest_workloads::parcels::Scan::hash).max().unwrap();
                let held = format!("SELECT GET_LOCK('{}{last}', 0)", Names::of(&single.place).lock);
                let mut holder = store.server.connect_driver().await.unwrap();
                assert_eq!(holder.query_first(held).await.unwrap(), Some(1_u8));
                let connector = store.connector(&single.place, single.wanted);
                let mut connection = connector.connect().await.unwrap();
                let mut inserted = Inserted::default();
                assert_eq!(connection.insert(&scans, &mut inserted).await, Attempt::Conflict, "{lock}");
                assert_eq!(single.rows(store).await.len(), 5, "{lock}");
                holder.disconnect().await.unwrap();
                // also the lock that was got is free again
                let mut other = connector.connect().await.unwrap();
                assert_eq!(other.insert(&scans, &mut inserted).await, Attempt::Ok, "{lock}");
            }
        });
    }

    #[test]
    fn names_of_locks_fit_and_differ_by_their_trial() {
        let name = |namespace: &str, trial| Names::of(&Place { namespace: namespace.to_owned(), trial }).lock;
        assert_eq!(name(&"x".repeat(64), 1).len() + Parcel::of(1).hash().len(), 37);
        assert_ne!(name("a", 1), name("a", 2));
        assert_ne!(name("a", 1), name("A", 1));
    }
}
