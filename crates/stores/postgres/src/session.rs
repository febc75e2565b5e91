//! A client's session: requests, transactions, and how their answers end an operation.

use acidtest_workloads::{Attempt, Fault};

use crate::{
    ConnectOptions, Value,
    fault::{self, SendState},
    protocol::{Answers, Connection, Ended, Error, Pipeline, Rows, Statement},
    sessions::{SessionState, explained},
};

/// One client's connection after its settings are made.
pub(crate) struct Session {
    connection: Connection,
    /// The server's session as it was then.
    state: SessionState,
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

    /// Which effects an error with a statement of this part leaves possible. An error that the server reports for the
    /// statement has ended the transaction, so that a COMMIT sent behind it only rolled back, and says so. Where it does not, the
    /// error is not the server's: a proxy reports one where the statement's answer was lost.
    pub(crate) fn sent(&self) -> SendState {
        let is_undone = || {
            let last = self.answers.get(self.answers.len() - 1);
            last.is_ok_and(|answer| answer.ended() == Ended::RolledBack)
        };
        if self.part.commits() && !is_undone() { SendState::Commit } else { SendState::Nothing }
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
    match answer.ended() {
        Ended::Committed => Ok(()),
        Ended::RolledBack => Err(Attempt::Failed(Fault::answered("COMMIT was answered with ROLLBACK"))),
        Ended::NotSaid => {
            Err(fault::lost(SendState::Commit, "COMMIT was answered with something else".to_owned()))
        }
    }
}

impl Session {
    /// Connects, and has `prepare` make settings and prepared statements. Each statement of a client is planned
    /// once: it finds its rows by their keys, whatever the values. A session that others have left their settings in is
    /// refused.
    pub(crate) async fn open<T>(
        server: &ConnectOptions,
        prepare: impl AsyncFnOnce(&mut Connection) -> Result<T, Error>,
    ) -> Result<(Self, T), String> {
        let connection = server.connect().await.map_err(|error| fault::client_words(&error))?;
        Self::begin(connection, server.usual(), true, prepare).await
    }

    /// The same on the server at this place, for a client that only reads; says, too, whether the server takes writes.
    pub(crate) async fn open_to_read<T>(
        server: &ConnectOptions,
        place: usize,
        prepare: impl AsyncFnOnce(&mut Connection) -> Result<T, Error>,
    ) -> Result<(Self, T, bool), String> {
        let (connection, takes_writes) = server.connect_to(place).await?;
        let (session, ready) = Self::begin(connection, server.usual(), false, prepare).await?;
        Ok((session, ready, takes_writes))
    }

    async fn begin<T>(
        mut connection: Connection,
        usual: Option<&str>,
        commits: bool,
        prepare: impl AsyncFnOnce(&mut Connection) -> Result<T, Error>,
    ) -> Result<(Self, T), String> {
        if let Some(usual) = usual {
            let given = SessionState::read(&mut connection, commits).await;
            let given = given.map_err(|error| explained(&error))?;
            if let Err(why) = given.check_fresh(usual)
                && SessionState::is_set(&mut connection).await.map_err(|error| explained(&error))?
            {
                return Err(why);
            }
        }
        let ready = async {
            connection.command(&format!("{PLANNED_ONCE}; {WARNINGS}")).await?;
            let ready = prepare(&mut connection).await?;
            Ok((ready, SessionState::read(&mut connection, commits).await?))
        };
        let (ready, state) = ready.await.map_err(|error| explained(&error))?;
        Ok((Self { connection, state }, ready))
    }

