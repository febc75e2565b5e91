//! The records workload on fjall, each test in a folder of its own.

use crate::common::FJALL;
use acidtest_testbed::records;

#[test]
fn every_mix_goes_through_in_every_lock_mode() {
    FJALL.passes(&[records::mixes]);
}

#[test]
fn each_lock_mode_keeps_its_promise_under_contention() {
    FJALL.passes(&[records::contention]);
}

#[test]
fn blind_updates_raise_every_version_once() {
    FJALL.passes(&[records::blind]);
}

#[test]
fn several_operations_are_one_transaction() {
    FJALL.passes(&[records::transactions]);
}

#[test]
fn many_records_are_read_back_whole() {
    FJALL.passes(&[records::large]);
}

#[test]
fn a_trial_begins_with_what_another_left() {
    FJALL.passes(&[records::reusable]);
}

#[test]
fn a_namespace_may_have_an_odd_name() {
    records::namespaces(&FJALL, &records::NAMES);
}
