use acidtest_engine::Attempt;
use acidtest_model::Durability;
use acidtest_testbed::{
    self as testbed, NAMESPACE, Private,
    parcels::{ParcelsRun, Single, few},
    wait,
};
use acidtest_workloads::parcels::{Found, Index, Inserted, Operations, Parcel};

use super::*;
use crate::made_up::{self, array, bulk};

fn connector(redis: &Redis) -> impl Fn(&Place, Requirements) -> ParcelsConnector {
    let server = redis.server.clone();
    move |place, wanted| ParcelsConnector {
        server: server.clone(),
        lock: wanted.lock,
        names: Arc::new(Names::of(place)),
    }
}

/// Puts a scan with this id and count into a parcel, as somebody else may do.
async fn plant(redis: &Redis, place: &Place, parcel: &Parcel, id: u64, count: i64) {
    let names = Names::of(place);
    let mut connection = redis.server.reach().await.unwrap();
    let mut both = pipe();
    both.cmd("HSET").arg(names.scan(id)).arg("hash").arg(parcel.hash()).arg("count").arg(count);
    both.cmd("RPUSH").arg(names.list(parcel.hash())).arg(id);
    connection.ask_all(&both).await.unwrap();
}

#[test]
fn scans_get_the_next_counts_of_their_parcel_and_an_eighth_is_refused() {
    let Some(mut private) = Private::start("redis", Durability::None) else { return };
    let redis = private.open(Redis::open);
    wait(testbed::parcels::singles(&redis, &Lock::ALL, connector(&redis)));
}

#[test]
fn what_is_no_scan_is_handed_on_and_counts_as_a_row() {
    let Some(mut private) = Private::start("redis", Durability::None) else { return };
    let redis = private.open(Redis::open);
    let spoil = async |place: &Place, parcel: &Parcel| {
        plant(&redis, place, parcel, 901, 9).await;
        plant(&redis, place, parcel, 902, -1).await;
    };
    wait(testbed::parcels::spoiled(&redis, &Lock::ALL, connector(&redis), spoil));
}

#[test]
fn a_parcel_with_more_rows_than_a_count_can_have_is_full() {
    let Some(mut private) = Private::start("redis", Durability::None) else { return };
    let redis = private.open(Redis::open);
    wait(async {
        for (trial, lock) in (1..).zip(Lock::ALL) {
            let single = Single::loaded(&redis, trial, lock).await;
            for id in 1_000..1_300 {
                plant(&redis, &single.place, &Parcel::of(0), id, 1).await;
            }
            let mut client = connector(&redis)(&single.place, single.wanted).connect().await.unwrap();
            let mut inserted = Inserted::default();
            let scans = [single.scan(5), single.scan(7)];
            assert_eq!(client.insert(&scans, &mut inserted).await, Attempt::Ok, "{lock}");
            assert!(matches!(inserted.each(), [None, Some((_, 1))]), "{lock}: {inserted:?}");
            let mut found = Found::default();
            assert_eq!(client.by_hash(&Parcel::of(0), &mut found).await, Attempt::Ok, "{lock}");
            assert_eq!(found.each().len(), 305, "{lock}");
        }
    });
}

/// A list may name what is no hash, and a key of a scan may be of another type.
#[test]
fn what_is_of_another_type_is_torn() {
    let Some(mut private) = Private::start("redis", Durability::None) else { return };
    let redis = private.open(Redis::open);
    wait(async {
        let single = Single::loaded(&redis, 1, Lock::Native).await;
        let names = Names::of(&single.place);
        let mut connection = redis.server.reach().await.unwrap();
        let mut spoil = pipe();
        spoil.cmd("SET").arg(names.scan(900)).arg("text");
        spoil.cmd("RPUSH").arg(names.list(Parcel::of(0).hash())).arg(&[900, 901]);
        connection.ask_all(&spoil).await.unwrap();
        let mut client = connector(&redis)(&single.place, single.wanted).connect().await.unwrap();
        let mut found = Found::default();
        assert_eq!(client.by_id(900, &mut found).await, Attempt::Ok);
        assert_eq!(found.each(), [torn(Some(900))]);
        assert_eq!(client.by_id(901, &mut Found::default()).await, Attempt::Refused);
        found.clear();
        assert_eq!(client.by_hash(&Parcel::of(0), &mut found).await, Attempt::Ok);
        assert_eq!(found.each()[5..], [torn(Some(900)), torn(Some(901))]);
        assert_eq!(single.rows(&redis).await.last(), Some(&torn(Some(900))));
    });
}

