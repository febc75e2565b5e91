//! A quorum queue of RabbitMQ, published to through the default exchange.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use acidtest_model::{Address, StoreError};
use acidtest_store_rabbitmq::{
    ConnectOptions, KIND,
    amqp::{self, Arguments, Connection, Envelope, Event, Value, ids},
};
use futures_util::future::BoxFuture;
use rand::RngExt;
use tokio::time::{sleep, timeout};

use super::{ASIDE, Answer, Answered, Broker, Consumer, Gauge, HELD, PATIENCE, Publisher, Use, Waiting};
use crate::Error;

/// After how many seconds without a word the broker takes a connection for lost, and gives what it holds to others. It
/// counts them in steps of its own: a collector that stood still was given up after three times as long.
const HEARTBEAT: u16 = 30;
/// How long a quorum queue needs after its declaration until it survives a kill of the broker: it was seen to lose what
/// it had confirmed in its first second (docs/findings.md).
const YOUNG: Duration = Duration::from_secs(3);
/// The tag of a connection's only subscription.
const TAG: &str = "collector";
/// That what is said stands for all messages up to it.
const MULTIPLE: u8 = 1;

/// A quorum queue.
pub(super) struct RabbitMq {
    server: ConnectOptions,
    queue: String,
    /// The size with which it is made; none for whoever does not make it.
    most_bytes: Option<u64>,
    /// Whether the broker has just said that the queue is gone.
    is_gone: Arc<AtomicBool>,
}

