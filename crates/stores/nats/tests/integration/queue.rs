//! The queue workload on real servers.

use std::time::{Duration, Instant};

use acidtest_engine::Completion;
use acidtest_model::{Durability, StoreError};
use acidtest_store_nats::Nats;
use acidtest_testbed::{
    NAMESPACE, Pace, Relay, World,
    queue::{self, QueueRun, few},
    wait,
};
use acidtest_workloads::{
    Attempt, Place, Store, Verdict,
    queue::{
        Ack, Connector, Consume, Depth, Message, Parameters, Phase, Publisher, QueueAdapter, ReceivedMessage,
        Requirements, Subscriber,
    },
};

use crate::NATS;

#[test]
fn every_way_to_publish_and_to_consume_does_as_it_promises() {
    NATS.passes(&queue::all());
}

#[test]
fn a_namespace_goes_with_its_queues_and_nothing_else() {
    queue::namespaces(&NATS, &[NAMESPACE, "a", "acidtest_1_"]);
}

#[test]
fn nothing_acknowledged_in_files_is_lost_when_the_server_is_killed() {
    queue::kills(&NATS);
}

#[test]
fn nor_with_many_messages_in_flight() {
    queue::survives(&NATS, &Parameters { in_flight: 300, prefetch: Some(200), batch: 50, ..few() });
}

#[test]
fn what_was_in_memory_is_counted_as_lost_when_the_server_is_killed() {
    queue::nothing_kept(&NATS);
}

fn start() -> Option<World<Nats>> {
    let world = NATS.start(Durability::Process)?;
    wait(world.store.create(NAMESPACE, "run 1")).unwrap();
    Some(world)
}

fn place(trial: u32) -> Place {
    Place { namespace: NAMESPACE.to_owned(), trial }
}

fn wanted(parameters: &Parameters) -> Requirements {
    Requirements { delivery: parameters.delivery(), message_bytes: parameters.message_bytes }
}

#[test]
fn what_a_queue_survives_is_read_back_from_it() {
    let Some(world) = start() else { return };
    let store = &world.store;
    for (number, ack, persistent, durability, words) in [
        (1, Ack::Confirm, true, Durability::Process, "two minutes"),
        (2, Ack::Confirm, false, Durability::None, "in memory"),
        (3, Ack::None, true, Durability::None, "nobody says"),
    ] {
        let parameters = Parameters { ack, persistent, ..Parameters::default() };
        let (place, wanted) = (place(number), wanted(&parameters));
        wait(store.declare(&place, &wanted)).unwrap();
        let server = wait(store.effective()).unwrap();
        let effective = wait(QueueAdapter::settings(store, &place, &wanted, &server)).unwrap();
        assert_eq!(effective.durability, durability);
        assert!(effective.because.contains(words), "{effective:?}");
        let setting = |name: &str| effective.settings[name].as_str();
        assert_eq!(setting("stream.storage"), if persistent { "file" } else { "memory" });
        assert_eq!((setting("stream.retention"), setting("stream.num_replicas")), ("workqueue", "1"));
        assert_eq!((setting("consumer.ack_policy"), setting("consumer.ack_wait")), ("explicit", "5s"));
        assert!(effective.settings.contains_key("max_payload"));
    }
}

async fn publish(publisher: &mut impl Publisher, message: &Message) -> Attempt {
    publisher.send(message).await.unwrap();
    let mut ended = Vec::new();
    while ended.is_empty() {
        publisher.settle(&mut ended).await.unwrap();
    }
    let [Completion { attempt, .. }] = &ended[..] else { panic!("{ended:?}") };
    attempt.clone()
}

#[test]
fn a_message_is_known_again_by_its_id_if_that_is_asked_for() {
    let Some(world) = start() else { return };
    let store = &world.store;
    for (number, deduplicate, kept) in [(1, true, 2), (2, false, 4)] {
        let parameters = Parameters { deduplicate, ..Parameters::default() };
        let (place, wanted) = (place(number), wanted(&parameters));
        wait(async {
            store.declare(&place, &wanted).await.unwrap();
            // the same messages again on a second connection, as after an answer that never came
            for _ in 0..2 {
                let mut publisher = store.connector(&place, &wanted).publisher().await.unwrap();
                for sequence in 0..2 {
                    assert_eq!(publish(&mut publisher, &Message::loaded(sequence, 100)).await, Attempt::Ok);
                }
            }
            let depth = store.depth(&place, &wanted).await.unwrap();
            assert_eq!(depth, Depth { ready: kept, unacknowledged: 0 });
        });
    }
}

