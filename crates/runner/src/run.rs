//! A run: opens its stores, takes every cell through its trials round by round, and closes the stores again.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use acidtest_engine::Extent;
use acidtest_lab::Lab;
use acidtest_model::{
    Disruption, EffectiveSettings, Faults, Hosting, Lock, OWN_TLS, PerSecond, ReadPolicy, Role, Secret,
    Support, TLS_HOW, count, figure::nanoseconds,
};
use acidtest_observe::{filesystem, machine, writes_to_disks};
use acidtest_results::{
    CapacityPlan, DataFigures, FORMAT, Harness, Next, Plan, RunResult, StopFigures, TrialFacts, TrialResult,
};
use acidtest_workloads::{
    Audit, AuditResult, DURABILITY, Place, Preparation, ReusableData, Store, TrialSetup, Verdict, Workload,
};
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{
    Failure, Interrupt, Observer, Spread, Target, Watcher,
    answer::READY,
    evictions::Evicted,
    footprint::server_size,
    grid::{Cell, Grid, Setting},
    harness,
    inject::{HitMember, Injected},
    instance::{Claim, EarlierData, Instance},
    lives::tell_servers,
    resume,
    state::{RunState, now},
    trial::TrialRun,
    watch::Driven,
};

/// Changes the seed of a trial into that of the moments of its faults.
const MOMENTS: u64 = 0x6661_756c_7473;

/// Makes the trials of a run.
struct Runner<'a, 'e> {
    plan: &'a Plan,
    targets: &'a [Target],
    /// The server that keeps hard locks for stores that have none of their own.
    lock_service: Option<&'a Target>,
    environment: Environment<'e>,
    workloads: Vec<Box<dyn Workload>>,
    faults: Vec<Faults>,
    cells: Vec<Cell>,
    /// The open stores, by how they were opened.
    instances: BTreeMap<Setting, Instance>,
    state: RunState,
    /// The number of the last trial that was begun: it names the trial's data.
    trials: u32,
}

/// A trial that is to be made.
#[derive(Clone, Copy)]
struct Due {
    /// The index of its cell.
    index: usize,
    round: u32,
    /// Its cell; with the rate of the probe, where it is one.
    cell: Cell,
    /// How long it is measured; none for as long as the plan says.
    length: Option<Duration>,
}

/// A run that began: its result, and the failure of the run itself, if there was one.
#[derive(Debug)]
pub struct Finished {
    /// Every trial that was made, with what follows from them.
    pub result: RunResult,
    /// Why the run did not go to its end, although it has a result.
    pub failure: Option<Failure>,
}

/// A checked plan that is ready to run, and the run that it continues, if any.
pub struct Order {
    pub id: String,
    pub plan: Plan,
    /// Its stores, in the plan's order.
    pub targets: Vec<Target>,
    /// The server that keeps hard locks for stores that have none of their own.
    pub lock_service: Option<Target>,
    pub grid: Grid,
    /// The result of the interrupted run that goes on; none for a new run.
    pub begun: Option<RunResult>,
}

impl Order {
    /// The name of a cell of its grid; where it is searched, without a rate, because each probe has its own.
    #[must_use]
    pub fn name(&self, cell: &Cell) -> String {
        let Grid { workloads, faults, .. } = &self.grid;
        let workload = workloads[cell.workload].spec();
        cell.name(&self.plan, &self.targets[cell.target], workload, &faults[cell.faults], false)
    }
}

/// What a run needs of whoever asks for it.
pub struct Environment<'a> {
    /// Starts private servers.
    pub lab: Lab,
    /// A store that does nothing, on which the bench's own cost is measured.
    pub null: &'a dyn Store,
    /// Is told of the progress, and may ask for the end.
    pub watcher: Watcher<'a>,
    /// The command that starts a worker, which drives clients in a process of its own by calling
    /// [`work`](crate::work).
    pub worker: &'a dyn Fn() -> Command,
    /// acidtest's own program, which keeps an embedded store in a process of its own ([`Host`](crate::Host)).
    pub host: &'a Path,
    /// The token of the clients of a gateway that runs already; none where a gateway is started for each trial.
    pub token: Option<Secret>,
    /// Writes the result as far as it has come, in place of what it wrote before.
    pub write: &'a dyn Fn(&RunResult) -> Result<(), Failure>,
}

