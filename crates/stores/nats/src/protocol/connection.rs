//! One connection to a NATS server: logging in, publishing, and reading messages.

use std::{
    fmt,
    future::poll_fn,
    io,
    ops::Range,
    str,
    task::{Context, Poll, ready},
};

use acidtest_model::{NegotiatedTls, Secret};
pub use acidtest_transport::Place;
use acidtest_transport::{TlsError, Transport, Wire};
use rand::{TryRng, rngs::SysRng};
use serde::Deserialize;
use serde_json::json;

#[cfg(feature = "tls")]
use super::UserKey;
use super::{
    Error, Message,
    wire::{self, Op, Parsed, Places},
};

/// Bytes that may have arrived and not been taken by a caller until no more are read, so that the server has to
/// wait.
const UNREAD_MAX: usize = 4 * 1024 * 1024;
/// Pings that are answered until the answers have been written: a server that sends pings and reads nothing must not
/// take memory without end.
const PONGS_MAX: usize = 1000;
/// The id of the only subscription, to the connection's inbox.
const SUBSCRIPTION: &str = "1";

/// The server's description of itself, which it sends when a client connects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "they are the protocol's")]
pub struct Info {
    /// The server's id, a new one each time it starts.
    pub server_id: String,
    /// The server's version, such as `2.9.10`.
    pub version: String,
    /// The longest message that the server takes, in bytes, its headers included.
    pub max_payload: usize,
    /// Whether messages may have headers.
    pub headers: bool,
    /// Whether `JetStream` is enabled.
    pub jetstream: bool,
    /// What a user with an `NKey` is to sign; empty where the server knows none.
    pub nonce: String,
    /// Whether the server refuses connections without TLS.
    pub tls_required: bool,
    /// Whether it offers TLS, too.
    pub tls_available: bool,
    /// The name of the cluster that it is one of; empty where it stands alone.
    pub cluster: String,
}

/// The credentials to log in with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    Anonymous,
    User(String, Secret),
    Token(Secret),
    /// The seed of a user's `NKey`, which is not sent.
    #[cfg(feature = "tls")]
    NKey(Secret),
}

/// One connection to a server.
///
/// Messages to be sent are kept until [`flush`](Connection::flush) or [`next`](Connection::next) writes them. The
/// futures of these may be dropped at any time without losing anything. After any error but [`Error::TooLong`] the
/// connection is not usable any more, and every later call returns the same error.
pub struct Connection {
    wire: Wire,
    info: Info,
    /// The beginning of the subjects to which requests are answered.
    inbox: String,
    /// Pings that were answered since all that was to be sent had last been.
    pongs: usize,
    /// Pings that were sent, and those that the server has answered.
    pings: u64,
    answered: u64,
    ended: Option<Error>,
}

/// The events that a caller may wait for.
enum ServerEvent {
    Message(usize, Places),
    Pong,
}

impl Connection {
    /// Connects, logs in and waits until the server has accepted the login.
    pub async fn connect(transport: &Transport, login: &Login) -> Result<Self, Error> {
        let mut connection = Self {
            wire: Wire::new(transport.connect_openly().await?),
            info: Info::default(),
            inbox: inbox()?,
            pongs: 0,
            pings: 0,
            answered: 0,
            ended: None,
        };
        connection.greeting().await?;
        let mut connection = connection.secured(transport).await?;
        connection.say_hello(login);
        connection.ping().await?;
        Ok(connection)
    }

    /// Goes over to TLS, if it was asked for. The server greets without.
    async fn secured(self, transport: &Transport) -> Result<Self, Error> {
        let Info { tls_required, tls_available, .. } = self.info;
        match transport.check() {
            None if tls_required => return Err(TlsError::demanded(transport.address()).into()),
            None => return Ok(self),
            Some(_) if !tls_required && !tls_available => return Err(TlsError::absent().into()),
            Some(_) => {}
        }
        Ok(Self { wire: self.wire.secure(transport).await?, ..self })
    }

    /// The TLS that was agreed on; none without TLS.
    #[must_use]
    pub fn tls(&self) -> Option<NegotiatedTls> {
        self.wire.negotiated()
    }

