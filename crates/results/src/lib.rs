//! Plans and results: their formats, and what follows from the figures.
//!
//! A run's result is one JSON file that describes itself ([`RunResult`]); everything that is shown is made from it, so a file
//! shown later reads as the run did. The format's JSON Schema is made from the types ([`schema`]).
//!
//! Invariants: nothing here runs anything, knows a store, or lays out a table or a page.

mod answers;
mod capacity;
pub mod dimensions;
mod errors;
mod latency;
mod others;
mod plan;
mod price;
mod read;
mod result;
#[cfg(any(test, feature = "sample"))]
#[allow(
    clippy::assigning_clones,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "it is for tests"
)]
pub mod sample;
mod scalability;
mod served;
mod so_far;
mod staleness;
pub mod statistics;
mod steadiness;

pub use answers::Answers;
pub use capacity::{
    Capacity, Headroom, KneeFigures, Limit, Next, OperationTimes, RateEstimate, RateFigures, RateInterval,
    SpaceForecast, Used,
};
pub use dimensions::dimension_names;
pub use errors::{NotServed, silent_from};
pub use latency::{LatencyFigures, UnreadableHistogram, enough, is_enough};
pub(crate) use others::others_during;
pub use others::{OTHERS, disturbing};
pub use plan::{
    ArrivalKind, CELLS, CapacityPlan, Group, InSearch, LOCK_SERVICES, LONGEST_RANGE, OPTIONS, Plan,
    PlanOption, RefusedKind, TRIALS, Takes, conditions, no_group, number_range, option_of,
};
pub use price::{Price, Priceable, guarantees, seconds_seen, server_cpu};
pub use read::{UnreadableResult, read};
pub use result::{
    ArrivalFigures, CellResult, DataFigures, FORMAT, GaugeFigures, Harness, InjectionFigures,
    OperationFigures, PromotionFigures, RestartFigures, RoundId, RunResult, SEEN, SecondFigures, SpanFigures,
    StopFigures, TrialFacts, TrialResult, Windows, is_kept_by, schema,
};
pub use scalability::{Coefficient, FEWEST, Law, Sweep, sweeps};
pub use served::Outage;
pub use so_far::SoFar;
pub use staleness::{Behind, CellStaleness};
pub use statistics::{ENOUGH, Mean, Method, Ratio};
pub use steadiness::{Drift, SHORTEST, Steadiness};

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

/// The sum of counts; it stops at the largest number, as the counts in a file can be anything.
pub fn total(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}
