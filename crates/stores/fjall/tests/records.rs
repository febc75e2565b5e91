//! The records in folders of the tests' own.

mod common;

use acidtest_testbed::records::{self, Unprotected};
use common::FJALL;

#[test]
fn every_mix_goes_through_in_every_lock_mode() {
    records::mixes(&FJALL);
}

#[test]
fn each_lock_mode_keeps_its_promise_under_contention() {
    records::contention(&FJALL, Unprotected::LosesUpdates);
}

#[test]
fn blind_updates_raise_every_version_once() {
    records::blind(&FJALL, Unprotected::LosesUpdates);
}

#[test]
fn several_operations_are_one_transaction() {
    records::transactions(&FJALL);
}

#[test]
fn many_records_are_read_back_whole() {
    records::large(&FJALL);
}

#[test]
fn a_trial_begins_with_what_another_left() {
    records::left(&FJALL);
}

#[test]
fn a_namespace_may_have_an_odd_name() {
    records::namespaces(&FJALL, &records::NAMES);
}
