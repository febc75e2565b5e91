//! The command line.

use std::{path::PathBuf, str::FromStr};

use acidtest_model::Durability;
use acidtest_results::{Plan, RunResult};
use acidtest_runner::Failure;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use serde::{Deserialize, Serialize};

use crate::{
    commands::{compare::Compare, report::Report},
    option_arguments::{Data, Driving, GivenValues, Grid, OptionArguments, Room, Search, in_search},
    parameter_arguments::{Offering, ParameterArguments, ReadAsLists, store, workload},
};

const EXIT_CODES: &str = "\
Exit status:
  0    every promised guarantee held
  1    acidtest itself failed (a full disk, an unwritable result)
  2    bad usage
  3    a store could not be reached or started
  4    a promised guarantee was broken
  5    whether a promised guarantee held could not be told
  6    a comparison failed: what was compared did not hold, or is shown to be
       worse than asked for; a search found that no rate meets the objectives,
       or that the demand is not carried
  7    a comparison is inconclusive: it told neither that nor the contrary; a
       search could not tell the capacity, or whether it carries the demand
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
    /// Search for the rate at which 95 % of fresh probes meet every objective, and the audit holds
    Capacity(Box<Capacity>),
    /// Take log entries over HTTP, keep what is acknowledged, and store it in a database
    #[cfg(feature = "gateway")]
    Gateway(Box<crate::gateway_arguments::Gateway>),
    #[cfg(feature = "gateway")]
    Collector(Box<crate::gateway_arguments::Collector>),
    /// Start, watch, stop and compare runs, in a browser and over HTTP
    #[cfg(feature = "serve")]
    Serve(crate::commands::serve::Serve),
    /// List the stores: what is installed here, what each can do, and why it cannot do the rest
    Stores(Stores),
    /// List the workloads with their parameters
    Workloads,
    /// Start, list and clear away private servers
    Lab(Lab),
    /// Test the auditor: every planted bug must be caught, a correct store must raise no alarm
    Selftest(Selftest),
    /// Print the table of a result file again
    Show(Show),
    /// Compare cells of results, or two plans run in turn, figure by figure; gate a change on it
    Compare(Box<Compare>),
    /// Turn results into an HTML page, Markdown or CSV
    Report(Report),
    /// Print the JSON Schema of result files
    Schema,
    /// Print a script that completes words in a shell
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
    /// Print the manual page, of all commands
    #[command(after_help = MAN_EXAMPLES)]
    Man,
}

const MAN_EXAMPLES: &str = "\
Examples:
  acidtest man | man -l -
      read it
  acidtest man > ~/.local/share/man/man1/acidtest.1
      so that `man acidtest` finds it";

const RUN_EXAMPLES: &str = "\
Examples:
  acidtest run inventory
      ten seconds on embedded SQLite: nothing to install
  acidtest run inventory --store postgres,redis --lock none,soft,hard,native --trials 3
      start both privately and price each lock mode against none
  acidtest run inventory --store postgres --items 10 --skew zipf:0.99 --rate 2000
      an open loop on few, hot items: response times from when an operation was due
  ACIDTEST_PASSWORD=... acidtest run inventory --store postgres://ann@db.example/shop
      your own server, in a schema of acidtest's own that is dropped at the end
  acidtest run records --store postgres,redis --mix a,b,c,d,f --clients 3..66:9 --trials 3
      a sweep: every list is an axis, and 3..66:9 is 3, 12, … 66; this is 240 trials
  acidtest run inventory --store postgres,redis --durability none,disk --fault none,kill@3s
      what is lost when the server is killed, and how long nobody is served
  acidtest run logs --store postgres --queue disk,memory --fault kill:gateway@3s
      log entries through a gateway: what it keeps when it is killed
  acidtest run queue --store rabbitmq --ack none,confirm,transaction --persistent false,true
      what acknowledgements, transactions and persistence cost
  acidtest run join --store sqlite,postgres,mariadb --clients 1,16 --trials 3
      a join over two tables, whose every answer is looked at
  acidtest run parcels --store postgres,redis --lock none,soft,native --parcels 20 --fits 30.7GB
      counts that must be right, and how many rows fit into that much memory or disk
  acidtest run --resume results/20261122T101500Z-4711-5e1fa2-records.json
      go on where a run was interrupted
  acidtest run records --store postgres,redis --records 5000000 --mix a,b --dry-run
      its cells, how long they take, and the memory and disk that they need; nothing is run
  acidtest run inventory --lock none,native --save-plan plan.toml && acidtest run plan.toml
      keep a plan in a file";

