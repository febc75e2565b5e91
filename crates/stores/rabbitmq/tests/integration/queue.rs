//! The queue workload on real servers.

use std::{thread, time::Duration};

use acidtest_model::{Address, Durability, StoreError};
use acidtest_store_rabbitmq::{KIND, RabbitMq};
use acidtest_testbed::{
    AfterRemoval, NAMESPACE, Pace, Private, Relay, Subject, World, control, login,
    queue::{self, QueueRun, few},
    wait, with_more_time,
};
use acidtest_workloads::{
    Attempt, Fault, Owner, Place, Store, Verdict,
    queue::{
        Connector, Consume, Depth, Message, Parameters, Phase, Publisher, QueueAdapter, QueueKind,
        ReceivedMessage, Requirements, Subscriber,
    },
};
use tokio::time::timeout;

static RABBIT: Subject<RabbitMq> =
    Subject { kind: KIND, open: |address, _| Box::pin(RabbitMq::open(address)), gone: AfterRemoval::Error };

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
    queue::survives(&RABBIT, &Parameters { in_flight: 300, prefetch: Some(200), batch: 50, ..few() });
}

#[test]
fn what_was_transient_is_counted_as_lost_when_the_server_is_killed() {
    queue::nothing_kept(&RABBIT);
}

/// As docs/queues.md says of 3.10.8: a quorum queue loses messages that it confirmed if its broker is killed before
/// it has noted which log is the queue's; once it has, it keeps them. The audit finds the loss, after the queue has
/// been forced to elect a leader, without which it does not answer.
#[test]
fn a_quorum_queue_that_was_just_made_loses_what_it_confirmed() {
    let parameters = Parameters { queue: QueueKind::Quorum, ..few() };
    let killed = queue::killed_young(&RABBIT, &parameters, has_noted_its_log);
    let Some((world, [old, young])) = killed else { return };
    let (rabbit, private) = (&world.store, world.private());
    let [in_raft_old, in_raft_young] = [&old, &young].map(|case| in_raft(&case.place));
    is_not_taken_for_empty(rabbit, &young);
    let elected = format!("ra:trigger_election({{'{in_raft_young}', node()}})");
    // also for a queue that is too busy to answer the broker says that it has neither messages nor consumers
    control(private, &["eval", &format!("{elected}, sys:suspend('{in_raft_old}').")]);
    let found = young.audit(rabbit);
    println!("the young queue: {found} {:?}", found.evidence);
    // if this fails, a newer broker keeps the messages, and docs/queues.md must say so
    assert_eq!(found.verdict, Verdict::Broken, "{found:?}");
    assert!(found.count("lost") > 0 && found.reason.is_none(), "{found:?}");

    is_not_taken_for_empty(rabbit, &old);
    control(private, &["eval", &format!("sys:resume('{in_raft_old}').")]);
    let found = old.audit(rabbit);
    println!("the old one: {found} {:?}", found.evidence);
    assert_eq!(found.verdict, Verdict::Holds, "{found:?}");
}

fn is_not_taken_for_empty(rabbit: &RabbitMq, case: &QueueRun) {
    wait(async {
        let asked =
            timeout(Duration::from_secs(1), rabbit.depth(&case.place, &wanted(&case.parameters))).await;
        assert!(!matches!(asked, Ok(Ok(depth)) if depth == Depth::default()), "it was taken for empty");
    });
}

/// The name of the Raft member of a trial's queue.
fn in_raft(place: &Place) -> String {
    format!("%2F_{}:{}", place.namespace, place.object("queue"))
}

/// Whether the broker's list of its quorum queues' logs has the log of a trial's queue.
fn has_noted_its_log(private: &Private, place: &Place) -> bool {
    let list = "data/mnesia/acidtest@localhost/quorum/acidtest@localhost/names.dets";
    // the queue's name, an atom, is followed by the name of its log, a binary
    let entry = format!("{}m", in_raft(place));
    let listed = std::fs::read(private.folder().join(list)).unwrap();
    listed.windows(entry.len()).any(|window| window == entry.as_bytes())
}

