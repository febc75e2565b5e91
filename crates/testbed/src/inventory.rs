//! The checks that every store's inventory must pass. Each panics if the store fails it, and returns early if the
//! store is left out of the tests.

use acidtest_engine::Outcome;
use acidtest_model::{
    Address, CellRequest, Durability, EffectiveSettings, Hosting, Lock, StoreError, StoreKind, Support,
};
use acidtest_workloads::{
    Owner, Place, Store, Values, Verdict, Workload,
    inventory::{InventoryStore, Item, KIND, Parameters, Stock, StockRow},
};

use crate::{
    InventoryRun, NAMESPACE, SEED, Subject, World,
    crash::{Back, Repaired, Victim, survives},
    for_time, login,
    steps::{acknowledged, gone, namespace, prepared},
    to_the_end, wait, with_more_time,
};

/// Namespaces whose names do harm in a store that does not escape them: as SQL, as patterns, as code.
pub const NAMES: [&str; 5] =
    [NAMESPACE, "it's \"ours\"; -- é", "it's `theirs`\\", "acidtest_t[e]st*?", "100%_a]]b$$"];

fn request(lock: Lock) -> CellRequest<'static> {
    // the defaults are valid parameters
    (KIND.with)(&Values::new()).unwrap().spec().request(lock)
}

/// The lock modes in which the store offers the inventory.
fn locks<S: Store>(subject: &Subject<S>) -> Vec<Lock> {
    let locks: Vec<Lock> = Lock::ALL.into_iter().filter(|lock| subject.offers(&request(*lock))).collect();
    assert!(!locks.is_empty(), "{} carries no inventory", subject.kind.name);
    locks
}

/// Those lock modes of the store that promise guarantees.
fn promising<S: Store>(subject: &Subject<S>) -> Vec<Lock> {
    locks(subject).into_iter().filter(|lock| lock.promises()).collect()
}

/// Under contention the verdict is holds, without a fault, in the lock modes that promise guarantees, and broken
/// without a lock. Data that were unloaded are gone.
pub fn contention<S: Store>(subject: &Subject<S>, store: &S) {
    for (trial, lock) in (0..).zip(locks(subject)) {
        let (clients, expected) = if lock.promises() { (12, Verdict::Holds) } else { (16, Verdict::Broken) };
        with_more_time(500, |millis| {
            let case = InventoryRun::random(lock, trial);
            case.load(store);
            let measured = case.drive(store, &for_time(millis), clients);
            let audit = case.audit(store, false);
            eprintln!("{lock}: {:.0} a second, {audit}", measured.throughput());
            // a slow machine may not have done enough yet
            let later = !acknowledged(&measured) || (!lock.promises() && audit.verdict == Verdict::Holds);
            let seen = format!("{lock}: {audit:?} {:?}", measured.faults);
            assert!(later || audit.verdict == expected, "{seen}");
            assert_eq!(measured.stopped, None, "{lock}");
            assert!(measured.faults.is_empty(), "{lock}: {:?}", measured.faults);
            subject.conflicts_as_it_says(&request(lock), &measured);
            case.unload(store);
            gone(subject, store, &case);
            if later { Err(seen) } else { Ok(()) }
        });
    }
}

/// A replayed sequence leaves the right final stock: with one client tuple by tuple, with several in its sums.
pub fn replay<S: Store>(subject: &Subject<S>, store: &S) {
    let several = promising(subject).into_iter().map(|lock| (lock, 8));
    let runs = locks(subject).into_iter().map(|lock| (lock, 1)).chain(several);
    for (trial, (lock, clients)) in (0..).zip(runs) {
        let case = InventoryRun::replay(lock, trial, 1200);
        case.load(store);
        let measured = case.drive(store, &to_the_end(), clients);
        let audit = case.audit(store, clients == 1);
        assert_eq!(
            audit.verdict,
            Verdict::Holds,
            "{lock}, {clients} clients: {audit:?} {:?}",
            measured.faults
        );
        assert_eq!(audit.count("off_sequence"), 0, "{lock}, {clients} clients");
        case.unload(store);
    }
}

