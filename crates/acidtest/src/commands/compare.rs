//! `acidtest compare`.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use acidtest_model::figure::lasting;
use acidtest_report::{
    NamedResult,
    compare::{Comparison, Outcome, Selector, Side, compare as compared},
};
use acidtest_results::{Plan, RunResult};
use acidtest_runner::{Failure, Finished, Interrupt, Order};
use clap::Parser;
use tokio::task::LocalSet;

use crate::{
    args::{Arguments, Command},
    carry_out::carry_out,
    commands::run::gateway_token,
    compare_arguments::Compare,
    exit::{self, Status},
    interrupt,
    needs::Needs,
    order::{self, driven_seconds, is_complete},
    output,
    output::{ResultFile, quoted},
    progress::Progress,
    quiet::{Machine, Others, is_quiet},
    run_arguments::{Format, QuietMachine},
    target,
};

/// Rounds of `--run` if nothing else is asked for.
const ROUNDS: u32 = 5;

pub(crate) async fn compare(compare: Compare) -> Result<Status, Failure> {
    match &compare.b_file {
        Some(b) if compare.run => Box::pin(run_and_compare(&compare, b)).await,
        b => compare_results(&compare, &compare.a_file, b.as_deref()),
    }
}

/// A result with the name of its file.
type Named = (String, RunResult);

/// The result of a file, or all of a folder.
fn results(path: &Path) -> Result<Vec<Named>, Failure> {
    let files = if path.is_dir() {
        let cannot = |error| Failure::Usage(format!("cannot read the folder {}: {error}", path.display()));
        let entries = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(cannot)?;
        let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
        files.sort();
        files
    } else {
        vec![path.to_owned()]
    };
    files.into_iter().map(|file| Ok((file.display().to_string(), output::load(&file)?))).collect()
}

fn compare_results(compare: &Compare, a: &Path, b: Option<&Path>) -> Result<Status, Failure> {
    let of_a = results(a)?;
    let of_b = b.map(results).transpose()?;
    let comparison = of_sides(compare, (a, &of_a), (b.unwrap_or(a), of_b.as_ref().unwrap_or(&of_a)))?;
    output::print_text(&match compare.output {
        Format::Table => comparison.render(output::style()),
        Format::Json => {
            serde_json::to_string_pretty(&comparison).map_err(|error| Failure::Other(error.to_string()))?
                + "\n"
        }
    })?;
    Ok(match comparison.outcome {
        Outcome::Passed => Status::Held,
        Outcome::Inconclusive => Status::Inconclusive,
        Outcome::Failed => Status::Worse,
    })
}

fn of_sides(
    compare: &Compare,
    (a, of_a): (&Path, &[Named]),
    (b, of_b): (&Path, &[Named]),
) -> Result<Comparison, Failure> {
    for (_, result) in of_a.iter().chain(of_b) {
        no_search(&result.plan, &format!("run {}", result.run))?;
    }
    let (runs_a, runs_b) = (runs_of(of_a), runs_of(of_b));
    let (a_name, b_name) = (a.display().to_string(), b.display().to_string());
    let [a_selector, b_selector] =
        [&compare.a, &compare.b].map(|choices| choices.iter().cloned().collect::<Selector>());
    compared(
        Side { runs: &runs_a, name: &a_name, choose: "--a ", selector: &a_selector },
        Side { runs: &runs_b, name: &b_name, choose: "--b ", selector: &b_selector },
        &compare.fail_if,
        compare.between_runs.map(|share| share.0),
    )
    .map_err(|error| Failure::Usage(error.to_string()))
}

fn runs_of(side: &[Named]) -> Vec<NamedResult<'_>> {
    side.iter().map(|(name, result)| NamedResult { name, result }).collect()
}

fn no_search(plan: &Plan, what: &str) -> Result<(), Failure> {
    if plan.capacity.is_none() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{what} is a search for a capacity: its trials have different rates, and no figure over all of them\n  remedy: acidtest \
         show has the cells of one search side by side, with their prices; to compare two searches, make one of both (several \
         --store, --lock, --durability)"
    )))
}

/// One of the runs that `--run` makes.
struct Turn<'a> {
    /// `a` or `b`.
    side: &'static str,
    round: u32,
    plan: &'a Path,
    file: PathBuf,
}

/// The turns of so many rounds: A B, B A, A B, …, so that what drifts is as much in A as in B.
fn turns<'a>(a: &'a Path, b: &'a Path, rounds: u32, folder: &Path) -> Vec<Turn<'a>> {
    let of_round = |round: u32| {
        let mut sides = [("a", a), ("b", b)];
        if round.is_multiple_of(2) {
            sides.reverse();
        }
        sides.map(|(side, plan)| Turn {
            side,
            round,
            plan,
            file: folder.join(side).join(format!("round-{round}.json")),
        })
    };
    (1..=rounds).flat_map(of_round).collect()
}

