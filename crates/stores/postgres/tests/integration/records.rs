//! The records workload against real servers.

use std::{fmt::Display, time::Duration};

use crate::common::{POSTGRES, execute, on_server, scans_of, until_alone};
use acidtest_engine::Outcome;
use acidtest_model::{Durability, Isolation, Lock};
use acidtest_store_postgres::Postgres;
use acidtest_testbed::{
    NAMESPACE, World, for_operations, for_time,
    records::{self, NAMES, RecordsRun},
    until, wait, with_more_time,
};
use acidtest_workloads::{
    LoadProgress, Place, Store, Verdict,
    records::{Choice, OPERATIONS, Parameters, key_name},
};

#[test]
fn every_mix_goes_through_in_every_lock_mode() {
    POSTGRES.passes(&[records::mixes]);
}

#[test]
fn modifies_lose_nothing_but_without_a_lock_mode() {
    POSTGRES.passes(&[records::contention]);
}

#[test]
fn blind_updates_lose_nothing_but_without_a_lock_mode() {
    POSTGRES.passes(&[records::blind]);
}

#[test]
fn transactions_go_through_at_every_isolation_level() {
    POSTGRES.passes(&[records::transactions]);
}

#[test]
fn many_records_are_loaded_and_read_back_whole() {
    POSTGRES.passes(&[records::large]);
}

#[test]
fn a_trial_begins_with_what_another_left() {
    POSTGRES.passes(&[records::reusable]);
}

#[test]
fn a_namespace_goes_with_its_records_and_nothing_else() {
    records::namespaces(&POSTGRES, &NAMES);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    records::kills(&POSTGRES);
}

#[test]
fn a_transaction_is_there_whole_or_not_at_all_after_the_server_was_killed() {
    records::kills_transactions(&POSTGRES);
}

#[test]
fn records_are_found_by_their_keys_whatever_the_planner_thinks_of_it() {
    let Some(world) = world() else { return };
    execute(world.address(), "ALTER ROLE CURRENT_USER SET random_page_cost = 1000");
    for (trial, records) in (1..).zip([5, 5_000]) {
        let parameters = Parameters { records, ..few("read:1+update:1+rmw:1+scan:1") };
        let case = RecordsRun::new(Lock::Native, trial, parameters);
        case.load(&world.store);
        let table = case.place.object("usertable");
        let read = || scans_of(world.address(), &table);
        // a session of loading counts its own scans before it is gone
        until_alone(world.address());
        let (whole, by_key) = read();
        case.drive(&world.store, &for_operations(400), 4);
        // a server process adds its counts to the statistics when it ends
        until("nothing was found by its key", Duration::from_mins(2), || read().1 > by_key);
        assert_eq!(read().0, whole, "{records}");
    }
}

#[test]
fn what_ends_loading_is_told_in_the_server_s_words_and_leaves_nothing() {
    let Some(world) = world() else { return };
    execute(
        world.address(),
        &format!(
            "CREATE FUNCTION full_disk() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
               IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() WHERE command_tag = 'CREATE TABLE') THEN
                 ALTER TABLE acidtest.usertable_1 ADD CONSTRAINT full_disk CHECK (key <> '{}');
               END IF;
             END $$;
             CREATE EVENT TRIGGER full_disk ON ddl_command_end EXECUTE FUNCTION full_disk()",
            key_name(12_345)
        ),
    );
    let port = world.store.records().unwrap();
    let place = Place { namespace: NAMESPACE.to_owned(), trial: 1 };
    let layout = Parameters { records: 30_000, ..few("c") }.layout();
    let loaded = LoadProgress::default();
    let error = wait(port.load(&place, &layout, &loaded)).unwrap_err().to_string();
    assert!(error.contains("loading the records failed") && error.contains("full_disk"), "{error}");
    assert_eq!(loaded.rows(), 10_000);
    assert!(wait(port.state(&place, &layout, &mut |_, _, _| ())).is_err());
}

