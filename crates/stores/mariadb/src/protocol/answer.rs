//! What has come in answer to requests, read where it has arrived.

use std::ops::Range;

use mysql_common::{
    constants::{ColumnFlags, ColumnType},
    io::ParseBuf,
};

use super::{Connection, Error};
use crate::columns::{Columns, whole};

/// What has come in answer to one request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) outcome: Result<(), Error>,
    /// Its rows among all that have arrived.
    pub(super) rows: Range<usize>,
    /// Whether it has described columns, for rows that may be none.
    pub(super) is_table: bool,
    /// Rows that it has changed or found, as the server says last.
    pub(super) count: u64,
    /// The first id that it has given, as the server says last.
    pub(super) last_insert_id: Option<u64>,
}

/// How a column's values are sent in rows of prepared statements
/// ([formats](https://mariadb.com/kb/en/resultset-row/#binary-resultset-row)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// Whole numbers with a sign, of so many bytes.
    Signed(usize),
    /// Whole numbers without a sign, of so many bytes.
    Unsigned(usize),
    /// What has its length in front: texts, bytes, and decimal numbers as text.
    Bytes,
    /// Other numbers, of so many bytes.
    Other(usize),
    /// Dates and times, whose length is one byte.
    Time,
    /// Nothing but NULL.
    Null,
}

impl Column {
    /// Reads a column's definition; none where it is none, or of a type that is not known.
    pub(super) fn read(payload: &[u8]) -> Option<Self> {
        let mut rest = ParseBuf(payload);
        // catalog, schema, table and name, the latter two as they are called here and in the table
        for _ in 0..6 {
            rest.checked_eat_lenenc_str()?;
        }
        // the length of what follows; character set, longest length
        rest.checked_eat(1 + 2 + 4)?;
        let kind = ColumnType::try_from(rest.checked_eat_u8()?).ok()?;
        let is_unsigned = rest.checked_eat_u16_le()? & ColumnFlags::UNSIGNED_FLAG.bits() != 0;
        let number = |bytes| if is_unsigned { Self::Unsigned(bytes) } else { Self::Signed(bytes) };
        Some(match kind {
            ColumnType::MYSQL_TYPE_TINY => number(1),
            ColumnType::MYSQL_TYPE_SHORT | ColumnType::MYSQL_TYPE_YEAR => number(2),
            ColumnType::MYSQL_TYPE_INT24 | ColumnType::MYSQL_TYPE_LONG => number(4),
            ColumnType::MYSQL_TYPE_LONGLONG => number(8),
            ColumnType::MYSQL_TYPE_FLOAT => Self::Other(4),
            ColumnType::MYSQL_TYPE_DOUBLE => Self::Other(8),
            ColumnType::MYSQL_TYPE_NULL => Self::Null,
            ColumnType::MYSQL_TYPE_TIMESTAMP
            | ColumnType::MYSQL_TYPE_DATE
            | ColumnType::MYSQL_TYPE_TIME
            | ColumnType::MYSQL_TYPE_DATETIME => Self::Time,
            ColumnType::MYSQL_TYPE_DECIMAL
            | ColumnType::MYSQL_TYPE_NEWDECIMAL
            | ColumnType::MYSQL_TYPE_VARCHAR
            | ColumnType::MYSQL_TYPE_VAR_STRING
            | ColumnType::MYSQL_TYPE_STRING
            | ColumnType::MYSQL_TYPE_BIT
            | ColumnType::MYSQL_TYPE_JSON
            | ColumnType::MYSQL_TYPE_ENUM
            | ColumnType::MYSQL_TYPE_SET
            | ColumnType::MYSQL_TYPE_TINY_BLOB
            | ColumnType::MYSQL_TYPE_MEDIUM_BLOB
            | ColumnType::MYSQL_TYPE_LONG_BLOB
            | ColumnType::MYSQL_TYPE_BLOB
            | ColumnType::MYSQL_TYPE_GEOMETRY
            | ColumnType::MYSQL_TYPE_VECTOR => Self::Bytes,
            _ => return None,
        })
    }
}

