//! A queue on disk: what it has acknowledged is synced, and survives whatever the disk's sync does.
//!
//! Entries lie in [segments](segment). One thread, the [committer](committer), writes what requests bring, all that came
//! during its last sync, and syncs it; only then are they acknowledged. Collectors read the entries back from the
//! segments, which are in the system's page cache mostly: a queue that has grown for an hour takes no more memory than an
//! empty one. A segment whose entries are all stored is removed.
//!
//! How far entries are stored is kept in the file `stored`, which is not synced: after a crash some entries are read
//! once more, and the database suppresses them as repeats.
//!
//! **Why not a crate.** `seglog` 0.3 has one segment and one writer, and syncs the folder after making a segment; but
//! where one record of a segment is damaged, all behind it are given up in silence. `wal-db` 1.1 was not seen to sync the
//! folder, and `okaywal`, `walrus-rust`, `commitlog` and `yaque` either advise against use in production or do not sync.

mod committer;
mod recovery;
mod segment;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    fs::{self, File},
    io, mem,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Mutex as TaskMutex, Notify, oneshot},
    time::{Instant, sleep, timeout, timeout_at},
};

use self::{
    recovery::Recovered,
    segment::{Segment, Step, Walk},
};
use super::{Batch, Cut, PutError, Record, progress::Progress};
use crate::{
    depth::Depth,
    folder::{self, private_file},
    in_place,
    metrics::Metrics,
};

/// Bytes that wait to be written: more are refused.
const PENDING: u64 = 64 << 20;
/// The file that says how far entries are stored is written no more often than this.
const NOTE: Duration = Duration::from_millis(100);

/// How long it takes until it is tried again to read entries back.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// What is told where a record is not what was written.
const DAMAGED: &str = "acknowledged entries cannot be read: the disk has changed them";

/// Where a queue lies, and how large it may become.
#[derive(Clone, Debug)]
pub(crate) struct DiskOptions {
    pub(crate) folder: PathBuf,
    /// The most bytes of all its segments.
    pub(crate) most_bytes: u64,
    /// The bytes of a segment.
    pub(crate) segment: u64,
    /// How long a record may wait until it is synced.
    pub(crate) patience: Duration,
    /// Lets every sync hang, as a disk does.
    #[cfg(test)]
    pub(crate) hangs: Arc<std::sync::atomic::AtomicBool>,
    /// Lets every sync fail, as a disk does.
    #[cfg(test)]
    pub(crate) broken: Arc<std::sync::atomic::AtomicBool>,
    /// Lets the thread that writes panic, as only a defect could.
    #[cfg(test)]
    pub(crate) panics: Arc<std::sync::atomic::AtomicBool>,
}

#[derive(Debug)]
pub(crate) struct DiskQueue {
    shared: Arc<Shared>,
    /// Held by the collector whose turn it is.
    turn: TaskMutex<Reader>,
    note: Mutex<Note>,
    /// Locked for as long as this queue is open.
    _lock: File,
}

#[derive(Debug)]
struct Shared {
    options: DiskOptions,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
    /// Held while segments are removed, in order. Whether one could not be removed the last time.
    unremoved: Mutex<bool>,
    /// Tells the committer that there is something to do.
    work: Condvar,
    /// Tells that the committer has ended.
    ended: Condvar,
    /// Tells the collector whose turn it is that something can be read.
    came: Notify,
}

#[derive(Debug)]
struct State {
    pending: Vec<Pending>,
    pending_bytes: u64,
    closed: bool,
    /// Whether the committer has ended.
    ended: bool,
    segments: VecDeque<Placed>,
    next_segment: u64,
    /// The number behind the last entry that was acknowledged or, because it could not be synced, refused.
    end: u64,
    /// The number behind the last entry that was acknowledged.
    acknowledged: u64,
    progress: Progress,
    /// Since when the committer has waited for the disk, if it does.
    writing: Option<std::time::Instant>,
    /// Whether it was told that the disk does not answer.
    is_stall_told: bool,
    /// Why entries cannot be written at present.
    trouble: Option<String>,
    /// Why entries cannot be read back at present.
    unread: Option<String>,
}

/// A record that waits to be synced.
#[derive(Debug)]
struct Pending {
    record: Record,
    crc: u32,
    since: std::time::Instant,
    done: oneshot::Sender<Result<(), PutError>>,
}

/// A segment on the disk.
#[derive(Clone, Debug)]
struct Placed {
    number: u64,
    /// The bytes that it takes.
    size: u64,
    /// What was synced of it: records end here.
    written: u64,
    /// The number behind its last entry.
    end: u64,
    /// Whether nothing more is written into it.
    sealed: bool,
    /// Whether acknowledged entries in it cannot be read: it is put aside.
    damaged: bool,
}

