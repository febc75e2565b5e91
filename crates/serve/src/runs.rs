//! The runs: in which order they are made, one at a time, and what is kept of them over a restart.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use acidtest_results::Plan;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Notify, watch},
    time::sleep,
};

use crate::{
    Assignment, CheckedPlan, Ending, Event, Program, Refusal,
    live::Live,
    process::{self, RunProcess},
    results::{self, Unreadable},
};

/// The folder in that of results in which the runs are kept.
const KEPT: &str = ".serve";

/// The file there that the server locks, so that there is one for a folder.
const SERVER: &str = "server";

/// The file there that the process of a run locks, so that those of two servers in turn do not make two at once.
const TURN: &str = "turn";

/// Length of the longest record, in bytes: a plan and a few words.
const RECORD: u64 = 1 << 20;

/// Runs that may wait at once.
pub(crate) const WAITING: usize = 100;

/// Runs that have ended whose events are still kept.
const REMEMBERED: usize = 8;

/// Runs that have ended of which something is kept. Results of earlier ones stay, and are no longer listed.
const ENDED: usize = 2_000;

/// Results of others that are listed.
const OTHERS: usize = 1_000;

/// How long a run may take to end tidily once it is told to: an audit, and the end of its servers. Then it is killed.
const TIDYING: Duration = Duration::from_mins(10);

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// Others come first.
    Waiting,
    /// Its trials are made.
    Running,
    /// It was told to stop, and ends tidily.
    Stopping,
    /// It went to its end, whatever was found; trials may be missing where a store could not be reached.
    Done,
    /// It was told to stop, and did. What was measured until then is in its result.
    Stopped,
    /// The server or the run's process ended in the middle of it. What was measured until then is in its result.
    CutOff,
    /// It could not be made.
    Failed,
}

impl State {
    pub(crate) const ALL: [Self; 7] =
        [Self::Waiting, Self::Running, Self::Stopping, Self::Done, Self::Stopped, Self::CutOff, Self::Failed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Done => "done",
            Self::Stopped => "stopped",
            Self::CutOff => "cut_off",
            Self::Failed => "failed",
        }
    }

    pub(crate) fn words(self) -> String {
        self.name().replace('_', " ")
    }

    /// Whether nothing more happens to it by itself.
    pub(crate) fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Stopped | Self::CutOff | Self::Failed)
    }
}

/// What is kept of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    /// Its place among all runs that were asked for.
    pub(crate) number: u64,
    pub(crate) plan: Plan,
    pub(crate) cells: usize,
    pub(crate) seconds: Option<(f64, f64)>,
    pub(crate) command: String,
    pub(crate) state: State,
    pub(crate) submitted: Timestamp,
    pub(crate) started: Option<Timestamp>,
    pub(crate) ended: Option<Timestamp>,
    /// The exit status that the command line would have had.
    pub(crate) exit_status: Option<u8>,
    /// Whether every trial of its plan is in its result.
    pub(crate) is_complete: bool,
    pub(crate) error: Option<String>,
    /// What would spoil its figures, as it was found on the machine before its trials, or before those since it last went on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
    /// Whether it may still be made by somebody else: a result in the folder that is not complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_open: bool,
}

impl Record {
    /// What was found, once it has ended: `holds`, `broken`, `unknown`, or the like.
    pub(crate) fn verdict(&self) -> Option<&'static str> {
        match self
            .exit_status
            .filter(|_| matches!(self.state, State::Done | State::Stopped | State::CutOff))?
        {
            0 => Some("holds"),
            4 => Some("broken"),
            5 => Some("unknown"),
            _ => None,
        }
    }

    /// Whether it is being made, perhaps by the command line.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.state.has_ended() || self.is_open
    }

    /// The name of its result's file.
    pub(crate) fn file_name(&self) -> String {
        results::file_name(&self.id, &self.plan.workload)
    }
}

/// A result in the folder that no run of the server has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Other {
    /// The id of the run that it is of.
    pub(crate) id: String,
    /// The workload.
    pub(crate) workload: String,
}

struct Run {
    record: Record,
    /// Whether what it is now could be written: until then it is not made.
    is_kept: bool,
    /// What happens in it; none for one that ended long ago.
    live: Option<Live>,
    state: watch::Sender<State>,
}

#[derive(Debug)]
pub(crate) enum NotTaken {
    /// So many wait already.
    Full,
    /// It cannot be kept.
    Storage(io::Error),
    /// The server is about to end.
    Ending,
}

