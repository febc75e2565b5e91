//! The price of a guarantee: the ratio of a cell to the same cell without the guarantee.

use acidtest_observe::Resources;
use acidtest_workloads::{
    Guarantee, Levels, PromisedLevel, Verdict,
    guarantee::{ISOLATION, OF_READ_DECIDE_WRITE},
    workload,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    CellResult, LatencyFigures, Limit, RateEstimate, Ratio, RunResult, TrialResult, UnreadableHistogram,
    answers::Answers,
    dimensions::{CONSISTENCY, DURABILITY, FAULT, NODES, NOT_THERE, REPLICATION, TLS},
    result::RoundId,
    total,
};

/// The isolation level of a cell that asks for none.
const STORES_OWN: &str = "default";

/// The guarantees that can be priced: those of the result's workload, or, for a workload that this acidtest does not
/// know, those that most workloads have.
#[must_use]
pub fn guarantees(result: &RunResult) -> &'static [Guarantee] {
    workload(&result.plan.workload).map_or(OF_READ_DECIDE_WRITE, |kind| kind.guarantees)
}

fn named(guarantees: &'static [Guarantee], name: &str) -> Option<&'static Guarantee> {
    guarantees.iter().find(|each| each.name == name)
}

/// A guarantee of a workload that has levels, so that a cell can have more or less of it.
#[derive(Clone, Copy)]
pub struct Priceable {
    all: &'static [Guarantee],
    one: &'static Guarantee,
}

impl Priceable {
    /// The guarantees of the result's workload that have a price, in the order in which reports show them.
    pub fn of(result: &RunResult) -> impl Iterator<Item = Self> {
        let all = guarantees(result);
        all.iter().filter(|each| each.has_price()).map(move |one| Self { all, one })
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        self.one.name
    }

    /// The operation that pays for the guarantee; none where all operations do.
    #[must_use]
    pub fn paid_by(self) -> Option<&'static str> {
        self.one.paid_by
    }

    /// The guarantee's price in a cell; none if it was not priced there.
    #[must_use]
    pub fn price(self, cell: &CellResult) -> Option<&Price> {
        cell.prices.iter().find(|price| price.guarantee == self.one.name)
    }

    /// The guarantees that a composed guarantee consists of; of any other, itself alone.
    fn parts(self) -> impl Iterator<Item = Self> {
        let names = match &self.one.levels {
            Levels::Together(names) => *names,
            _ => std::slice::from_ref(&self.one.name),
        };
        let all = self.all;
        names.iter().filter_map(move |name| Some(Self { all, one: named(all, name)? }))
    }

    /// What the cell has of the guarantee: of durability, replication and consistency the level read back, and not one that it was only
    /// asked for; of isolation the store's own level, where none was asked for and the audit knows it.
    fn amount(self, cell: &CellResult) -> String {
        let asked = cell.dimension(self.one.name);
        let mut promised = cell.trials.iter().filter_map(|trial| trial.audit.promised_level.as_ref());
        match &cell.effective {
            Some(effective) if self.one.name == DURABILITY => effective.durability.to_string(),
            _ if self.one.name == REPLICATION => {
                cell.replication_read.as_ref().map_or(asked, |read| read.level.to_string())
            }
            _ if self.one.name == CONSISTENCY => {
                cell.consistency_of_reads().map_or(asked, |level| level.to_string())
            }
            _ if self.one.name == ISOLATION.name && asked == STORES_OWN => {
                promised.next().map_or(asked, PromisedLevel::name)
            }
            _ => asked,
        }
    }

    /// The level of the guarantee in a cell, from 0 for the least; none where the cell does not say.
    fn level(self, cell: &CellResult) -> Option<u64> {
        let value = || self.amount(cell);
        match self.one.levels {
            Levels::Always => None,
            Levels::Ordered(values) => {
                let value = value();
                values.iter().position(|each| *each == value).map(|place| place as u64)
            }
            Levels::Without(values) => {
                let value = value();
                (value != NOT_THERE).then(|| u64::from(!values.contains(&value.as_str())))
            }
            Levels::Number => value().parse().ok(),
            Levels::Together(_) => {
                let levels: Option<Vec<u64>> = self.parts().map(|part| part.level(cell)).collect();
                levels.map(total)
            }
        }
    }

    /// Whether `without` is the same cell with less of the guarantee.
    fn is_without(self, without: &CellResult, with: &CellResult) -> bool {
        let less = |part: &Self| {
            let level = part.level(without);
            level.is_some() && level < part.level(with)
        };
        let lacks = match self.one.levels {
            Levels::Together(_) => {
                let (fewer, same): (Vec<Self>, Vec<Self>) = self.parts().partition(less);
                fewer.len() > 1 && same.into_iter().all(|part| part.level(without) == part.level(with))
            }
            _ => less(&self),
        };
        let mut names: Vec<&str> = self.parts().map(|part| part.one.name).collect();
        // a single server has no other nodes to replicate to
        if self.one.name == REPLICATION && without.replication.is_none() {
            names.push(NODES);
        }
        lacks && with.same_but(without, &names)
    }

    /// The value of the guarantee in a cell that differs from another cell: `transaction`, or, of a composed
    /// guarantee, `ack none, persistent false`.
    fn value(self, cell: &CellResult, against: &CellResult) -> String {
        let Levels::Together(_) = self.one.levels else { return self.amount(cell) };
        let differing = self.parts().filter(|part| part.amount(cell) != part.amount(against));
        differing
            .map(|part| format!("{} {}", part.one.name, part.amount(cell)))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// The guarantee and the value that a price is for, as a reader sees it: `ack transaction`.
    #[must_use]
    pub fn priced(self, cell: &CellResult, price: Option<&Price>) -> String {
        let name = self.one.name;
        match (self.one.levels, price) {
            (Levels::Together(_), Some(price)) => format!("all of {}", price.of),
            (Levels::Together(_), None) => format!("all of its {name}"),
            _ => format!("{name} {}", self.amount(cell)),
        }
    }
}

/// The price of a guarantee of a cell: its figures in ratio to those of the same cell without the guarantee.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Price {
    /// The guarantee's name.
    pub guarantee: String,
    /// The cell's value of the guarantee; of a composed guarantee, the values that differ from the baseline.
    pub of: String,
    /// The baseline's value of the guarantee (`none`, `default`, `1`).
    pub against: String,
    /// Ratio of the rate of answers (operations a second that were acknowledged or refused; of a queue, whose refusals are empty
    /// polls, acknowledged) with the guarantee to that without: of the operation that pays for it (publishing for guarantees to
    /// publishers, consuming for guarantees to consumers), where the cells have it; else of all operations that are counted.
    pub throughput: Ratio,
    /// Ratio of the 99th percentile of acknowledged operations' response times with the guarantee to that without. In
    /// an open loop this is the price, because its throughput is the rate that was offered. None where a trial has too few
    /// times for it.
    pub p99: Option<Ratio>,
    /// Ratio of the CPU time that clients used for an answer, of those whose rate this is; of a store that is embedded in them,
    /// its own is in it. None where it was too little to be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cpu: Option<Ratio>,
    /// The same of the server, and of those beside it (gateway, broker, lock service); none where it is not on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cpu: Option<Ratio>,
    /// Ratio of the time that opening a connection takes; only of TLS, which other guarantees do not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connecting: Option<Ratio>,
}

