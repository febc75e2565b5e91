//! Reads and updates of one row by its primary key, for `bench/peers` to compare with pgbench.

use acidtest_model::Address;
use acidtest_workloads::{Attempt, Fault};
use tokio_postgres::{Client, Statement};

use crate::{ConnectOptions, fault::SendState, session::Session};

/// A client's connection, with a statement that reads and one that changes a row of the table `points (id bigint
/// PRIMARY KEY, value bigint)`.
///
/// It uses the same connection, prepared statements and classification of errors as the workloads.
pub struct Point {
    session: Session,
    select: Statement,
    update: Statement,
}

impl Point {
    /// Connects and prepares both statements.
    ///
    /// # Errors
    /// The reason of the failure, in the server's words.
    pub async fn open(address: &Address) -> Result<Self, String> {
        let server = ConnectOptions::new(address).map_err(|error| error.to_string())?;
        let prepare = async |client: &Client| {
            let select = client.prepare("SELECT value FROM points WHERE id = $1").await?;
            let update = client.prepare("UPDATE points SET value = value + 1 WHERE id = $1").await?;
            Ok((select, update))
        };
        let (session, (select, update)) = Session::open(&server, prepare).await?;
        Ok(Self { session, select, update })
    }

    /// Reads a row's value.
    pub async fn select(&mut self, id: i64) -> Attempt {
        let Self { session, select, .. } = self;
        if let Err(lost) = session.ready().await {
            return lost;
        }
        let read = session.ask(async |client| client.query(select, &[&id]).await).await;
        let value = read.and_then(|rows| rows.first().map(|row| row.try_get::<_, i64>(0)).transpose());
        match value {
            Ok(Some(_)) => Attempt::Ok,
            Ok(None) => absent(id),
            Err(error) => session.failed(&error, SendState::Nothing),
        }
    }

    /// Adds one to a row's value.
    pub async fn update(&mut self, id: i64) -> Attempt {
        let Self { session, update, .. } = self;
        if let Err(lost) = session.ready().await {
            return lost;
        }
        match session.ask(async |client| client.execute(update, &[&id]).await).await {
            Ok(1) => Attempt::Ok,
            Ok(_) => absent(id),
            Err(error) => session.failed(&error, SendState::Commit),
        }
    }
}

fn absent(id: i64) -> Attempt {
    Attempt::Failed(Fault::answered(format!("there is no row {id}")))
}
