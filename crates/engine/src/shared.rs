//! The state that the clients of a trial share.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
};

use tokio::sync::Semaphore;

use crate::{
    Extent, Load,
    clock::Clock,
    control::Control,
    gate::Gate,
    load::Phase,
    message::{Report, ReportSender},
    recorder::Totals,
};

/// The state that all drivers of a trial share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) load: Load,
    pub(crate) closed: bool,
    pub(crate) timeout: u64,
    pub(crate) clock: Clock,
    pub(crate) control: Control,
    pub(crate) gate: Gate,
    pub(crate) totals: Arc<Totals>,
    /// Operations that may still be started; `None` where their number is not limited.
    pub(crate) budget: Option<AtomicI64>,
    /// Whether each client has a thread for itself, on which time passes while it blocks. Either all have or none, so that what
    /// they do alike takes alike.
    pub(crate) are_alone: bool,
    /// Turns of the clients that connect.
    pub(crate) connecting: Semaphore,
    /// Clients on the schedule.
    pub(crate) scheduled: usize,
    /// How many clients of this process that are on the schedule have not yet ended the measured part.
    pub(crate) at_work: AtomicUsize,
    /// Whether every client on the schedule has ended, in all processes.
    pub(crate) schedule_over: AtomicBool,
    pub(crate) told: ReportSender,
    /// How many clients had nothing left to draw before the measured part was over.
    pub(crate) done: AtomicUsize,
}

impl Shared {
    /// Takes one operation off the budget. False if none was left.
    pub(crate) fn budget_left(&self) -> bool {
        self.budget.as_ref().is_none_or(|left| left.fetch_sub(1, Ordering::Relaxed) > 0)
    }

    /// Whether the budget is used up.
    pub(crate) fn is_spent(&self) -> bool {
        self.budget.as_ref().is_some_and(|left| left.load(Ordering::Relaxed) <= 0)
    }

    /// Counts a client that has nothing left to draw, if the measured part is under way.
    pub(crate) fn done(&self, phase: Phase) {
        if phase == Phase::Measured {
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that a client on the schedule has ended the measured part.
    pub(crate) fn schedule_ended(&self) {
        if self.at_work.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.part_of_schedule_ended();
        }
    }

    /// Notes that no client of this process is on the schedule any more.
    pub(crate) fn part_of_schedule_ended(&self) {
        match &self.told {
            None => self.schedule_over(),
            // nobody to tell: the process that judges the trial has ended, and this one ends too
            Some(told) => _ = told.send(Report::ScheduleEnded),
        }
    }

    /// Notes that every client on the schedule has ended, in all processes.
    pub(crate) fn schedule_over(&self) {
        self.schedule_over.store(true, Ordering::Relaxed);
    }

    /// Counts clients of other processes that had nothing left to draw.
    pub(crate) fn count_done(&self, clients: usize) {
        self.done.fetch_add(clients, Ordering::Relaxed);
    }

    /// Whether a number of operations was asked for and every client on the schedule has ended. From then on the
    /// scheduled clients produce nothing more for the others.
    pub(crate) fn is_schedule_over(&self) -> bool {
        self.budget.is_some() && self.schedule_over.load(Ordering::Relaxed)
    }

    /// How many of the operations a client that comes and goes does.
    pub(crate) fn share_of(&self, client: usize) -> u64 {
        let Extent::Operations(count) = self.load.extent else { return u64::MAX };
        let (clients, client) = (self.scheduled.max(1) as u64, client as u64);
        count / clients + u64::from(client < count % clients)
    }

    /// How many nanoseconds of the ramp pass before such a client comes.
    pub(crate) fn comes_after(&self, ramp: u64, client: usize) -> u64 {
        let passed = u128::from(ramp) * client as u128 / self.scheduled.max(1) as u128;
        u64::try_from(passed).unwrap_or(u64::MAX)
    }

    /// A thread's share of the arrivals (0 to 1), and its turn among the threads that have a share (0 to 1).
    /// Clients are distributed over the threads in turn, those on the schedule first.
    pub(crate) fn share(&self, shard: usize, threads: usize) -> (f64, f64) {
        let scheduled = (shard..self.scheduled).step_by(threads).len();
        let sharing = threads.min(self.scheduled).max(1);
        (scheduled as f64 / self.scheduled.max(1) as f64, shard as f64 / sharing as f64)
    }
}
