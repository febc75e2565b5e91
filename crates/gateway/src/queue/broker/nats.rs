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
use tokio::time::timeout;

use super::{Answer, Answered, Broker, Consumer, IDLE, MESSAGE, PATIENCE, Publisher, Use, Waiting};
use crate::Error;

/// The durable consumer from which all collectors pull.
const DURABLE: &str = "collectors";
/// How long a collector may hold a message without a word until it is handed to another: twice as long as it says nothing.
const ACK_WAIT: Duration = IDLE.saturating_mul(2);
/// How many bytes are asked for at once: the server closes the connection of a slow reader.
const ASKED_BYTES: usize = 8 << 20;
/// How long the server waits for messages before it answers that there are no more.
const EXPIRES: Duration = Duration::from_secs(5);
/// Bytes that may wait to be written.
const UNWRITTEN: usize = 256 << 10;
/// What the server says in place of a message: that a request has ended.
const ENDED: [u16; 3] = [404, 408, 409];

/// A stream.
#[derive(Debug)]
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
        let most_bytes = match for_what {
            Use::Gateway { most_bytes, .. } => Some(most_bytes),
            Use::Collector => None,
        };
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
                let (request, settings) = (broker.named("STREAM.CREATE"), broker.settings());
                api.run::<StreamInfo>(doing, &request, &settings).await.map_err(unreached)?
            }
            Err(error) if is(&error, ApiError::STREAM_NOT_FOUND) => {
                return Err(Error::Unreached(format!(
                    "there is no stream {stream} at {address}\n  remedy: start a gateway with it first, which makes it, or \
                     check --queue-name"
                )));
            }
            Err(error) => return Err(unreached(broker.server.failed(doing)(error))),
        };
        broker.checked(&info.config).map_err(Error::Unreached)?;
        broker
            .make_consumer(&mut api)
            .await
            .map_err(|error| unreached(broker.server.failed(doing)(error)))?;
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

    fn settings(&self) -> Value {
        json!({
            "name": self.stream,
            "subjects": [self.subject()],
            "storage": "file",
            "retention": "workqueue",
            "discard": "new",
            "max_bytes": self.most_bytes,
            "num_replicas": 1,
        })
    }

    /// Whether a stream that is there keeps what is acknowledged, and takes entries.
    fn checked(&self, config: &StreamConfig) -> Result<(), String> {
        let wrong = match config {
            StreamConfig { storage, .. } if storage != "file" => "is not in files",
            StreamConfig { retention, .. } if retention != "workqueue" => {
                "has not the retention of a work queue"
            }
            StreamConfig { discard, .. } if discard != "new" => {
                "discards old messages when it is full: acknowledged entries"
            }
            StreamConfig { subjects, .. } if !subjects.contains(&self.subject()) => {
                "does not take what gateways publish"
            }
            StreamConfig { max_bytes, .. }
                if self.most_bytes.is_some_and(|most| most.cast_signed() != *max_bytes) =>
            {
                "has another size"
            }
            _ => return Ok(()),
        };
        Err(format!(
            "the stream {} is there and {wrong}\n  remedy: the --queue-size that it was made with ({} bytes), or another \
             --queue-name",
            self.stream, config.max_bytes
        ))
    }

    async fn look(&self, api: &mut Api<'_>) -> Result<StreamInfo, protocol::Error> {
        api.ask(&self.named("STREAM.INFO"), &Value::Null).await
    }

    /// Makes the consumer from which collectors pull, if it is not there.
    async fn make_consumer(&self, api: &mut Api<'_>) -> Result<(), protocol::Error> {
        let name = format!("{}.{DURABLE}", self.stream);
        match api.ask::<Value>(&format!("CONSUMER.INFO.{name}"), &Value::Null).await {
            Err(error) if is(&error, ApiError::CONSUMER_NOT_FOUND) => {}
            found => return found.map(drop),
        }
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
        api.ask::<Value>(&format!("CONSUMER.DURABLE.CREATE.{name}"), &settings).await.map(drop)
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
                Ok(_) => {}
                Err(error) if is(&error, ApiError::STREAM_NOT_FOUND) => {
                    tracing::error!(
                        stream = self.stream,
                        "the stream is gone, with all that waited in it: it is made anew"
                    );
                    api.ask::<StreamInfo>(&self.named("STREAM.CREATE"), &self.settings())
                        .await
                        .map_err(words)?;
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
            self.make_consumer(&mut api).await.map_err(|error| error.to_string())?;
            let consumer: Box<dyn Consumer> = Box::new(Pulling {
                connection: api.into_connection(),
                subject: format!("$JS.API.CONSUMER.MSG.NEXT.{}.{DURABLE}", self.stream),
                requests: 0,
                asked: 0,
                replies: VecDeque::new(),
            });
            Ok(consumer)
        })
    }

    fn waiting(&self) -> BoxFuture<'_, Result<Waiting, String>> {
        Box::pin(async {
            let mut api = self.connect().await?;
            let StreamState { messages, bytes } =
                self.look(&mut api).await.map_err(|error| error.to_string())?.state;
            Ok(Waiting { messages, bytes: Some(bytes) })
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
            Err(error) => Answer::Unkept(format!("an answer that makes no sense: {error}")),
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
        Ok(())
    }

    /// Takes a message, if it is one, or notes that a request has ended.
    fn note(&mut self, came: Came) -> Result<Option<Vec<u8>>, String> {
        match came {
            Came::Message { reply, content } => {
                self.replies.push_back(reply);
                self.asked = self.asked.saturating_sub(1);
                Ok(Some(content))
            }
            Came::End(number) => {
                // that of an earlier request says nothing of this one
                if number == self.requests {
                    self.asked = 0;
                }
                Ok(None)
            }
            Came::Refusal(words) => Err(words),
            Came::Nothing => Ok(None),
        }
    }

    fn answer(&mut self, count: usize, word: &[u8]) -> Result<(), protocol::Error> {
        for reply in self.replies.iter().take(count) {
            self.connection.publish(reply, None, None, word)?;
        }
        Ok(())
    }
}

