#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
//! A connection under a protocol of the test's own, on servers that do what a real one does once in a year.

use std::{
    future::poll_fn,
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    task::{Context, Waker},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use acidtest_model::Address;
use acidtest_transport::{Heard, Pipelined, RequestError, Requests, Transport, Wire};
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

    fn hear(&mut self) -> Result<Heard, String> {
        let unread = self.wire.unread();
        let Some(head) = unread.first_chunk::<HEAD>() else { return Ok(Heard::Missing(HEAD - unread.len())) };
        let length = u32::from_be_bytes(*head) as usize;
        let Some(body) = unread.get(HEAD..HEAD + length) else {
            return Ok(Heard::Missing(HEAD + length - unread.len()));
        };
        let request = self.requests.oldest(&self.wire).ok_or("an answer to nothing")?;
        let answer = match body {
            [b'-', error @ ..] => Err(RequestError::Answered(String::from_utf8_lossy(error).into_owned())),
            body => Ok(body.to_vec()),
        };
        self.known.push((request, answer));
        self.requests.answered();
        self.wire.take(HEAD + length);
        Ok(Heard::Frame)
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
fn heard(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; HEAD];
    stream.read_exact(&mut head).unwrap();
    let mut body = vec![0; u32::from_be_bytes(head) as usize];
    stream.read_exact(&mut body).unwrap();
    body
}

/// Runs a test on a connection to a server, which has the first connection and the end of a channel on which the test tells it
/// to go on: once where the runtime waits for what is to arrive, and once where the system call does that reads it.
fn with(
    server: impl FnOnce(TcpStream, mpsc::Receiver<()>) + Clone + Send + 'static,
    test: impl AsyncFn(Connection, Told),
) {
    with_waits(|| None, server.clone(), &test);
    with_waits(|| Some(BLOCK), server, test);
}

fn with_waits(
    may_block: fn() -> Option<Duration>,
    server: impl FnOnce(TcpStream, mpsc::Receiver<()>) + Send + 'static,
    test: impl AsyncFnOnce(Connection, Told),
) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("redis://{}", listener.local_addr().unwrap());
    let (tell, told) = mpsc::channel();
    let playing = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        server(stream, told);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let transport = Transport::new(&Address::parse(&address).unwrap(), 0).unwrap();
        let wire = Wire::new(transport.connect().await.unwrap()).blocking(may_block);
        test(Connection { wire, requests: Requests::default(), known: Vec::new() }, Told { tell, playing })
            .await;
    });
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
    let server = |mut stream: TcpStream, _| {
        for answer in [&b"one"[..], b"", b"-no", b"four"] {
            heard(&mut stream);
            for byte in frame(answer) {
                stream.write_all(&[byte]).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
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
    let server = |mut stream: TcpStream, told: mpsc::Receiver<()>| {
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
    let server = |stream: TcpStream, told: mpsc::Receiver<()>| {
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
        assert!(lost(short) && lost(long) && not_sent(behind), "{answers:?}");
        assert!(not_sent(&connection.check().map(|()| Vec::new())));
    });
}

#[test]
fn an_answer_to_what_was_not_sent_is_none() {
    let server = |mut stream: TcpStream, told: mpsc::Receiver<()>| {
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
    let server = |mut stream: TcpStream, _| {
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
    let server = |mut stream: TcpStream, told: mpsc::Receiver<()>| {
        heard(&mut stream);
        stream.write_all(&frame(b"-too long")).unwrap();
        wait(&told);
        drop(stream);
    };
    with(server, async |mut connection, told| {
        connection.push(1, b"?");
        connection.push(2, b"not read");
        poll_fn(|context| connection.wire.poll_write(context)).await.unwrap();
        told.end().await;
        connection.push(3, b"refused");
        let answers = connection.answers().await;
        let [(1, first), (2, second), (3, third)] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!(*first, Err(RequestError::Answered("too long".to_owned())));
        assert!(lost(second) && not_sent(third), "{answers:?}");
    });
}

#[test]
fn what_was_given_up_ends_the_connection() {
    let server = |mut stream: TcpStream, told: mpsc::Receiver<()>| {
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
    let server = |mut stream: TcpStream, _| {
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
    let server = |mut stream: TcpStream, told: mpsc::Receiver<()>| {
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
    let server = |mut stream: TcpStream, _| {
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
    let server = |mut stream: TcpStream, told: mpsc::Receiver<()>| {
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
    let server = |_stream, told: mpsc::Receiver<()>| wait(&told);
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
    let server = |mut stream: TcpStream, told: mpsc::Receiver<()>| {
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
    let server = |mut stream: TcpStream, told: mpsc::Receiver<()>| {
        for answer in [&b"one"[..], b"two"] {
            heard(&mut stream);
            thread::sleep(BLOCK);
            stream.write_all(&frame(answer)).unwrap();
        }
        wait(&told);
    };
    with_waits(
        || Some(PATIENCE),
        server,
        async |mut connection, _told| {
            for (number, answer) in [(1, &b"one"[..]), (2, b"two")] {
                assert_eq!(connection.begin(), Ok(()));
                connection.push(number, b"?");
                assert_eq!(connection.answers_at_once(), Some(vec![answered(number, answer)]));
            }
        },
    );
}

#[test]
fn a_wait_for_an_answer_ends_and_the_runtime_waits_on() {
    let server = |mut stream: TcpStream, told: mpsc::Receiver<()>| {
        heard(&mut stream);
        wait(&told);
        stream.write_all(&frame(b"one")).unwrap();
        wait(&told);
    };
    with_waits(
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
    let server = |mut stream: TcpStream, told: mpsc::Receiver<()>| {
        heard(&mut stream);
        stream.write_all(&frame(b"one")).unwrap();
        for _ in 0..2 {
            wait(&told);
            stream.write_all(b"more").unwrap();
        }
        wait(&told);
    };
    let may_block = || MAY_BLOCK.load(SeqCst).then_some(PATIENCE * 2);
    with_waits(may_block, server, async |mut connection, told| {
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

#[test]
fn what_is_not_sent_yet_is_not_waited_for_in_a_read() {
    let server = |mut stream: TcpStream, told: mpsc::Receiver<()>| {
        wait(&told);
        assert_eq!(heard(&mut stream).len(), LONG);
        stream.write_all(&frame(b"one")).unwrap();
        wait(&told);
    };
    with_waits(
        || Some(PATIENCE),
        server,
        async |mut connection, told| {
            connection.push(1, &vec![b'?'; LONG]);
            connection.for_a_moment().await;
            assert!(connection.wire.unwritten() > 0, "the buffers hold it all");
            told.go_on();
            assert_eq!(connection.answers().await, [answered(1, b"one")]);
            told.go_on();
        },
    );
}
