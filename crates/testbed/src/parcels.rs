//! The checks that every store's parcels must pass, with all settings that its row of the matrix offers. Each panics if
//! the store fails it or offers none of its settings, and returns early if the store is left out of the tests.

use acidtest_engine::{Attempt, Load, Measurement, Outcome};
use acidtest_model::{CellRequest, Durability, Lock, StoreError};
use acidtest_workloads::{
    Audit, ClientTask, LoadProgress, Place, Store, TableSize, TrialSetup, Verdict, Workload, WorkloadTrial,
    parcels::{
        Action, Connector, Found, Ids, Index, Inserted, LoadMethod, MOST, OPERATIONS, Operations, Parameters,
        Parcel, Parcels, ParcelsStore, Requirements, Scan, ScanNumber, StoredScan,
    },
};

use crate::{
    NAMESPACE, SEED, Subject,
    crash::{Back, Repaired, Victim, survives},
    for_time, inventory,
    steps::{self, Steps, acknowledged, gone, namespace},
    wait, with_more_time,
};

/// One trial of the parcels, which a test loads, drives and audits as acidtest's runner does.
pub struct ParcelsRun {
    /// The lock mode, which protects the counting of a parcel's scans.
    pub lock: Lock,
    /// The namespace and the number of the trial.
    pub place: Place,
    parameters: Parameters,
    workload: Parcels,
    trial: Box<dyn WorkloadTrial>,
    ids: Ids,
}

impl ParcelsRun {
    /// A trial with these parameters, in [`NAMESPACE`].
    #[must_use]
    pub fn new(lock: Lock, trial: u32, parameters: Parameters) -> Self {
        let workload = Parcels::new(parameters.clone()).unwrap();
        let place = Place { namespace: NAMESPACE.to_owned(), trial };
        let trial = workload.trial(TrialSetup::new(lock, SEED, 12));
        Self { lock, place, parameters, workload, trial, ids: Ids::Counted }
    }

    /// The same trial in another namespace.
    #[must_use]
    pub fn within(self, namespace: &str) -> Self {
        Self { place: Place { namespace: namespace.to_owned(), ..self.place }, ..self }
    }

    /// The same on a store that gives such ids.
    fn with(self, ids: Ids) -> Self {
        Self { ids, ..self }
    }

    /// A new trial with the same settings.
    fn anew(&self) -> Self {
        let anew = Self::new(self.lock, self.place.trial, self.parameters.clone());
        Self { place: self.place.clone(), ids: self.ids, ..anew }
    }

    /// The cell that the trial measures, as it is asked of a store.
    #[must_use]
    pub fn request(&self) -> CellRequest<'static> {
        self.workload.spec().request(self.lock)
    }

    /// Whether the verdict on a correct store must be holds.
    #[must_use]
    pub fn promises(&self) -> bool {
        self.lock.promises() || !self.parameters.mix.does(Action::Insert)
    }

    /// Loads the scans, and returns how many the progress counted.
    pub fn load(&self, store: &impl Store) -> u64 {
        let loaded = LoadProgress::default();
        wait(self.trial.load(store, &self.place, &loaded)).unwrap();
        loaded.rows()
    }

    /// Runs this number of clients until the load's end. A blocking store's clients have a thread each.
    pub fn drive(&self, store: &impl Store, load: &Load, clients: usize) -> Measurement {
        let load = Load { operations: OPERATIONS, ..load.clone() };
        let task = |_| self.trial.client(store, &self.place).unwrap();
        steps::run(store, &load, (0..clients).map(task).collect::<Vec<ClientTask>>())
    }

    /// The scans as they are read back, sorted by id.
    pub fn state(&self, store: &impl Store) -> Result<Vec<StoredScan>, StoreError> {
        let mut seen = Vec::new();
        let mut each = |stored: StoredScan| seen.push(stored);
        wait(port(store).state(&self.place, &mut each))?;
        seen.sort_unstable_by_key(|stored| stored.id);
        Ok(seen)
    }

    /// The scans as they were loaded, sorted by id.
    #[must_use]
    pub fn initial(&self) -> Vec<StoredScan> {
        let rows = self.parameters.loading(SEED).rows();
        let stored = rows.map(|row| StoredScan::with(&row.scan, self.ids.of(&row), row.count.into()));
        let mut rows: Vec<StoredScan> = stored.collect();
        rows.sort_unstable_by_key(|stored| stored.id);
        rows
    }

    /// Audits the acknowledged operations against the scans that are read back, and asks how large the table is.
    pub fn judge(&self, store: &impl Store) -> (Audit, Option<TableSize>) {
        let audited = wait(self.trial.audit(Ok(store), &self.place));
        (audited.audit, audited.size)
    }

    /// Loads the trial and drives it. Asserts that there is no fault, and that the verdict is holds.
    #[track_caller]
    pub fn holds(&self, store: &impl Store, load: &Load, clients: usize) -> Audit {
        self.load(store);
        let measured = self.drive(store, load, clients);
        let shown = self.shown();
        assert!(measured.faults.is_empty(), "{shown}: {:?}", measured.faults);
        let (audit, _) = self.judge(store);
        assert_eq!(audit.verdict, Verdict::Holds, "{shown}: {audit:?}");
        audit
    }

    /// Removes the trial's data.
    pub fn unload(&self, store: &impl Store) {
        wait(self.trial.unload(store, &self.place)).unwrap();
    }

    fn shown(&self) -> String {
        format!("{}, lock {}", self.workload.spec().headline, self.lock)
    }
}

