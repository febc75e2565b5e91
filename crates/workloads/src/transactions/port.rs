//! The port: what a store must offer to run transactions at random.

#![warn(missing_docs)]

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    ops::Range,
};

use acidtest_engine::{Attempt, ClientTask};
use acidtest_model::{Isolation, StoreError, Task};
use serde::{Deserialize, Serialize};

use super::{Layout, Promise};
use crate::{LoadProgress, Place};

/// A step of a transaction. The answer to each is awaited before the next is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Reads a list, without a lock: `SELECT list FROM lists WHERE id = key`. Answered with [`Answers::list`].
    ReadList {
        /// Number of the list.
        key: u32,
    },
    /// Adds a value at the end of the list as it is in the store, in one statement: `UPDATE lists SET list = list || value`.
    /// The same transaction has read the list before.
    Append {
        /// Number of the list.
        key: u32,
        /// The value, at least 1 and below 2^63.
        value: u64,
    },
    /// Reads a register, without a lock. Answered with [`Answers::register`].
    ReadRegister {
        /// Number of the register.
        key: u32,
    },
    /// Overwrites a register. The same transaction has read it before.
    WriteRegister {
        /// Number of the register.
        key: u32,
        /// The value, at least 1 and below 2^63.
        value: u64,
    },
    /// Adds up all accounts, in one statement where there is one. Answered with [`Answers::total`]; a sum over fewer accounts than were
    /// loaded is none, since a row is missing.
    Total,
    /// Takes an amount from one account, and puts it on another: two statements, each relative to the balance in the store
    /// (`SET balance = balance - amount`). A balance may be negative.
    Transfer {
        /// The account that loses.
        from: u32,
        /// The account that gains, another one.
        to: u32,
        /// The amount, above 0.
        amount: i64,
    },
}

impl Step {
    /// Whether it writes.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Self::Append { .. } | Self::WriteRegister { .. } | Self::Transfer { .. })
    }
}

/// The kinds of rows. Each has a table in a store that has tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// A number, and a list of values.
    Lists,
    /// A number, and a value or none.
    Registers,
    /// A number, and a balance.
    Accounts,
}

impl Table {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Lists, Self::Registers, Self::Accounts];

    /// Its name within the trial.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lists => "lists",
            Self::Registers => "registers",
            Self::Accounts => "accounts",
        }
    }

    /// How many rows of this kind are loaded: their numbers begin with 0.
    #[must_use]
    pub fn rows(self, layout: &Layout) -> u32 {
        match self {
            Self::Lists => layout.lists,
            Self::Registers => layout.registers,
            Self::Accounts => layout.accounts,
        }
    }
}

/// What a row holds beside its number, as the store has it. Whether that makes sense in its table is looked at here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held<'a> {
    /// A list as an array.
    Array(Vec<i64>),
    /// A list as text: each value in decimal digits, with a comma before it.
    Text(&'a [u8]),
    /// A number, or none.
    Number(Option<i64>),
    /// Something else.
    Other,
}

impl Held<'_> {
    /// Adds the values of a list. Whether it is one.
    fn list(&self, values: &mut Vec<u64>) -> bool {
        match self {
            Held::Array(array) => array.iter().all(|value| {
                let value = u64::try_from(*value).ok();
                values.extend(value);
                value.is_some()
            }),
            Held::Text(text) => parse(text, values),
            Held::Number(_) | Held::Other => false,
        }
    }

    /// What a register holds, if it is one.
    fn register(&self) -> Result<Option<u64>, ()> {
        match self {
            Held::Number(value) => value.map(u64::try_from).transpose().map_err(drop),
            _ => Err(()),
        }
    }

    fn balance(&self) -> Option<i64> {
        if let Held::Number(balance) = self { *balance } else { None }
    }
}

/// The answer to one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The list's values, by their place among all values that were read.
    List(Range<usize>),
    /// What the register holds.
    Register(Option<u64>),
    /// The sum over all accounts.
    Total(i64),
    /// The write is done.
    Done,
    /// What was read is nothing that was ever written: no list of numbers, no number.
    Unreadable,
}

/// The answers to the steps of a transaction, in order, as far as it came. Its memory is reused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    steps: Vec<Answer>,
    values: Vec<u64>,
}

impl Answers {
    /// Forgets the last transaction.
    pub fn clear(&mut self) {
        self.steps.clear();
        self.values.clear();
    }