fn wanted(parameters: &Parameters) -> Requirements {
    Requirements { delivery: parameters.delivery(), message_bytes: parameters.message_bytes }
}

/// Publishes one message. Returns its outcome, or none if there is none within this time.
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

const SOON: Duration = Duration::from_mins(2);

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

        // a queue of another kind is not mistaken for the one that was asked for
        let quorum = Parameters { queue: QueueKind::Quorum, ..parameters.clone() };
        let server = rabbit.effective().await.unwrap();
        let other = QueueAdapter::settings(&rabbit, &place, &wanted(&quorum), &server).await.unwrap_err();
        assert!(other.to_string().contains("406 PRECONDITION_FAILED"), "{other}");
        let own = QueueAdapter::settings(&rabbit, &place, &wanted(&parameters), &server).await.unwrap();
        assert_eq!(
            (own.durability, own.settings["queue.x-queue-type"].as_str()),
            (Durability::Process.into(), "classic")
        );

        // a message of one byte more than the broker's limit, 128 MiB
        let mut publisher = rabbit.connector(&place, &wanted(&parameters)).publisher().await.unwrap();
        let too_large = Message { body: vec![7; (128 << 20) + 1] };
        let Some(Err(fault)) = publish(&mut publisher, &too_large, SOON).await else {
            panic!("it was taken")
        };
        assert!(fault.connection_lost && fault.message.contains("larger than"), "{fault:?}");

        // a message that no queue takes: the broker returns it, and then confirms it
        let mut publisher = rabbit.connector(&place, &wanted(&parameters)).publisher().await.unwrap();
        assert_eq!(publish(&mut publisher, &Message::loaded(1, 100), SOON).await, Some(Ok(Attempt::Ok)));
        QueueAdapter::unload(&rabbit, &place).await.unwrap();
        let Some(Ok(Attempt::Failed(fault))) = publish(&mut publisher, &Message::loaded(2, 100), SOON).await
        else {
            panic!("it was published to nobody")
        };
        assert!(fault.message.contains("312 NO_ROUTE"), "{fault:?}");
    });

    // users who may not log in
    for (user, password, words) in
        [("guest", Some("s3cret"), "ACCESS_REFUSED"), ("nobody", None, "ACCESS_REFUSED")]
    {
        RABBIT
            .refuses(&login(private.address(), user, password), &[words, "check the user and the password"]);
    }
    let nowhere = Address { path: "nowhere".to_owned(), ..private.address().clone() };
    RABBIT.refuses(&nowhere, &["vhost nowhere not found", "virtual host"]);

    // an operator closes the broker's connections, with a reason
    wait(async {
        rabbit.declare(&place, &wanted(&parameters)).await.unwrap();
        let mut publisher = rabbit.connector(&place, &wanted(&parameters)).publisher().await.unwrap();
        control(&private, &["close_all_connections", "maintenance at noon"]);
        let Some(Err(fault)) = publish(&mut publisher, &Message::loaded(3, 100), SOON).await else {
            panic!("it was published")
        };
        let words = ["320 CONNECTION_FORCED", "maintenance at noon"];
        assert!(fault.connection_lost && words.iter().all(|word| fault.message.contains(word)), "{fault:?}");
    });

    // a broker that is short of memory or of disk space takes no messages, and says why
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
            publisher.send(&Message::loaded(4, 100)).await.unwrap();
            let limit = timeout(SOON, async {
                let mut ended = Vec::new();
                loop {
                    let settled = timeout(Duration::from_millis(10), publisher.settle(&mut ended)).await;
                    assert!(settled.is_err(), "it was published: {ended:?}");
                    if let Some(limit) = publisher.limit() {
                        return limit;
                    }
                }
            });
            let limit = limit.await.unwrap();
            assert!(limit.contains("blocks publishers") && limit.contains(short), "{limit}");
        });
        control(&private, &[limit[0], usual]);
    }
}

