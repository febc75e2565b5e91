//! Where the clients of a trial are driven: in this process, or in several that run the same program.

use std::{
    path::Path,
    process::Command,
    thread::{self, JoinHandle},
};

use acidtest_engine::{ClientTask, EngineError, Load, Measurement, Part, Trial};
use acidtest_model::{Address, Hosting};
use acidtest_workloads::{Boundary, TrialSetup, WorkloadTrial, hosted::HostedTrial};

use crate::{Failure, Processes, TrialDescription, instance::Instance};

/// How a trial's clients are spread over processes.
#[derive(Clone)]
pub struct Spread<'a> {
    /// How many processes there are at most; no more than clients.
    pub processes: u32,
    pub worker: &'a dyn Fn() -> Command,
}

/// Drives the clients of one trial.
pub(crate) struct Driver {
    pub(crate) trial: Trial,
    running: JoinHandle<Result<Measurement, EngineError>>,
    processes: Option<Processes>,
    /// How many times a process was stopped by a signal.
    stalls: usize,
}

fn on_a_thread(
    run: impl FnOnce() -> Result<Measurement, EngineError> + Send + 'static,
) -> Result<JoinHandle<Result<Measurement, EngineError>>, Failure> {
    thread::Builder::new()
        .name("trial".to_owned())
        .spawn(run)
        .map_err(|error| Failure::Other(format!("cannot start a thread: {error}")))
}

impl Driver {
    /// Drives the clients in this process, on threads of their own, because the main one keeps the private servers.
    pub(crate) fn here(load: Load, tasks: Vec<ClientTask>) -> Result<Self, Failure> {
        let trial = Trial::new(load, tasks.len());
        let runs = trial.clone();
        let running = on_a_thread(move || runs.run(tasks))?;
        Ok(Self { trial, running, processes: None, stalls: 0 })
    }

    /// Drives the clients in processes of their own.
    pub(crate) fn elsewhere(
        spread: &Spread<'_>,
        instance: &Instance,
        setup: &TrialSetup,
        hosted: &HostedTrial,
        gateway: Option<&(Address, String)>,
        load: Load,
    ) -> Result<Self, Failure> {
        let clients = setup.clients as usize;
        let parts = Part::deal(clients, spread.processes as usize, load.threads);
        let way = instance.reopening();
        // a file is named as it is in its folder, because a path means nothing elsewhere
        let is_file = way.target.kind().hosting == Hosting::Embedded && way.address.host.is_empty();
        let file = is_file.then(|| Path::new(&way.address.path));
        let folder = file.and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
        let name = file.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let address =
            name.map_or_else(|| way.address.clone(), |name| Address::file(&way.address.scheme, &name));
        let workers = Processes::start(parts.len(), spread.worker, folder)?;
        let mut processes = Processes::describe(workers, setup.origin, |index| TrialDescription {
            workload: hosted.workload.clone(),
            parameters: hosted.parameters.clone(),
            setup: TrialSetup { part: parts[index], ..setup.clone() },
            origin: 0,
            store: way.target.kind().name.to_owned(),
            address: (&address).into(),
            durability: way.durability,
            locks: way.locks.as_ref().map(Into::into),
            place: hosted.place.clone(),
            gateway: gateway.map(|(address, token)| (address.into(), token.clone())),
            load: load.clone(),
        })?;
        let trial = Trial::of_parts(load, clients, parts[0]);
        let (gather, gathered) = (processes.gathering(), trial.clone());
        let running = on_a_thread(move || Ok(gather(&gathered)))?;
        Ok(Self { trial, running, processes: Some(processes), stalls: 0 })
    }

    /// The ids of the processes that drive clients, besides this one.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.processes.as_ref().map(Processes::pids).unwrap_or_default()
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.running.is_finished()
    }

    /// Lets processes that drive clients know what they have to know of each other.
    pub(crate) fn exchange(&mut self, trial: &dyn WorkloadTrial) {
        if let Some(processes) = &mut self.processes {
            processes.exchange(trial);
        }
    }

    /// Has the clients' ledgers note what happens to the store's server.
    pub(crate) fn note_boundary(&mut self, trial: &dyn WorkloadTrial, boundary: Boundary) {
        match &mut self.processes {
            Some(processes) => processes.note_boundary(boundary),
            None => trial.ledger().note_boundary(boundary),
        }
    }

    /// Stops one of the processes by a signal, another one each time. Returns which; none if clients have no process of
    /// their own, or all of them are stopped already.
    pub(crate) fn stall(&mut self) -> Option<usize> {
        let processes = self.processes.as_mut()?;
        let count = processes.count();
        let index = (self.stalls..self.stalls + count).map(|turn| turn % count);
        let index = index.into_iter().find(|index| !processes.is_stalled(*index))?;
        self.stalls = index + 1;
        processes.stall(index).then_some(index)
    }

    /// Ends every process that drives clients: what they did is not known then.
    pub(crate) fn kill(&mut self) {
        if let Some(processes) = &self.processes {
            processes.kill();
        }
    }

    /// Lets a process that was stopped go on.
    pub(crate) fn go_on(&mut self, index: usize) {
        if let Some(processes) = &mut self.processes {
            processes.go_on(index);
        }
    }

    /// Lets every process that was stopped go on.
    pub(crate) fn go_on_all(&mut self) {
        if let Some(processes) = &mut self.processes {
            processes.go_on_all();
        }
    }

    /// The measurement, once the clients are done; the trial then has their ledger.
    pub(crate) fn join(self, of: &dyn WorkloadTrial) -> Result<Measurement, Failure> {
        let measurement = match self.running.join() {
            Ok(measurement) => measurement.map_err(|error| Failure::Other(error.to_string()))?,
            Err(_) => return Err(Failure::Other("the engine panicked: a defect of acidtest".to_owned())),
        };
        if let Some(acidtest_engine::Stop::PartLost(how)) = &measurement.stopped {
            return Err(Failure::Store(format!("{how}: what its clients did is unknown")));
        }
        if let Some(processes) = self.processes {
            processes.merge(of)?;
        }
        Ok(measurement)
    }
}
