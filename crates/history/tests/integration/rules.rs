//! Doubt never becomes an accusation.

use std::fs::File;

use acidtest_history::{Anomaly, Disruption, Files, Limits, Operation, Order, Shape, Source, Writer, check};

use crate::notation::{assert_found, history, names, report};

#[test]
fn what_a_transaction_of_unknown_outcome_wrote_may_be_seen_or_not() {
    assert_found("1? ax1 | 2 rx[] | 3 rx[1]", &[]);
    assert_found("1? ax1 | 2 rx[]", &[]);
    assert_found("1? rX_ wX1 | 2 rX_ | 3 rX1", &[]);
    // seen half: it may be half done, or undone while it was read
    assert_found("1? ax1 ax2 | 2 rx[1]", &[]);
    assert_found("1? ax1 | 2 rx[1,1]", &[]);
    // the list without it may be the list after it was undone
    assert_found("1? ax1 | 2 ax2 | 3 rx[1] | 4 rx[2]", &[]);
}

#[test]
fn a_transaction_that_was_seen_counts_as_committed() {
    assert_found("1? ax1 ay2 | 2 rx[1] ry[] | 3 ry[2]", &["OTV", "G-single"]);
    assert_found("1? rx[] ay1 | 2 ry[] ax2 | 3 ry[1]", &["G2-item"]);
    assert_eq!(report("1? ax1 | 2 rx[1] | 3? ax3").recovered, 1);
    // but whether anybody but a committed transaction saw it says nothing
    assert_found("1? rx[] ay1 | 2 ry[] ax2 | 3? ry[1] | 4! ry[1]", &[]);
    // who allows dirty reads allows it to be undone, and then there was no write cycle
    assert_found("1? ax1 ay1001 | 2 ax2 ay1002 | 3 rx[1,2] | 4 ry[1002,1001]", &["G1c"]);
}

#[test]
fn an_unknown_transaction_comes_before_nothing_in_time_or_session() {
    let words = "1@1-2 ax1 | 2@3-4 rx[] | 3@5-6 rx[1]";
    assert_found(words, &["G-single-realtime"]);
    assert_found(&words.replacen("1@", "1?@", 1), &[]);
    assert_found("1? ax1 | 1 rx[] | 2 rx[1]", &[]);
    // and a session is over with it
    assert_found("1 ax1 | 1? rz[] | 1 rx[] | 2 rx[1]", &[]);
    // but what came before it did
    assert_found("1@1-2 rX1 | 2?@3-4 rX_ wX1", &["G1c-realtime"]);
}

#[test]
fn reads_that_are_not_committed_accuse_nobody() {
    for words in
        ["ax1 rx[]", "rx[7]", "rX7", "rX_ rX5", "rx[3] ax3", "t90/100", "rx[5,5]", "rx[6,5]", "rx[8]", "rX9"]
    {
        for mark in ["!", "?"] {
            let words = format!("1{mark} {words} | 2 ax5 ax6 | 3 rx[5,6] | 4! ax8 rX_ wX9");
            assert_found(&words, &[]);
        }
    }
}

#[test]
fn orders_are_compared_by_what_was_committed() {
    // the aborted value is an anomaly, but no second one
    assert_found("1! ax1 | 2 ax2 | 3 rx[1] | 4 rx[2]", &["G1a"]);
    assert_found(
        "1! ax1 | 2 ax2 | 3 ax3 | 4 rx[1,2,3] | 5 rx[3,2]",
        &["incompatible-order", "G1a", "dirty-update"],
    );
    // an update on top of what may have been undone is no lost update, but 2 was appended after 3 and without having read it
    assert_found("1? ax1 | 2 rx[1] ax2 | 3 rx[] ax3 | 4 rx[3,2]", &["G-single"]);
}

#[test]
fn values_whose_writer_is_not_in_the_history_are_passed_over() {
    let mut words = history("1 rx[7] | 2 rX8 wX9 | 3 ax1 | 4 rx[7,1]");
    assert!(!check(&mut words, &[]).unwrap().findings.is_empty());
    words.left_out = 1;
    let report = check(&mut words, &[]).unwrap();
    assert_eq!(names(&report), [""; 0]);
    assert_eq!((report.unattributed, report.left_out), (2, 1));
    // what it does tell, it tells: 1 before whoever wrote 7, and that before 2
    words = history("1 ax1 ry[] | 2 ax2 ay2000 | 3 rx[1,7,2]");
    words.left_out = 1;
    assert!(check(&mut words, &[]).unwrap().findings.is_empty());
    words = history("1 ax1 ry[2000] | 2 ax2 ay2000 | 3 rx[1,7,2]");
    words.left_out = 1;
    assert_eq!(names(&check(&mut words, &[]).unwrap()), ["G1c"]);
}

