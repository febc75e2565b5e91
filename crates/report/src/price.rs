//! What a guarantee costs: a cell against the same cell without it.

use acidtest_model::Lock;
use acidtest_workloads::Verdict;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    CellResult, Ratio, RunResult, UnreadableHistogram,
    dimensions::{DURABILITY, LOCK, NOT_THERE},
    figure::total,
    result::Turn,
};

/// A guarantee that has a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Guarantee {
    /// A lock mode, against none.
    Lock,
    /// A rung of durability, against the weakest one in the grid.
    Durability,
    /// An isolation level, against the store's own default.
    Isolation,
    /// Several operations in a transaction, against one.
    Transaction,
    /// Acknowledged publishing, against the weakest way in the grid.
    Ack,
    /// Acknowledged consuming, against the weakest way in the grid.
    Consume,
    /// Persistent messages, against transient ones.
    Persistent,
    /// A replicated kind of queue, against one on a single node.
    Queue,
    /// Copies of a queue, against fewer.
    Replicas,
    /// Deduplication, against none.
    Deduplicate,
    /// Several guarantees of a queue together, against all of them at their weakest in the grid.
    Delivery,
}

impl Guarantee {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 11] = [
        Self::Lock,
        Self::Durability,
        Self::Isolation,
        Self::Transaction,
        Self::Ack,
        Self::Consume,
        Self::Persistent,
        Self::Queue,
        Self::Replicas,
        Self::Deduplicate,
        Self::Delivery,
    ];

    /// Those that [`Self::Delivery`] takes together.
    const OF_DELIVERY: [Self; 6] =
        [Self::Ack, Self::Consume, Self::Persistent, Self::Queue, Self::Replicas, Self::Deduplicate];

    /// Its name, which is also that of its dimension of the grid.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lock => LOCK,
            Self::Durability => DURABILITY,
            Self::Isolation => "isolation",
            Self::Transaction => "transaction",
            Self::Ack => "ack",
            Self::Consume => "consume",
            Self::Persistent => "persistent",
            Self::Queue => "queue",
            Self::Replicas => "replicas",
            Self::Deduplicate => "deduplicate",
            Self::Delivery => "delivery",
        }
    }

    /// The dimensions that it is about.
    fn names(self) -> Vec<&'static str> {
        match self {
            Self::Delivery => Self::OF_DELIVERY.map(Self::name).to_vec(),
            one => vec![one.name()],
        }
    }

    /// What a cell has of it, in words: `transaction`, or of several `ack none, persistent false`.
    pub(crate) fn shown(self, cell: &CellResult, against: &CellResult) -> String {
        let differs = |name: &&str| cell.dimension(name) != against.dimension(name);
        match self {
            Self::Delivery => {
                let parts = self.names().into_iter().filter(differs);
                parts.map(|name| format!("{name} {}", cell.dimension(name))).collect::<Vec<_>>().join(", ")
            }
            one => cell.dimension(one.name()),
        }
    }

    /// What the price of a cell is for, as a reader sees it: `ack transaction`.
    pub(crate) fn priced(self, cell: &CellResult, price: Option<&Price>) -> String {
        match (self, price) {
            (Self::Delivery, Some(price)) => format!("all of {}", price.of),
            (Self::Delivery, None) => "all of its delivery".to_owned(),
            (one, _) => format!("{} {}", one.name(), cell.dimension(one.name())),
        }
    }

    /// The operation that pays for it, where it is not all of them.
    fn operation(self) -> Option<&'static str> {
        match self {
            Self::Ack
            | Self::Persistent
            | Self::Queue
            | Self::Replicas
            | Self::Deduplicate
            | Self::Delivery => Some("publish"),
            Self::Consume => Some("consume"),
            Self::Lock | Self::Durability | Self::Isolation | Self::Transaction => None,
        }
    }

    /// How much of it a cell has, from 0 for the least; none of a cell of which it cannot be said.
    fn rank(self, cell: &CellResult) -> Option<u64> {
        let place = |words: &[&str]| {
            let value = cell.dimension(self.name());
            words.iter().position(|word| *word == value).map(|place| place as u64)
        };
        let but = |least: &[&str]| {
            let value = cell.dimension(self.name());
            (value != NOT_THERE).then(|| u64::from(!least.contains(&value.as_str())))
        };
        match self {
            Self::Lock => Some(u64::from(cell.lock != Lock::None)),
            Self::Durability => cell.durability_asked.map(|rung| rung as u64),
            Self::Isolation => but(&["default"]),
            Self::Transaction => but(&["1"]),
            Self::Ack => place(&["none", "confirm", "transaction"]),
            Self::Consume => place(&["auto", "ack", "transaction"]),
            Self::Persistent | Self::Deduplicate => place(&["false", "true"]),
            Self::Queue => but(&["default", "classic"]),
            Self::Replicas => cell.dimension(self.name()).parse().ok(),
            Self::Delivery => {
                let ranks: Option<Vec<u64>> =
                    Self::OF_DELIVERY.into_iter().map(|each| each.rank(cell)).collect();
                ranks.map(total)
            }
        }
    }

    /// Whether the other cell is the same with less of the guarantee.
    fn is_without(self, without: &CellResult, with: &CellResult) -> bool {
        let less = |each: Self| each.rank(without) < each.rank(with) && each.rank(without).is_some();
        let lacks = match self {
            Self::Delivery => {
                let (fewer, same): (Vec<Self>, Vec<Self>) =
                    Self::OF_DELIVERY.into_iter().partition(|each| less(*each));
                fewer.len() > 1 && same.into_iter().all(|each| each.rank(without) == each.rank(with))
            }
            one => less(one),
        };
        lacks && with.same_but(without, &self.names())
    }
}

