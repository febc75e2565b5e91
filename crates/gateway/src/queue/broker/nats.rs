//! A stream of NATS JetStream in files, from which one durable consumer is pulled.

use std::{collections::VecDeque, time::Duration};

use acidtest_model::{Address, StoreError};
use acidtest_store_nats::{
    Api, ConnectOptions, KIND,
    protocol::{self, ApiError, Connection},
};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    ASIDE, Answer, Answered, Broker, Consumer, Gauge, IDLE, MESSAGE, PATIENCE, Publisher, Use, Waiting,
};
use crate::Error;

/// The durable consumer from which all collectors pull.
const DURABLE: &str = "collectors";
/// How long a collector may hold a message without a word until it is handed to another: twice as long as it says nothing.
const ACK_WAIT: Duration = IDLE.saturating_mul(2);
/// How long nothing may come that was asked for until it is looked whether the consumer is stuck: longer than messages may be
/// held by a collector that is gone.
const STUCK: Duration = IDLE.saturating_mul(3);
/// How long the server may take to remove the files of a stream that it has said to be removed. A stream that was made anew
/// before that was seen on 2.9.10 to lose its own files to it, and to take nothing ever after (error 10077).
const REMOVED: Duration = Duration::from_secs(3);
/// How many bytes are asked for at once: the server closes the connection of a slow reader.
const ASKED_BYTES: usize = 8 << 20;
/// How long the server waits for messages before it answers that there are no more.
const EXPIRES: Duration = Duration::from_secs(5);
/// JetStream's number for an error: there is no room for a stream of this size.
const NO_STORAGE: u32 = 10047;
/// The number of the request that shows that the server and the consumer are there.
const CHECK: u64 = u64::MAX;
/// Bytes that may wait to be written.
const UNWRITTEN: usize = 256 << 10;
/// What the server says in place of a message: that a request has ended.
const ENDED: [u16; 3] = [404, 408, 409];

/// A stream.
#[derive(Clone, Debug)]
pub(super) struct Nats {
    server: ConnectOptions,
    stream: String,
    /// The size with which it is made; none for whoever does not make it.
    most_bytes: Option<u64>,
}

