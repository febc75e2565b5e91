//! The queue in memory.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use acidtest_engine::Ended;
use acidtest_model::{Ack, Consume, Delivery, StoreError, Task};
use acidtest_workloads::{
    Attempt, Fault, Place,
    queue::{self, Depth, Message, QueueAdapter, Received, Settled, Wanted},
};
use rand::RngExt;
use tokio::{sync::Notify, time::timeout};

use crate::{Bug, Faults, LATER, Memory, Plant, answered, locked};

/// What a waiting consumer sleeps for at most: a message that comes later wakes nobody.
const DOZE: Duration = Duration::from_millis(5);

/// The bugs that show when a consumer is lost, and so lose one.
const CUTS: [Bug; 2] = [Bug::LoseHeld, Bug::Unflag];

/// One trial's queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// By the order in which they came; what is put back has its old place.
    ready: BTreeMap<u64, Letter>,
    unacknowledged: u64,
    /// How many came.
    arrivals: u64,
    /// Messages that come later.
    later: VecDeque<(Instant, Vec<u8>)>,
    seeds: u64,
}

/// A message in the queue.
#[derive(Clone, Debug)]
struct Letter {
    body: Vec<u8>,
    redelivered: bool,
}

impl Queue {
    /// The state, with all in it that has come by now.
    fn settled(&self) -> MutexGuard<'_, State> {
        let mut state = locked(&self.state);
        while state.later.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            let Some((_, body)) = state.later.pop_front() else { break };
            state.add(body);
        }
        state
    }

    /// What goes wrong in a new connection.
    fn plant(&self, faults: Faults) -> Plant {
        let mut state = locked(&self.state);
        state.seeds += 1;
        Plant::new(faults, state.seeds)
    }
}

impl State {
    fn add(&mut self, body: Vec<u8>) {
        self.arrivals += 1;
        self.ready.insert(self.arrivals, Letter { body, redelivered: false });
    }

    fn add_later(&mut self, bodies: impl IntoIterator<Item = Vec<u8>>) {
        let due = Instant::now() + LATER;
        self.later.extend(bodies.into_iter().map(|body| (due, body)));
    }
}

impl Memory {
    fn queue_of(&self, place: &Place) -> Option<Arc<Queue>> {
        locked(&self.queues).get(&name(place)).cloned()
    }
}

fn name(place: &Place) -> String {
    format!("{}/{}", place.namespace, place.object("queue"))
}

/// As it is wanted before and after a trial, when no client is at work.
fn edge(wanted: &Wanted) -> Wanted {
    let (ack, consume) = (Ack::Confirm, Consume::Ack);
    let (producers, consumers) = (0, 0);
    let (in_flight, prefetch, batch) = (1000, 1000, 500);
    let delivery =
        Delivery { ack, consume, producers, consumers, in_flight, prefetch, batch, ..wanted.delivery };
    Wanted { delivery, ..*wanted }
}

impl QueueAdapter for Memory {
    type Connector = Connector;

    fn connector(&self, place: &Place, wanted: &Wanted) -> Connector {
        let delivery = wanted.delivery;
        let mut faults = self.faults;
        if delivery.producers + delivery.consumers == 0 {
            // before and after a trial every answer comes, and no connection is lost
            faults.timeouts = 0.0;
            faults.bug = faults.bug.filter(|bug| !CUTS.contains(bug));
        }
        Connector { queue: self.queue_of(place), wanted: *wanted, faults }
    }

    fn filling(&self, wanted: &Wanted) -> Wanted {
        edge(wanted)
    }

    fn draining(&self, wanted: &Wanted) -> Wanted {
        edge(wanted)
    }