    /// Waits for the line INFO, with which every NATS server begins.
    async fn greeting(&mut self) -> Result<(), Error> {
        poll_fn(|context| {
            loop {
                if !self.info.version.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                match self.hear() {
                    Ok(Some(_)) => return Poll::Ready(Err(Error::Protocol("no greeting".to_owned()))),
                    Ok(None) if !self.info.version.is_empty() => {}
                    Ok(None) => ready!(self.poll_read(context))?,
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
        })
        .await
    }

    fn say_hello(&mut self, login: &Login) {
        let mut hello = json!({
            "verbose": false, "pedantic": false, "headers": true, "no_responders": true, "protocol": 1,
            "name": "acidtest", "lang": "rust", "version": env!("CARGO_PKG_VERSION"),
        });
        match login {
            Login::Anonymous => {}
            Login::User(user, password) => {
                hello["user"] = json!(user);
                hello["pass"] = json!(password.reveal());
            }
            Login::Token(token) => hello["auth_token"] = json!(token.reveal()),
            #[cfg(feature = "tls")]
            Login::NKey(seed) => {
                // a seed that is none was refused when the address was read
                if let Some(key) = UserKey::of_seed(seed.reveal()) {
                    hello["nkey"] = json!(key.public());
                    hello["sig"] = json!(key.sign(&self.info.nonce));
                }
            }
        }
        let hello = format!("CONNECT {hello}\r\nSUB {}* {SUBSCRIPTION}\r\n", self.inbox);
        self.wire.output().extend_from_slice(hello.as_bytes());
    }

    /// The server's description of itself.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Publishes a message, which is written later. `token` is a number by which its answer can be told from others,
    /// `header` a name and its value.
    ///
    /// # Errors
    /// If the connection is known to be lost, or the message is over the server's limit. It is not sent then.
    pub fn publish(
        &mut self,
        subject: &str,
        token: Option<u64>,
        header: Option<(&str, &str)>,
        payload: &[u8],
    ) -> Result<Place, Error> {
        self.look()?;
        let place = self.wire.place();
        let output = self.wire.output();
        let start = output.len();
        let reply = token.map(|token| (self.inbox.as_str(), token));
        wire::publish(output, subject, reply, header, payload);
        // the server counts the headers too, here with the rest of the command, which only matters very near the
        // limit
        let room = output.len() - start;
        if payload.len() > self.info.max_payload || (header.is_some() && room > self.info.max_payload) {
            output.truncate(start);
            return Err(Error::TooLong { bytes: payload.len(), limit: self.info.max_payload });
        }
        Ok(place)
    }

    /// Whether any byte of the message at this place was handed to the network. If not, the server has not seen it.
    #[must_use]
    pub fn reached(&self, place: Place) -> bool {
        self.wire.reached(place)
    }

    /// Number of bytes that wait to be written.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        self.wire.unwritten()
    }

    /// Writes all bytes that are to be sent.
    pub async fn flush(&mut self) -> Result<(), Error> {
        poll_fn(|context| {
            loop {
                if let done @ Poll::Ready(_) = self.poll_write(context) {
                    return done;
                }
                // read meanwhile: a server that waits until its bytes are read may read none itself
                if self.unread() > UNREAD_MAX {
                    return Poll::Pending;
                }
                ready!(self.poll_read(context))?;
            }
        })
        .await
    }

    /// Waits for the next message, after writing the bytes that are to be sent.
    pub async fn next(&mut self) -> Result<Message<'_>, Error> {
        let (start, places) = loop {
            if let ServerEvent::Message(start, places) = poll_fn(|context| self.poll_heard(context)).await? {
                break (start, places);
            }
        };
        self.message(start, places)
    }

