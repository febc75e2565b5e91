//! Drives clients on a schedule and records what happened.
//!
//! A [`Client`] is one logical user: it draws an operation, attempts it, and accounts for how it
//! ended. The engine decides when it starts, times it, tries it again where that is due, retires
//! connections whose last answer never came, and records service and response times per operation
//! and outcome in histograms of fixed size.
//!
//! Clients run on few operating-system threads, each with a current-thread runtime of its own and
//! a recorder of its own; the recorders are merged once a second. Nothing is shared on the path of
//! an operation but the clock and a stop flag that is only read.
//!
//! Invariants: the engine knows no store and no workload. It never resolves an unanswered operation:
//! a timeout is [`Outcome::Unknown`] and the connection is retired. Warm-up and measurement are
//! separated by a gate that every client passes with nothing in flight, so nothing leaks across.

mod client;
mod clock;
mod control;
mod gate;
mod load;
mod measurement;
mod outcome;
mod pacer;
mod pipeline;
mod recorder;
mod seat;
mod sleeper;
mod trial;

pub use client::{Client, ClientTask, Completion, Pipeline};
pub use control::Stop;
pub use load::{Arrivals, Extent, Load, OnRefused};
pub use measurement::{Arrived, Latency, Measurement, OperationStats, Second, SecondCounts, SpanStats};
pub use outcome::{Attempt, Fault, Outcome};
pub use seat::Seat;
pub use trial::{EngineError, Progress, Trial};

/// Nanosecond histogram: 3 significant digits from 1 ns, growing as needed, nothing clipped.
pub type Histogram = hdrhistogram::Histogram<u64>;
