//! Every bug that is planted in an inventory is caught, and by the check that is meant for it; a correct store raises
//! no alarm, even where operations go unanswered.

use crate::common::{holds, judged};
use acidtest_model::Lock;
use acidtest_store_memory::{Bug, Faults, selftest::Case};
use acidtest_workloads::Verdict;

#[track_caller]
fn caught_as(bug: Bug, counts: &[&str]) {
    crate::common::caught_as(&Case::inventory().with(Faults::bug(bug)), 7, counts);
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
fn an_error_of_a_proxy_that_is_believed_leaves_surplus_and_deficit() {
    caught_as(Bug::BelieveProxy, &["surplus", "deficit"]);
}

#[test]
fn a_hidden_commit_is_sold_again() {
    caught_as(Bug::HideCommit, &["oversold"]);
}

/// Leaves out [`Lock::None`], under which the store is broken without a bug.
#[test]
fn every_bug_is_caught_in_every_lock_mode() {
    for lock in [Lock::Soft, Lock::Hard, Lock::Native] {
        for bug in Bug::INVENTORY {
            crate::common::caught_as(&Case::inventory().under(lock).with(Faults::bug(bug)), 13, &[]);
        }
    }
}

#[test]
fn a_sequence_s_end_gives_a_dropped_or_doubled_write_away() {
    for bug in [Bug::DropWrite, Bug::ApplyTwice] {
        let case = Case::inventory().replayed().with(Faults::bug(bug));
        crate::common::caught_as(&case, 3, &["off_sequence"]);
    }
}

#[test]
fn no_lock_oversells_under_contention() {
    crate::common::caught_as(&Case::inventory().under(Lock::None), 7, &["surplus"]);
}

#[test]
fn a_correct_store_raises_no_alarm() {
    for lock in [Lock::Soft, Lock::Hard, Lock::Native] {
        holds(&Case::inventory().under(lock), 11);
    }
}

#[test]
fn a_correct_store_with_unanswered_or_swapped_operations_raises_no_alarm() {
    for (seed, share) in [(1, 0.01), (2, 0.1), (3, 0.5), (4, 0.9)] {
        holds(&Case::inventory().with(Faults::unanswered(share)), seed);
        holds(&Case::inventory().with(Faults::swapped(share)), seed);
    }
}

#[test]
fn every_case_of_the_self_test_is_judged_as_it_should_be() {
    for case in Case::all() {
        let (_, audit) = judged(&case, 5);
        let expected = if case.is_broken() { Verdict::Broken } else { Verdict::Holds };
        assert_eq!(audit.verdict, expected, "{}, {}: {audit}", case.workload.name, case.meaning());
    }
}