    fn declare<'a>(&'a self, place: &'a Place, _: &'a Wanted) -> Task<'a, Result<(), StoreError>> {
        let name = name(place);
        let mut queues = locked(&self.queues);
        let there = queues.contains_key(&name);
        if !there {
            queues.insert(name.clone(), Arc::default());
        }
        Box::pin(async move {
            let cause = format!("the queue {name} exists already");
            let (doing, address) = ("declaring the queue".to_owned(), "memory".to_owned());
            if there { Err(StoreError::Server { doing, address, cause }) } else { Ok(()) }
        })
    }

    fn depth<'a>(&'a self, place: &'a Place, _: &'a Wanted) -> Task<'a, Result<Depth, StoreError>> {
        let depth = self.queue_of(place).map_or_else(Depth::default, |queue| {
            let state = queue.settled();
            Depth { ready: state.ready.len() as u64, unacknowledged: state.unacknowledged }
        });
        Box::pin(async move { Ok(depth) })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        locked(&self.queues).remove(&name(place));
        Box::pin(async { Ok(()) })
    }

    fn keeps_order(&self, _: &Wanted) -> bool {
        true
    }
}

/// Opens connections to a queue, if there is one.
#[derive(Debug)]
pub struct Connector {
    queue: Option<Arc<Queue>>,
    wanted: Wanted,
    faults: Faults,
}

impl Connector {
    fn queue(&self) -> Result<Arc<Queue>, String> {
        self.queue.clone().ok_or_else(|| "there is no such queue".to_owned())
    }
}

impl queue::Connector for Connector {
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    async fn publisher(&self) -> Result<Publisher, String> {
        let queue = self.queue()?;
        let plant = queue.plant(self.faults);
        let (ack, sent, written) = (self.wanted.delivery.ack, 0, Vec::new());
        Ok(Publisher { queue, plant, ack, sent, written, cut: None })
    }

    async fn subscriber(&self) -> Result<Subscriber, String> {
        let queue = self.queue()?;
        let plant = queue.plant(self.faults);
        let (fetched, held) = (VecDeque::new(), Vec::new());
        Ok(Subscriber { queue, plant, wanted: self.wanted, fetched, held, stopped: false })
    }
}

/// A producer's connection.
#[derive(Debug)]
pub struct Publisher {
    queue: Arc<Queue>,
    plant: Plant,
    ack: Ack,
    sent: u64,
    /// By number; on their way to the queue.
    written: Vec<(u64, Vec<u8>)>,
    /// Since when nothing more is answered: what becomes of it.
    cut: Option<Fate>,
}

/// What becomes of messages that nobody is told of. A connection keeps their order: what follows one is no
/// better off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Arrives,
    ArrivesLater,
    IsLost,
}

impl queue::Publisher for Publisher {
    async fn send(&mut self, message: &Message) -> Result<(), Fault> {
        self.written.push((self.sent, message.body.clone()));
        self.sent += 1;
        Ok(())
    }

    async fn settle(&mut self, ended: &mut Vec<Ended>) -> Result<(), Fault> {
        let queue = Arc::clone(&self.queue);
        {
            let mut state = queue.settled();
            if self.ack == Ack::Transaction {
                let (numbers, bodies): (Vec<u64>, _) = self.written.drain(..).unzip();
                if let Some(done) = self.publish(&mut state, bodies) {
                    ended.extend(numbers.into_iter().map(|number| Ended { number, attempt: done.clone() }));
                }
            } else {
                for (number, body) in std::mem::take(&mut self.written) {
                    let done = self.publish(&mut state, vec![body]);
                    ended.extend(done.map(|attempt| Ended { number, attempt }));
                }
            }
        }
        queue.arrived.notify_waiters();
        if ended.is_empty() { std::future::pending().await } else { Ok(()) }
    }
}

impl Publisher {
    /// Puts messages into the queue, all or none. None is never answered.
    fn publish(&mut self, state: &mut State, bodies: Vec<Vec<u8>>) -> Option<Attempt> {
        let plant = &mut self.plant;
        // without acknowledgements nobody could tell
        if self.ack != Ack::None && (self.cut.is_some() || plant.is_unanswered()) {
            let fates = [Fate::Arrives, Fate::ArrivesLater, Fate::IsLost];
            let fate = self.cut.max(Some(fates[plant.rng.random_range(0..fates.len())]));
            match fate {
                Some(Fate::Arrives) => bodies.into_iter().for_each(|body| state.add(body)),
                Some(Fate::ArrivesLater) => state.add_later(bodies),
                Some(Fate::IsLost) | None => {}
            }
            self.cut = fate;
            return None;
        }
        Some(publish(state, plant, bodies))
    }
}

