//! The inventory workload on files of the tests' own.

use crate::common::SQLITE;
use acidtest_model::Address;
use acidtest_testbed::{NAMESPACE, inventory};
use rusqlite::Connection;

#[test]
fn each_lock_mode_keeps_its_promise_under_contention() {
    SQLITE.passes(&[inventory::contention]);
}

#[test]
fn a_replayed_sequence_ends_as_it_must() {
    SQLITE.passes(&[inventory::replay]);
}

#[test]
fn a_namespace_is_its_maker_s_and_nothing_else_goes_with_it() {
    inventory::namespaces(&SQLITE, &[NAMESPACE]);
}

#[test]
fn a_namespace_may_have_an_odd_name() {
    inventory::namespaces(&SQLITE, &inventory::NAMES);
}

#[test]
fn a_namespace_that_is_there_is_not_made_again() {
    inventory::occupied(&SQLITE);
}

#[test]
fn a_large_stock_is_read_back_whole() {
    SQLITE.passes(&[inventory::large_stock]);
}

#[test]
fn each_durability_is_read_back() {
    inventory::levels(&SQLITE, |_, effective| {
        for name in ["journal_mode", "synchronous"] {
            assert!(effective.settings.contains_key(name), "{effective:?}");
        }
    });
}

#[test]
fn what_fails_half_way_is_rolled_back() {
    inventory::half_way(&SQLITE, |world, place| {
        let stock = format!("{}:{}", place.namespace, place.object("stock"));
        let refuse = format!(
            "CREATE TRIGGER \"no {stock}\" BEFORE UPDATE ON \"{stock}\"
             WHEN NEW.warehouse > 1 AND NEW.count < OLD.count BEGIN SELECT RAISE(ABORT, 'no'); END"
        );
        Connection::open(&world.address().path).unwrap().execute_batch(&refuse).unwrap();
    });
}

#[test]
fn a_file_that_cannot_be_made_is_told_with_a_remedy() {
    let nowhere = Address::file("sqlite", "/nonexistent/folder/file");
    SQLITE.refuses(&nowhere, &["unable to open database file", "name a file that acidtest may create"]);
}
