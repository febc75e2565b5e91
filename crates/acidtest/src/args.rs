//! The command line.

use std::{path::PathBuf, str::FromStr};

use acidtest_model::{
    Bytes, Commands, Durability, Encryption, Faults, Growth, Lock, Objective, PerSecond, Share, Span,
};
use acidtest_report::{ArrivalKind, CapacityPlan, Plan, RefusedKind, RunResult};
use acidtest_runner::Failure;
use clap::{
    Args, Parser, Subcommand, ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser},
};
use clap_complete::Shell;
use serde::{Deserialize, Serialize};

use crate::{
    commands::{compare::Compare, report::Report},
    order::LOCK_SERVICES,
    parameter_arguments::{NumberList, Offering, ParameterArguments, ReadAsLists, no_group, store, workload},
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
    pub(crate) search: Option<Search>,
    // before the others, which take what was typed
    #[command(flatten)]
    pub(crate) as_lists: ReadAsLists,
    /// A workload (see `acidtest workloads`) or a plan file (*.toml)
    #[arg(required_unless_present = "resume", conflicts_with = "resume", value_parser = workload(), hide_possible_values = true)]
    pub(crate) what: Option<String>,
    /// Go on with a run that was interrupted, in its result file
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) grid: Grid,
    #[command(flatten)]
    pub(crate) driving: Driving,
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
#[command(mut_arg("duration", |arg| arg.long("hold").help("For how long every objective must hold at a rate [default: 5s to 30s, as they need]")),
          mut_arg("demand", |arg| arg.help("Operations that come, of all kinds together (8,000 orders a second of the inventory are 16000/s): 4051/s, 350M/day; the capacity is held against it")),
          mut_arg("arrivals", |arg| arg.help("How arrivals are spaced [default: poisson]")),
          mut_arg("trials", |arg| arg.hide(true)), mut_arg("ops", |arg| arg.hide(true)), mut_arg("rate", |arg| arg.hide(true)),
          mut_arg("trace", |arg| arg.hide(true)), mut_arg("duty", |arg| arg.hide(true)), mut_arg("fault", |arg| arg.hide(true)), mut_arg("on_kill", |arg| arg.hide(true)),
          mut_arg("on_stop", |arg| arg.hide(true)), mut_arg("on_start", |arg| arg.hide(true)),
          mut_arg("on_pause", |arg| arg.hide(true)), mut_arg("on_resume", |arg| arg.hide(true)),
          after_help = CAPACITY_EXAMPLES)]
pub(crate) struct Capacity {
    #[command(flatten)]
    pub(crate) run: Run,
    #[command(flatten)]
    pub(crate) search: Search,
}

/// What a search for a capacity looks for.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Search")]
pub(crate) struct Search {
    /// What must hold: p50, p99, p99.9, max or the like of response times, of each operation apart or of the one named
    /// (p99<20ms, capture:p99<5ms), and errors, which are failed, given up, unknown and never started over offered
    /// (errors<0.1%) [default: p99<20ms,errors<0.1%]
    #[arg(long, value_delimiter = ',', value_name = "OBJECTIVE,...", allow_hyphen_values = true)]
    pub(crate) slo: Option<Vec<Objective>>,
    /// How the demand grows: 3%/month, or a day, week or year
    #[arg(long, value_name = "GROWTH", allow_hyphen_values = true)]
    pub(crate) growth: Option<Growth>,
    /// Most time that the search on a cell takes; it ends sooner where it knows enough [default: 10m]
    #[arg(long, value_name = "TIME")]
    pub(crate) budget: Option<Span>,
    /// Most probes of a search, whatever they take, 8 to 1,000 [default: 1000]
    #[arg(long, value_name = "N")]
    pub(crate) probes: Option<u32>,
    /// How near the even odds are to be before a rate is confirmed: half of their 95 % interval [default: 3.5%]
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    pub(crate) within: Option<Share>,
    /// Judge probes also while other programs use a quarter of the machine or more: the capacity is then that beside them
    #[arg(long)]
    pub(crate) shared_machine: bool,
}

