//! The records workload on PostgreSQL.

mod connection;
mod statements;
mod table;
#[cfg(test)]
mod tests;

use crate::{
    ConnectOptions, Postgres,
    protocol::{self, Error},
    session::Session,
};
use acidtest_model::{Isolation, StoreError, Task};
use acidtest_workloads::{
    ClientTask, LoadProgress, Place,
    records::{self, Connector, Layout, Reader, RecordVisitor, RecordsStore, Requirements, Scenario},
};
use connection::Connection;
use statements::Statements;
pub(crate) use table::{load, table};

impl RecordsStore for Postgres {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("loading the records", async move |client| {
            load(client, &table(place), layout, loaded).await
        }))
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        let connector =
            PostgresConnector { server: self.server.clone(), table: table(place), wanted: *wanted };
        records::task(connector, scenario)
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        each: &'a mut RecordVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("reading the final records", async move |client| {
            table::state(client, &table(place), layout, each).await
        }))
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("removing the records", async move |client| {
            client.batch_execute(&format!("DROP TABLE IF EXISTS {}", table(place))).await
        }))
    }
}

struct PostgresConnector {
    server: ConnectOptions,
    table: String,
    wanted: Requirements,
}

/// A plan that is made once does not know how few records a scan will ask for: without these settings it may sort
/// the whole table for each scan. Reading the whole table would also make every serializable transaction conflict
/// with every other.
pub(crate) const BY_KEY: &str = "SET enable_seqscan = off; SET enable_sort = off";

impl Connector for PostgresConnector {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        let prepare = async |connection: &mut _| self.prepare(connection).await;
        let (session, prepared) = Session::open(&self.server, prepare).await?;
        self.connected(session, prepared)
    }

    fn servers(&self) -> usize {
        self.server.servers()
    }

    async fn reader(&self, server: usize) -> Result<Reader<Connection>, String> {
        // a standby prepares what writes, too, and refuses to run it
        let prepare = async |connection: &mut _| self.prepare(connection).await;
        let (session, prepared, leads) = Session::open_to_read(&self.server, server, prepare).await?;
        Ok(Reader { connection: self.connected(session, prepared)?, leads })
    }
}

impl PostgresConnector {
    /// Makes the settings of a session, and prepares its statements. Returns the isolation level, too.
    async fn prepare(&self, connection: &mut protocol::Connection) -> Result<(String, Statements), Error> {
        connection.command(BY_KEY).await?;
        let level = isolate(connection, self.wanted.isolation).await?;
        Ok((level, Statements::prepare(connection, &self.table, &self.wanted).await?))
    }

    fn connected(
        &self,
        session: Session,
        (level, statements): (String, Statements),
    ) -> Result<Connection, String> {
        is_isolated(self.wanted.isolation, &level)?;
        Ok(Connection::new(session, statements))
    }
}

/// Sets the isolation level of the session's transactions, single statements among them, if one is asked for.
/// Returns the level that the server then reports.
pub(crate) async fn isolate(
    connection: &mut protocol::Connection,
    wanted: Option<Isolation>,
) -> Result<String, Error> {
    if let Some(level) = wanted {
        let set = format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {}", level.sql());
        connection.command(&set).await?;
    }
    let level = connection.prepare("SELECT current_setting('transaction_isolation')").await?;
    let rows = connection.run(level, []).await?;
    let level = rows.first().and_then(|row| row.get(0).ok());
    level.ok_or_else(|| Error::Lost("the server does not tell its isolation level".to_owned()))
}

/// Fails if the server reports another level than was asked for.
pub(crate) fn is_isolated(wanted: Option<Isolation>, level: &str) -> Result<(), String> {
    match wanted {
        Some(wanted) if !wanted.sql().eq_ignore_ascii_case(level) => {
            Err(format!("the isolation level is {level}, though {} was set", wanted.sql()))
        }
        _ => Ok(()),
    }
}
