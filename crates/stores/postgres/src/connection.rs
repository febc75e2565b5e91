//! How connections are opened: a client's, and the driver's, on which everything is done that is not timed.

use std::sync::Arc;

use acidtest_model::{Address, StoreError};
use acidtest_transport::Transport;

use crate::{
    DEFAULT_PORT,
    driver::{Connector, Driver},
    fault::ConnectError,
    protocol::{self, Login},
};

/// Address and login of the server. Connections are opened alike for clients and for work that is not timed.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    transport: Transport,
    login: Login,
    driver: Connector,
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
        let (transport, login) = (Transport::new(address, DEFAULT_PORT)?, Login::of(address)?);
        let driver = Connector::of(transport.clone(), &login, APPLICATION);
        Ok(Self { transport, login, driver, usual: None })
    }

    /// Has clients expect these settings of a session that they are given.
    pub(crate) fn expect(&mut self, usual: String) {
        self.usual = Some(usual.into());
    }

    pub(crate) fn usual(&self) -> Option<&str> {
        self.usual.as_deref()
    }

    #[must_use]
    pub fn address(&self) -> &Address {
        self.transport.address()
    }

    /// Connects and logs in, for a client.
    pub(crate) async fn connect(&self) -> Result<protocol::Connection, ConnectError> {
        let opened = self.transport.in_time(protocol::Connection::open(&self.transport, &self.login)).await;
        Ok(opened.map_err(ConnectError::Late)??)
    }

    /// Connects and logs in by the driver, for work that is not timed.
    pub(crate) async fn connect_driver(&self) -> Result<Driver, ConnectError> {
        Driver::open(&self.driver).await
    }
}

/// The name by which the server lists its connections.
pub(crate) const APPLICATION: &str = "acidtest";
