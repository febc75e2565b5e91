//! Checks the history of a trial, with the final state as its end, against what the store promises.

use acidtest_history::{
    Anomaly, Disruption, Error, Files, Operation, Outcome, Report, Source, Transaction, check,
    poisson_interval,
};
use acidtest_model::count;

use super::{
    Layout, Ledger, Promise, State,
    ledger::{Totals, now},
    lost::{Lost, WrongTotals},
};
use crate::{
    Audit, Finding, PromisedLevel, SeenAnomaly,
    guarantee::{ATOMICITY, DURABILITY, INTEGRITY, ISOLATION},
};

/// The evidence that says how many transactions were left out, because the history had reached its limit.
pub const LEFT_OUT: &str = "left_out";

/// The evidence that says in how many committed transactions anomalies were looked for.
pub const CHECKED: &str = "transactions_committed";

/// The evidence that counts all anomalies, permitted or not.
pub const ANOMALIES: &str = "anomalies";

/// What the store held when it was read back, and when that was.
#[derive(Debug)]
pub struct Final {
    state: State,
    began: u64,
    ended: u64,
}

impl Final {
    /// Times the reading.
    pub(super) fn began() -> u64 {
        now()
    }

    /// The state that was read since then.
    pub(super) fn of(state: State, began: u64) -> Self {
        Self { state, began, ended: now() }
    }

    /// Reads of single objects, each a transaction of its own: what was not answered may be done between two of them.
    fn transactions(&self) -> Vec<Transaction> {
        let lists = self.state.lists.iter();
        let lists = lists.map(|(&key, values)| Operation::ReadList { key, values: values.clone() });
        let registers = self.state.registers.iter();
        let registers = registers.map(|(&key, &value)| Operation::ReadRegister { key, value });
        let transaction = |(number, read)| Transaction {
            session: u32::MAX - number,
            sequence: 0,
            start: self.began,
            end: Some(self.ended),
            outcome: Outcome::Committed,
            operations: vec![read],
            total: None,
        };
        (0..).zip(lists.chain(registers)).map(transaction).collect()
    }

    /// Whether it was read while nobody knew that the server was undisturbed.
    fn is_disturbed(&self, disruptions: &[Disruption]) -> bool {
        disruptions.iter().any(|Disruption { from, until }| *from <= self.ended && self.began <= *until)
    }
}

/// What clients wrote down, and after that the final state.
struct Whole {
    files: Files,
    last: Vec<Transaction>,
}

impl Source for Whole {
    fn pass(&mut self, each: &mut dyn FnMut(&Transaction)) -> Result<(), Error> {
        self.files.pass(each)?;
        self.last.iter().for_each(each);
        Ok(())
    }

    fn left_out(&self) -> u64 {
        self.files.left_out()
    }
}

/// Whether no store may do that, whatever its level.
fn is_never_permitted(anomaly: Anomaly) -> bool {
    matches!(anomaly, Anomaly::GarbageRead | Anomaly::DuplicateElements)
}

/// Whether it may look like that when acknowledged writes are lost: those who saw them are then at odds with those who come after.
fn comes_from_loss(anomaly: Anomaly) -> bool {
    match anomaly {
        Anomaly::IncompatibleOrder
        | Anomaly::ObservedTransactionVanishes
        | Anomaly::ObservedTransactionVanishesAfterWrite
        | Anomaly::LostUpdate
        | Anomaly::WrongTotal
        | Anomaly::WrongTotalAfterWrite
        | Anomaly::Cycle(..) => true,
        Anomaly::GarbageRead
        | Anomaly::DuplicateElements
        | Anomaly::Internal
        | Anomaly::FutureRead
        | Anomaly::G1a
        | Anomaly::DirtyUpdate
        | Anomaly::G1b
        | Anomaly::NonRepeatableRead
        | Anomaly::NonRepeatableReadAfterWrite => false,
    }
}

/// The 95 % interval of how many occurrences to expect where `count` were seen, in whole ones.
#[must_use]
pub fn interval(count: u64) -> [u64; 2] {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a bound is not negative")]
    let whole = |bound: f64| bound.round() as u64;
    let (low, high) = poisson_interval(count);
    [low, high].map(whole)
}

