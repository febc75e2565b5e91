//! Measures the bench's own cost, before every run.

use std::time::{Duration, Instant};

use acidtest_engine::{Extent, Load, Measurement, Outcome, Trial};
use acidtest_model::Lock;
use acidtest_observe::usable_cores;
use acidtest_results::{Harness, Windows};
use acidtest_workloads::{Place, Store, TrialSetup, Workload, WorkloadSpec};
use rustix::time::{ClockId, clock_gettime};

use crate::Failure;

/// Length of the measurement: a tenth of the time that a cell is driven, within these bounds. A shorter one would be
/// too noisy, and a longer one would show no more.
const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(1);

/// Length of a window: long beside the half millisecond that a trial takes to begin and to end, and short beside the
/// disturbances of a machine, so that some windows are undisturbed.
const WINDOW: Duration = Duration::from_millis(50);

/// Part of a window for each client: four times the time that a client has its thread before the next one's turn, so
/// that all clients have the same share.
const TURNS: Duration = Duration::from_micros(400);

/// Fewest operations of a window that counts: one with fewer has mostly measured its own beginning and end.
const FEWEST: u64 = 1000;

/// Drives the workload's own clients on `null`, a store that does nothing, on one core, through the code that drives every
/// store: as many clients as a thread of the run has (`a_thread`), or all where the workload says how many there are. `length`
/// is the time that a cell is driven, where that is known.
pub(crate) fn measure(
    workload: &dyn Workload,
    null: &dyn Store,
    a_thread: u32,
    length: Duration,
    seed: u64,
) -> Result<Harness, Failure> {
    let clients = workload.spec().clients.unwrap_or(a_thread);
    let mut window = WINDOW.max(TURNS * clients);
    let enough = (length / 10).clamp(SHORTEST, LONGEST);
    let (mut costs, mut operations) = (Vec::new(), 0);
    // not counted: the first window finds cold caches and memory that was never touched
    drive(workload, null, clients, window, seed)?;
    let begun = Instant::now();
    while begun.elapsed() < enough || (costs.is_empty() && window < LONGEST) {
        let (spent, measurement) = drive(workload, null, clients, window, seed)?;
        let (units, cost) = cost(workload.spec(), clients, spent, &measurement);
        if units >= FEWEST {
            costs.push(cost);
            operations += units;
        } else {
            // operations that cost much, or a machine that is busy: a longer window has enough of them
            window = (window * 2).min(LONGEST);
        }
    }
    costs.sort_unstable_by(f64::total_cmp);
    let windows = costs.first().zip(costs.last()).map(|(least, most)| Windows {
        count: costs.len() as u64,
        least_nanoseconds: *least,
        most_nanoseconds: *most,
    });
    Ok(Harness {
        // the median of the less disturbed half: other processes slow a core down by filling its caches
        nanoseconds_per_operation: costs.get(costs.len() / 4).copied().unwrap_or(0.0),
        operations,
        cores: usable_cores(),
        unit: workload.spec().unit.clone(),
        windows,
    })
}

/// Drives one window and returns the CPU time that it took; time that other processes take of the machine meanwhile
/// is no cost of the bench.
fn drive(
    workload: &dyn Workload,
    null: &dyn Store,
    clients: u32,
    window: Duration,
    seed: u64,
) -> Result<(Duration, Measurement), Failure> {
    let place = Place { namespace: "null".to_owned(), trial: 0 };
    let trial = workload.trial(TrialSetup::new(Lock::Native, seed, clients));
    let tasks = (0..clients).map(|_| trial.client(null, &place)).collect::<Result<Vec<_>, _>>()?;
    let load = Load {
        spans: workload.spec().spans,
        threads: 1,
        seed,
        ..Load::closed(workload.spec().operations, Extent::Time(window))
    };
    let driver = Trial::new(load, tasks.len());
    let before = cpu();
    let measurement = driver.run(tasks).map_err(|error| Failure::Other(error.to_string()))?;
    Ok((cpu().saturating_sub(before), measurement))
}