impl fmt::Debug for RabbitMq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMq").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl RabbitMq {
    pub(super) async fn open(
        address: &Address,
        queue: &str,
        for_what: Use,
    ) -> Result<(Box<dyn Broker>, String), Error> {
        let unreached = |error: StoreError| Error::Unreached(error.to_string());
        let most_bytes = for_what.most_bytes();
        let server =
            ConnectOptions::new(address, KIND.default_port).map_err(unreached)?.with_heartbeat(HEARTBEAT);
        let broker = Self { server, queue: queue.to_owned(), most_bytes, is_gone: Arc::default() };
        let mut connection = broker.server.reach().await.map_err(unreached)?;
        let version = connection.about("version").unwrap_or("of an unknown version").to_owned();
        let failed = |error| unreached(broker.server.failed("opening the queue")(error));
        match look(&mut connection, queue).await.map_err(failed)? {
            None if most_bytes.is_none() => {
                return Err(Error::Unreached(format!(
                    "there is no queue {queue} at {address}\n  remedy: first start a gateway with it, which creates it, or \
                     check --queue-name"
                )));
            }
            None => broker.make().await.map_err(Error::Unreached)?,
            Some(ready) if most_bytes.is_some() => {
                broker.declare().await.map_err(Error::Unreached)?;
                // another gateway may just have made it
                if ready == 0 {
                    sleep(YOUNG).await;
                }
            }
            Some(_) => {}
        }
        let about = match for_what {
            Use::Gateway { .. } => format!(
                "RabbitMQ {version} at {address}, quorum queue {queue}: an acknowledged entry survives a loss of power, as far \
                 as the sync of the broker's disk does"
            ),
            // what the queue is, gateways have found out
            Use::Collector => format!("RabbitMQ {version} at {address}, queue {queue}"),
        };
        Ok((Box::new(broker), about))
    }

    async fn connect(&self) -> Result<Connection, String> {
        self.server.connect().await.map_err(|error| error.to_string())
    }

    /// Declares the queue: makes it, or finds out that it has these settings.
    async fn declare(&self) -> Result<(), String> {
        let mut connection = self.connect().await?;
        let mut settings = settings(self.most_bytes.unwrap_or_default()).to_vec();
        if drops_what_comes_back_often(connection.about("version").unwrap_or_default()) {
            settings.push(("x-delivery-limit", Value::Number(-1)));
        }
        let arguments = declaration(&self.queue, DURABLE).table(&settings);
        match answered(connection.ask(ids::DECLARE, &arguments, ids::DECLARE_OK)).await {
            Ok(_) => Ok(()),
            Err(amqp::Error::Closed { code: 406, text, .. }) => Err(format!(
                "the queue {} exists with other settings ({text})\n  remedy: use the --queue-size that it was created \
                 with, or another --queue-name",
                self.queue
            )),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Makes the queue, and waits until it survives a kill.
    async fn make(&self) -> Result<(), String> {
        self.declare().await?;
        tracing::info!(
            queue = self.queue,
            "the queue is created; entries are accepted in {} s, because a younger queue may lose what it has confirmed",
            YOUNG.as_secs()
        );
        sleep(YOUNG).await;
        Ok(())
    }
}

/// Whether messages that were delivered often are dropped where nothing else is said: 20 times from 4.0 on. Older ones
/// refuse to be told that there is no limit.
fn drops_what_comes_back_often(version: &str) -> bool {
    version.split('.').next().and_then(|major| major.parse().ok()).is_some_and(|major: u32| major >= 4)
}

const PASSIVE: u8 = 1;
const DURABLE: u8 = 2;

fn declaration(queue: &str, bits: u8) -> Arguments {
    Arguments::default().short(0).name(queue).byte(bits)
}

/// The settings of a queue that refuses what is beyond so many bytes.
fn settings(most_bytes: u64) -> [(&'static str, Value<'static>); 3] {
    [
        ("x-queue-type", Value::Text("quorum")),
        ("x-overflow", Value::Text("reject-publish")),
        ("x-max-length-bytes", Value::Number(most_bytes.cast_signed())),
    ]
}

/// Has the broker answer for each message that is published from now on.
async fn have_confirmed(connection: &mut Connection) -> Result<(), amqp::Error> {
    let arguments = Arguments::default().byte(0);
    answered(connection.ask(ids::CONFIRM, &arguments, ids::CONFIRM_OK)).await.map(drop)
}

/// How many messages are ready in the queue; none if there is no such queue, and the connection is of no use then.
async fn look(connection: &mut Connection, queue: &str) -> Result<Option<u32>, amqp::Error> {
    let arguments = declaration(queue, PASSIVE).table(&[]);
    match answered(connection.ask(ids::DECLARE, &arguments, ids::DECLARE_OK)).await {
        Ok(answer) => Ok(Some(amqp::declared(&answer).map_or(0, |(ready, _)| ready))),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The answer, if it comes in time.
async fn answered<T>(answer: impl Future<Output = Result<T, amqp::Error>>) -> Result<T, amqp::Error> {
    let late = |_| amqp::Error::Network(format!("no answer within {} s", PATIENCE.as_secs()));
    timeout(PATIENCE, answer).await.map_err(late)?
}

impl Broker for RabbitMq {
    fn publisher(&self) -> BoxFuture<'_, Result<Box<dyn Publisher>, String>> {
        Box::pin(async {
            let words = |error: amqp::Error| error.to_string();
            let mut connection = self.connect().await?;
            let was_gone = self.is_gone.swap(false, Relaxed);
            match look(&mut connection, &self.queue).await.map_err(words)? {
                None => {
                    tracing::error!(
                        queue = self.queue,
                        "the queue is gone, with everything that waited in it: it is created again"
                    );
                    self.make().await?;
                    connection = self.connect().await?;
                }
                // another gateway has made it
                Some(_) if was_gone => sleep(YOUNG).await,
                Some(_) => {}
            }
            have_confirmed(&mut connection).await.map_err(words)?;
            let envelope = Envelope::new(&self.queue, true);
            let is_gone = Arc::clone(&self.is_gone);
            let publisher: Box<dyn Publisher> =
                Box::new(Confirming { connection, envelope, sent: 0, checks: 0, is_gone });
            Ok(publisher)
        })
    }

    fn consumer(&self) -> BoxFuture<'_, Result<Box<dyn Consumer>, String>> {
        Box::pin(async {
            let words = |error: amqp::Error| error.to_string();
            let mut connection = self.connect().await?;
            limit(&mut connection).await.map_err(words)?;
            let arguments = Arguments::default().short(0).name(&self.queue).name(TAG).byte(0).table(&[]);
            answered(connection.ask(ids::CONSUME, &arguments, ids::CONSUME_OK)).await.map_err(words)?;
            let consumer: Box<dyn Consumer> = Box::new(Consuming { connection, tags: VecDeque::new() });
            Ok(consumer)
        })
    }

    fn gauge(&self) -> BoxFuture<'_, Result<Box<dyn Gauge>, String>> {
        Box::pin(async {
            let connection = self.connect().await?;
            let gauge: Box<dyn Gauge> = Box::new(Looking { connection, queue: self.queue.clone() });
            Ok(gauge)
        })
    }

    fn keep_aside<'a>(&'a self, message: &'a [u8]) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async {
            let words = |error: amqp::Error| error.to_string();
            let aside = format!("{}_aside", self.queue);
            let mut connection = self.connect().await?;
            let arguments = declaration(&aside, DURABLE).table(&settings(ASIDE));
            answered(connection.ask(ids::DECLARE, &arguments, ids::DECLARE_OK)).await.map_err(words)?;
            have_confirmed(&mut connection).await.map_err(words)?;
            connection.publish(&Envelope::new(&aside, true), message).await.map_err(words)?;
            loop {
                match answered(connection.event()).await.map_err(words)? {
                    Event::Confirmed { .. } => break,
                    Event::Refused { .. } | Event::Returned { .. } => {
                        return Err(format!("the queue {aside} for invalid messages is full: empty it"));
                    }
                    _ => {}
                }
            }
            connection.close().await;
            Ok(())
        })
    }
}

/// A connection that asks about the queue.
struct Looking {
    connection: Connection,
    queue: String,
}

impl Gauge for Looking {
    /// Messages that consumers hold are not counted.
    fn waiting(&mut self) -> BoxFuture<'_, Result<Waiting, String>> {
        Box::pin(async {
            let ready = look(&mut self.connection, &self.queue).await.map_err(|error| error.to_string())?;
            let ready = ready.ok_or_else(|| "the queue is gone".to_owned())?;
            Ok(Waiting { messages: ready.into(), bytes: None })
        })
    }
}

