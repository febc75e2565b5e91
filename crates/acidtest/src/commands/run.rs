//! `acidtest run`.

use std::{collections::BTreeSet, path::Path, time::Duration};

use acidtest_report::{CellResult, Plan, Span};
use tokio::task::LocalSet;

use crate::{
    args::{Format, Run},
    exit::{Failure, Status},
    grid::{Cell, Grid},
    interrupt::Interrupt,
    output,
    output::ResultFile,
    plan_file,
    runner::{self, Finished, Order},
    target::Target,
};

pub(crate) async fn run(run: Run) -> Result<Status, Failure> {
    let order = match &run.resume {
        None => order(&run)?,
        Some(file) => resumed(&run, file)?,
    };
    if let Some(path) = &run.output.save_plan {
        plan_file::save(&order.plan, path)?;
        output::print_text(&format!("plan written to {0}; run it with: acidtest run {0}\n", path.display()))?;
        return Ok(Status::Held);
    }
    let id = order.begun.as_ref().map_or_else(id, |begun| begun.run.clone());
    let out = run.resume.as_ref().unwrap_or(&run.output.out);
    let file = ResultFile::prepare(out, &id, &order.plan.workload)?;
    let quiet = run.output.quiet;
    let Finished { result, failure } = LocalSet::new()
        .run_until(Box::pin(async {
            let interrupt = Interrupt::listen()?;
            runner::run(order, &id, quiet, interrupt, &file).await
        }))
        .await?;
    if !quiet || run.output.format == Format::Json {
        output::print(&result, run.output.format)?;
    }
    if quiet || run.output.format == Format::Json {
        // the table's notes say so otherwise
        for error in result.cells.iter().filter_map(|cell| cell.error.as_ref()).collect::<BTreeSet<_>>() {
            output::say(&format!("error: {error}"));
        }
    }
    if !quiet {
        // standard output may be JSON; where the file lies is for people
        output::say(&format!("result: {}", file.path().display()));
        if result.interrupted {
            output::say(&format!("go on with: acidtest run --resume {}", file.path().display()));
        }
    }
    let status = runner::status(&result);
    let Some(failure) = failure else { return Ok(status) };
    // what was measured stands above; the run itself is no success
    output::say(&format!("error: {failure}"));
    Ok(status.max(failure.status()))
}

/// What the arguments amount to. The plan's own list of stores never holds a password.
fn order(run: &Run) -> Result<Order, Failure> {
    let what = run.what.as_deref().unwrap_or_default();
    let is_file = Path::new(what).extension().is_some_and(|extension| extension == "toml");
    let mut plan = if is_file { plan_file::load(Path::new(what))? } else { Plan::of(what) };
    run.apply_to(&mut plan);
    let targets = plan.stores.iter().map(|text| Target::parse(text)).collect::<Result<Vec<_>, _>>();
    let targets = targets.map_err(|failure| match failure {
        Failure::Usage(said) if is_file && run.grid.store.is_none() => {
            Failure::Usage(format!("{what}: in stores: {said}"))
        }
        failure => failure,
    })?;
    if run.grid.durability.is_some() && targets.iter().all(Target::keeps_rung) {
        return Err(Failure::Usage(
            "--durability sets private servers; one of your own keeps its settings, and a message broker has the rung \
             of its messages and queues (--persistent, --queue): leave it out, and the run says which rung they \
             amount to"
                .to_owned(),
        ));
    }
    plan.stores = targets.iter().map(Target::shown).collect();
    check(&plan)?;
    let grid = Grid::of(&plan, &targets)?;
    if !grid.workloads.iter().any(|workload| workload.warms_up()) {
        plan.warmup = Span(Duration::ZERO);
    }
    if plan.trace.is_some() && !grid.workloads.iter().all(|workload| workload.replays()) {
        return Err(Failure::Usage(format!(
            "{} has no sequence to replay: leave --trace out",
            plan.workload
        )));
    }
    let lock_service = lock_service(&plan)?;
    // its password is for the run, not for the plan
    plan.lock_service = lock_service.shown();
    Ok(Order { plan, targets, lock_service, grid, begun: None })
}

/// Where a store has its hard locks kept that has none of its own.
fn lock_service(plan: &Plan) -> Result<Target, Failure> {
    let service = Target::parse(&plan.lock_service)?;
    let keeps = ["redis", "postgres"];
    if !keeps.contains(&service.kind().name) {
        return Err(Failure::Usage(format!(
            "--lock-service {}: locks are kept on {}, or at an address of theirs",
            service.shown(),
            keeps.join(" or ")
        )));
    }
    Ok(service)
}

