//! What is done to a deployment while a trial runs, and when.

use std::{fmt, time::Duration};

use crate::Role;

/// A fault that is brought about on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disruption {
    /// The whole process tree of a member is killed (SIGKILL) and, after it has been down for this long, started
    /// again on the same data and settings.
    Kill {
        /// The time between the kill and the start.
        down: Duration,
    },
    /// A member is asked to stop, by its own orderly way, and started again.
    Restart,
    /// All processes of a member are stopped (SIGSTOP) and go on (SIGCONT) after this long.
    Pause {
        /// The time between the two signals.
        lasting: Duration,
    },
}

impl Disruption {
    /// The word for it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Kill { .. } => "kill",
            Self::Restart => "restart",
            Self::Pause { .. } => "pause",
        }
    }
}

/// An entry of a timeline: what is done, to which member, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    /// The moment, from the beginning of the measured part.
    pub at: Duration,
    /// The role of the member that it is done to.
    pub member: Role,
    /// What is done.
    pub disruption: Disruption,
}

impl Injection {
    /// A disruption of the store's own server.
    #[must_use]
    pub fn new(disruption: Disruption, at: Duration) -> Self {
        Self { at, member: Role::Server, disruption }
    }
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.disruption.name())?;
        if self.member != Role::Server {
            write!(f, ":{}", self.member)?;
        }
        write!(f, "@{}s", self.at.as_secs_f64())
    }
}

/// What is done to a deployment while a trial runs, in the order of the moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    injections: Vec<Injection>,
}

impl Timeline {
    /// The timeline with these entries, in whatever order they are given.
    #[must_use]
    pub fn new(mut injections: Vec<Injection>) -> Self {
        injections.sort_by_key(|injection| injection.at);
        Self { injections }
    }

    /// The entries, in the order of their moments.
    #[must_use]
    pub fn injections(&self) -> &[Injection] {
        &self.injections
    }
}
