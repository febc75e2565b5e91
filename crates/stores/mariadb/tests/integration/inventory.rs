//! The inventory workload against real servers.

use acidtest_model::{Address, Durability};
use acidtest_store_mariadb::Variant;
use acidtest_testbed::{inventory, is_whole_by_a_socket, login, wait};
use acidtest_workloads::{Owner, Store};

use crate::common::{self, MARIADB, execute};

#[test]
fn each_lock_mode_keeps_its_promise_under_contention() {
    MARIADB.passes(&[inventory::contention]);
}

#[test]
fn a_replayed_sequence_ends_as_it_must() {
    MARIADB.passes(&[inventory::replay]);
}

#[test]
fn a_namespace_is_its_maker_s_and_nothing_else_goes_with_it() {
    inventory::namespaces(&MARIADB, &inventory::NAMES);
}

#[test]
fn a_namespace_that_is_there_is_not_made_again() {
    inventory::occupied(&MARIADB);
}

#[test]
fn a_large_stock_is_read_back_whole() {
    MARIADB.passes(&[inventory::large_stock]);
}

#[test]
fn where_nobody_listens_is_told_with_a_remedy() {
    inventory::unreachable(&MARIADB);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    inventory::kills(&MARIADB);
}

#[test]
fn each_durability_is_read_back() {
    inventory::levels(&MARIADB, |_, effective| {
        assert_eq!(effective.settings["innodb_buffer_pool_size"], (128 << 20).to_string());
        assert!(effective.because.contains("innodb_flush_log_at_trx_commit="));
    });
}

#[test]
fn what_others_made_is_a_stranger_s() {
    let Some(world) = MARIADB.start(Durability::None) else { return };
    assert_eq!(wait(world.store.owner("mysql")).unwrap(), Owner::Stranger);
    execute(world.address(), "CREATE DATABASE theirs; CREATE TABLE theirs.marker SELECT 1 AS a");
    assert_eq!(wait(world.store.owner("theirs")).unwrap(), Owner::Stranger);
    assert!(wait(world.store.create(&"long".repeat(20), "run 1")).is_err());
}

#[test]
fn what_a_run_left_half_made_is_told_from_what_was_prepared() {
    let Some(world) = MARIADB.start(Durability::None) else { return };
    execute(world.address(), "CREATE DATABASE half");
    execute(world.address(), "CREATE TABLE half.marker (run TEXT NOT NULL)");
    assert_eq!(wait(world.store.owner("half")).unwrap(), Owner::Empty);
    execute(world.address(), "CREATE TABLE half.theirs (a int)");
    assert_eq!(wait(world.store.owner("half")).unwrap(), Owner::Stranger);
    // killed before it had made the place of its mark
    wait(world.store.create("bare", "run 1")).unwrap();
    execute(world.address(), "DROP TABLE bare.marker");
    assert_eq!(wait(world.store.owner("bare")).unwrap(), Owner::Run("run 1".to_owned()));
    wait(world.store.remove("bare")).unwrap();
    assert_eq!(wait(world.store.owner("bare")).unwrap(), Owner::Nobody);
}

#[test]
fn an_empty_database_of_an_administrator_is_used_and_stays() {
    let Some(world) = MARIADB.start(Durability::None) else { return };
    let owner = || wait(world.store.owner("theirs")).unwrap();
    execute(world.address(), "CREATE DATABASE theirs CHARACTER SET latin1");
    let unfit = wait(world.store.create("theirs", "run 1")).unwrap_err().to_string();
    assert!(unfit.contains("ALTER DATABASE `theirs` CHARACTER SET utf8mb4"), "{unfit}");
    execute(world.address(), "ALTER DATABASE theirs CHARACTER SET utf8mb4");
    for run in ["run 1", "run 2"] {
        assert_eq!(owner(), Owner::Prepared);
        wait(world.store.create("theirs", run)).unwrap();
        assert_eq!(owner(), Owner::Run(run.to_owned()));
        assert!(wait(world.store.create("theirs", "run 3")).is_err());
        execute(world.address(), "CREATE TABLE theirs.stock_0 (a int)");
        execute(world.address(), "CREATE PROCEDURE theirs.take_0 () SELECT 1");
        wait(world.store.remove("theirs")).unwrap();
    }
    assert_eq!(owner(), Owner::Prepared);
    execute(world.address(), "CREATE EVENT theirs.daily ON SCHEDULE EVERY 1 DAY DO SELECT 1");
    assert_eq!(owner(), Owner::Stranger);
    is_told_that_it_only_reads(world.address());
}

/// To a user whom that binds.
fn is_told_that_it_only_reads(root: &Address) {
    execute(root, "CREATE USER ann@'127.0.0.1'");
    execute(root, "GRANT CREATE, SELECT ON *.* TO ann@'127.0.0.1'");
    let store = wait(Variant::MARIADB.open(&login(root, "ann", None))).unwrap();
    let said = || wait(store.create("another", "run 1")).unwrap_err().to_string();
    execute(root, "SET GLOBAL read_only = 1");
    execute(root, "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 1, MASTER_USER = 'ann'");
    let own = said();
    assert!(own.contains("takes no writes: it is read-only (read_only=ON)"), "{own}");
    execute(root, "GRANT SLAVE MONITOR ON *.* TO ann@'127.0.0.1'");
    let replica = said();
    assert!(replica.contains("takes no writes: it is a replica of 127.0.0.1:1\n"), "{replica}");
    assert!(replica.contains("remedy: give the address of its primary"), "{replica}");
}

#[test]
fn a_refused_login_is_told_with_a_remedy_and_without_the_password() {
    let Some(world) = MARIADB.start(Durability::None) else { return };
    let root = world.address();
    execute(root, "CREATE USER ann@'127.0.0.1' IDENTIFIED BY 'right'");

    let ann = login(root, "ann", Some("right"));
    wait(Variant::MARIADB.open(&ann)).unwrap();
    for wrong in [Some("hunter2"), None] {
        MARIADB.refuses(&login(root, "ann", wrong), &["Access denied", "check user and password"]);
    }
    let nowhere = Address { path: "nowhere".to_owned(), ..root.clone() };
    MARIADB.refuses(&nowhere, &["Unknown database", "create the database"]);
    let closed = Address { path: "mysql".to_owned(), ..ann };
    MARIADB.refuses(&closed, &["Access denied", "use the database"]);
}

#[test]
fn it_is_reached_by_a_unix_socket() {
    let Some(world) = MARIADB.start(Durability::None) else { return };
    is_whole_by_a_socket(&MARIADB, &common::by_socket(&world));
}

#[test]
fn what_fails_half_way_is_rolled_back() {
    inventory::half_way(&MARIADB, |world, place| {
        let (database, stock) = (&place.namespace, place.object("stock"));
        let refuse = format!(
            "CREATE TRIGGER {database}.no_{stock} BEFORE UPDATE ON {database}.{stock} FOR EACH ROW
             IF NEW.warehouse > 1 AND NEW.`count` < OLD.`count` THEN SIGNAL SQLSTATE '45000'; END IF"
        );
        execute(world.address(), &refuse);
    });
}
