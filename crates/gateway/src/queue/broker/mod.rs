//! A queue in a broker, RabbitMQ or NATS: gateways put records into it, and collectors take them out, on any machine.
//!
//! | broker | an entry is acknowledged when | what survives |
//! | --- | --- | --- |
//! | RabbitMQ | the broker confirms its message, in a quorum queue: its log is synced then | a killed broker; a loss of power, as far as the disk's sync does |
//! | NATS | the stream in files has answered: it is written then, and synced later | a killed broker |
//!
//! A message holds the records that came while others were on their way ([`message`]). One task publishes ([`publisher`]),
//! another receives ([`receiver`]) for all collectors of this process. A message is acknowledged to the broker when all
//! its entries are stored. What a broker hands out again, because a collector or the connection to it was lost, the
//! database suppresses as repeats.

#![cfg_attr(
    not(any(feature = "nats", feature = "rabbitmq")),
    allow(dead_code, clippy::unused_async, reason = "a build without a broker opens no queue here")
)]

mod message;
#[cfg(feature = "nats")]
mod nats;
mod publisher;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
mod receiver;
#[cfg(test)]
mod tests;

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use acidtest_model::Address;
use futures_util::future::BoxFuture;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use self::{publisher::Publishing, receiver::Receiving};
use super::{Batch, FULL, PutError, Record};
use crate::{Error, depth::Depth, metrics::Metrics};

/// The most bytes of a record: brokers are made for small messages. The largest entry has 82 KiB.
pub(super) const RECORD: usize = 96 << 10;
/// Records are put into a message as long as it has no more bytes than this.
const GROUP: usize = 32 << 10;
/// The most bytes of a message.
const MESSAGE: usize = GROUP + RECORD + message::HEAD + message::RECORD_HEAD;
/// The most messages that this process holds and has not stored: with the largest, 65 MiB.
const HELD: u16 = 512;
/// The most bytes of messages that are kept aside.
const ASIDE: u64 = 256 << 20;
/// How long a broker may take for a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it takes until it is tried again to connect.
const AGAIN: Duration = Duration::from_millis(500);
/// How long the last answers and acknowledgements may take when the queue is closed.
const LAST: Duration = Duration::from_secs(5);
/// How often it is asked how much waits.
const LOOK: Duration = Duration::from_secs(1);
/// How long after a refusal a queue is taken for full, where fewer messages are not seen to wait.
const STILL_FULL: Duration = Duration::from_secs(10);
/// How often a connection on which nothing happens is tried.
const IDLE: Duration = Duration::from_secs(15);

/// A server that keeps queues.
trait Broker: Debug + Send + Sync {
    /// Opens a connection that publishes. If the queue is gone, it is made anew.
    fn publisher(&self) -> BoxFuture<'_, Result<Box<dyn Publisher>, String>>;

    /// Opens a connection that receives.
    fn consumer(&self) -> BoxFuture<'_, Result<Box<dyn Consumer>, String>>;

    /// Opens a connection that looks how much waits.
    fn gauge(&self) -> BoxFuture<'_, Result<Box<dyn Gauge>, String>>;

    /// Keeps a message that makes no sense in a queue beside, which is made for it, so that it can be taken out of this one.
    fn keep_aside<'a>(&'a self, message: &'a [u8]) -> BoxFuture<'a, Result<(), String>>;
}

/// A connection that looks. Any error ends it.
trait Gauge: Send {
    fn waiting(&mut self) -> BoxFuture<'_, Result<Waiting, String>>;
}

/// A connection that publishes. Any error ends it.
trait Publisher: Send {
    /// Sends a message. On each connection they are numbered from 0.
    fn publish<'a>(&'a mut self, message: &'a [u8]) -> BoxFuture<'a, Result<(), String>>;

    /// Waits for answers. The future may be dropped while it waits.
    fn answers<'a>(&'a mut self, answers: &'a mut Vec<Answered>) -> BoxFuture<'a, Result<(), String>>;

    /// Finds out whether the broker takes messages, while none is on its way.
    fn check(&mut self) -> BoxFuture<'_, Result<(), String>>;

    /// Why the broker takes nothing, if it has said so.
    fn blocked(&mut self) -> Option<String>;

    /// Ends the connection in order.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// An answer, and to which message it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answered {
    number: u64,
    /// Whether it stands for all messages before it that were not answered, too.
    multiple: bool,
    answer: Answer,
}

/// What a broker answers to a message.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Kept,
    /// It has no room for it.
    Full,
    /// It does not say whether it has it.
    #[cfg_attr(
        not(feature = "nats"),
        allow(dead_code, reason = "RabbitMQ does not tell this from a full queue")
    )]
    Unkept(String),
}

