//! The client of the protocol against a real server, which each test starts for itself.

use std::time::Duration;

use acidtest_model::{Address, Durability};
use acidtest_store_tarantool::iproto::{Connection, Encoder, Error, Fate, IteratorType, Pipeline};
use acidtest_testbed::Private;
use acidtest_transport::Transport;

const KV: u32 = 600;

/// Lua that sets up the functions and spaces that the tests use.
const SETUP: &str = "
    box.cfg{ memtx_max_tuple_size = 4 * 1024 * 1024 }
    box.schema.user.create('bench', {password = 'secret'})
    local kv = box.schema.space.create('kv', {id = 600, format = {{'id', 'unsigned'}, {'v', 'string'}}})
    kv:create_index('pk', {parts = {{1, 'unsigned'}}})
    function echo(...) return ... end
    function pushes(n) for i = 1, n do box.session.push(i) end return 'done' end
    box.session.su('admin', box.schema.user.grant, 'bench', 'read,write,execute', 'universe')";

/// Starts a server and runs [`SETUP`] on it; `None` if Tarantool is left out.
async fn server() -> Option<Private> {
    let mut server = Private::start("tarantool", Durability::Process)?;
    let mut guest = server.answer(async |address| Connection::connect(&transport(address), None).await).await;
    guest.eval(SETUP, nothing).await.unwrap();
    Some(server)
}

fn transport(address: &Address) -> Transport {
    Transport::new(address, 0).unwrap()
}

async fn connect(server: &Private) -> Result<Connection, Error> {
    Connection::connect(&transport(server.address()), None).await
}

fn nothing(args: &mut Encoder) {
    args.array(0);
}

fn pair(id: u64, value: &str) -> impl FnOnce(&mut Encoder) {
    move |tuple| {
        tuple.array(2).u64(id).str(value);
    }
}

fn key(id: u64) -> impl FnOnce(&mut Encoder) {
    move |key| {
        key.array(1).u64(id);
    }
}

#[tokio::test]
async fn greets_pings_and_authenticates() {
    let Some(server) = server().await else { return };
    let mut guest = connect(&server).await.unwrap();
    assert!(guest.greeting().starts_with("Tarantool "), "{}", guest.greeting());
    guest.ping().await.unwrap();

    let mut user =
        Connection::connect(&transport(server.address()), Some(("bench", "secret"))).await.unwrap();
    let mut reply = user.eval("return box.session.user()", nothing).await.unwrap();
    assert_eq!(reply.array_len().unwrap(), 1);
    assert_eq!(reply.str().unwrap(), "bench");

    let wrong =
        Connection::connect(&transport(server.address()), Some(("bench", "wrong"))).await.unwrap_err();
    assert_eq!((wrong.code(), wrong.fate()), (Some(47), Fate::Refused), "{wrong}");
    let unknown = Connection::connect(&transport(server.address()), Some(("nobody", "x"))).await.unwrap_err();
    assert!(unknown.code().is_some(), "{unknown}");
}

#[tokio::test]
async fn every_type_makes_the_round_trip_through_call_and_eval() {
    let Some(server) = server().await else { return };
    let mut connection = connect(&server).await.unwrap();
    for by_eval in [false, true] {
        let args = |args: &mut Encoder| {
            args.array(9).u64(u64::MAX).i64(i64::MIN).f64(1.5).f64(3.0).str("né").bool(false).nil();
            args.map(1).str("k").array(2).bool(true).u64(300);
            args.i64(-5);
        };
        let reply = if by_eval {
            connection.eval("return ...", args).await
        } else {
            connection.call("echo", args).await
        };
        let mut reply = reply.unwrap();
        assert_eq!(reply.array_len().unwrap(), 9);
        assert_eq!(reply.u64().unwrap(), u64::MAX);
        assert_eq!(reply.i64().unwrap(), i64::MIN);
        assert!((reply.f64().unwrap() - 1.5).abs() < f64::EPSILON);
        assert!((reply.f64().unwrap() - 3.0).abs() < f64::EPSILON);
        assert_eq!(reply.str().unwrap(), "né");
        assert!(!reply.bool().unwrap());
        assert!(reply.take_nil());
        assert!(!reply.take_nil());
        reply.skip().unwrap();
        assert!(reply.u64().is_err());
        assert_eq!(reply.i64().unwrap(), -5);
        assert!(reply.is_empty());
    }
}

