//! The table SCANS: created and loaded, read back, measured.

use std::fmt::Write as _;

use acidtest_model::Lock;
use acidtest_workloads::{
    LoadProgress, Medium, Place, TableSize,
    parcels::{Index, LoadMethod, LoadedScan, Loading, Requirements, ScanVisitor, StoredScan},
};
use mysql_async::{Conn, Error, prelude::Queryable};

use super::{Names, statements::COLUMNS};
use crate::{
    columns::{Columns, number, rows},
    engine::Engine,
    load::{BATCH, analyze, insert, local_infile, make_room, stream_in},
    product::Product,
};

/// Bytes of a row of a MEMORY table with its keys, or more.
const ROW: u64 = 160;

/// Bytes to which a MEMORY table may grow at least, however few scans are loaded: others are inserted later.
const ROOM: u64 = 1 << 30;

/// The columns that loading gives.
const LOADED: &str = "(scan_id, scan_hash, scan_type, scan_count, machine_type, sequence_code)";

/// The key by which the scans of a parcel are found; `None` if there is none.
fn key(engine: Engine, wanted: Requirements) -> Option<&'static str> {
    match (wanted.index, wanted.lock) {
        (Index::None, _) => None,
        // the soft lock: of two clients that have counted the same, one is refused. A hash of both columns would not
        // find rows by one of them
        (Index::Hash, Lock::Soft) if engine == Engine::Memory => {
            Some("UNIQUE KEY by_hash (scan_hash, scan_count) USING BTREE")
        }
        (Index::Hash, Lock::Soft) => Some("UNIQUE KEY by_hash (scan_hash, scan_count)"),
        (Index::Hash, _) => Some("KEY by_hash (scan_hash)"),
    }
}

fn create(table: &str, engine: Engine, key: Option<&str>) -> String {
    let text = |letters| format!("VARCHAR({letters}) CHARACTER SET ascii COLLATE ascii_bin NOT NULL");
    let key = key.map(|key| format!(", {key}")).unwrap_or_default();
    format!(
        "CREATE TABLE {table} (scan_id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, scan_hash {}, scan_type {},
           scan_count INT, machine_type {}, sequence_code {},
           load_date TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6){key}) ENGINE={}",
        text(11),
        text(3),
        text(10),
        text(5),
        engine.name()
    )
}

/// Creates the table and loads its scans by the method that is asked for. Ids that are given later go on above those of
/// the loaded scans.
pub(crate) async fn load(
    conn: &mut Conn,
    table: &str,
    engine: Engine,
    wanted: &Requirements,
    loading: &Loading,
    loaded: &LoadProgress,
) -> Result<(), Error> {
    if engine == Engine::Memory {
        make_room(conn, loading.scans.saturating_mul(ROW), ROOM).await?;
    }
    let key = key(engine, *wanted);
    // hashes do not ascend, so that a key made over all of them is faster than one that grows; but not in memory
    let is_late = loading.method == LoadMethod::Bulk && engine != Engine::Memory;
    conn.query_drop(create(table, engine, key.filter(|_| !is_late))).await?;
    match loading.method {
        LoadMethod::Bulk => bulk(conn, table, loading, loaded).await?,
        LoadMethod::Single => single(conn, table, loading, loaded).await?,
    }
    if let Some(key) = key.filter(|_| is_late) {
        conn.query_drop(format!("ALTER TABLE {table} ADD {key}")).await?;
    }
    analyze(conn, table, engine).await
}

async fn bulk(conn: &mut Conn, table: &str, loading: &Loading, loaded: &LoadProgress) -> Result<(), Error> {
    let streams = local_infile(conn).await?;
    let into = (table, LOADED);
    for scans in loading.batches(BATCH) {
        let count = scans.len() as u64;
        if streams {
            stream_in(conn, into, scans, row_of_file).await?;
        } else {
            insert(conn, into, &scans, values).await?;
        }
        loaded.add(count);
    }
    Ok(())
}

fn row_of_file(piece: &mut String, LoadedScan { scan, id, count }: &LoadedScan) {
    let [hash, kind, machine, code] = [scan.hash(), scan.kind(), scan.machine(), scan.code()];
    // writing to a string cannot fail
    let _ = writeln!(piece, "{id}\t{hash}\t{kind}\t{count}\t{machine}\t{code}");
}

