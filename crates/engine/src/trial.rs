//! One trial: its threads, its clients' drivers, and its measurement.

use std::{
    cell::RefCell,
    io,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
        mpsc::Sender,
    },
    thread,
    time::Duration,
};

use tokio::{
    runtime::LocalOptions,
    sync::Semaphore,
    task::{JoinSet, LocalSet},
};

use crate::{
    Arrivals, ClientDriver, ClientTask, Extent, Load, Measurement, Part, Report, Second, Stop,
    client_driver::Bench,
    clock::{Clock, nanos},
    control::Control,
    gate::Gate,
    message::ReportSender,
    pacer::Pacer,
    part,
    recorder::{Recorder, Tallied, Totals},
    shared::Shared,
};

/// Clients of a process that connect at a time, at most.
const CONNECTING: usize = 128;

/// A trial that could not be run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The operating system could not start a thread or create an event queue.
    #[error(
        "cannot start {threads} client threads: {cause}; try fewer clients or a higher limit of open files"
    )]
    Threads {
        /// How many threads were asked for.
        threads: usize,
        /// The operating system's error.
        cause: io::Error,
    },
}

/// The progress of a trial that is running.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Time since the measured part began; `None` before it begins.
    pub measured: Option<Duration>,
    /// Operations of clients on the schedule that have been recorded so far; updated once a second.
    pub completed: u64,
    /// The last second that is complete; `None` before the first one is.
    pub last: Option<Second>,
    /// Connections of the measured part that were lost and opened again.
    pub reconnects: u64,
}

/// What has become of the operations of a trial that is running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoFar {
    /// When the last operation ended that was acknowledged, from the beginning of the measured part; `None` if there was
    /// none yet.
    pub last_acknowledged: Option<Duration>,
    /// The same of operations that [changed](crate::Client::changes) something.
    pub last_changed: Option<Duration>,
    /// How many were acknowledged.
    pub acknowledged: u64,
    /// How many ended with their connection.
    pub interrupted: u64,
}

/// A trial, run once; another thread may watch and stop it.
#[derive(Clone, Debug)]
pub struct Trial {
    pub(crate) shared: Arc<Shared>,
    clients: usize,
    /// Threads of all processes.
    threads: usize,
    part: Part,
}

impl Trial {
    /// Sets up a trial of this many clients.
    #[must_use]
    pub fn new(load: Load, clients: usize) -> Self {
        Self::by(Clock::start(), load, clients, Part::WHOLE, None)
    }

    /// Sets up the trial of a part of this many clients, which reports to whoever [`gather`](Self::gather)s the parts.
    #[must_use]
    pub fn part(load: Load, clients: usize, part: Part, told: Sender<Report>) -> Self {
        Self::by(Clock::start(), load, clients, part, Some(told))
    }

    /// Sets up a trial of this many clients that are driven elsewhere, in parts of which this is one, to be
    /// [`gather`](Self::gather)ed.
    #[must_use]
    pub fn of_parts(load: Load, clients: usize, one: Part) -> Self {
        Self::by(Clock::start(), load, clients, one, None)
    }

    /// Sets up a trial for [`run_simulated`](Self::run_simulated), on one thread whatever the load asks for. To be
    /// called on the runtime that will run it.
    #[must_use]
    pub fn simulated(mut load: Load, clients: usize) -> Self {
        load.threads = 1;
        Self::by(Clock::simulated(), load, clients, Part::WHOLE, None)
    }

    fn by(clock: Clock, load: Load, clients: usize, part: Part, told: ReportSender) -> Self {
        let threads = if part.is_whole() { load.threads.clamp(1, clients.max(1)) } else { part.threads };
        let scheduled = load.scheduled.map_or(clients, |scheduled| scheduled.min(clients));
        let budget = part::budget(&load, part, scheduled);
        let budget = budget.map(|count| AtomicI64::new(i64::try_from(count).unwrap_or(i64::MAX)));
        let own = (0..clients).filter(|client| part.has(*client));
        let (own, at_work) =
            own.fold((0, 0), |(own, at_work), client| (own + 1, at_work + usize::from(client < scheduled)));
        let shared = Shared {
            closed: load.arrivals == Arrivals::Closed,
            timeout: nanos(load.timeout),
            clock,
            control: Control::default(),
            gate: Gate::new(own, told.clone()),
            totals: Arc::new(Totals::new(load.operations, load.spans, threads, told.clone())),
            budget,
            are_alone: clients <= threads && !clock.is_simulated(),
            connecting: Semaphore::new(CONNECTING),
            scheduled,
            at_work: AtomicUsize::new(at_work),
            schedule_over: AtomicBool::new(false),
            told,
            done: AtomicUsize::new(0),
            load,
        };
        Self { shared: Arc::new(shared), clients, threads, part }
    }

