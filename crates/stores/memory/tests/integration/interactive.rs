//! Interactive transactions: each level allows what it should and no more, and each planted mode one anomaly more.

use std::{
    future::{Future, ready},
    pin::pin,
    time::Duration,
};

use acidtest_model::Isolation;
use acidtest_store_memory::{Anomaly, KIND, Memory};
use acidtest_testbed::{
    AfterRemoval, Subject,
    interactive::{self, Play, commits_and_rolls_back, mode, rows},
    wait,
};
use acidtest_workloads::{
    Store,
    interactive::{Mode, Reply},
};

static MEMORY: Subject<Memory> =
    Subject { kind: KIND, open: |_, _| Box::pin(ready(Ok(Memory::default()))), gone: AfterRemoval::Empty };

const ONE: Reply = Reply::Done(Some(1));
const DONE: Reply = Reply::Done(None);

async fn modes(store: &Memory) -> Vec<Mode> {
    [store.interactive().unwrap().modes().await.unwrap(), Anomaly::modes()].concat()
}

/// The reply, if it comes without a wait.
async fn at_once<T>(reply: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(Duration::ZERO, reply).await.ok()
}

/// Whether a script shows the anomaly: all its statements are done, and its last read sees these rows.
struct Script {
    anomaly: Anomaly,
    statements: &'static [(usize, &'static str)],
    sees: &'static [(i64, i64)],
}

const READ_BOTH: &str = "select * from test where id in (1, 2)";
const FIND: &str = "select * from test where value % 3 = 0";
const WRITE: &str = "update test set value = 11 where id = 1";

const SCRIPTS: [Script; 8] = [
    Script {
        anomaly: Anomaly::DirtyWrite,
        statements: &[
            (0, "begin"),
            (1, "begin"),
            (0, WRITE),
            (1, "update test set value = 12 where id = 1"),
            (1, "update test set value = 22 where id = 2"),
            (1, "commit"),
            (0, "update test set value = 21 where id = 2"),
            (0, "commit"),
            (2, READ_BOTH),
        ],
        sees: &[(1, 12), (2, 21)],
    },
    Script {
        anomaly: Anomaly::DirtyRead,
        statements: &[(0, "begin"), (0, WRITE), (1, "begin"), (1, READ_BOTH)],
        sees: &[(1, 11), (2, 20)],
    },
    Script {
        anomaly: Anomaly::AbortedRead,
        statements: &[(0, "begin"), (0, WRITE), (0, "rollback"), (1, READ_BOTH)],
        sees: &[(1, 11), (2, 20)],
    },
    Script {
        anomaly: Anomaly::IntermediateRead,
        statements: &[
            (0, "begin"),
            (0, "update test set value = 101 where id = 1"),
            (0, WRITE),
            (0, "commit"),
            (1, READ_BOTH),
        ],
        sees: &[(1, 101), (2, 20)],
    },
    Script {
        anomaly: Anomaly::LostUpdate,
        statements: &[
            (0, "begin"),
            (1, "begin"),
            (0, READ_BOTH),
            (1, READ_BOTH),
            (0, WRITE),
            (0, "commit"),
            (1, "update test set value = 12 where id = 1"),
            (1, "commit"),
            (2, READ_BOTH),
        ],
        sees: &[(1, 12), (2, 20)],
    },
    Script {
        anomaly: Anomaly::ReadSkew,
        statements: &[
            (0, "begin"),
            (0, "select * from test where id = 1"),
            (1, "update test set value = value + 5"),
            (0, "select * from test where id = 2"),
        ],
        sees: &[(2, 25)],
    },
    Script {
        anomaly: Anomaly::WriteSkew,
        statements: &[
            (0, "begin"),
            (1, "begin"),
            (0, READ_BOTH),
            (1, READ_BOTH),
            (0, WRITE),
            (1, "update test set value = 21 where id = 2"),
            (0, "commit"),
            (1, "commit"),
            (2, READ_BOTH),
        ],
        sees: &[(1, 11), (2, 21)],
    },
    Script {
        anomaly: Anomaly::Phantom,
        statements: &[
            (0, "begin"),
            (1, "begin"),
            (0, FIND),
            (1, FIND),
            (0, "insert into test values (3, 30)"),
            (1, "insert into test values (4, 60)"),
            (0, "commit"),
            (1, "commit"),
            (2, FIND),
        ],
        sees: &[(3, 30), (4, 60)],
    },
];

impl Script {
    async fn shows(&self, store: &Memory, mode: &Mode) -> bool {
        let mut play = Play::begin(store, mode.clone(), 3).await;
        let mut last = None;
        for (session, statement) in self.statements {
            last = at_once(play.run(*session, statement)).await;
            if !matches!(last, Some(Reply::Done(_) | Reply::Rows(_))) {
                break;
            }
        }
        play.end().await;
        last == Some(rows(self.sees))
    }
}

/// Whether a level without a planted anomaly allows it.
fn allows(level: Isolation, anomaly: Anomaly) -> bool {
    match anomaly {
        Anomaly::DirtyWrite | Anomaly::AbortedRead | Anomaly::IntermediateRead => false,
        Anomaly::DirtyRead => level == Isolation::ReadUncommitted,
        Anomaly::LostUpdate | Anomaly::ReadSkew => level <= Isolation::ReadCommitted,
        Anomaly::WriteSkew | Anomaly::Phantom => level <= Isolation::RepeatableRead,
    }
}

