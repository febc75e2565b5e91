//! How old the reads of a cell were whose members need not be the leader.

use acidtest_workloads::{Spread, Staleness};

use crate::{CellResult, latency::is_enough, statistics::median, total};

/// How old the reads of a cell were, over all of its trials; see [`Staleness`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CellStaleness {
    /// Reads that were compared with the ledger.
    pub reads: u64,
    /// Of those, how many a leader answered.
    pub at_leader: u64,
    /// Reads that missed something that was acknowledged before they began.
    pub stale: u64,
    /// Acknowledged versions that a stale read missed.
    pub versions: Option<Behind>,
    /// How many milliseconds stale reads were behind.
    pub milliseconds: Option<Behind>,
    /// Reads that missed an acknowledged write of the same client.
    pub own_writes_missed: u64,
    /// Reads that found an older version than the same client had read before.
    pub went_back: u64,
}

/// What stale reads missed. A percentile is there only if [enough](is_enough) of them lie beyond it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Behind {
    /// The median.
    pub p50: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// The highest.
    pub max: f64,
}

impl Behind {
    /// What so many stale reads of a trial missed.
    #[must_use]
    pub fn of(spread: Spread, stale: u64) -> Self {
        let shown = |percent, value| is_enough(stale, percent).then_some(value);
        Self { p50: shown(50.0, spread.p50), p99: shown(99.0, spread.p99), max: spread.max }
    }

    /// Over trials: of each percentile the median of those that have it, and the highest of them all.
    fn over(trials: &[Self]) -> Option<Self> {
        let middle = |of: fn(&Self) -> Option<f64>| median(trials.iter().filter_map(of));
        Some(Self {
            p50: middle(|each| each.p50),
            p99: middle(|each| each.p99),
            max: trials.iter().map(|each| each.max).max_by(f64::total_cmp)?,
        })
    }
}

impl CellStaleness {
    /// Over these trials: counts are sums.
    fn over(trials: &[&Staleness]) -> Self {
        let sum = |of: fn(&Staleness) -> u64| total(trials.iter().map(|each| of(each)));
        let behind = |of: fn(&Staleness) -> Option<Spread>| {
            let all = trials.iter().filter_map(|each| Some(Behind::of(of(each)?, each.stale)));
            Behind::over(&all.collect::<Vec<_>>())
        };
        Self {
            reads: sum(|each| each.reads),
            at_leader: sum(|each| each.at_leader),
            stale: sum(|each| each.stale),
            versions: behind(|each| each.versions),
            milliseconds: behind(|each| each.milliseconds),
            own_writes_missed: sum(|each| each.own_writes_missed),
            went_back: sum(|each| each.went_back),
        }
    }

    /// Reads that replicas answered, of those that were compared.
    #[must_use]
    pub fn at_replicas(&self) -> u64 {
        self.reads.saturating_sub(self.at_leader)
    }

    /// Reads that missed what was acknowledged before they began. One that missed its own client's write need not have been compared
    /// with the writes of others.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.stale.max(self.own_writes_missed)
    }
}

impl From<&Staleness> for CellStaleness {
    /// Of a single trial.
    fn from(trial: &Staleness) -> Self {
        Self::over(&[trial])
    }
}

impl CellResult {
    /// How old its reads were over all of its trials. None where the leader alone answers reads, or nothing was run.
    #[must_use]
    pub fn staleness(&self) -> Option<CellStaleness> {
        let all: Vec<&Staleness> = self.trials.iter().filter_map(|trial| trial.staleness.as_ref()).collect();
        (!all.is_empty()).then(|| CellStaleness::over(&all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Grid;

    #[test]
    fn a_cell_has_the_sums_the_medians_and_the_worst_of_its_trials() {
        let mut cell = Grid { trials: 4, ..Grid::default() }.result().cells.remove(0);
        assert!(cell.staleness().is_none());
        let of = |reads, stale, spread: Option<[f64; 3]>| Staleness {
            reads,
            at_leader: reads / 2,
            stale,
            milliseconds: spread.map(|[p50, p99, max]| Spread { p50, p99, max }),
            own_writes_missed: 2,
            went_back: 1,
            ..Staleness::default()
        };
        let all = [
            of(1_000, 30, Some([1.0, 7.0, 90.0])),
            // it had no stale read, and says nothing of how old they are
            of(2_000, 0, None),
            of(5_000, 1_000, Some([3.0, 9.0, 40.0])),
            // too few for a median
            of(1_000, 19, Some([4.0, 50.0, 160.0])),
        ];
        for (trial, staleness) in cell.trials.iter_mut().zip(all) {
            trial.staleness = Some(staleness);
        }
        let seen = cell.staleness().unwrap();
        assert_eq!((seen.reads, seen.at_leader, seen.stale), (9_000, 4_500, 1_049));
        assert_eq!((seen.at_replicas(), seen.missed()), (4_500, 1_049));
        assert_eq!((seen.own_writes_missed, seen.went_back, seen.versions), (8, 4, None));
        assert_eq!(seen.milliseconds, Some(Behind { p50: Some(2.0), p99: Some(9.0), max: 160.0 }));
        cell.trials.remove(2);
        let few = cell.staleness().unwrap().milliseconds;
        assert_eq!(few, Some(Behind { p50: Some(1.0), p99: None, max: 160.0 }));
        for trial in &mut cell.trials {
            trial.staleness = Some(Staleness::default());
        }
        assert_eq!(cell.staleness(), Some(CellStaleness::default()), "nothing was read");
    }
}
