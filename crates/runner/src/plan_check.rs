//! Checks a plan before anything is started: values that are out of range, and options that would be ignored. An
//! option that can have no effect in a plan is refused with the reason; nothing is accepted and left without effect.

use std::collections::{BTreeMap, BTreeSet};

use acidtest_model::{Address, Faults, Hosting, IdleOption, Measure, Objective, Span, count};
use acidtest_results::{CELLS, InSearch, OPTIONS, Plan, PlanOption, RefusedKind, Takes, option_of};
use acidtest_workloads::WorkloadSpec;
use serde_json::Value;

use crate::{
    Failure, Target,
    grid::{Grid, kind_of},
};

/// The keys and parameters of a plan that somebody asked for, and where: those given as options, and those whose
/// value is not the default. A plan file that names a default's own value does not ask for it: a saved plan names
/// every key.
pub struct GivenOptions<'a> {
    keys: BTreeSet<String>,
    /// The keys given on the command line.
    given: BTreeSet<&'static str>,
    /// The plan file's path, where there is one.
    file: Option<&'a str>,
    /// Whether the plan is of a search, whose options have other names.
    searches: bool,
    /// Whether the plan is a document of its own: its keys are named as they are in it.
    is_document: bool,
}

impl<'a> GivenOptions<'a> {
    /// The keys that a plan asks for that comes from no file.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        Self::with(plan, None, [])
    }

    /// The keys that a plan asks for that comes from this file, if there is one, and from the options `given` on the
    /// command line.
    pub fn with(plan: &Plan, file: Option<&'a str>, given: impl IntoIterator<Item = &'static str>) -> Self {
        let given: BTreeSet<&'static str> = given.into_iter().collect();
        let differing = OPTIONS.iter().filter(|option| !option.is_usual(plan)).flat_map(PlanOption::keys);
        let keys = differing.chain(given.iter().copied()).map(str::to_owned);
        Self {
            keys: keys.chain(plan.parameters.keys().cloned()).collect(),
            given,
            file,
            searches: plan.capacity.is_some(),
            is_document: false,
        }
    }

    /// The keys that a plan asks for that is a document of its own, such as the body of a request.
    #[must_use]
    pub fn of_document(plan: &Plan) -> Self {
        Self { is_document: true, ..Self::of(plan) }
    }

    /// The error for a key whose value is wrong in this way, with its place before it.
    #[must_use]
    pub fn wrong(&self, key: &str, said: &str) -> Failure {
        let said = match self.file {
            Some(file) if self.is_of_file(key) => format!("{file}: in {key}: {said}"),
            _ if self.is_document => format!("in {key}: {said}"),
            _ => format!("{} {said}", self.option(key)),
        };
        Failure::refused(key, said)
    }

    /// The option that a key of the plan has on the command line.
    fn option(&self, key: &str) -> String {
        let name = match option_of(key) {
            Some(option) => option.name(self.searches),
            None if key == "commands" => "on-kill (-stop, -start, -pause, -resume)",
            // a parameter of the workload
            None => key,
        };
        format!("--{}", name.replace('_', "-"))
    }

    fn has(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    /// Whether a key's value comes from the file and not from the command line.
    #[must_use]
    pub fn is_of_file(&self, key: &str) -> bool {
        self.file.is_some() && !self.given.contains(key)
    }

    /// A key as the user wrote it: in the file, or as an option.
    #[must_use]
    pub fn named(&self, key: &str) -> String {
        if self.is_document || self.is_of_file(key) { key.to_owned() } else { self.option(key) }
    }

    /// The error for a key without effect. `what` is the key in the plan, followed by the value where only that has
    /// no effect.
    fn refused(&self, what: &str, why: &str) -> Failure {
        let key = key_of(what);
        match self.file {
            Some(file) if self.is_of_file(key) => Failure::refused(
                key,
                format!("{file}: {what} has no effect here: {why}\n  remedy: take it out of the file"),
            ),
            _ => {
                let option = what.replacen(key, &self.named(key), 1);
                Failure::refused(key, format!("{option} has no effect here: {why}\n  remedy: leave it out"))
            }
        }
    }
}

fn key_of(what: &str) -> &str {
    what.split_once(' ').map_or(what, |(key, _)| key)
}

/// Checks a plan by itself, without its workloads and stores.
///
/// # Errors
/// Those of [`in_range`], and options that contradict each other.
pub fn check(plan: &Plan, asked: &GivenOptions<'_>) -> Result<(), Failure> {
    in_range(plan, |key| asked.named(key))?;
    contradictions(plan, asked)
}

