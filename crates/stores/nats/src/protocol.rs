//! A client of NATS' protocol: one TCP connection, driven by whoever waits for it.
//!
//! The official client, async-nats 0.51, was weighed and left: it puts what is published into a queue of 2,048
//! requests that a task of its own writes, so that a caller cannot learn whether a message was *not sent* or
//! *sent and not answered*; its `max_reconnects(0)` means without end; each message hops to another task and
//! back. Without any of its features it still brings rustls, regex, time and tracing: 25 crates that nothing else
//! here needs, 44 s of a clean build on two cores.
//!
//! Here what is published is numbered by the bytes before it: [`Connection::reached`] tells of each message
//! whether any of it was handed to the network. Buffers are the connection's, not a future's: a future that is
//! dropped loses nothing, neither of what was to be written nor of what has arrived.

mod connection;
mod error;
mod message;
mod wire;

pub use connection::{Connection, Info, Login, Place};
pub use error::{ApiError, Error};
pub use message::{Delivered, Message};