fn seen(report: &Report, promise: &Promise) -> Vec<SeenAnomaly> {
    let seen = |finding: &acidtest_history::Finding| {
        let anomaly = finding.anomaly;
        SeenAnomaly {
            finding: anomaly.finding(),
            name: anomaly.name(),
            title: anomaly.label(),
            count: finding.count,
            unit: anomaly.unit().to_owned(),
            is_at_least: finding.is_at_least,
            interval: (!anomaly.comes_in_clusters()).then(|| interval(finding.count)),
            is_ruled_out: promise.rules_out(anomaly) || is_never_permitted(anomaly),
            forbidden_from: anomaly.weakest_forbidding().to_string(),
            adya_forbids: promise.adya_forbids(anomaly),
            example: finding.example.clone(),
        }
    };
    report.findings.iter().map(seen).collect()
}

/// Holds what the clients saw and what the store held in the end against what it promises.
pub fn audit(
    ledger: &Ledger,
    layout: &Layout,
    promise: Result<&Promise, String>,
    end: &Result<Final, String>,
) -> Audit {
    let totals = ledger.totals();
    let promise = match promise {
        Ok(promise) => promise,
        Err(error) => return Audit::unknown(format!("what the store promises is not known: {error}")),
    };
    let mut files = match ledger.history() {
        Ok(files) => files,
        Err(error) => return Audit::unknown(error),
    };
    let disruptions = ledger.disruptions();
    // a sum stays wrong after a crash that took a part of it; before the first one nothing was lost
    let first = disruptions.iter().map(|disruption| disruption.from).min().unwrap_or(u64::MAX);
    let checked = (|| {
        let lost = match end {
            Ok(end) => Lost::of(&mut files, &end.state, layout, &ledger.moved())?,
            Err(_) => Lost::default(),
        };
        let read_back = end.as_ref().map_or_else(|_| Vec::new(), Final::transactions);
        let read_back_surely = match end {
            Ok(end) if !end.is_disturbed(&disruptions) => read_back.len() as u64,
            _ => 0,
        };
        let ended_unseen = disruptions.iter().any(|disruption| ledger.left_out() <= disruption.until);
        let mut whole = Whole { files, last: read_back };
        let report = check(&mut whole, &disruptions)?;
        let is_wrong = |anomaly| report.finding(anomaly).is_some();
        let early_totals = if is_wrong(Anomaly::WrongTotal) || is_wrong(Anomaly::WrongTotalAfterWrite) {
            WrongTotals::of(&mut whole.files, first)?
        } else {
            WrongTotals::default()
        };
        let searched = (report.committed - report.spanning).saturating_sub(read_back_surely);
        Ok::<_, Error>(Checked { report, lost, early_totals, searched, ended_unseen })
    })();
    match checked {
        Ok(checked) => judge(&checked, promise, &totals, end.as_ref().map_err(String::as_str)),
        Err(error) => Audit::unknown(format!("the history cannot be checked: {error}")),
    }
}

/// What the history and the final state tell.
struct Checked {
    report: Report,
    lost: Lost,
    /// Committed transactions that saw a wrong sum before anything disturbed the server.
    early_totals: WrongTotals,
    /// Committed transactions of the clients that prove something.
    searched: u64,
    /// Whether the server was disturbed when the history had reached its limit.
    ended_unseen: bool,
}

