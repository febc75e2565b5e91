//! `acidtest run`.

use std::{collections::BTreeSet, path::Path};

use acidtest_model::{Secret, figure::lasting};
use acidtest_results::CapacityPlan;
use acidtest_runner::{Failure, Finished, Order};
use tokio::task::LocalSet;

use crate::{
    carry_out::carry_out,
    exit::{self, Status},
    interrupt,
    needs::{self, Needs},
    order::{driven_seconds, is_complete, order, resumed, settle},
    output,
    output::ResultFile,
    plan_file,
    progress::Progress,
    quiet::{Machine, Others, is_quiet},
    run_arguments::{Format, Run},
};

pub(crate) async fn run(run: Run) -> Result<Status, Failure> {
    idle_output(&run)?;
    if !run.output.quiet {
        run.as_lists.told().for_each(|line| output::say(&line));
    }
    let mut order = match &run.resume {
        None => order(&run)?,
        Some(file) => resumed(&run, file)?,
    };
    if let Some(path) = &run.output.save_plan {
        plan_file::save(&order.plan, path)?;
        output::print_text(&format!("plan written to {0}; run it with: acidtest run {0}\n", path.display()))?;
        return Ok(Status::Held);
    }
    let (quiet, format) = (run.output.quiet, run.output.format.unwrap_or_default());
    if let Some(begun) = order.begun.as_ref().filter(|begun| is_complete(begun)) {
        if !quiet || format == Format::Json {
            output::print(begun, format)?;
        }
        if !quiet {
            output::say("the run is complete: it has every trial of its plan, so there is nothing to resume");
        }
        return Ok(exit::status(begun));
    }
    settle(&mut order);
    let needs = Needs::of(&order);
    if run.output.needs.dry_run {
        output::print_text(&format!("{}{}{}", needs::cells(&order), needs::load(&order), needs.told()))?;
    }
    if !run.output.needs.insist {
        needs.check("--insist")?;
    }
    if run.output.needs.dry_run {
        return Ok(Status::Held);
    }
    if let Some(how) = run.output.quiet_machine.quiet_machine {
        let say = &mut |line: &str| output::say(line);
        if !is_quiet(how, Others::look, say).await? {
            return Ok(Status::NotQuiet);
        }
    }
    if let (Some(search), false) = (&order.plan.capacity, quiet) {
        output::say(&expected(search, &order));
    }
    if !quiet {
        let machine = Machine::now(&[(&order, needs)], run.output.quiet_machine.quiet_machine).await;
        machine.told().iter().for_each(|note| output::say(&format!("note: {note}")));
    }
    let file = if let Some(file) = &run.resume {
        ResultFile::prepare(file.clone())?
    } else {
        let out = run.output.out.as_deref().unwrap_or(Path::new(output::RESULTS));
        ResultFile::new(out, &order.id, &order.plan.workload)?
    };
    let token = gateway_token(&order)?;
    let Finished { result, failure } = LocalSet::new()
        .run_until(Box::pin(async {
            let interrupt = interrupt::listen()?;
            carry_out(order, &mut Progress::new(quiet), &interrupt, token, &file).await
        }))
        .await?;
    if !quiet || format == Format::Json {
        output::print(&result, format)?;
    }
    if quiet || format == Format::Json {
        // otherwise the notes below the table say so
        for error in result.cells.iter().filter_map(|cell| cell.error.as_ref()).collect::<BTreeSet<_>>() {
            output::say(&format!("error: {error}"));
        }
    }
    if !quiet {
        // printed to people and not to standard output, which may be JSON
        output::say(&format!("result: {}", file.path().display()));
        if result.interrupted {
            let command = if result.plan.capacity.is_some() { "capacity" } else { "run" };
            output::say_as_it_is(&format!(
                "continue with: acidtest {command} --resume {}",
                file.path().display()
            ));
        }
    }
    let status = exit::status(&result);
    let Some(failure) = failure else { return Ok(status) };
    // the figures stand above; the run itself has failed
    output::say(&format!("error: {failure}"));
    Ok(status.max(exit::status_after(&failure)))
}

/// How long searches will take, from and to.
fn expected(search: &CapacityPlan, order: &Order) -> String {
    let cells = order.grid.cells.len();
    let searches = if cells == 1 { "1 search".to_owned() } else { format!("{cells} searches") };
    let took = lasting(driven_seconds(&order.plan, &order.grid).unwrap_or_default());
    let measured = search.measured(&order.plan);
    let too_few = search.too_few_probes(&order.plan).map_or_else(String::new, |(room, needed)| {
        format!(
            "\nwarning: the budget allows {room} probes, and a search that finds a capacity takes about {needed}, or more \
             if the store's speed varies: this one may only find an interval; a longer --budget or a shorter --hold helps"
        )
    });
    format!(
        "{searches} of {} at most (--budget), with probes of {measured} after {} warm-up: {took} in all; what is known so \
         far is shown after each probe{too_few}",
        search.budget, order.plan.warmup
    )
}

/// The token of the clients of a gateway that runs already, where the plan names one.
pub(crate) fn gateway_token(order: &Order) -> Result<Option<Secret>, Failure> {
    if !order.grid.workloads.iter().any(|workload| workload.spec().running_service.is_some()) {
        return Ok(None);
    }
    match std::env::var("ACIDTEST_TOKEN") {
        Ok(token) if !token.trim().is_empty() => Ok(Some(Secret::new(token.trim().to_owned()))),
        _ => Err(Failure::Usage(
            "--gateway needs the token of one of its users, in the environment variable ACIDTEST_TOKEN\n  remedy: \
             acidtest gateway user add NAME, and ACIDTEST_TOKEN=... acidtest run logs --gateway ..."
                .to_owned(),
        )),
    }
}

/// Refuses options for the place of results and the format of the output that would have no effect.
fn idle_output(run: &Run) -> Result<(), Failure> {
    let (output, saves) = (&run.output, run.output.save_plan.is_some());
    let nothing_runs = "the plan is written to its file, and nothing is run (--save-plan)";
    let nothing_dry = "what would be run is printed, and nothing is run (--dry-run)";
    let rows = [
        ("--dry-run", saves && output.needs.dry_run, nothing_runs),
        ("--insist", saves && output.needs.insist, nothing_runs),
        ("--quiet-machine", saves && output.quiet_machine.quiet_machine.is_some(), nothing_runs),
        (
            "--quiet-machine",
            output.needs.dry_run && output.quiet_machine.quiet_machine.is_some(),
            nothing_dry,
        ),
        ("--out", output.needs.dry_run && output.out.is_some(), nothing_dry),
        ("--output", output.needs.dry_run && output.format.is_some(), nothing_dry),
        ("--quiet", output.needs.dry_run && output.quiet, nothing_dry),
        ("--out", saves && output.out.is_some(), nothing_runs),
        ("--output", saves && output.format.is_some(), nothing_runs),
        ("--quiet", saves && output.quiet, nothing_runs),
        (
            "--out",
            run.resume.is_some() && output.out.is_some(),
            "a run is resumed in its own result file (--resume)",
        ),
    ];
    match rows.into_iter().find(|(_, is_idle, _)| *is_idle) {
        Some((option, _, why)) => {
            Err(Failure::Usage(format!("{option} has no effect here: {why}\n  remedy: leave it out")))
        }
        None => Ok(()),
    }
}
