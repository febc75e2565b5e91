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

#[test]
fn a_batch_is_bounded_in_bytes_and_in_records() {
    let layout = |fields, field_bytes| Layout { records: 1, fields, field_bytes, scans: false };
    assert_eq!(u64::from(batch(&layout(10, 100))), BATCH);
    assert_eq!(batch(&layout(100, 65_536)), 1);
}
