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
    /// Why the database took nothing the last time.
    trouble: Mutex<Option<String>>,
}

impl Direct {
    pub(crate) fn new(sink: Arc<Sink>, metrics: Arc<Metrics>, most: usize) -> Self {
        let trouble = Mutex::new(sink.trouble());
        Self { sink, metrics, free: Semaphore::new(most), idle: Mutex::default(), trouble }
    }

    /// Why the database takes nothing at present, if it does not.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_trouble(&self, why: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Where the database took nothing, tries whether it can be reached again: no request may come that finds out.
    pub(crate) async fn look_for_database(&self) {
        if self.trouble().is_none() {
            return;
        }
        match self.sink.connect().await {
            Ok(connection) => {
                tracing::info!("the database accepts entries again");
                self.set_trouble(None);
                self.keep(connection);
            }
            Err(error) => self.set_trouble(Some(error.to_string())),
        }
    }

    fn keep(&self, connection: Connection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }

    pub(crate) async fn store(&self, entry: &Queued<'_>) -> Result<Stored, SinkError> {
        let late = |what: &str| SinkError::Away(format!("{what} within {} s", PATIENCE.as_secs()));
        let since = Instant::now();
        let free =
            timeout(PATIENCE, self.free.acquire()).await.map_err(|_| late("no connection was free"))?;
        let _free = free.map_err(|_| SinkError::Away("the gateway is shutting down".to_owned()))?;
        self.metrics.stage(Stage::Queue, since.elapsed());
        let since = Instant::now();
        // a connection whose request is dropped half-way is dropped with it
        let stored = timeout(PATIENCE, self.try_store(entry)).await;
        let stored = stored.unwrap_or_else(|_| Err(late("no answer from the database")));
        self.metrics.stage(Stage::Commit, since.elapsed());
        match &stored {
            Err(SinkError::Away(why)) => {
                if self.trouble().is_none() {
                    tracing::warn!(error = %why, "the database accepts no entries: requests are answered with 503");
                }
                self.set_trouble(Some(why.clone()));
            }
            _ if self.trouble().is_some() => self.set_trouble(None),
            _ => {}
        }
        stored
    }

    /// Stores an entry over a connection that is idle, or where that was lost meanwhile or there is none, over a new one.
    /// What came through before its connection was lost is a repeat then.
    async fn try_store(&self, entry: &Queued<'_>) -> Result<Stored, SinkError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(connection) = idle {
            match self.store_over(connection, entry).await {
                Err(SinkError::Away(_)) => {}
                stored => return stored,
            }
        }
        self.store_over(self.sink.connect().await?, entry).await
    }

    async fn store_over(&self, mut connection: Connection, entry: &Queued<'_>) -> Result<Stored, SinkError> {
        let stored = connection.store(std::slice::from_ref(entry), OnConflict::Tell).await;
        match stored {
            // it may be lost
            Err(SinkError::Away(why) | SinkError::TooMuch(why)) => Err(SinkError::Away(why)),
            stored => {
                self.keep(connection);
                stored
            }
        }
    }

    /// Closes all connections.
    pub(crate) fn close(&self) {
        self.free.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
