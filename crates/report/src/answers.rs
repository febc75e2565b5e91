//! What a store answered: how much of it was acknowledged, and how much was refused.

use crate::{CellResult, OperationFigures, TrialResult, figure::total};

/// How many operations were acknowledged, and how many refused: all that a store answered as the business means it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) ok: u64,
    pub(crate) refused: u64,
}

impl Answers {
    pub(crate) fn of<'a>(operations: impl IntoIterator<Item = &'a OperationFigures>) -> Self {
        let ended =
            |each: &OperationFigures, outcome| each.service.get(outcome).map_or(0, |times| times.count);
        operations.into_iter().fold(Self::default(), |all, each| Self {
            ok: all.ok.saturating_add(ended(each, "ok")),
            refused: all.refused.saturating_add(ended(each, "refused")),
        })
    }

    fn all(self) -> f64 {
        total([self.ok, self.refused]) as f64
    }

    /// Answers for each acknowledged operation, 1 or more; 1 where none was acknowledged.
    pub(crate) fn for_each_ok(self) -> f64 {
        if self.ok > 0 { self.all() / self.ok as f64 } else { 1.0 }
    }

    /// Share of the answers that are refusals; 0 where there was no answer.
    pub(crate) fn refused_share(self) -> f64 {
        if self.all() > 0.0 { self.refused as f64 / self.all() } else { 0.0 }
    }
}

impl TrialResult {
    /// The answers to an operation that is not the only one counted or, without one, to all that throughput counts.
    pub(crate) fn answers(&self, operation: Option<&str>) -> Answers {
        match operation.and_then(|name| self.operation(name)).filter(|_| !self.counted.is_empty()) {
            Some(own) => Answers::of([own]),
            None => Answers::of(self.counted_operations()),
        }
    }

    /// Answers a second, to the operations that throughput counts.
    pub(crate) fn answered_per_second(&self) -> f64 {
        self.throughput * self.answers(None).for_each_ok()
    }
}

impl CellResult {
    /// The answers to one operation, over the trials that means are of.
    pub(crate) fn answers_to(&self, operation: &str) -> Answers {
        Answers::of(self.measured_trials().into_iter().filter_map(|trial| trial.operation(operation)))
    }

    /// The [answers](TrialResult::answers) of the trials that can be compared.
    pub(crate) fn answers(&self, operation: Option<&str>) -> Answers {
        self.whole_trials().map(|trial| trial.answers(operation)).fold(Answers::default(), |all, each| {
            Answers { ok: all.ok.saturating_add(each.ok), refused: all.refused.saturating_add(each.refused) }
        })
    }
}
