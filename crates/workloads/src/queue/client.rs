//! The clients: producers and consumers, and how they keep the ledger.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use acidtest_engine::{Attempt, Client, ClientTask, Completion, Fault, Outcome, Pipeline};
use serde_json::value::RawValue;

use super::{
    Ack, AckAnswer, Connector, Consume, Ledger, Message, PublishState, Publisher, ReceivedMessage,
    Requirements, Subscriber,
    hand::InHand,
    message::{self, Id, LOADED},
    order::ArrivalOrder,
};
use crate::{
    Boundary,
    trial::{TrialLedger, WrittenLedger, read_ledger, written_ledger},
};

/// Names of the operations, in the order of their kinds.
pub const OPERATIONS: &[&str] = &["publish", "consume"];
const PUBLISH: usize = 0;
const CONSUME: usize = 1;

/// Names of the spans: from publishing a message until a consumer takes it, its time in the queue included.
pub const SPANS: &[&str] = &["delivery"];
const DELIVERY: usize = 0;

/// How long a consumer waits for a message before it reports that there was none.
const PATIENCE: Duration = Duration::from_millis(50);

/// How many different limits are counted one by one; any others are counted together.
const LIMITS: usize = 20;

/// The state that all clients of one trial share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The ledger of published and consumed messages.
    pub ledger: Arc<Ledger>,
    /// The moment from which the messages' time stamps count.
    origin: Instant,
    limits: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Scenario {
    /// A trial's scenario, over an empty ledger.
    #[must_use]
    pub fn new(ledger: Arc<Ledger>) -> Self {
        Self::since(Instant::now(), ledger)
    }

    /// The same, with time stamps that count from this moment.
    pub(crate) fn since(origin: Instant, ledger: Arc<Ledger>) -> Self {
        Self { ledger, origin, limits: Arc::default() }
    }

    /// Nanoseconds since the scenario was made, for the time stamps of messages.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The reasons for which the store limited its producers, in its words, and how often it gave each.
    #[must_use]
    pub fn limits(&self) -> BTreeMap<String, u64> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn limited(&self, by: String) {
        self.limited_times(by, 1);
    }

    /// Counts a limit that a store gave so many times.
    fn limited_times(&self, by: String, times: u64) {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let known = limits.contains_key(&by) || limits.len() < LIMITS;
        *limits.entry(if known { by } else { "other limits".to_owned() }).or_default() += times;
    }
}

/// The ledger, and the limits that its clients were told of.
impl TrialLedger for Scenario {
    fn written(&self) -> Result<WrittenLedger, String> {
        written_ledger(&(self.ledger.written(), self.limits()))
    }

    fn merge(&self, written: &RawValue, knows_boundaries: bool) -> Result<(), String> {
        let (ledger, limits): (_, BTreeMap<String, u64>) = read_ledger(written)?;
        self.ledger.merge(&ledger, knows_boundaries)?;
        for (by, times) in limits {
            self.limited_times(by, times);
        }
        Ok(())
    }

    fn note_moment(&self) {
        self.ledger.note_moment();
    }

    fn note_boundary(&self, boundary: Boundary) {
        self.ledger.note_boundary(boundary);
    }
}

/// A message to be published. Its memory is reused.
#[derive(Debug)]
struct OutgoingMessage {
    id: Id,
    message: Message,
}

struct Producer<C: Connector> {
    scenario: Scenario,
    connector: C,
    connection: Option<C::Publisher>,
    wanted: Requirements,
    next: Id,
    spare: Vec<Message>,
}

impl<C: Connector> Producer<C> {
    fn new(connector: C, scenario: Scenario, wanted: Requirements, index: usize) -> Self {
        // indices of clients are far below LOADED
        let producer = u32::try_from(index).unwrap_or(LOADED);
        let next = Id { producer, sequence: 0 };
        Self { scenario, connector, connection: None, wanted, next, spare: Vec::new() }
    }
}

impl<C: Connector> Pipeline for Producer<C> {
    type Operation = OutgoingMessage;

    fn depth(&self) -> usize {
        self.wanted.delivery.unanswered() as usize
    }

    fn settles_early(&self) -> bool {
        self.wanted.delivery.ack != Ack::Transaction
    }