    /// The next step read a list of these values.
    pub fn list(&mut self, values: impl IntoIterator<Item = u64>) {
        let first = self.values.len();
        self.values.extend(values);
        self.steps.push(Answer::List(first..self.values.len()));
    }

    /// The next step read this in a row of a table; of the accounts, the sum over all of them.
    pub fn row(&mut self, table: Table, held: &Held<'_>) {
        let answer = match table {
            Table::Lists => {
                let first = self.values.len();
                if held.list(&mut self.values) {
                    Some(Answer::List(first..self.values.len()))
                } else {
                    self.values.truncate(first);
                    None
                }
            }
            Table::Registers => held.register().ok().map(Answer::Register),
            Table::Accounts => held.balance().map(Answer::Total),
        };
        self.steps.push(answer.unwrap_or(Answer::Unreadable));
    }

    /// The next step read a register; `None` if it holds nothing.
    pub fn register(&mut self, value: Option<u64>) {
        self.steps.push(Answer::Register(value));
    }

    /// The next step read the sum over all accounts.
    pub fn total(&mut self, total: i64) {
        self.steps.push(Answer::Total(total));
    }

    /// The next step wrote.
    pub fn done(&mut self) {
        self.steps.push(Answer::Done);
    }

    /// The next step read something that nobody writes: a text that is no list, or no number.
    pub fn unreadable(&mut self) {
        self.steps.push(Answer::Unreadable);
    }

    /// The answers so far.
    #[must_use]
    pub fn steps(&self) -> &[Answer] {
        &self.steps
    }

    /// The values of a list that was read.
    #[must_use]
    pub fn values(&self, list: Range<usize>) -> &[u64] {
        self.values.get(list).unwrap_or_default()
    }
}

/// Adds the values of a list that is kept as text. Whether it is one.
fn parse(text: &[u8], values: &mut Vec<u64>) -> bool {
    let Some((b',', rest)) = text.split_first() else { return text.is_empty() };
    rest.split(|byte| *byte == b',').all(|number| {
        let is_plain = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
        let number: Option<u64> =
            str::from_utf8(number).ok().filter(|_| is_plain).and_then(|number| number.parse().ok());
        values.extend(number);
        number.is_some()
    })
}

/// The demands of a trial on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// Isolation level of every transaction; `None` for the store's own default.
    pub isolation: Option<Isolation>,
    /// What is loaded.
    pub layout: Layout,
}

/// One client's connection: the timed operation.
pub trait Operations {
    /// Runs one transaction: begins, does the steps in their order, each when the one before it was answered, and commits.
    /// `answers` is empty when it is called, and has the answer to each step as soon as it has come: they count even if the
    /// future is dropped.
    ///
    /// - [`Attempt::Ok`]: the commit was acknowledged.
    /// - [`Attempt::Conflict`]: the store refused a statement or the commit because of other transactions (a serialization
    ///   failure, a deadlock, a lock that was not given in time). It was rolled back, so that it is proved to have had no effect.
    ///   The engine tries it again, as another transaction with other values.
    /// - [`Attempt::Refused`]: a row is missing that had been loaded; rolled back.
    /// - [`Attempt::Failed`]: another error, and it is proved to have had no effect.
    /// - [`Attempt::Unknown`]: it may have been committed. A connection that broke after the commit was sent, or that may
    ///   have been handed on to a proxy with it, is this. Before that the transaction cannot have been committed, and if the
    ///   store's own fault handling proves that, it is failed.
    fn transaction(&mut self, steps: &[Step], answers: &mut Answers) -> impl Future<Output = Attempt>;

    /// Looks whether the server still answers on the session that was opened, at the settings that were made then: not so
    /// behind a pooler that hands sessions on. Called at the end of a trial, after the last operation.
    ///
    /// # Errors
    /// What has changed, in words. A connection that does not answer proves nothing.
    fn check(&mut self) -> impl Future<Output = Result<(), String>> {
        async { Ok(()) }
    }
}

/// The statements of a transaction that has begun, of which its steps are made.
pub trait Rows {
    /// Reads the row of a key, without a lock; without a key the sum over all accounts. Tells `answers` what it holds, by
    /// [`Answers::row`].
    ///
    /// # Errors
    /// How the transaction ends: [`Attempt::Refused`] if there is no such row, or one of the accounts is missing.
    fn read(
        &mut self,
        table: Table,
        key: Option<u32>,
        answers: &mut Answers,
    ) -> impl Future<Output = Result<(), Attempt>>;