impl Search {
    fn given(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("slo", self.slo.is_some()),
            ("growth", self.growth.is_some()),
            ("budget", self.budget.is_some()),
            ("probes", self.probes.is_some()),
            ("within", self.within.is_some()),
            ("shared_machine", self.shared_machine),
        ];
        given.into_iter().filter_map(|(key, given)| given.then_some(key))
    }

    /// Makes the plan one of a search, with the values that were given.
    fn apply_to(&self, plan: &mut Plan) {
        let search = plan.capacity.get_or_insert_with(CapacityPlan::default);
        set(&mut search.slo, self.slo.as_ref());
        set(&mut search.budget, self.budget.as_ref());
        set(&mut search.probes, self.probes.as_ref());
        set(&mut search.within, self.within.as_ref());
        search.growth = self.growth.or(search.growth);
        search.shared_machine |= self.shared_machine;
    }
}

/// The grid of cells: each list is an axis.
#[derive(Debug, Args)]
#[command(next_help_heading = "Grid")]
pub(crate) struct Grid {
    /// Stores to start privately, or addresses of your own [default: sqlite]
    #[arg(long, value_delimiter = ',', value_name = "STORE,...", value_parser = store(), hide_possible_values = true)]
    pub(crate) store: Option<Vec<String>>,
    /// Lock modes: none, soft, hard, native [default: native]
    #[arg(long, value_delimiter = ',', value_name = "LOCK,...", value_parser = Offering::new(Lock::from_str, Lock::ALL.map(Lock::name)), hide_possible_values = true)]
    pub(crate) lock: Option<Vec<Lock>>,
    /// Durability levels of private servers: none, process, disk [default: disk]
    #[arg(long, value_delimiter = ',', value_name = "DURABILITY,...", value_parser = Offering::new(Durability::from_str, Durability::ALL.map(Durability::name)), hide_possible_values = true)]
    pub(crate) durability: Option<Vec<Durability>>,
    /// TLS to private servers: off, on; your own server's address says it by itself [default: off]
    #[arg(long, value_delimiter = ',', value_name = "off|on,...", value_parser = Offering::new(Encryption::from_str, Encryption::ALL.map(Encryption::name)), hide_possible_values = true)]
    pub(crate) tls: Option<Vec<Encryption>>,
    /// Faults in each trial: none; of servers kill@3s, kill@3s:500ms (down for so long), kill*5 (five at random),
    /// restart@5s, pause@4s:2s, kill:locks@3s, of logs kill:gateway@3s and of sink, queue, collector; of clients
    /// disconnect@3s, stall@3s:2s; together as kill@3s+pause@6s:1s [default: none]
    #[arg(long, value_delimiter = ',', value_name = "FAULT,...")]
    pub(crate) fault: Option<Vec<Faults>>,
    #[command(flatten)]
    pub(crate) commands: FaultCommands,
    /// Numbers of clients; 3..66:9 is 3, 12, 21, … 66 [default: 16]
    #[arg(long, value_delimiter = ',', value_name = "N,...")]
    pub(crate) clients: Option<Vec<NumberList>>,
    /// Trials of each cell, interleaved [default: 1]
    #[arg(long)]
    pub(crate) trials: Option<u32>,
    /// Leave out what a store cannot do, instead of refusing the plan
    #[arg(long)]
    pub(crate) skip_unsupported: bool,
    /// The server that keeps hard locks for stores without locks of their own: redis, postgres or an
    /// address [default: redis]
    #[arg(long, value_name = "STORE", value_parser = Offering::new(StringValueParser::new(), LOCK_SERVICES), hide_possible_values = true)]
    pub(crate) lock_service: Option<String>,
}

/// The user's own commands for faults on servers of the user's own.
#[derive(Debug, Args)]
pub(crate) struct FaultCommands {
    /// Shell command that kills your own server, for --fault kill; at most 60 s
    #[arg(id = "on_kill", long = "on-kill", value_name = "COMMAND")]
    pub(crate) kill: Option<String>,
    /// Shell command that stops it in order, for --fault restart
    #[arg(id = "on_stop", long = "on-stop", value_name = "COMMAND")]
    pub(crate) stop: Option<String>,
    /// Shell command that starts it again, after a kill or a restart
    #[arg(id = "on_start", long = "on-start", value_name = "COMMAND")]
    pub(crate) start: Option<String>,
    /// Shell command that makes it stand still, for --fault pause
    #[arg(id = "on_pause", long = "on-pause", value_name = "COMMAND")]
    pub(crate) pause: Option<String>,
    /// Shell command that lets it go on
    #[arg(id = "on_resume", long = "on-resume", value_name = "COMMAND")]
    pub(crate) resume: Option<String>,
}

