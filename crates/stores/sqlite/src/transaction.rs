//! Beginning and ending transactions, for every workload's operations.

use acidtest_workloads::Attempt;
use rusqlite::Connection;

/// Takes the write lock at once, so that no other connection writes between the transaction's reads and writes.
pub(crate) const IMMEDIATE: &str = "BEGIN IMMEDIATE";

/// Takes the write lock with the first write, which fails if others wrote since the transaction's first read.
pub(crate) const DEFERRED: &str = "BEGIN DEFERRED";

/// How an operation went, or the error that ended it.
pub(crate) type OperationResult = rusqlite::Result<Attempt>;

pub(crate) fn begin(connection: &Connection, how: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(how)?.execute([]).map(drop)
}

/// Commits after success; rolls back after any other outcome.
pub(crate) fn end(connection: &Connection, done: OperationResult) -> OperationResult {
    if matches!(done, Ok(Attempt::Ok)) {
        commit(connection)?;
    } else {
        roll_back(connection)?;
    }
    done
}

/// Commits, or rolls back if that fails.
pub(crate) fn commit(connection: &Connection) -> rusqlite::Result<()> {
    let committed = connection.prepare_cached("COMMIT")?.execute([]);
    if committed.is_err() {
        roll_back(connection)?;
    }
    committed.map(drop)
}

/// Rolls back, unless SQLite has done so by itself, as it does after some errors.
pub(crate) fn roll_back(connection: &Connection) -> rusqlite::Result<()> {
    if connection.is_autocommit() {
        return Ok(());
    }
    connection.prepare_cached("ROLLBACK")?.execute([]).map(drop)
}
