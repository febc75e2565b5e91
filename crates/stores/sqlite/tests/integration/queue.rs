//! The queue workload on files of the tests' own.

use crate::common::SQLITE;
use acidtest_testbed::{queue, queue::NAMES};

#[test]
fn every_way_to_publish_and_to_consume_does_as_it_promises() {
    SQLITE.passes(&queue::all());
}

#[test]
fn namespaces_hold_only_their_own() {
    queue::namespaces(&SQLITE, &NAMES);
}
