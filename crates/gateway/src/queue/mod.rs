//! The queue between those who send entries and the database.
//!
//! | queue | an entry is acknowledged when | what survives |
//! | --- | --- | --- |
//! | disk | it is synced, with whatever else came during the last sync | a killed gateway; a loss of power, as far as the disk's sync does |
//! | memory | it is taken | nothing: what waits is lost with the gateway |
//! | a broker: RabbitMQ, NATS | the broker has confirmed it | as [`broker`] says |

mod broker;
mod disk;
mod memory;
mod progress;

use std::{
    io,
    time::{Duration, Instant},
};

use bytes::Bytes;

pub(crate) use self::{
    broker::{BrokerQueue, Use},
    disk::{DiskOptions, DiskQueue},
    memory::MemoryQueue,
};
use crate::{
    depth::Depth,
    entry::{self, Entry},
};

/// The most bytes of a batch: a database takes a statement of this size.
const BATCH: usize = 4 << 20;

/// What is told where there is no room.
const FULL: &str = "the queue is full";

/// The entries of one request, as a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) bytes: Bytes,
    /// How many entries it holds.
    pub(crate) entries: u32,
}

/// Why a queue did not take a record. It was not acknowledged, and can be sent again with the same ids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PutError {
    /// Nothing of it is in the queue.
    #[error("the queue is full")]
    Full,
    /// Nothing of it is in the queue: the gateway is shutting down.
    #[error("the gateway is shutting down")]
    Closed,
    /// It could not be written or synced.
    #[error("the queue cannot keep entries: {0}")]
    Failed(String),
}

#[derive(Debug)]
pub(crate) enum Queue {
    Disk(DiskQueue),
    Memory(MemoryQueue),
    Broker(BrokerQueue),
}

impl Queue {
    /// The most bytes of a record; more entries of a request become several.
    pub(crate) fn record_limit(&self) -> usize {
        match self {
            Self::Disk(_) | Self::Memory(_) => usize::MAX,
            Self::Broker(_) => broker::RECORD,
        }
    }

    /// Puts a record into the queue, and returns when its entries are acknowledged.
    pub(crate) async fn put(&self, record: Record) -> Result<(), PutError> {
        match self {
            Self::Disk(queue) => queue.put(record).await,
            Self::Memory(queue) => queue.put(record),
            Self::Broker(queue) => queue.put(record).await,
        }
    }

    /// Takes the next entries, at most `most`: as soon as there are so many, or after `linger`, or as soon as the
    /// queue is closed. `None` if it is closed and empty.
    pub(crate) async fn take(&self, most: usize, linger: Duration) -> Option<Batch> {
        match self {
            Self::Disk(queue) => queue.take(most, linger).await,
            Self::Memory(queue) => queue.take(most, linger).await,
            Self::Broker(queue) => queue.take(most, linger).await,
        }
    }

    /// Notes that these entries are stored: they need not be kept any longer.
    pub(crate) fn stored(&self, batch: &Batch) {
        match self {
            Self::Disk(queue) => queue.stored(batch),
            Self::Memory(queue) => queue.stored(batch),
            Self::Broker(queue) => queue.stored(batch),
        }
    }

    /// Takes no more records, and lets collectors take what is there without waiting for more.
    pub(crate) fn close(&self) {
        match self {
            Self::Disk(queue) => queue.close(),
            Self::Memory(queue) => queue.close(),
            Self::Broker(queue) => queue.close(),
        }
    }

    /// Ends what the queue does, after it was closed.
    pub(crate) async fn finish(&self) {
        match self {
            Self::Disk(queue) => queue.finish(),
            Self::Memory(_) => {}
            Self::Broker(queue) => queue.finish().await,
        }
    }

    pub(crate) fn depth(&self) -> Depth {
        match self {
            Self::Disk(queue) => queue.depth(),
            Self::Memory(queue) => queue.depth(),
            Self::Broker(queue) => queue.depth(),
        }
    }

