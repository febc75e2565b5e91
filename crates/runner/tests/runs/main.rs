//! Runs and their plans, on a store that fails as it is told.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod failing;
mod plan;
mod told;
mod users_servers;
