//! The queue workload in memory.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::{Arc, Mutex},
    time::Duration,
};

use acidtest_engine::Completion;
use acidtest_model::{StoreError, Task};
use acidtest_workloads::{
    Attempt, Fault, Place,
    queue::{
        self, Ack, AckAnswer, AckProgress, Consume, Delivery, Depth, Message, QueueAdapter, ReceivedMessage,
        Requirements,
    },
};
use rand::RngExt;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    Bug, Faults, LATER, Memory, answered,
    crash::{Forgotten, Journal},
    faults::Plant,
    gone,
    sides::{Replicated, Side, Sides},
    witness::{Delivered, Queue as Witness},
    world::{Link, World, locked},
};

/// How long a waiting consumer sleeps at most before it looks again: a delayed message becomes ready without
/// waking anybody.
const DOZE: Duration = Duration::from_millis(5);

/// How long a store with faulty connections may take to notice that a consumer is gone.
const UNNOTICED: Duration = Duration::from_millis(25);

/// The bugs that show only when a consumer is lost. A strike therefore breaks a consumer's connection.
const CUTS: [Bug; 2] = [Bug::LoseHeld, Bug::Unflag];

/// What a consumer is told whose connection a planted bug has broken.
const CONSUMER_LOST: &str = "planted: the consumer is lost";

#[derive(Debug)]
pub(crate) struct Queue {
    state: Sides<State>,
    arrived: Notify,
    witness: Mutex<Witness>,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// Messages to deliver, by arrival number; a message that is put back returns to its old place.
    ready: BTreeMap<u64, Letter>,
    /// Messages that were handed out and not acknowledged, by arrival number, with the connection that holds them.
    out: BTreeMap<u64, (u64, Letter)>,
    /// Messages that a lost consumer held, with their arrival numbers and the time at which the store notices the
    /// loss and makes them ready again.
    returning: Vec<(Instant, u64, Letter)>,
    /// Messages that have arrived so far.
    arrivals: u64,
    /// Bodies of messages on their way, those that come together, with the time at which they arrive.
    later: VecDeque<(Instant, Vec<Vec<u8>>)>,
    /// What was written since the last kill.
    journal: Option<Journal<Change>>,
}

/// What producers and consumers have changed, as far as the planted bug forgets it, or brings it back.
#[derive(Clone, Debug)]
enum Change {
    /// Messages came together, with these arrival numbers.
    Published(Vec<u64>),
    /// A message was acknowledged, and removed.
    Removed(u64, Letter),
    /// A message was handed to a consumer that is to acknowledge it.
    HandedOut(u64),
    /// A message was handed to a consumer that is not, and removed.
    Taken(u64, Letter),
}

impl Change {
    fn parts(&self) -> usize {
        match self {
            Self::Published(arrivals) => arrivals.len(),
            Self::Removed(..) | Self::HandedOut(_) | Self::Taken(..) => 1,
        }
    }

    /// Whether it is what a store with this bug forgets, or brings back.
    fn is_for(&self, bug: Bug) -> bool {
        match self {
            Self::Published(_) => !Bug::QUEUE_AT_A_KILL.contains(&bug),
            Self::Removed(..) => bug == Bug::BringBack,
            Self::HandedOut(_) => bug == Bug::ForgetHeld,
            Self::Taken(..) => false,
        }
    }
}

#[derive(Clone, Debug)]
struct Letter {
    body: Vec<u8>,
    redelivered: bool,
}

impl Queue {
    fn new(world: &Arc<World>) -> Self {
        let exact = world.exact;
        let state = State { journal: Some(Journal::new(world)), ..State::default() };
        let (state, witness) = (Sides::new(world, state), Mutex::new(Witness::new(exact)));
        Self { state, arrived: Notify::new(), witness }
    }