#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct Run {
    /// What is searched for, of a search for a capacity.
    #[arg(skip)]
    pub(crate) search: Option<OptionArguments<Search>>,
    // before the others, which take what was typed
    #[command(flatten)]
    pub(crate) as_lists: ReadAsLists,
    /// A workload (see `acidtest workloads`) or a plan file (*.toml)
    #[arg(required_unless_present = "resume", conflicts_with = "resume", value_parser = workload(), hide_possible_values = true)]
    pub(crate) what: Option<String>,
    /// Go on with a run that was interrupted, in its result file
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,

    #[command(flatten, next_help_heading = "Grid")]
    pub(crate) grid: OptionArguments<Grid>,
    #[command(flatten, next_help_heading = "Driving")]
    pub(crate) driving: OptionArguments<Driving>,
    #[command(flatten)]
    pub(crate) parameters: ParameterArguments,
    #[command(flatten)]
    pub(crate) output: Output,
}

const CAPACITY_EXAMPLES: &str = "\
Examples:
  acidtest capacity inventory --slo 'p99<20ms' --slo 'errors<0.1%'
      how many operations a second SQLite carries; the estimate of the time comes first
  acidtest capacity parcels --store postgres,redis --slo 'insert:p99<5ms' --demand 4051/s \\
      --growth 3%/month
      two stores side by side, and for how long each carries a demand that grows
  acidtest capacity inventory --store postgres --durability none,process,disk --budget 5m
      what durability costs in capacity, in half of the time
  acidtest capacity --resume results/20261122T101500Z-4711-5e1fa2-inventory.json --budget 20m
      go on where a search was interrupted, or where its budget was spent";

#[derive(Debug, Args)]
#[command(mut_args(in_search), after_help = CAPACITY_EXAMPLES)]
pub(crate) struct Capacity {
    #[command(flatten)]
    pub(crate) run: Run,
    #[command(flatten, next_help_heading = "Search")]
    pub(crate) search: OptionArguments<Search>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table for people
    #[default]
    Table,
    /// The result itself
    Json,
}

/// Where data and results go.
#[derive(Debug, Args)]
#[command(next_help_heading = "Data and results")]
pub(crate) struct Output {
    #[command(flatten)]
    pub(crate) data: OptionArguments<Data>,
    /// Result file (*.json), or the folder for it [default: results]
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// What is printed [default: table]
    #[arg(long = "output", value_enum)]
    pub(crate) format: Option<Format>,
    /// Print neither progress nor table
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) quiet_machine: QuietOption,
    #[command(flatten)]
    pub(crate) room: OptionArguments<Room>,
    #[command(flatten)]
    pub(crate) needs: NeedsOptions,
    /// Write the plan to a file, without passwords, and do not run it
    #[arg(long, value_name = "FILE")]
    pub(crate) save_plan: Option<PathBuf>,
}

/// What is done where other programs use the machine before a run.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct QuietOption {
    /// Begin a run only while other programs use less than a quarter of the cores: wait for that, 5 minutes at most, or refuse
    /// at once; exit status 8 where they go on
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "wait")]
    pub(crate) quiet_machine: Option<QuietMachine>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum QuietMachine {
    Wait,
    Refuse,
}

