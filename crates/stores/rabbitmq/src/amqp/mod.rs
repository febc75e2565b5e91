//! An AMQP connection with one channel, which only makes progress while a caller waits for it.
//!
//! It is written here because the existing clients (lapin, amqprs) hand every request to tasks or threads of their
//! own, which costs a hop each way, and cannot tell whether a request without an answer was sent. Every future
//! here may be dropped while it waits: bytes that were received and bytes to be sent are kept in the connection.

mod decoder;
mod wire;

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    task::{Context, Poll, Waker, ready},
};

use acidtest_engine::Fault;
use acidtest_model::NegotiatedTls;
pub(crate) use acidtest_transport::Place;
use acidtest_transport::{TlsError, Transport, Wire};
pub use wire::{Arguments, Envelope, Id, Value};

use self::{
    decoder::{Decoder, ServerMessage, short},
    wire::{CHANNEL, CONNECTION, Reader},
};

/// The largest frame that is asked for, in bytes: RabbitMQ's own default.
const FRAME_MAX: u32 = 131_072;
/// Bytes to be sent that may wait until they are written without [`Connection::flush`].
const FULL: usize = 1 << 16;
/// The most bytes that are kept of events that no caller has taken, or of answers that the server does not read: more
/// than all messages of a transaction have.
const KEPT: usize = 1 << 31;

/// The reason why a connection cannot be opened or used any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The network failed, or the server did not answer.
    #[error("{0}")]
    Network(String),
    /// TLS did not come about, or ended.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server closed the channel or the connection, with this reply code and text.
    #[error("the broker closed the {what}: {code} {text}")]
    Closed {
        /// Which of the two.
        what: &'static str,
        code: u16,
        text: String,
    },
    /// The server sent bytes that the protocol does not allow.
    #[error("{0}")]
    Protocol(String),
}

impl Error {
    /// Whether there is no such queue. The text is compared too, because the server gives the same code for a queue
    /// that exists and does not answer: because its node is down, it has crashed, or it is too slow.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Closed { code: 404, text, .. } if text.contains("no queue"))
    }

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
        TlsError::within(&error).map_or_else(|| Self::Network(error.to_string()), Self::Tls)
    }
}

/// The credentials to log in with, and the virtual host.
#[derive(Clone)]
pub struct Login {
    pub user: String,
    pub password: acidtest_model::Secret,
    pub vhost: String,
    /// After how many seconds without a word the broker takes the connection for lost; 0 is never. Whoever asks for it
    /// says something often enough.
    pub heartbeat: u16,
}

/// A message of the server that a caller may wait for.
#[derive(Debug)]
pub enum Event {
    /// A message for a consumer.
    Delivered {
        /// The number by which it is acknowledged.
        tag: u64,
        /// Whether it may have been delivered before.
        redelivered: bool,
        body: Vec<u8>,
    },
    /// A message of ours that no queue takes and that therefore was not published.
    Returned {
        /// The reason.
        text: String,
        body: Vec<u8>,
    },
    /// The message with this tag was published, or all up to it.
    Confirmed {
        /// The message's number on its connection, from 1.
        tag: u64,
        /// Whether it is said of all up to it.
        multiple: bool,
    },
    /// The server does not answer for the message with this tag, or for all up to it.
    Refused {
        /// The message's number on its connection, from 1.
        tag: u64,
        /// Whether it is said of all up to it.
        multiple: bool,
    },
    /// The server ended the subscription.
    Cancelled,
    /// An answer to a request, with its arguments.
    Answer(Id, Vec<u8>),
}

impl Event {
    /// Approximate memory that the event takes, in bytes.
    fn size(&self) -> usize {
        let content = match self {
            Self::Delivered { body, .. } => body.len(),
            Self::Returned { text, body } => text.len() + body.len(),
            Self::Answer(_, arguments) => arguments.len(),
            Self::Confirmed { .. } | Self::Refused { .. } | Self::Cancelled => 0,
        };
        size_of::<Self>() + content
    }
}