/// The figures of a trial that prices are computed from. Rates are of the time in which somebody was served.
struct Priced {
    turn: RoundId,
    /// Answers a second, and 99th percentile of the response time in nanoseconds.
    answered: f64,
    p99: Option<f64>,
    operations: Vec<(String, f64, Option<f64>)>,
    /// Cores that clients and servers kept busy.
    client_cpu: f64,
    server_cpu: Option<f64>,
    connecting: Option<f64>,
}

impl Priced {
    /// Answers a second and 99th percentile of the response time, of one operation if it is named.
    fn of(&self, operation: Option<&str>) -> (f64, Option<f64>) {
        let own = self.operations.iter().find(|(name, ..)| Some(name.as_str()) == operation);
        own.map_or((self.answered, self.p99), |(_, answered, p99)| (*answered, *p99))
    }
}

impl RunResult {
    /// Prices every guarantee of every cell that held, where the grid has the same cell without the guarantee. The
    /// figures of a cell that did not hold are void, and so are those of a baseline that was promised to hold and did
    /// not; and those of a cell in which too many operations ended in errors, or other shares were refused.
    ///
    /// # Errors
    /// A histogram that cannot be read.
    pub fn price(&mut self) -> Result<(), UnreadableHistogram> {
        let figures = self.cells.iter().map(|cell| priced(self, cell)).collect::<Result<Vec<_>, _>>()?;
        let prices: Vec<Vec<Price>> = (0..self.cells.len())
            .map(|with| {
                Priceable::of(self).filter_map(|guarantee| self.price_of(guarantee, with, &figures)).collect()
            })
            .collect();
        for (cell, prices) in self.cells.iter_mut().zip(prices) {
            cell.prices = prices;
            cell.mean = cell.mean_throughput();
            cell.steadiness = cell.steadiness_of_trials();
        }
        Ok(())
    }

