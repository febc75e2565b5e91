//! Checks histories of transactions for the anomalies that isolation levels forbid.
//!
//! Clients run transactions on lists, to which they append, and on registers, which they read before they overwrite them. Each
//! value is written once, so that whoever reads it tells whose write it saw. From what was read follows in which order
//! transactions must have come: ww (one replaced what the other wrote), wr (it read it), rw (it replaced what the other read),
//! the order of a session, and that of real time. A cycle of these is an anomaly, named by its edges as Adya does; the method is
//! that of Elle (Kingsbury and Alvaro 2020). Predicates are not tested.
//!
//! [`check`] reads a [`Source`], which is a [`History`] in memory or [`Files`] that [`Writer`]s wrote. It needs time and memory
//! in proportion to the number of operations, whatever their lists hold. The same history always gives the same [`Report`].
//!
//! What a store's documentation promises is decided elsewhere; [`Anomaly::forbidden_by`] says what the definitions forbid.
//!
//! ```
//! use acidtest_history::{Anomaly, History, Operation, Order, Outcome, Shape, Transaction, check};
//!
//! // each reads what the other is about to change: write skew
//! let transaction = |session, read, append, value| Transaction {
//!     session,
//!     sequence: 0,
//!     start: 0,
//!     end: Some(1_000),
//!     outcome: Outcome::Committed,
//!     operations: vec![
//!         Operation::ReadList { key: read, values: vec![] },
//!         Operation::Append { key: append, value },
//!     ],
//!     total: None,
//! };
//! let transactions = vec![transaction(0, 1, 2, 10), transaction(1, 2, 1, 20)];
//! let report = check(&mut History { transactions, ..History::default() }, &[])?;
//! assert_eq!(report.committed, 2);
//! assert_eq!(report.findings[0].anomaly, Anomaly::Cycle(Shape::G2Item, Order::Data));
//! assert_eq!(report.findings[0].count, 1);
//! assert!(report.findings[0].example.text().contains("So T1 must come before T2, and T2 before T1."));
//! # Ok::<(), acidtest_history::Error>(())
//! ```
//!
//! Invariants: no store, no clock, no random number, no thread. Doubt never becomes an accusation: `observed.rs` has the rules.

#![warn(missing_docs)]

mod anomaly;
mod check;
mod cycles;
mod error;
mod example;
mod file;
mod graph;
mod hash;
mod history;
mod interval;
mod observed;
mod picture;
mod varint;
mod witness;

pub use anomaly::{Anomaly, Guarantee, Level, Order, Shape};
pub use check::{Disruption, Finding, Report, check};
pub use error::Error;
pub use example::{Arrow, Example, Shown};
pub use file::{Files, Limits, MAGIC, VERSION, Writer};
pub use history::{History, Operation, Outcome, Source, Total, Transaction};
pub use interval::poisson_interval;
