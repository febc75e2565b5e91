//! One client's connection: statements, and the transactions or table locks around them.

use acidtest_workloads::{Attempt, Fault};

use crate::{
    ConnectOptions,
    fault::{self, SendState},
    protocol::{Answers, Connection, Error, Pipeline, Rows, Statement, Value},
    sessions::SessionState,
};

/// How an operation went, or the outcome that ended it early.
pub(crate) type OperationResult = Result<Attempt, Attempt>;

/// The transaction or table lock that makes several statements one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UnitOfWork {
    /// From START TRANSACTION to COMMIT or ROLLBACK.
    Transaction,
    /// A write lock on a table, for engines without transactions: the statement that takes it.
    TableLock(String),
}

impl UnitOfWork {
    /// A write lock on this table.
    pub(crate) fn on_table(table: &str) -> Self {
        Self::TableLock(format!("LOCK TABLES {table} WRITE"))
    }

    fn open(&self) -> &str {
        match self {
            Self::Transaction => "START TRANSACTION",
            Self::TableLock(lock) => lock,
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

    /// The [`SendState`] of a write whose bracket was told to keep it at once, with what was answered to that.
    fn kept_writes(&self, kept: &Result<(), Error>) -> SendState {
        match (self, kept) {
            (Self::Transaction, Err(Error::NotSent(_))) => SendState::Nothing,
            (Self::Transaction, _) => SendState::Write,
            (Self::TableLock(_), _) => SendState::InPlace,
        }
    }

    /// How an operation ends whose writes are done, and that was not kept because of this error. The writes of one that was
    /// not told to commit have no effect; those under a table lock have taken effect.
    fn not_kept(&self, error: &Error) -> Attempt {
        match self {
            Self::Transaction => fault::attempt(error, SendState::Commit),
            Self::TableLock(_) => fault::lost(SendState::Commit, error.to_string()),
        }
    }
}

const UNLOCK: &str = "UNLOCK TABLES";

/// One client's connection after its settings are made.
pub(crate) struct Session {
    connection: Connection,
    /// The server's session as it was then.
    state: SessionState,
    /// The bracket that is to be opened together with the next statement.
    opening: Option<UnitOfWork>,
}

impl Session {
    /// Connects, and has `prepare` make settings and prepared statements. A session that others have left their settings in is
    /// refused.
    pub(crate) async fn open<T>(
        server: &ConnectOptions,
        prepare: impl AsyncFnOnce(&mut Connection) -> Result<T, Error>,
    ) -> Result<(Self, T), String> {
        let mut connection = server.connect().await.map_err(|error| fault::client_words(&error))?;
        if let Some(usual) = server.usual() {
            let given = SessionState::read(&mut connection).await.map_err(|error| error.to_string())?;
            given.check_fresh(usual)?;
        }
        let ready = async {
            let ready = prepare(&mut connection).await?;
            Ok((ready, SessionState::read(&mut connection).await?))
        };
        let (ready, state) = ready.await.map_err(|error: Error| error.to_string())?;
        Ok((Self { connection, state, opening: None }, ready))
    }

    /// Looks whether the session and its settings are still those that were made.
    ///
    /// # Errors
    /// What has changed, in words.
    pub(crate) async fn check(&mut self) -> Result<(), String> {
        // a connection that does not answer proves nothing
        let Ok(now) = SessionState::read(&mut self.connection).await else { return Ok(()) };
        self.state.changed(&now).map_or(Ok(()), Err)
    }

    /// Its connection, to prepare further statements, or to run one outside of brackets.
    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Runs a statement that only reads.
    pub(crate) async fn read<'v>(
        &mut self,
        statement: Statement,
        values: impl IntoIterator<Item = Value<'v>>,
    ) -> Result<Rows<'_>, Attempt> {
        self.exchange(|pipeline| pipeline.run(statement, values), unsent, false).await
    }

