//! The clients, the ledger, the draining and the audit together, on a model of a queue whose histories are
//! drawn at random: what is right raises no alarm, and what is wrong is found with its right count.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use acidtest_engine::{Attempt, Client, Ended, Fault, Outcome, Pipeline};
use acidtest_model::StoreError;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    Connector, Depth, Ledger, Message, Parameters, Published, Publisher, Received, Scenario, Settled,
    Subscriber, Wanted, audit,
    client::{Consumer, Draft, Producer, Take},
    drain,
    message::{Id, read},
};
use crate::{Audit, Verdict, at_once};

const PRODUCERS: usize = 2;
const CONSUMERS: usize = 3;
/// Messages that a producer may have in flight.
const IN_FLIGHT: usize = 5;

/// A message in the queue.
#[derive(Clone, Debug)]
struct Letter {
    body: Vec<u8>,
    redelivered: bool,
}

/// A correct queue, and what is on its way to it.
#[derive(Debug)]
struct Broker {
    rng: Xoshiro256PlusPlus,
    /// By arrival; what is put back has its old place.
    ready: BTreeMap<u64, Letter>,
    arrivals: u64,
    connections: u64,
    /// What was sent on each producer's connection and has not arrived, by number.
    wires: BTreeMap<u64, VecDeque<(u64, Vec<u8>)>>,
    /// What each consumer's connection holds; no entry once the queue knows that it is lost.
    held: BTreeMap<u64, BTreeMap<u64, Letter>>,
    /// Share of a consumer's acknowledgements that are not answered.
    unanswered: f64,
    /// Whether acknowledgements are answered at all, and what comes again is flagged.
    answers: bool,
    flags: bool,
}

impl Broker {
    fn add(&mut self, body: Vec<u8>) {
        self.arrivals += 1;
        self.ready.insert(self.arrivals, Letter { body, redelivered: false });
    }

    /// The first message on a wire arrives.
    fn arrive(&mut self, connection: u64) {
        let first = self.wires.get_mut(&connection).and_then(VecDeque::pop_front);
        if let Some((_, body)) = first {
            self.add(body);
        }
    }

    /// A consumer is lost: what it holds comes again.
    fn lose(&mut self, connection: u64) {
        for (arrival, letter) in self.held.remove(&connection).unwrap_or_default() {
            self.ready.insert(arrival, Letter { redelivered: true, ..letter });
        }
    }

    fn depth(&self) -> Depth {
        let unacknowledged = self.held.values().map(|held| held.len() as u64).sum();
        Depth { ready: self.ready.len() as u64, unacknowledged }
    }
}

/// Opens connections to the model.
#[derive(Clone, Debug)]
struct Net(Arc<Mutex<Broker>>);

impl Net {
    fn broker(&self) -> MutexGuard<'_, Broker> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connection(&self) -> u64 {
        let mut broker = self.broker();
        broker.connections += 1;
        broker.connections
    }
}

#[derive(Debug)]
struct Sending {
    net: Net,
    connection: u64,
    sent: u64,
}

#[derive(Debug)]
struct Taking {
    net: Net,
    connection: u64,
    /// Handed out and not taken: the consumer's own, whatever the queue thinks.
    fetched: VecDeque<(u64, Letter)>,
    taken: Vec<u64>,
}

impl Connector for Net {
    type Publisher = Sending;
    type Subscriber = Taking;

    async fn publisher(&self) -> Result<Sending, String> {
        let connection = self.connection();
        self.broker().wires.insert(connection, VecDeque::new());
        Ok(Sending { net: self.clone(), connection, sent: 0 })
    }

    async fn subscriber(&self) -> Result<Taking, String> {
        let connection = self.connection();
        self.broker().held.insert(connection, BTreeMap::new());
        Ok(Taking { net: self.clone(), connection, fetched: VecDeque::new(), taken: Vec::new() })
    }
}

impl Publisher for Sending {
    async fn send(&mut self, message: &Message) -> Result<(), Fault> {
        let message = (self.sent, message.body.clone());
        self.sent += 1;
        if let Some(wire) = self.net.broker().wires.get_mut(&self.connection) {
            wire.push_back(message);
        }
        Ok(())
    }

