//! PostgreSQL, on real servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod cluster;
mod common;
mod inventory;
mod join;
mod parcels;
mod pooler;
mod queue;
mod records;
mod transactions;
