//! The statements of each lock mode.

use std::fmt::Write as _;

use acidtest_model::Lock;
use acidtest_workloads::parcels::{Batch, Index, MOST, Requirements, Scan};

use super::Names;
use crate::{
    columns::{Columns, number},
    engine::Engine,
    fault::SendState,
    protocol::{Connection, Error, Statement},
    session::UnitOfWork,
};

/// How long an insert waits for a parcel that another client has locked, in seconds; less in the tests of this crate, one
/// of which waits for the end.
const PATIENCE: u32 = if cfg!(test) { 1 } else { 5 };

/// Gives back every lock of [`Guard::Named`], and those of a procedure.
pub(crate) const RELEASE: &str = "DO RELEASE_ALL_LOCKS()";

/// What is read of a row.
pub(crate) const COLUMNS: &str =
    "scan_id, scan_hash, scan_type, scan_count, machine_type, sequence_code, load_date IS NOT NULL";

/// What is given for a row. The store gives the rest.
const GIVEN: &str = "(scan_hash, scan_type, scan_count, machine_type, sequence_code)";

/// The statements of one client. Those for a single scan are prepared. Those for several are made as text, since a
/// prepared one would be needed for each number of them.
pub(crate) struct Statements {
    pub(crate) by_hash: Statement,
    pub(crate) by_id: Statement,
    pub(crate) how: InsertStatements,
    /// The table and its index, as a SELECT names them.
    found: String,
    table: String,
    /// See [`Names::lock`].
    lock: String,
    /// How far an id is above the one before.
    pub(crate) step: u64,
    /// The [`SendState`] of a write.
    pub(crate) sent: SendState,
}

/// How scans are counted and inserted, which depends on the lock mode.
pub(crate) enum InsertStatements {
    /// Counts, and inserts with the counts.
    InSteps { count: Statement, insert: Statement, guard: Guard },
    /// A procedure of the server's does all.
    InOne { call: Statement },
}

/// What protects a count until it is inserted.
pub(crate) enum Guard {
    /// Nothing: no lock.
    None,
    /// The unique key refuses a count that is there already: soft lock.
    Unique,
    /// A lock of the parcel's name, which the server keeps until it is given back: hard lock.
    Named(Statement),
    /// A lock on the table: hard lock on an engine without transactions.
    Table(UnitOfWork),
}

/// How far an id is above the one before, where so many rows are inserted at once.
///
/// # Errors
/// The connection's; or that the step may change at any time: nodes of a Galera cluster make it the number of their members,
/// and the first id of several rows then does not tell the others.
async fn step_of_ids(conn: &mut Connection, batch: u32) -> Result<u64, Error> {
    let galera = conn.query("SHOW VARIABLES LIKE 'wsrep_on'").await?.first();
    if batch > 1 && galera.is_some_and(|row| row.bytes(1).eq_ignore_ascii_case(b"ON")) {
        return Err(Error::NotSent(
            "the ids of several scans inserted at once are not known on a Galera cluster, whose steps change with its \
             members: use --insert-batch 1"
                .to_owned(),
        ));
    }
    let step = conn.query("SELECT @@auto_increment_increment").await?.first();
    Ok(step.and_then(|row| number(&row, 0).ok()).unwrap_or(1))
}

/// The table as a SELECT by hash names it: it must use the index where there is one, also for a long list of hashes.
fn found(table: &str, index: Index) -> String {
    match index {
        Index::Hash => format!("{table} FORCE INDEX (by_hash)"),
        Index::None => table.to_owned(),
    }
}

