//! Messages that a task waits for.

use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{Error, Greeting, Protocol, decode, encode, greeting};

/// Reads messages. What has arrived of one is kept if the future that waits for it is dropped.
#[derive(Debug)]
pub struct AsyncReader<R> {
    from: R,
    line: Vec<u8>,
    longest: usize,
}

impl<R: AsyncBufRead + Unpin> AsyncReader<R> {
    pub fn new(from: R) -> Self {
        Self { from, line: Vec::new(), longest: usize::MAX }
    }

    /// The same with a bound: no more bytes of a line are kept, and a longer one is an error.
    #[must_use]
    pub fn at_most(self, longest: usize) -> Self {
        Self { longest, ..self }
    }

    /// The next message; none at the end of the stream.
    ///
    /// # Errors
    /// The stream fails, or the line is no such message. What follows on it can still be read.
    pub async fn receive<M: DeserializeOwned>(&mut self) -> Result<Option<M>, Error> {
        let more = self.longest.saturating_sub(self.line.len());
        (&mut self.from).take(more as u64).read_until(b'\n', &mut self.line).await?;
        let message = decode(&self.line, self.longest);
        self.line.clear();
        message
    }

    /// Reads the other side's greeting, which must be of the same protocol and version.
    ///
    /// # Errors
    /// It is not, or there is none.
    pub async fn expect_greeting(&mut self, ours: Protocol) -> Result<(), Error> {
        ours.check(greeting(self.receive::<Greeting>().await)?)
    }
}

/// Writes messages, each with one call.
#[derive(Debug)]
pub struct AsyncWriter<W> {
    to: W,
    line: Vec<u8>,
}

impl<W: AsyncWrite + Unpin> AsyncWriter<W> {
    pub fn new(to: W) -> Self {
        Self { to, line: Vec::new() }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The stream fails.
    pub async fn send(&mut self, message: &impl Serialize) -> Result<(), Error> {
        encode(message, &mut self.line)?;
        self.to.write_all(&self.line).await?;
        Ok(self.to.flush().await?)
    }

    /// Sends this side's greeting: its first message.
    ///
    /// # Errors
    /// The stream fails.
    pub async fn greet(&mut self, ours: Protocol) -> Result<(), Error> {
        self.send(&ours.greeting()).await
    }
}
