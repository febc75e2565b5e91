//! The store's queue against real servers, each test with its own.

#![allow(clippy::unwrap_used, reason = "a helper of a test may fail it")]

use std::{thread, time::Duration};

use acidtest_engine::Attempt;
use acidtest_model::{Ack, Durability};
use acidtest_store_redis::{KIND, Redis};
use acidtest_testbed::{
    Gone, NAMESPACE, Subject,
    queue::{self, Case, few},
    wait,
};
use acidtest_workloads::{
    Store, Verdict,
    queue::{Connector, Parameters, Phase, QueueAdapter, Received, Settled, Subscriber, Wanted},
};

static REDIS: Subject<Redis> =
    Subject { kind: KIND, open: |address, _| Box::pin(Redis::open(address)), gone: Gone::Empty };

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
        let case = Case::new(trial, Parameters { ack, ..few() });
        case.load(&world.store);
        limit("1");
        let measurement = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(60));
                limit("0");
            });
            case.drive(&world.store, 200)
        });
        let words: Vec<&String> = measurement.faults.keys().collect();
        assert!(words.iter().any(|words| words.contains("maxmemory")), "{words:?}");
        let audit = case.audit(&world.store);
        assert_eq!(audit.verdict, Verdict::Holds, "{ack:?}: {audit:?}");
        assert!(
            audit.evidence["failed_publishes"] > 0 && audit.evidence["consumed_messages"] > 0,
            "{audit:?}"
        );
    }
}

#[test]
fn a_consumer_at_work_keeps_what_it_holds_and_one_that_stalls_does_not() {
    async fn take(subscriber: &mut impl Subscriber) -> Option<bool> {
        let mut received = Received::default();
        match subscriber.take(Duration::ZERO, &mut received).await {
            Attempt::Ok => received.redelivered,
            _ => None,
        }
    }
    let Some(world) = REDIS.start(Durability::None) else { return };
    wait(world.store.create(NAMESPACE, "run")).unwrap();
    let parameters = Parameters { phase: Phase::Consume, backlog: Some(5), ..few() };
    let wanted = Wanted { delivery: parameters.delivery(), message_bytes: parameters.message_bytes };
    let cases = [1, 2].map(|trial| Case::new(trial, parameters.clone()));
    for case in &cases {
        case.load(&world.store);
    }
    wait(async {
        let connect = async |case: &Case| {
            QueueAdapter::connector(&world.store, &case.place, &wanted).subscriber().await.unwrap()
        };
        let (mut busy, mut idle) = (connect(&cases[0]).await, connect(&cases[0]).await);
        let (mut stalled, mut heir) = (connect(&cases[1]).await, connect(&cases[1]).await);
        assert_eq!(take(&mut busy).await, Some(false));
        assert_eq!(take(&mut stalled).await, Some(false));
        // together longer than what nobody is heard of is kept for it
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_millis(1200)).await;
            assert_eq!(take(&mut busy).await, Some(false));
        }
        assert_eq!(take(&mut idle).await, None, "it is in other hands");
        assert_eq!(busy.settle().await.unwrap(), Settled::Answered);
        assert_eq!(take(&mut heir).await, Some(true));
        assert_eq!(stalled.settle().await.unwrap(), Settled::Sent);
    });
}
