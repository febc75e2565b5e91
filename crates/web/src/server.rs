//! Accepts connections, and ends in order.

use std::{error::Error, io, net::SocketAddr, sync::Arc, time::Duration};

use acidtest_transport::Acceptor;
use bytes::Bytes;
use hyper::{
    Request, Response,
    body::{Body, Incoming},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{Instant, sleep},
};

use crate::{
    connection,
    places::{Held, Places, Vacancy},
};

/// Where connections come in, and what makes them ready to be read.
#[derive(Debug)]
pub struct Listener {
    pub tcp: TcpListener,
    /// With TLS, or without.
    pub acceptor: Acceptor,
}

/// What connections may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most connections at once. Beyond that, the one that has been idle for longest is closed for another.
    pub connections: usize,
    /// What becomes of one more where none is idle.
    pub beyond: Beyond,
    /// Bytes of the longest head of a request.
    pub head: usize,
    /// How long the head of a request, or the handshake of TLS, may take from its first byte on.
    pub head_time: Duration,
    /// How long a connection may be without a request.
    pub idle_time: Duration,
    /// How long a client may take nothing of what it is answered.
    pub deaf_time: Duration,
    /// How long requests that have begun may take at the end.
    pub ending_time: Duration,
}

/// What becomes of a connection for which there is no place.
#[derive(Clone, Copy, Debug)]
pub enum Beyond {
    /// It waits for one.
    Wait,
    /// It is answered so, and closed. With TLS it is closed without an answer: a handshake would cost more than what it is
    /// refused for.
    Refuse(&'static [u8]),
}

/// What answers requests, and is told what becomes of connections.
pub trait Handler: Send + Sync + 'static {
    /// The bodies of its answers.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static;

