//! What can go wrong between acidtest and a store outside the timed path.

/// A store that could not be opened, prepared or read back. Every message says what, where and the
/// remedy; none holds a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Nobody answers at the address, or the login failed.
    #[error("cannot reach {address}: {cause}\n  remedy: {remedy}")]
    Unreachable {
        /// Where, without a password.
        address: String,
        /// What the network or the server said.
        cause: String,
        /// What the user can do.
        remedy: String,
    },
    /// The namespace is there already and this run did not create it.
    #[error(
        "{namespace} exists already at {address} and this run did not create it\n  \
         remedy: drop it, choose another with --namespace, or let acidtest replace it with --replace"
    )]
    Occupied {
        /// The namespace in the store's own words (`schema "acidtest"`).
        namespace: String,
        /// Where, without a password.
        address: String,
    },
    /// The server answered, but not as asked.
    #[error("{doing} failed at {address}: {cause}")]
    Server {
        /// What acidtest was doing (`loading the stock`).
        doing: String,
        /// Where, without a password.
        address: String,
        /// The server's own words.
        cause: String,
    },
}
