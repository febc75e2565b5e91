//! The options of a plan. Each has one entry here: its key, its type, its default, its name on the command line, and what
//! the help says of it. Whatever goes through options takes them from here.

use std::{collections::BTreeMap, fmt::Debug, ops::RangeInclusive, time::Duration};

use InSearch::{As, Idle};
use acidtest_model::{
    Address, Bytes, Commands, Consistency, Durability, Encryption, Faults, Growth, Lock, Objective,
    PerSecond, Promotion, Reads, Replication, Route, Share, Span,
};

use crate::{CellResult, dimensions::NOT_THERE};

use super::{
    ArrivalKind, CapacityPlan, LOCK_SERVICES, Plan, RefusedKind, TRIALS,
    typed::{Takes, Typed},
};

#[derive(Clone, Copy, Debug)]
pub struct PlanOption {
    pub key: &'static str,
    /// The table of the plan in which the key stands (`[capacity]`); none for the plan itself.
    pub table: Option<&'static str>,
    /// Its name on the command line of a run, without the dashes.
    pub long: &'static str,
    pub group: Group,
    help: &'static str,
    /// How many words it takes.
    pub takes: Takes,
    /// What the help calls its value; empty for its own name.
    pub value_name: &'static str,
    /// The word that it stands for if none is typed after it; none where one has to be.
    pub if_bare: Option<&'static str>,
    /// Whether its value may begin with a hyphen, so that of a negative amount it is said what is wrong.
    pub takes_hyphens: bool,
    /// The words that it takes, where they are a few, or that are offered, and what each of them means, where the help is
    /// to say that.
    pub words: fn() -> Vec<(&'static str, &'static str)>,
    /// What a plan's value of it must be, by itself: what is said where it is not, and whether it is.
    pub rules: &'static [Rule],
    pub in_search: InSearch,
    /// The value of a cell, where its list is an axis of the grid.
    pub of_cell: Option<fn(&CellResult) -> String>,
    /// The words of which random plans have one, or several on an axis; none where they leave it out, or make one up.
    pub drawn: &'static [&'static str],
    /// A word for it, where a plan that has its default says nothing of it.
    example: Option<&'static str>,
    /// What its default is, where that is no value.
    unset: Option<&'static str>,
    value: &'static dyn Value,
}

/// What an option of a run is in a search for a capacity.
#[derive(Clone, Copy, Debug)]
pub enum InSearch {
    Same,
    /// The same, but for its name, what the help says of it, and what that calls its default, where it is another.
    As(&'static str, &'static str, Option<&'static str>),
    /// Without effect, for this reason: it is refused, and is not in the help.
    Idle(&'static str),
}

/// What follows "must" in the message, and whether it is so in a plan.
type Rule = (&'static str, fn(&Plan) -> bool);

/// What an option is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The cells of the grid.
    Grid,
    /// How each cell is driven.
    Driving,
    /// Where data goes.
    Data,
    /// What the rows of a table are to fit into.
    Room,
    /// What a search for a capacity looks for.
    Search,
}

impl PlanOption {
    const fn new(
        (key, table): (&'static str, Option<&'static str>),
        (long, group): (&'static str, Group),
        help: &'static str,
        takes: Takes,
        value: &'static dyn Value,
    ) -> Self {
        Self {
            key,
            table,
            long,
            group,
            help,
            takes,
            value_name: "",
            if_bare: None,
            takes_hyphens: false,
            words: Vec::new,
            rules: &[],
            in_search: InSearch::Same,
            of_cell: None,
            drawn: &[],
            example: None,
            unset: None,
            value,
        }
    }

    const fn value_name(self, value_name: &'static str) -> Self {
        Self { value_name, ..self }
    }

    const fn if_bare(self, word: &'static str) -> Self {
        Self { if_bare: Some(word), ..self }
    }

    const fn takes_hyphens(self) -> Self {
        Self { takes_hyphens: true, ..self }
    }

    const fn words(self, words: fn() -> Vec<(&'static str, &'static str)>) -> Self {
        Self { words, ..self }
    }

    const fn must(self, rules: &'static [Rule]) -> Self {
        Self { rules, ..self }
    }

    const fn in_search(self, in_search: InSearch) -> Self {
        Self { in_search, ..self }
    }

    const fn axis(self, of_cell: fn(&CellResult) -> String) -> Self {
        Self { of_cell: Some(of_cell), ..self }
    }

    const fn drawn(self, drawn: &'static [&'static str]) -> Self {
        Self { drawn, ..self }
    }

    const fn example(self, word: &'static str) -> Self {
        Self { example: Some(word), ..self }
    }

    const fn unset(self, is: &'static str) -> Self {
        Self { unset: Some(is), ..self }
    }

    /// Its key, and that of the table in which it stands.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> + use<> {
        [Some(self.key), self.table].into_iter().flatten()
    }

    /// Where it stands in a plan, as a JSON Pointer.
    #[must_use]
    pub fn pointer(&self) -> String {
        let table = self.table.map_or_else(String::new, |table| format!("/{table}"));
        format!("{table}/{}", self.key)
    }

    /// Its name on the command line, without the dashes, where the plan is of a search for a capacity or not.
    #[must_use]
    pub fn name(&self, searches: bool) -> &'static str {
        match self.in_search {
            InSearch::As(long, ..) if searches => long,
            _ => self.long,
        }
    }

