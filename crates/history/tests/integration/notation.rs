//! Histories as words, so that a test reads like a paper.
//!
//! `1 rx[1] ay2 | 2! ax1 | 3?@5-9 rX_ wX7 t90/100`: transactions apart by `|`. The first word is the session, `!` if it aborted,
//! `?` if its outcome is unknown, and `@` start and end. Without a time, all transactions overlap. Then the operations: `a` append,
//! `r` read, `w` write, `t` a total that was read and the one that is right, `m` the same after money was moved; the object, a list if it is a small letter, a register
//! if it is a capital; the value, the values, or `_` for none.

use acidtest_history::{History, Operation, Outcome, Report, Total, Transaction, check};

pub(crate) fn history(words: &str) -> History {
    let mut transactions: Vec<Transaction> = Vec::new();
    for (at, words) in words.split('|').enumerate() {
        let mut words = words.split_whitespace();
        let head = words.next().unwrap();
        let (head, time) = head.split_once('@').map_or((head, None), |(head, time)| (head, Some(time)));
        let outcome = match head.chars().last().unwrap() {
            '!' => Outcome::Aborted,
            '?' => Outcome::Unknown,
            _ => Outcome::Committed,
        };
        let session = head.trim_end_matches(['!', '?']).parse().unwrap();
        let (start, end) = time.map_or((at as u64, 1_000_000 + at as u64), |time| {
            let (start, end) = time.split_once('-').unwrap();
            (start.parse().unwrap(), end.parse().unwrap())
        });
        let mut transaction = Transaction {
            session,
            sequence: u32::try_from(transactions.iter().filter(|other| other.session == session).count())
                .unwrap(),
            start,
            end: (outcome != Outcome::Unknown).then_some(end),
            outcome,
            operations: Vec::new(),
            total: None,
        };
        for word in words {
            if let Some(total) = word.strip_prefix(['t', 'm']) {
                let (observed, expected) = total.split_once('/').unwrap();
                transaction.total = Some(Total {
                    observed: observed.parse().unwrap(),
                    expected: expected.parse().unwrap(),
                    after_write: word.starts_with('m'),
                });
            } else {
                transaction.operations.push(operation(word));
            }
        }
        transactions.push(transaction);
    }
    History { transactions, left_out: 0 }
}

fn operation(word: &str) -> Operation {
    let object = word.chars().nth(1).unwrap();
    let key = u32::from(object);
    let rest = &word[2..];
    match (&word[..1], object.is_lowercase()) {
        ("a", true) => Operation::Append { key, value: rest.parse().unwrap() },
        ("w", false) => Operation::Write { key, value: rest.parse().unwrap() },
        ("r", false) => Operation::ReadRegister { key, value: (rest != "_").then(|| rest.parse().unwrap()) },
        ("r", true) => {
            let values = rest.trim_matches(['[', ']']).split(',').filter(|value| !value.is_empty());
            Operation::ReadList { key, values: values.map(|value| value.parse().unwrap()).collect() }
        }
        _ => panic!("{word}"),
    }
}

pub(crate) fn report(words: &str) -> Report {
    check(&mut history(words), &[]).unwrap()
}

/// The names of what was found, in the order of the report.
pub(crate) fn names(report: &Report) -> Vec<String> {
    report.findings.iter().map(|finding| finding.anomaly.name()).collect()
}

#[track_caller]
pub(crate) fn assert_found(words: &str, expected: &[&str]) {
    let report = report(words);
    let texts: Vec<_> = report.findings.iter().map(|finding| finding.example.text()).collect();
    assert_eq!(names(&report), expected, "{words}\n{}", texts.join("\n"));
    for finding in &report.findings {
        assert!(finding.count > 0);
        assert!(finding.example.picture().starts_with("<svg"));
        assert!(
            !finding.example.text().contains("came before T"),
            "no reason given:\n{}",
            finding.example.text()
        );
    }
}
