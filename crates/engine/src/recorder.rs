//! Recording: each thread has a recorder, and the recorders are merged once a second.

use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    ArrivalCounts, Histogram, Outcome,
    batch::{Batch, EndTimes, RecordedBatch, histogram},
    measurement::{Latency, OperationStats, Second, SecondCounts, SpanStats, add},
    message::{Report, ReportSender},
};

pub(crate) const SECOND: u64 = 1_000_000_000;

/// How many different fault messages are counted one by one; any others are counted together.
const FAULTS: usize = 20;

/// Bytes of a fault's message that are kept: a server may send more than anybody reads.
const MESSAGE: usize = 1000;

/// The attempts of an operation before its last one, and the nanoseconds that they took, with the waits after them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RetryCost {
    pub(crate) conflicts: u32,
    pub(crate) refusals: u32,
    pub(crate) retries: u32,
    pub(crate) conflict_time: u64,
    pub(crate) refusal_time: u64,
    /// Nanoseconds of the last attempt in which the operation waited for a lock.
    pub(crate) lock_time: u64,
}

/// When one operation was due, started and ended, in nanoseconds of the trial's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// When the schedule of an open loop meant it to start; `None` in a closed loop, and for a client that is not
    /// on the schedule.
    pub(crate) due: Option<u64>,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// One thread's recorder. Nothing in it is shared with other threads until a second is over.
#[derive(Debug)]
pub(crate) struct Recorder {
    shard: usize,
    totals: Arc<Totals>,
    window: (u64, u64),
    second: u64,
    second_end: u64,
    batch: Batch,
    arrived: ArrivalCounts,
    ends: EndTimes,
    /// How many operations were acknowledged.
    acknowledged: u64,
}

impl Recorder {
    pub(crate) fn new(shard: usize, totals: Arc<Totals>) -> Self {
        let batch = totals.batch();
        Self {
            shard,
            totals,
            window: (0, 0),
            second: 0,
            second_end: u64::MAX,
            batch,
            arrived: ArrivalCounts::default(),
            ends: EndTimes::default(),
            acknowledged: 0,
        }
    }

    /// Begins the measured part, from `start` to `end` in nanoseconds of the trial's clock.
    pub(crate) fn begin(&mut self, start: u64, end: u64) {
        self.window = (start, end);
        self.second_end = start + SECOND;
    }

    pub(crate) fn started(&mut self, late: bool) {
        self.arrived.offered += 1;
        self.arrived.started += 1;
        self.arrived.late += u64::from(late);
    }

    pub(crate) fn dropped(&mut self, count: u64) {
        self.arrived.offered += count;
        self.arrived.dropped += count;
    }

    /// Counts an operation of a client on the schedule, of this kind, that ended at `end`.
    pub(crate) fn completed(&mut self, kind: usize, end: u64) {
        self.arrived.completed += 1;
        self.batch.scheduled[kind] += 1;
        self.ends.scheduled = self.ends.scheduled.max(end);
    }

    /// Notes that an operation that changed something was acknowledged at `end`.
    pub(crate) fn changed(&mut self, end: u64) {
        let last = &self.totals.acknowledged[self.shard].last_change;
        // only this thread writes it
        last.store(last.load(Ordering::Relaxed).max(end), Ordering::Relaxed);
    }

    pub(crate) fn record(&mut self, kind: usize, outcome: Outcome, times: Times, effort: RetryCost) {
        if times.end >= self.second_end {
            self.roll(times.end);
        }
        if outcome == Outcome::Ok {
            self.ends.ok = self.ends.ok.max(times.end);
            self.acknowledged += 1;
            let Acknowledged { last, count, .. } = &self.totals.acknowledged[self.shard];
            last.store(self.ends.ok, Ordering::Relaxed);
            count.store(self.acknowledged, Ordering::Relaxed);
        }
        self.batch.ok_in_time[kind] += u64::from(outcome == Outcome::Ok && times.end <= self.window.1);
        let efforts = &mut self.batch.efforts[kind];
        efforts.conflicts += u64::from(effort.conflicts);
        efforts.refusals += u64::from(effort.refusals);
        efforts.retries += u64::from(effort.retries);
        if outcome == Outcome::Ok {
            // of operations with another outcome, all the time was spent in vain
            efforts.conflict_time += effort.conflict_time;
            efforts.refusal_time += effort.refusal_time;
            efforts.lock_time += effort.lock_time;
        }
        let slot = &mut self.batch.latency[kind * Outcome::ALL.len() + outcome.index()];
        let latency = slot.get_or_insert_with(|| Latency { service: histogram(), response: None });
        // a histogram that resizes itself accepts every value below 2^63 ns
        let _ = latency.service.record(times.end - times.start);
        if let Some(due) = times.due {
            let _ = latency.response.get_or_insert_with(histogram).record(times.end.saturating_sub(due));
        }
    }

