//! Single operations, on a real server.

use std::slice::from_ref;

use acidtest_testbed::{
    parcels::{self as checks, Single as SingleTrial},
    wait,
};
use acidtest_workloads::parcels::StoredScan;
use serde_json::{Value, json};

use super::*;
use crate::{records::tests::start, server::send};

/// Puts a document there, past the adapter.
async fn put(store: &Elasticsearch, place: &Place, id: &str, source: &Value) {
    let mut connection = store.server.reach().await.unwrap();
    let path = format!("/{}/_doc/{id}", Table::of_scans(place).index);
    send(&mut connection, Method::PUT, &path, source).await.unwrap().done().unwrap();
}

async fn insert(client: &mut Client, scans: &[Scan]) -> (Attempt, Vec<Option<(u64, u8)>>) {
    let mut inserted = Inserted::default();
    let done = client.insert(scans, &mut inserted).await;
    (done, inserted.each().to_vec())
}

const LOCKS: [Lock; 3] = [Lock::None, Lock::Soft, Lock::Hard];

#[test]
fn single_operations_count_refuse_and_find() {
    let Some((_service, _server, store)) = start() else { return };
    let connect = |place: &Place, wanted| Clients::of(&store, place, wanted);
    wait(checks::singles(&store, &LOCKS, connect));
    let spoil = async |place: &Place, parcel: &Parcel| {
        for (id, count) in [(6, 9), (7, -1)] {
            let id = Ids::made(parcel.number, id).to_string();
            put(&store, place, &id, &json!({"hash": parcel.hash(), "count": count})).await;
        }
    };
    wait(checks::spoiled(&store, &LOCKS, connect, spoil));

    ids_that_are_taken_are_a_conflict_or_counted_anew(&store);
    what_is_no_scan_is_read_back_and_found_nowhere(&store);
    a_lock_is_given_up_where_another_is_not_had(&store);
}

/// Documents that were not there when they were counted, as if another client had created them meanwhile.
fn ids_that_are_taken_are_a_conflict_or_counted_anew(store: &Elasticsearch) {
    wait(async {
        let trial = SingleTrial::loaded(store, 91, Lock::Soft).await;
        let mut client = Clients::of(store, &trial.place, trial.wanted).connect().await.unwrap();
        let scans = [trial.scan(5), trial.scan(7)];
        client.round.given = vec![None; 2];
        client.round.left = vec![0, 1];
        client.count(&scans).await.unwrap();
        assert_eq!(client.round.next, [(0, Ids::made(0, 6), 6), (1, Ids::made(1, 1), 1)]);
        assert!(client.round.left.is_empty());
        put(store, &trial.place, &Ids::made(0, 6).to_string(), &json!({})).await;
        client.write(&scans).await.unwrap();
        assert_eq!(client.round.left, [0], "one is left, and the other was created");
        assert_eq!(client.round.given, [None, Some((Ids::made(1, 1), 1))]);

        // a gap: the id that follows on the number of documents is taken
        put(store, &trial.place, &Ids::made(2, 2).to_string(), &json!({})).await;
        let (parcel_two, parcel_three) = (trial.scan(14), trial.scan(21));
        assert_eq!(insert(&mut client, from_ref(&parcel_two)).await, (Attempt::Conflict, vec![]));
        let (done, _) = insert(&mut client, &[parcel_two.clone(), parcel_three]).await;
        assert!(matches!(&done, Attempt::Unknown(fault) if fault.message.contains("a gap")), "{done:?}");

        // without a lock, the document that is there is overwritten
        let wanted = Requirements { lock: Lock::None, ..trial.wanted };
        let mut client = Clients::of(store, &trial.place, wanted).connect().await.unwrap();
        assert_eq!(insert(&mut client, from_ref(&parcel_two)).await.0, Attempt::Ok);
        let there = trial.rows(store).await;
        assert!(there.contains(&StoredScan::with(&parcel_two, Ids::made(2, 2), 2)), "{there:?}");
    });
}

