use acidtest_model::{Durability, Lock};
use acidtest_testbed::{Private, operations, wait};

use super::*;

fn connector(tarantool: &Tarantool) -> impl operations::Connect<RecordsConnector> {
    let server = tarantool.server.clone();
    move |place, wanted| RecordsConnector { server: server.clone(), name: trial::name(place, OBJECT), wanted }
}

#[test]
fn what_is_not_there_or_is_there_already_is_refused_and_stays_so() {
    let Some(mut private) = Private::start("tarantool", Durability::None) else { return };
    let tarantool = private.open(Tarantool::open);
    wait(operations::singles(&tarantool, &Lock::ALL, connector(&tarantool)));
}

#[test]
fn a_transaction_sees_what_it_wrote_and_is_done_whole_or_not_at_all() {
    let Some(mut private) = Private::start("tarantool", Durability::None) else { return };
    let tarantool = private.open(Tarantool::open);
    wait(operations::transactions(&tarantool, &[Lock::Native], connector(&tarantool)));
}

/// Lua that puts arbitrary tuples into a space: without a format it accepts every tuple with a key.
const SPOIL: &str = "local name, key = ...
                     local space = box.space[name]
                     space:format({})
                     local spoiled = space:get(key):totable()
                     spoiled[2] = 'seven'
                     space:replace(spoiled)";

#[test]
fn what_is_no_record_is_told_as_torn_and_not_written_over() {
    let Some(mut private) = Private::start("tarantool", Durability::None) else { return };
    let tarantool = private.open(Tarantool::open);
    let spoil = async |place: &Place, key: &str| {
        let arguments = |args: &mut Encoder| {
            args.array(2).str(&trial::name(place, OBJECT)).str(key);
        };
        tarantool.server.reach().await.unwrap().eval(SPOIL, arguments).await.unwrap();
    };
    wait(operations::garbled(&tarantool, &Lock::ALL, connector(&tarantool), spoil));
}

#[test]
fn what_a_tuple_holds_that_is_no_record_is_torn_and_what_is_no_tuple_a_fault() {
    type Write = fn(&mut Encoder) -> &mut Encoder;
    let take = |write: Write| {
        let mut encoder = Encoder::new();
        write(&mut encoder);
        let mut answer = Answer::default();
        let mut values = Reader::new(encoder.as_slice());
        let found = read_record(&mut values, true, &mut answer).ok();
        assert!(found.is_none() || values.is_empty(), "a tuple is read to its end");
        found.map(|found| (found, format!("{answer:?}")))
    };
    let told = |tell: &dyn Fn(&mut Answer)| {
        let mut answer = Answer::default();
        tell(&mut answer);
        format!("{answer:?}")
    };
    let record = told(&|answer| answer.record(7, [&b"x"[..], b""]));
    assert_eq!(take(|e| e.array(4).str("k").u64(7).str("x").u64(5)), Some((Lookup::Record(7), record)));
    let wrong: [Write; 7] = [
        |e| e.array(3).str("k").str("seven").str("x"),
        |e| e.array(3).str("k").i64(-1).str("x"),
        |e| e.array(2).str("k").f64(1.5),
        |e| e.array(2).str("k").nil(),
        |e| e.array(1).str("k"),
        |e| e.array(0),
        |e| e.u64(7),
    ];
    for write in wrong {
        assert_eq!(take(write), Some((Lookup::Torn, told(&Answer::torn))));
    }
    let cut: [Write; 3] = [|e| e, |e| e.array(3).str("k").u64(7), |e| e.array(u32::MAX)];
    for write in cut {
        assert_eq!(take(write), None);
    }
}

#[test]
fn a_batch_is_bounded_in_bytes_and_in_records() {
    let layout = |fields, field_bytes| Layout { records: 1, fields, field_bytes, scans: false };
    assert_eq!(u64::from(batch(&layout(10, 100))), BATCH);
    assert_eq!(batch(&layout(100, 65_536)), 1);
}
