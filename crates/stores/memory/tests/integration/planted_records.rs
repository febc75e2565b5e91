//! Every bug that is planted in records is caught, and by the check that is meant for it; a correct store raises no
//! alarm, with any mix, lock mode and length of transactions, and even where operations go unanswered.

use crate::common::{caught_as, holds};
use acidtest_model::Lock;
use acidtest_store_memory::{
    Bug, Faults,
    selftest::{Case, run_twice},
};
use acidtest_workloads::Verdict;

const MIXES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "read", "write", "modify", "modify-locked"];
const PROMISING: [Lock; 3] = [Lock::Soft, Lock::Hard, Lock::Native];

/// A mix of all operations.
const ALL: &str = "read:2+update:1+insert:1+scan:1+rmw:1";

/// The audit's counts in which a bug must show.
fn meant_for(bug: Bug) -> &'static [&'static str] {
    match bug {
        Bug::DropWrite => &["lost_updates", "overwritten"],
        Bug::ApplyTwice | Bug::LateApply | Bug::BelieveProxy => &["unasked"],
        Bug::Tear | Bug::TearRead => &["torn"],
        Bug::HideCommit | Bug::StaleRead => &["stale"],
        Bug::KeepFields | Bug::StrayFields => &["mismatched"],
        Bug::OldVersion => &["overwritten"],
        Bug::LoseInsert => &["lost", "missing"],
        Bug::DoubleInsert => &["duplicated"],
        Bug::KeepInsert => &["phantom"],
        Bug::MissRead => &["missing"],
        bug => panic!("{bug:?} is no bug of records"),
    }
}

#[test]
fn every_bug_is_caught_by_the_check_that_is_meant_for_it() {
    for bug in Bug::RECORDS {
        caught_as(&Case::records(ALL, 1).with(Faults::bug(bug)), 7, meant_for(bug));
    }
}

#[test]
fn every_bug_is_caught_in_every_lock_mode() {
    for lock in PROMISING {
        for bug in Bug::RECORDS {
            caught_as(&Case::records(ALL, 1).under(lock).with(Faults::bug(bug)), 13, &[]);
        }
    }
}

#[test]
fn every_bug_is_caught_in_transactions() {
    for lock in PROMISING {
        for bug in Bug::RECORDS {
            caught_as(&Case::records(ALL, 4).under(lock).with(Faults::bug(bug)), 17, &[]);
        }
    }
}

/// A bug that strikes data which an earlier, sound trial left is caught like one that strikes a trial's own data.
#[test]
fn what_an_earlier_trial_left_is_judged_too() {
    let case = Case::records("read:1+update:1+rmw:1", 1);
    for bug in [Bug::KeepFields, Bug::StrayFields, Bug::DropWrite, Bug::Tear] {
        let [sound, planted] = run_twice(&case.clone().with(Faults::bug(bug)), 23).unwrap();
        assert_eq!((sound.audited.audit.verdict, sound.struck), (Verdict::Holds, 0), "{bug:?}");
        let audit = &planted.audited.audit;
        assert!(planted.shown > 0 && audit.count(meant_for(bug)[0]) > 0, "{bug:?}: {audit}");
    }
    let [first, second] = run_twice(&case, 23).unwrap().map(|driven| driven.audited);
    assert_eq!((first.audit.verdict, second.audit.verdict), (Verdict::Holds, Verdict::Holds), "{second:?}");
}

/// Each mix reveals the bugs of the operations that it contains.
#[test]
fn every_mix_catches_its_bugs() {
    for (mix, bugs) in [
        ("a", &[Bug::DropWrite, Bug::KeepFields, Bug::StaleRead][..]),
        ("b", &[Bug::ApplyTwice, Bug::TearRead]),
        ("c", &[Bug::MissRead]),
        ("d", &[Bug::LoseInsert, Bug::DoubleInsert, Bug::KeepInsert]),
        ("e", &[Bug::LoseInsert, Bug::LateApply]),
        ("f", &[Bug::Tear, Bug::OldVersion]),
        ("read", &[Bug::MissRead]),
        ("write", &[Bug::LoseInsert, Bug::DoubleInsert, Bug::KeepInsert]),
        ("modify", &[Bug::DropWrite, Bug::HideCommit]),
        ("modify-locked", &[Bug::Tear]),
    ] {
        for bug in bugs {
            caught_as(&Case::records(mix, 1).with(Faults::bug(*bug)), 19, &[]);
        }
    }
}

#[test]
fn no_lock_loses_updates_under_contention() {
    for transaction in [1, 4] {
        for mix in ["a", "modify", "update:1"] {
            caught_as(&Case::records(mix, transaction).under(Lock::None), 7, &["lost_updates"]);
        }
    }
}

#[test]
fn a_correct_store_raises_no_alarm() {
    for mix in MIXES {
        for lock in PROMISING {
            holds(&Case::records(mix, 1).under(lock), 11);
        }
    }
    for mix in ["c", "d", "e", "read", "write"] {
        // nothing is updated, so nothing needs protection
        holds(&Case::records(mix, 1).under(Lock::None), 11);
    }
}

#[test]
fn a_correct_store_with_unanswered_or_swapped_operations_raises_no_alarm() {
    for (seed, mix) in (0..).zip(MIXES) {
        for (lock, share) in [(Lock::Soft, 0.02), (Lock::Hard, 0.1), (Lock::Native, 0.3), (Lock::Native, 0.9)]
        {
            holds(&Case::records(mix, 1).under(lock).with(Faults::unanswered(share)), seed);
            holds(&Case::records(mix, 1).under(lock).with(Faults::swapped(share)), seed);
        }
    }
}

#[test]
fn a_correct_store_with_unanswered_transactions_raises_no_alarm() {
    for (seed, lock) in (0..).zip(PROMISING) {
        for share in [0.0, 0.02, 0.3] {
            for mix in ["a", "d", "e", ALL] {
                holds(&Case::records(mix, 4).under(lock).with(Faults::unanswered(share)), seed);
            }
        }
    }
}
