//! The runner: takes a plan through lab, stores, engine and audit to a result.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use acidtest_engine::{Arrivals, EngineError, Extent, Load, Measurement, OnRefused, Outcome, Stop, Trial};
use acidtest_lab::Lab;
use acidtest_model::{Durability, EffectiveSettings, Hosting, Lock, StoreError};
use acidtest_observe::{Machine, Resources, Sampler, machine};
use acidtest_report::{
    ArrivalKind, CellResult, DataFigures, FORMAT, GaugeFigures, Plan, RunResult, StopFigures, TrialFacts,
    TrialResult, bytes,
};
use acidtest_workloads::{
    AuditResult, ClientTask, LoadProgress, Place, Remarks, ReusableData, Store, TrialSetup, Verdict,
    Workload, WorkloadTrial,
};
use rand::{SeedableRng, seq::SliceRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{
    exit::{Failure, Status},
    grid::{self, Cell, Grid},
    harness,
    instance::{Claim, Instance, Kept, PATIENCE, remove_leftover, within},
    interrupt::Interrupt,
    output::ResultFile,
    progress::Progress,
    target::Target,
};

/// Time between two checks of a running trial.
const WATCH: Duration = Duration::from_millis(20);

/// How long clients may take to finish operations in flight once a trial is stopped.
const GRACE: Duration = Duration::from_secs(2);

/// Number of lines of a dead server's log in the result.
const LOG_LINES: usize = 6;

/// Most threads for a store that holds the thread of its client.
const MOST_THREADS: usize = 1024;

/// Time before a refused operation is tried again, as in the inventory study.
const REFUSED_WAIT: Duration = Duration::from_millis(5);

/// Time between two checks of the progress of loading.
const LOOK: Duration = Duration::from_millis(100);

/// Longest time that loading may go on without another row.
const STALLED: Duration = Duration::from_mins(10);

/// Time allowed for each row when a trial is prepared or its final state is read.
const ROW: Duration = Duration::from_micros(100);

/// Shortest time between two writings of the result: this long, and this many times as long as the last writing took.
const WRITING: Duration = Duration::from_secs(10);
const WRITING_TIMES: u32 = 20;

/// The state of a run while its trials are made.
pub(crate) struct Runner<'a> {
    plan: &'a Plan,
    targets: &'a [Target],
    /// The server that keeps hard locks for stores that have none of their own.
    lock_service: Option<&'a Target>,
    lab: Lab,
    interrupt: Interrupt,
    progress: Progress,
    workloads: Vec<Box<dyn Workload>>,
    cells: Vec<Cell>,
    /// The open stores, by target and durability level.
    instances: BTreeMap<(usize, Durability), Instance>,
    result: RunResult,
    file: &'a ResultFile,
    /// The number of this session of the run, from 1.
    session: u32,
    /// When the result was last written, and how long the writing took.
    written: Option<(Instant, Duration)>,
    trials: u32,
}

/// The measurements of a trial that was driven.
struct Driven {
    measurement: Measurement,
    resources: Resources,
    /// How the server ended, if it died.
    died: Option<String>,
    gauge: Option<GaugeFigures>,
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
        if let Some((name, value)) = trial.gauge() {
            let new = || GaugeFigures { name: name.to_owned(), each_second: Vec::new() };
            self.figures.get_or_insert_with(new).each_second.push(value);
        }
    }
}

/// A run that began: its result, and the failure of the run itself, if there was one.
pub(crate) struct Finished {
    pub(crate) result: RunResult,
    pub(crate) failure: Option<Failure>,
}

/// A checked plan that is ready to run, and the run that it continues, if any.
pub(crate) struct Order {
    pub(crate) plan: Plan,
    pub(crate) targets: Vec<Target>,
    /// The server that keeps hard locks for stores that have none of their own.
    pub(crate) lock_service: Option<Target>,
    pub(crate) grid: Grid,
    /// The result of the interrupted run that goes on; none for a new run.
    pub(crate) begun: Option<RunResult>,
}

