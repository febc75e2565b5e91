//! Bugs to plant, so that every audit is seen to catch its own.

use std::fmt;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A bug that a store could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Acknowledges a write and drops it.
    DropWrite,
    /// Applies an acknowledged write twice.
    ApplyTwice,
    /// Takes units that are not there.
    Oversell,
    /// Applies and acknowledges a part of an operation as if it were the whole: of a record half of its
    /// fields, of a message not all of its bytes.
    Tear,
    /// Says that an operation failed without effect, and applies it later.
    LateApply,
    /// Acknowledges a write that becomes visible only later.
    HideCommit,
    /// Raises a record's version and leaves its fields as they were.
    KeepFields,
    /// Acknowledges an update with the version that was there before it.
    OldVersion,
    /// Acknowledges an insert and drops it.
    LoseInsert,
    /// Inserts a record twice.
    DoubleInsert,
    /// Says that an insert failed without effect, and keeps it.
    KeepInsert,
    /// Reads a record with fields of two versions.
    TearRead,
    /// Reads the version before.
    StaleRead,
    /// Does not find a record that is there.
    MissRead,
    /// Joins without one of the rows.
    MissRow,
    /// Joins one row twice, in place of another.
    DoubleRow,
    /// Delivers a message again after it has answered its acknowledgement.
    Redeliver,
    /// Delivers again what a lost consumer held, without saying so.
    Unflag,
    /// Loses what a lost consumer held.
    LoseHeld,
    /// Delivers a message that nobody published.
    MakeUp,
    /// Delivers a message before the one that came before it.
    Reorder,
}

impl Bug {
    /// The bugs of an inventory.
    pub const INVENTORY: [Self; 6] =
        [Self::DropWrite, Self::ApplyTwice, Self::Oversell, Self::Tear, Self::LateApply, Self::HideCommit];

    /// The bugs of records.
    pub const RECORDS: [Self; 13] = [
        Self::DropWrite,
        Self::ApplyTwice,
        Self::Tear,
        Self::LateApply,
        Self::HideCommit,
        Self::KeepFields,
        Self::OldVersion,
        Self::LoseInsert,
        Self::DoubleInsert,
        Self::KeepInsert,
        Self::TearRead,
        Self::StaleRead,
        Self::MissRead,
    ];

    /// The bugs of a join.
    pub const JOIN: [Self; 2] = [Self::MissRow, Self::DoubleRow];

    /// The bugs of a queue.
    pub const QUEUE: [Self; 10] = [
        Self::DropWrite,
        Self::ApplyTwice,
        Self::Tear,
        Self::LateApply,
        Self::HideCommit,
        Self::Redeliver,
        Self::Unflag,
        Self::LoseHeld,
        Self::MakeUp,
        Self::Reorder,
    ];

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
            Self::KeepFields => "raises a version without its fields",
            Self::OldVersion => "tells an update an old version",
            Self::LoseInsert => "drops an acknowledged insert",
            Self::DoubleInsert => "inserts a record twice",
            Self::KeepInsert => "says failed, keeps the insert",
            Self::TearRead => "reads fields of two versions",
            Self::StaleRead => "reads an old version",
            Self::MissRead => "does not find what is there",
            Self::MissRow => "joins without one of the rows",
            Self::DoubleRow => "joins a row twice, another never",
            Self::Redeliver => "delivers again what was acknowledged",
            Self::Unflag => "delivers again, and does not say so",
            Self::LoseHeld => "loses what a lost consumer held",
            Self::MakeUp => "delivers what nobody published",
            Self::Reorder => "delivers a later message first",
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

/// What goes wrong in one connection.
#[derive(Debug)]
pub(crate) struct Plant {
    pub(crate) faults: Faults,
    pub(crate) rng: Xoshiro256PlusPlus,
}

impl Plant {
    pub(crate) fn new(faults: Faults, seed: u64) -> Self {
        Self { faults, rng: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }

    /// Whether the bug strikes now.
    pub(crate) fn strikes(&mut self, bug: Bug) -> bool {
        self.faults.bug == Some(bug) && self.rng.random_range(0..self.faults.every) == 0
    }

    /// Whether the answer never comes.
    pub(crate) fn is_unanswered(&mut self) -> bool {
        self.faults.timeouts > 0.0 && self.rng.random::<f64>() < self.faults.timeouts
    }
}
