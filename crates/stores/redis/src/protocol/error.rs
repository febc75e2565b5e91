//! What can go wrong with a command, and what then is known of it.

use std::{fmt, io};

use acidtest_transport::RequestError;

/// Why a command has no answer, or the error that the server has answered in its place.
pub type Error = RequestError<ServerError>;

/// An error that the server has answered, in its words: they begin with a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError(String);

impl ServerError {
    pub(crate) fn new(words: &[u8]) -> Self {
        Self(String::from_utf8_lossy(words).into_owned())
    }

    /// What the error begins with, such as `WRONGTYPE`; a script may answer an error without.
    #[must_use]
    pub fn code(&self) -> &str {
        self.0.split(' ').next().unwrap_or_default()
    }

    /// Whether the server takes no more clients: it has as many as its `maxclients` allows.
    pub(crate) fn is_crowded(&self) -> bool {
        self.0.contains("max number of clients")
    }

    /// The code behind the words that say that it is the reason; else what the error begins with.
    pub(crate) fn because(&self, words: &str) -> &str {
        self.0.strip_prefix(words).unwrap_or(&self.0).split(' ').next().unwrap_or_default()
    }

    /// The same error, of a request of which so many more commands were refused.
    pub(crate) fn and_more(self, more: usize) -> Self {
        match more {
            0 => self,
            _ => Self(format!("{} (and {more} more commands were refused)", self.0)),
        }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The network's, or that of TLS.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server has refused the login.
    #[error("{0}")]
    Refused(ServerError),
}

/// The error of an answer of another shape than was asked for: it tells nothing about the effect.
pub(crate) fn nonsense() -> Error {
    Error::Lost("the server's answer is invalid".to_owned())
}
