//! The cells of a plan: every combination that it asks for, each checked before anything is started.

use std::{collections::BTreeSet, time::Duration};

use acidtest_engine::{Arrivals, Extent, Load, OnRefused};
use acidtest_model::{
    Address, Commands, Consistency, Disruption, Durability, Encryption, Fault, Faults, Hosting, Lock, Moment,
    Promotion, ReadPolicy, Reads, Replication, Role, Selector, StoreKind, Support,
};
use acidtest_observe::usable_cores;
use acidtest_results::{ArrivalKind, CellResult, OPTIONS, Plan};
use acidtest_workloads::{
    Guarantee, Ramp, RunningService, Values, WORKLOADS, Workload, WorkloadKind, WorkloadSpec,
    guarantee::{CONSISTENCY, MONOTONIC_READS, READ_YOUR_WRITES, REPLICATION},
};
use serde_json::Value;

use crate::{Failure, Target, cluster::ClusterSpec, threads::suitable};

/// Most threads for a store that holds the thread of its client.
const MOST_THREADS: usize = 1024;

/// Time before a refused operation is tried again, as in the inventory study.
const REFUSED_WAIT: Duration = Duration::from_millis(5);

/// How an operation is protected that decides nothing: it needs no lock.
const NOTHING_TO_PROTECT: &str = "nothing to protect: no write depends on what was read";

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// The index of the cell's store among the run's targets.
    pub target: usize,
    /// The index of the cell's workload in [`Grid::workloads`].
    pub workload: usize,
    /// The durability level that a private server is set to.
    pub durability: Durability,
    /// Whether the connections are encrypted.
    pub tls: Encryption,
    /// How many nodes of the store there are.
    pub nodes: u32,
    /// What a cluster's acknowledgements wait for.
    pub replication: Replication,
    /// How its clients read.
    pub reads: ReadPolicy,
    /// Which replica is promoted when the leader is gone.
    pub promotion: Promotion,
    /// Whether members are to be cut off from each other.
    pub linked: bool,
    pub lock: Lock,
    /// How many clients are driven.
    pub clients: u32,
    /// Offered operations a second; none in a closed loop.
    pub rate: Option<f64>,
    /// The index of the trials' faults in [`Grid::faults`].
    pub faults: usize,
    /// How many threads drive its clients, if its store does not hold a thread of each.
    pub threads: u32,
}

/// How a store is opened; cells that have the same share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Setting {
    pub(crate) target: usize,
    pub(crate) durability: Durability,
    pub(crate) tls: Encryption,
    /// Its nodes, where it has several.
    pub(crate) cluster: Option<ClusterSpec>,
}

impl Cell {
    /// How its store is opened.
    pub(crate) fn setting(&self) -> Setting {
        let Self { target, durability, tls, .. } = *self;
        Setting { target, durability, tls, cluster: self.cluster() }
    }

    /// The cluster that it is, if it has several nodes.
    fn cluster(&self) -> Option<ClusterSpec> {
        let nodes = u16::try_from(self.nodes).ok().filter(|nodes| *nodes > 1)?;
        Some(ClusterSpec {
            nodes,
            replication: self.replication,
            consistency: self.reads.consistency,
            linked: self.linked,
        })
    }

    /// The guarantees that it does without: those of its workload, and replication, where its trials have another member promoted and it
    /// promises nothing of that.
    fn without(&self, spec: &WorkloadSpec, faults: &Faults) -> Vec<String> {
        let survives = self.replication.survives_promotion(self.promotion, self.nodes);
        let lost = (faults.promote() && !survives).then_some(REPLICATION.name);
        let unseen = self.unseen(faults).iter().map(|guarantee| guarantee.name);
        spec.without(self.lock).into_iter().chain(lost).chain(unseen).map(str::to_owned).collect()
    }