#[test]
fn an_isolation_level_is_what_the_session_has() {
    let Some(world) = world() else { return };
    // without a lock, so that only the isolation level can keep the updates
    for (trial, (level, verdict)) in (1..).zip([
        (Isolation::ReadCommitted, Verdict::Broken),
        (Isolation::RepeatableRead, Verdict::Holds),
        (Isolation::Serializable, Verdict::Holds),
    ]) {
        let mut parameters =
            Parameters { records: 20, keys: Choice::Uniform, transaction: 2, ..few("rmw:1") };
        parameters.isolation.0 = Some(level);
        is_judged(&world, &level, 1000, verdict, || RecordsRun::new(Lock::None, trial, parameters.clone()));
    }
}

#[test]
fn single_operations_lose_nothing_at_a_strict_level_but_without_a_lock_mode() {
    let Some(world) = world() else { return };
    let levels = [Isolation::RepeatableRead, Isolation::Serializable];
    let cases = levels.into_iter().flat_map(|level| Lock::ALL.map(|lock| (level, lock)));
    for (trial, (level, lock)) in (1..).zip(cases) {
        let mut parameters = Parameters { records: 4, keys: Choice::Uniform, ..few("update:1+rmw:1") };
        parameters.isolation.0 = Some(level);
        let verdict = if lock.promises() { Verdict::Holds } else { Verdict::Broken };
        is_judged(&world, &format!("{level}, {lock}"), 500, verdict, || {
            RecordsRun::new(lock, trial, parameters.clone())
        });
    }
}

/// Twelve clients contend without a fault, and the audit reaches the expected verdict. A case that is expected to
/// break gets more time for that.
fn is_judged(
    world: &World<Postgres>,
    shown: &dyn Display,
    millis: u64,
    verdict: Verdict,
    case: impl Fn() -> RecordsRun,
) {
    with_more_time(millis, |millis| {
        let case = case();
        case.load(&world.store);
        let measured = case.drive(&world.store, &for_time(millis), 12);
        let (audit, _) = case.judge(&world.store);
        case.unload(&world.store);
        assert!(measured.faults.is_empty(), "{shown}: {:?}", measured.faults);
        let found = format!("{shown}: {audit:?}");
        let later = [Verdict::Unknown, Verdict::Holds].contains(&audit.verdict);
        assert!(audit.verdict == verdict || later, "{found}");
        if audit.verdict == verdict { Ok(()) } else { Err(found) }
    });
}

#[test]
fn a_record_that_is_not_there_is_refused() {
    let Some(world) = world() else { return };
    for (trial, (lock, transaction)) in (1..).zip(everyhow()) {
        let case = RecordsRun::new(lock, trial, Parameters { transaction, ..few("read:1+update:1+rmw:1") });
        case.load(&world.store);
        execute(world.address(), &format!("DELETE FROM acidtest.{}", case.place.object("usertable")));
        let measured = case.drive(&world.store, &for_operations(50), 2);
        assert!(measured.faults.is_empty() && measured.reconnects == 0, "{lock}: {:?}", measured.faults);
        let count = |outcome| measured.operations.iter().map(|each| each.count(outcome)).sum::<u64>();
        assert!(count(Outcome::Refused) > 0, "{lock}");
        assert_eq!(count(Outcome::Ok), 0, "{lock}");
    }
}