fn what_is_no_scan_is_read_back_and_found_nowhere(store: &Elasticsearch) {
    wait(async {
        let trial = SingleTrial::loaded(store, 92, Lock::None).await;
        for id in ["theirs", "007", "18446744073709551616"] {
            put(store, &trial.place, id, &json!({"hash": ["x"], "count": {}, "date": "soon"})).await;
        }
        let rows = trial.rows(store).await;
        assert_eq!(rows.len(), 8);
        let none = StoredScan::new(None, None, false, [b""; 4]);
        assert_eq!(rows.iter().filter(|stored| **stored == none).count(), 3, "{rows:?}");
        let size = ParcelsStore::size(store, &trial.place).await.unwrap();
        assert_eq!(size.rows, 8);
    });
}

/// An insert of two parcels, of which another client has locked one, gives the other one up again.
fn a_lock_is_given_up_where_another_is_not_had(store: &Elasticsearch) {
    wait(async {
        let trial = SingleTrial::loaded(store, 93, Lock::Hard).await;
        let connector = Clients::of(store, &trial.place, trial.wanted);
        let (mut one, mut other) = (connector.connect().await.unwrap(), connector.connect().await.unwrap());
        let scans = [trial.scan(5), trial.scan(7)];
        let last = scans.iter().map(Scan::hash).max().unwrap();
        let first = scans.iter().map(Scan::hash).min().unwrap();
        let held = one.locks.as_mut().unwrap().acquire(last, &mut Patience::default()).await.unwrap();
        assert_eq!(insert(&mut other, &scans).await, (Attempt::Conflict, vec![]));
        assert!(other.lock_wait() == Duration::ZERO && other.held.is_empty());
        let locks = one.locks.as_mut().unwrap();
        let free = locks.acquire(first, &mut Patience::default()).await.unwrap();
        locks.release(free).await;
        locks.release(held).await;
        assert_eq!(insert(&mut other, &scans).await.0, Attempt::Ok);
    });
}

/// What of a bulk request was done, left, failed or is in doubt.
#[test]
fn each_document_of_a_bulk_request_ends_by_itself() {
    let created = r#"{"create":{"status":201}}"#;
    let written = r#"{"index":{"status":200}}"#;
    let conflict = r#"{"create":{"status":409,"error":{"type":"version_conflict_engine_exception"}}}"#;
    let full = r#"{"create":{"status":429,"error":{"type":"es_rejected_execution_exception"}}}"#;
    let broken = r#"{"create":{"status":500}}"#;
    let take = |items: &[&str]| {
        let mut round = Round { given: vec![None; 2], next: vec![(0, 9, 1), (1, 17, 1)], ..Round::default() };
        let answer = format!(r#"{{"errors":true,"items":[{}]}}"#, items.join(","));
        let done = round.take(serde_json::from_str(&answer).unwrap());
        (done, round.given, round.left)
    };
    let (one, other) = (Some((9, 1)), Some((17, 1)));
    assert_eq!(take(&[created, written]), (Ok(()), vec![one, other], vec![]));
    assert_eq!(take(&[conflict, created]), (Ok(()), vec![None, other], vec![0]));
    let (done, given, left) = take(&[full, created]);
    assert!(matches!(done, Err(Attempt::Failed(_))), "{done:?}");
    assert_eq!((given, left), (vec![None, other], vec![]));
    for items in [[full, broken], [broken, full]] {
        let (done, ..) = take(&items);
        assert!(matches!(&done, Err(Attempt::Unknown(fault)) if fault.connection_lost), "{done:?}");
    }
    for items in [&[created][..], &[created, created, created]] {
        let (done, given, _) = take(items);
        assert!(matches!(&done, Err(Attempt::Unknown(fault)) if fault.connection_lost), "{done:?}");
        assert_eq!(given, [None, None]);
    }
}
