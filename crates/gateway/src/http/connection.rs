//! Accepts connections, and ends those that take too long.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use acidtest_transport::{Acceptor, Stream};
use bytes::Bytes;
use hyper::{
    body::{Body, Frame, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    time::{sleep, sleep_until, timeout},
};

use super::{Limits, Service, answer::Content, routes};
use crate::{metrics::Stage, sparingly::Sparingly};

/// What a connection beyond the limit is told.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-type: application/problem+json\r\ncontent-length: 63\r\n\r\n\
    {\"title\":\"the gateway has too many connections\",\"status\":503}\r\n";
/// How long requests may take to end at a shutdown.
const ENDING: Duration = Duration::from_secs(5);
/// How often it is looked at what a connection does, and how long it may wait for another request before its buffers are
/// given back.
const LOOK: Duration = Duration::from_secs(1);
/// How much of a connection's head is read at most, in bytes.
const HEAD: usize = 16 << 10;

/// Serves connections until `stop` says so, and then those requests that have begun.
pub(crate) async fn accept(
    Listener { tcp, acceptor }: Listener,
    service: Arc<Service>,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Places::default());
    loop {
        let accepted = tokio::select! {
            accepted = tcp.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, _)) if places.are_taken(service.limits.connections) => {
                // a handshake would cost more than what it is refused for
                if !acceptor.is_secure() {
                    refuse(&stream);
                }
            }
            Ok((stream, peer)) => {
                let held = Held::new(&places, &service, peer);
                tokio::spawn(serve(stream, acceptor.clone(), Arc::clone(&service), stop.clone(), held));
            }
            Err(error) => {
                // file descriptors have run out, most likely: some are given back
                tracing::warn!(%error, "a connection cannot be accepted");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(tcp);
    // pages are told of the present second, and of no more
    service.watchers.close();
    let until = Instant::now() + ENDING;
    while places.open.load(Relaxed) > 0 && Instant::now() < until {
        sleep(Duration::from_millis(10)).await;
    }
}

fn refuse(stream: &TcpStream) {
    // whoever does not read it is not waited for
    let _ = stream.try_write(TOO_MANY);
}

/// Where connections come in, and what makes them ready to be read.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) tcp: TcpListener,
    pub(crate) acceptor: Acceptor,
}

/// The places that connections have.
#[derive(Default)]
struct Places {
    open: AtomicUsize,
    idle: Mutex<Idle>,
    /// What is told in the log of connections that had to leave.
    leaving: Sparingly,
}

/// Connections that are idle, each with what tells it to leave, by the order in which they became so.
#[derive(Default)]
struct Idle {
    next: u64,
    waiting: BTreeMap<u64, Arc<Notify>>,
}

impl Places {
    /// Whether there is no place for another connection, because so many are taken. The one that has been idle for longest
    /// gives its place up: otherwise whoever opens connections and says nothing would keep others out.
    fn are_taken(&self, most: usize) -> bool {
        if self.open.load(Relaxed) < most {
            return false;
        }
        let Some((_, leave)) = self.idle().waiting.pop_first() else { return true };
        leave.notify_one();
        if let Some(untold) = self.leaving.tell() {
            tracing::warn!(
                most,
                untold_connections = untold,
                "all connections are taken: the one that was idle for longest is closed for a new one"
            );
        }
        false
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as an idle connection does. None if it is to give its place up.
    async fn while_idle<T>(&self, waits: impl Future<Output = T>) -> Option<T> {
        let leave = Arc::new(Notify::new());
        let _waiting = Waiting::new(self, &leave);
        tokio::select! {
            biased;
            // a request that has come is answered
            came = waits => Some(came),
            () = leave.notified() => None,
        }
    }
}

/// A place among those that are idle.
struct Waiting<'p> {
    places: &'p Places,
    number: u64,
}

impl<'p> Waiting<'p> {
    fn new(places: &'p Places, leave: &Arc<Notify>) -> Self {
        let mut idle = places.idle();
        let number = idle.next;
        idle.next += 1;
        idle.waiting.insert(number, Arc::clone(leave));
        drop(idle);
        Self { places, number }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.places.idle().waiting.remove(&self.number);
    }
}

/// A place among the connections.
struct Held {
    places: Arc<Places>,
    service: Arc<Service>,
    peer: SocketAddr,
    accepted: Instant,
}

impl Held {
    fn new(places: &Arc<Places>, service: &Arc<Service>, peer: SocketAddr) -> Self {
        places.open.fetch_add(1, Relaxed);
        service.metrics.connections.inc();
        Self { places: Arc::clone(places), service: Arc::clone(service), peer, accepted: Instant::now() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.places.open.fetch_sub(1, Relaxed);
        self.service.metrics.connections.dec();
    }
}

/// Serves a connection. While it is idle, nothing is held of it but its socket and this future: the buffers of HTTP
/// would take ten times as much, and most connections are idle.
async fn serve(
    stream: TcpStream,
    acceptor: Acceptor,
    service: Arc<Service>,
    mut stop: watch::Receiver<bool>,
    held: Held,
) {
    service.metrics.stage(Stage::Accept, held.accepted.elapsed());
    let Limits { idle_time, head_time, .. } = service.limits;
    let accepted = async {
        // a client that says nothing yet is idle, and not slow
        held.places.while_idle(timeout(idle_time, stream.peek(&mut [0]))).await?.ok()?.ok()?;
        acceptor.accept(stream, head_time).await.ok()
    };
    let Some(mut stream) = (tokio::select! {
        stream = accepted => stream,
        _ = stop.wait_for(|stop| *stop) => return,
    }) else {
        return;
    };
    loop {
        tokio::select! {
            // that something can be read may be said too early: it is looked at what it is, which leaves it there
            came = held.places.while_idle(timeout(idle_time, stream.arrives())) => match came {
                Some(Ok(Ok(true))) => {}
                _ => return,
            },
            _ = stop.wait_for(|stop| *stop) => return,
        }
        match Box::pin(serve_requests(stream, &service, held.peer, &mut stop)).await {
            Some(idle) => stream = idle,
            None => return,
        }
    }
}

/// Serves requests for as long as they follow each other. Returns the stream when it has become idle.
async fn serve_requests(
    stream: Stream,
    service: &Arc<Service>,
    peer: SocketAddr,
    stop: &mut watch::Receiver<bool>,
) -> Option<Stream> {
    let activity = Arc::new(Activity::new());
    let limits = service.limits;
    let watched = Watched { stream, activity: Arc::clone(&activity) };
    let serves = service_fn({
        let activity = Arc::clone(&activity);
        move |request| {
            let (service, activity) = (Arc::clone(service), Arc::clone(&activity));
            Box::pin(async move {
                activity.enter(Phase::Request);
                let answer = routes::answer(&service, peer, request).await;
                Ok::<_, Infallible>(answer.map(|content| Sent { content, activity }))
            })
        }
    });
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(watched), serves);
    let mut is_ending = false;
    loop {
        tokio::select! {
            done = poll_fn(|context| connection.poll_without_shutdown(context)) => {
                done.ok()?;
                break;
            }
            () = sleep_until((Instant::now() + LOOK).into()) => match activity.is_over(&limits) {
                Over::No => {}
                // what is read next looks like the end of the stream, and so ends the connection of HTTP in order
                Over::Idle => activity.has_parked.store(true, Relaxed),
                Over::TooSlow => return None,
            },
            _ = stop.wait_for(|stop| *stop), if !is_ending => {
                is_ending = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    }
    let parts = connection.into_parts();
    let Watched { mut stream, activity } = parts.io.into_inner();
    let is_idle = activity.has_parked.load(Relaxed) && activity.phase() == Phase::Idle as u64;
    if is_idle && parts.read_buf.is_empty() && !is_ending {
        return Some(stream);
    }
    // with TLS, a client is told that nothing is missing
    let _ = timeout(LOOK, stream.shutdown()).await;
    None
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It waits for a request.
    Idle = 0,
    /// Some of a request's head has come.
    Head = 1,
    /// A request is served, which has times of its own, or its answer is sent.
    Request = 2,
}

/// What a connection does, and since when.
struct Activity {
    born: Instant,
    /// Milliseconds since `born`, four times, and the phase.
    state: AtomicU64,
    /// Whether it is idle and to be left so.
    has_parked: AtomicBool,
    /// Whether the client has not yet taken all that was written.
    is_behind: AtomicBool,
}

/// Whether a connection's time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    No,
    /// No request follows the last one soon.
    Idle,
    /// The head of a request takes too long to come, or an answer to be taken.
    TooSlow,
}

impl Activity {
    fn new() -> Self {
        Self {
            born: Instant::now(),
            state: AtomicU64::new(Phase::Head as u64),
            has_parked: AtomicBool::new(false),
            is_behind: AtomicBool::new(false),
        }
    }

    fn enter(&self, phase: Phase) {
        let millis = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX >> 2);
        self.state.store(millis << 2 | phase as u64, Relaxed);
    }

    fn phase(&self) -> u64 {
        self.state.load(Relaxed) & 3
    }

    /// Some bytes of the client have come.
    fn came(&self) {
        // a request that comes at the moment of parking is served as any other
        self.has_parked.store(false, Relaxed);
        if self.phase() == Phase::Idle as u64 {
            self.enter(Phase::Head);
        }
    }

    fn is_over(&self, limits: &Limits) -> Over {
        let state = self.state.load(Relaxed);
        let took = self.born.elapsed().saturating_sub(Duration::from_millis(state >> 2));
        match state & 3 {
            0 if self.is_behind.load(Relaxed) => {
                if took >= limits.idle_time {
                    Over::TooSlow
                } else {
                    Over::No
                }
            }
            0 if took >= LOOK => Over::Idle,
            1 if took >= limits.head_time => Over::TooSlow,
            // a request that is served has times of its own
            _ => Over::No,
        }
    }
}

/// An answer that notes when it has been said: a connection is not idle before.
struct Sent {
    content: Content,
    activity: Arc<Activity>,
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.content).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.activity.enter(Phase::Idle);
    }
}

