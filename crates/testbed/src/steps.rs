//! What the checks of all workloads share: trials step by step, namespaces, crashes.

use std::{
    fmt::Debug,
    thread,
    time::{Duration, Instant},
};

use acidtest_engine::{Load, Measurement, Stop, Trial};
use acidtest_model::{Durability, Lock, StoreError};
use acidtest_workloads::{Audit, ClientTask, Finding, Owner, Store};

use crate::{Gone, NAMESPACE, Subject, World, for_time, subject::Home, wait};

/// A trial step by step, whatever its workload.
pub(crate) trait Steps: Sync {
    /// What is read back.
    type State: PartialEq + Debug + Default;

    /// How it is protected.
    fn lock(&self) -> Lock;
    /// Lays its data in.
    fn load(&self, store: &impl Store);
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

/// A store with a namespace for trials, at the rung if the store has it.
pub(crate) fn prepared<S: Store>(subject: &Subject<S>, durability: Durability) -> Option<World<S>> {
    let world = subject.start(subject.rung(durability))?;
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
        assert_eq!(measured.stopped, None, "{lock}");
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
pub(crate) fn crash<S: Store>(
    subject: &Subject<S>,
    world: &mut World<S>,
    case: &impl Steps,
    comes_back: bool,
) -> (Measurement, Audit) {
    let World { store, home: Home::Server(private) } = world else { panic!("there is no server to kill") };
    let store = &*store;
    case.load(store);
    // long enough to see the server come back, short enough to give it up
    let patience = Duration::from_secs(if comes_back { 20 } else { 1 });
    // a store that takes a second to be read back must still be killed in mid-trial
    let load = Load { patience, ..for_time(4000) };
    let measured = thread::scope(|scope| {
        let trial = scope.spawn(|| case.drive(store, &load, 12));
        await_change(store, case);
        thread::sleep(Duration::from_millis(500));
        private.kill();
        if comes_back {
            private.restart();
        }
        trial.join().unwrap()
    });
    if !comes_back {
        private.restart();
    }
    // only waits for it: the rung is of no account
    subject.answer(private, Durability::None);
    (measured, case.audit(store))
}

/// Waits until a trial has begun to show.
fn await_change(store: &impl Store, case: &impl Steps) {
    let start = Instant::now();
    let laid = case.laid_in();
    while case.state(store).unwrap() == laid {
        assert!(start.elapsed() < Duration::from_secs(20), "the trial does not begin");
        thread::sleep(Duration::from_millis(5));
    }
}
