//! What the tests of adapters share: private servers, trials, and the checks that every store must pass.
//! Only ever a dev-dependency.
//!
//! A store's tests describe it once, as a [`Subject`]; each of their lines is then a check of
//! [`inventory`], [`records`], [`join`] or [`queue`] on it, and only what is special to the store is written
//! out. The checks take what a store has from its row of the matrix.
//!
//! Invariant: nothing is skipped in silence. A server that is not installed fails the test, in the
//! lab's words, unless the environment variable `ACIDTEST_TEST_WITHOUT` names its store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

mod case;
mod garbled;
pub mod inventory;
pub mod join;
pub mod operations;
mod private;
pub mod queue;
pub mod records;
mod relay;
mod steps;
mod subject;

pub use case::{InventoryRun, NAMESPACE, SEED, for_operations, for_time, to_the_end};
pub use garbled::{Change, changes, garble};
pub use private::{Private, wanted};
pub use relay::{Pace, Relay};
pub use steps::{until, with_more_time};
pub use subject::{Check, Gone, Subject, World, login};

/// Waits for an untimed step, on a runtime of its own.
pub fn wait<T>(task: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(task)
}