/// Number of operations in a window that throughput counts, and the nanoseconds of each, including the operations of
/// other clients that it needs: a message that is consumed was published. Clients of a thread have equal shares of
/// the time.
fn cost(spec: &WorkloadSpec, clients: u32, spent: Duration, measurement: &Measurement) -> (u64, f64) {
    let WorkloadSpec { counted, scheduled, .. } = spec;
    let of = |is_counted: bool| -> u64 {
        let kinds = measurement.operations.iter().filter(|each| counted.contains(&each.name) == is_counted);
        let units = |name| if is_counted { spec.units(name).max(1).into() } else { 1 };
        kinds.map(|each| each.count(Outcome::Ok) * units(each.name)).sum()
    };
    let others = scheduled.map_or(0.0, |first| f64::from(first) / f64::from(clients.max(1)));
    let nanoseconds = spent.as_nanos() as f64;
    let each = |share: f64, done: u64| if done > 0 { nanoseconds * share / done as f64 } else { 0.0 };
    let units = of(true);
    (units, each(1.0 - others, units) + each(others, of(false)))
}

/// CPU time of this process, which does nothing besides the window.
fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use acidtest_store_memory::Null;
    use acidtest_testbed::with_more_time;
    use acidtest_workloads::Values;
    use serde_json::json;

    use super::*;

    fn workload(name: &str, values: &serde_json::Value) -> Box<dyn Workload> {
        let kind = acidtest_workloads::workload(name).unwrap();
        let values: Values = values.as_object().unwrap().clone();
        (kind.with)(&values).unwrap()
    }

    #[test]
    fn it_is_told_in_the_workload_s_own_terms_with_its_spread() {
        for (name, values, unit) in [
            ("inventory", json!({}), "a capture or release"),
            ("inventory", json!({ "capture_share": 1.0 }), "a capture"),
            ("records", json!({ "mix": "a", "records": 100, "transaction": 5 }), "an operation of mix a"),
            ("join", json!({ "records": 100 }), "a join"),
            ("parcels", json!({}), "an operation of mix 9450+8000"),
            ("parcels", json!({ "insert_batch": 10 }), "a scan inserted, or a read, of mix 9450+8000"),
            ("transactions", json!({}), "a transaction of 1–4 operations"),
            ("transactions", json!({ "operations": 1 }), "a transaction of 1 operation"),
            ("queue", json!({}), "a message published and consumed"),
            ("queue", json!({ "phase": "publish" }), "a message published"),
            ("queue", json!({ "phase": "consume", "backlog": 1 }), "a message consumed"),
        ] {
            // a busy machine may leave no window with its thousand operations
            let harness = with_more_time(1000, |millis| {
                let length = Duration::from_millis(millis);
                let harness = measure(&*workload(name, &values), &Null, 3, length, 1).unwrap();
                if harness.windows.is_some() { Ok(harness) } else { Err(name.to_owned()) }
            });
            let Windows { least_nanoseconds, most_nanoseconds, .. } = harness.windows.unwrap();
            let cost = harness.nanoseconds_per_operation;
            assert_eq!(harness.unit, unit);
            assert!(least_nanoseconds > 0.0 && harness.operations >= FEWEST, "{name} {values}");
            assert!((least_nanoseconds..=most_nanoseconds).contains(&cost), "{name} {values}");
        }
    }

    #[test]
    fn a_message_costs_what_publishing_and_consuming_it_does() {
        let workload = workload("queue", &json!({ "producers": 1, "consumers": 3 }));
        let done = |measurement: &Measurement, name: &str| {
            let operation = measurement.operations.iter().find(|each| each.name == name).unwrap();
            operation.count(Outcome::Ok)
        };
        let (spent, measurement) = with_more_time(50, |millis| {
            let (spent, measurement) = drive(&*workload, &Null, 4, Duration::from_millis(millis), 1).unwrap();
            let all = done(&measurement, "publish").min(done(&measurement, "consume"));
            if all > 0 { Ok((spent, measurement)) } else { Err("no message".to_owned()) }
        });
        let done = |name: &str| done(&measurement, name);
        let (units, cost) = cost(workload.spec(), 4, spent, &measurement);
        let nanoseconds = spent.as_nanos() as f64;
        let expected =
            nanoseconds / 4.0 / done("publish") as f64 + nanoseconds * 0.75 / done("consume") as f64;
        assert_eq!(units, done("consume"));
        assert!((cost / expected - 1.0).abs() < 1e-9, "{cost} and {expected}");
    }
}
