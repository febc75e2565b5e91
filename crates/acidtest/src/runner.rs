//! The runner: takes a plan through lab, stores, engine and audit to a result.

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use acidtest_engine::{Arrivals, EngineError, Extent, Load, Measurement, OnRefused, Outcome, Stop, Trial};
use acidtest_lab::Lab;
use acidtest_model::{Durability, Lock, StoreError, Support};
use acidtest_observe::{Resources, Sampler, machine};
use acidtest_report::{
    ArrivalKind, CellResult, FORMAT, Plan, RefusedKind, RunResult, StopFigures, TrialResult,
};
use acidtest_workloads::{
    Audit, ClientTask, Place, Verdict,
    inventory::{self, OPERATIONS, Replay, Scenario, Sequence, Stock},
};
use rand::{SeedableRng, seq::SliceRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{
    exit::{Failure, Status},
    harness,
    instance::{Claim, Instance, LOADING, PATIENCE, within},
    interrupt::Interrupt,
    output::ResultFile,
    progress::Progress,
    target::Target,
};

/// How often a running trial is looked after.
const WATCH: Duration = Duration::from_millis(20);

/// How long clients may finish what is in flight once a trial is stopped.
const GRACE: Duration = Duration::from_secs(2);

/// Lines of a dead server's log in the result.
const LOG_LINES: usize = 6;

/// Threads for a store that holds the thread of its client.
const MOST_THREADS: usize = 1024;

/// What a refused operation waits before it is tried again: the inventory study's.
const REFUSED_WAIT: Duration = Duration::from_millis(5);

/// One cell of the grid.
struct Cell {
    target: usize,
    rung: Durability,
    lock: Lock,
    clients: u32,
}

/// A run under way.
pub(crate) struct Runner<'a> {
    plan: &'a Plan,
    targets: &'a [Target],
    lab: Lab,
    interrupt: Interrupt,
    progress: Progress,
    stock: Arc<Stock>,
    cells: Vec<Cell>,
    /// Open stores, by target and rung.
    instances: BTreeMap<(usize, Durability), Instance>,
    result: RunResult,
    trials: u32,
}

/// A run that began: what it measured, and what went wrong with the run itself, if anything did.
pub(crate) struct Finished {
    pub(crate) result: RunResult,
    pub(crate) failure: Option<Failure>,
}

/// Runs the plan and writes its result after every round. Whatever fails on the way, what was measured
/// until then is kept.
pub(crate) async fn run(
    plan: &Plan,
    targets: &[Target],
    id: &str,
    quiet: bool,
    interrupt: Interrupt,
    file: &ResultFile,
) -> Result<Finished, Failure> {
    let lab = Lab::open()?;
    let stock = Arc::new(Stock::draw(&plan.inventory, plan.seed));
    let cells = grid(plan, targets);
    let trials = cells.len() as u64 * u64::from(plan.trials);
    let length = plan.warmup.0 + plan.duration.0;
    let timed = plan.ops.is_none() && plan.trace.is_none();
    let mut progress = Progress::new(quiet, trials, timed.then_some(length));
    progress.doing("measuring what the bench itself costs");
    let result = RunResult {
        format: FORMAT,
        run: id.to_owned(),
        acidtest: env!("CARGO_PKG_VERSION").to_owned(),
        started: now(),
        finished: now(),
        interrupted: false,
        plan: plan.clone(),
        machine: machine(lab.root()),
        harness: harness::measure(plan, &stock)?,
        cells: cells.iter().map(|cell| empty(cell, &targets[cell.target])).collect(),
    };
    let mut runner = Runner {
        plan,
        targets,
        lab,
        interrupt,
        progress,
        stock,
        cells,
        instances: BTreeMap::new(),
        result,
        trials: 0,
    };
    let done = runner.rounds(file).await;
    let closed = runner.close().await;
    runner.progress.finish();
    let concluded = runner.conclude();
    let written = file.write(&runner.result);
    let failure = done.and(concluded).and(written).and(closed).err();
    Ok(Finished { result: runner.result, failure })
}

fn grid(plan: &Plan, targets: &[Target]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (target, each) in targets.iter().enumerate() {
        // a user's own server has the rung that it has
        let rungs = if each.address.is_some() { &plan.durability[..1] } else { &plan.durability[..] };
        for &rung in rungs {
            for &clients in &plan.clients {
                for &lock in &plan.locks {
                    cells.push(Cell { target, rung, lock, clients });
                }
            }
        }
    }
    cells
}

fn empty(cell: &Cell, target: &Target) -> CellResult {
    let kind = target.kind();
    let lock_how = match kind.lock(cell.lock) {
        Support::Yes(how) | Support::No(how) => how,
    };
    CellResult {
        store: kind.name.to_owned(),
        title: kind.title.to_owned(),
        address: target.address.as_ref().map(ToString::to_string),
        embedded: kind.server != acidtest_model::Server::Program,
        lock: cell.lock,
        lock_how: lock_how.to_owned(),
        promised: cell.lock.promises(),
        durability_asked: target.address.is_none().then_some(cell.rung),
        clients: cell.clients,
        effective: None,
        trials: Vec::new(),
        price: None,
        error: None,
    }
}

