//! How results are shown: on a terminal, in Markdown, as a page, as CSV, and two beside each other.
//!
//! Everything that is shown is made from a [`RunResult`](acidtest_results::RunResult), so a file shown later reads as the run did.
//!
//! Invariants: nothing here runs anything or knows a store. No throughput is shown without its
//! verdict beside it, and no ratio without its interval or the word that it has none.

pub mod anomalies;
mod capacity;
pub mod compare;
mod conclusion;
mod csv;
#[cfg(test)]
mod garbled;
#[cfg(test)]
mod golden;
mod headline;
mod histories;
mod markdown;
mod not_served;
mod notes;
mod page;
mod table;
mod tables;
mod terminal;
mod waiting;

pub use csv::{CsvError, csv};
pub use headline::clients;
pub use markdown::markdown;
pub use page::{NamedAnomalies, NamedResult, STYLE, findings, page};
pub use table::{Entry, Priority, Style, Table, Tone, wrapped};
pub use terminal::render;
