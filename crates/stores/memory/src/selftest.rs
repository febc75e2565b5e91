//! The self-test of the audits: drives the reference store with every planted bug, which the audit must find, and
//! correct stores, in which it must find nothing.

use std::{convert::Infallible, sync::Arc, thread, time::Duration};

use acidtest_engine::{EngineError, Extent, Load, Measurement, OnRefused, Stop, Trial};
use acidtest_model::{
    Consistency, EffectiveDurability, Lock, ReadPolicy, Reads, Replication, Route, StoreError,
};
use acidtest_workloads::{
    AuditResult, LoadProgress, Place, Restart, ReusableData, Store, TrialSetup, Values, Workload,
    WorkloadKind, WorkloadTrial, inventory, join, logs, parcels, queue, records, transactions,
};
use serde::{Deserialize, Serialize};

use crate::{Bug, Faults, KnownStaleness, Memory, Watch};

/// Number of operations in a replayed sequence.
const REPLAYED: u64 = 1000;

/// How long a case is driven in the first try, in simulated time: enough for about a hundred operations of each
/// client.
const LENGTH: Duration = Duration::from_millis(500);

/// How long the operations in flight of an interrupted trial may take until they are given up.
const GRACE: Duration = Duration::from_millis(5);

/// Share of operations that are delayed, from 0 to 1, so that clients do not run in step.
const DELAYS: f64 = 0.3;

/// How often at most a case with a bug is driven, each time twice as long, until an audit must see the bug.
const TRIES: u32 = 6;

/// How long a client waits for an answer: short where some answers never come, long where all do.
const TIMEOUTS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(5)];

/// Parameters of the records workload for few and small records; the JSON object is left open for more.
const FEW: &str = r#"{"records": 24, "keys": "uniform", "fields": 4, "field_bytes": 32"#;

/// One case of the self-test: a workload, and the reference store with its faults.
#[derive(Clone, Debug)]
pub struct Case {
    pub workload: &'static WorkloadKind,
    /// The workload's parameters that differ from their defaults.
    pub values: Values,
    pub faults: Faults,
    pub lock: Lock,
    /// How its clients read, where the store has replicas that answer.
    pub reads: ReadPolicy,
    /// Whether a fixed sequence of operations is replayed, so that the audit also compares the final state with the
    /// end of the sequence.
    pub replayed: bool,
}

/// The reason why a case could not be driven.
#[derive(Debug, thiserror::Error)]
pub enum SelftestError {
    /// The engine could not run the trial.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The reference store failed to load the data or to open a client.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The workload rejects the parameters, for this reason.
    #[error("{0}")]
    Parameters(String),
}

/// Parses parameters from a JSON object.
fn values(json: &str) -> Values {
    // the JSON is in this file, and the tests check that it is valid
    serde_json::from_str(json).unwrap_or_default()
}

