//! Transactions at random against real servers.

use acidtest_model::{Durability, Isolation};
use acidtest_testbed::{NAMESPACE, at_random, wait};
use acidtest_workloads::Store;

use crate::common::{POSTGRES, execute};

#[test]
fn no_level_lets_through_what_the_documentation_rules_out() {
    let Some(world) = POSTGRES.start(Durability::None) else { return };
    // on few keys, clients would spend most of their time in the second after which the server looks for deadlocks
    execute(world.address(), "ALTER DATABASE postgres SET deadlock_timeout = '10ms'");
    wait(world.store.create(NAMESPACE, "run 1")).unwrap();
    at_random::every_level(&POSTGRES, &world.store, |level| match level {
        Some(Isolation::Serializable) => None,
        Some(Isolation::RepeatableRead) => Some("G2-item"),
        Some(Isolation::ReadUncommitted | Isolation::ReadCommitted) | None => Some("lost-update"),
    });
    wait(world.store.remove(NAMESPACE)).unwrap();
}

#[test]
fn a_killed_server_is_accused_of_nothing() {
    at_random::kills(&POSTGRES);
}
