//! Faults of the reference store. Bugs are planted to prove that every audit catches its own. Timeouts, conflicts,
//! lost connections and outages are what a correct store and its network do, and no audit may call them a bug.

use std::{fmt, sync::Arc};

use acidtest_model::{Consistency, Promotion, Replication};
use acidtest_workloads::{
    Attempt, Fault,
    guarantee::{CONSISTENCY, MONOTONIC_READS, READ_YOUR_WRITES, REPLICATION},
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::world::World;

/// A violation of a guarantee that the reference store can be told to commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bug {
    /// Acknowledges a write and drops it.
    DropWrite,
    /// Applies an acknowledged write twice.
    ApplyTwice,
    /// Captures more units than a tuple of the inventory has.
    Oversell,
    /// Applies and acknowledges a part of an operation as if it were the whole: of a record half of its
    /// fields, of a message not all of its bytes.
    Tear,
    /// Answers that an operation failed without effect, and applies it later.
    LateApply,
    /// Believes something between client and store that says "failed", although it had passed the operation on.
    BelieveProxy,
    /// Acknowledges a write that becomes visible only some time after its answer.
    HideCommit,
    /// Raises a record's version and leaves its fields unchanged.
    KeepFields,
    /// Writes the fields of an update also into another record, whose version stays the same.
    StrayFields,
    /// Acknowledges an update with the version that the record had before it.
    OldVersion,
    /// Acknowledges an insert and drops it.
    LoseInsert,
    /// Inserts a record twice.
    DoubleInsert,
    /// Answers that an insert failed without effect, and keeps the record.
    KeepInsert,
    /// Answers a read with fields of two versions of the record.
    TearRead,
    /// Answers a read with the version before the current one.
    StaleRead,
    /// Answers a read with no record although there is one.
    MissRead,
    /// Leaves one row out of a join's answer.
    MissRow,
    /// Puts one row into a join's answer twice, in place of another.
    DoubleRow,
    /// Delivers a message again after the store has confirmed the consumer's acknowledgement of it.
    Redeliver,
    /// Delivers again the messages that a lost consumer held, without the redelivered flag.
    Unflag,
    /// Loses the messages that a lost consumer held.
    LoseHeld,
    /// Delivers a message that nobody published.
    MakeUp,
    /// Delivers a message before the one that came before it.
    Reorder,
    /// Gives a parcel's scan the count of the one before it.
    RepeatCount,
    /// Leaves a parcel's next count out.
    SkipCount,
    /// Takes an eighth scan of a parcel.
    EighthScan,
    /// Gives two rows the same id.
    RepeatId,
    /// Stores a row with another id than it has told.
    OtherId,
    /// Refuses a scan of a parcel that has fewer than seven.
    RefuseEarly,
    /// Writes a scan in the place of the parcel's last one.
    Overwrite,
    /// Answers a read with a row that was not asked for.
    OtherRow,
    /// Commits a transaction although others have changed what it read.
    SkipCheck,
    /// Reads what another transaction has written and not committed.
    DirtyRead,
    /// Commits half of a transaction, and the other half later.
    CommitInParts,
    /// Adds a value to a list before the last one instead of after it.
    Squeeze,
    /// Adds up all accounts but one.
    SumInParts,
    /// Is killed, and has lost the last writes that it acknowledged.
    LoseLast,
    /// Is killed, and has lost a write from the middle.
    LoseMiddle,
    /// Is killed, and has lost all that one client wrote.
    LoseClient,
    /// Is killed, and has kept half of a transaction.
    ForgetHalf,
    /// Is killed, and has again what was removed.
    BringBack,
    /// Is killed, and has lost the messages that consumers had been handed and had not acknowledged.
    ForgetHeld,
    /// Acknowledges what the leader alone has while it is cut off, and the one that is promoted has not: as where two sides take
    /// writes and those of one are dropped, where a minority confirms them, or where a wait for replicas that was given up is taken
    /// for their confirmation.
    SplitBrain,
    /// Answers reads at a leader that another one was promoted over, after the cluster is said to be whole: nobody fenced it.
    StaleLeader,
    /// Answers a read at a replica that has not applied all that was acknowledged before, although it was to wait for that.
    LagBehind,
    /// Answers a client at a replica without the last write of its own, although that was acknowledged.
    HideOwn,
    /// Answers a client at a replica with an older version of a record than it has answered it with before.
    GoBack,
    /// Shows at a replica what the leader has not committed, and never does.
    ShowUncommitted,
    /// Has half of a record at a replica until that is written again.
    TearAtReplica,
    /// Lacks a record at a replica until that is written again.
    LackAtReplica,
}

