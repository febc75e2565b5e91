//! The queue workload against real servers.

use std::{
    thread,
    time::{Duration, Instant},
};

use acidtest_engine::Attempt;
use acidtest_model::Durability;
use acidtest_store_redis::Redis;
use acidtest_testbed::{
    NAMESPACE, World,
    queue::{self, QueueRun, few},
    wait, with_more_time,
};
use acidtest_workloads::{
    Store, Verdict,
    queue::{
        Ack, AckAnswer, Connector, Parameters, Phase, QueueAdapter, ReceivedMessage, Requirements, Subscriber,
    },
};
use tokio::time::timeout;

use crate::REDIS;

#[test]
fn every_way_to_publish_and_to_consume_does_as_it_promises() {
    REDIS.passes(&queue::all());
}

#[test]
fn a_namespace_is_its_maker_s_and_nothing_else_goes_with_it() {
    queue::namespaces(&REDIS, &queue::NAMES);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    queue::kills(&REDIS);
}

#[test]
fn what_is_kept_nowhere_is_found_missing() {
    queue::nothing_kept(&REDIS);
}

#[test]
fn what_is_on_its_way_and_need_not_be_acknowledged_arrives() {
    let Some(world) = REDIS.start(Durability::None) else { return };
    wait(world.store.create(NAMESPACE, "run")).unwrap();
    queue::handed_over(&REDIS, &world, 1);
}

#[test]
fn a_server_out_of_memory_says_so_and_nothing_breaks() {
    let Some(world) = REDIS.start(Durability::None) else { return };
    wait(world.store.create(NAMESPACE, "run")).unwrap();
    let client = redis::Client::open(world.address().to_string()).unwrap();
    let mut raw = client.get_connection().unwrap();
    let mut limit = |bytes: &str| {
        redis::cmd("CONFIG").arg(&["SET", "maxmemory", bytes]).exec(&mut raw).unwrap();
    };
    for (trial, ack) in (1..).zip([Ack::Confirm, Ack::Transaction]) {
        // writes are refused first, and accepted once the limit is lifted
        with_more_time(50, |millis| {
            let case = QueueRun::new(trial, Parameters { ack, ..few() });
            case.load(&world.store);
            limit("1");
            let measurement = thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(millis));
                    limit("0");
                });
                case.drive(&world.store, millis * 4)
            });
            let audit = case.audit(&world.store);
            case.unload(&world.store);
            assert_eq!(audit.verdict, Verdict::Holds, "{ack:?}: {audit:?}");
            let words: Vec<&String> = measurement.faults.keys().collect();
            assert!(words.iter().all(|words| words.contains("maxmemory")), "{words:?}");
            if audit.evidence["failed_publishes"] > 0 && audit.evidence["consumed_messages"] > 0 {
                assert!(!words.is_empty());
                return Ok(());
            }
            Err(format!("{ack:?}: {audit:?}"))
        });
    }
}

/// The store's lease: how long a message stays with a consumer that has fallen silent.
const LEASE: Duration = Duration::from_secs(2);

/// Takes the next message, and returns whether it is flagged as redelivered; `None` if there is no message.
async fn take(subscriber: &mut impl Subscriber) -> Option<bool> {
    let mut received = ReceivedMessage::default();
    match subscriber.take(Duration::ZERO, &mut received).await {
        Attempt::Ok => received.redelivered,
        _ => None,
    }
}

/// Queues of five messages each on one server, and a connection to it that bypasses the store.
struct Queues {
    world: World<Redis>,
    cases: Vec<QueueRun>,
    raw: redis::Connection,
}

impl Queues {
    fn start(count: u32) -> Option<Self> {
        let world = REDIS.start(Durability::None)?;
        wait(world.store.create(NAMESPACE, "run")).unwrap();
        let raw = redis::Client::open(world.address().to_string()).unwrap().get_connection().unwrap();
        let parameters = Parameters { phase: Phase::Consume, backlog: Some(5), ..few() };
        let cases: Vec<QueueRun> =
            (1..=count).map(|trial| QueueRun::new(trial, parameters.clone())).collect();
        for case in &cases {
            case.load(&world.store);
        }
        Some(Self { world, cases, raw })
    }

    async fn subscriber(&self, queue: usize) -> impl Subscriber + use<> {
        let QueueRun { place, parameters, .. } = &self.cases[queue];
        let wanted =
            Requirements { delivery: parameters.delivery(), message_bytes: parameters.message_bytes };
        QueueAdapter::connector(&self.world.store, place, &wanted).subscriber().await.unwrap()
    }

    /// Runs a command on a queue's stream and its group.
    fn tell<T: redis::FromRedisValue>(&mut self, queue: usize, command: &str, words: &[&str]) -> T {
        let key = format!("{NAMESPACE}:{}", self.cases[queue].place.object("queue"));
        let mut asked = redis::cmd(command);
        asked.arg(key).arg("consumers").arg(words);
        asked.query(&mut self.raw).unwrap()
    }

