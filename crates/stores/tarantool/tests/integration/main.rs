//! Tarantool, on real servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod interactive;
mod inventory;
mod iproto;
mod parcels;
mod queue;
mod records;

use acidtest_store_tarantool::{KIND, Tarantool};
use acidtest_testbed::{AfterRemoval, Subject};

static TARANTOOL: Subject<Tarantool> =
    Subject { kind: KIND, open: |address, _| Box::pin(Tarantool::open(address)), gone: AfterRemoval::Empty };
