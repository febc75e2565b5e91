//! The auditor tested: every planted bug against every check of every workload, and correct stores that
//! must raise no alarm.

use std::time::Duration;

use acidtest_engine::{EngineError, Extent, Load, OnRefused, Trial};
use acidtest_model::{Lock, StoreError};
use acidtest_workloads::{
    Audit, Loaded, Place, Terms, Values, Workload, WorkloadKind, inventory, join, queue, records,
};

use crate::{Bug, Faults, Memory};

/// Operations of a replayed sequence.
const REPLAYED: u64 = 3000;

/// How long a case is driven: many times what its bug needs to show.
const LENGTH: Duration = Duration::from_millis(100);

/// Parameters of records that make them few and small.
const FEW: &str = r#"{"records": 24, "keys": "uniform", "fields": 4, "field_bytes": 32"#;

/// A store to audit, and whether an alarm is right.
#[derive(Clone, Debug)]
pub struct Case {
    /// The workload that it carries.
    pub workload: &'static WorkloadKind,
    /// Those of its parameters that are not its defaults.
    pub values: Values,
    /// What is wrong with the store.
    pub faults: Faults,
    /// How reads and writes are protected.
    pub lock: Lock,
    /// Whether a sequence is replayed, whose own end the final state must equal.
    pub replayed: bool,
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
    /// The parameters describe no workload.
    #[error("{0}")]
    Parameters(String),
}

/// Values as JSON writes them.
fn values(json: &str) -> Values {
    // written here, and held to be JSON by the tests
    serde_json::from_str(json).unwrap_or_default()
}