impl Steps for ParcelsRun {
    type State = Vec<StoredScan>;

    fn lock(&self) -> Lock {
        self.lock
    }

    fn load(&self, store: &impl Store) {
        Self::load(self, store);
    }

    fn drive(&self, store: &impl Store, load: &Load, clients: usize) -> Measurement {
        Self::drive(self, store, load, clients)
    }

    fn state(&self, store: &impl Store) -> Result<Vec<StoredScan>, StoreError> {
        Self::state(self, store)
    }

    fn initial(&self) -> Vec<StoredScan> {
        Self::initial(self)
    }
}

fn port(store: &impl Store) -> &dyn ParcelsStore {
    store.parcels().unwrap()
}

/// Parameters of a mix, such as `insert`: 20 parcels on their way, 200 scans loaded, and 5 % of the inserts to be refused.
#[must_use]
pub fn few(mix: &str) -> Parameters {
    Parameters { mix: mix.parse().unwrap(), parcels: 20, scans: 200, eighths: 0.05, ..Parameters::default() }
}

/// Trials with these parameters in every lock mode that the store offers for them, numbered from 1 on.
fn offered<S: Store>(
    subject: &Subject<S>,
    all: impl IntoIterator<Item = Parameters>,
    ids: Ids,
) -> Vec<ParcelsRun> {
    let each = |parameters: Parameters| Lock::ALL.map(|lock| (lock, parameters.clone()));
    let cases: Vec<ParcelsRun> = (1..)
        .zip(all.into_iter().flat_map(each))
        .map(|(trial, (lock, parameters))| ParcelsRun::new(lock, trial, parameters).with(ids))
        .filter(|case| subject.offers(&case.request()))
        .collect();
    assert!(!cases.is_empty(), "{} has nothing of this to check", subject.kind.name);
    cases
}

/// The results of a trial that was driven and audited.
struct DrivenTrial {
    measured: Measurement,
    audit: Audit,
}

