//! The task that receives messages, for all collectors of this process.
//!
//! What was received on a connection is a [`Window`] of the queue. It ends with its connection: what is not yet taken of
//! it comes again on the next one, and so does what could not be acknowledged.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, interval_at, sleep, timeout},
};

use super::{
    AGAIN, Consumer, HELD, IDLE, LAST, Shared, Worker, in_time,
    message::{self, Content},
};
use crate::{
    depth::Depth,
    entry,
    queue::{Batch, MemoryQueue},
};

/// How long messages are left to collectors of another version that are for them.
const LEAVE: Duration = Duration::from_secs(5);

/// What was received on a connection, and is not yet stored.
#[derive(Debug)]
pub(super) struct Window {
    /// Which connection it was, from 1.
    pub(super) number: u64,
    entries: MemoryQueue,
    messages: Mutex<VecDeque<Received>>,
    /// Tells the task that something is stored.
    stored: Notify,
}

/// A message that is not acknowledged.
#[derive(Clone, Copy, Debug)]
struct Received {
    /// The number behind its last entry.
    end: u64,
    /// When the first of its entries came to their gateway: microseconds since 1970.
    at: i64,
}

impl Window {
    fn new(number: u64) -> Arc<Self> {
        Arc::new(Self {
            number,
            entries: MemoryQueue::new(u64::MAX),
            messages: Mutex::default(),
            stored: Notify::new(),
        })
    }

    fn messages(&self) -> MutexGuard<'_, VecDeque<Received>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the messages whose entries are all stored, and returns how many they are.
    fn take_stored(&self) -> usize {
        let up_to = self.entries.up_to();
        let mut messages = self.messages();
        let count = messages.iter().take_while(|received| received.end <= up_to).count();
        messages.drain(..count);
        count
    }
}

#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) windows: watch::Receiver<Arc<Window>>,
    pub(super) worker: Worker,
}

impl Receiving {
    pub(super) fn start(shared: &Arc<Shared>) -> Self {
        let (window, windows) = watch::channel(Window::new(0));
        Self { windows, worker: Worker::start(receive(Arc::clone(shared), window)) }
    }

    pub(super) async fn take(&self, shared: &Shared, most: usize, linger: Duration) -> Option<Batch> {
        let mut windows = self.windows.clone();
        loop {
            let window = Arc::clone(&windows.borrow_and_update());
            tokio::select! {
                batch = window.entries.take(most, linger) => match batch {
                    Some(batch) => return Some(Batch { window: window.number, ..batch }),
                    None if shared.is_closed() => return None,
                    // it cannot be the present one
                    None => drop(windows.changed().await),
                },
                changed = windows.changed() => if changed.is_err() {
                    // the task has ended: what it had received comes again elsewhere
                    return None;
                },
            }
        }
    }

    pub(super) fn stored(&self, batch: &Batch) {
        let window = Arc::clone(&self.windows.borrow());
        // what came on a connection that is lost cannot be acknowledged on another
        if window.number == batch.window {
            window.entries.stored(batch);
            window.stored.notify_one();
        }
    }

    pub(super) fn close(&self) {
        let window = Arc::clone(&self.windows.borrow());
        window.entries.close();
        window.stored.notify_one();
    }

    /// How many entries are in hand here, and how long ago the oldest of them came to its gateway.
    pub(super) fn held(&self) -> (u64, Option<Duration>) {
        let window = Arc::clone(&self.windows.borrow());
        let Depth { entries, .. } = window.entries.depth();
        let oldest = window.messages().front().map(|received| entry::age(received.at));
        (entries, oldest)
    }
}

