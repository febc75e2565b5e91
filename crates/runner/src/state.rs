//! The state of a run: what has become of its cells so far, in the form in which the result tells it.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use acidtest_model::{EffectiveReplication, EffectiveSettings};
use acidtest_results::{CellResult, Next, RunResult, TrialResult, UnreadableHistogram};
use acidtest_workloads::DURABILITY;

use crate::Failure;

/// Shortest time between two writings of the result: this long, and this many times as long as the last writing took.
const WRITING: Duration = Duration::from_secs(10);
const WRITING_TIMES: u32 = 20;

/// What a run knows of its cells. Whatever a run decides from what it has done, it asks here.
pub(crate) struct RunState {
    result: RunResult,
    /// The number of this session of the run, from 1.
    session: u32,
    /// When the result was last written, and how long the writing took.
    written: Option<(Instant, Duration)>,
}

impl RunState {
    /// The state of a run that begins with this result: one without trials, or that of the run which is resumed.
    pub(crate) fn of(result: RunResult) -> Self {
        let sessions = result.cells.iter().flat_map(|cell| &cell.trials).map(|trial| trial.session).max();
        Self { result, session: sessions.unwrap_or(0) + 1, written: None }
    }

    /// The result as far as the run has come.
    pub(crate) fn result(&self) -> &RunResult {
        &self.result
    }

    /// The result of a run that has ended.
    pub(crate) fn into_result(self) -> RunResult {
        self.result
    }

    /// The run's id.
    pub(crate) fn run(&self) -> &str {
        &self.result.run
    }

    /// The number of this session of the run, from 1.
    pub(crate) fn session(&self) -> u32 {
        self.session
    }

    /// How many trials the result has.
    pub(crate) fn trials(&self) -> usize {
        self.result.cells.iter().map(|cell| cell.trials.len()).sum()
    }

    /// How many trials need not be made again.
    pub(crate) fn made(&self) -> usize {
        self.result.cells.iter().map(|cell| cell.made_trials().count()).sum()
    }

    /// Whether nothing is left to do for a cell in a round: it has a trial of that round, or cannot be run.
    pub(crate) fn is_done(&self, cell: usize, round: u32) -> bool {
        let cell = &self.result.cells[cell];
        cell.error.is_some() || cell.made_trials().any(|trial| trial.round == round)
    }

    /// The round of a cell's next probe.
    pub(crate) fn next_round(&self, cell: usize) -> u32 {
        self.result.cells[cell].trials.iter().map(|trial| trial.round).max().unwrap_or(0) + 1
    }

    /// What the search on a cell asks for next.
    ///
    /// # Errors
    /// A histogram of an earlier session cannot be read.
    pub(crate) fn next_probe(&self, cell: usize) -> Result<Next, Failure> {
        self.result.next_probe(&self.result.cells[cell]).map_err(unreadable)
    }

    /// What a cell's last probe told, in words.
    ///
    /// # Errors
    /// As [`next_probe`](Self::next_probe).
    pub(crate) fn last_probe(&self, cell: usize) -> Result<Option<String>, Failure> {
        self.result.last_probe(&self.result.cells[cell]).map_err(unreadable)
    }

    /// Names of the guarantees that a cell does without.
    pub(crate) fn without(&self, cell: usize) -> &[String] {
        &self.result.cells[cell].without
    }

    pub(crate) fn keep(&mut self, cell: usize, trial: TrialResult) {
        self.result.cells[cell].trials.push(trial);
    }

    /// A cell cannot be run any more.
    pub(crate) fn fail(&mut self, cell: usize, cause: &str) {
        self.result.cells[cell].error = Some(cause.to_owned());
    }

