//! The parcels workload on SQLite.

use acidtest_model::{Lock, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, LoadProgress, Medium, Place, Served, TableSize,
    parcels::{
        self, Batches, Connector, Found, Index, Inserted, LoadMethod, LoadedScan, Loading, MOST, Operations,
        Parcel, ParcelsStore, Requirements, Scan, ScanVisitor, Scenario, StoredScan,
    },
};
use rusqlite::{Connection, OptionalExtension, Row, ffi, params, types::ValueRef};

use crate::{
    File, Sqlite, attempt, named, quoted,
    transaction::{IMMEDIATE, OperationResult, begin, end},
};

/// The name of the table among the trial's objects.
const TABLE: &str = "scans";

/// Scans loaded in one transaction.
const BATCH: usize = 10_000;

/// Scans that are loaded one by one before the caller may look at the progress.
const TURN: u64 = 100;

const LOADING: &str = "loading the scans";

/// The time by the computer's clock, in milliseconds since 1970.
const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

/// Creates the table, loads its first scans, and makes its index.
async fn lay_in(
    store: &Sqlite,
    place: &Place,
    wanted: Requirements,
    loading: &Loading,
    loaded: &LoadProgress,
) -> Result<(), StoreError> {
    let table = named(place, TABLE);
    let mut connection = store.told(LOADING, store.file.connect())?;
    let create = format!(
        "CREATE TABLE {table} (scan_id INTEGER PRIMARY KEY, scan_hash TEXT NOT NULL, scan_type TEXT NOT NULL, \
         scan_count INTEGER NOT NULL, machine_type TEXT NOT NULL, sequence_code TEXT NOT NULL, \
         load_date INTEGER NOT NULL DEFAULT ({NOW}))"
    );
    store.told(LOADING, connection.execute_batch(&create))?;
    let statements = Statements::on(&table);
    match loading.method {
        // an index that is made over all rows is sorted once, instead of being written to at random
        LoadMethod::Bulk => {
            load_batches(store, &mut connection, &statements, loading.batches(BATCH), loaded).await?;
            make_index(store, place, wanted, &connection)
        }
        LoadMethod::Single => {
            make_index(store, place, wanted, &connection)?;
            load_singly(store, &connection, &statements, loading, loaded).await
        }
    }
}

fn make_index(
    store: &Sqlite,
    place: &Place,
    wanted: Requirements,
    connection: &Connection,
) -> Result<(), StoreError> {
    let index = quoted(&format!("{}:{}:hash", place.namespace, place.object(TABLE)));
    let table = named(place, TABLE);
    let make = match (wanted.index, wanted.lock) {
        (Index::None, _) => return Ok(()),
        (Index::Hash, Lock::Soft) => {
            format!("CREATE UNIQUE INDEX {index} ON {table} (scan_hash, scan_count)")
        }
        (Index::Hash, _) => format!("CREATE INDEX {index} ON {table} (scan_hash)"),
    };
    store.told(LOADING, connection.execute_batch(&make))
}

