//! SQLite, on files of the tests' own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;
mod interactive;
mod inventory;
mod join;
mod parcels;
mod queue;
mod records;
mod transactions;
