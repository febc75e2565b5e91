//! What the bench itself costs, measured before every run.

use std::{sync::Arc, time::Duration};

use acidtest_engine::{Extent, Load, Trial};
use acidtest_report::{Harness, Plan};
use acidtest_store_memory::null_client;
use acidtest_workloads::inventory::{OPERATIONS, Scenario, Stock};

use crate::exit::Failure;

/// A fraction of a second is enough for millions of operations.
const LENGTH: Duration = Duration::from_millis(200);

/// Drives the plan's workload on a store that does nothing: one client on one core, through the code
/// that drives every store.
pub(crate) fn measure(plan: &Plan, stock: &Arc<Stock>) -> Result<Harness, Failure> {
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
    Ok(Harness {
        nanoseconds_per_operation: 1e9 / measurement.throughput().max(1.0),
        operations: measurement.arrived.completed,
    })
}