/// What a guarantee of a cell costs, against the same cell without it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Price {
    /// Which guarantee.
    pub guarantee: Guarantee,
    /// How much of it the cell has; of several guarantees, those that differ.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub of: String,
    /// What it is measured against (`none`, `default`, `1`).
    pub against: String,
    /// Acknowledged operations a second, with over without: of the operation that pays for it (publishing for what
    /// publishers ask for, consuming for what consumers do), where the cells have it; else all that are counted.
    pub throughput: Ratio,
    /// 99th percentile of the response time of acknowledged operations, with over without. In an open
    /// loop this is the price: its throughput is what was offered.
    pub p99: Option<Ratio>,
}

/// A trial's figures that are priced.
struct Priced {
    turn: Turn,
    throughput: f64,
    p99: Option<f64>,
    operations: Vec<(String, f64, Option<f64>)>,
}

impl Priced {
    /// Throughput and 99th percentile, of one operation where there is any.
    fn of(&self, operation: Option<&str>) -> (f64, Option<f64>) {
        let own = self.operations.iter().find(|(name, ..)| Some(name.as_str()) == operation);
        own.map_or((self.throughput, self.p99), |(_, throughput, p99)| (*throughput, *p99))
    }
}

impl RunResult {
    /// Prices every guarantee of every cell that held, where the grid has the same cell without it. The number
    /// of a cell that did not hold is void, and that of a baseline which was promised to hold and did not.
    ///
    /// # Errors
    /// A histogram that cannot be read.
    pub fn price(&mut self) -> Result<(), UnreadableHistogram> {
        let figures = self.cells.iter().map(priced).collect::<Result<Vec<_>, _>>()?;
        let prices: Vec<Vec<Price>> = (0..self.cells.len())
            .map(|with| {
                Guarantee::ALL
                    .into_iter()
                    .filter_map(|guarantee| self.price_of(guarantee, with, &figures))
                    .collect()
            })
            .collect();
        for (cell, prices) in self.cells.iter_mut().zip(prices) {
            cell.prices = prices;
            cell.mean = cell.mean_throughput();
            cell.steadiness = cell.steadiness_of_trials();
        }
        Ok(())
    }

    fn price_of(&self, guarantee: Guarantee, with: usize, figures: &[Vec<Priced>]) -> Option<Price> {
        let cell = &self.cells[with];
        if cell.verdict() != Verdict::Holds {
            return None;
        }
        let twins = self.cells.iter().enumerate().filter(|(_, other)| guarantee.is_without(other, cell));
        let (without, base) = twins.min_by_key(|(_, other)| guarantee.rank(other))?;
        if base.breaks_promise() || (base.promised && base.verdict() != Verdict::Holds) {
            return None;
        }
        let turns = || {
            figures[with]
                .iter()
                .filter_map(|one| Some((one, figures[without].iter().find(|other| other.turn == one.turn)?)))
        };
        let pays = guarantee.operation();
        let throughput: Vec<_> = turns().map(|(one, other)| (one.of(pays).0, other.of(pays).0)).collect();
        let p99: Vec<_> =
            turns().filter_map(|(one, other)| Some((one.of(pays).1?, other.of(pays).1?))).collect();
        Some(Price {
            guarantee,
            of: guarantee.shown(cell, base),
            against: guarantee.shown(base, cell),
            throughput: Ratio::of_pairs(&throughput)?,
            p99: Ratio::of_pairs(&p99),
        })
    }

