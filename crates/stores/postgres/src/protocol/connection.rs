//! The connection: requests, and what is made of what the server says.

use std::{collections::VecDeque, future::poll_fn, io, mem};

use acidtest_model::NegotiatedTls;
use acidtest_transport::{Pipelined, Received, Requests, Wire};
use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::{
    backend::{Header, Message},
    frontend,
};
use tokio_postgres::types::{IsNull, ToSql, Type};

use super::{
    Answers, Error, Rows, ServerError,
    answer::{Answer, Ended, Field},
};
use crate::{Value, leader::Writes};

/// A statement that is prepared on a connection, and known there alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement(usize);

impl Statement {
    fn name(self) -> String {
        format!("s{}", self.0)
    }
}

/// What is known of a prepared statement.
#[derive(Debug)]
pub(super) struct Known {
    parameters: Vec<Type>,
    columns: Vec<Type>,
    /// What a request to run it begins and ends with: all but the values.
    head: BytesMut,
    tail: BytesMut,
}

impl Known {
    fn new(name: &str, parameters: Vec<Type>, columns: Vec<Type>) -> io::Result<Self> {
        let mut head = BytesMut::new();
        let none = |(): (), _: &mut BytesMut| Ok(postgres_protocol::IsNull::Yes);
        frontend::bind("", name, [BINARY], [], none, [BINARY], &mut head).map_err(|error| match error {
            frontend::BindError::Conversion(error) => io::Error::other(error),
            frontend::BindError::Serialization(error) => error,
        })?;
        // behind the values: how many forms of columns follow, and the only one
        let mut tail = head.split_off(head.len().saturating_sub(4));
        frontend::execute("", ALL_ROWS, &mut tail)?;
        frontend::sync(&mut tail);
        Ok(Self { parameters, columns, head, tail })
    }

    /// Appends a request to run it. What does not depend on the values was written when it was prepared, so that this takes a
    /// third of the instructions of writing it all anew.
    fn put<'v>(&self, values: impl IntoIterator<Item = Value<'v>>, out: &mut BytesMut) -> io::Result<()> {
        let start = out.len();
        out.extend_from_slice(&self.head);
        let number = out.len() - 2..out.len();
        let mut kinds = self.parameters.iter();
        for value in values {
            let kind =
                kinds.next().ok_or_else(|| io::Error::other("there are more values than parameters"))?;
            put_value(value, kind, out)?;
        }
        // the library has prepared no more parameters than a message has room for
        let count = u16::try_from(self.parameters.len() - kinds.len()).map_err(io::Error::other)?;
        out[number].copy_from_slice(&count.to_be_bytes());
        // without its tag, with what is left of it
        let length = i32::try_from(out.len() - start - 1 + 4).map_err(io::Error::other)?;
        out[start + 1..start + HEADER].copy_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&self.tail);
        Ok(())
    }

    pub(super) fn columns(&self) -> &[Type] {
        &self.columns
    }
}

/// One client's connection, which is driven by whoever awaits an answer on it.
///
/// Requests are answered in their order. Where a future of one is dropped before the answer has come, the connection can
/// be used no more: whether the server has carried it out is not known.
#[derive(Debug)]
pub struct Connection {
    pub(super) wire: Wire,
    pub(super) statements: Vec<Known>,
    requests: Requests<Request>,
    /// What has come of the answer to the oldest.
    coming: PartialAnswer,
    pub(super) answers: VecDeque<Answer>,
    /// Whether the answers are those to requests that were [added](Self::add), which nobody else waits for.
    adds: bool,
    /// The fields of all rows of the answers.
    pub(super) fields: Vec<Field>,
    /// The first row of what was [asked](Self::ask) last.
    told: Vec<String>,
    /// The process of the server that answers, as it is named at the login.
    process: Option<i32>,
    /// What the server said at the login of whether it takes writes.
    writes: Writes,
}

/// What is remembered of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A prepared statement is run.
    Run(usize),
    /// A statement that answers no rows, as a simple query.
    Command,
    Prepare,
    /// A question whose answer is one row, as a simple query.
    Ask,
}

