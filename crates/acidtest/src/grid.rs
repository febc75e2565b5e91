//! The cells of a plan: every combination that it asks for, each checked before anything is started.

use std::collections::BTreeSet;

use acidtest_model::{Durability, Lock, StoreKind, Support};
use acidtest_report::Plan;
use acidtest_workloads::{Values, WORKLOADS, Workload, WorkloadKind};
use serde_json::Value;

use crate::{exit::Failure, plan_file::expected, target::Target};

/// How an operation is protected that decides nothing: it needs no lock.
const NOTHING_TO_PROTECT: &str = "nothing to protect: no write depends on what was read";

/// One cell of the grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cell {
    /// The index of the cell's store among the run's targets.
    pub(crate) target: usize,
    /// The index of the cell's workload in [`Grid::workloads`].
    pub(crate) workload: usize,
    pub(crate) durability: Durability,
    pub(crate) lock: Lock,
    pub(crate) clients: u32,
    /// Offered operations a second; none in a closed loop.
    pub(crate) rate: Option<f64>,
}

impl Cell {
    /// Whether it has a hard lock that its store cannot keep by itself.
    pub(crate) fn needs_lock_service(&self, targets: &[Target]) -> bool {
        targets[self.target].kind().lock_service && self.lock == Lock::Hard
    }
}

/// All cells that a plan asks for.
pub(crate) struct Grid {
    /// The workload, once for each combination of its parameters.
    pub(crate) workloads: Vec<Box<dyn Workload>>,
    pub(crate) cells: Vec<Cell>,
    /// The combinations that no store can do, where the plan says to leave them out.
    pub(crate) left_out: Vec<String>,
}

impl Grid {
    /// Makes the plan's grid.
    ///
    /// # Errors
    /// Parameters that describe no workload, or combinations that a store cannot do, with the reason; nothing has
    /// been started yet.
    pub(crate) fn of(plan: &Plan, targets: &[Target]) -> Result<Self, Failure> {
        let kind = kind_of(&plan.workload)?;
        let workloads = workloads(kind, plan)?;
        let mut grid = Self { workloads, cells: Vec::new(), left_out: Vec::new() };
        let mut refused = BTreeSet::new();
        for (target, each) in targets.iter().enumerate() {
            // a user's own server keeps the durability level that it has, and so does a store whose queues have their
            // own
            let levels = plan.durability.iter().take(if each.keeps_durability() { 1 } else { usize::MAX });
            for (workload, with) in grid.workloads.iter().enumerate() {
                let loads = loads(plan, &**with);
                let locks = locks(&**with, &plan.locks);
                for (&durability, &lock) in
                    levels.clone().flat_map(|durability| locks.iter().map(move |lock| (durability, lock)))
                {
                    if let Err(why) = check(each, kind.name, &**with, durability, lock) {
                        refused.insert(why);
                        continue;
                    }
                    let cell = |&(clients, rate)| Cell { target, workload, durability, lock, clients, rate };
                    grid.cells.extend(loads.iter().map(cell));
                }
            }
        }
        if refused.is_empty() {
            return Ok(grid);
        }
        if !plan.skip_unsupported {
            return Err(unsupported(&refused, !grid.cells.is_empty()));
        }
        if grid.cells.is_empty() {
            return Err(Failure::Usage(format!("nothing of the plan can be done:\n  {}", lines(&refused))));
        }
        grid.left_out = refused.into_iter().collect();
        Ok(grid)
    }
}

/// Every combination of a number of clients and a rate.
fn loads(plan: &Plan, workload: &dyn Workload) -> Vec<(u32, Option<f64>)> {
    let clients = workload.clients().map_or_else(|| plan.clients.clone(), |own| vec![own]);
    let rates: Vec<Option<f64>> =
        if plan.rates.is_empty() { vec![None] } else { plan.rates.iter().copied().map(Some).collect() };
    clients.iter().flat_map(|clients| rates.iter().map(|rate| (*clients, *rate))).collect()
}

pub(crate) fn kind_of(name: &str) -> Result<&'static WorkloadKind, Failure> {
    let names = || WORKLOADS.iter().map(|kind| kind.name);
    acidtest_workloads::workload(name).ok_or_else(|| {
        Failure::Usage(format!(
            "unknown workload \"{name}\"{}\n  known are {}; a plan file ends in .toml",
            acidtest_model::hint(name, names()),
            names().collect::<Vec<_>>().join(", ")
        ))
    })
}

/// The workload, once for each combination of the plan's parameters.
fn workloads(kind: &WorkloadKind, plan: &Plan) -> Result<Vec<Box<dyn Workload>>, Failure> {
    let known: Vec<&str> = (kind.parameters)().iter().map(|parameter| parameter.name).collect();
    if let Some(name) = plan.parameters.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(foreign(kind, name, &known));
    }
    let is_none =
        |value: &Value| value.is_null() || value.as_array().is_some_and(|all| all.contains(&Value::Null));
    if let Some((name, _)) = plan.parameters.iter().find(|(_, value)| is_none(value)) {
        return Err(Failure::Usage(format!("{name} must have a value: nan and inf are none")));
    }
    let combinations = plan.combinations();
    if combinations.is_empty() {
        return Err(Failure::Usage("a parameter's list must not be empty".to_owned()));
    }
    combinations
        .iter()
        .map(|values| (kind.with)(values).map_err(|error| wrong(kind, values, &error)))
        .collect()
}

