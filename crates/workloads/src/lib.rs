//! The business workloads. Each has its parameters, its generator, its port (the operations that a store must
//! offer), the client that connects generator, port and ledger, and its audit.
//!
//! Invariants: a workload knows no store. Its audit sees only the ledger, which the clients keep in memory of fixed
//! size, and the store's final state; it never asks the store what it should have done.

mod epochs;
pub mod guarantee;
pub mod hosted;
pub mod interactive;
pub mod inventory;
pub mod join;
mod keys;
pub mod logs;
mod mix;
mod moments;
pub mod parcels;
mod pieces;
pub mod promises;
pub mod queue;
pub mod records;
mod replica;
mod services;
mod shared_count;
mod spec;
mod staleness;
mod store;
pub mod transactions;
mod trial;
mod verdict;
mod workload;

pub use acidtest_engine::{Attempt, ClientTask, Completion, Fault};
pub use epochs::Boundary;
pub use guarantee::{DURABILITY, Guarantee, Levels};
pub use hosted::{Reply, Served, ServedLine};
pub use keys::{Skew, SkewError};
pub use moments::OLDEST_LOST;
pub use replica::{Replica, Standing};
pub use services::{ServiceSpec, Services};
pub use spec::{Ramp, RunningService, WorkloadSpec};
pub use staleness::{Spread, Staleness};
pub use store::{Evictions, Identity, Owner, Place, Store, lock_namespace, time_opening};
pub use trial::{
    AuditResult, Consuming, LoadProgress, Medium, MessageCounts, Preparation, ReusableData, Side, TableSize,
    TrialLedger, TrialSetup, WorkloadTrial, WrittenLedger,
};
pub use verdict::{
    Audit, DIVERGED, Finding, LooksLike, PromisedLevel, READS_IN_DOUBT, Restart, SeenAnomaly, Verdict,
};
pub use workload::{Combine, DataSize, Values, Workload, WorkloadKind};

/// Every workload, in the order in which they are listed.
pub static WORKLOADS: &[WorkloadKind] =
    &[inventory::KIND, records::KIND, join::KIND, queue::KIND, logs::KIND, parcels::KIND, transactions::KIND];

#[must_use]
pub fn workload(name: &str) -> Option<&'static WorkloadKind> {
    WORKLOADS.iter().find(|kind| kind.name == name)
}

/// Runs a future that never waits, and returns its result.
#[cfg(test)]
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        /// A runtime for futures that wait with a time limit: a limit needs a clock even if it is never reached.
        static CLOCK: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    }
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    CLOCK.with(|clock| {
        let _entered = clock.enter();
        match std::pin::pin!(future).poll(&mut context) {
            std::task::Poll::Ready(output) => output,
            std::task::Poll::Pending => panic!("it waits"),
        }
    })
}

/// One parameter of a workload, as `acidtest workloads` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in plans; on the command line with `--` before it and dashes for underscores.
    pub name: &'static str,
    /// Its default value, as text.
    pub default: String,
    /// Its meaning, with the unit or the range.
    pub meaning: &'static str,
    /// Its values, where they are a few words; empty where they are not.
    pub choices: Vec<&'static str>,
}

/// The values of a parameter that is true or false.
pub(crate) const TRUTHS: [&str; 2] = ["false", "true"];

impl Parameter {
    /// One whose values are not a few words.
    #[expect(clippy::needless_pass_by_value, reason = "defaults are made where they are given")]
    pub(crate) fn new(name: &'static str, default: impl ToString, meaning: &'static str) -> Self {
        Self { name, default: default.to_string(), meaning, choices: Vec::new() }
    }

    /// The same, with these values and no others.
    pub(crate) fn of(self, choices: impl Into<Vec<&'static str>>) -> Self {
        Self { choices: choices.into(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_of_a_few_words_takes_these_and_no_other() {
        let takes = |kind: &WorkloadKind, name: &str, word: &str| {
            let value = match word.parse::<bool>() {
                Ok(truth) => truth.into(),
                Err(_) => word.into(),
            };
            // whether they fit together is another question
            match (kind.with)(&Values::from_iter([(name.to_owned(), value)])) {
                Err(error) => acidtest_model::UnknownName::of(&error).is_none() && !error.contains("must be"),
                Ok(_) => true,
            }
        };
        let mut tested = 0;
        for kind in WORKLOADS {
            for Parameter { name, default, choices, .. } in (kind.parameters)() {
                for choice in &choices {
                    assert!(takes(kind, name, choice), "{}: {name} {choice}", kind.name);
                    tested += 1;
                }
                if !choices.is_empty() {
                    assert!(choices.contains(&&*default), "{}: {name} is {default}", kind.name);
                    let wrong = (kind.with)(&Values::from_iter([(name.to_owned(), "other".into())]));
                    let error = wrong.err().unwrap_or_default();
                    let known = choices.iter().filter(|choice| choice.parse::<bool>().is_err());
                    let unsaid: Vec<_> = known.filter(|choice| !error.contains(**choice)).collect();
                    assert!(!error.is_empty() && unsaid.is_empty(), "{}: {name}: {error}", kind.name);
                }
            }
        }
        assert!(tested > 30, "{tested}");
    }
}
