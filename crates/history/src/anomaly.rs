//! The anomalies, and which levels of isolation forbid them.

use std::fmt;

/// The shape of a cycle of dependencies, from the strongest accusation to the weakest. A level that forbids a shape forbids
/// those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shape {
    /// Writes alone: T1 overwrote T2 here, and T2 overwrote T1 there.
    G0,
    /// Writes and reads of what was written: each transaction depends on what the other did.
    G1c,
    /// One edge is that of a read to the write that replaced what it read.
    GSingle,
    /// Two such edges or more, never two in a row.
    GNonadjacent,
    /// Two such edges or more, two of them in a row.
    G2Item,
}

/// Which order beyond that of the data a cycle needs, or a guarantee includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Order {
    /// None: the data alone.
    Data,
    /// The order of transactions in a session (*strong session*).
    Session,
    /// The order in real time: a transaction that ended before another began comes first (*strict*).
    RealTime,
}

/// What can be wrong with a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Anomaly {
    /// A value was read that nobody wrote there.
    GarbageRead,
    /// A list holds a value twice that was appended once.
    DuplicateElements,
    /// A transaction did not see what it had written itself.
    Internal,
    /// A transaction read a value that it wrote only afterwards.
    FutureRead,
    /// Lists were read of which neither is the beginning of the other.
    IncompatibleOrder,
    /// A committed transaction read what an aborted one wrote.
    G1a,
    /// A committed transaction wrote on top of what an aborted one wrote.
    DirtyUpdate,
    /// A transaction read a value that its writer had replaced before it committed.
    G1b,
    /// A transaction saw one write of another, and after that not another write of it (OTV).
    ObservedTransactionVanishes,
    /// The same, where the transaction itself had written the object before it saw the first write there. A store that writes on
    /// top of what is newer than its snapshot shows that beside the snapshot.
    ObservedTransactionVanishesAfterWrite,
    /// A transaction read the same object twice, and it had changed.
    NonRepeatableRead,
    /// The same, where the transaction itself had also written the object before it read it again.
    NonRepeatableReadAfterWrite,
    /// Two committed transactions read the same version of an object, and both replaced it.
    LostUpdate,
    /// The sum over all accounts was not what transfers leave it at.
    WrongTotal,
    /// The same, where the transaction itself had moved money before, and had read something before that.
    WrongTotalAfterWrite,
    /// Transactions that each must come before the next, in a circle.
    Cycle(Shape, Order),
}

/// A level of isolation, as Adya defines it by what it forbids. Predicates are not tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// PL-1.
    ReadUncommitted,
    /// PL-2.
    ReadCommitted,
    /// MAV: once a part of a transaction was seen, so are the others.
    MonotonicAtomicView,
    /// PL-2+: what a transaction reads belongs together.
    ConsistentView,
    /// PL-SI.
    SnapshotIsolation,
    /// PL-2.99.
    RepeatableRead,
    /// PL-3.
    Serializable,
}

/// A level together with an order that it is to respect: `Serializable` and `RealTime` is strict serializability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guarantee {
    /// The level.
    pub level: Level,
    /// The order.
    pub order: Order,
}

/// What an anomaly is called in papers and tools, in words, and as a finding, and what is counted of it.
struct Words {
    name: &'static str,
    title: &'static str,
    finding: &'static str,
    unit: &'static str,
}

impl Shape {
    /// All shapes, the strongest accusation first.
    pub const ALL: [Self; 5] = [Self::G0, Self::G1c, Self::GSingle, Self::GNonadjacent, Self::G2Item];
}

impl Order {
    /// All orders, the weakest first.
    pub const ALL: [Self; 3] = [Self::Data, Self::Session, Self::RealTime];
}

impl Level {
    /// All levels, from the weakest on; snapshot isolation and repeatable read cannot be compared.
    pub const ALL: [Self; 7] = [
        Self::ReadUncommitted,
        Self::ReadCommitted,
        Self::MonotonicAtomicView,
        Self::ConsistentView,
        Self::SnapshotIsolation,
        Self::RepeatableRead,
        Self::Serializable,
    ];

