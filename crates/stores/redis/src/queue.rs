//! The queue on Redis: a stream with one group of consumers.

use std::{
    collections::{HashSet, VecDeque},
    mem,
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
use redis::{Cmd, Pipeline, cmd, pipe};

use crate::{
    Redis, keys,
    protocol::{Connection, Error, Reply, nonsense, pairs},
    server::{ConnectOptions, Request, attempt, ended},
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
            "--persistent false is unavailable, as a stream is as durable as its server: choose --durability none",
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
            let found = connection.ask(cmd("EXISTS").arg(&key)).await.and_then(Reply::flag);
            if found.map_err(&failed)? {
                return Err(StoreError::Server {
                    doing: doing.to_owned(),
                    address: self.server.address(),
                    cause: format!("the key \"{key}\" exists already"),
                });
            }
            let mut create = cmd("XGROUP");
            create.arg("CREATE").arg(&key).arg(GROUP).arg(0).arg("MKSTREAM");
            connection.ask(&create).await.map(drop).map_err(failed)
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
            let removed = connection.ask(cmd("UNLINK").arg(key(place))).await;
            removed.map(drop).map_err(self.server.failed("removing the queue"))
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
async fn depth(connection: &mut Connection, key: &str) -> Result<Depth, Error> {
    let groups = match connection.ask(cmd("XINFO").arg("GROUPS").arg(key)).await {
        // a server that lost its data has no stream either
        Err(Error::Answered(error)) if error.to_string().contains("no such key") => {
            return Ok(Depth::default());
        }
        groups => groups?,
    };
    let Some(group) = groups.array()?.next() else { return Ok(Depth::default()) };
    let (mut unacknowledged, mut last) = (Reply::Nil, Reply::Nil);
    for [name, value] in pairs(group)? {
        match name.text()? {
            b"pending" => unacknowledged = value,
            b"last-delivered-id" => last = value,
            _ => {}
        }
    }
    let (unacknowledged, mut last) = (unacknowledged.integer()?, last.string()?);
    let mut ready = 0;
    loop {
        let mut range = cmd("XRANGE");
        range.arg(key).arg(format!("({last}")).arg("+").arg("COUNT").arg(COUNTED);
        let entries = connection.ask(&range).await?.array()?;
        ready += entries.len() as u64;
        match entries.map(entry).last() {
            Some(entry) => last = entry?.0,
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
        let mut connection = self.server.connect_client().await?;
        let way = match self.wanted.delivery.ack {
            Ack::None => {
                let silence = connection.push_unanswered(cmd("CLIENT").arg("REPLY").arg("OFF"));
                silence.map_err(|error| error.to_string())?;
                PublishMethod::Silent(connection)
            }
            Ack::Confirm => PublishMethod::Answered(connection),
            Ack::Transaction => PublishMethod::Transaction(Session::new(connection), pipe()),
        };
        let (key, add) = (self.key.clone(), Cmd::new());
        Ok(RedisPublisher { way, key, add, open: 0, numbers: MessageNumbers::default(), unsent: None })
    }

    async fn subscriber(&self) -> Result<RedisSubscriber, String> {
        let words = |error: Error| error.to_string();
        let connection = self.server.connect_client().await?;
        let mut session = Session::new(connection);
        let number = session.ask(cmd("CLIENT").arg("ID")).await.and_then(Reply::integer::<u64>);
        let name = format!("client-{}", number.map_err(words)?);
        // fails here if the stream is gone, as nobody can consume from it
        session.ask(cmd("XINFO").arg("GROUPS").arg(&self.key)).await.map_err(words)?;
        Ok(RedisSubscriber {
            session,
            key: self.key.clone(),
            consume: self.wanted.delivery.consume,
            wanted: self.wanted,
            name,
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
    Silent(Connection),
    /// With a reply for each message.
    Answered(Connection),
    /// Several messages in one transaction.
    Transaction(Session, Pipeline),
}

/// A producer's connection, with the messages that have no outcome yet.
pub struct RedisPublisher {
    way: PublishMethod,
    key: String,
    /// The current command, kept to reuse its memory.
    add: Cmd,
    /// How many messages have been sent and have no outcome yet.
    open: usize,
    numbers: MessageNumbers,
    /// How many messages were not sent because the connection had ended, and why it had.
    unsent: Option<(usize, Fault)>,
}

/// The outcome of a nil reply: with `NOMKSTREAM`, it says that there is no stream.
fn no_stream() -> Attempt {
    Attempt::Failed(Fault::answered("the stream no longer exists"))
}

impl Publisher for RedisPublisher {
    async fn send(&mut self, message: &Message) -> Result<(), Fault> {
        if let Some((messages, _)) = &mut self.unsent {
            *messages += 1;
            return Ok(());
        }
        self.open += 1;
        self.add.clear();
        self.add.arg("XADD").arg(&self.key).arg("NOMKSTREAM").arg("*").arg(FIELD).arg(&message.body);
        let (pushed, connection) = match &mut self.way {
            PublishMethod::Silent(connection) => (connection.push_unanswered(&self.add), connection),
            PublishMethod::Answered(connection) => (connection.push(&self.add), connection),
            PublishMethod::Transaction(_, batch) => {
                batch.add_command(self.add.clone());
                return Ok(());
            }
        };
        // if the connection has ended, the next `settle` says what has become of each message
        if let Err(error) = pushed {
            self.open -= 1;
            self.unsent = Some((1, fault(&error)));
        } else if connection.unwritten() >= WRITTEN_AT_ONCE {
            let _ = connection.flush().await;
        }
        Ok(())
    }

    async fn settle(&mut self, ended: &mut Vec<Completion>) -> Result<(), Fault> {
        match &mut self.way {
            PublishMethod::Silent(connection) => {
                connection.flush().await.map_err(|error| fault(&error))?;
                self.numbers.end(mem::take(&mut self.open), Attempt::Ok, ended)
            }
            PublishMethod::Answered(connection) => {
                let mut settled = Ok(());
                for answer in connection.some_answers().await {
                    let attempt = match answer {
                        Ok(Reply::Nil) => no_stream(),
                        Ok(_) => Attempt::Ok,
                        Err(error) => attempt(&error, Request::Change),
                    };
                    self.open = self.open.saturating_sub(1);
                    settled = settled.and(self.numbers.end(1, attempt, ended));
                }
                if let Some((messages, fault)) = self.unsent.take() {
                    settled = settled.and(self.numbers.end(messages, Attempt::Failed(fault), ended));
                }
                settled
            }
            PublishMethod::Transaction(session, batch) => {
                let attempt = match session.exec(batch, Request::Change).await {
                    Ok(Some(answers)) if !answers.clone().any(|answer| answer == Reply::Nil) => Attempt::Ok,
                    Ok(_) => no_stream(),
                    Err(attempt) => attempt,
                };
                batch.clear();
                self.numbers.end(mem::take(&mut self.open), attempt, ended)
            }
        }
    }

    /// Waits until the server has read the commands that it does not reply to.
    async fn close(&mut self) {
        if let PublishMethod::Silent(connection) = &mut self.way
            // an error can no longer be reported to anyone
            && connection.push(cmd("CLIENT").arg("REPLY").arg("ON")).is_ok()
        {
            connection.some_answers().await;
        }
    }
}

/// An entry of a stream: its id, and the value of its only field.
type Entry = (String, Vec<u8>);

fn entry(reply: Reply<'_>) -> Result<Entry, Error> {
    let [id, fields] = reply.exactly()?;
    let [_, body] = fields.exactly()?;
    Ok((id.string()?, body.text()?.to_vec()))
}

/// The entries of the only stream that was read; none if there was nothing to be read.
fn entries(reply: Reply<'_>) -> Result<Vec<Entry>, Error> {
    if reply == Reply::Nil {
        return Ok(Vec::new());
    }
    let [stream] = reply.exactly()?;
    let [_, entries] = stream.exactly()?;
    entries.array()?.map(entry).collect()
}

/// Where a search for messages of silent consumers goes on, and the entries that were claimed. Redis 6.2 shows deleted
/// ones as nil, and 7.0 has a third value.
fn claimed(reply: Reply<'_>) -> Result<(String, Vec<Entry>), Error> {
    let mut values = reply.array()?;
    let mut next = || values.next().ok_or_else(nonsense);
    let (cursor, entries) = (next()?.string()?, next()?.array()?);
    let entries = entries.filter(|each| *each != Reply::Nil).map(entry);
    Ok((cursor, entries.collect::<Result<_, _>>()?))
}

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
        let delete = self.delete_gone();
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP").arg(GROUP).arg(&self.name);
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
        let mut batch = self.session.batch().map_err(ended(request))?;
        for command in delete.iter().chain([&read]) {
            batch.push(command).map_err(ended(request))?;
        }
        let mut answers = batch.answers().await;
        let is_deleted = delete.is_some() && answers.reply().is_ok();
        let read = answers.reply().and_then(entries);
        if is_deleted {
            self.gone.clear();
        }
        self.await_taking(start, read.map_err(ended(request))?, false);
        Ok(())
    }

    /// Claims messages of consumers that have been silent for longer than [`LEASE`].
    async fn claim(&mut self) -> Step<()> {
        let mut claim = cmd("XAUTOCLAIM");
        claim.arg(&self.key).arg(GROUP).arg(&self.name).arg(LEASE.as_millis()).arg(&self.cursor);
        claim.arg("COUNT").arg(self.room());
        let start = Instant::now();
        let answer = self.session.ask(&claim).await.and_then(claimed);
        self.claimed = start;
        let (cursor, entries) = answer.map_err(ended(Request::Harmless))?;
        self.cursor = cursor;
        self.await_taking(start, entries, true);
        Ok(())
    }

    fn await_taking(&mut self, start: Instant, entries: Vec<Entry>, redelivered: bool) {
        if self.held.is_empty() && self.waiting.is_empty() {
            self.since = start;
        }
        let waiting = entries.into_iter().map(|(id, body)| PendingMessage { id, body, redelivered });
        self.waiting.extend(waiting);
        if self.consume == Consume::Auto {
            self.gone.extend(self.waiting.iter().map(|waiting| waiting.id.clone()));
        }
    }

    /// The command that deletes the messages that were handed out, if there are any.
    fn delete_gone(&self) -> Option<Cmd> {
        let mut delete = cmd("XDEL");
        delete.arg(&self.key).arg(&self.gone);
        (!self.gone.is_empty()).then_some(delete)
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
    async fn claim_again(&mut self, idle: Duration) -> Result<HashSet<String>, Error> {
        let (key, name) = (&self.key, &self.name);
        let (held, waiting) =
            (&self.held, self.waiting.iter().map(|waiting| &waiting.id).collect::<Vec<_>>());
        let arguments = |call: &mut Cmd| {
            call.arg(1).arg(key).arg(GROUP).arg(name).arg(idle.as_millis()).arg(held).arg(&waiting);
        };
        self.session.run(&KEEP, arguments).await.and_then(Reply::array)?.map(Reply::string).collect()
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

fn fault(error: &Error) -> Fault {
    fault_of(attempt(error, Request::Change))
}

/// The fault of an attempt that has one.
fn fault_of(attempt: Attempt) -> Fault {
    match attempt {
        Attempt::Failed(fault) | Attempt::Unknown(fault) => fault,
        Attempt::Ok | Attempt::Refused | Attempt::Conflict => fault(&nonsense()),
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

    async fn settle(&mut self) -> Result<AckAnswer, Attempt> {
        if self.held.is_empty() {
            return Ok(AckAnswer::Answered);
        }
        let mut both = pipe();
        both.cmd("XACK").arg(&self.key).arg(GROUP).arg(&self.held);
        both.cmd("XDEL").arg(&self.key).arg(&self.held);
        let acknowledged = if self.consume == Consume::Transaction {
            let done = self.session.exec(&both, Request::Change).await?;
            // nothing is watched
            let mut done = done.ok_or_else(|| attempt(&nonsense(), Request::Change))?;
            done.next().unwrap_or(Reply::Nil).integer()
        } else {
            let answers = self.session.ask_all(&both).await;
            answers.map_err(|error| attempt(&error, Request::Change))?.reply().and_then(Reply::integer)
        };
        // what is wrong with the first answer says nothing of the second
        let acknowledged: u64 =
            acknowledged.map_err(|error| attempt(&error, Request::Change).after_a_part())?;
        let held = mem::take(&mut self.held).len() as u64;
        // the answer does not say why others are missing: other consumers acknowledged them, or the server does
        // not know them
        Ok(if acknowledged == held { AckAnswer::Answered } else { AckAnswer::Read })
    }

    /// Gives back the messages in `waiting`, so that others can claim them at once.
    async fn stop(&mut self) -> Result<(), Fault> {
        self.stopped = true;
        let done = if self.consume == Consume::Auto {
            let Some(delete) = self.delete_gone() else { return Ok(()) };
            let deleted = self.session.ask(&delete).await.map(drop);
            self.gone.clear();
            deleted
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

#[cfg(test)]
mod tests {
    use acidtest_model::Address;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        time::sleep,
    };

    use super::*;

    async fn flush(producer: &mut RedisPublisher) {
        let PublishMethod::Answered(connection) = &mut producer.way else { panic!() };
        connection.flush().await.unwrap();
    }

    /// What the server answered before it reset the connection counts, also where it is sending that fails first; and what was
    /// not sent has failed.
    #[tokio::test]
    async fn what_was_answered_before_the_end_is_published() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::parse(&format!("redis://{}", listener.local_addr().unwrap())).unwrap();
        let options = ConnectOptions::new(&address, 6379).unwrap();
        let serving = async {
            let (mut server, _) = listener.accept().await.unwrap();
            assert!(server.read(&mut [0; 1024]).await.unwrap() > 0);
            server.write_all(b"+PONG\r\n").await.unwrap();
            server
        };
        let (connection, mut server) = tokio::join!(options.connect(), serving);
        let way = PublishMethod::Answered(connection.unwrap());
        let numbers = MessageNumbers::default();
        let mut producer =
            RedisPublisher { way, key: "queue".to_owned(), add: Cmd::new(), open: 0, numbers, unsent: None };
        let small = Message { body: vec![7; 100] };
        producer.send(&small).await.unwrap();
        flush(&mut producer).await;
        assert!(server.read(&mut [0; 1024]).await.unwrap() > 0);
        server.write_all(b"$3\r\n1-1\r\n").await.unwrap();
        // it does not read this one, and so resets the connection
        producer.send(&small).await.unwrap();
        flush(&mut producer).await;
        drop(server);
        sleep(Duration::from_millis(50)).await;
        // written at once, which fails
        producer.send(&Message { body: vec![7; WRITTEN_AT_ONCE] }).await.unwrap();
        producer.send(&small).await.unwrap();
        let mut ended = Vec::new();
        assert!(producer.settle(&mut ended).await.unwrap_err().connection_lost);
        let [first, third, fourth] = &ended[..] else { panic!("{ended:?}") };
        assert_eq!(*first, Completion { number: 0, attempt: Attempt::Ok });
        assert!(matches!(third, Completion { number: 2, attempt: Attempt::Failed(_) }), "{ended:?}");
        assert!(matches!(fourth, Completion { number: 3, attempt: Attempt::Failed(_) }), "{ended:?}");
    }
}
