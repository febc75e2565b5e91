//! Interactive transactions: a connection for each session, which never waits for another.

use std::time::Duration;

use acidtest_model::{Isolation, StoreError, Task};
use acidtest_workloads::{
    Place,
    interactive::{InteractiveSession, InteractiveStore, Mode, Reply, Table},
};
use rusqlite::{Connection, Error, ErrorCode, OpenFlags, ffi, types::ValueRef};

use crate::{Sqlite, named, transaction::roll_back};

/// Its sessions share a cache, and see what others have not committed.
const UNCOMMITTED: &str = "read uncommitted, shared cache";

/// Its transactions begin with `BEGIN IMMEDIATE`.
const IMMEDIATE: &str = "serializable, begin immediate";

fn modes() -> [Mode; 3] {
    let mode = |name: &str, level, how, is_default| Mode { name: name.to_owned(), level, how, is_default };
    [
        mode(
            UNCOMMITTED,
            // no level that a session can ask for: its connections must share a cache
            None,
            "SQLITE_OPEN_SHARED_CACHE, PRAGMA read_uncommitted = 1; BEGIN",
            false,
        ),
        mode("serializable", Some(Isolation::Serializable), "BEGIN, which is deferred", true),
        mode(IMMEDIATE, Some(Isolation::Serializable), "BEGIN IMMEDIATE", false),
    ]
}

impl InteractiveStore for Sqlite {
    fn modes(&self) -> Task<'_, Result<Vec<Mode>, StoreError>> {
        Box::pin(async { Ok(modes().to_vec()) })
    }

    fn refuses(&self, _: &Mode, _: &str) -> Option<String> {
        None
    }

    /// SQLite locks the whole file.
    fn is_concurrent(&self) -> bool {
        false
    }

    fn make_table<'a>(&'a self, place: &'a Place, table: &'a Table) -> Task<'a, Result<String, StoreError>> {
        Box::pin(async move {
            let name = named(place, &table.name);
            self.on_file("making a table", |connection| {
                let transaction = connection.transaction()?;
                transaction.execute_batch(&format!("CREATE TABLE {name} ({})", table.columns))?;
                for row in &table.rows {
                    let row = row.join(", ");
                    transaction.execute_batch(&format!("INSERT INTO {name} VALUES ({row})"))?;
                }
                transaction.commit()
            })?;
            Ok(name)
        })
    }

    fn drop_table<'a>(&'a self, _: &'a Place, name: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.on_file("removing a table", |connection| {
                connection.execute_batch(&format!("DROP TABLE IF EXISTS {name}"))
            })
        })
    }

    fn session<'a>(
        &'a self,
        _: &'a Place,
        mode: &'a Mode,
    ) -> Task<'a, Result<Box<dyn InteractiveSession>, StoreError>> {
        Box::pin(async move {
            let session = self.told("opening a session", self.open_session(mode))?;
            Ok(Box::new(session) as Box<dyn InteractiveSession>)
        })
    }
}

impl Sqlite {
    fn open_session(&self, mode: &Mode) -> rusqlite::Result<Session> {
        let is_uncommitted = mode.name == UNCOMMITTED;
        let cache = if is_uncommitted {
            OpenFlags::SQLITE_OPEN_SHARED_CACHE
        } else {
            OpenFlags::SQLITE_OPEN_PRIVATE_CACHE
        };
        let connection = self.file.connect_as(OpenFlags::default() | cache)?;
        // a wait would be one of the thread, on which all sessions run
        connection.busy_timeout(Duration::ZERO)?;
        connection.pragma_update(None, "read_uncommitted", is_uncommitted)?;
        let number: i64 = connection.pragma_query_value(None, "read_uncommitted", |row| row.get(0))?;
        let journal: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
        Ok(Session {
            connection,
            level: format!("read_uncommitted = {number}, journal_mode = {journal}"),
            is_immediate: mode.name == IMMEDIATE,
        })
    }
}

struct Session {
    connection: Connection,
    level: String,
    is_immediate: bool,
}