/// Puts messages into the queue, with whatever was planted.
fn publish(state: &mut State, plant: &mut Plant, bodies: Vec<Vec<u8>>) -> Attempt {
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
    Attempt::Ok
}

/// A consumer's connection. What it holds when it is dropped goes back to its old place.
#[derive(Debug)]
pub struct Subscriber {
    queue: Arc<Queue>,
    plant: Plant,
    wanted: Wanted,
    /// Handed out and not taken yet.
    fetched: VecDeque<(u64, Letter)>,
    /// Taken and not acknowledged.
    held: Vec<(u64, Letter)>,
    stopped: bool,
}

impl Subscriber {
    fn acknowledges(&self) -> bool {
        self.wanted.delivery.consume != Consume::Auto
    }

    /// The next message that is handed out; as many more are as the consumer may hold.
    fn next(&mut self) -> Option<(u64, Letter)> {
        if self.fetched.is_empty() && !self.stopped {
            let room = (self.wanted.delivery.prefetch as usize).saturating_sub(self.held.len());
            let mut state = self.queue.settled();
            while self.fetched.len() < room
                && let Some(first) = state.ready.pop_first()
            {
                self.fetched.push_back(first);
            }
            if self.acknowledges() {
                state.unacknowledged += self.fetched.len() as u64;
            }
        }
        let at = usize::from(self.fetched.len() > 1 && self.plant.strikes(Bug::Reorder));
        self.fetched.remove(at)
    }

    /// Puts back what was handed out and not acknowledged, as when the connection is lost.
    fn put_back(&mut self) {
        if !self.acknowledges() {
            return;
        }
        let bug = self.plant.faults.bug;
        let mut state = locked(&self.queue.state);
        state.unacknowledged -= (self.held.len() + self.fetched.len()) as u64;
        for (arrival, letter) in self.held.drain(..).chain(self.fetched.drain(..)) {
            if bug != Some(Bug::LoseHeld) {
                let redelivered = bug != Some(Bug::Unflag);
                state.ready.insert(arrival, Letter { redelivered, ..letter });
            }
        }
        drop(state);
        self.queue.arrived.notify_waiters();
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.put_back();
    }
}

impl queue::Subscriber for Subscriber {
    async fn take(&mut self, patience: Duration, received: &mut Received) -> Attempt {
        if self.acknowledges() && self.plant.is_unanswered() {
            return answered(None).await;
        }
        if self.plant.strikes(Bug::MakeUp) {
            let made_up = Message::laid(self.plant.rng.random(), self.wanted.message_bytes);
            *received = Received { body: made_up.body, redelivered: Some(false) };
            return Attempt::Ok;
        }
        let until = Instant::now() + patience;
        let queue = Arc::clone(&self.queue);
        loop {
            let arrival = queue.arrived.notified();
            if let Some((arrival, letter)) = self.next() {
                received.body.clone_from(&letter.body);
                received.redelivered = Some(letter.redelivered);
                if self.acknowledges() {
                    self.held.push((arrival, letter));
                }
                return Attempt::Ok;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Attempt::Refused;
            }
            // whether something arrived or not, it looks again
            _ = timeout(left.min(DOZE), arrival).await;
        }
    }

    async fn settle(&mut self) -> Result<Settled, Fault> {
        if self.plant.is_unanswered() {
            // acknowledged or not, and nobody is told
            if self.plant.rng.random() {
                self.acknowledge();
            }
            return std::future::pending().await;
        }
        if CUTS.into_iter().any(|bug| self.plant.strikes(bug)) {
            return Err(Fault::lost("planted: the consumer is lost"));
        }
        self.acknowledge();
        Ok(Settled::Answered)
    }

    async fn stop(&mut self) -> Result<(), Fault> {
        self.stopped = true;
        Ok(())
    }
}

impl Subscriber {
    fn acknowledge(&mut self) {
        let mut state = locked(&self.queue.state);
        state.unacknowledged -= self.held.len() as u64;
        for (arrival, letter) in self.held.drain(..) {
            if self.plant.strikes(Bug::Redeliver) {
                state.ready.insert(arrival, Letter { redelivered: true, ..letter });
            }
        }
    }
}
