use std::{collections::BTreeSet, io::Write, sync::atomic::Ordering::Relaxed};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::entry::{self, Entry, Level};

const SEGMENT: u64 = 64 << 10;
const NO_LINGER: Duration = Duration::ZERO;

fn options(folder: &Path) -> DiskOptions {
    DiskOptions {
        folder: folder.to_owned(),
        most_bytes: 16 * SEGMENT,
        segment: SEGMENT,
        patience: Duration::from_mins(1),
        hangs: Arc::default(),
        broken: Arc::default(),
        panics: Arc::default(),
    }
}

fn open(folder: &Path) -> DiskQueue {
    DiskQueue::open(options(folder), Arc::new(Metrics::new())).unwrap()
}

/// A record of so many entries, whose ids are numbers from `first` on.
fn record(first: u64, entries: u32, size: usize) -> Record {
    let message = "x".repeat(size);
    let entries: Vec<Entry<'_>> = (first..first + u64::from(entries))
        .map(|id| Entry {
            id: id.to_string().into(),
            timestamp: 7,
            level: Level::Info,
            application: "a".into(),
            message: message.as_str().into(),
            attributes: None,
        })
        .collect();
    Record {
        entries: u32::try_from(entries.len()).unwrap(),
        bytes: entry::encode("ann", 1, entries.iter()).into(),
    }
}

fn ids(batch: &Batch) -> Vec<u64> {
    batch.entries().iter().map(|queued| queued.entry.id.parse().unwrap()).collect()
}

/// Takes all that is there, and stores it if asked to.
async fn take_all(queue: &DiskQueue, most: usize, and_store: bool) -> Vec<u64> {
    let mut all = Vec::new();
    let end = || queue.shared.state().end;
    while end() > queue.turn.lock().await.taken {
        let batch = queue.take(most, NO_LINGER).await.unwrap();
        assert!(ids(&batch).len() <= most);
        all.extend(ids(&batch));
        if and_store {
            queue.stored(&batch);
        }
    }
    all
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    files(folder, "segment")
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|name| name == extension));
    files.sort();
    files
}

