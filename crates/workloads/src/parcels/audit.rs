//! Compares the ledger with the final scans.

use acidtest_model::StoreError;

use super::{
    ledger::{InsertState, Ledger, count_bit},
    scan::{MOST, ScanNumber, StoredScan},
    stream::Ids,
};
use crate::{
    Audit, AuditResult, Finding, ReusableData, Verdict,
    epochs::Counts,
    guarantee::{ATOMICITY, DURABILITY, INTEGRITY, LOCK},
    moments::oldest_lost,
};

/// The final scans, filled row by row as they are read back: a byte for each scan, one more for each that was loaded,
/// eight for each parcel and for each row.
#[derive(Debug)]
pub(super) struct Final {
    /// How often each scan was there, by its number; at most 255.
    regular: Vec<u8>,
    eighths: Vec<u8>,
    parcels: Vec<ParcelRows>,
    ids: Vec<u64>,
    /// The count of each scan that was loaded, as it must be.
    loaded: Vec<u8>,
    given: Ids,
    found: FindingCounts,
}

#[derive(Clone, Copy, Debug, Default)]
struct ParcelRows {
    rows: u16,
    /// The counts that there are, a bit each.
    counts: u8,
    /// The counts of acknowledged scans that are gone or torn, a bit each.
    gone: u8,
    /// Scans without an answer that are not there.
    absent: u8,
    /// Scans that were refused.
    refused: u8,
}

impl Final {
    /// An empty state, with room for the scans that the ledger knows.
    pub(super) fn of(ledger: &Ledger, given: Ids) -> Self {
        let [regular, eighths] = ledger.ends();
        let parcels = ledger.known().map(|number| ledger.stream().parcel(number) + 1).max().unwrap_or(0);
        let room = |count: u64| usize::try_from(count).unwrap_or(0);
        let loaded = ledger.loading.rows().map(|loaded| loaded.count).collect();
        Self {
            regular: vec![0; room(regular)],
            eighths: vec![0; room(eighths)],
            parcels: vec![ParcelRows::default(); room(parcels)],
            ids: Vec::new(),
            loaded,
            given,
            found: FindingCounts::default(),
        }
    }

    /// Adds one row that was read back.
    pub(super) fn take(&mut self, ledger: &Ledger, stored: &StoredScan) {
        self.found.rows += 1;
        let count = stored.count.unwrap_or_default();
        self.found.beyond += u64::from(count > u64::from(MOST));
        self.ids.extend(stored.id);
        let Some(number) = stored.number() else {
            self.found.torn += 1;
            return;
        };
        let Some(seen) = self.seen(number) else {
            self.found.phantom += 1;
            return;
        };
        *seen = seen.saturating_add(1);
        let is_again = *seen > 1;
        let scan = ledger.stream().scan(number);
        let is_whole = stored.is(&scan) && stored.id.is_some() && count > 0 && stored.is_dated;
        self.found.torn += u64::from(!is_whole);
        self.found.mismatched += u64::from(is_whole && !self.is_as_acknowledged(ledger, number, stored));
        let acknowledged = self.acknowledged(ledger, number).map_or(0, |(_, count)| count);
        let parcel = usize::try_from(scan.parcel()).ok();
        let Some(rows) = parcel.and_then(|parcel| self.parcels.get_mut(parcel)) else { return };
        let bit = count_bit(count);
        rows.rows = rows.rows.saturating_add(1);
        if is_whole {
            // a scan that is there twice is said to be so, and has its count twice for that reason
            self.found.repeated += u64::from(!is_again && rows.counts & bit != 0);
            rows.counts |= bit;
        } else {
            // what is torn has taken its place, whatever it says
            rows.gone |= bit | count_bit(acknowledged.into());
        }
    }

    fn seen(&mut self, number: ScanNumber) -> Option<&mut u8> {
        let (seen, place) = match number {
            ScanNumber::Regular(place) => (&mut self.regular, place),
            ScanNumber::Eighth(place) => (&mut self.eighths, place),
        };
        seen.get_mut(usize::try_from(place).ok()?)
    }

