//! The queue on Tarantool: a space of messages, and a procedure that hands them out.

use std::{collections::VecDeque, ops::Range, time::Duration};

use acidtest_engine::{Attempt, Completion, Fault};
use acidtest_model::{StoreError, Task};
use acidtest_workloads::{
    Place,
    queue::{
        Ack, AckAnswer, Connector, Consume, Delivery, Depth, Message, Publisher, QueueAdapter,
        ReceivedMessage, Requirements, Subscriber,
    },
};

use crate::{
    Tarantool,
    iproto::{self, Connection, Error, Pipeline, Reader},
    server::{ConnectOptions, Request, ended},
    trial::{self, Plan, Step, length, space_of},
};

/// The procedure, the format of a message and its key: the first field.
const PLAN: Plan<'static> = Plan {
    procedure: include_str!("lua/queue.lua"),
    format: &[("id", "unsigned"), ("status", "string"), ("takes", "unsigned"), ("body", "string")],
    key: 1,
    second: Some(("status", &["status", "id"])),
};

/// Fields of a message.
const FIELDS: usize = 4;

/// The base of the name of a trial's space and procedure.
const OBJECT: &str = "queue";

/// Bytes that a producer gathers before it writes them to the socket.
const WRITTEN_AT_ONCE: usize = 64 * 1024;

impl QueueAdapter for Tarantool {
    type Connector = TarantoolConnector;

    fn connector(&self, place: &Place, wanted: &Requirements) -> TarantoolConnector {
        let name = trial::name(place, OBJECT);
        TarantoolConnector { server: self.server.clone(), name, wanted: *wanted }
    }

    fn declare<'a>(&'a self, place: &'a Place, _: &'a Requirements) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            let made = trial::lay_out(&mut connection, &trial::name(place, OBJECT), &PLAN).await;
            made.map_err(self.server.failed("declaring the queue"))
        })
    }

    fn depth<'a>(&'a self, place: &'a Place, _: &'a Requirements) -> Task<'a, Result<Depth, StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            let depth = depth(&mut connection, &trial::name(place, OBJECT)).await;
            depth.map_err(self.server.failed("reading the queue's depth"))
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            trial::clear_away(&self.server, "removing the queue", &trial::name(place, OBJECT)).await
        })
    }

    /// Ids ascend as messages are put, and the lowest is taken first. But the server promises no order among
    /// several requests in flight on one connection.
    fn keeps_order(&self, wanted: &Requirements) -> bool {
        let Delivery { producers, ack, in_flight, .. } = wanted.delivery;
        producers == 0 || ack == Ack::Transaction || in_flight == 1
    }

    fn filling(&self, wanted: &Requirements) -> Requirements {
        wanted.in_transactions()
    }
}

async fn depth(connection: &mut Connection, name: &str) -> Result<Depth, Error> {
    // a server that lost its data has no queue either
    if space_of(connection, name).await?.is_none() {
        return Ok(Depth::default());
    }
    let asked = connection.call(name, |args| {
        args.array(1).str("depth");
    });
    let mut values = asked.await?;
    values.tuple(2)?;
    Ok(Depth { ready: values.u64()?, unacknowledged: values.u64()? })
}

/// Opens producers' and consumers' connections to a trial's queue.
pub struct TarantoolConnector {
    server: ConnectOptions,
    name: String,
    wanted: Requirements,
}

impl Connector for TarantoolConnector {
    type Publisher = TarantoolPublisher;
    type Subscriber = TarantoolSubscriber;

    async fn publisher(&self) -> Result<TarantoolPublisher, String> {
        let (connection, _) = trial::connect(&self.server, &self.name).await?;
        let ack = self.wanted.delivery.ack;
        Ok(TarantoolPublisher::new(connection, self.name.clone(), ack == Ack::Transaction))
    }

