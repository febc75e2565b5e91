//! The parcels workload against real servers, on every engine that can count scans.

use acidtest_model::{Durability, Lock};
use acidtest_store_mariadb::MariaDb;
use acidtest_testbed::{
    NAMESPACE, Subject, for_operations, for_time,
    parcels::{self, ParcelsRun, few},
    wait,
};
use acidtest_workloads::{
    Medium, Store,
    parcels::{Index, LoadMethod, Parameters},
};

use crate::common::{MARIADB, MARIADB_ARIA, MARIADB_MEMORY, MARIADB_MYISAM, execute};

#[test]
fn innodb_carries_every_operation() {
    MARIADB.passes(&[parcels::modes, parcels::eighths, parcels::index_none, parcels::large]);
}

#[test]
fn innodb_holds_under_contention() {
    MARIADB.passes(&[parcels::contention, parcels::batches]);
}

#[test]
fn a_namespace_carries_parcels_whatever_it_is_called() {
    parcels::namespaces(&MARIADB, &parcels::NAMES);
}

#[test]
fn myisam_holds() {
    MARIADB_MYISAM.passes(&[
        parcels::modes,
        parcels::contention,
        parcels::batches,
        parcels::index_none,
        parcels::large,
    ]);
}

#[test]
fn aria_holds() {
    MARIADB_ARIA.passes(&[parcels::modes, parcels::contention, parcels::batches, parcels::large]);
}

#[test]
fn memory_holds() {
    MARIADB_MEMORY.passes(&[
        parcels::modes,
        parcels::contention,
        parcels::batches,
        parcels::index_none,
        parcels::large,
    ]);
}

#[test]
fn what_is_kept_nowhere_is_found_lost() {
    parcels::nothing_kept(&MARIADB_MEMORY);
}

/// Inserts into the end of a table's file run beside readers there; two inserts that count must not run at once.
#[test]
fn myisam_s_concurrent_inserts_do_not_count_the_same() {
    let Some(world) = MARIADB_MYISAM.start(Durability::None) else { return };
    wait(world.store.create(NAMESPACE, "run 1")).unwrap();
    execute(world.address(), "SET GLOBAL concurrent_insert = ALWAYS");
    let case =
        ParcelsRun::new(Lock::Native, 1, Parameters { parcels: 1, scans: 0, ..few("insert:3+hash:1") });
    case.holds(&world.store, &for_time(500), 12);
}

/// The longest batch in every lock mode, over the length from which a server changes how it looks up a list.
#[test]
fn a_thousand_scans_are_inserted_at_once() {
    let Some(world) = MARIADB.start(Durability::None) else { return };
    wait(world.store.create(NAMESPACE, "run 1")).unwrap();
    for (trial, lock) in (1..).zip(Lock::ALL) {
        let parameters =
            Parameters { parcels: 1_500, insert_batch: 1_000, scans: 0, eighths: 0.1, ..few("insert") };
        let case = ParcelsRun::new(lock, trial, parameters);
        let audit = case.holds(&world.store, &for_operations(12), 1);
        assert!(audit.evidence["inserted_scans"] >= 10_000, "{lock}: {audit:?}");
    }
}

/// The ids of one statement's rows may lie apart from each other, on a server of several that give ids by turns.
#[test]
fn ids_are_in_the_steps_that_the_server_takes() {
    let Some(world) = MARIADB.start(Durability::None) else { return };
    wait(world.store.create(NAMESPACE, "run 1")).unwrap();
    execute(world.address(), "SET GLOBAL auto_increment_increment = 7, GLOBAL auto_increment_offset = 3");
    for (trial, lock) in (1..).zip(Lock::ALL) {
        let parameters = Parameters { insert_batch: 5, ..few("insert:2+id:1") };
        let case = ParcelsRun::new(lock, trial, parameters);
        case.holds(&world.store, &for_operations(60), if lock.promises() { 3 } else { 1 });
    }
}

#[test]
fn scans_are_loaded_where_no_stream_is_accepted() {
    let Some(world) = MARIADB.start(Durability::None) else { return };
    wait(world.store.create(NAMESPACE, "run 1")).unwrap();
    for (trial, (stream, load)) in
        (1..).zip([("OFF", LoadMethod::Bulk), ("ON", LoadMethod::Bulk), ("OFF", LoadMethod::Single)])
    {
        execute(world.address(), &format!("SET GLOBAL local_infile = {stream}"));
        let case = ParcelsRun::new(Lock::Soft, trial, Parameters { scans: 700, load, ..few("insert") });
        assert_eq!(case.load(&world.store), 700);
        assert!(case.state(&world.store).unwrap() == case.initial(), "{stream}, {load:?}");
    }
}

#[test]
fn a_memory_table_is_in_memory_and_an_other_on_disk() {
    for (subject, medium) in [(&MARIADB_MEMORY, Medium::Memory), (&MARIADB_ARIA, Medium::Disk)] {
        let Some(world) = subject.start(Durability::None) else { return };
        wait(world.store.create(NAMESPACE, "run 1")).unwrap();
        let case = ParcelsRun::new(Lock::None, 1, Parameters { scans: 7_000, parcels: 1_000, ..few("id") });
        case.load(&world.store);
        let size = case.judge(&world.store).1.unwrap();
        assert_eq!((size.rows, size.medium), (7_000, medium), "{size:?}");
        // what MEMORY has allocated says nothing of so few rows
        let is_told = medium == Medium::Disk;
        assert_eq!(size.index_bytes.is_some_and(|bytes| bytes > 7_000), is_told, "{size:?}");
        assert_eq!(
            (size.data_bytes.is_some(), size.source.contains("--scans")),
            (is_told, !is_told),
            "{size:?}"
        );
    }
}

#[test]
fn what_a_soft_lock_cannot_do_is_refused_with_the_reason() {
    let refused = |subject: &Subject<MariaDb>, lock, index, insert_batch| {
        let parameters = Parameters { index, insert_batch, ..few("insert") };
        (subject.kind.refuses)(&ParcelsRun::new(lock, 1, parameters).request()).unwrap_or_default()
    };
    for subject in [&MARIADB, &MARIADB_MYISAM, &MARIADB_ARIA, &MARIADB_MEMORY] {
        assert!(refused(subject, Lock::Soft, Index::None, 1).contains("--index none"));
        assert_eq!(refused(subject, Lock::Soft, Index::Hash, 1), "");
        assert_eq!(refused(subject, Lock::Hard, Index::None, 2), "");
    }
    assert_eq!(refused(&MARIADB, Lock::Soft, Index::Hash, 2), "");
    assert!(refused(&MARIADB_MYISAM, Lock::Soft, Index::Hash, 2).contains("--insert-batch 1"));
}

/// What is slow and rarely breaks, for `./check --all`.
mod slow {
    use super::{MARIADB, MARIADB_ARIA, MARIADB_MYISAM, parcels};

    #[test]
    #[ignore = "slow: ./check --all"]
    fn aria_keeps_what_was_acknowledged() {
        parcels::kills(&MARIADB_ARIA);
    }

    #[test]
    #[ignore = "slow: ./check --all"]
    fn myisam_keeps_what_was_acknowledged() {
        parcels::kills_and_repairs(&MARIADB_MYISAM);
    }

    #[test]
    #[ignore = "slow: ./check --all"]
    fn innodb_keeps_what_was_acknowledged() {
        parcels::kills(&MARIADB);
    }
}