    /// The locked state, after all arrivals and returns that are due by now.
    fn settled(&self) -> Side<'_, State> {
        self.settled_at(u64::MAX)
    }

    /// The same as the leader of this number has it.
    fn settled_at(&self, leader: u64) -> Side<'_, State> {
        let mut state = self.state.at(leader);
        state.forget();
        let now = Instant::now();
        while state.later.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, bodies)) = state.later.pop_front() else { break };
            state.add_all(bodies, 0);
        }
        for (due, arrival, letter) in mem::take(&mut state.returning) {
            if due <= now {
                state.ready.insert(arrival, letter);
            } else {
                state.returning.push((due, arrival, letter));
            }
        }
        state
    }

    /// The number of violations that an audit of this trial must see.
    pub(crate) fn shown(&self) -> u64 {
        locked(&self.witness).shown()
    }
}

impl Replicated for State {
    type Write = Change;

    fn journal(&mut self) -> Option<&mut Journal<Change>> {
        self.journal.as_mut()
    }

    fn forget(&mut self) {
        let forgotten = self.journal.as_mut().map(|journal| journal.forgotten(Change::parts));
        for forgotten in forgotten.into_iter().flatten() {
            let whole = matches!(forgotten, Forgotten::Whole(_));
            match forgotten {
                Forgotten::Whole(Change::Published(arrivals))
                | Forgotten::Half(Change::Published(arrivals)) => {
                    let parts = if whole { arrivals.len() } else { arrivals.len() / 2 };
                    let is_end = self.journal.as_ref().is_some_and(Journal::loses_its_end);
                    for arrival in &arrivals[..parts] {
                        self.ready.remove(arrival);
                        if is_end {
                            self.out.remove(arrival);
                            self.returning.retain(|(_, each, _)| each != arrival);
                        }
                    }
                }
                Forgotten::Whole(Change::Removed(arrival, letter) | Change::Taken(arrival, letter))
                | Forgotten::Half(Change::Removed(arrival, letter) | Change::Taken(arrival, letter)) => {
                    self.ready.insert(arrival, Letter { redelivered: true, ..letter });
                }
                Forgotten::Whole(Change::HandedOut(arrival))
                | Forgotten::Half(Change::HandedOut(arrival)) => {
                    self.out.remove(&arrival);
                    self.ready.remove(&arrival);
                    self.returning.retain(|(_, each, _)| *each != arrival);
                }
            }
        }
    }

    fn promote(&mut self) {
        // it does not know who was handed what, and says of all that they may have been
        for (arrival, (_, letter)) in mem::take(&mut self.out) {
            self.ready.insert(arrival, letter);
        }
        for (_, arrival, letter) in mem::take(&mut self.returning) {
            self.ready.insert(arrival, letter);
        }
        self.ready.values_mut().for_each(|letter| letter.redelivered = true);
    }
}

impl State {
    /// Adds messages that come together.
    fn add_all(&mut self, bodies: impl IntoIterator<Item = Vec<u8>>, connection: u64) {
        let before = self.arrivals;
        bodies.into_iter().for_each(|body| self.add(body));
        self.note(connection, Change::Published((before + 1..=self.arrivals).collect()));
    }

    fn add(&mut self, body: Vec<u8>) {
        self.arrivals += 1;
        self.ready.insert(self.arrivals, Letter { body, redelivered: false });
    }

    /// Keeps in mind what was changed by a connection.
    fn note(&mut self, connection: u64, change: Change) {
        let is_kept = |journal: &&mut Journal<Change>| {
            let is_logged = !matches!(change, Change::HandedOut(_));
            (journal.loses_its_end() && is_logged) || journal.bug().is_some_and(|bug| change.is_for(bug))
        };
        if let Some(journal) = self.journal.as_mut().filter(is_kept) {
            journal.note(connection, change);
        }
    }

    fn add_later(&mut self, bodies: impl IntoIterator<Item = Vec<u8>>) {
        self.later.push_back((Instant::now() + LATER, bodies.into_iter().collect()));
    }