/// All rows that have arrived, and their fields.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) rows: Vec<RowPlace>,
    pub(super) fields: Vec<Field>,
}

/// Most rows or fields for which an emptied list keeps room.
const KEPT: usize = 64 * 1024;

impl Found {
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.fields.clear();
        // one long answer must not take memory for good
        self.rows.shrink_to(KEPT);
        self.fields.shrink_to(KEPT);
    }
}

/// Where a row's fields stand among all that have arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowPlace {
    pub(super) first: usize,
    pub(super) columns: usize,
}

/// A value, which stands where it has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    start: usize,
    end: usize,
    kind: FieldKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldKind {
    Null,
    Signed,
    Unsigned,
    Bytes,
    Other,
}

/// Goes over a row's payload, which begins at `start` among the bytes that have arrived.
struct Payload<'a> {
    rest: ParseBuf<'a>,
    length: usize,
    start: usize,
}

impl<'a> Payload<'a> {
    fn new(payload: &'a [u8], start: usize) -> Self {
        Self { rest: ParseBuf(payload), length: payload.len(), start }
    }

    /// Takes a field of so many bytes.
    fn field(&mut self, bytes: usize, kind: FieldKind) -> Option<Field> {
        let start = self.start + (self.length - self.rest.len());
        self.rest.checked_eat(bytes)?;
        Some(Field { start, end: start + bytes, kind })
    }

    /// Takes a field that has its length in front.
    fn bytes(&mut self) -> Option<Field> {
        // a first byte that says NULL, or an error, is no length
        if matches!(self.rest.0.first(), Some(&(0xFB | 0xFF))) {
            return None;
        }
        let bytes = usize::try_from(self.rest.checked_eat_lenenc_int()?).ok()?;
        self.field(bytes, FieldKind::Bytes)
    }
}

impl Field {
    const NULL: Self = Self { start: 0, end: 0, kind: FieldKind::Null };

    /// Finds the fields of a prepared statement's row. They must fill the payload: what only looks like a row must not pass
    /// for one that was stored so.
    pub(super) fn find(
        payload: &[u8],
        start: usize,
        columns: &[Column],
        fields: &mut Vec<Self>,
    ) -> Option<()> {
        let nulls = (columns.len() + 7 + 2) / 8;
        let mut payload = Payload::new(payload, start);
        if payload.rest.checked_eat_u8()? != 0 {
            return None;
        }
        let nulls = payload.rest.checked_eat(nulls)?;
        for (place, column) in columns.iter().enumerate() {
            // the first two bits are not used
            let bit = place + 2;
            if nulls.get(bit / 8)? & 1 << (bit % 8) != 0 {
                fields.push(Self::NULL);
                continue;
            }
            fields.push(match *column {
                Column::Signed(bytes) => payload.field(bytes, FieldKind::Signed)?,
                Column::Unsigned(bytes) => payload.field(bytes, FieldKind::Unsigned)?,
                Column::Bytes => payload.bytes()?,
                Column::Other(bytes) => payload.field(bytes, FieldKind::Other)?,
                Column::Time => {
                    let bytes = payload.rest.checked_eat_u8()?;
                    payload.field(bytes.into(), FieldKind::Other)?
                }
                Column::Null => return None,
            });
        }
        payload.rest.is_empty().then_some(())
    }

    /// Finds the fields of a row that a statement has answered as text.
    pub(super) fn find_texts(
        payload: &[u8],
        start: usize,
        columns: usize,
        fields: &mut Vec<Self>,
    ) -> Option<()> {
        let mut payload = Payload::new(payload, start);
        for _ in 0..columns {
            if payload.rest.0.first() == Some(&0xFB) {
                payload.rest.checked_eat(1)?;
                fields.push(Self::NULL);
            } else {
                fields.push(payload.bytes()?);
            }
        }
        payload.rest.is_empty().then_some(())
    }
}

/// The answers to requests that were sent at once, in the order of the requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answers<'a> {
    connection: &'a Connection,
}

impl<'a> Answers<'a> {
    pub(super) fn of(connection: &'a Connection) -> Self {
        Self { connection }
    }

