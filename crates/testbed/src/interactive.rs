//! Interleavings of interactive transactions, statement by statement, and what holds of them in every mode of every store.

use acidtest_model::Isolation;
use acidtest_workloads::{
    Place, Store,
    interactive::{InteractiveSession, InteractiveStore, Mode, Reply, Table},
};

use crate::{NAMESPACE, Subject, wait};

/// A table `test` with the rows (1, 10) and (2, 20), and some sessions of one mode on it.
pub struct Play<'a> {
    store: &'a dyn InteractiveStore,
    mode: Mode,
    place: Place,
    /// The name that stands for `test` in statements.
    table: String,
    sessions: Vec<Box<dyn InteractiveSession>>,
}

/// The store's mode of this name.
pub async fn mode(store: &dyn InteractiveStore, name: &str) -> Mode {
    let modes = store.modes().await.unwrap();
    modes.iter().find(|mode| mode.name == name).unwrap_or_else(|| panic!("no {name:?} in {modes:?}")).clone()
}

/// The reply with these rows.
#[must_use]
pub fn rows(rows: &[(i64, i64)]) -> Reply {
    Reply::pairs(rows.iter().copied())
}

impl<'a> Play<'a> {
    /// Makes the table, and opens so many sessions in the mode.
    pub async fn begin(store: &'a dyn Store, mode: Mode, sessions: usize) -> Self {
        let store = store.interactive().unwrap();
        let place = Place { namespace: NAMESPACE.to_owned(), trial: 7 };
        let numbers = |row: [u32; 2]| row.map(|number| number.to_string()).to_vec();
        let table = Table {
            name: "test".to_owned(),
            columns: "id int primary key, value int".to_owned(),
            rows: [[1, 10], [2, 20]].map(numbers).to_vec(),
        };
        let table = store.make_table(&place, &table).await.unwrap();
        let mut play = Self { store, mode, place, table, sessions: Vec::new() };
        for _ in 0..sessions {
            let session = play.session().await;
            play.sessions.push(session);
        }
        play
    }

    /// Opens one more session, which is the caller's.
    pub async fn session(&self) -> Box<dyn InteractiveSession> {
        self.store.session(&self.place, &self.mode).await.unwrap()
    }

    /// The statement with the table's true name.
    #[must_use]
    pub fn of_table(&self, statement: &str) -> String {
        statement.replace("test", &self.table)
    }

    /// Runs a statement about `test` in one of the sessions.
    pub async fn run(&mut self, session: usize, statement: &str) -> Reply {
        let statement = self.of_table(statement);
        self.sessions[session].run(&statement).await
    }

    /// Runs a statement that must be done or read rows.
    #[track_caller]
    pub fn does(&mut self, session: usize, statement: &str) -> impl Future<Output = Reply> {
        let at = std::panic::Location::caller();
        async move {
            let reply = self.run(session, statement).await;
            assert!(
                matches!(reply, Reply::Done(_) | Reply::Rows(_)),
                "{at}: {}, {session}: {statement}: {reply:?}",
                self.mode.name
            );
            reply
        }
    }

    /// The session of this number.
    pub fn of(&mut self, session: usize) -> &mut dyn InteractiveSession {
        &mut *self.sessions[session]
    }

    /// All rows, read by a session of its own outside of a transaction.
    pub async fn rows(&self) -> Reply {
        let mut session = self.session().await;
        session.run(&self.of_table("select * from test")).await
    }

    /// Removes the table.
    pub async fn end(mut self) {
        for session in &mut self.sessions {
            session.run("rollback").await;
        }
        let gone = self.store.drop_table(&self.place, &self.table).await;
        gone.unwrap();
        match self.rows().await {
            Reply::Failed(_) => {}
            Reply::Rows(rows) if rows.is_empty() => {}
            other => panic!("{}: the table is still there: {other:?}", self.mode.name),
        }
        let again = self.store.drop_table(&self.place, &self.table).await;
        assert_eq!(again, Ok(()), "of a table that is not there");
    }
}

/// Makes a table in every mode; commits, rolls back, and fails.
pub fn every_mode<S: Store>(_: &Subject<S>, store: &S) {
    wait(async {
        let interactive = store.interactive().unwrap();
        let modes = interactive.modes().await.unwrap();
        let defaults = modes.iter().filter(|mode| mode.is_default).count();
        assert_eq!(defaults, 1, "modes that a new session has: {modes:?}");
        for mode in modes {
            commits_and_rolls_back(store, mode).await;
        }
    });
}