/// Loads a queue with this number of messages of this size.
fn loaded(rabbit: &RabbitMq, trial: u32, backlog: u64, message_bytes: u32) -> QueueRun {
    let (phase, backlog) = (Phase::Consume, Some(backlog));
    let case = QueueRun::new(trial, Parameters { phase, backlog, message_bytes, ..Parameters::default() });
    case.load(rabbit);
    case
}

#[track_caller]
fn holds(rabbit: &RabbitMq, case: &QueueRun) {
    let audit = case.audit(rabbit);
    assert_eq!(audit.verdict, Verdict::Holds, "{audit:?}");
    assert_eq!(audit.evidence["consumed_messages"], i64::try_from(case.parameters.backlog()).unwrap());
}

#[test]
fn what_is_on_its_way_or_in_dead_hands_is_not_lost() {
    let Some(world) = RABBIT.share() else { return };
    let rabbit = &world.store;
    wait(rabbit.create(NAMESPACE, "run 1")).unwrap();
    let relay = Relay::to(world.address());
    let far = wait(RabbitMq::open(relay.address())).unwrap();

    // each message takes longer than the audit waits for the first one
    let large = loaded(rabbit, 1, 3, 1_000_000);
    relay.pace(Pace { bytes_per_second: Some(3_000_000), ..Pace::default() });
    holds(&far, &large);

    // and so does the first of many small messages
    let small = loaded(rabbit, 2, 50, 128);
    relay.pace(Pace { latency: Duration::from_millis(80), ..Pace::default() });
    holds(&far, &small);

    // a consumer's machine fails: the messages that it held come again, but only once the broker has noticed
    let held = loaded(rabbit, 3, 20, 128);
    relay.pace(Pace::default());
    relay.tells_the_server(false);
    let asked = wanted(&held.parameters);
    wait(async {
        let mut dying = far.connector(&held.place, &asked).subscriber().await.unwrap();
        assert_eq!(dying.take(SOON, &mut ReceivedMessage::default()).await, Attempt::Ok);
        dying.stop().await.unwrap();
    });
    let depth = wait(rabbit.depth(&held.place, &asked)).unwrap();
    assert_eq!(depth, Depth { ready: 0, unacknowledged: 1 });
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(700));
            relay.tells_the_server(true);
        });
        holds(rabbit, &held);
    });

    queue::handed_over(&RABBIT, &world, 4);
    wait(rabbit.remove(NAMESPACE)).unwrap();
}

/// Several checks on one server, because it takes seconds to start.
#[test]
fn what_it_does_its_own_way_is_right() {
    let Some(world) = RABBIT.start(Durability::Process) else { return };
    for check in [
        nothing_is_sent_to_a_consumer_before_it_asks,
        a_stranger_s_queue_stays_though_it_is_listed_among_ours,
        what_a_policy_takes_out_of_a_queue_is_not_lost,
    ] {
        wait(world.store.create(NAMESPACE, "run 1")).unwrap();
        check(&world);
        wait(world.store.remove(NAMESPACE)).unwrap();
    }
}

fn a_stranger_s_queue_stays_though_it_is_listed_among_ours(world: &World<RabbitMq>) {
    let rabbit = &world.store;
    let ours = loaded(rabbit, 1, 5, 128);
    // names that any client of the broker may have put there
    let listed = ["stranger", "acidtest_2:queue_1", "acidtest:mark", "acidtest:names"];
    let listed = listed.map(|name| format!("<<\"{name}\">>")).join(", ");
    let publish = "rabbit_basic:publish(rabbit_misc:r(<<\"/\">>, exchange, <<>>), <<\"acidtest:names\">>";
    let listing = format!("[{publish}, [{{delivery_mode, 2}}], Name) || Name <- [{listed}]].");
    control(world.private(), &["eval", &listing]);
    let theirs = QueueRun::within("acidtest_2", 1, ours.parameters.clone());
    wait(rabbit.create("acidtest_2", "run 2")).unwrap();
    theirs.load(rabbit);

    wait(rabbit.remove(NAMESPACE)).unwrap();
    assert_eq!(wait(rabbit.owner(NAMESPACE)).unwrap(), Owner::Nobody);
    assert_eq!(wait(rabbit.depth(&ours.place, &wanted(&ours.parameters))).unwrap(), Depth::default());
    assert_eq!(wait(rabbit.owner("acidtest_2")).unwrap(), Owner::Run("run 2".to_owned()));
    assert_eq!(theirs.audit(rabbit).evidence["consumed_messages"], 5);
}