/// Another client's lock on one parcel of several holds the insert back, and none of the others stays locked meanwhile.
#[test]
fn locks_on_several_parcels_are_taken_together_or_not_at_all() {
    let Some(mut private) = Private::start("redis", Durability::None) else { return };
    let redis = private.open(Redis::open);
    wait(async {
        let single = Single::loaded(&redis, 1, Lock::Hard).await;
        let names = Names::of(&single.place);
        let mut connection = redis.server.reach().await.unwrap();
        let (full, empty) = (single.scan(5), single.scan(7));
        let mut hold = cmd("SET");
        hold.arg(names.lock(empty.hash())).arg("theirs");
        connection.ask(&hold).await.unwrap();

        let mut client = connector(&redis)(&single.place, single.wanted).connect().await.unwrap();
        let mut inserted = Inserted::default();
        let both = [full.clone(), empty.clone()];
        let insert = client.insert(&both, &mut inserted);
        let watch = async {
            // the client has asked for the locks more than once
            let mut asked = 0;
            while asked < 3 {
                let stats = connection.ask(cmd("INFO").arg("commandstats")).await.unwrap().string().unwrap();
                let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
                asked = calls.and_then(|calls| calls.split(',').next()?.parse().ok()).unwrap_or(0);
            }
            let locked = connection.ask(cmd("EXISTS").arg(names.lock(full.hash()))).await;
            assert_eq!(locked, Ok(Reply::Integer(0)));
            connection.ask(cmd("DEL").arg(names.lock(empty.hash()))).await.unwrap();
        };
        let (done, ()) = tokio::join!(insert, watch);
        assert_eq!(done, Attempt::Ok);
        assert_eq!(inserted.each(), [Some((6, 6)), Some((7, 1))]);
        let mut left = cmd("EXISTS");
        left.arg(names.lock(full.hash())).arg(names.lock(empty.hash()));
        assert_eq!(connection.ask(&left).await, Ok(Reply::Integer(0)));
    });
}

/// A lock that was lost meanwhile fences the insert off, and the other locks are given up all the same.
#[test]
fn a_holder_without_all_its_locks_inserts_nothing() {
    let Some(mut private) = Private::start("redis", Durability::None) else { return };
    let redis = private.open(Redis::open);
    wait(async {
        let single = Single::loaded(&redis, 1, Lock::Hard).await;
        let names = Names::of(&single.place);
        let mut session = redis.session().await.unwrap();
        let (ours, lost) = (single.scan(5), single.scan(7));
        let mut hold = pipe();
        hold.cmd("SET").arg(names.lock(ours.hash())).arg(3);
        hold.cmd("SET").arg(names.lock(lost.hash())).arg(4);
        session.ask_all(&hold).await.unwrap();
        let first = session
            .run(&SETTLE, |settle| {
                settle.arg(4).arg(&names.ids).arg(names.lock(ours.hash())).arg(names.lock(lost.hash()));
                settle.arg(names.list(ours.hash())).arg(3).arg(2).arg(&names.scan).arg(6);
                add_texts(settle, &ours);
            })
            .await
            .unwrap();
        assert_eq!(first, Reply::Nil);
        assert_eq!(single.rows(&redis).await.len(), 5);
        let mut left = cmd("MGET");
        left.arg(names.lock(ours.hash())).arg(names.lock(lost.hash()));
        let left: [_; 2] = session.ask(&left).await.unwrap().exactly().unwrap();
        assert_eq!(left, [Reply::Nil, Reply::Text(b"4")]);
    });
}

