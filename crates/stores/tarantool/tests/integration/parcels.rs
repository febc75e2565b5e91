//! The parcels workload against real servers.

use acidtest_testbed::parcels;

use crate::TARANTOOL;

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
fn what_is_kept_nowhere_is_found_missing() {
    parcels::nothing_kept(&TARANTOOL);
}

/// What is slow and rarely breaks, for `./check --all`.
mod slow {
    use super::{TARANTOOL, parcels};

    #[test]
    #[ignore = "slow: ./check --all"]
    fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
        parcels::kills(&TARANTOOL);
    }
}
