//! The inventory workload and namespaces on fjall, each test in a folder of its own.

use std::{fs, path::Path};

use crate::common::FJALL;
use acidtest_model::Address;
use acidtest_store_fjall::Fjall;
use acidtest_testbed::{NAMESPACE, inventory};
use acidtest_workloads::{Owner, Store};

#[test]
fn each_lock_mode_keeps_its_promise_under_contention() {
    FJALL.passes(&[inventory::contention]);
}

#[test]
fn a_replayed_sequence_ends_as_it_must() {
    FJALL.passes(&[inventory::replay]);
}

#[test]
fn a_namespace_is_its_maker_s_and_nothing_else_goes_with_it() {
    inventory::namespaces(&FJALL, &[NAMESPACE]);
}

#[test]
fn a_namespace_may_have_an_odd_name() {
    inventory::namespaces(&FJALL, &inventory::NAMES);
}

#[test]
fn a_namespace_that_is_there_is_not_made_again() {
    inventory::occupied(&FJALL);
}

#[test]
fn a_large_stock_is_read_back_whole() {
    FJALL.passes(&[inventory::large_stock]);
}

#[test]
fn each_durability_is_read_back() {
    inventory::levels(&FJALL, |_, effective| {
        for name in ["persist", "cache_capacity"] {
            assert!(effective.settings.contains_key(name), "{effective:?}");
        }
    });
}

#[test]
fn a_folder_that_cannot_be_made_is_told_with_a_remedy() {
    let nowhere = Address::file("fjall", "/proc/nonexistent/folder");
    FJALL.refuses(&nowhere, &["No such file or directory", "name a folder that acidtest may create"]);
}

#[test]
fn a_folder_of_other_things_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("letter"), "dear").unwrap();
    FJALL.refuses(&address(folder.path()), &["holds no fjall database"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_database_that_is_open_elsewhere_is_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let _holder = fjall::Database::builder(folder.path()).open().unwrap();
    FJALL.refuses(&address(folder.path()), &["has the database open"]);
}

#[test]
fn a_folder_goes_with_its_namespace_only_if_we_made_it() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
    let options = fjall::KeyspaceCreateOptions::default;
    {
        let database = fjall::Database::builder(&theirs).open().unwrap();
        database.keyspace("orders", options).unwrap().insert("a", "b").unwrap();
        database.keyspace("mine:orders", options).unwrap();
    }
    for path in [&ours, &theirs] {
        let store = Fjall::open(&address(path), None).ok().unwrap();
        runtime.block_on(store.create("acidtest", "run 1")).unwrap();
        runtime.block_on(store.remove("acidtest")).unwrap();
    }
    assert!(!ours.exists());
    let store = Fjall::open(&address(&theirs), None).ok().unwrap();
    assert_eq!(runtime.block_on(store.owner("mine")).unwrap(), Owner::Stranger);
    drop(store);
    let database = fjall::Database::builder(&theirs).open().unwrap();
    assert_eq!(database.keyspace("orders", options).unwrap().get("a").unwrap().as_deref(), Some(&b"b"[..]));
}

fn address(path: &Path) -> Address {
    Address::file("fjall", path.to_str().unwrap())
}
