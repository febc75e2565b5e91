//! What a server must have room for.

use serde::{Deserialize, Serialize};

/// What a server must have room for. Its settings allow for more; servers have at least what they have without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSize {
    /// Clients that are connected at once.
    pub clients: u32,
    /// Bytes of memory that its data take, if it keeps them there.
    pub data_bytes: u64,
}

/// Connections besides those of clients: whoever looks at the server, loads it and reads it back.
const OTHER_CONNECTIONS: u32 = 100;

impl ServerSize {
    /// How many connections the server must take, but at least so many.
    pub(crate) fn connections(&self, least: u32) -> u32 {
        self.clients.saturating_add(OTHER_CONNECTIONS).max(least)
    }
}
