//! Takes entries out of the queue and stores them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::time::{sleep, timeout};

use crate::{
    Storage,
    metrics::{Fate, Metrics, Stage},
    queue::{Queue, Queued},
    sink::{Connection, OnConflict, Sink, SinkError, Stored},
};

/// How long the database may take to store a batch.
const PATIENCE: Duration = Duration::from_mins(1);
/// The shortest and the longest wait before a batch is tried again.
const WAIT: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(5)];

/// What collectors share.
#[derive(Debug)]
pub(crate) struct Collectors {
    pub(crate) queue: Arc<Queue>,
    pub(crate) sink: Arc<Sink>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) batch: usize,
    pub(crate) linger: Duration,
    /// What each collector does at present.
    doing: Mutex<BTreeMap<usize, Doing>>,
}

#[derive(Debug, Default)]
struct Doing {
    /// Since when the database has its batch.
    begun: Option<Instant>,
    /// Since when it can store nothing, and why.
    trouble: Option<(Instant, String)>,
}

/// What keeps collectors from storing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SinkTrouble {
    /// For how long it has been so.
    pub(crate) span: Duration,
    pub(crate) why: String,
    /// Whether none of those that have something to store can store anything.
    pub(crate) is_all: bool,
}

impl Collectors {
    pub(crate) fn new(
        queue: &Arc<Queue>,
        sink: &Arc<Sink>,
        metrics: &Arc<Metrics>,
        storage: &Storage,
    ) -> Self {
        Self {
            queue: Arc::clone(queue),
            sink: Arc::clone(sink),
            metrics: Arc::clone(metrics),
            batch: storage.batch.get(),
            linger: storage.linger,
            doing: Mutex::default(),
        }
    }