    /// Makes ready again the oldest message that is held by a connection other than `but`.
    fn take_back(&mut self, but: u64) {
        let of_others = |(arrival, (owner, _)): (&u64, &(u64, Letter))| (*owner != but).then_some(*arrival);
        let first = self.out.iter().find_map(of_others);
        if let Some((arrival, (_, letter))) = first.and_then(|first| self.out.remove_entry(&first)) {
            self.ready.insert(arrival, Letter { redelivered: true, ..letter });
        }
    }
}

impl Memory {
    pub(crate) fn queue_of(&self, place: &Place) -> Option<Arc<Queue>> {
        locked(&self.queues).get(&name(place)).cloned()
    }
}

fn name(place: &Place) -> String {
    format!("{}/{}", place.namespace, place.object("queue"))
}

/// The settings with which messages are loaded before a trial and drained after it, when no client is at work.
fn edge(wanted: &Requirements) -> Requirements {
    let (ack, consume) = (Ack::Confirm, Consume::Ack);
    let (producers, consumers) = (0, 0);
    let (in_flight, prefetch, batch) = (1000, 1000, 500);
    let delivery =
        Delivery { ack, consume, producers, consumers, in_flight, prefetch, batch, ..wanted.delivery };
    Requirements { delivery, ..*wanted }
}

fn is_edge(delivery: &Delivery) -> bool {
    delivery.producers + delivery.consumers == 0
}

impl QueueAdapter for Memory {
    type Connector = Connector;

    fn connector(&self, place: &Place, wanted: &Requirements) -> Connector {
        Connector { queue: self.queue_of(place), wanted: *wanted, world: Arc::clone(&self.world) }
    }

    fn filling(&self, wanted: &Requirements) -> Requirements {
        edge(wanted)
    }

    fn draining(&self, wanted: &Requirements) -> Requirements {
        edge(wanted)
    }

    fn declare<'a>(&'a self, place: &'a Place, _: &'a Requirements) -> Task<'a, Result<(), StoreError>> {
        let name = name(place);
        let mut queues = locked(&self.queues);
        let there = queues.contains_key(&name);
        if !there {
            queues.insert(name.clone(), Arc::new(Queue::new(&self.world)));
        }
        Box::pin(async move {
            let cause = format!("the queue {name} exists already");
            if there { Err(gone("declaring the queue", &cause)) } else { Ok(()) }
        })
    }

    fn depth<'a>(&'a self, place: &'a Place, _: &'a Requirements) -> Task<'a, Result<Depth, StoreError>> {
        let depth = self.queue_of(place).map_or_else(Depth::default, |queue| {
            let state = queue.settled();
            let unacknowledged = (state.out.len() + state.returning.len()) as u64;
            Depth { ready: state.ready.len() as u64, unacknowledged }
        });
        Box::pin(async move { self.is_there("counting the messages").map(|()| depth) })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        locked(&self.queues).remove(&name(place));
        Box::pin(async { Ok(()) })
    }

    fn keeps_order(&self, _: &Requirements) -> bool {
        true
    }
}

/// Opens connections to a trial's queue, or fails if it was not declared.
#[derive(Debug)]
pub struct Connector {
    queue: Option<Arc<Queue>>,
    wanted: Requirements,
    world: Arc<World>,
}

impl Connector {
    fn queue(&self) -> Result<Arc<Queue>, String> {
        self.queue.clone().ok_or_else(|| "there is no such queue".to_owned())
    }

    /// The faults of a new connection. A calm one, before or after a trial, has an answer to every operation.
    fn plant(&self, is_calm: bool) -> Plant {
        let mut faults = self.world.faults;
        if is_calm {
            faults = Faults {
                unanswered: 0.0,
                failures: 0.0,
                swapped: 0.0,
                redeliveries: 0.0,
                full: None,
                ..faults
            };
            // loading stops at a message that failed to be published, and nobody loses a consumer before a trial
            let fails = [Bug::LateApply, Bug::BelieveProxy];
            faults.bug = faults.bug.filter(|bug| !CUTS.contains(bug) && !fails.contains(bug));
        }
        Plant::new(&self.world, faults)
    }
}

