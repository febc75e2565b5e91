//! The parcels workload against real servers.

use acidtest_model::{CellRequest, Lock};
use acidtest_store_redis::KIND;
use acidtest_testbed::parcels;
use acidtest_workloads::parcels::{Index, Parameters};

use crate::REDIS;

#[test]
fn every_operation_goes_through_in_every_lock_mode() {
    REDIS.passes(&[parcels::modes]);
}

#[test]
fn each_lock_mode_keeps_its_promise_under_contention() {
    REDIS.passes(&[parcels::contention]);
}

#[test]
fn many_scans_at_once_go_through() {
    REDIS.passes(&[parcels::batches]);
}

#[test]
fn an_eighth_scan_is_refused_and_no_other() {
    REDIS.passes(&[parcels::eighths]);
}

#[test]
fn many_scans_are_loaded_and_read_back_whole() {
    REDIS.passes(&[parcels::large]);
}

#[test]
fn without_lists_nothing_is_offered() {
    for lock in Lock::ALL {
        let request = |index| -> CellRequest<'static> {
            let parameters = Parameters { index, ..parcels::few("hash") };
            parcels::ParcelsRun::new(lock, 1, parameters).request()
        };
        assert_eq!((KIND.refuses)(&request(Index::Hash)), None);
        let refused = (KIND.refuses)(&request(Index::None));
        assert!(refused.is_some_and(|why| why.contains("no query")), "{refused:?}");
    }
}

#[test]
fn a_namespace_is_its_maker_s_and_nothing_else_goes_with_it() {
    parcels::namespaces(&REDIS, &parcels::NAMES);
}

#[test]
fn what_is_kept_nowhere_is_found_missing() {
    parcels::nothing_kept(&REDIS);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    parcels::kills(&REDIS);
}