/// A connection that receives. Any error ends it; what was not acknowledged on it is delivered again, to whomever.
trait Consumer: Send {
    /// Waits for the next message, where so many more may be asked for; if none may be, for those that were. The future
    /// may be dropped while it waits.
    fn next(&mut self, room: usize) -> BoxFuture<'_, Result<Vec<u8>, String>>;

    /// Takes the last message out of the queue, which is kept aside.
    fn remove_last(&mut self) -> BoxFuture<'_, Result<(), String>>;

    /// Acknowledges the first so many messages of those that were neither acknowledged nor rejected.
    fn acknowledge(&mut self, count: usize) -> BoxFuture<'_, Result<(), String>>;

    /// Tells the broker that the messages in hand are still being dealt with, and finds out whether it is there: at once, or
    /// by the time that this is called again.
    fn check(&mut self) -> BoxFuture<'_, Result<(), String>>;

    /// Ends the connection in order, so that what is not acknowledged is delivered to others at once.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// How much waits in a broker's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Waiting {
    messages: u64,
    /// Where the broker says so.
    bytes: Option<u64>,
}

/// A task that ends when the queue is closed.
#[derive(Debug)]
struct Worker(Mutex<Option<JoinHandle<()>>>);

impl Worker {
    fn start(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Mutex::new(Some(tokio::spawn(task))))
    }

    fn handle(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it has ended, and ends it if it does not.
    async fn finish(&self) {
        let handle = self.handle().take();
        if let Some(mut handle) = handle
            && timeout(LAST, &mut handle).await.is_err()
        {
            handle.abort();
        }
    }

    fn has_ended(&self) -> bool {
        self.handle().as_ref().is_some_and(JoinHandle::is_finished)
    }
}

/// What a queue in a broker is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Entries are put into it; and taken out of it, too, if `collects`. It is made if it is not there, for so many bytes.
    Gateway { most_bytes: u64, collects: bool },
    /// Entries are only taken out of it.
    Collector,
}

#[derive(Debug)]
pub(crate) struct BrokerQueue {
    shared: Arc<Shared>,
    publishing: Option<Publishing>,
    receiving: Option<Receiving>,
    looking: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    broker: Box<dyn Broker>,
    /// Its address, for people.
    address: String,
    metrics: Arc<Metrics>,
    most_bytes: u64,
    /// Whether nothing more is put into the queue or taken out of it, and then whether nothing more will be stored, which the
    /// tasks notice.
    closed: watch::Sender<bool>,
    finished: watch::Sender<bool>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Waiting,
    /// Whether that could be asked when it was last to be.
    is_known: bool,
    /// Why nothing can be published, and why nothing can be received.
    unpublished: Option<String>,
    unreceived: Option<String>,
    /// When the broker last refused a message for want of room, and how many messages waited then, once that was asked.
    full: Option<(Instant, Option<u64>)>,
}

impl Use {
    /// The size with which the queue is made; none for whoever does not make it.
    fn most_bytes(self) -> Option<u64> {
        match self {
            Self::Gateway { most_bytes, .. } => Some(most_bytes),
            Self::Collector => None,
        }
    }
}

/// What is told of a broker that says nothing.
fn silent() -> String {
    format!("the broker does not answer within {} s", PATIENCE.as_secs())
}

/// What a request to the broker comes to, if that is known in time.
async fn in_time<T>(request: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    timeout(PATIENCE, request).await.unwrap_or_else(|_| Err(silent()))
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    fn is_finished(&self) -> bool {
        *self.finished.borrow()
    }

    /// Notes how much waits: a full queue has room again when fewer messages do than when it was full. It may have been
    /// emptied before anybody looked; then it is tried again after a while.
    fn note_waiting(&self, waiting: Waiting) {
        let state = &mut *self.state();
        state.is_known = true;
        let before = std::mem::replace(&mut state.waiting, waiting);
        state.full = match state.full {
            Some((at, _)) if at.elapsed() >= STILL_FULL => None,
            Some((_, Some(then))) if waiting.messages < then || waiting.messages == 0 => None,
            Some((at, None)) => Some((at, Some(waiting.messages.max(before.messages)))),
            full => full,
        };
    }

    fn note_full(&self) {
        let state = &mut *self.state();
        state.full = Some((Instant::now(), state.full.and_then(|(_, then)| then)));
    }

    /// Asks once a second how much waits.
    async fn keep_looking(self: Arc<Self>) {
        let mut gauge = None;
        loop {
            let waiting = in_time(async {
                let open = match &mut gauge {
                    Some(open) => open,
                    none => none.insert(self.broker.gauge().await?),
                };
                open.waiting().await
            });
            if let Ok(waiting) = waiting.await {
                self.note_waiting(waiting);
            } else {
                // the other connections tell why
                gauge = None;
                self.state().is_known = false;
            }
            sleep(LOOK).await;
        }
    }
}

