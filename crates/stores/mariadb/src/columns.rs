//! Rows, on the connection of a client or that of the driver.

use mysql_async::{
    Conn, Error, Params, Row, Value,
    prelude::{Queryable, StatementLike},
};

/// All rows of all results of a statement that is not timed. An error may come as late as the end of the last result.
pub(crate) async fn rows(
    conn: &mut Conn,
    statement: impl StatementLike,
    values: impl Into<Params>,
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    let mut result = conn.exec_iter(statement, values).await?;
    while !result.is_empty() {
        result.for_each(|row| rows.push(row)).await?;
    }
    result.drop_result().await?;
    Ok(rows)
}

/// What is read of a row.
pub(crate) trait Columns {
    /// A whole number, or the text of one, in a column; none where the column holds none.
    fn whole(&self, column: usize) -> Option<i128>;

    /// The bytes of a column; nothing where it holds none.
    fn bytes(&self, column: usize) -> &[u8];

    fn is_null(&self, column: usize) -> bool;
}

impl Columns for Row {
    fn whole(&self, column: usize) -> Option<i128> {
        match self.as_ref(column)? {
            Value::Int(number) => Some((*number).into()),
            Value::UInt(number) => Some((*number).into()),
            Value::Bytes(text) => whole(text),
            _ => None,
        }
    }

    fn bytes(&self, column: usize) -> &[u8] {
        match self.as_ref(column) {
            Some(Value::Bytes(bytes)) => bytes,
            _ => &[],
        }
    }

    fn is_null(&self, column: usize) -> bool {
        self.as_ref(column) == Some(&Value::NULL)
    }
}

pub(crate) fn whole(text: &[u8]) -> Option<i128> {
    str::from_utf8(text).ok()?.parse().ok()
}

/// A column as a number; an error where the column holds none, or one that is too large.
pub(crate) fn number<T: TryFrom<i128>>(row: &impl Columns, column: usize) -> Result<T, String> {
    let value = row.whole(column).and_then(|number| T::try_from(number).ok());
    value.ok_or_else(|| format!("no number in column {column}"))
}

/// A column as text; empty where the column holds none.
pub(crate) fn text(row: &impl Columns, column: usize) -> &str {
    str::from_utf8(row.bytes(column)).unwrap_or_default()
}
