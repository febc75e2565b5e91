//! Steps that the checks of all workloads share: running trials, namespaces, crashes.

use std::{
    fmt::{Debug, Display},
    thread,
    time::{Duration, Instant},
};

use acidtest_engine::{Load, Measurement, Outcome, Stop, Trial};
use acidtest_model::{Durability, Lock, StoreError};
use acidtest_workloads::{Audit, ClientTask, Finding, Owner, Store};

use crate::{AfterRemoval, NAMESPACE, Subject, World, for_time, subject::Home, wait};

/// How long clients may take to reach a server again after a kill, on a busy machine.
pub(crate) const BACK: Duration = Duration::from_mins(3);

/// The steps of a trial, for checks that run trials of several workloads.
pub(crate) trait Steps: Sync {
    /// The data as they are read back.
    type State: PartialEq + Debug + Default;

    /// Names of the clients' operations.
    const OPERATIONS: &'static [&'static str];

    fn lock(&self) -> Lock;
    /// Loads the trial's data.
    fn load(&self, store: &impl Store);
    /// The tasks of this number of clients.
    fn tasks(&self, store: &impl Store, clients: usize) -> Vec<ClientTask>;
    /// Runs this number of clients until the load's end.
    fn drive(&self, store: &impl Store, load: &Load, clients: usize) -> Measurement;
    /// Reads the data back.
    fn state(&self, store: &impl Store) -> Result<Self::State, StoreError>;
    /// The data as they were loaded.
    fn initial(&self) -> Self::State;
    /// Audits the acknowledged operations against the data that are read back.
    fn audit(&self, store: &impl Store) -> Audit;
}

/// Runs clients until the load's end.
pub(crate) fn run(store: &impl Store, load: &Load, tasks: Vec<ClientTask>) -> Measurement {
    trial(store, load, tasks.len()).run(tasks).unwrap()
}

/// A trial of this number of clients. A blocking store's clients have a thread each.
pub(crate) fn trial(store: &impl Store, load: &Load, clients: usize) -> Trial {
    let threads = if store.blocking() { clients } else { load.threads };
    Trial::new(Load { threads, ..load.clone() }, clients)
}

/// Runs a trial until `watch` returns, unless it ends by itself before. `watch` is given a function that tells
/// whether it has ended.
pub(crate) fn drives_until(
    store: &impl Store,
    load: &Load,
    tasks: Vec<ClientTask>,
    watch: impl FnOnce(&Trial, &dyn Fn() -> bool),
) -> Measurement {
    let trial = trial(store, load, tasks.len());
    thread::scope(|scope| {
        let running = scope.spawn(|| trial.run(tasks).unwrap());
        let ends = StopOnDrop(&trial);
        watch(&trial, &|| running.is_finished());
        drop(ends);
        running.join().unwrap()
    })
}

/// Stops a trial when dropped, so that it also ends if the watcher panics.
struct StopOnDrop<'a>(&'a Trial);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop(Stop::Interrupted);
    }
}

/// Waits until `so` returns true, looking every 2 ms.
///
/// # Panics
/// With `what` in the message, if that takes longer than `most`.
#[track_caller]
pub fn until(what: impl Display, most: Duration, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < most, "{what}: not within {most:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Tries with `millis` milliseconds, and each time four times as many, until the attempt succeeds: a slow machine
/// takes longer.
///
/// # Panics
/// With the attempt's error, if it fails with a minute or more.
#[track_caller]
pub fn with_more_time<T>(mut millis: u64, mut attempt: impl FnMut(u64) -> Result<T, String>) -> T {
    loop {
        match attempt(millis) {
            Ok(seen) => return seen,
            Err(seen) => assert!(millis < 60_000, "not within {millis} ms: {seen}"),
        }
        millis *= 4;
    }
}

/// Whether any operation was acknowledged. If not, the trial proves nothing.
pub(crate) fn acknowledged(measured: &Measurement) -> bool {
    measured.operations.iter().any(|operation| operation.count(Outcome::Ok) > 0)
}

/// A store with a namespace for trials, at this durability level, or the weakest if the store does not offer it.
pub(crate) fn prepared<S: Store>(subject: &Subject<S>, durability: Durability) -> Option<World<S>> {
    let world = subject.start(durability)?;
    wait(world.store.create(NAMESPACE, "run 1")).unwrap();
    Some(world)
}

/// Asserts that a trial's data were removed, and that the store says so in the way that its subject declares.
#[track_caller]
pub(crate) fn gone<S: Store, C: Steps>(subject: &Subject<S>, store: &S, case: &C) {
    let said = match case.state(store) {
        Err(_) => AfterRemoval::Error,
        Ok(state) => {
            assert_eq!(state, C::State::default());
            AfterRemoval::Empty
        }
    };
    assert_eq!(said, subject.gone);
}

/// A namespace tells which run made it, holds trials, and is removed with all its data and nothing else, not even a
/// namespace whose name begins with its own. `cases` makes trials in a namespace.
pub(crate) fn namespace<S: Store, C: Steps>(
    subject: &Subject<S>,
    world: &World<S>,
    name: &str,
    cases: impl Fn(&str) -> Vec<C>,
) {
    let store = &world.store;
    let owner = |name: &str| wait(store.owner(name)).unwrap();
    let neighbour = format!("{name}_2");
    wait(store.create(&neighbour, "run 2")).unwrap();
    let theirs = cases(&neighbour).pop().expect("there is a case");
    theirs.load(store);

    assert_eq!(owner(name), Owner::Nobody, "{name}");
    wait(store.create(name, "run '1'")).unwrap();
    assert_eq!(owner(name), Owner::Run("run '1'".to_owned()), "{name}");
    let cases = cases(name);
    for case in &cases {
        case.load(store);
        assert_eq!(case.state(store).unwrap(), case.initial(), "{name}");
        let measured = case.drive(store, &for_time(50), 2);
        assert!(
            measured.faults.is_empty() && measured.stopped.is_none(),
            "{name}, {}: {measured:?}",
            case.lock()
        );
    }
    wait(store.remove(name)).unwrap();
    assert_eq!(owner(name), Owner::Nobody, "{name}");
    for case in &cases {
        gone(subject, store, case);
    }
    wait(store.remove(name)).unwrap();

    assert_eq!(owner(&neighbour), Owner::Run("run 2".to_owned()), "{neighbour}");
    assert_eq!(theirs.state(store).unwrap(), theirs.initial(), "{neighbour}");
    wait(store.remove(&neighbour)).unwrap();
    assert_eq!(owner(&neighbour), Owner::Nobody, "{neighbour}");
}

/// When a store repairs the files that a kill has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repaired {
    /// Before it answers any client.
    First,
    /// While it answers, so that a read may miss data that are there.
    WhileRead,
}

