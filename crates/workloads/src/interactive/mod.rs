//! Interactive transactions: sessions of a store that run one statement after the other, each when it is told to. Scripts of
//! interleavings (`acidtest anomalies`) run on them, to see which anomalies an isolation level allows. Nothing of it is timed.

#![warn(missing_docs)]

mod statement;

use std::{collections::BTreeSet, time::Duration};

use acidtest_model::{Isolation, StoreError, Task};

use crate::Place;
pub use statement::{Comparison, Condition, Select, Statement, Update};

/// How a store protects a transaction from others: an isolation level, a variant of one, or what a store without levels has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Its name in tables, unique for the store: the level, with what else is set, as in `repeatable read, snapshot isolation`.
    pub name: String,
    /// The isolation level; none for what is no level, as Redis's `WATCH`.
    pub level: Option<Isolation>,
    /// The settings or commands that make it.
    pub how: &'static str,
    /// Whether it is what a new session of this server has, so that users who set nothing have it.
    pub is_default: bool,
}

/// A table that a script's statements are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The name that statements use.
    pub name: String,
    /// Names and types of its columns, as in SQL: `id int primary key, value int`.
    pub columns: String,
    /// Its rows at the start, each with a literal of SQL for every column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Its rows by id and value, for a store that keeps nothing else, and understands no statements but [`Statement`]s.
    ///
    /// # Errors
    /// It has other columns, or a name that no [`Statement`] has: the reason.
    pub fn pairs(&self) -> Result<Vec<(i64, i64)>, String> {
        let parsed = Statement::parse(&format!("select * from {}", self.name));
        if !matches!(parsed, Ok(Statement::Select(select)) if select.table == self.name) {
            return Err(format!(
                "\"{}\" is no name for a table here: small letters, digits and underscores",
                self.name
            ));
        }
        let columns: Vec<_> =
            self.columns.split(',').map(|column| column.split_whitespace().next()).collect();
        if columns != [Some("id"), Some("value")] {
            let columns = &self.columns;
            return Err(format!("its tables have the columns id and value, and not \"{columns}\""));
        }
        let number = |text: &String| text.trim().parse().ok();
        let pair = |row: &Vec<String>| match row.as_slice() {
            [id, value] => number(id).zip(number(value)),
            _ => None,
        };
        let found = |row| pair(row).ok_or_else(|| format!("{row:?} is no row of two whole numbers"));
        self.rows.iter().map(found).collect()
    }
}

/// What came of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The rows that were read, each value as text, `NULL` for none.
    Rows(Vec<Vec<String>>),
    /// It is done; how many rows it changed, where it changes any.
    Done(Option<u64>),
    /// The store refuses it because of other transactions: a conflict, a deadlock, a lock that is not given, a constraint. The
    /// statement had no effect, and the transaction does not go on.
    Refused(String),
    /// It failed for another reason, such as an error in the statement. It proves nothing about isolation.
    Failed(String),
    /// Nobody answered, or the connection is gone: whether it took effect is unknown.
    Unknown(String),
}

impl Reply {
    /// The rows of a table of ids and values.
    #[must_use]
    pub fn pairs(rows: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let texts = |(id, value): (i64, i64)| vec![id.to_string(), value.to_string()];
        Self::Rows(rows.into_iter().map(texts).collect())
    }
}

/// The port of stores with interactive transactions.
pub trait InteractiveStore: Send + Sync {
    /// The modes that it has, from the weakest to the strongest.
    fn modes(&self) -> Task<'_, Result<Vec<Mode>, StoreError>>;

    /// Why it cannot run a script's statement in this mode; none if it can. A store that speaks SQL runs any, and its server says
    /// what it thinks of it.
    fn refuses(&self, mode: &Mode, statement: &str) -> Option<String>;

    /// Whether transactions on one table do not hinder those on another, so that several scripts can run at a time.
    fn is_concurrent(&self) -> bool;

    /// Makes a table with its rows, in the place. Returns the name that stands for its own in statements.
    fn make_table<'a>(&'a self, place: &'a Place, table: &'a Table) -> Task<'a, Result<String, StoreError>>;

    /// Removes a table, by the name that [`make_table`](Self::make_table) returned. One that does not exist is no error.
    fn drop_table<'a>(&'a self, place: &'a Place, name: &'a str) -> Task<'a, Result<(), StoreError>>;

    /// Opens a session, whose transactions have this mode.
    ///
    /// # Errors
    /// It cannot be opened, or the store says that its transactions have another level.
    fn session<'a>(
        &'a self,
        place: &'a Place,
        mode: &'a Mode,
    ) -> Task<'a, Result<Box<dyn InteractiveSession>, StoreError>>;

    /// Who tells which sessions wait for others; none for a store in which a statement never waits: it returns at once, done or
    /// refused.
    fn lock_monitor(&self) -> Task<'_, Result<Option<Box<dyn LockMonitor>>, StoreError>> {
        Box::pin(async { Ok(None) })
    }
}

/// One session of a store. Dropping it rolls back its transaction.
pub trait InteractiveSession: Send {
    /// The number by which a [`LockMonitor`] knows it; of no meaning for a store that has none.
    fn id(&self) -> u64 {
        0
    }

    /// The isolation level as the store tells it; empty where there is none.
    #[expect(clippy::unnecessary_literal_bound, reason = "stores that have one return what they have read")]
    fn level(&self) -> &str {
        ""
    }

    /// Runs a statement. `begin`, `commit` and `rollback` are understood by each store.
    fn run<'a>(&'a mut self, statement: &'a str) -> Task<'a, Reply>;

    /// The replies to earlier statements of this transaction that came only with the last statement, each with the number of
    /// its statement in the transaction, of which `begin` is 0. Each is told once. None where every statement is answered in
    /// its turn; a store that carries out a whole transaction at its commit has answered `Done(None)` before.
    fn late(&mut self) -> Vec<(usize, Reply)> {
        Vec::new()
    }
}

/// Tells which sessions wait for others' locks, by the server's own word.
pub trait LockMonitor: Send {
    /// The least time between two looks: servers that keep their answer for a while would repeat it.
    fn interval(&self) -> Duration;

    /// The sessions that wait now; none if the server does not tell this user, with the reason.
    fn waiting(&mut self) -> Task<'_, Result<BTreeSet<u64>, String>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str, columns: &str, rows: &[&[&str]]) -> Table {
        let rows = rows.iter().map(|row| row.iter().map(ToString::to_string).collect()).collect();
        Table { name: name.to_owned(), columns: columns.to_owned(), rows }
    }

    #[test]
    fn a_table_of_two_numbers_is_read_as_pairs() {
        let pairs = table("test", "id int primary key, value int", &[&["1", "10"], &["2", "-20"]]).pairs();
        assert_eq!(pairs, Ok(vec![(1, 10), (2, -20)]));
    }

    #[test]
    fn a_table_that_is_no_table_of_pairs_is_refused_with_the_reason() {
        for (refused, why) in [
            (table("Test", "id int, value int", &[]), "no name for a table"),
            (table("a b", "id int, value int", &[]), "no name for a table"),
            (table("test", "id int, day date", &[]), "not \"id int, day date\""),
            (table("test", "id int, value int", &[&["1", "'x'"]]), "no row of two whole numbers"),
            (table("test", "id int, value int", &[&["1"]]), "no row of two whole numbers"),
        ] {
            let said = refused.pairs().unwrap_err();
            assert!(said.contains(why), "{refused:?}: {said}");
        }
    }
}