/// What is looked at of a stream's settings and contents.
#[derive(Debug, Deserialize)]
struct StreamInfo {
    config: StreamConfig,
    state: StreamState,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct StreamConfig {
    storage: String,
    retention: String,
    discard: String,
    max_bytes: i64,
    num_replicas: u32,
    #[serde(default)]
    subjects: Vec<String>,
    /// Nanoseconds after which messages are dropped; 0 is never.
    #[serde(default)]
    max_age: u64,
    /// The most messages of a subject, beyond which the oldest is dropped; 0 and -1 are no limit.
    #[serde(default)]
    max_msgs_per_subject: i64,
    /// Whether nothing is answered, and whether nothing is taken.
    #[serde(default)]
    no_ack: bool,
    #[serde(default)]
    sealed: bool,
}

/// What is looked at of a consumer's settings.
#[derive(Debug, Deserialize)]
struct ConsumerInfo {
    config: ConsumerConfig,
    /// Messages that were not handed out, and those that were and are not acknowledged.
    #[serde(default)]
    num_pending: u64,
    #[serde(default)]
    num_ack_pending: u64,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct ConsumerConfig {
    #[serde(default)]
    ack_policy: String,
    #[serde(default)]
    max_deliver: i64,
    #[serde(default)]
    filter_subject: String,
    /// Where there is one, it is no consumer to pull from.
    #[serde(default)]
    deliver_subject: String,
}

#[derive(Debug, Deserialize)]
struct StreamState {
    messages: u64,
    bytes: u64,
}

impl Nats {
    pub(super) async fn open(
        address: &Address,
        stream: &str,
        for_what: Use,
    ) -> Result<(Box<dyn Broker>, String), Error> {
        let unreached = |error: StoreError| Error::Unreached(error.to_string());
        let server = ConnectOptions::new(address, KIND.default_port)
            .map_err(|error| Error::Usage(error.to_string()))?;
        let most_bytes = for_what.most_bytes();
        let broker = Self { server, stream: stream.to_owned(), most_bytes };
        let mut api = broker.server.reach().await.map_err(unreached)?;
        let server = api.connection().info().clone();
        if server.max_payload < MESSAGE {
            return Err(Error::Unreached(format!(
                "{address} takes messages of {} bytes at most, and some are of {}\n  remedy: max_payload: 1MB in the \
                 server's configuration, which is its default",
                server.max_payload, MESSAGE
            )));
        }
        let doing = "opening the stream";
        let info = match broker.look(&mut api).await {
            Ok(info) => info,
            Err(error) if is(&error, ApiError::STREAM_NOT_FOUND) && most_bytes.is_some() => {
                match broker.make(&mut api).await {
                    Err(error) if is(&error, NO_STORAGE) => {
                        return Err(Error::Unreached(format!(
                            "the stream {stream} cannot be made at {address}: {error}\n  remedy: a smaller --queue-size, or \
                             max_file_store in the server's configuration"
                        )));
                    }
                    made => made.map_err(|error| unreached(broker.server.failed(doing)(error)))?,
                }
            }
            Err(error) if is(&error, ApiError::STREAM_NOT_FOUND) => {
                return Err(Error::Unreached(format!(
                    "there is no stream {stream} at {address}\n  remedy: first start a gateway with it, which creates it, \
                     or check --queue-name"
                )));
            }
            Err(error) => return Err(unreached(broker.server.failed(doing)(error))),
        };
        broker.checked(&info.config).map_err(Error::Unreached)?;
        broker.make_consumer(&mut api).await.map_err(Error::Unreached)?;
        let about = format!(
            "NATS {} at {address}, stream {stream} in files{}: an acknowledged entry survives a killed server; {}, so a loss \
             of power may lose it",
            server.version,
            if info.config.num_replicas > 1 {
                format!(" of {} servers", info.config.num_replicas)
            } else {
                String::new()
            },
            if acidtest_store_nats::takes_sync_interval(&server.version) {
                "the server does not tell how long after the acknowledgement it syncs, every two minutes by default"
            } else {
                "the server syncs every two minutes"
            }
        );
        Ok((Box::new(broker), about))
    }

    fn named(&self, request: &str) -> String {
        format!("{request}.{}", self.stream)
    }

    fn subject(&self) -> String {
        format!("{}.entries", self.stream)
    }

    /// A request about the consumer.
    fn named_consumer(&self, request: &str) -> String {
        format!("{request}.{}.{DURABLE}", self.stream)
    }

    async fn make(&self, api: &mut Api<'_>) -> Result<StreamInfo, protocol::Error> {
        let settings = json!({
            "name": self.stream,
            "subjects": [self.subject()],
            "storage": "file",
            "retention": "workqueue",
            "discard": "new",
            "max_bytes": self.most_bytes,
            "num_replicas": 1,
        });
        api.ask(&self.named("STREAM.CREATE"), &settings).await
    }

    /// Whether a stream that is there keeps what is acknowledged, and takes entries.
    fn checked(&self, config: &StreamConfig) -> Result<(), String> {
        let size = format!("the --queue-size that it was created with, {} bytes, or ", config.max_bytes);
        let (wrong, size) = match config {
            StreamConfig { storage, .. } if storage != "file" => ("is not in files", ""),
            StreamConfig { retention, .. } if retention != "workqueue" => {
                ("does not have the retention of a work queue", "")
            }
            StreamConfig { discard, .. } if discard != "new" => {
                ("discards old messages when it is full: acknowledged entries", "")
            }
            StreamConfig { max_age: 1.., .. } => ("drops messages after some time: acknowledged entries", ""),
            StreamConfig { max_msgs_per_subject: 1.., .. } => {
                ("drops old messages of a subject: acknowledged entries", "")
            }
            StreamConfig { no_ack: true, .. } => ("answers nothing", ""),
            StreamConfig { sealed: true, .. } => ("is sealed", ""),
            StreamConfig { subjects, .. } if !subjects.contains(&self.subject()) => {
                ("does not accept what gateways publish", "")
            }
            StreamConfig { max_bytes, .. }
                if self.most_bytes.is_some_and(|most| most.cast_signed() != *max_bytes) =>
            {
                ("has another size", &*size)
            }
            _ => return Ok(()),
        };
        Err(format!("the stream {} exists and {wrong}\n  remedy: {size}another --queue-name", self.stream))
    }