impl queue::Connector for Connector {
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    async fn publisher(&self) -> Result<Publisher, String> {
        let (queue, is_calm) = (self.queue()?, is_edge(&self.wanted.delivery));
        let link = Link::of_queue(self.plant(is_calm), is_calm)?;
        let plant = self.plant(is_calm);
        let (ack, connection, cut) = (self.wanted.delivery.ack, link.number, None);
        let (written, answers) = (Vec::new(), Vec::new());
        Ok(Publisher { queue, link, plant, ack, connection, sent: 0, written, answers, cut })
    }

    async fn subscriber(&self) -> Result<Subscriber, String> {
        let (queue, is_edge) = (self.queue()?, is_edge(&self.wanted.delivery));
        let is_calm = is_edge && !self.world.faults.to_the_end;
        let link = Link::of_queue(self.plant(is_calm), is_calm)?;
        let (number, plant) = (link.number, self.plant(is_calm));
        let (fetched, held) = (VecDeque::new(), Vec::new());
        let leader = link.leader();
        let client =
            Client { queue, number, leader, plant, wanted: self.wanted, fetched, held, stopped: false };
        let by = (!is_edge).then_some(number);
        let (taken, unwritten, progress) = (Vec::new(), Vec::new(), AckProgress { handed: 0, read: 0 });
        Ok(Subscriber { link, client, by, taken, unwritten, progress, asked: false })
    }
}

/// A producer's connection: the simulated network and the queue behind it.
#[derive(Debug)]
pub struct Publisher {
    queue: Arc<Queue>,
    link: Link,
    plant: Plant,
    ack: Ack,
    connection: u64,
    sent: u64,
    /// Messages on their way to the queue, each with its number on this connection.
    written: Vec<(u64, Vec<u8>)>,
    /// Answers on their way back, each with the time at which it comes and the message's body.
    answers: Vec<(Instant, Vec<u8>, Completion)>,
    /// The fate of the last unanswered message, once there is one. Nothing that follows is answered either.
    cut: Option<Fate>,
}

/// The fate of a message that was sent and not answered, from best to worst. A connection keeps the order of its
/// messages, so that a later one's fate is never better than an earlier one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Arrives,
    ArrivesLater,
    IsLost,
}

const FATES: [Fate; 3] = [Fate::Arrives, Fate::ArrivesLater, Fate::IsLost];

impl queue::Publisher for Publisher {
    async fn send(&mut self, message: &Message) -> Result<(), Fault> {
        locked(&self.queue.witness).sent(&message.body, self.connection, self.sent);
        self.written.push((self.sent, message.body.clone()));
        self.sent += 1;
        Ok(())
    }

    async fn settle(&mut self, ended: &mut Vec<Completion>) -> Result<(), Fault> {
        if !self.written.is_empty() {
            if let Err(fault) = self.link.carry().await {
                self.give_up();
                return Err(fault);
            }
            self.arrive();
        }
        loop {
            let now = Instant::now();
            for (due, body, done) in mem::take(&mut self.answers) {
                if due <= now {
                    self.link.note(|| format!("published {}: {:?}", shown(&body), done.attempt));
                    locked(&self.queue.witness).published(&body, &done.attempt);
                    ended.push(done);
                } else {
                    self.answers.push((due, body, done));
                }
            }
            if !ended.is_empty() {
                return Ok(());
            }
            if self.link.is_gone() {
                return Err(Fault::lost("planted: the answer is lost"));
            }
            match self.answers.iter().map(|(due, ..)| *due).min() {
                Some(next) => sleep_until(next).await,
                None => std::future::pending().await,
            }
        }
    }
}

