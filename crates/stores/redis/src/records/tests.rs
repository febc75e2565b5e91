use acidtest_model::{Durability, Lock};
use acidtest_testbed::{Private, operations, wait};

use super::*;

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
fn what_is_no_record_is_a_fault_and_what_is_not_there_is_none() {
    let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    let mut answer = Answer::default();
    let mut take = |reply: Value| take(&reply, &mut answer);
    assert_eq!(take(Value::Array(vec![text("7"), text("x")])), Ok(Some(7)));
    assert_eq!(take(Value::Array(vec![Value::Nil, Value::Nil])), Ok(None));
    for nonsense in [Value::Nil, Value::Array(vec![]), Value::Array(vec![text("seven")])] {
        assert!(matches!(take(nonsense), Err(Attempt::Failed(fault)) if fault.connection_lost));
    }
}
