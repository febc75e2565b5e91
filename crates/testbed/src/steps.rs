//! What the checks of all workloads share: trials step by step, namespaces, crashes.

use std::{
    fmt::{Debug, Display},
    thread,
    time::{Duration, Instant},
};

use acidtest_engine::{Load, Measurement, Outcome, Stop, Trial};
use acidtest_model::{Durability, Lock, StoreError};
use acidtest_workloads::{Audit, ClientTask, Finding, Owner, Store};

use crate::{Gone, NAMESPACE, Subject, World, for_time, subject::Home, wait};

/// How long clients may take to reach a server again that was killed, on a machine that has other things to do.
pub(crate) const BACK: Duration = Duration::from_mins(3);

/// A trial step by step, whatever its workload.
pub(crate) trait Steps: Sync {
    /// What is read back.
    type State: PartialEq + Debug + Default;

    /// What its clients do, by name.
    const OPERATIONS: &'static [&'static str];

    /// How it is protected.
    fn lock(&self) -> Lock;
    /// Lays its data in.
    fn load(&self, store: &impl Store);
    /// So many clients.
    fn tasks(&self, store: &impl Store, clients: usize) -> Vec<ClientTask>;
    /// Runs so many clients to the end.
    fn drive(&self, store: &impl Store, load: &Load, clients: usize) -> Measurement;
    /// Reads back what is there.
    fn state(&self, store: &impl Store) -> Result<Self::State, StoreError>;
    /// The state as it was laid in.
    fn laid_in(&self) -> Self::State;
    /// Holds what was acknowledged against what is there.
    fn audit(&self, store: &impl Store) -> Audit;
}

/// Runs clients to the end.
pub(crate) fn run(store: &impl Store, load: &Load, tasks: Vec<ClientTask>) -> Measurement {
    trial(store, load, tasks.len()).run(tasks).unwrap()
}

/// A trial of so many clients. A blocking store's clients have a thread each.
pub(crate) fn trial(store: &impl Store, load: &Load, clients: usize) -> Trial {
    let threads = if store.blocking() { clients } else { load.threads };
    Trial::new(Load { threads, ..load.clone() }, clients)
}

/// Runs a trial until the watching ends, if it has not ended by itself, which the watcher can ask.
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

/// Stops a trial when dropped, by a panic too.
struct StopOnDrop<'a>(&'a Trial);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop(Stop::Interrupted);
    }
}

/// Waits until something is so.
#[track_caller]
pub fn until(what: impl Display, most: Duration, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < most, "{what}: not within {most:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Tries with more and more time, in milliseconds, until what was to be seen has been seen: a slow machine takes
/// longer. Where a minute is too little, it panics with what was seen instead.
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

/// Whether anything was acknowledged: of a trial without that nothing is known.
pub(crate) fn acknowledged(measured: &Measurement) -> bool {
    measured.operations.iter().any(|operation| operation.count(Outcome::Ok) > 0)
}

/// A store with a namespace for trials, at the durability level if the store has it.
pub(crate) fn prepared<S: Store>(subject: &Subject<S>, durability: Durability) -> Option<World<S>> {
    let world = subject.start(subject.durability(durability))?;
    wait(world.store.create(NAMESPACE, "run 1")).unwrap();
    Some(world)
}

/// What was unloaded is not there any more, and the store says so in its way.
#[track_caller]
pub(crate) fn gone<S: Store, C: Steps>(subject: &Subject<S>, store: &S, case: &C) {
    let said = match case.state(store) {
        Err(_) => Gone::Error,
        Ok(state) => {
            assert_eq!(state, C::State::default());
            Gone::Empty
        }
    };
    assert_eq!(said, subject.gone);
}

/// A namespace knows who made it, carries trials, and goes with all that is in it, but nothing else: not
/// a neighbour whose name begins with its own. `cases` are trials in a namespace.
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
        assert_eq!(case.state(store).unwrap(), case.laid_in(), "{name}");
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
    assert_eq!(theirs.state(store).unwrap(), theirs.laid_in(), "{neighbour}");
    wait(store.remove(&neighbour)).unwrap();
    assert_eq!(owner(&neighbour), Owner::Nobody, "{neighbour}");
}

/// When a store makes whole what a kill has left of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repaired {
    /// Before it answers anybody.
    First,
    /// While it answers: a read may not find what is there.
    WhileRead,
}

/// What was acknowledged is there after the server was killed in mid-trial, whether it came back while
/// its clients still tried or after they gave up.
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

/// Kills the server in the middle of a trial, starts it again at once or after the clients gave up, and
/// audits what it recovered.
pub(crate) fn crash<S: Store, C: Steps>(
    subject: &Subject<S>,
    world: &mut World<S>,
    case: &C,
    comes_back: bool,
) -> (Measurement, Audit) {
    let World { store, home: Home::Server(private) } = world else { panic!("there is no server to kill") };
    let store = &*store;
    case.load(store);
    // long enough to see the server come back, short enough to give it up
    let patience = if comes_back { BACK } else { Duration::from_secs(1) };
    let load = Load { operations: C::OPERATIONS, patience, ..for_time(3_600_000) };
    let measured = drives_until(store, &load, case.tasks(store, 12), |trial, is_over| {
        changes(store, case, &case.laid_in(), is_over);
        thread::sleep(Duration::from_millis(500));
        private.kill();
        if comes_back {
            private.restart();
            // only waits for it: the durability level is of no account
            subject.answer(private, Durability::None);
            until("nobody connects again", BACK, || trial.progress().reconnects > 0 || is_over());
            // what it shows now may be of before the kill
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

/// Waits until a trial shows something else, or is over.
#[track_caller]
fn changes<C: Steps>(store: &impl Store, case: &C, from: &C::State, is_over: &dyn Fn() -> bool) {
    until("the trial changes nothing", BACK, || {
        is_over() || case.state(store).is_ok_and(|found| found != *from)
    });
}
