//! Each anomaly alone, found and named.

use std::collections::BTreeSet;

use crate::notation::{assert_found, report};
use acidtest_history::{Anomaly, Guarantee, Level, Order, Shape};

#[test]
fn correct_histories_are_not_accused() {
    for words in [
        "1 ax1",
        "1 rx[] ax1 rx[1] | 2 rx[1] ax2 | 1 rx[1,2]",
        "1 rX_ wX1 rX1 | 2 rX1 wX2 | 3 rX2 | 4 rX1 | 5 rX_",
        // own appends at the end are no version of the list
        "1 ax1 rx[1] ax2 rx[1,2] | 2 rx[1,2]",
        "1 ax1 | 2 ax2 | 3 rx[2,1] | 4 rx[2] | 5 rx[]",
        // list x and register X with the same number are two objects
        "1 ax1 wX2 | 2 rx[] rX_ | 3 rx[1] rX2",
        "1 rx[] t100/100",
    ] {
        assert_found(words, &[]);
    }
}

#[test]
fn write_cycles_are_g0() {
    assert_found("1 ax1 ay1001 | 2 ax2 ay1002 | 3 rx[1,2] | 4 ry[1002,1001]", &["G0"]);
    // between two appends of one transaction
    assert_found("1 ax1 ax2 | 2 ax3 | 3 rx[1,3,2]", &["G0"]);
}

#[test]
fn circular_information_is_g1c() {
    assert_found("1 ax1 ry[2] | 2 ay2 rx[1]", &["G1c"]);
    assert_found("1 rX_ wX1 rY2 | 2 rY_ wY2 rX1", &["G1c"]);
}

#[test]
fn aborted_reads_are_g1a() {
    assert_found("1! ax1 | 2 rx[1]", &["G1a"]);
    assert_found("1! rX_ wX1 | 2 rX1", &["G1a"]);
    assert_found("1! rX_ wX1 | 2 rX1 wX2", &["G1a", "dirty-update"]);
    assert_found("1! ax1 | 2 ax2 | 3 rx[1,2]", &["G1a", "dirty-update"]);
}

#[test]
fn intermediate_reads_are_g1b() {
    assert_found("1 ax1 ax2 | 2 rx[1] | 3 rx[1,2]", &["G1b"]);
    assert_found("1 rX_ wX1 wX2 | 2 rX1", &["G1b"]);
}

#[test]
fn read_skew_is_g_single() {
    assert_found("1 ax1 ay2 | 2 rx[] ry[2] | 3 rx[1]", &["G-single"]);
    assert_found("1 rX_ rY_ wX1 wY2 | 2 rX_ rY2", &["G-single"]);
}

#[test]
fn what_vanishes_after_it_was_seen_is_otv() {
    assert_found("1 ax1 ay2 | 2 ry[2] rx[] | 3 rx[1]", &["OTV", "G-single"]);
    assert_found("1 rX_ rY_ wX1 wY2 | 2 rY2 rX_", &["OTV", "G-single"]);
    // on top of what is newer than the snapshot
    assert_found("1 ax1 ay2 | 2 ay3 ry[2,3] rx[] | 3 rx[1]", &["OTV-write", "G-single"]);
    assert_found("1 ax1 ay2 | 2 az3 ry[2] rx[] | 3 rx[1]", &["OTV", "G-single"]);
}

#[test]
fn long_forks_are_g_nonadjacent() {
    assert_found("1 ax1 | 2 ay2 | 3 rx[1] ry[] | 4 rx[] ry[2]", &["G-nonadjacent"]);
}

#[test]
fn write_skew_is_g2_item() {
    assert_found("1 rx[] ay1 | 2 ry[] ax2", &["G2-item"]);
    assert_found("1 rX_ rY_ wY1 | 2 rY_ rX_ wX2", &["G2-item"]);
    assert_found("1 rx[] ay1 | 2 ry[] az2 | 3 rz[] ax3", &["G2-item"]);
}

