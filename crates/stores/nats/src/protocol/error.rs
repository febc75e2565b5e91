//! What can go wrong with a connection, and what a request was answered with.

/// Why there is no answer, or what the answer was if it was a refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The connection broke.
    #[error("{0}")]
    Lost(String),
    /// The server closed the connection, or is about to, and said why.
    #[error("the server closed the connection: {0}")]
    Closed(String),
    /// What the server sent makes no sense. The connection is not used again.
    #[error("malformed answer: {0}")]
    Protocol(String),
    /// The message is longer than the server takes, and was not sent.
    #[error("a message of {bytes} bytes is over the server's limit of {limit} (its max_payload)")]
    TooLong {
        /// The message's length, its headers included.
        bytes: usize,
        /// The server's limit.
        limit: usize,
    },
    /// Nobody listens on the subject: no stream takes what is published there, or `JetStream` is not enabled.
    #[error("nobody listens on {0}: no stream takes it, or JetStream is not enabled")]
    NoResponders(String),
    /// `JetStream` refused the request.
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// A refusal in `JetStream`'s words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Deserialize)]
#[error("{description} (JetStream error {err_code})")]
pub struct ApiError {
    /// The number of the error, such as [`ApiError::STREAM_NOT_FOUND`]; 0 where an old server gives none.
    #[serde(default)]
    pub err_code: u32,
    /// The server's description of it.
    #[serde(default)]
    pub description: String,
}

impl ApiError {
    /// There is no such consumer.
    pub const CONSUMER_NOT_FOUND: u32 = 10014;
    /// `JetStream` is not enabled for the account.
    pub const NOT_ENABLED_FOR_ACCOUNT: u32 = 10039;
    /// There is a stream of that name with other settings.
    pub const STREAM_NAME_IN_USE: u32 = 10058;
    /// There is no such stream.
    pub const STREAM_NOT_FOUND: u32 = 10059;
    /// A server alone keeps no replicas.
    pub const REPLICAS_NEED_A_CLUSTER: u32 = 10074;
    /// `JetStream` is not enabled.
    pub const NOT_ENABLED: u32 = 10076;
    /// The stream did not store the message.
    pub const STORE_FAILED: u32 = 10077;

    /// Whether it proves that nothing was stored. One about a store that failed need not, unless the store was
    /// full by its own limits: how much of the message was written is not said.
    #[must_use]
    pub fn proves_no_effect(&self) -> bool {
        self.err_code != Self::STORE_FAILED || self.description.starts_with("maximum ")
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
        assert!(!refusal(ApiError::STORE_FAILED, "write 1.blk: no space left on device").proves_no_effect());
    }
}