#[test]
fn the_lists_are_the_index_and_all_other_keys_the_data() {
    let Some(mut private) = Private::start("redis", Durability::None) else { return };
    let redis = private.open(Redis::open);
    let run = ParcelsRun::new(Lock::Native, 1, few("insert"));
    run.load(&redis);
    let size = wait(ParcelsStore::size(&redis, &run.place)).unwrap();
    assert_eq!((size.rows, size.medium), (200, acidtest_workloads::Medium::Memory));
    assert!(size.source.starts_with("MEMORY USAGE of each key"), "{}", size.source);
    wait(async {
        let mut connection = redis.server.reach().await.unwrap();
        let names = Names::of(&run.place);
        let usage = async |connection: &mut Connection, key: String| -> u64 {
            let mut usage = cmd("MEMORY");
            usage.arg("USAGE").arg(key).arg("SAMPLES").arg(0);
            connection.ask(&usage).await.unwrap().integer().unwrap()
        };
        let mut data = usage(&mut connection, names.ids.clone()).await;
        for id in 1..=200 {
            data += usage(&mut connection, format!("{}{id}", names.scan)).await;
        }
        assert_eq!(size.data_bytes, Some(data));
        let lists = connection.ask(cmd("KEYS").arg("*:parcel:*")).await.unwrap().array().unwrap();
        let lists: Vec<_> = lists.map(|list| list.string().unwrap()).collect();
        let mut index = 0;
        for list in lists {
            index += usage(&mut connection, list).await;
        }
        assert_eq!(size.index_bytes, Some(index));
    });
}

/// What a made-up server answers to an insert must not be taken for what was inserted.
#[test]
fn an_answer_that_makes_no_sense_costs_the_connection() {
    let int = |number: i64| format!(":{number}\r\n").into_bytes();
    let none = || b"*-1\r\n".to_vec();
    let wrong = [
        array(&[]),
        array(&[int(6)]),
        array(&[int(6), int(1), int(2)]),
        array(&[int(6), int(8)]),
        array(&[int(-6), int(1)]),
        array(&[int(0), int(1)]),
        array(&[int(6), int(-1)]),
        array(&[bulk(b"x"), int(1)]),
        none(),
        b"+OK\r\n".to_vec(),
    ];
    for answer in wrong {
        let shown = String::from_utf8_lossy(&answer).into_owned();
        let (address, _asked) = made_up::server(move |command| match &command[0][..] {
            b"EVALSHA" => answer.clone(),
            _ => b"+OK\r\n".to_vec(),
        });
        let redis = wait(Redis::open(&address)).unwrap();
        let place = Place { namespace: NAMESPACE.to_owned(), trial: 1 };
        let wanted = Requirements { lock: Lock::Native, index: Index::Hash, batch: 1 };
        let scan = few("insert").loading(1).rows().next().unwrap().scan;
        let ended = wait(async {
            let mut client = connector(&redis)(&place, wanted).connect().await.unwrap();
            client.insert(&[scan], &mut Inserted::default()).await
        });
        assert!(matches!(&ended, Attempt::Unknown(fault) if fault.connection_lost), "{shown}: {ended:?}");
    }
}

#[test]
fn a_time_is_written_in_seconds_or_is_none() {
    let mut date = String::new();
    let time = |parts: &[&[u8]]| array(&parts.iter().map(|part| bulk(part)).collect::<Vec<_>>());
    assert_eq!(write_date(Reply::whole(&time(&[b"17", b"42"])), &mut date), Ok(()));
    assert_eq!(date, "17.000042");
    for wrong in [time(&[b"17"]), time(&[b"17", b"x"]), b"$-1\r\n".to_vec(), b"+OK\r\n".to_vec()] {
        assert_eq!(write_date(Reply::whole(&wrong), &mut date), Err(nonsense()));
    }
}
