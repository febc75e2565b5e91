//! Draws cases at random.

use std::{collections::BTreeMap, time::Duration};

use acidtest_model::{Consistency, Durability, Lock, ReadPolicy, Reads, Replication, Route, Span};
use acidtest_results::{OPTIONS, Plan, PlanOption, option_of};
use acidtest_runner::Failure;
use acidtest_store_memory::{Bug, Faults, selftest::Clock};
use rand::{
    RngExt, SeedableRng,
    seq::{IndexedRandom, index},
};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};

use super::{
    FuzzCase,
    drive::{grid, has_replica_reads},
};

type Rng = Xoshiro256PlusPlus;

/// Workloads to draw from; those in which more can go wrong occur more often.
const WORKLOADS: [&str; 18] = [
    "inventory",
    "inventory",
    "inventory",
    "records",
    "records",
    "records",
    "queue",
    "queue",
    "queue",
    "join",
    "logs",
    "logs",
    "parcels",
    "parcels",
    "parcels",
    "transactions",
    "transactions",
    "transactions",
];

/// Most trials of a plan, so that many plans can be driven.
const MOST_TRIALS: usize = 12;

/// Draws a case whose plan passes its check, of the workload that the bug is planted in, if there is one. Counts the
/// plans that were refused.
pub(crate) fn case(
    rng: &mut Rng,
    planted: Option<(&'static str, Bug)>,
    clock: Clock,
    refused: &mut u64,
) -> FuzzCase {
    loop {
        let workload = planted.map_or_else(|| one(rng, &WORKLOADS), |(workload, _)| workload);
        let mut store = faults(rng, clock);
        if let Some((_, bug)) = planted {
            store = Faults { every: rng.random_range(2..=20), ..store.with(bug) };
        }
        store.unasked = store.outages && chance(rng, 0.4) && !store.is_cluster();
        let plan = plan(rng, workload, clock);
        let sound = if planted.is_some() && chance(rng, 0.3) { rng.random_range(1..=plan.trials) } else { 0 };
        let halt = (clock == Clock::Simulated && chance(rng, 0.15)).then(|| rng.random_range(5..200));
        let seed = rng.random_range(0..1 << 40);
        store.full = room(seed);
        if store.outages && !store.unasked && !store.is_cluster() {
            store.replication = replication(seed, planted.map(|(_, bug)| bug));
        }
        store.reads_cut_off = store.is_cluster() && reads_cut_off(seed);
        store.fails_over = store.outages && !store.unasked && !store.is_cluster() && fails_over(seed);
        store.pooled = store.outages && workload != "queue" && is_pooled(seed);
        let case = FuzzCase { seed, clock, sound, halt, reads: ReadPolicy::default(), store, plan };
        let case = with_replicas(case, planted.map(|(_, bug)| bug));
        if planted.is_some_and(|(_, bug)| bug.strikes_at_replicas()) && !has_replica_reads(&case) {
            *refused += 1;
            continue;
        }
        match trials(&case) {
            Ok(trials) if trials <= MOST_TRIALS => return with_others(case, OPTIONS),
            Ok(_) => {}
            Err(_) => *refused += 1,
        }
    }
}

fn trials(case: &FuzzCase) -> Result<usize, Failure> {
    Ok(grid(case)?.cells.len() * case.plan.trials as usize)
}

/// Options that a plan is drawn with from the start.
const FROM_THE_START: [&str; 5] = ["locks", "clients", "arrivals", "max_retries", "duty"];

/// The case with others of these options: each in one case of five, drawn apart from the rest of the case and from each other,
/// and left out where the plan would be refused or too long with it.
fn with_others(mut case: FuzzCase, options: &[PlanOption]) -> FuzzCase {
    for option in options.iter().filter(|option| !FROM_THE_START.contains(&option.key)) {
        let own = option.key.bytes().fold(case.seed, |mixed, byte| mixed.rotate_left(8) ^ u64::from(byte));
        let mut rng = Rng::seed_from_u64(own);
        if option.drawn.is_empty() || !chance(&mut rng, 0.2) {
            continue;
        }
        let mut other = case.clone();
        draw(&mut rng, &mut other.plan, option);
        if trials(&other).is_ok_and(|trials| trials <= MOST_TRIALS) {
            case = other;
        }
    }
    case
}

/// Gives an option one of the words that are its own to draw, or several if it is an axis.
fn draw(rng: &mut Rng, plan: &mut Plan, option: &PlanOption) {
    let words = if option.is_axis() { some(rng, option.drawn) } else { vec![one(rng, option.drawn)] };
    // a test holds that each is read
    let _ = option.read(&words.into_iter().map(str::to_owned).collect::<Vec<_>>(), plan);
}

/// The same of the option with this key.
fn draw_key(rng: &mut Rng, plan: &mut Plan, key: &str) {
    if let Some(option) = option_of(key) {
        draw(rng, plan, option);
    }
}

/// The case with replicas that are read: of records two times in five, and always where the bug is one of theirs; drawn apart from the
/// rest of the case.
fn with_replicas(mut case: FuzzCase, bug: Option<Bug>) -> FuzzCase {
    let mut rng = Rng::seed_from_u64(case.seed.rotate_left(48));
    let is_theirs = bug.is_some_and(Bug::strikes_at_replicas);
    if case.plan.workload != "records" || !(is_theirs || chance(&mut rng, 0.4)) {
        return case;
    }
    // what keeps replicas from being read, most of the time
    let FuzzCase { store, plan, .. } = &mut case;
    if is_theirs || chance(&mut rng, 0.8) {
        plan.parameters.remove("isolation");
        if chance(&mut rng, 0.7) {
            plan.parameters.remove("transaction");
        }
        plan.locks.retain(|lock| lock.promises());
        if plan.locks.is_empty() {
            plan.locks.push(Lock::Native);
        }
    }
    if store.outages && !store.is_cluster() {
        // a server that has replicas is one of a cluster
        let loses = bug.is_some_and(Bug::strikes_at_a_kill);
        store.replication = if loses || rng.random() { Replication::Quorum } else { Replication::Async };
        (store.unasked, store.fails_over) = (false, false);
        store.reads_cut_off = rng.random();
    }
    let must_be_strong = bug.is_some_and(|bug| Bug::OF_STRONG_REPLICAS.contains(&bug));
    if must_be_strong && chance(&mut rng, 0.7) {
        // once a connection to a replica was lost, what it promises is in doubt
        (store.outages, store.replication) = (false, Replication::None);
        (store.cuts, store.swapped, store.failures) = (0.0, 0.0, 0.0);
        (store.reads_cut_off, store.pooled) = (false, false);
    }
    if must_be_strong && store.is_cluster() {
        store.replication = Replication::Quorum;
    }
    let can_be_strong = store.replication != Replication::Async;
    let is_strong = must_be_strong || (can_be_strong && rng.random());
    let consistency = if is_strong { Consistency::Strong } else { Consistency::Eventual };
    store.replicas = Some(consistency);
    let from = one(&mut rng, &[Reads::Replica, Reads::Any]);
    case.reads = ReadPolicy { from, route: one(&mut rng, &Route::ALL), consistency };
    case
}

/// After how many changes a store is full: one store in seven, drawn apart from the rest of its case.
fn room(seed: u64) -> Option<u64> {
    let mut rng = Rng::seed_from_u64(seed);
    chance(&mut rng, 1.0 / 7.0).then(|| rng.random_range(1..300))
}

/// Whether it is a cluster, and of which level: one that goes away and comes back, five times in eight, drawn apart from the rest
/// of a case.
fn replication(seed: u64, bug: Option<Bug>) -> Replication {
    match Rng::seed_from_u64(seed.rotate_left(32)).random_range(0..8) {
        // it loses writes without a bug
        0..=1 if !bug.is_some_and(Bug::strikes_at_a_kill) => Replication::Async,
        0..=4 => Replication::Quorum,
        _ => Replication::None,
    }
}

/// Whether a leader that is cut off answers reads: every other time, drawn apart from the rest of a case.
fn reads_cut_off(seed: u64) -> bool {
    Rng::seed_from_u64(seed.rotate_left(40)).random_bool(0.5)
}

/// Whether another server answers after an outage: two times in five, drawn apart from the rest of a case.
fn fails_over(seed: u64) -> bool {
    chance(&mut Rng::seed_from_u64(seed.reverse_bits()), 0.4)
}

/// Whether connections end at a pooler: one time in three, drawn apart from the rest of a case.
fn is_pooled(seed: u64) -> bool {
    chance(&mut Rng::seed_from_u64(!seed), 1.0 / 3.0)
}

fn chance(rng: &mut Rng, share: f64) -> bool {
    rng.random::<f64>() < share
}

fn one<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    // every list is written out in this file and is not empty
    *of.choose(rng).unwrap_or(&of[0])
}