#[tokio::test]
async fn false_nil_and_nothing_are_told_apart() {
    let Some(server) = server().await else { return };
    let mut connection = connect(&server).await.unwrap();
    let mut reply = connection
        .call("echo", |args| {
            args.array(1).bool(false);
        })
        .await
        .unwrap();
    assert_eq!(reply.array_len().unwrap(), 1);
    assert!(!reply.bool().unwrap());
    let mut reply = connection.eval("return nil", nothing).await.unwrap();
    assert_eq!(reply.array_len().unwrap(), 1);
    reply.nil().unwrap();
    let mut reply = connection.eval("return", nothing).await.unwrap();
    assert_eq!(reply.array_len().unwrap(), 0);
    assert!(reply.is_empty());
}

#[tokio::test]
async fn tuples_are_written_and_read() {
    let Some(server) = server().await else { return };
    let mut connection = connect(&server).await.unwrap();
    for id in 1..=3 {
        connection.insert(KV, pair(id, "first")).await.unwrap();
    }
    let duplicate = connection.insert(KV, pair(1, "again")).await.unwrap_err();
    assert_eq!(duplicate.code(), Some(Error::DUPLICATE_KEY), "{duplicate}");
    assert_eq!(duplicate.fate(), Fate::Refused);
    assert!(connection.is_usable());

    connection.replace(KV, pair(1, "second")).await.unwrap();
    let mut reply = connection
        .update(KV, 0, key(2), |ops| {
            ops.array(1).array(3).str("=").u64(1).str("updated");
        })
        .await
        .unwrap();
    assert_eq!(reply.array_len().unwrap(), 1);
    assert_eq!(reply.tuple(2).unwrap(), 0);
    assert_eq!((reply.u64().unwrap(), reply.str().unwrap()), (2, "updated"));
    let mut reply = connection
        .update(KV, 0, key(99), |ops| {
            ops.array(1).array(3).str("=").u64(1).str("updated");
        })
        .await
        .unwrap();
    assert_eq!(reply.array_len().unwrap(), 0);

    let mut reply = connection.delete(KV, 0, key(3)).await.unwrap();
    assert_eq!(reply.array_len().unwrap(), 1);

    let mut reply = connection.select(KV, 0, nothing, 10, IteratorType::All).await.unwrap();
    let mut rows = Vec::new();
    for _ in 0..reply.array_len().unwrap() {
        assert_eq!(reply.tuple(2).unwrap(), 0);
        rows.push((reply.u64().unwrap(), reply.str().unwrap()));
    }
    assert_eq!(rows, [(1, "second"), (2, "updated")]);
    let mut reply = connection.select(KV, 0, key(1), 1, IteratorType::Gt).await.unwrap();
    assert_eq!(reply.array_len().unwrap(), 1);
    reply.tuple(2).unwrap();
    assert_eq!(reply.u64().unwrap(), 2);
}

#[tokio::test]
async fn server_errors_leave_the_connection_usable() {
    let Some(server) = server().await else { return };
    let mut connection = connect(&server).await.unwrap();
    let error = connection.eval("error('out of stock')", nothing).await.unwrap_err();
    assert_eq!(error.code(), Some(Error::LUA), "{error}");
    assert!(error.to_string().contains("out of stock"), "{error}");
    let error = connection.eval("box.error(1234, 'x')", nothing).await.unwrap_err();
    assert_eq!(error.code(), Some(1234), "{error}");
    assert!(connection.call("no_such_function", nothing).await.unwrap_err().code().is_some());
    assert!(connection.select(99_999, 0, nothing, 1, IteratorType::All).await.unwrap_err().code().is_some());
    connection.ping().await.unwrap();
}

#[tokio::test]
async fn a_mebibyte_makes_the_round_trip() {
    let Some(server) = server().await else { return };
    let mut connection = connect(&server).await.unwrap();
    let value: String = ('a'..='z').cycle().take(1024 * 1024).collect();
    for id in 1..=3 {
        let mut reply = connection.replace(KV, pair(id, &value)).await.unwrap();
        assert_eq!(reply.array_len().unwrap(), 1);
        reply.tuple(2).unwrap();
        assert_eq!(reply.u64().unwrap(), id);
        assert!(reply.str().unwrap() == value);
    }
    let mut reply = connection.select(KV, 0, nothing, 10, IteratorType::All).await.unwrap();
    assert_eq!(reply.array_len().unwrap(), 3);
    for _ in 0..3 {
        reply.skip().unwrap();
    }
    assert!(reply.is_empty());
    connection.ping().await.unwrap();
}

