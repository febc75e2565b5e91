//! Steps that the checks of all workloads share: running trials, namespaces, crashes.

use std::{
    fmt::{Debug, Display},
    thread,
    time::{Duration, Instant},
};

use acidtest_engine::{Load, Measurement, Outcome, Stop, Trial};
use acidtest_model::{Durability, Lock, StoreError};
use acidtest_workloads::{ClientTask, Owner, Store};

use crate::{AfterRemoval, NAMESPACE, Subject, World, for_time, wait};

/// How long clients may take to reach a server again after a kill, on a busy machine.
pub(crate) const BACK: Duration = Duration::from_mins(3);

/// The steps of a trial, for checks that run trials of several workloads.
pub(crate) trait Steps: Sync {
    /// The data as they are read back.
    type State: PartialEq + Debug + Default;

    fn lock(&self) -> Lock;
    /// Loads the trial's data.
    fn load(&self, store: &impl Store);
    /// Runs this number of clients until the load's end.
    fn drive(&self, store: &impl Store, load: &Load, clients: usize) -> Measurement;
    /// Reads the data back.
    fn state(&self, store: &impl Store) -> Result<Self::State, StoreError>;
    /// The data as they were loaded.
    fn initial(&self) -> Self::State;
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

/// Waits until `so` returns true, looking after 2 ms and then less and less often, up to 20 times a second: to look may
/// take a process.
///
/// # Panics
/// With `what` in the message, if that takes longer than `most`.
#[track_caller]
pub fn until(what: impl Display, most: Duration, mut so: impl FnMut() -> bool) {
    let (start, mut pause) = (Instant::now(), Duration::from_millis(2));
    while !so() {
        assert!(start.elapsed() < most, "{what}: not within {most:?}");
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
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
            measured.faults.is_empty() && measured.doubts.is_empty() && measured.stopped.is_none(),
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
