//! Compares the ledger with the final records.

use std::{collections::HashMap, sync::Arc};

use acidtest_model::{Consistency, Route, StoreError};

use super::{
    content::hash,
    ledger::{Entry, InsertState, Ledger, WrittenVersion},
    times::ReadTimes,
};
use crate::{
    Audit, AuditResult, Finding, ReusableData,
    epochs::Counts,
    guarantee::{ATOMICITY, CONSISTENCY, DURABILITY, INTEGRITY, LOCK, MONOTONIC_READS, READ_YOUR_WRITES},
    moments::oldest_lost,
    verdict::{READS_IN_DOUBT, VANISHED},
};

/// The final state of the records, filled record by record as they are read back.
#[derive(Debug)]
pub struct Final {
    /// Each record's number, by the hash in its key.
    numbers: HashMap<u64, u64>,
    /// How often each record was there, by number; at most 255.
    seen: Vec<u8>,
    versions: Vec<u64>,
    /// The tag of each record, by number, as read with its version; `None` where the record is torn.
    tags: Vec<Option<u64>>,
    torn: u64,
    foreign: u64,
}

impl Final {
    /// An empty state, with room for the records that the ledger knows.
    #[must_use]
    pub fn of(ledger: &Ledger) -> Self {
        let known = ledger.known();
        let room = usize::try_from(known).unwrap_or(0);
        Self {
            numbers: (0..known).map(|number| (hash(number), number)).collect(),
            seen: vec![0; room],
            versions: vec![0; room],
            tags: vec![None; room],
            torn: 0,
            foreign: 0,
        }
    }

    /// Adds one record that was read back.
    pub fn take(&mut self, key: &str, version: u64, tag: Option<u64>) {
        let digits =
            key.strip_prefix("user").filter(|digits| digits.starts_with(|c: char| c.is_ascii_digit()));
        let hash = digits.and_then(|digits| digits.parse().ok());
        let number = hash
            .and_then(|hash: u64| self.numbers.get(&hash))
            .and_then(|number| usize::try_from(*number).ok());
        let Some(number) = number.filter(|number| *number < self.seen.len()) else {
            self.foreign += 1;
            return;
        };
        if self.seen[number] == 0 || version > self.versions[number] {
            self.versions[number] = version;
            self.tags[number] = tag;
        }
        self.seen[number] = self.seen[number].saturating_add(1);
        self.torn += u64::from(tag.is_none());
    }

    /// The version and tag of every record; `None` if any record is torn, or has a version that does not fit into
    /// 32 bits.
    fn written(&self) -> Option<Vec<WrittenVersion>> {
        let whole = |(version, tag): (&u64, &Option<u64>)| {
            tag.filter(|_| u32::try_from(*version).is_ok()).map(|tag| WrittenVersion::new(*version, tag))
        };
        self.versions.iter().zip(&self.tags).map(whole).collect()
    }
}

