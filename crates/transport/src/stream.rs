//! A connection, with TLS or without, that was opened or accepted.

use std::{
    fmt,
    future::Future,
    io,
    pin::{Pin, pin},
    task::{Context, Poll},
};

use acidtest_model::NegotiatedTls;
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

#[cfg(feature = "tls")]
use crate::tls::Secured;
use crate::{
    open::{MayBlock, Open},
    socket::Socket,
};

/// A connection to a server, or from a client.
pub struct Stream(Kind);

enum Kind {
    Open(Open),
    #[cfg(feature = "tls")]
    Secured(Box<Secured>),
    #[cfg(feature = "tls")]
    Accepted(Box<tokio_rustls::server::TlsStream<Open>>),
}

impl Stream {
    pub(crate) fn open(stream: impl Into<Socket>) -> Self {
        Self(Kind::Open(Open::new(stream)))
    }

    /// The connection under it, if it has no TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn into_open(self) -> Option<Open> {
        match self.0 {
            Kind::Open(open) => Some(open),
            Kind::Secured(_) | Kind::Accepted(_) => None,
        }
    }

    #[cfg(feature = "tls")]
    pub(crate) fn secured(secured: Secured) -> Self {
        Self(Kind::Secured(Box::new(secured)))
    }

    #[cfg(feature = "tls")]
    pub(crate) fn accepted(stream: tokio_rustls::server::TlsStream<Open>) -> Self {
        Self(Kind::Accepted(Box::new(stream)))
    }

    /// Waits until something has arrived that was not read, and leaves it there. Returns whether something has; if not,
    /// the connection has ended. With TLS, what has arrived need not be data.
    ///
    /// # Errors
    /// The connection's.
    pub async fn arrives(&mut self) -> io::Result<bool> {
        match &mut self.0 {
            Kind::Open(open) => open.arrives().await,
            #[cfg(feature = "tls")]
            Kind::Secured(secured) => {
                let (stream, session) = secured.stream.get_mut();
                Ok(holds_data(session)? || stream.arrives().await?)
            }
            #[cfg(feature = "tls")]
            Kind::Accepted(stream) => {
                let (stream, session) = stream.get_mut();
                Ok(holds_data(session)? || stream.arrives().await?)
            }
        }
    }

    /// The TLS that was agreed on with a server; none without TLS, and of a connection that was accepted.
    #[must_use]
    pub fn negotiated(&self) -> Option<NegotiatedTls> {
        match &self.0 {
            Kind::Open(_) => None,
            #[cfg(feature = "tls")]
            Kind::Accepted(_) => None,
            #[cfg(feature = "tls")]
            Kind::Secured(secured) => Some(secured.negotiated()),
        }
    }

    /// What binds a login to this connection of TLS and to no other, as `tls-server-end-point` of RFC 5929 has it: the hash
    /// of the server's certificate. None without TLS, and where the certificate's signature names no hash.
    #[must_use]
    pub fn end_point(&self) -> Option<Vec<u8>> {
        match &self.0 {
            #[cfg(feature = "tls")]
            Kind::Secured(secured) => secured.end_point(),
            _ => None,
        }
    }

    /// Whether the other side has closed the connection, also behind what has arrived and was not read yet. Costs a system call.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match &self.0 {
            Kind::Open(open) => open.is_closed(),
            #[cfg(feature = "tls")]
            Kind::Secured(secured) => secured.stream.get_ref().0.is_closed(),
            #[cfg(feature = "tls")]
            Kind::Accepted(stream) => stream.get_ref().0.is_closed(),
        }
    }

    /// Reads what has arrived, without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if nothing has; else the connection's.
    pub fn try_read_buf(&mut self, room: &mut BytesMut) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Open(open) => open.try_read_buf(room),
            #[cfg(feature = "tls")]
            _ => at_once(|context| self.poll_read_buf(context, room, None)),
        }
    }

    /// Writes as much as can be written without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if that is nothing; else the connection's.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Open(stream) => stream.try_write(bytes),
            #[cfg(feature = "tls")]
            _ => at_once(|context| Pin::new(&mut *self).poll_write(context, bytes)),
        }
    }

    /// Waits until something has arrived, in the system call that reads it while `may_block` gives leave, and appends all that has.
    /// Returns how many bytes that is; 0 at the connection's end.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn poll_read_buf(
        &mut self,
        context: &mut Context<'_>,
        room: &mut BytesMut,
        may_block: Option<MayBlock>,
    ) -> Poll<io::Result<usize>> {
        loop {
            self.open_mut().leave = may_block;
            let read = pin!(self.read_buf(room)).poll(context);
            let left = self.open_mut().leave.take();
            // what was read was for TLS alone, such as a part of a record
            if read.is_pending() && may_block.is_some() && left.is_none() {
                continue;
            }
            return read;
        }
    }

    /// The connection under TLS, if there is TLS.
    fn open_mut(&mut self) -> &mut Open {
        match &mut self.0 {
            Kind::Open(open) => open,
            #[cfg(feature = "tls")]
            Kind::Secured(secured) => secured.stream.get_mut().0,
            #[cfg(feature = "tls")]
            Kind::Accepted(stream) => stream.get_mut().0,
        }
    }
}

/// Whether data were read from the network already: what follows a handshake may come with its end.
#[cfg(feature = "tls")]
fn holds_data<Side>(session: &mut rustls::ConnectionCommon<Side>) -> io::Result<bool> {
    let state = session.process_new_packets().map_err(io::Error::other)?;
    Ok(state.plaintext_bytes_to_read() > 0)
}

/// What a poll returns at once. Whoever waits for the same later is woken, because it then polls by itself.
#[cfg(feature = "tls")]
fn at_once<T>(poll: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<T>>) -> io::Result<T> {
    match poll(&mut Context::from_waker(std::task::Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

macro_rules! each_kind {
    ($this:ident, $stream:ident => $call:expr) => {
        match &mut $this.get_mut().0 {
            Kind::Open(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            #[cfg(feature = "tls")]
            Kind::Secured(secured) => {
                let Secured { stream, security } = &mut **secured;
                let $stream = Pin::new(stream);
                $call.map_err(|error| security.explained(error))
            }
            #[cfg(feature = "tls")]
            Kind::Accepted(stream) => {
                let $stream = Pin::new(&mut **stream);
                $call
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each_kind!(self, stream => stream.poll_read(context, room))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each_kind!(self, stream => stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each_kind!(self, stream => stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each_kind!(self, stream => stream.poll_shutdown(context))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each_kind!(self, stream => stream.poll_write_vectored(context, parts))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.0 {
            Kind::Open(stream) => stream.is_write_vectored(),
            #[cfg(feature = "tls")]
            Kind::Secured(secured) => secured.stream.is_write_vectored(),
            #[cfg(feature = "tls")]
            Kind::Accepted(stream) => stream.is_write_vectored(),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("tls", &self.negotiated()).finish_non_exhaustive()
    }
}
