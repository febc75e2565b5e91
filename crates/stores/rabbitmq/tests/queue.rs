//! The queue against real servers, each test with its own.

#![allow(clippy::unwrap_used, reason = "a helper of a test may fail it")]

use std::{process::Command, time::Duration};

use acidtest_lab::Lab;
use acidtest_model::{Address, Consume, Durability, QueueKind, StoreError};
use acidtest_store_rabbitmq::{KIND, RabbitMq};
use acidtest_testbed::{
    Gone, NAMESPACE, Private, Subject, login,
    queue::{self, few},
    wait,
};
use acidtest_workloads::{
    Attempt, Fault, Place, Store, Verdict,
    queue::{Connector, Message, Parameters, Publisher, QueueAdapter, Received, Subscriber, Wanted},
};
use tokio::time::timeout;

static RABBIT: Subject<RabbitMq> =
    Subject { kind: KIND, open: |address, _| Box::pin(RabbitMq::open(address)), gone: Gone::Error };

#[test]
fn every_way_to_publish_and_to_consume_does_as_it_promises() {
    RABBIT.passes(&queue::all());
}

#[test]
fn a_namespace_goes_with_its_queues_and_nothing_else() {
    queue::namespaces(&RABBIT, &[NAMESPACE, "a", "acidtest_1_"]);
}

#[test]
fn nothing_persistent_and_acknowledged_is_lost_when_the_server_is_killed() {
    queue::survives(&RABBIT, &Parameters { in_flight: 300, prefetch: 200, batch: 50, ..few() });
}

#[test]
fn what_was_transient_is_counted_as_lost_when_the_server_is_killed() {
    queue::nothing_kept(&RABBIT);
}

/// What docs/queues.md says of 3.10.8: a quorum queue forgets what it confirmed if its broker is killed within a
/// second of its declaration, and keeps it when it is older. The audit finds it.
#[test]
fn a_quorum_queue_that_was_just_made_loses_what_it_confirmed() {
    let parameters = Parameters { queue: QueueKind::Quorum, ..few() };
    let audits = queue::killed_young(&RABBIT, &parameters, Duration::from_secs(3));
    let Some([old, young]) = audits else { return };
    assert_eq!(old.verdict, Verdict::Holds, "{old:?}");
    println!("the young queue: {young} {:?}", young.evidence);
    // a broker that keeps it is a better one: then docs/queues.md must say so
    assert_eq!(young.verdict, Verdict::Broken, "{young:?}");
    assert!(young.count("lost") > 0 && young.reason.is_none(), "{young:?}");
}

fn wanted(parameters: &Parameters) -> Wanted {
    Wanted { delivery: parameters.delivery(), message_bytes: parameters.message_bytes }
}

/// Publishes one message, for at most so long: how it ended, if it did.
async fn publish(
    publisher: &mut impl Publisher,
    message: &Message,
    most: Duration,
) -> Option<Result<Attempt, Fault>> {
    let mut ended = Vec::new();
    if let Err(fault) = publisher.send(message).await {
        return Some(Err(fault));
    }
    match timeout(most, publisher.settle(&mut ended)).await.ok()? {
        Ok(()) => Some(Ok(ended.remove(0).attempt)),
        Err(fault) => Some(Err(fault)),
    }
}

const SOON: Duration = Duration::from_secs(20);