/// Checks each value of a plan, and how many cells its lists make. `named` says how a key was written.
///
/// # Errors
/// The first value that is out of range or given twice.
pub fn in_range(plan: &Plan, named: impl Fn(&str) -> String) -> Result<(), Failure> {
    let broken = OPTIONS.iter().find_map(|option| {
        let (must, _) = option.rules.iter().find(|(_, is_so)| !is_so(plan))?;
        Some(Failure::refused(option.key, format!("{} must {must}", named(option.key))))
    });
    if let Some(refused) = broken {
        return Err(refused);
    }
    if plan.on_refused == RefusedKind::Retry && plan.trace.is_none() {
        return Err(Failure::refused(
            "on_refused",
            "on_refused retry has no effect here: without a sequence (trace), all clients may end up waiting for something \
             that nobody is bound to do",
        ));
    }
    let cells = plan.most_cells();
    if cells.is_none_or(|cells| cells > CELLS) {
        let many = cells.map_or_else(|| "more than can be counted".to_owned(), |cells| count(cells as u64));
        return Err(Failure::Usage(format!(
            "its lists make {many} cells, and a run has at most {}: give shorter lists",
            count(CELLS as u64)
        )));
    }
    for option in OPTIONS.iter().filter(|option| option.takes == Takes::List) {
        if let Some(twice) = repeated(&option.typed(plan)) {
            let why = if option.is_axis() {
                ": its cells would be the same".to_owned()
            } else {
                format!(" ({})", named(option.key))
            };
            return Err(Failure::refused(option.key, format!("{twice} is given twice{why}")));
        }
    }
    for (name, value) in &plan.parameters {
        if let Some(twice) = value.as_array().and_then(|values| repeated(values)) {
            return Err(Failure::refused(
                name,
                format!("{twice} is given twice: its cells would be the same"),
            ));
        }
    }
    namespace(&plan.namespace, &named("namespace"))
}

/// Refuses a search where no rate can be set, and objectives of operations that the workload does not do.
fn searchable(plan: &Plan, workload: &WorkloadSpec, named: &impl Fn(&str) -> String) -> Result<(), Failure> {
    let Some(search) = &plan.capacity else { return Ok(()) };
    let refused =
        |why: &str| Err(Failure::Usage(format!("`capacity` does not support {}: {why}", plan.workload)));
    if workload.ramp.is_some() {
        return refused(
            "its clients arrive over a ramp, do their share and leave; no rate can be set for them (--ramp, --clients)",
        );
    }
    if !workload.is_paced {
        return refused("the backlog is consumed as fast as possible (--phase consume)");
    }
    let known: Vec<&str> = workload.does.iter().chain(workload.spans).copied().collect();
    let of = |objective: &Objective| {
        objective.operation.clone().map(|operation| (objective.to_string(), operation))
    };
    let unknown =
        search.slo.iter().filter_map(of).find(|(_, operation)| !known.contains(&operation.as_str()));
    let of_span = |objective: &&Objective| {
        let named = objective.operation.as_deref();
        objective.measure == Measure::Errors && named.is_some_and(|name| workload.spans.contains(&name))
    };
    if let Some(objective) = search.slo.iter().find(of_span) {
        return Err(Failure::refused(
            "slo",
            format!(
                "{} {objective}: a time from one event to another has no errors\n  remedy: a percentile, or the errors of an operation",
                named("slo")
            ),
        ));
    }
    match unknown {
        Some((objective, operation)) => Err(Failure::refused(
            "slo",
            format!(
                "{} {objective}: {} with these parameters does no \"{operation}\"{}\n  remedy: one of {}",
                named("slo"),
                plan.workload,
                acidtest_model::hint(&operation, known.iter().copied()),
                known.join(", ")
            ),
        )),
        None => Ok(()),
    }
}

