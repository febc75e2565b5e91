//! Users in a file of SQLite.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{User, token::Hash};
use crate::{Error, blocking, folder};

#[derive(Debug)]
pub(super) struct SqliteUsers {
    file: String,
    connection: Arc<Mutex<Connection>>,
}

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS acidtest_gateway_users (
        name TEXT PRIMARY KEY, token_hash BLOB NOT NULL UNIQUE, is_operator INTEGER NOT NULL,
        added INTEGER NOT NULL, expires INTEGER, revoked INTEGER) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS acidtest_gateway_changes (version INTEGER NOT NULL);
    INSERT INTO acidtest_gateway_changes SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM acidtest_gateway_changes);";

impl SqliteUsers {
    pub(super) fn open(file: &str) -> Result<Self, Error> {
        let opened = || {
            if let Some(above) = Path::new(file).parent() {
                folder::make(above)?;
            }
            folder::make_private(Path::new(file))?;
            let connection = Connection::open(file)?;
            // A log (WAL) needs a file of its own for those who only read: on a full disk it could not be made, and nobody be
            // told by their token. A file that has one, as earlier versions made it, keeps it while others have it open.
            let _ = connection.pragma_update(None, "journal_mode", "delete");
            connection.busy_timeout(Duration::from_secs(5))?;
            connection.pragma_update(None, "synchronous", "extra")?;
            connection.execute_batch(&format!("BEGIN IMMEDIATE; {SCHEMA} COMMIT;"))?;
            Ok::<_, Box<dyn std::error::Error>>(connection)
        };
        let connection =
            opened().map_err(|error| Error::Unreached(format!("users cannot be kept in {file}: {error}")))?;
        Ok(Self { file: file.to_owned(), connection: Arc::new(Mutex::new(connection)) })
    }

    /// Uses the connection on a thread that may wait for the file.
    async fn with<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let connection = Arc::clone(&self.connection);
        let answer =
            blocking(move || ask(&mut connection.lock().unwrap_or_else(PoisonError::into_inner))).await?;
        answer.map_err(|error| Error::Unreached(format!("the users in {}: {error}", self.file)))
    }

    pub(super) async fn add(&self, user: &User, hash: &Hash) -> Result<bool, Error> {
        let (user, hash) = (user.clone(), *hash);
        self.with(move |connection| {
            let transaction = connection.transaction()?;
            let added = transaction.execute(
                "INSERT INTO acidtest_gateway_users VALUES (?1, ?2, ?3, ?4, ?5, NULL)
                 ON CONFLICT (name) DO UPDATE SET token_hash = excluded.token_hash, is_operator = excluded.is_operator,
                    added = excluded.added, expires = excluded.expires, revoked = NULL
                 WHERE revoked IS NOT NULL",
                params![user.name, hash, user.is_operator, user.added, user.expires],
            )?;
            transaction.execute("UPDATE acidtest_gateway_changes SET version = version + 1", [])?;
            transaction.commit()?;
            Ok(added > 0)
        })
        .await
    }

    pub(super) async fn list(&self) -> Result<Vec<User>, Error> {
        self.with(|connection| {
            let mut query =
                connection.prepare(&format!("SELECT {COLUMNS} FROM acidtest_gateway_users ORDER BY name"))?;
            query.query_map([], user)?.collect()
        })
        .await
    }

    pub(super) async fn revoke(&self, name: &str, at: i64) -> Result<bool, Error> {
        let name = name.to_owned();
        self.with(move |connection| {
            let transaction = connection.transaction()?;
            let revoked = transaction.execute(
                "UPDATE acidtest_gateway_users SET revoked = ?2 WHERE name = ?1 AND revoked IS NULL",
                params![name, at],
            )?;
            transaction.execute("UPDATE acidtest_gateway_changes SET version = version + 1", [])?;
            transaction.commit()?;
            Ok(revoked > 0)
        })
        .await
    }

    pub(super) async fn find(&self, hash: &Hash) -> Result<Option<User>, Error> {
        let hash = *hash;
        self.with(move |connection| {
            let mut query = connection.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM acidtest_gateway_users WHERE token_hash = ?1"
            ))?;
            query.query_row([&hash], user).optional()
        })
        .await
    }

    pub(super) async fn version(&self) -> Result<i64, Error> {
        self.with(|connection| {
            connection.query_row("SELECT max(version) FROM acidtest_gateway_changes", [], |row| row.get(0))
        })
        .await
    }
}

const COLUMNS: &str = "name, is_operator, added, expires, revoked";

fn user(row: &Row<'_>) -> rusqlite::Result<User> {
    Ok(User {
        name: row.get(0)?,
        is_operator: row.get(1)?,
        added: row.get(2)?,
        expires: row.get(3)?,
        revoked: row.get(4)?,
    })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Also where an earlier version had made it.
    #[tokio::test]
    async fn users_are_looked_up_without_another_file() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("users.sqlite");
        let earlier = Connection::open(&file).unwrap();
        earlier.pragma_update(None, "journal_mode", "wal").unwrap();
        earlier.execute_batch(SCHEMA).unwrap();
        earlier.close().unwrap();
        let users = SqliteUsers::open(&file.to_string_lossy()).unwrap();
        assert_eq!(users.version().await.unwrap(), 0);
        let others: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(others, [file]);
    }
}