    /// Whether its list is an axis of the grid.
    #[must_use]
    pub fn is_axis(&self) -> bool {
        self.of_cell.is_some()
    }

    /// Whether it has its default in a plan.
    #[must_use]
    pub fn is_usual(&self, plan: &Plan) -> bool {
        self.value.is_usual(plan)
    }

    /// Whether it is to be typed to get this plan.
    #[must_use]
    pub fn is_said(&self, plan: &Plan) -> bool {
        match (self.key, &plan.capacity) {
            // an adaptive search is one that does not say it, and its default is another
            ("duration", Some(search)) => !search.adaptive,
            // a sequence begins at its beginning, and so without one
            ("warmup", _) if plan.trace.is_some() => false,
            _ => !self.is_usual(plan),
        }
    }

    /// What the help says of it, with its default, where the command is a search for a capacity or not.
    #[must_use]
    pub fn help(&self, searches: bool) -> String {
        let (help, unset) = match self.in_search {
            InSearch::As(_, help, unset) if searches => (help, unset),
            _ => (self.help, self.unset),
        };
        let usual = Plan { capacity: Some(CapacityPlan::default()), ..Plan::of("") };
        let default = unset.map_or_else(|| self.default(&usual), str::to_owned);
        if default.is_empty() { help.to_owned() } else { format!("{help} [default: {default}]") }
    }

    /// What it is in a plan in which it has its default, as it is typed or in words; empty for a flag, and for what is not there.
    #[must_use]
    pub fn default(&self, usual: &Plan) -> String {
        self.unset.map_or_else(|| self.typed(usual).join(","), str::to_owned)
    }

    /// Its value in a plan as it is typed: the words of a list, or one; none of a flag, and none where there is no value.
    #[must_use]
    pub fn typed(&self, plan: &Plan) -> Vec<String> {
        self.value.typed(plan)
    }

    /// Reads the words that were typed for it into a plan.
    ///
    /// # Errors
    /// What is wrong with one of the words.
    pub fn read(&self, words: &[String], plan: &mut Plan) -> Result<(), String> {
        self.value.read(words, plan)
    }

    /// Gives a plan the value that it has in another one.
    pub fn copy(&self, from: &Plan, to: &mut Plan) {
        self.value.copy(from, to);
    }
}

/// The option with this key in a plan; none for another word.
#[must_use]
pub fn option_of(key: &str) -> Option<&'static PlanOption> {
    OPTIONS.iter().find(|option| option.key == key)
}

/// Options of driving that are no conditions by themselves: what follows from them is said in words of its own.
const LENGTHS_AND_SEATS: [&str; 4] = ["duration", "ops", "threads", "processes"];

/// The options that bear on the figures of all cells of a run, each by itself.
pub fn conditions() -> impl Iterator<Item = &'static PlanOption> {
    OPTIONS.iter().filter(|option| {
        let drives = option.group == Group::Driving && !option.is_axis();
        (drives || option.key == "lock_service") && !LENGTHS_AND_SEATS.contains(&option.key)
    })
}