    /// The answer to the request with this index.
    ///
    /// # Errors
    /// Why there is none, or the server's.
    pub(crate) fn get(self, index: usize) -> Result<Rows<'a>, &'a Error> {
        let answer = self.connection.answers.get(index).unwrap_or(&NOT_ASKED);
        match &answer.outcome {
            Ok(()) => Ok(Rows { connection: self.connection, answer }),
            Err(error) => Err(error),
        }
    }
}

/// In the place of an answer to a request that was not made.
static NOT_ASKED: Answer = Answer {
    outcome: Err(Error::NotSent(String::new())),
    rows: 0..0,
    is_table: false,
    count: 0,
    last_insert_id: None,
};

/// All rows of all results of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    connection: &'a Connection,
    answer: &'a Answer,
}

impl<'a> Rows<'a> {
    pub(super) fn of(connection: &'a Connection, answer: &'a Answer) -> Self {
        Self { connection, answer }
    }

    /// Whether the statement is one that answers rows, if only none.
    pub(crate) fn is_table(&self) -> bool {
        self.answer.is_table
    }

    /// How many rows the statement has found, changed or not.
    pub(crate) fn count(&self) -> u64 {
        self.answer.count
    }

    /// The first id that the statement has given, or what it has set by `LAST_INSERT_ID`.
    pub(crate) fn last_insert_id(&self) -> Option<u64> {
        self.answer.last_insert_id
    }

    /// How many rows have arrived.
    pub(crate) fn len(&self) -> usize {
        self.answer.rows.len()
    }

    pub(crate) fn first(&self) -> Option<Row<'a>> {
        self.iter().next()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Row<'a>> + use<'a> {
        let Connection { wire, found: Found { rows, fields }, .. } = self.connection;
        let places = rows.get(self.answer.rows.clone()).unwrap_or_default();
        places.iter().map(|RowPlace { first, columns }| Row {
            bytes: wire.arrived(),
            fields: fields.get(*first..first + columns).unwrap_or_default(),
        })
    }
}

/// A row, which stands where it has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    bytes: &'a [u8],
    fields: &'a [Field],
}

impl<'a> Row<'a> {
    /// The bytes of each column from `first` on; nothing for one that holds none.
    pub(crate) fn bytes_from(&self, first: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let row = *self;
        row.fields.get(first..).unwrap_or_default().iter().map(move |field| row.bytes_of(*field))
    }

    /// The bytes of each column; none for NULL.
    pub(crate) fn values(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let row = *self;
        row.fields.iter().map(move |field| (field.kind != FieldKind::Null).then(|| row.bytes_of(*field)))
    }

    fn bytes_of(&self, field: Field) -> &'a [u8] {
        match field.kind {
            FieldKind::Bytes => self.raw(field),
            _ => &[],
        }
    }

    fn raw(&self, field: Field) -> &'a [u8] {
        self.bytes.get(field.start..field.end).unwrap_or_default()
    }
}

impl Columns for Row<'_> {
    fn whole(&self, column: usize) -> Option<i128> {
        let field = *self.fields.get(column)?;
        let raw = self.raw(field);
        let widened = || {
            let mut wide = [0; 8];
            wide.get_mut(..raw.len())?.copy_from_slice(raw);
            Some(wide)
        };
        match field.kind {
            FieldKind::Unsigned => Some(u64::from_le_bytes(widened()?).into()),
            FieldKind::Signed => {
                // the sign is that of the narrower number
                let unused = 64 - 8 * u32::try_from(raw.len()).ok()?;
                Some(i64::from_le_bytes(widened()?).checked_shl(unused)?.checked_shr(unused)?.into())
            }
            FieldKind::Bytes => whole(raw),
            FieldKind::Null | FieldKind::Other => None,
        }
    }

    fn bytes(&self, column: usize) -> &[u8] {
        self.fields.get(column).map(|field| self.bytes_of(*field)).unwrap_or_default()
    }

    fn is_null(&self, column: usize) -> bool {
        self.fields.get(column).is_some_and(|field| field.kind == FieldKind::Null)
    }
}
