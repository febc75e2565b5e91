//! What the clients of a trial remember: their transactions, in a file, off the timed path.

use std::{
    collections::BTreeMap,
    fs::File,
    os::fd::AsRawFd,
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use acidtest_history::{Disruption, Files, Limits, Operation, Outcome, Transaction, Writer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Layout, parameters::LONGEST};
use crate::{
    Boundary, TrialLedger, WrittenLedger,
    trial::{read_ledger, written_ledger},
};

/// Most transactions of a trial that are kept to be checked.
pub(super) const MOST: u64 = 1_000_000;

/// Most bytes of them.
const MOST_BYTES: u64 = 1 << 30;

/// Nanoseconds on the machine's monotonic clock, which is the same for all processes.
pub(super) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
}

/// What the clients of one process did.
#[derive(Debug)]
pub struct Ledger {
    layout: Layout,
    keys: u32,
    history: Mutex<Kept>,
    /// Which list stands in each place now, counted from 0.
    generations: Vec<AtomicU32>,
    counts: Counts,
    /// By account.
    moved: Mutex<Vec<Moved>>,
    /// When the first transaction began for which the history had no room.
    left_out: AtomicU64,
}

#[derive(Debug, Default)]
struct Counts {
    committed: AtomicU64,
    /// Appends for which no list had room.
    without_room: AtomicU64,
    /// Reads of what nobody writes.
    unreadable: AtomicU64,
    /// Transactions that found a row gone.
    missing: AtomicU64,
}

impl Counts {
    fn all(&self) -> [&AtomicU64; 4] {
        [&self.committed, &self.without_room, &self.unreadable, &self.missing]
    }
}

#[derive(Debug, Default)]
struct Kept {
    writer: Option<Own>,
    /// Why the history cannot be kept.
    failed: Option<String>,
    disruptions: Vec<Span>,
    /// Files of other processes, which have no names.
    others: Vec<File>,
    limit: u64,
}

#[derive(Debug)]
struct Own {
    writer: Option<Writer>,
    /// The same file, which has no name: whatever becomes of this process, nothing is left of it.
    file: File,
}

/// A time in which the server was being disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Span {
    from: u64,
    /// None as long as it is not over.
    until: Option<u64>,
}

/// What a process tells of its ledger.
#[derive(Serialize, Deserialize)]
struct Written {
    files: Vec<PathBuf>,
    disruptions: Vec<Span>,
    counts: [u64; 4],
    moved: Vec<Moved>,
    left_out: u64,
}

/// What transfers changed of one account's balance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Moved {
    /// Those that were acknowledged.
    acknowledged: i64,
    /// Those without an answer: the least that any of them leave.
    least: i64,
    /// And the most.
    most: i64,
}

impl Moved {
    /// Whether transfers may have changed the balance by so much.
    pub(super) fn leaves(&self, changed: i64) -> bool {
        (self.acknowledged + self.least..=self.acknowledged + self.most).contains(&changed)
    }

    fn add(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.least += other.least;
        self.most += other.most;
    }
}

/// What has been acknowledged and what was seen, as totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) committed: u64,
    pub(super) without_room: u64,
    pub(super) unreadable: u64,
    pub(super) missing: u64,
}

impl Own {
    fn create(limit: u64) -> Result<Self, String> {
        // it never has a name, so that nobody else can put another file in its place
        let file = tempfile::tempfile();
        let file = file.map_err(|error| format!("{}: {error}", std::env::temp_dir().display()))?;
        let path = place_of(std::process::id(), &file);
        let same = file.try_clone().map_err(|error| error.to_string())?;
        // so many bytes for so many transactions, whatever the number of processes
        let limits = Limits { transactions: limit, bytes: limit.saturating_mul(MOST_BYTES / MOST) };
        let writer = Writer::new(same, &path, limits).map_err(|error| error.to_string())?;
        Ok(Self { writer: Some(writer), file })
    }
}