/// Reads the records of all segments in order.
#[derive(Debug)]
struct Reader {
    cut: Cut,
    /// The number of the next entry that is taken.
    taken: u64,
    walk: Option<(u64, Walk)>,
    /// The last segment that was read to its end.
    done: u64,
}

/// The file that says how far entries are stored: the number twice, with its checksum, so that a torn write costs only
/// the later one.
#[derive(Debug)]
struct Note {
    file: File,
    written: u64,
    writes: u64,
    at: Option<Instant>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes segments of which every entry is stored.
    fn remove_stored(&self) {
        let mut unremoved = self.unremoved.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done: VecDeque<Placed> = {
            let mut state = self.state();
            let up_to = state.progress.up_to();
            let count =
                state.segments.iter().take_while(|segment| segment.sealed && segment.end <= up_to).count();
            state.segments.drain(..count).collect()
        };
        while let Some(segment) = done.front() {
            let path = segment::path(&self.options.folder, segment.number);
            let aside = path.with_extension(segment::DAMAGED);
            // a file system without hard links has kept it under one name
            let removed = if segment.damaged && !aside.exists() {
                fs::rename(&path, aside)
            } else {
                fs::remove_file(&path)
            };
            if let Err(error) = removed {
                if !mem::replace(&mut *unremoved, true) {
                    tracing::error!(file = %path.display(), %error, "a segment that is stored cannot be removed");
                }
                break;
            }
            *unremoved = false;
            done.pop_front();
        }
        // They still take room. They are removed in order: one that is missing between others would look as if it was
        // lost.
        let segments = &mut self.state().segments;
        while let Some(segment) = done.pop_back() {
            segments.push_front(segment);
        }
    }

    fn put_aside(&self, number: u64) {
        if let Some(placed) = self.state().segments.iter_mut().find(|placed| placed.number == number) {
            put_aside(&self.options.folder, placed);
        }
    }
}

impl DiskQueue {
    /// Opens the queue in a folder, which is made if it does not exist, and finds what waits in it.
    pub(crate) fn open(options: DiskOptions, metrics: Arc<Metrics>) -> io::Result<Self> {
        folder::make(&options.folder)?;
        let lock = private_file(&options.folder.join("lock"))?;
        lock.try_lock().map_err(|_| {
            io::Error::other("another gateway uses this folder\n  remedy: a folder of its own by --data")
        })?;
        let (note, stored) = Note::open(&options.folder)?;
        let Recovered { segments, next_segment, end, oldest } = recovery::recover(&options.folder, stored)?;
        let progress = Progress::new(stored, end, oldest);
        let waiting = progress.waiting();
        if waiting > 0 {
            tracing::info!(entries = waiting, "entries of an earlier gateway wait in the queue");
        }
        let state = State {
            pending: Vec::new(),
            pending_bytes: 0,
            closed: false,
            ended: false,
            segments,
            next_segment,
            end,
            acknowledged: end,
            progress,
            writing: None,
            is_stall_told: false,
            trouble: None,
            unread: None,
        };
        let shared = Arc::new(Shared {
            options,
            metrics,
            state: Mutex::new(state),
            unremoved: Mutex::default(),
            work: Condvar::new(),
            ended: Condvar::new(),
            came: Notify::new(),
        });
        committer::start(Arc::clone(&shared))?;
        let queue = Self {
            shared,
            turn: TaskMutex::new(Reader { cut: Cut::default(), taken: stored, walk: None, done: 0 }),
            note: Mutex::new(note),
            _lock: lock,
        };
        queue.shared.remove_stored();
        Ok(queue)
    }

    pub(super) async fn put(&self, record: Record) -> Result<(), PutError> {
        let crc = crc32fast::hash(&record.bytes);
        let (done, answer) = oneshot::channel();
        {
            let mut state = self.shared.state();
            if state.closed || state.ended {
                return Err(PutError::Closed);
            }
            if let Some(why) = state.stalled(self.shared.options.patience) {
                return Err(PutError::Failed(why));
            }
            let size = record.bytes.len() as u64 + segment::HEAD as u64;
            if state.pending_bytes + size > PENDING {
                return Err(PutError::Full);
            }
            state.pending_bytes += size;
            state.pending.push(Pending { record, crc, since: std::time::Instant::now(), done });
        }
        self.shared.work.notify_one();
        // the committer answers everybody, and if it ended without it, nothing was acknowledged
        let answer = timeout(self.shared.options.patience, answer).await;
        answer.map_or_else(|_| Err(self.late()), |answer| answer.unwrap_or(Err(PutError::Closed)))
    }

