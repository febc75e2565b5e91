//! The auditor tested: every planted bug against every check of every workload, and correct stores that
//! must raise no alarm.

use std::{convert::Infallible, thread, time::Duration};

use acidtest_engine::{EngineError, Extent, Load, Measurement, OnRefused, Stop, Trial};
use acidtest_model::{Lock, StoreError};
use acidtest_workloads::{
    AuditResult, LoadProgress, Place, ReusableData, TrialSetup, Values, Workload, WorkloadKind,
    WorkloadTrial, inventory, join, queue, records,
};
use serde::{Deserialize, Serialize};

use crate::{Bug, Faults, Memory, Watch};

/// Operations of a replayed sequence.
const REPLAYED: u64 = 1000;

/// How long a case is driven at first, in simulated time: a hundred operations of each client.
const LENGTH: Duration = Duration::from_millis(500);

/// What an interrupted trial has for what is in flight.
const GRACE: Duration = Duration::from_millis(5);

/// The share of operations that take their time, so that clients do not go in step.
const DELAYS: f64 = 0.3;

/// How often a case with a bug is driven, each time twice as long, until the bug has struck where it must be seen.
const TRIES: u32 = 6;

/// When a client gives up an answer that does not come: soon where some never come, and else when all have.
const TIMEOUTS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(5)];

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
        cases.push(together.with(Faults::unanswered(0.05)));
        cases.extend(Bug::JOIN.map(|bug| Self::join().with(Faults::bug(bug))));
        cases.push(Self::join());
        cases.push(Self::join().with(Faults::unanswered(0.05)));
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
            cases.extend([0.05, 0.5].map(|share| correct.clone().with(Faults::unanswered(share))));
        }
        cases.push(Self::queue(r#""ack": "none", "consume": "auto""#));
        cases
    }

    /// The cases that every workload has.
    fn of(correct: &Self, bugs: &[Bug]) -> Vec<Self> {
        let with = |faults| correct.clone().with(faults);
        let mut cases: Vec<Self> = bugs.iter().map(|bug| with(Faults::bug(*bug))).collect();
        cases.extend(Lock::ALL.map(|lock| correct.clone().under(lock)));
        cases.extend([0.05, 0.5].map(|share| with(Faults::unanswered(share))));
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
        let what = match (self.faults.bug, self.faults.unanswered > 0.0) {
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

/// What driving a trial came to.
#[derive(Clone, Debug)]
pub struct DrivenTrial {
    /// What was measured.
    pub measurement: Measurement,
    /// What the audit made of it, and what it leaves to the next trial.
    pub audited: AuditResult,
    /// How often the bug has struck.
    pub struck: u64,
    /// How much of that the audit must see.
    pub shown: u64,
}

/// By which clock a trial is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The paused clock of the runtime that it is driven on, all clients on its thread: it replays exactly.
    Simulated,
    /// The system's, on as many threads as the load says.
    System,
}

/// How a trial is driven.
#[derive(Clone, Copy, Debug)]
pub struct DriveOptions {
    /// So many clients.
    pub clients: u32,
    /// By which clock.
    pub clock: Clock,
    /// When it is interrupted, as by a user, where that is simulated.
    pub halt: Option<Duration>,
}

/// Interrupts a trial, and after a moment gives up what is still in flight.
async fn halted(trial: &Trial, halt: Option<Duration>) -> Infallible {
    if let Some(after) = halt {
        tokio::time::sleep(after).await;
        trial.stop(Stop::Interrupted);
        tokio::time::sleep(GRACE).await;
        trial.give_up();
    }
    std::future::pending().await
}

/// One trial: lays its data in, unless it is left from an earlier one, drives its clients and audits it.
///
/// # Errors
/// When the operating system gives no threads, and what the store says of loading.
pub async fn drive(
    store: &Memory,
    trial: &dyn WorkloadTrial,
    place: &Place,
    is_left: bool,
    load: Load,
    DriveOptions { clients, clock, halt }: DriveOptions,
) -> Result<DrivenTrial, SelftestError> {
    if !is_left {
        trial.load(store, place, &LoadProgress::default()).await?;
    }
    let before = store.strikes();
    let tasks = (0..clients).map(|_| trial.client(store, place)).collect::<Result<Vec<_>, _>>()?;
    let measurement = match clock {
        Clock::Simulated => {
            let trial = Trial::simulated(load, clients as usize);
            tokio::select! {
                biased;
                measurement = trial.run_simulated(tasks) => measurement,
                never = halted(&trial, halt) => match never {},
            }
        }
        Clock::System => Trial::new(load, clients as usize).run(tasks)?,
    };
    let audited = trial.audit(Ok(store), place).await;
    Ok(DrivenTrial { measurement, audited, struck: store.strikes() - before, shown: store.shown(place) })
}

/// Runs a task by the clock. By the simulated one, time passes only while all of the task waits.
///
/// # Panics
/// Where the task panics, or no thread is to be had.
pub fn by<T: Send, F: Future<Output = T>>(clock: Clock, task: impl FnOnce() -> F + Send) -> T {
    let run = || {
        let paused = clock == Clock::Simulated;
        // one without input and output asks the system for nothing
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(paused).build();
        runtime.map(|runtime| runtime.block_on(task()))
    };
    // a runtime cannot be run from within another
    let ran = thread::scope(|scope| scope.spawn(run).join());
    match ran {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => panic!("no runtime: {error}"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Drives the case's store under contention, by a simulated clock, and audits it: one that must be found broken until
/// it has done what must be seen. The same seed gives the same.
///
/// # Errors
/// Parameters that describe no workload.
pub fn run(case: &Case, seed: u64) -> Result<DrivenTrial, SelftestError> {
    let mut tries = 1..=TRIES;
    loop {
        let number = tries.next().unwrap_or(TRIES);
        let (seed, length) = (seed.wrapping_add(u64::from(number) << 32), LENGTH * (1 << (number - 1)));
        let driven =
            by(Clock::Simulated, || async { case.drive(&case.store(seed), seed, length, None).await })?;
        if driven.shown > 0 || !case.is_broken() || tries.is_empty() {
            return Ok(driven);
        }
    }
}

/// Drives a case twice, the second time over what the first one has left, which the bug leaves alone.
///
/// # Errors
/// Parameters that describe no workload.
///
/// # Panics
/// Where the first trial leaves nothing to the second.
pub fn run_twice(case: &Case, seed: u64) -> Result<[DrivenTrial; 2], SelftestError> {
    by(Clock::Simulated, || async {
        let store = case.store(seed);
        store.plant(false);
        let first = case.drive(&store, seed, LENGTH, None).await?;
        store.plant(true);
        let left = first.audited.left.clone();
        assert!(left.is_some(), "nothing was left: {}", first.audited.audit);
        let second = case.drive(&store, seed, LENGTH, left).await?;
        Ok([first, second])
    })
}

impl Case {
    fn store(&self, seed: u64) -> Memory {
        let faults = Faults { delays: DELAYS, ..self.faults };
        Memory::watched(faults, seed, Watch { exact: true, recorded: false })
    }

    /// One trial of so long, over what an earlier one has left or data of its own.
    async fn drive(
        &self,
        store: &Memory,
        seed: u64,
        length: Duration,
        left: Option<ReusableData>,
    ) -> Result<DrivenTrial, SelftestError> {
        let workload = self.workload()?;
        let clients = workload.clients().unwrap_or(8);
        let trace = self.replayed.then_some(REPLAYED);
        let is_left = left.is_some();
        let trial = workload.trial(TrialSetup { lock: self.lock, seed, clients, trace, left });
        let place = Place { namespace: "selftest".to_owned(), trial: 0 };
        let (extent, on_refused) = if self.replayed {
            (Extent::Operations(REPLAYED), OnRefused::Retry(Duration::from_millis(1)))
        } else {
            (Extent::Time(length), OnRefused::Count)
        };
        let timeout = TIMEOUTS[usize::from(self.faults.unanswered == 0.0)];
        let load = Load { seed, on_refused, timeout, ..Load::closed(workload.operations(), extent) };
        let scheduled = workload.scheduled().map(|clients| clients as usize);
        let load = Load { spans: workload.spans(), scheduled, ..load };
        let way = DriveOptions { clients, clock: Clock::Simulated, halt: None };
        drive(store, &*trial, &place, is_left, load, way).await
    }
}