    /// Whether the row has the id and count that were acknowledged or loaded; true where none were.
    fn is_as_acknowledged(&self, ledger: &Ledger, number: ScanNumber, stored: &StoredScan) -> bool {
        let is_count = |count: u8| match count {
            // one that is none from 1 to 7 was acknowledged, and is not made right by another
            0 => stored.count.is_some_and(|stored| count_bit(stored) == 0),
            count => stored.count == Some(count.into()),
        };
        self.acknowledged(ledger, number).is_none_or(|(id, count)| stored.id == Some(id) && is_count(count))
    }

    /// The id and count that were acknowledged or loaded.
    fn acknowledged(&self, ledger: &Ledger, number: ScanNumber) -> Option<(u64, u8)> {
        match (self.of_loaded(ledger, number), ledger.state(number)) {
            (Some(loaded), _) => Some(loaded),
            (None, InsertState::Inserted { id, count }) => Some((id, count)),
            _ => None,
        }
    }

    /// The id and count of a scan that was loaded, as they must be.
    fn of_loaded(&self, ledger: &Ledger, number: ScanNumber) -> Option<(u64, u8)> {
        let ScanNumber::Regular(place) = number else { return None };
        let count = *self.loaded.get(usize::try_from(place).ok()?)?;
        Some((self.given.loaded(place, ledger.stream().parcel(number), count), count))
    }

    /// Holds every scan that the ledger knows against the rows.
    fn compare(&mut self, ledger: &Ledger) -> Vec<ScanNumber> {
        self.ids.sort_unstable();
        self.found.duplicate_ids =
            self.ids.windows(2).filter(|pair| pair[0] == pair[1]).count().try_into().unwrap_or(u64::MAX);
        let mut lost = Vec::new();
        for number in ledger.known() {
            let seen = u64::from(self.seen(number).copied().unwrap_or_default());
            self.found.duplicated += seen.saturating_sub(1);
            let parcel = ledger.stream().parcel(number);
            let mut spare = ParcelRows::default();
            let parcel = usize::try_from(parcel).ok().filter(|parcel| *parcel < self.parcels.len());
            let loaded = self.of_loaded(ledger, number);
            let state = ledger.state(number);
            let rows = parcel.map_or(&mut spare, |parcel| &mut self.parcels[parcel]);
            match (state, loaded) {
                (_, Some((_, count))) | (InsertState::Inserted { count, .. }, None) => {
                    self.found.acknowledged += u64::from(loaded.is_none());
                    if seen == 0 {
                        let bit = count_bit(count.into());
                        rows.gone |= bit;
                        // of ids that are made of parcel and count, another scan has this one's
                        if self.given == Ids::Made && rows.counts & bit != 0 {
                            self.found.overwritten += 1;
                        } else {
                            self.found.lost += 1;
                            lost.push(number);
                        }
                    }
                }
                (InsertState::Unknown, None) => {
                    self.found.unanswered += 1;
                    rows.absent = rows.absent.saturating_add(u8::from(seen == 0));
                }
                (InsertState::Refused, None) => {
                    self.found.refused += 1;
                    rows.refused = rows.refused.saturating_add(1);
                    self.found.phantom += u64::from(seen > 0);
                }
                (InsertState::Undone | InsertState::Not, None) => {
                    self.found.phantom += u64::from(seen > 0);
                }
            }
        }
        for parcel in &self.parcels {
            self.found.add(*parcel);
        }
        lost
    }
}

#[derive(Debug, Default)]
struct FindingCounts {
    rows: u64,
    acknowledged: u64,
    unanswered: u64,
    refused: u64,
    lost: u64,
    overwritten: u64,
    duplicated: u64,
    phantom: u64,
    torn: u64,
    mismatched: u64,
    duplicate_ids: u64,
    repeated: u64,
    skipped: u64,
    beyond: u64,
    wrongly_refused: u64,
}

impl FindingCounts {
    /// Adds what is wrong with the counts of a parcel.
    fn add(&mut self, parcel: ParcelRows) {
        let ParcelRows { rows, counts, gone, absent, refused } = parcel;
        let below_highest = u8::MAX.checked_shr(counts.leading_zeros()).unwrap_or(0);
        let gaps = (below_highest & !(counts | gone)).count_ones();
        // a scan whose insert was not answered may have come after its place was read, and fill a gap then
        self.skipped += u64::from(gaps.saturating_sub(absent.into()));
        let most = u64::from(rows) + u64::from(absent) + u64::from(gone.count_ones());
        self.wrongly_refused += if most < u64::from(MOST) { refused.into() } else { 0 };
    }
}