    async fn settle(&mut self, _: &mut Vec<Ended>) -> Result<(), Fault> {
        unreachable!("the world answers")
    }
}

impl Subscriber for Taking {
    async fn take(&mut self, _: Duration, received: &mut Received) -> Attempt {
        let broker = &mut *self.net.broker();
        if self.fetched.is_empty() {
            let Some(held) = broker.held.get_mut(&self.connection) else {
                return Attempt::Unknown(Fault::lost("gone"));
            };
            while held.len() < 4
                && let Some((arrival, letter)) = broker.ready.pop_first()
            {
                held.insert(arrival, letter.clone());
                self.fetched.push_back((arrival, letter));
            }
        }
        let Some((arrival, letter)) = self.fetched.pop_front() else { return Attempt::Refused };
        self.taken.push(arrival);
        *received = Received { body: letter.body, redelivered: broker.flags.then_some(letter.redelivered) };
        Attempt::Ok
    }

    async fn settle(&mut self) -> Result<Settled, Fault> {
        let broker = &mut *self.net.broker();
        let unanswered = broker.rng.random::<f64>() < broker.unanswered;
        let Some(held) = broker.held.get_mut(&self.connection) else { return Err(Fault::lost("gone")) };
        if unanswered && broker.rng.random() {
            return Err(Fault::lost("not acknowledged"));
        }
        for arrival in self.taken.drain(..) {
            held.remove(&arrival);
        }
        match (unanswered, broker.answers) {
            (true, _) => Err(Fault::lost("acknowledged, and not answered")),
            (false, true) => Ok(Settled::Answered),
            (false, false) => Ok(Settled::Sent),
        }
    }
}

/// A producer, and what it has in flight on its connection.
struct Seat {
    producer: Producer<Net>,
    connection: u64,
    sent: u64,
    flight: BTreeMap<u64, Draft>,
}

/// What a trial on the model is like.
#[derive(Clone, Copy, Debug)]
struct Terms {
    seed: u64,
    batch: u32,
    answers: bool,
    flags: bool,
    /// Share of steps that cost a connection, and of acknowledgements that are not answered.
    lost: f64,
    /// Share of publishes that fail.
    failed: f64,
}

impl Terms {
    /// Everything is answered.
    fn calm(seed: u64) -> Self {
        Self { seed, batch: 1, answers: true, flags: true, lost: 0.0, failed: 0.0 }
    }
}

/// A trial on the model.
struct World {
    net: Net,
    terms: Terms,
    scenario: Scenario,
    wanted: Wanted,
    producers: Vec<Seat>,
    consumers: Vec<Consumer<Net>>,
    rng: Xoshiro256PlusPlus,
}

impl World {
    fn new(terms: Terms) -> Self {
        let Terms { seed, batch, answers, flags, lost, .. } = terms;
        let broker = Broker {
            rng: Xoshiro256PlusPlus::seed_from_u64(!seed),
            ready: BTreeMap::new(),
            arrivals: 0,
            connections: 0,
            wires: BTreeMap::new(),
            held: BTreeMap::new(),
            unanswered: lost,
            answers,
            flags,
        };
        let net = Net(Arc::new(Mutex::new(broker)));
        let parameters = Parameters { batch, message_bytes: 40, ..Parameters::default() };
        let wanted = Wanted { delivery: parameters.delivery(), message_bytes: 40 };
        let producers = u32::try_from(PRODUCERS).unwrap();
        let scenario = Scenario::new(Arc::new(Ledger::new(producers, 0)));
        let mut world = Self {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            producers: Vec::new(),
            consumers: Vec::new(),
            net,
            terms,
            scenario,
            wanted,
        };
        for index in 0..PRODUCERS {
            let producer = Producer::new(world.net.clone(), world.scenario.clone(), wanted, index);
            world.producers.push(Seat { producer, connection: 0, sent: 0, flight: BTreeMap::new() });
            world.connect(index);
        }
        for _ in 0..CONSUMERS {
            // without a flag a store cannot promise the order: what comes again looks late
            let scenario = world.scenario.clone();
            let mut consumer = Consumer::new(world.net.clone(), scenario, wanted, flags);
            at_once(consumer.connect()).unwrap();
            world.consumers.push(consumer);
        }
        world
    }