    /// Whether a consumer that is there hands out every message until it is acknowledged.
    fn checked_consumer(&self, config: &ConsumerConfig) -> Result<(), String> {
        let wrong = match config {
            ConsumerConfig { ack_policy, .. } if ack_policy != "explicit" => {
                "does not wait for the acknowledgement of each message"
            }
            ConsumerConfig { max_deliver: 1.., .. } => "gives up a message that came back often",
            ConsumerConfig { filter_subject, .. } if !["", &self.subject()].contains(&&**filter_subject) => {
                "skips messages"
            }
            ConsumerConfig { deliver_subject, .. } if !deliver_subject.is_empty() => "is not a pull consumer",
            _ => return Ok(()),
        };
        Err(format!(
            "the consumer {DURABLE} of the stream {} exists and {wrong}\n  remedy: remove the consumer, or another \
             --queue-name",
            self.stream
        ))
    }

    async fn look(&self, api: &mut Api<'_>) -> Result<StreamInfo, protocol::Error> {
        api.ask(&self.named("STREAM.INFO"), &Value::Null).await
    }

    async fn look_at_consumer(&self, api: &mut Api<'_>) -> Result<ConsumerInfo, protocol::Error> {
        api.ask(&self.named_consumer("CONSUMER.INFO"), &Value::Null).await
    }

    /// Makes the consumer from which collectors pull, if it is not there, and checks it.
    async fn make_consumer(&self, api: &mut Api<'_>) -> Result<(), String> {
        let info = match self.look_at_consumer(api).await {
            Err(error) if is(&error, ApiError::CONSUMER_NOT_FOUND) => {
                let settings = json!({
                    "stream_name": self.stream,
                    "config": {
                        "durable_name": DURABLE,
                        "deliver_policy": "all",
                        "ack_policy": "explicit",
                        "ack_wait": u64::try_from(ACK_WAIT.as_nanos()).unwrap_or(u64::MAX),
                        "max_ack_pending": -1,
                        "max_deliver": -1,
                        "max_waiting": 2048,
                    },
                });
                api.ask(&self.named_consumer("CONSUMER.DURABLE.CREATE"), &settings).await
            }
            found => found,
        };
        self.checked_consumer(&info.map_err(|error| error.to_string())?.config)
    }

    /// Removes the consumer if it has forgotten messages. Of 2.9.10 it was seen after a kill that its consumer hands out
    /// nothing, although messages wait and are asked for, and that it takes messages for acknowledged that are still there.
    /// A new one hands out everything in the stream.
    async fn remove_if_stuck(&self) -> Result<(), String> {
        let words = |error: protocol::Error| error.to_string();
        let mut api = self.connect().await?;
        let ConsumerInfo { num_pending, num_ack_pending, .. } =
            self.look_at_consumer(&mut api).await.map_err(words)?;
        let StreamState { messages, .. } = self.look(&mut api).await.map_err(words)?.state;
        if num_pending == 0 && messages <= num_ack_pending {
            return Ok(());
        }
        let request = self.named_consumer("CONSUMER.DELETE");
        api.ask::<Value>(&request, &Value::Null).await.map_err(words)?;
        Err(format!(
            "the consumer has delivered nothing for {} s, although {messages} messages are there: it is created again",
            STUCK.as_secs()
        ))
    }

