//! The task that publishes what requests bring, over one connection. A few messages are on their way at once, and each
//! takes along what came meanwhile, as a sync does with a queue on disk.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    AGAIN, Answer, Answered, GROUP, IDLE, LAST, PATIENCE, Publisher, Shared, Worker, message, silent,
};
use crate::{
    metrics::Stage,
    queue::{PutError, Record},
};

/// Bytes of records that wait to be published or to be answered: more are refused.
const PENDING: u64 = 64 << 20;
/// Bytes that a record takes beside its content while it waits.
const BESIDE: u64 = 300;
/// Messages that are on their way at once.
const FLIGHT: usize = 4;

/// A record that waits for its answer.
#[derive(Debug)]
struct Outgoing {
    record: Record,
    since: Instant,
    waiter: Waiter,
}

/// Somebody who waits for an answer, with the bytes that wait, too.
#[derive(Debug)]
struct Waiter {
    done: oneshot::Sender<Result<(), PutError>>,
    _pending: Pending,
}

impl Waiter {
    /// Tells the answer; a client that has left is not told.
    fn answer(self, answer: Result<(), PutError>) {
        let _ = self.done.send(answer);
    }
}

/// A message with those who wait for its answer.
#[derive(Debug)]
struct Group {
    sent: Instant,
    entries: u64,
    waiters: Vec<Waiter>,
}

#[derive(Debug)]
pub(super) struct Publishing {
    outgoing: mpsc::UnboundedSender<Outgoing>,
    /// Bytes that wait to be published or answered.
    pending: Arc<AtomicU64>,
    pub(super) worker: Worker,
}

/// Bytes that wait, given back when they wait no more: not before, also where their client has left.
#[derive(Debug)]
struct Pending(Arc<AtomicU64>, u64);

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Relaxed);
    }
}

impl Publishing {
    pub(super) fn start(shared: &Arc<Shared>) -> Self {
        let (outgoing, incoming) = mpsc::unbounded_channel();
        Self {
            outgoing,
            pending: Arc::default(),
            worker: Worker::start(publish(Arc::clone(shared), incoming)),
        }
    }

    pub(super) async fn put(&self, shared: &Shared, record: Record) -> Result<(), PutError> {
        if shared.is_closed() {
            return Err(PutError::Closed);
        }
        if let Some(why) = shared.state().unpublished.clone() {
            return Err(PutError::Failed(why));
        }
        let size = record.bytes.len() as u64 + BESIDE;
        let pending = Pending(Arc::clone(&self.pending), size);
        if pending.0.fetch_add(size, Relaxed) + size > PENDING {
            return Err(PutError::Full);
        }
        let (done, answer) = oneshot::channel();
        let waiter = Waiter { done, _pending: pending };
        let outgoing = Outgoing { record, since: Instant::now(), waiter };
        self.outgoing.send(outgoing).map_err(|_| PutError::Closed)?;
        // the task answers everybody, and if it ended without it, nothing was acknowledged
        answer.await.unwrap_or(Err(PutError::Closed))
    }
}

/// Connects, and publishes until the queue is closed; and connects again when the connection is lost.
async fn publish(shared: Arc<Shared>, mut incoming: mpsc::UnboundedReceiver<Outgoing>) {
    let mut closed = shared.closed.subscribe();
    loop {
        let why = match connect(&shared).await {
            Ok(publisher) => {
                if shared.state().unpublished.take().is_some() {
                    tracing::info!("the broker accepts entries again");
                }
                let mut flight = Flight::default();
                match serve(&shared, publisher, &mut incoming, &mut flight).await {
                    Ok(()) => return,
                    Err(why) => {
                        flight.fail(&why);
                        why
                    }
                }
            }
            Err(why) => why,
        };
        if shared.state().unpublished.replace(why.clone()).is_none() {
            tracing::error!(broker = shared.address, error = %why, "the broker accepts no entries: requests are answered \
                                                                    with 503");
        }
        // what came meanwhile was not sent
        while let Ok(outgoing) = incoming.try_recv() {
            outgoing.waiter.answer(Err(PutError::Failed(why.clone())));
        }
        tokio::select! {
            () = sleep(AGAIN) => {}
            _ = closed.wait_for(|closed| *closed) => return,
        }
    }
}

async fn connect(shared: &Shared) -> Result<Box<dyn Publisher>, String> {
    let mut publisher = shared.broker.publisher().await?;
    checked(&mut *publisher).await?;
    Ok(publisher)
}

async fn checked(publisher: &mut dyn Publisher) -> Result<(), String> {
    match timeout(PATIENCE, publisher.check()).await {
        Ok(checked) => checked,
        Err(_) => Err(publisher.blocked().unwrap_or_else(silent)),
    }
}