    fn ledger(&self) -> &Ledger {
        &self.scenario.ledger
    }

    fn connect(&mut self, index: usize) {
        let seat = &mut self.producers[index];
        at_once(seat.producer.connect()).unwrap();
        seat.connection = self.net.broker().connections;
        seat.sent = 0;
    }

    fn chance(&mut self, share: f64) -> bool {
        self.rng.random::<f64>() < share
    }

    fn send(&mut self, index: usize) {
        let seat = &mut self.producers[index];
        if seat.flight.len() < IN_FLIGHT {
            let draft = seat.producer.draw().unwrap();
            at_once(seat.producer.send(&draft)).unwrap();
            seat.flight.insert(seat.sent, draft);
            seat.sent += 1;
        }
    }

    /// One of what a producer has in flight ends: in any order if it has arrived; what has not may fail.
    fn answer(&mut self, index: usize) {
        let fails = self.chance(self.terms.failed);
        let seat = &mut self.producers[index];
        let mut broker = self.net.broker();
        let Some(wire) = broker.wires.get_mut(&seat.connection) else { return };
        let first = wire.front().map_or(u64::MAX, |(number, _)| *number);
        let ended = if fails && !wire.is_empty() {
            wire.pop_front();
            Some((first, Outcome::Failed))
        } else {
            let arrived: Vec<u64> = seat.flight.range(..first).map(|(number, _)| *number).collect();
            let any = !arrived.is_empty();
            any.then(|| (arrived[self.rng.random_range(0..arrived.len())], Outcome::Ok))
        };
        drop(broker);
        if let Some((number, outcome)) = ended {
            let draft = seat.flight.remove(&number).unwrap();
            seat.producer.account(draft, outcome);
        }
    }

    /// A producer gives up its connection. What is on its way may still arrive, or not from some message on.
    fn give_up(&mut self, index: usize) {
        let seat = &mut self.producers[index];
        for draft in std::mem::take(&mut seat.flight).into_values() {
            seat.producer.account(draft, Outcome::Unknown);
        }
        if let Some(wire) = self.net.broker().wires.get_mut(&seat.connection) {
            let arrives = self.rng.random_range(0..=wire.len());
            wire.truncate(arrives);
        }
        self.connect(index);
    }

    /// A consumer takes a message, or settles. Gives whether there was one.
    fn consume(&mut self, index: usize) -> bool {
        let consumer = &mut self.consumers[index];
        let take: Take = consumer.draw().unwrap();
        let attempt = at_once(consumer.attempt(&take));
        let outcome = match &attempt {
            Attempt::Ok => Outcome::Ok,
            Attempt::Refused => Outcome::Refused,
            _ => Outcome::Unknown,
        };
        consumer.account(take, outcome);
        if outcome == Outcome::Unknown {
            // the queue learns of it later
            at_once(consumer.connect()).unwrap();
        }
        outcome != Outcome::Refused
    }

    /// Anything that can happen.
    fn step(&mut self) {
        let (producer, consumer) = (self.rng.random_range(0..PRODUCERS), self.rng.random_range(0..CONSUMERS));
        if self.chance(self.terms.lost) {
            if self.rng.random() {
                self.give_up(producer);
            } else {
                let broker = &mut *self.net.broker();
                let connections: Vec<u64> = broker.held.keys().copied().collect();
                if !connections.is_empty() {
                    broker.lose(connections[self.rng.random_range(0..connections.len())]);
                }
            }
            return;
        }
        match self.rng.random_range(0..5) {
            0 => self.send(producer),
            1 => self.answer(producer),
            2 => _ = self.consume(consumer),
            _ => {
                let broker = &mut *self.net.broker();
                let wires: Vec<u64> = broker.wires.keys().copied().collect();
                broker.arrive(wires[self.rng.random_range(0..wires.len())]);
            }
        }
    }

    /// So many messages of each producer, all answered, and none consumed.
    fn published(terms: Terms, each: u64) -> Self {
        let mut world = Self::new(terms);
        for _ in 0..each {
            for index in 0..PRODUCERS {
                world.send(index);
                let connection = world.producers[index].connection;
                world.net.broker().arrive(connection);
                world.answer(index);
            }
        }
        world
    }

