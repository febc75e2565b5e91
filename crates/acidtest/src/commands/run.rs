//! `acidtest run`.

use std::{collections::BTreeSet, path::Path};

use acidtest_report::Plan;
use tokio::task::LocalSet;

use crate::{
    args::{Format, Run},
    exit::{Failure, Status},
    interrupt::Interrupt,
    output,
    output::ResultFile,
    plan_file,
    runner::{self, Finished},
    target::Target,
};

/// Workloads that can be run.
const WORKLOADS: [&str; 1] = ["inventory"];

pub(crate) async fn run(run: Run) -> Result<Status, Failure> {
    let (plan, targets) = plan(&run)?;
    if let Some(path) = &run.output.save_plan {
        plan_file::save(&plan, path)?;
        output::print_text(&format!("plan written to {0}; run it with: acidtest run {0}\n", path.display()))?;
        return Ok(Status::Held);
    }
    let id = id();
    let file = ResultFile::prepare(&run.output.out, &id, &plan.workload)?;
    let quiet = run.output.quiet;
    let Finished { result, failure } = LocalSet::new()
        .run_until(async {
            let interrupt = Interrupt::listen()?;
            runner::run(&plan, &targets, &id, quiet, interrupt, &file).await
        })
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
    }
    let status = runner::status(&result);
    let Some(failure) = failure else { return Ok(status) };
    // what was measured stands above; the run itself is no success
    output::say(&format!("error: {failure}"));
    Ok(status.max(failure.status()))
}

/// The plan that the arguments amount to, checked, and its stores. The plan's own list of stores never
/// holds a password.
fn plan(run: &Run) -> Result<(Plan, Vec<Target>), Failure> {
    let is_file = Path::new(&run.what).extension().is_some_and(|extension| extension == "toml");
    let mut plan = if is_file { plan_file::load(Path::new(&run.what))? } else { Plan::of(&run.what) };
    run.apply_to(&mut plan);
    if !WORKLOADS.contains(&plan.workload.as_str()) {
        return Err(Failure::Usage(format!(
            "unknown workload \"{}\"{}\n  known are {}; a plan file ends in .toml",
            plan.workload,
            acidtest_model::hint(&plan.workload, WORKLOADS),
            WORKLOADS.join(", ")
        )));
    }
    let targets = plan.stores.iter().map(|text| Target::parse(text)).collect::<Result<Vec<_>, _>>();
    let targets = targets.map_err(|failure| match failure {
        Failure::Usage(said) if is_file && run.grid.store.is_none() => {
            Failure::Usage(format!("{}: in stores: {said}", run.what))
        }
        failure => failure,
    })?;
    if run.grid.durability.is_some() && targets.iter().all(|target| target.address.is_some()) {
        return Err(Failure::Usage(
            "--durability sets private servers; one of your own keeps its settings: leave it out, and the run says \
             which rung they amount to"
                .to_owned(),
        ));
    }
    for target in &targets {
        target.check(&plan.workload, &plan.locks, &plan.durability)?;
    }
    plan.stores = targets.iter().map(Target::shown).collect();
    check(&plan)?;
    Ok((plan, targets))
}

fn check(plan: &Plan) -> Result<(), Failure> {
    plan.inventory.check().map_err(|error| Failure::Usage(error.to_string()))?;
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
    let twice =
        [repeated(&plan.stores), repeated(&plan.locks), repeated(&plan.durability), repeated(&plan.clients)];
    if let Some(twice) = twice.into_iter().flatten().next() {
        return Err(Failure::Usage(format!("{twice} is given twice: its cells would be the same")));
    }
    let limits = [
        ("rate", "above 0 and at most 10,000,000", plan.rate.is_none_or(|rate| rate > 0.0 && rate <= 1e7)),
        ("ops", "at least 1", plan.ops != Some(0)),
        (
            "trace",
            "between 1 and 100,000,000",
            plan.trace.is_none_or(|length| (1..=100_000_000).contains(&length)),
        ),
        ("clients", "at most 100,000", plan.clients.iter().all(|clients| *clients <= 100_000)),
        (
            "trace",
            "without rate: a sequence is replayed in a closed loop",
            plan.trace.is_none() || plan.rate.is_none(),
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
