use acidtest_engine::Attempt;
use acidtest_model::{Durability, Lock};
use acidtest_testbed::{
    self as testbed, Private,
    parcels::{ParcelsRun, Single, few},
    wait,
};
use acidtest_workloads::{
    Owner, Store,
    parcels::{Found, Inserted, Operations, Parameters, Parcel},
};

use super::*;

fn connector(tarantool: &Tarantool) -> impl Fn(&Place, Requirements) -> ParcelsConnector {
    let server = tarantool.server.clone();
    move |place, wanted| ParcelsConnector { server: server.clone(), name: trial::name(place, OBJECT), wanted }
}

/// Puts scans with ids from this one on into a parcel, as somebody else may do: as many as there are counts.
async fn plant(tarantool: &Tarantool, place: &Place, parcel: &Parcel, id: u64, counts: &[i64]) {
    let code = "local name, hash, id, counts = ...
                for i, count in ipairs(counts) do
                  box.space[name]:insert({id + i - 1, hash, '', count, '', '', 0})
                end";
    let arguments = |args: &mut Encoder| {
        args.array(4).str(&trial::name(place, OBJECT)).str(parcel.hash()).u64(id);
        args.array(length(counts));
        for count in counts {
            args.i64(*count);
        }
    };
    tarantool.server.reach().await.unwrap().eval(code, arguments).await.unwrap();
}

/// Runs Lua with the name of a trial's space, and returns the number that it returns.
async fn ask(tarantool: &Tarantool, code: &str, name: &str) -> u64 {
    let mut connection = tarantool.server.reach().await.unwrap();
    let name = |args: &mut Encoder| {
        args.array(1).str(name);
    };
    let mut values = connection.eval(code, name).await.unwrap();
    values.tuple(1).unwrap();
    values.u64().unwrap()
}

#[test]
fn scans_get_the_next_counts_of_their_parcel_and_an_eighth_is_refused() {
    let Some(mut private) = Private::start("tarantool", Durability::None) else { return };
    let tarantool = private.open(Tarantool::open);
    wait(testbed::parcels::singles(&tarantool, &Lock::ALL, connector(&tarantool)));
}

#[test]
fn what_is_no_scan_is_handed_on_and_counts_as_a_row() {
    let Some(mut private) = Private::start("tarantool", Durability::None) else { return };
    let tarantool = private.open(Tarantool::open);
    let spoil = async |place: &Place, parcel: &Parcel| plant(&tarantool, place, parcel, 901, &[9, -1]).await;
    wait(testbed::parcels::spoiled(&tarantool, &Lock::ALL, connector(&tarantool), spoil));
}

#[test]
fn a_parcel_with_more_rows_than_a_count_can_have_is_full_with_and_without_an_index() {
    let Some(mut private) = Private::start("tarantool", Durability::None) else { return };
    let tarantool = private.open(Tarantool::open);
    wait(async {
        for (trial, lock) in (1..).zip(Lock::ALL) {
            let single = Single::loaded(&tarantool, trial, lock).await;
            plant(&tarantool, &single.place, &Parcel::of(0), 1_000, &[1; 300]).await;
            for index in [Index::Hash, Index::None] {
                if index == Index::None {
                    let drop = "box.space[...].index.hash:drop() return 0";
                    ask(&tarantool, drop, &trial::name(&single.place, OBJECT)).await;
                }
                let wanted = Requirements { index, ..single.wanted };
                let mut client = connector(&tarantool)(&single.place, wanted).connect().await.unwrap();
                let mut inserted = Inserted::default();
                let scans = [single.scan(5), single.scan(7)];
                assert_eq!(client.insert(&scans, &mut inserted).await, Attempt::Ok, "{lock}");
                let count = if index == Index::Hash { 1 } else { 2 };
                let [None, Some((_, given))] = inserted.each() else { panic!("{lock}: {inserted:?}") };
                assert_eq!(*given, count, "{lock}");
                let mut found = Found::default();
                assert_eq!(client.by_hash(&Parcel::of(0), &mut found).await, Attempt::Ok, "{lock}");
                assert_eq!(found.each().len(), 305, "{lock}");
            }
        }
    });
}

/// Latches on several parcels: they are waited for, and given up, all together.
#[test]
fn latches_on_several_parcels_are_had_together_or_not_at_all() {
    let Some(mut private) = Private::start("tarantool", Durability::None) else { return };
    let tarantool = private.open(Tarantool::open);
    wait(async {
        let single = Single::loaded(&tarantool, 1, Lock::Hard).await;
        let name = trial::name(&single.place, OBJECT);
        let scans = [single.scan(5), single.scan(7)];
        let mut hashes = [scans[0].hash(), scans[1].hash()];
        hashes.sort_unstable();
        let [first, last] = hashes;
        let mut connection = tarantool.server.reach().await.unwrap();
        let mut acquire = async |hashes: &[&str], patience: f64| {
            let arguments = |args: &mut Encoder| {
                args.array(4).str("acquire").array(length(hashes));
                for hash in hashes {
                    args.str(hash);
                }
                args.f64(60.0).f64(patience);
            };
            let mut values = connection.call(&name, arguments).await.unwrap();
            values.tuple(1).unwrap();
            (!values.take_nil()).then(|| values.u64().unwrap())
        };
        let theirs = acquire(&[last], 0.0).await.unwrap();
        assert_eq!(acquire(&[last, first], 0.01).await, None);
        // the one that was had meanwhile is free again
        let ours = acquire(&[first], 0.0).await.expect("the latch is still held");

        let settle = async |hashes: &[&str], token: u64| {
            let mut connection = tarantool.server.reach().await.unwrap();
            let arguments = |args: &mut Encoder| {
                args.array(4).str("settle").array(length(hashes));
                for hash in hashes {
                    args.str(hash);
                }
                args.u64(token).array(1);
                write_scan(args, None, &scans[1], 1);
            };
            let mut values = connection.call(&name, arguments).await.unwrap();
            values.tuple(1).unwrap();
            !values.take_nil()
        };
        // one of them is held by another: nothing is inserted, and ours is given up
        assert!(!settle(&[first, last], ours).await);
        assert_eq!(single.rows(&tarantool).await.len(), 5);
        assert!(acquire(&[first], 0.0).await.is_some());
        assert!(settle(&[last], theirs).await);
        assert_eq!(single.rows(&tarantool).await.len(), 6);
        assert!(acquire(&[last], 0.0).await.is_some());
    });
}