    fn doing(&self, collector: usize, change: impl FnOnce(&mut Doing)) {
        let mut doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner);
        change(doing.entry(collector).or_default());
    }

    /// What keeps collectors from storing, the longest of it.
    pub(crate) fn trouble(&self) -> Option<SinkTrouble> {
        let doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner);
        // one that waits for entries says nothing of the database
        let has_batch = |each: &&Doing| each.begun.is_some() || each.trouble.is_some();
        let is_all = doing.values().filter(has_batch).all(|each| each.trouble.is_some());
        let of = doing.values().filter_map(|each| each.trouble.as_ref());
        of.min_by_key(|(since, _)| *since).map(|(since, why)| SinkTrouble {
            span: since.elapsed(),
            why: why.clone(),
            is_all,
        })
    }

    /// For how long the database has had a batch without an answer, the longest of all.
    pub(crate) fn unanswered(&self) -> Option<Duration> {
        let doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner);
        doing.values().filter_map(|each| each.begun).min().map(|begun| begun.elapsed())
    }

    /// Stores batches until the queue is closed and empty. What cannot be stored is tried again: what came through
    /// before is a repeat then, and is suppressed.
    pub(crate) async fn collect(self: Arc<Self>, collector: usize) {
        let mut connection = None;
        self.doing(collector, |_| {});
        while let Some(batch) = self.queue.take(self.batch, self.linger).await {
            let since = Instant::now();
            let entries = batch.entries();
            self.metrics.stage(Stage::Collect, batch.read_in() + since.elapsed());
            // parts of the batch, the next one last
            let mut todo = vec![&*entries];
            let mut wait = WAIT[0];
            loop {
                self.doing(collector, |doing| doing.begun = Some(Instant::now()));
                let stored = self.store(&mut connection, &mut todo).await;
                self.doing(collector, |doing| doing.begun = None);
                let Err(why) = stored else { break };
                if wait == WAIT[0] {
                    tracing::warn!(collector, error = %why, "entries cannot be stored: they wait in the queue");
                }
                self.doing(collector, |doing| {
                    doing.trouble.get_or_insert_with(|| (Instant::now(), String::new())).1 = why;
                });
                sleep(wait).await;
                wait = (wait * 2).min(WAIT[1]);
            }
            if wait > WAIT[0] {
                tracing::info!(collector, "entries are stored again");
                self.doing(collector, |doing| doing.trouble = None);
            }
            self.queue.stored(&batch);
        }
    }

    /// Stores parts of a batch, each in one transaction, and takes them from the list. Where the database refuses an
    /// entry, or is not done with so many, the part is halved.
    async fn store(
        &self,
        connection: &mut Option<Connection>,
        todo: &mut Vec<&[Queued<'_>]>,
    ) -> Result<(), String> {
        while let Some(some) = todo.pop() {
            if some.is_empty() {
                continue;
            }
            let failed = match self.try_store(connection, some).await {
                Ok(()) => continue,
                Err(failed) => failed,
            };
            if !matches!(failed, SinkError::Refused(_)) {
                *connection = None;
            }
            match failed {
                SinkError::Refused(_) | SinkError::TooMuch(_) if some.len() > 1 => {
                    let (first, second) = some.split_at(some.len() / 2);
                    todo.extend([second, first]);
                }
                SinkError::Refused(why) => {
                    // what is refused alone is one entry
                    let kept = match some.first() {
                        Some(one) => self.keep_refused(connection, one, &why).await,
                        None => Ok(()),
                    };
                    if kept.is_err() {
                        todo.push(some);
                        return kept;
                    }
                }
                SinkError::TooMuch(why) | SinkError::Away(why) => {
                    todo.push(some);
                    return Err(why);
                }
            }
        }
        Ok(())
    }

    async fn try_store(
        &self,
        connection: &mut Option<Connection>,
        entries: &[Queued<'_>],
    ) -> Result<(), SinkError> {
        let since = Instant::now();
        let open = self.connected(connection).await?;
        let late = |_| SinkError::Away(format!("no answer within {} s", PATIENCE.as_secs()));
        let stored = timeout(PATIENCE, open.store(entries, OnConflict::Keep)).await.map_err(late)??;
        self.metrics.stage(Stage::Commit, since.elapsed());
        self.metrics.batch(entries.len() as u64);
        let Stored { new, repeated, conflicts } = stored;
        self.metrics.count(Fate::Stored, new);
        self.metrics.count(Fate::Repeated, repeated);
        if !conflicts.is_empty() {
            self.metrics.count(Fate::Refused, conflicts.len() as u64);
            let first = conflicts.first().and_then(|place| entries.get(*place));
            let (user, id) = first.map(|queued| (queued.user, &*queued.entry.id)).unwrap_or_default();
            tracing::warn!(
                entries = conflicts.len(),
                user,
                id,
                "ids are stored with other content: these entries are kept with the refused ones"
            );
        }
        Ok(())
    }

    async fn keep_refused(
        &self,
        connection: &mut Option<Connection>,
        entry: &Queued<'_>,
        why: &str,
    ) -> Result<(), String> {
        let kept = async {
            let open = self.connected(connection).await?;
            open.keep_refused(entry, why).await
        };
        match timeout(PATIENCE, kept).await {
            Ok(Ok(())) => {
                self.metrics.count(Fate::Refused, 1);
                tracing::error!(
                    user = entry.user,
                    id = &*entry.entry.id,
                    error = why,
                    "the database refuses an entry: it is kept with the refused ones"
                );
                Ok(())
            }
            Ok(Err(error)) => {
                *connection = None;
                Err(error.to_string())
            }
            Err(_) => {
                *connection = None;
                Err(format!("no answer within {} s", PATIENCE.as_secs()))
            }
        }
    }

    async fn connected<'c>(
        &self,
        connection: &'c mut Option<Connection>,
    ) -> Result<&'c mut Connection, SinkError> {
        match connection {
            Some(open) => Ok(open),
            none => Ok(none.insert(self.sink.connect().await?)),
        }
    }
}