#[test]
fn what_a_disruption_may_have_lost_is_not_held_against_isolation() {
    let words = "1@1-2 ax1 | 1@3-4 rx[1] | 2@11-12 rx[] ax2 | 1@13-14 rx[2] | 3@5-15 rx[]";
    assert!(!report(words).findings.is_empty());
    let disruption = Disruption { from: 6, until: 10 };
    let disruptions = [disruption, disruption];
    let report = check(&mut history(words), &disruptions).unwrap();
    assert_eq!(names(&report), [""; 0]);
    assert_eq!((report.committed, report.spanning), (5, 1));
    // a transaction may be lost in half
    for words in
        ["1@1-2 ax1 ax2 | 2@11-12 rx[1]", "1@1-2 rX_ wX1 wX2 | 2@11-12 rX1", "1@1-12 ax1 ax2 | 2@11-12 rx[1]"]
    {
        let report = check(&mut history(words), &disruptions).unwrap();
        assert_eq!(names(&report), [""; 0], "{words}");
    }
    // an aborted write that comes back is none the less an anomaly
    let report = check(&mut history("1!@1-2 ax1 | 1@11-12 rx[1]"), &disruptions).unwrap();
    assert_eq!(names(&report), ["G1a"]);
    // and each epoch is checked
    let report = check(&mut history("1@11-12 rx[] ay1 | 2@11-12 ry[] ax2"), &disruptions).unwrap();
    assert_eq!(names(&report), ["G2-item"]);
}

#[test]
fn an_append_that_is_lost_comes_after_nothing() {
    let words = |last| format!("1@1-9 ax1 ay2 | 2@2-8 rx[] ax3 ry[2] | 3@{last} rx[3]");
    // whoever reads without it while it is being appended says that it came later
    assert_found(&words("7-20"), &["G1c"]);
    assert_found(&words("10-20"), &[]);
    // it is the last such read that tells
    assert_found(&format!("{} | 4@10-20 rx[3]", words("7-20")), &[]);
    assert_found("1@1-2 ax1 | 2@3-4 rx[]", &[]);
}

#[test]
fn what_makes_no_history_is_refused() {
    let refused = |words| check(&mut history(words), &[]).unwrap_err().to_string();
    assert_eq!(refused("1 ax1 | 2 ax1"), "value 1 was written by two operations: values must be unique");
    assert_eq!(refused("1 ax1 | 2 rX_ wX1"), "value 1 was written by two operations: values must be unique");
    let mut twice = history("1 ax1 | 1 ax2");
    twice.transactions[1].sequence = 0;
    let refused = check(&mut twice, &[]).unwrap_err().to_string();
    assert_eq!(refused, "session 1: transaction 0 started after one with a number that is not smaller");
}

#[test]
fn files_say_what_memory_says_and_what_they_lack() {
    let folder = tempfile::tempdir().unwrap();
    let words = history("1 rx[] ay1 | 2 ry[] ax2 | 3 rx[2] | 4 ry[1] az4 | 3 rz[4] rx[2]");
    let paths = [folder.path().join("a"), folder.path().join("b")];
    let write = |limits| {
        for (at, path) in paths.iter().enumerate() {
            let mut writer = Writer::new(File::create(path).unwrap(), path, limits).unwrap();
            for transaction in words.transactions.iter().filter(|each| each.session as usize % 2 == at) {
                writer.write(transaction).unwrap();
            }
            writer.finish().unwrap();
        }
        check(&mut Files::new(paths.to_vec()), &[]).unwrap()
    };
    let mut memory = words.clone();
    assert_eq!(write(Limits::default()), check(&mut memory, &[]).unwrap());
    let report = write(Limits { transactions: 1, ..Limits::default() });
    assert_eq!((report.committed, report.left_out), (2, 3));
    let mut files = Files::new(paths.to_vec());
    files.pass(&mut |_| {}).unwrap();
    assert_eq!(files.left_out(), 3);
}

