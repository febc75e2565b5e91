//! The answers that clients of the parcels had.

use std::collections::{BTreeMap, BTreeSet};

use acidtest_workloads::parcels::{MOST, Scan, ScanNumber, StoredScan};

use crate::parcels::Row;

/// What a client was told of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// Nothing, or nothing that came.
    Nothing,
    /// That it was not inserted.
    Failed,
    /// That its parcel has seven scans.
    Refused,
    /// Its id and count.
    Given(u64, u64),
}

/// The answers that clients had about one trial's parcels.
#[derive(Debug, Default)]
pub(crate) struct Parcels {
    scans: BTreeMap<ScanNumber, (Scan, Told)>,
    /// Answers that contradict earlier ones.
    seen: u64,
    exact: bool,
}

/// The rows that a read must find, by what clients had been told when it began.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(Vec<StoredScan>);

impl Parcels {
    /// A witness of a trial over these rows. `exact`: clients run one after the other.
    pub(crate) fn over<'a>(rows: impl Iterator<Item = &'a Row>, exact: bool) -> Self {
        let told = |row: &Row| (row.scan.number(), (row.scan.clone(), Told::Given(row.id, row.count)));
        Self { scans: rows.map(told).collect(), exact, ..Self::default() }
    }

    fn tell(&mut self, scan: &Scan, told: Told) {
        self.scans.insert(scan.number(), (scan.clone(), told));
    }

    /// Notes that an insert of the scan was sent, and may never be answered.
    pub(crate) fn doubt(&mut self, scan: &Scan) {
        self.tell(scan, Told::Nothing);
    }

    pub(crate) fn given(&mut self, scan: &Scan, id: u64, count: u64) {
        self.tell(scan, Told::Given(id, count));
    }

    pub(crate) fn refused(&mut self, scan: &Scan) {
        self.tell(scan, Told::Refused);
    }

    pub(crate) fn failed(&mut self, scan: &Scan) {
        self.tell(scan, Told::Failed);
    }

    fn known(&self, is: impl Fn(&Scan, u64) -> bool) -> Known {
        let given = self.scans.values().filter_map(|(scan, told)| match told {
            Told::Given(id, count) if is(scan, *id) => Some(StoredScan::with(scan, *id, *count)),
            _ => None,
        });
        Known(given.collect())
    }

    /// What a read of this parcel must find.
    pub(crate) fn known_of(&self, parcel: u64) -> Known {
        if self.exact { self.known(|scan, _| scan.parcel() == parcel) } else { Known::default() }
    }

    /// What a read of this id must find.
    pub(crate) fn known_as(&self, id: u64) -> Known {
        if self.exact { self.known(|_, given| given == id) } else { Known::default() }
    }

    /// Notes an answer to a read.
    pub(crate) fn read(&mut self, known: &Known, found: &[StoredScan]) {
        let Known(known) = known;
        let is_there = |one: &&StoredScan| found.contains(*one);
        self.seen += known.iter().filter(|one| !is_there(one)).count() as u64;
    }

    /// The number of violations that an audit must see, in the answers and in the rows that the store ended with.
    pub(crate) fn shown<'a>(&self, rows: impl Iterator<Item = &'a Row>) -> u64 {
        let mut shown = self.seen;
        let (mut seen, mut ids) = (BTreeSet::new(), BTreeSet::new());
        let mut counts: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for row in rows {
            let number = row.scan.number();
            counts.entry(row.scan.parcel()).or_default().push(row.count);
            shown += u64::from(row.is_torn || row.count > u64::from(MOST));
            shown += u64::from(!seen.insert(number)) + u64::from(!ids.insert(row.id));
            shown += match self.scans.get(&number).map(|(_, told)| *told) {
                None | Some(Told::Failed | Told::Refused) => 1,
                Some(Told::Nothing) => 0,
                Some(Told::Given(id, count)) => u64::from((id, count) != (row.id, row.count)),
            };
        }
        let mut doubtful = BTreeSet::new();
        for (number, (scan, told)) in &self.scans {
            let rows = counts.get(&scan.parcel()).map_or(0, Vec::len);
            match told {
                Told::Nothing => _ = doubtful.insert(scan.parcel()),
                Told::Given(..) if !seen.contains(number) => shown += 1,
                // whatever else comes into the parcel, no scan of it is left that could be the seventh
                Told::Refused => shown += u64::from(rows + self.doubts(scan.parcel()) < MOST.into()),
                _ => {}
            }
        }
        for (parcel, counts) in &mut counts {
            counts.sort_unstable();
            let is_right = (1..).zip(counts.iter()).all(|(place, count)| place == *count);
            shown += u64::from(!is_right && !doubtful.contains(parcel));
        }
        shown
    }

    /// How many scans of a parcel were sent and not answered.
    fn doubts(&self, parcel: u64) -> usize {
        let doubtful = self.scans.values().filter(|(_, told)| *told == Told::Nothing);
        doubtful.filter(|(scan, _)| scan.parcel() == parcel).count()
    }
}