#[test]
fn a_record_that_is_there_already_is_refused_with_all_of_its_transaction() {
    let Some(world) = world() else { return };
    for (trial, (lock, transaction)) in (1..).zip(everyhow()) {
        let parameters = Parameters { transaction, ..few("update:9+insert:1") };
        let records = parameters.records;
        let case = RecordsRun::new(lock, trial, parameters);
        case.load(&world.store);
        let theirs: Vec<_> = (records..records + 2_000).map(key_name).collect();
        let table = case.place.object("usertable");
        let fill = format!(
            "INSERT INTO acidtest.{table} SELECT key, 0, {} FROM unnest($1::text[]) AS key",
            ["''"; 10].join(", ")
        );
        on_server(world.address(), async |client| client.execute(&fill, &[&theirs]).await).unwrap();
        // one client only: transactions that overwrite each other's records are not tested here
        let measured = case.drive(&world.store, &for_operations(200), 1);
        assert!(measured.faults.is_empty() && measured.reconnects == 0, "{lock}: {:?}", measured.faults);
        let count = |outcome| measured.operations.iter().map(|each| each.count(outcome)).sum::<u64>();
        assert!(count(Outcome::Refused) > 0 && count(Outcome::Ok) > 0, "{lock}, {transaction}");
        assert_eq!(count(Outcome::Failed) + count(Outcome::Unknown), 0, "{lock}");
        let remove = format!("DELETE FROM acidtest.{table} WHERE key = ANY($1)");
        on_server(world.address(), async |client| client.execute(&remove, &[&theirs]).await).unwrap();
        let (audit, _) = case.judge(&world.store);
        assert_eq!(audit.verdict, Verdict::Holds, "{lock}, {transaction}: {audit:?}");
    }
}

#[test]
fn what_fails_half_way_is_rolled_back() {
    let Some(world) = world() else { return };
    for (trial, (lock, transaction)) in (1..).zip(everyhow()) {
        let parameters = Parameters { transaction, keys: Choice::Uniform, ..few("update:1+rmw:1+insert:1") };
        let case = RecordsRun::new(lock, trial, parameters);
        case.load(&world.store);
        let table = case.place.object("usertable");
        execute(
            world.address(),
            &format!(
                "CREATE FUNCTION acidtest.no_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                   IF NEW.key < 'user3' THEN RAISE EXCEPTION 'no'; END IF;
                   RETURN NEW;
                 END $$;
                 CREATE TRIGGER no BEFORE INSERT OR UPDATE ON acidtest.{table}
                   FOR EACH ROW EXECUTE FUNCTION acidtest.no_{table}()"
            ),
        );
        let measured = case.drive(&world.store, &for_operations(400), if lock.promises() { 4 } else { 1 });
        let (audit, _) = case.judge(&world.store);
        assert_eq!(audit.verdict, Verdict::Holds, "{lock}, {transaction}: {audit:?}");
        let count = |outcome| measured.operations.iter().map(|each| each.count(outcome)).sum::<u64>();
        assert!(count(Outcome::Failed) > 0 && count(Outcome::Ok) > 0, "{lock}: {:?}", measured.faults);
        assert_eq!((count(Outcome::Unknown), measured.reconnects), (0, 0), "{lock}: {:?}", measured.faults);
    }
}

#[test]
fn a_long_transaction_is_answered_in_its_turn() {
    let Some(world) = world() else { return };
    let mixes = ["read:8+scan:1", "insert:1", "read:2+update:1+rmw:1+insert:1"];
    for (trial, (mix, lock)) in (1..).zip(mixes.into_iter().flat_map(|mix| Lock::ALL.map(|lock| (mix, lock))))
    {
        let case = RecordsRun::new(lock, trial, Parameters { transaction: 1_000, ..few(mix) });
        case.load(&world.store);
        let measured = case.drive(&world.store, &for_operations(2), 1);
        assert_eq!(measured.operations[OPERATIONS.len() - 1].count(Outcome::Ok), 2, "{:?}", measured.faults);
        let (audit, _) = case.judge(&world.store);
        assert_eq!(audit.verdict, Verdict::Holds, "{mix}, {lock}: {audit:?}");
    }
}

/// Every lock mode, each with operations by themselves (1) and with transactions of 4.
fn everyhow() -> impl Iterator<Item = (Lock, u32)> {
    Lock::ALL.into_iter().flat_map(|lock| [(lock, 1), (lock, 4)])
}

fn few(mix: &str) -> Parameters {
    Parameters { mix: mix.parse().unwrap(), records: 200, ..Parameters::default() }
}

/// A private server with a namespace for trials; `None` if PostgreSQL is left out.
fn world() -> Option<World<Postgres>> {
    let world = POSTGRES.start(Durability::None)?;
    wait(world.store.create(NAMESPACE, "run 1")).unwrap();
    Some(world)
}