/// Runs the plan, or the rest of it, and writes its result as it grows. Whatever fails on the way, the trials made
/// until then are kept.
///
/// # Errors
/// No trial could be run at all: then nothing is written.
pub(crate) async fn run(
    order: Order,
    id: &str,
    quiet: bool,
    interrupt: Interrupt,
    file: &ResultFile,
) -> Result<Finished, Failure> {
    let Order { plan, targets, lock_service, grid, begun } = order;
    let lab = Lab::open()?;
    let Grid { workloads, cells, left_out } = grid;
    let trials = cells.len() as u64 * u64::from(plan.trials);
    let length = plan.warmup.0 + plan.duration.0;
    let timed = plan.ops.is_none() && plan.trace.is_none();
    let mut progress = Progress::new(quiet, trials, timed.then_some(length));
    // with a number of operations the time is not known, and may be almost none
    let driven = if timed { length.saturating_mul(plan.trials) } else { Duration::ZERO };
    let machine = machine(lab.root());
    let resumed = begun.is_some();
    let result = if let Some(begun) = begun {
        go_on(begun, &machine)?
    } else {
        progress.doing("measuring what the bench itself costs");
        RunResult {
            format: FORMAT,
            run: id.to_owned(),
            acidtest: env!("CARGO_PKG_VERSION").to_owned(),
            started: now(),
            finished: now(),
            interrupted: false,
            plan: plan.clone(),
            machine,
            harness: harness::measure(&*workloads[0], cells[0].clients, driven, plan.seed)?,
            cells: cells
                .iter()
                .map(|cell| empty(cell, &targets[cell.target], &*workloads[cell.workload]))
                .collect(),
            left_out,
        }
    };
    let mut runner = Runner {
        plan: &plan,
        targets: &targets,
        lock_service: lock_service.as_ref(),
        lab,
        interrupt,
        progress,
        workloads,
        cells,
        instances: BTreeMap::new(),
        session: sessions(&result) + 1,
        trials: result.cells.iter().map(|cell| u32::try_from(cell.trials.len()).unwrap_or(0)).sum(),
        result,
        file,
        written: None,
    };
    let done = if resumed { runner.clear_leftovers().await } else { Ok(()) };
    let done = match done {
        Ok(()) => runner.rounds().await,
        failed => failed,
    };
    let closed = runner.close().await;
    runner.progress.finish();
    if let (Ok(()), Some(failure)) = (&done, nothing_run(&runner.result, &runner.interrupt)) {
        return Err(failure);
    }
    let concluded = runner.conclude();
    let written = file.write(&runner.result);
    let failure = done.and(concluded).and(written).and(closed).err();
    Ok(Finished { result: runner.result, failure })
}

/// The error if no trial could be run at all and every cell has one: there is no result then.
fn nothing_run(result: &RunResult, interrupt: &Interrupt) -> Option<Failure> {
    if interrupt.is_set() || result.cells.iter().any(|cell| !cell.trials.is_empty()) {
        return None;
    }
    let causes = result.cells.iter().map(|cell| cell.error.as_deref()).collect::<Option<BTreeSet<_>>>()?;
    let causes: Vec<&str> = causes.into_iter().collect();
    Some(Failure::Store(causes.join("\nerror: ")))
}

/// The result of the interrupted run, ready to go on: failed cells and the trials that were cut short are tried
/// again.
fn go_on(mut begun: RunResult, machine: &Machine) -> Result<RunResult, Failure> {
    if let Some(differs) = other_machine(&begun.machine, machine) {
        return Err(Failure::Usage(format!(
            "the run began on another machine ({differs}): its trials and this one's cannot be compared\n  \
             remedy: run the plan anew"
        )));
    }
    for cell in &mut begun.cells {
        cell.error = None;
        // a trial that the interruption cut short does not count as one of the plan's
        cell.trials.retain(|trial| !was_interrupted(trial));
    }
    begun.interrupted = false;
    Ok(begun)
}

/// Whether the user ended the trial early.
fn was_interrupted(trial: &TrialResult) -> bool {
    trial.stopped.as_ref().is_some_and(|stop| stop.reason == "interrupted")
}

/// Number of the last session in which a trial of the run was made; 0 if there is none.
fn sessions(result: &RunResult) -> u32 {
    result.cells.iter().flat_map(|cell| &cell.trials).map(|trial| trial.session).max().unwrap_or(0)
}