/// Messages that were sent and not answered, the first of them with this number.
#[derive(Debug, Default)]
struct Flight {
    first: u64,
    sent: VecDeque<Option<Group>>,
}

impl Flight {
    /// Nobody knows of a message that is not answered whether the broker has it.
    fn fail(&mut self, why: &str) {
        for waiter in self.sent.drain(..).flatten().flat_map(|group| group.waiters) {
            waiter.answer(Err(PutError::Failed(why.to_owned())));
        }
    }

    /// When the first of them was sent.
    fn since(&self) -> Option<Instant> {
        self.sent.front().and_then(Option::as_ref).map(|group| group.sent)
    }

    /// Takes the messages that an answer is to, and that were not answered before.
    fn take(&mut self, answered: &Answered) -> Vec<Group> {
        let place = answered.number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        let Some(place) = place.filter(|place| *place < self.sent.len()) else { return Vec::new() };
        let from = if answered.multiple { 0 } else { place };
        let groups = self.sent.range_mut(from..=place).filter_map(Option::take).collect();
        while self.sent.front().is_some_and(Option::is_none) {
            self.sent.pop_front();
            self.first += 1;
        }
        groups
    }
}

/// Publishes until the queue is closed and everybody is answered.
///
/// # Errors
/// If the connection is lost, or the broker does not answer.
async fn serve(
    shared: &Shared,
    mut publisher: Box<dyn Publisher>,
    incoming: &mut mpsc::UnboundedReceiver<Outgoing>,
    flight: &mut Flight,
) -> Result<(), String> {
    let mut answers = Vec::new();
    let mut closed = shared.closed.subscribe();
    let mut is_open = true;
    loop {
        if shared.is_closed() {
            // nothing comes any more: what came before is published below
            incoming.close();
        }
        let is_idle = flight.sent.is_empty();
        if is_idle && !is_open {
            // whoever does not answer to an end is left
            let _ = timeout(LAST, publisher.close()).await;
            return Ok(());
        }
        let late = flight.since().map_or_else(|| Instant::now() + IDLE, |since| since + PATIENCE);
        tokio::select! {
            outgoing = incoming.recv(), if is_open && flight.sent.len() < FLIGHT => match outgoing {
                Some(outgoing) => {
                    let Some((message, group)) = grouped(shared, outgoing, incoming) else { continue };
                    flight.sent.push_back(Some(group));
                    let sent = timeout(PATIENCE, publisher.publish(&message)).await;
                    sent.unwrap_or_else(|_| Err(publisher.blocked().unwrap_or_else(silent)))?;
                }
                None => is_open = false,
            },
            answered = publisher.answers(&mut answers), if !is_idle => answered?,
            () = sleep_until(late) => {
                if !is_idle {
                    return Err(publisher.blocked().unwrap_or_else(silent));
                }
                checked(&mut *publisher).await?;
            }
            _ = closed.changed() => {}
        }
        for answered in answers.drain(..) {
            for group in flight.take(&answered) {
                note(shared, group, &answered.answer);
            }
        }
    }
}

/// A message of this record and those that wait behind it; none if nobody waits for its answer any more.
fn grouped(
    shared: &Shared,
    first: Outgoing,
    incoming: &mut mpsc::UnboundedReceiver<Outgoing>,
) -> Option<(Vec<u8>, Group)> {
    let mut message = message::begin();
    let mut group = Group { sent: Instant::now(), entries: 0, waiters: Vec::new() };
    let mut next = Some(first);
    while let Some(Outgoing { record, since, waiter }) = next {
        if since.elapsed() >= PATIENCE {
            let why = format!("the broker is slow: this has waited for {} s", PATIENCE.as_secs());
            waiter.answer(Err(PutError::Failed(why)));
        } else if !waiter.done.is_closed() {
            message::add(&mut message, &record);
            group.entries += u64::from(record.entries);
            group.waiters.push(waiter);
            shared.metrics.stage(Stage::Queue, since.elapsed());
        }
        next = if message.len() <= GROUP { incoming.try_recv().ok() } else { None };
    }
    message::end(&mut message);
    (!group.waiters.is_empty()).then_some((message, group))
}

fn note(shared: &Shared, group: Group, answer: &Answer) {
    shared.metrics.stage(Stage::Sync, group.sent.elapsed());
    let told = match answer {
        Answer::Kept => {
            shared.metrics.synced(group.entries);
            Ok(())
        }
        Answer::Full => {
            shared.note_full();
            Err(PutError::Full)
        }
        Answer::Unkept(why) => Err(PutError::Failed(why.clone())),
    };
    for waiter in group.waiters {
        waiter.answer(told.clone());
    }
}
