//! The arguments of a comparison.

use std::path::PathBuf;

use acidtest_model::Share;
use acidtest_report::compare::{Choice, Condition};
use acidtest_results::dimension_names;
use clap::Args;

use crate::run_arguments::{Format, QuietOption};

const EXAMPLES: &str = "\
Examples:
  acidtest compare result.json --a lock=none --b lock=native
      cells of one run, whose trials were interleaved: ratios round by round
  acidtest compare --run before.toml after.toml --rounds 10 --fail-if 'throughput<0.95'
      a gate on two plans that are run in turn, A B, B A, and so on: exit status 6 if B / A is
      shown to lie beyond the bound, 0 if that is excluded, and 7 if it is neither
  acidtest compare before/ after/ --fail-if 'throughput<0.95' --fail-if 'capture:p99>1.2'
      the same with existing results: each folder has several runs of one plan
  acidtest compare before.json after.json
      one run a side shows nothing, because two runs of the same plan differ, too
  acidtest compare before.json after.json --between-runs 3% --fail-if 'throughput<0.8'
      unless it is known by how much they differ
  acidtest compare result.json --a store=postgres --b store=mariadb --b clients=16
      what only one side names applies to both where cells must be told apart";

/// What may be written where the help says so.
fn after_help() -> String {
    let names = dimension_names().collect::<Vec<_>>().join(", ");
    format!(
        "{EXAMPLES}

NAME is one of {names}, or a parameter of the workload; of a rate, VALUE may be closed.
FIGURE is throughput, p50, p95, p99, p99.9, max, client_cpu, server_cpu or errors, over all operations together, or of
one: OPERATION:FIGURE. The same goes for a queue's delivery: delivery:p99."
    )
}

/// Holds cells of one result, or of several a side, against each other.
#[derive(Debug, Args)]
#[command(after_help = after_help(), mut_arg("quiet_machine", |arg| arg.requires("run")))]
pub(crate) struct Compare {
    /// The result file of A, or a folder of them; also that of B if no other is given
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
    /// How much two runs of the same plan are known to differ (standard deviation), with one run a side
    #[arg(long, value_name = "SHARE", conflicts_with = "run")]
    pub(crate) between_runs: Option<Share>,
    /// Run two plans (A and B are plan files, *.toml) in turn, and compare them
    #[arg(long, requires = "b_file")]
    pub(crate) run: bool,
    /// How many times --run runs each plan [default: 5]
    #[arg(long, value_name = "N", requires = "run", value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) rounds: Option<u32>,
    /// Folder for the results of --run; existing runs in it are kept, or finished [default: a new one in results]
    #[arg(long, value_name = "FOLDER", requires = "run")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) quiet_machine: QuietOption,
    /// What is printed
    #[arg(long, value_enum, default_value_t)]
    pub(crate) output: Format,
}