    /// The indices of the clients that this process drives.
    pub fn clients(&self) -> impl Iterator<Item = usize> {
        (0..self.clients).filter(|client| self.part.has(*client))
    }

    /// Runs the clients of this process to the end, in the order of their indices, one Tokio task each. Blocks the
    /// calling thread. The measurement of a part is nothing by itself: it has reported what was measured.
    ///
    /// # Errors
    /// The operating system could not start a thread.
    pub fn run(&self, tasks: Vec<ClientTask>) -> Result<Measurement, EngineError> {
        debug_assert_eq!(tasks.len(), self.clients().count());
        let mut hands: Vec<Vec<(usize, ClientTask)>> = (0..self.threads).map(|_| Vec::new()).collect();
        for (index, task) in self.clients().zip(tasks) {
            hands[index % self.threads].push((index, task));
        }
        if self.shared.at_work.load(Ordering::Relaxed) == 0 {
            self.shared.part_of_schedule_ended();
        }
        let fail = |cause| EngineError::Threads { threads: self.threads, cause };
        thread::scope(|scope| {
            let mut workers = Vec::new();
            let hands = hands.into_iter().enumerate().filter(|(_, hand)| !hand.is_empty());
            for (shard, hand) in hands {
                let worker = thread::Builder::new()
                    .name(format!("clients-{shard}"))
                    .spawn_scoped(scope, move || self.work(shard, hand))
                    .inspect_err(|_| self.give_up());
                workers.push(worker.map_err(fail)?);
            }
            for worker in workers {
                match worker.join() {
                    Ok(done) => done.map_err(fail)?,
                    Err(_) => self.stop(Stop::Defect("a client thread panicked".to_owned())),
                }
            }
            Ok(())
        })?;
        if let Some(told) = &self.shared.told {
            // nobody to tell: the process that judges the trial has ended, and this one ends too
            if let Some(reason) = self.stopped() {
                let _ = told.send(Report::Stopped(reason));
            }
            let _ = told.send(Report::Over {
                done: self.shared.done.load(Ordering::Relaxed),
                reconnects: self.shared.totals.progress().2,
                faults: self.shared.totals.counted_faults(),
                doubts: self.shared.totals.counted_doubts(),
            });
        }
        Ok(self.measured())
    }

    /// Runs the clients to the end, all of them on this thread and by its runtime's clock. Where that clock is
    /// paused (`tokio::time::pause`), time passes only while every client waits, no operation ends without some
    /// time passing, and a trial with the same input gives exactly the same result.
    pub async fn run_simulated(&self, tasks: Vec<ClientTask>) -> Measurement {
        let hand = tasks.into_iter().enumerate().collect();
        LocalSet::new().run_until(self.drive_clients(0, hand)).await;
        self.measured()
    }