/// Compares the ledger of a trial with the records that the store ended with.
///
/// For every record: first version + ok updates ≤ final version ≤ first version + ok + unknown updates. Every
/// record that was loaded, or acknowledged as inserted, must be there, once; no record may be there whose insert
/// was never sent or is proved to have had no effect. The newest version that was acknowledged must have the fields
/// that were written with it. An unknown outcome proves nothing either way.
#[must_use]
pub fn audit(ledger: &Ledger, state: Result<Final, StoreError>) -> AuditResult {
    let proved = ledger.proved();
    let mut found = FindingCounts::default();
    let mut doubt = None;
    let mut records = None;
    match state {
        Ok(state) => {
            found.compare(ledger, &state);
            records = state.written();
            if proved.acknowledged == 0 {
                doubt = Some("no operation was acknowledged".to_owned());
            }
        }
        Err(error) => doubt = Some(error.to_string()),
    }
    let seen = |name: &str, [count, within_epoch, between]: Counts, unit: &str, guarantee| {
        Finding::new(name, count, unit, guarantee).within_epoch(within_epoch).between(between)
    };
    let [mismatched, mismatched_within_epoch, mismatched_between] = proved.mismatched;
    let mismatched = [mismatched + found.mismatched, mismatched_within_epoch, mismatched_between];
    let findings = vec![
        Finding::new("lost_updates", found.lost_updates, "updates", LOCK).or_loss(),
        seen("overwritten", proved.overwritten, "updates", LOCK).or_loss(),
        Finding::new("lost", found.lost, "records", DURABILITY),
        Finding::new("duplicated", found.duplicated, "records", INTEGRITY),
        Finding::new("phantom", found.phantom, "records", INTEGRITY),
        Finding::new("unasked", found.unasked, "updates", INTEGRITY),
        Finding::new("torn", proved.torn + found.torn, "records", ATOMICITY),
        seen("mismatched", mismatched, "records", LOCK).or_loss(),
        seen("missing", proved.missing, "reads", INTEGRITY).or_loss_with("lost"),
        seen("stale", proved.stale, "reads", LOCK).or_loss(),
    ];
    let findings = findings.into_iter().chain(at_replicas(ledger, found.vanished)).collect();
    let oldest = oldest_lost(ledger.oldest_insert(&found.lost_records));
    let evidence = [
        ("acknowledged_operations", proved.acknowledged),
        ("unknown_operations", proved.unknown),
        ("ok_updates", found.ok_updates),
        ("unknown_updates", found.unknown_updates),
        ("version_steps", found.steps),
        ("acknowledged_inserts", found.inserts),
        ("indeterminate_inserts", found.indeterminate),
        ("final_records", found.records),
    ];
    // unanswered writes that may still arrive, torn records and added records would disturb the next trial
    let settled = doubt.is_none() && proved.unknown == 0 && !ledger.has_inserts() && found.is_whole();
    let is_strong = |reads: &&ReadTimes| reads.policy().consistency == Consistency::Strong;
    let in_doubt = ledger.reads().filter(is_strong).map(|reads| (READS_IN_DOUBT, reads.proved().1));
    let evidence = evidence.into_iter().chain(oldest).chain(in_doubt.filter(|(_, reads)| *reads > 0));
    let audited = AuditResult::new(
        Audit::of(findings, doubt, evidence),
        records
            .filter(|_| settled)
            .map(|records| ReusableData { records: Arc::new(records), tag: Some(ledger.next_tag()) }),
    );
    AuditResult { staleness: ledger.reads().map(ReadTimes::staleness), ..audited }
}

/// What reads found that other members than the leader may answer. What they missed breaks a promise only where they are promised to see
/// all that was acknowledged before them; elsewhere it is counted (see [`Staleness`](crate::Staleness)).
fn at_replicas(ledger: &Ledger, vanished: u64) -> Vec<Finding> {
    let Some(reads) = ledger.reads() else { return Vec::new() };
    let ([stale, own_writes_missed, went_back], _) = reads.proved();
    let mut findings = vec![Finding::new(VANISHED, vanished, "records", INTEGRITY).or_loss()];
    if reads.policy().consistency == Consistency::Strong {
        findings.extend([
            Finding::new("stale_at_replica", stale, "reads", CONSISTENCY),
            Finding::new("own_writes_missed", own_writes_missed, "reads", READ_YOUR_WRITES),
        ]);
        // one member may show what is not acknowledged yet, and the next one not
        if reads.policy().route == Route::Pinned {
            findings.push(Finding::new("went_back", went_back, "reads", MONOTONIC_READS));
        }
    }
    findings
}

#[derive(Debug, Default)]
struct FindingCounts {
    lost_updates: u64,
    unasked: u64,
    lost: u64,
    /// The numbers of those that were acknowledged.
    lost_records: Vec<u64>,
    duplicated: u64,
    phantom: u64,
    torn: u64,
    mismatched: u64,
    /// Records of which a version was read that is not there.
    vanished: u64,
    ok_updates: u64,
    unknown_updates: u64,
    steps: u64,
    inserts: u64,
    indeterminate: u64,
    records: u64,
}