fn now() -> String {
    jiff::Timestamp::now().to_string()
}

impl Runner<'_> {
    /// Every cell once a round, in an order that is drawn anew: what disturbs the machine for a while
    /// disturbs different cells alike.
    async fn rounds(&mut self, file: &ResultFile) -> Result<(), Failure> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.plan.seed);
        for round in 1..=self.plan.trials {
            let mut order: Vec<usize> = (0..self.cells.len()).collect();
            order.shuffle(&mut rng);
            for index in order {
                if self.interrupt.is_set() {
                    return Ok(());
                }
                if self.result.cells[index].error.is_none() {
                    self.cell(index, round).await?;
                } else {
                    self.progress.skip();
                }
            }
            if round < self.plan.trials {
                file.write(&self.result)?;
            }
        }
        Ok(())
    }

    /// What tells a cell from the others of the run.
    fn name(&self, index: usize) -> String {
        let Cell { target, rung, lock, clients } = self.cells[index];
        let mut parts = vec![format!("{} {lock}", self.targets[target].shown())];
        if self.plan.durability.len() > 1 {
            parts.push(format!("durability {rung}"));
        }
        if self.plan.clients.len() > 1 {
            parts.push(format!("{clients} clients"));
        }
        parts.join(", ")
    }

    /// One trial of one cell. A store that fails costs its cell, not the run.
    async fn cell(&mut self, index: usize, round: u32) -> Result<(), Failure> {
        self.progress.begin(&self.name(index));
        match self.trial(index, round).await {
            Ok(trial) => {
                self.progress.end(&trial.audit.to_string());
                self.result.cells[index].trials.push(trial);
                Ok(())
            }
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
        let Cell { target, rung, .. } = self.cells[index];
        // taken out while it is in use: one whose server dies is not put back
        let mut instance = match self.instances.remove(&(target, rung)) {
            Some(instance) => instance,
            None => self.open(target, rung).await?,
        };
        let trial = self.trial_on(&mut instance, index, round).await;
        if instance.died().is_none() {
            self.instances.insert((target, rung), instance);
        }
        trial
    }

    /// Opens a store. One that cannot be opened is not tried again for other cells.
    async fn open(&mut self, target: usize, rung: Durability) -> Result<Instance, Failure> {
        let claim =
            Claim { namespace: &self.plan.namespace, run: &self.result.run, replace: self.plan.replace };
        self.progress.doing(&format!("opening {}", self.targets[target].shown()));
        let opened = Instance::open(&self.lab, &self.targets[target], rung, &claim, &self.interrupt).await;
        if let Err(failure @ Failure::Store(_)) = &opened {
            let cells = self.cells.iter().zip(&mut self.result.cells);
            for (_, result) in cells.filter(|(cell, _)| (cell.target, cell.rung) == (target, rung)) {
                result.error = Some(failure.to_string());
            }
        }
        opened
    }

    /// Lays the data in, drives, reads back, audits and clears away.
    async fn trial_on(
        &mut self,
        instance: &mut Instance,
        index: usize,
        round: u32,
    ) -> Result<TrialResult, Failure> {
        let Cell { target, lock, clients, .. } = self.cells[index];
        let (plan, stock) = (self.plan, Arc::clone(&self.stock));
        self.trials += 1;
        let place = Place { namespace: plan.namespace.clone(), trial: self.trials };
        let scenario = scenario(plan, &stock, round);
        self.result.cells[index].effective = Some(instance.effective.clone());
        let store = inventory_of(instance, &self.targets[target])?;
        within(LOADING, "loading the stock", store.load(&place, lock, &stock)).await?;
        let tasks = (0..clients).map(|_| store.client(&place, lock, scenario.clone())).collect();
        let load = load(plan, clients as usize, instance.store.blocking(), round);
        let (measurement, resources, died) = self.drive(load, tasks, instance).await?;
        let store = inventory_of(instance, &self.targets[target])?;
        let held = match &died {
            None => within(PATIENCE, "reading the final stock", store.stock(&place)).await,
            Some(how) => Err(unreadable(how)),
        };
        let audit = self.audit(&scenario, held, clients, &measurement);
        let mut trial = TrialResult::of(round, measurement, audit, resources);
        if let Some(how) = died {
            trial.stopped =
                Some(StopFigures { reason: "server gone".to_owned(), detail: format!("it {how}") });
            trial.server_log =
                instance.server.as_ref().map_or_else(Vec::new, |server| server.log_tail(LOG_LINES));
        } else if !plan.keep {
            // what cannot be removed now goes with the namespace
            let _ = within(PATIENCE, "removing the stock", store.unload(&place)).await;
        }
        Ok(trial)
    }

    /// Runs the clients on threads of their own and looks after them: progress, interruption, a
    /// server that dies. Says how the server died, if it did.
    async fn drive(
        &mut self,
        load: Load,
        tasks: Vec<ClientTask>,
        instance: &mut Instance,
    ) -> Result<(Measurement, Resources, Option<String>), Failure> {
        let (extent, clients) = (load.extent, tasks.len());
        let trial = Trial::new(load, clients);
        let running = start(&trial, tasks)?;
        // begun anew with the measured part; a trial that is shorter than a look has this one
        let mut sampler = Sampler::start(instance.pid(), Sampler::EVERY);
        let mut measuring = false;
        let mut died = None;
        let mut stopped: Option<Instant> = None;
        while !running.is_finished() {
            tokio::time::sleep(WATCH).await;
            let measured = trial.progress();
            if !measuring && measured.measured.is_some() && !running.is_finished() {
                measuring = true;
                sampler = Sampler::start(instance.pid(), Sampler::EVERY);
            }
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
            // what the ledger missed then, nobody knows
            return Err(Failure::Other(format!("{what}: a defect of acidtest")));
        }
        // a first connection that fails is no measurement
        if let (Some(Stop::NoConnection(cause)), None) = (&measurement.stopped, &died) {
            return Err(Failure::Store(format!("a client could not connect: {cause}")));
        }
        // the process may end a moment after its connections
        if died.is_none() && matches!(measurement.stopped, Some(Stop::ServerGone(_))) {
            died = instance.died();
        }
        Ok((measurement, resources, died))
    }

    fn audit(
        &self,
        scenario: &Scenario,
        held: Result<Vec<inventory::Held>, StoreError>,
        clients: u32,
        measurement: &Measurement,
    ) -> Audit {
        let replay = scenario.sequence.as_deref().map(|sequence| Replay { sequence, in_order: clients == 1 });
        let mut audit = inventory::audit(&self.stock, &scenario.ledger, held, replay);
        let acknowledged: u64 =
            measurement.operations.iter().map(|operation| operation.count(Outcome::Ok)).sum();
        if audit.verdict == Verdict::Holds && acknowledged == 0 {
            // the warm-up's operations are in the ledger too
            audit.verdict = Verdict::Unknown;
            audit.reason = Some("no operation was acknowledged in the measured part".to_owned());
        }
        audit
    }

    /// Removes what was made and stops what was started, whatever happened before.
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

fn inventory_of<'a>(
    instance: &'a Instance,
    target: &Target,
) -> Result<&'a dyn inventory::InventoryStore, Failure> {
    let store = instance.store.inventory();
    store.ok_or_else(|| Failure::Usage(format!("{} cannot carry inventory", target.shown())))
}

