//! The queue on Redis: a stream with one group of consumers.

mod wire;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io, mem,
    sync::LazyLock,
    time::{Duration, Instant},
};

use acidtest_engine::{Attempt, Completion, Fault};
use acidtest_model::{StoreError, Task};
use acidtest_workloads::{
    Place,
    queue::{
        Ack, AckAnswer, Connector, Consume, Delivery, Depth, Message, MessageNumbers, Publisher,
        QueueAdapter, QueueKind, ReceivedMessage, Requirements, Subscriber,
    },
};
use redis::{Cmd, FromRedisValue, Pipeline, RedisError, RedisResult, Value, cmd, pipe};

use crate::{
    Redis, keys,
    queue::wire::{Reply, Wire},
    server::{ConnectOptions, Connection, Request, attempt, ended},
    session::{Script, Session, Step},
};

/// The group to which all consumers belong.
const GROUP: &str = "consumers";

/// The field of an entry that holds the message.
const FIELD: &str = "m";

/// How long a message stays with a consumer that has fallen silent: `XAUTOCLAIM`'s least idle time. A consumer at
/// work claims the messages that it holds again after half of this time.
const LEASE: Duration = Duration::from_secs(2);

static KEEP: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("queue/keep.lua")));

/// Bytes that a producer gathers before it writes them to the socket.
const WRITTEN_AT_ONCE: usize = 64 * 1024;

/// Entries read in one round trip while they are counted.
const COUNTED: usize = 1000;

/// The reason why Redis cannot deliver messages in this way; `None` if it can.
pub(crate) fn refuses(delivery: &Delivery) -> Option<&'static str> {
    if !delivery.persistent {
        return Some(
            "--persistent false is not to be had, because a stream is as durable as its server: choose --durability none",
        );
    }
    if delivery.queue != QueueKind::Default {
        return Some("it has one kind of stream: leave --queue at default");
    }
    if delivery.replicas > 1 {
        return Some("one server is driven: leave --replicas at 1");
    }
    delivery
        .deduplicate
        .then_some("a stream takes an entry as often as it is added: leave --deduplicate false")
}

/// The key of the trial's stream.
fn key(place: &Place) -> String {
    format!("{}{}", keys::prefix(&place.namespace), place.object("queue"))
}

impl QueueAdapter for Redis {
    type Connector = RedisConnector;

    fn connector(&self, place: &Place, wanted: &Requirements) -> RedisConnector {
        RedisConnector { server: self.server.clone(), key: key(place), wanted: *wanted }
    }

    fn declare<'a>(&'a self, place: &'a Place, _: &'a Requirements) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let (key, doing) = (key(place), "declaring the queue");
            let failed = self.server.failed(doing);
            let mut connection = self.server.reach().await?;
            let found: bool = cmd("EXISTS").arg(&key).query_async(&mut connection).await.map_err(&failed)?;
            if found {
                return Err(StoreError::Server {
                    doing: doing.to_owned(),
                    address: self.server.address(),
                    cause: format!("the key \"{key}\" exists already"),
                });
            }
            let mut create = cmd("XGROUP");
            create.arg("CREATE").arg(&key).arg(GROUP).arg(0).arg("MKSTREAM");
            create.exec_async(&mut connection).await.map_err(failed)
        })
    }

    fn depth<'a>(&'a self, place: &'a Place, _: &'a Requirements) -> Task<'a, Result<Depth, StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            depth(&mut connection, &key(place)).await.map_err(self.server.failed("reading the queue's depth"))
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            let removed = cmd("UNLINK").arg(key(place)).exec_async(&mut connection).await;
            removed.map_err(self.server.failed("removing the queue"))
        })
    }

    /// A producer's entries are added in the order in which they are sent, and handed out in the order of their
    /// ids, which ascend.
    fn keeps_order(&self, _: &Requirements) -> bool {
        true
    }
}