impl Bug {
    /// The bugs that the inventory workload can have.
    pub const INVENTORY: [Self; 7] = [
        Self::DropWrite,
        Self::ApplyTwice,
        Self::Oversell,
        Self::Tear,
        Self::LateApply,
        Self::HideCommit,
        Self::BelieveProxy,
    ];

    /// The bugs that the records workload can have.
    pub const RECORDS: [Self; 15] = [
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
        Self::BelieveProxy,
    ];

    /// The bugs that the join workload can have.
    pub const JOIN: [Self; 2] = [Self::MissRow, Self::DoubleRow];

    /// The bugs that the queue workload can have.
    pub const QUEUE: [Self; 11] = [
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
        Self::BelieveProxy,
    ];

    /// The bugs that the logs workload can have.
    pub const LOGS: [Self; 6] =
        [Self::DropWrite, Self::ApplyTwice, Self::Tear, Self::LateApply, Self::MakeUp, Self::BelieveProxy];

    /// The bugs that the parcels workload can have.
    pub const PARCELS: [Self; 17] = [
        Self::DropWrite,
        Self::ApplyTwice,
        Self::Tear,
        Self::LateApply,
        Self::HideCommit,
        Self::KeepInsert,
        Self::MissRead,
        Self::MakeUp,
        Self::RepeatCount,
        Self::SkipCount,
        Self::EighthScan,
        Self::RepeatId,
        Self::OtherId,
        Self::RefuseEarly,
        Self::Overwrite,
        Self::OtherRow,
        Self::BelieveProxy,
    ];

    /// The bugs that the transactions workload can have.
    pub const TRANSACTIONS: [Self; 14] = [
        Self::DropWrite,
        Self::ApplyTwice,
        Self::Tear,
        Self::LateApply,
        Self::HideCommit,
        Self::StaleRead,
        Self::MissRead,
        Self::MakeUp,
        Self::SkipCheck,
        Self::DirtyRead,
        Self::CommitInParts,
        Self::Squeeze,
        Self::SumInParts,
        Self::BelieveProxy,
    ];

    /// What a store may do that is killed, whatever its workload.
    pub const AT_A_KILL: [Self; 4] = [Self::LoseLast, Self::LoseMiddle, Self::LoseClient, Self::ForgetHalf];

    /// What a queue may do besides that is killed.
    pub const QUEUE_AT_A_KILL: [Self; 2] = [Self::BringBack, Self::ForgetHeld];

    /// What a cluster may do besides, whose acknowledgements wait for a quorum. There, [`Bug::LoseLast`] is the promotion of a
    /// replica that has less than others, [`Bug::LoseClient`] that of one that some clients' writes never reached.
    pub const IN_A_CLUSTER: [Self; 2] = [Self::SplitBrain, Self::StaleLeader];

    /// What a cluster may do besides whose replicas answer reads, of which everybody is promised to see what was acknowledged.
    pub const OF_STRONG_REPLICAS: [Self; 3] = [Self::LagBehind, Self::HideOwn, Self::GoBack];

    /// What a cluster may do besides whose replicas answer reads, whatever these are promised to see.
    pub const OF_REPLICAS: [Self; 3] = [Self::ShowUncommitted, Self::TearAtReplica, Self::LackAtReplica];

    /// Whether the bug shows only at replicas that are read.
    #[must_use]
    pub fn strikes_at_replicas(self) -> bool {
        Self::OF_STRONG_REPLICAS.contains(&self) || Self::OF_REPLICAS.contains(&self)
    }

    /// Whether the bug shows only once the store was killed. It then strikes at every kill.
    #[must_use]
    pub fn strikes_at_a_kill(self) -> bool {
        Self::QUEUE_AT_A_KILL.contains(&self) || Self::AT_A_KILL.contains(&self)
    }

