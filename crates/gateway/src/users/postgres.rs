//! Users in a database of PostgreSQL.

use std::time::Duration;

use acidtest_model::Address;
use tokio::time::timeout;
use tokio_postgres::Row;

use super::{User, token::Hash};
use crate::{Error, postgres::Shared};

#[derive(Debug)]
pub(super) struct PostgresUsers {
    server: Shared,
}

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS acidtest_gateway_users (
        name text PRIMARY KEY, token_hash bytea NOT NULL UNIQUE, is_operator boolean NOT NULL,
        added bigint NOT NULL, expires bigint, revoked bigint);
    CREATE TABLE IF NOT EXISTS acidtest_gateway_changes (version bigint NOT NULL);
    INSERT INTO acidtest_gateway_changes SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM acidtest_gateway_changes);";

/// Held while the tables are made: two sessions that make the same table at once fail otherwise.
const LOCK: &str = "SELECT pg_advisory_xact_lock(4242004901)";

const CHANGED: &str =
    "changed AS (UPDATE acidtest_gateway_changes SET version = version + 1 RETURNING version)";
const COLUMNS: &str = "name, is_operator, added, expires, revoked";

/// How long the server may take to answer. A request waits a little longer for its user.
const PATIENCE: Duration = Duration::from_secs(4);

impl PostgresUsers {
    pub(super) async fn open(address: &Address, schema: Option<&str>) -> Result<Self, Error> {
        let server = Shared::new(address, schema)?;
        let client = server.client().await?;
        client
            .batch_execute(&format!("BEGIN; {LOCK}; {SCHEMA} COMMIT;"))
            .await
            .map_err(|error| server.failed(&error))?;
        Ok(Self { server })
    }

    async fn ask(
        &self,
        statement: &str,
        parameters: &[&(dyn postgres_types::ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        let rows = async {
            let client = self.server.client().await?;
            let rows = async {
                let statement = client.prepared(statement).await?;
                client.query(&statement, parameters).await
            };
            rows.await.map_err(|error| self.server.failed(&error))
        };
        timeout(PATIENCE, rows).await.unwrap_or_else(|_| {
            // the connection may be dead, and nobody say so for minutes
            self.server.forget();
            Err(self.server.silent(PATIENCE))
        })
    }

    pub(super) async fn add(&self, user: &User, hash: &Hash) -> Result<bool, Error> {
        let statement = format!(
                "WITH {CHANGED} INSERT INTO acidtest_gateway_users AS old VALUES ($1, $2, $3, $4, $5, NULL)
                 ON CONFLICT (name) DO UPDATE SET token_hash = excluded.token_hash, is_operator = excluded.is_operator,
                    added = excluded.added, expires = excluded.expires, revoked = NULL
                 WHERE old.revoked IS NOT NULL RETURNING name"
        );
        let User { name, is_operator, added, expires, .. } = user;
        let rows = self.ask(&statement, &[name, &&hash[..], is_operator, added, expires]).await?;
        Ok(!rows.is_empty())
    }

    pub(super) async fn list(&self) -> Result<Vec<User>, Error> {
        let statement = format!("SELECT {COLUMNS} FROM acidtest_gateway_users ORDER BY name COLLATE \"C\"");
        self.ask(&statement, &[]).await?.iter().map(|row| self.user(row)).collect()
    }

    pub(super) async fn revoke(&self, name: &str, at: i64) -> Result<bool, Error> {
        let statement = format!(
                "WITH {CHANGED} UPDATE acidtest_gateway_users SET revoked = $2 WHERE name = $1 AND revoked IS NULL
                 RETURNING name"
        );
        Ok(!self.ask(&statement, &[&name, &at]).await?.is_empty())
    }

    pub(super) async fn find(&self, hash: &Hash) -> Result<Option<User>, Error> {
        let rows = self
            .ask(
                &format!("SELECT {COLUMNS} FROM acidtest_gateway_users WHERE token_hash = $1"),
                &[&&hash[..]],
            )
            .await?;
        rows.first().map(|row| self.user(row)).transpose()
    }

    pub(super) async fn version(&self) -> Result<i64, Error> {
        let rows = self.ask("SELECT max(version) FROM acidtest_gateway_changes", &[]).await?;
        let version = rows.first().map(|row| row.try_get(0)).transpose();
        Ok(version.map_err(|error| self.server.failed(&error))?.unwrap_or(0))
    }

    fn user(&self, row: &Row) -> Result<User, Error> {
        let user = || {
            Ok(User {
                name: row.try_get(0)?,
                is_operator: row.try_get(1)?,
                added: row.try_get(2)?,
                expires: row.try_get(3)?,
                revoked: row.try_get(4)?,
            })
        };
        user().map_err(|error: tokio_postgres::Error| self.server.failed(&error))
    }
}
