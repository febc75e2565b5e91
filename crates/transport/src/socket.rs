//! What a connection is made of: TCP, or a Unix socket.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::BytesMut;
use rustix::net::sockopt;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{TcpStream, UnixStream},
};

/// Time between two attempts at a Unix socket whose queue is full: unlike those over TCP, they do not wait in it.
const AGAIN: Duration = Duration::from_millis(1);

/// How long nothing comes on a connection until the system asks whether its other end is there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// A connection over TCP or a Unix socket.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! each {
    ($socket:expr, $stream:ident => $call:expr) => {
        match $socket {
            Socket::Tcp($stream) => $call,
            Socket::Unix($stream) => $call,
        }
    };
}

impl Socket {
    /// Connects over TCP to `host:port`.
    ///
    /// # Errors
    /// The network's.
    pub(crate) async fn tcp(endpoint: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(endpoint).await?;
        // otherwise Nagle's algorithm holds requests back
        stream.set_nodelay(true)?;
        // load balancers forget connections on which nothing comes for some minutes
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, KEEP_ALIVE)?;
        Ok(Self::Tcp(stream))
    }

    /// Connects to the Unix socket that is this file.
    ///
    /// # Errors
    /// The system's.
    pub(crate) async fn unix(file: &std::path::Path) -> io::Result<Self> {
        loop {
            match UnixStream::connect(file).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(AGAIN).await,
                connected => return connected.map(Self::Unix),
            }
        }
    }

    pub(crate) async fn async_io<T>(
        &self,
        interest: Interest,
        call: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        each!(self, stream => stream.async_io(interest, call).await)
    }

    pub(crate) fn try_io<T>(
        &self,
        interest: Interest,
        call: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        each!(self, stream => stream.try_io(interest, call))
    }

    pub(crate) fn try_read_buf(&self, room: &mut BytesMut) -> io::Result<usize> {
        each!(self, stream => stream.try_read_buf(room))
    }

    pub(crate) fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_read_ready(context))
    }

    pub(crate) fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_write_ready(context))
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(stream)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        each!(self, stream => stream.as_fd())
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_read(context, room))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(context))
    }

    fn is_write_vectored(&self) -> bool {
        each!(self, stream => stream.is_write_vectored())
    }
}
