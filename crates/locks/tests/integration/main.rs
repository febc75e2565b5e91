//! The lock service and its audit.

#![allow(unreachable_pub, reason = "a program of tests has no users")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;
mod planted_bugs;
mod services;
