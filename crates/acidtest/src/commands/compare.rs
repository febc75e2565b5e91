//! `acidtest compare`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use acidtest_model::Share;
use acidtest_report::{
    NamedResult, Plan, RunResult,
    compare::{Choice, Comparison, Condition, Outcome, Selector, Side, compare as compared},
};
use acidtest_runner::Failure;
use clap::Args;

use crate::{args::Format, exit::Status, output};

const EXAMPLES: &str = "\
Examples:
  acidtest compare result.json --a lock=none --b lock=native
      cells of one run, whose trials were interleaved: ratios round by round
  acidtest compare before/ after/ --fail-if 'throughput<0.95' --fail-if 'capture:p99>1.2'
      a gate, on folders of several runs of one plan each: exit status 6 if B / A is shown to lie beyond
      a bound, 0 if all that is excluded, and 7 if the runs tell neither
  acidtest compare before.json after.json
      one run a side shows nothing, because two runs of the same differ, too
  acidtest compare before.json after.json --between-runs 3% --fail-if 'throughput<0.8'
      unless it is known by how much they differ
  acidtest compare result.json --a store=postgres --b store=mariadb --b clients=16
      what only one side names is meant for both where cells must be told apart

NAME is store, address, lock, durability, tls, clients, rate (a number, or closed) or a parameter of the workload.
FIGURE is throughput, p50, p95, p99, p99.9, max, client_cpu, server_cpu or errors, over all operations together, or of
one: OPERATION:FIGURE. So are the times of a queue's delivery: delivery:p99.";

/// Holds cells of one result, or of several a side, against each other.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Compare {
    /// The result file of A, or a folder of them; it is that of B, too, where none is given for it
    pub(crate) a_file: PathBuf,
    /// The result file of B, or a folder of them
    pub(crate) b_file: Option<PathBuf>,
    /// Cells of A that have this value; may be repeated
    #[arg(long = "a", value_name = "NAME=VALUE")]
    pub(crate) a: Vec<Choice>,
    /// Cells of B that have this value; may be repeated
    #[arg(long = "b", value_name = "NAME=VALUE")]
    pub(crate) b: Vec<Choice>,
    /// Exit with 6 if the ratio B / A is shown to lie beyond a bound, and with 7 if that is neither shown nor excluded; may be
    /// repeated
    #[arg(long, value_name = "FIGURE<BOUND")]
    pub(crate) fail_if: Vec<Condition>,
    /// How much two runs of the same are known to differ (standard deviation), where there is one run a side
    #[arg(long, value_name = "SHARE")]
    pub(crate) between_runs: Option<Share>,
    /// What is printed
    #[arg(long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

pub(crate) fn compare(compare: &Compare) -> Result<Status, Failure> {
    compare_results(compare, &compare.a_file, compare.b_file.as_deref())
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
        "{what} is a search for a capacity: its trials have different rates, and no figure over all of them\n  remedy: search \
         both in one run (several --store, --lock, --durability), which prices them, or read both with acidtest show"
    )))
}
