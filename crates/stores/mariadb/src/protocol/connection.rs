//! The connection: requests, and what is made of what the server says.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io, mem,
    task::{Context, Waker},
};

use acidtest_model::NegotiatedTls;
use acidtest_transport::{Pipelined, Received, Requests, Wire};
use bytes::{BufMut, BytesMut};
use mysql_common::constants::{Command, CursorType};

use super::{
    Answers, Error, Rows, ServerError, Value,
    answer::{Answer, Column, Found},
    packet::{HEADER, Next, Packets, put},
    partial_answer::{Agreed, PartialAnswer, RequestKind, is_error},
};

/// A statement that is prepared on a connection, and known there alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Statement(usize);

/// What is known of a prepared statement.
#[derive(Debug)]
struct Known {
    id: u32,
    parameters: usize,
    /// The columns of its last result, or as they were described when it was prepared.
    columns: Vec<Column>,
}

/// One client's connection, which is driven by whoever awaits an answer on it.
///
/// Requests are answered in their order. Where a future of one is dropped before the answer has come, the connection can
/// be used no more: whether the server has carried it out is not known.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) wire: Wire,
    packets: Packets,
    agreed: Agreed,
    statements: Vec<Known>,
    requests: Requests<Request>,
    /// What has come of the answer to the oldest.
    coming: PartialAnswer,
    pub(super) answers: VecDeque<Answer>,
    pub(super) found: Found,
    /// The session of the server, as its greeting names it.
    session: u32,
}

/// What is remembered of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    kind: RequestKind,
    /// The number of the first packet that answers it.
    answer: u8,
}

impl Connection {
    /// On a connection that is logged in; the server's greeting named this session.
    pub(super) fn new(wire: Wire, agreed: Agreed, session: u32) -> Self {
        Self {
            wire,
            packets: Packets::default(),
            agreed,
            statements: Vec::new(),
            requests: Requests::default(),
            coming: PartialAnswer::default(),
            answers: VecDeque::new(),
            found: Found::default(),
            session,
        }
    }

    /// The session of the server, as its greeting named it, which has 32 bits for it. A proxy names its own.
    pub(crate) fn session(&self) -> u32 {
        self.session
    }

    /// The TLS that was agreed on; none without TLS.
    pub(crate) fn negotiated(&self) -> Option<NegotiatedTls> {
        self.wire.negotiated()
    }

    /// Runs a statement as text, and waits for all of its rows.
    ///
    /// # Errors
    /// Why there is no answer, or the server's.
    pub(crate) async fn query(&mut self, sql: &str) -> Result<Rows<'_>, Error> {
        self.begin()?;
        self.push_query(sql)?;
        self.only_answer().await
    }

    /// Prepares a statement.
    ///
    /// # Errors
    /// Why there is no answer, or the server's.
    pub(crate) async fn prepare(&mut self, sql: &str) -> Result<Statement, Error> {
        self.begin()?;
        let statement = Statement(self.statements.len());
        self.push_text(RequestKind::Prepare, Command::COM_STMT_PREPARE, sql)?;
        self.only_answer().await?;
        Ok(statement)
    }

    /// Requests that are sent at once.
    ///
    /// # Errors
    /// [`Error::NotSent`]: the connection can be used no more.
    pub(crate) fn pipeline(&mut self) -> Result<Pipeline<'_>, Error> {
        self.begin()?;
        Ok(Pipeline { connection: self })
    }

    fn push_query(&mut self, sql: &str) -> Result<(), Error> {
        self.push_text(RequestKind::Query, Command::COM_QUERY, sql)
    }

    fn push_text(&mut self, kind: RequestKind, command: Command, sql: &str) -> Result<(), Error> {
        self.push(kind, |out| {
            out.put_u8(command as u8);
            out.put_slice(sql.as_bytes());
            Ok(())
        })
    }

    fn push_run<'v>(
        &mut self,
        Statement(statement): Statement,
        values: impl IntoIterator<Item = Value<'v>>,
    ) -> Result<(), Error> {
        let Some(&Known { id, parameters, .. }) = self.statements.get(statement) else {
            return Err(Error::NotSent("the statement was not prepared on this connection".to_owned()));
        };
        let mut given = 0;
        self.push(RequestKind::Run(statement), |out| {
            out.put_u8(Command::COM_STMT_EXECUTE as u8);
            out.put_u32_le(id);
            out.put_u8(CursorType::CURSOR_TYPE_NO_CURSOR.bits());
            // it is run once
            out.put_u32_le(1);
            if parameters > 0 {
                // none is NULL
                out.put_bytes(0, parameters.div_ceil(8));
                // the types follow
                out.put_u8(1);
                let kinds = out.len();
                out.put_bytes(0, 2 * parameters);
                for value in values {
                    let place = kinds + 2 * given;
                    if given < parameters
                        && let Some(kind) = out.get_mut(place..place + 2)
                    {
                        kind.copy_from_slice(&value.kind());
                    }
                    value.put(out);
                    given += 1;
                }
            }
            if given == parameters {
                Ok(())
            } else {
                Err(io::Error::other("values and parameters differ in number"))
            }
        })
    }

    /// Appends a request, whole or not at all.
    fn push(
        &mut self,
        kind: RequestKind,
        write: impl FnOnce(&mut BytesMut) -> io::Result<()>,
    ) -> Result<(), Error> {
        self.requests.push(&mut self.wire, |out| {
            let mut written = Ok(());
            let answer = put(out, 0, |out| written = write(out));
            written.map(|()| Request { kind, answer })
        })
    }

    async fn only_answer(&mut self) -> Result<Rows<'_>, Error> {
        poll_fn(|context| self.poll_answers(context, |_| false)).await;
        match self.answers.front() {
            Some(Answer { outcome: Err(error), .. }) => Err(error.clone()),
            Some(answer) => Ok(Rows::of(self, answer)),
            // there is an answer to each request, also where the connection has ended
            None => Err(Error::Lost("no answer".to_owned())),
        }
    }

    /// Makes of the next packet what it means.
    fn take(&mut self, length: usize, in_order: bool) -> Result<(), String> {
        let Self { wire, agreed, statements, requests, coming, found, .. } = self;
        let start = wire.taken() + HEADER;
        let payload = wire.unread().get(HEADER..HEADER + length).unwrap_or_default();
        let oldest = requests.oldest(wire).map(|oldest| oldest.kind);
        if is_error(payload) {
            let error =
                ServerError::read(payload).map_err(|_| "the server's error cannot be read".to_owned())?;
            // what does not answer a request is why the server ends the connection
            if oldest.is_none() || !in_order {
                return Err(error.to_string());
            }
            self.answer(Err(Error::Answered(Box::new(error))));
            return Ok(());
        }
        let kind = oldest.ok_or("the server sent an unexpected answer")?;
        if !in_order {
            return Err("the server's packets are out of order".to_owned());
        }
        if !coming.is_begun
            && let RequestKind::Run(statement) = kind
            && let Some(known) = statements.get_mut(statement)
        {
            coming.columns = mem::take(&mut known.columns);
        }
        if coming.take(payload, start, kind, *agreed, found)? {
            self.answer(Ok(()));
        }
        Ok(())
    }

    /// The oldest request has its answer.
    fn answer(&mut self, outcome: Result<(), Error>) {
        if let Some(Request { kind, .. }) = self.requests.answered() {
            self.note(kind, outcome);
        }
    }

    /// Notes how a request has ended, with what has come.
    fn note(&mut self, kind: RequestKind, outcome: Result<(), Error>) {
        let PartialAnswer {
            is_begun, first_row, is_table, count, last_insert_id, statement, columns, ..
        } = mem::take(&mut self.coming);
        match (kind, statement) {
            (RequestKind::Run(statement), _) if is_begun => {
                if let Some(known) = self.statements.get_mut(statement) {
                    known.columns = columns;
                }
            }
            (RequestKind::Prepare, Some(statement)) if outcome.is_ok() => {
                let (id, parameters) = (statement.statement_id(), statement.num_params().into());
                self.statements.push(Known { id, parameters, columns });
            }
            _ => {}
        }
        let rows = first_row..self.found.rows.len();
        self.answers.push_back(Answer { outcome, rows, is_table, count, last_insert_id });
    }
}