async fn load_batches(
    store: &Sqlite,
    connection: &mut Connection,
    statements: &Statements,
    batches: Batches,
    loaded: &LoadProgress,
) -> Result<(), StoreError> {
    for batch in batches {
        let inserted = connection.transaction().and_then(|transaction| {
            batch.iter().try_for_each(|row| insert_loaded(&transaction, statements, row))?;
            transaction.commit()
        });
        store.told(LOADING, inserted)?;
        loaded.add(batch.len() as u64);
        // lets the caller report progress, or cancel
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn load_singly(
    store: &Sqlite,
    connection: &Connection,
    statements: &Statements,
    loading: &Loading,
    loaded: &LoadProgress,
) -> Result<(), StoreError> {
    for row in loading.rows() {
        store.told(LOADING, insert_loaded(connection, statements, &row))?;
        loaded.add(1);
        if row.id.is_multiple_of(TURN) {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

fn insert_loaded(connection: &Connection, statements: &Statements, row: &LoadedScan) -> rusqlite::Result<()> {
    let LoadedScan { scan, id, count } = row;
    let mut insert = connection.prepare_cached(&statements.load)?;
    insert.execute(params![
        id.cast_signed(),
        scan.hash(),
        scan.kind(),
        count,
        scan.machine(),
        scan.code()
    ])?;
    Ok(())
}

impl ParcelsStore for Sqlite {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        loading: &'a Loading,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(lay_in(self, place, *wanted, loading, loaded))
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        parcels::task(ParcelsConnector::of(self, place, *wanted), scenario)
    }

    fn serve(&self, place: &Place, wanted: &Requirements) -> Option<Served> {
        Some(parcels::serve(ParcelsConnector::of(self, place, *wanted)))
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        each: &'a mut ScanVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.on_file("reading the final scans", |connection| {
                let mut statement = connection.prepare(&Statements::on(&named(place, TABLE)).all)?;
                let mut rows = statement.query([])?;
                while let Some(row) = rows.next()? {
                    each(stored(row));
                }
                Ok(())
            })
        })
    }

    fn size<'a>(&'a self, place: &'a Place) -> Task<'a, Result<TableSize, StoreError>> {
        Box::pin(async move {
            self.on_file("asking how large the table is", |connection| {
                let table = format!("{}:{}", place.namespace, place.object(TABLE));
                let of = |kind: &str| {
                    let sql = "SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE aggregate = TRUE AND name IN \
                               (SELECT name FROM sqlite_schema WHERE type = ?1 AND tbl_name = ?2)";
                    connection.query_row(sql, params![kind, table], |row| row.get::<_, i64>(0))
                };
                let rows = format!("SELECT count(*) FROM {}", quoted(&table));
                let rows = connection.query_row(&rows, [], |row| row.get::<_, i64>(0))?;
                let [rows, data, index] = [rows, of("table")?, of("index")?].map(i64::unsigned_abs);
                Ok(TableSize {
                    rows,
                    data_bytes: Some(data),
                    index_bytes: Some(index),
                    medium: Medium::Disk,
                    source: "dbstat".to_owned(),
                })
            })
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { self.drop_tables("removing the scans", place, &[TABLE]) })
    }
}

/// In those that insert, `?1` to `?4` are hash, type, machine and code, and `?5` is the count.
#[derive(Clone)]
struct Statements {
    count: String,
    insert: String,
    count_and_insert: String,
    load: String,
    by_hash: String,
    by_id: String,
    all: String,
}

impl Statements {
    fn on(table: &str) -> Self {
        let into =
            format!("INSERT INTO {table} (scan_hash, scan_type, machine_type, sequence_code, scan_count) ");
        let select = format!(
            "SELECT scan_id, scan_count, load_date, scan_hash, scan_type, machine_type, sequence_code FROM {table}"
        );
        Self {
            count: format!("SELECT count(*) FROM {table} WHERE scan_hash = ?1"),
            insert: format!("{into}VALUES (?1, ?2, ?3, ?4, ?5) RETURNING scan_id, scan_count"),
            count_and_insert: format!(
                "{into}SELECT ?1, ?2, ?3, ?4, count(*) + 1 FROM {table} WHERE scan_hash = ?1 \
                 HAVING count(*) < {MOST} RETURNING scan_id, scan_count"
            ),
            load: format!(
                "INSERT INTO {table} (scan_id, scan_hash, scan_type, scan_count, machine_type, sequence_code) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
            ),
            by_hash: format!("{select} WHERE scan_hash = ?1"),
            by_id: format!("{select} WHERE scan_id = ?1"),
            all: select,
        }
    }
}

/// A row of the table. SQLite permits values of any type in every column: one that makes no sense is none.
fn stored(row: &Row<'_>) -> StoredScan {
    let number = |column| row.get::<_, i64>(column).ok().and_then(|number| u64::try_from(number).ok());
    let text = |column| row.get_ref(column).ok().and_then(|value| value.as_bytes().ok()).unwrap_or_default();
    let is_dated = row.get_ref(2).is_ok_and(|value| value != ValueRef::Null);
    StoredScan::new(number(0), number(1), is_dated, [text(3), text(4), text(5), text(6)])
}

struct ParcelsConnector {
    file: File,
    lock: Lock,
    sql: Statements,
}

impl ParcelsConnector {
    fn of(store: &Sqlite, place: &Place, wanted: Requirements) -> Self {
        Self { file: store.file.clone(), lock: wanted.lock, sql: Statements::on(&named(place, TABLE)) }
    }
}

struct Client {
    connection: Connection,
    lock: Lock,
    sql: Statements,
    /// The counts of the scans of the current insert; none for those that are refused.
    counts: Vec<Option<u8>>,
}

impl Connector for ParcelsConnector {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        let connection = self.file.connect().map_err(|error| error.to_string())?;
        Ok(Client { connection, lock: self.lock, sql: self.sql.clone(), counts: Vec::new() })
    }
}

impl Client {
    /// Counts the scans of each parcel, and keeps the next count of each; none where it has seven.
    fn count(&mut self, scans: &[Scan]) -> rusqlite::Result<()> {
        let Self { connection, sql, counts, .. } = self;
        let mut statement = connection.prepare_cached(&sql.count)?;
        counts.clear();
        for scan in scans {
            let there: u64 = statement.query_row([scan.hash()], |row| row.get(0).map(i64::unsigned_abs))?;
            counts.push(u8::try_from(there + 1).ok().filter(|next| *next <= MOST));
        }
        Ok(())
    }