/// Where an open file without a name is found.
fn place_of(process: u32, file: &File) -> PathBuf {
    format!("/proc/{process}/fd/{}", file.as_raw_fd()).into()
}

impl Ledger {
    /// An empty one, for one of so many processes.
    pub(super) fn new(layout: Layout, keys: u32, processes: usize) -> Self {
        let places = if layout.lists > 0 { keys } else { 0 };
        let limit = MOST / processes.max(1) as u64;
        Self {
            layout,
            keys,
            history: Mutex::new(Kept { limit, ..Kept::default() }),
            generations: (0..places).map(|_| AtomicU32::new(0)).collect(),
            counts: Counts::default(),
            moved: Mutex::new(vec![Moved::default(); layout.accounts as usize]),
            left_out: AtomicU64::new(u64::MAX),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The list that stands in this place now, and whether it takes more values.
    pub(super) fn list_at(&self, place: u32) -> (u32, bool) {
        let generation =
            self.generations.get(place as usize).map_or(0, |generation| generation.load(Relaxed));
        let list = place + generation * self.keys;
        if list < self.layout.lists { (list, true) } else { (list - self.keys, false) }
    }

    /// Writes down transactions that have ended, and empties `ended`.
    pub(super) fn note(&self, ended: &mut Vec<Transaction>) {
        let mut kept = self.kept();
        let kept = &mut *kept;
        if kept.failed.is_none() && kept.writer.is_none() {
            match Own::create(kept.limit) {
                Ok(own) => kept.writer = Some(own),
                Err(error) => kept.failed = Some(error),
            }
        }
        let writer = kept.writer.as_mut().and_then(|own| own.writer.as_mut());
        if let Some(writer) = writer {
            let written = ended.iter().try_for_each(|transaction| {
                if !writer.write(transaction)? {
                    self.left_out.fetch_min(transaction.start, Relaxed);
                }
                Ok::<_, acidtest_history::Error>(())
            });
            if let Err(error) = written {
                kept.failed.get_or_insert(error.to_string());
            }
        } else if !ended.is_empty() {
            kept.failed.get_or_insert_with(|| "a transaction ended after the audit had begun".to_owned());
        }
        ended.clear();
    }

    /// Counts a transaction that has ended, and lets another list take the place of one that it found full.
    pub(super) fn count(&self, transaction: &Transaction) {
        if transaction.outcome == Outcome::Committed {
            self.counts.committed.fetch_add(1, Relaxed);
        }
        for operation in &transaction.operations {
            if let Operation::ReadList { key, values } = operation
                && values.len() >= LONGEST
            {
                let (place, generation) = (key % self.keys, key / self.keys);
                if let Some(now) = self.generations.get(place as usize) {
                    now.fetch_max(generation + 1, Relaxed);
                }
            }
        }
    }

    /// What a transaction that was acknowledged, or had no answer, moved between accounts: all of it, or nothing.
    pub(super) fn transferred(&self, changes: &BTreeMap<u32, i64>, is_acknowledged: bool) {
        let mut moved = self.moved();
        for (&account, &change) in changes {
            let change = if is_acknowledged {
                Moved { acknowledged: change, ..Moved::default() }
            } else {
                Moved { acknowledged: 0, least: change.min(0), most: change.max(0) }
            };
            if let Some(moved) = moved.get_mut(account as usize) {
                moved.add(change);
            }
        }
    }

    /// What transfers changed of each account's balance.
    pub(super) fn moved(&self) -> MutexGuard<'_, Vec<Moved>> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the first transaction began for which the history had no room; the end of time if there was room for all.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out.load(SeqCst)
    }

    /// An append was left out, as no list had room for it.
    pub(super) fn no_room(&self) {
        self.counts.without_room.fetch_add(1, Relaxed);
    }

    pub(super) fn read_unreadable(&self) {
        self.counts.unreadable.fetch_add(1, Relaxed);
    }

    pub(super) fn row_missing(&self) {
        self.counts.missing.fetch_add(1, Relaxed);
    }

    pub(super) fn totals(&self) -> Totals {
        let [committed, without_room, unreadable, missing] =
            self.counts.all().map(|count| count.load(SeqCst));
        Totals { committed, without_room, unreadable, missing }
    }

    /// The times in which the server was disturbed, as this process was told and the others were.
    pub(super) fn disruptions(&self) -> Vec<Disruption> {
        let spans = self.kept().disruptions.clone();
        let over = |Span { from, until }: Span| Disruption { from, until: until.unwrap_or(u64::MAX) };
        spans.into_iter().map(over).collect()
    }

    /// Everything that was written, by this process and by others, to be checked; nothing more can be noted after that.
    ///
    /// # Errors
    /// The history could not be kept.
    pub(super) fn history(&self) -> Result<Files, String> {
        let mut kept = self.kept();
        close(&mut kept)?;
        let own = kept.writer.iter().map(|own| &own.file);
        let paths = own.chain(&kept.others).map(|file| place_of(std::process::id(), file)).collect();
        Ok(Files::new(paths))
    }
}

/// Writes the end of the own file.
fn close(kept: &mut Kept) -> Result<(), String> {
    let finished = kept.writer.as_mut().and_then(|own| own.writer.take()).map(Writer::finish);
    if let Some(Err(error)) = finished {
        kept.failed.get_or_insert(error.to_string());
    }
    kept.failed.clone().map_or(Ok(()), |error| Err(format!("the history could not be kept: {error}")))
}

impl TrialLedger for Ledger {
    fn written(&self) -> Result<WrittenLedger, String> {
        let mut kept = self.kept();
        close(&mut kept)?;
        let files = kept.writer.iter().map(|own| place_of(std::process::id(), &own.file)).collect();
        let counts = self.counts.all().map(|count| count.load(SeqCst));
        let moved = self.moved().clone();
        written_ledger(&Written {
            files,
            disruptions: kept.disruptions.clone(),
            counts,
            moved,
            left_out: self.left_out(),
        })
    }

