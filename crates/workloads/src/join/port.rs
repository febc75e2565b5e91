//! The port: what a store must be able to do to carry the join.

use std::{collections::BTreeSet, future::Future};

use acidtest_engine::{Attempt, ClientTask};
use acidtest_model::{StoreError, Task};

use super::{Ext, Scenario};
use crate::{LoadProgress, Place, records::Layout};

/// Which table the query names first. The planner may turn it round; its plan says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableOrder {
    /// `FROM ext JOIN usertable`.
    ExtFirst,
    /// `FROM usertable JOIN ext`.
    UsertableFirst,
}

impl TableOrder {
    /// Both, in the order of their operations' kinds.
    pub const ALL: [Self; 2] = [Self::ExtFirst, Self::UsertableFirst];

    /// Both tables as SQL joins them, under the names `ext` and `usertable`.
    #[must_use]
    pub fn joined(self, ext: &str, usertable: &str) -> String {
        let (ext, usertable) = (format!("{ext} AS ext"), format!("{usertable} AS usertable"));
        match self {
            Self::ExtFirst => format!("{ext} JOIN {usertable}"),
            Self::UsertableFirst => format!("{usertable} JOIN {ext}"),
        }
    }
}

/// The most rows that a join can be expected to find: those of `ext`.
pub(super) const ROWS: usize = 100_000;

/// What a join found. Its room is used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    keys: Vec<String>,
}

impl Joined {
    /// Forgets the last answer.
    pub fn clear(&mut self) {
        self.keys.clear();
    }

    /// A row that was found, by its key. Those beyond any that may be expected are not kept: it is wrong already.
    pub fn row(&mut self, key: &str) {
        if self.keys.len() <= ROWS {
            self.keys.push(key.to_owned());
        }
    }

    /// Whether these are the rows, each once.
    pub(crate) fn is(&self, expected: &BTreeSet<String>) -> bool {
        let once: BTreeSet<&String> = self.keys.iter().collect();
        self.keys.len() == expected.len() && once.into_iter().eq(expected)
    }
}

/// One client's connection: the timed operations.
pub trait Operations {
    /// `SELECT` of all columns of both tables, joined on the key, `WHERE value =`; `joined` is empty when
    /// it is called and takes each row's key.
    fn join(&mut self, order: TableOrder, joined: &mut Joined) -> impl Future<Output = Attempt>;
}

/// Opens connections for one client.
pub trait Connector {
    /// What it opens.
    type Connection: Operations;

    /// Opens a connection and prepares its statements.
    ///
    /// # Errors
    /// Why it could not, in the store's words.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, String>>;
}

/// The untimed edge: what is done before and after a trial.
pub trait JoinStore: Send + Sync {
    /// Lays in `usertable`, as the records workload does, and `ext`, with its key as primary key; gathers
    /// what the planner wants to know of them.
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

    /// Joins once, on a connection of its own; the caller has the clock. Connecting and preparing come
    /// before `begin` is called, and only the query after it.
    fn first<'a>(
        &'a self,
        place: &'a Place,
        order: TableOrder,
        value: u8,
        begin: &'a mut (dyn FnMut() + 'a),
    ) -> Task<'a, Result<(), StoreError>>;

    /// One client of the trial: `join::task(connector, scenario)`, called in the store's crate.
    fn client(&self, place: &Place, value: u8, scenario: Scenario) -> ClientTask;

    /// Removes the trial's objects.
    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_right_if_each_is_there_once() {
        let expected: BTreeSet<String> = ["a", "b"].map(str::to_owned).into();
        let is = |rows: &[&str]| {
            let mut joined = Joined::default();
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
        let mut joined = Joined::default();
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