#[test]
fn lost_updates_have_a_name_of_their_own() {
    assert_found("1 rx[] ax1 | 2 rx[] ax2 | 3 rx[1,2]", &["lost-update", "G-single"]);
    // which of the writes came first is not known, but there was an order: no two of them skew each other
    assert_found("1 rX_ wX1 | 2 rX_ wX2", &["lost-update"]);
    assert_found("1 rX_ wX26 | 2 rX26 wX41 | 3 rX26 wX56 | 4 rX41", &["lost-update"]);
    assert_found("1 rX_ rX_ wX1 wX2 | 2 rX_ wX3 rX3 | 3 rX_ wX4", &["lost-update"]);
    assert_found("1 rx[] ax1 | 2 rx[] ax2", &["lost-update"]);
    // nor does a lost update hide what others show, or the same two elsewhere
    assert_found("1 rX_ rY_ wX1 wY3 | 2 rX_ wX2 | 3 rX_ rY3", &["lost-update", "G-single"]);
    assert_found("1 rX_ wX1 rY_ rZ_ wZ3 | 2 rX_ wX2 rZ_ rY_ wY4", &["lost-update", "G2-item"]);
    // who only read the version did not replace it
    assert_found("1 rX_ rY_ wX1 | 2 rX_ wX2 | 3 rX_ rY_ wY3", &["lost-update", "G2-item"]);
    // an append that did not read before is no update, and comes after what was read of the list either way
    assert_found("1 ax1 ay3 | 2 rx[] ax2 ry[3]", &["G-single"]);
}

/// Whoever else was there to see it.
#[test]
fn one_fault_is_counted_once() {
    for (words, anomaly, count) in [
        ("1 rX_ wX1 | 2 rX_ wX2 | 3 rX_ wX3", Anomaly::LostUpdate, 1),
        ("1 rX_ wX1 | 2 rX_ wX2 | 3 rX1 wX3 | 4 rX1 wX4", Anomaly::LostUpdate, 2),
        ("1 ax1 | 2 rx[] rx[1] | 3 rx[] rx[1]", Anomaly::NonRepeatableRead, 1),
        ("1 ax1 | 2 ax2 | 3 rx[] rx[1] | 4 rx[1] rx[1,2]", Anomaly::NonRepeatableRead, 2),
        ("1 rX_ wX1 | 2 rX_ rX1 | 3 rX_ rX1", Anomaly::NonRepeatableRead, 1),
        ("1 ax1 ay2 | 2 ry[2] rx[] | 3 ry[2] rx[] | 4 rx[1]", Anomaly::ObservedTransactionVanishes, 1),
    ] {
        assert_eq!(report(words).finding(anomaly).unwrap().count, count, "{words}");
    }
    assert!(Anomaly::WrongTotal.comes_in_clusters() && !Anomaly::LostUpdate.comes_in_clusters());
}

#[test]
fn what_a_transaction_alone_shows() {
    assert_found("1 ax1 rx[]", &["internal"]);
    assert_found("1 rX_ wX1 rX_", &["internal"]);
    assert_found("1 rx[1] ax1", &["future-read"]);
    assert_found("1 rX1 wX1", &["future-read"]);
    assert_found("1 rx[] rx[1] | 2 ax1", &["non-repeatable-read", "G-single"]);
    assert_found("1 rX_ rX1 | 2 rX_ wX1", &["non-repeatable-read", "G-single"]);
    assert_found("1 rx[] ax1 rx[2,1] | 2 ax2", &["non-repeatable-read-write", "G-single"]);
    // it is the object itself that it must have written
    assert_found("1 rx[] ry[] ay1 rx[2] | 2 ax2", &["non-repeatable-read", "G-single"]);
}

#[test]
fn what_no_store_may_show() {
    assert_found("1 rx[7]", &["garbage-read"]);
    assert_found("1 rX7", &["garbage-read"]);
    assert_found("1 ax7 | 2 ry[7]", &["garbage-read"]);
    assert_found("1 ax1 | 2 rx[1,1]", &["duplicate-elements"]);
    assert_found("1 ax1 rx[1,1]", &["duplicate-elements"]);
    assert_found("1 ax1 | 2 ax2 | 3 rx[1,2] | 4 rx[2,1]", &["incompatible-order"]);
    assert_found("1 rx[] t90/100", &["wrong-total"]);
    assert_found("1 rx[] m90/100", &["wrong-total-write"]);
}