/// Says how many messages the consumer may hold.
async fn limit(connection: &mut Connection) -> Result<(), amqp::Error> {
    let arguments = Arguments::default().long(0).short(HELD).byte(0);
    answered(connection.ask(ids::QOS, &arguments, ids::QOS_OK)).await.map(drop)
}

/// A connection whose messages are confirmed.
struct Confirming {
    connection: Connection,
    envelope: Envelope,
    /// How many messages were sent, those of checks among them: the broker numbers them from 1.
    sent: u64,
    /// How many of these were checks. They are made while nothing else is on its way.
    checks: u64,
    is_gone: Arc<AtomicBool>,
}

impl Confirming {
    /// The answer in an event, if it is one.
    fn note(&self, event: Event) -> Result<Option<Answered>, String> {
        let (tag, multiple, answer) = match event {
            Event::Confirmed { tag, multiple } => (tag, multiple, Answer::Kept),
            // with reject-publish that is what a full queue does; it may also not know what became of the message
            Event::Refused { tag, multiple } => (tag, multiple, Answer::Full),
            // it is confirmed after that, although it is in no queue: so the connection is given up
            Event::Returned { text, .. } => {
                self.is_gone.store(true, Relaxed);
                return Err(format!("the broker has no such queue: {text}"));
            }
            Event::Delivered { .. } | Event::Cancelled | Event::Answer(..) => return Ok(None),
        };
        let number = tag.checked_sub(1 + self.checks);
        Ok(number.map(|number| Answered { number, multiple, answer }))
    }
}

impl Publisher for Confirming {
    fn publish<'a>(&'a mut self, message: &'a [u8]) -> BoxFuture<'a, Result<(), String>> {
        self.sent += 1;
        Box::pin(async {
            self.connection.publish(&self.envelope, message).await.map_err(|error| error.to_string())
        })
    }

    fn answers<'a>(&'a mut self, answers: &'a mut Vec<Answered>) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async {
            let mut event = self.connection.event().await.map_err(|error| error.to_string())?;
            loop {
                answers.extend(self.note(event)?);
                match self.connection.heard() {
                    Some(next) => event = next,
                    None => return Ok(()),
                }
            }
        })
    }

    /// Publishes messages to a queue that does not exist. A broker that blocks publishers confirms the first, says so, and
    /// answers no second one.
    fn check(&mut self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            let words = |error: amqp::Error| error.to_string();
            let nowhere = Envelope::new(&format!("acidtest-{:032x}", rand::rng().random::<u128>()), false);
            for _ in 0..2 {
                (self.sent, self.checks) = (self.sent + 1, self.checks + 1);
                self.connection.publish(&nowhere, b"").await.map_err(words)?;
                loop {
                    match self.connection.event().await.map_err(words)? {
                        Event::Confirmed { tag, .. } | Event::Refused { tag, .. } if tag >= self.sent => {
                            break;
                        }
                        _ => {}
                    }
                }
                if let Some(why) = self.connection.take_blocked() {
                    return Err(why);
                }
            }
            Ok(())
        })
    }

    fn blocked(&mut self) -> Option<String> {
        self.connection.take_blocked()
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.connection.close().await;
        })
    }
}

/// A connection with a subscription.
struct Consuming {
    connection: Connection,
    /// The broker's numbers of the messages in hand.
    tags: VecDeque<u64>,
}

impl Consumer for Consuming {
    fn next(&mut self, _: usize) -> BoxFuture<'_, Result<Vec<u8>, String>> {
        Box::pin(async {
            loop {
                match self.connection.event().await.map_err(|error| error.to_string())? {
                    Event::Delivered { tag, body, .. } => {
                        self.tags.push_back(tag);
                        return Ok(body);
                    }
                    Event::Cancelled => {
                        return Err("the broker ended the subscription: the queue is gone".to_owned());
                    }
                    _ => {}
                }
            }
        })
    }

    fn remove_last(&mut self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            // the last one is in hand
            let Some(tag) = self.tags.pop_back() else { return Ok(()) };
            self.connection.say(ids::ACK, &Arguments::default().longlong(tag).byte(0));
            self.connection.flush().await.map_err(|error| error.to_string())
        })
    }

    fn acknowledge(&mut self, count: usize) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let Some(tag) = self.tags.drain(..count.min(self.tags.len())).next_back() else { return Ok(()) };
            self.connection.say(ids::ACK, &Arguments::default().longlong(tag).byte(MULTIPLE));
            self.connection.flush().await.map_err(|error| error.to_string())
        })
    }

    /// Says once more how many messages may be in hand, which is answered.
    fn check(&mut self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { limit(&mut self.connection).await.map_err(|error| error.to_string()) })
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.connection.close().await;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_newer_brokers_drop_what_comes_back_often() {
        assert!(drops_what_comes_back_often("4.0.2") && drops_what_comes_back_often("10.1"));
        for old in ["3.10.8", "3.13.7", "", "x"] {
            assert!(!drops_what_comes_back_often(old), "{old}");
        }
    }
}
