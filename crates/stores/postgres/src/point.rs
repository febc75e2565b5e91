//! One row by its primary key: what `bench/peers` compares with pgbench.

use acidtest_model::Address;
use acidtest_workloads::{Attempt, Fault};
use tokio_postgres::{Error, Statement};

use crate::{
    fault::{self, Sent},
    line::Line,
};

/// A client's connection, with a statement that reads and one that changes a row of the table
/// `points (id bigint PRIMARY KEY, value bigint)`.
///
/// It goes through the same connection, prepared statements and sorting of errors as the workloads.
pub struct Point {
    line: Line,
    select: Statement,
    update: Statement,
}

impl Point {
    /// Connects and prepares both statements.
    ///
    /// # Errors
    /// Why that failed, in the server's words.
    pub async fn open(address: &Address) -> Result<Self, String> {
        let mut line = Line::open(address).await.map_err(|error| fault::words(&error))?;
        let prepared = line.ask(async |client| {
            client.batch_execute("SET plan_cache_mode = force_generic_plan").await?;
            let select = client.prepare("SELECT value FROM points WHERE id = $1").await?;
            let update = client.prepare("UPDATE points SET value = value + 1 WHERE id = $1").await?;
            Ok((select, update))
        });
        let (select, update) = prepared.await.map_err(|error: Error| line.words(&error))?;
        Ok(Self { line, select, update })
    }

    /// Reads a row's value.
    pub async fn select(&mut self, id: i64) -> Attempt {
        let Self { line, select, .. } = self;
        if !line.is_open().await {
            return fault::lost(Sent::Nothing, line.ended());
        }
        let read = line.ask(async |client| client.query(select, &[&id]).await).await;
        let value = read.and_then(|rows| rows.first().map(|row| row.try_get::<_, i64>(0)).transpose());
        match value {
            Ok(Some(_)) => Attempt::Ok,
            Ok(None) => absent(id),
            Err(error) => fault::attempt(&error, Sent::Nothing, line.words(&error)),
        }
    }

    /// Adds one to a row's value.
    pub async fn update(&mut self, id: i64) -> Attempt {
        let Self { line, update, .. } = self;
        if !line.is_open().await {
            return fault::lost(Sent::Nothing, line.ended());
        }
        match line.ask(async |client| client.execute(update, &[&id]).await).await {
            Ok(1) => Attempt::Ok,
            Ok(_) => absent(id),
            Err(error) => fault::attempt(&error, Sent::Commit, line.words(&error)),
        }
    }
}

fn absent(id: i64) -> Attempt {
    Attempt::Failed(Fault::answered(format!("there is no row {id}")))
}