    /// So many steps, and what is in flight to its end.
    fn run(mut self, steps: u32) -> Self {
        (0..steps).for_each(|_| self.step());
        for index in 0..PRODUCERS {
            while !self.producers[index].flight.is_empty() {
                let connection = self.producers[index].connection;
                self.net.broker().arrive(connection);
                self.answer(index);
            }
        }
        self
    }

    /// The first consumer takes all there is.
    fn consume_all(&mut self) {
        while self.consume(0) {}
    }

    /// The end of a trial: the consumers finish, the queue is drained, the audit made. What is on given-up
    /// wires has arrived, or has not yet.
    fn audit(mut self) -> Audit {
        for consumer in &mut self.consumers {
            at_once(consumer.finish());
        }
        self.consumers.clear();
        {
            let broker = &mut *self.net.broker();
            broker.unanswered = 0.0;
            for connection in broker.held.keys().copied().collect::<Vec<_>>() {
                broker.lose(connection);
            }
            for wire in broker.wires.keys().copied().collect::<Vec<_>>() {
                while broker.rng.random_range(0..8) > 0 && !broker.wires[&wire].is_empty() {
                    broker.arrive(wire);
                }
            }
        }
        let depth = async || Ok(self.net.broker().depth());
        let drained = at_once(drain::drain(&self.net, &self.wanted, &self.scenario, depth));
        audit(self.ledger(), drained, true)
    }

    /// Sees that so much of these things is found wrong, and nothing else.
    #[track_caller]
    fn shows(self, wanted: &[(&str, u64)]) {
        let audit = self.audit();
        for finding in &audit.findings {
            let wanted = wanted.iter().find(|(name, _)| *name == finding.name).map_or(0, |(_, count)| *count);
            assert_eq!(finding.count, wanted, "{}: {audit}", finding.name);
        }
        assert_eq!(audit.verdict, Verdict::Broken);
    }

    /// The messages in the queue, to be damaged.
    fn damage(&self, damage: impl FnOnce(&mut Broker)) {
        damage(&mut self.net.broker());
    }
}

fn any_terms() -> impl Strategy<Value = Terms> {
    (any::<u64>(), 1_u32..5, any::<bool>(), any::<bool>(), 0.0..0.3_f64, 0.0..0.5_f64).prop_map(
        |(seed, batch, answers, flags, lost, failed)| Terms { seed, batch, answers, flags, lost, failed },
    )
}

fn id(body: &[u8]) -> Id {
    read(body, body.len()).unwrap().0
}

