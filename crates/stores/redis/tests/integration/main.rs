//! Redis, on real servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod interactive;
mod inventory;
mod parcels;
mod queue;
mod records;

use acidtest_store_redis::{KIND, Redis};
use acidtest_testbed::{AfterRemoval, Subject};

static REDIS: Subject<Redis> =
    Subject { kind: KIND, open: |address, _| Box::pin(Redis::open(address)), gone: AfterRemoval::Empty };
