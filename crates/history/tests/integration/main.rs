//! The checker on histories that were written by hand, and on those of a simulated store, beside another checker.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod notation;
mod oracle;
mod planted;
mod rules;
mod simulated;
mod simulator;