#[derive(Debug, Default)]
struct PartialAnswer {
    error: Option<Error>,
    /// The warning that the leader alone has what was committed. It may come before the command's end or behind it: a statement that is a
    /// transaction by itself is completed before it is committed.
    warning: Option<Error>,
    /// Whether all has come but `ReadyForQuery`.
    is_complete: bool,
    first_field: usize,
    rows: usize,
    count: u64,
    ended: Ended,
    parameters: Vec<Type>,
    columns: Vec<Type>,
}

impl Connection {
    /// On a connection that is logged in; the server named this process, and said this.
    pub(super) fn new(wire: Wire, process: Option<i32>, writes: Writes) -> Self {
        Self {
            wire,
            statements: Vec::new(),
            requests: Requests::default(),
            coming: PartialAnswer::default(),
            answers: VecDeque::new(),
            adds: false,
            fields: Vec::new(),
            told: Vec::new(),
            process,
            writes,
        }
    }

    /// Whether the server takes writes, as it said at the login, or says now that it is asked.
    pub(crate) async fn writes(&mut self) -> Result<Writes, Error> {
        if self.writes.is_known() {
            return Ok(self.writes);
        }
        let told = self.ask(Writes::QUESTION).await?;
        Ok(Writes::of([0, 1].map(|at| told.get(at).map(String::as_str))))
    }

    /// The process of the server that answers, as it was named at the login. A pooler names one that there is not.
    #[must_use]
    pub fn process(&self) -> Option<i32> {
        self.process
    }

    /// The TLS that was agreed on; none without TLS.
    #[must_use]
    pub fn negotiated(&self) -> Option<NegotiatedTls> {
        self.wire.negotiated()
    }

    /// Asks by a simple query, for which nothing is prepared. Returns the texts of the first row; an empty one for NULL.
    ///
    /// # Errors
    /// Why there is no answer, or the server's.
    pub async fn ask(&mut self, sql: &str) -> Result<Vec<String>, Error> {
        self.begin()?;
        self.told.clear();
        self.push(Request::Ask, |_, out| frontend::query(sql, out))?;
        self.only_answer().await?;
        Ok(mem::take(&mut self.told))
    }

    /// Runs a statement that answers no rows that matter.
    ///
    /// # Errors
    /// Why there is no answer, or the server's.
    pub async fn command(&mut self, sql: &str) -> Result<(), Error> {
        self.begin()?;
        self.push_command(sql)?;
        self.only_answer().await.map(|_| ())
    }

    /// Prepares a statement.
    ///
    /// # Errors
    /// Why there is no answer, or the server's.
    pub async fn prepare(&mut self, sql: &str) -> Result<Statement, Error> {
        self.begin()?;
        let statement = Statement(self.statements.len());
        self.push(Request::Prepare, |_, out| {
            let name = statement.name();
            frontend::parse(&name, sql, [], out)?;
            frontend::describe(b'S', &name, out)?;
            frontend::sync(out);
            Ok(())
        })?;
        self.only_answer().await?;
        Ok(statement)
    }

