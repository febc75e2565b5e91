//! The checks that every store's queue must pass, with all settings that its row of the matrix offers. Each panics
//! if the store fails it or offers none of its settings, and returns early if the store is left out of the tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use acidtest_engine::{Attempt, Extent, Load, Measurement, Outcome, Stop, Trial};
use acidtest_model::{CellRequest, Durability, EffectiveSettings, Lock, StoreError};
use acidtest_workloads::{
    Audit, ClientTask, LoadProgress, Place, Store, TrialSetup, Verdict, Workload, WorkloadTrial,
    queue::{
        Ack, AckAnswer, Connector, Consume, Depth, Ledger, Message, OPERATIONS, Parameters, Phase, Publisher,
        Queue, QueueAdapter, QueueKind, QueueStore, ReceivedMessage, Requirements, SPANS, Scenario,
        Subscriber, audit,
    },
};

use crate::{
    Check, NAMESPACE, Pace, Private, Relay, SEED, Subject, World,
    crash::{self, Back, CrashedTrial, Repaired, Victim},
    inventory,
    private::CONNECT,
    steps::{self, BACK, prepared},
    subject::{Home, opened},
    until, wait, with_more_time,
};

const PUBLISH: usize = 0;
const CONSUME: usize = 1;

/// How long an event that must happen may take, on a busy machine.
const SOON: Duration = Duration::from_mins(2);
/// How long the depth of a queue that is being emptied may stay the same until the check gives up.
const STILL: Duration = Duration::from_secs(20);

/// A message without a body, which no producer published, must be delivered like any other, because it is the audit
/// that judges it. `spoil` puts one into the queue of a trial.
pub async fn what_is_no_body_is_taken<S: Store + QueueAdapter>(store: &S, spoil: impl AsyncFn(&Place)) {
    store.create(NAMESPACE, "run 1").await.unwrap();
    for (trial, consume) in (0..).zip([Consume::Auto, Consume::Ack]) {
        let parameters = Parameters { consume, ..Parameters::default() };
        let wanted =
            Requirements { delivery: parameters.delivery(), message_bytes: parameters.message_bytes };
        let place = Place { namespace: NAMESPACE.to_owned(), trial };
        store.declare(&place, &wanted).await.unwrap();
        spoil(&place).await;
        let mut subscriber = store.connector(&place, &wanted).subscriber().await.unwrap();
        let mut received = ReceivedMessage { body: vec![1], ..ReceivedMessage::default() };
        assert_eq!(subscriber.take(Duration::ZERO, &mut received).await, Attempt::Ok);
        assert_eq!(received.body, b"", "{consume:?}");
        assert_eq!(subscriber.settle().await, Ok(AckAnswer::Answered));
        assert_eq!(QueueAdapter::depth(store, &place, &wanted).await.unwrap(), Depth::default());
    }
}

/// One trial of the queue, which a test loads, drives and audits as acidtest's runner does.
pub struct QueueRun {
    /// The namespace and the number of the trial.
    pub place: Place,
    /// The workload's parameters, which also say how many clients there are.
    pub parameters: Parameters,
    workload: Queue,
    trial: Box<dyn WorkloadTrial>,
}

impl QueueRun {
    /// A trial with these parameters, in [`NAMESPACE`].
    #[must_use]
    pub fn new(trial: u32, parameters: Parameters) -> Self {
        Self::within(NAMESPACE, trial, parameters)
    }

    /// A trial with these parameters in this namespace.
    #[must_use]
    pub fn within(namespace: &str, trial: u32, parameters: Parameters) -> Self {
        let workload = Queue::new(parameters.clone()).unwrap();
        let clients = workload.spec().clients.unwrap();
        let setup = TrialSetup::new(Lock::None, SEED, clients);
        let place = Place { namespace: namespace.to_owned(), trial };
        Self { place, trial: workload.trial(setup), parameters, workload }
    }

    /// Declares the queue and loads the backlog.
    pub fn load(&self, store: &impl Store) {
        let loaded = LoadProgress::default();
        wait(self.trial.load(store, &self.place, &loaded)).unwrap();
        assert_eq!(loaded.rows(), self.parameters.backlog(), "{}", self.shown());
    }