fn judge(checked: &Checked, promise: &Promise, totals: &Totals, end: Result<&Final, &str>) -> Audit {
    let Checked { report, lost, early_totals, searched, .. } = checked;
    let (garbled, doubled) = end.map_or((0, 0), |end| (end.state.unreadable, end.state.doubled));
    let held_to = Anomaly::all().filter_map(|anomaly| {
        let guarantee = if is_never_permitted(anomaly) {
            INTEGRITY
        } else if promise.rules_out(anomaly) {
            ISOLATION
        } else {
            return None;
        };
        let count = report.finding(anomaly).map_or(0, |finding| finding.count);
        let finding = Finding::new(&anomaly.finding(), count, anomaly.unit(), guarantee);
        Some(match anomaly {
            Anomaly::WrongTotal => finding.or_loss().within_epoch(early_totals.of_readers),
            Anomaly::WrongTotalAfterWrite => finding.or_loss().within_epoch(early_totals.after_write),
            // the checker takes what is before a disruption and what is after it apart
            _ if comes_from_loss(anomaly) => finding.or_loss().within_epoch(count),
            _ => finding,
        })
    });
    let others = [
        Finding::new("lost_appends", lost.appends, "appends", DURABILITY),
        Finding::new("lost_writes", lost.writes, "writes", DURABILITY),
        Finding::new("lost_rows", lost.rows, "rows", DURABILITY),
        Finding::new("wrong_balances", lost.balances, "accounts", INTEGRITY).or_loss(),
        Finding::new("unbalanced", lost.unbalanced, "units", ATOMICITY).or_loss(),
        Finding::new("missing", totals.missing, "transactions", INTEGRITY).or_loss_with("lost_rows"),
        Finding::new("doubled_rows", doubled, "rows", INTEGRITY),
        Finding::new("garbled", totals.unreadable + garbled, "reads", INTEGRITY),
    ];
    let findings: Vec<Finding> = held_to.chain(others).collect();
    let anomalies = seen(report, promise);
    let all: u64 = anomalies.iter().map(|anomaly| anomaly.count).sum();
    let doubt = doubt(checked, promise, totals, end, &anomalies);
    let evidence = [
        (CHECKED, *searched),
        ("transactions_aborted", report.aborted),
        ("transactions_unknown", report.unknown),
        ("transactions_recovered", report.recovered),
        ("transactions_across_disruptions", report.spanning),
        ("values_unattributed", report.unattributed),
        (LEFT_OUT, report.left_out),
        ("searches_cut_short", u64::from(!report.exhaustive)),
        (ANOMALIES, all),
    ];
    let promised_level = Some(PromisedLevel {
        level: promise.level.clone(),
        said: promise.said.clone(),
        source: promise.source.clone(),
    });
    Audit { anomalies, promised_level, ..Audit::of(findings, doubt, evidence) }
}

/// Why nothing that was found is no proof that the level holds, or none that the figures are those of this workload.
fn doubt(
    checked: &Checked,
    promise: &Promise,
    totals: &Totals,
    end: Result<&Final, &str>,
    anomalies: &[SeenAnomaly],
) -> Option<String> {
    let Checked { report, searched, ended_unseen, .. } = checked;
    if let Err(error) = end {
        return Some(format!("the final state cannot be read: {error}"));
    }
    if totals.committed == 0 {
        return Some("no transaction was committed".to_owned());
    }
    if *searched == 0 {
        return Some(if report.spanning > 0 {
            "of no committed transaction is it known on which side of the crash it was".to_owned()
        } else {
            "no committed transaction was kept".to_owned()
        });
    }
    if *ended_unseen && report.left_out > 0 {
        return Some(
            "the history had reached its limit before the server was ended, so that nobody knows what was lost (use an earlier \
             --fault)"
                .to_owned(),
        );
    }
    if totals.without_room > 0 {
        return Some(format!(
            "the lists are full, so that less was written than was asked for (appends left out: {}; use a shorter --duration, or more \
             --keys)",
            count(totals.without_room)
        ));
    }
    let beyond = anomalies.iter().find(|seen| seen.adya_forbids && !seen.is_ruled_out);
    beyond.filter(|_| promise.said.is_empty()).map(|seen| {
        format!(
            "nothing is known to be promised of {}, and there was {} (by the definitions of Adya the level of this name forbids it)",
            promise.level, seen.title
        )
    })
}

#[cfg(test)]
mod tests {
    use acidtest_history::Total;

    use super::{super::ledger::MOST, *};
    use crate::{TrialLedger, Verdict};

    const LAYOUT: Layout = Layout { lists: 4, registers: 2, accounts: 2, balance: 10 };

    fn transaction(session: u32, operations: Vec<Operation>) -> Transaction {
        let start = u64::from(session) * 100;
        Transaction {
            session,
            sequence: 0,
            start,
            end: Some(start + 1_000),
            outcome: Outcome::Committed,
            operations,
            total: None,
        }
    }

    fn appended(session: u32, key: u32, before: &[u64], value: u64) -> Transaction {
        let read = Operation::ReadList { key, values: before.to_vec() };
        transaction(session, vec![read, Operation::Append { key, value }])
    }

    fn noted(transactions: Vec<Transaction>) -> Ledger {
        let ledger = Ledger::new(LAYOUT, 2, 1);
        for transaction in &transactions {
            ledger.count(transaction);
        }
        ledger.note(&mut { transactions });
        ledger
    }

