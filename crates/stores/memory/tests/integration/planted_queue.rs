//! Every bug that is planted in a queue is caught, and by the check that is meant for it; a correct store raises no
//! alarm, with any acknowledgements, in any phase, and even where operations go unanswered.

use crate::common::{caught_as, holds, judged};
use acidtest_store_memory::{Bug, Faults, selftest::Case};

/// Parameters of the ways to publish and to consume in which a lost message breaks a promise.
const PROMISING: [&str; 4] = [
    r#""in_flight": 10, "batch": 5"#,
    r#""ack": "transaction", "batch": 5"#,
    r#""consume": "transaction", "in_flight": 100, "prefetch": 1"#,
    r#""ack": "transaction", "consume": "transaction", "batch": 10, "prefetch": 30"#,
];

/// The audit's counts in which a bug must show.
fn meant_for(bug: Bug) -> &'static [&'static str] {
    match bug {
        Bug::DropWrite | Bug::LoseHeld => &["lost"],
        Bug::ApplyTwice | Bug::Redeliver | Bug::Unflag => &["duplicated"],
        Bug::Tear => &["torn"],
        Bug::LateApply | Bug::BelieveProxy | Bug::MakeUp => &["phantom"],
        Bug::HideCommit | Bug::Reorder => &["reordered"],
        bug => panic!("{bug:?} is no bug of a queue"),
    }
}

#[test]
fn every_bug_is_caught_by_the_check_that_is_meant_for_it() {
    for bug in Bug::QUEUE {
        caught_as(&Case::queue("").with(Faults::bug(bug)), 7, meant_for(bug));
    }
}

#[test]
fn every_bug_is_caught_in_every_mode() {
    for mode in PROMISING {
        for bug in Bug::QUEUE {
            // with one message at a time there is no other to put first, and none is held without its acknowledgement
            let one_by_one =
                mode.contains(r#""prefetch": 1"#) && [Bug::Reorder, Bug::LoseHeld].contains(&bug);
            if !one_by_one {
                caught_as(&Case::queue(mode).with(Faults::bug(bug)), 13, meant_for(bug));
            }
        }
    }
}

/// What a consumer holds and has not acknowledged is the store's: it is lost if it never comes again, although it was
/// delivered.
#[test]
fn what_was_handed_out_and_never_came_again_is_lost() {
    // nothing is handed out that is not taken
    let case =
        Case::queue(r#""in_flight": 100, "batch": 50, "prefetch": 50, "producers": 1, "consumers": 1"#);
    let (_, audit) = caught_as(&case.with(Faults::bug(Bug::LoseHeld)), 7, &["lost"]);
    assert!(audit.evidence["lost_in_hand"] > 0, "{audit:?}");
}

/// With only producers at work, the audit's own consumer reads all messages back.
#[test]
fn what_only_the_audit_consumes_is_judged_too() {
    let published = Case::queue(r#""phase": "publish", "in_flight": 10"#);
    for bug in [Bug::DropWrite, Bug::ApplyTwice, Bug::Tear, Bug::LateApply, Bug::MakeUp, Bug::Redeliver] {
        caught_as(&published.clone().with(Faults::bug(bug)), 7, meant_for(bug));
    }
}

/// Loaded messages are known to be there: a bug that loses or tears them is caught.
#[test]
fn what_was_loaded_is_judged_too() {
    let loaded = Case::queue(r#""phase": "consume", "backlog": 3000, "batch": 5"#);
    holds(&loaded, 3);
    let bugs =
        [Bug::DropWrite, Bug::ApplyTwice, Bug::Tear, Bug::Redeliver, Bug::Unflag, Bug::MakeUp, Bug::Reorder];
    for bug in bugs {
        caught_as(&loaded.clone().with(Faults::bug(bug)), 7, meant_for(bug));
    }
}

/// Without acknowledgements a lost message breaks no promise; made-up, torn, doubled and reordered ones still do.
#[test]
fn without_acknowledgements_a_lost_message_is_counted_and_excused() {
    for mode in [r#""ack": "none""#, r#""consume": "auto""#, r#""ack": "none", "consume": "auto""#] {
        let case = Case::queue(mode);
        let (_, audit) = judged(&case.clone().with(Faults::bug(Bug::DropWrite)), 7);
        assert!(audit.count("lost") > 0 && !audit.breaks_promise(&["delivery"]), "{mode}: {audit:?}");
        for bug in [Bug::ApplyTwice, Bug::Tear, Bug::MakeUp, Bug::Reorder] {
            let (_, audit) = judged(&case.clone().with(Faults::bug(bug)), 7);
            assert!(
                audit.count(meant_for(bug)[0]) > 0 && audit.breaks_promise(&["delivery"]),
                "{mode}: {audit:?}"
            );
        }
    }
}

#[test]
fn a_correct_store_raises_no_alarm() {
    for mode in PROMISING {
        holds(&Case::queue(mode), 11);
    }
    for mode in [
        r#""ack": "none", "in_flight": 10"#,
        r#""consume": "auto""#,
        r#""ack": "none", "consume": "auto""#,
        r#""phase": "publish", "in_flight": 10"#,
        r#""phase": "publish", "ack": "transaction", "batch": 5"#,
    ] {
        holds(&Case::queue(mode), 11);
    }
}

#[test]
fn a_correct_store_with_unanswered_or_swapped_operations_raises_no_alarm() {
    for (seed, mode) in (0..).zip(PROMISING) {
        for share in [0.001, 0.02, 0.3] {
            holds(&Case::queue(mode).with(Faults::unanswered(share)), seed);
            holds(&Case::queue(mode).with(Faults::swapped(share)), seed);
        }
    }
}