impl Statements {
    pub(crate) async fn prepare(
        conn: &mut Connection,
        names: &Names,
        engine: Engine,
        wanted: &Requirements,
    ) -> Result<Self, Error> {
        let Names { table, procedure, lock } = names;
        let found = found(table, wanted.index);
        let how = match wanted.lock {
            Lock::Native => {
                InsertStatements::InOne { call: conn.prepare(&format!("CALL {procedure}(?)")).await? }
            }
            _ => InsertStatements::InSteps {
                count: conn.prepare(&format!("SELECT COUNT(*) FROM {found} WHERE scan_hash = ?")).await?,
                insert: conn.prepare(&format!("INSERT INTO {table} {GIVEN} VALUES (?, ?, ?, ?, ?)")).await?,
                guard: match wanted.lock {
                    Lock::Soft => Guard::Unique,
                    Lock::Hard if engine.is_transactional() => {
                        Guard::Named(conn.prepare(&format!("SELECT GET_LOCK(?, {PATIENCE})")).await?)
                    }
                    Lock::Hard => Guard::Table(UnitOfWork::on_table(table)),
                    _ => Guard::None,
                },
            },
        };
        Ok(Self {
            by_hash: conn.prepare(&format!("SELECT {COLUMNS} FROM {found} WHERE scan_hash = ?")).await?,
            by_id: conn.prepare(&format!("SELECT {COLUMNS} FROM {table} WHERE scan_id = ?")).await?,
            how,
            found,
            table: table.clone(),
            lock: lock.clone(),
            step: step_of_ids(conn, wanted.batch).await?,
            sent: if engine.is_transactional() { SendState::Write } else { SendState::InPlace },
        })
    }

    /// Counts the scans of several parcels. Hashes are letters and digits, which need no escapes.
    pub(crate) fn count_several(&self, sql: &mut String, scans: &[Scan], batch: &Batch) {
        // writing to a string cannot fail, here and below
        let _ = write!(sql, "SELECT scan_hash, COUNT(*) FROM {} WHERE scan_hash IN (", self.found);
        for (index, (scan, _)) in batch.each(scans).enumerate() {
            let _ = write!(sql, "{}'{}'", if index > 0 { ", " } else { "" }, scan.hash());
        }
        sql.push_str(") GROUP BY scan_hash");
    }

    pub(crate) fn insert_several(&self, sql: &mut String, scans: &[Scan], batch: &Batch) {
        let _ = write!(sql, "INSERT INTO {} {GIVEN} VALUES ", self.table);
        for (index, (scan, count)) in batch.each(scans).enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            let [hash, kind, machine, code] = [scan.hash(), scan.kind(), scan.machine(), scan.code()];
            let _ = write!(sql, "{comma}('{hash}', '{kind}', {count}, '{machine}', '{code}')");
        }
    }

    /// Takes the locks of several parcels one after the other, and stops at one that it does not get.
    pub(crate) fn lock_several(&self, sql: &mut String, scans: &[Scan], batch: &Batch) {
        sql.push_str("SELECT ");
        for (index, (scan, _)) in batch.each(scans).enumerate() {
            let and = if index > 0 { " AND " } else { "" };
            let _ = write!(sql, "{and}GET_LOCK('{}{}', {PATIENCE})", self.lock, scan.hash());
        }
    }

    /// The name of a parcel's lock.
    pub(crate) fn lock_name(&self, name: &mut String, scan: &Scan) {
        name.push_str(&self.lock);
        name.push_str(scan.hash());
    }
}

/// What a procedure is told of the scans: their texts, one scan after the other.
pub(crate) fn told(text: &mut String, scans: &[Scan], batch: &Batch) {
    for (scan, _) in batch.each(scans) {
        for column in [scan.hash(), scan.kind(), scan.machine(), scan.code()] {
            text.push_str(column);
        }
    }
}

/// A procedure that counts and inserts scans, and answers of each its id and count, or nothing if it was refused, and a
/// semicolon.
pub(crate) fn procedure(names: &Names, engine: Engine, index: Index) -> String {
    let found = found(&names.table, index);
    let body = if engine == Engine::Memory { counting(names, &found) } else { locking(names, &found) };
    let text = "CHARACTER SET ascii COLLATE ascii_bin";
    format!(
        "CREATE PROCEDURE {} (IN scans MEDIUMTEXT {text})
         MODIFIES SQL DATA SQL SECURITY INVOKER
         BEGIN
           DECLARE place INT DEFAULT 1;
           DECLARE parcel VARCHAR(11) {text};
           DECLARE kind VARCHAR(3) {text};
           DECLARE machine VARCHAR(10) {text};
           DECLARE code VARCHAR(5) {text};
           DECLARE had BIGINT;
           DECLARE given MEDIUMTEXT {text} DEFAULT '';
           {body}
         END",
        names.procedure
    )
}

