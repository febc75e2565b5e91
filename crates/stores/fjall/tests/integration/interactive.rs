//! Interactive transactions in folders of the tests' own.

use acidtest_model::{Durability, Isolation};
use acidtest_store_fjall::Fjall;
use acidtest_testbed::{
    World,
    interactive::{self, Play, levels, lost_update, mode, rows, write_skew},
    wait,
};
use acidtest_workloads::{
    Store,
    interactive::{Reply, Table},
};

use crate::common::FJALL;

const DONE: Reply = Reply::Done(None);

async fn play(world: &World<Fjall>) -> Play<'_> {
    Play::begin(&world.store, mode(world.store.interactive().unwrap(), "serializable").await, 2).await
}

fn with(check: &impl AsyncFn(&World<Fjall>)) {
    let world = FJALL.start(Durability::None).unwrap();
    wait(check(&world));
}

#[track_caller]
fn conflict(reply: &Reply) {
    assert!(matches!(reply, Reply::Refused(why) if why.starts_with("conflict: ")), "{reply:?}");
}

#[test]
fn every_mode_commits_and_rolls_back() {
    FJALL.passes(&[interactive::every_mode]);
}

#[test]
fn its_level_is_serializable_and_it_says_nothing_of_it() {
    with(&async |world| {
        levels(world.store.interactive().unwrap(), &[("serializable", Some(Isolation::Serializable))]).await;
        let mut play = play(world).await;
        assert_eq!(play.of(0).level(), "");
        play.end().await;
    });
}

#[test]
fn no_update_is_lost_and_none_skews_as_the_second_commit_is_refused() {
    with(&async |world| {
        for skews in [true, false] {
            let mut play = play(world).await;
            let [first, second, committed, refused] =
                if skews { write_skew(&mut play).await } else { lost_update(&mut play).await };
            assert_eq!([first, second, committed], [Reply::Done(Some(1)), Reply::Done(Some(1)), DONE]);
            conflict(&refused);
            assert_eq!(play.rows().await, rows(&[(1, 11), (2, 20)]));
            play.end().await;
        }
    });
}

#[test]
fn a_row_that_a_condition_would_have_found_is_a_conflict() {
    with(&async |world| {
        let mut play = play(world).await;
        for (session, id) in [(0, 3), (1, 4)] {
            play.does(session, "begin").await;
            let none = play.does(session, "select * from test where value % 3 = 0").await;
            assert_eq!(none, rows(&[]));
            play.does(session, &format!("insert into test values ({id}, 30)")).await;
        }
        assert_eq!(play.run(0, "commit").await, DONE);
        conflict(&play.run(1, "commit").await);
        play.end().await;
    });
}

#[test]
fn a_transaction_sees_the_data_as_it_began_and_what_it_wrote() {
    with(&async |world| {
        let mut play = play(world).await;
        play.does(0, "begin").await;
        play.does(1, "update test set value = value + 2 where id in (2, 1, 2)").await;
        assert_eq!(play.does(0, "select * from test").await, rows(&[(1, 10), (2, 20)]));
        play.does(0, "insert into test values (-3, 30)").await;
        assert_eq!(play.does(0, "select * from test").await, rows(&[(-3, 30), (1, 10), (2, 20)]));
        let taken = play.run(0, "insert into test values (1, 1)").await;
        assert!(matches!(&taken, Reply::Refused(why) if why.contains("a row with id 1")), "{taken:?}");
        assert_eq!(play.run(0, "commit").await, Reply::Failed("there is no transaction".to_owned()));
        assert_eq!(play.rows().await, rows(&[(1, 12), (2, 22)]));
        play.end().await;
    });
}

#[test]
fn what_is_no_table_of_numbers_and_no_statement_of_these_is_refused_with_the_reason() {
    with(&async |world| {
        let play = play(world).await;
        let store = world.store.interactive().unwrap();
        let mode = mode(store, "serializable").await;
        let why = store.refuses(&mode, "select count(*) from test").unwrap();
        assert!(why.contains("\"count\" is not"), "{why}");
        let place = acidtest_workloads::Place { namespace: "acidtest".to_owned(), trial: 8 };
        let days = Table { name: "t".to_owned(), columns: "id int, day date".to_owned(), rows: Vec::new() };
        let why = store.make_table(&place, &days).await.unwrap_err().to_string();
        assert!(why.contains("making a table") && why.contains("columns id and value"), "{why}");
        play.end().await;
    });
}