    /// What a cell's faults cost once somebody was served again: the rate of its remaining seconds in ratio to that of the
    /// same cell without faults in the same seconds. `None` where there is no such cell, where one of the two did not hold, or where no
    /// second was left.
    #[must_use]
    pub fn price_of_faults(&self, cell: &CellResult) -> Option<Ratio> {
        let is_base = |other: &&CellResult| other.faults.is_none() && cell.same_but(other, &[FAULT]);
        let base = self.cells.iter().find(is_base).filter(|_| !cell.faults.is_none())?;
        if [cell, base].iter().any(|cell| cell.verdict() != Verdict::Holds || !cell.is_serving()) {
            return None;
        }
        let twin = |trial: &TrialResult| base.trials.iter().find(|other| other.turn() == trial.turn());
        let rates = cell.trials.iter().filter_map(|trial| trial.rates_after_faults(twin(trial)?));
        Ratio::of_pairs(&rates.collect::<Vec<_>>())
    }

    fn price_of(&self, guarantee: Priceable, with: usize, figures: &[Vec<Priced>]) -> Option<Price> {
        let cell = &self.cells[with];
        if cell.verdict() != Verdict::Holds || !cell.is_serving() {
            return None;
        }
        // a member that is gone is neither waited for nor read
        if [REPLICATION, CONSISTENCY].contains(&guarantee.name())
            && cell.faults.0.iter().any(|fault| fault.disruption.is_of_cluster())
        {
            return None;
        }
        let without = self.baseline(guarantee, cell)?;
        let base = &self.cells[without];
        if base.breaks_promise() || (base.is_promised() && base.verdict() != Verdict::Holds) {
            return None;
        }
        // a store that has lost its data, or serves few, does other work than one at work
        if base.lost_acknowledged() || !base.is_serving() {
            return None;
        }
        let hardly_served = cell.hardly_served().is_some() || base.hardly_served().is_some();
        if hardly_served || self.other_refusals(guarantee, cell).is_some() {
            return None;
        }
        let turns = || {
            figures[with]
                .iter()
                .filter_map(|one| Some((one, figures[without].iter().find(|other| other.turn == one.turn)?)))
        };
        let pays = guarantee.one.paid_by;
        let answered: Vec<_> = turns().map(|(one, other)| (one.of(pays).0, other.of(pays).0)).collect();
        let ratio = |figure: &dyn Fn(&Priced) -> Option<f64>| {
            let pairs = turns().filter_map(|(one, other)| Some((figure(one)?, figure(other)?)));
            Ratio::of_pairs(&pairs.collect::<Vec<_>>())
        };
        Some(Price {
            guarantee: guarantee.one.name.to_owned(),
            of: guarantee.value(cell, base),
            against: guarantee.value(base, cell),
            throughput: Ratio::of_pairs(&answered)?,
            p99: ratio(&|trial| trial.of(pays).1),
            client_cpu: ratio(&|trial| Some(trial.client_cpu / trial.of(pays).0)),
            server_cpu: ratio(&|trial| Some(trial.server_cpu? / trial.of(pays).0)),
            connecting: ratio(&|trial| trial.connecting.filter(|_| guarantee.name() == TLS)),
        })
    }

    /// The place of the same cell with the least of the guarantee; none where the grid has none with less.
    fn baseline(&self, guarantee: Priceable, cell: &CellResult) -> Option<usize> {
        let twins = self.cells.iter().enumerate().filter(|(_, other)| guarantee.is_without(other, cell));
        twins.min_by_key(|(_, other)| guarantee.level(other)).map(|(place, _)| place)
    }

    /// The shares of refusals, 0 to 1, among the answers of a cell and of the same cell without the guarantee, where they are so
    /// different that the guarantee has no price.
    #[must_use]
    pub fn other_refusals(&self, guarantee: Priceable, cell: &CellResult) -> Option<(f64, f64)> {
        let base = &self.cells[self.baseline(guarantee, cell)?];
        let [with, without] = [cell, base].map(|each| self.answered(each.answers(guarantee.paid_by())));
        with.other_refusals(without)
    }