    fn draw(&mut self) -> Option<OutgoingMessage> {
        let id = self.next;
        self.next.sequence += 1;
        let mut message = self.spare.pop().unwrap_or_default();
        self.scenario.ledger.sending(id);
        message.write(id, self.scenario.now(), self.wanted.message_bytes as usize);
        Some(OutgoingMessage { id, message })
    }

    fn kind(_: &OutgoingMessage) -> usize {
        PUBLISH
    }

    async fn send(&mut self, draft: &OutgoingMessage) -> Result<(), Fault> {
        match &mut self.connection {
            Some(connection) => connection.send(&draft.message).await,
            None => Err(Fault::lost("no connection")),
        }
    }

    async fn settle(&mut self, ended: &mut Vec<Completion>) -> Result<(), Fault> {
        match &mut self.connection {
            Some(connection) => connection.settle(ended).await,
            None => Err(Fault::lost("no connection")),
        }
    }

    fn account(&mut self, draft: OutgoingMessage, outcome: Outcome) {
        let how = match outcome {
            Outcome::Ok => PublishState::Ok,
            Outcome::Unknown => PublishState::Sent,
            Outcome::Failed | Outcome::Refused | Outcome::Conflict => PublishState::Failed,
        };
        self.scenario.ledger.published(draft.id, how);
        self.spare.push(draft.message);
        if let Some(limit) = self.connection.as_mut().and_then(Publisher::limit) {
            self.scenario.limited(limit);
        }
    }

    async fn connect(&mut self) -> Result<(), String> {
        // the old connection is gone before the new one is asked for
        self.connection = None;
        self.scenario.ledger.connecting(self.next);
        self.connection = Some(self.connector.publisher().await?);
        Ok(())
    }

    async fn check(&mut self) -> Result<(), String> {
        match &mut self.connection {
            Some(connection) => connection.check().await,
            None => Ok(()),
        }
    }

    async fn finish(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.close().await;
        }
    }
}

/// Taking the next message, and acknowledging the messages in hand where that is due.
#[derive(Clone, Copy, Debug)]
struct ConsumeOperation;

struct Consumer<C: Connector> {
    scenario: Scenario,
    connector: C,
    connection: Option<C::Subscriber>,
    wanted: Requirements,
    received: ReceivedMessage,
    /// When `received` was taken, in nanoseconds of the messages' clock; `None` once it has been recorded in the
    /// ledger.
    taken: Option<u64>,
    /// The messages taken on the connection, whose acknowledgements are not known to have been read.
    hand: InHand,
    /// How far an acknowledgement of what is held and `received` together has come; `None` where none was sent.
    settled: Option<AckAnswer>,
    /// `None` where no order is promised.
    order: Option<ArrivalOrder>,
    span: Option<u64>,
}

impl<C: Connector> Consumer<C> {
    fn new(connector: C, scenario: Scenario, wanted: Requirements, ordered: bool) -> Self {
        Self {
            scenario,
            connector,
            connection: None,
            wanted,
            received: ReceivedMessage::default(),
            taken: None,
            hand: InHand::default(),
            settled: None,
            order: ordered.then(ArrivalOrder::default),
            span: None,
        }
    }

    fn acknowledges(&self) -> bool {
        self.wanted.delivery.consume != Consume::Auto
    }

    /// Takes a message, and acknowledges those in hand where that is due.
    async fn take(&mut self, patience: Duration) -> Attempt {
        let acknowledges = self.acknowledges();
        let Some(connection) = &mut self.connection else {
            return Attempt::Failed(Fault::lost("no connection"));
        };
        let attempt = connection.take(patience, &mut self.received).await;
        self.taken = (attempt == Attempt::Ok).then(|| self.scenario.now());
        let held = self.hand.held() + usize::from(self.taken.is_some());
        // messages that other clients may be waiting for are not held while there is nothing else to do
        let due = held >= self.wanted.delivery.batch as usize || attempt == Attempt::Refused;
        let settles = acknowledges && due && held > 0 && matches!(attempt, Attempt::Ok | Attempt::Refused);
        if settles && let Err(trouble) = settle(connection, &mut self.settled).await {
            return trouble;
        }
        if attempt == Attempt::Refused {
            // before another attempt takes a message that this acknowledgement was not for
            self.note_settled();
        }
        attempt
    }

