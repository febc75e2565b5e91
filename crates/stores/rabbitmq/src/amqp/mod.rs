//! One connection with one channel, driven by whoever uses it.
//!
//! A client of our own: those that exist (lapin, amqprs) hand every request to tasks or threads of their own,
//! which costs a hop each way, and cannot say of a request without an answer whether it was sent. Every future
//! here may be dropped while it waits: what was received and what is yet to be sent is kept in the connection.

mod wire;

use std::{collections::VecDeque, io};

use acidtest_engine::Fault;
use tokio::{
    io::{AsyncReadExt, Interest},
    net::TcpStream,
};
pub(crate) use wire::{Arguments, Envelope, Id, Value};
use wire::{CHANNEL, CONNECTION, Frame, Reader};

/// The largest frame that is asked for, RabbitMQ's own default.
const FRAME_MAX: u32 = 131_072;
/// Bytes that are kept back before they are written without being asked for.
const FULL: usize = 1 << 16;
/// Bytes that are read at once.
const READ: usize = 1 << 16;
/// Bytes received and not understood yet, beyond which nothing more is read.
const MOST: usize = 1 << 22;
/// The largest body that is taken: the limit of a message is 512 MiB at most.
const BODY: u64 = 1 << 29;

/// Why a connection cannot be opened or used any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The network.
    #[error("{0}")]
    Network(String),
    /// The server closed the channel or the connection, with its code.
    #[error("the broker closed the {what}: {code} {text}")]
    Closed { what: &'static str, code: u16, text: String },
    /// What was received makes no sense.
    #[error("{0}")]
    Protocol(String),
}

impl Error {
    /// The queue or exchange is not there.
    pub(crate) const NOT_FOUND: u16 = 404;

    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Closed { code, .. } => Some(*code),
            _ => None,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::lost(error.to_string())
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Network(error.to_string())
    }
}

/// Who logs in, and where to.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: acidtest_model::Secret,
    pub(crate) vhost: String,
}

/// What the server said that somebody waits for.
#[derive(Debug)]
pub(crate) enum Event {
    /// A message for a consumer.
    Delivered { tag: u64, redelivered: bool, body: Vec<u8> },
    /// A message that no queue takes: it was not published.
    Returned { text: String, body: Vec<u8> },
    /// Published: this one, or all up to it.
    Confirmed { tag: u64, multiple: bool },
    /// Not published, as far as the server knows: this one, or all up to it.
    Refused { tag: u64, multiple: bool },
    /// The server ended a subscription.
    Cancelled,
    /// An answer, with its arguments.
    Answer(Id, Vec<u8>),
}

/// Content that has begun to arrive.
#[derive(Debug)]
struct Content {
    kind: Kind,
    /// None until its header is there.
    size: Option<usize>,
    body: Vec<u8>,
}

#[derive(Debug)]
enum Kind {
    Delivered {
        tag: u64,
        redelivered: bool,
    },
    Returned {
        text: String,
    },
    /// Asked for by `basic.get`.
    Got,
}

/// A connection with one channel.
pub(crate) struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    /// How much of `out` was written.
    written: usize,
    input: Vec<u8>,
    /// How much of `input` was understood.
    understood: usize,
    frame_max: usize,
    content: Option<Content>,
    events: VecDeque<Event>,
    /// What the server said of itself: product, version.
    about: Vec<(String, String)>,
    /// Why the server takes no messages, since it was last asked.
    blocked: Option<String>,
    ended: Option<Error>,
}

impl Connection {
    /// Connects, logs in and opens the channel.
    ///
    /// # Errors
    /// The network's or the server's words.
    pub(crate) async fn open(endpoint: &str, login: &Login) -> Result<Self, Error> {
        let stream = TcpStream::connect(endpoint).await?;
        stream.set_nodelay(true)?;
        let mut connection = Self {
            stream,
            out: wire::GREETING.to_vec(),
            written: 0,
            input: Vec::new(),
            understood: 0,
            frame_max: FRAME_MAX as usize,
            content: None,
            events: VecDeque::new(),
            about: Vec::new(),
            blocked: None,
            ended: None,
        };
        connection.log_in(login).await?;
        Ok(connection)
    }

