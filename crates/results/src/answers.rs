//! What a store answered: how much of it was acknowledged, and how much was refused; and whether two cells refused so differently
//! that their figures are of different work.

use acidtest_workloads::workload;

use crate::{CellResult, OperationFigures, RunResult, TrialResult, total};

/// By how much (5 %) a ratio of rates may differ if refusals do not count in it. A refusal is an answer, but mostly a cheaper
/// one: nothing is written. So where one cell refuses much more than the other, the two do different work, and no ratio of
/// their figures is a price or a comparison.
const ALIKE: f64 = 0.05;

/// How many operations were acknowledged, and how many refused: all that a store answered as the business means it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Acknowledged operations.
    pub ok: u64,
    pub refused: u64,
}

impl Answers {
    pub fn of<'a>(operations: impl IntoIterator<Item = &'a OperationFigures>) -> Self {
        let ended =
            |each: &OperationFigures, outcome| each.service.get(outcome).map_or(0, |times| times.count);
        operations.into_iter().fold(Self::default(), |all, each| Self {
            ok: all.ok.saturating_add(ended(each, "ok")),
            refused: all.refused.saturating_add(ended(each, "refused")),
        })
    }

    /// Those of several trials together.
    pub fn sum(several: impl IntoIterator<Item = Self>) -> Self {
        several.into_iter().fold(Self::default(), |all, each| Self {
            ok: all.ok.saturating_add(each.ok),
            refused: all.refused.saturating_add(each.refused),
        })
    }

    fn all(self) -> f64 {
        total([self.ok, self.refused]) as f64
    }

    /// The shares of refusals, 0 to 1, of these answers and of others, where they are so different that the two are of different
    /// work.
    #[must_use]
    pub fn other_refusals(self, others: Self) -> Option<(f64, f64)> {
        // answers for each acknowledged one, of either side, times what both acknowledged: where one side refused all, the other
        // is infinitely far from it
        let (one, other) = (self.all() * others.ok as f64, others.all() * self.ok as f64);
        let is_alike = one.max(other) <= one.min(other) * (1.0 + ALIKE);
        (!is_alike).then(|| (self.refused_share(), others.refused_share()))
    }

    /// Answers for each acknowledged operation, 1 or more; 1 where none was acknowledged.
    pub(crate) fn for_each_ok(self) -> f64 {
        if self.ok > 0 { self.all() / self.ok as f64 } else { 1.0 }
    }

    /// Share of the answers that are refusals; 0 where there was no answer.
    #[must_use]
    pub fn refused_share(self) -> f64 {
        if self.all() > 0.0 { self.refused as f64 / self.all() } else { 0.0 }
    }
}

impl TrialResult {
    /// The answers to an operation that is not the only one counted or, without one, to all that throughput counts.
    #[must_use]
    pub fn answers(&self, operation: Option<&str>) -> Answers {
        match operation.and_then(|name| self.operation(name)).filter(|_| !self.counted.is_empty()) {
            Some(own) => Answers::of([own]),
            None => Answers::of(self.counted_operations()),
        }
    }

    /// Answers a second, to the operations that throughput counts.
    #[must_use]
    pub fn answered_per_second(&self) -> f64 {
        self.throughput * self.answers(None).for_each_ok()
    }
}

impl RunResult {
    /// Whether a refusal is an answer: the store's no to what the business asked for. An empty poll of a queue is none: however
    /// often consumers ask in vain, what there is to do is what is published.
    #[must_use]
    pub fn refusals_are_answers(&self) -> bool {
        workload(&self.plan.workload).is_none_or(|kind| kind.refusal.is_empty())
    }

    /// What of the operations that ended so was answered.
    #[must_use]
    pub fn answered(&self, ended: Answers) -> Answers {
        if self.refusals_are_answers() { ended } else { Answers { refused: 0, ..ended } }
    }
}

impl CellResult {
    /// The answers to one operation, over the trials that means are of.
    #[must_use]
    pub fn answers_to(&self, operation: &str) -> Answers {
        Answers::of(self.measured_trials().into_iter().filter_map(|trial| trial.operation(operation)))
    }

    /// The [answers](TrialResult::answers) of the trials that can be compared.
    #[must_use]
    pub fn answers(&self, operation: Option<&str>) -> Answers {
        Answers::sum(self.whole_trials().map(|trial| trial.answers(operation)))
    }
}
