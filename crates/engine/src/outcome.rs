//! How an operation ended.

/// How one operation ended, after all its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Acknowledged: the store said that it happened.
    Ok,
    /// A business no: the store answered and changed nothing (too little stock).
    Refused,
    /// Gave up after conflicts with others; proved to have had no effect.
    Conflict,
    /// An error that is proved to have had no effect.
    Failed,
    /// Sent, and no answer came: it may or may not have happened.
    Unknown,
}

impl Outcome {
    /// Every outcome, in the order in which reports show them.
    pub const ALL: [Self; 5] = [Self::Ok, Self::Refused, Self::Conflict, Self::Failed, Self::Unknown];

    /// The word that names it in results.
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

    /// Its place in [`Outcome::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

/// What went wrong with an attempt, in the store's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The store's words; never a password.
    pub message: String,
    /// Whether the connection is of no more use.
    pub connection_lost: bool,
}

impl Fault {
    /// A fault after which the connection goes on.
    pub fn answered(message: impl Into<String>) -> Self {
        Self { message: message.into(), connection_lost: false }
    }

    /// A fault that cost the connection.
    pub fn lost(message: impl Into<String>) -> Self {
        Self { message: message.into(), connection_lost: true }
    }
}

/// How one attempt at an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Acknowledged.
    Ok,
    /// A business no.
    Refused,
    /// Lost against another client, rolled back: can be tried again.
    Conflict,
    /// An error, proved to have had no effect.
    Failed(Fault),
    /// Sent, and no answer: the connection is retired.
    Unknown(Fault),
}

impl Attempt {
    /// What ended an operation of which a part has taken effect already: however that came, the whole
    /// is in doubt, and its connection is retired.
    #[must_use]
    pub fn after_a_part(self) -> Self {
        match self {
            Self::Failed(fault) | Self::Unknown(fault) => Self::Unknown(Fault::lost(fault.message)),
            Self::Ok | Self::Refused | Self::Conflict => Self::Unknown(Fault::lost("done in part")),
        }
    }
}
