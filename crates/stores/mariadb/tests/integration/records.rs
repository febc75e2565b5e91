//! The records workload against real servers, on every engine.

use acidtest_model::{Durability, Lock};
use acidtest_store_mariadb::Variant;
use acidtest_testbed::{
    NAMESPACE, Private, for_operations, inventory,
    records::{self, RecordsRun},
    wait,
};
use acidtest_workloads::{Store, Verdict, records::Parameters};

use crate::common::{
    MARIADB, MARIADB_ARCHIVE, MARIADB_ARIA, MARIADB_BLACKHOLE, MARIADB_CSV, MARIADB_MEMORY, MARIADB_MYISAM,
    execute,
};

#[test]
fn innodb_carries_every_mix() {
    MARIADB.passes(&[records::mixes]);
}

#[test]
fn innodb_holds_under_contention() {
    MARIADB.passes(&[records::contention, records::blind]);
}

#[test]
fn innodb_s_transactions_hold_at_every_level() {
    MARIADB.passes(&[records::transactions]);
}

#[test]
fn innodb_takes_many_records_and_begins_with_what_is_left() {
    MARIADB.passes(&[records::large, records::reusable]);
}

#[test]
fn a_namespace_carries_records_whatever_it_is_called() {
    records::namespaces(&MARIADB, &records::NAMES);
}

#[test]
fn innodb_keeps_what_was_acknowledged() {
    records::kills(&MARIADB);
}

#[test]
fn myisam_holds() {
    MARIADB_MYISAM.passes(&[records::mixes, records::contention, records::large]);
}

#[test]
fn myisam_keeps_what_was_acknowledged() {
    records::kills_and_repairs(&MARIADB_MYISAM);
}

#[test]
fn aria_holds() {
    MARIADB_ARIA.passes(&[records::mixes, records::contention, records::large]);
}

#[test]
fn aria_keeps_what_was_acknowledged() {
    records::kills(&MARIADB_ARIA);
}

#[test]
fn memory_holds() {
    MARIADB_MEMORY.passes(&[records::mixes, records::contention, records::blind, records::large]);
}

#[test]
fn csv_holds() {
    MARIADB_CSV.passes(&[records::mixes, records::contention, records::large]);
}

#[test]
fn csv_keeps_what_was_acknowledged() {
    records::kills(&MARIADB_CSV);
}

#[test]
fn archive_holds_what_it_can_do() {
    MARIADB_ARCHIVE.passes(&[records::mixes, records::large]);
}

#[test]
fn what_is_kept_nowhere_is_found_lost() {
    records::nothing_kept(&MARIADB_MEMORY);
}

#[test]
fn archive_loses_what_it_was_still_to_compress() {
    let Some(mut private) = Private::start("mariadb", Durability::None) else { return };
    let store = private.open(async |address| Variant::MARIADB_ARCHIVE.open(address).await);
    wait(store.create(NAMESPACE, "run 1")).unwrap();
    let case = RecordsRun::of(Lock::None, 1, "write");
    case.load(&store);
    assert!(case.drive(&store, &for_operations(400), 4).faults.is_empty());
    private.kill();
    private.restart();
    private.open(async |address| Variant::MARIADB_ARCHIVE.open(address).await);
    let (audit, _) = case.judge(&store);
    assert_eq!(audit.verdict, Verdict::Broken, "{audit:?}");
    assert!(audit.count("lost") > 0, "{audit:?}");
}

#[test]
fn blackhole_loses_every_record_and_the_audit_says_so() {
    let Some(world) = MARIADB_BLACKHOLE.start(Durability::None) else { return };
    wait(world.store.create(NAMESPACE, "run 1")).unwrap();
    let case = RecordsRun::of(Lock::None, 1, "write");
    assert_eq!(case.load(&world.store), 200);
    let measured = case.drive(&world.store, &for_operations(400), 4);
    assert!(measured.faults.is_empty(), "{measured:?}");
    let (audit, reusable) = case.judge(&world.store);
    assert_eq!((audit.verdict, reusable.is_some()), (Verdict::Broken, false), "{audit:?}");
    let inserted = u64::try_from(audit.evidence["acknowledged_inserts"]).unwrap();
    assert!(inserted > 0 && audit.count("lost") == 200 + inserted, "{audit:?}");
}

#[test]
fn each_engine_s_durability_is_read_back() {
    for (subject, levels) in [
        (&MARIADB_ARIA, vec![Durability::Process]),
        (&MARIADB_MYISAM, vec![Durability::None, Durability::Process]),
        (&MARIADB_CSV, vec![Durability::Process]),
        (&MARIADB_MEMORY, vec![Durability::None]),
        (&MARIADB_ARCHIVE, vec![Durability::None]),
        (&MARIADB_BLACKHOLE, vec![Durability::None]),
    ] {
        for durability in levels {
            let Some(world) = subject.start(durability) else { return };
            let effective = wait(world.store.effective()).unwrap();
            inventory::read_back(&subject.kind, durability, &effective);
        }
    }
}

/// Fields too large for a row of the engine, and a server that does not accept a stream of rows.
#[test]
fn records_of_every_shape_are_loaded() {
    let Some(world) = MARIADB.start(Durability::None) else { return };
    wait(world.store.create(NAMESPACE, "run 1")).unwrap();
    for (trial, (fields, field_bytes, stream)) in (1..).zip([
        (10, 100, "OFF"),
        (100, 100, "ON"),
        (100, 100, "OFF"),
        (2, 65_536, "OFF"),
        (2, 65_536, "ON"),
    ]) {
        execute(world.address(), &format!("SET GLOBAL local_infile = {stream}"));
        let mix = "read:1+update:1+rmw:1".parse().unwrap();
        let parameters = Parameters { mix, records: 50, fields, field_bytes, ..Parameters::default() };
        for lock in [Lock::Soft, Lock::Native] {
            let case = RecordsRun::new(lock, trial, parameters.clone());
            assert_eq!(case.load(&world.store), 50);
            assert!(case.state(&world.store).unwrap() == case.initial(), "{fields} x {field_bytes}");
            let measured = case.drive(&world.store, &for_operations(40), 2);
            assert!(measured.faults.is_empty(), "{fields} x {field_bytes}: {:?}", measured.faults);
            assert_eq!(case.judge(&world.store).0.verdict, Verdict::Holds);
            case.unload(&world.store);
        }
    }
}

#[test]
fn a_memory_table_that_is_full_says_what_let_it_grow() {
    let Some(world) = MARIADB_MEMORY.start(Durability::None) else { return };
    wait(world.store.create(NAMESPACE, "run 1")).unwrap();
    let case = RecordsRun::of(Lock::None, 1, "write");
    case.load(&world.store);
    // rebuild the table with the limit of this session, 1 MiB
    let shrink =
        format!("SET max_heap_table_size = {}; ALTER TABLE {NAMESPACE}.usertable_1 ENGINE = MEMORY", 1 << 20);
    execute(world.address(), &shrink);
    // more records than the table has room for
    let measured = case.drive(&world.store, &for_operations(4_000), 2);
    assert!(measured.faults.keys().any(|words| words.contains("max_heap_table_size")), "{measured:?}");
    assert_eq!(case.judge(&world.store).0.verdict, Verdict::Holds);
}