/// The folder as a kill would leave it: whatever was written is in the files.
fn as_killed(folder: &Path) -> TempDir {
    let copy = TempDir::new().unwrap();
    for file in fs::read_dir(folder).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

#[tokio::test]
async fn entries_come_out_as_they_went_in_over_many_segments_that_are_then_removed() {
    let folder = TempDir::new().unwrap();
    let queue = open(folder.path());
    let mut put = 0;
    for _ in 0..60 {
        queue.put(record(put, 7, 600)).await.unwrap();
        put += 7;
    }
    assert!(segments(folder.path()).len() >= 4);
    assert_eq!(queue.depth().entries, put);
    // a batch may end within a record
    assert_eq!(take_all(&queue, 10, true).await, (0..put).collect::<Vec<_>>());
    assert_eq!((queue.depth().entries, queue.depth().oldest), (0, None));
    assert_eq!(segments(folder.path()).len(), 1, "only the one that is written");
    queue.close();
    assert!(queue.take(10, NO_LINGER).await.is_none());
    assert_eq!(queue.put(record(0, 1, 1)).await, Err(PutError::Closed));
}

#[tokio::test]
async fn what_was_acknowledged_and_not_stored_is_there_after_a_kill() {
    let folder = TempDir::new().unwrap();
    let queue = open(folder.path());
    for first in 0..200 {
        queue.put(record(first, 1, 600)).await.unwrap();
    }
    let first = queue.take(50, NO_LINGER).await.unwrap();
    let second = queue.take(50, NO_LINGER).await.unwrap();
    // the first batch is not stored, and so nothing behind it counts as stored
    queue.stored(&second);
    let copy = as_killed(folder.path());
    let again = open(copy.path());
    assert_eq!(take_all(&again, 1000, false).await, (0..200).collect::<Vec<_>>());
    drop(again);
    queue.stored(&first);
    queue.finish();
    let copy = as_killed(folder.path());
    let again = open(copy.path());
    assert_eq!(again.depth().entries, 100);
    assert_eq!(take_all(&again, 30, true).await, (100..200).collect::<Vec<_>>());
    // numbers go on behind those of the earlier gateway
    again.put(record(500, 3, 10)).await.unwrap();
    assert_eq!(take_all(&again, 30, true).await, [500, 501, 502]);
    assert_eq!(segments(copy.path()).len(), 1);
}

/// Each start begins a segment: what the ones before have kept room for, is given back.
#[tokio::test]
async fn kills_one_after_the_other_do_not_fill_the_queue() {
    let mut folder = TempDir::new().unwrap();
    let starts = 3 * options(folder.path()).most_bytes / options(folder.path()).segment;
    for start in 0..starts {
        let queue = open(folder.path());
        queue.put(record(start, 1, 10)).await.unwrap();
        let copy = as_killed(folder.path());
        drop(queue);
        folder = copy;
    }
    let queue = open(folder.path());
    assert!(queue.depth().bytes < Some(starts * 1200 + SEGMENT), "{:?}", queue.depth());
    assert_eq!(take_all(&queue, 1000, false).await, (0..starts).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_full_queue_refuses_and_goes_on_when_there_is_room() {
    let folder = TempDir::new().unwrap();
    let queue = open(folder.path());
    let mut put = 0;
    loop {
        match queue.put(record(put, 1, 30_000)).await {
            Ok(()) => put += 1,
            Err(error) => {
                assert_eq!(error, PutError::Full);
                break;
            }
        }
        assert!(put < 1000);
    }
    assert_eq!(queue.trouble().as_deref(), Some("the queue is full"));
    let files: u64 = segments(folder.path()).iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(files <= 16 * SEGMENT && put >= 30, "{files} bytes, {put} records");
    assert_eq!(take_all(&queue, 1, true).await, (0..put).collect::<Vec<_>>());
    queue.put(record(put, 1, 30_000)).await.unwrap();
    assert_eq!((queue.trouble(), take_all(&queue, 1, true).await), (None, vec![put]));
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_acknowledged_on_that_segment_and_nothing_is_lost() {
    let folder = TempDir::new().unwrap();
    let options = options(folder.path());
    let broken = Arc::clone(&options.broken);
    let queue = DiskQueue::open(options, Arc::new(Metrics::new())).unwrap();
    queue.put(record(0, 10, 100)).await.unwrap();
    broken.store(true, Relaxed);
    for _ in 0..3 {
        let refused = queue.put(record(900, 10, 100)).await;
        assert!(
            matches!(&refused, Err(PutError::Failed(why)) if why.contains("Input/output")),
            "{refused:?}"
        );
    }
    assert!(queue.trouble().is_some());
    broken.store(false, Relaxed);
    queue.put(record(10, 10, 100)).await.unwrap();
    assert_eq!(queue.trouble(), None);
    let written = segments(folder.path());
    assert!(written.len() >= 2, "a segment whose sync failed is not written again: {written:?}");
    let copy = as_killed(folder.path());
    assert_eq!(take_all(&queue, 7, true).await, (0..20).collect::<Vec<_>>());
    // what was refused is not there after a kill either
    assert_eq!(take_all(&open(copy.path()), 7, true).await, (0..20).collect::<Vec<_>>());
}

/// Nobody waits for a disk that hangs, and what was refused meanwhile is not written when it answers again: whoever was told
/// so sends it again.
#[tokio::test]
async fn a_disk_that_hangs_is_told_and_not_waited_for() {
    let folder = TempDir::new().unwrap();
    let options = DiskOptions { patience: Duration::from_millis(300), ..options(folder.path()) };
    let hangs = Arc::clone(&options.hangs);
    let queue = Arc::new(DiskQueue::open(options, Arc::new(Metrics::new())).unwrap());
    queue.put(record(0, 1, 100)).await.unwrap();
    // it is answered a moment before its writing is over
    while queue.shared.state().writing.is_some() {
        sleep(Duration::from_millis(1)).await;
    }
    hangs.store(true, Relaxed);
    let put = |id| {
        let queue = Arc::clone(&queue);
        async move { queue.put(record(id, 1, 100)).await }
    };
    // the second waits for the first to be written
    let first = tokio::spawn(put(1));
    while queue.shared.state().writing.is_none() {
        sleep(Duration::from_millis(1)).await;
    }
    let second = put(2).await;
    for refused in [first.await.unwrap(), second] {
        assert!(matches!(refused, Err(PutError::Failed(_))), "{refused:?}");
    }
    // from now on at once, and whoever asks whether it is ready is told
    let told = |why: &str| why.starts_with("the disk has not answered for");
    assert!(queue.trouble().is_some_and(|why| told(&why)));
    assert!(matches!(put(3).await, Err(PutError::Failed(why)) if told(&why)));
    assert_eq!(queue.shared.state().pending.len(), 1, "the second only");
    hangs.store(false, Relaxed);
    while queue.trouble().is_some() || !queue.shared.state().pending.is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    // it may take a moment
    while put(4).await.is_err() {}
    let ids: BTreeSet<u64> = take_all(&queue, 10, true).await.into_iter().collect();
    assert_eq!(ids, BTreeSet::from([0, 1, 4]), "of those that failed only the one that was being written");
}

/// A gateway that is stopped does not wait for it either.
#[tokio::test]
async fn a_queue_on_a_disk_that_hangs_is_closed() {
    let folder = TempDir::new().unwrap();
    let options = DiskOptions { patience: Duration::from_millis(30), ..options(folder.path()) };
    let hangs = Arc::clone(&options.hangs);
    let queue = DiskQueue::open(options, Arc::new(Metrics::new())).unwrap();
    hangs.store(true, Relaxed);
    assert!(queue.put(record(0, 1, 100)).await.is_err());
    queue.finish();
    assert!(!queue.shared.state().ended);
    drop(queue);
    hangs.store(false, Relaxed);
}

/// A collector that waits finds out at once: otherwise they would count as waiting, and grow old.
#[tokio::test]
async fn entries_that_could_not_be_synced_do_not_wait_to_be_stored() {
    let folder = TempDir::new().unwrap();
    let queue = Arc::new(open(folder.path()));
    queue.put(record(0, 1, 100)).await.unwrap();
    take_all(&queue, 7, true).await;
    queue.shared.options.broken.store(true, Relaxed);
    let taking = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { queue.take(7, NO_LINGER).await }
    });
    tokio::task::yield_now().await;
    assert!(queue.put(record(1, 10, 100)).await.is_err());
    let taken = tokio::time::timeout(Duration::from_secs(10), taking).await.unwrap().unwrap().unwrap();
    assert!(ids(&taken).is_empty());
    queue.stored(&taken);
    assert_eq!((queue.depth().entries, queue.depth().oldest), (0, None));
}

#[tokio::test]
async fn a_disk_on_which_no_segment_can_be_made_refuses_until_one_can() {
    let folder = TempDir::new().unwrap();
    let queue = open(folder.path());
    // the first segment is made at the start, and full with this
    queue.put(record(0, 1, 60_000)).await.unwrap();
    let elsewhere = folder.path().with_extension("away");
    fs::rename(folder.path(), &elsewhere).unwrap();
    assert!(matches!(queue.put(record(1, 1, 60_000)).await, Err(PutError::Failed(_))));
    fs::rename(&elsewhere, folder.path()).unwrap();
    queue.put(record(1, 1, 60_000)).await.unwrap();
    assert_eq!(take_all(&queue, 7, true).await, [0, 1]);
}

#[test]
fn that_nothing_can_be_written_is_known_at_the_start() {
    let folder = TempDir::new().unwrap();
    let options = DiskOptions { most_bytes: SEGMENT - 1, ..options(folder.path()) };
    let queue = DiskQueue::open(options, Arc::new(Metrics::new())).unwrap();
    assert_eq!(queue.trouble().as_deref(), Some("the queue is full"));
}

#[tokio::test]
async fn collectors_wait_for_a_full_batch_but_not_longer_than_they_linger() {
    let folder = TempDir::new().unwrap();
    let queue = Arc::new(open(folder.path()));
    let linger = Duration::from_millis(300);
    let taking = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { queue.take(100, linger).await.unwrap() }
    });
    queue.put(record(0, 60, 10)).await.unwrap();
    let since = Instant::now();
    assert_eq!(ids(&taking.await.unwrap()).len(), 60);
    assert!(since.elapsed() >= linger / 2);
    queue.put(record(60, 99, 10)).await.unwrap();
    queue.put(record(159, 99, 10)).await.unwrap();
    let batch = queue.take(100, Duration::from_hours(1)).await.unwrap();
    assert_eq!(ids(&batch), (60..160).collect::<Vec<_>>());
}