    /// Prices every guarantee of every cell that has a capacity, where the grid has the same cell without the guarantee and with a
    /// capacity: the ratio of the even odds, whose intervals make its own; or, where one of the two has none to compare, the ratio
    /// of the capacities, which has no interval.
    pub fn price_capacities(&mut self) {
        let prices: Vec<Vec<Price>> = self
            .cells
            .iter()
            .map(|cell| Priceable::of(self).filter_map(|each| self.price_of_capacity(each, cell)).collect())
            .collect();
        for (cell, prices) in self.cells.iter_mut().zip(prices) {
            cell.prices = prices;
        }
    }

    fn price_of_capacity(&self, guarantee: Priceable, cell: &CellResult) -> Option<Price> {
        let base = &self.cells[self.baseline(guarantee, cell)?];
        let (of_cell, of_base) = (cell.capacity.as_ref()?, base.capacity.as_ref()?);
        let half = |odds: RateEstimate| (odds.high / odds.low).ln() / 2.0;
        // the capacity lies below the even odds by what probes differ by, so that only like is compared with like
        let (estimate, interval) = match (even_odds(cell), even_odds(base)) {
            (Some(with), Some(without)) => {
                let estimate = with.per_second / without.per_second;
                let (middle, half) = (estimate.ln(), half(with).hypot(half(without)));
                (estimate, Some(((middle - half).exp(), (middle + half).exp())))
            }
            _ => (of_cell.carried? / of_base.carried?, None),
        };
        let trials = of_cell.probes.min(of_base.probes);
        Some(Price {
            guarantee: guarantee.one.name.to_owned(),
            of: guarantee.value(cell, base),
            against: guarantee.value(base, cell),
            throughput: Ratio { estimate, interval, method: None, paired: false, trials },
            p99: None,
            client_cpu: None,
            server_cpu: None,
            connecting: None,
        })
    }

    /// Whether the grid has the same cell without the guarantee.
    #[must_use]
    pub fn has_baseline(&self, guarantee: Priceable, cell: &CellResult) -> bool {
        self.cells.iter().any(|other| guarantee.is_without(other, cell))
    }
}

/// The even odds of a cell's search, as they are compared with another's; none where they are not known, or where the store may not
/// be offered as much: because the audit broke at that rate or below it, or could not tell, or the bench or the store gave up first.
fn even_odds(cell: &CellResult) -> Option<RateEstimate> {
    let capacity = cell.capacity.as_ref()?;
    let odds = capacity.even_odds?;
    // a closed loop has no rate but the one that it reached
    let broke = |trial: &TrialResult| {
        let rate = trial.rate.unwrap_or_else(|| trial.ended_per_second());
        rate <= odds.per_second && trial.audit.breaks_promise(&cell.without)
    };
    let is_walled = matches!(
        capacity.limit,
        Limit::Broke { .. } | Limit::Unknown { .. } | Limit::Bench { .. } | Limit::Gone { .. }
    );
    (!is_walled && !cell.trials.iter().any(broke)).then_some(odds)
}

/// CPU seconds of the server and of those beside it; none where it is not on this machine.
#[must_use]
pub fn server_cpu(cell: &CellResult, used: &Resources) -> Option<f64> {
    let beside = used.others.values().map(|each| each.cpu_seconds);
    match &used.server {
        Some(server) => Some(server.cpu_seconds + beside.sum::<f64>()),
        None if cell.embedded && !used.others.is_empty() => Some(beside.sum()),
        None => None,
    }
}

/// For how long it was watched who uses what: beside many processes that is longer than the measured part.
#[must_use]
pub fn seconds_seen(trial: &TrialResult) -> f64 {
    Some(trial.resources.seconds).filter(|seconds| *seconds > 0.0).unwrap_or(trial.seconds)
}

