//! The queue workload against real servers.

use std::sync::Arc;

use acidtest_model::Durability;
use acidtest_store_tarantool::iproto::{Connection, Encoder};
use acidtest_testbed::{
    NAMESPACE,
    queue::{self, QueueRun, few},
    wait, with_more_time,
};
use acidtest_transport::Transport;
use acidtest_workloads::{
    LoadProgress, Store, Verdict,
    queue::{Ledger, Parameters, QueueStore, Requirements, Scenario},
};

use crate::TARANTOOL;

#[test]
fn every_way_to_publish_and_to_consume_does_as_it_promises() {
    TARANTOOL.passes(&queue::all());
}

#[test]
fn a_namespace_is_its_maker_s_and_nothing_else_goes_with_it() {
    queue::namespaces(&TARANTOOL, &queue::NAMES);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    queue::kills(&TARANTOOL);
}

#[test]
fn what_is_kept_nowhere_is_found_missing() {
    queue::nothing_kept(&TARANTOOL);
}

#[test]
fn a_message_over_the_limit_says_so_and_nothing_breaks() {
    let Some(world) = TARANTOOL.start(Durability::None) else { return };
    wait(world.store.create(NAMESPACE, "run")).unwrap();
    let parameters = Parameters { message_bytes: 2 << 20, ..few() };
    with_more_time(50, |millis| {
        let case = QueueRun::new(1, parameters.clone());
        case.load(&world.store);
        let measurement = case.drive(&world.store, millis);
        case.unload(&world.store);
        assert!(measurement.reconnects == 0, "{measurement:?}");
        let words: Vec<&String> = measurement.faults.keys().collect();
        let is_told = words.iter().any(|words| words.contains("memtx_max_tuple_size"));
        if is_told { Ok(()) } else { Err(format!("{words:?}")) }
    });

    let wanted = Requirements { delivery: parameters.delivery(), message_bytes: parameters.message_bytes };
    let scenario = Scenario::new(Arc::new(Ledger::new(0, 3)));
    let place = QueueRun::new(2, parameters).place;
    let loaded = LoadProgress::default();
    let loading = QueueStore::load(&world.store, &place, &wanted, &scenario, &loaded);
    let error = wait(loading).unwrap_err().to_string();
    assert!(error.contains("filling the queue") && error.contains("memtx_max_tuple_size"), "{error}");
}

#[test]
fn only_what_a_session_has_taken_can_it_acknowledge() {
    let Some(world) = TARANTOOL.start(Durability::None) else { return };
    wait(world.store.create(NAMESPACE, "run")).unwrap();
    let case = QueueRun::new(1, Parameters { backlog: Some(2), ..few() });
    case.load(&world.store);
    wait(async {
        let name = format!("{NAMESPACE}:{}", case.place.object("queue"));
        let transport = Transport::new(world.address(), 0).unwrap();
        let connect = async || Connection::connect(&transport, None).await.unwrap();
        let (mut one, mut two) = (connect().await, connect().await);
        one.call(&name, |args| {
            args.array(4).str("take").u64(1).f64(0.0).bool(true);
        })
        .await
        .unwrap();
        for session in [&mut two, &mut one] {
            let ids = |args: &mut Encoder| {
                args.array(2).str("ack").array(2).u64(1).u64(2);
            };
            let refused = session.call(&name, ids).await.unwrap_err();
            assert!(refused.to_string().contains("not taken by this session"), "{refused}");
        }
    });
    let audit = case.audit(&world.store);
    assert_eq!((audit.verdict, audit.evidence["consumed_messages"]), (Verdict::Holds, 2), "{audit:?}");
}
