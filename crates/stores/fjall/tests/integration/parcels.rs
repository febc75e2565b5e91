//! The parcels workload on fjall, each test in a folder of its own.

use crate::common::FJALL;
use acidtest_testbed::parcels;

#[test]
fn every_operation_goes_through_in_every_lock_mode() {
    FJALL.passes(&[parcels::modes]);
}

#[test]
fn each_lock_mode_keeps_its_promise_under_contention() {
    FJALL.passes(&[parcels::contention]);
}

#[test]
fn many_scans_are_inserted_at_once() {
    FJALL.passes(&[parcels::batches]);
}

#[test]
fn eighth_scans_are_refused() {
    FJALL.passes(&[parcels::eighths]);
}

#[test]
fn without_an_index_all_scans_are_gone_through() {
    FJALL.passes(&[parcels::index_none]);
}

#[test]
fn many_scans_are_loaded_and_read_back_whole() {
    FJALL.passes(&[parcels::large]);
}

#[test]
fn a_namespace_may_have_an_odd_name() {
    parcels::namespaces(&FJALL, &parcels::NAMES);
}