    /// The answer to a request of the client at this address.
    fn answer(
        self: &Arc<Self>,
        peer: SocketAddr,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Something has become of a connection.
    fn note(&self, _event: Event<'_>) {}
}

/// What becomes of connections.
#[derive(Clone, Copy, Debug)]
pub enum Event<'e> {
    Accepted,
    /// It is served from now on, so long after.
    Served(Duration),
    /// It is gone.
    Closed,
    /// One that was idle is closed for another.
    GivenUp,
    /// None can be accepted: file descriptors have run out, most likely.
    NotAccepted(&'e io::Error),
    /// No more are accepted; requests that have begun may end.
    Ending,
}

/// Serves connections until `stop` says so, and then those requests that have begun.
pub async fn serve(
    Listener { tcp, acceptor }: Listener,
    handler: Arc<impl Handler>,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Places::default());
    loop {
        let accepted = tokio::select! {
            accepted = accept(&tcp, &acceptor, &places, &*handler, &limits) => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        if let Some((stream, peer)) = accepted {
            let open = Open::new(&places, &handler);
            tokio::spawn(open.serve((stream, peer), acceptor.clone(), limits, stop.clone()));
        }
    }
    drop(tcp);
    handler.note(Event::Ending);
    let until = Instant::now() + limits.ending_time;
    while places.open() > 0 && Instant::now() < until {
        sleep(Duration::from_millis(10)).await;
    }
}

/// Accepts a connection for which there is a place, if it can be.
async fn accept(
    tcp: &TcpListener,
    acceptor: &Acceptor,
    places: &Places,
    handler: &impl Handler,
    limits: &Limits,
) -> Option<(TcpStream, SocketAddr)> {
    let (stream, peer) = match tcp.accept().await {
        Ok(accepted) => accepted,
        Err(error) => {
            handler.note(Event::NotAccepted(&error));
            // some may be given back meanwhile
            sleep(Duration::from_millis(50)).await;
            return None;
        }
    };
    loop {
        match (places.room(limits.connections), limits.beyond) {
            (Vacancy::Free, _) => return Some((stream, peer)),
            (Vacancy::GivenUp, _) => {
                handler.note(Event::GivenUp);
                return Some((stream, peer));
            }
            (Vacancy::None, Beyond::Wait) => places.freed().await,
            (Vacancy::None, Beyond::Refuse(answer)) => {
                if !acceptor.is_secure() {
                    // whoever does not read it is not waited for
                    let _ = stream.try_write(answer);
                }
                return None;
            }
        }
    }
}

/// A connection that is open, of which its handler is told.
struct Open<H: Handler> {
    handler: Arc<H>,
    held: Held,
    accepted: Instant,
}

impl<H: Handler> Open<H> {
    fn new(places: &Arc<Places>, handler: &Arc<H>) -> Self {
        handler.note(Event::Accepted);
        Self { handler: Arc::clone(handler), held: places.take(), accepted: Instant::now() }
    }

    async fn serve(
        self,
        accepted: (TcpStream, SocketAddr),
        acceptor: Acceptor,
        limits: Limits,
        stop: watch::Receiver<bool>,
    ) {
        self.handler.note(Event::Served(self.accepted.elapsed()));
        connection::serve(accepted, acceptor, &self.held.places, &self.handler, limits, stop).await;
    }
}

impl<H: Handler> Drop for Open<H> {
    fn drop(&mut self) {
        self.handler.note(Event::Closed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use http_body_util::Full;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        sync::Notify,
        task::JoinHandle,
    };

    use super::*;

    const REFUSED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\r\n";

    /// Answers `/slow` when it is told to, and everything else at once.
    #[derive(Default)]
    struct Slow {
        begun: Notify,
        goes_on: Notify,
        noted: Mutex<Vec<&'static str>>,
    }

    impl Handler for Slow {
        type Body = Full<Bytes>;

        async fn answer(self: &Arc<Self>, _: SocketAddr, request: Request<Incoming>) -> Response<Self::Body> {
            if request.uri().path() == "/slow" {
                self.begun.notify_one();
                self.goes_on.notified().await;
            }
            Response::new(Full::from("done"))
        }

        fn note(&self, event: Event<'_>) {
            let word = match event {
                Event::Accepted => "accepted",
                Event::Closed => "closed",
                Event::GivenUp => "given up",
                Event::Ending => "ending",
                Event::Served(_) | Event::NotAccepted(_) => return,
            };
            self.noted.lock().unwrap_or_else(PoisonError::into_inner).push(word);
        }
    }

    struct Server {
        address: SocketAddr,
        handler: Arc<Slow>,
        stop: watch::Sender<bool>,
        serving: JoinHandle<()>,
    }

    impl Server {
        async fn start(connections: usize, beyond: Beyond) -> Self {
            let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (address, handler) = (tcp.local_addr().unwrap(), Arc::new(Slow::default()));
            let (stop, stopped) = watch::channel(false);
            let minute = Duration::from_mins(1);
            let limits = Limits {
                connections,
                beyond,
                head: 8 << 10,
                head_time: minute,
                idle_time: minute,
                deaf_time: minute,
                ending_time: minute,
            };
            let listener = Listener { tcp, acceptor: Acceptor::default() };
            let serving = tokio::spawn(serve(listener, Arc::clone(&handler), limits, stopped));
            Self { address, handler, stop, serving }
        }

        async fn open(&self) -> TcpStream {
            TcpStream::connect(self.address).await.unwrap()
        }

        /// A connection on which a request is under way.
        async fn busy(&self) -> TcpStream {
            let mut stream = self.open().await;
            ask(&mut stream, "/slow").await;
            self.handler.begun.notified().await;
            stream
        }

        fn noted(&self) -> Vec<&'static str> {
            self.handler.noted.lock().unwrap().clone()
        }

        /// Waits until something was noted, and all that is to be done for it is done.
        async fn until_noted(&self, word: &str) {
            while !self.noted().contains(&word) {
                tokio::task::yield_now().await;
            }
            // one thread runs all tasks, each in its turn
            tokio::task::yield_now().await;
        }
    }

    async fn ask(stream: &mut TcpStream, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
    }

    async fn is_answered(stream: &mut TcpStream) -> bool {
        let mut text = Vec::new();
        while !text.ends_with(b"done") {
            if stream.read_buf(&mut text).await.unwrap() == 0 {
                return false;
            }
        }
        text.starts_with(b"HTTP/1.1 200 OK\r\n")
    }

    #[tokio::test]
    async fn whoever_is_one_too_many_waits_for_a_place() {
        let server = Server::start(1, Beyond::Wait).await;
        let busy = server.busy().await;
        let mut next = server.open().await;
        ask(&mut next, "/").await;
        drop(busy);
        assert!(is_answered(&mut next).await);
        assert_eq!(server.noted(), ["accepted", "closed", "accepted"]);
    }

    #[tokio::test]
    async fn whoever_is_one_too_many_is_told() {
        let server = Server::start(1, Beyond::Refuse(REFUSED)).await;
        let _busy = server.busy().await;
        let mut told = Vec::new();
        server.open().await.read_to_end(&mut told).await.unwrap();
        assert_eq!(told, REFUSED);
        assert_eq!(server.noted(), ["accepted"]);
    }

    /// So it is, whatever becomes of one more: idle connections keep nobody out.
    #[tokio::test]
    async fn an_idle_connection_is_closed_for_another() {
        for beyond in [Beyond::Wait, Beyond::Refuse(REFUSED)] {
            let server = Server::start(1, beyond).await;
            let mut idle = server.open().await;
            server.until_noted("accepted").await;
            let mut next = server.open().await;
            ask(&mut next, "/").await;
            assert!(is_answered(&mut next).await);
            assert_eq!(idle.read(&mut [0]).await.unwrap(), 0);
            assert_eq!(server.noted()[..3], ["accepted", "given up", "accepted"]);
        }
    }

    /// The end waits for requests that have begun, and for nothing else.
    #[tokio::test]
    async fn a_request_that_has_begun_is_answered_at_the_end() {
        let server = Server::start(3, Beyond::Wait).await;
        let (mut busy, mut idle) = (server.busy().await, server.open().await);
        server.stop.send(true).unwrap();
        assert_eq!(idle.read(&mut [0]).await.unwrap_or(0), 0);
        server.until_noted("ending").await;
        assert!(!server.serving.is_finished());
        assert!(TcpStream::connect(server.address).await.is_err(), "nobody is accepted any more");
        server.handler.goes_on.notify_one();
        assert!(is_answered(&mut busy).await);
        server.serving.await.unwrap();
    }
}
