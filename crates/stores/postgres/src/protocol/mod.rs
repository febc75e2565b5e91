//! PostgreSQL's protocol (version 3.0) on a connection that its client's own task drives.
//!
//! A bench needs what the published drivers do not give: no other task stands between a request and its answer; rows are
//! read where they have arrived; and every [`Error`] says whether its request was answered, provably not sent, or lost on
//! the way. The messages, and the secrets of logging in, are those of `postgres-protocol`, and the types and their forms
//! those of `postgres-types`: both belong to the driver by which everything is done that is not timed.
//!
//! Every request ends with a Sync of its own (a simple query does so by itself). So an error in one of several requests
//! that were sent at once is answered alone, and the requests behind it are carried out, as
//! [the protocol's description](https://www.postgresql.org/docs/15/protocol-flow.html#PROTOCOL-FLOW-EXT-QUERY) has it.

mod answer;
mod connection;
mod error;
mod login;

pub use answer::{Answers, Ended, Row, Rows};
pub use connection::{Connection, Pipeline, Statement};
pub(crate) use error::OF_THE_WAIT;
pub use error::{Error, ServerError};
pub(crate) use login::Login;

#[cfg(test)]
pub(crate) mod tests;
