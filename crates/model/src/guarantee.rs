//! The guarantees that a run can ask of a store, and the ones that the store says it gives.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Disruption, NegotiatedTls};

/// How a read-decide-write is protected from others that decide on the same data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Lock {
    /// Read, decide and write without protection. Promises nothing: under contention the audit must show it.
    None,
    /// Optimistic: readers are never blocked, a stale write is refused and tried again.
    Soft,
    /// Pessimistic: others cannot lock, or read for update, until the holder is done.
    Hard,
    /// The store's own best single atomic step.
    Native,
}

impl Lock {
    /// Every mode, in the order in which reports show them: the unprotected baseline first.
    pub const ALL: [Self; 4] = [Self::None, Self::Soft, Self::Hard, Self::Native];

    /// The word that names the mode on the command line, in plans and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Soft => "soft",
            Self::Hard => "hard",
            Self::Native => "native",
        }
    }

    /// The mode in plain words, for tables and help.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::None => "read, decide, write, unprotected",
            Self::Soft => "optimistic: a stale write is refused and tried again",
            Self::Hard => "pessimistic: others wait until the holder is done",
            Self::Native => "the store's own best single atomic step",
        }
    }

    /// Whether a run in this mode promises that the workload's invariants hold.
    #[must_use]
    pub fn promises(self) -> bool {
        self != Self::None
    }
}

/// How much of each other's work concurrent transactions may see, weakest first: the levels of the SQL standard, by
/// their names. The anomalies that a level really allows differ from store to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// A statement also sees changes that others have not committed.
    ReadUncommitted,
    /// A statement sees all that was committed when the statement began.
    ReadCommitted,
    /// A statement sees all that was committed when the transaction began.
    RepeatableRead,
    /// Transactions behave as if they ran one after the other.
    Serializable,
}

impl Isolation {
    /// Every level, weakest first.
    pub const ALL: [Self; 4] =
        [Self::ReadUncommitted, Self::ReadCommitted, Self::RepeatableRead, Self::Serializable];

    /// The word that names the level on the command line, in plans and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "read-uncommitted",
            Self::ReadCommitted => "read-committed",
            Self::RepeatableRead => "repeatable-read",
            Self::Serializable => "serializable",
        }
    }

    /// The level as people write it: `repeatable read`.
    #[must_use]
    pub fn words(self) -> String {
        self.sql().to_lowercase()
    }

    /// The level's name in SQL.
    #[must_use]
    pub fn sql(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "READ UNCOMMITTED",
            Self::ReadCommitted => "READ COMMITTED",
            Self::RepeatableRead => "REPEATABLE READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }
}

/// The crash that an acknowledged write survives: a durability level of the durability ladder, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// An acknowledged write may be lost when the server's process is killed.
    None,
    /// An acknowledged write survives the server's process being killed (`kill -9`), not the loss of the page
    /// cache.
    Process,
    /// A write is synced to disk before it is acknowledged: it survives the loss of power.
    Disk,
}

impl Durability {
    /// Every durability level, weakest first.
    pub const ALL: [Self; 3] = [Self::None, Self::Process, Self::Disk];

    /// The word that names the durability level on the command line, in plans and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Process => "process",
            Self::Disk => "disk",
        }
    }

    /// The durability level in plain words, for tables and help.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::None => "an acknowledged write may be lost when the server is killed",
            Self::Process => "an acknowledged write survives kill -9 of the server, not power loss",
            Self::Disk => "an acknowledged write is synced to disk and survives power loss",
        }
    }
}

/// Whether the connections to a server are encrypted, by TLS.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Encryption {
    /// They are not: who sees the network sees data and, with most stores, passwords.
    #[default]
    Off,
    /// They are, and the server's certificate is checked as its address says.
    On,
}

impl Encryption {
    /// Both, the one without TLS first.
    pub const ALL: [Self; 2] = [Self::Off, Self::On];

    /// The word that names it on the command line, in plans and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
        }
    }

    /// Whether connections are encrypted.
    #[must_use]
    pub fn is_on(self) -> bool {
        self == Self::On
    }

    /// Whether they are not: what a plan or a result that says nothing of it means.
    #[must_use]
    pub fn is_off(&self) -> bool {
        *self == Self::Off
    }
}