/// What came.
enum Came {
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

fn look(message: &protocol::Message<'_>) -> Came {
    if let (Some(reply), Some(_)) = (message.reply, message.delivered()) {
        return Came::Message { reply: reply.to_owned(), content: message.payload.to_vec() };
    }
    match (message.status(), message.token()) {
        // 409 says that the next message is beyond the bytes that were asked for, or that there is no consumer any more
        (Some((409, words)), _) if words.contains("Consumer Deleted") || words.contains("Shutdown") => {
            Came::Refusal(format!("the server hands out nothing: {words}"))
        }
        (Some((code, _)), Some(number)) if ENDED.contains(&code) => Came::End(number),
        (Some((503, _)), _) => Came::Refusal("the stream is gone".to_owned()),
        _ => Came::Nothing,
    }
}

impl Consumer for Pulling {
    fn next(&mut self, room: usize) -> BoxFuture<'_, Result<Vec<u8>, String>> {
        Box::pin(async move {
            let words = |error: protocol::Error| error.to_string();
            loop {
                self.ask(room).map_err(words)?;
                // it says at least that a request has ended, unless none is on its way
                let message = match timeout(EXPIRES + PATIENCE, self.connection.next()).await {
                    Ok(message) => message.map_err(words)?,
                    Err(_) if self.asked == 0 => continue,
                    Err(_) => return Err("the server does not say that a request has ended".to_owned()),
                };
                let came = look(&message);
                if let Some(content) = self.note(came)? {
                    return Ok(content);
                }
            }
        })
    }

    fn reject_last(&mut self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            // the last one is in hand
            let Some(reply) = self.replies.pop_back() else { return Ok(()) };
            let words = |error: protocol::Error| error.to_string();
            self.connection.publish(&reply, None, None, b"+TERM").map_err(words)?;
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

    fn check(&mut self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            let words = |error: protocol::Error| error.to_string();
            self.answer(usize::MAX, b"+WPI").map_err(words)?;
            self.connection.flush().await.map_err(words)
        })
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // nobody is left to be told of an error
            let _ = self.connection.ping().await;
        })
    }
}
