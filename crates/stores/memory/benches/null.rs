//! Measures the cost of an operation of each workload on a store that does nothing, through the code that drives every
//! store: drawing a key, choosing the operation, making what it writes, two clock reads, recording the time, looking at what
//! is read, accounting in the ledger. Prints its results; asserts nothing.
//!
//! Names of workloads after `--` choose the rows: `cargo bench -p acidtest-store-memory --bench null -- records`.

use std::{fs, time::Duration};

use acidtest_engine::{Extent, Load, Measurement, Trial};
use acidtest_model::{Lock, StoreError};
use acidtest_store_memory::Null;
use acidtest_workloads::{ClientTask, Place, TrialSetup, Values, Workload};

/// The rows to measure: a workload, one parameter and its value.
const DRIVEN: [(&str, &str, &str); 11] = [
    ("inventory", "skew", "zipf:0.99"),
    ("records", "mix", "c"),
    ("records", "mix", "a"),
    ("records", "mix", "e"),
    ("join", "records", "1000"),
    ("queue", "phase", "publish"),
    ("queue", "phase", "consume"),
    ("logs", "batch", "100"),
    ("parcels", "mix", "insert:1"),
    ("parcels", "mix", "hash:1"),
    ("transactions", "mix", "all"),
];

fn workload(name: &str, parameter: &str, value: &str) -> Result<Box<dyn Workload>, String> {
    let kind = acidtest_workloads::workload(name).ok_or("no such workload")?;
    let mut values = Values::new();
    let value = value.parse::<u64>().map_or_else(|_| value.into(), Into::into);
    values.insert(parameter.to_owned(), value);
    (kind.with)(&values)
}

fn measure(
    workload: &dyn Workload,
    clients: usize,
    threads: usize,
    length: Duration,
) -> Result<Measurement, String> {
    let place = Place { namespace: "null".to_owned(), trial: 0 };
    let trial = workload.trial(TrialSetup::new(Lock::Native, 1, 1));
    let load = Load {
        threads,
        warmup: Duration::from_millis(300),
        ..Load::closed(workload.spec().operations, Extent::Time(length))
    };
    let tasks: Result<Vec<ClientTask>, StoreError> =
        (0..clients).map(|_| trial.client(&Null, &place)).collect();
    let tasks = tasks.map_err(|error| error.to_string())?;
    Trial::new(load, clients).run(tasks).map_err(|error| error.to_string())
}

fn resident_mib() -> f64 {
    let pages: f64 = fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|statm| statm.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(f64::NAN);
    pages * 4096.0 / 1024.0 / 1024.0
}

/// A positive whole number from the environment variable of this name, or the default.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).filter(|value| *value > 0).unwrap_or(default)
}

fn main() -> Result<(), String> {
    let seconds = setting("ACIDTEST_BENCH_SECONDS", 2);
    let runs = setting("ACIDTEST_BENCH_RUNS", 5);
    let chosen: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    println!("null store, {seconds} s each, {runs} runs a row");
    println!(
        "{:<28} {:>8} {:>8} {:>12} {:>14} {:>14} {:>10}",
        "workload", "clients", "threads", "ns/op min", "ns/op median", "Mop/s/core", "RSS MiB"
    );
    for (name, parameter, value) in DRIVEN {
        if !chosen.is_empty() && !chosen.iter().any(|chosen| chosen == name) {
            continue;
        }
        let workload = workload(name, parameter, value)?;
        // a workload whose parameters say how many clients there are has as many, however many threads drive them
        let clients = workload.spec().clients.map(|clients| clients as usize);
        let shapes = [(1, 1), (10, 1), (10, 2)].map(|(usual, threads)| (clients.unwrap_or(usual), threads));
        let shapes = if clients.is_some() { &shapes[1..] } else { &shapes };
        for &(clients, threads) in shapes {
            let costs = (0..runs).map(|_| cost(&*workload, clients, threads, Duration::from_secs(seconds)));
            let mut costs = costs.collect::<Result<Vec<f64>, String>>()?;
            costs.sort_unstable_by(f64::total_cmp);
            let median = costs[costs.len() / 2];
            println!(
                "{:<28} {clients:>8} {threads:>8} {:>12.1} {median:>14.1} {:>14.2} {:>10.1}",
                format!("{name}, {parameter} {value}"),
                costs[0],
                1e3 / median,
                resident_mib()
            );
        }
    }
    Ok(())
}

/// Nanoseconds of one core per operation.
fn cost(workload: &dyn Workload, clients: usize, threads: usize, length: Duration) -> Result<f64, String> {
    Ok(threads as f64 * 1e9 / measure(workload, clients, threads, length)?.throughput())
}
