#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
//! A connection under a protocol of the test's own, on servers that do what a real one does once in a year.

use std::{
    future::poll_fn,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    task::{Context, Poll, Waker},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use acidtest_model::{Address, CertificateCheck, Tls};
use acidtest_transport::{Pipelined, Received, RequestError, Requests, Transport, Wire};
use bytes::BufMut as _;
use tokio::time::timeout;

/// Longer than any of these tests waits for what comes.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a read waits in the system call where it may.
const BLOCK: Duration = Duration::from_millis(10);
/// More than the buffers of both ends of a connection hold.
const LONG: usize = 32 << 20;
/// The head of a request or an answer: its length.
const HEAD: usize = 4;

type Known = Result<Vec<u8>, RequestError<String>>;

/// Requests and answers that say their length. An answer that begins with `-` is an error.
struct Connection {
    wire: Wire,
    requests: Requests<u8>,
    known: Vec<(u8, Known)>,
}

impl Pipelined for Connection {
    type Request = u8;
    type Answer = String;

    fn parts(&mut self) -> (&mut Wire, &mut Requests<u8>) {
        (&mut self.wire, &mut self.requests)
    }

    fn hear(&mut self) -> Result<Received, String> {
        let unread = self.wire.unread();
        let Some(head) = unread.first_chunk::<HEAD>() else {
            return Ok(Received::Missing(HEAD - unread.len()));
        };
        let length = u32::from_be_bytes(*head) as usize;
        let Some(body) = unread.get(HEAD..HEAD + length) else {
            return Ok(Received::Missing(HEAD + length - unread.len()));
        };
        let request = self.requests.oldest(&self.wire).ok_or("an answer to nothing")?;
        let answer = match body {
            [b'-', error @ ..] => Err(RequestError::Answered(String::from_utf8_lossy(error).into_owned())),
            body => Ok(body.to_vec()),
        };
        self.known.push((request, answer));
        self.requests.answered();
        self.wire.take(HEAD + length);
        Ok(Received::Frame)
    }

    fn give_up(&mut self, request: u8, why: RequestError<String>) {
        self.known.push((request, Err(why)));
    }

    fn forget(&mut self) {
        self.known.clear();
    }
}

impl Connection {
    fn push(&mut self, number: u8, body: &[u8]) {
        let pushed = self.requests.push::<String>(&mut self.wire, |out| {
            out.put_slice(&frame(body));
            Ok(number)
        });
        assert_eq!(pushed, Ok(()));
    }

    async fn answers(&mut self) -> Vec<(u8, Known)> {
        let answered = timeout(PATIENCE, poll_fn(|context| self.poll_answers(context, |_| false)));
        answered.await.expect("it does not end");
        std::mem::take(&mut self.known)
    }

    /// What is answered where the runtime does nothing: none if that is not all.
    fn answers_at_once(&mut self) -> Option<Vec<(u8, Known)>> {
        let mut context = Context::from_waker(Waker::noop());
        let is_told = self.poll_answers(&mut context, |_| false).is_ready();
        is_told.then(|| std::mem::take(&mut self.known))
    }

    /// Whether it is known that a request was not sent because the connection was reset: with TLS, that is not known.
    fn was_not_sent(&self, known: &Known) -> bool {
        let reset = |why: &String| why.contains("reset by peer") || why.contains("Broken pipe");
        match known {
            Err(RequestError::Lost(why)) => self.wire.negotiated().is_some() && reset(why),
            Err(RequestError::NotSent(why)) => self.wire.negotiated().is_none() && reset(why),
            _ => false,
        }
    }

    /// Drives it for a moment, as somebody does who then has waited long enough.
    async fn for_a_moment(&mut self) {
        let moment = Duration::from_millis(200);
        let driven = poll_fn(|context| self.poll_answers(context, |_| false));
        assert!(timeout(moment, driven).await.is_err(), "an answer has come");
    }
}

fn frame(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap();
    [&length.to_be_bytes()[..], body].concat()
}

fn answered(number: u8, body: &[u8]) -> (u8, Known) {
    (number, Ok(body.to_vec()))
}

fn lost(known: &Known) -> bool {
    matches!(known, Err(RequestError::Lost(_)))
}

fn not_sent(known: &Known) -> bool {
    matches!(known, Err(RequestError::NotSent(_)))
}

/// What a server hears next, without its head.
fn heard(stream: &mut impl Read) -> Vec<u8> {
    let mut head = [0; HEAD];
    stream.read_exact(&mut head).unwrap();
    let mut body = vec![0; u32::from_be_bytes(head) as usize];
    stream.read_exact(&mut body).unwrap();
    body
}

/// A client's connection as the server has it.
enum Peer {
    Open(Cut),
    #[cfg(feature = "tls")]
    Secured(Box<rustls::StreamOwned<rustls::ServerConnection, Cut>>),
}

impl Peer {
    /// From now on, each byte that goes over the network does so by itself.
    fn cut(&mut self) {
        match self {
            Self::Open(stream) => stream.is_cut = true,
            #[cfg(feature = "tls")]
            Self::Secured(secured) => secured.sock.is_cut = true,
        }
    }
}

impl Peer {
    /// Sends these at once, with TLS in a record each.
    fn write_together(&mut self, parts: [&[u8]; 2]) {
        match self {
            Self::Open(stream) => stream.write_all(&parts.concat()).unwrap(),
            #[cfg(feature = "tls")]
            Self::Secured(secured) => {
                for part in parts {
                    secured.conn.writer().write_all(part).unwrap();
                }
                secured.flush().unwrap();
            }
        }
    }

    /// Ends the connection as a server does that says so.
    fn close(self) {
        match self {
            Self::Open(stream) => drop(stream),
            #[cfg(feature = "tls")]
            Self::Secured(mut secured) => {
                secured.conn.send_close_notify();
                secured.flush().unwrap();
            }
        }
    }
}

impl Read for Peer {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Open(stream) => stream.read(room),
            #[cfg(feature = "tls")]
            Self::Secured(secured) => secured.read(room),
        }
    }
}

