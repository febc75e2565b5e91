//! A client's connection: commands, scripts that the server keeps, and transactions.

use acidtest_engine::{Attempt, Fault};
use redis::{
    Cmd, ErrorKind, FromRedisValue, Pipeline, RedisResult, ServerErrorKind, ToRedisArgs, Value, cmd, pipe,
};

use crate::server::{Connection, attempt_exec};

/// The wanted result, or the outcome that ended the attempt without it.
pub(crate) type Step<T> = Result<T, Attempt>;

/// The outcome of an answer of another shape than was asked for, which tells nothing about the effect.
pub(crate) fn nonsense() -> Attempt {
    Attempt::Unknown(Fault::lost("the server's answer makes no sense"))
}

/// A Lua script, which the server keeps and knows by its hash.
pub struct Script {
    code: &'static str,
    hash: String,
}

impl Script {
    /// A script by its code; nothing is sent to a server yet.
    #[must_use]
    pub fn new(code: &'static str) -> Self {
        Self { code, hash: redis::Script::new(code).get_hash().to_owned() }
    }

    /// Loads the script into the server.
    pub(crate) async fn keep(&self, connection: &mut Connection) -> RedisResult<()> {
        cmd("SCRIPT").arg("LOAD").arg(self.code).exec_async(connection).await
    }

    /// Begins a call of a script that the server keeps; the caller adds the number of keys, the keys and the
    /// arguments.
    pub(crate) fn begin<'a>(&self, call: &'a mut Cmd) -> &'a mut Cmd {
        call.clear();
        call.arg("EVALSHA").arg(&self.hash)
    }
}

/// A client's connection, with the state of its scripts and transactions.
pub struct Session {
    pub(crate) connection: Connection,
    /// The current call, kept to reuse its memory.
    call: Cmd,
    /// Whether the server still watches keys for this connection, as no EXEC has followed.
    watching: bool,
}

impl Session {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection, call: Cmd::new(), watching: false }
    }

    /// Sends a command and waits for its answer.
    pub async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        command.query_async(&mut self.connection).await
    }

    /// Runs a script; `arguments` adds the number of keys, the keys and the arguments.
    pub async fn run<T: FromRedisValue>(
        &mut self,
        script: &Script,
        arguments: impl Fn(&mut Cmd),
    ) -> RedisResult<T> {
        arguments(script.begin(&mut self.call));
        let answer = self.call.query_async(&mut self.connection).await;
        match answer {
            // nothing was run, as the server was restarted or its scripts were flushed; EVAL makes it keep the
            // script again
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.call.clear();
                self.call.arg("EVAL").arg(script.code);
                arguments(&mut self.call);
                self.call.query_async(&mut self.connection).await
            }
            answer => answer,
        }
    }

    /// Begins a round trip that watches keys. First it stops watching the keys of an earlier transaction that was
    /// never carried out.
    pub(crate) fn watch(&mut self, keys: impl ToRedisArgs) -> Pipeline {
        let mut read = pipe();
        if self.watching {
            read.cmd("UNWATCH").ignore();
        }
        read.cmd("WATCH").arg(keys).ignore();
        self.watching = true;
        read
    }

    /// Carries out a transaction, and returns its answers; `None` if a watched key has changed.
    pub(crate) async fn exec(&mut self, change: &Pipeline) -> Step<Option<Vec<Value>>> {
        let done: RedisResult<_> = change.query_async(&mut self.connection).await;
        self.watching = false;
        done.map_err(|error| attempt_exec(&error))
    }
}
