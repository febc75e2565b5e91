use acidtest_engine::Attempt;
use acidtest_model::{Durability, Lock};
use acidtest_testbed::{NAMESPACE, Private, operations, wait};
use acidtest_workloads::records::Refresh;

use super::*;
use crate::made_up::{self, array, bulk};

fn connector(redis: &Redis) -> impl operations::Connect<RecordsConnector> {
    let server = redis.server.clone();
    move |place, wanted| RecordsConnector {
        server: server.clone(),
        wanted,
        names: Arc::new(Names::of(place, &wanted.layout)),
    }
}

#[test]
fn what_is_not_there_or_is_there_already_is_refused_and_stays_so() {
    let Some(mut private) = Private::start("redis", Durability::None) else { return };
    let redis = private.open(Redis::open);
    wait(operations::singles(&redis, &Lock::ALL, connector(&redis)));
}

#[test]
fn a_transaction_sees_what_it_wrote_and_is_done_whole_or_not_at_all() {
    let Some(mut private) = Private::start("redis", Durability::None) else { return };
    let redis = private.open(Redis::open);
    let locks = [Lock::None, Lock::Soft, Lock::Native];
    wait(operations::transactions(&redis, &locks, connector(&redis)));
}

#[test]
fn only_the_key_of_a_record_has_a_hash() {
    assert_eq!(hash_of(&key_name(0)), Some(6_284_781_860_667_377_211));
    assert_eq!(hash_of("user0"), Some(0));
    for key in ["user", "user01", "user+1", "user-1", "user1x", "theirs", ""] {
        assert_eq!(hash_of(key), None, "{key}");
    }
}

#[test]
fn what_is_kept_and_no_record_is_torn_and_an_answer_of_another_shape_a_fault() {
    let text = |text: &str| bulk(text.as_bytes());
    let nil = || b"$-1\r\n".to_vec();
    let wanted = [VERSION.to_owned(), "field0".to_owned()];
    let take = |reply: &[u8]| {
        let mut answer = Answer::default();
        take(Reply::whole(reply), &wanted, &mut answer).map(|found| (found, format!("{answer:?}")))
    };
    let told = |tell: &dyn Fn(&mut Answer)| {
        let mut answer = Answer::default();
        tell(&mut answer);
        format!("{answer:?}")
    };
    let record = told(&|answer| answer.record(7, [&b"x"[..]]));
    assert_eq!(take(&array(&[text("7"), text("x")])), Ok((Lookup::Record(7), record)));
    assert_eq!(take(&array(&[nil(), nil()])), Ok((Lookup::Nothing, told(&|_| {}))));
    for version in
        ["seven", "", "-1", "+7", "07", "7.0", "18446744073709551616"].map(text).into_iter().chain([nil()])
    {
        let torn = Ok((Lookup::Torn, told(&Answer::torn)));
        assert_eq!(take(&array(&[version.clone(), text("x")])), torn, "{version:?}");
    }
    let lengths = [0, 1, 3].map(|length| array(&vec![text("7"); length]));
    for nonsense in lengths.into_iter().chain([nil(), b"+OK\r\n".to_vec(), text("7")]) {
        assert!(matches!(take(&nonsense), Err(Attempt::Failed(fault)) if fault.connection_lost));
    }
}

#[test]
fn what_is_no_record_is_told_as_torn_and_not_written_over() {
    let Some(mut private) = Private::start("redis", Durability::None) else { return };
    let redis = private.open(Redis::open);
    let spoil = async |place: &Place, key: &str| {
        let mut connection = redis.server.reach().await.unwrap();
        let mut spoil = cmd("HSET");
        spoil.arg(format!("{}record:{key}", all(place))).arg(VERSION).arg("seven");
        assert_eq!(connection.ask(&spoil).await, Ok(Reply::Integer(0)));
    };
    wait(operations::garbled(&redis, &Lock::ALL, connector(&redis), spoil));
}

/// The records that a server shows, as (key, version, tag), in the order of their keys.
fn seen(redis: &Redis, layout: &Layout) -> Result<Vec<(String, u64, Option<u64>)>, StoreError> {
    let mut seen = Vec::new();
    let mut each = |key: &str, version, tag| seen.push((key.to_owned(), version, tag));
    wait(redis.state(&Place { namespace: NAMESPACE.to_owned(), trial: 1 }, layout, &mut each))?;
    seen.sort_unstable();
    Ok(seen)
}

