//! Transactions of several statements, on real servers.

use acidtest_model::Durability;
use acidtest_store_tarantool::Tarantool;
use acidtest_testbed::{
    NAMESPACE, Private,
    interactive::{self, Play, levels, lost_update, mode, rows, write_skew},
    wait,
};
use acidtest_workloads::{Store, interactive::Reply};

use crate::TARANTOOL;

const DONE: Reply = Reply::Done(None);
const ONE: Reply = Reply::Done(Some(1));

async fn play(store: &Tarantool) -> Play<'_> {
    Play::begin(store, mode(store.interactive().unwrap(), "stored call").await, 2).await
}

/// Runs a check on a server that others share.
fn with(check: &impl AsyncFn(&Tarantool)) {
    let Some(world) = TARANTOOL.share() else { return };
    wait(async {
        world.store.create(NAMESPACE, "run 1").await.unwrap();
        check(&world.store).await;
        world.store.remove(NAMESPACE).await.unwrap();
    });
}

#[test]
fn every_mode_commits_and_rolls_back() {
    TARANTOOL.passes(&[interactive::every_mode]);
}

#[test]
fn its_mode_is_no_level_and_says_why_there_is_no_other() {
    with(&async |store| {
        let interactive = store.interactive().unwrap();
        levels(interactive, &[("stored call", None)]).await;
        let why = interactive.refuses(&mode(interactive, "stored call").await, "lock table test").unwrap();
        assert!(why.contains("\"lock\" is not") && why.contains("streams of 2.10"), "{why}");
        let mut play = play(store).await;
        assert_eq!(play.of(0).level(), "");
        play.end().await;
    });
}

#[test]
fn what_a_transaction_reads_is_told_at_its_commit_with_the_numbers_of_statements() {
    with(&async |store| {
        let mut play = play(store).await;
        play.does(0, "begin").await;
        assert_eq!(play.run(0, "select * from test where id in (2, 1, 2)").await, DONE);
        assert_eq!(play.run(0, "update test set value = value + 1 where id = 1").await, DONE);
        let wrong = play.run(0, "selectt").await;
        assert!(matches!(wrong, Reply::Failed(_)), "{wrong:?}");
        assert_eq!(play.run(0, "select * from test where value % 3 = 0").await, DONE);
        assert_eq!(play.run(0, "select id, value from test where value = 11").await, DONE);
        assert_eq!(play.run(0, "delete from test where id = 9").await, DONE);
        play.does(1, "update test set value = 30 where id = 2").await;
        assert_eq!(play.of(0).late(), [], "nothing is known yet");
        assert_eq!(play.run(0, "commit").await, DONE);
        let late = [
            (1, rows(&[(1, 10), (2, 30)])),
            (2, ONE),
            (4, rows(&[(2, 30)])),
            (5, rows(&[(1, 11)])),
            (6, Reply::Done(Some(0))),
        ];
        assert_eq!(play.of(0).late(), late);
        assert_eq!(play.of(0).late(), [], "it is told once");
        play.end().await;
    });
}

/// Nothing is read before the commit, so that no statement can rest on what was read: both are right, one after the other.
#[test]
fn transactions_that_cross_are_carried_out_one_after_the_other() {
    with(&async |store| {
        for skews in [true, false] {
            let mut play = play(store).await;
            let replies = if skews { write_skew(&mut play).await } else { lost_update(&mut play).await };
            assert_eq!(replies, [DONE, DONE, DONE, DONE]);
            let second = play.of(1).late();
            assert_eq!(second[0], (1, rows(&[(1, 11), (2, 20)])), "it has read what the first one wrote");
            let both = if skews { [(1, 11), (2, 21)] } else { [(1, 12), (2, 20)] };
            assert_eq!(play.rows().await, rows(&both));
            play.end().await;
        }
    });
}

#[test]
fn a_transaction_with_a_duplicate_key_is_refused_whole() {
    with(&async |store| {
        let mut play = play(store).await;
        for statement in
            ["begin", "update test set value = 11 where id = 1", "insert into test values (2, 2)"]
        {
            play.does(0, statement).await;
        }
        let refused = play.run(0, "commit").await;
        assert!(matches!(&refused, Reply::Refused(why) if why.contains("Duplicate key")), "{refused:?}");
        assert_eq!(play.of(0).late(), []);
        assert_eq!(play.rows().await, rows(&[(1, 10), (2, 20)]));
        play.end().await;
    });
}

#[test]
fn what_a_server_that_is_gone_has_done_is_unknown() {
    let Some(mut private) = Private::start("tarantool", Durability::None) else { return };
    let store = private.open(Tarantool::open);
    wait(async {
        let mut play = play(&store).await;
        play.does(0, "begin").await;
        play.does(0, "update test set value = 11 where id = 1").await;
        private.kill();
        for (session, statement) in [(0, "commit"), (1, "select * from test where id = 1")] {
            let reply = play.run(session, statement).await;
            assert!(matches!(reply, Reply::Unknown(_)), "{statement}: {reply:?}");
        }
    });
}
