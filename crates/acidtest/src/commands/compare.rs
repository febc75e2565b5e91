//! `acidtest compare`.

use std::path::PathBuf;

use acidtest_report::compare::{Choice, Condition, Judge, Selector, Side, compare as compared};
use acidtest_runner::Failure;
use clap::{Args, ValueEnum};

use crate::{args::Format, exit::Status, output};

const EXAMPLES: &str = "\
Examples:
  acidtest compare before.json after.json
      every cell with its twin in the other run
  acidtest compare result.json --a lock=none --b lock=native
      cells of one run, whose trials were interleaved: ratios round by round
  acidtest compare result.json --a store=postgres --b store=mariadb --b clients=16
      what only one side names is meant for both where cells must be told apart
  acidtest compare before.json after.json --fail-if 'throughput<0.95' --fail-if 'capture:p99>1.2'
      a gate: exit status 6 if the ratio B / A is shown to lie beyond a bound

NAME is store, address, lock, durability, tls, clients, rate (a number, or closed) or a parameter of the workload.
FIGURE is throughput, p50, p95, p99, p99.9, max, client_cpu, server_cpu or errors, over all operations together, or of
one: OPERATION:FIGURE. So are the times of a queue's delivery: delivery:p99.";

/// Holds cells of one result, or of two, against each other.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Compare {
    /// The result file of A, and of B where none is given for it
    pub(crate) a_file: PathBuf,
    /// The result file of B
    pub(crate) b_file: Option<PathBuf>,
    /// Cells of A that have this value; may be repeated
    #[arg(long = "a", value_name = "NAME=VALUE")]
    pub(crate) a: Vec<Choice>,
    /// Cells of B that have this value; may be repeated
    #[arg(long = "b", value_name = "NAME=VALUE")]
    pub(crate) b: Vec<Choice>,
    /// Exit with 6 if the ratio B / A lies beyond a bound; may be repeated
    #[arg(long, value_name = "FIGURE<BOUND")]
    pub(crate) fail_if: Vec<Condition>,
    /// What must lie beyond the bound
    #[arg(long, value_enum, default_value_t, requires = "fail_if")]
    pub(crate) fail_on: FailOn,
    /// What is printed
    #[arg(long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum FailOn {
    /// The whole 95 % interval: noise alone closes no gate
    #[default]
    Interval,
    /// The estimate: noise may
    Estimate,
}

pub(crate) fn compare(compare: Compare) -> Result<Status, Failure> {
    let a = output::load(&compare.a_file)?;
    let b_file = compare.b_file.as_ref().unwrap_or(&compare.a_file);
    let b = if compare.b_file.is_some() { output::load(b_file)? } else { a.clone() };
    if let Some(search) = [&a, &b].into_iter().find(|result| result.plan.capacity.is_some()) {
        return Err(Failure::Usage(format!(
            "run {} is a search for a capacity: its trials have different rates, and no figure over all of them\n  remedy: search \
             both in one run (several --store, --lock, --durability), which prices them, or read both with acidtest show",
            search.run
        )));
    }
    let (a_selector, b_selector) = (Selector::from_iter(compare.a), Selector::from_iter(compare.b));
    let (a_name, b_name) = (compare.a_file.display().to_string(), b_file.display().to_string());
    let judge = match compare.fail_on {
        FailOn::Interval => Judge::Interval,
        FailOn::Estimate => Judge::Estimate,
    };
    let comparison = compared(
        Side { result: &a, name: &a_name, choose: "--a ", selector: &a_selector },
        Side { result: &b, name: &b_name, choose: "--b ", selector: &b_selector },
        &compare.fail_if,
        judge,
    )
    .map_err(|error| Failure::Usage(error.to_string()))?;
    output::print_text(&match compare.output {
        Format::Table => comparison.render(output::style()),
        Format::Json => {
            serde_json::to_string_pretty(&comparison).map_err(|error| Failure::Other(error.to_string()))?
                + "\n"
        }
    })?;
    Ok(if comparison.failed { Status::Worse } else { Status::Held })
}
