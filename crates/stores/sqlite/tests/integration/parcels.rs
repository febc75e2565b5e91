//! The parcels workload on files of the tests' own.

use crate::common::SQLITE;
use acidtest_testbed::parcels;

#[test]
fn every_operation_goes_through_in_every_lock_mode() {
    SQLITE.passes(&[parcels::modes]);
}

#[test]
fn each_lock_mode_keeps_its_promise_under_contention() {
    SQLITE.passes(&[parcels::contention]);
}

#[test]
fn many_scans_at_once_are_counted_one_by_one() {
    SQLITE.passes(&[parcels::batches]);
}

#[test]
fn an_eighth_scan_is_refused() {
    SQLITE.passes(&[parcels::eighths]);
}

#[test]
fn without_an_index_the_table_is_scanned() {
    SQLITE.passes(&[parcels::index_none]);
}

#[test]
fn many_scans_are_loaded_and_read_back_whole() {
    SQLITE.passes(&[parcels::large]);
}

#[test]
fn a_namespace_may_have_an_odd_name() {
    parcels::namespaces(&SQLITE, &parcels::NAMES);
}
