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
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::task::{Context, Poll, ready};

use acidtest_engine::may_block;
pub use acidtest_transport::Place;
use acidtest_transport::{Transport, Wire};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha1::{Digest, Sha1};

pub use encoder::Encoder;
pub use error::{Error, Fate};
pub use pipeline::Pipeline;
pub use reader::Reader;

use frame::{Answer, Frame, request, request_key};

const GREETING_LEN: usize = 128;
const GREETING_LINE: usize = 64;
const SALT_BASE64_LEN: usize = 44;
const SCRAMBLE_LEN: usize = 20;
const MORE: &str = "the server sent more than its answer";

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
    /// What has arrived holds the last reply: its reader borrows it until the next request.
    wire: Wire,
    greeting: String,
    /// The request that was encoded last.
    request: Encoder,
    sync: u64,
    /// Set while a request is in flight, and for good if it was abandoned or its answer was malformed.
    broken: bool,
}

impl Connection {
    /// Connects, reads the greeting and, given a login (user and password), authenticates with chap-sha1. No request of the
    /// caller's is sent, so a lost connection is always `sent: false`.
    pub async fn connect(transport: &Transport, login: Option<(&str, &str)>) -> Result<Self, Error> {
        let unsent = |cause| Error::Lost { sent: false, cause };
        let mut wire = Wire::new(transport.connect().await.map_err(unsent)?).blocking(may_block);
        let greeting = loop {
            match wire.unread().first_chunk::<GREETING_LEN>() {
                Some(greeting) => break *greeting,
                None => poll_fn(|context| wire.poll_read(context, 0)).await.map_err(unsent)?,
            }
        };
        wire.take(GREETING_LEN);
        let (version, salt) = parse_greeting(&greeting)?;
        let mut connection =
            Self { wire, greeting: version, request: Encoder::new(), sync: 0, broken: false };
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
        let place = self.push(request::AUTH, |body| {
            body.map(2).u64(request_key::USER).str(user);
            body.u64(request_key::TUPLE).array(2).str("chap-sha1").raw_str(&scramble(password, salt));
        })?;
        self.transact(place).await.map(drop)
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
        let place = self.push(request::PING, |body| {
            body.map(0);
        })?;
        self.transact(place).await.map(drop)
    }

