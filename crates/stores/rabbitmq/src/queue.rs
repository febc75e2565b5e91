//! The queue workload on RabbitMQ: declaring queues, publishing and consuming.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{MutexGuard, PoisonError},
    time::Duration,
};

use acidtest_engine::{Completion, Fault};
use acidtest_model::{CellRequest, Durability, EffectiveSettings, IdleOption, StoreError, Task};
use acidtest_workloads::{
    Attempt, Place,
    queue::{
        self, Ack, AckAnswer, AckProgress, Consume, Delivery, Depth, Message, NO_CONFLICTS, QueueAdapter,
        QueueKind, ReceivedMessage, Requirements, SentAcks,
    },
};
use tokio::time::timeout;

use crate::{
    DURABLE, RabbitMq,
    amqp::{self, Arguments, Connection, Envelope, Error, Event, Value, ids},
    declaration, delete,
    dropped::{self, Dropped},
    leave, look, names,
    server::ConnectOptions,
};

/// The reason why the store cannot set up the queue as the cell asks, if there is one.
pub(crate) fn refuses(request: &CellRequest<'_>) -> Option<&'static str> {
    let delivery = Delivery::of(request)?;
    match () {
        () if delivery.deduplicate => {
            Some("it does not recognise a message by its id: leave --deduplicate false")
        }
        () if delivery.replicas > 1 => {
            Some("a quorum queue has a copy on each node of a cluster: --queue quorum, without --replicas")
        }
        () if delivery.queue == QueueKind::Quorum && !delivery.persistent => {
            Some("a quorum queue is always durable, and its messages persistent: leave --persistent true")
        }
        () => None,
    }
}

/// The parameters that have no effect in the cell.
pub(crate) fn idle(request: &CellRequest<'_>) -> &'static [IdleOption] {
    const PUSHED: IdleOption = IdleOption {
        name: "prefetch",
        why: "with consume auto the broker pushes messages as fast as they are read",
    };
    let is_pushed = Delivery::of(request).is_some_and(|delivery| delivery.consume == Consume::Auto);
    if is_pushed { &[NO_CONFLICTS, PUSHED] } else { &[NO_CONFLICTS] }
}

/// The broker's name for the kind of a queue.
fn kind(delivery: &Delivery) -> &'static str {
    match delivery.queue {
        QueueKind::Default | QueueKind::Classic => "classic",
        QueueKind::Quorum => "quorum",
    }
}

fn name(place: &Place) -> String {
    format!("{}:{}", place.namespace, place.object("queue"))
}

impl RabbitMq {
    fn caught(&self) -> MutexGuard<'_, BTreeMap<String, Dropped>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Declares the queue. The broker refuses if there is one with other settings.
    async fn declared(&self, place: &Place, wanted: &Requirements, doing: &str) -> Result<(), StoreError> {
        let delivery = &wanted.delivery;
        let bits = if delivery.persistent { DURABLE } else { 0 };
        let catcher = dropped::name(place);
        let properties =
            [&[("x-queue-type", Value::Text(kind(delivery)))][..], &dropped::dead_letters(&catcher)];
        let arguments = declaration(&name(place), bits, &properties.concat());
        let mut connection = self.server.reach().await?;
        let answer = connection.ask(ids::DECLARE, &arguments, ids::DECLARE_OK).await;
        answer.map(drop).map_err(self.server.failed(doing))
    }
}

impl QueueAdapter for RabbitMq {
    type Connector = Connector;

    fn connector(&self, place: &Place, wanted: &Requirements) -> Connector {
        Connector { server: self.server.clone(), queue: name(place), delivery: wanted.delivery }
    }

    fn declare<'a>(&'a self, place: &'a Place, wanted: &'a Requirements) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let doing = "declaring the queue";
            let failed = self.server.failed(doing);
            let queue = name(place);
            if look(&mut self.server.reach().await?, &queue).await.map_err(&failed)?.is_some() {
                return Err(self.server.occupied(&queue));
            }
            // its name is noted before it is declared, so that it is found after a kill
            let mut connection = self.server.reach().await?;
            leave(&mut connection, &names(&place.namespace), &queue).await.map_err(&failed)?;
            // one of a queue that was removed with its namespace
            self.caught().remove(&queue);
            let dropped = Dropped::catch(&self.server, place).await?;
            self.caught().insert(queue, dropped);
            self.declared(place, wanted, doing).await
        })
    }

    fn settings<'a>(
        &'a self,
        place: &'a Place,
        wanted: &'a Requirements,
        server: &'a EffectiveSettings,
    ) -> Task<'a, Result<EffectiveSettings, StoreError>> {
        Box::pin(async move {
            // the broker accepts this declaration only if the queue has these settings
            self.declared(place, wanted, "reading the queue's settings back").await?;
            let delivery = &wanted.delivery;
            let kind = kind(delivery);
            let (durability, because) = durability(delivery);
            let mut settings = server.settings.clone();
            settings.extend([
                ("queue.durable".to_owned(), delivery.persistent.to_string()),
                ("queue.x-queue-type".to_owned(), kind.to_owned()),
                ("message.delivery_mode".to_owned(), if delivery.persistent { "2" } else { "1" }.to_owned()),
            ]);
            Ok(EffectiveSettings { settings, ..server.at(durability, because) })
        })
    }

    /// The broker does not count messages that a consumer holds or that are on their way to it. It does count the
    /// consumer, until the messages that it held are ready again, so that the consumers stand for them here.
    fn depth<'a>(&'a self, place: &'a Place, _: &'a Requirements) -> Task<'a, Result<Depth, StoreError>> {
        Box::pin(async move {
            let failed = self.server.failed("counting messages");
            let queue = name(place);
            let mut connection = self.server.reach().await?;
            let Some(counted) = look(&mut connection, &queue).await.map_err(&failed)? else {
                return Ok(Depth::default());
            };
            let (ready, consumers) = match counted {
                (0, 0) => look_again(&mut connection, &queue).await.map_err(&failed)?,
                counted => counted,
            };
            connection.close().await;
            Ok(Depth { ready: ready.into(), unacknowledged: consumers.into() })
        })
    }

    fn dropped<'a>(&'a self, place: &'a Place) -> Task<'a, Option<String>> {
        Box::pin(async move {
            let queue = name(place);
            let mut caught = self.caught().remove(&queue)?;
            if caught.has_any().await? {
                return Some(dropped::BY_POLICY.to_owned());
            }
            let there = look(&mut self.server.reach().await.ok()?, &queue).await.ok()?;
            there.is_none().then(|| dropped::GONE.to_owned())
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let caught = self.caught().remove(&name(place));
            if let Some(caught) = caught {
                caught.end().await;
            }
            let mut connection = self.server.reach().await?;
            delete(&mut connection, &name(place)).await.map_err(self.server.failed("removing the queue"))
        })
    }

    fn keeps_order(&self, _: &Requirements) -> bool {
        true
    }
}