/// A connection with one channel.
pub struct Connection {
    wire: Wire,
    decoder: Decoder,
    events: VecDeque<Event>,
    /// Approximate memory that `events` take, in bytes.
    kept: usize,
    /// Properties of the server by name, such as `product` and `version`.
    about: Vec<(String, String)>,
    /// The reason why the server has blocked publishers since [`Connection::take_blocked`], if it has.
    blocked: Option<String>,
    /// How many requests for a prefetch the server has answered, whether anybody has taken the answers or not.
    prefetches: u64,
    ended: Option<Error>,
}

impl Connection {
    /// Connects, logs in and opens the channel.
    ///
    /// # Errors
    /// If the network fails, or the server refuses the login or the virtual host.
    pub async fn open(transport: &Transport, login: &Login) -> Result<Self, Error> {
        let mut connection = Self {
            wire: Wire::new(transport.connect().await?),
            decoder: Decoder::new(FRAME_MAX as usize),
            events: VecDeque::new(),
            kept: 0,
            about: Vec::new(),
            blocked: None,
            prefetches: 0,
            ended: None,
        };
        connection.wire.output().extend_from_slice(wire::GREETING);
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
        wire::method(self.wire.output(), CONNECTION, wire::START_OK, &arguments.name("en_US"));
        let tune = self.answer(wire::TUNE).await?;
        let mut reader = Reader(&tune);
        let frame_max = reader.short().and_then(|_| reader.long()).ok_or_else(|| short(wire::TUNE))?;
        // 0 is no limit
        let frame_max = if frame_max == 0 { FRAME_MAX } else { frame_max.clamp(4096, FRAME_MAX) };
        self.decoder.agree(frame_max as usize);
        let arguments = Arguments::default().short(1).long(frame_max).short(login.heartbeat);
        wire::method(self.wire.output(), CONNECTION, wire::TUNE_OK, &arguments);
        let arguments = Arguments::default().name(&login.vhost).name("").byte(0);
        wire::method(self.wire.output(), CONNECTION, wire::OPEN, &arguments);
        self.answer(wire::OPEN_OK).await?;
        self.ask(wire::CHANNEL_OPEN, &Arguments::default().name(""), wire::CHANNEL_OPEN_OK).await?;
        Ok(())
    }

    /// The TLS that was agreed on; none without TLS.
    #[must_use]
    pub fn tls(&self) -> Option<NegotiatedTls> {
        self.wire.negotiated()
    }

    /// The server's property of this name.
    pub fn about(&self, name: &str) -> Option<&str> {
        self.about.iter().find(|(each, _)| each == name).map(|(_, text)| text.as_str())
    }

    /// The largest frame that was agreed on, in bytes.
    pub(crate) fn frame_max(&self) -> usize {
        self.decoder.frame_max()
    }

    /// Takes the reason why the server has blocked publishers since the last call, if it has.
    pub fn take_blocked(&mut self) -> Option<String> {
        self.blocked.take()
    }

    /// Sends a request and waits for its answer, whose arguments it returns. Events that arrive meanwhile are kept.
    pub async fn ask(&mut self, id: Id, arguments: &Arguments, answer: Id) -> Result<Vec<u8>, Error> {
        self.say(id, arguments);
        self.answer(answer).await
    }

    /// Queues a request, which is written later.
    pub fn say(&mut self, id: Id, arguments: &Arguments) {
        wire::method(self.wire.output(), CHANNEL, id, arguments);
    }

    /// Queues a message to be published; writes once 64 KiB wait.
    pub async fn publish(&mut self, envelope: &Envelope, body: &[u8]) -> Result<(), Error> {
        let frame_max = self.decoder.frame_max();
        envelope.write(self.wire.output(), body, frame_max);
        if self.wire.unwritten() >= FULL {
            self.flush().await?;
        }
        Ok(())
    }

    /// The place at which what is queued next begins.
    pub(crate) fn place(&self) -> Place {
        self.wire.place()
    }

    /// Whether any byte from this place on was handed to the network. If not, the server has not seen it.
    pub(crate) fn reached(&self, place: Place) -> bool {
        self.wire.reached(place)
    }

    /// Writes everything that was queued. Reads meanwhile, so that a server can tell that it blocks publishers.
    pub async fn flush(&mut self) -> Result<(), Error> {
        poll_fn(|context| self.poll_written(context)).await
    }