    /// Records a time that belongs to no single operation; ignored where the load names no such span.
    pub(crate) fn span(&mut self, span: usize, nanoseconds: u64) {
        if let Some(times) = self.batch.spans.get_mut(span) {
            // a histogram that resizes itself accepts every value below 2^63 ns
            let _ = times.record(nanoseconds);
        }
    }

    /// Reports the second that is over and goes on with the one that `now` is in.
    fn roll(&mut self, now: u64) {
        let second = now.saturating_sub(self.window.0) / SECOND;
        self.totals.take(self.shard, self.second, second, &self.batch);
        self.batch.clear();
        self.second = second;
        self.second_end = self.window.0 + (second + 1) * SECOND;
    }

    /// Reports everything that has not been reported yet.
    pub(crate) fn finish(&mut self) {
        self.totals.take(self.shard, self.second, u64::MAX, &self.batch);
        self.batch.clear();
        let arrived = mem::take(&mut self.arrived);
        match &self.totals.told {
            None => self.totals.arrive(arrived, self.ends),
            // nobody to tell: the process that judges the trial has ended, and this one ends too
            Some(told) => {
                let ends = self.ends.since(self.window.0);
                let _ = told.send(Report::ThreadEnded { arrived, ends });
            }
        }
    }
}

/// A second on which some thread has not reported yet.
#[derive(Debug)]
struct OpenSecond {
    counts: Vec<SecondCounts>,
    service: Histogram,
}

#[derive(Debug)]
struct Inner {
    operations: Vec<OperationStats>,
    spans: Vec<SpanStats>,
    /// The second that each thread is in.
    progress: Vec<u64>,
    open: BTreeMap<u64, OpenSecond>,
    series: Vec<Second>,
    arrived: ArrivalCounts,
    reconnects: u64,
    faults: BTreeMap<String, u64>,
    doubts: BTreeMap<String, u64>,
    ends: EndTimes,
}

/// What a thread's clients were acknowledged. On a cache line of its own, because only that thread writes it.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Acknowledged {
    /// When the last operation ended that was acknowledged, in nanoseconds of the trial's clock; 0 if none was.
    last: AtomicU64,
    /// The same of operations that changed something.
    last_change: AtomicU64,
    /// How many were.
    count: AtomicU64,
}

/// What has been recorded so far that faults are told by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tallied {
    /// When the last operation ended that was acknowledged, in nanoseconds of the trial's clock; 0 if none was.
    pub(crate) last: u64,
    /// The same of operations that changed something.
    pub(crate) last_change: u64,
    pub(crate) acknowledged: u64,
    pub(crate) interrupted: u64,
}

/// The reports of all threads, added up. Locked once a second by each thread, and on a fault.
#[derive(Debug)]
pub(crate) struct Totals {
    inner: Mutex<Inner>,
    completed: AtomicU64,
    /// By thread, or by process where there are several.
    acknowledged: Vec<Acknowledged>,
    /// Operations that ended with their connection.
    interrupted: AtomicU64,
    /// Who adds up the reports, where other processes drive clients of the trial too.
    told: ReportSender,
}