/// The loss of nodes that an acknowledged write survives: a level of the replication ladder, weakest first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Replication {
    /// There is one node, and no other has its data.
    #[default]
    None,
    /// Replicas follow; an acknowledgement waits for none of them.
    Async,
    /// As the store's own semi-synchronous mode promises, its timeout included.
    Semi,
    /// An acknowledged write is on more than half of the nodes: it survives the loss of a minority.
    Quorum,
    /// An acknowledged write is on every node.
    All,
}

impl Replication {
    /// Every level, weakest first.
    pub const ALL: [Self; 5] = [Self::None, Self::Async, Self::Semi, Self::Quorum, Self::All];

    /// The word that names the level on the command line, in plans and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Async => "async",
            Self::Semi => "semi",
            Self::Quorum => "quorum",
            Self::All => "all",
        }
    }

    /// The level in plain words, for tables and help.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::None => "one node: what it loses is lost",
            Self::Async => "an acknowledgement waits for no replica: it may be lost with the leader",
            Self::Semi => "an acknowledgement waits for a replica until the store's own timeout",
            Self::Quorum => {
                "an acknowledged write is on a majority, and survives the loss of a minority if the most advanced replica \
                 takes over"
            }
            Self::All => "an acknowledged write is on every node",
        }
    }

    /// Whether it is that of one node: what a plan or a result that says nothing of it means.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// How many of a leader's replicas confirm a write before it is acknowledged: with *quorum* so many that they and the leader are more
    /// than half of the nodes. What *semi* waits for is the store's affair.
    #[must_use]
    pub fn confirming(self, replicas: usize) -> usize {
        match self {
            Self::None | Self::Async | Self::Semi => 0,
            Self::Quorum => replicas.div_ceil(2),
            Self::All => replicas,
        }
    }

    /// Whether an acknowledged write is promised to survive that the leader is lost, and another member promoted by this rule, of
    /// so many nodes.
    #[must_use]
    pub fn survives_promotion(self, by: Promotion, nodes: u32) -> bool {
        match self {
            Self::None | Self::Async | Self::Semi => false,
            // a replica that has confirmed nothing need not have it
            Self::Quorum => by == Promotion::MostAdvanced || nodes == 2,
            Self::All => true,
        }
    }
}

/// Which replica an operator makes the leader when the last one is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Promotion {
    /// The one that has received most of the log.
    #[default]
    MostAdvanced,
    /// The first one by number, whatever it has.
    First,
}

impl Promotion {
    /// Both rules, the safer one first.
    pub const ALL: [Self; 2] = [Self::MostAdvanced, Self::First];

    /// The word that names the rule on the command line, in plans and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MostAdvanced => "most-advanced",
            Self::First => "first",
        }
    }
}

/// Which members of a cluster answer reads that decide nothing.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Reads {
    /// The one that takes writes.
    #[default]
    #[serde(alias = "primary")]
    Leader,
    /// Those that follow it.
    #[serde(alias = "standby")]
    Replica,
    /// Each of them.
    Any,
}

impl Reads {
    /// Every choice: the one that everybody begins with first.
    pub const ALL: [Self; 3] = [Self::Leader, Self::Replica, Self::Any];

    /// The word that names it on the command line, in plans and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Replica => "replica",
            Self::Any => "any",
        }
    }

    /// Whether it is the leader alone: what a plan or a result that says nothing of it means.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        *self == Self::Leader
    }
}

/// Which of the members that may answer its reads a client sends them to.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    /// All to one of them, until that does not answer: one connection.
    #[default]
    Pinned,
    /// Each to the next of them: a connection to each.
    Spread,
}

impl Route {
    /// Both, that of one connection first.
    pub const ALL: [Self; 2] = [Self::Pinned, Self::Spread];

    /// The word that names it on the command line, in plans and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::Spread => "spread",
        }
    }
}

/// What reads at replicas are promised to see, weakest first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Consistency {
    /// They may miss recent writes, which appear later.
    #[default]
    Eventual,
    /// Everything that was acknowledged before they began.
    Strong,
}

impl Consistency {
    /// Every level, weakest first.
    pub const ALL: [Self; 2] = [Self::Eventual, Self::Strong];

    /// The word that names the level on the command line, in plans and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Eventual => "eventual",
            Self::Strong => "strong",
        }
    }
}

/// How the clients of a cluster read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReadPolicy {
    /// Which members answer.
    pub from: Reads,
    /// Which of them a client asks.
    pub route: Route,
    /// What they are promised to see.
    pub consistency: Consistency,
}

impl ReadPolicy {
    /// Whether only the leader answers.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.from.is_leader()
    }
}