    /// Opens the files at once: they are gone with the process that tells of them.
    fn merge(&self, written: &RawValue, knows_boundaries: bool) -> Result<(), String> {
        let written: Written = read_ledger(written)?;
        let mut kept = self.kept();
        for path in &written.files {
            let file = File::open(path);
            kept.others.push(file.map_err(|error| format!("the history of a process: {error}"))?);
        }
        kept.disruptions.extend(&written.disruptions);
        if !knows_boundaries {
            // nobody knows which of its transactions a crash parts
            kept.disruptions.push(Span { from: 0, until: None });
        }
        for (mine, theirs) in self.counts.all().into_iter().zip(written.counts) {
            mine.fetch_add(theirs, Relaxed);
        }
        for (mine, theirs) in self.moved().iter_mut().zip(written.moved) {
            mine.add(theirs);
        }
        self.left_out.fetch_min(written.left_out, Relaxed);
        Ok(())
    }

    fn note_boundary(&self, boundary: Boundary) {
        let now = now();
        let spans = &mut self.kept().disruptions;
        let open = spans.last_mut().filter(|span| span.until.is_none());
        match (boundary, open) {
            (Boundary::Before | Boundary::During, None) => spans.push(Span { from: now, until: None }),
            (Boundary::After, Some(open)) => open.until = Some(now),
            (Boundary::Before | Boundary::During, Some(_)) | (Boundary::After, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use acidtest_history::Source;

    use super::*;

    const LAYOUT: Layout = Layout { lists: 6, registers: 2, accounts: 2, balance: 10 };

    fn transaction(sequence: u32, operations: Vec<Operation>) -> Transaction {
        Transaction {
            session: 1,
            sequence,
            start: u64::from(sequence) * 10,
            end: Some(u64::from(sequence) * 10 + 5),
            outcome: Outcome::Committed,
            operations,
            total: None,
        }
    }

    fn read(ledger: &Ledger) -> Vec<Transaction> {
        let mut all = Vec::new();
        ledger.history().unwrap().pass(&mut |transaction| all.push(transaction.clone())).unwrap();
        all
    }

    #[test]
    fn another_list_follows_one_that_is_full_until_there_is_none() {
        let ledger = Ledger::new(LAYOUT, 2, 1);
        let full = |list| Operation::ReadList { key: list, values: (0..LONGEST as u64).collect() };
        assert_eq!([ledger.list_at(0), ledger.list_at(1)], [(0, true), (1, true)]);
        for (sequence, (list, next)) in
            (0..).zip([(0, (2, true)), (2, (4, true)), (2, (4, true)), (4, (4, false))])
        {
            ledger.count(&transaction(sequence, vec![full(list)]));
            assert_eq!(ledger.list_at(0), next);
        }
        assert_eq!(ledger.list_at(1), (1, true));
    }

    /// The folder for temporary files is everybody's: a name that can be foreseen may be a link to another file.
    #[test]
    fn the_file_has_no_name_that_anybody_can_foresee() {
        let ledger = Ledger::new(LAYOUT, 2, 1);
        ledger.note(&mut vec![transaction(0, Vec::new())]);
        let kept = ledger.kept();
        let place = place_of(std::process::id(), &kept.writer.as_ref().unwrap().file);
        let name = std::fs::read_link(&place).unwrap();
        assert!(!name.to_string_lossy().contains("acidtest"), "{}", name.display());
        assert_eq!(std::fs::metadata(&place).unwrap().nlink(), 0);
    }

    /// The files have no names, and are there for whoever has been told of them in time.
    #[test]
    fn ledgers_of_several_processes_say_together_what_each_did() {
        let (one, other, judge) =
            (Ledger::new(LAYOUT, 2, 2), Ledger::new(LAYOUT, 2, 2), Ledger::new(LAYOUT, 2, 1));
        for (ledger, sequence, value) in [(&one, 0, 5), (&other, 1, 6)] {
            let transaction = transaction(sequence, vec![Operation::Append { key: 1, value }]);
            ledger.count(&transaction);
            ledger.note(&mut vec![transaction]);
            ledger.transferred(&[(0, -3), (1, 3)].into(), true);
        }
        other.transferred(&[(0, -1), (1, 1)].into(), false);
        other.no_room();
        for (ledger, knows) in [(&one, true), (&other, true)] {
            judge.merge(&ledger.written().unwrap(), knows).unwrap();
        }
        drop((one, other));
        assert_eq!(read(&judge).len(), 2);
        let totals = Totals { committed: 2, without_room: 1, ..Totals::default() };
        let left =
            |account: usize, changes: [i64; 4]| changes.map(|change| judge.moved()[account].leaves(change));
        assert_eq!(left(0, [-8, -7, -6, -5]), [false, true, true, false]);
        assert_eq!(left(1, [5, 6, 7, 8]), [false, true, true, false]);
        assert_eq!(judge.totals(), totals);
        assert_eq!(judge.disruptions(), []);
    }

    #[test]
    fn a_crash_parts_the_history_and_one_that_is_not_over_has_no_end() {
        let ledger = Ledger::new(LAYOUT, 2, 1);
        for boundary in
            [Boundary::Before, Boundary::During, Boundary::After, Boundary::After, Boundary::Before]
        {
            ledger.note_boundary(boundary);
        }
        let disruptions = ledger.disruptions();
        assert_eq!(disruptions.len(), 2);
        assert!(disruptions[0].from <= disruptions[0].until && disruptions[0].until <= disruptions[1].from);
        assert_eq!(disruptions[1].until, u64::MAX);
        // of a process that was not told in time nothing is known to be on one side of a crash
        let judge = Ledger::new(LAYOUT, 2, 1);
        judge.merge(&ledger.written().unwrap(), false).unwrap();
        assert!(judge.disruptions().contains(&Disruption { from: 0, until: u64::MAX }));
    }
}