/// Makes a table in a mode; commits, rolls back, and fails.
pub async fn commits_and_rolls_back(store: &dyn Store, mode: Mode) {
    let name = mode.name.clone();
    let mut play = Play::begin(store, mode, 1).await;
    assert_eq!(play.rows().await, rows(&[(1, 10), (2, 20)]), "{name}");
    play.does(0, "rollback").await;
    play.does(0, "update test set value = 11 where id = 1").await;
    assert_eq!(play.rows().await, rows(&[(1, 11), (2, 20)]), "{name}: by itself");
    for statement in [
        "begin",
        "update test set value = value + 1 where id = 2",
        "insert into test (id, value) values (3, 30)",
        "commit",
    ] {
        play.does(0, statement).await;
    }
    assert_eq!(play.rows().await, rows(&[(1, 11), (2, 21), (3, 30)]), "{name}: committed");
    for statement in [
        "begin",
        "update test set value = 12 where id in (1, 2)",
        "delete from test where id = 3",
        "insert into test (id, value) values (4, 40)",
        "rollback",
    ] {
        play.does(0, statement).await;
    }
    assert_eq!(play.rows().await, rows(&[(1, 11), (2, 21), (3, 30)]), "{name}: rolled back");
    for statement in ["begin", "delete from test where id = 1", "commit"] {
        play.does(0, statement).await;
    }
    assert_eq!(play.rows().await, rows(&[(2, 21), (3, 30)]), "{name}: deleted");
    for wrong in ["selectt * from test", "update test set", "select * from other_table_than_that where"] {
        let reply = play.run(0, wrong).await;
        assert!(matches!(reply, Reply::Failed(_)), "{name}: {wrong}: {reply:?}");
    }
    let dropped = play.session().await;
    drop_in_transaction(dropped, &play.of_table("update test set value = 99 where id = 2")).await;
    assert_eq!(play.rows().await, rows(&[(2, 21), (3, 30)]), "{name}: a session that was dropped");
    assert_eq!(play.store.refuses(&play.mode, "select * from test where id in (1, 2)"), None, "{name}");
    play.end().await;
}

/// Drops a session whose transaction has not ended.
async fn drop_in_transaction(mut session: Box<dyn InteractiveSession>, write: &str) {
    for statement in ["begin", write] {
        let reply = session.run(statement).await;
        assert!(matches!(reply, Reply::Done(_)), "{statement}: {reply:?}");
    }
}

/// Both transactions read both rows, and each writes another. Returns what came of the second one's write and commit; both
/// are committed where a write skew happened.
pub async fn write_skew(play: &mut Play<'_>) -> [Reply; 4] {
    crossing(play, ["update test set value = 11 where id = 1", "update test set value = 21 where id = 2"])
        .await
}

/// Both transactions read both rows, and each writes the same one. Returns what came of each write and commit; both are
/// committed where an update was lost.
pub async fn lost_update(play: &mut Play<'_>) -> [Reply; 4] {
    crossing(play, ["update test set value = 11 where id = 1", "update test set value = 12 where id = 1"])
        .await
}

/// Each of two transactions reads the rows, writes and commits: reads first, writes then, and commits last. Returns the
/// replies to the writes and to the commits; the commit of one whose write was refused is a rollback.
async fn crossing(play: &mut Play<'_>, writes: [&str; 2]) -> [Reply; 4] {
    for session in 0..2 {
        play.does(session, "begin").await;
        play.does(session, "select * from test where id in (1, 2)").await;
    }
    let wrote = [play.run(0, writes[0]).await, play.run(1, writes[1]).await];
    let mut ended = Vec::new();
    for (session, reply) in wrote.iter().enumerate() {
        let end = if matches!(reply, Reply::Refused(_)) { "rollback" } else { "commit" };
        ended.push(play.run(session, end).await);
    }
    let ([first, second], [third, fourth]) = (wrote, <[Reply; 2]>::try_from(ended).unwrap());
    [first, second, third, fourth]
}

/// Asserts that these modes promise what they are called by.
pub async fn levels(store: &dyn InteractiveStore, expected: &[(&str, Option<Isolation>)]) {
    let modes = store.modes().await.unwrap();
    let modes: Vec<_> = modes.iter().map(|mode| (mode.name.as_str(), mode.level)).collect();
    assert_eq!(modes, expected);
}