/// Asserts that acknowledged operations are there after the server was killed in the middle of a trial and came back,
/// with `comes_back` while its clients still tried, else after they gave up.
pub(crate) fn survives<S: Store>(
    subject: &Subject<S>,
    world: &mut World<S>,
    case: &impl Steps,
    comes_back: bool,
    repaired: Repaired,
) {
    let lock = case.lock();
    let (measured, audit) = crash(subject, world, case, comes_back);
    eprintln!("{lock}: {audit}, {:?} {:?}", audit.evidence, measured.faults);
    if comes_back {
        assert!(measured.reconnects > 0, "{lock}");
        assert_eq!(measured.stopped, Some(Stop::Interrupted), "{lock}: {:?}", measured.faults);
    } else {
        assert!(matches!(measured.stopped, Some(Stop::ServerGone(_))), "{lock}: {:?}", measured.stopped);
    }
    assert!(!measured.faults.is_empty(), "{lock}");
    let excused = |finding: &Finding| repaired == Repaired::WhileRead && finding.name == "missing";
    let sound =
        audit.reason.is_none() && audit.findings.iter().all(|finding| finding.count == 0 || excused(finding));
    assert!(sound, "{lock}: {audit:?} {:?}", measured.faults);
}

/// Kills the server in the middle of a trial, starts it again at once (`comes_back`) or after the clients gave up,
/// and audits the data that it recovered.
pub(crate) fn crash<S: Store, C: Steps>(
    subject: &Subject<S>,
    world: &mut World<S>,
    case: &C,
    comes_back: bool,
) -> (Measurement, Audit) {
    let World { store, home: Home::Server(private) } = world else { panic!("there is no server to kill") };
    let store = &*store;
    case.load(store);
    // long enough for clients to see the server come back, or short enough that they soon give up
    let patience = if comes_back { BACK } else { Duration::from_secs(1) };
    let load = Load { operations: C::OPERATIONS, patience, ..for_time(3_600_000) };
    let measured = drives_until(store, &load, case.tasks(store, 12), |trial, is_over| {
        changes(store, case, &case.initial(), is_over);
        thread::sleep(Duration::from_millis(500));
        private.kill();
        if comes_back {
            private.restart();
            // only waits until the server answers, at any durability level
            subject.answer(private, Durability::None);
            until("nobody connects again", BACK, || trial.progress().reconnects > 0 || is_over());
            // the data that are there now may be from before the kill
            until("nothing is read back", BACK, || {
                case.state(store).is_ok_and(|found| {
                    changes(store, case, &found, is_over);
                    true
                })
            });
            thread::sleep(Duration::from_millis(300));
        } else {
            until("they do not give up", BACK, is_over);
        }
    });
    if !comes_back {
        private.restart();
        subject.answer(private, Durability::None);
    }
    (measured, case.audit(store))
}

/// Waits until a trial's data differ from `from`, or it is over.
#[track_caller]
fn changes<C: Steps>(store: &impl Store, case: &C, from: &C::State, is_over: &dyn Fn() -> bool) {
    until("the trial changes nothing", BACK, || {
        is_over() || case.state(store).is_ok_and(|found| found != *from)
    });
}