impl Publisher {
    /// Puts the messages that were written into the queue, and sends their answers on their way back.
    fn arrive(&mut self) {
        let queue = Arc::clone(&self.queue);
        {
            let mut state = queue.settled_at(self.link.leader());
            let written = mem::take(&mut self.written);
            let batches = match self.ack {
                Ack::Transaction => vec![written],
                Ack::None | Ack::Confirm => written.into_iter().map(|message| vec![message]).collect(),
            };
            for batch in batches {
                let (numbers, bodies): (Vec<u64>, Vec<Vec<u8>>) = batch.into_iter().unzip();
                let done = self.publish(&mut state, bodies.clone());
                let due =
                    Instant::now() + if self.ack == Ack::None { Duration::ZERO } else { self.link.delay() };
                let answers = numbers.into_iter().zip(bodies);
                self.answers.extend(done.into_iter().flat_map(|attempt| {
                    let answer =
                        |(number, body)| (due, body, Completion { number, attempt: attempt.clone() });
                    answers.clone().map(answer).collect::<Vec<_>>()
                }));
            }
        }
        queue.arrived.notify_waiters();
    }

    /// Decides on the messages that were on their way when the connection was lost: a random number of them, from
    /// the first on, may arrive; of a transaction all or none.
    fn give_up(&mut self) {
        let queue = Arc::clone(&self.queue);
        let mut state = queue.settled_at(self.link.leader());
        let fate = FATES[self.plant.rng.random_range(0..FATES.len())].max(self.cut.unwrap_or(Fate::Arrives));
        let bodies: Vec<Vec<u8>> = self.written.drain(..).map(|(_, body)| body).collect();
        let arrives = match self.ack {
            Ack::Transaction => bodies.len() * self.plant.rng.random_range(0..2),
            Ack::None | Ack::Confirm => self.plant.rng.random_range(0..=bodies.len()),
        };
        end(&mut state, fate, bodies.into_iter().take(arrives));
    }

    /// Puts messages into the queue, all or none. `None` means that the producer gets no answer.
    fn publish(&mut self, state: &mut State, bodies: Vec<Vec<u8>>) -> Option<Attempt> {
        let plant = &mut self.plant;
        // without acknowledgements no client could tell a missing answer
        if self.ack != Ack::None && (self.cut.is_some() || plant.is_unanswered()) {
            let fate = self.cut.max(Some(FATES[plant.rng.random_range(0..FATES.len())]));
            end(state, fate.unwrap_or(Fate::IsLost), bodies);
            self.cut = fate;
            return None;
        }
        if self.ack != Ack::None && plant.happens(plant.faults.failures) {
            return Some(plant.failure());
        }
        // without acknowledgements no client is told of a lack of room
        if self.ack != Ack::None
            && let Some(full) = plant.no_room()
        {
            return Some(full);
        }
        let done = publish(state, plant, self.connection, bodies);
        Some(if self.ack == Ack::None { done } else { plant.passed_on(done) })
    }
}

fn end(state: &mut State, fate: Fate, bodies: impl IntoIterator<Item = Vec<u8>>) {
    match fate {
        Fate::Arrives => state.add_all(bodies, 0),
        Fate::ArrivesLater => state.add_later(bodies),
        Fate::IsLost => {}
    }
}

/// Puts messages into the queue, with the planted bug where it strikes.
fn publish(state: &mut State, plant: &mut Plant, connection: u64, bodies: Vec<Vec<u8>>) -> Attempt {
    let before = state.arrivals;
    if plant.strikes(Bug::LateApply) {
        state.add_later(bodies);
        return Attempt::Failed(Fault::answered("planted: late"));
    }
    for mut body in bodies {
        if plant.strikes(Bug::DropWrite) {
            continue;
        }
        if plant.strikes(Bug::HideCommit) {
            state.add_later([body]);
            continue;
        }
        if plant.strikes(Bug::Tear)
            && let Some(last) = body.last_mut()
        {
            *last = !*last;
        }
        if plant.strikes(Bug::ApplyTwice) {
            state.add(body.clone());
        }
        state.add(body);
    }
    state.note(connection, Change::Published((before + 1..=state.arrivals).collect()));
    Attempt::Ok
}

