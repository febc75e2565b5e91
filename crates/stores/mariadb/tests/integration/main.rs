//! MariaDB and MySQL with their engines, on real servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;
mod interactive;
mod inventory;
mod join;
mod mysql;
mod parcels;
mod proxy;
mod queue;
mod records;
mod transactions;