    /// The violation in a few words, for reports.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::DropWrite => "drops an acknowledged write",
            Self::ApplyTwice => "applies a write twice",
            Self::Oversell => "takes units that are not there",
            Self::Tear => "tears an operation",
            Self::LateApply => "says failed, applies it after all",
            Self::BelieveProxy => "believes a proxy that says failed",
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
            Self::RepeatCount => "gives a count twice",
            Self::SkipCount => "leaves a count out",
            Self::EighthScan => "takes an eighth scan",
            Self::RepeatId => "gives an id twice",
            Self::OtherId => "stores another id than it told",
            Self::RefuseEarly => "refuses what there is room for",
            Self::Overwrite => "writes a row over another",
            Self::OtherRow => "reads a row that was not asked for",
            Self::SkipCheck => "commits upon what has changed",
            Self::DirtyRead => "reads what is not committed",
            Self::CommitInParts => "commits in two parts",
            Self::Squeeze => "puts a value before the last one",
            Self::SumInParts => "adds up all accounts but one",
            Self::LoseLast => "is killed, loses the last writes",
            Self::LoseMiddle => "is killed, loses one from the middle",
            Self::LoseClient => "is killed, loses all of one client",
            Self::ForgetHalf => "is killed, keeps half a transaction",
            Self::BringBack => "is killed, brings back what was removed",
            Self::ForgetHeld => "is killed, forgets what was handed out",
            Self::SplitBrain => "is cut off, acknowledges what nobody else has",
            Self::StaleLeader => "was promoted over, answers all the same",
            Self::LagBehind => "answers at a replica that lags",
            Self::HideOwn => "hides a client's own write at a replica",
            Self::GoBack => "goes back at a replica",
            Self::ShowUncommitted => "shows what is never committed",
            Self::TearAtReplica => "has half of a record at a replica",
            Self::LackAtReplica => "lacks a record at a replica",
        }
    }
}

