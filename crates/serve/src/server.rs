//! The server from its start to its end.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use acidtest_model::OwnCertificate;
use acidtest_transport::{Acceptor, Stream, TlsError};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinHandle};
use tokio_io_timeout::TimeoutStream;

pub use crate::http::Token;
use crate::{
    Program,
    app::App,
    http::{Guard, router},
    runs::Runs,
};

/// Connections at once: readers of events, and others.
const CONNECTIONS: usize = 512;

/// How long the head of a request may take to come, and a connection may be idle.
const HEAD: Duration = Duration::from_secs(20);

/// How long a client may take nothing of what it is answered.
const DEAF: Duration = Duration::from_secs(30);

/// Bytes of the longest head of a request.
const HEAD_BYTES: usize = 64 << 10;

/// How the server is set up.
pub struct Config {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Its certificate, by which it speaks TLS, and nothing else; none for HTTP without TLS.
    pub certificate: Option<OwnCertificate>,
    /// What requests must have; none if they need nothing, which is for loopback only.
    pub token: Option<Token>,
    /// Names of this machine that requests may use, besides `localhost` and its addresses.
    pub hosts: Vec<String>,
    /// The folder of results.
    pub results: PathBuf,
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for makes no sense, or may not be.
    #[error("{0}")]
    Usage(String),
    /// The system did not give what is needed.
    #[error("{0}")]
    Other(String),
}

/// A server that runs.
pub struct Server {
    /// Where it listens, such as `http://127.0.0.1:1730`.
    pub url: String,
    runs: Arc<Runs>,
    making: JoinHandle<()>,
    listening: JoinHandle<()>,
}

/// Starts a server on the current runtime.
///
/// # Errors
/// The address would let others in without a token, it cannot be listened on, or the certificate or the folder of results
/// cannot be used.
pub async fn start(config: Config, program: impl Program) -> Result<Server, Error> {
    let Config { listen, certificate, token, hosts, results } = config;
    let is_local = listen.ip().is_loopback();
    if !is_local && token.is_none() {
        return Err(Error::Usage(format!(
            "whoever can reach {} could start runs on this machine\n  remedy: --token-file FILE, or listen on 127.0.0.1",
            listen.ip()
        )));
    }
    let acceptor = Acceptor::new(certificate.as_ref());
    let acceptor = acceptor
        .map_err(|TlsError { cause, remedy }| Error::Usage(format!("{cause}\n  remedy: {remedy}")))?;
    let program: Arc<dyn Program> = Arc::new(program);
    let runs = Arc::new(Runs::open(&results, Arc::clone(&program)).map_err(Error::Other)?);
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        Error::Other(format!(
            "cannot listen on {listen}: {error}\n  remedy: name another address with --listen"
        ))
    })?;
    let address = listener.local_addr().map_err(|error| Error::Other(error.to_string()))?;
    let hosts = hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect();
    let app = App::new(
        Arc::clone(&runs),
        program,
        Guard { token, is_local, is_secure: acceptor.is_secure(), hosts },
    );
    let url = format!("{}://{address}", acceptor.scheme());
    let listening = tokio::spawn(listen_on(listener, acceptor, router(app)));
    let makes = Arc::clone(&runs);
    let making = tokio::spawn(async move { makes.make_all().await });
    Ok(Server { url, runs, making, listening })
}

impl Server {
    /// Takes no more requests, has the run that is made end tidily, and waits for that. Runs that wait are made after the
    /// next start.
    pub async fn stop(self) {
        self.runs.end();
        let _ = self.making.await;
        self.listening.abort();
    }
}

async fn listen_on(listener: TcpListener, acceptor: Acceptor, router: Router) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // whoever comes when there is no room waits to be accepted
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (acceptor, router) = (acceptor.clone(), router.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream, HEAD).await {
                        serve(stream, router).await;
                    }
                    drop(place);
                });
            }
            // no file is free, or the client has gone already
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn serve(stream: Stream, router: Router) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(DEAF));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router))
        .await;
    // a client that is gone, or that spoke no HTTP and was told so
    drop(served);
}