/// Runs both plans in turn, each run into a file of its own, and compares them.
async fn run_and_compare(compare: &Compare, b: &Path) -> Result<Status, Failure> {
    let a = &compare.a_file;
    let rounds = compare.rounds.unwrap_or(ROUNDS);
    let folder = match &compare.out {
        Some(folder) => folder.clone(),
        None => Path::new(output::RESULTS).join(format!("compare-{}", order::id())),
    };
    let turns = turns(a, b, rounds, &folder);
    // both plans, and what there is of them, are checked by this before either is run
    let orders = turns.iter().map(to_run).collect::<Result<Vec<Option<Order>>, _>>()?;
    let left: Vec<&Order> = orders.iter().flatten().collect();
    output::say(&expected(&left));
    // what is complete is compared after the first round
    if let [Some(of_a), Some(of_b), ..] = &orders[..] {
        fit(compare, (a, &of_a.plan), (b, &of_b.plan))?;
    }
    let (of_a, of_b) = (folder.join("a"), folder.join("b"));
    let done = LocalSet::new()
        .run_until(Box::pin(async {
            let interrupt = interrupt::listen()?;
            let quiet = compare.quiet_machine.quiet_machine;
            tell_machine(&left, quiet).await;
            for turn in &turns {
                let status = Box::pin(run_turn(turn, rounds, &interrupt, quiet)).await?;
                if status != Status::Held {
                    return Ok(status);
                }
                let both = [&of_a, &of_b].map(|side| side.join("round-1.json"));
                if turn.round == 1 && both.iter().all(|file| file.is_file()) {
                    // cells that do not fit together are told after the first round, and not after the last
                    let [a, b] = &both;
                    of_sides(compare, (a, &results(a)?), (b, &results(b)?))?;
                }
            }
            Ok::<Status, Failure>(Status::Held)
        }))
        .await;
    match done {
        Ok(Status::Held) => {
            output::say(&format!("results: {} and {}", of_a.display(), of_b.display()));
            compare_results(compare, &of_a, Some(&of_b))
        }
        Err(Failure::Usage(why)) => Err(Failure::Usage(format!(
            "{why}\n  finished runs are kept: continue with --out {}",
            folder.display()
        ))),
        ended => {
            output::say_as_it_is(&format!("continue with: {}", going_on(compare, b, &folder)));
            ended
        }
    }
}

/// The order of a turn; none where its run is complete. The plan of what it goes on with must be the one that was asked for.
fn to_run(turn: &Turn<'_>) -> Result<Option<Order>, Failure> {
    if turn.plan.extension().is_none_or(|extension| extension != "toml") {
        return Err(Failure::Usage(format!(
            "--run takes two plan files (*.toml), and {} is not one\n  remedy: write one with acidtest run ... --save-plan \
             FILE",
            turn.plan.display()
        )));
    }
    let words = ["acidtest".as_ref(), "run".as_ref(), "--".as_ref(), turn.plan.as_os_str()];
    let arguments = Arguments::try_parse_from(words).map_err(|error| Failure::Usage(error.to_string()))?;
    let Command::Run(run) = arguments.command else {
        return Err(Failure::Other("a plan is run by another command".to_owned()));
    };
    let mut order = order::order(&run)?;
    no_search(&order.plan, &turn.plan.display().to_string())?;
    order::settle(&mut order);
    if !turn.file.exists() {
        return Ok(Some(order));
    }
    let begun = output::load(&turn.file)?;
    if begun.plan != order.plan {
        return Err(Failure::Usage(format!(
            "cannot resume {}: it is the result of another plan than {}\n  remedy: another folder for --out",
            turn.file.display(),
            turn.plan.display()
        )));
    }
    if is_complete(&begun) {
        return Ok(None);
    }
    order::going_on(begun, order.targets, &turn.file, &target::parse).map(Some)
}

/// Makes the run of a turn, or the rest of it; the status is that of what ends the whole, or *held*.
async fn run_turn(
    turn: &Turn<'_>,
    rounds: u32,
    interrupt: &Interrupt,
    quiet: Option<QuietMachine>,
) -> Result<Status, Failure> {
    let Some(mut order) = to_run(turn)? else { return Ok(Status::Held) };
    if let Some(how) = quiet
        && !is_quiet(how, Others::look, &mut |line| output::say(line)).await?
    {
        return Ok(Status::NotQuiet);
    }
    output::say(&format!(
        "round {} of {rounds}, {}: {}",
        turn.round,
        turn.side.to_uppercase(),
        turn.plan.display()
    ));
    if order.begun.is_none() {
        // an id is of a second, and a run may have taken less
        tokio::time::sleep(Duration::from_secs(1)).await;
        order.id = order::id();
    }
    if interrupt.is_set() {
        return Ok(Status::Interrupted);
    }
    let token = gateway_token(&order)?;
    let file = ResultFile::prepare(turn.file.clone())?;
    let Finished { result, failure } =
        carry_out(order, &mut Progress::new(false), interrupt, token, &file).await?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    match exit::status(&result) {
        ended @ (Status::Interrupted | Status::Unreached | Status::Failed) => {
            for error in result.cells.iter().filter_map(|cell| cell.error.as_ref()) {
                output::say(&format!("error: {error}"));
            }
            Ok(ended)
        }
        _ if result.interrupted => Ok(Status::Interrupted),
        // what broke, or could not be told, is for the comparison to say
        _ => Ok(Status::Held),
    }
}