    /// Whether the grid has cells to price a guarantee against.
    pub(crate) fn prices(&self, guarantee: Guarantee) -> bool {
        self.cells.iter().any(|cell| self.baseline(guarantee, cell))
    }

    /// Whether the grid has the cell without the guarantee.
    pub(crate) fn baseline(&self, guarantee: Guarantee, cell: &CellResult) -> bool {
        self.cells.iter().any(|other| guarantee.is_without(other, cell))
    }
}

fn priced(cell: &CellResult) -> Result<Vec<Priced>, UnreadableHistogram> {
    let trials = cell.whole_trials();
    trials
        .map(|trial| {
            // one that is not counted, or not alone, has a figure of its own
            let own = trial.operations.iter().filter(|_| !trial.counted.is_empty());
            let operations = own.map(|each| {
                (each.name.clone(), each.ok_per_second, each.ok().map(|times| times.p99_ns as f64))
            });
            Ok(Priced {
                turn: trial.turn(),
                throughput: trial.throughput,
                p99: trial.p99()?,
                operations: operations.collect(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    /// The price of a guarantee in a cell, and against what.
    fn price(cell: &CellResult, guarantee: Guarantee) -> Option<(f64, &str)> {
        let price = cell.prices.iter().find(|price| price.guarantee == guarantee)?;
        Some((price.throughput.estimate, price.against.as_str()))
    }

    /// Trials of one round that an interruption parted by hours are no pair.
    #[test]
    fn only_trials_of_one_session_are_priced_against_each_other() {
        let mut result =
            sample::Grid { locks: &[Lock::None, Lock::Soft], ..sample::Grid::default() }.result();
        let priced = |result: &RunResult| {
            let mut result = result.clone();
            result.price().unwrap();
            let soft = result.cells.iter().find(|cell| cell.lock == Lock::Soft).unwrap();
            price(soft, Guarantee::Lock).map(|(ratio, _)| ratio)
        };
        let whole = priced(&result).unwrap();
        assert_eq!(result.divided_rounds(), 0);
        // the run was interrupted in the middle of its second round, and went on when the machine was ten times as
        // fast
        for cell in &mut result.cells {
            for trial in &mut cell.trials {
                let before = trial.round == 1 || (trial.round == 2 && cell.lock == Lock::None);
                trial.session = if before { 1 } else { 2 };
                trial.throughput *= if before { 1.0 } else { 10.0 };
            }
        }
        assert_eq!(result.divided_rounds(), 1);
        let parted = priced(&result).unwrap();
        assert!((parted / whole - 1.0).abs() < 0.2, "{parted} is no longer {whole}");
    }

    #[track_caller]
    fn is(price: Option<(f64, &str)>, ratio: f64, against: &str) {
        let (found, base) = price.unwrap();
        assert!((found / ratio - 1.0).abs() < 1e-9 && base == against, "{found} against {base}");
    }

    /// What publishers ask for is priced by publishing, although the table counts what was consumed; and all of it
    /// together has a price of its own.
    #[test]
    fn a_queue_s_guarantees_are_priced_by_who_pays_for_them() {
        let result = sample::queue([
            ("none", false, 32_000.0),
            ("confirm", false, 16_000.0),
            ("transaction", false, 1_600.0),
            ("none", true, 16_000.0),
            ("confirm", true, 4_000.0),
            ("transaction", true, 40.0),
        ]);
        let [plain, confirmed, _, persistent, _, durable] = result.cells.as_slice() else {
            panic!("six cells")
        };
        assert!(plain.prices.is_empty(), "{:?}", plain.prices);
        is(price(confirmed, Guarantee::Ack), 0.5, "none");
        is(price(persistent, Guarantee::Persistent), 0.5, "false");
        is(price(durable, Guarantee::Ack), 40.0 / 16_000.0, "none");
        is(price(durable, Guarantee::Persistent), 40.0 / 1_600.0, "false");
        is(price(durable, Guarantee::Delivery), 1.0 / 800.0, "ack none, persistent false");
        // one guarantee alone is not several together
        assert_eq!(price(confirmed, Guarantee::Delivery), None);
        assert_eq!(price(durable, Guarantee::Consume), None);
    }
}