    /// Runs a prepared statement, and waits for all of its rows.
    ///
    /// # Errors
    /// Why there is no answer, or the server's.
    pub async fn run<'v>(
        &mut self,
        statement: Statement,
        values: impl IntoIterator<Item = Value<'v>>,
    ) -> Result<Rows<'_>, Error> {
        self.begin()?;
        self.push_run(statement, values)?;
        self.only_answer().await
    }

    /// Requests that are sent at once.
    ///
    /// # Errors
    /// [`Error::NotSent`]: the connection cannot be used any more.
    pub fn pipeline(&mut self) -> Result<Pipeline<'_>, Error> {
        self.begin()?;
        Ok(Pipeline { connection: self })
    }

    /// Adds a request to run a statement whose rows do not matter; it is sent when answers are
    /// [waited for](Self::answered). If it cannot be made, its answer says so.
    pub fn add<'v>(&mut self, statement: Statement, values: impl IntoIterator<Item = Value<'v>>) {
        let ready = if self.adds { self.check() } else { self.begin() };
        self.adds = true;
        if let Err(error) = ready.and_then(|()| self.push_run(statement, values)) {
            // the answers to the requests before it stand before its own
            self.end(&error.to_string());
            self.answer(Request::Run(statement.0), Some(error));
        }
    }

    /// Sends the requests that were [added](Self::add), waits for one answer at least if any is due, and hands over those
    /// that have come, in their order: how many rows each statement has changed. May be dropped while it waits.
    pub async fn answered(&mut self, mut each: impl FnMut(Result<u64, Error>)) {
        if !self.adds {
            return;
        }
        // if the connection has ended meanwhile, the end of what is about to be sent is known
        let _ = self.check();
        poll_fn(|context| self.poll_answers(context, |connection| !connection.answers.is_empty())).await;
        for answer in self.answers.drain(..) {
            each(answer.outcome.map(|()| answer.count));
        }
        self.fields.clear();
        self.wire.clear_away();
    }

    fn push_command(&mut self, sql: &str) -> Result<(), Error> {
        self.push(Request::Command, |_, out| frontend::query(sql, out))
    }

    fn push_run<'v>(
        &mut self,
        statement: Statement,
        values: impl IntoIterator<Item = Value<'v>>,
    ) -> Result<(), Error> {
        self.push(Request::Run(statement.0), |statements, out| {
            let foreign = || io::Error::other("the statement was not prepared on this connection");
            statements.get(statement.0).ok_or_else(foreign)?.put(values, out)
        })
    }

    /// Appends a request, whole or not at all.
    fn push(
        &mut self,
        request: Request,
        write: impl FnOnce(&[Known], &mut BytesMut) -> io::Result<()>,
    ) -> Result<(), Error> {
        let Self { wire, statements, requests, .. } = self;
        requests.push(wire, |out| write(statements, out).map(|()| request))
    }

    async fn only_answer(&mut self) -> Result<Rows<'_>, Error> {
        poll_fn(|context| self.poll_answers(context, |connection| !connection.answers.is_empty())).await;
        match self.answers.front() {
            Some(Answer { outcome: Err(error), .. }) => Err(error.clone()),
            Some(answer) => Ok(Rows::of(self, answer)),
            // there is an answer to each request, also where the connection has ended
            None => Err(Error::Lost("no answer".to_owned())),
        }
    }

    /// Makes of the next message, which is whole, what it means.
    fn take(&mut self, tag: u8, length: usize) -> Result<(), String> {
        let Self { wire, statements, requests, coming, fields, told, .. } = self;
        let message = wire.unread().get(..length).unwrap_or_default();
        let body = message.get(HEADER..).unwrap_or_default();
        // what was not sent is not answered
        let oldest = requests.oldest(wire);
        match (tag, oldest) {
            (tag::NOTICE, Some(_)) => coming.warn(message)?,
            (tag::NOTICE | tag::PARAMETER | tag::NOTIFICATION, _) => {}
            (tag::ERROR, oldest) => coming.fail(message, oldest.is_some())?,
            (_, None) => return Err(format!("the server sent an unexpected answer ({})", shown(tag))),
            (_, Some(_)) if coming.error.is_some() && tag != tag::READY => {
                return Err(format!("the server continues after an error ({})", shown(tag)));
            }
            (tag::ROW, Some(Request::Run(statement))) if !coming.is_complete => {
                let columns = statements.get(statement).map_or(0, |known| known.columns.len());
                if coming.rows == 0 {
                    coming.first_field = fields.len();
                }
                let found = Field::find(body, wire.taken() + HEADER, columns, fields);
                found.ok_or("the server sent an invalid row")?;
                coming.rows += 1;
            }
            // a command may be several statements
            (tag::ROW, Some(Request::Ask)) if !coming.is_complete => {
                let row = Field::texts(body).ok_or("the server sent an invalid row")?;
                if told.is_empty() {
                    *told = row;
                }
            }
            (tag::COMPLETE, Some(Request::Command | Request::Run(_) | Request::Ask))
                if !coming.is_complete || oldest == Some(Request::Command) =>
            {
                coming.is_complete = true;
                coming.count = count(body);
                coming.ended = Ended::said(body);
            }
            (tag::EMPTY, Some(Request::Run(_) | Request::Command | Request::Ask)) => {
                coming.is_complete = true;
            }
            // what a command answers besides is of no interest
            (tag::BOUND, Some(Request::Run(_)))
            | (tag::PARSED, Some(Request::Prepare))
            | (tag::ROW | tag::COLUMNS, Some(Request::Command))
            | (tag::COLUMNS, Some(Request::Ask)) => {}
            (tag::PARAMETERS | tag::COLUMNS | tag::NO_COLUMNS, Some(Request::Prepare)) => {
                coming.describe(message)?;
            }
            (tag::READY, Some(_)) => self.ready()?,
            (tag, Some(_)) => return Err(format!("the server's answer is unexpected here ({})", shown(tag))),
        }
        Ok(())
    }

    /// The oldest request has its answer.
    fn ready(&mut self) -> Result<(), String> {
        if self.coming.error.is_none() && !self.coming.is_complete {
            return Err("the server's answer lacks its end".to_owned());
        }
        if let Some(request) = self.requests.answered() {
            self.answer(request, None);
        }
        Ok(())
    }

    /// Ends a request with what has come, or else with this error.
    fn answer(&mut self, request: Request, lacking: Option<Error>) {
        let PartialAnswer { error, warning, first_field, rows, count, ended, parameters, columns, .. } =
            &mut self.coming;
        let mut error = warning.take().or(error.take()).or(lacking);
        if request == Request::Prepare && error.is_none() {
            let name = Statement(self.statements.len()).name();
            match Known::new(&name, mem::take(parameters), mem::take(columns)) {
                Ok(known) => self.statements.push(known),
                Err(why) => error = Some(Error::Lost(why.to_string())),
            }
        }
        let statement = match request {
            Request::Run(statement) => Some(statement),
            Request::Command | Request::Prepare | Request::Ask => None,
        };
        self.answers.push_back(Answer {
            outcome: error.map_or(Ok(()), Err),
            statement,
            fields: *first_field..self.fields.len(),
            rows: *rows,
            count: *count,
            ended: *ended,
        });
        self.coming = PartialAnswer::default();
    }
}

