//! Who waits for whose locks, by the server's own word.

use std::{collections::BTreeSet, time::Duration};

use acidtest_model::{Task, with_remedy};
use acidtest_workloads::interactive::LockMonitor;

use crate::{
    columns::{Columns, text},
    product::Product,
    protocol::{Connection, Error},
};

/// Transactions of `InnoDB`'s, and statements that wait for a lock of the server's: on a table's definition, or by a name. Without the
/// privilege PROCESS the first is refused.
const TABLES: &str = "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' \
                      UNION SELECT id FROM information_schema.processlist \
                      WHERE state LIKE 'Waiting for %lock' OR state = 'User lock'";

/// The same by the performance schema of `MySQL` from 8.0 on, which asks `InnoDB` each time.
const LIVE: &str = "SELECT thread.processlist_id FROM performance_schema.data_lock_waits AS wait \
     JOIN performance_schema.threads AS thread ON thread.thread_id = wait.requesting_thread_id \
     UNION SELECT processlist_id FROM performance_schema.threads \
     WHERE processlist_state LIKE 'Waiting for %lock' OR processlist_state = 'User lock'";

/// `InnoDB` keeps what it says in `innodb_trx` until nobody has read it for 100 ms (`CACHE_MIN_IDLE_TIME_NS` in `trx0i_s.cc`): whoever
/// looks again sooner is told the same again, for as long as that goes on.
const KEPT: Duration = Duration::from_millis(105);

/// Between looks at what is not kept.
const NOT_KEPT: Duration = Duration::from_millis(2);

/// Error 1227: a privilege is missing, which the error names.
const PRIVILEGE_MISSING: u16 = 1227;

/// Looks on a connection of its own.
pub(crate) struct InnoDbMonitor {
    connection: Connection,
    is_live: bool,
}

impl InnoDbMonitor {
    /// Looks live where the server can, and lets this user do so.
    pub(crate) async fn new(mut connection: Connection, product: Product) -> Self {
        let is_live = product == Product::MySql && can_look_live(&mut connection).await;
        Self { connection, is_live }
    }

    async fn look(&mut self) -> Result<BTreeSet<u64>, Error> {
        let waiting = self.connection.query(if self.is_live { LIVE } else { TABLES }).await?;
        Ok(waiting.iter().filter_map(|row| u64::try_from(row.whole(0)?).ok()).collect())
    }

    /// Why the server does not say who waits.
    async fn refusal(&mut self, error: &Error) -> String {
        if error.answer().is_none_or(|answer| answer.code != PRIVILEGE_MISSING) {
            return error.to_string();
        }
        let user = self.connection.query("SELECT CURRENT_USER()").await.ok().and_then(|rows| rows.first());
        let user = user.map_or_else(|| "USER@HOST".to_owned(), |row| quoted_user(text(&row, 0)));
        let why = format!("the user may not see who waits for locks: {error}");
        with_remedy(&why, Some(format!("GRANT PROCESS ON *.* TO {user}").as_str()))
    }
}

/// Whether the performance schema is on, and readable. Where it is off, its tables are empty.
async fn can_look_live(connection: &mut Connection) -> bool {
    let is_on = connection.query("SELECT @@performance_schema").await;
    let is_on = is_on.ok().and_then(|rows| rows.first()?.whole(0)) == Some(1);
    is_on && connection.query(LIVE).await.is_ok()
}

/// A user's name for statements, as `'ann'@'%'`.
fn quoted_user(user: &str) -> String {
    let (name, host) = user.rsplit_once('@').unwrap_or((user, "%"));
    format!("'{}'@'{}'", name.replace('\'', "''"), host.replace('\'', "''"))
}

impl LockMonitor for InnoDbMonitor {
    fn interval(&self) -> Duration {
        if self.is_live { NOT_KEPT } else { KEPT }
    }

    fn waiting(&mut self) -> Task<'_, Result<BTreeSet<u64>, String>> {
        Box::pin(async {
            match self.look().await {
                Ok(waiting) => Ok(waiting),
                Err(error) => Err(self.refusal(&error).await),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_named_as_statements_do() {
        assert_eq!(quoted_user("ann@%"), "'ann'@'%'");
        assert_eq!(quoted_user("o'neil@home@127.0.0.1"), "'o''neil@home'@'127.0.0.1'");
    }
}
