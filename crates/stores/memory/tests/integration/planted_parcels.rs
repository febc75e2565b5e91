//! Every bug that is planted in parcels is caught, and by the check that is meant for it; a correct store raises no
//! alarm, in any lock mode, with one scan or several at once, and even where operations go unanswered.

use crate::common::{caught_as, holds};
use acidtest_model::Lock;
use acidtest_store_memory::{Bug, Faults, selftest::Case};

const PROMISING: [Lock; 3] = [Lock::Soft, Lock::Hard, Lock::Native];

/// The audit's counts in which a bug must show.
fn meant_for(bug: Bug) -> &'static [&'static str] {
    match bug {
        Bug::DropWrite => &["lost", "missing"],
        Bug::ApplyTwice => &["duplicated"],
        Bug::Tear => &["torn"],
        Bug::LateApply | Bug::BelieveProxy | Bug::KeepInsert | Bug::MakeUp => &["phantom"],
        Bug::HideCommit | Bug::MissRead => &["missing"],
        Bug::RepeatCount => &["repeated"],
        Bug::SkipCount => &["skipped"],
        Bug::EighthScan => &["beyond"],
        Bug::RepeatId => &["duplicate_ids"],
        Bug::OtherId => &["mismatched"],
        Bug::RefuseEarly => &["wrongly_refused"],
        Bug::Overwrite => &["lost", "misread"],
        Bug::OtherRow => &["misread"],
        bug => panic!("{bug:?} is no bug of parcels"),
    }
}

#[test]
fn every_bug_is_caught_by_the_check_that_is_meant_for_it() {
    for bug in Bug::PARCELS {
        caught_as(&Case::parcels(1).with(Faults::bug(bug)), 7, meant_for(bug));
    }
}

#[test]
fn every_bug_is_caught_in_every_lock_mode_and_in_batches() {
    for lock in PROMISING {
        for together in [1, 4] {
            for bug in Bug::PARCELS {
                caught_as(&Case::parcels(together).under(lock).with(Faults::bug(bug)), 13, &[]);
            }
        }
    }
}

/// Two scans of a parcel are given one count.
#[test]
fn no_lock_repeats_counts_under_contention() {
    for together in [1, 4] {
        let (_, audit) = caught_as(&Case::parcels(together).under(Lock::None), 7, &["repeated"]);
        assert!(!audit.breaks_promise(&["lock"]), "only the lock is missing: {audit:?}");
    }
}

/// A loss is a loss, whatever the cell does without.
#[test]
fn what_is_lost_without_a_lock_is_not_excused() {
    for bug in [Bug::DropWrite, Bug::MakeUp, Bug::Tear, Bug::OtherId, Bug::RepeatId] {
        let (_, audit) =
            caught_as(&Case::parcels(1).under(Lock::None).with(Faults::bug(bug)), 7, meant_for(bug));
        assert!(audit.breaks_promise(&["lock"]), "{bug:?}: {audit:?}");
    }
}

#[test]
fn a_correct_store_raises_no_alarm() {
    for lock in PROMISING {
        for together in [1, 2, 6] {
            holds(&Case::parcels(together).under(lock), 11);
        }
    }
}

#[test]
fn a_correct_store_with_unanswered_or_swapped_operations_raises_no_alarm() {
    for (seed, lock) in (0..).zip(PROMISING) {
        for share in [0.02, 0.1, 0.3, 0.9] {
            for together in [1, 4] {
                holds(&Case::parcels(together).under(lock).with(Faults::unanswered(share)), seed);
                holds(&Case::parcels(together).under(lock).with(Faults::swapped(share)), seed);
            }
        }
    }
}