    /// The settings and the durability level that are read back from the queue.
    pub fn settings(&self, store: &impl Store) -> EffectiveSettings {
        let server = wait(store.effective()).unwrap();
        wait(self.trial.settings(store, &self.place, &server)).unwrap()
    }

    /// Runs the trial's producers and consumers for this many milliseconds, or until they have nothing left to do.
    pub fn drive(&self, store: &impl Store, millis: u64) -> Measurement {
        steps::run(store, &load(millis), self.tasks(store))
    }

    /// Runs them on one thread for so many messages.
    pub fn drive_messages(&self, store: &impl Store, messages: u64) -> Measurement {
        let load = Load { extent: Extent::Operations(messages), threads: 1, ..load(0) };
        steps::run(store, &load, self.tasks(store))
    }

    fn tasks(&self, store: &impl Store) -> Vec<ClientTask> {
        let clients = self.workload.spec().clients.unwrap();
        (0..clients).map(|_| self.trial.client(store, &self.place).unwrap()).collect()
    }

    /// Messages that were published and not consumed, by the clients' own count.
    #[must_use]
    pub fn depth(&self) -> u64 {
        self.trial.consuming().unwrap().gauge().1
    }

    /// Empties the queue and audits all messages.
    pub fn audit(&self, store: &impl Store) -> Audit {
        wait(self.trial.audit(Ok(store), &self.place)).audit
    }

    /// Loads, drives and audits the trial in one runtime, as the runner does: what the store keeps open from the first to the last
    /// goes on. `then` is done before the audit.
    pub fn audited(&self, store: &impl Store, millis: u64, then: impl FnOnce()) -> Audit {
        wait(async {
            self.trial.load(store, &self.place, &LoadProgress::default()).await.unwrap();
            thread::scope(|scope| scope.spawn(|| self.drive(store, millis)).join().unwrap());
            then();
            self.trial.audit(Ok(store), &self.place).await.audit
        })
    }

    /// Removes the queue. Panics if the store fails.
    pub fn unload(&self, store: &impl Store) {
        wait(self.trial.unload(store, &self.place)).unwrap();
    }

    /// Names of the guarantees that the trial's parameters do not promise.
    fn without(&self) -> Vec<&'static str> {
        self.workload.spec().without(Lock::None)
    }

    fn promises(&self) -> bool {
        self.without().is_empty()
    }

    fn shown(&self) -> String {
        self.workload.spec().headline.clone()
    }
}

fn load(millis: u64) -> Load {
    let extent = Extent::Time(Duration::from_millis(millis));
    let timeout = Duration::from_mins(5);
    let closed = Load::closed(OPERATIONS, extent);
    Load { spans: SPANS, seed: SEED, patience: BACK, timeout, connect_timeout: CONNECT, ..closed }
}

/// Parameters for three producers, three consumers and small messages.
#[must_use]
pub fn few() -> Parameters {
    Parameters {
        producers: 3,
        consumers: 3,
        batch: 5,
        in_flight: 10,
        prefetch: Some(20),
        ..Parameters::default()
    }
}

fn request(parameters: &Parameters) -> CellRequest<'static> {
    Queue::new(parameters.clone()).unwrap().spec().request(Lock::None)
}

/// The parameters if the store offers them, else with one message in flight, in a batch, or both; none if the store
/// does not offer these either.
fn fitting<S: Store>(subject: &Subject<S>, parameters: &Parameters) -> Option<Parameters> {
    let &Parameters { in_flight, batch, .. } = parameters;
    [(in_flight, batch), (1, batch), (in_flight, 1), (1, 1)]
        .map(|(in_flight, batch)| Parameters { in_flight, batch, ..parameters.clone() })
        .into_iter()
        .find(|parameters| subject.offers(&request(parameters)))
}

/// Trials with those of the parameters that the store offers, numbered from 1.
fn offered<S: Store>(subject: &Subject<S>, all: impl IntoIterator<Item = Parameters>) -> Vec<QueueRun> {
    let all = all.into_iter().filter_map(|parameters| fitting(subject, &parameters));
    let cases: Vec<QueueRun> =
        (1..).zip(all).map(|(trial, parameters)| QueueRun::new(trial, parameters)).collect();
    assert!(!cases.is_empty(), "{} has nothing of this to check", subject.kind.name);
    cases
}