    /// Adds a value at the end of a list, overwrites a register with it, or adds it to a balance: to what is in the store.
    ///
    /// # Errors
    /// How the transaction ends: [`Attempt::Refused`] if there is no such row.
    fn write(&mut self, table: Table, key: u32, value: i64) -> impl Future<Output = Result<(), Attempt>>;

    /// Does steps, each when the one before it was answered.
    ///
    /// # Errors
    /// How the transaction ends whose step could not be done.
    fn steps(&mut self, steps: &[Step], answers: &mut Answers) -> impl Future<Output = Result<(), Attempt>> {
        async move {
            for step in steps {
                match *step {
                    Step::ReadList { key } => self.read(Table::Lists, Some(key), answers).await?,
                    Step::ReadRegister { key } => self.read(Table::Registers, Some(key), answers).await?,
                    Step::Total => self.read(Table::Accounts, None, answers).await?,
                    Step::Append { key, value } => {
                        self.write(Table::Lists, key, value.cast_signed()).await?;
                    }
                    Step::WriteRegister { key, value } => {
                        self.write(Table::Registers, key, value.cast_signed()).await?;
                    }
                    Step::Transfer { from, to, amount } => {
                        self.write(Table::Accounts, from, -amount).await?;
                        self.write(Table::Accounts, to, amount).await?;
                    }
                }
                if step.writes() {
                    answers.done();
                }
            }
            Ok(())
        }
    }
}

/// Opens connections for one client.
pub trait Connector {
    /// One client's connection, whose transactions follow each other.
    type Connection: Operations;

    /// Opens a connection, sets and reads back its isolation level, and prepares its statements.
    ///
    /// # Errors
    /// Why the connection could not be opened, in the store's words.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, String>>;
}

/// The final state, as the store reads it back, row by row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub(super) lists: BTreeMap<u32, Vec<u64>>,
    pub(super) registers: BTreeMap<u32, Option<u64>>,
    pub(super) accounts: BTreeMap<u32, i64>,
    /// Rows that are there, but hold something that nobody writes: nothing follows from them.
    garbled: BTreeSet<(Table, u32)>,
    /// How many rows make no sense.
    pub(super) unreadable: u64,
    pub(super) doubled: u64,
}

impl State {
    /// A list with its values.
    pub fn list(&mut self, key: u32, values: Vec<u64>) {
        self.doubled += u64::from(self.has(Table::Lists, key));
        self.lists.insert(key, values);
    }

    /// A row of a table with what it holds.
    pub fn row(&mut self, table: Table, key: u32, held: &Held<'_>) {
        let is_taken = match table {
            Table::Lists => {
                let mut values = Vec::new();
                held.list(&mut values).then(|| self.list(key, values))
            }
            Table::Registers => held.register().ok().map(|value| self.register(key, value)),
            Table::Accounts => held.balance().map(|balance| self.account(key, balance)),
        };
        if is_taken.is_none() {
            self.unreadable += 1;
            self.doubled += u64::from(self.has(table, key));
            self.garbled.insert((table, key));
        }
    }

    /// A register with what it holds.
    pub fn register(&mut self, key: u32, value: Option<u64>) {
        self.doubled += u64::from(self.has(Table::Registers, key));
        self.registers.insert(key, value);
    }

    /// An account with its balance.
    pub fn account(&mut self, key: u32, balance: i64) {
        self.doubled += u64::from(self.has(Table::Accounts, key));
        self.accounts.insert(key, balance);
    }

    /// A row of which not even the number makes sense.
    pub fn unreadable(&mut self) {
        self.unreadable += 1;
    }

    /// Whether a row was read back already.
    fn has(&self, table: Table, key: u32) -> bool {
        let is_readable = match table {
            Table::Lists => self.lists.contains_key(&key),
            Table::Registers => self.registers.contains_key(&key),
            Table::Accounts => self.accounts.contains_key(&key),
        };
        is_readable || self.garbled.contains(&(table, key))
    }

    /// How many of the rows that were loaded are there.
    pub(super) fn found(&self, layout: &Layout) -> u64 {
        let found = |table: Table| (0..table.rows(layout)).filter(|key| self.has(table, *key)).count() as u64;
        Table::ALL.into_iter().map(found).sum()
    }
}