/// Loads, drives, audits and unloads a trial, anew with more time until it is enough. Asserts that there is no fault, that
/// the verdict is holds where that is promised, that the store says how large its table is, and that the data are gone in
/// the end.
fn goes_through<S: Store>(
    subject: &Subject<S>,
    store: &S,
    case: &ParcelsRun,
    (millis, clients): (u64, usize),
    is_enough: impl Fn(&DrivenTrial) -> bool,
) {
    with_more_time(millis, |millis| {
        let case = case.anew();
        let shown = case.shown();
        case.load(store);
        let measured = case.drive(store, &for_time(millis), clients);
        let (audit, size) = case.judge(store);
        eprintln!("{shown}: {:.0} a second, {audit}, {:?}", measured.throughput(), audit.evidence);
        assert_eq!(measured.stopped, None, "{shown}");
        assert!(measured.faults.is_empty(), "{shown}: {:?}", measured.faults);
        subject.conflicts_as_it_says(&case.request(), &measured);
        let has_some = acknowledged(&measured);
        if has_some && case.promises() {
            assert_eq!(audit.verdict, Verdict::Holds, "{shown}: {audit:?}");
        } else if has_some {
            assert_ne!(audit.verdict, Verdict::Unknown, "{shown}: {audit:?}");
            // what only a lock prevents, and nothing else
            assert!(!audit.breaks_promise(&["lock"]), "{shown}: {audit:?}");
        }
        let size = size.unwrap_or_else(|| panic!("{shown}: the store does not say how large its table is"));
        let rows = u64::try_from(audit.evidence["final_scans"]).unwrap();
        assert_eq!(size.rows, rows, "{shown}: {size:?}");
        let is_large = |data| data + size.index_bytes.unwrap_or(0) >= rows * 29;
        assert!(size.data_bytes.is_none_or(is_large), "{shown}: {size:?}");
        case.unload(store);
        gone(subject, store, &case);
        let driven = DrivenTrial { measured, audit };
        if is_enough(&driven) && has_some {
            return Ok(());
        }
        Err(format!("{:?} {:?}", driven.audit, driven.measured))
    });
}

/// Each operation alone and all together go through without a fault in every lock mode that the store offers, and the
/// guarantees that are promised hold. Data that were unloaded are gone.
pub fn modes<S: Store>(subject: &Subject<S>, store: &S) {
    let mixes = ["insert:2+hash:1+id:1", "insert", "hash", "id"].map(few);
    for case in offered(subject, mixes, port(store).ids()) {
        let reads = !case.parameters.mix.does(Action::Insert);
        // reads are the same in all lock modes
        if reads && case.lock != Lock::None {
            continue;
        }
        goes_through(subject, store, &case, (80, 6), |driven| {
            let does = &case.workload.spec().does;
            let of_mix = driven.measured.operations.iter().filter(|each| does.contains(&each.name));
            of_mix.into_iter().all(|each| each.count(Outcome::Ok) > 0)
        });
    }
}

/// Many clients insert scans of the same two parcels: the lock modes that promise guarantees hold, and without a lock two
/// scans of a parcel are given the same count.
pub fn contention<S: Store>(subject: &Subject<S>, store: &S) {
    let few = Parameters { parcels: 2, scans: 5, eighths: 0.05, ..few("insert") };
    for case in offered(subject, [few], port(store).ids()) {
        let clients = if case.lock.promises() { 12 } else { 16 };
        goes_through(subject, store, &case, (250, clients), |driven| {
            case.promises() || driven.audit.count("repeated") + driven.audit.count("overwritten") > 0
        });
    }
}

/// Many scans at once go through in every lock mode that the store offers for them, also where several clients insert
/// scans of the same parcels.
pub fn batches<S: Store>(subject: &Subject<S>, store: &S) {
    let of = |parcels, insert_batch| Parameters {
        parcels,
        insert_batch,
        scans: 0,
        eighths: 0.02,
        ..few("insert:3+hash:1+id:1")
    };
    for case in offered(subject, [of(6, 4), of(300, 100)], port(store).ids()) {
        goes_through(subject, store, &case, (100, 6), |driven| {
            driven.audit.evidence["inserted_scans"] >= case.parameters.insert_batch.into()
        });
    }
}

/// Eighth scans are refused, and nothing else is.
pub fn eighths<S: Store>(subject: &Subject<S>, store: &S) {
    let many = Parameters { parcels: 3, scans: 42, eighths: 0.125, ..few("insert") };
    let mut cases = offered(subject, [many], port(store).ids());
    cases.retain(ParcelsRun::promises);
    for case in cases {
        goes_through(subject, store, &case, (80, 4), |driven| driven.audit.evidence["refused_scans"] > 0);
    }
}