proptest! {
    /// Publishes that arrive now, later or never, failures, acknowledgements without an answer, and consumers
    /// that are lost before they or the queue know it, in any order, never make a correct queue look broken.
    #[test]
    fn a_correct_queue_raises_no_alarm(terms in any_terms()) {
        let world = World::new(terms).run(600);
        let published = world.ledger().totals().published;
        let audit = world.audit();
        let expected = if published > 0 { Verdict::Holds } else { Verdict::Unknown };
        prop_assert_eq!(audit.verdict, expected, "{} {:?}", audit, audit.evidence);
        prop_assert_eq!(audit.evidence["not_consumed"], 0);
    }

    /// Each kind of damage is found, as often as it was done, by a consumer as by the audit's own.
    #[test]
    fn damage_is_found_with_its_count(
        seed: u64,
        each in 5_u64..20,
        by in 1_usize..5,
        consumed: bool,
        which: prop::sample::Index,
        kind in 0..5,
    ) {
        let damaged = |damage: &dyn Fn(&mut Broker), wanted: &[(&str, u64)]| {
            let mut world = World::published(Terms::calm(seed), each);
            world.damage(damage);
            if consumed {
                world.consume_all();
            }
            world.shows(wanted);
        };
        let count = by as u64;
        let all: Vec<u64> = (1..=each * PRODUCERS as u64).collect();
        // some next to each other, from any place
        let start = which.index(all.len() - by);
        let some = &all[start..start + by];
        match kind {
            0 => damaged(&|broker| broker.ready.retain(|arrival, _| !some.contains(arrival)), &[("lost", count)]),
            1 | 2 => damaged(
                &|broker| {
                    for (index, arrival) in (1..).zip(some) {
                        let letter = Letter { redelivered: kind == 1, ..broker.ready[arrival].clone() };
                        broker.ready.insert(1000 + index, letter);
                    }
                },
                &[("duplicated", count)],
            ),
            3 => damaged(
                &|broker| {
                    for arrival in some {
                        let letter = broker.ready.get_mut(arrival).unwrap();
                        let at = which.index(letter.body.len());
                        letter.body[at] ^= 1;
                    }
                },
                &[("torn", count), ("lost", count)],
            ),
            _ => damaged(
                &|broker| {
                    for sequence in 0..count {
                        let mut made_up = Message::default();
                        made_up.write(Id { producer: 1, sequence: 1_000_000 + sequence }, 0, 40);
                        broker.add(made_up.body);
                    }
                },
                &[("phantom", count)],
            ),
        }
    }

    /// Two messages of one producer that change places are found by the consumer that is handed both.
    #[test]
    fn a_changed_order_is_found(seed: u64, each in 2_u64..20, which: prop::sample::Index) {
        let mut world = World::published(Terms::calm(seed), each);
        // the producers take turns
        let first = 1 + which.index(usize::try_from((each - 1) * 2).unwrap()) as u64;
        world.damage(|broker| {
            let [one, other] = [first, first + 2].map(|arrival| broker.ready[&arrival].clone());
            assert_eq!(id(&one.body).producer, id(&other.body).producer);
            broker.ready.insert(first, other);
            broker.ready.insert(first + 2, one);
        });
        world.consume_all();
        world.shows(&[("reordered", 1)]);
    }

    /// Among unanswered publishes and lost consumers, what they cannot explain is still found.
    #[test]
    fn more_than_the_unanswered_is_found(terms in any_terms(), flagged: bool) {
        let world = World::new(Terms { answers: true, flags: true, ..terms }).run(300);
        let mut world = world;
        // one more, that is acknowledged, and lost
        let before = world.ledger().totals().published;
        world.terms.failed = 0.0;
        world.send(0);
        let connection = world.producers[0].connection;
        world.damage(|broker| { broker.wires.get_mut(&connection).unwrap().clear(); });
        world.answer(0);
        prop_assert_eq!(world.ledger().totals().published, before + 1);
        // and one that comes twice
        world.send(1);
        let connection = world.producers[1].connection;
        world.damage(|broker| {
            let (_, body) = broker.wires.get_mut(&connection).unwrap().pop_front().unwrap();
            broker.add(body.clone());
            broker.add(body);
            if flagged {
                broker.ready.last_entry().unwrap().get_mut().redelivered = true;
            }
        });
        world.answer(1);
        world.shows(&[("lost", 1), ("duplicated", 1)]);
    }

    /// A publish that failed, and is delivered, is a phantom.
    #[test]
    fn a_failed_publish_that_is_delivered_is_a_phantom(seed: u64, consumed: bool) {
        let mut world = World::published(Terms::calm(seed), 5);
        world.terms.failed = 1.0;
        world.send(0);
        let connection = world.producers[0].connection;
        let body = world.net.broker().wires[&connection][0].1.clone();
        world.answer(0);
        prop_assert_eq!(world.ledger().totals().failed, 1);
        world.damage(|broker| broker.add(body));
        if consumed {
            world.consume_all();
        }
        world.shows(&[("phantom", 1)]);
    }

    /// What is still in the queue is not lost, and nothing is said of what is not known.
    #[test]
    fn a_queue_that_is_not_empty_proves_no_loss(
        seed: u64,
        ready in prop::sample::select(vec![0, 1, 2, u64::MAX]),
        unacknowledged in prop::sample::select(vec![0, 1, 2, u64::MAX]),
        promised: bool,
    ) {
        let world = World::published(Terms::calm(seed), 5);
        let judged = audit(world.ledger(), Ok(Depth { ready, unacknowledged }), promised);
        let empty = (ready, unacknowledged) == (0, 0);
        prop_assert_eq!(judged.count("lost"), if empty { 10 } else { 0 });
        prop_assert_eq!(judged.verdict, if empty { Verdict::Broken } else { Verdict::Unknown });
        prop_assert_eq!(judged.evidence["not_consumed"], 10);
        // without acknowledgements it is counted, and breaks no promise
        prop_assert_eq!(judged.breaks_promise(false), empty && promised);
    }

    /// How its publishing ended, whether it was delivered and how often too often: whatever the order in which
    /// a message's byte is told.
    #[test]
    fn a_byte_tells_what_happened_in_whatever_order(
        told in prop::collection::vec(0_u8..5, 0..8),
        at: prop::sample::Index,
        how in prop::sample::select(vec![Published::Sent, Published::Ok, Published::Failed]),
    ) {
        let ledger = Ledger::new(3, 0);
        let id = Id { producer: 1, sequence: 4 };
        ledger.delivered(id, None);
        prop_assert_eq!(ledger.totals().foreign, 1, "it was not sent yet");
        ledger.sending(id);
        let at = at.index(told.len() + 1);
        for (index, each) in told.iter().chain([&5]).enumerate() {
            if index == at {
                ledger.published(id, how);
            }
            match each {
                0 => _ = ledger.delivered(id, None),
                1 => _ = ledger.delivered(id, Some(true)),
                2 => _ = ledger.delivered(id, Some(false)),
                3 => ledger.settled(id),
                _ => {}
            }
        }
        let count = |wanted: &[u8]| told.iter().filter(|each| wanted.contains(each)).count() as u64;
        let entries: Vec<_> = ledger.entries().filter(|entry| entry.published() != Published::Never).collect();
        prop_assert_eq!(entries.len(), 1);
        prop_assert_eq!(entries[0].published(), how);
        prop_assert_eq!(entries[0].was_delivered(), count(&[0, 1, 2]) > 0);
        let totals = ledger.totals();
        let (fresh, settled) = (count(&[2]), count(&[3]));
        prop_assert_eq!(totals.delivered, u64::from(count(&[0, 1, 2]) > 0));
        prop_assert_eq!(totals.duplicated > 0, fresh > 1 || settled > 1, "{:?}", told);
        // a second delivery that is seen at once is not counted again when it is acknowledged
        if fresh <= 2 && settled <= 2 {
            prop_assert!(totals.duplicated <= 2);
            let both = told.iter().rposition(|each| *each == 2) < told.iter().rposition(|each| *each == 3);
            prop_assert!(!both || totals.duplicated <= 1, "{:?}: {:?}", told, totals);
        }
        let ended = [totals.unknown, totals.published, totals.failed];
        let index = [Published::Sent, Published::Ok, Published::Failed].iter().position(|each| *each == how);
        prop_assert_eq!((ended[index.unwrap()], ended.iter().sum::<u64>()), (1, 1));
    }
}

