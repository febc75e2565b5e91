//! The statements of each lock mode.

use super::{
    arrays::{Column, Counts},
    table::{Names, OID},
};
use crate::{
    Value,
    protocol::{Connection, Error, Pipeline, Statement},
};
use acidtest_model::Lock;
use acidtest_workloads::parcels::{Batch, Index, MOST, Requirements, Scan};

pub(crate) struct Statements {
    pub(crate) by_hash: Statement,
    pub(crate) by_id: Statement,
    pub(crate) how: InsertStatements,
}

/// How scans are counted and inserted, which depends on the lock mode.
pub(crate) enum InsertStatements {
    /// Counts, and inserts with the counts: no lock and soft lock.
    InSteps { count: BatchStatement, insert: BatchStatement },
    /// Locks, counts and inserts, in a transaction: hard lock.
    Locked { lock: BatchStatement, count: BatchStatement, insert: BatchStatement },
    /// A function of the server's does all: native lock.
    InOne { call: Statement },
}

/// A statement for one scan, and one for several at once.
pub(crate) struct BatchStatement {
    one: Statement,
    several: Statement,
}

/// What is read of a row.
pub(crate) const COLUMNS: &str =
    "scan_id, scan_hash, scan_type, scan_count, machine_type, sequence_code, load_date IS NOT NULL";

/// What is given for a row. The store gives the rest.
const GIVEN: &str = "scan_hash, scan_type, scan_count, machine_type, sequence_code";

impl Statements {
    pub(crate) async fn prepare(
        connection: &mut Connection,
        names: &Names,
        wanted: &Requirements,
    ) -> Result<Self, Error> {
        let table = &names.table;
        let count = async |connection: &mut Connection| {
            let one =
                format!("SELECT scan_hash, count(*) FROM {table} WHERE scan_hash = $1 GROUP BY scan_hash");
            BatchStatement::prepare(connection, &one, &counts(table, wanted.index, "$1::text[]")).await
        };
        let insert = async |connection: &mut Connection| {
            let (into, ids) = (format!("INSERT INTO {table} ({GIVEN})"), "RETURNING scan_hash, scan_id");
            let arrays = "$1::text[], $2::text[], $3::int[], $4::text[], $5::text[]";
            let one = format!("{into} VALUES ($1, $2, $3, $4, $5) {ids}");
            let several = format!("{into} SELECT * FROM unnest({arrays}) {ids}");
            BatchStatement::prepare(connection, &one, &several).await
        };
        let how = match wanted.lock {
            Lock::None | Lock::Soft => InsertStatements::InSteps {
                count: count(connection).await?,
                insert: insert(connection).await?,
            },
            Lock::Hard => {
                let lock = lock(number(connection, names).await?);
                InsertStatements::Locked {
                    lock: BatchStatement::prepare(
                        connection,
                        &format!("SELECT {lock} FROM (VALUES ($1::text)) AS given (hash)"),
                        &format!("SELECT {lock} FROM unnest($1::text[]) AS given (hash)"),
                    )
                    .await?,
                    count: count(connection).await?,
                    insert: insert(connection).await?,
                }
            }
            Lock::Native => {
                let call = format!("SELECT * FROM {}($1, $2, $3, $4)", names.function);
                InsertStatements::InOne { call: connection.prepare(&call).await? }
            }
        };
        let read = format!("SELECT {COLUMNS} FROM {table} WHERE");
        Ok(Self {
            by_hash: connection.prepare(&format!("{read} scan_hash = $1")).await?,
            by_id: connection.prepare(&format!("{read} scan_id = $1")).await?,
            how,
        })
    }
}

/// Counts the scans of several parcels. With an index each is looked up; without one the table is read once for all of
/// them, whose hashes are then best kept in a hash table.
fn counts(table: &str, index: Index, hashes: &str) -> String {
    let found = match index {
        Index::Hash => format!("{table} WHERE scan_hash = ANY ({hashes})"),
        Index::None => format!("unnest({hashes}) AS asked (hash) JOIN {table} ON scan_hash = asked.hash"),
    };
    format!("SELECT scan_hash, count(*) FROM {found} GROUP BY scan_hash")
}