/// The message's name for the history, or that it is torn.
fn shown(body: &[u8]) -> String {
    let name = Message { body: body.to_vec() }.name();
    if name.is_empty() { "a torn message".to_owned() } else { name }
}

/// A consumer's connection: the simulated network and the queue behind it.
#[derive(Debug)]
pub struct Subscriber {
    link: Link,
    client: Client,
    /// The connection's number; none for the audit's own consumer, whose order of deliveries is not checked.
    by: Option<u64>,
    /// Bodies of the messages that the client has taken and not acknowledged yet.
    taken: Vec<Vec<u8>>,
    /// Bodies of those whose acknowledgement waits at the client, where the store confirms none.
    unwritten: Vec<Vec<u8>>,
    progress: AckProgress,
    /// Whether the client waits for an answer. Still set when the subscriber is dropped, it means that the client
    /// gave up.
    asked: bool,
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        if self.asked || self.link.is_gone() {
            locked(&self.client.queue.witness).consumer_lost();
        }
    }
}

impl Subscriber {
    /// Notes that the client was told of a fault instead of an answer, after which it takes its connection for lost.
    fn lost<T>(&mut self, fault: T) -> T {
        locked(&self.client.queue.witness).consumer_lost();
        fault
    }
}

impl queue::Subscriber for Subscriber {
    async fn take(&mut self, patience: Duration, received: &mut ReceivedMessage) -> Attempt {
        self.asked = true;
        let attempt = if self.client.has_pushed() {
            self.client.plant.give_way().await;
            self.client.take(patience, received).await
        } else {
            self.ask(patience, received).await
        };
        self.asked = false;
        self.link.note(|| {
            let flag = received.redelivered;
            let what = if attempt == Attempt::Ok { shown(&received.body) } else { String::new() };
            format!("took {what}: {attempt:?}, redelivered {flag:?}")
        });
        match &attempt {
            Attempt::Ok => {
                let delivered =
                    Delivered { body: &received.body, redelivered: received.redelivered, by: self.by };
                let mut witness = locked(&self.client.queue.witness);
                witness.delivered(&delivered);
                self.taken.push(received.body.clone());
                if !self.client.acknowledges() {
                    witness.acknowledging(&mem::take(&mut self.taken));
                }
                attempt
            }
            Attempt::Refused | Attempt::Conflict => attempt,
            Attempt::Failed(_) | Attempt::Unknown(_) => self.lost(attempt),
        }
    }

    async fn settle(&mut self) -> Result<AckAnswer, Attempt> {
        let taken = mem::take(&mut self.taken);
        let is_unsent = self.link.is_gone() && self.client.plant.rng.random();
        if is_unsent || CUTS.into_iter().any(|bug| self.client.plant.strikes(bug)) {
            return Err(self.lost(Attempt::Failed(Fault::lost(CONSUMER_LOST))));
        }
        if self.client.plant.faults.unconfirmed {
            return self.hand_over(taken).await;
        }
        locked(&self.client.queue.witness).acknowledging(&taken);
        self.asked = true;
        if let Err(fault) = self.link.carry().await {
            return Err(self.lost(Attempt::Unknown(fault)));
        }
        let settled = self.client.settle().await;
        let settled = self.link.answer_consumer(settled).await;
        self.asked = false;
        self.link.note(|| {
            let taken: Vec<String> = taken.iter().map(|body| shown(body)).collect();
            format!("acknowledged {}: {settled:?}", taken.join(", "))
        });
        match settled {
            Ok(AckAnswer::Answered) => {
                let mut witness = locked(&self.client.queue.witness);
                for body in &taken {
                    witness.answered(body);
                }
                Ok(AckAnswer::Answered)
            }
            Ok(how) => Ok(how),
            Err(fault) => Err(self.lost(Attempt::Unknown(fault))),
        }
    }

    fn progress(&mut self) -> AckProgress {
        if self.client.plant.faults.unconfirmed { self.progress } else { AckProgress::default() }
    }