/// One to three distinct values of a list, in its order.
fn some<T: Copy>(rng: &mut Rng, of: &[T]) -> Vec<T> {
    let count = if chance(rng, 0.7) { 1 } else { rng.random_range(1..=3.min(of.len())) };
    let mut places = index::sample(rng, of.len(), count).into_vec();
    places.sort_unstable();
    places.into_iter().map(|place| of[place]).collect()
}

/// The faults of a store besides a bug. One store in eight has none, and only takes its time and answers as its queue
/// does.
fn faults(rng: &mut Rng, clock: Clock) -> Faults {
    // by a simulated clock no work takes time, so without delays all clients would keep in step
    let delays =
        if clock == Clock::Simulated { rng.random_range(0.1..0.6) } else { rng.random_range(0.0..0.05) };
    let queue =
        Faults { delays, unflagged: chance(rng, 0.2), unconfirmed: chance(rng, 0.2), ..Faults::default() };
    if chance(rng, 0.125) {
        return queue;
    }
    let mut share = |most: f64| if rng.random::<bool>() { rng.random_range(0.0..most) } else { 0.0 };
    Faults {
        unanswered: share(0.3),
        conflicts: share(0.3),
        failures: share(0.2),
        swapped: share(0.2),
        cuts: share(0.2),
        // a queue that does not flag redeliveries must not deliver a message that a client still holds
        redeliveries: if queue.unflagged { 0.0 } else { share(0.3) },
        outages: chance(rng, 0.25),
        to_the_end: clock == Clock::Simulated && chance(rng, 0.15),
        ..queue
    }
}