fn foreign(kind: &WorkloadKind, name: &str, known: &[&str]) -> Failure {
    let owner = WORKLOADS.iter().find(|other| (other.parameters)().iter().any(|each| each.name == name));
    let hint = match owner {
        Some(owner) => format!("; it belongs to {}", owner.name),
        None => acidtest_model::hint(name, known.iter().copied()),
    };
    Failure::Usage(format!(
        "{} has no parameter \"{name}\"{hint}\n  its own are {}",
        kind.name,
        known.join(", ")
    ))
}

/// The error for a combination of parameters. It names the value at fault: the one without which the others would do.
fn wrong(kind: &WorkloadKind, values: &Values, error: &str) -> Failure {
    let at_fault = values.iter().find(|(name, _)| {
        let mut others = values.clone();
        others.remove(*name);
        (kind.with)(&others).is_ok()
    });
    let Some((name, value)) = at_fault else { return Failure::Usage(format!("{}: {error}", kind.name)) };
    let parameter = (kind.parameters)().into_iter().find(|parameter| parameter.name == name);
    let must = expected(error).zip(parameter).map(|(must, parameter)| {
        format!("{name} must be {must}, as in {}; it is the {}", parameter.default, parameter.meaning)
    });
    Failure::Usage(format!("{}: {name} = {value}: {}", kind.name, must.as_deref().unwrap_or(error)))
}

/// The lock modes that have an effect on a workload, of those asked for.
fn locks(workload: &dyn Workload, asked: &[Lock]) -> Vec<Lock> {
    match workload.lock() {
        Some(only) => vec![only],
        // a lock that is kept by another server would be taken in vain
        None if !workload.decides() => {
            vec![asked.iter().copied().find(|lock| *lock != Lock::Hard).unwrap_or(Lock::None)]
        }
        None => asked.to_vec(),
    }
}

/// Whether the store can do the combination; the error is the reason why not.
fn check(
    target: &Target,
    workload_name: &str,
    workload: &dyn Workload,
    durability: Durability,
    lock: Lock,
) -> Result<(), String> {
    let kind = target.kind();
    if let Support::No(why) = kind.workload(workload_name) {
        return Err(format!("{} cannot carry {workload_name}: {why}", kind.name));
    }
    if let (Support::No(why), true) = (kind.lock(lock), workload.decides()) {
        let has = Lock::ALL.into_iter().filter(|each| kind.lock(*each).is_yes()).map(Lock::name);
        return Err(lacks(kind, "lock", lock.name(), why, has));
    }
    // a user's own server keeps its settings: they are read, not set
    if let (Support::No(why), false) = (kind.durability(durability), target.keeps_durability()) {
        let has =
            Durability::ALL.into_iter().filter(|each| kind.durability(*each).is_yes()).map(Durability::name);
        return Err(lacks(kind, "durability", durability.name(), why, has));
    }
    if let Some(level) = workload.isolation()
        && let Support::No(why) = kind.isolation(level)
    {
        return Err(format!("{} has no isolation level {level}: {why}", kind.name));
    }
    if let (2.., Support::No(why)) = (workload.transaction(), kind.transactions) {
        return Err(format!("{} has no transactions of several operations: {why}", kind.name));
    }
    if let (true, Support::No(why)) = (workload.refreshes(), kind.refresh) {
        return Err(format!("{} knows no refresh: {why}; leave --refresh out", kind.name));
    }
    let request = workload.request(workload_name, lock);
    match (kind.refuses)(&request) {
        Some(why) if workload.decides() => {
            Err(format!("{} cannot carry {workload_name} with lock {lock} as asked: {why}", kind.name))
        }
        Some(why) => Err(format!("{} cannot carry {workload_name} as asked: {why}", kind.name)),
        None => Ok(()),
    }
}

fn lacks<'a>(
    kind: &StoreKind,
    what: &str,
    word: &str,
    why: &str,
    has: impl Iterator<Item = &'a str>,
) -> String {
    let has: Vec<&str> = has.collect();
    let those =
        if has.is_empty() { "it has none".to_owned() } else { format!("those it has: {}", has.join(", ")) };
    format!("{} has no {what} {word}: {why}; {those}", kind.name)
}

fn unsupported(refused: &BTreeSet<String>, is_rest: bool) -> Failure {
    let remedy = if is_rest {
        "ask for what the store has (see `acidtest stores`), or leave the rest out with --skip-unsupported"
    } else {
        "ask for what the store has (see `acidtest stores`)"
    };
    match refused.first() {
        Some(only) if refused.len() == 1 => Failure::Usage(format!("{only}\n  remedy: {remedy}")),
        _ => Failure::Usage(format!(
            "the plan asks for what stores cannot do:\n  {}\n  remedy: {remedy}",
            lines(refused)
        )),
    }
}

fn lines(refused: &BTreeSet<String>) -> String {
    refused.iter().map(String::as_str).collect::<Vec<_>>().join("\n  ")
}

/// How the store applies a lock mode, in its own words.
pub(crate) fn lock_how(kind: &StoreKind, workload: &dyn Workload, lock: Lock) -> &'static str {
    match kind.lock(lock) {
        _ if !workload.decides() => NOTHING_TO_PROTECT,
        Support::Yes(how) | Support::No(how) => how,
    }
}
