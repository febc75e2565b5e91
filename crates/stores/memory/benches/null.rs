//! What an operation costs on a store that does nothing: drawing a zipfian key, choosing the
//! operation, two clock reads, recording the time, accounting in the ledger, through the code that
//! drives every store. Prints; asserts nothing.

use std::{fs, sync::Arc, time::Duration};

use acidtest_engine::{Arrivals, Extent, Load, Measurement, Trial};
use acidtest_store_memory::null_client;
use acidtest_workloads::{
    Skew,
    inventory::{OPERATIONS, Parameters, Scenario, Stock},
};

fn measure(clients: usize, threads: usize, length: Duration, arrivals: Arrivals) -> Measurement {
    let parameters = Parameters { skew: Skew::Zipf(0.99), ..Parameters::default() };
    let stock = Arc::new(Stock::draw(&parameters, 1));
    let scenario = Scenario::new(&parameters, stock, None, 1);
    let load = Load {
        threads,
        arrivals,
        warmup: Duration::from_millis(300),
        ..Load::closed(OPERATIONS, Extent::Time(length))
    };
    let tasks = (0..clients).map(|_| null_client(scenario.clone())).collect();
    match Trial::new(load, clients).run(tasks) {
        Ok(measurement) => measurement,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}

fn resident_mib() -> f64 {
    let pages: f64 = fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|statm| statm.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(f64::NAN);
    pages * 4096.0 / 1024.0 / 1024.0
}

/// A setting of the bench, from the environment.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).filter(|value| *value > 0).unwrap_or(default)
}

fn main() {
    let seconds = setting("ACIDTEST_BENCH_SECONDS", 2);
    let runs = setting("ACIDTEST_BENCH_RUNS", 5);
    println!("null store, inventory, zipf 0.99 over 1,000 items, {seconds} s each, {runs} runs a row");
    println!(
        "{:>8} {:>8} {:>12} {:>14} {:>14} {:>10}",
        "clients", "threads", "ns/op min", "ns/op median", "Mop/s/core", "RSS MiB"
    );
    for (clients, threads) in [(1, 1), (10, 1), (10, 2)] {
        let mut costs: Vec<f64> =
            (0..runs).map(|_| cost(clients, threads, Duration::from_secs(seconds))).collect();
        costs.sort_unstable_by(f64::total_cmp);
        let median = costs[costs.len() / 2];
        println!(
            "{clients:>8} {threads:>8} {:>12.1} {median:>14.1} {:>14.2} {:>10.1}",
            costs[0],
            1e3 / median,
            resident_mib()
        );
    }
}

/// Nanoseconds of one core an operation.
fn cost(clients: usize, threads: usize, length: Duration) -> f64 {
    threads as f64 * 1e9 / measure(clients, threads, length, Arrivals::Closed).throughput()
}
