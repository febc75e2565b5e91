//! Every planted bug is caught, and a correct store raises no alarm.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;
mod interactive;
mod planted_bugs;
mod planted_kills;
mod planted_parcels;
mod planted_promotions;
mod planted_queue;
mod planted_records;
mod planted_replicas;
mod planted_transactions;
