//! The part of a trial's clients that one process drives, and how several such processes keep in step.
//!
//! The process that judges the trial drives no client itself: it is told what the parts record, brings it together as
//! the threads of one process would, and tells them when a phase begins. Nothing that is told depends on the clock of
//! a process: all moments are counted from the beginning of the measured part, which each process is told of. They
//! differ by the time that such a message takes.

use std::{
    collections::BTreeMap,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    ArrivalCounts, Extent, Load, Measurement, SoFar, Stop, Trial,
    gate::Phase,
    recorder::{EndTimes, RecordedBatch, Tallied},
};

/// How often a part tells of its last acknowledgement, and the whole looks whether it is to be stopped.
const BEAT: Duration = Duration::from_millis(10);

/// A part of a trial's clients. Threads belong to the parts in turn, and clients to the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its index among the parts, from 0.
    pub index: usize,
    /// How many parts there are, at least 1.
    pub of: usize,
    /// How many threads drive all parts; without a meaning where there is only one part.
    pub threads: usize,
}

impl Part {
    /// All clients.
    pub const WHOLE: Self = Self { index: 0, of: 1, threads: usize::MAX };

    /// Deals this many clients to so many processes, which have as many threads as asked for, but at least one each,
    /// and not more than there are clients.
    #[must_use]
    pub fn deal(clients: usize, processes: usize, threads: usize) -> Vec<Self> {
        let of = processes.clamp(1, clients.max(1));
        let threads = threads.clamp(of, clients.max(of));
        (0..of).map(|index| Self { index, of, threads }).collect()
    }

    /// Whether the client with this index belongs to it.
    #[must_use]
    pub fn has(self, client: usize) -> bool {
        client % self.threads % self.of == self.index
    }

    /// Whether it is all clients.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self == Self::WHOLE
    }

    /// Its share of a number of operations, by the clients on the schedule: the parts' shares add up to the number.
    fn share(self, count: u64, scheduled: usize) -> u64 {
        let before =
            |part: usize| (0..scheduled).filter(|client| client % self.threads % self.of < part).count();
        let up_to = |part: usize| u128::from(count) * before(part) as u128 / scheduled.max(1) as u128;
        u64::try_from(up_to(self.index + 1) - up_to(self.index)).unwrap_or(u64::MAX)
    }
}

/// What a part tells of its clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Report {
    /// Every client of the part has come to the gate of a phase.
    Arrived(Phase),
    /// What a thread recorded in one second.
    Recorded(RecordedBatch),
    /// A thread has ended.
    ThreadEnded {
        /// What was due there, and what became of it.
        arrived: ArrivalCounts,
        /// When its last operations ended, in nanoseconds from the beginning of the measured part.
        ends: EndTimes,
    },
    /// Every client of the part that is on the schedule has ended.
    ScheduleEnded,
    /// The part goes on.
    Beat {
        /// The last acknowledgement, in nanoseconds from the beginning of the measured part; none if there was none.
        last: Option<u64>,
        /// The same of operations that changed something.
        last_change: Option<u64>,
        /// Operations that were acknowledged so far.
        acknowledged: u64,
        /// Operations that ended with their connection so far.
        interrupted: u64,
        /// Connections that were lost and opened again so far.
        reconnects: u64,
    },
    /// The part stops, and the others are to stop too.
    Stopped(Stop),
    /// All clients of the part have ended.
    Over {
        /// How many clients had nothing left to draw.
        done: usize,
        /// Connections that were lost and opened again.
        reconnects: u64,
        /// The store's error messages, and how often each occurred.
        faults: BTreeMap<String, u64>,
        /// What was not as it should be with clients' connections at the end, and with how many.
        doubts: BTreeMap<String, u64>,
    },
}

/// What a part is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Instruction {
    /// All clients of all parts have come to the gate of this phase: it begins.
    Begin(Phase),
    /// Every client on the schedule has ended, in all parts.
    ScheduleOver,
    /// All connections are to be closed, whatever is in flight on them.
    Disconnect,
    /// No operation is to be started any more.
    Stop,
    /// The operations in flight are to be given up as well.
    GiveUp,
}

/// News of a part, for the whole.
#[derive(Clone, Debug)]
pub enum News {
    /// It reports.
    Report(Report),
    /// Its process has ended before it was over; carries how, in words that follow `a client process`.
    Gone(String),
}

impl Trial {
    /// Follows what the process that judges the trial tells this part.
    pub fn follow(&self, instruction: Instruction) {
        match instruction {
            Instruction::Begin(phase) => self.shared.gate.open(phase),
            Instruction::ScheduleOver => self.shared.schedule_over(),
            Instruction::Disconnect => self.disconnect(),
            Instruction::Stop => self.stop(Stop::Interrupted),
            Instruction::GiveUp => self.give_up(),
        }
    }

    /// How far this part has come, to be told every now and then.
    #[must_use]
    pub fn beat(&self) -> Report {
        let SoFar { last_acknowledged, last_changed, acknowledged, interrupted } = self.so_far();
        let [last, last_change] = [last_acknowledged, last_changed]
            .map(|end| end.map(|end| u64::try_from(end.as_nanos()).unwrap_or(u64::MAX)));
        let reconnects = self.shared.totals.progress().2;
        Report::Beat { last, last_change, acknowledged, interrupted, reconnects }
    }

