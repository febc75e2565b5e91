//! The records workload against real servers.

use acidtest_model::{Durability, Lock};
use acidtest_testbed::{
    NAMESPACE, for_operations, for_time,
    records::{self, RecordsRun},
    wait, with_more_time,
};
use acidtest_workloads::{
    LoadProgress, Place, Store, Verdict,
    records::{Layout, RecordsStore},
};

use crate::REDIS;

#[test]
fn every_mix_goes_through_in_every_lock_mode() {
    REDIS.passes(&[records::mixes]);
}

#[test]
fn each_lock_mode_keeps_its_promise_under_contention() {
    REDIS.passes(&[records::contention]);
}

#[test]
fn blind_updates_are_protected_too() {
    REDIS.passes(&[records::blind]);
}

#[test]
fn several_operations_are_one_transaction() {
    REDIS.passes(&[records::transactions]);
}

#[test]
fn many_records_are_loaded_and_read_back_whole() {
    REDIS.passes(&[records::large]);
}

#[test]
fn a_trial_begins_with_what_another_left() {
    REDIS.passes(&[records::reusable]);
}

#[test]
fn a_namespace_is_its_maker_s_and_nothing_else_goes_with_it() {
    records::namespaces(&REDIS, &records::NAMES);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    records::kills(&REDIS);
}

#[test]
fn what_is_kept_nowhere_is_found_missing() {
    records::nothing_kept(&REDIS);
}

#[test]
fn a_server_out_of_memory_says_so_and_nothing_breaks() {
    let Some(world) = REDIS.start(Durability::None) else { return };
    wait(world.store.create(NAMESPACE, "run")).unwrap();
    let client = redis::Client::open(world.address().to_string()).unwrap();
    let mut raw = client.get_connection().unwrap();
    let mut limit = |bytes: &str| {
        redis::cmd("CONFIG").arg(&["SET", "maxmemory", bytes]).exec(&mut raw).unwrap();
    };
    limit("8mb");
    let place = Place { namespace: NAMESPACE.to_owned(), trial: 0 };
    let layout = Layout { records: 100_000, fields: 10, field_bytes: 100, scans: true };
    let error = wait(world.store.load(&place, &layout, &LoadProgress::default())).unwrap_err().to_string();
    assert!(error.contains("loading the records") && error.contains("maxmemory"), "{error}");
    assert!(error.len() < 400, "{error}");
    limit("0");
    wait(RecordsStore::unload(&world.store, &place)).unwrap();

    for (trial, (lock, mix)) in (1..).zip(Lock::ALL.iter().flat_map(|lock| [(*lock, "modify"), (*lock, "a")]))
    {
        let case = RecordsRun::of(lock, trial, mix);
        case.load(&world.store);
        limit("1mb");
        with_more_time(50, |millis| {
            let faults = case.drive(&world.store, &for_time(millis), 1).faults;
            let refused = faults.keys().any(|words| words.contains("maxmemory"));
            if refused { Ok(()) } else { Err(format!("{lock}: {faults:?}")) }
        });
        limit("0");
        case.drive(&world.store, &for_operations(100), 1);
        let (audit, _) = case.judge(&world.store);
        assert_eq!(audit.verdict, Verdict::Holds, "{lock}: {audit:?}");
    }
}
