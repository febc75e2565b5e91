//! What can go wrong with a request, and what then is known of it.

use std::{fmt, io};

use acidtest_transport::RequestError;
use mysql_common::{
    constants::CapabilityFlags,
    io::ParseBuf,
    packets::{self, ErrPacket},
};

/// Why a request has no answer, or what the server has answered in its place.
pub(crate) type Error = RequestError<Box<ServerError>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerError {
    pub(crate) code: u16,
    /// The SQLSTATE; empty where it has none.
    pub(crate) state: String,
    /// Its message, in the server's words.
    pub(crate) message: String,
}

impl ServerError {
    /// Reads the payload of an `ERR_Packet`.
    pub(super) fn read(payload: &[u8]) -> io::Result<Self> {
        // before the login, it need not have an SQLSTATE
        let has_state = payload.get(3) == Some(&b'#');
        let known = if has_state { CapabilityFlags::CLIENT_PROTOCOL_41 } else { CapabilityFlags::empty() };
        match ParseBuf(payload).parse(known)? {
            ErrPacket::Error(error) => Ok(Self::of(&error)),
            ErrPacket::Progress(_) => Err(io::Error::other("a report of progress")),
        }
    }

    fn of(error: &packets::ServerError<'_>) -> Self {
        Self {
            code: error.error_code(),
            state: error.sql_state_ref().map(|state| state.as_str().into_owned()).unwrap_or_default(),
            message: error.message_str().into_owned(),
        }
    }
}

impl From<&mysql_async::ServerError> for ServerError {
    fn from(error: &mysql_async::ServerError) -> Self {
        Self { code: error.code, state: error.state.clone(), message: error.message.clone() }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = if self.code == FULL { FULL_HINT } else { "" };
        write!(f, "{} ({}){hint}", self.message, self.code)
    }
}

/// Error 1114: the table is full.
const FULL: u16 = 1114;
const FULL_HINT: &str = ": the disk is, or a MEMORY table holds what max_heap_table_size let it grow to";
