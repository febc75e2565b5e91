//! What one thread records in a second, also as it is told to another process.

use serde::{Deserialize, Serialize};

use crate::{Histogram, Outcome, measurement::Latency};

/// Nanoseconds (16 ms) that a histogram has room for at first; it grows when something takes longer.
const ROOM: u64 = 1 << 24;

/// An empty histogram, which grows as it needs to.
#[must_use]
pub fn histogram() -> Histogram {
    let mut histogram = Histogram::new_with_bounds(1, ROOM, 3)
        .unwrap_or_else(|_| unreachable!("1 to 2^24 with 3 digits is within the format's bounds"));
    histogram.auto(true);
    histogram
}

/// Everything that one thread recorded since it last reported.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) latency: Vec<Option<Latency>>,
    pub(crate) efforts: Vec<Effort64>,
    pub(crate) ok_in_time: Vec<u64>,
    pub(crate) spans: Vec<Histogram>,
    /// Operations of clients on the schedule, by kind.
    pub(crate) scheduled: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Effort64 {
    pub(crate) conflicts: u64,
    pub(crate) refusals: u64,
    pub(crate) retries: u64,
    pub(crate) conflict_time: u64,
    pub(crate) refusal_time: u64,
    pub(crate) lock_time: u64,
}

impl Batch {
    pub(crate) fn new(kinds: usize, spans: usize) -> Self {
        Self {
            latency: (0..kinds * Outcome::ALL.len()).map(|_| None).collect(),
            efforts: vec![Effort64::default(); kinds],
            ok_in_time: vec![0; kinds],
            spans: (0..spans).map(|_| histogram()).collect(),
            scheduled: vec![0; kinds],
        }
    }

    pub(crate) fn clear(&mut self) {
        for latency in self.latency.iter_mut().flatten() {
            latency.service.reset();
            if let Some(response) = &mut latency.response {
                response.reset();
            }
        }
        self.efforts.fill(Effort64::default());
        self.ok_in_time.fill(0);
        self.spans.iter_mut().for_each(Histogram::reset);
        self.scheduled.fill(0);
    }
}

/// What one thread of a part recorded in one second, as it is told to the process that judges the trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedBatch {
    /// The thread's index among those of all parts.
    pub(crate) shard: usize,
    pub(crate) second: u64,
    /// The second that the thread is in now.
    pub(crate) next: u64,
    latency: Vec<Option<WrittenLatency>>,
    efforts: Vec<Effort64>,
    ok_in_time: Vec<u64>,
    spans: Vec<WrittenHistogram>,
    scheduled: Vec<u64>,
}

/// A histogram's values, in nanoseconds, and how often each was recorded. A value stands for all that the histogram
/// does not tell apart, so that what is read is exactly what was written.
type WrittenHistogram = Vec<(u64, u64)>;

/// Service times, and response times where a schedule tells them apart.
type WrittenLatency = (WrittenHistogram, Option<WrittenHistogram>);

fn written(histogram: &Histogram) -> WrittenHistogram {
    histogram.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
}

fn read(written: &[(u64, u64)]) -> Histogram {
    let mut histogram = histogram();
    for &(value, count) in written {
        // a histogram that resizes itself accepts every value below 2^63 ns
        let _ = histogram.record_n(value, count);
    }
    histogram
}

impl RecordedBatch {
    pub(crate) fn of(shard: usize, second: u64, next: u64, batch: &Batch) -> Self {
        let latency = batch.latency.iter().map(|latency| {
            let Latency { service, response } =
                latency.as_ref().filter(|latency| !latency.service.is_empty())?;
            Some((written(service), response.as_ref().map(written)))
        });
        Self {
            shard,
            second,
            next,
            latency: latency.collect(),
            efforts: batch.efforts.clone(),
            ok_in_time: batch.ok_in_time.clone(),
            spans: batch.spans.iter().map(written).collect(),
            scheduled: batch.scheduled.clone(),
        }
    }

    /// The batch; none if it is not of this many kinds and spans.
    pub(crate) fn batch(self, kinds: usize, spans: usize) -> Option<Batch> {
        let fits = self.latency.len() == kinds * Outcome::ALL.len()
            && [self.efforts.len(), self.ok_in_time.len(), self.scheduled.len()] == [kinds; 3]
            && self.spans.len() == spans;
        let latency = |written: Option<WrittenLatency>| {
            let (service, response) = written?;
            Some(Latency { service: read(&service), response: response.as_deref().map(read) })
        };
        fits.then(|| Batch {
            latency: self.latency.into_iter().map(latency).collect(),
            efforts: self.efforts,
            ok_in_time: self.ok_in_time,
            spans: self.spans.iter().map(|times| read(times)).collect(),
            scheduled: self.scheduled,
        })
    }
}

/// When the last operations ended, in nanoseconds of the trial's clock; 0 where there was none.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct EndTimes {
    /// The last operation of a client on the schedule, whatever its outcome.
    pub(crate) scheduled: u64,
    /// The last operation that was acknowledged, of any client.
    pub(crate) ok: u64,
}

impl EndTimes {
    /// The same, counted from `start`.
    pub(crate) fn since(self, start: u64) -> Self {
        Self { scheduled: self.scheduled.saturating_sub(start), ok: self.ok.saturating_sub(start) }
    }

    /// The same, which is counted from `start`, by the clock that `start` is of.
    pub(crate) fn after(self, start: u64) -> Self {
        let after = |end: u64| if end > 0 { start + end } else { 0 };
        Self { scheduled: after(self.scheduled), ok: after(self.ok) }
    }
}
