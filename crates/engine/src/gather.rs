//! How the parts of a trial, each driven by a process, keep in step.
//!
//! The process that judges the trial drives no client itself: it is told what the parts record, brings it together as
//! the threads of one process would, and tells them when a phase begins.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Duration,
};

use crate::{
    Measurement, SoFar, Stop, Trial,
    message::{Instruction, News, Report},
    recorder::{Tallied, Totals},
};

/// How often a part tells of its last acknowledgement, and the whole looks whether it is to be stopped.
const BEAT: Duration = Duration::from_millis(10);

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

    fn reconnect(&mut self, part: usize, reconnects: u64, totals: &Totals) {
        let before = std::mem::replace(&mut self.reconnects[part], reconnects);
        (before..reconnects).for_each(|_| totals.reconnected());
    }
}