/// The value of an option in a plan, whatever its type is.
trait Value: Debug + Sync {
    fn is_usual(&self, plan: &Plan) -> bool;
    fn typed(&self, plan: &Plan) -> Vec<String>;
    fn read(&self, words: &[String], plan: &mut Plan) -> Result<(), String>;
    fn copy(&self, from: &Plan, to: &mut Plan);
}

/// Where a value of this type is in a plan.
#[derive(Debug)]
struct Accessors<T> {
    get: fn(&Plan) -> Option<&T>,
    get_mut: fn(&mut Plan) -> &mut T,
    is_usual: fn(&T) -> bool,
}

impl<T: Clone + Debug + Typed> Value for Accessors<T> {
    fn is_usual(&self, plan: &Plan) -> bool {
        (self.get)(plan).is_none_or(self.is_usual)
    }

    fn typed(&self, plan: &Plan) -> Vec<String> {
        (self.get)(plan).map_or_else(Vec::new, Typed::typed)
    }

    fn read(&self, words: &[String], plan: &mut Plan) -> Result<(), String> {
        *(self.get_mut)(plan) = T::read(words)?;
        Ok(())
    }

    fn copy(&self, from: &Plan, to: &mut Plan) {
        if let Some(value) = (self.get)(from) {
            (self.get_mut)(to).clone_from(value);
        }
    }
}

/// `KEY: TYPE = DEFAULT => GROUP, "NAME ON THE COMMAND LINE", "HELP"` of each option, with more that is said of it, and
/// `[TABLE]` with those that stand in a table of the plan.
macro_rules! options {
    ($(
        $($key:ident: $type:ty = $usual:expr => $group:ident, $long:literal, $help:literal $(.$method:ident($($arg:tt)*))*;)*
        [$table:ident] $plan:ident => $get:expr, $get_mut:expr, {
            $($inner:ident: $of:ty = $default:expr => $about:ident, $name:literal, $said:literal $(.$more:ident($($with:tt)*))*;)*
        }
    )*) => {
        /// The default of each option.
        pub(super) mod usual {
            use super::*;
            $($(pub(crate) fn $key() -> $type { $usual })* $(pub(crate) fn $inner() -> $of { $default })*)*
        }

        /// Whether a value is an option's default.
        #[allow(clippy::float_cmp, clippy::ptr_arg, clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
        pub(super) mod is_usual {
            use super::*;
            $($(pub(crate) fn $key(value: &$type) -> bool { *value == usual::$key() })*
              $(pub(crate) fn $inner(value: &$of) -> bool { *value == usual::$inner() })*)*
        }

        /// The options of a plan, in the order of the help.
        pub static OPTIONS: &[PlanOption] = &[$(
            $(PlanOption::new(
                (stringify!($key), None), ($long, Group::$group), $help, <$type as Typed>::TAKES,
                &Accessors::<$type> { get: |plan| Some(&plan.$key), get_mut: |plan| &mut plan.$key, is_usual: is_usual::$key },
            )$(.$method($($arg)*))*,)*
            $(PlanOption::new(
                (stringify!($inner), Some(stringify!($table))), ($name, Group::$about), $said, <$of as Typed>::TAKES,
                &Accessors::<$of> {
                    get: |$plan| $get.map(|table| &table.$inner),
                    get_mut: |$plan| &mut $get_mut.$inner,
                    is_usual: is_usual::$inner,
                },
            )$(.$more($($with)*))*,)*
        )*];

        impl Plan {
            /// A plan that says something of every option, as an example of each.
            #[must_use]
            pub fn example() -> Self {
                let mut plan = Self { capacity: Some(CapacityPlan::default()), ..Self::of("inventory") };
                for option in OPTIONS {
                    if let Some(word) = option.example {
                        // a test holds that it is read
                        let _ = option.read(&[word.to_owned()], &mut plan);
                    }
                }
                plan
            }

            /// The plan of a workload with every key at its default.
            #[must_use]
            pub fn of(workload: &str) -> Self {
                Self {
                    workload: workload.to_owned(),
                    commands: Commands::default(),
                    on_refused: RefusedKind::default(),
                    capacity: None,
                    parameters: BTreeMap::new(),
                    $($($key: usual::$key(),)*)*
                }
            }
        }
    };
}

