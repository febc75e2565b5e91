//! The ledger held against the final records.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use acidtest_model::StoreError;

use super::{
    content::hash,
    ledger::{Entry, Inserted, Ledger, Written},
};
use crate::{Audit, Audited, Finding, Left, Verdict};

/// The final state, taken in record by record as it is read back.
#[derive(Debug)]
pub struct Final {
    /// Numbers by the hash in their keys.
    numbers: HashMap<u64, u64>,
    /// Of each number: how often it was there, at most 255.
    seen: Vec<u8>,
    versions: Vec<u64>,
    /// Of each number: the tag of the record with that version; none where it is torn.
    tags: Vec<Option<u64>>,
    torn: u64,
    foreign: u64,
}

impl Final {
    /// An empty state, ready for the records that the ledger knows.
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

    /// One record that is there.
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

    /// What was written of each record; none where one is not whole, or has a version beyond what is kept of it.
    fn written(&self) -> Option<Vec<Written>> {
        let whole = |(version, tag): (&u64, &Option<u64>)| {
            tag.filter(|_| u32::try_from(*version).is_ok()).map(|tag| Written::new(*version, tag))
        };
        self.versions.iter().zip(&self.tags).map(whole).collect()
    }
}

/// Holds the ledger of a trial against the records that the store ended with.
///
/// Of every record: first version + ok updates ≤ final version ≤ first version + ok + unknown updates. Every
/// record laid in or acknowledged as inserted is there, once; none whose insert was never sent or proved
/// to have had no effect. The newest version that was acknowledged has the fields that were written with
/// it. What is unknown proves nothing either way.
#[must_use]
pub fn audit(ledger: &Ledger, state: Result<Final, StoreError>) -> Audited {
    let proved = ledger.proved();
    let mut found = Found::default();
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
    let findings = vec![
        Finding::unlocked("lost_updates", found.lost_updates, "updates"),
        Finding::unlocked("overwritten", proved.overwritten, "updates"),
        Finding::new("lost", found.lost, "records"),
        Finding::new("duplicated", found.duplicated, "records"),
        Finding::new("phantom", found.phantom, "records"),
        Finding::new("unasked", found.unasked, "updates"),
        Finding::new("torn", proved.torn + found.torn, "records"),
        Finding::unlocked("mismatched", proved.mismatched + found.mismatched, "records"),
        Finding::new("missing", proved.missing, "reads"),
        Finding::unlocked("stale", proved.stale, "reads"),
    ];
    let is_broken = findings.iter().any(|finding| finding.count > 0);
    let verdict = match (is_broken, &doubt) {
        (true, _) => Verdict::Broken,
        (false, Some(_)) => Verdict::Unknown,
        (false, None) => Verdict::Holds,
    };
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let evidence = BTreeMap::from(
        [
            ("acknowledged_operations", proved.acknowledged),
            ("unknown_operations", proved.unknown),
            ("ok_updates", found.ok_updates),
            ("unknown_updates", found.unknown_updates),
            ("version_steps", found.steps),
            ("acknowledged_inserts", found.inserts),
            ("indeterminate_inserts", found.indeterminate),
            ("final_records", found.records),
        ]
        .map(|(name, value)| (name.to_owned(), count(value))),
    );
    // what may still arrive, what is not whole and what was added would be in the next trial's way
    let settled = doubt.is_none() && proved.unknown == 0 && !ledger.has_inserts() && found.is_whole();
    Audited::new(
        Audit { verdict, reason: doubt, findings, evidence },
        records
            .filter(|_| settled)
            .map(|records| Left { records: Arc::new(records), tag: Some(ledger.next_tag()) }),
    )
}

#[derive(Debug, Default)]
struct Found {
    lost_updates: u64,
    unasked: u64,
    lost: u64,
    duplicated: u64,
    phantom: u64,
    torn: u64,
    mismatched: u64,
    ok_updates: u64,
    unknown_updates: u64,
    steps: u64,
    inserts: u64,
    indeterminate: u64,
    records: u64,
}

impl Found {
    fn compare(&mut self, ledger: &Ledger, state: &Final) {
        self.torn = state.torn;
        self.phantom = state.foreign;
        self.records = state.foreign;
        let records = state.seen.iter().zip(&state.versions).zip(&state.tags);
        for (number, ((&seen, &version), &tag)) in (0..).zip(records) {
            let entry = ledger.entry(number);
            self.records += u64::from(seen);
            self.existence(ledger, number, seen, &entry);
            // of what is torn not even the version is known to be one
            if let (1.., Some(tag)) = (seen, tag) {
                self.version(&entry, version);
                self.mismatched += u64::from(entry.newest.contradicts(version, tag));
            }
        }
    }

    fn existence(&mut self, ledger: &Ledger, number: u64, seen: u8, entry: &Entry) {
        let inserted = ledger.inserted(number);
        if number >= ledger.layout().records && inserted == Inserted::Acknowledged {
            self.inserts += 1;
        }
        self.duplicated += u64::from(seen.saturating_sub(1));
        match (inserted, seen > 0) {
            (Inserted::Acknowledged, false) => self.lost += 1,
            (Inserted::Not | Inserted::Undone, true) => self.phantom += 1,
            // what was updated was there, and nothing removes records
            (Inserted::Unknown | Inserted::Sent, false) if entry.ok > 0 => self.lost += 1,
            (Inserted::Unknown | Inserted::Sent, false) => self.indeterminate += 1,
            _ => {}
        }
    }

    fn version(&mut self, entry: &Entry, version: u64) {
        self.ok_updates += entry.ok;
        self.unknown_updates += entry.unknown;
        // a version is whatever the store says: several may be more than can be counted
        let low = entry.first + entry.ok;
        for (count, more) in [
            (&mut self.steps, version.saturating_sub(entry.first)),
            (&mut self.lost_updates, low.saturating_sub(version)),
            (&mut self.unasked, version.saturating_sub(low + entry.unknown)),
        ] {
            *count = count.saturating_add(more);
        }
    }

    /// Whether every record is there, once, and in one piece.
    fn is_whole(&self) -> bool {
        [self.lost, self.duplicated, self.phantom, self.torn, self.unasked, self.mismatched] == [0; 6]
    }
}
