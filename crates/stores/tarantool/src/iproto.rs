//! IPROTO, Tarantool's binary protocol: one TCP connection with at most one request in flight, or several
//! ([`Pipeline`]).
//!
//! A bench needs guarantees that the published clients do not give: every [`Error`] says whether its request was
//! answered, provably never sent, or lost on the way, and a request abandoned half way can never hand its late
//! answer to the next one.

mod encoder;
mod error;
mod frame;
mod pipeline;
mod reader;

use std::fmt;
use std::io;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha1::{Digest, Sha1};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub use encoder::Encoder;
pub use error::{Error, Fate};
pub use pipeline::Pipeline;
pub use reader::Reader;

use frame::{Answer, Frame, request, request_key};

/// Bytes of room that a read is given at least; most replies arrive in full in it.
const READ_ROOM: usize = 16 * 1024;
/// Bytes by which the read buffer may run ahead of those that have arrived: a false length from a broken server
/// costs this much memory at most.
const READ_AHEAD: usize = 1024 * 1024;
const GREETING_LEN: usize = 128;
const GREETING_LINE: usize = 64;
const SALT_BASE64_LEN: usize = 44;
const SCRAMBLE_LEN: usize = 20;

/// Which tuples of an index a select returns, and in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IteratorType {
    /// Tuples equal to the key, ascending.
    Eq = 0,
    /// Tuples equal to the key, descending.
    Req = 1,
    /// All tuples, ascending.
    All = 2,
    /// Tuples less than the key, descending.
    Lt = 3,
    /// Tuples less than or equal to the key, descending.
    Le = 4,
    /// Tuples greater than or equal to the key, ascending.
    Ge = 5,
    /// Tuples greater than the key, ascending.
    Gt = 6,
}

/// One connection to a Tarantool server, with at most one request in flight.
///
/// A request's closures write the `MessagePack` values named in its documentation (each one whole value, its
/// array header included); its reply is a [`Reader`] at the array of returned values or tuples.
///
/// Dropping a request's future before it is ready breaks the connection: whether the server carried the request
/// out is unknown, and all later requests fail as [`Fate::NotSent`].
pub struct Connection {
    stream: TcpStream,
    greeting: String,
    output: Encoder,
    input: Vec<u8>,
    /// Where the last reply ends in `input`: its reader borrows it until the next request.
    consumed: usize,
    sync: u64,
    /// Set while a request is in flight, and for good if it was abandoned or its answer was malformed.
    broken: bool,
}

impl Connection {
    /// Connects to `host:port`, reads the greeting and, given a login (user and password), authenticates
    /// with chap-sha1. No request of the caller's is sent, so a lost connection is always `sent: false`.
    pub async fn connect(endpoint: &str, login: Option<(&str, &str)>) -> Result<Self, Error> {
        let unsent = |cause| Error::Lost { sent: false, cause };
        let mut stream = TcpStream::connect(endpoint).await.map_err(unsent)?;
        stream.set_nodelay(true).map_err(unsent)?;
        let mut greeting = [0; GREETING_LEN];
        stream.read_exact(&mut greeting).await.map_err(unsent)?;
        let (version, salt) = parse_greeting(&greeting)?;
        let mut connection = Self {
            stream,
            greeting: version,
            output: Encoder::new(),
            input: Vec::with_capacity(READ_ROOM),
            consumed: 0,
            sync: 0,
            broken: false,
        };
        if let Some((user, password)) = login {
            connection.authenticate(user, password, &salt).await.map_err(|error| match error {
                Error::Lost { cause, .. } => unsent(cause),
                other => other,
            })?;
        }
        Ok(connection)
    }

    async fn authenticate(
        &mut self,
        user: &str,
        password: &str,
        salt: &[u8; SCRAMBLE_LEN],
    ) -> Result<(), Error> {
        self.prepare(request::AUTH, |body| {
            body.map(2).u64(request_key::USER).str(user);
            body.u64(request_key::TUPLE).array(2).str("chap-sha1").raw_str(&scramble(password, salt));
        })?;
        self.transact().await.map(drop)
    }

    /// The server's version line, such as `Tarantool 2.6.0 (Binary) 7170…`.
    #[must_use]
    pub fn greeting(&self) -> &str {
        &self.greeting
    }

