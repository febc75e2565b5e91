//! One trial: threads, seats, and what they measured.

use std::{
    cell::RefCell,
    io,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::task::{JoinSet, LocalSet};

use crate::{
    Arrivals, ClientTask, Extent, Load, Measurement, Seat, Second, Stop,
    clock::{Clock, nanos},
    control::Control,
    gate::{Gate, Phase},
    pacer::Pacer,
    recorder::{Recorder, Totals},
    seat::Bench,
};

/// A trial that could not be run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The operating system gave no thread or no event queue.
    #[error(
        "cannot start {threads} client threads: {cause}; try fewer clients or a higher limit of open files"
    )]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// What the operating system said.
        cause: io::Error,
    },
}

/// How far a trial is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Time since the measured part began; `None` while it has not.
    pub measured: Option<Duration>,
    /// Operations of clients on the schedule recorded so far; brought up to date once a second.
    pub completed: u64,
    /// The last second that is complete.
    pub last: Option<Second>,
    /// Connections of the measured part that were lost and opened again.
    pub reconnects: u64,
}

/// What all seats of a trial share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) load: Load,
    pub(crate) closed: bool,
    pub(crate) timeout: u64,
    pub(crate) clock: Clock,
    pub(crate) control: Control,
    pub(crate) gate: Gate,
    pub(crate) totals: Arc<Totals>,
    /// Operations that may still be started, where their number is limited.
    budget: Option<AtomicI64>,
    /// Clients on the schedule.
    pub(crate) scheduled: usize,
    /// Of those: how many have still to end the measured part.
    at_work: AtomicUsize,
    /// Clients that had nothing left to do before the measured part was over.
    done: AtomicUsize,
}

impl Shared {
    /// Takes one operation off the budget.
    pub(crate) fn budget_left(&self) -> bool {
        self.budget.as_ref().is_none_or(|left| left.fetch_sub(1, Ordering::Relaxed) > 0)
    }

    /// Whether nothing is left of the budget.
    pub(crate) fn is_spent(&self) -> bool {
        self.budget.as_ref().is_some_and(|left| left.load(Ordering::Relaxed) <= 0)
    }

