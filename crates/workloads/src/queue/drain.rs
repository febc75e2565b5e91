//! Before a trial: filling the queue. After it: emptying the queue.

use std::time::Duration;

use acidtest_engine::{Attempt, Completion, Fault};
use acidtest_model::StoreError;
use tokio::time::{Instant, sleep, timeout};

use super::{
    AckAnswer, Connector, Consume, Depth, Message, PublishState, Publisher, ReceivedMessage, Requirements,
    Scenario, Subscriber,
    hand::InHand,
    message::{self, Id, LOADED},
};
use crate::LoadProgress;

/// How long to wait for a message at first while the queue is emptied. Each time that none came though the queue is
/// not empty the wait is longer, because a message may have been on its way.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long a queue that is not empty may hand out nothing before emptying it is given up.
const STALLED: Duration = Duration::from_secs(10);

/// How long the store may take for an answer, before [`BYTE`] is added.
const ANSWER: Duration = Duration::from_secs(30);

/// Time that each of these limits is extended by for every byte of a message, for slow networks.
const BYTE: Duration = Duration::from_micros(1);

/// The time limit, extended for the size of a message.
fn with_a_message(time: Duration, wanted: &Requirements) -> Duration {
    time + BYTE * wanted.message_bytes
}

/// Waits for an answer for [`ANSWER`], extended for the size of a message.
async fn in_time<T>(wanted: &Requirements, answer: impl Future<Output = T>) -> Result<T, Fault> {
    let most = with_a_message(ANSWER, wanted);
    let late = |_| Fault::lost(format!("no answer within {} s", most.as_secs()));
    timeout(most, answer).await.map_err(late)
}

fn failed(doing: &str, cause: String) -> StoreError {
    StoreError::Server { doing: doing.to_owned(), address: "the store".to_owned(), cause }
}

/// Publishes the scenario's backlog, over one connection.
pub(super) async fn fill<C: Connector>(
    connector: &C,
    wanted: &Requirements,
    scenario: &Scenario,
    loaded: &LoadProgress,
) -> Result<(), StoreError> {
    let broken = |cause: String| failed("filling the queue", cause);
    let mut publisher = connector.publisher().await.map_err(broken)?;
    let depth = u64::from(wanted.delivery.unanswered());
    let (mut message, mut ended) = (Message::default(), Vec::new());
    let (mut sent, mut done) = (0, 0);
    let backlog = scenario.ledger.backlog();
    while done < backlog {
        while sent < backlog && sent - done < depth {
            let id = Id { producer: LOADED, sequence: sent };
            scenario.ledger.sending(id);
            message.write(id, scenario.now(), wanted.message_bytes as usize);
            publisher.send(&message).await.map_err(|fault| broken(fault.message))?;
            sent += 1;
        }
        let settled = in_time(wanted, publisher.settle(&mut ended)).await.flatten();
        settled.map_err(|fault| broken(publisher.limit().unwrap_or(fault.message)))?;
        let before = done;
        for Completion { number, attempt } in ended.drain(..) {
            if attempt != Attempt::Ok {
                return Err(broken(why(attempt)));
            }
            scenario.ledger.published(Id { producer: LOADED, sequence: number }, PublishState::Ok);
            done += 1;
        }
        loaded.add(done - before);
    }
    Ok(())
}

fn why(attempt: Attempt) -> String {
    match attempt {
        Attempt::Failed(Fault { message, .. }) | Attempt::Unknown(Fault { message, .. }) => message,
        other => format!("a message was not taken: {other:?}"),
    }
}

/// Consumes until the queue is empty or hands out nothing more, and returns how many messages it still holds then.
///
/// Works in rounds, each on a connection of its own: a store's count of a queue is complete only when we have no
/// connection open that messages may be on their way to.
pub(super) async fn drain<C: Connector>(
    connector: &C,
    wanted: &Requirements,
    scenario: &Scenario,
    depth: impl AsyncFn() -> Result<Depth, StoreError>,
) -> Result<Depth, StoreError> {
    let broken = |fault: Fault| failed("emptying the queue", fault.message);
    let [stalled, answer] = [STALLED, ANSWER].map(|time| with_a_message(time, wanted));
    let (mut patience, mut moved) = (PATIENCE, Instant::now());
    let mut most = scenario.ledger.most_deliveries();
    loop {
        let mut round = Round::new(scenario, wanted, patience, most);
        let ended = match connector.subscriber().await {
            Ok(subscriber) => match round.consume(subscriber).await {
                // messages on their way were lost with the connection
                Err(fault) if wanted.delivery.consume == Consume::Auto => return Err(broken(fault)),
                ended => ended,
            },
            Err(cause) => Err(Fault::lost(cause)),
        };
        most = round.most;
        if most == 0 {
            return Err(failed("emptying the queue", "it delivers messages without end".to_owned()));
        }
        let left = in_time(wanted, depth()).await.map_err(broken).flatten();
        // nothing is left to consume of a queue that was lost with its server, however the round ended
        if matches!(left, Ok(Depth { ready: 0, unacknowledged: 0 }) | Err(StoreError::Unreachable { .. })) {
            return left;
        }
        if round.moved {
            moved = Instant::now();
            continue;
        }
        if patience >= stalled || moved.elapsed() > answer {
            return ended.map_err(broken).and(left);
        }
        if ended.is_err() {
            sleep(patience).await;
        }
        patience = stalled.min(round.took.max(patience) * 2);
    }
}

