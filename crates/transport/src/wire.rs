//! A connection with its buffers, which every protocol on it needs alike.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use acidtest_model::NegotiatedTls;
use bytes::{Buf, BytesMut};
use tokio::io::AsyncWrite;

use crate::{Stream, Transport, open::MayBlock};

/// The least room for a read, in bytes: most answers come whole in it.
const READ_ROOM: usize = 64 * 1024;
/// Most bytes that the input has room for ahead of those that have arrived, so that a length claimed by a broken server
/// does not decide how much memory is taken.
const READ_AHEAD: usize = 1024 * 1024;
/// Most room, in bytes, that an emptied buffer keeps: one long answer must not take memory for good.
const KEPT: usize = 1024 * 1024;

/// A place in the stream of all bytes that were ever to be sent on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u64);

/// A connection with what is to be sent on it, and what has arrived on it and was not taken yet.
///
/// It knows nothing of the protocol: whoever uses it appends requests to [`output`](Self::output), finds frames in
/// [`unread`](Self::unread) and [`take`](Self::take)s them. It knows what was handed to the network
/// ([`reached`](Self::reached)), and so which requests a server cannot have seen. Futures that poll it may be dropped at any
/// time: nothing is lost, and nothing is sent twice.
pub struct Wire {
    stream: Stream,
    output: BytesMut,
    /// Bytes of `output` that were handed to the network.
    written: usize,
    /// Bytes that were sent before those of `output`.
    before: u64,
    input: BytesMut,
    /// Bytes of `input` that were taken.
    taken: usize,
    /// Whether the thread may wait in a system call for what is to arrive.
    may_block: Option<MayBlock>,
}

impl Wire {
    /// With empty buffers.
    #[must_use]
    pub fn new(stream: Stream) -> Self {
        Self {
            stream,
            output: BytesMut::new(),
            written: 0,
            before: 0,
            input: BytesMut::with_capacity(READ_ROOM),
            taken: 0,
            may_block: None,
        }
    }

    /// Waits for what is to arrive in the system call that reads it, whenever `may_block` says for how long the thread has
    /// nothing else to do (the same each time).
    #[must_use]
    pub fn blocking(self, may_block: MayBlock) -> Self {
        Self { may_block: Some(may_block), ..self }
    }

