//! A run whose stores fail as they are told: which trials are made, what is left of them, and what is cleared away.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use acidtest_model::Span;
use acidtest_results::{Plan, RunResult, SoFar, StopFigures};

use crate::told::{Bench, Step, Teller, plan};
use acidtest_engine::Progress;
use acidtest_runner::{Failure, Finished, Interrupt, Observer, Silent};
use acidtest_workloads::{Finding, Verdict, guarantee::LOCK};

fn verdicts(result: &RunResult) -> Vec<Vec<Verdict>> {
    let of =
        |trials: &[acidtest_results::TrialResult]| trials.iter().map(|trial| trial.audit.verdict).collect();
    result.cells.iter().map(|cell| of(&cell.trials)).collect()
}

const HELD: Verdict = Verdict::Holds;

/// A store that fails before its trial costs its own cell, once; the other's trials are all made.
#[test]
fn a_store_that_fails_costs_its_cell_and_not_the_run() {
    for step in [Step::Open, Step::Effective, Step::Owner, Step::Create, Step::Load] {
        let (bad, good) = (Teller::new("bad"), Teller::new("good"));
        bad.told.fail(step, 1);
        let targets = vec![bad.target(), good.target()];
        let Finished { result, failure } =
            Bench::new().run(&plan(3), targets, None, &mut Silent, &Interrupt::default()).unwrap();
        assert!(failure.is_none(), "{step:?}: {failure:?}");
        assert_eq!(verdicts(&result), [vec![], vec![HELD; 3]], "{step:?}");
        let error = result.cells[0].error.as_deref().unwrap();
        assert!(error.contains("it was told to fail"), "{step:?}: {error}");
        assert_eq!(bad.told.taken(step), 1, "{step:?} is not tried again");
    }
}

/// The plan says how long connections may take, and whatever waits for a store goes by that.
#[test]
fn a_store_is_waited_for_as_long_as_the_plan_says() {
    let store = Teller::new("slow");
    let within = |millis| Plan { connect_timeout: Span(Duration::from_millis(millis)), ..plan(1) };
    let run = |plan: &Plan| {
        Bench::new().run(plan, vec![store.at("db.example")], None, &mut Silent, &Interrupt::default())
    };
    assert!(run(&within(1500)).unwrap().failure.is_none());
    assert_eq!(*store.told.given.lock().unwrap(), Some(Duration::from_millis(1500)));
    store.told.hangs.store(true, SeqCst);
    let said = run(&within(100)).err().unwrap().to_string();
    assert!(said.contains("does not answer within 400ms") && said.contains("--connect-timeout"), "{said}");
}

/// With no trial there is no result, and the error names each cause once.
#[test]
fn a_run_without_a_trial_is_an_error() {
    let bad = Teller::new("bad");
    bad.told.fail(Step::Load, 1);
    let plan = acidtest_results::Plan { clients: vec![1, 2], ..plan(2) };
    let bench = Bench::new();
    let Err(failure) = bench.run(&plan, vec![bad.target()], None, &mut Silent, &Interrupt::default()) else {
        panic!("there is a result")
    };
    assert!(
        matches!(&failure, Failure::Store(said) if said.matches("told to fail").count() == 1),
        "{failure}"
    );
    assert!(bench.written.lock().unwrap().is_none());
}

/// A trial whose store fails later than the first keeps the trials before it.
#[test]
fn what_was_made_before_a_failure_is_kept() {
    let bad = Teller::new("bad");
    bad.told.fail(Step::Load, 3);
    let bench = Bench::new();
    let Finished { result, failure } =
        bench.run(&plan(4), vec![bad.target()], None, &mut Silent, &Interrupt::default()).unwrap();
    assert!(failure.is_none());
    assert_eq!(verdicts(&result), [vec![HELD; 2]]);
    assert!(result.cells[0].error.is_some());
    // and a run that goes on makes the rest
    bad.told.recover();
    let begun = Some(result);
    let Finished { result, .. } =
        bench.run(&plan(4), vec![bad.target()], begun, &mut Silent, &Interrupt::default()).unwrap();
    assert_eq!(verdicts(&result), [vec![HELD; 4]]);
    let rounds: Vec<(u32, u32)> =
        result.cells[0].trials.iter().map(|trial| (trial.round, trial.session)).collect();
    assert_eq!(rounds, [(1, 1), (2, 1), (3, 2), (4, 2)]);
}

/// Interrupts the run when so many trials are in its result.
struct After(u64, Interrupt);

impl Observer for After {
    fn kept(&mut self, result: &RunResult, _: usize) {
        if result.cells.iter().map(|cell| cell.trials.len() as u64).sum::<u64>() >= self.0 {
            self.1.set();
        }
    }
}

/// Trials that were skipped, and those that were begun.
#[derive(Default)]
struct Counted {
    skipped: u32,
    begun: u32,
    all: (u64, u64),
    /// What was told of the run that goes on.
    broken: u64,
}

impl Observer for Counted {
    fn go_on(&mut self, begun: &RunResult) {
        self.broken = SoFar::of(begun).broken;
    }