#[test]
fn each_level_allows_what_it_should_and_each_planted_mode_one_anomaly_more() {
    wait(async {
        let store = Memory::default();
        let modes = modes(&store).await;
        assert_eq!(modes.len(), Isolation::ALL.len() + Anomaly::ALL.len());
        for mode in modes {
            let level = mode.level.unwrap();
            for script in SCRIPTS {
                let is_planted = mode.name == script.anomaly.mode();
                assert!(!is_planted || !allows(level, script.anomaly), "{}: it is allowed anyway", mode.name);
                let expected = is_planted || allows(level, script.anomaly);
                let shown = script.shows(&store, &mode).await;
                assert_eq!(shown, expected, "{}: {:?}", mode.name, script.anomaly);
            }
        }
    });
}

#[test]
fn every_mode_commits_and_rolls_back() {
    wait(async {
        let store = Memory::default();
        for mode in modes(&store).await {
            if mode.name != Anomaly::AbortedRead.mode() {
                commits_and_rolls_back(&store, mode).await;
            }
        }
    });
}

#[test]
fn the_default_is_serializable_and_levels_are_told() {
    wait(async {
        let store = Memory::default();
        for mode in modes(&store).await {
            assert_eq!(mode.is_default, mode.name == "serializable", "{}", mode.name);
            let mut play = Play::begin(&store, mode.clone(), 1).await;
            assert_eq!(play.of(0).level(), mode.level.unwrap().sql());
            play.end().await;
        }
    });
}

#[test]
fn a_write_waits_for_another_s_and_the_monitor_tells() {
    wait(async {
        let store = Memory::default();
        let interactive = store.interactive().unwrap();
        let mut monitor = interactive.lock_monitor().await.unwrap().unwrap();
        for level in ["read uncommitted", "read committed", "repeatable read", "serializable"] {
            let mut play = Play::begin(&store, mode(interactive, level).await, 1).await;
            let mut other = play.session().await;
            let id = other.id();
            play.does(0, "begin").await;
            play.does(0, "update test set value = value + 1 where id = 1").await;
            let begin = other.run("begin").await;
            assert_eq!(begin, DONE);
            let write = play.of_table("update test set value = value + 1 where id = 1");
            {
                let mut waiting = pin!(other.run(&write));
                assert_eq!(at_once(&mut waiting).await, None, "{level}");
                assert_eq!(monitor.waiting().await.unwrap(), [id].into(), "{level}");
                play.does(0, "commit").await;
                let written = waiting.await;
                if level.starts_with("read") {
                    assert_eq!(written, ONE, "{level}");
                } else {
                    assert!(
                        matches!(&written, Reply::Refused(why) if why.contains("row 1 was changed")),
                        "{level}: {written:?}"
                    );
                }
            }
            assert_eq!(monitor.waiting().await.unwrap(), [].into(), "{level}");
            other.run("commit").await;
            let value = if level.starts_with("read") { 12 } else { 11 };
            assert_eq!(play.rows().await, rows(&[(1, value), (2, 20)]), "{level}: nothing is lost");
            play.end().await;
        }
    });
}

#[test]
fn who_would_wait_for_one_that_waits_for_it_is_refused() {
    wait(async {
        let store = Memory::default();
        let interactive = store.interactive().unwrap();
        let mut play = Play::begin(&store, mode(interactive, "read committed").await, 1).await;
        let mut other = play.session().await;
        play.does(0, "begin").await;
        other.run("begin").await;
        play.does(0, WRITE).await;
        assert_eq!(other.run(&play.of_table("update test set value = 22 where id = 2")).await, ONE);
        let write = play.of_table("update test set value = 12 where id = 1");
        {
            let mut waiting = pin!(other.run(&write));
            assert_eq!(at_once(&mut waiting).await, None);
            let refused = play.run(0, "update test set value = 21 where id = 2").await;
            assert!(matches!(&refused, Reply::Refused(why) if why.starts_with("deadlock")), "{refused:?}");
            assert_eq!(waiting.await, ONE);
        }
        assert_eq!(other.run("commit").await, DONE);
        assert_eq!(play.rows().await, rows(&[(1, 12), (2, 22)]));
        play.end().await;
    });
}

#[test]
fn a_wait_that_is_given_up_is_none_any_more() {
    wait(async {
        let store = Memory::default();
        let interactive = store.interactive().unwrap();
        let mut monitor = interactive.lock_monitor().await.unwrap().unwrap();
        let mut play = Play::begin(&store, mode(interactive, "serializable").await, 2).await;
        play.does(0, "begin").await;
        play.does(0, WRITE).await;
        assert_eq!(at_once(play.run(1, WRITE)).await, None);
        assert_eq!(monitor.waiting().await.unwrap(), [].into());
        play.does(1, "rollback").await;
        play.end().await;
    });
}

#[test]
fn the_same_checks_hold_as_of_other_stores() {
    MEMORY.passes(&[|_, store| {
        wait(async {
            let serializable = mode(store.interactive().unwrap(), "serializable").await;
            let mut play = Play::begin(store, serializable.clone(), 2).await;
            let [first, second, committed, refused] = interactive::write_skew(&mut play).await;
            assert_eq!([first, second, committed], [ONE, ONE, DONE]);
            assert!(matches!(&refused, Reply::Refused(why) if why.contains("row 1, which")), "{refused:?}");
            play.end().await;
            let mut play = Play::begin(store, serializable, 1).await;
            let taken = play.run(0, "insert into test values (1, 1)").await;
            assert!(matches!(&taken, Reply::Refused(why) if why.contains("id 1 already")), "{taken:?}");
            play.end().await;
        });
    }]);
}
