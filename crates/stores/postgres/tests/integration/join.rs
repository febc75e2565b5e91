//! The join workload against real servers.

use crate::common::POSTGRES;
use acidtest_testbed::join;

#[test]
fn both_orders_find_their_rows() {
    POSTGRES.passes(&[join::finds_its_rows]);
}

#[test]
fn both_orders_are_explained() {
    POSTGRES.passes(&[join::is_explained]);
}