/// What tells a trial of this run from every other one, also from one that was cut short and is made anew.
fn mark(run: &str) -> String {
    // the library seeds it at random
    let random = RandomState::new().hash_one(run);
    format!("{run}-{random:016x}")
}

/// Runs the plan, or the rest of it, and writes its result as it grows. Whatever fails on the way, the trials made
/// until then are kept.
///
/// # Errors
/// No trial could be run at all: then nothing is written.
pub async fn run(order: Order, environment: Environment<'_>) -> Result<Finished, Failure> {
    let Order { id, plan, targets, lock_service, grid, begun } = order;
    let Grid { workloads, faults, cells, left_out } = grid;
    let (least, most) = expected_trials(&plan, cells.len());
    let length =
        match workloads.iter().filter_map(|workload| workload.spec().ramp).map(|ramp| ramp.length).max() {
            Some(ramp) => ramp,
            None => {
                plan.warmup.0
                    + plan.capacity.as_ref().map_or(plan.duration, |search| search.shortest(&plan)).0
            }
        };
    let timed = plan.ops.is_none() && plan.trace.is_none();
    let machine = machine(environment.lab.root());
    let begun = begun.map(|begun| resume::go_on(begun, &machine)).transpose()?;
    if let Some(begun) = &begun {
        if let Some(bench) = environment.lab.bench_of(&begun.run)? {
            return Err(Failure::Usage(format!(
                "run {} is still running in process {bench}: two processes would overwrite each other's data\n  remedy: \
                 wait until it ends, or stop it first",
                begun.run
            )));
        }
        environment.watcher.observer.go_on(begun);
    }
    environment.watcher.observer.start(least, most, timed.then_some(length));
    // with a number of operations the time is not known, and may be almost none
    let trials =
        u32::try_from(least).unwrap_or(u32::MAX) / u32::try_from(cells.len()).unwrap_or(u32::MAX).max(1);
    let driven = if timed { length.saturating_mul(trials) } else { Duration::ZERO };
    let resumed = begun.is_some();
    let result = if let Some(begun) = begun {
        begun
    } else {
        environment.watcher.observer.doing("measuring the bench's own cost");
        let null = environment.null;
        let a_thread = cells[0].clients.div_ceil(cells[0].threads.max(1));
        let harness = harness::measure(&*workloads[0], null, a_thread, driven, plan.seed)?;
        offers(&plan, &harness)?;
        RunResult {
            format: FORMAT,
            run: id,
            acidtest: env!("CARGO_PKG_VERSION").to_owned(),
            started: now(),
            finished: now(),
            interrupted: false,
            plan: plan.clone(),
            machine,
            harness,
            cells: cells
                .iter()
                .map(|cell| {
                    cell.unmade(&targets[cell.target], workloads[cell.workload].spec(), &faults[cell.faults])
                })
                .collect(),
            left_out,
        }
    };
    let state = RunState::of(result);
    let mut runner = Runner {
        plan: &plan,
        targets: &targets,
        lock_service: lock_service.as_ref(),
        environment,
        workloads,
        faults,
        cells,
        instances: BTreeMap::new(),
        trials: u32::try_from(state.trials()).unwrap_or(u32::MAX),
        state,
    };
    let done = if resumed {
        let stores = runner.settings().len();
        let lab = &runner.environment.lab;
        resume::clear_leftovers(lab, &plan, &targets, lock_service.as_ref(), runner.state.run(), stores).await
    } else {
        Ok(())
    };
    let done = match done {
        Ok(()) if runner.plan.capacity.is_some() => runner.searches().await,
        Ok(()) => runner.rounds().await,
        failed => failed,
    };
    let closed = runner.close().await;
    runner.environment.watcher.observer.finish();
    let interrupted = runner.interrupt().is_set();
    if let (Ok(()), false, Some(failure)) = (&done, interrupted, runner.state.nothing_run()) {
        return Err(failure);
    }
    let concluded = runner.state.conclude(interrupted);
    let written = (runner.environment.write)(runner.state.result());
    let failure = done.and(concluded).and(written).and(closed).err();
    Ok(Finished { result: runner.state.into_result(), failure })
}

/// From how many to how many trials there are in all.
fn expected_trials(plan: &Plan, cells: usize) -> (u64, u64) {
    let cells = cells as u64;
    match &plan.capacity {
        None => (cells * u64::from(plan.trials), cells * u64::from(plan.trials)),
        Some(search) => {
            let (least, most) = search.expected_probes(plan);
            // the first one is in a closed loop
            (cells * (1 + u64::from(least)), cells * (1 + u64::from(most)))
        }
    }
}