/// Parameters of every way to publish with every way to consume, persistent or not, of each kind of queue, and of a
/// store that drops messages that it knows already.
fn modes() -> Vec<Parameters> {
    let mut modes = Vec::new();
    for ack in Ack::ALL {
        for consume in Consume::ALL {
            for persistent in [true, false] {
                modes.push(Parameters { ack, consume, persistent, ..few() });
            }
        }
    }
    let kinds = [QueueKind::Classic, QueueKind::Quorum];
    modes.extend(kinds.map(|queue| Parameters { queue, ..few() }));
    modes.push(Parameters { deduplicate: true, ..few() });
    modes
}

/// Loads a trial, reads its settings back, drives and audits it. Asserts that there is no fault and that all
/// promised guarantees hold.
#[track_caller]
fn drives<S: Store>(store: &S, case: &QueueRun, millis: u64) -> (Measurement, Audit) {
    case.load(store);
    case.settings(store);
    let measured = case.drive(store, millis);
    let audit = case.audit(store);
    let shown = case.shown();
    eprintln!("{shown}: {:.0} a second, {audit} {:?}", measured.throughput(), audit.evidence);
    assert_eq!(measured.stopped, None, "{shown}");
    assert!(measured.faults.is_empty(), "{shown}: {:?}", measured.faults);
    if case.promises() {
        assert_eq!(audit.verdict, Verdict::Holds, "{shown}: {audit:?}");
    } else {
        // messages on their way when a connection was closed may be lost
        let sound = audit.reason.is_none() && !audit.breaks_promise(&case.without());
        assert!(sound, "{shown}: verdict: {:?} {audit:?}", audit.verdict);
    }
    assert_eq!(audit.evidence["unknown_publishes"], 0, "{shown}");
    (measured, audit)
}

/// Drives the trial again and again, with more time, until each of the operations has been acknowledged, which takes
/// longer on a slow machine. The queue is unloaded and declared anew each time.
#[track_caller]
fn goes_through<S: Store>(store: &S, case: &QueueRun, operations: &[usize]) -> (Measurement, Audit) {
    with_more_time(250, |millis| {
        let again = QueueRun::new(case.place.trial, case.parameters.clone());
        let (measured, audit) = drives(store, &again, millis);
        again.unload(store);
        if operations.iter().all(|operation| did(&measured, *operation)) {
            return Ok((measured, audit));
        }
        Err(format!("{}: nothing done: {measured:?}", case.shown()))
    })
}

fn did(measured: &Measurement, operation: usize) -> bool {
    measured.operations[operation].count(Outcome::Ok) > 0
}

/// The checks that can run one after the other on one server, for [`Subject::passes`].
#[must_use]
pub fn all<S: Store + QueueAdapter>() -> [Check<S>; 7] {
    [both, publishes, consumes, sizes, occupied, dying_consumers, taken_along]
}

/// With every way to publish and every way to consume that the store offers, a trial goes through without a fault,
/// its settings are read back, and the guarantees that it promises hold.
pub fn both<S: Store>(subject: &Subject<S>, store: &S) {
    for case in offered(subject, modes()) {
        let (measured, _) = goes_through(store, &case, &[PUBLISH, CONSUME]);
        assert!(!measured.spans[0].times.is_empty(), "{}: no delivery was timed", case.shown());
        subject.conflicts_as_it_says(&request(&case.parameters), &measured);
    }
}

/// With only producers at work, the audit consumes all acknowledged messages.
pub fn publishes<S: Store>(subject: &Subject<S>, store: &S) {
    let all = Ack::ALL.map(|ack| Parameters { phase: Phase::Publish, ack, ..few() });
    for case in offered(subject, all) {
        let (_, audit) = goes_through(store, &case, &[PUBLISH]);
        let count = |name: &str| audit.evidence[name];
        let gone = if case.promises() { 0 } else { count("not_consumed") };
        assert_eq!(count("consumed_messages") + gone, count("acknowledged_publishes"), "{}", case.shown());
    }
}

