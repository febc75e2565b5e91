//! Transactions at random against real servers.

use acidtest_model::{Durability, Isolation};
use acidtest_store_mariadb::MariaDb;
use acidtest_testbed::{NAMESPACE, Subject, at_random, wait};
use acidtest_workloads::Store;

use crate::common::{MARIADB, MARIADB_ARIA, MARIADB_MYISAM, MYSQL, execute};

/// `InnoDB` reads what is not committed, as its name says, and at its default level loses updates, as its documentation says.
fn every_level(subject: &Subject<MariaDb>, store: &MariaDb) {
    at_random::every_level(subject, store, |level| match level {
        Some(Isolation::Serializable) => None,
        Some(Isolation::ReadUncommitted) => Some("G1a"),
        Some(Isolation::ReadCommitted) => Some("lost-update"),
        Some(Isolation::RepeatableRead) | None => Some("wrong-total-write"),
    });
}

#[test]
fn no_level_of_mariadb_lets_through_what_the_documentation_rules_out() {
    MARIADB.passes(&[every_level]);
}

#[test]
fn no_level_of_mysql_lets_through_what_the_documentation_rules_out() {
    MYSQL.passes(&[every_level]);
}

/// Repeatable read is then snapshot isolation.
#[test]
fn mariadb_loses_no_update_where_snapshots_are_isolated() {
    let Some(world) = MARIADB.start(Durability::None) else { return };
    execute(world.address(), "SET GLOBAL innodb_snapshot_isolation = ON");
    wait(world.store.create(NAMESPACE, "run 1")).unwrap();
    at_random::every_level(&MARIADB, &world.store, |level| match level {
        Some(Isolation::RepeatableRead) | None => Some("G2-item"),
        Some(_) => None,
    });
    wait(world.store.remove(NAMESPACE)).unwrap();
}

#[test]
fn engines_without_transactions_have_none() {
    for subject in [&MARIADB_MYISAM, &MARIADB_ARIA] {
        let Some(world) = subject.share() else { continue };
        assert!(world.store.transactions().is_none(), "{}", subject.kind.name);
    }
}

#[test]
fn a_killed_mariadb_is_accused_of_nothing() {
    at_random::kills(&MARIADB);
}

#[test]
fn a_killed_mysql_is_accused_of_nothing() {
    at_random::kills(&MYSQL);
}