impl FaultCommands {
    /// Those that were given.
    pub(crate) fn given(&self) -> Commands {
        let Self { kill, stop, start, pause, resume } = self;
        let [kill, stop, start, pause, resume] = [kill, stop, start, pause, resume].map(Clone::clone);
        Commands { kill, stop, start, pause, resume }
    }
}

/// How every trial is driven.
#[derive(Debug, Args)]
#[command(next_help_heading = "Driving")]
pub(crate) struct Driving {
    /// Length of the measured part (10s, 1m 30s) [default: 10s]
    #[arg(long, conflicts_with = "ops")]
    pub(crate) duration: Option<Span>,
    /// Length of the measured part in operations over all clients
    #[arg(long)]
    pub(crate) ops: Option<u64>,
    /// Driven but not recorded before the measured part [default: 2s]
    #[arg(long)]
    pub(crate) warmup: Option<Span>,
    /// Open loop: operations a second over all clients, of all kinds together: half of those of the inventory are captures, so that
    /// 8,000 orders a second are 16000 [default: closed loop]
    #[arg(long, value_delimiter = ',', value_name = "RATE,...", value_parser = positive)]
    pub(crate) rate: Option<Vec<f64>>,
    /// How an open loop's arrivals are spaced [default: poisson]
    #[arg(long, value_parser = one_of(ArrivalKind::ALL.map(|each| (each.name(), each.meaning()))).try_map(|word| word.parse::<ArrivalKind>()))]
    pub(crate) arrivals: Option<ArrivalKind>,
    /// Longest time for an operation with all its attempts; then it is unknown [default: 10s]
    #[arg(long)]
    pub(crate) timeout: Option<Span>,
    /// Longest time to open a connection, TLS and login included: more for a server that is slow to take many clients [default: 5s]
    #[arg(long, value_name = "TIME")]
    pub(crate) connect_timeout: Option<Span>,
    /// Attempts after a conflict [default: 100]
    #[arg(long)]
    pub(crate) max_retries: Option<u32>,
    /// What a client does after a refused operation; with --trace it tries again [default: count]
    #[arg(long, value_parser = one_of(RefusedKind::ALL.map(|each| (each.name(), each.meaning()))).try_map(|word| word.parse::<RefusedKind>()))]
    pub(crate) on_refused: Option<RefusedKind>,
    /// Share of the time in which each client works, above 0 to 1; it rests in between [default: 1]
    #[arg(long, value_name = "SHARE", conflicts_with = "rate")]
    pub(crate) duty: Option<f64>,
    /// Replay a generated sequence of N operations (100,000 if not given) whose every capture succeeds
    /// in order; one that is refused waits 5 ms and is tried again by itself; the final stock must be the
    /// sequence's own
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "100000",
          value_parser = clap::value_parser!(u64).range(1..=100_000_000), conflicts_with_all = ["ops", "duration", "rate", "warmup"])]
    pub(crate) trace: Option<u64>,
    /// Threads that drive the clients, over all processes, at most 1024; embedded stores have one a
    /// client [default: one a core, or fewer in a closed loop beside a server on this machine]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
    /// Processes that drive the clients, at most 64 [default: this one; 2 with --fault stall]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) processes: Option<u32>,
    /// Seed of every random number [default: 42]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

/// One of a few words, which the help shows with what they mean.
fn one_of<const N: usize>(words: [(&'static str, &'static str); N]) -> PossibleValuesParser {
    PossibleValuesParser::new(words.map(|(word, meaning)| PossibleValue::new(word).help(meaning)))
}

/// A rate as demands are written (`8000`, `350M/day`), in operations a second.
fn positive(text: &str) -> Result<f64, String> {
    no_group(text)?;
    let rate = text.parse::<f64>().ok().or_else(|| text.parse().ok().map(|PerSecond(rate)| rate));
    match rate {
        Some(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        _ => Err("must be a number above 0, such as 8000 or 8000/s; a comma separates several".to_owned()),
    }
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
    /// acidtest's own schema, database or prefix [default: acidtest]
    #[arg(long)]
    pub(crate) namespace: Option<String>,
    /// Replace the namespace if a run of acidtest has left it there
    #[arg(long)]
    pub(crate) replace: bool,
    /// Leave the namespace on your own server at the end
    #[arg(long)]
    pub(crate) keep: bool,
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
    pub(crate) room: Room,
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

/// What the rows of a table are to fit into.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Room {
    /// Memory or disk: say how many rows of parcels fit into it (30.7GB, 16GiB), and for how long
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) fits: Option<Bytes>,
    /// Rows that come, with --fits: 4051/s, 350M/day; if not given, the 4,051/s of the study of parcels. Of a search for a
    /// capacity: the operations that it is held against
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub(crate) demand: Option<PerSecond>,
}

