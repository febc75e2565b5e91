//! The queue workload against real servers.

use acidtest_testbed::queue;

use crate::common::MARIADB;

#[test]
fn every_way_to_publish_and_to_consume_does_as_it_promises() {
    MARIADB.passes(&queue::all());
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    queue::kills(&MARIADB);
}