/// The difference between two machines, if there is one. Up to 2 % more or less memory is no difference, because the
/// kernel keeps a little more or less of it to itself from one start to the next.
fn other_machine(then: &Machine, now: &Machine) -> Option<String> {
    let memory = then.memory_bytes as f64 / (now.memory_bytes as f64).max(1.0);
    if (&then.cpu, then.cores) != (&now.cpu, now.cores) {
        Some(format!("{}, {} cores; this one has {}, {} cores", then.cpu, then.cores, now.cpu, now.cores))
    } else if (memory - 1.0).abs() > 0.02 {
        Some(format!(
            "{} of memory; this one has {}",
            bytes(then.memory_bytes as f64),
            bytes(now.memory_bytes as f64)
        ))
    } else if then.filesystem != now.filesystem {
        Some(format!("its data lay on {}; now it would lie on {}", then.filesystem, now.filesystem))
    } else {
        None
    }
}

fn empty(cell: &Cell, target: &Target, workload: &dyn Workload) -> CellResult {
    let kind = target.kind();
    CellResult {
        store: kind.name.to_owned(),
        title: kind.title.to_owned(),
        address: target.address.as_ref().map(ToString::to_string),
        embedded: kind.hosting != Hosting::Program,
        lock: cell.lock,
        lock_how: grid::lock_how(kind, workload, cell.lock).to_owned(),
        decides: workload.decides(),
        without: workload.without(cell.lock).iter().map(|guarantee| guarantee.name.to_owned()).collect(),
        durability_asked: (!target.keeps_durability()).then_some(cell.durability),
        clients: cell.clients,
        scheduled: workload.scheduled(),
        rate: cell.rate,
        parameters: workload.values(),
        headline: workload.headline(),
        effective: None,
        trials: Vec::new(),
        mean: None,
        steadiness: None,
        prices: Vec::new(),
        error: None,
    }
}

fn now() -> String {
    jiff::Timestamp::now().to_string()
}