    /// Notes the settings that a cell is measured at. `forgets` is whether a member is ended that promises nothing of what it
    /// keeps.
    ///
    /// # Errors
    /// They are not those of its earlier trials: trials at other settings would not be of the same cell.
    pub(crate) fn note_settings(
        &mut self,
        cell: usize,
        now: &EffectiveSettings,
        forgets: bool,
    ) -> Result<(), Failure> {
        let cell = &mut self.result.cells[cell];
        if let (Some(then), false) = (&cell.effective, cell.trials.is_empty())
            && (&then.version, then.durability, &then.because) != (&now.version, now.durability, &now.because)
        {
            return Err(Failure::Store(format!(
                "the server is not the one that its earlier trials ran on: it was {}, {}; it is {}, {}",
                then.version, then.because, now.version, now.because
            )));
        }
        // nothing was promised of what comes after a crash: what it loses is counted, and breaks no promise
        if forgets && !cell.without.iter().any(|name| name == DURABILITY.name) {
            cell.without.push(DURABILITY.name.to_owned());
        }
        cell.effective = Some(now.clone());
        Ok(())
    }

    /// Notes what the leader's settings amount to.
    ///
    /// # Errors
    /// It is not what it was in the cell's earlier trials.
    pub(crate) fn note_replication(&mut self, cell: usize, now: EffectiveReplication) -> Result<(), Failure> {
        let cell = &mut self.result.cells[cell];
        if let (Some(then), false) = (&cell.replication_read, cell.trials.is_empty())
            && *then != now
        {
            return Err(Failure::Store(format!(
                "the cluster is not what it was in earlier trials: {} replicas followed, {}; now {}, {}",
                then.following, then.because, now.following, now.because
            )));
        }
        cell.replication_read = Some(now);
        Ok(())
    }

    /// Notes by how many threads a cell's clients are driven.
    pub(crate) fn note_threads(&mut self, cell: usize, threads: usize) {
        self.result.cells[cell].threads = u32::try_from(threads).ok();
    }

    /// Notes how long a message to the host of a cell's store and its answer take, if it has one.
    pub(crate) fn note_round_trip(&mut self, cell: usize, took: Option<Duration>) {
        self.result.cells[cell].host_round_trip_ns = took.map(|took| took.as_nanos() as f64);
    }

    /// The error if no trial could be run at all and every cell has one: there is no result then.
    pub(crate) fn nothing_run(&self) -> Option<Failure> {
        if self.trials() > 0 {
            return None;
        }
        let cause = |cell: &'_ CellResult| cell.error.clone();
        let causes = self.result.cells.iter().map(cause).collect::<Option<BTreeSet<_>>>()?;
        Some(Failure::Store(causes.into_iter().collect::<Vec<_>>().join("\nerror: ")))
    }

    /// Writes the result at intervals, so that a run that is killed loses little and one of many short trials does
    /// not spend its time writing. A run without a trial has nothing to lose.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write_now_and_then(
        &mut self,
        write: &dyn Fn(&RunResult) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let due = self.written.is_none_or(|(last, took)| last.elapsed() >= WRITING.max(took * WRITING_TIMES));
        if due && self.trials() > 0 {
            let begun = Instant::now();
            // set for the time of writing: a reader that finds the file after a kill must read it so
            self.result.interrupted = true;
            write(&self.result)?;
            self.result.interrupted = false;
            self.written = Some((Instant::now(), begun.elapsed()));
        }
        Ok(())
    }

    /// Sets what the searches found so far.
    ///
    /// # Errors
    /// As [`next_probe`](Self::next_probe).
    pub(crate) fn find_capacities(&mut self) -> Result<(), Failure> {
        self.result.find_capacities().map_err(unreadable)
    }

    /// Sets what follows from all trials, now that there are no more.
    ///
    /// # Errors
    /// As [`next_probe`](Self::next_probe).
    pub(crate) fn conclude(&mut self, interrupted: bool) -> Result<(), Failure> {
        self.result.interrupted = interrupted;
        self.result.finished = now();
        match self.result.plan.capacity {
            Some(_) => self.find_capacities(),
            None => self.result.price().map_err(unreadable),
        }
    }
}

/// The present moment, in RFC 3339, UTC.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().to_string()
}

#[allow(clippy::needless_pass_by_value, reason = "as an error is mapped")]
fn unreadable(error: UnreadableHistogram) -> Failure {
    Failure::Other(error.to_string())
}
