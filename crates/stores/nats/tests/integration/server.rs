//! Opening servers, settings and namespaces, on real servers.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use acidtest_lab::Lab;
#[cfg(feature = "tls")]
use acidtest_model::Secret;
use acidtest_model::{Address, Durability, StoreError};
use acidtest_store_nats::Nats;
use acidtest_testbed::{World, login, wait, wanted};
use acidtest_workloads::{Owner, Store};

use crate::NATS;

fn start() -> Option<World<Nats>> {
    NATS.start(Durability::Process)
}

#[test]
fn version_limits_and_durability_are_read_back() {
    let Some(world) = start() else { return };
    let effective = wait(world.store.effective()).unwrap();
    assert!(effective.version.starts_with("2."), "{effective:?}");
    assert_eq!(effective.durability, Durability::Process);
    assert_eq!(effective.settings["max_payload"], "1048576");
    assert_eq!(effective.settings["jetstream.max_streams"], "unlimited");
}

#[test]
fn a_namespace_is_its_makers_and_nothing_else_goes_with_it() {
    let Some(world) = start() else { return };
    let store = &world.store;
    wait(async {
        let names = ["acidtest", "acidtest_1", "acidtes", "at"];
        for name in names {
            assert_eq!(store.owner(name).await.unwrap(), Owner::Nobody);
        }
        for name in names {
            store.create(name, "run-7").await.unwrap();
            assert_eq!(store.owner(name).await.unwrap(), Owner::Run("run-7".to_owned()));
        }
        for run in ["run-7", "run-8"] {
            let error = store.create("acidtest", run).await.unwrap_err();
            assert!(matches!(error, StoreError::Occupied { .. }), "{error}");
        }
        store.remove("acidtest").await.unwrap();
        assert_eq!(store.owner("acidtest").await.unwrap(), Owner::Nobody);
        assert_eq!(store.owner("acidtest_1").await.unwrap(), Owner::Run("run-7".to_owned()));
        store.remove("acidtest").await.unwrap();
    });
}

#[test]
fn where_nobody_listens_is_told_with_a_remedy() {
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    NATS.refuses(&Address::loopback("nats", None, free, ""), &["refused", "start the server"]);
}

/// A server such as the lab does not start: without `JetStream`, and not for everybody. Dropping it ends it.
struct Other {
    child: Child,
    port: u16,
}

impl Other {
    fn start(arguments: &[&str]) -> Option<Self> {
        if !wanted("nats") {
            return None;
        }
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let child = Command::new(Lab::locate("nats").unwrap().program)
            .args(["--addr", "127.0.0.1", "--port", &port.to_string()])
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < Duration::from_mins(1), "the server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Self { child, port })
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_login_or_jetstream_that_is_missing_is_told_with_a_remedy() {
    let Some(server) = Other::start(&["--user", "ann", "--pass", "hunter2"]) else { return };
    let anonymous = Address::loopback("nats", None, server.port, "");
    let wrong = login(&anonymous, "ann", Some("swordfish"));
    for address in [&anonymous, &wrong] {
        NATS.refuses(address, &["Authorization Violation", "ACIDTEST_PASSWORD"]);
    }
    let right = login(&anonymous, "ann", Some("hunter2"));
    NATS.refuses(&right, &["JetStream is not enabled", "nats-server --jetstream"]);
}

/// The seed and the public key are those of the documentation of NATS.
#[cfg(feature = "tls")]
#[test]
fn a_user_proves_who_it_is_by_an_nkey() {
    const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("authorization {{ users = [ {{ nkey: {PUBLIC} }} ] }}")).unwrap();
    let Some(server) = Other::start(&["--config", file.path().to_str().unwrap()]) else { return };
    let anonymous = Address::loopback("nats", None, server.port, "");
    NATS.refuses(&anonymous, &["Authorization Violation", "the seed of an NKey"]);
    let with = |seed: &str| Address { password: Some(Secret::new(seed)), ..anonymous.clone() };
    // let in, this server lacks something else
    NATS.refuses(&with(SEED), &["JetStream is not enabled"]);
    NATS.refuses(&with(&SEED.replace("CSSL", "CSSM")), &["looks like the seed of an NKey", "begins with SU"]);
}