impl Write for Peer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Open(stream) => stream.write(bytes),
            #[cfg(feature = "tls")]
            Self::Secured(secured) => secured.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Open(stream) => stream.flush(),
            #[cfg(feature = "tls")]
            Self::Secured(secured) => secured.flush(),
        }
    }
}

/// A connection that may be made to send byte by byte.
struct Cut {
    stream: TcpStream,
    is_cut: bool,
}

impl Read for Cut {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.stream.read(room)
    }
}

impl Write for Cut {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_cut {
            thread::sleep(Duration::from_millis(1));
        }
        self.stream.write(bytes.get(..1).filter(|_| self.is_cut).unwrap_or(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Without TLS, and with it if there is any.
const SECURE: &[bool] = if cfg!(feature = "tls") { &[false, true] } else { &[false] };

/// Runs a test on a connection to a server, which has the first connection and the end of a channel on which the test tells it
/// to go on: once where the runtime waits for what is to arrive, and once where the system call does that reads it, and each
/// without TLS and with it.
fn with(
    server: impl FnOnce(Peer, mpsc::Receiver<()>) + Clone + Send + 'static,
    test: impl AsyncFn(Connection, Told),
) {
    with_wait(|| None, server.clone(), &test);
    with_wait(|| Some(BLOCK), server, test);
}

/// The same, in one way of waiting.
fn with_wait(
    may_block: fn() -> Option<Duration>,
    server: impl FnOnce(Peer, mpsc::Receiver<()>) + Clone + Send + 'static,
    test: impl AsyncFn(Connection, Told),
) {
    for &secure in SECURE {
        connected(secure, may_block, server.clone(), &test);
    }
}

fn connected(
    secure: bool,
    may_block: fn() -> Option<Duration>,
    server: impl FnOnce(Peer, mpsc::Receiver<()>) + Send + 'static,
    test: impl AsyncFnOnce(Connection, Told),
) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = secure.then(|| Box::new(Tls::checking(CertificateCheck::Nothing)));
    let address = Address { tls, ..Address::loopback("redis", None, port, "") };
    let (tell, told) = mpsc::channel();
    let playing = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let stream = Cut { stream, is_cut: false };
        #[cfg(feature = "tls")]
        if secure {
            return server(Peer::Secured(Box::new(secured(stream))), told);
        }
        server(Peer::Open(stream), told);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let wire = Wire::new(Transport::new(&address, 0).unwrap().connect().await.unwrap());
        assert_eq!(wire.negotiated().is_some(), secure);
        let wire = wire.blocking(may_block);
        test(Connection { wire, requests: Requests::default(), known: Vec::new() }, Told { tell, playing })
            .await;
    });
}

