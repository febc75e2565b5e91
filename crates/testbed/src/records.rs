//! The checks that every store's records must pass, with all settings that its row of the matrix offers. Each panics
//! if the store fails it or offers none of its settings, and returns early if the store is left out of the tests.

use acidtest_engine::{Load, Measurement, Outcome};
use acidtest_model::{CellRequest, Durability, Isolation, Lock, StoreError};
use acidtest_workloads::{
    Audit, ClientTask, LoadProgress, Place, ReusableData, Store, TrialSetup, Verdict, Workload,
    WorkloadTrial,
    records::{Action, Choice, Mix, OPERATIONS, Parameters, Records, RecordsStore, key_name},
};

use crate::{
    NAMESPACE, SEED, Subject,
    crash::{Back, Repaired, Victim, survives},
    for_time, inventory,
    steps::{self, Steps, acknowledged, gone, namespace},
    wait, with_more_time,
};

/// Every mix of operations that has a name.
pub const MIXES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "read", "write", "modify", "modify-locked"];

/// A record as it is read back: key, version, and tag; no tag if it is torn.
pub type RecordRow = (String, u64, Option<u64>);

/// One trial of the records, which a test loads, drives and audits as acidtest's runner does.
pub struct RecordsRun {
    /// The lock mode, which protects updates and modifies.
    pub lock: Lock,
    /// The namespace and the number of the trial.
    pub place: Place,
    parameters: Parameters,
    workload: Records,
    trial: Box<dyn WorkloadTrial>,
}

impl RecordsRun {
    /// A trial with these parameters, in [`NAMESPACE`].
    #[must_use]
    pub fn new(lock: Lock, trial: u32, parameters: Parameters) -> Self {
        Self::over(lock, trial, parameters, None)
    }

    /// A trial of this mix on 200 records.
    #[must_use]
    pub fn of(lock: Lock, trial: u32, mix: &str) -> Self {
        Self::new(lock, trial, few(mix, 200))
    }

    fn over(lock: Lock, trial: u32, parameters: Parameters, reusable: Option<ReusableData>) -> Self {
        let workload = Records::new(parameters.clone()).unwrap();
        let setup = TrialSetup { reusable, ..TrialSetup::new(lock, SEED, 12) };
        let place = Place { namespace: NAMESPACE.to_owned(), trial };
        Self { lock, place, trial: workload.trial(setup), parameters, workload }
    }

    /// The same trial in another namespace.
    #[must_use]
    pub fn within(self, namespace: &str) -> Self {
        Self { place: Place { namespace: namespace.to_owned(), ..self.place }, ..self }
    }

    /// A new trial with the same settings.
    fn anew(&self) -> Self {
        let anew = Self::new(self.lock, self.place.trial, self.parameters.clone());
        Self { place: self.place.clone(), ..anew }
    }

    /// Another trial, which reuses the data that this one left.
    #[must_use]
    pub fn next(&self, reusable: ReusableData) -> Self {
        let next = Self::over(self.lock, self.place.trial, self.parameters.clone(), Some(reusable));
        Self { place: self.place.clone(), ..next }
    }