#[test]
fn nothing_acknowledged_is_unknown_not_holds() {
    let mut world = World::new(Terms::calm(1));
    for _ in 0..3 {
        world.send(0);
        world.give_up(0);
    }
    assert_eq!(world.audit().to_string(), "unknown: no publish was acknowledged");
}

#[test]
fn a_queue_that_cannot_be_drained_is_unknown_unless_the_ledger_proves_a_break() {
    let gone = || StoreError::Server { doing: "emptying".into(), address: "x".into(), cause: "gone".into() };
    let world = World::published(Terms::calm(1), 5);
    let judged = audit(world.ledger(), Err(gone()), true);
    assert_eq!((judged.verdict, judged.count("lost")), (Verdict::Unknown, 0));
    world.ledger().torn();
    let proved = audit(world.ledger(), Err(gone()), true);
    assert_eq!(proved.to_string(), "broken: torn 1 messages");
    assert!(proved.reason.is_some());
}

/// What a producer gave up may come after what it sent next, and that is no other order than was promised; what
/// it sent next must still come in its own.
#[test]
fn the_order_is_kept_on_each_connection_by_itself() {
    let mut world = World::new(Terms::calm(3));
    world.send(0);
    let first = world.producers[0].connection;
    let wire = world.net.broker().wires[&first].clone();
    world.give_up(0);
    let second = world.producers[0].connection;
    world.send(0);
    world.send(0);
    world.damage(|broker| {
        broker.wires.insert(first, wire);
        broker.arrive(second);
        broker.arrive(first);
        broker.arrive(second);
    });
    world.consume_all();
    assert_eq!(world.ledger().totals().reordered, 0);
    assert_eq!(world.ledger().totals().delivered, 3);
}