    /// Whether the next request can be sent: false after a request was lost or abandoned.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        !self.broken
    }

    /// Sends a request that does nothing, and waits for its empty answer.
    pub async fn ping(&mut self) -> Result<(), Error> {
        self.prepare(request::PING, |body| {
            body.map(0);
        })?;
        self.transact().await.map(drop)
    }

    /// Calls a stored function; `args` writes the array of its arguments.
    pub async fn call(
        &mut self,
        function: &str,
        args: impl FnOnce(&mut Encoder),
    ) -> Result<Reader<'_>, Error> {
        self.prepare(request::CALL, |body| {
            body.map(2).u64(request_key::FUNCTION_NAME).str(function).u64(request_key::TUPLE);
            args(body);
        })?;
        self.data().await
    }

    /// Runs Lua code; `args` writes the array of the values of its `...`.
    pub async fn eval(
        &mut self,
        expression: &str,
        args: impl FnOnce(&mut Encoder),
    ) -> Result<Reader<'_>, Error> {
        self.prepare(request::EVAL, |body| {
            body.map(2).u64(request_key::EXPRESSION).str(expression).u64(request_key::TUPLE);
            args(body);
        })?;
        self.data().await
    }

    /// Selects up to `limit` tuples; `key` writes the array of the key's parts (empty for all).
    pub async fn select(
        &mut self,
        space: u32,
        index: u32,
        key: impl FnOnce(&mut Encoder),
        limit: u32,
        iterator: IteratorType,
    ) -> Result<Reader<'_>, Error> {
        self.prepare(request::SELECT, |body| {
            body.map(6);
            target(body, space, index);
            body.u64(request_key::LIMIT).u64(limit.into());
            body.u64(request_key::OFFSET).u64(0);
            body.u64(request_key::ITERATOR).u64(iterator as u64);
            body.u64(request_key::KEY);
            key(body);
        })?;
        self.data().await
    }

    /// Inserts the tuple that `tuple` writes as an array; a duplicate key is [`Error::DUPLICATE_KEY`].
    pub async fn insert(
        &mut self,
        space: u32,
        tuple: impl FnOnce(&mut Encoder),
    ) -> Result<Reader<'_>, Error> {
        self.store(request::INSERT, space, tuple).await
    }

    /// Inserts the tuple that `tuple` writes as an array, in place of one with the same primary key.
    pub async fn replace(
        &mut self,
        space: u32,
        tuple: impl FnOnce(&mut Encoder),
    ) -> Result<Reader<'_>, Error> {
        self.store(request::REPLACE, space, tuple).await
    }

    async fn store(
        &mut self,
        kind: u8,
        space: u32,
        tuple: impl FnOnce(&mut Encoder),
    ) -> Result<Reader<'_>, Error> {
        self.prepare(kind, |body| {
            body.map(2).u64(request_key::SPACE).u64(space.into()).u64(request_key::TUPLE);
            tuple(body);
        })?;
        self.data().await
    }

    /// Updates the tuple with a unique index's `key`; `ops` writes an array of operations, each an array such as
    /// `["+", field, value]`, fields counted from 0. The reply has the new tuple, or none if the key is absent.
    pub async fn update(
        &mut self,
        space: u32,
        index: u32,
        key: impl FnOnce(&mut Encoder),
        ops: impl FnOnce(&mut Encoder),
    ) -> Result<Reader<'_>, Error> {
        self.prepare(request::UPDATE, |body| {
            body.map(4);
            target(body, space, index);
            body.u64(request_key::KEY);
            key(body);
            body.u64(request_key::TUPLE);
            ops(body);
        })?;
        self.data().await
    }

    /// Deletes the tuple with a unique index's `key`. The reply has the old tuple, or none if the key is
    /// absent (vinyl: never).
    pub async fn delete(
        &mut self,
        space: u32,
        index: u32,
        key: impl FnOnce(&mut Encoder),
    ) -> Result<Reader<'_>, Error> {
        self.prepare(request::DELETE, |body| {
            body.map(3);
            target(body, space, index);
            body.u64(request_key::KEY);
            key(body);
        })?;
        self.data().await
    }

    /// Encodes a request, or fails if the connection can no longer carry one.
    fn prepare(&mut self, kind: u8, body: impl FnOnce(&mut Encoder)) -> Result<(), Error> {
        let unsent = |kind, why: &str| Error::Lost { sent: false, cause: io::Error::new(kind, why) };
        if self.broken {
            return Err(unsent(io::ErrorKind::NotConnected, "an earlier request was lost or abandoned"));
        }
        if self.consumed < self.input.len() {
            self.broken = true;
            return Err(unsent(io::ErrorKind::InvalidData, "the server sent more than its answer"));
        }
        self.input.clear();
        self.consumed = 0;
        // Notices a server that went away between two requests, while it is still certain that this one was
        // not sent. Costs no system call: tokio knows from the last short read that nothing is waiting.
        let gone = match self.stream.try_read_buf(&mut self.input) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(error),
            Ok(0) => Some(closed()),
            Ok(_) => Some(io::Error::new(io::ErrorKind::InvalidData, "the server sent more than its answer")),
        };
        if let Some(cause) = gone {
            self.broken = true;
            return Err(Error::Lost { sent: false, cause });
        }
        self.sync += 1;
        frame::encode(&mut self.output, kind, self.sync, body)
    }

    async fn data(&mut self) -> Result<Reader<'_>, Error> {
        let body = self.transact().await?;
        frame::data(self.input.get(body).unwrap_or_default())
    }

    /// Sends the prepared request and waits for its answer. Returns the range of the answer's body in `input`.
    async fn transact(&mut self) -> Result<Range<usize>, Error> {
        // Stays set when this future is dropped or fails: bytes that arrive then belong to no later request.
        self.broken = true;
        self.send().await?;
        loop {
            let frame = self.receive().await?;
            let start = frame.start;
            let (sync, answer) = frame::parse(self.input.get(frame).unwrap_or_default())?;
            if sync != self.sync {
                return Err(Error::Protocol(format!("answer to request {sync} instead of {}", self.sync)));
            }
            match answer {
                Answer::Ok(body) => {
                    self.broken = false;
                    return Ok(start + body.start..start + body.end);
                }
                Answer::Refused { code, message } => {
                    self.broken = false;
                    return Err(Error::Server { code, message });
                }
                // box.session.push() sends such frames ahead of the answer
                Answer::Pushed => {}
            }
        }
    }

    async fn send(&mut self) -> Result<(), Error> {
        let mut rest = self.output.as_slice();
        let mut sent = false;
        while !rest.is_empty() {
            let written = match self.stream.write(rest).await {
                Ok(0) => return Err(Error::Lost { sent, cause: io::ErrorKind::WriteZero.into() }),
                Ok(written) => written,
                Err(cause) => return Err(Error::Lost { sent, cause }),
            };
            sent = true;
            rest = rest.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// Reads until `input` holds another whole frame, and returns its range without the length prefix.
    async fn receive(&mut self) -> Result<Range<usize>, Error> {
        loop {
            if let Some(frame) = self.arrived()? {
                return Ok(frame);
            }
            self.read().await?;
        }
    }

    /// The range of the next whole frame in `input`, without the length prefix; `None` if it has yet to arrive.
    fn arrived(&mut self) -> Result<Option<Range<usize>>, Error> {
        let unread = self.input.get(self.consumed..).unwrap_or_default();
        match frame::split(unread)? {
            Frame::Whole(frame) => {
                let place = self.consumed + frame.start..self.consumed + frame.end;
                self.consumed = place.end;
                Ok(Some(place))
            }
            Frame::Missing(bytes) => {
                // nothing is kept of the frames that the server pushed ahead of its answer
                self.input.drain(..self.consumed);
                self.consumed = 0;
                self.input.reserve(bytes.clamp(READ_ROOM, READ_AHEAD));
                Ok(None)
            }
        }
    }

    /// Reads more bytes into `input`.
    async fn read(&mut self) -> Result<(), Error> {
        match self.stream.read_buf(&mut self.input).await {
            Ok(0) => Err(Error::Lost { sent: true, cause: closed() }),
            Ok(_) => Ok(()),
            Err(cause) => Err(Error::Lost { sent: true, cause }),
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // left out: the buffers hold the user's data, and after connecting the proof of the password
        f.debug_struct("Connection")
            .field("greeting", &self.greeting)
            .field("usable", &self.is_usable())
            .finish_non_exhaustive()
    }
}

fn target(body: &mut Encoder, space: u32, index: u32) {
    body.u64(request_key::SPACE).u64(space.into()).u64(request_key::INDEX).u64(index.into());
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")
}

/// The greeting's version line, and the part of its salt that chap-sha1 uses.
fn parse_greeting(greeting: &[u8; GREETING_LEN]) -> Result<(String, [u8; SCRAMBLE_LEN]), Error> {
    let (line, rest) = greeting.split_at(GREETING_LINE);
    let version = String::from_utf8_lossy(line).trim_end().to_owned();
    // the text console's port greets with the same first word
    if !version.starts_with("Tarantool ") || version.contains("(Lua console)") {
        return Err(Error::Protocol(format!("not the greeting of a Tarantool binary port: {version:?}")));
    }
    rest.get(..SALT_BASE64_LEN)
        .and_then(|text| BASE64.decode(text).ok())
        .and_then(|salt| salt.first_chunk().copied())
        .map(|salt| (version, salt))
        .ok_or_else(|| Error::Protocol("the greeting has no salt".into()))
}

/// sha1(password) xor sha1(salt, sha1(sha1(password))): proves knowledge of the password without sending it.
fn scramble(password: &str, salt: &[u8; SCRAMBLE_LEN]) -> [u8; SCRAMBLE_LEN] {
    let once = Sha1::digest(password);
    let twice = Sha1::digest(once);
    let mut scramble: [u8; SCRAMBLE_LEN] =
        Sha1::new().chain_update(salt).chain_update(twice).finalize().into();
    for (byte, mask) in scramble.iter_mut().zip(once) {
        *byte ^= mask;
    }
    scramble
}

#[cfg(test)]
mod tests;