    async fn subscriber(&self) -> Result<TarantoolSubscriber, String> {
        let (connection, _) = trial::connect(&self.server, &self.name).await?;
        Ok(TarantoolSubscriber {
            connection,
            name: self.name.clone(),
            keeps: self.wanted.delivery.consume != Consume::Auto,
            wanted: self.wanted,
            waiting: VecDeque::new(),
            held: Vec::new(),
            stopped: false,
        })
    }
}

/// A producer's connection, with as many requests in flight as it is given.
pub struct TarantoolPublisher {
    pipeline: Pipeline,
    /// The name of the trial's procedure.
    name: String,
    /// Messages of the next transaction; `None` where each message is a transaction by itself.
    batch: Option<Vec<Vec<u8>>>,
    /// How many messages were sent; also the number of the next one.
    sent: u64,
    requests: VecDeque<InFlight>,
}

/// A request in flight.
struct InFlight {
    number: u64,
    /// Where it begins among all that is to be sent.
    place: iproto::Place,
    /// The numbers of its messages.
    messages: Range<u64>,
}

/// The fault that ends a connection.
fn lost(error: &Error) -> Fault {
    Fault::lost(error.to_string())
}

impl TarantoolPublisher {
    fn new(connection: Connection, name: String, gathers: bool) -> Self {
        let (pipeline, batch) = (Pipeline::new(connection), gathers.then(Vec::new));
        Self { pipeline, name, batch, sent: 0, requests: VecDeque::new() }
    }

    /// Adds the request that puts the gathered messages in one transaction, if there are any.
    fn commit(&mut self) -> Result<(), Fault> {
        let Some(batch) = self.batch.as_mut().filter(|batch| !batch.is_empty()) else { return Ok(()) };
        let called = self.pipeline.call(&self.name, |args| {
            args.array(2).str("put_many").array(length(batch));
            for body in &*batch {
                args.raw_str(body);
            }
        });
        let (number, place) = called.map_err(|error| lost(&error))?;
        let messages = self.sent - batch.len() as u64..self.sent;
        batch.clear();
        self.requests.push_back(InFlight { number, place, messages });
        Ok(())
    }

    /// Ends the messages whose answers have arrived.
    fn note(&mut self, ended_messages: &mut Vec<Completion>) -> Result<(), Fault> {
        while let Some((number, refusal)) = self.pipeline.arrived().map_err(|error| lost(&error))? {
            let place = self.requests.iter().position(|request| request.number == number);
            let Some(InFlight { messages, .. }) = place.and_then(|place| self.requests.remove(place)) else {
                return Err(Fault::lost(format!("an answer to request {number}, which is not under way")));
            };
            let attempt = refusal.map_or(Attempt::Ok, ended(Request::Change));
            ended_messages.extend(messages.map(|number| Completion { number, attempt: attempt.clone() }));
        }
        Ok(())
    }

    /// Sends all, and waits until at least one request is answered.
    async fn answers(&mut self, ended: &mut Vec<Completion>) -> Result<(), Fault> {
        self.commit()?;
        let flushed = self.pipeline.flush().await.map_err(|error| lost(&error));
        let before = ended.len();
        loop {
            // what has arrived before the end counts
            self.note(ended)?;
            if ended.len() > before || self.requests.is_empty() {
                return Ok(());
            }
            flushed.clone()?;
            self.pipeline.read().await.map_err(|error| lost(&error))?;
        }
    }

    /// Decides on the messages in flight when the connection has ended: those that were not handed to the network have failed.
    /// The outcome of the others stays unknown.
    fn given_up(&self, fault: Fault, ended: &mut Vec<Completion>) -> Fault {
        for InFlight { messages, .. } in
            self.requests.iter().filter(|sent| !self.pipeline.reached(sent.place))
        {
            let attempt = Attempt::Failed(fault.clone());
            ended.extend(messages.clone().map(|number| Completion { number, attempt: attempt.clone() }));
        }
        fault
    }
}