/// A server takes connections, and says nothing.
#[test]
fn nobody_is_waited_for_longer_than_the_address_allows() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect_timeout = Duration::from_millis(50);
    let address = Address { connect_timeout, ..Address::loopback("redis", None, port, "") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let transport = Transport::new(&address, 0).unwrap();
        let answer = async {
            let mut wire = Wire::new(transport.connect().await?);
            poll_fn(|context| wire.poll_read(context, 0)).await
        };
        let late = transport.in_time(answer).await.unwrap_err();
        assert_eq!(
            (late.kind(), late.to_string().as_str()),
            (io::ErrorKind::TimedOut, "no connection within 50ms")
        );
    });
    #[cfg(feature = "tls")]
    runtime.block_on(async {
        let tls = Some(Box::new(Tls::checking(CertificateCheck::Nothing)));
        let transport = Transport::new(&Address { tls, ..address.clone() }, 0).unwrap();
        let late = transport.in_time(transport.connect()).await.unwrap().unwrap_err();
        assert_eq!(late.to_string(), "the handshake of TLS was not answered within 40ms");
    });
}

/// A Unix socket has room for few connections that are not yet taken, and turns away whoever comes then.
#[test]
fn a_unix_socket_is_knocked_at_until_it_takes_a_connection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let address = Address {
        socket: Some(path.to_string_lossy().into_owned()),
        connect_timeout: PATIENCE,
        ..Address::loopback("redis", None, 1, "")
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = tokio::net::UnixSocket::new_stream().unwrap();
        socket.bind(&path).unwrap();
        let listener = socket.listen(1).unwrap();
        let transport = Transport::new(&address, 0).unwrap();
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let transport = transport.clone();
            clients.spawn(async move {
                let mut connection = Connection {
                    wire: Wire::new(transport.connect().await.unwrap()).blocking(|| Some(BLOCK)),
                    requests: Requests::default(),
                    known: Vec::new(),
                };
                connection.begin().unwrap();
                connection.push(1, b"?");
                connection.answers().await
            });
        }
        tokio::time::sleep(BLOCK).await;
        for _ in 0..8 {
            let mut server = listener.accept().await.unwrap().0.into_std().unwrap();
            server.set_nonblocking(false).unwrap();
            thread::spawn(move || {
                heard(&mut server);
                server.write_all(&frame(b"one")).unwrap();
            });
        }
        while let Some(one) = clients.join_next().await {
            assert_eq!(one.unwrap(), [answered(1, b"one")]);
        }
    });
}

/// The handshake of a server with a certificate of its own.
#[cfg(feature = "tls")]
fn secured(mut stream: Cut) -> rustls::StreamOwned<rustls::ServerConnection, Cut> {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![own.cert.der().clone()], key).unwrap();
    let mut session = rustls::ServerConnection::new(std::sync::Arc::new(config)).unwrap();
    while session.is_handshaking() {
        session.complete_io(&mut stream).unwrap();
    }
    rustls::StreamOwned::new(session, stream)
}

/// The server, which waits for what the test tells it.
struct Told {
    tell: mpsc::Sender<()>,
    playing: JoinHandle<()>,
}

impl Told {
    fn go_on(&self) {
        self.tell.send(()).unwrap();
    }