/// Numbers of ready messages and of consumers, of a queue for which the broker has answered that it has neither. It
/// answers so also for a quorum queue that does not answer it within 250 ms, or that has not read its log yet. So it
/// is asked again beside a consumer of our own, which it must count.
async fn look_again(connection: &mut Connection, queue: &str) -> Result<(u32, u32), Error> {
    connection.ask(ids::QOS, &prefetch(1), ids::QOS_OK).await?;
    connection.ask(ids::CONSUME, &subscription(queue, 0), ids::CONSUME_OK).await?;
    let (ready, consumers) = look(connection, queue).await?.unwrap_or_default();
    let others = consumers.checked_sub(1).ok_or_else(|| {
        Error::Protocol("the broker does not say how many messages and consumers the queue has".to_owned())
    })?;
    // the answer comes after all messages that were sent to our own consumer
    connection.ask(ids::CANCEL, &Arguments::default().name(TAG).byte(0), ids::CANCEL_OK).await?;
    let mut sent = 0;
    while let Some(event) = connection.heard() {
        sent += u32::from(matches!(event, Event::Delivered { .. }));
    }
    Ok((ready + sent, others))
}

/// The arguments that limit the messages on their way to a consumer.
pub(crate) fn prefetch(messages: u16) -> Arguments {
    Arguments::default().long(0).short(messages).byte(0)
}

fn prefetch_of(delivery: &Delivery) -> Arguments {
    prefetch(u16::try_from(delivery.prefetch).unwrap_or(u16::MAX))
}