    /// Acknowledges the messages in hand between operations, if there are any.
    async fn settle_held(&mut self) -> Result<(), Attempt> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        if self.hand.held() == 0 {
            return Ok(());
        }
        let settled = settle(connection, &mut self.settled).await;
        self.note();
        settled
    }

    /// Records the acknowledgement of all messages that are held, if one was sent.
    fn note_settled(&mut self) {
        if let Some(settled) = self.settled.take() {
            self.hand.acknowledge(settled, &self.scenario.ledger);
        }
        if self.hand.waits()
            && let Some(connection) = &mut self.connection
        {
            self.hand.look(connection.progress(), &self.scenario.ledger);
        }
    }

    /// Records how far the acknowledgements on the connection have come, which has ended. What the store cannot have an
    /// acknowledgement of, it must hand out again.
    fn let_go(&mut self) {
        self.note_settled();
        if let Some(connection) = &mut self.connection {
            self.hand.let_go(connection.progress(), &self.scenario.ledger);
        }
    }

    /// Records the message that was taken, however its acknowledgement ended.
    fn note(&mut self) {
        self.span = None;
        if let Some(taken) = self.taken.take() {
            let acknowledges = self.acknowledges();
            let read = message::read(&self.received.body, self.wanted.message_bytes as usize);
            self.hand.take(read.map(|(id, _)| id).filter(|_| acknowledges));
            match read {
                None => self.scenario.ledger.torn(),
                Some((id, stamp)) => {
                    self.span = Some(taken.saturating_sub(stamp));
                    if self.scenario.ledger.delivered(id, self.received.redelivered) {
                        self.look_at_order(id);
                    }
                    if !acknowledges {
                        self.scenario.ledger.acknowledged([id], AckAnswer::Read);
                    }
                }
            }
        }
        self.note_settled();
    }

    fn look_at_order(&mut self, id: Id) {
        let ledger = &self.scenario.ledger;
        let flagged = self.received.redelivered;
        if !ledger.knows_order_of(id) {
            return;
        }
        if self.order.as_mut().is_some_and(|order| order.is_late(id, ledger)) {
            ledger.reordered(id, flagged);
        }
    }
}

/// Acknowledges the messages in hand, and says in `settled` how far that has come, also when it is given up half way. However
/// it fails, the messages are given back only with the connection.
async fn settle(connection: &mut impl Subscriber, settled: &mut Option<AckAnswer>) -> Result<(), Attempt> {
    *settled = Some(AckAnswer::Sent);
    match connection.settle().await {
        Ok(how) => {
            *settled = Some(how);
            Ok(())
        }
        Err(unknown @ Attempt::Unknown(_)) => Err(unknown),
        Err(failed) => {
            *settled = None;
            Err(Attempt::Failed(match failed {
                Attempt::Failed(fault) => Fault { connection_lost: true, ..fault },
                _ => Fault::lost("rolled back in favour of another transaction"),
            }))
        }
    }
}

impl<C: Connector> Drop for Consumer<C> {
    /// Whoever waits for an answer may be given up for good.
    fn drop(&mut self) {
        self.let_go();
    }
}

impl<C: Connector> Client for Consumer<C> {
    type Operation = ConsumeOperation;

    fn draw(&mut self) -> Option<ConsumeOperation> {
        let ledger = &self.scenario.ledger;
        let drains = self.wanted.delivery.producers == 0;
        let is_left = !drains || ledger.delivered_anywhere() < ledger.backlog();
        // a consumer that waits until a queue is empty might wait forever
        (is_left && !ledger.is_endless()).then_some(ConsumeOperation)
    }

    fn kind(_: &ConsumeOperation) -> usize {
        CONSUME
    }

    /// A message that is gone once it is handed out was not acknowledged by anybody.
    fn changes(&self, _: &ConsumeOperation) -> bool {
        self.acknowledges()
    }

    async fn attempt(&mut self, _: &ConsumeOperation) -> Attempt {
        self.take(PATIENCE).await
    }

    fn account(&mut self, _: ConsumeOperation, outcome: Outcome) {
        self.note();
        if matches!(outcome, Outcome::Failed | Outcome::Unknown) {
            self.scenario.ledger.consumer_lost();
        }
        self.span = self.span.filter(|_| outcome == Outcome::Ok);
    }

    fn span(&mut self) -> Option<(usize, u64)> {
        Some((DELIVERY, self.span.take()?))
    }

