//! The stores on Oracle's MySQL.

use acidtest_model::{Address, Durability};
use acidtest_store_mariadb::Variant;
use acidtest_testbed::{inventory, join, login, parcels, queue, records, wait, wanted};
use acidtest_workloads::{Owner, Store};

use crate::common::{self, MARIADB, MYSQL, MYSQL_MYISAM, execute};

/// All checks run on one server, as this one takes ten seconds to be prepared.
#[test]
fn innodb_carries_every_workload_and_holds_under_contention() {
    MYSQL.passes(&[
        records::mixes,
        records::transactions,
        records::large,
        records::contention,
        inventory::contention,
        inventory::replay,
        queue::both,
        join::finds_its_rows,
        join::is_explained,
    ]);
}

#[test]
fn innodb_keeps_what_was_acknowledged() {
    records::kills(&MYSQL);
}

#[test]
fn innodb_counts_scans() {
    MYSQL.passes(&[
        parcels::modes,
        parcels::contention,
        parcels::batches,
        parcels::eighths,
        parcels::index_none,
        parcels::large,
    ]);
}

#[test]
fn myisam_counts_scans() {
    MYSQL_MYISAM.passes(&[parcels::modes, parcels::contention, parcels::batches, parcels::large]);
}

#[test]
fn each_durability_is_read_back() {
    inventory::levels(&MYSQL, |world, effective| {
        let level = effective.durability.level().unwrap();
        if MYSQL_MYISAM.kind.durability(level).is_yes() {
            let myisam = wait(Variant::MYSQL_MYISAM.open(world.address())).unwrap();
            inventory::read_back(&MYSQL_MYISAM.kind, level, &wait(myisam.effective()).unwrap());
        }
        assert!(effective.settings.contains_key("transaction_isolation"), "{effective:?}");
        if effective.durability == Durability::Disk {
            // what a server that syncs its log has lost all the same
            for (weaken, mend) in [
                (
                    "SET GLOBAL innodb_doublewrite = DETECT_ONLY",
                    "SET GLOBAL innodb_doublewrite = DETECT_AND_RECOVER",
                ),
                ("ALTER INSTANCE DISABLE INNODB REDO_LOG", "ALTER INSTANCE ENABLE INNODB REDO_LOG"),
            ] {
                execute(world.address(), weaken);
                let effective = wait(world.store.effective()).unwrap();
                assert_eq!(effective.durability, Durability::None, "{weaken}: {}", effective.because);
                execute(world.address(), mend);
                let effective = wait(world.store.effective()).unwrap();
                assert_eq!(effective.durability, Durability::Disk, "{mend}: {}", effective.because);
            }
        }
    });
}

#[test]
fn myisam_carries_records_and_joins_and_holds() {
    MYSQL_MYISAM.passes(&[
        records::mixes,
        records::contention,
        records::large,
        join::finds_its_rows,
        join::is_explained,
    ]);
}

/// A user who asks for one product's store on the other's server is told the address to write, as the two
/// have different guarantees.
#[test]
fn the_other_product_s_server_is_refused_with_the_address_to_write() {
    // the test needs a server of each product, or is left out
    if !wanted("mariadb") {
        return;
    }
    let Some(mysql) = MYSQL.start(Durability::None) else { return };
    let Some(mariadb) = MARIADB.start(Durability::None) else { return };
    let written = |scheme: &str, address: &Address| Address { scheme: scheme.to_owned(), ..address.clone() };
    MARIADB.refuses(&written("mariadb", mysql.address()), &["MySQL", "write mysql://"]);
    MYSQL_MYISAM
        .refuses(&written("mysql+myisam", mariadb.address()), &["MariaDB", "write mariadb+myisam://"]);
}

/// MySQL's own way to log in: the first login of a user with a password asks for the server's key, as the
/// connection is not encrypted; later ones are answered from the server's cache.
#[test]
fn users_log_in_by_caching_sha2_with_and_without_a_password() {
    let Some(world) = MYSQL.start(Durability::None) else { return };
    let root = world.address();
    for (user, password) in [("ann", "right"), ("bob", "")] {
        let create = "CREATE USER {}@'127.0.0.1' IDENTIFIED WITH caching_sha2_password BY";
        execute(root, &format!("{} '{password}'", create.replace("{}", user)));
        for _ in 0..2 {
            wait(Variant::MYSQL.open(&login(root, user, Some(password)))).unwrap();
        }
    }
    MYSQL.refuses(
        &login(root, "ann", Some("hunter2")),
        &["Access denied", "check user and password: mysql://"],
    );
    // along a Unix socket, along which nobody reads, the server asks for the password itself
    let socket = common::by_socket(&world);
    execute(root, "CREATE USER eve@localhost IDENTIFIED WITH caching_sha2_password BY 'right'");
    for _ in 0..2 {
        wait(Variant::MYSQL.open(&login(&socket, "eve", Some("right")))).unwrap();
    }
    MYSQL.refuses(&login(&socket, "eve", Some("hunter2")), &["Access denied"]);
    a_prepared_database_is_used_and_stays(root);
    is_told_that_it_only_reads(root);
}

/// By a user who may not make one.
fn a_prepared_database_is_used_and_stays(root: &Address) {
    execute(root, "CREATE DATABASE theirs CHARACTER SET utf8mb4; GRANT ALL ON theirs.* TO bob@'127.0.0.1'");
    let store = wait(Variant::MYSQL.open(&login(root, "bob", None))).unwrap();
    assert!(wait(store.create("another", "run 1")).is_err());
    for run in ["run 1", "run 2"] {
        assert_eq!(wait(store.owner("theirs")).unwrap(), Owner::Prepared);
        wait(store.create("theirs", run)).unwrap();
        assert_eq!(wait(store.owner("theirs")).unwrap(), Owner::Run(run.to_owned()));
        execute(root, "CREATE TABLE theirs.stock_0 (a int)");
        wait(store.remove("theirs")).unwrap();
    }
    assert_eq!(wait(store.owner("theirs")).unwrap(), Owner::Prepared);
}

fn is_told_that_it_only_reads(root: &Address) {
    let store = wait(Variant::MYSQL.open(root)).unwrap();
    let said = || wait(store.create("another", "run 1")).unwrap_err().to_string();
    execute(root, "SET GLOBAL super_read_only = ON");
    let own = said();
    assert!(own.contains("takes no writes: it is read-only (super_read_only=ON)"), "{own}");
    execute(root, "SET GLOBAL super_read_only = OFF");
    execute(
        root,
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = 1, SOURCE_USER = 'ann'",
    );
    execute(root, "SET GLOBAL super_read_only = ON");
    let replica = said();
    assert!(replica.contains("takes no writes: it is a replica of 127.0.0.1:1\n"), "{replica}");
    assert!(replica.contains("remedy: give the address of its primary"), "{replica}");
}

#[test]
fn myisam_keeps_what_was_acknowledged() {
    records::kills_and_repairs(&MYSQL_MYISAM);
}

/// What is slow and rarely breaks, for `./check --all`.
mod slow {
    use super::{MYSQL, parcels};

    #[test]
    #[ignore = "slow: ./check --all"]
    fn innodb_keeps_acknowledged_scans() {
        parcels::kills(&MYSQL);
    }
}
