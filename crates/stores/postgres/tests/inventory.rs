//! The inventory workload against real servers; each test starts its own.

mod common;

use std::{fs, time::Duration};

use acidtest_model::{Address, Durability};
use acidtest_store_postgres::Postgres;
use acidtest_testbed::{inventory, login, until, wait};
use acidtest_workloads::{Owner, Store};
use common::{POSTGRES, execute};

#[test]
fn each_lock_mode_keeps_its_promise_under_contention() {
    POSTGRES.passes(&[inventory::contention]);
}

#[test]
fn a_replayed_sequence_ends_as_it_must() {
    POSTGRES.passes(&[inventory::replay]);
}

#[test]
fn a_namespace_is_its_maker_s_and_nothing_else_goes_with_it() {
    inventory::namespaces(&POSTGRES, &inventory::NAMES);
}

#[test]
fn a_namespace_that_is_there_is_not_made_again() {
    inventory::occupied(&POSTGRES);
}

#[test]
fn a_large_stock_is_read_back_whole() {
    POSTGRES.passes(&[inventory::large_stock]);
}

#[test]
fn where_nobody_listens_is_told_with_a_remedy() {
    inventory::unreachable(&POSTGRES);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    inventory::kills(&POSTGRES);
}

#[test]
fn each_durability_is_read_back() {
    inventory::levels(&POSTGRES, |world, effective| {
        assert_eq!(effective.settings["shared_buffers"], "128MB");
        assert!(effective.because.contains("synchronous_commit="));
        if effective.durability == Durability::Disk {
            execute(world.address(), "ALTER SYSTEM SET full_page_writes = off");
            execute(world.address(), "SELECT pg_reload_conf()");
            until("the server has read its settings again", Duration::from_mins(2), || {
                wait(world.store.effective()).unwrap().settings["full_page_writes"] == "off"
            });
            let effective = wait(world.store.effective()).unwrap();
            assert_eq!(effective.durability, Durability::None, "{}", effective.because);
        }
    });
}

#[test]
fn what_others_made_is_a_stranger_s() {
    let Some(world) = POSTGRES.start(Durability::None) else { return };
    assert_eq!(wait(world.store.owner("pg_catalog")).unwrap(), Owner::Stranger);
    execute(world.address(), "CREATE SCHEMA theirs; CREATE TABLE theirs.marker (a int)");
    assert_eq!(wait(world.store.owner("theirs")).unwrap(), Owner::Stranger);
    assert!(wait(world.store.create(&"long".repeat(20), "run 1")).is_err());
}

#[test]
fn a_refused_login_is_told_with_a_remedy_and_without_the_password() {
    let Some(world) = POSTGRES.start(Durability::None) else { return };
    let trusted = world.address();
    let hba = world.private().folder().join("data/pg_hba.conf");
    let rules = fs::read_to_string(&hba).unwrap();
    fs::write(&hba, format!("host all ann 127.0.0.1/32 scram-sha-256\n{rules}")).unwrap();
    execute(trusted, "CREATE ROLE ann LOGIN PASSWORD 'right'; SELECT pg_reload_conf()");
    until("the server asks for passwords", Duration::from_mins(2), || {
        wait(Postgres::open(&login(trusted, "ann", None))).is_err()
    });

    let store = wait(Postgres::open(&login(trusted, "ann", Some("right")))).unwrap();
    assert!(!format!("{store:?}").contains("right"));
    let wrong = login(trusted, "ann", Some("hunter2"));
    POSTGRES.refuses(&wrong, &["password authentication failed", "check user and password"]);
    POSTGRES.refuses(&login(trusted, "ann", None), &["password missing", "check user and password"]);
    let nowhere = Address { path: "nowhere".to_owned(), ..trusted.clone() };
    POSTGRES.refuses(&nowhere, &["does not exist", "create the database"]);
}

#[test]
fn what_fails_half_way_is_rolled_back() {
    inventory::half_way(&POSTGRES, |world, place| {
        let (schema, stock) = (&place.namespace, place.object("stock"));
        let refuse = format!(
            "CREATE FUNCTION {schema}.no_{stock}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               IF NEW.warehouse > 1 AND NEW.count < OLD.count THEN RAISE EXCEPTION 'no'; END IF;
               RETURN NEW;
             END $$;
             CREATE TRIGGER no BEFORE UPDATE ON {schema}.{stock}
               FOR EACH ROW EXECUTE FUNCTION {schema}.no_{stock}()"
        );
        execute(world.address(), &refuse);
    });
}
