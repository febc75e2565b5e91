//! The program as its users run it: the command line, on real servers, and everything that it serves.

#![allow(unreachable_pub, reason = "a program of tests has no users")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod anomalies;
mod capacity;
mod cli;
mod clusters;
mod common;
mod compare;
mod faults;
mod gateway;
mod logs;
mod serve;
mod servers;
mod tls;
mod workers;
