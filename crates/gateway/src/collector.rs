//! Takes entries out of the queue and stores them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::time::{sleep, timeout};

use crate::{
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
    trouble: Mutex<HashMap<usize, (Instant, String)>>,
}

impl Collectors {
    pub(crate) fn new(
        queue: Arc<Queue>,
        sink: Arc<Sink>,
        metrics: Arc<Metrics>,
        batch: usize,
        linger: Duration,
    ) -> Self {
        Self { queue, sink, metrics, batch, linger, trouble: Mutex::default() }
    }

    /// Since when nothing can be stored, and why, if it is so.
    pub(crate) fn trouble(&self) -> Option<(Duration, String)> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.values().min_by_key(|(since, _)| *since).map(|(since, why)| (since.elapsed(), why.clone()))
    }

    fn set_trouble(&self, collector: usize, why: Option<String>) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => trouble.entry(collector).or_insert_with(|| (Instant::now(), String::new())).1 = why,
            None => drop(trouble.remove(&collector)),
        }
    }

    /// Stores batches until the queue is closed and empty. A batch that cannot be stored is tried again: what came
    /// through before is a repeat then, and is suppressed.
    pub(crate) async fn collect(self: Arc<Self>, collector: usize) {
        let mut connection = None;
        while let Some(batch) = self.queue.take(self.batch, self.linger).await {
            let since = Instant::now();
            let entries = batch.entries();
            self.metrics.stage(Stage::Collect, batch.read_in() + since.elapsed());
            if !entries.is_empty() {
                let mut wait = WAIT[0];
                while let Err(why) = self.store(&mut connection, &entries).await {
                    if wait == WAIT[0] {
                        tracing::warn!(collector, error = %why, "entries cannot be stored: they wait in the queue");
                    }
                    self.set_trouble(collector, Some(why));
                    sleep(wait).await;
                    wait = (wait * 2).min(WAIT[1]);
                }
                if wait > WAIT[0] {
                    tracing::info!(collector, "entries are stored again");
                    self.set_trouble(collector, None);
                }
            }
            self.queue.stored(&batch);
        }
    }

    /// Stores entries in one transaction; where the database refuses one of them, the others without it.
    async fn store(&self, connection: &mut Option<Connection>, entries: &[Queued<'_>]) -> Result<(), String> {
        let mut todo = vec![entries];
        while let Some(some) = todo.pop() {
            match self.try_store(connection, some).await {
                Ok(()) => {}
                Err(SinkError::Away(why)) => {
                    *connection = None;
                    return Err(why);
                }
                Err(SinkError::Refused(why)) => match some {
                    [] => {}
                    [one] => self.keep_refused(connection, one, &why).await?,
                    _ => {
                        let (first, second) = some.split_at(some.len() / 2);
                        todo.extend([second, first]);
                    }
                },
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