    /// Runs a statement; `sent` is the [`SendState`] of what it writes.
    pub(crate) async fn run<'v>(
        &mut self,
        statement: Statement,
        values: impl IntoIterator<Item = Value<'v>>,
        sent: SendState,
    ) -> Result<Rows<'_>, Attempt> {
        self.send(|pipeline| pipeline.run(statement, values), |error| fault::attempt(error, sent)).await
    }

    /// Sends a statement that may write. What its error means says `failed`.
    pub(crate) async fn send(
        &mut self,
        statement: impl FnOnce(&mut Pipeline<'_>) -> Result<(), Error>,
        failed: impl FnOnce(&Error) -> Attempt,
    ) -> Result<Rows<'_>, Attempt> {
        self.exchange(statement, failed, true).await
    }

    /// Sends a statement, behind the beginning of the bracket that it is the first of.
    async fn exchange(
        &mut self,
        statement: impl FnOnce(&mut Pipeline<'_>) -> Result<(), Error>,
        failed: impl FnOnce(&Error) -> Attempt,
        may_write: bool,
    ) -> Result<Rows<'_>, Attempt> {
        let opening = self.opening.take();
        let mut pipeline = self.connection.pipeline().map_err(|error| unsent(&error))?;
        let opened = opening.as_ref().map_or(Ok(()), |bracket| pipeline.query(bracket.open()));
        opened.and_then(|()| statement(&mut pipeline)).map_err(|error| unsent(&error))?;
        let answers = pipeline.answers().await;
        let Some(bracket) = opening else { return answers.get(0).map_err(failed) };
        begun(&bracket, answers, may_write)?;
        answers.get(1).map_err(failed)
    }

    /// Runs a statement that only reads, as text.
    pub(crate) async fn read_text(&mut self, sql: &str) -> Result<Rows<'_>, Attempt> {
        self.exchange(|pipeline| pipeline.query(sql), unsent, false).await
    }

    /// Runs a statement that must find exactly one row.
    pub(crate) async fn write<'v>(
        &mut self,
        statement: Statement,
        values: impl IntoIterator<Item = Value<'v>>,
        sent: SendState,
    ) -> Result<(), Attempt> {
        one(self.run(statement, values, sent).await?.count())
    }

    /// Runs a bracket's only write, which must find exactly one row, and has the bracket kept at once: if the write fails,
    /// there is nothing to keep.
    ///
    /// Never for one of several writes. The server goes on after an error, and would keep the others; after a deadlock it
    /// would run each as a transaction by itself.
    pub(crate) async fn write_and_keep<'v>(
        &mut self,
        bracket: &UnitOfWork,
        statement: Statement,
        values: impl IntoIterator<Item = Value<'v>>,
    ) -> Result<(), Attempt> {
        let mut pipeline = self.connection.pipeline().map_err(|error| unsent(&error))?;
        pipeline
            .run(statement, values)
            .and_then(|()| pipeline.query(bracket.keep()))
            .map_err(|error| unsent(&error))?;
        let answers = pipeline.answers().await;
        let kept = answers.get(1).map(|_| ()).map_err(Clone::clone);
        let written = match answers.get(0) {
            Ok(rows) => one(rows.count()),
            Err(error) => Err(fault::attempt(error, bracket.kept_writes(&kept))),
        };
        let Err(error) = kept else { return written };
        let trouble = written.err().unwrap_or_else(|| bracket.not_kept(&error));
        Err(self.give_up(bracket, trouble).await)
    }

    /// Begins a bracket, together with the statement that comes next.
    pub(crate) fn begin(&mut self, bracket: &UnitOfWork) {
        self.opening = Some(bracket.clone());
    }

    /// Commits or unlocks after success; rolls back or unlocks after any other outcome.
    pub(crate) async fn end(&mut self, bracket: &UnitOfWork, done: OperationResult) -> OperationResult {
        match done {
            Ok(Attempt::Ok) => self.keep(bracket).await.map(|()| Attempt::Ok),
            Ok(outcome) | Err(outcome) => Ok(self.give_up(bracket, outcome).await),
        }
    }

    /// Commits or unlocks.
    pub(crate) async fn keep(&mut self, bracket: &UnitOfWork) -> Result<(), Attempt> {
        if self.opening.take().is_some() {
            return Ok(());
        }
        let kept = self.connection.query(bracket.keep()).await;
        kept.map(|_| ()).map_err(|error| bracket.not_kept(&error))
    }

    /// Ends a transaction that was not told to commit, or gives up the table lock. Nothing takes effect even if
    /// nobody answers, but the connection is of no more use then. A rollback is needed after errors too: some
    /// leave the transaction of their statement open, such as a lock wait that timed out.
    pub(crate) async fn give_up(&mut self, bracket: &UnitOfWork, outcome: Attempt) -> Attempt {
        if self.opening.take().is_some() || is_lost(&outcome) {
            return outcome;
        }
        let done = self.connection.query(bracket.give_up()).await;
        done.map_or_else(|error| fault::lost(SendState::Nothing, error.to_string()), |_| outcome)
    }
}

/// How an operation ends by an error of a request that was not sent, or that only reads.
fn unsent(error: &Error) -> Attempt {
    fault::attempt(error, SendState::Nothing)
}

