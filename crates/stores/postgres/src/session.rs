//! A client's session: requests, transactions, and what their answers mean for the operation.

use std::sync::Arc;

use acidtest_model::Address;
use acidtest_workloads::{Attempt, Fault};
use tokio_postgres::{Client, Error};

use crate::{
    connection::Connection,
    fault::{self, SendState},
};

/// One client's connection with its settings made.
pub(crate) struct Session {
    line: Connection,
}

/// What of a transaction is sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// BEGIN and what comes first.
    First,
    /// What comes between.
    Middle,
    /// What comes last, and COMMIT.
    Last,
    /// All of it.
    Whole,
}

impl Part {
    /// The part that begins or commits the transaction, both, or neither.
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

    /// What had been sent when a statement of this part failed: an error that the server reports for it
    /// has ended the transaction, so that a COMMIT behind it only rolled back.
    pub(crate) fn sent(self, error: &Error) -> SendState {
        match error.as_db_error() {
            None if self.commits() => SendState::Commit,
            _ => SendState::Nothing,
        }
    }
}

/// What the parts of a transaction came to that are sent at once.
pub(crate) struct Answered<T> {
    /// BEGIN's answer; well where it was not sent.
    pub(crate) begun: Result<(), Error>,
    /// What was between BEGIN and COMMIT.
    pub(crate) came: T,
    /// COMMIT's answer; well where it was not sent.
    pub(crate) committed: Result<(), Error>,
}

impl Session {
    /// Connects, and makes ready by `prepare`: settings and prepared statements. Every statement of a
    /// client is found by its keys whatever their values, so none is planned twice.
    pub(crate) async fn open<T>(
        address: &Address,
        prepare: impl AsyncFnOnce(&Client) -> Result<T, Error>,
    ) -> Result<(Self, T), String> {
        let mut line = Connection::open(address).await.map_err(|error| fault::words(&error))?;
        let ready = line.ask(async |client| {
            client.batch_execute(PLANNED_ONCE).await?;
            prepare(client).await
        });
        let ready = ready.await.map_err(|error| line.words(&error))?;
        Ok((Self { line }, ready))
    }

    /// Whether an operation can begin; how it has ended if not.
    pub(crate) async fn ready(&mut self) -> Result<(), Attempt> {
        if self.line.is_open().await {
            return Ok(());
        }
        Err(fault::lost(SendState::Nothing, self.line.ended()))
    }

    /// Sends a request, or several at once, and waits for the answers.
    pub(crate) async fn ask<T>(&mut self, request: impl AsyncFnOnce(&Client) -> T) -> T {
        self.line.ask(request).await
    }

    /// See [`Connection::client`].
    pub(crate) fn client(&self) -> Arc<Client> {
        self.line.client()
    }

    /// Sends a part of a transaction at once, in this order.
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
        let (begun, came, committed) = self.line.ask(request).await;
        Answered { begun, came, committed }
    }

    /// Whether a transaction has begun. What was sent behind a BEGIN that failed was a transaction by
    /// itself, which may have `changed` something.
    pub(crate) fn begun(&self, begun: Result<(), Error>, changed: bool) -> Result<(), Attempt> {
        begun.map_err(|error| {
            let trouble = self.failed(&error, SendState::Nothing);
            if changed { trouble.after_a_part() } else { trouble }
        })
    }

    /// What COMMIT came to.
    pub(crate) fn committed(&self, committed: Result<(), Error>) -> Result<(), Attempt> {
        committed.map_err(|error| self.failed(&error, SendState::Commit))
    }

    /// Ends a transaction that was not told to commit. It has no effect even if nobody answers, but
    /// the connection is of no more use then.
    pub(crate) async fn roll_back(&mut self, outcome: Attempt) -> Attempt {
        if let Attempt::Failed(fault) | Attempt::Unknown(fault) = &outcome
            && fault.connection_lost
        {
            return outcome;
        }
        let done = self.line.ask(async |client| client.batch_execute("ROLLBACK").await).await;
        done.map_or_else(|error| fault::lost(SendState::Nothing, self.line.words(&error)), |()| outcome)
    }

    /// See [`Connection::words`].
    pub(crate) fn words(&self, error: &Error) -> String {
        self.line.words(error)
    }

    /// What an error means for the operation that met it.
    pub(crate) fn failed(&self, error: &Error, sent: SendState) -> Attempt {
        fault::attempt(error, sent, self.line.words(error))
    }
}

/// Makes the server plan each prepared statement once, whatever its values.
pub(crate) const PLANNED_ONCE: &str = "SET plan_cache_mode = force_generic_plan";

/// A write must have changed one row.
pub(crate) fn changed_one(rows: u64) -> Result<(), Attempt> {
    let trouble = || Fault::answered(format!("a write changed {rows} rows instead of one"));
    if rows == 1 { Ok(()) } else { Err(Attempt::Failed(trouble())) }
}

/// The same, but none means that another client was faster.
pub(crate) fn unless_stale(rows: u64) -> Result<(), Attempt> {
    if rows == 0 { Err(Attempt::Conflict) } else { changed_one(rows) }
}

/// Whether a write that was answered so may have changed something.
pub(crate) fn may_have_changed(changed: Result<u64, &Error>) -> bool {
    changed.map_or_else(|error| error.as_db_error().is_none(), |rows| rows > 0)
}