    /// The guarantees of reads that its replicas do without, although they are asked for: a member that comes back, or is promoted, may
    /// show less than before. Where nothing is asked for, nothing is found.
    fn unseen(&self, faults: &Faults) -> &'static [Guarantee] {
        if self.reads.consistency == Consistency::Strong && !faults.is_none() {
            &[CONSISTENCY, READ_YOUR_WRITES, MONOTONIC_READS]
        } else {
            &[]
        }
    }

    /// Whether it has a hard lock that its store cannot keep by itself.
    #[must_use]
    pub fn needs_lock_service(&self, targets: &[Target]) -> bool {
        targets[self.target].kind().lock_service && self.lock == Lock::Hard
    }

    /// Its result as long as nothing of it was made.
    #[must_use]
    pub fn unmade(&self, target: &Target, spec: &WorkloadSpec, faults: &Faults) -> CellResult {
        let kind = target.kind();
        CellResult {
            store: kind.name.to_owned(),
            title: kind.title.to_owned(),
            address: target.address.as_ref().map(ToString::to_string),
            embedded: kind.hosting != Hosting::Program,
            lock: self.lock,
            lock_how: lock_how(kind, spec, self.lock).to_owned(),
            host_round_trip_ns: None,
            threads: None,
            decides: spec.decides,
            without: self.without(spec, faults),
            durability_asked: (!target.keeps_durability()).then_some(self.durability),
            tls: self.tls,
            nodes: self.nodes,
            replication: self.replication,
            replication_read: None,
            reads: self.reads.from,
            route: self.reads.route,
            consistency: self.reads.consistency,
            faults: faults.clone(),
            clients: self.clients,
            scheduled: spec.scheduled,
            rate: self.rate,
            parameters: spec.values.clone(),
            headline: spec.headline.clone(),
            effective: None,
            trials: Vec::new(),
            mean: None,
            steadiness: None,
            capacity: None,
            prices: Vec::new(),
            error: None,
        }
    }

    /// Its name: the values that tell it from the other cells of the plan; that of a search's probe has its load, too.
    pub(crate) fn name(
        &self,
        plan: &Plan,
        target: &Target,
        spec: &WorkloadSpec,
        faults: &Faults,
        is_probe: bool,
    ) -> String {
        let Self { tls, lock, clients, rate, .. } = self;
        let shown = target.shown();
        let mut parts = vec![if spec.decides { format!("{shown} {lock}") } else { shown }];
        let cell = self.unmade(target, spec, faults);
        let axes = OPTIONS.iter().filter(|option| option.typed(plan).len() > 1);
        parts.extend(axes.filter_map(|option| match option.key {
            "stores" | "locks" | "rates" => None,
            "tls" => Some(format!("TLS {tls}")),
            "clients" => Some(format!("{clients} clients")),
            _ => Some(format!("{} {}", option.long, option.of_cell?(&cell))),
        }));
        match rate {
            Some(rate) if is_probe || plan.rates.len() > 1 => parts.push(format!("{rate} ops/s")),
            None if is_probe => parts.push("closed loop".to_owned()),
            _ => {}
        }
        let values = &spec.values;
        let axes =
            plan.parameters.iter().filter(|(_, value)| value.as_array().is_some_and(|list| list.len() > 1));
        parts.extend(axes.filter_map(|(name, _)| {
            let value = values.get(name)?;
            Some(format!("{name} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        }));
        parts.join(", ")
    }

    /// The load that its trials are driven with. `blocking`: each client holds a thread of its own.
    #[must_use]
    pub fn load(&self, plan: &Plan, spec: &WorkloadSpec, blocking: bool, seed: u64) -> Load {
        let extent = match (spec.ramp, plan.trace, plan.ops) {
            (Some(ramp), ..) => Extent::Operations(ramp.operations * u64::from(self.clients)),
            (None, Some(count), _) | (None, None, Some(count)) => Extent::Operations(count),
            (None, None, None) => Extent::Time(plan.duration.0),
        };
        let closed = Load::closed(spec.operations, extent);
        let load = Load {
            spans: spec.spans,
            scheduled: spec.scheduled.map(|clients| clients as usize),
            arrivals: match (self.rate, plan.arrivals) {
                (None, _) => Arrivals::Closed,
                (Some(rate), ArrivalKind::Constant) => Arrivals::Constant(rate),
                (Some(rate), ArrivalKind::Poisson) => Arrivals::Poisson(rate),
            },
            // a sequence has to begin with its first operation, so it has no warm-up
            warmup: if plan.trace.is_some() || !spec.warms_up { Duration::ZERO } else { plan.warmup.0 },
            timeout: plan.timeout.0,
            connect_timeout: plan.connect_timeout.0,
            max_retries: plan.max_retries,
            duty: plan.duty,
            // a capture of a sequence succeeds once the operations before it are done, so it is tried again
            on_refused: if plan.trace.is_some() { OnRefused::Retry(REFUSED_WAIT) } else { OnRefused::Count },
            threads: if blocking { (self.clients as usize).min(MOST_THREADS) } else { self.threads as usize },
            seed,
            ..closed
        };
        match (spec.ramp, extent) {
            (Some(Ramp { length, stay, give_up, retry, .. }), Extent::Operations(count)) => Load {
                ramp: (!stay).then_some(length),
                arrivals: if stay {
                    Arrivals::Constant(count as f64 / length.as_secs_f64())
                } else {
                    Arrivals::Closed
                },
                warmup: Duration::ZERO,
                timeout: give_up,
                on_refused: if retry { OnRefused::Retry(REFUSED_WAIT) } else { OnRefused::Count },
                ..load
            },
            _ => load,
        }
    }

    /// How long faults can be brought about in its trials.
    #[must_use]
    pub fn length(plan: &Plan, spec: &WorkloadSpec) -> Duration {
        spec.ramp.map_or(plan.duration.0, |ramp| ramp.length)
    }
}

/// All cells that a plan asks for.
pub struct Grid {
    /// The workload, once for each combination of its parameters.
    pub workloads: Vec<Box<dyn Workload>>,
    /// The faults of the cells' trials: those of the plan, or none.
    pub faults: Vec<Faults>,
    /// Every combination that is run.
    pub cells: Vec<Cell>,
    /// The combinations that no store can do, where the plan says to leave them out.
    pub left_out: Vec<String>,
}

impl Grid {
    /// Makes the plan's grid.
    ///
    /// # Errors
    /// Parameters that describe no workload, or combinations that a store cannot do, with the reason; nothing has
    /// been started yet.
    pub fn of(plan: &Plan, targets: &[Target]) -> Result<Self, Failure> {
        let kind = kind_of(&plan.workload)?;
        let workloads = workloads(kind, plan)?;
        let faults = if plan.faults.is_empty() { vec![Faults::default()] } else { plan.faults.clone() };
        let mut grid = Self { workloads, faults, cells: Vec::new(), left_out: Vec::new() };
        let mut refused = Refused::default();
        let mut alone = BTreeSet::new();
        for (target, each) in targets.iter().enumerate() {
            // a user's own server keeps the durability level that it has, and so does a store whose queues have their
            // own
            let levels = plan.durability.iter().take(if each.keeps_durability() { 1 } else { usize::MAX });
            for (workload, with) in grid.workloads.iter().enumerate() {
                let spec = with.spec();
                let loads = loads(plan, spec);
                let locks = locks(spec, &plan.locks);
                let encryptions = encryptions(plan, each, spec);
                let with_lock = |durability| locks.iter().map(move |lock| (durability, lock));
                let settings = levels.clone().flat_map(with_lock);
                let clusters = clusters(plan, each);
                let settings = settings.flat_map(|setting| encryptions.iter().map(move |tls| (setting, tls)));
                let settings =
                    settings.flat_map(|setting| clusters.iter().map(move |cluster| (setting, *cluster)));
                let policies = |nodes| policies(plan, nodes).into_iter();
                for ((((&durability, &lock), &tls), (nodes, replication)), reads) in
                    settings.flat_map(|setting| policies(setting.1.0).map(move |policy| (setting, policy)))
                {
                    let able = check(each, spec, durability, lock)
                        .and_then(|()| check_tls(each, spec, tls))
                        .and_then(|()| check_replication(each, nodes, replication))
                        .and_then(|()| check_reads(each, spec, (nodes, replication), reads));
                    if let Err(why) = able {
                        refused.lacking.insert(why);
                        continue;
                    }
                    let fits = check_embedded(spec, each, durability)
                        .and_then(|()| check_others_table(spec, each, &plan.namespace))
                        .and_then(|()| check_cluster(each, plan, spec, durability, (nodes, replication)))
                        .and_then(|()| check_read_workload(spec, lock, reads));
                    if let Err(why) = fits {
                        refused.unfit.insert(why);
                        continue;
                    }
                    for (index, faults) in grid.faults.iter().enumerate() {
                        if nodes == 1 && faults.need_several() && plan.nodes.iter().any(|nodes| *nodes > 1) {
                            alone.insert(format!(
                                "{}: one node has no other for --fault {faults}",
                                each.shown()
                            ));
                            continue;
                        }
                        let possible = check_members(faults, each, nodes)
                            .and_then(|()| check_left_to_read(faults, nodes, reads))
                            .and_then(|()| check_faults(faults, each, plan, spec, lock));
                        if let Err(why) = possible {
                            refused.unfit.insert(why);
                            continue;
                        }
                        let cell = |&(clients, rate)| Cell {
                            target,
                            workload,
                            durability,
                            tls,
                            nodes,
                            replication,
                            reads,
                            promotion: plan.promote,
                            linked: nodes > 1 && faults.cut(),
                            lock,
                            clients,
                            rate,
                            faults: index,
                            threads: 1,
                        };
                        grid.cells.extend(loads.iter().map(cell));
                    }
                }
            }
        }
        grid.assign_threads(plan, targets);
        grid.left_out.extend(alone);
        if refused.reasons().next().is_none() {
            return Ok(grid);
        }
        if !plan.skip_unsupported {
            return Err(refused.failure(!grid.cells.is_empty()));
        }
        if grid.cells.is_empty() {
            return Err(Failure::Usage(format!("nothing in the plan can be run:\n  {}", refused.lines())));
        }
        grid.left_out.extend(refused.reasons().map(str::to_owned));
        Ok(grid)
    }

    /// Gives all cells the same number of threads, so that they are told apart by nothing that was not asked for: the plan's
    /// number, or else the most that suits one of them and that it can use. None is without a client, and each process has one at least.
    fn assign_threads(&mut self, plan: &Plan, targets: &[Target]) {
        let cores = usable_cores();
        let suits = |cell: &Cell| {
            let ramp = self.workloads[cell.workload].spec().ramp;
            // what is due must begin in time, whoever else is at work
            let is_closed = cell.rate.is_none() && plan.capacity.is_none() && ramp.is_none();
            let target = &targets[cell.target];
            let is_here = target.address.as_ref().is_none_or(Address::is_on_this_machine);
            let is_server = target.kind().hosting != Hosting::InMemory;
            suitable(cell.clients, cores, is_closed && is_here && is_server).min(cell.clients)
        };
        let processes = plan.client_processes().unwrap_or(1).max(1);
        let threads = match plan.threads {
            Some(threads) => threads.max(processes),
            // each process drives as many clients
            None => self.cells.iter().map(suits).max().unwrap_or(cores).next_multiple_of(processes),
        };
        for cell in &mut self.cells {
            cell.threads = threads.min(cell.clients);
        }
    }
}

/// Every combination of a number of clients and a rate.
fn loads(plan: &Plan, spec: &WorkloadSpec) -> Vec<(u32, Option<f64>)> {
    let clients = spec.clients.map_or_else(|| plan.clients.clone(), |own| vec![own]);
    let rates: Vec<Option<f64>> =
        if plan.rates.is_empty() { vec![None] } else { plan.rates.iter().copied().map(Some).collect() };
    clients.iter().flat_map(|clients| rates.iter().map(|rate| (*clients, *rate))).collect()
}

/// The workload of this name.
///
/// # Errors
/// There is none; the message names those that there are.
pub(crate) fn kind_of(name: &str) -> Result<&'static WorkloadKind, Failure> {
    let names = || WORKLOADS.iter().map(|kind| kind.name);
    acidtest_workloads::workload(name).ok_or_else(|| {
        Failure::refused(
            "workload",
            format!(
                "unknown workload \"{name}\"{}\n  known are {}; a plan file ends in .toml",
                acidtest_model::hint(name, names()),
                names().collect::<Vec<_>>().join(", ")
            ),
        )
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
        return Err(Failure::refused(name, format!("{name} must have a value: nan and inf are not values")));
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
    Failure::refused(
        name,
        format!("{} has no parameter \"{name}\"{hint}\n  its own are {}", kind.name, known.join(", ")),
    )
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
    let must = acidtest_model::expected(error).zip(parameter).map(|(must, parameter)| {
        format!("{name} must be {must}, as in {}; it is the {}", parameter.default, parameter.meaning)
    });
    // an address may have a password
    let value =
        if value.as_str().is_some_and(|text| text.contains('@')) { "…".into() } else { value.to_string() };
    Failure::refused(name, format!("{}: {name} = {value}: {}", kind.name, must.as_deref().unwrap_or(error)))
}

/// The lock modes that have an effect on a workload, of those asked for.
fn locks(spec: &WorkloadSpec, asked: &[Lock]) -> Vec<Lock> {
    match spec.lock {
        Some(only) => vec![only],
        // a lock that is kept by another server would be taken in vain
        None if !spec.decides => {
            vec![asked.iter().copied().find(|lock| *lock != Lock::Hard).unwrap_or(Lock::None)]
        }
        None => asked.to_vec(),
    }
}

/// Whether the store can do the combination; the error is the reason why not.
fn check(target: &Target, spec: &WorkloadSpec, durability: Durability, lock: Lock) -> Result<(), String> {
    let (kind, name) = (target.kind(), spec.name);
    if let Support::No(why) = kind.workload(name) {
        return Err(format!("{} cannot carry {name}: {why}", kind.name));
    }
    if let (Support::No(why), true) = (kind.lock(lock), spec.decides) {
        let has = Lock::ALL.into_iter().filter(|each| kind.lock(*each).is_yes()).map(Lock::name);
        return Err(lacks(kind, "lock", lock.name(), why, has));
    }
    // a user's own server keeps its settings: they are read, not set
    if let (Support::No(why), false) = (kind.durability(durability), target.keeps_durability()) {
        let has =
            Durability::ALL.into_iter().filter(|each| kind.durability(*each).is_yes()).map(Durability::name);
        return Err(lacks(kind, "durability", durability.name(), why, has));
    }
    if let Some(level) = spec.isolation
        && let Support::No(why) = kind.isolation(level)
    {
        return Err(format!("{} has no isolation level {level}: {why}", kind.name));
    }
    if let (2.., Support::No(why)) = (spec.transaction, kind.transactions) {
        return Err(format!("{} has no transactions of several operations: {why}", kind.name));
    }
    if let (true, Support::No(why)) = (spec.refreshes, kind.refresh) {
        return Err(format!("{} has no refresh: {why}; leave --refresh out", kind.name));
    }
    let request = spec.request(lock);
    match (kind.refuses)(&request) {
        Some(why) if spec.decides => {
            Err(format!("{} cannot carry {name} with lock {lock} as asked: {why}", kind.name))
        }
        Some(why) => Err(format!("{} cannot carry {name} as asked: {why}", kind.name)),
        None => Ok(()),
    }
}

/// Whether clients' connections have TLS: as the plan says, but where an address of the user's own says it by itself.
fn encryptions(plan: &Plan, target: &Target, spec: &WorkloadSpec) -> Vec<Encryption> {
    let running = spec.running_service.as_ref().map(|service| service.tls);
    let said = running.or(target.address.as_ref().map(|address| address.tls.is_some()));
    match said {
        Some(true) => vec![Encryption::On],
        Some(false) => vec![Encryption::Off],
        None => plan.tls.clone(),
    }
}

/// Whether the connections to a private server can be encrypted as asked; the error is the reason why not.
fn check_tls(target: &Target, spec: &WorkloadSpec, tls: Encryption) -> Result<(), String> {
    let kind = target.kind();
    match kind.tls {
        _ if target.address.is_some() || tls == Encryption::Off => Ok(()),
        // its clients speak to a gateway
        Support::No(_) if kind.hosting == Hosting::Embedded && !spec.services.is_empty() => Ok(()),
        Support::No(why) => Err(format!("{} has no TLS: {why}; leave --tls out", kind.name)),
        Support::Yes(_) => Ok(()),
    }
}

/// Numbers of nodes, each with a replication level: as the plan says, but a user's own server has the nodes that it has, and one node
/// replicates to nobody.
fn clusters(plan: &Plan, target: &Target) -> Vec<(u32, Replication)> {
    let asked = if target.address.is_some() { &[1][..] } else { &plan.nodes };
    let mut all = Vec::new();
    for &nodes in asked {
        let levels = if nodes == 1 { &[Replication::None][..] } else { &plan.replication };
        // that of one node is meant for the one that is also asked for
        let is_for_one = |level: &Replication| nodes > 1 && level.is_none() && plan.nodes.contains(&1);
        all.extend(levels.iter().filter(|level| !is_for_one(level)).map(|level| (nodes, *level)));
    }
    all
}

/// Whether a cluster of the store can replicate as asked; the error is the reason why not.
fn check_replication(target: &Target, nodes: u32, level: Replication) -> Result<(), String> {
    let kind = target.kind();
    match kind.replication(level) {
        _ if nodes == 1 => Ok(()),
        _ if kind.replication.is_empty() => Err(format!(
            "{} has no clusters here: acidtest starts one node of it only; leave --nodes {nodes} out",
            kind.name
        )),
        _ if level.is_none() => Err(format!(
            "--replication none is that of one node (--nodes 1); --nodes {nodes} has async, quorum or all"
        )),
        Support::Yes(_) => Ok(()),
        Support::No(why) => {
            let is_had = |each: &Replication| !each.is_none() && kind.replication(*each).is_yes();
            let has = Replication::ALL.into_iter().filter(is_had).map(Replication::name);
            Err(lacks(kind, "replication", level.name(), why, has))
        }
    }
}

/// How clients read from so many nodes, as the plan says. Where only the leader answers, there is neither a route nor a level of
/// consistency.
fn policies(plan: &Plan, nodes: u32) -> Vec<ReadPolicy> {
    let asked = if nodes == 1 { &[Reads::Leader][..] } else { &plan.reads };
    let mut all = Vec::new();
    for &from in asked {
        if from.is_leader() {
            all.push(ReadPolicy::default());
            continue;
        }
        for &route in &plan.route {
            all.extend(plan.consistency.iter().map(|&consistency| ReadPolicy { from, route, consistency }));
        }
    }
    all
}

/// Whether replicas of the store can be read as asked; the error is the reason why not.
fn check_reads(
    target: &Target,
    spec: &WorkloadSpec,
    (nodes, replication): (u32, Replication),
    reads: ReadPolicy,
) -> Result<(), String> {
    let name = target.kind().name;
    if reads.is_leader() {
        return Ok(());
    }
    let Some(replicas) = target.kind().replica_reads else {
        return Err(format!("{name} is not read at replicas here: leave --reads {} out", reads.from));
    };
    if let Some(level) = spec.isolation.filter(|level| !replicas.isolation.contains(level)) {
        let has: Vec<&str> = replicas.isolation.iter().map(|level| level.name()).collect();
        return Err(format!(
            "replicas of {name} have no isolation {}: leave --reads {} out, or ask for default, {}",
            level.name(),
            reads.from,
            has.join(", ")
        ));
    }
    if reads.consistency == Consistency::Eventual {
        return Ok(());
    }
    let (least, how) = replicas
        .strong
        .map_err(|why| format!("{name} has no consistency strong: {why}; leave --consistency strong out"))?;
    // of two nodes, a majority is all of them
    let is_enough = replication >= least || (nodes == 2 && replication == Replication::Quorum);
    if is_enough {
        return Ok(());
    }
    Err(format!(
        "--consistency strong of {name} ({how}) needs --replication {least}: with {replication}, a write may be \
         acknowledged before the replica that is read has applied it"
    ))
}

/// Whether there are reads of the workload that replicas may answer, and whose age can be told; the error is the reason why not.
fn check_read_workload(spec: &WorkloadSpec, lock: Lock, reads: ReadPolicy) -> Result<(), String> {
    if reads.is_leader() {
        return Ok(());
    }
    spec.replica_reads.clone().map_err(|why| format!("--reads {}: {why}", reads.from))?;
    if spec.decides && !lock.promises() {
        return Err(format!(
            "--reads {} with --lock none: without a lock two updates may write the same version, and nobody can tell how old a read is; \
             ask for --lock native",
            reads.from
        ));
    }
    Ok(())
}

/// Whether some member is left to be read from whatever the faults do; the error is the reason why not.
fn check_left_to_read(faults: &Faults, nodes: u32, reads: ReadPolicy) -> Result<(), String> {
    let is_taken = |fault: &&Fault| fault.may_promote() || fault.disruption == Disruption::Lose;
    let moments = faults.0.iter().filter(is_taken).map(|fault| match fault.moment {
        Moment::At(_) => 1,
        Moment::Drawn(times) => times,
    });
    let taken: u32 = moments.sum();
    if reads.from == Reads::Replica && taken > 0 && taken + 1 >= nodes {
        return Err(format!(
            "--fault {faults} leaves a leader alone, of {nodes} nodes, and --reads replica has none to read from: ask for --nodes {}, \
             or --reads any",
            taken + 2
        ));
    }
    Ok(())
}

/// Whether the cell can be that of a cluster; the error is the reason why not.
fn check_cluster(
    target: &Target,
    plan: &Plan,
    spec: &WorkloadSpec,
    durability: Durability,
    (nodes, level): (u32, Replication),
) -> Result<(), String> {
    let name = target.kind().name;
    if nodes == 1 {
        return Ok(());
    }
    if durability == Durability::None && level > Replication::Async {
        return Err(format!(
            "{name} with durability none acknowledges before its log is written, and so waits for no replica: ask for \
             --replication async, or --durability disk"
        ));
    }
    if let Some(service) = spec.services.first() {
        return Err(format!(
            "the {service} in front of {name} knows one server, and does not follow another that is promoted: leave --nodes \
             {nodes} out"
        ));
    }
    if plan.client_processes().is_some() {
        return Err(format!(
            "--nodes {nodes} needs all clients in one process: leave --processes and --fault stall out"
        ));
    }
    Ok(())
}

/// Whether there are the members that the faults are done to; the error is the reason why not.
///
/// An injection that hits several members would give all that it interrupts to the last of them (`Injector::count`); so none does.
fn check_members(faults: &Faults, target: &Target, nodes: u32) -> Result<(), String> {
    let name = target.kind().name;
    let promotions = faults.0.iter().filter(|fault| fault.may_promote());
    let moments: Vec<u32> = promotions
        .map(|fault| match fault.moment {
            Moment::At(_) => 1,
            Moment::Drawn(times) => times,
        })
        .collect();
    if moments.iter().sum::<u32>() > 1 {
        return Err(format!(
            "--fault {faults}: a trial can lose its leader once, by one lose or one cut; a server that is named by its number \
             may lead by then, so name replicas as replica-1"
        ));
    }
    for fault in &faults.0 {
        let is_there = match fault.target {
            Selector::Member(member) if member == fault.target.role().into() => {
                !fault.disruption.is_of_cluster()
            }
            Selector::Member(member) => {
                member.number().is_some_and(|number| nodes > 1 && u32::from(number) <= nodes)
            }
            Selector::Leader => nodes > 1,
            Selector::Replica(number) => u32::from(number) < nodes,
            Selector::Minority => nodes.saturating_sub(1) / 2 == 1,
            Selector::All => false,
        };
        if is_there {
            continue;
        }
        return Err(match (nodes, fault.target) {
            (1, _) => format!(
                "{name} has one {}, and --fault {faults} is for stores with several ({fault}): write kill@3s or the like, or \
                 ask for --nodes 3",
                fault.target.role()
            ),
            (_, Selector::Minority | Selector::All) => format!(
                "--fault {faults} with --nodes {nodes}: a fault strikes one member; name it (leader, replica-1, server-2)"
            ),
            _ => format!(
                "--fault {faults}: no member is {} with --nodes {nodes}: there are leader, replica-1 to replica-{} and \
                 server-1 to server-{nodes}",
                fault.target,
                nodes - 1
            ),
        });
    }
    Ok(())
}

/// Whether the faults can be brought about in a cell; the error is the reason why not, with what would do.
fn check_faults(
    faults: &Faults,
    target: &Target,
    plan: &Plan,
    spec: &WorkloadSpec,
    lock: Lock,
) -> Result<(), String> {
    let kind = target.kind();
    if let (Some(_), Support::No(why)) = (plan.client_processes(), kind.processes) {
        let asked = if plan.processes.is_some() { "--processes" } else { "--fault stall" };
        return Err(format!("{} needs all its clients in one process: {why}; leave {asked} out", kind.name));
    }
    if faults.0.iter().any(|fault| fault.disruption == Disruption::Disconnect)
        && kind.hosting != Hosting::Program
        && spec.ramp.is_none()
    {
        return Err(format!(
            "{} has no connections for --fault {faults}: it runs in the process of its clients; servers have some",
            kind.name
        ));
    }
    if !faults.hit_servers() {
        return Ok(());
    }
    if kind.hosting == Hosting::InMemory {
        return Err(format!(
            "{} has no process of its own for --fault {faults}: it is acidtest's own memory; other stores have one",
            kind.name
        ));
    }
    let services = &spec.services;
    check_services(faults, services)?;
    // the last one is what stores
    if let (true, Some(last)) = (faults.hit(Role::Server), services.last())
        && kind.hosting == Hosting::Embedded
    {
        return Err(format!(
            "{} is part of the {last} and ends with it (--fault {faults}): write kill:{last}@3s or the like",
            kind.name
        ));
    }
    if target.address.is_some() {
        return check_commands(faults, target, plan, services);
    }
    let hits_locks = faults.hit(Role::Locks);
    let has_service = kind.lock_service && lock == Lock::Hard && spec.decides;
    if hits_locks && !has_service {
        return Err(format!(
            "{} with lock {lock} has no lock service for --fault {faults}; elasticsearch has one with lock hard",
            kind.name
        ));
    }
    if hits_locks && Address::parse(&plan.lock_service).is_ok() {
        return Err(format!(
            "--fault {faults} is for servers that acidtest starts, and the lock service is your own; --lock-service \
             redis starts one"
        ));
    }
    Ok(())
}

/// Whether a gateway in front of an embedded store leaves it the durability level, and can do what is asked for.
fn check_embedded(spec: &WorkloadSpec, target: &Target, durability: Durability) -> Result<(), String> {
    let kind = target.kind();
    if spec.ramp.is_none() || kind.hosting != Hosting::Embedded {
        return Ok(());
    }
    if durability != Durability::Disk {
        return Err(format!(
            "{} is opened by the gateway, which syncs it: leave --durability {durability} out",
            kind.name
        ));
    }
    if let Some(collectors @ 2..) = spec.collectors {
        return Err(format!(
            "{} takes one transaction at a time: leave --collectors {collectors} out",
            kind.name
        ));
    }
    Ok(())
}

/// Whether a gateway that runs already can store in this table there. What is in the run's namespace is removed with it.
fn check_others_table(spec: &WorkloadSpec, target: &Target, namespace: &str) -> Result<(), String> {
    let Some(RunningService { table, .. }) = &spec.running_service else { return Ok(()) };
    let name = target.kind().name;
    let Some(address) = &target.address else {
        return Err(format!(
            "--gateway needs --store ADDRESS: a running gateway stores in a database of your own, and {name} would be a \
             private one"
        ));
    };
    let schema = table.split_once('.').map(|(schema, _)| schema);
    let is_namespace = |name: Option<&str>| name.is_some_and(|name| name.eq_ignore_ascii_case(namespace));
    let is_in_namespace = match (name, schema) {
        ("sqlite", Some(_)) => return Err(format!("--table {table}: {name} has no schemas")),
        ("sqlite", None) => table.starts_with(&format!("{namespace}_logs_")),
        (_, Some(_)) => is_namespace(schema),
        // the first schema that is searched is the user's own
        ("postgres", None) => is_namespace(address.user.as_deref()),
        (_, None) if address.path.is_empty() => {
            return Err(format!(
                "--table {table}: name its database: --store {}/DATABASE, or --table DATABASE.{table}",
                target.shown().trim_end_matches('/')
            ));
        }
        (_, None) => is_namespace(Some(&address.path)),
    };
    if is_in_namespace {
        return Err(format!(
            "--table {table} would be in the run's namespace {namespace}, which is removed at the end: choose another \
             --namespace, or give the table's schema in --table"
        ));
    }
    Ok(())
}

/// Whether the services that faults are for are among those in front of the store.
fn check_services(faults: &Faults, services: &[Role]) -> Result<(), String> {
    let broker = "the workload logs has one with --queue rabbitmq or nats";
    let known = [
        (
            Role::Gateway,
            "no gateway of acidtest's own",
            "the workload logs has one, unless --gateway names another",
        ),
        (Role::Queue, "no broker", broker),
        (Role::Collector, "no collector of its own", broker),
    ];
    let missing = known.into_iter().find(|(role, ..)| faults.hit(*role) && !services.contains(role));
    missing.map_or(Ok(()), |(_, none, has)| Err(format!("--fault {faults}: there is {none}; {has}")))
}

/// Whether there is a command for each fault on a server of the user's own. The services in front of it are the lab's.
fn check_commands(faults: &Faults, target: &Target, plan: &Plan, services: &[Role]) -> Result<(), String> {
    let kind = target.kind();
    let on_theirs = |fault: &&Fault| !services.contains(&fault.target.role());
    if kind.hosting != Hosting::Program && faults.0.iter().any(|fault| on_theirs(&fault)) {
        return Err(format!(
            "--fault {faults} is not for a file of your own, {}; --store {} makes one",
            target.shown(),
            kind.name
        ));
    }
    for fault in faults.0.iter().filter(on_theirs) {
        let Some(wanted) = Commands::wanted(fault.disruption) else { continue };
        if fault.target.role() != Role::Server {
            return Err(format!(
                "--fault {faults}: with your own server, {}, only the server itself can be struck, by your own commands",
                target.shown()
            ));
        }
        let missing = wanted.into_iter().filter(|name| plan.commands.get(name).is_none());
        let missing: Vec<String> = missing.map(|name| format!("--on-{name} COMMAND")).collect();
        if !missing.is_empty() {
            return Err(format!(
                "--fault {faults} needs your own commands on {}: give {}; --store {} starts one that acidtest can strike \
                 itself, and disconnect and stall work with any",
                target.shown(),
                missing.join(" and "),
                kind.name
            ));
        }
    }
    Ok(())
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

/// Why combinations of a plan cannot be run.
#[derive(Default)]
struct Refused {
    lacking: BTreeSet<String>,
    /// What does not fit together; each says what would.
    unfit: BTreeSet<String>,
}

impl Refused {
    fn reasons(&self) -> impl Iterator<Item = &str> {
        self.lacking.iter().chain(&self.unfit).map(String::as_str)
    }

    fn lines(&self) -> String {
        self.reasons().collect::<Vec<_>>().join("\n  ")
    }

    /// The error for them; `is_rest` is whether other combinations can be run.
    fn failure(&self, is_rest: bool) -> Failure {
        let ask = (!self.lacking.is_empty()).then_some("ask for what the store has (see `acidtest stores`)");
        let skip = is_rest.then_some("leave out what cannot be run with --skip-unsupported");
        let remedies: Vec<&str> = ask.into_iter().chain(skip).collect();
        let head = if self.reasons().count() > 1 { "parts of the plan cannot be run:\n  " } else { "" };
        let remedy = match &*remedies {
            [] => String::new(),
            remedies => format!("\n  remedy: {}", remedies.join(", or ")),
        };
        Failure::Usage(format!("{head}{}{remedy}", self.lines()))
    }
}

/// How the store applies a lock mode, in its own words.
pub(crate) fn lock_how(kind: &StoreKind, spec: &WorkloadSpec, lock: Lock) -> &'static str {
    match kind.lock(lock) {
        _ if !spec.decides => NOTHING_TO_PROTECT,
        Support::Yes(how) | Support::No(how) => how,
    }
}