#[derive(Debug)]
pub(crate) enum NotResumed {
    /// It is under way, or nothing of it is missing.
    Is(State),
    NotTaken(NotTaken),
}

pub(crate) struct Runs {
    folder: PathBuf,
    program: Arc<dyn Program>,
    all: Mutex<BTreeMap<String, Run>>,
    /// Runs were added, or are to stop.
    changed: Notify,
    ends: watch::Sender<bool>,
    /// Held while a record is written, so that the last one that is written is the latest.
    keeping: tokio::sync::Mutex<()>,
    /// Locked for as long as the server lives.
    _server: File,
}

impl Runs {
    /// Opens the runs of a folder of results, and marks those that were cut off.
    pub(crate) fn open(folder: &Path, program: Arc<dyn Program>) -> Result<Self, String> {
        let kept = folder.join(KEPT);
        let fail = |doing: &str, error: &dyn std::fmt::Display| {
            format!(
                "cannot {doing} in {}: {error}\n  remedy: name a folder that can be written with --out",
                kept.display()
            )
        };
        fs::create_dir_all(&kept).map_err(|error| fail("keep runs", &error))?;
        let server = results::lock_file(&kept.join(SERVER)).map_err(|error| fail("keep runs", &error))?;
        if server.try_lock().is_err() {
            return Err(format!(
                "another acidtest serves {} already\n  remedy: use that one, or name another folder with --out",
                folder.display()
            ));
        }
        let mut records = Vec::new();
        for entry in fs::read_dir(&kept).map_err(|error| fail("read runs", &error))?.flatten() {
            if entry.path().extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            // one that cannot be read is left where it is, and is no concern of the others
            let Ok(text) = results::text(&entry.path(), RECORD) else { continue };
            let Ok(mut record) = serde_json::from_str::<Record>(&text) else { continue };
            let is_named = entry.file_name().to_str() == Some(&format!("{}.json", record.id));
            if !is_named || !is_id(&record.id) || !results::is_plain(&record.plan.workload) {
                continue;
            }
            if matches!(record.state, State::Running | State::Stopping) {
                record.state = State::CutOff;
                record.error = Some("the server ended during the run".to_owned());
                // without it the next start says the same
                let _ = keep(&kept, &record);
            }
            records.push(record);
        }
        records.sort_by_key(|record: &Record| record.number);
        let all = (1..).zip(records).map(|(number, record)| {
            let record = Record { number, ..record };
            let live = (!record.state.has_ended()).then(Live::default);
            let mut run = Run { state: watch::Sender::new(record.state), record, is_kept: true, live };
            run.set(run.record.state);
            (run.record.id.clone(), run)
        });
        let runs = all.collect();
        Ok(Self {
            folder: folder.to_owned(),
            program,
            all: Mutex::new(runs),
            changed: Notify::new(),
            ends: watch::Sender::new(false),
            keeping: tokio::sync::Mutex::new(()),
            _server: server,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Run>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of a run's result.
    pub(crate) fn file(&self, record: &Record) -> PathBuf {
        self.folder.join(record.file_name())
    }

    pub(crate) fn get(&self, id: &str) -> Option<Record> {
        self.lock().get(id).map(|run| run.record.clone())
    }

    /// At most so many runs that were asked for before the one with this number, the latest first, and whether there are
    /// others.
    pub(crate) fn list(&self, before: u64, limit: usize) -> (Vec<Record>, bool) {
        let all = self.lock();
        let mut earlier: Vec<&Record> =
            all.values().map(|run| &run.record).filter(|record| record.number < before).collect();
        earlier.sort_by_key(|record| std::cmp::Reverse(record.number));
        (earlier.iter().take(limit).map(|record| (*record).clone()).collect(), earlier.len() > limit)
    }

    pub(crate) fn states(&self) -> Vec<State> {
        self.lock().values().map(|run| run.record.state).collect()
    }

    /// Whether a run is made.
    pub(crate) fn is_busy(&self) -> bool {
        self.states().iter().any(|state| matches!(state, State::Running | State::Stopping))
    }

    /// Results in the folder that no run of the server has, the latest first.
    pub(crate) fn others(&self) -> Vec<Other> {
        let known: BTreeSet<String> = self.lock().keys().cloned().collect();
        let mut others = results::named(&self.folder);
        others.retain(|(id, _)| is_id(id) && !known.contains(id));
        // an id begins with its time
        others.sort_by(|(one, _), (other, _)| other.cmp(one));
        others.into_iter().take(OTHERS).map(|(id, workload)| Other { id, workload }).collect()
    }

    /// The run with this id, as its result in the folder tells of it.
    pub(crate) fn other(&self, id: &str) -> Result<Record, Unreadable> {
        let mut named = results::named(&self.folder).into_iter();
        let Some((id, workload)) = named.find(|(named, _)| named == id && is_id(id)) else {
            return Err(Unreadable::Missing);
        };
        let result = results::result(&self.folder.join(results::file_name(&id, &workload)))?;
        if result.run != id || result.plan.workload != workload {
            return Err(Unreadable::Other("it is the result of another run".to_owned()));
        }
        let time = |text: &str| {
            text.parse()
                .map_err(|error| Unreadable::Other(format!("its time {text} cannot be read: {error}")))
        };
        let (started, finished) = (time(&result.started)?, time(&result.finished)?);
        let is_open = result.interrupted;
        Ok(Record {
            number: 0,
            cells: result.cells.len(),
            seconds: None,
            command: self.program.check(&result.plan).map(|checked| checked.command).unwrap_or_default(),
            state: if is_open { State::CutOff } else { State::Done },
            submitted: started,
            started: Some(started),
            ended: (!is_open).then_some(finished),
            exit_status: (!is_open).then(|| self.program.exit_status(&result)),
            is_complete: !is_open && result.cells.iter().all(|cell| cell.error.is_none()),
            error: is_open.then(|| {
                "it is not complete: it is still running on the command line, or it was interrupted"
                    .to_owned()
            }),
            notes: Vec::new(),
            is_open,
            plan: result.plan,
            id,
        })
    }

    /// How many runs come before this one, of those that wait; none if it does not wait.
    pub(crate) fn before(&self, record: &Record) -> Option<usize> {
        let is_before = |other: &&Run| !other.record.state.has_ended() && other.record.number < record.number;
        (record.state == State::Waiting).then(|| self.lock().values().filter(is_before).count())
    }

    /// What happens in a run, also in one that has ended.
    pub(crate) fn live(&self, id: &str) -> Option<Live> {
        let runs = self.lock();
        let run = runs.get(id)?;
        Some(run.live.clone().unwrap_or_else(|| {
            let live = Live::default();
            live.tell(&Event::State { state: run.record.state.name().to_owned() });
            live.end();
            live
        }))
    }

    /// Takes a run, which waits for its turn.
    pub(crate) async fn submit(&self, checked: CheckedPlan) -> Result<Record, NotTaken> {
        let record = {
            let mut runs = self.lock();
            self.has_room(&runs)?;
            let CheckedPlan { plan, cells, seconds, command, .. } = checked;
            let number = next_number(&runs);
            let is_taken =
                |id: &str| results::is_there(&self.folder.join(results::file_name(id, &plan.workload)));
            let record = Record {
                // there are fewer runs than ids
                id: std::iter::repeat_with(|| self.program.new_id())
                    .find(|id| !runs.contains_key(id) && !is_taken(id))
                    .unwrap_or_default(),
                number,
                plan,
                cells,
                seconds,
                command,
                state: State::Waiting,
                submitted: Timestamp::now(),
                started: None,
                ended: None,
                exit_status: None,
                is_complete: false,
                error: None,
                notes: Vec::new(),
                is_open: false,
            };
            let (state, live) = (watch::Sender::new(State::Waiting), Some(Live::default()));
            let mut run = Run { state, record: record.clone(), is_kept: false, live };
            run.set(State::Waiting);
            runs.insert(record.id.clone(), run);
            record
        };
        if let Err(error) = self.keep(&record.id).await {
            self.lock().remove(&record.id);
            return Err(NotTaken::Storage(error));
        }
        self.is_kept(&record.id);
        Ok(record)
    }

    /// Lets a run be made that is kept now.
    fn is_kept(&self, id: &str) {
        if let Some(run) = self.lock().get_mut(id) {
            run.is_kept = true;
        }
        self.changed.notify_one();
    }

    fn has_room(&self, runs: &BTreeMap<String, Run>) -> Result<(), NotTaken> {
        if *self.ends.borrow() {
            return Err(NotTaken::Ending);
        }
        let waiting = runs.values().filter(|run| run.record.state == State::Waiting).count();
        if waiting >= WAITING { Err(NotTaken::Full) } else { Ok(()) }
    }

    /// Has a run stopped that is under way, or does not make one that waits. One that has ended stays as it is.
    pub(crate) async fn stop(&self, id: &str) -> Option<Record> {
        let (record, was_waiting) = {
            let mut runs = self.lock();
            let run = runs.get_mut(id)?;
            let was_waiting = run.record.state == State::Waiting;
            match run.record.state {
                State::Waiting => {
                    run.record.ended = Some(Timestamp::now());
                    run.set(State::Stopped);
                }
                State::Running => run.set(State::Stopping),
                _ => {}
            }
            (run.record.clone(), was_waiting)
        };
        if was_waiting {
            // after a restart it would wait again, which is no harm
            let _ = self.keep(&record.id).await;
        }
        Some(record)
    }

    /// Lets a run go on that has ended and is not complete, when its turn comes.
    pub(crate) async fn resume(&self, id: &str) -> Option<Result<Record, NotResumed>> {
        let (before, record) = {
            let mut runs = self.lock();
            let before = runs.get(id)?.record.clone();
            if !before.state.has_ended() || before.is_complete {
                return Some(Err(NotResumed::Is(before.state)));
            }
            if let Err(why) = self.has_room(&runs) {
                return Some(Err(NotResumed::NotTaken(why)));
            }
            let number = next_number(&runs);
            let run = runs.get_mut(id)?;
            let record = &mut run.record;
            record.number = number;
            (record.ended, record.exit_status, record.error) = (None, None, None);
            record.notes.clear();
            run.live = Some(Live::default());
            run.is_kept = false;
            run.set(State::Waiting);
            (before, run.record.clone())
        };
        if let Err(error) = self.keep(&record.id).await {
            if let Some(run) = self.lock().get_mut(id) {
                let state = before.state;
                (run.record, run.is_kept) = (before, true);
                run.set(state);
            }
            return Some(Err(NotResumed::NotTaken(NotTaken::Storage(error))));
        }
        self.is_kept(id);
        Some(Ok(record))
    }

    /// Waits until a run has ended.
    pub(crate) async fn ended(&self, id: &str) -> Option<Record> {
        let mut state = self.lock().get(id)?.state.subscribe();
        // it ends with the run itself, which is not removed
        let _ = state.wait_for(|state| state.has_ended()).await;
        self.get(id)
    }

    /// Takes no more runs, and has the one that is made end.
    pub(crate) fn end(&self) {
        self.ends.send_replace(true);
    }

    /// Writes what is to be kept of a run, as it is now.
    async fn keep(&self, id: &str) -> io::Result<()> {
        let _keeping = self.keeping.lock().await;
        let record = self.get(id).ok_or_else(|| io::Error::other("the run no longer exists"))?;
        let kept = self.folder.join(KEPT);
        // the disk may be busy with what is measured
        tokio::task::spawn_blocking(move || keep(&kept, &record)).await?
    }

    /// Makes the runs one after the other, until the server ends.
    pub(crate) async fn make_all(&self) {
        let mut ends = self.ends.subscribe();
        while !*ends.borrow_and_update() {
            let first = {
                let runs = self.lock();
                let waiting = runs.values().filter(|run| run.is_kept && run.record.state == State::Waiting);
                waiting.min_by_key(|run| run.record.number).map(|run| run.record.id.clone())
            };
            if let Some(id) = first {
                self.make(&id).await;
                continue;
            }
            tokio::select! {
                () = self.changed.notified() => {}
                _ = ends.changed() => {}
            }
        }
    }

    async fn make(&self, id: &str) {
        let (record, live, state) = {
            let mut runs = self.lock();
            let Some(run) = runs.get_mut(id).filter(|run| run.record.state == State::Waiting) else { return };
            run.record.started = Some(Timestamp::now());
            run.set(State::Running);
            (run.record.clone(), run.live.clone().unwrap_or_default(), run.state.subscribe())
        };
        // a run that is not known to be under way would be made again after a kill, and not marked
        let end = match self.keep(&record.id).await {
            Ok(()) => self.process(&record, &live, state).await,
            Err(error) => End::failed(format!("cannot store its state: {error}")),
        };
        let record = {
            let mut runs = self.lock();
            let Some(run) = runs.get_mut(id) else { return };
            let has_result = results::is_there(&self.file(&run.record));
            let state = end.state(run.record.state == State::Stopping, *self.ends.borrow(), has_result);
            let record = &mut run.record;
            record.ended = Some(Timestamp::now());
            record.is_complete = end.how == Some(Ending::Complete) && has_result;
            (record.exit_status, record.error) = (end.exit_status, end.error);
            if end.how == Some(Ending::Complete) && !has_result {
                // whatever it found, nothing shows it
                record.exit_status = Some(1);
                record.error = Some("its result was removed as soon as it was written".to_owned());
            }
            run.set(state);
            let record = run.record.clone();
            (record, forget(&mut runs))
        };
        let (record, forgotten) = record;
        for id in forgotten {
            // one that stays is found again at the next start, and forgotten then
            let _ = fs::remove_file(self.folder.join(KEPT).join(format!("{id}.json")));
        }
        // on a full disk it is found again as cut off, with what it has measured
        let _ = self.keep(&record.id).await;
    }

    /// Keeps with a run what was found on the machine before its trials.
    fn note(&self, id: &str, said: &str) {
        if let Some(run) = self.lock().get_mut(id) {
            run.record.notes.push(said.to_owned());
        }
    }

    /// Has a process make a run, until it is done or told to stop.
    async fn process(&self, record: &Record, live: &Live, mut state: watch::Receiver<State>) -> End {
        let (file, turn) = (self.file(record), self.folder.join(KEPT).join(TURN));
        let assignment = Assignment { id: &record.id, plan: &record.plan, file: &file, turn: &turn };
        let assigned = match self.program.assign(&assignment) {
            Ok(assigned) => assigned,
            Err(Refusal { detail, .. }) => return End::failed(detail),
        };
        let mut process = match RunProcess::start(self.program.runner(), assigned) {
            Ok(process) => process,
            Err(error) => return End::failed(format!("cannot start a process for it: {error}")),
        };
        let mut ends = self.ends.subscribe();
        let (mut ended, mut is_told, mut is_late) = (None, false, false);
        // until the process has said its last word, or is told to end, it has all the time that it needs
        let mut late = Box::pin(sleep(Duration::MAX));
        loop {
            tokio::select! {
                event = process.next() => match event {
                    None => break,
                    Some(Event::Ended { how, exit_status, error }) => {
                        ended = Some(End { how: Some(how), exit_status: Some(exit_status), error });
                        late = Box::pin(sleep(process::ENDING));
                    }
                    Some(event) => {
                        if let Event::Note { said } = &event {
                            self.note(&record.id, said);
                        }
                        live.tell(&event);
                    }
                },
                () = told(&mut state, &mut ends), if !is_told => {
                    is_told = true;
                    process.stop();
                    late = Box::pin(sleep(TIDYING));
                }
                () = &mut late => {
                    is_late = true;
                    break;
                }
            }
        }
        let (status, said) = process.end(is_late).await;
        ended.unwrap_or_else(|| End { how: None, exit_status: None, error: Some(lost(status, &said)) })
    }
}

/// Waits until a run is told to stop, or the server to end.
async fn told(state: &mut watch::Receiver<State>, ends: &mut watch::Receiver<bool>) {
    tokio::select! {
        _ = state.wait_for(|state| *state == State::Stopping) => {}
        _ = ends.wait_for(|ends| *ends) => {}
    }
}

struct End {
    /// None where its process ended without saying so.
    how: Option<Ending>,
    exit_status: Option<u8>,
    error: Option<String>,
}

impl End {
    fn failed(error: String) -> Self {
        Self { how: Some(Ending::Failed), exit_status: Some(1), error: Some(error) }
    }

    /// The run's state, given whether it was told to stop, whether the server ends, and whether there is a result.
    fn state(&self, was_told: bool, server_ends: bool, has_result: bool) -> State {
        match self.how {
            None => State::CutOff,
            Some(Ending::Interrupted) if server_ends && !was_told => State::CutOff,
            Some(Ending::Interrupted) => State::Stopped,
            Some(Ending::Failed) => State::Failed,
            Some(_) if !has_result => State::Failed,
            Some(_) => State::Done,
        }
    }
}

fn lost(status: Option<ExitStatus>, said: &str) -> String {
    let how = status.map_or_else(|| "it did not end and was killed".to_owned(), |status| status.to_string());
    let said = if said.is_empty() { String::new() } else { format!("; its last output: {said}") };
    format!("its process ended during the run: {how}{said}")
}

impl Run {
    fn set(&mut self, state: State) {
        self.record.state = state;
        if let Some(live) = &self.live {
            live.tell(&Event::State { state: state.name().to_owned() });
            if state.has_ended() {
                live.end();
            }
        }
        self.state.send_replace(state);
    }
}

fn next_number(runs: &BTreeMap<String, Run>) -> u64 {
    runs.values().map(|run| run.record.number).max().unwrap_or(0).saturating_add(1)
}

/// Forgets what happened in runs that ended long ago, and all of the oldest. Returns which those are.
fn forget(runs: &mut BTreeMap<String, Run>) -> Vec<String> {
    let mut ended: Vec<&mut Run> = runs.values_mut().filter(|run| run.record.state.has_ended()).collect();
    ended.sort_by_key(|run| std::cmp::Reverse(run.record.ended));
    ended.iter_mut().skip(REMEMBERED).for_each(|run| run.live = None);
    let oldest: Vec<String> = ended.iter().skip(ENDED).map(|run| run.record.id.clone()).collect();
    runs.retain(|id, _| !oldest.contains(id));
    oldest
}

/// Whether it can be the id of a run.
pub(crate) fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn keep(folder: &Path, record: &Record) -> io::Result<()> {
    let text = serde_json::to_string_pretty(record)?;
    results::write(&folder.join(format!("{}.json", record.id)), &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(number: u64, state: State) -> (String, Run) {
        let ended = state.has_ended().then(|| Timestamp::UNIX_EPOCH + Duration::from_secs(number));
        let record = Record {
            id: format!("run-{number}"),
            number,
            plan: Plan::of("inventory"),
            cells: 1,
            seconds: None,
            command: String::new(),
            state,
            submitted: Timestamp::UNIX_EPOCH,
            started: None,
            ended,
            exit_status: None,
            is_complete: false,
            error: None,
            notes: Vec::new(),
            is_open: false,
        };
        let run =
            Run { state: watch::Sender::new(state), is_kept: true, live: Some(Live::default()), record };
        (run.record.id.clone(), run)
    }

    #[test]
    fn of_runs_that_ended_long_ago_nothing_is_kept_in_memory() {
        let (ended, more) = (ENDED as u64, 7);
        let mut runs: BTreeMap<String, Run> =
            (0..ended + more).map(|number| run(number, State::Done)).collect();
        // one that is older than all of them, and has not ended
        runs.extend([run(ended + more, State::Waiting)]);
        let mut forgotten = forget(&mut runs);
        forgotten.sort();
        assert_eq!(forgotten, (0..more).map(|number| format!("run-{number}")).collect::<Vec<_>>());
        assert_eq!(runs.len(), ENDED + 1);
        let mut told: Vec<u64> =
            runs.values().filter(|run| run.live.is_some()).map(|run| run.record.number).collect();
        told.sort_unstable();
        let latest = ended + more - REMEMBERED as u64..=ended + more;
        assert_eq!(told, latest.collect::<Vec<_>>(), "the latest, and the one that waits");
        assert!(forget(&mut runs).is_empty());
    }

    #[test]
    fn a_run_is_done_whatever_was_found_and_nothing_else_is() {
        let end = |how| End { how, exit_status: Some(4), error: None };
        for (how, was_told, server_ends, has_result, state) in [
            (Some(Ending::Complete), false, false, true, State::Done),
            (Some(Ending::Complete), true, false, true, State::Done),
            (Some(Ending::Incomplete), false, false, true, State::Done),
            (Some(Ending::Complete), false, false, false, State::Failed),
            (Some(Ending::Interrupted), true, false, true, State::Stopped),
            (Some(Ending::Interrupted), false, true, true, State::CutOff),
            (Some(Ending::Interrupted), true, true, true, State::Stopped),
            (Some(Ending::Failed), false, false, true, State::Failed),
            (None, false, false, true, State::CutOff),
        ] {
            assert_eq!(
                end(how).state(was_told, server_ends, has_result),
                state,
                "{how:?} {was_told} {server_ends}"
            );
        }
        let (_, run) = run(1, State::Done);
        let of = |exit_status| Record { exit_status, ..run.record.clone() }.verdict();
        assert_eq!(
            [Some(0), Some(4), Some(5), Some(3), None].map(of),
            [Some("holds"), Some("broken"), Some("unknown"), None, None]
        );
    }
}