/// Declares a queue and publishes this number of messages to it.
async fn filled(store: &Nats, place: &Place, wanted: &Requirements, messages: u64) {
    store.declare(place, wanted).await.unwrap();
    let mut publisher = store.connector(place, wanted).publisher().await.unwrap();
    for sequence in 0..messages {
        assert_eq!(publish(&mut publisher, &Message::loaded(sequence, 100)).await, Attempt::Ok);
    }
}

/// How long no message must come.
const PATIENCE: Duration = Duration::from_millis(700);
/// How long a message that must come may take.
const SOON: Duration = Duration::from_mins(1);

/// How long the server leaves a message to a consumer that does not acknowledge it.
const ACK_WAIT: Duration = Duration::from_secs(5);

#[test]
fn a_consumer_that_stops_gives_back_at_once_what_it_has_not_taken() {
    let Some(world) = start() else { return };
    let store = &world.store;
    let wanted = wanted(&Parameters::default());
    // messages that were not given back come again as well, but only after `ACK_WAIT`; on a slow machine a single try
    // would not tell the two apart
    let mut took = (1..=20).map(|trial| wait(gives_back(store, &place(trial), &wanted)));
    assert!(took.any(|took| took < ACK_WAIT), "it keeps it from others");
}

/// Lets a consumer take some of the messages and stop. Returns the time from its first message until another consumer
/// has the rest.
async fn gives_back(store: &Nats, place: &Place, wanted: &Requirements) -> Duration {
    filled(store, place, wanted, 30).await;
    let connector = store.connector(place, wanted);
    let mut first = connector.subscriber().await.unwrap();
    let mut received = ReceivedMessage::default();
    let begun = Instant::now();
    for _ in 0..10 {
        assert_eq!(first.take(SOON, &mut received).await, Attempt::Ok);
    }
    first.settle().await.unwrap();
    while store.depth(place, wanted).await.unwrap().ready > 0 {
        assert!(begun.elapsed() < SOON, "they are not handed out");
    }
    first.stop().await.unwrap();
    let mut other = connector.subscriber().await.unwrap();
    for _ in 0..20 {
        assert_eq!(other.take(SOON, &mut received).await, Attempt::Ok);
        assert_eq!(received.redelivered, Some(true));
    }
    let took = begun.elapsed();
    assert_eq!(other.take(PATIENCE, &mut received).await, Attempt::Refused);
    took
}

#[test]
fn without_acknowledgements_a_consumer_that_stops_still_takes_what_it_was_handed() {
    let Some(world) = start() else { return };
    let store = &world.store;
    let parameters = Parameters { consume: Consume::Auto, ..Parameters::default() };
    let (place, wanted) = (place(1), wanted(&parameters));
    wait(async {
        filled(store, &place, &wanted, 30).await;
        let connector = store.connector(&place, &wanted);
        let mut first = connector.subscriber().await.unwrap();
        let mut received = ReceivedMessage::default();
        let begun = Instant::now();
        assert_eq!(first.take(SOON, &mut received).await, Attempt::Ok);
        while store.depth(&place, &wanted).await.unwrap() != Depth::default() {
            assert!(begun.elapsed() < SOON, "they are not handed out");
        }
        first.stop().await.unwrap();
        for _ in 1..30 {
            assert_eq!(first.take(Duration::ZERO, &mut received).await, Attempt::Ok);
            assert_eq!(received.redelivered, Some(false));
        }
        assert_eq!(first.take(PATIENCE, &mut received).await, Attempt::Refused);
    });
}

