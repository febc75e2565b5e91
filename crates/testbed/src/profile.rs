//! Operations on records for a profiler: nothing but a store's clients and the engine, as a trial drives them.

use std::{env, process::ExitCode};

use acidtest_engine::Load;
use acidtest_model::{Address, Lock, StoreError};
use acidtest_workloads::{Store, records::Parameters};

use crate::{NAMESPACE, for_operations, records::RecordsRun, wait};

/// Clients, all on one thread.
const CLIENTS: usize = 8;

/// Runs the example `NAME ADDRESS MIX LOCK OPERATIONS`: so many operations on 10,000 records of ten fields of 100 bytes, which
/// are loaded into the namespace `acidtest` before and removed behind. What is profiled twice, with different numbers of
/// operations, tells by the difference what one costs.
pub fn profile<S: Store>(open: impl AsyncFnOnce(&Address) -> Result<S, StoreError>) -> ExitCode {
    match run(open, &env::args().skip(1).collect::<Vec<_>>()) {
        Ok(done) => {
            println!("{done} operations");
            ExitCode::SUCCESS
        }
        Err(cause) => {
            eprintln!("{cause}");
            ExitCode::FAILURE
        }
    }
}

fn run<S: Store>(
    open: impl AsyncFnOnce(&Address) -> Result<S, StoreError>,
    arguments: &[String],
) -> Result<u64, String> {
    let [address, mix, lock, operations] = arguments else {
        return Err("usage: ADDRESS MIX LOCK OPERATIONS, such as … c native 20000".to_owned());
    };
    let address = Address::parse(address).map_err(|error| error.to_string())?;
    let mix = mix.parse().map_err(|error| format!("{mix}: {error}"))?;
    let lock: Lock = lock.parse().map_err(|error| format!("{lock}: {error}"))?;
    let operations = operations.parse().map_err(|_| format!("{operations} is no number"))?;
    let store = wait(open(&address)).map_err(|error| error.to_string())?;
    wait(store.create(NAMESPACE, "profile")).map_err(|error| error.to_string())?;
    let run = RecordsRun::new(lock, 1, Parameters { mix, ..Parameters::default() });
    run.load(&store);
    let done = run.drive(&store, &Load { threads: 1, ..for_operations(operations) }, CLIENTS);
    wait(store.remove(NAMESPACE)).map_err(|error| error.to_string())?;
    match (done.stopped, done.faults.is_empty()) {
        (None, true) => Ok(operations),
        (stopped, _) => Err(format!("{stopped:?} {:?}", done.faults)),
    }
}