impl Pipelined for Connection {
    type Request = Request;
    type Answer = Box<ServerError>;

    fn parts(&mut self) -> (&mut Wire, &mut Requests<Request>) {
        (&mut self.wire, &mut self.requests)
    }

    fn hear(&mut self) -> Result<Received, String> {
        let unread = self.wire.unread();
        let Some((tag, length)) = message_head(unread).map_err(|error| error.to_string())? else {
            return Ok(Received::Missing(HEADER.saturating_sub(unread.len())));
        };
        if length > unread.len() {
            return Ok(Received::Missing(length - unread.len()));
        }
        let taken = self.take(tag, length);
        self.wire.take(length);
        taken.map(|()| Received::Frame)
    }

    fn give_up(&mut self, request: Request, why: Error) {
        self.answer(request, Some(why));
    }

    fn forget(&mut self) {
        self.adds = false;
        self.answers.clear();
        self.fields.clear();
        // one long answer must not take memory for good
        self.fields.shrink_to(FIELDS_KEPT);
    }
}

impl PartialAnswer {
    /// Takes an error that the server reports. It is the connection's end if the server says so, or was not asked.
    fn fail(&mut self, message: &[u8], is_awaited: bool) -> Result<(), String> {
        let Ok(Some(Message::ErrorResponse(body))) = Message::parse(&mut BytesMut::from(message)) else {
            return Err("the server's error cannot be read".to_owned());
        };
        let error = ServerError::read(body.fields()).map_err(|error| error.to_string())?;
        let ends = error.ends_connection || !is_awaited;
        let error = Error::Answered(Box::new(error));
        let words = error.to_string();
        if is_awaited {
            self.error.get_or_insert(error);
        }
        if ends { Err(words) } else { Ok(()) }
    }

    /// Takes a notice, which matters only if it takes back what the answer acknowledges.
    fn warn(&mut self, message: &[u8]) -> Result<(), String> {
        let Ok(Some(Message::NoticeResponse(body))) = Message::parse(&mut BytesMut::from(message)) else {
            return Err("the server's notice cannot be read".to_owned());
        };
        let warned = ServerError::warned(body.fields()).map_err(|error| error.to_string())?;
        if let Some(warned) = warned {
            self.warning = Some(Error::Answered(Box::new(warned)));
        }
        Ok(())
    }

    /// Takes a part of what the server says of a statement that is prepared.
    fn describe(&mut self, message: &[u8]) -> Result<(), String> {
        let unreadable = || "the server's description of a statement cannot be read".to_owned();
        match Message::parse(&mut BytesMut::from(message)) {
            Ok(Some(Message::ParameterDescription(body))) => {
                let parameters = body.parameters().map(kind).collect();
                self.parameters = parameters.map_err(|error: io::Error| error.to_string())?;
            }
            Ok(Some(Message::RowDescription(body))) => {
                let columns = body.fields().map(|field| kind(field.type_oid())).collect();
                self.columns = columns.map_err(|error: io::Error| error.to_string())?;
                self.is_complete = true;
            }
            Ok(Some(Message::NoData)) => self.is_complete = true,
            _ => return Err(unreadable()),
        }
        Ok(())
    }
}