fn values(sql: &mut String, LoadedScan { scan, id, count }: &LoadedScan) {
    let [hash, kind, machine, code] = [scan.hash(), scan.kind(), scan.machine(), scan.code()];
    // letters and digits, which need no escapes; writing to a string cannot fail
    let _ = write!(sql, "({id}, '{hash}', '{kind}', {count}, '{machine}', '{code}')");
}

/// Inserts the scans one after the other, each in a transaction by itself where the engine has transactions.
async fn single(conn: &mut Conn, table: &str, loading: &Loading, loaded: &LoadProgress) -> Result<(), Error> {
    let insert = conn.prep(format!("INSERT INTO {table} {LOADED} VALUES (?, ?, ?, ?, ?, ?)")).await?;
    for LoadedScan { scan, id, count } in loading.rows() {
        let values = (id, scan.hash(), scan.kind(), count, scan.machine(), scan.code());
        conn.exec_drop(&insert, values).await?;
        loaded.add(1);
    }
    Ok(())
}

/// Passes every scan to `each` as it streams in.
pub(crate) async fn state(conn: &mut Conn, table: &str, each: &mut ScanVisitor<'_>) -> Result<(), Error> {
    let mut result = conn.exec_iter(format!("SELECT {COLUMNS} FROM {table}"), ()).await?;
    result.for_each(|row| each(stored(&row))).await?;
    result.drop_result().await
}

/// A row of the columns [`COLUMNS`]. What cannot be read is handed on as such.
pub(crate) fn stored(row: &impl Columns) -> StoredScan {
    let texts = [1, 2, 4, 5].map(|column| row.bytes(column));
    let is_dated = number(row, 6) == Ok(1_u64);
    StoredScan::new(number(row, 0).ok(), number(row, 3).ok(), is_dated, texts)
}

pub(crate) async fn size(
    conn: &mut Conn,
    place: &Place,
    engine: Engine,
    product: Product,
) -> Result<TableSize, Error> {
    let table = Names::of(place).table;
    analyze(conn, &table, engine).await?;
    if product == Product::MySql {
        // otherwise the sizes of the last day may be answered; versions before 8 have no such setting
        conn.query_drop("/*!80000 SET SESSION information_schema_stats_expiry = 0 */").await?;
    }
    let count: Option<u64> = conn.query_first(format!("SELECT COUNT(*) FROM {table}")).await?;
    let sizes = "SELECT data_length, index_length, avg_row_length FROM information_schema.tables
                 WHERE BINARY table_schema = BINARY ? AND BINARY table_name = BINARY ?";
    let read = rows(conn, sizes, (&place.namespace, place.object("scans"))).await?;
    let row = read.first().ok_or_else(|| Error::Other("the table is not listed".into()))?;
    let size = TableSize {
        rows: count.unwrap_or_default(),
        data_bytes: number(row, 0).ok(),
        index_bytes: number(row, 1).ok(),
        medium: if engine == Engine::Memory { Medium::Memory } else { Medium::Disk },
        source: "information_schema.tables after ANALYZE TABLE".to_owned(),
    };
    let each: u64 = number(row, 2).unwrap_or_default();
    Ok(if engine == Engine::Memory { unless_mostly_empty(size, each) } else { size })
}

/// MEMORY allocates large blocks, and tells how large these are: that says nothing of a row until most of their room is
/// taken by rows, which have so many bytes each.
fn unless_mostly_empty(size: TableSize, each: u64) -> TableSize {
    let (allocated, taken) = (size.data_bytes.unwrap_or_default(), size.rows.saturating_mul(each));
    if u128::from(taken) * 5 >= u128::from(allocated) * 4 {
        return size;
    }
    let source = format!(
        "{}: rows take {} KiB of {} KiB that MEMORY has allocated, so nothing is known of a row; load more (--scans)",
        size.source,
        acidtest_model::count(taken >> 10),
        acidtest_model::count(allocated >> 10)
    );
    TableSize { data_bytes: None, index_bytes: None, source, ..size }
}