/// Takes the lock of the parcel `hash` until the transaction ends. The number of the table makes the lock this trial's
/// own. A row lock would not do: no row can be locked that is not there yet.
fn lock(table: u32) -> String {
    format!("pg_advisory_xact_lock(hashtextextended(given.hash, {table}))")
}

/// Makes the function that inserts scans under the native lock. Each of its statements sees what was committed before
/// it began, as it is volatile: the one that counts sees what the locks' last holders have inserted.
pub(crate) fn function(names: &Names, index: Index, number: u32) -> String {
    let Names { table, function } = names;
    let (lock, counts) = (lock(number), counts(table, index, "hashes"));
    let body = format!(
        "BEGIN
           PERFORM {lock} FROM unnest(hashes) AS given (hash);
           RETURN QUERY
             INSERT INTO {table} ({GIVEN})
             SELECT given.hash, given.kind, (coalesce(had.scans, 0) + 1)::int, given.machine, given.code
             FROM unnest(hashes, kinds, machines, codes) AS given (hash, kind, machine, code)
             LEFT JOIN ({counts}) AS had (hash, scans) ON had.hash = given.hash
             WHERE coalesce(had.scans, 0) < {MOST}
             RETURNING scan_hash, scan_id, scan_count;
         END"
    );
    let mut quote = "$body$".to_owned();
    // a name may hold anything
    while body.contains(&quote) {
        quote.insert(1, '_');
    }
    format!(
        "CREATE FUNCTION {function} (hashes text[], kinds text[], machines text[], codes text[])
         RETURNS TABLE (given_hash varchar, given_id bigint, given_count int)
         LANGUAGE plpgsql VOLATILE AS {quote}{body}{quote}"
    )
}

impl BatchStatement {
    async fn prepare(connection: &mut Connection, one: &str, several: &str) -> Result<Self, Error> {
        Ok(Self { one: connection.prepare(one).await?, several: connection.prepare(several).await? })
    }

    /// Adds that parcels are locked or counted, for which the statement is given their hashes.
    pub(crate) fn ask(
        &self,
        pipeline: &mut Pipeline<'_>,
        scans: &[Scan],
        batch: &Batch,
    ) -> Result<(), Error> {
        match batch.only(scans) {
            Some((scan, _)) => pipeline.run(self.one, [Value::Text(scan.hash())]),
            None => pipeline.run(self.several, [Value::Other(&Column { scans, batch, of: Scan::hash })]),
        }
    }

    /// Adds that the scans are inserted with the counts that are noted.
    pub(crate) fn insert(
        &self,
        pipeline: &mut Pipeline<'_>,
        scans: &[Scan],
        batch: &Batch,
    ) -> Result<(), Error> {
        if let Some((scan, count)) = batch.only(scans) {
            let [hash, kind, machine, code] =
                [scan.hash(), scan.kind(), scan.machine(), scan.code()].map(Value::Text);
            return pipeline.run(self.one, [hash, kind, Value::Number(count.into()), machine, code]);
        }
        let columns =
            [Scan::hash, Scan::kind, Scan::machine, Scan::code].map(|of| Column { scans, batch, of });
        let [hash, kind, machine, code] = columns.each_ref().map(|column| Value::Other(column));
        pipeline.run(self.several, [hash, kind, Value::Other(&Counts { scans, batch }), machine, code])
    }
}

/// Adds that the function inserts the scans.
pub(crate) fn insert_in_one(
    pipeline: &mut Pipeline<'_>,
    call: Statement,
    scans: &[Scan],
    batch: &Batch,
) -> Result<(), Error> {
    let columns = [Scan::hash, Scan::kind, Scan::machine, Scan::code].map(|of| Column { scans, batch, of });
    pipeline.run(call, columns.each_ref().map(|column| Value::Other(column)))
}

/// The number by which the server knows the table.
async fn number(connection: &mut Connection, names: &Names) -> Result<u32, Error> {
    let statement = connection.prepare(OID).await?;
    let rows = connection.run(statement, [Value::Text(&names.table)]).await?;
    let number = rows.first().and_then(|row| row.get(0).ok());
    number.ok_or_else(|| Error::Lost("the server does not tell the table's number".to_owned()))
}
