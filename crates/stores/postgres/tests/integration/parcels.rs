//! The parcels workload against real servers.

use std::time::Duration;

use crate::common::{POSTGRES, execute, scans_of, until_alone};
use acidtest_model::{Durability, Lock};
use acidtest_store_postgres::Postgres;
use acidtest_testbed::{
    NAMESPACE, World, for_operations, for_time,
    parcels::{self, NAMES, ParcelsRun, few},
    until, wait,
};
use acidtest_workloads::{
    Store, Verdict,
    parcels::{Index, Parameters},
};

#[test]
fn every_operation_goes_through_in_every_lock_mode() {
    POSTGRES.passes(&[parcels::modes, parcels::eighths, parcels::index_none]);
}

#[test]
fn counts_are_right_but_without_a_lock_mode() {
    POSTGRES.passes(&[parcels::contention]);
}

#[test]
fn batches_go_through_in_every_lock_mode() {
    POSTGRES.passes(&[parcels::batches]);
}

#[test]
fn scans_are_loaded_by_both_methods_and_read_back_whole() {
    POSTGRES.passes(&[parcels::large]);
}

#[test]
fn a_namespace_goes_with_its_scans_and_nothing_else() {
    parcels::namespaces(&POSTGRES, &NAMES);
}

#[test]
fn a_soft_lock_without_its_index_is_refused() {
    for (lock, index, is_refused) in
        [(Lock::Soft, Index::None, true), (Lock::Soft, Index::Hash, false), (Lock::Hard, Index::None, false)]
    {
        let case = ParcelsRun::new(lock, 1, Parameters { index, ..few("insert") });
        let refused = (POSTGRES.kind.refuses)(&case.request());
        assert_eq!(refused.is_some_and(|why| why.contains("--index none")), is_refused, "{lock}, {index:?}");
    }
}

/// A table that was empty when the statements were planned is not read whole later, whatever it has grown to.
#[test]
fn scans_are_found_by_an_index_whatever_the_planner_thinks_of_it() {
    let Some(world) = world() else { return };
    execute(world.address(), "ALTER ROLE CURRENT_USER SET random_page_cost = 1000");
    let cases = Lock::ALL.into_iter().flat_map(|lock| [(lock, 1), (lock, 7)]);
    for (trial, (lock, insert_batch)) in (1..).zip(cases) {
        let parameters = Parameters { scans: 0, insert_batch, ..few("insert:2+hash:1+id:1") };
        let case = ParcelsRun::new(lock, trial, parameters);
        case.load(&world.store);
        let table = case.place.object("scans");
        let read = || scans_of(world.address(), &table);
        // a session of loading counts its own scans before it is gone
        until_alone(world.address());
        let (whole, by_index) = read();
        case.drive(&world.store, &for_operations(200), 2);
        until("nothing was found by an index", Duration::from_mins(2), || read().1 > by_index);
        assert_eq!(read().0, whole, "{lock}, {insert_batch} at once");
    }
}

/// The locks and snapshots are right also where transactions of the server's own are stricter.
#[test]
fn counts_are_right_at_any_default_isolation_level() {
    let Some(world) = world() else { return };
    execute(world.address(), "ALTER ROLE CURRENT_USER SET default_transaction_isolation = 'serializable'");
    for (trial, lock) in (1..).zip([Lock::Hard, Lock::Native]) {
        let case = ParcelsRun::new(lock, trial, Parameters { parcels: 2, scans: 5, ..few("insert") });
        case.load(&world.store);
        let measured = case.drive(&world.store, &for_time(300), 8);
        let conflicts: u64 = measured.operations.iter().map(|operation| operation.conflicts).sum();
        assert!(measured.faults.is_empty() && conflicts == 0, "{lock}: {conflicts}, {:?}", measured.faults);
        let (audit, _) = case.judge(&world.store);
        assert_eq!(audit.verdict, Verdict::Holds, "{lock}: {audit:?}");
    }
}

/// A private server with a namespace for trials; `None` if PostgreSQL is left out.
fn world() -> Option<World<Postgres>> {
    let world = POSTGRES.start(Durability::None)?;
    wait(world.store.create(NAMESPACE, "run 1")).unwrap();
    Some(world)
}

/// What is slow and rarely breaks, for `./check --all`.
mod slow {
    use super::{POSTGRES, parcels};

    #[test]
    #[ignore = "slow: ./check --all"]
    fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
        parcels::kills(&POSTGRES);
    }
}