/// Fails if the bracket before a statement was not begun. A statement that was sent behind it then ran by itself, and may
/// have changed something.
fn begun(bracket: &UnitOfWork, answers: Answers<'_>, may_write: bool) -> Result<(), Attempt> {
    answers.get(0).map(|_| ()).map_err(|error| {
        let trouble = fault::attempt(error, SendState::Nothing);
        let by_itself = bracket.kept_writes(&Ok(()));
        let may_have_changed = match answers.get(1) {
            Ok(_) => true,
            Err(error) => matches!(fault::attempt(error, by_itself), Attempt::Unknown(_)),
        };
        if may_write && may_have_changed { trouble.after_a_part() } else { trouble }
    })
}

/// Whether an operation has lost its connection.
pub(crate) fn is_lost(outcome: &Attempt) -> bool {
    matches!(outcome, Attempt::Failed(fault) | Attempt::Unknown(fault) if fault.connection_lost)
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

#[cfg(test)]
pub(crate) mod tests {
    use acidtest_model::Address;

    use super::*;
    use crate::protocol::tests::{Manner, ONE, changed, failed, logged_in, told};

    /// Runs an operation of a session whose server says these things.
    fn with_session(
        sayings: &[Vec<u8>],
        test: impl AsyncFnOnce(&mut Session, Statement) -> Attempt,
    ) -> Attempt {
        with_own_session(sayings, async |mut session, statement| test(&mut session, statement).await)
    }

    /// The same with an operation that takes its session along.
    pub(crate) fn with_own_session(
        sayings: &[Vec<u8>],
        test: impl AsyncFnOnce(Session, Statement) -> Attempt,
    ) -> Attempt {
        let state = told(3, &[&["7", "REPEATABLE-READ", "1"]]);
        logged_in(Manner::New, &[], &[&[state], sayings].concat()).during(async |address| {
            let address = Address::parse(&format!("mariadb://ann@{address}")).unwrap();
            let server = ConnectOptions::new(&address).unwrap();
            let prepare = async |connection: &mut Connection| connection.prepare("…").await;
            let (session, statement) = Session::open(&server, prepare).await.unwrap();
            test(session, statement).await
        })
    }

    /// A proxy that shares sessions with few others may go unnoticed until the end.
    #[test]
    fn a_session_that_was_exchanged_or_changed_is_noticed_at_the_end() {
        let found = |sayings: &[Vec<u8>]| {
            let mut found = None;
            with_session(sayings, async |session, _| {
                found = Some(session.check().await);
                Attempt::Ok
            });
            found.unwrap()
        };
        assert_eq!(found(&[told(3, &[&["7", "REPEATABLE-READ", "1"]])]), Ok(()));
        let exchanged = found(&[told(3, &[&["8", "REPEATABLE-READ", "1"]])]);
        assert_eq!(exchanged, Err("another session of the server answers".to_owned()));
        let changed = found(&[told(3, &[&["7", "SERIALIZABLE", "1"]])]).unwrap_err();
        assert!(changed.contains("isolation level SERIALIZABLE"), "{changed}");
        // nothing is known of one that does not answer
        assert_eq!(found(&[]), Ok(()));
    }

    /// How a write ends that was sent together with the end of its bracket, if the server answers them so and agrees to whatever
    /// it is told then; it closes the connection in the place of an empty answer.
    fn written(bracket: &UnitOfWork, write: Vec<u8>, end: Vec<u8>) -> Attempt {
        let closes = end.is_empty();
        let sayings = [[write, end].concat(), changed(0)];
        with_session(&sayings[..if closes { 1 } else { 2 }], async |session, statement| {
            let written = session.write_and_keep(bracket, statement, ONE).await;
            written.map_or_else(|trouble| trouble, |()| Attempt::Ok)
        })
    }

    fn is_failed(attempt: &Attempt) -> bool {
        matches!(attempt, Attempt::Failed(fault) if !fault.connection_lost)
    }

    fn is_unknown(attempt: &Attempt) -> bool {
        matches!(attempt, Attempt::Unknown(_))
    }

    #[test]
    fn a_write_sent_with_its_commit_ends_as_both_were_answered() {
        let written = |write, commit| written(&UnitOfWork::Transaction, write, commit);
        assert_eq!(written(changed(1), changed(0)), Attempt::Ok);
        assert!(is_failed(&written(changed(0), changed(0))));
        assert!(is_unknown(&written(changed(2), changed(0))));
        // nothing was written that the commit could keep
        for (code, state) in [(1213, "40001"), (1205, "HY000")] {
            assert_eq!(written(failed(code, state), changed(0)), Attempt::Conflict);
        }
        assert!(is_failed(&written(failed(1114, "HY000"), changed(0))));
        // the server does not say whether
        assert!(is_unknown(&written(failed(1053, "08S01"), changed(0))));
        assert!(is_unknown(&written(changed(1), failed(1180, "HY000"))));
        assert!(is_unknown(&written(changed(1), Vec::new())));
        assert!(is_unknown(&written(Vec::new(), Vec::new())));
        // a commit that has rolled back for certain
        assert_eq!(written(changed(1), failed(1213, "40001")), Attempt::Conflict);
    }

    #[test]
    fn a_write_under_a_table_lock_stays_where_it_is_not_unlocked() {
        let lock = UnitOfWork::on_table("t");
        let written = |write, unlock| written(&lock, write, unlock);
        assert_eq!(written(changed(1), changed(0)), Attempt::Ok);
        assert!(is_failed(&written(failed(1114, "HY000"), changed(0))));
        for (write, unlock) in [
            (failed(1030, "HY000"), changed(0)),
            (changed(1), failed(1213, "40001")),
            (changed(1), Vec::new()),
            (Vec::new(), Vec::new()),
        ] {
            assert!(is_unknown(&written(write, unlock)));
        }
    }

    /// A commit of which no byte was sent has committed nothing; a lock that was not given back has kept what was written.
    #[test]
    fn what_was_not_told_to_keep_a_write_has_kept_it_only_in_place() {
        let unsent = Error::NotSent("closed".to_owned());
        let lock = UnitOfWork::on_table("t");
        assert_eq!(UnitOfWork::Transaction.kept_writes(&Err(unsent.clone())), SendState::Nothing);
        assert_eq!(
            UnitOfWork::Transaction.kept_writes(&Err(Error::Lost("closed".to_owned()))),
            SendState::Write
        );
        assert_eq!(lock.kept_writes(&Err(unsent.clone())), SendState::InPlace);
        assert!(!is_unknown(&UnitOfWork::Transaction.not_kept(&unsent)));
        assert!(is_unknown(&lock.not_kept(&unsent)));
    }

    #[test]
    fn a_bracket_is_begun_together_with_its_first_statement() {
        let first = |said: Vec<u8>| {
            let closes = said.is_empty();
            with_session(&[said, changed(0)][..if closes { 1 } else { 2 }], async |session, statement| {
                session.begin(&UnitOfWork::Transaction);
                match session.run(statement, ONE, SendState::Nothing).await {
                    Ok(rows) if rows.count() == 1 => {
                        session.keep(&UnitOfWork::Transaction).await.err().unwrap_or(Attempt::Ok)
                    }
                    Ok(_) => Attempt::Refused,
                    Err(trouble) => trouble,
                }
            })
        };
        assert_eq!(first([changed(0), changed(1)].concat()), Attempt::Ok);
        assert_eq!(first([changed(0), failed(1213, "40001")].concat()), Attempt::Conflict);
        let refused = failed(1792, "25006");
        assert!(is_failed(&first([refused.clone(), failed(1062, "23000")].concat())));
        // it ran by itself, and its effect stays, or may stay
        assert!(is_unknown(&first([refused.clone(), changed(1)].concat())));
        assert!(is_unknown(&first([refused, failed(1317, "70100")].concat())));
        // whether the server has begun is not known, and so neither whether the write stays
        assert!(is_unknown(&first(Vec::new())));
    }

    /// A statement that only reads has no effect, also where nobody answers or it ran by itself.
    #[test]
    fn a_bracket_that_begins_with_a_read_fails_without_effect() {
        for said in [Vec::new(), changed(0), [failed(1792, "25006"), changed(0)].concat()] {
            let ended = with_session(&[said], async |session, statement| {
                session.begin(&UnitOfWork::Transaction);
                session.read(statement, ONE).await.map_or_else(|trouble| trouble, |_| Attempt::Ok)
            });
            assert!(matches!(ended, Attempt::Failed(_)), "{ended:?}");
        }
    }

    /// Nothing was sent of a bracket that ends before its first statement.
    #[test]
    fn a_bracket_without_a_statement_costs_nothing() {
        let ended = with_session(&[], async |session, _| {
            session.begin(&UnitOfWork::Transaction);
            session.end(&UnitOfWork::Transaction, Ok(Attempt::Ok)).await.unwrap();
            session.begin(&UnitOfWork::Transaction);
            session.give_up(&UnitOfWork::Transaction, Attempt::Conflict).await
        });
        assert_eq!(ended, Attempt::Conflict);
    }
}