/// What is left to do of an interrupted run.
fn resumed(run: &Run, file: &Path) -> Result<Order, Failure> {
    let begun = output::load(file)?;
    let refuse = |why: &str| Err(Failure::Usage(format!("cannot go on with {}: {why}", file.display())));
    let mut asked = begun.plan.clone();
    run.apply_to(&mut asked);
    if asked != begun.plan {
        return refuse("a run goes on with the plan that it began with; leave other options out");
    }
    let targets = begun.plan.stores.iter().map(|text| Target::parse(text)).collect::<Result<Vec<_>, _>>()?;
    check(&begun.plan)?;
    let grid = Grid::of(&begun.plan, &targets)?;
    let same = |(cell, then): (&Cell, &CellResult)| {
        let target = &targets[cell.target];
        (target.kind().name, target.address.as_ref().map(ToString::to_string), cell.lock)
            == (then.store.as_str(), then.address.clone(), then.lock)
            && (cell.clients, cell.rate) == (then.clients, then.rate)
            && then.durability_asked.is_none_or(|rung| rung == cell.rung)
            && grid.workloads[cell.workload].values() == then.parameters
    };
    if grid.cells.len() != begun.cells.len() || !grid.cells.iter().zip(&begun.cells).all(same) {
        return refuse("this acidtest makes other cells of its plan; use the one that began it");
    }
    let lock_service = lock_service(&begun.plan)?;
    Ok(Order { plan: begun.plan.clone(), targets, lock_service, grid, begun: Some(begun) })
}

fn check(plan: &Plan) -> Result<(), Failure> {
    let axes = [
        ("stores", plan.stores.is_empty()),
        ("locks", plan.locks.is_empty()),
        ("durability", plan.durability.is_empty()),
        ("clients", plan.clients.is_empty() || plan.clients.contains(&0)),
        ("trials", plan.trials == 0),
        ("duration", plan.duration.0.is_zero()),
        ("timeout", plan.timeout.0.is_zero()),
    ];
    if let Some((name, _)) = axes.into_iter().find(|(_, empty)| *empty) {
        return Err(Failure::Usage(format!("{name} must not be empty or zero")));
    }
    let axes = [
        repeated(&plan.stores),
        repeated(&plan.locks),
        repeated(&plan.durability),
        repeated(&plan.clients),
        repeated(&plan.rates),
    ];
    let parameters = plan.parameters.values().filter_map(|value| repeated(value.as_array()?));
    if let Some(twice) = axes.into_iter().flatten().chain(parameters).next() {
        return Err(Failure::Usage(format!("{twice} is given twice: its cells would be the same")));
    }
    let limits = [
        ("rate", "above 0 and at most 10,000,000", plan.rates.iter().all(|rate| *rate > 0.0 && *rate <= 1e7)),
        ("ops", "at least 1", plan.ops != Some(0)),
        ("threads", "between 1 and 1,024", plan.threads.is_none_or(|threads| (1..=1024).contains(&threads))),
        (
            "trace",
            "between 1 and 100,000,000",
            plan.trace.is_none_or(|length| (1..=100_000_000).contains(&length)),
        ),
        ("clients", "at most 100,000", plan.clients.iter().all(|clients| *clients <= 100_000)),
        (
            "trace",
            "without rate: a sequence is replayed in a closed loop",
            plan.trace.is_none() || plan.rates.is_empty(),
        ),
    ];
    if let Some((name, must, _)) = limits.into_iter().find(|(.., fits)| !fits) {
        return Err(Failure::Usage(format!("{name} must be {must}")));
    }
    let name = &plan.namespace;
    let is_plain =
        name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
    if !is_plain
        || name.is_empty()
        || name.len() > 40
        || name.starts_with(|first: char| first.is_ascii_digit())
    {
        return Err(Failure::Usage(format!(
            "namespace \"{name}\" will not do: lower-case letters, digits and _, at most 40, no digit first"
        )));
    }
    Ok(())
}

/// What a list holds twice, if anything.
fn repeated<T: PartialEq + ToString>(list: &[T]) -> Option<String> {
    let twice = list.iter().enumerate().find(|(index, each)| list[..*index].contains(each));
    twice.map(|(_, each)| each.to_string())
}

/// The run's id: when it began, and which process it was.
fn id() -> String {
    let stamp = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    format!("{stamp}-{}", std::process::id())
}