/// A broker that drops messages because its administrator has it do so is accused of nothing. One that has such a policy and
/// drops nothing by it is accused of what is lost: here, of what was purged.
fn what_a_policy_takes_out_of_a_queue_is_not_lost(world: &World<RabbitMq>) {
    let (rabbit, private) = (&world.store, world.private());
    let parameters = |queue| Parameters { phase: Phase::Publish, queue, ..few() };
    let policy = |definition: &str| control(private, &["set_policy", "theirs", ".*", definition]);
    let mut trials = 11..;
    // a trial in which nothing was acknowledged says nothing
    let mut audited = |queue, meanwhile: &dyn Fn(u32)| {
        with_more_time(300, |millis| {
            let trial = trials.next().unwrap();
            let case = QueueRun::new(trial, parameters(queue));
            let audit = case.audited(rabbit, millis, || meanwhile(trial));
            if audit.reason.as_deref() == Some("no publish was acknowledged") {
                case.unload(rabbit);
                return Err(format!("{audit:?}"));
            }
            Ok((case, audit))
        })
    };
    for (definition, queue) in [
        (r#"{"message-ttl":20}"#, QueueKind::Classic),
        (r#"{"max-length":3}"#, QueueKind::Quorum),
        (r#"{"expires":300}"#, QueueKind::Classic),
    ] {
        policy(definition);
        // nobody consumes meanwhile
        let (case, audit) = audited(queue, &|_| thread::sleep(Duration::from_millis(600)));
        assert_eq!(audit.verdict, Verdict::Unknown, "{definition}: {audit:?}");
        assert!(!audit.breaks_promise(&[] as &[&str]) && audit.evidence["not_consumed"] > 0, "{audit:?}");
        let reason = audit.reason.unwrap();
        assert!(
            reason.contains("were never consumed") && reason.contains("remedy: a virtual host"),
            "{reason}"
        );
        case.unload(rabbit);
    }
    policy(r#"{"message-ttl":3600000,"max-length":100000000}"#);
    let purge = |trial| control(private, &["purge_queue", &format!("acidtest:queue_{trial}")]);
    let (_, audit) = audited(QueueKind::Classic, &purge);
    assert!(audit.verdict == Verdict::Broken && audit.count("lost") > 0, "{audit:?}");
    assert!(audit.breaks_promise(&[] as &[&str]));
    control(private, &["clear_policy", "theirs"]);
}

/// The broker sends all messages as soon as somebody subscribes. It must not do so before the first message is asked
/// for, because that is when the clock starts.
fn nothing_is_sent_to_a_consumer_before_it_asks(world: &World<RabbitMq>) {
    let rabbit = &world.store;
    let place = Place { namespace: NAMESPACE.to_owned(), trial: 1 };
    let wanted = wanted(&Parameters { consume: Consume::Auto, ..Parameters::default() });
    wait(async {
        rabbit.declare(&place, &wanted).await.unwrap();
        let connector = rabbit.connector(&place, &wanted);
        let mut publisher = connector.publisher().await.unwrap();
        for name in 0..3 {
            assert_eq!(
                publish(&mut publisher, &Message::loaded(name, 100), SOON).await,
                Some(Ok(Attempt::Ok))
            );
        }
        let mut subscriber = connector.subscriber().await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(rabbit.depth(&place, &wanted).await.unwrap().ready, 3);
        let mut received = ReceivedMessage::default();
        assert_eq!(subscriber.take(SOON, &mut received).await, Attempt::Ok);
        assert_eq!(rabbit.depth(&place, &wanted).await.unwrap().ready, 0);
    });
}