/// The arguments that begin the only subscription of a connection.
pub(crate) fn subscription(queue: &str, bits: u8) -> Arguments {
    Arguments::default().short(0).name(queue).name(TAG).byte(bits).table(&[])
}

/// The durability level of acknowledged messages, and the reason for it.
fn durability(delivery: &Delivery) -> (Durability, String) {
    let (durability, because) = match (delivery.persistent, delivery.queue) {
        (false, _) => (Durability::None, "transient messages in a queue that is not durable"),
        (true, QueueKind::Default | QueueKind::Classic) => (
            Durability::Process,
            "persistent messages in a durable classic queue, acknowledged once synced as seen on 3.10.8; another storage \
             version of the queue need not sync, and which one it has cannot be read back",
        ),
        (true, QueueKind::Quorum) => (
            Durability::Disk,
            "persistent messages in a quorum queue, acknowledged once its log is synced, unless an advanced.config \
                 turns that off (wal_sync_method), which AMQP does not tell",
        ),
    };
    (durability, because.to_owned())
}

/// Opens connections to a trial's queue.
#[derive(Clone)]
pub struct Connector {
    server: ConnectOptions,
    queue: String,
    delivery: Delivery,
}

impl queue::Connector for Connector {
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    async fn publisher(&self) -> Result<Publisher, String> {
        let mut connection = self.server.connect_client().await?;
        let ready = match self.delivery.ack {
            Ack::None => Ok(Vec::new()),
            Ack::Confirm => {
                connection.ask(ids::CONFIRM, &Arguments::default().byte(0), ids::CONFIRM_OK).await
            }
            Ack::Transaction => connection.ask(ids::TX, &Arguments::default(), ids::TX_OK).await,
        };
        ready.map_err(|error| error.to_string())?;
        let envelope = Envelope::new(&self.queue, self.delivery.persistent);
        Ok(Publisher::new(connection, envelope, self.delivery.ack))
    }

    async fn subscriber(&self) -> Result<Subscriber, String> {
        let mut connection = self.server.connect_client().await?;
        prepare(&mut connection, &self.delivery).await.map_err(|error| error.to_string())?;
        Ok(Subscriber::new(connection, &self.queue, &self.delivery))
    }
}

/// The consumer tag of a connection's only subscription.
const TAG: &str = "acidtest";

/// Sets prefetch and transactions on a consumer's connection, before it subscribes.
async fn prepare(connection: &mut Connection, delivery: &Delivery) -> Result<(), Error> {
    if delivery.consume != Consume::Auto {
        connection.ask(ids::QOS, &prefetch_of(delivery), ids::QOS_OK).await?;
    }
    if delivery.consume == Consume::Transaction {
        connection.ask(ids::TX, &Arguments::default(), ids::TX_OK).await?;
    }
    Ok(())
}

/// The beginning of a message's body, by which a returned message is told from others of its producer.
type Start = [u8; queue::HEADER];

fn start(body: &[u8]) -> Start {
    body.first_chunk().copied().unwrap_or([0; queue::HEADER])
}

/// A message that was sent and whose outcome is not known yet.
#[derive(Clone, Debug)]
struct InFlight {
    start: Start,
    /// Where it stands among all that was to be sent.
    place: amqp::Place,
    /// The reason why the broker returned the message, if it did.
    returned: Option<String>,
    ended: bool,
}

/// A producer's connection.
pub struct Publisher {
    connection: Connection,
    envelope: Envelope,
    ack: Ack,
    /// The number of the first message in `open`.
    first: u64,
    open: VecDeque<InFlight>,
}

impl Publisher {
    fn new(connection: Connection, envelope: Envelope, ack: Ack) -> Self {
        Self { connection, envelope, ack, first: 0, open: VecDeque::new() }
    }

    /// Notes confirmations, refusals and returns of messages.
    fn note(&mut self, event: Event, ended: &mut Vec<Completion>) {
        match event {
            // the broker numbers messages from 1
            Event::Confirmed { tag, multiple } => self.end(tag.saturating_sub(1), multiple, None, ended),
            Event::Refused { tag, multiple } => {
                let why = "the broker refused to answer for it (basic.nack)";
                self.end(tag.saturating_sub(1), multiple, Some(why), ended);
            }
            Event::Returned { text, body } => {
                let start = start(&body);
                let sent = self.open.iter_mut().rev().find(|open| open.start == start);
                if let Some(open) = sent {
                    open.returned = Some(format!("the broker returned it: {text}"));
                }
            }
            Event::Delivered { .. } | Event::Cancelled | Event::Answer(..) => {}
        }
    }

