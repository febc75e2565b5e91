//! Private servers: how they live and die, and what is kept of them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod clusters;
mod garbled;
mod links;
mod servers;
