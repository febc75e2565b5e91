//! The parcels workload against real servers; each test starts its own.

use acidtest_store_tarantool::{KIND, Tarantool};
use acidtest_testbed::{AfterRemoval, Subject, parcels};

static TARANTOOL: Subject<Tarantool> =
    Subject { kind: KIND, open: |address, _| Box::pin(Tarantool::open(address)), gone: AfterRemoval::Empty };

#[test]
fn every_operation_goes_through_in_every_lock_mode() {
    TARANTOOL.passes(&[parcels::modes]);
}

#[test]
fn each_lock_mode_keeps_its_promise_under_contention() {
    TARANTOOL.passes(&[parcels::contention]);
}

#[test]
fn many_scans_at_once_go_through() {
    TARANTOOL.passes(&[parcels::batches]);
}

#[test]
fn an_eighth_scan_is_refused_and_no_other() {
    TARANTOOL.passes(&[parcels::eighths]);
}

#[test]
fn everything_goes_through_without_an_index_too() {
    TARANTOOL.passes(&[parcels::index_none]);
}

#[test]
fn many_scans_are_loaded_and_read_back_whole() {
    TARANTOOL.passes(&[parcels::large]);
}

#[test]
fn a_namespace_is_its_maker_s_and_nothing_else_goes_with_it() {
    parcels::namespaces(&TARANTOOL, &parcels::NAMES);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    parcels::kills(&TARANTOOL);
}

#[test]
fn what_is_kept_nowhere_is_found_missing() {
    parcels::nothing_kept(&TARANTOOL);
}
