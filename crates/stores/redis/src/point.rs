//! Reads and changes of one key, for `bench/peers` to compare with redis-benchmark.

use std::sync::LazyLock;

use acidtest_engine::{Attempt, Fault};
use acidtest_model::{Address, StoreError};
use redis::cmd;

use crate::{
    KIND,
    protocol::Reply,
    server::{ConnectOptions, Request, attempt},
    session::{Script, Session},
};

static COUNT_UP: LazyLock<Script> = LazyLock::new(|| Script::new(Point::COUNT_UP));

/// A client's connection that reads and changes single keys.
///
/// It uses the same connection, calls of scripts and classification of errors as the workloads.
pub struct Point {
    session: Session,
}

impl Point {
    /// The script of [`count_up`](Self::count_up).
    pub const COUNT_UP: &'static str = "return redis.call('INCRBY', KEYS[1], ARGV[1])";

    /// Connects and logs in.
    ///
    /// # Errors
    /// The server does not answer, or not to this user and password.
    pub async fn open(address: &Address) -> Result<Self, StoreError> {
        let connection = ConnectOptions::new(address, KIND.default_port)?.reach().await?;
        Ok(Self { session: Session::new(connection) })
    }

    /// Reads a key's value.
    pub async fn get(&mut self, key: &str) -> Attempt {
        match self.session.ask(cmd("GET").arg(key)).await {
            Ok(Reply::Nil) => Attempt::Failed(Fault::answered(format!("there is no key {key}"))),
            Ok(_) => Attempt::Ok,
            Err(error) => attempt(&error, Request::Harmless),
        }
    }

    /// Adds one to a key's number, by a script that the server keeps.
    pub async fn count_up(&mut self, key: &str) -> Attempt {
        let counted = self.session.run(&COUNT_UP, |script| {
            script.arg(1).arg(key).arg(1);
        });
        match counted.await.and_then(Reply::integer::<i64>) {
            Ok(_) => Attempt::Ok,
            Err(error) => attempt(&error, Request::Script),
        }
    }
}