    async fn connect(&self) -> Result<Api<'_>, String> {
        let connection = self.server.connect().await.map_err(|error| error.to_string())?;
        Ok(Api::new(connection, &self.server))
    }
}

/// Whether JetStream has refused with this number.
fn is(error: &protocol::Error, number: u32) -> bool {
    matches!(error, protocol::Error::Api(error) if error.err_code == number)
}

impl Broker for Nats {
    fn publisher(&self) -> BoxFuture<'_, Result<Box<dyn Publisher>, String>> {
        Box::pin(async {
            let words = |error: protocol::Error| error.to_string();
            let mut api = self.connect().await?;
            match self.look(&mut api).await {
                Ok(info) => self.checked(&info.config)?,
                Err(error) if is(&error, ApiError::STREAM_NOT_FOUND) => {
                    tracing::error!(
                        stream = self.stream,
                        "the stream is gone, with everything that waited in it: it is created again"
                    );
                    sleep(REMOVED).await;
                    self.make(&mut api).await.map_err(words)?;
                }
                Err(error) => return Err(words(error)),
            }
            let publisher: Box<dyn Publisher> =
                Box::new(Confirming { connection: api.into_connection(), subject: self.subject(), next: 0 });
            Ok(publisher)
        })
    }

    fn consumer(&self) -> BoxFuture<'_, Result<Box<dyn Consumer>, String>> {
        Box::pin(async {
            let mut api = self.connect().await?;
            let info = self.look(&mut api).await.map_err(|error| error.to_string())?;
            self.checked(&info.config)?;
            self.make_consumer(&mut api).await?;
            let consumer: Box<dyn Consumer> = Box::new(Pulling {
                connection: api.into_connection(),
                subject: format!("$JS.API.{}", self.named_consumer("CONSUMER.MSG.NEXT")),
                requests: 0,
                asked: 0,
                replies: VecDeque::new(),
                heard: Instant::now(),
                moved: Instant::now(),
                came: Instant::now(),
                broker: self.clone(),
            });
            Ok(consumer)
        })
    }

    fn gauge(&self) -> BoxFuture<'_, Result<Box<dyn Gauge>, String>> {
        Box::pin(async {
            let connection = self.connect().await?.into_connection();
            let subject = format!("$JS.API.{}", self.named("STREAM.INFO"));
            let gauge: Box<dyn Gauge> = Box::new(Looking { connection, subject, asked: 0 });
            Ok(gauge)
        })
    }

    fn keep_aside<'a>(&'a self, message: &'a [u8]) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async {
            let words = |error: protocol::Error| error.to_string();
            let aside = format!("{}_aside", self.stream);
            let mut api = self.connect().await?;
            let settings = json!({
                "name": aside, "subjects": [aside], "storage": "file", "retention": "limits", "discard": "new",
                "max_bytes": ASIDE, "num_replicas": 1,
            });
            api.ask::<StreamInfo>(&format!("STREAM.CREATE.{aside}"), &settings).await.map_err(words)?;
            let mut publisher = Confirming { connection: api.into_connection(), subject: aside, next: 0 };
            let mut answers = Vec::new();
            publisher.publish(message).await?;
            publisher.answers(&mut answers).await?;
            match answers.pop() {
                Some(Answered { answer: Answer::Kept, .. }) => Ok(()),
                answered => Err(format!(
                    "the stream {} for invalid messages takes no more ({answered:?}): empty it",
                    publisher.subject
                )),
            }
        })
    }
}

/// A connection that asks about the stream.
struct Looking {
    connection: Connection,
    subject: String,
    asked: u64,
}

impl Gauge for Looking {
    fn waiting(&mut self) -> BoxFuture<'_, Result<Waiting, String>> {
        Box::pin(async {
            let words = |error: protocol::Error| error.to_string();
            self.asked += 1;
            self.connection.publish(&self.subject, Some(self.asked), None, b"").map_err(words)?;
            loop {
                let message = self.connection.next().await.map_err(words)?;
                if message.token() == Some(self.asked) {
                    let info: StreamInfo =
                        serde_json::from_slice(message.payload).map_err(|error| error.to_string())?;
                    let StreamState { messages, bytes } = info.state;
                    return Ok(Waiting { messages, bytes: Some(bytes) });
                }
            }
        })
    }
}

/// A connection whose messages are answered.
struct Confirming {
    connection: Connection,
    subject: String,
    next: u64,
}

/// The answer to a published message.
#[derive(Deserialize)]
struct PubAck {
    /// The message's number in the stream; 0 with an error.
    #[serde(default)]
    seq: u64,
    error: Option<ApiError>,
}

