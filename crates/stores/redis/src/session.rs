//! A client's connection: commands, scripts that the server keeps, and transactions.

use std::mem;

use acidtest_engine::Attempt;
use redis::{Cmd, Pipeline, ToRedisArgs, cmd};

use crate::{
    protocol::{Answers, Batch, Connection, Error, Replies, Reply, ServerError, nonsense},
    refusal,
    server::{Request, attempt, ended},
};

/// The wanted result, or the outcome that ended the attempt without it.
pub(crate) type Step<T> = Result<T, Attempt>;

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
    pub(crate) async fn keep(&self, connection: &mut Connection) -> Result<(), Error> {
        connection.ask(cmd("SCRIPT").arg("LOAD").arg(self.code)).await.map(drop)
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
    connection: Connection,
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
    ///
    /// # Errors
    /// Why there is no answer, or the server's.
    pub async fn ask(&mut self, command: &Cmd) -> Result<Reply<'_>, Error> {
        self.connection.ask(command).await
    }

    /// Sends commands at once, each by itself, and waits for all answers.
    ///
    /// # Errors
    /// As of [`Answers::all`].
    pub(crate) async fn ask_all(&mut self, commands: &Pipeline) -> Result<Answers<'_>, Error> {
        self.connection.ask_all(commands).await
    }

    /// Commands that are sent at once.
    ///
    /// # Errors
    /// [`Error::NotSent`]: the connection can be used no more.
    pub(crate) fn batch(&mut self) -> Result<Batch<'_>, Error> {
        self.connection.batch()
    }

    /// Runs a script; `arguments` adds the number of keys, the keys and the arguments.
    ///
    /// # Errors
    /// Why there is no answer, or the server's.
    pub async fn run(&mut self, script: &Script, arguments: impl Fn(&mut Cmd)) -> Result<Reply<'_>, Error> {
        arguments(script.begin(&mut self.call));
        let is_missing = match self.connection.ask(&self.call).await {
            Ok(_) => false,
            Err(Error::Answered(error)) if error.code() == "NOSCRIPT" => true,
            Err(error) => return Err(error),
        };
        if is_missing {
            // nothing was run, as the server was restarted or its scripts were flushed; EVAL makes it keep the
            // script again
            self.call.clear();
            self.call.arg("EVAL").arg(script.code);
            arguments(&mut self.call);
            return self.connection.ask(&self.call).await;
        }
        self.answer()
    }

    /// The answer to the command that was sent last.
    ///
    /// # Errors
    /// Why there is none, or the server's.
    pub(crate) fn answer(&self) -> Result<Reply<'_>, Error> {
        self.connection.answer(0)
    }

    /// Begins a round trip that watches keys. First it stops watching the keys of an earlier transaction that was
    /// never carried out.
    ///
    /// # Errors
    /// [`Error::NotSent`]: the connection can be used no more.
    pub(crate) fn watch(&mut self, keys: impl ToRedisArgs) -> Result<Reads<'_>, Error> {
        let was_watching = mem::replace(&mut self.watching, true);
        let mut reads = self.reads()?;
        if was_watching {
            reads.push(&cmd("UNWATCH"))?;
        }
        reads.push(cmd("WATCH").arg(keys))?;
        reads.before = 1 + usize::from(was_watching);
        Ok(reads)
    }

    /// Begins a round trip that reads.
    ///
    /// # Errors
    /// [`Error::NotSent`]: the connection can be used no more.
    pub(crate) fn reads(&mut self) -> Result<Reads<'_>, Error> {
        Ok(Reads { batch: self.connection.batch()?, before: 0 })
    }

    /// Carries out commands in one transaction, and returns their answers; `None` if a watched key has changed. Redis
    /// rolls nothing back: unless it refused the whole transaction, some of the commands may have been carried out.
    pub(crate) async fn exec(&mut self, commands: &Pipeline, effect: Request) -> Step<Option<Replies<'_>>> {
        let mut batch = self.connection.batch().map_err(ended(effect))?;
        let mut push = |command: &Cmd| batch.push(command).map_err(ended(effect));
        push(&cmd("MULTI"))?;
        commands.cmd_iter().try_for_each(&mut push)?;
        push(&cmd("EXEC"))?;
        self.watching = false;
        executed(batch.answers().await, commands.len(), effect)
    }
}

/// A round trip that reads, and may begin with the watching of keys.
pub(crate) struct Reads<'a> {
    batch: Batch<'a>,
    /// Commands before those that were pushed.
    before: usize,
}

impl<'a> Reads<'a> {
    /// Adds a command that reads.
    ///
    /// # Errors
    /// [`Error::NotSent`]: the connection can be used no more.
    pub(crate) fn push(&mut self, command: &Cmd) -> Result<(), Error> {
        self.batch.push(command)
    }

    /// Sends all at once. Returns the answers to the commands that read.
    ///
    /// # Errors
    /// As of [`Answers::all`].
    pub(crate) async fn answers(self) -> Result<Answers<'a>, Error> {
        Ok(self.batch.answers().await.all()?.behind(self.before))
    }
}

/// What has become of `MULTI`, of so many commands, and of `EXEC`.
fn executed(mut answers: Answers<'_>, commands: usize, effect: Request) -> Step<Option<Replies<'_>>> {
    let in_part = |error: &ServerError| match effect {
        Request::Harmless => refusal::ended(error, effect),
        Request::Change | Request::Script => refusal::unproved(error),
    };
    // then the commands were carried out one by one
    if let Some(Err(Error::Answered(error))) = answers.next() {
        return Err(in_part(&error));
    }
    let queued = answers.by_ref().take(commands).filter_map(Result::err);
    let mut refusals = queued.filter_map(|error| error.answer().cloned());
    let refused = refusals.next().map(|first| first.and_more(refusals.count()));
    match answers.next() {
        Some(Ok(Reply::Nil)) => Ok(None),
        Some(Ok(Reply::Array(values))) if values.len() == commands => {
            match values.clone().find_map(Reply::error) {
                None => Ok(Some(values)),
                Some(error) => Err(in_part(&error)),
            }
        }
        Some(Err(Error::Answered(error))) if refusal::is_aborted(&error) => {
            Err(Attempt::Failed(refusal::fault(&refused.unwrap_or(error))))
        }
        Some(Err(Error::Answered(error))) => Err(in_part(&error)),
        Some(Err(error)) => Err(attempt(&error, effect)),
        Some(Ok(_)) | None => Err(attempt(&nonsense(), effect)),
    }
}