/// A word that names none of the known values, with the words that do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} \"{word}\"{} (known are {})", crate::hint(word, known.iter().copied()), known.join(", "))]
pub struct UnknownWord {
    /// The kind of value that was expected (`lock mode`).
    pub what: &'static str,
    /// The word that names none of them, as it was given.
    pub word: String,
    /// The words that name the known values, in the order of `ALL`.
    pub known: Vec<&'static str>,
}

/// Reads and writes a type that is one of a few words: of `ALL`, each with its `name`. It reads other words for them, too.
#[macro_export]
macro_rules! words {
    ($type:ty, $what:literal) => {
        $crate::words!($type, $what, []);
    };
    ($type:ty, $what:literal, [$($also:literal => $value:expr),*]) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::UnknownWord;

            fn from_str(word: &str) -> Result<Self, $crate::UnknownWord> {
                $(if word == $also {
                    return Ok($value);
                })*
                Self::ALL.into_iter().find(|each| each.name() == word).ok_or_else(|| $crate::UnknownWord {
                    what: $what,
                    word: word.to_owned(),
                    known: Self::ALL.map(Self::name).to_vec(),
                })
            }
        }
    };
}

words!(Lock, "lock mode");
words!(Durability, "durability level");
words!(Isolation, "isolation level");
words!(Encryption, "setting of TLS");
words!(Replication, "replication level");
words!(Promotion, "rule of promotion");
words!(Reads, "kind of member to read from", ["primary" => Self::Leader, "standby" => Self::Replica]);
words!(Route, "route of reads");
words!(Consistency, "consistency of reads");

/// The durability level that settings amount to, as far as that is known: *unknown* is no level, and below all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EffectiveDurability {
    /// Which crash an acknowledged write survives is not known, so that nothing is promised of it.
    Unknown,
    /// [`Durability::None`].
    None,
    /// [`Durability::Process`].
    Process,
    /// [`Durability::Disk`].
    Disk,
}

impl EffectiveDurability {
    /// The durability level, where it is known.
    #[must_use]
    pub fn level(self) -> Option<Durability> {
        Durability::ALL.into_iter().find(|level| self == *level)
    }

    /// The word that names it in results and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.level().map_or("unknown", Durability::name)
    }

    /// What it promises, in plain words.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        self.level().map_or(
            "which crash an acknowledged write survives is unknown, so nothing is promised about it",
            Durability::meaning,
        )
    }

    /// Whether acknowledged writes are known to survive that this is done to the member which keeps them.
    #[must_use]
    pub fn survives(self, disruption: &Disruption) -> bool {
        !disruption.begins_epoch() || self >= Self::Process
    }
}

impl From<Durability> for EffectiveDurability {
    fn from(level: Durability) -> Self {
        match level {
            Durability::None => Self::None,
            Durability::Process => Self::Process,
            Durability::Disk => Self::Disk,
        }
    }
}

impl PartialEq<Durability> for EffectiveDurability {
    fn eq(&self, level: &Durability) -> bool {
        *self == Self::from(*level)
    }
}

impl fmt::Display for EffectiveDurability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The version and settings that a server reports, read back after it was opened: never the ones that were asked
/// for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EffectiveSettings {
    /// The server's version, in its own words; for a server that is not the store's product, whose it is.
    pub version: String,
    /// The durability level that the settings amount to; *unknown* on a server that is not known to be the store's
    /// product.
    pub durability: EffectiveDurability,
    /// Why it is that durability level: the settings that decide it, and any doubt about them.
    pub because: String,
    /// The settings that bear on a guarantee or on speed, by the server's own names.
    pub settings: BTreeMap<String, String>,
    /// The TLS that was agreed on; none for a connection without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<NegotiatedTls>,
}

/// What the settings of a cluster amount to, read back from its leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EffectiveReplication {
    /// The replication level.
    pub level: Replication,
    /// Why it is that level: the settings that decide it, by the server's own names.
    pub because: String,
    /// How many replicas follow the leader at this moment.
    pub following: u32,
    /// What a read at a replica is promised to see by the same settings.
    #[serde(default)]
    pub consistency: Consistency,
}

/// What stands in the version of a server that is another product, between the two.
const OVER_THE_PROTOCOL: &str = ", over the protocol of ";