/// Counts the entries that the group has yet to receive, and those that it holds. The server's own count of the
/// former, `lag`, is unknown or wrong once entries were deleted.
async fn depth(connection: &mut Connection, key: &str) -> RedisResult<Depth> {
    let groups: RedisResult<Vec<HashMap<String, Value>>> =
        cmd("XINFO").arg("GROUPS").arg(key).query_async(connection).await;
    let groups = match groups {
        // a server that lost its data has no stream either
        Err(error) if error.to_string().contains("no such key") => return Ok(Depth::default()),
        groups => groups?,
    };
    let Some(mut group) = groups.into_iter().next() else { return Ok(Depth::default()) };
    let mut field = |name: &str| group.remove(name).unwrap_or(Value::Nil);
    let unacknowledged = u64::from_redis_value(field("pending"))?;
    let mut last = String::from_redis_value(field("last-delivered-id"))?;
    let mut ready = 0;
    loop {
        let mut range = cmd("XRANGE");
        range.arg(key).arg(format!("({last}")).arg("+").arg("COUNT").arg(COUNTED);
        let entries: Vec<Entry> = range.query_async(connection).await?;
        ready += entries.len() as u64;
        match entries.into_iter().next_back() {
            Some((id, _)) => last = id,
            None => return Ok(Depth { ready, unacknowledged }),
        }
    }
}

/// Opens producers' and consumers' connections to a trial's stream.
pub struct RedisConnector {
    server: ConnectOptions,
    key: String,
    wanted: Requirements,
}

impl Connector for RedisConnector {
    type Publisher = RedisPublisher;
    type Subscriber = RedisSubscriber;

    async fn publisher(&self) -> Result<RedisPublisher, String> {
        let way = match self.wanted.delivery.ack {
            Ack::None => PublishMethod::Silent(Wire::open(&self.server, false).await?),
            Ack::Confirm => PublishMethod::Answered(Wire::open(&self.server, true).await?),
            Ack::Transaction => {
                let connection = self.server.connect().await.map_err(|error| error.to_string())?;
                let mut batch = pipe();
                batch.atomic();
                PublishMethod::Transaction(Session::new(connection), batch)
            }
        };
        Ok(RedisPublisher { way, key: self.key.clone(), open: 0, numbers: MessageNumbers::default() })
    }

    async fn subscriber(&self) -> Result<RedisSubscriber, String> {
        let words = |error: RedisError| error.to_string();
        let mut session = Session::new(self.server.connect().await.map_err(words)?);
        let number: u64 = session.ask(cmd("CLIENT").arg("ID")).await.map_err(words)?;
        // fails here if the stream is gone, as nobody can consume from it
        session.ask::<Value>(cmd("XINFO").arg("GROUPS").arg(&self.key)).await.map_err(words)?;
        Ok(RedisSubscriber {
            session,
            key: self.key.clone(),
            consume: self.wanted.delivery.consume,
            wanted: self.wanted,
            name: format!("client-{number}"),
            waiting: VecDeque::new(),
            held: Vec::new(),
            gone: Vec::new(),
            since: Instant::now(),
            claimed: Instant::now(),
            cursor: FROM_THE_FIRST.to_owned(),
            stopped: false,
        })
    }
}

/// How a producer's messages reach the server, which depends on how they are acknowledged.
enum PublishMethod {
    /// With the server's replies switched off.
    Silent(Wire),
    /// With a reply for each message.
    Answered(Wire),
    /// Several messages in one transaction.
    Transaction(Session, Pipeline),
}

/// A producer's connection, with the messages that have no outcome yet.
pub struct RedisPublisher {
    way: PublishMethod,
    key: String,
    /// How many messages have been sent and have no outcome yet.
    open: usize,
    numbers: MessageNumbers,
}

/// The outcome of a nil reply: with `NOMKSTREAM`, it says that there is no stream.
fn no_stream() -> Attempt {
    Attempt::Failed(Fault::answered("there is no such stream any more"))
}

