//! The join against real servers, each test with its own.

mod common;

use acidtest_testbed::join;
use common::POSTGRES;

#[test]
fn both_orders_find_their_rows() {
    join::finds_its_rows(&POSTGRES);
}

#[test]
fn both_orders_are_explained() {
    join::is_explained(&POSTGRES);
}