/// A stream that notes when something comes, and when what is written is not taken.
struct Watched {
    stream: Stream,
    activity: Arc<Activity>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.activity.came();
        }
        if read.is_pending() && self.activity.has_parked.load(Relaxed) {
            return Poll::Ready(Ok(()));
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.activity.is_behind.store(written.is_pending(), Relaxed);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS takes more than it has sent
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.activity.is_behind.store(flushed.is_pending(), Relaxed);
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.activity.is_behind.store(written.is_pending(), Relaxed);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::{Ids, Partial};

    #[test]
    fn the_answer_to_too_many_is_as_long_as_it_says() {
        let text = std::str::from_utf8(TOO_MANY).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{} bytes", body.len());
    }

    #[tokio::test]
    async fn whoever_was_idle_for_longest_gives_its_place_up() {
        let places = Places::default();
        places.open.store(3, Relaxed);
        assert!(!places.are_taken(4));
        assert!(places.are_taken(3), "none of them is idle");
        let first = places.while_idle(std::future::pending::<()>());
        let second = places.while_idle(std::future::pending::<()>());
        tokio::pin!(first, second);
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        assert!(!places.are_taken(3));
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(first.await, None);
        // what comes at that moment is served, and it is not idle any more
        assert_eq!(places.while_idle(std::future::ready(7)).await, Some(7));
        assert!(!places.are_taken(3) && places.are_taken(3));
        assert_eq!(second.await, None);
    }

    #[test]
    fn each_phase_has_its_time() {
        let limits = Limits {
            connections: 1,
            body: 1,
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(1),
            idle_time: Duration::from_mins(1),
            partial: Partial::default(),
            ids: Ids::default(),
        };
        let activity = Activity::new();
        let after = |millis: u64, phase: Phase| {
            // as if it had begun so long ago
            let activity = Activity {
                born: Instant::now().checked_sub(Duration::from_millis(millis)).unwrap(),
                ..Activity::new()
            };
            activity.state.store(phase as u64, Relaxed);
            activity.is_over(&limits)
        };
        assert_eq!((after(900, Phase::Idle), after(1100, Phase::Idle)), (Over::No, Over::Idle));
        assert_eq!((after(9_000, Phase::Head), after(10_100, Phase::Head)), (Over::No, Over::TooSlow));
        assert_eq!(after(100_000, Phase::Request), Over::No);
        activity.enter(Phase::Idle);
        activity.is_behind.store(true, Relaxed);
        assert_eq!(activity.is_over(&limits), Over::No);
        activity.enter(Phase::Request);
        activity.came();
        assert_eq!(activity.phase(), Phase::Request as u64);
        activity.enter(Phase::Idle);
        activity.has_parked.store(true, Relaxed);
        activity.came();
        assert_eq!(activity.phase(), Phase::Head as u64);
        assert!(!activity.has_parked.load(Relaxed));
    }
}