    /// The cell that the trial measures, as it is asked of a store.
    #[must_use]
    pub fn request(&self) -> CellRequest<'static> {
        self.workload.spec().request(self.lock)
    }

    /// Whether the verdict on a correct store must be holds: the lock mode promises it, or no operation of the mix
    /// updates a record.
    #[must_use]
    pub fn promises(&self) -> bool {
        let mix = &self.parameters.mix;
        self.lock.promises() || !(mix.does(Action::Update) || mix.does(Action::Modify))
    }

    /// Loads the records, and returns how many the progress counted.
    pub fn load(&self, store: &impl Store) -> u64 {
        let loaded = LoadProgress::default();
        wait(self.trial.load(store, &self.place, &loaded)).unwrap();
        loaded.rows()
    }

    /// Runs this number of clients until the load's end. A blocking store's clients have a thread each.
    pub fn drive(&self, store: &impl Store, load: &Load, clients: usize) -> Measurement {
        let load = Load { operations: OPERATIONS, ..load.clone() };
        steps::run(store, &load, self.tasks(store, clients))
    }

    fn tasks(&self, store: &impl Store, clients: usize) -> Vec<ClientTask> {
        (0..clients).map(|_| self.trial.client(store, &self.place).unwrap()).collect()
    }

    /// The records as they are read back, sorted by key.
    pub fn state(&self, store: &impl Store) -> Result<Vec<RecordRow>, StoreError> {
        let mut seen = Vec::new();
        let mut each = |key: &str, version, tag| seen.push((key.to_owned(), version, tag));
        wait(port(store).state(&self.place, &self.parameters.layout(), &mut each))?;
        seen.sort_unstable();
        Ok(seen)
    }

    /// The records as they were loaded, sorted by key.
    #[must_use]
    pub fn initial(&self) -> Vec<RecordRow> {
        let loaded = |number| (key_name(number), 0, Some(number));
        let mut loaded: Vec<RecordRow> = (0..self.parameters.records).map(loaded).collect();
        loaded.sort_unstable();
        loaded
    }

    /// Audits the acknowledged operations against the records that are read back. Also returns the data that are left
    /// for another trial.
    pub fn judge(&self, store: &impl Store) -> (Audit, Option<ReusableData>) {
        let audited = wait(self.trial.audit(Ok(store), &self.place));
        (audited.audit, audited.reusable)
    }

    /// Removes the trial's data.
    pub fn unload(&self, store: &impl Store) {
        wait(self.trial.unload(store, &self.place)).unwrap();
    }

    fn shown(&self) -> String {
        let Self { lock, parameters: Parameters { mix, transaction, .. }, .. } = self;
        let level = self.workload.spec().isolation.map_or("its own isolation", Isolation::name);
        format!("{mix}, {transaction} a transaction, {level}, lock {lock}")
    }
}

impl Steps for RecordsRun {
    type State = Vec<RecordRow>;

    fn lock(&self) -> Lock {
        self.lock
    }

    fn load(&self, store: &impl Store) {
        Self::load(self, store);
    }

    fn drive(&self, store: &impl Store, load: &Load, clients: usize) -> Measurement {
        Self::drive(self, store, load, clients)
    }

    fn state(&self, store: &impl Store) -> Result<Vec<RecordRow>, StoreError> {
        Self::state(self, store)
    }

    fn initial(&self) -> Vec<RecordRow> {
        Self::initial(self)
    }
}

fn port(store: &impl Store) -> &dyn RecordsStore {
    store.records().unwrap()
}

/// Parameters of a mix on this number of records.
fn few(mix: &str, records: u64) -> Parameters {
    Parameters { mix: mix.parse().unwrap(), records, ..Parameters::default() }
}

/// Trials with these parameters in every lock mode that the store offers for them, numbered from 1 on.
fn offered<S: Store>(subject: &Subject<S>, all: impl IntoIterator<Item = Parameters>) -> Vec<RecordsRun> {
    let each = |parameters: Parameters| Lock::ALL.map(|lock| (lock, parameters.clone()));
    let locked = |mix: &Mix, lock| !mix.is_locked() || lock == Lock::Hard;
    let cases = all.into_iter().flat_map(each).filter(|(lock, parameters)| locked(&parameters.mix, *lock));
    let cases: Vec<RecordsRun> = (1..)
        .zip(cases)
        .map(|(trial, (lock, parameters))| RecordsRun::new(lock, trial, parameters))
        .filter(|case| subject.offers(&case.request()))
        .collect();
    assert!(!cases.is_empty(), "{} has nothing of this to check", subject.kind.name);
    cases
}

/// Drives and audits a trial that is loaded. Asserts that there is no fault and, if any operation was acknowledged,
/// that the verdict is holds where that is promised.
#[track_caller]
fn drives(store: &impl Store, case: &RecordsRun, millis: u64, clients: usize) -> DrivenTrial {
    let measured = case.drive(store, &for_time(millis), clients);
    let (audit, reusable) = case.judge(store);
    let shown = case.shown();
    eprintln!("{shown}: {:.0} a second, {audit}", measured.throughput());
    assert_eq!(measured.stopped, None, "{shown}");
    assert!(measured.faults.is_empty(), "{shown}: {:?}", measured.faults);
    if acknowledged(&measured) {
        if case.promises() {
            assert_eq!(audit.verdict, Verdict::Holds, "{shown}: {audit:?}");
        } else {
            assert_ne!(audit.verdict, Verdict::Unknown, "{shown}: {audit:?}");
        }
    }
    DrivenTrial { measured, audit, reusable }
}

/// The results of a trial that was driven and audited.
struct DrivenTrial {
    measured: Measurement,
    audit: Audit,
    reusable: Option<ReusableData>,
}