impl Totals {
    pub(crate) fn new(
        operations: &'static [&'static str],
        spans: &'static [&'static str],
        threads: usize,
        told: ReportSender,
    ) -> Self {
        let operations =
            operations.iter().map(|&name| OperationStats { name, ..OperationStats::default() }).collect();
        let spans = spans.iter().map(|&name| SpanStats { name, times: histogram() }).collect();
        Self {
            inner: Mutex::new(Inner {
                operations,
                spans,
                progress: vec![0; threads],
                open: BTreeMap::new(),
                series: Vec::new(),
                arrived: ArrivalCounts::default(),
                reconnects: 0,
                faults: BTreeMap::new(),
                doubts: BTreeMap::new(),
                ends: EndTimes::default(),
            }),
            completed: AtomicU64::new(0),
            acknowledged: (0..threads).map(|_| Acknowledged::default()).collect(),
            interrupted: AtomicU64::new(0),
            told,
        }
    }

    /// Notes what another process, which has this index, has recorded so far, of which so many interrupted
    /// operations are new.
    pub(crate) fn tallied_by(&self, part: usize, so_far: Tallied, interrupted: u64) {
        self.interrupted.fetch_add(interrupted, Ordering::Relaxed);
        if let Some(Acknowledged { last, last_change, count }) = self.acknowledged.get(part) {
            last.fetch_max(so_far.last, Ordering::Relaxed);
            last_change.fetch_max(so_far.last_change, Ordering::Relaxed);
            count.fetch_max(so_far.acknowledged, Ordering::Relaxed);
        }
    }

    /// Adds up what a thread of another process recorded.
    pub(crate) fn take_recorded(&self, recorded: RecordedBatch) {
        let (kinds, spans, threads) = {
            let inner = self.lock();
            (inner.operations.len(), inner.spans.len(), inner.progress.len())
        };
        let (shard, second, next) = (recorded.shard, recorded.second, recorded.next);
        if let Some(batch) = recorded.batch(kinds, spans).filter(|_| shard < threads) {
            self.take(shard, second, next, &batch);
        }
    }

    /// Counts operations that ended with their connection.
    pub(crate) fn interrupted(&self, operations: u64) {
        self.interrupted.fetch_add(operations, Ordering::Relaxed);
    }

    /// What has been recorded so far.
    pub(crate) fn tallied(&self) -> Tallied {
        let mut all = Tallied { interrupted: self.interrupted.load(Ordering::Relaxed), ..Tallied::default() };
        for Acknowledged { last, last_change, count } in &self.acknowledged {
            all.last = all.last.max(last.load(Ordering::Relaxed));
            all.last_change = all.last_change.max(last_change.load(Ordering::Relaxed));
            all.acknowledged += count.load(Ordering::Relaxed);
        }
        all
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty batch with room for every operation and span.
    fn batch(&self) -> Batch {
        let inner = self.lock();
        Batch::new(inner.operations.len(), inner.spans.len())
    }

    fn take(&self, shard: usize, second: u64, next: u64, batch: &Batch) {
        if let Some(told) = &self.told {
            // nobody to tell: the process that judges the trial has ended, and this one ends too
            let _ = told.send(Report::Recorded(RecordedBatch::of(shard, second, next, batch)));
            return;
        }
        let mut inner = self.lock();
        let kinds = inner.operations.len();
        let mut counts = vec![SecondCounts::default(); kinds];
        let mut service: Option<Histogram> = None;
        for (kind, operation) in inner.operations.iter_mut().enumerate() {
            operation.ok_in_time += batch.ok_in_time[kind];
            operation.is_scheduled |= batch.scheduled[kind] > 0;
            operation.conflicts += batch.efforts[kind].conflicts;
            operation.refusals += batch.efforts[kind].refusals;
            operation.retries += batch.efforts[kind].retries;
            operation.conflict_time += batch.efforts[kind].conflict_time;
            operation.refusal_time += batch.efforts[kind].refusal_time;
            operation.lock_time += batch.efforts[kind].lock_time;
            for outcome in Outcome::ALL {
                let Some(latency) = &batch.latency[kind * Outcome::ALL.len() + outcome.index()] else {
                    continue;
                };
                if latency.service.is_empty() {
                    continue;
                }
                counts[kind][outcome.index()] = latency.service.len();
                operation
                    .latency
                    .entry(outcome)
                    .and_modify(|total| total.merge(latency))
                    .or_insert_with(|| latency.clone());
                if outcome == Outcome::Ok {
                    match &mut service {
                        Some(all) => add(all, &latency.service),
                        None => service = Some(latency.service.clone()),
                    }
                }
            }
        }
        for (span, times) in inner.spans.iter_mut().zip(&batch.spans) {
            add(&mut span.times, times);
        }
        let ended: u64 = counts.iter().flatten().sum();
        self.completed.fetch_add(batch.scheduled.iter().sum(), Ordering::Relaxed);
        if ended > 0 {
            let open = inner.open.entry(second).or_insert_with(|| OpenSecond {
                counts: vec![SecondCounts::default(); kinds],
                service: histogram(),
            });
            for (total, count) in open.counts.iter_mut().flatten().zip(counts.iter().flatten()) {
                *total += count;
            }
            if let Some(service) = &service {
                add(&mut open.service, service);
            }
        }
        inner.progress[shard] = next;
        inner.close_seconds();
    }

    pub(crate) fn arrive(&self, arrived: ArrivalCounts, ends: EndTimes) {
        let mut inner = self.lock();
        inner.ends.scheduled = inner.ends.scheduled.max(ends.scheduled);
        inner.ends.ok = inner.ends.ok.max(ends.ok);
        let total = &mut inner.arrived;
        total.offered += arrived.offered;
        total.started += arrived.started;
        total.completed += arrived.completed;
        total.late += arrived.late;
        total.dropped += arrived.dropped;
    }

    pub(crate) fn reconnected(&self) {
        self.lock().reconnects += 1;
    }

    pub(crate) fn fault(&self, message: &str) {
        tally(&mut self.lock().faults, message, 1);
    }

    /// Notes that a client's connection was not what the trial took it for.
    pub(crate) fn doubt(&self, message: &str) {
        tally(&mut self.lock().doubts, message, 1);
    }

    /// Adds the messages that another process has counted.
    pub(crate) fn add_messages(&self, faults: &BTreeMap<String, u64>, doubts: &BTreeMap<String, u64>) {
        let mut inner = self.lock();
        let Inner { faults: counted_faults, doubts: counted_doubts, .. } = &mut *inner;
        for (counted, messages) in [(counted_faults, faults), (counted_doubts, doubts)] {
            for (message, times) in messages {
                tally(counted, message, *times);
            }
        }
    }

    /// The messages that this process has counted so far.
    pub(crate) fn counted_faults(&self) -> BTreeMap<String, u64> {
        self.lock().faults.clone()
    }

    /// The doubts that this process has counted so far.
    pub(crate) fn counted_doubts(&self) -> BTreeMap<String, u64> {
        self.lock().doubts.clone()
    }

    /// How many operations of clients on the schedule have ended, the last second that is complete, and reconnects.
    pub(crate) fn progress(&self) -> (u64, Option<Second>, u64) {
        let inner = self.lock();
        (self.completed.load(Ordering::Relaxed), inner.series.last().cloned(), inner.reconnects)
    }

    /// The complete seconds from this number on.
    pub(crate) fn seconds_from(&self, first: usize) -> Vec<Second> {
        self.lock().series.get(first..).unwrap_or_default().to_vec()
    }

    pub(crate) fn collect(&self) -> RecorderTotals {
        let mut inner = self.lock();
        inner.progress.fill(u64::MAX);
        inner.close_seconds();
        RecorderTotals {
            operations: mem::take(&mut inner.operations),
            spans: mem::take(&mut inner.spans),
            series: mem::take(&mut inner.series),
            arrived: inner.arrived,
            reconnects: inner.reconnects,
            faults: mem::take(&mut inner.faults),
            doubts: mem::take(&mut inner.doubts),
            ends: inner.ends,
        }
    }
}