    fn state(lists: &[(u32, &[u64])]) -> State {
        let mut state = State::default();
        for key in 0..LAYOUT.lists {
            let values = lists.iter().find(|(list, _)| *list == key).map_or(&[][..], |(_, values)| values);
            state.list(key, values.to_vec());
        }
        (0..LAYOUT.registers).for_each(|key| state.register(key, None));
        (0..LAYOUT.accounts).for_each(|key| state.account(key, LAYOUT.balance));
        state
    }

    fn judged(ledger: &Ledger, promise: &Promise, state: State) -> Audit {
        audit(ledger, &LAYOUT, Ok(promise), &Ok(Final::of(state, Final::began())))
    }

    fn serializable() -> Promise {
        Promise::documented("postgres", "serializable", "")
    }

    fn found(audit: &Audit) -> Vec<(&str, u64, &str)> {
        let found = audit.findings.iter().filter(|finding| finding.count > 0);
        found.map(|each| (each.name.as_str(), each.count, each.guarantee.as_str())).collect()
    }

    #[test]
    fn what_follows_one_after_the_other_holds() {
        let ledger = noted(vec![appended(0, 1, &[], 5), appended(1, 1, &[5], 6)]);
        let audit = judged(&ledger, &serializable(), state(&[(1, &[5, 6])]));
        assert_eq!(audit.verdict, Verdict::Holds, "{audit:?}");
        // what was read back is not among what clients committed
        assert_eq!(audit.evidence[CHECKED], 2);
    }

    #[test]
    fn what_was_acknowledged_and_is_gone_is_lost() {
        let ledger = noted(vec![appended(0, 1, &[], 5), appended(1, 2, &[], 6)]);
        let audit = judged(&ledger, &serializable(), state(&[(1, &[5])]));
        assert_eq!(found(&audit), [("lost_appends", 1, "durability")]);
        let mut short = state(&[(1, &[5]), (2, &[6])]);
        short.lists.remove(&3);
        assert_eq!(found(&judged(&ledger, &serializable(), short)), [("lost_rows", 1, "durability")]);
    }

    /// What it held may be there or lost; that it makes no sense is all that is known.
    #[test]
    fn a_row_that_makes_no_sense_is_not_lost_as_well() {
        let ledger = noted(vec![appended(0, 1, &[], 5)]);
        let mut garbled = state(&[]);
        garbled.lists.remove(&1);
        garbled.row(crate::transactions::Table::Lists, 1, &crate::transactions::Held::Other);
        assert_eq!(found(&judged(&ledger, &serializable(), garbled)), [("garbled", 1, "integrity")]);
    }

    /// Write skew: each reads the list that the other appends to.
    fn skew() -> Ledger {
        let one = |session, read, append, value| {
            let read = Operation::ReadList { key: read, values: Vec::new() };
            transaction(session, vec![read, Operation::Append { key: append, value }])
        };
        noted(vec![one(0, 1, 2, 5), one(1, 2, 1, 6)])
    }

    #[test]
    fn the_documentation_decides_whether_an_anomaly_is_a_failure() {
        let last = || state(&[(1, &[6]), (2, &[5])]);
        let broken = judged(&skew(), &serializable(), last());
        assert_eq!(found(&broken), [("write_skew", 1, "isolation")]);
        let snapshot = Promise::documented("postgres", "repeatable read", "");
        let permitted = judged(&skew(), &snapshot, last());
        assert_eq!((permitted.verdict, found(&permitted)), (Verdict::Holds, Vec::new()));
        assert_eq!((permitted.anomalies.len(), permitted.evidence[ANOMALIES]), (1, 1));
        assert!(!permitted.anomalies[0].is_ruled_out && permitted.anomalies[0].adya_forbids);
        // of a product that the table does not have nothing is promised, and an anomaly is no proof of anything
        let other = judged(&skew(), &Promise::documented("other", "serializable", ""), last());
        assert_eq!((other.verdict, found(&other)), (Verdict::Unknown, Vec::new()));
        assert!(other.reason.is_some_and(|reason| reason.contains("there was write skew")));
    }