/// A value that is no tuple is read back as foreign, and the tuples beside it as they are. `spoil` turns a tuple into
/// such a value.
pub async fn garbled(store: &impl Store, spoil: impl AsyncFn(&Place, &Item)) {
    let port = store.inventory().unwrap();
    let stock = Stock::draw(&Parameters { items: 5, ..Parameters::default() }, SEED);
    let place = Place { namespace: NAMESPACE.to_owned(), trial: 99 };
    port.load(&place, Lock::None, &stock).await.unwrap();
    let spoiled = &stock.items[2];
    spoil(&place, spoiled).await;
    let mut seen = port.stock(&place).await.unwrap();
    seen.sort_unstable_by_key(|held| held.key);
    let mut expected: Vec<StockRow> =
        stock.items.iter().map(|item| StockRow { key: item.key(), count: item.initial.into() }).collect();
    expected[2] = StockRow::foreign();
    expected.sort_unstable_by_key(|held| held.key);
    assert_eq!(seen, expected, "{spoiled:?}");
}

/// Asserts that the durability level that was asked for is read back, with the settings that the store's row of the
/// matrix names at the beginning of its words on the level: `fsync=on, synchronous_commit=on: …`, or
/// `appendonly yes, …`; they begin with `always` where no setting decides it. For an embedded store, which sets its
/// level itself, only the level is compared.
#[track_caller]
pub fn read_back(kind: &StoreKind, asked: Durability, effective: &EffectiveSettings) {
    assert_eq!(effective.durability, asked, "{}: {effective:?}", kind.name);
    let Support::Yes(how) = kind.durability(asked) else {
        panic!("{} has no durability level {asked}", kind.name)
    };
    if kind.hosting != Hosting::Program {
        return;
    }
    let settings = how.split(':').next().unwrap_or(how).split(", ").filter_map(|setting| {
        let (name, value) = setting.split_once('=').or_else(|| setting.split_once(' '))?;
        // a condition, as in `sync_binlog=1 if log_bin`, is not part of a setting's value
        (!value.contains(' ')).then_some((name, value))
    });
    let mut seen = 0;
    for (name, value) in settings {
        let read = effective.settings.get(name);
        let is = read.is_some_and(|read| read.eq_ignore_ascii_case(value));
        assert!(
            is,
            "{}, durability level {asked}: {name} is said to be {value}, and was read as {read:?}",
            kind.name
        );
        seen += 1;
    }
    assert!(
        seen > 0 || how.starts_with("always"),
        "{}, durability level {asked}: no setting in {how:?}",
        kind.name
    );
}

/// Starts the store at each durability level that it offers, and asserts that the level is read back. `check` may
/// assert more about its settings.
pub fn levels<S: Store>(subject: &Subject<S>, check: impl Fn(&World<S>, &EffectiveSettings)) {
    for asked in Durability::ALL {
        if !subject.kind.durability(asked).is_yes() {
            continue;
        }
        let Some(world) = subject.start(asked) else { return };
        let effective = wait(world.store.effective()).unwrap();
        read_back(&subject.kind, asked, &effective);
        let version = &effective.version;
        assert!(
            version.starts_with(|first: char| first.is_ascii_digit()) && version.contains('.'),
            "{version}"
        );
        check(&world, &effective);
    }
}

/// A namespace of each name tells which run made it, holds trials in every lock mode, and is removed with all its
/// data and nothing else, not even a namespace whose name begins with its own.
pub fn namespaces<S: Store>(subject: &Subject<S>, names: &[&str]) {
    let Some(world) = subject.share() else { return };
    let cases = |namespace: &str| {
        let case = |lock: Lock| InventoryRun::random(lock, 1 + lock as u32).within(namespace);
        locks(subject).into_iter().map(case).collect::<Vec<_>>()
    };
    for name in names {
        namespace(subject, &world, name, cases);
    }
}

/// A namespace that exists cannot be created again, and stays the run's that made it.
pub fn occupied<S: Store>(subject: &Subject<S>) {
    let Some(world) = subject.share() else { return };
    let store = &world.store;
    for name in NAMES {
        wait(store.create(name, "run 1")).unwrap();
        let again = wait(store.create(name, "run 2")).unwrap_err();
        assert!(matches!(again, StoreError::Occupied { .. }), "not occupied: {again:?}");
        assert_eq!(wait(store.owner(name)).unwrap(), Owner::Run("run 1".to_owned()), "{name}");
    }
    for name in NAMES {
        wait(store.remove(name)).unwrap();
    }
}

