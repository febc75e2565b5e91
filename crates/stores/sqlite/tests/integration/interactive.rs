//! Interactive transactions on files of the tests' own.

use acidtest_model::{Durability, Isolation};
use acidtest_store_sqlite::Sqlite;
use acidtest_testbed::{
    World,
    interactive::{self, Play, levels, lost_update, mode, rows, write_skew},
    wait,
};
use acidtest_workloads::{Store, interactive::Reply};

use crate::common::SQLITE;

const UNCOMMITTED: &str = "read uncommitted, shared cache";
const IMMEDIATE: &str = "serializable, begin immediate";

/// The level whose journal is a rollback journal, and the one with a write-ahead log. They differ in who waits for whom.
const ROLLBACK: Durability = Durability::None;
const AHEAD: Durability = Durability::Process;

/// Checks a file with each kind of journal.
fn with_each_journal(check: &impl AsyncFn(&World<Sqlite>)) {
    for level in [ROLLBACK, AHEAD] {
        with(level, check);
    }
}

fn with(level: Durability, check: &impl AsyncFn(&World<Sqlite>)) {
    let world = SQLITE.start(level).unwrap();
    wait(check(&world));
}

async fn play<'a>(world: &'a World<Sqlite>, name: &str) -> Play<'a> {
    Play::begin(&world.store, mode(world.store.interactive().unwrap(), name).await, 2).await
}

#[track_caller]
fn refused(reply: &Reply, why: &str) {
    assert!(matches!(reply, Reply::Refused(said) if said.contains(why)), "{reply:?}, not for {why}");
}

#[test]
fn every_mode_commits_and_rolls_back() {
    for level in [ROLLBACK, AHEAD] {
        interactive::every_mode(&SQLITE, &SQLITE.start(level).unwrap().store);
    }
}

#[test]
fn the_level_is_read_back() {
    with_each_journal(&async |world| {
        let expected = [
            // no level that a session can ask for: its connections must share a cache
            (UNCOMMITTED, None),
            ("serializable", Some(Isolation::Serializable)),
            (IMMEDIATE, Some(Isolation::Serializable)),
        ];
        levels(world.store.interactive().unwrap(), &expected).await;
        for (name, set) in [(UNCOMMITTED, 1), ("serializable", 0), (IMMEDIATE, 0)] {
            let mut play = play(world, name).await;
            let level = play.of(0).level().to_owned();
            assert!(level.starts_with(&format!("read_uncommitted = {set}, journal_mode = ")), "{level}");
            play.end().await;
        }
    });
}

#[test]
fn only_a_shared_cache_shows_what_is_not_committed() {
    with_each_journal(&async |world| {
        for (name, read) in [(UNCOMMITTED, 11), ("serializable", 10)] {
            let mut play = play(world, name).await;
            play.does(0, "begin").await;
            play.does(0, "update test set value = 11 where id = 1").await;
            let seen = play.does(1, "select * from test").await;
            assert_eq!(seen, rows(&[(1, read), (2, 20)]), "{name}");
            play.end().await;
        }
    });
}

#[test]
fn a_write_beside_another_s_is_refused_at_once() {
    with_each_journal(&async |world| {
        for (name, why) in [(UNCOMMITTED, "SQLITE_LOCKED"), ("serializable", "SQLITE_BUSY")] {
            let mut play = play(world, name).await;
            play.does(0, "begin").await;
            play.does(1, "begin").await;
            play.does(0, "update test set value = 11 where id = 1").await;
            refused(&play.run(1, "update test set value = 22 where id = 2").await, why);
            play.does(1, "rollback").await;
            play.does(0, "commit").await;
            assert_eq!(play.rows().await, rows(&[(1, 11), (2, 20)]), "{name}");
            play.end().await;
        }
    });
}

#[test]
fn a_second_transaction_that_begins_immediately_is_refused() {
    with_each_journal(&async |world| {
        let mut play = play(world, IMMEDIATE).await;
        play.does(0, "begin").await;
        refused(&play.run(1, "BEGIN;").await, "SQLITE_BUSY");
        play.end().await;
    });
}

#[test]
fn serializable_transactions_lose_no_update_and_do_not_skew() {
    with_each_journal(&async |world| {
        for skews in [true, false] {
            let mut play = play(world, "serializable").await;
            let replies = if skews { write_skew(&mut play).await } else { lost_update(&mut play).await };
            assert_eq!(replies[0], Reply::Done(Some(1)));
            refused(&replies[1], "SQLITE_BUSY");
            assert_eq!([&replies[2], &replies[3]], [&Reply::Done(None); 2]);
            assert_eq!(play.rows().await, rows(&[(1, 11), (2, 20)]));
            play.end().await;
        }
    });
}

/// With a write-ahead log others go on writing meanwhile. With a rollback journal their commit is refused.
#[test]
fn what_was_read_before_others_wrote_is_too_old_to_write_on() {
    with(AHEAD, &async |world| {
        let mut play = play(world, "serializable").await;
        play.does(0, "begin").await;
        play.does(0, "select * from test").await;
        play.does(1, "update test set value = 21 where id = 2").await;
        assert_eq!(play.does(0, "select * from test").await, rows(&[(1, 10), (2, 20)]));
        refused(&play.run(0, "update test set value = 11 where id = 1").await, "SQLITE_BUSY_SNAPSHOT");
        play.end().await;
    });
    with(ROLLBACK, &async |world| {
        let mut play = play(world, "serializable").await;
        play.does(0, "begin").await;
        play.does(0, "select * from test").await;
        play.does(1, "begin").await;
        play.does(1, "update test set value = 21 where id = 2").await;
        refused(&play.run(1, "commit").await, "SQLITE_BUSY");
        play.does(0, "update test set value = 11 where id = 1").await;
        play.does(0, "commit").await;
        assert_eq!(play.rows().await, rows(&[(1, 11), (2, 20)]));
        play.end().await;
    });
}

#[test]
fn replies_tell_values_changes_and_constraints() {
    with_each_journal(&async |world| {
        let mut play = play(world, "serializable").await;
        assert_eq!(play.run(0, "update test set value = 1").await, Reply::Done(Some(2)));
        assert_eq!(play.run(0, "begin").await, Reply::Done(None));
        assert_eq!(play.run(0, "update test set value = 1 where id = 9").await, Reply::Done(Some(0)));
        let values = play.run(0, "select null, 1.5, 'a', count(*) from test").await;
        assert_eq!(values, Reply::Rows(vec![["NULL", "1.5", "a", "2"].map(str::to_owned).to_vec()]));
        refused(&play.run(0, "insert into test values (1, 1)").await, "UNIQUE constraint failed");
        let ended = play.run(0, "commit").await;
        assert!(matches!(ended, Reply::Failed(_)), "the transaction is over: {ended:?}");
        play.end().await;
    });
}
