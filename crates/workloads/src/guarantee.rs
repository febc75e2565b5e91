//! Guarantees by name: a finding says which one would have prevented it, a cell which it does without, and a price
//! what it is of. Promise, price and exit status follow from that.

/// A guarantee that a workload knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarantee {
    /// Its name in results. Where a run can ask for more or less of it, also that of its dimension of the grid.
    pub name: &'static str,
    /// How much of it a cell can have.
    pub levels: Levels,
    /// The operation that pays for it; none where all of them do.
    pub paid_by: Option<&'static str>,
    /// A sentence for readers of a cell that does without it and broke; empty where no cell can.
    pub without: &'static str,
}

/// How much of a guarantee a cell can have, by the value of the guarantee's dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Levels {
    /// Every cell has all of it: no option takes it away, so it has no price.
    Always,
    /// Each of these values is more than the one before.
    Ordered(&'static [&'static str]),
    /// These values are to be without it, and any other to have it.
    Without(&'static [&'static str]),
    /// The value is a number, and more is more.
    Number,
    /// Several guarantees by their names, priced together where more than one of them differs.
    Together(&'static [&'static str]),
}

impl Guarantee {
    /// One that no option takes away.
    #[must_use]
    pub const fn always(name: &'static str) -> Self {
        Self { name, levels: Levels::Always, paid_by: None, without: "" }
    }

    /// One that a run can ask for more or less of, and that all operations pay for.
    #[must_use]
    pub const fn option(name: &'static str, levels: Levels) -> Self {
        Self { name, levels, paid_by: None, without: "" }
    }

    /// The same, paid for by one operation.
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
    without: "lock none promises nothing: that it breaks under contention is no failure.",
    ..Guarantee::option("lock", Levels::Without(&["none"]))
};

/// What was acknowledged is there, after the crashes that the rung names.
pub const DURABILITY: Guarantee =
    Guarantee::option("durability", Levels::Ordered(&["none", "process", "disk"]));

/// Transactions side by side see no more of each other than their level allows.
pub const ISOLATION: Guarantee = Guarantee::option("isolation", Levels::Without(&["default"]));

/// Several operations take effect together.
pub const TRANSACTION: Guarantee = Guarantee::option("transaction", Levels::Without(&["1"]));

/// An operation takes effect whole or not at all.
pub const ATOMICITY: Guarantee = Guarantee::always("atomicity");

/// The store has, and answers with, what was written to it: once, and nothing else.
pub const INTEGRITY: Guarantee = Guarantee::always("integrity");

/// What comes in an order comes in that order.
pub const ORDER: Guarantee = Guarantee::always("order");

/// Those of a workload that reads, decides and writes; also of a workload that this acidtest does not know.
pub const OF_READ_DECIDE_WRITE: &[Guarantee] =
    &[LOCK, DURABILITY, ISOLATION, TRANSACTION, ATOMICITY, INTEGRITY];