impl Pipelined for Connection {
    type Request = Request;
    type Answer = Box<ServerError>;

    fn parts(&mut self) -> (&mut Wire, &mut Requests<Request>) {
        (&mut self.wire, &mut self.requests)
    }

    fn hear(&mut self) -> Result<Received, String> {
        if !self.coming.is_begun && !self.packets.is_within() {
            self.packets.number = self.requests.oldest(&self.wire).map_or(0, |oldest| oldest.answer);
        }
        match self.packets.next(&mut self.wire) {
            Next::Missing(missing) => Ok(Received::Missing(missing)),
            Next::Whole { length, in_order } => {
                let taken = self.take(length, in_order);
                self.wire.take(HEADER + length);
                taken.map(|()| Received::Frame)
            }
        }
    }

    fn give_up(&mut self, Request { kind, .. }: Request, why: Error) {
        self.note(kind, Err(why));
    }

    fn forget(&mut self) {
        self.answers.clear();
        self.found.clear();
    }
}

impl Drop for Connection {
    /// Says goodbye, as far as that does not wait: a server counts, and may log, clients that go without it.
    fn drop(&mut self) {
        if self.requests.is_empty() && self.requests.ended().is_none() {
            put(self.wire.output(), 0, |out| out.put_u8(Command::COM_QUIT as u8));
            // the server sees the connection's end in any case
            let _ = self.wire.poll_write(&mut Context::from_waker(Waker::noop()));
        }
    }
}

/// Requests that are sent at once, and answered in their order.
#[derive(Debug)]
pub(crate) struct Pipeline<'a> {
    connection: &'a mut Connection,
}

impl<'a> Pipeline<'a> {
    /// Adds a statement as text.
    ///
    /// # Errors
    /// None that a statement could cause.
    pub(crate) fn query(&mut self, sql: &str) -> Result<(), Error> {
        self.connection.push_query(sql)
    }

    /// Adds a prepared statement.
    ///
    /// # Errors
    /// [`Error::NotSent`]: the values do not fit.
    pub(crate) fn run<'v>(
        &mut self,
        statement: Statement,
        values: impl IntoIterator<Item = Value<'v>>,
    ) -> Result<(), Error> {
        self.connection.push_run(statement, values)
    }

    /// Sends all at once, and waits for all answers.
    pub(crate) async fn answers(self) -> Answers<'a> {
        let connection = self.connection;
        poll_fn(|context| connection.poll_answers(context, |_| false)).await;
        Answers::of(connection)
    }
}