    /// The next message of those that have arrived already, if any.
    pub fn arrived(&mut self) -> Result<Option<Message<'_>>, Error> {
        loop {
            match self.hear()? {
                Some(ServerEvent::Message(start, places)) => return self.message(start, places).map(Some),
                Some(ServerEvent::Pong) => {}
                None => return Ok(None),
            }
        }
    }

    /// Waits until the server has processed everything that was sent. Messages that arrive meanwhile are dropped.
    pub async fn ping(&mut self) -> Result<(), Error> {
        self.look()?;
        let number = self.say_ping();
        while self.answered < number {
            poll_fn(|context| self.poll_heard(context)).await?;
        }
        Ok(())
    }

    /// Asks the server for an answer, which is written later. Returns the number of pings with this one. Once so many were
    /// [answered](Self::answered), the server has processed everything that was to be sent before.
    pub fn say_ping(&mut self) -> u64 {
        self.wire.output().extend_from_slice(b"PING\r\n");
        self.pings += 1;
        self.pings
    }

    /// How many pings the server has answered.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Looks whether what is to be sent can still reach the server, before it is written.
    ///
    /// # Errors
    /// The server has closed the connection: nothing of it is written any more.
    pub fn still_reaches(&mut self) -> Result<(), Error> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        self.wire.still_reaches().map_err(|error| self.lost(error))
    }

    #[cfg(test)]
    pub(crate) fn is_closed(&self) -> bool {
        self.wire.stream().is_closed()
    }

    /// The beginning of the subjects to which requests are answered; the request's token follows.
    #[must_use]
    pub fn inbox(&self) -> &str {
        &self.inbox
    }

    /// Reads, without waiting, bytes that have arrived meanwhile, and so notices that the connection has ended. Costs
    /// no system call as long as nothing has arrived.
    fn look(&mut self) -> Result<(), Error> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        if self.unread() > UNREAD_MAX {
            return Ok(());
        }
        self.wire.clear_away();
        match self.wire.try_read() {
            Ok(_) => Ok(()),
            Err(error) => Err(self.lost(error)),
        }
    }

    fn poll_heard(&mut self, context: &mut Context<'_>) -> Poll<Result<ServerEvent, Error>> {
        loop {
            if let Some(heard) = self.hear()? {
                return Poll::Ready(Ok(heard));
            }
            if let Poll::Ready(Err(error)) = self.poll_write(context) {
                return Poll::Ready(Err(error));
            }
            ready!(self.poll_read(context))?;
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if let Some(error) = &self.ended {
            return Poll::Ready(Err(error.clone()));
        }
        if let Err(error) = ready!(self.wire.poll_write(context)) {
            return Poll::Ready(Err(self.lost(error)));
        }
        self.pongs = 0;
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if let Some(error) = &self.ended {
            return Poll::Ready(Err(error.clone()));
        }
        let missing = match wire::split(self.wire.unread()) {
            Ok(Parsed::Missing(missing)) => missing,
            _ => 0,
        };
        self.wire.clear_away();
        Poll::Ready(ready!(self.wire.poll_read(context, missing)).map_err(|error| self.lost(error)))
    }

    /// Notes that the connection has ended. The reason is the error that the server sent last, if it can still be
    /// read, else `cause`.
    fn lost(&mut self, cause: io::Error) -> Error {
        while self.unread() <= UNREAD_MAX && self.wire.try_read().is_ok_and(|some| some) {}
        let last = parting_words(self.wire.unread());
        let error = last.map_or_else(|| cause.into(), Error::Closed);
        self.ended.get_or_insert(error).clone()
    }

    /// Number of bytes that have arrived and that no caller has taken.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.wire.unread().len()
    }

    /// Parses the bytes that have arrived up to the next event that a caller may wait for, if there is one.
    fn hear(&mut self) -> Result<Option<ServerEvent>, Error> {
        loop {
            let (op, length) = match wire::split(self.wire.unread()) {
                Ok(Parsed::Whole(op, length)) => (op, length),
                // events that arrived before the connection ended are returned first
                Ok(Parsed::Missing(_)) => return self.ended.clone().map_or(Ok(None), Err),
                Err(error) => return Err(self.ended.get_or_insert(error).clone()),
            };
            let start = self.wire.taken();
            self.wire.take(length);
            match op {
                Op::Message(places) => return Ok(Some(ServerEvent::Message(start, places))),
                Op::Pong => {
                    self.answered += 1;
                    return Ok(Some(ServerEvent::Pong));
                }
                Op::Ping if self.pongs < PONGS_MAX => {
                    self.pongs += 1;
                    self.wire.output().extend_from_slice(b"PONG\r\n");
                }
                Op::Ping | Op::Ok => {}
                Op::Info(place) => self.learn(start, place)?,
                Op::Error(place) => {
                    let words = words(self.wire.arrived().get(start + place.start..start + place.end));
                    return Err(self.ended.get_or_insert(Error::Closed(words)).clone());
                }
            }
        }
    }

    fn learn(&mut self, start: usize, place: Range<usize>) -> Result<(), Error> {
        let json = self.wire.arrived().get(start + place.start..start + place.end).unwrap_or_default();
        match serde_json::from_slice::<Info>(json) {
            Ok(info) if !info.version.is_empty() => self.info = info,
            Ok(_) => return Err(self.garbled("an INFO without a version")),
            Err(error) => return Err(self.garbled(&format!("an INFO that is not JSON: {error}"))),
        }
        Ok(())
    }

    fn message(&self, start: usize, places: Places) -> Result<Message<'_>, Error> {
        let bytes = self.wire.arrived().get(start..).unwrap_or_default();
        let part = |place: Range<usize>| bytes.get(place).unwrap_or_default();
        let text = |place| {
            str::from_utf8(part(place)).map_err(|_| Error::Protocol("a subject that is not text".to_owned()))
        };
        Ok(Message {
            subject: text(places.subject)?,
            reply: places.reply.map(text).transpose()?,
            headers: part(places.headers),
            payload: part(places.payload),
            inbox: &self.inbox,
        })
    }

    fn garbled(&mut self, what: &str) -> Error {
        self.ended.get_or_insert(Error::Protocol(what.to_owned())).clone()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // the buffers hold the user's data, and after connecting the password
        f.debug_struct("Connection")
            .field("version", &self.info.version)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// A random prefix for subjects, so that no other client has the same.
fn inbox() -> Result<String, Error> {
    let number = SysRng.try_next_u64().map_err(|error| Error::Lost(error.to_string()))?;
    Ok(format!("_INBOX.{number:016x}."))
}

/// The first error message of the server in bytes that arrived and were not parsed yet.
fn parting_words(mut unread: &[u8]) -> Option<String> {
    while let Ok(Parsed::Whole(op, length)) = wire::split(unread) {
        if let Op::Error(place) = op {
            return Some(words(unread.get(place)));
        }
        unread = unread.get(length..).unwrap_or_default();
    }
    None
}

fn words(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).trim().trim_matches('\'').to_owned()
}

#[cfg(test)]
pub(crate) mod tests;
