//! Results: their format, their figures, and how they are shown.
//!
//! A run's result is one JSON file that describes itself ([`RunResult`]); everything that is printed is
//! made from it, so a file shown later reads as the run did. The format's JSON Schema is made from the
//! types ([`schema`]).
//!
//! Invariants: nothing here runs anything or knows a store. No throughput is shown without its
//! verdict beside it, and no ratio without its interval or the word that it has none.

mod answers;
mod capacity;
pub mod compare;
mod conclusion;
mod csv;
pub mod dimensions;
mod errors;
mod figure;
#[cfg(test)]
mod garbled;
mod headline;
mod latency;
mod markdown;
mod notes;
mod page;
mod plan;
mod price;
mod read;
mod result;
#[cfg(test)]
mod sample;
mod scalability;
mod served;
mod so_far;
mod statistics;
mod steadiness;
mod table;
mod tables;
mod terminal;
mod waiting;

pub use acidtest_model::count;
pub use capacity::{
    Capacity, Headroom, KneeFigures, Limit, Next, OperationTimes, RateEstimate, RateFigures, RateInterval,
    Room, Used,
};
pub use csv::{CsvError, csv};
pub use errors::silent_from;
pub use figure::{bytes, lasting, nanoseconds, rate};
pub use headline::clients;
pub use latency::{LatencyFigures, UnreadableHistogram, is_enough};
pub use markdown::markdown;
pub use notes::OTHERS;
pub use page::{NamedResult, STYLE, findings, page};
pub use plan::{
    ArrivalKind, CELLS, CapacityPlan, Group, LOCK_SERVICES, LONGEST_RANGE, OPTIONS, Plan, PlanOption,
    RefusedKind, TRIALS, Takes, no_group, number_range, option_of,
};
pub use price::Price;
pub use read::{UnreadableResult, read};
pub use result::{
    ArrivalFigures, CellResult, DataFigures, FORMAT, GaugeFigures, Harness, InjectionFigures,
    OperationFigures, RestartFigures, RunResult, SecondFigures, SpanFigures, StopFigures, TrialFacts,
    TrialResult, Windows, schema,
};
pub use scalability::{Coefficient, FEWEST, Law, Sweep, sweeps};
pub use so_far::SoFar;
pub use statistics::{ENOUGH, Mean, Method, Ratio};
pub use steadiness::{Drift, SHORTEST, Steadiness};
pub use table::{Entry, Style, Table, Tone, Worth, wrapped};
pub use terminal::render;

/// Each value once, in the order in which they first occur.
#[must_use]
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for value in values {
        if !once.contains(&value) {
            once.push(value);
        }
    }
    once
}
