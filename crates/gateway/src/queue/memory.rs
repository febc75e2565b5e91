//! A queue in this process's memory, as the published study had it. What waits in it is lost with the process.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Mutex as TaskMutex, Notify},
    time::{Instant, timeout_at},
};

use super::{Batch, Cut, FULL, PutError, Record, progress::Progress};
use crate::depth::Depth;

/// Bytes that a record takes beside its own.
const BESIDE: u64 = 128;

#[derive(Debug)]
pub(crate) struct MemoryQueue {
    most_bytes: u64,
    state: Mutex<State>,
    came: Notify,
    /// Held by the collector whose turn it is.
    turn: TaskMutex<Cut>,
}

#[derive(Debug)]
struct State {
    /// Records with the numbers of their first entries.
    records: VecDeque<(u64, Record)>,
    /// Bytes of records that are not yet stored.
    bytes: u64,
    /// The numbers of the next entry that comes and of the next that is taken.
    end: u64,
    taken: u64,
    closed: bool,
    /// Whether nothing more comes until something is stored, so that a batch waits for nothing.
    hurries: bool,
    /// Whether the last record was refused for want of room.
    is_full: bool,
    progress: Progress,
}

impl MemoryQueue {
    pub(crate) fn new(most_bytes: u64) -> Self {
        let state = State {
            records: VecDeque::new(),
            bytes: 0,
            end: 0,
            taken: 0,
            closed: false,
            hurries: false,
            is_full: false,
            progress: Progress::new(0, 0, Duration::ZERO),
        };
        Self { most_bytes, state: Mutex::new(state), came: Notify::new(), turn: TaskMutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, record: Record) -> Result<(), PutError> {
        let mut state = self.state();
        if state.closed {
            return Err(PutError::Closed);
        }
        let size = record.bytes.len() as u64 + BESIDE;
        state.is_full = state.bytes.saturating_add(size) > self.most_bytes;
        if state.is_full {
            return Err(PutError::Full);
        }
        state.bytes += size;
        let first = state.end;
        let end = first + u64::from(record.entries);
        state.end = end;
        state.progress.acknowledged(end);
        state.records.push_back((first, record));
        drop(state);
        self.came.notify_one();
        Ok(())
    }

    pub(super) async fn take(&self, most: usize, linger: Duration) -> Option<Batch> {
        let mut cut = self.turn.lock().await;
        let mut until = None;
        loop {
            let came = self.came.notified();
            {
                let state = &mut *self.state();
                let waiting = state.end - state.taken;
                if waiting == 0 && state.closed {
                    return None;
                }
                let now = Instant::now();
                if waiting > 0 && until.is_none() {
                    until = Some(now + linger);
                }
                if waiting >= most as u64
                    || state.closed
                    || state.hurries && waiting > 0
                    || until.is_some_and(|until| until <= now)
                {
                    let begin = state.taken;
                    let (batch, _) = cut.fill(most, begin, state.end, || Ok(state.records.pop_front()));
                    state.taken = batch.end;
                    return Some(batch);
                }
            }
            match until {
                Some(until) => drop(timeout_at(until, came).await),
                None => came.await,
            }
        }
    }

    pub(super) fn stored(&self, batch: &Batch) {
        let mut state = self.state();
        state.progress.stored(batch.begin, batch.end);
        for part in &batch.parts {
            // a record's bytes are given back with its last entry
            if part.is_last {
                state.bytes = state.bytes.saturating_sub(part.record.len() as u64 + BESIDE);
                state.is_full = false;
            }
        }
    }

    pub(super) fn close(&self) {
        self.state().closed = true;
        self.came.notify_one();
    }

    /// Whether batches are to be taken without waiting for more.
    pub(super) fn hurry(&self, hurries: bool) {
        let mut state = self.state();
        if hurries && !state.hurries {
            self.came.notify_one();
        }
        state.hurries = hurries;
    }

    /// All entries before this number are stored.
    pub(super) fn up_to(&self) -> u64 {
        self.state().progress.up_to()
    }

    pub(super) fn depth(&self) -> Depth {
        let state = self.state();
        Depth {
            entries: state.progress.waiting(),
            messages: None,
            is_stale: false,
            bytes: Some(state.bytes),
            most_bytes: self.most_bytes,
            oldest: state.progress.oldest(),
        }
    }

    pub(super) fn trouble(&self) -> Option<String> {
        let state = self.state();
        state.is_full.then(|| FULL.to_owned())
    }
}
