//! How transactions begin and end, for every workload's operations.

use acidtest_workloads::Attempt;
use rusqlite::Connection;

/// Takes the lock to write at once: nobody else's turn comes between its reads and its writes.
pub(crate) const IMMEDIATE: &str = "BEGIN IMMEDIATE";

/// Takes the lock to write with its first write, which fails if others wrote since its first read.
pub(crate) const DEFERRED: &str = "BEGIN DEFERRED";

/// How an operation went, or the error that ended it.
pub(crate) type OperationResult = rusqlite::Result<Attempt>;

pub(crate) fn begin(connection: &Connection, how: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(how)?.execute([]).map(drop)
}

/// Commits what went well; rolls back everything else.
pub(crate) fn end(connection: &Connection, done: OperationResult) -> OperationResult {
    if matches!(done, Ok(Attempt::Ok)) {
        commit(connection)?;
    } else {
        roll_back(connection)?;
    }
    done
}

/// Commits, or rolls back what it cannot commit.
pub(crate) fn commit(connection: &Connection) -> rusqlite::Result<()> {
    let committed = connection.prepare_cached("COMMIT")?.execute([]);
    if committed.is_err() {
        roll_back(connection)?;
    }
    committed.map(drop)
}

/// SQLite rolls back by itself after some errors; then there is nothing left to do.
pub(crate) fn roll_back(connection: &Connection) -> rusqlite::Result<()> {
    if connection.is_autocommit() {
        return Ok(());
    }
    connection.prepare_cached("ROLLBACK")?.execute([]).map(drop)
}
