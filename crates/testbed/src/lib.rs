//! Shared by the tests of adapters: private servers, trials, and the checks that every store must pass. Only tests and
//! `bench/programs` depend on it.
//!
//! A store's tests describe the store once, as a [`Subject`], and then call the checks of [`inventory`], [`records`],
//! [`join`], [`queue`] and [`parcels`] on it. Only checks that are special to the store are written out there. The checks learn
//! from the store's row of the matrix which lock modes, durability levels and settings it offers.
//!
//! Invariant: no test is skipped silently. A server that is not installed fails the test with the lab's error, unless
//! the environment variable `ACIDTEST_TEST_WITHOUT` names its store.

#![warn(missing_docs)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

pub mod at_random;
mod case;
mod crash;
mod garbled;
pub mod interactive;
pub mod inventory;
pub mod join;
pub mod operations;
pub mod parcels;
mod played;
mod pooler;
mod private;
pub mod queue;
mod rabbitmq;
pub mod records;
mod relay;
mod rewriting;
mod shared;
pub mod step_by_step;
mod steps;
mod subject;
mod unix_socket;

pub use case::{InventoryRun, NAMESPACE, SEED, for_operations, for_time, to_the_end};
pub use garbled::{Change, changes, garble};
pub use played::Played;
pub use pooler::{Multiplexer, PgBouncer};
pub use private::{Private, left_out, wanted};
pub use rabbitmq::control;
pub use relay::{Pace, Relay};
pub use rewriting::RewritingPool;
pub use shared::Shared;
pub use steps::{until, with_more_time};
pub use subject::{AfterRemoval, Check, Subject, World, login};
pub use unix_socket::{OnSocket, is_whole_by_a_socket};

/// Runs a task that is not measured to its end, on a runtime of its own.
pub fn wait<T>(task: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(task)
}