/// The answer to a message, if it is one.
///
/// # Errors
/// If nobody listens: then the connection is given up, and the stream is made anew if it is gone.
fn answer(message: &protocol::Message<'_>) -> Result<Option<Answered>, String> {
    let Some(number) = message.token() else { return Ok(None) };
    let answer = match message.status() {
        Some((503, _)) => return Err("no stream takes entries: it is gone, or is being started".to_owned()),
        Some((code, words)) => Answer::Unkept(format!("{code} {words}")),
        None => match serde_json::from_slice(message.payload) {
            Ok(PubAck { error: None, seq: 1.. }) => Answer::Kept,
            // of the stream's own limit, which is not reached by half a message
            Ok(PubAck { error: Some(error), .. })
                if error.err_code == ApiError::STORE_FAILED && error.proves_no_effect() =>
            {
                Answer::Full
            }
            Ok(PubAck { error: Some(error), .. }) => Answer::Unkept(error.to_string()),
            Ok(PubAck { error: None, .. }) => Answer::Unkept("an answer without a number".to_owned()),
            Err(error) => Answer::Unkept(format!("an invalid answer: {error}")),
        },
    };
    Ok(Some(Answered { number, multiple: false, answer }))
}

impl Publisher for Confirming {
    fn publish<'a>(&'a mut self, message: &'a [u8]) -> BoxFuture<'a, Result<(), String>> {
        let number = self.next;
        self.next += 1;
        Box::pin(async move {
            let words = |error: protocol::Error| error.to_string();
            self.connection.publish(&self.subject, Some(number), None, message).map_err(words)?;
            if self.connection.unwritten() > UNWRITTEN {
                self.connection.flush().await.map_err(words)?;
            }
            Ok(())
        })
    }

    fn answers<'a>(&'a mut self, answers: &'a mut Vec<Answered>) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async {
            let words = |error: protocol::Error| error.to_string();
            let before = answers.len();
            while answers.len() == before {
                answers.extend(answer(&self.connection.next().await.map_err(words)?)?);
            }
            while let Some(message) = self.connection.arrived().map_err(words)? {
                answers.extend(answer(&message)?);
            }
            Ok(())
        })
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { self.connection.ping().await.map_err(|error| error.to_string()) })
    }

    /// The server blocks nobody: it answers that it has no room.
    fn blocked(&mut self) -> Option<String> {
        None
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // nobody is left to be told of an error
            let _ = self.connection.flush().await;
        })
    }
}

/// A connection that pulls.
struct Pulling {
    connection: Connection,
    /// The subject on which messages are asked for.
    subject: String,
    requests: u64,
    /// How many messages were asked for and may still come.
    asked: usize,
    /// The subjects to which the messages in hand are acknowledged.
    replies: VecDeque<String>,
    /// When the server last said something, and when last something of what it was asked for.
    heard: Instant,
    moved: Instant,
    /// When a message last came.
    came: Instant,
    broker: Nats,
}

impl Pulling {
    /// Asks for this number of messages, if none is on its way.
    fn ask(&mut self, room: usize) -> Result<(), protocol::Error> {
        if self.asked > 0 || room == 0 {
            return Ok(());
        }
        let expires = u64::try_from(EXPIRES.as_nanos()).unwrap_or(u64::MAX);
        let body = json!({ "batch": room, "max_bytes": ASKED_BYTES, "expires": expires });
        self.requests += 1;
        self.connection.publish(&self.subject, Some(self.requests), None, body.to_string().as_bytes())?;
        self.asked = room;
        self.moved = Instant::now();
        Ok(())
    }

    /// Takes a message, if it is one, or notes that a request has ended.
    fn note(&mut self, came: Arrival) -> Result<Option<Vec<u8>>, String> {
        match came {
            Arrival::Message { reply, content } => {
                self.moved = Instant::now();
                self.came = self.moved;
                self.replies.push_back(reply);
                self.asked = self.asked.saturating_sub(1);
                Ok(Some(content))
            }
            Arrival::End(number) => {
                // that of an earlier request says nothing of this one
                if number == self.requests {
                    self.asked = 0;
                }
                Ok(None)
            }
            Arrival::Refusal(words) => Err(words),
            Arrival::Nothing => Ok(None),
        }
    }