    /// Goes over to TLS, if the transport's address asks for it.
    ///
    /// # Errors
    /// The handshake's; or that the server has said more, without TLS, than the protocol lets it: somebody in between might
    /// have put it there, to pass for what the server says with TLS.
    pub async fn secure(self, transport: &Transport) -> io::Result<Self> {
        if transport.check().is_none() {
            return Ok(self);
        }
        if !self.unread().is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "more than a greeting before TLS"));
        }
        Ok(Self { stream: transport.secure(self.stream).await?, ..self })
    }

    /// The connection, without its buffers.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The TLS that was agreed on; none without TLS.
    #[must_use]
    pub fn negotiated(&self) -> Option<NegotiatedTls> {
        self.stream.negotiated()
    }

    /// What is to be sent: requests are appended to it. What was there before must be left alone.
    pub fn output(&mut self) -> &mut BytesMut {
        &mut self.output
    }

    /// The place at which the next request that is appended begins.
    #[must_use]
    pub fn place(&self) -> Place {
        Place(self.before + self.output.len() as u64)
    }

    /// Whether any byte from this place on was handed to the network. If not, the server cannot have seen it. Once a connection
    /// with TLS has failed to send, all was: it may have sent a part of what it was given last, and does not say how much.
    #[must_use]
    pub fn reached(&self, place: Place) -> bool {
        self.before + self.written as u64 > place.0
    }

    /// Looks whether what is to be sent can reach anybody. A server that was killed reads nothing that is sent from then on,
    /// although sending it need not fail. Costs a system call if anything is to be sent.
    ///
    /// # Errors
    /// The other side has closed the connection.
    pub fn still_reaches(&self) -> io::Result<()> {
        if self.unwritten() > 0 && self.stream.is_closed() { Err(closed()) } else { Ok(()) }
    }

    /// How many bytes wait to be sent.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        self.output.len() - self.written
    }

    /// What has arrived and was not taken.
    #[must_use]
    pub fn unread(&self) -> &[u8] {
        self.input.get(self.taken..).unwrap_or_default()
    }

    /// What has arrived since it was last [cleared away](Self::clear_away), taken or not.
    #[must_use]
    pub fn arrived(&self) -> &[u8] {
        &self.input
    }

    /// How many bytes of [`arrived`](Self::arrived) were taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// For how many bytes the buffers have room.
    #[must_use]
    pub fn room(&self) -> usize {
        self.input.capacity() + self.output.capacity()
    }

    /// Takes this many of the unread bytes. They stay where they are until they are [cleared away](Self::clear_away).
    pub fn take(&mut self, bytes: usize) {
        self.taken = self.input.len().min(self.taken + bytes);
    }

    /// Takes bytes out of the unread ones, from this many behind their beginning on: what comes behind moves up, so that what
    /// the protocol has split is in one piece.
    pub fn cut(&mut self, behind: usize, bytes: usize) {
        let end = self.input.len();
        let from = end.min(self.taken + behind);
        let to = end.min(from + bytes);
        self.input.copy_within(to.., from);
        self.input.truncate(end - (to - from));
    }

    /// Gives up what was taken; [`arrived`](Self::arrived) begins anew with what is unread.
    pub fn clear_away(&mut self) {
        if self.taken < self.input.len() {
            self.input.advance(self.taken);
        } else if self.input.capacity() > KEPT {
            self.input = BytesMut::with_capacity(READ_ROOM);
        } else {
            self.input.clear();
        }
        self.taken = 0;
    }

    /// Sends all that is to be sent.
    ///
    /// # Errors
    /// The connection's. What has arrived is read before it is told: it holds answers, and may say why.
    pub fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = ready!(self.poll_send(context));
        if sent.is_err() {
            if self.negotiated().is_some() {
                self.written = self.output.len();
            }
            while self.unread().len() < KEPT && self.try_read().is_ok_and(|some| some) {}
        }
        Poll::Ready(sent)
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.output.get(self.written..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                bytes => self.written += bytes,
            }
        }
        if self.written > 0 {
            // with TLS, what was written need not be on its way; also where an earlier call was given up meanwhile
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.before += self.written as u64;
            self.written = 0;
            if self.output.capacity() > KEPT {
                self.output = BytesMut::new();
            } else {
                self.output.clear();
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until more has arrived. The next frame lacks `missing` bytes, as far as that is known.
    ///
    /// # Errors
    /// The connection's; [`io::ErrorKind::UnexpectedEof`] at its end.
    pub fn poll_read(&mut self, context: &mut Context<'_>, missing: usize) -> Poll<io::Result<()>> {
        self.make_room(missing);
        // not while the runtime is to send something: the answer to that would not come
        let may_block = self.may_block.filter(|_| self.output.is_empty());
        Poll::Ready(arrival(ready!(self.stream.poll_read_buf(context, &mut self.input, may_block))))
    }

    /// Sends what is to be sent, and waits until more has arrived; one does not wait for the other, because a server that
    /// waits until its answers are read may read nothing itself.
    ///
    /// # Errors
    /// As of [`poll_write`](Self::poll_write) and [`poll_read`](Self::poll_read).
    pub fn poll_exchange(&mut self, context: &mut Context<'_>, missing: usize) -> Poll<io::Result<()>> {
        match self.poll_write(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => self.poll_read(context, missing),
        }
    }

    /// Reads what has arrived, without waiting. Returns whether anything has. Costs no system call as long as nothing has.
    ///
    /// # Errors
    /// As of [`poll_read`](Self::poll_read).
    pub fn try_read(&mut self) -> io::Result<bool> {
        self.make_room(0);
        match self.stream.try_read_buf(&mut self.input) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            read => arrival(read).map(|()| true),
        }
    }

    fn make_room(&mut self, missing: usize) {
        let missing = missing.clamp(READ_ROOM / 2, READ_AHEAD);
        if self.input.capacity() - self.input.len() < missing {
            self.input.reserve(missing.max(READ_ROOM));
        }
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")
}

fn arrival(read: io::Result<usize>) -> io::Result<()> {
    match read {
        Ok(0) => Err(closed()),
        Ok(_) => Ok(()),
        // so does TLS say it where the server has not said that it would
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(closed()),
        Err(error) => Err(error),
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // left out: what the buffers hold are the user's data and passwords
        f.debug_struct("Wire")
            .field("unwritten", &self.unwritten())
            .field("unread", &self.unread().len())
            .finish_non_exhaustive()
    }
}