/// Which faults a store has, and how often. A correct store may do all of this except the bug. Every share is a
/// fraction of operations, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, reason = "each is a thing of its own that goes wrong or not")]
pub struct Faults {
    /// The planted bug, which strikes in one of [`Faults::every`] operations, drawn at random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bug: Option<Bug>,
    /// The average number of operations per strike of the bug; at least 1 where a bug is planted.
    #[serde(skip_serializing_if = "is_zero")]
    pub every: u32,
    /// Share of operations whose answer never comes. They are applied at once, applied later, or not applied.
    pub unanswered: f64,
    /// Share of requests that take 1 to 12 ms to the store, and likewise share of answers that take 1 to 12 ms back,
    /// which may be after the client's timeout.
    pub delays: f64,
    /// Share of operations that end in a conflict with another client and change nothing.
    pub conflicts: f64,
    /// Share of operations that the store answers as failed, without effect. With some of them it says that it serves nobody
    /// for now.
    pub failures: f64,
    /// How many changes of a trial the store has room for: every later one fails without effect, as on a disk that is full. No
    /// limit where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<u64>,
    /// Share of operations that something between client and store, such as a proxy, has passed on, and answers with an
    /// error of its own.
    pub swapped: f64,
    /// Share of operations that lose the connection: half with the request, half with the answer.
    pub cuts: f64,
    /// Share of a queue's fetches at which a message that another consumer holds is handed out again, flagged as
    /// redelivered, as after an acknowledgement timeout.
    pub redeliveries: f64,
    /// Whether the store has outages, after which all its data are there again.
    pub outages: bool,
    /// What acknowledgements wait for, where the store is a cluster: [async](Replication::Async) or [quorum](Replication::Quorum). Each
    /// outage is then the loss of its leader, or a cut between that and the others, and the promotion of a replica. At the level
    /// *async* it need not have the last writes, nor any that a leader took that was cut off.
    #[serde(skip_serializing_if = "is_none")]
    pub replication: Replication,
    /// What reads at replicas are promised to see, where two of these follow the leader and answer reads of records: each some commits
    /// behind at the level [eventual](Consistency::Eventual), at once at the level [strong](Consistency::Strong).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Consistency>,
    /// Whether the leader of a cluster that is cut off goes on answering reads after another was promoted, of which it knows nothing.
    #[serde(skip_serializing_if = "is_not")]
    pub reads_cut_off: bool,
    /// Whether nobody is told of the outages, as of a server that somebody else starts again.
    pub unasked: bool,
    /// Whether another server answers after an outage, which need not have all that the one before it had.
    pub fails_over: bool,
    /// Whether connections end at a pooler, or a proxy with connections of its own, and so outlive an outage: what is asked
    /// meanwhile, or was on its way when it began, is answered with an error. Of no effect on a queue, whose consumers hold messages
    /// by their connection.
    pub pooled: bool,
    /// Whether a queue does not tell first deliveries from redeliveries.
    pub unflagged: bool,
    /// Whether a queue hands out messages in advance and leaves consumers' acknowledgements without an answer, so that a
    /// consumer may go on for a while after the store has ended.
    pub unconfirmed: bool,
    /// Whether the faults also strike while the audit reads the data back.
    pub to_the_end: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_none(replication: &Replication) -> bool {
    *replication == Replication::None
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_not(is: &bool) -> bool {
    !is
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_zero(every: &u32) -> bool {
    *every == 0
}

/// How many nodes a cluster has.
const NODES: u32 = 3;

impl Faults {
    /// Checks that every value is in its range: shares from 0 to 1, and `every` at least 1 where a bug is planted.
    ///
    /// # Errors
    /// Names the first value that is out of range, or says what a cluster cannot be.
    pub fn check(&self) -> Result<(), String> {
        if self.bug.is_some() && self.every == 0 {
            return Err("every must be at least 1 where a bug is planted".to_owned());
        }
        let loses = self.bug.is_some_and(Bug::strikes_at_a_kill);
        let is_of_cluster = self.bug.is_some_and(|bug| Bug::IN_A_CLUSTER.contains(&bug));
        let is_strong = self.replicas == Some(Consistency::Strong);
        let meaningless = [
            (
                matches!(self.replication, Replication::Semi | Replication::All),
                "replication must be async or quorum",
            ),
            (
                self.is_cluster() && !self.outages,
                "a cluster whose leader is never lost needs no replication: set outages",
            ),
            (
                self.is_cluster() && self.unasked,
                "an unasked outage is that of one server: leave out replication or unasked",
            ),
            (
                self.is_cluster() && self.fails_over,
                "another server of which nobody knows what it has is no replica: leave out \
              replication or fails_over",
            ),
            (
                loses && self.replication == Replication::Async,
                "at async the last writes are lost without a bug: use quorum",
            ),
            (
                is_of_cluster && self.replication != Replication::Quorum,
                "this bug is one of a cluster: set replication to quorum",
            ),
            (
                self.replicas.is_some() && self.outages && !self.is_cluster(),
                "a server that has replicas is one of a cluster: set replication, or leave out outages",
            ),
            (
                is_strong && self.replication == Replication::Async,
                "at async no replica need have what was acknowledged: set replicas to eventual",
            ),
            (
                self.replicas.is_none() && self.bug.is_some_and(Bug::strikes_at_replicas),
                "this bug is one of replicas that are read: set replicas",
            ),
            (
                !is_strong && self.bug.is_some_and(|bug| Bug::OF_STRONG_REPLICAS.contains(&bug)),
                "at eventual this is no bug: set replicas to strong",
            ),
        ];
        if let Some((_, why)) = meaningless.into_iter().find(|(is, _)| *is) {
            return Err(why.to_owned());
        }
        let shares = [
            ("unanswered", self.unanswered),
            ("delays", self.delays),
            ("conflicts", self.conflicts),
            ("failures", self.failures),
            ("swapped", self.swapped),
            ("cuts", self.cuts),
            ("redeliveries", self.redeliveries),
        ];
        let wrong = shares.into_iter().find(|(_, share)| !(0.0..=1.0).contains(share));
        wrong.map_or(Ok(()), |(name, _)| Err(format!("{name} must be between 0 and 1")))
    }

    /// A store whose only fault is this bug, in one of 20 operations.
    #[must_use]
    pub fn bug(bug: Bug) -> Self {
        Self::default().with(bug)
    }

    /// A correct store that leaves this share of operations unanswered.
    #[must_use]
    pub fn unanswered(share: f64) -> Self {
        Self { unanswered: share, ..Self::default() }
    }

    /// A correct store behind a proxy that answers this share of operations with an error of its own.
    #[must_use]
    pub fn swapped(share: f64) -> Self {
        Self { swapped: share, ..Self::default() }
    }

    /// A correct cluster of this level whose leader is lost or cut off again and again.
    #[must_use]
    pub fn cluster(replication: Replication) -> Self {
        Self { outages: true, replication, ..Self::default() }
    }

    /// A correct store whose replicas answer reads.
    #[must_use]
    pub fn replicas(consistency: Consistency) -> Self {
        Self { replicas: Some(consistency), ..Self::default() }
    }

    /// The same faults with this bug in one of 20 operations, or at every kill; in a cluster, where it is a bug of that.
    #[must_use]
    pub fn with(self, bug: Bug) -> Self {
        let faults = Self { bug: Some(bug), every: 20, ..self };
        if Bug::IN_A_CLUSTER.contains(&bug) {
            return Self { outages: true, replication: Replication::Quorum, ..faults };
        }
        if Bug::OF_STRONG_REPLICAS.contains(&bug) {
            return Self { replicas: Some(Consistency::Strong), ..faults };
        }
        if Bug::OF_REPLICAS.contains(&bug) {
            return Self { replicas: faults.replicas.or(Some(Consistency::Eventual)), ..faults };
        }
        Self { outages: self.outages || bug.strikes_at_a_kill(), ..faults }
    }

    /// Whether the store is a cluster.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        self.replication != Replication::None
    }

    /// The guarantee that a cluster does without: at the level *async* an acknowledged write need not survive its leader.
    #[must_use]
    pub fn without(&self) -> Option<&'static str> {
        let survives = self.replication.survives_promotion(Promotion::MostAdvanced, NODES);
        (self.is_cluster() && !survives).then_some(REPLICATION.name)
    }

    /// The guarantees that reads at replicas do without: while leaders are lost, a client may be answered by one and then by another
    /// that has less.
    #[must_use]
    pub fn without_at_replicas(&self) -> &'static [&'static str] {
        const OF_READS: [&str; 3] = [CONSISTENCY.name, READ_YOUR_WRITES.name, MONOTONIC_READS.name];
        if self.replicas.is_some() && self.outages { &OF_READS } else { &[] }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |share: f64, what: &str| (share > 0.0).then(|| format!("{:.0} % {what}", share * 100.0));
        let is = |is: bool, what: &str| is.then(|| what.to_owned());
        let all = [
            self.bug.map(|bug| {
                let often = format!(", one operation in {}", self.every);
                format!("{}{}", bug.meaning(), if bug.strikes_at_a_kill() { "" } else { &often })
            }),
            share(self.unanswered, "unanswered"),
            share(self.delays, "slow"),
            share(self.conflicts, "conflicts"),
            share(self.failures, "failures"),
            self.full.map(|changes| format!("full after {changes} changes")),
            share(self.swapped, "answered by a proxy"),
            share(self.cuts, "connections lost"),
            share(self.redeliveries, "delivered again"),
            is(self.outages && !self.is_cluster(), "away now and then"),
            is(
                self.is_cluster(),
                &format!("a cluster, replication {}, leaders lost", self.replication.name()),
            ),
            self.replicas.map(|consistency| format!("replicas that are read, consistency {consistency}")),
            is(self.reads_cut_off, "which answer reads when cut off"),
            is(self.unasked, "which nobody is told of"),
            is(self.fails_over, "and then another server"),
            is(self.pooled, "behind a pooler"),
            is(self.unflagged, "no flags"),
            is(self.unconfirmed, "no answers to acknowledgements"),
            is(self.to_the_end, "to the end"),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        f.write_str(&if all.is_empty() { "none".to_owned() } else { all.join(", ") })
    }
}

/// What something between client and store says in the place of an answer.
pub(crate) const SWAPPED: &str = "planted: an error of a proxy that has passed it on";

/// Draws the faults of one connection, with a random generator of its own.
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

