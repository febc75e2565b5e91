//! Elasticsearch, on real servers, and on answers that none of them gives.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod answers;
mod common;
mod parcels;
mod records;
