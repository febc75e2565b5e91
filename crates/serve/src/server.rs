//! The server from its start to its end.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use acidtest_model::OwnCertificate;
use acidtest_transport::{Acceptor, TlsError};
use acidtest_web::{Beyond, Handler, Limits, Listener};
use axum::{Router, body::Body, response::Response};
use hyper::{Request, body::Incoming};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tower::Service;

pub use crate::http::Token;
use crate::{
    Program,
    app::App,
    http::{Guard, router},
    runs::Runs,
};

/// What connections may take: readers of events, and others.
const LIMITS: Limits = Limits {
    connections: 512,
    // whoever comes when there is no room waits to be served
    beyond: Beyond::Wait,
    head: 64 << 10,
    head_time: Duration::from_secs(20),
    idle_time: Duration::from_secs(20),
    deaf_time: Duration::from_secs(30),
    // readers of runs that wait would hold up the end
    ending_time: Duration::ZERO,
};

/// How the server is set up.
pub struct Config {
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

pub struct Server {
    /// Where it listens, such as `http://127.0.0.1:1730`.
    pub url: String,
    runs: Arc<Runs>,
    making: JoinHandle<()>,
    stop: watch::Sender<bool>,
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
    let tcp = TcpListener::bind(listen).await.map_err(|error| {
        Error::Other(format!(
            "cannot listen on {listen}: {error}\n  remedy: name another address with --listen"
        ))
    })?;
    let address = tcp.local_addr().map_err(|error| Error::Other(error.to_string()))?;
    let hosts = hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect();
    let app = App::new(
        Arc::clone(&runs),
        program,
        Guard { token, is_local, is_secure: acceptor.is_secure(), hosts },
    );
    let url = format!("{}://{address}", acceptor.scheme());
    let (stop, stopped) = watch::channel(false);
    let routed = Arc::new(Routed(router(app)));
    let listening = tokio::spawn(acidtest_web::serve(Listener { tcp, acceptor }, routed, LIMITS, stopped));
    let makes = Arc::clone(&runs);
    let making = tokio::spawn(async move { makes.make_all().await });
    Ok(Server { url, runs, making, stop, listening })
}

impl Server {
    /// Takes no more requests, has the run that is made end tidily, and waits for that. Runs that wait are made after the
    /// next start.
    pub async fn stop(self) {
        self.runs.end();
        let _ = self.making.await;
        let _ = self.stop.send(true);
        let _ = self.listening.await;
    }
}

/// Answers by what can be asked for.
struct Routed(Router);

impl Handler for Routed {
    type Body = Body;

    async fn answer(self: &Arc<Self>, _: SocketAddr, request: Request<Incoming>) -> Response {
        let Ok(response) = self.0.clone().call(request).await;
        response
    }
}
