//! Operations for a profiler: nothing but a store's clients and the engine, as a trial drives them.

use std::{env, process::ExitCode};

use acidtest_engine::{Load, Measurement};
use acidtest_model::{Address, Lock, StoreError};
use acidtest_workloads::{
    Store,
    queue::{self, Phase},
    records::Parameters,
};

use acidtest_testbed::{NAMESPACE, for_operations, queue::QueueRun, records::RecordsRun, wait};

/// Messages that are in the queue before they are consumed. More than are consumed, so that loading costs as much however many
/// are.
const BACKLOG: u64 = 50_000;

/// Runs the program `NAME ADDRESS MIX LOCK OPERATIONS`: so many operations of these clients, all on one thread, on 10,000 records of
/// ten fields of 100 bytes, which are loaded into the namespace `acidtest` before and removed behind. What is profiled twice,
/// with different numbers of operations, tells by the difference what one costs.
pub fn profile_records<S: Store>(
    clients: usize,
    open: impl AsyncFnOnce(&Address) -> Result<S, StoreError>,
) -> ExitCode {
    run(open, "MIX LOCK OPERATIONS, such as … c native 20000", |store, [mix, lock, operations]| {
        let mix = mix.parse().map_err(|error| format!("{mix}: {error}"))?;
        let lock: Lock = lock.parse().map_err(|error| format!("{lock}: {error}"))?;
        let load = Load { threads: 1, ..for_operations(number(operations)?) };
        let run = RecordsRun::new(lock, 1, Parameters { mix, ..Parameters::default() });
        run.load(store);
        Ok(run.drive(store, &load, clients))
    })
}

/// Runs the program `NAME ADDRESS PHASE WINDOW MESSAGES`: so many messages of 128 bytes are published by two producers with so
/// many in flight (`publish`), or consumed by two consumers with so many ahead (`consume`), in the namespace `acidtest`, which is
/// removed behind.
pub fn profile_queue<S: Store>(open: impl AsyncFnOnce(&Address) -> Result<S, StoreError>) -> ExitCode {
    run(open, "PHASE WINDOW MESSAGES, such as … publish 100 20000", |store, [phase, window, messages]| {
        let window = window.parse().map_err(|_| format!("{window} is no number"))?;
        let clients = queue::Parameters { producers: 2, consumers: 2, ..queue::Parameters::default() };
        let parameters = match phase.as_str() {
            "publish" => queue::Parameters { phase: Phase::Publish, in_flight: window, ..clients },
            "consume" => {
                let backlog = Some(BACKLOG);
                queue::Parameters { phase: Phase::Consume, prefetch: Some(window), backlog, ..clients }
            }
            _ => return Err(format!("{phase} is neither publish nor consume")),
        };
        let messages = number(messages)?;
        let run = QueueRun::new(1, parameters);
        run.load(store);
        Ok(run.drive_messages(store, messages))
    })
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

/// Opens the store at the address that the program is given, and has `drive` do its operations there.
fn run<S: Store>(
    open: impl AsyncFnOnce(&Address) -> Result<S, StoreError>,
    usage: &str,
    drive: impl FnOnce(&S, &[String; 3]) -> Result<Measurement, String>,
) -> ExitCode {
    let run = || {
        let arguments: Vec<String> = env::args().skip(1).collect();
        let Some((address, rest)) = arguments.split_first() else {
            return Err(format!("usage: ADDRESS {usage}"));
        };
        let rest = rest.try_into().map_err(|_| format!("usage: ADDRESS {usage}"))?;
        let address = Address::parse(address).map_err(|error| error.to_string())?;
        let store = wait(open(&address)).map_err(|error| error.to_string())?;
        wait(store.create(NAMESPACE, "profile")).map_err(|error| error.to_string())?;
        let done = drive(&store, rest);
        wait(store.remove(NAMESPACE)).map_err(|error| error.to_string())?;
        match done? {
            done if done.stopped.is_none() && done.faults.is_empty() => Ok(()),
            done => Err(format!("{:?} {:?}", done.stopped, done.faults)),
        }
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            eprintln!("{cause}");
            ExitCode::FAILURE
        }
    }
}
