//! From what is asked for to an order that is ready to run: plans are checked, and their stores found.

use std::{path::Path, time::Duration};

use acidtest_model::{Hosting, Span, count};
use acidtest_results::{CapacityPlan, CellResult, LOCK_SERVICES, Plan, RefusedKind, RunResult};
use acidtest_runner::{
    Cell, Failure, Grid, Order, Target,
    plan_check::{self, GivenOptions},
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{output, plan_file, run_arguments::Run, target};

/// Finds the store, or the server, that a plan names.
pub(crate) type Find<'a> = &'a dyn Fn(&str) -> Result<Target, Failure>;

/// Whether a run went to its end without interruption, and no trial is missing.
pub(crate) fn is_complete(result: &RunResult) -> bool {
    let has_all = |cell: &CellResult| match &cell.capacity {
        Some(found) => found.finished && cell.error.is_none(),
        None if result.plan.capacity.is_some() => false,
        None => cell.error.is_none() && cell.made_trials().count() as u64 >= u64::from(result.plan.trials),
    };
    !result.interrupted && result.cells.iter().all(has_all)
}

/// The plan that the arguments describe, checked, with its grid. The plan's own list of stores never holds a
/// password.
pub(crate) fn order(run: &Run) -> Result<Order, Failure> {
    let what = run.what.as_deref().unwrap_or_default();
    let is_file = Path::new(what).extension().is_some_and(|extension| extension == "toml");
    let mut plan = if is_file { plan_file::load(Path::new(what))? } else { Plan::of(what) };
    let filed = is_file.then(|| plan.clone());
    if is_file {
        plan_check::in_range(&plan, str::to_owned).map_err(|failure| failure.of(what))?;
    }
    run.apply_to(&mut plan);
    let asked = GivenOptions::with(&plan, is_file.then_some(what), run.given());
    let targets = parsed(&plan.stores).map_err(|failure| match failure {
        Failure::Usage(said) if asked.is_of_file("stores") => {
            Failure::Usage(format!("{what}: in stores: {said}"))
        }
        failure => failure,
    })?;
    plan.stores = targets.iter().map(Target::shown).collect();
    plan_check::check(&plan, &asked)?;
    let grid = Grid::of(&plan, &targets).map_err(|failure| {
        // an error that the file has by itself is reported as the file's, whatever else the command line says
        let own = filed.as_ref().and_then(|filed| Grid::of(filed, &parsed(&filed.stores).ok()?).err());
        let is_of_file = own.is_some_and(|own| own.to_string() == failure.to_string());
        if is_of_file { failure.of(what) } else { failure }
    })?;
    completed(id(), plan, targets, grid, &asked, &target::parse)
}

/// The order of a plan that comes from no command line and whose stores were found, as `id`.
#[cfg(feature = "serve")]
pub(crate) fn of_plan(
    id: String,
    mut plan: Plan,
    targets: Vec<Target>,
    find: Find<'_>,
) -> Result<Order, Failure> {
    plan.stores = targets.iter().map(Target::shown).collect();
    plan_check::in_range(&plan, str::to_owned)?;
    let asked = GivenOptions::of_document(&plan);
    plan_check::check(&plan, &asked)?;
    let grid = Grid::of(&plan, &targets)?;
    completed(id, plan, targets, grid, &asked, find)
}

/// Checks a plan beside its grid, and finds the server of its locks.
fn completed(
    id: String,
    mut plan: Plan,
    targets: Vec<Target>,
    grid: Grid,
    asked: &GivenOptions<'_>,
    find: Find<'_>,
) -> Result<Order, Failure> {
    plan_check::check_effect(&plan, asked, &grid, &targets)?;
    if !cfg!(feature = "gateway")
        && grid.workloads.iter().any(|workload| !workload.spec().services.is_empty())
    {
        return Err(Failure::Usage(format!(
            "{} needs a gateway, and this acidtest was built without one\n  remedy: build it with --features gateway",
            plan.workload
        )));
    }
    let connected = Connected::of(&plan, &grid, &targets);
    connected.check(connected.open_files())?;
    let lock_service = lock_service(&plan, &grid, &targets, find).map_err(|failure| match failure {
        Failure::Usage(said) => asked.wrong("lock_service", &said),
        failure => failure,
    })?;
    // the password of the address is for the run, not for the plan
    if let Some(service) = &lock_service {
        plan.lock_service = service.shown();
    }
    Ok(Order { id, plan, targets, lock_service, grid, begun: None })
}

/// For what a process has open besides the connections of its clients.
const OTHERS: u64 = 200;

/// The most clients of a process that have a connection at once.
#[derive(Clone, Copy, Debug)]
struct Connected {
    /// Of those that come and go: each takes its file when others may have taken all.
    coming: u64,
    /// Of those that stay on a server: each has a file of its own for sure.
    staying: u64,
}

impl Connected {
    fn of(plan: &Plan, grid: &Grid, targets: &[Target]) -> Self {
        let processes = plan.client_processes().unwrap_or(1).max(1);
        let comes = |cell: &&Cell| grid.workloads[cell.workload].spec().ramp.is_some();
        let stays = |cell: &&Cell| !comes(cell) && targets[cell.target].kind().hosting == Hosting::Program;
        let most = |which: &dyn Fn(&&Cell) -> bool| {
            let clients = grid.cells.iter().filter(which).map(|cell| cell.clients).max();
            clients.unwrap_or_default().div_ceil(processes).into()
        };
        Self { coming: most(&comes), staying: most(&stays) }
    }

    /// How many files a process can have open: as many as are enough for sure, if the limit can be raised, which root mostly may.
    fn open_files(self) -> u64 {
        let enough = self.coming.max(self.staying) + OTHERS;
        let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let raised = Rlimit { current: Some(enough), maximum: Some(enough) };
        if enough > limit && setrlimit(Resource::Nofile, raised).is_ok() { enough } else { limit }
    }

    /// Refuses more of them than files can be open, which are so many.
    fn check(self, files: u64) -> Result<(), Failure> {
        let most = if self.coming > 0 && self.coming + OTHERS > files {
            self.coming
        } else if self.staying > files {
            self.staying
        } else {
            return Ok(());
        };
        Err(Failure::Usage(format!(
            "{} clients may be connected at once, and a process can have {} files open\n  remedy: raise that to {} (ulimit \
             -Hn), fewer --clients, or --processes to spread them",
            count(most),
            count(files),
            count(most + OTHERS)
        )))
    }
}

fn parsed(stores: &[String]) -> Result<Vec<Target>, Failure> {
    stores.iter().map(|text| target::parse(text)).collect()
}

/// For how many seconds the trials of the cells are driven, at least and at most, where the plan says it.
pub(crate) fn driven_seconds(plan: &Plan, grid: &Grid) -> Option<(f64, f64)> {
    let each = plan.warmup.0 + plan.duration.0;
    let Some(search) = &plan.capacity else {
        let of = |cell: &Cell| match grid.workloads[cell.workload].spec().ramp {
            // their clients come over the ramp, and do not stay for a time
            Some(ramp) => Some(ramp.length),
            None if plan.ops.is_some() || plan.trace.is_some() => None,
            None => Some(each),
        };
        let all: Option<Vec<f64>> = grid.cells.iter().map(|cell| Some(of(cell)?.as_secs_f64())).collect();
        let seconds = all?.iter().sum::<f64>() * f64::from(plan.trials);
        return Some((seconds, seconds));
    };
    let (least, _) = search.expected_probes(plan);
    let shortest = (plan.warmup.0 + search.shortest(plan).0).as_secs_f64();
    let first = (plan.warmup.0 + plan.duration.0.min(CapacityPlan::CLOSED_LOOP)).as_secs_f64();
    let (cells, budget) = (grid.cells.len() as f64, search.budget.0.as_secs_f64());
    let most = budget.min(each.as_secs_f64() * f64::from(search.probes) + first);
    Some(((shortest * f64::from(least) + first).min(most) * cells, most * cells))
}

/// Settles the values of a run's plan that its workload decides. A saved plan keeps them unsettled: if the workload's
/// parameters in it are changed, the defaults apply.
pub(crate) fn settle(order: &mut Order) {
    if !order.grid.workloads.iter().any(|workload| workload.spec().warms_up) {
        order.plan.warmup = Span(Duration::ZERO);
    }
    if order.plan.trace.is_some() {
        order.plan.on_refused = RefusedKind::Retry;
    }
}

/// The server that keeps hard locks for stores that have none of their own; none where no cell needs it, so that it
/// need not be in this build.
fn lock_service(
    plan: &Plan,
    grid: &Grid,
    targets: &[Target],
    find: Find<'_>,
) -> Result<Option<Target>, Failure> {
    if !grid.cells.iter().any(|cell| cell.needs_lock_service(targets)) {
        return Ok(None);
    }
    let service = find(&plan.lock_service)?;
    if !LOCK_SERVICES.contains(&service.kind().name) {
        return Err(Failure::Usage(format!(
            "{}: locks are kept on {}, or at an address of theirs",
            service.shown(),
            LOCK_SERVICES.join(" or ")
        )));
    }
    Ok(Some(service))
}

/// The rest of an interrupted run: its plan, checked again, and the result so far.
pub(crate) fn resumed(run: &Run, file: &Path) -> Result<Order, Failure> {
    let mut begun = output::load(file)?;
    if run.grid.given.plan.commands != begun.plan.commands {
        // a result file may come from anywhere: what it says is not run
        return Err(no_going_on(
            file,
            "its commands (--on-kill and the like) are taken from the command line only; give the same ones again",
        ));
    }
    let mut asked = begun.plan.clone();
    run.apply_to(&mut asked);
    // more of the same search: what was probed stays what it was, and what follows from it is found anew
    if let (Some(search), Some(more)) = (&mut begun.plan.capacity, &asked.capacity)
        && more.budget.0 >= search.budget.0
        && more.probes >= search.probes
    {
        (search.budget, search.probes) = (more.budget, more.probes);
        begun.find_capacities().map_err(|error| no_going_on(file, &error.to_string()))?;
    }
    if asked != begun.plan {
        return Err(no_going_on(
            file,
            "a run is resumed with the plan that it began with; leave other options out (a search may be given a larger \
             --budget or more --probes)",
        ));
    }
    let targets = parsed(&begun.plan.stores).map_err(|failure| of_begun(failure, file))?;
    going_on(begun, targets, file, &target::parse)
}

fn no_going_on(file: &Path, why: &str) -> Failure {
    Failure::Usage(format!("cannot resume {}: {why}", file.display()))
}

fn of_begun(failure: Failure, file: &Path) -> Failure {
    failure.of(&format!("cannot resume {}", file.display()))
}

/// The rest of a run that was begun on these stores, whose result is in this file.
pub(crate) fn going_on(
    begun: RunResult,
    targets: Vec<Target>,
    file: &Path,
    find: Find<'_>,
) -> Result<Order, Failure> {
    let of_file = |failure: Failure| of_begun(failure, file);
    plan_check::in_range(&begun.plan, str::to_owned).map_err(of_file)?;
    plan_check::check(&begun.plan, &GivenOptions::of(&begun.plan)).map_err(of_file)?;
    let mut grid = Grid::of(&begun.plan, &targets).map_err(of_file)?;
    let same = |(cell, then): (&Cell, &CellResult)| {
        let spec = grid.workloads[cell.workload].spec();
        let unmade = cell.unmade(&targets[cell.target], spec, &grid.faults[cell.faults]);
        unmade.dimensions() == then.dimensions()
    };
    if grid.cells.len() != begun.cells.len() || !grid.cells.iter().zip(&begun.cells).all(same) {
        return Err(no_going_on(
            file,
            "this acidtest makes other cells from its plan; use the one that started it",
        ));
    }
    for (cell, then) in grid.cells.iter_mut().zip(&begun.cells) {
        // with others than the trials had that there are, the mean over all would be of neither
        if let (Some(threads), false) = (then.threads, then.trials.is_empty()) {
            cell.threads = threads;
        }
    }
    let lock_service = lock_service(&begun.plan, &grid, &targets, find).map_err(of_file)?;
    let (id, plan) = (begun.run.clone(), begun.plan.clone());
    Ok(Order { id, plan, targets, lock_service, grid, begun: Some(begun) })
}

/// The run's id: its start, its process, and a number at random, by which it is told from one of another container on the same server.
pub(crate) fn id() -> String {
    let stamp = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    format!("{stamp}-{}-{:06x}", std::process::id(), rand::random::<u32>() >> 8)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use acidtest_workloads::{Values, WORKLOADS};
    use clap::Parser;
    use proptest::{prelude::*, sample::Index};

    use super::*;
    use crate::{
        args::{Arguments, Command},
        exit,
    };

    /// The order that a command line makes; nothing is started.
    fn ordered(words: &str) -> Result<Order, Failure> {
        let words = ["acidtest", "run"].into_iter().chain(words.split_whitespace());
        let Command::Run(run) = Arguments::try_parse_from(words).unwrap().command else {
            panic!("it is a run")
        };
        order(&run)
    }

    #[track_caller]
    fn refused(words: &str) -> String {
        let Err(failure) = ordered(words) else { panic!("{words} is accepted") };
        assert_eq!(exit::code_of(&failure), 2, "{words}: {failure}");
        failure.to_string()
    }

    #[test]
    #[cfg_attr(not(feature = "default"), ignore = "names stores of every feature")]
    fn a_cell_is_named_by_where_it_is_on_each_axis() {
        let last = |words: &str| {
            let order = ordered(words).unwrap();
            order.name(order.grid.cells.last().unwrap())
        };
        assert_eq!(
            last(
                "inventory --store redis --durability none,disk --tls off,on --fault none,kill@3s --clients 1,8 --rate 5,9"
            ),
            "redis native, durability disk, TLS on, fault kill@3s, 8 clients, 9 ops/s"
        );
        // which keeps its settings
        assert_eq!(
            last("inventory --store redis,redis://127.0.0.1 --durability none,disk"),
            "redis://127.0.0.1 native, durability as it is"
        );
    }

    #[test]
    fn no_more_clients_come_than_files_can_be_open() {
        let checked = |words: &str| {
            let Order { plan, grid, targets, .. } = ordered(words).unwrap();
            Connected::of(&plan, &grid, &targets).check(1000).map_err(|failure| failure.to_string())
        };
        assert_eq!(checked("logs --clients 800"), Ok(()));
        let said = checked("logs --clients 3,801").unwrap_err();
        assert!(
            said.contains("801 clients") && said.contains("1,000 files") && said.contains("ulimit"),
            "{said}"
        );
        assert_eq!(checked("logs --clients 1600 --processes 2"), Ok(()));
        assert_eq!(checked("inventory --store postgres --clients 900"), Ok(()));
        assert_eq!(checked("inventory --store memory --durability none --clients 1001"), Ok(()));
        assert_eq!(checked("inventory --store redis --clients 1001 --processes 2"), Ok(()));
        let said = checked("inventory --store redis --clients 1001").unwrap_err();
        assert!(said.contains("1,001 clients") && said.contains("remedy: raise that to 1,201"), "{said}");
    }

    /// All cells have the number that the one with the most needs, which goes by this machine's cores.
    #[test]
    #[cfg_attr(not(feature = "default"), ignore = "names stores of every feature")]
    fn threads_are_fewer_than_cores_where_clients_are_many_beside_their_server() {
        let cores = u32::try_from(std::thread::available_parallelism().unwrap().get()).unwrap();
        let half = cores.div_ceil(2);
        let (many, few) = (4 * half, 4 * half - 1);
        let threads = |words: &str| {
            let grid = ordered(&format!("inventory {words}")).unwrap().grid;
            grid.cells.iter().map(|cell| cell.threads).collect::<Vec<_>>()
        };
        for here in ["redis", "redis://127.0.0.1:7", "redis://localhost", "sqlite --fault kill@3s"] {
            assert_eq!(threads(&format!("--store {here} --clients {many}")), [half], "{here}");
        }
        for apart in ["redis://10.0.0.1", "redis --rate 10", "memory --durability none"] {
            assert_eq!(threads(&format!("--store {apart} --clients {many}")), [cores], "{apart}");
        }
        let of_clients = |clients: &[u32], more: &str| {
            let clients: Vec<String> = clients.iter().map(u32::to_string).collect();
            threads(&format!("--store redis --clients {}{more}", clients.join(",")))
        };
        assert_eq!(of_clients(&[1, many], ""), [1, half]);
        assert_eq!(of_clients(&[cores, many], ""), [cores, cores]);
        assert_eq!(of_clients(&[few], ""), [cores]);
        assert_eq!(of_clients(&[many, 16 * cores + 1], ""), [cores, cores]);
        assert_eq!(of_clients(&[many], " --processes 2"), [half.next_multiple_of(2)]);
        assert_eq!(of_clients(&[1, many], " --threads 1"), [1, 1]);
        assert_eq!(of_clients(&[2, 3], " --threads 3"), [2, 3]);
        assert_eq!(of_clients(&[8], " --threads 1 --processes 4"), [4]);
        let visits = ordered(&format!("logs --clients {many}")).unwrap().grid;
        assert_eq!(visits.cells[0].threads, cores);
        let Order { plan, targets, .. } =
            ordered(&format!("inventory --store redis --clients {many}")).unwrap();
        let search = Plan { capacity: Some(acidtest_results::CapacityPlan::default()), ..plan };
        assert_eq!(Grid::of(&search, &targets).unwrap().cells[0].threads, cores);
    }

    /// Options that would be ignored are refused, each with its own reason.
    #[test]
    #[cfg_attr(not(feature = "default"), ignore = "names stores of every feature")]
    fn what_has_no_effect_is_refused_with_the_reason() {
        for (words, option, why) in [
            ("queue --lock native", "--lock", "nothing to protect"),
            ("join --lock hard", "--lock", "nothing to protect"),
            ("records --mix c --lock soft", "--lock", "nothing to protect"),
            ("records --mix modify-locked --lock soft", "--lock", "one lock mode only"),
            ("queue --clients 16", "--clients", "--producers"),
            ("queue --store rabbitmq,nats --durability disk", "--durability", "a message broker"),
            ("inventory --store redis://127.0.0.1 --durability disk", "--durability", "keeps its settings"),
            ("queue --phase consume --warmup 1s", "--warmup", "use up what is to be measured"),
            ("queue --phase consume --rate 100", "--rate", "as fast as possible"),
            ("queue --phase consume --ops 100", "--ops", "--backlog"),
            ("queue --phase publish,consume --ops 100", "--ops", "--backlog"),
            ("records --trace 100", "--trace", "no sequence"),
            ("queue --trace", "--trace", "no sequence"),
            ("queue --phase publish --max-retries 3", "--max-retries", "is not retried"),
            ("records --store elasticsearch --mix c --refresh yes", "--refresh", "nothing is written"),
            ("inventory --arrivals poisson", "--arrivals", "needs --rate"),
            ("queue --store rabbitmq --ack none --duty 0.5", "--duty", "unconfirmed messages"),
            ("logs --duty 0.5", "--duty", "--clients, --entries and --ramp set"),
            ("inventory --store sqlite,rabbitmq --skip-unsupported --threads 2", "--threads", "embedded"),
            ("join --store sqlite,redis://127.0.0.1 --skip-unsupported --keep", "--keep", "private"),
            (
                "queue --store rabbitmq --phase publish,both --consume auto --prefetch 7",
                "--prefetch",
                "nobody consumes",
            ),
            ("join --max-retries 3", "--max-retries", "nothing is written"),
            ("parcels --mix hash,id --max-retries 3", "--max-retries", "nothing is written"),
            ("parcels --mix id --lock soft", "--lock", "nothing to protect"),
            ("parcels --mix hash --eighths 0.1", "--eighths", "the mix only reads"),
            ("parcels --mix hash --insert-batch 4", "--insert-batch", "the mix only reads"),
            ("parcels --scans 0 --mix insert --load single", "--load", "nothing is loaded"),
            ("parcels --demand 4051/s", "--demand", "--fits"),
            ("records --fits 30.7GB", "--fits", "only the workload parcels reports how large"),
            ("records --mix c --max-retries 3", "--max-retries", "nothing is written"),
            (
                "queue --store redis --max-retries 3",
                "--max-retries",
                "redis: commands and scripts run one after",
            ),
            (
                "inventory --store redis --lock none,native --max-retries 3",
                "--max-retries",
                "one after the other",
            ),
            ("queue --store rabbitmq,nats --max-retries 3", "--max-retries", "no operation conflicts"),
            ("queue --prefetch 7", "--prefetch", "sqlite: a message is taken out of a table"),
            ("queue --store postgres --consume auto --prefetch 7", "--prefetch", "postgres: a message"),
            ("queue --store mariadb,sqlite --prefetch 7", "--prefetch", "mariadb: a message"),
            ("queue --store redis,sqlite --prefetch 7,8", "--prefetch", "sqlite: a message"),
            ("queue --store rabbitmq --consume auto --prefetch 7", "--prefetch", "as fast as they are read"),
            ("inventory --store postgres --threads 2 --clients 1", "--threads", "that many clients"),
            ("queue --store redis --threads 9", "--threads", "that many clients"),
            ("inventory --threads 2", "--threads", "embedded"),
            ("inventory --store sqlite,fjall --threads 2", "--threads", "embedded"),
            ("inventory --replace", "--replace", "private"),
            ("inventory --keep --store postgres", "--keep", "private"),
            ("inventory --lock-service postgres", "--lock-service", "no cell needs a lock service"),
            (
                "records --store elasticsearch --lock-service redis",
                "--lock-service",
                "no cell needs a lock service",
            ),
        ] {
            let said = refused(words);
            let expected = format!("{option} has no effect here: ");
            assert!(said.starts_with(&expected) && said.contains(why), "{words}: {said}");
        }
        for (words, said) in [
            ("queue --phase publish --consumers 3", "--consumers has no effect here: nobody consumes"),
            ("queue --phase publish --consume auto", "--consume has no effect here: nobody consumes"),
            ("queue --phase publish --prefetch 3", "--prefetch has no effect here: nobody consumes"),
            ("queue --phase publish --batch 3", "--batch has no effect here: there is nothing to publish"),
            ("queue --phase consume --producers 3", "--producers has no effect here: nobody publishes"),
            ("queue --phase consume --ack none", "--ack has no effect here: nobody publishes"),
            ("queue --phase consume --in-flight 3", "--in-flight has no effect here: nobody publishes"),
            ("queue --ack transaction --in-flight 3", "--in-flight has no effect here: a transaction"),
            ("records --mix write --keys uniform", "--keys has no effect here: the mix inserts only"),
            ("records --scan-max 5", "--scan-max has no effect here: the mix has no scans"),
            (
                "queue --phase both,publish --consume auto,ack",
                "--consume has no effect here: nobody consumes",
            ),
            ("records --refresh yes", "sqlite has no refresh: what is written is found at once"),
        ] {
            assert!(refused(words).contains(said), "{words}: {}", refused(words));
        }
    }

    /// The same options are accepted where they have an effect, and so are the defaults of options that have none.
    #[test]
    #[cfg_attr(not(feature = "default"), ignore = "names stores of every feature")]
    fn what_has_an_effect_is_accepted() {
        for words in [
            "inventory --lock none,soft --clients 3 --durability none --warmup 0s --rate 10 --max-retries 3",
            "inventory --store sqlite,redis --threads 2",
            "inventory --store redis://127.0.0.1 --replace --keep",
            "inventory --trace",
            "inventory --ops 10",
            "records --mix a,c --lock none,soft",
            "records --mix modify-locked --lock hard",
            "records --mix a,e,write --scan-max 5 --keys uniform",
            "queue --store redis --phase both,publish --prefetch 7",
            "queue --store redis,sqlite --prefetch 7",
            "queue --batch 101",
            "records --store elasticsearch --lock hard --lock-service redis://127.0.0.1 --replace --keep",
            "inventory --rate 10 --arrivals poisson",
            "queue --max-retries 3",
            "queue --store rabbitmq --duty 0.01 --in-flight 20",
            "inventory --duty 1",
            "queue --store rabbitmq --consume auto,ack --producers 1 --consumers 2 --threads 3",
            "inventory --store redis --lock soft,native --max-retries 3",
            "inventory --store redis --clients 1,2 --threads 2",
            "records --store redis --lock soft --mix a,c --max-retries 3",
            "records --store elasticsearch --lock hard --lock-service postgres --refresh yes",
            "queue --store nats --rate 10 --warmup 1s --producers 2 --consumers 3 --batch 5 --prefetch 7",
            "queue --store rabbitmq,sqlite --durability disk",
            "queue --phase publish --ops 10 --ack transaction --batch 5",
            "queue --store tarantool --phase consume --backlog 7 --consume auto --prefetch 3",
            "join --clients 3 --store postgres --threads 1",
            "parcels --lock none,soft,hard,native --insert-batch 1,100 --eighths 0.1 --load single,bulk",
            "parcels --mix hash,id,350+5000 --fits 30.7GB --demand 350M/day --max-retries 3",
            "parcels --store sqlite,fjall,postgres,tarantool --index none,hash --lock native",
            "parcels --store elasticsearch,redis --mix hash,id",
        ] {
            if let Err(failure) = ordered(words) {
                panic!("{words}: {failure}");
            }
        }
    }

    /// A saved plan names every key, those without effect among them, and is accepted like the original plan.
    #[test]
    #[cfg_attr(not(feature = "default"), ignore = "names stores of every feature")]
    fn a_saved_plan_is_accepted_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.toml");
        for words in [
            "queue --phase consume",
            "queue --store rabbitmq",
            "join",
            "inventory --trace 100",
            "records --mix c",
        ] {
            let order = ordered(words).unwrap_or_else(|failure| panic!("{words}: {failure}"));
            plan_file::save(&order.plan, &path).unwrap();
            let again =
                ordered(path.to_str().unwrap()).unwrap_or_else(|failure| panic!("{words}: {failure}"));
            assert_eq!(again.plan, order.plan, "{words}");
        }
        // a parameter that one phase has no use for is there for another phase
        let saved = ordered("queue --phase consume").map(|order| order.plan).unwrap();
        plan_file::save(&saved, &path).unwrap();
        let both = ordered(&format!("{} --phase both", path.display())).unwrap();
        assert_eq!(both.plan.warmup, Plan::of("queue").warmup);
        let mut run = ordered("queue --phase consume").unwrap();
        settle(&mut run);
        assert_eq!(run.plan.warmup, Span(Duration::ZERO));
        // another length than the one in the file
        fs::write(&path, "workload = \"inventory\"\nduration = \"3s\"\nrates = [3.0]\n").unwrap();
        let shorter = ordered(&format!("{} --ops 10 --arrivals constant", path.display()));
        assert_eq!(shorter.map(|order| order.plan.ops).map_err(|failure| failure.to_string()), Ok(Some(10)));
        // NaN is no value of a parameter
        fs::write(&path, "workload = \"queue\"\n[parameters]\nprefetch = nan\n").unwrap();
        assert!(refused(path.to_str().unwrap()).contains("prefetch must have a value"));
        // a value that somebody wrote into the file counts as asked for
        std::fs::write(&path, "workload = \"queue\"\nlocks = [\"soft\"]\n").unwrap();
        let said = refused(path.to_str().unwrap());
        let expected = format!("{}: locks has no effect here: ", path.display());
        assert!(said.starts_with(&expected) && said.ends_with("remedy: take it out of the file"), "{said}");
        // and an option beside the file is reported as the command line's
        assert!(
            refused(&format!("{} --lock hard", path.display())).starts_with("--lock has no effect here: ")
        );
        std::fs::write(&path, "workload = \"inventory\"\narrivals = \"constant\"\n").unwrap();
        assert!(refused(path.to_str().unwrap()).contains("arrivals has no effect"));
        std::fs::write(&path, "workload = \"inventory\"\ntrace = 5\nrates = [3.0]\n").unwrap();
        assert!(refused(path.to_str().unwrap()).contains("rates has no effect"));
        let prefetch = "workload = \"queue\"\nstores = [\"sqlite\"]\n[parameters]\nprefetch = 7\n";
        std::fs::write(&path, prefetch).unwrap();
        assert!(refused(path.to_str().unwrap()).contains("plan.toml: prefetch has no effect"));
    }

    /// An error names the value as it was given, and names the file only if the value is the file's.
    #[test]
    fn a_wrong_value_has_the_name_that_it_was_given() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.toml");
        let file = path.to_str().unwrap();
        let with = |text: &str, words: &str| {
            fs::write(&path, format!("workload = \"records\"\n{text}\n")).unwrap();
            refused(&format!("{file} {words}"))
        };
        let locked = "stores = [\"elasticsearch\"]\nlocks = [\"hard\"]\nlock_service = ";
        for (text, words, is_of_file, said) in [
            ("rates = [0.0]", "", true, "rates must be between"),
            ("", "--rate 1e300", false, "--rate must be between"),
            ("trials = 3", "--trials 99999", false, "--trials must be at most"),
            ("duty = 0.0", "", true, "duty must be above 0 and at most 1"),
            ("", "--duty nan", false, "--duty must be above 0 and at most 1"),
            ("duty = 0.5", "--rate 10", true, "duty has no effect here: operations come at a rate"),
            ("stores = [\"oracle\"]", "", true, "in stores: unknown store"),
            ("", "--store oracle", false, "unknown store"),
            ("", "--store redis --isolation serializable", false, "no isolation level"),
            ("stores = [\"memory\"]", "", true, "memory has no durability disk"),
            ("stores = [\"memory\"]", "--clients 3", true, "memory has no durability disk"),
            ("", "--store memory", false, "memory has no durability disk"),
            ("[parameters]\nrecords = 0", "--store fjall", true, "records must be between"),
            ("[parameters]\nrecords = 5", "--records 0", false, "records must be between"),
            (&format!("{locked}\"mariadb\""), "", true, "in lock_service: mariadb: locks are kept on"),
            (&format!("{locked}\"redsi\""), "", true, "in lock_service: unknown store \"redsi\""),
            (&format!("{locked}\"redis\""), "--lock-service mariadb", false, "--lock-service mariadb: locks"),
        ] {
            let told = with(text, words);
            assert!(told.contains(said), "{text} {words}: {told}");
            assert_eq!(told.contains(file), is_of_file, "{text} {words}: {told}");
        }
    }

    /// Written plans of every workload, with each parameter.
    fn plans() -> Vec<String> {
        let plan = |kind: &acidtest_workloads::WorkloadKind| {
            let parameters = (kind.with)(&Values::new()).unwrap().spec().values.clone().into_iter().collect();
            let plan = Plan {
                rates: vec![100.0],
                ops: Some(10),
                threads: Some(1),
                parameters,
                ..Plan::of(kind.name)
            };
            toml::to_string(&plan).unwrap()
        };
        WORKLOADS.iter().map(plan).collect()
    }

    const VALUES: [&str; 24] = [
        "0",
        "-1",
        "1",
        "2",
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "-9223372036854775808",
        "99999999999999999999",
        "1e300",
        "1e-300",
        "nan",
        "inf",
        "-inf",
        "-0.0",
        "true",
        "\"\"",
        "\"é\\u0000\"",
        "\"9999999999999999999h\"",
        "[]",
        "[1, 1]",
        "[1, 2, 3]",
        "[\"a\", \"b\"]",
        "{a = 1}",
    ];

    proptest! {
        /// A changed plan makes a grid, or is refused with one message.
        #[test]
        fn whatever_a_plan_says_it_is_a_grid_or_refused(
            kind in any::<Index>(),
            changes in prop::collection::vec((any::<Index>(), 0..28_usize, any::<u8>(), any::<Index>()), 1..5),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("plan.toml");
            let plans = plans();
            let mut text = plans[kind.index(plans.len())].clone();
            for (line, how, byte, at) in changes {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                let line = line.index(lines.len());
                match VALUES.get(how) {
                    Some(value) => {
                        let name = lines[line].split('=').next().unwrap_or_default().to_owned();
                        lines[line] = format!("{name}= {value}");
                    }
                    None if how % 2 == 0 => _ = lines.remove(line),
                    None => {
                        let mut bytes = std::mem::take(&mut lines[line]).into_bytes();
                        let at = at.index(bytes.len() + 1);
                        bytes.insert(at, byte);
                        lines[line] = String::from_utf8_lossy(&bytes).into_owned();
                    }
                }
                text = lines.join("\n") + "\n";
            }
            fs::write(&path, &text).unwrap();
            let grid = plan_file::load(&path).and_then(|plan| {
                let asked = GivenOptions::of(&plan);
                plan_check::check(&plan, &asked)?;
                let targets: Vec<Target> =
                    plan.stores.iter().map(|text| target::parse(text)).collect::<Result<_, _>>()?;
                let grid = Grid::of(&plan, &targets)?;
                plan_check::check_effect(&plan, &asked, &grid, &targets)?;
                Ok((grid, plan))
            });
            match grid {
                Ok((grid, plan)) => prop_assert!(grid.cells.len() <= plan.most_cells().unwrap()),
                Err(failure) => prop_assert_eq!(exit::code_of(&failure), 2, "{:?}", failure),
            }
        }
    }
}
