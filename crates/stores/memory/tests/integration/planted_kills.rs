//! A store that loses what it acknowledged is caught through a kill, and what it lost is ascribed to its durability and
//! never to its lock; a correct one that is killed a thousand times raises no alarm.

use acidtest_model::Lock;
use acidtest_store_memory::{Bug, Faults, selftest::Case};
use acidtest_workloads::{Audit, Verdict};

use crate::common::{MIX, under_locks};

fn queues() -> [Case; 2] {
    [
        Case::queue(r#""in_flight": 4"#),
        Case::queue(r#""ack": "transaction", "consume": "transaction", "batch": 4"#),
    ]
}

/// Every workload that writes, in every lock mode that promises something, with and without transactions.
fn cases() -> Vec<Case> {
    let mut cases = under_locks();
    cases.extend(queues());
    cases.push(Case::transactions("default"));
    cases
}

/// How much a trial's audit finds that this guarantee prevents, once the kills are taken into account.
fn found(audit: &Audit, guarantee: &str) -> u64 {
    let mut crossed = audit.clone();
    crossed.across_epochs(&[] as &[&str]);
    let of = crossed.findings.iter().filter(|finding| finding.guarantee == guarantee);
    of.map(|finding| finding.count).sum()
}

#[track_caller]
fn caught(case: &Case, seed: u64) {
    let (driven, audit) = crate::common::caught_as(case, seed, &[]);
    let shown = format!("{}, lock {}, {}: {audit}", case.workload.name, case.lock, case.meaning());
    assert!(driven.kills > 0 && driven.struck > 0, "{shown}");
    assert!(found(&audit, "durability") > 0, "{shown}: {audit:?}");
    assert_eq!(found(&audit, "lock"), 0, "the lock is correct, {shown}: {audit:?}");
}

#[test]
fn a_store_that_loses_writes_at_a_kill_is_caught_and_its_lock_is_not_accused() {
    for case in cases() {
        for bug in [Bug::LoseLast, Bug::LoseMiddle, Bug::LoseClient] {
            caught(&case.clone().with(Faults::bug(bug)), 17);
        }
    }
}

/// What a store has lost is never held against its lock, in whichever life of the store it is noticed.
#[test]
fn whatever_is_lost_the_lock_is_not_accused() {
    for seed in 0..30 {
        for (case, bug) in
            cases().into_iter().zip([Bug::LoseLast, Bug::LoseMiddle, Bug::LoseClient].repeat(9))
        {
            let unanswered = if seed % 3 == 0 { 0.05 } else { 0.0 };
            let faults = Faults { unanswered, pooled: seed % 2 == 0, ..Faults::bug(bug) };
            let case = case.with(faults);
            let (_, audit) = crate::common::judged(&case, seed);
            assert_eq!(
                found(&audit, "lock"),
                0,
                "{}, lock {}, seed {seed}: {audit:?}",
                case.meaning(),
                case.lock
            );
        }
    }
}

/// What no lock prevents within one life of the store is the lock's, however often the store is killed.
#[test]
fn a_lock_that_does_not_hold_is_accused_in_spite_of_kills() {
    for case in [Case::inventory(), Case::records(MIX, 1), Case::records(MIX, 4)] {
        let case = case.under(Lock::None).with(Faults { outages: true, ..Faults::default() });
        let accused = (0..10).filter(|seed| {
            let (driven, audit) = crate::common::judged(&case, *seed);
            let within: u64 = audit.findings.iter().map(|finding| finding.within_epoch).sum();
            assert!(driven.kills > 0 && found(&audit, "lock") >= within, "{audit:?}");
            assert!(audit.findings.iter().all(|finding| finding.within_epoch <= finding.count), "{audit:?}");
            within > 0
        });
        assert!(accused.count() > 0, "{}", case.workload.name);
    }
}

#[test]
fn a_store_that_keeps_half_a_transaction_is_caught() {
    let [_, transactions] = queues();
    for case in [Case::inventory(), Case::records(MIX, 4), transactions] {
        caught(&case.with(Faults::bug(Bug::ForgetHalf)), 17);
    }
}

#[test]
fn a_queue_that_brings_back_what_was_removed_or_forgets_what_was_handed_out_is_caught() {
    for case in queues() {
        for bug in Bug::QUEUE_AT_A_KILL {
            caught(&case.clone().with(Faults::bug(bug)), 17);
        }
        let unflags = Faults { outages: true, ..Faults::bug(Bug::Unflag) };
        caught(&case.with(unflags), 17);
    }
}

/// Consumers that have fetched messages go on with them for a while after the store was killed, and acknowledge them to nobody.
/// Of most they learn that; the others accuse nobody, and hide nothing else.
#[test]
fn what_is_acknowledged_to_a_killed_store_must_come_again() {
    let case = Case::queue(r#""in_flight": 20, "batch": 5, "prefetch": 40"#);
    let (mut in_hand, mut doubtful, mut acknowledged) = (0, 0, 0);
    for seed in 0..20 {
        let faults = Faults { unconfirmed: true, ..Faults::bug(Bug::ForgetHeld) };
        let (_, audit) = crate::common::caught_as(&case.clone().with(faults), seed, &["lost"]);
        let evidence = |name: &str| audit.evidence.get(name).copied().unwrap_or(0);
        in_hand += evidence("lost_in_hand");
        doubtful += evidence("doubtfully_consumed");
        acknowledged += evidence("acknowledged_publishes");
        let correct = Faults { unconfirmed: true, outages: true, ..Faults::default() };
        crate::common::holds(&case.clone().with(correct), seed);
    }
    assert!(
        in_hand > 20 && doubtful > 0 && doubtful * 10 < acknowledged,
        "{in_hand} {doubtful} {acknowledged}"
    );
}

/// A store that keeps nothing over a restart, and that somebody else starts again, is accused of nothing. What it has lost
/// is still counted.
#[test]
fn a_store_that_restarts_unasked_and_loses_writes_is_not_accused() {
    let mut lost = 0;
    for seed in 0..10 {
        for (case, bug) in
            cases().into_iter().zip([Bug::LoseLast, Bug::LoseMiddle, Bug::LoseClient].repeat(9))
        {
            let case = case.with(Faults { unasked: true, pooled: seed % 2 == 0, ..Faults::bug(bug) });
            let (driven, audit) = crate::common::judged(&case, seed);
            let shown = format!("{}, lock {}, seed {seed}: {audit:?}", case.meaning(), case.lock);
            assert!(!audit.breaks_promise(&[] as &[&str]), "{shown}");
            assert!(driven.shown == 0 || audit.verdict == Verdict::Broken, "{shown}");
            lost += u64::from(driven.restarted && found(&audit, "durability") > 0);
        }
    }
    assert!(lost > 20, "{lost}");
}

/// What is broken without a lock is still the missing lock's, and what no loss explains is still accused.
#[test]
fn a_restart_that_nobody_asked_for_hides_no_other_bug() {
    let restarts = Faults { outages: true, unasked: true, ..Faults::default() };
    for case in [Case::inventory(), Case::records(MIX, 1)] {
        let (driven, audit) = crate::common::judged(&case.clone().under(Lock::None).with(restarts), 17);
        assert!(driven.restarted && driven.shown > 0, "{audit:?}");
        let is_locks = audit.findings.iter().any(|one| one.count > 0 && one.guarantee == "lock");
        assert!(audit.verdict == Verdict::Broken && is_locks, "{audit:?}");
        let tears = Faults { outages: true, unasked: true, ..Faults::bug(Bug::Tear) };
        let (driven, audit) = crate::common::caught_as(&case.with(tears), 17, &["torn"]);
        assert!(driven.restarted && audit.breaks_promise(&[] as &[&str]), "{audit:?}");
    }
}

#[test]
fn a_correct_store_that_restarts_unasked_raises_no_alarm() {
    let faults = Faults { outages: true, unasked: true, ..Faults::default() };
    let restarted = cases()
        .into_iter()
        .zip(0..)
        .filter(|(case, seed)| crate::common::holds(&case.clone().with(faults), *seed).restarted);
    assert!(restarted.count() > 5);
}

#[test]
fn a_correct_store_that_is_killed_a_thousand_times_raises_no_alarm() {
    let faults = Faults { outages: true, ..Faults::default() };
    let (mut kills, mut seed) = (0, 0);
    while kills < 1000 {
        for case in cases() {
            seed += 1;
            let case = case.with(Faults { unanswered: if seed % 3 == 0 { 0.05 } else { 0.0 }, ..faults });
            kills += crate::common::holds(&case, seed).kills;
        }
    }
}

/// Behind a pooler a connection outlives the store, and its client learns of a kill by errors alone, if at all.
#[test]
fn a_correct_store_that_is_killed_behind_a_pooler_raises_no_alarm() {
    let pooled = Faults { outages: true, pooled: true, ..Faults::default() };
    for case in cases().into_iter().filter(|case| case.workload.name != "queue") {
        for seed in 0..5 {
            for faults in [pooled, Faults { unasked: true, ..pooled }] {
                let driven = crate::common::holds(&case.clone().with(faults), seed);
                let told = format!("{:?}", driven.measurement.faults);
                assert!(driven.kills > 0 && told.contains("the pooler has no server"), "{told}");
                assert!(!told.contains("connection is gone"), "{told}");
            }
        }
    }
}
