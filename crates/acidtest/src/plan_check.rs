//! Whether a plan makes sense, before anything is started: what is out of range, and what would be ignored. Whatever
//! an option cannot do in a plan is refused with the reason; nothing is accepted and left without effect.

use std::{collections::BTreeSet, time::Duration};

use acidtest_model::{Lock, Server};
use acidtest_report::{ArrivalKind, CELLS, Plan, RefusedKind, Span, TRIALS, count};

use crate::{
    exit::Failure,
    grid::{Cell, Grid},
    target::Target,
};

/// Keys of the plan that somebody asked for: options that were given, and what is not as by default. A plan file that
/// names a default's own value does not ask for it: a saved plan names every key.
pub(crate) struct Asked(BTreeSet<&'static str>);

impl Asked {
    /// What the plan asks for, beside the options that were `given` on the command line.
    pub(crate) fn of(plan: &Plan, given: impl IntoIterator<Item = &'static str>) -> Self {
        let usual = Plan::of(&plan.workload);
        let differs = [
            ("locks", plan.locks != usual.locks),
            ("durability", plan.durability != usual.durability),
            ("clients", plan.clients != usual.clients),
            ("duration", plan.duration != usual.duration),
            ("ops", plan.ops.is_some()),
            ("warmup", plan.warmup != usual.warmup),
            ("rates", !plan.rates.is_empty()),
            ("arrivals", plan.arrivals != usual.arrivals),
            ("max_retries", plan.max_retries != usual.max_retries),
            ("on_refused", plan.on_refused != usual.on_refused),
            ("trace", plan.trace.is_some()),
            ("threads", plan.threads.is_some()),
            ("replace", plan.replace),
            ("keep", plan.keep),
            ("lock_service", plan.lock_service != usual.lock_service),
        ];
        let differs = differs.into_iter().filter_map(|(key, differs)| differs.then_some(key));
        Self(differs.chain(given).collect())
    }

    fn has(&self, key: &str) -> bool {
        self.0.contains(key)
    }
}

/// The longest part of a trial, and the longest wait for an answer.
const LONGEST: Duration = Duration::from_hours(24 * 90);
const LONGEST_ANSWER: Duration = Duration::from_hours(24);

/// Checks what a plan says by itself.
///
/// # Errors
/// As [`in_range`], and options that contradict each other.
pub(crate) fn check(plan: &Plan, asked: &Asked) -> Result<(), Failure> {
    in_range(plan)?;
    contradictions(plan, asked)
}

/// Checks each value of a plan, and how many cells its lists make.
///
/// # Errors
/// The first value that is out of range or given twice.
pub(crate) fn in_range(plan: &Plan) -> Result<(), Failure> {
    let axes = [
        ("stores", plan.stores.is_empty()),
        ("locks", plan.locks.is_empty()),
        ("durability", plan.durability.is_empty()),
        ("clients", plan.clients.is_empty() || plan.clients.contains(&0)),
        ("trials", plan.trials == 0),
        ("duration", plan.duration.0.is_zero()),
        ("timeout", plan.timeout.0.is_zero()),
    ];
    if let Some((name, _)) = axes.into_iter().find(|(_, empty)| *empty) {
        return Err(Failure::Usage(format!("{name} must not be empty or zero")));
    }
    let cells = plan.most_cells();
    if cells.is_none_or(|cells| cells > CELLS) {
        let many = cells.map_or_else(|| "more than can be counted".to_owned(), |cells| count(cells as u64));
        return Err(Failure::Usage(format!(
            "its lists make {many} cells, and a run has at most {}: give shorter lists",
            count(CELLS as u64)
        )));
    }
    let axes = [
        repeated(&plan.stores),
        repeated(&plan.locks),
        repeated(&plan.durability),
        repeated(&plan.clients),
        repeated(&plan.rates),
    ];
    let parameters = plan.parameters.values().filter_map(|value| repeated(value.as_array()?));
    if let Some(twice) = axes.into_iter().flatten().chain(parameters).next() {
        return Err(Failure::Usage(format!("{twice} is given twice: its cells would be the same")));
    }
    let most = |length: Span, most: Duration| length.0 <= most;
    let limits = [
        ("rate", "between 0.001 and 10,000,000", plan.rates.iter().all(|rate| (1e-3..=1e7).contains(rate))),
        ("trials", "at most 10,000", plan.trials <= TRIALS),
        ("duration", "at most 90 days", most(plan.duration, LONGEST)),
        ("warmup", "at most 90 days", most(plan.warmup, LONGEST)),
        ("timeout", "at most one day", most(plan.timeout, LONGEST_ANSWER)),
        (
            "ops",
            "between 1 and 1,000,000,000,000",
            plan.ops.is_none_or(|ops| (1..=1_000_000_000_000).contains(&ops)),
        ),
        (
            "seed",
            "at most 9,223,372,036,854,775,807, the largest number of a plan file",
            i64::try_from(plan.seed).is_ok(),
        ),
        ("threads", "between 1 and 1,024", plan.threads.is_none_or(|threads| (1..=1024).contains(&threads))),
        (
            "trace",
            "between 1 and 100,000,000",
            plan.trace.is_none_or(|length| (1..=100_000_000).contains(&length)),
        ),
        ("clients", "at most 100,000", plan.clients.iter().all(|clients| *clients <= 100_000)),
    ];
    if let Some((name, must, _)) = limits.into_iter().find(|(.., fits)| !fits) {
        return Err(Failure::Usage(format!("{name} must be {must}")));
    }
    namespace(&plan.namespace)
}

/// What a list holds twice, if anything.
fn repeated<T: PartialEq + ToString>(list: &[T]) -> Option<String> {
    let twice = list.iter().enumerate().find(|(index, each)| list[..*index].contains(each));
    twice.map(|(_, each)| each.to_string())
}

fn namespace(name: &str) -> Result<(), Failure> {
    let is_plain =
        name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
    let begins = name.starts_with(|first: char| !first.is_ascii_digit());
    if is_plain && begins && name.len() <= 40 {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "namespace \"{name}\" will not do: lower-case letters, digits and _, at most 40, no digit first"
    )))
}

