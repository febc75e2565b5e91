//! One connection.

use std::{
    fmt,
    future::{Future, poll_fn},
    io,
    ops::Range,
    pin::pin,
    str,
    task::{Context, Poll, ready},
};

use acidtest_model::Secret;
use rand::{TryRng, rngs::SysRng};
use serde::Deserialize;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    Error, Message,
    wire::{self, Op, Places, Split},
};

/// How much room a read is given at least.
const READ_ROOM: usize = 64 * 1024;
/// How far the read buffer runs ahead of the bytes that have arrived: a length claimed by a broken server
/// costs this much memory, not what it claims.
const READ_AHEAD: usize = 1024 * 1024;
/// How much may have arrived that nobody has asked for yet, before the server is left to wait.
const UNREAD_MAX: usize = 4 * 1024 * 1024;
/// How many pings are answered while nothing is written: a server that reads nothing is left to wait.
const PONGS_MAX: usize = 1000;
/// The one subscription: everything comes to the connection's inbox.
const SUBSCRIPTION: &str = "1";

/// What the server says of itself when it is connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Info {
    /// Its name for itself, a new one each time it starts.
    pub server_id: String,
    /// Such as `2.9.10`.
    pub version: String,
    /// Bytes that a message may have, its headers included.
    pub max_payload: usize,
    /// Whether messages may have headers.
    pub headers: bool,
    /// Whether `JetStream` is enabled.
    pub jetstream: bool,
    /// Whether it talks to nobody without TLS.
    pub tls_required: bool,
}

/// Who logs in, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// Nobody.
    Anonymous,
    /// A user with a password.
    User(String, Secret),
    /// Whoever has the token.
    Token(Secret),
}

/// Where in all that was ever to be sent a message begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u64);

/// One connection to a server.
///
/// What is to be sent is kept until [`flush`](Connection::flush) or [`next`](Connection::next) writes it. Their
/// futures may be dropped at any time; nothing is lost by that. After any error but [`Error::TooLong`] the
/// connection is not used again, and every later call says the same.
pub struct Connection {
    stream: TcpStream,
    info: Info,
    /// What the subjects of answers begin with.
    inbox: String,
    output: Vec<u8>,
    /// How much of `output` has been written.
    written: usize,
    /// How much had been written before `output` was last empty.
    before: u64,
    /// Pings that were answered since then.
    pongs: usize,
    input: Vec<u8>,
    /// How much of `input` has been dealt with.
    consumed: usize,
    ended: Option<Error>,
}

/// What a caller may wait for.
enum ServerEvent {
    Message(usize, Places),
    Pong,
}

impl Connection {
    /// Connects to `host:port`, logs in and waits until the server has let the client in.
    pub async fn connect(endpoint: &str, login: &Login) -> Result<Self, Error> {
        let lost = |error: io::Error| Error::Lost(error.to_string());
        let stream = TcpStream::connect(endpoint).await.map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        let mut connection = Self {
            stream,
            info: Info::default(),
            inbox: inbox()?,
            output: Vec::new(),
            written: 0,
            before: 0,
            pongs: 0,
            input: Vec::with_capacity(READ_ROOM),
            consumed: 0,
            ended: None,
        };
        connection.greeting().await?;
        if connection.info.tls_required {
            return Err(Error::Closed("it wants TLS, which is not spoken here".to_owned()));
        }
        connection.say_hello(login);
        connection.ping().await?;
        Ok(connection)
    }