impl Runner<'_> {
    /// Removes the namespace that the run left on users' servers when it was killed, before anything is opened anew.
    async fn clear_leftovers(&self) -> Result<(), Failure> {
        let locks = acidtest_locks::namespace(&self.plan.namespace);
        let stores = self.targets.iter().map(|target| (target, self.plan.namespace.as_str()));
        for (target, namespace) in stores.chain(self.lock_service.map(|service| (service, locks.as_str()))) {
            let Some(address) = &target.address else { continue };
            match remove_leftover(target, address, namespace, &self.result.run).await {
                // the same error occurs when the store is opened, and then fails its cells only
                Ok(_) | Err(Failure::Store(_)) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Runs every cell once a round, in an order that is drawn anew: a disturbance of the machine that lasts a while
    /// affects different cells alike. Trials that an interrupted run has made already are not repeated.
    async fn rounds(&mut self) -> Result<(), Failure> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.plan.seed);
        for round in 1..=self.plan.trials {
            let mut order: Vec<usize> = (0..self.cells.len()).collect();
            order.shuffle(&mut rng);
            for index in order {
                if self.interrupt.is_set() {
                    return Ok(());
                }
                let cell = &self.result.cells[index];
                if cell.error.is_some() || cell.trials.iter().any(|trial| trial.round == round) {
                    self.progress.skip();
                    continue;
                }
                self.cell(index, round).await?;
                self.write_now_and_then()?;
            }
        }
        Ok(())
    }

    /// Writes the result at intervals, so that a run that is killed loses little and one of many short trials does
    /// not spend its time writing. A run without a trial has nothing to lose.
    fn write_now_and_then(&mut self) -> Result<(), Failure> {
        if self.result.cells.iter().all(|cell| cell.trials.is_empty()) {
            return Ok(());
        }
        let due = self.written.is_none_or(|(last, took)| last.elapsed() >= WRITING.max(took * WRITING_TIMES));
        if due {
            let begun = Instant::now();
            // set for the time of writing: a reader that finds the file after a kill must read it so
            self.result.interrupted = true;
            self.file.write(&self.result)?;
            self.result.interrupted = false;
            self.written = Some((Instant::now(), begun.elapsed()));
        }
        Ok(())
    }

    /// The name of a cell: the values that tell it from the others of the run.
    fn name(&self, index: usize) -> String {
        let Cell { target, durability, lock, clients, rate, workload } = self.cells[index];
        let shown = self.targets[target].shown();
        let decides = self.workloads[workload].decides();
        let mut parts = vec![if decides { format!("{shown} {lock}") } else { shown }];
        if self.plan.durability.len() > 1 {
            parts.push(format!("durability {durability}"));
        }
        if self.plan.clients.len() > 1 {
            parts.push(format!("{clients} clients"));
        }
        if let (Some(rate), 2..) = (rate, self.plan.rates.len()) {
            parts.push(format!("{rate} ops/s"));
        }
        let values = self.workloads[workload].values();
        let axes = self
            .plan
            .parameters
            .iter()
            .filter(|(_, value)| value.as_array().is_some_and(|list| list.len() > 1));
        parts.extend(axes.filter_map(|(name, _)| {
            let value = values.get(name)?;
            Some(format!("{name} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        }));
        parts.join(", ")
    }

    /// Runs one trial of one cell. A store that fails costs its cell, not the run.
    async fn cell(&mut self, index: usize, round: u32) -> Result<(), Failure> {
        self.progress.begin(&self.name(index));
        match self.trial(index, round).await {
            Ok(trial) => {
                self.progress.end(&trial.audit.to_string());
                // one that was interrupted before anything was acknowledged says nothing of its cell
                let is_empty = trial.throughput == 0.0 && trial.audit.verdict == Verdict::Unknown;
                if !(is_empty && was_interrupted(&trial)) {
                    self.result.cells[index].trials.push(trial);
                }
                Ok(())
            }
            // a trial that the interruption cut short has not failed
            Err(Failure::Store(_)) if self.interrupt.is_set() => Ok(()),
            Err(failure @ Failure::Store(_)) => {
                let cause = failure.to_string();
                self.progress.end(&format!("not run: {}", cause.lines().next().unwrap_or_default()));
                self.result.cells[index].error = Some(cause);
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    async fn trial(&mut self, index: usize, round: u32) -> Result<TrialResult, Failure> {
        let Cell { target, durability, .. } = self.cells[index];
        // taken out while it is in use: a store whose server dies is not put back
        let mut instance = match self.instances.remove(&(target, durability)) {
            Some(instance) => instance,
            None => self.open(target, durability).await?,
        };
        let trial = self.trial_on(&mut instance, index, round).await;
        if instance.died().is_none() {
            self.instances.insert((target, durability), instance);
        } else {
            // closes what is left of it: perhaps a lock service, or the store whose lock service died
            let _ = instance.close(&self.plan.namespace, self.plan.keep).await;
        }
        trial
    }

    /// Opens a store. A store that cannot be opened is not tried again for other cells.
    async fn open(&mut self, target: usize, durability: Durability) -> Result<Instance, Failure> {
        let locked = |cell: &Cell| {
            (cell.target, cell.durability, cell.lock) == (target, durability, Lock::Hard)
                && self.workloads[cell.workload].decides()
        };
        let needs_locks = self.targets[target].kind().lock_service && self.cells.iter().any(locked);
        let claim = Claim {
            namespace: &self.plan.namespace,
            run: &self.result.run,
            replace: self.plan.replace,
            locks: self.lock_service.filter(|_| needs_locks),
        };
        self.progress.doing(&format!("opening {}", self.targets[target].shown()));
        let opened =
            Instance::open(&self.lab, &self.targets[target], durability, &claim, &self.interrupt).await;
        if let (Err(failure @ Failure::Store(_)), false) = (&opened, self.interrupt.is_set()) {
            let cells = self.cells.iter().zip(&mut self.result.cells);
            for (_, result) in
                cells.filter(|(cell, _)| (cell.target, cell.durability) == (target, durability))
            {
                result.error = Some(failure.to_string());
            }
        }
        opened
    }

    /// Loads the data or takes over those of an earlier trial, drives the clients, reads the final state back, audits
    /// it, and unloads the data.
    async fn trial_on(
        &mut self,
        instance: &mut Instance,
        index: usize,
        round: u32,
    ) -> Result<TrialResult, Failure> {
        let cell = self.cells[index];
        self.trials += 1;
        let workload = &self.workloads[cell.workload];
        let (data, transaction, counted) = (workload.data(), workload.transaction(), workload.counted());
        let kept = data.as_ref().and_then(|data| instance.kept.remove(data));
        let seed = self.plan.seed.wrapping_add(u64::from(round));
        let trial = workload.trial(TrialSetup {
            lock: cell.lock,
            seed,
            clients: cell.clients,
            trace: self.plan.trace,
            reusable: kept.as_ref().map(|kept| kept.reusable.clone()),
        });
        let number = self.trials;
        let place = kept.as_ref().map_or_else(
            || Place { namespace: self.plan.namespace.clone(), trial: number },
            |kept| kept.place.clone(),
        );
        let left_by = kept.map(|kept| kept.by);
        let mut about = TrialFacts {
            round,
            session: self.session,
            transaction,
            counted,
            data: DataFigures { rows: trial.rows(), load_seconds: None, left_by },
            remarks: Remarks::default(),
        };
        if left_by.is_none() {
            about.data.load_seconds = Some(self.load(&*trial, &*instance.store, &place).await?);
            about.remarks = self.prepare(&*trial, &*instance.store, &place, about.data.load_seconds).await?;
        }
        let settings = trial.settings(&*instance.store, &place, &instance.effective);
        let settings = within(PATIENCE, "reading the settings", settings).await?;
        self.note_settings(index, &settings)?;
        let clients = (0..cell.clients).map(|_| trial.client(&*instance.store, &place));
        let tasks = clients.collect::<Result<Vec<ClientTask>, StoreError>>()?;
        let workload = &*self.workloads[cell.workload];
        let load = load(self.plan, &cell, workload, instance.store.blocking(), seed);
        let Driven { measurement, resources, died, gauge } =
            self.drive(load, tasks, instance, &*trial).await?;
        self.progress.doing("auditing");
        let AuditResult { audit, reusable, limits } =
            audit(&*trial, instance, &place, died.as_deref(), &measurement).await;
        let mut result = TrialResult::of(about, measurement, audit, resources);
        result.gauge = gauge;
        result.limits = limits;
        if let Some(how) = died {
            result.stopped =
                Some(StopFigures { reason: "server gone".to_owned(), detail: format!("it {how}") });
            result.server_log = instance.server().map_or_else(Vec::new, |server| server.log_tail(LOG_LINES));
        } else {
            self.clear_away(&*trial, instance, place, data, reusable).await;
        }
        Ok(result)
    }

    /// Notes the settings that a cell is measured at. Trials at other settings would not be of the same cell.
    fn note_settings(&mut self, index: usize, now: &EffectiveSettings) -> Result<(), Failure> {
        let cell = &mut self.result.cells[index];
        if let (Some(then), false) = (&cell.effective, cell.trials.is_empty())
            && (&then.version, then.durability, &then.because) != (&now.version, now.durability, &now.because)
        {
            return Err(Failure::Store(format!(
                "the server is no longer what its earlier trials ran on: it was {}, {}; it is {}, {}",
                then.version, then.because, now.version, now.because
            )));
        }
        cell.effective = Some(now.clone());
        Ok(())
    }

    /// Keeps data that a later trial may take over, and removes the rest. Data that cannot be removed now is removed
    /// with the namespace.
    async fn clear_away(
        &self,
        trial: &dyn WorkloadTrial,
        instance: &mut Instance,
        place: Place,
        data: Option<String>,
        reusable: Option<ReusableData>,
    ) {
        match (data, reusable) {
            (Some(data), Some(reusable)) => {
                instance.kept.insert(data, Kept { place, reusable, by: self.trials });
            }
            _ if self.plan.keep => {}
            _ => {
                let _ = within(PATIENCE, "removing the data", trial.unload(&*instance.store, &place)).await;
            }
        }
    }

    /// Lets the workload prepare the trial and find its remarks, such as query plans; that may load the data again.
    async fn prepare(
        &mut self,
        trial: &dyn WorkloadTrial,
        store: &dyn Store,
        place: &Place,
        load_seconds: Option<f64>,
    ) -> Result<Remarks, Failure> {
        let loading = Duration::try_from_secs_f64(load_seconds.unwrap_or_default() * 3.0).unwrap_or(PATIENCE);
        let most = PATIENCE + loading + ROW * u32::try_from(trial.rows()).unwrap_or(u32::MAX);
        let mut preparing = Box::pin(within(most, "preparing the trial", trial.prepare(store, place)));
        loop {
            if let Ok(done) = tokio::time::timeout(LOOK, &mut preparing).await {
                return Ok(done?);
            }
            if self.interrupt.is_set() {
                return Err(Failure::Store("interrupted while the trial was prepared".to_owned()));
            }
        }
    }

    /// Loads the data, shows the progress, and returns how many seconds it took.
    async fn load(
        &mut self,
        trial: &dyn WorkloadTrial,
        store: &dyn Store,
        place: &Place,
    ) -> Result<f64, Failure> {
        let (loaded, begun) = (LoadProgress::default(), Instant::now());
        let mut loading = trial.load(store, place, &loaded);
        let mut moved = (0, Instant::now());
        loop {
            if let Ok(done) = tokio::time::timeout(LOOK, &mut loading).await {
                done?;
                return Ok(begun.elapsed().as_secs_f64());
            }
            if self.interrupt.is_set() {
                return Err(Failure::Store("interrupted while data was loaded".to_owned()));
            }
            let rows = loaded.rows();
            if rows != moved.0 {
                moved = (rows, Instant::now());
            } else if moved.1.elapsed() > STALLED {
                return Err(Failure::Store(format!(
                    "loading the data stands still: {rows} of {} rows, none more within {} min",
                    trial.rows(),
                    STALLED.as_secs() / 60
                )));
            }
            self.progress.loading(rows, trial.rows(), begun.elapsed());
        }
    }

    /// Runs the clients on threads of their own and watches over them: progress, interruption, a server that dies.
    /// Returns how the server died, if it did.
    async fn drive(
        &mut self,
        load: Load,
        tasks: Vec<ClientTask>,
        instance: &mut Instance,
        of: &dyn WorkloadTrial,
    ) -> Result<Driven, Failure> {
        let (extent, clients) = (load.extent, tasks.len());
        let trial = Trial::new(load, clients);
        let running = start(&trial, tasks)?;
        // started anew with the measured part; a trial shorter than the interval has only this one
        let mut sampler = Sampler::start(instance.pid(), Sampler::EVERY);
        let mut measuring = false;
        let mut died = None;
        let mut gauge = Gauge::default();
        let mut stopped: Option<Instant> = None;
        while !running.is_finished() {
            tokio::time::sleep(WATCH).await;
            let measured = trial.progress();
            if !measuring && measured.measured.is_some() && !running.is_finished() {
                measuring = true;
                sampler = Sampler::start(instance.pid(), Sampler::EVERY);
            }
            gauge.look(measured.measured, of);
            self.progress.measured(&measured, share(extent, &measured));
            if died.is_none()
                && let Some(how) = instance.died()
            {
                trial.stop(Stop::ServerGone(how.clone()));
                trial.give_up();
                died = Some(how);
            }
            if self.interrupt.is_set() && stopped.is_none() {
                trial.stop(Stop::Interrupted);
                stopped = Some(Instant::now());
            }
            if stopped.is_some_and(|since| since.elapsed() > GRACE) {
                trial.give_up();
            }
        }
        let resources = sampler.stop();
        let measurement = match running.join() {
            Ok(measurement) => measurement.map_err(|error| Failure::Other(error.to_string()))?,
            Err(_) => return Err(Failure::Other("the engine panicked: a defect of acidtest".to_owned())),
        };
        if let Some(Stop::Defect(what)) = &measurement.stopped {
            // operations that the ledger missed are unknown to the audit
            return Err(Failure::Other(format!("{what}: a defect of acidtest")));
        }
        // a first connection that fails means that nothing was measured
        if let (Some(Stop::NoConnection(cause)), None) = (&measurement.stopped, &died) {
            return Err(Failure::Store(format!("a client could not connect: {cause}")));
        }
        // the process may end a moment after its connections do
        if died.is_none() && matches!(measurement.stopped, Some(Stop::ServerGone(_))) {
            died = instance.died();
        }
        Ok(Driven { measurement, resources, died, gauge: gauge.figures })
    }

    /// Removes all data and stops all servers of the run, whatever happened before.
    async fn close(&mut self) -> Result<(), Failure> {
        let mut first = Ok(());
        for (_, instance) in std::mem::take(&mut self.instances) {
            let closed = instance.close(&self.plan.namespace, self.plan.keep).await;
            first = first.and(closed);
        }
        first
    }

    fn conclude(&mut self) -> Result<(), Failure> {
        self.result.interrupted = self.interrupt.is_set();
        self.result.finished = now();
        self.result.price().map_err(|error| Failure::Other(error.to_string()))
    }
}

/// Audits a trial: holds its ledger against the final state of the store.
async fn audit(
    trial: &dyn WorkloadTrial,
    instance: &Instance,
    place: &Place,
    died: Option<&str>,
    measurement: &Measurement,
) -> AuditResult {
    let most = PATIENCE + ROW * u32::try_from(trial.rows_left()).unwrap_or(u32::MAX);
    let lost = match died {
        Some(how) => how.to_owned(),
        None => format!("no answer within {} s", most.as_secs()),
    };
    let whole = async {
        if died.is_some() {
            return None;
        }
        tokio::time::timeout(most, trial.audit(Ok(&*instance.store), place)).await.ok()
    };
    let mut audited = match whole.await {
        Some(audited) => audited,
        // the ledger by itself may prove something
        None => trial.audit(Err(unreadable(&lost)), place).await,
    };
    doubt_if_idle(&mut audited, measurement);
    audited
}

/// Sets the verdict to unknown if nothing was acknowledged in the measured part, although the warm-up's operations
/// are in the ledger too.
pub(crate) fn doubt_if_idle(audited: &mut AuditResult, measurement: &Measurement) {
    let acknowledged: u64 = measurement.operations.iter().map(|operation| operation.count(Outcome::Ok)).sum();
    if audited.audit.verdict == Verdict::Holds && acknowledged == 0 {
        audited.audit.verdict = Verdict::Unknown;
        audited.audit.reason = Some("no operation was acknowledged in the measured part".to_owned());
    }
}

/// Starts a trial on a thread of its own, because the main one keeps the private servers.
fn start(
    trial: &Trial,
    tasks: Vec<ClientTask>,
) -> Result<JoinHandle<Result<Measurement, EngineError>>, Failure> {
    let trial = trial.clone();
    thread::Builder::new()
        .name("trial".to_owned())
        .spawn(move || trial.run(tasks))
        .map_err(|error| Failure::Other(format!("cannot start a thread: {error}")))
}

fn share(extent: Extent, measured: &acidtest_engine::Progress) -> f64 {
    match extent {
        Extent::Time(length) => {
            measured.measured.unwrap_or_default().as_secs_f64() / length.as_secs_f64().max(1e-9)
        }
        Extent::Operations(count) => measured.completed as f64 / count.max(1) as f64,
    }
}

/// The load that a cell's trial is driven with. `blocking`: each client holds a thread of its own.
pub(crate) fn load(plan: &Plan, cell: &Cell, workload: &dyn Workload, blocking: bool, seed: u64) -> Load {
    let extent = match (plan.trace, plan.ops) {
        (Some(count), _) | (None, Some(count)) => Extent::Operations(count),
        (None, None) => Extent::Time(plan.duration.0),
    };
    let closed = Load::closed(workload.operations(), extent);
    Load {
        spans: workload.spans(),
        scheduled: workload.scheduled().map(|clients| clients as usize),
        arrivals: match (cell.rate, plan.arrivals) {
            (None, _) => Arrivals::Closed,
            (Some(rate), ArrivalKind::Constant) => Arrivals::Constant(rate),
            (Some(rate), ArrivalKind::Poisson) => Arrivals::Poisson(rate),
        },
        // a sequence has to begin with its first operation, so it has no warm-up
        warmup: if plan.trace.is_some() || !workload.warms_up() { Duration::ZERO } else { plan.warmup.0 },
        timeout: plan.timeout.0,
        max_retries: plan.max_retries,
        // a capture of a sequence succeeds once the operations before it are done, so it is tried again
        on_refused: if plan.trace.is_some() { OnRefused::Retry(REFUSED_WAIT) } else { OnRefused::Count },
        threads: match plan.threads {
            _ if blocking => (cell.clients as usize).min(MOST_THREADS),
            Some(threads) => threads as usize,
            None => closed.threads,
        },
        seed,
        ..closed
    }
}

fn unreadable(cause: &str) -> StoreError {
    StoreError::Server {
        doing: "reading the final state".to_owned(),
        address: "the store".to_owned(),
        cause: cause.to_owned(),
    }
}

/// The status of a finished run: the worst outcome among its promises.
pub(crate) fn status(result: &RunResult) -> Status {
    let of = |cell: &CellResult| match cell.verdict() {
        Verdict::Broken if cell.breaks_promise() => Status::Broken,
        _ if cell.error.is_some() => Status::Unreached,
        Verdict::Unknown if cell.is_promised() => Status::Unknown,
        _ => Status::Held,
    };
    let worst = result.cells.iter().map(of).max().unwrap_or(Status::Held);
    if result.interrupted { worst.max(Status::Interrupted) } else { worst }
}
