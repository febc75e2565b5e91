//! The records workload on files of the tests' own.

use crate::common::SQLITE;
use acidtest_model::{Durability, Lock};
use acidtest_testbed::{
    NAMESPACE, for_time,
    records::{self, RecordsRun},
    with_more_time,
};
use acidtest_workloads::{
    Store, Verdict,
    records::{Choice, Parameters},
};

#[test]
fn every_mix_goes_through_in_every_lock_mode() {
    SQLITE.passes(&[records::mixes]);
}

#[test]
fn each_lock_mode_keeps_its_promise_under_contention() {
    SQLITE.passes(&[records::contention]);
}

#[test]
fn blind_updates_raise_every_version_once() {
    SQLITE.passes(&[records::blind]);
}

#[test]
fn several_operations_are_one_transaction() {
    SQLITE.passes(&[records::transactions]);
}

#[test]
fn many_records_are_read_back_whole() {
    SQLITE.passes(&[records::large]);
}

#[test]
fn a_trial_begins_with_what_another_left() {
    SQLITE.passes(&[records::reusable]);
}

#[test]
fn a_namespace_may_have_an_odd_name() {
    records::namespaces(&SQLITE, &records::NAMES);
}

#[test]
fn a_transaction_over_a_stale_snapshot_is_a_conflict() {
    // only with a log can a reader go on while others write, and so hold a stale snapshot
    let world = SQLITE.start(Durability::Process).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(world.store.create(NAMESPACE, "run 1")).unwrap();
    let mix = "read:1+rmw:1".parse().unwrap();
    let few = Parameters { mix, records: 8, keys: Choice::Uniform, transaction: 4, ..Parameters::default() };
    for (trial, lock) in (1..).zip([Lock::None, Lock::Soft, Lock::Hard, Lock::Native]) {
        with_more_time(500, |millis| {
            let case = RecordsRun::new(lock, trial, few.clone());
            case.load(&world.store);
            let measured = case.drive(&world.store, &for_time(millis), 8);
            let (audit, _) = case.judge(&world.store);
            case.unload(&world.store);
            assert!(measured.faults.is_empty(), "{lock}: {:?}", measured.faults);
            let optimistic = matches!(lock, Lock::None | Lock::Soft);
            let retries: u64 = measured.operations.iter().map(|operation| operation.retries).sum();
            assert!(retries == 0 || optimistic, "{lock}: {retries}");
            let seen = format!("{lock}: {retries} retries, {audit:?}");
            if audit.verdict == Verdict::Unknown || (optimistic && retries == 0) {
                return Err(seen);
            }
            assert_eq!(audit.verdict, Verdict::Holds, "{seen}");
            Ok(())
        });
    }
}