    fn answer(&mut self, count: usize, word: &[u8]) -> Result<(), protocol::Error> {
        for reply in self.replies.iter().take(count) {
            self.connection.publish(reply, None, None, word)?;
        }
        Ok(())
    }
}

enum Arrival {
    Message {
        reply: String,
        content: Vec<u8>,
    },
    /// The request with this number has ended.
    End(u64),
    /// No messages are handed out.
    Refusal(String),
    Nothing,
}

/// The answer to the request that shows that the consumer is there.
#[derive(Deserialize)]
struct Checked {
    error: Option<ApiError>,
}

fn look(message: &protocol::Message<'_>) -> Arrival {
    if let (Some(reply), Some(_)) = (message.reply, message.delivered()) {
        return Arrival::Message { reply: reply.to_owned(), content: message.payload.to_vec() };
    }
    match (message.status(), message.token()) {
        // whose consumer is removed is not always told so on 2.9.10, and waits for messages that nobody hands out
        (None, Some(CHECK)) => match serde_json::from_slice(message.payload) {
            Ok(Checked { error: Some(error) })
                if [ApiError::CONSUMER_NOT_FOUND, ApiError::STREAM_NOT_FOUND].contains(&error.err_code) =>
            {
                Arrival::Refusal(error.to_string())
            }
            _ => Arrival::Nothing,
        },
        // 409 says that the next message is beyond the bytes that were asked for, or that there is no consumer any more
        (Some((409, words)), _) if words.contains("Consumer Deleted") || words.contains("Shutdown") => {
            Arrival::Refusal(format!("the server delivers nothing: {words}"))
        }
        (Some((code, _)), Some(number)) if ENDED.contains(&code) => Arrival::End(number),
        (Some((503, _)), _) => Arrival::Refusal("the stream is gone".to_owned()),
        _ => Arrival::Nothing,
    }
}

impl Consumer for Pulling {
    fn next(&mut self, room: usize) -> BoxFuture<'_, Result<Vec<u8>, String>> {
        Box::pin(async move {
            let words = |error: protocol::Error| error.to_string();
            loop {
                self.ask(room).map_err(words)?;
                let came = look(&self.connection.next().await.map_err(words)?);
                self.heard = Instant::now();
                if let Some(content) = self.note(came)? {
                    return Ok(content);
                }
            }
        })
    }

    fn remove_last(&mut self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            // the last one is in hand
            let Some(reply) = self.replies.pop_back() else { return Ok(()) };
            let words = |error: protocol::Error| error.to_string();
            self.connection.publish(&reply, None, None, b"+ACK").map_err(words)?;
            self.connection.flush().await.map_err(words)
        })
    }

    fn acknowledge(&mut self, count: usize) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let words = |error: protocol::Error| error.to_string();
            self.answer(count, b"+ACK").map_err(words)?;
            self.replies.drain(..count.min(self.replies.len()));
            self.connection.flush().await.map_err(words)
        })
    }

    /// Asks whether the consumer is there, which is answered at any rate, and looks whether the last time it was.
    fn check(&mut self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            let words = |error: protocol::Error| error.to_string();
            if self.heard.elapsed() > IDLE + PATIENCE {
                return Err("the server says nothing".to_owned());
            }
            if self.asked > 0 && self.moved.elapsed() > EXPIRES + PATIENCE {
                return Err("the server does not say that a request has ended".to_owned());
            }
            // what this collector holds has been asked for no further
            if self.replies.is_empty() && self.came.elapsed() > STUCK {
                self.broker.remove_if_stuck().await?;
            }
            self.answer(usize::MAX, b"+WPI").map_err(words)?;
            let request = format!("$JS.API.{}", self.broker.named_consumer("CONSUMER.INFO"));
            self.connection.publish(&request, Some(CHECK), None, b"").map_err(words)?;
            self.connection.flush().await.map_err(words)
        })
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // nobody is left to be told of an error
            let _ = self.answer(usize::MAX, b"-NAK");
            let _ = self.connection.ping().await;
        })
    }
}