impl FindingCounts {
    fn compare(&mut self, ledger: &Ledger, state: &Final) {
        self.torn = state.torn;
        self.phantom = state.foreign;
        self.records = state.foreign;
        let records = state.seen.iter().zip(&state.versions).zip(&state.tags);
        for (number, ((&seen, &version), &tag)) in (0..).zip(records) {
            let entry = ledger.entry(number);
            self.records += u64::from(seen);
            self.existence(ledger, number, seen, &entry);
            // the version of a torn record is not known to be one
            if let (1.., Some(tag)) = (seen, tag) {
                self.version(&entry, version);
                self.mismatched += u64::from(entry.newest.contradicts(version, tag));
                let read = ledger.reads().and_then(|reads| reads.newest_read(number));
                self.vanished += u64::from(read.is_some_and(|read| read.version() > version));
            }
        }
    }

    fn existence(&mut self, ledger: &Ledger, number: u64, seen: u8, entry: &Entry) {
        let inserted = ledger.inserted(number);
        if number >= ledger.layout().records && inserted == InsertState::Acknowledged {
            self.inserts += 1;
        }
        self.duplicated += u64::from(seen.saturating_sub(1));
        match (inserted, seen > 0) {
            (InsertState::Acknowledged, false) => {
                self.lost += 1;
                self.lost_records.push(number);
            }
            (InsertState::Not | InsertState::Undone, true) => self.phantom += 1,
            // a record that was updated was there, and no operation removes records
            (InsertState::Unknown | InsertState::Sent, false) if entry.ok > 0 => self.lost += 1,
            (InsertState::Unknown | InsertState::Sent, false) => self.indeterminate += 1,
            _ => {}
        }
    }

    fn version(&mut self, entry: &Entry, version: u64) {
        self.ok_updates += entry.ok;
        self.unknown_updates += entry.unknown;
        // a version is any number the store gives, so a sum of several may not fit
        let low = entry.first + entry.ok;
        for (count, more) in [
            (&mut self.steps, version.saturating_sub(entry.first)),
            (&mut self.lost_updates, low.saturating_sub(version)),
            (&mut self.unasked, version.saturating_sub(low + entry.unknown)),
        ] {
            *count = count.saturating_add(more);
        }
    }

    /// Whether every record is there, exactly once, and not torn.
    fn is_whole(&self) -> bool {
        [self.lost, self.duplicated, self.phantom, self.torn, self.unasked, self.mismatched] == [0; 6]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        Verdict,
        records::{Layout, key_name},
    };

    const LAYOUT: Layout = Layout { records: 4, fields: 2, field_bytes: 20, scans: false };

    /// The ways in which an insert may end, and whether its record may be there then.
    const INSERTS: [(InsertState, bool); 5] = [
        (InsertState::Acknowledged, true),
        (InsertState::Undone, false),
        (InsertState::Unknown, true),
        (InsertState::Unknown, false),
        (InsertState::Sent, true),
    ];

    /// A record as it is read back: key, version and tag.
    type RecordRow = (String, u64, Option<u64>);
    type Damage<'a> = &'a dyn Fn(&mut Vec<RecordRow>);

    /// A trial as its clients recorded it on a correct store, and the records that the store ended with.
    struct Trial {
        ledger: Ledger,
        state: Vec<RecordRow>,
    }

    impl Trial {
        /// A trial over records as they were loaded.
        fn fresh() -> Self {
            let state = (0..4).map(|number| (key_name(number), 0, Some(number))).collect();
            Self { ledger: Ledger::new(LAYOUT, ReusableData::default()), state }
        }

        /// Updates every record this many times, with an answer each time.
        fn updated(self, times: u64) -> Self {
            (0..4).fold(self, |trial, number| trial.update(number, times, 0, 0))
        }

        /// A trial over the records that an earlier one left.
        fn over(earlier: &Self) -> Self {
            let reusable = earlier.judge(&earlier.state).reusable.unwrap();
            Self { ledger: Ledger::new(LAYOUT, reusable), state: earlier.state.clone() }
        }

