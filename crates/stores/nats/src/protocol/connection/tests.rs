use std::{future::Future, time::Duration};

use acidtest_model::Address;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::*;

const INFO: &str =
    "INFO {\"version\":\"2.9.10\",\"max_payload\":100,\"headers\":true,\"jetstream\":true} \r\n";

pub(crate) fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(Duration::from_mins(2), work).await.unwrap() })
}

/// The server's side of a connection, played by the test.
pub(crate) struct Peer {
    stream: TcpStream,
    heard: Vec<u8>,
}

impl Peer {
    pub(crate) async fn say(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads until the client has sent this text.
    pub(crate) async fn hears(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.heard).contains(text) {
            assert!(
                self.stream.read_buf(&mut self.heard).await.unwrap() > 0,
                "{:?} has no {text}",
                self.heard
            );
        }
    }
}

/// Connects a client to a server that sends `greeting` and, once it has been pinged, `after`.
async fn meet(greeting: &str, after: &str) -> (Result<Connection, Error>, Peer) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = Address::parse(&format!("nats://{}", listener.local_addr().unwrap())).unwrap();
    let transport = Transport::new(&address, 4222).unwrap();
    let login = Login::User("ann".to_owned(), Secret::new("hunter2"));
    let server = async {
        let mut peer = Peer { stream: listener.accept().await.unwrap().0, heard: Vec::new() };
        peer.say(greeting).await;
        if !after.is_empty() {
            peer.hears("PING\r\n").await;
            peer.say(after).await;
        }
        peer
    };
    tokio::join!(Connection::connect(&transport, &login), server)
}

pub(crate) async fn connected() -> (Connection, Peer) {
    let (connection, peer) = meet(INFO, "PONG\r\n").await;
    (connection.unwrap(), peer)
}

#[test]
fn it_logs_in_and_learns_what_the_server_takes() {
    run(async {
        let (connection, peer) = connected().await;
        let info = connection.info();
        assert_eq!((info.version.as_str(), info.max_payload, info.jetstream), ("2.9.10", 100, true));
        let said = String::from_utf8(peer.heard).unwrap();
        assert!(said.contains("\"user\":\"ann\"") && said.contains("\"pass\":\"hunter2\""), "{said}");
        assert!(said.contains(&format!("SUB {}* 1\r\n", connection.inbox())), "{said}");
        assert!(!format!("{connection:?}").contains("hunter2"));
    });
}

#[test]
fn who_is_not_let_in_is_told_why() {
    run(async {
        let (refused, _peer) = meet(INFO, "-ERR 'Authorization Violation'\r\n").await;
        assert_eq!(refused.unwrap_err(), Error::Closed("Authorization Violation".to_owned()));
        let (refused, _peer) = meet("HTTP/1.1 400 Bad Request\r\n", "").await;
        assert!(matches!(refused, Err(Error::Protocol(_))));
        let (refused, _peer) = meet("INFO {\"version\":\"2.9.10\",\"tls_required\":true}\r\n", "").await;
        assert!(matches!(refused, Err(Error::Tls(error)) if error.remedy.contains("tls://")));
        for garbage in ["INFO {}\r\n", "INFO [\r\n", "PONG\r\n"] {
            let (refused, _peer) = meet(garbage, "").await;
            assert!(matches!(refused, Err(Error::Protocol(_))), "{garbage}: {refused:?}");
        }
    });
}

#[test]
fn answers_find_their_requests_and_pings_are_answered() {
    run(async {
        let (mut connection, mut peer) = connected().await;
        connection.publish("a", Some(7), None, b"hello").unwrap();
        connection.publish("a", Some(8), Some(("Nats-Msg-Id", "x")), b"").unwrap();
        connection.flush().await.unwrap();
        let inbox = connection.inbox().to_owned();
        peer.hears(&format!("PUB a {inbox}7 5\r\nhello\r\nHPUB a {inbox}8 28 28\r\n")).await;
        peer.say(&format!("PING\r\nMSG {inbox}8 1 2\r\nok\r\nMSG {inbox}7 1 0\r\n\r\n")).await;
        let message = connection.next().await.unwrap();
        assert_eq!((message.token(), message.payload), (Some(8), &b"ok"[..]));
        assert_eq!(connection.next().await.unwrap().token(), Some(7));
        connection.flush().await.unwrap();
        peer.hears("PONG\r\n").await;
        assert_eq!(connection.arrived(), Ok(None));
    });
}

