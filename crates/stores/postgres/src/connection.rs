//! How connections are opened: a client's, and the driver's, on which everything is done that is not timed.

use std::{io, sync::Arc};

use acidtest_model::{Address, StoreError};
use acidtest_transport::Transport;
use tokio_postgres::{
    Config,
    config::{ChannelBinding, SslMode},
};

use crate::{
    DEFAULT_PORT,
    driver::Driver,
    fault,
    protocol::{self, Login},
};

/// Address and login of the server. Connections are opened alike for clients and for work that is not timed.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    address: Address,
    config: Config,
    transport: Transport,
    login: Login,
    /// The settings of a session in which nobody has set any, as they were read when the store was opened.
    usual: Option<Arc<str>>,
}

impl ConnectOptions {
    /// For the server at an address.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`]: a certificate that it names cannot be used, or it names no user and the system does not
    /// tell who runs this.
    pub fn new(address: &Address) -> Result<Self, StoreError> {
        let transport = Transport::new(address, DEFAULT_PORT)?;
        let user = address.user.clone().map_or_else(whoami::username, Ok);
        let user = user.map_err(|error| StoreError::Unreachable {
            address: address.to_string(),
            cause: format!("the address names no user, and the system does not tell who runs this: {error}"),
            remedy: fault::LOGIN.to_owned(),
        })?;
        let login = Login {
            user,
            password: address.password.clone(),
            database: Some(address.path.clone()).filter(|path| !path.is_empty()),
            binds: address.tls.as_ref().is_some_and(|tls| tls.binds),
        };
        let mut config = Config::new();
        match &address.socket {
            Some(folder) => config.host_path(folder),
            None => config.host(&address.host),
        };
        config
            .port(address.port.unwrap_or(DEFAULT_PORT))
            .user(&login.user)
            .application_name(APPLICATION)
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
        Ok(Self { address: address.clone(), config, transport, login, usual: None })
    }

    /// Has clients expect these settings of a session that they are given.
    pub(crate) fn expect(&mut self, usual: String) {
        self.usual = Some(usual.into());
    }

    pub(crate) fn usual(&self) -> Option<&str> {
        self.usual.as_deref()
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Connects and logs in, for a client.
    pub(crate) async fn connect(&self) -> Result<protocol::Connection, ConnectError> {
        let opened = self.transport.in_time(protocol::Connection::open(&self.transport, &self.login)).await;
        Ok(opened.map_err(ConnectError::Late)??)
    }

    /// Connects and logs in by the driver, for work that is not timed.
    pub(crate) async fn connect_driver(&self) -> Result<Driver, ConnectError> {
        let opened = self.transport.in_time(Driver::open(&self.config, &self.transport)).await;
        Ok(opened.map_err(ConnectError::Late)??)
    }
}

/// The name by which the server lists its connections.
pub(crate) const APPLICATION: &str = "acidtest";

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// A client's reason.
    #[error(transparent)]
    Client(#[from] protocol::Error),
    /// The driver's reason.
    #[error("{}", fault::words(.0))]
    Driver(#[from] tokio_postgres::Error),
    /// Nothing came about in time.
    #[error("{0}")]
    Late(io::Error),
}
