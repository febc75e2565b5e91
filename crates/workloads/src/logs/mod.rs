//! Logs: clients that come, send their entries to a gateway one request after the other, and leave.
//!
//! The load is that of the log study ("Towards Scalability in Systems with write operations in relational databases"):
//! 18,000 clients that come over ten, five or two minutes, 100 entries each, and five seconds until a client gives an
//! entry up. The gateway (`acidtest gateway`) stands in front of the store, and stores what it has acknowledged.
//!
//! Each entry carries its id (client and sequence) and a checksum over all of it. The ledger keeps a byte for each entry.
//! When the last client has left and the gateway's queue is empty, the store's table is read:
//!
//! | finding | proves that |
//! | --- | --- |
//! | lost | an entry that was acknowledged is not stored |
//! | duplicated | an entry is stored more than once |
//! | phantom | an entry is stored that was refused, or that was never sent because there was no connection |
//! | foreign | an entry is stored that no client of the trial has sent |
//! | torn | an entry is stored whose checksum is wrong |
//!
//! Unless the queue is known to be empty, nothing is called lost and the verdict is unknown. An entry that a client has
//! given up proves nothing: it may be stored once, or not. Repeats that the gateway has suppressed, and what it has
//! refused because its queue was full, are evidence and no finding.

mod audit;
mod client;
#[cfg(test)]
mod double;
mod entry;
mod first;
mod http;
mod ledger;
mod parameters;
mod port;
mod services;
mod settling;
mod trial;
mod workload;

const NAME: &str = "logs";

pub use audit::{StoredState, audit};
pub use client::{OPERATIONS, Scenario, task};
pub use entry::{Entry, Id, StoredEntry};
pub use http::GatewayState;
pub use ledger::Ledger;
pub use parameters::{Architecture, LogQueue, Parameters};
pub use port::{Connector, EntryVisitor, LogsStore, Operations, Request, Rows, Sink};
pub use workload::{KIND, Logs};