impl Case {
    /// A correct inventory under the native lock, with few tuples, so that captures take units from several.
    #[must_use]
    pub fn inventory() -> Self {
        Self {
            workload: &inventory::KIND,
            // two skus over three warehouses, so that one capture takes units from several tuples
            values: values(r#"{"items": 24, "skus": 2}"#),
            faults: Faults::default(),
            lock: Lock::Native,
            reads: ReadPolicy::default(),
            replayed: false,
        }
    }

    /// A few correct records under the native lock, with this mix and this number of operations in a transaction.
    #[must_use]
    pub fn records(mix: &str, transaction: u32) -> Self {
        let values = values(&format!(r#"{FEW}, "mix": "{mix}", "transaction": {transaction}}}"#));
        Self { workload: &records::KIND, values, ..Self::inventory() }
    }

    /// A correct join of few rows. Nothing is written, so that the lock mode does not matter.
    #[must_use]
    pub fn join() -> Self {
        let values = values(r#"{"records": 200, "ext_rows": 40}"#);
        Self { workload: &join::KIND, values, ..Self::inventory() }
    }

    /// A correct queue with these parameters, given as the inside of a JSON object. Lock modes do not apply to it.
    #[must_use]
    pub fn queue(parameters: &str) -> Self {
        Self { workload: &queue::KIND, values: values(&format!("{{{parameters}}}")), ..Self::inventory() }
    }

    /// Correct logs with this many entries a request.
    #[must_use]
    pub fn logs(together: u32) -> Self {
        // as many as can be sent in the time of a trial
        let values = values(&format!(r#"{{"entries_per_request": {together}, "entries": 100}}"#));
        Self { workload: &logs::KIND, values, ..Self::inventory() }
    }

    /// Correct parcels under the native lock, of which a few are on their way, with this many scans at once.
    #[must_use]
    pub fn parcels(together: u32) -> Self {
        let values = values(&format!(
            r#"{{"parcels": 6, "scans": 50, "eighths": 0.1, "mix": "insert:2+hash:1+id:1", "insert_batch": {together}}}"#
        ));
        Self { workload: &parcels::KIND, values, ..Self::inventory() }
    }

    /// Correct transactions on few keys, at the store's default level, which is serializable, or at another one. Lock modes do not
    /// apply to them.
    #[must_use]
    pub fn transactions(isolation: &str) -> Self {
        let values = values(&format!(r#"{{"keys": 3, "isolation": "{isolation}"}}"#));
        Self { workload: &transactions::KIND, values, ..Self::inventory() }
    }

    /// All cases, in order of workload: every bug, no lock at all, and correct stores, also with unanswered
    /// operations.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let records = Self::records("read:2+update:1+insert:1+scan:1+rmw:1", 1);
        let mut cases = Self::of(&Self::inventory(), &Bug::INVENTORY);
        // only bugs that acknowledge everything: without an acknowledgement the sequence's end is not known
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
        cases.extend(Bug::LOGS.map(|bug| Self::logs(1).with(Faults::bug(bug))));
        cases.extend([1, 5].map(Self::logs));
        cases.extend([0.05, 0.3].map(|share| Self::logs(5).with(Faults::unanswered(share))));
        cases.extend(Self::of(&Self::parcels(1), &Bug::PARCELS));
        cases.extend([Lock::Soft, Lock::Hard, Lock::Native].map(|lock| Self::parcels(3).under(lock)));
        cases.push(Self::parcels(3).with(Faults::unanswered(0.05)));
        let transactions = || Self::transactions("default");
        cases.extend(Bug::TRANSACTIONS.map(|bug| transactions().with(Faults::bug(bug))));
        cases.extend(["read-committed", "repeatable-read", "serializable"].map(Self::transactions));
        cases.extend([0.05, 0.5].map(|share| transactions().with(Faults::unanswered(share))));
        cases.extend(Self::killed());
        cases.extend(Self::promoted());
        cases.extend(Self::replicated());
        cases
    }

    /// Records that are read at replicas: correct stores of each consistency, also with leaders lost, read by each choice of members
    /// and each route; and those that show what they must not.
    fn replicated() -> Vec<Self> {
        let records = Self::records("read:6+update:2+insert:1+scan:1+rmw:1", 1);
        let (any, spread) = (Reads::Any, Route::Spread);
        let mut cases = Vec::new();
        for consistency in Consistency::ALL {
            let store = Faults::replicas(consistency);
            for from in [Reads::Replica, Reads::Any] {
                cases.extend(Route::ALL.map(|route| records.clone().with(store).reading(from, route)));
            }
            let lost = Faults { replicas: Some(consistency), ..Faults::cluster(Replication::Quorum) };
            cases.push(records.clone().with(lost).reading(Reads::Replica, spread));
        }
        let lost = Faults { replicas: Some(Consistency::Eventual), ..Faults::cluster(Replication::Async) };
        cases.push(records.clone().with(lost).reading(any, spread));
        for bug in Bug::OF_STRONG_REPLICAS.into_iter().chain(Bug::OF_REPLICAS) {
            // whoever reads at several members may go back
            let route = if bug == Bug::GoBack { Route::Pinned } else { spread };
            cases.push(records.clone().with(Faults::bug(bug)).reading(Reads::Replica, route));
        }
        cases
    }

    /// Clusters whose leaders are lost or cut off: correct ones of each level, and those that have less than a quorum had confirmed.
    fn promoted() -> Vec<Self> {
        let reads = Self::records("read:3+update:1", 1);
        let mut cases = Vec::new();
        for each in [
            Self::inventory(),
            Self::records("read:1+update:1+insert:1+rmw:1", 4),
            Self::queue(r#""in_flight": 4"#),
            Self::logs(4),
            Self::parcels(3),
            Self::transactions("default"),
        ] {
            let correct = [Replication::Async, Replication::Quorum].map(Faults::cluster);
            let bugs = [Bug::LoseLast, Bug::SplitBrain];
            let broken = bugs.map(|bug| Faults::cluster(Replication::Quorum).with(bug));
            cases.extend(correct.into_iter().chain(broken).map(|faults| each.clone().with(faults)));
        }
        cases.extend([reads, Self::parcels(1)].map(|case| case.with(Faults::bug(Bug::StaleLeader))));
        cases
    }

    /// Stores that are killed again and again: correct ones, and those that forget something each time.
    fn killed() -> Vec<Self> {
        let together = Self::records("read:1+update:1+insert:1+rmw:1", 4);
        let queue = Self::queue(r#""ack": "transaction", "consume": "transaction", "batch": 4"#);
        let correct = Faults { outages: true, ..Faults::default() };
        let mut cases = Vec::new();
        for each in [
            Self::inventory(),
            together,
            queue.clone(),
            Self::logs(4),
            Self::parcels(3),
            Self::transactions("default"),
        ] {
            cases.extend(Bug::AT_A_KILL.map(|bug| each.clone().with(Faults::bug(bug))));
            cases.push(each.with(correct));
        }
        let single = Self::queue(r#""in_flight": 4"#);
        cases.extend(Bug::QUEUE_AT_A_KILL.map(|bug| queue.clone().with(Faults::bug(bug))));
        cases.push(single.with(Faults { outages: true, ..Faults::bug(Bug::Unflag) }));
        // consumers go on with what they have while they do not know of the kill
        let ahead = Self::queue(r#""in_flight": 10, "batch": 5, "prefetch": 30"#);
        let unconfirmed = |faults| ahead.clone().with(Faults { unconfirmed: true, ..faults });
        cases.push(unconfirmed(Faults::bug(Bug::ForgetHeld)));
        cases.push(unconfirmed(correct));
        cases
    }

    /// The cases of the queue workload: every bug with single messages, and correct stores also with transactions and
    /// without acknowledgements.
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

    /// The cases of the inventory and of the records: each bug, each lock mode, and unanswered operations.
    fn of(correct: &Self, bugs: &[Bug]) -> Vec<Self> {
        let with = |faults| correct.clone().with(faults);
        let mut cases: Vec<Self> = bugs.iter().map(|bug| with(Faults::bug(*bug))).collect();
        cases.extend(Lock::ALL.map(|lock| correct.clone().under(lock)));
        cases.extend([0.05, 0.5].map(|share| with(Faults::unanswered(share))));
        cases
    }

    #[must_use]
    pub fn with(self, faults: Faults) -> Self {
        Self { faults, ..self }
    }

    /// The same case, read at these members by this route, and promised what its store has been told to keep.
    #[must_use]
    pub fn reading(self, from: Reads, route: Route) -> Self {
        let consistency = self.faults.replicas.unwrap_or_default();
        Self { reads: ReadPolicy { from, route, consistency }, ..self }
    }

    #[must_use]
    pub fn under(self, lock: Lock) -> Self {
        Self { lock, ..self }
    }

    /// The same case with a replayed sequence, and with more units in stock, so that no capture waits for units.
    #[must_use]
    pub fn replayed(mut self) -> Self {
        // a dropped release must not leave a replayed capture waiting for its units for ever
        self.values.insert("initial_max".to_owned(), 10_000.into());
        Self { replayed: true, ..self }
    }

    /// Whether the right verdict is broken: a bug is planted, or the lock mode or a cluster's replication promises nothing. Else it
    /// is holds.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.faults.bug.is_some() || !self.lock.promises() || self.faults.without().is_some()
    }

    /// The case in a few words, for reports.
    #[must_use]
    pub fn meaning(&self) -> String {
        let transaction = self.values.get("transaction").and_then(serde_json::Value::as_u64).unwrap_or(1);
        let what = match (self.faults.bug, self.faults.unanswered > 0.0) {
            (Some(bug), _) if self.faults.is_cluster() => format!("a cluster {}", bug.meaning()),
            (Some(bug), _) => bug.meaning().to_owned(),
            (None, true) => format!("correct, {}", self.faults),
            (None, false) if self.faults.is_cluster() => {
                format!("correct cluster, replication {}", self.faults.replication.name())
            }
            (None, false) if self.faults.outages => "correct, killed again and again".to_owned(),
            (None, false) if self.replayed || self.is_queue() => "correct".to_owned(),
            (None, false) if self.workload.name == transactions::KIND.name => "correct".to_owned(),
            (None, false) if self.lock.promises() => format!("correct, lock {}", self.lock),
            (None, false) => "no lock at all".to_owned(),
        };
        let way = |name, usual| self.values.get(name).and_then(serde_json::Value::as_str).unwrap_or(usual);
        match (self.replayed, transaction) {
            _ if !self.reads.is_leader() => {
                let ReadPolicy { from, route, consistency } = self.reads;
                format!("{what}, reads {from}, {route}, {consistency}")
            }
            _ if self.is_queue() && self.faults.bug.is_none() => {
                format!("{what}, ack {}, consume {}", way("ack", "confirm"), way("consume", "ack"))
            }
            _ if self.values.contains_key("isolation") => {
                format!("{what}, isolation {}", way("isolation", "default"))
            }
            (true, _) => format!("{what}, sequence replayed"),
            (false, 1) => match self.values.get("insert_batch").and_then(serde_json::Value::as_u64) {
                None | Some(1) => what,
                Some(together) => format!("{what}, {together} at once"),
            },
            (false, several) => format!("{what}, {several} a transaction"),
        }
    }

    /// The guarantees that it does without.
    fn without(&self, workload: &dyn Workload) -> Vec<&'static str> {
        let of_cluster =
            self.faults.without().into_iter().chain(self.faults.without_at_replicas().iter().copied());
        workload.spec().without(self.lock).into_iter().chain(of_cluster).collect()
    }

    fn is_queue(&self) -> bool {
        self.workload.name == queue::KIND.name
    }

    fn workload(&self) -> Result<Box<dyn Workload>, SelftestError> {
        (self.workload.with)(&self.values).map_err(SelftestError::Parameters)
    }
}

/// The results of a trial that was driven and audited.
#[derive(Clone, Debug)]
pub struct DrivenTrial {
    pub measurement: Measurement,
    /// The audit, and the data that the trial leaves for the next one to reuse.
    pub audited: AuditResult,
    /// How often the bug struck during the trial.
    pub struck: u64,
    /// How often the store was killed during the trial.
    pub kills: u64,
    /// Whether it was found in another life afterwards, and nobody had been told.
    pub restarted: bool,
    /// Whether another server answered after a kill that was told of.
    pub failed_over: bool,
    /// Whether a replica was promoted, or its promotion was about to come.
    pub promoted: bool,
    /// The number of violations that the audit must see.
    pub shown: u64,
    /// How old reads were that other members than the leader may have answered, as far as that is known.
    pub known: KnownStaleness,
}

impl DrivenTrial {
    /// What the audit has told wrongly of the age of reads, in words; none if it is right, or nobody knows.
    #[must_use]
    pub fn misjudged_age(&self) -> Option<String> {
        self.audited.staleness.as_ref().and_then(|told| self.known.contradicts(told))
    }

    /// Judges anew, as a run does, what was audited of a store that had restarted unasked, or in whose place another one answers,
    /// or in which a replica was promoted, where the cell does `without` these guarantees. The first keeps nothing over a restart, or
    /// need not; the second had all. What reads missed whose replica may have restarted proves nothing.
    pub fn cross_restart(&mut self, without: &[impl AsRef<str>]) {
        if self.restarted {
            let restart = Restart { keeps: EffectiveDurability::None, is_same: true, suspected: None };
            self.audited.audit.across_restart(restart, without);
        } else if self.failed_over {
            self.audited.audit.across_failover(EffectiveDurability::Disk, without);
        } else if self.promoted {
            // some of the leaders were cut off
            self.audited.audit.across_split();
            self.audited.audit.across_epochs(without);
            self.audited.audit.across_promotion(without);
        }
        self.audited.audit.doubt_reads(without);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The paused clock of a tokio runtime, all clients on its one thread. The same seed gives the same trial.
    Simulated,
    /// The system's clock, on as many threads as [`Load::threads`] says.
    System,
}

/// Number of clients, clock and interruption of a driven trial.
#[derive(Clone, Copy, Debug)]
pub struct DriveOptions {
    pub clients: u32,
    pub clock: Clock,
    /// When the trial is interrupted, as by a user, counted from its start; only by the simulated clock.
    pub halt: Option<Duration>,
}

/// Interrupts a trial after this long, and gives up the operations that are still in flight after [`GRACE`]. Never
/// returns.
async fn halted(trial: &Trial, halt: Option<Duration>) -> Infallible {
    if let Some(after) = halt {
        tokio::time::sleep(after).await;
        trial.stop(Stop::Interrupted);
        tokio::time::sleep(GRACE).await;
        trial.give_up();
    }
    std::future::pending().await
}

/// Drives one trial: loads its data, unless they are left from an earlier trial, runs its clients and audits it.
///
/// # Errors
/// If the engine cannot run the trial, or the store fails to load the data or to open a client.
pub async fn drive(
    store: &Memory,
    trial: Arc<dyn WorkloadTrial>,
    place: &Place,
    is_left: bool,
    load: Load,
    DriveOptions { clients, clock, halt }: DriveOptions,
) -> Result<DrivenTrial, SelftestError> {
    store.calm().await;
    if !is_left {
        trial.load(store, place, &LoadProgress::default()).await?;
    }
    let (before, kills, life) = (store.strikes(), store.kills(), store.identity().await?);
    let tasks = (0..clients).map(|_| trial.client(store, place)).collect::<Result<Vec<_>, _>>()?;
    store.tell_of_crashes(Some(Arc::clone(&trial)));
    store.let_go();
    let measured = match clock {
        Clock::Simulated => {
            let trial = Trial::simulated(load, clients as usize);
            tokio::select! {
                biased;
                measurement = trial.run_simulated(tasks) => Ok(measurement),
                never = halted(&trial, halt) => match never {},
            }
        }
        Clock::System => Trial::new(load, clients as usize).run(tasks),
    };
    let audited = match measured {
        Ok(measurement) => {
            // a cluster is audited once it is whole
            store.calm().await;
            Ok((measurement, trial.audit(Ok(store), place).await))
        }
        Err(error) => Err(error),
    };
    // it may be killed between the last operation and the audit
    store.tell_of_crashes(None);
    let (measurement, audited) = audited?;
    let is_another = store.identity().await? != life;
    let (restarted, failed_over) = (store.is_unasked() && is_another, store.fails_over() && is_another);
    let (struck, kills, shown) = (store.strikes() - before, store.kills() - kills, store.shown(place));
    let known = store.staleness(place);
    let promoted = store.promotes() && kills > 0;
    Ok(DrivenTrial { measurement, audited, struck, kills, restarted, failed_over, promoted, shown, known })
}

/// Runs a task on a new thread by this clock. By the simulated one, time passes only while all of the task waits.
///
/// # Panics
/// If the task panics, or no thread or runtime can be started.
pub fn by<T: Send, F: Future<Output = T>>(clock: Clock, task: impl FnOnce() -> F + Send) -> T {
    let run = || {
        let paused = clock == Clock::Simulated;
        // a runtime without input and output needs no resource of the operating system
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

/// Drives the case's store under contention, by the simulated clock, and audits it. A case that must be found broken
/// is driven up to six times, each time twice as long, until there is a violation that the audit must see. The same
/// seed gives the same result.
///
/// # Errors
/// If the workload rejects the parameters, or the trial cannot be driven.
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

/// Drives a case twice, the second time over the data that the first trial left. The bug strikes only in the
/// second trial.
///
/// # Errors
/// If the workload rejects the parameters, or the trial cannot be driven.
///
/// # Panics
/// If the first trial leaves no data that the second can reuse.
pub fn run_twice(case: &Case, seed: u64) -> Result<[DrivenTrial; 2], SelftestError> {
    by(Clock::Simulated, || async {
        let store = case.store(seed);
        store.plant(false);
        let first = case.drive(&store, seed, LENGTH, None).await?;
        store.plant(true);
        let reusable = first.audited.reusable.clone();
        assert!(reusable.is_some(), "nothing was left: {}", first.audited.audit);
        let second = case.drive(&store, seed, LENGTH, reusable).await?;
        Ok([first, second])
    })
}

impl Case {
    fn store(&self, seed: u64) -> Memory {
        let faults = Faults { delays: DELAYS, ..self.faults };
        Memory::watched(faults, seed, Watch { exact: true, recorded: false })
    }

    /// Drives one trial of this length, over the data that an earlier one left or else over its own.
    async fn drive(
        &self,
        store: &Memory,
        seed: u64,
        length: Duration,
        reusable: Option<ReusableData>,
    ) -> Result<DrivenTrial, SelftestError> {
        let workload = self.workload()?;
        let spec = workload.spec();
        let clients = spec.clients.unwrap_or(8);
        let trace = self.replayed.then_some(REPLAYED);
        let is_left = reusable.is_some();
        let reads = self.reads;
        let setup = TrialSetup { reads, trace, reusable, ..TrialSetup::new(self.lock, seed, clients) };
        let trial = Arc::from(workload.trial(setup));
        let place = Place { namespace: "selftest".to_owned(), trial: 0 };
        let (extent, on_refused) = if self.replayed {
            (Extent::Operations(REPLAYED), OnRefused::Retry(Duration::from_millis(1)))
        } else {
            (Extent::Time(length), OnRefused::Count)
        };
        let timeout = TIMEOUTS[usize::from(self.faults.unanswered == 0.0)];
        let load = Load { seed, on_refused, timeout, ..Load::closed(spec.operations, extent) };
        let scheduled = spec.scheduled.map(|clients| clients as usize);
        let load = Load { spans: spec.spans, scheduled, ..load };
        let way = DriveOptions { clients, clock: Clock::Simulated, halt: None };
        let mut driven = drive(store, trial, &place, is_left, load, way).await?;
        driven.cross_restart(&self.without(&*workload));
        Ok(driven)
    }
}

#[cfg(test)]
mod tests {
    use acidtest_workloads::Verdict;

    use super::*;

    /// By the system's clock a kill can come between the audit and the question of what it had to see.
    #[test]
    fn what_a_kill_after_the_audit_takes_was_not_for_it_to_see() {
        for case in [
            Case::inventory(),
            Case::records("insert:1", 1),
            Case::logs(1),
            Case::parcels(1),
            Case::transactions("default"),
        ] {
            let case = case.with(Faults::bug(Bug::LoseClient));
            by(Clock::Simulated, || async {
                let store = case.store(5);
                store.plant(false);
                let driven = case.drive(&store, 5, LENGTH, None).await.unwrap();
                let name = case.workload.name;
                assert_eq!((driven.audited.audit.verdict, driven.shown), (Verdict::Holds, 0), "{name}");
                store.plant(true);
                let kills = store.kills();
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert!(store.kills() > kills, "{name}");
                let place = Place { namespace: "selftest".to_owned(), trial: 0 };
                assert_eq!(store.shown(&place), 0, "{name}");
            });
        }
    }
}