/// Compares the ledger of a trial with the scans that the store ended with. `leaves`: whether the data may be left to
/// another trial, because nothing is written.
pub(super) fn audit(ledger: &Ledger, state: Result<Final, StoreError>, leaves: bool) -> AuditResult {
    let proved = ledger.proved();
    let mut found = FindingCounts::default();
    let (mut doubt, mut lost) = (None, Vec::new());
    match state {
        Ok(mut state) => {
            lost = state.compare(ledger);
            found = state.found;
            if proved.acknowledged == 0 {
                doubt = Some("no operation was acknowledged".to_owned());
            }
        }
        Err(error) => doubt = Some(error.to_string()),
    }
    let [early, early_within_epoch, _] = proved.early;
    // what is gone and has another scan in its place may have been lost before that came
    let gone = if found.lost == 0 && found.overwritten > 0 { "overwritten" } else { "lost" };
    let seen = |name: &str, [count, within_epoch, between]: Counts, guarantee| {
        Finding::new(name, count, "reads", guarantee).within_epoch(within_epoch).between(between)
    };
    let findings = vec![
        Finding::new("lost", found.lost, "scans", DURABILITY),
        Finding::new("repeated", found.repeated, "counts", LOCK).or_loss(),
        Finding::new("overwritten", found.overwritten, "scans", LOCK).or_loss(),
        Finding::new("skipped", found.skipped, "counts", LOCK).or_loss(),
        Finding::new("beyond", found.beyond, "counts", LOCK).or_loss(),
        Finding::new("duplicated", found.duplicated, "scans", INTEGRITY),
        Finding::new("phantom", found.phantom, "scans", INTEGRITY),
        Finding::new("torn", found.torn, "scans", ATOMICITY),
        Finding::new("mismatched", found.mismatched, "scans", INTEGRITY),
        Finding::new("duplicate_ids", found.duplicate_ids, "ids", INTEGRITY),
        Finding::new("wrongly_refused", found.wrongly_refused.max(early), "scans", INTEGRITY)
            .within_epoch(early_within_epoch)
            .or_loss(),
        seen("missing", proved.missing, INTEGRITY).or_loss_with(gone),
        seen("misread", proved.misread, INTEGRITY).or_loss_with(gone),
        seen("replaced", proved.replaced, LOCK).or_loss(),
    ];
    let evidence = [
        ("acknowledged_operations", proved.acknowledged),
        ("unknown_operations", proved.unknown),
        ("inserted_scans", found.acknowledged),
        ("refused_scans", found.refused),
        ("indeterminate_scans", found.unanswered),
        ("final_scans", found.rows),
    ];
    let oldest = oldest_lost(ledger.oldest(&lost));
    let audit = Audit::of(findings, doubt, evidence.into_iter().chain(oldest));
    let is_left = leaves && audit.verdict == Verdict::Holds;
    AuditResult::new(audit, is_left.then(ReusableData::default))
}

#[cfg(test)]
mod tests {
    use acidtest_engine::Part;
    use proptest::prelude::*;

    use super::*;
    use crate::parcels::{Parameters, Scan};