#[test]
fn pings_without_end_take_no_memory_without_end() {
    run(async {
        let (mut connection, mut peer) = connected().await;
        for _ in 0..2 {
            let inbox = connection.inbox().to_owned();
            peer.say(&format!("{}MSG {inbox}1 1 0\r\n\r\n", "PING\r\n".repeat(100 * PONGS_MAX))).await;
            while connection.arrived().unwrap().is_none() {
                tokio::task::yield_now().await;
                connection.look().unwrap();
            }
            assert_eq!(connection.unwritten(), 6 * PONGS_MAX);
            // pings are answered again once the answers before have been written
            connection.flush().await.unwrap();
        }
        peer.hears(&"PONG\r\n".repeat(2 * PONGS_MAX)).await;
    });
}

#[test]
fn a_message_over_the_limit_is_not_sent() {
    run(async {
        let (mut connection, _peer) = connected().await;
        let refused = connection.publish("a", None, None, &[b'x'; 101]).unwrap_err();
        assert_eq!(refused, Error::TooLong { bytes: 101, limit: 100 });
        assert_eq!(connection.unwritten(), 0);
        connection.publish("a", None, None, &[b'x'; 100]).unwrap();
    });
}

#[test]
fn what_was_not_sent_is_known_from_what_may_have_arrived() {
    run(async {
        let (mut connection, peer) = connected().await;
        let first = connection.publish("a", None, None, b"1").unwrap();
        assert!(!connection.reached(first));
        connection.flush().await.unwrap();
        assert!(connection.reached(first));
        let second = connection.publish("a", None, None, b"2").unwrap();
        drop(peer);
        assert!(connection.next().await.is_err() || connection.next().await.is_err());
        assert!(connection.reached(first));
        // the connection may have ended before or after its write
        let _ = connection.reached(second);
        let third = connection.publish("a", None, None, b"3").unwrap_err();
        assert!(matches!(third, Error::Lost(_)), "{third:?}");
    });
}

#[test]
fn the_servers_last_words_are_why_it_ended_and_messages_before_them_still_arrive() {
    run(async {
        let (mut connection, mut peer) = connected().await;
        let inbox = connection.inbox().to_owned();
        peer.say(&format!("MSG {inbox}1 1 1\r\nx\r\n-ERR 'Stale Connection'\r\n")).await;
        drop(peer);
        assert_eq!(connection.next().await.unwrap().token(), Some(1));
        for _ in 0..2 {
            assert_eq!(connection.next().await.unwrap_err(), Error::Closed("Stale Connection".to_owned()));
        }
        assert_eq!(connection.flush().await.unwrap_err(), Error::Closed("Stale Connection".to_owned()));
    });
}

#[test]
fn a_dropped_future_loses_neither_what_was_to_be_written_nor_what_has_arrived() {
    run(async {
        let (mut connection, mut peer) = connected().await;
        let inbox = connection.inbox().to_owned();
        connection.publish("a", Some(1), None, b"hello").unwrap();
        assert!(timeout(Duration::from_millis(20), connection.next()).await.is_err());
        peer.hears("hello").await;
        peer.say(&format!("MSG {inbox}1 1 4\r\nan")).await;
        assert!(timeout(Duration::from_millis(50), connection.next()).await.is_err());
        peer.say("sw\r\n").await;
        assert_eq!(connection.next().await.unwrap().payload, b"answ".get(..4).unwrap());
    });
}

#[test]
fn neither_side_waits_for_the_other_to_read_first() {
    run(async {
        let (mut connection, mut peer) = connected().await;
        let inbox = connection.inbox().to_owned();
        let message = format!("MSG {inbox}1 1 100\r\n{}\r\n", "x".repeat(100));
        let many = 20_000;
        for _ in 0..many {
            connection.publish("a", None, None, &[b'y'; 100]).unwrap();
        }
        // the peer reads nothing until it has written everything
        let server = async {
            peer.say(&message.repeat(many)).await;
            peer.hears("never").await;
        };
        let client = async {
            connection.flush().await.unwrap();
            for _ in 0..many {
                connection.next().await.unwrap();
            }
        };
        tokio::select! {
            () = server => panic!("it heard what was never said"),
            () = client => {}
        }
    });
}