fn priced(result: &RunResult, cell: &CellResult) -> Result<Vec<Priced>, UnreadableHistogram> {
    let trials = cell.whole_trials();
    let answered = |ok_per_second: f64, ended: Answers| ok_per_second * result.answered(ended).for_each_ok();
    trials
        .map(|trial| {
            let share = trial.share_served();
            // an operation that is not counted, or not the only one counted, has a figure of its own
            let own = trial.operations.iter().filter(|_| !trial.counted.is_empty());
            let operations = own.map(|each| {
                let answered = answered(each.ok_per_second / share, Answers::of([each]));
                (each.name.clone(), answered, each.ok().and_then(LatencyFigures::p99).map(|p99| p99 as f64))
            });
            let used = &trial.resources;
            Ok(Priced {
                turn: trial.turn(),
                answered: answered(trial.throughput, trial.answers(None)) / share,
                p99: trial.p99()?,
                operations: operations.collect(),
                client_cpu: used.client.cpu_seconds / seconds_seen(trial) / share,
                server_cpu: server_cpu(cell, used).map(|seconds| seconds / seconds_seen(trial) / share),
                connecting: trial.connect_ns,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use acidtest_model::{
        Consistency, Durability, EffectiveReplication, Encryption, Lock, Reads, Replication, Route,
    };

    use super::*;
    use crate::{dimensions::LOCK, sample};

    /// The price of a guarantee in a cell, and the baseline's value.
    fn price<'a>(cell: &'a CellResult, guarantee: &str) -> Option<(f64, &'a str)> {
        let price = cell.prices.iter().find(|price| price.guarantee == guarantee)?;
        Some((price.throughput.estimate, price.against.as_str()))
    }

    /// A level that was asked for and not reached costs nothing, and says nothing of the price.
    #[test]
    fn a_durability_level_that_was_not_reached_has_no_price() {
        let levels = &[Durability::None, Durability::Disk];
        let mut result = sample::Grid { durability: levels, ..sample::Grid::default() }.result();
        let priced = |result: &RunResult| {
            result
                .cells
                .iter()
                .flat_map(|cell| &cell.prices)
                .filter(|price| price.guarantee == DURABILITY)
                .count()
        };
        result.price().unwrap();
        assert!(priced(&result) > 0);
        for effective in result.cells.iter_mut().filter_map(|cell| cell.effective.as_mut()) {
            effective.durability = Durability::None.into();
        }
        result.price().unwrap();
        assert_eq!(priced(&result), 0);
    }

    /// The level that a store has by default has its place among those that were asked for.
    #[test]
    fn the_default_isolation_level_is_priced_as_what_the_store_says_it_is() {
        let mut result =
            sample::Grid { locks: &[Lock::None, Lock::Soft], ..sample::Grid::default() }.result();
        result.plan.workload = "transactions".to_owned();
        result.cells.truncate(2);
        for (cell, level) in result.cells.iter_mut().zip(["default", "serializable"]) {
            cell.lock = Lock::None;
            cell.parameters.insert("isolation".to_owned(), level.into());
        }
        result.price().unwrap();
        assert_eq!(price(&result.cells[1], "isolation"), None);
        for trial in &mut result.cells[0].trials {
            trial.audit.promised_level = Some(PromisedLevel {
                level: "repeatable read, no snapshot isolation".to_owned(),
                said: String::new(),
                source: String::new(),
            });
        }
        result.price().unwrap();
        assert_eq!(price(&result.cells[1], "isolation").map(|(_, against)| against), Some("repeatable-read"));
    }

    /// Trials of one round that ran hours apart, because of an interruption, are not paired.
    #[test]
    fn only_trials_of_one_session_are_priced_against_each_other() {
        let mut result =
            sample::Grid { locks: &[Lock::None, Lock::Soft], ..sample::Grid::default() }.result();
        let priced = |result: &RunResult| {
            let mut result = result.clone();
            result.price().unwrap();
            let soft = result.cells.iter().find(|cell| cell.lock == Lock::Soft).unwrap();
            price(soft, "lock").map(|(ratio, _)| ratio)
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

    /// Ends so many operations of each trial of a cell in a refusal, for 1,000 captures and 1,000 releases that were acknowledged.
    fn refuse(cell: &mut CellResult, refused: u64) {
        for trial in &mut cell.trials {
            let captures = &mut trial.operations[0];
            let times = LatencyFigures { count: refused, ..captures.service["ok"].clone() };
            captures.service.insert("refused".to_owned(), times);
        }
    }

    /// A store with a lock refuses what one without sells although it is not there.
    #[test]
    fn a_refusal_is_an_answer_and_too_many_of_them_are_other_work() {
        let mut result = sample::Grid { seconds: 1, ..sample::Grid::default() }.result();
        let lock = Priceable::of(&result).find(|each| each.name() == LOCK).unwrap();
        let mut of = |refused, without| {
            refuse(&mut result.cells[1], refused);
            refuse(&mut result.cells[0], without);
            result.price().unwrap();
            let cell = &result.cells[1];
            (lock.price(cell).map(|price| price.throughput.estimate), result.other_refusals(lock, cell))
        };
        let (plain, _) = of(0, 0);
        let (some, apart) = of(80, 0);
        assert!(
            (some.unwrap() / plain.unwrap() - 1.04).abs() < 1e-9 && apart.is_none(),
            "{plain:?} {some:?}"
        );
        assert_eq!(of(500, 0), (None, Some((0.2, 0.0))));
        assert_eq!(of(0, 500), (None, Some((0.0, 0.2))));
        // nearly all is refused by both, but twice as much is acknowledged by one
        assert_eq!(of(98_000, 48_000), (None, Some((0.98, 0.96))));
        let (both, _) = of(500, 500);
        assert!((both.unwrap() / plain.unwrap() - 1.0).abs() < 1e-9);
    }

    /// A single server and a cluster differ in their nodes, too; a cluster is compared only with one of as many nodes.
    #[test]
    fn replication_is_priced_against_one_node_or_a_cluster_of_as_many() {
        use Replication::{All, Async, None, Quorum};
        let grid = sample::Grid { locks: &[Lock::None, Lock::Native], ..sample::Grid::default() }.result();
        let of = |cells: &[(u32, Replication)]| {
            let mut result = grid.clone();
            let cell = |(nodes, replication): &(u32, Replication)| {
                let mut cell =
                    CellResult { nodes: *nodes, replication: *replication, ..grid.cells[1].clone() };
                // one of n nodes has an n-th of the throughput, which tells with whom it is compared
                cell.trials.iter_mut().for_each(|trial| trial.throughput = 1e6 / f64::from(*nodes));
                cell
            };
            result.cells = cells.iter().map(cell).collect();
            result.price().unwrap();
            let shown = |cell: &CellResult| {
                price(cell, REPLICATION).map(|(ratio, base)| ((ratio * 1e6).round() / 1e6, base.to_owned()))
            };
            result.cells.iter().map(shown).collect::<Vec<_>>()
        };
        let against = |ratio: f64, base: &str| Some((ratio, base.to_owned()));
        assert_eq!(
            of(&[(1, None), (3, Async), (3, Quorum), (5, Async), (5, All)]),
            [
                Option::None,
                against(0.333_333, "none"),
                against(0.333_333, "none"),
                against(0.2, "none"),
                against(0.2, "none")
            ]
        );
        let clusters = of(&[(3, Async), (5, Async), (5, Quorum), (3, All)]);
        assert_eq!(clusters, [Option::None, Option::None, against(1.0, "async"), against(1.0, "async")]);
        assert_eq!(of(&[(3, Async), (5, Quorum)]), [Option::None, Option::None]);
        assert_eq!(of(&[(1, None), (3, None)]), [Option::None, Option::None]);
        // other guarantees are priced among cells of as many nodes
        let mut result = grid.clone();
        (result.cells[1].nodes, result.cells[1].replication) = (3, Async);
        result.price().unwrap();
        assert_eq!(price(&result.cells[1], LOCK), Option::None);
        (result.cells[0].nodes, result.cells[0].replication) = (3, Async);
        result.price().unwrap();
        assert!(price(&result.cells[1], LOCK).is_some());
    }

    /// A level that the leader's settings do not amount to has no price.
    #[test]
    fn replication_is_priced_by_the_level_that_was_read_back() {
        let mut result = sample::Grid { locks: &[Lock::Native], ..sample::Grid::default() }.result();
        let read = |level| EffectiveReplication {
            level,
            because: String::new(),
            following: 2,
            consistency: Consistency::Eventual,
        };
        let mut quorum = result.cells[0].clone();
        for (cell, level) in result.cells.iter_mut().chain([&mut quorum]).zip(&Replication::ALL[1..]) {
            (cell.nodes, cell.replication, cell.replication_read) = (3, *level, Some(read(*level)));
        }
        result.cells.push(quorum);
        result.price().unwrap();
        is(price(&result.cells[1], REPLICATION), 1.0, "async");
        result.cells[1].replication_read = Some(read(Replication::Async));
        result.price().unwrap();
        assert_eq!(price(&result.cells[1], REPLICATION), None);
    }

    /// Five clusters of three nodes whose replicas answer reads: of each level of consistency one with either route, and one whose leader
    /// answers.
    fn read_at_replicas() -> RunResult {
        let mut result = sample::Grid { locks: &[Lock::Native], ..sample::Grid::default() }.result();
        let model = result.cells.remove(0);
        let cell = |reads, route, consistency, of_one: f64| {
            let read = EffectiveReplication {
                level: Replication::All,
                because: String::new(),
                following: 2,
                consistency,
            };
            let replication_read = Some(read);
            let mut cell =
                CellResult { nodes: 3, reads, route, consistency, replication_read, ..model.clone() };
            cell.replication = Replication::All;
            cell.trials.iter_mut().for_each(|trial| trial.throughput = 1_000.0 * of_one);
            cell
        };
        result.cells = vec![
            cell(Reads::Leader, Route::Pinned, Consistency::Eventual, 1.0),
            cell(Reads::Replica, Route::Pinned, Consistency::Eventual, 2.0),
            cell(Reads::Replica, Route::Spread, Consistency::Eventual, 4.0),
            cell(Reads::Replica, Route::Pinned, Consistency::Strong, 1.0),
            cell(Reads::Replica, Route::Spread, Consistency::Strong, 1.0),
        ];
        result
    }

    #[test]
    fn consistency_is_priced_where_all_else_is_the_same() {
        let prices = |result: &mut RunResult| {
            result.price().unwrap();
            let priced =
                |cell: &CellResult| price(cell, CONSISTENCY).map(|(ratio, base)| (ratio, base.to_owned()));
            result.cells.iter().map(priced).collect::<Vec<_>>()
        };
        let against = |ratio: f64| Some((ratio, "eventual".to_owned()));
        let mut result = read_at_replicas();
        assert_eq!(prices(&mut result), [None, None, None, against(0.5), against(0.25)]);
        // members, routes, nodes and levels of replication are others
        for other in [
            |cell: &mut CellResult| cell.reads = Reads::Any,
            |cell: &mut CellResult| cell.route = Route::Pinned,
            |cell: &mut CellResult| cell.nodes = 5,
            |cell: &mut CellResult| cell.replication = Replication::Quorum,
        ] {
            let mut result = read_at_replicas();
            result.cells.remove(3);
            result.cells.remove(1);
            other(&mut result.cells[1]);
            assert_eq!(prices(&mut result), [None, None, None]);
        }
        // what the settings do not amount to costs nothing
        let mut result = read_at_replicas();
        let read = result.cells[3].replication_read.as_mut().unwrap();
        read.consistency = Consistency::Eventual;
        assert_eq!(prices(&mut result)[3], None);
    }

    /// What is asked of a cell whose leader answers reads is no level of it, whatever the settings amount to.
    #[test]
    fn where_the_leader_answers_reads_consistency_has_no_price() {
        let mut result = read_at_replicas();
        result.cells.iter_mut().for_each(|cell| cell.reads = Reads::Leader);
        result.price().unwrap();
        assert!(result.cells.iter().all(|cell| price(cell, CONSISTENCY).is_none()));
    }

    #[test]
    fn other_guarantees_are_priced_among_cells_that_read_alike() {
        let mut result = read_at_replicas();
        result.cells.truncate(3);
        let read = result.cells[1].replication_read.as_mut().unwrap();
        (read.level, result.cells[1].replication) = (Replication::Async, Replication::Async);
        result.price().unwrap();
        assert!(result.cells.iter().all(|cell| price(cell, REPLICATION).is_none()), "the routes differ");
        result.cells[2].route = Route::Pinned;
        result.price().unwrap();
        is(price(&result.cells[2], REPLICATION), 2.0, "async");
        result.cells[2].reads = Reads::Any;
        result.price().unwrap();
        assert_eq!(price(&result.cells[2], REPLICATION), None);
    }

    /// A member that is lost or cut off is neither waited for nor read: what that costs is not what the guarantee costs.
    #[test]
    fn cells_that_lose_or_cut_off_a_member_have_no_price_of_what_their_members_do() {
        let mut result = read_at_replicas();
        let read = result.cells[0].replication_read.as_mut().unwrap();
        (read.level, result.cells[0].replication) = (Replication::Async, Replication::Async);
        (result.cells[0].reads, result.cells[0].lock) = (Reads::Replica, Lock::Native);
        let mut unlocked = result.cells[3].clone();
        (unlocked.lock, unlocked.without) = (Lock::None, vec![LOCK.to_owned()]);
        result.cells.push(unlocked);
        for (faults, are_priced) in [
            ("kill@3s", true),
            ("pause:replica-1@3s:1s", true),
            ("lose:leader@3s", false),
            ("cut:leader@3s:4s", false),
            ("cut:replica-1@3s:2s", false),
            ("kill@1s+lose:replica-1@3s", false),
        ] {
            result.cells.iter_mut().for_each(|cell| cell.faults = faults.parse().unwrap());
            result.price().unwrap();
            assert_eq!(price(&result.cells[1], REPLICATION).is_some(), are_priced, "{faults}");
            assert_eq!(price(&result.cells[3], CONSISTENCY).is_some(), are_priced, "{faults}");
            assert!(price(&result.cells[3], LOCK).is_some(), "{faults}: that of others stays");
        }
    }

    /// However often consumers find nothing, a message is what they were to have.
    #[test]
    fn an_empty_poll_is_no_answer() {
        let mut result = sample::queue([("confirm", false, 900.0); 6]);
        let mut secured = result.cells[0].clone();
        secured.tls = Encryption::On;
        result.cells = vec![result.cells.remove(0), secured];
        for empty in [80, 5_000] {
            for trial in &mut result.cells[1].trials {
                let consume = &mut trial.operations[1];
                let times = LatencyFigures { count: empty, ..consume.service["ok"].clone() };
                consume.service.insert("refused".to_owned(), times);
            }
            result.price().unwrap();
            is(price(&result.cells[1], TLS), 1.0, "off");
        }
    }

    /// CPU time is that of an operation, and of every server of a cell; what opening a connection takes is TLS's alone.
    #[test]
    fn tls_is_priced_by_the_cpu_of_both_sides_and_by_connecting() {
        let mut result =
            sample::Grid { locks: &[Lock::None, Lock::Native], ..sample::Grid::default() }.result();
        for trial in result.cells.iter_mut().flat_map(|cell| &mut cell.trials) {
            trial.connect_ns = Some(1e6);
        }
        let mut secured = result.cells[1].clone();
        secured.tls = Encryption::On;
        for trial in &mut secured.trials {
            trial.throughput *= 0.5;
            trial.connect_ns = Some(3e6);
            trial.resources.client.cpu_seconds *= 0.75;
            let server = trial.resources.server.clone().unwrap();
            trial.resources.others.insert("locks".to_owned(), server);
        }
        result.cells.push(secured);
        let of = |result: &mut RunResult, guarantee: &str| {
            result.price().unwrap();
            let prices = result.cells.iter().flat_map(|cell| &cell.prices);
            let price = prices.into_iter().find(|price| price.guarantee == guarantee).unwrap();
            let ratio =
                |ratio: &Option<Ratio>| ratio.as_ref().map(|ratio| (ratio.estimate * 1e9).round() / 1e9);
            (ratio(&price.client_cpu), ratio(&price.server_cpu), ratio(&price.connecting))
        };
        assert_eq!(of(&mut result, TLS), (Some(1.5), Some(4.0), Some(3.0)));
        assert_eq!(of(&mut result, LOCK).2, None);
        // the server of one of the two is on another machine: nothing is known of what it uses
        for trial in &mut result.cells[1].trials {
            trial.resources.server = None;
        }
        assert_eq!(of(&mut result, TLS), (Some(1.5), None, Some(3.0)));
        // the server of an embedded store is what stands before it
        for cell in &mut result.cells[1..] {
            cell.embedded = true;
            for trial in &mut cell.trials {
                let server = trial.resources.client.clone();
                trial.resources.server = None;
                trial.resources.others = [("gateway".to_owned(), server)].into();
            }
        }
        assert_eq!(of(&mut result, TLS), (Some(1.5), Some(1.5), Some(3.0)));
    }

    /// Guarantees to publishers are priced by publishing, although the table counts consumed messages; all of them
    /// together have a price of their own.
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
        is(price(confirmed, "ack"), 0.5, "none");
        is(price(persistent, "persistent"), 0.5, "false");
        is(price(durable, "ack"), 40.0 / 16_000.0, "none");
        is(price(durable, "persistent"), 40.0 / 1_600.0, "false");
        is(price(durable, "delivery"), 1.0 / 800.0, "ack none, persistent false");
        // a guarantee that one parameter alone gives is not priced as the composed one
        assert_eq!(price(confirmed, "delivery"), None);
        assert_eq!(price(durable, "consume"), None);
    }
}
