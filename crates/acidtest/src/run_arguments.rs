//! The arguments of a run and of a search, and what other commands share with them.

use std::path::PathBuf;

use acidtest_results::{Plan, RunResult};
use acidtest_runner::Failure;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::{
    option_arguments::{Data, Driving, GivenValues, Grid, OptionArguments, Room, Search, in_search},
    parameter_arguments::{ParameterArguments, ReadAsLists, workload},
};

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
      a join of two tables, with every answer checked
  acidtest run parcels --store postgres,redis --lock none,soft,native --parcels 20 --fits 30.7GB
      counts that must be right, and how many rows fit into that much memory or disk
  acidtest run transactions --store postgres,mysql --isolation repeatable-read,serializable
      which anomalies occur at each level, whether they are ruled out, and what the level costs
  acidtest run --resume results/20261122T101500Z-4711-5e1fa2-records.json
      resume an interrupted run
  acidtest run records --store postgres,redis --records 5000000 --mix a,b --dry-run
      its cells, how long they take, and the memory and disk that they need, without running them
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
    /// Resume an interrupted run from its result file
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
      how many operations a second SQLite carries; prints an estimate of the time first
  acidtest capacity parcels --store postgres,redis --slo 'insert:p99<5ms' --demand 4051/s \\
      --growth 3%/month
      two stores side by side, and for how long each carries a growing demand
  acidtest capacity inventory --store postgres --durability none,process,disk --budget 5m
      what durability costs in capacity, in half the time
  acidtest capacity --resume results/20261122T101500Z-4711-5e1fa2-inventory.json --budget 20m
      continue a search that was interrupted or ran out of budget";

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
    /// Start a run only while other programs use less than a quarter of the cores: wait for that, at most 5 minutes, or
    /// refuse at once; exit status 8 if the machine is not quiet
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
    /// Run even if more memory or disk is needed than is free, by the estimate that --dry-run prints
    #[arg(long)]
    pub(crate) insist: bool,
    /// Print the cells, how long they take, and the memory and disk that they need, without running them
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl OptionArguments<Room> {
    /// Refuses it where it has no effect.
    pub(crate) fn is_idle(&self, why: &str) -> Result<(), Failure> {
        match self.given.keys().next() {
            Some(key) => {
                Err(Failure::Usage(format!("--{key} has no effect here: {why}\n  remedy: leave it out")))
            }
            None => Ok(()),
        }
    }

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