impl Publisher for TarantoolPublisher {
    async fn send(&mut self, message: &Message) -> Result<(), Fault> {
        let messages = self.sent..self.sent + 1;
        self.sent += 1;
        if let Some(batch) = &mut self.batch {
            batch.push(message.body.clone());
            return Ok(());
        }
        let called = self.pipeline.call(&self.name, |args| {
            args.array(2).str("put").raw_str(&message.body);
        });
        let (number, place) = called.map_err(|error| lost(&error))?;
        self.requests.push_back(InFlight { number, place, messages });
        if self.pipeline.unwritten() >= WRITTEN_AT_ONCE {
            // if the connection has ended, the next `settle` says what has become of each message
            let _ = self.pipeline.flush().await;
        }
        Ok(())
    }

    async fn settle(&mut self, ended: &mut Vec<Completion>) -> Result<(), Fault> {
        self.answers(ended).await.map_err(|fault| self.given_up(fault, ended))
    }
}

/// A message that was handed out by the server and not taken by the client yet.
struct PendingMessage {
    id: u64,
    body: Vec<u8>,
    redelivered: bool,
}

/// A consumer's connection. Messages handed out to it belong to its session, and to other consumers once that is
/// gone.
pub struct TarantoolSubscriber {
    connection: Connection,
    /// The name of the trial's procedure.
    name: String,
    /// Whether the server keeps messages until they are acknowledged.
    keeps: bool,
    wanted: Requirements,
    waiting: VecDeque<PendingMessage>,
    /// Ids of the messages that were taken and not acknowledged.
    held: Vec<u64>,
    stopped: bool,
}

impl TarantoolSubscriber {
    /// Asks for as many messages as the consumer may hold in addition to those that it has taken.
    async fn fetch(&mut self, patience: Duration) -> Step<()> {
        let room = self.wanted.delivery.prefetch.saturating_sub(length(&self.held)).max(1);
        let room = self.wanted.at_once(room);
        let handed = self.connection.call(&self.name, |args| {
            args.array(4).str("take").u64(room.into()).f64(patience.as_secs_f64()).bool(self.keeps);
        });
        // without acknowledgement a message is deleted when it is handed out, whether it arrives or not
        let request = if self.keeps { Request::Harmless } else { Request::Change };
        let waiting = &mut self.waiting;
        handed.await.and_then(|mut values| read_messages(&mut values, waiting)).map_err(ended(request))
    }

    async fn next(&mut self, patience: Duration) -> Step<PendingMessage> {
        if self.waiting.is_empty() && !self.stopped {
            self.fetch(patience).await?;
        }
        self.waiting.pop_front().ok_or(Attempt::Refused)
    }
}

fn read_messages(values: &mut Reader<'_>, into: &mut VecDeque<PendingMessage>) -> Result<(), Error> {
    values.tuple(1)?;
    for _ in 0..values.array_len()? {
        let mut message = values.value()?;
        message.tuple(FIELDS)?;
        let id = message.u64()?;
        message.skip()?;
        let redelivered = message.u64()? > 0;
        // a value that is no text still counts as a message, with an empty body
        let body = message.bytes().unwrap_or_default().to_owned();
        into.push_back(PendingMessage { id, body, redelivered });
    }
    Ok(())
}

impl Subscriber for TarantoolSubscriber {
    async fn take(&mut self, patience: Duration, received: &mut ReceivedMessage) -> Attempt {
        match self.next(patience).await {
            Ok(PendingMessage { id, body, redelivered }) => {
                received.body = body;
                received.redelivered = Some(redelivered);
                if self.keeps {
                    self.held.push(id);
                }
                Attempt::Ok
            }
            Err(ended) => ended,
        }
    }

    async fn settle(&mut self) -> Result<AckAnswer, Attempt> {
        if !self.held.is_empty() {
            let deleted = self.connection.call(&self.name, |args| {
                args.array(2).str("ack").array(length(&self.held));
                for id in &self.held {
                    args.u64(*id);
                }
            });
            deleted.await.map_err(ended(Request::Change))?;
            self.held.clear();
        }
        Ok(AckAnswer::Answered)
    }

    async fn stop(&mut self) -> Result<(), Fault> {
        self.stopped = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        time::{sleep, timeout},
    };

