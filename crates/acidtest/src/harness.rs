//! What the bench itself costs, measured before every run.

use std::{sync::Arc, time::Duration};

use acidtest_engine::{Extent, Load, Trial};
use acidtest_report::{Harness, Plan};
use acidtest_store_memory::null_client;
use acidtest_workloads::inventory::{OPERATIONS, Scenario, Stock};

use crate::exit::Failure;

/// Windows that it is measured in. The least disturbed one counts: what other processes take of the
/// machine meanwhile is no cost of the bench.
const WINDOWS: u32 = 5;

/// Length of a window; all of them together take a fraction of a second, for millions of operations.
const LENGTH: Duration = Duration::from_millis(40);

/// Drives the plan's workload on a store that does nothing: one client on one core, through the code
/// that drives every store.
pub(crate) fn measure(plan: &Plan, stock: &Arc<Stock>) -> Result<Harness, Failure> {
    let mut least = Harness { nanoseconds_per_operation: f64::INFINITY, operations: 0 };
    for _ in 0..WINDOWS {
        let scenario = Scenario::new(&plan.inventory, Arc::clone(stock), None, plan.seed);
        let load = Load {
            threads: 1,
            warmup: LENGTH / 10,
            seed: plan.seed,
            ..Load::closed(OPERATIONS, Extent::Time(LENGTH))
        };
        let measurement = Trial::new(load, 1)
            .run(vec![null_client(scenario)])
            .map_err(|error| Failure::Other(error.to_string()))?;
        let cost = 1e9 / measurement.throughput().max(1.0);
        least.nanoseconds_per_operation = least.nanoseconds_per_operation.min(cost);
        least.operations += measurement.arrived.completed;
    }
    Ok(least)
}
