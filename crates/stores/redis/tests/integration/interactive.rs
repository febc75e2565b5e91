//! Interactive transactions on real servers.

use acidtest_model::Durability;
use acidtest_store_redis::Redis;
use acidtest_testbed::{
    NAMESPACE, Private,
    interactive::{self, Play, levels, lost_update, mode, rows, write_skew},
    wait,
};
use acidtest_workloads::{Store, interactive::Reply};

use crate::REDIS;

const DONE: Reply = Reply::Done(None);
const ONE: Reply = Reply::Done(Some(1));

async fn play<'a>(store: &'a Redis, name: &str) -> Play<'a> {
    Play::begin(store, mode(store.interactive().unwrap(), name).await, 2).await
}

/// Runs a check on a server that others share.
fn with(check: &impl AsyncFn(&Redis)) {
    let Some(world) = REDIS.share() else { return };
    wait(async {
        world.store.create(NAMESPACE, "run 1").await.unwrap();
        check(&world.store).await;
        world.store.remove(NAMESPACE).await.unwrap();
    });
}

#[track_caller]
fn refused(reply: &Reply) {
    assert!(matches!(reply, Reply::Refused(why) if why.starts_with("EXEC returned nil")), "{reply:?}");
}

#[test]
fn every_mode_commits_and_rolls_back() {
    REDIS.passes(&[interactive::every_mode]);
}

#[test]
fn no_mode_is_a_level() {
    with(&async |store| {
        levels(store.interactive().unwrap(), &[("MULTI", None), ("WATCH", None)]).await;
        let mut play = play(store, "WATCH").await;
        assert_eq!(play.of(0).level(), "");
        play.end().await;
    });
}

#[test]
fn only_what_is_watched_is_not_lost_and_does_not_skew() {
    with(&async |store| {
        for skews in [true, false] {
            for name in ["MULTI", "WATCH"] {
                let mut play = play(store, name).await;
                let [first, second, committed, other] =
                    if skews { write_skew(&mut play).await } else { lost_update(&mut play).await };
                assert_eq!([first, second, committed], [DONE, DONE, ONE], "{name}");
                if name == "MULTI" {
                    assert_eq!(other, ONE);
                    let both = if skews { [(1, 11), (2, 21)] } else { [(1, 12), (2, 20)] };
                    assert_eq!(play.rows().await, rows(&both));
                } else {
                    refused(&other);
                    assert_eq!(play.rows().await, rows(&[(1, 11), (2, 20)]));
                }
                play.end().await;
            }
        }
    });
}

#[test]
fn a_row_that_was_not_there_is_watched_with_the_ids() {
    with(&async |store| {
        let mut play = play(store, "WATCH").await;
        for (session, id) in [(0, 3), (1, 4)] {
            play.does(session, "begin").await;
            play.does(session, "select * from test").await;
            play.does(session, &format!("insert into test values ({id}, 30)")).await;
        }
        assert_eq!(play.run(0, "commit").await, ONE);
        refused(&play.run(1, "commit").await);
        assert_eq!(play.rows().await, rows(&[(1, 10), (2, 20), (3, 30)]));
        play.end().await;
    });
}

#[test]
fn a_rollback_stops_watching_and_so_does_a_commit_that_writes_nothing() {
    with(&async |store| {
        for end in ["rollback", "commit"] {
            let mut play = play(store, "WATCH").await;
            play.does(0, "begin").await;
            assert_eq!(play.does(0, "select * from test where id = 1").await, rows(&[(1, 10)]));
            play.does(0, end).await;
            play.does(1, "update test set value = 11 where id = 1").await;
            play.does(0, "begin").await;
            play.does(0, "update test set value = value + 5 where id = 2").await;
            assert_eq!(play.run(0, "commit").await, ONE, "after {end}");
            play.end().await;
        }
    });
}

/// Else it could have read one row from before another transaction, and the next from after it.
#[test]
fn a_transaction_that_only_read_is_refused_too_if_that_was_changed() {
    with(&async |store| {
        for (mode, is_refused) in [("WATCH", true), ("MULTI", false)] {
            let mut play = play(store, mode).await;
            play.does(0, "begin").await;
            play.does(0, "select * from test where id = 1").await;
            play.does(1, "update test set value = 11 where id = 1").await;
            let committed = play.run(0, "commit").await;
            assert_eq!(matches!(committed, Reply::Refused(_)), is_refused, "{mode}: {committed:?}");
            play.end().await;
        }
    });
}

#[test]
fn a_transaction_reads_what_the_server_has_and_not_what_it_keeps_itself() {
    with(&async |store| {
        let mut play = play(store, "MULTI").await;
        play.does(0, "begin").await;
        play.does(0, "update test set value = 11 where id = 1").await;
        assert_eq!(play.does(0, "select * from test where id = 1").await, rows(&[(1, 10)]));
        play.does(1, "update test set value = 12 where id = 1").await;
        assert_eq!(play.does(0, "select * from test where id in (9, 1)").await, rows(&[(1, 12)]));
        play.does(0, "delete from test where id = 2").await;
        assert_eq!(play.run(0, "commit").await, Reply::Done(Some(2)));
        assert_eq!(play.rows().await, rows(&[(1, 11)]));
        play.end().await;
    });
}

#[test]
fn an_insert_of_what_is_there_is_refused_and_undoes_nothing_of_its_transaction() {
    with(&async |store| {
        let mut play = play(store, "MULTI").await;
        let taken = play.run(0, "insert into test values (1, 99)").await;
        assert!(matches!(&taken, Reply::Refused(why) if why.contains("id 1 already")), "{taken:?}");
        for statement in
            ["begin", "insert into test values (1, 99)", "update test set value = 21 where id = 2"]
        {
            play.does(0, statement).await;
        }
        let failed = play.run(0, "commit").await;
        assert!(matches!(&failed, Reply::Failed(why) if why.contains("undoes nothing")), "{failed:?}");
        assert_eq!(play.rows().await, rows(&[(1, 10), (2, 21)]));
        play.end().await;
    });
}

#[test]
fn conditions_on_values_are_refused_with_the_reason() {
    with(&async |store| {
        let interactive = store.interactive().unwrap();
        let mode = mode(interactive, "WATCH").await;
        for statement in ["select * from test where value % 3 = 0", "delete from test where value = 20"] {
            let why = interactive.refuses(&mode, statement).unwrap();
            assert!(why.starts_with("Redis has no predicates"), "{why}");
            let mut play = Play::begin(store, mode.clone(), 1).await;
            assert_eq!(play.run(0, statement).await, Reply::Failed(why));
            play.end().await;
        }
    });
}

#[test]
fn what_a_server_that_is_gone_has_done_is_unknown() {
    let Some(mut private) = Private::start("redis", Durability::None) else { return };
    let store = private.open(Redis::open);
    wait(async {
        let mut play = play(&store, "WATCH").await;
        for session in [0, 1] {
            play.does(session, "begin").await;
            play.does(session, "update test set value = 11 where id = 1").await;
        }
        private.kill();
        for (session, statement) in [(0, "commit"), (1, "select * from test where id = 1")] {
            let reply = play.run(session, statement).await;
            assert!(matches!(reply, Reply::Unknown(_)), "{statement}: {reply:?}");
        }
    });
}
