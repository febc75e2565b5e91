//! The connection: commands, and what becomes of them.

use std::{future::poll_fn, io, mem, ops::Range};

use acidtest_engine::may_block;
use acidtest_model::NegotiatedTls;
use acidtest_transport::{Pipelined, Received, Requests, Transport, Wire};
use bytes::BytesMut;
use redis::{Arg, Cmd, Pipeline};

use super::{
    Error, Reply, ServerError,
    error::{ConnectError, nonsense},
    reply::{Arrival, Arriving, END, Garbled},
};

/// One client's connection, which is driven by whoever awaits an answer on it. When it is dropped it closes at once, whatever
/// is under way.
///
/// Commands are answered in their order. Where a future of one is dropped before the answer has come, no other is sent on the
/// connection: whether the server has carried it out is not known.
#[derive(Debug)]
pub(crate) struct Connection {
    wire: Wire,
    requests: Requests<()>,
    /// What has come of the answer to the oldest.
    arriving: Arriving,
    /// Where the answers have arrived.
    answers: Vec<Result<Range<usize>, Error>>,
    /// Whether `answers` were handed out.
    are_told: bool,
}

impl Connection {
    /// Connects, and sends the commands with which a client logs in.
    pub(crate) async fn open(transport: &Transport, login: &[Cmd]) -> Result<Self, ConnectError> {
        let mut wire = Wire::new(transport.connect().await?).blocking(may_block);
        for command in login {
            put(command, wire.output());
        }
        let (mut arriving, mut left) = (Arriving::default(), login.len());
        while left > 0 {
            match arriving.take(wire.unread()).map_err(|Garbled| io::Error::other(GARBLED))? {
                Arrival::Missing(missing) => poll_fn(|context| wire.poll_exchange(context, missing)).await?,
                Arrival::Whole(length) => {
                    if let Some((Reply::Error(words), _)) = Reply::first(wire.unread()) {
                        return Err(ConnectError::Refused(ServerError::new(words)));
                    }
                    wire.take(length);
                    left -= 1;
                }
            }
        }
        let (requests, answers) = (Requests::default(), Vec::new());
        Ok(Self { wire, requests, arriving, answers, are_told: true })
    }

    /// The TLS that was agreed on; none without TLS.
    pub(crate) fn negotiated(&self) -> Option<NegotiatedTls> {
        self.wire.negotiated()
    }

    /// Sends a command, and waits for its answer.
    ///
    /// # Errors
    /// Why there is no answer, or the server's.
    pub(crate) async fn ask(&mut self, command: &Cmd) -> Result<Reply<'_>, Error> {
        self.batch()?.push(command)?;
        self.answered().await;
        self.answer(0)
    }

    /// Sends commands at once, each by itself, and waits for all answers.
    ///
    /// # Errors
    /// As of [`Answers::all`].
    pub(crate) async fn ask_all(&mut self, commands: &Pipeline) -> Result<Answers<'_>, Error> {
        let mut batch = self.batch()?;
        commands.cmd_iter().try_for_each(|command| batch.push(command))?;
        batch.answers().await.all()
    }

    /// Commands that are sent at once.
    ///
    /// # Errors
    /// [`Error::NotSent`]: the connection can be used no more.
    pub(crate) fn batch(&mut self) -> Result<Batch<'_>, Error> {
        self.begin()?;
        Ok(Batch { connection: self })
    }

    /// Gives up the answers that were handed out.
    fn forget_told(&mut self) {
        if mem::replace(&mut self.are_told, false) {
            self.forget();
            self.wire.clear_away();
        }
    }

    /// The answer to the command in this place among those that were sent last.
    ///
    /// # Errors
    /// Why there is none, or the server's.
    pub(crate) fn answer(&self, place: usize) -> Result<Reply<'_>, Error> {
        // there is an answer to each command, also where the connection has ended
        let found = self.answers.get(place).ok_or_else(nonsense)?.clone()?;
        let bytes = self.wire.arrived().get(found).unwrap_or_default();
        match Reply::first(bytes).ok_or_else(nonsense)?.0 {
            Reply::Error(words) => Err(Error::Answered(ServerError::new(words))),
            answer => Ok(answer),
        }
    }

    /// Adds a command to what is to be sent, among others that have no answer yet.
    ///
    /// # Errors
    /// [`Error::NotSent`]: the connection can be used no more.
    pub(crate) fn push(&mut self, command: &Cmd) -> Result<(), Error> {
        self.requests.usable()?;
        self.forget_told();
        self.requests.push(&mut self.wire, |out| {
            put(command, out);
            Ok(())
        })
    }

    /// Adds a command to what is to be sent that the server is told not to answer.
    ///
    /// # Errors
    /// [`Error::NotSent`]: the connection can be used no more.
    pub(crate) fn push_unanswered(&mut self, command: &Cmd) -> Result<(), Error> {
        self.requests.usable()?;
        put(command, self.wire.output());
        Ok(())
    }

    /// How many bytes wait to be sent.
    pub(crate) fn unwritten(&self) -> usize {
        self.wire.unwritten()
    }

    /// Sends all that is to be sent.
    ///
    /// # Errors
    /// [`Error::Lost`]: it may have been sent in part.
    pub(crate) async fn flush(&mut self) -> Result<(), Error> {
        self.requests.usable()?;
        self.forget_told();
        poll_fn(|context| self.wire.poll_write(context)).await.map_err(|error| {
            // what arrived before the end counts
            self.understand();
            self.end(&error.to_string());
            Error::Lost(error.to_string())
        })
    }

    /// Waits until commands that were [pushed](Self::push) are answered, if there are any without an answer; it need not be
    /// all of them. Where this is given up, nothing is lost.
    pub(crate) async fn some_answers(&mut self) -> Answers<'_> {
        self.forget_told();
        poll_fn(|context| self.poll_answers(context, |connection| !connection.answers.is_empty())).await;
        self.all_answers()
    }

    /// The answers that have come.
    fn all_answers(&mut self) -> Answers<'_> {
        self.are_told = true;
        Answers { connection: self, next: 0 }
    }

    /// Waits until all commands are answered.
    async fn answered(&mut self) {
        poll_fn(|context| self.poll_answers(context, |_| false)).await;
        self.are_told = true;
    }

    /// Takes the next answer, which is so long.
    fn note(&mut self, length: usize) -> Result<(), String> {
        let start = self.wire.taken();
        if self.requests.oldest(&self.wire).is_some() {
            self.requests.answered();
            self.wire.take(length);
            self.answers.push(Ok(start..start + length));
            return Ok(());
        }
        // what answers nothing is why the server ends the connection, if it is an error
        let why = match Reply::first(self.wire.unread()) {
            Some((Reply::Error(words), _)) => String::from_utf8_lossy(words).into_owned(),
            _ => "the server sent an unexpected answer".to_owned(),
        };
        self.wire.take(length);
        Err(why)
    }
}