/// An option without effect: its name on the command line, and why.
type Idle = (&'static str, &'static str);

/// Options that rule each other out, whatever the workload and the stores are.
fn contradictions(plan: &Plan, asked: &Asked) -> Result<(), Failure> {
    let (traced, open, warmed) = (plan.trace.is_some(), !plan.rates.is_empty(), !plan.warmup.0.is_zero());
    let both = |key: &str, with: bool| asked.has(key) && with;
    let idle: [(bool, Idle); 8] = [
        (
            both("duration", plan.ops.is_some()),
            ("duration", "the measured part is a number of operations (--ops)"),
        ),
        (both("duration", traced), ("duration", "a sequence is replayed to its end (--trace)")),
        (both("ops", traced), ("ops", "a sequence has its own number of operations (--trace)")),
        (both("warmup", traced && warmed), ("warmup", "a sequence begins at its beginning (--trace)")),
        (both("rates", traced), ("rate", "a sequence is replayed in a closed loop (--trace)")),
        (
            both("arrivals", !open && plan.arrivals == ArrivalKind::Constant),
            ("arrivals", "a closed loop has no schedule: it needs --rate"),
        ),
        (
            both("on_refused", !traced && plan.on_refused == RefusedKind::Retry),
            (
                "on-refused retry",
                "operations are drawn at random: clients that wait for what nobody is bound to bring may all come to \
                 wait; a sequence (--trace) frees what its captures wait for",
            ),
        ),
        (
            both("on_refused", traced && plan.on_refused == RefusedKind::Count),
            (
                "on-refused count",
                "every capture of a sequence succeeds once the operations before it are done, and waits until then \
                 (--trace)",
            ),
        ),
    ];
    refuse(&idle)
}

/// Checks what was asked for against the workloads, stores and cells that a plan comes to.
///
/// # Errors
/// The first option that would be without effect, with the reason.
pub(crate) fn check_effect(
    plan: &Plan,
    asked: &Asked,
    grid: &Grid,
    targets: &[Target],
) -> Result<(), Failure> {
    let workloads = &grid.workloads;
    let own_servers = targets.iter().any(|target| target.address.is_some());
    let keeps_locks = |cell: &Cell| targets[cell.target].kind().lock_service && cell.lock == Lock::Hard;
    let asked_for = |key: &str, idle: bool| asked.has(key) && idle;
    let (ruled, warmed) = (plan.locks.as_slice(), !plan.warmup.0.is_zero());
    let idle: [(bool, Idle); 13] = [
        (
            asked_for("locks", workloads.iter().all(|workload| !workload.decides())),
            ("lock", "nothing that is written depends on what was read: there is nothing to protect"),
        ),
        (
            asked_for(
                "locks",
                workloads
                    .iter()
                    .any(|each| each.lock().is_some_and(|only| each.decides() && ruled != [only])),
            ),
            ("lock", "the workload makes sense under one lock mode only, which it has by itself"),
        ),
        (
            asked_for("clients", workloads.iter().any(|workload| workload.clients().is_some())),
            (
                "clients",
                "the workload has the clients that its own parameters ask for (--producers, --consumers)",
            ),
        ),
        (
            asked_for("durability", targets.iter().all(Target::keeps_rung)),
            (
                "durability",
                "it sets private servers; one of your own keeps its settings, and a message broker has the rung of its \
                 messages and queues (--persistent, --queue): the run says which rung they amount to",
            ),
        ),
        (
            asked_for("warmup", warmed && !workloads.iter().any(|workload| workload.warms_up())),
            ("warmup", "a warm-up would use up what is to be measured"),
        ),
        (
            asked_for("rates", workloads.iter().any(|workload| !workload.is_paced())),
            ("rate", "what was laid in is consumed as fast as it can be (--phase consume)"),
        ),
        (
            asked_for("ops", workloads.iter().any(|workload| !workload.is_paced())),
            (
                "ops",
                "what was laid in is consumed to its end (--phase consume): --backlog says how much that is",
            ),
        ),
        (
            asked_for("trace", !workloads.iter().all(|workload| workload.replays())),
            ("trace", "the workload has no sequence to replay"),
        ),
        (
            asked_for("max_retries", !workloads.iter().any(|workload| workload.conflicts())),
            ("max-retries", "nothing is written: no operation conflicts with another"),
        ),
        (
            asked_for("threads", targets.iter().all(|target| target.kind().server == Server::Embedded)),
            ("threads", "an embedded store holds the thread of its client: each client has one of its own"),
        ),
        (
            asked_for("replace", !own_servers),
            ("replace", "a private server is new: nobody's namespace is there"),
        ),
        (asked_for("keep", !own_servers), ("keep", "a private server goes with all that is in it")),
        (
            asked_for("lock_service", !grid.cells.iter().any(keeps_locks)),
            ("lock-service", "no cell has a hard lock that its store cannot keep by itself"),
        ),
    ];
    refuse(&idle)
}

fn refuse(idle: &[(bool, Idle)]) -> Result<(), Failure> {
    match idle.iter().find(|(is_idle, _)| *is_idle) {
        None => Ok(()),
        Some((_, (option, why))) => {
            Err(Failure::Usage(format!("--{option} has no effect here: {why}\n  remedy: leave it out")))
        }
    }
}
