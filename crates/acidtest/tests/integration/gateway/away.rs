//! A gateway whose databases go away, in other ways than a server that is not there; and one whose log does.

use std::{
    io::copy,
    net::{Shutdown, TcpListener, TcpStream},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use acidtest_model::Address;
use acidtest_testbed::wanted;

use super::{
    JSON,
    database::{entries, order},
    running::{Gateway, Sink, entry, until},
};

/// Stands before a server, and at times accepts connections and says nothing, as a machine that hangs does.
struct Wire {
    address: Address,
    is_silent: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Wire {
    fn before(server: &Address) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address { port: Some(listener.local_addr().unwrap().port()), ..server.clone() };
        let (is_silent, open) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let wire = Self { address, is_silent: Arc::clone(&is_silent), open: Arc::clone(&open) };
        let server = format!("{}:{}", server.host, server.port.unwrap());
        // ends with the tests' process
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                open.lock().unwrap().push(client.try_clone().unwrap());
                if is_silent.load(Relaxed) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&server) else { continue };
                open.lock().unwrap().push(server.try_clone().unwrap());
                for (mut from, mut to) in
                    [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
                {
                    thread::spawn(move || {
                        let _ = copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        wire
    }

    /// Cuts all connections, and is silent from now on, or no longer: those that were silent stay so.
    fn be_silent(&self, silent: bool) {
        self.is_silent.store(silent, Relaxed);
        if silent {
            for stream in self.open.lock().unwrap().drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

/// Collectors, and those who look users up, give up a connection over which nobody speaks, and open another.
#[test]
fn a_database_that_accepts_and_says_nothing_is_given_up() {
    for name in ["postgres", "mariadb"].into_iter().filter(|name| wanted(name)) {
        let mut sink = Sink::start(name);
        let wire = Wire::before(&sink.address());
        let address = wire.address.to_string();
        let mut words = vec!["--sink", &*address, "--remember", "1s"];
        let mut gateway = if name == "postgres" {
            words.extend(["--users", &*address]);
            let gateway = Gateway::start(&words);
            let _ = gateway.add_user("bob", &["--users", &address]);
            gateway
        } else {
            Gateway::start(&words)
        };
        if name == "postgres" {
            gateway.token = gateway.add_user("cat", &["--users", &address]);
        }
        let post = |id: &str| gateway.http().post(&gateway.token, JSON, &entry(id, "")).unwrap().status;
        assert_eq!(post("before"), 202);
        gateway.wait_until_stored();
        wire.be_silent(true);
        if name == "postgres" {
            until("users cannot be looked up", || post("users are away") == 503);
            until("it is not ready", || gateway.http().get("/readyz", "").unwrap().status == 503);
        } else {
            assert_eq!(post("meanwhile"), 202);
        }
        // somebody has connected meanwhile, and waits for a word
        thread::sleep(Duration::from_secs(1));
        wire.be_silent(false);
        until("entries are accepted", || post("after") == 202);
        until("it is ready", || gateway.http().get("/readyz", "").unwrap().status == 200);
        gateway.wait_until_stored();
        let stored = entries(&sink.address());
        assert!(["before", "after"].iter().all(|id| stored.iter().any(|row| row.id == *id)), "{stored:?}");
        assert_eq!(gateway.stop().0, Some(0));
        sink.end();
    }
}

/// The direct architecture opens another connection where the one that it has was lost meanwhile; where the database is
/// away, it is not ready, and finds out by itself when it is back.
#[test]
fn direct_goes_on_when_its_connections_were_lost() {
    if !wanted("postgres") {
        return;
    }
    let mut sink = Sink::start("postgres");
    let gateway = Gateway::start(&["--architecture", "direct", "--sink", &sink.text()]);
    let post = |id: &str| gateway.http().post(&gateway.token, JSON, &entry(id, "")).unwrap().status;
    // several connections are idle
    thread::scope(|scope| {
        let posted: Vec<_> = (0..8).map(|id| scope.spawn(move || post(&format!("a{id}")))).collect();
        assert!(posted.into_iter().all(|status| status.join().unwrap() == 201));
    });
    order(
        &sink.address(),
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'acidtest gateway'",
    );
    for id in 0..12 {
        assert_eq!(post(&format!("b{id}")), 201);
    }
    assert_eq!(gateway.http().get("/readyz", "").unwrap().status, 200);
    sink.server.as_mut().unwrap().kill();
    assert_eq!(post("c"), 503);
    let answer = gateway.http().get("/readyz", "").unwrap().expect(503);
    assert!(answer.body.contains("accepts no entries"), "{answer:?}");
    sink.server.as_mut().unwrap().restart();
    until("it is ready again", || gateway.http().get("/readyz", "").unwrap().status == 200);
    assert_eq!(post("d"), 201);
    assert_eq!(gateway.stop().0, Some(0));
    sink.end();
}

/// Whoever reads the log has left: what would be told is dropped, and entries are not.
#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let sink = Sink::start("sqlite");
    let mut gateway = Gateway::start(&["--sink", &sink.text()]);
    gateway.close_log();
    order(&sink.address(), "ALTER TABLE acidtest_logs RENAME TO away");
    gateway.http().post(&gateway.token, JSON, &entry("a", "")).unwrap().expect(202);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(gateway.metric("queue_entries"), 1);
    order(&sink.address(), "ALTER TABLE away RENAME TO acidtest_logs");
    gateway.wait_until_stored();
    gateway.http().post(&gateway.token, JSON, &entry("b", "")).unwrap().expect(202);
    gateway.wait_until_stored();
    assert_eq!(entries(&sink.address()).len(), 2);
}

/// Connections do not use up the files that the queue and the database need.
#[test]
fn no_more_connections_are_taken_than_files_can_be_open() {
    let mut gateway = Gateway::start(&[]);
    gateway.kill();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 150 && exec \"$0\" \"$@\""]);
    gateway.restart_by(limited);
    let mut idle = Vec::new();
    while idle.len() < 200 {
        idle.extend(TcpStream::connect(&gateway.address));
    }
    drop(idle.split_off(20));
    until("an entry is taken", || {
        let posted = gateway.http().post(&gateway.token, JSON, &entry("a", ""));
        posted.is_ok_and(|answer| answer.status == 202)
    });
    gateway.wait_until_stored();
    drop(idle);
    let (code, said) = gateway.stop();
    assert!(
        code == Some(0) && said.contains("at most 48 connections are accepted instead of 20000"),
        "{said}"
    );
}
