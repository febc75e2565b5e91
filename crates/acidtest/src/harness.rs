//! What the bench itself costs, measured before every run.

use std::time::Duration;

use acidtest_engine::{Extent, Load, Trial};
use acidtest_model::Lock;
use acidtest_report::Harness;
use acidtest_store_memory::Null;
use acidtest_workloads::{Place, Terms, Workload};

use crate::exit::Failure;

/// Windows that it is measured in. The least disturbed one counts: what other processes take of the
/// machine meanwhile is no cost of the bench.
const WINDOWS: u32 = 5;

/// Length of a window; all of them together take a fraction of a second, for millions of operations.
const LENGTH: Duration = Duration::from_millis(40);

/// Drives the workload on a store that does nothing: one client on one core, through the code that
/// drives every store.
pub(crate) fn measure(workload: &dyn Workload, seed: u64) -> Result<Harness, Failure> {
    let mut least = Harness { nanoseconds_per_operation: f64::INFINITY, operations: 0 };
    let place = Place { namespace: "null".to_owned(), trial: 0 };
    for _ in 0..WINDOWS {
        let trial = workload.trial(Terms { lock: Lock::Native, seed, clients: 1, trace: None, left: None });
        let client = trial.client(&Null, &place)?;
        let load = Load {
            spans: workload.spans(),
            threads: 1,
            warmup: LENGTH / 10,
            seed,
            ..Load::closed(workload.operations(), Extent::Time(LENGTH))
        };
        let measurement =
            Trial::new(load, 1).run(vec![client]).map_err(|error| Failure::Other(error.to_string()))?;
        let operations = measurement.throughput() * f64::from(workload.transaction().max(1));
        least.nanoseconds_per_operation = least.nanoseconds_per_operation.min(1e9 / operations.max(1.0));
        least.operations += measurement.arrived.completed;
    }
    Ok(least)
}
