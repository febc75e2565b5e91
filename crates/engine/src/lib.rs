//! Drives clients on a schedule and records how their operations ended and how long they took.
//!
//! A [`Client`] is one logical user: it draws an operation, attempts it, and accounts for how it
//! ended. The engine decides when an operation starts, times it, retries it where the load says so, retires
//! connections that did not answer in time, and records service and response times per operation and outcome in
//! histograms of fixed size.
//!
//! Clients run on few operating-system threads, each with a current-thread runtime of its own and
//! a recorder of its own; the recorders are merged once a second. The only things shared on the path of an
//! operation are the clock and a stop flag that is only read.
//!
//! Invariants: the engine knows no store and no workload. It never guesses how an unanswered operation ended: a
//! timeout is [`Outcome::Unknown`] and the connection is retired. Warm-up and measurement are separated by a gate
//! that every client passes with nothing in flight, so nothing from the warm-up is measured.

#![warn(missing_docs)]

mod alone;
mod batch;
mod client;
mod client_driver;
mod clock;
mod control;
mod gate;
mod gather;
mod load;
mod measurement;
mod message;
mod outcome;
mod pacer;
mod part;
mod pipeline;
mod recorder;
mod shared;
mod sleeper;
mod trial;

pub use alone::may_block;
pub use batch::{EndTimes, RecordedBatch, histogram};
pub use client::{Client, ClientTask, Completion, Pipeline};
pub use client_driver::ClientDriver;
pub use control::Stop;
pub use load::{Arrivals, Extent, Load, OnRefused, Phase};
pub use measurement::{ArrivalCounts, Latency, Measurement, OperationStats, Second, SecondCounts, SpanStats};
pub use message::{Instruction, News, Report};
pub use outcome::{Attempt, Fault, Outcome};
pub use part::Part;
pub use trial::{EngineError, Progress, SoFar, Trial};

/// Histogram of nanoseconds: 3 significant digits from 1 ns up, with no upper limit, because it grows when needed.
pub type Histogram = hdrhistogram::Histogram<u64>;