    /// Runs one thread: a runtime and the clients on it.
    fn work(&self, shard: usize, hand: Vec<(usize, ClientTask)>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default())
            .inspect_err(|_| self.give_up())?;
        runtime.block_on(self.drive_clients(shard, hand));
        Ok(())
    }

    /// Runs the clients of one thread, each in a driver, with the pacer and the recorder that they share.
    async fn drive_clients(&self, shard: usize, hand: Vec<(usize, ClientTask)>) {
        let load = &self.shared.load;
        let (rate, turn) = self.shared.share(shard, self.threads);
        let seed = load.seed ^ ((shard as u64) << 32);
        let bench = Rc::new(RefCell::new(Bench {
            phase: None,
            pacer: Pacer::new(load.arrivals, rate, turn, seed),
            recorder: Recorder::new(shard, Arc::clone(&self.shared.totals)),
        }));
        let mut drivers = JoinSet::new();
        for (index, task) in hand {
            let driver = ClientDriver::new(Arc::clone(&self.shared), Rc::clone(&bench), index);
            drivers.spawn_local(task(driver));
        }
        while let Some(ended) = drivers.join_next().await {
            if let Err(panic) = ended {
                self.stop(Stop::Defect(format!("a client panicked: {panic}")));
                self.give_up();
            }
        }
        bench.borrow_mut().finish(self.arrivals_end());
    }

    /// Whether every client had nothing left to draw.
    fn all_done(&self) -> bool {
        self.shared.done.load(Ordering::Relaxed) == self.clients
    }

    /// Until when arrivals count as due: the end of the measured part, or now if the trial was stopped early. Where
    /// a number of operations was asked for, none counts as dropped: all of them are started, or the trial was stopped.
    fn arrivals_end(&self) -> u64 {
        match self.shared.load.extent {
            Extent::Operations(_) => 0,
            Extent::Time(_) if self.shared.control.stopping() => self.shared.clock.now(),
            Extent::Time(_) => u64::MAX,
        }
    }

    /// Ends the trial early: no operation is started any more, and those in flight are waited for.
    pub fn stop(&self, reason: Stop) {
        self.shared.control.stop(reason);
    }

    /// Gives up the operations in flight as well; their outcome is then unknown.
    pub fn give_up(&self) {
        self.shared.control.abandon();
    }

    /// Closes all connections in the middle of what clients do, as soon as each of them waits for an answer; the
    /// operations in flight there are unknown, and the clients connect anew.
    pub fn disconnect(&self) {
        self.shared.control.disconnect();
    }

    /// Why the trial was stopped, if it was.
    #[must_use]
    pub fn stopped(&self) -> Option<Stop> {
        self.shared.control.reason()
    }

    /// How far the trial has come; may be called from any thread while it runs.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let (completed, last, reconnects) = self.shared.totals.progress();
        let measured = self
            .shared
            .gate
            .measured()
            .map(|start| Duration::from_nanos(self.shared.clock.now().saturating_sub(start)));
        Progress { measured, completed, last, reconnects }
    }

    /// Names of the operations, in the order of the counts of each second.
    #[must_use]
    pub fn operations(&self) -> &'static [&'static str] {
        self.shared.load.operations
    }

    /// The complete seconds of the measured part from this number on; may be called from any thread while it runs. A
    /// second is complete when every client thread has gone on from it.
    #[must_use]
    pub fn seconds_from(&self, first: usize) -> Vec<Second> {
        self.shared.totals.seconds_from(first)
    }

    /// What has become of the operations of the measured part so far. May be called from any thread while it runs.
    #[must_use]
    pub fn so_far(&self) -> SoFar {
        let Tallied { last, last_change, acknowledged, interrupted } = self.shared.totals.tallied();
        let begun = self.shared.gate.measured();
        let since = |end: u64| begun.and_then(|begun| end.checked_sub(begun).filter(|_| end > 0));
        let [last_acknowledged, last_changed] =
            [last, last_change].map(|end| since(end).map(Duration::from_nanos));
        SoFar { last_acknowledged, last_changed, acknowledged, interrupted }
    }

    pub(crate) fn measured(&self) -> Measurement {
        let collected = self.shared.totals.collect();
        let passed = self.progress().measured.unwrap_or_default();
        let start = self.shared.gate.measured().unwrap_or_default();
        let until = |end: u64| Duration::from_nanos(end.saturating_sub(start));
        let window = match self.shared.load.extent {
            // the time that clients waited in vain after the last acknowledged operation is not part of the trial
            Extent::Time(asked) if self.all_done() => asked.min(until(collected.ends.ok)),
            Extent::Time(asked) => asked.min(passed),
            // nor is the time that the other clients waited in vain after the last operation on the schedule
            Extent::Operations(_) => until(collected.ends.scheduled.max(collected.ends.ok)),
        };
        let mut series = collected.series;
        // a stall that lasts to the end also has a row of zeros for each second
        while (series.len() as u64) < window.as_secs() {
            series.push(Second::empty(series.len() as u64, self.shared.load.operations.len()));
        }
        let mut operations = collected.operations;
        for operation in &mut operations {
            operation.lasted = match self.shared.load.extent {
                // the time of the other clients after the last scheduled operation is not part of that kind's time
                Extent::Operations(_) if operation.is_scheduled => until(collected.ends.scheduled),
                _ => window,
            };
        }
        Measurement {
            operations,
            spans: collected.spans,
            window,
            series,
            arrived: collected.arrived,
            reconnects: collected.reconnects,
            faults: collected.faults,
            doubts: collected.doubts,
            stopped: self.shared.control.reason(),
        }
    }
}