    /// Inserts the scans with the counts that are kept.
    fn insert_counted(&self, scans: &[Scan], inserted: &mut Inserted) -> OperationResult {
        for (scan, count) in scans.iter().zip(&self.counts) {
            match count {
                None => inserted.refused(),
                Some(count) => self.insert_one(&self.sql.insert, scan, Some(*count), inserted)?,
            }
        }
        Ok(Attempt::Ok)
    }

    /// Counts and inserts each scan in a statement, which is the only writer.
    fn insert_in_one(&self, scans: &[Scan], inserted: &mut Inserted) -> OperationResult {
        for scan in scans {
            self.insert_one(&self.sql.count_and_insert, scan, None, inserted)?;
        }
        Ok(Attempt::Ok)
    }

    fn insert_one(
        &self,
        sql: &str,
        scan: &Scan,
        count: Option<u8>,
        inserted: &mut Inserted,
    ) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(sql)?;
        for (place, text) in (1..).zip([scan.hash(), scan.kind(), scan.machine(), scan.code()]) {
            statement.raw_bind_parameter(place, text)?;
        }
        if let Some(count) = count {
            statement.raw_bind_parameter(5, count)?;
        }
        let mut rows = statement.raw_query();
        let given = match rows.next()? {
            Some(row) => Some((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?)),
            None => None,
        };
        // a statement has ended only when it reports that there are no more rows
        while rows.next()?.is_some() {}
        match given {
            Some((id, count)) => inserted.took(id, count),
            None => inserted.refused(),
        }
        Ok(())
    }

    /// Does this in a transaction that begins like that.
    fn within(&mut self, how: &str, work: impl FnOnce(&mut Self) -> OperationResult) -> OperationResult {
        begin(&self.connection, how)?;
        let done = work(self);
        end(&self.connection, done)
    }

    fn insert_scans(&mut self, scans: &[Scan], inserted: &mut Inserted) -> OperationResult {
        match (self.lock, scans.len()) {
            (Lock::Native, 1) => self.insert_in_one(scans, inserted),
            (Lock::Native, _) => self.within(IMMEDIATE, |client| client.insert_in_one(scans, inserted)),
            (Lock::Hard, _) => self.within(IMMEDIATE, |client| {
                client.count(scans)?;
                client.insert_counted(scans, inserted)
            }),
            (Lock::None | Lock::Soft, several) => {
                self.count(scans)?;
                if several == 1 {
                    return self.insert_counted(scans, inserted);
                }
                self.within(IMMEDIATE, |client| client.insert_counted(scans, inserted))
            }
        }
    }

    fn read(&self, sql: &str, by: impl rusqlite::ToSql, found: &mut Found) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([by])?;
        while let Some(row) = rows.next()? {
            found.take(stored(row));
        }
        Ok(())
    }

    /// How an error ends an insert: under the soft lock, a count that another client has taken is a conflict.
    fn ended(&self, error: &rusqlite::Error) -> Attempt {
        let is_taken =
            error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_CONSTRAINT_UNIQUE);
        if is_taken && self.lock == Lock::Soft { Attempt::Conflict } else { attempt(error) }
    }
}

impl Operations for Client {
    async fn insert(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Attempt {
        self.insert_scans(scans, inserted).unwrap_or_else(|error| self.ended(&error))
    }

    async fn by_hash(&mut self, parcel: &Parcel, found: &mut Found) -> Attempt {
        self.read(&self.sql.by_hash, parcel.hash(), found)
            .map_or_else(|error| attempt(&error), |()| Attempt::Ok)
    }

    async fn by_id(&mut self, id: u64, found: &mut Found) -> Attempt {
        let done = self.read(&self.sql.by_id, id.cast_signed(), found).optional();
        let there = if found.each().is_empty() { Attempt::Refused } else { Attempt::Ok };
        done.map_or_else(|error| attempt(&error), |_| there)
    }
}

#[cfg(test)]
mod tests {
    use acidtest_testbed::{
        parcels::{singles, spoiled},
        wait,
    };

    use super::*;
    use crate::opened;

    #[test]
    fn a_parcel_s_scans_get_its_next_counts_and_an_eighth_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = opened(&folder);
        let connect = |place: &Place, wanted: Requirements| ParcelsConnector::of(&store, place, wanted);
        wait(singles(&store, &Lock::ALL, connect));
        let spoil = async |place: &Place, parcel: &Parcel| {
            let spoil = format!(
                "INSERT INTO {} (scan_hash, scan_type, machine_type, sequence_code, scan_count) \
                 VALUES (?1, 'X', 'X', 'X', ?2)",
                named(place, TABLE)
            );
            let connection = store.file.connect().unwrap();
            for count in [9, -1] {
                connection.execute(&spoil, params![parcel.hash(), count]).unwrap();
            }
        };
        wait(spoiled(&store, &Lock::ALL, connect, spoil));
    }
}
