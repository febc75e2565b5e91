//! The outcome of an operation, and of one attempt at it.

use serde::{Deserialize, Serialize};

/// The outcome of one operation, after all its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Acknowledged: the store said that the operation took effect.
    Ok,
    /// The store answered that it cannot do the operation, and changed nothing (too little stock).
    Refused,
    /// Given up after conflicts with other clients; proved to have had no effect.
    Conflict,
    /// An error that is proved to have had no effect.
    Failed,
    /// It may or may not have taken effect: it was sent and never answered, or an embedded store failed on the way.
    Unknown,
}

impl Outcome {
    /// Every outcome, in the order in which reports show them.
    pub const ALL: [Self; 5] = [Self::Ok, Self::Refused, Self::Conflict, Self::Failed, Self::Unknown];

    /// The word for the outcome in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Conflict => "conflict",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    /// The outcome's index in [`Outcome::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

/// An error of an attempt, as the store reported it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The store's own message; it never holds a password.
    pub message: String,
    /// Whether the connection can no longer be used.
    pub connection_lost: bool,
    /// Whether the server answers, and serves nobody for now: it has yet to load its data, say, or is the primary no more.
    /// Another connection may find one that serves, but hardly at once.
    pub turned_away: bool,
}

impl Fault {
    /// A fault that the store answered with: the connection can still be used.
    pub fn answered(message: impl Into<String>) -> Self {
        Self { message: message.into(), connection_lost: false, turned_away: false }
    }

    /// A fault that cost the connection.
    pub fn lost(message: impl Into<String>) -> Self {
        Self { connection_lost: true, ..Self::answered(message) }
    }

    /// A fault of a server that turns clients away for now: it counts as a lost connection.
    pub fn turned_away(message: impl Into<String>) -> Self {
        Self { turned_away: true, ..Self::lost(message) }
    }
}

/// The outcome of one attempt at an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attempt {
    /// Acknowledged.
    Ok,
    /// The store answered that it cannot do the operation, and changed nothing.
    Refused,
    /// Lost a conflict with another client and was rolled back: the operation can be tried again.
    Conflict,
    /// An error that is proved to have had no effect.
    Failed(Fault),
    /// It may or may not have taken effect, as when it was sent and never answered: the connection is retired.
    Unknown(Fault),
}

impl Attempt {
    /// Whether its connection can no longer be used.
    #[must_use]
    pub fn has_lost_connection(&self) -> bool {
        matches!(self, Self::Failed(fault) | Self::Unknown(fault) if fault.connection_lost)
    }

    /// The outcome of an attempt whose first part has already taken effect. However the attempt ended, the effect
    /// of the whole is in doubt: it is unknown, and its connection is retired.
    #[must_use]
    pub fn after_a_part(self) -> Self {
        match self {
            Self::Failed(fault) | Self::Unknown(fault) => {
                Self::Unknown(Fault { connection_lost: true, ..fault })
            }
            Self::Ok | Self::Refused | Self::Conflict => Self::Unknown(Fault::lost("done in part")),
        }
    }
}
