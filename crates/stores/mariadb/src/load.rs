//! Loading records, and reading them back.

use std::fmt::Write as _;

use acidtest_model::StoreError;
use acidtest_workloads::{
    LoadProgress, Place,
    records::{Fields, Layout, RecordVisitor, key_name, tag_of},
};
use futures_util::{StreamExt, stream};
use mysql_async::{Conn, Error, Row, prelude::Queryable};

use crate::{
    MariaDb,
    columns::{Columns, number, text},
    engine::Engine,
    object,
};

/// Records that are sorted at once: they take some 30 MiB of memory.
const SORTED: u64 = 500_000;
/// Records or scans loaded by one statement or transaction.
pub(crate) const BATCH: usize = 20_000;
/// Bytes sent at once, below every server's `max_allowed_packet`.
const PIECE: usize = 256 << 10;
/// Bytes of fields above which columns are of a type stored outside the row; all engines limit a row to 65,535.
const WIDEST: u64 = 65_000;
/// Bytes of fields above which a row does not fit into half a page of `InnoDB`'s as it is.
const HALF_A_PAGE: u64 = 7_000;
/// Length of the shortest VARCHAR that `InnoDB` moves out of a row that is too long.
const OUTSIDE: u64 = 256;
/// Bytes to which a MEMORY table may grow at least, however few records are loaded.
const ROOM: u64 = 256 << 20;

/// The type of a key's column: compared byte by byte.
pub(crate) const KEY: &str = "VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL";

pub(crate) fn fields(layout: &Layout) -> impl Iterator<Item = String> {
    (0..layout.fields).map(|field| format!("field{field}"))
}

/// Items separated by commas, as in a SQL statement.
pub(crate) fn list(items: impl IntoIterator<Item = String>) -> String {
    items.into_iter().collect::<Vec<_>>().join(", ")
}

/// The quoted name of the table of a trial's records.
pub(crate) fn usertable(place: &Place) -> String {
    object(place, "usertable")
}

fn create(table: &str, layout: &Layout, engine: Engine) -> String {
    let (each, count) = (u64::from(layout.field_bytes), u64::from(layout.fields));
    let together = each * count;
    let kind = if together > WIDEST {
        "MEDIUMTEXT".to_owned()
    } else if engine == Engine::InnoDb && together > HALF_A_PAGE && OUTSIDE * count <= WIDEST {
        format!("VARCHAR({})", each.max(OUTSIDE))
    } else {
        format!("VARCHAR({each})")
    };
    let fields = list(
        fields(layout).map(|field| format!("{field} {kind} CHARACTER SET ascii COLLATE ascii_bin NOT NULL")),
    );
    let primary = primary_key(engine, layout.scans);
    format!(
        "CREATE TABLE {table} (id {KEY}{primary}, version BIGINT NOT NULL, {fields}) ENGINE={}",
        engine.name()
    )
}

/// The primary key's clause. MEMORY's default index, a hash, finds single keys only, but faster than its B-tree.
pub(crate) fn primary_key(engine: Engine, in_order: bool) -> &'static str {
    match engine {
        Engine::Csv | Engine::Archive => "",
        Engine::Memory if in_order => ", PRIMARY KEY USING BTREE (id)",
        _ => ", PRIMARY KEY (id)",
    }
}

/// Creates the table and loads the records, in the order of their keys.
pub(crate) async fn records(
    conn: &mut Conn,
    place: &Place,
    layout: &Layout,
    engine: Engine,
    loaded: &LoadProgress,
) -> Result<(), Error> {
    let table = usertable(place);
    if engine == Engine::Memory {
        let row = u64::from(layout.field_bytes) * u64::from(layout.fields) + 128;
        make_room(conn, layout.records.saturating_mul(row), ROOM).await?;
    }
    conn.query_drop(create(&table, layout, engine)).await?;
    let streams = local_infile(conn).await?;
    let (layout, into) = (*layout, (table.as_str(), ""));
    for part in 0..parts(layout.records) {
        for batch in in_order(layout.records, part).chunks(BATCH) {
            let mut fields = Fields::default();
            if streams {
                let write = move |piece: &mut String, number: &u64| {
                    layout.fill(*number, &mut fields);
                    row_of_file(piece, *number, &fields);
                };
                stream_in(conn, into, batch.to_vec(), write).await?;
            } else {
                let write = |sql: &mut String, number: &u64| {
                    layout.fill(*number, &mut fields);
                    values(sql, *number, &fields);
                };
                insert(conn, into, batch, write).await?;
            }
            loaded.add(batch.len() as u64);
        }
    }
    analyze(conn, &table, engine).await
}