    async fn log_in(&mut self, login: &Login) -> Result<(), Error> {
        let start = self.answer(wire::START).await?;
        let mut reader = Reader(&start);
        let about = reader.short().and_then(|_| reader.texts());
        self.about = about.ok_or_else(|| short(wire::START))?;
        let capabilities = [
            ("basic.nack", Value::True),
            ("connection.blocked", Value::True),
            ("consumer_cancel_notify", Value::True),
            ("publisher_confirms", Value::True),
            ("authentication_failure_close", Value::True),
        ];
        let properties = [
            ("product", Value::Text("acidtest")),
            ("version", Value::Text(env!("CARGO_PKG_VERSION"))),
            ("capabilities", Value::Table(&capabilities)),
        ];
        let response = format!("\0{}\0{}", login.user, login.password.reveal());
        let arguments = Arguments::default().table(&properties).name("PLAIN").text(response.as_bytes());
        wire::method(&mut self.out, CONNECTION, wire::START_OK, &arguments.name("en_US"));
        let tune = self.answer(wire::TUNE).await?;
        let mut reader = Reader(&tune);
        let frame_max = reader.short().and_then(|_| reader.long()).ok_or_else(|| short(wire::TUNE))?;
        // 0 is no limit
        let frame_max = if frame_max == 0 { FRAME_MAX } else { frame_max.clamp(4096, FRAME_MAX) };
        self.frame_max = frame_max as usize;
        // one channel, and no heartbeats: timeouts are the engine's
        let arguments = Arguments::default().short(1).long(frame_max).short(0);
        wire::method(&mut self.out, CONNECTION, wire::TUNE_OK, &arguments);
        let arguments = Arguments::default().name(&login.vhost).name("").byte(0);
        wire::method(&mut self.out, CONNECTION, wire::OPEN, &arguments);
        self.answer(wire::OPEN_OK).await?;
        self.ask(wire::CHANNEL_OPEN, &Arguments::default().name(""), wire::CHANNEL_OPEN_OK).await?;
        Ok(())
    }

    /// What the server says of itself under this name.
    pub(crate) fn about(&self, name: &str) -> Option<&str> {
        self.about.iter().find(|(each, _)| each == name).map(|(_, text)| text.as_str())
    }

    /// The largest frame, in bytes.
    pub(crate) fn frame_max(&self) -> usize {
        self.frame_max
    }

    /// Why the server has taken no messages since this was last asked, if it did not.
    pub(crate) fn take_blocked(&mut self) -> Option<String> {
        self.blocked.take()
    }

    /// Sends a request and waits for its answer's arguments. What arrives meanwhile is kept.
    pub(crate) async fn ask(&mut self, id: Id, arguments: &Arguments, answer: Id) -> Result<Vec<u8>, Error> {
        self.say(id, arguments);
        self.answer(answer).await
    }

    /// Puts a request down to be sent.
    pub(crate) fn say(&mut self, id: Id, arguments: &Arguments) {
        wire::method(&mut self.out, CHANNEL, id, arguments);
    }

    /// Puts a message down to be sent; writes when there is much to write.
    pub(crate) async fn publish(&mut self, envelope: &Envelope, body: &[u8]) -> Result<(), Error> {
        envelope.write(&mut self.out, body, self.frame_max);
        if self.out.len() - self.written >= FULL {
            self.flush().await?;
        }
        Ok(())
    }

