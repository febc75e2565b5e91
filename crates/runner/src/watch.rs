//! Watches over the clients of a trial while they are driven: progress, interruption, a server that dies, the moments
//! of the timeline.

use std::time::{Duration, Instant};

use acidtest_engine::{Extent, Measurement, Progress, Stop};
use acidtest_model::{Commands, MemberId, Promotion, Role, Timeline};
use acidtest_observe::{Resources, Sampler};
use acidtest_results::GaugeFigures;
use acidtest_workloads::{Boundary, Consuming, WorkloadTrial};

use crate::{
    Failure, FaultStage, SecondSeen, Watcher,
    driver::Driver,
    inject::{Injected, Injector},
    instance::{Instance, LostMember},
    lives::Lookout,
};

/// Time between two checks of a running trial.
const WATCH: Duration = Duration::from_millis(20);

/// How long after its end a second is told: clients notice that it is over when their next operation has ended.
const SETTLED: Duration = Duration::from_millis(100);

/// How long clients may take to finish operations in flight once a trial is stopped.
const GRACE: Duration = Duration::from_secs(2);

/// The measurements of a trial that was driven.
#[derive(Debug)]
pub struct Driven {
    pub measurement: Measurement,
    /// What clients, servers and machine used.
    pub resources: Resources,
    /// What was done to the members, in the order in which it was begun.
    pub injected: Vec<Injected>,
    /// Whether the store's server was ended, so that what the ledger saw is not all of one life of it.
    pub(crate) crashed: bool,
    pub(crate) lost: Option<LostMember>,
    pub(crate) gauge: Option<GaugeFigures>,
}

/// Records once a second the quantity of a workload that rises and falls, such as messages in a queue.
#[derive(Default)]
struct Gauge {
    figures: Option<GaugeFigures>,
}

impl Gauge {
    fn look(&mut self, measured: Option<Duration>, trial: &dyn WorkloadTrial) {
        let Some(measured) = measured else { return };
        let seen = self.figures.as_ref().map_or(0, |figures| figures.each_second.len());
        if measured.as_secs() < seen as u64 {
            return;
        }
        if let Some((name, value)) = trial.consuming().map(Consuming::gauge) {
            let new = || GaugeFigures { name: name.to_owned(), each_second: Vec::new() };
            self.figures.get_or_insert_with(new).each_second.push(value);
        }
    }
}

/// What the observer of a trial was told.
#[derive(Default)]
struct Reported {
    /// How many seconds of the measured part are over.
    passed: u64,
    /// How many of those that are complete it knows.
    seconds: usize,
    /// How much of each fault it knows.
    faults: Vec<usize>,
}

impl Reported {
    /// Tells of a second that is over.
    fn second(
        &mut self,
        measured: Option<Duration>,
        of: &dyn WorkloadTrial,
        driver: &Driver,
        sampler: &Sampler,
        watcher: &mut Watcher<'_>,
    ) {
        let passed =
            measured.and_then(|measured| measured.checked_sub(SETTLED)).map(|settled| settled.as_secs());
        let Some(passed) = passed.filter(|passed| *passed > self.passed) else { return };
        self.passed = passed;
        let seconds = driver.trial.seconds_from(self.seconds);
        self.seconds += seconds.len();
        let (operations, used) = (driver.trial.operations(), sampler.lately());
        let gauge = of.consuming().map(Consuming::gauge);
        watcher.observer.second(&SecondSeen { operations, seconds: &seconds, used: &used, gauge });
    }

