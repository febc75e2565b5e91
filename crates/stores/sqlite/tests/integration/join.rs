//! The join workload on files of the tests' own.

use crate::common::SQLITE;
use acidtest_model::Address;
use acidtest_store_sqlite::Sqlite;
use acidtest_testbed::join;
use acidtest_workloads::{
    LoadProgress, Place, Store,
    join::{JoinStore, Parameters},
};
use rusqlite::Connection;

#[test]
fn both_orders_find_their_rows() {
    SQLITE.passes(&[join::finds_its_rows]);
}

#[test]
fn the_first_join_begins_once_and_is_explained() {
    SQLITE.passes(&[join::is_explained]);
}

/// Names of all tables and other objects in a file.
fn objects(file: &str) -> Vec<String> {
    let connection = Connection::open(file).unwrap();
    let mut names = connection.prepare("SELECT name FROM sqlite_schema ORDER BY name").unwrap();
    names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[test]
fn statistics_go_with_the_tables_and_those_of_others_stay() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for theirs in ["CREATE TABLE t (a)", "CREATE TABLE t (a); INSERT INTO t VALUES (1); ANALYZE"] {
        let file = folder.path().join(theirs.len().to_string());
        let file = file.to_str().unwrap();
        Connection::open(file).unwrap().execute_batch(theirs).unwrap();
        let before = objects(file);
        let store = Sqlite::open(&Address::file("sqlite", file), None).unwrap();
        let parameters = Parameters { records: 100, ..Parameters::default() };
        let place = Place { namespace: "acidtest".to_owned(), trial: 1 };
        let (layout, ext) = (parameters.layout(), parameters.ext());
        runtime.block_on(JoinStore::load(&store, &place, &layout, &ext, &LoadProgress::default())).unwrap();
        assert!(objects(file).contains(&"sqlite_stat1".to_owned()));
        runtime.block_on(JoinStore::unload(&store, &place)).unwrap();
        assert_eq!(objects(file), before);
    }
}

#[test]
fn a_file_of_ours_goes_with_its_namespace_statistics_and_all() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ours");
    let store = Sqlite::open(&Address::file("sqlite", file.to_str().unwrap()), None).unwrap();
    let parameters = Parameters { records: 100, ..Parameters::default() };
    let place = Place { namespace: "acidtest".to_owned(), trial: 1 };
    runtime.block_on(store.create("acidtest", "run 1")).unwrap();
    let (layout, ext) = (parameters.layout(), parameters.ext());
    runtime.block_on(JoinStore::load(&store, &place, &layout, &ext, &LoadProgress::default())).unwrap();
    runtime.block_on(store.remove("acidtest")).unwrap();
    assert!(!file.exists());
}