#[test]
fn one_gateway_uses_a_folder_at_a_time() {
    let folder = TempDir::new().unwrap();
    let queue = open(folder.path());
    let error = DiskQueue::open(options(folder.path()), Arc::new(Metrics::new())).unwrap_err();
    assert!(error.to_string().contains("another gateway"), "{error}");
    drop(queue);
    let _ = open(folder.path());
}

#[tokio::test]
async fn a_message_that_looks_like_a_record_is_none() {
    let folder = TempDir::new().unwrap();
    let queue = open(folder.path());
    queue.put(record(0, 1, 10)).await.unwrap();
    // what an attacker could know: a record of another queue, byte by byte
    let other = TempDir::new().unwrap();
    let foreign = open(other.path());
    foreign.put(record(666, 1, 10)).await.unwrap();
    let bytes = fs::read(&segments(other.path())[0]).unwrap();
    let smuggled = bytes[usize::try_from(segment::BEGIN).unwrap()..][..200].to_vec();
    let content = [b"x".as_slice(), &smuggled].concat();
    queue.put(Record { bytes: content.into(), entries: 1 }).await.unwrap();
    queue.put(record(2, 1, 10)).await.unwrap();
    drop(queue);
    // the record that carries it is damaged, and so it is looked for the next one
    let file = &segments(folder.path())[0];
    let mut bytes = fs::read(file).unwrap();
    let at = memchr::memmem::find(&bytes, &smuggled).unwrap() - 1;
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
    assert_eq!(take_all(&open(folder.path()), 10, true).await, [0, 2]);
}