    /// Why a record was not synced in time. What the committer has not begun to write, it leaves out.
    fn late(&self) -> PutError {
        let patience = self.shared.options.patience;
        let mut state = self.shared.state();
        let Some(why) = state.stalled(patience) else {
            return PutError::Failed(format!("it was not synced within {} s", patience.as_secs_f64()));
        };
        if !mem::replace(&mut state.is_stall_told, true) {
            tracing::error!("{why}: requests are answered with 503 until it does");
        }
        PutError::Failed(why)
    }

    pub(super) async fn take(&self, most: usize, linger: Duration) -> Option<Batch> {
        let mut reader = self.turn.lock().await;
        let mut until = None;
        loop {
            let came = self.shared.came.notified();
            let (end, ended) = {
                let state = self.shared.state();
                (state.end, state.ended)
            };
            let waiting = end.saturating_sub(reader.taken);
            if waiting == 0 {
                if ended {
                    return None;
                }
                reader.let_go(&self.shared);
            }
            let now = Instant::now();
            if waiting > 0 && until.is_none() {
                until = Some(now + linger);
            }
            if waiting >= most as u64 || (waiting > 0 && ended) || until.is_some_and(|until| until <= now) {
                let (batch, read) = in_place(|| reader.batch(&self.shared, most, end));
                self.note_read(read);
                if batch.begin < batch.end {
                    return Some(batch);
                }
                sleep(READ_AGAIN).await;
                continue;
            }
            match until {
                Some(until) => drop(timeout_at(until, came).await),
                None => came.await,
            }
        }
    }

    /// Tells once that entries cannot be read back, and once that they can be again.
    fn note_read(&self, read: io::Result<()>) {
        let unread = &mut self.shared.state().unread;
        match (&unread, read) {
            (None, Err(error)) => {
                tracing::error!(%error, "entries cannot be read back from the queue: they wait there");
                *unread = Some(error.to_string());
            }
            (Some(_), Ok(())) => {
                tracing::info!("entries are read back from the queue again");
                *unread = None;
            }
            _ => {}
        }
    }

    pub(super) fn stored(&self, batch: &Batch) {
        let up_to = {
            let mut state = self.shared.state();
            state.progress.stored(batch.begin, batch.end);
            state.progress.up_to()
        };
        in_place(|| {
            self.note.lock().unwrap_or_else(PoisonError::into_inner).say(up_to, false);
            self.shared.remove_stored();
        });
    }

    pub(super) fn close(&self) {
        self.shared.state().closed = true;
        self.shared.work.notify_one();
    }

    /// Answers whoever waits, and notes how far entries are stored. A disk that does not answer is not waited for longer
    /// than by those who wait.
    pub(super) fn finish(&self) {
        self.close();
        in_place(|| {
            let waits = self.shared.ended.wait_timeout_while(
                self.shared.state(),
                self.shared.options.patience,
                |state| !state.ended,
            );
            let state = waits.unwrap_or_else(PoisonError::into_inner).0;
            if !state.ended {
                return;
            }
            let up_to = state.progress.up_to();
            drop(state);
            self.note.lock().unwrap_or_else(PoisonError::into_inner).say(up_to, true);
        });
    }

    pub(super) fn depth(&self) -> Depth {
        let state = self.shared.state();
        Depth {
            entries: state.progress.waiting(),
            messages: None,
            is_stale: false,
            bytes: Some(state.disk_bytes()),
            most_bytes: self.shared.options.most_bytes,
            oldest: state.progress.oldest(),
        }
    }

    pub(super) fn trouble(&self) -> Option<String> {
        let state = self.shared.state();
        state.stalled(self.shared.options.patience).or_else(|| state.trouble.clone())
    }

    /// Whether the committer has ended, though the queue was not closed.
    pub(super) fn has_ended(&self) -> bool {
        let state = self.shared.state();
        state.ended && !state.closed
    }

    /// Why what waits cannot be read back at present, if it cannot.
    pub(super) fn unread(&self) -> Option<String> {
        self.shared.state().unread.clone()
    }
}

impl Drop for DiskQueue {
    fn drop(&mut self) {
        self.finish();
    }
}

impl State {
    fn disk_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size).sum()
    }

    /// That the disk has not answered for this long, if it has not.
    fn stalled(&self, patience: Duration) -> Option<String> {
        let waited = self.writing?.elapsed();
        (waited >= patience).then(|| format!("the disk has not answered for {} s", waited.as_secs()))
    }
}