/// Longest part of a trial, and longest wait for an answer.
const LONGEST: Span = Span(Duration::from_hours(24 * 90));
const LONGEST_ANSWER: Span = Span(Duration::from_hours(24));

/// What opening a connection may take: more than a busy machine needs for it, and less than anybody waits for it.
const CONNECT: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_hours(1);

/// Why an option has no effect in a search for a capacity.
const CHOSEN: &str = "a search for a capacity chooses its rates and its number of probes itself";
const UNDISTURBED: &str = "a capacity is measured without faults";

const SOME: &str = "not be empty or zero";

/// Whether it is so of the search, if the plan is of one.
fn of_search(plan: &Plan, is_so: impl Fn(&CapacityPlan) -> bool) -> bool {
    plan.capacity.as_ref().is_none_or(is_so)
}

const fn seconds(count: u64) -> Span {
    Span(Duration::from_secs(count))
}

/// Words that the help of their option speaks of.
fn names<const N: usize>(words: [&'static str; N]) -> Vec<(&'static str, &'static str)> {
    words.map(|word| (word, "")).to_vec()
}

/// How a cell's replicas answer reads; nothing where the leader alone does.
fn at_replicas(cell: &CellResult, how: &dyn ToString) -> String {
    if cell.reads.is_leader() { NOT_THERE.to_owned() } else { how.to_string() }
}

options! {
    stores: Vec<String> = vec!["sqlite".to_owned()] => Grid, "store",
        "Stores to start privately, or addresses of your own servers"
        .value_name("STORE,...").must(&[(SOME, |plan| !plan.stores.is_empty())])
        .axis(|cell| cell.store.clone());
    locks: Vec<Lock> = vec![Lock::Native] => Grid, "lock",
        "Lock modes: none, soft, hard, native"
        .value_name("LOCK,...").words(|| names(Lock::ALL.map(Lock::name)))
        .must(&[(SOME, |plan| !plan.locks.is_empty())])
        .axis(|cell| cell.lock.to_string()).drawn(&["native", "soft", "hard", "none"]);
    durability: Vec<Durability> = vec![Durability::Disk] => Grid, "durability",
        "Durability levels of private servers: none, process, disk"
        .value_name("DURABILITY,...").words(|| names(Durability::ALL.map(Durability::name)))
        .must(&[(SOME, |plan| !plan.durability.is_empty())])
        .axis(|cell| cell.durability_asked.map_or_else(|| "as it is".to_owned(), |asked| asked.to_string()));
    tls: Vec<Encryption> = vec![Encryption::Off] => Grid, "tls",
        "TLS to private servers: off, on; for your own server, its address decides"
        .value_name("off|on,...").words(|| names(Encryption::ALL.map(Encryption::name)))
        .must(&[(SOME, |plan| !plan.tls.is_empty())])
        .axis(|cell| cell.tls.to_string())
        .example("on");
    nodes: Vec<u32> = vec![1] => Grid, "nodes",
        "Nodes of each private store: 1, or 3 for a cluster (see docs/clusters.md)"
        .value_name("N,...")
        .must(&[
            (SOME, |plan| !plan.nodes.is_empty() && !plan.nodes.contains(&0)),
            ("be at most 7", |plan| plan.nodes.iter().all(|nodes| *nodes <= 7)),
        ])
        .axis(|cell| cell.nodes.to_string())
        .example("3");
    replication: Vec<Replication> = vec![Replication::Async] => Grid, "replication",
        "How many nodes an acknowledged write is on, in clusters: async, semi, quorum, all"
        .value_name("LEVEL,...").words(|| names(Replication::ALL.map(Replication::name)))
        .must(&[(SOME, |plan| !plan.replication.is_empty())])
        .axis(|cell| cell.replication.to_string())
        .example("quorum");
    reads: Vec<Reads> = vec![Reads::Leader] => Grid, "reads",
        "Which members of a cluster answer reads: leader (or primary; as of a single server), replica (or standby), any"
        .value_name("MEMBERS,...").words(|| names(Reads::ALL.map(Reads::name)))
        .must(&[(SOME, |plan| !plan.reads.is_empty())])
        .axis(|cell| cell.reads.to_string())
        .example("replica");
    route: Vec<Route> = vec![Route::Pinned] => Grid, "route",
        "With --reads replica or any, where a client reads: pinned (at one member), spread (at each in turn)"
        .value_name("ROUTE,...").words(|| names(Route::ALL.map(Route::name)))
        .must(&[(SOME, |plan| !plan.route.is_empty())])
        .axis(|cell| at_replicas(cell, &cell.route))
        .example("spread");
    consistency: Vec<Consistency> = vec![Consistency::Eventual] => Grid, "consistency",
        "With --reads replica or any, what reads see: eventual (they may miss recent writes, which appear later), strong (all \
         that was acknowledged before they began)"
        .value_name("LEVEL,...").words(|| names(Consistency::ALL.map(Consistency::name)))
        .must(&[(SOME, |plan| !plan.consistency.is_empty())])
        .axis(|cell| at_replicas(cell, &cell.consistency))
        .example("strong");
    promote: Promotion = Promotion::default() => Grid, "promote",
        "The replica that takes over when the leader is lost: most-advanced or first"
        .value_name("RULE").words(|| names(Promotion::ALL.map(Promotion::name)))
        .in_search(Idle(UNDISTURBED))
        .example("first");
    faults: Vec<Faults> = Vec::new() => Grid, "fault",
        "Faults in each trial: none; for servers kill@3s, kill@3s:500ms (down for that long), kill*5 (five at random), \
         restart@5s, pause@4s:2s, kill:locks@3s, with logs also kill:gateway@3s (or sink, queue, collector); in \
         clusters lose:leader@3s, cut:leader@3s:4s, kill:replica-1@3s; for clients disconnect@3s, stall@3s:2s; several together: kill@3s+pause@6s:1s"
        .value_name("FAULT,...").unset("none")
        .in_search(Idle(UNDISTURBED))
        .axis(|cell| cell.faults.to_string())
        .example("kill@3s");

    [commands] plan => Some(&plan.commands), plan.commands, {
        kill: Option<String> = None => Grid, "on-kill",
            "Shell command that kills your own server, for --fault kill; at most 60 s"
            .value_name("COMMAND").in_search(Idle(UNDISTURBED))
            .example("systemctl kill -s KILL postgresql");
        stop: Option<String> = None => Grid, "on-stop",
            "Shell command that stops it cleanly, for --fault restart"
            .value_name("COMMAND").in_search(Idle(UNDISTURBED))
            .example("systemctl stop postgresql");
        start: Option<String> = None => Grid, "on-start",
            "Shell command that starts it again, after a kill or a restart"
            .value_name("COMMAND").in_search(Idle(UNDISTURBED))
            .example("systemctl start postgresql");
        pause: Option<String> = None => Grid, "on-pause",
            "Shell command that pauses it, for --fault pause"
            .value_name("COMMAND").in_search(Idle(UNDISTURBED))
            .example("systemctl kill -s STOP postgresql");
        resume: Option<String> = None => Grid, "on-resume",
            "Shell command that resumes it"
            .value_name("COMMAND").in_search(Idle(UNDISTURBED))
            .example("systemctl kill -s CONT postgresql");
    }

    // the number of clients of the inventory study
    clients: Vec<u32> = vec![16] => Grid, "clients",
        "Numbers of clients; 3..66:9 is 3, 12, 21, … 66"
        .value_name("N,...")
        .must(&[
            (SOME, |plan| !plan.clients.is_empty() && !plan.clients.contains(&0)),
            ("be at most 100,000", |plan| plan.clients.iter().all(|clients| *clients <= 100_000)),
        ])
        .axis(|cell| cell.clients.to_string()).drawn(&["1", "2", "3", "5", "8", "13"]);
    trials: u32 = 1 => Grid, "trials",
        "Trials of each cell, interleaved"
        .must(&[(SOME, |plan| plan.trials > 0), ("be at most 10,000", |plan| plan.trials <= TRIALS)])
        .in_search(Idle(CHOSEN));
    skip_unsupported: bool = false => Grid, "skip-unsupported",
        "Leave out cells that a store cannot run, instead of refusing the plan";
    lock_service: String = "redis".to_owned() => Grid, "lock-service",
        "The server that keeps hard locks for stores without locks of their own: redis, postgres or an address"
        .value_name("STORE").words(|| names(LOCK_SERVICES));

    duration: Span = seconds(10) => Driving, "duration",
        "Length of the measured part (10s, 1m 30s)"
        .must(&[
            (SOME, |plan| !plan.duration.0.is_zero()),
            ("be at most 90 days", |plan| plan.duration.0 <= LONGEST.0),
        ])
        .in_search(As("hold", "For how long every objective must hold at a rate", Some("5s to 30s, as needed")));
    ops: Option<u64> = None => Driving, "ops",
        "Length of the measured part in operations over all clients"
        .must(&[("be between 1 and 1,000,000,000,000", |plan| {
            plan.ops.is_none_or(|ops| (1..=1_000_000_000_000).contains(&ops))
        })])
        .in_search(Idle("every objective must hold for a time (--hold)"))
        .example("100000");
    warmup: Span = seconds(2) => Driving, "warmup",
        "Time that is driven but not recorded before the measured part"
        .must(&[("be at most 90 days", |plan| plan.warmup.0 <= LONGEST.0)]);
    rates: Vec<f64> = Vec::new() => Driving, "rate",
        "Open loop: operations a second over all clients, all kinds together: half of the inventory's are captures, so \
         8,000 orders a second are 16000"
        .value_name("RATE,...").unset("closed loop")
        .must(&[("be between 0.001 and 10,000,000", |plan| {
            plan.rates.iter().all(|rate| (1e-3..=1e7).contains(rate))
        })])
        .in_search(Idle(CHOSEN))
        // printed in full, so that two different rates never look alike
        .axis(|cell| cell.rate.map_or_else(|| "closed".to_owned(), |offered| offered.to_string()))
        .example("2000");
    arrivals: ArrivalKind = ArrivalKind::default() => Driving, "arrivals",
        "How an open loop's arrivals are spaced"
        .words(|| ArrivalKind::ALL.map(|each| (each.name(), each.meaning())).to_vec())
        .in_search(As("arrivals", "How arrivals are spaced", None)).drawn(&["constant", "poisson"]);
    timeout: Span = seconds(10) => Driving, "timeout",
        "Longest time for an operation with all its attempts; after that its outcome is unknown"
        .must(&[
            (SOME, |plan| !plan.timeout.0.is_zero()),
            ("be at most one day", |plan| plan.timeout.0 <= LONGEST_ANSWER.0),
        ]);
    connect_timeout: Span = Span(Address::CONNECT_TIMEOUT) => Driving, "connect-timeout",
        "Longest time to open a connection, including TLS and login; raise it for a server that is slow to accept many \
         clients"
        .value_name("TIME")
        .must(&[("be between 100ms and 1h", |plan| CONNECT.contains(&plan.connect_timeout.0))])
        .example("30s");
    max_retries: u32 = 100 => Driving, "max-retries",
        "Most retries of an operation after conflicts"
        .drawn(&["0", "1", "3", "10"]);
    duty: f64 = 1.0 => Driving, "duty",
        "Share of the time that each client works, above 0 and at most 1; it rests in between"
        .value_name("SHARE")
        .must(&[("be above 0 and at most 1", |plan| plan.duty > 0.0 && plan.duty <= 1.0)])
        .drawn(&["0.1", "0.5", "0.9"])
        .in_search(Idle("operations come at a rate, and clients rest between them anyway"))
        .example("0.5");
    trace: Option<u64> = None => Driving, "trace",
        "Replay a generated sequence of N operations (100,000 if not given) in which every capture succeeds if the order \
         is kept; a refused one is retried after 5 ms; the final stock must match it"
        .value_name("N").if_bare("100000")
        .must(&[("be between 1 and 100,000,000", |plan| {
            plan.trace.is_none_or(|length| (1..=100_000_000).contains(&length))
        })])
        .in_search(Idle("a sequence is replayed in a closed loop, and a search for a capacity needs rates"))
        .example("100000");
    threads: Option<u32> = None => Driving, "threads",
        "Threads that drive the clients, over all processes, at most 1024; embedded stores use one per client"
        .unset("one per core, or fewer in a closed loop with a server on this machine")
        .must(&[("be between 1 and 1,024", |plan| {
            plan.threads.is_none_or(|threads| (1..=1024).contains(&threads))
        })])
        .example("2");
    processes: Option<u32> = None => Driving, "processes",
        "Processes that drive the clients, at most 64"
        .unset("this one; 2 with --fault stall")
        .must(&[("be between 1 and 64", |plan| {
            plan.processes.is_none_or(|processes| (1..=64).contains(&processes))
        })])
        .example("2");
    seed: u64 = 42 => Driving, "seed",
        "Seed for all random numbers"
        .must(&[("be at most 9,223,372,036,854,775,807, the largest number of a plan file", |plan| {
            i64::try_from(plan.seed).is_ok()
        })]);

    namespace: String = "acidtest".to_owned() => Data, "namespace",
        "acidtest's own schema, database or prefix";
    replace: bool = false => Data, "replace",
        "Replace the namespace if an earlier run of acidtest left it there";
    keep: bool = false => Data, "keep",
        "Keep the namespace on your own server after the run";

    fits: Option<Bytes> = None => Room, "fits",
        "Amount of memory or disk (30.7GB, 16GiB): show how many rows of parcels fit, and for how many days"
        .value_name("SIZE").takes_hyphens()
        .example("30.7GB");
    demand: Option<PerSecond> = None => Room, "demand",
        "With --fits, the rate at which rows arrive (4051/s, 350M/day; if not given, the parcels study's 4,051/s); for a \
         capacity, the operations to compare it with"
        .value_name("RATE").takes_hyphens()
        .in_search(As("demand",
            "Operations to compare the capacity with (4051/s, 350M/day), all kinds together: 8,000 inventory orders a \
             second are 16000/s",
            None))
        .example("4051/s");

    [capacity] plan => plan.capacity.as_ref(), plan.capacity.get_or_insert_default(), {
        slo: Vec<Objective> = ["p99<20ms", "errors<0.1%"].iter().filter_map(|text| text.parse().ok()).collect()
            => Search, "slo",
            "Objectives: p50, p99, p99.9, max or the like of response times, for each operation or for a named one \
             (p99<20ms, capture:p99<5ms), and errors: the share of offered operations that failed, were given up, stayed \
             unknown or never started (errors<0.1%)"
            .value_name("OBJECTIVE,...").takes_hyphens()
            .must(&[("be at least one objective and at most 32, as in p99<20ms", |plan| {
                of_search(plan, |search| (1..=32).contains(&search.slo.len()))
            })]);
        growth: Option<Growth> = None => Search, "growth",
            "How the demand grows: 3%/month, or per day, week or year"
            .value_name("GROWTH").takes_hyphens()
            .example("3%/month");
        budget: Span = Span(Duration::from_mins(10)) => Search, "budget",
            "Longest time for the search on a cell; it ends earlier if it knows enough"
            .value_name("TIME")
            .must(&[("be between 1s and 7 days", |plan| {
                of_search(plan, |search| (1..=604_800).contains(&search.budget.0.as_secs()))
            })]);
        probes: u32 = 1000 => Search, "probes",
            "Most probes of a search, however long they take, 8 to 1,000"
            .value_name("N")
            .must(&[("be between 8 and 1,000", |plan| {
                of_search(plan, |search| (8..=1000).contains(&search.probes))
            })]);
        within: Share = Share(0.035) => Search, "within",
            "How precisely the even odds must be known before a rate is confirmed: half of their 95 % interval"
            .value_name("SHARE").takes_hyphens()
            .must(&[("be between 0.5% and 50%", |plan| {
                of_search(plan, |search| (0.005..=0.5).contains(&search.within.0))
            })]);
        shared_machine: bool = false => Search, "shared-machine",
            "Judge probes even while other programs use a quarter of the machine or more: the capacity is then the one \
             beside them"
            .example("true");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What no entry here makes an option.
    const OTHERS: [&str; 6] = ["workload", "commands", "on_refused", "capacity", "adaptive", "parameters"];

    #[test]
    fn every_key_of_a_plan_is_an_option() {
        let schema = serde_json::to_value(schemars::schema_for!(Plan)).unwrap();
        for (table, keys) in [
            (None, &schema["properties"]),
            (Some("capacity"), &schema["$defs"]["CapacityPlan"]["properties"]),
            (Some("commands"), &schema["$defs"]["Commands"]["properties"]),
        ] {
            let keys: BTreeSet<&str> = keys.as_object().unwrap().keys().map(String::as_str).collect();
            let of_table = OPTIONS.iter().filter(|option| option.table == table);
            let options: BTreeSet<&str> = of_table.map(|option| option.key).collect();
            let others: Vec<&&str> = keys.difference(&options).collect();
            assert!(others.iter().all(|key| OTHERS.contains(key)), "{table:?}: {others:?}");
            assert!(options.is_subset(&keys), "{table:?}");
        }
        let names: BTreeSet<&str> = OPTIONS.iter().map(|option| option.long).collect();
        assert_eq!(names.len(), OPTIONS.len());
    }

    /// Each list of a plan is an axis of its grid; a cell says where on it it is.
    #[test]
    fn a_list_is_an_axis() {
        for option in OPTIONS.iter().filter(|option| option.table.is_none()) {
            assert_eq!(option.is_axis(), option.takes == Takes::List, "--{}", option.long);
        }
    }

    #[test]
    fn the_example_of_a_plan_says_something_of_every_option() {
        let example = serde_json::to_value(Plan::example()).unwrap();
        for option in OPTIONS {
            assert!(example.pointer(&option.pointer()).is_some(), "--{}", option.long);
        }
    }

    #[test]
    fn what_is_drawn_is_its_own() {
        for option in OPTIONS {
            for word in option.drawn {
                let mut plan = Plan::of("inventory");
                option.read(&[(*word).to_owned()], &mut plan).unwrap();
                assert_eq!(option.typed(&plan), [*word], "--{}", option.long);
            }
        }
    }

    /// Only what has no value by default may have none.
    #[test]
    fn an_empty_list_is_refused() {
        let usual = Plan { capacity: Some(CapacityPlan::default()), ..Plan::of("inventory") };
        for option in OPTIONS.iter().filter(|option| option.takes == Takes::List) {
            let mut plan = usual.clone();
            option.read(&[], &mut plan).unwrap();
            let is_refused = option.rules.iter().any(|(_, is_so)| !is_so(&plan));
            assert_eq!(is_refused, !option.is_usual(&plan), "--{}", option.long);
        }
    }

    /// What is typed for an option is what the plan then says of it, and changes nothing else.
    #[test]
    fn an_option_is_read_into_its_own_place() {
        let words = [
            "7s", "7", "0.5", "hard", "process", "on", "kill@3s", "constant", "postgres", "9GB", "5/s",
            "p99<7ms", "3%/month", "5%", "quorum", "first", "replica", "spread", "strong",
        ];
        let usual = Plan { capacity: Some(CapacityPlan::default()), ..Plan::of("inventory") };
        for option in OPTIONS {
            let read = |word: &&str| {
                let words =
                    if option.takes == Takes::Nothing { Vec::new() } else { vec![(*word).to_owned()] };
                let mut plan = usual.clone();
                option.read(&words, &mut plan).ok()?;
                (!option.is_usual(&plan) && option.typed(&plan) == words).then_some(plan)
            };
            let plan = words.iter().find_map(read).unwrap_or_else(|| panic!("--{}", option.long));
            let changed: Vec<&str> =
                OPTIONS.iter().filter(|each| !each.is_usual(&plan)).map(|each| each.long).collect();
            assert_eq!(changed, [option.long]);
            let mut copy = usual.clone();
            option.copy(&plan, &mut copy);
            assert_eq!(copy, plan, "--{}", option.long);
        }
    }
}
