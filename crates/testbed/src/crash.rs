//! Trials in the middle of which the server is killed, taken through their steps by acidtest's own runner.

use std::{fs::Permissions, os::unix::fs::PermissionsExt, time::Duration};

use acidtest_engine::{Load, Measurement, Outcome, Progress, Stop};
use acidtest_lab::{Lab, ServerSize};
use acidtest_model::{
    Address, Disruption, Durability, EffectiveSettings, Encryption, Hosting, Injection, Lock, Role, Span,
    StoreError, StoreKind, Task, Timeline,
};
use acidtest_results::Plan;
use acidtest_runner::{
    Cell, Claim, Driven, Instance, Interrupt, Observer, OpenOptions, Opener, Silent, Target, TrialRun,
    Watcher,
};
use acidtest_workloads::{Audit, Finding, Identity, Place, Store, TrialSetup, Verdict, Workload};
use tempfile::TempDir;

use crate::{
    NAMESPACE, SEED, Subject,
    private::{CONNECT, wanted},
    steps::BACK,
    wait, with_more_time,
};

/// How long a trial goes on before the kill, on a machine that is not slow: a second that is counted by itself.
const BEFORE: u64 = 1100;

/// How a trial ends in which clients were served again.
const INTERRUPTED: Option<Stop> = Some(Stop::Interrupted);

/// Servers that do not say in which of their lives they are.
const ANONYMOUS: [&str; 1] = ["rabbitmq"];

/// When the server that was killed is there again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    /// While its clients still try to reach it.
    AtOnce,
    /// After they have given up.
    TooLate,
}

/// When a store repairs the files that a kill has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repaired {
    /// Before it answers any client.
    First,
    /// While it answers, so that a read may miss data that are there.
    WhileRead,
}

/// A store whose server is killed in trials, deployed as a run deploys it.
pub(crate) struct Victim {
    instance: Instance,
    /// Whether its server says in which of its lives it is.
    is_known: bool,
    trials: u32,
    _folder: TempDir,
}

/// A trial in which the server was killed: at least one operation was acknowledged before.
#[derive(Debug)]
pub(crate) struct CrashedTrial {
    pub(crate) settings: EffectiveSettings,
    pub(crate) measurement: Measurement,
    pub(crate) audit: Audit,
}

impl<S: Store> Opener for Subject<S> {
    fn kind(&self) -> &StoreKind {
        &self.kind
    }

    fn open<'a>(
        &'a self,
        address: &'a Address,
        options: OpenOptions<'a>,
    ) -> Task<'a, Result<Box<dyn Store>, StoreError>> {
        Box::pin(async move {
            let opened = (self.open)(address, options.durability.unwrap_or(Durability::None)).await?;
            Ok(Box::new(opened) as Box<dyn Store>)
        })
    }
}

impl Victim {
    /// Starts the store at this durability level; none if it is left out of the tests.
    pub(crate) fn start<S: Store>(subject: &Subject<S>, durability: Durability) -> Option<Self> {
        if !wanted(subject.kind.program()) {
            return None;
        }
        // a server that runs as another user must be able to pass through
        let passable = Permissions::from_mode(0o711);
        let folder = tempfile::Builder::new().prefix("lab-").permissions(passable).tempdir().unwrap();
        let lab = Lab::at(folder.path()).unwrap();
        // a run's stores live as long as the program
        let opener = Box::leak(Box::new(Subject { ..*subject }));
        let target = Target { opener, address: None };
        let claim = Claim {
            locks: None,
            namespace: NAMESPACE,
            run: "run 1",
            number: 1,
            replace: false,
            cluster: None,
            connect_timeout: CONNECT,
            size: ServerSize::default(),
            host: None,
        };
        let interrupt = Interrupt::default();
        let instance = wait(Instance::open(&lab, &target, durability, Encryption::Off, &claim, &interrupt));
        let is_known =
            subject.kind.hosting == Hosting::Program && !ANONYMOUS.contains(&subject.kind.program());
        Some(Self { instance: instance.unwrap(), is_known, trials: 0, _folder: folder })
    }

    /// Kills the server in the middle of a trial, and audits the data that it recovered.
    pub(crate) fn crash(&mut self, workload: &dyn Workload, lock: Lock, back: Back) -> CrashedTrial {
        with_more_time(BEFORE, |millis| {
            let trial = wait(self.trial(workload, lock, back, Duration::from_millis(millis)));
            // a slow machine may not have done anything before the kill
            let seconds = usize::try_from(millis / 1000).unwrap();
            let before = trial.measurement.series.iter().take(seconds);
            let acknowledged = before.map(|second| written(workload, &second.counts)).sum::<u64>() > 0;
            // nor is a server bound to know soon what it still holds for consumers that went with it
            let is_known = trial.audit.verdict != Verdict::Unknown;
            // RabbitMQ (3.10.8) came back once without a queue that it had made a second before: then nobody is served
            let is_served =
                self.is_known || back == Back::TooLate || trial.measurement.stopped == INTERRUPTED;
            if acknowledged && is_known && is_served { Ok(trial) } else { Err(format!("{trial:?}")) }
        })
    }