/// Loaded messages are consumed to the last one, and then the trial ends.
pub fn consumes<S: Store>(subject: &Subject<S>, store: &S) {
    consumes_unless_still(STILL, subject, store);
}

/// The check [`consumes`], which gives up once the queue's depth has not changed for as long as `still`.
pub fn consumes_unless_still<S: Store>(still: Duration, subject: &Subject<S>, store: &S) {
    const LAID_IN: u64 = 500;
    let backlog = Some(LAID_IN);
    let all = Consume::ALL.map(|consume| Parameters { phase: Phase::Consume, consume, backlog, ..few() });
    for case in offered(subject, all) {
        case.load(store);
        assert_eq!(case.depth(), LAID_IN);
        let measured = steps::drives_until(store, &load(3_600_000), case.tasks(store), |_, is_over| {
            stands_still(&case, still, is_over);
        });
        let shown = case.shown();
        assert_eq!(case.depth(), 0, "{shown}: {:?}", measured.faults);
        assert_eq!(measured.operations[CONSUME].count(Outcome::Ok), LAID_IN, "{shown}");
        assert_eq!(measured.stopped, None, "{shown}: drained, and went on");
        let audit = case.audit(store);
        assert_eq!(audit.verdict, Verdict::Holds, "{shown}: {audit:?}");
        // a store may take a consumer that is silent for too long for dead
        if measured.window < Duration::from_secs(1) {
            assert_eq!(audit.evidence["redelivered"], 0, "{shown}: {audit:?}");
        }
        case.unload(store);
    }
}

/// Waits until a trial is over, or its queue's depth has not changed for as long as `still`.
fn stands_still(case: &QueueRun, still: Duration, is_over: &dyn Fn() -> bool) {
    let mut last = (case.depth(), Instant::now());
    while !is_over() && last.1.elapsed() < still {
        thread::sleep(Duration::from_millis(2));
        if case.depth() != last.0 {
            last = (case.depth(), Instant::now());
        }
    }
}

/// Messages of 24 bytes, the least, of 25 and of 300,000 bytes go through whole.
pub fn sizes<S: Store>(subject: &Subject<S>, store: &S) {
    let all = [24, 25, 300_000].map(|message_bytes| Parameters { message_bytes, backlog: Some(3), ..few() });
    for case in offered(subject, all) {
        goes_through(store, &case, &[CONSUME]);
    }
}

/// A queue that exists already cannot be declared again, and none of its messages is lost.
pub fn occupied<S: Store>(subject: &Subject<S>, store: &S) {
    let loaded = Parameters { backlog: Some(20), phase: Phase::Consume, ..few() };
    let case = offered(subject, [loaded.clone()]).remove(0);
    case.load(store);
    let other = QueueRun::new(case.place.trial, case.parameters.clone());
    let again = wait(other.trial.load(store, &other.place, &LoadProgress::default())).unwrap_err();
    eprintln!("{again}");
    assert!(matches!(again, StoreError::Server { .. } | StoreError::Occupied { .. }), "{again:?}");
    assert!(again.to_string().contains("exist"), "{again}");
    let audit = case.audit(store);
    assert_eq!((audit.verdict, audit.evidence["consumed_messages"]), (Verdict::Holds, 20), "{audit:?}");
}

/// Namespaces whose names do harm in a store that does not escape them.
pub const NAMES: [&str; 5] = inventory::NAMES;

