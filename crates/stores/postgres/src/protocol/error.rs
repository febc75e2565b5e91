//! What can go wrong with a request, and what then is known of it.

use std::{fmt, io};

use acidtest_transport::RequestError;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::ErrorFields;
use tokio_postgres::error::SqlState;

/// Why a request has no answer, or what the server has answered in its place.
pub type Error = RequestError<Box<ServerError>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    pub code: SqlState,
    /// Its message, in the server's words.
    pub message: String,
    /// Whether the server has ended the connection with it (`FATAL`, `PANIC`).
    pub ends_connection: bool,
    /// The name of the constraint that was violated, if it was one that has a name.
    pub constraint: Option<String>,
}

impl ServerError {
    /// Reads the fields of an `ErrorResponse`. See the
    /// [list of fields](https://www.postgresql.org/docs/15/protocol-error-fields.html).
    pub(super) fn read(mut fields: ErrorFields<'_>) -> io::Result<Self> {
        let (mut code, mut message, mut severity, mut constraint) = (None, None, None, None);
        while let Some(field) = fields.next()? {
            let value = || String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'C' => code = Some(value()),
                b'M' => message = Some(value()),
                // the one that is not translated, since 9.6; before, the one that may be
                b'V' => severity = Some(value()),
                b'S' if severity.is_none() => severity = Some(value()),
                b'n' => constraint = Some(value()),
                _ => {}
            }
        }
        let missing = || io::Error::new(io::ErrorKind::InvalidData, "an error without code or message");
        Ok(Self {
            code: SqlState::from_code(&code.ok_or_else(missing)?),
            message: message.ok_or_else(missing)?,
            ends_connection: severity.is_some_and(|severity| matches!(&*severity, "FATAL" | "PANIC")),
            constraint,
        })
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code.code())
    }
}