/// Without an index on the hash everything goes through as well, with lock modes that do not need it.
pub fn index_none<S: Store>(subject: &Subject<S>, store: &S) {
    let parameters = Parameters { index: Index::None, ..few("insert:2+hash:1+id:1") };
    for case in offered(subject, [parameters], port(store).ids()) {
        goes_through(subject, store, &case, (80, 4), |_| true);
    }
}

/// 20,000 scans are loaded in bulk, and 300 row by row; they are counted meanwhile, and read back whole. Ids that are
/// given later go on behind them.
pub fn large<S: Store>(subject: &Subject<S>, store: &S) {
    let ids = port(store).ids();
    let of = |scans, load| Parameters { scans, load, parcels: 1_000, ..few("insert") };
    for parameters in [of(20_000, LoadMethod::Bulk), of(300, LoadMethod::Single)] {
        let scans = parameters.scans;
        let Some(case) = offered(subject, [parameters], ids).pop() else { continue };
        assert_eq!(case.load(store), scans);
        // not `assert_eq`, which would print all of them
        assert!(case.state(store).unwrap() == case.initial(), "they are not as they were loaded");
        let measured = case.drive(store, &for_time(50), 2);
        assert!(measured.faults.is_empty(), "{:?}", measured.faults);
        let rows = case.state(store).unwrap();
        let given: Vec<u64> = rows.iter().filter_map(|stored| stored.id).collect();
        assert!(given.windows(2).all(|pair| pair[0] < pair[1]), "two have the same id");
        if ids == Ids::Counted {
            let loaded = usize::try_from(scans).unwrap();
            assert!(given[loaded..].iter().all(|id| *id > scans), "{:?}", &given[loaded..]);
        }
        case.unload(store);
    }
}

/// A namespace of each name holds trials in every lock mode, and is removed with all its data and nothing else.
pub fn namespaces<S: Store>(subject: &Subject<S>, names: &[&str]) {
    let Some(world) = subject.share() else { return };
    let ids = port(&world.store).ids();
    for name in names {
        namespace(subject, &world, name, |namespace| {
            let cases = offered(subject, [few("insert:2+hash:1+id:1")], ids);
            cases.into_iter().map(|case| case.within(namespace)).collect()
        });
    }
}

/// Namespaces whose names do harm in a store that does not escape them.
pub const NAMES: [&str; 5] = inventory::NAMES;

/// Acknowledged scans are there after the server was killed in the middle of a trial, whether it came back while its
/// clients still tried or after they gave up, at the durability levels disk and process if the store offers them.
pub fn kills<S: Store>(subject: &Subject<S>) {
    keeps(subject, Repaired::First);
}

/// The check [`kills`] of a store that repairs its files while it answers.
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
        let mut cases = offered(subject, [few("insert:2+hash:1+id:1")], Ids::Counted);
        cases.retain(ParcelsRun::promises);
        if killed > 0 {
            // all lock modes were checked at the highest durability level already
            cases.truncate(1);
        }
        let last = cases.len() - 1;
        for (index, case) in cases.iter().enumerate() {
            let back = if index == last { Back::TooLate } else { Back::AtOnce };
            survives(&mut victim, &case.workload, case.lock, back, repaired);
            killed += 1;
        }
    }
    assert!(killed > 0, "{} has no durability level that survives", subject.kind.name);
}

/// At durability level none scans are lost with the server, and the audit's verdict is broken.
pub fn nothing_kept<S: Store>(subject: &Subject<S>) {
    let Some(mut victim) = Victim::start(subject, Durability::None) else { return };
    let case = offered(subject, [few("insert")], Ids::Counted).pop().unwrap();
    let audit = victim.crash(&case.workload, case.lock, Back::TooLate).audit;
    assert_eq!(audit.verdict, Verdict::Broken, "{audit:?}");
}