/// A plan of any workload.
#[cfg(all(test, feature = "serve"))]
pub(crate) fn any_plan(rng: &mut Rng) -> Plan {
    let workload = one(rng, &WORKLOADS);
    plan(rng, workload, Clock::System)
}

fn plan(rng: &mut Rng, workload: &'static str, clock: Clock) -> Plan {
    let mut plan = Plan {
        stores: vec!["memory".to_owned()],
        durability: vec![Durability::None],
        trials: rng.random_range(1..=3),
        warmup: Span(Duration::ZERO),
        seed: rng.random_range(0..1 << 40),
        ..Plan::of(workload)
    };
    // by the system's clock every wait takes real time
    let strikes = clock == Clock::System || chance(rng, 0.6);
    let timeout = Span(Duration::from_millis(if strikes { rng.random_range(3..60) } else { 5_000 }));
    if workload == "logs" {
        draw_key(rng, &mut plan, "clients");
        plan.warmup = Plan::of(workload).warmup;
        plan.parameters = logs(rng, timeout, clock);
        if clock == Clock::System {
            plan.threads = chance(rng, 0.5).then(|| rng.random_range(1..=4));
        }
        return plan;
    }
    plan.timeout = timeout;
    if chance(rng, 0.3) {
        draw_key(rng, &mut plan, "max_retries");
    }
    let has_lock = matches!(workload, "inventory" | "records" | "parcels");
    if has_lock {
        draw_key(rng, &mut plan, "locks");
    }
    if workload != "queue" {
        draw_key(rng, &mut plan, "clients");
    }
    if clock == Clock::System {
        plan.threads = chance(rng, 0.5).then(|| rng.random_range(1..=4));
    }
    let (simulated, traced) = (clock == Clock::Simulated, workload == "inventory" && chance(rng, 0.2));
    if traced {
        plan.trace = Some(rng.random_range(10..300));
    } else {
        if chance(rng, 0.4) {
            plan.warmup = Span(Duration::from_millis(rng.random_range(1..60)));
        }
        let milliseconds = if simulated { rng.random_range(30..500) } else { rng.random_range(20..80) };
        plan.duration = Span(Duration::from_millis(milliseconds));
        if chance(rng, 0.4) {
            (plan.ops, plan.duration) = (Some(rng.random_range(1..400)), Plan::of(workload).duration);
        }
        if chance(rng, 0.35) {
            plan.rates = some(
                rng,
                if simulated { &[0.5, 3.0, 30.0, 200.0, 1_000.0, 5_000.0] } else { &[2_000.0, 10_000.0] },
            );
            draw_key(rng, &mut plan, "arrivals");
        } else if chance(rng, 0.2) {
            draw_key(rng, &mut plan, "duty");
        }
    }
    plan.parameters = match workload {
        "inventory" => inventory(rng),
        "records" => records(rng),
        "join" => join(rng),
        "parcels" => parcels(rng),
        "transactions" => transactions(rng),
        _ => queue(rng),
    };
    plan
}

