//! The store against real servers.

use std::{
    cell::Cell,
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use crate::common::{has_locks, lock_service, open, with_locks};
use acidtest_engine::Outcome;
use acidtest_model::{Address, CellRequest, Durability, Lock, StoreKind};
use acidtest_store_elasticsearch::{Elasticsearch, KIND};
use acidtest_testbed::{
    AfterRemoval, NAMESPACE, Subject, World, for_operations, for_time, inventory, login,
    records::{self, RecordsRun},
    wait, with_more_time,
};
use acidtest_workloads::{
    Owner, Store, Verdict,
    records::{Choice, Parameters, Refresh},
};
use serde_json::{Value, json};

thread_local! {
    /// Whether the server that was opened last can script updates.
    static SCRIPTS: Cell<bool> = const { Cell::new(false) };
}

static ELASTICSEARCH: Subject<Elasticsearch> = Subject {
    kind: StoreKind { refuses: missing_here, ..KIND },
    open: |address, durability| {
        Box::pin(async move {
            let opened = open(address, durability).await?;
            SCRIPTS.set(opened.has_scripts());
            Ok(opened)
        })
    },
    gone: AfterRemoval::Error,
};

/// The reason why the test's server cannot run a cell that the store supports.
fn missing_here(request: &CellRequest<'_>) -> Option<&'static str> {
    match request.lock {
        Lock::Native if !SCRIPTS.get() => Some("its server has no scripts"),
        Lock::Hard if !has_locks() => Some("there is no lock service"),
        _ => None,
    }
}

#[test]
fn every_mix_goes_through_in_every_lock_mode_anew_and_over_what_is_left() {
    with_locks(|| ELASTICSEARCH.passes(&[records::mixes, records::reusable, records::large]));
}

#[test]
fn each_lock_mode_keeps_its_promise_under_contention() {
    with_locks(|| ELASTICSEARCH.passes(&[records::contention, records::blind]));
}

#[test]
fn a_namespace_is_its_maker_s_and_nothing_else_goes_with_it() {
    with_locks(|| records::namespaces(&ELASTICSEARCH, &records::NAMES));
}

#[test]
fn a_namespace_that_is_there_is_not_made_again() {
    inventory::occupied(&ELASTICSEARCH);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    with_locks(|| records::kills(&ELASTICSEARCH));
}

#[test]
fn what_is_kept_nowhere_is_found_missing() {
    records::nothing_kept(&ELASTICSEARCH);
}

#[test]
fn where_nobody_listens_is_told_with_a_remedy() {
    inventory::unreachable(&ELASTICSEARCH);
}

#[test]
fn each_durability_is_read_back() {
    inventory::levels(&ELASTICSEARCH, |world, effective| {
        for name in ["index.translog.durability", "jvm.heap_max_bytes", "lucene_version", "data_nodes"] {
            assert!(effective.settings.contains_key(name), "{effective:?}");
        }
        wait(world.store.create(NAMESPACE, "run 1")).unwrap();
        let case = RecordsRun::of(Lock::None, 0, "a");
        case.load(&world.store);
        let (_, settings) = raw(world, "GET", &format!("/{INDEX}/_settings?flat_settings=true"), "");
        let made = &settings[INDEX]["settings"];
        assert_eq!(made["index.translog.durability"], effective.settings["index.translog.durability"]);
        assert_eq!(made.get("index.refresh_interval"), None, "loading leaves the default");
    });
}

/// The index of trial 0.
const INDEX: &str = "acidtest--usertable_0";

/// Sends a request that bypasses the store, and returns status and body.
fn raw(world: &World<Elasticsearch>, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(world.address().endpoint(9200)).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

#[track_caller]
fn done(world: &World<Elasticsearch>, method: &str, path: &str, body: &str) -> Value {
    let (status, said) = raw(world, method, path, body);
    assert!((200..300).contains(&status), "{method} {path}: {status} {said}");
    said
}

#[test]
fn what_it_does_its_own_way_is_right() {
    let Some(world) = ELASTICSEARCH.start(Durability::None) else { return };
    for check in [
        // comes first, as it checks that no index at all is left
        a_write_that_arrives_late_leaves_nothing,
        the_hard_lock_needs_a_lock_service_and_the_native_one_scripts,
        a_bulk_that_the_server_turns_away_is_sent_again,
        a_disk_that_is_full_is_told_with_a_remedy,
        a_write_with_refresh_is_seen_by_searches_at_once,
    ] {
        wait(world.store.create(NAMESPACE, "run 1")).unwrap();
        check(&world);
        wait(world.store.remove(NAMESPACE)).unwrap();
    }
    an_address_is_used_whole_or_refused(&world);
    a_namespace_is_ours_only_with_our_mark(&world);
}

fn a_namespace_is_ours_only_with_our_mark(world: &World<Elasticsearch>) {
    let store = &world.store;
    let owner = || wait(store.owner(NAMESPACE)).unwrap();
    // strangers' indices, whose names begin alike
    for index in ["acidtest", "acidtest-x", "acidtest_2--mark", "other"] {
        done(world, "PUT", &format!("/{index}"), "");
    }
    assert_eq!(owner(), Owner::Nobody);
    done(world, "PUT", "/acidtest--theirs", "");
    assert_eq!(owner(), Owner::Stranger);
    done(world, "DELETE", "/acidtest--theirs", "");
    done(world, "PUT", "/acidtest--mark", r#"{"mappings":{"_meta":{"run":"x"}}}"#);
    assert_eq!(owner(), Owner::Stranger);
    done(world, "DELETE", "/acidtest--mark", "");
    // an alias with a name of the namespace may lead to an index outside it
    done(world, "PUT", "/other/_alias/acidtest--alias", "");
    assert_eq!(owner(), Owner::Stranger);
    wait(store.remove(NAMESPACE)).unwrap();
    let (status, _) = raw(world, "GET", "/other", "");
    assert_eq!(status, 200, "what an alias leads to is not removed");
    done(world, "DELETE", "/other/_alias/acidtest--alias", "");
    assert_eq!(owner(), Owner::Nobody);
}

fn a_write_that_arrives_late_leaves_nothing(world: &World<Elasticsearch>) {
    let case = RecordsRun::of(Lock::None, 0, "a");
    case.load(&world.store);
    case.unload(&world.store);
    for (method, path) in [("PUT", "_doc/u1"), ("PUT", "_create/u1")] {
        let path = format!("/{INDEX}.w/{path}?require_alias=true");
        assert_eq!(raw(world, method, &path, "{}").0, 404, "{path}");
    }
    wait(world.store.remove(NAMESPACE)).unwrap();
    assert_eq!(done(world, "GET", "/_mapping?expand_wildcards=all", ""), json!({}));
}

#[test]
fn where_mutual_exclusion_fails_the_fence_holds() {
    let Some(service) = lock_service() else { return };
    let Some(world) = ELASTICSEARCH.start(Durability::None) else { return };
    wait(world.store.create(NAMESPACE, "run 1")).unwrap();
    let parameters = Parameters {
        mix: "modify".parse().unwrap(),
        keys: Choice::Uniform,
        records: 2,
        ..Parameters::default()
    };
    let mut raw = redis::Client::open(service.address().to_string()).unwrap().get_connection().unwrap();
    with_more_time(1500, |millis| {
        let case = RecordsRun::new(Lock::Hard, 0, parameters.clone());
        case.load(&world.store);
        let measured = thread::scope(|scope| {
            let trial = scope.spawn(|| case.drive(&world.store, &for_time(millis), 12));
            // takes all locks from their holders, as if every lease had ended
            while !trial.is_finished() {
                let () = redis::cmd("FLUSHALL").query(&mut raw).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
            trial.join().unwrap()
        });
        let (audit, _) = case.judge(&world.store);
        case.unload(&world.store);
        eprintln!("{audit}");
        assert!(measured.faults.is_empty(), "{:?}", measured.faults);
        let retries: u64 = measured.operations.iter().map(|operation| operation.conflicts).sum();
        if audit.verdict == Verdict::Unknown || retries == 0 {
            return Err(format!("{retries} were fenced off: {audit:?}"));
        }
        assert_eq!(audit.verdict, Verdict::Holds, "{audit:?}");
        Ok(())
    });
}

fn the_hard_lock_needs_a_lock_service_and_the_native_one_scripts(world: &World<Elasticsearch>) {
    let said = |lock| {
        let case = RecordsRun::of(lock, lock as u32, "a");
        case.load(&world.store);
        format!("{:?}", case.drive(&world.store, &for_time(50), 1).stopped)
    };
    assert!(said(Lock::Hard).contains("--lock-service"), "{}", said(Lock::Hard));
    if !world.store.has_scripts() {
        let native = said(Lock::Native);
        assert!(native.contains("the server has no script engine for painless"), "{native}");
    }
}

fn a_bulk_that_the_server_turns_away_is_sent_again(world: &World<Elasticsearch>) {
    let limit = |limit: Value| {
        let settings = json!({"transient": {"network.breaker.inflight_requests.limit": limit}});
        done(world, "PUT", "/_cluster/settings", &settings.to_string());
    };
    let few = Parameters { mix: "modify".parse().unwrap(), records: 3_000, ..Parameters::default() };
    let case = RecordsRun::new(Lock::Soft, 0, few);
    limit(json!("100kb"));
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(700));
            limit(Value::Null);
        });
        assert_eq!(case.load(&world.store), 3_000);
    });
    assert!(start.elapsed() >= Duration::from_millis(700), "nothing was turned away");
    assert!(case.state(&world.store).unwrap() == case.initial());

    // in a trial the writes fail, proved without effect, and the connection is kept
    limit(json!("100b"));
    let measured = case.drive(&world.store, &for_operations(40), 4);
    limit(Value::Null);
    let (audit, _) = case.judge(&world.store);
    assert_eq!(audit.verdict, Verdict::Unknown, "nothing was acknowledged: {audit:?}");
    let failed: u64 = measured.operations.iter().map(|each| each.count(Outcome::Failed)).sum();
    assert!(failed > 0 && measured.reconnects == 0, "{:?}", measured.faults);
    let fault = measured.faults.keys().next().unwrap();
    assert!(fault.starts_with("rejected: circuit_breaking_exception") && fault.contains("-Xmx"), "{fault}");
    assert_eq!(case.state(&world.store).unwrap(), case.initial());
}

