//! Reads and updates of one row by its primary key, for `bench/peers` to compare with pgbench.

use crate::{
    ConnectOptions, Value,
    fault::SendState,
    protocol::{Connection, Statement},
    session::Session,
};
use acidtest_model::Address;
use acidtest_workloads::{Attempt, Fault};

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
        let prepare = async |connection: &mut Connection| {
            let select = connection.prepare("SELECT value FROM points WHERE id = $1").await?;
            let update = connection.prepare("UPDATE points SET value = value + 1 WHERE id = $1").await?;
            Ok((select, update))
        };
        let (session, (select, update)) = Session::open(&server, prepare).await?;
        Ok(Self { session, select, update })
    }

    /// Reads a row's value.
    pub async fn select(&mut self, id: i64) -> Attempt {
        match self.session.run(self.select, [Value::Number(id)], SendState::Nothing).await {
            Ok(rows) if rows.first().is_some_and(|row| row.get::<i64>(0).is_ok()) => Attempt::Ok,
            Ok(_) => absent(id),
            Err(trouble) => trouble,
        }
    }

    /// Adds one to a row's value.
    pub async fn update(&mut self, id: i64) -> Attempt {
        match self.session.run(self.update, [Value::Number(id)], SendState::Commit).await {
            Ok(rows) if rows.count() == 1 => Attempt::Ok,
            Ok(_) => absent(id),
            Err(trouble) => trouble,
        }
    }
}

fn absent(id: i64) -> Attempt {
    Attempt::Failed(Fault::answered(format!("there is no row {id}")))
}