/// Gathers the statistics that the planner uses, on engines that have an index.
pub(crate) async fn analyze(conn: &mut Conn, table: &str, engine: Engine) -> Result<(), Error> {
    if engine.is_indexed() && engine != Engine::Blackhole {
        conn.query_drop(format!("ANALYZE TABLE {table}")).await?;
    }
    Ok(())
}

/// Lets a MEMORY table grow to four times the bytes that are to be loaded, and at least so much. Its limit is the
/// setting of the session that creates it.
pub(crate) async fn make_room(conn: &mut Conn, loaded: u64, least: u64) -> Result<(), Error> {
    let room = loaded.saturating_mul(4).max(least);
    conn.query_drop(format!("SET SESSION max_heap_table_size = GREATEST(@@max_heap_table_size, {room})"))
        .await
}

/// Whether the server accepts a stream of rows; `MySQL` does not by default.
pub(crate) async fn local_infile(conn: &mut Conn) -> Result<bool, Error> {
    let allowed: Option<i64> = conn.query_first("SELECT @@local_infile").await?;
    Ok(allowed == Some(1))
}

/// How many parts the keys are divided into, to be sorted one after the other.
fn parts(records: u64) -> u64 {
    records.div_ceil(SORTED)
}

/// Numbers of the records whose keys are in one part, in the order of their keys. Loaded in that order, a primary
/// key is built page by page; in the order of numbers every record would be written to another page.
fn in_order(records: u64, part: u64) -> Vec<u64> {
    let parts = parts(records);
    let mut numbers: Vec<u64> =
        (0..records).filter(|number| parts == 1 || part_of(&key_name(*number), parts) == part).collect();
    numbers.sort_by_cached_key(|number| key_name(*number));
    numbers
}

/// The part that a key is in, by its first six digits, which are 100000 to 922337 for all but one key in fifty.
fn part_of(key: &str, parts: u64) -> u64 {
    const DIGITS: usize = 6;
    let digits = key.bytes().filter(u8::is_ascii_digit).chain([b'0'; DIGITS]).take(DIGITS);
    let first = digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    (first.saturating_sub(100_000) * parts / 822_338).min(parts - 1)
}

/// Sends rows to these columns of a table (all where none are named) as a file that is written while it is sent.
/// `write` adds a row to a piece of it.
pub(crate) async fn stream_in<T: Send + Sync + 'static>(
    conn: &mut Conn,
    (table, columns): (&str, &str),
    rows: Vec<T>,
    mut write: impl FnMut(&mut String, &T) + Send + Sync + 'static,
) -> Result<(), Error> {
    let count = rows.len() as u64;
    conn.set_infile_handler(async move {
        let mut rows = rows.into_iter().peekable();
        let pieces = std::iter::from_fn(move || {
            rows.peek()?;
            let mut piece = String::with_capacity(PIECE);
            while piece.len() < PIECE
                && let Some(row) = rows.next()
            {
                write(&mut piece, &row);
            }
            Some(Ok(piece.into_bytes().into()))
        });
        Ok(stream::iter(pieces).boxed())
    });
    let load = format!("LOAD DATA LOCAL INFILE 'rows' INTO TABLE {table} CHARACTER SET ascii {columns}");
    conn.query_drop(load).await?;
    // the server skips rows of such a file that it cannot store
    let taken = conn.affected_rows();
    if taken == count {
        Ok(())
    } else {
        Err(Error::Other(format!("{taken} of {count} rows were taken").into()))
    }
}

