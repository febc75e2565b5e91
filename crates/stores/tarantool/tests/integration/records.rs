//! The records workload against real servers.

use acidtest_testbed::records;

use crate::TARANTOOL;

#[test]
fn every_mix_goes_through_in_every_lock_mode() {
    TARANTOOL.passes(&[records::mixes]);
}

#[test]
fn each_lock_mode_keeps_its_promise_under_contention() {
    TARANTOOL.passes(&[records::contention]);
}

#[test]
fn blind_updates_are_protected_too() {
    TARANTOOL.passes(&[records::blind]);
}

#[test]
fn several_operations_are_one_transaction() {
    TARANTOOL.passes(&[records::transactions]);
}

#[test]
fn many_records_are_loaded_and_read_back_whole() {
    TARANTOOL.passes(&[records::large]);
}

#[test]
fn a_trial_begins_with_what_another_left() {
    TARANTOOL.passes(&[records::reusable]);
}

#[test]
fn a_namespace_is_its_maker_s_and_nothing_else_goes_with_it() {
    records::namespaces(&TARANTOOL, &records::NAMES);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    records::kills(&TARANTOOL);
}

#[test]
fn what_is_kept_nowhere_is_found_missing() {
    records::nothing_kept(&TARANTOOL);
}