    /// Draws whether this bug strikes in the current operation, and counts the strike if so.
    pub(crate) fn strikes(&mut self, bug: Bug) -> bool {
        let strikes = self.has(bug) && self.rng.random_range(0..self.faults.every.max(1)) == 0;
        if strikes {
            self.world.struck();
        }
        strikes
    }

    /// Whether this bug is planted and turned on.
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.faults.bug == Some(bug) && !self.world.is_sound()
    }

    /// How a store without room answers a change; none where it has room for it.
    pub(crate) fn no_room(&self) -> Option<Attempt> {
        let full = self.faults.full.is_some_and(|changes| self.world.change() >= changes);
        full.then(|| Attempt::Failed(Fault::answered("planted: no room is left for it")))
    }

    /// Draws true with this probability, from 0 to 1.
    pub(crate) fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.random::<f64>() < share
    }

    /// Draws whether the current operation is left without an answer.
    pub(crate) fn is_unanswered(&mut self) -> bool {
        self.happens(self.faults.unanswered)
    }

    /// How the store answers an operation that has failed without effect: one time in eight, that it serves nobody for now.
    pub(crate) fn failure(&mut self) -> Attempt {
        let words = "planted: the store failed to do it";
        Attempt::Failed(if self.happens(0.125) { Fault::turned_away(words) } else { Fault::answered(words) })
    }

    /// What becomes of an outcome whose answer something between client and store may swap for an error of its own. It is
    /// unknown then, unless the client believes the error.
    pub(crate) fn passed_on(&mut self, attempt: Attempt) -> Attempt {
        if attempt == Attempt::Ok && self.strikes(Bug::BelieveProxy) {
            return Attempt::Failed(Fault::answered(SWAPPED));
        }
        if self.is_swapped() { Attempt::Unknown(Fault::lost(SWAPPED)) } else { attempt }
    }

    /// Draws whether the answer to the current operation is swapped for an error.
    pub(crate) fn is_swapped(&mut self) -> bool {
        self.happens(self.faults.swapped)
    }

    /// Lets other clients run: for 1 ms where delays are drawn, else for one turn of the scheduler.
    pub(crate) async fn give_way(&mut self) {
        if self.happens(self.faults.delays) {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
}
