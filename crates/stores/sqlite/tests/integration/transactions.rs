//! Transactions at random on files of the tests' own.

use acidtest_model::Durability;
use acidtest_testbed::{NAMESPACE, at_random, wait};
use acidtest_workloads::Store;

use crate::common::SQLITE;

/// A rollback journal and a write-ahead log: with the latter, transactions read while another one writes.
#[test]
fn no_anomaly_is_let_through_with_either_journal() {
    for durability in [Durability::None, Durability::Process] {
        let world = SQLITE.start(durability).unwrap();
        wait(world.store.create(NAMESPACE, "run 1")).unwrap();
        at_random::every_level(&SQLITE, &world.store, |_| None);
        wait(world.store.remove(NAMESPACE)).unwrap();
    }
}