/// The untimed steps before and after a trial.
pub trait TransactionsStore: Send + Sync {
    /// Loads empty lists, registers that hold nothing, and accounts with their balance, under the trial's own names
    /// ([`Table::name`]). Counts the rows in `loaded`. Columns: (id, list: empty text), (id, value: NULL), (id, balance). Tables that
    /// the layout has no rows of need not be made.
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>>;

    /// A task for the engine that runs one client of the trial: `transactions::task(connector, scenario)`, called in the
    /// store's crate.
    fn client(&self, place: &Place, wanted: &Requirements, scenario: super::Scenario) -> ClientTask;

    /// Serves one client of the trial in a process of the store's own, by [`serve`](super::serve); none for a store that is a server
    /// by itself.
    fn serve(&self, _place: &Place, _wanted: &Requirements) -> Option<crate::Served> {
        None
    }

    /// What the store's own documentation promises of transactions at this level, with the store's default read from the server:
    /// [`Promise::documented`].
    fn promise<'a>(&'a self, wanted: &'a Requirements) -> Task<'a, Result<Promise, StoreError>>;

    /// Reads back every list, register and account, as they are committed: at a level that sees nothing else, whatever the server's
    /// default. All accounts are read in one statement or one snapshot, so that their sum is exact: a transfer without an answer may be
    /// done meanwhile, but not between two of them. The rest need not be one snapshot.
    fn state<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        state: &'a mut State,
    ) -> Task<'a, Result<(), StoreError>>;

    /// Removes the trial's tables or keys.
    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_from_its_text_and_anything_else_is_no_list() {
        let mut answers = Answers::default();
        for _ in 0..2 {
            answers.clear();
            for text in ["", ",1", ",1,23", "1", ",", ",1,", ",+1", ",x", ",1,99999999999999999999"] {
                answers.row(Table::Lists, &Held::Text(text.as_bytes()));
            }
            answers.row(Table::Lists, &Held::Array(vec![7, 8]));
            answers.row(Table::Lists, &Held::Array(vec![7, -8]));
            answers.list([9]);
            let read: Vec<Option<&[u64]>> = answers
                .steps()
                .iter()
                .map(|answer| match answer {
                    Answer::List(list) => Some(answers.values(list.clone())),
                    _ => None,
                })
                .collect();
            let lists: [Option<&[u64]>; 4] = [Some(&[]), Some(&[1]), Some(&[1, 23]), None];
            let others: [Option<&[u64]>; 8] = [None, None, None, None, None, Some(&[7, 8]), None, Some(&[9])];
            assert_eq!(read, [&lists[..], &others].concat());
        }
    }

    #[test]
    fn what_a_register_and_an_account_hold_is_a_number() {
        use Answer::{Register, Total, Unreadable};
        let mut answers = Answers::default();
        let numbers = [Held::Number(None), Held::Number(Some(7)), Held::Number(Some(-7)), Held::Text(b"7")];
        for held in &numbers {
            answers.row(Table::Registers, held);
            answers.row(Table::Accounts, held);
            answers.row(Table::Lists, &Held::Number(Some(7)));
        }
        let read: Vec<&Answer> = answers.steps().iter().filter(|answer| **answer != Unreadable).collect();
        assert_eq!(read, [&Register(None), &Register(Some(7)), &Total(7), &Total(-7)]);
        assert_eq!(answers.steps().len(), 12);
    }

    #[test]
    fn a_row_that_makes_no_sense_is_there_and_holds_nothing() {
        let layout = Layout { lists: 2, registers: 1, accounts: 1, balance: 1 };
        let mut state = State::default();
        state.row(Table::Lists, 0, &Held::Text(b",1"));
        state.row(Table::Registers, 0, &Held::Number(Some(-1)));
        state.row(Table::Accounts, 0, &Held::Other);
        // nobody has loaded these
        state.row(Table::Lists, 2, &Held::Text(b""));
        state.row(Table::Accounts, 1, &Held::Other);
        assert_eq!((state.found(&layout), state.unreadable, state.doubled), (3, 3, 0));
        assert_eq!((state.lists.len(), state.registers.len(), state.accounts.len()), (2, 0, 0));
        state.row(Table::Lists, 0, &Held::Other);
        state.register(0, None);
        assert_eq!((state.found(&layout), state.unreadable, state.doubled), (3, 4, 2));
    }
}
