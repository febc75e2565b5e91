//! A client's session: requests, transactions, and how their answers end an operation.

use std::sync::Arc;

use acidtest_workloads::{Attempt, Fault};
use tokio_postgres::{Client, Error};

use crate::{
    ConnectOptions,
    connection::Connection,
    fault::{self, SendState},
};

/// One client's connection after its settings are made.
pub(crate) struct Session {
    connection: Connection,
}

/// The part of a transaction that is sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// BEGIN and the first statements.
    First,
    /// Statements between the first and the last.
    Middle,
    /// The last statements and COMMIT.
    Last,
    /// BEGIN, all statements and COMMIT.
    Whole,
}

impl Part {
    /// The part that begins or commits the transaction, does both, or neither.
    pub(crate) fn of(begins: bool, commits: bool) -> Self {
        match (begins, commits) {
            (true, false) => Self::First,
            (false, false) => Self::Middle,
            (false, true) => Self::Last,
            (true, true) => Self::Whole,
        }
    }

    fn begins(self) -> bool {
        matches!(self, Self::First | Self::Whole)
    }

    pub(crate) fn commits(self) -> bool {
        matches!(self, Self::Last | Self::Whole)
    }

    /// Which effects an error with a statement of this part leaves possible: an error that the server reports for
    /// the statement has ended the transaction, so that a COMMIT sent behind it only rolled back.
    pub(crate) fn sent(self, error: &Error) -> SendState {
        match error.as_db_error() {
            None if self.commits() => SendState::Commit,
            _ => SendState::Nothing,
        }
    }
}

/// The answers to the parts of a transaction that were sent at once.
pub(crate) struct Answered<T> {
    /// BEGIN's answer; `Ok` where it was not sent.
    pub(crate) begun: Result<(), Error>,
    /// Answers to the statements between BEGIN and COMMIT.
    pub(crate) came: T,
    /// COMMIT's answer; `Ok` where it was not sent.
    pub(crate) committed: Result<(), Error>,
}

impl Session {
    /// Connects, and has `prepare` make settings and prepared statements. Each statement of a client is planned
    /// once: it finds its rows by their keys, whatever the values.
    pub(crate) async fn open<T>(
        server: &ConnectOptions,
        prepare: impl AsyncFnOnce(&Client) -> Result<T, Error>,
    ) -> Result<(Self, T), String> {
        let mut connection = server.connect().await.map_err(|error| error.to_string())?;
        let ready = connection.ask(async |client| {
            client.batch_execute(PLANNED_ONCE).await?;
            prepare(client).await
        });
        let ready = ready.await.map_err(|error| connection.words(&error))?;
        Ok((Self { connection }, ready))
    }

    /// Fails if the connection has closed, with the outcome of an operation that was not sent.
    pub(crate) async fn ready(&mut self) -> Result<(), Attempt> {
        if self.connection.is_open().await {
            return Ok(());
        }
        Err(fault::lost(SendState::Nothing, self.connection.ended()))
    }

    /// Sends one or more requests at once, and waits for all answers.
    pub(crate) async fn ask<T>(&mut self, request: impl AsyncFnOnce(&Client) -> T) -> T {
        self.connection.ask(request).await
    }

    /// See [`Connection::client`].
    pub(crate) fn client(&self) -> Arc<Client> {
        self.connection.client()
    }

    /// Sends a part of a transaction at once: BEGIN, `statements`, COMMIT, as far as they belong to the part.
    pub(crate) async fn part<T>(
        &mut self,
        part: Part,
        statements: impl AsyncFnOnce(&Client) -> T,
    ) -> Answered<T> {
        let request = async |client: &Client| {
            let send =
                async |wanted, command| if wanted { client.batch_execute(command).await } else { Ok(()) };
            tokio::join!(biased; send(part.begins(), "BEGIN"), statements(client), send(part.commits(), "COMMIT"))
        };
        let (begun, came, committed) = self.connection.ask(request).await;
        Answered { begun, came, committed }
    }

    /// Fails if BEGIN did. Statements sent behind a BEGIN that failed ran as a transaction by themselves, which
    /// may have `changed` something.
    pub(crate) fn begun(&self, begun: Result<(), Error>, changed: bool) -> Result<(), Attempt> {
        begun.map_err(|error| {
            let trouble = self.failed(&error, SendState::Nothing);
            if changed { trouble.after_a_part() } else { trouble }
        })
    }

    /// Fails if COMMIT did; whether it took effect may then be unknown.
    pub(crate) fn committed(&self, committed: Result<(), Error>) -> Result<(), Attempt> {
        committed.map_err(|error| self.failed(&error, SendState::Commit))
    }

    /// Rolls back a transaction that was not told to commit. It has no effect even if nobody answers, but the
    /// connection is of no more use then.
    pub(crate) async fn roll_back(&mut self, outcome: Attempt) -> Attempt {
        if let Attempt::Failed(fault) | Attempt::Unknown(fault) = &outcome
            && fault.connection_lost
        {
            return outcome;
        }
        let done = self.connection.ask(async |client| client.batch_execute("ROLLBACK").await).await;
        done.map_or_else(|error| fault::lost(SendState::Nothing, self.connection.words(&error)), |()| outcome)
    }

    /// See [`Connection::words`].
    pub(crate) fn words(&self, error: &Error) -> String {
        self.connection.words(error)
    }

    /// How an error ends the operation that met it.
    pub(crate) fn failed(&self, error: &Error, sent: SendState) -> Attempt {
        fault::attempt(error, sent, self.connection.words(error))
    }
}

/// Makes the server plan each prepared statement once, for any values.
pub(crate) const PLANNED_ONCE: &str = "SET plan_cache_mode = force_generic_plan";

/// Fails unless a write changed exactly one row.
pub(crate) fn changed_one(rows: u64) -> Result<(), Attempt> {
    let trouble = || Fault::answered(format!("a write changed {rows} rows instead of one"));
    if rows == 1 { Ok(()) } else { Err(Attempt::Failed(trouble())) }
}

/// Fails unless a write changed exactly one row; none is a conflict, as another client was faster.
pub(crate) fn unless_stale(rows: u64) -> Result<(), Attempt> {
    if rows == 0 { Err(Attempt::Conflict) } else { changed_one(rows) }
}

/// Whether a write with this answer may have changed something.
pub(crate) fn may_have_changed(changed: Result<u64, &Error>) -> bool {
    changed.map_or_else(|error| error.as_db_error().is_none(), |rows| rows > 0)
}