#[test]
fn what_the_broker_will_not_do_is_told_in_its_words() {
    let Some(mut private) = Private::start("rabbitmq", Durability::Process) else { return };
    let rabbit = private.open(RabbitMq::open);
    let place = Place { namespace: NAMESPACE.to_owned(), trial: 1 };
    let parameters = Parameters::default();
    wait(async {
        rabbit.create(NAMESPACE, "run 1").await.unwrap();
        rabbit.declare(&place, &wanted(&parameters)).await.unwrap();
        let occupied = rabbit.declare(&place, &wanted(&parameters)).await.unwrap_err();
        assert!(matches!(&occupied, StoreError::Occupied { namespace, .. } if namespace.contains("queue_1")));

        // a queue of another kind is not taken for the one that was asked for
        let quorum = Parameters { queue: QueueKind::Quorum, ..parameters.clone() };
        let server = rabbit.effective().await.unwrap();
        let other = QueueAdapter::settings(&rabbit, &place, &wanted(&quorum), &server).await.unwrap_err();
        assert!(other.to_string().contains("406 PRECONDITION_FAILED"), "{other}");
        let own = QueueAdapter::settings(&rabbit, &place, &wanted(&parameters), &server).await.unwrap();
        assert_eq!(
            (own.durability, own.settings["queue.x-queue-type"].as_str()),
            (Durability::Process, "classic")
        );

        // a message over the broker's limit, 128 MiB
        let mut publisher = rabbit.connector(&place, &wanted(&parameters)).publisher().await.unwrap();
        let too_large = Message { body: vec![7; (128 << 20) + 1] };
        let Some(Err(fault)) = publish(&mut publisher, &too_large, SOON).await else {
            panic!("it was taken")
        };
        assert!(fault.connection_lost && fault.message.contains("larger than"), "{fault:?}");

        // a message that no queue takes: confirmed by the broker, and returned before
        let mut publisher = rabbit.connector(&place, &wanted(&parameters)).publisher().await.unwrap();
        assert_eq!(publish(&mut publisher, &Message::laid(1, 100), SOON).await, Some(Ok(Attempt::Ok)));
        QueueAdapter::unload(&rabbit, &place).await.unwrap();
        let Some(Ok(Attempt::Failed(fault))) = publish(&mut publisher, &Message::laid(2, 100), SOON).await
        else {
            panic!("it was published to nobody")
        };
        assert!(fault.message.contains("312 NO_ROUTE"), "{fault:?}");
    });

    // who may not log in
    for (user, password, words) in
        [("guest", Some("s3cret"), "ACCESS_REFUSED"), ("nobody", None, "ACCESS_REFUSED")]
    {
        RABBIT
            .refuses(&login(private.address(), user, password), &[words, "check the user and the password"]);
    }
    let nowhere = Address { path: "nowhere".to_owned(), ..private.address().clone() };
    RABBIT.refuses(&nowhere, &["vhost nowhere not found", "virtual host"]);

    // whoever runs the broker closes its connections, and says why
    wait(async {
        rabbit.declare(&place, &wanted(&parameters)).await.unwrap();
        let mut publisher = rabbit.connector(&place, &wanted(&parameters)).publisher().await.unwrap();
        control(&private, &["close_all_connections", "maintenance at noon"]);
        let Some(Err(fault)) = publish(&mut publisher, &Message::laid(3, 100), SOON).await else {
            panic!("it was published")
        };
        let words = ["320 CONNECTION_FORCED", "maintenance at noon"];
        assert!(fault.connection_lost && words.iter().all(|word| fault.message.contains(word)), "{fault:?}");
    });

    // a broker that is short of memory, or of room on its disk, takes no messages, and says why
    for (short, limit, usual) in [
        ("memory", &["set_vm_memory_high_watermark", "absolute", "1MB"][..], "0.4"),
        ("disk", &["set_disk_free_limit", "1000000GB"], "50MB"),
    ] {
        control(&private, limit);
        wait(async {
            let told = rabbit.create("another", "run 2").await.unwrap_err().to_string();
            assert!(told.contains("blocks publishers"), "{told}");
            let connector = rabbit.connector(&place, &wanted(&parameters));
            let mut publisher = connector.publisher().await.unwrap();
            let message = Message::laid(4, 100);
            assert_eq!(publish(&mut publisher, &message, Duration::from_secs(2)).await, None);
            let limit = publisher.limit().unwrap();
            assert!(limit.contains("blocks publishers") && limit.contains(short), "{limit}");
        });
        control(&private, &[limit[0], usual]);
    }
}

/// The broker sends all that there is as soon as somebody subscribes: before the first message is asked for, which
/// is timed, it must not.
#[test]
fn nothing_is_sent_to_a_consumer_before_it_asks() {
    let Some(world) = RABBIT.start(Durability::Process) else { return };
    let rabbit = &world.store;
    let place = Place { namespace: NAMESPACE.to_owned(), trial: 1 };
    let wanted = wanted(&Parameters { consume: Consume::Auto, ..Parameters::default() });
    wait(async {
        rabbit.create(NAMESPACE, "run 1").await.unwrap();
        rabbit.declare(&place, &wanted).await.unwrap();
        let connector = rabbit.connector(&place, &wanted);
        let mut publisher = connector.publisher().await.unwrap();
        for name in 0..3 {
            assert_eq!(publish(&mut publisher, &Message::laid(name, 100), SOON).await, Some(Ok(Attempt::Ok)));
        }
        let mut subscriber = connector.subscriber().await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(rabbit.depth(&place, &wanted).await.unwrap().ready, 3);
        let mut received = Received::default();
        assert_eq!(subscriber.take(SOON, &mut received).await, Attempt::Ok);
        assert_eq!(rabbit.depth(&place, &wanted).await.unwrap().ready, 0);
    });
}

/// Tells the broker something by its own tool.
fn control(private: &Private, words: &[&str]) {
    let program = Lab::locate("rabbitmq").unwrap().program.with_file_name("rabbitmqctl");
    let home = private.folder().join("data");
    let ports = std::fs::read_to_string(home.join("ports")).unwrap();
    let done = Command::new(program)
        .args(["-n", "acidtest@localhost"])
        .args(words)
        .env("HOME", &home)
        .env("ERL_EPMD_PORT", ports.split(' ').next().unwrap())
        .env("RABBITMQ_CONF_ENV_FILE", home.join("none"))
        .output()
        .unwrap();
    assert!(done.status.success(), "{words:?}: {done:?}");
}