/// As whoever reads a report finds it.
#[test]
fn what_is_wrong_is_said_in_a_sentence() {
    for (words, anomaly, sentence) in [
        (
            "1 rX_ wX1 | 2 rX_ wX2",
            Anomaly::LostUpdate,
            "T1 and T2 both read nothing in register 88 and then wrote to it: one write erased the other unseen.",
        ),
        (
            "1 rX_ wX26 | 2 rX26 wX41 | 3 rX26 wX56",
            Anomaly::LostUpdate,
            "T1 and T2 both read 26 in register 88 and then wrote to it: one write erased the other unseen.",
        ),
        (
            "1 rx[] ax1 | 2 rx[] ax2 | 3 rx[2,1]",
            Anomaly::LostUpdate,
            "T1 and T2 both read list 120 as [] and then appended to it. Both values are kept, but T1's append was decided on an \
             outdated read.",
        ),
        (
            "1 rx[] ax1 | 2 rx[] ax2",
            Anomaly::LostUpdate,
            "T1 and T2 both read list 120 as [] and then appended to it. The second append was decided on an outdated read.",
        ),
        (
            "1 ax1 ay2 | 2 ry[2] rx[] | 3 rx[1]",
            Anomaly::ObservedTransactionVanishes,
            "T2 saw what T1 had written in list 121, and afterwards read list 120 without what T1 wrote there.",
        ),
        (
            "1 ax1 ay2 | 2 ay3 ry[2,3] rx[] | 3 rx[1]",
            Anomaly::ObservedTransactionVanishesAfterWrite,
            "T2 wrote to list 121 itself and saw there what T1 had written, and afterwards read list 120 without what T1 \
             wrote there.",
        ),
        (
            "1 rx[] ax1 rx[2,1] | 2 ax2",
            Anomaly::NonRepeatableReadAfterWrite,
            "T1 wrote to list 120, and when it read it after that, others had changed it, too.",
        ),
        (
            "1 ax1 ax2 | 2 rx[1] | 3 rx[1,2]",
            Anomaly::G1b,
            "T2 read 1 in list 120 as the last that T1 had written there, but T1 wrote more there before it committed.",
        ),
        (
            "1! ax1 | 2 ax2 | 3 rx[1,2]",
            Anomaly::DirtyUpdate,
            "T1 appended 1 to list 120 and aborted, but T2 appended after it and committed: T3 read both.",
        ),
        (
            "1 rX1 wX1",
            Anomaly::FutureRead,
            "T1 read a value in register 88 that it wrote there itself only afterwards.",
        ),
        (
            "1 m997/1000",
            Anomaly::WrongTotalAfterWrite,
            "T1 moved money, which cannot change the total, and then read a total of 997 instead of 1,000.",
        ),
        ("1 t-1234567/100", Anomaly::WrongTotal, "T1 read a total of -1,234,567 instead of 100."),
    ] {
        let report = report(words);
        assert_eq!(report.finding(anomaly).unwrap().example.conclusion, sentence);
    }
}

#[test]
fn an_example_shows_how_money_moved() {
    let mut history = history("1 rx[] m997/1000");
    history.transactions[0].operations.push(Operation::Transfer { from: 4, to: 7, amount: 3 });
    let report = check(&mut history, &[]).unwrap();
    assert_eq!(names(&report), ["wrong-total-write"]);
    let operations = &report.findings[0].example.transactions[0].operations;
    assert_eq!(operations[1..], ["move 3 from account 4 to account 7", "read total: 997"]);
}

#[test]
fn an_example_can_be_read() {
    let report = report("3@1000000-2000000 rx[] ay14 | 1@1500000-2500000 ry[] ax9");
    let skew = report.finding(Anomaly::Cycle(Shape::G2Item, Order::Data)).unwrap();
    let (x, y) = (u32::from('x'), u32::from('y'));
    assert_eq!(
        skew.example.text(),
        format!(
            "write skew (G2-item)
T1: session 3, transaction 0, committed, at 0–1 ms of this example
    read list {x}: []
    append 14 to list {y}
T2: session 1, transaction 0, committed, at 0.5–1.5 ms of this example
    read list {y}: []
    append 9 to list {x}
T1 -rw-> T2: T1 read list {x} as [], without the 9 that T2 appended
T2 -rw-> T1: T2 read list {y} as [], without the 14 that T1 appended
So T1 must come before T2, and T2 before T1.
rw: read what the other then replaced.
"
        )
    );
}