    /// Ends the message of this number, or all up to it, with the outcome that follows from `refused` and from
    /// whether it was returned.
    fn end(&mut self, number: u64, multiple: bool, refused: Option<&str>, ended: &mut Vec<Completion>) {
        let Some(last) = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok()) else {
            return;
        };
        let from = if multiple { 0 } else { last };
        for (number, open) in (self.first..).zip(&mut self.open).take(last + 1).skip(from) {
            if open.ended {
                continue;
            }
            open.ended = true;
            let attempt = match (open.returned.take(), refused) {
                (Some(why), _) => Attempt::Failed(Fault::answered(why)),
                (None, Some(why)) => Attempt::Unknown(Fault::answered(why)),
                (None, None) => Attempt::Ok,
            };
            ended.push(Completion { number, attempt });
        }
        while self.open.front().is_some_and(|open| open.ended) {
            self.open.pop_front();
            self.first += 1;
        }
    }

    /// Waits for the outcome of some of the messages in flight, or of all.
    async fn answers(&mut self, ended: &mut Vec<Completion>) -> Result<(), Error> {
        match self.ack {
            Ack::None => {
                self.connection.flush().await?;
                // messages that no queue takes are returned without being asked for
                self.connection.look();
                self.note_heard(ended);
                self.end_all(ended);
            }
            Ack::Confirm => {
                while ended.is_empty() {
                    let event = self.connection.event().await?;
                    self.note(event, ended);
                    self.note_heard(ended);
                }
            }
            Ack::Transaction => {
                self.connection.ask(ids::COMMIT, &Arguments::default(), ids::COMMIT_OK).await?;
                // messages that no queue took were returned before the answer
                self.note_heard(ended);
                self.end_all(ended);
            }
        }
        Ok(())
    }

    /// Decides on the messages in flight when the connection has ended: those that were not handed to the network have failed,
    /// and so have all of a transaction whose commit was not. The outcome of the others stays unknown.
    fn lost(&self, commit: amqp::Place, error: Error, ended: &mut Vec<Completion>) -> Fault {
        let fault = Fault::from(error);
        for (number, open) in (self.first..).zip(&self.open).filter(|(_, open)| !open.ended) {
            let decided_at = if self.ack == Ack::Transaction { commit } else { open.place };
            if !self.connection.reached(decided_at) {
                ended.push(Completion { number, attempt: Attempt::Failed(fault.clone()) });
            }
        }
        fault
    }

    /// Ends all messages in flight.
    fn end_all(&mut self, ended: &mut Vec<Completion>) {
        if let Some(last) = self.open.len().checked_sub(1) {
            self.end(self.first + last as u64, true, None, ended);
        }
    }

    /// Notes all events that have arrived already.
    fn note_heard(&mut self, ended: &mut Vec<Completion>) {
        while let Some(event) = self.connection.heard() {
            self.note(event, ended);
        }
    }
}

impl queue::Publisher for Publisher {
    async fn send(&mut self, message: &Message) -> Result<(), Fault> {
        let (start, place) = (start(&message.body), self.connection.place());
        self.open.push_back(InFlight { start, place, returned: None, ended: false });
        // if the connection has ended, the next `settle` says what has become of each message
        let _ = self.connection.publish(&self.envelope, &message.body).await;
        Ok(())
    }

    async fn settle(&mut self, ended: &mut Vec<Completion>) -> Result<(), Fault> {
        // a commit is the first that is queued here
        let commit = self.connection.place();
        self.answers(ended).await.map_err(|error| self.lost(commit, error, ended))
    }

    async fn close(&mut self) {
        self.connection.close().await;
    }

    fn limit(&mut self) -> Option<String> {
        self.connection.take_blocked()
    }
}

/// A consumer's connection.
///
/// The broker answers no acknowledgement, and reads a channel's requests in their order. So it is asked, behind acknowledgements,
/// for the prefetch that the channel has already (`basic.qos`, which changes nothing and is answered).
pub struct Subscriber {
    connection: Connection,
    queue: String,
    consume: Consume,
    prefetch: Arguments,
    subscribed: bool,
    /// The delivery tag of the last message that was taken and not acknowledged.
    last: Option<u64>,
    /// How many messages were taken and not acknowledged.
    taken: u64,
    acks: SentAcks<amqp::Place>,
    /// How many requests for a prefetch are answered once the last one behind acknowledgements is.
    asked: u64,
}