type Parameters = BTreeMap<String, Value>;

/// Some of these parameters, each with one value of its list, or with several as an axis.
fn parameters(rng: &mut Rng, all: &[(&str, Vec<Value>)]) -> Parameters {
    let mut parameters = Parameters::new();
    for (name, values) in all {
        if chance(rng, 0.7) {
            let axis = values.len() > 1 && chance(rng, 0.08);
            let value = values.choose(rng).cloned().unwrap_or_default();
            let value = if axis { Value::Array(values[..2].to_vec()) } else { value };
            parameters.insert((*name).to_owned(), value);
        }
    }
    parameters
}

fn values<T: Into<Value> + Clone>(of: &[T]) -> Vec<Value> {
    of.iter().cloned().map(Into::into).collect()
}

/// Few tuples of few skus, so that captures contend for them and take from several at once.
fn inventory(rng: &mut Rng) -> Parameters {
    let mut parameters = parameters(
        rng,
        &[
            ("warehouses", values(&[1, 2, 3, 5])),
            ("conditions", values(&[1, 2, 3])),
            ("sources", values(&[1, 2])),
            ("initial_max", values(&[0, 3, 10, 50])),
            ("units_max", values(&[1, 2, 5])),
            ("capture_share", values(&[0.3, 0.5, 0.7, 1.0])),
            ("skew", values(&["uniform", "zipf:0.9"])),
            ("price_min", values(&[0, 400])),
        ],
    );
    parameters.insert("items".to_owned(), json!(rng.random_range(1..=24)));
    parameters.insert("skus".to_owned(), json!(rng.random_range(1..=12)));
    parameters
}

fn records(rng: &mut Rng) -> Parameters {
    let mixes = [
        "a",
        "b",
        "c",
        "d",
        "e",
        "f",
        "read",
        "write",
        "modify",
        "modify-locked",
        "update:1",
        "read:1+insert:1",
        "read:2+update:1+insert:1+scan:1+rmw:1",
        "scan:1+update:2",
        "insert:1+rmw:3",
    ];
    let mut parameters = parameters(
        rng,
        &[
            ("mix", values(&mixes)),
            ("keys", values(&["uniform", "zipfian", "latest", "hotspot", "own"])),
            ("field_bytes", values(&[16, 20, 40])),
            ("transaction", values(&[1, 2, 4])),
            ("isolation", values(&["default", "serializable"])),
        ],
    );
    parameters.insert("records".to_owned(), json!(rng.random_range(1..=40)));
    parameters.insert("fields".to_owned(), json!(rng.random_range(1..=5)));
    if chance(rng, 0.2) {
        parameters.insert("scan_max".to_owned(), json!(rng.random_range(1..=20)));
    }
    parameters
}