    async fn trial(
        &mut self,
        workload: &dyn Workload,
        lock: Lock,
        back: Back,
        before: Duration,
    ) -> CrashedTrial {
        self.trials += 1;
        let clients = workload.spec().clients.unwrap_or(12);
        let place = Place { namespace: NAMESPACE.to_owned(), trial: self.trials };
        let setup = TrialSetup::new(lock, SEED, clients);
        let trial = TrialRun::new(workload, setup, place);
        let first = self.identity().await;
        let interrupt = Interrupt::default();
        let mut observer = UntilServed { workload, interrupt: interrupt.clone(), since: None };
        let mut watcher = Watcher { observer: &mut observer, interrupt: &interrupt };
        let loading = trial.load(&self.instance, &mut watcher).await.unwrap();
        trial.prepare(&self.instance, loading, &mut watcher).await.unwrap();
        let settings = trial.settings(&self.instance).await.unwrap();
        let (down, patience) = match back {
            Back::AtOnce => (Duration::ZERO, BACK),
            Back::TooLate => (Duration::from_hours(1), Duration::from_secs(1)),
        };
        let load = Load { patience, ..self.load(workload, lock, clients) };
        let timeline = Timeline::new(vec![Injection {
            at: before,
            target: Role::Server.into(),
            disruption: Disruption::Kill { down },
        }]);
        assert_eq!(self.identity().await, first, "a server stays who it is");
        let driven = trial.drive(&mut self.instance, load, &timeline, &mut watcher).await.unwrap();
        let second = self.identity().await;
        // the end of the trial was asked for, and not that of its audit
        let mut watcher = Watcher { observer: &mut Silent, interrupt: &Interrupt::default() };
        let audit = trial.audit(&mut self.instance, &driven, &mut watcher).await.audit;
        assert_eq!(self.identity().await, second, "a server stays who it is");
        assert_eq!(first.is_some(), self.is_known, "{first:?}");
        if let (Some(first), Some(second)) = (first, second) {
            assert_ne!(first.life, second.life, "it was killed in between");
            assert_eq!(first.data, second.data, "it has its data again");
        }
        let unloaded = trial.unload(&self.instance).await;
        if back == Back::AtOnce {
            unloaded.unwrap();
        }
        let Driven { measurement, injected, .. } = driven;
        assert!(injected.len() == 1 && injected[0].answered.is_some(), "{injected:?}");
        assert!(!injected[0].same_life, "{injected:?}");
        CrashedTrial { settings, measurement, audit }
    }

    async fn identity(&self) -> Option<Identity> {
        self.instance.store().identity().await.unwrap()
    }

    /// The load of a run's cell, long enough for every server to come back.
    fn load(&self, workload: &dyn Workload, lock: Lock, clients: u32) -> Load {
        let length = Span(BACK);
        let (warmup, timeout) = (Span(Duration::ZERO), Span(Duration::from_mins(5)));
        let connect_timeout = Span(CONNECT);
        let plan = Plan { duration: length, warmup, timeout, connect_timeout, ..Plan::of("") };
        let durability = Durability::None;
        let cell = Cell {
            target: 0,
            workload: 0,
            durability,
            tls: Encryption::Off,
            nodes: 1,
            replication: acidtest_model::Replication::None,
            reads: acidtest_model::ReadPolicy::default(),
            promotion: acidtest_model::Promotion::default(),
            linked: false,
            lock,
            clients,
            rate: None,
            faults: 0,
            threads: 2,
        };
        cell.load(&plan, workload.spec(), self.instance.store().blocking(), SEED)
    }
}

/// Asks for the end of a trial once clients have written again, for a whole second after they had lost their
/// connections.
struct UntilServed<'a> {
    workload: &'a dyn Workload,
    interrupt: Interrupt,
    /// The last whole second when somebody was first seen to have connected again.
    since: Option<u64>,
}

impl Observer for UntilServed<'_> {
    fn measured(&mut self, progress: &Progress, _: f64) {
        let Some(last) = &progress.last else { return };
        if progress.reconnects == 0 {
            return;
        }
        let since = *self.since.get_or_insert(last.second);
        // the second after that one began before the kill, perhaps
        if last.second > since + 1 && written(self.workload, &last.counts) > 0 {
            self.interrupt.set();
        }
    }
}

/// How many operations of a second were acknowledged that write something.
fn written(workload: &dyn Workload, counts: &[[u64; Outcome::ALL.len()]]) -> u64 {
    let all = workload.spec().operations.iter().zip(counts);
    let writing = all.filter(|(name, _)| !["read", "scan", "hash", "id"].contains(name));
    writing.map(|(_, counts)| counts[Outcome::Ok.index()]).sum()
}

/// Asserts that acknowledged operations are there after the server was killed in the middle of a trial and came back.
pub(crate) fn survives(
    victim: &mut Victim,
    workload: &dyn Workload,
    lock: Lock,
    back: Back,
    repaired: Repaired,
) -> CrashedTrial {
    let trial = victim.crash(workload, lock, back);
    let CrashedTrial { measurement, audit, .. } = &trial;
    let shown = format!("{}, lock {lock}", workload.spec().headline);
    eprintln!("{shown}: {audit}, {:?} {:?}", audit.evidence, measurement.faults);
    match back {
        Back::AtOnce => {
            assert!(measurement.reconnects > 0, "{shown}");
            assert_eq!(measurement.stopped, INTERRUPTED, "{shown}: {:?}", measurement.faults);
        }
        Back::TooLate => {
            let gave_up = matches!(measurement.stopped, Some(Stop::ServerGone(_)));
            assert!(gave_up, "{shown}: {:?}", measurement.stopped);
        }
    }
    assert!(!measurement.faults.is_empty(), "{shown}");
    let excused = |finding: &Finding| repaired == Repaired::WhileRead && finding.name == "missing";
    let sound =
        audit.reason.is_none() && audit.findings.iter().all(|finding| finding.count == 0 || excused(finding));
    assert!(sound, "{shown}: {audit:?} {:?}", measurement.faults);
    trial
}