    /// A client has nothing left to do.
    pub(crate) fn done(&self, phase: Phase) {
        if phase == Phase::Measured {
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A client on the schedule has ended the measured part.
    pub(crate) fn schedule_ended(&self) {
        self.at_work.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a number of operations was asked for and every client on the schedule has ended: then nothing more
    /// comes for the others.
    pub(crate) fn is_schedule_over(&self) -> bool {
        self.budget.is_some() && self.at_work.load(Ordering::Relaxed) == 0
    }

    /// A thread's share of the arrivals (0 to 1), and its turn among the threads that have one (0 to 1). Clients are
    /// dealt out in turn, those on the schedule first.
    fn share(&self, shard: usize, threads: usize) -> (f64, f64) {
        let scheduled = (shard..self.scheduled).step_by(threads).len();
        let sharing = threads.min(self.scheduled).max(1);
        (scheduled as f64 / self.scheduled.max(1) as f64, shard as f64 / sharing as f64)
    }
}

/// A trial: run once, watched and stopped from another thread.
#[derive(Clone, Debug)]
pub struct Trial {
    shared: Arc<Shared>,
    clients: usize,
    threads: usize,
}

impl Trial {
    /// Sets up a trial of so many clients.
    #[must_use]
    pub fn new(load: Load, clients: usize) -> Self {
        Self::by(Clock::start(), load, clients)
    }

    /// Sets up a trial for [`run_simulated`](Self::run_simulated), whatever the load says of threads. Called on the
    /// runtime that will run it.
    #[must_use]
    pub fn simulated(mut load: Load, clients: usize) -> Self {
        load.threads = 1;
        Self::by(Clock::simulated(), load, clients)
    }

    fn by(clock: Clock, load: Load, clients: usize) -> Self {
        let threads = load.threads.clamp(1, clients.max(1));
        let scheduled = load.scheduled.map_or(clients, |scheduled| scheduled.min(clients));
        let budget = match load.extent {
            Extent::Time(_) => None,
            Extent::Operations(count) => Some(AtomicI64::new(i64::try_from(count).unwrap_or(i64::MAX))),
        };
        let shared = Shared {
            closed: load.arrivals == Arrivals::Closed,
            timeout: nanos(load.timeout),
            clock,
            control: Control::default(),
            gate: Gate::new(clients),
            totals: Arc::new(Totals::new(load.operations, load.spans, threads)),
            budget,
            scheduled,
            at_work: AtomicUsize::new(scheduled),
            done: AtomicUsize::new(0),
            load,
        };
        Self { shared: Arc::new(shared), clients, threads }
    }

    /// Runs the clients to the end. Blocks; one task a client.
    ///
    /// # Errors
    /// When the operating system gives no threads.
    pub fn run(&self, tasks: Vec<ClientTask>) -> Result<Measurement, EngineError> {
        debug_assert_eq!(tasks.len(), self.clients);
        let mut hands: Vec<Vec<(usize, ClientTask)>> = (0..self.threads).map(|_| Vec::new()).collect();
        for (index, task) in tasks.into_iter().enumerate() {
            hands[index % self.threads].push((index, task));
        }
        let fail = |cause| EngineError::Threads { threads: self.threads, cause };
        thread::scope(|scope| {
            let mut workers = Vec::new();
            for (shard, hand) in hands.into_iter().enumerate() {
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
        Ok(self.measured())
    }

    /// Runs the clients to the end, all of them on this thread and by its runtime's clock. Where that is paused
    /// (`tokio::time::pause`), time passes only while every client waits, none of them ends an operation in no time
    /// at all, and whoever does the same again sees the same again.
    pub async fn run_simulated(&self, tasks: Vec<ClientTask>) -> Measurement {
        let hand = tasks.into_iter().enumerate().collect();
        LocalSet::new().run_until(self.seat(0, hand)).await;
        self.measured()
    }

    /// One thread: a runtime and its clients.
    fn work(&self, shard: usize, hand: Vec<(usize, ClientTask)>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .inspect_err(|_| self.give_up())?;
        LocalSet::new().block_on(&runtime, self.seat(shard, hand));
        Ok(())
    }

    /// Runs the clients of one thread: their seats, with the pacer and the recorder that they share.
    async fn seat(&self, shard: usize, hand: Vec<(usize, ClientTask)>) {
        let load = &self.shared.load;
        let (rate, turn) = self.shared.share(shard, self.threads);
        let seed = load.seed ^ ((shard as u64) << 32);
        let bench = Rc::new(RefCell::new(Bench {
            phase: None,
            pacer: Pacer::new(load.arrivals, rate, turn, seed),
            recorder: Recorder::new(shard, Arc::clone(&self.shared.totals)),
        }));
        let mut seats = JoinSet::new();
        for (index, task) in hand {
            let seat = Seat::new(Arc::clone(&self.shared), Rc::clone(&bench), index);
            seats.spawn_local(task(seat));
        }
        while let Some(ended) = seats.join_next().await {
            if let Err(panic) = ended {
                self.stop(Stop::Defect(format!("a client panicked: {panic}")));
                self.give_up();
            }
        }
        bench.borrow_mut().finish(self.arrivals_end());
    }

    /// Whether every client had nothing left to do.
    fn all_done(&self) -> bool {
        self.shared.done.load(Ordering::Relaxed) == self.clients
    }

    /// Until when arrivals count as due: to the end of the measured part, unless the trial was cut
    /// short. A number of operations is started to the last, so none is dropped.
    fn arrivals_end(&self) -> u64 {
        match self.shared.load.extent {
            Extent::Operations(_) => 0,
            Extent::Time(_) if self.shared.control.stopping() => self.shared.clock.now(),
            Extent::Time(_) => u64::MAX,
        }
    }

    /// Ends the trial before its time: nothing more is started, what is in flight is waited for.
    pub fn stop(&self, reason: Stop) {
        self.shared.control.stop(reason);
    }

    /// Also gives up what is in flight; its outcome is then unknown.
    pub fn give_up(&self) {
        self.shared.control.abandon();
    }

    /// How far it is.
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

    fn measured(&self) -> Measurement {
        let collected = self.shared.totals.collect();
        let passed = self.progress().measured.unwrap_or_default();
        let start = self.shared.gate.measured().unwrap_or_default();
        let until = |end: u64| Duration::from_nanos(end.saturating_sub(start));
        let window = match self.shared.load.extent {
            // what the clients waited for in vain after the last of it is no time that it took
            Extent::Time(asked) if self.all_done() => asked.min(until(collected.ends.ok)),
            Extent::Time(asked) => asked.min(passed),
            // as little as what others waited for in vain after the last on the schedule
            Extent::Operations(_) => until(collected.ends.scheduled.max(collected.ends.ok)),
        };
        let mut series = collected.series;
        // a stall that lasts to the end is a row of zeros for each second too
        while (series.len() as u64) < window.as_secs() {
            series.push(Second::empty(series.len() as u64, self.shared.load.operations.len()));
        }
        let mut operations = collected.operations;
        for operation in &mut operations {
            operation.lasted = match self.shared.load.extent {
                // what others did after the last on the schedule is no time that those took
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
            stopped: self.shared.control.reason(),
        }
    }
}