impl Case {
    /// A correct inventory under the native lock, of few tuples and captures that take from several.
    #[must_use]
    pub fn inventory() -> Self {
        Self {
            workload: &inventory::KIND,
            // two skus over three warehouses
            values: values(r#"{"items": 24, "skus": 2}"#),
            faults: Faults::default(),
            lock: Lock::Native,
            replayed: false,
        }
    }

    /// Correct records under the native lock, few, with a mix of operations, and so many in one transaction.
    #[must_use]
    pub fn records(mix: &str, transaction: u32) -> Self {
        let values = values(&format!(r#"{FEW}, "mix": "{mix}", "transaction": {transaction}}}"#));
        Self { workload: &records::KIND, values, ..Self::inventory() }
    }

    /// A correct join of few rows. Nothing is written, so no lock mode matters.
    #[must_use]
    pub fn join() -> Self {
        let values = values(r#"{"records": 200, "ext_rows": 40}"#);
        Self { workload: &join::KIND, values, ..Self::inventory() }
    }

    /// A correct queue with these parameters in JSON. Nothing is decided, so there is no lock mode.
    #[must_use]
    pub fn queue(parameters: &str) -> Self {
        Self { workload: &queue::KIND, values: values(&format!("{{{parameters}}}")), ..Self::inventory() }
    }

    /// Every case of every workload, those of a workload together: each bug, no protection at all, and
    /// correct stores, also with unanswered operations.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let records = Self::records("read:2+update:1+insert:1+scan:1+rmw:1", 1);
        let mut cases = Self::of(&Self::inventory(), &Bug::INVENTORY);
        // an operation that is not acknowledged leaves a sequence without an end to compare
        let replayable = [Bug::DropWrite, Bug::ApplyTwice].map(Faults::bug);
        let replayed = replayable.into_iter().chain([Faults::default()]);
        cases.extend(replayed.map(|faults| Self::inventory().replayed().with(faults)));
        cases.extend(Self::of(&records, &Bug::RECORDS));
        let together = Self::records("read:1+update:1+insert:1+rmw:1", 4);
        cases.extend([Lock::Soft, Lock::Hard].map(|lock| together.clone().under(lock)));
        cases.push(together.with(Faults::timeouts(0.05)));
        cases.extend(Bug::JOIN.map(|bug| Self::join().with(Faults::bug(bug))));
        cases.push(Self::join());
        cases.push(Self::join().with(Faults::timeouts(0.05)));
        cases.extend(Self::queues());
        cases
    }

    /// The cases of a queue: every bug with messages one by one, correct stores in all modes.
    fn queues() -> Vec<Self> {
        let singles = Self::queue(r#""in_flight": 4"#);
        let transactions = Self::queue(r#""ack": "transaction", "consume": "transaction", "batch": 4"#);
        let mut cases: Vec<Self> =
            Bug::QUEUE.iter().map(|bug| singles.clone().with(Faults::bug(*bug))).collect();
        for correct in [singles, transactions] {
            cases.push(correct.clone());
            cases.extend([0.05, 0.5].map(|share| correct.clone().with(Faults::timeouts(share))));
        }
        cases.push(Self::queue(r#""ack": "none", "consume": "auto""#));
        cases
    }

    /// The cases that every workload has.
    fn of(correct: &Self, bugs: &[Bug]) -> Vec<Self> {
        let with = |faults| correct.clone().with(faults);
        let mut cases: Vec<Self> = bugs.iter().map(|bug| with(Faults::bug(*bug))).collect();
        cases.extend(Lock::ALL.map(|lock| correct.clone().under(lock)));
        cases.extend([0.05, 0.5].map(|share| with(Faults::timeouts(share))));
        cases
    }

    /// The same with something wrong.
    #[must_use]
    pub fn with(self, faults: Faults) -> Self {
        Self { faults, ..self }
    }

    /// The same under another lock mode.
    #[must_use]
    pub fn under(self, lock: Lock) -> Self {
        Self { lock, ..self }
    }

    /// The same with a sequence that is replayed.
    #[must_use]
    pub fn replayed(mut self) -> Self {
        // a write that is dropped must not leave a replayed capture waiting for ever
        self.values.insert("initial_max".to_owned(), 10_000.into());
        Self { replayed: true, ..self }
    }

    /// Whether the audit must find it broken; else it must find that it holds.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.faults.bug.is_some() || !self.lock.promises()
    }

    /// The case in a reader's words.
    #[must_use]
    pub fn meaning(&self) -> String {
        let transaction = self.values.get("transaction").and_then(serde_json::Value::as_u64).unwrap_or(1);
        let what = match (self.faults.bug, self.faults.timeouts > 0.0) {
            (Some(bug), _) => bug.meaning().to_owned(),
            (None, true) => format!("correct, {}", self.faults),
            (None, false) if self.replayed || self.is_queue() => "correct".to_owned(),
            (None, false) if self.lock.promises() => format!("correct, lock {}", self.lock),
            (None, false) => "no lock at all".to_owned(),
        };
        let way = |name, usual| self.values.get(name).and_then(serde_json::Value::as_str).unwrap_or(usual);
        match (self.replayed, transaction) {
            _ if self.is_queue() && self.faults.bug.is_none() => {
                format!("{what}, ack {}, consume {}", way("ack", "confirm"), way("consume", "ack"))
            }
            (true, _) => format!("{what}, sequence replayed"),
            (false, 1) => what,
            (false, several) => format!("{what}, {several} a transaction"),
        }
    }

    fn is_queue(&self) -> bool {
        self.workload.name == queue::KIND.name
    }

    fn workload(&self) -> Result<Box<dyn Workload>, SelftestError> {
        (self.workload.with)(&self.values).map_err(SelftestError::Parameters)
    }
}

/// Drives the case's store for a moment under contention and audits it.
///
/// # Errors
/// When the operating system gives no threads.
pub async fn run(case: &Case, seed: u64) -> Result<Audit, SelftestError> {
    let workload = case.workload()?;
    let clients = workload.clients().unwrap_or(8);
    let trace = case.replayed.then_some(REPLAYED);
    let trial = workload.trial(Terms { lock: case.lock, seed, clients, trace, left: None });
    let store = Memory::with(case.faults);
    let place = Place { namespace: "selftest".to_owned(), trial: 0 };
    trial.load(&store, &place, &Loaded::default()).await?;
    let (extent, on_refused) = if case.replayed {
        (Extent::Operations(REPLAYED), OnRefused::Retry(Duration::from_millis(1)))
    } else {
        (Extent::Time(LENGTH), OnRefused::Count)
    };
    // an answer that never comes is given up by the engine, as in every run
    let timeout = Duration::from_millis(20);
    let load = Load { seed, on_refused, timeout, ..Load::closed(workload.operations(), extent) };
    let load = Load { spans: workload.spans(), ..load };
    let tasks = (0..clients).map(|_| trial.client(&store, &place)).collect::<Result<Vec<_>, _>>()?;
    Trial::new(load, clients as usize).run(tasks)?;
    Ok(trial.audit(Ok(&store), &place).await.audit)
}