impl Subscriber {
    fn new(connection: Connection, queue: &str, delivery: &Delivery) -> Self {
        Self {
            asked: connection.prefetches(),
            connection,
            queue: queue.to_owned(),
            consume: delivery.consume,
            prefetch: prefetch_of(delivery),
            subscribed: false,
            last: None,
            taken: 0,
            acks: SentAcks::new(),
        }
    }

    /// Notes whether the broker has read acknowledgements, and asks it behind those of which that is not known, unless the answer
    /// to such a question is on its way.
    fn look_for_acks(&mut self) {
        self.note_acks();
        if self.acks.ask() {
            self.connection.say(ids::QOS, &self.prefetch);
            self.asked = self.connection.prefetches() + 1;
        }
    }

    /// Notes whether the broker has answered, also where the answer waits behind messages that nobody has taken yet.
    fn note_acks(&mut self) {
        if self.connection.prefetches() >= self.asked {
            self.acks.answered();
        }
    }

    /// Subscribes when the first message is asked for. From then on the broker sends the messages that there are,
    /// without acknowledgements all of them; taking one that was sent before the clock started would be timed as a
    /// read from memory.
    async fn subscribe(&mut self) -> Result<(), Error> {
        const NO_ACK: u8 = 2;
        // if this future is dropped, the answer comes later, as an event
        if std::mem::replace(&mut self.subscribed, true) {
            return Ok(());
        }
        let bits = if self.consume == Consume::Auto { NO_ACK } else { 0 };
        self.connection.ask(ids::CONSUME, &subscription(&self.queue, bits), ids::CONSUME_OK).await.map(drop)
    }

    /// Takes the message into `received`, if the event is one. Returns the outcome of the operation, if the event
    /// ends it.
    fn note(&mut self, event: Event, received: &mut ReceivedMessage) -> Option<Attempt> {
        match event {
            Event::Delivered { tag, redelivered, body } => {
                self.last = Some(tag);
                self.taken += 1;
                *received = ReceivedMessage { body, redelivered: Some(redelivered) };
                Some(Attempt::Ok)
            }
            Event::Cancelled => {
                let why = "the broker ended the subscription: the queue is gone";
                Some(Attempt::Failed(Fault::lost(why)))
            }
            Event::Answer(ids::QOS_OK, _) => {
                self.look_for_acks();
                None
            }
            Event::Returned { .. } | Event::Confirmed { .. } | Event::Refused { .. } | Event::Answer(..) => {
                None
            }
        }
    }
}

impl queue::Subscriber for Subscriber {
    async fn take(&mut self, patience: Duration, received: &mut ReceivedMessage) -> Attempt {
        while let Some(event) = self.connection.heard() {
            if let Some(attempt) = self.note(event, received) {
                return attempt;
            }
        }
        // acknowledgements that were collected while messages were at hand are written while it waits
        self.look_for_acks();
        let waited = timeout(patience, async {
            self.connection.still_reaches()?;
            self.subscribe().await?;
            loop {
                let event = self.connection.event().await?;
                if let Some(attempt) = self.note(event, received) {
                    return Ok(attempt);
                }
            }
        });
        match waited.await {
            Ok(Ok(attempt)) => attempt,
            Ok(Err(error)) => lost(self.consume, error),
            Err(_) => Attempt::Refused,
        }
    }

    async fn settle(&mut self) -> Result<AckAnswer, Attempt> {
        const MULTIPLE: u8 = 1;
        let (messages, place) = (std::mem::take(&mut self.taken), self.connection.place());
        if let Some(tag) = self.last.take() {
            self.connection.say(ids::ACK, &Arguments::default().longlong(tag).byte(MULTIPLE));
        }
        if self.consume == Consume::Transaction {
            return self.commit().await;
        }
        if messages > 0 {
            self.acks.begin(messages, place);
        }
        // while messages are at hand, acknowledgements are written several at once
        if !self.connection.has_heard() {
            self.look_for_acks();
            let written = match self.connection.still_reaches() {
                Ok(()) => self.connection.flush().await,
                Err(closed) => Err(closed),
            };
            written.map_err(|error| Attempt::Unknown(error.into()))?;
        }
        Ok(AckAnswer::Sent)
    }