/// A proxy may not support patterns, and a key need not be text.
#[test]
fn keys_are_read_and_removed_by_their_names_whatever_a_scan_shows() {
    let layout = Layout { records: 1, fields: 1, field_bytes: 16, scans: false };
    let place = Place { namespace: NAMESPACE.to_owned(), trial: 1 };
    let prefix = format!("{}record:", all(&place));
    let key = |rest: &[u8]| [prefix.as_bytes(), rest].concat();
    let ours = [key(b"user0"), key(b""), key(b"\xFF"), key(b"other")];
    let theirs = [&b""[..], b"x", b"caf\xC3", &prefix.as_bytes()[1..], "ä".as_bytes()].map(<[u8]>::to_vec);
    let shown: Vec<Vec<u8>> = theirs.iter().chain(&ours).cloned().collect();
    let wrong = key(b"other");
    let (address, asked) = made_up::server(move |command| match &command[0][..] {
        b"SCAN" => array(&[bulk(b"0"), array(&shown.iter().map(|key| bulk(key)).collect::<Vec<_>>())]),
        b"HMGET" if command[1] == wrong => b"-WRONGTYPE it is a text\r\n".to_vec(),
        b"HMGET" => array(&[bulk(b"3"), bulk(b"000000000000000a")]),
        b"UNLINK" => b":1\r\n".to_vec(),
        _ => b"+OK\r\n".to_vec(),
    });
    let redis = wait(Redis::open(&address)).unwrap();
    let expected = [("", 3, Some(10)), ("other", 0, None), ("user0", 3, Some(10)), ("\u{FFFD}", 3, Some(10))];
    let expected = expected.map(|(key, version, tag)| (key.to_owned(), version, tag));
    assert_eq!(seen(&redis, &layout).unwrap(), expected);
    wait(redis.unload(&place)).unwrap();
    let unlinked: Vec<Vec<u8>> = asked
        .try_iter()
        .filter(|command| command[0] == b"UNLINK")
        .flat_map(|command| command[1..].to_vec())
        .collect();
    assert_eq!(unlinked, ours);
}

/// An answer of another shape is a malformed answer, not a record that was lost.
#[test]
fn a_final_state_of_another_shape_is_not_read_at_all() {
    let layout = Layout { records: 1, fields: 1, field_bytes: 16, scans: false };
    let place = Place { namespace: NAMESPACE.to_owned(), trial: 1 };
    let key = format!("{}record:user0", all(&place));
    for reply in [array(&[]), array(&[bulk(b"3")]), b"+OK\r\n".to_vec(), b"-LOADING it\r\n".to_vec()] {
        let key = key.clone();
        let (address, _asked) = made_up::server(move |command| match &command[0][..] {
            b"SCAN" => array(&[bulk(b"0"), array(&[bulk(key.as_bytes())])]),
            b"HMGET" => reply.clone(),
            _ => b"+OK\r\n".to_vec(),
        });
        let redis = wait(Redis::open(&address)).unwrap();
        assert!(seen(&redis, &layout).is_err());
    }
}

/// A script must answer every request of a transaction.
#[test]
fn answers_that_are_missing_are_not_taken_for_empty_ones() {
    let (address, _asked) = made_up::server(|command| match &command[0][..] {
        b"EVALSHA" => array(&[]),
        _ => b"+OK\r\n".to_vec(),
    });
    let redis = wait(Redis::open(&address)).unwrap();
    let layout = Layout { records: 1, fields: 1, field_bytes: 16, scans: false };
    let place = Place { namespace: NAMESPACE.to_owned(), trial: 1 };
    let wanted = Requirements {
        lock: Lock::Native,
        decides: true,
        isolation: None,
        transaction: 2,
        refresh: Refresh::No,
        layout,
    };
    let requests = vec![records::Request { key: key_name(0), ..records::Request::default() }; 2];
    let ended = wait(async {
        let mut client = connector(&redis)(&place, wanted).connect().await.unwrap();
        records::Operations::several(&mut client, &requests, &mut vec![Answer::default(); 2]).await
    });
    assert!(matches!(ended, Attempt::Unknown(_)), "{ended:?}");
}