/// Refuses faults that are not over by the end of the measured part, or of the ramp where clients come and go.
fn in_time(plan: &Plan, workload: &WorkloadSpec, named: impl Fn(&str) -> String) -> Result<(), Failure> {
    let (length, part, option) = match workload.ramp {
        Some(ramp) => (Span(ramp.length), "ramp", "ramp"),
        None if plan.ops.is_some() || plan.trace.is_some() => return Ok(()),
        None => (plan.duration, "measured part", "duration"),
    };
    let late = |faults: &&Faults| faults.last().is_some_and(|last| last >= length.0);
    let lasts = |faults: &&Faults| faults.over() > length.0;
    let refused = |faults: &Faults, what, remedy| {
        Failure::refused(
            "faults",
            format!(
                "{} {faults} {what} of the {part}, which lasts {length}\n  remedy: {remedy}, or a longer {}",
                named("faults"),
                named(option)
            ),
        )
    };
    if let Some(faults) = plan.faults.iter().find(late) {
        return Err(refused(faults, "comes after the end", "an earlier moment"));
    }
    match plan.faults.iter().find(lasts) {
        Some(faults) => Err(refused(faults, "is not over by the end", "an earlier moment, a shorter time")),
        None => Ok(()),
    }
}

/// The first value that a list holds twice, if there is one.
fn repeated<T: PartialEq + ToString>(list: &[T]) -> Option<String> {
    let twice = list.iter().enumerate().find(|(index, each)| list[..*index].contains(each));
    twice.map(|(_, each)| each.to_string())
}

/// Refuses what cannot be the name of a namespace on every store.
pub fn namespace(name: &str, key: &str) -> Result<(), Failure> {
    let is_plain =
        name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
    let begins = name.starts_with(|first: char| !first.is_ascii_digit());
    if is_plain && begins && name.len() <= 40 {
        return Ok(());
    }
    Err(Failure::refused(
        "namespace",
        format!(
            "{key} \"{name}\" is invalid: use lower-case letters, digits and _, at most 40, no digit first"
        ),
    ))
}

/// A check for an option without effect: the key in the plan, followed by the value where only that has no effect;
/// whether it has none; and the reason.
type Row = (&'static str, bool, &'static str);

/// Refuses options that rule each other out, whatever the workload and the stores are.
fn contradictions(plan: &Plan, asked: &GivenOptions<'_>) -> Result<(), Failure> {
    let searches = plan.capacity.is_some();
    let of_search = OPTIONS.iter().filter(|option| searches && asked.has(option.key));
    let mut idle_in_search = of_search.filter_map(|option| match option.in_search {
        InSearch::Idle(why) => Some(asked.refused(option.key, why)),
        InSearch::Same | InSearch::As(..) => None,
    });
    if let Some(refused) = idle_in_search.next() {
        return Err(refused);
    }
    let traced = plan.trace.is_some();
    let strikes = plan.faults.iter().any(|faults| !faults.is_none());
    let endless = "faults come at points in time, and the measured part is a number of operations";
    let stalls = plan.faults.iter().any(Faults::stall);
    let apart = plan.client_processes().is_some();
    let grows = acidtest_workloads::workload(&plan.workload).is_some_and(|kind| kind.demand.is_some());
    let rows: [Row; 13] = [
        ("growth", searches && plan.demand.is_none(), "it is the demand that grows: give one with --demand"),
        ("fits", !grows, "only the workload parcels reports how large its table is"),
        (
            "demand",
            !searches && (!grows || plan.fits.is_none()),
            "it is compared with the rows that fit (--fits), which only parcels reports",
        ),
        ("faults", strikes && (traced || plan.ops.is_some()), endless),
        (
            "processes",
            stalls && plan.processes == Some(1),
            "a stall stops one client process while others continue: it needs at least two",
        ),
        (
            "processes",
            traced && apart,
            "the operations of a sequence are taken in order, in one process (--trace)",
        ),
        ("duration", plan.ops.is_some(), "the measured part is a number of operations (--ops)"),
        ("duration", traced, "a sequence is replayed to its end (--trace)"),
        (
            "duty",
            plan.duty < 1.0 && !plan.rates.is_empty(),
            "operations come at a rate, and clients rest between them anyway",
        ),
        ("ops", traced, "a sequence has its own number of operations (--trace)"),
        (
            "warmup",
            traced && !plan.warmup.0.is_zero(),
            "a sequence is measured from its first operation (--trace)",
        ),
        ("rates", traced, "a sequence is replayed in a closed loop (--trace)"),
        ("arrivals", plan.rates.is_empty() && !searches, "a closed loop has no schedule: it needs --rate"),
    ];
    refuse(&rows, asked)
}

