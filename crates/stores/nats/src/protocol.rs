//! A client of NATS' protocol: one TCP connection, which only makes progress while a caller waits for it.
//!
//! The official client, async-nats 0.51, was considered and not used: it puts published messages into a queue of
//! 2,048 requests that a task of its own writes, so that a caller cannot learn whether a message was *not sent* or
//! *sent and not answered*; its `max_reconnects(0)` means without end; each message hops to another task and
//! back. Without any of its features it still brings rustls, regex, time and tracing: 25 crates that nothing else
//! here needs, 44 s of a clean build on two cores.
//!
//! Here a published message is identified by the number of bytes before it, so that [`Connection::reached`] can tell
//! whether any byte of it was handed to the network. The buffers belong to the connection and not to a future, so
//! that dropping a future loses neither bytes to be written nor bytes that have arrived.

mod connection;
mod error;
mod message;
mod nkey;
mod wire;

#[cfg(test)]
pub(crate) use connection::tests;
pub use connection::{Connection, Info, Login, Place};
pub use error::{ApiError, Error};
pub use message::{DeliveredMessage, Message};
#[cfg(feature = "tls")]
pub use nkey::UserKey;
pub use nkey::looks_like_seed;