impl Pipelined for Connection {
    type Request = ();
    type Answer = ServerError;

    fn parts(&mut self) -> (&mut Wire, &mut Requests<()>) {
        (&mut self.wire, &mut self.requests)
    }

    fn hear(&mut self) -> Result<Received, String> {
        match self.arriving.take(self.wire.unread()) {
            Ok(Arrival::Missing(missing)) => Ok(Received::Missing(missing)),
            Ok(Arrival::Whole(length)) => self.note(length).map(|()| Received::Frame),
            Err(Garbled) => Err(GARBLED.to_owned()),
        }
    }

    fn give_up(&mut self, (): (), why: Error) {
        self.answers.push(Err(why));
    }

    fn forget(&mut self) {
        self.answers.clear();
    }
}

const GARBLED: &str = "the server's answer is not RESP";

/// Commands that are sent at once, and answered in their order.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    connection: &'a mut Connection,
}

impl<'a> Batch<'a> {
    /// Adds a command.
    ///
    /// # Errors
    /// [`Error::NotSent`]: the connection can be used no more.
    pub(crate) fn push(&mut self, command: &Cmd) -> Result<(), Error> {
        self.connection.push(command)
    }

    /// Sends all at once, and waits for all answers.
    pub(crate) async fn answers(self) -> Answers<'a> {
        self.connection.answered().await;
        self.connection.all_answers()
    }
}

/// What has become of commands, in their order.
#[derive(Debug)]
pub(crate) struct Answers<'a> {
    connection: &'a Connection,
    next: usize,
}

impl<'a> Answers<'a> {
    /// All answers, if none is an error.
    ///
    /// # Errors
    /// The reason why one is missing; else the first error, with the number of those behind it.
    pub(crate) fn all(self) -> Result<Self, Error> {
        let mut refused: Option<(ServerError, usize)> = None;
        let mut left = Answers { connection: self.connection, next: self.next };
        for answer in &mut left {
            match (answer, &mut refused) {
                (Ok(_), _) => {}
                (Err(Error::Answered(_)), Some((_, more))) => *more += 1,
                (Err(Error::Answered(error)), none) => *none = Some((error, 0)),
                (Err(error), _) => return Err(error),
            }
        }
        refused.map_or(Ok(self), |(error, more)| Err(Error::Answered(error.and_more(more))))
    }

    /// The next answer.
    ///
    /// # Errors
    /// Why there is none, or the server's.
    pub(crate) fn reply(&mut self) -> Result<Reply<'a>, Error> {
        self.next().unwrap_or_else(|| Err(nonsense()))
    }

    /// The answers behind the first few.
    pub(crate) fn behind(mut self, first: usize) -> Self {
        self.next += first;
        self
    }
}

impl<'a> Iterator for Answers<'a> {
    type Item = Result<Reply<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let place = self.next;
        self.connection.answers.get(place)?;
        self.next += 1;
        Some(self.connection.answer(place))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.connection.answers.len().saturating_sub(self.next);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Answers<'_> {}

/// Appends a command as it is sent.
fn put(command: &Cmd, out: &mut BytesMut) {
    let words = command.args_iter();
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(b"*");
    out.extend_from_slice(digits.format(words.len()).as_bytes());
    for word in words {
        let word = match word {
            Arg::Simple(word) => word,
            // the place of SCAN's cursor, where the driver walks by itself
            _ => b"0",
        };
        put_length(word.len(), out);
        out.extend_from_slice(word);
    }
    out.extend_from_slice(END);
}

/// Ends the line before a word, and says how long the word is.
fn put_length(mut length: usize, out: &mut BytesMut) {
    const LONGEST: usize = "\r\n$18446744073709551615\r\n".len();
    let mut line = [0; LONGEST];
    line[LONGEST - 2..].copy_from_slice(END);
    let mut start = LONGEST - 2;
    loop {
        start -= 1;
        #[allow(clippy::cast_possible_truncation)] // one digit
        let digit = b'0' + (length % 10) as u8;
        line[start] = digit;
        length /= 10;
        if length == 0 {
            break;
        }
    }
    start -= 3;
    line[start..start + 3].copy_from_slice(b"\r\n$");
    out.extend_from_slice(&line[start..]);
}
