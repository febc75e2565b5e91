//! Going on with a run that was interrupted or killed.

use acidtest_lab::Lab;
use acidtest_model::figure::bytes;
use acidtest_observe::Machine;
use acidtest_results::{Plan, RunResult};
use acidtest_workloads::lock_namespace;

use crate::{
    Failure, Target,
    instance::{is_of_run, numbered, remove_leftover},
};

/// The result of the interrupted run, ready to go on: failed cells and the trials that were interrupted are tried again. One that
/// broke a promise before it was interrupted stays beside the one that is made in its place: the store did break it.
pub(crate) fn go_on(mut begun: RunResult, machine: &Machine) -> Result<RunResult, Failure> {
    if let Some(differs) = other_machine(&begun.machine, machine) {
        return Err(Failure::Usage(format!(
            "the run was started on another machine ({differs}): trials of the two cannot be compared\n  remedy: run the \
             plan from the start"
        )));
    }
    for cell in &mut begun.cells {
        cell.error = None;
        let without = &cell.without;
        cell.trials.retain(|trial| !trial.was_interrupted() || trial.audit.breaks_promise(without));
    }
    begun.interrupted = false;
    Ok(begun)
}

/// The difference between two machines, if there is one. Up to 2 % more or less memory is no difference, because the
/// kernel keeps a little more or less of it to itself from one start to the next.
fn other_machine(then: &Machine, now: &Machine) -> Option<String> {
    let memory = then.memory_bytes as f64 / (now.memory_bytes as f64).max(1.0);
    if (&then.cpu, then.cores) != (&now.cpu, now.cores) {
        Some(format!("{}, {} cores; this one has {}, {} cores", then.cpu, then.cores, now.cpu, now.cores))
    } else if (memory - 1.0).abs() > 0.02 {
        Some(format!(
            "{} of memory; this one has {}",
            bytes(then.memory_bytes as f64),
            bytes(now.memory_bytes as f64)
        ))
    } else if then.filesystem != now.filesystem {
        Some(format!("its data was on {}; now it would be on {}", then.filesystem, now.filesystem))
    } else {
        None
    }
}

/// Removes the namespaces that the run left on users' servers when it was killed, and the lab's notes of them, before anything is
/// opened anew. It has opened so many `stores`, each with a namespace of its own where they are of one server.
pub(crate) async fn clear_leftovers(
    lab: &Lab,
    plan: &Plan,
    targets: &[Target],
    lock_service: Option<&Target>,
    run: &str,
    stores: usize,
) -> Result<(), Failure> {
    let names: Vec<String> = (1..).take(stores).map(|number| numbered(&plan.namespace, number)).collect();
    let of_locks: Vec<String> = names.iter().map(|name| lock_namespace(name)).collect();
    let members = targets.iter().map(|target| (target, &names));
    for (target, names) in members.chain(lock_service.map(|service| (service, &of_locks))) {
        let Some(address) = &target.address else { continue };
        for namespace in names {
            match remove_leftover(target, address, namespace, run, false).await {
                Ok(_) => {}
                // the same error occurs when the store is opened, and then fails its cells only
                Err(Failure::Store(_)) => break,
                Err(failure) => return Err(failure),
            }
        }
    }
    // names further on were taken where others had these; and a note that stays would have what the run makes now cleared away
    for entry in lab.namespaces()?.into_iter().filter(|entry| is_of_run(&entry.run, run)) {
        let is_there = |target: &&Target| {
            let address = target.address.as_ref().map(ToString::to_string);
            target.kind().name == entry.store && address.as_ref() == Some(&entry.address)
        };
        let Some(target) = targets.iter().chain(lock_service).find(is_there) else { continue };
        let Some(address) = &target.address else { continue };
        if let Ok(true) = remove_leftover(target, address, &entry.namespace, run, true).await {
            entry.clear()?;
        }
    }
    Ok(())
}
