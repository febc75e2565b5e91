//! Messages that a thread waits for.

use std::io::{BufRead, Read, Write};

use serde::{Serialize, de::DeserializeOwned};

use crate::{Error, Greeting, Protocol, decode, encode, greeting};

#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    line: Vec<u8>,
    longest: usize,
}

impl<R: BufRead> Reader<R> {
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
    pub fn receive<M: DeserializeOwned>(&mut self) -> Result<Option<M>, Error> {
        self.line.clear();
        (&mut self.from).take(self.longest as u64).read_until(b'\n', &mut self.line)?;
        decode(&self.line, self.longest)
    }

    /// Reads the other side's greeting, which must be of the same protocol and version.
    ///
    /// # Errors
    /// It is not, or there is none.
    pub fn expect_greeting(&mut self, ours: Protocol) -> Result<(), Error> {
        ours.check(greeting(self.receive::<Greeting>())?)
    }
}

/// Writes messages, each with one call.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    line: Vec<u8>,
}

impl<W: Write> Writer<W> {
    pub fn new(to: W) -> Self {
        Self { to, line: Vec::new() }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The stream fails.
    pub fn send(&mut self, message: &impl Serialize) -> Result<(), Error> {
        encode(message, &mut self.line)?;
        self.to.write_all(&self.line)?;
        Ok(self.to.flush()?)
    }

    /// Sends this side's greeting: its first message.
    ///
    /// # Errors
    /// The stream fails.
    pub fn greet(&mut self, ours: Protocol) -> Result<(), Error> {
        self.send(&ours.greeting())
    }
}

/// Reads the other side's greeting and answers it with this side's own, for the side that does not begin.
///
/// # Errors
/// It is of another protocol or version, or there is none.
pub fn answer_greeting(
    from: &mut Reader<impl BufRead>,
    to: &mut Writer<impl Write>,
    ours: Protocol,
) -> Result<(), Error> {
    let theirs = greeting(from.receive())?;
    to.greet(ours)?;
    ours.check(theirs)
}
