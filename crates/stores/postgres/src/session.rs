//! A client's session: requests, transactions, and how their answers end an operation.

use acidtest_workloads::{Attempt, Fault};

use crate::{
    ConnectOptions, Value,
    fault::{self, SendState},
    protocol::{Answers, Connection, Error, Pipeline, Rows, Statement},
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
        match error {
            Error::Lost(_) if self.commits() => SendState::Commit,
            _ => SendState::Nothing,
        }
    }
}

/// The answers to the parts of a transaction that were sent at once.
pub(crate) struct Answered<'a> {
    part: Part,
    answers: Answers<'a>,
}

impl<'a> Answered<'a> {
    /// Answers to the statements between BEGIN and COMMIT.
    pub(crate) fn came(&self) -> Answers<'a> {
        self.answers.between(self.part.begins().into(), self.part.commits().into())
    }

    /// Fails if BEGIN was sent and did. Statements sent behind a BEGIN that failed ran as a transaction by themselves,
    /// which may have `changed` something.
    pub(crate) fn begun(&self, changed: bool) -> Result<(), Attempt> {
        if !self.part.begins() {
            return Ok(());
        }
        self.answers.get(0).map(|_| ()).map_err(|error| {
            let trouble = fault::attempt(error, SendState::Nothing);
            if changed { trouble.after_a_part() } else { trouble }
        })
    }

    /// Fails if COMMIT was sent and did; whether it took effect may then be unknown. The answers to the statements tell
    /// more of what went wrong, and must have been looked at before.
    pub(crate) fn committed(&self) -> Result<(), Attempt> {
        if !self.part.commits() {
            return Ok(());
        }
        committed(self.answers.get(self.answers.len() - 1))
    }
}

/// Fails if COMMIT did. A transaction that has failed is answered as if all were well, but for one word.
pub(crate) fn committed(answer: Result<Rows<'_>, &Error>) -> Result<(), Attempt> {
    let answer = answer.map_err(|error| fault::attempt(error, SendState::Commit))?;
    if answer.rolled_back() {
        return Err(Attempt::Failed(Fault::answered("COMMIT was answered with ROLLBACK")));
    }
    Ok(())
}

impl Session {
    /// Connects, and has `prepare` make settings and prepared statements. Each statement of a client is planned
    /// once: it finds its rows by their keys, whatever the values.
    pub(crate) async fn open<T>(
        server: &ConnectOptions,
        prepare: impl AsyncFnOnce(&mut Connection) -> Result<T, Error>,
    ) -> Result<(Self, T), String> {
        let mut connection = server.connect().await.map_err(|error| error.to_string())?;
        let ready = async {
            connection.command(PLANNED_ONCE).await?;
            prepare(&mut connection).await
        };
        let ready = ready.await.map_err(|error| error.to_string())?;
        Ok((Self { connection }, ready))
    }

    /// Its connection, for requests that outlive a call.
    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Runs a statement as a transaction by itself, or in one that is open; `sent` says which effects it has if it is not
    /// answered.
    pub(crate) async fn run<'v>(
        &mut self,
        statement: Statement,
        values: impl IntoIterator<Item = Value<'v>>,
        sent: SendState,
    ) -> Result<Rows<'_>, Attempt> {
        self.connection.run(statement, values).await.map_err(|error| fault::attempt(&error, sent))
    }

    /// Sends a part of a transaction at once: BEGIN, `statements`, COMMIT, as far as they belong to the part.
    ///
    /// # Errors
    /// Nothing was sent.
    pub(crate) async fn part(
        &mut self,
        part: Part,
        statements: impl FnOnce(&mut Pipeline<'_>) -> Result<(), Error>,
    ) -> Result<Answered<'_>, Attempt> {
        let answers = self.at_once(|pipeline| {
            if part.begins() {
                pipeline.command("BEGIN")?;
            }
            statements(pipeline)?;
            if part.commits() {
                pipeline.command("COMMIT")?;
            }
            Ok(())
        });
        Ok(Answered { part, answers: answers.await? })
    }

    /// Sends one or more statements at once, each a transaction by itself if none is open.
    ///
    /// # Errors
    /// Nothing was sent.
    pub(crate) async fn at_once(
        &mut self,
        statements: impl FnOnce(&mut Pipeline<'_>) -> Result<(), Error>,
    ) -> Result<Answers<'_>, Attempt> {
        let pipeline = self.connection.pipeline().and_then(|mut pipeline| {
            statements(&mut pipeline)?;
            Ok(pipeline)
        });
        match pipeline {
            Ok(pipeline) => Ok(pipeline.answers().await),
            Err(error) => Err(fault::attempt(&error, SendState::Nothing)),
        }
    }

    /// Commits the transaction.
    pub(crate) async fn commit(&mut self) -> Result<(), Attempt> {
        self.part(Part::Last, |_| Ok(())).await?.committed()
    }

    /// Rolls back a transaction that was not told to commit. It has no effect even if nobody answers, but the
    /// connection is of no more use then.
    pub(crate) async fn roll_back(&mut self, outcome: Attempt) -> Attempt {
        if let Attempt::Failed(fault) | Attempt::Unknown(fault) = &outcome
            && fault.connection_lost
        {
            return outcome;
        }
        let done = self.connection.command("ROLLBACK").await;
        done.map_or_else(|error| fault::lost(SendState::Nothing, error.to_string()), |()| outcome)
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
pub(crate) fn may_have_changed(answer: Result<Rows<'_>, &Error>) -> bool {
    match answer {
        Ok(rows) => rows.count() > 0,
        Err(error) => matches!(error, Error::Lost(_)),
    }
}
