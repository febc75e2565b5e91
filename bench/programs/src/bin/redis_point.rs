//! Reads or counts up single keys as fast as Redis answers: `redis_point ADDRESS get|script KEYS CLIENTS SECONDS`.
//!
//! The keys are `key:…` or `count:…`, numbers below KEYS in 12 digits.

use std::process::ExitCode;

use acidtest_bench::{Point, measure};
use acidtest_engine::{Attempt, Client, Outcome};
use acidtest_store_redis::Point as Connection;
use rand::RngExt;

#[derive(Clone, Copy)]
enum Access {
    Get,
    Script,
}

struct PointClient {
    point: Point,
    access: Access,
    connection: Option<Connection>,
}

impl Client for PointClient {
    type Operation = String;

    fn draw(&mut self) -> Option<String> {
        let number = self.point.rng.random_range(0..self.point.rows);
        Some(match self.access {
            Access::Get => format!("key:{number:012}"),
            Access::Script => format!("count:{number:012}"),
        })
    }

    fn kind(_: &String) -> usize {
        0
    }

    fn changes(&self, _: &String) -> bool {
        !matches!(self.access, Access::Get)
    }

    async fn attempt(&mut self, key: &String) -> Attempt {
        match (&mut self.connection, self.access) {
            (Some(connection), Access::Get) => connection.get(key).await,
            (Some(connection), Access::Script) => connection.count_up(key).await,
            // not reached: the engine connects before it attempts anything
            (None, _) => Attempt::Refused,
        }
    }

    fn account(&mut self, _: String, _: Outcome) {}

    async fn connect(&mut self) -> Result<(), String> {
        // close the old connection before opening a new one
        self.connection = None;
        self.connection =
            Some(Connection::open(&self.point.address).await.map_err(|error| error.to_string())?);
        Ok(())
    }
}

fn main() -> ExitCode {
    measure([("get", Access::Get), ("script", Access::Script)], |point, access| PointClient {
        point,
        access,
        connection: None,
    })
}
