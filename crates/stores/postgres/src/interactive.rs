//! Interactive transactions on PostgreSQL, by the driver: statements as text, one at a time.

use std::{collections::BTreeSet, fmt::Write, time::Duration};

use acidtest_model::{Isolation, StoreError, Task};
use acidtest_workloads::{
    Place,
    interactive::{InteractiveSession, InteractiveStore, LockMonitor, Mode, Reply, Table},
};
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use crate::{Postgres, driver::Driver, fault, quoted};

/// What a deadlock that scripts bring about is found after, instead of the server's second. Only a superuser may set it.
const SOON: &str = "SET deadlock_timeout = '20ms'";

/// Waiting sessions in this database. A transaction waits for others' rows by a lock on their transaction ids; one that is to have
/// a safe snapshot waits for those that write. The user that a session acts as need not be the one that it logged in as.
const WAITING: &str = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()
                       AND cardinality(pg_blocking_pids(pid)) + cardinality(pg_safe_snapshot_blocking_pids(pid)) > 0";

impl InteractiveStore for Postgres {
    fn modes(&self) -> Task<'_, Result<Vec<Mode>, StoreError>> {
        Box::pin(async {
            let sql = "SELECT current_setting('default_transaction_isolation')";
            let read = async |client: &Client| client.query_one(sql, &[]).await?.try_get(0);
            let usual: String = self.on_server("reading the isolation level", read).await?;
            let mode = |level: Isolation| {
                let name = level.words();
                Mode {
                    is_default: name == usual,
                    name,
                    level: Some(level),
                    how: "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL …",
                }
            };
            Ok(Isolation::ALL.map(mode).to_vec())
        })
    }

    fn refuses(&self, _: &Mode, _: &str) -> Option<String> {
        None
    }

    fn is_concurrent(&self) -> bool {
        true
    }

    fn make_table<'a>(&'a self, place: &'a Place, table: &'a Table) -> Task<'a, Result<String, StoreError>> {
        Box::pin(async move {
            let name = format!("{}.{}", quoted(&place.namespace), quoted(&place.object(&table.name)));
            let mut sql = format!("CREATE TABLE {name} ({});", table.columns);
            for row in &table.rows {
                let _ = write!(sql, "INSERT INTO {name} VALUES ({});", row.join(", "));
            }
            self.on_server("making a table", async |client| client.batch_execute(&sql).await).await?;
            Ok(name)
        })
    }

    fn drop_table<'a>(&'a self, _: &'a Place, name: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("removing a table", async move |client| {
            client.batch_execute(&format!("SET lock_timeout = '20s'; DROP TABLE IF EXISTS {name}")).await
        }))
    }

    fn session<'a>(
        &'a self,
        place: &'a Place,
        mode: &'a Mode,
    ) -> Task<'a, Result<Box<dyn InteractiveSession>, StoreError>> {
        Box::pin(async move {
            let mut driver = self.driver().await?;
            // whoever may not set it waits longer
            let _ = driver.ask(async |client| client.batch_execute(SOON).await).await;
            // names without a schema are of the namespace; a wait does not end by its time, which would pass for a refusal
            let set = format!(
                "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {}; SET search_path = {}; SET lock_timeout = 0; \
                 SET statement_timeout = 0",
                mode.name,
                quoted(&place.namespace)
            );
            let asked = async |client: &Client| {
                client.batch_execute(&set).await?;
                let told = "SELECT pg_backend_pid(), current_setting('transaction_isolation')";
                let row = client.query_one(told, &[]).await?;
                Ok::<(i32, String), Error>((row.try_get(0)?, row.try_get(1)?))
            };
            let doing = "setting the isolation level";
            let told = driver.ask(asked).await;
            let (process, level) = told.map_err(|error| self.failed(doing, driver.words(&error)))?;
            if level != mode.name {
                let cause = format!("the server reports \"{level}\", though {} was set", mode.name);
                return Err(self.failed(doing, cause));
            }
            let id = u64::from(process.unsigned_abs());
            Ok(Box::new(Session { driver, id, level }) as Box<dyn InteractiveSession>)
        })
    }

    fn lock_monitor(&self) -> Task<'_, Result<Option<Box<dyn LockMonitor>>, StoreError>> {
        Box::pin(async {
            let monitor = Monitor { driver: self.driver().await? };
            Ok(Some(Box::new(monitor) as Box<dyn LockMonitor>))
        })
    }
}

struct Session {
    driver: Driver,
    /// The number of the server's process.
    id: u64,
    level: String,
}

impl InteractiveSession for Session {
    fn id(&self) -> u64 {
        self.id
    }

    fn level(&self) -> &str {
        &self.level
    }

    fn run<'a>(&'a mut self, statement: &'a str) -> Task<'a, Reply> {
        Box::pin(async move {
            match self.driver.ask(async |client| client.simple_query(statement).await).await {
                Ok(messages) => reply(&messages),
                Err(error) => {
                    let said = self.driver.words(&error);
                    match error.code() {
                        Some(code) if fault::is_refusal(code) => Reply::Refused(said),
                        Some(_) if !error.is_closed() => Reply::Failed(said),
                        _ => Reply::Unknown(said),
                    }
                }
            }
        })
    }
}

/// The rows of a statement that returns any, or how many it changed.
fn reply(messages: &[SimpleQueryMessage]) -> Reply {
    let (mut rows, mut changed) = (None::<Vec<Vec<String>>>, None);
    for message in messages {
        match message {
            SimpleQueryMessage::RowDescription(_) => rows = Some(Vec::new()),
            SimpleQueryMessage::Row(row) => {
                let value = |index| row.get(index).unwrap_or("NULL").to_owned();
                rows.get_or_insert_default().push((0..row.len()).map(value).collect());
            }
            SimpleQueryMessage::CommandComplete(count) => changed = Some(*count),
            _ => {}
        }
    }
    rows.map_or(Reply::Done(changed), Reply::Rows)
}

struct Monitor {
    driver: Driver,
}

impl LockMonitor for Monitor {
    fn interval(&self) -> Duration {
        Duration::ZERO
    }

    fn waiting(&mut self) -> Task<'_, Result<BTreeSet<u64>, String>> {
        Box::pin(async {
            let asked = self.driver.ask(async |client| client.simple_query(WAITING).await).await;
            let messages = asked.map_err(|error| {
                format!(
                    "the server does not say which sessions wait (pg_blocking_pids): {}",
                    self.driver.words(&error)
                )
            })?;
            let processes = messages.iter().filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
                _ => None,
            });
            Ok(processes.collect())
        })
    }
}
