//! Drives a case through all its cells and trials, as a run does with a plan.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use acidtest_model::{Isolation, ReadPolicy};
use acidtest_store_memory::{
    Memory, Watch,
    selftest::{self, Clock, DriveOptions, DrivenTrial},
};
use acidtest_workloads::{Place, ReusableData, TrialSetup, WorkloadSpec, WorkloadTrial};
use rand::{SeedableRng, seq::SliceRandom};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::time::timeout;

use super::FuzzCase;
use acidtest_runner::{
    Cell, Failure, Grid, doubt_if_idle,
    plan_check::{self, GivenOptions},
};

use crate::target;

/// A case that takes longer than this by its own clock is taken to be endless.
const FOR_EVER: Duration = Duration::from_hours(100);

/// The result of a case: its trials, and the events that led to them.
#[derive(Debug, Default)]
pub(crate) struct CaseResult {
    pub(crate) trials: Vec<TrialDone>,
    /// The last events of the case, in words.
    pub(crate) history: Vec<String>,
    /// Whether the case did not end.
    pub(crate) hung: bool,
}

/// A trial that was driven and audited.
#[derive(Debug)]
pub(crate) struct TrialDone {
    /// The trial's cell and round, in words.
    pub(crate) name: String,
    /// Names of the guarantees that its cell does without.
    pub(crate) without: Vec<&'static str>,
    /// Whether it took over the data that an earlier trial had left.
    pub(crate) took_over: bool,
    /// Number of times that the bug had struck by its end, earlier trials included.
    pub(crate) struck: u64,
    pub(crate) driven: DrivenTrial,
}

/// The grid of a case's plan, if the plan passes its check.
pub(crate) fn grid(case: &FuzzCase) -> Result<Grid, Failure> {
    let plan = &case.plan;
    let asked = GivenOptions::with(plan, Some("the case"), []);
    plan_check::check(plan, &asked)?;
    let targets = plan.stores.iter().map(|name| target::parse(name)).collect::<Result<Vec<_>, _>>()?;
    let grid = Grid::of(plan, &targets)?;
    plan_check::check_effect(plan, &asked, &grid, &targets)?;
    Ok(grid)
}

/// Drives all trials of a case.
///
/// # Errors
/// A plan that is refused, or an error that keeps a trial from being driven.
pub(crate) fn drive(case: &FuzzCase) -> Result<CaseResult, Failure> {
    // the workloads belong to the thread that drives them, so they are made there
    selftest::by(case.clock, || async move {
        let grid = grid(case)?;
        let watch = Watch { exact: case.clock == Clock::Simulated, recorded: true };
        let store = Memory::watched(case.store, case.seed, watch);
        let mut done = CaseResult::default();
        let ended = timeout(FOR_EVER, trials(case, &grid, &store, &mut done)).await;
        done.hung = ended.is_err();
        done.history = store.history();
        ended.unwrap_or(Ok(())).map(|()| done)
    })
}

async fn trials(case: &FuzzCase, grid: &Grid, store: &Memory, done: &mut CaseResult) -> Result<(), Failure> {
    let plan = &case.plan;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(plan.seed);
    // the data that trials left, by a key that says what they are
    let mut kept = BTreeMap::new();
    let mut number = 0;
    for round in 1..=plan.trials {
        let mut order: Vec<usize> = (0..grid.cells.len()).collect();
        order.shuffle(&mut rng);
        for index in order {
            let cell = grid.cells[index];
            number += 1;
            store.plant(number > case.sound);
            store.make_room();
            store.come_back().await;
            let trial = trial(case, &cell, grid, store, (round, number), &mut kept).await?;
            done.trials.push(trial);
        }
    }
    Ok(())
}

/// Whether clients of this cell read at replicas: not where two updates may write the same version, nor at a level of isolation that
/// replicas do not have.
fn reads_at_replicas(case: &FuzzCase, cell: &Cell, spec: &WorkloadSpec) -> bool {
    let tells_versions = cell.lock.promises() || !spec.decides;
    let is_lower = spec.isolation != Some(Isolation::Serializable);
    !case.reads.is_leader() && spec.replica_reads.is_ok() && tells_versions && is_lower
}

/// How clients read, as a part of the name of a trial.
fn in_words(reads: ReadPolicy) -> String {
    let ReadPolicy { from, route, consistency } = reads;
    if reads.is_leader() { String::new() } else { format!(", reads {from} {route} {consistency}") }
}

/// Whether clients of any cell read at replicas.
pub(crate) fn has_replica_reads(case: &FuzzCase) -> bool {
    let reads = |grid: Grid| {
        grid.cells.iter().any(|cell| reads_at_replicas(case, cell, grid.workloads[cell.workload].spec()))
    };
    grid(case).is_ok_and(reads)
}

async fn trial(
    case: &FuzzCase,
    cell: &Cell,
    grid: &Grid,
    store: &Memory,
    (round, number): (u32, u32),
    kept: &mut BTreeMap<String, (Place, ReusableData, u64)>,
) -> Result<TrialDone, Failure> {
    let plan = &case.plan;
    let workload = &*grid.workloads[cell.workload];
    let spec = workload.spec();
    let data = spec.data.clone();
    let left = data.as_ref().and_then(|data| kept.remove(data));
    // nobody takes over what a kill may have changed since it was audited
    let is_as_left = |(_, _, kills): &(Place, ReusableData, u64)| *kills == store.kills();
    let taken_over = left.filter(is_as_left);
    let seed = plan.seed.wrapping_add(u64::from(round));
    let load = cell.load(plan, spec, false, seed);
    let (place, reusable) = match taken_over {
        Some((place, reusable, _)) => (place, Some(reusable)),
        None => (Place { namespace: plan.namespace.clone(), trial: number }, None),
    };
    let took_over = reusable.is_some();
    let reads = if reads_at_replicas(case, cell, spec) { case.reads } else { ReadPolicy::default() };
    let setup =
        TrialSetup { trace: plan.trace, reusable, reads, ..TrialSetup::new(cell.lock, seed, cell.clients) };
    let trial: Arc<dyn WorkloadTrial> = Arc::from(workload.trial(setup));
    let halt = case.halt.map(Duration::from_millis);
    let way = DriveOptions { clients: cell.clients, clock: case.clock, halt };
    let driven = selftest::drive(store, Arc::clone(&trial), &place, took_over, load, way).await;
    let mut driven = driven.map_err(|error| Failure::Other(error.to_string()))?;
    let of_cluster = case.store.without().into_iter().chain(case.store.without_at_replicas().iter().copied());
    let without: Vec<&str> = spec.without(cell.lock).into_iter().chain(of_cluster).collect();
    driven.cross_restart(&without);
    doubt_if_idle(&mut driven.audited, &driven.measurement);
    match (data, driven.audited.reusable.clone()) {
        (Some(data), Some(reusable)) => drop(kept.insert(data, (place, reusable, store.kills()))),
        _ => trial.unload(store, &place).await?,
    }
    Ok(TrialDone {
        name: format!(
            "{}, lock {}, {} clients{}, round {round}",
            spec.headline,
            cell.lock,
            cell.clients,
            in_words(reads)
        ),
        without,
        took_over,
        struck: store.strikes(),
        driven,
    })
}