#[tokio::test]
async fn what_a_function_pushes_is_passed_over() {
    let Some(server) = server().await else { return };
    let mut connection = connect(&server).await.unwrap();
    let mut reply = connection
        .call("pushes", |args| {
            args.array(1).u64(3);
        })
        .await
        .unwrap();
    assert_eq!(reply.array_len().unwrap(), 1);
    assert_eq!(reply.str().unwrap(), "done");
    connection.ping().await.unwrap();
}

#[tokio::test]
async fn a_server_killed_during_a_request_leaves_it_unknown() {
    let Some(mut server) = server().await else { return };
    let mut connection = connect(&server).await.unwrap();
    let killer = std::thread::spawn(move || {
        acidtest_testbed::wait(async {
            let mut other = connect(&server).await.unwrap();
            other.eval("while not begun do require('fiber').sleep(0.01) end", nothing).await.unwrap();
        });
        server.kill();
        server
    });
    let error = connection.eval("begun = true require('fiber').sleep(600)", nothing).await.unwrap_err();
    assert!(matches!(error, Error::Lost { sent: true, .. }), "{error:?}");
    assert_eq!(error.fate(), Fate::Unknown);
    let error = connection.ping().await.unwrap_err();
    assert!(matches!(error, Error::Lost { sent: false, .. }), "{error:?}");

    let server = killer.join().unwrap();
    let refused = Connection::connect(&transport(server.address()), None).await.unwrap_err();
    assert!(matches!(refused, Error::Lost { sent: false, .. }), "{refused:?}");
    assert_eq!(refused.fate(), Fate::NotSent);
}

#[tokio::test]
async fn a_server_killed_between_requests_is_noticed_before_the_next() {
    let Some(mut server) = server().await else { return };
    let mut connection = connect(&server).await.unwrap();
    connection.ping().await.unwrap();
    server.kill();
    // the runtime notices when it next looks at its sockets
    tokio::time::sleep(Duration::from_millis(50)).await;
    let error = connection.ping().await.unwrap_err();
    assert!(matches!(error, Error::Lost { sent: false, .. }), "{error:?}");
    assert!(!connection.is_usable());
}

#[tokio::test]
async fn an_abandoned_request_breaks_the_connection() {
    let Some(server) = server().await else { return };
    let mut connection = connect(&server).await.unwrap();
    let mut other = connect(&server).await.unwrap();
    let slow = connection.eval("while not over do require('fiber').sleep(0.01) end return 'stale'", nothing);
    assert!(tokio::time::timeout(Duration::from_millis(50), slow).await.is_err());
    assert!(!connection.is_usable());
    // now the answer of the abandoned request arrives
    other.eval("over = true require('fiber').sleep(0.1)", nothing).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let error = connection.eval("return 'fresh'", nothing).await.unwrap_err();
    assert!(matches!(error, Error::Lost { sent: false, .. }), "{error:?}");
    connect(&server).await.unwrap().ping().await.unwrap();

    // a request whose future was never polled does no harm
    let mut connection = connect(&server).await.unwrap();
    drop(connection.ping());
    connection.ping().await.unwrap();
}

#[tokio::test]
async fn many_requests_are_answered_each_by_its_number_however_often_the_wait_is_abandoned() {
    const REQUESTS: u64 = 500;
    let Some(server) = server().await else { return };
    let mut pipeline = Pipeline::new(connect(&server).await.unwrap());
    let mut open = std::collections::BTreeMap::new();
    for number in 0..REQUESTS {
        let is_known = number % 3 > 0;
        let request = pipeline.call(if is_known { "echo" } else { "no_such_function" }, |args| {
            args.array(1).raw_str(&[0xff; 3000]);
        });
        open.insert(request.unwrap().0, is_known);
    }
    let soon = Duration::from_micros(200);
    while pipeline.unwritten() > 0 {
        let _ = tokio::time::timeout(soon, pipeline.flush()).await.map(Result::unwrap);
    }
    while !open.is_empty() {
        while let Some((request, refusal)) = pipeline.arrived().unwrap() {
            assert_eq!(open.remove(&request), Some(refusal.is_none()), "{refusal:?}");
        }
        if !open.is_empty() {
            let _ = tokio::time::timeout(soon, pipeline.read()).await.map(Result::unwrap);
        }
    }
    assert!(pipeline.arrived().unwrap().is_none());
}