/// Loads a queue with this number of messages of this size, for one consumer.
fn loaded(store: &Nats, trial: u32, consume: Consume, backlog: u64, message_bytes: u32) -> QueueRun {
    let (phase, backlog, consumers) = (Phase::Consume, Some(backlog), 1);
    let parameters =
        Parameters { phase, consume, backlog, message_bytes, consumers, ..Parameters::default() };
    let case = QueueRun::new(trial, parameters);
    case.load(store);
    case
}

#[track_caller]
fn holds(store: &Nats, case: &QueueRun) {
    let audit = case.audit(store);
    assert_eq!(audit.verdict, Verdict::Holds, "{audit:?}");
    assert_eq!(audit.evidence["consumed_messages"], i64::try_from(case.parameters.backlog()).unwrap());
}

/// The server closes the connection of a slow reader for which it would have to buffer more than 64 MiB.
#[test]
fn no_more_is_asked_for_at_once_than_the_server_keeps_for_a_slow_reader() {
    let Some(world) = start() else { return };
    let relay = Relay::to(world.address());
    let far = wait(Nats::open(relay.address())).unwrap();
    let cases = [1, 2].map(|trial| loaded(&world.store, trial, Consume::Ack, 90, 1_000_000));
    relay.pace(Pace { bytes_per_second: Some(45_000_000), ..Pace::default() });
    let measured = cases[0].drive(&far, 60_000);
    assert!(measured.faults.is_empty(), "{:?}", measured.faults);
    assert_eq!(cases[0].depth(), 0);
    for case in &cases {
        holds(&far, case);
    }
}

#[test]
fn what_is_on_its_way_and_need_not_be_acknowledged_is_not_lost() {
    let Some(world) = start() else { return };
    let relay = Relay::to(world.address());
    let far = wait(Nats::open(relay.address())).unwrap();
    let case = loaded(&world.store, 1, Consume::Auto, 30, 128);
    relay.pace(Pace { latency: Duration::from_millis(80), ..Pace::default() });
    holds(&far, &case);
    queue::handed_over(&NATS, &world, 2);
}

#[test]
fn what_cannot_be_is_explained() {
    let Some(world) = start() else { return };
    let store = &world.store;
    let declared = |number, parameters: &Parameters| wait(store.declare(&place(number), &wanted(parameters)));
    let fine = Parameters::default();
    declared(1, &fine).unwrap();
    let occupied = declared(1, &fine).unwrap_err();
    assert!(
        matches!(&occupied, StoreError::Occupied { namespace, .. } if namespace.contains("acidtest-queue_1"))
    );
    let told = declared(2, &Parameters { replicas: 3, ..fine.clone() }).unwrap_err().to_string();
    assert!(told.contains("replicas > 1 not supported") && told.contains("a cluster"), "{told}");
    let told = declared(3, &Parameters { message_bytes: 2_000_000, ..fine.clone() }).unwrap_err().to_string();
    assert!(told.contains("2000000 bytes is over the server's limit of 1048576 (its max_payload)"), "{told}");
    // a queue that could not be declared leaves nothing behind
    for number in [2, 3] {
        assert!(wait(store.connector(&place(number), &wanted(&fine)).publisher()).is_err());
    }
}

#[test]
fn a_message_that_is_not_taken_has_failed_and_the_connection_goes_on() {
    let Some(world) = start() else { return };
    let store = &world.store;
    let (place, wanted) = (place(1), wanted(&Parameters::default()));
    wait(async {
        store.declare(&place, &wanted).await.unwrap();
        let mut publisher = store.connector(&place, &wanted).publisher().await.unwrap();
        let failed = |attempt: Attempt, words: &str| {
            let Attempt::Failed(fault) = attempt else { panic!("{attempt:?}") };
            assert!(fault.message.contains(words) && !fault.connection_lost, "{fault:?}");
        };
        failed(publish(&mut publisher, &Message::loaded(0, 1 << 21)).await, "max_payload");
        assert_eq!(publish(&mut publisher, &Message::loaded(1, 100)).await, Attempt::Ok);
        QueueAdapter::unload(store, &place).await.unwrap();
        failed(publish(&mut publisher, &Message::loaded(2, 100)).await, "no stream takes");
        let subscriber = store.connector(&place, &wanted).subscriber().await;
        assert!(subscriber.unwrap_err().contains("stream not found"));
    });
}