    fn poll_written(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            self.still()?;
            match self.wire.poll_write(context) {
                Poll::Ready(written) => return Poll::Ready(written.map_err(|error| self.broken(error))),
                Poll::Pending => ready!(self.poll_heard(context, false))?,
            }
        }
    }

    /// Waits for the next event, after writing everything that was queued.
    pub async fn event(&mut self) -> Result<Event, Error> {
        poll_fn(|context| {
            loop {
                if let Some(event) = self.heard() {
                    return Poll::Ready(Ok(event));
                }
                ready!(self.poll_heard(context, true))?;
            }
        })
        .await
    }

    /// Looks whether what was queued can still reach the server, before it is written.
    ///
    /// # Errors
    /// The server has closed the connection: nothing of it is written any more.
    pub(crate) fn still_reaches(&mut self) -> Result<(), Error> {
        self.still()?;
        self.wire.still_reaches().map_err(|error| self.broken(error))
    }

    #[cfg(test)]
    pub(crate) fn is_closed(&self) -> bool {
        self.wire.stream().is_closed()
    }

    /// Takes what has arrived, without waiting. Costs no system call as long as nothing has. Whether the connection has ended is
    /// told by whatever waits on it next.
    pub(crate) fn look(&mut self) {
        let read = self.wire.try_read();
        self.understand();
        if let Err(error) = read {
            self.ended.get_or_insert_with(|| error.into());
        }
    }

    /// How many requests for a prefetch the server has answered.
    pub(crate) fn prefetches(&self) -> u64 {
        self.prefetches
    }

    /// The next event that has been heard already, if any.
    pub fn heard(&mut self) -> Option<Event> {
        self.taken(0)
    }

    /// Whether an event has arrived that no caller has taken yet.
    pub(crate) fn has_heard(&self) -> bool {
        !self.events.is_empty()
    }

    /// Waits for an answer, and returns its arguments. Other events are kept, in their order.
    pub(crate) async fn answer(&mut self, wanted: Id) -> Result<Vec<u8>, Error> {
        let is_it = |event: &Event| matches!(event, Event::Answer(id, _) if *id == wanted);
        // the answer is looked for among the events that are kept, so that dropping this future loses none
        let mut looked = 0;
        poll_fn(|context| {
            loop {
                let found = self.events.range(looked..).position(is_it);
                if let Some(Event::Answer(_, arguments)) = found.and_then(|place| self.taken(looked + place))
                {
                    return Poll::Ready(Ok(arguments));
                }
                looked = self.events.len();
                ready!(self.poll_heard(context, true))?;
            }
        })
        .await
    }

    /// Takes the event at this place out of those that are kept.
    fn taken(&mut self, place: usize) -> Option<Event> {
        let event = self.events.remove(place)?;
        self.kept -= event.size();
        Some(event)
    }

    /// Gets one message from a queue, which counts as acknowledged if `no_ack`; none if the queue is empty.
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

    /// Closes the connection once the server has read everything that was written, and returns whether it has. Bytes that it
    /// has not read are lost if a connection just ends.
    pub async fn close(&mut self) -> bool {
        let arguments = Arguments::default().short(200).name("done").short(0).short(0);
        wire::method(self.wire.output(), CONNECTION, wire::CLOSE, &arguments);
        // no caller is left to take other events, or to be told of an error
        while let Ok(event) = self.event().await {
            if matches!(event, Event::Answer(wire::CLOSE_OK, _)) {
                return true;
            }
        }
        false
    }

    fn still(&self) -> Result<(), Error> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    /// The reason why the connection has ended: the server's own, if it has arrived, else the network's error.
    fn broken(&mut self, error: io::Error) -> Error {
        while self.ended.is_none() && self.wire.try_read().is_ok_and(|some| some) {
            self.understand();
        }
        self.ended.get_or_insert_with(|| error.into()).clone()
    }

    /// Waits until more has arrived, and parses it; writes meanwhile if `writes`.
    fn poll_heard(&mut self, context: &mut Context<'_>, writes: bool) -> Poll<Result<(), Error>> {
        self.still()?;
        let read = if writes { self.wire.poll_exchange(context, 0) } else { self.wire.poll_read(context, 0) };
        let read = ready!(read);
        self.understand();
        if let Err(error) = read {
            // told once what has arrived before the end was taken
            self.ended.get_or_insert_with(|| error.into());
        }
        Poll::Ready(Ok(()))
    }

    /// Parses the bytes that were received.
    fn understand(&mut self) {
        while self.ended.is_none() {
            let (taken, said) = self.decoder.next(self.wire.unread());
            self.wire.take(taken);
            match said {
                Ok(Some(said)) => self.hear(said),
                Ok(None) => break,
                Err(error) => self.ended = Some(error),
            }
        }
        self.wire.clear_away();
    }

    fn hear(&mut self, said: ServerMessage) {
        match said {
            ServerMessage::Event(event) => {
                self.prefetches += u64::from(matches!(event, Event::Answer(wire::QOS_OK, _)));
                self.kept += event.size();
                self.events.push_back(event);
            }
            ServerMessage::Blocked(why) => {
                self.blocked = Some(format!("the broker blocks publishers: {why}"));
            }
            ServerMessage::Flow(active) => self.say(wire::FLOW_OK, &Arguments::default().byte(active)),
            ServerMessage::Closed { connection: true, code, text } => {
                self.closed(CONNECTION, wire::CLOSE_OK, Error::Closed { what: "connection", code, text });
            }
            ServerMessage::Closed { connection: false, code, text } => {
                self.closed(CHANNEL, wire::CHANNEL_CLOSE_OK, Error::Closed { what: "channel", code, text });
            }
        }
        if self.kept.max(self.wire.unwritten()) > KEPT {
            self.ended = Some(Error::Protocol("the broker sent more than was requested".to_owned()));
        }
    }

    /// Notes why the server closed the channel or the connection, and confirms it, if that can be written at once. What waits
    /// to be written before it is of no use any more, and stays unsent.
    fn closed(&mut self, channel: u16, answer: Id, words: Error) {
        self.ended = Some(words);
        if self.wire.unwritten() == 0 {
            wire::method(self.wire.output(), channel, answer, &Arguments::default());
            let _ = self.wire.poll_write(&mut Context::from_waker(Waker::noop()));
        }
    }
}