/// Checks the options that were asked for against the workloads, stores and cells of the plan.
///
/// # Errors
/// The first option or parameter that would be without effect, with the reason.
pub fn check_effect(
    plan: &Plan,
    asked: &GivenOptions<'_>,
    grid: &Grid,
    targets: &[Target],
) -> Result<(), Failure> {
    // workloads that are left out, because no store can do them, are not considered
    let with_cells: BTreeSet<usize> = grid.cells.iter().map(|cell| cell.workload).collect();
    let workloads: Vec<&WorkloadSpec> =
        with_cells.into_iter().map(|index| grid.workloads[index].spec()).collect();
    let with_cells: BTreeSet<usize> = grid.cells.iter().map(|cell| cell.target).collect();
    let used: Vec<&Target> = with_cells.into_iter().map(|index| &targets[index]).collect();
    let locks_are_kept = grid.cells.iter().any(|cell| cell.needs_lock_service(targets));
    let own_locks = Address::parse(&plan.lock_service).is_ok();
    let own_stores = used.iter().any(|target| target.address.is_some());
    let own_servers = own_stores || (locks_are_kept && own_locks);
    let most_clients = grid.cells.iter().map(|cell| cell.clients).max().unwrap_or_default();
    let (ruled, warmed) = (plan.locks.as_slice(), !plan.warmup.0.is_zero());
    let alone = |cell: &crate::Cell| cell.clients < 2 && grid.faults[cell.faults].stall();
    let rows: [Row; 19] = [
        (
            "locks",
            workloads.iter().all(|workload| !workload.decides),
            "the workload takes no lock: there is nothing to protect by one",
        ),
        (
            "locks",
            workloads.iter().any(|each| each.lock.is_some_and(|only| each.decides && ruled != [only])),
            "the workload makes sense under one lock mode only, and uses that one",
        ),
        (
            "clients",
            workloads.iter().any(|workload| workload.clients.is_some()),
            "the workload's parameters set the number of clients (--producers, --consumers)",
        ),
        (
            "durability",
            used.iter().all(|target| target.keeps_durability()),
            "your own server keeps its settings, and a message broker has the durability of its messages and queues \
             (--persistent, --queue); the report shows the resulting level",
        ),
        (
            "tls",
            used.iter().all(|target| target.address.is_some()),
            "the address of your own server says whether TLS is used (see docs/tls.md)",
        ),
        (
            "warmup",
            warmed && !workloads.iter().any(|workload| workload.warms_up),
            "a warm-up would use up what is to be measured",
        ),
        (
            "rates",
            workloads.iter().any(|workload| !workload.is_paced),
            "the backlog is consumed as fast as possible (--phase consume)",
        ),
        (
            "ops",
            workloads.iter().any(|workload| !workload.is_paced),
            "the whole backlog is consumed (--phase consume): --backlog sets its size",
        ),
        (
            "trace",
            !workloads.iter().all(|workload| workload.replays),
            "the workload has no sequence to replay",
        ),
        (
            "threads",
            hold_threads(plan, &used, &workloads),
            "an embedded store occupies its client's thread: each client has its own",
        ),
        (
            "threads",
            plan.threads.is_some_and(|threads| threads > most_clients),
            "no cell has that many clients, and a thread without a client does nothing",
        ),
        (
            "faults",
            grid.cells.iter().any(alone),
            "a stall stops one client process while others continue: it needs at least two clients",
        ),
        (
            "processes",
            plan.processes.is_some_and(|processes| processes > most_clients),
            "no cell has that many clients, and a process without a client does nothing",
        ),
        (
            "commands",
            !plan.faults.iter().any(Faults::hit_servers),
            "no --fault such as kill@3s strikes a server",
        ),
        (
            "connect_timeout",
            nobody_connects(plan, &used, &workloads),
            "clients of an embedded store have no connections: no cell has a server",
        ),
        ("commands", !own_stores, "they are for servers of your own, and no cell has one"),
        ("replace", !own_servers, "a private server is new and has no namespace to replace"),
        ("keep", !own_servers, "a private server is removed with everything in it"),
        ("lock_service", !locks_are_kept, "no cell needs a lock service"),
    ];
    refuse(&rows, asked)?;
    refuse(&of_clusters(grid, &used), asked)?;
    workloads.iter().try_for_each(|workload| searchable(plan, workload, &|key| asked.named(key)))?;
    workloads.iter().try_for_each(|workload| in_time(plan, workload, |key| asked.named(key)))?;
    refuse_idle(plan, asked, &idle_in(plan, grid, targets)?)
}

