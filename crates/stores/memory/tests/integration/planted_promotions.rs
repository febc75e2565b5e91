//! A cluster that loses what it acknowledged is caught through a promotion, and what it lost is ascribed to its replication, and
//! never to a lock or to the durability of its members; a correct one whose leaders are lost or cut off raises no alarm.

use acidtest_model::Replication;
use acidtest_store_memory::{
    Bug, Faults,
    selftest::{Case, DrivenTrial},
};
use acidtest_workloads::{Audit, Verdict};

use crate::common::{MIX, under_locks};

/// Every workload that writes, in every lock mode that promises something, with and without transactions.
fn cases() -> Vec<Case> {
    let mut cases = under_locks();
    cases.extend([
        Case::parcels(3),
        Case::logs(1),
        Case::logs(5),
        Case::queue(r#""in_flight": 4"#),
        Case::queue(r#""in_flight": 10, "batch": 5, "prefetch": 30"#),
        Case::queue(r#""ack": "transaction", "consume": "transaction", "batch": 4"#),
    ]);
    cases.extend(["read-committed", "repeatable-read", "serializable"].map(Case::transactions));
    cases
}

const READS: &str = "read:3+update:1";

/// How much an audit finds that this guarantee prevents.
fn found(audit: &Audit, guarantee: &str) -> u64 {
    audit.findings.iter().filter(|each| each.guarantee == guarantee).map(|each| each.count).sum()
}

fn judged(case: &Case, seed: u64) -> (DrivenTrial, Audit, String) {
    let (driven, audit) = crate::common::judged(case, seed);
    let shown = format!(
        "{}, lock {}, seed {seed}, {}, {} shown: {audit:?}",
        case.workload.name,
        case.lock,
        case.meaning(),
        driven.shown
    );
    (driven, audit, shown)
}

/// How many promotions there were.
fn raises_no_alarm(faults: Faults, seed: u64) -> u64 {
    let mut promotions = 0;
    for (case, seed) in cases().into_iter().zip(seed..) {
        let faults = Faults {
            unanswered: if seed % 3 == 0 { 0.05 } else { 0.0 },
            pooled: seed % 2 == 0 && case.workload.name != "queue",
            ..faults
        };
        let (driven, audit, shown) = judged(&case.with(faults), seed);
        let of_others =
            audit.findings.iter().filter(|each| each.count > 0 && each.guarantee != "replication");
        let is_async = faults.replication == Replication::Async;
        assert_eq!(of_others.count(), 0, "{shown}");
        assert!(is_async || audit.verdict == Verdict::Holds, "{shown}");
        assert!(driven.shown == 0 || (is_async && audit.verdict == Verdict::Broken), "{shown}");
        promotions += driven.kills;
    }
    promotions
}

#[test]
fn a_correct_cluster_that_waits_for_a_quorum_raises_no_alarm() {
    let mut promotions = 0;
    for seed in 0.. {
        promotions += raises_no_alarm(Faults::cluster(Replication::Quorum), seed * 100);
        if promotions >= LEAST {
            break;
        }
    }
}

#[test]
fn a_correct_cluster_that_waits_for_nobody_loses_its_last_writes_and_nothing_else() {
    let mut promotions = 0;
    for seed in 0.. {
        promotions += raises_no_alarm(Faults::cluster(Replication::Async), seed * 100);
        if promotions >= LEAST {
            break;
        }
    }
}

/// What a leader answers that is cut off, before the cluster is said to be whole again, need not be the newest.
#[test]
fn a_leader_that_answers_reads_while_it_is_cut_off_is_not_accused() {
    for replication in [Replication::Quorum, Replication::Async] {
        let faults = Faults { reads_cut_off: true, ..Faults::cluster(replication) };
        for seed in 0..5 {
            for case in [
                Case::records(READS, 1),
                Case::records("read:3+insert:1", 1),
                Case::parcels(1),
                Case::transactions("default"),
            ] {
                let case = case.with(faults);
                let (_, audit, shown) = judged(&case, seed);
                let is_excused = replication == Replication::Async;
                let without = if is_excused { &["replication"][..] } else { &[] };
                assert!(!audit.breaks_promise(without), "{shown}");
            }
        }
    }
}

/// How many promotions are seen at least: more of them are in random plans.
const LEAST: u64 = 60;

#[track_caller]
fn caught(case: &Case, seed: u64) {
    let (driven, audit, shown) = judged(case, seed);
    assert!(driven.promoted && driven.struck > 0 && driven.shown > 0, "{} struck, {shown}", driven.struck);
    assert!(audit.verdict == Verdict::Broken && audit.breaks_promise(&[] as &[&str]), "{shown}");
    for other in ["lock", "isolation", "durability"] {
        assert_eq!(found(&audit, other), 0, "{other} is not to blame, {shown}");
    }
    assert!(found(&audit, "replication") > 0, "{shown}");
}

#[test]
fn a_quorum_that_is_none_is_caught() {
    let bugs = [Bug::LoseLast, Bug::SplitBrain, Bug::LoseClient, Bug::SplitBrain];
    for (case, bug) in cases().into_iter().zip(bugs.into_iter().cycle()) {
        caught(&case.with(Faults::cluster(Replication::Quorum).with(bug)), 17);
    }
}

#[test]
fn half_a_transaction_that_was_replicated_is_caught() {
    let quorum = Faults::cluster(Replication::Quorum).with(Bug::ForgetHalf);
    for case in [Case::inventory(), Case::records(MIX, 4), Case::parcels(3), Case::logs(5)] {
        caught(&case.with(quorum), 17);
    }
}

/// It is no loss: whoever reads there does not see what others were told.
#[test]
fn a_leader_that_answers_after_another_was_promoted_is_caught() {
    for case in [Case::records(READS, 1), Case::records(READS, 4), Case::parcels(1)] {
        let (driven, audit, shown) = judged(&case.with(Faults::bug(Bug::StaleLeader)), 17);
        assert!(driven.promoted && driven.struck > 0 && driven.shown > 0, "{shown}");
        assert!(audit.verdict == Verdict::Broken && audit.breaks_promise(&[] as &[&str]), "{shown}");
        // of what was told before the cluster was whole, nobody knows that it was no loss
        let held = ["lock", "integrity", "replication"].map(|guarantee| found(&audit, guarantee));
        assert!(held.iter().sum::<u64>() > 0, "{shown}");
    }
}
