//! Guarantees by name: a finding names the guarantee that would have prevented it, a cell the ones that it does
//! without, and a price the one that it is for. Promise, price and exit status follow from that.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarantee {
    /// Its name in results. If a run can ask for more or less of it, also the name of its dimension of the grid.
    pub name: &'static str,
    /// How much of it a cell can have.
    pub levels: Levels,
    /// The operation that pays for it; `None` where all operations do.
    pub paid_by: Option<&'static str>,
    /// A sentence for readers of a cell that does without it and broke; empty where no cell can do without it.
    pub without: &'static str,
}

/// How much of a guarantee a cell can have, by the value of the guarantee's dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Levels {
    /// Every cell has all of it: no option takes it away, so it has no price.
    Always,
    /// The values in ascending order: each one is more of it than the one before.
    Ordered(&'static [&'static str]),
    /// With one of these values a cell does without it; with any other value it has it.
    Without(&'static [&'static str]),
    /// The value is a number; a higher one is more of it.
    Number,
    /// Several guarantees by their names; where more than one of them differs, they are priced together.
    Together(&'static [&'static str]),
}

impl Guarantee {
    /// A guarantee that no option takes away.
    #[must_use]
    pub const fn always(name: &'static str) -> Self {
        Self { name, levels: Levels::Always, paid_by: None, without: "" }
    }

    /// A guarantee that a run can ask for more or less of, and that all operations pay for.
    #[must_use]
    pub const fn option(name: &'static str, levels: Levels) -> Self {
        Self { name, levels, paid_by: None, without: "" }
    }

    /// The same guarantee, paid for by one operation only.
    #[must_use]
    pub const fn paid_by(self, operation: &'static str) -> Self {
        Self { paid_by: Some(operation), ..self }
    }

    /// Whether a run can ask for more or less of it.
    #[must_use]
    pub fn has_price(&self) -> bool {
        self.levels != Levels::Always
    }
}

/// Read-decide-writes on the same data do not overlap.
pub const LOCK: Guarantee = Guarantee {
    without: "lock none promises nothing: breaking under contention does not fail the run.",
    ..Guarantee::option("lock", Levels::Without(&["none"]))
};

/// Acknowledged writes are still there after the crashes that the durability level names.
pub const DURABILITY: Guarantee = Guarantee {
    without: "durability none or unknown promises nothing about a server that was ended: what is lost then is reported but \
              does not fail the run.",
    ..Guarantee::option("durability", Levels::Ordered(&["none", "process", "disk"]))
};

/// Acknowledged writes are still there after the loss of nodes that the replication level names.
pub const REPLICATION: Guarantee = Guarantee {
    without: "this replication, with this rule of promotion, promises nothing about a leader that is lost: what is lost with it is \
              reported but does not fail the run.",
    ..Guarantee::option("replication", Levels::Ordered(&["none", "async", "semi", "quorum", "all"]))
};

/// A read sees all that was acknowledged before it began, whichever member answers it.
pub const CONSISTENCY: Guarantee = Guarantee {
    without: "only consistency strong without faults promises anything about reads at replicas: what they miss otherwise is \
              reported but does not fail the run.",
    ..Guarantee::option("consistency", Levels::Ordered(&["eventual", "strong"]))
};

/// A client sees what it was itself acknowledged: a session guarantee (Terry et al., "Session Guarantees for Weakly Consistent
/// Replicated Data", 1994).
pub const READ_YOUR_WRITES: Guarantee = Guarantee::always("read-your-writes");

/// A client never sees less than it has seen before: another session guarantee.
pub const MONOTONIC_READS: Guarantee = Guarantee::always("monotonic-reads");

/// Nobody who sees the network sees what goes over it.
pub const TLS: Guarantee = Guarantee::option("tls", Levels::Ordered(&["off", "on"]));

/// Concurrent transactions see no more of each other than their isolation level allows.
pub const ISOLATION: Guarantee = Guarantee::option("isolation", Levels::Without(&["default"]));

/// Several operations take effect together.
pub const TRANSACTION: Guarantee = Guarantee::option("transaction", Levels::Without(&["1"]));

/// An operation takes effect whole or not at all.
pub const ATOMICITY: Guarantee = Guarantee::always("atomicity");

/// The store keeps, and answers with, exactly what was written to it: once, and nothing else.
pub const INTEGRITY: Guarantee = Guarantee::always("integrity");

/// Messages that are promised in an order come in that order.
pub const ORDER: Guarantee = Guarantee::always("order");

/// The guarantees of a workload that reads, decides and writes; also used for a workload that this acidtest does
/// not know.
pub const OF_READ_DECIDE_WRITE: &[Guarantee] = &[
    LOCK,
    DURABILITY,
    REPLICATION,
    CONSISTENCY,
    READ_YOUR_WRITES,
    MONOTONIC_READS,
    ISOLATION,
    TRANSACTION,
    TLS,
    ATOMICITY,
    INTEGRITY,
];
