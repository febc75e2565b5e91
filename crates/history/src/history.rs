//! What clients remember of their transactions.

use crate::Error;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The store acknowledged the commit.
    Committed,
    /// It is proved to have had no effect.
    Aborted,
    /// It may or may not have happened, or may still happen.
    Unknown,
}

/// An operation of a transaction that was answered, or, if it writes, was sent.
///
/// Lists and registers are apart: list 7 and register 7 are two objects. Lists start empty, and registers hold nothing.
/// A value is written at most once in a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The value was added at the end of the list as it is *in the store*, in one step (such as `SET list = list || value`).
    /// Where a client writes the whole list back, updates can be lost without a fault of the store, and the checks below
    /// hold only if the store promises that none is lost; otherwise use registers.
    Append {
        /// Number of the list.
        key: u32,
        /// The value, which tells its transaction.
        value: u64,
    },
    /// The whole list was read.
    ReadList {
        /// Number of the list.
        key: u32,
        /// What it held, from the first value to the last.
        values: Vec<u64>,
    },
    /// The register was overwritten.
    Write {
        /// Number of the register.
        key: u32,
        /// The value, which tells its transaction.
        value: u64,
    },
    /// The register was read.
    ReadRegister {
        /// Number of the register.
        key: u32,
        /// What it held; `None` if it was never written.
        value: Option<u64>,
    },
    /// Money was moved. Only examples show it: what accounts hold is not followed.
    Transfer {
        /// Number of the account that it was taken from.
        from: u32,
        /// Number of the account that it was put on.
        to: u32,
        /// How much.
        amount: i64,
    },
}

/// The sum over a bank's accounts, among which transfers move money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Total {
    /// What the transaction read.
    pub observed: i64,
    /// What transfers never change.
    pub expected: i64,
    /// Whether the transaction had moved money itself before it read this, and had read something before that: its snapshot, if
    /// it has one, may be older than its transfer.
    pub after_write: bool,
}

/// A transaction as its client remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Number of the session: what the store sees as one connection. A client that connects again has another.
    pub session: u32,
    /// Position in its session, in the order in which transactions started.
    pub sequence: u32,
    /// When its first operation was sent (nanoseconds on a monotonic clock that all sessions share).
    pub start: u64,
    /// When its end was answered, on the same clock; `None` if it never was.
    pub end: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// Its operations in order, as far as it came.
    pub operations: Vec<Operation>,
    /// The bank's total, if it read one.
    pub total: Option<Total>,
}

/// A history that can be read several times, always in the same order. The checker reads it up to five times, so that it need
/// not keep it in memory.
pub trait Source {
    /// Hands on each transaction.
    ///
    /// # Errors
    /// The history cannot be read.
    fn pass(&mut self, each: &mut dyn FnMut(&Transaction)) -> Result<(), Error>;

    /// Transactions that were left out because the history had reached its limit, as known after a [`pass`](Self::pass).
    fn left_out(&self) -> u64;
}

/// A history in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Its transactions, in any order.
    pub transactions: Vec<Transaction>,
    /// How many it lacks.
    pub left_out: u64,
}

impl Source for History {
    fn pass(&mut self, each: &mut dyn FnMut(&Transaction)) -> Result<(), Error> {
        self.transactions.iter().for_each(each);
        Ok(())
    }

    fn left_out(&self) -> u64 {
        self.left_out
    }
}