/// The trial's thread lives beside the main one, which keeps the private servers.
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

/// Every trial of a round has operations of its own; every cell of the round has the same.
fn scenario(plan: &Plan, stock: &Arc<Stock>, round: u32) -> Scenario {
    let seed = plan.seed.wrapping_add(u64::from(round));
    let sequence = plan.trace.map(|length| {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        Arc::new(Sequence::draw(&plan.inventory, stock, length, seed))
    });
    Scenario::new(&plan.inventory, Arc::clone(stock), sequence, seed)
}

fn load(plan: &Plan, clients: usize, blocking: bool, round: u32) -> Load {
    let extent = match (plan.trace, plan.ops) {
        (Some(count), _) | (None, Some(count)) => Extent::Operations(count),
        (None, None) => Extent::Time(plan.duration.0),
    };
    let closed = Load::closed(OPERATIONS, extent);
    Load {
        arrivals: match (plan.rate, plan.arrivals) {
            (None, _) => Arrivals::Closed,
            (Some(rate), ArrivalKind::Constant) => Arrivals::Constant(rate),
            (Some(rate), ArrivalKind::Poisson) => Arrivals::Poisson(rate),
        },
        // a sequence begins at its beginning
        warmup: if plan.trace.is_some() { Duration::ZERO } else { plan.warmup.0 },
        timeout: plan.timeout.0,
        max_retries: plan.max_retries,
        on_refused: match plan.on_refused {
            // a sequence's captures succeed once the operations before them are done
            RefusedKind::Count if plan.trace.is_none() => OnRefused::Count,
            RefusedKind::Count | RefusedKind::Retry => OnRefused::Retry(REFUSED_WAIT),
        },
        threads: if blocking { clients.min(MOST_THREADS) } else { closed.threads },
        seed: plan.seed.wrapping_add(u64::from(round)),
        ..closed
    }
}

fn unreadable(cause: &str) -> StoreError {
    StoreError::Server {
        doing: "reading the final stock".to_owned(),
        address: "its server".to_owned(),
        cause: cause.to_owned(),
    }
}

/// What a finished run comes to: the worst of what was promised.
pub(crate) fn status(result: &RunResult) -> Status {
    let of = |cell: &CellResult| match cell.verdict() {
        Verdict::Broken if cell.promised => Status::Broken,
        _ if cell.error.is_some() => Status::Unreached,
        Verdict::Unknown if cell.promised => Status::Unknown,
        _ => Status::Held,
    };
    let worst = result.cells.iter().map(of).max().unwrap_or(Status::Held);
    if result.interrupted { worst.max(Status::Interrupted) } else { worst }
}
