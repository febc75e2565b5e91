//! A server behind a proxy: what shares sessions is refused, what keeps them apart is used.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
};

use acidtest_engine::Outcome;
use acidtest_model::{Address, Durability, Lock};
use acidtest_store_mariadb::Variant;
use acidtest_testbed::{InventoryRun, Multiplexer, NAMESPACE, for_operations, wait};
use acidtest_workloads::{Store, Verdict};

use crate::common::MARIADB;

/// A proxy with a connection of its own for each client, which names its own session in the greeting, as `MaxScale` does.
fn renaming(server: &Address) -> Address {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let endpoint = server.endpoint(0);
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(&endpoint).unwrap();
            let ends = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || pass(ends.0, ends.1, |_| {}));
            let mut is_greeting = true;
            thread::spawn(move || {
                pass(server, client, |piece| {
                    if std::mem::take(&mut is_greeting) {
                        // behind the header, the protocol's version and the server's, which ends with a zero
                        let id = 5 + piece[5..].iter().position(|byte| *byte == 0).unwrap() + 1;
                        piece[id + 2] ^= 0x55;
                    }
                });
            });
        }
    });
    Address { host: "127.0.0.1".to_owned(), port: Some(port), ..server.clone() }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut change: impl FnMut(&mut [u8])) {
    let mut piece = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        change(&mut piece[..count]);
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[test]
fn a_proxy_that_shares_sessions_is_refused() {
    let Some(world) = MARIADB.start(Durability::None) else { return };
    // no password: a client is logged in once it has said who it is
    let shared = Multiplexer::before(world.address(), 1);
    MARIADB.refuses(shared.address(), &["two that were open at once", "ProxySQL", "MaxScale", "own address"]);
}

#[test]
fn a_proxy_with_a_session_for_each_connection_is_as_good_as_the_server() {
    let Some(world) = MARIADB.start(Durability::None) else { return };
    let store = wait(Variant::MARIADB.open(&renaming(world.address()))).unwrap();
    wait(store.create(NAMESPACE, "run 1")).unwrap();
    let run = InventoryRun::random(Lock::Native, 1);
    run.load(&store);
    let measured = run.drive(&store, &for_operations(200), 4);
    assert!(measured.faults.is_empty() && measured.doubts.is_empty(), "{measured:?}");
    assert!(measured.operations.iter().map(|operation| operation.count(Outcome::Ok)).sum::<u64>() > 0);
    assert_eq!(run.audit(&store, false).verdict, Verdict::Holds);
}
