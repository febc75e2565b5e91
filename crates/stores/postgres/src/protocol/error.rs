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
    /// Whether it is a success with a warning: the commit is made, and its wait for replicas was cancelled.
    pub committed_alone: bool,
}

/// The server's function in which a commit waits for replicas. Only when the wait is cancelled does it warn.
pub(crate) const OF_THE_WAIT: &str = "SyncRepWaitForLSN";

/// What a success is that comes with that warning.
const COMMITTED_ALONE: &str = "committed on the leader alone: its wait for replicas was cancelled";

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
            committed_alone: false,
        })
    }

    /// Reads the fields of a `NoticeResponse`; none unless it warns that a commit has not waited for its replicas: it is told from
    /// others by what is not translated: its severity, and the server's function that it comes from.
    pub(super) fn warned(mut fields: ErrorFields<'_>) -> io::Result<Option<Self>> {
        let (mut code, mut is_warning, mut is_of_wait) = (None, false, false);
        while let Some(field) = fields.next()? {
            let value = field.value_bytes();
            match field.type_() {
                b'C' => code = Some(String::from_utf8_lossy(value).into_owned()),
                b'V' => is_warning = value == b"WARNING",
                b'R' => is_of_wait = value == OF_THE_WAIT.as_bytes(),
                _ => {}
            }
        }
        Ok((is_warning && is_of_wait).then(|| Self {
            code: code.map_or(SqlState::WARNING, |code| SqlState::from_code(&code)),
            message: COMMITTED_ALONE.to_owned(),
            ends_connection: false,
            constraint: None,
            committed_alone: true,
        }))
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code.code())
    }
}