    fn progress(&mut self) -> AckProgress {
        self.note_acks();
        let Self { connection, acks, consume, .. } = self;
        match consume {
            Consume::Ack => acks.progress(|place| connection.reached(place)),
            Consume::Auto | Consume::Transaction => AckProgress::default(),
        }
    }

    /// Cancels the subscription only without acknowledgements. The broker counts a cancelled one no more, and does
    /// not count the messages that it holds either, so that with acknowledgements it must end with its connection.
    async fn stop(&mut self) -> Result<(), Fault> {
        self.subscribed = true;
        if self.consume == Consume::Auto {
            let arguments = Arguments::default().name(TAG).byte(0);
            self.connection.ask(ids::CANCEL, &arguments, ids::CANCEL_OK).await?;
        }
        Ok(())
    }

    async fn close(&mut self) {
        if self.connection.close().await {
            self.acks.all_read();
        }
    }
}

impl Subscriber {
    /// Commits the acknowledgements of a transaction. The broker carries out none of them before.
    async fn commit(&mut self) -> Result<AckAnswer, Attempt> {
        let commit = self.connection.place();
        self.connection.say(ids::COMMIT, &Arguments::default());
        let answer = match self.connection.still_reaches() {
            Ok(()) => self.connection.answer(ids::COMMIT_OK).await.map(drop),
            Err(closed) => Err(closed),
        };
        match answer {
            Ok(()) => Ok(AckAnswer::Answered),
            Err(error) if self.connection.reached(commit) => Err(Attempt::Unknown(error.into())),
            Err(error) => Err(Attempt::Failed(error.into())),
        }
    }
}

