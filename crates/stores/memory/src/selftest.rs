//! The auditor tested: every planted bug against every check, and a correct store that must raise no
//! alarm.

use std::{sync::Arc, time::Duration};

use acidtest_engine::{EngineError, Extent, Load, OnRefused, Trial};
use acidtest_model::{Lock, StoreError};
use acidtest_workloads::{
    Audit, Place,
    inventory::{self, InventoryStore, OPERATIONS, Parameters, Replay, Scenario, Sequence, Stock},
};

use crate::{Bug, Faults, Memory};

/// Operations of a replayed sequence.
const REPLAYED: usize = 3000;

/// A store to audit, and whether an alarm is right.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What is wrong with it.
    pub faults: Faults,
    /// How reads and writes are protected.
    pub lock: Lock,
    /// Whether a sequence is replayed, whose own end the final stock must equal.
    pub replayed: bool,
}

impl Case {
    /// Every case: each bug, no protection at all, and correct stores, also with unanswered
    /// operations; bugs and a correct store once more in a replayed sequence.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let native = |faults| Self { faults, lock: Lock::Native, replayed: false };
        let unprotected = Self { lock: Lock::None, ..native(Faults::default()) };
        let mut cases: Vec<Self> = Bug::ALL.into_iter().map(|bug| native(Faults::bug(bug))).collect();
        cases.push(unprotected);
        for lock in [Lock::Soft, Lock::Hard, Lock::Native] {
            cases.push(Self { lock, ..native(Faults::default()) });
        }
        cases.push(native(Faults::timeouts(0.05)));
        cases.push(native(Faults::timeouts(0.5)));
        // an operation that is not acknowledged leaves a sequence without an end to compare
        let replayable = [Bug::DropWrite, Bug::ApplyTwice].map(Faults::bug);
        let replayed = replayable.into_iter().chain([Faults::default()]);
        cases.extend(replayed.map(|faults| Self { replayed: true, ..native(faults) }));
        cases
    }

    /// Whether the audit must find it broken; else it must find that it holds.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.faults.bug.is_some() || !self.lock.promises()
    }

    /// The case in a reader's words.
    #[must_use]
    pub fn meaning(&self) -> String {
        match (self.faults.bug, self.faults.timeouts > 0.0) {
            (Some(bug), _) if self.replayed => format!("{}, sequence replayed", bug.meaning()),
            (None, _) if self.replayed => "correct, sequence replayed".to_owned(),
            (Some(bug), _) => bug.meaning().to_owned(),
            (None, true) => format!("correct, {}", self.faults),
            (None, false) if self.lock.promises() => format!("correct, lock {}", self.lock),
            (None, false) => "no lock at all".to_owned(),
        }
    }
}

/// A self-test that could not be run.
#[derive(Debug, thiserror::Error)]
pub enum SelftestError {
    /// The engine had no threads.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The reference store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Drives the case's store for a moment under contention and audits it.
///
/// # Errors
/// When the operating system gives no threads.
pub async fn run(case: &Case, seed: u64) -> Result<Audit, SelftestError> {
    const CLIENTS: usize = 8;
    // two skus over three warehouses: few tuples, and captures that take from several
    // a write that is dropped must not leave a replayed capture waiting for ever
    let initial_max = if case.replayed { 10_000 } else { Parameters::default().initial_max };
    let parameters = Parameters { items: 24, skus: 2, initial_max, ..Parameters::default() };
    let stock = Arc::new(Stock::draw(&parameters, seed));
    let store = Memory::with(case.faults);
    let place = Place { namespace: "selftest".to_owned(), trial: 0 };
    store.load(&place, case.lock, &stock).await?;
    let sequence = case.replayed.then(|| Arc::new(Sequence::draw(&parameters, &stock, REPLAYED, seed)));
    let scenario = Scenario::new(&parameters, Arc::clone(&stock), sequence, seed);
    let (extent, on_refused) = if case.replayed {
        (Extent::Operations(REPLAYED as u64), OnRefused::Retry(Duration::from_millis(1)))
    } else {
        (Extent::Time(Duration::from_millis(300)), OnRefused::Count)
    };
    // an answer that never comes is given up by the engine, as in every run
    let load =
        Load { seed, on_refused, timeout: Duration::from_millis(20), ..Load::closed(OPERATIONS, extent) };
    let tasks = (0..CLIENTS).map(|_| store.client(&place, case.lock, scenario.clone())).collect();
    Trial::new(load, CLIENTS).run(tasks)?;
    let held = store.stock(&place).await;
    let sequence = scenario.sequence.as_deref();
    let replay = sequence.map(|sequence| Replay { sequence, in_order: false });
    Ok(inventory::audit(&stock, &scenario.ledger, held, replay))
}
