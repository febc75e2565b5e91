//! One client's connection: statements, and the transactions or table locks around them.

use acidtest_workloads::{Attempt, Fault};
use mysql_async::{
    Conn, Error, Params, Row, Statement,
    prelude::{FromValue, Queryable, StatementLike},
};

use crate::fault::{self, SendState};

/// How an operation went, or the outcome that ended it early.
pub(crate) type OperationResult = Result<Attempt, Attempt>;

/// The transaction or table lock that makes several statements one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bracket {
    /// From START TRANSACTION to COMMIT or ROLLBACK.
    Transaction,
    /// A write lock on this table, for engines without transactions.
    TableLock(String),
}

impl Bracket {
    fn open(&self) -> String {
        match self {
            Self::Transaction => "START TRANSACTION".to_owned(),
            Self::TableLock(table) => format!("LOCK TABLES {table} WRITE"),
        }
    }

    fn keep(&self) -> &'static str {
        match self {
            Self::Transaction => "COMMIT",
            Self::TableLock(_) => UNLOCK,
        }
    }

    fn give_up(&self) -> &'static str {
        match self {
            Self::Transaction => "ROLLBACK",
            Self::TableLock(_) => UNLOCK,
        }
    }

    /// The [`SendState`] of a write inside it.
    pub(crate) fn writes(&self) -> SendState {
        match self {
            Self::Transaction => SendState::Nothing,
            Self::TableLock(_) => SendState::InPlace,
        }
    }
}

const UNLOCK: &str = "UNLOCK TABLES";

/// One client's connection, on which its statements run one at a time.
pub(crate) struct Session {
    pub(crate) conn: Conn,
}

impl Session {
    /// Runs a statement that only reads, and returns its rows.
    pub(crate) async fn read(
        &mut self,
        statement: &Statement,
        values: impl Into<Params>,
    ) -> Result<Vec<Row>, Attempt> {
        let read = rows(&mut self.conn, statement, values).await;
        read.map_err(|error| fault::attempt(&error, SendState::Nothing))
    }

    /// Runs a statement, and returns how many rows it found, changed or not.
    pub(crate) async fn run(
        &mut self,
        statement: &Statement,
        values: impl Into<Params> + Send,
        sent: SendState,
    ) -> Result<u64, Attempt> {
        self.conn.exec_drop(statement, values).await.map_err(|error| fault::attempt(&error, sent))?;
        Ok(self.conn.affected_rows())
    }

    /// Runs a statement that must find exactly one row.
    pub(crate) async fn write(
        &mut self,
        statement: &Statement,
        values: impl Into<Params> + Send,
        sent: SendState,
    ) -> Result<(), Attempt> {
        one(self.run(statement, values, sent).await?)
    }

    pub(crate) async fn begin(&mut self, bracket: &Bracket) -> Result<(), Attempt> {
        let begun = self.conn.query_drop(bracket.open()).await;
        begun.map_err(|error| fault::attempt(&error, SendState::Nothing))
    }

    /// Commits or unlocks after success; rolls back or unlocks after any other outcome.
    pub(crate) async fn end(&mut self, bracket: &Bracket, done: OperationResult) -> OperationResult {
        match done {
            Ok(Attempt::Ok) => self.keep(bracket).await.map(|()| Attempt::Ok),
            Ok(outcome) | Err(outcome) => Ok(self.give_up(bracket, outcome).await),
        }
    }

    pub(crate) async fn keep(&mut self, bracket: &Bracket) -> Result<(), Attempt> {
        let kept = self.conn.query_drop(bracket.keep()).await;
        kept.map_err(|error| fault::attempt(&error, SendState::Commit))
    }

    /// Ends a transaction that was not told to commit, or gives up the table lock. Nothing takes effect even if
    /// nobody answers, but the connection is of no more use then. A rollback is needed after errors too: some
    /// leave the transaction of their statement open, such as a lock wait that timed out.
    pub(crate) async fn give_up(&mut self, bracket: &Bracket, outcome: Attempt) -> Attempt {
        if let Attempt::Failed(fault) | Attempt::Unknown(fault) = &outcome
            && fault.connection_lost
        {
            return outcome;
        }
        let done = self.conn.query_drop(bracket.give_up()).await;
        done.map_or_else(|error| fault::lost(SendState::Nothing, fault::words(&error)), |()| outcome)
    }
}

/// Fails unless a write found exactly one row. Where it found more, it has changed rows that it should not have.
pub(crate) fn one(found: u64) -> Result<(), Attempt> {
    let words = || format!("a write found {found} rows, not one");
    match found {
        0 => Err(Attempt::Failed(Fault::answered(words()))),
        1 => Ok(()),
        _ => Err(Attempt::Failed(Fault::answered(words())).after_a_part()),
    }
}

/// All rows of all results of a statement. An error may come as late as the end of the last result.
pub(crate) async fn rows(
    conn: &mut Conn,
    statement: impl StatementLike,
    values: impl Into<Params>,
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    let mut result = conn.exec_iter(statement, values).await?;
    while !result.is_empty() {
        result.for_each(|row| rows.push(row)).await?;
    }
    result.drop_result().await?;
    Ok(rows)
}

/// A column as text; empty where the column holds none.
pub(crate) fn text(row: &Row, column: usize) -> String {
    row.get_opt(column).and_then(Result::ok).unwrap_or_default()
}

/// A column as a number; an error where the column holds none.
pub(crate) fn number<T: FromValue>(row: &Row, column: usize) -> Result<T, String> {
    let value = row.get_opt(column).and_then(Result::ok);
    value.ok_or_else(|| format!("no number in column {column}"))
}