/// A stock of 20,000 tuples is loaded and read back whole.
pub fn large_stock<S: Store>(_: &Subject<S>, store: &S) {
    let stock = Stock::draw(&Parameters { items: 20_000, skus: 5_000, ..Parameters::default() }, SEED);
    let place = Place { namespace: NAMESPACE.to_owned(), trial: 0 };
    let port: &dyn InventoryStore = store.inventory().unwrap();
    wait(port.load(&place, Lock::None, &stock)).unwrap();
    let mut held = wait(port.stock(&place)).unwrap();
    held.sort_unstable_by_key(|tuple| tuple.key);
    let loaded: Vec<_> =
        stock.items.iter().map(|item| StockRow { key: item.key(), count: item.initial.into() }).collect();
    assert_eq!(held, loaded);
}

/// If nobody listens at the address, the error says so and gives the remedy.
pub fn unreachable<S: Store>(subject: &Subject<S>) {
    // port 1, as a port that was free a moment ago may be taken by another test
    let nowhere = Address::loopback(subject.kind.schemes[0], None, 1, "");
    subject.refuses(&login(&nowhere, "ann", Some("hunter2")), &["Connection refused", "start the server"]);
}

/// Few tuples, so that captures take units from several.
fn few() -> Box<dyn Workload> {
    let values = [("items", 24), ("skus", 2)].map(|(name, value)| (name.to_owned(), value.into()));
    (KIND.with)(&Values::from_iter(values)).unwrap()
}

/// Acknowledged operations are there after the server was killed in the middle of a trial, whether it came back
/// while its clients still tried or after they gave up. For stores that have the durability levels disk and process,
/// and the lock soft.
pub fn kills<S: Store>(subject: &Subject<S>) {
    let (process, disk) = (Durability::Process, Durability::Disk);
    // alternately back while the clients still try, and only after they gave up
    let synced = promising(subject).into_iter().zip([Back::AtOnce, Back::TooLate].into_iter().cycle());
    for (durability, kills) in [(disk, synced.collect()), (process, vec![(Lock::Soft, Back::AtOnce)])] {
        let Some(mut victim) = Victim::start(subject, durability) else { return };
        for (lock, back) in kills {
            survives(&mut victim, &*few(), lock, back, Repaired::First);
        }
    }
}

/// At durability level none the data are lost with the server, and the audit's verdict is broken.
pub fn nothing_kept<S: Store>(subject: &Subject<S>) {
    let Some(mut victim) = Victim::start(subject, Durability::None) else { return };
    // native, where the store has it; one that promises nothing would break without a loss
    let Some(lock) = promising(subject).pop() else { panic!("no lock mode promises anything") };
    let audit = victim.crash(&*few(), lock, Back::TooLate).audit;
    assert_eq!(audit.verdict, Verdict::Broken, "{audit:?}");
}

/// An operation that the server refuses after it has taken units from one tuple has no effect and leaves its
/// connection usable; without a lock it may have taken a part. `obstruct` makes the server refuse to take units of a
/// trial's stock from any warehouse but the first.
pub fn half_way<S: Store>(subject: &Subject<S>, obstruct: impl Fn(&World<S>, &Place)) {
    let Some(world) = prepared(subject, Durability::None) else { return };
    let mut trials = 0..;
    for lock in locks(subject) {
        with_more_time(300, |millis| {
            // each attempt is a trial of its own, as an obstruction may outlive its trial
            let case = InventoryRun::random(lock, trials.next().unwrap());
            case.load(&world.store);
            obstruct(&world, &case.place);
            let clients = if lock.promises() { 4 } else { 1 };
            let measured = case.drive(&world.store, &for_time(millis), clients);
            let audit = case.audit(&world.store, false);
            let count = |outcome| measured.operations[0].count(outcome);
            let halves = if lock.promises() { Outcome::Failed } else { Outcome::Unknown };
            if !acknowledged(&measured) || count(Outcome::Failed) == 0 || count(halves) == 0 {
                return Err(format!("{lock}: {audit:?} {:?}", measured.faults));
            }
            assert_eq!(audit.verdict, Verdict::Holds, "{lock}: {audit:?}");
            assert_eq!(count(Outcome::Unknown) == 0, lock.promises(), "{lock}: {:?}", measured.faults);
            assert_eq!((measured.reconnects == 0, measured.stopped), (lock.promises(), None));
            Ok(())
        });
    }
}
