//! The search for a capacity, against stores in virtual time.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod evaluate;
mod model;
mod search;