/// Of two scans one parcel's count is not right any more: none is inserted.
#[test]
fn a_stale_count_changes_nothing() {
    let Some(mut private) = Private::start("tarantool", Durability::None) else { return };
    let tarantool = private.open(Tarantool::open);
    wait(async {
        let single = Single::loaded(&tarantool, 1, Lock::Soft).await;
        let name = trial::name(&single.place, OBJECT);
        let mut connection = tarantool.server.reach().await.unwrap();
        for (counts, is_done) in [([1, 5], false), ([2, 6], false), ([1, 6], true)] {
            let scans = |args: &mut Encoder| {
                args.array(2).str("insert_if_next").array(2);
                write_scan(args, None, &single.scan(7), counts[0]);
                write_scan(args, None, &single.scan(5), counts[1]);
            };
            let mut values = connection.call(&name, scans).await.unwrap();
            values.tuple(1).unwrap();
            assert_eq!(!values.take_nil(), is_done, "{counts:?}");
            assert_eq!(single.rows(&tarantool).await.len(), if is_done { 7 } else { 5 }, "{counts:?}");
        }
    });
}

#[test]
fn the_size_is_that_of_tuples_and_of_both_indexes() {
    let Some(mut private) = Private::start("tarantool", Durability::None) else { return };
    let tarantool = private.open(Tarantool::open);
    let sizes = [Index::Hash, Index::None].map(|index| {
        let parameters = Parameters { scans: 20_000, parcels: 5_000, index, ..few("insert") };
        let run = ParcelsRun::new(Lock::Native, index as u32, parameters);
        run.load(&tarantool);
        wait(ParcelsStore::size(&tarantool, &run.place)).unwrap()
    });
    for size in &sizes {
        assert_eq!((size.rows, size.medium), (20_000, Medium::Memory));
        assert!((20_000 * 40..20_000 * 100).contains(&size.data_bytes.unwrap()), "{size:?}");
    }
    let [with, without] = sizes.map(|size| size.index_bytes.unwrap());
    assert!(without >= 20_000 * 8 && with >= 2 * 20_000 * 8 && with > without, "{with} {without}");
}

#[test]
fn a_sequence_goes_with_its_trial_and_with_its_namespace() {
    let Some(mut private) = Private::start("tarantool", Durability::None) else { return };
    let tarantool = private.open(Tarantool::open);
    let sequences = "return #box.space._vsequence:select()";
    wait(async {
        let place = Single::loaded(&tarantool, 1, Lock::Native).await.place;
        let name = trial::name(&place, OBJECT);
        assert_eq!(ask(&tarantool, sequences, &name).await, 1);
        ParcelsStore::unload(&tarantool, &place).await.unwrap();
        assert_eq!(ask(&tarantool, sequences, &name).await, 0);
        // one that an interrupted removal has left belongs to the trial and the namespace
        let orphan = "box.schema.sequence.create(... .. '_seq') return 0";
        ask(&tarantool, orphan, &name).await;
        ParcelsStore::unload(&tarantool, &place).await.unwrap();
        assert_eq!(ask(&tarantool, sequences, &name).await, 0);
        ask(&tarantool, orphan, &name).await;
        let owner = tarantool.owner(&place.namespace).await.unwrap();
        assert_eq!(owner, Owner::Stranger);
        tarantool.remove(&place.namespace).await.unwrap();
        assert_eq!(ask(&tarantool, sequences, &name).await, 0);
    });
}

#[test]
fn a_tuple_that_is_no_scan_is_handed_on_without_what_it_lacks() {
    type Write = fn(&mut Encoder) -> &mut Encoder;
    let read = |write: Write| {
        let mut encoder = Encoder::new();
        write(&mut encoder);
        stored(Reader::new(encoder.as_slice()))
    };
    let texts = [&b"ABCDEFGHIJK"[..], b"ACC", b"0123456789", b"ABCDE"];
    let whole = read(|e| {
        e.array(8).u64(7).str("ABCDEFGHIJK").str("ACC").u64(9).str("0123456789").str("ABCDE").f64(1.5).nil()
    });
    assert_eq!(whole, StoredScan::new(Some(7), Some(9), true, texts));
    let undated =
        read(|e| e.array(6).u64(7).str("ABCDEFGHIJK").str("ACC").i64(-1).str("0123456789").str("ABCDE"));
    assert_eq!(undated, StoredScan::new(Some(7), None, false, texts));
    let nothing: [Write; 4] = [|e| e.array(0), |e| e.nil(), |e| e.array(1).str("x"), |e| e.u64(7)];
    for write in nothing {
        assert_eq!(read(write), StoredScan::new(None, None, false, [b""; 4]));
    }
}