    /// Lets the server go to its end, and waits until the runtime has heard of it.
    async fn end(self) {
        drop(self.tell);
        self.playing.join().unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn wait(told: &mpsc::Receiver<()>) {
    // whoever drops its end says it, too
    let _ = told.recv_timeout(PATIENCE);
}

#[test]
fn answers_are_understood_however_they_are_cut() {
    let server = |mut stream: Peer, _| {
        stream.cut();
        for answer in [&b"one"[..], b"", b"-no", b"four"] {
            heard(&mut stream);
            stream.write_all(&frame(answer)).unwrap();
        }
    };
    with(server, async |mut connection, _| {
        assert_eq!(connection.begin(), Ok(()));
        for number in 1..=4 {
            connection.push(number, b"?");
        }
        let no = Err(RequestError::Answered("no".to_owned()));
        assert_eq!(
            connection.answers().await,
            [answered(1, b"one"), answered(2, b""), (3, no), answered(4, b"four")]
        );
    });
}

#[test]
fn as_many_answers_are_awaited_as_are_asked_for() {
    let server = |mut stream: Peer, told: mpsc::Receiver<()>| {
        for answer in [b"one", b"two"] {
            heard(&mut stream);
            stream.write_all(&frame(answer)).unwrap();
            wait(&told);
        }
    };
    with(server, async |mut connection, told| {
        connection.push(1, b"?");
        connection.push(2, b"?");
        poll_fn(|context| connection.poll_answers(context, |it| !it.known.is_empty())).await;
        assert_eq!(connection.known, [answered(1, b"one")]);
        // an answer is due, and whoever awaits it reads
        assert_eq!(connection.check(), Ok(()));
        told.go_on();
        assert_eq!(connection.answers().await, [answered(1, b"one"), answered(2, b"two")]);
        told.go_on();
    });
}

#[test]
fn what_was_not_sent_is_told_from_what_was() {
    let server = |stream: Peer, told: mpsc::Receiver<()>| {
        wait(&told);
        drop(stream);
    };
    with(server, async |mut connection, told| {
        connection.push(1, b"short");
        connection.push(2, &vec![b'?'; LONG]);
        connection.push(3, b"behind it");
        connection.for_a_moment().await;
        assert!(connection.wire.unwritten() > HEAD + b"behind it".len(), "the buffers hold it all");
        told.end().await;
        let answers = connection.answers().await;
        let [(1, short), (2, long), (3, behind)] = &answers[..] else { panic!("{answers:?}") };
        assert!(lost(short) && lost(long) && connection.was_not_sent(behind), "{answers:?}");
        assert!(not_sent(&connection.check().map(|()| Vec::new())));
    });
}

#[test]
fn an_answer_to_what_was_not_sent_is_none() {
    let server = |mut stream: Peer, told: mpsc::Receiver<()>| {
        stream.write_all(&frame(b"an answer")).unwrap();
        wait(&told);
    };
    with(server, async |mut connection, _told| {
        connection.push(1, b"?");
        poll_fn(|context| connection.wire.poll_read(context, 0)).await.unwrap();
        connection.understand();
        let nothing = Err(RequestError::NotSent("an answer to nothing".to_owned()));
        assert_eq!(connection.known, [(1, nothing)]);
    });
}

#[test]
fn answers_that_came_before_the_end_count() {
    let server = |mut stream: Peer, _| {
        heard(&mut stream);
        heard(&mut stream);
        let cut = &frame(b"two")[..HEAD + 2];
        stream.write_all(&[&frame(b"one")[..], cut].concat()).unwrap();
    };
    with(server, async |mut connection, _| {
        connection.push(1, b"?");
        connection.push(2, b"?");
        let answers = connection.answers().await;
        let closed = "the server closed the connection".to_owned();
        assert_eq!(answers, [answered(1, b"one"), (2, Err(RequestError::Lost(closed.clone())))]);
        assert_eq!(connection.begin(), Err(RequestError::NotSent(closed)));
    });
}

#[test]
fn an_answer_is_read_beside_an_error_of_sending() {
    // it answers, and resets the connection because there is something that it has not read
    let server = |mut stream: Peer, told: mpsc::Receiver<()>| {
        heard(&mut stream);
        stream.write_all(&frame(b"-too long")).unwrap();
        wait(&told);
        drop(stream);
    };
    with(server, async |mut connection, told| {
        connection.push(1, b"?");
        connection.push(2, &vec![b'?'; 100_000]);
        poll_fn(|context| connection.wire.poll_write(context)).await.unwrap();
        told.end().await;
        connection.push(3, b"refused");
        let answers = connection.answers().await;
        let [(1, first), (2, second), (3, third)] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!(*first, Err(RequestError::Answered("too long".to_owned())));
        assert!(lost(second) && connection.was_not_sent(third), "{answers:?}");
    });
}

#[test]
fn what_was_given_up_ends_the_connection() {
    let server = |mut stream: Peer, told: mpsc::Receiver<()>| {
        heard(&mut stream);
        wait(&told);
        stream.write_all(&frame(b"late")).unwrap();
        wait(&told);
    };
    with(server, async |mut connection, told| {
        connection.push(1, b"?");
        connection.for_a_moment().await;
        told.go_on();
        tokio::time::sleep(Duration::from_millis(50)).await;
        // the late answer must not pass for that of the next request
        let given_up = RequestError::NotSent("an earlier request was given up".to_owned());
        assert_eq!(connection.begin(), Err(given_up));
    });
}

#[test]
fn a_request_that_cannot_be_written_leaves_nothing() {
    let server = |mut stream: Peer, _| {
        assert_eq!(heard(&mut stream), b"whole");
        stream.write_all(&frame(b"one")).unwrap();
    };
    with(server, async |mut connection, _| {
        let pushed = connection.requests.push::<String>(&mut connection.wire, |out| {
            out.put_slice(b"half of it");
            Err(io::Error::other("too long"))
        });
        assert_eq!(pushed, Err(RequestError::NotSent("too long".to_owned())));
        connection.push(1, b"whole");
        assert_eq!(connection.answers().await, [answered(1, b"one")]);
    });
}

#[test]
fn a_server_that_hears_nothing_until_it_is_heard_does_not_hang_it() {
    let server = |mut stream: Peer, told: mpsc::Receiver<()>| {
        heard(&mut stream);
        stream.write_all(&frame(b"at once")).unwrap();
        heard(&mut stream);
        stream.write_all(&frame(&vec![b'.'; LONG])).unwrap();
        assert_eq!(heard(&mut stream).len(), LONG);
        stream.write_all(&frame(b"two")).unwrap();
        wait(&told);
    };
    with(server, async |mut connection, _told| {
        connection.push(0, b"?");
        assert_eq!(connection.answers().await, [answered(0, b"at once")]);
        connection.push(1, b"?");
        connection.push(2, &vec![b'?'; LONG]);
        let answers = connection.answers().await;
        assert_eq!(answers, [answered(1, &vec![b'.'; LONG]), answered(2, b"two")]);
        // neither of them takes memory for good
        assert_eq!(connection.begin(), Ok(()));
        assert!(connection.wire.room() < 4 << 20, "{}", connection.wire.room());
    });
}

#[test]
fn a_length_that_is_only_claimed_takes_no_memory() {
    let server = |mut stream: Peer, _| {
        heard(&mut stream);
        stream.write_all(&[0x7f, 0xff, 0xff, 0xff, b'.']).unwrap();
    };
    with(server, async |mut connection, _| {
        connection.push(1, b"?");
        let answers = connection.answers().await;
        assert!(matches!(&answers[..], [(1, known)] if lost(known)), "{answers:?}");
        assert!(connection.wire.room() < 4 << 20, "{}", connection.wire.room());
    });
}

#[test]
fn the_end_of_an_idle_connection_is_seen_before_the_next_request() {
    let server = |mut stream: Peer, told: mpsc::Receiver<()>| {
        heard(&mut stream);
        stream.write_all(&frame(b"one")).unwrap();
        wait(&told);
    };
    with(server, async |mut connection, told| {
        connection.push(1, b"?");
        assert_eq!(connection.answers().await, [answered(1, b"one")]);
        told.end().await;
        let closed = RequestError::NotSent("the server closed the connection".to_owned());
        assert_eq!(connection.begin(), Err(closed));
    });
}

#[test]
fn a_place_is_reached_with_its_first_byte() {
    let server = |_stream: Peer, told: mpsc::Receiver<()>| wait(&told);
    with(server, async |Connection { mut wire, .. }, _told| {
        for _ in 0..2 {
            let place = wire.place();
            wire.output().put_u8(b'.');
            let next = wire.place();
            assert!(!wire.reached(place));
            poll_fn(|context| wire.poll_write(context)).await.unwrap();
            assert!(wire.reached(place) && !wire.reached(next) && wire.place() == next);
        }
    });
}

#[test]
fn bytes_are_taken_and_cut_out_within_what_has_arrived() {
    let server = |mut stream: Peer, told: mpsc::Receiver<()>| {
        stream.write_all(b"abcdefgh").unwrap();
        wait(&told);
    };
    with(server, async |Connection { mut wire, .. }, _told| {
        while wire.unread().len() < 8 {
            poll_fn(|context| wire.poll_read(context, 0)).await.unwrap();
        }
        wire.take(2);
        wire.cut(1, 2);
        assert_eq!((wire.unread(), wire.arrived(), wire.taken()), (&b"cfgh"[..], &b"abcfgh"[..], 2));
        wire.cut(3, 9);
        wire.cut(9, 9);
        assert_eq!(wire.unread(), b"cfg");
        wire.take(1);
        wire.clear_away();
        assert_eq!((wire.unread(), wire.arrived(), wire.taken()), (&b"fg"[..], &b"fg"[..], 0));
        wire.take(9);
        assert_eq!((wire.unread(), wire.taken()), (&b""[..], 2));
        wire.clear_away();
        assert_eq!((wire.arrived(), wire.taken()), (&b""[..], 0));
        assert!(!wire.try_read().unwrap());
    });
}

#[test]
fn an_answer_is_waited_for_where_the_runtime_does_nothing() {
    const OF_MANY_READS: &[u8] = &[b'.'; 200_000];
    let server = |mut stream: Peer, told: mpsc::Receiver<()>| {
        for answer in [&b"one"[..], b"two", OF_MANY_READS] {
            heard(&mut stream);
            for part in frame(answer).chunks(100_000) {
                thread::sleep(BLOCK);
                stream.write_all(part).unwrap();
            }
        }
        wait(&told);
    };
    with_wait(
        || Some(PATIENCE),
        server,
        async |mut connection, _told| {
            let begun = Instant::now();
            for (number, answer) in [(1, &b"one"[..]), (2, b"two"), (3, OF_MANY_READS)] {
                assert_eq!(connection.begin(), Ok(()));
                connection.push(number, b"?");
                assert_eq!(connection.answers_at_once(), Some(vec![answered(number, answer)]));
            }
            assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        },
    );
}

#[test]
fn a_wait_for_an_answer_ends_and_the_runtime_waits_on() {
    let server = |mut stream: Peer, told: mpsc::Receiver<()>| {
        heard(&mut stream);
        wait(&told);
        stream.write_all(&frame(b"one")).unwrap();
        wait(&told);
    };
    with_wait(
        || Some(BLOCK),
        server,
        async |mut connection, told| {
            connection.push(1, b"?");
            let begun = Instant::now();
            assert_eq!(connection.answers_at_once(), None);
            assert!(begun.elapsed() >= BLOCK, "{:?}", begun.elapsed());
            told.go_on();
            assert_eq!(connection.answers().await, [answered(1, b"one")]);
        },
    );
}

/// The runtime holds a connection for readable until a read has found nothing there.
#[test]
fn nothing_but_the_wait_for_an_answer_waits() {
    static MAY_BLOCK: AtomicBool = AtomicBool::new(true);
    let server = |mut stream: Peer, told: mpsc::Receiver<()>| {
        heard(&mut stream);
        stream.write_all(&frame(b"one")).unwrap();
        for _ in 0..2 {
            wait(&told);
            stream.write_all(b"more").unwrap();
        }
        wait(&told);
    };
    let may_block = || MAY_BLOCK.load(SeqCst).then_some(PATIENCE * 2);
    with_wait(may_block, server, async |mut connection, told| {
        MAY_BLOCK.store(true, SeqCst);
        connection.push(1, b"?");
        assert_eq!(connection.answers_at_once(), Some(vec![answered(1, b"one")]));
        MAY_BLOCK.store(false, SeqCst);
        let begun = Instant::now();
        for _ in 0..2 {
            let before = connection.wire.unread().len();
            told.go_on();
            while connection.wire.unread().len() < before + b"more".len() {
                tokio::time::sleep(BLOCK).await;
                connection.wire.try_read().unwrap();
            }
            if before == 0 {
                assert!(!connection.wire.try_read().unwrap());
            }
        }
        let read = poll_fn(|context| connection.wire.poll_read(context, 0));
        assert!(timeout(BLOCK, read).await.is_err(), "nothing has come");
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    });
}

/// Also where TLS has taken all that is to be sent, and holds it.
#[test]
fn what_is_not_sent_yet_is_not_waited_for_in_a_read() {
    let server = |mut stream: Peer, told: mpsc::Receiver<()>| {
        heard(&mut stream);
        stream.write_all(&frame(b"one")).unwrap();
        wait(&told);
        let mut is_last = false;
        while !is_last {
            is_last = heard(&mut stream).is_empty();
            stream.write_all(&frame(b"one")).unwrap();
        }
        wait(&told);
    };
    with_wait(
        || Some(PATIENCE),
        server,
        async |mut connection, told| {
            let begun = Instant::now();
            connection.push(1, b"?");
            assert!(connection.answers_at_once().is_some());
            let mut pushed = 0;
            poll_fn(|context| {
                while let Poll::Ready(sent) = connection.wire.poll_write(context) {
                    sent.unwrap();
                    connection.push(1, &vec![b'?'; 32 << 10]);
                    pushed += 1;
                }
                Poll::Ready(())
            })
            .await;
            assert_eq!(connection.answers_at_once(), None);
            assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
            connection.push(1, b"");
            told.go_on();
            let answers = connection.answers().await;
            assert_eq!(answers.len(), pushed + 1);
            assert!(answers.iter().all(|known| *known == answered(1, b"one")), "{answers:?}");
        },
    );
}

#[test]
fn all_that_has_arrived_is_read() {
    let server = |mut stream: Peer, told: mpsc::Receiver<()>| {
        for _ in 0..2 {
            heard(&mut stream);
        }
        stream.write_together([&frame(b"one"), &frame(b"two")]);
        wait(&told);
        stream.write_together([b"a", b"b"]);
        wait(&told);
        stream.close();
    };
    with(server, async |mut connection, told| {
        connection.push(1, b"?");
        connection.push(2, b"?");
        assert_eq!(connection.answers().await, [answered(1, b"one"), answered(2, b"two")]);
        connection.wire.clear_away();
        told.go_on();
        while !connection.wire.try_read().unwrap() {
            tokio::time::sleep(BLOCK).await;
        }
        assert_eq!(connection.wire.unread(), b"ab");
        told.end().await;
        assert_eq!(connection.wire.try_read().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    });
}

/// What has come is told before more is waited for.
#[test]
fn what_has_come_does_not_wait_for_what_has_not() {
    let server = |mut stream: Peer, told: mpsc::Receiver<()>| {
        for _ in 0..3 {
            heard(&mut stream);
        }
        stream.write_together([&frame(b"one"), &frame(b"two")]);
        wait(&told);
    };
    with_wait(
        || Some(PATIENCE),
        server,
        async |mut connection, _told| {
            connection.push(1, b"?");
            connection.push(2, b"?");
            connection.push(3, b"?");
            let begun = Instant::now();
            poll_fn(|context| connection.poll_answers(context, |it| it.known.len() == 2)).await;
            assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
            assert_eq!(connection.known, [answered(1, b"one"), answered(2, b"two")]);
        },
    );
}