/// A trial that a unit test of an adapter reaches by its own connections: nothing is loaded but the first five scans.
pub struct Single {
    /// The namespace and the number of the trial.
    pub place: Place,
    /// What it asks of the store: an index on the hash, and inserts of at most two scans.
    pub wanted: Requirements,
    parameters: Parameters,
}

impl Single {
    /// Loads the first five scans of parcel 0, for this lock mode.
    pub async fn loaded(store: &impl Store, trial: u32, lock: Lock) -> Self {
        let parameters = Parameters { parcels: 1, scans: 5, insert_batch: 2, ..few("insert") };
        let place = Place { namespace: NAMESPACE.to_owned(), trial };
        let wanted = Requirements { lock, index: Index::Hash, batch: 2 };
        let loading = parameters.loading(SEED);
        port(store).load(&place, &wanted, &loading, &LoadProgress::default()).await.unwrap();
        Self { place, wanted, parameters }
    }

    /// The scan with this number; parcel 0 has the first seven.
    #[must_use]
    pub fn scan(&self, number: u64) -> Scan {
        self.parameters.loading(SEED).stream.scan(ScanNumber::Regular(number))
    }

    /// The scans that are there, sorted by id.
    pub async fn rows(&self, store: &impl Store) -> Vec<StoredScan> {
        let mut rows = Vec::new();
        let mut each = |stored: StoredScan| rows.push(stored);
        port(store).state(&self.place, &mut each).await.unwrap();
        rows.sort_unstable_by_key(|stored| stored.id);
        rows
    }
}

async fn insert(connection: &mut impl Operations, scans: &[Scan]) -> (Attempt, Vec<Option<(u64, u8)>>) {
    let mut inserted = Inserted::default();
    let done = connection.insert(scans, &mut inserted).await;
    (done, inserted.each().to_vec())
}

/// A parcel's scans get its next counts up to seven, an eighth is refused and changes nothing, alone and beside another
/// parcel's; what was inserted is read by hash and by id, and what is not there is not.
pub async fn singles<C: Connector>(
    store: &impl Store,
    locks: &[Lock],
    connect: impl Fn(&Place, Requirements) -> C,
) {
    for (trial, &lock) in (1..).zip(locks) {
        let single = Single::loaded(store, trial, lock).await;
        let mut connection = connect(&single.place, single.wanted).connect().await.unwrap();
        let mut rows = single.rows(store).await;
        assert_eq!(rows.len(), 5, "{lock}");
        for (number, count) in [(5, 6), (6, MOST)] {
            let scan = single.scan(number);
            let (done, given) = insert(&mut connection, std::slice::from_ref(&scan)).await;
            assert_eq!(done, Attempt::Ok, "{lock}");
            let [Some((id, given))] = given[..] else { panic!("{lock}: {given:?}") };
            assert_eq!(given, count, "{lock}");
            rows.push(StoredScan::with(&scan, id, count.into()));
        }
        // the eighth is the first scan of another stream's parcel with this hash: any scan of the parcel will do
        let eighth = single.scan(0);
        let (done, given) = insert(&mut connection, std::slice::from_ref(&eighth)).await;
        assert!(
            done == Attempt::Refused || (done == Attempt::Ok && given == [None]),
            "{lock}: {done:?} {given:?}"
        );
        let other = single.scan(u64::from(MOST));
        let (done, given) = insert(&mut connection, &[eighth, other.clone()]).await;
        let (Attempt::Ok, [None, Some((id, 1))]) = (&done, &given[..]) else {
            panic!("{lock}: {done:?} {given:?}")
        };
        rows.push(StoredScan::with(&other, *id, 1));
        rows.sort_unstable_by_key(|stored| stored.id);
        assert_eq!(single.rows(store).await, rows, "{lock}");

        let mut found = Found::default();
        assert_eq!(connection.by_hash(&Parcel::of(0), &mut found).await, Attempt::Ok, "{lock}");
        let mut of_parcel = found.each().to_vec();
        of_parcel.sort_unstable_by_key(|stored| stored.id);
        let expected: Vec<StoredScan> =
            rows.iter().filter(|stored| stored.id != Some(*id)).copied().collect();
        assert_eq!(of_parcel, expected, "{lock}");
        for stored in &rows {
            found.clear();
            assert_eq!(connection.by_id(stored.id.unwrap(), &mut found).await, Attempt::Ok, "{lock}");
            assert_eq!(found.each(), [*stored], "{lock}");
        }
        found.clear();
        assert_eq!(connection.by_id(1 << 40, &mut found).await, Attempt::Refused, "{lock}");
        assert_eq!(connection.by_hash(&Parcel::of(99), &mut found).await, Attempt::Ok, "{lock}");
        assert_eq!(found.each(), [], "{lock}");
    }
}

