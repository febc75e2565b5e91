//! The thread that writes and syncs what requests bring.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Arc, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::{
    Pending, Placed, Shared,
    segment::{self, HEAD, Numbers, Segment},
};
use crate::{
    metrics::Stage,
    queue::{FULL, PutError},
};

/// How long it takes until it is tried again whether there is room, where no request comes.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) fn start(shared: Arc<Shared>) -> io::Result<()> {
    let mut committer = Committer { shared, segment: None };
    // whoever asks whether it is ready learns of a full disk before entries are refused; it is tried again
    let _ = committer.make_room(0);
    thread::Builder::new().name("committer".to_owned()).spawn(move || committer.run())?;
    Ok(())
}

struct Committer {
    shared: Arc<Shared>,
    /// The segment that is written, its number, and where the next record goes.
    segment: Option<(Segment, u64, u64)>,
}

/// Whoever waits for an answer when the thread ends, gets none, and so learns that nothing was acknowledged.
impl Drop for Committer {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.ended = true;
        state.pending.clear();
        drop(state);
        self.shared.came.notify_one();
        self.shared.ended.notify_all();
    }
}

impl Committer {
    fn run(mut self) {
        loop {
            let mut group = {
                let mut state = self.shared.state();
                while state.pending.is_empty() && !state.closed && state.trouble.is_none() {
                    state = self.shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                if state.pending.is_empty() && !state.closed {
                    let wait = self.shared.work.wait_timeout(state, AGAIN);
                    state = wait.unwrap_or_else(PoisonError::into_inner).0;
                }
                if state.pending.is_empty() && state.closed {
                    return;
                }
                state.pending_bytes = 0;
                state.writing = Some(Instant::now());
                std::mem::take(&mut state.pending)
            };
            // whoever has waited for too long was told so, and sends it again
            let is_idle = group.is_empty();
            group.retain(|pending| !pending.done.is_closed());
            if is_idle {
                self.look_for_room();
            } else {
                self.commit(group);
            }
            self.rest();
        }
    }

    /// Notes that the disk is not waited for.
    fn rest(&self) {
        let mut state = self.shared.state();
        state.writing = None;
        if std::mem::take(&mut state.is_stall_told) {
            tracing::info!("the disk answers again");
        }
    }

    /// Tries whether a segment can be made again: otherwise only a request would find out, and none comes where a load
    /// balancer asks first whether the gateway is ready.
    fn look_for_room(&mut self) {
        self.shared.remove_stored();
        if self.segment.is_some() || self.make_room(0).is_ok() {
            tracing::info!("entries are accepted again");
            self.shared.state().trouble = None;
        }
    }

    /// Writes and syncs a group of records, in as many segments as they need, and answers for each.
    fn commit(&mut self, group: Vec<Pending>) {
        let mut group = group.into_iter().peekable();
        while let Some(next) = group.peek() {
            if let Err(refusal) = self.make_room(size(next)) {
                for pending in group {
                    let _ = pending.done.send(Err(refusal.clone()));
                }
                return;
            }
            // make_room has just made one
            let Some((_, _, begin)) = &self.segment else { return };
            let mut room = self.shared.options.segment.saturating_sub(*begin);
            let mut some = Vec::new();
            while let Some(pending) = group.next_if(|pending| some.is_empty() || size(pending) <= room) {
                room = room.saturating_sub(size(&pending));
                some.push(pending);
            }
            self.write(some);
        }
    }

    /// Goes on with a new segment where the present one has no room for so many bytes.
    fn make_room(&mut self, size: u64) -> Result<(), PutError> {
        let options = self.shared.options.clone();
        if let Some((_, number, begin)) = &self.segment {
            if begin + size <= options.segment {
                return Ok(());
            }
            let number = *number;
            self.seal(number);
        }
        let (number, numbers) = {
            let mut state = self.shared.state();
            if state.disk_bytes() + options.segment > options.most_bytes {
                state.trouble = Some(FULL.to_owned());
                return Err(PutError::Full);
            }
            let number = state.next_segment;
            state.next_segment += 1;
            (number, Numbers { first: state.end, acknowledged: state.acknowledged })
        };
        match Segment::create(&options.folder, number, numbers, options.segment.max(segment::BEGIN + size)) {
            Ok(made) => {
                self.segment = Some((made, number, segment::BEGIN));
                self.shared.state().segments.push_back(Placed {
                    number,
                    size: options.segment.max(segment::BEGIN + size),
                    written: segment::BEGIN,
                    end: numbers.first,
                    sealed: false,
                    damaged: false,
                });
                Ok(())
            }
            Err(error) => Err(self.fail(&error, "a segment cannot be made")),
        }
    }

    fn write(&mut self, group: Vec<Pending>) {
        let Some((segment, number, begin)) = &mut self.segment else { return };
        let (number, place) = (*number, *begin);
        let mut first = self.shared.state().end;
        let mut bytes =
            Vec::with_capacity(group.iter().map(|pending| pending.record.bytes.len() + HEAD).sum());
        let mut entries = 0;
        for pending in &group {
            segment.frame(&pending.record, pending.crc, first, &mut bytes);
            first += u64::from(pending.record.entries);
            entries += u64::from(pending.record.entries);
        }
        let since = Instant::now();
        self.shared.state().writing = Some(since);
        let synced = segment.file.write_all_at(&bytes, place).and_then(|()| self.shared.sync(&segment.file));
        let took = since.elapsed();
        for pending in &group {
            self.shared.metrics.stage(Stage::Queue, since.duration_since(pending.since));
        }
        let answer = match synced {
            Ok(()) => {
                *begin += bytes.len() as u64;
                let written = *begin;
                let mut state = self.shared.state();
                state.end = first;
                state.acknowledged = first;
                state.progress.acknowledged(first);
                state.trouble = None;
                if let Some(placed) = state.segments.iter_mut().find(|placed| placed.number == number) {
                    placed.written = written;
                    placed.end = first;
                }
                drop(state);
                self.shared.came.notify_one();
                self.shared.metrics.stage(Stage::Sync, took);
                self.shared.metrics.synced(entries);
                Ok(())
            }
            Err(error) => {
                // After an error of a sync nobody knows what is on the disk: what was not acknowledged is taken back,
                // and nothing more is written into this segment. If it cannot be taken back, it may be stored after
                // a restart, which is what an answer of 503 says.
                let is_cut = segment.file.set_len(place).is_ok();
                // and its numbers are not given to others, which would then look as if they were stored
                let mut state = self.shared.state();
                state.end = first;
                state.progress.acknowledged(first);
                if let Some(placed) =
                    state.segments.iter_mut().find(|placed| placed.number == number && is_cut)
                {
                    placed.size = place;
                }
                drop(state);
                self.seal(number);
                Err(self
                    .fail(&error, "nothing more is written into a segment that cannot be written or synced"))
            }
        };
        for pending in group {
            // a client that has left is not told
            let _ = pending.done.send(answer.clone());
        }
    }

    fn seal(&mut self, number: u64) {
        self.segment = None;
        let mut state = self.shared.state();
        if let Some(placed) = state.segments.iter_mut().find(|placed| placed.number == number) {
            placed.sealed = true;
        }
        drop(state);
        // all of it may have been stored before, and then no collector comes that would remove it
        self.shared.remove_stored();
        self.shared.came.notify_one();
    }

    fn fail(&self, error: &io::Error, what: &str) -> PutError {
        let mut state = self.shared.state();
        // told once, not for each request
        if state.trouble.is_none() {
            tracing::error!(%error, "{what}: requests are answered with 503 until this is fixed");
        }
        state.trouble = Some(error.to_string());
        PutError::Failed(error.to_string())
    }
}

impl Shared {
    #[cfg_attr(not(test), allow(clippy::unused_self, reason = "a test breaks the disk"))]
    fn sync(&self, file: &File) -> io::Result<()> {
        #[cfg(test)]
        assert!(!self.options.panics.load(std::sync::atomic::Ordering::Relaxed), "planted");
        #[cfg(test)]
        while self.options.hangs.load(std::sync::atomic::Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        #[cfg(test)]
        if self.options.broken.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
        }
        file.sync_data()
    }
}

fn size(pending: &Pending) -> u64 {
    (pending.record.bytes.len() + HEAD) as u64
}
