//! The port: the operations that a store must offer to run the join.

#![warn(missing_docs)]

use std::{collections::BTreeSet, future::Future, time::Duration};

use acidtest_engine::{Attempt, ClientTask};
use acidtest_model::{StoreError, Task};

use serde::{Deserialize, Serialize};

use super::{Ext, Scenario};
use crate::{LoadProgress, Place, Reply, Served, records::Layout};

/// The table that the query names first. The store's planner may change the order; its plan shows that. For a store in
/// another process it is the whole operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableOrder {
    /// `FROM ext JOIN usertable`.
    ExtFirst,
    /// `FROM usertable JOIN ext`.
    UsertableFirst,
}

impl TableOrder {
    /// Both orders, in the order of their operations' kinds.
    pub const ALL: [Self; 2] = [Self::ExtFirst, Self::UsertableFirst];

    pub(crate) async fn perform(self, connection: &mut impl Operations) -> Reply<JoinAnswer> {
        let mut joined = JoinAnswer::default();
        let attempt = connection.join(self, &mut joined).await;
        Reply::new(attempt, joined, Duration::ZERO)
    }

    /// Both tables as the `FROM` clause joins them, under the names `ext` and `usertable`.
    #[must_use]
    pub fn joined(self, ext: &str, usertable: &str) -> String {
        let (ext, usertable) = (format!("{ext} AS ext"), format!("{usertable} AS usertable"));
        match self {
            Self::ExtFirst => format!("{ext} JOIN {usertable}"),
            Self::UsertableFirst => format!("{usertable} JOIN {ext}"),
        }
    }
}

/// The most rows that a join can be expected to find: one for each row of `ext`.
pub(super) const ROWS: usize = 100_000;

/// The rows that a join found. Its memory is reused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinAnswer {
    keys: Vec<String>,
}

impl JoinAnswer {
    /// Forgets the rows of the last join.
    pub fn clear(&mut self) {
        self.keys.clear();
    }

    /// Adds a row that was found, by its key. At most one row more than the largest correct answer is kept: the
    /// answer is wrong by then.
    pub fn row(&mut self, key: &str) {
        if self.keys.len() <= ROWS {
            self.keys.push(key.to_owned());
        }
    }

    /// Whether the rows are exactly the expected ones, each once.
    pub(crate) fn is(&self, expected: &BTreeSet<String>) -> bool {
        let once: BTreeSet<&String> = self.keys.iter().collect();
        self.keys.len() == expected.len() && once.into_iter().eq(expected)
    }
}

/// One client's connection: the timed operations.
pub trait Operations {
    /// `SELECT` of all columns of both tables, joined on the key, `WHERE value =`; `joined` is empty when
    /// it is called and takes each row's key.
    fn join(&mut self, order: TableOrder, joined: &mut JoinAnswer) -> impl Future<Output = Attempt>;

    /// Looks whether the server still answers on the session that was opened, at the settings that were made then: not so
    /// behind a pooler that hands sessions on. Called at the end of a trial, after the last operation.
    ///
    /// # Errors
    /// What has changed, in words. A connection that does not answer proves nothing.
    fn check(&mut self) -> impl Future<Output = Result<(), String>> {
        async { Ok(()) }
    }
}

/// Opens connections for one client.
pub trait Connector {
    /// One client's connection, whose operations follow each other.
    type Connection: Operations;

    /// Opens a connection and prepares its statements.
    ///
    /// # Errors
    /// Why the connection could not be opened, in the store's words.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, String>>;
}

/// The untimed steps before and after a trial.
pub trait JoinStore: Send + Sync {
    /// Loads `usertable`, as the records workload does, and `ext`, with its key as primary key; gathers the
    /// statistics that the planner needs of them.
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        ext: &'a [Ext],
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>>;

    /// The store's plan of the join, in its own words.
    fn explain<'a>(
        &'a self,
        place: &'a Place,
        order: TableOrder,
        value: u8,
    ) -> Task<'a, Result<String, StoreError>>;

    /// Joins once, on a connection of its own. The caller measures the time: connecting and preparing come before
    /// `begin` is called, and only the query comes after it.
    fn first<'a>(
        &'a self,
        place: &'a Place,
        order: TableOrder,
        value: u8,
        begin: &'a mut (dyn FnMut() + 'a),
    ) -> Task<'a, Result<(), StoreError>>;

    /// A task for the engine that runs one client of the trial: `join::task(connector, scenario)`, called in the
    /// store's crate.
    fn client(&self, place: &Place, value: u8, scenario: Scenario) -> ClientTask;

    /// Serves one client of the trial in a process of the store's own, by [`serve`](super::serve); none for a store that is a server
    /// by itself.
    fn serve(&self, _place: &Place, _value: u8) -> Option<Served> {
        None
    }

    /// Removes the trial's tables.
    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_right_if_each_is_there_once() {
        let expected: BTreeSet<String> = ["a", "b"].map(str::to_owned).into();
        let is = |rows: &[&str]| {
            let mut joined = JoinAnswer::default();
            for row in rows {
                joined.row(row);
            }
            joined.is(&expected)
        };
        assert!(is(&["a", "b"]) && is(&["b", "a"]));
        for wrong in [&["a"][..], &["a", "a"], &["a", "b", "b"], &["a", "c"], &[]] {
            assert!(!is(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn rows_without_end_take_no_memory_without_end() {
        let most: BTreeSet<String> = (0..ROWS).map(|row| row.to_string()).collect();
        let mut joined = JoinAnswer::default();
        for key in &most {
            joined.row(key);
        }
        assert!(joined.is(&most));
        for _ in 0..1000 {
            joined.row("0");
        }
        assert!(!joined.is(&most) && joined.keys.len() == ROWS + 1);
    }
}
