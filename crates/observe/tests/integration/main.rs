//! What a sampler sees, and what it costs.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod cost;
mod running;
mod sampling;