impl InteractiveSession for Session {
    fn level(&self) -> &str {
        &self.level
    }

    fn run<'a>(&'a mut self, statement: &'a str) -> Task<'a, Reply> {
        Box::pin(async move {
            let reply = self.execute(statement).unwrap_or_else(|error| reply(&error));
            // what is refused does not go on, and keeps no locks
            if matches!(reply, Reply::Refused(_))
                && let Err(error) = roll_back(&self.connection)
            {
                return self::reply(&error);
            }
            reply
        })
    }
}

impl Session {
    fn execute(&self, statement: &str) -> rusqlite::Result<Reply> {
        let statement = statement.trim().trim_end_matches(';').trim_end();
        let first = statement.split(|letter: char| !letter.is_alphabetic()).next().unwrap_or_default();
        let first = first.to_lowercase();
        if first == "rollback" && self.connection.is_autocommit() {
            return Ok(Reply::Done(None));
        }
        let is_plain_begin = statement.eq_ignore_ascii_case("begin");
        let statement = if is_plain_begin && self.is_immediate { "BEGIN IMMEDIATE" } else { statement };
        let mut prepared = self.connection.prepare(statement)?;
        if prepared.column_count() == 0 {
            let changed = prepared.execute([])?;
            let is_change = ["insert", "update", "delete", "replace"].contains(&first.as_str());
            return Ok(Reply::Done(is_change.then(|| u64::try_from(changed).unwrap_or(u64::MAX))));
        }
        let columns = prepared.column_count();
        let mut found = prepared.query([])?;
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            rows.push((0..columns).map(|column| row.get_ref(column).map(text)).collect::<Result<_, _>>()?);
        }
        Ok(Reply::Rows(rows))
    }
}

fn text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(bytes) => format!("{bytes:02x?}"),
    }
}

/// What an error says of the statement that met it.
fn reply(error: &Error) -> Reply {
    let said = error.to_string();
    let extended = error.sqlite_error().map(|error| error.extended_code);
    let said = match extended.and_then(name_of) {
        Some(name) => format!("{name}: {said}"),
        None => said,
    };
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::ConstraintViolation) => {
            Reply::Refused(said)
        }
        Some(ErrorCode::SystemIoFailure) => Reply::Unknown(said),
        _ => Reply::Failed(said),
    }
}

/// SQLite's name of an error, where its words alone do not tell why a statement is refused.
fn name_of(extended: i32) -> Option<&'static str> {
    Some(match extended {
        ffi::SQLITE_BUSY => "SQLITE_BUSY",
        ffi::SQLITE_BUSY_RECOVERY => "SQLITE_BUSY_RECOVERY",
        ffi::SQLITE_BUSY_SNAPSHOT => "SQLITE_BUSY_SNAPSHOT",
        ffi::SQLITE_LOCKED => "SQLITE_LOCKED",
        ffi::SQLITE_LOCKED_SHAREDCACHE => "SQLITE_LOCKED_SHAREDCACHE",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_from_a_failure_and_from_doubt() {
        let met = |code| reply(&Error::SqliteFailure(ffi::Error::new(code), None));
        for code in [ffi::SQLITE_BUSY, ffi::SQLITE_LOCKED, ffi::SQLITE_CONSTRAINT_PRIMARYKEY] {
            assert!(matches!(met(code), Reply::Refused(_)), "{code}");
        }
        let snapshot = met(ffi::SQLITE_BUSY_SNAPSHOT);
        assert!(matches!(&snapshot, Reply::Refused(why) if why.starts_with("SQLITE_BUSY_SNAPSHOT: ")));
        for code in [ffi::SQLITE_IOERR, ffi::SQLITE_IOERR_FSYNC] {
            assert!(matches!(met(code), Reply::Unknown(_)), "{code}");
        }
        for code in [ffi::SQLITE_ERROR, ffi::SQLITE_FULL, ffi::SQLITE_READONLY] {
            assert!(matches!(met(code), Reply::Failed(_)), "{code}");
        }
    }
}
