//! Errors of a connection, and refusals of requests.

use std::io;

use acidtest_transport::TlsError;

/// The reason why a request has no answer, or a refusal that was the answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The connection broke.
    #[error("{0}")]
    Lost(String),
    /// TLS did not come about, or ended.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server closed the connection or is about to, for the reason that it gave.
    #[error("the server closed the connection: {0}")]
    Closed(String),
    /// The server sent bytes that the protocol does not allow. The connection is not used again.
    #[error("malformed answer: {0}")]
    Protocol(String),
    /// The message is longer than the server allows, and was not sent.
    #[error("a message of {bytes} bytes is over the server's limit of {limit} (its max_payload)")]
    TooLong {
        /// The length of the message's body, in bytes.
        bytes: usize,
        /// The server's limit (`max_payload`), in bytes.
        limit: usize,
    },
    /// Nobody listens on the subject: no stream stores messages that are published to it, or `JetStream` is not
    /// enabled.
    #[error("nobody listens on {0}: no stream takes it, or JetStream is not enabled")]
    NoResponders(String),
    /// `JetStream` refused the request.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        TlsError::within(&error).map_or_else(|| Self::Lost(error.to_string()), Self::Tls)
    }
}

/// A refusal by `JetStream`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Deserialize)]
#[error("{description} (JetStream error {err_code})")]
pub struct ApiError {
    /// The number of the error, such as [`ApiError::STREAM_NOT_FOUND`]; 0 where an old server gives none.
    #[serde(default)]
    pub err_code: u32,
    #[serde(default)]
    pub description: String,
}

impl ApiError {
    /// The stream has no consumer of that name.
    pub const CONSUMER_NOT_FOUND: u32 = 10014;
    /// `JetStream` is not enabled for the account.
    pub const NOT_ENABLED_FOR_ACCOUNT: u32 = 10039;
    /// There is a stream of that name with other settings.
    pub const STREAM_NAME_IN_USE: u32 = 10058;
    /// There is no stream of that name.
    pub const STREAM_NOT_FOUND: u32 = 10059;
    /// More than one replica was asked for, and the server is not part of a cluster.
    pub const REPLICAS_NEED_A_CLUSTER: u32 = 10074;
    /// `JetStream` is not enabled on the server.
    pub const NOT_ENABLED: u32 = 10076;
    /// The stream did not store the message.
    pub const STORE_FAILED: u32 = 10077;

    /// The refusals of a published message that come before it is stored: of memory and disk (10002, 10023, 10028, 10047), of its
    /// length and headers (10054, 10097), of a stream that is not there, not the one expected, offline or sealed (10059, 10060,
    /// 10118, 10109), of what is demanded of the message before it (10070, 10071, 10164), of too many at once (10167), and
    /// of `JetStream` itself (10039, 10076).
    const BEFORE_THE_WRITE: [u32; 16] = [
        10002, 10023, 10028, 10039, 10047, 10054, 10059, 10060, 10070, 10071, 10076, 10097, 10109, 10118,
        10164, 10167,
    ];

    /// Whether the refusal proves that the message was not stored. [`Self::STORE_FAILED`] does so only where it says that the
    /// stream had reached one of its limits; else it does not say how much of the message was written.
    #[must_use]
    pub fn proves_no_effect(&self) -> bool {
        Self::BEFORE_THE_WRITE.contains(&self.err_code)
            || (self.err_code == Self::STORE_FAILED && self.description.starts_with("maximum "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_that_came_before_the_write_proves_that_nothing_was_stored() {
        let refusal =
            |err_code, description: &str| ApiError { err_code, description: description.to_owned() };
        assert!(refusal(10023, "insufficient resources").proves_no_effect());
        assert!(refusal(ApiError::STORE_FAILED, "maximum messages exceeded").proves_no_effect());
        assert!(refusal(ApiError::STREAM_NOT_FOUND, "stream not found").proves_no_effect());
        // the disk's, a replica's, that of a message with the same id that is still under way, and what no version knows
        for (err_code, words) in [
            (ApiError::STORE_FAILED, "write 1.blk: no space left on device"),
            (10041, "General RAFT error"),
            (10158, "duplicate message id is in process"),
            (0, "maximum messages exceeded"),
            (99_999, "upstream failure"),
        ] {
            assert!(!refusal(err_code, words).proves_no_effect(), "{words}");
        }
    }
}
