use std::io;

/// The reason why a request has no result. [`Error::fate`] tells whether it may have taken effect.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection could not be made, broke, or can no longer be used.
    #[error("connection lost {}: {cause}", if *.sent { "with a request under way" } else { "before the request was sent" })]
    Lost {
        /// Whether any byte of the request was sent; if so, the server may have carried it out.
        sent: bool,
        /// The network's error.
        cause: io::Error,
    },
    /// The request is longer than the protocol allows, and was not sent. The connection remains usable.
    #[error("the request of {0} bytes is longer than the protocol allows")]
    TooLong(usize),
    /// The answer is malformed, or not of the type that the caller expected.
    #[error("malformed answer: {0}")]
    Protocol(String),
    /// The server answered with an error. The connection remains usable.
    #[error("Tarantool error {code}: {message}")]
    Server {
        /// The number of the error, such as [`Error::DUPLICATE_KEY`].
        code: u32,
        message: String,
    },
}

/// Whether a request without a result may have taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// No byte of it was sent: it had no effect.
    NotSent,
    /// The server answered it with an error. A single data request then had no effect; a function or Lua code
    /// keeps the changes that it made outside a transaction before the error.
    Refused,
    /// It was sent and no answer was understood: it may or may not have been carried out.
    Unknown,
}

impl Error {
    /// Code 3: a tuple with this key exists.
    pub const DUPLICATE_KEY: u32 = 3;
    /// Code 32: an error raised by Lua code (`error()`, or a failure in the code).
    pub const LUA: u32 = 32;
    /// Code 97: another transaction changed data that this one read or wrote.
    pub const TRANSACTION_CONFLICT: u32 = 97;

    /// Whether the request may have taken effect.
    #[must_use]
    pub fn fate(&self) -> Fate {
        match self {
            Self::Lost { sent: false, .. } | Self::TooLong(_) => Fate::NotSent,
            Self::Server { .. } => Fate::Refused,
            Self::Lost { sent: true, .. } | Self::Protocol(_) => Fate::Unknown,
        }
    }

    /// The code of the server's error, if it answered with one.
    #[must_use]
    pub fn code(&self) -> Option<u32> {
        match self {
            Self::Server { code, .. } => Some(*code),
            _ => None,
        }
    }
}
