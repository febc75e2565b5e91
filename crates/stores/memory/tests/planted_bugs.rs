//! Every planted bug is caught, and by the check that is meant for it; a correct store, answering or
//! not, raises no alarm.

#![allow(clippy::unwrap_used)] // a test's own set-up may panic

use acidtest_model::Lock;
use acidtest_store_memory::{
    Bug, Faults,
    selftest::{Case, run},
};
use acidtest_workloads::{Audit, Verdict};

fn judged(case: &Case, seed: u64) -> Audit {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(run(case, seed)).unwrap()
}

fn audit(faults: Faults, lock: Lock, seed: u64) -> Audit {
    judged(&Case { faults, lock, replayed: false }, seed)
}

#[track_caller]
fn caught_as(bug: Bug, counts: &[&str]) {
    let audit = audit(Faults::bug(bug), Lock::Native, 7);
    assert_eq!(audit.verdict, Verdict::Broken);
    for count in counts {
        assert!(audit.count(count) > 0, "{bug:?} shows no {count}: {audit}");
    }
}

#[test]
fn a_dropped_write_leaves_surplus_and_deficit() {
    caught_as(Bug::DropWrite, &["surplus", "deficit"]);
}

#[test]
fn a_write_applied_twice_leaves_surplus_and_deficit() {
    caught_as(Bug::ApplyTwice, &["surplus", "deficit"]);
}

#[test]
fn an_oversell_is_seen_while_it_happens() {
    caught_as(Bug::Oversell, &["oversold"]);
}

#[test]
fn a_torn_operation_does_not_add_up() {
    caught_as(Bug::Tear, &["torn"]);
}

#[test]
fn a_failure_that_was_applied_leaves_surplus_and_deficit() {
    caught_as(Bug::LateApply, &["surplus", "deficit"]);
}

#[test]
fn a_hidden_commit_is_sold_again() {
    caught_as(Bug::HideCommit, &["oversold"]);
}

/// In every lock mode that promises something; unprotected, the store is broken without a bug.
#[test]
fn every_bug_is_caught_in_every_lock_mode() {
    for lock in [Lock::Soft, Lock::Hard, Lock::Native] {
        for bug in Bug::ALL {
            let audit = audit(Faults::bug(bug), lock, 13);
            assert_eq!(audit.verdict, Verdict::Broken, "{bug:?} under lock {lock}");
        }
    }
}

#[test]
fn a_sequence_s_end_gives_a_dropped_or_doubled_write_away() {
    for bug in [Bug::DropWrite, Bug::ApplyTwice] {
        let audit = judged(&Case { faults: Faults::bug(bug), lock: Lock::Native, replayed: true }, 3);
        assert!(audit.count("off_sequence") > 0, "{bug:?}: {audit}");
    }
}

#[test]
fn no_lock_oversells_under_contention() {
    let audit = audit(Faults::default(), Lock::None, 7);
    assert_eq!(audit.verdict, Verdict::Broken, "{audit}");
    assert!(audit.count("surplus") > 0, "{audit}");
}

#[test]
fn a_correct_store_raises_no_alarm() {
    for lock in [Lock::Soft, Lock::Hard, Lock::Native] {
        let audit = audit(Faults::default(), lock, 11);
        assert_eq!(audit.verdict, Verdict::Holds, "{lock}: {audit}");
    }
}

#[test]
fn a_correct_store_with_unanswered_operations_raises_no_alarm() {
    for (seed, share) in [(1, 0.01), (2, 0.1), (3, 0.5), (4, 0.9)] {
        let audit = audit(Faults::timeouts(share), Lock::Native, seed);
        assert_eq!(audit.verdict, Verdict::Holds, "{share} unanswered: {audit} {:?}", audit.evidence);
    }
}

#[test]
fn every_case_of_the_self_test_is_judged_as_it_should_be() {
    for case in Case::all() {
        let audit = judged(&case, 5);
        let broken = audit.verdict == Verdict::Broken;
        assert_eq!(broken, case.is_broken(), "{}: {audit}", case.meaning());
        assert_ne!(audit.verdict, Verdict::Unknown, "{}: {audit}", case.meaning());
    }
}