impl EffectiveSettings {
    /// These settings of a server that speaks the protocol of `product`, and does not say of itself that it is that
    /// product but `server`: what they mean to it is not known.
    #[must_use]
    pub fn of_another(self, server: &str, product: &str) -> Self {
        let because = format!(
            "the server says that it is {server}; acidtest knows what the settings of {product} amount to, but not those \
             of this server"
        );
        let version = format!("{server}{OVER_THE_PROTOCOL}{product}");
        Self { version, durability: EffectiveDurability::Unknown, because, ..self }
    }

    /// Whether they are those of another product ([`of_another`](Self::of_another)).
    #[must_use]
    pub fn are_of_another(&self) -> bool {
        self.version.contains(OVER_THE_PROTOCOL)
    }

    /// These settings at the durability level that belongs to the data or to its writers, where the server's own does
    /// not decide. A server of which nothing is known stays one.
    #[must_use]
    pub fn at(&self, durability: Durability, because: String) -> Self {
        match self.durability {
            EffectiveDurability::Unknown => self.clone(),
            _ => Self { durability: durability.into(), because, ..self.clone() },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn words_read_back_as_written() {
        for lock in Lock::ALL {
            assert_eq!(lock.name().parse(), Ok(lock));
        }
        for durability in Durability::ALL {
            assert_eq!(durability.name().parse(), Ok(durability));
        }
        for level in Isolation::ALL {
            assert_eq!(level.name().parse(), Ok(level));
        }
    }

    #[test]
    fn an_unknown_word_says_which_exist() {
        let error = "sofft".parse::<Lock>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown lock mode \"sofft\"; did you mean \"soft\"? (known are none, soft, hard, native)"
        );
    }

    fn settings(durability: Durability) -> EffectiveSettings {
        EffectiveSettings {
            version: "23.2".to_owned(),
            durability: durability.into(),
            because: "it is synced".to_owned(),
            settings: BTreeMap::new(),
            tls: None,
        }
    }

    const KILL: Disruption = Disruption::Kill { down: Duration::ZERO };
    const PAUSE: Disruption = Disruption::Pause { lasting: Duration::from_secs(1) };

    #[test]
    fn what_is_not_known_is_no_level() {
        for level in Durability::ALL {
            let effective = EffectiveDurability::from(level);
            assert_eq!((effective.level(), effective.name()), (Some(level), level.name()));
            assert_eq!(effective.survives(&KILL), level != Durability::None);
            assert!(effective.survives(&PAUSE), "nothing of it is gone");
            assert_eq!(serde_json::to_value(effective).unwrap(), level.name());
            assert!(EffectiveDurability::Unknown < effective && EffectiveDurability::Unknown != level);
        }
        assert_eq!(EffectiveDurability::Unknown.level(), None);
        assert!(
            !EffectiveDurability::Unknown.survives(&KILL) && EffectiveDurability::Unknown.survives(&PAUSE)
        );
        assert_eq!(serde_json::to_value(EffectiveDurability::Unknown).unwrap(), "unknown");
    }

    #[test]
    fn a_server_that_is_another_product_has_no_level_whatever_its_settings_and_data_say() {
        let other = settings(Durability::Disk).of_another("CockroachDB v23.2", "PostgreSQL");
        assert_eq!(other.version, "CockroachDB v23.2, over the protocol of PostgreSQL");
        assert!(other.are_of_another() && !settings(Durability::Disk).are_of_another());
        assert_eq!(other.durability, EffectiveDurability::Unknown);
        assert!(other.because.contains("CockroachDB v23.2"), "{}", other.because);
        assert_eq!(other.at(Durability::Disk, "the queue is synced".to_owned()), other);
        let own = settings(Durability::Disk).at(Durability::Process, "the queue is not".to_owned());
        assert_eq!(
            (own.durability.level(), own.because.as_str()),
            (Some(Durability::Process), "the queue is not")
        );
    }

    #[test]
    fn a_quorum_is_more_than_half_of_the_nodes() {
        for nodes in 2..=9_usize {
            let confirming = Replication::Quorum.confirming(nodes - 1);
            assert!(2 * (confirming + 1) > nodes && 2 * confirming <= nodes, "{nodes}: {confirming}");
            assert_eq!(Replication::All.confirming(nodes - 1), nodes - 1);
            assert_eq!(Replication::Async.confirming(nodes - 1), 0);
        }
    }

    #[test]
    fn only_none_promises_nothing() {
        assert_eq!(Lock::ALL.map(Lock::promises), [false, true, true, true]);
    }
}