/// Consuming on one connection until no message has come for a while.
struct Round<'a> {
    scenario: &'a Scenario,
    wanted: &'a Requirements,
    patience: Duration,
    /// How many messages may still be taken before the queue counts as endless.
    most: u64,
    /// How many messages are taken and not acknowledged, whole or torn.
    taken: u32,
    hand: InHand,
    /// Whether any message was taken, and acknowledged.
    moved: bool,
    /// How long it took until the connection was closed, when it was too late for a message to arrive on it.
    took: Duration,
}

impl<'a> Round<'a> {
    fn new(scenario: &'a Scenario, wanted: &'a Requirements, patience: Duration, most: u64) -> Self {
        let (hand, took) = (InHand::default(), Duration::ZERO);
        Self { scenario, wanted, patience, most, taken: 0, hand, moved: false, took }
    }

    async fn consume(&mut self, mut subscriber: impl Subscriber) -> Result<(), Fault> {
        let begun = Instant::now();
        let ended = self.take_all(&mut subscriber).await;
        // the store may go on counting a connection that could not be closed in an orderly way
        let _ = timeout(with_a_message(STALLED, self.wanted), subscriber.close()).await;
        self.hand.let_go(subscriber.progress(), &self.scenario.ledger);
        self.took = begun.elapsed();
        ended
    }

    async fn take_all(&mut self, subscriber: &mut impl Subscriber) -> Result<(), Fault> {
        let mut received = ReceivedMessage::default();
        while self.take(subscriber, self.patience, &mut received).await? {
            if self.taken >= self.wanted.delivery.batch {
                self.settle(subscriber).await?;
            }
        }
        self.settle(subscriber).await?;
        if self.wanted.delivery.consume == Consume::Auto {
            subscriber.stop().await?;
            while self.take(subscriber, Duration::ZERO, &mut received).await? {}
            self.settle(subscriber).await?;
        }
        Ok(())
    }

    /// Takes a message. Returns whether there was one and more may be taken.
    async fn take(
        &mut self,
        subscriber: &mut impl Subscriber,
        patience: Duration,
        received: &mut ReceivedMessage,
    ) -> Result<bool, Fault> {
        match in_time(self.wanted, subscriber.take(patience, received)).await? {
            Attempt::Ok => {
                self.taken += 1;
                self.most = self.most.saturating_sub(1);
            }
            Attempt::Refused => return Ok(false),
            other => return Err(Fault::lost(why(other))),
        }
        let read = message::read(&received.body, self.wanted.message_bytes as usize);
        self.hand.take(read.map(|(id, _)| id));
        match read {
            None => self.scenario.ledger.torn(),
            Some((id, _)) => _ = self.scenario.ledger.delivered(id, received.redelivered),
        }
        Ok(self.most > 0)
    }

    async fn settle(&mut self, subscriber: &mut impl Subscriber) -> Result<(), Fault> {
        let mut settled = Ok(Ok(AckAnswer::Read));
        if self.wanted.delivery.consume != Consume::Auto {
            settled = in_time(self.wanted, subscriber.settle()).await;
        }
        match &settled {
            Ok(Ok(how)) => self.hand.acknowledge(*how, &self.scenario.ledger),
            Ok(Err(Attempt::Unknown(_))) | Err(_) => {
                self.hand.acknowledge(AckAnswer::Sent, &self.scenario.ledger);
            }
            // they are held until the connection ends
            Ok(Err(_)) => {}
        }
        settled?.map_err(|trouble| Fault::lost(why(trouble)))?;
        self.moved |= std::mem::take(&mut self.taken) > 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        sync::{Arc, Mutex, MutexGuard},
    };

    use super::*;
    use crate::queue::{
        Ledger, Parameters,
        ledger::{Entry, Totals},
    };

    /// A store at the other end of a slow network. Its counts leave out messages that are on their way to a
    /// consumer or in its hands; but they include the consumer, until it has closed its connection in an orderly
    /// way.
    #[derive(Clone)]
    struct Store(Arc<Mutex<State>>);