    /// Waits for the first line, by which a server is known to be one.
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
        }
        let hello = format!("CONNECT {hello}\r\nSUB {}* {SUBSCRIPTION}\r\n", self.inbox);
        self.output.extend_from_slice(hello.as_bytes());
    }

    /// What the server said of itself.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Publishes a message, to be written later. `token` is the number that an answer to it shall bear, `header`
    /// a name and its value.
    ///
    /// # Errors
    /// A connection that is known to be gone, or a message over the server's limit: it is not sent.
    pub fn publish(
        &mut self,
        subject: &str,
        token: Option<u64>,
        header: Option<(&str, &str)>,
        payload: &[u8],
    ) -> Result<Place, Error> {
        self.look()?;
        let place = Place(self.before + self.output.len() as u64);
        let start = self.output.len();
        let reply = token.map(|token| (self.inbox.as_str(), token));
        wire::publish(&mut self.output, subject, reply, header, payload);
        // the server counts the headers too; few messages are so near the limit that they matter
        let room = self.output.len() - start;
        if payload.len() > self.info.max_payload || (header.is_some() && room > self.info.max_payload) {
            self.output.truncate(start);
            return Err(Error::TooLong { bytes: payload.len(), limit: self.info.max_payload });
        }
        Ok(place)
    }

    /// Whether any byte from there on was handed to the network: if not, the server has never seen the message.
    #[must_use]
    pub fn reached(&self, place: Place) -> bool {
        self.before + self.written as u64 > place.0
    }

    /// Bytes that wait to be written.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        self.output.len() - self.written
    }

    /// Writes all that is to be sent.
    pub async fn flush(&mut self) -> Result<(), Error> {
        poll_fn(|context| {
            loop {
                if let done @ Poll::Ready(_) = self.poll_write(context) {
                    return done;
                }
                // a server that waits for us to read would never read what we write
                if self.unread() > UNREAD_MAX {
                    return Poll::Pending;
                }
                ready!(self.poll_read(context))?;
            }
        })
        .await
    }

    /// The next message, after writing what is to be sent.
    pub async fn next(&mut self) -> Result<Message<'_>, Error> {
        let (start, places) = loop {
            if let ServerEvent::Message(start, places) = poll_fn(|context| self.poll_heard(context)).await? {
                break (start, places);
            }
        };
        self.message(start, places)
    }

    /// The next message of those that have arrived.
    pub fn arrived(&mut self) -> Result<Option<Message<'_>>, Error> {
        loop {
            match self.hear()? {
                Some(ServerEvent::Message(start, places)) => return self.message(start, places).map(Some),
                Some(ServerEvent::Pong) => {}
                None => return Ok(None),
            }
        }
    }

    /// Waits until the server has dealt with all that was sent. Messages that arrive meanwhile are dropped.
    pub async fn ping(&mut self) -> Result<(), Error> {
        self.look()?;
        self.output.extend_from_slice(b"PING\r\n");
        while !matches!(poll_fn(|context| self.poll_heard(context)).await?, ServerEvent::Pong) {}
        Ok(())
    }

    /// What the subjects of answers begin with; a request's number follows.
    #[must_use]
    pub fn inbox(&self) -> &str {
        &self.inbox
    }

    /// Learns, without waiting, what the server has said meanwhile: perhaps that the connection is over. Costs no
    /// system call as long as nothing has arrived.
    fn look(&mut self) -> Result<(), Error> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        if self.unread() > UNREAD_MAX {
            return Ok(());
        }
        self.give_back();
        self.input.reserve(READ_ROOM);
        match self.stream.try_read_buf(&mut self.input) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(self.lost(&error.to_string())),
            Ok(0) => Err(self.lost("the server closed the connection")),
            Ok(_) => Ok(()),
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
        while let Some(rest) = self.output.get(self.written..).filter(|rest| !rest.is_empty()) {
            match ready!(pin!(self.stream.write(rest)).poll(context)) {
                Ok(0) => return Poll::Ready(Err(self.lost("the connection takes nothing more"))),
                Ok(written) => self.written += written,
                Err(error) => return Poll::Ready(Err(self.lost(&error.to_string()))),
            }
        }
        self.before += self.output.len() as u64;
        self.output.clear();
        self.written = 0;
        self.pongs = 0;
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if let Some(error) = &self.ended {
            return Poll::Ready(Err(error.clone()));
        }
        self.make_room();
        Poll::Ready(match ready!(pin!(self.stream.read_buf(&mut self.input)).poll(context)) {
            Ok(0) => Err(self.lost("the server closed the connection")),
            Ok(_) => Ok(()),
            Err(error) => Err(self.lost(&error.to_string())),
        })
    }

    /// The connection is over. What the server has said last, if it can still be read, is why.
    fn lost(&mut self, cause: &str) -> Error {
        while self.unread() <= UNREAD_MAX {
            self.make_room();
            if !matches!(self.stream.try_read_buf(&mut self.input), Ok(read) if read > 0) {
                break;
            }
        }
        let last = parting_words(self.input.get(self.consumed..).unwrap_or_default());
        let error = last.map_or_else(|| Error::Lost(cause.to_owned()), Error::Closed);
        self.ended.get_or_insert(error).clone()
    }

    /// Bytes that have arrived and nobody has taken.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.input.len() - self.consumed
    }

    /// Gives back the room of what has been dealt with.
    fn give_back(&mut self) {
        if self.consumed == self.input.len() {
            self.input.clear();
            self.consumed = 0;
        } else if self.consumed >= READ_ROOM {
            self.input.drain(..self.consumed);
            self.consumed = 0;
        }
    }

    /// Makes room for what comes next.
    fn make_room(&mut self) {
        self.give_back();
        let missing = match wire::split(self.input.get(self.consumed..).unwrap_or_default()) {
            Ok(Split::Missing(missing)) => missing,
            _ => 0,
        };
        self.input.reserve(missing.clamp(READ_ROOM, READ_AHEAD));
    }

    /// The next thing that somebody may wait for, of what has arrived.
    fn hear(&mut self) -> Result<Option<ServerEvent>, Error> {
        loop {
            let unread = self.input.get(self.consumed..).unwrap_or_default();
            let (op, length) = match wire::split(unread) {
                Ok(Split::Whole(op, length)) => (op, length),
                // what arrived before the end is told first
                Ok(Split::Missing(_)) => return self.ended.clone().map_or(Ok(None), Err),
                Err(error) => return Err(self.ended.get_or_insert(error).clone()),
            };
            let start = self.consumed;
            self.consumed += length;
            match op {
                Op::Message(places) => return Ok(Some(ServerEvent::Message(start, places))),
                Op::Pong => return Ok(Some(ServerEvent::Pong)),
                Op::Ping if self.pongs < PONGS_MAX => {
                    self.pongs += 1;
                    self.output.extend_from_slice(b"PONG\r\n");
                }
                Op::Ping | Op::Ok => {}
                Op::Info(place) => self.learn(start, place)?,
                Op::Error(place) => {
                    let words = words(self.input.get(start + place.start..start + place.end));
                    return Err(self.ended.get_or_insert(Error::Closed(words)).clone());
                }
            }
        }
    }

    fn learn(&mut self, start: usize, place: Range<usize>) -> Result<(), Error> {
        let json = self.input.get(start + place.start..start + place.end).unwrap_or_default();
        match serde_json::from_slice::<Info>(json) {
            Ok(info) if !info.version.is_empty() => self.info = info,
            Ok(_) => return Err(self.garbled("an INFO without a version")),
            Err(error) => return Err(self.garbled(&format!("an INFO that is no JSON: {error}"))),
        }
        Ok(())
    }

    fn message(&self, start: usize, places: Places) -> Result<Message<'_>, Error> {
        let bytes = self.input.get(start..).unwrap_or_default();
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

/// A prefix of subjects that no other client has.
fn inbox() -> Result<String, Error> {
    let number = SysRng.try_next_u64().map_err(|error| Error::Lost(error.to_string()))?;
    Ok(format!("_INBOX.{number:016x}."))
}

/// What the server said of why it closes the connection, among the last that arrived.
fn parting_words(mut unread: &[u8]) -> Option<String> {
    while let Ok(Split::Whole(op, length)) = wire::split(unread) {
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
mod tests;