/// Opens the queue of this name in the broker at an address. Returns what the queue is, in words.
async fn open(address: &Address, name: &str, for_what: Use) -> Result<(Box<dyn Broker>, String), Error> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_name) {
        return Err(Error::Usage(format!(
            "\"{name}\" is not a valid name for a queue: use up to 64 letters, digits, _ and -"
        )));
    }
    match address.scheme.as_str() {
        #[cfg(feature = "rabbitmq")]
        "amqp" => rabbitmq::RabbitMq::open(address, name, for_what).await,
        #[cfg(feature = "nats")]
        "nats" => nats::Nats::open(address, name, for_what).await,
        other => {
            let _ = for_what;
            Err(Error::Usage(format!(
                "a queue is on disk, in memory, or in a broker that is in this build; {other} is not one of these\n  \
                 remedy: --queue disk, amqp://USER@HOST:5672/VHOST or nats://USER@HOST:4222"
            )))
        }
    }
}

impl BrokerQueue {
    /// Opens the queue, and returns what it is, in words.
    pub(crate) async fn open(
        address: &Address,
        name: &str,
        for_what: Use,
        metrics: Arc<Metrics>,
    ) -> Result<(Self, String), Error> {
        let (broker, about) = open(address, name, for_what).await?;
        Ok((Self::on(broker, address.to_string(), for_what, metrics), about))
    }

    fn on(broker: Box<dyn Broker>, address: String, for_what: Use, metrics: Arc<Metrics>) -> Self {
        let (publishes, receives) = match for_what {
            Use::Gateway { collects, .. } => (true, collects),
            Use::Collector => (false, true),
        };
        let shared = Arc::new(Shared {
            broker,
            address,
            metrics,
            most_bytes: for_what.most_bytes().unwrap_or_default(),
            closed: watch::Sender::new(false),
            finished: watch::Sender::new(false),
            state: Mutex::default(),
        });
        let publishing = publishes.then(|| Publishing::start(&shared));
        let receiving = receives.then(|| Receiving::start(&shared));
        let looking = tokio::spawn(Arc::clone(&shared).keep_looking());
        Self { shared, publishing, receiving, looking }
    }

    /// Puts a record of at most [`RECORD`] bytes into the queue, and returns when the broker has it.
    pub(super) async fn put(&self, record: Record) -> Result<(), PutError> {
        match &self.publishing {
            Some(publishing) => publishing.put(&self.shared, record).await,
            None => Err(PutError::Closed),
        }
    }

    pub(super) async fn take(&self, most: usize, linger: Duration) -> Option<Batch> {
        self.receiving.as_ref()?.take(&self.shared, most, linger).await
    }

    pub(super) fn stored(&self, batch: &Batch) {
        if let Some(receiving) = &self.receiving {
            receiving.stored(batch);
        }
    }

    /// Takes nothing more from clients or from the broker. What has come is still to be stored.
    pub(super) fn close(&self) {
        self.shared.closed.send_replace(true);
        if let Some(receiving) = &self.receiving {
            receiving.close();
        }
    }

    /// Waits until clients are answered, and the broker knows what is stored: nothing more will be.
    pub(super) async fn finish(&self) {
        self.close();
        self.shared.finished.send_replace(true);
        if let Some(publishing) = &self.publishing {
            publishing.worker.finish().await;
        }
        if let Some(receiving) = &self.receiving {
            receiving.worker.finish().await;
        }
        self.looking.abort();
    }

    pub(super) fn depth(&self) -> Depth {
        let (Waiting { messages, bytes }, is_stale) = {
            let state = self.shared.state();
            (state.waiting, !state.is_known)
        };
        let (entries, oldest) = self.receiving.as_ref().map_or((0, None), Receiving::held);
        Depth {
            entries,
            messages: Some(messages),
            is_stale,
            bytes,
            most_bytes: self.shared.most_bytes,
            oldest,
        }
    }

    /// Why nothing is taken from clients at present; of a queue that is only collected from: why it cannot be.
    pub(super) fn trouble(&self) -> Option<String> {
        let state = self.shared.state();
        if self.publishing.is_none() {
            return state.unreceived.clone();
        }
        state.unpublished.clone().or_else(|| state.full.map(|_| FULL.to_owned()))
    }

    /// Why nothing can be received at present.
    pub(super) fn unread(&self) -> Option<String> {
        self.shared.state().unreceived.clone()
    }

    pub(super) fn has_ended(&self) -> bool {
        let publishing = self.publishing.as_ref().map(|publishing| &publishing.worker);
        let receiving = self.receiving.as_ref().map(|receiving| &receiving.worker);
        let has_ended = publishing.into_iter().chain(receiving).any(Worker::has_ended);
        !self.shared.is_closed() && (has_ended || self.looking.is_finished())
    }
}

impl Drop for BrokerQueue {
    fn drop(&mut self) {
        self.close();
        self.looking.abort();
    }
}