impl Room {
    fn apply_to(self, plan: &mut Plan) {
        plan.fits = self.fits.or(plan.fits);
        plan.demand = self.demand.or(plan.demand);
    }

    /// Asks this of a result that is there.
    ///
    /// # Errors
    /// Nothing in it says how large a table was.
    pub(crate) fn ask(self, result: &mut RunResult) -> Result<(), Failure> {
        let mut trials = result.cells.iter().flat_map(|cell| &cell.trials);
        let searched = result.plan.capacity.is_some();
        if self.fits.or(result.plan.fits).is_none() && self.demand.is_some() && !searched {
            return Err(Failure::Usage(
                "--demand has no effect here: it is held against the rows that fit\n  remedy: name a size with --fits".to_owned(),
            ));
        }
        if self.fits.is_some() && trials.all(|trial| trial.size.is_none()) {
            return Err(Failure::Usage(format!(
                "--fits has no effect here: run {} does not say how large its table was\n  remedy: leave it out",
                result.run
            )));
        }
        self.apply_to(&mut result.plan);
        if searched && (self.fits.is_some() || self.demand.is_some()) {
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
    pub(crate) room: Room,
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
    /// The keys of the plan, and the workload's parameters, that were given as options.
    pub(crate) fn given(&self) -> impl Iterator<Item = &'static str> {
        let (grid, driving, output) = (&self.grid, &self.driving, &self.output);
        let given = [
            ("stores", grid.store.is_some()),
            ("trials", grid.trials.is_some()),
            ("timeout", driving.timeout.is_some()),
            ("connect_timeout", driving.connect_timeout.is_some()),
            ("seed", driving.seed.is_some()),
            ("namespace", output.namespace.is_some()),
            ("locks", grid.lock.is_some()),
            ("durability", grid.durability.is_some()),
            ("tls", grid.tls.is_some()),
            ("faults", grid.fault.is_some()),
            ("commands", !grid.commands.given().is_empty()),
            ("clients", grid.clients.is_some()),
            ("lock_service", grid.lock_service.is_some()),
            ("duration", driving.duration.is_some()),
            ("ops", driving.ops.is_some()),
            ("warmup", driving.warmup.is_some()),
            ("rates", driving.rate.is_some()),
            ("arrivals", driving.arrivals.is_some()),
            ("max_retries", driving.max_retries.is_some()),
            ("on_refused", driving.on_refused.is_some()),
            ("duty", driving.duty.is_some()),
            ("trace", driving.trace.is_some()),
            ("threads", driving.threads.is_some()),
            ("processes", driving.processes.is_some()),
            ("replace", output.replace),
            ("keep", output.keep),
            ("fits", output.room.fits.is_some()),
            ("demand", output.room.demand.is_some()),
        ];
        let given = given.into_iter().filter_map(|(key, given)| given.then_some(key));
        let given = given.chain(self.search.iter().flat_map(Search::given));
        given.chain(self.parameters.values().map(|(name, _)| name))
    }

    /// Overwrites the plan's values by those that were given on the command line.
    pub(crate) fn apply_to(&self, plan: &mut Plan) {
        let (grid, driving, output) = (&self.grid, &self.driving, &self.output);
        if let Some(search) = &self.search {
            // a file that says how long a trial is measured says it of a probe, too
            let begins = plan.capacity.is_none();
            let is_said = plan.duration != Plan::of(&plan.workload).duration || driving.duration.is_some();
            if begins && !is_said {
                plan.duration = CapacityPlan::HOLD;
            }
            search.apply_to(plan);
            if let Some(search) = &mut plan.capacity {
                search.adaptive =
                    driving.duration.is_none() && if begins { !is_said } else { search.adaptive };
            }
        }
        set(&mut plan.stores, grid.store.as_ref());
        set(&mut plan.locks, grid.lock.as_ref());
        set(&mut plan.durability, grid.durability.as_ref());
        set(&mut plan.tls, grid.tls.as_ref());
        set(&mut plan.faults, grid.fault.as_ref());
        let Commands { kill, stop, start, pause, resume } = grid.commands.given();
        let commands = &mut plan.commands;
        for (key, given) in [
            (&mut commands.kill, kill),
            (&mut commands.stop, stop),
            (&mut commands.start, start),
            (&mut commands.pause, pause),
            (&mut commands.resume, resume),
        ] {
            *key = given.or(key.take());
        }
        if let Some(clients) = &grid.clients {
            plan.clients = clients.iter().flat_map(|numbers| numbers.0.clone()).collect();
        }
        plan.skip_unsupported |= grid.skip_unsupported;
        set(&mut plan.lock_service, grid.lock_service.as_ref());
        set(&mut plan.trials, grid.trials.as_ref());
        set(&mut plan.duration, driving.duration.as_ref());
        if driving.duration.is_some() {
            plan.ops = None;
        } else if driving.ops.is_some() || driving.trace.is_some() {
            plan.duration = Plan::of(&plan.workload).duration;
        }
        plan.ops = driving.ops.or(plan.ops);
        set(&mut plan.warmup, driving.warmup.as_ref());
        set(&mut plan.rates, driving.rate.as_ref());
        set(&mut plan.arrivals, driving.arrivals.as_ref());
        set(&mut plan.timeout, driving.timeout.as_ref());
        set(&mut plan.connect_timeout, driving.connect_timeout.as_ref());
        set(&mut plan.max_retries, driving.max_retries.as_ref());
        set(&mut plan.on_refused, driving.on_refused.as_ref());
        set(&mut plan.duty, driving.duty.as_ref());
        plan.trace = driving.trace.or(plan.trace);
        plan.threads = driving.threads.or(plan.threads);
        plan.processes = driving.processes.or(plan.processes);
        set(&mut plan.seed, driving.seed.as_ref());
        set(&mut plan.namespace, output.namespace.as_ref());
        plan.replace |= output.replace;
        plan.keep |= output.keep;
        output.room.apply_to(plan);
        plan.parameters.extend(self.parameters.values().map(|(name, value)| (name.to_owned(), value)));
    }
}

fn set<T: Clone>(value: &mut T, given: Option<&T>) {
    if let Some(given) = given {
        value.clone_from(given);
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

    /// The help of an option names the default that a plan has.
    #[test]
    fn the_help_names_the_real_defaults() {
        let plan_of_inventory = Plan::of("inventory");
        let plan = toml::Value::try_from(&plan_of_inventory).unwrap();
        let command = Arguments::command();
        let run = command.find_subcommand("run").unwrap();
        let mut seen = 0;
        for argument in run.get_arguments() {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let Some((_, said)) = help.split_once("[default: ") else { continue };
            let name = argument.get_id().as_str();
            // the folder of results and the format of the output are in no plan
            if ["out", "format"].contains(&name) {
                continue;
            }
            let named: Vec<String> = acidtest_workloads::WORKLOADS
                .iter()
                .flat_map(|kind| (kind.parameters)())
                .filter(|parameter| parameter.name == name)
                .map(|parameter| parameter.default)
                .collect();
            if !named.is_empty() {
                // a parameter may have another default in each workload that has it
                let missing = named.iter().find(|default| !help.contains(&format!("[default: {default}]")));
                assert_eq!(missing, None, "--{name}");
                seen += 1;
                continue;
            }
            let plural = format!("{name}s");
            let value = [name, &plural].into_iter().find_map(|key| plan.get(key));
            let real = match value {
                Some(toml::Value::Array(values)) => values[0].to_string(),
                Some(value) => value.to_string(),
                None if name == "connect_timeout" => plan_of_inventory.connect_timeout.to_string(),
                None if name == "duty" => plan_of_inventory.duty.to_string(),
                None if name == "threads" => {
                    "one a core, or fewer in a closed loop beside a server on this machine".to_owned()
                }
                None if name == "fault" => "none".to_owned(),
                None if name == "tls" => plan_of_inventory.tls[0].to_string(),
                None if name == "processes" => "this one; 2 with --fault stall".to_owned(),
                None => "closed loop".to_owned(),
            };
            assert_eq!(said.trim_end_matches(']'), real.trim_matches('"'), "--{name}");
            seen += 1;
        }
        assert!(seen >= 20, "{seen} defaults are documented");
    }
}
