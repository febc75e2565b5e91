//! What has come in answer to requests, read where it has arrived.

use std::ops::Range;

use acidtest_transport::Wire;
use tokio_postgres::types::{FromSql, Type};

use super::{Connection, Error, connection::Known};

/// What has come in answer to one request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) outcome: Result<(), Error>,
    /// The request's statement, if it had one.
    pub(super) statement: Option<usize>,
    /// Where the fields of its rows stand among all that have arrived.
    pub(super) fields: Range<usize>,
    pub(super) rows: usize,
    /// Rows that it has changed or found, as the server says.
    pub(super) count: u64,
    pub(super) ended: Ended,
}

/// How a transaction has ended, as the server says in answer to a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ended {
    Committed,
    /// It was rolled back, as one is that has failed, whatever the command was.
    RolledBack,
    /// The answer says nothing of that.
    #[default]
    NotSaid,
}

impl Ended {
    /// What the tag of a completed command says.
    pub(super) fn said(tag: &[u8]) -> Self {
        match tag {
            b"COMMIT\0" => Self::Committed,
            b"ROLLBACK\0" => Self::RolledBack,
            _ => Self::NotSaid,
        }
    }
}

/// Where a field stands among the bytes that have arrived; none for NULL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    start: usize,
    /// [`NULL`](Self::NULL) for NULL.
    end: usize,
}

impl Field {
    /// No field ends before it begins.
    const NULL: Self = Self { start: usize::MAX, end: 0 };

    /// Finds the fields of a row in the body of a `DataRow`, which begins at `start`. They must be as many as there are
    /// columns, and fill the body: what only looks like a row must not pass for one that was stored so.
    pub(super) fn find(body: &[u8], start: usize, columns: usize, fields: &mut Vec<Self>) -> Option<()> {
        let (count, mut rest) = body.split_first_chunk()?;
        if usize::from(u16::from_be_bytes(*count)) != columns {
            return None;
        }
        for _ in 0..columns {
            let (length, behind) = rest.split_first_chunk()?;
            rest = behind;
            let length = i32::from_be_bytes(*length);
            if length == -1 {
                fields.push(Self::NULL);
                continue;
            }
            let length = usize::try_from(length).ok()?;
            let place = start + (body.len() - rest.len());
            rest = rest.get(length..)?;
            fields.push(Self { start: place, end: place + length });
        }
        rest.is_empty().then_some(())
    }

    /// The fields of a row, each as a text; an empty one for NULL.
    pub(super) fn texts(body: &[u8]) -> Option<Vec<String>> {
        let columns = usize::from(u16::from_be_bytes(*body.first_chunk()?));
        let mut fields = Vec::new();
        Self::find(body, 0, columns, &mut fields)?;
        let text =
            |field: &Self| String::from_utf8_lossy(body.get(field.start..field.end).unwrap_or_default());
        Some(fields.iter().map(|field| text(field).into_owned()).collect())
    }
}

/// The answers to requests that were sent at once, in the order of the requests.
#[derive(Clone, Copy, Debug)]
pub struct Answers<'a> {
    connection: &'a Connection,
    /// Indexes of the first, and behind the last.
    range: (usize, usize),
}

impl<'a> Answers<'a> {
    pub(super) fn of(connection: &'a Connection) -> Self {
        Self { connection, range: (0, connection.answers.len()) }
    }

    /// Those without the first `before` and the last `behind` of them.
    #[must_use]
    pub fn between(&self, before: usize, behind: usize) -> Self {
        let (start, end) = self.range;
        let end = end.saturating_sub(behind);
        Self { connection: self.connection, range: (end.min(start + before), end) }
    }