    async fn connect(&mut self) -> Result<(), String> {
        // drop the old connection before asking for a new one; the messages that it held may be delivered again
        self.let_go();
        if self.connection.take().is_some() {
            self.scenario.ledger.consumer_lost();
        }
        self.connection = Some(self.connector.subscriber().await?);
        Ok(())
    }

    async fn check(&mut self) -> Result<(), String> {
        match &mut self.connection {
            Some(connection) => connection.check().await,
            None => Ok(()),
        }
    }

    /// Acknowledges the messages in hand: on some stores nobody else can write before that.
    async fn pause(&mut self) {
        if self.settle_held().await.is_err() {
            // the messages that are held may be delivered again: only a new connection starts clean
            self.let_go();
            self.connection = None;
            self.scenario.ledger.consumer_lost();
        }
    }

    /// Acknowledges the messages in hand. Where nothing is acknowledged, takes the messages that were handed out
    /// already. Then closes the connection, so that its messages are counted before the queue is judged.
    async fn finish(&mut self) {
        self.scenario.ledger.consumer_done();
        // an answer that does not come changes nothing any more
        let _ = self.settle_held().await;
        let Some(connection) = &mut self.connection else { return };
        if connection.stop().await.is_ok() && !self.acknowledges() {
            while self.take(Duration::ZERO).await == Attempt::Ok {
                self.note();
            }
        }
        if let Some(connection) = &mut self.connection {
            connection.close().await;
        }
        self.let_go();
    }
}

