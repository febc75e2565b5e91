//! The workload `transactions`, as the runner runs it.

use acidtest_model::{Durability, Isolation, Lock};
use acidtest_workloads::{
    Audit, LoadProgress, Place, Store, TrialSetup, Values, Verdict, Workload, transactions::KIND,
};

use crate::{
    NAMESPACE, SEED, Subject,
    crash::{Back, Repaired, Victim, survives},
    for_time, steps, wait, with_more_time,
};

/// How many clients run transactions on few keys.
const CLIENTS: u32 = 8;

/// At every level that the store offers, and at its default, no anomaly occurs that its documentation rules out. `occurs` names one
/// that must be seen at a level, because the store permits it there.
pub fn every_level<S: Store>(
    subject: &Subject<S>,
    store: &S,
    occurs: impl Fn(Option<Isolation>) -> Option<&'static str>,
) {
    let offered = Isolation::ALL.into_iter().filter(|level| subject.kind.isolation(*level).is_yes());
    for (trial, level) in (50..).zip(offered.map(Some).chain([None])) {
        let place = Place { namespace: NAMESPACE.to_owned(), trial };
        with_more_time(700, |millis| {
            let audit = audited(store, &place, level, millis);
            let name = level.map_or("default", Isolation::name);
            let seen: Vec<String> = audit
                .anomalies
                .iter()
                .map(|seen| format!("{} {} ({})", seen.count, seen.name, seen.is_ruled_out))
                .collect();
            let seen = seen.join(", ");
            eprintln!("{name}: {} committed, {seen}", audit.evidence["transactions_committed"]);
            assert_eq!(audit.verdict, Verdict::Holds, "{name}: {audit:#?}");
            let Some(wanted) = occurs(level) else { return Ok(()) };
            let is_seen = audit.anomalies.iter().any(|seen| seen.name == wanted);
            is_seen.then_some(()).ok_or_else(|| format!("{name}: no {wanted} among {seen}"))
        });
    }
}

/// A server that is killed in the middle of a trial, and comes back, is accused of nothing: at its own level of isolation, and at the
/// one that rules out all anomalies.
pub fn kills<S: Store>(subject: &Subject<S>) {
    let Some(mut victim) = Victim::start(subject, Durability::Disk) else { return };
    for level in [None, Some(Isolation::Serializable)] {
        survives(&mut victim, &*at(level), Lock::None, Back::AtOnce, Repaired::First);
    }
}

fn at(level: Option<Isolation>) -> Box<dyn Workload> {
    let values = Values::from_iter([
        ("keys".to_owned(), 4.into()),
        ("isolation".to_owned(), level.map_or("default", Isolation::name).into()),
    ]);
    (KIND.with)(&values).unwrap()
}

/// Runs a trial at a level, and audits it.
fn audited(store: &impl Store, place: &Place, level: Option<Isolation>, millis: u64) -> Audit {
    let trial = at(level).trial(TrialSetup::new(Lock::None, SEED, CLIENTS));
    wait(trial.load(store, place, &LoadProgress::default())).unwrap();
    let tasks = (0..CLIENTS).map(|_| trial.client(store, place).unwrap()).collect();
    let measured = steps::run(store, &for_time(millis), tasks);
    assert!(measured.faults.is_empty(), "{level:?}: {:?}", measured.faults);
    assert_eq!(measured.stopped, None, "{level:?}");
    let audit = wait(trial.audit(Ok(store), place)).audit;
    wait(trial.unload(store, place)).unwrap();
    audit
}
