//! The driver's connection, for work that is not timed: it knows COPY, arrays and streams of rows.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use acidtest_model::{Address, StoreError};
use acidtest_transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, Error, NoTls, SimpleQueryMessage, Socket,
    config::{ChannelBinding, SslMode},
};
#[cfg(feature = "tls")]
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{
    DEFAULT_PORT,
    fault::{self, ConnectError},
    leader::Writes,
    protocol::Login,
};

/// Opens the driver's connections to one server: for all that is not timed, and for whoever else keeps something there.
#[derive(Clone, Debug)]
pub struct Connector {
    config: Box<Config>,
    transport: Transport,
}

/// The half of a connection that reads and writes the socket. Only while it is polled are requests sent and answered; it ends
/// with the connection, and says why.
pub type Exchange = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

impl Connector {
    /// For the server at an address, which lists these connections by the name of their `application`.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`]: a certificate that it names cannot be used, or it names no user and the system does not
    /// tell who runs this.
    pub fn new(address: &Address, application: &str) -> Result<Self, StoreError> {
        Ok(Self::of(Transport::new(address, DEFAULT_PORT)?, &Login::of(address)?, application))
    }

    pub(crate) fn of(transport: Transport, login: &Login, application: &str) -> Self {
        let address = transport.address();
        let mut config = Config::new();
        match &address.socket {
            Some(folder) => config.host_path(folder),
            None => config.host(&address.host),
        };
        config
            .port(address.port.unwrap_or(DEFAULT_PORT))
            .user(&login.user)
            .application_name(application)
            // with TLS, a server that says it has none is told nothing
            .ssl_mode(if transport.check().is_some() { SslMode::Require } else { SslMode::Disable });
        if login.binds {
            config.channel_binding(ChannelBinding::Require);
        }
        if let Some(password) = &login.password {
            config.password(password.reveal());
        }
        if let Some(database) = &login.database {
            config.dbname(database);
        }
        Self { config: Box::new(config), transport }
    }

    /// The same, on whose connections names without a schema are of this one, instead of the server's search path.
    #[must_use]
    pub fn within(mut self, schema: &str) -> Self {
        self.config.options(format!("-c search_path={schema}"));
        self
    }

    #[must_use]
    pub fn address(&self) -> &Address {
        self.transport.address()
    }

    /// Connects and logs in, in the time that the address has for that. [`fault::unreachable`] has the remedy if that fails.
    pub async fn connect(&self) -> Result<(Client, Exchange), ConnectError> {
        let opened = self.transport.in_time(self.open()).await;
        let (client, exchange, _) = opened.map_err(ConnectError::Late)??;
        Ok((client, exchange))
    }

    async fn open(&self) -> Result<(Client, Exchange, Writes), Error> {
        #[cfg(feature = "tls")]
        if let Some(security) = self.transport.security() {
            let tls = MakeRustlsConnect::new((**security.config()).clone());
            let (client, connection) = self.config.connect(tls).await?;
            let writes = Writes::of(Writes::SETTINGS.map(|name| connection.parameter(name)));
            return Ok((client, exchange(connection), writes));
        }
        let (client, connection) = self.config.connect(NoTls).await?;
        let writes = Writes::of(Writes::SETTINGS.map(|name| connection.parameter(name)));
        Ok((client, exchange(connection), writes))
    }
}

/// Reads and writes until the connection ends, or the server warns that a commit has not waited for its replicas. Then nobody may take the
/// commit's answer for an acknowledgement, and whoever waits for it learns only that the connection has ended.
fn exchange(
    mut connection: Connection<Socket, impl AsyncRead + AsyncWrite + Unpin + Send + 'static>,
) -> Exchange {
    Box::pin(poll_fn(move |context| {
        loop {
            match ready!(connection.poll_message(context)) {
                Some(Ok(AsyncMessage::Notice(notice))) if fault::is_alone(&notice) => {
                    return Poll::Ready(Ok(()));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(Ok(())),
            }
        }
    }))
}

/// A connection whose two halves are polled by whoever awaits an answer: so it is closed as soon as it is dropped, and why it
/// has ended is known.
pub(crate) struct Driver {
    client: Client,
    /// `None` once it has ended: only when it is dropped do requests that wait for it learn that.
    exchange: Option<Exchange>,
    /// Why the connection ended, where that is known.
    ended: Option<String>,
}

impl Driver {
    /// Connects in the time that the address has for that, to a server that takes writes if it must.
    pub(crate) async fn open(connector: &Connector, must_write: bool) -> Result<Self, ConnectError> {
        let opened = connector.transport.in_time(async {
            let (client, exchange, writes) = connector.open().await?;
            let mut opened = Self { client, exchange: Some(exchange), ended: None };
            if must_write {
                opened.writes(writes).await?.check()?;
            }
            Ok(opened)
        });
        opened.await.map_err(ConnectError::Late)?
    }

    /// Whether the server takes writes, as it said at the login, or says now that it is asked.
    async fn writes(&mut self, said: Writes) -> Result<Writes, Error> {
        if said.is_known() {
            return Ok(said);
        }
        let told = self.ask(async |client| client.simple_query(Writes::QUESTION).await).await?;
        let row = told.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        Ok(Writes::of([0, 1].map(|at| row.and_then(|row| row.get(at)))))
    }

    /// Sends one or more requests, and waits for all answers.
    pub(crate) async fn ask<T>(&mut self, request: impl AsyncFnOnce(&Client) -> T) -> T {
        let Self { client, exchange, ended } = self;
        let mut request = pin!(request(client));
        poll_fn(|context| {
            if let done @ Poll::Ready(_) = request.as_mut().poll(context) {
                return done;
            }
            go_on(exchange, ended, context);
            // the bytes just read may be this request's answer
            request.as_mut().poll(context)
        })
        .await
    }

    /// An error's message, with the reason why the connection ended where that caused the error.
    pub(crate) fn words(&self, error: &Error) -> String {
        match &self.ended {
            Some(ended) if error.is_closed() => ended.clone(),
            _ => fault::words(error),
        }
    }
}

fn go_on(exchange: &mut Option<Exchange>, ended: &mut Option<String>, context: &mut Context<'_>) {
    let Some(open) = exchange else { return };
    if let Poll::Ready(done) = open.as_mut().poll(context) {
        *ended = done.err().map(|error| fault::words(&error));
        *exchange = None;
    }
}
