//! Single operations, and what somebody else has put among the scans.

use acidtest_model::Durability;
use acidtest_testbed::{NAMESPACE, parcels::Single, wait};

use super::*;

fn opened(folder: &tempfile::TempDir) -> Fjall {
    Fjall { files: Arc::new(Files::at(&folder.path().join("db"), Some(Durability::None))) }
}

/// Puts a scan of a parcel and its entry of the index there, past the adapter.
fn put(store: &Fjall, place: &Place, hash: &str, id: u64, value: &[u8]) {
    let database = store.files.database().unwrap();
    keyspace(&database, &named(place, SCANS)).unwrap().insert(id.to_be_bytes(), value).unwrap();
    let entry = [hash.as_bytes(), &id.to_be_bytes()].concat();
    keyspace(&database, &named(place, BY_HASH)).unwrap().insert(entry, []).unwrap();
}

#[test]
fn single_operations_count_refuse_and_find() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(&folder);
    let connect = |place: &Place, wanted| FjallConnector::of(&store.files, place, wanted);
    wait(acidtest_testbed::parcels::singles(&store, &Lock::ALL, connect));
}

#[test]
fn what_somebody_else_has_put_there_counts_and_is_read_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(&folder);
    let connect = |place: &Place, wanted| FjallConnector::of(&store.files, place, wanted);
    let spoil = async |place: &Place, parcel: &Parcel| {
        for (id, count) in [(100_u64, 9_i64), (101, -1)] {
            let value = [&count.to_le_bytes()[..], parcel.hash().as_bytes()].concat();
            put(&store, place, parcel.hash(), id, &value);
        }
    };
    wait(acidtest_testbed::parcels::spoiled(&store, &Lock::ALL, connect, spoil));
}

/// Counts by the index and by all scans agree on a parcel of more than seven rows, some of which are no scans.
#[test]
fn more_than_seven_rows_are_refused_with_and_without_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(&folder);
    let single = wait(Single::loaded(&store, 1, Lock::None));
    let scan = single.scan(5);
    for id in 50..350 {
        put(&store, &single.place, scan.hash(), id, &encode(&scan, 200, 1));
    }
    // rows that are no scans, whose keys are no ids
    {
        let database = store.files.database().unwrap();
        let scans = keyspace(&database, &named(&single.place, SCANS)).unwrap();
        scans.insert("garbled", "").unwrap();
        scans.insert([u8::MAX; 9], "garbled").unwrap();
    }
    for lock in Lock::ALL {
        for index in [Index::Hash, Index::None] {
            let wanted = Requirements { lock, index, ..single.wanted };
            let connector = FjallConnector::of(&store.files, &single.place, wanted);
            let mut client = wait(connector.connect()).unwrap();
            let mut inserted = Inserted::default();
            assert_eq!(
                wait(client.insert(&[single.scan(6)], &mut inserted)),
                Attempt::Ok,
                "{lock}, {index:?}"
            );
            assert_eq!(inserted.each(), [None], "{lock}, {index:?}");
            let mut found = Found::default();
            assert_eq!(wait(client.by_hash(&Parcel::of(0), &mut found)), Attempt::Ok, "{lock}, {index:?}");
            assert_eq!(found.each().len(), 305, "{lock}, {index:?}");
        }
    }
    let rows = wait(single.rows(&store));
    assert_eq!(rows.iter().filter(|stored| stored.id.is_none()).count(), 2);
}

/// An entry of the index without its scan is handed on as a scan that is not whole, and the ids that are given go on
/// above the highest, also where another process has given it; there is none above the last.
#[test]
fn ids_go_on_above_the_highest_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(&folder);
    let single = wait(Single::loaded(&store, 1, Lock::Soft));
    let insert = |number: u64| {
        let mut client =
            wait(FjallConnector::of(&store.files, &single.place, single.wanted).connect()).unwrap();
        let mut inserted = Inserted::default();
        let done = wait(client.insert(&[single.scan(number)], &mut inserted));
        (done, inserted.each().first().copied().flatten())
    };
    assert_eq!(insert(5), (Attempt::Ok, Some((6, 6))));
    put(&store, &single.place, "AAAAAAAAAAA", 1_000, b"");
    assert_eq!(insert(6), (Attempt::Ok, Some((1_001, 7))));

    let database = store.files.database().unwrap();
    let hash = Parcel::of(0);
    let entry = [hash.hash().as_bytes(), &[0; 8]].concat();
    keyspace(&database, &named(&single.place, BY_HASH)).unwrap().insert(entry, []).unwrap();
    let mut found = Found::default();
    let mut client = wait(FjallConnector::of(&store.files, &single.place, single.wanted).connect()).unwrap();
    assert_eq!(wait(client.by_hash(&hash, &mut found)), Attempt::Ok);
    assert_eq!(found.each()[0], StoredScan::new(Some(0), None, false, [b""; 4]));
    assert_eq!(found.each().len(), 8);

    put(&store, &single.place, "AAAAAAAAAAA", u64::MAX, b"");
    let (done, given) = insert(7);
    assert!(matches!(&done, Attempt::Failed(fault) if fault.message.contains("as ids")), "{done:?}");
    assert_eq!(given, None);
}

/// A transaction that has counted is refused once another client has inserted a scan of the parcel, and leaves nothing.
#[test]
fn a_stale_count_is_a_conflict_unless_unprotected() {
    for (lock, is_refused) in [(Lock::None, false), (Lock::Soft, true), (Lock::Native, true)] {
        let folder = tempfile::tempdir().unwrap();
        let store = opened(&folder);
        let single = wait(Single::loaded(&store, 1, lock));
        let connect =
            || wait(FjallConnector::of(&store.files, &single.place, single.wanted).connect()).unwrap();
        let (one, mut other) = (connect(), connect());
        let scans = [single.scan(5)];
        let mut tally = ScanCounts::default();
        let counted = one.table.begin().unwrap();
        let transaction = if lock == Lock::None {
            tally.count(&one.table.snapshot(), &scans).unwrap();
            drop(counted);
            None
        } else {
            tally.count(&counted, &scans).unwrap();
            Some(counted)
        };
        let mut inserted = Inserted::default();
        assert_eq!(wait(other.insert(&[single.scan(6)], &mut inserted)), Attempt::Ok);
        inserted.clear();
        let transaction = transaction.unwrap_or_else(|| one.table.begin().unwrap());
        let done = write(transaction, &scans, &tally.counts, &one.next_id, &mut inserted).unwrap();
        assert_eq!(done, if is_refused { Attempt::Conflict } else { Attempt::Ok }, "{lock}");
        let rows = wait(single.rows(&store));
        assert_eq!(rows.len(), if is_refused { 6 } else { 7 }, "{lock}");
        let sixths = rows.iter().filter(|stored| stored.count == Some(6)).count();
        assert_eq!(sixths, if is_refused { 1 } else { 2 }, "{lock}");
    }
}

#[test]
fn a_namespace_s_trials_do_not_share_a_counter() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(&folder);
    for trial in [1, 2, 1] {
        let single = wait(Single::loaded(&store, trial, Lock::None));
        assert_eq!(single.place.namespace, NAMESPACE);
        let mut client =
            wait(FjallConnector::of(&store.files, &single.place, single.wanted).connect()).unwrap();
        let mut inserted = Inserted::default();
        assert_eq!(wait(client.insert(&[single.scan(5)], &mut inserted)), Attempt::Ok);
        assert_eq!(inserted.each(), [Some((6, 6))]);
        drop(client);
        wait(ParcelsStore::unload(&store, &single.place)).unwrap();
    }
}