    /// The ways in which an insert may end.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum End {
        Acknowledged,
        /// Never answered, and done.
        Done,
        /// Never answered, and not done.
        Absent,
        /// Proved to have had no effect.
        Undone,
    }

    const ENDS: [End; 6] =
        [End::Acknowledged, End::Acknowledged, End::Acknowledged, End::Done, End::Absent, End::Undone];

    /// A trial as its clients recorded it on a correct store, and the rows that the store ended with.
    struct Trial {
        ledger: Ledger,
        rows: Vec<StoredScan>,
        ids: Ids,
    }

    impl Trial {
        /// A trial over so many scans of four parcels at a time.
        fn over(scans: u64) -> Self {
            let parameters = Parameters { parcels: 4, scans, ..Parameters::default() };
            let ledger = Ledger::of(Part::WHOLE, parameters.loading(3), true);
            ledger.note_loaded();
            ledger.acknowledged(0);
            let stored =
                ledger.loading.rows().map(|row| StoredScan::with(&row.scan, row.id, row.count.into()));
            Self { rows: stored.collect(), ledger, ids: Ids::Counted }
        }

        fn of_parcel(&self, parcel: u64) -> u64 {
            let stream = self.ledger.stream();
            let is_of =
                |stored: &&StoredScan| stored.number().map(|number| stream.parcel(number)) == Some(parcel);
            self.rows.iter().filter(is_of).count() as u64
        }

        /// Takes a scan as a correct store does.
        fn take(&mut self, scan: &Scan, end: End) {
            self.ledger.sends(scan);
            let count = self.of_parcel(scan.parcel()) + 1;
            let id = 1 + self.rows.iter().filter_map(|stored| stored.id).max().unwrap_or(0);
            let has_room = count <= u64::from(MOST);
            if has_room && matches!(end, End::Acknowledged | End::Done) {
                self.rows.push(StoredScan::with(scan, id, count));
            }
            let count = u8::try_from(count).unwrap();
            let how = match (end, has_room) {
                (End::Acknowledged, true) => InsertState::Inserted { id, count },
                (End::Acknowledged, false) => InsertState::Refused,
                (End::Done | End::Absent, _) => InsertState::Unknown,
                (End::Undone, _) => InsertState::Undone,
            };
            self.ledger.ended(scan, how);
        }

        fn judge(&self, rows: &[StoredScan]) -> Audit {
            let mut last = Final::of(&self.ledger, self.ids);
            for stored in rows {
                last.take(&self.ledger, stored);
            }
            audit(&self.ledger, Ok(last), false).audit
        }
    }

    /// A row with other texts.
    fn torn(stored: &StoredScan) -> StoredScan {
        let scan = Scan::of(stored.number().unwrap(), 99);
        StoredScan { id: stored.id, count: stored.count, ..StoredScan::with(&scan, 0, 0) }
    }

    fn nobody_sent(stored: &StoredScan, id: u64) -> StoredScan {
        let scan = Scan::of(ScanNumber::Regular(1 << 30), 0);
        StoredScan { id: Some(id), count: stored.count, ..StoredScan::with(&scan, 0, 0) }
    }

    proptest! {
        /// A correct store raises no alarm, whatever was not answered. Each kind of damage is found, once, and nothing
        /// else but what follows from it.
        #[test]
        fn damage_is_found_with_its_count(
            scans in 0..60_u64,
            ends in prop::collection::vec((prop::sample::select(&ENDS[..]), prop::bool::weighted(0.1)), 1..60),
            at: prop::sample::Index,
        ) {
            let mut trial = Trial::over(scans);
            for (end, is_eighth) in ends {
                let scan = is_eighth.then(|| trial.ledger.draw_eighth()).flatten();
                let scan = scan.unwrap_or_else(|| trial.ledger.draw());
                trial.take(&scan, end);
            }
            prop_assert_eq!(trial.judge(&trial.rows).to_string(), "holds");
            let sure = |stored: &StoredScan| {
                let number = stored.number().unwrap();
                matches!(number, ScanNumber::Regular(number) if number < scans)
                    || matches!(trial.ledger.state(number), InsertState::Inserted { .. })
            };
            let sure: Vec<usize> = (0..trial.rows.len()).filter(|row| sure(&trial.rows[*row])).collect();
            if sure.is_empty() {
                return Ok(());
            }
            let at = sure[at.index(sure.len())];
            let row = trial.rows[at];
            let free = trial.rows.len() as u64 + 1000;
            let mut found = Vec::new();
            let mut told = |rows: &[StoredScan]| {
                let audit = trial.judge(rows);
                found = audit.findings.iter().filter(|each| each.count > 0).cloned().collect::<Vec<_>>();
                found.iter().map(|each| format!("{} {}", each.name, each.count)).collect::<Vec<_>>().join(", ")
            };
            let with = |changed: StoredScan| {
                let mut rows = trial.rows.clone();
                rows[at] = changed;
                rows
            };
            let and = |more: StoredScan| [trial.rows.as_slice(), &[more]].concat();
            let without = trial.rows.iter().filter(|other| **other != row).copied().collect::<Vec<_>>();
            prop_assert_eq!(told(&without), "lost 1");
            prop_assert_eq!(told(&and(StoredScan { id: Some(free), ..row })), "duplicated 1, mismatched 1");
            prop_assert_eq!(told(&and(row)), "duplicated 1, duplicate_ids 1");
            prop_assert_eq!(told(&and(nobody_sent(&row, free))), "phantom 1");
            for changed in [torn(&row), StoredScan { is_dated: false, ..row }, StoredScan { id: None, ..row }] {
                prop_assert_eq!(told(&with(changed)), "torn 1");
            }
            prop_assert_eq!(told(&with(StoredScan { id: Some(free), ..row })), "mismatched 1");
            let beyond = told(&with(StoredScan { count: Some(9), ..row }));
            prop_assert!(beyond.contains("beyond 1, mismatched 1"), "{}", beyond);
            if row.count > Some(1) {
                let repeated = told(&with(StoredScan { count: row.count.map(|count| count - 1), ..row }));
                prop_assert!(repeated.contains("repeated 1") && repeated.contains("mismatched 1"), "{}", repeated);
            }
        }
    }

    /// Two scans that were given one place: the one that is gone was overwritten, and is not lost.
    #[test]
    fn what_has_another_in_its_place_was_overwritten() {
        let mut trial = Trial::over(0);
        let scans: Vec<Scan> = (0..28).map(|_| trial.ledger.draw()).collect();
        let parcel = scans[0].parcel();
        let mut of_parcel = scans.iter().filter(|scan| scan.parcel() == parcel);
        let (one, other) = (of_parcel.next().unwrap(), of_parcel.next().unwrap());
        let id = Ids::made(parcel, 1);
        for scan in [one, other] {
            trial.ledger.ended(scan, InsertState::Inserted { id, count: 1 });
        }
        trial.rows = vec![StoredScan::with(other, id, 1)];
        // where a counter gives ids, one that comes again was lost before
        let lost = trial.judge(&trial.rows);
        assert_eq!((lost.count("overwritten"), lost.count("lost")), (0, 1), "{lost:?}");
        assert!(lost.breaks_promise(&["lock"]), "{lost:?}");
        trial.ids = Ids::Made;
        let audit = trial.judge(&trial.rows);
        assert_eq!((audit.count("overwritten"), audit.count("lost")), (1, 0), "{audit:?}");
        assert!(!audit.breaks_promise(&["lock"]) && audit.breaks_promise(&["durability"]), "{audit:?}");
    }

    /// A count that is left out is found, but not where an insert that was not answered may still fill it.
    #[test]
    fn a_gap_is_found_unless_it_may_be_filled() {
        let gap = |end| {
            let mut trial = Trial::over(0);
            let scans: Vec<Scan> = (0..28).map(|_| trial.ledger.draw()).collect();
            let of_parcel: Vec<&Scan> = scans.iter().filter(|scan| scan.parcel() == 0).collect();
            trial.take(of_parcel[0], End::Acknowledged);
            trial.take(of_parcel[1], end);
            trial.ledger.ended(of_parcel[2], InsertState::Inserted { id: 9, count: 3 });
            trial.rows.push(StoredScan::with(of_parcel[2], 9, 3));
            trial.judge(&trial.rows).count("skipped")
        };
        assert_eq!((gap(End::Undone), gap(End::Absent), gap(End::Acknowledged)), (1, 0, 0));
    }

    /// A refusal is right only where there are seven scans in the end, or may be.
    #[test]
    fn a_refusal_is_held_against_what_there_is() {
        for (others, absent, wrong) in [(6, false, 1), (7, true, 0), (6, true, 1), (7, false, 0)] {
            let mut trial = Trial::over(0);
            let scans: Vec<Scan> = (0..28).map(|_| trial.ledger.draw()).collect();
            let of_parcel: Vec<&Scan> = scans.iter().filter(|scan| scan.parcel() == 0).collect();
            for (place, scan) in of_parcel.iter().take(others).enumerate() {
                let end = if absent && place == 5 { End::Absent } else { End::Acknowledged };
                trial.take(scan, end);
            }
            let refused = trial.ledger.draw_eighth().unwrap();
            assert_eq!(refused.parcel(), 0);
            trial.ledger.ended(&refused, InsertState::Refused);
            let audit = trial.judge(&trial.rows);
            assert_eq!(audit.count("wrongly_refused"), wrong, "{others} {absent}: {audit:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_unknown() {
        let trial = Trial::over(5);
        let gone = StoreError::Server {
            doing: "reading".to_owned(),
            address: "there".to_owned(),
            cause: "it is away".to_owned(),
        };
        assert_eq!(audit(&trial.ledger, Err(gone), true).audit.verdict, Verdict::Unknown);
    }
}