    /// Tells of the seconds that nobody could know to be complete before the end.
    fn rest(&mut self, operations: &[&'static str], measurement: &Measurement, watcher: &mut Watcher<'_>) {
        let seconds = measurement.series.get(self.seconds..).unwrap_or_default();
        if !seconds.is_empty() {
            watcher.observer.second(&SecondSeen { operations, seconds, used: &[], gauge: None });
        }
    }

    fn faults(&mut self, all: &[Injected], watcher: &mut Watcher<'_>) {
        self.faults.resize(all.len(), 0);
        for (injected, known) in all.iter().zip(&mut self.faults) {
            let begun = if injected.missed { FaultStage::Missed } else { FaultStage::Begun };
            let stages = [
                (begun, injected.at),
                (FaultStage::Back, injected.back),
                (FaultStage::Answers, injected.answered),
            ];
            while let Some((stage, Some(at))) = stages.get(*known) {
                let (name, member) = (injected.injection.disruption.name(), injected.member);
                watcher.observer.fault(name, member, *stage, *at);
                *known += 1;
            }
        }
    }
}

/// Runs the clients on threads of their own, and watches over them until they are done and every member that was
/// disturbed is back.
pub(crate) async fn drive(
    of: &dyn WorkloadTrial,
    instance: &mut Instance,
    (extent, timeout): (Extent, Duration),
    mut driver: Driver,
    (timeline, operator): (&Timeline, (&Commands, Promotion)),
    watcher: &mut Watcher<'_>,
) -> Result<Driven, Failure> {
    let trial = driver.trial.clone();
    let mut injector = Injector::new(timeline, operator, extent);
    let mut lookout = Lookout::new();
    // started anew with the measured part; a trial shorter than the interval has only this one
    let mut sampler = sample(instance, &driver);
    let mut observed = instance.pids();
    // of a cluster, the one that leads at first
    let main = instance.leader();
    let mut measuring = false;
    let mut gauge = Gauge::default();
    let mut told = Reported::default();
    let (mut lost, mut failed) = (None, None);
    let mut is_ending = false;
    let mut stopped: Option<Instant> = None;
    while !driver.is_finished() {
        injector.wait(WATCH).await;
        let progress = trial.progress();
        if !measuring && progress.measured.is_some() && !driver.is_finished() {
            measuring = true;
            sampler = sample(instance, &driver);
        }
        driver.exchange(of);
        gauge.look(progress.measured, of);
        of.ledger().note_moment();
        watcher.observer.measured(&progress, share(extent, &progress));
        told.second(progress.measured, of, &driver, &sampler, watcher);
        if lost.is_none() {
            lost = injector.lost(instance);
            if let Some(LostMember { how, .. }) = &lost {
                trial.stop(Stop::ServerGone(how.clone()));
                trial.give_up();
            }
        }
        if let (Some(measured), None, None) = (progress.measured, &lost, &failed) {
            let is_over = stopped.is_some() || matches!(extent, Extent::Time(length) if measured >= length);
            let begins_epoch = !is_over && injector.begins_epoch(measured, instance);
            let outstanding = of.consuming().filter(|_| begins_epoch).map(Consuming::outstanding);
            if begins_epoch {
                driver.note_boundary(of, Boundary::Before);
                driver.note_boundary(of, Boundary::During);
                is_ending = true;
            }
            let so_far = || trial.so_far();
            if let Err(failure) = injector.go_on(measured, is_over, so_far, instance, &mut driver) {
                trial.stop(Stop::Interrupted);
                trial.give_up();
                failed = Some(failure);
            } else if begins_epoch {
                injector.note_outstanding(outstanding);
            }
            if failed.is_none() && is_ending && injector.has_ended(instance) {
                driver.note_boundary(of, Boundary::After);
                is_ending = false;
            }
        }
        lookout.go_on(instance, &mut injector, trial.so_far().interrupted, progress.measured).await;
        told.faults(injector.done(), watcher);
        if lost.is_some() || failed.is_some() || trial.stopped().is_some() {
            // the trial would not end
            driver.go_on_all();
        }
        if let (Some(measured), Extent::Time(length)) = (progress.measured, extent)
            && measured > length + timeout * 2 + GRACE
            && injector.has_all_back()
        {
            // the server answers, and clients go on asking for what it has lost
            trial.stop(Stop::ServerGone("the process that clients connect to is gone".to_owned()));
            trial.give_up();
        }
        observed = follow_new(&sampler, instance, main, &observed);
        if watcher.interrupt.is_set() && stopped.is_none() {
            trial.stop(Stop::Interrupted);
            stopped = Some(Instant::now());
        }
        end_stopped(stopped, &mut driver);
    }
    let resources = sampler.stop();
    // one that was stopped at the very end still has its ledger to tell
    driver.go_on_all();
    let measurement = driver.join(of)?;
    told.rest(trial.operations(), &measurement, watcher);
    let silent = injector.end(measurement.window, || trial.so_far(), instance).await?;
    lookout.end(instance, &mut injector, &measurement).await;
    let injected = injector.into_done();
    let crashed = injected.iter().any(Injected::has_begun_epoch);
    told.faults(&injected, watcher);
    if let Some(failure) = failed {
        return Err(failure);
    }
    if let Some(failure) = unmeasured(&measurement, lost.is_some()) {
        return Err(failure);
    }
    // the process may end a moment after its connections do
    if lost.is_none() && matches!(measurement.stopped, Some(Stop::ServerGone(_))) {
        lost = instance.lost(|_| false);
    }
    lost = lost.or(silent);
    if let Some(down) = lost.take_if(|lost| crashed && lost.id.role == Role::Server) {
        lost = instance.start_once_more(down, watcher.interrupt).await;
    }
    Ok(Driven { measurement, resources, injected, crashed, lost, gauge: gauge.figures })
}

/// Ends the clients of a trial that was stopped at this moment, and does not end.
fn end_stopped(stopped: Option<Instant>, driver: &mut Driver) {
    let is_over = |grace| stopped.is_some_and(|since| since.elapsed() > grace);
    if is_over(GRACE) {
        driver.trial.give_up();
    }
    if is_over(GRACE * 4) {
        // one that somebody else has stopped, or that hangs
        driver.kill();
    }
}

/// Why nothing was measured, if nothing was.
fn unmeasured(measurement: &Measurement, is_lost: bool) -> Option<Failure> {
    match &measurement.stopped {
        // operations that the ledger missed are unknown to the audit
        Some(Stop::Defect(what)) => Some(Failure::Other(format!("{what}: a defect of acidtest"))),
        // a first connection that fails
        Some(Stop::NoConnection(cause)) if !is_lost => {
            Some(Failure::store(&format!("a client could not connect: {cause}")))
        }
        _ => None,
    }
}

/// Samples the servers that the lab started, whether for this run or to be kept.
fn sample(instance: &Instance, driver: &Driver) -> Sampler {
    let pids = instance.pids();
    let (server, others): (Vec<_>, Vec<_>) =
        pids.iter().partition(|(member, _)| *member == instance.leader());
    let others: Vec<(String, u32)> =
        others.into_iter().map(|(member, pid)| (member.to_string(), pid)).collect();
    let others: Vec<(&str, u32)> = others.iter().map(|(member, pid)| (member.as_str(), *pid)).collect();
    let sampler = Sampler::start(server.first().map(|(_, pid)| *pid), &others, Sampler::EVERY);
    driver.pids().into_iter().for_each(|pid| sampler.join_client(pid));
    sampler
}

/// Samples servers that were not observed before, such as those that have been started again; `main` is the one whose figures are the
/// server's. Returns all.
fn follow_new(
    sampler: &Sampler,
    instance: &Instance,
    main: MemberId,
    observed: &[(MemberId, u32)],
) -> Vec<(MemberId, u32)> {
    let pids = instance.pids();
    for (member, pid) in pids.iter().filter(|pid| !observed.contains(pid)) {
        sampler.follow((*member != main).then(|| member.to_string()).as_deref(), *pid);
    }
    pids
}

/// The share of the measured part that is over.
fn share(extent: Extent, progress: &Progress) -> f64 {
    match extent {
        Extent::Time(length) => {
            progress.measured.unwrap_or_default().as_secs_f64() / length.as_secs_f64().max(1e-9)
        }
        Extent::Operations(count) => progress.completed as f64 / count.max(1) as f64,
    }
}