    /// Messages that are handed out: id, consumer, and how long the consumer has been silent about it.
    fn pending(&mut self, queue: usize) -> Vec<(String, String, Duration)> {
        let rows: Vec<(String, String, u64, u64)> = self.tell(queue, "XPENDING", &["-", "+", "100"]);
        rows.into_iter().map(|(id, consumer, idle, _)| (id, consumer, Duration::from_millis(idle))).collect()
    }

    /// Makes another consumer claim these messages.
    fn claim(&mut self, queue: usize, ids: &[&str]) {
        let claimed: Vec<String> =
            self.tell(queue, "XCLAIM", &[&["another", "0"], ids, &["JUSTID"]].concat());
        assert_eq!(claimed, ids);
    }
}

#[test]
fn a_consumer_at_work_keeps_what_it_holds_and_one_that_stalls_does_not() {
    const TRIES: u32 = 20;
    let Some(mut queues) = Queues::start(1 + TRIES) else { return };
    wait(async {
        let (mut stalled, mut heir) = (queues.subscriber(0).await, queues.subscriber(0).await);
        assert_eq!(take(&mut stalled).await, Some(false));
        // retried, since on a machine that stalls for too long the consumer at work stalls too
        let mut tries = 1..=TRIES;
        while !keeps_what_it_holds(&mut queues, tries.next().unwrap()).await {}

        let inherited = async {
            loop {
                if let Some(redelivered) = take(&mut heir).await {
                    return redelivered;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(timeout(Duration::from_mins(1), inherited).await.unwrap());
        assert_eq!(heir.settle().await.unwrap(), AckAnswer::Answered);
        // the messages that it held were no longer its own to acknowledge
        assert_eq!(stalled.settle().await.unwrap(), AckAnswer::Read);
    });
}

/// Checks that a consumer which takes another message renews its claim in time, and so keeps the first one.
/// Returns false if the machine was too slow for the check.
async fn keeps_what_it_holds(queues: &mut Queues, queue: u32) -> bool {
    let queue = queue as usize;
    let (mut busy, mut idle) = (queues.subscriber(queue).await, queues.subscriber(queue).await);
    let begun = Instant::now();
    assert_eq!(take(&mut busy).await, Some(false));
    tokio::time::sleep(LEASE * 3 / 5).await;
    let heard = Instant::now();
    assert_eq!(take(&mut busy).await, Some(false));
    let pending = queues.pending(queue);
    // the server's clock counts milliseconds, so allow for some
    let most = heard.elapsed() + LEASE / 10;
    let taken = take(&mut idle).await;
    let settled = busy.settle().await.unwrap();
    if begun.elapsed() > LEASE * 8 / 5 || heard.elapsed() > LEASE * 4 / 5 {
        return false;
    }
    assert!(pending.iter().all(|(_, _, idle)| *idle <= most), "{pending:?}");
    assert_eq!(taken, None, "it is in other hands");
    assert_eq!(settled, AckAnswer::Answered);
    true
}

#[test]
fn what_others_have_claimed_is_left_to_them() {
    let Some(mut queues) = Queues::start(2) else { return };
    wait(async {
        let mut first = queues.subscriber(0).await;
        assert_eq!(take(&mut first).await, Some(false));
        let ids: Vec<String> = queues.pending(0).into_iter().map(|(id, ..)| id).collect();
        // one that was taken, and two that were only handed out
        let claimed = [&*ids[0], &ids[1], &ids[3]];
        queues.claim(0, &claimed);
        tokio::time::sleep(LEASE * 3 / 5).await;
        assert_eq!((take(&mut first).await, take(&mut first).await), (Some(false), Some(false)));
        let others = |pending: Vec<(String, String, Duration)>| -> Vec<String> {
            pending.into_iter().filter(|(_, consumer, _)| consumer == "another").map(|(id, ..)| id).collect()
        };
        assert_eq!(others(queues.pending(0)), claimed);
        // the other consumer acknowledges one, so that of the three held messages two are pending
        assert_eq!(queues.tell::<u64>(0, "XACK", &claimed[..1]), 1);
        assert_eq!(first.settle().await.unwrap(), AckAnswer::Read);
        assert_eq!(others(queues.pending(0)), claimed[1..]);

        let mut stopped = queues.subscriber(1).await;
        assert_eq!(take(&mut stopped).await, Some(false));
        assert_eq!(stopped.settle().await.unwrap(), AckAnswer::Answered);
        let ids: Vec<String> = queues.pending(1).into_iter().map(|(id, ..)| id).collect();
        let claimed = Instant::now();
        queues.claim(1, &[&ids[0], &ids[2]]);
        stopped.stop().await.unwrap();
        let pending = queues.pending(1);
        for (id, consumer, idle) in &pending {
            let theirs = *id == ids[0] || *id == ids[2];
            assert_eq!(theirs, consumer == "another", "{pending:?}");
            // the rest is given back at once, as if it had been idle for the whole lease
            assert!(
                if theirs { *idle <= claimed.elapsed() + LEASE / 10 } else { *idle >= LEASE },
                "{pending:?}"
            );
        }
    });
}