impl DrivenTrial {
    /// Itself if the trial did enough and acknowledged anything, else its results as text.
    fn enough(self, is_enough: bool) -> Result<Self, String> {
        if is_enough && acknowledged(&self.measured) {
            return Ok(self);
        }
        Err(format!("{:?} {:?}", self.audit, self.measured))
    }
}

/// Loads, drives and unloads a trial, anew with more time until `is_enough`. Asserts that its data are gone each
/// time.
fn goes_through<S: Store>(
    subject: &Subject<S>,
    store: &S,
    case: &RecordsRun,
    (millis, clients): (u64, usize),
    is_enough: impl Fn(&DrivenTrial) -> bool,
) -> DrivenTrial {
    with_more_time(millis, |millis| {
        let case = case.anew();
        case.load(store);
        let driven = drives(store, &case, millis, clients);
        subject.conflicts_as_it_says(&case.request(), &driven.measured);
        case.unload(store);
        gone(subject, store, &case);
        let is_enough = is_enough(&driven);
        driven.enough(is_enough)
    })
}

/// Every mix goes through without a fault in every lock mode that the store offers for it, and the guarantees that
/// are promised hold. Data that were unloaded are gone.
pub fn mixes<S: Store>(subject: &Subject<S>, store: &S) {
    for case in offered(subject, MIXES.map(|mix| few(mix, 200))) {
        goes_through(subject, store, &case, (80, 6), |_| true);
    }
}

/// Many clients modify the same eight records: the lock modes that promise guarantees hold, and without a lock
/// updates are lost.
pub fn contention<S: Store>(subject: &Subject<S>, store: &S) {
    contended(subject, store, "modify");
}

/// The check [`contention`] with clients that overwrite the records without reading them.
pub fn blind<S: Store>(subject: &Subject<S>, store: &S) {
    contended(subject, store, "update:1");
}

fn contended<S: Store>(subject: &Subject<S>, store: &S, mix: &str) {
    let few = Parameters { keys: Choice::Uniform, ..few(mix, 8) };
    for case in offered(subject, [few]) {
        let clients = if case.lock.promises() { 12 } else { 16 };
        goes_through(subject, store, &case, (400, clients), |driven| {
            case.promises() || driven.audit.count("lost_updates") > 0
        });
    }
}

/// Transactions of four operations go through without a fault or a refusal at every isolation level that the store
/// offers, and the guarantees that the lock mode promises hold.
pub fn transactions<S: Store>(subject: &Subject<S>, store: &S) {
    let levels = [None].into_iter().chain(Isolation::ALL.map(Some));
    let mixes = ["read:1+update:1+rmw:1", "read:2+update:1+insert:1+rmw:1"];
    let all = levels.flat_map(|level| {
        mixes.map(|mix| {
            let mut parameters = Parameters { keys: Choice::Uniform, transaction: 4, ..few(mix, 100) };
            parameters.isolation.0 = level;
            parameters
        })
    });
    for case in offered(subject, all) {
        let count = |driven: &DrivenTrial, outcome| driven.measured.operations[TRANSACTION].count(outcome);
        let driven = goes_through(subject, store, &case, (100, 6), |driven| count(driven, Outcome::Ok) > 0);
        assert_eq!(count(&driven, Outcome::Refused), 0, "{}: {:?}", case.shown(), driven.audit);
    }
}

/// Index of the transaction among the kinds of operations.
const TRANSACTION: usize = OPERATIONS.len() - 1;

/// 20,000 records are loaded, counted meanwhile, and read back whole, in layouts with and without scans.
pub fn large<S: Store>(subject: &Subject<S>, store: &S) {
    for mix in ["read", "read:1+scan:1"] {
        let parameters = [Parameters { records: 20_000, ..few(mix, 0) }];
        let Some(case) = offered(subject, parameters).pop() else { continue };
        assert_eq!(case.load(store), 20_000);
        // not `assert_eq`, which would print all of them
        assert!(case.state(store).unwrap() == case.initial(), "they are not as they were loaded");
        case.unload(store);
    }
}