    fn start(&mut self, least: u64, most: u64, _: Option<Duration>) {
        self.all = (least, most);
    }

    fn begin(&mut self, _: &str) {
        self.begun += 1;
    }

    fn skip(&mut self) {
        self.skipped += 1;
    }
}

/// Makes of a cell's last trial one that was interrupted, after it had broken what was promised.
fn interrupt_last(result: &mut RunResult, broke: bool) {
    let trial = result.cells[0].trials.last_mut().unwrap();
    trial.stopped = Some(StopFigures { reason: "interrupted".to_owned(), detail: String::new() });
    trial.throughput = 1.0;
    if broke {
        trial.audit.verdict = Verdict::Broken;
        trial.audit.findings = vec![Finding::new("oversold", 5, "units", LOCK)];
    }
    result.interrupted = true;
}

/// What a trial proved before it was interrupted stays proved; its round is made again, and it is in no mean.
#[test]
fn a_promise_that_an_interrupted_trial_broke_stays_broken() {
    let store = Teller::new("good");
    let bench = Bench::new();
    let interrupt = Interrupt::default();
    let mut after = After(2, interrupt.clone());
    let mut cut = bench.run(&plan(3), vec![store.target()], None, &mut after, &interrupt).unwrap().result;
    assert_eq!((verdicts(&cut), cut.interrupted), (vec![vec![HELD; 2]], true));
    interrupt_last(&mut cut, true);
    let go_on = |begun: RunResult, observer: &mut dyn Observer, interrupt: &Interrupt| {
        bench.run(&plan(3), vec![store.target()], Some(begun), observer, interrupt).unwrap().result
    };
    let mut counted = Counted::default();
    let done = go_on(cut.clone(), &mut counted, &Interrupt::default());
    assert_eq!((counted.skipped, counted.begun, counted.all, counted.broken), (1, 2, (3, 3), 1));
    let trials = |result: &RunResult| -> Vec<(u32, u32, Verdict)> {
        let all = &result.cells[0].trials;
        all.iter().map(|trial| (trial.round, trial.session, trial.audit.verdict)).collect()
    };
    let broke = (2, 1, Verdict::Broken);
    assert_eq!(trials(&done), [(1, 1, HELD), broke, (2, 2, HELD), (3, 2, HELD)]);
    let cell = &done.cells[0];
    assert!(cell.breaks_promise() && cell.verdict() == Verdict::Broken && !done.interrupted);
    let mean = cell.mean.as_ref().unwrap();
    let whole: f64 = cell.made_trials().map(|trial| trial.throughput).sum::<f64>() / 3.0;
    assert!((mean.estimate / whole - 1.0).abs() < 1e-9, "{} {whole}", mean.estimate);
    // interrupted once more, in the next round, where it broke nothing: that trial alone is made anew
    let interrupt = Interrupt::default();
    let mut again = go_on(cut, &mut After(3, interrupt.clone()), &interrupt);
    interrupt_last(&mut again, false);
    assert_eq!(trials(&again), [(1, 1, HELD), broke, (2, 2, HELD)]);
    let done = go_on(again, &mut Silent, &Interrupt::default());
    assert_eq!(trials(&done), [(1, 1, HELD), broke, (2, 2, HELD), (3, 2, HELD)]);
    // a run that has every trial has none to make
    let mut counted = Counted::default();
    let same = go_on(done.clone(), &mut counted, &Interrupt::default());
    assert_eq!((counted.skipped, counted.begun, trials(&same)), (3, 0, trials(&done)));
}

/// A final state that cannot be read proves nothing, and is no failure of the run.
#[test]
fn a_final_state_that_cannot_be_read_is_unknown() {
    let bad = Teller::new("bad");
    bad.told.fail(Step::ReadBack, 2);
    let bench = Bench::new();
    let Finished { result, failure } =
        bench.run(&plan(3), vec![bad.target()], None, &mut Silent, &Interrupt::default()).unwrap();
    assert!(failure.is_none());
    assert_eq!(verdicts(&result), [vec![HELD, Verdict::Unknown, Verdict::Unknown]]);
    let reason = result.cells[0].trials[1].audit.reason.as_deref().unwrap();
    assert!(reason.contains("it was told to fail"), "{reason}");
}

/// Clients that did not have sessions of their own ran at who knows what settings: what was found accuses nobody.
#[test]
fn a_trial_on_shared_sessions_proves_nothing() {
    let pooled = Teller::new("pooled");
    pooled.told.shares.store(true, SeqCst);
    let Finished { result, failure } =
        Bench::new().run(&plan(1), vec![pooled.target()], None, &mut Silent, &Interrupt::default()).unwrap();
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!(verdicts(&result), [vec![Verdict::Unknown]]);
    assert!(!result.cells[0].breaks_promise());
    let reason = result.cells[0].trials[0].audit.reason.as_deref().unwrap();
    for word in ["of 2 clients", "another session of the server answers", "the findings prove nothing"] {
        assert!(reason.contains(word), "no {word:?} in: {reason}");
    }
}

