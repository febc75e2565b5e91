//! What a run tells of its progress, and how it is told to end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use acidtest_engine::{Progress, Second};
use acidtest_model::MemberId;
use acidtest_observe::LatelyUsed;
use acidtest_results::RunResult;

/// What is new a second later in the measured part of a trial.
#[derive(Clone, Debug)]
pub struct SecondSeen<'a> {
    /// Names of the operations, in the order of the counts of each second.
    pub operations: &'a [&'static str],
    /// The seconds that have become complete. There may be none, while all clients wait, and several afterwards.
    pub seconds: &'a [Second],
    /// What clients, servers and machine have used; nothing at the end of the trial.
    pub used: &'a [LatelyUsed],
    /// The name and the level of a quantity that rises and falls, such as messages in a queue.
    pub gauge: Option<(&'static str, u64)>,
}

/// What has become of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultStage {
    /// It was brought about.
    Begun,
    /// The member was started again, or goes on.
    Back,
    Answers,
    /// There was nothing to do it to.
    Missed,
}

/// Is told how a run goes on. Whatever it has no use for, it may leave out.
pub trait Observer {
    /// The run that will begin goes on with this result.
    fn go_on(&mut self, _begun: &RunResult) {}
    /// A run of at least and at most so many trials begins, each of which should be driven for this long, where the plan says
    /// it.
    fn start(&mut self, _least: u64, _most: u64, _each: Option<Duration>) {}
    /// An activity begins that takes a while and whose progress cannot be measured.
    fn doing(&mut self, _what: &str) {}
    /// Such an activity goes on, for so long.
    fn going_on(&mut self, _what: &str, _passed: Duration) {}
    /// A trial of the cell of this name begins.
    fn begin(&mut self, _cell: &str) {}
    /// So many of all rows have been loaded in the time that has passed.
    fn loading(&mut self, _rows: u64, _all: u64, _passed: Duration) {}
    /// The clients are driven: how far, and the share of the measured part that is over, from 0 to 1.
    fn measured(&mut self, _progress: &Progress, _share: f64) {}
    /// A second of the measured part is over, or the measured part is.
    fn second(&mut self, _seen: &SecondSeen<'_>) {}
    /// A fault of this name hits the member so long after the beginning of the measured part, or goes on.
    fn fault(&mut self, _name: &str, _member: MemberId, _stage: FaultStage, _at: Duration) {}
    /// A trial of the cell with this index has ended, and is in the result.
    fn kept(&mut self, _result: &RunResult, _cell: usize) {}
    /// A trial is not run: its cell failed before, or it was run before the interruption.
    fn skip(&mut self) {}
    /// The trial ended with this verdict, or for this reason.
    fn end(&mut self, _verdict: &str) {}
    /// The run has ended.
    fn finish(&mut self) {}
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {}

/// Time between two looks at a request to stop.
const LOOK: Duration = Duration::from_millis(30);

/// A request to stop the run, which then ends tidily. Clones share the request.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    is_set: Arc<AtomicBool>,
}

impl Interrupt {
    /// Asks the run to stop.
    pub fn set(&self) {
        self.is_set.store(true, Relaxed);
    }

    /// Whether the run was told to stop.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.is_set.load(Relaxed)
    }

    /// Waits until the run is told to stop.
    pub async fn until_set(&self) {
        while !self.is_set() {
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Who watches a run: it is told of the progress, and may ask for the end.
pub struct Watcher<'a> {
    /// Is told of the progress.
    pub observer: &'a mut dyn Observer,
    /// Asks for the end.
    pub interrupt: &'a Interrupt,
}
