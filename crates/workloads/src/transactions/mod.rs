//! Transactions at random: a few clients, a few keys, and a search for the anomalies that isolation levels forbid.
//!
//! A transaction begins, reads and writes one statement after the other, each a round trip as an application makes it, and
//! commits. It reads lists and appends to them, reads registers and overwrites them, moves money between the accounts of a
//! bank, and adds up all of them. Every value is written once. No lock is taken: the isolation level alone protects.

mod audit;
mod client;
mod ledger;
mod lost;
mod parameters;
mod port;
mod promise;
mod workload;

pub use crate::hosted::transactions::serve;
pub use audit::{ANOMALIES, CHECKED, Final, LEFT_OUT, audit, interval};
pub use client::{OPERATIONS, Scenario, task};
pub use ledger::Ledger;
pub use parameters::{Layout, Mix, Parameters};
pub use port::{
    Answer, Answers, Connector, Held, Operations, Requirements, Rows, State, Step, Table, TransactionsStore,
};
pub use promise::Promise;
pub use workload::{KIND, Transactions};