fn lost(error: &io::Error) -> Fault {
    Fault::lost(error.to_string())
}

impl Publisher for RedisPublisher {
    async fn send(&mut self, message: &Message) -> Result<(), Fault> {
        self.open += 1;
        match &mut self.way {
            PublishMethod::Silent(wire) | PublishMethod::Answered(wire) => {
                let key = self.key.as_bytes();
                wire.push(&[b"XADD", key, b"NOMKSTREAM", b"*", FIELD.as_bytes(), &message.body]);
                if wire.unwritten() >= WRITTEN_AT_ONCE {
                    wire.flush().await.map_err(|error| lost(&error))?;
                }
            }
            PublishMethod::Transaction(_, batch) => {
                let add = batch.cmd("XADD").arg(&self.key).arg("NOMKSTREAM").arg("*").arg(FIELD);
                add.arg(&message.body);
            }
        }
        Ok(())
    }

    async fn settle(&mut self, ended: &mut Vec<Completion>) -> Result<(), Fault> {
        match &mut self.way {
            PublishMethod::Silent(wire) => {
                wire.flush().await.map_err(|error| lost(&error))?;
                self.numbers.end(mem::take(&mut self.open), Attempt::Ok, ended)
            }
            PublishMethod::Answered(wire) => {
                wire.flush().await.map_err(|error| lost(&error))?;
                let before = ended.len();
                loop {
                    while let Some(reply) = wire.reply().map_err(|error| lost(&error))? {
                        let attempt = match reply {
                            Reply::Done => Attempt::Ok,
                            Reply::Nil => no_stream(),
                            Reply::Error(words) => Attempt::Failed(Fault::answered(words)),
                        };
                        let more = self.open.checked_sub(1);
                        self.open = more.ok_or_else(|| Fault::lost("an answer to nothing that was asked"))?;
                        self.numbers.end(1, attempt, ended)?;
                    }
                    if ended.len() > before || self.open == 0 {
                        return Ok(());
                    }
                    wire.read().await.map_err(|error| lost(&error))?;
                }
            }
            PublishMethod::Transaction(session, batch) => {
                let done = session.exec(batch).await;
                batch.clear();
                let attempt = match done {
                    Ok(Some(answers)) if !answers.contains(&Value::Nil) => Attempt::Ok,
                    Ok(_) => no_stream(),
                    Err(attempt) => attempt,
                };
                self.numbers.end(mem::take(&mut self.open), attempt, ended)
            }
        }
    }

    /// Waits until the server has read the commands that it does not reply to.
    async fn close(&mut self) {
        if let PublishMethod::Silent(wire) = &mut self.way {
            // an error can no longer be reported to anyone
            let _ = wire.end_silence().await;
        }
    }
}

/// An entry of a stream: its id, and its only field with the value.
type Entry = (String, (Value, Vec<u8>));

/// The result of reading a stream: its key, and entries.
type Stream = (Value, Vec<Entry>);

/// The cursor from which a search for messages of silent consumers begins.
const FROM_THE_FIRST: &str = "0-0";

/// A message that was read from the server and not taken by the client yet.
struct PendingMessage {
    id: String,
    body: Vec<u8>,
    redelivered: bool,
}

/// A consumer's connection, which is a consumer of the group.
pub struct RedisSubscriber {
    session: Session,
    key: String,
    consume: Consume,
    wanted: Requirements,
    /// The name by which the group knows this consumer.
    name: String,
    waiting: VecDeque<PendingMessage>,
    /// Ids of the messages that were taken and not acknowledged.
    held: Vec<String>,
    /// Ids of the messages that were handed out, to be deleted; used only where nothing is acknowledged.
    gone: Vec<String>,
    /// When all messages in `waiting` and `held` were last known to belong to this consumer.
    since: Instant,
    /// When this consumer last searched for messages of silent ones.
    claimed: Instant,
    /// How far that search has come.
    cursor: String,
    stopped: bool,
}