/// Refuses a demand that a search could never offer: the bench's own cost of an operation alone would take more than all cores.
fn offers(plan: &Plan, harness: &Harness) -> Result<(), Failure> {
    let (Some(_), Some(PerSecond(demand))) = (&plan.capacity, plan.demand) else { return Ok(()) };
    let (cores, cost) = (harness.cores, harness.nanoseconds_per_operation);
    let most = f64::from(cores) * 1e9 / cost;
    if cost <= 0.0 || demand <= most {
        return Ok(());
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive, and below any demand
    let most = count(most as u64);
    Err(Failure::Usage(format!(
        "--demand {demand}/s is more than this bench can offer: at {} of one core per operation, on a store that does \
         nothing, {cores} cores make {most}/s\n  remedy: a lower demand, or a machine with more cores",
        nanoseconds(cost)
    )))
}

impl<'e> Runner<'_, 'e> {
    fn observer(&mut self) -> &mut dyn Observer {
        self.environment.watcher.observer
    }

    fn interrupt(&self) -> &Interrupt {
        self.environment.watcher.interrupt
    }

    /// Runs every cell once a round, in an order that is drawn anew: a disturbance of the machine that lasts a while
    /// affects different cells alike. Trials that an interrupted run has made already are not repeated.
    async fn rounds(&mut self) -> Result<(), Failure> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.plan.seed);
        for round in 1..=self.plan.trials {
            let mut order: Vec<usize> = (0..self.cells.len()).collect();
            order.shuffle(&mut rng);
            for index in order {
                if self.interrupt().is_set() {
                    return Ok(());
                }
                if self.state.is_done(index, round) {
                    self.observer().skip();
                    continue;
                }
                self.make(Due { index, round, cell: self.cells[index], length: None }).await?;
            }
        }
        Ok(())
    }

    /// Searches for the capacity of every cell. Each search makes a probe in turn, in an order that is drawn anew: a disturbance of
    /// the machine that lasts a while affects different cells alike.
    async fn searches(&mut self) -> Result<(), Failure> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.plan.seed);
        let mut searched: Vec<usize> = (0..self.cells.len()).collect();
        for _ in 0..self.state.made() {
            self.observer().skip();
        }
        while !searched.is_empty() {
            searched.shuffle(&mut rng);
            for index in searched.clone() {
                if self.interrupt().is_set() {
                    return Ok(());
                }
                let (rate, length) = match self.state.next_probe(index)? {
                    Next::ClosedLoop => (None, self.plan.duration.0.min(CapacityPlan::CLOSED_LOOP)),
                    Next::Probe { rate, length } => (Some(rate), length),
                    Next::Nothing => {
                        searched.retain(|other| *other != index);
                        continue;
                    }
                };
                let round = self.state.next_round(index);
                let cell = Cell { rate, ..self.cells[index] };
                self.make(Due { index, round, cell, length: Some(length) }).await?;
            }
        }
        Ok(())
    }

    /// The name of a trial's cell, with the load that it is probed with where it is searched.
    fn name(&self, cell: &Cell) -> String {
        let workload = self.workloads[cell.workload].spec();
        let is_probe = self.plan.capacity.is_some();
        cell.name(self.plan, &self.targets[cell.target], workload, &self.faults[cell.faults], is_probe)
    }

    /// Makes a trial, and keeps it. A store that fails costs its cell, not the run.
    async fn make(&mut self, due: Due) -> Result<(), Failure> {
        let name = self.name(&due.cell);
        self.observer().begin(&name);
        let begun = Instant::now();
        match Box::pin(self.trial(due)).await {
            Ok(mut trial) => {
                trial.took_seconds = begun.elapsed().as_secs_f64();
                let verdict = trial.audit.to_string();
                // one that was interrupted before anything was acknowledged says nothing of its cell
                let is_empty = trial.throughput == 0.0 && trial.audit.verdict == Verdict::Unknown;
                if !(is_empty && trial.was_interrupted()) {
                    self.state.keep(due.index, trial);
                    self.environment.watcher.observer.kept(self.state.result(), due.index);
                }
                let told = self.state.last_probe(due.index)?;
                self.observer().end(&told.map_or(verdict.clone(), |told| format!("{verdict} · {told}")));
            }
            // a trial that the interruption cut short has not failed
            Err(Failure::Store(_)) if self.interrupt().is_set() => {}
            Err(failure @ Failure::Store(_)) => {
                let cause = failure.to_string();
                self.observer().end(&format!("not run: {}", cause.lines().next().unwrap_or_default()));
                self.state.fail(due.index, &cause);
            }
            Err(failure) => return Err(failure),
        }
        if self.plan.capacity.is_some() {
            self.state.find_capacities()?;
        }
        self.state.write_now_and_then(self.environment.write)
    }

    async fn trial(&mut self, due: Due) -> Result<TrialResult, Failure> {
        let Due { cell, .. } = due;
        let faults = cell.faults;
        // taken out while it is in use: a store that lost a server is not put back
        let mut left = self.instances.remove(&cell.setting());
        if let Some(instance) = &mut left
            && instance.has_restarted().await
        {
            // what it had may be gone
            if let Some(instance) = left.take() {
                let _ = Box::pin(instance.close(self.plan.keep)).await;
            }
        }
        let mut instance = match left {
            Some(instance) => instance,
            None => self.open(cell.setting()).await?,
        };
        let trial = match Box::pin(self.trial_on(&mut instance, due)).await {
            // that the data was taken away explains whatever failed for want of it
            Err(failure) => instance.missing_mark().await.and(Err(failure)),
            done => done,
        };
        // one that failed, or lost a server, has left it
        let _ = instance.services.end();
        // a server that keeps nothing over a crash may have lost more than a trial's data, and one that did not come
        // back in time may never do so
        let is_spent = |trial: &TrialResult| {
            let kill = Disruption::Kill { down: Duration::ZERO };
            let is_forgetful = !instance.effective.durability.survives(&kill);
            let is_gone = trial.stopped.as_ref().is_some_and(StopFigures::is_server_gone);
            // nobody mends a cluster that has lost a member
            let is_maimed = self.faults[faults].0.iter().any(|fault| fault.disruption.is_of_cluster());
            !trial.restarts.is_empty()
                || !trial.injections.is_empty() && (is_forgetful || is_gone || is_maimed)
        };
        let strikes = !self.faults[faults].is_none();
        // a trial that failed may have left a member paused or down
        let is_spent = trial.as_ref().map_or(strikes, is_spent);
        if self.faults[faults].hit_servers() && instance.is_on_users_server() {
            self.close_those_that_may_have_ended().await;
        }
        if instance.lost(|_| false).is_none() && !is_spent {
            self.instances.insert(cell.setting(), instance);
        } else {
            // closes what is left of it: perhaps a lock service, or the store whose lock service died
            let _ = instance.close(self.plan.keep).await;
        }
        trial
    }

    /// Closes other stores on users' servers that do not say in which of their lives they are: one may be the server that a fault
    /// has just ended, by another address.
    async fn close_those_that_may_have_ended(&mut self) {
        let may =
            |(setting, instance): (&Setting, &Instance)| instance.may_restart_unseen().then_some(*setting);
        for setting in self.instances.iter().filter_map(may).collect::<Vec<_>>() {
            if let Some(instance) = self.instances.remove(&setting) {
                let _ = Box::pin(instance.close(self.plan.keep)).await;
            }
        }
    }

    /// The ways in which the run's stores are opened, in a fixed order.
    fn settings(&self) -> BTreeSet<Setting> {
        self.cells.iter().map(Cell::setting).collect()
    }

    /// Opens a store. A store that cannot be opened is not tried again for other cells.
    async fn open(&mut self, setting: Setting) -> Result<Instance, Failure> {
        let Setting { target, durability, tls, cluster } = setting;
        let locked = |cell: &Cell| {
            (cell.setting(), cell.lock) == (setting, Lock::Hard)
                && self.workloads[cell.workload].spec().decides
        };
        let needs_locks = self.targets[target].kind().lock_service && self.cells.iter().any(locked);
        let shown = self.targets[target].shown();
        self.observer().doing(&format!("opening {shown}"));
        let number = self.settings().range(..=setting).count();
        let claim = Claim {
            namespace: &self.plan.namespace,
            run: self.state.run(),
            number,
            replace: self.plan.replace,
            connect_timeout: self.plan.connect_timeout.0,
            size: server_size(self.plan, &self.cells, &self.workloads, setting),
            cluster,
            locks: self.lock_service.filter(|_| needs_locks),
            // all cells of a store have one if any has, so that their figures can be compared
            host: Some(self.environment.host).filter(|_| {
                let hit = |cell: &Cell| {
                    [Role::Server, Role::Locks].into_iter().any(|role| self.faults[cell.faults].hit(role))
                };
                self.cells.iter().any(|cell| cell.target == target && hit(cell))
            }),
        };
        let (lab, interrupt) = (&self.environment.lab, self.environment.watcher.interrupt);
        let opening = Instance::open(lab, &self.targets[target], durability, tls, &claim, interrupt);
        let opened = Box::pin(opening).await;
        if let (Err(failure @ Failure::Store(_)), false) = (&opened, interrupt.is_set()) {
            let cause = failure.to_string();
            for (index, _) in self.cells.iter().enumerate().filter(|(_, cell)| cell.setting() == setting) {
                self.state.fail(index, &cause);
            }
        }
        opened
    }

    /// Notes what the settings of a cell's cluster amount to, if it is one. Where replicas are read, they have all of the data then.
    async fn read_replication(
        &mut self,
        instance: &Instance,
        cell: usize,
        reads: ReadPolicy,
    ) -> Result<(), Failure> {
        let Some(cluster) = instance.cluster() else { return Ok(()) };
        self.state.note_replication(cell, cluster.replication().await?)?;
        if reads.is_leader() { Ok(()) } else { cluster.caught_up().await }
    }

    /// Loads the data or takes over those of an earlier trial, drives the clients, reads the final state back, audits
    /// it, and unloads the data.
    async fn trial_on(&mut self, instance: &mut Instance, due: Due) -> Result<TrialResult, Failure> {
        let Due { index, round, cell, length } = due;
        instance.missing_mark().await?;
        self.trials += 1;
        let workload = &self.workloads[cell.workload];
        let spec = workload.spec();
        let data = spec.data.clone();
        let counted = spec.counted.iter().map(|&name| (name, spec.units(name).max(1)));
        let earlier = data.as_ref().and_then(|data| instance.earlier.remove(data));
        let seed = self.plan.seed.wrapping_add(u64::from(round));
        let setup = TrialSetup {
            trace: self.plan.trace,
            reusable: earlier.as_ref().map(|earlier| earlier.reusable.clone()),
            mark: mark(self.state.run()),
            reads: cell.reads,
            ..TrialSetup::new(cell.lock, seed, cell.clients)
        };
        let (place, left_by, evicted) = self.place(earlier, instance).await;
        let mut trial = TrialRun::new(&**workload, setup, place)
            .spread(self.spread())
            .commands(self.plan.commands.clone())
            .promotion(self.plan.promote);
        let mut about = TrialFacts {
            round,
            session: self.state.session(),
            rate: cell.rate.filter(|_| self.plan.capacity.is_some()),
            counted: counted.collect(),
            data: DataFigures { rows: trial.rows(), load_seconds: None, left_by },
            remarks: Preparation::default(),
        };
        let watcher = &mut self.environment.watcher;
        if left_by.is_none() {
            let load_seconds = trial.load(instance, watcher).await?;
            about.data.load_seconds = Some(load_seconds);
            about.remarks = trial.prepare(instance, load_seconds, watcher).await?;
        }
        instance.services.patience = READY + self.faults[cell.faults].longest();
        let Environment { lab, host, token, watcher, .. } = &mut self.environment;
        match token {
            Some(token) => trial.use_running_gateway(token, instance, watcher).await?,
            None => trial.start_services(instance, lab, host, watcher).await?,
        }
        let settings = self.read_settings(&trial, instance, &cell).await?;
        let forgets = self.forgets(&trial, &settings, &cell);
        self.state.note_settings(index, &settings, forgets)?;
        self.read_replication(instance, index, cell.reads).await?;
        let spec = self.workloads[cell.workload].spec();
        let blocks = instance.store().blocking() && instance.host().is_none() && !trial.has_gateway();
        let mut load = cell.load(self.plan, spec, blocks, seed);
        self.state.note_threads(index, load.threads);
        if let Some(length) = length {
            load.extent = Extent::Time(length);
        }
        let connect_ns = trial.connecting(instance).await?;
        let faults = &self.faults[cell.faults];
        if !faults.is_none() {
            // a server that was killed may take its time to recover
            load.patience = faults.longest() + READY;
        }
        let mut draws = Xoshiro256PlusPlus::seed_from_u64(seed ^ MOMENTS);
        let timeline = faults.timeline(Cell::length(self.plan, spec), || draws.random());
        let without = self.state.without(index).to_vec();
        let writes_to_disks = self.writes_to_disks(cell.target);
        let watcher = &mut self.environment.watcher;
        let mut driven = trial.drive(instance, load, &timeline, watcher).await?;
        if writes_to_disks {
            driven.resources.limit_written();
        }
        self.state.note_round_trip(index, instance.round_trip);
        let AuditResult { mut audit, reusable, limits, size, staleness } =
            trial.audit(instance, &driven, watcher).await;
        let suspected = suspicion(instance, &driven, &evicted).await?;
        judge_ends(&mut audit, &trial, (instance, suspected), &driven, &settings, (&without, forgets));
        // data of which something was evicted is of no use to a later trial
        let left = (!instance.judge_evictions(&mut audit, &evicted).await).then_some(reusable).flatten();
        let mut result = TrialResult::of(about, driven.measurement, audit, driven.resources);
        let injections =
            Injected::all_figures(&driven.injected, &result.audit, |member, disruption| HitMember {
                is_noticed: trial.is_noticed(member.role, disruption),
                keeps: trial.sets_durability(member.role, &settings),
            });
        // what was due while nobody was served is done afterwards
        let is_scheduled = cell.rate.is_some() || spec.ramp.is_some();
        result.note_outages(injections, instance.restarts(), is_scheduled);
        result.connect_ns = connect_ns;
        result.gauge = driven.gauge;
        result.limits = limits;
        result.size = size;
        result.staleness = staleness;
        if driven.crashed {
            // what earlier trials left was proved of a server that has ended since
            instance.earlier.clear();
        }
        if let Some(lost) = driven.lost {
            let detail = format!("it {}", lost.how);
            result.stopped = Some(StopFigures { reason: "server gone".to_owned(), detail });
            result.server_log = lost.log;
        } else {
            trial.see_afterwards(instance, &mut result.stopped).await;
            self.clear_away(&trial, instance, data, left.map(|left| (left, evicted))).await;
        }
        Ok(result)
    }

    /// Whether a fault of the cell ends a member that promises nothing of what it keeps. One that is lost for good, or cut off, may
    /// keep what it likes.
    fn forgets(&self, trial: &TrialRun<'_>, settings: &EffectiveSettings, cell: &Cell) -> bool {
        self.faults[cell.faults].0.iter().any(|fault| {
            let keeps = trial.durability_of(fault.target.role(), settings);
            !fault.disruption.is_of_cluster() && !keeps.survives(&fault.disruption)
        })
    }

    /// Whether what a store writes on this machine goes to its disks: where the lab's servers and files are, or the user's file.
    fn writes_to_disks(&self, target: usize) -> bool {
        let target = &self.targets[target];
        let file = target.address.as_ref().filter(|_| target.kind().hosting == Hosting::Embedded);
        let kind = file.and_then(|file| filesystem(Path::new(&file.path))).map(|found| found.kind);
        writes_to_disks(kind.as_deref().unwrap_or(&self.state.result().machine.filesystem))
    }

    /// How the clients of a trial are spread over processes; none where they are driven in this one.
    fn spread(&self) -> Option<Spread<'e>> {
        let spread = |processes| Spread { processes, worker: self.environment.worker };
        self.plan.client_processes().map(spread)
    }

    /// Where a trial's data is; the number of the trial that left it there, if one did; and what servers had evicted before it was
    /// loaded.
    async fn place(
        &self,
        earlier: Option<EarlierData>,
        instance: &Instance,
    ) -> (Place, Option<u32>, Evicted) {
        if let Some(EarlierData { place, by, evicted, .. }) = earlier {
            return (place, Some(by), evicted);
        }
        let place = Place { namespace: instance.namespace().to_owned(), trial: self.trials };
        (place, None, instance.evicted().await)
    }

    /// The settings that a trial of this cell is driven at, read back, and what there is to know of its servers.
    async fn read_settings(
        &self,
        trial: &TrialRun<'_>,
        instance: &Instance,
        cell: &Cell,
    ) -> Result<EffectiveSettings, Failure> {
        let mut settings = trial.settings(instance).await?;
        settings.settings.extend(instance.services.versions().chain(self.tls_proxy(cell)));
        tell_servers(instance, &mut settings);
        if instance.namespace() != self.plan.namespace {
            settings.settings.insert("namespace".to_owned(), instance.namespace().to_owned());
        }
        Ok(settings)
    }

    /// What speaks TLS in the place of a cell's private server, if that does not speak it itself.
    fn tls_proxy(&self, cell: &Cell) -> Option<(String, String)> {
        let target = &self.targets[cell.target];
        let tls = target.kind().tls;
        let Support::Yes(how) = tls else { return None };
        let is_other = target.address.is_none() && cell.tls.is_on() && tls != OWN_TLS;
        is_other.then(|| (TLS_HOW.to_owned(), how.to_owned()))
    }

    /// Ends what is in front of the store, keeps data that a later trial may take over, and removes the rest. Data that
    /// cannot be removed now is removed with the namespace.
    async fn clear_away(
        &mut self,
        trial: &TrialRun<'_>,
        instance: &mut Instance,
        data: Option<String>,
        left: Option<(ReusableData, Evicted)>,
    ) {
        // what cannot be ended now is ended with the instance
        let _ = instance.services.end();
        match (data, left) {
            (Some(data), Some((reusable, evicted))) => {
                let (place, by) = (trial.place().clone(), self.trials);
                instance.earlier.insert(data, EarlierData { place, reusable, by, evicted });
            }
            _ if self.plan.keep => {}
            _ => {
                if let (Err(error), true) = (trial.unload(instance).await, self.environment.token.is_some()) {
                    // no namespace goes with them
                    let left =
                        format!("rows whose ids begin with {} were not removed: {error}", trial.mark());
                    self.environment.watcher.observer.doing(&left);
                }
            }
        }
    }

    /// Removes all data and stops all servers of the run, whatever happened before.
    async fn close(&mut self) -> Result<(), Failure> {
        let mut first = Ok(());
        for (_, instance) in std::mem::take(&mut self.instances) {
            let closed = instance.close(self.plan.keep).await;
            first = first.and(closed);
        }
        first
    }
}

