//! Accepts connections, and ends those that take too long.

use std::{
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{sleep, sleep_until},
};

use super::{Limits, Service, routes};
use crate::metrics::Stage;

/// What a connection beyond the limit is told.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-type: application/problem+json\r\ncontent-length: 63\r\n\r\n\
    {\"title\":\"the gateway has too many connections\",\"status\":503}\r\n";
/// How long requests may take to end at a shutdown.
const ENDING: Duration = Duration::from_secs(5);
/// How much of a connection's head is read at most, in bytes.
const HEAD: usize = 16 << 10;

/// Serves connections until `stop` says so, and then those requests that have begun.
pub(crate) async fn accept(listener: TcpListener, service: Arc<Service>, mut stop: watch::Receiver<bool>) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, _)) if open.load(Relaxed) >= service.limits.connections => refuse(&stream),
            Ok((stream, _)) => {
                let held = Held::new(&open, &service);
                tokio::spawn(serve(stream, Arc::clone(&service), stop.clone(), held));
            }
            Err(error) => {
                // file descriptors have run out, most likely: some are given back
                tracing::warn!(%error, "a connection cannot be accepted");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    let until = Instant::now() + ENDING;
    while open.load(Relaxed) > 0 && Instant::now() < until {
        sleep(Duration::from_millis(10)).await;
    }
}

fn refuse(stream: &TcpStream) {
    // whoever does not read it is not waited for
    let _ = stream.try_write(TOO_MANY);
}

/// A place among the connections.
struct Held {
    open: Arc<AtomicUsize>,
    service: Arc<Service>,
    accepted: Instant,
}

impl Held {
    fn new(open: &Arc<AtomicUsize>, service: &Arc<Service>) -> Self {
        open.fetch_add(1, Relaxed);
        service.metrics.connections.inc();
        Self { open: Arc::clone(open), service: Arc::clone(service), accepted: Instant::now() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Relaxed);
        self.service.metrics.connections.dec();
    }
}

async fn serve(stream: TcpStream, service: Arc<Service>, mut stop: watch::Receiver<bool>, held: Held) {
    service.metrics.stage(Stage::Accept, held.accepted.elapsed());
    // without it an answer may wait for the client's acknowledgement of the one before
    let _ = stream.set_nodelay(true);
    let activity = Arc::new(Activity::new());
    let limits = service.limits;
    let watched = Watched { stream, activity: Arc::clone(&activity) };
    let serves = service_fn({
        let activity = Arc::clone(&activity);
        move |request| {
            let (service, activity) = (Arc::clone(&service), Arc::clone(&activity));
            // only a connection that is served holds the state of a request
            Box::pin(async move {
                activity.enter(Phase::Request);
                let answer = routes::answer(&service, request).await;
                activity.enter(Phase::Idle);
                Ok::<_, std::convert::Infallible>(answer)
            })
        }
    });
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(watched), serves);
    let mut connection = pin!(connection);
    let mut is_ending = false;
    loop {
        tokio::select! {
            // whatever ended it, nobody is left to be told
            _ = connection.as_mut() => return,
            // a head may begin while this sleeps, and has less time than a connection that is idle
            () = sleep_until(activity.until(&limits).min(Instant::now() + limits.head_time).into()) => {
                if activity.until(&limits) <= Instant::now() {
                    return;
                }
            }
            _ = stop.wait_for(|stop| *stop), if !is_ending => {
                is_ending = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It waits for a request.
    Idle = 0,
    /// Some of a request's head has come.
    Head = 1,
    /// A request is served, which has times of its own.
    Request = 2,
}

/// What a connection does, and since when.
struct Activity {
    born: Instant,
    /// Milliseconds since `born`, four times, and the phase.
    state: AtomicU64,
}

impl Activity {
    fn new() -> Self {
        Self { born: Instant::now(), state: AtomicU64::new(Phase::Idle as u64) }
    }

    fn enter(&self, phase: Phase) {
        let millis = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX >> 2);
        self.state.store(millis << 2 | phase as u64, Relaxed);
    }

    /// Some bytes of the client have come.
    fn came(&self) {
        if self.state.load(Relaxed) & 3 == Phase::Idle as u64 {
            self.enter(Phase::Head);
        }
    }

    /// The moment at which it takes too long.
    fn until(&self, limits: &Limits) -> Instant {
        let state = self.state.load(Relaxed);
        let since = self.born + Duration::from_millis(state >> 2);
        match state & 3 {
            0 => since + limits.idle_time,
            1 => since + limits.head_time,
            // looked at again when it may be over
            _ => Instant::now() + limits.head_time,
        }
    }
}

/// A stream that notes when something comes.
struct Watched {
    stream: TcpStream,
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
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_too_many_is_as_long_as_it_says() {
        let text = std::str::from_utf8(TOO_MANY).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{} bytes", body.len());
    }

    #[test]
    fn each_phase_has_its_time() {
        let limits = Limits {
            connections: 1,
            body: 1,
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(1),
            idle_time: Duration::from_mins(1),
        };
        let activity = Activity::new();
        let left = || activity.until(&limits).duration_since(Instant::now()).as_secs();
        assert!((58..=60).contains(&left()));
        activity.came();
        assert!((8..=10).contains(&left()));
        activity.enter(Phase::Request);
        activity.came();
        assert_eq!(activity.state.load(Relaxed) & 3, Phase::Request as u64);
    }
}
