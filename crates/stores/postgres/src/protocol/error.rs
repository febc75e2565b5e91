//! What can go wrong with a request, and what then is known of it.

use std::io;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::ErrorFields;
use tokio_postgres::error::SqlState;

/// Why a request has no answer, or what the server has answered in its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No byte of the request was handed to the network: the server has not seen it.
    #[error("{0}")]
    NotSent(String),
    /// The server has answered with an error.
    #[error("{} ({})", .0.message, .0.code.code())]
    Answered(Box<ServerError>),
    /// The request was sent, or a part of it; no answer has come that could be understood.
    #[error("{0}")]
    Lost(String),
}

/// An error that the server has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    /// The SQLSTATE.
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

impl Error {
    /// The error that the server has reported, if it is one.
    #[must_use]
    pub fn answer(&self) -> Option<&ServerError> {
        match self {
            Self::Answered(answer) => Some(answer),
            Self::NotSent(_) | Self::Lost(_) => None,
        }
    }
}