/// Wraps one client for the engine: a producer or a consumer, by its index. To be called in each store's crate, so
/// that the client's loop is compiled there, with static dispatch of every call in it.
pub(crate) fn task<C: Connector>(
    connector: C,
    scenario: Scenario,
    wanted: Requirements,
    ordered: bool,
) -> ClientTask {
    Box::new(move |driver| {
        let index = driver.index();
        if index < wanted.delivery.producers as usize {
            Box::pin(driver.drive_pipeline(Producer::new(connector, scenario, wanted, index)))
        } else {
            Box::pin(driver.drive(Consumer::new(connector, scenario, wanted, ordered)))
        }
    })
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering::SeqCst},
        task::{Context, Waker},
        thread,
    };

    use acidtest_engine::{Extent, Load, Stop, Trial};

    use super::*;
    use crate::{
        at_once,
        queue::{Parameters, ledger::Entry},
    };

    /// A queue of loaded messages, and the connections of one consumer to it.
    #[derive(Clone)]
    struct Table {
        scenario: Scenario,
        /// The messages that come next; `None` stands for an empty queue at that moment.
        next: Arc<Mutex<Vec<Option<Id>>>>,
        /// Whether the first acknowledgement is never answered.
        hangs: bool,
        hung: Arc<AtomicBool>,
        /// Whether each acknowledgement is answered with an error that proves that it had no effect.
        refuses: bool,
        /// The flag that the store hands messages out with; `None` if it has none.
        redelivered: Option<bool>,
    }

    const BYTES: usize = 40;

    /// Takes the message that comes next.
    fn take(consumer: &mut Consumer<Table>) {
        assert_eq!(at_once(consumer.attempt(&ConsumeOperation)), Attempt::Ok);
        consumer.account(ConsumeOperation, Outcome::Ok);
    }

    fn loaded(sequence: u64) -> Id {
        Id { producer: LOADED, sequence }
    }

    impl Table {
        fn new(next: &[Option<u64>], hangs: bool) -> Self {
            let scenario = Scenario::new(Arc::new(Ledger::new(0, next.len() as u64)));
            for id in (0..scenario.ledger.backlog()).map(loaded) {
                scenario.ledger.sending(id);
                scenario.ledger.published(id, PublishState::Ok);
            }
            let next = next.iter().rev().map(|each| each.map(loaded)).collect();
            Self {
                scenario,
                next: Arc::new(Mutex::new(next)),
                hangs,
                hung: Arc::default(),
                refuses: false,
                redelivered: None,
            }
        }

        fn wanted() -> Requirements {
            let parameters = Parameters { batch: 10, message_bytes: 40, ..Parameters::default() };
            Requirements { delivery: parameters.delivery(), message_bytes: parameters.message_bytes }
        }

        fn consumer(&self) -> Consumer<Self> {
            Consumer::new(self.clone(), self.scenario.clone(), Self::wanted(), false)
        }

        /// How many duplicates are counted for the message once a consumer acknowledges it again.
        fn twice(&self, sequence: u64) -> u64 {
            self.scenario.ledger.acknowledged([loaded(sequence)], AckAnswer::Answered);
            self.scenario.ledger.totals().duplicated
        }
    }

    /// Counts the messages that a connection has taken and not acknowledged.
    struct Unacknowledged {
        table: Table,
        taken: usize,
    }

    /// A producer's connection that never answers.
    struct SilentPublisher;

    impl Connector for Table {
        type Publisher = SilentPublisher;
        type Subscriber = Unacknowledged;

        async fn publisher(&self) -> Result<SilentPublisher, String> {
            Ok(SilentPublisher)
        }

        async fn subscriber(&self) -> Result<Unacknowledged, String> {
            Ok(Unacknowledged { table: self.clone(), taken: 0 })
        }
    }

    impl Publisher for SilentPublisher {
        async fn send(&mut self, _: &Message) -> Result<(), Fault> {
            Ok(())
        }

        async fn settle(&mut self, _: &mut Vec<Completion>) -> Result<(), Fault> {
            Ok(())
        }
    }

    impl Subscriber for Unacknowledged {
        async fn take(&mut self, _: Duration, received: &mut ReceivedMessage) -> Attempt {
            let Some(Some(id)) = self.table.next.lock().unwrap().pop() else { return Attempt::Refused };
            let mut message = Message::default();
            message.write(id, 0, BYTES);
            *received = ReceivedMessage { body: message.body, redelivered: self.table.redelivered };
            self.taken += 1;
            Attempt::Ok
        }

        /// Behaves as a table does: once an acknowledgement was asked for, its messages need no other, and with
        /// nothing to acknowledge there is nothing to ask.
        async fn settle(&mut self) -> Result<AckAnswer, Attempt> {
            if std::mem::take(&mut self.taken) > 0 && self.table.hangs && !self.table.hung.swap(true, SeqCst)
            {
                std::future::pending::<()>().await;
            }
            if self.table.refuses {
                return Err(Attempt::Failed(Fault::answered("read-only")));
            }
            Ok(AckAnswer::Answered)
        }
    }

    /// A store without a flag may still hold back messages that it handed to a lost consumer, and hand them out
    /// later as if for the first time.
    #[test]
    fn no_order_is_judged_without_a_flag_once_a_consumer_was_lost() {
        for (lost, found) in [(false, 1), (true, 0)] {
            let table = Table::new(&[Some(1), Some(0)], false);
            let mut consumer = Consumer::new(table.clone(), table.scenario.clone(), Table::wanted(), true);
            at_once(consumer.connect()).unwrap();
            if lost {
                // its first search was cut off: its locks outlive it for a while
                consumer.account(ConsumeOperation, Outcome::Unknown);
                at_once(consumer.connect()).unwrap();
            }
            (0..2).for_each(|_| take(&mut consumer));
            assert_eq!(table.scenario.ledger.totals().reordered, found, "lost: {lost}");
        }
    }

    /// A consumer's view of the order outlives its connections: a store with a flag has said that it hands this
    /// message out for the first time.
    #[test]
    fn an_order_is_judged_over_a_consumer_s_connections() {
        let table = Table { redelivered: Some(false), ..Table::new(&[Some(1), Some(0)], false) };
        let mut consumer = Consumer::new(table.clone(), table.scenario.clone(), Table::wanted(), true);
        for _ in 0..2 {
            at_once(consumer.connect()).unwrap();
            take(&mut consumer);
        }
        assert_eq!(table.scenario.ledger.totals().reordered, 1);
    }

    /// Messages handed to a consumer that asks for no more go to the other consumers, out of order and, where a
    /// store has no flag, without one.
    #[test]
    fn no_order_is_judged_without_a_flag_once_a_consumer_is_done() {
        for (done, found) in [(false, 1), (true, 0)] {
            let table = Table::new(&[Some(1), Some(0)], false);
            let consumer = || Consumer::new(table.clone(), table.scenario.clone(), Table::wanted(), true);
            let mut consumers = [consumer(), consumer()];
            for consumer in &mut consumers {
                at_once(consumer.connect()).unwrap();
            }
            if done {
                at_once(consumers[0].finish());
            }
            (0..2).for_each(|_| take(&mut consumers[1]));
            assert_eq!(table.scenario.ledger.totals().reordered, found, "done: {done}");
        }
    }

    /// Each message that a consumer takes is checked, exactly once.
    #[test]
    fn what_is_wrong_with_what_is_taken_is_counted() {
        // the messages held are acknowledged in between; nobody sent the last one
        let table = Table::new(&[Some(0), Some(1), None, Some(1), Some(9), None], false);
        let mut consumer = table.consumer();
        at_once(consumer.connect()).unwrap();
        (0..2).for_each(|_| take(&mut consumer));
        assert_eq!(at_once(consumer.attempt(&ConsumeOperation)), Attempt::Refused);
        (0..2).for_each(|_| take(&mut consumer));
        assert_eq!(at_once(consumer.attempt(&ConsumeOperation)), Attempt::Refused);
        let totals = table.scenario.ledger.totals();
        assert_eq!([totals.delivered, totals.redelivered, totals.duplicated], [2, 1, 1]);
        assert_eq!([totals.foreign, totals.torn, totals.reordered], [1, 0, 0]);

        let table = Table::new(&[Some(0)], false);
        let longer = Requirements { message_bytes: 41, ..Table::wanted() };
        let mut consumer = Consumer::new(table.clone(), table.scenario.clone(), longer, false);
        at_once(consumer.connect()).unwrap();
        take(&mut consumer);
        consumer.account(ConsumeOperation, Outcome::Ok);
        let totals = table.scenario.ledger.totals();
        assert_eq!([totals.delivered, totals.torn], [0, 1]);
    }

    /// A message that a producer gave up may come after the ones it sent next; that breaks no promised order.
    #[test]
    fn a_producer_notes_where_each_of_its_connections_begins() {
        let table = Table::new(&[], false);
        let mut producer = Producer::new(table.clone(), table.scenario.clone(), Table::wanted(), 0);
        for messages in [3, 1] {
            at_once(producer.connect()).unwrap();
            (0..messages).for_each(|_| _ = producer.draw().unwrap());
        }
        at_once(producer.connect()).unwrap();
        let first: Vec<Id> = table.scenario.ledger.connections().0.into_iter().collect();
        assert_eq!(first, [0, 3, 4].map(|sequence| Id { producer: 0, sequence }));
    }

    /// An acknowledgement that is due because the queue is empty is for the messages held at that time, not for
    /// those that a later attempt of the same operation takes.
    #[test]
    fn an_acknowledgement_is_for_what_was_held_when_it_was_asked_for() {
        let table = Table::new(&[Some(0), None, Some(1)], false);
        let mut consumer = table.consumer();
        at_once(consumer.connect()).unwrap();
        take(&mut consumer);
        assert_eq!(at_once(consumer.attempt(&ConsumeOperation)), Attempt::Refused);
        take(&mut consumer);
        assert_eq!(consumer.hand.held(), 1);
        assert_eq!(table.twice(1), 0, "it was not acknowledged yet");
        assert_eq!(table.twice(0), 1, "it was");
    }

    /// A store that delivers acknowledged messages again and again is detected, and the trial ends.
    #[test]
    fn a_consumer_ends_on_a_queue_that_forgets_nothing() {
        let table = Table::new(&[Some(0)], false);
        let mut consumer = table.consumer();
        at_once(consumer.connect()).unwrap();
        let mut taken = 0_u64;
        while consumer.draw().is_some() {
            table.next.lock().unwrap().push(Some(loaded(0)));
            take(&mut consumer);
            taken += 1;
        }
        // each message that came again counts once as such, and once as acknowledged twice
        assert!((1_000..=table.scenario.ledger.most_deliveries() + 1).contains(&taken), "{taken}");
    }

    /// A message acknowledged at the end of a phase must not come again either.
    #[test]
    fn an_acknowledgement_at_the_end_of_a_phase_is_noted() {
        for finishes in [false, true] {
            let table = Table::new(&[Some(0)], false);
            let mut consumer = table.consumer();
            at_once(consumer.connect()).unwrap();
            take(&mut consumer);
            at_once(async { if finishes { consumer.finish().await } else { consumer.pause().await } });
            assert_eq!(table.twice(0), 1, "finishes: {finishes}");
        }
    }

    /// An unanswered acknowledgement does not count, whatever the same connection answers when the trial ends.
    #[test]
    fn an_acknowledgement_that_was_given_up_is_not_taken_as_answered() {
        let table = Table::new(&[Some(0), None], true);
        let load = Load::closed(OPERATIONS, Extent::Time(Duration::from_mins(1)));
        let trial = Trial::new(load, 1);
        let consumer = table.consumer();
        let task: ClientTask = Box::new(move |driver| Box::pin(driver.drive(consumer)));
        thread::scope(|scope| {
            let running = scope.spawn(|| trial.run(vec![task]).unwrap());
            while !table.hung.load(SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
            trial.stop(Stop::Interrupted);
            trial.give_up();
            running.join().unwrap();
        });
        assert_eq!(table.twice(0), 0, "it may come again");
    }

    /// A message that a lost consumer held is the store's to hand out again. One whose acknowledgement was sent may be gone,
    /// whatever became of the answer.
    #[test]
    fn what_a_lost_consumer_held_must_come_again() {
        let lost = |table: &Table| {
            let ledger = &table.scenario.ledger;
            let lost = ledger.entries().filter(|entry| entry.is_lost()).count() as u64;
            assert_eq!(lost, ledger.outstanding());
            // of those that were delivered
            lost - (ledger.backlog() - ledger.totals().delivered)
        };
        let table = Table::new(&[Some(0), Some(1), Some(1), None], true);
        let mut consumer = table.consumer();
        at_once(consumer.connect()).unwrap();
        (0..2).for_each(|_| take(&mut consumer));
        assert_eq!(lost(&table), 2, "nothing was acknowledged yet");
        at_once(consumer.connect()).unwrap();
        take(&mut consumer);
        // the acknowledgement of the second message is due, is sent, and given up
        let mut attempt = Box::pin(consumer.attempt(&ConsumeOperation));
        assert!(attempt.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(attempt);
        consumer.account(ConsumeOperation, Outcome::Unknown);
        at_once(consumer.connect()).unwrap();
        assert_eq!(lost(&table), 1);

        // the same at the end of a trial, where nobody accounts for anything any more
        let table = Table::new(&[Some(0)], true);
        let mut consumer = table.consumer();
        at_once(consumer.connect()).unwrap();
        take(&mut consumer);
        let mut finishing = Box::pin(consumer.finish());
        assert!(finishing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(finishing);
        drop(consumer);
        assert_eq!(lost(&table), 0);

        // without acknowledgements a message is gone once it is handed out
        let auto = Parameters { consume: Consume::Auto, message_bytes: 40, ..Parameters::default() };
        let wanted = Requirements { delivery: auto.delivery(), message_bytes: auto.message_bytes };
        let table = Table::new(&[Some(0)], false);
        let mut consumer = Consumer::new(table.clone(), table.scenario.clone(), wanted, false);
        at_once(consumer.connect()).unwrap();
        take(&mut consumer);
        at_once(consumer.connect()).unwrap();
        assert_eq!(lost(&table), 0);
    }

    /// What is proved not to be acknowledged must come again, on another connection.
    #[test]
    fn what_the_store_has_refused_to_acknowledge_must_come_again() {
        let table = Table { refuses: true, ..Table::new(&[Some(0), None], false) };
        let mut consumer = table.consumer();
        at_once(consumer.connect()).unwrap();
        take(&mut consumer);
        let refused = at_once(consumer.attempt(&ConsumeOperation));
        assert!(matches!(refused, Attempt::Failed(fault) if fault.connection_lost));
        consumer.account(ConsumeOperation, Outcome::Failed);
        at_once(consumer.connect()).unwrap();
        assert_eq!(table.scenario.ledger.outstanding(), 2, "it, and the one that was not handed out");
        assert!(table.scenario.ledger.entries().all(Entry::is_lost));
    }

    #[test]
    fn varied_limits_do_not_grow_memory() {
        let scenario = Scenario::new(Arc::new(Ledger::new(1, 0)));
        (0..1000).for_each(|number| scenario.limited(format!("limit {}", number % 500)));
        let limits = scenario.limits();
        assert_eq!((limits.len(), limits["limit 7"], limits["other limits"]), (LIMITS + 1, 2, 960));
    }
}