        /// Updates one record: first `unknown` times without an answer, of which `done` took effect, then `ok`
        /// times with one.
        fn update(mut self, number: u64, ok: u64, unknown: u64, done: u64) -> Self {
            let Self { ledger, state } = &mut self;
            let (_, version, tag) = &mut state[usize::try_from(number).unwrap()];
            (0..unknown).for_each(|_| ledger.update_unknown(number));
            for update in 0..done + ok {
                let (known, new) = (ledger.newest(number), ledger.deal_tags().start);
                (*version, *tag) = (*version + 1, Some(new));
                if update >= done {
                    ledger.updated(number, new, Some(*version), known, ledger.epoch());
                    ledger.acknowledged(1);
                }
            }
            self
        }

        fn insert(mut self, how: InsertState, is_there: bool) -> Self {
            let (number, tag) = (self.ledger.draw_insert(), self.ledger.deal_tags().start);
            match how {
                InsertState::Acknowledged => {
                    self.ledger.was_inserted(number, tag, self.ledger.epoch());
                    self.ledger.acknowledged(2);
                }
                InsertState::Not | InsertState::Sent => {}
                InsertState::Undone | InsertState::Unknown => self.ledger.insert_ended(number, how),
            }
            self.state.extend(is_there.then(|| (key_name(number), 0, Some(tag))));
            self
        }

        fn judge(&self, state: &[RecordRow]) -> AuditResult {
            let mut last = Final::of(&self.ledger);
            for (key, version, tag) in state {
                last.take(key, *version, *tag);
            }
            audit(&self.ledger, Ok(last))
        }

        /// The audit as text, with all findings.
        fn told(&self) -> String {
            self.judge(&self.state).audit.to_string()
        }
    }

    proptest! {
        /// Each kind of damage is found as often as it was done and no more than unanswered operations leave open;
        /// correct records raise no alarm. Data is left to the next trial only if nothing is in doubt, nothing was
        /// added, and every record is there, once and whole; a lost update is left as it is found.
        #[test]
        fn damage_is_found_with_its_count(
            [again, doubts, grows] in any::<[bool; 3]>(),
            updates in prop::array::uniform4((0..4_u64, 0..3_u64, 0..3_u64)),
            inserts in prop::collection::vec(prop::sample::select(&INSERTS[..]), 0..5),
            at in 0..4_usize,
            by in 1..5_u64,
        ) {
            let updates = updates.map(|(ok, unknown, done)| {
                if doubts { (ok, unknown, done.min(unknown)) } else { (ok, 0, 0) }
            });
            let mut trial = if again { Trial::over(&Trial::fresh().updated(2)) } else { Trial::fresh() };
            trial.ledger.acknowledged(0);
            for (number, (ok, unknown, done)) in (0..).zip(updates) {
                trial = trial.update(number, ok, unknown, done);
            }
            let inserts = if grows { inserts } else { Vec::new() };
            trial = inserts.iter().fold(trial, |trial, (how, is_there)| trial.insert(*how, *is_there));
            let settled = inserts.is_empty() && updates.iter().all(|(_, unknown, _)| *unknown == 0);
            prop_assert_eq!(trial.told(), "holds");
            prop_assert_eq!(trial.judge(&trial.state).reusable.is_some(), settled);

            let (ok, unknown, done) = updates[at];
            let (key, version, _) = trial.state[at].clone();
            // where the fields of a version were never acknowledged, they cannot be known to be wrong
            let mismatched = u64::from(done == 0 || ok > 0);
            let (down, up) = (by.min(ok), by + unknown - done);
            let lower = if ok > 0 { version - done - down } else { version };
            let damages: [(Damage, &str, u64, &str); 7] = [
                (&|state| state[at].1 = lower, "lost_updates", down, "updates"),
                (&|state| state[at].1 += up, "unasked", by, "updates"),
                (&|state| state[at].2 = None, "torn", 1, "records"),
                (&|state| state[at].2 = Some(7), "mismatched", mismatched, "records"),
                (&|state| _ = state.remove(at), "lost", 1, "records"),
                (&|state| (0..by).for_each(|_| state.push(state[at].clone())), "duplicated", by, "records"),
                (
                    &|state| {
                        let keys = ["theirs".to_owned(), format!("user+{}", &key[4..])];
                        state.extend(keys.map(|key| (key, 0, Some(1))));
                    },
                    "phantom",
                    2,
                    "records",
                ),
            ];
            for (damage, name, count, unit) in damages {
                let mut state = trial.state.clone();
                damage(&mut state);
                let AuditResult { audit, reusable, .. } = trial.judge(&state);
                let finding = Finding::new(name, count, unit, LOCK);
                let found = if count > 0 { format!("broken: {finding}") } else { "holds".to_owned() };
                prop_assert_eq!(audit.to_string(), found);
                prop_assert_eq!(reusable.is_some(), settled && name == "lost_updates", "{}", name);
            }
        }
    }