/// A trial can reuse the data that another one left in the store.
pub fn reusable<S: Store>(subject: &Subject<S>, store: &S) {
    let mixes = ["a", "f", "b", "c"].map(|mix| few(mix, 200));
    let cases = offered(subject, mixes);
    let case = cases.iter().find(|case| case.lock.promises()).unwrap_or(&cases[0]);
    let reusable = with_more_time(150, |millis| {
        let case = case.anew();
        case.load(store);
        let driven = drives(store, &case, millis, 4).enough(true).inspect_err(|_| case.unload(store))?;
        Ok(driven.reusable.unwrap_or_else(|| panic!("nothing is left: {:?}", driven.audit)))
    });
    // a trial that acknowledged nothing leaves the same data, so that it can be driven again
    with_more_time(150, |millis| drives(store, &case.next(reusable.clone()), millis, 4).enough(true));
}

/// A namespace of each name holds trials in every lock mode, and is removed with all its data and nothing else.
pub fn namespaces<S: Store>(subject: &Subject<S>, names: &[&str]) {
    let Some(world) = subject.share() else { return };
    for name in names {
        namespace(subject, &world, name, |namespace| {
            let mixes = ["read:1+update:1+insert:1+scan:1+rmw:1", "read:1+insert:1"].map(|mix| few(mix, 50));
            offered(subject, mixes).into_iter().map(|case| case.within(namespace)).collect()
        });
    }
}

/// Namespaces whose names do harm in a store that does not escape them.
pub const NAMES: [&str; 5] = inventory::NAMES;

/// Acknowledged operations are there after the server was killed in the middle of a trial, whether it came back while
/// its clients still tried or after they gave up, at the durability levels disk and process if the store offers them.
pub fn kills<S: Store>(subject: &Subject<S>) {
    keeps(subject, Repaired::First);
}

/// The check [`kills`] of a store that repairs its files while it answers: until it is done, a read may miss records
/// that are there. In the end none is missing.
pub fn kills_and_repairs<S: Store>(subject: &Subject<S>) {
    keeps(subject, Repaired::WhileRead);
}

fn keeps<S: Store>(subject: &Subject<S>, repaired: Repaired) {
    let mut killed = 0;
    for durability in [Durability::Disk, Durability::Process] {
        if !subject.kind.durability(durability).is_yes() {
            continue;
        }
        let Some(mut victim) = Victim::start(subject, durability) else { return };
        let mut cases = writing(subject);
        if killed > 0 {
            // all lock modes were checked at the highest durability level already
            cases.truncate(1);
        }
        let last = cases.len() - 1;
        for (index, case) in cases.iter().enumerate() {
            eprintln!("{durability}, {}", case.shown());
            let back = if index == last { Back::TooLate } else { Back::AtOnce };
            survives(&mut victim, &case.workload, case.lock, back, repaired);
            killed += 1;
        }
    }
    assert!(killed > 0, "{} has no durability level that survives", subject.kind.name);
}

/// Transactions of several operations are there as a whole or not at all after the server was killed in the middle
/// of a trial and came back, in each lock mode that promises guarantees.
pub fn kills_transactions<S: Store>(subject: &Subject<S>) {
    let Some(mut victim) = Victim::start(subject, Durability::Disk) else { return };
    for case in writing(subject) {
        let workload = Records::new(Parameters { transaction: 4, ..case.parameters }).unwrap();
        survives(&mut victim, &workload, case.lock, Back::AtOnce, Repaired::First);
    }
}

/// At durability level none the data are lost with the server, and the audit's verdict is broken.
pub fn nothing_kept<S: Store>(subject: &Subject<S>) {
    let Some(mut victim) = Victim::start(subject, Durability::None) else { return };
    let case = writing(subject).remove(0);
    let audit = victim.crash(&case.workload, case.lock, Back::TooLate).audit;
    assert_eq!(audit.verdict, Verdict::Broken, "{audit:?}");
}

/// One trial in each lock mode that promises guarantees, or, in a store without such a mode, one that updates
/// nothing; each of the most varied writes that the store offers in it.
fn writing<S: Store>(subject: &Subject<S>) -> Vec<RecordsRun> {
    let mixes = ["read:1+update:1+rmw:1+insert:1", "read:1+update:1+insert:1", "read:1+insert:1"];
    let mut cases = offered(subject, mixes.map(|mix| Parameters { keys: Choice::Uniform, ..few(mix, 200) }));
    cases.retain(RecordsRun::promises);
    let mut seen = Vec::new();
    cases.retain(|case| {
        let first = !seen.contains(&case.lock) && (case.lock.promises() || seen.is_empty());
        seen.push(case.lock);
        first
    });
    assert!(!cases.is_empty(), "{} promises nothing", subject.kind.name);
    cases
}