pub(crate) struct RecorderTotals {
    pub(crate) operations: Vec<OperationStats>,
    pub(crate) spans: Vec<SpanStats>,
    pub(crate) series: Vec<Second>,
    pub(crate) arrived: ArrivalCounts,
    pub(crate) reconnects: u64,
    pub(crate) faults: BTreeMap<String, u64>,
    pub(crate) doubts: BTreeMap<String, u64>,
    pub(crate) ends: EndTimes,
}

/// Counts a message. Beyond so many different ones the rest are counted in one line.
fn tally(counted: &mut BTreeMap<String, u64>, message: &str, times: u64) {
    let message = &message[..message.floor_char_boundary(MESSAGE)];
    let known = counted.contains_key(message) || counted.len() < FAULTS;
    let line = if known { message } else { "other faults" };
    *counted.entry(line.to_owned()).or_default() += times;
}

impl Inner {
    /// Closes the seconds that every thread has left, so that only a few histograms are open at a time. A second in
    /// which nothing ended becomes a row of zeros.
    fn close_seconds(&mut self) {
        let reached = self.progress.iter().copied().min().unwrap_or(u64::MAX);
        while let Some(entry) = self.open.first_entry() {
            if *entry.key() >= reached {
                break;
            }
            let (second, open) = entry.remove_entry();
            while (self.series.len() as u64) < second {
                self.series.push(Second::empty(self.series.len() as u64, self.operations.len()));
            }
            self.series.push(Second {
                second,
                counts: open.counts,
                p50: open.service.value_at_quantile(0.5),
                p99: open.service.value_at_quantile(0.99),
                max: open.service.max(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(start: u64, end: u64) -> Times {
        Times { due: Some(start), start, end }
    }

    #[test]
    fn seconds_wait_for_the_slowest_thread_and_gaps_are_zeros() {
        let totals = Arc::new(Totals::new(&["op"], &[], 2, None));
        let mut threads = [0, 1].map(|shard| Recorder::new(shard, Arc::clone(&totals)));
        for thread in &mut threads {
            thread.begin(0, 10 * SECOND);
        }
        let [quick, slow] = &mut threads;
        quick.record(0, Outcome::Ok, at(0, 10), RetryCost::default());
        quick.record(0, Outcome::Ok, at(0, SECOND + 10), RetryCost::default());
        assert!(totals.progress().1.is_none(), "the slow thread is still in second 0");
        slow.record(0, Outcome::Refused, at(0, 3 * SECOND + 1), RetryCost::default());
        quick.finish();
        slow.finish();
        let collected = totals.collect();
        let ok: Vec<u64> = collected.series.iter().map(|second| second.counts[0][0]).collect();
        let refused: Vec<u64> = collected.series.iter().map(|second| second.counts[0][1]).collect();
        assert_eq!((ok, refused), (vec![1, 1, 0, 0], vec![0, 0, 0, 1]));
    }

    #[test]
    fn what_ends_after_the_window_has_its_time_but_no_throughput() {
        let totals = Arc::new(Totals::new(&["op"], &[], 1, None));
        let mut recorder = Recorder::new(0, Arc::clone(&totals));
        recorder.begin(0, SECOND);
        recorder.record(0, Outcome::Ok, at(0, SECOND), RetryCost::default());
        recorder.record(0, Outcome::Ok, at(SECOND / 2, 5 * SECOND), RetryCost::default());
        recorder.finish();
        let operation = totals.collect().operations.remove(0);
        assert_eq!((operation.ok_in_time, operation.count(Outcome::Ok)), (1, 2));
        assert!(operation.ok().unwrap().service.max() >= 45 * SECOND / 10, "nothing is clipped");
    }

    #[test]
    fn varied_faults_do_not_grow_memory() {
        let totals = Totals::new(&["op"], &[], 1, None);
        for number in 0..1000 {
            totals.fault(&format!("fault {number}"));
        }
        let faults = totals.collect().faults;
        assert_eq!(faults.len(), FAULTS + 1);
        assert_eq!(faults.values().sum::<u64>(), 1000);
    }

    #[test]
    fn a_fault_s_message_is_kept_no_longer_than_anybody_reads() {
        let totals = Totals::new(&["op"], &[], 1, None);
        let long = "é".repeat(1 << 20);
        totals.fault(&long[..MESSAGE]);
        totals.fault(&format!("x{long}"));
        let kept: Vec<(usize, u64)> =
            totals.collect().faults.iter().map(|(message, count)| (message.len(), *count)).collect();
        assert_eq!(kept, [(MESSAGE - 1, 1), (MESSAGE, 1)]);
    }

    proptest! {
        // few cases, because each one merges histograms once a second of its clock
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Whichever threads and seconds the operations are recorded in, merging loses none and moves no
        /// percentile.
        #[test]
        fn merged_equals_recorded_in_one(
            services in prop::collection::vec((0usize..3, 1u64..10_000_000_000, 0u64..5), 1..100)
        ) {
            let totals = Arc::new(Totals::new(&["op"], &[], 3, None));
            let mut threads: Vec<Recorder> =
                (0..3).map(|shard| Recorder::new(shard, Arc::clone(&totals))).collect();
            let mut one = histogram();
            let mut clocks = [0_u64; 3];
            for thread in &mut threads {
                thread.begin(0, u64::MAX);
            }
            for &(thread, service, gap) in &services {
                let start = clocks[thread] + gap * SECOND / 3;
                clocks[thread] = start + service;
                threads[thread].record(0, Outcome::Ok, at(start, start + service), RetryCost::default());
                one.record(service).unwrap();
            }
            for thread in &mut threads {
                thread.finish();
            }
            let collected = totals.collect();
            let merged = &collected.operations[0].ok().unwrap().service;
            prop_assert_eq!(merged.len(), services.len() as u64);
            for quantile in [0.0, 0.5, 0.95, 0.99, 0.999, 1.0] {
                prop_assert_eq!(merged.value_at_quantile(quantile), one.value_at_quantile(quantile));
            }
            let in_series: u64 = collected.series.iter().map(|second| second.counts[0][0]).sum();
            prop_assert_eq!(in_series, services.len() as u64);
        }
    }
}