    /// The level in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "read uncommitted",
            Self::ReadCommitted => "read committed",
            Self::MonotonicAtomicView => "monotonic atomic view",
            Self::ConsistentView => "consistent view",
            Self::SnapshotIsolation => "snapshot isolation",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }

    /// Adya's name, or that of the paper that defines it.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "PL-1",
            Self::ReadCommitted => "PL-2",
            Self::MonotonicAtomicView => "MAV",
            Self::ConsistentView => "PL-2+",
            Self::SnapshotIsolation => "PL-SI",
            Self::RepeatableRead => "PL-2.99",
            Self::Serializable => "PL-3",
        }
    }

    fn forbids_shape(self, shape: Shape) -> bool {
        match shape {
            Shape::G0 => true,
            Shape::G1c => self >= Self::ReadCommitted,
            Shape::GSingle => self >= Self::ConsistentView,
            Shape::GNonadjacent => self >= Self::SnapshotIsolation,
            Shape::G2Item => self >= Self::RepeatableRead,
        }
    }
}

impl Anomaly {
    /// Every anomaly that is looked for, the gravest first.
    pub fn all() -> impl Iterator<Item = Self> {
        let direct = [
            Self::GarbageRead,
            Self::DuplicateElements,
            Self::Internal,
            Self::FutureRead,
            Self::IncompatibleOrder,
            Self::G1a,
            Self::DirtyUpdate,
            Self::G1b,
            Self::ObservedTransactionVanishes,
            Self::ObservedTransactionVanishesAfterWrite,
            Self::NonRepeatableRead,
            Self::NonRepeatableReadAfterWrite,
            Self::LostUpdate,
            Self::WrongTotal,
            Self::WrongTotalAfterWrite,
        ];
        let cycles =
            Order::ALL.into_iter().flat_map(|order| Shape::ALL.map(|shape| Self::Cycle(shape, order)));
        direct.into_iter().chain(cycles)
    }

    fn words(self) -> Words {
        let (name, title, finding, unit) = match self {
            Self::GarbageRead => {
                ("garbage-read", "read of a value that nobody wrote", "garbage_read", "values")
            }
            Self::DuplicateElements => {
                ("duplicate-elements", "value twice in a list", "duplicate_elements", "values")
            }
            Self::Internal => ("internal", "own write not seen", "own_write_unseen", "transactions"),
            Self::FutureRead => ("future-read", "own write seen too early", "future_read", "transactions"),
            Self::IncompatibleOrder => {
                ("incompatible-order", "two orders of one list", "incompatible_order", "lists")
            }
            Self::G1a => ("G1a", "aborted read", "aborted_read", "transactions"),
            Self::DirtyUpdate => ("dirty-update", "dirty update", "dirty_update", "transactions"),
            Self::G1b => ("G1b", "intermediate read", "intermediate_read", "transactions"),
            Self::ObservedTransactionVanishes => {
                ("OTV", "observed transaction vanishes", "observed_transaction_vanishes", "transactions")
            }
            Self::ObservedTransactionVanishesAfterWrite => (
                "OTV-write",
                "observed transaction vanishes in an own row",
                "observed_transaction_vanishes_after_write",
                "transactions",
            ),
            Self::NonRepeatableRead => {
                ("non-repeatable-read", "non-repeatable read", "non_repeatable_read", "versions")
            }
            Self::NonRepeatableReadAfterWrite => (
                "non-repeatable-read-write",
                "non-repeatable read of an own row",
                "non_repeatable_read_after_write",
                "versions",
            ),
            Self::LostUpdate => ("lost-update", "lost update", "lost_updates", "versions"),
            Self::WrongTotal => ("wrong-total", "wrong total", "wrong_total", "transactions"),
            Self::WrongTotalAfterWrite => (
                "wrong-total-write",
                "wrong total after an own transfer",
                "wrong_total_after_write",
                "transactions",
            ),
            Self::Cycle(Shape::G0, _) => ("G0", "write cycle", "write_cycle", "cycles"),
            Self::Cycle(Shape::G1c, _) => {
                ("G1c", "circular information flow", "circular_information_flow", "cycles")
            }
            Self::Cycle(Shape::GSingle, _) => ("G-single", "read skew", "read_skew", "cycles"),
            Self::Cycle(Shape::GNonadjacent, _) => ("G-nonadjacent", "long fork", "long_fork", "cycles"),
            Self::Cycle(Shape::G2Item, _) => ("G2-item", "write skew", "write_skew", "cycles"),
        };
        Words { name, title, finding, unit }
    }