/// Connects, and receives until the queue is closed; and connects again when the connection is lost.
async fn receive(shared: Arc<Shared>, windows: watch::Sender<Arc<Window>>) {
    let mut closed = shared.closed.subscribe();
    for number in 1.. {
        let why = match shared.broker.consumer().await {
            Ok(consumer) => {
                if shared.state().unreceived.take().is_some() {
                    tracing::info!("entries are received from the broker again");
                }
                let window = Window::new(number);
                windows.send_replace(Arc::clone(&window));
                match serve(&shared, consumer, &window).await {
                    Ok(()) => return,
                    Err(why) => why,
                }
            }
            Err(why) => why,
        };
        if shared.state().unreceived.replace(why.clone()).is_none() {
            tracing::error!(broker = shared.address, error = %why, "no entries can be received from the broker");
        }
        tokio::select! {
            () = sleep(AGAIN) => {}
            _ = closed.wait_for(|closed| *closed) => {
                // it may have been put there after the queue was closed
                windows.borrow().entries.close();
                return;
            }
        }
    }
}

/// Receives messages into a window, and acknowledges those of which all entries are stored, until the queue is closed.
///
/// # Errors
/// If the connection is lost, or the broker does not answer.
async fn serve(shared: &Shared, mut consumer: Box<dyn Consumer>, window: &Window) -> Result<(), String> {
    let (mut closed, mut finished) = (shared.closed.subscribe(), shared.finished.subscribe());
    let mut checks = interval_at(Instant::now() + IDLE, IDLE);
    let mut end = 0;
    loop {
        let stored = window.take_stored();
        if stored > 0 {
            in_time(consumer.acknowledge(stored)).await?;
        }
        if shared.is_closed() {
            window.entries.close();
            if window.messages().is_empty() || shared.is_finished() {
                break;
            }
        }
        let room = usize::from(HELD).saturating_sub(window.messages().len());
        // no more can come for a batch to wait for
        window.entries.hurry(room == 0);
        tokio::select! {
            received = consumer.next(room), if !shared.is_closed() => {
                if room == 0 {
                    return Err("the broker delivers more than was requested".to_owned());
                }
                match put(shared, window, &mut end, received?.into()).await? {
                    Put::Received(received) => window.messages().push_back(received),
                    Put::Aside => in_time(consumer.remove_last()).await?,
                    Put::Closed => {}
                    Put::OfAnotherVersion => {
                        // given back at once, and left to others for a while
                        let _ = timeout(LAST, consumer.close()).await;
                        let _ = timeout(LEAVE, closed.changed()).await;
                        return Err(
                            "a message is of a gateway of another version: collectors of that version take it".to_owned(),
                        );
                    }
                }
            }
            () = window.stored.notified() => {}
            _ = checks.tick() => in_time(consumer.check()).await?,
            _ = closed.changed() => {}
            _ = finished.changed() => {}
        }
    }
    // whoever does not answer to an end is left
    let _ = timeout(LAST, consumer.close()).await;
    Ok(())
}

/// What became of a message.
enum Put {
    Received(Received),
    /// It makes no sense, and is kept aside.
    Aside,
    /// It stays in the queue.
    OfAnotherVersion,
    /// The queue was closed just now: it is delivered elsewhere, and what is stored of it here is a repeat there.
    Closed,
}

/// Puts the records of a message into the window, in which they begin at `end`.
///
/// # Errors
/// If it cannot be kept aside: then it stays in the queue.
async fn put(shared: &Shared, window: &Window, end: &mut u64, message: Bytes) -> Result<Put, String> {
    let records = match message::decode(&message) {
        Content::Records(records) => records,
        Content::OfAnotherVersion => return Ok(Put::OfAnotherVersion),
        Content::Nonsense => {
            in_time(shared.broker.keep_aside(&message)).await?;
            let bytes = message.len();
            tracing::error!(
                bytes,
                "a message in the queue is not a gateway's, or not as it was sent: it is put aside"
            );
            return Ok(Put::Aside);
        }
    };
    let at = records.first().and_then(|record| entry::received(&record.bytes)).unwrap_or_default();
    for record in records {
        *end += u64::from(record.entries);
        // it has no bound of its own
        if window.entries.put(record).is_err() {
            return Ok(Put::Closed);
        }
    }
    Ok(Put::Received(Received { end: *end, at }))
}