impl RedisSubscriber {
    /// Fills `waiting` if there are messages to be had.
    async fn fetch(&mut self, patience: Duration) -> Step<()> {
        let acknowledges = self.consume != Consume::Auto;
        // without this, messages of consumers that died would wait until no new ones come
        if acknowledges && self.claimed.elapsed() >= LEASE {
            self.claim().await?;
        }
        if self.waiting.is_empty() {
            self.read(patience).await?;
        }
        if self.waiting.is_empty() && acknowledges {
            self.claim().await?;
        }
        Ok(())
    }

    /// How many more messages this consumer may hold.
    fn room(&self) -> u32 {
        let held = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        self.wanted.at_once(self.wanted.delivery.prefetch.saturating_sub(held).max(1))
    }

    /// Reads new messages. Where nothing is acknowledged, the same round trip deletes the messages that were
    /// handed out before.
    async fn read(&mut self, patience: Duration) -> Step<()> {
        let mut batch = pipe();
        self.delete_gone(&mut batch);
        let read = batch.cmd("XREADGROUP").arg("GROUP").arg(GROUP).arg(&self.name);
        read.arg("COUNT").arg(self.room());
        // BLOCK 0 would wait for ever
        if !patience.is_zero() {
            read.arg("BLOCK").arg(patience.as_millis().max(1));
        }
        let request = if self.consume == Consume::Auto {
            read.arg("NOACK");
            // with NOACK a message counts as delivered when it is handed out, whether it arrives or not
            Request::Change
        } else {
            Request::Harmless
        };
        read.arg("STREAMS").arg(&self.key).arg(">");
        let start = Instant::now();
        let answer: RedisResult<(Option<Vec<Stream>>,)> =
            batch.query_async(&mut self.session.connection).await;
        let (streams,) = answer.map_err(ended(request))?;
        let entries = streams.into_iter().flatten().flat_map(|(_, entries)| entries);
        self.await_taking(start, entries, false);
        Ok(())
    }

    /// Claims messages of consumers that have been silent for longer than [`LEASE`].
    async fn claim(&mut self) -> Step<()> {
        let mut claim = cmd("XAUTOCLAIM");
        claim.arg(&self.key).arg(GROUP).arg(&self.name).arg(LEASE.as_millis()).arg(&self.cursor);
        claim.arg("COUNT").arg(self.room());
        let start = Instant::now();
        let answer: RedisResult<Vec<Value>> = self.session.ask(&claim).await;
        self.claimed = start;
        let mut answer = answer.map_err(ended(Request::Harmless))?.into_iter();
        // Redis 6.2 returns nil for deleted entries, and 7.0 a third value
        let read = |value: Option<Value>| value.unwrap_or(Value::Nil);
        let (cursor, entries) = (read(answer.next()), read(answer.next()));
        let parsed = String::from_redis_value(cursor)
            .and_then(|cursor| Ok((cursor, Vec::<Option<Entry>>::from_redis_value(entries)?)));
        let (cursor, entries) = parsed.map_err(|error| ended(Request::Harmless)(error.into()))?;
        self.cursor = cursor;
        self.await_taking(start, entries.into_iter().flatten(), true);
        Ok(())
    }

    fn await_taking(&mut self, start: Instant, entries: impl Iterator<Item = Entry>, redelivered: bool) {
        if self.held.is_empty() && self.waiting.is_empty() {
            self.since = start;
        }
        let waiting = entries.map(|(id, (_, body))| PendingMessage { id, body, redelivered });
        self.waiting.extend(waiting);
        if self.consume == Consume::Auto {
            self.gone.extend(self.waiting.iter().map(|waiting| waiting.id.clone()));
        }
    }

    fn delete_gone(&mut self, batch: &mut Pipeline) {
        if !self.gone.is_empty() {
            batch.cmd("XDEL").arg(&self.key).arg(mem::take(&mut self.gone)).ignore();
        }
    }