    /// Brings together what the parts of this trial report, by index, until all are over. `tell` tells every part.
    /// Blocks the calling thread.
    pub fn gather(
        &self,
        parts: usize,
        news: &Receiver<(usize, News)>,
        mut tell: impl FnMut(Instruction),
    ) -> Measurement {
        let mut gathered = Gathered::new(parts);
        let (mut stopping, mut abandoned, mut disconnects) = (false, false, 0);
        while !gathered.is_over() {
            match news.recv_timeout(BEAT) {
                Ok((part, News::Report(report))) => self.take(part, report, &mut gathered, &mut tell),
                Ok((part, News::Gone(how))) => {
                    self.stop(Stop::PartLost(format!("a client process {how}")));
                    self.give_up();
                    gathered.over[part] = true;
                }
                Err(RecvTimeoutError::Timeout) => {}
                // nobody is left who could tell anything
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let control = &self.shared.control;
            while disconnects < control.disconnects() {
                disconnects += 1;
                tell(Instruction::Disconnect);
            }
            if control.stopping() && !std::mem::replace(&mut stopping, true) {
                tell(Instruction::Stop);
            }
            if control.abandoned() && !std::mem::replace(&mut abandoned, true) {
                tell(Instruction::GiveUp);
            }
        }
        self.measured()
    }

    fn take(&self, part: usize, report: Report, gathered: &mut Gathered, tell: &mut impl FnMut(Instruction)) {
        let totals = &self.shared.totals;
        let begun = || self.shared.gate.measured().unwrap_or_default();
        match report {
            Report::Arrived(phase) => {
                let come = &mut gathered.arrived[phase as usize];
                *come += 1;
                if *come == gathered.over.len() {
                    self.shared.gate.enter(phase, self.shared.clock.now());
                    tell(Instruction::Begin(phase));
                }
            }
            Report::Recorded(batch) => totals.take_recorded(batch),
            Report::ThreadEnded { arrived, ends } => totals.arrive(arrived, ends.after(begun())),
            Report::ScheduleEnded => {
                gathered.schedules += 1;
                if gathered.schedules == gathered.over.len() {
                    tell(Instruction::ScheduleOver);
                }
            }
            Report::Beat { last, last_change, acknowledged, interrupted, reconnects } => {
                let [last, last_change] = [last, last_change].map(|end| end.map_or(0, |end| begun() + end));
                let more = interrupted
                    .saturating_sub(std::mem::replace(&mut gathered.interrupted[part], interrupted));
                let so_far = Tallied { last, last_change, acknowledged, interrupted };
                totals.tallied_by(part, so_far, more);
                gathered.reconnect(part, reconnects, totals);
            }
            Report::Stopped(reason) => self.stop(reason),
            Report::Over { done, reconnects, faults, doubts } => {
                self.shared.count_done(done);
                gathered.reconnect(part, reconnects, totals);
                totals.add_messages(&faults, &doubts);
                gathered.over[part] = true;
            }
        }
    }
}

/// What the whole knows of its parts.
struct Gathered {
    /// How many parts have come to the gate of each phase.
    arrived: [usize; 2],
    /// How many parts have no client on the schedule left.
    schedules: usize,
    reconnects: Vec<u64>,
    interrupted: Vec<u64>,
    over: Vec<bool>,
}

impl Gathered {
    fn new(parts: usize) -> Self {
        Self {
            arrived: [0; 2],
            schedules: 0,
            reconnects: vec![0; parts],
            interrupted: vec![0; parts],
            over: vec![false; parts],
        }
    }

    fn is_over(&self) -> bool {
        self.over.iter().all(|over| *over)
    }

    fn reconnect(&mut self, part: usize, reconnects: u64, totals: &crate::recorder::Totals) {
        let before = std::mem::replace(&mut self.reconnects[part], reconnects);
        (before..reconnects).for_each(|_| totals.reconnected());
    }
}

/// What a part reports to; none in a trial that one process drives.
pub(crate) type Told = Option<Sender<Report>>;

/// The operations that are left to a part of this load's clients; none where their number is not limited.
pub(crate) fn budget(load: &Load, part: Part, scheduled: usize) -> Option<u64> {
    match load.extent {
        Extent::Time(_) => None,
        Extent::Operations(count) => Some(part.share(count, scheduled)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every client belongs to one part, every part has one, and no operation is asked for twice or left out.
        #[test]
        fn clients_and_operations_are_dealt_out(
            clients in 1_usize..40,
            processes in 1_usize..10,
            threads in 1_usize..10,
            scheduled in 1_usize..40,
            count in 0_u64..1_000_000,
        ) {
            let parts = Part::deal(clients, processes, threads);
            prop_assert_eq!(parts.len(), processes.min(clients));
            for client in 0..clients {
                prop_assert_eq!(parts.iter().filter(|part| part.has(client)).count(), 1);
            }
            for part in &parts {
                prop_assert!((0..clients).any(|client| part.has(client)), "{:?}", part);
            }
            let scheduled = scheduled.min(clients);
            let shares: Vec<u64> = parts.iter().map(|part| part.share(count, scheduled)).collect();
            prop_assert_eq!(shares.iter().sum::<u64>(), count);
            for (part, share) in parts.iter().zip(shares) {
                let has_some = (0..scheduled).any(|client| part.has(client));
                prop_assert!(has_some || share == 0, "{:?} has {} operations and nobody to do them", part, share);
            }
        }
    }
}
