//! Errors between acidtest and a store outside the timed path.

use std::{fmt, time::Duration};

use crate::Span;

/// What went wrong, with the remedy on a line of its own if there is one.
#[must_use]
pub fn with_remedy(said: &impl fmt::Display, remedy: Option<&str>) -> String {
    remedy.map_or_else(|| said.to_string(), |remedy| format!("{said}\n  remedy: {remedy}"))
}

/// Why there is no connection: opening one took longer than it may (`connect_timeout` of a plan).
#[must_use]
pub fn no_connection_within(time: Duration) -> String {
    format!("no connection within {}", Span(time))
}

/// The same where it is the handshake of TLS that took as long as this.
#[must_use]
pub fn no_tls_within(time: Duration) -> String {
    format!("the handshake of TLS was not answered within {}", Span(time))
}

/// Whether an error is that opening a connection took longer than it may: drivers, and errors of a client, hand on no more than
/// words.
#[must_use]
pub fn took_too_long(said: &str) -> bool {
    ["no connection within ", "the handshake of TLS was not answered within "]
        .iter()
        .any(|words| said.contains(words))
}

/// A store that could not be opened, prepared or read back. Every message says what failed, where, and the remedy;
/// none holds a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No server answers at the address, or the login failed; or the file or folder cannot be opened.
    #[error("cannot reach {address}: {cause}\n  remedy: {remedy}")]
    Unreachable {
        /// The store's address, without a password.
        address: String,
        /// The error of the network or of the server.
        cause: String,
        /// The remedy, in words for the user.
        remedy: String,
    },
    /// The namespace exists already and this run did not create it.
    #[error(
        "{namespace} exists already at {address} and this run did not create it\n  remedy: drop it, choose another with \
         --namespace, or let acidtest replace it with --replace; `acidtest lab down` removes what an interrupted run left"
    )]
    Occupied {
        /// The namespace in the store's own words (`schema "acidtest"`).
        namespace: String,
        /// The store's address, without a password.
        address: String,
    },
    /// The namespace is that of another run that goes on.
    #[error(
        "{namespace} at {address} is in use: run {run} (process {bench}) is still running\n  remedy: wait until it ends, \
         or choose another with --namespace"
    )]
    InUse {
        /// The namespace in the store's own words (`schema "acidtest"`).
        namespace: String,
        /// The store's address, without a password.
        address: String,
        /// The other run's id.
        run: String,
        /// The id of its process.
        bench: u32,
    },
    /// The namespace bears no mark of a run: it is somebody else's, or a killed run has left it half made.
    #[error(
        "{namespace} exists at {address} without the mark of a run of acidtest\n  remedy: choose another with --namespace, \
         or drop it yourself; acidtest removes only what has the mark of a run (`acidtest lab down` also what a killed run \
         left half created)"
    )]
    Foreign {
        /// The namespace in the store's own words (`schema "public"`).
        namespace: String,
        /// The store's address, without a password.
        address: String,
    },
    /// The server takes no writes.
    #[error("{address} takes no writes: it is {is}\n  remedy: {remedy}")]
    ReadOnly {
        /// The store's address, without a password.
        address: String,
        /// What it is, in words that follow `it is`.
        is: String,
        /// The remedy, in words for the user.
        remedy: String,
    },
    /// The store answered, but not as expected: anything else that went wrong.
    #[error("{doing} failed at {address}: {cause}")]
    Server {
        /// The step that failed, as a participle (`loading the stock`).
        doing: String,
        /// The store's address, without a password.
        address: String,
        /// The server's own message.
        cause: String,
    },
}

impl StoreError {
    /// The server at this address is a replica; `primary` is its primary's `HOST:PORT`, where it is known.
    #[must_use]
    pub fn replica(address: String, primary: Option<String>) -> Self {
        let is = primary.map_or_else(|| "a replica".to_owned(), |primary| format!("a replica of {primary}"));
        Self::ReadOnly { address, is, remedy: "give the address of its primary".to_owned() }
    }
}
