//! fjall, in folders of the tests' own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;
mod interactive;
mod inventory;
mod killed;
mod parcels;
mod records;
mod transactions;
