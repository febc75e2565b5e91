//! Every bug that is planted in transactions is caught, and by the check that is meant for it. A correct store raises no alarm at any
//! level, whatever is left unanswered, and what its level permits is counted.

use crate::common::{caught_as, holds, judged};
use acidtest_store_memory::{Bug, Faults, selftest::Case};
use acidtest_workloads::{Audit, Verdict};

const LEVELS: [&str; 4] = ["default", "serializable", "repeatable-read", "read-committed"];

/// The audit's counts in one of which a bug must show.
fn meant_for(bug: Bug) -> &'static [&'static str] {
    match bug {
        Bug::DropWrite | Bug::Tear => &["lost_appends"],
        Bug::ApplyTwice => &["duplicate_elements"],
        Bug::LateApply | Bug::BelieveProxy => &["aborted_read"],
        Bug::HideCommit => {
            &["read_skew", "read_skew_against_the_order_of_a_session", "read_skew_against_real_time"]
        }
        Bug::StaleRead => &["read_skew", "write_skew", "read_skew_against_real_time"],
        Bug::MissRead => &["missing"],
        Bug::MakeUp => &["garbage_read"],
        Bug::SkipCheck => &["read_skew", "write_skew", "lost_updates"],
        Bug::DirtyRead => &["aborted_read", "circular_information_flow"],
        Bug::CommitInParts => &["read_skew", "observed_transaction_vanishes"],
        Bug::Squeeze => &["incompatible_order"],
        Bug::SumInParts => &["wrong_total"],
        bug => panic!("{bug:?} is no bug of transactions"),
    }
}

#[test]
fn every_bug_is_caught_by_the_check_that_is_meant_for_it() {
    for bug in Bug::TRANSACTIONS {
        let (_, audit) = caught_as(&Case::transactions("default").with(Faults::bug(bug)), 7, &[]);
        assert!(meant_for(bug).iter().any(|name| audit.count(name) > 0), "{bug:?}: {audit}");
    }
}

#[test]
fn a_correct_store_raises_no_alarm() {
    for level in LEVELS {
        for seed in 0..8 {
            holds(&Case::transactions(level), seed);
        }
    }
}

#[test]
fn a_correct_store_with_unanswered_or_swapped_operations_raises_no_alarm() {
    for (seed, level) in (0..).zip(LEVELS) {
        for share in [0.02, 0.1, 0.3] {
            holds(&Case::transactions(level).with(Faults::unanswered(share)), seed);
            holds(&Case::transactions(level).with(Faults::swapped(share)), seed);
        }
    }
}

fn permitted(audit: &Audit) -> Vec<&str> {
    let seen = audit.anomalies.iter().filter(|seen| !seen.is_ruled_out);
    seen.map(|seen| seen.name.as_str()).collect()
}

/// Snapshot isolation permits write skew, and read committed much more; neither is a failure.
#[test]
fn what_a_level_permits_is_counted_and_breaks_nothing() {
    let (_, snapshot) = judged(&Case::transactions("repeatable-read"), 3);
    assert!(permitted(&snapshot).contains(&"G2-item"), "{snapshot:?}");
    let (_, committed) = judged(&Case::transactions("read-committed"), 3);
    for name in ["lost-update", "G-single"] {
        assert!(permitted(&committed).contains(&name), "{name}: {committed:?}");
    }
    for audit in [snapshot, committed] {
        assert_eq!(audit.verdict, Verdict::Holds);
        assert!(audit.evidence["anomalies"] > 0 && audit.anomalies.iter().all(|seen| !seen.is_ruled_out));
    }
}

/// Every finding has an example that can be read, as text and as a picture.
#[test]
fn what_is_found_has_an_example() {
    let (_, audit) = judged(&Case::transactions("default").with(Faults::bug(Bug::SkipCheck)), 7);
    assert!(!audit.anomalies.is_empty());
    for seen in &audit.anomalies {
        assert!(seen.is_ruled_out && seen.count > 0, "{seen:?}");
        assert!(seen.example.text().contains("T1"), "{seen:?}");
        assert!(seen.example.picture().starts_with("<svg"));
    }
}

/// The same seed gives the same transactions, and the same verdict; by the clock alone do runs differ.
#[test]
fn a_level_that_is_not_kept_breaks_the_promise_of_isolation_alone() {
    let (_, audit) = judged(&Case::transactions("default").with(Faults::bug(Bug::SkipCheck)), 7);
    assert!(audit.breaks_promise(&[] as &[&str]));
    assert!(!audit.breaks_promise(&["isolation"]), "{audit:?}");
}
