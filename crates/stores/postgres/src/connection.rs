//! One connection, polled by the task that waits for its answer.
//!
//! tokio-postgres hands out a connection in two halves, to be driven from two tasks. Here both are polled by the
//! client's own task: a request costs no hop to another task, a connection that the server has closed is known
//! before anything more is sent, and dropping a connection closes its socket at once, whatever is in flight.

use std::{
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use acidtest_model::{Address, StoreError};
use acidtest_transport::{CONNECT, Transport};
use futures_util::future::maybe_done;
use tokio::time::timeout;
#[cfg(feature = "tls")]
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{
    Client, Config, Error, NoTls, Socket,
    config::{ChannelBinding, SslMode},
    tls::NoTlsStream,
};
#[cfg(feature = "tls")]
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{DEFAULT_PORT, fault};

/// How long connecting, a handshake of TLS and logging in may take together; a server that starts may keep a client waiting.
const LOGIN: Duration = Duration::from_secs(8);

/// Address and login of the server. Connections are opened alike for clients and for work that is not timed.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    address: Address,
    config: Config,
    transport: Transport,
}

impl ConnectOptions {
    /// For the server at an address.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`]: a certificate that it names cannot be used.
    pub fn new(address: &Address) -> Result<Self, StoreError> {
        let transport = Transport::new(address, DEFAULT_PORT)?;
        let mut config = Config::new();
        config
            .host(&address.host)
            .port(address.port.unwrap_or(DEFAULT_PORT))
            .application_name("acidtest")
            // with TLS, a server that says it has none is told nothing
            .ssl_mode(if transport.check().is_some() { SslMode::Require } else { SslMode::Disable })
            .connect_timeout(CONNECT);
        if address.tls.as_ref().is_some_and(|tls| tls.binds) {
            config.channel_binding(ChannelBinding::Require);
        }
        if let Some(user) = &address.user {
            config.user(user);
        }
        if let Some(password) = &address.password {
            config.password(password.reveal());
        }
        if !address.path.is_empty() {
            config.dbname(&address.path);
        }
        Ok(Self { address: address.clone(), config, transport })
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Connects and logs in.
    pub(crate) async fn connect(&self) -> Result<Connection, ConnectError> {
        Ok(timeout(LOGIN, self.log_in()).await.map_err(|_| ConnectError::Silent)??)
    }

    async fn log_in(&self) -> Result<Connection, Error> {
        #[cfg(feature = "tls")]
        if let Some(security) = self.transport.security() {
            let tls = MakeRustlsConnect::new((**security.config()).clone());
            let (client, connection) = self.config.connect(tls).await?;
            return Ok(Connection::new(client, Half::Secured(Box::new(connection))));
        }
        let (client, connection) = self.config.connect(NoTls).await?;
        Ok(Connection::new(client, Half::Open(Box::new(connection))))
    }
}

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The driver's reason.
    #[error("{}", fault::words(.0))]
    Driver(#[from] Error),
    /// Something accepts connections there, and does not answer.
    #[error("no answer within {LOGIN:?}")]
    Silent,
}

/// One client's connection to a PostgreSQL server, driven by whoever awaits an answer on it.
pub struct Connection {
    client: Arc<Client>,
    wire: Wire,
}

/// The half that reads and writes the socket.
struct Wire {
    /// `None` once it has ended: only when it is dropped do requests that wait for it learn that.
    connection: Option<Half>,
    /// Why the connection ended, where that is known.
    ended: Option<String>,
}

/// The driver's own half, with TLS or without.
enum Half {
    Open(Box<tokio_postgres::Connection<Socket, NoTlsStream>>),
    #[cfg(feature = "tls")]
    Secured(Box<tokio_postgres::Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>>),
}

impl Connection {
    fn new(client: Client, half: Half) -> Self {
        Self { client: Arc::new(client), wire: Wire { connection: Some(half), ended: None } }
    }

    /// Sends one or more requests at once, and waits for all answers.
    pub async fn ask<T>(&mut self, request: impl AsyncFnOnce(&Client) -> T) -> T {
        let Self { client, wire } = self;
        let mut request = pin!(request(client));
        poll_fn(|context| {
            if let done @ Poll::Ready(_) = request.as_mut().poll(context) {
                return done;
            }
            wire.poll(context);
            // the bytes just read may be this request's answer
            request.as_mut().poll(context)
        })
        .await
    }

    /// The client by which to make requests that outlive the call: a later [`ask`](Self::ask) drives them.
    pub(crate) fn client(&self) -> Arc<Client> {
        Arc::clone(&self.client)
    }

    /// Whether the connection can still be used, as far as is known without asking the server.
    pub async fn is_open(&mut self) -> bool {
        poll_fn(|context| {
            self.wire.poll(context);
            Poll::Ready(self.wire.connection.is_some())
        })
        .await
    }

    /// An error's message, with the reason why the connection ended where that caused the error.
    #[must_use]
    pub fn words(&self, error: &Error) -> String {
        match &self.wire.ended {
            Some(ended) if error.is_closed() => ended.clone(),
            _ => fault::words(error),
        }
    }

    /// Why the connection is closed: the network's message, or `connection closed` where none is known.
    #[must_use]
    pub fn ended(&self) -> String {
        self.wire.ended.clone().unwrap_or_else(|| "connection closed".to_owned())
    }
}

impl Wire {
    fn poll(&mut self, context: &mut Context<'_>) {
        let Some(connection) = &mut self.connection else { return };
        let ended = match connection {
            Half::Open(connection) => Pin::new(connection).poll(context),
            #[cfg(feature = "tls")]
            Half::Secured(connection) => Pin::new(connection).poll(context),
        };
        if let Poll::Ready(ended) = ended {
            self.ended = ended.err().map(|error| fault::words(&error));
            self.connection = None;
        }
    }
}

/// Sends all requests at once and in this order, and waits for all answers.
pub(crate) async fn in_order<F: Future>(requests: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut requests: Vec<_> = requests.map(|request| Box::pin(maybe_done(request))).collect();
    let (mut sent, mut answered) = (false, 0);
    poll_fn(|context| {
        while let Some(next) = requests.get_mut(answered) {
            if next.as_mut().poll(context).is_pending() {
                break;
            }
            answered += 1;
        }
        // a request is sent when it is first polled; from then on answers arrive in the same order
        if !mem::replace(&mut sent, true) {
            for request in requests.iter_mut().skip(answered + 1) {
                let _ = request.as_mut().poll(context);
            }
        }
        if answered < requests.len() { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    requests.iter_mut().filter_map(|request| request.as_mut().take_output()).collect()
}