    /// Whatever a transaction without an answer has done.
    #[test]
    fn doubt_accuses_nobody() {
        for (lists, moved) in [(&[(1, &[6][..]), (2, &[5])][..], 3), (&[(1, &[6])], 0)] {
            let one = |session, outcome, read, append, value| {
                let read = Operation::ReadList { key: read, values: Vec::new() };
                let operations = vec![read, Operation::Append { key: append, value }];
                Transaction { outcome, end: None, ..transaction(session, operations) }
            };
            let known = Transaction { end: Some(300), ..one(1, Outcome::Committed, 3, 1, 6) };
            let ledger = noted(vec![one(0, Outcome::Unknown, 0, 2, 5), known]);
            ledger.transferred(&[(0, -3), (1, 3)].into(), false);
            let audit =
                judged(&ledger, &serializable(), with_accounts(state(lists), [10 - moved, 10 + moved]));
            assert_eq!(audit.verdict, Verdict::Holds, "{audit:?}");
        }
    }

    fn with_accounts(mut state: State, balances: [i64; 2]) -> State {
        state.accounts = (0..).zip(balances).collect();
        state
    }

    /// At any level, and where nothing is promised: a transfer has two halves.
    #[test]
    fn balances_that_transfers_cannot_leave_are_wrong() {
        let ledger = noted(vec![appended(0, 1, &[], 5)]);
        ledger.transferred(&[(0, -3), (1, 3)].into(), true);
        ledger.transferred(&[(0, 2), (1, -2)].into(), false);
        let nothing = Promise::documented("other", "read uncommitted", "");
        let end = |balances| {
            let audit = judged(&ledger, &nothing, with_accounts(state(&[(1, &[5])]), balances));
            ["wrong_balances", "unbalanced"].map(|name| audit.count(name))
        };
        assert_eq!([end([7, 13]), end([9, 11])], [[0, 0]; 2]);
        // the acknowledged transfer is gone, or done twice
        assert_eq!([end([10, 10]), end([4, 16])], [[2, 0]; 2]);
        // half of the one without an answer was done, or of the acknowledged one
        assert_eq!([end([9, 13]), end([7, 10])], [[0, 2], [1, 3]]);
    }

    #[test]
    fn a_register_that_holds_an_older_value_than_was_acknowledged_has_lost_a_write() {
        let write = |session, start, before, value| {
            let read = Operation::ReadRegister { key: 0, value: before };
            let operations = vec![read, Operation::Write { key: 0, value }];
            Transaction { start, end: Some(start + 10), ..transaction(session, operations) }
        };
        let held = |value| {
            let mut state = state(&[]);
            state.registers.insert(0, value);
            let ledger =
                noted(vec![write(0, 100, None, 5), write(1, 105, None, 6), write(2, 200, Some(6), 7)]);
            // at a level that permits lost updates
            judged(&ledger, &Promise::documented("postgres", "read committed", ""), state)
                .count("lost_writes")
        };
        // of two at once either may be the last
        assert_eq!([held(Some(7)), held(Some(6)), held(Some(5)), held(None)], [0, 1, 1, 3]);
        // nobody knows when that was written
        assert_eq!(held(Some(99)), 0);
    }

    /// What a kill took is no proof against the level, and not read as one.
    #[test]
    fn a_crash_explains_what_is_on_both_sides_of_it() {
        let ledger = Ledger::new(LAYOUT, 2, 1);
        let began = now();
        let at = |start, end, session, operations| Transaction {
            start,
            end: Some(end),
            ..transaction(session, operations)
        };
        let before = at(began, began + 1, 0, appended(0, 1, &[], 5).operations);
        std::thread::sleep(std::time::Duration::from_millis(1));
        for boundary in [crate::Boundary::Before, crate::Boundary::During, crate::Boundary::After] {
            ledger.note_boundary(boundary);
        }
        let then = now();
        let after = at(then, then + 1, 1, appended(1, 1, &[], 6).operations);
        ledger.count(&before);
        ledger.note(&mut vec![before, after]);
        let mut audit = judged(&ledger, &serializable(), state(&[(1, &[6])]));
        audit.across_epochs(&[] as &[&str]);
        assert_eq!(found(&audit), [("lost_appends", 1, "durability")]);
    }