/// Ids of the methods that other modules use.
pub mod ids {
    pub use super::wire::{
        ACK, CANCEL, CANCEL_OK, COMMIT, COMMIT_OK, CONFIRM, CONFIRM_OK, CONSUME, CONSUME_OK, DECLARE,
        DECLARE_OK, DELETE, DELETE_OK, QOS, QOS_OK, TX, TX_OK,
    };
}

/// Parses the answer to a declaration: numbers of ready messages and of consumers.
#[must_use]
pub fn declared(arguments: &[u8]) -> Option<(u32, u32)> {
    let mut reader = Reader(arguments);
    reader.name()?;
    Some((reader.long()?, reader.long()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use acidtest_model::{Address, Secret};
    use bytes::BytesMut;
    use tokio::{
        io::AsyncWriteExt,
        net::{TcpListener, TcpStream},
    };

    use super::*;

    /// A connection to a broker played by the test, and the broker's side of it, which has sent nothing but its
    /// greetings.
    pub(crate) async fn connected() -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::parse(&format!("amqp://{}", listener.local_addr().unwrap())).unwrap();
        let transport = Transport::new(&address, 5672).unwrap();
        let mut greetings = Vec::new();
        let start = Arguments::default().short(9).table(&[("product", Value::Text("made up"))]);
        wire::method(&mut greetings, CONNECTION, wire::START, &start);
        wire::method(&mut greetings, CONNECTION, wire::TUNE, &Arguments::default().short(0).long(0).short(0));
        wire::method(&mut greetings, CONNECTION, wire::OPEN_OK, &Arguments::default());
        wire::method(&mut greetings, CHANNEL, wire::CHANNEL_OPEN_OK, &Arguments::default());
        let login =
            Login { user: "guest".into(), password: Secret::new("guest"), vhost: "/".into(), heartbeat: 0 };
        let broker = async {
            let (mut broker, _) = listener.accept().await.unwrap();
            broker.write_all(&greetings).await.unwrap();
            broker
        };
        let (connection, broker) = tokio::join!(Connection::open(&transport, &login), broker);
        (connection.unwrap(), broker)
    }

    /// What a broker says when it has published all messages up to this one.
    pub(crate) fn acknowledgement(tag: u64) -> Vec<u8> {
        let mut said = Vec::new();
        wire::method(&mut said, CHANNEL, wire::ACK, &Arguments::default().longlong(tag).byte(1));
        said
    }

    /// What a broker says when no queue takes a message.
    pub(crate) fn returned(body: &[u8]) -> Vec<u8> {
        let arguments = Arguments::default().short(312).name("NO_ROUTE").name("").name("queue");
        with_content(wire::RETURN, &arguments, body)
    }

    /// What a broker says when it hands out a message for the first time.
    pub(crate) fn delivered(tag: u64, body: &[u8]) -> Vec<u8> {
        let arguments = Arguments::default().name("tag").longlong(tag).byte(0).name("").name("queue");
        with_content(wire::DELIVER, &arguments, body)
    }

    /// The answer to a request, which has no arguments but a consumer's tag.
    pub(crate) fn answer(id: Id, tag: &str) -> Vec<u8> {
        let mut said = Vec::new();
        let arguments = Arguments::default();
        let arguments = if tag.is_empty() { arguments } else { arguments.name(tag) };
        wire::method(&mut said, CHANNEL, id, &arguments);
        said
    }

    fn with_content(id: Id, arguments: &Arguments, body: &[u8]) -> Vec<u8> {
        let mut said = Vec::new();
        wire::method(&mut said, CHANNEL, id, arguments);
        let mut published = Vec::new();
        Envelope::new("", true).write(&mut published, body, FRAME_MAX as usize);
        let (_, method) = wire::first(&published, FRAME_MAX as usize).unwrap().unwrap();
        said.extend_from_slice(&published[method..]);
        said
    }

    /// What a broker says when it has committed.
    pub(crate) fn committed() -> Vec<u8> {
        let mut said = Vec::new();
        wire::method(&mut said, CHANNEL, wire::COMMIT_OK, &Arguments::default());
        said
    }

    #[tokio::test]
    async fn what_was_said_before_an_answer_is_kept_in_its_order() {
        let (mut connection, mut broker) = connected().await;
        let mut said = Vec::new();
        for tag in 1..=1000 {
            wire::method(&mut said, CHANNEL, wire::ACK, &Arguments::default().longlong(tag).byte(0));
        }
        wire::method(&mut said, CHANNEL, wire::QOS_OK, &Arguments::default());
        // the end of the answer arrives only while it is waited for
        let (last, first) = (said.split_off(said.len() - 5), said);
        broker.write_all(&first).await.unwrap();
        let arguments = Arguments::default();
        let (answer, ()) = tokio::join!(connection.ask(wire::QOS, &arguments, wire::QOS_OK), async {
            tokio::task::yield_now().await;
            broker.write_all(&last).await.unwrap();
        });
        assert_eq!(answer, Ok(Vec::new()));
        for wanted in 1..=1000 {
            assert!(matches!(connection.heard(), Some(Event::Confirmed { tag, .. }) if tag == wanted));
        }
        assert!(!connection.has_heard());
        assert_eq!(connection.kept, 0);
    }

    #[tokio::test]
    async fn a_broker_that_says_more_than_it_was_asked_for_is_left() {
        // the zeros take no memory as long as they are not touched
        let mut much = vec![0; KEPT + 100];
        much.truncate(KEPT);
        let (mut unheard, _broker) = connected().await;
        unheard.hear(ServerMessage::Event(Event::Answer(wire::QOS_OK, much)));
        let mut much = BytesMut::zeroed(KEPT + 100);
        much.truncate(KEPT);
        let (mut unread, _broker) = connected().await;
        *unread.wire.output() = much;
        unread.hear(ServerMessage::Flow(1));
        for ended in [unheard.ended, unread.ended] {
            let words = "the broker sent more than was requested".to_owned();
            assert_eq!(ended, Some(Error::Protocol(words)));
        }
    }
}