/// Takes the texts of the scan at `place`. They are given to statements as variables of a small type: parts of a long
/// text would have the server keep each row that it selects in a file.
const TAKE: &str = "SET parcel = SUBSTRING(scans, place, 11), kind = SUBSTRING(scans, place + 11, 3),
                      machine = SUBSTRING(scans, place + 14, 10), code = SUBSTRING(scans, place + 24, 5);";

/// The procedure's body on all engines but MEMORY. It takes the parcels' locks before the transaction begins, whose counts
/// then see what the locks' last holders have committed. InnoDB's own locks would not do: of two clients that have locked
/// the gap where both of them insert, one is always rolled back. MyISAM and Aria have no transactions, but lock their
/// tables for an `INSERT … SELECT`, which takes them three times as long as these statements.
fn locking(names: &Names, found: &str) -> String {
    let Names { table, lock, .. } = names;
    format!(
        "DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; {RELEASE}; RESIGNAL; END;
         WHILE place <= LENGTH(scans) DO
           IF COALESCE(GET_LOCK(CONCAT('{lock}', SUBSTRING(scans, place, 11)), {PATIENCE}), 0) <> 1 THEN
             SIGNAL SQLSTATE '40001' SET MESSAGE_TEXT = 'a parcel is locked';
           END IF;
           SET place = place + 29;
         END WHILE;
         SET place = 1;
         START TRANSACTION;
         WHILE place <= LENGTH(scans) DO
           {TAKE}
           SELECT COUNT(*) INTO had FROM {found} WHERE scan_hash = parcel;
           IF had < {MOST} THEN
             INSERT INTO {table} {GIVEN} VALUES (parcel, kind, had + 1, machine, code);
             SET given = CONCAT(given, LAST_INSERT_ID(), ' ', had + 1);
           END IF;
           SET given = CONCAT(given, ';');
           SET place = place + 29;
         END WHILE;
         SELECT given;
         COMMIT;
         {RELEASE};"
    )
}

/// The procedure's body in MEMORY: each scan is one statement, for which the table is locked.
fn counting(names: &Names, found: &str) -> String {
    let Names { table, .. } = names;
    format!(
        "WHILE place <= LENGTH(scans) DO
           {TAKE}
           INSERT INTO {table} {GIVEN}
             SELECT parcel, kind, COUNT(*) + 1, machine, code FROM {found} WHERE scan_hash = parcel
             HAVING COUNT(*) < {MOST};
           IF ROW_COUNT() > 0 THEN
             SELECT scan_count INTO had FROM {table} WHERE scan_id = LAST_INSERT_ID();
             SET given = CONCAT(given, LAST_INSERT_ID(), ' ', had);
           END IF;
           SET given = CONCAT(given, ';');
           SET place = place + 29;
         END WHILE;
         SELECT given;"
    )
}

#[cfg(test)]
mod tests {
    use acidtest_model::Address;

    use super::*;
    use crate::{
        ConnectOptions,
        protocol::tests::{Manner, logged_in, told},
    };

    /// What is known of ids on a server that answers so when it is asked for its cluster, and has a step of 3.
    fn step(cluster: &[&[&str]], batch: u32) -> Result<u64, String> {
        let sayings = [told(2, cluster), told(1, &[&["3"]])];
        logged_in(Manner::New, &[], &sayings).during(async |address| {
            let address = Address::parse(&format!("mariadb://ann@{address}")).unwrap();
            let mut connection = ConnectOptions::new(&address).unwrap().connect().await.unwrap();
            connection.prepare("…").await.unwrap();
            step_of_ids(&mut connection, batch).await.map_err(|error| error.to_string())
        })
    }

    #[test]
    fn ids_are_not_guessed_where_their_step_may_change() {
        let (on, off) = ([&["wsrep_on", "ON"][..]], [&["wsrep_on", "OFF"][..]]);
        for (cluster, batch) in [(&[][..], 1), (&[], 4), (&off, 4), (&on, 1)] {
            assert_eq!(step(cluster, batch), Ok(3), "{cluster:?}, {batch}");
        }
        assert!(step(&on, 4).unwrap_err().contains("--insert-batch 1"));
    }
}
