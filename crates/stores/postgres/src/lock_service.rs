//! Locks for other stores: one row for each lock that was ever taken. The row outlives every grant, so that its token
//! only grows.

use acidtest_locks::{Grant, LockError, LockService, LockSession, Locker};
use acidtest_model::{StoreError, Task};
use acidtest_workloads::{Fault, Place};

use crate::{
    Postgres, Value,
    fault::{self, SendState},
    protocol::{Connection, Error, Rows, Statement},
    quoted,
};

/// Session settings that the statements rely on, whatever the server's defaults are.
const SETTINGS: &str =
    "SET default_transaction_isolation = 'read committed'; SET plan_cache_mode = force_generic_plan;
                        SET client_min_messages = warning";

impl LockService for Postgres {
    fn prepare<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        let table = format!(
            "CREATE TABLE {} (name text PRIMARY KEY, owner text NOT NULL, token bigint NOT NULL, \
             expires timestamptz NOT NULL)",
            table(place)
        );
        Box::pin(
            self.on_server("making the table of locks", async move |client| {
                client.batch_execute(&table).await
            }),
        )
    }

    fn clear<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        let drop = format!("DROP TABLE IF EXISTS {}", table(place));
        Box::pin(
            self.on_server("removing the table of locks", async move |client| {
                client.batch_execute(&drop).await
            }),
        )
    }

    fn connect<'a>(&'a self, place: &'a Place) -> Task<'a, Result<Locker, StoreError>> {
        Box::pin(async {
            let mut connection = self.connection().await?;
            let prepared = Statements::prepare(&mut connection, place).await;
            let statements = prepared.map_err(|error| StoreError::Server {
                doing: "preparing the locks' statements".to_owned(),
                address: self.address().to_string(),
                cause: error.to_string(),
            })?;
            Ok(Locker::new(LockClient { connection, statements }))
        })
    }
}

/// One client's connection to the locks of a trial.
struct LockClient {
    connection: Connection,
    statements: Statements,
}

struct Statements {
    acquire: Statement,
    renew: Statement,
    release: Statement,
}

/// A token as a number; tokens count up from 1. With a negative one the lock may be held, and its grant cannot be
/// told from others: the outcome is unknown.
fn token(found: i64) -> Result<u64, LockError> {
    u64::try_from(found).map_err(|_| LockError::Unknown(Fault::lost(format!("the token {found} is invalid"))))
}

fn table(place: &Place) -> String {
    format!("{}.{}", quoted(&place.namespace), quoted(&place.object("locks")))
}

impl Statements {
    async fn prepare(connection: &mut Connection, place: &Place) -> Result<Self, Error> {
        let table = table(place);
        connection.command(SETTINGS).await?;
        // ON CONFLICT alone would do: under the row's lock it sees what the grant before has left. But it locks the
        // row before it looks, which is a write, so every request for a lock that another client holds would wait for
        // the log to be synced. Therefore a lock that is seen to be held is not requested at all
        let acquire = format!(
            "INSERT INTO {table} AS held
             SELECT $1::text, $2::text, 1, clock_timestamp() + $3::bigint * interval '1 ms'
             WHERE NOT EXISTS (SELECT FROM {table} WHERE name = $1 AND expires > clock_timestamp())
             ON CONFLICT (name) DO UPDATE
             SET owner = excluded.owner, token = held.token + 1,
                 expires = clock_timestamp() + $3::bigint * interval '1 ms'
             WHERE held.expires <= clock_timestamp()
             RETURNING token"
        );
        let renew = format!(
            "UPDATE {table} SET expires = GREATEST(expires, clock_timestamp() + $3::bigint * interval '1 ms')
             WHERE name = $1 AND owner = $2 AND expires > clock_timestamp()"
        );
        let release = format!(
            "UPDATE {table} SET expires = '-infinity'
             WHERE name = $1 AND owner = $2 AND expires > clock_timestamp()"
        );
        Ok(Self {
            acquire: connection.prepare(&acquire).await?,
            renew: connection.prepare(&renew).await?,
            release: connection.prepare(&release).await?,
        })
    }
}

impl LockClient {
    async fn run<const N: usize>(
        &mut self,
        statement: Statement,
        values: [Value<'_>; N],
    ) -> Result<Rows<'_>, LockError> {
        let rows = self.connection.run(statement, values).await;
        rows.map_err(|error| LockError::of(fault::attempt(&error, SendState::Commit)))
    }
}

impl LockSession for LockClient {
    fn acquire<'a>(
        &'a mut self,
        name: &'a str,
        owner: &'a str,
        lease_ms: i64,
    ) -> Task<'a, Result<Option<u64>, LockError>> {
        Box::pin(async move {
            let values = [Value::Text(name), Value::Text(owner), Value::Number(lease_ms)];
            let rows = self.run(self.statements.acquire, values).await?;
            let unreadable = |words| LockError::of(fault::lost(SendState::Commit, words));
            rows.first().map(|row| row.get(0).map_err(unreadable).and_then(token)).transpose()
        })
    }

    fn renew<'a>(&'a mut self, grant: &'a Grant, lease_ms: i64) -> Task<'a, Result<bool, LockError>> {
        Box::pin(async move {
            let values = [Value::Text(grant.name()), Value::Text(grant.owner()), Value::Number(lease_ms)];
            Ok(self.run(self.statements.renew, values).await?.count() == 1)
        })
    }

    fn release<'a>(&'a mut self, grant: &'a Grant) -> Task<'a, Result<bool, LockError>> {
        Box::pin(async {
            let values = [Value::Text(grant.name()), Value::Text(grant.owner())];
            Ok(self.run(self.statements.release, values).await?.count() == 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_none_below_0() {
        assert_eq!((token(0), token(i64::MAX)), (Ok(0), Ok(i64::MAX.unsigned_abs())));
        for found in [-1, i64::MIN] {
            assert!(matches!(token(found), Err(LockError::Unknown(fault)) if fault.connection_lost));
        }
    }
}