fn a_disk_that_is_full_is_told_with_a_remedy(world: &World<Elasticsearch>) {
    let case = RecordsRun::of(Lock::Soft, 0, "modify");
    case.load(&world.store);
    let path = format!("/{INDEX}/_settings");
    done(world, "PUT", &path, r#"{"index":{"blocks.read_only_allow_delete":true}}"#);
    let measured = case.drive(&world.store, &for_operations(40), 2);
    let fault = measured.faults.keys().next().unwrap();
    assert!(fault.contains("free room on the disk"), "{fault}");
    assert_eq!(measured.operations.iter().map(|each| each.count(Outcome::Unknown)).sum::<u64>(), 0);
    done(world, "PUT", &path, r#"{"index":{"blocks.read_only_allow_delete":null}}"#);
    assert_eq!(case.state(&world.store).unwrap(), case.initial());
    case.unload(&world.store);
}

fn a_write_with_refresh_is_seen_by_searches_at_once(world: &World<Elasticsearch>) {
    for refresh in [Refresh::WaitFor, Refresh::Yes] {
        let mix = "read:1+update:1+insert:2+scan:1".parse().unwrap();
        let case =
            RecordsRun::new(Lock::Soft, 0, Parameters { mix, refresh, records: 50, ..Parameters::default() });
        case.load(&world.store);
        // so that nothing makes documents visible but the writes themselves
        let put = |interval: Value| {
            let settings = json!({"index": {"refresh_interval": interval}});
            done(world, "PUT", &format!("/{INDEX}/_settings"), &settings.to_string());
        };
        put(if refresh == Refresh::Yes { json!("-1") } else { json!("100ms") });
        let measured = case.drive(&world.store, &for_operations(80), 4);
        let seen = done(world, "GET", &format!("/{INDEX}/_count"), "")["count"].as_u64().unwrap();
        let inserted = measured.operations[2].count(Outcome::Ok);
        assert!(inserted > 0 && measured.faults.is_empty(), "{:?}", measured.faults);
        assert_eq!(seen, 50 + inserted, "{refresh:?}");
        assert_eq!(case.judge(&world.store).0.verdict, Verdict::Holds);
        case.unload(&world.store);
    }
}

fn an_address_is_used_whole_or_refused(world: &World<Elasticsearch>) {
    let database = Address { path: "shop".to_owned(), ..world.address().clone() };
    ELASTICSEARCH.refuses(&login(&database, "ann", Some("hunter2")), &["has no databases"]);
    ELASTICSEARCH.refuses(&login(world.address(), "a:b", Some("hunter2")), &["colon"]);
    // a server without security accepts any login
    let store =
        wait(Elasticsearch::open(&login(world.address(), "ann", Some("hunter2")), None, None)).unwrap();
    assert!(!format!("{store:?}").contains("hunter2"), "{store:?}");
    assert_eq!(wait(store.effective()).unwrap().durability, Durability::Disk, "the default");
}
