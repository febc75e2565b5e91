//! The direct architecture: each entry is stored in a transaction of its own before its request is answered, over a
//! bounded number of connections.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{sync::Semaphore, time::timeout};

use crate::{
    metrics::{Metrics, Stage},
    queue::Queued,
    sink::{Connection, OnConflict, Sink, SinkError, Stored},
};

/// How long a request may wait for a connection, and how long the database may take for an entry.
const PATIENCE: Duration = Duration::from_secs(30);

/// Connections to the sink, opened as they are needed.
#[derive(Debug)]
pub(crate) struct Direct {
    sink: Arc<Sink>,
    metrics: Arc<Metrics>,
    free: Semaphore,
    idle: Mutex<Vec<Connection>>,
}

impl Direct {
    pub(crate) fn new(sink: Arc<Sink>, metrics: Arc<Metrics>, most: usize) -> Self {
        Self { sink, metrics, free: Semaphore::new(most), idle: Mutex::default() }
    }

    /// Stores one entry.
    pub(crate) async fn store(&self, entry: &Queued<'_>) -> Result<Stored, SinkError> {
        let late = |what: &str| SinkError::Away(format!("{what} within {} s", PATIENCE.as_secs()));
        let since = Instant::now();
        let free =
            timeout(PATIENCE, self.free.acquire()).await.map_err(|_| late("no connection was free"))?;
        let _free = free.map_err(|_| SinkError::Away("the gateway is shutting down".to_owned()))?;
        self.metrics.stage(Stage::Queue, since.elapsed());
        let since = Instant::now();
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        // a connection whose request is dropped half-way is dropped with it
        let stored = timeout(PATIENCE, async {
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.sink.connect().await?,
            };
            let stored = connection.store(std::slice::from_ref(entry), OnConflict::Tell).await;
            if !matches!(stored, Err(SinkError::Away(_))) {
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            }
            stored
        });
        let stored = stored.await.map_err(|_| late("no answer from the database"))?;
        self.metrics.stage(Stage::Commit, since.elapsed());
        stored
    }

    /// Closes all connections.
    pub(crate) fn close(&self) {
        self.free.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