    #[test]
    fn how_an_insert_ended_says_whether_its_record_is_there() {
        let insert = |how, is_there| Trial::fresh().updated(1).insert(how, is_there);
        assert_eq!(insert(InsertState::Acknowledged, false).told(), "broken: lost 1 record");
        assert_eq!(insert(InsertState::Undone, true).told(), "broken: phantom 1 record");
        // a record whose insert was never answered but which was updated has been there, so it must still be
        for how in [InsertState::Unknown, InsertState::Sent] {
            let trial = insert(how, false);
            assert_eq!(trial.judge(&trial.state).audit.evidence["indeterminate_inserts"], 1);
            let ledger = &trial.ledger;
            ledger.updated(4, 1, Some(1), ledger.newest(4), ledger.epoch());
            assert_eq!(trial.told(), "broken: lost 1 record");
        }
    }

    /// The final state is what the server says, so a version may be as high as its type allows.
    #[test]
    fn versions_are_counted_up_to_what_can_be() {
        let mut trial = Trial::fresh().updated(1);
        trial.state.iter_mut().for_each(|(_, version, _)| *version = u64::MAX);
        assert_eq!(trial.told(), format!("broken: unasked {} updates", acidtest_model::count(u64::MAX)));
    }

    #[test]
    fn nothing_acknowledged_is_unknown_not_holds() {
        let trial = Trial::fresh().update(0, 0, 1, 1);
        assert_eq!(trial.told(), "unknown: no operation was acknowledged");
        let idle = Trial::fresh();
        assert!(idle.judge(&idle.state).reusable.is_none());
    }

    #[test]
    fn an_unreadable_state_is_unknown_unless_the_ledger_proves_a_break() {
        let gone =
            || StoreError::Server { doing: "reading".into(), address: "x".into(), cause: "gone".into() };
        let Trial { ledger, .. } = Trial::fresh().updated(1);
        let audited = audit(&ledger, Err(gone()));
        assert_eq!((audited.audit.verdict, audited.reusable.is_none()), (Verdict::Unknown, true));
        ledger.missing(crate::epochs::Seen::WithinEpoch);
        let proved = audit(&ledger, Err(gone())).audit;
        assert_eq!(proved.to_string(), "broken: missing 1 read");
        assert!(proved.reason.is_some());
    }

    /// The next trial begins with the versions and fields that were read back, and with a tag that was not yet
    /// written.
    #[test]
    fn what_is_left_is_what_was_read_back() {
        let trial = Trial::fresh().updated(2);
        let reusable = trial.judge(&trial.state).reusable.unwrap();
        let written = |(_, version, tag): &RecordRow| WrittenVersion::new(*version, tag.unwrap());
        assert_eq!(*reusable.records, trial.state.iter().map(written).collect::<Vec<_>>());
        assert_eq!(Ledger::new(LAYOUT, reusable).deal_tags(), trial.ledger.deal_tags());
        // the statement of a read that was never answered may still run
        trial.ledger.doubtful();
        assert!(trial.judge(&trial.state).reusable.is_none());
    }
}