/// What a disk can do to a file.
#[derive(Clone, Debug)]
enum Harm {
    Flip(usize),
    Zero(usize, usize),
    Cut(usize),
    Garbage(usize, Vec<u8>),
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        any::<usize>().prop_map(Harm::Flip),
        (any::<usize>(), 1..5000_usize).prop_map(|(at, length)| Harm::Zero(at, length)),
        any::<usize>().prop_map(Harm::Cut),
        (any::<usize>(), proptest::collection::vec(any::<u8>(), 1..600))
            .prop_map(|(at, bytes)| Harm::Garbage(at, bytes)),
    ]
}

/// Harms the bytes from `begin` on, and returns which of them: from and to.
fn do_harm(bytes: &mut Vec<u8>, begin: usize, harm: &Harm) -> (usize, usize) {
    let place = |at: &usize, length: usize| begin + at % (length - begin);
    let length = bytes.len();
    match harm {
        Harm::Flip(at) => {
            let at = place(at, length);
            bytes[at] ^= 0x10;
            (at, at + 1)
        }
        Harm::Zero(at, zeros) => {
            let at = place(at, length);
            let end = length.min(at + zeros);
            bytes[at..end].fill(0);
            (at, end)
        }
        Harm::Cut(at) => {
            let at = place(at, length);
            bytes.truncate(at);
            (at, usize::MAX)
        }
        Harm::Garbage(at, garbage) => {
            let at = place(at, length);
            let end = length.min(at + garbage.len());
            bytes[at..end].copy_from_slice(&garbage[..end - at]);
            (at, end)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever happens to a segment, every record that it did not touch is read again, and nothing else.
    #[test]
    fn what_is_whole_is_replayed(harms in proptest::collection::vec(harm(), 1..4), sizes in proptest::collection::vec(1..3000_usize, 1..40)) {
        let folder = TempDir::new().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let begin = usize::try_from(segment::BEGIN).unwrap();
        // where each record lies
        let mut places = Vec::new();
        let mut at = begin;
        runtime.block_on(async {
            let queue = DiskQueue::open(
                DiskOptions { segment: 1 << 20, most_bytes: 8 << 20, ..options(folder.path()) },
                Arc::new(Metrics::new()),
            )
            .unwrap();
            for (id, size) in sizes.iter().enumerate() {
                let record = record(id as u64, 1, *size);
                let end = at + segment::HEAD + record.bytes.len();
                places.push((at, end));
                at = end;
                queue.put(record).await.unwrap();
            }
            let copy = as_killed(folder.path());
            drop(queue);
            let file = &segments(copy.path())[0];
            let mut bytes = fs::read(file).unwrap();
            bytes.truncate(at + 5000);
            let mut touched = BTreeSet::new();
            for harm in &harms {
                if bytes.len() <= begin {
                    break;
                }
                let (from, to) = do_harm(&mut bytes, begin, harm);
                for (id, (begin, end)) in places.iter().enumerate() {
                    if from < *end && to > *begin {
                        touched.insert(id as u64);
                    }
                }
            }
            fs::File::create(file).unwrap().write_all(&bytes).unwrap();
            let read = take_all(&open(copy.path()), 10, true).await;
            let ids: BTreeSet<u64> = read.iter().copied().collect();
            assert_eq!(ids.len(), read.len(), "none is read twice");
            for id in 0..sizes.len() as u64 {
                assert!(ids.contains(&id) || touched.contains(&id), "{id} was not touched and is not read");
            }
            assert!(read.is_sorted());
        });
    }
}

#[tokio::test]
async fn a_segment_without_its_head_is_put_aside_and_costs_no_other() {
    let folder = TempDir::new().unwrap();
    let queue = open(folder.path());
    for id in 0..200 {
        queue.put(record(id, 1, 1000)).await.unwrap();
    }
    drop(queue);
    let files = segments(folder.path());
    assert!(files.len() >= 3);
    let mut bytes = fs::read(&files[1]).unwrap();
    bytes[3] ^= 1;
    fs::write(&files[1], &bytes).unwrap();
    // there are two heads
    assert_eq!(take_all(&open(folder.path()), 1000, false).await.len(), 200);
    bytes[515] ^= 1;
    fs::write(&files[1], &bytes).unwrap();
    let queue = open(folder.path());
    let read = take_all(&queue, 1000, true).await;
    assert!(read.len() > 100 && read.len() < 200 && read.first() == Some(&0) && read.last() == Some(&199));
    assert!(files[1].with_extension("damaged").exists());
    assert_eq!(queue.depth().entries, 0, "what is lost does not count as waiting");
}

/// A thread that has ended acknowledges nothing, and it shows that it has ended.
#[tokio::test]
async fn a_committer_that_panics_is_seen() {
    let folder = TempDir::new().unwrap();
    let queue = open(folder.path());
    queue.put(record(0, 10, 100)).await.unwrap();
    assert!(!queue.has_ended());
    queue.shared.options.panics.store(true, Relaxed);
    assert_eq!(queue.put(record(10, 10, 100)).await, Err(PutError::Closed));
    let ended = async {
        while !queue.has_ended() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap();
    assert_eq!(queue.put(record(20, 10, 100)).await, Err(PutError::Closed));
    assert_eq!(take_all(&queue, 7, true).await, (0..10).collect::<Vec<_>>());
    drop(queue);
    let queue = open(folder.path());
    queue.close();
    assert!(!queue.has_ended(), "it ends because it was closed");
}

/// What the segment that follows says of the one before: its end is not torn, it was acknowledged.
#[tokio::test]
async fn damage_to_the_last_record_of_a_full_segment_is_no_torn_write() {
    let folder = TempDir::new().unwrap();
    let queue = open(folder.path());
    for id in 0..200 {
        queue.put(record(id, 1, 1000)).await.unwrap();
    }
    let whole = as_killed(folder.path());
    drop(queue);
    assert_eq!(take_all(&open(whole.path()), 1000, false).await.len(), 200);
    assert!(files(whole.path(), "damaged").is_empty());
    let first = &segments(folder.path())[0];
    let mut bytes = fs::read(first).unwrap();
    let last = bytes.iter().rposition(|byte| *byte == b'x').unwrap();
    bytes[last] ^= 1;
    fs::write(first, &bytes).unwrap();
    let queue = open(folder.path());
    let read = take_all(&queue, 1000, true).await;
    assert_eq!(read.len(), 199);
    let aside = files(folder.path(), "damaged");
    assert_eq!(aside, [first.with_extension("damaged")]);
    let kept = fs::read(&aside[0]).unwrap();
    assert!(kept.len() > last && bytes.starts_with(&kept), "all of it is kept, but for zeros at its end");
    // its number is not given again, also when no segment is left
    drop(queue);
    for file in segments(folder.path()) {
        fs::remove_file(file).unwrap();
    }
    open(folder.path()).put(record(200, 1, 1)).await.unwrap();
    assert!(segments(folder.path())[0] > *first);
    assert!(fs::read(&aside[0]).unwrap() == kept);
}

/// Damage at the end of a segment that is still written is told and put aside, though all of it counts as stored when the
/// segment is full, and is then removed.
#[tokio::test]
async fn damage_at_the_end_of_an_open_segment_is_put_aside() {
    let folder = TempDir::new().unwrap();
    let queue = open(folder.path());
    for id in 0..3 {
        queue.put(record(id, 1, 1000)).await.unwrap();
    }
    let first = segments(folder.path())[0].clone();
    let mut bytes = fs::read(&first).unwrap();
    let last = bytes.iter().rposition(|byte| *byte == b'x').unwrap();
    bytes[last] ^= 1;
    fs::write(&first, &bytes).unwrap();
    assert_eq!(take_all(&queue, 10, true).await, [0, 1]);
    assert_eq!(files(folder.path(), "damaged"), [first.with_extension("damaged")]);
    // what comes behind it is read
    queue.put(record(3, 1, 1000)).await.unwrap();
    assert_eq!(take_all(&queue, 10, true).await, [3]);
}

/// A gateway that has no descriptor left, or whose disk is read again only in a moment, loses nothing.
#[tokio::test]
async fn a_segment_that_cannot_be_opened_now_is_read_later() {
    let folder = TempDir::new().unwrap();
    let queue = open(folder.path());
    for id in 0..200 {
        queue.put(record(id, 1, 1000)).await.unwrap();
    }
    let hidden = segments(folder.path())[1].clone();
    let away = hidden.with_extension("away");
    fs::rename(&hidden, &away).unwrap();
    let mut read = Vec::new();
    while queue.unread().is_none() {
        let taking = tokio::time::timeout(Duration::from_millis(100), queue.take(1000, NO_LINGER));
        let Ok(Some(batch)) = taking.await else { continue };
        read.extend(ids(&batch));
        queue.stored(&batch);
    }
    assert!(read.len() < 100);
    fs::rename(&away, &hidden).unwrap();
    read.extend(take_all(&queue, 1000, true).await);
    assert_eq!(read, (0..200).collect::<Vec<_>>());
    assert_eq!((queue.unread(), queue.depth().entries), (None, 0));
    assert!(files(folder.path(), "damaged").is_empty());
}

#[tokio::test]
async fn what_waits_is_as_old_after_a_restart_as_before() {
    let folder = TempDir::new().unwrap();
    let queue = open(folder.path());
    let hour_ago = Record {
        bytes: entry::encode("ann", entry::now() - 3_600_000_000, std::iter::empty::<&Entry<'_>>()).into(),
        entries: 1,
    };
    queue.put(hour_ago).await.unwrap();
    drop(queue);
    let oldest = open(folder.path()).depth().oldest.unwrap();
    // as old as the machine at most, if that was started a moment ago
    assert!(
        oldest > Duration::from_mins(50) || Instant::now().checked_sub(oldest * 2).is_none(),
        "{oldest:?}"
    );
}

/// The room of segments that cannot be removed stays taken, and they are removed as soon as they can be.
#[tokio::test]
async fn a_segment_that_cannot_be_removed_is_removed_later() {
    let folder = TempDir::new().unwrap();
    let queue = open(folder.path());
    for id in 0..200 {
        queue.put(record(id, 1, 1000)).await.unwrap();
    }
    let all = queue.take(1000, NO_LINGER).await.unwrap();
    assert_eq!(ids(&all).len(), 200);
    let (count, bytes) = (segments(folder.path()).len(), queue.depth().bytes);
    assert!(count >= 4);
    // a folder in the place of the first file is none that could be removed
    let first = segments(folder.path())[0].clone();
    fs::remove_file(&first).unwrap();
    fs::create_dir(&first).unwrap();
    queue.stored(&all);
    assert_eq!((segments(folder.path()).len(), queue.depth().bytes), (count, bytes));
    fs::remove_dir(&first).unwrap();
    fs::write(&first, "").unwrap();
    queue.shared.remove_stored();
    assert_eq!((segments(folder.path()).len(), queue.depth().bytes), (1, Some(SEGMENT)));
}

/// A segment whose entries were all stored before it was full makes room for the next one, also where there is no other.
#[tokio::test]
async fn a_segment_that_is_stored_before_it_is_full_makes_room() {
    let folder = TempDir::new().unwrap();
    let options = DiskOptions { most_bytes: SEGMENT, ..options(folder.path()) };
    let queue = DiskQueue::open(options, Arc::new(Metrics::new())).unwrap();
    for id in 0..200 {
        queue.put(record(id, 1, 1000)).await.unwrap();
        assert_eq!(take_all(&queue, 10, true).await, [id]);
    }
    assert_eq!((segments(folder.path()).len(), queue.depth().entries), (1, 0));
}

/// A segment that is removed gives its room back at once, also where a collector waits for what comes behind it.
#[tokio::test]
async fn nobody_keeps_the_room_of_a_segment_that_is_removed() {
    let folder = TempDir::new().unwrap();
    let queue = Arc::new(open(folder.path()));
    queue.put(record(0, 1, 1000)).await.unwrap();
    assert_eq!(take_all(&queue, 10, true).await, [0]);
    let collector = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move {
            while let Some(batch) = queue.take(10, NO_LINGER).await {
                queue.stored(&batch);
            }
        }
    });
    // a folder in the place of the second segment lets nobody make it, as a full disk does
    let next = queue.shared.state().next_segment;
    fs::create_dir(segment::path(folder.path(), next)).unwrap();
    let mut id = 1;
    while queue.put(record(id, 1, 1000)).await.is_ok() {
        // all is stored before the segment is full
        while queue.depth().entries > 0 {
            sleep(Duration::from_millis(1)).await;
        }
        id += 1;
    }
    let held = || {
        fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
            .filter(|file| file.starts_with(folder.path()) && file.to_string_lossy().contains(".segment"))
            .count()
    };
    let end = Instant::now() + Duration::from_secs(10);
    while held() > 0 {
        assert!(Instant::now() < end, "a segment that was removed is still open");
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(queue.depth().bytes, Some(0));
    collector.abort();
}
