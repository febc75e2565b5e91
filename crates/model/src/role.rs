//! The roles that members of a deployment have.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The role of a member in its deployment. No two members have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The store's own server.
    Server,
    /// The server that keeps the locks of a store that has none of its own.
    Locks,
    /// The gateway that clients send log entries to.
    Gateway,
    /// The broker in which the entries wait that gateways have acknowledged.
    Queue,
    /// What takes entries out of that broker, and stores them.
    Collector,
    /// The processes that drive the clients, which are no member of the store's deployment.
    Clients,
}

impl Role {
    /// The roles of servers.
    pub const ALL: [Self; 5] = [Self::Server, Self::Locks, Self::Gateway, Self::Queue, Self::Collector];

    /// The role's name, as users write and read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Locks => "locks",
            Self::Gateway => "gateway",
            Self::Queue => "queue",
            Self::Collector => "collector",
            Self::Clients => "clients",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