    use super::*;
    use crate::iproto::{
        Encoder,
        tests::{connected, done},
    };

    /// Longer than a server of a test takes for anything.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Of messages that were not handed to the network it is known that they were not published; of those before them it is
    /// not. So it is of those that were to be put in one transaction.
    #[tokio::test]
    async fn what_was_not_sent_has_failed_when_the_connection_ends() {
        for gathers in [false, true] {
            let (connection, server) = connected().await;
            let mut producer = TarantoolPublisher::new(connection, "put".to_owned(), gathers);
            let message = Message { body: vec![7; 1_000_000] };
            let mut ended = Vec::new();
            // the server reads nothing, until no byte of the last ones can be on its way
            loop {
                let asked = async {
                    producer.send(&message).await.unwrap();
                    if gathers {
                        producer.send(&message).await.unwrap();
                        producer.settle(&mut ended).await.unwrap();
                    }
                };
                let is_full = timeout(Duration::from_millis(100), asked).await.is_err();
                if is_full
                    && producer.requests.back().is_some_and(|last| !producer.pipeline.reached(last.place))
                {
                    break;
                }
            }
            let sent = producer.sent;
            drop(server);
            let settled = timeout(PATIENCE, producer.settle(&mut ended)).await.unwrap();
            assert!(settled.unwrap_err().connection_lost);
            let first = ended.first().unwrap().number;
            assert!(first > 0, "the first message was on its way");
            let numbers: Vec<_> = ended.iter().map(|ended| ended.number).collect();
            assert_eq!(numbers, (first..sent).collect::<Vec<_>>());
            assert!(ended.iter().all(|ended| matches!(ended.attempt, Attempt::Failed(_))), "{ended:?}");
        }
    }

    /// What the server answered before it reset the connection counts, also where it is sending that fails first.
    #[tokio::test]
    async fn what_was_answered_before_the_end_is_published() {
        let (connection, mut server) = connected().await;
        let mut producer = TarantoolPublisher::new(connection, "put".to_owned(), false);
        let message = Message { body: vec![7; 100] };
        producer.send(&message).await.unwrap();
        producer.pipeline.flush().await.unwrap();
        assert!(server.read(&mut [0; 1024]).await.unwrap() > 0);
        let first = producer.requests.front().unwrap().number;
        server.write_all(&done(first.try_into().unwrap())).await.unwrap();
        // it does not read this one, and so resets the connection
        producer.send(&message).await.unwrap();
        producer.pipeline.flush().await.unwrap();
        drop(server);
        sleep(Duration::from_millis(50)).await;
        producer.send(&message).await.unwrap();
        let mut ended = Vec::new();
        producer.settle(&mut ended).await.unwrap();
        assert_eq!(ended, [Completion { number: 0, attempt: Attempt::Ok }]);
        ended.clear();
        let settled = timeout(PATIENCE, producer.settle(&mut ended)).await.unwrap();
        assert!(settled.unwrap_err().connection_lost);
        assert!(matches!(&ended[..], [Completion { number: 2, attempt: Attempt::Failed(_) }]), "{ended:?}");
    }

    /// A tuple that nobody published is for the audit to judge, and so must be taken.
    #[test]
    fn what_is_no_body_is_taken_as_a_message() {
        let mut encoder = Encoder::new();
        encoder.array(1).array(3);
        encoder.array(4).u64(1).str("ready").u64(0).str("whole");
        encoder.array(4).u64(2).str("ready").u64(1).array(1).u64(7);
        encoder.array(5).u64(3).nil().u64(0).bin(b"bytes").u64(9);
        let mut waiting = VecDeque::new();
        let mut values = Reader::new(encoder.as_slice());
        read_messages(&mut values, &mut waiting).unwrap();
        assert!(values.is_empty());
        let taken: Vec<_> =
            waiting.iter().map(|message| (message.id, &message.body[..], message.redelivered)).collect();
        assert_eq!(taken, [(1, &b"whole"[..], false), (2, b"", true), (3, b"bytes", false)]);
    }
}
