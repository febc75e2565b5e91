//! Results: their format, their figures, and how they are shown.
//!
//! A run's result is one JSON file that describes itself ([`RunResult`]); everything that is printed is
//! made from it, so a file shown later reads as the run did. The format's JSON Schema is made from the
//! types ([`schema`]).
//!
//! Invariants: nothing here runs anything or knows a store. No throughput is shown without its
//! verdict beside it, and no ratio without its interval or the word that it has none.

mod figure;
mod latency;
mod plan;
mod price;
mod result;
mod table;

pub use figure::{bytes, count, nanoseconds, rate};
pub use latency::{LatencyFigures, UnreadableHistogram};
pub use plan::{ArrivalKind, Plan, RefusedKind, Span};
pub use price::{Price, Ratio};
pub use result::{
    ArrivedFigures, CellResult, FORMAT, Harness, OperationFigures, RunResult, SecondFigures, StopFigures,
    TrialResult, schema,
};
pub use table::{RULED, Style, render};