/// A namespace of each name holds queues, and is removed with all of them and nothing else, not even a namespace
/// whose name begins with its own.
pub fn namespaces<S: Store>(subject: &Subject<S>, names: &[&str]) {
    let Some(world) = subject.share() else { return };
    let store = &world.store;
    let parameters = Parameters { backlog: Some(20), ..offered(subject, [few()]).remove(0).parameters };
    let consumed = |case: &QueueRun| {
        let audit = case.audit(store);
        assert_eq!(audit.verdict, Verdict::Holds, "{}: {audit:?}", case.place.namespace);
        audit.evidence["consumed_messages"]
    };
    for name in names {
        let neighbour = format!("{name}_2");
        wait(store.create(&neighbour, "run 2")).unwrap();
        let theirs = QueueRun::within(&neighbour, 1, parameters.clone());
        theirs.load(store);

        wait(store.create(name, "run 1")).unwrap();
        let first = QueueRun::within(name, 1, parameters.clone());
        first.load(store);
        let measured = first.drive(store, 50);
        assert!(measured.faults.is_empty() && measured.stopped.is_none(), "{name}: {:?}", measured.faults);
        let full = QueueRun::within(name, 2, parameters.clone());
        full.load(store);
        wait(store.remove(name)).unwrap();

        // the removed namespace left no message behind
        wait(store.create(name, "run 3")).unwrap();
        for trial in [1, 2] {
            let anew = QueueRun::within(name, trial, parameters.clone());
            anew.load(store);
            assert_eq!(consumed(&anew), 20, "{name}");
        }
        wait(store.remove(name)).unwrap();
        assert_eq!(consumed(&theirs), 20, "{neighbour}");
        wait(store.remove(&neighbour)).unwrap();
    }
}

/// A queue with 20 messages, which the test takes itself, without the engine.
struct FilledQueue<'a, S> {
    store: &'a S,
    place: Place,
    wanted: Requirements,
    scenario: Scenario,
}

impl<'a, S: Store + QueueAdapter> FilledQueue<'a, S> {
    /// Number of messages in the queue.
    const ALL: usize = 20;
    /// Number of messages that the consumer that dies has taken.
    const TAKEN: usize = 7;

    async fn new(store: &'a S, trial: u32, parameters: &Parameters) -> Self {
        let place = Place { namespace: NAMESPACE.to_owned(), trial };
        let wanted =
            Requirements { delivery: parameters.delivery(), message_bytes: parameters.message_bytes };
        let scenario = Scenario::new(Arc::new(Ledger::new(0, Self::ALL as u64)));
        QueueStore::load(store, &place, &wanted, &scenario, &LoadProgress::default()).await.unwrap();
        Self { store, place, wanted, scenario }
    }

    async fn subscriber(&self) -> <S::Connector as Connector>::Subscriber {
        let connector = QueueAdapter::connector(self.store, &self.place, &self.wanted);
        connector.subscriber().await.unwrap()
    }

    /// Lets a consumer take [`Self::TAKEN`] messages and lose its connection without acknowledging them; returns
    /// their names.
    async fn dies(&self) -> BTreeSet<String> {
        let mut dying = self.subscriber().await;
        let mut taken = BTreeSet::new();
        for _ in 0..Self::TAKEN {
            taken.insert(take(&mut dying).await.expect("there are messages").0);
        }
        assert_eq!(taken.len(), Self::TAKEN, "the same message twice");
        taken
    }
}

/// Takes the next message: its name, and the redelivered flag if the store has one.
async fn take(subscriber: &mut impl Subscriber) -> Option<(String, Option<bool>)> {
    let mut received = ReceivedMessage::default();
    match subscriber.take(Duration::from_secs(1), &mut received).await {
        Attempt::Ok => Some((Message { body: received.body }.name(), received.redelivered)),
        Attempt::Refused => None,
        other => panic!("{other:?}"),
    }
}

/// Messages that a consumer held unacknowledged when it died are delivered again, flagged if the store has a flag,
/// and none of them is lost.
pub fn dying_consumers<S: Store + QueueAdapter>(subject: &Subject<S>, store: &S) {
    dying_consumers_within(SOON, subject, store);
}

