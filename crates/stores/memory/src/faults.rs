//! What goes wrong: bugs to plant, so that every audit is seen to catch its own, and what a correct store and its
//! network do to their clients, of which no audit may make a bug.

use std::{fmt, sync::Arc};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::world::World;

/// A bug that a store could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    /// Writes the fields of an update into another record, too, which keeps its version.
    StrayFields,
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
    pub const RECORDS: [Self; 14] = [
        Self::DropWrite,
        Self::ApplyTwice,
        Self::Tear,
        Self::LateApply,
        Self::HideCommit,
        Self::KeepFields,
        Self::StrayFields,
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
            Self::StrayFields => "writes into another record, too",
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
/// What goes wrong, and how often. All but the bug is what a correct store may do; shares are of operations, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, reason = "each is a thing of its own that goes wrong or not")]
pub struct Faults {
    /// A bug, planted in one of [`Faults::every`] operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bug: Option<Bug>,
    /// How rare the bug is.
    #[serde(skip_serializing_if = "is_zero")]
    pub every: u32,
    /// Whose answer never comes. They are applied, not applied, or applied later.
    pub unanswered: f64,
    /// That take some milliseconds on their way to the store, and as many whose answer takes some on its way back: it
    /// may come after the client's timeout.
    pub delays: f64,
    /// That lose against another client, and change nothing.
    pub conflicts: f64,
    /// That the store fails to do, and says so.
    pub failures: f64,
    /// That cost the connection: on their way to the store, or when they are done.
    pub cuts: f64,
    /// Of a queue's: at which what another consumer holds for too long is handed out again, flagged.
    pub redeliveries: f64,
    /// Whether the store goes away every now and then, and comes back with all it had.
    pub outages: bool,
    /// Whether a queue has no word on what it delivers again.
    pub unflagged: bool,
    /// Whether a queue answers no consumer's acknowledgement.
    pub unconfirmed: bool,
    /// Whether all this goes on while the audit reads what is there.
    pub to_the_end: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_zero(every: &u32) -> bool {
    *every == 0
}

impl Faults {
    /// Checks that they can be had.
    ///
    /// # Errors
    /// The first that is out of range.
    pub fn check(&self) -> Result<(), String> {
        if self.bug.is_some() && self.every == 0 {
            return Err("every must be at least 1 where a bug is planted".to_owned());
        }
        let shares = [
            ("unanswered", self.unanswered),
            ("delays", self.delays),
            ("conflicts", self.conflicts),
            ("failures", self.failures),
            ("cuts", self.cuts),
            ("redeliveries", self.redeliveries),
        ];
        let wrong = shares.into_iter().find(|(_, share)| !(0.0..=1.0).contains(share));
        wrong.map_or(Ok(()), |(name, _)| Err(format!("{name} must be between 0 and 1")))
    }

    /// A bug in one of 20 operations.
    #[must_use]
    pub fn bug(bug: Bug) -> Self {
        Self::default().with(bug)
    }

    /// A correct store, of which this share of operations is never answered.
    #[must_use]
    pub fn unanswered(share: f64) -> Self {
        Self { unanswered: share, ..Self::default() }
    }

    /// The same with a bug in one of 20 operations.
    #[must_use]
    pub fn with(self, bug: Bug) -> Self {
        Self { bug: Some(bug), every: 20, ..self }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |share: f64, what: &str| (share > 0.0).then(|| format!("{:.0} % {what}", share * 100.0));
        let is = |is: bool, what: &str| is.then(|| what.to_owned());
        let all = [
            self.bug.map(|bug| format!("{}, one operation in {}", bug.meaning(), self.every)),
            share(self.unanswered, "unanswered"),
            share(self.delays, "slow"),
            share(self.conflicts, "conflicts"),
            share(self.failures, "failures"),
            share(self.cuts, "connections lost"),
            share(self.redeliveries, "delivered again"),
            is(self.outages, "away now and then"),
            is(self.unflagged, "no flags"),
            is(self.unconfirmed, "no answers to acknowledgements"),
            is(self.to_the_end, "to the end"),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        f.write_str(&if all.is_empty() { "none".to_owned() } else { all.join(", ") })
    }
}

/// What goes wrong on one connection.
#[derive(Debug)]
pub(crate) struct Plant {
    pub(crate) world: Arc<World>,
    pub(crate) faults: Faults,
    pub(crate) rng: Xoshiro256PlusPlus,
}

impl Plant {
    pub(crate) fn new(world: &Arc<World>, faults: Faults) -> Self {
        Self { world: Arc::clone(world), faults, rng: Xoshiro256PlusPlus::seed_from_u64(world.next_seed()) }
    }

    /// Whether the bug strikes now.
    pub(crate) fn strikes(&mut self, bug: Bug) -> bool {
        let strikes = self.has(bug) && self.rng.random_range(0..self.faults.every.max(1)) == 0;
        if strikes {
            self.world.struck();
        }
        strikes
    }

    /// Whether the bug is planted, and strikes by now.
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.faults.bug == Some(bug) && !self.world.is_sound()
    }

    /// Whether this happens now.
    pub(crate) fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.random::<f64>() < share
    }

    /// Whether the answer never comes.
    pub(crate) fn is_unanswered(&mut self) -> bool {
        self.happens(self.faults.unanswered)
    }

    /// Lets others go on, for a moment.
    pub(crate) async fn give_way(&mut self) {
        if self.happens(self.faults.delays) {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
}
