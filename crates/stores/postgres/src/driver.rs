//! The driver's connection, for work that is not timed: it knows COPY, arrays and streams of rows.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
};

use acidtest_transport::Transport;
#[cfg(feature = "tls")]
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Error, NoTls, Socket, tls::NoTlsStream};
#[cfg(feature = "tls")]
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::fault;

/// A connection whose two halves are polled by whoever awaits an answer: so it is closed as soon as it is dropped, and why it
/// has ended is known.
pub(crate) struct Driver {
    client: Client,
    /// The half that reads and writes the socket; `None` once it has ended: only when it is dropped do requests that wait for
    /// it learn that.
    connection: Option<Half>,
    /// Why the connection ended, where that is known.
    ended: Option<String>,
}

/// The half that reads and writes, with TLS or without.
enum Half {
    Open(Box<Connection<Socket, NoTlsStream>>),
    #[cfg(feature = "tls")]
    Secured(Box<Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>>),
}

impl Driver {
    #[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "only TLS has a configuration there"))]
    pub(crate) async fn open(config: &Config, transport: &Transport) -> Result<Self, Error> {
        #[cfg(feature = "tls")]
        if let Some(security) = transport.security() {
            let tls = MakeRustlsConnect::new((**security.config()).clone());
            let (client, connection) = config.connect(tls).await?;
            return Ok(Self { client, connection: Some(Half::Secured(Box::new(connection))), ended: None });
        }
        let (client, connection) = config.connect(NoTls).await?;
        Ok(Self { client, connection: Some(Half::Open(Box::new(connection))), ended: None })
    }

    /// Sends one or more requests, and waits for all answers.
    pub(crate) async fn ask<T>(&mut self, request: impl AsyncFnOnce(&Client) -> T) -> T {
        let Self { client, connection, ended } = self;
        let mut request = pin!(request(client));
        poll_fn(|context| {
            if let done @ Poll::Ready(_) = request.as_mut().poll(context) {
                return done;
            }
            exchange(connection, ended, context);
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

fn exchange(connection: &mut Option<Half>, ended: &mut Option<String>, context: &mut Context<'_>) {
    let polled = match connection {
        None => return,
        Some(Half::Open(connection)) => Pin::new(connection).poll(context),
        #[cfg(feature = "tls")]
        Some(Half::Secured(connection)) => Pin::new(connection).poll(context),
    };
    if let Poll::Ready(done) = polled {
        *ended = done.err().map(|error| fault::words(&error));
        *connection = None;
    }
}