/// Data that cannot be removed after a trial goes with the namespace; where that cannot be removed, the run says so,
/// and its result is there all the same.
#[test]
fn what_cannot_be_cleared_away_is_told_and_the_result_is_kept() {
    let bad = Teller::new("bad");
    bad.told.fail(Step::Unload, 1);
    let bench = Bench::new();
    let targets = || vec![bad.at("db.example")];
    let Finished { result, failure } =
        bench.run(&plan(2), targets(), None, &mut Silent, &Interrupt::default()).unwrap();
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!(verdicts(&result), [vec![HELD; 2]]);
    assert_eq!(bad.told.taken(Step::Remove), 1);
    assert!(bench.lab().namespaces().unwrap().is_empty());

    bad.told.fail(Step::Remove, 1);
    let Finished { result, failure } =
        bench.run(&plan(2), targets(), None, &mut Silent, &Interrupt::default()).unwrap();
    assert!(matches!(&failure, Some(Failure::Store(said)) if said.contains("told to fail")), "{failure:?}");
    assert_eq!(verdicts(&result), [vec![HELD; 2]]);
}

/// A server that changes between trials is another one: its trials would not be of the same cell.
#[test]
fn a_server_that_has_changed_is_not_measured_on() {
    struct Changes(&'static Teller);
    impl Observer for Changes {
        fn end(&mut self, _: &str) {
            self.0.told.version.fetch_add(1, SeqCst);
        }
    }
    let store = Teller::new("changing");
    let bench = Bench::new();
    // within one session the settings are those of the open store, so the trials are of two sessions
    let Finished { result, .. } =
        bench.run(&plan(1), vec![store.target()], None, &mut Changes(store), &Interrupt::default()).unwrap();
    let mut begun = result;
    begun.plan.trials = 2;
    let Finished { result, failure } =
        bench.run(&plan(2), vec![store.target()], Some(begun), &mut Silent, &Interrupt::default()).unwrap();
    assert!(failure.is_none());
    assert_eq!(verdicts(&result), [vec![HELD]]);
    let error = result.cells[0].error.as_deref().unwrap();
    assert!(error.contains("not the one that its earlier trials ran on"), "{error}");
}

/// Asks for the end when so many trials have ended, or while one is driven.
struct Ends {
    after: u32,
    ended: u32,
    while_driven: bool,
    interrupt: Interrupt,
}

impl Observer for Ends {
    fn measured(&mut self, progress: &Progress, _: f64) {
        if self.while_driven && self.ended == self.after && progress.measured.is_some() {
            self.interrupt.set();
        }
    }

    fn end(&mut self, _: &str) {
        self.ended += 1;
        if !self.while_driven && self.ended == self.after {
            self.interrupt.set();
        }
    }
}

/// An interrupted run has the trials that it made; it goes on with those that are missing, and makes none twice.
#[test]
fn an_interrupted_run_goes_on_where_it_was() {
    for while_driven in [false, true] {
        let (one, other) = (Teller::new("one"), Teller::new("other"));
        let targets = || vec![one.target(), other.target()];
        let (bench, interrupt) = (Bench::new(), Interrupt::default());
        let mut ends = Ends { after: 3, ended: 0, while_driven, interrupt: interrupt.clone() };
        let Finished { result, failure } =
            bench.run(&plan(4), targets(), None, &mut ends, &interrupt).unwrap();
        assert!(failure.is_none() && result.interrupted);
        let made: Vec<usize> = result.cells.iter().map(|cell| cell.trials.len()).collect();
        assert!((3..=4).contains(&made.iter().sum::<usize>()), "{made:?}");
        let Finished { result, failure } =
            bench.run(&plan(4), targets(), Some(result), &mut Silent, &Interrupt::default()).unwrap();
        assert!(failure.is_none() && !result.interrupted);
        assert_eq!(verdicts(&result), [vec![HELD; 4], vec![HELD; 4]]);
        for cell in &result.cells {
            let mut rounds: Vec<u32> = cell.trials.iter().map(|trial| trial.round).collect();
            rounds.sort_unstable();
            assert_eq!(rounds, [1, 2, 3, 4]);
        }
    }
}

/// A result that cannot be written ends the run with that error; the trials made until then are handed over.
#[test]
fn a_full_disk_ends_the_run() {
    let store = Teller::new("good");
    let mut bench = Bench::new();
    bench.full = true;
    let Finished { result, failure } =
        bench.run(&plan(4), vec![store.target()], None, &mut Silent, &Interrupt::default()).unwrap();
    assert!(matches!(&failure, Some(Failure::Other(said)) if said == "the disk is full"), "{failure:?}");
    assert_eq!(verdicts(&result), [vec![HELD]]);
}

/// A namespace that is there already is somebody else's, unless the plan says to replace it.
#[test]
fn a_namespace_that_is_there_is_kept() {
    let store = Teller::new("full");
    store.told.fail(Step::Create, 1);
    let bench = Bench::new();
    let failed = bench.run(&plan(1), vec![store.at("db.example")], None, &mut Silent, &Interrupt::default());
    assert!(matches!(failed, Err(Failure::Store(_))));
    // what was never made is not asked about for ever
    assert!(bench.lab().namespaces().unwrap().is_empty());
}