/// Why a server that does not say in which of its lives it is may have restarted unasked: in a cluster, clients may stay connected
/// to one node while another, which has the data, restarts.
///
/// # Errors
/// A namespace is not the run's any more. A mark that is missing shows that only where nothing else explains it: an end, asked for or
/// not, or what the server evicts.
async fn suspicion(
    instance: &mut Instance,
    driven: &Driven,
    evicted: &Evicted,
) -> Result<Option<&'static str>, Failure> {
    let has_restarted = instance.has_restarted().await;
    let has_ended = driven.injected.iter().any(Injected::has_ended);
    let Some(removed) = instance.missing_mark().await? else {
        let has_lost_connections = driven.measurement.reconnects > 0 && driven.injected.is_empty();
        return Ok(has_lost_connections.then_some("clients lost connections"));
    };
    let is_explained =
        has_restarted || has_ended || instance.may_restart_unseen() || instance.has_evicted(evicted).await;
    if !is_explained {
        return Err(removed);
    }
    Ok((!has_ended).then_some("the mark of the run's namespace is missing"))
}

/// Takes into account, in an audit, which members had ended while clients were driven, or are `suspected` to have. The cell does
/// `without` these guarantees; `forgets` is whether it does without durability because of a fault that ends a member which promises
/// nothing of what it keeps.
fn judge_ends(
    audit: &mut Audit,
    trial: &TrialRun<'_>,
    (instance, suspected): (&Instance, Option<&'static str>),
    driven: &Driven,
    settings: &EffectiveSettings,
    (without, forgets): (&[String], bool),
) {
    let keeps = trial.durability_of(Role::Server, settings);
    let has_restarted = instance.judge_restarts(audit, keeps, without, suspected);
    audit.doubt_reads(without);
    if has_restarted {
        return;
    }
    if driven.injected.iter().any(Injected::has_split) {
        audit.across_split();
    }
    if driven.crashed {
        audit.across_epochs(without);
    }
    if driven.injected.iter().any(Injected::has_promoted) {
        audit.across_promotion(without);
    }
    let may_forget = |one: &Injected| {
        !one.is_of_replica()
            && one.has_ended()
            && !trial.durability_of(one.member.role, settings).survives(&one.injection.disruption)
    };
    if forgets && !driven.injected.iter().any(may_forget) {
        audit.hold_to(DURABILITY);
    }
}
