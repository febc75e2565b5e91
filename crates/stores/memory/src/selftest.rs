//! The auditor tested: every planted bug against every check, and a correct store that must raise no
//! alarm.

use std::{sync::Arc, time::Duration};

use acidtest_engine::{EngineError, Extent, Load, Trial};
use acidtest_model::{Lock, StoreError};
use acidtest_workloads::{
    Audit, Place,
    inventory::{self, InventoryStore, OPERATIONS, Parameters, Scenario, Stock},
};

use crate::{Bug, Faults, Memory};

/// A store to audit, and whether an alarm is right.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What is wrong with it.
    pub faults: Faults,
    /// How reads and writes are protected.
    pub lock: Lock,
}

impl Case {
    /// Every case: each bug, no protection at all, and correct stores, also with unanswered
    /// operations.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let native = |faults| Self { faults, lock: Lock::Native };
        let unprotected = Self { faults: Faults::default(), lock: Lock::None };
        let mut cases: Vec<Self> = Bug::ALL.into_iter().map(|bug| native(Faults::bug(bug))).collect();
        cases.push(unprotected);
        for lock in [Lock::Soft, Lock::Hard, Lock::Native] {
            cases.push(Self { faults: Faults::default(), lock });
        }
        cases.push(native(Faults::timeouts(0.05)));
        cases.push(native(Faults::timeouts(0.5)));
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
    let parameters = Parameters { items: 24, skus: 2, ..Parameters::default() };
    let stock = Arc::new(Stock::draw(&parameters, seed));
    let store = Memory::with(case.faults);
    let place = Place { namespace: "selftest".to_owned(), trial: 0 };
    store.load(&place, case.lock, &stock).await?;
    let scenario = Scenario::new(&parameters, Arc::clone(&stock), None, seed);
    let load = Load { seed, ..Load::closed(OPERATIONS, Extent::Time(Duration::from_millis(300))) };
    let tasks = (0..CLIENTS).map(|_| store.client(&place, case.lock, scenario.clone())).collect();
    Trial::new(load, CLIENTS).run(tasks)?;
    let held = store.stock(&place).await;
    Ok(inventory::audit(&stock, &scenario.ledger, held, None))
}