    /// Calls a stored function; `args` writes the array of its arguments.
    pub async fn call(
        &mut self,
        function: &str,
        args: impl FnOnce(&mut Encoder),
    ) -> Result<Reader<'_>, Error> {
        let place = self.push(request::CALL, |body| {
            body.map(2).u64(request_key::FUNCTION_NAME).str(function).u64(request_key::TUPLE);
            args(body);
        })?;
        self.data(place).await
    }

    /// Runs Lua code; `args` writes the array of the values of its `...`.
    pub async fn eval(
        &mut self,
        expression: &str,
        args: impl FnOnce(&mut Encoder),
    ) -> Result<Reader<'_>, Error> {
        let place = self.push(request::EVAL, |body| {
            body.map(2).u64(request_key::EXPRESSION).str(expression).u64(request_key::TUPLE);
            args(body);
        })?;
        self.data(place).await
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
        let place = self.push(request::SELECT, |body| {
            body.map(6);
            target(body, space, index);
            body.u64(request_key::LIMIT).u64(limit.into());
            body.u64(request_key::OFFSET).u64(0);
            body.u64(request_key::ITERATOR).u64(iterator as u64);
            body.u64(request_key::KEY);
            key(body);
        })?;
        self.data(place).await
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
        let place = self.push(kind, |body| {
            body.map(2).u64(request_key::SPACE).u64(space.into()).u64(request_key::TUPLE);
            tuple(body);
        })?;
        self.data(place).await
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
        let place = self.push(request::UPDATE, |body| {
            body.map(4);
            target(body, space, index);
            body.u64(request_key::KEY);
            key(body);
            body.u64(request_key::TUPLE);
            ops(body);
        })?;
        self.data(place).await
    }

    /// Deletes the tuple with a unique index's `key`. The reply has the old tuple, or none if the key is
    /// absent (vinyl: never).
    pub async fn delete(
        &mut self,
        space: u32,
        index: u32,
        key: impl FnOnce(&mut Encoder),
    ) -> Result<Reader<'_>, Error> {
        let place = self.push(request::DELETE, |body| {
            body.map(3);
            target(body, space, index);
            body.u64(request_key::KEY);
            key(body);
        })?;
        self.data(place).await
    }

    /// Adds a request to what is to be sent, or fails if the connection can no longer carry one. Returns where it begins.
    fn push(&mut self, kind: u8, body: impl FnOnce(&mut Encoder)) -> Result<Place, Error> {
        let unsent = |cause| Error::Lost { sent: false, cause };
        if self.broken {
            let why = "an earlier request was lost or abandoned";
            return Err(unsent(io::Error::new(io::ErrorKind::NotConnected, why)));
        }
        // notices a server that went away between two requests, while it is still certain that this one was not sent
        self.wire.clear_away();
        let unasked = if self.wire.unread().is_empty() { self.wire.try_read() } else { Ok(true) };
        let more = |is_more: bool| {
            if is_more { Err(io::Error::new(io::ErrorKind::InvalidData, MORE)) } else { Ok(()) }
        };
        if let Err(cause) = unasked.and_then(more) {
            self.broken = true;
            return Err(unsent(cause));
        }
        self.add(kind, body)
    }

    /// Adds a request to what is to be sent. Returns where it begins.
    fn add(&mut self, kind: u8, body: impl FnOnce(&mut Encoder)) -> Result<Place, Error> {
        frame::encode(&mut self.request, kind, self.sync + 1, body)?;
        self.sync += 1;
        let place = self.wire.place();
        self.wire.output().extend_from_slice(self.request.as_slice());
        Ok(place)
    }

    async fn data(&mut self, place: Place) -> Result<Reader<'_>, Error> {
        let body = self.transact(place).await?;
        frame::data(self.wire.arrived().get(body).unwrap_or_default())
    }

    /// Sends the request that begins at this place and waits for its answer. Returns where the answer's body has arrived.
    async fn transact(&mut self, place: Place) -> Result<Range<usize>, Error> {
        // Stays set when this future is dropped or fails: bytes that arrive then belong to no later request.
        self.broken = true;
        loop {
            let frame = poll_fn(|context| self.poll_frame(context, place)).await?;
            let start = frame.start;
            let (sync, answer) = frame::parse(self.wire.arrived().get(frame).unwrap_or_default())?;
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

    /// Sends what is to be sent, and waits for the next whole frame: where it has arrived, without the length prefix. If it does
    /// not come, whether the request at this place was sent is known.
    fn poll_frame(&mut self, context: &mut Context<'_>, place: Place) -> Poll<Result<Range<usize>, Error>> {
        let mut lost = None;
        loop {
            let missing = match self.next_frame()? {
                Frame::Whole(frame) => return Poll::Ready(Ok(frame)),
                Frame::Missing(missing) => missing,
            };
            if let Some(cause) = lost {
                return Poll::Ready(Err(Error::Lost { sent: self.wire.reached(place), cause }));
            }
            // nothing is kept of the frames that the server pushed ahead of its answer
            self.wire.clear_away();
            // what has arrived before the end is looked at once more
            lost = ready!(self.wire.poll_exchange(context, missing)).err();
        }
    }

    /// Takes the next frame, if it has arrived whole: where it has, without the length prefix.
    fn next_frame(&mut self) -> Result<Frame, Error> {
        let frame = frame::split(self.wire.unread())?;
        Ok(match frame {
            Frame::Whole(frame) => {
                let start = self.wire.taken();
                self.wire.take(frame.end);
                Frame::Whole(start + frame.start..start + frame.end)
            }
            missing @ Frame::Missing(_) => missing,
        })
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
pub(crate) mod tests;