    /// Half of a transfer may be lost in it. What was seen before it is the level's.
    #[test]
    fn a_sum_that_is_wrong_after_a_crash_is_no_proof_against_the_level() {
        let ledger = Ledger::new(LAYOUT, 2, 1);
        let began = now();
        let saw = |session: u32, at: u64, after_write| {
            let total = Some(Total { observed: 17, expected: 20, after_write });
            Transaction { start: at, end: Some(at + 1), total, ..transaction(session, Vec::new()) }
        };
        let before = [saw(0, began, false), saw(1, began, true)];
        std::thread::sleep(std::time::Duration::from_millis(1));
        for boundary in [crate::Boundary::Before, crate::Boundary::During, crate::Boundary::After] {
            ledger.note_boundary(boundary);
        }
        let then = now();
        let after = [saw(2, then, false), saw(3, then, false), saw(4, then, true), saw(5, then, true)];
        for each in before.into_iter().chain(after) {
            ledger.count(&each);
            ledger.note(&mut vec![each]);
        }
        let mut audit = judged(&ledger, &serializable(), with_accounts(state(&[]), [7, 10]));
        audit.across_epochs(&[] as &[&str]);
        let found = found(&audit);
        for expected in [
            ("wrong_total", 1, "isolation"),
            ("wrong_total", 2, "durability"),
            ("wrong_total_after_write", 1, "isolation"),
            ("wrong_total_after_write", 2, "durability"),
            ("unbalanced", 3, "durability"),
        ] {
            assert!(found.contains(&expected), "{expected:?}: {found:?}");
        }
    }

    /// Where nobody knows when the server was disturbed, nothing that was seen proves anything.
    #[test]
    fn a_history_that_proves_nothing_does_not_hold() {
        let before = noted(vec![appended(0, 1, &[], 5)]);
        before.note_boundary(crate::Boundary::Before);
        let audit = judged(&before, &serializable(), state(&[(1, &[5])]));
        assert_eq!((audit.verdict, audit.evidence[CHECKED]), (Verdict::Holds, 1), "{audit:?}");
        let later = now() + 1_000_000_000_000;
        let during = Transaction { start: later, end: Some(later + 1), ..appended(0, 1, &[], 5) };
        let during = noted(vec![during]);
        during.note_boundary(crate::Boundary::Before);
        let audit = judged(&during, &serializable(), state(&[(1, &[5])]));
        assert_eq!((audit.verdict, audit.evidence[CHECKED]), (Verdict::Unknown, 0), "{audit:?}");
        assert!(audit.reason.is_some_and(|reason| reason.contains("which side of the crash")));
    }

    /// What was acknowledged after the limit is nowhere written down.
    #[test]
    fn a_crash_after_the_limit_of_the_history_leaves_a_doubt() {
        let of_one_transaction = u32::try_from(MOST).unwrap() as usize;
        let ledger = Ledger::new(LAYOUT, 2, of_one_transaction);
        for each in [appended(0, 1, &[], 5), appended(1, 1, &[5], 6)] {
            ledger.count(&each);
            ledger.note(&mut vec![each]);
        }
        let judge = |ledger: &Ledger| judged(ledger, &serializable(), state(&[(1, &[5, 6])]));
        let audit = judge(&ledger);
        assert_eq!((audit.verdict, audit.evidence[LEFT_OUT]), (Verdict::Holds, 1), "{audit:?}");
        ledger.note_boundary(crate::Boundary::Before);
        assert!(judge(&ledger).reason.is_some_and(|reason| reason.contains("reached its limit")));
    }

    #[test]
    fn a_workload_that_found_no_room_is_another_one() {
        let ledger = noted(vec![appended(0, 1, &[], 5)]);
        ledger.no_room();
        let audit = judged(&ledger, &serializable(), state(&[(1, &[5])]));
        assert_eq!(audit.verdict, Verdict::Unknown);
        assert!(audit.reason.is_some_and(|reason| reason.starts_with("the lists are full")));
    }

    #[test]
    fn nothing_committed_nothing_promised_or_nothing_read_back_is_unknown() {
        let none = judged(&noted(Vec::new()), &serializable(), state(&[]));
        assert_eq!(none.verdict, Verdict::Unknown);
        let ledger = || noted(vec![appended(0, 1, &[], 5)]);
        let unread = audit(&ledger(), &LAYOUT, Ok(&serializable()), &Err("it is away".to_owned()));
        assert_eq!(unread.verdict, Verdict::Unknown);
        assert!(unread.reason.is_some_and(|reason| reason.contains("it is away")));
        let state = Ok(Final::of(state(&[]), Final::began()));
        let unpromised = audit(&ledger(), &LAYOUT, Err("not loaded".to_owned()), &state);
        assert_eq!(unpromised.verdict, Verdict::Unknown);
    }
}