/// Somebody else has put rows into a parcel with five scans, by `spoil`: two more with the counts 9 and -1. No insert is
/// taken for it then, in any lock mode; the rows are read as they are, and nothing panics.
pub async fn spoiled<C: Connector>(
    store: &impl Store,
    locks: &[Lock],
    connect: impl Fn(&Place, Requirements) -> C,
    spoil: impl AsyncFn(&Place, &Parcel),
) {
    for (trial, &lock) in (11..).zip(locks) {
        let single = Single::loaded(store, trial, lock).await;
        spoil(&single.place, &Parcel::of(0)).await;
        let mut connection = connect(&single.place, single.wanted).connect().await.unwrap();
        // twice: an insert that was refused must have released its locks
        for _ in 0..2 {
            let (done, given) = insert(&mut connection, &[single.scan(5)]).await;
            let is_refused = done == Attempt::Refused || (done == Attempt::Ok && given == [None]);
            assert!(is_refused, "{lock}: {done:?} {given:?}");
        }
        let counts: Vec<Option<u64>> = single.rows(store).await.iter().map(|stored| stored.count).collect();
        assert_eq!(counts.len(), 7, "{lock}: {counts:?}");
        assert!(counts.contains(&Some(9)) && counts.contains(&None), "{lock}: {counts:?}");
        let mut found = Found::default();
        assert_eq!(connection.by_hash(&Parcel::of(0), &mut found).await, Attempt::Ok, "{lock}");
        assert_eq!(found.each().len(), 7, "{lock}");
        let (done, given) = insert(&mut connection, &[single.scan(u64::from(MOST))]).await;
        assert!(done == Attempt::Ok && given.len() == 1 && given[0].is_some(), "{lock}: {done:?} {given:?}");
    }
}

/// Somebody else has put rows into a parcel with five scans, by `overfill`: four more, two of them without a count and two
/// with counts far above seven. Such a parcel is full in every lock mode, its rows are read as they are, and a scan of
/// another parcel in the same batch is inserted.
pub async fn overfull<C: Connector>(
    store: &impl Store,
    locks: &[Lock],
    connect: impl Fn(&Place, Requirements) -> C,
    overfill: impl AsyncFn(&Place, &Parcel, [Option<i32>; 4]),
) {
    for (trial, &lock) in (1..).zip(locks) {
        let single = Single::loaded(store, trial, lock).await;
        overfill(&single.place, &Parcel::of(0), [None, None, Some(i32::MAX), Some(300)]).await;
        let mut connection = connect(&single.place, single.wanted).connect().await.unwrap();
        // the second one's parcel is empty
        let (done, given) = insert(&mut connection, &[single.scan(5), single.scan(u64::from(MOST))]).await;
        assert_eq!(done, Attempt::Ok, "{lock}");
        assert!(matches!(given[..], [None, Some((_, 1))]), "{lock}: {given:?}");
        let mut found = Found::default();
        assert_eq!(connection.by_hash(&Parcel::of(0), &mut found).await, Attempt::Ok, "{lock}");
        let mut counts: Vec<_> = found.each().iter().map(|stored| stored.count).collect();
        counts.sort_unstable();
        let planted = [300, i32::MAX.unsigned_abs().into()].map(Some);
        assert_eq!(counts[..2], [None, None], "{lock}");
        assert_eq!((counts.len(), &counts[7..]), (9, &planted[..]), "{lock}");
    }
}