fn row_of_file(piece: &mut String, number: u64, fields: &Fields) {
    // writing to a string cannot fail
    let _ = write!(piece, "{}\t0", key_name(number));
    for field in fields.iter() {
        piece.push('\t');
        piece.push_str(field);
    }
    piece.push('\n');
}

/// Sends rows as INSERTs of many rows, in one transaction where the engine has transactions. `write` adds a row's values
/// to the statement.
pub(crate) async fn insert<T>(
    conn: &mut Conn,
    (table, columns): (&str, &str),
    rows: &[T],
    mut write: impl FnMut(&mut String, &T),
) -> Result<(), Error> {
    let begin = format!("INSERT INTO {table} {columns} VALUES ");
    let mut sql = begin.clone();
    conn.query_drop("START TRANSACTION").await?;
    for (index, row) in rows.iter().enumerate() {
        sql.push_str(if sql.len() == begin.len() { "" } else { ", " });
        write(&mut sql, row);
        if sql.len() >= PIECE || index + 1 == rows.len() {
            conn.query_drop(sql.as_str()).await?;
            sql.truncate(begin.len());
        }
    }
    conn.query_drop("COMMIT").await
}

fn values(sql: &mut String, number: u64, fields: &Fields) {
    // letters and digits, which need no escapes; writing to a string cannot fail
    let _ = write!(sql, "('{}', 0", key_name(number));
    for field in fields.iter() {
        let _ = write!(sql, ", '{field}'");
    }
    sql.push(')');
}

/// Passes every record to `each` as it streams in, with the beginnings of its fields.
pub(crate) async fn state(
    store: &MariaDb,
    place: &Place,
    layout: &Layout,
    each: &mut RecordVisitor<'_>,
) -> Result<(), StoreError> {
    let tags = list(fields(layout).map(|field| format!("LEFT({field}, 16)")));
    let sql = format!("SELECT id, version, {tags} FROM {}", usertable(place));
    let read = async |conn: &mut Conn| {
        let mut result = conn.exec_iter(sql, ()).await?;
        result.for_each(|row| take(&row, each)).await?;
        result.drop_result().await
    };
    store.on_server("reading the final records", read).await
}

fn take(row: &Row, each: &mut RecordVisitor<'_>) {
    let version = number(row, 1).ok();
    let tag = version.and_then(|_| tag_of((2..row.len()).map(|column| row.bytes(column))));
    each(text(row, 0), version.unwrap_or_default(), tag);
}

pub(crate) async fn drop_tables(conn: &mut Conn, tables: &[String]) -> Result<(), Error> {
    conn.query_drop(format!("DROP TABLE IF EXISTS {}", tables.join(", "))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_is_in_one_part_and_all_parts_are_in_order() {
        let records = 3_000;
        let mut keys: Vec<String> = (0..records).map(key_name).collect();
        keys.sort_unstable();
        for parts in [1, 7] {
            let mut all = Vec::new();
            let mut largest = 0;
            for part in 0..parts {
                let mut some: Vec<String> =
                    keys.iter().filter(|key| part_of(key, parts) == part).cloned().collect();
                largest = largest.max(some.len());
                some.sort_unstable();
                all.extend(some);
            }
            assert!(all == keys, "{parts} parts");
            assert!(largest <= 3_000 / usize::try_from(parts).unwrap() * 3 / 2, "{largest}");
        }
        let numbers = in_order(records, 0);
        assert!(numbers.iter().map(|number| key_name(*number)).eq(keys));
    }

    #[test]
    fn columns_are_as_wide_as_the_engine_can_take_them() {
        let kind = |fields, field_bytes, engine| {
            let layout = Layout { records: 1, fields, field_bytes, scans: false };
            let sql = create("t", &layout, engine);
            sql.split("field0 ").nth(1).unwrap().split(' ').next().unwrap().to_owned()
        };
        assert_eq!(kind(10, 100, Engine::InnoDb), "VARCHAR(100)");
        assert_eq!(kind(100, 100, Engine::InnoDb), "VARCHAR(256)");
        assert_eq!(kind(100, 100, Engine::Memory), "VARCHAR(100)");
        assert_eq!(kind(1, 65_536, Engine::InnoDb), "MEDIUMTEXT");
    }
}