#[test]
fn orders_beyond_the_data_have_suffixes() {
    // session 1 does not see what it had written
    assert_found("1 ax1 | 1 rx[] | 2 rx[1]", &["G-single-session"]);
    assert_found("1@1-2 ax1 | 2@3-4 rx[] | 3@5-6 rx[1]", &["G-single-realtime"]);
    assert_found("1@1-3 ax1 | 2@2-4 rx[]", &[]);
    // written in an order that no session and no clock allows
    assert_found("1 ax1 | 1 ax2 | 2 rx[2,1]", &["G0-session"]);
    assert_found("1@1-2 ax1 | 2@3-4 ax2 | 3@5-6 rx[2,1]", &["G0-realtime"]);
    assert_found("1 rX1 | 1 rY_ wY1001 | 2 rX_ wX1 rY1001", &["G1c-session"]);
    assert_found("1 rX1 | 1 rY_ wY1001 | 2 rY1001 | 2 rX_ wX1", &["G1c-session"]);
    assert_found("1@1-2 rX1 | 2@3-4 rX_ wX1", &["G1c-realtime"]);
    assert_found("1 ax1 | 1 ry[] | 2 ay2 | 2 rx[] | 3 rx[1] ry[2]", &["G-nonadjacent-session"]);
    assert_found("1@1-9 rx[] ay1 | 2@2-3 ax2 | 3@4-5 ry[]", &["G2-item-realtime"]);
    // in the same session, the other did not see y: more than that each did not see what the other wrote
    assert_found("1 rx[] ay1 | 1 ry[] ax2", &["G2-item", "G-single-session"]);
}

#[test]
fn cycles_that_share_no_transaction_are_counted() {
    let pairs = (0..7_u8).map(|n| {
        let (x, y) = (char::from(b'a' + n), char::from(b'n' + n));
        format!("{n} r{x}[] a{y}{n} | 5{n} r{y}[] a{x}5{n}")
    });
    let words: Vec<_> = pairs.collect();
    let report = report(&words.join(" | "));
    let skew = report.finding(Anomaly::Cycle(Shape::G2Item, Order::Data)).unwrap();
    assert_eq!((report.committed, skew.count), (14, 7));
    assert!(report.exhaustive && !skew.is_at_least);
}

/// Results and documents refer to them.
#[test]
fn the_names_of_findings_are_their_own() {
    let documented = include_str!("../../../../docs/transactions.md");
    let mut names = BTreeSet::new();
    for anomaly in Anomaly::all() {
        let name = anomaly.finding();
        let is_beyond_the_data = matches!(anomaly, Anomaly::Cycle(_, Order::Session | Order::RealTime));
        assert!(is_beyond_the_data || documented.contains(&format!("`{name}`")), "{name} is not documented");
        assert!(names.insert(name), "{anomaly}");
    }
    assert!(names.contains("read_skew_against_real_time"));
}

#[test]
fn labels_have_the_name_of_papers_where_there_is_one() {
    let labels = [
        (Anomaly::LostUpdate, "lost update"),
        (Anomaly::G1a, "aborted read (G1a)"),
        (Anomaly::ObservedTransactionVanishes, "observed transaction vanishes (OTV)"),
        (Anomaly::ObservedTransactionVanishesAfterWrite, "observed transaction vanishes in an own row"),
        (Anomaly::NonRepeatableReadAfterWrite, "non-repeatable read of an own row"),
        (Anomaly::WrongTotalAfterWrite, "wrong total after an own transfer"),
        (Anomaly::Cycle(Shape::GSingle, Order::Data), "read skew (G-single)"),
        (Anomaly::Cycle(Shape::G2Item, Order::RealTime), "write skew against real time (G2-item-realtime)"),
    ];
    for (anomaly, label) in labels {
        assert_eq!(anomaly.label(), label);
    }
}

#[test]
fn each_anomaly_is_forbidden_by_the_levels_of_the_definitions() {
    let weakest = |anomaly: Anomaly| anomaly.weakest_forbidding().to_string();
    assert_eq!(weakest(Anomaly::Cycle(Shape::G0, Order::Data)), "read uncommitted");
    assert_eq!(weakest(Anomaly::G1a), "read committed");
    assert_eq!(weakest(Anomaly::ObservedTransactionVanishes), "monotonic atomic view");
    assert_eq!(weakest(Anomaly::Cycle(Shape::GSingle, Order::Data)), "consistent view");
    assert_eq!(
        weakest(Anomaly::Cycle(Shape::GNonadjacent, Order::Session)),
        "strong session snapshot isolation"
    );
    assert_eq!(weakest(Anomaly::Cycle(Shape::G2Item, Order::RealTime)), "strict repeatable read");
    let snapshot = Guarantee { level: Level::SnapshotIsolation, order: Order::RealTime };
    assert!(!Anomaly::Cycle(Shape::G2Item, Order::Data).forbidden_by(snapshot));
    assert!(Anomaly::Cycle(Shape::GSingle, Order::Session).forbidden_by(snapshot));
    // whoever forbids an anomaly forbids it at every stronger level
    for shape in Shape::ALL {
        for order in Order::ALL {
            let serializable = Guarantee { level: Level::Serializable, order };
            assert!(Anomaly::Cycle(shape, order).forbidden_by(serializable));
        }
    }
}
