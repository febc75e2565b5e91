//! A client's connection by the server's own protocol, RESP2, with the commands of the `redis` crate.
//!
//! Whoever awaits an answer writes and reads: there is no task in between. Answers are read where they have arrived, and as
//! many commands are sent at once as an operation needs: the server works them off in their order. Of a command that has no
//! answer it is known whether it was sent.
//!
//! Checked against [the protocol's description](https://redis.io/docs/latest/develop/reference/protocol-spec/), with Redis
//! 7.0.15. RESP3 is not asked for.

mod connection;
mod error;
mod reply;
#[cfg(test)]
mod tests;

pub use error::{Error, ServerError};
pub use reply::{Replies, Reply};

pub(crate) use connection::{Answers, Batch, Connection};
pub(crate) use error::{ConnectError, nonsense};
pub(crate) use reply::pairs;
