//! A connection without TLS, which may be waited for in the system call that reads it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::BytesMut;
use rustix::{
    buffer::spare_capacity,
    io::{Errno, ioctl_fionbio},
    net::{RecvFlags, SendFlags, recv, send, sockopt},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

/// Most bytes that a read that waits takes at once.
const READ: usize = 64 * 1024;

/// A connection without TLS.
///
/// It belongs to the runtime. From the first read on that waits in the system call, the socket itself is a blocking one. Whatever
/// else is done on it says that it does not wait: what the runtime holds for possible need not be.
pub(crate) struct Open {
    stream: TcpStream,
    /// What is read into from a blocking socket; none as long as it is not one.
    arrived: Option<Vec<u8>>,
}

impl Open {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, arrived: None }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    #[cfg(feature = "tls")]
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Waits in the system call until something has arrived, and appends it. All such reads wait as long as the first one may.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if nothing has arrived in that time, or if the socket cannot be waited for so; else the
    /// connection's.
    pub(crate) fn read_blocking(&mut self, room: &mut BytesMut, longest: Duration) -> io::Result<usize> {
        let Self { stream, arrived } = self;
        let arrived = if let Some(arrived) = arrived {
            arrived
        } else {
            make_blocking(stream, longest).map_err(|_| io::ErrorKind::WouldBlock)?;
            arrived.insert(Vec::with_capacity(READ))
        };
        receive(stream, arrived, RecvFlags::empty())?;
        room.extend_from_slice(arrived);
        Ok(arrived.len())
    }

    /// Reads what has arrived, without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if nothing has; else the connection's.
    pub(crate) fn try_read_buf(&mut self, room: &mut BytesMut) -> io::Result<usize> {
        let Self { stream, arrived: Some(arrived) } = self else { return self.stream.try_read_buf(room) };
        stream.try_io(Interest::READABLE, || receive(stream, arrived, RecvFlags::DONTWAIT))?;
        room.extend_from_slice(arrived);
        Ok(arrived.len())
    }

    /// Writes as much as can be written without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if that is nothing; else the connection's.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        self.stream.try_io(Interest::WRITABLE, || Ok(send(&self.stream, bytes, flags)?))
    }
}

/// Reads what comes first into the emptied vector, as much as it has room for.
fn receive(stream: &TcpStream, arrived: &mut Vec<u8>, flags: RecvFlags) -> io::Result<()> {
    arrived.clear();
    loop {
        match recv(stream, spare_capacity(arrived), flags) {
            Err(Errno::INTR) => {}
            received => return Ok(received.map(|_| ())?),
        }
    }
}

/// Lets reads wait in the system call, for so long at most.
fn make_blocking(stream: &TcpStream, longest: Duration) -> rustix::io::Result<()> {
    sockopt::set_socket_timeout(stream, sockopt::Timeout::Recv, Some(longest))?;
    ioctl_fionbio(stream, false)
}

impl AsyncRead for Open {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.arrived.is_none() {
            return Pin::new(&mut self.stream).poll_read(context, room);
        }
        let most = room.remaining().min(READ);
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            let unfilled = room.initialize_unfilled_to(most);
            let read = || Ok(recv(&self.stream, unfilled, RecvFlags::DONTWAIT)?.1);
            match self.stream.try_io(Interest::READABLE, read) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|bytes| room.advance(bytes))),
            }
        }
    }
}

impl AsyncWrite for Open {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
            ready!(self.stream.poll_write_ready(context))?;
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    /// Of what the gateway answers, whose connections are never blocking ones.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