    pub fn iter(&self) -> impl Iterator<Item = Result<Rows<'a>, &'a Error>> + Clone + use<'a> {
        let answers = *self;
        (0..self.len()).map(move |index| answers.get(index))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        let (start, end) = self.range;
        end - start
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The answer to the request with this index.
    ///
    /// # Errors
    /// Why there is none, or the server's.
    pub fn get(&self, index: usize) -> Result<Rows<'a>, &'a Error> {
        let index = Some(index).filter(|index| *index < self.len()).map(|index| self.range.0 + index);
        let answer = index.and_then(|index| self.connection.answers.get(index)).unwrap_or(&NOT_ASKED);
        match &answer.outcome {
            Ok(()) => Ok(Rows { connection: self.connection, answer }),
            Err(error) => Err(error),
        }
    }
}

/// In the place of an answer to a request that was not made.
static NOT_ASKED: Answer = Answer {
    outcome: Err(Error::NotSent(String::new())),
    statement: None,
    fields: 0..0,
    rows: 0,
    count: 0,
    ended: Ended::NotSaid,
};

/// The rows that a statement has answered.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    connection: &'a Connection,
    answer: &'a Answer,
}

impl<'a> Rows<'a> {
    pub(super) fn of(connection: &'a Connection, answer: &'a Answer) -> Self {
        Self { connection, answer }
    }

    /// How many rows the statement has changed, or found, as the server says.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.answer.count
    }

    /// How a transaction has ended, as the server says in answer to its COMMIT.
    #[must_use]
    pub fn ended(&self) -> Ended {
        self.answer.ended
    }

    /// How many rows have arrived.
    #[must_use]
    pub fn len(&self) -> usize {
        self.answer.rows
    }

    /// Whether none has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.answer.rows == 0
    }

    #[must_use]
    pub fn first(&self) -> Option<Row<'a>> {
        self.into_iter().next()
    }
}

impl<'a> IntoIterator for Rows<'a> {
    type Item = Row<'a>;
    type IntoIter = RowIterator<'a>;

    fn into_iter(self) -> RowIterator<'a> {
        let Self { connection: Connection { wire, statements, fields, .. }, answer } = self;
        let known = answer.statement.and_then(|statement| statements.get(statement));
        let columns = known.map_or(&[][..], Known::columns);
        let fields = fields.get(answer.fields.clone()).unwrap_or_default();
        RowIterator { wire, columns, fields, left: answer.rows }
    }
}

/// Goes over the rows of an answer.
#[derive(Clone, Debug)]
pub struct RowIterator<'a> {
    wire: &'a Wire,
    columns: &'a [Type],
    fields: &'a [Field],
    left: usize,
}

impl<'a> Iterator for RowIterator<'a> {
    type Item = Row<'a>;

    fn next(&mut self) -> Option<Row<'a>> {
        self.left = self.left.checked_sub(1)?;
        let (fields, rest) = self.fields.split_at_checked(self.columns.len())?;
        self.fields = rest;
        Some(Row { bytes: self.wire.arrived(), columns: self.columns, fields })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// A row, which stands where it has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    bytes: &'a [u8],
    columns: &'a [Type],
    fields: &'a [Field],
}

impl<'a> Row<'a> {
    /// The value in a column.
    ///
    /// # Errors
    /// In words: the column is not there, or holds something else.
    pub fn get<T: FromSql<'a>>(&self, column: usize) -> Result<T, String> {
        let (Some(kind), Some(field)) = (self.columns.get(column), self.fields.get(column)) else {
            return Err(format!("there is no column {column}"));
        };
        if !T::accepts(kind) {
            return Err(format!("column {column} is of the type {kind}"));
        }
        T::from_sql_nullable(kind, self.raw(*field)).map_err(|error| format!("column {column}: {error}"))
    }

    /// The bytes of each column from `first` on, whatever its type; nothing for NULL.
    pub fn raw_from(&self, first: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let row = *self;
        row.fields
            .get(first..)
            .unwrap_or_default()
            .iter()
            .map(move |field| row.raw(*field).unwrap_or_default())
    }

    fn raw(&self, field: Field) -> Option<&'a [u8]> {
        self.bytes.get(field.start..field.end)
    }
}