/// The outcome if the connection broke while a message was asked for: with acknowledgements the message is delivered
/// again, without them it may be lost.
fn lost(consume: Consume, error: Error) -> Attempt {
    match consume {
        Consume::Auto => Attempt::Unknown(error.into()),
        Consume::Ack | Consume::Transaction => Attempt::Failed(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use acidtest_workloads::queue::Publisher as _;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;
    use crate::amqp::tests::{acknowledgement, connected};

    /// Longer than a broker of a test takes for anything.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// A producer, and the broker's side of its connection.
    async fn producer(ack: Ack) -> (Publisher, TcpStream) {
        let (connection, broker) = connected().await;
        (Publisher::new(connection, Envelope::new("queue", true), ack), broker)
    }

    fn message(bytes: usize) -> Message {
        Message { body: vec![7; bytes] }
    }

    /// Sends messages to a broker that reads none of them, until no byte of the last ones can be on its way. Returns how
    /// many.
    async fn fill(producer: &mut Publisher) -> u64 {
        let mut sent = 0;
        loop {
            sent += 1;
            let place = producer.connection.place();
            let waited = timeout(Duration::from_millis(200), producer.send(&message(100_000))).await;
            if waited.is_err() && !producer.connection.reached(place) {
                return sent;
            }
        }
    }

    fn numbers(ended: &[Completion]) -> Vec<u64> {
        ended.iter().map(|ended| ended.number).collect()
    }

    async fn settle(producer: &mut Publisher) -> (Result<(), Fault>, Vec<Completion>) {
        let mut ended = Vec::new();
        let settled = timeout(PATIENCE, producer.settle(&mut ended)).await.unwrap();
        (settled, ended)
    }

    /// Of messages that were not handed to the network it is known that they were not published; of those before them it is
    /// not.
    #[tokio::test]
    async fn what_was_not_sent_has_failed_when_the_connection_ends() {
        for ack in [Ack::Confirm, Ack::None] {
            let (mut producer, broker) = producer(ack).await;
            let sent = fill(&mut producer).await;
            drop(broker);
            let (settled, ended) = settle(&mut producer).await;
            assert!(settled.unwrap_err().connection_lost);
            let first = ended.first().unwrap().number;
            assert!(first > 0, "the first message was on its way");
            assert_eq!(numbers(&ended), (first..sent).collect::<Vec<_>>());
            assert!(ended.iter().all(|ended| matches!(ended.attempt, Attempt::Failed(_))), "{ended:?}");
        }
    }

    /// The broker publishes a transaction's messages when it is committed, and not before.
    #[tokio::test]
    async fn no_message_of_a_transaction_was_published_whose_commit_was_not_sent() {
        let (mut producer, broker) = producer(Ack::Transaction).await;
        let sent = fill(&mut producer).await;
        drop(broker);
        let (settled, ended) = settle(&mut producer).await;
        assert!(settled.unwrap_err().connection_lost);
        assert_eq!(numbers(&ended), (0..sent).collect::<Vec<_>>());
        assert!(ended.iter().all(|ended| matches!(ended.attempt, Attempt::Failed(_))), "{ended:?}");
    }

    /// A commit that was sent may have been carried out, also that of the second transaction on a connection.
    #[tokio::test]
    async fn a_transaction_is_unknown_whose_commit_was_sent() {
        let (mut producer, mut broker) = producer(Ack::Transaction).await;
        for is_answered in [true, false] {
            producer.send(&message(10)).await.unwrap();
            let broker = async {
                assert!(broker.read(&mut [0; 4096]).await.unwrap() > 0);
                if is_answered {
                    broker.write_all(&amqp::tests::committed()).await.unwrap();
                } else {
                    broker.shutdown().await.unwrap();
                }
            };
            let ((settled, ended), ()) = tokio::join!(settle(&mut producer), broker);
            assert_eq!(settled.is_ok(), is_answered);
            assert_eq!(numbers(&ended), if is_answered { vec![0] } else { vec![] });
        }
    }

    /// What was committed before says nothing of a transaction whose messages could not be sent.
    #[tokio::test]
    async fn a_transaction_has_failed_whose_commit_was_not_sent_after_another_was() {
        let (mut producer, mut broker) = producer(Ack::Transaction).await;
        producer.send(&message(10)).await.unwrap();
        let answered = async {
            assert!(broker.read(&mut [0; 4096]).await.unwrap() > 0);
            broker.write_all(&amqp::tests::committed()).await.unwrap();
        };
        assert!(tokio::join!(settle(&mut producer), answered).0.0.is_ok());
        let sent = fill(&mut producer).await;
        drop(broker);
        let (settled, ended) = settle(&mut producer).await;
        assert!(settled.unwrap_err().connection_lost);
        assert_eq!(numbers(&ended), (1..=sent).collect::<Vec<_>>());
    }

    /// Confirmations that came before the connection's end count, and the message behind them is unknown.
    #[tokio::test]
    async fn what_was_confirmed_before_the_end_is_published() {
        let (mut producer, mut broker) = producer(Ack::Confirm).await;
        for _ in 0..3 {
            producer.send(&message(10)).await.unwrap();
        }
        producer.connection.flush().await.unwrap();
        broker.write_all(&acknowledgement(2)).await.unwrap();
        // it has read all, so that the connection ends without an error
        while broker.read(&mut [0; 4096]).await.unwrap() == 4096 {}
        drop(broker);
        let (settled, ended) = settle(&mut producer).await;
        assert!(settled.is_ok());
        assert_eq!(ended, [0, 1].map(|number| Completion { number, attempt: Attempt::Ok }));
        let (settled, ended) = settle(&mut producer).await;
        assert!(settled.unwrap_err().connection_lost);
        assert_eq!(ended, []);
    }

    /// A consumer that acknowledges, and the broker's side of its connection, which has handed it the first message.
    async fn consumer() -> (Subscriber, TcpStream) {
        let (connection, mut broker) = connected().await;
        let delivery = queue::Parameters::default().delivery();
        let mut consumer = Subscriber::new(connection, "queue", &delivery);
        let says = [amqp::tests::answer(ids::CONSUME_OK, TAG), amqp::tests::delivered(1, b"first")].concat();
        broker.write_all(&says).await.unwrap();
        assert_eq!(take(&mut consumer, PATIENCE).await, Attempt::Ok);
        assert!(broker.read(&mut [0; 4096]).await.unwrap() > 0);
        (consumer, broker)
    }

    async fn take(consumer: &mut Subscriber, patience: Duration) -> Attempt {
        queue::Subscriber::take(consumer, patience, &mut ReceivedMessage::default()).await
    }

    /// The broker answers what it is asked behind acknowledgements once it has read these.
    #[tokio::test]
    async fn acknowledgements_are_read_once_the_broker_has_answered_what_came_behind_them() {
        let (mut consumer, mut broker) = consumer().await;
        assert_eq!(queue::Subscriber::settle(&mut consumer).await, Ok(AckAnswer::Sent));
        assert_eq!(queue::Subscriber::progress(&mut consumer), AckProgress { handed: 1, read: 0 });
        let mut heard = [0; 4096];
        let heard_bytes = broker.read(&mut heard).await.unwrap();
        let (ack, qos) = (amqp::tests::acknowledgement(1).len(), amqp::tests::answer(ids::QOS_OK, "").len());
        assert!(heard_bytes > ack + qos, "it was asked nothing behind the acknowledgement");
        let answer = amqp::tests::answer(ids::QOS_OK, "");
        let says =
            [amqp::tests::delivered(2, b"second"), amqp::tests::delivered(3, b"third"), answer.clone()];
        broker.write_all(&says.concat()).await.unwrap();
        assert_eq!(take(&mut consumer, PATIENCE).await, Attempt::Ok);
        // although the answer waits behind the third message
        assert_eq!(queue::Subscriber::progress(&mut consumer), AckProgress { handed: 1, read: 1 });
        // acknowledged while another message is at hand, so that it is written and asked about when it waits
        assert_eq!(queue::Subscriber::settle(&mut consumer).await, Ok(AckAnswer::Sent));
        assert_eq!(queue::Subscriber::progress(&mut consumer), AckProgress { handed: 1, read: 1 });
        assert_eq!(take(&mut consumer, PATIENCE).await, Attempt::Ok);
        consumer.connection.heard().unwrap();
        assert_eq!(take(&mut consumer, Duration::from_millis(1)).await, Attempt::Refused);
        assert_eq!(queue::Subscriber::progress(&mut consumer), AckProgress { handed: 2, read: 1 });
        assert!(broker.read(&mut heard).await.unwrap() > ack + qos, "it was not asked again");
        broker.write_all(&answer).await.unwrap();
        while queue::Subscriber::progress(&mut consumer).read == 1 {
            assert_eq!(take(&mut consumer, Duration::from_millis(1)).await, Attempt::Refused);
        }
        assert_eq!(queue::Subscriber::progress(&mut consumer), AckProgress { handed: 2, read: 2 });
    }

    /// What had been fetched from a broker that is gone is acknowledged to nobody, although writing it would not fail.
    #[tokio::test]
    async fn what_is_acknowledged_to_a_broker_that_is_gone_was_not_sent() {
        let (mut consumer, mut broker) = consumer().await;
        let more = [2, 3].map(|tag| amqp::tests::delivered(tag, b"more")).concat();
        broker.write_all(&more).await.unwrap();
        drop(broker);
        // the runtime hears of what has arrived, too
        tokio::time::sleep(Duration::from_millis(1)).await;
        while !consumer.connection.is_closed() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let settled = queue::Subscriber::settle(&mut consumer).await;
        assert!(matches!(settled, Err(Attempt::Unknown(fault)) if fault.connection_lost));
        // what was fetched can still be taken
        for (is_last, sent) in [(false, true), (true, false)] {
            assert_eq!(take(&mut consumer, PATIENCE).await, Attempt::Ok);
            assert_eq!(!consumer.connection.has_heard(), is_last);
            assert_eq!(queue::Subscriber::settle(&mut consumer).await.is_ok(), sent);
            assert_eq!(queue::Subscriber::progress(&mut consumer), AckProgress { handed: 0, read: 0 });
        }
    }

    /// A producer that waits for no confirmations still hears what the broker gives back, and keeps none of it.
    #[tokio::test]
    async fn what_is_returned_to_a_producer_without_confirmations_is_not_kept() {
        let (mut producer, mut broker) = producer(Ack::None).await;
        let mut failed = 0;
        for _ in 0..200 {
            producer.send(&message(1_000)).await.unwrap();
            broker.write_all(&amqp::tests::returned(&message(1_000).body)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
            let (settled, ended) = settle(&mut producer).await;
            assert!(settled.is_ok());
            failed += ended.iter().filter(|ended| matches!(ended.attempt, Attempt::Failed(_))).count();
            assert!(!producer.connection.has_heard());
        }
        assert!(failed > 0, "none is known to be returned");
    }
}