/// The options of clusters that have no effect on any cell.
fn of_clusters(grid: &Grid, used: &[&Target]) -> [Row; 6] {
    let no_replicas = if used.iter().all(|target| target.address.is_some()) {
        "your own server is read where it is written: acidtest reads at replicas of clusters that it starts"
    } else if used.iter().all(|target| target.kind().replica_reads.is_none()) {
        "acidtest starts no replicas of this store"
    } else {
        "one node has no replicas to read from: ask for --nodes 3"
    };
    [
        (
            "nodes",
            used.iter().all(|target| target.address.is_some()),
            "your own server has the nodes that it has: acidtest starts clusters of its own only",
        ),
        (
            "replication",
            grid.cells.iter().all(|cell| cell.nodes == 1),
            "one node replicates to nobody: ask for --nodes 3",
        ),
        ("reads", grid.cells.iter().all(|cell| cell.nodes == 1), no_replicas),
        (
            "route",
            grid.cells.iter().all(|cell| cell.reads.is_leader()),
            "all reads go to the leader: ask for --reads replica or any",
        ),
        (
            "consistency",
            grid.cells.iter().all(|cell| cell.reads.is_leader()),
            "no replica is read: ask for --reads replica or any",
        ),
        (
            "promote",
            !grid.cells.iter().any(|cell| cell.nodes > 1 && grid.faults[cell.faults].promote()),
            "nobody is promoted: no --fault such as lose:leader@3s or cut:leader@3s:4s strikes a cluster",
        ),
    ]
}

/// Whether all clients hold their threads, as those of an embedded store do that has no host and no gateway before it.
fn hold_threads(plan: &Plan, used: &[&Target], workloads: &[&WorkloadSpec]) -> bool {
    used.iter().all(|target| target.kind().hosting == Hosting::Embedded)
        && nobody_connects(plan, used, workloads)
}

/// Whether no client connects to anything: neither to a store, nor to its host or a gateway before it.
fn nobody_connects(plan: &Plan, used: &[&Target], workloads: &[&WorkloadSpec]) -> bool {
    used.iter().all(|target| target.kind().hosting != Hosting::Program)
        && workloads.iter().all(|workload| workload.ramp.is_none())
        && !plan.faults.iter().any(Faults::hit_servers)
}

fn refuse(rows: &[Row], asked: &GivenOptions<'_>) -> Result<(), Failure> {
    let idle = rows.iter().find(|(what, is_idle, _)| *is_idle && asked.has(key_of(what)));
    idle.map_or(Ok(()), |(what, _, why)| Err(asked.refused(what, why)))
}

/// Keys of a plan that have no effect in one case, each with the reason.
type IdleKeys = BTreeMap<&'static str, String>;

/// The keys without effect in each case of the plan, where a case is a workload on a store in a lock mode: because of
/// the workload's other parameters, or because of the store.
fn idle_in(plan: &Plan, grid: &Grid, targets: &[Target]) -> Result<Vec<IdleKeys>, Failure> {
    let combinations = plan.combinations();
    let idle_beside = kind_of(&plan.workload)?.idle;
    let cases: BTreeSet<_> = grid.cells.iter().map(|cell| (cell.workload, cell.target, cell.lock)).collect();
    let idle = cases.into_iter().map(|(workload, target, lock)| {
        let kind = targets[target].kind();
        let beside = idle_beside(&combinations[workload]);
        let beside = beside.into_iter().map(|IdleOption { name, why }| (name, why.to_owned()));
        let on_store = (kind.idle)(&grid.workloads[workload].spec().request(lock));
        let on_store =
            on_store.iter().map(|IdleOption { name, why }| (*name, format!("{}: {why}", kind.name)));
        on_store.chain(beside).collect()
    });
    Ok(idle.collect())
}

/// Refuses keys that have an effect in no case, and axes that have none in some case: cells there would be the same.
fn refuse_idle(plan: &Plan, asked: &GivenOptions<'_>, cases: &[IdleKeys]) -> Result<(), Failure> {
    for key in &asked.keys {
        let without: Vec<&String> = cases.iter().filter_map(|idle| idle.get(key.as_str())).collect();
        let values = plan.parameters.get(key).and_then(Value::as_array);
        let is_axis = values.is_some_and(|values| values.len() > 1);
        if let Some(why) = without.first()
            && (is_axis || without.len() == cases.len())
        {
            return Err(asked.refused(key, why));
        }
    }
    Ok(())
}