    /// Writes what was put down. Reads meanwhile, so that a server that blocks its publishers is heard.
    pub(crate) async fn flush(&mut self) -> Result<(), Error> {
        while self.written < self.out.len() {
            self.still()?;
            match self.stream.try_write(&self.out[self.written..]) {
                Ok(count) => {
                    self.written += count;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(self.broken(error)),
            }
            let room = self.input.len() < MOST;
            let interest = if room { Interest::READABLE | Interest::WRITABLE } else { Interest::WRITABLE };
            let ready = self.stream.ready(interest).await?;
            if room && ready.is_readable() {
                self.read_what_is_there()?;
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }

    /// The next thing that the server said, what was put down being written first.
    pub(crate) async fn event(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            self.still()?;
            self.flush().await?;
            if self.events.is_empty() {
                self.read().await?;
            }
        }
    }

    /// The next thing that the server said already.
    pub(crate) fn heard(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether the server has said something that nobody has taken yet.
    pub(crate) fn has_heard(&self) -> bool {
        !self.events.is_empty()
    }

    /// Waits for an answer. What else arrives is kept, in its order.
    pub(crate) async fn answer(&mut self, wanted: Id) -> Result<Vec<u8>, Error> {
        // looked for in what is kept, so that nothing is lost if this is given up
        loop {
            let found =
                self.events.iter().position(|event| matches!(event, Event::Answer(id, _) if *id == wanted));
            if let Some(Event::Answer(_, arguments)) = found.and_then(|place| self.events.remove(place)) {
                return Ok(arguments);
            }
            self.still()?;
            self.flush().await?;
            let before = self.events.len();
            while self.events.len() == before && self.ended.is_none() {
                self.read().await?;
            }
        }
    }

    /// Gets one message of a queue, acknowledged or not; none if it is empty.
    pub(crate) async fn get(&mut self, queue: &str, no_ack: bool) -> Result<Option<Vec<u8>>, Error> {
        self.say(wire::GET, &Arguments::default().short(0).name(queue).byte(no_ack.into()));
        loop {
            match self.event().await? {
                Event::Answer(wire::GET_EMPTY, _) => return Ok(None),
                Event::Answer(wire::GET_OK, body) => return Ok(Some(body)),
                _ => {}
            }
        }
    }

    /// Closes the connection once the server has read all that was written: what it has not read yet is lost
    /// with a connection that just ends.
    pub(crate) async fn close(&mut self) {
        let arguments = Arguments::default().short(200).name("done").short(0).short(0);
        wire::method(&mut self.out, CONNECTION, wire::CLOSE, &arguments);
        // there is nobody left to tell
        let _ = self.answer(wire::CLOSE_OK).await;
    }

    fn still(&self) -> Result<(), Error> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    /// The network's error; the server's own last words are better, where they have arrived.
    fn broken(&mut self, error: io::Error) -> Error {
        let _ = self.read_what_is_there();
        self.ended.clone().unwrap_or_else(|| error.into())
    }

    /// Waits for the network and takes what it has. Unlike an attempt at it, this learns from a short read that
    /// there is no more, which saves a system call each time.
    async fn read(&mut self) -> Result<(), Error> {
        self.input.reserve(READ);
        let read = self.stream.read_buf(&mut self.input).await;
        self.received(read)
    }

    /// Takes what the network has already.
    fn read_what_is_there(&mut self) -> Result<(), Error> {
        self.input.reserve(READ);
        let read = self.stream.try_read_buf(&mut self.input);
        self.received(read)
    }

    fn received(&mut self, read: io::Result<usize>) -> Result<(), Error> {
        match read {
            Ok(0) => {
                self.understand();
                let gone = || Error::Network("the broker closed the connection without a word".to_owned());
                Err(self.ended.get_or_insert_with(gone).clone())
            }
            Ok(_) => {
                self.understand();
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(self.ended.get_or_insert_with(|| error.into()).clone()),
        }
    }

    /// Makes events of the frames that are whole.
    fn understand(&mut self) {
        let input = std::mem::take(&mut self.input);
        while self.ended.is_none() {
            match wire::first(&input[self.understood..], self.frame_max) {
                Ok(Some((frame, used))) => {
                    self.understood += used;
                    if let Err(error) = self.take(&frame) {
                        self.ended = Some(error);
                    }
                }
                Ok(None) => break,
                Err(words) => self.ended = Some(Error::Protocol(words)),
            }
        }
        self.input = input;
        self.input.drain(..self.understood);
        self.understood = 0;
    }

    fn take(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        match *frame {
            Frame::Heartbeat => {}
            Frame::Method(id, arguments) => self.method(id, arguments).ok_or_else(|| short(id))?,
            Frame::Header(size) => {
                let content = self.content.as_mut().ok_or_else(stray)?;
                let fits = usize::try_from(size).ok().filter(|_| size <= BODY);
                let size = fits.ok_or_else(|| Error::Protocol(format!("a message of {size} bytes")))?;
                content.size = Some(size);
            }
            Frame::Body(body) => self.content.as_mut().ok_or_else(stray)?.body.extend_from_slice(body),
        }
        let is_whole = |content: &Content| content.size.is_some_and(|size| content.body.len() >= size);
        if let Some(Content { kind, body, .. }) = self.content.take_if(|content| is_whole(content)) {
            self.events.push_back(match kind {
                Kind::Delivered { tag, redelivered } => Event::Delivered { tag, redelivered, body },
                Kind::Returned { text } => Event::Returned { text, body },
                Kind::Got => Event::Answer(wire::GET_OK, body),
            });
        }
        Ok(())
    }

    /// None where the arguments end too early.
    fn method(&mut self, id: Id, arguments: &[u8]) -> Option<()> {
        let mut reader = Reader(arguments);
        match id {
            wire::DELIVER => {
                reader.name()?;
                let (tag, redelivered) = (reader.longlong()?, reader.byte()? != 0);
                self.begin(Kind::Delivered { tag, redelivered });
            }
            wire::RETURN => {
                let (code, text) = (reader.short()?, reader.name()?);
                self.begin(Kind::Returned { text: format!("{code} {text}") });
            }
            wire::GET_OK => self.begin(Kind::Got),
            wire::ACK => {
                let (tag, multiple) = (reader.longlong()?, reader.byte()? != 0);
                self.events.push_back(Event::Confirmed { tag, multiple });
            }
            wire::NACK => {
                let (tag, multiple) = (reader.longlong()?, reader.byte()? & 1 != 0);
                self.events.push_back(Event::Refused { tag, multiple });
            }
            wire::CANCEL => self.events.push_back(Event::Cancelled),
            wire::BLOCKED => self.blocked = Some(format!("the broker blocks publishers: {}", reader.name()?)),
            wire::UNBLOCKED => {}
            wire::FLOW => {
                let arguments = Arguments::default().byte(reader.byte()?);
                self.say(wire::FLOW_OK, &arguments);
            }
            wire::CLOSE => self.closed("connection", CONNECTION, wire::CLOSE_OK, &mut reader)?,
            wire::CHANNEL_CLOSE => self.closed("channel", CHANNEL, wire::CHANNEL_CLOSE_OK, &mut reader)?,
            other => self.events.push_back(Event::Answer(other, arguments.to_vec())),
        }
        Some(())
    }

    fn begin(&mut self, kind: Kind) {
        self.content = Some(Content { kind, size: None, body: Vec::new() });
    }

    /// The server's last words. It is told that they were heard, as far as the network takes that at once.
    fn closed(
        &mut self,
        what: &'static str,
        channel: u16,
        answer: Id,
        reader: &mut Reader<'_>,
    ) -> Option<()> {
        let (code, text) = (reader.short()?, reader.name()?);
        self.ended = Some(Error::Closed { what, code, text });
        let mut out = Vec::new();
        wire::method(&mut out, channel, answer, &Arguments::default());
        let _ = self.stream.try_write(&out);
        Some(())
    }
}

fn short(id: Id) -> Error {
    Error::Protocol(format!("the arguments of method {id:?} end too early"))
}

fn stray() -> Error {
    Error::Protocol("content without a method before it".to_owned())
}

/// Methods that others ask for by name.
pub(crate) mod ids {
    pub(crate) use super::wire::{
        ACK, CANCEL, CANCEL_OK, COMMIT, COMMIT_OK, CONFIRM, CONFIRM_OK, CONSUME, CONSUME_OK, DECLARE,
        DECLARE_OK, DELETE, DELETE_OK, QOS, QOS_OK, TX, TX_OK,
    };
}

/// Ready and consumers, of the answer to a declaration.
pub(crate) fn declared(arguments: &[u8]) -> Option<(u32, u32)> {
    let mut reader = Reader(arguments);
    reader.name()?;
    Some((reader.long()?, reader.long()?))
}