    async fn stop(&mut self) -> Result<(), Fault> {
        locked(&self.client.queue.witness).consumer_done();
        self.client.stopped = true;
        Ok(())
    }

    async fn close(&mut self) {
        if self.write().is_ok() && !self.link.is_gone() {
            self.progress.read = self.progress.handed;
        }
    }
}

impl Subscriber {
    /// Asks the store for a message, after writing the acknowledgements that wait. Its answer shows that it has read them.
    async fn ask(&mut self, patience: Duration, received: &mut ReceivedMessage) -> Attempt {
        if let Err(fault) = self.write() {
            return Attempt::Failed(fault);
        }
        let attempt = match self.link.send().await {
            Ok(()) => {
                let attempt = self.client.take(patience, received).await;
                self.link.answer_consumer(attempt).await.unwrap_or_else(Attempt::Unknown)
            }
            Err(attempt) => attempt,
        };
        if matches!(attempt, Attempt::Ok | Attempt::Refused) {
            self.progress.read = self.progress.handed;
        }
        attempt
    }

    /// Takes acknowledgements that the store does not confirm; while messages are at hand they may be written later.
    async fn hand_over(&mut self, taken: Vec<Vec<u8>>) -> Result<AckAnswer, Attempt> {
        self.unwritten.extend(taken);
        if !self.client.has_pushed() || self.client.plant.rng.random() {
            self.write().map_err(|fault| self.lost(Attempt::Unknown(fault)))?;
        }
        self.client.plant.give_way().await;
        Ok(AckAnswer::Sent)
    }

    /// Writes the acknowledgements that wait. They reach the store unless the connection is gone, and later the client may hear
    /// that they did.
    ///
    /// # Errors
    /// The client had seen the end of the connection: nothing was written.
    fn write(&mut self) -> Result<(), Fault> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        if self.link.is_gone() && self.client.plant.rng.random() {
            return Err(Fault::lost("planted: the end of the connection was seen"));
        }
        let written = mem::take(&mut self.unwritten);
        locked(&self.client.queue.witness).acknowledging(&written);
        self.progress.handed += written.len() as u64;
        let arrives = !self.link.is_lost() && !self.link.is_withheld();
        self.link.note(|| {
            let written: Vec<String> = written.iter().map(|body| shown(body)).collect();
            format!("wrote acknowledgements of {}: they arrive: {arrives}", written.join(", "))
        });
        if arrives {
            self.client.acknowledge(written.len());
            if self.client.plant.rng.random() {
                self.progress.read = self.progress.handed;
            }
        }
        Ok(())
    }
}

/// The store's side of one consumer's connection. When it is dropped, the messages that it holds go back to their
/// old places in the queue.
#[derive(Debug)]
struct Client {
    queue: Arc<Queue>,
    number: u64,
    /// The number of the leader that answers.
    leader: u64,
    plant: Plant,
    wanted: Requirements,
    /// Messages that were handed out to this connection and that the client has not taken yet.
    fetched: VecDeque<(u64, Letter)>,
    /// Messages that the client has taken and not acknowledged yet.
    held: Vec<(u64, Letter)>,
    stopped: bool,
}

impl Client {
    fn acknowledges(&self) -> bool {
        self.wanted.delivery.consume != Consume::Auto
    }

    /// The next message for the client. Where none was handed out in advance, fetches as many as the consumer may
    /// still hold.
    fn next(&mut self) -> Option<(u64, Letter)> {
        if self.fetched.is_empty() && !self.stopped {
            let room = (self.wanted.delivery.prefetch as usize).saturating_sub(self.held.len());
            let queue = Arc::clone(&self.queue);
            let mut state = queue.settled_at(self.leader);
            if self.acknowledges() && self.plant.happens(self.plant.faults.redeliveries) {
                state.take_back(self.number);
            }
            while self.fetched.len() < room
                && let Some((arrival, letter)) = state.ready.pop_first()
            {
                if self.acknowledges() {
                    state.out.insert(arrival, (self.number, letter.clone()));
                    state.note(self.number, Change::HandedOut(arrival));
                } else {
                    state.note(self.number, Change::Taken(arrival, letter.clone()));
                }
                self.fetched.push_back((arrival, letter));
            }
        }
        let at = usize::from(self.fetched.len() > 1 && self.plant.strikes(Bug::Reorder));
        self.fetched.remove(at)
    }