    /// Why the queue takes nothing at present, if it does not.
    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            Self::Disk(queue) => queue.trouble(),
            Self::Memory(queue) => queue.trouble(),
            Self::Broker(queue) => queue.trouble(),
        }
    }

    /// Whether it takes nothing more, though it was not closed: a defect.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Disk(queue) => queue.has_ended(),
            Self::Memory(_) => false,
            Self::Broker(queue) => queue.has_ended(),
        }
    }

    /// Why what waits cannot be read back at present, if it cannot.
    pub(crate) fn unread(&self) -> Option<String> {
        match self {
            Self::Disk(queue) => queue.unread(),
            Self::Memory(_) => None,
            Self::Broker(queue) => queue.unread(),
        }
    }
}

/// Entries that are to be stored together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    parts: Vec<Part>,
    /// The numbers of its entries in the queue: from `begin` to before `end`. Between them may lie some that a damaged
    /// disk has lost.
    begin: u64,
    end: u64,
    /// How long it took to read it back.
    read_in: Duration,
    /// Of a queue in a broker: on which connection it came.
    window: u64,
}

/// Some entries of a record.
#[derive(Clone, Debug)]
struct Part {
    record: Bytes,
    from: usize,
    to: usize,
    /// Whether the record's last entry is among them.
    is_last: bool,
}

/// An entry with what the gateway knows of it.
#[derive(Clone, Debug)]
pub(crate) struct Queued<'a> {
    pub(crate) user: &'a str,
    /// Microseconds since 1970.
    pub(crate) received: i64,
    pub(crate) entry: Entry<'a>,
}

impl Batch {
    /// How long it took to read it back.
    pub(crate) fn read_in(&self) -> Duration {
        self.read_in
    }

    /// Its entries, in the order in which they came.
    pub(crate) fn entries(&self) -> Vec<Queued<'_>> {
        let mut entries = Vec::with_capacity(self.parts.iter().map(|part| part.to - part.from).sum());
        for part in &self.parts {
            let Some(record) = entry::decode(&part.record) else {
                // its checksum is good, and a gateway that writes others gives its segments another name
                tracing::error!("a record of the queue is invalid and is not stored: a defect of acidtest");
                continue;
            };
            let (user, received) = (record.user, record.received);
            let some = record.entries.into_iter().take(part.to).skip(part.from);
            entries.extend(some.map(|entry| Queued { user, received, entry }));
        }
        entries
    }
}

/// Records in the order in which they came, of which entries are taken one after the other: a batch may end within a
/// record, and the next one goes on there.
#[derive(Debug, Default)]
struct Cut {
    /// The record that was begun, and how many of its entries were taken.
    begun: Option<(Record, usize)>,
}

impl Cut {
    /// Fills a batch with at most `most` entries, from the record that was begun and those that `next` gives with the
    /// number of their first entry. Entries before `begin` are left out: they are stored already. Where `next` has no
    /// more, the batch reaches to `end`: numbers without entries were lost with a disk, and count as done. Where it
    /// fails, the batch ends there.
    fn fill(
        &mut self,
        most: usize,
        begin: u64,
        end: u64,
        mut next: impl FnMut() -> io::Result<Option<(u64, Record)>>,
    ) -> (Batch, io::Result<()>) {
        let since = Instant::now();
        let mut batch = Batch { parts: Vec::new(), begin, end: begin, read_in: Duration::ZERO, window: 0 };
        let (mut left, mut bytes) = (most, 0);
        let mut read = Ok(());
        while left > 0 && bytes < BATCH {
            let (record, from) = if let Some(rest) = self.begun.take() {
                rest
            } else {
                match next() {
                    Ok(Some((first, record))) => {
                        let known = batch.end.saturating_sub(first);
                        batch.end = batch.end.max(first);
                        (record, usize::try_from(known).unwrap_or(usize::MAX))
                    }
                    Ok(None) => {
                        batch.end = batch.end.max(end);
                        break;
                    }
                    Err(error) => {
                        read = Err(error);
                        break;
                    }
                }
            };
            let all = usize::try_from(record.entries).unwrap_or(usize::MAX);
            let from = from.min(all);
            let to = all.min(from + left);
            left -= to - from;
            batch.end += (to - from) as u64;
            bytes += record.bytes.len();
            batch.parts.push(Part { record: record.bytes.clone(), from, to, is_last: to == all });
            if to < all {
                self.begun = Some((record, to));
            }
        }
        batch.read_in = since.elapsed();
        (batch, read)
    }
}
