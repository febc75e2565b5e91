//! The command line.

use std::{path::PathBuf, str::FromStr};

use acidtest_model::Durability;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::{
    commands::{anomalies::Anomalies, report::Report},
    compare_arguments::Compare,
    option_arguments::{OptionArguments, Room},
    parameter_arguments::{Offering, store},
    run_arguments::{Capacity, Format, Run},
};

const EXIT_CODES: &str = "\
Exit status:
  0    every promised guarantee held
  1    acidtest itself failed (a full disk, an unwritable result)
  2    bad usage
  3    a store could not be reached or started
  4    a promised guarantee was broken
  5    it is unknown whether a promised guarantee held
  6    a comparison failed: what was compared did not hold, or is shown to be
       worse than allowed; a search found that no rate meets the objectives,
       or that the demand is not carried
  7    a comparison is inconclusive: neither shown nor excluded; after a search,
       the capacity, or whether it carries the demand, is unknown
  8    nothing was run: other programs used the machine (--quiet-machine)
  130  interrupted";

/// Which data store should carry this workload, what does each of its guarantees cost there, and does
/// the guarantee really hold?
#[derive(Debug, Parser)]
#[command(name = "acidtest", version, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a workload, or a plan file, on one or more stores
    Run(Box<Run>),
    /// Search for the rate at which 95 % of fresh probes meet every objective and the audit holds
    Capacity(Box<Capacity>),
    /// Find which anomalies each isolation level of a store really allows
    Anomalies(Box<Anomalies>),
    /// Take log entries over HTTP, keep what is acknowledged, and store it in a database
    #[cfg(feature = "gateway")]
    Gateway(Box<crate::gateway_arguments::Gateway>),
    #[cfg(feature = "gateway")]
    Collector(Box<crate::gateway_arguments::Collector>),
    /// Start, watch, stop and compare runs, in a browser and over HTTP
    #[cfg(feature = "serve")]
    Serve(crate::serve_arguments::Serve),
    /// List the stores: what is installed here, what each can do, and why it cannot do the rest
    Stores(Stores),
    /// List the workloads with their parameters
    Workloads,
    /// Start, list and remove private servers
    Lab(Lab),
    /// Test the auditor: every planted bug must be caught, a correct store must raise no alarm
    Selftest(Selftest),
    /// Print the table of a result file again
    Show(Show),
    /// Compare cells of results, or two plans run in turn, figure by figure; can gate a change
    Compare(Box<Compare>),
    /// Turn results into an HTML page, Markdown or CSV
    Report(Report),
    /// Print the JSON Schema of result files
    Schema(Schema),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Keep an embedded store in a process of its own, for another acidtest
    #[command(hide = true)]
    Host(Host),
    /// Make a run for `acidtest serve`, over the standard streams
    #[cfg(feature = "serve")]
    #[command(hide = true)]
    Runner,
    /// Drive clients for another acidtest, over the standard streams
    #[command(hide = true)]
    Worker,
    /// Print the manual page of all commands
    #[command(after_help = MAN_EXAMPLES)]
    Man,
}

const MAN_EXAMPLES: &str = "\
Examples:
  acidtest man | man -l -
      read it
  acidtest man > ~/.local/share/man/man1/acidtest.1
      so that `man acidtest` finds it";

#[derive(Debug, Args)]
pub(crate) struct Stores {
    /// Only this store
    #[arg(value_parser = store(), hide_possible_values = true)]
    pub(crate) store: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Start a private server and keep it until `acidtest lab down`
    Up {
        /// Which store
        #[arg(value_parser = store(), hide_possible_values = true)]
        store: String,
        /// Its durability level
        #[arg(long, default_value_t = Durability::Disk, value_parser = Offering::new(Durability::from_str, Durability::ALL.map(Durability::name)), hide_possible_values = true)]
        durability: Durability,
        /// The loopback port to listen on
        #[arg(long)]
        port: Option<u16>,
        /// Speak TLS only, with certificates made for this server
        #[arg(long)]
        tls: bool,
    },
    /// Stop and remove every private server that was kept, and what killed runs left behind
    Down {
        /// Address, with password, of a server on which a killed run left its namespace
        #[arg(long, value_delimiter = ',', value_name = "ADDRESS,...")]
        store: Vec<String>,
        /// Forget namespaces on servers that cannot be reached any more
        #[arg(long)]
        forget: bool,
    },
    /// List private servers
    List,
}

const SELFTEST_EXAMPLES: &str = "\
Examples:
  acidtest selftest
      every known bug, one by one, with the checks that catch it
  acidtest selftest --plans 1000 --seed 7
      a thousand random plans, on correct stores that fail as stores do, and with planted bugs
  acidtest selftest --replay selftest-failure.toml
      rerun a plan that was judged wrongly";

#[derive(Debug, Args)]
#[command(after_help = SELFTEST_EXAMPLES)]
pub(crate) struct Selftest {
    /// Run this many random plans instead of the known cases
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) plans: Option<u32>,
    /// Seed for all random numbers
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
    /// Rerun a plan that was judged wrongly, from its file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plans", "seed"])]
    pub(crate) replay: Option<PathBuf>,
    /// Folder for a plan that is judged wrongly, with its history
    #[arg(long, value_name = "FOLDER", default_value = ".", requires = "plans")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// A result file
    pub(crate) file: PathBuf,
    /// What is printed
    #[arg(long, value_enum, default_value_t)]
    pub(crate) output: Format,
    #[command(flatten)]
    pub(crate) room: OptionArguments<Room>,
}

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Of which results
    #[arg(value_enum, default_value_t)]
    pub(crate) of: SchemaOf,
}

/// The kinds of results.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum SchemaOf {
    /// Those of runs and searches
    #[default]
    Run,
    /// Those of `acidtest anomalies`
    Anomalies,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  acidtest completions bash > ~/.local/share/bash-completion/completions/acidtest
      every bash from now on
  source <(acidtest completions zsh)
      this zsh
  acidtest completions fish > ~/.config/fish/completions/acidtest.fish
      every fish from now on";

#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct Completions {
    /// Which shell
    pub(crate) shell: Shell,
}

/// The store that a host keeps, and where.
#[derive(Debug, Args)]
pub(crate) struct Host {
    pub(crate) store: String,
    #[arg(long)]
    pub(crate) durability: Durability,
    #[arg(long)]
    pub(crate) port: u16,
    /// The store's file or folder
    pub(crate) path: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// A command that is broken between its words is none to copy.
    #[test]
    fn examples_fit_a_hundred_columns() {
        fn look(command: &clap::Command) -> usize {
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = examples.lines().filter(|line| line.starts_with("  ")).collect();
            for line in &lines {
                assert!(line.chars().count() <= 100, "{}: {line}", command.get_name());
            }
            lines.len() + command.get_subcommands().map(look).sum::<usize>()
        }
        assert!(look(&Arguments::command()) >= 50);
    }
}