/// The check [`dying_consumers`], with the time within which all messages must have come again.
pub fn dying_consumers_within<S: Store + QueueAdapter>(soon: Duration, subject: &Subject<S>, store: &S) {
    let all = [Consume::Ack, Consume::Transaction].map(|consume| Parameters { consume, ..few() });
    for case in offered(subject, all) {
        let shown = case.shown();
        wait(async {
            let loaded = FilledQueue::new(store, case.place.trial, &case.parameters).await;
            let held = loaded.dies().await;
            let mut heir = loaded.subscriber().await;
            let mut seen = BTreeMap::new();
            let mut settled = Ok(AckAnswer::Answered);
            let start = Instant::now();
            while settled.is_ok() && seen.len() < FilledQueue::<S>::ALL && start.elapsed() < soon {
                let Some((name, redelivered)) = take(&mut heir).await else {
                    // as a client does: messages that a transaction has passed over come in the next one
                    settled = heir.settle().await;
                    continue;
                };
                let again = seen.insert(name.clone(), redelivered);
                assert_eq!(again, None, "{shown}: {name} came twice to one consumer");
            }
            assert_eq!(
                seen.len(),
                FilledQueue::<S>::ALL,
                "{shown}: not all came again of {held:?}: {seen:?}, {settled:?}"
            );
            for name in &held {
                assert_ne!(seen[name], Some(false), "{shown}: {name} came again, and was not flagged");
            }
            heir.settle().await.unwrap();
            // a message whose acknowledgement did not reach the store would become ready again
            heir.close().await;
            let closed = Instant::now();
            while loaded.depth().await != Depth::default() {
                assert!(closed.elapsed() < soon, "{shown}: not empty: {:?}", loaded.depth().await);
            }
        });
        case.unload(store);
    }
}

impl<S: Store + QueueAdapter> FilledQueue<'_, S> {
    async fn depth(&self) -> Depth {
        QueueAdapter::depth(self.store, &self.place, &self.wanted).await.unwrap()
    }
}

/// Without acknowledgements the messages that were handed to a consumer are lost when it dies. The audit counts them
/// as lost, but as no broken promise.
pub fn taken_along<S: Store + QueueAdapter>(subject: &Subject<S>, store: &S) {
    let auto = Parameters { consume: Consume::Auto, phase: Phase::Consume, ..few() };
    for case in offered(subject, [auto]) {
        let audit = wait(async {
            let loaded = FilledQueue::new(store, case.place.trial, &case.parameters).await;
            loaded.dies().await;
            let drained =
                QueueStore::drain(loaded.store, &loaded.place, &loaded.wanted, &loaded.scenario).await;
            audit(&loaded.scenario.ledger, drained)
        });
        eprintln!("{}: {audit}", case.shown());
        assert!(audit.count("lost") >= FilledQueue::<S>::TAKEN as u64, "{audit:?}");
        assert!(!audit.breaks_promise(&case.without()) && audit.reason.is_none(), "{audit:?}");
        case.unload(store);
    }
}

/// Messages that were published without acknowledgements are in the queue once the producer's connection was closed
/// in order, even if the network fails right afterwards.
pub fn handed_over<S: Store + QueueAdapter>(subject: &Subject<S>, world: &World<S>, trial: u32) {
    const ALL: u64 = 20;
    let relay = Relay::to(world.address());
    let far = wait((subject.open)(relay.address(), Durability::None)).unwrap();
    relay.pace(Pace { latency: Duration::from_millis(50), ..Pace::default() });
    let place = Place { namespace: NAMESPACE.to_owned(), trial };
    let parameters = Parameters { ack: Ack::None, phase: Phase::Publish, ..few() };
    let wanted = Requirements { delivery: parameters.delivery(), message_bytes: parameters.message_bytes };
    wait(async {
        world.store.declare(&place, &wanted).await.unwrap();
        let mut publisher = QueueAdapter::connector(&far, &place, &wanted).publisher().await.unwrap();
        let mut ended = Vec::new();
        for sequence in 0..ALL {
            publisher.send(&Message::loaded(sequence, parameters.message_bytes)).await.unwrap();
        }
        publisher.settle(&mut ended).await.unwrap();
        assert_eq!(ended.len() as u64, ALL);
        publisher.close().await;
    });
    drop(relay);
    until(format!("{}: not all has arrived", subject.kind.name), SOON, || {
        wait(world.store.depth(&place, &wanted)).unwrap().ready == ALL
    });
}

/// Acknowledged messages are consumed after the server was killed in the middle of a trial and came back, at the
/// weakest durability level that survives it.
pub fn kills<S: Store>(subject: &Subject<S>) {
    survives(subject, &few());
}