    /// Looks whether the session and its settings are still those that were made.
    ///
    /// # Errors
    /// What has changed, in words.
    pub(crate) async fn check(&mut self) -> Result<(), String> {
        // a connection that does not answer proves nothing
        let now = SessionState::read(&mut self.connection, self.state.commits).await;
        let Ok(now) = now else { return Ok(()) };
        self.state.changed(&now).map_or(Ok(()), Err)
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

/// Has the server tell its client that a commit has not waited for its replicas, wherever it is set to tell only errors.
pub(crate) const WARNINGS: &str = "SET client_min_messages = warning";

/// Fails unless a write changed exactly one row. Where it changed more, it has changed rows that it should not have.
pub(crate) fn changed_one(rows: u64) -> Result<(), Attempt> {
    let trouble = || Attempt::Failed(Fault::answered(format!("a write changed {rows} rows instead of one")));
    match rows {
        0 => Err(trouble()),
        1 => Ok(()),
        _ => Err(trouble().after_a_part()),
    }
}

/// Fails unless a write changed exactly one row; none is a conflict, as another client was faster.
pub(crate) fn unless_stale(rows: u64) -> Result<(), Attempt> {
    if rows == 0 { Err(Attempt::Conflict) } else { changed_one(rows) }
}

/// Whether a write with this answer may have changed something, if it ran as a transaction by itself.
pub(crate) fn may_have_changed(answer: Result<Rows<'_>, &Error>) -> bool {
    match answer {
        Ok(rows) => rows.count() > 0,
        Err(error) => matches!(fault::attempt(error, SendState::Commit), Attempt::Unknown(_)),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use acidtest_model::Address;
    use acidtest_testbed::Played;

    use super::*;
    use crate::protocol::tests::{
        INT8, ONE, changed, changed_alone, complete, error, message, prepared_for, ready, row,
        wait_cancelled, welcome,
    };

    /// Runs a test with a session, and a statement with a parameter of this type, whose server says these things.
    pub(crate) fn with_session<T>(
        parameter: u32,
        sayings: &[Vec<u8>],
        test: impl AsyncFnOnce(Session, Statement) -> T,
    ) -> T {
        let said = [&[welcome(), done("SET"), prepared_for(parameter, &[]), state()], sayings].concat();
        Played::new(Vec::new(), said).during(async |address| {
            let address = Address::parse(&format!("postgres://ann@{address}/db")).unwrap();
            let server = ConnectOptions::new(&address).unwrap();
            let prepare = async |connection: &mut Connection| connection.prepare("…").await;
            let (session, statement) = Session::open(&server, prepare).await.unwrap();
            test(session, statement).await
        })
    }

    /// What the server tells of its session.
    fn state() -> Vec<u8> {
        state_of("7", "jit=on")
    }

    fn state_of(process: &str, settings: &str) -> Vec<u8> {
        [row(&[Some(process.as_bytes()), Some(settings.as_bytes())]), complete("SELECT 1"), ready()].concat()
    }

    fn done(tag: &str) -> Vec<u8> {
        [complete(tag), ready()].concat()
    }

    /// How a transaction of one write ends that was sent at once, if its parts are answered so.
    fn whole(begin: Vec<u8>, write: Vec<u8>, commit: Vec<u8>) -> Attempt {
        with_session(INT8, &[[begin, write, commit].concat()], async |mut session, statement| {
            let answered = session.part(Part::Whole, |pipeline| pipeline.run(statement, ONE)).await.unwrap();
            let came = answered.came().get(0);
            let ended = answered.begun(may_have_changed(came)).and_then(|()| {
                let rows = came.map_err(|error| fault::attempt(error, answered.sent()))?;
                changed_one(rows.count()).map_err(Attempt::after_a_part)?;
                answered.committed()
            });
            ended.err().unwrap_or(Attempt::Ok)
        })
    }

    pub(crate) fn failed(severity: &str, code: &str) -> Vec<u8> {
        [error(severity, code), ready()].concat()
    }

    /// Carried out, and changed so many rows.
    fn changed_rows(rows: u64) -> Vec<u8> {
        [message(b'2', b""), complete(&format!("UPDATE {rows}")), ready()].concat()
    }

    fn is_failed(attempt: &Attempt) -> bool {
        matches!(attempt, Attempt::Failed(_))
    }

    fn is_unknown(attempt: &Attempt) -> bool {
        matches!(attempt, Attempt::Unknown(fault) if fault.connection_lost)
    }

    /// A pooler that shares sessions with few others may go unnoticed until the end.
    #[test]
    fn a_session_that_was_exchanged_or_changed_is_noticed_at_the_end() {
        let found =
            |sayings: &[Vec<u8>]| with_session(INT8, sayings, async |mut session, _| session.check().await);
        assert_eq!(found(&[state()]), Ok(()));
        let exchanged = found(&[state_of("8", "jit=on")]);
        assert_eq!(exchanged, Err("another session of the server answers".to_owned()));
        let changed = found(&[state_of("7", "jit=off")]);
        assert_eq!(changed, Err("its settings are jit=off instead of on".to_owned()));
        // nothing is known of one that does not answer, or cannot
        assert_eq!(found(&[]), Ok(()));
        assert_eq!(found(&[failed("FATAL", "57P01")]), Ok(()));
    }

    #[test]
    fn a_transaction_sent_at_once_ends_as_its_parts_were_answered() {
        let begin = || done("BEGIN");
        assert_eq!(whole(begin(), changed(), done("COMMIT")), Attempt::Ok);
        assert_eq!(whole(begin(), failed("ERROR", "40001"), done("ROLLBACK")), Attempt::Conflict);
        for code in ["22012", "XX000", "57014", "58000", "HY000"] {
            assert!(is_failed(&whole(begin(), failed("ERROR", code), done("ROLLBACK"))), "{code}");
        }
        assert!(is_failed(&whole(begin(), changed(), done("ROLLBACK"))));
        // a proxy has lost its server, which may have carried out all
        for (severity, code) in [("FATAL", "08P01"), ("ERROR", "08006"), ("FATAL", "57P01")] {
            assert!(is_unknown(&whole(begin(), error(severity, code), Vec::new())), "{code}");
        }
        // what stands between has passed all on, and says something else of the write; or it says nothing of the commit
        for code in ["XX000", "58000", "57014"] {
            assert!(is_unknown(&whole(begin(), failed("ERROR", code), done("COMMIT"))), "{code}");
            assert!(is_unknown(&whole(begin(), failed("ERROR", code), Vec::new())), "{code}");
        }
        // a code of the server's own proves that it had ended the transaction
        assert!(is_failed(&whole(begin(), failed("ERROR", "23505"), Vec::new())));
        // the commit itself met something that may have come behind it
        for code in ["40003", "XX000", "57014", "08006"] {
            assert!(is_unknown(&whole(begin(), changed(), failed("ERROR", code))), "{code}");
        }
        assert!(is_failed(&whole(begin(), changed(), failed("ERROR", "23505"))));
        assert!(is_unknown(&whole(begin(), changed_rows(2), done("COMMIT"))));
        // an answer, but to what?
        for tag in ["BEGIN", "COMMITTED", "ROLLBACK TO", ""] {
            assert!(is_unknown(&whole(begin(), changed(), done(tag))), "{tag}");
        }
    }

    /// The server says COMMIT, and takes it back.
    #[test]
    fn a_commit_on_the_leader_alone_is_unknown() {
        for code in ["01000", "57P01"] {
            let warned = [wait_cancelled(code), done("COMMIT")].concat();
            let ended = whole(done("BEGIN"), changed(), warned);
            assert!(
                matches!(&ended, Attempt::Unknown(fault) if fault.message.contains("alone")),
                "{ended:?}"
            );
            assert!(is_unknown(&ended));
        }
        // the connection ends before the answer
        assert!(is_unknown(&whole(done("BEGIN"), changed(), wait_cancelled("57P01"))));
        // where BEGIN failed, the write is a transaction by itself
        assert!(is_unknown(&whole(failed("ERROR", "53200"), changed_alone("01000"), done("COMMIT"))));
        let alone = with_session(INT8, &[changed_alone("01000")], async |mut session, statement| {
            session.run(statement, ONE, SendState::Commit).await.map(|_| ()).unwrap_err()
        });
        assert!(is_unknown(&alone), "{alone:?}");
    }

    /// What was sent behind a BEGIN that failed ran as transactions by themselves.
    #[test]
    fn a_write_whose_transaction_was_not_begun_may_have_had_an_effect() {
        let begin = || failed("ERROR", "53200");
        for write in [changed(), failed("ERROR", "40003"), failed("ERROR", "XX000")] {
            assert!(is_unknown(&whole(begin(), write, done("COMMIT"))));
        }
        for write in [changed_rows(0), failed("ERROR", "23505")] {
            assert!(is_failed(&whole(begin(), write, done("COMMIT"))));
        }
    }

    #[test]
    fn a_write_must_change_exactly_one_row() {
        let ended = [0, 1, 2].map(|rows| changed_one(rows).err().unwrap_or(Attempt::Ok));
        assert!(is_failed(&ended[0]) && ended[1] == Attempt::Ok && is_unknown(&ended[2]), "{ended:?}");
        assert_eq!(unless_stale(0), Err(Attempt::Conflict));
    }
}