/// Requests that are sent at once, and answered in their order.
#[derive(Debug)]
pub struct Pipeline<'a> {
    connection: &'a mut Connection,
}

impl<'a> Pipeline<'a> {
    /// Adds a statement that answers no rows that matter.
    ///
    /// # Errors
    /// [`Error::NotSent`]: it is too long.
    pub fn command(&mut self, sql: &str) -> Result<(), Error> {
        self.connection.push_command(sql)
    }

    /// Adds a prepared statement.
    ///
    /// # Errors
    /// [`Error::NotSent`]: the values do not fit.
    pub fn run<'v>(
        &mut self,
        statement: Statement,
        values: impl IntoIterator<Item = Value<'v>>,
    ) -> Result<(), Error> {
        self.connection.push_run(statement, values)
    }

    /// Sends all at once, and waits for all answers.
    pub async fn answers(self) -> Answers<'a> {
        let connection = self.connection;
        poll_fn(|context| connection.poll_answers(context, |_| false)).await;
        Answers::of(connection)
    }
}

/// The tag of the next message, and its length in bytes with all that belongs to it; none if too little has come.
pub(super) fn message_head(unread: &[u8]) -> io::Result<Option<(u8, usize)>> {
    // the length that is sent counts itself and the body, and was found to be 4 at least
    let head = |header: Header| (header.tag(), 1 + header.len().unsigned_abs() as usize);
    Ok(Header::parse(unread)?.map(head))
}

/// Appends a value, with its length before it.
fn put_value(value: Value<'_>, kind: &Type, out: &mut BytesMut) -> io::Result<()> {
    const NULL: i32 = -1;
    let start = out.len() + 4;
    out.extend_from_slice(&[0; 4]);
    let length = match value.to_sql(kind, out).map_err(io::Error::other)? {
        IsNull::Yes => NULL,
        IsNull::No => i32::try_from(out.len() - start).map_err(io::Error::other)?,
    };
    out[start - 4..start].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// The form of values and of columns in messages.
const BINARY: i16 = 1;
/// An Execute without a limit of rows.
const ALL_ROWS: i32 = 0;
/// Most fields for which an emptied list keeps room.
const FIELDS_KEPT: usize = 64 * 1024;
/// Bytes of a message before its body: tag and length.
const HEADER: usize = 5;

/// The tags of the messages that are understood
/// ([formats](https://www.postgresql.org/docs/15/protocol-message-formats.html)).
mod tag {
    pub(super) const PARSED: u8 = b'1';
    pub(super) const BOUND: u8 = b'2';
    pub(super) const COMPLETE: u8 = b'C';
    pub(super) const EMPTY: u8 = b'I';
    pub(super) const ERROR: u8 = b'E';
    pub(super) const NOTICE: u8 = b'N';
    pub(super) const NOTIFICATION: u8 = b'A';
    pub(super) const NO_COLUMNS: u8 = b'n';
    pub(super) const PARAMETER: u8 = b'S';
    pub(super) const PARAMETERS: u8 = b't';
    pub(super) const READY: u8 = b'Z';
    pub(super) const ROW: u8 = b'D';
    pub(super) const COLUMNS: u8 = b'T';
}

fn shown(tag: u8) -> String {
    format!("message {}", tag.escape_ascii())
}

/// The type with this number; one that a user has made is not known.
fn kind(oid: u32) -> io::Result<Type> {
    Type::from_oid(oid).ok_or_else(|| io::Error::other(format!("the type {oid} is none of PostgreSQL's own")))
}

/// The number of rows at the end of a command's tag, such as `UPDATE 3` or `INSERT 0 1`; 0 where there is none.
fn count(body: &[u8]) -> u64 {
    let tag = body.strip_suffix(b"\0").unwrap_or(body);
    let digits = tag.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let digits = tag.get(tag.len() - digits..).unwrap_or_default();
    digits.iter().fold(0_u64, |count, digit| count.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
}