/// The check [`kills`] with these parameters.
pub fn survives<S: Store>(subject: &Subject<S>, parameters: &Parameters) {
    let levels = [Durability::Process, Durability::Disk];
    let durability = levels.into_iter().find(|durability| subject.kind.durability(*durability).is_yes());
    let durability =
        durability.unwrap_or_else(|| panic!("{} has no durability level that survives", subject.kind.name));
    let Some(mut victim) = Victim::start(subject, durability) else { return };
    let case = offered(subject, [Parameters { persistent: true, ..parameters.clone() }]).remove(0);
    assert!(case.promises(), "{}: nothing is promised", case.shown());
    let trial = crash::survives(&mut victim, &case.workload, Lock::None, Back::AtOnce, Repaired::First);
    assert!(trial.settings.durability >= durability.into(), "{}: {:?}", case.shown(), trial.settings);
    assert_eq!(trial.audit.verdict, Verdict::Holds, "{}: {:?}", case.shown(), trial.audit);
}

/// Kills the server while producers publish, and starts it again. Returns two queues: one that the server had noted
/// in its files before the kill, as `noted` sees from outside, and one declared just before, which it had not.
#[must_use]
pub fn killed_young<S: Store>(
    subject: &Subject<S>,
    parameters: &Parameters,
    noted: impl Fn(&Private, &Place) -> bool,
) -> Option<(World<S>, [QueueRun; 2])> {
    let mut world = prepared(subject, Durability::Process)?;
    let publish = |trial| QueueRun::new(trial, Parameters { phase: Phase::Publish, ..parameters.clone() });
    let old = publish(1);
    old.load(&world.store);
    until(format!("{}: not noted", old.shown()), SOON, || noted(world.private(), &old.place));
    drives_until(&old, &world.store, |trial| moves(&old, trial));
    // on a slow machine the server may note the queue before the first message
    for trial in 2..12 {
        let young = publish(trial);
        young.load(&world.store);
        let World { store, home: Home::Server(private) } = &mut world else { panic!("there is no server") };
        drives_until(&young, &*store, |trial| {
            moves(&young, trial);
            private.kill();
        });
        // after the restart the server finds only what is in its files now
        let is_young = !noted(&*private, &young.place);
        private.restart();
        opened(private, Durability::None, subject.open);
        if is_young {
            return Some((world, [old, young]));
        }
    }
    panic!("{}: noted before it was killed, each time", old.shown());
}

/// Messages that need not outlive the server's process are lost with it, and the audit counts them: transient
/// messages, or, in a store without these, all messages at durability none. The settings that are read back say
/// durability none.
pub fn nothing_kept<S: Store>(subject: &Subject<S>) {
    let Some(mut victim) = Victim::start(subject, Durability::None) else { return };
    let publish = |persistent| Parameters { phase: Phase::Publish, persistent, ..few() };
    let case = offered(subject, [publish(false), publish(true)]).remove(0);
    let CrashedTrial { settings, audit, .. } = victim.crash(&case.workload, Lock::None, Back::TooLate);
    eprintln!("{}: {audit}, {:?}", case.shown(), audit.evidence);
    assert_eq!(settings.durability, Durability::None, "{}: {settings:?}", case.shown());
    assert_eq!(audit.verdict, Verdict::Broken, "{audit:?}");
    assert!(audit.count("lost") > 0 && audit.reason.is_none(), "{audit:?}");
}

/// Runs a trial that is loaded until `watch` returns, and then stops it.
fn drives_until<S: Store>(case: &QueueRun, store: &S, watch: impl FnOnce(&Trial)) -> Measurement {
    let measured = steps::drives_until(store, &load(3_600_000), case.tasks(store), |trial, _| watch(trial));
    assert_eq!(measured.stopped, Some(Stop::Interrupted), "{}: {:?}", case.shown(), measured.faults);
    measured
}

/// Waits until messages move: until the depth changes or, as it stays the same if as many leave as come, until
/// operations were acknowledged within a whole second.
#[track_caller]
fn moves(case: &QueueRun, trial: &Trial) {
    let depth = case.depth();
    let passed = trial.progress().measured.unwrap_or_default().as_secs();
    let acknowledged = || trial.progress().last.is_some_and(|last| last.second > passed && last.p50 > 0);
    until(format!("{}: nothing moves", case.shown()), SOON, || case.depth() != depth || acknowledged());
}
