//! Reads or updates single rows as fast as PostgreSQL answers: `postgres_point ADDRESS select|update ROWS CLIENTS SECONDS`.
//!
//! The rows are those of the table `points`, with the ids 1 to ROWS.

use std::process::ExitCode;

use acidtest_bench::{Point, measure};
use acidtest_engine::{Attempt, Client, Outcome};
use acidtest_store_postgres::Point as Connection;
use rand::RngExt;

#[derive(Clone, Copy)]
enum Access {
    Select,
    Update,
}

struct PointClient {
    point: Point,
    access: Access,
    connection: Option<Connection>,
}

impl Client for PointClient {
    type Operation = i64;

    fn draw(&mut self) -> Option<i64> {
        Some(self.point.rng.random_range(1..=self.point.rows.cast_signed()))
    }

    fn kind(_: &i64) -> usize {
        0
    }

    fn changes(&self, _: &i64) -> bool {
        !matches!(self.access, Access::Select)
    }

    async fn attempt(&mut self, id: &i64) -> Attempt {
        match (&mut self.connection, self.access) {
            (Some(connection), Access::Select) => connection.select(*id).await,
            (Some(connection), Access::Update) => connection.update(*id).await,
            // not reached: the engine connects before it attempts anything
            (None, _) => Attempt::Refused,
        }
    }

    fn account(&mut self, _: i64, _: Outcome) {}

    async fn connect(&mut self) -> Result<(), String> {
        // close the old connection before opening a new one
        self.connection = None;
        self.connection = Some(Connection::open(&self.point.address).await?);
        Ok(())
    }
}

fn main() -> ExitCode {
    measure([("select", Access::Select), ("update", Access::Update)], |point, access| PointClient {
        point,
        access,
        connection: None,
    })
}
