//! Connections over TCP or a Unix socket, over TCP with TLS where an address asks for it, or a certificate was given.
//!
//! A [`Transport`] is made of an address, once for a store, and opens its connections. An [`Acceptor`] makes those ready that
//! acidtest's own servers accept. There is one configuration of TLS
//! for all stores: rustls with its own choice of ciphers, TLS 1.2 and 1.3, no early data. Drivers that open their
//! connections themselves are given it. What goes wrong with TLS is a [`TlsError`], which has a remedy.
//!
//! Where TLS was asked for, nothing is said without it: no byte of a login is written before the handshake is done. Without
//! the feature `tls`, addresses that ask for TLS are refused.

#![warn(missing_docs)]

mod acceptor;
mod error;
#[cfg(feature = "mysql")]
mod mysql;
mod open;
mod pipelined;
mod requests;
mod sessions;
mod socket;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod wire;

use std::{io, path::PathBuf, sync::Arc};

use acidtest_model::{Address, CertificateCheck, StoreError, no_connection_within};
use tokio::time::timeout;

use crate::socket::Socket;
#[cfg(feature = "tls")]
pub use crate::tls::Security;
pub use crate::{
    acceptor::Acceptor,
    error::{TlsError, demand, explain},
    pipelined::{Pipelined, Received},
    requests::{RequestError, Requests},
    sessions::{Probe, Refusal, refuse_sharing},
    stream::Stream,
    wire::{Place, Wire},
};

/// The share of the time for opening a connection that the handshake of TLS may take: less than all of it, so that it is named as
/// what takes so long.
#[cfg(feature = "tls")]
const HANDSHAKE: f64 = 0.8;

/// Opens connections to one server.
#[derive(Clone, Debug)]
pub struct Transport(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    endpoint: String,
    /// The Unix socket that takes the endpoint's place, if the address names one.
    socket: Option<PathBuf>,
    address: Address,
    #[cfg(feature = "tls")]
    security: Option<Security>,
}

impl Transport {
    /// For the server at an address. Reads the certificates that it names, or those that the system trusts.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`]: a certificate cannot be read or used, or this acidtest was built without TLS.
    pub fn new(address: &Address, default_port: u16) -> Result<Self, StoreError> {
        let (endpoint, socket) = (address.endpoint(default_port), address.socket_file(default_port));
        #[cfg(feature = "tls")]
        {
            let security = address.tls.as_ref().map(|tls| Security::new(address, tls)).transpose();
            let security = security.map_err(|TlsError { cause, remedy }| StoreError::Unreachable {
                address: address.to_string(),
                cause,
                remedy,
            })?;
            Ok(Self(Arc::new(Shared { endpoint, socket, address: address.clone(), security })))
        }
        #[cfg(not(feature = "tls"))]
        {
            if address.tls.is_some() {
                return Err(StoreError::Unreachable {
                    address: address.to_string(),
                    cause: "this acidtest was built without TLS".to_owned(),
                    remedy: "build it with the feature tls, or give an address without TLS".to_owned(),
                });
            }
            Ok(Self(Arc::new(Shared { endpoint, socket, address: address.clone() })))
        }
    }

    /// Host and port, as one would type them to reach the server.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.0.endpoint
    }

    /// The address that it was made of.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.0.address
    }

    /// What is checked of the server's certificate; none without TLS.
    #[must_use]
    pub fn check(&self) -> Option<CertificateCheck> {
        #[cfg(feature = "tls")]
        return self.0.security.as_ref().map(Security::check);
        #[cfg(not(feature = "tls"))]
        None
    }

    /// The TLS of its connections, for a driver that opens them itself; none without TLS.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn security(&self) -> Option<&Security> {
        self.0.security.as_ref()
    }

    /// What comes of opening a connection, its login included, in the time that the address has for that.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`]: nothing did.
    pub async fn in_time<T>(&self, opening: impl Future<Output = T>) -> io::Result<T> {
        let time = self.0.address.connect_timeout;
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, no_connection_within(time));
        timeout(time, opening).await.map_err(late)
    }

    /// Opens a connection, with TLS if the address asks for it.
    ///
    /// # Errors
    /// The network's; that no connection came about in [time](Self::in_time); or a [`TlsError`] in an [`io::Error`].
    pub async fn connect(&self) -> io::Result<Stream> {
        self.in_time(async { self.secure(self.open().await?).await }).await?
    }

    /// Opens a connection without TLS, for a protocol in which the server speaks first and openly. Whoever calls this must
    /// [`secure`](Self::secure) it before saying anything.
    ///
    /// # Errors
    /// The network's, or that no connection came about in [time](Self::in_time).
    pub async fn connect_openly(&self) -> io::Result<Stream> {
        self.in_time(self.open()).await?
    }

    async fn open(&self) -> io::Result<Stream> {
        let connected = match &self.0.socket {
            Some(file) => Socket::unix(file).await,
            None => Socket::tcp(&self.0.endpoint).await,
        };
        connected.map(Stream::open)
    }

    /// Goes over to TLS on a connection without, if the address asks for it.
    ///
    /// # Errors
    /// A [`TlsError`] in an [`io::Error`].
    #[cfg_attr(not(feature = "tls"), expect(clippy::unused_async, reason = "it waits where there is TLS"))]
    pub async fn secure(&self, stream: Stream) -> io::Result<Stream> {
        #[cfg(feature = "tls")]
        if let Some(security) = &self.0.security {
            let time = self.0.address.connect_timeout.mul_f64(HANDSHAKE);
            let secured = timeout(time, security.handshake(stream)).await;
            return secured.unwrap_or_else(|_| Err(TlsError::silent(time).into()));
        }
        Ok(stream)
    }
}
