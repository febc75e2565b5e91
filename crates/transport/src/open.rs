//! A connection without TLS, or the one under it, which may be waited for in the system call that reads it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::BytesMut;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::ioctl_fionbio,
    net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg, sockopt},
};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use crate::socket::Socket;

/// Most bytes that a read that waits takes at once.
const READ: usize = 64 * 1024;

/// What is sent does not wait, and an end of the connection kills nobody.
const AT_ONCE: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// For how long the thread may wait in a system call, the same each time it may.
pub(crate) type MayBlock = fn() -> Option<Duration>;

/// A connection without TLS, or the one under it.
///
/// It belongs to the runtime. From the first read on that waits in the system call, the socket itself is a blocking one. Whatever
/// else is done on it says that it does not wait: what the runtime holds for possible need not be.
pub(crate) struct Open {
    stream: Socket,
    /// The leave of reads to wait in the system call, until one of them has read something.
    pub(crate) leave: Option<MayBlock>,
    /// What is read into from a blocking socket; none as long as it is not one.
    arrived: Option<Vec<u8>>,
}

impl Open {
    pub(crate) fn new(stream: impl Into<Socket>) -> Self {
        Self { stream: stream.into(), leave: None, arrived: None }
    }

    /// Waits until something has arrived, and leaves it there. Returns whether something has; if not, the connection has ended.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) async fn arrives(&self) -> io::Result<bool> {
        let peek = || Ok(recv(&self.stream, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT)?.1 > 0);
        self.stream.async_io(Interest::READABLE, peek).await
    }

    /// Whether the other side has closed the connection, also behind what has arrived and was not read yet.
    pub(crate) fn is_closed(&self) -> bool {
        const CLOSED: PollFlags = PollFlags::RDHUP.union(PollFlags::HUP).union(PollFlags::ERR);
        let mut looked = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let seen = poll(&mut looked, Some(&Timespec::default()));
        seen.is_ok() && looked.iter().any(|looked| looked.revents().intersects(CLOSED))
    }

    /// Reads what has arrived, without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if nothing has; else the connection's.
    pub(crate) fn try_read_buf(&mut self, room: &mut BytesMut) -> io::Result<usize> {
        let Self { stream, arrived: Some(arrived), .. } = self else { return self.stream.try_read_buf(room) };
        let read =
            stream.try_io(Interest::READABLE, || receive(stream, arrived, READ, RecvFlags::DONTWAIT))?;
        room.extend_from_slice(read);
        Ok(read.len())
    }

    /// Waits for so long in the system call until something has arrived.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if nothing has arrived in that time, or if the socket cannot be waited for so;
    /// [`io::ErrorKind::Interrupted`] if a signal has ended the wait; else the connection's.
    fn read_blocking(&mut self, room: &mut ReadBuf<'_>, longest: Duration) -> io::Result<()> {
        if self.arrived.is_none() {
            make_blocking(&self.stream, longest).map_err(|_| io::ErrorKind::WouldBlock)?;
        }
        let arrived = self.arrived.get_or_insert_with(|| Vec::with_capacity(READ));
        room.put_slice(receive(&self.stream, arrived, room.remaining(), RecvFlags::empty())?);
        self.leave = None;
        Ok(())
    }

    /// Writes as much as can be written without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if that is nothing; else the connection's.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.try_io(Interest::WRITABLE, || Ok(send(&self.stream, bytes, AT_ONCE)?))
    }

    fn poll_try(
        &self,
        context: &mut Context<'_>,
        try_write: impl Fn() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match try_write() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
            ready!(self.stream.poll_write_ready(context))?;
        }
    }
}

/// Reads what comes first, so many bytes at most, by way of the room of a vector that stays empty.
fn receive<'a>(
    stream: &Socket,
    by_way_of: &'a mut Vec<u8>,
    most: usize,
    flags: RecvFlags,
) -> io::Result<&'a [u8]> {
    let room = by_way_of.spare_capacity_mut();
    let most = room.len().min(most);
    let ((arrived, _), _) = recv(stream, room.get_mut(..most).unwrap_or_default(), flags)?;
    Ok(arrived)
}

/// Lets reads wait in the system call, for so long at most.
fn make_blocking(stream: &Socket, longest: Duration) -> rustix::io::Result<()> {
    sockopt::set_socket_timeout(stream, sockopt::Timeout::Recv, Some(longest))?;
    ioctl_fionbio(stream, false)
}

impl AsyncRead for Open {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(longest) = self.leave.and_then(|may_block| may_block()) {
            match self.read_blocking(room, longest) {
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                read => return Poll::Ready(read),
            }
        }
        let Self { stream, arrived, .. } = &mut *self;
        let Some(arrived) = arrived else { return Pin::new(stream).poll_read(context, room) };
        loop {
            ready!(stream.poll_read_ready(context))?;
            let most = room.remaining();
            match stream.try_io(Interest::READABLE, || receive(stream, arrived, most, RecvFlags::DONTWAIT)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|read| room.put_slice(read))),
            }
        }
    }
}

impl AsyncWrite for Open {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_try(context, || self.try_write(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [part] = parts {
            return self.poll_write(context, part);
        }
        let send = || Ok(sendmsg(&self.stream, parts, &mut SendAncillaryBuffer::default(), AT_ONCE)?);
        self.poll_try(context, || self.stream.try_io(Interest::WRITABLE, send))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