    impl Store {
        fn state(&self) -> MutexGuard<'_, State> {
            self.0.lock().unwrap()
        }
    }

    #[derive(Default)]
    struct State {
        ready: VecDeque<Vec<u8>>,
        consumers: u64,
        /// How long a message is on its way.
        way: Duration,
        /// How many messages a connection carries before it breaks.
        carries: Option<u32>,
        /// How many times the store does not answer when asked for the queue's depth.
        silent: u32,
        /// Whether the store keeps messages although they are acknowledged.
        keeps: bool,
        /// Whether messages are gone once they are handed out.
        is_auto: bool,
    }

    struct Taking {
        store: Store,
        on_its_way: Option<(Instant, Vec<u8>)>,
        held: Vec<Vec<u8>>,
        carries: Option<u32>,
    }

    impl Connector for Store {
        type Publisher = Nobody;
        type Subscriber = Taking;

        async fn publisher(&self) -> Result<Nobody, String> {
            unreachable!("nobody publishes")
        }

        async fn subscriber(&self) -> Result<Taking, String> {
            let mut state = self.state();
            state.consumers += 1;
            let carries = state.carries;
            Ok(Taking { store: self.clone(), on_its_way: None, held: Vec::new(), carries })
        }
    }

    struct Nobody;

    impl Publisher for Nobody {
        async fn send(&mut self, _: &Message) -> Result<(), Fault> {
            unreachable!()
        }

        async fn settle(&mut self, _: &mut Vec<Completion>) -> Result<(), Fault> {
            unreachable!()
        }
    }

    impl Subscriber for Taking {
        async fn take(&mut self, patience: Duration, received: &mut ReceivedMessage) -> Attempt {
            if self.carries == Some(0) {
                return Attempt::Failed(Fault::lost("cut"));
            }
            if self.on_its_way.is_none() {
                let mut state = self.store.state();
                let due = Instant::now() + state.way;
                self.on_its_way = state.ready.pop_front().map(|body| (due, body));
            }
            let until = Instant::now() + patience;
            match self.on_its_way.take() {
                Some((due, body)) if due <= until => {
                    tokio::time::sleep_until(due).await;
                    self.carries = self.carries.map(|more| more - 1);
                    if !self.store.state().is_auto {
                        self.held.push(body.clone());
                    }
                    *received = ReceivedMessage { body, redelivered: Some(false) };
                    Attempt::Ok
                }
                late => {
                    self.on_its_way = late;
                    tokio::time::sleep_until(until).await;
                    Attempt::Refused
                }
            }
        }

        async fn settle(&mut self) -> Result<AckAnswer, Attempt> {
            let held = std::mem::take(&mut self.held);
            let mut state = self.store.state();
            if state.keeps {
                state.ready.extend(held);
            }
            Ok(AckAnswer::Read)
        }

        /// What is on its way can still be taken then.
        async fn stop(&mut self) -> Result<(), Fault> {
            if let Some((due, _)) = &self.on_its_way {
                tokio::time::sleep_until(*due).await;
            }
            Ok(())
        }

        async fn close(&mut self) {
            if let Some((due, _)) = &self.on_its_way {
                tokio::time::sleep_until(*due).await;
            }
            let mut state = self.store.state();
            let on_its_way = self.on_its_way.take().map(|(_, body)| body);
            state.ready.extend(self.held.drain(..).chain(on_its_way));
            state.consumers -= 1;
        }
    }

    const ALL: u64 = 5;

    /// Empties a queue of all messages. Returns its depth after that, the messages delivered, and the time it took.
    fn emptied(state: &State, consume: Consume) -> (Result<Depth, StoreError>, u64, Duration) {
        let ready = (0..ALL).map(|sequence| Message::loaded(sequence, 40).body).collect();
        let (drained, totals, took) = emptied_of(ready, state, consume);
        (drained, totals.delivered, took)
    }

    /// Empties a queue of the messages ready in it, all of which were loaded.
    fn emptied_of(
        ready: VecDeque<Vec<u8>>,
        state: &State,
        consume: Consume,
    ) -> (Result<Depth, StoreError>, Totals, Duration) {
        let (drained, ledger, took) = ledger_of(ready, state, consume);
        (drained, ledger.totals(), took)
    }

    /// The same, with the whole ledger.
    fn ledger_of(
        ready: VecDeque<Vec<u8>>,
        state: &State,
        consume: Consume,
    ) -> (Result<Depth, StoreError>, Arc<Ledger>, Duration) {
        let delivery = Parameters { consume, batch: 2, ..Parameters::default() }.delivery();
        let wanted = Requirements { delivery, message_bytes: 40 };
        let scenario = Scenario::new(Arc::new(Ledger::new(0, ALL)));
        let ids = (0..ALL).map(|sequence| Id { producer: LOADED, sequence });
        ids.for_each(|id| scenario.ledger.sending(id));
        let &State { consumers, way, carries, silent, keeps, .. } = state;
        let is_auto = consume == Consume::Auto;
        let state = State { ready, consumers, way, carries, silent, keeps, is_auto };
        let store = Store(Arc::new(Mutex::new(state)));
        let depth = async || {
            let mut state = store.state();
            if state.silent > 0 {
                state.silent -= 1;
                return Err(failed("counting", "not now".to_owned()));
            }
            Ok(Depth { ready: state.ready.len() as u64, unacknowledged: state.consumers })
        };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let begun = Instant::now();
            let drained = drain(&store, &wanted, &scenario, depth).await;
            (drained, scenario.ledger, begun.elapsed())
        })
    }

    #[test]
    fn what_is_on_its_way_is_waited_for() {
        for way in [0, 90, 500, 9000].map(Duration::from_millis) {
            let (left, delivered, _) = emptied(&State { way, ..State::default() }, Consume::Ack);
            assert_eq!((left.unwrap(), delivered), (Depth::default(), ALL), "{way:?}");
        }
    }

    /// Without acknowledgements, what is handed out after the last look at the queue is consumed, too.
    #[test]
    fn what_comes_last_is_consumed_without_acknowledgements() {
        for way in [0, 90, 150, 500].map(Duration::from_millis) {
            let state = State { way, ..State::default() };
            let ready = (0..ALL).map(|sequence| Message::loaded(sequence, 40).body).collect();
            let (left, ledger, _) = ledger_of(ready, &state, Consume::Auto);
            assert_eq!((left.unwrap(), ledger.totals().delivered), (Depth::default(), ALL), "{way:?}");
            (0..ALL)
                .for_each(|sequence| ledger.published(Id { producer: LOADED, sequence }, PublishState::Ok));
            assert!(!ledger.entries().any(Entry::is_lost), "{way:?}");
        }
    }

    /// A store that delivers acknowledged messages again and again is detected, and the audit ends.
    #[test]
    fn a_queue_that_is_never_empty_is_left() {
        let ready = (0..ALL).map(|sequence| Message::loaded(sequence, 40).body).collect();
        let (left, totals, _) = emptied_of(ready, &State { keeps: true, ..State::default() }, Consume::Ack);
        assert!(left.unwrap_err().to_string().contains("without end"));
        assert_eq!((totals.delivered, totals.duplicated), (ALL, ALL * 9 + 10_000));
    }

    /// The audit's own consumer checks each message as the trial's consumers do.
    #[test]
    fn what_is_wrong_with_what_is_left_is_counted() {
        let mut ready: VecDeque<_> =
            [0, 1, 1, 3, 4, ALL].map(|sequence| Message::loaded(sequence, 40).body).into();
        ready[3][30] ^= 1;
        ready[4].pop();
        let (left, totals, _) = emptied_of(ready, &State::default(), Consume::Ack);
        assert_eq!(left.unwrap(), Depth::default());
        let found = Totals { delivered: 2, duplicated: 1, torn: 2, foreign: 1, ..Totals::default() };
        assert_eq!(totals, found);
    }

    #[test]
    fn what_a_broken_connection_held_is_consumed_on_the_next() {
        let breaks = |carries| State { carries: Some(carries), ..State::default() };
        let (left, delivered, took) = emptied(&breaks(3), Consume::Ack);
        assert_eq!((left.unwrap(), delivered), (Depth::default(), ALL));
        assert!(took < STALLED, "{took:?}");
        let (told, delivered, _) = emptied(&breaks(0), Consume::Ack);
        assert!(told.unwrap_err().to_string().contains("cut"));
        assert_eq!(delivered, 0);
        // without acknowledgements nobody knows which messages were on their way
        let (told, ..) = emptied(&breaks(3), Consume::Auto);
        assert!(told.unwrap_err().to_string().contains("cut"));
    }

    #[test]
    fn a_store_that_cannot_say_what_is_left_is_asked_again_but_not_for_ever() {
        let silent = |silent| emptied(&State { silent, ..State::default() }, Consume::Ack);
        let (left, delivered, _) = silent(3);
        assert_eq!((left.unwrap(), delivered), (Depth::default(), ALL));
        let (told, delivered, took) = silent(u32::MAX);
        assert!(told.unwrap_err().to_string().contains("not now"));
        assert_eq!(delivered, ALL);
        assert!((STALLED..STALLED * 3).contains(&took), "{took:?}");
    }

    #[test]
    fn a_consumer_that_never_goes_leaves_it_open_what_is_left() {
        let (left, delivered, took) = emptied(&State { consumers: 1, ..State::default() }, Consume::Ack);
        assert_eq!((left.unwrap(), delivered), (Depth { ready: 0, unacknowledged: 1 }, ALL));
        assert!((STALLED..STALLED * 3).contains(&took), "{took:?}");
    }
}