    fn order(self) -> Order {
        if let Self::Cycle(_, order) = self { order } else { Order::Data }
    }

    /// The name that tools and papers use, such as `G-single` or `G2-item-realtime`.
    #[must_use]
    pub fn name(self) -> String {
        let suffix = match self.order() {
            Order::Data => "",
            Order::Session => "-session",
            Order::RealTime => "-realtime",
        };
        format!("{}{suffix}", self.words().name)
    }

    /// The anomaly in words, such as `read skew` or `write skew against real time`.
    #[must_use]
    pub fn title(self) -> String {
        let suffix = match self.order() {
            Order::Data => "",
            Order::Session => " against the order of a session",
            Order::RealTime => " against real time",
        };
        format!("{}{suffix}", self.words().title)
    }

    /// The anomaly in words, and its name where that is one of papers: `lost update`, `read skew (G-single)`.
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Self::G1a | Self::G1b | Self::ObservedTransactionVanishes | Self::Cycle(..) => {
                format!("{} ({})", self.title(), self.name())
            }
            _ => self.title(),
        }
    }

    /// The name of the finding that counts it, such as `read_skew` or `write_skew_against_real_time`.
    #[must_use]
    pub fn finding(self) -> String {
        let suffix = match self.order() {
            Order::Data => "",
            Order::Session => "_against_the_order_of_a_session",
            Order::RealTime => "_against_real_time",
        };
        format!("{}{suffix}", self.words().finding)
    }

    /// What is counted: independent occurrences, as far as there are such. What many transactions can see of one fault is counted
    /// once: a transaction whose writes others saw, a version that changed while others read it.
    #[must_use]
    pub fn unit(self) -> &'static str {
        self.words().unit
    }

    /// Whether one fault may be counted more than once, so that no interval of the count can be told: a sum stays wrong for all who
    /// read it, and nothing says whether it is wrong for the same reason.
    #[must_use]
    pub fn comes_in_clusters(self) -> bool {
        matches!(self, Self::WrongTotal | Self::WrongTotalAfterWrite)
    }

    /// Whether the guarantee forbids it, by the definitions of Adya (and of Bailis and others for MAV). What a store's
    /// documentation promises may be less.
    #[must_use]
    pub fn forbidden_by(self, guarantee: Guarantee) -> bool {
        let level = guarantee.level;
        match self {
            // Adya's histories cannot even express these: reads return what was written, and own writes are seen
            Self::GarbageRead | Self::DuplicateElements | Self::Internal => true,
            Self::FutureRead | Self::IncompatibleOrder | Self::G1a | Self::DirtyUpdate | Self::G1b => {
                level >= Level::ReadCommitted
            }
            Self::ObservedTransactionVanishes | Self::ObservedTransactionVanishesAfterWrite => {
                level >= Level::MonotonicAtomicView
            }
            // each of them is a G-single
            Self::NonRepeatableRead
            | Self::NonRepeatableReadAfterWrite
            | Self::LostUpdate
            | Self::WrongTotal
            | Self::WrongTotalAfterWrite => level >= Level::ConsistentView,
            Self::Cycle(shape, order) => guarantee.order >= order && level.forbids_shape(shape),
        }
    }

    /// The weakest levels that forbid it, each with the order that it must respect.
    #[must_use]
    pub fn weakest_forbidding(self) -> Guarantee {
        let order = self.order();
        let level = Level::ALL.into_iter().find(|&level| self.forbidden_by(Guarantee { level, order }));
        Guarantee { level: level.unwrap_or(Level::Serializable), order }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = match self.order {
            Order::Data => "",
            Order::Session => "strong session ",
            Order::RealTime => "strict ",
        };
        write!(f, "{order}{}", self.level.name())
    }
}
