//! What replicas must not show is caught by the check that is meant for it; what they may show, and how old it is, is told as the store
//! knows it, and breaks nothing.

use acidtest_model::{Consistency, Lock, ReadPolicy, Reads, Replication, Route};
use acidtest_store_memory::{
    Bug, Faults,
    selftest::{Case, DrivenTrial},
};
use acidtest_workloads::{Audit, Staleness, Verdict};

use crate::common::{caught_as, judged};

/// A mix of all operations, most of them reads.
const ALL: &str = "read:6+update:2+insert:1+scan:1+rmw:1";

const FROM: [Reads; 2] = [Reads::Replica, Reads::Any];

/// The audit's count in which a bug must show.
fn meant_for(bug: Bug, route: Route) -> &'static str {
    match bug {
        Bug::HideOwn => "own_writes_missed",
        Bug::GoBack if route == Route::Pinned => "went_back",
        // whoever reads at several members may go back, to what was acknowledged
        Bug::LagBehind | Bug::GoBack => "stale_at_replica",
        Bug::ShowUncommitted => "vanished",
        Bug::TearAtReplica => "torn",
        Bug::LackAtReplica => "missing",
        bug => panic!("{bug:?} is no bug of replicas"),
    }
}

/// Drives a case; holds that the age of its reads is told as the store knows it.
#[track_caller]
fn driven(case: &Case, seed: u64) -> (DrivenTrial, Audit, Staleness, String) {
    let (driven, audit) = judged(case, seed);
    let ReadPolicy { from, route, .. } = case.reads;
    let shown = format!(
        "{}, lock {}, {from}, {route}, seed {seed}, {}: {audit}",
        case.faults, case.lock, driven.shown
    );
    assert_eq!(driven.misjudged_age(), None, "{shown}");
    let age = driven.audited.staleness.unwrap();
    (driven, audit, age, shown)
}

#[track_caller]
fn raises_no_alarm(case: &Case, seed: u64) -> Staleness {
    let (driven, audit, age, shown) = driven(case, seed);
    let is_async = case.faults.replication == Replication::Async;
    let of_others = audit.findings.iter().filter(|each| each.count > 0 && each.guarantee != "replication");
    assert_eq!(of_others.count(), 0, "{shown}");
    assert!(is_async || (audit.verdict == Verdict::Holds && driven.shown == 0), "{shown}");
    age
}

#[test]
fn every_bug_is_caught_by_the_check_that_is_meant_for_it() {
    for from in FROM {
        for route in Route::ALL {
            for bug in Bug::OF_STRONG_REPLICAS.into_iter().chain(Bug::OF_REPLICAS) {
                let case = Case::records(ALL, 1).with(Faults::bug(bug)).reading(from, route);
                let (driven, _) = caught_as(&case, 7, &[meant_for(bug, route)]);
                assert_eq!(driven.misjudged_age(), None);
            }
        }
    }
}

/// Whatever its replicas are promised to show, a store must not show there what is torn, missing or never committed.
#[test]
fn what_no_replica_may_show_is_caught_at_each_consistency() {
    for consistency in Consistency::ALL {
        for (bug, lock) in Bug::OF_REPLICAS.into_iter().zip([Lock::Soft, Lock::Hard, Lock::Native]) {
            let faults = Faults::replicas(consistency).with(bug);
            let case = Case::records(ALL, 1).under(lock).with(faults).reading(Reads::Replica, Route::Spread);
            let (_, audit) = caught_as(&case, 11, &[meant_for(bug, Route::Spread)]);
            assert!(audit.breaks_promise(&["consistency", "read-your-writes", "monotonic-reads"]), "{audit}");
        }
    }
}

