//! NATS, on real servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod queue;
mod server;

use acidtest_store_nats::{KIND, Nats};
use acidtest_testbed::{AfterRemoval, Subject};

static NATS: Subject<Nats> =
    Subject { kind: KIND, open: |address, _| Box::pin(Nats::open(address)), gone: AfterRemoval::Error };