/// Tells what would spoil the figures of the runs that are left.
async fn tell_machine(left: &[&Order], quiet: Option<QuietMachine>) {
    let orders: Vec<(&Order, Needs)> = left.iter().map(|order| (*order, Needs::of(order))).collect();
    if !orders.is_empty() {
        let machine = Machine::now(&orders, quiet).await;
        machine.told().iter().for_each(|note| output::say(&format!("note: {note}")));
    }
}

/// How long the runs that are left will take, where their plans say it.
fn expected(left: &[&Order]) -> String {
    let most = |order: &Order| driven_seconds(&order.plan, &order.grid).map(|(_, most)| most);
    let took = left.iter().try_fold(0.0, |all, order| Some(all + most(order)?)).map(|seconds| {
        format!(": {} of trials, plus the loading of data and the audits", lasting((seconds, seconds)))
    });
    let runs = if left.len() == 1 { "1 run".to_owned() } else { format!("{} runs", left.len()) };
    format!("{runs}{}", took.unwrap_or_default())
}

/// Refuses two plans that have no cells to compare, before the first of them is run.
fn fit(compare: &Compare, (a, of_a): (&Path, &Plan), (b, of_b): (&Path, &Plan)) -> Result<(), Failure> {
    let (a, b) = (a.display(), b.display());
    if of_a.workload != of_b.workload {
        return Err(Failure::Usage(format!(
            "{a} is a plan of {}, and {b} one of {}: they have nothing to compare\n  remedy: two plans of one workload",
            of_a.workload, of_b.workload
        )));
    }
    let is_chosen = !compare.a.is_empty() || !compare.b.is_empty();
    if is_chosen || of_a.stores.iter().any(|store| of_b.stores.contains(store)) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{a} is of {}, and {b} of {}: no store is in both\n  remedy: say which cells are meant, as in --a store=redis --b \
         store=sqlite",
        of_a.stores.join(", "),
        of_b.stores.join(", ")
    )))
}

/// The command that goes on with what is in the folder.
fn going_on(compare: &Compare, b: &Path, folder: &Path) -> String {
    let mut words = vec!["acidtest compare --run".to_owned()];
    words.extend([&compare.a_file, b, folder].map(|path| quoted(&path.display().to_string())));
    words.insert(3, format!("--rounds {} --out", compare.rounds.unwrap_or(ROUNDS)));
    for (option, choices) in [("--a", &compare.a), ("--b", &compare.b)] {
        words.extend(choices.iter().map(|choice| format!("{option} {}", quoted(&choice.to_string()))));
    }
    words.extend(compare.fail_if.iter().map(|each| format!("--fail-if {}", quoted(&each.to_string()))));
    match compare.quiet_machine.quiet_machine {
        None => {}
        Some(QuietMachine::Wait) => words.push("--quiet-machine".to_owned()),
        Some(QuietMachine::Refuse) => words.push("--quiet-machine=refuse".to_owned()),
    }
    if let Format::Json = compare.output {
        words.push("--output json".to_owned());
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_take_turns_and_neither_is_always_the_first() {
        let made = turns(Path::new("one.toml"), Path::new("two.toml"), 3, Path::new("out"));
        let order: Vec<(u32, &str)> = made.iter().map(|turn| (turn.round, turn.side)).collect();
        assert_eq!(order, [(1, "a"), (1, "b"), (2, "b"), (2, "a"), (3, "a"), (3, "b")]);
        assert_eq!(made[3].file, Path::new("out/a/round-2.json"));
        assert_eq!((made[2].plan, made[3].plan), (Path::new("two.toml"), Path::new("one.toml")));
    }

    #[test]
    fn what_goes_on_is_typed_as_it_was() {
        let line = "acidtest compare --run A.toml B.toml --rounds 4 --out here --a lock=none --b lock=soft --fail-if 'throughput<0.95' --quiet-machine=refuse --output json";
        let words = line.replace('\'', "");
        let Command::Compare(compare) = Arguments::try_parse_from(words.split(' ')).unwrap().command else {
            panic!("it is a comparison")
        };
        assert_eq!(going_on(&compare, Path::new("B.toml"), Path::new("here")), line);
    }
}