fn join(rng: &mut Rng) -> Parameters {
    let mut parameters = parameters(rng, &[("fields", values(&[1, 3])), ("field_bytes", values(&[16, 30]))]);
    parameters.insert("records".to_owned(), json!(rng.random_range(20..=200)));
    parameters.insert("ext_rows".to_owned(), json!(rng.random_range(1..=20)));
    parameters.insert("value".to_owned(), json!(rng.random_range(0..=9)));
    parameters
}

fn queue(rng: &mut Rng) -> Parameters {
    let mut parameters = parameters(
        rng,
        &[
            ("message_bytes", values(&[24, 40, 200])),
            ("producers", values(&[1, 2, 5])),
            ("consumers", values(&[1, 2, 5])),
            ("ack", values(&["confirm", "transaction", "none"])),
            ("consume", values(&["ack", "transaction", "auto"])),
            ("batch", values(&[1, 3, 8, 100])),
            ("in_flight", values(&[1, 4, 20])),
            ("prefetch", values(&[1, 10, 30, 100])),
        ],
    );
    if chance(rng, 0.3) {
        parameters.insert("phase".to_owned(), one(rng, &["publish", "consume"]).into());
    }
    if chance(rng, 0.4) {
        parameters.insert("backlog".to_owned(), json!(rng.random_range(1..=200)));
    }
    parameters
}

/// Few parcels, so that clients scan the same ones.
fn parcels(rng: &mut Rng) -> Parameters {
    let mixes = ["insert", "hash", "id", "350+5000", "9450+8000", "insert:2+hash:1+id:1", "insert:9+id:1"];
    let mut parameters = parameters(
        rng,
        &[
            ("mix", values(&mixes)),
            ("eighths", values(&[0.0, 0.05, 0.125])),
            ("insert_batch", values(&[1, 2, 4])),
        ],
    );
    parameters.insert("parcels".to_owned(), json!(rng.random_range(4..=20)));
    parameters.insert("scans".to_owned(), json!(rng.random_range(0..=90)));
    parameters
}

/// Few keys, so that transactions meet.
fn transactions(rng: &mut Rng) -> Parameters {
    let mixes = ["all", "lists", "registers", "bank", "lists:3+bank:1", "registers:1+bank:1"];
    let levels = ["default", "read-committed", "repeatable-read", "serializable"];
    parameters(
        rng,
        &[
            ("mix", values(&mixes)),
            ("keys", values(&[2, 3, 10])),
            ("skew", values(&["uniform", "zipf:0.9"])),
            ("operations", values(&[1, 2, 4, 12])),
            ("write_share", values(&[0.2, 0.5, 1.0])),
            ("isolation", values(&levels)),
        ],
    )
}

/// Few entries in a short time, so that clients meet.
fn logs(rng: &mut Rng, give_up: Span, clock: Clock) -> Parameters {
    let mut parameters = parameters(
        rng,
        &[
            ("hold_open", values(&[true, false])),
            ("retry", values(&[true, false])),
            ("entry_bytes", values(&[40, 90])),
        ],
    );
    let together = one(rng, &[1, 1, 2, 5]);
    parameters.insert("entries_per_request".to_owned(), json!(together));
    parameters.insert("entries".to_owned(), json!(together * rng.random_range(1..=20)));
    let most = if clock == Clock::Simulated { 500 } else { 80 };
    let ramp = Span(Duration::from_millis(rng.random_range(1..most)));
    parameters.insert("ramp".to_owned(), ramp.to_string().into());
    parameters.insert("give_up".to_owned(), give_up.to_string().into());
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An option that comes later is drawn without another draw of what was there before it.
    #[test]
    fn another_option_is_drawn_apart() {
        let mut later = *option_of("max_retries").unwrap();
        later.key = "later";
        let (mut rng, mut refused) = (Rng::seed_from_u64(3), 0);
        let cases = (0..100).map(|_| case(&mut rng, None, Clock::Simulated, &mut refused));
        let mut has_it = 0;
        for drawn in cases {
            let case = with_others(drawn.clone(), &[later]);
            has_it += u32::from(case != drawn);
            let plan = Plan { max_retries: drawn.plan.max_retries, ..case.plan };
            assert_eq!(plan, drawn.plan);
        }
        assert!((5..40).contains(&has_it), "{has_it}");
    }
}
