//! Single requests, on a real server.

use acidtest_model::{Address, Durability};
use acidtest_store_redis::Redis;
use acidtest_testbed::{NAMESPACE, Private, operations, wait};
use acidtest_workloads::Store;
use serde_json::json;

use super::*;
use crate::server::send;

/// A server, the server of its lock service, and the store opened on them; `None` if either server is left out.
pub(crate) fn start() -> Option<(Private, Private, Elasticsearch)> {
    let mut service = Private::start("redis", Durability::Process)?;
    let locks: Arc<dyn LockService> = Arc::new(service.open(Redis::open));
    let mut server = Private::start("elasticsearch", Durability::None)?;
    let open = async |address: &Address| {
        Elasticsearch::open(address, Some(Durability::None), Some(locks.clone())).await
    };
    let store = server.open(open);
    wait(store.create(NAMESPACE, "run 1")).unwrap();
    Some((service, server, store))
}

/// Makes the connector of a trial's clients.
fn clients(store: &Elasticsearch, place: &Place, wanted: Requirements) -> Clients {
    Clients {
        server: store.server.clone(),
        table: Table::of(place),
        place: place.clone(),
        lock: wanted.lock,
        refresh: refresh(wanted.refresh),
        locks: store.locks.clone(),
        has_scripts: store.has_scripts(),
        decides: wanted.decides,
    }
}

#[test]
fn single_requests_find_change_and_refuse_and_tell_what_is_no_record() {
    let Some((_service, _server, store)) = start() else { return };
    let mut locks = vec![Lock::None, Lock::Soft, Lock::Hard];
    if store.has_scripts() {
        locks.push(Lock::Native);
    }
    // a scan finds only documents that were refreshed
    let connect =
        |place: &Place, wanted| clients(&store, place, Requirements { refresh: Refresh::Yes, ..wanted });
    wait(operations::singles(&store, &locks, connect));
    let spoil = async |place: &Place, key: &str| {
        let mut connection = store.server.reach().await.unwrap();
        let mut path = format!("/{}/_doc/", Table::of(place).index);
        push_id(&mut path, key);
        let spoiled = json!({"key": key, "version": "seven"});
        send(&mut connection, Method::PUT, &format!("{path}?refresh=true"), &spoiled)
            .await
            .unwrap()
            .done()
            .unwrap();
    };
    wait(operations::garbled(&store, &locks, connect, spoil));

    // in the final state, documents without a key come last, and each comes once
    let place = Place { namespace: NAMESPACE.to_owned(), trial: 99 };
    let layout = Layout { records: 2, fields: 2, field_bytes: 20, scans: false };
    let mut seen = Vec::new();
    wait(async {
        store.load(&place, &layout, &LoadProgress::default()).await.unwrap();
        let mut connection = store.server.reach().await.unwrap();
        for id in ["theirs", "user0"] {
            let path = format!("/{}/_doc/{id}?refresh=true", Table::of(&place).index);
            send(&mut connection, Method::PUT, &path, &json!({})).await.unwrap().done().unwrap();
        }
        let mut each = |key: &str, version, tag| seen.push((key.to_owned(), version, tag));
        store.state(&place, &layout, &mut each).await.unwrap();
    });
    let loaded = |number| (records::key_name(number), 0, Some(number));
    let torn = ["theirs", "user0"].map(|key| (key.to_owned(), 0, None));
    let mut expected: Vec<_> = [loaded(0), loaded(1)].into_iter().chain(torn).collect();
    seen.sort_unstable();
    expected.sort_unstable();
    assert_eq!(seen, expected);
}

#[test]
fn a_write_on_what_has_changed_is_a_conflict_and_without_effect() {
    let Some((_service, _server, store)) = start() else { return };
    let layout = Layout { records: 1, fields: 2, field_bytes: 20, scans: false };
    let place = Place { namespace: NAMESPACE.to_owned(), trial: 0 };
    let wanted = Requirements {
        lock: Lock::Soft,
        decides: true,
        isolation: None,
        transaction: 1,
        refresh: Refresh::No,
        layout,
    };
    let key = records::key_name(0);
    let mut request = Request {
        action: Action::Update,
        number: 0,
        key: key.clone(),
        length: 0,
        fields: records::Fields::default(),
    };
    request.fields.fill(&layout, 9);
    wait(async {
        store.load(&place, &layout, &LoadProgress::default()).await.unwrap();
        let connector = clients(&store, &place, wanted);
        let (mut one, mut other) = (connector.connect().await.unwrap(), connector.connect().await.unwrap());
        let mut answer = Answer::default();
        let stale = one.get(&key, false, &mut answer).await.unwrap().unwrap();
        assert_eq!(other.single(&request, &mut answer).await, Attempt::Ok);

        // the write that both the soft and the hard lock use
        one.write_path("/_doc/", &key, Demand::Unchanged, Some(&stale));
        let refused = one.put(body(&request, 1)).await.map_err(ended(Effect::Change));
        assert_eq!(refused, Err(Attempt::Conflict));
        let now = one.get(&key, false, &mut answer).await.unwrap().unwrap();
        assert_eq!((now.found, now.seq_no), (Lookup::Record(1), stale.seq_no + 1));
        // without the demand the write overwrites the document
        one.write_path("/_doc/", &key, Demand::Nothing, Some(&stale));
        assert_eq!(one.put(body(&request, 1)).await, Ok(()));
        assert_eq!(one.get(&key, false, &mut answer).await.unwrap().unwrap().found, Lookup::Record(1));
    });
}

#[test]
fn a_lock_that_another_holds_is_waited_for_and_then_a_conflict() {
    let Some((_service, _server, store)) = start() else { return };
    let layout = Layout { records: 1, fields: 2, field_bytes: 20, scans: false };
    let place = Place { namespace: NAMESPACE.to_owned(), trial: 0 };
    let wanted = Requirements {
        lock: Lock::Hard,
        decides: true,
        isolation: None,
        transaction: 1,
        refresh: Refresh::No,
        layout,
    };
    let key = records::key_name(0);
    wait(async {
        store.load(&place, &layout, &LoadProgress::default()).await.unwrap();
        let connector = clients(&store, &place, wanted);
        let (mut one, mut other) = (connector.connect().await.unwrap(), connector.connect().await.unwrap());
        let (one, other) = (one.locks.as_mut().unwrap(), other.locks.as_mut().unwrap());
        let held = one.acquire(&key, &mut Patience::default()).await.unwrap();
        let start = std::time::Instant::now();
        assert_eq!(other.acquire(&key, &mut Patience::default()).await, Err(Attempt::Conflict));
        assert!(start.elapsed() >= locking::PATIENCE);
        one.release(held).await;
        assert!(other.acquire(&key, &mut Patience::default()).await.is_ok());
    });
}