    async fn take(&mut self, patience: Duration, received: &mut ReceivedMessage) -> Attempt {
        if self.acknowledges() && self.plant.is_unanswered() {
            return answered(None).await;
        }
        // what is held is lost before its acknowledgement is sent
        if !self.held.is_empty() && self.plant.strikes(Bug::LoseHeld) {
            return Attempt::Failed(Fault::lost(CONSUMER_LOST));
        }
        if self.plant.strikes(Bug::MakeUp) {
            let made_up = Message::loaded(self.plant.rng.random(), self.wanted.message_bytes);
            *received = ReceivedMessage { body: made_up.body, redelivered: Some(false) };
            return Attempt::Ok;
        }
        let until = Instant::now() + patience;
        let queue = Arc::clone(&self.queue);
        loop {
            let arrival = queue.arrived.notified();
            if let Some((arrival, letter)) = self.next() {
                received.body.clone_from(&letter.body);
                received.redelivered = (!self.plant.faults.unflagged).then_some(letter.redelivered);
                if self.acknowledges() {
                    self.held.push((arrival, letter));
                }
                return Attempt::Ok;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Attempt::Refused;
            }
            // looks again whether it was woken or the time is up
            _ = timeout(left.min(DOZE), arrival).await;
        }
    }

    /// Whether the client has messages that were handed out to it in advance, where it need not ask the store for them.
    fn has_pushed(&self) -> bool {
        self.plant.faults.unconfirmed && self.acknowledges() && !self.fetched.is_empty()
    }

    async fn settle(&mut self) -> AckAnswer {
        let all = self.held.len();
        if self.plant.is_unanswered() {
            // acknowledged or not, and the client is not told which
            if self.plant.rng.random() {
                self.acknowledge(all);
            }
            return std::future::pending().await;
        }
        if self.acknowledge(all) { AckAnswer::Answered } else { AckAnswer::Read }
    }

    /// Acknowledges the first messages that are held. Returns false if one of them had been handed out again meanwhile.
    fn acknowledge(&mut self, messages: usize) -> bool {
        let mut state = self.queue.state.at(self.leader);
        let mut all = true;
        for (arrival, letter) in self.held.drain(..messages.min(self.held.len())) {
            if state.out.get(&arrival).is_none_or(|(owner, _)| *owner != self.number) {
                // it was handed out again, and the consumer that has it now acknowledges it
                all = false;
                continue;
            }
            state.out.remove(&arrival);
            if self.plant.strikes(Bug::Redeliver) {
                state.ready.insert(arrival, Letter { redelivered: true, ..letter });
            } else {
                state.note(self.number, Change::Removed(arrival, letter));
            }
        }
        all
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let [loses, unflags] = CUTS.map(|bug| self.plant.has(bug));
        let late = self.plant.faults.cuts > 0.0 && self.plant.rng.random();
        let back = Instant::now() + UNNOTICED;
        {
            let mut state = self.queue.state.at(self.leader);
            for (arrival, letter) in self.held.drain(..).chain(self.fetched.drain(..)) {
                if state.out.get(&arrival).is_none_or(|(owner, _)| *owner != self.number) {
                    continue;
                }
                state.out.remove(&arrival);
                if loses || unflags {
                    self.plant.world.struck();
                }
                if loses {
                    continue;
                }
                let letter = Letter { redelivered: !unflags, ..letter };
                if late {
                    state.returning.push((back, arrival, letter));
                } else {
                    state.ready.insert(arrival, letter);
                }
            }
        }
        self.queue.arrived.notify_waiters();
    }
}