    /// Renews the claim on messages in `held` and `waiting` before others can claim them. Messages that others
    /// have claimed already are dropped from `waiting`.
    async fn keep(&mut self) -> Step<()> {
        let in_hand = self.held.len() + self.waiting.len();
        if in_hand == 0 || self.since.elapsed() < LEASE / 2 {
            return Ok(());
        }
        let start = Instant::now();
        let own = self.claim_again(Duration::ZERO).await.map_err(ended(Request::Harmless))?;
        self.waiting.retain(|waiting| own.contains(&waiting.id));
        self.since = start;
        Ok(())
    }

    /// Claims all messages in `held` and `waiting` that others have not claimed, setting their idle time to
    /// `idle`. Returns the ids of those that belong to this consumer.
    async fn claim_again(&mut self, idle: Duration) -> RedisResult<HashSet<String>> {
        let (key, name) = (&self.key, &self.name);
        let (held, waiting) =
            (&self.held, self.waiting.iter().map(|waiting| &waiting.id).collect::<Vec<_>>());
        let arguments = |call: &mut Cmd| {
            call.arg(1).arg(key).arg(GROUP).arg(name).arg(idle.as_millis()).arg(held).arg(&waiting);
        };
        self.session.run(&KEEP, arguments).await
    }

    async fn next(&mut self, patience: Duration) -> Step<PendingMessage> {
        if self.consume != Consume::Auto {
            self.keep().await?;
        }
        if self.waiting.is_empty() && !self.stopped {
            self.fetch(patience).await?;
        }
        self.waiting.pop_front().ok_or(Attempt::Refused)
    }
}

fn fault(error: &RedisError) -> Fault {
    match attempt(error, Request::Change) {
        Attempt::Failed(fault) | Attempt::Unknown(fault) => fault,
        Attempt::Ok | Attempt::Refused | Attempt::Conflict => Fault::lost(error.to_string()),
    }
}

impl Subscriber for RedisSubscriber {
    async fn take(&mut self, patience: Duration, received: &mut ReceivedMessage) -> Attempt {
        match self.next(patience).await {
            Ok(PendingMessage { id, body, redelivered }) => {
                received.body = body;
                received.redelivered = Some(redelivered);
                if self.consume != Consume::Auto {
                    self.held.push(id);
                }
                Attempt::Ok
            }
            Err(ended) => ended,
        }
    }

    async fn settle(&mut self) -> Result<AckAnswer, Fault> {
        if self.held.is_empty() {
            return Ok(AckAnswer::Answered);
        }
        let mut batch = pipe();
        if self.consume == Consume::Transaction {
            batch.atomic();
        }
        batch.cmd("XACK").arg(&self.key).arg(GROUP).arg(&self.held);
        batch.cmd("XDEL").arg(&self.key).arg(&self.held);
        let done: RedisResult<(u64, u64)> = batch.query_async(&mut self.session.connection).await;
        let (acknowledged, _) = done.map_err(|error| fault(&error))?;
        let held = mem::take(&mut self.held).len() as u64;
        // the answer does not say why others are missing: other consumers acknowledged them, or the server does
        // not know them
        Ok(if acknowledged == held { AckAnswer::Answered } else { AckAnswer::Sent })
    }

    /// Gives back the messages in `waiting`, so that others can claim them at once.
    async fn stop(&mut self) -> Result<(), Fault> {
        self.stopped = true;
        let done = if self.consume == Consume::Auto {
            let mut batch = pipe();
            self.delete_gone(&mut batch);
            if batch.is_empty() {
                return Ok(());
            }
            batch.exec_async(&mut self.session.connection).await
        } else {
            if self.waiting.is_empty() {
                return Ok(());
            }
            let given_back = self.claim_again(LEASE).await;
            self.waiting.clear();
            given_back.map(drop)
        };
        done.map_err(|error| fault(&error))
    }
}