/// At consistency eventual replicas are late, and that is counted only.
#[test]
fn replicas_that_are_late_are_no_fault_where_they_may_be() {
    let mut all = [0; 3];
    for seed in 0..6 {
        for from in FROM {
            for route in Route::ALL {
                for mix in ["b", "d", "read:2+insert:1", ALL] {
                    let case = Case::records(mix, 1).with(Faults::replicas(Consistency::Eventual));
                    let age = raises_no_alarm(&case.reading(from, route), seed);
                    let Staleness { reads, at_leader, stale, versions, milliseconds, .. } = age;
                    assert!(
                        reads > 0 && (at_leader > 0) <= (from == Reads::Any) && at_leader <= reads,
                        "{age:?}"
                    );
                    assert!(
                        versions.is_some() == (stale > 0) && milliseconds.is_some() == (stale > 0),
                        "{age:?}"
                    );
                    assert!(
                        route == Route::Spread || from == Reads::Any || mix == ALL || age.went_back == 0,
                        "{age:?}"
                    );
                    all = [all[0] + stale, all[1] + age.own_writes_missed, all[2] + age.went_back];
                }
            }
        }
    }
    assert!(all.iter().all(|each| *each > 5), "{all:?}");
}

#[test]
fn replicas_that_wait_show_all_that_was_acknowledged() {
    for seed in 0..6 {
        for from in FROM {
            for route in Route::ALL {
                for (mix, lock) in [("b", Lock::Soft), ("d", Lock::Hard), (ALL, Lock::Native)] {
                    let case = Case::records(mix, 1).under(lock).with(Faults::replicas(Consistency::Strong));
                    let age = raises_no_alarm(&case.reading(from, route), seed);
                    assert_eq!((age.stale, age.own_writes_missed, age.went_back), (0, 0, 0), "{age:?}");
                }
            }
        }
    }
}

/// Reads of several records at once, which change nothing.
#[test]
fn transactions_that_only_read_are_answered_by_replicas() {
    for consistency in Consistency::ALL {
        for mix in ["c", "read:3+scan:1"] {
            let case = Case::records(mix, 4).with(Faults::replicas(consistency));
            let age = raises_no_alarm(&case.reading(Reads::Any, Route::Spread), 5);
            assert!(age.reads > 0 && age.stale == 0, "{age:?}");
        }
    }
    let torn = Case::records("c", 4).with(Faults::bug(Bug::LackAtReplica));
    caught_as(&torn.reading(Reads::Replica, Route::Pinned), 5, &["missing"]);
}

/// Leaders are lost and cut off while replicas are read. Only the end of the log is lost, at async.
#[test]
fn a_correct_cluster_whose_replicas_are_read_raises_no_alarm() {
    let levels = [
        (Replication::Async, Consistency::Eventual),
        (Replication::Quorum, Consistency::Eventual),
        (Replication::Quorum, Consistency::Strong),
    ];
    for (replication, consistency) in levels {
        let mut stale = 0;
        for seed in 0..8 {
            let faults = Faults {
                replicas: Some(consistency),
                unanswered: if seed % 3 == 0 { 0.05 } else { 0.0 },
                pooled: seed % 2 == 0,
                ..Faults::cluster(replication)
            };
            for from in FROM {
                for route in Route::ALL {
                    let case = Case::records(ALL, 1).with(faults).reading(from, route);
                    stale += raises_no_alarm(&case, seed).stale;
                }
            }
        }
        assert_eq!(stale > 0, consistency == Consistency::Eventual, "{replication}, {consistency}");
    }
}

/// A leader that was promoted over shows less than the one before.
#[test]
fn who_reads_at_a_leader_that_is_cut_off_may_go_back() {
    let of_reads = ["consistency", "read-your-writes", "monotonic-reads"];
    for seed in 0..10 {
        let faults = Faults {
            replicas: Some(Consistency::Strong),
            reads_cut_off: true,
            ..Faults::cluster(Replication::Quorum)
        };
        let case = Case::records(ALL, 1).with(faults).reading(Reads::Any, Route::Spread);
        let (_, audit, _, shown) = driven(&case, seed);
        assert!(!audit.breaks_promise(&of_reads), "{shown}");
    }
}
