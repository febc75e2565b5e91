//! Bugs to plant, so that every audit is seen to catch its own.

use std::fmt;

/// A bug that a store could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Acknowledges a write and drops it.
    DropWrite,
    /// Applies an acknowledged write twice.
    ApplyTwice,
    /// Takes units that are not there.
    Oversell,
    /// Applies and acknowledges a part of an operation as if it were the whole.
    Tear,
    /// Says that an operation failed without effect, and applies it later.
    LateApply,
    /// Acknowledges a write that becomes visible only later.
    HideCommit,
}

impl Bug {
    /// Every bug.
    pub const ALL: [Self; 6] =
        [Self::DropWrite, Self::ApplyTwice, Self::Oversell, Self::Tear, Self::LateApply, Self::HideCommit];

    /// What the store does wrong, in a reader's words.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::DropWrite => "drops an acknowledged write",
            Self::ApplyTwice => "applies a write twice",
            Self::Oversell => "takes units that are not there",
            Self::Tear => "tears an operation",
            Self::LateApply => "says failed, applies it after all",
            Self::HideCommit => "hides a commit until later",
        }
    }
}

/// What goes wrong in a store, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// A bug, planted in one of [`Faults::every`] operations.
    pub bug: Option<Bug>,
    /// How rare the bug is.
    pub every: u32,
    /// Share of operations (0 to 1) whose answer never comes, as a slow network's: no bug. They are
    /// applied, not applied, or applied later.
    pub timeouts: f64,
}

impl Faults {
    /// A bug in one of 20 operations.
    #[must_use]
    pub fn bug(bug: Bug) -> Self {
        Self { bug: Some(bug), every: 20, timeouts: 0.0 }
    }

    /// A correct store, of which this share of operations is never answered.
    #[must_use]
    pub fn timeouts(share: f64) -> Self {
        Self { timeouts: share, ..Self::default() }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bug {
            Some(bug) => write!(f, "{}, one operation in {}", bug.meaning(), self.every),
            None if self.timeouts > 0.0 => write!(f, "{:.0} % unanswered", self.timeouts * 100.0),
            None => f.write_str("none"),
        }
    }
}