/// What becomes of the estimate of what a plan needs.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct NeedsOptions {
    /// Run although more memory or disk is needed than is free, by the estimate that --dry-run prints
    #[arg(long)]
    pub(crate) insist: bool,
    /// Print the cells, how long they take, and the memory and disk that they need, and do not run them
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl OptionArguments<Room> {
    /// Asks this of a result that is there.
    ///
    /// # Errors
    /// Nothing in it says how large a table was.
    pub(crate) fn ask(&self, result: &mut RunResult) -> Result<(), Failure> {
        let Plan { fits, demand, .. } = self.given.plan;
        let mut trials = result.cells.iter().flat_map(|cell| &cell.trials);
        let searched = result.plan.capacity.is_some();
        if fits.or(result.plan.fits).is_none() && demand.is_some() && !searched {
            return Err(Failure::Usage(
                "--demand has no effect here: it is held against the rows that fit\n  remedy: name a size with --fits".to_owned(),
            ));
        }
        if fits.is_some() && trials.all(|trial| trial.size.is_none()) {
            return Err(Failure::Usage(format!(
                "--fits has no effect here: run {} does not say how large its table was\n  remedy: leave it out",
                result.run
            )));
        }
        self.given.apply_to(&mut result.plan);
        if searched && (fits.is_some() || demand.is_some()) {
            result.find_capacities().map_err(|error| Failure::Usage(error.to_string()))?;
        }
        Ok(())
    }
}

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
        /// The durability level that it is set to
        #[arg(long, default_value_t = Durability::Disk, value_parser = Offering::new(Durability::from_str, Durability::ALL.map(Durability::name)), hide_possible_values = true)]
        durability: Durability,
        /// A free loopback port of your choice
        #[arg(long)]
        port: Option<u16>,
        /// Has it speak TLS, and nothing else, with certificates that are made for it
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
      a thousand random plans, on correct stores that fail as stores do, and with a bug planted
  acidtest selftest --replay selftest-failure.toml
      a plan again that was judged wrongly";

#[derive(Debug, Args)]
#[command(after_help = SELFTEST_EXAMPLES)]
pub(crate) struct Selftest {
    /// Drive so many random plans instead of the known cases
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) plans: Option<u32>,
    /// Seed of every random number
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
    /// Drive a plan again that was judged wrongly, from its file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plans", "seed"])]
    pub(crate) replay: Option<PathBuf>,
    /// Folder for a plan that is judged wrongly, with what happened in it
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

impl Run {
    /// The options of the plan that were given.
    fn options(&self) -> impl Iterator<Item = &GivenValues> {
        let Output { data, room, .. } = &self.output;
        let search = self.search.iter().map(|search| &search.given);
        [&self.grid.given, &self.driving.given, &data.given, &room.given].into_iter().chain(search)
    }

    /// The keys of the plan, and the workload's parameters, that were given as options.
    pub(crate) fn given(&self) -> impl Iterator<Item = &'static str> {
        let parameters = self.parameters.values().map(|(name, _)| name);
        self.options().flat_map(GivenValues::keys).chain(parameters)
    }

    /// Overwrites the plan's values by those that were given on the command line.
    pub(crate) fn apply_to(&self, plan: &mut Plan) {
        let is_given = |key: &str| self.given().any(|given| given == key);
        let usual = Plan::of(&plan.workload).duration;
        if self.search.is_some() {
            // a file that says how long a trial is measured says it of a probe, too
            let is_said = is_given("duration");
            match &mut plan.capacity {
                Some(search) => search.adaptive &= !is_said,
                None => plan.search(is_said || plan.duration != usual),
            }
        }
        // one length of the measured part replaces another
        if is_given("duration") {
            plan.ops = None;
        } else if is_given("ops") || is_given("trace") {
            plan.duration = usual;
        }
        self.options().for_each(|given| given.apply_to(plan));
        plan.parameters.extend(self.parameters.values().map(|(name, value)| (name.to_owned(), value)));
    }
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