impl Reader {
    /// The next batch of at most so many entries; all before `end` are synced.
    fn batch(&mut self, shared: &Shared, most: usize, end: u64) -> (Batch, io::Result<()>) {
        let Self { cut, taken, walk, done } = self;
        let (batch, read) = cut.fill(most, *taken, end, || next(shared, walk, done));
        *taken = batch.end;
        (batch, read)
    }

    /// Closes a segment that was read to its end: once it is removed, its room is free only when nobody has it open.
    fn let_go(&mut self, shared: &Shared) {
        let Some((number, walk)) = &self.walk else { return };
        let number = *number;
        let may_be_read = {
            let state = shared.state();
            let placed = state.segments.iter().find(|placed| placed.number == number);
            placed.is_some_and(|placed| !placed.sealed || walk.offset < placed.written)
        };
        if !may_be_read {
            self.done = number;
            self.walk = None;
        }
    }
}

/// The next record that was synced.
///
/// # Errors
/// If a segment cannot be opened: it can be tried again.
fn next(
    shared: &Shared,
    walk: &mut Option<(u64, Walk)>,
    done: &mut u64,
) -> io::Result<Option<(u64, Record)>> {
    loop {
        let current = walk.as_ref().map(|(number, _)| *number);
        let placed = {
            let state = shared.state();
            let mut segments = state.segments.iter();
            match current {
                Some(number) => segments.find(|segment| segment.number == number).cloned(),
                None => segments.find(|segment| segment.number > *done).cloned(),
            }
        };
        let Some(placed) = placed else {
            // nothing was written yet; or all of the current segment is stored, and it was removed
            let Some(current) = current else { return Ok(None) };
            *done = current;
            *walk = None;
            continue;
        };
        let damaged = |from: u64, to: u64, why: &str| {
            tracing::error!(segment = placed.number, from, to, "{why}");
            shared.put_aside(placed.number);
        };
        let (_, reader) = match &mut *walk {
            Some(open) => open,
            none => {
                let opened = Segment::open(&segment::path(&shared.options.folder, placed.number))?;
                let Some(segment) = opened else {
                    damaged(
                        0,
                        placed.written,
                        "a segment's head cannot be read: what it holds is not stored",
                    );
                    *done = placed.number;
                    continue;
                };
                none.insert((placed.number, Walk::new(segment)))
            }
        };
        match reader.step(placed.written) {
            Some(Step::Record(first, record)) => return Ok(Some((first, record))),
            Some(Step::Damage { from, to }) => damaged(from, to, DAMAGED),
            None => {
                if reader.offset < placed.written {
                    damaged(reader.offset, placed.written, DAMAGED);
                    reader.offset = placed.written;
                }
                if !placed.sealed {
                    return Ok(None);
                }
                *done = placed.number;
                *walk = None;
            }
        }
    }
}

/// Keeps the file of a segment in which acknowledged entries cannot be read, for somebody who can read more of it: under
/// a second name at once, because its first is removed when the rest of it is stored.
fn put_aside(folder: &Path, placed: &mut Placed) {
    if placed.damaged {
        return;
    }
    placed.damaged = true;
    let file = segment::path(folder, placed.number);
    let aside = file.with_extension(segment::DAMAGED);
    // otherwise an earlier gateway found it, too; or there are no hard links, and it is renamed when the rest is stored
    if fs::hard_link(&file, &aside).is_ok() {
        tracing::warn!(file = %aside.display(), "the damaged segment is put aside");
    }
}

impl Note {
    /// Opens the file and reads the number in it: 0 if there is none.
    fn open(folder: &Path) -> io::Result<(Self, u64)> {
        let file = private_file(&folder.join("stored"))?;
        let read = |slot: u64| {
            let mut bytes = [0; 12];
            file.read_exact_at(&mut bytes, slot * 512).ok()?;
            let (number, crc) = bytes.split_last_chunk::<4>()?;
            let whole = u32::from_le_bytes(*crc) == crc32fast::hash(number);
            number.try_into().ok().map(u64::from_le_bytes).filter(|_| whole)
        };
        let stored = read(0).max(read(1)).unwrap_or(0);
        Ok((Self { file, written: stored, writes: 0, at: None }, stored))
    }

    /// Writes the number, unless it was written a moment ago.
    fn say(&mut self, stored: u64, now: bool) {
        let is_due = self.at.is_none_or(|at| at.elapsed() >= NOTE);
        if stored <= self.written || !(is_due || now) {
            return;
        }
        let mut bytes = Vec::from(stored.to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        // where it cannot be written, more is read again after a crash: the database suppresses that
        let _ = self.file.write_all_at(&bytes, self.writes % 2 * 512);
        self.writes += 1;
        self.written = stored;
        self.at = Some(Instant::now());
    }
}
